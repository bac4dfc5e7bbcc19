"""Home Assistant's exports: history.csv, the same as JSON, and statistics."""

from __future__ import annotations

import csv
import math
import re
from collections import defaultdict
from collections.abc import Iterator
from itertools import takewhile

from fugu.host.csv_file import moment
from fugu.recordings.errors import RecordingError
from fugu.recordings.file import File
from fugu.recordings.forms.delimited import DELIMITED, UnevenError
from fugu.recordings.forms.json_text import cell, items
from fugu.recordings.table import Only, Table, table_of

__all__ = ["HistoryExport", "HistoryResponse", "StatisticsExport"]

_ENTITY, _STATE = "entity_id", "state"
_TIMES = ("last_changed", "last_updated")
_HOUR = 3600.0
_FEWEST_MEANS = 12
"""Rows at exact hours that are means, if others follow that are not."""


class HistoryExport:
    """The file that the page of the history downloads: entity, state and time, and attributes that some rows have."""

    def sniff(self, head: bytes, name: str) -> bool:
        """Return whether its header is that of the export."""
        names = _names(head)
        return {_ENTITY, _STATE} <= {*names} and any(time in names for time in _TIMES) and b"," in head

    def read(self, file: File, only: Only) -> Table:
        """Read rows of any length that have an entity, a state and a time; leave out means of hours before changes."""
        try:
            table, short = DELIMITED.read(file, only), 0
            columns = {name.lower(): cells for name, cells in table.columns.items()}
            time = next(name for name in _TIMES if name in columns)
            plain = table.plain and {_ENTITY, _STATE, time} <= table.columns.keys()
            table = table._replace(columns={name: columns[name] for name in (_ENTITY, _STATE, time)}, plain=plain)
        except UnevenError:
            table, time, short = _of_any_length(file)
        if (wanted := only.get(_ENTITY)) is not None:
            table = table.at([row for row, entity in enumerate(table.columns[_ENTITY]) if entity == wanted])
            if not table.lines:
                raise RecordingError(f"{file.name} has no rows")
        notes = (f"{short} rows without a time were left out",) if short else ()
        meaning = {"form": "Home Assistant's history.csv", "time": time, "value": _STATE, "keys": (_ENTITY,)}
        return _without_means(table._replace(**meaning, changes=True, notes=notes), time)  # type: ignore[arg-type]


def _of_any_length(file: File) -> tuple[Table, str, int]:
    """Rows that are longer or shorter than the header, the column of times, and how many rows have none."""
    short = 0
    with file.text() as text:
        rows = csv.reader(text)
        header = [cell.strip().lower() for cell in next(rows)]
        time = next(name for name in _TIMES if name in header)
        places = [header.index(name) for name in (_ENTITY, _STATE, time)]

        def cells() -> Iterator[tuple[int, list[str]]]:
            nonlocal short
            for row in rows:
                if len(row) > max(places):
                    yield rows.line_num, [row[place].strip() for place in places]
                else:
                    short += bool(row)

        try:
            return table_of("", file, [_ENTITY, _STATE, time], cells()), time, short
        except csv.Error:
            raise RecordingError(f"{file.name} is a broken history.csv: line {rows.line_num} is no row") from None


class HistoryResponse:
    """The answer of the REST interface at /api/history/period: a list of states for each entity."""

    form = "Home Assistant's answer of /api/history/period"

    def sniff(self, head: bytes, name: str) -> bool:
        """Return whether it is a list of lists of states."""
        return re.match(rb"\s*\[(\s*\[\s*\]\s*,)*\s*\[\s*\{", head) is not None and b'"state"' in head

    def read(self, file: File, only: Only) -> Table:
        """Read the states; a minimal answer names the entity in the first state of its list alone."""
        wanted = only.get(_ENTITY)

        def rows() -> Iterator[tuple[int, list[str]]]:
            entity = ""
            with file.text() as text:
                try:
                    for number, state in enumerate(items(text, nested=True), 1):
                        entity = cell(state.get(_ENTITY)) or entity
                        times = (cell(state.get(time)) for time in _TIMES)
                        if wanted in (None, entity):
                            yield number, [entity, cell(state.get(_STATE)), next(filter(None, times), "")]
                except (ValueError, AttributeError):
                    raise RecordingError(
                        f"{file.name} looks like {self.form}, but its JSON breaks off or is broken: load it again"
                    ) from None

        table = table_of(self.form, file, [_ENTITY, _STATE, _TIMES[0]], rows(), where="item")
        meaning = {"time": _TIMES[0], "value": _STATE, "keys": (_ENTITY,), "changes": True}
        return _without_means(table._replace(**meaning), _TIMES[0])  # type: ignore[arg-type]


class StatisticsExport:
    """Means, minima and maxima of hours or five minutes, a row each, told apart by `statistic_id`."""

    def sniff(self, head: bytes, name: str) -> bool:
        """Return whether its header is that of the export."""
        names = _names(head)
        return "statistic_id" in names and any(name in names for name in ("start", "start_ts"))

    def read(self, file: File, only: Only) -> Table:
        """Read the rows; of their numbers the mean is the value, else the state or the sum."""
        table = DELIMITED.read(file, only)
        value = next((name for name in ("mean", "state", "sum") if any(table.columns.get(name, ()))), None)
        time = next(name for name in ("start", "start_ts") if name in table.columns)
        meaning = {"form": "Home Assistant's statistics", "time": time, "value": value, "keys": ("statistic_id",)}
        return table._replace(**meaning, changes=False, plain=False)  # type: ignore[arg-type]


def _names(head: bytes) -> list[str]:
    first = head.partition(b"\n")[0].decode(errors="replace")
    sign = next((sign for sign in "\t;" if sign in first), ",")
    return [cell.strip().strip('"').lower() for cell in first.split(sign)]


def _without_means(table: Table, time: str) -> Table:
    """Leave out means of hours that an entity has before its changes, as long-term statistics give them."""
    places: dict[str, list[int]] = defaultdict(list)
    for place, entity in enumerate(table.columns[_ENTITY]):
        places[entity].append(place)
    out: set[int] = set()
    for own in places.values():
        means = [*takewhile(lambda place: _at_hour(table.columns[time][place]), own)]
        if _FEWEST_MEANS <= len(means) < len(own):
            out |= {*means}
    if not out:
        return table
    rest = [place for place in range(len(table.lines)) if place not in out]
    note = f"{len(out)} means of hours before the first change were left out"
    return table.at(rest)._replace(plain=False, notes=(*table.notes, note))  # an agent would begin with the means


def _at_hour(cell: str) -> bool:
    at = moment(cell)
    return not math.isnan(at) and at % _HOUR == 0.0
