"""Releases: golden JSON, 64-bit numbers, and one specific error for everything that can be wrong."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fugu.contract.errors import FrameError, Reason
from fugu.contract.reports import ReleaseFrame
from tests.support.example_frames import RELEASE_FRAME
from tests.support.refusals import refused_for

GOLDEN = Path(__file__).parents[1] / "golden" / "reports" / "release.json"


def payload(**changes: Any) -> bytes:
    """A release with some fields replaced by anything; `...` removes one."""
    fields = json.loads(RELEASE_FRAME.encode()) | changes
    return json.dumps({name: value for name, value in fields.items() if value is not ...}).encode()


def test_the_text_is_fixed() -> None:
    golden = GOLDEN.read_bytes().rstrip()
    assert RELEASE_FRAME.encode() == golden
    assert ReleaseFrame.decode(golden) == RELEASE_FRAME


def test_no_number_is_rounded_on_the_way() -> None:
    decoded = ReleaseFrame.decode(RELEASE_FRAME.encode())
    assert (decoded.values[0], decoded.epsilon, decoded.charge) == (0.30000000000000004, 0.1, 0.0487654321)
    assert decoded.last == 10799


def test_one_number_has_no_state_in_its_name() -> None:
    alone = {"values": (0.5,), "standard_errors": (0.1,), "low": (0.25,), "high": (0.75,)}
    frame = replace(RELEASE_FRAME, query="frequency", unit="share", **alone)
    fields = json.loads(frame.encode())
    assert (fields["value"], fields["low"], fields["high"], fields["standard_error"]) == (0.5, 0.25, 0.75, 0.1)
    assert (fields["unit"], fields["states"]) == ("share", ["low", "high"])
    assert ReleaseFrame.decode(frame.encode()) == frame


def test_every_truncation_and_every_extension_is_refused() -> None:
    whole = RELEASE_FRAME.encode()
    for length in range(len(whole)):
        with refused_for(Reason.MALFORMED):
            ReleaseFrame.decode(whole[:length])
    with refused_for(Reason.MALFORMED):
        ReleaseFrame.decode(whole + b"\0")
    for name in ("more", "values"):  # the second is a field's own name, whose numbers stand in several keys
        with refused_for(Reason.WRONG_LENGTH, match=f"{name}: is no key of this"):
            ReleaseFrame.decode(payload(**{name: 1}))
    with refused_for(Reason.WRONG_LENGTH, match="at most"):
        ReleaseFrame.decode(b" " * (ReleaseFrame.MAX_BYTES + 1))
    for field in json.loads(whole):
        with pytest.raises(FrameError):
            ReleaseFrame.decode(payload(**{field: ...}))


@pytest.mark.parametrize(
    ("changes", "error", "text"),
    [
        ({"query": "count"}, Reason.WRONG_LENGTH, "value: is missing"),
        ({"first": 2**53}, Reason.OUT_OF_RANGE, r"length 3600 is not in 1\.\.1"),
        ({"observed": 10801}, Reason.OUT_OF_RANGE, r"observed 10801 is not in 0\.\.10800"),
        ({"states": ["low", "low"]}, Reason.OUT_OF_RANGE, "two states have the same name"),
        ({"value_low": 5.0}, Reason.OUT_OF_RANGE, "not inside its interval"),
        ({"low_low": float("nan")}, Reason.MALFORMED, "no numbers of JSON"),
        ({"high_high": float("inf")}, Reason.MALFORMED, "no numbers of JSON"),
        ({"unit": "share"}, Reason.OUT_OF_RANGE, "unit is not ticks"),
        ({"since": "2026-03-01T03:00:00Z"}, Reason.OUT_OF_RANGE, "since is not before time"),
        ({"scale": "2.5"}, Reason.OUT_OF_RANGE, "scale: must be of the form"),
        ({"scale": "10/4"}, Reason.OUT_OF_RANGE, "scale 10/4 is not in lowest terms"),
    ],
)
def test_a_wrong_field_says_what_is_wrong(changes: dict[str, Any], error: Reason, text: str) -> None:
    with refused_for(error, match=text):
        ReleaseFrame.decode(payload(**changes))


def test_what_cannot_be_decoded_cannot_be_encoded() -> None:
    with refused_for(Reason.OUT_OF_RANGE, match="noisy: must be True"):
        replace(RELEASE_FRAME, noisy=False)
    with refused_for(Reason.OUT_OF_RANGE):
        replace(RELEASE_FRAME, charge=float("nan"))
