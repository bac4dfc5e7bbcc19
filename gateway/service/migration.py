"""Moves a store to another place, of any engine, with those of its shards and with its ledger: all or nothing."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, suppress
from typing import Any, NamedTuple

from fugu.host.database import DatabaseError
from gateway.database import Database, Kind, Lease, open_engine
from gateway.location import Location
from gateway.releases.entries import KIND as LEDGER
from gateway.releases.ledger import known_ledger, ledger_beside
from gateway.service.shard_stores import forget_layout, shard_store, stores
from gateway.service.store import StoreError
from gateway.service.store.store import KIND as STORE

__all__ = ["migrate_store"]

_SEEDED = {"watermarks": "reserved<>0", "release_record": "ledger<>'' OR entry<>0", "binding": "store<>''"}
"""Tables with a row from the beginning, and how it is when something has happened."""


class _Copy(NamedTuple):
    """What is to be the same in two open databases."""

    tables: list[str]
    old: Database
    new: Database


def migrate_store(
    source: Location, target: Location, told: Callable[[str, float], None] = lambda _part, _share: None
) -> dict[str, int]:
    """Copy a store, those of its shards, and the ledger beside it.

    What is new is whole when this returns, and empty if anything goes wrong. What the shards tell each other is not
    copied: they say it again.

    Args:
        source: stays as it is; no gateway may be running with it.
        target: a new store.
        told: called with the table that is being copied and the share of all rows that is done.

    Returns:
        How many rows each table has, of all databases together.

    Raises:
        FuguError: one line that says what is wrong.
    """
    shards = stores(source)
    places = [(source, target, STORE), *((place, shard_store(target, i), STORE) for i, place in shards.items())]
    if (ledger := known_ledger(source)) is not None:
        places.append((ledger, ledger_beside(target), LEDGER))
    others = set(stores(target).values()) - {new for _, new, _ in places}
    with ExitStack() as held:

        def opened(place: Location, kind: Kind, *, new: bool) -> Database:
            database = held.enter_context(closing(open_engine(place, kind, create=new, lease=Lease())))
            if new and _holds_something(database, kind):
                raise StoreError(f"the {kind.file.name} {place.name} is not empty: name a new store")
            return database

        copies = [
            _Copy(_tables(kind), opened(old, kind, new=False), opened(new, kind, new=True)) for old, new, kind in places
        ]
        for other in others:
            opened(other, STORE, new=True)
        forget_layout(target)
        try:
            return _copied(copies, told)
        except BaseException as error:
            for copy in copies[1:]:  # they may be there already: one is committed after the other, the store last
                with suppress(DatabaseError):
                    copy.new.remove()
            if isinstance(error, DatabaseError):
                raise StoreError(f"cannot copy {source.name} to {target.name}: {error}; do it again") from None
            raise


def _tables(kind: Kind) -> list[str]:
    return re.findall(r"CREATE TABLE (\w+) \(", kind.schema)


def _holds_something(database: Database, kind: Kind) -> bool:
    """Whether it is not as it was made."""
    some = (f"SELECT 1 FROM {table} WHERE {_SEEDED.get(table, 'TRUE')} LIMIT 1" for table in _tables(kind))
    return any(database.execute(query).fetchone() is not None for query in some)


def _copied(copies: list[_Copy], told: Callable[[str, float], None]) -> dict[str, int]:
    """Copy all tables, each database in a transaction; all begin before the first is committed."""
    with ExitStack() as copying:
        for _, old, new in copies:
            copying.enter_context(old.snapshot())
            copying.enter_context(new.transaction())
        counts = [{table: _count(old, table) for table in tables} for tables, old, _ in copies]
        total = Counter[str]()
        for rows in counts:
            total.update(rows)
        done, every = 0, max(total.total(), 1)

        def pages(old: Database, table: str) -> Iterator[Any]:
            nonlocal done
            for row in old.every(table):
                yield row
                done += 1
                if done % 1000 == 0:
                    told(table, done / every)

        for (_, old, new), rows in zip(copies, counts, strict=True):
            for table, wanted in rows.items():
                told(table, done / every)
                new.execute(f"DELETE FROM {table}")
                new.copy(table, pages(old, table))
                if (copied := _count(new, table)) != wanted:
                    raise DatabaseError(f"{table} has {copied} rows instead of {wanted}")
    return dict(total)


def _count(database: Database, table: str) -> int:
    return int(database.execute(f"SELECT count(*) FROM {table}").fetchone()[0])
