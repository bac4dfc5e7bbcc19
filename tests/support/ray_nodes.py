"""Nodes of a Ray cluster on this machine, each at a loopback address of its own; one can be killed or frozen."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Self

from tests.support.brokers import PATIENCE, free_port, wait_until

__all__ = ["SYSTEM_CONFIG", "Node", "Nodes"]

SYSTEM_CONFIG = {
    "health_check_period_ms": 1000,
    "health_check_timeout_ms": 2000,
    "health_check_failure_threshold": 5,
    "worker_niceness": 0,
}
"""Those of docs/cluster.md."""
_MEMORY = 80_000_000
"""Bytes of a node's object store, which nobody uses."""


class Node:
    """Processes of `ray start`: one and all that it has started."""

    def __init__(self, address: str, words: list[str], folder: Path) -> None:
        self.address = address
        self.folder = folder
        self._log = folder / "log"
        command = [sys.executable, "-m", "ray.scripts.scripts", "start", "--block", "--disable-usage-stats"]
        command += ["--node-ip-address", address, "--num-cpus", "2", "--object-store-memory", str(_MEMORY)]
        command += ["--temp-dir", str(folder), *words]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=folder)

    @property
    def joined(self) -> bool:
        assert self._process.poll() is None, self._log.read_text()
        return "Ray runtime started" in self._log.read_text()

    def processes(self) -> dict[int, str]:
        """All of them that have not ended, and their command lines."""
        commands, pids = {}, [self._process.pid]
        while pids:
            pid = pids.pop()
            with suppress(FileNotFoundError, ProcessLookupError):
                if command := Path(f"/proc/{pid}/cmdline").read_bytes():
                    commands[pid] = command.replace(b"\0", b" ").decode().strip()
                for task in Path(f"/proc/{pid}/task").iterdir():
                    pids += map(int, (task / "children").read_text().split())
        return commands

    def send(self, number: signal.Signals) -> None:
        for process in self.processes():
            with suppress(ProcessLookupError):
                os.kill(process, number)

    def kill(self) -> None:
        self.send(signal.SIGSTOP)  # else what is left would start others
        self.send(signal.SIGKILL)
        self._process.wait(PATIENCE)


class Nodes:
    """A cluster of so many nodes, as a context manager; the first is the head.

    The environment of this process is changed for the time: what connects to the cluster finds its token there.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._port = free_port()
        self._temporary = tempfile.TemporaryDirectory(prefix="ray-")  # short: the paths of its sockets are long
        self._folder = Path(self._temporary.name)
        self._before: dict[str, str | None] = {}
        self.nodes: list[Node] = []

    @property
    def address(self) -> str:
        return f"127.0.0.2:{self._port}"

    def add(self) -> Node:
        index = len(self.nodes)
        folder = self._folder / str(index)
        folder.mkdir()
        words = ["--address", self.address]
        if index == 0:
            words = ["--head", "--port", str(self._port), "--include-dashboard=false"]
            words += ["--system-config", json.dumps(SYSTEM_CONFIG)]
        self.nodes.append(Node(f"127.0.0.{index + 2}", words, folder))
        return self.nodes[-1]

    def __enter__(self) -> Self:
        token = self._folder / "token"
        token.write_text(os.urandom(16).hex())
        token.chmod(0o600)
        for name, value in (("RAY_AUTH_MODE", "token"), ("RAY_AUTH_TOKEN_PATH", str(token))):
            self._before[name] = os.environ.get(name)
            os.environ[name] = value
        self.add()
        wait_until(lambda: self.nodes[0].joined, "Ray's head node")
        for _ in range(1, self._count):
            self.add()
        for node in self.nodes:
            wait_until(lambda node=node: node.joined, f"the node {node.address}")  # type: ignore[misc]
        return self

    def __exit__(self, *_: object) -> None:
        for node in self.nodes:
            node.kill()
        for name, before in self._before.items():
            if before is None:
                del os.environ[name]
            else:
                os.environ[name] = before
        self._temporary.cleanup()
