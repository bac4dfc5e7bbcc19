"""Read a recording as the readings of one sensor, tick by tick, with facts of how the file is written."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from fugu.contract.errors import FuguError, UsageError
from fugu.recordings.clock import LEAST_DATED, Clock, clock_of, number_of
from fugu.recordings.columns import (
    BOUNDARIES,
    ChosenCells,
    codes_of,
    is_missing,
    keys_of,
    readings_column,
    row_codes,
    select_rows,
    time_error,
    time_of,
)
from fugu.recordings.file import File
from fugu.recordings.forms import read_table
from fugu.recordings.options import ReadOptions, RowKind
from fugu.recordings.rules import Evidence, raise_question, run_starts
from fugu.recordings.table import Table, without_collection
from fugu.recordings.ticks import Steps, is_coarse, row_kind_of, sort_distinct, steps_of, ticks_of
from fugu.recordings.values import Cells, Values, are_names, present_in, values_of

if TYPE_CHECKING:
    from fugu.chains.arrays import Bools, Floats, Ints

__all__ = ["AS_FOUND", "Facts", "Kind", "Readings", "Recorded", "facts_of", "join_readings", "load", "read_readings"]

Kind = Literal["numbers", "levels", "on/off", "names"]
"""Numbers; at most 8 different whole numbers; two names, or 0 and 1; more than two names."""
_CHANGES = ("last_changed", "last_updated")
_ENTITY = "entity_id"
"""The column of the name of a sensor, as home automation exports it."""
_SIMPLE = ("seconds", "ISO 8601")
"""Units of times that an agent reads as well."""
_SAME_PERIOD, _LOOKED_AT = 0.05, 200
_YEAR, _MOST_OF_ALL = 366 * 86_400.0, 0.9
AS_FOUND = ReadOptions()
"""Options of a recording that is read without any answer of the user."""


Recorded = Path | Table
"""A recording: the path of its file, or its table."""


class Facts(NamedTuple):
    """Facts of how a recording is written, for people. Only `missing` holds cells of the readings' column.

    `rows` is the number of rows that are read, of `rows_in_file`. `steps_seconds` are the 5, 50 and 95 % quantiles of
    steps of time. `longest_hold_seconds` is None unless rows are changes. `period_seconds` is the time from tick to
    tick, `gaps` the number of gaps in time. `first` and `last` are the Unix times of the first and last row. `codes`
    are cells without a reading by the user's choice. `replayable` says whether an agent can replay the file.
    """

    form: str
    rows: int
    rows_in_file: int
    column: str
    only: tuple[tuple[str, str], ...]
    time: str | None
    unit: str
    zone: str
    missing: dict[str, int]
    replayable: bool
    codes: tuple[str, ...] = ()
    unused: tuple[str, ...] = ()
    row_kind: RowKind | None = None
    why: str = ""
    steps_seconds: tuple[float, ...] | None = None
    longest_hold_seconds: float | None = None
    gaps: int = 0
    first: float | None = None
    last: float | None = None
    period_seconds: float | None = None


class Readings(NamedTuple):
    """Readings, one for each tick.

    `values` are (n,) numbers or names. `segments` are (n,) numbers, equal inside a stretch without gaps.
    `period_seconds` is the time from tick to tick, typical for events, None for rows without times and a given period.
    `steady` is False for events, such as heartbeats. `missing_share` does not count absent rows. `rows` has the ticks'
    (n,) indices among the chosen rows of the file, -1 for ticks without a row. For a log of changes it counts ticks
    since the first row; it is None if no agent can replay the file. `starts` are the indices of each donor's first
    tick. `moments` are (n,) Unix times of ticks, None without times. `offsets` are the offsets from UTC in the file's
    times. `without_row` are the indices of ticks without a row.
    """

    values: Cells
    segments: Ints
    period_seconds: float | None
    steady: bool
    changes: bool
    kind: Kind
    column: str
    source: str
    missing_share: float
    notes: tuple[str, ...]
    rows: Ints | None = None
    starts: tuple[int, ...] = (0,)
    moments: Floats | None = None
    offsets: tuple[str, ...] = ()
    facts: tuple[Facts, ...] = ()
    without_row: Ints | None = None

    @property
    def has_names(self) -> bool:
        """True if the readings are names."""
        return are_names(self.values)

    @property
    def absent(self) -> Bools:
        """(n,) whether a tick has no row; such ticks do not count as missing readings."""
        is_absent = np.zeros(len(self.segments), dtype=bool)
        if self.without_row is not None:
            is_absent[self.without_row] = True
        return is_absent

    @property
    def period(self) -> float:
        """Seconds from tick to tick; FuguError if they are unknown."""
        if self.period_seconds is None:
            raise FuguError(f"{self.source}: no times say how far apart its rows are: give --period, in seconds")
        return self.period_seconds

    @property
    def timed(self) -> bool:
        """True if ticks have times and a steady period, so that each has a part of the day."""
        return self.steady and self.moments is not None

    @property
    def present(self) -> Bools:
        """(n,) whether a tick has a reading."""
        return present_in(self.values)


def load(recording: Recorded, options: ReadOptions) -> Table:
    """Read the table of a recording's file; a recording that is a table is returned unchanged.

    Raises:
        FuguError: the file is of no known form, is broken, or has no wanted row.
        OSError: the file cannot be read.
    """
    if isinstance(recording, Table):
        return recording
    row_filter = dict(options.only)
    try:
        return read_table(File(recording), row_filter)
    except FuguError as error:
        if not row_filter or not str(error).endswith("has no rows"):
            raise
        cells_text = ", ".join(f"{cell[:80]!r} in column {column}" for column, cell in row_filter.items())
        raise FuguError(f"{recording.name}: no row has {cells_text}") from None


def read_readings(recording: Recorded, options: ReadOptions = AS_FOUND) -> Readings:
    """Read the readings of one sensor.

    Unless an option names the column, it is `value` or `state`, or the only candidate. Rows without times are ticks.

    Raises:
        FuguError: the recording is wrong; the error is one line that says what and where.
        QuestionError: the recording can be read in more than one way.
        OSError: the file cannot be read.
    """
    table = load(recording, options)
    try:
        with without_collection():
            return _interpret(table, options)
    except UsageError:
        raise
    except FuguError as error:
        raise error if str(error).startswith(table.file) else FuguError(f"{table.file}: {error}") from None


def facts_of(recording: Table, table: Table, row_filter: ChosenCells, evidence: Evidence) -> Facts:
    """Return the facts of a recording before its readings are put on ticks; `table` has the chosen rows."""
    time, clock, options, zone = evidence.time, evidence.clock, evidence.options, ""
    if clock is not None and clock.dated:
        zone = str(options.zone or "UTC, as none is written") if clock.naive else ", ".join(clock.offsets) or "UTC"
    return Facts(
        form=table.form,
        rows=len(table.lines),
        rows_in_file=len(recording.lines),
        column=evidence.column,
        only=row_filter,
        time=None if time is None else time.name,
        unit="" if clock is None else clock.unit,
        zone=zone,
        missing={},
        replayable=table.plain,
        codes=options.missing_values,
        period_seconds=options.period,
    )


def _interpret(recording: Table, options: ReadOptions) -> Readings:
    """Choose the columns of times and readings of a table, and put its readings on ticks."""
    table, row_filter = select_rows(recording, options)
    time = time_of(table, options.time)
    time_columns = () if time is None else time.columns
    column = readings_column(table, options.column, (*time_columns, *table.keys))
    if time is not None and (empty_rows := _empty_rows(time.cells, table.columns[column])):
        notes = (*table.notes, f"{len(empty_rows)} rows without a time and a reading: left out")
        table = table.without_rows(empty_rows)._replace(plain=False, notes=notes)
        time = time_of(table, options.time)
        assert time is not None
    row_parts = _part_numbers(table)
    clock = None if time is None else clock_of(time.cells, time.unit, options.zone)
    if time is not None and clock is not None and np.isnan(clock.times).any():
        raise time_error(table, time, int(np.isnan(clock.times).argmax()))
    skipped_columns = (*time_columns, *dict(row_filter))
    series_keys = keys_of(table, column, skipped_columns, None if clock is None else clock.times, row_parts)
    evidence = Evidence(table.file, column, options, series_keys, time, clock)
    raise_question(evidence._replace(clock=None))  # before cells of several sensors are read as one's
    label = next((cell for _, cell in row_filter), None) or _only_series_name(table) or column
    values = values_of(table, column, options.missing_values)
    units = (f"column {column} is in {values.unit}",) if values.unit else ()
    table = table._replace(plain=table.plain and values.plain, notes=(*table.notes, *units))
    unused_columns = tuple(name for name in table.columns if name not in (column, *skipped_columns, *BOUNDARIES))
    facts = facts_of(recording, table, row_filter, evidence)._replace(missing=values.missing, unused=unused_columns)
    readings = Readings(
        *(values.readings, row_parts, options.period, options.period is not None, False, "numbers"),
        *(label, table.file, 0.0, table.notes),
        rows=np.arange(len(table.lines), dtype=np.int64) if table.plain else None,
        facts=(facts,),
    )
    if clock is None:
        raise_question(evidence._replace(readings=values.readings))
    else:
        readings = _put_on_ticks(readings, table, values, clock, evidence)
    missing_share = float((~readings.present[~readings.absent]).mean())
    return readings._replace(kind=kind_of_values(readings), missing_share=missing_share)


def _empty_rows(times: Sequence[str], reading_cells: Sequence[str]) -> set[int]:
    """Return the indices of rows with neither a time nor a reading; an empty set if no row has either."""
    if not any(map(is_missing, {*times[:_LOOKED_AT], *times[-_LOOKED_AT:]})):
        return set()
    empty_rows = {row for row, time in enumerate(times) if is_missing(time) and is_missing(reading_cells[row])}
    return empty_rows if len(empty_rows) < len(times) else set()


def _put_on_ticks(recording: Readings, table: Table, values: Values, clock: Clock, evidence: Evidence) -> Readings:
    """Put the readings of rows on ticks by the times of the rows."""
    options, facts = evidence.options, recording.facts[0]
    row_order, order_notes = _rows_by_time(clock, recording.segments)
    times, row_parts = clock.times[row_order], recording.segments[row_order]
    readings, is_up = values.readings[row_order], values.is_up[row_order]
    steps = steps_of(times, row_parts)
    row_kind = (options.rows, "was said") if options.rows else _kind_of_rows(table, readings, row_order, steps, facts)
    kind, kind_reason = row_kind or (None, "")
    goes_back = (np.diff(clock.times) < 0.0) & (np.diff(recording.segments) == 0)
    raise_question(
        evidence._replace(
            readings=readings,
            times=times,
            row_parts=row_parts,
            steps=steps,
            goes_back=goes_back,
            kind=kind,
            is_up=is_up,
        )
    )
    assert kind is not None
    period, notes = options.period, (*recording.notes, *order_notes)
    if kind == "samples" and options.rows is None and period and abs(period / steps.median - 1.0) > _SAME_PERIOD:
        raise FuguError(
            f"--period is for logs of changes; here a row comes every {steps.median:g} s (--rows samples puts them on "
            "another clock)"
        )
    if kind == "samples" and options.gap is not None and not are_names(readings):
        is_recent = _is_recent_change(readings, times, row_parts, options.gap)
        row_order, times, row_parts = row_order[is_recent], times[is_recent], row_parts[is_recent]
        readings, is_up = readings[is_recent], is_up[is_recent]
        if repeated_rows := int((~is_recent).sum()):
            notes = (*notes, f"{repeated_rows} rows repeat a value for over {options.gap:g} s: left out")
    hold_seconds = np.append(np.where(np.diff(row_parts) == 0, np.diff(times), 0.0), 0.0)
    if options.gap is not None:
        is_up = is_up & (hold_seconds <= options.gap)
    ticks = ticks_of(kind, times, row_parts, is_up, steps, period)
    moments, empty_ticks = ticks.moments, np.flatnonzero(ticks.rows < 0)
    tick_values = readings[ticks.rows]
    tick_values[empty_ticks] = None  # NaN among numbers
    if moments is None:
        row_of_tick, filled_ticks, is_replayable = row_order[ticks.rows], np.flatnonzero(ticks.rows >= 0), True
        row_of_tick[empty_ticks] = -1
        moments = np.interp(np.arange(len(row_of_tick)), filled_ticks, times[ticks.rows[filled_ticks]])
    else:  # rows are ticks as a replay of changes counts them: from the first row on
        start = clock.times.min()
        row_of_tick = np.floor((moments - start) / ticks.period_seconds + 1e-6).astype(np.int64)
        is_replayable = clock.unit in _SIMPLE and not (clock.naive and options.zone) and bool(start > times.min() - 1e8)
    if clock.naive and clock.dated and options.zone is None:
        notes = (*notes, "times have no zone: taken for UTC (--zone Europe/Berlin for another)")
    if clock.repeats:
        notes = (*notes, f"{clock.repeats} rows are in local hours that come twice, told apart by their order")
    first_time, last_time = (float(times.min()), float(times.max())) if clock.dated else (None, None)
    facts = facts._replace(
        rows=len(row_order),
        row_kind=kind,
        why=kind_reason,
        steps_seconds=tuple(np.quantile(steps.seconds, [0.05, 0.5, 0.95]).tolist()),
        longest_hold_seconds=float(hold_seconds[is_up].max(initial=0.0)) if kind == "changes" else None,
        gaps=int((np.diff(ticks.segments) != 0).sum()),
        first=first_time,
        last=last_time,
        replayable=table.plain and is_replayable,
        period_seconds=ticks.period_seconds,
    )
    return recording._replace(
        values=tick_values,
        segments=ticks.segments,
        period_seconds=ticks.period_seconds,
        steady=ticks.steady,
        changes=kind == "changes",
        notes=(*notes, *ticks.notes),
        rows=row_of_tick if facts.replayable else None,
        moments=moments,
        offsets=clock.offsets,
        facts=(facts,),
        without_row=empty_ticks,
    )


def _is_recent_change(readings: Floats, times: Floats, row_parts: Ints, longest_seconds: float) -> Bools:
    """(n,) whether a row begins a run of equal readings, or belongs to a run of at most `longest_seconds`."""
    run_firsts = run_starts(readings, row_parts)
    run_lasts = np.append(run_firsts[1:], len(readings)) - 1
    is_recent = np.repeat(times[run_lasts] - times[run_firsts] <= longest_seconds, run_lasts - run_firsts + 1)
    is_recent[run_firsts] = True
    return is_recent


def _kind_of_rows(table: Table, readings: Cells, rows: Ints, steps: Steps, facts: Facts) -> tuple[RowKind, str] | None:
    """Return the kind of rows and the reason, by times, readings and unused columns; None if the kind is unclear."""
    changes = table.changes
    if changes is None and facts.time is not None and facts.time.lower() in _CHANGES:
        changes = True
    has_names, present_readings = are_names(readings), readings[present_in(readings)]
    levels = codes_of([name.casefold() for name in present_readings]) if has_names else present_readings
    kind_and_reason = row_kind_of(steps, levels, [] if has_names else [readings], changes)
    if changes or (kind_and_reason is not None and kind_and_reason[0] != "changes"):
        return kind_and_reason
    # A beat's own state does not say how long the beat was, but its rate beside it does.
    columns = [column[rows] for name in facts.unused if (column := _numbers_of(table.columns[name])) is not None]
    unused_kind = row_kind_of(steps, levels, columns, None) if columns else None
    return unused_kind if unused_kind is not None and unused_kind[0] == "events" else kind_and_reason


def _numbers_of(cells: Sequence[str]) -> Floats | None:
    """Read cells as (n,) numbers, NaN for empty ones; None if any cell is no number."""
    numbers = [number_of(cell) if cell.strip() else np.nan for cell in cells]
    return None if None in numbers else np.array(numbers, dtype=np.float64)


def _rows_by_time(clock: Clock, row_parts: Ints) -> tuple[Ints, tuple[str, ...]]:
    """Return the indices of rows by time, without rows of an unset clock, and notes. FuguError: it was never set."""
    usable_rows, notes = np.arange(len(row_parts), dtype=np.int64), list[str]()
    if clock.dated:
        is_unset = clock.times < LEAST_DATED
        if is_unset.all():
            raise FuguError(
                "all rows are of before 2000, when the clock was not set: leave the times out, or repair them"
            )
        if is_unset.any():
            notes.append(f"{int(is_unset.sum())} rows are of before 2000, when the clock was not set: left out")
            usable_rows = usable_rows[~is_unset]
        if (is_far := _is_far_from_most(clock.times[usable_rows])).any():
            notes.append(f"{int(is_far.sum())} rows are over a year from all others, as of a wrong clock: left out")
            usable_rows = usable_rows[~is_far]
    order, order_notes = sort_distinct(clock.times[usable_rows], row_parts[usable_rows])
    return usable_rows[order], (*notes, *order_notes)


def _is_far_from_most(times: Floats) -> Bools:
    """(n,) whether a time is over a year from the largest group of times, if nine tenths of times are in that group."""
    order = np.argsort(times, kind="stable")
    group_of_time = np.empty(len(times), dtype=np.int64)
    group_of_time[order] = np.concatenate([[0], np.cumsum(np.diff(times[order]) > _YEAR)])
    group_sizes = np.bincount(group_of_time)
    return np.asarray((group_of_time != group_sizes.argmax()) & (group_sizes.max() >= _MOST_OF_ALL * len(times)))


def _part_numbers(table: Table) -> Ints:
    """Number the parts of a table, (n,): the number rises where the cell of a boundary column changes."""
    boundary_codes = row_codes(table, BOUNDARIES)
    return np.cumsum(np.diff(boundary_codes, prepend=boundary_codes[:1]) != 0).astype(np.int64)


def _only_series_name(table: Table) -> str | None:
    """Return the name of the only series of a table; None if there are none or several."""
    key_columns = table.keys or [name for name in table.columns if name.lower() == _ENTITY]
    names = {cell for column in key_columns for cell in table.columns[column]}
    return names.pop() if len(names) == 1 else None


def kind_of_values(readings: Readings) -> Kind:
    """Return the kind of readings. FuguError: there are no readings, or they never change."""
    present_readings = readings.values[readings.present]
    if not present_readings.size:
        raise FuguError(f"{readings.source}: no row has a reading in column {readings.column}")
    if not readings.has_names and not is_coarse(present_readings):
        return "numbers"
    levels = np.unique([name.casefold() for name in {*present_readings}] if readings.has_names else present_readings)
    if len(levels) == 1:
        raise FuguError(f"{readings.source}: column {readings.column} never changes: there is nothing to plan from")
    if readings.has_names:
        return "on/off" if len(levels) == 2 else "names"
    if (levels != np.floor(levels)).any() or np.abs(levels).max() > 2**53:
        return "numbers"
    return "on/off" if levels.tolist() == [0.0, 1.0] else "levels"


def join_readings(recordings: Sequence[Readings]) -> Readings:
    """Join the readings of several donors, one after another. The source becomes the number of recordings.

    Raises:
        FuguError: the ticks or the readings are not of one kind.
    """
    first_donor = recordings[0]
    if len(recordings) == 1:
        return first_donor
    for number, recording in enumerate(recordings, 1):
        if recording.has_names != first_donor.has_names or recording.steady != first_donor.steady:
            raise FuguError(f"recording {number} has other readings than the first: names, numbers and events differ")
        if first_donor.steady and abs(recording.period / first_donor.period - 1.0) > _SAME_PERIOD:
            raise FuguError(
                f"recording {number} has a reading every {recording.period:g} s, the first every "
                f"{first_donor.period:g} s: one policy has one tick"
            )
    lengths = (len(recording.segments) for recording in recordings[:-1])
    is_start = [np.diff(recording.segments, prepend=recording.segments[0] - 1) != 0 for recording in recordings]
    moments = [recording.moments for recording in recordings if recording.moments is not None]
    joined_readings = first_donor._replace(
        values=np.concatenate([recording.values for recording in recordings]),
        segments=np.cumsum(np.concatenate(is_start)).astype(np.int64),
        source=f"{len(recordings)} recordings",
        missing_share=max(recording.missing_share for recording in recordings),
        notes=tuple(dict.fromkeys(note for recording in recordings for note in recording.notes)),
        rows=None,
        without_row=None,
        starts=tuple(accumulate(lengths, initial=0)),
        moments=np.concatenate(moments) if len(moments) == len(recordings) else None,
        facts=tuple(facts for recording in recordings for facts in recording.facts),
    )
    return joined_readings._replace(kind=kind_of_values(joined_readings))
