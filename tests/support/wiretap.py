"""A TCP relay between a device and its broker that keeps every byte, and can fail; readings to look for."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from collections.abc import Callable, Set
from typing import Literal, Self

__all__ = ["CANARIES", "Line", "Mode", "Wiretap", "traces"]

Mode = Literal["whole", "away", "silent", "slow"]
_SLOW_SECONDS = 0.3
CANARIES = ("71.53194726", "-40962.8642131", "8.66025403784e+17", "canary-7f3a9c", "nan")


class Wiretap:
    """Relays from a free loopback port to a broker, keeps every byte, and ends connections that it `drops`."""

    def __init__(self, broker_port: int, drops: Callable[[int], bool] = lambda _number: False) -> None:
        self.accepted = 0
        self._drops = drops
        self.upstream = bytearray()
        self.downstream = bytearray()
        self._broker_port = broker_port
        self._sockets: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._listener.close()
        self.cut()

    @property
    def is_open(self) -> bool:
        """True while a connection is there, or bytes of one are still to be read."""
        with self._lock:
            return bool(self._sockets)

    def cut(self) -> None:
        """Break every connection there is; new ones are accepted."""
        with self._lock:
            sockets = set(self._sockets)
        self._break(sockets)

    def _break(self, sockets: Set[socket.socket]) -> None:
        for connection in sockets:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def _carries(self, _source: socket.socket) -> bool:
        """True if what comes from an end is forwarded."""
        return True

    def _accept(self) -> None:
        while True:
            try:
                device, _ = self._listener.accept()
            except OSError:
                return
            self.accepted += 1
            if self._drops(self.accepted):
                device.close()
                continue
            try:
                broker = socket.create_connection(("127.0.0.1", self._broker_port))
            except OSError:
                device.close()
                continue
            for source, sink, record in ((device, broker, self.upstream), (broker, device, self.downstream)):
                threading.Thread(target=self._relay, args=(source, sink, record), daemon=True).start()

    def _relay(self, source: socket.socket, sink: socket.socket, record: bytearray) -> None:
        with self._lock:
            self._sockets.add(source)
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if self._carries(source):
                    record += data
                    sink.sendall(data)
        self._break({source, sink})
        with self._lock:
            self._sockets.discard(source)
        source.close()


class Line(Wiretap):
    """A wiretap that fails.

    `away`: connections are refused, and those that there are end. `silent`: nothing is forwarded, and nobody is told;
    such a connection stays dead, and ends when the line is whole again. `slow`: everything takes 0.3 s.
    """

    def __init__(self, broker_port: int) -> None:
        self._mode: Mode = "whole"
        self._dead: set[socket.socket] = set()
        super().__init__(broker_port, drops=lambda _number: self._mode == "away")

    def become(self, mode: Mode) -> None:
        with self._lock:
            if mode == "silent":
                self._dead |= self._sockets
            ends = set(self._dead if mode == "whole" else self._sockets if mode == "away" else ())
            self._mode = mode
        self._break(ends)

    def _carries(self, source: socket.socket) -> bool:
        if self._mode == "slow":
            time.sleep(_SLOW_SECONDS)  # this is the fault
        if self._mode == "silent":
            self._dead.add(source)
        return source not in self._dead


def traces(canary: str) -> list[bytes]:
    """Forms in which a canary could show: text, shortened text, binary numbers of either order."""
    try:
        value = float(canary)
    except ValueError:
        return [canary.encode(), canary.upper().encode(), canary.encode("utf-16-le")]
    if value != value:
        return []
    shortened = [repr(value), f"{value:.4f}", f"{value:.6g}", f"{value:.3f}", canary[:7]]
    return [text.encode() for text in shortened] + [struct.pack(form, value) for form in ("<d", ">d", "<f", ">f")]
