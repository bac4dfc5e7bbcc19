"""The most that an attacker may reach: against the best test, found by linear programming."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.optimize import linprog

from fugu.attackers.evaluation import success_bound


def best_test(prior, epsilon):
    """The success of the best randomised guess W[x, z] with W[x, z] <= e^epsilon W[x', z]: a linear programme."""
    k = len(prior)
    rows = []
    for z in range(k):
        for x in range(k):
            for other in range(k):
                if other != x:
                    row = np.zeros((k, k))
                    row[x, z], row[other, z] = 1.0, -math.exp(epsilon)
                    rows.append(row.ravel())
    sums = np.kron(np.eye(k), np.ones(k))
    objective = -np.diag(prior).ravel()
    return -linprog(objective, np.array(rows), np.zeros(len(rows)), sums, np.ones(k)).fun


@pytest.mark.parametrize("k", [2, 3, 4, 5])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0])
@pytest.mark.parametrize("seed", range(4))
def test_the_bound_is_the_best_test_for_any_number_of_states(k, epsilon, seed):
    prior = np.random.default_rng(seed).dirichlet(np.full(k, 0.5 + seed))
    assert float(success_bound(prior, epsilon)) == pytest.approx(best_test(prior, epsilon), abs=1e-9)


def test_one_epsilon_is_two_equal_ones():
    for share in (0.5, 0.6, 0.75, 0.9):
        distribution = [1 - share, share]
        assert float(success_bound(distribution, 1.0)) == pytest.approx(
            float(success_bound(distribution, 1.0, 1.0)), abs=1e-15
        )
    assert float(success_bound([0.5, 0.5], 1.0)) == pytest.approx(math.e / (1 + math.e))
    assert float(success_bound([0.9, 0.1], 1.0)) == 0.9
    assert float(success_bound([0.3, 0.7], 0.0)) == 0.7


def test_every_row_of_priors_has_its_own_bound():
    distributions = np.array([[0.5, 0.5], [0.9, 0.1]])
    np.testing.assert_allclose(
        success_bound(distributions, 1.0), [success_bound(distribution, 1.0) for distribution in distributions]
    )
