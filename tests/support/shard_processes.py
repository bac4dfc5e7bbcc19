"""Processes of a gateway in shards, each started by itself as `fugu gateway run --shard`."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

from gateway.store.location import Server
from tests.support.brokers import PATIENCE, Mosquitto
from tests.support.gateway_files import gateway_file

__all__ = ["Process"]


class Process:
    """`fugu gateway run` with a role."""

    def __init__(self, folder: Path, broker: Mosquitto, server: Server, role: str, name: str = "first") -> None:
        self._log = folder / f"{role.replace('/', '-of-')}-{name}.log"
        files = {"policies": "policies", "releases": "releases.toml"}
        file = gateway_file(folder / "gateway.toml", broker.port, store=server, **files)
        command = [sys.executable, "-m", "fugu", "gateway", "run", str(file), "--verbose", "--shard", role]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)

    @property
    def log(self) -> str:
        return self._log.read_text()

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def ended(self) -> int:
        """Wait until it has ended; returns its exit code."""
        return self._process.wait(PATIENCE)

    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def end(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait(PATIENCE)
