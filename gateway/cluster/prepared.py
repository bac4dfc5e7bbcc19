"""Imported by the process that others are forked from: all that a gateway needs is loaded by then, once for a node."""

from __future__ import annotations

import gateway.cluster.cluster  # noqa: F401
from gateway.estimates.symbols import warm

warm()
