"""MQTT packets as bytes, as far as somebody in the middle has to understand them: publications, and the version."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Publication", "Splitter", "publication", "publish"]

_CONNECT, _PUBLISH = 1, 3


class Publication(NamedTuple):
    """What was published, whatever its packet looked like."""

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
    """What a packet publishes, if it does."""
    if packet[0] >> 4 != _PUBLISH:
        return None
    at = _body(packet)
    size = int.from_bytes(packet[at : at + 2], "big")
    topic = packet[at + 2 : at + 2 + size].decode()
    at += 2 + size + (2 if packet[0] >> 1 & 3 else 0)
    if version == 5:
        length, at = _number(packet, at)
        at += length
    return Publication(topic, packet[at:], bool(packet[0] & 1))


def publish(said: Publication, version: int) -> bytes:
    """A packet that publishes without asking for an answer."""
    topic = said.topic.encode()
    body = len(topic).to_bytes(2, "big") + topic + (b"\0" if version == 5 else b"") + said.payload
    return bytes([_PUBLISH << 4 | said.retain]) + _written(len(body)) + body


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
    return _number(packet, 1)[1]


def _number(data: bytes, at: int) -> tuple[int, int]:
    """A number of variable length, and where it ends."""
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at


def _written(number: int) -> bytes:
    """The same, written."""
    found = bytearray()
    while True:
        number, low = divmod(number, 128)
        found.append(low | (128 if number else 0))
        if not number:
            return bytes(found)
