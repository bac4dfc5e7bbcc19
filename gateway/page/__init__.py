"""The live page: what one account may read at the broker, shown in a browser. A process of its own, read-only.

It imports no numerical library. The broker's access list is the boundary of what it shows; attackers see the same
messages. Charges and budgets it reads in the gateway's ledger.
"""

from __future__ import annotations

from typing import Any

__all__ = ["Fields"]

Fields = dict[str, Any]
"""Values by name; nearly all are sent to the page as JSON."""
