"""Takes all that a store knows of a device into another store, and out of the first.

Every table that has a column `stream` or `device` is of devices, but for what a fleet has once. Rows of the first kind
name a stream by its number, which is another one in the other store. What is in the journal has to be sealed before.
For stores in files; a store that several shards share has nothing to move.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import NamedTuple

from gateway.service.store.database import Database, StoreError

__all__ = ["copy_device", "devices", "remove_device"]

_OF_THE_FLEET = {"released", "discovered"}
_GIVEN = {"serial"}
"""Columns that a store numbers by itself."""


class _Table(NamedTuple):
    """A table of devices; `key` is the column that says whose a row is."""

    name: str
    key: str
    columns: tuple[str, ...]


def devices(db: Database) -> list[str]:
    """The devices that a store knows anything of."""
    found = {row[0] for row in db.execute("SELECT DISTINCT device FROM streams")}
    for table in _tables(db):
        if table.key == "device":
            found |= {row[0] for row in db.execute(f"SELECT DISTINCT device FROM {table.name}")}
    return sorted(found)


def copy_device(source: Database, target: Database, device: str) -> None:
    """Copy a device in one transaction, and read what was written; nothing is done if it is there already.

    Raises:
        StoreError: the other store has something else of the device, or has not taken all of it.
        DatabaseError: a store cannot be used.
    """
    if source.execute("SELECT 1 FROM journal LIMIT 1").fetchone():
        raise StoreError(f"{device} cannot be moved: there is more of it in the store's journal")
    wanted = _digest(source, device)
    with target.transaction():
        if not _knows(target, device):
            numbers = {old: _number(target, device, name, kept) for old, name, kept in _streams(source, device)}
            for table in _tables(source):
                columns = [name for name in table.columns if name not in _GIVEN]
                query = f"INSERT INTO {table.name} ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})"
                if table.key == "device":
                    target.executemany(query, _rows(source, table, columns, device))
                else:
                    place = columns.index("stream")
                    for old, new in numbers.items():
                        rows = _rows(source, table, columns, old)
                        target.executemany(query, ((*row[:place], new, *row[place + 1 :]) for row in rows))
        if _digest(target, device) != wanted:
            raise StoreError(f"two of the stores know something of {device}, and not the same: move one of them away")
        (reserved,) = source.execute("SELECT reserved FROM watermarks").fetchone()
        target.execute("UPDATE watermarks SET reserved=? WHERE reserved<?", (reserved, reserved))


def remove_device(db: Database, device: str) -> None:
    """Remove all that a store knows of a device."""
    with db.transaction():
        numbers = [(number,) for number, *_ in _streams(db, device)]
        for table in _tables(db):
            rows = [(device,)] if table.key == "device" else numbers
            db.executemany(f"DELETE FROM {table.name} WHERE {table.key}=?", rows)
        db.execute("DELETE FROM streams WHERE device=?", (device,))


def _tables(db: Database) -> list[_Table]:
    query = (
        "SELECT sqlite_master.name, info.name FROM sqlite_master JOIN pragma_table_info(sqlite_master.name) AS info "
        "WHERE sqlite_master.type='table' ORDER BY sqlite_master.name, cid"
    )
    columns: dict[str, list[str]] = {}
    for table, column in db.execute(query):
        columns.setdefault(table, []).append(column)
    found = []
    for name, names in columns.items():
        key = next((one for one in ("device", "stream") if one in names), None)
        if key is not None and name != "streams" and name not in _OF_THE_FLEET:
            found.append(_Table(name, key, tuple(names)))
    return found


def _streams(db: Database, device: str) -> list[tuple[int, str, int]]:
    """Number, name and `kept` of each sequence of a device."""
    return db.execute("SELECT id, stream, kept FROM streams WHERE device=? ORDER BY stream", (device,)).fetchall()


def _knows(db: Database, device: str) -> bool:
    names = ["streams", *(table.name for table in _tables(db) if table.key == "device")]
    return any(db.execute(f"SELECT 1 FROM {name} WHERE device=? LIMIT 1", (device,)).fetchone() for name in names)


def _number(db: Database, device: str, stream: str, kept: int) -> int:
    db.execute("INSERT INTO streams (device, stream, kept) VALUES (?, ?, ?)", (device, stream, kept))
    query = "SELECT id FROM streams WHERE device=? AND stream=?"
    return int(db.execute(query, (device, stream)).fetchone()[0])


def _rows(db: Database, table: _Table, columns: list[str], key: int | str) -> Iterator[tuple[object, ...]]:
    """The rows of a device or of a stream, in an order that their values give."""
    order = ", ".join(columns)
    yield from db.execute(f"SELECT {order} FROM {table.name} WHERE {table.key}=? ORDER BY {order}", (key,))


def _digest(db: Database, device: str) -> bytes:
    """Of all that a store knows of a device, whatever the numbers of its streams."""
    found = hashlib.sha256()
    streams = _streams(db, device)
    for table in _tables(db):
        columns = [name for name in table.columns if name not in _GIVEN | {"stream" if table.key == "stream" else ""}]
        for key in [device] if table.key == "device" else [number for number, *_ in streams]:
            found.update(repr((table.name, columns)).encode())
            for row in _rows(db, table, columns, key):
                found.update(repr(row).encode())
    found.update(repr([rest for _, *rest in streams]).encode())
    return found.digest()
