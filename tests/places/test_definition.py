"""Definition 4.4, strict form, by brute force: random measurements, graphs and constraint sets, any rank."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest

from fugu.places.graphs import complete, restrict
from fugu.places.noise import floor_exp
from fugu.places.protection import Protection, degree_of_protection, protect, protected_pairs
from fugu.places.tables import TableError, build_table, check_table, table_loss
from papers.walks import fallback_table
from tests.support.dphmm_cases import OBJECTIVES, close, random_case, strict_epsilon


@pytest.mark.long
@pytest.mark.parametrize("seed", sorted({*range(24)} - {4, 15}))
def test_no_output_separates_a_protected_pair(seed: int) -> None:
    values, graph, constraint = random_case(seed)
    epsilon = (0.3, 1.0, 2.5)[seed % 3]
    protection: Protection = protect(values, graph, constraint, objective=OBJECTIVES[seed // 3 % 3])  # type: ignore[arg-type]
    states = np.flatnonzero(constraint).tolist()
    for state in states:
        gauges = [protection.hull.gauge((values[state] - values[k]).tolist()) for k in states]
        near = [k for k, size in zip(states, gauges, strict=True) if size <= 1]
        assert degree_of_protection(protection.hull, values, constraint)[state] == len(near) >= 2
    if protection.hull.rank == 0:
        assert len({tuple(values[state]) for state in states}) == 1  # nothing to tell apart
        return
    assert protection.factor < math.inf
    if any(protection.added):
        assert restrict(graph, constraint).sum() < protection.graph.sum()
    table = build_table(protection.hull, values, constraint, epsilon, most_outputs=60)
    bound = floor_exp(epsilon)
    for state in states:
        partners = [k for k in states if k != state and close(table, state, k, bound)]
        assert partners, "the same other state for every output"
        for neighbour in np.flatnonzero(protection.graph[state]).tolist():
            assert neighbour in partners
    check_table(table.weights, protection.graph, epsilon)


@pytest.mark.long
@pytest.mark.parametrize("seed", sorted({*range(24)} - {15}))
def test_theorem_6_3_bounds_what_is_revealed_between_any_two_possible_states(seed: int) -> None:
    """Powers of the staircase are rounded up, so the bound is epsilon times the factor rounded up."""
    values, graph, constraint = random_case(seed)
    protection = protect(values, graph, constraint, cap=Fraction(5, 2))
    if protection.hull.rank == 0:
        return
    assert protection.factor <= Fraction(5, 2) or not protection.capped
    table = build_table(protection.hull, values, constraint, 1, most_outputs=60)
    rows = table.weights[constraint].astype(float)
    worst = max(float(np.log(a / b).max()) for a in rows for b in rows)
    assert worst <= math.ceil(protection.factor) + 1e-9


@pytest.mark.parametrize("seed", range(1, 90, 8))
def test_the_fallback_holds_for_every_graph_and_constraint(seed: int) -> None:
    """Every pair of states, so every constraint set: any other state of C will do as the partner."""
    values, graph, constraint = random_case(seed)
    if len({tuple(value) for value in values.tolist()}) == 1:
        return
    epsilon = (0.3, 1.0, 2.5)[seed % 3]
    table = fallback_table(values, epsilon, most_outputs=80)
    for i, k in combinations(range(len(values)), 2):
        assert close(table, i, k, floor_exp(epsilon))
    loss = table_loss(table.weights)
    for size in range(2, len(values) + 1):
        for chosen in combinations(range(len(values)), size):
            inside = np.isin(np.arange(len(values)), chosen)
            assert strict_epsilon(loss, inside) <= epsilon + 1e-9
            check_table(table.weights, restrict(complete(len(values)), inside), epsilon)
    check_table(table.weights, protect(values, graph, constraint).graph, epsilon)


@pytest.mark.long
@pytest.mark.parametrize("seed", sorted({*range(12)} - {4}))
def test_a_certified_table_is_refused_once_a_weight_is_beyond_the_bound(seed: int) -> None:
    """For each protected pair the output nearest to its bound, one unit above it; the row's sum is kept."""
    values, graph, constraint = random_case(seed)
    epsilon = (0.3, 1.0, 2.5)[seed % 3]
    hull = protect(values, graph, constraint).hull
    if hull.rank == 0:
        return
    table = build_table(hull, values, constraint, epsilon, most_outputs=60).weights
    pairs = protected_pairs(hull, values, constraint)
    check_table(table, pairs, epsilon)
    refused = 0
    for i, k in np.argwhere(pairs):
        z = int(np.argmax(table[i] / table[k]))
        most = floor_exp(epsilon) * int(table[k, z]) // 2**24
        changed = table.copy()
        richest = int(np.argmax(np.where(np.arange(table.shape[1]) == z, 0, table[i])))
        changed[i, richest] -= most + 1 - changed[i, z]
        changed[i, z] = most + 1
        if changed[i, richest] >= 1:
            refused += 1
            with pytest.raises(TableError, match="further apart"):
                check_table(changed, pairs, epsilon)
    assert refused
