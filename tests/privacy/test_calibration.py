"""Calibration for any class of chains: never above epsilon, near it, refusals that say why; the worth of streams."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fugu.contract.chains import BinaryChains, BoundedChains
from fugu.contract.guarantee import StreamOutputs, check_outputs
from fugu.contract.losses import Adversary
from fugu.contract.noise_table import NoiseTable
from fugu.privacy.chain_class import ChainClassError
from fugu.privacy.randomised_response import Objective, allowed_ratios, calibrate, utility

SCALE = 2**32
ADVERSARIES: tuple[Adversary, ...] = ("ignorant", "informed", "universal")
probability = st.one_of(st.floats(1e-4, 0.9999), st.floats(-4, -0.01).map(lambda x: 10.0**x))


def point(q: float, r: float) -> BinaryChains:
    return BinaryChains(q=(q, q), r=(r, r))


@pytest.mark.long
@given(
    q=probability,
    r=probability,
    width=st.sampled_from([0.0, 0.0, 0.1, 1.0]),
    epsilon=st.floats(-3, 1.2).map(lambda x: 10.0**x),
    adversary=st.sampled_from(ADVERSARIES),
    objective=st.sampled_from(["information", "flips"]),
)
@settings(max_examples=12, deadline=None, derandomize=True)
def test_what_is_calibrated_certifies_and_wastes_nothing(
    q: float, r: float, width: float, epsilon: float, adversary: Adversary, objective: Objective
) -> None:
    chains = BinaryChains(q=(q, min(0.9999, q * (1 + width))), r=(r, min(0.9999, r * (1 + width))))
    try:
        calibration = calibrate(chains, epsilon, adversary, objective)
    except ChainClassError as error:
        if "too small" not in str(error):
            raise
        return
    assert calibration.loss == check_outputs(chains, StreamOutputs(calibration.table), calibration.guarantee)
    assert calibration.loss.epsilon <= epsilon
    assert sum(calibration.table.flip_weights) < SCALE
    # One step of 2^-32 in 1 - rho0 - rho1, or in the smaller rho, is all that may be lost.
    informative = SCALE - sum(calibration.table.flip_weights)
    steps = 8 / min(informative, *calibration.table.flip_weights)
    assert calibration.loss.epsilon >= epsilon * (1 - 1e-9 - 4 * steps) - 4 * steps


@pytest.mark.long
@pytest.mark.parametrize("adversary", ADVERSARIES)
def test_more_epsilon_is_less_noise(adversary: Adversary) -> None:
    for chains in (point(0.2, 0.35), point(0.8, 0.9), BinaryChains(q=(0.3, 0.8), r=(0.3, 0.8))):
        noise = [
            sum(calibration.table.flip_weights)
            for calibration in (calibrate(chains, epsilon, adversary) for epsilon in (0.1, 1.0, 8.0))
        ]
        assert noise == sorted(noise, reverse=True)
        assert len(set(noise)) == len(noise)


@pytest.mark.parametrize("adversary", ADVERSARIES)
@pytest.mark.parametrize("epsilon", [100.0, 800.0, 1e4, 1e300])
def test_however_large_epsilon_no_symbol_is_ever_certain(adversary: Adversary, epsilon: float) -> None:
    for objective in ("information", "flips"):
        calibration = calibrate(point(0.1, 0.2), epsilon, adversary, objective)
        assert calibration.table.flip_weights == (1, 1)
    several = calibrate(BoundedChains(states=4, odds_ratio=9.0), epsilon, adversary)
    assert min(min(row) for row in several.table.weights()) == 1
    assert several.loss.epsilon <= epsilon


@pytest.mark.parametrize(
    ("epsilon", "reason"),
    [
        *((epsilon, "epsilon must be a finite number above 0, got") for epsilon in (0.0, -1.0, math.nan, math.inf)),
        *(pytest.param(few, "too small: no table of 32 bits", marks=pytest.mark.long) for few in (1e-9, 1e-12, 1e-300)),
    ],
)
def test_an_epsilon_that_is_none_or_below_one_word_of_randomness_is_refused(epsilon: float, reason: str) -> None:
    for chains in (point(0.1, 0.2), BoundedChains(states=3, odds_ratio=9.0)):
        with pytest.raises(ChainClassError, match=reason):
            calibrate(chains, epsilon)


HALF = 1 << 31


@pytest.mark.parametrize(
    ("chains", "epsilon"),
    [(BoundedChains(states=2, odds_ratio=1e300), 50.0), (point(1e-300, 1e-300), 1e-13), (point(0.1, 0.2), 1e-14)],
)
@pytest.mark.parametrize("adversary", ADVERSARIES)
def test_where_no_ratio_keeps_epsilon_a_tick_may_tell_nothing(
    chains: BinaryChains | BoundedChains, epsilon: float, adversary: Adversary
) -> None:
    """The floor of the search was returned for allowed, also if its loss was above epsilon."""
    ratios = [Fraction(ratio) for ratio in allowed_ratios(chains, epsilon, adversary)]
    assert chains.ratio_loss(ratios[0], ratios[1], adversary).epsilon <= epsilon


@pytest.mark.long
def test_independent_readings_are_guessed_from_their_own_symbol() -> None:
    flips = round(0.2 * 2**32)
    worth = utility(np.full((2, 2), 0.5), NoiseTable.binary(flips, flips), np.random.default_rng(1), ticks=20_000)
    assert worth.accuracy == pytest.approx(0.8, abs=1e-6)
    assert worth.majority == 0.5
    capacity = 1 + 0.2 * np.log2(0.2) + 0.8 * np.log2(0.8)
    assert worth.bits_per_reading == pytest.approx(capacity, abs=1e-6)


def test_a_coin_flip_is_worth_nothing() -> None:
    worth = utility(
        np.array([[0.9, 0.1], [0.3, 0.7]]), NoiseTable.binary(HALF, HALF), np.random.default_rng(1), ticks=5_000
    )
    assert worth.accuracy == pytest.approx(worth.majority, abs=1e-9)
    assert worth.majority == pytest.approx(0.75)
    assert worth.bits_per_reading == pytest.approx(0.0, abs=1e-12)


def test_nearly_silent_noise_carries_the_entropy_of_the_chain() -> None:
    chain = np.array([[0.9, 0.1], [0.3, 0.7]])
    worth = utility(chain, NoiseTable.binary(1, 1), np.random.default_rng(1), ticks=100_000)

    def entropy(p: float) -> float:
        return float(-p * np.log2(p) - (1 - p) * np.log2(1 - p))

    assert worth.accuracy == pytest.approx(1.0, abs=1e-6)
    assert worth.bits_per_reading == pytest.approx(0.75 * entropy(0.1) + 0.25 * entropy(0.3), abs=0.005)


def test_a_gateway_that_assumes_another_chain_does_no_better() -> None:
    chain, table = np.array([[0.95, 0.05], [0.05, 0.95]]), NoiseTable.binary(HALF // 2, HALF // 2)
    right = utility(chain, table, np.random.default_rng(3), ticks=20_000)
    wrong = utility(chain, table, np.random.default_rng(3), assumed_chain=np.full((2, 2), 0.5), ticks=20_000)
    assert wrong.accuracy < right.accuracy - 0.05
    assert wrong.bits_per_reading == right.bits_per_reading
