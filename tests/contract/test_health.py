"""The health message: what it holds comes back, it stays small, and what is none is refused by reason."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fugu.contract.errors import FrameError
from fugu.contract.health import (
    MAX_HEALTH_BYTES,
    MAX_NAMES,
    AlarmCode,
    Health,
    HealthAlarm,
    decode_health,
    encode_health,
)

ALARM = HealthAlarm(AlarmCode.SILENT, 5, 2, ("watch", "ring"), 3, "see whether it runs")
HEALTH = Health(True, 20, 10, 5, 4, 100, 7, (ALARM, HealthAlarm(AlarmCode.STORE, 6, 1, (), 0, "look at the disk")))


def test_what_it_says_comes_back() -> None:
    assert decode_health(encode_health(HEALTH)) == HEALTH


def test_the_last_will_says_that_the_gateway_is_away_and_nothing_else() -> None:
    assert json.loads(encode_health(Health(online=False))) == {"format": "fugu/2", "online": False}
    assert decode_health(encode_health(Health(online=False))) == Health(online=False)


def test_the_largest_one_there_can_be_is_within_the_limit() -> None:
    names = tuple(f"{i}".ljust(200, "x") for i in range(MAX_NAMES))
    alarms = tuple(HealthAlarm(code, 2**53, 2**53, names, 2**53, "x" * 300) for code in AlarmCode)
    largest = Health(True, *([2**53] * 6), alarms)
    assert len(encode_health(largest)) <= MAX_HEALTH_BYTES
    assert decode_health(encode_health(largest)) == largest


def changed(**changes: Any) -> bytes:
    return json.dumps({**json.loads(encode_health(HEALTH)), **changes}).encode()


def alarm(**changes: Any) -> bytes:
    return changed(alarms=[{**json.loads(encode_health(HEALTH))["alarms"][0], **changes}])


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        *((payload, "malformed") for payload in (b"", b"\xff", b"[]", b"1", b"[" * 5000, changed(x=1), alarm(x=1))),
        *((payload, "malformed") for payload in (changed(alarms=1), changed(alarms=["x"]), alarm(code="fire"))),
        *((payload, "wrong_type") for payload in (changed(online=1), changed(time="1"), changed(frames=True))),
        *((payload, "wrong_type") for payload in (changed(heard=1.5), alarm(names="ab"), alarm(names=[1]))),
        *((payload, "out_of_range") for payload in (changed(format="fugu/3"), changed(since=-1), alarm(count=2**60))),
        (changed(alarms=json.loads(encode_health(HEALTH))["alarms"][::-1]), "out_of_range"),
        (changed(alarms=json.loads(encode_health(HEALTH))["alarms"][:1] * 2), "out_of_range"),
        (alarm(names=["x"] * (MAX_NAMES + 1)), "wrong_length"),
        (b" " * (MAX_HEALTH_BYTES + 1), "out_of_range"),
    ],
)
def test_what_is_no_health_is_refused_by_reason(payload: bytes, reason: str) -> None:
    with pytest.raises(FrameError) as refusal:
        decode_health(payload)
    assert refusal.value.reason == reason
