"""A store moves to another engine whole or not at all, and goes on there as if nothing had happened."""

from __future__ import annotations

import sqlite3
from array import array
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fugu.contract.measure_frames import MeasureFrame, Released
from fugu.contract.measure_table import TimedTable
from fugu.contract.noise_table import NoiseTable
from fugu.contract.window_frames import WindowFrame
from fugu.host.database import DatabaseError
from gateway.database import parts_of
from gateway.database.engine import SQLiteDatabase
from gateway.location import part_of
from gateway.releases.entries import LedgerError
from gateway.releases.ledger import Ledger, known_ledger, ledger_beside
from gateway.service.coverage import Coverage
from gateway.service.migration import migrate_store
from gateway.service.shard_channel import ShardChannel
from gateway.service.shard_stores import channel_of
from gateway.service.shifts import Span
from gateway.service.store import Lease, Location, Server, Store, StoreError
from gateway.service.store.releases import Released as Told
from gateway.service.store.store import KIND
from tests.support.command import runner
from tests.support.ledgers import open_ledger, release, reserve
from tests.support.scenes import Scene, frames

pytestmark = pytest.mark.processes

NOISE = NoiseTable((array("I", [1 << 30, 3 << 30]), array("I", [1, 2])), ((0, -1), (70_000, 2), (3, 3)))
MOST = 200


def fill(location: Location) -> None:
    """Something in every table."""
    scene = Scene(location)  # type: ignore[arg-type]
    scene.record(*frames([10, 200, 3]))
    scene.recorder.seal(now=True)
    scene.record(*frames([10, 200, 3, 50])[3:])
    scene.store.close()
    with closing(Store(location)) as store, store.transaction():
        for device in ("watch", "ring\n\t\\N"):
            number = store.number(device, "place")
            store.add_policy(number, 1, '{"text": "\u00e4\u2028 %s ?"}')
            merge = Coverage().add(-1, 2**52)
            assert merge is not None
            store.merge_coverage(number, merge)
            store.put_shifts(number, [Span(1, 0, 9)], 0)
            for first in range(0, 2 * MOST, 2):
                frame = MeasureFrame(1, first - 1, first, 2, (Released(0, (5, -first)), Released(3, (7, 1))))
                store.points.add(number, frame, np.array([0.25, first]))
                store.queue_estimates(number, first)
            store.points.put_table(number, b"\0\xff\n", TimedTable(2, 1, 1, 600, 1200, NOISE))
            store.windows.add(number, WindowFrame(3, "day", -1, 4, 40, 10, 9, (-7, 12)))
            store.conflicts.note(device, "hr", 7, 100)
            store.conflicts.stop(device, 3)
            store.discovered.keep(device, {"hr": "sensor"})
            store.releases.note([Told(device, "hr", 9)])
        store.reserve_counter(2**52)
        store.releases.begin("ledger", 3)


def content(file: Path) -> dict[str, list[Any]]:
    with closing(sqlite3.connect(file)) as database:
        names = database.execute("SELECT name FROM sqlite_master WHERE type='table' AND name NOT LIKE 'sqlite_%'")
        return {
            name: sorted(database.execute(f"SELECT * FROM {name}").fetchall(), key=repr) for (name,) in names.fetchall()
        }


def test_all_that_was_stored_comes_back_from_the_server(tmp_path: Path, server: Server) -> None:
    old, new = tmp_path / "old.sqlite", tmp_path / "new.sqlite"
    fill(old)
    shares: list[float] = []
    rows = migrate_store(old, server, lambda _table, share: shares.append(share))
    assert shares == sorted(shares)
    assert shares[-1] <= 1.0
    assert migrate_store(server, new) == rows
    assert content(new) == content(old)
    assert {name: len(found) for name, found in content(old).items()} == rows
    assert min(rows.values()) > 0, "there is a table of which nothing is tested"


def test_what_comes_next_is_numbered_on(tmp_path: Path, server: Server) -> None:
    fill(tmp_path / "s.sqlite")
    migrate_store(tmp_path / "s.sqlite", server)
    with closing(Store(server)) as store:
        numbers = {store.stream_id(device, "place") for device in ("watch", "ring\n\t\\N")}
        newest = store.outbox(0, 10_000)[-1].serial
        assert store.number("new", "place") not in numbers
        store.queue_estimates(1, 10**6)
        assert [one.frame for one in store.outbox(newest, 10)] == [10**6]


def test_nothing_is_copied_where_something_is(location: Location, tmp_path: Path) -> None:
    fill(tmp_path / "from.sqlite")
    with closing(Store(location)) as store:
        store.reserve_counter(1)
    with pytest.raises(StoreError, match="is not empty: name a new store"):
        migrate_store(tmp_path / "from.sqlite", location)
    with closing(Store(location)) as store:
        assert (store.reserved_counter(), store.policy_documents()) == (1, [])


def test_nothing_is_copied_while_a_gateway_runs(location: Location, tmp_path: Path) -> None:
    fill(tmp_path / "other.sqlite")
    with closing(Store(location, lease=Lease())):
        for one in ((location, tmp_path / "new.sqlite"), (tmp_path / "other.sqlite", location)):
            with pytest.raises(StoreError, match="another gateway runs with the store"):
                migrate_store(*one)


def test_an_interrupted_copy_leaves_an_empty_store(
    location: Location, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(tmp_path / "from.sqlite")
    every = SQLiteDatabase.every

    def interrupted(self: SQLiteDatabase, table: str, /) -> Iterator[Any]:
        yield from every(self, table)
        if table == "measured":
            raise DatabaseError("disk I/O error")

    with monkeypatch.context() as patched:
        patched.setattr(SQLiteDatabase, "every", interrupted)
        with pytest.raises(StoreError, match=r"cannot copy from.sqlite to .*: disk I/O error; do it again"):
            migrate_store(tmp_path / "from.sqlite", location)
    with closing(Store(location)) as store:
        assert (store.reserved_counter(), store.policy_documents(), store.outbox(0, 1)) == (0, [], [])
    assert migrate_store(tmp_path / "from.sqlite", location)["measured"] == 2 * MOST


def shared(location: Location) -> Location:
    """A store with something in every table, those of two shards, one of which is full, too, and a ledger."""
    fill(location)
    fill(part_of(location, "shard-0"))
    with closing(Store(part_of(location, "shard-1"))) as store:
        store.number("thermometer", "hr")
    with closing(open_ledger(ledger_beside(location))) as ledger:
        for first in range(0, 50, 10):
            reserve(ledger, release(first, first + 9), progress=first + 10)
        ledger.mark(1, "published")
    return location


def shards_of(location: Location) -> list[str]:
    """The shards whose stores are beside a store."""
    return list(parts_of(location, KIND, "shard-"))


def test_the_stores_of_shards_and_the_ledger_go_with_it_and_come_back(tmp_path: Path, server: Server) -> None:
    old, new = shared(tmp_path / "old.sqlite"), tmp_path / "new.sqlite"
    (tmp_path / "old-shards.sqlite").write_bytes(b"what they have told each other")
    shares: list[float] = []
    rows = migrate_store(old, server, lambda _table, share: shares.append(share))
    assert shares == sorted(shares)
    assert shards_of(server) == ["shard-0", "shard-1"]
    assert parts_of(server, KIND, "shards") == {}
    with (
        closing(Ledger(ledger_beside(server))) as ledger,
        pytest.raises(LedgerError, match=r"0\.3 too much"),
    ):
        reserve(ledger, release(45, 54))
    assert migrate_store(server, new) == rows
    ends = ("", "-shard-0", "-shard-1", "-ledger")
    contents = [[content(tmp_path / f"{name}{end}.sqlite") for end in ends] for name in ("old", "new")]
    assert contents[0] == contents[1]
    assert rows == {table: sum(len(one.get(table, ())) for one in contents[0]) for table in rows}
    assert (rows["runs"], rows["entries"]) == (1, 5)
    assert not (tmp_path / "new-shards.sqlite").exists()


def test_where_devices_are_is_looked_at_anew_where_other_shards_were_before(tmp_path: Path, server: Server) -> None:
    Store(tmp_path / "old.sqlite").close()
    with closing(ShardChannel(channel_of(server))) as channel:
        channel.begin(2)
        migrate_store(tmp_path / "old.sqlite", server)
        assert channel.shards == 0


def test_nothing_is_copied_while_a_shard_runs(location: Location, tmp_path: Path) -> None:
    old = shared(tmp_path / "from.sqlite")
    for held in (old, location):
        shard = closing(Store(part_of(held, "shard-1"), lease=Lease()))
        with shard, pytest.raises(StoreError, match="another gateway runs with the store"):
            migrate_store(old, location)


def test_nothing_is_copied_over_a_ledger(location: Location, tmp_path: Path) -> None:
    with closing(open_ledger(ledger_beside(location))) as ledger:
        reserve(ledger, release(0, 9))
    with pytest.raises(StoreError, match=r"the ledger .*ledger.* is not empty: name a new store"):
        migrate_store(shared(tmp_path / "from.sqlite"), location)
    with closing(Ledger(ledger_beside(location))) as ledger:
        assert [(entry.number, entry.state) for entry in ledger.entries()] == [(1, "reserved")]


@pytest.mark.parametrize("shard", ["shard-0", "shard-7"])
def test_nothing_is_copied_beside_a_shard_that_holds_something(location: Location, tmp_path: Path, shard: str) -> None:
    with closing(Store(part_of(location, shard))) as store:
        store.number("another", "hr")
    with pytest.raises(StoreError, match=rf"{shard}\S* is not empty: name a new store"):
        migrate_store(shared(tmp_path / "from.sqlite"), location)
    with closing(Store(part_of(location, shard))) as store:
        assert store.devices() == ["another"]


def test_an_interrupted_copy_of_shards_leaves_nothing(
    location: Location, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = shared(tmp_path / "from.sqlite")
    every = SQLiteDatabase.every

    def interrupted(self: SQLiteDatabase, table: str, /) -> Iterator[Any]:
        yield from every(self, table)
        if table == "streams" and self._path.name == "from-shard-1.sqlite":
            raise DatabaseError("disk I/O error")

    with monkeypatch.context() as patched:
        patched.setattr(SQLiteDatabase, "every", interrupted)
        with pytest.raises(StoreError, match=r"cannot copy from.sqlite to .*: disk I/O error; do it again"):
            migrate_store(old, location)
    assert shards_of(location) == []
    assert known_ledger(location) is None
    with closing(Store(location)) as store:
        assert (store.reserved_counter(), store.policy_documents(), store.outbox(0, 1)) == (0, [], [])
    assert migrate_store(old, location)["measured"] == 2 * 2 * MOST


def test_a_disk_that_is_full_at_the_end_leaves_nothing_of_the_shards_that_were_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = shared(tmp_path / "from.sqlite"), tmp_path / "new.sqlite"
    transaction, done = SQLiteDatabase.transaction, list[str]()

    @contextmanager
    def full(self: SQLiteDatabase) -> Iterator[None]:
        with transaction(self):
            yield
            if self._path == new:
                raise DatabaseError("database or disk is full")
        done.append(self._path.name)

    with monkeypatch.context() as patched:
        patched.setattr(SQLiteDatabase, "transaction", full)
        with pytest.raises(StoreError, match="database or disk is full; do it again"):
            migrate_store(old, new)
    assert done == ["new-ledger.sqlite", "new-shard-1.sqlite", "new-shard-0.sqlite"]  # they were committed
    assert shards_of(new) == []
    assert known_ledger(new) is None
    assert migrate_store(old, new)["measured"] == 2 * 2 * MOST


def test_the_command_says_what_it_has_done(capsys: pytest.CaptureFixture[str], tmp_path: Path, server: Server) -> None:
    fugu = runner(capsys)
    fill(tmp_path / "home.db")
    done = fugu("gateway", "migrate", str(tmp_path / "home.db"), server.url)
    assert (done.code, done.err) == (0, "")
    assert f"{server.name} has all " in done.out
    again = fugu("gateway", "migrate", server.url, str(tmp_path / "home.db"))
    assert (again.code, again.err) == (1, "fugu: the store home.db is not empty: name a new store\n")
