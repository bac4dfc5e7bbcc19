"""The common MQTT packets in bytes, and limits of what a broker can make us hold of them."""

from __future__ import annotations

import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties, VariableByteIntegers
from paho.mqtt.reasoncodes import ReasonCode

__all__ = [
    "MOST_AROUND",
    "PUBACK",
    "Message",
    "RefusedError",
    "Wishes",
    "acknowledgement",
    "check_packet",
    "check_properties",
    "header",
    "publications",
    "publish",
]


Message = tuple[str, bytes, bool]
"""Topic, payload, and whether it was retained."""

MOST_AROUND = 1 << 12
"""Bytes of a publication that are not payload: its topic, which is ours, and what MQTT 5 may add."""
MOST_CONTROL = 1 << 14
"""Bytes of any other packet."""
_AT_QOS_1, _AT_QOS_2 = 0b010, 0b100


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """Requirements of a link for its client.

    Attributes:
        max_payload: bytes of the largest message that is taken.
        max_in_flight: publications at QoS 1 that are with the broker at the same time.
        refused: called with the reason, in words, before the connection ends.
        received: called in the network thread with messages, before they are acknowledged.
        answered: called with the id of a publication, and why the broker refuses it, if it does.
        gather: wait half a millisecond before a read that follows another within one, so that busy turns bring more.
        dial: opens each connection, if not paho-mqtt by host and port; may raise OSError.
    """

    max_payload: int
    max_in_flight: int
    refused: Callable[[str], None]
    received: Callable[[list[Message]], None]
    answered: Callable[[int, str], None]
    gather: bool = False
    dial: Callable[[], socket.socket] | None = None


class RefusedError(ConnectionError):
    """The broker broke a rule and the connection ends; the text says which."""


def check_packet(command: int, length: int, max_bytes: int, *, is_connected: bool) -> None:
    """Refuse a packet that is too long, or that nobody has asked for (RefusedError), by first byte and length.

    `max_bytes`: bytes of the largest publication. `is_connected`: the broker has accepted the connection.
    """
    packet_type = command >> 4
    max_bytes = max_bytes if packet_type == PacketTypes.PUBLISH else min(max_bytes, MOST_CONTROL)
    if length > max_bytes:
        raise RefusedError(f"the broker sends a packet of {length} bytes; at most {max_bytes} are taken")
    if packet_type == PacketTypes.PUBLISH and command & _AT_QOS_2:
        raise RefusedError("the broker sends at QoS 2, which nobody has asked for")
    if packet_type == PacketTypes.CONNACK and is_connected:
        raise RefusedError("the broker accepts the connection twice")


def check_properties(command: int, packet: bytes | bytearray) -> None:
    """Refuse (RefusedError) too many properties of an MQTT 5 publication: paho-mqtt's time grows with their square."""
    begin = 2 + int.from_bytes(packet[:2], "big") + 2 * bool(command & _AT_QOS_1)
    length, _ = VariableByteIntegers.decode(packet[begin : begin + 4])
    if length > MOST_AROUND:
        raise RefusedError(f"the broker sends {length} bytes of properties; at most {MOST_AROUND} are taken")


_PUBLISH, _KIND_AND_QOS_2 = 0x30, 0xF4
_RETAINED = 0b0001
PUBACK = b"\x40\x02"
"""An acknowledgement, but for the message id."""
_LENGTH_BYTES = 4
_SUCCESS, _NO_SUBSCRIBERS = 0, 16


class Header(NamedTuple):
    """Header of every packet: first byte, length of the body in bytes, and where that begins."""

    command: int
    length: int
    begin: int


def header(chunk: bytes, start: int) -> Header | None:
    """The header of the packet that begins there, `None` if incomplete; ValueError if its length is over four bytes."""
    length = 0
    for byte_index in range(_LENGTH_BYTES):
        begin = start + 2 + byte_index
        if begin > len(chunk):
            return None
        byte = chunk[begin - 1]
        length |= (byte & 127) << 7 * byte_index
        if byte < 128:
            return Header(chunk[start], length, begin)
    raise ValueError("a length of more than four bytes")


def publications(chunk: bytes, start: int, limit: int, mqtt5: bool, messages: list[Message], acks: bytearray) -> int:
    """Take plain publications (whole, well-formed, at QoS 0 or 1, with a topic); return where others begin.

    Properties of MQTT 5 are passed over unread: whoever publishes may add as many as a packet holds, and nothing of
    ours depends on one.
    Bodies of at most `limit` bytes go to `messages`, acknowledgements of what came at QoS 1 to `acks`. ValueError: a
    length has more than four bytes.
    """
    size = len(chunk)
    while start + 4 <= size:
        command, length, begin = chunk[start], chunk[start + 1], start + 2
        if command & _KIND_AND_QOS_2 != _PUBLISH:
            break
        if length > 127 and chunk[begin] < 128:
            length, begin = length - 128 | chunk[begin] << 7, begin + 1
        elif length > 127:
            if (head := header(chunk, start)) is None:
                break
            _, length, begin = head
        stop = begin + length
        if stop > size or not 2 <= length <= limit:
            break
        identity = payload = begin + 2 + (chunk[begin] << 8 | chunk[begin + 1])
        if command & _AT_QOS_1:
            payload += 2
        if mqtt5:
            payload = payload + 1 if payload < stop and not chunk[payload] else _after_properties(chunk, payload, stop)
        if payload > stop or identity == begin + 2:
            break
        try:
            topic = chunk[begin + 2 : identity].decode()
        except UnicodeDecodeError:
            break
        if command & _AT_QOS_1:
            acks += PUBACK
            acks += chunk[identity : identity + 2]
        messages.append((topic, chunk[payload:stop], command & _RETAINED == _RETAINED))
        start = stop
    return start


def _after_properties(chunk: bytes, start: int, stop: int) -> int:
    """Where a block of properties ends that begins there; beyond `stop` if it has no length."""
    length = 0
    for byte_index in range(min(_LENGTH_BYTES, stop - start)):
        byte = chunk[start + byte_index]
        length |= (byte & 127) << 7 * byte_index
        if byte < 128:
            return start + byte_index + 1 + length
    return stop + 1


def publish(topic: bytes, payload: bytes, mid: int, is_mqtt5: bool, *, retain: bool) -> bytearray:
    """A publication at QoS 1, without properties."""
    length = 2 + len(topic) + 2 + is_mqtt5 + len(payload)
    packet = bytearray([_PUBLISH | _AT_QOS_1 | retain])
    while length > 127:
        packet.append(length & 127 | 128)
        length >>= 7
    packet.append(length)
    packet += len(topic).to_bytes(2, "big") + topic + mid.to_bytes(2, "big")
    if is_mqtt5:
        packet.append(0)
    packet += payload
    return packet


def acknowledgement(body: bytes, is_mqtt5: bool) -> tuple[int, str] | None:
    """Read a PUBACK: the message id, and why the broker refuses it, if so; `None`, or MalformedPacket, if malformed."""
    if len(body) < 2 or (len(body) > 2 and not is_mqtt5):
        return None
    if len(body) > 3:
        Properties(PacketTypes.PUBACK).unpack(body[3:])
    mid, code = body[0] << 8 | body[1], body[2] if len(body) > 2 else _SUCCESS
    reason = "" if code in (_SUCCESS, _NO_SUBSCRIBERS) else str(ReasonCode(PacketTypes.PUBACK, identifier=code))
    return mid, reason if code & 128 else ""
