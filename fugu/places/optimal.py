"""Optimal tables: the noise table of least expected error, from a linear programme, and certified like any other.

Raw solver output is not private: log-ratios near 660 were seen where 1 was asked for, at cells that are 0 up to a
tolerance. So it is only a proposal, which is rounded and mixed until the integer check passes.

Two things keep the programme small, and change nothing. States that measure the same share a row: the mean of their
rows, weighted with the prior, meets every constraint and costs as much. The pairs of a clique Q are within e^epsilon of
one another exactly if one number lies below all their cells, and e^epsilon times it above. That takes 2 |Q| constraints
for each output in place of |Q| (|Q| - 1).
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
from fugu.places.tables import MOST_STATES, TableError, TableWeights, certified, check_table

__all__ = ["optimal_table"]

_MOST_EPSILON = 20
_TOLERANCE = 1e-9
_UNUSED = 2.0**-30
_LIMIT_REACHED = 1


class _Demand(NamedTuple):
    """Pairs of rows, n x n and symmetric, and the floor(e^epsilon 2^24) that they are to keep."""

    pairs: Bools
    bound: int


def optimal_table(
    hull: Hull,
    values: Ints,
    constraint: Bools,
    epsilon: Fraction | int | float,
    *,
    prior: ArrayLike | None = None,
    seconds: float = 60.0,
) -> TableWeights:
    """Compile a hull with a finite factor into the certified table with the least expected squared error.

    It minimises the sum over states of prior[i] W[i,z] |f(i) - o_z|^2 under the constraints of every protected pair.
    Those alone could let a state of C to which no protected pair leads be told apart for certain. So two states of C
    are also kept within e^(epsilon m), m their gauge rounded up, as staircase noise keeps them (theorem 6.3). Protected
    pairs in between may see to that already.

    f is (N, d), N at most 100; epsilon is at most 20. The prior is uniform over C by default; a state outside C counts
    with the row of its public surrogate. Outputs are the distinct measurements within C; those of no use are dropped.
    The solver may overlook a limit that is over before its first phase is, so allow some seconds. The table passes
    `check_table` for `protected_pairs` of the hull.

    Raises:
        TableError: The solver did not finish, or there are too many states, or C has one state. Or its measurements are
            all the same, the factor is infinite, or the prior is none.
        GraphError: epsilon is out of range.
    """
    if len(values) > MOST_STATES:
        raise TableError(f"a table has at most {MOST_STATES} states, not {len(values)}: use the staircase sampler")
    places = np.unique(values[constraint], axis=0)
    if constraint.sum() < 2 or len(places) < 2:
        raise TableError("there is nothing to choose among measurements that are all the same: use the fallback table")
    if hull.largest_gauge(places) == math.inf:
        raise TableError("the hull is flat: outputs would reveal for certain where the state is; cap it first")
    replaced = values[surrogates(values, constraint)]
    rows = np.argmax((replaced[:, None, :] == places[None, :, :]).all(axis=2), axis=1)
    away = np.sum((values[:, None, :] - places[None, :, :]).astype(np.float64) ** 2, axis=2)
    costs = np.zeros((len(places), len(places)))
    np.add.at(costs, rows, _distribution(prior, constraint)[:, None] * away)
    demands = _demands(hull, places, epsilon)
    mass = _solved(costs, demands, seconds)
    used = mass.max(axis=0) > _UNUSED
    mass = mass[:, used] / mass[:, used].sum(axis=1, keepdims=True)
    weights, share = certified(mass, demands)
    check_table(weights[rows], protected_pairs(hull, values, constraint), epsilon)
    return TableWeights(weights[rows], places[used], share)


def _distribution(prior: ArrayLike | None, constraint: Bools) -> Floats:
    distribution = constraint / constraint.sum() if prior is None else np.asarray(prior, dtype=np.float64)
    if (
        distribution.shape != constraint.shape
        or not np.all(distribution >= 0.0)
        or not abs(math.fsum(distribution) - 1.0) < 1e-6
    ):
        raise TableError(f"a prior is {len(constraint)} probabilities that sum to 1")
    return np.asarray(distribution, dtype=np.float64)


def _demands(hull: Hull, places: Ints, epsilon: Fraction | int | float) -> list[_Demand]:
    """Constraints on the rows of n distinct places: epsilon for pairs within K, and theorem 6.3 for all others."""
    near = hull.pairs_within(places)
    np.fill_diagonal(near, False)
    demands = [_Demand(near, floor_exp(epsilon))]
    steps = shortest_path(csr_array(near), unweighted=True)
    gauges = np.array([hull.ceil_gauges(place - places) for place in places])
    for size in np.unique(gauges[gauges < steps]).tolist():
        pairs = np.zeros_like(near)
        for i, j in np.argwhere(np.triu(gauges == size, 1)):
            if size < steps[i, j]:  # not implied by what is asked for so far
                pairs[i, j] = pairs[j, i] = True
                through = steps[:, i, None] + size + steps[None, j, :]
                steps = np.minimum(steps, np.minimum(through, through.T))
        demands.append(_Demand(pairs, floor_exp(min(Fraction(epsilon) * size, _MOST_EPSILON))))
    return demands


def _solved(costs: Floats, demands: list[_Demand], seconds: float) -> Floats:
    """Rows n x M of least total cost that meet the demands, up to the solver's tolerance."""
    count, choice = costs.shape
    # one block of M variables for each row, then one for each clique; a constraint reads low - high * factor <= 0
    smaller: list[int] = []
    larger: list[int] = []
    factors: list[float] = []
    blocks = count
    for pairs, bound in demands:
        ratio = bound / (1 << RATIO_BITS)
        for clique in _cliques(pairs):
            if len(clique) == 2:
                smaller += clique
                larger += clique[::-1]
                factors += [ratio] * 2
                continue
            smaller += [blocks] * len(clique) + clique
            larger += clique + [blocks] * len(clique)
            factors += [1.0] * len(clique) + [ratio] * len(clique)
            blocks += 1
    height, cells = len(smaller), np.arange(choice)
    lines = (np.arange(height)[:, None] * choice + cells).ravel()
    ones, scaled = np.ones(lines.size), np.repeat(-np.array(factors), choice)
    left, right = ((np.array(ends)[:, None] * choice + cells).ravel() for ends in (smaller, larger))
    bounds = coo_array(
        (np.concatenate([ones, scaled]), (np.concatenate([lines, lines]), np.concatenate([left, right]))),
        shape=(height * choice, blocks * choice),
    )
    sums = coo_array(
        (np.ones(count * choice), (np.repeat(np.arange(count), choice), np.arange(count * choice))),
        shape=(count, blocks * choice),
    )
    solution = linprog(
        np.concatenate([costs.ravel(), np.zeros((blocks - count) * choice)]),
        A_ub=bounds.tocsr(),
        b_ub=np.zeros(height * choice),
        A_eq=sums.tocsr(),
        b_eq=np.ones(count),
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
    mass = np.maximum(solution.x[: count * choice].reshape(count, choice), 0.0)
    return np.asarray(mass / mass.sum(axis=1, keepdims=True), dtype=np.float64)


def _cliques(pairs: Bools) -> Iterator[list[int]]:
    """Cliques that cover every pair; those of more than two states only where they save constraints."""
    pairs_left = pairs.copy()
    while pairs_left.any():
        i, j = divmod(int(np.argmax(pairs_left)), len(pairs_left))
        clique = [i, j]
        candidates = pairs[i] & pairs[j]
        while candidates.any():
            # the one with the most pairs still to cover, and of equals the lowest
            chosen = int(np.argmax(np.where(candidates, pairs_left[:, clique].sum(axis=1), -1)))
            clique.append(chosen)
            candidates &= pairs[chosen]
        inside = np.ix_(clique, clique)
        # both directions are counted in `left`, and a clique of k states costs 2 k constraints and a variable
        if pairs_left[inside].sum() > 2 * len(clique):
            pairs_left[inside] = False
            yield sorted(clique)
        else:
            pairs_left[i, j] = pairs_left[j, i] = False
            yield [i, j]
