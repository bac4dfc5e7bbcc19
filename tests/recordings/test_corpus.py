"""One person in every form: the same ticks come out, and each plan keeps its promise for that person."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import fugu
from fugu.contract.policy import Policy
from fugu.planning.recorded_policy import recorded_class
from fugu.recordings.options import read_options
from fugu.recordings.readings import Readings, read_readings
from tests.support.recorded_person import LOW_HIGH, START, TABLES, UNEVEN, Written, minutes, write
from tests.support.recording_forms import FORMS


def read(written: Written) -> Readings:
    return read_readings(written.path, read_options(**written.options))


def same_minutes(readings: Readings, states: list[int]) -> None:
    """The ticks are those minutes; a program that writes seconds may move them by less than one."""
    assert not readings.has_names
    assert [*(readings.values > 75.0).astype(int)] == states
    assert readings.period_seconds == pytest.approx(60.0, abs=0.01)
    assert not np.diff(readings.segments).any()
    if readings.moments is not None:
        assert readings.moments[0] == pytest.approx(START, abs=1.0)


@pytest.mark.parametrize("name", [*FORMS, *TABLES])
def test_every_form_has_the_same_ticks(tmp_path: Path, name: str) -> None:
    states = minutes(1)
    same_minutes(read(write(tmp_path, name, states)), states)


@pytest.mark.parametrize("name", UNEVEN)
def test_what_comes_unevenly_is_put_on_the_same_clock(tmp_path: Path, name: str) -> None:
    states = minutes(9)
    readings = read(write(tmp_path, name, states))
    ticks = np.round((readings.moments - START) / 60.0).astype(int)
    values = [
        None if value is None or value != value else value == "ON" or (value != "OFF" and value > 75.0)
        for value in [*readings.values]
    ]
    present = [(tick, bool(value)) for tick, value in zip(ticks.tolist(), values, strict=True) if value is not None]
    assert len(present) > 0.6 * len(states)
    assert all(bool(states[tick]) == value for tick, value in present)


EVEN = [*FORMS, *TABLES]


def planned(folder: Path, name: str) -> tuple[fugu.Plan, Written]:
    """A plan of a form, and the form; a second file `whole.csv` has all of the person's minutes."""
    states = minutes(20)
    written = write(folder, name, states)
    words = ("OFF", "ON") if name in ("changes", "off") else LOW_HIGH
    rows = [f"{START + 60 * place},{words[state]}" for place, state in enumerate(states)]
    (folder / "whole.csv").write_text("\n".join(["time,value", *rows, ""]))
    return fugu.plan(written.path, "share", 4.0, protect="tick", **written.options, **written.plan), written


def holds(plan: fugu.Plan, path: Path, options: dict[str, object]) -> None:
    """The policy's epsilon is as promised for the person who was recorded, at its own clock."""
    assert isinstance(plan.policy, Policy)
    recorded = recorded_class(plan.policy, path, read_options(**options))
    assert recorded.epsilon <= recorded.claimed * 1.001, path.name


FIRST = ("absent", "changes")
OTHERS = [pytest.param(name, marks=pytest.mark.soak) for name in UNEVEN if name not in FIRST]


@pytest.mark.parametrize("name", [*FIRST, *OTHERS])
@pytest.mark.long
def test_a_plan_from_uneven_rows_keeps_its_promise_for_that_person(tmp_path: Path, name: str) -> None:
    """By the recording, and by the person's own minutes, of which an uneven recording has not all."""
    plan, written = planned(tmp_path, name)
    if plan.useful:
        holds(plan, tmp_path / "whole.csv", {})
        holds(plan, written.path, written.options)
    else:
        assert name not in FIRST


@pytest.mark.soak
def test_a_plan_keeps_its_promise_for_that_person_in_each_form(tmp_path: Path) -> None:
    """Even forms have the same ticks, so one plan is theirs; every form is read at its clock."""
    plan, _ = planned(tmp_path, "seconds")
    assert plan.useful
    for name in EVEN:
        written = write(tmp_path, name, minutes(20))
        holds(plan, written.path, written.options)
