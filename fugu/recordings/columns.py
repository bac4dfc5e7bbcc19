"""Find the columns of times and readings of a table, and the columns that tell series apart."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fugu.contract.errors import FuguError
from fugu.recordings.clock import ORDERS, UNITS, is_date, is_time_of_day, looks_like_time, number_of
from fugu.recordings.errors import Option, QuestionError
from fugu.recordings.table import Table

if TYPE_CHECKING:
    from fugu.chains.arrays import Floats, Ints
    from fugu.recordings.options import ReadOptions

__all__ = [
    "AMOUNT",
    "BOUNDARIES",
    "ChosenCells",
    "Key",
    "TimeCells",
    "codes_of",
    "column_missing",
    "is_missing",
    "keys_of",
    "readings_column",
    "row_codes",
    "select_rows",
    "time_error",
    "time_of",
    "time_rank",
]

BOUNDARIES = ("seg", "subject")
"""Columns in which a change of cells begins a new stretch."""
_TIMES = (
    *("timestamp", "time", "datetime", "date_time", "date-time", "date", "last_changed", "last_updated", "ts"),
    *("epoch", "unixtime", "unix_time", "zeitstempel", "zeitpunkt", "datum", "zeit", "horodate", "fecha", "tijd", "t"),
)
"""Usual names of a column of times, in small letters without leading underscores, the best first."""
_UNIT_OF_NAME = re.compile(r"[ _]?[(\[_ ](s|ms|us|ns|utc|unix)[)\]]?$")
_UNSURE = ("t", "ts", "date", "epoch", "datum", "zeit", "fecha", "tijd")
"""Names that other columns also have. A column with such a name has times only if its cells look like times."""
_LIKE_TIME = re.compile(r"(?!.*(up|run|life|down)time).*(time|timestamp|date|datetime|_at|zeit)")
_VALUES, _REPEATED = ("value", "state"), re.compile(r"(_\d+)+$")
_KEY = re.compile(
    r"(sensor|topic|device|entity|node|channel|room|location|station|source|host|id|name|label|address|addr|mac|metric"
    r"|measurement|field|series|meter|tag|friendly_name|appliance|unit|type|user|person|participant|trace|zone|serial|port|probe|channel|circuit|phase|uuid)"
    r"([ _-]?(id|name|no|nr|number))?|.*[ _-]id"
)
_HHMM, _YYYYMMDD = re.compile(r"([01]\d|2[0-3])([0-5]\d){1,2}"), re.compile(r"(19|20)\d\d(0\d|1[0-2])[0-3]\d")
AMOUNT = re.compile(
    r"\[?\s*([-+]?\d+(?:[.,]\d+)?(?:e[-+]?\d+)?)\s*"
    r"([^\d\s.,:/\]>-][^\d,:\]>]{0,11})?\]?",
    re.IGNORECASE,
)
"""A number with or without a unit, as panels show it, perhaps in brackets."""
_MISSING = ("", "nan", "none", "null", "unknown", "unavailable", "?", "na", "n/a", "#n/a", "-", "--")
_UNITS = (*UNITS, *ORDERS)
_LOOKED_AT = 200
_MOST_KEYS, _MOST_SHOWN = 10_000, 12
_TWICE, _STEADY, _ALIKE, _REPEATS, _NO_REPEATS = 0.2, 0.8, 0.1, 0.1, 0.01
_FEWEST, _MOST_LEVELS = 10, 8


ChosenCells = tuple[tuple[str, str], ...]
"""Pairs of a column and a cell: only rows with these cells are read."""


class TimeCells(NamedTuple):
    """The time cells of all rows, and their `columns`: one, or a column of dates and a column of times of day.

    `unit` is given by the user or by the name of the column; None without one.
    """

    name: str
    cells: list[str]
    unit: str | None
    columns: tuple[str, ...]


class Key(NamedTuple):
    """A column that tells series apart, with the number of rows for each different cell.

    `named` is True if the column has a usual name of such columns. Otherwise its cells may be readings, so no message
    shows them.
    """

    column: str
    counts: dict[str, int]
    named: bool


def is_missing(cell: str) -> bool:
    """Return whether a cell is empty, or a usual word for no reading."""
    return cell.strip().lower() in _MISSING


def column_missing(table: Table, name: str) -> FuguError:
    """Return the error for a column that a table does not have."""
    return FuguError(f"{table.file} has no column {name[:80]!r}; it has {', '.join(table.columns)[:200]}")


def time_error(table: Table, time: TimeCells, row: int) -> FuguError:
    """Return the error for a row whose cell is no time."""
    place = table.place(row, time.name)
    return FuguError(f"{place} is no time: give seconds, or ISO 8601, or another column by --time")


def time_rank(name: str) -> int | None:
    """Return the rank of a column's name among usual names of times, 0 for the best; None for other names."""
    return _TIMES.index(_plain_name(name)) if _plain_name(name) in _TIMES else None


def _plain_name(name: str) -> str:
    """Return a column's name in small letters, without leading underscores and without a unit at its end."""
    return _UNIT_OF_NAME.sub("", name.strip().lower().lstrip("_"))


def _unit_of_name(name: str) -> str | None:
    """Return the unit at the end of a column's name, such as ms in time_ms or Time [ms]; None without one."""
    match = _UNIT_OF_NAME.search(name.strip().lower())
    return None if match is None or match[1] not in UNITS else match[1]


def time_of(table: Table, time_option: str | None) -> TimeCells | None:
    """Return the time cells of a table; None if no column looks like times. `time_option` is a column, or COLUMN:UNIT.

    Raises:
        FuguError: there is no such column, or times of day have no dates.
        QuestionError: several columns may be the times.
    """
    columns = table.columns
    if time_option is not None:
        name, _, unit = time_option.rpartition(":")
        if time_option in columns:
            return _with_date(table, time_option, None)
        if name in columns and unit in _UNITS:
            return _with_date(table, name, unit)
        raise column_missing(table, time_option)
    if table.time is not None:
        return TimeCells(table.time, columns[table.time], None, (table.time,))
    for usual_name in _TIMES:
        for name, cells in columns.items():
            if _plain_name(name) == usual_name and (usual_name not in _UNSURE or looks_like_time(cells)):
                unit_in_name = _unit_of_name(name)
                return _with_date(table, name, unit_in_name if unit_in_name and _all_pass(cells, _is_number) else None)
    dates = [name for name, cells in columns.items() if _all_pass(cells, is_date)]
    time_columns = {name: cells for name, cells in columns.items() if _LIKE_TIME.fullmatch(_plain_name(name))}
    dates = dates or [
        name for name, cells in time_columns.items() if _all_pass(cells, _is_number) and looks_like_time(cells)
    ]
    if len(dates) > 1 and table.changes is None:
        raise _column_question(f"{table.file} has {len(dates)} columns of times", "time", dates, "its times")
    return _with_date(table, dates[0], None) if dates else None


def _with_date(table: Table, name: str, unit: str | None) -> TimeCells:
    """Return the cells of a column of times. Join dates in one column with times of day in another column."""
    cells = table.columns[name]
    if _all_pass(cells, _HHMM.fullmatch) and (day := _other_column(table, name, _YYYYMMDD.fullmatch)):
        return _date_and_time(table, day, name, unit, [":".join(re.findall("..", cell.strip())) for cell in cells], "T")
    if _all_pass(cells, is_time_of_day):
        if (day := _other_column(table, name, is_date)) is None:
            raise FuguError(
                f"{table.file}: column {name} has times of day, and no column has dates: add one, or leave the times "
                "out and give --period"
            )
        return _date_and_time(table, day, name, unit, cells, " ")
    if _all_pass(cells, _is_day) and (time := _other_column(table, name, is_time_of_day)):
        return _date_and_time(table, name, time, unit, table.columns[time], " ")
    return TimeCells(name, cells, unit, (name,))


def _is_day(cell: str) -> bool:
    return is_date(cell) and ":" not in cell


def _other_column(table: Table, name: str, test: Callable[[str], object]) -> str | None:
    """Return the name of another column whose cells pass a test; None without one."""
    return next((other for other, cells in table.columns.items() if other != name and _all_pass(cells, test)), None)


def _date_and_time(table: Table, day: str, time: str, unit: str | None, times: Sequence[str], sep: str) -> TimeCells:
    cells = [f"{date.strip()}{sep}{moment}" for date, moment in zip(table.columns[day], times, strict=True)]
    return TimeCells(f"{day} and {time}", cells, unit, (day, time))


def _all_pass(cells: Sequence[str], test: Callable[[str], object]) -> bool:
    """Return whether the first 200 and last 200 cells, without missing ones, all pass a test."""
    sample = [cell for cell in (*cells[:_LOOKED_AT], *cells[-_LOOKED_AT:]) if not is_missing(cell)]
    return bool(sample) and all(map(test, sample))


def select_rows(table: Table, options: ReadOptions) -> tuple[Table, ChosenCells]:
    """Return a table of the rows that options choose, and the pairs of a column and a cell by which they choose.

    Raises:
        FuguError: there is no such column, or no such row.
    """
    row_filter = dict(options.only)
    if options.column is not None and options.column not in table.columns:
        key = next((key for key in (*table.keys, *table.columns) if options.column in table.columns.get(key, ())), None)
        if key is None or not (key in table.keys or _KEY.fullmatch(_plain_name(key))):
            raise column_missing(table, options.column)
        row_filter[key] = options.column
    for column, cell in row_filter.items():
        if column not in table.columns:
            raise column_missing(table, column)
        rows = [row for row, row_cell in enumerate(table.columns[column]) if row_cell.strip() == cell]
        if not rows:
            raise FuguError(f"{table.file}: no row has {cell[:80]!r} in column {column}")
        table = table.with_rows(rows)
    return table, tuple(row_filter.items())


def readings_column(table: Table, column: str | None, skipped_columns: Sequence[str]) -> str:
    """Return the name of the column of readings: `column` if the table has it, else the usual or the only candidate.

    Columns in `skipped_columns` have another meaning.

    Raises:
        QuestionError: several columns may be the readings.
        FuguError: no column may be the readings.
    """
    if column is not None and column in table.columns:
        return column
    if table.value is not None:
        return table.value
    candidates = [name for name in table.columns if name not in skipped_columns and _plain_name(name) not in BOUNDARIES]
    for usual_name in _VALUES:
        if any(_plain_name(name) == usual_name for name in candidates):
            candidates = [name for name in candidates if _REPEATED.sub("", _plain_name(name)) == usual_name]
            if len(candidates) == 1:
                return candidates[0]
            break
    tests = is_date, is_time_of_day
    candidates = [name for name in candidates if not any(_all_pass(table.columns[name], test) for test in tests)]
    names = [name for name in candidates if not _KEY.fullmatch(_plain_name(name))] or candidates
    names = [name for name in names if not all(map(is_missing, table.columns[name]))]
    names = [name for name in names if not _counts_rows(table.columns[name])] or names
    if not names:
        raise FuguError(
            f"{table.file} has no column of readings; it has {', '.join(table.columns)[:200] or 'no columns'}"
        )
    if len(names) > 1:
        question = f"{table.file} has {len(names)} columns that may be the readings"
        raise _column_question(question, "column", names, "its readings")
    return names[0]


def _column_question(question: str, option: str, names: Sequence[str], meaning: str) -> QuestionError:
    """Return the question which column has a meaning, with the first columns as options."""
    options = [Option((f"--{option}", name), meaning) for name in names[:_MOST_SHOWN]]
    if len(names) > _MOST_SHOWN:
        options.append(Option((f"--{option}", "NAME"), f"one of {len(names) - _MOST_SHOWN} more"))
    return QuestionError(option, question, options)


def _counts_rows(cells: Sequence[str]) -> bool:
    """Return whether cells count the rows, from 0 or 1."""
    first_number = cells[0].strip()
    if len(cells) < _FEWEST or first_number not in ("0", "1"):
        return False
    return [*map(str.strip, cells)] == [str(int(first_number) + row) for row in range(len(cells))]


def keys_of(
    table: Table, value_column: str, skipped_columns: Sequence[str], times: Floats | None, row_parts: Ints
) -> list[Key]:
    """Return the columns that tell series apart; empty if there is a single series.

    The form of the file may name these columns. Else they are columns of names whose rows interleave or whose times
    begin again. A column of numbers needs a usual name, or series whose times, steps or values are more regular.
    """
    if table.keys:
        candidates = [Key(name, Counter(table.columns[name]), True) for name in table.keys]
        return [key for key in candidates if len(key.counts) > 1]
    series_keys = []
    for name, cells in table.columns.items():
        if name == value_column or name in skipped_columns or _plain_name(name) in (*BOUNDARIES, *_VALUES):
            continue
        cell_counts = Counter(cells)
        if len(cell_counts) < 2 or len(cell_counts) > min(_MOST_KEYS, max(len(cells) // 3, _FEWEST)):
            continue
        is_named = bool(_KEY.fullmatch(_plain_name(name)))
        if _tells_apart(cells, table.columns[value_column], times, row_parts, is_named=is_named):
            series_keys.append(Key(name, cell_counts, is_named))
    return series_keys


def _tells_apart(cells: list[str], values: list[str], times: Floats | None, row_parts: Ints, *, is_named: bool) -> bool:
    """Return whether the cells of a column tell series apart, by the order, times and values of their rows."""
    if _all_pass(cells, is_date):
        return False
    codes = codes_of(cells)
    is_change = np.diff(codes) != 0
    is_interleaved = bool(is_change.sum() > codes.max())
    if is_named or not _all_pass(cells, _is_amount):
        if times is None or is_interleaved:
            return is_interleaved
        return is_named or bool((is_change & (np.diff(times) < 0.0) & (np.diff(row_parts) == 0)).any())
    if times is None or not is_interleaved or len(codes) < _FEWEST:
        return False
    order = np.lexsort((times, codes))
    same_series = np.diff(codes[order]) == 0
    series_steps = np.diff(times[order])[same_series]
    all_steps = np.diff(np.sort(times))
    if not series_steps.size or not all_steps.size:
        return False
    if (all_steps == 0.0).mean() > _TWICE and (series_steps == 0.0).mean() < _NO_REPEATS:
        return True
    if _steady_share(series_steps) >= _STEADY > _steady_share(all_steps):
        return True
    value_codes = codes_of(values)
    time_order = np.argsort(times, kind="stable")
    repeat_rate = (np.diff(value_codes[time_order]) == 0).mean()
    series_repeats = (np.diff(value_codes[order])[same_series] == 0).mean()
    return bool(len(set(values)) <= _MOST_LEVELS and repeat_rate > _REPEATS and series_repeats < _NO_REPEATS)


def codes_of(cells: Sequence[object]) -> Ints:
    """Number cells, (n,), from 0 in the order of first occurrence; equal cells have equal numbers."""
    code_of_cell = {cell: code for code, cell in enumerate(dict.fromkeys(cells))}
    return np.array([code_of_cell[cell] for cell in cells], dtype=np.int64)


def row_codes(table: Table, names: Sequence[str]) -> Ints:
    """Number rows, (n,): rows with equal cells in all named columns have equal numbers, 0 without such columns."""
    code_columns = [cells for name, cells in table.columns.items() if name.lower() in names]
    return codes_of([*zip(*code_columns, strict=True)]) if code_columns else np.zeros(len(table.lines), dtype=np.int64)


def _steady_share(steps: Floats) -> float:
    """Return the share of steps within a tenth of their median; 0 if the median is 0."""
    median = float(np.median(steps))
    return float((np.abs(steps - median) <= _ALIKE * median).mean()) if median > 0.0 else 0.0


def _is_number(cell: str) -> bool:
    return number_of(cell.replace(",", ".")) is not None


def _is_amount(cell: str) -> bool:
    """Return whether a cell is a number, also with a decimal comma or a unit."""
    return _is_number(cell) or AMOUNT.fullmatch(cell.strip()) is not None
