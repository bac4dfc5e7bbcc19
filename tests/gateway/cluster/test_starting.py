"""The process that makes the actors of a cluster, when a node takes none or no node is there."""

from __future__ import annotations

import signal
from collections.abc import Iterable
from typing import Any

import pytest

from fugu.contract.errors import FuguError
from fugu.mqtt import Broker
from gateway.cluster import cluster as cluster_module
from gateway.cluster.cluster import run_cluster
from gateway.store.location import Server
from tests.support.gateway_files import gateway_config


class RefusingCluster:
    """A cluster of two nodes that come after a while; the second takes no actor."""

    def __init__(self, waits: int) -> None:
        self.waits = waits
        self.names: list[str] = []
        self.stopped: list[str] = []

    @property
    def nodes(self) -> list[str]:
        self.waits -= 1
        return [] if self.waits >= 0 else ["first", "second"]

    def make(self, node: str, suffix: str, *_: Any) -> str:
        if node == "second":
            raise FuguError("the node takes no actor")
        self.names.append(f"{node}{suffix}")
        return self.names[-1]

    def stop(self, names: Iterable[str]) -> None:
        self.stopped += names

    def close(self) -> None: ...


@pytest.mark.parametrize("waits", [0, 3])
def test_an_actor_does_not_stay_if_the_next_cannot_be_made_and_a_wait_for_nodes_is_said_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, waits: int
) -> None:
    cluster = RefusingCluster(waits)
    monkeypatch.setattr(cluster_module, "Cluster", lambda *_: cluster)
    monkeypatch.setattr(cluster_module, "_ROUND_SECONDS", 0.01)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    settings = gateway_config("home", Broker(), Server("postgresql://localhost/fugu"), None)
    with pytest.raises(FuguError, match="the node takes no actor"):
        run_cluster(settings, 2, "auto")
    assert (len(cluster.names), cluster.stopped) == (1, cluster.names)
    assert caplog.text.count("no node of the cluster has cores") == (1 if waits else 0)
