"""`fugu check attack`: policies, and what cannot be attacked."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fugu.attackers.learning import ATTACKERS, COUNT_ATTACKERS
from fugu.contract.windows import Window
from tests.support.command import Fugu
from tests.support.processes import policy


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    """1,500 readings that stay with probability 0.9, and a column of names."""
    states = np.cumsum(np.random.default_rng(1).random(1500) < 0.1) % 2
    path = tmp_path / "made.csv"
    path.write_text("value,room\n" + "".join(f"{state + 0.25},{'kitchen' if state else 'hall'}\n" for state in states))
    return path


@pytest.mark.long
def test_a_policy_is_attacked_in_all_that_it_releases(fugu: Fugu, recording: Path, tmp_path: Path) -> None:
    window = Window(name="high", length=25, stride=25, states=("high",), scale="40")
    file = tmp_path / "policy.json"
    file.write_text(policy(epoch_us=0, period_us=1_000_000, windows=(window,)).to_json())
    done = fugu("check", "attack", recording, "--policy", file, "--column", "value", "--as-it-is", "keys", "--json")
    assert done.code == 0, done.err
    trials = done.json()["trials"]
    assert [trial["released"] for trial in trials] == ["symbols", "window high", "symbols, high"]
    assert {attack["attacker"] for attack in trials[0]["attacks"]} == set(ATTACKERS)
    assert {attack["attacker"] for attack in trials[1]["attacks"]} == set(COUNT_ATTACKERS)
    for released in trials:
        assert all(0 <= attack["low"] <= attack["success"] <= attack["high"] <= 1 for attack in released["attacks"])
    alone = tmp_path / "alone.json"
    alone.write_text(policy(epoch_us=0, period_us=1_000_000).to_json())
    document = fugu(
        *("check", "attack", recording, "--policy", alone, "--column", "value", "--as-it-is", "keys"),
        *("--known", 2, "--json"),
    ).json()
    assert document["trials"][0]["attacks"][0]["guess"] > 0.8 > 0.6 > trials[0]["attacks"][0]["guess"]
    shown = fugu("check", "attack", recording, "--policy", file, "--column", "value", "--as-it-is", "keys")
    assert "forward-backward" in shown.out
    text = " ".join(shown.out.split())
    assert "proven if the readings are in the class" in text
    assert "bounds nothing for one who learns a person's habits" in text
    for trial in trials:
        [named] = [attack["furthest"] for attack in trial["attacks"] if attack["attacker"] == "supervised"]
        assert f"x {named:.3g} (" in text
        draws = sorted(learner["furthest"] for learner in trial["learners"])
        assert len(draws) == 6
        assert draws[0] < draws[-1], "one draw of the noise tells a learner more than another"
        assert f"x {draws[0]:.3g} to {draws[-1]:.3g} (" in text
        assert {attack["furthest"] is None for attack in trial["attacks"] if "Viterbi" in attack["attacker"]} <= {True}


@pytest.mark.parametrize(("options", "reason"), [((), "--policy"), (("--policy", "nowhere.json"), "nowhere.json")])
def test_what_cannot_be_attacked_is_said_in_one_line(
    fugu: Fugu, recording: Path, options: tuple[str, ...], reason: str
) -> None:
    extra = () if "--column" in options else ("--column", "value")
    done = fugu("check", "attack", recording, *extra, *options)
    assert reason in done.refusal(1, 2)
