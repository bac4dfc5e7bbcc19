"""A real Mosquitto for tests, on a loopback port of its own; it can be killed and comes back on the same port."""

from __future__ import annotations

import inspect
import itertools
import linecache
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Self

from fugu.mqtt import Broker

__all__ = [
    "COMPUTING",
    "PATIENCE",
    "WORKER",
    "Mosquitto",
    "at_once",
    "await_end",
    "await_free",
    "free_port",
    "has_ended",
    "wait_until",
]

PATIENCE = float(os.environ.get("TESTS_PATIENCE", 120.0))
"""Seconds after which a test gives up waiting: what it waits for comes at once, or late on a machine that is busy."""
COMPUTING = 5.0 * PATIENCE
"""The same for what takes a processor many seconds, such as `fugu plan auto`, while other tests compute as well."""
_AGAIN_SECONDS = 20.0
"""Seconds after which a broker that goes on is told to end again: at times it misses a signal."""
_POLL_SECONDS, _MOST_SECONDS = 0.01, 0.1
_FIRST, _EACH = 20_000, 1_200
WORKER = "TESTS_WORKER"
"""The variable that says which of several processes this is, from 1: each has ports of its own."""
_PORTS = (
    _FIRST + _EACH * (int(os.environ.get(WORKER, 0)) % 10) + number % _EACH for number in itertools.count(os.getpid())
)


def wait_until(
    condition: Callable[[], object],
    what: str = "",
    *,
    instead: Callable[[], object] | None = None,
    patience: float = PATIENCE,
) -> None:
    """Poll until the condition holds; one that takes long to look at, or long to come, is looked at less often.

    An AssertionError says what was waited for, else the line that waits, and what came `instead`, else the condition's
    value. A test that has another patience, in seconds, says why.
    """
    begun = looked = time.monotonic()
    before = time.thread_time()
    while not (value := condition()):
        now = time.monotonic()
        if now >= begun + patience:
            came = value if instead is None else instead()
            raise AssertionError(f"waited {patience:g} s for {what or _line(2)}, in vain: there is {came!r:.1000}")
        pause = min(max(3.0 * (now - looked), 0.1 * (now - begun)), _MOST_SECONDS)
        time.sleep(max(_POLL_SECONDS, pause, 3.0 * (time.thread_time() - before)))
        looked, before = time.monotonic(), time.thread_time()


def _line(above: int) -> str:
    """The call that waits, as it is written."""
    frame = inspect.getframeinfo(sys._getframe(above), context=1)
    lines = frame.positions and range(frame.positions.lineno or 0, (frame.positions.end_lineno or 0) + 1)
    return " ".join(linecache.getline(frame.filename, number).strip() for number in lines or [frame.lineno])


def await_end(thread: threading.Thread, what: str = "") -> None:
    """Wait until a thread has ended, for as long as a test has patience."""
    thread.join(PATIENCE)
    assert not thread.is_alive(), f"waited {PATIENCE:g} s for the end of {what or thread.name}, in vain: it runs"


def at_once(count: int, action: Callable[[], None]) -> None:
    """Do something in so many threads, until all of them have ended."""
    threads = [threading.Thread(target=action) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        await_end(thread)


def has_ended(process: int) -> bool:
    """True of a process that is no more, or waits for nobody but its parent."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):  # it was gone before, or while it was looked at
        return True


class Mosquitto:
    """A broker between `start` and `stop`, or as a context manager; `options` are lines for its listener."""

    def __init__(self, folder: Path | None = None, options: str = "allow_anonymous true\n") -> None:
        self._temporary = tempfile.TemporaryDirectory() if folder is None else None
        self.folder = folder or Path(self._temporary.name if self._temporary else "")
        self.port = free_port()
        self._file = self.folder / "mosquitto.conf"
        self._process: subprocess.Popen[bytes] | None = None
        lines = [
            f"listener {self.port} 127.0.0.1",
            *options.splitlines(),
            "persistence true",
            f"persistence_location {self.folder}/",
            "max_queued_messages 0",
            "autosave_interval 0",
            "set_tcp_nodelay true",
            *(["user root"] if os.geteuid() == 0 else []),
        ]
        self._file.write_text("\n".join(lines) + "\n")

    @property
    def broker(self) -> Broker:
        """Where it is, for a `Link` that comes back soon."""
        return Broker("127.0.0.1", self.port, max_backoff=1)

    def address(self, _name: str) -> Broker:
        """How an account connects; here anybody may."""
        return self.broker

    def start(self) -> Self:
        """Start it, and wait until it accepts connections."""
        path = shutil.which("mosquitto", path=f"{os.environ.get('PATH', '')}{os.pathsep}/usr/sbin")
        assert path is not None, "these tests need mosquitto"
        await_free(self.port)
        with (self.folder / "mosquitto.log").open("ab") as log:
            self._process = subprocess.Popen([path, "-c", str(self._file)], stdout=log, stderr=log)
        wait_until(self._accepts, "mosquitto")
        return self

    def status(self, name: str) -> int:
        """A number of its process's status, such as VmRSS in kB."""
        assert self._process is not None
        lines = Path(f"/proc/{self._process.pid}/status").read_text().splitlines()
        return int(next(line for line in lines if line.startswith(f"{name}:")).split()[1])

    def files(self) -> int:
        """Files and connections that its process has open."""
        assert self._process is not None
        return len(list(Path(f"/proc/{self._process.pid}/fd").iterdir()))

    def reload(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGHUP)

    def stop(self) -> None:
        self._end("terminate")

    def kill(self) -> None:
        self._end("kill")

    def restart(self) -> None:
        """Stop it in order and start it on the same port."""
        self.stop()
        self.start()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()
        if self._temporary is not None:
            self._temporary.cleanup()

    def _end(self, how: str) -> None:
        if self._process is not None:
            end = time.monotonic() + PATIENCE
            while True:
                getattr(self._process, how)()
                try:
                    self._process.wait(_AGAIN_SECONDS)
                    break
                except subprocess.TimeoutExpired:
                    assert time.monotonic() < end, "the broker does not end"
            self._process = None

    def _accepts(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, (self.folder / "mosquitto.log").read_text()
        return _listens(self.port)


def await_free(port: int) -> None:
    """Wait until nobody listens at a port of 127.0.0.1: tests of another checkout would be taken for a server here."""
    wait_until(lambda: not _listens(port), f"port {port}, which another program has")


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def free_port() -> int:
    """A port that nobody uses on any address of this machine.

    It is none of those that the system gives to connections that go out (32768 and above on Linux), nor one of Ray's
    (up to 19999). Nor is it one that another worker of the tests is given, nor one that this process had lately. Who is
    to listen there may take seconds until it does.
    """
    while True:
        port = next(_PORTS)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("", port))  # also none of a node of Ray, at 127.0.0.2
            return port
