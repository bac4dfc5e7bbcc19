"""A fleet's gateway in a Ray cluster: one process starts it, looks after it, and stops it."""

from __future__ import annotations

import hashlib
import logging
import signal
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from gateway.cluster.actor import Given
from gateway.cluster.cluster import Cluster, ClusterError
from gateway.location import Server
from gateway.service import GatewaySettings, Role
from host.logs import log_settings
from host.systemd import Notifier
from host.wake import Wake

__all__ = ["run_cluster"]

_log = logging.getLogger(__name__)
_ROUND_SECONDS = 1.0
_FLEET = "fleet"


def run_cluster(settings: GatewaySettings, address: str, started: Callable[[], None] = lambda: None) -> int:
    """Serve a fleet by actors of a Ray cluster until SIGTERM or SIGINT, then stop them in order.

    Actors that go on from before are kept if they were made with the same settings, and stopped otherwise. If this
    process is killed, they go on.

    Args:
        settings: of the whole fleet; `shards` of them, whose stores are on a server.
        address: of the head node.
        started: called when all of them serve.

    Returns:
        The process's exit code.

    Raises:
        FuguError: one line that says what keeps the gateway from starting; no actor that was made is left.
    """
    if not isinstance(settings.store, Server):
        raise ClusterError(f"the store {settings.store.name} is a file: shards on several machines need a server")
    if isinstance(settings.ledger, Path):
        raise ClusterError("a ledger in a file is on one machine: without --ledger it is on the store's server")
    parts = _parts(settings)
    with closing(Cluster(address, settings.fleet)) as cluster:
        wanted = Wake()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda _number, _frame: wanted.set())
        cluster.stop([name for name in cluster.names if name not in parts])
        made = [name for name in parts if name not in cluster.names]
        try:
            for name in made:
                cluster.make(name, parts[name])
            stopped = _wait(cluster, made, wanted)
        except BaseException:
            cluster.stop([name for name in made if name in cluster.names])
            raise
        if not stopped:
            _log.info("all parts of the gateway of fleet %s have started", settings.fleet)
            started()
            _look_after(cluster, wanted)
        fleet = [name for name in cluster.names if name.startswith(_FLEET)]
        cluster.stop(fleet)  # first, so that it misses no shard
        cluster.stop(cluster.names)
    return 0


def _parts(settings: GatewaySettings) -> dict[str, Given]:
    """What each actor is given, by its name; with other settings it has another one."""
    names = [_FLEET, *map(str, range(settings.shards))]
    roles = {name: Role.parse(f"{name}/{settings.shards}") for name in names}
    found = {}
    for name, role in roles.items():
        metrics = settings.metrics if role.shard is None else None
        given = Given(replace(settings, metrics=metrics, **role._asdict()), Path.cwd(), log_settings())
        part = name if role.shard is None else f"shard-{name}"
        found[f"{part}-{hashlib.sha256(repr(given).encode()).hexdigest()[:8]}"] = given
    return found


def _wait(cluster: Cluster, made: list[str], wanted: Wake) -> bool:
    """Wait until all actors serve; whether that is not wanted any more.

    Raises:
        ClusterError: one that was made here cannot start.
    """
    while True:
        states = cluster.states()
        for name in made:
            if name in states and states[name].problem:
                raise ClusterError(f"{_part(name)}: {states[name].problem}")
        if all(name in states and states[name].started for name in cluster.names):
            return False
        if wanted.wait(_ROUND_SECONDS):
            return True


def _look_after(cluster: Cluster, wanted: Wake) -> None:
    """Say which actors were started again, until that is not wanted any more."""
    notifier = Notifier.of_process()
    notifier.ready()
    known = cluster.states()
    while not wanted.wait(_ROUND_SECONDS):
        notifier.alive(time.monotonic())
        for name, state in cluster.states().items():
            if name in known and known[name].process != state.process:
                _log.warning("%s was started again", _part(name))
            if state.problem and known.get(name) != state:
                _log.error("%s cannot start: %s", _part(name), state.problem)
            known[name] = state
    notifier.stopping()


def _part(name: str) -> str:
    return name.rpartition("-")[0]
