"""Home Assistant's exports: history as CSV and as JSON, and statistics."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from itertools import chain
from typing import Any

from fugu.contract.errors import FuguError
from fugu.host.csv_file import moment
from fugu.recordings.columns import column_missing
from fugu.recordings.file import File
from fugu.recordings.forms.delimited import read_delimited
from fugu.recordings.forms.json_files import cell, table_of_items
from fugu.recordings.table import Form, RowFilter, Table

__all__ = ["HISTORY_EXPORT", "HISTORY_RESPONSE", "STATISTICS_EXPORT"]

_ENTITY, _STATE = "entity_id", "state"
_TIMES = ("last_changed", "last_updated")
_SERIES, _STARTS = "statistic_id", ("start", "start_ts")
_HOUR = 3600.0
_FEWEST_MEANS = 12
"""The least number of first rows at exact hours that are taken for means, if other rows follow."""


def _header(file: File) -> list[str]:
    """Return the column names in the first line of a file, in small letters."""
    first_line = next(iter(file.first_lines), "")
    sep = next((sep for sep in "\t;" if sep in first_line), ",")
    return [name.strip().strip('"').lower() for name in first_line.split(sep)]


def _read_named(file: File, names: Collection[str], min_cells: int | None = None) -> Table:
    """Read a delimited table with column names in small letters. FuguError: it lacks one of the columns `names`."""
    table = read_delimited(file, min_cells)
    columns = {name.lower(): cells for name, cells in table.columns.items()}
    if missing_names := [name for name in names if name not in columns]:
        raise column_missing(table, missing_names[0])
    return table._replace(columns=columns, plain=table.plain and {*names} <= table.columns.keys())


def _is_history(file: File) -> bool:
    names = _header(file)
    return {_ENTITY, _STATE} <= {*names} and any(time in names for time in _TIMES) and b"," in file.head


def _read_history(file: File, row_filter: RowFilter) -> Table:
    """Read rows of any length that have an entity, a state and a time."""
    names = _header(file)
    time_column = next(name for name in _TIMES if name in names)
    columns = (_ENTITY, _STATE, time_column)
    table = _read_named(file, columns, 1 + max(map(names.index, columns)))
    table = table._replace(columns={name: table.columns[name] for name in columns})
    if (entity_wanted := row_filter.get(_ENTITY)) is not None:
        table = table.with_rows([row for row, entity in enumerate(table.columns[_ENTITY]) if entity == entity_wanted])
        if not table.lines:
            raise FuguError(f"{file.name} has no rows")
    return _change_table(table._replace(form="Home Assistant's history.csv"), time_column)


HISTORY_EXPORT = Form(_is_history, _read_history)
"""The file that the history page downloads; attributes in some rows make them longer."""


def _is_response(file: File) -> bool:
    return re.match(rb"\s*\[(\s*\[\s*\]\s*,)*\s*\[\s*\{", file.head) is not None and b'"state"' in file.head


def _read_response(file: File, row_filter: RowFilter) -> Table:
    """Read lists of states. In a minimal answer, only the first state of a list names the entity."""
    entity_wanted = row_filter.get(_ENTITY)

    def states(elements: Iterator[Any]) -> Iterator[tuple[int, Any]]:
        entity = ""
        for element_number, state in enumerate(elements, 1):
            entity = cell(state.get(_ENTITY)) or entity
            time = state.get(_TIMES[0]) or state.get(_TIMES[1])
            if entity_wanted in (None, entity):
                yield element_number, {_ENTITY: entity, _STATE: cell(state.get(_STATE)), _TIMES[0]: cell(time)}

    table = table_of_items("Home Assistant's answer of /api/history/period", file, states, is_nested=True)
    return _change_table(table, _TIMES[0])


HISTORY_RESPONSE = Form(_is_response, _read_response)
"""The answer of the REST interface at /api/history/period: a list of states for each entity."""


def _read_statistics(file: File, _row_filter: RowFilter) -> Table:
    """Read statistics of hours or five minutes; the value is the mean, else the state or the sum."""
    time = next(name for name in _STARTS if name in _header(file))
    table = _read_named(file, (_SERIES, time))
    value_column = next((name for name in ("mean", "state", "sum") if any(table.columns.get(name, ()))), None)
    table_fields = {"form": "Home Assistant's statistics", "time": time, "value": value_column, "keys": (_SERIES,)}
    return table._replace(**table_fields, changes=False, plain=False)  # type: ignore[arg-type]


STATISTICS_EXPORT = Form(
    lambda file: _SERIES in (names := _header(file)) and bool({*_STARTS} & {*names}), _read_statistics
)


def _change_table(table: Table, time_column: str) -> Table:
    """Make a table of changes, without the hourly means of long-term statistics before an entity's changes."""
    table = table._replace(time=time_column, value=_STATE, keys=(_ENTITY,), changes=True)
    means: dict[str, list[int]] = {entity: [] for entity in {*table.columns[_ENTITY]}}
    pending = {*means}
    for row, (entity, time_cell) in enumerate(zip(table.columns[_ENTITY], table.columns[time_column], strict=True)):
        if entity in pending and moment(time_cell) % _HOUR == 0.0:
            means[entity].append(row)
        elif entity in pending:
            pending.remove(entity)
            if not pending:
                break
    mean_rows = [rows for entity, rows in means.items() if entity not in pending and len(rows) >= _FEWEST_MEANS]
    removed_rows = {*chain.from_iterable(mean_rows)}
    if not removed_rows:
        return table
    note = f"{len(removed_rows)} means of hours before the first change were left out"
    # an agent would begin with the means
    return table.without_rows(removed_rows)._replace(plain=False, notes=(*table.notes, note))
