"""Telling systemd that a service has started, is alive, or is about to stop (the protocol of sd_notify).

Outside systemd, where there is no NOTIFY_SOCKET, nothing happens; nor does a lost message ever disturb the service.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Mapping
from typing import Self

__all__ = ["Notifier"]

_MICROSECONDS = 1e6


class Notifier:
    """Messages to the service manager.

    Args:
        address: path of its socket, or `@name` of an abstract one; empty if there is none.
        watchdog_seconds: time after which it ends a service that it has not heard of; none if it does not.
    """

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
        """The notifier that this process was started with.

        Args:
            environment, pid: those of this process, unless others are given.
        """
        variables = os.environ if environment is None else environment
        address = variables.get("NOTIFY_SOCKET", "")
        time, whose = variables.get("WATCHDOG_USEC", ""), variables.get("WATCHDOG_PID", "")
        watched = time.isdecimal() and int(time) > 0 and whose in ("", str(os.getpid() if pid is None else pid))
        usable = address if address.startswith(("/", "@")) else ""
        return cls(usable, int(time) / _MICROSECONDS if usable and watched else None)

    def starting(self, seconds: float) -> None:
        """The start may take so long from now, if that is longer than the service manager waits."""
        self._send(f"EXTEND_TIMEOUT_USEC={int(seconds * _MICROSECONDS)}")

    def ready(self) -> None:
        """The service has started: what waits for it may start too."""
        self._send("READY=1")

    def alive(self, now: float) -> None:
        """The service works; call it in every round of the main loop, and only there.

        Args:
            now: seconds of a steady clock; what comes sooner than a third of the watchdog's time is not sent.
        """
        if self._pause is not None and now >= self._next:
            self._next = now + self._pause
            self._send("WATCHDOG=1")

    def status(self, text: str) -> None:
        """One line for people, in `systemctl status`."""
        self._send("STATUS=" + " ".join(text.split()))

    def stopping(self) -> None:
        """The service has begun to stop."""
        self._send("STOPPING=1")

    def close(self) -> None:
        """Say nothing any more."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _send(self, message: str) -> None:
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.sendto(message.encode(), self._address)
