"""Shards as actors of Ray: whatever is killed or frozen, they are back; nothing is lost, stored or released twice."""

from __future__ import annotations

import os
import signal
import time
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from gateway.cluster.cluster import Cluster, parts_served
from gateway.cluster.shard_watch import KIND, channel_of
from gateway.store.engine import Lease
from gateway.store.location import Server
from gateway.store.postgresql import PostgresDatabase
from tests.support.brokers import Mosquitto, wait_until
from tests.support.clusters import Fleet, check_store, lose_nodes
from tests.support.crowd import Crowd
from tests.support.ray_nodes import Nodes

NAMES = tuple(f"sensor-{index}" for index in range(2))


@pytest.mark.long
@pytest.mark.processes
def test_what_ends_is_started_again_and_goes_on_without_the_command_that_made_it(
    broker: Mosquitto, server: Server, tmp_path: Path
) -> None:
    with Nodes(1) as nodes, Crowd(broker, NAMES, frames_per_second=4.0) as crowd:
        fleet = Fleet(tmp_path, nodes, broker, server, NAMES, 2)
        fleet.start()
        with closing(Cluster(nodes.address, "home")) as cluster:
            wait_until(lambda: all(crowd.stored_again(name, 0.0) for name in NAMES), "the first frames")
            fleet.kill()
            before = parts_served(cluster.states().values())
            since = time.monotonic()
            cut_off(server)
            wait_until(lambda: all(crowd.stored_again(name, since) for name in NAMES), "frames by new connections")
            assert parts_served(cluster.states().values()) == before
            steal_claim(server, "shard-0")  # it is thought dead, and lives: its gateway ends by itself
            os.kill(before["shard-1"], signal.SIGKILL)
            after = wait_for_others(cluster, before, {"shard-0", "shard-1"})
            assert after["fleet"] == before["fleet"]
            os.kill(actor_of(after["fleet"]), signal.SIGKILL)
            wait_for_others(cluster, after, {*after})
            fleet.start()
            crowd.finish()
            wait_until(lambda: crowd.all_stored, "every frame")
            assert fleet.stop() == 0
            assert cluster.states() == {}
        assert check_store(fleet.store, crowd.sent) > 0


def wait_for_others(cluster: Cluster, before: dict[str, int], parts: set[str]) -> dict[str, int]:
    """Wait until other processes serve some parts, and return who serves what."""
    now: dict[str, int] = {}

    def others_serve() -> bool:
        now.update(parts_served(cluster.states().values()))
        return all(now[part] != before[part] for part in parts)

    now.update(before)
    wait_until(others_serve, "their successors")
    return now


def actor_of(process: int) -> int:
    """The process of the actor that serves a part: the one that has started the one that this was forked from."""
    for _ in range(2):
        process = int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
    return process


def steal_claim(server: Server, part: str) -> None:
    """Let nobody have a claim on a part whose process lives."""
    channel = channel_of(server)
    assert isinstance(channel, Server)
    PostgresDatabase(channel, KIND, lease=Lease(f"part {part}", take=True)).close()


def cut_off(server: Server) -> None:
    """End all sessions of gateways at the database."""
    with psycopg.connect(server.url, autocommit=True) as connection:
        query = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name='fugu-gateway'"
        assert len(connection.execute(query).fetchall()) >= 3


@pytest.mark.soak
def test_a_node_that_is_killed_or_frozen_loses_no_data(tmp_path: Path) -> None:
    losses = lose_nodes(tmp_path, shards=3, devices=15)
    assert losses["of these refused by the store"] == losses["parts that were thought dead and went on"] > 0
