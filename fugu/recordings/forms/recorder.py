"""The database of Home Assistant's recorder, `home-assistant_v2.db`."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any

from fugu.recordings.errors import RecordingError
from fugu.recordings.file import File
from fugu.recordings.table import BLOCK, Block, Only, Table, table_of_blocks

__all__ = ["Recorder"]

_ENTITY, _STATE, _TIME = "entity_id", "state", "last_updated"


class Recorder:
    """States of entities, with their names in the same table, or in one of their own as since 2023."""

    def knows(self, tables: list[str]) -> bool:
        """Return whether it has states, and runs of the recorder."""
        return {"states", "recorder_runs"} <= {*tables} or {"states", "states_meta"} <= {*tables}

    def read(self, database: sqlite3.Connection, file: File, only: Only) -> Table:
        """Read the states of an entity, or of all, as they were written."""
        columns = {row[1] for row in database.execute("PRAGMA table_info(states)")}
        time = next((name for name in (f"{_TIME}_ts", _TIME) if name in columns), None)
        named = {row[1] for row in database.execute("PRAGMA table_info(states_meta)")} >= {"metadata_id", _ENTITY}
        if time is None or _STATE not in columns or not ("metadata_id" in columns if named else _ENTITY in columns):
            raise RecordingError(
                f"{file.name} is a recorder's database of a version that is not known: export history.csv"
            )
        entity = f"states_meta.{_ENTITY}" if named else f"states.{_ENTITY}"
        join = " JOIN states_meta ON states.metadata_id = states_meta.metadata_id" if named else ""
        wanted = only.get(_ENTITY)
        where, values = ("", ()) if wanted is None else (f" WHERE {entity} = ?", (wanted,))
        rows = database.execute(
            f"SELECT states.rowid, {entity}, states.state, states.{time} FROM states{join}{where}",
            values,
        )
        end = "" if time.endswith("_ts") else "+00:00"  # times that are texts are UTC, without saying so
        blocks = (_columns(block, end) for block in iter(lambda: rows.fetchmany(BLOCK), []))
        meaning = {"time": _TIME, "value": _STATE, "keys": (_ENTITY,), "changes": True, "where": "row"}
        return table_of_blocks("Home Assistant's recorder", file, [_ENTITY, _STATE, _TIME], blocks, **meaning)


def _columns(rows: list[Any], end: str) -> Block:
    numbers, *columns = zip(*rows, strict=True)
    names, states, times = map(_texts, columns)
    return numbers, (names, states, [time + end for time in times] if end else times)


def _texts(cells: Sequence[Any]) -> Sequence[str]:
    """Cells as texts; numbers are spelled exactly."""
    match {*map(type, cells)}:
        case kinds if kinds == {str}:
            return cells
        case kinds if kinds == {float}:
            return [*map(repr, cells)]
    return ["" if cell is None else cell if isinstance(cell, str) else repr(cell) for cell in cells]
