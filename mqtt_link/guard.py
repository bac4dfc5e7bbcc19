"""A paho-mqtt client that a broker cannot make hold more than it should.

paho-mqtt takes whatever length a packet claims, up to 256 MB, and gathers it before it looks at it. Here the length is
judged when it is known and before a byte of the rest is read, in every version of the protocol and for every kind of
packet: too long, and the connection ends. The same happens where many small packets would pile up, and where
paho-mqtt would raise, which ends its thread for good.
"""

from __future__ import annotations

import socket
from collections.abc import Callable

import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion, MQTTErrorCode, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import VariableByteIntegers

__all__ = ["MOST_AROUND", "GuardedClient"]

MOST_AROUND = 1 << 12
"""Bytes of a publication that are not payload: its topic, which is ours, and what MQTT 5 may add."""
MOST_CONTROL = 1 << 14
"""Bytes of any other packet."""
MOST_UNSENT = 10_000
"""Packets that wait because the broker does not read; a broker that only writes would let answers pile up."""
MOST_UNACKNOWLEDGED = 1_000
"""Publications that the broker has not acknowledged."""
_AT_QOS_1, _AT_QOS_2 = 0b010, 0b100


class _RefusedError(ConnectionError):
    """What the broker does is not taken; paho-mqtt ends the connection at any error of the socket."""


class GuardedClient(mqtt.Client):
    """A client with limits.

    Args:
        client_id: identity of the session at the broker.
        clean_session: whether MQTT 3.1.1 forgets the session; none for MQTT 5.
        protocol: version of the protocol.
        max_payload: bytes of the largest message that is taken.
        refused: called with the reason, in words, before the connection ends.
        dial: opens each connection, if not paho-mqtt by host and port; may raise OSError.
    """

    def __init__(
        self,
        client_id: str,
        clean_session: bool | None,
        protocol: MQTTProtocolVersion,
        max_payload: int,
        refused: Callable[[str], None],
        dial: Callable[[], socket.socket] | None = None,
    ) -> None:
        super().__init__(
            CallbackAPIVersion.VERSION2, client_id=client_id, clean_session=clean_session, protocol=protocol
        )
        self.max_queued_messages_set(MOST_UNACKNOWLEDGED)
        self.max_packet = max_payload + MOST_AROUND
        self._refused = refused
        self._dial = dial

    def _create_socket_connection(self) -> socket.socket:
        return super()._create_socket_connection() if self._dial is None else self._dial()

    def _sock_recv(self, bufsize: int) -> bytes:
        packet = self._in_packet
        if not packet["command"] and len(self._out_packet) > MOST_UNSENT:
            self._refuse("the broker takes nothing, but sends")
        if packet["have_remaining"] and not packet["packet"]:
            self._judge(packet["command"], bufsize)
        return super()._sock_recv(bufsize)

    def _judge(self, command: int, length: int) -> None:
        """Refuse a packet whose first byte and length are known, and nothing else."""
        kind = command >> 4
        most = self.max_packet if kind == PacketTypes.PUBLISH else min(self.max_packet, MOST_CONTROL)
        if length > most:
            self._refuse(f"the broker sends a packet of {length} bytes; at most {most} are taken")
        if kind == PacketTypes.PUBLISH and command & _AT_QOS_2:
            self._refuse("the broker sends at QoS 2, which nobody has asked for")
        if kind == PacketTypes.CONNACK and self.is_connected():
            self._refuse("the broker accepts the connection twice")

    def _packet_handle(self) -> MQTTErrorCode:
        try:
            if self._protocol == MQTTProtocolVersion.MQTTv5 and self._in_packet["command"] >> 4 == PacketTypes.PUBLISH:
                self._judge_properties(self._in_packet["packet"])
            return super()._packet_handle()
        except _RefusedError:
            return MQTTErrorCode.MQTT_ERR_PROTOCOL
        except Exception as error:  # malformed in a way that paho-mqtt does not expect
            self._refused(f"the broker sends a malformed packet: {type(error).__name__}")
            return MQTTErrorCode.MQTT_ERR_PROTOCOL

    def _judge_properties(self, packet: bytearray) -> None:
        """Refuse a publication of properties: paho-mqtt takes them apart in a time that grows with their square."""
        begin = 2 + int.from_bytes(packet[:2], "big") + 2 * bool(self._in_packet["command"] & _AT_QOS_1)
        length, _ = VariableByteIntegers.decode(packet[begin : begin + 4])
        if length > MOST_AROUND:
            self._refuse(f"the broker sends {length} bytes of properties; at most {MOST_AROUND} are taken")

    def _refuse(self, why: str) -> None:
        self._refused(why)
        raise _RefusedError(why)
