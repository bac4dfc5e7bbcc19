"""Read recordings from files, or from pandas and numpy objects as if they were files."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np

from fugu.contract.errors import FuguError, UsageError, cause
from fugu.library.keywords import READ_OPTIONS, python_call
from fugu.recordings.columns import time_rank
from fugu.recordings.options import ReadOptions, read_options
from fugu.recordings.places import place_columns, read_traces
from fugu.recordings.readings import AS_FOUND, Readings, join_readings, load, read_readings
from fugu.recordings.summary import Recording
from fugu.recordings.table import Table

__all__ = ["Source", "read", "read_recording", "readings_of", "recording_table", "source_list"]

Source = Any
"""A path of a file, a pandas Series or DataFrame, or a numpy array; `Any`, so that pandas need not be loaded."""

_TIME = "time"
_FORMS = "the path of a file, a pandas Series or DataFrame, or a numpy array"


def source_list(source: Source | Sequence[Source]) -> list[Source]:
    """Return recordings as a list; a single recording becomes a list of itself."""
    return [*source] if isinstance(source, list | tuple) else [source]


def read(recording: Source, **options: Any) -> Recording:
    """Read a recording, and report its columns, times and gaps.

    Args:
        recording: A path, a pandas Series or DataFrame, or a numpy array.
        options: How it is read, as for `plan`: `time`, `column`, `only`, `zone`, `missing_values`, `rows`, `period`,
            `gap`, `as_it_is`.

    Raises:
        QuestionError: the recording can be read in more than one way; its `options` are the answers.
        FuguError: the recording cannot be read; one line says what to do.
    """
    with python_call(read, options, READ_OPTIONS):
        return read_recording(recording, read_options(**options))


def read_recording(recording: Source, options: ReadOptions = AS_FOUND) -> Recording:
    """Read the readings or the places of a recording. Errors as for `read`."""
    table = recording_table(recording, options)
    if place_columns(table) is not None and options.column is None:
        traces = read_traces(table, options)
        return Recording(None, traces, traces.facts, traces.source)
    readings = readings_of([table], options)
    return Recording(readings, None, readings.facts[0], readings.source)


def readings_of(sources: Sequence[Source], options: ReadOptions = AS_FOUND) -> Readings:
    """Read recordings as `plan` does, and concatenate their readings. Errors as for `read`."""
    all_readings = []
    for table in (recording_table(source, options) for source in sources):
        readings = read_readings(table, options if table.has_times else replace(options, period=None))
        # A recording without times has no times of day.
        all_readings.append(readings if table.has_times else readings._replace(moments=None))
    return join_readings(all_readings)


def recording_table(source: Source, options: ReadOptions) -> Table:
    """Load a recording as a table; return a table as it is.

    Columns have the same meaning as in a file. An index of times becomes a column `time`; without times, the period is
    the number of seconds between any two rows.

    UsageError: the source is no recording, or has neither times nor a period. FuguError: the file has no known form, or
    cannot be read.
    """
    match source:
        case Table():
            return source
        case str() | Path():
            try:
                return load(Path(source), options)
            except OSError as error:
                raise FuguError(f"{source}: {cause(error)}") from None
        case np.ndarray():
            if source.ndim != 1:
                raise UsageError(f"an array of readings has one dimension, got {source.ndim}: give one column")
            return _table_of("the array", {options.column or "value": _texts(source.tolist(), "value")}, None, options)
    class_names = {base.__name__ for base in type(source).__mro__ if base.__module__.partition(".")[0] == "pandas"}
    if "Series" in class_names:
        column_name = "value" if source.name is None or time_rank(str(source.name)) is not None else str(source.name)
        return _table_of("the Series", {column_name: _texts(source, column_name)}, source.index, options)
    if "DataFrame" not in class_names:
        raise UsageError(f"a recording is {_FORMS}, got {type(source).__name__}")
    column_names = [str(name) for name in source.columns]
    if repeated_names := [name for index, name in enumerate(column_names) if name in column_names[:index]]:
        raise UsageError(f"the DataFrame has two columns {repeated_names[0]!r}: rename or drop one of them")
    columns = {}
    for index, column_name in enumerate(column_names):
        try:
            is_time = column_name == options.time or time_rank(column_name) is not None
            columns[column_name] = _texts(source.iloc[:, index], column_name, is_time)
        except UsageError:
            if column_name == options.column or options.column not in column_names:
                raise
    return _table_of("the DataFrame", columns, source.index, options)


def _table_of(label: str, columns: dict[str, list[str]], index: Any, options: ReadOptions) -> Table:
    time_columns = [(rank, column_name) for column_name in columns if (rank := time_rank(column_name)) is not None]
    time_name = options.time or min(time_columns, default=(0, None))[1]
    is_dated = hasattr(index, "tz_convert") and type(index).__name__ == "DatetimeIndex"
    if is_dated and time_name is not None and options.time is None:
        raise UsageError(f"{label} has times in its index and in column {time_name!r}: drop one, or name that by time=")
    has_times = is_dated or time_name is not None
    if not has_times and options.period is None:
        raise UsageError(f"{label} has no times: give it an index of times (a DatetimeIndex), or period= in seconds")
    if is_dated and time_name is None:
        time_name, columns = _TIME, {_TIME: _texts(index, _TIME, True), **columns}
    length = len(next(iter(columns.values()), []))
    if not has_times:
        moments = [repr(row * float(options.period or 1.0)) for row in range(length)]
        time_name, columns = _TIME, {_TIME: moments, **columns}
    if not length:
        raise FuguError(f"{label} has no rows")
    changes = None if has_times else False
    lines = range(1, length + 1)
    return Table(label, "a table in memory", columns, lines, time=time_name, changes=changes, has_times=has_times)


def _texts(column_values: Iterable[Any], column_name: str, are_times: bool = False) -> list[str]:
    cells = []
    for line_number, value in enumerate(column_values, 1):
        cell = (_time_text if are_times else _cell_text)(value)
        if cell is None:
            raise UsageError(
                f"line {line_number}, column {column_name} is of type {type(value).__name__}, no number, word or truth "
                "value: choose another column by column="
            )
        cells.append(cell)
    return cells


def _cell_text(value: Any) -> str | None:
    """Write a reading as text: "" for None, NA and NaT, "nan" for NaN; `None` if no reading has the value's type."""
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, bool | np.bool_):
        return str(int(value))
    return repr(float(value)) if isinstance(value, int | float | Decimal | np.integer | np.floating) else None


def _time_text(value: Any) -> str | None:
    """Write a time as text: Unix seconds if it has a zone, ISO 8601 if not; other values as readings."""
    if isinstance(value, datetime) and type(value).__name__ != "NaTType":
        return repr(value.timestamp()) if value.tzinfo else value.isoformat()
    return _cell_text(value)
