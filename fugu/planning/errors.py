"""Errors of plans, and of the files that they are made from."""

from __future__ import annotations

from fugu.contract.errors import FuguError

__all__ = ["PlanningError", "TooShortError"]


class PlanningError(FuguError):
    """There is no such plan, or what it is to be made from cannot be read or used."""


class TooShortError(PlanningError):
    """A recording has too few ticks for states that look back so far; those with a shorter baseline need fewer.

    Attributes:
        lines: how it was read.
    """

    lines: tuple[str, ...] = ()

    def __init__(self, message: str, baseline_ticks: int) -> None:
        super().__init__(message)
        self.baseline_ticks = baseline_ticks
