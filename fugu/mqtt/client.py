"""A paho-mqtt client that reads and writes many packets at once, within the limits of `fugu.mqtt.packets`.

For each packet, paho-mqtt makes three system calls to read and one to write. At every call another thread may take the
interpreter. Here a turn of the loop is one wait, one read of up to 64 kB and one write of all that waits to be sent.
Publications at QoS 0 and 1, and acknowledgements of our own publications, are handled here in bytes. Connecting,
sessions, keep-alive, subscriptions and rarer packets are left to paho-mqtt.

This is the only module that uses paho-mqtt's private names; `PRIVATE_NAMES` lists them. If paho-mqtt has other names,
no link starts: see `private_names_fit`.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import select
import socket
import threading
import time

from paho.mqtt.enums import CallbackAPIVersion, MQTTErrorCode, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes

from fugu.contract.errors import cause
from fugu.mqtt.outgoing import SendQueue
from fugu.mqtt.packets import (
    MOST_OVERHEAD,
    PUBACK,
    ClientOptions,
    Message,
    RefusedError,
    check_packet,
    check_properties,
    encode_publish,
    read_acknowledgement,
    read_header,
    read_publications,
)
from fugu.mqtt.paho_client import mqtt

__all__ = ["Client", "private_names_fit"]

PRIVATE_NAMES = (
    "_create_socket_connection()",
    "_handle_connack()",
    "_loop(timeout)",
    "_packet_queue(command,packet,mid,qos,info)",
    *("_packet_write()", "_send_puback(mid)", "_sock_close()", "_sock_send(buf)"),
    *("_loop_rc_handle(rc)", "_mid_generate()", "_packet_handle()", "_raise_for_invalid_topic(topic)"),
    *("_reset_sockets(sockpair_only)", "_sock_recv(bufsize)"),
    *("_in_packet", "_last_bytes_received", "_last_msg_out", "_out_packet", "_sock"),
    *("_sockpairR", "_sockpairW", "_thread"),
)
"""Private names of paho-mqtt: methods that are replaced here, methods that are called here, attributes."""
_CHUNK_BYTES = 1 << 16
_PUBACK_BYTES = 4
_MOST_UNSENT = 10_000
"""Packets that may wait to be sent: acknowledgements would pile up for a broker that sends and does not read."""
_MOST_UNACKNOWLEDGED = 1_000
"""Publications that may wait for the broker's acknowledgement."""
_GATHER_SECONDS, _BUSY_SECONDS = 0.0005, 0.001


@functools.cache
def private_names_fit() -> bool:
    """True if the installed paho-mqtt has the private names that are used here, with the same parameters."""
    client = mqtt.Client(CallbackAPIVersion.VERSION2)
    for private_name in PRIVATE_NAMES:
        name, parenthesis, _ = private_name.partition("(")
        if not hasattr(client, name):
            return False
        if parenthesis and f"{name}({','.join(inspect.signature(getattr(client, name)).parameters)})" != private_name:
            return False
    return True


class Client(mqtt.Client):
    """A paho-mqtt client with limits, which delivers messages once a turn. In MQTT 5 `clean_session` is `None`."""

    def __init__(
        self, client_id: str, clean_session: bool | None, protocol: MQTTProtocolVersion, options: ClientOptions
    ) -> None:
        super().__init__(
            CallbackAPIVersion.VERSION2, client_id=client_id, clean_session=clean_session, protocol=protocol
        )
        self._is_mqtt5 = protocol == MQTTProtocolVersion.MQTTv5
        self._options = options
        self._max_packet = options.max_payload + MOST_OVERHEAD
        self._outgoing = SendQueue(_MOST_UNACKNOWLEDGED, options.max_in_flight, self._packet_queue, self._mid_generate)
        self._partial = bytearray()
        self._needed_bytes = 0
        self._messages: list[Message] = []
        self._acks = bytearray()
        self._unsent = bytearray()
        self._is_woken = False
        self._busy_until = 0.0
        self.on_message = lambda _client, _data, message: self._messages.append(
            (message.topic, bytes(message.payload), message.retain)
        )

    def send(self, topic: str, payload: bytes, *, retain: bool) -> int | None:
        """Publish at QoS 1, now or after a reconnection.

        Return the message id, or `None` if too many publications are unanswered.
        """
        topic_bytes = topic.encode()
        self._raise_for_invalid_topic(topic_bytes)
        return self._outgoing.add(lambda mid: encode_publish(topic_bytes, payload, mid, self._is_mqtt5, retain=retain))

    def close(self) -> None:
        """Close the connection. Call this once the network thread has ended, or from the network thread."""
        if threading.current_thread() is not self._thread:
            self._reset_sockets()

    def _loop(self, timeout: float = 1.0) -> MQTTErrorCode:
        broker_socket, wake_socket = self._sock, self._sockpairR
        if broker_socket is None or wake_socket is None:
            return MQTTErrorCode.MQTT_ERR_NO_CONN
        if isinstance(broker_socket, socket.socket) and getattr(broker_socket, "pending", int)():
            timeout = 0.0  # decrypted bytes wait already, and poll does not see them
        poller = select.poll()
        try:
            poller.register(broker_socket, select.POLLIN | (select.POLLOUT if self.want_write() else 0))
            poller.register(wake_socket, select.POLLIN)
            events = dict(poller.poll(timeout * 1000))
            broker_events, wake_events = events.get(broker_socket.fileno(), 0), events.get(wake_socket.fileno(), 0)
        except (OSError, ValueError):  # closed meanwhile
            return self._loop_rc_handle(MQTTErrorCode.MQTT_ERR_CONN_LOST)
        if wake_events:
            with contextlib.suppress(BlockingIOError):
                wake_socket.recv(_CHUNK_BYTES)
            self._is_woken = False  # before the queue is written: a packet that is queued later wakes the loop again
        if broker_events & ~select.POLLOUT and (error_code := self.loop_read()):
            return error_code
        return (self.want_write() and self.loop_write()) or self.loop_misc()

    def _packet_queue(
        self, command: int, packet: bytes | bytearray, mid: int, qos: int, info: mqtt.MQTTMessageInfo | None = None
    ) -> MQTTErrorCode:
        packet_fields = {"command": command, "mid": mid, "qos": qos, "pos": 0, "packet": packet, "info": info}
        self._out_packet.append({**packet_fields, "to_process": len(packet)})  # type: ignore[typeddict-item]
        if not self._is_woken and self._sockpairW is not None and threading.current_thread() is not self._thread:
            self._is_woken = True
            with contextlib.suppress(BlockingIOError):
                self._sockpairW.send(b"0")
        return MQTTErrorCode.MQTT_ERR_SUCCESS

    def loop_read(self, max_packets: int = 1) -> MQTTErrorCode:
        """Read about 64 kB, of what has come, and deliver the messages that are whole."""
        try:
            error_code = self._take_bytes(self._read())
        except BlockingIOError:
            return MQTTErrorCode.MQTT_ERR_SUCCESS
        except RefusedError as refusal:
            self._options.on_refused(str(refusal))
            error_code = MQTTErrorCode.MQTT_ERR_CONN_LOST
        except OSError:
            error_code = MQTTErrorCode.MQTT_ERR_CONN_LOST
        except Exception as error:  # a packet is malformed in a way that paho-mqtt does not expect
            self._options.on_refused(f"the broker sends a malformed packet: {cause(error)}")
            error_code = MQTTErrorCode.MQTT_ERR_PROTOCOL
        return self._loop_rc_handle(error_code) if error_code else MQTTErrorCode.MQTT_ERR_SUCCESS

    def _read(self) -> bytes:
        """Read the bytes that have come. Raises OSError if none have, or the broker has closed the connection."""
        if len(self._out_packet) > _MOST_UNSENT or len(self._acks) > _MOST_UNSENT * _PUBACK_BYTES:
            raise RefusedError("the broker takes nothing, but sends")
        if self._options.gathers and time.monotonic() < self._busy_until:
            time.sleep(_GATHER_SECONDS)
        chunk = self._sock_recv(_CHUNK_BYTES)
        if not chunk:
            raise ConnectionResetError
        self._last_bytes_received = time.monotonic()
        if not hasattr(self._sock, "pending"):
            return chunk
        records, byte_count = [chunk], len(chunk)  # a TLS read gives one record at most
        with contextlib.suppress(OSError):  # nothing more has come, or the next turn sees the failure
            while byte_count < _CHUNK_BYTES and (chunk := self._sock_recv(_CHUNK_BYTES)):
                records.append(chunk)
                byte_count += len(chunk)
        return b"".join(records)

    def _take_bytes(self, chunk: bytes) -> MQTTErrorCode:
        if self._partial:
            self._partial += chunk
            if len(self._partial) < self._needed_bytes:
                return MQTTErrorCode.MQTT_ERR_SUCCESS
            chunk = bytes(self._partial)
            self._partial.clear()
        try:
            return self._take_packets(chunk)
        finally:
            self._deliver()

    def _take_packets(self, chunk: bytes) -> MQTTErrorCode:
        offset, connection = 0, self._sock
        while True:
            offset = read_publications(chunk, offset, self._max_packet, self._is_mqtt5, self._messages, self._acks)
            if offset == len(chunk):
                return MQTTErrorCode.MQTT_ERR_SUCCESS
            packet = read_header(chunk, offset)
            if packet is not None:
                check_packet(packet.command, packet.length, self._max_packet, is_connected=self.is_connected())
            if packet is None or packet.body_start + packet.length > len(chunk):
                self._partial += chunk[offset:]
                packet_bytes = None if packet is None else packet.body_start - offset + packet.length
                self._needed_bytes = packet_bytes or len(self._partial) + 1
                return MQTTErrorCode.MQTT_ERR_SUCCESS
            offset = packet.body_start + packet.length
            if error_code := self._handle_packet(packet.command, chunk[packet.body_start : offset]):
                return error_code
            if self._sock is not connection:  # the connection was closed, or replaced
                return MQTTErrorCode.MQTT_ERR_SUCCESS

    def _handle_packet(self, command: int, body: bytes) -> MQTTErrorCode:
        """Handle a packet that is no plain publication."""
        packet_type = command >> 4
        if packet_type == PacketTypes.PUBACK and (outcome := read_acknowledgement(body, self._is_mqtt5)) is not None:
            mid, refusal = outcome
            if self._outgoing.note_answer(mid):
                self._options.on_answered(mid, refusal)
            return MQTTErrorCode.MQTT_ERR_SUCCESS
        if packet_type == PacketTypes.PUBLISH and self._is_mqtt5:
            check_properties(command, body)
        else:
            self._deliver()
        packet = self._in_packet
        packet["command"], packet["packet"], packet["remaining_length"] = command, bytearray(body), len(body)
        return self._packet_handle()

    def _handle_connack(self) -> MQTTErrorCode:
        error_code = super()._handle_connack()
        if self.is_connected():
            self._outgoing.note_connection()
        return error_code

    def _send_puback(self, mid: int) -> MQTTErrorCode:
        self._acks += PUBACK + mid.to_bytes(2, "big")  # in the order of the publications
        return MQTTErrorCode.MQTT_ERR_SUCCESS

    def _deliver(self) -> None:
        if self._messages:
            messages, self._messages = self._messages, []
            self._options.on_received(messages)
            self._busy_until = time.monotonic() + _BUSY_SECONDS

    def want_write(self) -> bool:
        """True if something waits to be sent."""
        return bool(self._acks or self._out_packet or self._unsent)

    def _packet_write(self) -> MQTTErrorCode:
        """Gather all queued packets, which paho-mqtt takes for sent, and send them together."""
        try:
            if error_code := super()._packet_write():
                return error_code
            self._flush()
        except BlockingIOError:
            return MQTTErrorCode.MQTT_ERR_AGAIN
        except OSError:
            return MQTTErrorCode.MQTT_ERR_CONN_LOST
        return MQTTErrorCode.MQTT_ERR_SUCCESS

    def _sock_send(self, buf: bytes | bytearray) -> int:
        is_disconnect = buf[0] >> 4 == PacketTypes.DISCONNECT  # after which paho-mqtt closes the connection
        if is_disconnect or len(self._unsent) >= _CHUNK_BYTES:
            self._flush()
        if is_disconnect:
            return super()._sock_send(buf)
        self._unsent += buf
        return len(buf)

    def _flush(self) -> None:
        """Send all gathered bytes. Raises OSError if some could not be sent."""
        if len(self._unsent) < _CHUNK_BYTES:
            self._unsent += self._acks
            self._acks.clear()
        while self._unsent and self._sock is not None:
            del self._unsent[: super()._sock_send(self._unsent)]
            self._last_msg_out = time.monotonic()

    def _create_socket_connection(self) -> socket.socket:
        return super()._create_socket_connection() if self._options.dial is None else self._options.dial()

    def _sock_close(self) -> None:
        self._outgoing.note_disconnection()
        for buffer in (self._partial, self._acks, self._unsent):
            buffer.clear()
        super()._sock_close()
