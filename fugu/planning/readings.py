"""Read what a sensor said: CSV files, plain or gzip, with or without times, even or as a log of changes.

Columns with a meaning: a time (`t`, `time`, `timestamp`, `last_changed`, ...: seconds, or ISO 8601, UTC where no zone
is given), `seg` and `subject` (a new value begins a new stretch), and `entity_id` (whose rows to take). Errors name
rows and columns, never a value.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fugu.chains.arrays import Floats, Ints
from fugu.host.csv_file import ENTITY_COLUMN, TIME_COLUMNS, Recorded, csv_rows, moment
from fugu.planning.errors import PlanningError
from fugu.planning.recording import BOUNDARIES, column_missing, ticks_of

__all__ = ["Readings", "joined", "read_readings"]

Kind = Literal["numbers", "levels", "on/off", "names"]
"""Numbers; whole numbers of which there are few; two names, or 0 and 1; names."""

_CHANGES = ("last_changed", "last_updated")
_VALUES = ("value", "state")
_SILENT = ("", "nan", "none", "null", "unknown")
_BROKEN = ("unavailable",)
_MOST_LEVELS = 8
_SAME_PERIOD = 0.05


class Readings(NamedTuple):
    """Readings, one a tick.

    `values` are (n,) numbers, NaN where there is none, or names, None where there is none; `segments` are equal inside
    a stretch without gaps. `period_seconds` is the typical time between events, None if nobody has said it of rows
    without times; events such as heartbeats are not `steady`. `missing_share` does not count absent rows. `rows` are
    (n,) rows of the file, from 0; of a log of changes, ticks since the first row; -1 for ticks without one. The ticks
    of each donor begin at `starts`. `moments` are (n,) Unix times of ticks, None without times; `offsets` from UTC are
    written in the file's times, other than none.
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
    time: str | None = None
    rows: Ints | None = None
    starts: tuple[int, ...] = (0,)
    moments: Floats | None = None
    offsets: tuple[str, ...] = ()

    @property
    def period(self) -> float:
        """Seconds from tick to tick; PlanningError if nobody has said them."""
        if self.period_seconds is None:
            raise PlanningError(f"{self.source}: no times say how far apart its rows are: give --period, in seconds")
        return self.period_seconds

    @property
    def timed(self) -> bool:
        """True if its ticks are at steady times, so that there are parts of the day."""
        return self.steady and self.moments is not None

    @property
    def present(self) -> NDArray[np.bool_]:
        """(n,) whether a tick has a reading."""
        if isinstance(self.values, list):
            return np.array([value is not None for value in self.values], dtype=bool)
        return ~np.isnan(self.values)


class _Table(NamedTuple):
    """A file's rows: cells as text, times, and which rows belong together."""

    cells: Sequence[str]
    times: Floats | None
    parts: Ints
    lines: Sequence[int]
    column: str
    changes: bool
    time: str | None
    offsets: tuple[str, ...]


def read_readings(
    path: Recorded, column: str | None = None, time: str | None = None, period: float | None = None
) -> Readings:
    """Read a column of readings from CSV, plain or gzip.

    By default it is `value` or `state`, or the only one there is; in a log of several entities also one of these. Rows
    without times are ticks. `period` is seconds from tick to tick, for these and for logs of changes.

    Raises:
        PlanningError: one line that says what is wrong, and where.
    """
    table = _csv(path, column, time)
    try:
        return _readings(table, path.name, period)
    except PlanningError as error:
        raise error if str(error).startswith(path.name) else PlanningError(f"{path.name}: {error}") from None


def joined(recordings: Sequence[Readings]) -> Readings:
    """Readings of several donors, one after another; of where they are from only the number of donors is left.

    Raises:
        PlanningError: their ticks or their readings are not of one kind.
    """
    first = recordings[0]
    if len(recordings) == 1:
        return first
    for number, one in enumerate(recordings, 1):
        if isinstance(one.values, list) != isinstance(first.values, list) or one.steady != first.steady:
            raise PlanningError(
                f"recording {number} has other readings than the first: names, numbers and events differ"
            )
        if first.steady and abs(one.period / first.period - 1.0) > _SAME_PERIOD:
            raise PlanningError(
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
    found = first._replace(
        values=values,
        segments=np.cumsum(np.concatenate(begins)).astype(np.int64),
        source=f"{len(recordings)} recordings",
        missing_share=max(one.missing_share for one in recordings),
        notes=tuple(dict.fromkeys(note for one in recordings for note in one.notes)),
        rows=None,
        starts=(0, *np.cumsum(lengths[:-1]).tolist()),
        moments=_joined_moments(recordings),
    )
    return found._replace(kind=_kind(found, found.source))


def _joined_moments(recordings: Sequence[Readings]) -> Floats | None:
    moments = [one.moments for one in recordings if one.moments is not None]
    return np.concatenate(moments) if len(moments) == len(recordings) else None


def _readings(table: _Table, file: str, period: float | None) -> Readings:
    values, works = _values(table, file)
    if table.times is None:
        steady, rows = period is not None, np.arange(len(table.cells), dtype=np.int64)
        found = Readings(values, table.parts, period, steady, False, "numbers", table.column, file, 0.0, (), rows=rows)
        return found._replace(kind=_kind(found, file), missing_share=float(1.0 - found.present.mean()))
    order, ticks = ticks_of(table.times, table.parts, works, changes=table.changes, period=period)
    times, moments = table.times[order], ticks.moments
    changes = moments is not None
    rows = np.where(ticks.rows < 0, -1, order[ticks.rows])
    if isinstance(values, list):
        taken: Floats | list[str | None] = [None if row < 0 else values[row] for row in rows.tolist()]
    else:
        taken = np.where(rows < 0, np.nan, values[rows])
    if moments is None:
        at = np.flatnonzero(ticks.rows >= 0)
        moments = np.interp(np.arange(len(rows)), at, times[ticks.rows[at]])
    else:  # rows are ticks as a replay of changes counts them: from the first row on
        rows = np.floor((moments - times.min()) / ticks.period_seconds + 1e-6).astype(np.int64)
    found = Readings(
        *(taken, ticks.segments, ticks.period_seconds, ticks.steady, changes),
        *("numbers", table.column, file, 0.0, ticks.notes),
        time=table.time,
        rows=rows,
        moments=moments,
        offsets=table.offsets,
    )
    return found._replace(kind=_kind(found, file), missing_share=float((~found.present[ticks.rows >= 0]).mean()))


def _values(table: _Table, file: str) -> tuple[Floats | list[str | None], Any]:
    """Numbers if all cells are, else names; and whether the source worked."""
    cells = table.cells
    works = np.array([cell.lower() not in _BROKEN for cell in cells], dtype=bool)
    texts = [None if cell.lower() in _SILENT or not fine else cell for cell, fine in zip(cells, works, strict=True)]
    numbers = np.full(len(texts), np.nan)
    wrong = []
    for place, text in enumerate(texts):
        if text is not None:
            try:
                numbers[place] = float(text)
            except ValueError:
                wrong.append(place)
    given = sum(text is not None for text in texts)
    if wrong and len(wrong) <= 0.5 * given:
        raise PlanningError(f"{file}: line {table.lines[wrong[0]]}, column {table.column} is no number")
    if wrong:
        return texts, works
    if np.isinf(numbers).any():
        line = table.lines[int(np.isinf(numbers).argmax())]
        raise PlanningError(f"{file}: line {line}, column {table.column} is no finite number")
    return numbers, works


def _kind(readings: Readings, file: str) -> Kind:
    present = readings.present
    if not present.any():
        raise PlanningError(f"{file}: no row has a reading in column {readings.column}")
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


def _constant(readings: Readings) -> PlanningError:
    return PlanningError(f"column {readings.column} never changes: there is nothing to plan from")


def _csv(path: Recorded, column: str | None, time: str | None) -> _Table:
    with csv_rows(path, PlanningError) as (header, rows):
        names = [name.lower() for name in header]
        at_time = _time_column(path.name, header, names, time)
        entity = names.index(ENTITY_COLUMN) if ENTITY_COLUMN in names else None
        wanted = column if entity is not None and column is not None and column not in header else None
        at = _value_column(path.name, header, names, None if wanted else column, at_time, entity)
        boundaries = [names.index(name) for name in BOUNDARIES if name in names]
        cells, times, parts, lines, entities, ends = [], [], [], [], set(), set()
        part, last = 0, None
        for line, row in rows:
            if entity is not None:
                entities.add(row[entity])
                if wanted is not None and row[entity] != wanted:
                    continue
            marks = [row[i] for i in boundaries]
            part += last is not None and marks != last
            last = marks
            if at_time is not None:
                times.append(_moment(row[at_time], path.name, line, header[at_time]))
                if row[at_time][-3:-2] == ":":
                    ends.add(row[at_time].strip()[-6:])
            cells.append(row[at].strip())
            parts.append(part)
            lines.append(line)
    if wanted is not None and not cells:
        raise column_missing(path.name, wanted, header)
    if wanted is None and len(entities) > 1:
        raise PlanningError(f"{path.name} holds {len(entities)} entities: choose one by --column ENTITY_ID")
    if not cells:
        raise PlanningError(f"{path.name} has no rows")
    changes = at_time is not None and names[at_time] in _CHANGES
    only = entities.pop() if len(entities) == 1 and column is None else None
    return _Table(
        *(cells, np.array(times) if at_time is not None else None, np.array(parts, dtype=np.int64), lines),
        *(wanted or only or header[at], changes, header[at_time] if at_time is not None else None),
        tuple(sorted(end for end in ends if end[0] in "+-" and end[1:] != "00:00")),
    )


def _time_column(file: str, header: list[str], names: list[str], time: str | None) -> int | None:
    if time is None:
        return next((names.index(name) for name in TIME_COLUMNS if name in names), None)
    if time not in header:
        raise column_missing(file, time, header)
    return header.index(time)


def _value_column(
    file: str, header: list[str], names: list[str], column: str | None, time: int | None, entity: int | None
) -> int:
    if column is not None:
        if column not in header:
            raise column_missing(file, column, header)
        return header.index(column)
    for name in _VALUES:
        if name in names:
            return names.index(name)
    others = [i for i, name in enumerate(names) if i not in (time, entity) and name not in BOUNDARIES]
    # A file without a header begins with a reading, which must not become a name in a policy.
    if len(others) != 1 or header[others[0]][:1] in "+-.0123456789":
        raise PlanningError(f"{column_missing(file, _VALUES[0], header)}: choose a column by --column")
    return others[0]


def _moment(cell: str, file: str, line: int, column: str) -> float:
    found = moment(cell)
    if math.isnan(found):
        raise PlanningError(f"{file}: line {line}, column {column} is no time: give seconds, or ISO 8601")
    return found
