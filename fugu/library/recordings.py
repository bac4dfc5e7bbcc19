"""Recordings that are already in memory: pandas and numpy, as a CSV file would have them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np

from fugu.contract.errors import UsageError
from fugu.host.csv_file import ENTITY_COLUMN, TIME_COLUMNS, Recorded, Rows
from fugu.planning.readings import Readings, joined, read_readings
from fugu.planning.recording import BOUNDARIES

__all__ = ["Source", "readings_of", "recorded", "several"]

Source = Any
"""A CSV path, a pandas Series or DataFrame, or a numpy array; pandas is not loaded to tell."""

_TIME = "time"
_MEANT = {*TIME_COLUMNS, *BOUNDARIES, ENTITY_COLUMN}
"""Columns of a table that are no readings."""
_WANTED = "a CSV path, a pandas Series or DataFrame, or a numpy array"


def several(source: Source | Sequence[Source]) -> list[Source]:
    """The recordings of several donors, or one."""
    return [*source] if isinstance(source, list | tuple) else [source]


def readings_of(
    sources: Sequence[Source], column: str | None = None, time: str | None = None, period: float | None = None
) -> Readings:
    """Read recordings as a plan does, one after another; `period` is in seconds.

    Raises:
        FuguError: a recording does not fit: one line says what, where, and what to do.
        OSError: a file cannot be read.
    """
    return joined([_readings(source, column, time, period) for source in sources])


def _readings(source: Source, column: str | None, time: str | None, period: float | None) -> Readings:
    found, timed = recorded(source, column=column, time=time, period=period)
    readings = read_readings(found, column, time, period if timed else None)
    if isinstance(found, Rows):
        readings = readings._replace(rows=None)  # no agent could replay them
    return readings if timed else readings._replace(moments=None)  # nobody knows the time of day


def recorded(
    source: Source, *, column: str | None = None, time: str | None = None, period: float | None = None
) -> tuple[Recorded, bool]:
    """A recording as something that is read like a CSV file; and whether its times are known, or only its period.

    Columns have the meaning that they have in a CSV file. An index of times is a column `time`; without times,
    `period` says how many seconds lie between any two rows.

    Raises:
        UsageError: it is no recording, or nobody knows its times.
    """
    match source:
        case str() | Path():
            return Path(source), True
        case np.ndarray():
            if source.ndim != 1:
                raise UsageError(f"an array of readings has one dimension, got {source.ndim}: give one column")
            return _rows("the array", {column or "value": _cells(source.tolist(), "value")}, None, time, period)
    kind = {one.__name__ for one in type(source).__mro__ if one.__module__.partition(".")[0] == "pandas"}
    if "Series" in kind:
        name = "value" if source.name is None or str(source.name).lower() in _MEANT else str(source.name)
        return _rows("the Series", {name: _cells(source, name)}, source.index, time, period)
    if "DataFrame" not in kind:
        raise UsageError(f"a recording is {_WANTED}, got {type(source).__name__}")
    names = [str(name) for name in source.columns]
    if again := [name for place, name in enumerate(names) if name in names[:place]]:
        raise UsageError(f"the DataFrame has two columns {again[0]!r}: rename or drop one of them")
    used = [name for name in names if column not in names or name in (column, time) or name.lower() in _MEANT]
    times = {name for name in used if name == time or name.lower() in TIME_COLUMNS}
    cells = {name: _cells(source.iloc[:, names.index(name)], name, name in times) for name in used}
    return _rows("the DataFrame", cells, source.index, time, period)


def _rows(
    name: str, cells: dict[str, list[str]], index: Any, time: str | None, period: float | None
) -> tuple[Rows, bool]:
    named = time or next((one for one in cells if one.lower() in TIME_COLUMNS), None)
    indexed = hasattr(index, "tz_convert") and type(index).__name__ == "DatetimeIndex"
    if indexed and named is not None and time is None:
        raise UsageError(f"{name} has times in its index and in column {named!r}: drop one, or name that by time=")
    timed = indexed or named is not None
    if not timed and period is None:
        raise UsageError(f"{name} has no times: give it an index of times (a DatetimeIndex), or period= in seconds")
    if indexed and named is None:
        cells = {_TIME: _cells(index, _TIME, True), **cells}
    if not timed:
        length = len(next(iter(cells.values()), []))
        cells = {_TIME: [repr(row * float(period or 1.0)) for row in range(length)], **cells}
    return Rows(name, [*cells], [list(row) for row in zip(*cells.values(), strict=True)]), timed


def _cells(values: Iterable[Any], column: str, times: bool = False) -> list[str]:
    cells = []
    for row, value in enumerate(values, 1):
        cell = (_at if times else _cell)(value)
        if cell is None:
            raise UsageError(
                f"line {row}, column {column} is of type {type(value).__name__}, no number, word or truth value: "
                "choose another column by column="
            )
        cells.append(cell)
    return cells


def _cell(value: Any) -> str | None:
    """A reading as text, empty where it is missing; `None` if it is none."""
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, bool | np.bool_):
        return str(int(value))
    return repr(float(value)) if isinstance(value, int | float | Decimal | np.integer | np.floating) else None


def _at(value: Any) -> str | None:
    """A time as text: a date in seconds; UTC where it has no zone."""
    if isinstance(value, datetime) and type(value).__name__ != "NaTType":
        return repr((value if value.tzinfo else value.replace(tzinfo=UTC)).timestamp())
    return _cell(value)
