"""A plan from a Series: the policy of the command line, errors, attackers, pictures without the recording, files."""

from __future__ import annotations

import json
import re
import stat
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import fugu
from tests.support.command import runner

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("planned_once")]


@pytest.fixture(scope="module")
def motion() -> pd.Series:
    """A room: six days of minutes, in which a stay lasts about five."""
    rng = np.random.default_rng(7)
    state, states = 0, []
    for draw in rng.random(6 * 1440).tolist():
        state ^= draw < 0.2
        states.append(state)
    return pd.Series(states, pd.date_range("2026-03-01", periods=len(states), freq="min"), name="motion")


@pytest.fixture(scope="module")
def plan(motion: pd.Series) -> fugu.Plan:
    return fugu.plan(motion, "share", epsilon=2, protect="tick", window="8h", stream="hall")


def test_it_recommends_a_checked_policy(plan: fugu.Plan, motion: pd.Series) -> None:
    assert plan.useful
    assert plan.verdict[0].startswith("Useful: the share of 'on' over 8 h, off by ")
    assert isinstance(plan.policy, fugu.Policy)
    assert (plan.policy.stream, plan.policy.guarantee.epsilon) == ("hall", 2.0)
    checked = fugu.check(plan.policy, motion, ceiling=2)
    assert checked.epsilon <= 2.0
    assert checked.recorded.inside
    with pytest.raises(fugu.FuguError, match="ceiling"):
        fugu.check(plan.policy, ceiling=1)


def test_errors_and_attackers_are_those_of_the_details(plan: fugu.Plan) -> None:
    (best,) = (error for error in plan.errors if error.recommended)
    assert best.useful
    assert best.expected == plan.recommended.expected_error
    assert 2.0 * best.expected <= best.guessing
    assert pd.DataFrame(plan.errors).shape == (len(plan.errors), 7)
    assert {"strongest", "knows the habits"} <= plan.attackers.keys()
    habits = plan.attackers["knows the habits"]
    assert habits.furthest <= fugu.epsilon_to_odds(2.0) * (1.0 + 1e-9)


def test_what_is_released_is_attacked(plan: fugu.Plan, motion: pd.Series) -> None:
    assert plan.policy is not None
    (trial,) = fugu.attack(plan.policy, motion)
    assert trial.attacks[0].low <= trial.attacks[0].ceiling


def test_the_recording_is_shown_only_if_asked_for(plan: fugu.Plan) -> None:
    """In HTML the truth is a shape of its own; in a picture, the only line in black."""
    drawn = [re.findall(r'class="shape truth" d="(.*?)"', text) for text in (plan._repr_html_(), plan.html(truth=True))]
    assert drawn[0] == [""]
    assert drawn[1][0].startswith("M")
    assert "array" not in repr(plan)
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    assert {line.get_color() for line in plan.plot().lines}.isdisjoint({"black"})
    assert "black" in {line.get_color() for line in plan.plot(truth=True).lines}


def test_its_files_are_those_of_the_command(
    plan: fugu.Plan, motion: pd.Series, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same policy, but for the time of its tick 0; an agent has no file to replay."""
    file = tmp_path / "motion.csv"
    motion.rename_axis("time").to_csv(file)
    words = ("--want", "share", "--epsilon", 2, "--protect", "tick", "--window", "8h", "--stream", "hall")
    done = runner(capsys)("plan", "auto", file, *words, "-o", tmp_path / "command")
    assert done.code == 0
    assert {path.name for path in plan.save(tmp_path / "library")} == {"policy.json", "agent.toml", "plan.html"}
    ours, theirs = (
        json.loads((tmp_path / name / "policy.json").read_text()) | {"clock": None} for name in ("library", "command")
    )
    assert ours == theirs
    for name in ("library", "command"):
        mode = (tmp_path / name / "plan.html").stat().st_mode
        assert stat.S_IMODE(mode) == 0o600, "it has pictures of the recording"
    assert 'kind = "stdin"' in (tmp_path / "library/agent.toml").read_text()
    assert fugu.load_policy(tmp_path / "library/policy.json") == plan.policy
    with pytest.raises(fugu.FuguError, match="holds a plan already"):
        plan.save(tmp_path / "library")
    assert fugu.load_policy(plan.save(tmp_path / "library", force=True)[1]) == plan.policy


def test_a_plan_that_recommends_nothing_says_why(motion: pd.Series, tmp_path: Path) -> None:
    nothing = fugu.plan(motion[:7200], "share", epsilon=0.01, protect="1h", window="1h")
    assert not nothing.useful
    assert nothing.policy is None
    assert nothing.attackers == {}
    assert nothing.verdict[0].startswith(
        "Not useful: the share of 'on' over 1 h, off by 50 points or more on average; "
    )
    assert any(sentence.startswith("Only this length was compared. ") for sentence in nothing.verdict)
    assert [path.name for path in nothing.save(tmp_path)] == ["plan.html"]
    with pytest.raises(fugu.FuguError, match="no released shares to draw"):
        nothing.plot()


@pytest.mark.parametrize(
    ("option", "advice"),
    [
        ("epsilo", "did you mean epsilon?"),
        ("latancy", "did you mean latency?"),
        ("xyz", "help(fugu.plan) has the options"),
    ],
)
def test_an_option_that_there_is_not_is_refused_in_a_line(option: str, advice: str) -> None:
    with pytest.raises(fugu.FuguError) as raised:
        fugu.plan("none.csv", **{option: 1})
    assert str(raised.value) == f"plan has no option {option!r}: {advice}"
