"""A recording beside the class of a policy: whose promise it is."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from fugu.contract.chains import BinaryChains, BoundedChains, ChainClass, JointChains, JointStream
from fugu.contract.discretisers import Thresholds
from fugu.contract.guarantee import Guarantee, loss
from fugu.contract.noise_table import NoiseTable
from fugu.contract.policy import Clock, Policy
from fugu.planning.errors import PlanningError
from fugu.planning.recorded_policy import recorded_class
from fugu.privacy.chain_class import ChainClassError
from tests.support.command import runner

TABLE = NoiseTable.binary(1_500_000_000, 1_500_000_000)
STATES = Thresholds(edges=(0.5,), states=("out", "in"))


def policy_of(chains: ChainClass, period_us: int = 60_000_000) -> Policy:
    lost = loss(chains, TABLE, "universal")
    return Policy(
        **{"fleet": "home", "device": "ring", "stream": "hall", "version": 1, "frame_ticks": 10},
        clock=Clock(epoch_us=0, period_us=period_us),
        discretiser=STATES,
        table=TABLE,
        chains=chains,
        guarantee=Guarantee(epsilon=lost.epsilon * (1.0 + 1e-9), adversary="universal"),
    )


def recorded(path: Path, q: float, r: float, n: int = 20_000, seconds: float = 60.0) -> Path:
    """A chain's states, one a tick, with times."""
    generator, state, rows = np.random.default_rng(1), 0, ["t,value"]
    for tick, draw in enumerate(generator.random(n)):
        state = int(draw < q) if state == 0 else int(draw >= r)
        rows.append(f"{tick * seconds},{state}")
    path.write_text("\n".join(rows) + "\n")
    return path


@pytest.mark.long
def test_a_recording_of_a_member_is_in_the_class_and_that_of_a_stickier_person_is_not(tmp_path: Path) -> None:
    policy = policy_of(BoundedChains(states=2, odds_ratio=20.0))
    inside = recorded_class(policy, recorded(tmp_path / "a.csv", 0.3, 0.3))
    assert inside.inside
    assert 5.0 < inside.odds_ratio < 10.0
    assert inside.epsilon < policy.guarantee.epsilon
    outside = recorded_class(policy, recorded(tmp_path / "b.csv", 0.05, 0.05))
    assert not outside.inside
    assert outside.odds_ratio > 361.0
    needed = BoundedChains(states=2, odds_ratio=outside.odds_ratio)
    assert outside.epsilon == loss(needed, TABLE, "universal").epsilon > policy.guarantee.epsilon


@pytest.mark.long
def test_intervals_have_a_recording_only_if_both_of_its_are_inside(tmp_path: Path) -> None:
    path = recorded(tmp_path / "a.csv", 0.3, 0.2)
    assert recorded_class(policy_of(BinaryChains(q=(0.25, 0.35), r=(0.15, 0.25))), path).inside
    assert not recorded_class(policy_of(BinaryChains(q=(0.25, 0.35), r=(0.22, 0.25))), path).inside


@pytest.mark.long
def test_a_tick_may_be_several_readings_but_no_part_of_one(tmp_path: Path) -> None:
    path, chains = recorded(tmp_path / "a.csv", 0.05, 0.05), BoundedChains(states=2, odds_ratio=20.0)
    every = recorded_class(policy_of(chains, 600_000_000), path)
    assert every.odds_ratio < recorded_class(policy_of(chains), path).odds_ratio
    with pytest.raises(PlanningError, match="no whole number of readings is a tick"):
        recorded_class(policy_of(chains, 90_000_000), path)


def test_what_cannot_be_told_is_refused(tmp_path: Path) -> None:
    shown = JointStream(name="ring/hall", states=2, rate=9.0)
    joint = JointChains(streams=(shown,), period_us=60_000_000, shows=((0,), (1,)), odds_ratio=9.0)
    with pytest.raises(PlanningError, match="here is neither"):
        recorded_class(policy_of(joint), recorded(tmp_path / "a.csv", 0.3, 0.3))
    with pytest.raises(ChainClassError, match="too short"):
        recorded_class(policy_of(BoundedChains(states=2, odds_ratio=20.0)), recorded(tmp_path / "b.csv", 0.3, 0.3, 50))


@pytest.mark.long
def test_the_command_says_whose_promise_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fugu = runner(capsys)
    policy = tmp_path / "policy.json"
    policy.write_text(policy_of(BoundedChains(states=2, odds_ratio=20.0)).model_dump_json())
    inside = fugu("check", "policy", policy, "--recording", recorded(tmp_path / "a.csv", 0.3, 0.3))
    assert inside.code == 0
    assert inside.out.startswith("in the class: this recording needs odds ratio ")
    other = recorded(tmp_path / "b.csv", 0.05, 0.05)
    outside = fugu("check", "policy", policy, "--recording", other, "--json")
    assert outside.code == 3
    recording = outside.json()["recording"]
    assert (recording["inside"], recording["adversary"]) == (False, "universal")
    assert math.isfinite(recording["epsilon"])
    assert "b.csv" not in outside.out
    checked = fugu("check", "policy", policy, "--recording", other)
    assert checked.out.startswith("not in the class: this recording needs odds ratio ")
    policy.write_text(policy_of(BinaryChains(q=(0.05, 0.1), r=(0.05, 0.1))).model_dump_json())
    milder = fugu("check", "policy", policy, "--recording", recorded(tmp_path / "c.csv", 0.4, 0.4))
    assert milder.code == 3
    assert milder.out.startswith("not in the class: its probabilities are others. Then epsilon is ")
    assert ", within " in milder.out.splitlines()[0]
