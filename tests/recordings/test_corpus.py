"""One person in every form: the same ticks come out, and each plan keeps its promise for that person."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fugu
from fugu.contract.policy import Policy
from fugu.planning.true_class import recorded_class
from fugu.recordings.readings import Readings, read_readings
from fugu.recordings.words import read_options
from tests.support.recorded_person import LOW_HIGH, START, TABLES, UNEVEN, Written, minutes
from tests.support.recording_forms import FORMS

TO_READ: dict[str, dict[str, Any]] = {
    "Gadgetbridge": {"column": "heart_rate"},
    "mosquitto.log": {"column": "device.power"},
    "mosquitto-v.log": {"column": "payload", "period": 60.0},
    "heart_rate-2026-03-01.json": {"column": "bpm"},
    "influx.line": {"column": "power"},
}


def read(written: Written) -> Readings:
    return read_readings(written.path, read_options(**written.options))


def same_minutes(readings: Readings, states: list[int]) -> None:
    """The ticks are those minutes; a program that writes seconds may move them by less than one."""
    assert not isinstance(readings.values, list)
    assert [*(readings.values > 75.0).astype(int)] == states
    assert readings.period_seconds == pytest.approx(60.0, abs=0.01)
    assert not np.diff(readings.segments).any()
    if readings.moments is not None:
        assert readings.moments[0] == pytest.approx(START, abs=1.0)


@pytest.mark.parametrize("name", FORMS)
def test_every_program_s_form_has_the_same_ticks(tmp_path: Path, name: str) -> None:
    states = minutes(1)
    times = [START + 60 * place for place in range(len(states))]
    FORMS[name](tmp_path / name, times, [LOW_HIGH[state] for state in states])
    same_minutes(read(Written(tmp_path / name, TO_READ.get(name, {}))), states)


@pytest.mark.parametrize("name", TABLES)
def test_every_table_has_the_same_ticks(tmp_path: Path, name: str) -> None:
    states = minutes(1)
    times = [START + 60 * place for place in range(len(states))]
    same_minutes(read(TABLES[name].write(tmp_path / "t.csv", times, [LOW_HIGH[state] for state in states])), states)


@pytest.mark.parametrize("name", UNEVEN)
def test_what_comes_unevenly_is_put_on_the_same_clock(tmp_path: Path, name: str) -> None:
    states = minutes(9)
    readings = read(UNEVEN[name](tmp_path / "u.csv", states))
    assert readings.moments is not None
    ticks = np.round((readings.moments - START) / 60.0).astype(int)
    values = [None if value is None or value != value else value in ("ON", 90.0) for value in [*readings.values]]
    present = [(tick, bool(value)) for tick, value in zip(ticks.tolist(), values, strict=True) if value is not None]
    assert len(present) > 0.6 * len(states)
    assert all(bool(states[tick]) == value for tick, value in present)


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "epsilon"), [("absent", 4.0), ("changes", 1.0), pytest.param("off", 1.0, marks=pytest.mark.soak)]
)
def test_a_plan_from_uneven_rows_keeps_its_promise_for_that_person(tmp_path: Path, name: str, epsilon: float) -> None:
    """By the person's own minutes, of which the plan had not all."""
    states = minutes(20)
    written = UNEVEN[name](tmp_path / "u.csv", states)
    plan = fugu.plan(written.path, "share", epsilon, protect="tick", **written.options)
    assert isinstance(plan.policy, Policy), plan.verdict[0]
    words = ("OFF", "ON") if name != "absent" else LOW_HIGH
    rows = [f"{START + 60 * place},{words[state]}" for place, state in enumerate(states)]
    (tmp_path / "whole.csv").write_text("\n".join(["time,value", *rows, ""]))
    recorded = recorded_class(plan.policy, tmp_path / "whole.csv")
    assert recorded.epsilon <= recorded.claimed * 1.001
