"""Chains of more states than the exact step takes: bounds by transport against the exact step, and real releases."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest

from fugu.privacy.accountant import ChainAccountant
from fugu.privacy.accountant.endless_leakage import EndlessLeakage, log_ratios
from fugu.privacy.accountant.inner_maximum import (
    box_step,
    close_bounds,
    exact_step,
    no_moves,
    ratio_order,
    step,
    transport_step,
)
from fugu.privacy.accountant.walks import endless_bound
from fugu.privacy.chain_class import ChainClassError, MarkovChain

Array = np.ndarray


def problem(seed: int, rows: int = 4, columns: int = 16, zeros: float = 0.0) -> tuple[Array, Array]:
    """Distributions (rows, columns), some of whose entries are 0, and closed bounds."""
    generator = np.random.default_rng(seed)
    distributions = generator.dirichlet(np.full(columns, 0.7), size=rows) * (generator.random((rows, columns)) >= zeros)
    bounds = generator.uniform(0.0, 1.5, (columns, columns)) * (1.0 - np.eye(columns))
    return np.ascontiguousarray(distributions / distributions.sum(axis=1, keepdims=True)), close_bounds(bounds)


def by_simplex(distributions: Array, bounds: Array) -> Array:
    return exact_step(distributions, bounds, box_step(distributions, ratio_order(distributions), bounds))


def by_halving(above: Array, below: Array, bounds: Array, most: float) -> float:
    """Cheapest pairs first, and the least ratio that this proves, the plain way."""
    cheapest = [divmod(int(cell), len(bounds)) for cell in np.argsort(bounds, axis=None)]
    bottom, top = 0.0, most
    for _ in range(40):
        middle = (bottom + top) / 2.0
        surplus = above - np.exp(middle) * below
        for y, z in cheapest:
            if surplus[y] > 0.0 > surplus[z]:
                moved = min(surplus[y], -surplus[z] / np.exp(bounds[y, z]))
                surplus[y] -= moved
                surplus[z] = min(surplus[z] + moved * np.exp(bounds[y, z]), 0.0)
        bottom, top = (bottom, middle) if surplus.max() <= 1e-15 else (middle, top)
    return top


def chain_of(kind: str, states: int) -> MarkovChain:
    generator = np.random.default_rng(states)
    neighbours = np.eye(states) + np.eye(states, k=1) + np.eye(states, k=-1)
    if kind == "walk":  # mostly zeros
        steps = generator.random((states, states)) * neighbours
    elif kind == "nearly a cycle":
        steps = np.roll(np.eye(states), 1, axis=1) + 0.3 * generator.random((states, states)) / states
    else:
        steps = generator.dirichlet(np.ones(states), size=states) + 2.0 * neighbours * generator.random(
            (states, states)
        )
    return MarkovChain.stationary(steps / steps.sum(axis=1, keepdims=True))


def real_loss(chain: MarkovChain, rate: float, ticks: int = 200) -> float:
    """Loss of a tick, with so many on each side, to a count of a range of states that is far too high."""
    states = chain.states
    ends = [(first, last) for first in range(states) for last in range(first, states)]
    inside = np.array([[first <= x <= last for first, last in ends] for x in range(states)])
    backward = (chain.stationary_distribution[:, None] * chain.transition).T / chain.stationary_distribution[:, None]
    total = evidence = np.exp(rate * inside)
    for kernel in (chain.transition, backward):
        leakage = np.ones_like(evidence)
        for _ in range(ticks):
            leakage = kernel @ (evidence * leakage)
            leakage /= leakage.max(axis=0)
        total = total * leakage
    return float(np.log(total.max(axis=0) / total.min(axis=0)).max())


@pytest.mark.parametrize("zeros", [0.0, 0.6])
@pytest.mark.parametrize("seed", range(4))
def test_transport_is_never_below_the_exact_step_whatever_moves_it_begins_with(seed: int, zeros: float) -> None:
    distributions, bounds = problem(seed, zeros=zeros)
    exact, box = by_simplex(distributions, bounds), box_step(distributions, ratio_order(distributions), bounds)
    generator = np.random.default_rng(seed)
    others = no_moves(4, 16)
    transport_step(*problem(100 + seed)[:2], np.full((4, 4), 1.5), np.full((4, 4), np.inf), others)
    senseless = no_moves(4, 16)
    senseless[:, :, 1:] = generator.integers(0, 16, senseless[:, :, 1:].shape) * 2**16
    senseless[:, :, 1:] += generator.integers(0, 16, senseless[:, :, 1:].shape)
    senseless[:, :, 0] = 16
    for moves in (no_moves(0, 16), no_moves(4, 16), others, senseless):
        for _ in range(2):  # the second begins with what the first did
            moved = transport_step(distributions, bounds, box, np.full((4, 4), np.inf), moves)
            assert np.all(moved >= exact - 1e-12)
            assert np.all(moved <= box)


@pytest.mark.long
@pytest.mark.parametrize("zeros", [0.0, 0.6])
@pytest.mark.parametrize("seed", range(3))
def test_newton_finds_the_least_ratio_that_cheapest_moves_prove(seed: int, zeros: float) -> None:
    distributions, bounds = problem(seed, zeros=zeros)
    most = np.full((4, 4), float(bounds.max()))
    moved = transport_step(distributions, bounds, most, most, no_moves(0, 16))
    for x, other in permutations(range(4), 2):
        plain = by_halving(distributions[x], distributions[other], bounds, float(bounds.max()))
        assert moved[x, other] == pytest.approx(plain, rel=1e-5)


def test_what_is_known_is_not_looked_for_again() -> None:
    distributions, bounds = problem(9)
    order = ratio_order(distributions)
    free = step(distributions, order, bounds)
    lower = free + np.where(np.arange(4) % 2, 0.05, -0.05)
    stepped = step(distributions, order, bounds, lower, no_moves(4, 16))
    box = box_step(distributions, order, bounds)
    assert np.all(stepped >= by_simplex(distributions, bounds) - 1e-12)
    assert np.minimum(stepped, lower)[:, 1::2] == pytest.approx(free[:, 1::2], rel=1e-2)
    assert np.all((stepped == box) | (stepped < lower))


def test_log_ratios_with_zeros_and_numbers_whose_inverse_is_infinite() -> None:
    distributions = np.array([[0.5, 0.5, 0.0], [1.0, 0.0, 0.0], [0.5, 0.5 - 5e-324, 5e-324]])
    ratios = log_ratios(distributions)
    assert ratios[0, 1] == ratios[2, 1] == ratios[2, 0] == np.inf
    assert ratios[1, 0] == pytest.approx(np.log(2.0), abs=1e-13)
    assert ratios[1, 0] > np.log(2.0)
    assert 0.0 <= ratios[0, 2] < 1e-13


@pytest.mark.long
@pytest.mark.parametrize("kind", ["sticky", "walk", "nearly a cycle"])
def test_no_release_over_many_states_loses_more(kind: str) -> None:
    chain = chain_of(kind, 15)
    accountant = ChainAccountant((chain,))
    for rate in (0.003, 0.1, 1.0):
        assert real_loss(chain, rate) <= accountant.loss(rate).epsilon
    assert real_loss(chain, 0.1, ticks=3) <= accountant.schedule_loss(np.full(7, 0.1)).epsilon + 1e-12


@pytest.mark.long
@pytest.mark.parametrize("kind", ["sticky", "nearly a cycle"])
def test_a_side_of_many_states_is_above_the_exact_recursion_and_near(kind: str) -> None:
    """Which begins below, and takes the least of quilts and of exact steps of one tick and of blocks."""
    rate = 0.2 * (1.0 - np.eye(14))
    leakage = EndlessLeakage(chain_of(kind, 14).transition)
    limit, recursion = leakage.ignorant_leakage(rate), np.zeros((14, 14))
    for _ in range(10):
        bounds, recursion = close_bounds(rate + recursion), leakage.quick_bound(rate)
        for ticks, matrix, _ in leakage.blocks:
            if ticks < 5:
                recursion = np.minimum(recursion, (ticks - 1) * rate + by_simplex(matrix, bounds))
    assert np.all(recursion <= limit + 1e-12)
    assert limit.max() < (1.2 if kind == "sticky" else 2.5) * recursion.max()


@pytest.mark.parametrize("rate", [0.02, 0.5])
def test_local_steps_only_gain_on_the_accountant_and_stay_above_what_is_lost(rate: float) -> None:
    chain = chain_of("walk", 15)
    bound = endless_bound(chain, rate * (1.0 - np.eye(15)), "ignorant")
    assert real_loss(chain, rate) <= bound <= ChainAccountant((chain,)).loss(rate).epsilon * (1.0 + 1e-9)


def test_a_side_is_the_same_whatever_was_asked_before() -> None:
    transition = chain_of("sticky", 14).transition
    fresh, used = EndlessLeakage(transition), EndlessLeakage(transition)
    few = (1.0 - np.eye(14)) * 0.5
    used.ignorant_leakage(few * 1e-3)
    assert len(used.quilts) > len(EndlessLeakage(transition).quilts)
    assert np.array_equal(fresh.ignorant_leakage(few), used.ignorant_leakage(few))


@pytest.mark.long
@pytest.mark.parametrize("epsilon", [0.01, 1.0, 30.0])
@pytest.mark.parametrize("kind", ["sticky", "walk"])
def test_the_allowance_of_many_states_is_little_below_epsilon(kind: str, epsilon: float) -> None:
    accountant = ChainAccountant((chain_of(kind, 14),))
    rate = accountant.allowance(epsilon)
    assert epsilon * (1.0 - 2e-3) <= accountant.loss(rate).epsilon <= epsilon
    assert accountant.loss(rate * 1.02).epsilon > epsilon


def test_independent_readings_of_many_states_may_each_have_all_of_epsilon() -> None:
    accountant = ChainAccountant((MarkovChain.stationary(np.full((14, 14), 1 / 14)),))
    assert 0.998 <= accountant.allowance(1.0) <= 1.0


def test_a_chain_of_two_halves_that_never_meet_has_no_allowance() -> None:
    halves = np.kron(np.eye(2), np.full((7, 7), 1 / 7))
    with pytest.raises(ChainClassError):
        ChainAccountant((MarkovChain(halves, np.full(14, 1 / 14)),)).allowance(1.0)
