"""A process that is killed at any point between reserving and publishing never under-counts and never draws again."""

from __future__ import annotations

import multiprocessing
import os
import random
import secrets
from pathlib import Path

import pytest

from gateway.releases.charges import ChargedTicks
from gateway.releases.entries import Entry
from gateway.releases.ledger import Ledger
from gateway.store.location import Location
from tests.support.brokers import PATIENCE, wait_until
from tests.support.ledgers import ALLOWED, charges_replayed, drawn, key, open_ledger, release

pytestmark = pytest.mark.processes
FORK = multiprocessing.get_context("fork")


def publish_without_end(location: Location, seen: Path) -> None:
    """Write down what is published, and reserve one window after the other."""
    ledger, out = Ledger(location), os.open(seen, os.O_WRONLY | os.O_APPEND)

    def publish(entry: Entry) -> None:
        os.write(out, f"{entry.number} {entry.first} {entry.payload.hex()}\n".encode())
        ledger.mark(entry.number, "published")

    for entry in ledger.pending():
        publish(entry)
    while True:
        first = ledger.progress("count") or 0
        payload = drawn(b"\0" + secrets.token_bytes(8))
        publish(
            ledger.reserve(release(first, first + 9), lambda _, frame=payload: frame, time_us=1, progress=first + 10)
        )


@pytest.mark.parametrize("rounds", [2, pytest.param(20, marks=pytest.mark.soak)])
def test_killed_many_times_every_published_release_is_charged_and_is_one(
    location: Location, tmp_path: Path, rounds: int
) -> None:
    seen, generator = tmp_path / "published", random.Random(4)
    open_ledger(location).close()
    seen.touch()
    for _ in range(rounds):
        size = seen.stat().st_size
        more = size + generator.randrange(1, 400)
        process = FORK.Process(target=publish_without_end, args=(location, seen))
        process.start()
        wait_until(lambda more=more: seen.stat().st_size > more)  # type: ignore[misc]
        process.kill()
        process.join(PATIENCE)
        ledger = Ledger(location, create=False)
        lines = [line.split() for line in seen.read_text().splitlines()]
        published = {int(number): bytes.fromhex(payload) for number, _, payload in lines}
        assert all(published[int(number)] == bytes.fromhex(payload) for number, _, payload in lines)
        assert len({first for _, first, _ in lines}) == len(published)  # a window has one release
        assert charges_replayed(ledger, published).problems == ()
        entries = ledger.entries()
        assert ledger.spent(key(), 0, 10**9) == [ChargedTicks(0, 10 * len(entries) - 1, ALLOWED)]
        assert {entry.number for entry in ledger.pending()} >= {entry.number for entry in entries} - set(published)
        assert len(ledger.pending()) <= 1
        ledger.close()
    assert len(entries) > 2 * rounds
