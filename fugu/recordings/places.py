"""Read the places of a recording: latitude and longitude, trace by trace."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fugu.contract.errors import FuguError
from fugu.recordings.clock import clock_of, floats
from fugu.recordings.columns import BOUNDARIES, column_missing, is_missing, row_codes, select_rows, time_error, time_of
from fugu.recordings.options import ReadOptions
from fugu.recordings.readings import Facts, Recorded, facts_of, load
from fugu.recordings.rules import Evidence, raise_question
from fugu.recordings.table import Table
from fugu.recordings.ticks import look_at, sort_rows, steps_of

if TYPE_CHECKING:
    from fugu.chains.arrays import Bools, Floats, Ints

__all__ = ["MOST_MISSING", "Traces", "place_columns", "read_traces", "resample"]

MOST_MISSING = 0.01
"""The largest share of missing readings that do not become a state of their own."""
_LATITUDE = ("lat", "latitude")
_LONGITUDE = ("lon", "lng", "long", "longitude")
"""Usual names of the columns of places, in small letters."""
_TRACE = ("trace", "trace_id", "device", "device_id", "user", *BOUNDARIES)
_LONGEST_GAP = 2.0
_MOST_TICKS = 20_000_000


class Traces(NamedTuple):
    """Places in the order in which they were visited, trace by trace.

    `places` are (n, 2) latitudes and longitudes in degrees, NaN for missing places that are kept. `trace` is (n,) and
    equal for places of one unbroken trace. `times` are (n,) seconds. `row_indices` has (n,) indices among the chosen
    rows. `rows` counts these rows, `missing` the rows without a place. `columns` name the latitude and the longitude.
    """

    places: Floats
    trace: Ints
    times: Floats | None
    row_indices: Ints
    rows: int
    missing: int
    source: str
    facts: Facts
    columns: tuple[str, str]
    notes: tuple[str, ...] = ()

    @property
    def median_step(self) -> float | None:
        """The median time in seconds from one place of a trace to the next; None without times."""
        steps = self._steps
        return float(np.median(steps)) if steps.size else None

    @property
    def silences(self) -> int:
        """The number of steps inside traces that are longer than two median steps."""
        steps = self._steps
        return int((steps > _LONGEST_GAP * np.median(steps)).sum()) if steps.size else 0

    @property
    def _steps(self) -> Floats:
        return np.empty(0) if self.times is None else _steps(self.times, self.trace)


def place_columns(table: Table) -> tuple[str, str] | None:
    """Return the names of the columns of latitude and longitude; None unless the recording has both."""
    latitude, longitude = (
        next((column for column in table.columns if column.lower() in names), None) for names in (_LATITUDE, _LONGITUDE)
    )
    return None if latitude is None or longitude is None else (latitude, longitude)


def read_traces(recording: Recorded, options: ReadOptions) -> Traces:
    """Read location traces.

    A table needs columns of latitude and longitude. It may have times, and columns that tell traces apart; rows of one
    trace need not be adjacent. If over 1 % of rows have no place, such rows are kept; else each of them ends its trace.

    Raises:
        FuguError: a column is missing, or a row holds no place on earth. The error names the row, never a value.
        QuestionError: the recording can be read in more than one way.
    """
    all_rows = load(recording, options)
    table, row_filter = select_rows(all_rows, options)
    if (degree_columns := place_columns(table)) is None:
        latitudes = [column for column in table.columns if column.lower() in _LATITUDE]
        raise column_missing(table, "lon" if latitudes else "lat")
    time_cells = time_of(table, options.time)
    clock = None if time_cells is None else clock_of(time_cells.cells, time_cells.unit, options.zone)
    cells = zip(*(table.columns[name] for name in degree_columns), strict=True)
    is_absent = np.array([is_missing(latitude) or is_missing(longitude) for latitude, longitude in cells])
    moments = np.zeros(len(is_absent)) if clock is None else clock.times
    for row in np.flatnonzero(np.isnan(moments)).tolist():
        if time_cells is not None and not (is_absent[row] and is_missing(time_cells.cells[row])):
            raise time_error(table, time_cells, row)
    limits = zip(degree_columns, (90.0, 180.0), strict=True)
    places = np.stack([_degrees(table, name, limit, is_absent) for name, limit in limits])
    if is_absent.all():
        raise FuguError(f"{table.file}: no row has a place")
    if np.nanmax(places[1]) - np.nanmin(places[1]) > 180.0:  # cells side by side would be the world apart
        raise FuguError(f"{table.file}: places on both sides of the 180th meridian cannot be cells of one grid")
    trace_codes = row_codes(table, _TRACE)
    order = np.argsort(trace_codes, kind="stable")
    is_end = (np.isnan(moments) | (is_absent & (is_absent.mean() <= MOST_MISSING)))[order]
    trace = np.cumsum((np.diff(trace_codes[order], prepend=-1) != 0) + is_end.astype(np.int64))[~is_end]
    row_of_place, notes = order[~is_end], table.notes
    evidence = Evidence(table.file, " and ".join(degree_columns), options, [], time_cells, clock)
    if clock is not None:
        time_order, notes = _time_order(moments[row_of_place], trace, evidence, notes)
        row_of_place, trace = row_of_place[time_order], trace[time_order]
    missing = int(is_absent.sum())
    place_traces = Traces(
        places=places.T[row_of_place],
        trace=trace,
        times=None if clock is None else moments[row_of_place],
        row_indices=row_of_place,
        rows=len(is_absent),
        missing=missing,
        source=table.file,
        facts=facts_of(all_rows, table, row_filter, evidence)._replace(missing={"": missing} if missing else {}),
        columns=degree_columns,
        notes=notes,
    )
    return place_traces._replace(facts=place_traces.facts._replace(period_seconds=place_traces.median_step))


def _time_order(times: Floats, trace: Ints, evidence: Evidence, notes: tuple[str, ...]) -> tuple[Ints, tuple[str, ...]]:
    """Sort places by time within each trace. Return their indices, and `notes` with a note if places moved."""
    order, order_notes = sort_rows(times, trace)
    goes_back = (np.diff(times) < 0.0) & (np.diff(trace) == 0)
    raise_question(
        evidence._replace(
            times=times,
            row_parts=trace,
            steps=steps_of(times[order], trace[order]) if _steps(times[order], trace[order]).size else None,
            goes_back=goes_back,
            kind="changes",
            is_up=np.zeros(len(order), dtype=bool),
        )
    )
    return order, (*notes, *order_notes)


def _degrees(table: Table, name: str, limit: float, is_absent: Bools) -> Floats:
    """Read a column's degrees, NaN in rows without a place. FuguError: a cell is no number within -limit..limit."""
    values = np.where(is_absent, np.nan, floats(table.columns[name]))
    bad_rows = np.flatnonzero(~is_absent & ~(np.abs(values) <= limit))
    if bad_rows.size:
        problem = f"is not within -{limit:g}..{limit:g}" if np.isfinite(values[bad_rows[0]]) else "is no finite number"
        raise FuguError(f"{table.place(bad_rows[0], name)} {problem}")
    return values


def _steps(times: Floats, trace: Ints) -> Floats:
    """Return the steps of time above 0 between places of one trace, in seconds."""
    steps = np.diff(times)[np.diff(trace) == 0]
    return np.asarray(steps[steps > 0], dtype=np.float64)


def resample(traces: Traces, period: float) -> Traces:
    """Sample the newest place of each trace once per period, in seconds; a silence of over two periods ends a trace.

    Raises:
        FuguError: there are no times, or there would be too many ticks.
    """
    if traces.times is None:
        raise FuguError(f"{traces.source} has no column of times, which --period needs")
    times = traces.times
    if len(times) * _LONGEST_GAP > _MOST_TICKS:
        raise FuguError(f"more than {_MOST_TICKS} places: take a longer period")
    is_break = (np.diff(traces.trace) != 0) | (np.diff(times) > _LONGEST_GAP * period)
    edges = [0, *(np.flatnonzero(is_break) + 1).tolist(), len(times)]
    row_pieces, time_pieces = zip(*(look_at(times, first, end, period) for first, end in pairwise(edges)), strict=True)
    sampled_rows = np.concatenate(row_pieces)
    trace = np.repeat(np.arange(len(row_pieces)), [*map(len, row_pieces)])
    return traces._replace(
        places=traces.places[sampled_rows],
        trace=trace,
        times=np.concatenate(time_pieces),
        row_indices=traces.row_indices[sampled_rows],
    )
