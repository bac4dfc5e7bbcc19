"""Descriptions at a real broker: they appear, follow the policies, vanish with them, and are not said twice."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from fugu.contract.descriptions import Description, describe
from fugu.contract.frames import Status, StreamStatus
from fugu.contract.topics import topic_of
from gateway.loop.gateway import Gateway
from gateway.parts import describe as describing
from gateway.parts.describe import RunningPolicy
from tests.support.brokers import Mosquitto, wait_until
from tests.support.gateway_files import gateway_config
from tests.support.gateway_service import gateway_here
from tests.support.processes import Recorder
from tests.support.scenes import frames, policy, write_policies

DESCRIPTIONS = "fugu/2/home/description/+/+"


class Listener(Recorder):
    """A visitor of a broker, and the descriptions that are there."""

    @property
    def there(self) -> dict[str, bytes]:
        return {topic: payload for topic, payload in self.newest.items() if payload}


def running(broker: Mosquitto, folder: Path) -> AbstractContextManager[Gateway]:
    return gateway_here(gateway_config("home", broker.broker, folder / "s.sqlite", folder / "policies"))


@pytest.mark.long
def test_descriptions_appear_follow_their_policies_and_vanish_and_what_is_the_same_is_not_said_again(
    broker: Mosquitto, tmp_path: Path
) -> None:
    heart, ring = policy(1), policy(1, device="ring")
    topics = {described.device: topic_of("description", "home", described.device, "hr") for described in (heart, ring)}
    write_policies(tmp_path / "policies", [heart, ring])
    here = Listener(broker.broker, DESCRIPTIONS)
    here.link.publish(topic_of("description", "home", "gone", "hr"), b"left by somebody", retain=True)
    with running(broker, tmp_path) as gateway:
        wait_until(lambda: here.there.keys() == set(topics.values()), "two descriptions, and no third")
        assert Description.decode(here.there[topics["ring"]]) == describe(ring, confirmed=False)
        wait_until(lambda: gateway.counters["descriptions"] == 3, "the count")
    before = len(here.messages)
    newer = policy(2, device="ring")
    write_policies(tmp_path / "policies", [newer])
    with running(broker, tmp_path) as gateway:
        wait_until(lambda: here.there[topics["ring"]] == describe(newer, confirmed=False).encode(), "the newer policy")
        wait_until(lambda: gateway.counters["descriptions"] == 1, "the count")
    assert [topic for topic, _ in here.messages[before:]] == [topics["ring"]]
    (tmp_path / "policies" / "watch-hr-1.json").unlink()
    with running(broker, tmp_path) as gateway:
        wait_until(lambda: here.there.keys() == {topics["ring"]}, "one description")
        wait_until(lambda: gateway.counters["descriptions"] == 1, "the count")
        broker.kill()  # which forgets what it had not written down, and is told again
        (broker.folder / "mosquitto.db").unlink(missing_ok=True)
        broker.restart()
        here.messages.clear()
        wait_until(lambda: here.there.keys() == {topics["ring"]}, "the description at a broker that forgot it")


@pytest.mark.long
def test_the_version_that_a_device_names_is_described_and_survives_a_last_will_and_a_restart(
    broker: Mosquitto, tmp_path: Path
) -> None:
    versions = {number: policy(number) for number in (1, 2)}
    write_policies(tmp_path / "policies", list(versions.values()))
    topic, state = topic_of("description", "home", "watch", "hr"), topic_of("status", "home", "watch")
    following = {number: describe(version).encode() for number, version in versions.items()}
    here = Listener(broker.broker, DESCRIPTIONS)
    with running(broker, tmp_path) as gateway:
        sent = here.link.publish
        wait_until(lambda: topic in here.there, "a description")
        assert Description.decode(here.there[topic]) == describe(versions[2], confirmed=False)
        sent(state, Status(True, "1.0", 0, (), (StreamStatus("hr", 1, 0),)).encode(), retain=True)
        wait_until(lambda: here.there[topic] == following[1], "the version that runs")
        sent(state, Status(False, "1.0", 0, (), ()).encode(), retain=True)
        sent(topic_of("symbols", "home", "watch", "hr"), frames([10])[0].encode())
        wait_until(lambda: gateway.counters["stored"] == 1, "a frame")
        assert here.there[topic] == following[1]
    here.link.publish(topic, b"", retain=True)
    wait_until(lambda: not here.there, "an empty topic")
    with running(broker, tmp_path) as gateway:
        wait_until(lambda: here.there.get(topic) == following[1], "the version of the stored frames")
        wait_until(lambda: gateway.counters["descriptions"] == 1, "the count")


def test_other_versions_are_left_out_the_oldest_first_where_a_message_has_no_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    policies = [policy(version) for version in (1, 2, 3)]
    fits = len(describe(policies[2], other_policies=policies[1:2]).encode())
    monkeypatch.setattr(describing, "MAX_DESCRIPTION_BYTES", fits)
    described = describing.Described.of(RunningPolicy(policies[2], True, tuple(policies[:2])))
    assert [other.version for other in described.description.others] == [2]
    assert len(described.payload) == fits
