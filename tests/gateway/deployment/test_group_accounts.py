"""Who may say and hear what of a group of homes, tried on every topic with every kind of account."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from fugu.contract.topics import topic_of
from fugu.host.checks import Finding
from gateway.deployment import doctor
from tests.support.brokers import wait_until
from tests.support.shipped import DENIED, Shipped

REPORT = topic_of("report", "home", "watch", "hr")
DOCUMENT, KEY, REQUEST, ANSWER = (
    topic_of(kind, "home", "street") for kind in ("group_document", "group_key", "group_request", "group_answer")
)
TOPICS = (REPORT, DOCUMENT, KEY, REQUEST, ANSWER)
WRITE = {
    "watch": {REPORT},
    "ring": set(),
    "gateway": {REQUEST},
    "gateway-rollout": set(),
    "site": set(),
    "home-assistant": set(),
    "helper": {DOCUMENT, KEY, ANSWER},
}
READ = {
    **{name: set() for name in ("watch", "ring", "gateway-rollout", "site", "home-assistant")},
    "gateway": {REPORT, ANSWER},
    "helper": {REQUEST},
}
EVERYBODY = {DOCUMENT, KEY}
"""Signed and no secret: the lines for devices are patterns, which the broker applies to all accounts."""
OWN = {
    "watch": topic_of("committed", "home", "watch"),
    "ring": topic_of("committed", "home", "ring"),
    "gateway": topic_of("status", "home", "watch"),
    "gateway-rollout": topic_of("status", "home", "watch"),
    "site": topic_of("status", "home", "watch"),
    "home-assistant": topic_of("health", "home"),
    "helper": REQUEST,
}
"""A topic that each may read in any case: once that has come, nothing else is on its way."""


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Shipped]:
    broker = Shipped(tmp_path)
    for kind, name in (("device", "watch"), ("device", "ring"), ("helper", "helper"), ("home-assistant",) * 2):
        broker.add(kind, name)
    broker.add("gateway", "gateway", "--rollout")
    broker.add("subscriber", "site", "--audience", "site")
    with broker:
        yield broker


@pytest.mark.long
def test_an_account_writes_and_reads_what_it_has_to_and_nothing_else(fleet: Shipped) -> None:
    for name, topics in WRITE.items():
        assert {topic for topic in TOPICS if fleet.publish(name, topic) != DENIED} == topics, name
        retained = {topic for topic in TOPICS if fleet.publish(name, topic, b"", retain=True) != DENIED}
        assert retained == topics, name
    for name, topics in READ.items():
        assert heard(fleet, name) == topics | (EVERYBODY if name != "helper" else set()), name


@pytest.mark.long
def test_doctor_warns_of_a_helper_on_the_brokers_machine_and_cannot_know_more(fleet: Shipped) -> None:
    def findings() -> list[Finding]:
        return [finding for process, _ in doctor._brokers(fleet.port) for finding in doctor._helpers(process)]

    assert findings() == []
    with fleet.client("helper") as helper:
        helper.subscribe(REQUEST)
        wait_until(findings, "the helper in the broker's log")
    (finding,) = findings()
    assert finding.verdict == "warn"
    assert "let somebody else run it" in finding.text
    assert [doctor._is_own(address) for address in ("127.0.0.1", "::1", "192.0.2.1")] == [True, True, False]


def heard(fleet: Shipped, name: str) -> set[str]:
    """Topics that an account hears when somebody says something on each of them."""
    writer = {REPORT: "watch", DOCUMENT: "helper", KEY: "helper", REQUEST: "gateway", ANSWER: "helper"}
    writer |= {topic_of("status", "home", "watch"): "watch", topic_of("health", "home"): "gateway"}
    with fleet.client(name) as reader:
        for asked in ("#", "fugu/#", "fugu/2/home/group/#", "fugu/2/home/+/report/+", *TOPICS, OWN[name]):
            reader.subscribe(asked)
        for topic in TOPICS:
            if writer[topic] != name:
                fleet.publish(writer[topic], topic, b"heard")
        fleet.publish(writer.get(OWN[name], "gateway"), OWN[name], b"end")
        reader.wait_for(OWN[name], b"end")
        return {topic for topic, payload in reader.received if payload == b"heard"}
