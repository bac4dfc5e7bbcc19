"""MQTT packets as bytes, as far as somebody in the middle, or a crowd of small clients, has to understand them."""

from __future__ import annotations

from typing import NamedTuple

__all__ = [
    "Publication",
    "Splitter",
    "acknowledgement",
    "connect",
    "publication",
    "publish",
    "read_length",
    "remaining_length",
    "subscribe",
    "version_of",
]

_CONNECT, _PUBLISH, _PUBACK, _SUBSCRIBE = 1, 3, 4, 8
_USERNAME, _PASSWORD, _CLEAN = 0x80, 0x40, 0x02


class Publication(NamedTuple):
    """Payloads that were published, in any form of packet."""

    topic: str
    payload: bytes
    retain: bool


class Splitter:
    """Cuts one direction of a connection into whole packets."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """The packets that are complete now."""
        self._rest += data
        packets = []
        while (end := _end(self._rest)) is not None and end <= len(self._rest):
            packets.append(bytes(self._rest[:end]))
            del self._rest[:end]
        return packets


def version_of(packet: bytes) -> int | None:
    """The protocol level that a CONNECT names; none of any other packet."""
    return packet[_body(packet) + 6] if packet[0] >> 4 == _CONNECT else None


def publication(packet: bytes, version: int) -> Publication | None:
    if packet[0] >> 4 != _PUBLISH:
        return None
    at = _body(packet)
    size = int.from_bytes(packet[at : at + 2], "big")
    topic = packet[at + 2 : at + 2 + size].decode()
    at += 2 + size + (2 if packet[0] >> 1 & 3 else 0)
    if version == 5:
        length, at = read_length(packet, at)
        at += length
    return Publication(topic, packet[at:], bool(packet[0] & 1))


def publish(publication: Publication, version: int, number: int | None = None) -> bytes:
    """A packet that publishes, at QoS 1 if it has a number, which the answer will have."""
    identity = b"" if number is None else number.to_bytes(2, "big")
    body = _text(publication.topic) + identity + (b"\0" if version == 5 else b"") + publication.payload
    return _packet(_PUBLISH << 4 | (number is not None) << 1 | publication.retain, body)


def acknowledgement(packet: bytes) -> bytes | None:
    """The answer to a publication at QoS 1; none to anything else."""
    if packet[0] >> 4 != _PUBLISH or packet[0] >> 1 & 3 != 1:
        return None
    at = _body(packet)
    at += 2 + int.from_bytes(packet[at : at + 2], "big")
    return _packet(_PUBACK << 4, packet[at : at + 2])


def connect(client_id: str, username: str, password: str, keepalive: int) -> bytes:
    """Begin a session of MQTT 3.1.1, of which nothing is kept."""
    head = _text("MQTT") + bytes([4, _USERNAME | _PASSWORD | _CLEAN]) + keepalive.to_bytes(2, "big")
    return _packet(_CONNECT << 4, head + _text(client_id) + _text(username) + _text(password))


def subscribe(topic: str) -> bytes:
    """Ask for a topic at QoS 1, in MQTT 3.1.1."""
    return _packet(_SUBSCRIBE << 4 | 2, b"\0\1" + _text(topic) + b"\1")


def _packet(first: int, body: bytes) -> bytes:
    return bytes([first]) + remaining_length(len(body)) + body


def _text(text: str) -> bytes:
    return len(text.encode()).to_bytes(2, "big") + text.encode()


def _end(data: bytes | bytearray) -> int | None:
    """Where the first packet ends; none if that cannot be told yet."""
    size = shift = 0
    for at, byte in enumerate(data[1:5], 1):
        size |= (byte & 127) << shift
        if byte < 128:
            return at + 1 + size
        shift += 7
    return None


def _body(packet: bytes) -> int:
    """Where what follows the fixed header begins."""
    return read_length(packet, 1)[1]


def read_length(data: bytes, at: int) -> tuple[int, int]:
    """A number of variable length, and where it ends."""
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at


def remaining_length(number: int) -> bytes:
    """A number as MQTT writes lengths."""
    encoded = bytearray()
    while True:
        number, low = divmod(number, 128)
        encoded.append(low | (128 if number else 0))
        if not number:
            return bytes(encoded)
