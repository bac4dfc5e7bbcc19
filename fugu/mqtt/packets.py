"""The common MQTT packets in bytes, and limits on the memory that a broker can make us use."""

from __future__ import annotations

import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties, VariableByteIntegers
from paho.mqtt.reasoncodes import ReasonCode

__all__ = [
    "MOST_OVERHEAD",
    "PUBACK",
    "ClientOptions",
    "Message",
    "RefusedError",
    "check_packet",
    "check_properties",
    "encode_publish",
    "read_acknowledgement",
    "read_header",
    "read_publications",
]

Message = tuple[str, bytes, bool]
"""Topic, payload, and whether the message was retained."""

MOST_OVERHEAD = 1 << 12
"""Most bytes of a publication beside its payload: the topic, and the properties of MQTT 5."""
MOST_CONTROL = 1 << 14
"""Most bytes of any other packet."""
_AT_QOS_1, _AT_QOS_2 = 0b010, 0b100


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientOptions:
    """Options of a client, which its link chooses.

    Attributes:
        max_payload: bytes of the largest message that is taken.
        max_in_flight: most publications at QoS 1 that are with the broker at the same time.
        on_refused: called with the reason, in words, before the connection ends.
        on_received: called in the network thread with messages, before they are acknowledged.
        on_answered: called with the id of a publication, and the reason if the broker refuses it, else "".
        gathers: wait half a millisecond before a read that follows messages within a millisecond, to read more at once.
        dial: opens each connection, and may raise OSError; `None` lets paho-mqtt connect to host and port.
    """

    max_payload: int
    max_in_flight: int
    on_refused: Callable[[str], None]
    on_received: Callable[[list[Message]], None]
    on_answered: Callable[[int, str], None]
    gathers: bool = False
    dial: Callable[[], socket.socket] | None = None


class RefusedError(ConnectionError):
    """The broker broke a rule, which the text names; the connection ends."""


def check_packet(command: int, length: int, max_bytes: int, *, is_connected: bool) -> None:
    """Raise a RefusedError for a packet that is too long or was not asked for, by its first byte and its length.

    `max_bytes` is the length of the largest publication. `is_connected`: the broker has accepted the connection.
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
    """Raise a RefusedError for too many properties in an MQTT 5 publication.

    The time that paho-mqtt takes grows with the square of their number.
    """
    properties_start = 2 + int.from_bytes(packet[:2], "big") + 2 * bool(command & _AT_QOS_1)
    length, _ = VariableByteIntegers.decode(packet[properties_start : properties_start + 4])
    if length > MOST_OVERHEAD:
        raise RefusedError(f"the broker sends {length} bytes of properties; at most {MOST_OVERHEAD} are taken")


_PUBLISH, _KIND_AND_QOS_2 = 0x30, 0xF4
_RETAINED = 0b0001
PUBACK = b"\x40\x02"
"""An acknowledgement without its message id."""
_LENGTH_BYTES = 4
_SUCCESS, _NO_SUBSCRIBERS = 0, 16


class Header(NamedTuple):
    """Header of a packet: first byte, length of the body in bytes, and the offset at which the body begins."""

    command: int
    length: int
    body_start: int


def read_header(buffer: bytes, start: int) -> Header | None:
    """Read the header of the packet at `start`; `None` if it is incomplete, ValueError for a length of over 4 bytes."""
    length = 0
    for byte_index in range(_LENGTH_BYTES):
        body_start = start + 2 + byte_index
        if body_start > len(buffer):
            return None
        byte = buffer[body_start - 1]
        length |= (byte & 127) << 7 * byte_index
        if byte < 128:
            return Header(buffer[start], length, body_start)
    raise ValueError("a length of more than four bytes")


def read_publications(
    buffer: bytes, start: int, max_length: int, is_mqtt5: bool, messages: list[Message], acks: bytearray
) -> int:
    """Read plain publications (whole, well-formed, at QoS 0 or 1, with a topic, of at most `max_length` bytes).

    Return the offset of the first other packet. Messages are added to `messages`, acknowledgements of publications at
    QoS 1 to `acks`. Properties of MQTT 5 are skipped unread: a publisher may add many, and nothing here depends on
    one. ValueError: a length has more than four bytes.
    """
    buffer_length = len(buffer)
    while start + 4 <= buffer_length:
        command, length, body_start = buffer[start], buffer[start + 1], start + 2
        if command & _KIND_AND_QOS_2 != _PUBLISH:
            break
        if length > 127 and buffer[body_start] < 128:
            length, body_start = length - 128 | buffer[body_start] << 7, body_start + 1
        elif length > 127:
            if (packet_header := read_header(buffer, start)) is None:
                break
            _, length, body_start = packet_header
        stop = body_start + length
        if stop > buffer_length or not 2 <= length <= max_length:
            break
        topic_end = offset = body_start + 2 + (buffer[body_start] << 8 | buffer[body_start + 1])
        if command & _AT_QOS_1:
            offset += 2
        if is_mqtt5:
            offset = offset + 1 if offset < stop and not buffer[offset] else _after_properties(buffer, offset, stop)
        if offset > stop or topic_end == body_start + 2:
            break
        try:
            topic = buffer[body_start + 2 : topic_end].decode()
        except UnicodeDecodeError:
            break
        if command & _AT_QOS_1:
            acks += PUBACK
            acks += buffer[topic_end : topic_end + 2]
        messages.append((topic, buffer[offset:stop], command & _RETAINED == _RETAINED))
        start = stop
    return start


def _after_properties(buffer: bytes, start: int, stop: int) -> int:
    """Return the offset at which the properties that begin at `start` end; beyond `stop` if they have no length."""
    length = 0
    for byte_index in range(min(_LENGTH_BYTES, stop - start)):
        byte = buffer[start + byte_index]
        length |= (byte & 127) << 7 * byte_index
        if byte < 128:
            return start + byte_index + 1 + length
    return stop + 1


def encode_publish(topic: bytes, payload: bytes, mid: int, is_mqtt5: bool, *, retain: bool) -> bytearray:
    """Encode a publication at QoS 1, without properties."""
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


def read_acknowledgement(packet_body: bytes, is_mqtt5: bool) -> tuple[int, str] | None:
    """Read a PUBACK: the message id, and the reason if the broker refuses the message, else "".

    `None`, or a MalformedPacket, if it is malformed.
    """
    if len(packet_body) < 2 or (len(packet_body) > 2 and not is_mqtt5):
        return None
    if len(packet_body) > 3:
        Properties(PacketTypes.PUBACK).unpack(packet_body[3:])
    mid, code = packet_body[0] << 8 | packet_body[1], packet_body[2] if len(packet_body) > 2 else _SUCCESS
    reason = "" if code in (_SUCCESS, _NO_SUBSCRIBERS) else str(ReasonCode(PacketTypes.PUBACK, identifier=code))
    return mid, reason if code & 128 else ""
