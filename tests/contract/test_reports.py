"""Reports for people: golden JSON, what comes back, and one specific error for everything that can be wrong."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fugu.contract.errors import FrameError, Reason
from fugu.contract.json_message import JsonMessage
from fugu.contract.reports import Estimate, StateEstimate, ValueEstimate, WindowCount, decode_estimate
from fugu.contract.sentences import LAST_US, instant, instant_text, read_instant, unix_us
from tests.support.example_frames import (
    COUNT,
    HISTOGRAM,
    PLACE_ESTIMATE,
    REPORTS,
    STATE_ESTIMATE,
    VALUE_ESTIMATE,
    VECTOR_ESTIMATE,
)
from tests.support.refusals import refused_for

GOLDEN = Path(__file__).parents[1] / "golden" / "reports"
Report = Estimate | WindowCount
AWKWARD = ('"', "\\", "é", "e\u0301", "_", "__", "on_off", "low_on", "share_", "🦡", " ", "x" * 64)


def decode(report: Report) -> Callable[[bytes], Report]:
    return WindowCount.decode if isinstance(report, WindowCount) else decode_estimate


def changed(report: Report, **changes: Any) -> bytes:
    """A message with some fields replaced by anything; `...` removes one."""
    fields = json.loads(report.encode()) | changes
    return json.dumps({name: value for name, value in fields.items() if value is not ...}).encode()


@pytest.mark.parametrize("name", REPORTS)
def test_the_text_of_every_form_is_fixed(name: str) -> None:
    golden = (GOLDEN / f"{name}.json").read_bytes().rstrip()
    assert REPORTS[name].encode() == golden
    assert decode(REPORTS[name])(golden) == REPORTS[name]


@pytest.mark.parametrize("name", REPORTS)
def test_a_report_is_one_flat_object_in_which_only_states_are_an_array(name: str) -> None:
    fields = json.loads(REPORTS[name].encode())
    assert all(isinstance(value, str | int | float | None) for key, value in fields.items() if key != "states")
    assert all(isinstance(label, str) for label in fields.get("states", []))
    assert {"time", "epsilon", "adversary", "useful"} <= set(fields)


@settings(max_examples=20)
@given(st.lists(st.sampled_from(AWKWARD) | st.text(st.characters().filter(str.isprintable), min_size=1, max_size=64),
                min_size=2, max_size=9, unique=True))  # fmt: skip
def test_no_label_can_be_taken_for_another_or_for_a_field(labels: list[str]) -> None:
    shares = dict.fromkeys(labels, 1.0 / len(labels))
    estimate = replace(STATE_ESTIMATE, state=labels[-1], shares=shares)
    assert decode_estimate(estimate.encode()) == estimate
    assert len(json.loads(estimate.encode())) == 10 + len(labels)
    numbers = tuple(float(place) for place in range(len(labels)))
    count = replace(HISTOGRAM, states=tuple(labels), values=numbers, low=numbers, high=numbers)
    assert WindowCount.decode(count.encode()) == count


@pytest.mark.parametrize(
    ("payload", "error", "text"),
    [
        (b"", Reason.MALFORMED, "no JSON message"),
        (b"\xff\xfe{}", Reason.MALFORMED, "no JSON message"),
        (b"[" * 100_000, Reason.MALFORMED, "no JSON message"),
        (b'{"time":' + b"9" * 5000 + b"}", Reason.MALFORMED, "no JSON message"),
        (b"[]", Reason.WRONG_TYPE, "message is list, not an object"),
        (b"null", Reason.WRONG_TYPE, "message is NoneType"),
        (b'{"time":NaN}', Reason.MALFORMED, "no numbers of JSON"),
        (b'{"time":-Infinity}', Reason.MALFORMED, "no numbers of JSON"),
        (b'{"tick":1,"tick":1}', Reason.MALFORMED, "a field is there twice"),
        (b" " * (JsonMessage.MAX_BYTES + 1), Reason.WRONG_LENGTH, "at most"),
        (STATE_ESTIMATE.encode() + b"{}", Reason.MALFORMED, "no JSON"),
        (changed(STATE_ESTIMATE, since="2026-03-01T07:31:00Z"), Reason.OUT_OF_RANGE, "since is after time"),
        (changed(STATE_ESTIMATE, state="open"), Reason.OUT_OF_RANGE, "state is none of"),
        (changed(STATE_ESTIMATE, share_on=0.5), Reason.OUT_OF_RANGE, "shares sum to 0.75"),
        (changed(STATE_ESTIMATE, share_on=..., share_off=...), Reason.WRONG_LENGTH, "shares: must have at least 1"),
        (changed(STATE_ESTIMATE, **{"share_": 0.0}), Reason.WRONG_LENGTH, "must have at least 1 letters"),
        (changed(STATE_ESTIMATE, **{"share_\ud800": 0.0}), Reason.OUT_OF_RANGE, "must be a text"),
        (changed(STATE_ESTIMATE, state="\x1b[2J"), Reason.OUT_OF_RANGE, "state: not printable"),
        (changed(COUNT, states=["a\nb"]), Reason.OUT_OF_RANGE, "states.0: not printable"),
        (changed(VALUE_ESTIMATE, unit="\u202em"), Reason.OUT_OF_RANGE, "unit: not printable"),
        (STATE_ESTIMATE.encode().replace(b'"epsilon":1.0', b'"epsilon":1e999'), Reason.OUT_OF_RANGE, "a finite number"),
        (changed(STATE_ESTIMATE, epsilon=10**400), Reason.WRONG_TYPE, "epsilon: must be a number"),
        (changed(PLACE_ESTIMATE, semi_minor=181), Reason.OUT_OF_RANGE, "semi_minor is above semi_major"),
        (changed(VALUE_ESTIMATE, low=21.0), Reason.OUT_OF_RANGE, "not inside its interval"),
        (changed(VALUE_ESTIMATE, value=..., value_0=20.5), Reason.WRONG_LENGTH, "value_1: is missing"),
        (changed(VECTOR_ESTIMATE, value_2=1.0), Reason.WRONG_LENGTH, "low_2: is missing"),
        (changed(VECTOR_ESTIMATE, value_3=1.0), Reason.WRONG_LENGTH, "value_2: is missing"),
        (changed(COUNT, states=["on", "on"]), Reason.OUT_OF_RANGE, "two states have the same name"),
        (changed(HISTOGRAM, states=["on"]), Reason.WRONG_LENGTH, "one number is called value"),
        (changed(HISTOGRAM, states=["off", "on", "open"]), Reason.WRONG_LENGTH, "value_open: is missing"),
        (changed(COUNT, window="x" * 33), Reason.WRONG_LENGTH, "window: must have at most 32 letters"),
    ],
)
def test_what_is_no_report_is_refused_by_what_is_wrong(payload: bytes, error: Reason, text: str) -> None:
    read = WindowCount.decode if b'"window"' in payload else decode_estimate
    with refused_for(error, match=text):
        read(payload)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_what_cannot_be_decoded_cannot_be_encoded(bad: float) -> None:
    wrong: list[Callable[[], object]] = [
        lambda: replace(STATE_ESTIMATE, probability=bad),
        lambda: replace(STATE_ESTIMATE, shares={"off": bad, "on": 1.0}),
        lambda: replace(STATE_ESTIMATE, epsilon=bad),
        lambda: replace(PLACE_ESTIMATE, latitude=bad),
        lambda: replace(PLACE_ESTIMATE, accuracy=bad),
        lambda: replace(PLACE_ESTIMATE, semi_major=bad),
        lambda: replace(PLACE_ESTIMATE, orientation=bad),
        lambda: replace(VALUE_ESTIMATE, values=(bad,)),
        lambda: replace(COUNT, high=(bad,)),
        lambda: replace(COUNT, confidence=bad),
    ]
    for make in wrong:
        with refused_for(Reason.OUT_OF_RANGE):
            make()
    with refused_for(Reason.WRONG_TYPE):
        replace(STATE_ESTIMATE, **{"epsilon": None})
    with refused_for(Reason.WRONG_TYPE):
        replace(PLACE_ESTIMATE, time=datetime(2026, 1, 1))


@pytest.mark.parametrize("count", [2, 4])
def test_counts_are_as_many_as_their_states_or_one(count: int) -> None:
    numbers = (1.0,) * count
    with refused_for(Reason.WRONG_LENGTH, match=f"{count} values beside 3 states"):
        replace(COUNT, states=("a", "b", "c"), values=numbers, low=numbers, high=numbers)


def test_what_is_just_allowed_and_what_is_not() -> None:
    """Rounding of probabilities on both sides, and the largest numbers of states, names and half-axes."""
    assert replace(STATE_ESTIMATE, probability=1.0009).probability == 1.0009
    for shares in ({"off": 0.5009, "on": 0.5}, {"off": 0.4991, "on": 0.5}):
        assert replace(STATE_ESTIMATE, state="on", shares=shares).shares == shares
    assert replace(STATE_ESTIMATE, since=STATE_ESTIMATE.time).since == STATE_ESTIMATE.time
    states = {str(place): 1 / 256 for place in range(256)}
    wrong: list[Callable[[], object]] = [
        lambda: replace(STATE_ESTIMATE, probability=1.0011),
        lambda: replace(STATE_ESTIMATE, probability=-0.0001),
        lambda: replace(STATE_ESTIMATE, state="on", shares={"off": 0.5011, "on": 0.5}),
        lambda: replace(STATE_ESTIMATE, state="on", shares={"off": 0.4989, "on": 0.5}),
        lambda: replace(STATE_ESTIMATE, state="0", shares=states),
        lambda: replace(PLACE_ESTIMATE, semi_major=2.0, semi_minor=2.5),
        lambda: replace(PLACE_ESTIMATE, orientation=180.0),
        lambda: replace(PLACE_ESTIMATE, latitude=90.1),
        lambda: replace(VALUE_ESTIMATE, values=(1.0,) * 4, low=(1.0,) * 4, high=(1.0,) * 4),
        lambda: replace(VALUE_ESTIMATE, values=(1.0,), low=(0.0,), high=()),
        lambda: replace(VALUE_ESTIMATE, values=(3.0,), low=(1.0,), high=(2.0,)),
        lambda: replace(VALUE_ESTIMATE, values=(0.0,), low=(1.0,), high=(2.0,)),
    ]
    for make in wrong:
        with pytest.raises(FrameError):
            make()


def test_the_largest_report_is_within_the_limit() -> None:
    """A device has at most 255 states with names of 64 characters; those that are longest in UTF-8 have 4 bytes."""
    labels = tuple(chr(0x20000) * 62 + chr(0x4E00 + place) for place in range(255))
    worst = 1.234567890123456e-300
    count = replace(HISTOGRAM, states=labels, values=(worst,) * 255, low=(worst,) * 255, high=(worst,) * 255)
    assert len(count.encode()) <= JsonMessage.MAX_BYTES
    shares = dict.fromkeys(labels, 1.0 / 255)
    assert len(replace(STATE_ESTIMATE, state=labels[0], shares=shares).encode()) <= JsonMessage.MAX_BYTES


@given(st.integers(0, LAST_US))
def test_a_time_comes_back_to_the_microsecond_and_is_in_order_as_text(us: int) -> None:
    text = instant_text(instant(us))
    assert unix_us(read_instant(text)) == us
    assert datetime.fromisoformat(text) == instant(us)
    assert len(text) <= 27


@pytest.mark.parametrize(
    ("us", "text"),
    [
        (0, "1970-01-01T00:00:00Z"),
        (1, "1970-01-01T00:00:00.000001Z"),
        (1_772_350_200_250_000, "2026-03-01T07:30:00.25Z"),
        (LAST_US, "9999-12-31T23:59:59.999999Z"),
    ],
)
def test_times_have_one_form(us: int, text: str) -> None:
    assert instant_text(instant(us)) == text
    assert instant_text(instant(us).astimezone(timezone(timedelta(hours=-5)))) == text


@pytest.mark.parametrize("us", [-1, LAST_US + 1, 2**62, 2**200])
def test_times_that_have_no_form_are_refused(us: int) -> None:
    with refused_for(Reason.OUT_OF_RANGE, match="before 1970 or after the year 9999"):
        instant(us)


@pytest.mark.parametrize(
    "text",
    [
        *("", "2026-03-01", "2026-03-01T07:30:00", "2026-03-01T07:30:00+00:00", "2026-03-01 07:30:00Z"),
        *("2026-03-01T07:30:00z", "2026-03-01T07:30:00.Z", "2026-03-01T07:30:00.250Z", "2026-03-01T07:30:00.1234567Z"),
        *("2026-02-30T00:00:00Z", "2026-03-01T24:00:00Z", "2026-03-01T07:30:60Z", "1969-12-31T23:59:59Z"),
        *("0000-01-01T00:00:00Z", "+10000-01-01T00:00:00Z", "٢٠٢٦-03-01T07:30:00Z", "2026-03-01T07:30:00Z\n"),
    ],
)
def test_other_forms_of_time_are_refused(text: str) -> None:
    with refused_for(Reason.OUT_OF_RANGE):
        read_instant(text)


def test_each_form_is_read_as_its_own_type() -> None:
    assert isinstance(decode_estimate(STATE_ESTIMATE.encode()), StateEstimate)
    assert isinstance(decode_estimate(VECTOR_ESTIMATE.encode()), ValueEstimate)
    with pytest.raises(FrameError):
        decode_estimate(COUNT.encode())
    with pytest.raises(FrameError):
        WindowCount.decode(STATE_ESTIMATE.encode())
    assert read_instant("2026-03-01T07:30:00Z").tzinfo is UTC
