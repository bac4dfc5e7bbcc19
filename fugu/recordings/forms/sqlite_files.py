"""SQLite databases of known programs, opened without writing files beside them or running their code."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any
from urllib.parse import quote

from fugu.contract.errors import FuguError
from fugu.recordings.file import File
from fugu.recordings.table import Block, Form, RowFilter, Table, begins, chunks, table_of

__all__ = ["SQLITE"]

_MOST_CELL = 1 << 20
"""The most bytes of a cell or a statement."""
_ENTITY, _STATE, _UPDATED = "entity_id", "state", "last_updated"
_SAMPLES = re.compile(r"[A-Z0-9_]+_SAMPLE")
_TIME, _DEVICE, _HEART = "TIMESTAMP", "DEVICE_ID", "HEART_RATE"
_WANTED = (_HEART, "STEPS", "RAW_INTENSITY", "STRESS", "SPO2", "TEMPERATURE", "WEIGHT_KG")
_MEASURED = {_HEART: f"CASE WHEN {_HEART} NOT IN (-1, 0, 255) THEN {_HEART} END"}
"""Expressions without the numbers that mean that a band did not measure, or was not worn."""


def _read_database(file: File, row_filter: RowFilter) -> Table:
    """Read the readings of a known program's database."""
    with _open_database(file) as database:
        # Views may run anything, and are no tables.
        name_rows = database.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND rootpage > 0")
        tables = sorted(str(name) for (name,) in name_rows)
        if "states" in tables and {"recorder_runs", "states_meta"} & {*tables}:
            return _read_recorder(database, file, row_filter)
        samples = [table for table in tables if _SAMPLES.fullmatch(table)]
        if "DEVICE" in tables and samples:
            return _read_gadgetbridge(database, samples, file, row_filter)
    raise FuguError(
        f"{file.name} is a SQLite database of a program that is not known: export a table of it by "
        "sqlite3 -header -csv FILE 'SELECT ...' > mine.csv"
    )


SQLITE = Form(begins(b"SQLite format 3\0"), _read_database)
"""A database of Home Assistant's recorder or of Gadgetbridge."""


@contextmanager
def _open_database(file: File) -> Iterator[sqlite3.Connection]:
    """Open a database read-only and immutable: no lock, no journal, no temporary file, no code of its schema.

    Raises:
        FuguError: the database is zipped, breaks off, or cannot be read.
    """
    if file.zipped:
        raise FuguError(f"{file.name} is a zipped SQLite database: unpack it by gunzip")
    page_size, page_count = int.from_bytes(file.head[16:18]), int.from_bytes(file.head[28:32])
    if (
        file.path.stat().st_size < (1 << 16 if page_size == 1 else page_size) * page_count
    ):  # what is absent would be read as zeros
        raise FuguError(f"{file.name} is a SQLite database that breaks off: copy it while nothing writes to it")
    try:
        uri = f"file:{quote(str(file.path.resolve()))}?mode=ro&immutable=1"
        with closing(sqlite3.connect(uri, uri=True)) as database:
            database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _MOST_CELL)
            for pragma in ("trusted_schema = OFF", "query_only = ON", "temp_store = MEMORY"):
                database.execute(f"PRAGMA {pragma}")
            yield database
    except (sqlite3.Error, OverflowError, UnicodeDecodeError) as error:
        error_name = type(error).__name__
        raise FuguError(
            f"{file.name} is a SQLite database that cannot be read ({error_name}): copy it while nothing writes to it"
        ) from None


def _columns(database: sqlite3.Connection, table: str) -> set[str]:
    """Return the names of the columns of a table."""
    return {row[1] for row in database.execute(f"PRAGMA table_info({table})")}


def _texts(cells: Sequence[Any]) -> Sequence[str]:
    """Return cells as texts, with numbers spelled exactly."""
    return ["" if cell is None else cell if isinstance(cell, str) else repr(cell) for cell in cells]


def _read_recorder(database: sqlite3.Connection, file: File, row_filter: RowFilter) -> Table:
    """Read the states that Home Assistant's recorder wrote, of one entity or of all entities.

    Names of entities are in the same table, or in one of their own as since 2023.
    """
    columns, entity_wanted = _columns(database, "states"), row_filter.get(_ENTITY)
    time = next((name for name in (f"{_UPDATED}_ts", _UPDATED) if name in columns), None)
    has_names = _columns(database, "states_meta") >= {"metadata_id", _ENTITY}
    entity_column = "metadata_id" if has_names else _ENTITY
    if time is None or not {_STATE, entity_column} <= columns:
        raise FuguError(f"{file.name} is a recorder's database of a version that is not known: export history.csv")
    names = dict(database.execute(f"SELECT metadata_id, {_ENTITY} FROM states_meta")) if has_names else {}
    condition, query_values = f"{entity_column} IS NOT NULL", list[Any]()
    if entity_wanted is not None:
        query_values = [key for key, name in names.items() if name == entity_wanted] if has_names else [entity_wanted]
        condition = f"{entity_column} IN ({', '.join('?' * len(query_values))})"
    clause = f"FROM states WHERE {condition} AND {time}"
    (untimed_rows,) = database.execute(f"SELECT COUNT(*) {clause} IS NULL", query_values).fetchone()
    state_rows = database.execute(f"SELECT rowid, {entity_column}, state, {time} {clause} IS NOT NULL", query_values)
    notes = (f"{untimed_rows} rows without a time were left out",) if untimed_rows else ()
    zone_suffix = "" if time.endswith("_ts") else "+00:00"  # times that are texts are UTC, without saying so

    def blocks() -> Iterator[Block]:
        for row_chunk in chunks(state_rows):
            row_numbers, entity_keys, states, times = zip(*row_chunk, strict=True)
            entities = [*map(names.get, entity_keys)] if has_names else entity_keys
            moments = [time + zone_suffix for time in _texts(times)] if zone_suffix else _texts(times)
            yield row_numbers, {_ENTITY: _texts(entities), _STATE: _texts(states), _UPDATED: moments}

    table_fields = {"time": _UPDATED, "value": _STATE, "keys": (_ENTITY,), "changes": True, "where": "row"}
    return table_of("Home Assistant's recorder", file, blocks(), notes=notes, **table_fields)


def _read_gadgetbridge(database: sqlite3.Connection, samples: list[str], file: File, row_filter: RowFilter) -> Table:
    """Read the samples of watches and bands from the table of each kind of device."""
    tables = {table: _columns(database, table) for table in samples if row_filter.get("kind") in (None, table.lower())}
    tables = {table: columns & {*_WANTED} for table, columns in tables.items() if {_TIME, _DEVICE} <= columns}
    if not any(tables.values()):
        raise FuguError(f"{file.name} is Gadgetbridge's database, without samples that are known")

    def blocks() -> Iterator[Block]:
        rows_before = 0
        for table, columns in tables.items():
            names = [name for name in _WANTED if name in columns]
            selected = ", ".join((_TIME, _DEVICE, *(_MEASURED.get(name, name) for name in names)))
            for row_chunk in chunks(database.execute(f"SELECT {selected} FROM {table}")):
                times, devices, *measured_columns = map(_texts, zip(*row_chunk, strict=True))
                cells = dict(zip(map(str.lower, names), measured_columns, strict=True))
                kind_cells = [table.lower()] * len(row_chunk)
                yield (
                    range(rows_before + 1, rows_before + len(row_chunk) + 1),
                    {_TIME.lower(): times, "kind": kind_cells, "device": devices} | cells,
                )
                rows_before += len(row_chunk)

    table_fields = {"time": _TIME.lower(), "keys": ("kind", "device"), "where": "row", "changes": False}
    note = "heart rates of 0, 255 and -1 are none: the band did not measure"
    return table_of("Gadgetbridge's database", file, blocks(), notes=(note,), **table_fields)
