"""A process as its machine sees it: what wakes it, what systemd and whoever started it is told, with what it ends."""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Self

__all__ = ["NOTICES", "Notifier", "Wake", "end_with_parent", "first_share"]

NOTICES = logging.getLogger("fugu.notices")
"""For the few lines that whoever started a service waits for though nothing is wrong: they come unasked, as INFO."""
NOTICES.setLevel(logging.INFO)


_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG, of prctl(2)


def end_with_parent(parent: int) -> None:
    """Let the kernel kill this process when its parent, of that number, has ended, whatever either is doing then.

    So does the end of the parent's thread that has begun it. Other systems than Linux do not have this.
    """
    if sys.platform.startswith("linux"):
        import ctypes  # here, so that the agent does not load it

        ctypes.CDLL(None).prctl(_DEATH_SIGNAL, signal.SIGKILL)
        if os.getppid() != parent:  # it has ended already
            os._exit(1)


_MICROSECONDS = 1e6


class Notifier:
    """Messages to systemd at a socket's path, or `@name` if it is abstract; to nobody if that is empty."""

    def __init__(self, address: str = "", watchdog_seconds: float | None = None) -> None:
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self._pause = None if watchdog_seconds is None else watchdog_seconds / 3
        self._next = float("-inf")
        self._socket: socket.socket | None = None
        if self._address:
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
            self._socket.setblocking(False)

    @classmethod
    def of_process(cls, environment: Mapping[str, str] | None = None, pid: int | None = None) -> Self:
        """The notifier that this process, unless others are given, was started with."""
        variables = os.environ if environment is None else environment
        address = variables.get("NOTIFY_SOCKET", "")
        usec, owner = variables.get("WATCHDOG_USEC", ""), variables.get("WATCHDOG_PID", "")
        is_watched = usec.isdecimal() and int(usec) > 0 and owner in ("", str(os.getpid() if pid is None else pid))
        usable = address if address.startswith(("/", "@")) else ""
        return cls(usable, int(usec) / _MICROSECONDS if usable and is_watched else None)

    def starting(self, seconds: float) -> None:
        """The start may take so long from now, if that is longer than the service manager waits."""
        self._send(f"EXTEND_TIMEOUT_USEC={int(seconds * _MICROSECONDS)}")

    def ready(self) -> None:
        """The service has started: what waits for it may start too."""
        self._send("READY=1")

    def alive(self, now: float) -> None:
        """The service works; call it in every round of the main loop, and only there.

        What comes sooner than a third of the watchdog's time, by a steady clock in seconds, is not sent.
        """
        if self._pause is not None and now >= self._next:
            self._next = now + self._pause
            self._send("WATCHDOG=1")

    def stopping(self) -> None:
        """The service has begun to stop."""
        self._send("STOPPING=1")

    def _send(self, message: str) -> None:
        if self._socket is not None:
            with suppress(OSError):
                self._socket.sendto(message.encode(), self._address)


class Wake:
    """An event that a signal handler may set, and that is over once it has been waited for; one thread waits.

    A handler in the main thread would wait for the lock of a `threading.Event` for ever while this is about to wait, or
    to clear the event. Releasing a lock is safe at any moment. A SimpleQueue does not do: if `get` with a timeout is
    held up for longer than that at the wrong moment, CPython waits in it for ever.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()

    def set(self) -> None:
        """Wake the thread that waits, or the next one that will."""
        with suppress(RuntimeError):  # it is set
            self._lock.release()

    def wait(self, seconds: float) -> bool:
        """Wait until it is set; whether it was, before the time was over."""
        return self._lock.acquire(timeout=seconds)


def first_share(shares_us: Iterable[int], now_us: int) -> str:
    """When something is shared first, for whoever started a service and waits; of today the time alone."""
    if (first_us := min(shares_us, default=None)) is None:
        return "nothing is to be shared"
    local_time = time.localtime(first_us / 1e6)
    is_today = local_time[:3] == time.localtime(now_us / 1e6)[:3]
    return f"first share at {time.strftime('%H:%M' if is_today else '%Y-%m-%d %H:%M', local_time)}"
