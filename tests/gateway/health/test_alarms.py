"""Alarms come once and go once, whatever comes and goes beneath them, and nobody can make them grow without end."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from fugu.contract.reports import MAX_NAMES, AlarmCode
from gateway.health.findings import KINDS
from gateway.health.monitor import Alarms
from tests.support import alert_rules

ROOT = Path(__file__).parents[3]


@dataclass
class Time:
    """Two clocks that go on together."""

    now: float = 1000.0

    def alarms(self) -> Alarms:
        return Alarms(lambda: self.now, lambda: 1_800_000_000.0 + self.now)


def test_every_code_has_an_end_and_says_what_to_do() -> None:
    time = Time()
    alarms = time.alarms()
    for code in AlarmCode:
        alarms.note(code, "watch")
    begun, ended = alarms.step()
    assert [alarm.code for alarm in begun] == list(AlarmCode)
    assert ended == []
    assert all(alarm.advice and alarm.name in str(alarm) for alarm in begun)
    time.now += 8 * 86_400
    assert len(alarms.step()[1]) == len(AlarmCode)
    assert alarms.current() == []


def test_documents_and_alert_rules_say_what_is_declared() -> None:
    assert list(KINDS) == list(AlarmCode)
    rows = "\n".join(f"| `{code}` | {kind.words} |" for code, kind in KINDS.items())
    assert f"| code | |\n| --- | --- |\n{rows}\n\n" in (ROOT / "docs" / "protocol.md").read_text()
    assert alert_rules.FILE.read_text() == alert_rules.written()


@pytest.mark.parametrize("code", AlarmCode)
def test_a_trouble_that_comes_and_goes_is_one_alarm(code: AlarmCode) -> None:
    time = Time()
    alarms = time.alarms()
    begun, ended = 0, 0
    for _ in range(20):
        alarms.note(code, "watch")
        time.now += 9.0
        came, gone = alarms.step()
        begun, ended = begun + len(came), ended + len(gone)
    assert (begun, ended) == (1, 0)
    (alarm,) = alarms.current()
    assert (alarm.count, alarm.since) == (20, 1_800_001_000.0)


def test_what_holds_counts_once_and_what_happens_each_time() -> None:
    alarms = Time().alarms()
    for _ in range(5):
        alarms.note(AlarmCode.BROKER, times=0)
        alarms.note(AlarmCode.CONFLICT, "watch", times=2)
    assert {alarm.code: alarm.count for alarm in alarms.current()} == {AlarmCode.BROKER: 1, AlarmCode.CONFLICT: 10}


def test_it_ends_only_after_its_time() -> None:
    time = Time()
    alarms = time.alarms()
    alarms.note(AlarmCode.STORE)
    alarms.step()
    time.now += 60.0
    assert alarms.step() == ([], [])
    time.now += 0.1
    begun, ended = alarms.step()
    assert (begun, [alarm.code for alarm in ended]) == ([], [AlarmCode.STORE])


def test_what_was_long_ago_ends_sooner() -> None:
    time = Time()
    alarms = time.alarms()
    alarms.note(AlarmCode.CONFLICT, "watch", age=6.5 * 86_400)
    time.now += 0.6 * 86_400
    assert [alarm.code for alarm in alarms.step()[1]] == [AlarmCode.CONFLICT]


def test_names_that_somebody_makes_up_do_not_fill_the_memory() -> None:
    alarms = Time().alarms()
    for i in range(5000):
        alarms.note(AlarmCode.UNKNOWN_DEVICE, f"name{i}")
    assert len(alarms.current()) == 201
    (together,) = alarms.summary()
    assert together.count == 5000
    assert len(together.names) == MAX_NAMES
    assert together.others == 201 - MAX_NAMES


def test_names_that_are_over_make_room_for_others() -> None:
    time = Time()
    alarms = time.alarms()
    for start in (0, 200):
        for i in range(200):
            alarms.note(AlarmCode.UNKNOWN_DEVICE, f"name{start + i}")
        alarms.step()
        assert all(alarm.name for alarm in alarms.current())
        time.now += 3601.0
        alarms.step()


def test_a_summary_has_one_line_for_each_code_in_their_order() -> None:
    alarms = Time().alarms()
    for code, name in (("store", ""), ("silent", "b"), ("silent", "a"), ("conflict", "watch/hr")):
        alarms.note(AlarmCode(code), name)
    assert [(alarm.code, alarm.names, alarm.others) for alarm in alarms.summary()] == [
        (AlarmCode.CONFLICT, ("watch/hr",), 0),
        (AlarmCode.SILENT, ("a", "b"), 0),
        (AlarmCode.STORE, (), 0),
    ]
