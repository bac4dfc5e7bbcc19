"""Short connections: to find out which step to a broker fails, to deliver messages, and to listen to topics."""

from __future__ import annotations

import queue
import secrets
import socket
import ssl
import threading
import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from fugu.contract.errors import cause
from fugu.mqtt.broker import Broker, LinkError
from fugu.mqtt.link import ANSWER_SECONDS, Link, Say, say_nothing

__all__ = ["deliver", "listen", "probe"]

Step = Literal["address", "connection", "TLS", "login", "done"]
_PATIENCE_SECONDS = 10.0
_LISTEN_SECONDS = 2.0
_CONNECT_SECONDS = 60.0
_LOOK_SECONDS = 0.05
_ACCEPT_SECONDS = 30.0


class Probe(NamedTuple):
    """Result of the probe.

    Attributes:
        reached: the step that failed, or "done".
        certificate_end: when the broker's certificate ends, in Unix seconds; `None` if TLS is off, or was not reached.
        writable: by topic, whether the broker took a message; `None` if it does not say, as in MQTT 3.1.1.
        heard: the retained payloads, by topic, of the topics that were listened to.
    """

    step: Step
    problem: str = ""
    certificate_end: float | None = None
    writable_topics: Mapping[str, bool] | None = None
    retained_payloads: Mapping[str, bytes] | None = None


def probe(
    broker: Broker,
    *,
    write_topics: Sequence[str] = (),
    read_topics: Sequence[str] = (),
    log_in: bool = True,
    on_wait: Say = say_nothing,
) -> Probe:
    """Connect to a broker once, and return which steps succeeded.

    Args:
        log_in: log in after TLS. Some brokers know a client by its account, whatever its client id. There, a client
            with this account loses its connection, or, if it is not connected, its stored session.
        write_topics: topics to each of which an empty message goes, not retained; subscribers count it as empty.
        read_topics: topics to subscribe to; their retained messages are awaited for at most 2 seconds.
        on_wait: called with the reason, perhaps in another thread, if there has been no answer for 3 seconds.
    """
    timer = threading.Timer(ANSWER_SECONDS, on_wait, [f"no answer from the broker at {broker.address}"])
    timer.daemon = True
    timer.start()
    try:
        outcome = _try_tls(broker)
    finally:
        timer.cancel()
    if outcome.step != "done" or not log_in:
        return outcome
    return _log_in(broker, outcome.certificate_end, write_topics, read_topics, on_wait)


def _try_tls(broker: Broker) -> Probe:
    """Connect as far as TLS."""
    try:
        context = broker.tls_context()
        broker.password()
    except LinkError as error:
        return Probe("address", str(error))
    try:
        socket.getaddrinfo(broker.host, broker.port)
    except OSError as error:
        return Probe("address", f"{broker.host}: {error.strerror}")
    try:
        with socket.create_connection((broker.host, broker.port), timeout=_PATIENCE_SECONDS) as tcp_connection:
            if context is None:
                return Probe("done")
            with context.wrap_socket(tcp_connection, server_hostname=broker.host) as tls_connection:
                certificate: Any = tls_connection.getpeercert() or {}
                return Probe("done", certificate_end=float(ssl.cert_time_to_seconds(certificate["notAfter"])))
    except ssl.SSLError as error:
        return Probe("TLS", getattr(error, "verify_message", "") or error.reason or cause(error))
    except OSError as error:
        return Probe("connection", f"{broker.address}: {cause(error)}")


def _log_in(
    broker: Broker, certificate_end: float | None, write_topics: Sequence[str], read_topics: Sequence[str], on_wait: Say
) -> Probe:
    acceptances: dict[int, bool] = {}
    retained_payloads: dict[str, bytes] = {}
    link = Link(
        broker,
        client_id=f"doctor-{secrets.token_hex(4)}",
        subscriptions=tuple(read_topics),
        on_message=lambda topic, payload, retained: retained_payloads.update({topic: payload} if retained else {}),
        on_published=lambda mid, accepted: acceptances.update({mid: accepted}),
        on_absent=on_wait,
    )
    with link:
        _wait_until(link, lambda: link.connected or bool(link.last_error))
        if not link.connected:
            return Probe("login", link.last_error or "the broker does not answer", certificate_end)
        writable_topics = {topic: _accepts(link, topic, acceptances) for topic in write_topics}
        _wait_until(link, lambda: len(retained_payloads) >= len(read_topics), _LISTEN_SECONDS)
        writable = writable_topics if link.protocol == "5" else None
        return Probe("done", "", certificate_end, writable, dict(retained_payloads))


def _accepts(link: Link, topic: str, acceptances: Mapping[int, bool]) -> bool:
    """True if the broker accepts an empty message; False if it refuses the message or ends the connection."""
    _wait_until(link, lambda: link.connected)
    if (mid := link.publish(topic, b"")) is None:
        return False
    _wait_until(link, lambda: mid in acceptances or not link.connected)
    return acceptances.get(mid, False)


def _wait_until(link: Link, condition: Callable[[], bool], seconds: float = _PATIENCE_SECONDS) -> None:
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        link.maintain()
        time.sleep(0.02)


def deliver(broker: Broker, messages: Iterable[tuple[str, bytes]], on_wait: Say = say_nothing) -> Generator[bool]:
    """Publish retained messages one after the other, and yield for each whether the broker has accepted it.

    `on_wait` is called once with the reason, if there has been no connection for 3 seconds. LinkError: the credentials
    cannot be read, or the broker refuses the connection, or does not answer for half a minute.
    """
    acceptances = queue.SimpleQueue[bool]()
    link = Link(
        broker,
        client_id=f"deliver-{secrets.token_hex(6)}",
        on_published=lambda _id, is_accepted: acceptances.put(is_accepted),
        on_absent=on_wait,
    )
    with link:
        for topic, payload in messages:
            deadline, is_sent, is_accepted = time.monotonic() + _ACCEPT_SECONDS, False, None
            while is_accepted is None:
                link.maintain()
                is_sent = is_sent or link.publish(topic, payload, retain=True) is not None
                try:
                    is_accepted = acceptances.get(timeout=_LOOK_SECONDS)
                except queue.Empty:
                    if time.monotonic() > deadline or link.last_error.startswith("broker refuses the connection"):
                        raise LinkError(link.last_error or "the broker does not answer") from None
            yield is_accepted


def listen(
    broker: Broker, topics: Sequence[str], seconds: float, on_wait: Say = say_nothing
) -> list[tuple[str, bytes]]:
    """Return topics and payloads, in order, of the messages that come within some seconds of subscribing.

    `on_wait` is called once with the reason, if there has been no connection for 3 seconds.
    LinkError: there was no connection within a minute, it was lost, or the broker has refused a subscription.
    """
    messages: list[tuple[str, bytes]] = []
    link = Link(
        broker,
        f"audit-{time.time_ns()}",
        tuple(topics),
        on_message=lambda topic, payload, _retained: messages.append((topic, payload)),
        on_absent=on_wait,
    )
    with link:
        _wait_until(link, lambda: link.subscribed, _CONNECT_SECONDS)
        _wait_until(link, lambda: not link.subscribed, seconds)
        if not link.subscribed or link.last_error:
            raise LinkError(link.last_error or f"no connection to {broker.address}")
    return messages
