"""One MQTT connection that comes back by itself.

paho-mqtt does the protocol, the network thread and the back-off; `fugu.mqtt.client` reads and writes for it. Added
here: the fall-back from MQTT 5 to 3.1.1, and no exception of a caller ever ending the network thread. Refusals are kept
as text, and small packets do not wait for large ones (TCP_NODELAY).
"""

from __future__ import annotations

import contextlib
import logging
import socket
import ssl
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Self

import paho.mqtt.client as mqtt
from paho.mqtt.enums import MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from fugu.contract.errors import cause
from fugu.mqtt.broker import Broker, LinkError
from fugu.mqtt.client import Client, insides_fit
from fugu.mqtt.packets import MOST_AROUND, Message, Wishes

__all__ = ["ANSWER_SECONDS", "Link", "Will"]

_log = logging.getLogger(__name__)
_AUTHORITY = "give the certificate of its authority, as ca_file"
_OUT_OF_DATE = "see whether this machine's clock is right, and renew it if so"
_OTHER_NAME = "give a name that it has, as host"
_REMEDIES = {9: _OUT_OF_DATE, 10: _OUT_OF_DATE, 62: _OTHER_NAME, 64: _OTHER_NAME}
"""By OpenSSL's number of what is wrong with a certificate: not valid yet, or no more; of another name, or address."""
_OWN_ACCOUNT = "stop that one, or give each an account of its own"
_TAKEN_OVER = "Session taken over"
_TIMES, _SHORT_SECONDS = 3, 30.0
_UNSUPPORTED_PROTOCOL = "Unsupported protocol version"
SESSION_SECONDS = 7 * 24 * 3600
MAX_PAYLOAD = 1 << 21
"""The largest document."""
ANSWER_SECONDS = 3.0
"""A broker that has not answered a connection in MQTT 5 by then is taken for one that does not know it.

One that has accepted none by then is reported as absent.
"""


_MOST_TOPICS = 200
_MOST_BYTES = 1 << 12
"""Of the topics in one packet; brokers limit packets, and what answers this one has to be small, too."""
_LONGEST = (1 << 16) - 1


class Will(NamedTuple):
    """Message that the broker publishes, retained, when the connection dies."""

    topic: str
    payload: bytes


class _Requests:
    """Subscriptions that are asked for, and those that are to end; every method may be called from any thread.

    `ended` has topics whose end the broker has not confirmed; a session that it keeps would still have them.
    """

    def __init__(self) -> None:
        self.ended: dict[str, None] = {}
        self._asked: dict[int, list[str]] = {}
        self._ending: dict[int, list[str]] = {}
        self._open = False
        self._lock = threading.Lock()

    @property
    def answered(self) -> bool:
        """True if there is a connection, on which the broker has answered for every topic."""
        with self._lock:
            return self._open and not self._asked

    def connected(self, client: mqtt.Client, topics: Sequence[str]) -> None:
        with self._lock:
            self._asked.clear()
            self._ending.clear()
            self._end(client, list(self.ended))
            self._ask(client, topics)
            self._open = True

    def disconnected(self) -> None:
        with self._lock:
            self._open = False

    def ask(self, client: mqtt.Client | None, topics: Sequence[str]) -> None:
        with self._lock:
            for topic in topics:
                self.ended.pop(topic, None)
            if client is not None and self._open:
                self._ask(client, topics)

    def end(self, client: mqtt.Client | None, topics: Sequence[str]) -> None:
        """Ask for an end, on the connection if there is one, and otherwise on the next."""
        with self._lock:
            self.ended.update(dict.fromkeys(topics))
            if client is not None and self._open:
                self._end(client, topics)

    def subscribed(self, mid: int, reasons: Iterable[Any]) -> list[tuple[str, Any]]:
        """Return the topics that the broker refuses, each with its reason."""
        with self._lock:
            topics = self._asked.pop(mid, [])
        return [(topic, reason) for topic, reason in zip(topics, reasons, strict=False) if reason.is_failure]

    def unsubscribed(self, mid: int) -> None:
        with self._lock:
            for topic in self._ending.pop(mid, []):
                self.ended.pop(topic, None)

    def _ask(self, client: mqtt.Client, topics: Sequence[str]) -> None:
        for batch in _parts(topics):
            _, mid = client.subscribe([(topic, 1) for topic in batch])
            if mid is not None:
                self._asked[mid] = batch

    def _end(self, client: mqtt.Client, topics: Sequence[str]) -> None:
        for batch in _parts(topics):
            _, mid = client.unsubscribe(batch)
            if mid is not None:
                self._ending[mid] = batch


@dataclass
class Link:
    """A connection to a broker, for one owner.

    The callbacks run in the network thread: they must be short, and an exception in one is logged by its type only.
    Call `maintain` now and then from the owner's own loop.

    Attributes:
        subscriptions: topics at QoS 1, at every connection; `subscribe` and `unsubscribe` change them.
        durable: keep the session, and messages for it, at the broker while disconnected.
        max_payload: bytes of the largest message taken; a broker that sends a larger one loses the connection (in MQTT
            3.1.1, which cannot announce it, if it is above 2 MiB, too).
        max_in_flight: messages that the broker has not acknowledged, at most; the rest waits here.
        on_message: called with topic, payload and whether the message was retained.
        on_messages: called instead, if given, with all messages of one turn of the network thread, in order. They are
            acknowledged, and more is read, when it returns. While messages come in quick succession, each turn waits
            half a millisecond for more.
        on_published: called with the message id, and whether the broker took it, when the broker has answered.
        dial: opens each connection, in place of the broker's host and port; may raise OSError.
        on_absent: called by `maintain`, once, if there was no connection in the first 3 seconds, with what is known of
            why.
        certificate_end: of the broker's certificate, in Unix seconds; `None` without TLS.
        last_error: the newest problem in words, empty while all is well.
        protocol: the version of MQTT that is spoken, or tried.
        clients: how many there have been; what was under way with one before is lost, and never answered.
    """

    broker: Broker
    client_id: str
    subscriptions: tuple[str, ...] = ()
    will: Will | None = None
    durable: bool = False
    max_payload: int = MAX_PAYLOAD
    max_in_flight: int = 100
    on_connected: Callable[[], None] = lambda: None
    on_message: Callable[[str, bytes, bool], None] = lambda _topic, _payload, _retained: None
    on_messages: Callable[[list[Message]], None] | None = None
    on_published: Callable[[int, bool], None] = lambda _mid, _accepted: None
    dial: Callable[[], socket.socket] | None = None
    on_absent: Callable[[str], None] = lambda _why: None
    last_error: str = field(default="", init=False)
    certificate_end: float | None = field(default=None, init=False)
    clients: int = field(default=0, init=False)
    protocol: Literal["5", "3.1.1"] = field(default="5", init=False)
    _client: Client | None = field(default=None, init=False)
    _requests: _Requests = field(default_factory=_Requests, init=False)
    _changing: threading.Lock = field(default_factory=threading.Lock, init=False)
    _fall_back: bool = field(default=False, init=False)
    _opened: float | None = field(default=None, init=False)
    _accepted: float = field(default=float("-inf"), init=False)
    _cut: int = field(default=0, init=False)
    _largest: int | None = field(default=None, init=False)
    _not_sent: int = field(default=0, init=False)
    _waits_since: float | None = field(default=None, init=False)

    def start(self) -> None:
        """Begin to connect, in the background; the broker may be down.

        LinkError: TLS or password files cannot be read, a subscription is none, or paho-mqtt is of another version.
        """
        _check_filters(self.subscriptions)
        if self.broker.protocol != "auto":
            self.protocol = self.broker.protocol
        self._client = self._new_client()
        if not self.clients:
            self._waits_since = time.monotonic()
        self.clients += 1
        self._client.connect_async(self.broker.host, self.broker.port, self.broker.keepalive, **self._session())
        self._client.loop_start()

    def maintain(self) -> None:
        """Fall back to MQTT 3.1.1 if the broker has said, or shown by silence, that it does not know 5.

        Also say once if no broker is there.
        """
        wait_start = self._waits_since  # which the network's thread may set to None meanwhile
        if wait_start is not None and time.monotonic() - wait_start > ANSWER_SECONDS:
            self._waits_since = None
            self.on_absent(self.last_error or f"no answer from the broker at {self.broker.address}")
        if self._client is not None and self.falls_back:
            self._fall_back = False
            _end_thread(self._client)
            self.protocol = "3.1.1"
            _log.info("broker does not speak MQTT 5: using 3.1.1")
            self.start()

    @property
    def falls_back(self) -> bool:
        """True if `maintain` has something to do, which takes up to a second."""
        open_time = self._opened
        is_silent = open_time is not None and time.monotonic() - open_time > ANSWER_SECONDS
        return self._trying_5() and (self._fall_back or is_silent)

    @property
    def connected(self) -> bool:
        """True if the broker has accepted the connection, and it has not been lost since."""
        return self._client is not None and self._client.is_connected()

    @property
    def subscribed(self) -> bool:
        """True if the broker has answered for every subscription on this connection; `last_error` names one refused."""
        return self.connected and self._requests.answered

    def subscribe(self, topics: Iterable[str]) -> None:
        """Subscribe now and at every later connection, from any thread; on a LinkError nothing has been asked for."""
        requested_topics = dict.fromkeys(topics)
        _check_filters(requested_topics)
        with self._changing:
            subscriptions = set(self.subscriptions)
            new_topics = [topic for topic in requested_topics if topic not in subscriptions]
            self.subscriptions += tuple(new_topics)
            self._requests.ask(self._client, new_topics)

    def unsubscribe(self, topics: Iterable[str]) -> None:
        """End subscriptions, now or, at a broker that keeps the session, as soon as there is a connection."""
        ended_topics = dict.fromkeys(topics)
        with self._changing:
            self.subscriptions = tuple(topic for topic in self.subscriptions if topic not in ended_topics)
            self._requests.end(self._client, list(ended_topics))

    def publish(self, topic: str, payload: bytes, *, retain: bool = False) -> int | None:
        """Publish a message; its id, or `None`, with nothing queued, without a connection or with too much unanswered.

        `on_published` will name the id, or has named it if the message is larger than what the broker says it takes.
        """
        if self._client is None or not self.connected:
            return None
        max_bytes = self._largest  # of a connection that may be another one meanwhile
        if max_bytes is not None and len(payload) + MOST_AROUND > max_bytes:
            self.last_error = (
                f"broker takes messages of {max_bytes - MOST_AROUND} bytes; one of {len(payload)} is not sent"
            )
            self._not_sent -= 1
            self._guard(self.on_published, self._not_sent, False)
            return self._not_sent
        return self._client.send(topic, payload, retain=retain)

    def stop(self, *, in_order: bool = True) -> None:
        """Disconnect and end the network thread; the broker tells the last will unless all is in order."""
        if self._client is not None:
            if in_order:
                self._client.disconnect()
            elif (connection := self._client.socket()) is not None:
                plain_socket: Any = connection
                with contextlib.suppress(OSError):
                    socket.socket.shutdown(plain_socket, socket.SHUT_RDWR)  # as if cut, also below TLS
            _end_thread(self._client)
            self._client = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_raised: object) -> None:
        self.stop()

    def _new_client(self) -> Client:
        if not insides_fit():
            raise LinkError("this version of paho-mqtt has other insides: install paho-mqtt 2.1 or 2.2")
        is_mqtt5 = self.protocol == "5"
        version = MQTTProtocolVersion.MQTTv5 if is_mqtt5 else MQTTProtocolVersion.MQTTv311
        clean_session = None if is_mqtt5 else not self.durable
        # A broker of MQTT 3.1.1 cannot be told: it would send what is too large again at every connection.
        max_payload = self.max_payload if is_mqtt5 else max(self.max_payload, MAX_PAYLOAD)
        wishes = Wishes(
            max_payload=max_payload,
            max_in_flight=self.max_in_flight,
            refused=self._refused,
            received=self._received,
            answered=self._acknowledged,
            gather=self.on_messages is not None,
            dial=self.dial,
        )
        client = Client(self.client_id, clean_session, version, wishes)
        client.reconnect_delay_set(1, self.broker.max_backoff)
        if self.broker.username is not None:
            client.username_pw_set(self.broker.username, self.broker.password())
        if (tls_context := self.broker.tls_context()) is not None:
            client.tls_set_context(tls_context)
        if self.will is not None:
            client.will_set(self.will.topic, self.will.payload, qos=1, retain=True)
        # An exception of these would end the network thread for good.
        client.on_socket_open = lambda _client, _data, connection: self._guard(self._socket_opened, connection)
        client.on_connect_fail = lambda _client, _data: self._guard(self._connect_failed)
        client.on_disconnect = lambda _client, _data, _flags, reason, _properties: self._guard(
            self._disconnected, reason
        )
        client.on_connect = self._connected
        client.on_subscribe = self._subscribed
        client.on_unsubscribe = lambda _client, _data, mid, _reasons, _properties: self._requests.unsubscribed(mid)
        return client

    def _session(self) -> dict[str, Any]:
        if self.protocol != "5":
            return {}
        properties = Properties(PacketTypes.CONNECT)
        properties.MaximumPacketSize = self.max_payload + MOST_AROUND
        if self.durable:
            properties.SessionExpiryInterval = SESSION_SECONDS
        return {"properties": properties, **({"clean_start": False} if self.durable else {})}

    def _trying_5(self) -> bool:
        return self.protocol == "5" and self.broker.protocol == "auto"

    def _socket_opened(self, connection: Any) -> None:
        if connection.family != socket.AF_UNIX:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._opened = time.monotonic()

    def _refused(self, reason: str) -> None:
        """Keep the reason; `_connected` may have cleared an earlier error."""
        self.last_error = reason

    def _guard(self, callback: Callable[..., None], *arguments: object) -> None:
        """Call the owner; its exceptions must not end the network thread, nor print what it held."""
        try:
            callback(*arguments)
        except Exception as error:
            self.last_error = f"{cause(error)} in a callback"
            _log.error("%s", self.last_error)

    def _connected(self, client: mqtt.Client, _data: Any, _flags: Any, reason: Any, properties: Any) -> None:
        self._opened = None
        if reason.is_failure:
            self._fall_back = str(reason) == _UNSUPPORTED_PROTOCOL and self._trying_5()
            if not self._fall_back:
                self.last_error = f"broker refuses the connection: {reason}"
            return
        self.last_error = ""
        self._waits_since = None
        self._accepted = time.monotonic()
        if (get_certificate := getattr(client.socket(), "getpeercert", None)) is not None:
            self.certificate_end = float(ssl.cert_time_to_seconds(get_certificate()["notAfter"]))
        self._largest = getattr(properties, "MaximumPacketSize", None)
        with self._changing:
            self._requests.connected(client, self.subscriptions)
        self._guard(self.on_connected)

    def _connect_failed(self) -> None:
        error = sys.exc_info()[1]  # paho-mqtt calls from where it caught what the socket raised
        reason = cause(error)
        if isinstance(error, ssl.SSLCertVerificationError):
            remedy = _REMEDIES.get(error.verify_code, _AUTHORITY)
            reason = f"its certificate is not trusted ({error.verify_message.rstrip('.')}): {remedy}"
        elif self.broker.has_tls and isinstance(error, ssl.SSLError | ConnectionResetError):
            reason += "; if it speaks no TLS there, name the port where it does"
        self.last_error = f"no broker at {self.broker.address}" + (f": {reason}" if reason else "")

    def _disconnected(self, reason: Any) -> None:
        is_unanswered, self._opened = self._opened is not None, None
        self._requests.disconnected()
        is_short = reason.is_failure and time.monotonic() - self._accepted < _SHORT_SECONDS
        self._cut = self._cut + 1 if is_short else 0
        if self._cut >= _TIMES or str(reason) == _TAKEN_OVER:  # not every broker says so
            self.last_error = f"connection lost: another program seems to use this account: {_OWN_ACCOUNT}"
        elif reason.is_failure and not self.last_error:
            self.last_error = f"connection lost: {reason}"
            if is_unanswered and not self.broker.has_tls:
                self.last_error += f"; it never answered: if it speaks TLS there, {_AUTHORITY}"

    def _received(self, messages: list[Message]) -> None:
        if self.on_messages is not None:
            self._guard(self.on_messages, messages)
            return
        for message in messages:
            self._guard(self.on_message, *message)

    def _acknowledged(self, mid: int, refusal: str) -> None:
        if refusal:
            self.last_error = f"broker refuses a message: {refusal}"
        self._guard(self.on_published, mid, not refusal)

    def _subscribed(self, _client: mqtt.Client, _data: Any, mid: int, reasons: Any, _properties: Any) -> None:
        for topic, reason in self._requests.subscribed(mid, reasons):
            self.last_error = f"broker refuses the subscription to {topic[:80]}: {reason}"


def _check_filters(topics: Iterable[str]) -> None:
    if (invalid_filter := next((topic for topic in topics if not is_filter(topic)), None)) is not None:
        raise LinkError(f"{invalid_filter[:80]!r} is no topic to subscribe to")


def _end_thread(client: Client) -> None:
    # paho forgets its thread when that ends by itself, be it between loop_stop's look at it and its join.
    with contextlib.suppress(AttributeError):
        client.loop_stop()
    client.close()


def is_filter(topic: str) -> bool:
    """True if a broker may be asked for it: wildcards stand alone between slashes, `#` at the end."""
    levels = topic.split("/")
    wildcards_fit = all(len(level) == 1 or not {"+", "#"} & set(level) for level in levels)
    return 0 < len(topic.encode(errors="replace")) <= _LONGEST and wildcards_fit and "#" not in levels[:-1]


def _parts(topics: Sequence[str]) -> Iterator[list[str]]:
    batch: list[str] = []
    free_bytes = _MOST_BYTES
    for topic in topics:
        topic_bytes = len(topic.encode())
        if batch and (len(batch) == _MOST_TOPICS or topic_bytes > free_bytes):
            yield batch
            batch, free_bytes = [], _MOST_BYTES
        batch.append(topic)
        free_bytes -= topic_bytes
    if batch:
        yield batch
