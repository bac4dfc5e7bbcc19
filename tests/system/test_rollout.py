"""A rollout to 500 simulated devices over a real broker: 3 % refuse, 10 % are offline, the gateway is killed."""

from __future__ import annotations

import hashlib
import sys
import threading
import time
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path

import pytest

from contract.envelope import decode_envelope
from contract.errors import TrustError
from contract.fleet_documents import Address, Enrolment
from contract.fleet_frames import JUDGED_BYTES, PolicyStatus, encode_policy_status
from contract.frames import Status, encode_status
from contract.topics import parse_topic, policy_set_topic, policy_status_topic, status_topic
from contract.trust import Trust
from gateway.fleet import Document, Registry, RolloutPlan, Rollouts, Stage, Target
from mqtt_link import Broker, Link
from tests.support.brokers import Mosquitto, wait_until
from tests.support.enrolled import Gateway
from tests.support.processes import policy
from tests.support.signing import Keys, policy_document

DEVICES, OFFLINE, REFUSING = 500, 50, 15


@dataclass
class Crowd:
    """Devices that judge as real ones do, with one connection for all; those that are offline hear nothing."""

    broker: Broker
    enrolments: list[Enrolment]
    offline: set[str]
    heard: int = 0
    trusts: dict[str, Trust] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.trusts = {one.device: Trust(one) for one in self.enrolments}
        self._subscribed = threading.Event()
        self.link = Link(
            self.broker,
            client_id="crowd",
            subscriptions=(policy_set_topic("home", "+"),),
            on_connected=self._subscribed.set,
            on_message=self._received,
        )
        self.link.start()
        wait_until(self._subscribed.is_set)
        for name in self.trusts.keys() - self.offline:
            self.link.publish(status_topic("home", name), encode_status(Status(True, "1", 0, (), ())), retain=True)

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
        self.link.publish(policy_status_topic("home", name), encode_policy_status(answer), retain=True)

    def versions(self) -> list[int]:
        """The version in force of each device."""
        return [trust.state.version for trust in self.trusts.values()]


@pytest.fixture
def keys() -> Keys:
    return Keys()


def prepare(folder: Path, keys: Keys) -> tuple[Registry, list[Enrolment], set[str]]:
    """A registry with all devices, a document for them, and which are offline."""
    from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, PrivateFormat

    (folder / "root.envelope").write_bytes(keys.root_envelope())
    (folder / "passphrase").write_text("correct horse\n")
    secret = keys.gateway[0].private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"correct horse"))
    (folder / "gateway.key").write_bytes(secret)
    for name in ("passphrase", "gateway.key"):
        (folder / name).chmod(0o600)
    registry = Registry(folder / "fleet.sqlite", fleet="home")
    names = [f"watch-{number:03d}" for number in range(DEVICES)]
    refusing, offline = set(names[3::33][:REFUSING]), set(names[5::10])
    assert (len(refusing), len(offline)) == (REFUSING, OFFLINE)
    enrolments = []
    for name in names:
        ceiling = 0.5 if name in refusing else 1.0
        enrolments.append(keys.enrolment(device=name, groups=(), ceiling=ceiling))
        registry.enrol(name, (), who="me", time_us=1)
    document = policy_document(policy(epoch_us=0, period_us=1_000_000), version=1, to=Address(everyone=True))
    payload = keys.signed(document)
    entry = Document(1, Target("fleet"), decode_envelope(payload).digest, payload, "first")
    registry.add_document(entry, who="me", time_us=1)
    return registry, enrolments, offline


def plan(error: Fraction) -> RolloutPlan:
    stages = (
        Stage(share=Fraction(1, 50), success=Fraction(1, 2)),
        Stage(share=Fraction(1, 5), success=Fraction(4, 5)),
        Stage(share=Fraction(1), success=Fraction(4, 5)),
    )
    return RolloutPlan(1, stages, error, pace=6000, patience_seconds=600, seed="autumn")


def test_it_completes_although_the_gateway_is_killed_and_the_absent_catch_up(
    broker: Mosquitto, tmp_path: Path, keys: Keys
) -> None:
    registry, enrolments, offline = prepare(tmp_path, keys)
    rollouts = Rollouts(registry)
    crowd = Crowd(broker.broker, enrolments, offline)
    gateway = Gateway(tmp_path, broker.port)
    begun = time.monotonic()
    try:
        number = rollouts.draft(plan(Fraction(1, 10)), who="me", time_us=time.time_ns() // 1000)
        wait_until(lambda: sum(device.online for device in registry.devices()) == DEVICES - OFFLINE, "births")
        rollouts.start(number, who="me", time_us=time.time_ns() // 1000)
        wait_until(lambda: crowd.versions().count(1) > DEVICES // 3, "a third of the devices")
        gateway.process.kill()
        gateway.process.wait()
        gateway = Gateway(tmp_path, broker.port)
        wait_until(lambda: rollouts.show(number).state.phase == "completed", "the end")
        took = time.monotonic() - begun
        reached = DEVICES - OFFLINE - sum(one.ceiling < 1.0 and one.device not in offline for one in enrolments)
        wait_until(lambda: crowd.versions().count(1) == reached)
        assert crowd.heard <= DEVICES + 100, "a restart sends little again"
        print(f"{DEVICES} devices in {took:.1f} s, {crowd.heard} documents delivered to those online", file=sys.stderr)
        refusals = {refusal.device for refusal in registry.refusals()}
        assert refusals == {one.device for one in enrolments if one.ceiling < 1.0 and one.device not in offline}
        crowd.link.stop()
        back = Crowd(broker.broker, [one for one in enrolments if one.device in offline], set())
        able = [one for one in enrolments if one.device in offline and one.ceiling == 1.0]
        wait_until(lambda: back.versions().count(1) == len(able), "the absent catch up")
        back.link.stop()
    finally:
        gateway.process.kill()
        crowd.link.stop()
        registry.close()


def test_it_stops_at_its_error_threshold_and_offers_the_way_back(broker: Mosquitto, tmp_path: Path, keys: Keys) -> None:
    registry, enrolments, offline = prepare(tmp_path, keys)
    rollouts = Rollouts(registry)
    crowd = Crowd(broker.broker, enrolments, offline)
    gateway = Gateway(tmp_path, broker.port)
    try:
        number = rollouts.draft(plan(Fraction(1, 50)), who="me", time_us=time.time_ns() // 1000)
        wait_until(lambda: sum(device.online for device in registry.devices()) == DEVICES - OFFLINE, "births")
        rollouts.start(number, who="me", time_us=time.time_ns() // 1000)
        wait_until(lambda: rollouts.show(number).state.phase == "stopped", "the stop")
        shown = rollouts.show(number)
        (stage,) = [tally for tally in shown.tallies if tally.refused * 50 >= tally.size and tally.refused]
        assert stage.refused >= 1
        assert crowd.versions().count(1) < DEVICES - OFFLINE - REFUSING, "it did not go on to the end"
        assert rollouts.way_back(number).devices.keys() == {None}
    finally:
        gateway.process.kill()
        crowd.link.stop()
        registry.close()
