"""Measurement queries: rounding to a resolution, and several queries at once against separate answers."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pytest

from fugu.places.graphs import GraphError, lattice, scale_points
from fugu.places.hull import graph_hull
from fugu.places.protection import degree_of_protection, list_exposed, protect, protected_pairs
from fugu.places.tables import build_table, table_loss
from papers.composition import joint_epsilon, joint_loss, stacked
from papers.graphs import explicit
from tests.support.dphmm_cases import GOLDEN, states, strict_epsilon


def test_a_value_goes_to_the_nearest_multiple_and_halves_go_up() -> None:
    assert scale_points([0.24, 0.25, 0.26, -0.25, -0.26, -0.05], 0.5).ravel().tolist() == [0, 1, 1, 0, -1, 0]
    assert scale_points([0.15, 0.25, 0.35, -0.15], 0.1).ravel().tolist() == [2, 3, 4, -1]
    assert scale_points([0.15, 0.25], np.float64(0.1)).tolist() == [[2], [3]]
    assert scale_points([4, 5], np.int64(2)).tolist() == [[2], [3]]
    assert scale_points([Fraction(1, 6), Fraction(1, 6) - Fraction(1, 10**30)], Fraction(1, 3)).ravel().tolist() == [
        1,
        0,
    ]
    assert scale_points(np.array([[1, 20], [3, 40]]), [Fraction(1, 2), 10]).tolist() == [[2, 2], [6, 4]]
    assert scale_points(np.float32([0.1, 0.3]).tolist(), 0.1).ravel().tolist() == [1, 3]


def test_shifting_by_the_resolution_shifts_the_result_by_one() -> None:
    values = [Fraction(step, 20) for step in range(-60, 61)]
    for shift in (1, -3, 40):
        moved = scale_points([value + shift * Fraction(1, 4) for value in values], Fraction(1, 4))
        assert np.array_equal(moved, scale_points(values, Fraction(1, 4)) + shift)
    nearest = scale_points(values, 0.25).ravel().tolist()
    errors = [abs(value - step * Fraction(1, 4)) for value, step in zip(values, nearest, strict=True)]
    assert max(errors) <= Fraction(1, 8)


@pytest.mark.parametrize(
    ("values", "resolution", "message"),
    [
        ([1.0, math.nan], 1, "finite"),
        ([1.0, math.inf], 1, "finite"),
        ([1.0], math.inf, "finite"),
        ([1.0], 0, "above 0"),
        ([[1.0, 2.0]], [1, -1], "above 0"),
        ([[1.0, 2.0]], [1], "1 resolutions do not fit"),
        ([1e30], 1, "coarser resolution"),
        (3.0, 1, "one per state"),
        ([[1.0, 2.0, 3.0, 4.0]], 1, "1 to 3 dimensions"),
        (["a"], 1, "finite"),
    ],
)
def test_what_cannot_be_scaled(values: Any, resolution: Any, message: str) -> None:
    with pytest.raises(GraphError, match=message):
        scale_points(values, resolution)


def test_queries_side_by_side() -> None:
    assert stacked([1, 2], [(3, 4), (5, 6)]).tolist() == [[1, 3, 4], [2, 5, 6]]
    assert stacked([1, 2]).tolist() == [[1], [2]]
    with pytest.raises(GraphError, match="at most 3 dimensions together, not 4"):
        stacked([(1, 2)], [(3, 4)])
    with pytest.raises(GraphError, match="same states"):
        stacked([1, 2], [1, 2, 3])
    with pytest.raises(GraphError, match="same states"):
        stacked()


def worst_ratio(tables: list[np.ndarray], i: int, k: int) -> Fraction:
    """The largest likelihood ratio between i and k over every combination of outputs, exactly."""
    worst = Fraction(0)
    for outputs in product(*(range(table.shape[1]) for table in tables)):
        pair = [Fraction(1)] * 2
        for table, z in zip(tables, outputs, strict=True):
            pair = [pair[0] * int(table[i, z]), pair[1] * int(table[k, z])]
        worst = max(worst, pair[0] / pair[1], pair[1] / pair[0])
    return worst


def test_counterexample_12_separate_answers_expose_a_state_and_one_stacked_answer_does_not() -> None:
    """s1's partner is s2 for one query and s3 for the other: each is protected alone, at 1; together nobody is, at 2.

    Every pair of outputs of two certified tables is tried.
    """
    golden = GOLDEN["counterexamples"]["thm71_counterexample"]
    graph, everyone = explicit(3, [(1, 2)]), states(3)
    queries = [lattice(golden["f1"]), lattice(golden["f2"])]
    tables = []
    for values in queries:
        hull = graph_hull(values, graph)
        assert list_exposed(hull, values, everyone) == []
        tables.append(build_table(hull, values, everyone, 1, most_outputs=16).weights)
        assert strict_epsilon(table_loss(tables[-1]), everyone) <= 1.0 + 1e-9
    # the theorem as printed promises eps1 + eps2 = 2
    together = joint_loss([table_loss(table) for table in tables])
    for i, k in ((0, 1), (0, 2), (1, 2)):
        exact = math.log(worst_ratio(tables, i, k))
        assert exact <= max(together[i, k], together[k, i]) <= exact + 1e-9
    partners = [math.log(worst_ratio(tables, 0, k)) for k in (1, 2)]
    assert strict_epsilon(together, everyone) == pytest.approx(min(partners), abs=1e-9)
    assert min(partners) > 2.0, "above eps1 + eps2, for either partner"
    with pytest.raises(GraphError, match="same pairs"):
        joint_epsilon([protected_pairs(graph_hull(values, graph), values, everyone) for values in queries], [1.0, 1.0])
    both = stacked(*queries)
    protection = protect(both, graph, everyone)
    answer = build_table(protection.hull, both, everyone, 1, most_outputs=130).weights
    assert strict_epsilon(table_loss(answer), everyone) <= 1.0 + 1e-9
    assert min(math.log(worst_ratio([answer], 0, k)) for k in (1, 2)) <= 1.0


def test_epsilons_add_up_over_the_same_pairs() -> None:
    values = lattice([0, 1, 3])
    hull = graph_hull(values, explicit(3, [(0, 1), (1, 2)]))
    pairs = protected_pairs(hull, values, states(3))
    tables = [build_table(hull, values, states(3), epsilon).weights for epsilon in (1.0, 0.5)]
    total = joint_epsilon([pairs, pairs], [1.0, 0.5])
    assert 1.5 <= total < 1.5 + 1e-9
    for i, k in np.argwhere(pairs).tolist():
        assert math.log(worst_ratio(tables, i, k)) <= total
    assert degree_of_protection(hull, values, states(3)).min() >= 2
