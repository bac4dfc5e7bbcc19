"""Recordings that are already in memory: pandas and numpy, as a file would have them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np

from fugu.contract.errors import FuguError, UsageError, cause
from fugu.recordings.columns import time_rank
from fugu.recordings.options import ReadOptions, read_options
from fugu.recordings.places import place_columns, read_traces
from fugu.recordings.readings import AS_FOUND, Loaded, Readings, joined, load, read_readings
from fugu.recordings.summary import Recording
from fugu.recordings.table import Table

__all__ = ["Source", "read", "readings_of", "recorded", "several"]

Source = Any
"""A path of a file, a pandas Series or DataFrame, or a numpy array; pandas is not loaded to tell."""

_TIME = "time"
_WANTED = "the path of a file, a pandas Series or DataFrame, or a numpy array"


def several(source: Source | Sequence[Source]) -> list[Source]:
    """The recordings of several donors, or one."""
    return [*source] if isinstance(source, list | tuple) else [source]


def read(recording: Source, **options: Any) -> Recording:
    """Understand a recording: its columns, its times, its gaps.

    Args:
        recording: A path, a pandas Series or DataFrame, or a numpy array.
        options: How it is read, as for `plan`: `time`, `column`, `only`, `zone`, `missing_values`, `rows`, `period`,
            `gap`, `as_it_is`.

    Raises:
        QuestionError: it can be read in more than one way; its `options` are the answers.
        FuguError: it cannot be read; one line says what to do.
    """
    how = read_options(**options)
    loaded, _ = recorded(recording, how)
    if place_columns(loaded) is not None and how.column is None:
        traces = read_traces(loaded, how)
        return Recording(None, traces, traces.facts, loaded.name)
    readings = readings_of([recording if loaded.path is None else loaded], how)
    return Recording(readings, None, readings.facts[0], loaded.name)


def readings_of(sources: Sequence[Source], options: ReadOptions = AS_FOUND) -> Readings:
    """Read recordings as a plan does, one after another.

    Raises:
        FuguError: a recording does not fit: one line says what, where, and what to do.
        QuestionError: one can be read in more than one way.
    """
    every = []
    for loaded, timed in (recorded(source, options) for source in sources):
        readings = read_readings(loaded, options if timed else replace(options, period=None))
        every.append(readings if timed else readings._replace(moments=None))  # nobody knows the time of day
    return joined(every)


def recorded(source: Source, options: ReadOptions) -> tuple[Loaded, bool]:
    """A recording as a table; and whether its times are known, or only its period.

    Columns have the meaning that they have in a file. An index of times is a column `time`; without times, the period
    says how many seconds lie between any two rows.

    Raises:
        UsageError: it is no recording, or nobody knows its times.
        FuguError: it is of no form, or cannot be read.
    """
    match source:
        case Loaded():
            return source, True
        case str() | Path():
            try:
                return load(Path(source), options), True
            except OSError as error:
                raise FuguError(f"{source}: {cause(error)}") from None
        case np.ndarray():
            if source.ndim != 1:
                raise UsageError(f"an array of readings has one dimension, got {source.ndim}: give one column")
            return _table("the array", {options.column or "value": _cells(source.tolist(), "value")}, None, options)
    kind = {base.__name__ for base in type(source).__mro__ if base.__module__.partition(".")[0] == "pandas"}
    if "Series" in kind:
        name = "value" if source.name is None or time_rank(str(source.name)) is not None else str(source.name)
        return _table("the Series", {name: _cells(source, name)}, source.index, options)
    if "DataFrame" not in kind:
        raise UsageError(f"a recording is {_WANTED}, got {type(source).__name__}")
    names = [str(name) for name in source.columns]
    if again := [name for place, name in enumerate(names) if name in names[:place]]:
        raise UsageError(f"the DataFrame has two columns {again[0]!r}: rename or drop one of them")
    cells = {}
    for place, name in enumerate(names):
        try:
            is_time = name == options.time or time_rank(name) is not None
            cells[name] = _cells(source.iloc[:, place], name, is_time)
        except UsageError:
            if name == options.column or options.column not in names:
                raise
    return _table("the DataFrame", cells, source.index, options)


def _table(name: str, cells: dict[str, list[str]], index: Any, options: ReadOptions) -> tuple[Loaded, bool]:
    ranked = [(rank, cell) for cell in cells if (rank := time_rank(cell)) is not None]
    named = options.time or min(ranked, default=(0, None))[1]
    indexed = hasattr(index, "tz_convert") and type(index).__name__ == "DatetimeIndex"
    if indexed and named is not None and options.time is None:
        raise UsageError(f"{name} has times in its index and in column {named!r}: drop one, or name that by time=")
    timed = indexed or named is not None
    if not timed and options.period is None:
        raise UsageError(f"{name} has no times: give it an index of times (a DatetimeIndex), or period= in seconds")
    if indexed and named is None:
        named, cells = _TIME, {_TIME: _cells(index, _TIME, True), **cells}
    length = len(next(iter(cells.values()), []))
    if not timed:
        named, cells = _TIME, {_TIME: [repr(row * float(options.period or 1.0)) for row in range(length)], **cells}
    if not length:
        raise FuguError(f"{name} has no rows")
    changes = None if timed else False
    return Loaded(name, Table("a table in memory", cells, range(1, length + 1), time=named, changes=changes)), timed


def _cells(values: Iterable[Any], column: str, times: bool = False) -> list[str]:
    cells = []
    for row, value in enumerate(values, 1):
        cell = (_time_cell if times else _cell)(value)
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


def _time_cell(value: Any) -> str | None:
    """A time as text: a date in seconds; in ISO 8601 where it has no zone."""
    if isinstance(value, datetime) and type(value).__name__ != "NaTType":
        return repr(value.timestamp()) if value.tzinfo else value.isoformat()
    return _cell(value)
