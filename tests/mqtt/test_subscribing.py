"""Thousands of subscriptions, and some that change while the connection lasts or is lost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Literal

import pytest

from fugu.mqtt import Link, LinkError
from fugu.mqtt.link import is_filter
from tests.support.brokers import Mosquitto, wait_until
from tests.support.malicious_broker import MaliciousBroker, Victim

MANY = 5_000


class Listener:
    """A link, and what it has received."""

    def __init__(
        self,
        broker: Mosquitto,
        *topics: str,
        durable: bool = False,
        protocol: Literal["5", "3.1.1"] = "5",
        name: str = "listener",
    ) -> None:
        self.received: list[str] = []
        self.link = Link(
            replace(broker.broker, protocol=protocol),
            client_id=name,
            subscriptions=topics,
            durable=durable,
            on_message=lambda topic, _payload, _retained: self.received.append(topic),
        )
        self.link.start()
        wait_until(lambda: self.link.subscribed, "subscriptions")

    def hears(self, *topics: str) -> list[str]:
        """Topics among these that it hears, by itself publishing to them, and last of all to one that it listens to."""
        self.link.subscribe(["end"])
        wait_until(lambda: self.link.subscribed, "subscriptions")
        self.received.clear()
        for topic in (*topics, "end"):
            wait_until(lambda topic=topic: self.link.publish(topic, b"") is not None)
        wait_until(lambda: "end" in self.received)
        return self.received[:-1]


@pytest.mark.parametrize("protocol", ["5", "3.1.1"])
def test_thousands_of_topics_are_subscribed_to_in_packets_of_a_reasonable_size(
    broker: Mosquitto, protocol: Literal["5", "3.1.1"]
) -> None:
    topics = [f"many/{number:05}/{'x' * (number % 60)}" for number in range(MANY)]
    listener = Listener(broker, *topics, protocol=protocol)
    assert listener.hears(topics[0], "many/none", topics[2_517], topics[-1]) == [topics[0], topics[2_517], topics[-1]]
    assert listener.link.last_error == ""


@pytest.mark.long
def test_topics_that_are_added_and_removed_count_at_once_and_at_the_next_connection(broker: Mosquitto) -> None:
    listener = Listener(broker, "a", "b")
    listener.link.subscribe(["c", "c", "a"])
    listener.link.unsubscribe(["b", "never"])
    assert listener.link.subscriptions == ("a", "c")
    assert listener.hears("a", "b", "c") == ["a", "c"]
    broker.restart()
    wait_until(lambda: not listener.link.subscribed)
    wait_until(lambda: listener.link.subscribed)
    assert listener.hears("a", "b", "c") == ["a", "c"]
    listener.link.unsubscribe(["c"])
    listener.link.subscribe(["b"])
    assert listener.hears("a", "b", "c") == ["a", "b"]


def test_what_was_ended_without_a_connection_is_ended_in_the_session_that_the_broker_keeps(broker: Mosquitto) -> None:
    first = Listener(broker, "a", "b", durable=True)
    first.link.stop()
    link = Link(broker.broker, "listener", ("a",), durable=True)
    link.unsubscribe(["b"])
    heard: list[str] = []
    link.on_message = lambda topic, _payload, _retained: heard.append(topic)
    link.start()
    wait_until(lambda: link.subscribed and not link._requests.ended_topics)
    for topic in ("b", "a"):
        link.publish(topic, b"")
    wait_until(lambda: "a" in heard)
    assert heard == ["a"]


@pytest.mark.parametrize(("protocol", "answer"), [("5", b"\x90\5\0\1\0\1\x87"), ("3.1.1", b"\x90\4\0\1\1\x80")])
def test_a_refused_topic_is_named_and_the_others_stay(protocol: Literal["5", "3.1.1"], answer: bytes) -> None:
    def refuse(victim: Victim) -> None:
        victim.accept()
        victim.listen_for(b"secret")
        victim.send(answer)

    with MaliciousBroker(refuse, Victim.until_it_goes) as attacker:
        link = Link(replace(attacker.broker, protocol=protocol), "one", ("open", "secret"))
        link.start()
        wait_until(lambda: link.subscribed, "an answer")
        assert link.last_error.startswith("broker refuses the subscription to secret: ")
        link.stop()


@pytest.mark.parametrize(
    ("topic", "valid"),
    [
        *(("a", True), ("a/+/b", True), ("+", True), ("#", True), ("a/#", True), ("/", True), ("$share/x/a", True)),
        *(("", False), ("a+", False), ("a/#/b", False), ("#a", False), ("é" * 32_768, False), ("é" * 32_767, True)),
    ],
)
def test_what_is_a_topic_to_subscribe_to(topic: str, valid: bool) -> None:
    assert is_filter(topic) == valid


@pytest.mark.parametrize("ask", [lambda link: link.subscribe(["good", "a+"]), lambda link: link.start()])
def test_a_wrong_topic_is_one_line_and_nothing_has_been_asked_for(
    broker: Mosquitto, ask: Callable[[Link], None]
) -> None:
    link = Link(broker.broker, "wrong", ("b#",))
    with pytest.raises(LinkError, match="is no topic to subscribe to"):
        ask(link)
    assert link.subscriptions == ("b#",)
    assert link.publish("t", b"") is None
