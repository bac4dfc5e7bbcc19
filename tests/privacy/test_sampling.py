"""The class of a decimated chain holds every decimated chain, and the odds ratio of a product is attained.

Whoever knows states between the readings that are taken learns no more than a plan says.
"""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from fugu.contract.chains import BinaryChains, BoundedChains, odds_ratio
from fugu.contract.losses import Adversary
from fugu.contract.noise_table import SCALE, NoiseTable
from fugu.planning.planner import Option, Request, decimated_class, make_plan
from fugu.privacy.accountant.bounded import decimated_odds_ratio, decimated_transition
from fugu.privacy.chain_class import ChainClassError
from fugu.privacy.randomised_response import calibrate
from tests.support.proofs import check_printed

probability = st.floats(1e-4, 1.0 - 1e-4)
steps = st.integers(1, 60)


def chain(q: float, r: float) -> NDArray[np.float64]:
    return np.array([[1.0 - q, q], [r, 1.0 - r]])


def decimated(chains: BinaryChains, step: int) -> BinaryChains:
    decimated_chains = decimated_class(chains, step)
    assert isinstance(decimated_chains, BinaryChains)
    return decimated_chains


@pytest.mark.long
@settings(max_examples=50, deadline=None)
@given(st.tuples(probability, probability, probability, probability), steps, st.floats(0, 1), st.floats(0, 1))
@example((0.9, 0.999, 0.9, 0.999), 3, 0.3, 0.8)
@example((0.3, 0.9, 0.2, 0.9), 2, 0.5, 0.5)
def test_every_chain_of_the_box_is_covered(
    bounds: tuple[float, float, float, float], step: int, across: float, up: float
) -> None:
    (q0, q1), (r0, r1) = sorted(bounds[:2]), sorted(bounds[2:])
    chains = BinaryChains(q=(q0, q1), r=(r0, r1))
    try:
        decimate = decimated(chains, step)
    except ChainClassError:
        return
    q = chains.q[0] + across * (chains.q[1] - chains.q[0])
    r = chains.r[0] + up * (chains.r[1] - chains.r[0])
    power = decimated_transition(chain(q, r), step)
    slack = 1e-13
    assert decimate.q[0] - slack <= power[0, 1] <= decimate.q[1] + slack
    assert decimate.r[0] - slack <= power[1, 0] <= decimate.r[1] + slack


def test_the_box_of_positively_correlated_chains_is_tight() -> None:
    decimate = decimated(BinaryChains(q=(0.05, 0.1), r=(0.1, 0.2)), 7)
    assert decimate.q[0] == pytest.approx(decimated_transition(chain(0.05, 0.2), 7)[0, 1], rel=1e-9)
    assert decimate.q[1] == pytest.approx(decimated_transition(chain(0.1, 0.1), 7)[0, 1], rel=1e-9)
    assert decimate.r[0] == pytest.approx(decimated_transition(chain(0.1, 0.1), 7)[1, 0], rel=1e-9)
    assert decimate.r[1] == pytest.approx(decimated_transition(chain(0.05, 0.2), 7)[1, 0], rel=1e-9)


def test_tiny_probabilities_do_not_cancel() -> None:
    decimate = decimated(BinaryChains(q=(1e-12, 1e-12), r=(1e-12, 1e-12)), 10)
    assert decimate.q[0] == pytest.approx(1e-11, rel=1e-9)


@pytest.mark.parametrize("step", [2, 3, 10])
def test_tiny_probabilities_do_not_cancel_in_a_class_that_reaches_far(step: int) -> None:
    """1 - (1 - 2e-12)^D had a relative error of 1e-4: the decimated class left its stickiest chain out."""
    few = Fraction(1e-12)
    decimate = decimated(BinaryChains(q=(1e-12, 0.9), r=(1e-12, 0.9)), step)
    stays = (few * (1 - (1 - 2 * few) ** step)) / (2 * few)  # q of the stickiest chain after D ticks
    assert max(decimate.q[0], decimate.r[0]) <= stays
    corner = few / (few + Fraction(0.9)) * (1 - (1 - 2 * few) ** step)  # the two factors are bounded one by one
    assert decimate.q[0] == pytest.approx(float(corner), rel=1e-9)
    assert decimate.q[0] <= corner


def test_a_single_tick_changes_nothing() -> None:
    chains = BinaryChains(q=(0.1, 0.2), r=(0.3, 0.3))
    assert decimated_class(chains, 1) is chains
    assert decimated_odds_ratio(7.0, 1) == 7.0


def test_the_odds_ratio_of_a_product_is_reached_with_soft_evidence_between() -> None:
    a, b = 3.0, 3.0
    step = np.array([[a, 1.0], [1.0, b]]) / 4.0
    ratio = a * b
    product = step @ step
    reached = product[0, 0] * product[1, 1] / (product[0, 1] * product[1, 0])
    assert decimated_odds_ratio(ratio, 2) == pytest.approx(reached, rel=1e-9)


@pytest.mark.long
@settings(max_examples=80, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(2, 4), st.integers(2, 6))
def test_no_product_of_changing_matrices_exceeds_the_bound(seed: int, k: int, step: int) -> None:
    generator = np.random.default_rng(seed)
    matrices = [np.exp(generator.normal(0.0, 1.5, (k, k))) for _ in range(step)]
    stochastic = [matrix / matrix.sum(axis=1, keepdims=True) for matrix in matrices]
    worst = max(odds_ratio(tuple(map(tuple, matrix.tolist()))) for matrix in stochastic)
    product = stochastic[0]
    for matrix in stochastic[1:]:
        evidence = np.exp(generator.normal(0.0, 2.0, k))
        product = product @ np.diag(evidence) @ matrix
    product = product / product.sum(axis=1, keepdims=True)
    assert odds_ratio(tuple(map(tuple, product.tolist()))) <= decimated_odds_ratio(worst, step) * (1 + 1e-9)


def test_bounded_chains_keep_a_typical_member() -> None:
    transition = ((0.8, 0.1, 0.1), (0.2, 0.7, 0.1), (0.1, 0.2, 0.7))
    decimate = decimated_class(BoundedChains(states=3, odds_ratio=odds_ratio(transition), transition=transition), 4)
    assert isinstance(decimate, BoundedChains)
    assert decimate.transition is not None
    assert np.allclose(decimate.transition, np.linalg.matrix_power(np.array(transition), 4))
    assert 1.0 < decimate.odds_ratio < odds_ratio(transition)


def test_a_class_that_would_reach_zero_is_refused() -> None:
    with pytest.raises(ChainClassError, match="rounds to 0"):
        decimated_class(BinaryChains(q=(5e-324, 0.9), r=(0.95, 0.95)), 2)
    assert math.isfinite(decimated_odds_ratio(1e300, 50))


def reached(table: NoiseTable, step: NDArray[np.float64], every: int, *, between: bool) -> float:
    """The largest loss of a reading of which three are taken on either side, one every so many ticks.

    Every output of theirs, and every state that may be known nearest on either side: also of ticks `between` readings.
    """
    emission = np.array(table.weights()) / SCALE
    sides = [np.ones(2)]
    for place in range(1, 3 * every + 1):
        if not (between or place % every == 0):
            continue
        for state in range(2):
            prior = np.linalg.matrix_power(step, place)[:, state]
            for outputs in product(range(2), repeat=(place - 1) // every):
                side = np.eye(2)[state]
                for tick in range(place - 1, -1, -1):
                    side = step @ side
                    if tick and tick % every == 0:
                        side = side * emission[:, outputs[tick // every - 1]]
                sides.append(side / prior)
    for outputs in product(range(2), repeat=3):
        side = np.ones(2)
        for output in outputs:
            side = np.linalg.matrix_power(step, every) @ (side * emission[:, output])
        sides.append(side)
    logs = np.log(np.array([side[0] / side[1] for side in sides]))
    own = np.log(emission[0] / emission[1])
    return float(max(own.max() + 2 * logs.max(), -(own.min() + 2 * logs.min())))


def planned(q: float, r: float, epsilon: float, every: int, adversary: Adversary) -> Option:
    chains = BinaryChains(q=(q, q), r=(r, r))
    transition = tuple(map(tuple, chain(q, r).tolist()))
    request = Request(chains, transition, epsilon, adversary, "information", every, longer_periods=False, ticks=10)
    return make_plan(request).chosen


@pytest.mark.long
@pytest.mark.parametrize(("q", "r", "every"), [(0.1, 0.1, 8), (0.1, 0.1, 2), (0.05, 0.2, 5), (0.6, 0.7, 3)])
def test_who_knows_states_between_readings_learns_no_more_than_is_planned(q: float, r: float, every: int) -> None:
    plan = planned(q, r, 4.0, every, "informed")
    assert plan.release.guarantee.adversary == "universal"
    assert 3.0 < reached(plan.table, chain(q, r), every, between=True) <= plan.epsilon <= 4.0
    alone = planned(q, r, 4.0, every, "ignorant")
    assert alone.release.guarantee.adversary == "ignorant"
    assert isinstance(alone.release.chains, BinaryChains)  # that of every D-th state, exactly
    assert 1 - 2 * alone.flips > 1 - 2 * plan.flips


def test_a_plan_for_known_readings_alone_would_tell_more_than_it_says() -> None:
    """The chain of every eighth state has a table of epsilon 4; with a state between readings known it is 4.187."""
    step = chain(0.1, 0.1)
    table = calibrate(decimated_class(BinaryChains(q=(0.1, 0.1), r=(0.1, 0.1)), 8), 4.0, "informed").table
    assert reached(table, step, 8, between=False) <= 4.0
    check_printed("who knows states between them reaches {}", reached(table, step, 8, between=True))
