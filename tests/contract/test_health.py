"""The health message: what it holds comes back, it stays small, and what is none is refused by reason."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fugu.contract.errors import FrameError
from fugu.contract.reports import MAX_NAMES, AlarmCode, Health, HealthAlarm

ALARM = HealthAlarm(AlarmCode.SILENT, 5, 2, ("watch", "ring"), 3, "see whether it runs")
HEALTH = Health(True, 20, 10, 5, 4, 100, 7, (ALARM, HealthAlarm(AlarmCode.STORE, 6, 1, (), 0, "look at the disk")))


def test_what_it_says_comes_back() -> None:
    assert Health.decode(HEALTH.encode()) == HEALTH


def test_the_last_will_says_that_the_gateway_is_away_and_nothing_else() -> None:
    assert json.loads(Health(online=False).encode()) == {"format": "fugu/2", "online": False}
    assert Health.decode(Health(online=False).encode()) == Health(online=False)


def test_the_largest_one_there_can_be_is_within_the_limit() -> None:
    names = tuple(f"{i}".ljust(200, "x") for i in range(MAX_NAMES))
    alarms = tuple(HealthAlarm(code, 2**53, 2**53, names, 2**53, "x" * 300) for code in AlarmCode)
    largest = Health(True, *([2**53] * 6), alarms)
    assert len(largest.encode()) <= Health.MAX_BYTES
    assert Health.decode(largest.encode()) == largest


def changed(**changes: Any) -> bytes:
    return json.dumps({**json.loads(HEALTH.encode()), **changes}).encode()


def alarm(**changes: Any) -> bytes:
    return changed(alarms=[{**json.loads(HEALTH.encode())["alarms"][0], **changes}])


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        *((payload, "malformed") for payload in (b"", b"\xff", b"[" * 5000, changed()[:-1] + b',"time":1}')),
        *((payload, "wrong_length") for payload in (changed(x=1), alarm(x=1), b"{}", b" " * (Health.MAX_BYTES + 1))),
        *((payload, "wrong_type") for payload in (b"[]", b"1", changed(alarms=1), changed(alarms=["x"]))),
        (changed(alarms=json.loads(HEALTH.encode())["alarms"][::-1]), "out_of_range"),
        (changed(alarms=json.loads(HEALTH.encode())["alarms"][:1] * 2), "out_of_range"),
        (alarm(names=["x"] * (MAX_NAMES + 1)), "wrong_length"),
    ],
)
def test_what_is_no_health_is_refused_by_reason(payload: bytes, reason: str) -> None:
    with pytest.raises(FrameError) as refusal:
        Health.decode(payload)
    assert refusal.value.reason == reason
