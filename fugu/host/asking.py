"""Asking a running process: a socket beside one of its files, which only its own account can open."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Callable
from pathlib import Path

__all__ = ["Answering", "ask"]

_PATIENCE_SECONDS = 5.0
_MOST_WAITING = 4
_MOST_BYTES = 1 << 20


class Answering:
    """The running process's end; without one, where the system has none or its path is too long, nobody is told.

    Its socket is of mode 0600, and replaces what a killed process left there: what it belongs to has one process at a
    time.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._socket: socket.socket | None = None
        self._node = 0
        try:
            if path.is_socket():
                path.unlink()
            made = socket.socket(socket.AF_UNIX)
            try:
                os.fchmod(made.fileno(), 0o600)  # Linux gives the file this mode, less the umask
                made.bind(str(path))
                self._node = path.stat().st_ino
                path.chmod(0o600)
                made.listen(_MOST_WAITING)  # until now nobody could connect
            except BaseException:
                made.close()
                raise
            self._socket = made
        except (OSError, AttributeError):
            pass

    def answer(self, text: Callable[[], str], seconds: float = 0.0) -> bool:
        """Tell one that waits, or comes within some seconds, and has as many to take it; whether anybody did.

        The text is of at most a megabyte.
        """
        if self._socket is None:
            return False
        self._socket.settimeout(seconds)
        try:
            asking, _ = self._socket.accept()
        except OSError:
            return False
        with asking, contextlib.suppress(OSError):
            asking.settimeout(seconds)
            asking.sendall(text().encode()[:_MOST_BYTES])
        return True

    @property
    def is_open(self) -> bool:
        """True if anybody can ask."""
        return self._socket is not None

    def close(self) -> None:
        """Answer nobody any more."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None
            with contextlib.suppress(OSError):
                if self._path.stat().st_ino == self._node:  # else it is that of a process that has this one's place
                    self._path.unlink()


def ask(path: Path) -> str | None:
    """Answer of the process; `None` if there is no process, or this account may not ask it."""
    found = b""
    try:
        with socket.socket(socket.AF_UNIX) as asking:
            asking.settimeout(_PATIENCE_SECONDS)
            asking.connect(str(path))
            while more := asking.recv(1 << 16):
                found += more
    except (OSError, AttributeError):
        return None
    return found.decode(errors="replace")
