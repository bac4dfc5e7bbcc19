"""Parts of a fleet's gateway whose processes are gone or frozen are claimed by one process that waits, and only one."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from fugu.contract.errors import FuguError
from gateway.cluster.cluster import Claim, Vacancies
from gateway.cluster.shard_watch import KIND, channel_of
from gateway.store.engine import Lease
from gateway.store.location import Server
from gateway.store.postgresql import PostgresDatabase
from tests.support.brokers import PATIENCE, at_once, wait_until
from tests.support.claims import claiming, serve_shard
from tests.support.postgres import break_connections, refused

pytestmark = pytest.mark.processes

PARTS = ("fleet", "shard-0", "shard-1")
LONG = 1000.0
"""Seconds, of a clock that these tests say."""


@pytest.fixture
def channel(server: Server) -> Server:
    """Of a fleet's shards."""
    location = channel_of(server)
    assert isinstance(location, Server)
    return location


@pytest.fixture
def vacancies(channel: Server) -> Iterator[Vacancies]:
    """View of a process that waits for a part."""
    with closing(Vacancies(channel, PARTS)) as opened:
        yield opened


def claimed(channel: Server, part: str) -> Claim | None:
    """A claim on a part, none if another process has it."""
    try:
        return Claim(channel, part)
    except FuguError:
        return None


def test_a_part_is_vacant_when_nobody_has_had_it_for_a_while(channel: Server, vacancies: Vacancies) -> None:
    assert vacancies.vacant_parts(0.0) == []
    assert vacancies.vacant_parts(1.9) == []
    assert vacancies.vacant_parts(2.0) == [*PARTS]
    with closing(Claim(channel, "shard-0")):
        assert vacancies.vacant_parts(3.0) == ["fleet", "shard-1"]
        with pytest.raises(FuguError, match="another gateway runs"):
            Claim(channel, "shard-0")
    assert vacancies.vacant_parts(4.0) == ["fleet", "shard-1"]  # it was somebody's a moment ago
    assert vacancies.vacant_parts(6.0) == [*PARTS]
    assert vacancies.vacant_parts(6.0, grace=1.0) == ["fleet", "shard-1"]


@pytest.mark.long
def test_a_lease_is_free_as_soon_as_it_is_closed(channel: Server) -> None:
    """Its session has much to tidy up: the server ends it some time after its connection."""
    held = PostgresDatabase(channel, KIND, create=True, lease=Lease("part shard-0"))
    with closing(PostgresDatabase(channel, KIND)) as asking:
        with held.transaction():
            for number in range(500):
                held.execute(f"CREATE TEMP TABLE tidied_{number} (value TEXT)")
        assert asking.silence(["part shard-0"])
        held.close()
        assert not asking.silence(["part shard-0"])


def test_of_several_that_want_a_part_one_gets_it(channel: Server) -> None:
    Vacancies(channel, PARTS).close()  # the channel is there
    claims: list[Claim] = []

    def want() -> None:
        if (claim := claimed(channel, "shard-0")) is not None:
            claims.append(claim)

    at_once(6, want)
    assert [claim.part for claim in claims] == ["shard-0"]
    claims[0].close()


@pytest.mark.long
def test_where_a_session_ends_that_its_process_makes_again_nothing_is_vacant(
    channel: Server, vacancies: Vacancies
) -> None:
    """As when the server was started again: those that live are not robbed of their parts."""
    with closing(Claim(channel, "shard-0")), closing(Claim(channel, "shard-1")):
        assert vacancies.vacant_parts(0.0) == []
        assert vacancies.vacant_parts(LONG) == ["fleet"]
        break_connections(channel)
        assert vacancies.vacant_parts(LONG + 1) == []  # its own session has ended, too

        with closing(PostgresDatabase(channel, KIND)) as asking:
            names = ["part shard-0", "part shard-1"]
            wait_until(lambda: len(asking.silence(names)) == 2, "the sessions of the others")
        clock = itertools.count(LONG + 2)
        seen: list[float] = []
        wait_until(lambda: seen.append(next(clock)) or vacancies.vacant_parts(seen[-1]), "its own")
        assert len(seen) >= 7
        assert vacancies.vacant_parts(seen[-1]) == ["fleet"]


@pytest.mark.long
def test_who_says_nothing_loses_a_part_and_who_lives_keeps_it(channel: Server, vacancies: Vacancies) -> None:
    """The first one is as a process that is frozen: its session is there, and silent."""
    frozen = PostgresDatabase(channel, KIND, lease=Lease("part shard-0"))
    with closing(frozen), closing(Claim(channel, "shard-1")), closing(Claim(channel, "fleet")):
        assert vacancies.vacant_parts(0.0) == []
        assert claimed(channel, "shard-0") is None
        clock = itertools.count(1.0, 2.0)
        places: list[str] = []
        wait_until(lambda: places.extend(vacancies.vacant_parts(next(clock))) or places, "the silence of a frozen one")
        assert places == ["shard-0"]
        claims = [claim for claim in (claimed(channel, part) for part in (*PARTS, *PARTS)) if claim is not None]
        assert [claim.part for claim in claims] == ["shard-0"]
        with closing(claims[0]):
            refused(frozen.check)


@pytest.mark.long
def test_a_part_whose_start_hangs_ends_with_its_host(server: Server, channel: Server, tmp_path: Path) -> None:
    """It has not served yet, so that nobody asks it to go on, and SIGTERM alone would not end it."""
    (tmp_path / "policies").mkdir()
    os.mkfifo(tmp_path / "policies" / "watch.json")  # nobody ever writes into it
    process = claiming(serve_shard, server, tmp_path)
    wait_until(lambda: claimed_by_another(channel), "its claim")
    process.stdin.close()
    assert process.wait(PATIENCE) == 1
    process.stdout.close()


def claimed_by_another(channel: Server) -> bool:
    """True if a part has a claim."""
    if (other_claim := claimed(channel, "shard-0")) is not None:
        other_claim.close()
    return other_claim is None
