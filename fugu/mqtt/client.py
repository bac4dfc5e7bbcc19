"""A paho-mqtt client that reads and writes many packets at once, within the limits of `fugu.mqtt.guard`.

paho-mqtt asks the operating system three times for each packet that it reads and once for each that it writes; every
time another thread may take the interpreter. Here a turn of the loop is one wait, one read of up to 64 kB and one
write of everything that is to go. Publications at QoS 0 and 1, and what the broker answers to ours, do not become
paho-mqtt's objects. The rest is paho-mqtt's: connecting, sessions, keep-alive, subscriptions, every rarer packet.
"""

from __future__ import annotations

import contextlib
import select
import socket
import threading
import time
from collections.abc import Callable

import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion, MQTTErrorCode, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode

from fugu.contract.errors import cause
from fugu.mqtt.guard import (
    MOST_AROUND,
    MOST_UNACKNOWLEDGED,
    MOST_UNSENT,
    RefusedError,
    check_packet,
    check_properties,
)
from fugu.mqtt.outgoing import Outgoing
from fugu.mqtt.packets import PUBACK, Message, header, publications, publish

__all__ = ["Client"]

_AT_ONCE = 1 << 16
_PUBACK_BYTES = 4
_SUCCESS, _NO_SUBSCRIBERS = 0, 16
_GATHER_SECONDS, _BUSY_SECONDS = 0.0005, 0.001


class Client(mqtt.Client):
    """A client with limits, which hands over what it has received once a turn.

    Args:
        client_id: identity of the session at the broker.
        clean_session: whether MQTT 3.1.1 forgets the session; none for MQTT 5.
        protocol: version of the protocol.
        max_payload: bytes of the largest message that is taken.
        max_in_flight: publications at QoS 1 that are with the broker at the same time.
        refused: called with the reason, in words, before the connection ends.
        received: called in the network thread with the messages of a turn, before they are acknowledged.
        answered: called with the id of a publication at QoS 1, and why the broker refuses it, if it does.
        gather: wait half a millisecond before a read that follows another within one, so that busy turns bring more.
        dial: opens each connection, if not paho-mqtt by host and port; may raise OSError.
    """

    def __init__(
        self,
        client_id: str,
        clean_session: bool | None,
        protocol: MQTTProtocolVersion,
        *,
        max_payload: int,
        max_in_flight: int,
        refused: Callable[[str], None],
        received: Callable[[list[Message]], None],
        answered: Callable[[int, str], None],
        gather: bool = False,
        dial: Callable[[], socket.socket] | None = None,
    ) -> None:
        super().__init__(
            CallbackAPIVersion.VERSION2, client_id=client_id, clean_session=clean_session, protocol=protocol
        )
        self._max_packet = max_payload + MOST_AROUND
        self._refused = refused
        self._received = received
        self._answered = answered
        self._gather = gather
        self._dial = dial
        self._outgoing = Outgoing(MOST_UNACKNOWLEDGED, self._send_later, self._mid_generate)
        self._outgoing.most_in_flight = max_in_flight
        self._rest = bytearray()
        self._needed = 0
        self._messages: list[Message] = []
        self._answers = bytearray()
        self._unsent = bytearray()
        self._woken = False
        self._busy_until = 0.0
        self.on_message = lambda _client, _data, said: self._messages.append(
            (said.topic, bytes(said.payload), said.retain)
        )

    def send(self, topic: str, payload: bytes, *, retain: bool) -> int | None:
        """Publish at QoS 1, now or after a reconnection; returns the message id, none if too many are unanswered."""
        name, five = topic.encode(), self._protocol == MQTTProtocolVersion.MQTTv5
        self._raise_for_invalid_topic(name)
        return self._outgoing.add(lambda mid: publish(name, payload, mid, five, retain=retain))

    def close(self) -> None:
        """Close the connection; its thread has ended, or is the one that calls."""
        if threading.current_thread() is not self._thread:
            self._reset_sockets()

    # A turn of the loop.

    def _loop(self, timeout: float = 1.0) -> MQTTErrorCode:
        connection, wake = self._sock, self._sockpairR
        if connection is None or wake is None:
            return MQTTErrorCode.MQTT_ERR_NO_CONN
        if isinstance(connection, socket.socket) and getattr(connection, "pending", int)():
            timeout = 0.0  # decrypted already, so that no wait would end
        waiting = select.poll()
        try:
            waiting.register(connection, select.POLLIN | (select.POLLOUT if self.want_write() else 0))
            waiting.register(wake, select.POLLIN)
            events = dict(waiting.poll(timeout * 1000))
            at_broker, at_wake = events.get(connection.fileno(), 0), events.get(wake.fileno(), 0)
        except (OSError, ValueError):  # closed meanwhile
            return self._loop_rc_handle(MQTTErrorCode.MQTT_ERR_CONN_LOST)
        if at_wake:
            with contextlib.suppress(BlockingIOError):
                wake.recv(_AT_ONCE)
            self._woken = False  # before what has been queued is written: who queues later wakes again
        if at_broker & ~select.POLLOUT and (failed := self.loop_read()):
            return failed
        if self.want_write() and (failed := self.loop_write()):
            return failed
        return self.loop_misc()

    def _packet_queue(
        self,
        command: int,
        packet: bytes | bytearray,
        mid: int,
        qos: int,
        info: mqtt.MQTTMessageInfo | None = None,
    ) -> MQTTErrorCode:
        size = len(packet)
        self._out_packet.append(
            {
                "command": command,
                "mid": mid,
                "qos": qos,
                "pos": 0,
                "to_process": size,
                "packet": packet,
                "info": info,
            }
        )
        if not self._woken and self._sockpairW is not None and threading.current_thread() is not self._thread:
            self._woken = True
            with contextlib.suppress(BlockingIOError):
                self._sockpairW.send(b"0")
        return MQTTErrorCode.MQTT_ERR_SUCCESS

    def _send_later(self, mid: int, packet: bytearray) -> None:
        self._packet_queue(packet[0], packet, mid, 1)

    # Reading.

    def loop_read(self, max_packets: int = 1) -> MQTTErrorCode:
        """Take what has come, up to 64 kB of it, and hand over its messages."""
        try:
            failed = self._take(self._read())
        except BlockingIOError:
            return MQTTErrorCode.MQTT_ERR_SUCCESS
        except RefusedError as refusal:
            self._refused(str(refusal))
            failed = MQTTErrorCode.MQTT_ERR_CONN_LOST
        except OSError:
            failed = MQTTErrorCode.MQTT_ERR_CONN_LOST
        except Exception as error:  # malformed in a way that paho-mqtt does not expect
            self._refused(f"the broker sends a malformed packet: {cause(error)}")
            failed = MQTTErrorCode.MQTT_ERR_PROTOCOL
        return self._loop_rc_handle(failed) if failed else MQTTErrorCode.MQTT_ERR_SUCCESS

    def _read(self) -> bytes:
        """What has come; raises OSError if nothing has, or the broker has closed the connection."""
        if len(self._out_packet) > MOST_UNSENT or len(self._answers) > MOST_UNSENT * _PUBACK_BYTES:
            raise RefusedError("the broker takes nothing, but sends")
        if self._gather and time.monotonic() < self._busy_until:
            time.sleep(_GATHER_SECONDS)
        data = self._sock_recv(_AT_ONCE)
        if not data:
            raise ConnectionResetError
        self._last_bytes_received = time.monotonic()
        if not hasattr(self._sock, "pending"):
            return data
        parts, size = [data], len(data)  # TLS gives what was written at once, never more
        with contextlib.suppress(OSError):  # there is no more, or it is noticed at the next turn
            while size < _AT_ONCE and (data := self._sock_recv(_AT_ONCE)):
                parts.append(data)
                size += len(data)
        return b"".join(parts)

    def _take(self, data: bytes) -> MQTTErrorCode:
        if self._rest:
            self._rest += data
            if len(self._rest) < self._needed:
                return MQTTErrorCode.MQTT_ERR_SUCCESS
            data = bytes(self._rest)
            self._rest.clear()
        try:
            return self._split(data)
        finally:
            self._hand_over()

    def _split(self, data: bytes) -> MQTTErrorCode:
        """Take all packets that are whole, and keep the rest."""
        at, connection = 0, self._sock
        five = self._protocol == MQTTProtocolVersion.MQTTv5
        while True:
            at = publications(data, at, self._max_packet, five, self._messages, self._answers)
            if at == len(data):
                return MQTTErrorCode.MQTT_ERR_SUCCESS
            head = header(data, at)
            if head is not None:
                check_packet(head.command, head.length, self._max_packet, connected=self.is_connected())
            if head is None or head.begin + head.length > len(data):
                self._rest += data[at:]
                self._needed = len(self._rest) + 1 if head is None else head.begin - at + head.length
                return MQTTErrorCode.MQTT_ERR_SUCCESS
            at = head.begin + head.length
            if failed := self._handle(head.command, data[head.begin : at]):
                return failed
            if self._sock is not connection:  # closed, or another already
                return MQTTErrorCode.MQTT_ERR_SUCCESS

    def _handle(self, command: int, body: bytes) -> MQTTErrorCode:
        """Take a packet that is no plain publication."""
        five = self._protocol == MQTTProtocolVersion.MQTTv5
        kind = command >> 4
        if kind == PacketTypes.PUBACK and (len(body) == 2 or (five and len(body) > 2)):
            if len(body) > 3:
                Properties(PacketTypes.PUBACK).unpack(body[3:])  # which raises if they are none
            self._acknowledged(body[0] << 8 | body[1], body[2] if len(body) > 2 else _SUCCESS)
            return MQTTErrorCode.MQTT_ERR_SUCCESS
        if kind == PacketTypes.PUBLISH and five:
            check_properties(command, body)
        else:
            self._hand_over()
        packet = self._in_packet
        packet["command"], packet["packet"], packet["remaining_length"] = command, bytearray(body), len(body)
        return self._packet_handle()

    def _handle_connack(self) -> MQTTErrorCode:
        failed = super()._handle_connack()
        if self.is_connected():
            self._outgoing.connected()
        return failed

    def _acknowledged(self, mid: int, code: int) -> None:
        refusal = "" if code in (_SUCCESS, _NO_SUBSCRIBERS) else str(ReasonCode(PacketTypes.PUBACK, identifier=code))
        if self._outgoing.answered(mid):
            self._answered(mid, refusal if code & 128 else "")

    def _send_puback(self, mid: int) -> MQTTErrorCode:
        self._answers += PUBACK + mid.to_bytes(2, "big")  # in the order of what is acknowledged
        return MQTTErrorCode.MQTT_ERR_SUCCESS

    def _hand_over(self) -> None:
        if self._messages:
            messages, self._messages = self._messages, []
            self._received(messages)
            self._busy_until = time.monotonic() + _BUSY_SECONDS

    # Writing.

    def want_write(self) -> bool:
        """Whether something waits to be sent."""
        return bool(self._answers or self._out_packet or self._unsent)

    def _packet_write(self) -> MQTTErrorCode:
        """Gather all packets, which paho-mqtt takes for sent, and send them at once."""
        try:
            if failed := super()._packet_write():
                return failed
            self._flush()
        except BlockingIOError:
            return MQTTErrorCode.MQTT_ERR_AGAIN
        except OSError:
            return MQTTErrorCode.MQTT_ERR_CONN_LOST
        return MQTTErrorCode.MQTT_ERR_SUCCESS

    def _sock_send(self, buf: bytes | bytearray) -> int:
        last = buf[0] >> 4 == PacketTypes.DISCONNECT  # after which paho-mqtt closes the connection
        if last or len(self._unsent) >= _AT_ONCE:
            self._flush()
        if last:
            return super()._sock_send(buf)
        self._unsent += buf
        return len(buf)

    def _flush(self) -> None:
        """Send until nothing is left; raises OSError if not everything went."""
        if len(self._unsent) < _AT_ONCE:
            self._unsent += self._answers
            self._answers.clear()
        while self._unsent and self._sock is not None:
            del self._unsent[: super()._sock_send(self._unsent)]
            self._last_msg_out = time.monotonic()

    # The connection.

    def _create_socket_connection(self) -> socket.socket:
        return super()._create_socket_connection() if self._dial is None else self._dial()

    def _sock_close(self) -> None:
        self._outgoing.disconnected()
        for buffer in (self._rest, self._answers, self._unsent):
            buffer.clear()
        super()._sock_close()
