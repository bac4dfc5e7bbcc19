"""Turn rows with times into ticks: each event is a tick, samples are put on a clock, a change holds until the next."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fugu.contract.errors import FuguError

if TYPE_CHECKING:
    from fugu.chains.arrays import Bools, Floats, Ints
    from fugu.recordings.options import RowKind

__all__ = ["Steps", "is_coarse", "look_at", "row_kind_of", "sort_distinct", "sort_rows", "steps_of", "ticks_of"]

LONGEST_SILENCE = 10
"""Periods without a row after which a stretch ends."""
_EVEN_SHARE, _STEADY = 0.8, 0.95
_WHOLE, _WHOLE_SHARE = 0.05, 0.99
_EXPLAINED = 0.9
_MOST_DUPLICATES = 0.2
_MOST_TICKS = 5_000_000
_MINUTE, _LONG = 60.0, 36_000.0
_LEVELS, _FEWEST, _REPEATS, _LOOKED_AT = 8, 20, 0.01, 1_000


class Steps(NamedTuple):
    """Steps of time between neighbouring rows of one part.

    `seconds` has the (m,) steps, `end_rows` the (m,) indices of the rows that end them. `median` is the median step
    above 0.
    """

    seconds: Floats
    end_rows: Ints
    median: float

    @property
    def is_inside(self) -> Bools:
        """(m,) whether a step is above 0, and no gap."""
        return (self.seconds > 0.0) & (self.seconds <= LONGEST_SILENCE * self.median)

    @property
    def is_coarse(self) -> bool:
        """True if over a fifth of the rows have the time of the row before."""
        return bool((self.seconds == 0.0).mean() > _MOST_DUPLICATES)


class Ticks(NamedTuple):
    """Ticks of a recording.

    `rows` has the (n,) row indices of the ticks' readings, -1 without a reading. `segments` are (n,) numbers, equal for
    ticks without a gap between them. `steady` is False for events. `moments` are the (n,) times in seconds at which a
    log of changes is sampled, None for other rows. `notes` name rows left out, gaps and absent rows.
    """

    rows: Ints
    segments: Ints
    period_seconds: float
    steady: bool
    notes: tuple[str, ...]
    moments: Floats | None = None


def sort_distinct(times: Floats, row_parts: Ints) -> tuple[Ints, tuple[str, ...]]:
    """Sort rows by time within each part, and leave out rows with the time of the next row.

    Return the rows' indices, and notes. `times` are (n,) in seconds. Of rows with equal times only the last is kept,
    unless over a fifth repeat a time.
    """
    order, notes = sort_rows(times, row_parts)
    has_next_time = (np.diff(times[order]) == 0.0) & (np.diff(row_parts[order]) == 0)
    if 0 < has_next_time.sum() <= _MOST_DUPLICATES * len(order):
        notes = (*notes, f"{int(has_next_time.sum())} rows had the time of the next one: left out")
        order = order[np.append(~has_next_time, True)]
    return order, notes


def sort_rows(times: Floats, row_parts: Ints) -> tuple[Ints, tuple[str, ...]]:
    """Sort rows by time within each part. Return their indices, and a note if rows moved."""
    order = np.lexsort((times, row_parts))
    moved_rows = int((order != np.arange(len(order))).sum())
    return order, (f"{moved_rows} rows were not in the order of their times: sorted",) if moved_rows else ()


def steps_of(times: Floats, row_parts: Ints) -> Steps:
    """Return the steps of time between rows, which are in order. FuguError: no two rows have different times."""
    in_part = np.diff(row_parts) == 0
    steps = np.diff(times)[in_part]
    if len(times) == 1:
        raise FuguError("it has one row: there is nothing to learn from")
    if not (steps > 0.0).any():
        raise FuguError("no two rows have different times: leave the times out, or repair them")
    return Steps(steps, np.flatnonzero(in_part) + 1, float(np.median(steps[steps > 0.0])))


def is_coarse(values: NDArray[Any]) -> bool:
    """Return whether an array has at most 8 different values."""
    return len(np.unique(values[:_LOOKED_AT])) <= _LEVELS and len(np.unique(values)) <= _LEVELS


def row_kind_of(
    steps: Steps, values: NDArray[Any], columns: list[Floats], changes: bool | None
) -> tuple[RowKind, str] | None:
    """Return the kind of rows and the reason for it; None if several kinds are possible.

    Args:
        steps: the steps of time between the rows.
        values: readings, or numbers for names, of the rows that have one.
        columns: columns of (n,) numbers that steps of time may explain, as intervals explain a heart rate.
        changes: whether rows are changes by the form of the file or the name of a column; None if neither shows it.
    """
    if changes:
        return "changes", "their times are of changes"
    repeat_rate = float((np.diff(values) == 0).mean()) if len(values) > 1 else 1.0
    steady = float((np.abs(steps.seconds - steps.median) <= _WHOLE * steps.median).mean())
    if changes is None and len(values) >= _FEWEST and repeat_rate < _REPEATS and steady < _STEADY and is_coarse(values):
        return "changes", "no value comes twice in a row"
    if any(_explains(steps, column) for column in columns):
        return "events", "the step to each explains its reading"
    if not steps.is_inside.any():
        return None
    step_multiples = steps.seconds[steps.is_inside] / steps.median
    is_multiple = np.abs(step_multiples - np.round(step_multiples)) <= _WHOLE
    is_on_clock = bool((is_multiple & (np.round(step_multiples) >= 1.0)).mean() >= _WHOLE_SHARE)
    positive_steps = steps.seconds[steps.seconds > 0.0]
    is_even = bool(
        ((positive_steps >= steps.median / 2.0) & (positive_steps <= 2.0 * steps.median)).mean() >= _EVEN_SHARE
    )
    if is_on_clock and not steps.is_coarse and (is_even or repeat_rate >= _REPEATS):
        return "samples", f"steps are multiples of {steps.median:g} s"
    if changes is None and not is_even and not steps.is_coarse:
        return "changes", "steps of time are uneven"
    return None


def _explains(steps: Steps, column: Floats) -> bool:
    """Return whether a column of numbers correlates with the steps in seconds, or with steps per minute."""
    numbers = column[steps.end_rows]
    is_usable = steps.is_inside & np.isfinite(numbers)
    if is_usable.sum() < _FEWEST:
        return False
    numbers, step_seconds = numbers[is_usable], steps.seconds[is_usable]
    if not numbers.std() or not step_seconds.std():
        return False
    return any(float(np.corrcoef(numbers, cause)[0, 1]) > _EXPLAINED for cause in (60.0 / step_seconds, step_seconds))


def ticks_of(kind: RowKind, times: Floats, row_parts: Ints, is_up: Bools, steps: Steps, period: float | None) -> Ticks:
    """Put rows on ticks. Without a `period`, changes are sampled every minute or second; only changes need `is_up`.

    Raises:
        FuguError: there would be too many ticks, or rows are events and a period is given.
    """
    match kind:
        case "changes":
            return _from_changes(times, row_parts, is_up, period)
        case "events":
            if period is not None:
                raise FuguError("--period is for logs of changes; here every row is a tick")
            return _from_events(times, row_parts, steps)
    return _from_samples(times, row_parts, steps, period)


def _stretch_numbers(times: Floats, row_parts: Ints, longest_step: float) -> tuple[Ints, tuple[str, ...]]:
    """Number the stretches between gaps and parts. Return each row's number, (n,), and a note if there are gaps."""
    in_part = np.diff(row_parts) == 0
    is_gap = ~in_part | (np.diff(times) > longest_step)
    gap_count = int((is_gap & in_part).sum())
    stretches = np.append(0, np.cumsum(is_gap))
    return stretches, ((f"{gap_count} gaps in time: nothing is learned across them",) if gap_count else ())


def _from_events(times: Floats, row_parts: Ints, steps: Steps) -> Ticks:
    """Make each row a tick. If many rows share a time, the period is the mean step, else the median step."""
    period = float(steps.seconds.mean()) if steps.is_coarse else steps.median
    stretches, notes = _stretch_numbers(times, row_parts, LONGEST_SILENCE * max(period, steps.median))
    return Ticks(np.arange(len(times), dtype=np.int64), stretches, period, False, notes)


def _from_samples(times: Floats, row_parts: Ints, steps: Steps, period: float | None) -> Ticks:
    """Put samples on a clock. Absent rows become ticks without a reading; a tick keeps the last of its rows."""
    step = period or steps.median
    stretches, notes = _stretch_numbers(times, row_parts, LONGEST_SILENCE * max(step, steps.median))
    is_gap = np.diff(stretches) > 0
    if (~is_gap * np.diff(times)).sum() / step > _MOST_TICKS:
        raise FuguError(f"more than {_MOST_TICKS} ticks of {step:g} s: give a longer --period")
    if period is None:
        tick_steps = np.maximum(1.0, np.round(np.diff(times) / step))
    else:  # steps that are no multiples would drift by their roundings
        _, first_rows = np.unique(stretches, return_index=True)
        tick_steps = np.diff(np.round((times - times[first_rows][stretches]) / step))
    tick_of_row = np.append(0, np.cumsum(np.where(is_gap, 1, tick_steps).astype(np.int64)))
    row_of_tick = np.full(int(tick_of_row[-1]) + 1, -1, dtype=np.int64)
    row_of_tick[tick_of_row] = np.arange(len(times))
    segments = stretches[np.searchsorted(tick_of_row, np.arange(len(row_of_tick)), side="right") - 1]
    if absent_rows := int((row_of_tick < 0).sum()):
        notes = (*notes, f"{absent_rows} rows are absent: ticks without a reading")
    if overwritten_rows := len(times) - int((row_of_tick >= 0).sum()):
        notes = (*notes, f"{overwritten_rows} rows are of the tick of the next one: left out")
    return Ticks(row_of_tick, segments, step, True, notes)


def look_at(times: Floats, first: int, end: int, step: float) -> tuple[Ints, Floats]:
    """Look at rows `first` to `end` once per `step`. Return the newest row at each look, and the time of the look."""
    look_times = times[first] + step * np.arange(int((times[end - 1] - times[first]) / step) + 1)
    return first + np.searchsorted(times[first:end], look_times, side="right") - 1, look_times


def _from_changes(times: Floats, row_parts: Ints, is_up: Bools, period: float | None) -> Ticks:
    """Turn a log of changes into ticks: the reading that holds at the end of each period.

    A row of a source that is down begins a gap until the next row. The default period is a minute, or a second for logs
    shorter than ten hours.
    """
    part_starts = np.flatnonzero(np.diff(row_parts, prepend=row_parts[0] - 1))
    part_ends = np.append(part_starts[1:], len(times))
    span = float((times[part_ends - 1] - times[part_starts]).sum())
    step = period or (_MINUTE if span >= _LONG else 1.0)
    if span / step > _MOST_TICKS:
        raise FuguError(f"more than {_MOST_TICKS} ticks of {step:g} s: give a longer --period")
    tick_rows, segments, moments, segment_count = [], [], [], 0
    for start, end in zip(part_starts.tolist(), part_ends.tolist(), strict=True):
        row_of_tick, look_times = look_at(times, start, end, step)
        is_alive = is_up[row_of_tick]
        is_start = np.append(True, is_alive[1:] != is_alive[:-1])
        tick_rows.append(row_of_tick[is_alive])
        moments.append(look_times[is_alive])
        segments.append((segment_count + np.cumsum(is_start))[is_alive])
        segment_count += int(is_start.sum())
    period_hint = "" if period else " (--period SECONDS for another)"
    notes = [f"a log of changes: each value holds until the next, looked at every {step:g} s{period_hint}"]
    if not is_up.all():
        notes.append("times at which the source did not work are gaps")
    return Ticks(np.concatenate(tick_rows), np.concatenate(segments), step, True, tuple(notes), np.concatenate(moments))
