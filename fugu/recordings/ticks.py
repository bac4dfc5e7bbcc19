"""Rows with times become ticks: events are a tick each, samples are put on a clock, and changes hold until the next."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fugu.contract.errors import FuguError

if TYPE_CHECKING:
    from fugu.chains.arrays import Floats, Ints
    from fugu.recordings.options import RowKind

__all__ = ["Steps", "few", "in_order", "kind_of", "steps_of", "ticks_of"]

LONGEST_SILENCE = 10
"""A stretch ends where no row came for more than so many periods."""
_EVEN_SHARE, _STEADY = 0.8, 0.95
_WHOLE, _WHOLE_SHARE = 0.05, 0.99
_EXPLAINED = 0.9
_MOST_DUPLICATES = 0.2
_MOST_TICKS = 5_000_000
_MINUTE, _LONG = 60.0, 36_000.0
_LEVELS, _FEWEST, _REPEATS, _LOOKED_AT = 8, 20, 0.01, 1_000


class Steps(NamedTuple):
    """Steps of time between rows of one stretch.

    `all` are (m,) seconds from a row to the next, and `at` the rows that they end at; `median` is of those above 0.
    """

    all: Floats
    at: Ints
    median: float

    @property
    def inside(self) -> Floats:
        """Those above 0 that are no gaps."""
        return np.asarray(self.all[(self.all > 0.0) & (self.all <= LONGEST_SILENCE * self.median)])


class Ticks(NamedTuple):
    """Ticks of a recording.

    `rows` are (n,), the row of each tick's reading, -1 without one; `segments` are equal where no gap lies between.
    Ticks that are not `steady` are events. `moments` are (n,) seconds at which a log of changes was looked at; `notes`
    say what was done.
    """

    rows: Ints
    segments: Ints
    period_seconds: float
    steady: bool
    notes: tuple[str, ...]
    moments: Floats | None = None


def in_order(times: Floats, parts: Ints) -> tuple[Ints, tuple[str, ...]]:
    """Indices of rows in the order of their times, part by part, the last of those of one time; and what was done.

    `times` are (n,) in seconds; rows of different parts have nothing to do with one another.
    """
    order, notes = np.arange(len(times)), []
    if ((np.diff(parts) < 0) | ((np.diff(parts) == 0) & (np.diff(times) < 0.0))).any():
        order = np.lexsort((times, parts))
    if moved := int((order != np.arange(len(order))).sum()):
        notes.append(f"{moved} rows were not in the order of their times: sorted")
    same = (np.diff(times[order]) == 0.0) & (np.diff(parts[order]) == 0)
    if 0 < same.sum() <= _MOST_DUPLICATES * len(order):
        notes.append(f"{int(same.sum())} rows had the time of the next one: left out")
        order = order[np.concatenate([~same, [True]])]
    return order, tuple(notes)


def steps_of(times: Floats, parts: Ints) -> Steps:
    """The steps of rows in order.

    Raises:
        FuguError: no two rows have different times.
    """
    inside = np.diff(parts) == 0
    steps = np.diff(times)[inside]
    if len(times) == 1:
        raise FuguError("it has one row: there is nothing to learn from")
    if not (steps > 0.0).any():
        raise FuguError("no two rows have different times: leave the times out, or repair them")
    return Steps(steps, np.flatnonzero(inside) + 1, float(np.median(steps[steps > 0.0])))


def few(values: NDArray[Any]) -> bool:
    """Return whether there are at most 8 different values."""
    return len(np.unique(values[:_LOOKED_AT])) <= _LEVELS and len(np.unique(values)) <= _LEVELS


def kind_of(
    steps: Steps, present: NDArray[Any], explained: list[Floats], changes: bool | None
) -> tuple[RowKind, str] | None:
    """Kind of rows in order, and why; None if they may be of several.

    Args:
        steps: their steps.
        present: readings, or a number for each name, of the rows that have one.
        explained: (n,) columns of numbers that steps may explain, as intervals explain a rate.
        changes: what the form, or the name of a column, says.
    """
    if changes:
        return "changes", "their times are of changes"
    repeats = float((np.diff(present) == 0).mean()) if len(present) > 1 else 1.0
    steady = float((np.abs(steps.all - steps.median) <= _WHOLE * steps.median).mean())
    if changes is None and len(present) >= _FEWEST and repeats < _REPEATS and steady < _STEADY and few(present):
        return "changes", "no value comes twice in a row"
    if any(_explains(steps, column) for column in explained):
        return "events", "the step to each explains its reading"
    if not steps.inside.size:
        return None
    multiples = steps.inside / steps.median
    is_multiple = np.abs(multiples - np.round(multiples)) <= _WHOLE
    on_clock = bool((is_multiple & (np.round(multiples) >= 1.0)).mean() >= _WHOLE_SHARE)
    positive = steps.all[steps.all > 0.0]
    even = bool(((positive >= steps.median / 2.0) & (positive <= 2.0 * steps.median)).mean() >= _EVEN_SHARE)
    coarse = float((steps.all == 0.0).mean()) > _MOST_DUPLICATES
    if on_clock and not coarse and (even or repeats >= _REPEATS):
        return "samples", f"steps are multiples of {steps.median:g} s"
    if changes is None and not even and not coarse:
        return "changes", "steps of time are uneven"
    return None


def _explains(steps: Steps, column: Floats) -> bool:
    """Return whether rates (60 s by the step), or intervals, explain a column of numbers."""
    values = column[steps.at]
    usable = (steps.all > 0.0) & (steps.all <= LONGEST_SILENCE * steps.median) & np.isfinite(values)
    if usable.sum() < _FEWEST:
        return False
    values, step_seconds = values[usable], steps.all[usable]
    if not values.std() or not step_seconds.std():
        return False
    return any(float(np.corrcoef(values, cause)[0, 1]) > _EXPLAINED for cause in (60.0 / step_seconds, step_seconds))


def ticks_of(
    kind: RowKind, times: Floats, parts: Ints, works: NDArray[np.bool_], steps: Steps, period: float | None
) -> Ticks:
    """Ticks of rows in order. Changes without a `period` are looked at every minute, or second; `works` is of changes.

    Raises:
        FuguError: there would be too many ticks; or rows are ticks, and another period was given.
    """
    match kind:
        case "changes":
            return _from_changes(times, parts, works, period)
        case "events":
            if period is not None:
                raise FuguError("--period is for logs of changes; here every row is a tick")
            return _from_events(times, parts, steps)
    return _from_samples(times, parts, steps, period)


def _stretches(times: Floats, parts: Ints, longest: float) -> tuple[Ints, tuple[str, ...]]:
    """(n,) the number of each row's stretch, which rises at gaps; and what was done."""
    inside = np.diff(parts) == 0
    gap = ~inside | (np.diff(times) > longest)
    number = int((gap & inside).sum())
    stretches = np.concatenate([[0], np.cumsum(gap)]).astype(np.int64)
    return stretches, ((f"{number} gaps in time: nothing is learned across them",) if number else ())


def _from_events(times: Floats, parts: Ints, steps: Steps) -> Ticks:
    """Rows that are a tick each. Times that are coarser than rows say only how long all of them took."""
    coarse = float((steps.all == 0.0).mean()) > _MOST_DUPLICATES
    period = float(steps.all.mean()) if coarse else steps.median
    stretches, notes = _stretches(times, parts, LONGEST_SILENCE * max(period, steps.median))
    return Ticks(np.arange(len(times), dtype=np.int64), stretches, period, False, notes)


def _from_samples(times: Floats, parts: Ints, steps: Steps, period: float | None) -> Ticks:
    """Rows on a clock; absent ones become ticks without a reading. Of rows for one tick the last counts."""
    step = period or steps.median
    stretches, notes = _stretches(times, parts, LONGEST_SILENCE * max(step, steps.median))
    gap = np.diff(stretches) > 0
    if (times[-1] - times[0]) / step > _MOST_TICKS and (~gap * np.diff(times)).sum() / step > _MOST_TICKS:
        raise FuguError(f"more than {_MOST_TICKS} ticks of {step:g} s: give a longer --period")
    least = 0 if period is not None else 1
    advance = np.where(gap, 1, np.maximum(least, np.round(np.diff(times) / step))).astype(np.int64)
    if period is not None:  # steps that are no multiples would drift by their roundings
        starts = np.flatnonzero(np.concatenate([[True], gap]))
        ticks = np.round((times - np.repeat(times[starts], np.diff([*starts, len(times)]))) / step).astype(np.int64)
        advance = np.where(gap, 1, np.diff(ticks))
    at = np.concatenate([[0], np.cumsum(advance)])
    rows = np.full(int(at[-1]) + 1, -1, dtype=np.int64)
    rows[at] = np.arange(len(times))
    segments = stretches[np.searchsorted(at, np.arange(len(rows)), side="right") - 1]
    if absent := int((rows < 0).sum()):
        notes = (*notes, f"{absent} rows are absent: ticks without a reading")
    if double := len(times) - int((rows >= 0).sum()):
        notes = (*notes, f"{double} rows are of the tick of the next one: left out")
    return Ticks(rows, segments, step, True, notes)


def _from_changes(times: Floats, parts: Ints, works: NDArray[np.bool_], period: float | None) -> Ticks:
    """A log of changes as ticks: what holds at the end of each period.

    A row that does not work begins a gap until the next one. The period is by default a minute, or a second for logs
    shorter than ten hours.
    """
    starts = np.flatnonzero(np.concatenate([[True], np.diff(parts) != 0]))
    ends = np.concatenate([starts[1:], [len(times)]])
    span = float((times[ends - 1] - times[starts]).sum())
    step = period or (_MINUTE if span >= _LONG else 1.0)
    if span / step > _MOST_TICKS:
        raise FuguError(f"more than {_MOST_TICKS} ticks of {step:g} s: give a longer --period")
    rows, segments, moments, number = [], [], [], 0
    for first, end in zip(starts.tolist(), ends.tolist(), strict=True):
        look_times = times[first] + step * np.arange(math.floor((times[end - 1] - times[first]) / step) + 1)
        newest = first + np.searchsorted(times[first:end], look_times, side="right") - 1
        alive = works[newest]
        begins = np.concatenate([[True], alive[1:] != alive[:-1]])
        rows.append(newest[alive])
        moments.append(look_times[alive])
        segments.append((number + np.cumsum(begins))[alive])
        number += int(begins.sum())
    hint = "" if period else " (--period SECONDS for another)"
    notes = [f"a log of changes: each value holds until the next, looked at every {step:g} s{hint}"]
    if not works.all():
        notes.append("times at which the source did not work are gaps")
    return Ticks(np.concatenate(rows), np.concatenate(segments), step, True, tuple(notes), np.concatenate(moments))
