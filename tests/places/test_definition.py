"""Definition 4.4, strict form, by brute force: random measurements, graphs and constraint sets, any rank."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from fugu.places.graphs import restrict
from fugu.places.noise import floor_exp
from fugu.places.protection import Protection, degree_of_protection, protect
from fugu.places.tables import build_table, check_table
from tests.support.dphmm_cases import OBJECTIVES, close, random_case


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
