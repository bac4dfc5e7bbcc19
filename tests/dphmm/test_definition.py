"""Definition 4.4, strict form, by brute force: random measurements, graphs and constraint sets, any rank."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest

from gateway.dphmm.graphs import BoolArray, IntArray, explicit, lattice, restrict
from gateway.dphmm.hull import gauge
from gateway.dphmm.protection import Protection, degree_of_protection, protect
from gateway.dphmm.ratios import floor_exp
from gateway.dphmm.tables import MeasurementTable, build_table, check_table, fallback_table

OBJECTIVES = ("error", "nearest", "area")


def random_case(seed: int) -> tuple[IntArray, BoolArray, BoolArray]:
    """Up to six states on a lattice whose rank may be too low, some edges, and at least two possible states."""
    generator = np.random.default_rng(seed)
    count, space = int(generator.integers(2, 7)), int(generator.integers(1, 4))
    basis = generator.integers(-1, 2, (int(generator.integers(1, space + 1)), space))
    values = lattice(generator.integers(-2, 3, (count, len(basis))) @ basis)
    pairs = [pair for pair in combinations(range(count), 2) if generator.random() < 0.35]
    constraint = generator.random(count) < 0.7
    constraint[generator.permutation(count)[:2]] = True
    return values, explicit(count, pairs), constraint


def close(table: MeasurementTable, i: int, k: int, bound: int) -> bool:
    """Whether no output separates i and k by more than bound / 2^24, one output at a time."""
    return all(
        int(a) * 2**24 <= bound * int(b) and int(b) * 2**24 <= bound * int(a)
        for a, b in zip(table.weights[i], table.weights[k], strict=True)
    )


@pytest.mark.parametrize("seed", range(90))
def test_no_output_separates_a_protected_pair(seed: int) -> None:
    values, graph, constraint = random_case(seed)
    epsilon = (0.3, 1.0, 2.5)[seed % 3]
    found: Protection = protect(values, graph, constraint, objective=OBJECTIVES[seed // 3 % 3])  # type: ignore[arg-type]
    states = np.flatnonzero(constraint).tolist()
    for state in states:
        gauges = [gauge(found.hull, (values[state] - values[k]).tolist()) for k in states]
        near = [k for k, size in zip(states, gauges, strict=True) if size <= 1]
        assert degree_of_protection(found.hull, values, constraint)[state] == len(near) >= 2
    if found.hull.rank == 0:
        assert len({tuple(values[state]) for state in states}) == 1  # nothing to tell apart
        return
    assert found.factor < math.inf
    if any(found.added):
        assert restrict(graph, constraint).sum() < found.graph.sum()
    table = build_table(found.hull, values, constraint, epsilon, most_outputs=60)
    bound = floor_exp(epsilon)
    for state in states:
        partners = [k for k in states if k != state and close(table, state, k, bound)]
        assert partners, "the same other state for every output"
        for neighbour in np.flatnonzero(found.graph[state]).tolist():
            assert neighbour in partners
    check_table(table.weights, found.graph, epsilon)


@pytest.mark.parametrize("seed", range(0, 90, 3))
def test_theorem_6_3_bounds_what_is_revealed_between_any_two_possible_states(seed: int) -> None:
    """Powers of the staircase are rounded up, so the bound is epsilon times the factor rounded up."""
    values, graph, constraint = random_case(seed)
    found = protect(values, graph, constraint, cap=Fraction(5, 2))
    if found.hull.rank == 0:
        return
    assert found.factor <= Fraction(5, 2) or not found.capped
    table = build_table(found.hull, values, constraint, 1, most_outputs=60)
    rows = table.weights[constraint].astype(float)
    worst = max(float(np.log(a / b).max()) for a in rows for b in rows)
    assert worst <= math.ceil(found.factor) + 1e-9


@pytest.mark.parametrize("seed", range(0, 90, 5))
def test_the_fallback_holds_for_every_graph_and_constraint(seed: int) -> None:
    values, graph, constraint = random_case(seed)
    if len({tuple(value) for value in values.tolist()}) == 1:
        return
    table = fallback_table(values, 1, most_outputs=80)
    for i, k in combinations(range(len(values)), 2):
        assert close(table, i, k, floor_exp(1))
    check_table(table.weights, protect(values, graph, constraint).graph, 1)
