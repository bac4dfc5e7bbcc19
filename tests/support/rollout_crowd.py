"""Devices of a rollout, with one connection for all of them, and the fleet that they belong to."""

from __future__ import annotations

import hashlib
import threading
import time
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path

from fugu.contract.envelope import Envelope
from fugu.contract.errors import TrustError
from fugu.contract.fleet_documents import Address, Enrolment
from fugu.contract.frames import JUDGED_BYTES, PolicyStatus, Status
from fugu.contract.topics import parse_topic, topic_of
from fugu.contract.trust import Trust
from fugu.mqtt import Broker, Link
from gateway.fleet.entries import Document, RolloutPlan, Stage, Target
from gateway.fleet.registry import Registry
from tests.support.brokers import wait_until
from tests.support.enrolled import write_gateway_files
from tests.support.processes import policy
from tests.support.signing import Keys, policy_document


@dataclass
class Crowd:
    """Devices that judge as real ones do, with one connection for all; those that are offline hear nothing."""

    broker: Broker
    enrolments: list[Enrolment]
    offline: set[str]
    heard: int = 0
    trusts: dict[str, Trust] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.trusts = {enrolment.device: Trust(enrolment) for enrolment in self.enrolments}
        self._subscribed = threading.Event()
        self.link = Link(
            self.broker,
            client_id="crowd",
            subscriptions=(topic_of("policy_set", "home", "+"),),
            on_connected=self._subscribed.set,
            on_message=self._received,
        )
        self.link.start()
        wait_until(self._subscribed.is_set)
        for name in self.trusts.keys() - self.offline:
            self.link.publish(topic_of("status", "home", name), Status(True, "1", 0, (), ()).encode(), retain=True)

    def _received(self, topic: str, payload: bytes, _retained: bool) -> None:
        name = parse_topic(topic).device
        if name in self.offline:
            return
        self.heard += 1
        reason = detail = ""
        trust = self.trusts[name]
        try:
            trust.judge(payload, "policy", int(time.time()))
        except TrustError as error:
            reason, detail = error.reason, str(error)[:200]
        judged = hashlib.sha256(payload).digest()[:JUDGED_BYTES]
        answer = PolicyStatus(trust.state.version, judged, reason, detail, int(bool(reason)), False)
        self.link.publish(topic_of("policy_status", "home", name), answer.encode(), retain=True)

    def versions(self) -> list[int]:
        return [trust.state.version for trust in self.trusts.values()]


def prepare(folder: Path, keys: Keys, refusing: set[str], names: list[str]) -> tuple[Registry, list[Enrolment]]:
    """A registry with all devices, and a document for them, which some refuse: they allow less."""
    write_gateway_files(folder, keys)
    registry = Registry(folder / "fleet.sqlite", fleet="home")
    enrolments = []
    for name in names:
        ceiling = 0.5 if name in refusing else 1.0
        enrolments.append(keys.enrolment(device=name, groups=(), ceiling=ceiling))
        registry.enrol(name, (), actor="me", time_us=1)
    document = policy_document(policy(epoch_us=0, period_us=1_000_000), version=1, to=Address(everyone=True))
    payload = keys.signed(document)
    entry = Document(1, Target("fleet"), Envelope.decode(payload).digest, payload, "first")
    registry.add_document(entry, actor="me", time_us=1)
    return registry, enrolments


def plan(error: Fraction) -> RolloutPlan:
    stages = (
        Stage(share=Fraction(1, 50), success=Fraction(1, 2)),
        Stage(share=Fraction(1, 5), success=Fraction(4, 5)),
        Stage(share=Fraction(1), success=Fraction(4, 5)),
    )
    return RolloutPlan(1, stages, error, pace=6000, patience_seconds=600, seed="autumn")
