"""Whoever was thought dead, and lives on, writes nothing once another process has taken what it held."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing

import psycopg
import pytest

from fugu.host.database import AwayError
from fugu.host.held_files import FileLostError
from gateway.database import Lease, delete_part, open_engine, parts_of
from gateway.database.postgresql import PostgresDatabase
from gateway.location import part_of
from gateway.service.store import Server, Store, StoreError
from gateway.service.store.store import KIND
from tests.support.brokers import wait_until
from tests.support.postgres import refused

pytestmark = pytest.mark.processes

TAKE = Lease("shard 1", take=True)
OTHERS = "DELETE FROM policies"


@pytest.fixture
def first(server: Server) -> Iterator[Store]:
    """The process that is thought dead."""
    opened = Store(server, lease=TAKE)
    opened.add_policy(1, 1, "its own")
    yield opened
    opened.close()


@pytest.fixture
def second(first: Store, server: Server) -> Iterator[Store]:
    """The process that takes what it held."""
    opened = Store(server, lease=TAKE)
    yield opened
    opened.close()


def test_the_newest_process_has_it_and_the_one_before_writes_nothing(first: Store, second: Store) -> None:
    refused(lambda: first.add_policy(1, 2, "of the dead"))
    with pytest.raises(FileLostError):
        first.policy_documents()
    second.add_policy(1, 2, "of the living")
    assert sorted(second.policy_documents()) == ["its own", "of the living"]


def test_a_transaction_that_was_under_way_is_lost_as_a_whole(first: Store, server: Server) -> None:
    """The first one has the write lock, too, while it is frozen."""

    def frozen() -> None:
        with first.transaction():
            first.add_policy(1, 2, "before it froze")
            with closing(Store(server, lease=TAKE)) as second:
                assert second.policy_documents() == ["its own"]
                second.add_policy(1, 4, "of the living")
            first.add_policy(1, 3, "after it woke")

    with pytest.raises(AwayError):
        frozen()
    with closing(Store(server)) as reader:
        assert sorted(reader.policy_documents()) == ["its own", "of the living"]
    refused(lambda: first.add_policy(1, 2, "of the dead"))


def test_an_epoch_alone_keeps_a_session_out(first: Store, server: Server) -> None:
    """Where the lock was lost without the session, as by a pooler or a server's fault, the number is enough."""
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute("UPDATE holders SET epoch=epoch+1 WHERE name='shard 1'")

    def in_a_transaction() -> None:
        with first.transaction():
            first.policy_documents()

    for write in (lambda: first.add_policy(1, 2, "lost"), in_a_transaction, first.check):
        with pytest.raises(FileLostError, match="another process has taken"):
            write()
    with closing(Store(server)) as reader:
        assert reader.policy_documents() == ["its own"]


def test_the_boundary_of_an_epoch_is_the_commit(first: Store, server: Server) -> None:
    """What was committed a moment before it was taken is there; nobody else's lease changes anything."""
    with closing(Store(server, lease=Lease("shard 2", take=True))), closing(Store(server, lease=Lease())):
        first.add_policy(1, 2, "a moment before")
        first.check()
    with closing(Store(server, lease=TAKE)) as second:
        assert sorted(second.policy_documents()) == ["a moment before", "its own"]


def test_a_process_that_comes_back_when_nobody_holds_it_any_more_is_refused(first: Store, server: Server) -> None:
    """In between another one has written: what the first remembers is not what is stored."""
    with closing(Store(server, lease=TAKE)) as second:
        second.add_policy(1, 2, "in between")
    refused(lambda: first.add_policy(1, 3, "of the dead"))


def test_of_many_that_take_it_at_once_one_has_it(server: Server) -> None:
    Store(server).close()
    opened: list[Store] = []

    def take() -> None:
        try:
            opened.append(Store(server, lease=TAKE))
        except StoreError:  # its session was ended by the next one
            return

    threads = [threading.Thread(target=take) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with closing(Store(server, lease=TAKE)) as last:
        for one in opened:
            refused(lambda one=one: one.add_policy(1, 2, "of the dead"))  # type: ignore[misc]
            one.close()
        last.add_policy(1, 1, "of the last")
        assert last.policy_documents() == ["of the last"]


def test_one_at_a_time_writes_where_nobody_holds(server: Server) -> None:
    """As in a file: two that read, add one and write lose nothing."""
    with closing(Store(server)) as made:
        made.reserve_counter(0)

    def count() -> None:
        with closing(Store(server)) as store:
            for _ in range(20):
                with store.transaction():
                    store._db.execute("UPDATE watermarks SET reserved=?", (store.reserved_counter() + 1,))

    threads = [threading.Thread(target=count) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with closing(Store(server)) as store:
        assert store.reserved_counter() == 60


def test_parts_are_schemas_of_their_own(server: Server) -> None:
    Store(server).close()
    wanted = [part_of(server, f"shard-{index}") for index in (0, 2, 11)]
    for number, one in enumerate(wanted):
        with closing(Store(one, lease=Lease())) as store:
            store.add_policy(1, 1, f"of {number}")
    Store(part_of(server, "shards")).close()
    assert list(parts_of(server, KIND, "shard-").values()) == [wanted[0], wanted[2], wanted[1]]
    with closing(Store(server)) as store:
        assert store.policy_documents() == []
    with closing(Store(wanted[1], create=False)) as store:
        assert store.policy_documents() == ["of 1"]
        with closing(Store(wanted[1], lease=TAKE)):
            pass
    with closing(Store(wanted[2], lease=Lease())), pytest.raises(StoreError, match="another gateway runs"):
        delete_part(wanted[2], KIND)
    delete_part(wanted[2], KIND)
    assert list(parts_of(server, KIND, "shard-")) == ["shard-0", "shard-2"]
    with pytest.raises(StoreError, match="there is no store"):
        Store(wanted[2], create=False)


def test_a_broken_connection_of_a_part_finds_its_own_tables_again(server: Server) -> None:
    part = part_of(server, "shard-1")
    with closing(open_engine(part, KIND, lease=TAKE)) as database:
        assert isinstance(database, PostgresDatabase)
        database.execute("INSERT INTO policies VALUES (1, 1, 'kept')")
        database._connection.close()
        found: list[object] = []

        def again() -> bool:
            try:
                found[:] = database.execute("SELECT document FROM policies").fetchall()
            except AwayError:
                return False
            return True

        wait_until(again, "a connection")
        assert found == [("kept",)]


def test_a_hold_that_would_have_to_be_quoted_is_refused() -> None:
    with pytest.raises(ValueError, match="cannot be called"):
        Lease("shard '1'")
