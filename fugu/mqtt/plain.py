"""A client that uses paho-mqtt by its public names only: slower than `fugu.mqtt.client`, within the same limits.

paho-mqtt hands every new connection to its TLS context. Ours answers with a socket that looks at packets as they pass,
with or without TLS below, so that nothing is read of a packet that is refused.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
from collections.abc import Callable
from typing import Any

import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion, MQTTErrorCode, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.reasoncodes import ReasonCode

from fugu.contract.errors import cause
from fugu.mqtt.broker import LinkError
from fugu.mqtt.packets import (
    MOST_AROUND,
    MOST_UNACKNOWLEDGED,
    MOST_UNSENT,
    Header,
    RefusedError,
    Wishes,
    check_packet,
    check_properties,
    header,
)

__all__ = ["PlainClient"]

_AT_QOS_1 = 0b010
_ANSWERS = (PacketTypes.PUBACK, PacketTypes.PINGRESP)


class PlainClient(mqtt.Client):
    """A client with limits, which hands over each message; LinkError if there is a `dial`: it has no public name."""

    def __init__(
        self, client_id: str, clean_session: bool | None, protocol: MQTTProtocolVersion, wishes: Wishes
    ) -> None:
        if wishes.dial is not None:
            raise LinkError("this version of paho-mqtt opens its connections by itself: install paho-mqtt 2.1")
        super().__init__(
            CallbackAPIVersion.VERSION2, client_id=client_id, clean_session=clean_session, protocol=protocol
        )
        self._wishes = wishes
        self._five = protocol == MQTTProtocolVersion.MQTTv5
        self._tls: ssl.SSLContext | None = None
        self._broken: object = None
        self.max_inflight_messages_set(wishes.max_in_flight)
        self.max_queued_messages_set(MOST_UNACKNOWLEDGED)
        self.on_message = lambda _client, _data, said: wishes.received([(said.topic, bytes(said.payload), said.retain)])
        self.on_publish = lambda _client, _data, mid, reason, _properties: wishes.answered(
            mid, str(reason) if reason.is_failure else ""
        )
        super().tls_set_context(self)  # type: ignore[arg-type]  # for `wrap_socket`

    check_hostname = True
    """As of a context: the real one checks it, and there is none without TLS."""

    def tls_set_context(self, context: ssl.SSLContext | None = None) -> None:
        """Use TLS below the limits."""
        self._tls = context

    def wrap_socket(self, plain: socket.socket, **options: Any) -> GuardedSocket:
        """What paho-mqtt calls with every new connection."""
        below = plain if self._tls is None else self._tls.wrap_socket(plain, **options)
        most = self._wishes.max_payload + MOST_AROUND
        return GuardedSocket(below, self.is_connected, most, self._five, self._wishes.refused)

    def send(self, topic: str, payload: bytes, *, retain: bool) -> int | None:
        """Publish at QoS 1, now or after a reconnection; returns the message id, `None` if too many are unanswered."""
        info = self.publish(topic, payload, qos=1, retain=retain)
        return None if info.rc == MQTTErrorCode.MQTT_ERR_QUEUE_SIZE else info.mid

    def is_connected(self) -> bool:
        """True if there is a connection, on which nothing malformed has come."""
        return super().is_connected() and self.socket() is not self._broken

    def loop_read(self, max_packets: int = 1) -> MQTTErrorCode:
        """Read, and end the connection over what paho-mqtt does not expect, instead of its thread."""
        try:
            return super().loop_read(max_packets)
        except Exception as error:
            self._wishes.refused(f"the broker sends a malformed packet: {cause(error)}")
            self._broken = self.socket()
            if (callback := self.on_disconnect) is not None:
                reason = ReasonCode(PacketTypes.DISCONNECT, "Malformed packet")
                callback(self, None, mqtt.DisconnectFlags(False), reason, None)  # type: ignore[arg-type,call-arg]
            return MQTTErrorCode.MQTT_ERR_PROTOCOL

    def close(self) -> None:
        """Close the connection; its thread has ended, or is the one that calls."""
        if (left := self.socket()) is not None:
            with contextlib.suppress(OSError):
                left.close()


class GuardedSocket:
    """A connection that raises `RefusedError`, an OSError, where a packet is over a limit, after telling `refused` why.

    `below` carries the bytes; all but `recv` and `send` is its own. `connected`: whether the broker has accepted the
    connection. `most`: bytes of the largest publication.
    """

    def __init__(
        self,
        below: socket.socket,
        connected: Callable[[], bool],
        most: int,
        five: bool,
        refused: Callable[[str], None],
    ) -> None:
        self.below = below
        self._connected = connected
        self._most = most
        self._five = five
        self._refused = refused
        self._seen = bytearray()
        self._header: Header | None = None
        self._skip = 0
        self._unanswered = 0
        self._kind_sent = 0
        self._left_to_send = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.below, name)

    def do_handshake(self) -> None:
        """Begin TLS, if there is any."""
        if isinstance(self.below, ssl.SSLSocket):
            self.below.do_handshake()

    def recv(self, size: int) -> bytes:
        """Read, and look at what came."""
        data = self.below.recv(size)
        try:
            self._look(data)
        except RefusedError as refusal:
            self._refused(str(refusal))
            raise
        return data

    def send(self, data: bytes | bytearray) -> int:
        """Write a packet, or what is left of one."""
        number = self.below.send(data)
        if not self._left_to_send:
            self._kind_sent, self._left_to_send = data[0] >> 4, len(data)
        self._left_to_send -= number
        if not self._left_to_send and self._kind_sent in _ANSWERS:
            self._unanswered -= 1
        return number

    def _look(self, data: bytes) -> None:
        at = 0
        while at < len(data):
            if self._skip:
                passed = min(self._skip, len(data) - at)
                self._skip -= passed
                at += passed
                continue
            self._seen.append(data[at])
            at += 1
            if self._header is None:
                self._begin()
            elif self._properties_begin():
                check_properties(self._header.command, self._seen)
                self._body(len(self._seen))

    def _begin(self) -> None:
        """Judge a packet once its first byte and length are there."""
        if (head := header(bytes(self._seen), 0)) is None:
            return
        command, length, _ = head
        check_packet(command, length, self._most, connected=self._connected())
        kind = command >> 4
        if kind == PacketTypes.PINGREQ or (kind == PacketTypes.PUBLISH and command & _AT_QOS_1):
            self._unanswered += 1
            if self._unanswered > MOST_UNSENT:
                raise RefusedError("the broker takes nothing, but sends")
        self._seen.clear()
        self._header = head
        if not (self._five and kind == PacketTypes.PUBLISH and length):
            self._body(0)

    def _properties_begin(self) -> bool:
        """True if enough of a publication's body is there to know the length of its properties, or all of it."""
        assert self._header is not None
        seen, at_qos_1 = self._seen, bool(self._header.command & _AT_QOS_1)
        if len(seen) == self._header.length:
            return True
        if len(seen) < 2:
            return False
        begin = 2 + int.from_bytes(seen[:2], "big") + 2 * at_qos_1
        return len(seen) > begin and (seen[-1] < 128 or len(seen) == begin + 4)

    def _body(self, seen: int) -> None:
        assert self._header is not None
        self._skip = self._header.length - seen
        self._header = None
        self._seen.clear()
