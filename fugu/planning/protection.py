"""The stretch that a plan's epsilon is about: of a time that was asked for, or what suits the period of the ticks."""

from __future__ import annotations

import numpy as np

from fugu.chains.arrays import Ints
from fugu.contract.stretches import stretch_ticks
from fugu.planning.errors import PlanningError

__all__ = ["long_stay", "protected_seconds", "protected_ticks"]

DEFAULT_SECONDS = 600
SLOW_SECONDS = 30.0
"""Ticks that far apart are protected for ten minutes if nothing else is asked for; more frequent ones singly."""
_NEARLY_ALL = 0.99


def protected_seconds(asked: int | None, period_seconds: float | None) -> int:
    """The seconds of a stretch, 0 for a single tick: as asked, or what suits the period.

    Raises:
        PlanningError: a time is asked for, and nobody knows how long a tick is.
    """
    if asked is None:
        return 0 if period_seconds is None or period_seconds < SLOW_SECONDS else DEFAULT_SECONDS
    if asked and period_seconds is None:
        raise PlanningError("--protect is a time, and the seconds from tick to tick are not known: give --period")
    return asked


def protected_ticks(seconds: int, period_seconds: float | None) -> int:
    """The most ticks of a stretch of so many seconds; 1 for 0."""
    if not seconds or period_seconds is None:
        return 1
    return stretch_ticks(seconds, max(1, round(period_seconds * 1_000_000)))


def long_stay(states: Ints, segments: Ints) -> int | None:
    """The ticks that 99 % of stays in a state are no longer than; None without any.

    `states` are (n,), -1 where there is none; `segments` are equal inside a stretch without gaps, which cuts a stay.
    """
    new = np.flatnonzero((np.diff(states, prepend=-2) != 0) | (np.diff(segments, prepend=-1) != 0))
    lengths = np.diff(new, append=len(states))[states[new] >= 0]
    return int(np.quantile(lengths, _NEARLY_ALL, method="inverted_cdf")) if len(lengths) else None
