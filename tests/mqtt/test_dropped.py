"""Connections that end before CONNECT, or while something is waited for, and what waits for them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fugu.contract.topics import topic_of
from fugu.mqtt import Broker, Link, Subscription
from fugu.mqtt.probe import listen
from gateway.deployment.folders import clear_retained
from tests.support.brokers import PATIENCE, Mosquitto, wait_until
from tests.support.shipped import Client
from tests.support.wiretap import Wiretap

TOPIC = topic_of("status", "home", "watch")


@pytest.fixture
def late(broker: Mosquitto) -> Iterator[Wiretap]:
    """A broker that ends the first two connections of three before CONNECT."""
    with Wiretap(broker.port, drops=lambda number: number % 3 != 0) as tap:
        yield tap


def through(tap: Wiretap) -> Broker:
    """Its address, for a link that comes back soon."""
    return Broker(port=tap.port, max_backoff=1)


def test_a_wait_says_what_was_waited_for_and_what_had_come_instead() -> None:
    heard = ["one"]
    with pytest.raises(AssertionError) as error:
        wait_until(lambda: len(heard) > 1 and heard, patience=0.02)
    assert str(error.value) == (
        "waited 0.02 s for wait_until(lambda: len(heard) > 1 and heard, patience=0.02), in vain: there is False"
    )
    with pytest.raises(AssertionError, match=r"s for a second word, in vain: there is \['one'\]"):
        wait_until(lambda: len(heard) > 1, "a second word", instead=lambda: heard, patience=0.02)


@pytest.mark.long
def test_links_connect_again(late: Wiretap) -> None:
    heard: list[bytes] = []
    answered: list[bool] = []
    link = Link(
        through(late),
        "watch",
        (TOPIC,),
        on_message=lambda _topic, payload, _retained: heard.append(payload),
        on_published=lambda _message, accepted: answered.append(accepted),
    )
    link.start()
    for cut in (True, False):
        wait_until(lambda: link.subscribed, "the subscription", instead=lambda: link.last_error)
        before = len(answered)
        assert link.publish(TOPIC, b"x") is not None
        wait_until(lambda before=before: len(answered) > before, "an answer", instead=lambda: link.last_error)
        if cut:
            late.cut()
            wait_until(lambda: not link.connected)
    wait_until(lambda: len(heard) >= 2, "both messages", instead=lambda: heard)
    assert late.accepted == 6


@pytest.mark.long
def test_what_connects_for_a_moment_connects_again(broker: Mosquitto, late: Wiretap) -> None:
    with Client(broker.broker) as client:
        client._client.publish(TOPIC, b"old", qos=1, retain=True)
        assert client.publish("end") == 0
    clear_retained(through(late), [TOPIC])
    assert late.accepted == 3
    with Client(broker.broker) as client:
        client.subscribe(TOPIC)
        assert client.publish(TOPIC, b"end") == 0
        client.wait_for(TOPIC, b"end")
        assert client.received == [(TOPIC, b"end")]
        client._client.publish(TOPIC, b"kept", qos=1, retain=True)
        assert client.publish("end") == 0
    assert listen(through(late), [TOPIC], 0.2) == [(TOPIC, b"kept")]
    assert late.accepted == 6


@pytest.mark.long
def test_a_subscription_hears_what_comes_after_lost_connections(broker: Mosquitto, late: Wiretap) -> None:
    with Subscription(through(late), fleet="home", timeout=PATIENCE) as readings:
        wait_until(lambda: readings.link.subscribed, "the subscription", instead=lambda: readings.link.last_error)
    assert late.accepted == 3
