"""Reading a policy of either kind: of symbols, or of points."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, TypeAlias

from fugu.contract.policy import MAX_POLICY_BYTES, Policy

if TYPE_CHECKING:
    from fugu.contract.measure_policy import MeasurePolicy

__all__ = ["AnyPolicy", "read_policy"]

AnyPolicy: TypeAlias = "Policy | MeasurePolicy"


def read_policy(text: str | bytes) -> AnyPolicy:
    """Parse and check the JSON form of a policy of either kind; the PolicyError names the first wrong field."""
    try:
        document = json.loads(text) if len(text) <= MAX_POLICY_BYTES else None
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict) or document.get("kind") != "points":
        return Policy.from_json(text)  # which refuses what is no policy, or too long
    from fugu.contract.measure_policy import MeasurePolicy  # here, because few streams have points

    return MeasurePolicy.from_json(text)
