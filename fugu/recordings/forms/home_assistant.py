"""Home Assistant's exports: history.csv, and statistics."""

from __future__ import annotations

import csv
import math
from collections import defaultdict
from collections.abc import Iterator
from itertools import takewhile

from fugu.host.csv_file import moment
from fugu.recordings.errors import RecordingError
from fugu.recordings.file import File
from fugu.recordings.table import Only, Table, table_of

__all__ = ["HistoryExport", "StatisticsExport"]

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
        with file.text() as text:
            rows = csv.reader(text)
            header = [cell.strip().lower() for cell in next(rows)]
            time = next(name for name in _TIMES if name in header)
            places = [header.index(name) for name in (_ENTITY, _STATE, time)]
            wanted, short, uneven = only.get(_ENTITY), 0, False

            def cells() -> Iterator[tuple[int, list[str]]]:
                nonlocal short, uneven
                for row in rows:
                    uneven |= len(row) not in (0, len(header))
                    if len(row) <= max(places):
                        short += bool(row)
                    elif wanted is None or row[places[0]] == wanted:
                        yield rows.line_num, [row[place].strip() for place in places]

            try:
                table = table_of("Home Assistant's history.csv", file, [_ENTITY, _STATE, time], cells())
            except csv.Error:
                raise RecordingError(f"{file.name} is a broken history.csv: line {rows.line_num} is no row") from None
        notes = (f"{short} rows without a time were left out",) if short else ()
        meaning = {"time": time, "value": _STATE, "keys": (_ENTITY,), "changes": True, "notes": notes}
        plain = not uneven and file.in_utf8 and file.zipped == (file.path.suffix == ".gz")
        return _without_means(table._replace(**meaning), time, plain=plain)  # type: ignore[arg-type]


class StatisticsExport:
    """Means, minima and maxima of hours or five minutes, a row each, told apart by `statistic_id`."""

    def sniff(self, head: bytes, name: str) -> bool:
        """Return whether its header is that of the export."""
        names = _names(head)
        return "statistic_id" in names and any(name in names for name in ("start", "start_ts"))

    def read(self, file: File, only: Only) -> Table:
        """Read the rows; of their numbers the mean is the value, else the state or the sum."""
        with file.text() as text:
            first = text.readline()
            sign = next(sign for sign in "\t;," if sign in first)
            header = [cell.strip().strip('"') for cell in first.split(sign)]
            rows = csv.reader(text, delimiter=sign)

            def cells() -> Iterator[tuple[int, list[str]]]:
                for row in rows:
                    if len(row) == len(header):
                        yield rows.line_num + 1, [cell.strip() for cell in row]
                    elif row:
                        line = rows.line_num + 1
                        raise RecordingError(f"{file.name}: line {line} has {len(row)} columns, not {len(header)}")

            table = table_of("Home Assistant's statistics", file, header, cells(), keys=("statistic_id",))
        value = next((name for name in ("mean", "state", "sum") if any(table.columns.get(name, ()))), None)
        time = next(name for name in ("start", "start_ts") if name in header)
        return table._replace(time=time, value=value, changes=False)


def _names(head: bytes) -> list[str]:
    first = head.partition(b"\n")[0].decode(errors="replace")
    sign = next((sign for sign in "\t;" if sign in first), ",")
    return [cell.strip().strip('"').lower() for cell in first.split(sign)]


def _without_means(table: Table, time: str, *, plain: bool) -> Table:
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
        return table._replace(plain=plain)
    rest = [place for place in range(len(table.lines)) if place not in out]
    columns = {name: [cells[place] for place in rest] for name, cells in table.columns.items()}
    note = f"{len(out)} means of hours before the first change were left out"
    lines = [table.lines[place] for place in rest]  # no longer plain: an agent would begin with them
    return table._replace(columns=columns, lines=lines, notes=(*table.notes, note))


def _at_hour(cell: str) -> bool:
    at = moment(cell)
    return not math.isnan(at) and at % _HOUR == 0.0
