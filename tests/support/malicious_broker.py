"""A TCP server that speaks just enough MQTT to be believed, and then does what a test wants it to do."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable
from itertools import chain, repeat

from fugu.mqtt import Broker
from tests.support.mqtt_packets import remaining_length

__all__ = ["HUGE", "MaliciousBroker", "Victim", "publication"]

HUGE = 2**28 - 1
"""The largest remaining length that MQTT knows."""
_BLOCK = bytes(1 << 16)


def publication(topic: str, payload: bytes, version: int, properties: bytes = b"") -> bytes:
    """A PUBLISH packet at QoS 0."""
    body = len(topic).to_bytes(2, "big") + topic.encode()
    if version == 5:
        body += remaining_length(len(properties)) + properties
    return b"\x30" + remaining_length(len(body) + len(payload)) + body + payload


class Victim:
    """One connection, whose CONNECT has been read; its version is 4 for MQTT 3.1.1, or 5."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        header = connection.recv(2)
        length, shift = header[1] & 127, 7
        while header[-1] & 128:
            header += connection.recv(1)
            length += (header[-1] & 127) << shift
            shift += 7
        body = b""
        while len(body) < length and (more := connection.recv(length - len(body))):
            body += more
        self.version = body[6]
        self.taken = 0

    def accept(self) -> None:
        self.send(b"\x20\x03\0\0\0" if self.version == 5 else b"\x20\x02\0\0")

    def send(self, *parts: bytes) -> None:
        """Send; raises OSError when the victim has gone."""
        for part in parts:
            self._connection.sendall(part)
            self.taken += len(part)

    def trickle(self, content: bytes) -> None:
        """Send byte by byte, each in a packet of its own."""
        for byte in content:
            self.send(bytes([byte]))
            time.sleep(0.01)

    def claim(self, first: int, length: int = HUGE) -> None:
        """Send a packet of that length, whose first byte is given."""
        self.send(bytes([first]), remaining_length(length))
        for _ in range(length // len(_BLOCK) + 1):
            self.send(_BLOCK)

    def until_it_goes(self) -> None:
        """Read until the victim has closed the connection."""
        while self._connection.recv(1 << 16):
            pass

    def listen_for(self, content: bytes) -> None:
        """Read until there was something in what the victim sends; raises OSError if it goes before."""
        heard = b""
        while content not in heard:
            if not (more := self._connection.recv(1 << 16)):
                raise ConnectionResetError
            heard = heard[-len(content) :] + more

    def send_without_reading(self, packets: bytes) -> None:
        """Send the same again and again."""
        for block in repeat(packets):
            self.send(block)


class MaliciousBroker:
    """Serves one connection after the other while the context lasts, each by its attack; the last is repeated."""

    def __init__(self, *attacks: Callable[[Victim], None]) -> None:
        self._attacks = chain(attacks, repeat(attacks[-1]))
        self._ending = False
        self.times: list[float] = []
        self.victims: list[Victim] = []

    @property
    def broker(self) -> Broker:
        return Broker("127.0.0.1", self._port, max_backoff=30)

    def __enter__(self) -> MaliciousBroker:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._port = int(self._listener.getsockname()[1])
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop listening; a connection that is left ends with its victim."""
        self._ending = True
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _serve(self) -> None:
        while not self._ending:
            with contextlib.suppress(OSError, IndexError):  # the victim has gone, which is what it should do
                connection, _ = self._listener.accept()
                with connection:
                    self.times.append(time.monotonic())
                    self.victims.append(victim := Victim(connection))
                    next(self._attacks)(victim)
                    victim.until_it_goes()
