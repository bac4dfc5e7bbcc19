"""A line between a device and its broker on loopback, which can be away, silent or slow."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from typing import Literal

__all__ = ["Line", "Mode"]

Mode = Literal["whole", "away", "silent", "slow"]
_SLOW_SECONDS = 0.3


class Line:
    """Listens on a free port, and forwards to a broker on another.

    `away`: connections are refused, and those that there are end. `silent`: nothing is forwarded, and nobody is told;
    such a connection stays dead, and ends when the line is whole again. `slow`: everything takes .3 s.

    Attributes:
        port: where the device connects.
        carried: bytes towards the broker, and from it.
    """

    def __init__(self, broker_port: int) -> None:
        self.carried = [0, 0]
        self._broker_port = broker_port
        self._mode: Mode = "whole"
        self._open: set[socket.socket] = set()
        self._dead: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def become(self, mode: Mode) -> None:
        """Change what the line does."""
        with self._lock:
            if mode == "silent":
                self._dead |= self._open
            ends = set(self._dead if mode == "whole" else self._open | self._dead if mode == "away" else ())
            self._mode = mode
        for end in ends:
            self._end(end)

    def close(self) -> None:
        """End it."""
        self._listener.close()
        self.become("away")

    def _accept(self) -> None:
        while True:
            try:
                device, _ = self._listener.accept()
            except OSError:
                return
            if self._mode == "away":
                device.close()
                continue
            try:
                broker = socket.create_connection(("127.0.0.1", self._broker_port))
            except OSError:
                device.close()
                continue
            with self._lock:
                self._open |= {device, broker}
                if self._mode == "silent":
                    self._dead |= {device, broker}
            for way, (source, sink) in enumerate(((device, broker), (broker, device))):
                threading.Thread(target=self._forward, args=(source, sink, way), daemon=True).start()

    def _forward(self, source: socket.socket, sink: socket.socket, way: int) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if self._mode == "slow":
                    time.sleep(_SLOW_SECONDS)  # this is the fault
                if source not in self._dead:
                    sink.sendall(data)
                    self.carried[way] += len(data)
        for end in (source, sink):
            self._end(end)

    def _end(self, end: socket.socket) -> None:
        with self._lock:
            self._open.discard(end)
            self._dead.discard(end)
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
        end.close()
