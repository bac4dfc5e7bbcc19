"""The inner maximum against a linear programme of another maker, its relaxations, and a device's simplex method."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import permutations

import numpy as np
import pytest
from scipy.optimize import linprog

from fugu.chains.model import stationary_distribution
from fugu.contract.losses import UNIT, reversal_error
from fugu.privacy.accountant.inner_maximum import (
    EXACT_STATES,
    box_step,
    close_bounds,
    exact_ratio,
    exact_step,
    ratio_order,
    step,
)
from fugu.privacy.accountant.simplex import Tree, largest_ratio, widening
from tests.support.oracle import Array


def by_linear_programme(above: np.ndarray, below: np.ndarray, bounds: np.ndarray) -> float:
    """log of max above.h subject to below.h = 1 and h_y <= exp(M[y,z]) h_z."""
    k = len(above)
    rows = []
    for y, z in permutations(range(k), 2):
        row = np.zeros(k)
        row[y], row[z] = 1.0, -np.exp(bounds[y, z])
        rows.append(row)
    solution = linprog(-above, A_ub=np.array(rows), b_ub=np.zeros(len(rows)), A_eq=below[None], b_eq=[1.0])
    assert solution.status == 0
    return float(np.log(-solution.fun))


def problem(seed: int, rows: int, columns: int, largest: float) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    distributions = generator.dirichlet(np.ones(columns) * generator.uniform(0.3, 3), size=rows)
    bounds = generator.uniform(0, largest, (columns, columns)) * (1 - np.eye(columns))
    return distributions, close_bounds(bounds)


def exactly(distributions: np.ndarray, bounds: np.ndarray) -> np.ndarray:
    return exact_step(distributions, bounds, box_step(distributions, ratio_order(distributions), bounds))


@pytest.mark.parametrize("columns", [2, 3, 4, 5, 8, 12])
@pytest.mark.parametrize("seed", range(3))
def test_the_simplex_method_solves_the_linear_programme(seed: int, columns: int) -> None:
    distributions, bounds = problem(seed, 3, columns, [0.1, 1.0, 4.0][seed % 3])
    exact = exactly(distributions, bounds)
    assert np.all(np.diag(exact) == 0.0)
    for x, other in permutations(range(3), 2):
        expected = by_linear_programme(distributions[x], distributions[other], bounds)
        assert expected - 1e-10 <= exact[x, other] <= expected + 1e-9


def test_two_states_need_no_more_than_a_box() -> None:
    distributions, bounds = problem(7, 2, 2, 2.0)
    assert step(distributions, ratio_order(distributions), bounds) == pytest.approx(
        exactly(distributions, bounds), abs=1e-12
    )
    assert EXACT_STATES >= 4


def test_ties_between_constraints_do_not_stop_the_simplex_method() -> None:
    """All bounds equal, as in the first step of every stream: the exact maximum has a threshold structure then."""
    distributions, _ = problem(11, 4, 9, 1.0)
    bounds = 0.7 * (1 - np.eye(9))
    assert exactly(distributions, bounds)[0, 1] == pytest.approx(
        by_linear_programme(distributions[0], distributions[1], bounds), abs=1e-9
    )


def test_distributions_with_zeros() -> None:
    distributions = np.array([[0.5, 0.5, 0.0], [0.0, 0.3, 0.7]])
    bounds = close_bounds(np.array([[0, 1.0, 2.0], [0.5, 0, 1.0], [1.0, 0.2, 0]]))
    exact = exactly(distributions, bounds)
    assert exact[0, 1] == pytest.approx(by_linear_programme(distributions[0], distributions[1], bounds), abs=1e-9)
    assert box_step(distributions, ratio_order(distributions), bounds)[0, 1] >= exact[0, 1] - 1e-12


def test_with_bounds_too_large_for_a_float_a_mean_is_still_between_its_ends() -> None:
    distributions, bounds = problem(3, 2, 3, 1.0)
    bounds[0, 1:] = bounds[1, 2] = 700.0
    assert step(distributions, ratio_order(distributions), bounds)[0, 1] == 700.0


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
