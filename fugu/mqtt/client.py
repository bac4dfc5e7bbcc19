"""A paho-mqtt client that reads and writes many packets at once, and limits of what a broker can make us hold.

paho-mqtt asks the operating system three times for each packet that it reads and once for each that it writes; every
time another thread may take the interpreter. Here a turn of the loop is one wait, one read of up to 64 kB and one write
of everything that is to go. Publications at QoS 0 and 1, and the broker's answers to ours, do not become paho-mqtt's
objects; connecting, sessions, keep-alive, subscriptions and rarer packets are paho-mqtt's.

This is the only module that uses paho-mqtt's private names; `INSIDES` lists them. Where `insides_fit` finds others, no
link starts.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import select
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion, MQTTErrorCode, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties, VariableByteIntegers
from paho.mqtt.reasoncodes import ReasonCode

from fugu.contract.errors import cause

__all__ = ["MOST_AROUND", "Client", "Message", "Wishes", "insides_fit"]


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


def check_packet(command: int, length: int, most: int, *, connected: bool) -> None:
    """Refuse a packet that is too long, or that nobody has asked for (RefusedError), by first byte and length.

    `most`: bytes of the largest publication. `connected`: the broker has accepted the connection.
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
    """Refuse (RefusedError) too many properties of an MQTT 5 publication: paho-mqtt's time grows with their square."""
    begin = 2 + int.from_bytes(packet[:2], "big") + 2 * bool(command & _AT_QOS_1)
    length, _ = VariableByteIntegers.decode(packet[begin : begin + 4])
    if length > MOST_AROUND:
        raise RefusedError(f"the broker sends {length} bytes of properties; at most {MOST_AROUND} are taken")


_PUBLISH, _KIND_AND_QOS_2 = 0x30, 0xF4
_RETAINED = 0b001
PUBACK = b"\x40\x02"
"""An acknowledgement, but for the message id."""
_LENGTH_BYTES = 4
_SUCCESS, _NO_SUBSCRIBERS = 0, 16
_DUPLICATE = 0b1000


class Header(NamedTuple):
    """Header of every packet: first byte, length of the body in bytes, and where that begins."""

    command: int
    length: int
    begin: int


def header(data: bytes, at: int) -> Header | None:
    """The header of the packet that begins there, `None` if incomplete; ValueError if its length is over four bytes."""
    length = 0
    for place in range(_LENGTH_BYTES):
        begin = at + 2 + place
        if begin > len(data):
            return None
        byte = data[begin - 1]
        length |= (byte & 127) << 7 * place
        if byte < 128:
            return Header(data[at], length, begin)
    raise ValueError("a length of more than four bytes")


def publications(data: bytes, at: int, most: int, five: bool, messages: list[Message], answers: bytearray) -> int:
    """Take plain publications (whole, well-formed, at QoS 0 or 1, without properties); return where others begin.

    Bodies of at most `most` bytes go to `messages`, acknowledgements of what came at QoS 1 to `answers`. ValueError: a
    length has more than four bytes.
    """
    end = len(data)
    while at + 4 <= end:
        command, length, begin = data[at], data[at + 1], at + 2
        if command & _KIND_AND_QOS_2 != _PUBLISH:
            break
        if length > 127 and data[begin] < 128:
            length, begin = length - 128 | data[begin] << 7, begin + 1
        elif length > 127:
            if (head := header(data, at)) is None:
                break
            _, length, begin = head
        stop = begin + length
        if stop > end or not 2 <= length <= most:
            break
        identity = payload = begin + 2 + (data[begin] << 8 | data[begin + 1])
        if command & _AT_QOS_1:
            payload += 2
        payload += five
        if payload > stop or (five and data[payload - 1]) or identity == begin + 2:
            break
        try:
            topic = data[begin + 2 : identity].decode()
        except UnicodeDecodeError:
            break
        if command & _AT_QOS_1:
            answers += PUBACK
            answers += data[identity : identity + 2]
        messages.append((topic, data[payload:stop], command & _RETAINED == _RETAINED))
        at = stop
    return at


def publish(topic: bytes, payload: bytes, mid: int, five: bool, *, retain: bool) -> bytearray:
    """A publication at QoS 1, without properties."""
    length = 2 + len(topic) + 2 + five + len(payload)
    packet = bytearray([_PUBLISH | _AT_QOS_1 | retain])
    while length > 127:
        packet.append(length & 127 | 128)
        length >>= 7
    packet.append(length)
    packet += len(topic).to_bytes(2, "big") + topic + mid.to_bytes(2, "big")
    if five:
        packet.append(0)
    packet += payload
    return packet


def acknowledgement(body: bytes, five: bool) -> tuple[int, str] | None:
    """Read a PUBACK: the message id, and why the broker refuses it, if so; `None`, or MalformedPacket, if malformed."""
    if len(body) < 2 or (len(body) > 2 and not five):
        return None
    if len(body) > 3:
        Properties(PacketTypes.PUBACK).unpack(body[3:])
    mid, code = body[0] << 8 | body[1], body[2] if len(body) > 2 else _SUCCESS
    reason = "" if code in (_SUCCESS, _NO_SUBSCRIBERS) else str(ReasonCode(PacketTypes.PUBACK, identifier=code))
    return mid, reason if code & 128 else ""


class Outgoing:
    """Publications at QoS 1: some are with the broker, the rest waits in order; any thread may call the methods.

    `most` of them may be unanswered, `most_in_flight` with the broker. `send` is called with first byte, packet,
    message id and QoS of each, in order, and must not block.
    """

    def __init__(
        self,
        most: int,
        most_in_flight: int,
        send: Callable[[int, bytearray, int, int], object],
        number: Callable[[], int],
    ) -> None:
        self._most = most
        self._most_in_flight = most_in_flight
        self._send = send
        self._number = number
        self._in_flight: dict[int, bytearray] = {}
        self._waiting: dict[int, bytearray] = {}
        self._online = False
        self._lock = threading.Lock()

    def add(self, write: Callable[[int], bytearray]) -> int | None:
        """Take a packet that `write` makes of its message id, unless too many are unanswered; return the id."""
        with self._lock:
            if len(self._in_flight) + len(self._waiting) >= self._most:
                return None
            mid = self._number()
            while mid in self._in_flight or mid in self._waiting:
                mid = self._number()
            self._waiting[mid] = write(mid)
            self._fill()
            return mid

    def answered(self, mid: int) -> bool:
        """The broker has answered for one, so that another may go; false if it was not with the broker."""
        with self._lock:
            known = self._in_flight.pop(mid, None) is not None
            self._fill()
            return known

    def connected(self) -> None:
        """Send again, as duplicates and in order, what was with the broker when an earlier connection ended."""
        with self._lock:
            for mid, packet in self._in_flight.items():
                packet[0] |= _DUPLICATE
                self._send(packet[0], packet, mid, 1)
            self._online = True
            self._fill()

    def disconnected(self) -> None:
        """Keep everything until there is a connection again."""
        with self._lock:
            self._online = False

    def _fill(self) -> None:
        while self._online and self._waiting and len(self._in_flight) < self._most_in_flight:
            mid = next(iter(self._waiting))
            packet = self._in_flight[mid] = self._waiting.pop(mid)
            self._send(packet[0], packet, mid, 1)


INSIDES = (
    *(
        "_create_socket_connection()",
        "_handle_connack()",
        "_loop(timeout)",
        "_packet_queue(command,packet,mid,qos,info)",
    ),
    *("_packet_write()", "_send_puback(mid)", "_sock_close()", "_sock_send(buf)"),
    *("_loop_rc_handle(rc)", "_mid_generate()", "_packet_handle()", "_raise_for_invalid_topic(topic)"),
    *("_reset_sockets(sockpair_only)", "_sock_recv(bufsize)"),
    *("_in_packet", "_last_bytes_received", "_last_msg_out", "_out_packet", "_protocol", "_sock"),
    *("_sockpairR", "_sockpairW", "_thread"),
)
"""paho-mqtt's private names: methods that are replaced here, methods that are called, attributes."""
_AT_ONCE = 1 << 16
_PUBACK_BYTES = 4
_MOST_UNSENT = 10_000
"""Packets that wait because the broker does not read; a broker that only writes would let answers pile up."""
_MOST_UNACKNOWLEDGED = 1_000
"""Publications that the broker has not acknowledged."""
_GATHER_SECONDS, _BUSY_SECONDS = 0.0005, 0.001


@functools.cache
def insides_fit() -> bool:
    """True if this version of paho-mqtt has the private names that are used here, with the same parameters."""
    some = mqtt.Client(CallbackAPIVersion.VERSION2)
    for inside in INSIDES:
        name, called, _ = inside.partition("(")
        if not hasattr(some, name):
            return False
        if called and f"{name}({','.join(inspect.signature(getattr(some, name)).parameters)})" != inside:
            return False
    return True


class Client(mqtt.Client):
    """A client with limits, which hands over what it received once a turn; in MQTT 5 `clean_session` is `None`."""

    def __init__(
        self, client_id: str, clean_session: bool | None, protocol: MQTTProtocolVersion, wishes: Wishes
    ) -> None:
        super().__init__(
            CallbackAPIVersion.VERSION2, client_id=client_id, clean_session=clean_session, protocol=protocol
        )
        self._wishes = wishes
        self._max_packet = wishes.max_payload + MOST_AROUND
        self._outgoing = Outgoing(_MOST_UNACKNOWLEDGED, wishes.max_in_flight, self._packet_queue, self._mid_generate)
        self._rest = bytearray()
        self._needed = 0
        self._messages: list[Message] = []
        self._answers = bytearray()
        self._unsent = bytearray()
        self._woken = False
        self._busy_until = 0.0
        self.on_publish = lambda _client, _data, mid, _reason, _properties: wishes.answered(mid, "")  # at QoS 0
        self.on_message = lambda _client, _data, said: self._messages.append(
            (said.topic, bytes(said.payload), said.retain)
        )

    def send(self, topic: str, payload: bytes, *, retain: bool) -> int | None:
        """Publish at QoS 1, now or after a reconnection; returns the message id, `None` if too many are unanswered."""
        name, five = topic.encode(), self._protocol == MQTTProtocolVersion.MQTTv5
        self._raise_for_invalid_topic(name)
        return self._outgoing.add(lambda mid: publish(name, payload, mid, five, retain=retain))

    def close(self) -> None:
        """Close the connection; its thread has ended, or is the one that calls."""
        if threading.current_thread() is not self._thread:
            self._reset_sockets()

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
        return (self.want_write() and self.loop_write()) or self.loop_misc()

    def _packet_queue(
        self, command: int, packet: bytes | bytearray, mid: int, qos: int, info: mqtt.MQTTMessageInfo | None = None
    ) -> MQTTErrorCode:
        queued = {"command": command, "mid": mid, "qos": qos, "pos": 0, "packet": packet, "info": info}
        self._out_packet.append({**queued, "to_process": len(packet)})  # type: ignore[typeddict-item]
        if not self._woken and self._sockpairW is not None and threading.current_thread() is not self._thread:
            self._woken = True
            with contextlib.suppress(BlockingIOError):
                self._sockpairW.send(b"0")
        return MQTTErrorCode.MQTT_ERR_SUCCESS

    def loop_read(self, max_packets: int = 1) -> MQTTErrorCode:
        """Take what has come, up to 64 kB of it, and hand over its messages."""
        try:
            failed = self._take(self._read())
        except BlockingIOError:
            return MQTTErrorCode.MQTT_ERR_SUCCESS
        except RefusedError as refusal:
            self._wishes.refused(str(refusal))
            failed = MQTTErrorCode.MQTT_ERR_CONN_LOST
        except OSError:
            failed = MQTTErrorCode.MQTT_ERR_CONN_LOST
        except Exception as error:  # malformed in a way that paho-mqtt does not expect
            self._wishes.refused(f"the broker sends a malformed packet: {cause(error)}")
            failed = MQTTErrorCode.MQTT_ERR_PROTOCOL
        return self._loop_rc_handle(failed) if failed else MQTTErrorCode.MQTT_ERR_SUCCESS

    def _read(self) -> bytes:
        """Read the bytes that have come; raises OSError if nothing has, or the broker has closed the connection."""
        if len(self._out_packet) > _MOST_UNSENT or len(self._answers) > _MOST_UNSENT * _PUBACK_BYTES:
            raise RefusedError("the broker takes nothing, but sends")
        if self._wishes.gather and time.monotonic() < self._busy_until:
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
        if kind == PacketTypes.PUBACK and (answer := acknowledgement(body, five)) is not None:
            mid, refusal = answer
            if self._outgoing.answered(mid):
                self._wishes.answered(mid, refusal)
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

    def _send_puback(self, mid: int) -> MQTTErrorCode:
        self._answers += PUBACK + mid.to_bytes(2, "big")  # in the order of what is acknowledged
        return MQTTErrorCode.MQTT_ERR_SUCCESS

    def _hand_over(self) -> None:
        if self._messages:
            messages, self._messages = self._messages, []
            self._wishes.received(messages)
            self._busy_until = time.monotonic() + _BUSY_SECONDS

    def want_write(self) -> bool:
        """True if something waits to be sent."""
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

    def _create_socket_connection(self) -> socket.socket:
        return super()._create_socket_connection() if self._wishes.dial is None else self._wishes.dial()

    def _sock_close(self) -> None:
        self._outgoing.disconnected()
        for buffer in (self._rest, self._answers, self._unsent):
            buffer.clear()
        super()._sock_close()
