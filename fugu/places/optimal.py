"""Optimal tables: the noise table of least expected error, from a linear programme, certified like any other table.

The solver's output is not private: log-ratios near 660 were seen instead of 1, at cells that are 0 up to a tolerance.
So the output is only a proposal, which is rounded and mixed until the integer check passes.

Two reductions keep the programme small, and do not change its optimum. States with the same measurement share a row:
the mean of their rows, weighted with the prior, meets every constraint and costs as much. The pairs of a clique Q are
within e^epsilon of one another exactly if all their cells lie between some number and e^epsilon times that number. That
takes 2 |Q| constraints for each output in place of |Q| (|Q| - 1).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import linprog
from scipy.sparse import coo_array, csr_array
from scipy.sparse.csgraph import shortest_path

from fugu.chains.arrays import Bools, Floats, Ints
from fugu.contract.measurement import RATIO_BITS
from fugu.places.graphs import surrogates
from fugu.places.hull import Hull
from fugu.places.noise import floor_exp
from fugu.places.protection import protected_pairs
from fugu.places.tables import MOST_STATES, TableError, TableWeights, certify, check_table, finite_factor

__all__ = ["optimal_table"]

_MOST_EPSILON = 20
_TOLERANCE = 1e-9
_UNUSED = 2.0**-30
_LIMIT_REACHED = 1


class _Demand(NamedTuple):
    """Pairs of rows, n x n and symmetric, and the bound floor(e^epsilon 2^24) on their ratios."""

    pairs: Bools
    bound: int


def optimal_table(
    hull: Hull,
    points: Ints,
    constraint: Bools,
    epsilon: Fraction | int | float,
    *,
    prior: ArrayLike | None = None,
    seconds: float = 60.0,
) -> TableWeights:
    """Compile a hull with a finite factor into the certified table with the least expected squared error.

    The table minimises the sum over states of prior[i] W[i,z] |f(i) - o_z|^2 under the constraints of every protected
    pair. Under these alone, an output could reveal for certain a state of C that is in no protected pair. So any two
    states of C are also kept within e^(epsilon m), m their gauge rounded up, as staircase noise keeps them (theorem
    6.3). Protected pairs in between may imply that already.

    The points f are (N, d), N at most 100; epsilon is at most 20. The prior is uniform over C by default; a state
    outside C has the row of its public surrogate. Outputs are the distinct measurements within C; unused ones are
    dropped. The solver may overlook a time limit that ends during its first phase, so allow some seconds. The table
    passes `check_table` for `protected_pairs` of the hull.

    Raises:
        TableError: The solver did not finish, there are too many states, or C has one state. Or the measurements of C
            are all the same, the factor is infinite, or the prior is no distribution.
        GraphError: epsilon is out of range.
    """
    if len(points) > MOST_STATES:
        raise TableError(f"a table has at most {MOST_STATES} states, not {len(points)}: use the staircase sampler")
    distinct_points = np.unique(points[constraint], axis=0)
    if constraint.sum() < 2 or len(distinct_points) < 2:
        raise TableError("there is nothing to choose among measurements that are all the same: use the fallback table")
    finite_factor(hull, distinct_points)
    surrogate_points = points[surrogates(points, constraint)]
    row_of_state = np.argmax((surrogate_points[:, None, :] == distinct_points[None, :, :]).all(axis=2), axis=1)
    squared_distances = np.sum((points[:, None, :] - distinct_points[None, :, :]).astype(np.float64) ** 2, axis=2)
    costs = np.zeros((len(distinct_points), len(distinct_points)))
    np.add.at(costs, row_of_state, _distribution(prior, constraint)[:, None] * squared_distances)
    demands = _demands(hull, distinct_points, epsilon)
    probabilities = _solve_program(costs, demands, seconds)
    is_used = probabilities.max(axis=0) > _UNUSED
    probabilities = probabilities[:, is_used] / probabilities[:, is_used].sum(axis=1, keepdims=True)
    weights, share = certify(probabilities, demands)
    check_table(weights[row_of_state], protected_pairs(hull, points, constraint), epsilon)
    return TableWeights(weights[row_of_state], distinct_points[is_used], share)


def _distribution(prior: ArrayLike | None, constraint: Bools) -> Floats:
    distribution = constraint / constraint.sum() if prior is None else np.asarray(prior, dtype=np.float64)
    if (
        distribution.shape != constraint.shape
        or not np.all(distribution >= 0.0)
        or not abs(math.fsum(distribution) - 1.0) < 1e-6
    ):
        raise TableError(f"a prior is {len(constraint)} probabilities that sum to 1")
    return np.asarray(distribution, dtype=np.float64)


def _demands(hull: Hull, distinct_points: Ints, epsilon: Fraction | int | float) -> list[_Demand]:
    """Return the constraints on n distinct points: epsilon for pairs within the hull, gauge * epsilon for others."""
    is_protected = hull.pairs_within(distinct_points)
    np.fill_diagonal(is_protected, False)
    demands = [_Demand(is_protected, floor_exp(epsilon))]
    implied_steps = shortest_path(csr_array(is_protected), unweighted=True)
    gauges = np.array([hull.ceil_gauges(point - distinct_points) for point in distinct_points])
    for gauge in np.unique(gauges[gauges < implied_steps]).tolist():
        pairs_at_gauge = np.zeros_like(is_protected)
        for i, j in np.argwhere(np.triu(gauges == gauge, 1)):
            if gauge < implied_steps[i, j]:  # not implied by earlier demands
                pairs_at_gauge[i, j] = pairs_at_gauge[j, i] = True
                steps_by_pair = implied_steps[:, i, None] + gauge + implied_steps[None, j, :]
                implied_steps = np.minimum(implied_steps, np.minimum(steps_by_pair, steps_by_pair.T))
        demands.append(_Demand(pairs_at_gauge, floor_exp(min(Fraction(epsilon) * gauge, _MOST_EPSILON))))
    return demands


def _solve_program(costs: Floats, demands: list[_Demand], seconds: float) -> Floats:
    """Return the rows n x M of least total cost that meet the demands, up to the solver's tolerance."""
    row_count, outputs = costs.shape
    # one block of M variables for each row, then one for each clique; a constraint reads low - high * factor <= 0
    lower_blocks: list[int] = []
    upper_blocks: list[int] = []
    factors: list[float] = []
    block_count = row_count
    for pairs, bound in demands:
        ratio = bound / (1 << RATIO_BITS)
        for clique in _cliques(pairs):
            if len(clique) == 2:
                lower_blocks += clique
                upper_blocks += clique[::-1]
                factors += [ratio] * 2
                continue
            lower_blocks += [block_count] * len(clique) + clique
            upper_blocks += clique + [block_count] * len(clique)
            factors += [1.0] * len(clique) + [ratio] * len(clique)
            block_count += 1
    bound_count = len(lower_blocks)
    columns = np.array([lower_blocks, upper_blocks], dtype=np.int64)[..., None] * outputs + np.arange(outputs)
    coefficients = np.concatenate([np.ones(bound_count * outputs), np.repeat(-np.array(factors), outputs)])
    inequalities = coo_array(
        (coefficients, (np.tile(np.arange(bound_count * outputs), 2), columns.ravel())),
        shape=(bound_count * outputs, block_count * outputs),
    )
    equalities = coo_array(
        (np.ones(row_count * outputs), (np.repeat(np.arange(row_count), outputs), np.arange(row_count * outputs))),
        shape=(row_count, block_count * outputs),
    )
    solution = linprog(
        np.concatenate([costs.ravel(), np.zeros((block_count - row_count) * outputs)]),
        A_ub=inequalities.tocsr(),
        b_ub=np.zeros(bound_count * outputs),
        A_eq=equalities.tocsr(),
        b_eq=np.ones(row_count),
        method="highs-ipm",  # with crossover; two to four times quicker here than the simplex method
        options={
            "time_limit": seconds,
            "primal_feasibility_tolerance": _TOLERANCE,
            "dual_feasibility_tolerance": _TOLERANCE,
        },
    )
    if solution.status == _LIMIT_REACHED:
        raise TableError(f"no optimal table within {seconds:g} seconds: allow more time, or build one from the hull")
    if solution.x is None or solution.status != 0:
        raise TableError(f"no optimal table: {' '.join(solution.message.split())}")
    probabilities = np.maximum(solution.x[: row_count * outputs].reshape(row_count, outputs), 0.0)
    return np.asarray(probabilities / probabilities.sum(axis=1, keepdims=True), dtype=np.float64)


def _cliques(pairs: Bools) -> Iterator[list[int]]:
    """Yield cliques that cover every pair; a clique of more than two states must save constraints."""
    open_pairs = pairs.copy()
    while open_pairs.any():
        i, j = divmod(int(np.argmax(open_pairs)), len(open_pairs))
        clique = [i, j]
        candidates = pairs[i] & pairs[j]
        while candidates.any():
            # the state with the most pairs still to cover, and of equals the lowest
            best_state = int(np.argmax(np.where(candidates, open_pairs[:, clique].sum(axis=1), -1)))
            clique.append(best_state)
            candidates &= pairs[best_state]
        clique_pairs = np.ix_(clique, clique)
        # the sum counts both directions, and a clique of k states costs 2 k constraints and a variable
        if open_pairs[clique_pairs].sum() > 2 * len(clique):
            open_pairs[clique_pairs] = False
            yield sorted(clique)
        else:
            open_pairs[i, j] = open_pairs[j, i] = False
            yield [i, j]
