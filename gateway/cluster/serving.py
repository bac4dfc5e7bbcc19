"""A fleet's gateway in a Ray cluster: one process starts it, looks after it, and stops it."""

from __future__ import annotations

import hashlib
import logging
import signal
import time
from collections.abc import Callable, Iterable
from contextlib import closing
from math import ceil
from pathlib import Path

from gateway.cluster.actor import FLEET, Given, all_parts
from gateway.cluster.cluster import Cluster, ClusterError
from gateway.location import Server
from gateway.service import GatewaySettings
from host.logs import log_settings
from host.systemd import Notifier
from host.wake import Wake

__all__ = ["run_cluster", "spares"]

_log = logging.getLogger(__name__)
_ROUND_SECONDS = 1.0


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
    given = Given(settings, Path.cwd(), log_settings())
    mark = f"-{hashlib.sha256(repr(given).encode()).hexdigest()[:8]}"
    parts = all_parts(settings)
    with closing(Cluster(address, settings.fleet)) as cluster:
        wanted = Wake()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda _number, _frame: wanted.set())
        cluster.stop([name for name in cluster.names if not name.endswith(mark)])
        made = {f"{part}{mark}": part for part in parts if f"{part}{mark}" not in cluster.names}
        try:
            for name, part in made.items():
                cluster.make(name, given, part)
            stopped = _wait(cluster, made, parts, wanted)
        except BaseException:
            cluster.stop([name for name in made if name in cluster.names])
            raise
        if not stopped:
            for name in (f"spare-{number}{mark}" for number in range(spares(len(parts), cluster.nodes))):
                if name not in cluster.names:
                    cluster.make(name, given)
            _log.info("all parts of the gateway of fleet %s have started", settings.fleet)
            started()
            _look_after(cluster, wanted)
        _stop(cluster)
    return 0


def spares(parts: int, nodes: int) -> int:
    """How many processes without a part there are, so that what is on any one node is taken over by those on others.

    Parts and spares are spread evenly over the nodes; at least one spare is for a process that ends by itself.
    """
    lost = ceil(parts / nodes)
    return 1 if nodes == 1 else ceil(lost * nodes / (nodes - 1))


def _wait(cluster: Cluster, made: Iterable[str], parts: Iterable[str], wanted: Wake) -> bool:
    """Wait until all parts are served; whether that is not wanted any more.

    Raises:
        ClusterError: an actor that was made here cannot start.
    """
    while True:
        states = cluster.states()
        for name in made:
            if name in states and states[name].problem:
                raise ClusterError(f"{states[name].part or name.rpartition('-')[0]}: {states[name].problem}")
        if {state.part for state in states.values() if state.started}.issuperset(parts):
            return False
        if wanted.wait(_ROUND_SECONDS):
            return True


def _stop(cluster: Cluster) -> None:
    """Stop all: first whoever would take what ends, then the fleet's part, so that it misses no shard."""
    for part in ("", FLEET):
        cluster.stop([name for name, state in cluster.states().items() if state.part == part])
    cluster.stop(cluster.names)


def _look_after(cluster: Cluster, wanted: Wake) -> None:
    """Say which parts have other processes now, until that is not wanted any more."""
    notifier = Notifier.of_process()
    notifier.ready()
    known: dict[str, int] = {}
    problems: dict[str, str] = {}
    while not wanted.wait(_ROUND_SECONDS):
        notifier.alive(time.monotonic())
        for name, state in cluster.states().items():
            part = state.part or name.rpartition("-")[0]
            if state.problem and problems.get(name) != state.problem:
                _log.error("%s cannot start: %s", part, state.problem)
            problems[name] = state.problem
            if state.part and state.started:
                if known.get(part, state.process) != state.process:
                    _log.warning("%s was started again", part)
                known[part] = state.process
    notifier.stopping()
