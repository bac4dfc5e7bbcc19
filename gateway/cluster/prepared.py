"""Loads all that a gateway needs, once for a node: imported by the process from which others are forked."""

from __future__ import annotations

import gateway.cluster.cluster  # noqa: F401
from gateway.estimates.symbols import warm

warm()
