"""`plan auto` and `model fit` find one class: the same function, on the same ticks, of every recording."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fugu.planning.question import Question, choose_states, sample_states, three_sets
from fugu.privacy.covering_class import covering_class
from fugu.recordings.readings import read_readings
from tests.support.command import runner

ROOT = Path(__file__).parents[2]
RECORDINGS = sorted([*(ROOT / "tests" / "data").glob("*.csv.gz"), *(ROOT / "fugu" / "data").glob("hr_*.csv.gz")])


QUICKEST = ("hr_sleep_N05", "occupancy_office", "pir_room_S6")


@pytest.mark.long
@pytest.mark.parametrize(
    "path",
    [path for path in RECORDINGS if path.name.startswith(QUICKEST)],
    ids=lambda path: path.name.partition(".")[0],
)
def test_two_commands_find_one_class(path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    readings = read_readings(path)
    chosen = choose_states(readings, Question())
    data = sample_states(readings, chosen, three_sets(readings.segments, chosen.baseline_ticks))
    (whole,) = data.whole
    covered = covering_class(*whole, len(chosen.discretiser.states))
    assert runner(capsys)("plan", "model", path, "-o", tmp_path / "chain.json").code == 0
    model = json.loads((tmp_path / "chain.json").read_text())
    assert model["chains"] == covered.chains.model_dump(mode="json")
    assert model["streams"][0]["discretiser"] == chosen.discretiser.model_dump(mode="json")
    assert model["stretches"]["covered"] == covered.share() >= 0.98
