"""A fleet on a Ray cluster of this machine: nodes are killed and frozen under load; what comes of it is measured."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from itertools import pairwise
from pathlib import Path

import psycopg
from psycopg.sql import SQL, Identifier

from contract.frames import SymbolFrame
from contract.release_frames import decode_release
from gateway.cluster.actor import State
from gateway.cluster.cluster import Cluster
from gateway.location import Server, part_of
from gateway.release.audit import verify
from gateway.release.ledger import Ledger, ledger_beside
from gateway.service.ownership import owner
from gateway.service.store import Store
from tests.support.brokers import PATIENCE, Mosquitto, wait_until
from tests.support.crowd import Crowd
from tests.support.postgres import Postgres
from tests.support.ray_nodes import Node, Nodes
from tests.support.release_scenes import Public, scheduled, write_config
from tests.support.scenes import policy, write_policies

__all__ = ["Fleet", "check_store", "lose_nodes"]

_STARTED = "all parts of the gateway"
_WINDOW = 200


class Fleet:
    """`fugu gateway cluster`, run by a process that can be killed and started again.

    Args:
        folder: for policies, releases and the log.
    """

    def __init__(
        self, folder: Path, nodes: Nodes, broker: Mosquitto, store: Server, names: Sequence[str], shards: int
    ) -> None:
        self.folder, self.store, self.shards = folder, store, shards
        write_policies(folder / "policies", [policy(1, device=name) for name in names])
        write_config(folder, scheduled(length=_WINDOW))
        self._command = [sys.executable, "-m", "fugu", "gateway", "cluster", "--fleet", "home", "--verbose"]
        self._command += ["--address", nodes.address, "--shards", str(shards), "--broker", f"127.0.0.1:{broker.port}"]
        self._command += ["--store", store.url, "--policies", "policies", "--releases", "releases.toml"]
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Run the command, and wait until it says that everything serves."""
        before = self.log.count(_STARTED)
        with (self.folder / "log").open("ab") as log:
            self.process = process = subprocess.Popen(self._command, stdout=log, stderr=log, cwd=self.folder)
        wait_until(lambda: self.log.count(_STARTED) > before or process.poll() is not None, "the cluster's gateway")
        assert process.poll() is None, self.log

    @property
    def log(self) -> str:
        """What the command has printed."""
        file = self.folder / "log"
        return file.read_text() if file.exists() else ""

    def stop(self) -> int:
        """End it in order; returns its exit code."""
        assert self.process is not None
        self.process.terminate()
        return self.process.wait(PATIENCE)

    def kill(self) -> None:
        """End the command alone."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def epochs(self) -> dict[str, int]:
        """How often each part's store was taken, by the part."""
        found = {}
        with psycopg.connect(self.store.url) as connection:
            (schema,) = connection.execute("SELECT current_schema()").fetchone() or ("",)
            for part in ("", *(f"_shard_{index}" for index in range(self.shards))):
                query = SQL("SELECT coalesce(max(epoch), 0) FROM {}.holders").format(Identifier(schema + part))
                row = connection.execute(query).fetchone()
                found[part.strip("_").replace("_", "-") or "fleet"] = int(row[0]) if row else 0
        return found


def check_store(fleet: Fleet, sent: dict[str, list[SymbolFrame]]) -> int:
    """See that every frame is stored once, where its owner keeps it, and says what was sent; returns how many ticks."""
    ticks = 0
    for name, frames in sent.items():
        with closing(Store(part_of(fleet.store, f"shard-{owner(name, fleet.shards)}"))) as store:
            number = store.stream_id(name, "hr")
            assert number is not None, name
            stored = store.symbols.holding(number, 0, frames[-1].last)
        assert b"".join(one.symbols for one in stored) == b"".join(one.symbols for one in frames), name
        assert all(one.first == before.last + 1 for before, one in pairwise(stored)), name
        ticks += frames[-1].last + 1
    return ticks


def lose_nodes(folder: Path, *, shards: int = 6, devices: int = 60) -> dict[str, float]:
    """Kill a node of three under load, freeze and thaw another one; measure, and check what was stored and released.

    Returns:
        Seconds until what was on the node serves again, until each of its devices has a watermark for a frame that it
        has made since, and counts.
    """
    names = [f"sensor-{index}" for index in range(devices)]
    figures: dict[str, float] = {}
    with ExitStack() as running:
        database = running.enter_context(Postgres(fsync="on", full_page_writes="on"))
        broker = running.enter_context(Mosquitto())
        nodes = running.enter_context(Nodes(3))
        public = Public(broker)
        running.callback(public.link.stop)
        fleet = Fleet(folder, nodes, broker, database.fresh(), names, shards)
        began = time.monotonic()
        fleet.start()
        figures["s until all serve, kernels compiled"] = time.monotonic() - began
        cluster = running.enter_context(closing(Cluster(nodes.address, "home")))
        crowd = running.enter_context(Crowd(broker, names))
        wait_until(lambda: all(crowd.stored_again(name, 0.0) for name in names), "the first frames")

        killed = _busiest(cluster, nodes.nodes[1:])
        figures |= _lost(fleet, cluster, crowd, killed, killed.kill, "killed")
        added = nodes.add()
        wait_until(lambda: added.joined, "the new node")
        frozen = _busiest(cluster, [node for node in nodes.nodes[1:] if node is not killed])
        zombies = _on(cluster, frozen)
        figures |= _lost(fleet, cluster, crowd, frozen, lambda: frozen.send(signal.SIGSTOP), "frozen")

        epochs = fleet.epochs()
        for process in zombies.values():
            os.kill(process, signal.SIGCONT)  # not yet what would end them
        wait_until(lambda: not set(zombies.values()) & frozen.processes().keys(), "the end of who was thought dead")
        said = [_said(frozen, process) for process in zombies.values()]
        figures["parts that were thought dead and went on"] = len(said)
        figures["of these refused by the store"] = sum("another process has taken" in one for one in said)
        assert fleet.epochs() == epochs
        frozen.send(signal.SIGCONT)
        wait_until(lambda: "raylet" not in " ".join(frozen.processes().values()), "the end of the node")

        crowd.finish()
        wait_until(lambda: crowd.settled, "every frame")
        sent = crowd.sent
        complete = min(frames[-1].last + 1 for frames in sent.values()) // _WINDOW
        wait_until(lambda: len(set(public.payloads)) >= complete, "a release of every window")
        assert fleet.stop() == 0, fleet.log
        figures["frames"] = sum(map(len, sent.values()))
        figures["ticks stored, each once"] = check_store(fleet, sent)
        figures["releases, each once"] = _check_releases(fleet, public)
    return figures


def _on(cluster: Cluster, node: Node) -> dict[str, int]:
    """The parts whose processes are on a node, and these."""
    states: dict[str, State] = {}

    def all_answer() -> bool:
        states.update(cluster.states())
        return states.keys() == set(cluster.names)

    wait_until(all_answer, "every part")
    mine = node.processes().keys()
    return {_part(name): state.process for name, state in states.items() if state.process in mine}


def _part(name: str) -> str:
    return name.rpartition("-")[0]


def _busiest(cluster: Cluster, some: Sequence[Node]) -> Node:
    """The node that is to be lost: with the part of the fleet, if it is on one of them, else with most shards."""
    held = {node: _on(cluster, node) for node in some}
    return max(some, key=lambda node: ("fleet" in held[node], len(held[node])))


def _lost(
    fleet: Fleet, cluster: Cluster, crowd: Crowd, node: Node, lose: Callable[[], None], how: str
) -> dict[str, float]:
    """Lose a node, and wait until what was on it serves elsewhere."""
    lost, epochs = _on(cluster, node), fleet.epochs()
    devices = [name for name in crowd.sent if f"shard-{owner(name, fleet.shards)}" in lost]
    assert devices, "a node without shards shows nothing"
    since = time.monotonic()
    lose()
    serving: dict[str, float] = {}

    def serve() -> bool:
        for name, state in cluster.states().items():
            if state.started and state.process != lost.get(_part(name)):
                serving.setdefault(_part(name), time.monotonic() - since)
        return lost.keys() <= serving.keys()

    wait_until(serve, f"the parts of a node that was {how}")
    wait_until(lambda: all(crowd.stored_again(name, since) for name in devices), "their devices")
    assert {part for part, epoch in fleet.epochs().items() if epoch != epochs[part]} == lost.keys()
    stored = max(crowd.stored_again(name, since) or 0.0 for name in devices) - since
    return {
        f"parts on the node that was {how}": len(lost),
        f"s until they serve, node {how}": max(serving[part] for part in lost),
        f"s until each of their devices' new frames are stored, node {how}": stored,
    }


def _said(node: Node, process: int) -> str:
    """The log of an actor's process."""
    return "".join(file.read_text() for file in node.folder.glob(f"session_2*/logs/worker-*-{process}.err"))


def _check_releases(fleet: Fleet, public: Public) -> int:
    """See that the ledger has each release that was published, once, and nothing else; returns how many there are."""
    payloads = list(dict.fromkeys(public.payloads))  # the newest is published again at every start
    released = [decode_release(payload) for payload in payloads]
    assert len({one.first for one in released}) == len(released)
    with closing(Ledger(ledger_beside(fleet.store))) as ledger:
        entries = ledger.entries()
        published = {one.entry: payload for one, payload in zip(released, payloads, strict=True)}
        assert verify(ledger, published).problems == ()
    assert len(entries) == len(released) > 0, f"{len(entries)} entries, {len(released)} releases"
    return len(released)
