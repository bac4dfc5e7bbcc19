"""Understand a recording: the readings of one sensor, tick by tick, and what was found of how they were written."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fugu.recordings.clock import Clock, clock_of
from fugu.recordings.columns import BOUNDARIES, TimeCells, keys_of, selected, time_of, value_of
from fugu.recordings.errors import RecordingError
from fugu.recordings.file import File
from fugu.recordings.forms import read_table
from fugu.recordings.options import ReadOptions, RowKind
from fugu.recordings.rules import Evidence, ask, run_starts
from fugu.recordings.table import Table
from fugu.recordings.ticks import Steps, in_order, kind_of, steps_of, ticks_of
from fugu.recordings.values import Values, values_of

if TYPE_CHECKING:
    from fugu.chains.arrays import Floats, Ints

__all__ = [
    "AS_FOUND",
    "Facts",
    "Kind",
    "Loaded",
    "Readings",
    "Recorded",
    "joined",
    "load",
    "read_readings",
    "zone_words",
]

Kind = Literal["numbers", "levels", "on/off", "names"]
"""Numbers; whole numbers of which there are few; two names, or 0 and 1; names."""
_CHANGES = ("last_changed", "last_updated")
_ENTITY = "entity_id"
"""The column of the name of a sensor, as home automation exports it."""
_SIMPLE = ("seconds", "ISO 8601")
"""Units of times that an agent reads as well."""
_MOST_LEVELS = 8
_SAME_PERIOD = 0.05
_LEAST_DATED = 946_684_800.0
"""The year 2000: earlier times in a later recording are of a clock that was not set."""


_YEAR, _MOST_OF_ALL = 366 * 86_400.0, 0.9


AS_FOUND = ReadOptions()
"""Nothing is said of how a recording is to be read."""


class Loaded(NamedTuple):
    """A recording as a table of text, and how it is called in errors; `path` is its file, if there is one."""

    name: str
    table: Table
    path: Path | None = None


Recorded = Path | Loaded
"""Where a recording is."""


class Facts(NamedTuple):
    """Facts of how a recording is written, for people; nothing in them but `missing` is of a reading.

    `rows` are taken of `rows_in_file`. `steps` are 5, 50 and 95 % of steps in seconds, `longest` the longest hold of
    changes, `period` seconds from tick to tick, `gaps` those in time, and `first` and `last` Unix times. `codes` are
    cells that were said to be no reading. `plain` says that an agent can replay the file.
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
    codes: tuple[str, ...]
    unused: tuple[str, ...]
    plain: bool
    kind: RowKind | None = None
    why: str = ""
    steps: tuple[float, float, float] | None = None
    longest: float | None = None
    gaps: int = 0
    first: float | None = None
    last: float | None = None
    period: float | None = None


class Readings(NamedTuple):
    """Readings, one a tick.

    `values` are (n,) numbers, NaN where there is none, or names, None where there is none; `segments` are equal inside
    a stretch without gaps. `period_seconds` is the typical time between events, None if nobody has said it of rows
    without times; events such as heartbeats are not `steady`. `missing_share` does not count absent rows. `rows` are
    (n,) rows of the file, from 0, of those that were wanted; of a log of changes, ticks since the first row; -1 for
    ticks without one; None if no agent could replay the file. The ticks of each donor begin at `starts`. `moments` are
    (n,) Unix times of ticks, None without times; `offsets` from UTC are written in the file's times, other than none.
    `without_row` are ticks without a row.
    """

    values: Floats | list[str | None]
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
    def absent(self) -> NDArray[np.bool_]:
        """(n,) whether a tick has no row, which is no missing reading."""
        absent = np.zeros(len(self.segments), dtype=bool)
        if self.without_row is not None:
            absent[self.without_row] = True
        return absent

    @property
    def period(self) -> float:
        """Seconds from tick to tick; RecordingError if nobody has said them."""
        if self.period_seconds is None:
            raise RecordingError(f"{self.source}: no times say how far apart its rows are: give --period, in seconds")
        return self.period_seconds

    @property
    def timed(self) -> bool:
        """True if its ticks are at steady times, so that there are parts of the day."""
        return self.steady and self.moments is not None

    @property
    def present(self) -> NDArray[np.bool_]:
        """(n,) whether a tick has a reading."""
        return _present(self.values)


def _present(values: Floats | list[str | None]) -> NDArray[np.bool_]:
    if isinstance(values, list):
        return np.array([value is not None for value in values], dtype=bool)
    return ~np.isnan(values)


def load(recording: Recorded, options: ReadOptions) -> Loaded:
    """Read a file as a table of text.

    Raises:
        RecordingError: it is of no form, or cannot be read.
        OSError: it cannot be read.
    """
    if isinstance(recording, Loaded):
        return recording
    only = dict(options.only)
    try:
        return Loaded(recording.name, read_table(File(recording), only), recording)
    except RecordingError as error:
        if not only or not str(error).endswith("has no rows"):
            raise
        wanted = ", ".join(f"{cell[:80]!r} in column {column}" for column, cell in only.items())
        raise RecordingError(f"{recording.name}: no row has {wanted}") from None


def read_readings(recording: Recorded, options: ReadOptions = AS_FOUND) -> Readings:
    """Read the readings of one sensor.

    Without a name, the column is `value` or `state`, or the only one that there is. Rows without times are ticks.

    Raises:
        RecordingError: one line that says what is wrong, and where.
        QuestionError: it can be read in more than one way.
        OSError: it cannot be read.
    """
    loaded = load(recording, options)
    try:
        return _understood(loaded, options)
    except RecordingError as error:
        raise error if str(error).startswith(loaded.name) else RecordingError(f"{loaded.name}: {error}") from None


class _Rows(NamedTuple):
    """Rows of a recording in order: `at` are their places among those that were wanted."""

    at: Ints
    times: Floats
    parts: Ints
    notes: tuple[str, ...]


def _understood(loaded: Loaded, options: ReadOptions) -> Readings:
    table, only = selected(loaded.table, loaded.name, options)
    time = time_of(table, loaded.name, options.time)
    taken = () if time is None else time.columns
    column = value_of(table, loaded.name, options.column, (*taken, *table.keys))
    parts = _parts_of(table)
    clock = None if time is None else _read_times(table, time, loaded.name, options)
    keys = keys_of(table, column, (*taken, *dict(only)), None if clock is None else clock.times, parts)
    evidence = Evidence(loaded.name, column, options, keys, None, time, clock)
    ask(evidence._replace(clock=None))  # before cells of several sensors are read as one's
    label = next((cell for _, cell in only), None) or _only_name(table) or column
    values = values_of(table, column, loaded.name, options.missing_values)
    unused = tuple(name for name in table.columns if name not in (column, *taken, *BOUNDARIES, *dict(only)))
    facts = Facts(
        form=table.form,
        rows=len(table.lines),
        rows_in_file=len(loaded.table.lines),
        column=column,
        only=only,
        time=None if time is None else time.name,
        unit="" if clock is None else clock.unit,
        zone=zone_words(clock, options),
        missing=values.missing,
        codes=options.missing_values,
        period=options.period,
        unused=unused,
        plain=table.plain,
    )
    if time is None or clock is None:
        steady, rows = options.period is not None, np.arange(len(table.lines), dtype=np.int64)
        found = Readings(
            *(values.readings, parts, options.period, steady, False, "numbers", label, loaded.name, 0.0, table.notes),
            rows=rows if table.plain else None,
            facts=(facts,),
        )
        ask(evidence._replace(readings=_numbers(values.readings)))
        return found._replace(kind=kind_of_values(found), missing_share=float(1.0 - found.present.mean()))
    return _timed(table, values, clock, parts, evidence, facts, label)


def _timed(
    table: Table, values: Values, clock: Clock, parts: Ints, evidence: Evidence, facts: Facts, label: str
) -> Readings:
    options = evidence.options
    changes = table.changes
    if changes is None and facts.time is not None and facts.time.lower() in _CHANGES:
        changes = True
    rows = _ordered(clock, parts)
    notes = (*table.notes, *rows.notes)
    steps = steps_of(rows.times, rows.parts)
    readings, works = _at(values.readings, rows.at), values.works[rows.at]
    kind, why = (options.rows, "as was said") if options.rows else (None, "")
    if kind is None:
        kind, why = _kind_of_rows(table, readings, rows, steps, changes, facts) or (None, "")
    earlier = (np.diff(clock.times) < 0.0) & (np.diff(parts) == 0)
    ask(
        evidence._replace(
            readings=_numbers(readings),
            times=rows.times,
            parts=rows.parts,
            steps=steps,
            backward=float(earlier.mean()),
            backward_rows=int(earlier.sum()),
            kind=kind,
            works=works.astype(np.int64),
        )
    )
    assert kind is not None
    period = options.period
    if kind == "samples" and options.rows is None and period and abs(period / steps.median - 1.0) > _SAME_PERIOD:
        raise RecordingError(
            f"--period is for logs of changes; here a row comes every {steps.median:g} s (--samples puts them on "
            "another clock)"
        )
    if kind == "samples" and options.gap is not None and not isinstance(readings, list):
        moving = _moving(readings, rows, options.gap)
        readings, works = readings[moving], works[moving]
        rows = _Rows(rows.at[moving], rows.times[moving], rows.parts[moving], rows.notes)
        notes = (*notes, f"{int((~moving).sum())} rows repeat a value for over {options.gap:g} s: left out")
    holds = np.append(np.where(np.diff(rows.parts) == 0, np.diff(rows.times), 0.0), 0.0)
    if options.gap is not None:
        works = works & (holds <= options.gap)
    ticks = ticks_of(kind, rows.times, rows.parts, works, steps, period)
    moments = ticks.moments
    at = np.where(ticks.rows < 0, -1, rows.at[ticks.rows])
    if moments is None:
        filled = np.flatnonzero(ticks.rows >= 0)
        moments = np.interp(np.arange(len(at)), filled, rows.times[ticks.rows[filled]])
        simple = True
    else:  # rows are ticks as a replay of changes counts them: from the first row on
        start = clock.times.min()
        at = np.floor((moments - start) / ticks.period_seconds + 1e-6).astype(np.int64)
        simple = clock.unit in _SIMPLE and not (clock.naive and options.zone) and bool(start > rows.times.min() - 1e8)
    values_at_ticks = _at(readings, ticks.rows)
    if clock.naive and clock.dated and options.zone is None:
        notes = (*notes, "times have no zone: taken for UTC (--zone Europe/Berlin for another)")
    if clock.twice:
        notes = (*notes, f"{clock.twice} rows are in local hours that come twice, told apart by their order")
    low, middle, high = (float(step) for step in np.quantile(steps.all, [0.05, 0.5, 0.95]))
    facts = facts._replace(
        rows=len(rows.at),
        kind=kind,
        why=why,
        steps=(low, middle, high),
        longest=float(holds[works].max(initial=0.0)) if kind == "changes" else None,
        gaps=int((np.diff(ticks.segments) != 0).sum()),
        first=float(rows.times.min()) if clock.dated else None,
        last=float(rows.times.max()) if clock.dated else None,
        plain=table.plain and simple,
        period=ticks.period_seconds,
    )
    found = Readings(
        *(values_at_ticks, ticks.segments, ticks.period_seconds, ticks.steady, kind == "changes"),
        *("numbers", label, evidence.file, 0.0, (*notes, *ticks.notes)),
        rows=at if facts.plain else None,
        moments=moments,
        offsets=clock.offsets,
        facts=(facts,),
        without_row=np.flatnonzero(ticks.rows < 0),
    )
    missing = float((~found.present[ticks.rows >= 0]).mean())
    return found._replace(kind=kind_of_values(found), missing_share=missing)


def _moving(readings: Floats, rows: _Rows, gap: float) -> NDArray[np.bool_]:
    """(n,) whether a row's value does not repeat, from row to row, for longer than a gap."""
    first = run_starts(readings, rows.parts)
    ends = np.append(first[1:], len(readings)) - 1
    lengths = rows.times[ends] - rows.times[first]
    return np.repeat(lengths <= gap, ends - first + 1) | np.isin(np.arange(len(readings)), first)


def _kind_of_rows(
    table: Table, readings: Floats | list[str | None], rows: _Rows, steps: Steps, changes: bool | None, facts: Facts
) -> tuple[RowKind, str] | None:
    numbers = _numbers(readings)
    levels = _levels(readings)
    kind = kind_of(steps, levels, [] if numbers is None else [numbers], changes)
    if changes or (kind is not None and kind[0] != "changes"):
        return kind
    # A beat's own state does not say how long the beat was, but its rate beside it does.
    beside = [column for name in facts.unused if (column := _column(table.columns[name])) is not None]
    other = kind_of(steps, levels, [column[rows.at] for column in beside], None) if beside else None
    return other if other is not None and other[0] == "events" else kind


def _column(cells: Sequence[str]) -> Floats | None:
    try:
        return np.array([float(cell) if cell.strip() else np.nan for cell in cells])
    except ValueError:
        return None


def _ordered(clock: Clock, parts: Ints) -> _Rows:
    """Rows in the order of their times, without those of a clock that was not set: see `notes`."""
    at, notes = np.arange(len(parts), dtype=np.int64), tuple[str, ...]()
    early = clock.times < _LEAST_DATED
    if clock.dated and early.any():
        notes = (f"{int(early.sum())} rows are of before 2000, when the clock was not set: left out",)
        at = at[~early]
    if clock.dated and (lone := _far_away(clock.times[at])).any():
        notes = (*notes, f"{int(lone.sum())} rows are over a year from all others, as of a wrong clock: left out")
        at = at[~lone]
    order, more = in_order(clock.times[at], parts[at])
    at, notes = at[order], (*notes, *more)
    return _Rows(at, clock.times[at], parts[at], notes)


def _far_away(times: Floats) -> NDArray[np.bool_]:
    """(n,) whether a time is of a group over a year from the largest one, if that has nine tenths of all."""
    order = np.argsort(times, kind="stable")
    groups = np.empty(len(times), dtype=np.int64)
    groups[order] = np.concatenate([[0], np.cumsum(np.diff(times[order]) > _YEAR)])
    counts = np.bincount(groups)
    return np.asarray((groups != counts.argmax()) & (counts.max() >= _MOST_OF_ALL * len(times)))


def _read_times(table: Table, time: TimeCells, file: str, options: ReadOptions) -> Clock:
    """The times of rows.

    Raises:
        RecordingError: a cell is no time.
    """
    clock = clock_of(time.cells, time.unit, options.zone)
    if np.isnan(clock.times).any():
        line = table.lines[int(np.isnan(clock.times).argmax())]
        raise RecordingError(
            f"{file}: {table.where} {line}, column {time.name} is no time: give seconds, or ISO 8601, or another "
            "column by --time"
        )
    return clock


def _parts_of(table: Table) -> Ints:
    """(n,) numbers of rows that rise where a boundary has another cell."""
    boundaries = [cells for name, cells in table.columns.items() if name.lower() in BOUNDARIES]
    if not boundaries:
        return np.zeros(len(table.lines), dtype=np.int64)
    marks = list(zip(*boundaries, strict=True))
    new = [False, *(mark != last for last, mark in itertools.pairwise(marks))]
    return np.cumsum(new).astype(np.int64)


def _only_name(table: Table) -> str | None:
    """The name of the only series, if it has one."""
    keys = table.keys or [name for name in table.columns if name.lower() == _ENTITY]
    names = {cell for key in keys for cell in table.columns[key]}
    return names.pop() if len(names) == 1 else None


def zone_words(clock: Clock | None, options: ReadOptions) -> str:
    """The zone of times in words; empty without times of a day."""
    if clock is None or not clock.dated:
        return ""
    if clock.naive:
        return str(options.zone or "UTC, as none is written")
    return ", ".join(clock.offsets) or "UTC"


def _at(values: Floats | list[str | None], rows: Ints) -> Floats | list[str | None]:
    """Readings of rows, none where a row is -1."""
    if isinstance(values, list):
        return [None if row < 0 else values[row] for row in rows.tolist()]
    return np.where(rows < 0, np.nan, values[rows])


def _numbers(values: Floats | list[str | None]) -> Floats | None:
    return None if isinstance(values, list) else values


def _levels(values: Floats | list[str | None]) -> Ints:
    """(n,) a number for each different reading, -1 without one."""
    if isinstance(values, list):
        numbers: dict[str | None, int] = {None: -1}
        known = [None if value is None else value.casefold() for value in values]
        return np.array([numbers.setdefault(value, len(numbers) - 1) for value in known], dtype=np.int64)
    codes = np.unique(values, return_inverse=True)[1].reshape(-1)
    return np.where(np.isnan(values), -1, codes)


def kind_of_values(readings: Readings) -> Kind:
    """Tell numbers, few whole numbers, two names, and names apart.

    Raises:
        RecordingError: there are no readings, or they never change.
    """
    present = readings.present
    if not present.any():
        raise RecordingError(f"{readings.source}: no row has a reading in column {readings.column}")
    if isinstance(readings.values, list):
        distinct = {value.casefold() for value in readings.values if value is not None}
        if len(distinct) == 1:
            raise _constant(readings)
        return "on/off" if len(distinct) == 2 else "names"
    some = np.unique(readings.values[present])
    if len(some) == 1:
        raise _constant(readings)
    if len(some) > _MOST_LEVELS or (some != np.floor(some)).any() or np.abs(some).max() > 2**53:
        return "numbers"
    return "on/off" if some.tolist() == [0.0, 1.0] else "levels"


def _constant(readings: Readings) -> RecordingError:
    return RecordingError(f"{readings.source}: column {readings.column} never changes: there is nothing to plan from")


def joined(recordings: Sequence[Readings]) -> Readings:
    """Readings of several donors, one after another; of where they are from only the number of donors is left.

    Raises:
        RecordingError: their ticks or their readings are not of one kind.
    """
    first = recordings[0]
    if len(recordings) == 1:
        return first
    for number, one in enumerate(recordings, 1):
        if isinstance(one.values, list) != isinstance(first.values, list) or one.steady != first.steady:
            raise RecordingError(
                f"recording {number} has other readings than the first: names, numbers and events differ"
            )
        if first.steady and abs(one.period / first.period - 1.0) > _SAME_PERIOD:
            raise RecordingError(
                f"recording {number} has a reading every {one.period:g} s, the first every {first.period:g} s: one "
                "policy has one tick"
            )
    lengths = [len(one.segments) for one in recordings]
    values: Floats | list[str | None]
    if isinstance(first.values, list):
        values = [value for one in recordings for value in one.values]
    else:
        values = np.concatenate([one.values for one in recordings])
    begins = [np.diff(one.segments, prepend=one.segments[0] - 1) != 0 for one in recordings]
    moments = [one.moments for one in recordings if one.moments is not None]
    found = first._replace(
        values=values,
        segments=np.cumsum(np.concatenate(begins)).astype(np.int64),
        source=f"{len(recordings)} recordings",
        missing_share=max(one.missing_share for one in recordings),
        notes=tuple(dict.fromkeys(note for one in recordings for note in one.notes)),
        rows=None,
        without_row=None,
        starts=(0, *np.cumsum(lengths[:-1]).tolist()),
        moments=np.concatenate(moments) if len(moments) == len(recordings) else None,
        facts=tuple(facts for one in recordings for facts in one.facts),
    )
    return found._replace(kind=kind_of_values(found))
