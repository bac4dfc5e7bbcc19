"""Read a recording: a CSV file with one row per tick.

Columns that have a meaning: `t` (seconds), `seg` and `subject` (a new value begins a new segment, and no transition is
counted across). An empty cell or "nan" is a missing reading. Where more than 1 % of the rows have none, that is a state
of its own, after the others, as a policy should have it; else such rows are left out, and end a segment. Errors name
rows and columns, never a value.
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
from fugu.host.csv_file import csv_rows
from fugu.planning.errors import PlanningError
from fugu.planning.ticks import from_samples

__all__ = [
    "BOUNDARIES",
    "MOST_MISSING",
    "Recording",
    "StateRows",
    "column_missing",
    "median_period",
    "read_recording",
    "read_states",
    "states_of",
]


def states_of(discretiser: Discretiser, readings: Sequence[object] | Floats, segments: Ints) -> Ints:
    """Run a discretiser over a recording, tick by tick, with the code that devices run.

    Args:
        readings: (n,) of whatever a sensor gives; None, NaN and what else is unusable is a tick without a reading.
        segments: (n,) equal inside a stretch of consecutive ticks; each stretch begins like a device that was started.

    Returns:
        (n,) states; -1 where there is none.

    Raises:
        ValueError: there is not one segment for each reading.
    """
    if len(readings) != len(segments):
        raise ValueError(f"{len(readings)} readings and {len(segments)} segments")
    classifier = Classifier(discretiser.model_dump(mode="json"))
    observe = classifier.observe
    begins = np.ones(len(segments), dtype=np.bool_)
    begins[1:] = segments[1:] != segments[:-1]
    states = np.full(len(readings), -1, dtype=np.int64)
    values = readings.tolist() if isinstance(readings, np.ndarray) else readings
    for tick, (value, begin) in enumerate(zip(values, begins.tolist(), strict=True)):
        if begin:
            classifier.restart()
        if (state := observe(tick, value)) is not None:
            states[tick] = state
    return states


MOST_MISSING = 0.01
"""The share of missing readings above which they are a state of their own."""

BOUNDARIES = ("seg", "subject")
_LARGEST_STATE = 254


class Recording(NamedTuple):
    """States of a recording.

    Attributes:
        states: (n,) states.
        segments: (n,) segment numbers, counting up.
        period_seconds: median step of column t inside segments, or none.
        discretiser: what made the states, as a policy has it; none if the column held states.
        column: the column that was read.
        missing: rows that have no reading.
        missing_state: the state that those rows have; none if they were left out.
        missing_share: of the rows.
    """

    states: NDArray[np.int64]
    segments: NDArray[np.int64]
    period_seconds: float | None
    discretiser: Discretiser | None
    column: str
    missing: int
    missing_state: int | None
    missing_share: float


class _Rows(NamedTuple):
    values: NDArray[np.float64]
    times: NDArray[np.float64] | None
    segments: NDArray[np.int64]


class StateRows(NamedTuple):
    """The rows of a recording with their states.

    Attributes:
        states: (n,) states, -1 where there is none.
        segments: (n,) segment numbers, counting up.
        times: (n,) column t in seconds, or none.
        discretiser, column, missing, missing_state, missing_share: as in `Recording`.
    """

    states: NDArray[np.int64]
    segments: NDArray[np.int64]
    times: NDArray[np.float64] | None
    discretiser: Discretiser | None
    column: str
    missing: int
    missing_state: int | None
    missing_share: float


def read_recording(
    path: Path, column: str | None, threshold: float | str | None, baseline: int | None = None
) -> Recording:
    """Read the states of a recording; arguments and errors as for `read_states`."""
    rows = read_states(path, column, threshold, baseline)
    selected = rows.states >= 0
    # A row that is left out, or absent, separates: every row after it belongs to a new segment.
    segments = (rows.segments + np.cumsum(~selected | _after_gaps(rows.times, rows.segments)))[selected]
    period = median_period(None if rows.times is None else rows.times[selected], segments)
    found = rows.discretiser, rows.column, rows.missing, rows.missing_state, rows.missing_share
    return Recording(rows.states[selected], segments, period, *found)


def _after_gaps(times: NDArray[np.float64] | None, segments: NDArray[np.int64]) -> NDArray[np.bool_]:
    """(n,) whether rows are absent before a row, where times are steady."""
    found = np.zeros(len(segments), dtype=np.bool_)
    if times is not None and not (np.diff(times, prepend=0.0)[1:][np.diff(segments) == 0] <= 0.0).any():
        ticks = from_samples(times, segments)
        found[1:] = np.diff(np.flatnonzero(ticks.rows >= 0)) > 1
        found[1:] |= np.diff(ticks.segments[ticks.rows >= 0]) != np.diff(segments)
    return found


def read_states(
    path: Path, column: str | None, threshold: float | str | None, baseline: int | None = None
) -> StateRows:
    """Read the rows of a recording, and make states of them.

    Args:
        path: the file; compressed if its name ends in .gz.
        column: name of the column; by default `value` with a threshold or a baseline, `state` without.
        threshold: a number, or "mean"; without one the column holds states.
        baseline: instead of a threshold, the ticks of a running mean; the first of each segment have no state.

    Raises:
        PlanningError: a column is missing, or a cell is no number or no state.
        OSError: the file cannot be read.
    """
    name = column or ("state" if threshold is None and baseline is None else "value")
    rows = _read(path, name)
    present = ~np.isnan(rows.values)
    missing = int((~present).sum())
    values = rows.values[present]
    if not values.size:
        raise PlanningError(f"{path.name}: no row has a reading in column {name}")
    share = missing / len(present)
    if baseline is not None:
        return _above_baseline(rows, baseline, name, missing, share)
    edge = float(values.mean()) if isinstance(threshold, str) else threshold
    found = _states(values, path.name, name) if edge is None else (values >= edge).astype(np.int64)
    made = None if edge is None else Thresholds(edges=(edge,), states=("low", "high"))
    lost = None
    if share > MOST_MISSING:
        lost = int(found.max()) + 1 if edge is None else 2
        if lost > _LARGEST_STATE:
            raise PlanningError(
                f"{path.name}: {lost} states leave no room for one of the {missing} rows without reading"
            )
    states = np.full(len(present), -1 if lost is None else lost, dtype=np.int64)
    states[present] = found
    return StateRows(states, rows.segments, rows.times, made, name, missing, lost, share)


def _above_baseline(rows: _Rows, ticks: int, name: str, missing: int, share: float) -> StateRows:
    """States above and below a running mean."""
    lowest, highest = _range(rows.values)
    discretiser = Baseline(baseline_ticks=ticks, lowest=lowest, highest=highest)
    lost = None
    if share > MOST_MISSING:
        lost = len(discretiser.states)
        discretiser = discretiser.model_copy(update={"states": (*discretiser.states, "missing"), "missing": "missing"})
    states = states_of(discretiser, rows.values, rows.segments)
    return StateRows(states, rows.segments, rows.times, discretiser, name, missing, lost, share)


def _range(values: NDArray[np.float64]) -> tuple[float, float]:
    """A range of round numbers that holds readings (n,), NaN where there is none: of a policy, hence public."""
    low, high = float(np.nanmin(values)), float(np.nanmax(values))
    step = 10.0 ** math.floor(math.log10(max(high - low, abs(high) * 1e-6, 1e-9)))
    return math.floor(low / step) * step, (math.floor(high / step) + 1.0) * step


def column_missing(file: str, name: str, header: Sequence[str]) -> PlanningError:
    """What to say of a column that is not there; a first row with numbers or times is no header, but readings."""
    named = all(cell[:1].isalpha() for cell in header if cell)
    shown = ", ".join(header)[:200] if named else ""
    return PlanningError(f"{file} has no column {name!r}; it has {shown or 'no header'}")


def _read(path: Path, name: str) -> _Rows:
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
            values.append(_number(row[header.index(name)], path.name, line, name))
            if at is not None:
                times.append(_number(row[at], path.name, line, "t"))
    return _Rows(np.array(values), np.array(times) if at is not None else None, np.array(segments, dtype=np.int64))


def _number(cell: str, file: str, line: int, column: str) -> float:
    if not cell.strip():
        return math.nan
    try:
        value = float(cell)
    except ValueError:
        value = math.inf
    if math.isinf(value):
        raise PlanningError(f"{file}: line {line}, column {column} is no finite number")
    return value


def _states(values: NDArray[np.float64], file: str, column: str) -> NDArray[np.int64]:
    if ((values != np.floor(values)) | (values < 0) | (values > _LARGEST_STATE)).any():
        raise PlanningError(
            f"{file}: column {column} does not hold states (whole numbers from 0 to {_LARGEST_STATE}): give --threshold"
        )
    return values.astype(np.int64)


def median_period(times: NDArray[np.float64] | None, segments: NDArray[np.int64]) -> float | None:
    """Return the median step of time inside segments, in seconds."""
    if times is None:
        return None
    steps = np.diff(times)[segments[1:] == segments[:-1]]
    steps = steps[steps > 0]
    return float(np.median(steps)) if steps.size else None
