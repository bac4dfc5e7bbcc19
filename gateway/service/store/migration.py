"""Moves all that a store holds into another, of the same engine or not: everything in one transaction."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

from gateway.location import Location
from gateway.service.store.database import Database, StoreError
from gateway.service.store.store import SCHEMA, open_engine
from host.database import DatabaseError

__all__ = ["migrate_store"]

_SEEDED = {"watermarks": "reserved<>0", "release_record": "ledger<>'' OR entry<>0"}
"""Tables with a row from the beginning, and how it is when something has happened."""


def migrate_store(
    source: Location, target: Location, told: Callable[[str, float], None] = lambda _part, _share: None
) -> dict[str, int]:
    """Copy a store; the new one is whole when this returns, and empty if anything goes wrong.

    Args:
        source: stays as it is; no gateway may be running with it.
        target: a new store.
        told: called with the table that is being copied and the share of all rows that is done.

    Returns:
        How many rows each table has.

    Raises:
        StoreError: one line that says what is wrong.
    """
    tables = re.findall(r"CREATE TABLE (\w+) \(", SCHEMA)
    with (
        closing(open_engine(source, SCHEMA, hold="")) as old,
        closing(open_engine(target, SCHEMA, create=True, hold="")) as new,
    ):
        for table in tables:
            query = f"SELECT 1 FROM {table} WHERE {_SEEDED.get(table, 'TRUE')} LIMIT 1"
            if new.execute(query).fetchone() is not None:
                raise StoreError(f"the store {target.name} is not empty: name a new one")
        try:
            return _copy(old, new, tables, told)
        except DatabaseError as error:
            raise StoreError(f"cannot copy {source.name} to {target.name}: {error}; do it again") from None


def _copy(old: Database, new: Database, tables: list[str], told: Callable[[str, float], None]) -> dict[str, int]:
    with old.snapshot(), new.transaction():
        rows = {table: int(old.execute(f"SELECT count(*) FROM {table}").fetchone()[0]) for table in tables}
        done, every = 0, max(sum(rows.values()), 1)

        def pages(table: str) -> Iterator[Any]:
            nonlocal done
            for row in old.every(table):
                yield row
                done += 1
                if done % 1000 == 0:
                    told(table, done / every)

        for table in tables:
            told(table, done / every)
            new.execute(f"DELETE FROM {table}")
            new.copy(table, pages(table))
            (copied,) = new.execute(f"SELECT count(*) FROM {table}").fetchone()
            if copied != rows[table]:
                raise DatabaseError(f"{table} has {copied} rows instead of {rows[table]}")
    return rows
