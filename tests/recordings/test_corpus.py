"""One person in every form: the same ticks come out, and each plan keeps its promise for that person."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import fugu
from fugu.contract.policy import Policy
from fugu.planning.true_class import recorded_class
from fugu.recordings.options import read_options
from fugu.recordings.readings import Readings, read_readings
from tests.support.recorded_person import LOW_HIGH, START, TABLES, UNEVEN, Written, minutes, write
from tests.support.recording_forms import FORMS


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
    same_minutes(read(write(tmp_path, name, states)), states)


@pytest.mark.parametrize("name", TABLES)
def test_every_table_has_the_same_ticks(tmp_path: Path, name: str) -> None:
    states = minutes(1)
    same_minutes(read(write(tmp_path, name, states)), states)


@pytest.mark.parametrize("name", UNEVEN)
def test_what_comes_unevenly_is_put_on_the_same_clock(tmp_path: Path, name: str) -> None:
    states = minutes(9)
    readings = read(write(tmp_path, name, states))
    assert readings.moments is not None
    ticks = np.round((readings.moments - START) / 60.0).astype(int)
    values = [
        None if value is None or value != value else value == "ON" or (value != "OFF" and value > 75.0)
        for value in [*readings.values]
    ]
    present = [(tick, bool(value)) for tick, value in zip(ticks.tolist(), values, strict=True) if value is not None]
    assert len(present) > 0.6 * len(states)
    assert all(bool(states[tick]) == value for tick, value in present)


def holds(folder: Path, name: str) -> bool:
    """Return whether a plan of this form is useful; its epsilon is as promised for the person, at the policy's clock.

    By the recording, and by the person's own minutes, of which an uneven recording has not all.
    """
    states = minutes(20)
    written = write(folder, name, states)
    plan = fugu.plan(written.path, "share", 4.0, protect="tick", **written.options, **written.plan)
    if not plan.useful:
        return False
    assert isinstance(plan.policy, Policy)
    words = ("OFF", "ON") if name in ("changes", "off") else LOW_HIGH
    rows = [f"{START + 60 * place},{words[state]}" for place, state in enumerate(states)]
    (folder / "whole.csv").write_text("\n".join(["time,value", *rows, ""]))
    for path, options in ((folder / "whole.csv", {}), (written.path, written.options)):
        recorded = recorded_class(plan.policy, path, read_options(**options))
        assert recorded.epsilon <= recorded.claimed * 1.001, (name, path.name)
    return True


@pytest.mark.long
@pytest.mark.parametrize("name", ["absent", "changes"])
def test_a_plan_from_uneven_rows_keeps_its_promise_for_that_person(tmp_path: Path, name: str) -> None:
    assert holds(tmp_path, name)


@pytest.mark.soak
@pytest.mark.parametrize("name", sorted({*FORMS, *TABLES, *UNEVEN} - {"absent", "changes"}))
def test_each_plan_of_the_corpus_keeps_its_promise_for_that_person(tmp_path: Path, name: str) -> None:
    assert holds(tmp_path, name)
