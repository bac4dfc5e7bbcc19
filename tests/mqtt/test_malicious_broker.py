"""A broker that attacks its clients: packets of any length, floods, and what no protocol allows."""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import Any, Literal

import pytest

from fugu.mqtt import Link
from tests.support.brokers import Mosquitto, wait_until
from tests.support.malicious_broker import HUGE, MaliciousBroker, Victim, publication

Protocol = Literal["5", "3.1.1"]
PROTOCOLS: tuple[Protocol, ...] = ("5", "3.1.1")
KERNEL_KEEPS = 1 << 24
"""Unread bytes that the two ends of a loopback connection may hold."""
CONNACK, PUBLISH, PUBACK, SUBACK, PINGRESP, DISCONNECT, AUTH = 0x20, 0x30, 0x40, 0x90, 0xD0, 0xE0, 0xF0


def victim_of(attacker: MaliciousBroker, protocol: Protocol, received: list[bytes] | None = None) -> Link:
    """A started link that takes messages of up to 1,000 bytes."""
    into = [] if received is None else received
    link = Link(
        replace(attacker.broker, protocol=protocol),
        client_id="victim",
        max_payload=1000,
        on_message=lambda _topic, payload, _retained: into.append(payload),
    )
    link.start()
    return link


def refused(attack: Callable[[Victim], None], protocol: Protocol, why: str) -> int:
    """Attack a link until it says why it has left; returns how many bytes it was sent."""
    with MaliciousBroker(attack, Victim.until_it_goes) as attacker:
        link = victim_of(attacker, protocol)
        wait_until(lambda: link.last_error == why, why)
        return attacker.victims[0].taken


def too_long(length: int, most: int) -> str:
    return f"the broker sends a packet of {length} bytes; at most {most} are taken"


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize(
    ("kind", "accepted"),
    [
        *((kind, False) for kind in (CONNACK, PUBLISH, PUBLISH | 2, SUBACK, AUTH)),
        *((kind, True) for kind in (PUBLISH, PUBACK, SUBACK, PINGRESP, DISCONNECT)),
    ],
)
def test_a_packet_that_claims_256_mb_ends_the_connection_before_it_is_read(
    kind: int, accepted: bool, protocol: Protocol
) -> None:
    def attack(victim: Victim) -> None:
        if accepted:
            victim.accept()
        victim.claim(kind)

    most = 5096 if protocol == "5" else 2**21 + 4096
    answer = too_long(HUGE, most if kind & 0xF0 == PUBLISH else min(most, 1 << 14))
    assert refused(attack, protocol, answer) < KERNEL_KEEPS


def test_a_claim_that_trickles_in_is_judged_when_it_is_complete() -> None:
    def attack(victim: Victim) -> None:
        victim.accept()
        victim.trickle(b"\x30\xff\xff\xff\x7f\0")

    refused(attack, "5", too_long(HUGE, 5096))


@pytest.mark.parametrize(("length", "taken"), [(5096, True), (5097, False)])
def test_the_limit_is_exact(length: int, taken: bool) -> None:
    def attack(victim: Victim) -> None:
        victim.accept()
        overhead = len(publication("t/x", b"", 5)) - 2
        victim.send(publication("t/x", bytes(length - overhead), 5))

    received: list[bytes] = []
    with MaliciousBroker(attack) as attacker:
        link = victim_of(attacker, "5", received)
        wait_until(lambda: received if taken else link.last_error == too_long(5097, 5096))
        assert bool(received) == taken


def test_a_flood_at_qos_2_is_refused_with_its_first_message() -> None:
    def attack(victim: Victim) -> None:
        victim.accept()
        for number in range(1, 2**16):
            body = b"\0\x03t/x" + number.to_bytes(2, "big") + b"\0" + bytes(900)
            victim.send(b"\x34\x8d\x07", body)

    assert refused(attack, "5", "the broker sends at QoS 2, which nobody has asked for") < KERNEL_KEEPS


def test_properties_without_end_are_not_taken_apart() -> None:
    """Without a topic, for which nobody has allowed an alias; with one they are passed over."""

    def attack(victim: Victim) -> None:
        victim.accept()
        victim.send(publication("", b"", 5, b"\x26\0\0\0\0" * 900))

    refused(attack, "5", "the broker sends 4500 bytes of properties; at most 4096 are taken")


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_connection_that_is_accepted_again_and_again_is_left(protocol: Protocol) -> None:
    def attack(victim: Victim) -> None:
        victim.accept()
        while True:
            victim.accept()

    refused(attack, protocol, "the broker accepts the connection twice")


@pytest.mark.long
def test_answers_do_not_pile_up_for_a_broker_that_never_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    """The system keeps little of what is not taken: else it would have to be filled first, by millions of answers."""
    connect = socket.create_connection

    def connected(*arguments: Any, **named: Any) -> socket.socket:
        connection = connect(*arguments, **named)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 12)
        return connection

    monkeypatch.setattr(socket, "create_connection", connected)
    monkeypatch.setattr("fugu.mqtt.client._MOST_UNSENT", 1_000)

    def attack(victim: Victim) -> None:
        victim.accept()
        victim.send_without_reading(b"\xc0\0" * 4096)

    refused(attack, "5", "the broker takes nothing, but sends")


PACKETS = {
    "a topic that is no UTF-8": b"\x30\x06\0\x03\xff\xfe\xfd\0",
    "a topic that is cut short": b"\x30\x03\0\x03t",
    "no topic": b"\x30\x01\0",
    "properties without an end": b"\x30\x0a\0\x03t/x\x80\x80\x80\x80\x01",
    "an empty CONNACK": b"\x20\0",
    "a PUBACK of one byte": b"\x40\x01\0",
    "an empty SUBACK": b"\x90\0",
    "no message id": b"\x32\x05\0\x03t/x",
    "a DISCONNECT that says nothing known": b"\xe0\x02\xff\xff",
    "a kind that does not exist": b"\0\0",
    "QoS 3": b"\x36\x08\0\x03t/x\0\x01\0",
}


def test_a_malformed_packet_never_ends_the_network_thread() -> None:
    """A link for each, all at a time: before it connects again, each waits for a second."""

    def attack(victim: Victim, packet: bytes) -> None:
        victim.accept()
        victim.send(packet)
        victim.send(b"\0\0")  # in case that was taken

    with ExitStack() as running:
        attacked = {}
        for name, packet in PACKETS.items():
            again = (partial(attack, packet=packet), lambda victim: victim.accept())
            attacker = running.enter_context(MaliciousBroker(*again))
            attacked[name] = attacker, victim_of(attacker, "5")
        for name, (attacker, link) in attacked.items():
            wait_until(lambda times=attacker.times: len(times) > 1, f"the next connection after {name}")
            wait_until(lambda link=link: link.connected, f"the connection after {name}")


def test_it_comes_back_after_pauses_that_grow() -> None:
    def attack(victim: Victim) -> None:
        victim.claim(CONNACK)

    with MaliciousBroker(attack) as attacker:
        victim_of(attacker, "3.1.1")
        wait_until(lambda: len(attacker.times) == 3)
    first, second, third = attacker.times
    assert second - first > 0.9
    assert third - second > 1.8


def test_an_honest_broker_keeps_back_what_is_larger_than_was_announced(broker: Mosquitto) -> None:
    """So that nobody who may publish to us can keep us from what others send."""
    received: list[bytes] = []
    small = Link(
        broker.broker,
        client_id="small",
        durable=True,
        max_payload=1000,
        subscriptions=("t/#",),
        on_message=lambda _topic, payload, _retained: received.append(payload),
    )
    sender = Link(broker.broker, client_id="sender")
    small.start()
    sender.start()
    wait_until(lambda: small.connected and sender.connected)

    def sent(payload: bytes) -> Callable[[], bool]:
        def there() -> bool:
            sender.publish("t/x", payload)
            return payload in received

        return there

    wait_until(sent(b"first"))
    sender.publish("t/x", bytes(100_000))
    sender.publish("t/retained", bytes(100_000), retain=True)
    wait_until(sent(b"last"))
    assert {len(payload) for payload in received} == {4, 5}
    assert small.connected
    assert small.last_error == ""
