"""Takes all that a store knows of a device into another store, and out of the first.

Every table that has a column `stream` or `device` is of devices, but for what a fleet has once. Rows of the first kind
name a stream by its number, which is another one in the other store. What is in the journal has to be sealed before.
Either store may be in a file or on a server.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from gateway.database import Database
from gateway.service.store.errors import StoreError

__all__ = ["Table", "copy_device", "devices", "digest", "knows", "remove_device", "tables"]

_OF_THE_FLEET = {"released", "discovered"}
_GIVEN = {"serial"}
"""Columns that a store numbers by itself, in the order in which rows are put there."""
_TABLE = re.compile(r"CREATE TABLE (\w+) \((.*?)\)\s*(?:WITHOUT ROWID)?;", re.DOTALL)
_COLUMN = re.compile(r"\s*([a-z_]+) (?:INTEGER|REAL|TEXT|BLOB)")


class Table(NamedTuple):
    """A table of devices; `key` is the column that says whose a row is."""

    name: str
    key: str
    columns: tuple[str, ...]


def tables(schema: str) -> tuple[Table, ...]:
    """The tables of devices among those that statements make."""
    found = []
    for name, body in _TABLE.findall(schema):
        columns = tuple(match[1] for part in body.split(",") if (match := _COLUMN.match(part)))
        key = next((one for one in ("device", "stream") if one in columns), None)
        if key is not None and name != "streams" and name not in _OF_THE_FLEET:
            found.append(Table(name, key, columns))
    return tuple(found)


def devices(db: Database, tables: Sequence[Table]) -> list[str]:
    """The devices that a store knows anything of."""
    found = {row[0] for row in db.execute("SELECT DISTINCT device FROM streams")}
    for table in tables:
        if table.key == "device":
            found |= {row[0] for row in db.execute(f"SELECT DISTINCT device FROM {table.name}")}
    return sorted(found)


def knows(db: Database, device: str, tables: Sequence[Table]) -> bool:
    """Whether a store knows anything of a device."""
    names = ["streams", *(table.name for table in tables if table.key == "device")]
    return any(db.execute(f"SELECT 1 FROM {name} WHERE device=? LIMIT 1", (device,)).fetchone() for name in names)


def copy_device(source: Database, target: Database, device: str, tables: Sequence[Table]) -> None:
    """Copy a device in one transaction, and read what was written; nothing is done if it is there already.

    Raises:
        StoreError: the other store has something else of the device, or has not taken all of it.
        DatabaseError: a store cannot be used.
    """
    if source.execute("SELECT 1 FROM journal LIMIT 1").fetchone():
        raise StoreError(f"{device} cannot be moved: there is more of it in the store's journal")
    wanted = digest(source, device, tables)
    with target.transaction():
        if not knows(target, device, tables):
            numbers = {old: _number(target, device, name, begin) for old, name, begin in _streams(source, device)}
            for table in tables:
                columns = [name for name in table.columns if name not in _GIVEN]
                query = f"INSERT INTO {table.name} ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})"
                if table.key == "device":
                    target.executemany(query, _rows(source, table, columns, device))
                else:
                    place = columns.index("stream")
                    for old, new in numbers.items():
                        rows = _rows(source, table, columns, old)
                        target.executemany(query, ((*row[:place], new, *row[place + 1 :]) for row in rows))
        if digest(target, device, tables) != wanted:
            raise StoreError(f"two of the stores know something of {device}, and not the same: move one of them away")
        (reserved,) = source.execute("SELECT reserved FROM watermarks").fetchone()
        target.execute("UPDATE watermarks SET reserved=? WHERE reserved<?", (reserved, reserved))


def remove_device(db: Database, device: str, tables: Sequence[Table]) -> None:
    """Remove all that a store knows of a device."""
    with db.transaction():
        numbers = [(number,) for number, *_ in _streams(db, device)]
        for table in tables:
            rows = [(device,)] if table.key == "device" else numbers
            db.executemany(f"DELETE FROM {table.name} WHERE {table.key}=?", rows)
        db.execute("DELETE FROM streams WHERE device=?", (device,))


def _streams(db: Database, device: str) -> list[tuple[int, str, int]]:
    """Number, name and `begin` of each sequence of a device, in the order of their names."""
    found = db.execute("SELECT id, stream, begins FROM streams WHERE device=?", (device,)).fetchall()
    return sorted(found, key=lambda row: str(row[1]))  # not by the engine: each has an order of its own


def _number(db: Database, device: str, stream: str, begin: int) -> int:
    db.execute("INSERT INTO streams (device, stream, begins) VALUES (?, ?, ?)", (device, stream, begin))
    query = "SELECT id FROM streams WHERE device=? AND stream=?"
    return int(db.execute(query, (device, stream)).fetchone()[0])


def _rows(db: Database, table: Table, columns: Sequence[str], key: int | str) -> Iterator[tuple[object, ...]]:
    """The rows of a device or of a stream, as they were put there if the store numbers them."""
    order = "".join(f" ORDER BY {name}" for name in table.columns if name in _GIVEN)
    yield from db.execute(f"SELECT {', '.join(columns)} FROM {table.name} WHERE {table.key}=?{order}", (key,))


def digest(db: Database, device: str, tables: Sequence[Table]) -> bytes:
    """Of all that a store knows of a device, whatever the numbers of its streams, the order of rows and the engine."""
    found = hashlib.sha256()
    streams = _streams(db, device)
    for table in tables:
        columns = [name for name in table.columns if name not in _GIVEN | {"stream" if table.key == "stream" else ""}]
        for key in [device] if table.key == "device" else [number for number, *_ in streams]:
            found.update(repr((table.name, columns)).encode())
            for row in sorted(hashlib.sha256(repr(row).encode()).digest() for row in _rows(db, table, columns, key)):
                found.update(row)
    found.update(repr([rest for _, *rest in streams]).encode())
    return found.digest()
