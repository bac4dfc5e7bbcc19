"""What a link wants of a client, and limits of what a broker can make us hold.

A packet is judged when its first byte and length are known.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from dataclasses import dataclass

from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import VariableByteIntegers

__all__ = [
    "MOST_AROUND",
    "MOST_UNACKNOWLEDGED",
    "MOST_UNSENT",
    "Message",
    "RefusedError",
    "Wishes",
    "check_packet",
    "check_properties",
]

Message = tuple[str, bytes, bool]
"""Topic, payload, and whether it was retained."""

MOST_AROUND = 1 << 12
"""Bytes of a publication that are not payload: its topic, which is ours, and what MQTT 5 may add."""
MOST_CONTROL = 1 << 14
"""Bytes of any other packet."""
MOST_UNSENT = 10_000
"""Packets that wait because the broker does not read; a broker that only writes would let answers pile up."""
MOST_UNACKNOWLEDGED = 1_000
"""Publications that the broker has not acknowledged."""
_AT_QOS_1, _AT_QOS_2 = 0b010, 0b100


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """What a link wants of a client.

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
    """What the broker does is not taken, and ends the connection; the text says what it was."""


def check_packet(command: int, length: int, most: int, *, connected: bool) -> None:
    """Look at a packet whose first byte and length are known, and nothing else.

    Args:
        most: bytes of the largest publication.
        connected: whether the broker has accepted the connection.

    Raises:
        RefusedError: it is too long, or of a kind that nobody has asked for.
    """
    kind = command >> 4
    most = most if kind == PacketTypes.PUBLISH else min(most, MOST_CONTROL)
    if length > most:
        raise RefusedError(f"the broker sends a packet of {length} bytes; at most {most} are taken")
    if kind == PacketTypes.PUBLISH and command & _AT_QOS_2:
        raise RefusedError("the broker sends at QoS 2, which nobody has asked for")
    if kind == PacketTypes.CONNACK and connected:
        raise RefusedError("the broker accepts the connection twice")


def check_properties(command: int, packet: bytes | bytearray) -> None:
    """Look at the properties of a publication in MQTT 5: paho-mqtt's time for them grows with their square.

    Raises:
        RefusedError: there are too many.
    """
    begin = 2 + int.from_bytes(packet[:2], "big") + 2 * bool(command & _AT_QOS_1)
    length, _ = VariableByteIntegers.decode(packet[begin : begin + 4])
    if length > MOST_AROUND:
        raise RefusedError(f"the broker sends {length} bytes of properties; at most {MOST_AROUND} are taken")
