"""What a store knows of a device is the same in every engine, and after every move between them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from gateway.service.store import Location, Server, Store, StoreError, moving
from gateway.service.store.store import KIND
from tests.support.postgres import Postgres

TABLES = moving.tables(KIND.schema)
DEVICES = ("watch", "Ring", "ring", "sensor-\u00e9")
STREAMS = ("hr", "HR", "hr/high", "zz", "\u00e4")


def fill(store: Store, drawn: random.Random) -> None:
    """Draw rows of every table for every device, values of the kinds that the tables are declared with."""
    db = store._db
    for device in drawn.sample(DEVICES, len(DEVICES)):
        for stream in drawn.sample(STREAMS, 3):
            begin = drawn.randint(0, 99)
            db.execute("INSERT INTO streams (device, stream, begins) VALUES (?, ?, ?)", (device, stream, begin))
        numbers = [row[0] for row in db.execute("SELECT id FROM streams WHERE device=?", (device,))]
        for table in TABLES:
            columns = [name for name in table.columns if name != "serial"]
            once = table.name in ("heads", "stops")  # of which there is one for each
            for key in [device] if table.key == "device" else numbers:
                rows = [[key if name == table.key else value(table.name, name, drawn) for name in columns]]
                rows += [] if once else [[key, *(value(table.name, name, drawn) for name in columns[1:])]]
                query = f"INSERT INTO {table.name} ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})"
                db.executemany(query, rows)


def value(table: str, column: str, drawn: random.Random) -> object:
    """Something that a column may hold."""
    body = KIND.schema.split(f"CREATE TABLE {table} (")[1]
    kind = body.split(f"{column} ", 1)[1].split()[0].strip(",")
    if kind == "INTEGER":
        return drawn.randint(-(2**40), 2**62)
    if kind == "TEXT":
        return "".join(drawn.choices("aZ'\"\\%?\u00e4\U0001f600 ", k=9)) + str(drawn.getrandbits(32))
    return drawn.randbytes(drawn.choice((0, 1, 40))) + drawn.randbytes(4)


def known(store: Store) -> dict[str, bytes]:
    """By device, what stands for all that is stored of it."""
    return {device: moving.digest(store._db, device, TABLES) for device in store.devices()}


@pytest.fixture
def stores(tmp_path: Path, postgres: Postgres) -> Iterator[list[Store]]:
    """Two in files, and two on a server."""
    places: list[Location] = [tmp_path / "a.db", postgres.fresh(), tmp_path / "b.db", postgres.fresh()]
    with ExitStack() as opened:
        yield [opened.enter_context(closing(Store(place))) for place in places]


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2))
def test_a_device_is_the_same_wherever_it_is_moved(stores: list[Store], seed: int) -> None:
    drawn = random.Random(seed)
    fill(stores[0], drawn)
    before = known(stores[0])
    assert sorted(before) == sorted(DEVICES)
    assert len(set(before.values())) == len(DEVICES)
    for _ in range(12):
        source = drawn.choice([store for store in stores if store.devices()])
        device = drawn.choice(source.devices())
        source.move_device(device, drawn.choice([store for store in stores if store is not source]))
    found = [known(store) for store in stores]
    assert sum(map(len, found)) == len(DEVICES)
    assert {device: one for each in found for device, one in each.items()} == before


def test_whatever_differs_is_seen_across_engines(tmp_path: Path, server: Server) -> None:
    with closing(Store(tmp_path / "a.db")) as here, closing(Store(server)) as there:
        fill(here, random.Random(7))
        moving.copy_device(here._db, there._db, "watch", TABLES)
        moving.copy_device(here._db, there._db, "watch", TABLES)  # once more is nothing
        for table in TABLES:
            column = next(name for name in reversed(table.columns) if name not in ("stream", "device", "serial"))
            keys = "(SELECT id FROM streams WHERE device='watch')" if table.key == "stream" else "('watch')"
            query = f"SELECT {column} FROM {table.name} WHERE {table.key} IN {keys} ORDER BY {column} LIMIT 1"
            (old,) = there._db.execute(query).fetchone()
            new = old + {int: 1, str: "x", bytes: b"x"}[type(old)]
            change = f"UPDATE {table.name} SET {column}=? WHERE {table.key} IN {keys} AND {column}=?"
            there._db.execute(change, (new, old))
            with pytest.raises(StoreError, match="watch, and not the same"):
                here.move_device("watch", there)
            there._db.execute(change, (old, new))
        here.move_device("watch", there)
        assert (sorted(known(here)), sorted(known(there))) == (sorted(set(DEVICES) - {"watch"}), ["watch"])
