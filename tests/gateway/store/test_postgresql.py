"""A store on a server whose connections break: nothing is said to be durable that is not, and nobody else writes."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace

import psycopg
import pytest

from fugu.host.database import AwayError, DatabaseError, FileLostError, is_full, is_lost
from gateway.store import postgresql
from gateway.store.engine import Lease
from gateway.store.location import Server
from gateway.store.postgresql import PostgresDatabase
from gateway.store.store import KIND, Store, StoreError
from tests.support.brokers import PATIENCE, wait_until
from tests.support.postgres import await_answer, break_connections
from tests.support.scenes import Scene, frames

pytestmark = pytest.mark.processes


@pytest.fixture
def store(server: Server) -> Iterator[Store]:
    opened = Store(server, lease=Lease())
    yield opened
    opened.close()


def test_a_broken_connection_is_made_again_and_holds_the_store(store: Store, server: Server) -> None:
    store.add_policy(1, 1, "kept")
    break_connections(server)
    with pytest.raises(AwayError, match="no connection to postgresql://"):
        store.policy_documents()
    with pytest.raises(AwayError):
        store.policy_documents()
    await_answer(store.policy_documents)
    assert store.policy_documents() == ["kept"]
    with pytest.raises(StoreError, match="another gateway runs"):
        Store(server, lease=Lease())


def test_a_connection_that_breaks_in_a_transaction_leaves_nothing_of_it(store: Store, server: Server) -> None:
    def interrupted() -> None:
        with store.transaction():
            store.add_policy(1, 1, "lost")
            break_connections(server)
            for number in range(3):  # whoever goes on for all that
                try:
                    store.add_policy(1, number, "lost, too")
                except AwayError:
                    continue

    with pytest.raises(AwayError):
        interrupted()
    await_answer(store.policy_documents)
    assert store.policy_documents() == []


@pytest.mark.long
def test_a_process_that_stops_in_a_transaction_keeps_nobody_from_writing(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server ends the transaction of one that was frozen, and all of it is gone."""
    monkeypatch.setattr(postgresql, "STOPPED_SECONDS", 0.5)
    frozen, other = Store(server), Store(server)

    def stopped() -> None:
        with frozen.transaction():
            frozen.add_policy(1, 1, "of the frozen one")
            other.add_policy(1, 2, "of the other one")  # waits for the write lock, for 5 seconds at most

    with pytest.raises(AwayError):
        stopped()
    assert other.policy_documents() == ["of the other one"]
    await_answer(frozen.policy_documents)
    frozen.close()
    other.close()


def test_a_statement_that_fails_in_a_transaction_fails_all_of_it(store: Store) -> None:
    def swallowed() -> None:
        with store.transaction():
            store.add_policy(1, 1, "lost")
            with pytest.raises(DatabaseError, match="null value"):
                store._db.execute("INSERT INTO watermarks VALUES (NULL)")

    with pytest.raises(DatabaseError, match="the transaction has failed before its end"):
        swallowed()
    assert store.policy_documents() == []


def test_a_session_that_lives_on_at_the_server_is_ended_by_its_successor(
    store: Store, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The network broke, and only one end knows: the server still holds the store for it."""
    database = store._db
    assert isinstance(database, postgresql.PostgresDatabase)
    forgotten = database._connection
    monkeypatch.setattr(database, "_connection", psycopg.connect(server.url))
    database._connection.close()
    store.policy_documents()
    with pytest.raises(psycopg.OperationalError):
        forgotten.execute("SELECT 1")


def test_another_history_of_the_server_is_not_gone_on_with(store: Store, server: Server) -> None:
    """A standby may have taken over that lacks what was called durable last."""
    database = store._db
    assert isinstance(database, postgresql.PostgresDatabase)
    system, _, *where = database._identity
    database._identity = system, 2, *where
    break_connections(server)
    with pytest.raises(AwayError):
        store.policy_documents()
    with pytest.raises(FileLostError, match="another server now, or has another history"):
        await_answer(store.policy_documents)


def test_a_full_disk_is_known_as_one(store: Store) -> None:
    """The error is the server's own, raised on purpose: to fill a disk is beyond a test."""
    query = "DO $$ BEGIN RAISE EXCEPTION USING ERRCODE = '{}', MESSAGE = 'could not extend file'; END $$"
    for code, full, lost in (("53100", True, False), ("XX001", False, True), ("22012", False, False)):
        with pytest.raises(DatabaseError, match="could not extend file") as error:
            store._db.execute(query.format(code))
        assert (is_full(error.value), is_lost(error.value)) == (full, lost)


def test_who_opens_what_another_process_makes_waits_until_it_is_made(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For longer than it would wait for what is there."""
    query = "SELECT max(clock_timestamp()-query_start)>'0.1s' FROM pg_stat_activity WHERE wait_event_type='Lock' "
    query += "AND datname=current_database()"
    kind, usual, making = replace(KIND, wait_seconds=0.01), PostgresDatabase._disable_compression, threading.Event()

    def slowly(database: PostgresDatabase) -> None:
        making.set()
        with psycopg.connect(server.url, autocommit=True) as looking:
            wait_until(
                lambda: looking.execute(query).fetchone() == (True,) or any(opening.done() for opening in opening)
            )
        usual(database)

    monkeypatch.setattr(PostgresDatabase, "_disable_compression", slowly)
    opening: list[Future[PostgresDatabase]] = []
    with ThreadPoolExecutor(2) as threads:
        for _ in range(2):
            opening.append(threads.submit(PostgresDatabase, server, kind, create=True))
            assert making.wait(PATIENCE)
        for future in opening:
            future.result().close()


def test_what_the_journal_has_is_sealed_also_after_it_could_not_be_read_for_a_while(server: Server) -> None:
    scene = Scene(server)
    sent = frames([10] * 4)
    scene.record(*sent[:2])
    break_connections(server)
    with pytest.raises(AwayError):
        scene.record(sent[2])
    with pytest.raises(AwayError):
        scene.recorder.seal()
    await_answer(scene.store.policy_documents)
    scene.record(sent[3])
    scene.record(sent[2])
    scene.recorder.seal(now=True)
    number = scene.store.number_of("watch", "hr")
    stored = scene.store.symbols.holding(number, 0, sent[-1].last)
    assert b"".join(frame.symbols for frame in stored) == b"".join(frame.symbols for frame in sent)
    scene.store.close()
