"""Read a recording: rows with times become ticks.

Columns with a meaning: `t` (seconds), `seg` and `subject` (a new value begins a new segment, and no transition is
counted across). An empty cell or "nan" is a missing reading. Where more than 1 % of the rows have none, that is a state
of its own, after the others, as a policy should have it; else such rows are left out, and end a segment. Errors name
rows and columns, never a value.

Rows whose times are at least roughly even are ticks as they are, as heartbeats are. Where the steps are steady, absent
rows become ticks without a reading. Anything else is a log of changes: a value holds until the next one, and is looked
at once a period.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fugu.chains.arrays import Floats, Ints
from fugu.contract.classify import Classifier
from fugu.contract.discretisers import Baseline, Discretiser, Thresholds
from fugu.host.csv_file import Recorded, csv_rows
from fugu.planning.errors import PlanningError

__all__ = [
    "BOUNDARIES",
    "LATITUDE",
    "LONGITUDE",
    "MOST_MISSING",
    "Recording",
    "column_missing",
    "median_period",
    "number",
    "place_columns",
    "read_recording",
    "read_states",
    "states_of",
    "steps_inside",
    "ticks_of",
]


LONGEST_SILENCE = 10
"""A stretch ends where no row came for more than so many periods."""
_EVEN_SHARE = 0.8
_STEADY = 0.1
_MOST_DUPLICATES = 0.2
_MOST_TICKS = 5_000_000
_MINUTE, _LONG = 60.0, 36_000.0


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


def ticks_of(
    times: Floats, parts: Ints, works: NDArray[np.bool_], *, changes: bool, period: float | None
) -> tuple[Ints, Ticks]:
    """The order of rows in time, and what they are as ticks, which has moments if they are a log of changes.

    Rows (n,) are one if they say so, or are too uneven in time to be ticks. `works`, of rows as they came, says whether
    the source does; `period` is from tick to tick of changes, the usual one if it is None.

    Raises:
        PlanningError: there are no steps of time, or too many ticks; or rows are ticks, and a period was given.
    """
    order, notes = _in_order(times, parts)
    times, parts = times[order], parts[order]
    if changes or _is_changes(times, parts):
        ticks = _from_changes(times, parts, works[order], period)
    elif period is not None:
        raise PlanningError("--period is for logs of changes; here every row is a tick")
    else:
        ticks = _from_samples(times, parts)
    return order, ticks._replace(notes=(*notes, *ticks.notes))


def _in_order(times: Floats, parts: Ints) -> tuple[Ints, tuple[str, ...]]:
    """Indices of rows in the order of their times, part by part, the last of those of one time; and what was done.

    `times` are (n,) in seconds; rows of different parts have nothing to do with one another.
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


def _is_changes(times: Floats, parts: Ints) -> bool:
    """True if rows in order are too uneven in time to be ticks: fewer than 4 of 5 steps are near the median one."""
    steps = steps_inside(times, parts)
    middle = np.median(steps) if steps.size else np.nan
    return bool(steps.size and ((steps >= middle / 2.0) & (steps <= 2.0 * middle)).mean() < _EVEN_SHARE)


def _from_samples(times: Floats, parts: Ints) -> Ticks:
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


def _from_changes(times: Floats, parts: Ints, works: NDArray[np.bool_], period: float | None) -> Ticks:
    """A log of changes as ticks: what holds at the end of each period.

    Rows (n,) are in order; a row that does not work, as the source says, begins a gap until the next one. The period is
    by default a minute, or a second for logs shorter than ten hours.

    Raises:
        PlanningError: there would be too many ticks.
    """
    starts = np.flatnonzero(np.concatenate([[True], np.diff(parts) != 0]))
    ends = np.concatenate([starts[1:], [len(times)]])
    span = float((times[ends - 1] - times[starts]).sum())
    step = period or (_MINUTE if span >= _LONG else 1.0)
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
    other = "" if period else " (--period SECONDS for another)"
    notes = [f"a log of changes: each value holds until the next, looked at every {step:g} s{other}"]
    if not works.all():
        notes.append("times at which the source did not work are gaps")
    return Ticks(np.concatenate(rows), np.concatenate(segments), step, True, tuple(notes), np.concatenate(moments))


def states_of(discretiser: Discretiser, readings: Sequence[object] | Floats, segments: Ints) -> Ints:
    """(n,) states of a recording, -1 where there is none, tick by tick, with the code that devices run.

    None, NaN and other unusable readings are ticks without one. `segments` are equal inside a stretch of consecutive
    ticks; each stretch begins like a device that was started.
    """
    if len(readings) != len(segments):
        raise ValueError(f"{len(readings)} readings and {len(segments)} segments")
    classifier = Classifier(discretiser.model_dump(mode="json"))
    observe = classifier.observe
    states = np.full(len(readings), -1, dtype=np.int64)
    values = readings.tolist() if isinstance(readings, np.ndarray) else readings
    kinds = set(map(type, values))
    alike = kinds <= {str, type(None)} or (kinds == {float} and discretiser.kind == "thresholds")
    if alike and not discretiser.remembers:  # a state follows from its reading alone: each is asked about once
        known = {value: observe(tick, value) for tick, value in enumerate(set(values))}
        return np.array([-1 if (state := known[value]) is None else state for value in values], dtype=np.int64)
    begins = np.ones(len(segments), dtype=np.bool_)
    begins[1:] = segments[1:] != segments[:-1]
    for tick, (value, begin) in enumerate(zip(values, begins.tolist(), strict=True)):
        if begin:
            classifier.restart()
        if (state := observe(tick, value)) is not None:
            states[tick] = state
    return states


MOST_MISSING = 0.01
"""The share of missing readings above which they are a state of their own."""

LATITUDE = ("lat", "latitude")
LONGITUDE = ("lon", "lng", "long", "longitude")
"""Usual names of columns, in small letters."""
BOUNDARIES = ("seg", "subject")
_LARGEST_STATE = 254


class Recording(NamedTuple):
    """The rows of a recording with their (n,) states, and segment numbers that count up.

    `times` are column t in seconds. `discretiser` is None if the column held states. `missing` counts rows without a
    reading, `missing_share` is their share, `missing_state` their state, or None if they have none.
    """

    states: Ints
    segments: Ints
    times: Floats | None
    discretiser: Discretiser | None
    column: str
    missing: int
    missing_state: int | None
    missing_share: float

    @property
    def period_seconds(self) -> float | None:
        """The median step of time inside segments."""
        return median_period(self.times, self.segments)


def read_recording(
    path: Path, column: str | None, threshold: float | str | None, baseline: int | None = None
) -> Recording:
    """Read the rows of a recording that have a state; arguments and errors as for `read_states`."""
    rows = read_states(path, column, threshold, baseline)
    selected = rows.states >= 0
    # A row that is left out, or absent, separates: every row after it belongs to a new segment.
    segments = (rows.segments + np.cumsum(~selected | _after_gaps(rows.times, rows.segments)))[selected]
    times = None if rows.times is None else rows.times[selected]
    return rows._replace(states=rows.states[selected], segments=segments, times=times)


def _after_gaps(times: Floats | None, segments: Ints) -> NDArray[np.bool_]:
    """(n,) whether rows are absent before a row, where times are steady."""
    found = np.zeros(len(segments), dtype=np.bool_)
    if times is not None and not (np.diff(times, prepend=0.0)[1:][np.diff(segments) == 0] <= 0.0).any():
        ticks = _from_samples(times, segments)
        found[1:] = np.diff(np.flatnonzero(ticks.rows >= 0)) > 1
        found[1:] |= np.diff(ticks.segments[ticks.rows >= 0]) != np.diff(segments)
    return found


def read_states(
    path: Path, column: str | None, threshold: float | str | None, baseline: int | None = None
) -> Recording:
    """Read the rows of a recording, plain or gzip, and make states of them, -1 where there is none.

    The column is by default `value` with a threshold (a number, or "mean") or a baseline (ticks of a running mean; the
    first of each segment have no state), else `state`.

    Raises:
        PlanningError: a column is missing, or a cell is no number or no state.
    """
    name = column or ("state" if threshold is None and baseline is None else "value")
    values, times, segments = _read(path, name)
    present = ~np.isnan(values)
    if not present.any():
        raise PlanningError(f"{path.name}: no row has a reading in column {name}")
    missing, share = int((~present).sum()), float((~present).mean())
    made: Discretiser | None = None
    lost = None
    if baseline is not None:
        lowest, highest = _range(values)
        made = Baseline(baseline_ticks=baseline, lowest=lowest, highest=highest)
        if share > MOST_MISSING:
            lost = len(made.states)
            made = made.model_copy(update={"states": (*made.states, "missing"), "missing": "missing"})
        states = states_of(made, values, segments)
    else:
        known = values[present]
        if threshold is None:
            found = _states(known, path.name, name)
        else:
            edge = float(known.mean()) if isinstance(threshold, str) else threshold
            found, made = (known >= edge).astype(np.int64), Thresholds(edges=(edge,), states=("low", "high"))
        if share > MOST_MISSING:
            lost = int(found.max()) + 1 if made is None else 2
            if lost > _LARGEST_STATE:
                raise PlanningError(
                    f"{path.name}: {lost} states leave no room for one of the {missing} rows without reading"
                )
        states = np.full(len(values), -1 if lost is None else lost, dtype=np.int64)
        states[present] = found
    return Recording(states, segments, times, made, name, missing, lost, share)


def _range(values: Floats) -> tuple[float, float]:
    """A range of round numbers that holds readings (n,), NaN where there is none: of a policy, hence public."""
    low, high = float(np.nanmin(values)), float(np.nanmax(values))
    step = 10.0 ** math.floor(math.log10(max(high - low, abs(high) * 1e-6, 1e-9)))
    return math.floor(low / step) * step, (math.floor(high / step) + 1.0) * step


def place_columns(path: Recorded) -> tuple[str, str] | None:
    """The columns of latitude and longitude in a CSV file, None if it has none; PlanningError if it is no CSV file."""
    with csv_rows(path, PlanningError) as (columns, _):
        found = [next((one for one in columns if one.lower() in names), None) for names in (LATITUDE, LONGITUDE)]
    return (found[0], found[1]) if found[0] is not None and found[1] is not None else None


def column_missing(file: str, name: str, header: Sequence[str]) -> PlanningError:
    """Message about a missing column; a first row with numbers or times is no header, but readings."""
    named = all(cell[:1].isalpha() for cell in header if cell)
    shown = ", ".join(header)[:200] if named else ""
    return PlanningError(f"{file} has no column {name!r}; it has {shown or 'no header'}")


def _read(path: Path, name: str) -> tuple[Floats, Floats | None, Ints]:
    with csv_rows(path, PlanningError) as (header, rows):
        if name not in header:
            raise column_missing(path.name, name, header)
        boundaries = [header.index(boundary) for boundary in BOUNDARIES if boundary in header]
        at = header.index("t") if "t" in header else None
        values, times, segments = [], [], []
        segment, last = 0, None
        for line, row in rows:
            marks = [row[i] for i in boundaries]
            if last is not None and marks != last:
                segment += 1
            last = marks
            segments.append(segment)
            values.append(_reading(row[header.index(name)], path.name, line, name))
            if at is not None:
                times.append(_reading(row[at], path.name, line, "t"))
    return np.array(values), np.array(times) if at is not None else None, np.array(segments, dtype=np.int64)


def number(cell: str, file: str, line: int, column: str, most: float = math.inf) -> float:
    """A finite number of a cell, not beyond the most in size; PlanningError if it is none."""
    try:
        value = float(cell)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise PlanningError(f"{file}: line {line}, column {column} is no finite number")
    if abs(value) > most:
        raise PlanningError(f"{file}: line {line}, column {column} is not within -{most:g}..{most:g}")
    return value


def _reading(cell: str, file: str, line: int, column: str) -> float:
    return math.nan if cell.strip().lower() in ("", "nan") else number(cell, file, line, column)


def _states(values: Floats, file: str, column: str) -> Ints:
    if ((values != np.floor(values)) | (values < 0) | (values > _LARGEST_STATE)).any():
        raise PlanningError(
            f"{file}: column {column} does not hold states (whole numbers from 0 to {_LARGEST_STATE}): give --threshold"
        )
    return values.astype(np.int64)


def steps_inside(times: Floats | None, segments: Ints) -> Floats:
    """The steps of time above 0 inside segments, in seconds; none without times."""
    if times is None:
        return np.empty(0)
    steps = np.diff(times)[np.diff(segments) == 0]
    return np.asarray(steps[steps > 0], dtype=np.float64)


def median_period(times: Floats | None, segments: Ints) -> float | None:
    """The median step of time inside segments, in seconds."""
    steps = steps_inside(times, segments)
    return float(np.median(steps)) if steps.size else None
