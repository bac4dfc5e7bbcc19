"""Checks and plans say what of a tick is protected; what makes the states of a policy is what its chain is of."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fugu.contract.chains import BinaryChains
from fugu.contract.discretisers import Baseline, Categories, Cells, Discretiser, Thresholds
from fugu.contract.policy import Policy
from fugu.contract.stretches import Stretch
from fugu.library.guarantee import stretch_table
from fugu.library.report import plain_text
from fugu.planning.errors import PlanningError
from fugu.planning.planner import Request, make_plan
from fugu.planning.policy_builder import PolicyHeader, build_policy
from tests.support.command import Fugu
from tests.support.measured import measure_policy
from tests.support.scenes import policy

BANDS = {"edges": (-5.0,), "states": ("low", "high")}
MEAN = "its own running mean of 300 ticks"
START = ", not the reading; the first 300 ticks after every start have no state"
CHAIN = ("--q", 0.1, "--r", 0.4, "--epsilon", 1)
HEADER = ("--for", "home/wrist-1/heart", "--period", 1)


@pytest.mark.parametrize(
    ("discretiser", "sentence"),
    [
        (Thresholds(edges=(70.5,), states=("calm", "awake")), "whether a tick is 'calm' or 'awake' (edge 70.5)"),
        (Categories(categories={"off": 0, "on": 1}, states=("off", "on")), "whether a tick is 'off' or 'on'"),
        (
            Cells(origin=(0.0, 0.0), step=(1.0, 1.0), cells=((0, 0), (1, 0)), states=("west", "east")),
            "whether a tick is 'west' or 'east'",
        ),
        (Baseline(baseline_ticks=300, lowest=30.0, highest=220.0), f"whether a tick is above {MEAN}{START}"),
        (
            Baseline(baseline_ticks=300, lowest=30.0, highest=220.0, **BANDS),
            f"whether a tick is 'low' or 'high' (difference from {MEAN}: edge -5){START}",
        ),
        (
            Baseline(baseline_ticks=300, lowest=0.0, highest=9.0, compare="multiple", edges=(1.5,)),
            f"whether a tick is 'below' or 'above' (multiple of {MEAN}: edge 1.5){START}",
        ),
    ],
)
def test_what_is_protected(fugu: Fugu, tmp_path: Path, discretiser: Discretiser, sentence: str) -> None:
    file = tmp_path / "policy.json"
    file.write_text(policy().model_copy(update={"discretiser": discretiser}).to_json())
    assert f"  Protected: {sentence}\n" in fugu("check", "policy", file).out
    assert fugu("check", "policy", file, "--json").json()["protected"] == f"Protected: {sentence}"


def test_what_is_protected_by_points(fugu: Fugu, tmp_path: Path) -> None:
    file = tmp_path / "policy.json"
    states = tuple(f"s{state}" for state in range(9))
    cells = Cells(origin=(0.0, 0.0), step=(1.0, 1.0), cells=tuple((x, 0) for x in range(9)), states=states)
    file.write_text(measure_policy(3, discretiser=cells).to_json())
    assert "  Protected: which of 9 states a tick is in\n" in fugu("check", "policy", file).out


def test_stretches_of_a_log_of_changes_are_said_to_be_of_states() -> None:
    for changes in (True, False):
        text = plain_text([stretch_table([Stretch("1 hour", 60, 2.0, 1.0)], changes=changes)])
        assert ("states, not readings" in text) == changes


@pytest.mark.long
@pytest.mark.parametrize("words", [("stream",), ("window", "--window", 60)])
def test_plans_say_it_too(fugu: Fugu, words: tuple[object, ...]) -> None:
    for more, sentence in (
        ((), "Protected: the state of a tick"),
        (("--threshold", 61.5), "Protected: whether a tick is 'low' or 'high' (edge 61.5)"),
    ):
        assert sentence in fugu("plan", *words, *CHAIN, *more).out.splitlines()
        assert fugu("plan", *words, *CHAIN, *more, "--json").json()["protected"] == sentence


@pytest.mark.long
@pytest.mark.parametrize("words", [("stream",), ("window", "--window", 60)])
def test_plans_take_the_baseline_of_their_model(fugu: Fugu, tmp_path: Path, words: tuple[object, ...]) -> None:
    """A policy's states are made as those of the chain that it is planned for, and in no other way."""
    chain, file = tmp_path / "chain.json", tmp_path / "policy.json"
    readings = (9 * (tick * tick % 7) + tick % 3 for tick in range(2000))
    (tmp_path / "night.csv").write_text("t,value\n" + "".join(f"{tick},{x}\n" for tick, x in enumerate(readings)))
    assert fugu("plan", "model", tmp_path / "night.csv", "--baseline", 20, "-o", chain).code == 0
    planned = ("plan", *words, "--model", chain, "--epsilon", 1, "--adversary", "universal", *HEADER, "-o", file)
    mean = "its own running mean of 20 ticks"
    assert f"Protected: whether a tick is above {mean}" in fugu(*planned).out
    discretiser = Policy.from_json(file.read_bytes()).discretiser
    assert discretiser.model_dump(mode="json") == json.loads(chain.read_text())["streams"][0]["discretiser"]
    assert isinstance(discretiser, Baseline)
    assert fugu(*planned, "--states", "calm,awake").code == 0
    assert Policy.from_json(file.read_bytes()).discretiser.states == ("calm", "awake")
    document = fugu(*planned, "--json").json()
    assert [period["every"] for period in document.get("periods", [{"every": 1}])] == [1], (
        "fewer readings have another mean"
    )
    assert "Sampling less often" not in " ".join(document.get("advice", []))
    refused = fugu(*planned, "--threshold", 3)
    assert "--threshold makes other states than the model's, which are made by a running mean" in refused.refusal(2)


@pytest.mark.long
def test_a_baseline_does_not_see_other_readings_than_its_chain() -> None:
    """A mean of every tenth reading is another, and chains of the states that it makes were never fitted."""
    plan = make_plan(
        Request(
            BinaryChains(q=(0.1, 0.1), r=(0.4, 0.4)),
            ((0.9, 0.1), (0.4, 0.6)),
            1.0,
            "informed",
            "information",
            10,
            ticks=1000,
        )
    )
    mean = Baseline(baseline_ticks=20, lowest=0.0, highest=9.0)
    with pytest.raises(PlanningError, match="makes other states than those of the chain"):
        build_policy(plan, PolicyHeader("home", "wrist-1", "heart", mean, 1.0))
