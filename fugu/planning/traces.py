"""Location traces: read from CSV files, and brought to a steady period."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fugu.host.csv_file import csv_rows
from fugu.planning.errors import PlanningError
from fugu.planning.recording import MOST_MISSING, column_missing

__all__ = ["Traces", "place_columns", "read_traces", "resampled"]

_LATITUDE = ("lat", "latitude")
_LONGITUDE = ("lon", "lng", "long", "longitude")
_TIME = ("t", "time", "timestamp")
_TRACE = ("trace", "trace_id", "device", "device_id", "user", "subject", "seg")
_LONGEST_GAP = 2.0
_MOST_TICKS = 20_000_000
_Entry = tuple[float, float, float, int]


class Traces(NamedTuple):
    """Places in the order in which they were visited, trace by trace.

    Attributes:
        places: n x 2, latitude and longitude in degrees; NaN in rows without a place, if those were kept.
        trace: n numbers, equal for consecutive places of one unbroken trace.
        times: n times in seconds, or none.
        at: (n,) the row of the file, from 0, that each is from.
    """

    places: NDArray[np.float64]
    trace: NDArray[np.int64]
    times: NDArray[np.float64] | None
    at: NDArray[np.int64]
    rows: int
    missing: int
    source: str

    @property
    def median_step(self) -> float | None:
        """The median time from one place of a trace to the next, none without times."""
        steps = self._steps()
        return float(np.median(steps)) if steps.size else None

    @property
    def silences(self) -> int:
        """How often the next place of a trace came after more than two median steps."""
        steps = self._steps()
        return int((steps > _LONGEST_GAP * np.median(steps)).sum()) if steps.size else 0

    def _steps(self) -> NDArray[np.float64]:
        if self.times is None:
            return np.empty(0)
        steps = np.diff(self.times)[np.diff(self.trace) == 0]
        return np.asarray(steps[steps > 0], dtype=np.float64)


def place_columns(path: Path) -> tuple[str, str] | None:
    """The names of the columns of latitude and longitude in a CSV file; none if it has none.

    Raises:
        PlanningError: it is no CSV file.
        OSError: the file cannot be read.
    """
    if path.suffix == ".npz":
        return None
    with csv_rows(path, PlanningError) as (columns, _):
        found = [next((one for one in columns if one.lower() in names), None) for names in (_LATITUDE, _LONGITUDE)]
    return (found[0], found[1]) if found[0] is not None and found[1] is not None else None


def read_traces(path: Path) -> Traces:
    """Read location traces from a CSV file, plain or gzip.

    Its header names a latitude and a longitude, and may name what tells traces apart (rows of one trace need not stand
    together) and a time in seconds. Rows without a place are kept where they are more than 1 % of all; else each ends
    its trace.

    Raises:
        PlanningError: a column is missing, or a row holds no place on earth; rows are named, never a value.
        OSError: the file cannot be read.
    """
    with csv_rows(path, PlanningError) as (columns, rows):
        header = [column.lower() for column in columns]
        at = [_column(header, names, path.name) for names in (_LATITUDE, _LONGITUDE)]
        time = next((header.index(name) for name in _TIME if name in header), None)
        keys = [header.index(name) for name in _TRACE if name in header]
        traces: dict[tuple[str, ...], list[_Entry | None]] = {}
        lines = 0
        for line, row in rows:
            lines += 1
            trace = traces.setdefault(tuple(row[key] for key in keys), [])
            placed = bool(row[at[0]].strip() and row[at[1]].strip())
            if not placed and time is not None and not row[time].strip():
                trace.append(None)
                continue
            latitude = _number(row[at[0]], path.name, line, header[at[0]], 90.0) if placed else math.nan
            longitude = _number(row[at[1]], path.name, line, header[at[1]], 180.0) if placed else math.nan
            moment = 0.0 if time is None else _number(row[time], path.name, line, header[time])
            if trace and (last := trace[-1]) is not None and moment < last[2]:
                raise PlanningError(f"{path.name}: line {line}: time runs backwards within a trace")
            trace.append((latitude, longitude, moment, lines - 1))
    return _joined(traces.values(), lines, time is not None, path.name)


def resampled(traces: Traces, period: float) -> Traces:
    """The place of every trace once a period: the newest one; a trace is cut where it falls silent for two periods.

    Args:
        period: in seconds.

    Raises:
        PlanningError: there are no times, or they are too far apart to be counted.
    """
    if traces.times is None:
        raise PlanningError(f"{traces.source} has no column of times ({', '.join(_TIME)}), which --period needs")
    times = traces.times
    if (times[-1] - times[0]) / period > _MOST_TICKS or len(times) * _LONGEST_GAP > _MOST_TICKS:
        raise PlanningError(f"more than {_MOST_TICKS} places: take a longer period")
    breaks = (np.diff(traces.trace) != 0) | (np.diff(times) > _LONGEST_GAP * period)
    starts = np.concatenate([[0], np.flatnonzero(breaks) + 1, [len(times)]])
    places, numbers, ticks, rows = [], [], [], []
    for number, (first, end) in enumerate(zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True)):
        wanted = times[first] + period * np.arange(int((times[end - 1] - times[first]) / period) + 1)
        newest = first + np.searchsorted(times[first:end], wanted, side="right") - 1
        places.append(traces.places[newest])
        rows.append(traces.at[newest])
        numbers.append(np.full(len(wanted), number))
        ticks.append(wanted)
    return traces._replace(
        places=np.concatenate(places),
        trace=np.concatenate(numbers),
        times=np.concatenate(ticks),
        at=np.concatenate(rows),
    )


def _joined(traces: Iterable[list[_Entry | None]], lines: int, timed: bool, source: str) -> Traces:
    """All traces one after another; a missing place that is not kept separates."""
    traces = list(traces)
    missing = sum(_missing(entry) for trace in traces for entry in trace)
    common = missing > MOST_MISSING * lines
    entries, numbers, number = [], [], 0
    for trace in traces:
        number += 1
        for entry in trace:
            if entry is None or (_missing(entry) and not common):
                number += 1
                continue
            entries.append(entry)
            numbers.append(number)
    if missing == lines:
        raise PlanningError(f"{source}: no row has a place")
    table = np.array(entries, dtype=np.float64)
    if (
        np.nanmax(table[:, 1]) - np.nanmin(table[:, 1]) > 180.0
    ):  # cells side by side on the ground would be the world apart
        raise PlanningError(f"{source}: places on both sides of the 180th meridian cannot be cells of one grid")
    times = table[:, 2] if timed else None
    return Traces(
        table[:, :2], np.array(numbers, dtype=np.int64), times, table[:, 3].astype(np.int64), lines, missing, source
    )


def _missing(entry: _Entry | None) -> bool:
    return entry is None or math.isnan(entry[0])


def _column(header: Sequence[str], names: Sequence[str], file: str) -> int:
    for name in names:
        if name in header:
            return header.index(name)
    raise column_missing(file, names[0], header)


def _number(cell: str, file: str, line: int, column: str, most: float = math.inf) -> float:
    try:
        value = float(cell)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise PlanningError(f"{file}: line {line}, column {column} is no finite number")
    if abs(value) > most:
        raise PlanningError(f"{file}: line {line}, column {column} is not within -{most:g}..{most:g}")
    return value
