"""Answers of a gateway to devices that contradict themselves, on a real store and a real broker."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from fugu.contract.errors import FuguError
from fugu.contract.reports import AlarmCode
from fugu.contract.topics import topic_of
from fugu.mqtt import Link
from gateway.health.contradictions import Contradictions
from gateway.health.monitor import Monitor
from gateway.loop.gateway import Gateway
from gateway.loop.recorder import Recorder
from gateway.parts import Stopping
from gateway.store.journal import Arrivals, ReceivedFrame
from gateway.store.store import Store
from tests.support.brokers import Mosquitto, wait_until
from tests.support.gateway_files import gateway_config
from tests.support.scenes import catalogue, frames, loop_of, write_policies
from tests.support.whole_fleet import Everything

TOPIC = topic_of("stop", "home", "watch")


class Scene:
    """The part of a gateway that notices conflicts; `newest` and `in_force` are what a registry would say."""

    def __init__(self, broker: Mosquitto, folder: Path, *, stopping: bool = True) -> None:
        self.newest, self.in_force = 1, {"watch": 1}
        self.heard = Everything(broker)
        self.link = Link(broker.broker, client_id="gateway")
        self.link.start()
        self._path, self._stopping = folder / "s.sqlite", stopping
        self.counters: Counter[str] = Counter()
        self.open()
        wait_until(lambda: self.link.connected)

    def open(self) -> None:
        """Open the store, with nothing in memory."""
        self.store, policies = Store(self._path), catalogue()
        self.monitor = Monitor(self._path, self.link, policies, self.counters, 1e9, dict, int, dict)
        how = Stopping(
            lambda device, version: f"{device} {version}".encode(), lambda: self.newest, lambda: self.in_force
        )
        loop = loop_of(store=self.store, link=self.link, catalogue=policies, monitor=self.monitor)
        self.all = Contradictions(loop, self.monitor, how if self._stopping else None)
        self.recorder = Recorder(self.store, policies, 8, self.counters)
        self.recorder.conflict = self.all.record

    def reopen(self) -> None:
        """As after a restart of the gateway."""
        self.store.close()
        self.open()

    def contradict(self, version: int, device: str = "watch") -> None:
        """A frame, if it is not there yet, and one that says the opposite."""
        (frame,) = frames([10], versions=[version])
        frame = replace(frame, previous=99 + 10 * version, first=100 + 10 * version)
        other = replace(frame, symbols=bytes(1 - symbol for symbol in frame.symbols))
        for sent in (frame, other):
            self.recorder.record(Arrivals.of(self.recorder.streams, [ReceivedFrame(device, "hr", sent)]))
        self.all.pump()

    def stops(self) -> list[bytes]:
        return self.heard.on(TOPIC)

    def alarms(self) -> dict[tuple[AlarmCode, str], int]:
        """How often each happened."""
        self.monitor.step()
        return {(alarm.code, alarm.name): alarm.count for alarm in self.monitor.alarms.current()}

    def close(self) -> None:
        self.store.close()
        self.heard.link.stop()
        self.link.stop()


@pytest.fixture
def scene(broker: Mosquitto, tmp_path: Path) -> Iterator[Scene]:
    """A gateway that stops devices."""
    scene = Scene(broker, tmp_path)
    yield scene
    scene.close()


def test_a_conflict_is_an_alarm_and_a_stop_and_both_outlive_a_restart(scene: Scene) -> None:
    scene.newest = 3
    scene.contradict(1)
    assert scene.counters["conflict"] == 1
    assert scene.alarms() == {(AlarmCode.CONFLICT, "watch/hr"): 1, (AlarmCode.STOPPED, "watch"): 1}
    wait_until(lambda: scene.stops() == [b"watch 3"])
    (alarm, _) = scene.monitor.alarms.current()
    assert alarm.detail == "first at tick 110"
    scene.contradict(1)
    assert scene.alarms()[AlarmCode.CONFLICT, "watch/hr"] == 2
    scene.reopen()
    assert scene.alarms() == {(AlarmCode.CONFLICT, "watch/hr"): 2}
    scene.all.pump()
    wait_until(lambda: scene.stops() == [b"watch 3"] * 2, "the stop again, for a broker that has lost it")
    assert (AlarmCode.STOPPED, "watch") in scene.alarms()


def test_a_newer_document_ends_a_stop_and_frames_of_the_old_one_bring_none_again(scene: Scene) -> None:
    scene.contradict(1)
    wait_until(lambda: scene.stops() == [b"watch 1"])
    assert (AlarmCode.STOPPED, "watch") in scene.alarms(), "the version that was stopped is still in force"
    scene.newest, scene.in_force = 2, {"watch": 2}
    wait_until(lambda: (scene.all.pump(), scene.stops() == [b"watch 1", b""])[1], "the end of the stop")
    scene.contradict(1)
    scene.reopen()
    scene.contradict(1)
    scene.all.connected(begun_anew=True)
    scene.all.pump()
    scene.contradict(2)
    wait_until(lambda: scene.stops() == [b"watch 1", b"", b"watch 2"], "a stop of the second pair, and no other")


def test_a_device_that_would_not_believe_a_stop_is_an_alarm_only(scene: Scene) -> None:
    scene.in_force = {}
    scene.contradict(1)
    assert scene.alarms() == {(AlarmCode.CONFLICT, "watch/hr"): 1}


def test_without_the_policy_nobody_is_stopped(broker: Mosquitto, tmp_path: Path) -> None:
    scene = Scene(broker, tmp_path, stopping=False)
    scene.contradict(1)
    assert scene.alarms() == {(AlarmCode.CONFLICT, "watch/hr"): 1}
    assert scene.store.conflicts.stops() == {}
    scene.close()


def test_a_gateway_without_a_key_cannot_be_asked_to_stop_devices(broker: Mosquitto, tmp_path: Path) -> None:
    policies = write_policies(tmp_path / "policies")
    settings = gateway_config("home", broker.broker, tmp_path / "s.sqlite", policies, on_conflict="stop")
    with pytest.raises(FuguError, match="registry and the gateway's key"):
        Gateway(settings).start()
