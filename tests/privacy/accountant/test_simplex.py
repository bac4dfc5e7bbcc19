"""The simplex method as a device runs it, against the compiled one and against its margins."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from fugu.chains.model import stationary_distribution
from fugu.contract.losses import UNIT, reversal_error
from fugu.privacy.accountant.inner_maximum import close_bounds, exact_ratio
from fugu.privacy.accountant.simplex import Tree, largest_ratio, widening
from tests.support.oracle import Array


def cone(generator: np.random.Generator, k: int) -> Array:
    bounds = close_bounds(generator.uniform(0.0, 10.0 ** generator.uniform(-3, 2), (k, k)) * (1.0 - np.eye(k)))
    return np.exp(bounds) * np.array([[widening(y, z) for z in range(k)] for y in range(k)])


@pytest.mark.parametrize("k", [2, 3, 5, 8])
def test_lists_and_arrays_give_the_same_bits(k: int) -> None:
    """Also where distributions have zeros, and where one of them leaves nothing to divide by."""
    generator = np.random.default_rng(k)
    for _ in range(40):
        high = cone(generator, k).ravel()
        distributions = generator.dirichlet(np.full(k, generator.choice([0.05, 1.0])), size=2)
        distributions[generator.random((2, k)) < 0.2] = 0.0
        trees = (
            Tree(*([0] * k for _ in range(5)), *([0.0] * k for _ in range(2))),
            Tree(*(np.zeros(k, dtype=np.int64) for _ in range(5)), *(np.zeros(k) for _ in range(2))),
        )
        above, below = distributions.tolist()
        plain = largest_ratio(above, below, high.tolist(), float(high.max()), trees[0])
        assert exact_ratio(distributions[0], distributions[1], high, float(high.max()), trees[1]) == plain
        if not any(below):
            assert plain[0] == math.inf


def exact_distribution(transition: Array) -> list[Fraction]:
    """By elimination without subtractions, in fractions."""
    fractions = [[Fraction(float(p)) for p in row] for row in transition]
    for last in range(len(fractions) - 1, 0, -1):
        leaving = sum(fractions[last][:last])
        for x in range(last):
            fractions[x][last] /= leaving
            for y in range(last):
                fractions[x][y] += fractions[x][last] * fractions[last][y]
    distribution = [Fraction(1)]
    for state in range(1, len(fractions)):
        distribution.append(sum((distribution[x] * fractions[x][state] for x in range(state)), Fraction(0)))
    return [p / sum(distribution) for p in distribution]


def test_a_reversed_chain_is_off_by_less_than_its_margin() -> None:
    """Distributions, and so every ratio of them, of chains of eight states whose steps differ by up to forty digits."""
    generator = np.random.default_rng(3)
    for _ in range(30):
        transition = 10.0 ** -generator.uniform(0, generator.choice([1.0, 10.0, 40.0]), (8, 8))
        transition /= transition.sum(axis=1, keepdims=True)
        exact, rounded = exact_distribution(transition), stationary_distribution(transition)
        errors = [float(Fraction(p) / distribution - 1) for p, distribution in zip(rounded, exact, strict=True)]
        assert max(map(abs, errors)) <= reversal_error(8) / 4.0
    assert reversal_error(8) == 1280.0 * UNIT
