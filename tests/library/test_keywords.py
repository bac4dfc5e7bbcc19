"""Every call refuses options that it has not, and its errors write options as Python does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from functools import partial
from pathlib import Path

import pytest

import fugu
from fugu.library.keywords import READ_OPTIONS
from fugu.recordings.options import ReadOptions
from tests.support.windows import policy, window

CALLS: dict[str, Callable[..., object]] = {
    "plan": partial(fugu.plan, "none.csv"),
    "street": partial(fugu.street, "none.csv", 10),
    "read": partial(fugu.read, "none.csv"),
    "check": partial(fugu.check, "none.json"),
    "attack": partial(fugu.attack, "none.json", "none.csv"),
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize(("option", "similar"), [("perio", "period"), ("xyz", None), ("want", None)])
def test_every_call_refuses_an_option_that_it_has_not(name: str, option: str, similar: str | None) -> None:
    advice = f"did you mean {similar}?" if similar else f"help(fugu.{name}) has the options"
    with pytest.raises(fugu.FuguError) as raised:
        CALLS[name](**{option: "share"})
    assert str(raised.value) == f"{name} has no option {option!r}: {advice}"


@pytest.mark.parametrize(
    ("name", "option", "message"),
    [
        ("plan", {"epsilon": "x"}, "epsilon must be a number, got 'x'"),
        ("plan", {"epsilon": None}, "epsilon must be a number, got 'None'"),
        ("plan", {"devices": 0}, "devices must be a whole number above 0, got 0"),
        ("plan", {"devices": 1.5}, "devices must be a whole number above 0, got 1.5"),
        ("plan", {"days": 0}, "days must be a whole number above 0, got 0"),
        ("plan", {"device": "+"}, "a policy is of one stream of one device: '+' is no name"),
        ("attack", {"known": 0}, "known must be a whole number from 2 on, got 0"),
        ("attack", {"known": "2"}, "known must be a whole number from 2 on, got '2'"),
    ],
)
def test_an_option_of_another_kind_is_refused_in_a_line(name: str, option: dict[str, object], message: str) -> None:
    with pytest.raises(fugu.FuguError) as raised:
        CALLS[name](**option)
    assert str(raised.value) == message


@pytest.mark.parametrize("name", CALLS)
def test_no_call_takes_the_zone_that_a_plan_sets_itself(name: str) -> None:
    with pytest.raises(fugu.FuguError, match=f"^{name} has no option 'day_parts'"):
        CALLS[name](day_parts="UTC")
    assert {option.name for option in fields(ReadOptions)} - READ_OPTIONS == {"day_parts"}


@pytest.mark.parametrize(
    "call", [fugu.read, partial(fugu.check, policy(window())), partial(fugu.attack, policy(window()))]
)
def test_errors_write_options_as_python_does(call: Callable[..., object], tmp_path: Path) -> None:
    file = tmp_path / "broken.csv"
    file.write_text("time,state\n" + "".join(f"{60 * minute},{minute % 2}\n" for minute in range(300)) + "late,0\n")
    with pytest.raises(fugu.FuguError, match="another column by time=") as raised:
        call(file)
    assert "--" not in str(raised.value)


@pytest.mark.parametrize(
    ("since", "until", "message"),
    [
        (3, 2, "since must be before until"),
        ("x", None, "since must be Unix seconds or like 2030-01-31T12:00, got 'x'"),
        (None, "x", "until must be Unix seconds or like 2030-01-31T12:00, got 'x'"),
        ("2025-01-02", "2025-01-01", "since must be before until"),
    ],
)
def test_a_span_that_is_none_is_refused_by_the_names_of_arguments(
    since: str | int | None, until: str | int | None, message: str, tmp_path: Path
) -> None:
    with pytest.raises(fugu.FuguError) as raised:
        fugu.history(tmp_path, since=since, until=until)
    assert str(raised.value) == message
