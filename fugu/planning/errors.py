"""What can be wrong with a plan, or with the files that it is made from."""

from __future__ import annotations

from fugu.contract.errors import FuguError

__all__ = ["PlanningError"]


class PlanningError(FuguError):
    """There is no such plan, or what it is to be made from cannot be read or used."""
