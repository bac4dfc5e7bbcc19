"""Known chains at the edge of what floats can hold: a bound that no path exceeds, or one line that says why not."""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import partial

import numpy as np
import pytest

from fugu.contract import finite_leakage
from fugu.contract.chains import FiniteChains
from fugu.contract.errors import GuaranteeError
from fugu.contract.finite_leakage import Work, finite_loss, largest, soft_loss, stationary_distribution
from fugu.contract.finite_leakage import _step as step
from tests.support.oracle import Array, worst_loss


def random_chain(generator: np.random.Generator, k: int) -> Array:
    """Irreducible: often with zeros, with rare steps, sticky, or nearly a cycle."""
    transition = generator.dirichlet(np.full(k, generator.choice([0.05, 0.3, 1.0, 5.0])), size=k)
    kind = generator.integers(5)
    if kind == 1:
        transition[generator.random((k, k)) < 0.5] = 0.0
    elif kind == 2:
        transition[transition < generator.choice([1e-3, 1e-2, 0.1])] = 0.0
    elif kind == 3:
        stay = 1.0 - 10.0 ** generator.uniform(-6, -0.3)
        transition = stay * np.eye(k) + (1.0 - stay) * transition
    elif kind == 4:
        transition = np.roll(np.eye(k), 1, axis=1) + transition * (generator.random((k, k)) < 0.5)
    order = generator.permutation(k)
    for x, y in zip(order, np.roll(order, 1), strict=True):
        if transition[x, y] == 0.0:
            transition[x, y] = 10.0 ** generator.uniform(-8, 0)
    return transition / transition.sum(axis=1, keepdims=True)


def flips(k: int, rate: float) -> Array:
    """Randomised response whose largest likelihood ratio is e^rate."""
    other = 1.0 / (k - 1 + math.exp(rate))
    return np.full((k, k), other) + np.eye(k) * (math.exp(rate) - 1.0) * other


def enumerate_chains(seeds: Iterable[int]) -> tuple[int, int]:
    """Hold random chains against every path; return how many got an answer and how many a refusal."""
    answers = refusals = 0
    for seed in seeds:
        generator = np.random.default_rng(seed)
        k = int(generator.integers(2, 4))
        transition, informed = random_chain(generator, k), bool(seed % 2)
        rate = float(generator.choice([10.0 ** generator.uniform(-9, 1), generator.uniform(6, 40)]))
        try:
            bound = finite_loss([transition.tolist()], rate, informed=informed)
        except GuaranteeError:
            refusals += 1
            continue
        answers += 1
        ticks = 5 if k == 2 else 4
        distribution = np.array(stationary_distribution(transition.tolist()))
        emission = flips(k, rate)
        found = worst_loss(distribution, [transition] * (ticks - 1), emission, informed=informed).max()
        assert found <= bound * (1.0 + 1e-12) + 1e-13, (seed, found, bound)
    return answers, refusals


@pytest.mark.parametrize("rate", [math.nan, math.inf, finite_leakage.LARGEST])
@pytest.mark.parametrize("place", range(4))
def test_a_rate_that_is_no_number_or_too_large_is_refused_wherever_it_stands(rate: float, place: int) -> None:
    """Every comparison with what is no number is false."""
    chains = FiniteChains(transitions=(((0.9, 0.1), (0.2, 0.8)),))
    rates = [[0.1, 0.1], [0.1, 0.1]]
    rates[place // 2][place % 2] = rate
    for loss in (partial(finite_loss, informed=False), partial(finite_loss, informed=True), soft_loss):
        with pytest.raises(GuaranteeError, match="nats are too much for a finite guarantee"):
            loss(chains.transitions, rates)


SLOW = {5, 7, 9, 30, 33, 40, 48, 50, 55, 57, 59}
"""Seeds of chains whose bound takes seconds."""


@pytest.mark.long
def test_chains_with_zeros_and_large_rates_get_a_bound_that_no_path_exceeds() -> None:
    answers, _ = enumerate_chains(set(range(24)) - SLOW)
    assert answers > 10


@pytest.mark.soak
def test_more_chains_with_zeros_and_large_rates_get_a_bound_that_no_path_exceeds() -> None:
    answers, _ = enumerate_chains((*SLOW, *range(1000, 1040)))
    assert answers > 35


@pytest.mark.long
@pytest.mark.parametrize("rate", [8.0, 20.0, 80.0, 200.0, 290.0, 700.0, 1e4, 1e300, math.inf, math.nan])
def test_whatever_the_rate_there_is_an_answer_or_a_refusal(rate: float) -> None:
    """Once the last change of the recursion was 0, and the next was divided by it."""
    answered = 0
    for seed in range(7):
        generator = np.random.default_rng(seed)
        transition = random_chain(generator, int(generator.integers(2, 5)))
        try:
            found = finite_loss([transition.tolist()], rate, informed=bool(seed % 2))
        except GuaranteeError:
            continue
        answered += 1
        assert rate <= found < math.inf
    assert answered == 0 or rate < 300.0


def test_a_ratio_beyond_floats_is_refused_in_one_line() -> None:
    chains = FiniteChains(transitions=(((0.0, 1.0), (0.25, 0.75)),))
    huge = 10**400
    with pytest.raises(GuaranteeError, match="too much for a finite guarantee"):
        chains.ratio_loss(huge, huge, "ignorant")


@pytest.mark.parametrize("rare", [5e-324, 1e-310, 1e-200, 1e-126])
def test_steps_too_rare_for_floats_are_refused(rare: float) -> None:
    """The square of such a step is taken for impossible, and what it tells for nothing."""
    with pytest.raises(GuaranteeError, match="too rare"):
        finite_loss([[[1.0, rare], [0.5, 0.5]]], 0.1, informed=False)


def test_rare_steps_that_floats_can_hold_get_a_bound() -> None:
    bound = finite_loss([[[1.0, 1e-12], [0.5, 0.5]]], 3.0, informed=False)
    distribution, emission = np.array(stationary_distribution([[1.0, 1e-12], [0.5, 0.5]])), flips(2, 3.0)
    transition = np.array([[1.0, 1e-12], [0.5, 0.5]])
    assert worst_loss(distribution, [transition] * 5, emission, informed=False).max() <= bound


def test_a_check_ends_after_so_many_steps_with_a_bound_that_is_only_larger(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing that a policy says may hold a device up: what is not proven in time is left to the quilts."""
    transition = random_chain(np.random.default_rng(3), 4).tolist()
    full = finite_loss([transition], 0.3, informed=False)
    monkeypatch.setattr(finite_leakage, "_MOST_PIVOTS", 50)
    assert full <= finite_loss([transition], 0.3, informed=False) < 300.0


def test_the_inner_maximum_counts_its_work() -> None:
    work = Work(1000)
    kernel = [[0.7, 0.2, 0.1], [0.1, 0.8, 0.1], [0.2, 0.2, 0.6]]
    found = step(kernel, [[0.0, 0.5, 0.5], [0.5, 0.0, 0.5], [0.5, 0.5, 0.0]], work)
    assert 0.0 < largest(found) < 0.5
    assert 0 < 1000 - work.pivots <= 6 * 24
