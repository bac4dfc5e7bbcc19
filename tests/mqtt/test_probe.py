"""Trying a broker: each step that can fail is named, on the broker that `fugu deploy` writes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import trustme

from fugu.contract.topics import topic_of
from fugu.mqtt import Broker, Link
from fugu.mqtt.probe import probe
from tests.support.brokers import Mosquitto, free_port, wait_until
from tests.support.shipped import Shipped


@pytest.fixture
def shipped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shipped]:
    shipped = Shipped(tmp_path_factory.mktemp("shipped"))
    shipped.add("device", "watch")
    with shipped as running:
        yield running


def test_a_broker_that_works(shipped: Shipped) -> None:
    topics = [topic_of("status", "home", "watch"), topic_of("symbols", "home", "watch", "hr")]
    answer = probe(shipped.address("watch"), write_topics=topics)
    assert (answer.step, answer.problem) == ("done", "")
    assert answer.certificate_end is not None
    assert answer.writable_topics == dict.fromkeys(topics, True)


def test_an_access_list_that_denies(shipped: Shipped) -> None:
    mine, other = topic_of("status", "home", "watch"), topic_of("status", "home", "ring")
    answer = probe(shipped.address("watch"), write_topics=[other, mine])
    assert answer.writable_topics == {other: False, mine: True}


def test_what_is_retained_is_heard(broker: Mosquitto) -> None:
    link = Link(broker.broker, client_id="home-watch")
    link.start()
    wait_until(lambda: link.publish("fugu/2/home/time", b"12", retain=True) is not None)
    topics = ["fugu/2/home/time", "fugu/2/home/health"]  # the broker may take the message after the first question
    wait_until(lambda: probe(broker.broker, read_topics=topics).retained_payloads == {"fugu/2/home/time": b"12"})


def test_who_is_connected_with_the_account_loses_nothing_without_a_login(shipped: Shipped) -> None:
    with shipped.client("watch") as client:
        answer = probe(shipped.address("watch"), write_topics=["x"], log_in=False)
        assert (answer.step, answer.writable_topics) == ("done", None)
        assert answer.certificate_end is not None
        assert client.publish(topic_of("status", "home", "watch")) == 0
        assert client.lost == 0


def test_a_broker_of_the_older_protocol_does_not_tell(broker: Mosquitto) -> None:
    answer = probe(replace(broker.broker, protocol="3.1.1"), write_topics=["fugu/2/home/watch/status"])
    assert (answer.step, answer.writable_topics) == ("done", None)


def test_each_step_that_fails_is_named(shipped: Shipped, tmp_path: Path) -> None:
    good = shipped.address("watch")
    (tmp_path / "password").write_text("wrong\n")
    trustme.CA().cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    cases: list[tuple[Broker, str]] = [
        (replace(good, password_file=str(tmp_path / "gone")), "address"),
        (replace(good, host="no.such.host.invalid"), "address"),
        (replace(good, port=free_port()), "connection"),
        (replace(good, ca_file=str(tmp_path / "ca.pem")), "TLS"),
        (replace(good, host="localhost"), "TLS"),
        (replace(good, password_file=str(tmp_path / "password")), "login"),
    ]
    for address, step in cases:
        answer = probe(address)
        assert answer.step == step
        assert answer.problem
