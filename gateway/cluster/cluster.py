"""The actors of a fleet in a Ray cluster: found or made, looked at, and stopped in order.

They have names in a namespace of the fleet, and belong to nobody: they go on when the process that made them has gone.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Mapping
from typing import Any

from contract.errors import FuguError
from gateway.cluster.actor import GatewayActor, Given, State

__all__ = ["Cluster", "ClusterError"]

_log = logging.getLogger(__name__)
_LOOK_SECONDS = 2.0
_STOP_SECONDS = 60.0
_CPUS = 0.001
"""Of a node's cores, as Ray counts them: a node that was started with none gets no shard, all others any number."""


class ClusterError(FuguError):
    """The cluster cannot be used, or a part of a gateway cannot start in it."""


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

        self._ray: Any = ray
        try:
            ray.init(address=address, namespace=f"fugu-{fleet}", log_to_driver=False, logging_level=logging.ERROR)
        except (ConnectionError, ValueError, RuntimeError, ray.exceptions.RayError) as error:
            raise ClusterError(f"no Ray cluster at {address}: {str(error).partition(chr(10))[0]}") from None
        self._actors: dict[str, Any] = {name: ray.get_actor(name) for name in ray.util.list_named_actors()}

    def close(self) -> None:
        """Disconnect; the actors go on."""
        self._ray.shutdown()

    @property
    def names(self) -> list[str]:
        """The actors that there are."""
        return sorted(self._actors)

    @property
    def nodes(self) -> int:
        """How many there are that take actors."""
        return sum(one["Alive"] and one["Resources"].get("CPU", 0) > 0 for one in self._ray.nodes())

    def make(self, name: str, given: Given, own: str = "") -> None:
        """Make an actor on the node whose turn it is; Ray starts it again, there or elsewhere, when it has ended.

        Args:
            own: the part that it claims if nobody has it.
        """
        options: dict[str, Any] = {"lifetime": "detached", "max_restarts": -1, "scheduling_strategy": "SPREAD"}
        made = self._ray.remote(GatewayActor).options(name=name, num_cpus=_CPUS, **options)
        self._actors[name] = made.remote(given, own)

    def states(self) -> dict[str, State]:
        """How each actor is that answers: one that is being started again does not, nor does one that is cut off."""
        return self._answers({name: actor.state.remote() for name, actor in self._actors.items()}, _LOOK_SECONDS)

    def stop(self, names: Iterable[str]) -> None:
        """Stop actors in order, all at once, and end their processes."""
        gone = {name: self._actors.pop(name) for name in names}
        answered = self._answers({name: actor.stop.remote() for name, actor in gone.items()}, _STOP_SECONDS)
        for name, actor in gone.items():
            if name not in answered:
                _log.error("%s does not answer: it is ended as it is", name)
            self._ray.kill(actor)

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
