"""Connections that say nothing: run as a program, it opens them and holds them, and opens anew what is closed.

Usage: python -m tests.support.flood HOST PORT COUNT [SOURCE]      (ends, with all its connections, when it is killed)
"""

from __future__ import annotations

import resource
import select
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from tests.support.brokers import PATIENCE

__all__ = ["ROOT", "Flood"]

ROOT = Path(__file__).parents[2]


class Flood:
    """The program, as a process within a context; further words go before its own, such as `ip netns exec NAME`."""

    def __init__(self, host: str, port: int, count: int, source: str = "", prefix: Sequence[str] = ()) -> None:
        words = [
            sys.executable,
            "-m",
            "tests.support.flood",
            host,
            str(port),
            str(count),
            *([source] if source else []),
        ]
        self.process = subprocess.Popen([*prefix, *words], cwd=ROOT, stdout=subprocess.PIPE, text=True)

    def __enter__(self) -> Self:
        return self

    def send(self) -> None:
        """Wait until as many connections as it should have were made; Mosquitto may have closed them at once."""
        assert self.process.stdout.readline() == "made\n"

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate(timeout=PATIENCE)


def main(host: str, port: int, count: int, source: str = "") -> None:
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    poll, held = select.poll(), dict[int, socket.socket]()
    rounds, is_logged = 0, False
    while True:
        for _ in range(min(2, count - len(held))):  # faster, and they wait unaccepted where they cost nothing
            opened = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
            opened.setblocking(False)
            if source:
                opened.bind((source, 0))
            opened.connect_ex((host, port))
            held[opened.fileno()] = opened
            poll.register(opened, select.POLLOUT)
        time.sleep(0.02)  # this is the pace of the flood, and no wait for anything
        for number, event in poll.poll(0):
            if event == select.POLLOUT:
                rounds += 1
                poll.modify(number, select.POLLIN)
            else:
                poll.unregister(number)
                held.pop(number).close()
        if rounds >= count and not is_logged:
            is_logged = True
            print("made", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), *sys.argv[4:])
