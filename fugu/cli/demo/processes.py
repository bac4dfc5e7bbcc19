"""The processes of a demo: a gateway and a subscriber, started, watched and stopped in order."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from fugu.contract.errors import FuguError
from fugu.host.toml_file import toml_lines

__all__ = ["STOP_SECONDS", "DemoError", "await_that", "gateway", "subscriber"]

START_SECONDS = 900.0
STOP_SECONDS = 300.0


class DemoError(FuguError):
    """A process of the demo did not do what it should."""


def await_that(what: str, condition: Callable[[], bool], seconds: float) -> None:
    """Wait for a condition.

    Raises:
        DemoError: it does not hold in time.
    """
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise DemoError(f"waited {seconds:.0f} s in vain until {what}")
        time.sleep(0.1)


def _complete(file: Path) -> Callable[[], bool]:
    """A condition that holds once a file has not grown between two calls."""
    size = -1

    def same() -> bool:
        nonlocal size
        before, size = size, file.stat().st_size
        return size == before

    return same


@contextmanager
def _process(arguments: Sequence[str], output: Path | None, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A `fugu` command in a process of its own; ended in order when the context ends."""
    with ExitStack() as stack:
        errors = stack.enter_context(log.open("wb"))
        target = errors if output is None else stack.enter_context(output.open("wb"))
        process = subprocess.Popen([sys.executable, "-m", "fugu", *arguments], stdout=target, stderr=errors)
    try:
        yield process
        process.terminate()
        if process.wait(STOP_SECONDS) != 0:
            raise DemoError(f"{arguments[0]} ended with code {process.returncode}: see {log}")
    finally:
        process.kill()


@contextmanager
def gateway(port: int, fleet: str, folder: Path, store: Path, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The gateway, which finds its policies in a folder's `policies`; it has started when the context begins."""
    file = folder / "gateway.toml"
    lines = toml_lines({"fleet": fleet, "store": str(store.resolve()), "policies": "policies"})
    file.write_text("\n".join([*lines, f"broker = {{port = {port}}}", ""]))
    with _process(["gateway", "run", "--verbose", str(file)], None, log) as process:
        await_that("the gateway has started", lambda: "has started" in log.read_text(), START_SECONDS)
        yield process


@contextmanager
def subscriber(port: int, fleet: str, readings: Path, out: Path) -> Iterator[None]:
    """A subscriber whose readings go to a file; when the context ends, it has read everything."""
    arguments = ["subscribe", "--fleet", fleet, "--broker", f"127.0.0.1:{port}", "--json"]
    with _process(arguments, readings, out / "subscriber.log"):
        yield
        await_that("the subscriber has read everything", _complete(readings), STOP_SECONDS)
