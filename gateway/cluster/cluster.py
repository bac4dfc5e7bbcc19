"""The actors of a fleet in a Ray cluster, one on each node: found or made, looked at, and stopped in order.

They have names in a namespace of the fleet, and belong to nobody: they go on when the process that made them has gone.
"""

from __future__ import annotations

import hashlib
import logging
import os
import signal
import time
import warnings
from collections.abc import Callable, Collection, Iterable
from contextlib import closing, suppress
from math import ceil
from pathlib import Path
from typing import Any

from fugu.host.process import Notifier, Wake, log_settings
from gateway.cluster.actor import Given, HostActor, State, all_parts, served
from gateway.location import Server
from gateway.settings import GatewaySettings, SettingsError

__all__ = ["run_cluster"]


_log = logging.getLogger(__name__)
_LOOK_SECONDS = 2.0
_STOP_SECONDS = 60.0
_CPUS = 0.001
"""Of a node's cores, as Ray counts them: a node that was started with none gets no actor."""


class _Host(HostActor):
    """Takes parts at once where Ray has started it again: nobody may be there to tell it to begin."""

    def __init__(self, given: Given, share: int) -> None:
        import ray

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Ray's own, of how it finds that out
            again = ray.get_runtime_context().was_current_actor_reconstructed
        super().__init__(given, share, begun=again)


class Cluster:
    """A connection, one in a process, to a Ray cluster at HOST:PORT or "auto". SettingsError if there is none."""

    def __init__(self, address: str, fleet: str) -> None:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # else it reports to its makers
        import ray
        import ray.util.scheduling_strategies

        self._ray: Any = ray
        try:
            ray.init(address=address, namespace=f"fugu-{fleet}", log_to_driver=False, logging_level=logging.ERROR)
        except (ConnectionError, ValueError, RuntimeError, ray.exceptions.RayError) as error:
            raise SettingsError(f"no Ray cluster at {address}: {str(error).partition(chr(10))[0]}") from None
        self._actors: dict[str, Any] = {}
        self.find()

    def close(self) -> None:
        """Disconnect; the actors go on."""
        self._ray.shutdown()

    def find(self) -> None:
        """Find the actors that there are, also those that another process has made by now."""
        for name in self._ray.util.list_named_actors():
            with suppress(ValueError):  # it has just ended
                self._actors.setdefault(name, self._ray.get_actor(name))

    @property
    def nodes(self) -> list[str]:
        """Those that live and take actors."""
        return [one["NodeID"] for one in self._ray.nodes() if one["Alive"] and one["Resources"].get("CPU", 0) > 0]

    @property
    def names(self) -> list[str]:
        """The actors that are known."""
        return sorted(self._actors)

    def make(self, node: str, mark: str, given: Given, share: int) -> str:
        """Make an actor for `share` parts, named by node and `mark`; Ray starts it again when its process has ended."""
        name = f"{node}{mark}"
        where = self._ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(node, soft=False)
        options: dict[str, Any] = {"lifetime": "detached", "max_restarts": -1, "scheduling_strategy": where}
        made = self._ray.remote(_Host).options(name=name, num_cpus=_CPUS, **options)
        self._actors[name] = made.remote(given, share)
        return name

    def begin(self, names: Iterable[str]) -> None:
        """Let actors take parts."""
        for name in names:
            self._actors[name].begin.remote()

    def states(self) -> dict[str, State]:
        """How each actor is that answers: one that is being started again does not, nor does one that is cut off."""
        return self._asked("state", self._living(), _LOOK_SECONDS)

    def stop(self, names: Iterable[str]) -> None:
        """Stop actors in order, and what they serve, and end their processes."""
        gone = set(names)
        asked = gone & set(self._living())
        for step in ("rest", "stop"):  # what the fleet has once is first, so that it misses no shard
            answered = self._asked(step, asked, _STOP_SECONDS)
            for name in asked - answered.keys():
                _log.error("the actor %s does not answer: it is ended as it is", name)
            asked &= answered.keys()
        for name in gone:
            self._ray.kill(self._actors.pop(name))

    def _living(self) -> list[str]:
        nodes = set(self.nodes)
        return [name for name in self._actors if name.partition("-")[0] in nodes]

    def _asked(self, method: str, names: Iterable[str], seconds: float) -> dict[str, Any]:
        calls = {name: getattr(self._actors[name], method).remote() for name in names}
        found: dict[str, Any] = {}
        done = self._ray.wait([*calls.values()], num_returns=len(calls), timeout=seconds)[0] if calls else ()
        for name, call in calls.items():
            if call in done:
                with suppress(self._ray.exceptions.RayError):
                    found[name] = self._ray.get(call)
        return found


_ROUND_SECONDS = 1.0


def run_cluster(settings: GatewaySettings, address: str, started: Callable[[], None] = lambda: None) -> int:
    """Serve a fleet by actors of a Ray cluster until SIGTERM or SIGINT, then stop them in order; the exit code.

    The stores of the `shards` in its settings are on a server. Actors that go on from before are kept if they were made
    with the same settings, and stopped otherwise. If this process is killed, they go on. `started` is called when all
    serve. Raises FuguError, a line on what keeps the gateway from starting; no actor that was made is left.
    """
    if not isinstance(settings.store, Server):
        raise SettingsError(f"the store {settings.store.name} is a file: shards on several machines need a server")
    if isinstance(settings.ledger, Path):
        raise SettingsError("a ledger in a file is on one machine: without --ledger it is on the store's server")
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
    """Wait for all nodes' actors; whether that is not wanted any more. Raises SettingsError if one cannot serve."""
    while True:
        states = cluster.states()
        for name in made:
            if name in states and states[name].problem:
                raise SettingsError(states[name].problem)
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
