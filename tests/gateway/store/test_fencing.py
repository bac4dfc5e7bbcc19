"""A process that was thought dead, and lives on, writes nothing once another has taken its part."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import psycopg
import pytest

from fugu.host.database import AwayError, FileLostError
from gateway.store.engine import Lease
from gateway.store.location import Server, part_of
from gateway.store.opening import open_engine
from gateway.store.postgresql import PostgresDatabase
from gateway.store.store import KIND, Store, StoreError
from tests.support.brokers import at_once
from tests.support.postgres import await_answer, refused, refused_anew

pytestmark = pytest.mark.processes

TAKE = Lease("shard 1", take=True)
SHARED = [Lease(f"shard {index}", take=True, shares=True) for index in range(2)]


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
    """A row that was committed a moment before the part was taken is there; other leases change nothing."""
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

    at_once(6, take)
    with closing(Store(server, lease=TAKE)) as last:
        for store in opened:
            refused(lambda store=store: store.add_policy(1, 2, "of the dead"))
            store.close()
        last.add_policy(1, 1, "of the last")
        assert last.policy_documents() == ["of the last"]


def test_one_at_a_time_writes_where_nobody_holds(server: Server) -> None:
    """As in a file: two that read, add one and write lose nothing."""
    with closing(Store(server)) as opened:
        opened.reserve_counter(0)

    def count() -> None:
        with closing(Store(server)) as store:
            for _ in range(20):
                with store.transaction():
                    store._db.execute("UPDATE watermarks SET reserved=?", (store.reserved_counter() + 1,))

    at_once(3, count)
    with closing(Store(server)) as store:
        assert store.reserved_counter() == 60


def test_shards_write_side_by_side_and_each_is_taken_by_itself(server: Server) -> None:
    """The first has a transaction open while the second commits one, and while a third one is taken."""
    with closing(Store(server, lease=SHARED[0])) as zero, closing(Store(server, lease=SHARED[1])) as first:
        with zero.transaction():
            zero.add_policy(1, 1, "of zero")
            first.add_policy(2, 1, "of one")
            with closing(Store(server, lease=SHARED[1])) as next_one:
                next_one.add_policy(2, 2, "of the next one")
        refused(lambda: first.add_policy(2, 3, "of the dead"))
        assert sorted(zero.policy_documents()) == ["of one", "of the next one", "of zero"]


def test_a_new_generation_keeps_all_of_before_out_also_one_that_is_frozen(server: Server) -> None:
    with closing(Store(server, lease=Lease("", take=True, shares=True))) as fleet:
        fleet.arrange(2, lambda: None)
        old = [Store(server, lease=lease) for lease in SHARED]

        def frozen() -> None:
            with old[0].transaction():
                old[0].add_policy(1, 1, "before it froze")
                fleet.arrange(3, lambda: None)
                old[0].add_policy(1, 2, "after it woke")

        with pytest.raises(AwayError):
            frozen()
        for store in old:
            refused_anew(lambda store=store: store.add_policy(1, 3, "of the dead"))
            refused_anew(store.check)
        fleet.arrange(2, lambda: None)  # again as many as they were
        for fenced in old:
            refused_anew(lambda store=fenced: store.add_policy(1, 3, "of the dead"))
            fenced.close()
        fleet.reserve_counter(7)
        assert (fleet.shards, fleet.policy_documents()) == (2, [])


def test_a_generation_that_does_not_come_about_leaves_all_as_it_was(server: Server) -> None:
    def fails() -> None:
        raise StoreError("it cannot be sealed")

    with closing(Store(server, lease=Lease("", take=True, shares=True))) as fleet:
        fleet.arrange(2, lambda: None)
        with closing(Store(server, lease=SHARED[0])) as shard:
            with pytest.raises(StoreError, match="cannot be sealed"):
                fleet.arrange(3, fails)
            assert fleet.shards == 2
            await_answer(lambda: shard.add_policy(1, 1, "it goes on"))  # its session was ended
            fleet.check()


def test_one_process_takes_the_devices_back_and_fences_what_shared_them(server: Server) -> None:
    with closing(Store(server, lease=Lease("", take=True, shares=True))) as fleet:
        fleet.arrange(2, lambda: None)
        with pytest.raises(StoreError, match="another gateway runs"):
            Store(server, lease=Lease())
    with closing(Store(server, lease=SHARED[1])) as shard, closing(Store(server, lease=Lease())) as alone:
        alone.arrange(1, lambda: None)
        refused_anew(lambda: shard.add_policy(1, 1, "of the dead"))
        alone.add_policy(1, 1, "of the one")
        assert (alone.shards, alone.policy_documents()) == (1, ["of the one"])


def test_a_broken_connection_of_a_part_finds_its_own_tables_again(server: Server) -> None:
    part = part_of(server, "shard-1")
    with closing(open_engine(part, KIND, lease=TAKE)) as database:
        assert isinstance(database, PostgresDatabase)
        database.execute("INSERT INTO policies VALUES (1, 1, 'kept')")
        database._connection.close()
        await_answer(lambda: database.execute("SELECT 1"))
        assert database.execute("SELECT document FROM policies").fetchall() == [("kept",)]


def test_a_hold_that_would_have_to_be_quoted_is_refused() -> None:
    with pytest.raises(ValueError, match="cannot be called"):
        Lease("shard '1'")
