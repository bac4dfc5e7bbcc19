"""What the watch over a stream's class has found, told to the device's owner and nobody else.

It follows from true states, without noise. So it is neither in a file nor on the network: `fugu-agent --status` asks
the running agent for it, over a socket beside the outbox that only the agent's own account can open.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Sequence
from pathlib import Path

from edge_agent.stream import Stream

__all__ = ["LocalWatch", "ask_watch"]

_PATIENCE_SECONDS = 5.0
_MOST_WAITING = 4
_MOST_BYTES = 1 << 20


class LocalWatch:
    """The agent's end of the socket; without one, where the system has none or its path is too long, nobody is told."""

    def __init__(self, outbox: str | Path) -> None:
        self._path = _beside(outbox)
        self._socket: socket.socket | None = None
        try:
            if self._path.is_socket():
                self._path.unlink()  # of an agent that was killed: the outbox has one agent at a time
            made = socket.socket(socket.AF_UNIX)
            try:
                made.bind(str(self._path))
                self._path.chmod(0o600)
                made.setblocking(False)
                made.listen(_MOST_WAITING)  # until now nobody could connect
            except BaseException:
                made.close()
                raise
            self._socket = made
        except (OSError, AttributeError):
            pass

    def answer(self, streams: Sequence[Stream]) -> None:
        """Tell those who wait, if anybody does."""
        while self._socket is not None:
            try:
                asked, _ = self._socket.accept()
            except OSError:
                return
            with asked, contextlib.suppress(OSError):
                asked.setblocking(False)
                asked.sendall("\n".join(map(_line, streams)).encode()[:_MOST_BYTES])

    def close(self) -> None:
        """Answer nobody any more."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None
            self._path.unlink(missing_ok=True)


def ask_watch(outbox: str | Path) -> str:
    """What the running agent that has an outbox finds, as lines for people."""
    found = b""
    try:
        with socket.socket(socket.AF_UNIX) as asking:
            asking.settimeout(_PATIENCE_SECONDS)
            asking.connect(str(_beside(outbox)))
            while more := asking.recv(1 << 16):
                found += more
    except (OSError, AttributeError):
        return "  model watch: no answer; the agent that runs gives one, to its own account only"
    return found.decode(errors="replace")


def _line(stream: Stream) -> str:
    text = "nothing that the guarantee assumes of the readings' chain could be seen to be wrong"
    return f"  model watch, stream {stream.plan.stream}: {stream.watch.sentence() if stream.watch else text}"


def _beside(outbox: str | Path) -> Path:
    return Path(f"{outbox}.watch")
