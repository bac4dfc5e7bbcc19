"""Places of a recording: latitude and longitude, trace by trace."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fugu.recordings.clock import clock_of
from fugu.recordings.columns import BOUNDARIES, column_missing, is_missing, selected, time_of
from fugu.recordings.errors import RecordingError
from fugu.recordings.options import ReadOptions
from fugu.recordings.readings import Facts, Loaded, Recorded, load, zone_words
from fugu.recordings.rules import Evidence, ask
from fugu.recordings.ticks import steps_of

if TYPE_CHECKING:
    from fugu.chains.arrays import Floats, Ints

__all__ = ["MOST_MISSING", "Traces", "place_columns", "read_traces", "resampled"]

MOST_MISSING = 0.01
"""The share of missing readings above which they are a state of their own."""
_LATITUDE = ("lat", "latitude")
_LONGITUDE = ("lon", "lng", "long", "longitude")
"""Usual names of columns, in small letters."""
_TRACE = ("trace", "trace_id", "device", "device_id", "user", *BOUNDARIES)
_LONGEST_GAP = 2.0
_MOST_TICKS = 20_000_000
_Entry = tuple[float, float, float, int]


class Traces(NamedTuple):
    """Places in the order in which they were visited, trace by trace.

    `places` are (n, 2), latitude and longitude in degrees, NaN where missing ones are kept; `trace` is equal for places
    of one unbroken trace; `times` are in seconds; `at` is the row of the file, from 0, of those that were wanted;
    `columns` are those of latitude and longitude.
    """

    places: Floats
    trace: Ints
    times: Floats | None
    at: Ints
    rows: int
    missing: int
    source: str
    facts: Facts
    columns: tuple[str, str]
    notes: tuple[str, ...] = ()

    @property
    def median_step(self) -> float | None:
        """The median time from one place of a trace to the next, None without times."""
        steps = self._steps
        return float(np.median(steps)) if steps.size else None

    @property
    def silences(self) -> int:
        """How often the next place of a trace came after more than two median steps."""
        steps = self._steps
        return int((steps > _LONGEST_GAP * np.median(steps)).sum()) if steps.size else 0

    @property
    def _steps(self) -> Floats:
        """The steps of time above 0 inside traces, in seconds; none without times."""
        if self.times is None:
            return np.empty(0)
        steps = np.diff(self.times)[np.diff(self.trace) == 0]
        return np.asarray(steps[steps > 0], dtype=np.float64)


def place_columns(loaded: Loaded) -> tuple[str, str] | None:
    """The columns of latitude and longitude, None if it has none."""
    found = [
        next((column for column in loaded.table.columns if column.lower() in names), None)
        for names in (_LATITUDE, _LONGITUDE)
    ]
    return (found[0], found[1]) if found[0] is not None and found[1] is not None else None


def read_traces(recording: Recorded, options: ReadOptions) -> Traces:
    """Read location traces.

    Columns name a latitude and a longitude, and may name a time and what tells traces apart (rows of one trace need not
    stand together). Rows without a place are kept where they are more than 1 % of all; else each ends its trace.

    Raises:
        RecordingError: a column is missing, or a row holds no place on earth; rows are named, never a value.
        QuestionError: it can be read in more than one way.
    """
    loaded = load(recording, options)
    file = loaded.name
    table, only = selected(loaded.table, file, options)
    if (names := place_columns(loaded)) is None:
        raise column_missing(file, "lat" if not _has(loaded, _LATITUDE) else "lon", table.columns)
    time = time_of(table, file, options.time)
    clock = None if time is None else clock_of(time.cells, time.unit, options.zone)
    latitudes, longitudes = (table.columns[name] for name in names)
    keys = [cells for name, cells in table.columns.items() if name.lower() in _TRACE]
    traces: dict[tuple[str, ...], list[_Entry | None]] = {}
    moments = [0.0] * len(table.lines) if clock is None else clock.times.tolist()
    for row, (line, moment) in enumerate(zip(table.lines, moments, strict=True)):
        trace = traces.setdefault(tuple(cells[row] for cells in keys), [])
        placed = not is_missing(latitudes[row]) and not is_missing(longitudes[row])
        if math.isnan(moment):
            if placed or time is None or not is_missing(time.cells[row]):
                raise RecordingError(
                    f"{file}: {table.where} {line}, column {'t' if time is None else time.name} is no time: give "
                    "seconds, or ISO 8601, or another column by --time"
                )
            trace.append(None)
            continue
        where = f"{file}: {table.where} {line}, column"
        latitude = _number(latitudes[row], 90.0, f"{where} {names[0]}") if placed else math.nan
        longitude = _number(longitudes[row], 180.0, f"{where} {names[1]}") if placed else math.nan
        trace.append((latitude, longitude, moment, row))
    facts = Facts(
        form=table.form,
        rows=len(table.lines),
        rows_in_file=len(loaded.table.lines),
        column=" and ".join(names),
        only=only,
        time=None if time is None else time.name,
        unit="" if clock is None else clock.unit,
        zone=zone_words(clock, options),
        missing={},
        codes=(),
        unused=(),
        plain=table.plain,
    )
    found = _joined(traces.values(), len(table.lines), clock is not None, file, facts, names)
    missing = {"": found.missing} if found.missing else {}
    found = found._replace(facts=facts._replace(missing=missing, period=found.median_step))
    if clock is None or time is None:
        return found
    return _in_order(found, Evidence(file, "places", options, [], None, time, clock))


def _in_order(traces: Traces, evidence: Evidence) -> Traces:
    """Traces whose places are in the order of their times."""
    assert traces.times is not None
    order = np.lexsort((traces.times, traces.trace))
    earlier = (np.diff(traces.times) < 0.0) & (np.diff(traces.trace) == 0)
    steps = None
    if (np.diff(traces.times[order])[np.diff(traces.trace[order]) == 0] > 0.0).any():
        steps = steps_of(traces.times[order], traces.trace[order])
    ask(
        evidence._replace(
            times=traces.times,
            parts=traces.trace,
            steps=steps,
            backward=float(earlier.mean()) if earlier.size else 0.0,
            backward_rows=int(earlier.sum()),
            kind="changes",
            works=np.zeros(len(order), dtype=np.int64),
        )
    )
    notes = traces.notes
    if earlier.any():
        notes = (f"{int((order != np.arange(len(order))).sum())} rows were not in the order of their times: sorted",)
    return traces._replace(places=traces.places[order], times=traces.times[order], at=traces.at[order], notes=notes)


def _has(loaded: Loaded, names: Iterable[str]) -> bool:
    return any(column.lower() in names for column in loaded.table.columns)


def _number(cell: str, most: float, where: str) -> float:
    """A finite number of a cell, not beyond the most in size."""
    try:
        value = float(cell)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise RecordingError(f"{where} is no finite number")
    if abs(value) > most:
        raise RecordingError(f"{where} is not within -{most:g}..{most:g}")
    return value


def resampled(traces: Traces, period: float) -> Traces:
    """The newest place of every trace once a period (seconds); a trace is cut where it falls silent for two periods.

    Raises:
        RecordingError: there are no times, or they are too far apart to be counted.
    """
    if traces.times is None:
        raise RecordingError(f"{traces.source} has no column of times, which --period needs")
    times = traces.times
    if (times[-1] - times[0]) / period > _MOST_TICKS or len(times) * _LONGEST_GAP > _MOST_TICKS:
        raise RecordingError(f"more than {_MOST_TICKS} places: take a longer period")
    breaks = (np.diff(traces.trace) != 0) | (np.diff(times) > _LONGEST_GAP * period)
    starts = np.concatenate([[0], np.flatnonzero(breaks) + 1, [len(times)]])
    places, numbers, ticks, rows = [], [], [], []
    for piece, (first, end) in enumerate(zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True)):
        wanted = times[first] + period * np.arange(int((times[end - 1] - times[first]) / period) + 1)
        newest = first + np.searchsorted(times[first:end], wanted, side="right") - 1
        places.append(traces.places[newest])
        rows.append(traces.at[newest])
        numbers.append(np.full(len(wanted), piece))
        ticks.append(wanted)
    return traces._replace(
        places=np.concatenate(places),
        trace=np.concatenate(numbers),
        times=np.concatenate(ticks),
        at=np.concatenate(rows),
    )


def _joined(
    traces: Iterable[list[_Entry | None]],
    lines: int,
    timed: bool,
    source: str,
    facts: Facts,
    columns: tuple[str, str],
) -> Traces:
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
        raise RecordingError(f"{source}: no row has a place")
    table = np.array(entries, dtype=np.float64)
    if (
        np.nanmax(table[:, 1]) - np.nanmin(table[:, 1]) > 180.0
    ):  # cells side by side on the ground would be the world apart
        raise RecordingError(f"{source}: places on both sides of the 180th meridian cannot be cells of one grid")
    times = table[:, 2] if timed else None
    return Traces(
        places=table[:, :2],
        trace=np.array(numbers, dtype=np.int64),
        times=times,
        at=table[:, 3].astype(np.int64),
        rows=lines,
        missing=missing,
        source=source,
        facts=facts,
        columns=columns,
    )


def _missing(entry: _Entry | None) -> bool:
    return entry is None or math.isnan(entry[0])
