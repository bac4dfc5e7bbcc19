"""Documents for Home Assistant at a real broker: said, said again, and taken back."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest

from fugu.contract.descriptions import Description, describe
from fugu.contract.frames import Status
from fugu.contract.topics import discovery_topic, topic_of
from fugu.mqtt import Link
from gateway.parts import Message
from gateway.parts.home_assistant import GATEWAY, HomeAssistant
from gateway.store.store import Store
from tests.support.brokers import Mosquitto, wait_until
from tests.support.home_assistant import Listener
from tests.support.processes import policy
from tests.support.scenes import loop_of

WATCH, RING = (describe(policy(epoch_us=0, period_us=60_000_000, device=name)) for name in ("watch", "ring"))
SURE = str(math.ceil(1000 / (1 + math.exp(-(WATCH.guarantee.epsilon or 0.0)))) / 10)
"""How sure anybody becomes at most, in per cent."""
TOPICS = {name: discovery_topic("home", name) for name in ("watch", "ring", GATEWAY)}


class Scene:
    """The part of a gateway that tells Home Assistant, Home Assistant, and a clock."""

    def __init__(self, broker: Mosquitto, folder: Path) -> None:
        self.listener = Listener(broker.broker)
        self._answers: list[tuple[int, bool]] = []
        self.now = 0.0
        self.devices: dict[str, list[Description]] = {"watch": [WATCH], "ring": [RING]}
        self.store = Store(folder / "s.sqlite")
        self.link = Link(broker.broker, client_id="gateway", on_published=self._answered)
        self.link.start()
        wait_until(lambda: self.link.connected)
        self.counters: Counter[str] = Counter()
        self.start()

    def _answered(self, message_id: int, accepted: bool) -> None:
        self._answers.append((message_id, accepted))

    def _describe(self) -> Mapping[str, Sequence[Description]]:
        return self.devices

    def start(self, *, wanted: bool = True) -> None:
        """As a gateway does that was started anew."""
        loop = loop_of(
            store=self.store,
            link=self.link,
            catalogue=SimpleNamespace(fleet="home", has=lambda _device: True),
            counters=self.counters,
            seconds=lambda: self.now,
        )
        self.told = HomeAssistant(loop, self._describe if wanted else None, pause=lambda: 5.0)
        self.told.connected()

    def until_topics(self, *names: str) -> None:
        """Go on until Home Assistant has the documents of these, and no others."""
        wanted = {TOPICS[name] for name in names}

        def there() -> bool:
            self.told.pump()
            while self._answers:
                self.told.acknowledged(*self._answers.pop())
            return self.listener.documents.keys() == wanted

        wait_until(there, f"documents of {names}")
        assert self.listener.problems == []

    def close(self) -> None:
        self.store.close()
        self.link.stop()
        self.listener.link.stop()


@pytest.fixture
def scene(broker: Mosquitto, tmp_path: Path) -> Iterator[Scene]:
    scene = Scene(broker, tmp_path)
    yield scene
    scene.close()


def test_every_device_has_a_retained_document_and_so_has_the_gateway(scene: Scene, broker: Mosquitto) -> None:
    scene.until_topics("watch", "ring", GATEWAY)
    late = Listener(broker.broker)
    wait_until(lambda: late.documents == scene.listener.documents)
    late.link.stop()
    assert late.problems == []
    assert set(scene.listener.components()) == {
        "sensor.home_watch_hr_privacy",
        "sensor.home_watch_hr_share_1",
        "sensor.home_ring_hr_privacy",
        "sensor.home_ring_hr_share_1",
        "binary_sensor.home_health_alarm",
    }


def test_after_a_start_of_home_assistant_all_is_said_again_once_and_not_at_once(scene: Scene) -> None:
    scene.until_topics("watch", "ring", GATEWAY)
    assert not scene.told.heard(Message("fugu/2/home/watch/status", b"online"))
    for payload in (b"offline", b"online", b"online"):
        assert scene.told.heard(Message("homeassistant/status", payload))
    scene.now = 4.9
    scene.told.pump()
    assert scene.counters["discovery"] == 3
    scene.now = 5.0
    scene.told.pump()
    scene.told.pump()
    assert scene.counters["discovery"] == 6
    wait_until(lambda: scene.listener.configured == 6)


def test_what_is_gone_is_taken_back_with_the_policy_or_at_the_next_start(scene: Scene) -> None:
    scene.until_topics("watch", "ring", GATEWAY)
    del scene.devices["ring"]
    scene.told.renew()
    scene.until_topics("watch", GATEWAY)
    del scene.devices["watch"]
    scene.start()
    scene.until_topics(GATEWAY)
    wait_until(
        lambda: scene.until_topics(GATEWAY) is None and set(scene.store.discovered.all_components()) == {GATEWAY}
    )


def test_switched_off_it_takes_back_everything_and_then_says_nothing(scene: Scene) -> None:
    scene.until_topics("watch", "ring", GATEWAY)
    scene.start(wanted=False)
    wait_until(lambda: scene.until_topics() is None and not scene.store.discovered.all_components())
    assert scene.listener.removed == 3
    before = scene.counters["discovery"]
    scene.start(wanted=False)
    scene.told.pump()
    assert scene.counters["discovery"] == before


def test_a_component_that_is_no_more_is_said_to_be_none(scene: Scene) -> None:
    scene.until_topics("watch", "ring", GATEWAY)
    other = WATCH.model_copy(update={"stream": "steps"})
    scene.devices["watch"] = [other]
    scene.start()
    steps = "sensor.home_watch_steps_share_1"
    scene.told.pump()
    wait_until(lambda: steps in scene.listener.components())
    assert "sensor.home_watch_hr_share_1" not in scene.listener.components()
    assert scene.listener.documents[TOPICS["watch"]]["cmps"]["hr.share.1"] == {"platform": "sensor"}
    assert scene.listener.problems == []


def test_a_device_that_is_away_shows_so(scene: Scene, broker: Mosquitto) -> None:
    entity = "sensor.home_watch_hr_privacy"
    scene.until_topics("watch", "ring", GATEWAY)
    scene.link.publish(topic_of("health", "home"), b'{"online": true}', retain=True)
    scene.link.publish(topic_of("description", "home", "watch", "hr"), WATCH.encode(), retain=True)
    assert scene.listener.state(entity) == "unavailable"
    for online in (True, False, True):
        status = Status(online=online, outbox_depth=0, agent_version="1", codes=(), streams=())
        assert not scene.told.heard(Message(topic_of("status", "home", "watch"), status.encode()))
        scene.told.pump()
        shown = SURE if online else "unavailable"
        wait_until(lambda shown=shown: scene.listener.state(entity) == shown)
    assert scene.listener.state("sensor.home_ring_hr_privacy") == "unavailable"
    assert not scene.told.heard(Message(topic_of("status", "home", "watch"), b"\xc1"))
    del scene.devices["watch"]
    scene.told.renew()
    scene.until_topics("ring", GATEWAY)
    late = Listener(broker.broker)
    wait_until(lambda: late.documents == scene.listener.documents)
    assert not any("watch/available" in topic for topic in late.topics)
    late.link.stop()


def test_a_broker_that_has_lost_everything_is_told_again(scene: Scene, broker: Mosquitto) -> None:
    scene.until_topics("watch", "ring", GATEWAY)
    broker.kill()
    (broker.folder / "mosquitto.db").unlink(missing_ok=True)
    broker.start()
    wait_until(lambda: scene.link.connected)
    scene.told.connected()
    scene.told.pump()
    late = Listener(broker.broker)
    wait_until(lambda: late.documents == scene.listener.documents)
    late.link.stop()
