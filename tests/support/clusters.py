"""A fleet on a Ray cluster of this machine: nodes are killed and frozen under load; what comes of it is measured."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing, suppress
from datetime import datetime
from pathlib import Path

import psycopg

from gateway.cluster.cluster import Cluster, parts_served
from gateway.store.location import Server
from gateway.store.shards import owner
from tests.support.brokers import PATIENCE, Mosquitto, wait_until
from tests.support.crowd import Crowd
from tests.support.gateway_files import gateway_file
from tests.support.postgres import Postgres
from tests.support.ray_nodes import Node, Nodes
from tests.support.release_scenes import Public, scheduled, write_config
from tests.support.scenes import policy, write_policies
from tests.support.shard_processes import check_releases, check_store

__all__ = ["Fleet", "lose_nodes"]

_STARTED = "all parts of the gateway"
_WINDOW = 200
_EVENTS = re.compile(r"^(\S+ \S+) INFO (fleet|shard-\d+) (is claimed|has started)$", re.MULTILINE)


class Fleet:
    """`fugu gateway cluster`, run by a process that can be killed and started again."""

    def __init__(
        self, folder: Path, nodes: Nodes, broker: Mosquitto, store: Server, names: Sequence[str], shards: int
    ) -> None:
        self.folder, self.store, self.shards = folder, store, shards
        write_policies(folder / "policies", [policy(1, device=name) for name in names])
        write_config(folder, scheduled(length=_WINDOW))
        files = {"store": store, "policies": "policies", "releases": "releases.toml"}
        gateway_file(folder / "gateway.toml", broker.port, **files)
        self._command = [sys.executable, "-m", "fugu", "gateway", "cluster", "gateway.toml", "--verbose"]
        self._command += ["--address", nodes.address, "--shards", str(shards)]
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
        file = self.folder / "log"
        return file.read_text() if file.exists() else ""

    def stop(self) -> int:
        assert self.process is not None
        self.process.terminate()
        return self.process.wait(PATIENCE)

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait(PATIENCE)

    def epochs(self) -> dict[str, int]:
        """How often each part's store was taken, by the part."""
        with psycopg.connect(self.store.url) as connection:
            rows = connection.execute("SELECT name, epoch FROM holders").fetchall()
        epochs: dict[str, int] = dict(rows)
        del epochs["generation"]
        return {name.replace(" ", "-") or "fleet": epoch for name, epoch in epochs.items()}


def lose_nodes(folder: Path, *, shards: int = 6, devices: int = 60) -> dict[str, float]:
    """Kill a node of three under load, freeze and thaw another one; measure, and check what was stored and released.

    Returns:
        Seconds from the loss of a node until what was on it has been claimed, serves again, and has said of each of its
        devices that it has stored a frame that was made since; and counts.
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
        figures["MB of memory of all processes of a node for it"] = max(map(_megabytes, nodes.nodes))

        killed = _busiest(cluster, shards, nodes.nodes[1:])
        figures |= _lost(fleet, cluster, crowd, nodes, killed, killed.kill, "killed")
        added = nodes.add()
        wait_until(lambda: added.joined, "the new node")
        frozen = _busiest(cluster, shards, [node for node in nodes.nodes[1:] if node is not killed])
        zombies = _on(cluster, shards, frozen)
        figures |= _lost(fleet, cluster, crowd, nodes, frozen, lambda: frozen.send(signal.SIGSTOP), "frozen")

        epochs = fleet.epochs()
        for process in zombies.values():
            os.kill(process, signal.SIGCONT)  # not yet what would end them
        wait_until(lambda: not set(zombies.values()) & frozen.processes().keys(), "the end of who was thought dead")
        figures["parts that were thought dead and went on"] = len(zombies)
        figures["of these refused by the store"] = _said(frozen).count("the gateway ends: another process has taken")
        assert fleet.epochs() == epochs
        frozen.send(signal.SIGCONT)
        _parts(cluster, shards)  # the node is one of them again, or has ended, if Ray has missed it

        crowd.finish()
        wait_until(lambda: crowd.all_stored, "every frame")
        sent = crowd.sent
        complete = min(frames[-1].last + 1 for frames in sent.values()) // _WINDOW
        wait_until(lambda: len(set(public.payloads)) >= complete, "a release of every window")
        assert fleet.epochs() == epochs, "a part was taken from a process that lived"
        assert fleet.stop() == 0, fleet.log
        figures["frames"] = sum(map(len, sent.values()))
        figures["ticks stored, each once"] = check_store(fleet.store, sent)
        figures["releases, each once"] = len(check_releases(fleet.store, public))
    return figures


def _parts(cluster: Cluster, shards: int) -> dict[str, int]:
    """The parts and their processes, once all are served and the actors on all nodes are ready for more."""
    parts: dict[str, int] = {}

    def all_well() -> bool:
        cluster.find()  # that of a new node the command has made
        states = cluster.states().values()
        parts.clear()
        parts.update(parts_served(states))
        return len(parts) == shards + 1 and len(states) == len(cluster.nodes) and all(state.ready for state in states)

    wait_until(all_well, "every part and actor")
    return parts


def _on(cluster: Cluster, shards: int, node: Node) -> dict[str, int]:
    """The parts whose processes are on a node, and these."""
    mine = node.processes().keys()
    return {part: process for part, process in _parts(cluster, shards).items() if process in mine}


def _busiest(cluster: Cluster, shards: int, some: Sequence[Node]) -> Node:
    """The node that is to be lost: the fleet's with a shard, if there is one, else the one with most shards.

    Where other nodes have all shards, the process of a shard is killed until one of these nodes has claimed it.
    """
    while True:
        held = {node: _on(cluster, shards, node).keys() for node in some}
        busiest = max(
            some, key=lambda node: ("fleet" in held[node] and len(held[node]) > 1, len(held[node] - {"fleet"}))
        )
        if held[busiest] - {"fleet"}:
            return busiest
        process = next(process for part, process in _parts(cluster, shards).items() if part != "fleet")
        os.kill(process, signal.SIGKILL)
        wait_until(lambda: process not in _parts(cluster, shards).values(), "another process")  # noqa: B023


def _lost(
    fleet: Fleet, cluster: Cluster, crowd: Crowd, nodes: Nodes, node: Node, lose: Callable[[], None], how: str
) -> dict[str, float]:
    """Lose a node, and wait until what was on it serves elsewhere."""
    lost, epochs = _on(cluster, fleet.shards, node), fleet.epochs()
    devices = [name for name in crowd.sent if f"shard-{owner(name, fleet.shards)}" in lost]
    assert devices, "a node without shards shows nothing"
    others = [other for other in nodes.nodes if other is not node]
    load, worked = os.getloadavg()[0], _worked(others)
    since, wall = time.monotonic(), time.time()
    lose()
    wait_until(lambda: all(crowd.stored_again(name, since) for name in devices), "their devices")
    stored = max(crowd.stored_again(name, since) or 0.0 for name in devices) - since
    claimed = dict[str, float]()
    started = dict[str, float]()

    def all_started() -> bool:
        for other in others:
            for when, part, what in _EVENTS.findall(_said(other)):
                after = datetime.strptime(when, "%Y-%m-%d %H:%M:%S,%f").timestamp() - wall
                if part in lost and after > 0.0:
                    (claimed if what == "is claimed" else started)[part] = after
        return lost.keys() <= started.keys()

    wait_until(all_started, f"the parts of a node that was {how}")
    worked = _worked(others) - worked
    assert {part for part, epoch in fleet.epochs().items() if epoch != epochs[part]} == lost.keys()
    return {
        f"node {how}: processes that wanted a core in the minute before (load)": load,
        f"node {how}: parts on it": len(lost),
        f"node {how}: s until the first of them is claimed": min(claimed.values()),
        f"node {how}: s until the last of them is claimed": max(claimed.values()),
        f"node {how}: s from the claim of a part until it serves, at most": max(started[p] - claimed[p] for p in lost),
        f"node {how}: s until all of them serve": max(started.values()),
        f"node {how}: s until new frames of all of their devices are stored": stored,
        f"node {how}: s of processor time of the other nodes meanwhile": worked,
    }


def _worked(nodes: Sequence[Node]) -> float:
    """Seconds of processor time of all processes of nodes that there are."""
    ticks = 0
    for process in (process for node in nodes for process in node.processes()):
        with suppress(FileNotFoundError, ProcessLookupError):
            fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def _megabytes(node: Node) -> float:
    """Of memory that the processes have that a node has for a fleet; what they share counts once."""
    ticks = 0
    for process, command in node.processes().items():
        if "ray::" in command or "multiprocessing" in command:
            lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
            ticks += next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return ticks / 1024


def _said(node: Node) -> str:
    """The logs of all actors of a node."""
    return "".join(file.read_text() for file in node.folder.glob("session_2*/logs/worker-*.err"))
