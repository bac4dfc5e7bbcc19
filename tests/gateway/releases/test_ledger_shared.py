"""A ledger that several processes use, or had: allowances hold for all, and the dead reserve nothing."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from contextlib import suppress
from multiprocessing.synchronize import Barrier

import pytest

from fugu.host.database import AwayError, DatabaseError, FileLostError
from gateway.releases.charges import ChargedTicks
from gateway.releases.entries import Content
from gateway.releases.ledger import Ledger
from gateway.store import postgresql
from gateway.store.engine import Lease, LedgerError
from gateway.store.location import Location, Server
from tests.support.brokers import PATIENCE, wait_until
from tests.support.ledgers import ALLOWED, charges_replayed, drawn, key, open_ledger, release, reserve
from tests.support.postgres import await_answer, break_connections

pytestmark = pytest.mark.processes
FORK = multiprocessing.get_context("fork")


def reserve_thirty(location: Location, payload: bytes, all_have_opened: Barrier) -> None:
    ledger = Ledger(location)
    all_have_opened.wait(PATIENCE)
    for _ in range(30):
        with suppress(LedgerError):
            reserve(ledger, release(0, 9, ALLOWED // 20), payload)


@pytest.mark.long
def test_two_processes_at_once_are_never_granted_more_than_is_allowed(location: Location) -> None:
    open_ledger(location).close()  # nothing is open where a process begins
    both = FORK.Barrier(2)
    some = [FORK.Process(target=reserve_thirty, args=(location, payload, both)) for payload in (b"a", b"b")]
    for process in some:
        process.start()
    for process in some:
        process.join(PATIENCE)
        assert process.exitcode == 0
    with_account = Ledger(location, create=False)
    entries = with_account.entries()
    assert [entry.number for entry in entries] == list(range(1, 21))
    assert with_account.spent(key(), 0, 99) == [ChargedTicks(0, 9, ALLOWED)]
    assert charges_replayed(with_account).problems == ()
    with_account.close()


@pytest.fixture
def ledger(server: Server) -> Iterator[Ledger]:
    """On a server, held."""
    open_ledger(server).close()
    opened = Ledger(server, lease=Lease("releases"))
    yield opened
    opened.close()


def test_a_connection_that_breaks_while_noise_is_drawn_charges_nothing(ledger: Ledger, server: Server) -> None:
    def draw(_: int) -> Content:
        break_connections(server)
        return drawn(b"lost")

    with pytest.raises(AwayError):
        ledger.reserve(release(0, 9), draw, time_us=1, progress=10)
    await_answer(lambda: ledger.newest_entry)
    assert ledger.spent(key(), 0, 99) == []
    assert reserve(ledger, release(0, 9), b"told", progress=10).number == 1
    assert charges_replayed(ledger, {1: b"told"}).problems == ()


def test_a_connection_that_breaks_after_the_commit_has_charged_and_the_window_is_released_once(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = postgresql.PostgresDatabase._run

    def broken(self: postgresql.PostgresDatabase, query: str) -> object:
        done = run(self, query)
        if query == "COMMIT":
            self._connection.close()
            raise AwayError("the answer was lost")
        return done

    with monkeypatch.context() as patched:
        patched.setattr(postgresql.PostgresDatabase, "_run", broken)
        with pytest.raises(AwayError):
            reserve(ledger, release(0, 9), b"first", progress=10)
    await_answer(lambda: ledger.newest_entry)
    with pytest.raises(LedgerError, match="entry 1 has released the window that begins there"):
        reserve(ledger, release(0, 9), b"second", progress=10)
    assert [entry.payload for entry in ledger.entries(pending=True)] == [b"first"]
    assert ledger.progress("count") == 10
    assert ledger.spent(key(), 0, 99) == [ChargedTicks(0, 9, ALLOWED)]


def test_another_process_is_refused_unless_it_takes_the_ledger(ledger: Ledger, server: Server) -> None:
    with pytest.raises(LedgerError, match="another gateway runs with the ledger"):
        Ledger(server, lease=Lease("releases"))
    by_hand = Ledger(server)  # `fugu gateway release` beside a gateway
    assert reserve(by_hand, release(0, 9)).number == 1
    by_hand.close()
    assert reserve(ledger, release(10, 19)).number == 2


@pytest.mark.parametrize("in_the_middle", [False, True])
def test_a_process_that_was_thought_dead_reserves_nothing(ledger: Ledger, server: Server, in_the_middle: bool) -> None:
    taken: list[Ledger] = []

    def take() -> None:
        taken.append(Ledger(server, lease=Lease("releases", take=True)))

    def draw(_: int) -> Content:
        take()  # this process was frozen here, and goes on
        return drawn(b"of the dead")

    def lost() -> bool:
        try:
            reserve(ledger, release(0, 9), b"of the dead")
        except FileLostError:
            return True
        except AwayError:
            return False
        raise AssertionError("it was reserved")

    if in_the_middle:
        with pytest.raises(DatabaseError):
            ledger.reserve(release(0, 9), draw, time_us=1)
    else:
        take()
    wait_until(lost, "the refusal")
    assert (taken[0].newest_entry, taken[0].spent(key(), 0, 99)) == (0, [])
    assert reserve(taken[0], release(0, 9), b"of the living").number == 1
    assert charges_replayed(taken[0], {1: b"of the living"}).problems == ()
    taken[0].close()
