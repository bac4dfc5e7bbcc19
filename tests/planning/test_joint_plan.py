"""Windows and symbols under one epsilon: what they lose together, how that is divided, and the error of an answer."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from fugu.contract.chains import BinaryChains, BoundedChains, ChainClass
from fugu.contract.errors import FuguError, GuaranteeError
from fugu.contract.guarantee import Guarantee
from fugu.contract.losses import Adversary
from fugu.contract.policy import Policy
from fugu.contract.windows import Composing
from fugu.planning.answers import window_error
from fugu.planning.errors import PlanningError
from fugu.planning.policy_builder import PolicyHeader, build_window_policy, thresholds
from fugu.planning.question import frame_ticks
from fugu.planning.window_plan import JointPlan, WantedWindow, joint_plan
from fugu.privacy.accountant import ChainAccountant
from fugu.privacy.accountant.accountant import known_chains
from fugu.privacy.quilts import corner_chains, quilt_rate_loss
from fugu.privacy.randomised_response import calibrate

STICKY = BinaryChains(q=(0.1, 0.12), r=(0.3, 0.4))
TURNING = BinaryChains(q=(0.6, 0.7), r=(0.5, 0.6))
THREE = BoundedChains(states=3, odds_ratio=20.0)
COUNT = WantedWindow("five", 300, (1,))
HOUR = WantedWindow("hour", 3600, "histogram", stride=600)


def distribution(scale: float, most: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """The integers up to a bound, and their probabilities as discrete Laplace noise."""
    numbers = np.arange(-most, most + 1)
    weights = np.exp(-np.abs(numbers) / scale)
    return numbers, weights / weights.sum()


@pytest.mark.parametrize("length", [1, 7, 300, 86_400])
@pytest.mark.parametrize("scale", ["1/50", "1/3", "1", "7/3", "44", "989"])
def test_the_error_of_an_answer_is_that_of_its_distribution(scale: str, length: int) -> None:
    error = window_error(Fraction(scale), length)
    numbers, weights = distribution(float(Fraction(scale)), 100_000)
    off = np.minimum(np.abs(numbers), length)
    assert error.count_mean == pytest.approx(float(off @ weights), rel=1e-9, abs=1e-18)
    assert weights[off <= error.count_95].sum() >= 0.95
    assert error.count_95 == 0 or weights[off < error.count_95].sum() < 0.95
    assert (error.share_mean, error.share_95) == (error.count_mean / length, error.count_95 / length)
    true = length // 3
    answers = np.clip(true + numbers, 0, length)
    assert float(np.abs(answers - true) @ weights) <= error.count_mean * (1 + 1e-9) + 1e-15


def policy(plan: JointPlan, **header: Any) -> Policy:
    states = plan.chains.states
    discretiser = thresholds(tuple(float(x) for x in range(states - 1)))
    fields = {"fleet": "home", "device": "watch", "stream": "hr", "discretiser": discretiser, "period_seconds": 1.0}
    return build_window_policy(plan, PolicyHeader(**fields | header))


@pytest.mark.long
@pytest.mark.parametrize(
    ("chains", "symbols", "adversary"),
    [
        (chains, symbols, adversary)
        for chains in (STICKY, TURNING, THREE)
        for symbols in (None, 0.3)
        for adversary in ("ignorant", "informed", "universal")
    ],
)
def test_together_they_lose_epsilon_and_hardly_less(
    chains: ChainClass, symbols: float | None, adversary: Adversary
) -> None:
    plan = joint_plan(chains, 1.0, adversary, [COUNT, HOUR], symbols)
    draft = policy(plan)
    assert 0.9989 < draft.verify(1.0).epsilon <= 1.0 - 2**-10
    assert (draft.table is None) == (symbols is None)
    if symbols is None:
        less = [
            window.model_copy(
                update={"scale": str((Fraction(window.scale) * Fraction(998, 1000)).limit_denominator(10**6))}
            )
            for window in draft.windows
        ]
        with pytest.raises(GuaranteeError):
            draft.model_copy(update={"windows": tuple(less)}).verify(1.0)


def test_windows_alone_have_the_noise_that_the_accountant_allows() -> None:
    for adversary in ("ignorant", "informed", "universal"):
        (window,) = joint_plan(STICKY, 1.0, adversary, [COUNT]).windows
        allowed = ChainAccountant(STICKY).allowance(1.0 - 2**-10, adversary)
        assert float(Fraction(window.scale)) == pytest.approx(1.0 / allowed, rel=1e-6)


@pytest.mark.long
@pytest.mark.parametrize("mechanism", ["mqm-exact", "mqm-approx"])
@pytest.mark.parametrize("chains", [STICKY, TURNING])
def test_windows_that_quilts_planned_keep_epsilon_by_quilts_and_by_the_device(
    chains: ChainClass, mechanism: Composing
) -> None:
    plan = joint_plan(
        chains, 1.0, "ignorant", [COUNT, HOUR, WantedWindow("day", 86_400, (1,), share=0.25)], mechanism=mechanism
    )
    assert {window.mechanism for window in plan.windows} == {mechanism}
    rate = float(sum(window.rate for window in plan.windows))
    members = known_chains(chains)
    loss = quilt_rate_loss(corner_chains(members) if isinstance(members, BinaryChains) else members, rate)
    assert loss <= 1.0
    assert (loss > 1.0 - 1e-6) == (mechanism == "mqm-exact")
    assert policy(plan).verify(1.0).epsilon == plan.loss.epsilon < 1.0
    with pytest.raises(PlanningError, match="ignorant adversary only"):
        joint_plan(chains, 1.0, "informed", [COUNT], mechanism=mechanism)
    with pytest.raises(PlanningError, match="planned by the chain accountant"):
        joint_plan(chains, 1.0, "ignorant", [COUNT], 0.2, mechanism=mechanism)
    with pytest.raises(PlanningError, match="needs transition matrices"):
        joint_plan(THREE, 1.0, "ignorant", [COUNT], mechanism=mechanism)


def test_the_loss_is_divided_for_equal_errors_of_shares_or_as_asked() -> None:
    plan = joint_plan(STICKY, 1.0, "universal", [COUNT, HOUR, WantedWindow("day", 86_400, (1,), share=0.25)])
    five, hour, day = plan.windows
    assert float(Fraction(five.scale)) / 300 == pytest.approx(float(Fraction(hour.scale)) / 3600, rel=1e-6)
    total = sum(float(window.rate) for window in plan.windows)
    assert float(day.rate) / total == pytest.approx(0.25, rel=1e-6)
    half = joint_plan(STICKY, 1.0, "universal", [COUNT], 0.5)
    alone = joint_plan(STICKY, 1.0, "universal", [COUNT])
    assert float(half.windows[0].rate) / float(alone.windows[0].rate) == pytest.approx(0.5, rel=1e-6)
    assert half.windows_loss.epsilon < half.loss.epsilon


@pytest.mark.long
def test_symbols_beside_next_to_nothing_are_those_of_a_stream_alone() -> None:
    """With q + r < 1 each direction has its own ratio, and the windows take from both what they add."""
    tiny = WantedWindow("tiny", 10, (1,), share=1e-6)
    table = joint_plan(STICKY, 1.0, "informed", [tiny], 1.0 - 1e-6).table
    assert np.allclose(table.weights(), calibrate(STICKY, 1.0, "informed", slack=True).table.weights(), rtol=1e-4)
    kary = joint_plan(THREE, 1.0, "universal", [tiny], 1.0 - 1e-6).table
    assert np.allclose(kary.weights(), calibrate(THREE, 1.0, "universal", slack=True).table.weights(), rtol=1e-4)


@pytest.mark.parametrize(
    ("windows", "symbols", "text"),
    [
        ([], None, "no window"),
        ([COUNT], 0.0, "between 0 and 1"),
        ([COUNT], 1.0, "between 0 and 1"),
        ([COUNT], math.nan, "between 0 and 1"),
        ([COUNT._replace(share=0.4)], None, "0.6 of what epsilon allows would go unused"),
        ([COUNT._replace(share=0.8)], 0.3, "not more than 1 in all"),
        ([COUNT._replace(share=-0.1)], None, "above 0"),
        ([COUNT._replace(share=0.7), HOUR], 0.3, "nothing to the other windows"),
    ],
)
def test_shares_that_are_none_are_refused(windows: list[WantedWindow], symbols: float | None, text: str) -> None:
    with pytest.raises(PlanningError, match=text):
        joint_plan(STICKY, 1.0, "universal", windows, symbols)


def test_noise_that_no_policy_can_hold_is_refused() -> None:
    with pytest.raises(FuguError):
        joint_plan(STICKY, 1e-12, "universal", [COUNT])


@pytest.mark.long
def test_what_whoever_sees_windows_alone_learns_is_declared_beside_symbols_only() -> None:
    beside = policy(joint_plan(STICKY, 1.0, "informed", [COUNT], 0.5), latency_seconds=30.0)
    assert beside.frame_ticks == 30
    alone = beside.windows_guarantee
    assert alone.epsilon < 1.0
    assert beside.verify_windows() is not None
    only = policy(joint_plan(STICKY, 1.0, "informed", [COUNT]))
    assert (only.table, only.windows_guarantee, only.frame_ticks) == (None, None, 1)
    assert only.guarantee == Guarantee(epsilon=1.0, adversary="informed")


@pytest.mark.parametrize(
    ("latency", "period", "ticks"),
    [(60.0, 300.0, 1), (60.0, 60.0, 1), (60.0, 1.0, 60), (0.3, 0.1, 3), (1e9, 1e-3, 4096), (60.0, 59.0, 1)],
)
def test_a_frame_gathers_no_longer_than_its_latency(latency: float, period: float, ticks: int) -> None:
    assert frame_ticks(latency, period) == ticks
