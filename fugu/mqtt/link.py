"""One MQTT connection that reconnects by itself.

paho-mqtt has the protocol, the network thread and the back-off; `fugu.mqtt.client` reads and writes for it. This module
adds the fall-back from MQTT 5 to 3.1.1, and keeps refusals as text. No exception of a callback ends the network thread,
and small packets do not wait for large ones (TCP_NODELAY).
"""

from __future__ import annotations

import contextlib
import logging
import math
import socket
import ssl
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Self

from paho.mqtt.enums import MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from fugu.contract.errors import cause
from fugu.mqtt.broker import Broker, LinkError
from fugu.mqtt.client import Client, private_names_fit
from fugu.mqtt.packets import MOST_OVERHEAD, ClientOptions, Message
from fugu.mqtt.paho_client import mqtt

__all__ = ["ANSWER_SECONDS", "Link", "Say", "Will", "say_nothing"]

_log = logging.getLogger(__name__)
_AUTHORITY = "give the certificate of its authority, as ca_file"
_OUT_OF_DATE = "see whether this machine's clock is right, and renew it if so"
_OTHER_NAME = "give a name that it has, as host"
_REMEDIES = {9: _OUT_OF_DATE, 10: _OUT_OF_DATE, 62: _OTHER_NAME, 64: _OTHER_NAME}
"""Remedies by OpenSSL's number: a certificate is not valid yet, or no more, or is of another name, or address."""
_OWN_ACCOUNT = "stop that one, or give each an account of its own"
_TAKEN_OVER = "Session taken over"
_MAX_CUTS, _SHORT_SECONDS = 3, 30.0
_UNSUPPORTED_PROTOCOL = "Unsupported protocol version"
SESSION_SECONDS = 7 * 24 * 3600
MAX_PAYLOAD = 1 << 21
"""Bytes of the largest document."""
ANSWER_SECONDS = 3.0
"""A broker that has not answered in MQTT 5 after this time is taken for one that does not know MQTT 5.

A broker that has accepted no connection after this time is reported as absent.
"""

_MOST_TOPICS = 200
_MOST_BYTES = 1 << 12
"""Most bytes of the topics in one packet: brokers limit packets, and the answer to this packet must be small, too."""
_MAX_TOPIC_BYTES = (1 << 16) - 1

Say = Callable[[str], None]
"""Takes a line for people, perhaps in another thread."""


def say_nothing(_line: str) -> None:
    """Take a line that nobody wants."""


class Will(NamedTuple):
    """Message that the broker publishes, retained, when the connection is lost."""

    topic: str
    payload: bytes


class _SubscriptionRequests:
    """Requests to subscribe and to unsubscribe; every method may be called from any thread.

    `ended_topics` has the topics whose end the broker has not confirmed: a session that it keeps may still have them.
    """

    def __init__(self) -> None:
        self.ended_topics: dict[str, None] = {}
        self._subscribing: dict[int, list[str]] = {}
        self._unsubscribing: dict[int, list[str]] = {}
        self._client: mqtt.Client | None = None
        self._lock = threading.Lock()

    @property
    def are_answered(self) -> bool:
        """True if the broker has answered every request to subscribe on the current connection."""
        with self._lock:
            return self._client is not None and not self._subscribing

    def note_connection(self, client: mqtt.Client, topics: Sequence[str]) -> None:
        with self._lock:
            self._client = client
            self._subscribing.clear()
            self._unsubscribing.clear()
            self._send_unsubscribe(list(self.ended_topics))
            self._send_subscribe(topics)

    def note_disconnection(self) -> None:
        with self._lock:
            self._client = None

    def subscribe(self, topics: Sequence[str]) -> None:
        with self._lock:
            for topic in topics:
                self.ended_topics.pop(topic, None)
            self._send_subscribe(topics)

    def unsubscribe(self, topics: Sequence[str]) -> None:
        """End subscriptions, on the current connection or else on the next."""
        with self._lock:
            self.ended_topics.update(dict.fromkeys(topics))
            self._send_unsubscribe(topics)

    def note_answer(self, mid: int, reasons: Iterable[Any]) -> list[tuple[str, Any]]:
        """Take the answer to a request to subscribe. Return the topics that the broker refuses, with reasons."""
        with self._lock:
            topics = self._subscribing.pop(mid, [])
        return [(topic, reason) for topic, reason in zip(topics, reasons, strict=False) if reason.is_failure]

    def note_end(self, mid: int) -> None:
        with self._lock:
            for topic in self._unsubscribing.pop(mid, []):
                self.ended_topics.pop(topic, None)

    def _send_subscribe(self, topics: Sequence[str]) -> None:
        for batch in _batches(topics):
            if self._client is not None:
                _, mid = self._client.subscribe([(topic, 1) for topic in batch])
                if mid is not None:
                    self._subscribing[mid] = batch

    def _send_unsubscribe(self, topics: Sequence[str]) -> None:
        for batch in _batches(topics):
            if self._client is not None:
                _, mid = self._client.unsubscribe(batch)
                if mid is not None:
                    self._unsubscribing[mid] = batch


@dataclass
class Link:
    """A connection to a broker, for one owner.

    The callbacks run in the network thread: they must be short, and an exception in one is logged by its type only.
    Call `maintain` now and then from the owner's own loop.

    Attributes:
        subscriptions: topics at QoS 1, at every connection; `subscribe` and `unsubscribe` change them.
        durable: keep the session, and messages for it, at the broker while disconnected.
        max_payload: bytes of the largest message that is taken; a larger one ends the connection. MQTT 3.1.1 cannot
            announce the limit, so there it is at least 2 MiB.
        max_in_flight: most messages that are sent and not acknowledged; further messages wait here.
        on_message: called with topic, payload and whether the message was retained.
        on_messages: called in place of `on_message`, if given, with all messages of one turn of the network thread, in
            order. When it returns, they are acknowledged, and more is read. While messages come in quick succession,
            each turn waits half a millisecond for more.
        on_published: called when the broker has answered, with the message id and whether the broker took the message.
        dial: opens each connection, in place of the broker's host and port; may raise OSError.
        on_absent: called by `maintain`, once, with the reason in words, if there was no connection in 3 seconds.
        certificate_end: when the broker's certificate ends, in Unix seconds; `None` without TLS.
        last_error: the newest problem in words, empty while all is well.
        protocol: the version of MQTT that is spoken, or tried.
        client_count: how many clients the link has had. Publications of an earlier client are never answered.
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
    on_published: Callable[[int, bool], None] = lambda _mid, _is_accepted: None
    dial: Callable[[], socket.socket] | None = None
    on_absent: Say = say_nothing

    def __post_init__(self) -> None:
        """Prepare the link, which does nothing before `start`."""
        self.last_error = ""
        self.certificate_end: float | None = None
        self.client_count = 0
        self.protocol: Literal["5", "3.1.1"] = "5" if self.broker.protocol == "auto" else self.broker.protocol
        self._client: Client | None = None
        self._requests = _SubscriptionRequests()
        self._topics_lock = threading.Lock()
        self._must_fall_back = False
        self._opened_at: float | None = None
        self._accepted_at = -math.inf
        self._cut_count = self._unsent_id = 0
        self._max_packet: int | None = None
        self._waits_since: float | None = None

    def start(self) -> None:
        """Begin to connect, in the background; the broker may be down.

        LinkError: TLS or password files cannot be read, a topic is malformed, or paho-mqtt is of another version.
        """
        _check_filters(self.subscriptions)
        self._client = self._new_client()
        if not self.client_count:
            self._waits_since = time.monotonic()
        self.client_count += 1
        self._client.connect_async(self.broker.host, self.broker.port, self.broker.keepalive, **self._connect_options())
        self._client.loop_start()

    def maintain(self) -> None:
        """Fall back to MQTT 3.1.1 if the broker has said, or shown by silence, that it does not know MQTT 5.

        If a file of the broker cannot be read any more, `last_error` says so, and the next call tries again. Also call
        `on_absent` once if no broker is there.
        """
        waits_since = self._waits_since  # the network thread may set it to None meanwhile
        if waits_since is not None and time.monotonic() - waits_since > ANSWER_SECONDS:
            self._waits_since = None
            self.on_absent(self.last_error or f"no answer from the broker at {self.broker.address}")
        if self._client is not None and self.falls_back:
            self._must_fall_back = False
            _end_thread(self._client)
            self.protocol = "3.1.1"
            try:
                self.start()
                _log.info("broker does not speak MQTT 5: using 3.1.1")
            except LinkError as error:
                self.protocol, self._must_fall_back, self.last_error = "5", True, str(error)

    @property
    def falls_back(self) -> bool:
        """True if `maintain` is to fall back to MQTT 3.1.1, which takes up to a second."""
        opened_at = self._opened_at
        is_silent = opened_at is not None and time.monotonic() - opened_at > ANSWER_SECONDS
        return self._may_fall_back() and (self._must_fall_back or is_silent)

    @property
    def connected(self) -> bool:
        """True if the broker has accepted the connection, and the connection still stands."""
        return self._client is not None and self._client.is_connected()

    @property
    def subscribed(self) -> bool:
        """True if the broker has answered every subscription on this connection; `last_error` names a refused one."""
        return self.connected and self._requests.are_answered

    def subscribe(self, topics: Iterable[str]) -> None:
        """Subscribe now and at every later connection; any thread may. On a LinkError no topic is subscribed to."""
        requested_topics = dict.fromkeys(topics)
        _check_filters(requested_topics)
        with self._topics_lock:
            subscriptions = set(self.subscriptions)
            new_topics = [topic for topic in requested_topics if topic not in subscriptions]
            self.subscriptions += tuple(new_topics)
            self._requests.subscribe(new_topics)

    def unsubscribe(self, topics: Iterable[str]) -> None:
        """End subscriptions, now or as soon as there is a connection."""
        ended_topics = dict.fromkeys(topics)
        with self._topics_lock:
            self.subscriptions = tuple(topic for topic in self.subscriptions if topic not in ended_topics)
            self._requests.unsubscribe(list(ended_topics))

    def publish(self, topic: str, payload: bytes, *, retain: bool = False) -> int | None:
        """Publish a message and return its id.

        `None`: nothing was queued, as there is no connection or too many messages are unanswered. `on_published` is
        called with the id later, or before this returns if the message is larger than the broker takes.
        """
        if self._client is None or not self.connected:
            return None
        max_bytes = self._max_packet  # read once: a new connection may change it
        if max_bytes is not None and len(payload) + MOST_OVERHEAD > max_bytes:
            limit_words = f"broker takes messages of {max_bytes - MOST_OVERHEAD} bytes"
            self.last_error = f"{limit_words}; one of {len(payload)} is not sent"
            self._unsent_id -= 1
            self._guard(self.on_published, self._unsent_id, False)
            return self._unsent_id
        return self._client.send(topic, payload, retain=retain)

    def stop(self, *, in_order: bool = True) -> None:
        """Disconnect and end the network thread. The broker publishes the last will unless `in_order`."""
        if self._client is not None:
            if in_order:
                self._client.disconnect()
            elif (connection := self._client.socket()) is not None:
                plain_socket: Any = connection
                with contextlib.suppress(OSError):
                    socket.socket.shutdown(plain_socket, socket.SHUT_RDWR)  # cut the connection, also below TLS
            _end_thread(self._client)
            self._client = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_raised: object) -> None:
        self.stop()

    def _new_client(self) -> Client:
        if not private_names_fit():
            raise LinkError("this version of paho-mqtt has other insides: install paho-mqtt 2.1 or 2.2")
        is_mqtt5 = self.protocol == "5"
        version = MQTTProtocolVersion.MQTTv5 if is_mqtt5 else MQTTProtocolVersion.MQTTv311
        clean_session = None if is_mqtt5 else not self.durable
        # A broker of MQTT 3.1.1 is not told the limit: it would send a larger message again at every connection.
        max_payload = self.max_payload if is_mqtt5 else max(self.max_payload, MAX_PAYLOAD)
        options = ClientOptions(
            max_payload=max_payload,
            max_in_flight=self.max_in_flight,
            on_refused=self._note_refusal,
            on_received=self._deliver,
            on_answered=self._note_acknowledgement,
            gathers=self.on_messages is not None,
            dial=self.dial,
        )
        client = Client(self.client_id, clean_session, version, options)
        client.reconnect_delay_set(1, self.broker.max_backoff)
        if self.broker.username is not None:
            client.username_pw_set(self.broker.username, self.broker.password())
        if (tls_context := self.broker.tls_context()) is not None:
            client.tls_set_context(tls_context)
        if self.will is not None:
            client.will_set(self.will.topic, self.will.payload, qos=1, retain=True)
        # An exception in one of these callbacks would end the network thread for good.
        client.on_socket_open = lambda _client, _data, connection: self._guard(self._socket_opened, connection)
        client.on_connect_fail = lambda _client, _data: self._guard(self._connect_failed)
        client.on_disconnect = lambda _client, _data, _flags, reason, _properties: self._guard(
            self._note_disconnection, reason
        )
        client.on_connect = self._note_connection
        client.on_subscribe = self._note_subscription
        client.on_unsubscribe = lambda _client, _data, mid, _reasons, _properties: self._requests.note_end(mid)
        return client

    def _connect_options(self) -> dict[str, Any]:
        if self.protocol != "5":
            return {}
        properties = Properties(PacketTypes.CONNECT)
        properties.MaximumPacketSize = self.max_payload + MOST_OVERHEAD
        if self.durable:
            properties.SessionExpiryInterval = SESSION_SECONDS
        return {"properties": properties, **({"clean_start": False} if self.durable else {})}

    def _may_fall_back(self) -> bool:
        return self.protocol == "5" and self.broker.protocol == "auto"

    def _socket_opened(self, connection: Any) -> None:
        if connection.family != socket.AF_UNIX:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._opened_at = time.monotonic()

    def _note_refusal(self, reason: str) -> None:
        """Replace `last_error` by the reason of a refusal."""
        self.last_error = reason

    def _guard(self, callback: Callable[..., None], *arguments: object) -> None:
        """Call the owner's callback. Its exception must not end the network thread, nor print what it held."""
        try:
            callback(*arguments)
        except Exception as error:
            self.last_error = f"{cause(error)} in a callback"
            _log.error("%s", self.last_error)

    def _note_connection(self, client: mqtt.Client, _data: Any, _flags: Any, reason: Any, properties: Any) -> None:
        self._opened_at = None
        if reason.is_failure:
            self._must_fall_back = str(reason) == _UNSUPPORTED_PROTOCOL and self._may_fall_back()
            if not self._must_fall_back:
                self.last_error = f"broker refuses the connection: {reason}"
            return
        self.last_error = ""
        self._waits_since = None
        self._accepted_at = time.monotonic()
        if (get_certificate := getattr(client.socket(), "getpeercert", None)) is not None:
            self.certificate_end = float(ssl.cert_time_to_seconds(get_certificate()["notAfter"]))
        self._max_packet = getattr(properties, "MaximumPacketSize", None)
        with self._topics_lock:
            self._requests.note_connection(client, self.subscriptions)
        self._guard(self.on_connected)

    def _connect_failed(self) -> None:
        error = sys.exc_info()[1]  # paho-mqtt calls this while it handles the socket's error
        reason = cause(error)
        if isinstance(error, ssl.SSLCertVerificationError):
            remedy = _REMEDIES.get(error.verify_code, _AUTHORITY)
            reason = f"its certificate is not trusted ({error.verify_message.rstrip('.')}): {remedy}"
        elif self.broker.has_tls and isinstance(error, ssl.SSLError | ConnectionResetError):
            reason += "; if it speaks no TLS there, name the port where it does"
        self.last_error = f"no broker at {self.broker.address}" + (f": {reason}" if reason else "")

    def _note_disconnection(self, reason: Any) -> None:
        is_unanswered, self._opened_at = self._opened_at is not None, None
        self._requests.note_disconnection()
        is_short = reason.is_failure and time.monotonic() - self._accepted_at < _SHORT_SECONDS
        self._cut_count = self._cut_count + 1 if is_short else 0
        if self._cut_count >= _MAX_CUTS or str(reason) == _TAKEN_OVER:  # not every broker says so
            self.last_error = f"connection lost: another program seems to use this account: {_OWN_ACCOUNT}"
        elif reason.is_failure and not self.last_error:
            self.last_error = f"connection lost: {reason}"
            if is_unanswered and not self.broker.has_tls:
                self.last_error += f"; it never answered: if it speaks TLS there, {_AUTHORITY}"

    def _deliver(self, messages: list[Message]) -> None:
        if self.on_messages is not None:
            self._guard(self.on_messages, messages)
            return
        for message in messages:
            self._guard(self.on_message, *message)

    def _note_acknowledgement(self, mid: int, refusal: str) -> None:
        if refusal:
            self.last_error = f"broker refuses a message: {refusal}"
        self._guard(self.on_published, mid, not refusal)

    def _note_subscription(self, _client: mqtt.Client, _data: Any, mid: int, reasons: Any, _properties: Any) -> None:
        for topic, reason in self._requests.note_answer(mid, reasons):
            self.last_error = f"broker refuses the subscription to {topic[:80]}: {reason}"


def _check_filters(topics: Iterable[str]) -> None:
    if (invalid_filter := next((topic for topic in topics if not is_filter(topic)), None)) is not None:
        raise LinkError(f"{invalid_filter[:80]!r} is no topic to subscribe to")


def _end_thread(client: Client) -> None:
    # paho-mqtt sets its thread to None when the thread ends by itself, also in the middle of loop_stop.
    with contextlib.suppress(AttributeError):
        client.loop_stop()
    client.close()


def is_filter(topic: str) -> bool:
    """True if a topic is a valid filter of a subscription: wildcards stand alone between slashes, `#` at the end."""
    levels = topic.split("/")
    wildcards_fit = all(len(level) == 1 or not {"+", "#"} & set(level) for level in levels)
    return 0 < len(topic.encode(errors="replace")) <= _MAX_TOPIC_BYTES and wildcards_fit and "#" not in levels[:-1]


def _batches(topics: Sequence[str]) -> Iterator[list[str]]:
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
