"""Bits that flip on the disk, anywhere in a file: nothing is taken for what was written that is not."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from edge_agent.outbox import Outbox, OutboxError
from fugu.contract.errors import FuguError
from fugu.host.database import LEDGER, add_functions, damage, is_lost, open_database
from gateway.fleet.registry import Registry
from gateway.releases.ledger import Ledger
from gateway.store.store import Store
from tests.support.agents import stream_plan
from tests.support.histories import fill_store
from tests.support.ledgers import open_ledger, release, reserve

PLAN = stream_plan()
SCHEMA = "CREATE TABLE told (number INTEGER PRIMARY KEY, share REAL, name TEXT NOT NULL, bytes BLOB NOT NULL);"
FLIPS = 60
"""Of each file, as many as the review tried."""


def make_store(path: Path) -> None:
    fill_store(path, ("watch", "ring"), ticks=3000)


def make_ledger(path: Path) -> None:
    with closing(open_ledger(path, "watch", "ring")) as ledger:
        for first in range(0, 2000, 100):
            reserve(ledger, release(first, first + 9, 3, "watch", "ring"), b"published bytes %d" % first)


def make_outbox(path: Path) -> None:
    with closing(Outbox(path, "home", "watch")) as outbox:
        outbox.register(PLAN)
        for tick in range(500):
            outbox.append(PLAN, tick, bytes([tick % 2]))


def make_registry(path: Path) -> None:
    with closing(Registry(path, fleet="home")) as registry:
        for number in range(100):
            registry.enrol(f"watch-{number}", {"rings"}, actor="me", time_us=number)


def refuse_store(path: Path) -> None:
    with closing(Store(path)) as store:
        store.refuse_damage(history=True)


def refuse_ledger(path: Path) -> None:
    with closing(Ledger(path)) as ledger:
        ledger.refuse_damage("ledger")


KINDS: dict[str, tuple[Callable[[Path], None], Callable[[Path], None]]] = {
    "store": (make_store, refuse_store),
    "ledger": (make_ledger, refuse_ledger),
    "outbox": (make_outbox, lambda path: Outbox(path, "home", "watch").close()),
    "registry": (make_registry, lambda path: Registry(path).close()),
}


def rows(path: Path) -> dict[str, list[Any]]:
    with closing(sqlite3.connect(path)) as db:
        add_functions(db)
        names = [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type='table'")]
        return {name: db.execute(f"SELECT * FROM {name}").fetchall() for name in names}


def refusal(start: Callable[[Path], None], path: Path) -> str:
    try:
        start(path)
    except FuguError as error:
        return str(error)
    return ""


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_a_start_takes_no_file_in_which_a_bit_has_flipped_that_says_anything(tmp_path: Path, kind: str) -> None:
    make, start = KINDS[kind]
    path = tmp_path / f"{kind}.db"
    make(path)
    start(path)
    good, before, generator = path.read_bytes(), rows(path), random.Random(kind)
    used = [i for i in range(100, len(good)) if good[i]]
    refused = 0
    for _ in range(FLIPS):
        data = bytearray(good)
        data[generator.choice(used)] ^= 1 << generator.randrange(8)
        for file in tmp_path.iterdir():
            file.unlink()
        path.write_bytes(data)
        why = refusal(start, path)
        assert "\n" not in why
        assert why or rows(path) == before, "other rows were taken"
        refused += bool(why)
    assert refused > FLIPS // 2


def changed(path: Path, old: bytes, new: bytes) -> None:
    data = path.read_bytes()
    assert data.count(old) == 1
    path.write_bytes(data.replace(old, new))


@pytest.mark.parametrize(
    ("old", "new"),
    [(b"some bytes", b"same bytes"), (b"public", b"qublic"), (b"public", b"\xffublic"), (b"\x3f\xd0", b"\x3f\xd1")],
    ids=["blob", "text", "no text", "number"],
)
def test_a_row_that_was_changed_on_the_disk_is_not_read(tmp_path: Path, old: bytes, new: bytes) -> None:
    path = tmp_path / "told.db"
    with closing(open_database(path, LEDGER, SCHEMA, FuguError)) as db:
        db.execute("INSERT INTO told VALUES (1, 0.25, 'public', ?)", (b"some bytes",))
        db.execute("INSERT INTO told VALUES (2, 0.5, 'other', X'')")
        assert db.execute("SELECT * FROM intact_told").fetchall()[0] == (1, 0.25, "public", b"some bytes")
        assert db.execute("SELECT max(number) FROM intact_told").fetchone() == (2,)
        assert db.execute("SELECT number FROM intact_told WHERE number=3").fetchone() is None
        assert damage(db) == ""
    changed(path, old, new)
    with closing(open_database(path, LEDGER, SCHEMA, FuguError)) as db:
        with pytest.raises(sqlite3.DatabaseError, match="does not match its checksum") as error:
            db.execute("SELECT number FROM intact_told WHERE share<1").fetchall()
        assert is_lost(error.value)
        assert "told does not match" in damage(db)
        assert "told does not match" in damage(db, "told")
        assert db.execute("SELECT bytes FROM intact_told WHERE number=2").fetchall() == [(b"",)]
        db.execute("UPDATE told SET name='public', share=0.25, bytes=X''")
        assert damage(db) == ""


def test_a_condition_does_not_stand_for_what_is_stored(tmp_path: Path) -> None:
    """SQLite puts `name = ?` in place of the name in conditions, also for rows of other names."""
    with closing(open_database(tmp_path / "told.db", LEDGER, SCHEMA, FuguError)) as db:
        db.executemany(
            "INSERT INTO told VALUES (?, 1, ?, X'')", [(number, f"name {number % 3}") for number in range(9)]
        )
        numbers = [number for (number,) in db.execute("SELECT number FROM intact_told WHERE name=?", ("name 1",))]
        assert numbers == [1, 4, 7]


@pytest.mark.parametrize(("old", "new"), [(b"share REAL", b"shere REAL"), (b"told (record", b"tald (record")])
def test_a_schema_that_was_changed_is_one_line(tmp_path: Path, old: bytes, new: bytes) -> None:
    path = tmp_path / "told.db"
    open_database(path, LEDGER, SCHEMA, FuguError).close()
    changed(path, old, new)
    with pytest.raises(FuguError, match=r"told\.db.*put back the newest copy") as error:
        open_database(path, LEDGER, SCHEMA, FuguError)
    assert "\n" not in str(error.value)


def test_a_damaged_outbox_is_never_to_be_put_back(tmp_path: Path) -> None:
    path = tmp_path / "outbox.db"
    make_outbox(path)
    changed(path, b"CREATE TABLE anchor (", b"CREATE TABLE anchar (")
    with pytest.raises(OutboxError, match="never put back a copy, which would draw for ticks twice"):
        Outbox(path, "home", "watch")


@pytest.mark.parametrize("kind", KINDS)
def test_every_table_takes_only_values_of_its_types(tmp_path: Path, kind: str) -> None:
    make, _ = KINDS[kind]
    make(tmp_path / "f")
    with closing(sqlite3.connect(tmp_path / "f")) as db:
        tables = db.execute(
            "SELECT name, strict FROM pragma_table_list WHERE type='table' AND name NOT LIKE 'sqlite_%'"
        )
        strict_of = dict(tables.fetchall())
    assert strict_of
    assert set(strict_of.values()) == {1}
