"""Words of a running gateway, on clocks that only the test moves, and on a real broker."""

from __future__ import annotations

import json
import logging
import sys
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from fugu.contract.errors import Reason
from fugu.contract.frames import Status
from fugu.contract.reports import AlarmCode, Health
from fugu.contract.topics import topic_of
from fugu.host.answering import StatusSocket
from fugu.host.terminal import log_to_stderr
from fugu.mqtt import Link
from fugu_cli.main import main
from gateway.estimates.catalogue import Catalogue
from gateway.health.monitor import Monitor, NotRunningError, ask_gateway
from gateway.store.journal import NewestFrame
from tests.support.brokers import Mosquitto, await_end, wait_until
from tests.support.processes import GatewayProcess
from tests.support.scenes import catalogue, policy, write_policies
from tests.support.whole_fleet import Everything


@dataclass
class Connection:
    """Where a link says whether it is connected."""

    connected: bool = True
    last_error: str = ""
    said: list[Health] = field(default_factory=list)

    def publish(self, topic: str, payload: bytes, *, retain: bool = False) -> int:
        assert (topic, retain) == (topic_of("health", "home"), True)
        self.said.append(Health.decode(payload))
        return 1


class Scene:
    """A monitor whose clocks stand still."""

    def __init__(
        self,
        folder: Path,
        names: tuple[str, ...] = (),
        certificates: dict[str, float] | None = None,
        policies: Catalogue | None = None,
    ) -> None:
        self.now = 1e5
        self.counters: Counter[str] = Counter()
        self.link = Connection()
        self.left: set[str] = set()
        link: Any = self.link
        self.monitor = Monitor(
            *(folder / "s", link, policies or catalogue(), self.counters, 120.0, lambda: certificates or {}),
            *(lambda: 0, lambda: {"store_bytes": 0, "estimates_waiting": 0, "next_releases": {}}),
            has_left=lambda device: device in self.left,
            seconds=lambda: self.now,
            wall=lambda: 1.8e9 + self.now,
        )
        self.monitor.expected_devices.update(names)

    def after(self, seconds: float) -> set[tuple[AlarmCode, str]]:
        """The alarms after some time, while the worker works."""
        self.now += seconds
        self.monitor.round_began = self.now
        return self.alarms()

    def alarms(self) -> set[tuple[AlarmCode, str]]:
        """The alarms after a step of the monitor's thread."""
        self.monitor.step()
        return {(alarm.code, alarm.name) for alarm in self.monitor.alarms.current()}

    def frame(self, device: str = "watch") -> None:
        """A frame of ten seconds has come."""
        self.monitor.note_frames([NewestFrame(device, "hr", 1, 9, 0)])


def test_a_device_that_falls_silent_is_missed_after_ten_minutes_and_welcome_again(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    assert scene.after(0.0) == set()
    scene.frame()
    assert scene.after(600.0) == set()
    assert scene.after(0.5) == {(AlarmCode.SILENT, "watch")}
    scene.frame()
    assert scene.after(5.0) == {(AlarmCode.SILENT, "watch")}, "it does not flap"
    assert scene.after(10.0) == set()


def test_devices_are_not_missed_for_the_gateway_s_own_absence(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.after(0.0)
    scene.frame()
    scene.link.connected = False
    scene.link.last_error = "no broker"
    assert scene.after(20.0) == set()
    assert scene.after(700.0) == {(AlarmCode.BROKER, "")}
    scene.link.connected = True
    scene.after(0.5)
    assert scene.after(500.0) == set()
    assert scene.after(101.0) == {(AlarmCode.SILENT, "watch")}


def test_a_device_that_had_sent_frames_before_the_start_is_missed_and_a_new_one_is_not(tmp_path: Path) -> None:
    scene = Scene(tmp_path, names=("ring",))
    assert scene.after(1.0) == set()
    assert scene.after(598.0) == set()
    assert scene.after(3.0) == {(AlarmCode.SILENT, "ring")}


def test_a_device_that_has_left_the_fleet_is_not_missed(tmp_path: Path) -> None:
    scene = Scene(tmp_path, names=("ring",))
    scene.after(1.0)
    scene.frame()
    assert scene.after(700.0) == {(AlarmCode.SILENT, "watch"), (AlarmCode.SILENT, "ring")}
    scene.left |= {"watch", "ring"}
    assert scene.after(30.0) == set()
    scene.left -= {"watch"}
    assert scene.after(1.0) == {(AlarmCode.SILENT, "watch")}


def test_devices_of_before_the_start_cost_a_step_little(tmp_path: Path) -> None:
    names = tuple(f"sensor-{index}" for index in range(150))
    policies = catalogue([policy(1).model_copy(update={"device": name}) for name in names])
    scene, calls = Scene(tmp_path, names=names, policies=policies), list[str]()
    scene.after(1.0)
    sys.setprofile(lambda frame, event, _argument: calls.append(frame.f_code.co_name) if event == "call" else None)
    try:
        scene.after(500.0)
    finally:
        sys.setprofile(None)
    assert len([name for name in calls if name != "<lambda>"]) < 2 * len(names)
    assert len(scene.after(101.0)) == 150


def test_how_soon_a_device_is_missed_follows_the_policy_of_its_stored_frames_and_not_one_that_was_only_sent(
    tmp_path: Path,
) -> None:
    slow = policy(2).model_copy(update={"frame_ticks": 4096})
    policies = catalogue([policy(1), slow])
    policies.retire([policy(1).to_json()])
    scene = Scene(tmp_path, names=("watch",), policies=policies)
    assert scene.after(1.0) == set()
    assert scene.after(598.0) == set()
    assert scene.after(3.0) == {(AlarmCode.SILENT, "watch")}
    scene = Scene(tmp_path, names=("watch",), policies=catalogue([slow]))
    scene.after(1.0)
    assert scene.after(4000.0) == set()


def test_what_is_refused_and_counted_becomes_alarms_with_names(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.monitor.note_refusal("stranger", Reason.UNKNOWN_DEVICE)
    scene.monitor.note_refusal("watch", Reason.FROM_THE_FUTURE)
    scene.monitor.note_refusal("ring", Reason.MALFORMED)
    scene.monitor.note_refusal("ring", Reason.WINDOW_MISMATCH)
    scene.monitor.note_refusal("wrist", Reason.UNKNOWN_POLICY_VERSION)  # as after a rollout
    scene.monitor.note_refusal("", Reason.TOPIC)
    scene.counters.update(store_errors=2, ledger_errors=1)
    for _ in range(3):
        scene.monitor.note(AlarmCode.RELEASE_REFUSED, "active", "audience street: 0.1 nats too much")
    assert scene.after(1.0) == {
        (AlarmCode.UNKNOWN_DEVICE, "stranger"),
        (AlarmCode.FUTURE, "watch"),
        (AlarmCode.MALFORMED, "ring"),
        *((code, "") for code in (AlarmCode.STORE, AlarmCode.LEDGER)),
        (AlarmCode.RELEASE_REFUSED, "active"),
    }
    counts = {alarm.code: alarm.count for alarm in scene.monitor.alarms.current()}
    assert (counts[AlarmCode.STORE], counts[AlarmCode.RELEASE_REFUSED], counts[AlarmCode.MALFORMED]) == (2, 3, 2)
    assert scene.after(61.0) == {
        *((AlarmCode.UNKNOWN_DEVICE, "stranger"), (AlarmCode.FUTURE, "watch"), (AlarmCode.MALFORMED, "ring")),
        (AlarmCode.RELEASE_REFUSED, "active"),
    }
    (refused,) = (alarm for alarm in scene.monitor.health().alarms if alarm.code is AlarmCode.RELEASE_REFUSED)
    assert refused.names == ("active",)
    assert refused.advice.startswith("audience street: 0.1 nats too much. What was refused is not released later")


def test_a_worker_that_is_stuck_is_told_by_another_thread(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.now += 121.0
    assert scene.alarms() == {(AlarmCode.STUCK, "")}


def test_what_held_before_a_restart_is_remembered(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    wall = 1.8e9 + scene.now
    scene.monitor.remember(AlarmCode.CONFLICT, "watch/hr", "first at tick 7", 5, since=wall - 86_400, last=wall - 3600)
    assert scene.after(0.0) == {(AlarmCode.CONFLICT, "watch/hr")}
    (alarm,) = scene.monitor.alarms.current()
    assert (alarm.count, alarm.since) == (5, wall - 86_400)
    assert scene.after(6 * 86_400) == {(AlarmCode.CONFLICT, "watch/hr")}
    assert scene.after(86_400) == set()


def test_what_was_noted_by_a_clock_that_was_ahead_ends_all_the_same(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    ahead = 1.8e9 + scene.now + 365 * 86_400
    scene.monitor.remember(AlarmCode.CONFLICT, "watch/hr", "first at tick 7", 5, since=ahead - 3600, last=ahead)
    assert scene.after(0.0) == {(AlarmCode.CONFLICT, "watch/hr")}
    assert scene.after(7 * 86_400 + 1) == set()


def test_what_was_over_before_a_restart_does_not_begin_and_end_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The store knows of every conflict for ever; whoever is called for an alarm is not called at each start."""
    scene = Scene(tmp_path)
    wall = 1.8e9 + scene.now
    scene.monitor.remember(AlarmCode.CONFLICT, "watch/hr", "", 5, since=wall - 1e6, last=wall - 8 * 86_400)
    assert scene.after(0.0) == set()
    assert not caplog.records


def test_a_certificate_that_ends_soon(tmp_path: Path) -> None:
    for days, alarms in (
        (29, {(AlarmCode.CERTIFICATE, "broker")}),
        (-1, {(AlarmCode.CERTIFICATE, "broker")}),
        (31, set()),
    ):
        scene = Scene(tmp_path, certificates={"broker": 1.8e9 + 1e5 + days * 86_400})
        assert scene.after(0.0) == alarms


def test_health_is_said_at_a_connection_when_an_alarm_comes_or_goes_and_every_minute(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.after(0.0)
    scene.after(59.0)
    assert len(scene.link.said) == 1
    scene.after(1.0)
    assert len(scene.link.said) == 2
    scene.monitor.note_refusal("stranger", Reason.UNKNOWN_DEVICE)
    scene.after(0.1)
    assert [alarm.code for alarm in scene.link.said[-1].alarms] == [AlarmCode.UNKNOWN_DEVICE]
    scene.link.connected = False
    scene.after(1.0)
    scene.link.connected = True
    scene.after(1.0)
    assert len(scene.link.said) == 4
    scene.monitor.stop()
    assert not scene.link.said[-1].online


def test_an_alarm_is_logged_when_it_begins_and_when_it_ends(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    scene = Scene(tmp_path)
    scene.counters["store_errors"] = 1
    for _ in range(5):
        scene.after(1.0)
    scene.after(100.0)
    assert [record.message.partition(":")[0] for record in caplog.records] == ["alarm", "alarm is over"]
    assert [vars(record)["alarm"] for record in caplog.records] == ["store", "store"]


def test_a_running_gateway_is_asked_and_says_when_it_is_gone(
    broker: Mosquitto, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_policies(tmp_path / "policies")
    heard = Everything(broker)
    words = ["gateway", "status", str(tmp_path / "gateway.sqlite")]

    def healths() -> list[Health]:
        return heard.of("health", Health.decode)

    assert main(words) == 1
    assert "no gateway answers" in capsys.readouterr().err
    gateway = GatewayProcess(tmp_path, broker.port)
    wait_until(lambda: healths() and healths()[-1].online, "health")
    assert (gateway.store.with_name("gateway.sqlite.status").stat().st_mode & 0o777) == 0o600
    assert main([*words, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["fleet"], report["connected"], report["alarms"]) == ("home", True, [])
    assert set(report["devices"]) == {"watch", "ring"}
    link = Link(broker.broker, client_id="stranger")
    link.start()
    birth = Status(True, "1", 0, (), ()).encode()
    wait_until(lambda: link.publish(topic_of("status", "home", "stranger"), birth) is not None)
    wait_until(lambda: [alarm.code for alarm in healths()[-1].alarms] == [AlarmCode.UNKNOWN_DEVICE], "an alarm")
    assert main(words) == 1
    assert "ALARM unknown-device stranger, 1 x since" in capsys.readouterr().out
    wait_until(lambda: link.publish(topic_of("symbols", "home", "ring", "hr"), b"") is not None)  # as a doctor does
    wait_until(lambda: link.publish(topic_of("symbols", "home", "watch", "hr"), b"\xc1") is not None)
    wait_until(
        lambda: [alarm.names for alarm in healths()[-1].alarms if alarm.code == "malformed"] == [("watch",)], "its name"
    )
    link.stop()
    gateway.kill()
    wait_until(lambda: not healths()[-1].online, "the last will")
    with pytest.raises(NotRunningError):
        ask_gateway(gateway.store)
    heard.link.stop()


def test_an_answer_that_was_cut_short_is_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answering, ended = StatusSocket(tmp_path / "s.status"), threading.Event()

    def answer() -> None:
        while not ended.is_set():
            answering.answer(lambda: '{"fleet": "home", "alarms": [', 0.01)

    thread = threading.Thread(target=answer)
    thread.start()
    try:
        assert main(["gateway", "status", str(tmp_path / "s")]) == 1
    finally:
        ended.set()
        await_end(thread)
        answering.close()
    output = capsys.readouterr()
    assert (output.out, output.err.count("\n")) == ("", 1)
    assert output.err.endswith("ask again\n")


def test_a_log_of_one_object_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    root.handlers[:] = []
    try:
        log_to_stderr("json", verbose=False)
        logging.getLogger("x").warning("alarm: %s", "silent\nwatch", extra={"alarm": "silent", "count": 2})
    finally:
        root.handlers[:] = before
        root.setLevel(level)
    (line,) = capsys.readouterr().err.splitlines()
    document = json.loads(line)
    assert (document["message"], document["alarm"], document["count"]) == ("alarm: silent\nwatch", "silent", 2)
    assert datetime.fromisoformat(document["time"]).timestamp() <= time.time() + 1


def test_how_far_this_clock_is_ahead_is_what_the_nearest_device_of_late_says(tmp_path: Path) -> None:
    """Ticks begin in 1970: a clock that is 300 days ahead is so beside what devices send, but not beside old frames."""
    scene = Scene(tmp_path)
    monitor = scene.monitor
    assert monitor.clock_ahead() is None
    now = int(1.8e9 + scene.now)
    monitor.note_frames([NewestFrame("watch", "hr", 1, now - 3 * 86_400, 0), NewestFrame("ring", "hr", 1, now - 30, 0)])
    assert monitor.clock_ahead() == pytest.approx(29, abs=1)
    scene.now += 599
    assert monitor.clock_ahead() == pytest.approx(29, abs=1)
    scene.now += 2
    assert monitor.clock_ahead() is None


@pytest.mark.parametrize("runs", [True, False])
def test_a_gateway_whose_store_has_the_name_of_a_shard_is_not_asked_for_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, runs: bool
) -> None:
    report = {"fleet": "other", "connected": True, "alarms": [], "counters": {}, "devices": {"ring": {}}}
    shard = report | {"process": "shard 1/2", "devices": {"watch": {}}, "inbox": 0, "estimates_waiting": 0}
    shard |= {"uptime_seconds": 1.0, "worker_round_seconds": 0.0, "store_bytes": 1, "connection": None}
    reports = {"home-shard-1": shard, "home-shard-2": report, "home-shard-3": report}
    for name in reports:
        (tmp_path / f"{name}.db.status").touch()
    reports |= {"home": report | {"devices": {}, "missing": []}} if runs else {}
    texts = {f"{name}.db.status": json.dumps(text) for name, text in reports.items()}
    monkeypatch.setattr("gateway.health.monitor.ask", lambda path, **_: texts.get(path.name))
    assert list(ask_gateway(tmp_path / "home.db")["devices"]) == ["watch"]
