"""A fleet's gateway in a Ray cluster: one process starts it, supervises it, and stops it."""

from __future__ import annotations

import hashlib
import logging
import signal
import time
from collections.abc import Callable, Collection, Iterable
from contextlib import closing
from math import ceil
from pathlib import Path

from fugu.host.clock import Wake
from fugu.host.logs import log_settings
from fugu.host.systemd import Notifier
from gateway.cluster.actor import State, served
from gateway.cluster.cluster import Cluster, ClusterError
from gateway.cluster.part import Given, all_parts
from gateway.location import Server
from gateway.service.settings import GatewaySettings

__all__ = ["run_cluster"]

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
        nodes = cluster.nodes
        share = ceil(len(parts) / max(len(nodes), 1))
        made = [cluster.make(node, mark, given, share) for node in nodes if f"{node}{mark}" not in cluster.names]
        try:
            stopped = _wait(cluster, made, lambda states: all(state.ready for state in states), wanted)
            cluster.begin(cluster.names)
            stopped = stopped or _wait(cluster, made, lambda states: served(states).keys() >= set(parts), wanted)
        except BaseException:
            cluster.stop(made)
            raise
        if not stopped:
            _log.info("all parts of the gateway of fleet %s have started", settings.fleet)
            started()
            _look_after(cluster, lambda node: cluster.make(node, mark, given, share), wanted)
        cluster.stop(cluster.names)
    return 0


def _wait(cluster: Cluster, made: Iterable[str], enough: Callable[[Collection[State]], bool], wanted: Wake) -> bool:
    """Wait until the actors on all nodes have come far enough; whether that is not wanted any more.

    Raises:
        ClusterError: one that was made here cannot serve.
    """
    while True:
        states = cluster.states()
        for name in made:
            if name in states and states[name].problem:
                raise ClusterError(states[name].problem)
        if len(states) >= len(cluster.nodes) > 0 and enough(states.values()):
            return False
        if wanted.wait(_ROUND_SECONDS):
            return True


def _look_after(cluster: Cluster, make: Callable[[str], str], wanted: Wake) -> None:
    """Say which parts have other processes now, and make actors on new nodes, until that is not wanted any more."""
    notifier = Notifier.of_process()
    notifier.ready()
    known: dict[str, int] = {}
    problems: set[str] = set()
    while not wanted.wait(_ROUND_SECONDS):
        notifier.alive(time.monotonic())
        hosted = {name.partition("-")[0] for name in cluster.names}
        cluster.begin([make(node) for node in cluster.nodes if node not in hosted])
        states = cluster.states().values()
        for part, process in served(states).items():
            if known.get(part, process) != process:
                _log.warning("%s was started again", part)
            known[part] = process
        for problem in {state.problem for state in states} - problems - {""}:
            _log.error("a part cannot start: %s", problem)
        problems = {state.problem for state in states}
    notifier.stopping()
