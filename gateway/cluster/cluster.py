"""The actors of a fleet in a Ray cluster, one on each node: found or made, looked at, and stopped in order.

They have names in a namespace of the fleet, and belong to nobody: they go on when the process that made them has gone.
"""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

from fugu.contract.errors import FuguError
from gateway.cluster.actor import HostActor, State
from gateway.cluster.part import Given

__all__ = ["Cluster", "ClusterError"]

_log = logging.getLogger(__name__)
_LOOK_SECONDS = 2.0
_STOP_SECONDS = 60.0
_CPUS = 0.001
"""Of a node's cores, as Ray counts them: a node that was started with none gets no actor."""


class ClusterError(FuguError):
    """The cluster cannot be used, or a part of a gateway cannot start in it."""


class _Host(HostActor):
    """Takes parts at once where Ray has started it again: nobody may be there to tell it to begin."""

    def __init__(self, given: Given, share: int) -> None:
        import ray

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Ray's own, of how it finds that out
            again = ray.get_runtime_context().was_current_actor_reconstructed
        super().__init__(given, share, begun=again)


class Cluster:
    """A connection to a Ray cluster whose nodes have the same files; one in a process.

    Args:
        address: HOST:PORT of the head node, or "auto" for the cluster of this machine.
        fleet: whose actors are meant.

    Raises:
        ClusterError: there is no such cluster.
    """

    def __init__(self, address: str, fleet: str) -> None:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # else it reports to its makers
        import ray
        import ray.util.scheduling_strategies

        self._ray: Any = ray
        try:
            ray.init(address=address, namespace=f"fugu-{fleet}", log_to_driver=False, logging_level=logging.ERROR)
        except (ConnectionError, ValueError, RuntimeError, ray.exceptions.RayError) as error:
            raise ClusterError(f"no Ray cluster at {address}: {str(error).partition(chr(10))[0]}") from None
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
        """Make an actor on a node, where Ray starts it again when its process has ended; returns its name.

        Args:
            mark: of what it is given; together with the node's, its name.
            share: how many parts it is to take.
        """
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
        """The actors whose nodes live."""
        nodes = set(self.nodes)
        return [name for name in self._actors if name.partition("-")[0] in nodes]

    def _asked(self, method: str, names: Iterable[str], seconds: float) -> dict[str, Any]:
        """What actors answer, as far as they do."""
        return self._answers({name: getattr(self._actors[name], method).remote() for name in names}, seconds)

    def _answers(self, calls: Mapping[str, Any], seconds: float) -> dict[str, Any]:
        found: dict[str, Any] = {}
        if calls:
            done, _ = self._ray.wait(list(calls.values()), num_returns=len(calls), timeout=seconds)
            for name, call in calls.items():
                if call in done:
                    try:
                        found[name] = self._ray.get(call)
                    except self._ray.exceptions.RayError:
                        continue
        return found
