"""A process and its machine: what wakes it, its notices to systemd and to people, and its end with its parent."""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Self

__all__ = ["NOTICES", "Notifier", "Wake", "at_stop_signals", "end_with_parent", "first_share"]

NOTICES = logging.getLogger("fugu.notices")
"""Logger of the few lines that a service always logs though nothing is wrong, as INFO."""
NOTICES.setLevel(logging.INFO)

_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG, of prctl(2)


def end_with_parent(parent_id: int) -> None:
    """Let the kernel kill this process when its parent, the process with number `parent_id`, ends.

    The end of the parent's thread that started this process kills it, too. Only Linux has this.
    """
    if sys.platform.startswith("linux"):
        import ctypes  # here, so that the agent does not load it

        ctypes.CDLL(None).prctl(_DEATH_SIGNAL, signal.SIGKILL)
        if os.getppid() != parent_id:  # the parent has ended already
            os._exit(1)


def at_stop_signals(stop: Callable[[], object]) -> None:
    """Let SIGTERM and SIGINT call a function, in the main thread, in place of what they did before."""
    for signal_number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(signal_number, lambda _number, _frame: stop())


_MICROSECONDS = 1e6


class Notifier:
    """Messages to systemd at the path of its socket, or `@name` if the socket is abstract; to nobody if it is ""."""

    def __init__(self, address: str = "", watchdog_seconds: float | None = None) -> None:
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self._alive_pause = None if watchdog_seconds is None else watchdog_seconds / 3
        self._next_alive = float("-inf")
        self._socket: socket.socket | None = None
        if self._address:
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
            self._socket.setblocking(False)

    @classmethod
    def of_process(cls, environment: Mapping[str, str] | None = None, pid: int | None = None) -> Self:
        """Make the notifier of a process from its environment and its number, by default those of this process."""
        variables = os.environ if environment is None else environment
        address = variables.get("NOTIFY_SOCKET", "")
        interval_text, own_pids = variables.get("WATCHDOG_USEC", ""), ("", str(os.getpid() if pid is None else pid))
        is_own = variables.get("WATCHDOG_PID", "") in own_pids
        is_watched = is_own and interval_text.isdecimal() and int(interval_text) > 0
        usable_address = address if address.startswith(("/", "@")) else ""
        return cls(usable_address, int(interval_text) / _MICROSECONDS if usable_address and is_watched else None)

    def starting(self, seconds: float) -> None:
        """Say that the start may take some seconds from now, if systemd would not wait as long."""
        self._send(f"EXTEND_TIMEOUT_USEC={int(seconds * _MICROSECONDS)}")

    def ready(self) -> None:
        """Say that the service has started."""
        self._send("READY=1")

    def alive(self, now: float) -> None:
        """Say that the service works; call this in every round of the main loop, and only there.

        Nothing is sent within a third of the watchdog's time after the last message. `now` is monotonic, in seconds.
        """
        if self._alive_pause is not None and now >= self._next_alive:
            self._next_alive = now + self._alive_pause
            self._send("WATCHDOG=1")

    def stopping(self) -> None:
        """Say that the service has begun to stop."""
        self._send("STOPPING=1")

    def _send(self, message: str) -> None:
        if self._socket is not None:
            with suppress(OSError):
                self._socket.sendto(message.encode(), self._address)


class Wake:
    """An event that a signal handler may set; one thread waits for it, and waiting clears it.

    A `threading.Event` does not do: if the handler interrupts the main thread inside `wait` or `clear`, it waits for
    the event's lock for ever. To release a lock is safe at any moment. A SimpleQueue does not do either: if `get` with
    a timeout is held up for longer than the timeout at the wrong moment, CPython waits in it for ever.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()

    def set(self) -> None:
        """Wake the thread that waits now, or else the next wait."""
        with suppress(RuntimeError):  # the event is set already
            self._lock.release()

    def wait(self, seconds: float) -> bool:
        """Wait until the event is set, and clear it; False if the time was over first."""
        return self._lock.acquire(timeout=seconds)


def first_share(share_times_us: Iterable[int], now_us: int) -> str:
    """Say when data is shared first, in local time, without the date if it is today.

    `share_times_us` are possible moments and `now_us` is the present, in microseconds of Unix time.
    """
    if (first_us := min(share_times_us, default=None)) is None:
        return "nothing is to be shared"
    local_time = time.localtime(first_us / 1e6)
    is_today = local_time[:3] == time.localtime(now_us / 1e6)[:3]
    return f"first share at {time.strftime('%H:%M' if is_today else '%Y-%m-%d %H:%M', local_time)}"
