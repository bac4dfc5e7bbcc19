"""Streams that move together, planned under one epsilon: what they really lose, by enumerating every output."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from fugu.chains.model import stationary_distribution
from fugu.contract.chains import JointChains
from fugu.contract.errors import FuguError
from fugu.contract.losses import Adversary
from fugu.contract.noise_table import NoiseTable
from fugu.planning.errors import PlanningError
from fugu.planning.joint_recording import joint_class, marginal
from fugu.planning.policy_builder import PolicyHeader, thresholds
from fugu.planning.streams_plan import StreamsRequest, plan_streams, stream_policies
from fugu.planning.window_plan import WantedWindow
from fugu.privacy.chain_fit import fit
from fugu.privacy.chain_model import ChainModel, StreamStates

Floats = NDArray[np.float64]
TICKS = 4000


def described(name: str, states: int = 2) -> StreamStates:
    discretiser = thresholds(tuple(x + 0.5 for x in range(states - 1)), tuple(map(str, range(states))))
    return StreamStates(name=name, source="made.csv", column=name, discretiser=discretiser)


@pytest.fixture(scope="module")
def model() -> ChainModel:
    """Two streams of two states of one simulated chain; the second often is as the first."""
    rng = np.random.default_rng(3)
    rows = [[0, 0]]
    for _ in range(TICKS):
        a, b = rows[-1]
        a = a if rng.random() < 0.7 else 1 - a
        b = a if rng.random() < 0.6 else (b if rng.random() < 0.6 else 1 - b)
        rows.append([a, b])
    states = np.array(rows)
    return fit(states, np.zeros(len(rows), dtype=np.int64), [described("light"), described("motion")])


@pytest.fixture(scope="module")
def pairs() -> ChainModel:
    rng = np.random.default_rng(5)
    states = [0, 0]
    for _ in range(TICKS):
        states.append(int(rng.random() < {(0, 0): 0.2, (0, 1): 0.4, (1, 0): 0.5, (1, 1): 0.7}[states[-2], states[-1]]))
    return fit(np.array(states)[:, None], np.zeros(len(states), dtype=np.int64), [described("motion")], order=2)


def request(
    model: ChainModel, adversary: Adversary = "universal", *, is_known: bool = False, epsilon: float = 1.0
) -> StreamsRequest:
    names = tuple(stream.name for stream in model.streams)
    return StreamsRequest(model, epsilon, adversary, is_known, names, 60.0, (1.0,) * len(names))


def enumerated(chains: JointChains, tables: Sequence[NoiseTable], ticks: int) -> float:
    """The largest log-ratio between states of a stream, or joint states, at any tick of a short run."""
    transition = np.array(chains.typical_matrices[0])
    emissions = [np.array(table.weights()) / 2.0**32 for table in tables]
    shown = np.array(chains.shows)
    symbols = list(itertools.product(*(range(emission.shape[1]) for emission in emissions)))
    likelihoods = [
        np.prod([emission[shown[:, i], z[i]] for i, emission in enumerate(emissions)], axis=0) for z in symbols
    ]
    distribution = stationary_distribution(transition)
    groups: list[NDArray[np.bool_]] = [np.arange(len(shown)) == x for x in range(len(shown))]
    secrets = list(itertools.combinations(groups, 2)) if len(shown[0]) > 1 else []
    for column in shown.T:
        secrets += itertools.combinations([column == x for x in np.unique(column)], 2)
    outputs = np.array(list(itertools.product(likelihoods, repeat=ticks)))
    forward = [distribution * outputs[:, 0]]
    for t in range(1, ticks):
        forward.append((forward[-1] @ transition) * outputs[:, t])
    backward, worst = np.ones_like(forward[0]), 0.0
    for t in range(ticks - 1, -1, -1):
        joint = forward[t] * backward
        for group, other in secrets:
            a, b = (joint[:, group].sum(axis=1) / distribution[group].sum() for group in (group, other))
            worst = max(worst, float(np.abs(np.log(a / b)).max()))
        backward = (outputs[:, t] * backward) @ transition.T
    return worst


@pytest.mark.long
@pytest.mark.parametrize(("adversary", "is_known"), [("ignorant", True), ("informed", True), ("universal", False)])
def test_what_both_streams_tell_together_is_within_epsilon(
    model: ChainModel, adversary: Adversary, is_known: bool
) -> None:
    plan = plan_streams(request(model, adversary, is_known=is_known), ticks=2000)
    assert 0.99 < plan.loss.epsilon <= 1.0
    tables = [stream.table for stream in plan.streams if stream.table is not None]
    exact = enumerated(plan.chains, tables, 5)
    assert exact <= plan.loss.epsilon
    assert exact > 0.3  # of five ticks; more of them come nearer


@pytest.mark.long
def test_planned_one_by_one_they_lose_more(model: ChainModel) -> None:
    """Tables that keep epsilon 1 each for their own chains, enumerated together."""
    plan = plan_streams(request(model, "ignorant", is_known=True), ticks=2000)
    rates = [stream.alone for stream in plan.streams]
    assert plan.apart > 1.3
    tables = []
    for rate in rates:
        assert rate > plan.streams[0].rate
        weight = math.ceil(2.0**32 / (math.exp(rate) + 1.0))
        tables.append(NoiseTable.binary(weight, weight))
    assert 1.2 < enumerated(plan.chains, tables, 5) <= plan.apart


@pytest.mark.long
def test_pairs_keep_epsilon(pairs: ChainModel) -> None:
    """A chain of order 2: the secret is the state, not the pair."""
    plan = plan_streams(request(pairs), ticks=2000)
    assert plan.chains.steps == 2
    table = plan.streams[0].table
    assert table is not None
    assert enumerated(plan.chains, [table], 9) <= plan.loss.epsilon <= 1.0


def test_shares_divide_what_a_tick_may_tell(model: ChainModel) -> None:
    plan = plan_streams(request(model)._replace(shares=(3.0, 1.0)), ticks=2000)
    light, motion = plan.streams
    assert light.rate == pytest.approx(3.0 * motion.rate)
    even = plan_streams(request(model), ticks=2000).streams
    assert even[0].rate == even[1].rate
    assert motion.rate < even[0].rate < light.rate
    assert light.utility.bits_per_reading > even[0].utility.bits_per_reading


def headers(model: ChainModel) -> list[PolicyHeader]:
    return [
        PolicyHeader("home", "room", stream.name, stream.discretiser, 60.0, epoch=1_700_000_000.0)
        for stream in model.streams
    ]


@pytest.mark.parametrize("symbols", [None, 0.5, 1.0])
def test_policies_are_what_devices_accept(model: ChainModel, symbols: float | None) -> None:
    windows = () if symbols == 1.0 else (WantedWindow("hour", 60, "histogram"), WantedWindow("day", 1440, "histogram"))
    plan = plan_streams(request(model)._replace(windows=windows, symbols=symbols), ticks=2000)
    for policy, stream in zip(stream_policies(plan, headers(model)), plan.streams, strict=True):
        assert (policy.table is None) == (symbols is None)
        assert len(policy.windows) == len(windows)
        assert float(policy.outputs.rate) <= stream.rate
        assert float(policy.outputs.rate) > 0.99 * stream.rate
        assert policy.verify(1.0).epsilon <= 1.0
        wide = policy.model_copy(update={"chains": policy.chains.model_copy(update={"odds_ratio": 1e6})})
        with pytest.raises(FuguError, match=r"above the .* of its guarantee"):
            wide.verify(1.0)


def test_a_stream_that_tells_more_than_its_part_is_refused(model: ChainModel) -> None:
    plan = plan_streams(request(model), ticks=2000)
    policy = stream_policies(plan, headers(model))[0]
    loud = policy.model_copy(update={"table": NoiseTable.binary(2**31 - 2**28, 2**31 - 2**28)})
    with pytest.raises(FuguError, match="class of chains allows stream light"):
        loud.verify(1.0)


def test_marginals(model: ChainModel) -> None:
    step_of = marginal(model, 0)
    assert step_of.sum(axis=1) == pytest.approx([1.0, 1.0])
    assert step_of[0, 0] == pytest.approx(0.7, abs=0.03)


def test_what_cannot_be_planned(model: ChainModel) -> None:
    for changed, match in (
        ({"shares": (1.0,)}, "shares are 2 numbers above 0, got 1.0"),
        ({"shares": (1.0, -1.0)}, "shares are 2 numbers above 0, got 1.0, -1.0"),
        ({"epsilon": 0.0}, "epsilon must be a finite number above 0"),
        ({"epsilon": 1e-13}, "epsilon 1e-13 is too small"),
    ):
        with pytest.raises(PlanningError, match=match):
            plan_streams(request(model)._replace(**changed), ticks=2000)
    short = model.model_copy(update={"chains": None, "refused": "too short to tell"})
    with pytest.raises(PlanningError, match="too short to tell; --known takes the fitted chain as it is"):
        joint_class(short, False, ("light", "motion"), 60.0)
    with pytest.raises(PlanningError, match="no policy can declare such a joint chain: streams must have different"):
        joint_class(model, True, ("light", "light"), 60.0)


@pytest.mark.long
def test_three_streams_of_many_joint_states() -> None:
    """18 of them; the chain as it is has steps of smaller odds ratios than the class that covers the recording."""
    rng = np.random.default_rng(7)
    a, b = rng.integers(2, size=12_000), rng.integers(3, size=12_000)
    states = np.stack([a, b, np.where(rng.random(12_000) < 0.3, b, rng.integers(3, size=12_000))], axis=1)
    streams = [described("a"), described("b", 3), described("c", 3)]
    model = fit(states, np.zeros(12_000, dtype=np.int64), streams)
    wanted = request(model)._replace(windows=(WantedWindow("day", 1440, "histogram"),), symbols=None)
    plan = plan_streams(wanted)
    assert (plan.chains.states, plan.loss.bound) == (18, "odds-ratio bound")
    for policy in stream_policies(plan, headers(model)):
        assert policy.verify(1.0).epsilon <= 1.0
    assert plan_streams(wanted._replace(known=True)).chains.odds_ratio <= plan.chains.odds_ratio
