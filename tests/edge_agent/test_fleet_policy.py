"""An enrolled device and its verdicts: its judge is scripted here, the rest is real."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from edge_agent.fleet_policy import DAY_SECONDS, MOST_WAITING, FleetPolicy
from edge_agent.judge import judge
from edge_agent.plan import Managed, StreamPlan
from edge_agent.sensors.source import ConfigError
from edge_agent.shares import device_key
from fugu.contract.errors import StatusCode
from fugu.contract.frames import JUDGED_BYTES, PolicyStatus
from fugu.contract.topics import topic_of
from fugu.contract.trust import FAR_AHEAD_SECONDS, TrustError
from fugu.core.trust import TrustState, unpack
from tests.support.processes import policy
from tests.support.signing import Keys, policy_document

POLICY, ROOT, TIME = topic_of("policy_set", "home", "watch"), topic_of("root", "home"), topic_of("time", "home")
STOP = topic_of("stop", "home", "watch")
MINUTES = 1e6


def state(**fields: Any) -> TrustState:
    """Trust of a device that has accepted these."""
    return TrustState(b"root").with_changes(**fields)


class Bench:
    """An enrolled device without an agent."""

    def __init__(self, folder: Path, **managed: Any) -> None:
        fields: dict[str, Any] = {"streams": ("hr",), "config": "", "trust": str(folder / "trust"), "trusted": state()}
        fields |= {"fresh_seconds": None, "key": None}
        self.asked: list[bytes] = []
        self.answers: list[dict[str, Any]] = []
        self.switched: list[Sequence[StreamPlan]] = []
        self.fleet = FleetPolicy(
            "home", "watch", Managed(**{**fields, **managed}), lambda _: None, self._switch, lambda *_: True
        )

    def _switch(self, plans: Sequence[StreamPlan], store: Callable[[], None]) -> None:
        store()
        self.switched.append(plans)

    def judge(self, topic: str, payload: bytes, *answers: dict[str, Any]) -> PolicyStatus:
        """Let something arrive, and say what its judge, and those after it, answer."""
        self.answers = list(answers)
        self.fleet.take_document(topic, payload)
        return self.status

    def ask(self, topic: str, payload: bytes) -> None:
        self.asked.append(payload)
        self.fleet._take_answer(topic, payload, self.answers.pop(0))

    def later(self) -> PolicyStatus:
        """Minutes have passed."""
        self.fleet.maintain(time.monotonic() + MINUTES)
        return self.status

    @property
    def status(self) -> PolicyStatus:
        message = self.fleet.next_status(time.time(), is_reconnected=True)
        return PolicyStatus.decode(message[1])


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    """A device that judges at once."""
    bench = Bench(tmp_path)

    def at_once(fleet: FleetPolicy) -> None:
        if not fleet._is_judging and fleet._waiting and bench.answers:
            topic = next(iter(fleet._waiting))
            fleet._is_judging = True
            bench.ask(topic, fleet._waiting.pop(topic))

    monkeypatch.setattr(FleetPolicy, "_judge_next", at_once)
    return bench


def accepted(version: int) -> dict[str, Any]:
    return {**changing(version=version), "plans": []}


def changing(**fields: int) -> dict[str, Any]:
    """The judge's answer to what changes the state."""
    return {"changes": True, "state": state(**fields).pack().hex()}


def refusal(reason: str) -> dict[str, Any]:
    return {"refused": reason, "detail": f"because of {reason}"}


def test_whoever_reads_the_log_sees_once_that_a_policy_came_or_was_refused(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.judge(POLICY, b"three", accepted(3))
    for _ in range(2):
        bench.judge(POLICY, b"four", refusal("ceiling"))
    bench.judge(TIME, b"now", {"refused": "replayed", "detail": "old"})
    assert caplog.messages == [
        "policy version 3 is in force",
        "a policy is refused (ceiling): because of ceiling; what is in force stays",
    ]


def test_a_refused_time_is_not_said_to_be_the_policy_that_was_accepted(bench: Bench) -> None:
    bench.judge(POLICY, b"three", accepted(3))
    status = bench.judge(TIME, b"old time", refusal("replayed"))
    assert (status.version, status.reason) == (3, "replayed")
    assert status.judged == sha256(b"old time").digest()[:JUDGED_BYTES]
    bench.judge(POLICY, b"three", accepted(3))
    assert bench.asked == [b"three", b"old time"], "the policy was judged before"


def test_what_a_sensor_says_that_cannot_be_opened_stays_on_the_device(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The path of a recording, and how many rows it has, were in a retained message."""

    def fails(*_: object) -> None:
        raise ConfigError("/home/ann/night.csv has 4711 rows, fewer than its sensor's rows name")

    monkeypatch.setattr(bench.fleet, "_switch", fails)
    for status in (bench.judge(POLICY, b"one", accepted(1)), bench.judge(POLICY, b"one", accepted(1))):
        assert (status.version, status.reason) == (0, "config")
        assert status.detail == "a sensor of this device cannot be opened: its own log says why"
    assert [record.message for record in caplog.records if "4711" in record.message] == [
        "a policy is refused: /home/ann/night.csv has 4711 rows, fewer than its sensor's rows name"
    ]


def test_no_path_of_the_device_leaves_it_with_a_refusal(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The paths of the file of trust, the configuration and the key were in a retained message."""
    key = tmp_path / "ann" / "outbox.key"
    key.mkdir(parents=True)
    bench.fleet.managed = replace(bench.fleet.managed, trust=str(tmp_path / "ann" / "gone" / "trust"))
    bad_config = {"refused": "config", "detail": f"cannot read {tmp_path}/ann/agent.toml: Permission denied"}
    for topic in (POLICY, ROOT, STOP):
        for answer, reason in ((accepted(1), "storage"), (bad_config, "config")):
            status = bench.judge(topic, reason.encode(), answer)
            assert status.reason == reason
            assert "/ann/" not in status.detail
            assert "its own log says why" in status.detail
            assert "/ann/" in "".join(caplog.messages), "the log does"
            caplog.clear()
    monkeypatch.setattr(bench.fleet, "_switch", lambda *_: device_key(key.with_suffix("")))
    assert "/ann/" not in bench.judge(POLICY, b"sums", accepted(2)).detail


@pytest.mark.parametrize("reason", ["judge", "config", "not_yet_valid"])
@pytest.mark.parametrize("topic", [POLICY, ROOT, STOP])
def test_what_may_pass_is_tried_again(bench: Bench, topic: str, reason: str) -> None:
    good = accepted(3) if topic == POLICY else changing()
    assert bench.judge(topic, b"document", refusal(reason), good).reason == reason
    bench.later()
    assert bench.asked == [b"document"] * 2
    bench.answers = [good]
    bench.later()
    assert bench.asked == [b"document"] * 2


def test_a_disk_that_is_full_for_a_while_costs_no_document(bench: Bench, tmp_path: Path) -> None:
    bench.fleet.managed = replace(bench.fleet.managed, trust=str(tmp_path / "gone" / "trust"))
    assert bench.judge(POLICY, b"three", accepted(3)).reason == "storage"
    (tmp_path / "gone").mkdir()
    bench.answers = [accepted(3)]
    status = bench.later()
    assert (status.version, status.reason, status.refused) == (3, "", 1)


@pytest.mark.parametrize("version", [1, 4, 5])
def test_a_file_of_trust_that_was_lost_lets_nothing_old_in(bench: Bench, version: int) -> None:
    bench.judge(POLICY, b"five", accepted(5))
    Path(bench.fleet.managed.trust).unlink()
    status = bench.judge(POLICY, b"old", accepted(version))
    assert (status.version, status.reason, len(bench.switched)) == (5, "replayed", 1)
    assert bench.judge(TIME, b"time", changing(time=9)).reason == "replayed"
    assert not Path(bench.fleet.managed.trust).exists(), "after a restart, anything old would be accepted"
    assert bench.judge(POLICY, b"six", accepted(6)).version == 6


def test_a_clock_that_is_set_back_renews_no_policy(tmp_path: Path) -> None:
    end = int(time.time()) + 3600
    for signed, silent in ((end - 1, False), (end, True)):
        fleet = Bench(tmp_path, trusted=state(valid_until=end, silent_then=True, time=signed)).fleet
        assert fleet.silence_code(time.time()) is (StatusCode.POLICY_EXPIRED if silent else None)


def test_a_signed_time_is_written_to_the_disk_once_an_hour_and_never_goes_back(bench: Bench, tmp_path: Path) -> None:
    file = tmp_path / "trust"

    def hears(seconds: int) -> int:
        bench.judge(TIME, str(seconds).encode(), changing(time=seconds))
        return unpack(file.read_bytes()).time

    assert [hears(10_000 + 300 * i) for i in range(25)] == [10_000] * 12 + [13_600] * 12 + [17_200]
    assert hears(17_500) == 17_200
    assert hears(17_300) == 17_200
    assert bench.fleet.trusted.time == 17_500
    bench.judge(POLICY, b"three", {**changing(time=17_200, version=3), "plans": []})
    assert (bench.fleet.trusted.time, unpack(file.read_bytes()).time) == (17_500, 17_500)
    bench.judge(ROOT, b"root", changing(version=3))
    assert (bench.fleet.trusted.time, unpack(file.read_bytes()).time) == (0, 0), "a new root begins anew"


@pytest.mark.parametrize(("ahead", "asked"), [(0, 9_000), (-8_000, 9_000), (5, 9_005)])
def test_documents_are_judged_at_the_newest_time_that_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ahead: int, asked: int
) -> None:
    """A signed time that is not on the disk yet counts, although somebody has set the clock back."""
    fleet = Bench(tmp_path, trusted=state(time=9_000)).fleet
    fleet._now = lambda: 9_000.0 + ahead
    fleet._is_synchronised = lambda: True
    judged: list[tuple[str, str, str, bytes]] = []
    monkeypatch.setattr(
        fleet._judge, "ask", lambda asked, payload, _take: judged.append((asked[1], asked[2], asked[4], payload))
    )
    fleet.take_document(POLICY, b"three")
    assert judged == [("policy", str(asked), "sure", b"three")]
    fleet._is_judging = False
    fleet.take_document(TIME, b"time")
    assert judged[1:] == [("time", str(9_000 + ahead), "sure", b"time")], "a time by the clock itself"


def test_a_document_is_judged_at_the_time_that_the_agent_says(tmp_path: Path) -> None:
    keys = Keys()
    config = keys.enrolled(tmp_path, sensor='{kind = "stdin"}')
    document = policy_document(policy(epoch_us=0, period_us=1_000_000), version=5, valid_from=1_000, valid_until=2_000)
    payload = keys.signed(document)
    assert unpack(bytes.fromhex(judge(config, "policy", payload, 1_999)["state"])).version == 5
    for now, reason in ((999, "not_yet_valid"), (2_000, "expired")):
        with pytest.raises(TrustError) as refused:
            judge(config, "policy", payload, now)
        assert refused.value.reason == reason


def test_what_is_stored_outlasts_a_power_cut_as_a_whole(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cut leaves of a file what was flushed to the disk before its name was there."""
    file, flushed, after_a_cut = tmp_path / "trust", dict[int, bytes](), list[bytes]()

    def flush(number: int) -> None:
        if stat.S_ISREG(os.fstat(number).st_mode):
            flushed[os.fstat(number).st_ino] = Path(f"/proc/self/fd/{number}").read_bytes()

    def replaced(path: Path, target: Path) -> Path:
        after_a_cut.append(flushed.get(path.stat().st_ino, b""))
        return rename(path, target)

    rename = Path.replace
    monkeypatch.setattr(os, "fsync", flush)
    monkeypatch.setattr(Path, "replace", replaced)
    bench.judge(POLICY, b"three", accepted(3))
    bench.judge(STOP, b"stop", stop(3, 3))
    assert [unpack(state).stopped for state in after_a_cut] == [0, 3]
    assert file.read_bytes() == after_a_cut[-1]


def test_a_time_far_ahead_hides_no_freeze(tmp_path: Path) -> None:
    assert Bench(tmp_path, fresh_seconds=600, trusted=state(time=2**53)).status.stale
    assert not Bench(tmp_path, fresh_seconds=600, trusted=state(time=int(time.time()) + 30)).status.stale


def test_many_tables_keep_no_policy_out(tmp_path: Path) -> None:
    streams = tuple(f"s{i}" for i in range(MOST_WAITING + 4))
    fleet = Bench(tmp_path, streams=streams).fleet
    fleet._is_judging = True
    for stream in streams:
        fleet.take_document(topic_of("table", "home", "watch", stream), b"table")
    for topic in (POLICY, ROOT, TIME):
        fleet.take_document(topic, b"document")
    fleet.take_document(topic_of("table", "home", "watch", "s0"), b"newer")
    assert {POLICY, ROOT, TIME} < set(fleet._waiting)
    assert fleet._waiting[topic_of("table", "home", "watch", "s0")] == b"newer"
    assert len(fleet._waiting) == MOST_WAITING + 3


def stop(version: int, running: int) -> dict[str, Any]:
    return changing(stopped=version, version=running)


def test_a_device_that_is_stopped_draws_nothing_until_a_newer_policy(bench: Bench) -> None:
    bench.judge(POLICY, b"three", accepted(3))
    assert bench.fleet.silence_code(time.time()) is None
    bench.judge(STOP, b"stop", stop(3, 3))
    assert bench.fleet.silence_code(time.time()) is StatusCode.STOPPED
    bench.judge(POLICY, b"four", {**changing(stopped=3, version=4), "plans": []})
    assert bench.fleet.silence_code(time.time()) is None


def test_a_stop_that_comes_before_a_new_root_document_is_judged_again_under_it(bench: Bench) -> None:
    """The broker sends it again at the next connection only: until then the device drew."""
    for before in (stop(3, 3), refusal("wrong_role")):
        bench.judge(POLICY, b"three", accepted(3))
        bench.judge(STOP, b"stop", before)
        bench.judge(ROOT, str(before).encode(), changing(version=3), stop(3, 3))
        assert bench.asked[-1] == b"stop"
        assert bench.fleet.silence_code(time.time()) is StatusCode.STOPPED


def test_a_stop_holds_although_the_file_of_trust_was_lost(bench: Bench, tmp_path: Path) -> None:
    bench.judge(POLICY, b"five", accepted(5))
    (tmp_path / "trust").unlink()
    assert bench.judge(STOP, b"stop", stop(5, 0)).reason == ""
    assert bench.fleet.silence_code(time.time()) is StatusCode.STOPPED
    stored = unpack((tmp_path / "trust").read_bytes())
    assert (stored.version, stored.stopped) == (5, 5)


def test_a_stop_outlives_a_restart(tmp_path: Path) -> None:
    assert Bench(tmp_path, trusted=state(version=3, stopped=3)).fleet.silence_code(time.time()) is StatusCode.STOPPED
    assert Bench(tmp_path, trusted=state(version=4, stopped=3)).fleet.silence_code(time.time()) is None
    assert Bench(tmp_path).fleet.silence_code(time.time()) is None


def test_a_stop_has_its_turn_although_the_broker_sends_the_root_again_and_again(bench: Bench) -> None:
    root = {**changing(), "changes": False}
    bench.judge(ROOT, b"roots", root)
    for _ in range(5):
        bench.judge(ROOT, b"roots", root)
    assert bench.asked == [b"roots"]
    bench.judge(STOP, b"stop", refusal("wrong_role"))
    bench.judge(STOP, b"stop", refusal("wrong_role"))
    assert bench.asked == [b"roots", b"stop"]
    bench.judge(ROOT, b"more roots", {**root, "changes": True})
    bench.judge(STOP, b"stop", stop(3, 0))
    assert bench.asked[2:] == [b"more roots", b"stop"], "it may be of a key that was not known yet"
    assert bench.fleet.silence_code(time.time()) is StatusCode.STOPPED
    bench.judge(TIME, b"time", refusal("judge"))
    bench.judge(TIME, b"time", refusal("judge"))
    assert bench.asked[4:] == [b"time", b"time"], "what may pass is asked again"


def test_under_new_keys_what_was_refused_is_judged_again_and_counted_once(bench: Bench) -> None:
    for topic, payload in ((POLICY, b"four"), (STOP, b"stop"), (STOP, b"stop")):
        bench.judge(topic, payload, refusal("signatures"))
    assert bench.judge(ROOT, b"root", changing(), refusal("signatures")).refused == 2
    assert bench.judge(STOP, b"stop", changing()).refused == 2
    assert bench.asked == [b"four", b"stop", b"root", b"four", b"stop"]


def test_a_time_far_ahead_is_named_until_another_comes(bench: Bench) -> None:
    now = time.time()
    assert not bench.fleet.is_gateway_ahead(now)
    assert bench.judge(TIME, b"far", refusal("far_ahead")).reason == "far_ahead"
    assert bench.fleet.is_gateway_ahead(now)
    bench.judge(TIME, b"near", changing(time=9))
    assert not bench.fleet.is_gateway_ahead(now)


@pytest.mark.parametrize(("over", "sure", "ahead"), [(0, True, False), (1, True, True), (1, False, False)])
def test_a_time_far_ahead_that_was_taken_before_is_named_where_the_clock_is_known(
    tmp_path: Path, over: int, sure: bool, ahead: bool
) -> None:
    fleet = Bench(tmp_path, trusted=state(time=1_000_000 + 86_400 + over)).fleet
    fleet._is_synchronised = lambda: sure
    assert fleet.is_gateway_ahead(1_000_000) is ahead
    assert DAY_SECONDS == FAR_AHEAD_SECONDS
