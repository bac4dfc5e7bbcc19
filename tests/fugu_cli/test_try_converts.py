"""`fugu try` replays what no agent can read itself: the recording becomes a plain file that only its owner may read."""

from __future__ import annotations

import stat
from pathlib import Path

import numpy as np
import pytest

from fugu.library.plans import plan
from fugu_cli.demo.planned import replay_of
from tests.support.recorded_person import LOW_HIGH, START, minutes
from tests.support.recording_forms import FORMS


@pytest.mark.long
@pytest.mark.parametrize("form", ["home-assistant_v2.db", "mosquitto.log"])
def test_a_replay_of_another_form_has_the_ticks_of_the_plain_file(tmp_path: Path, form: str) -> None:
    states = minutes(6)
    moved = [0, *(place for place in range(1, len(states)) if states[place] != states[place - 1])]
    rows = moved if form.endswith(".db") else range(len(states))  # changes, or samples
    times, values = [START + 60 * place for place in rows], [LOW_HIGH[states[place]] for place in rows]
    FORMS[form](tmp_path / form, times, values)
    options = {"column": "device.power"} if form == "mosquitto.log" else {"period": 60.0}
    planned = plan(tmp_path / form, "share", 2.0, protect="tick", window=60, **options)
    assert planned.details.readings.rows is None
    replay = replay_of(planned, tmp_path)
    assert replay is not None
    readings, held_back = planned.details.readings, planned.details.held_back
    assert np.array_equal(np.asarray(replay.values), np.asarray(readings.values)[held_back], equal_nan=True)
    file = Path(str(replay.sensor["file"]))
    assert file == tmp_path / "plain.csv"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
