"""Errors of plans, and of the files from which plans are made."""

from __future__ import annotations

from fugu.contract.errors import FuguError

__all__ = ["PlanningError", "TooShortError"]


class PlanningError(FuguError):
    """A plan is impossible, or its input cannot be read or used."""


class TooShortError(PlanningError):
    """A recording has too few ticks to plan from; a shorter baseline needs fewer.

    Attributes:
        lines: sentences on how the recording was read.
        baseline_ticks: ticks of the running mean; 0 without one.
    """

    lines: tuple[str, ...] = ()

    def __init__(self, message: str, baseline_ticks: int) -> None:
        super().__init__(message)
        self.baseline_ticks = baseline_ticks
