"""From a recording and an epsilon to a policy, without a command line; and to one that replaces another."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from fugu.contract.chains import BinaryChains
from fugu.contract.errors import GuaranteeError
from fugu.planning.chain_source import file_source, interval_source
from fugu.planning.errors import PlanningError
from fugu.planning.joint_recording import StreamRule, read_joint
from fugu.planning.measure_planner import make_measure_plan
from fugu.planning.measure_spec import read_spec
from fugu.planning.planner import Request, StreamPlan, make_plan
from fugu.planning.policy_builder import (
    PolicyHeader,
    build_measure_policy,
    build_policy,
    missing_fields,
    next_version,
    thresholds,
)
from fugu.privacy.accountant import ChainAccountant
from fugu.privacy.chain_class import ChainClassError, MarkovChain
from fugu.privacy.chain_fit import fit
from fugu.privacy.chain_model import StreamStates
from fugu.privacy.window_mechanisms import MECHANISMS, WindowRequest, compare_noise, plan_noise
from fugu.recordings.readings import AS_FOUND
from fugu_cli.demo.evaluation import RECORDINGS
from tests.support.proofs import check_printed
from tests.support.scenes import policy

HEADER = PolicyHeader(
    fleet="home", device="ring", stream="heart", discretiser=thresholds((61.5,)), period_seconds=0.5, epoch=0.0
)
CHAINS = BinaryChains(q=(0.1, 0.12), r=(0.3, 0.4))


@pytest.fixture(scope="module")
def plan() -> StreamPlan:
    source = interval_source(CHAINS.q, CHAINS.r)
    return make_plan(Request(source.chains, source.transition, 1.0, "informed", "information", ticks=2_000))


def test_what_it_costs_that_a_device_is_told_odds_ratios_is_printed(tmp_path: Path) -> None:
    """The loss of the same noise by the chain itself; and by how much less noise that would allow."""
    rows = ((0.9, 0.05, 0.05), (0.05, 0.9, 0.05), (0.05, 0.05, 0.9))
    file = tmp_path / "chain.json"
    file.write_text(json.dumps({"transition": rows}))
    source = file_source(file)
    bounded, accountant = ChainAccountant(source.chains), ChainAccountant((MarkovChain.stationary(rows),))
    rate = bounded.allowance(1.0)
    check_printed("need {} times the noise, at epsilon 1,", accountant.allowance(1.0) / rate)
    assert f"would lose {accountant.loss(rate).epsilon:.3g} by the chain itself" in source.notes[1]
    assert accountant.loss(rate).epsilon < 0.9


@pytest.mark.long
def test_a_recording_becomes_a_policy_that_its_device_accepts(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    recording = read_joint([StreamRule(RECORDINGS / "hr_sleep_N10.csv.gz", "state")], AS_FOUND)
    stream = StreamStates(name="heart", source="N10", column="state", discretiser=recording.streams[0].discretiser)
    model = fit(recording.states, recording.segments, [stream], period_seconds=recording.period_seconds)
    file = tmp_path / "chain.json"
    file.write_text(model.to_json())
    source = file_source(file)
    plan = make_plan(Request(source.chains, source.transition, 2.0, "ignorant", "information", ticks=2_000))
    policy = build_policy(plan, HEADER)
    assert policy.chains == source.chains
    assert policy.verify(2.0).epsilon <= 2.0
    with pytest.raises(GuaranteeError):
        policy.verify(1.9)
    assert capfd.readouterr() == ("", "")


def test_a_policy_says_what_its_header_says(plan: StreamPlan) -> None:
    named = thresholds((61.5,), ("calm", "awake"), hysteresis=0.5)
    policy = build_policy(plan, replace(HEADER, discretiser=named, version=7, latency_seconds=5.2))
    assert (policy.discretiser, policy.frame_ticks) == (named, 10)
    assert (policy.fleet, policy.device, policy.stream, policy.version) == ("home", "ring", "heart", 7)
    assert (policy.discretiser.states, policy.clock.period_us) == (("calm", "awake"), 500_000)
    assert build_policy(plan, replace(HEADER, epoch=1.5)).clock.epoch_us == 1_500_000


@pytest.mark.long
def test_every_mechanism_is_announced_before_its_noise_is_sought() -> None:
    begun: list[str] = []
    request = WindowRequest(CHAINS, 1.0, None, "count", "ignorant")
    noises, best, refused = compare_noise(request, None, begun.append)
    assert begun == list(MECHANISMS)
    assert {each.noise.mechanism for each in noises} | set(refused) == set(MECHANISMS)
    assert best == plan_noise(request, None, None)


@pytest.mark.long
def test_a_measurement_says_which_fields_its_policy_lacks(tmp_path: Path) -> None:
    file = tmp_path / "spec.json"
    file.write_text(json.dumps({"grid": "2x2", "epsilon": 1, "graph": {"complete": True}, "fleet": "home"}))
    measured = make_measure_plan(read_spec(file), "ignorant", quick=True)
    assert missing_fields(measured.spec) == ["device", "stream", "period"]
    with pytest.raises(PlanningError, match="needs device, stream, period"):
        build_measure_policy(measured, epoch=0.0)
    header = {"fleet": "home", "device": "ring", "stream": "place", "period": 60.0}
    complete = replace(measured, spec=replace(measured.spec, header=header))
    assert missing_fields(complete.spec) == []
    assert build_measure_policy(complete, epoch=0.0).epsilon == 1.0


@pytest.mark.parametrize("field", ["transition", "initial"])
def test_a_number_beyond_all_floats_is_no_probability(tmp_path: Path, field: str) -> None:
    rows = {"transition": [[0.5, 0.5], [0.5, 0.5]], "initial": [1.0, 0.0], field: [[10**400, 0], [0, 1]]}
    (tmp_path / "chain.json").write_text(json.dumps(rows))
    with pytest.raises(ChainClassError, match=f"{field} must hold numbers"):
        file_source(tmp_path / "chain.json")


PLANNED = policy(1)


def changed(version: int) -> str:
    """Another policy of the same stream."""
    return PLANNED.model_copy(update={"version": version, "frame_ticks": PLANNED.frame_ticks + 1}).to_json()


@pytest.mark.parametrize(
    ("before", "version"),
    [
        (None, 1),
        ("no policy", 1),
        ("{}", 1),
        (policy(4, device="ring").to_json(), 1),
        (PLANNED.to_json(), 1),
        (policy(7).to_json(), 7),
        (changed(1), 2),
        (changed(41), 42),
    ],
)
def test_a_replaced_policy_gets_the_next_version(before: str | None, version: int) -> None:
    policy = next_version(PLANNED, before)
    assert policy == PLANNED.model_copy(update={"version": version})
