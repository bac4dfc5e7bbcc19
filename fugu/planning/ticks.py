"""From rows with times to ticks: order, duplicates, gaps, and logs of changes.

Rows whose times are at least roughly even are ticks as they are, as heartbeats are. Where the steps are steady, rows
that are absent become ticks without a reading. Anything else is a log of changes: a value holds until the next one, and
is looked at once a period.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fugu.chains.arrays import Floats, Ints
from fugu.planning.errors import PlanningError

__all__ = ["LONGEST_SILENCE", "Ticks", "from_changes", "from_samples", "in_order", "is_changes"]

LONGEST_SILENCE = 10
"""A stretch ends where no row came for more than so many periods."""
_EVEN_SHARE = 0.8
_STEADY = 0.1
_MOST_DUPLICATES = 0.2
_MOST_TICKS = 5_000_000
_MINUTE, _SECOND = 60.0, 1.0
_FEW_MINUTES = 600


class Ticks(NamedTuple):
    """Ticks of a recording.

    Attributes:
        rows: (n,) the row that each tick has its reading from, -1 for a tick without one.
        segments: (n,) numbers counting up: equal where no gap lies between.
        period_seconds: from tick to tick.
        steady: whether ticks are at equal times; else they are events.
        notes: what was done, in sentences.
        moments: (n,) of a log of changes, when each was looked at, in seconds.
    """

    rows: Ints
    segments: Ints
    period_seconds: float
    steady: bool
    notes: tuple[str, ...]
    moments: Floats | None = None


def in_order(times: Floats, parts: Ints) -> tuple[Ints, tuple[str, ...]]:
    """The rows in the order of their times, part by part, and the last one of those of one time.

    Args:
        times: (n,) in seconds.
        parts: (n,) rows of different parts have nothing to do with one another.

    Returns:
        Indices of rows, and what was done, in sentences.
    """
    order = np.lexsort((times, parts))
    notes = []
    if moved := int((order != np.arange(len(order))).sum()):
        notes.append(f"{moved} rows were not in the order of their times: sorted")
    same = (np.diff(times[order]) == 0.0) & (np.diff(parts[order]) == 0)
    if 0 < same.sum() <= _MOST_DUPLICATES * len(order):
        notes.append(f"{int(same.sum())} rows had the time of the next one: left out")
        order = order[np.concatenate([~same, [True]])]
    return order, tuple(notes)


def is_changes(times: Floats, parts: Ints) -> bool:
    """Whether rows in order are too uneven in time to be ticks: fewer than 4 of 5 steps are near the median one."""
    steps = np.diff(times)[np.diff(parts) == 0]
    steps = steps[steps > 0.0]
    if not steps.size:
        return False
    middle = np.median(steps)
    return bool(((steps >= middle / 2.0) & (steps <= 2.0 * middle)).mean() < _EVEN_SHARE)


def from_samples(times: Floats, parts: Ints) -> Ticks:
    """Rows that are ticks, in order; where they are steady, absent rows become ticks without a reading.

    Raises:
        PlanningError: no two rows have different times.
    """
    inside = np.diff(parts) == 0
    steps = np.diff(times)
    positive = steps[inside & (steps > 0.0)]
    if not positive.size:
        raise PlanningError("no two rows have different times: leave the times out, or repair them")
    # Times that are coarser than the rows say only how long all of them took.
    coarse = float((steps[inside] == 0.0).mean()) > _MOST_DUPLICATES
    period = float(steps[inside].mean() if coarse else np.median(positive))
    gap = ~inside | (steps > LONGEST_SILENCE * max(period, float(np.median(positive))))
    steady = not coarse and bool((np.abs(positive - period) <= _STEADY * period).mean() >= _EVEN_SHARE)
    notes = (
        (f"{int((gap & inside).sum())} gaps in time: nothing is learned across them",) if (gap & inside).any() else ()
    )
    numbers = np.concatenate([[0], np.cumsum(gap)]).astype(np.int64)
    rows = np.arange(len(times), dtype=np.int64)
    if not steady:
        return Ticks(rows, numbers, period, False, notes)
    advance = np.where(gap, 1, np.maximum(1, np.round(steps / period))).astype(np.int64)
    at = np.concatenate([[0], np.cumsum(advance)])
    filled, held = np.full(int(at[-1]) + 1, -1, dtype=np.int64), np.empty(int(at[-1]) + 1, dtype=np.int64)
    filled[at] = rows
    held[:] = numbers[np.searchsorted(at, np.arange(len(held)), side="right") - 1]
    if len(filled) > len(rows):
        notes = (*notes, f"{len(filled) - len(rows)} rows are absent: ticks without a reading")
    return Ticks(filled, held, period, True, notes)


def from_changes(times: Floats, parts: Ints, works: NDArray[np.bool_], period: float | None) -> Ticks:
    """A log of changes as ticks: what holds at the end of each period.

    Args:
        times, parts: (n,) of the rows, in order.
        works: (n,) false where the source says that it does not work: what follows is a gap until the next row.
        period: in seconds; by default a minute, or a second for logs shorter than ten hours.

    Raises:
        PlanningError: there would be too many ticks.
    """
    starts = np.flatnonzero(np.concatenate([[True], np.diff(parts) != 0]))
    ends = np.concatenate([starts[1:], [len(times)]])
    span = float((times[ends - 1] - times[starts]).sum())
    step = period or (_MINUTE if span >= _FEW_MINUTES * _MINUTE else _SECOND)
    if span / step > _MOST_TICKS:
        raise PlanningError(f"more than {_MOST_TICKS} ticks of {step:g} s: give a longer --period")
    rows, segments, moments, number = [], [], [], 0
    for first, end in zip(starts.tolist(), ends.tolist(), strict=True):
        wanted = times[first] + step * np.arange(int((times[end - 1] - times[first]) / step) + 1)
        newest = first + np.searchsorted(times[first:end], wanted, side="right") - 1
        alive = works[newest]
        begins = np.concatenate([[True], alive[1:] != alive[:-1]])
        rows.append(newest[alive])
        moments.append(wanted[alive])
        segments.append((number + np.cumsum(begins))[alive])
        number += int(begins.sum())
    notes = [f"a log of changes: each value holds until the next, looked at every {step:g} s"]
    if not works.all():
        notes.append("times at which the source did not work are gaps")
    return Ticks(np.concatenate(rows), np.concatenate(segments), step, True, tuple(notes), np.concatenate(moments))
