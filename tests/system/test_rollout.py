"""A rollout to 200 simulated devices over a real broker: 3 % refuse, 10 % are offline, the gateway is killed."""

from __future__ import annotations

import sys
import time
from fractions import Fraction
from pathlib import Path

import pytest

from fugu.contract.fleet_documents import Enrolment
from gateway.fleet.registry import Registry
from gateway.fleet.rollouts import Rollouts
from tests.support.brokers import Mosquitto, wait_until
from tests.support.enrolled import Gateway
from tests.support.rollout_crowd import Crowd, plan, prepare
from tests.support.signing import Keys

DEVICES, OFFLINE, REFUSING = 200, 20, 6


@pytest.fixture
def keys() -> Keys:
    return Keys()


def scene(folder: Path, keys: Keys) -> tuple[Registry, list[Enrolment], set[str]]:
    """The fleet, and which of its devices are offline."""
    names = [f"watch-{number:03d}" for number in range(DEVICES)]
    refusing, offline = set(names[3::33][:REFUSING]), set(names[5::10])
    assert (len(refusing), len(offline)) == (REFUSING, OFFLINE)
    return *prepare(folder, keys, refusing, names), offline


def test_it_completes_although_the_gateway_is_killed_and_the_absent_catch_up(
    broker: Mosquitto, tmp_path: Path, keys: Keys
) -> None:
    registry, enrolments, offline = scene(tmp_path, keys)
    rollouts = Rollouts(registry)
    crowd = Crowd(broker.broker, enrolments, offline)
    gateway = Gateway(tmp_path, broker.port)
    begun = time.monotonic()
    number = rollouts.draft(plan(Fraction(1, 10)), actor="me", time_us=time.time_ns() // 1000)
    wait_until(lambda: sum(device.online for device in registry.devices()) == DEVICES - OFFLINE, "births")
    rollouts.start(number, actor="me", time_us=time.time_ns() // 1000)
    wait_until(lambda: crowd.versions().count(1) > DEVICES // 3, "a third of the devices")
    gateway.kill()
    gateway = Gateway(tmp_path, broker.port)
    wait_until(lambda: rollouts.show(number).state.phase == "completed", "the end")
    took = time.monotonic() - begun
    reached = (
        DEVICES
        - OFFLINE
        - sum(enrolment.ceiling.epsilon < 1.0 and enrolment.device not in offline for enrolment in enrolments)
    )
    wait_until(lambda: crowd.versions().count(1) == reached)
    assert crowd.heard <= DEVICES + 100, "a restart sends little again"
    print(f"{DEVICES} devices in {took:.1f} s, {crowd.heard} documents delivered to those online", file=sys.stderr)
    refusals = {refusal.device for refusal in registry.refusals()}
    assert refusals == {
        enrolment.device
        for enrolment in enrolments
        if enrolment.ceiling.epsilon < 1.0 and enrolment.device not in offline
    }
    crowd.link.stop()
    back = Crowd(broker.broker, [enrolment for enrolment in enrolments if enrolment.device in offline], set())
    able = [enrolment for enrolment in enrolments if enrolment.device in offline and enrolment.ceiling.epsilon == 1.0]
    wait_until(lambda: back.versions().count(1) == len(able), "the absent catch up")
