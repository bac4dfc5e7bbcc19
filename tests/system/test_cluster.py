"""Shards as actors of Ray: whatever is killed or frozen, they are back; nothing is lost, stored or released twice."""

from __future__ import annotations

import os
import signal
import time
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from gateway.cluster.cluster import Cluster
from gateway.service.shard_stores import shard_store
from gateway.service.store import Hold, Server, Store
from tests.support.brokers import Mosquitto, wait_until
from tests.support.clusters import Fleet, check_store, lose_nodes
from tests.support.crowd import Crowd
from tests.support.ray_nodes import Nodes

NAMES = tuple(f"sensor-{index}" for index in range(8))
MOST_SECONDS = {"killed": 10.0, "frozen": 15.0}


@pytest.mark.long
@pytest.mark.processes
def test_what_ends_is_started_again_and_goes_on_without_the_command_that_made_it(
    broker: Mosquitto, server: Server, tmp_path: Path
) -> None:
    with Nodes(1) as nodes, Crowd(broker, NAMES, frames_per_second=20.0) as crowd:
        fleet = Fleet(tmp_path, nodes, broker, server, NAMES, 2)
        fleet.start()
        with closing(Cluster(nodes.address, "home")) as cluster:
            wait_until(lambda: all(crowd.stored_again(name, 0.0) for name in NAMES), "the first frames")
            fleet.kill()
            before = cluster.states()
            since = time.monotonic()
            cut_off(server)
            wait_until(lambda: all(crowd.stored_again(name, since) for name in NAMES), "frames by new connections")
            assert cluster.states() == before
            lost, dead = sorted(name for name in before if name.startswith("shard-"))
            Store(shard_store(server, 0), hold=Hold(take=True)).close()  # its gateway ends by itself
            os.kill(before[dead].process, signal.SIGKILL)

            def others_serve() -> bool:
                states = cluster.states()
                return all(
                    name in states and states[name].started and states[name].process != before[name].process
                    for name in (lost, dead)
                )

            wait_until(others_serve, "their successors")
            fleet.start()
            after = cluster.states()
            assert {name for name in before if before[name].process != after[name].process} == {lost, dead}
            crowd.finish()
            wait_until(lambda: crowd.settled, "every frame")
            assert fleet.stop() == 0
            assert cluster.states() == {}
        assert check_store(fleet, crowd.sent) > 0


def cut_off(server: Server) -> None:
    """End all sessions of gateways at the database."""
    with psycopg.connect(server.url, autocommit=True) as connection:
        query = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name='fugu-gateway'"
        assert len(connection.execute(query).fetchall()) >= 3


@pytest.mark.soak
def test_a_node_that_is_killed_or_frozen_costs_seconds_and_no_data(tmp_path: Path) -> None:
    found = lose_nodes(tmp_path)
    for how, most in MOST_SECONDS.items():
        assert found[f"s until each of their devices' new frames are stored, node {how}"] <= most, found
    assert found["of these refused by the store"] == found["parts that were thought dead and went on"] > 0
