"""The inner maximum against a linear programme of another maker, and its relaxations against it."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from scipy.optimize import linprog

from fugu.privacy.accountant.inner_maximum import EXACT_STATES, box_step, close_bounds, exact_step, ratio_order, step


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
