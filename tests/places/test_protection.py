"""Policy graphs and their protection: all 63 constraint sets of the six-state example, and three objectives."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from fugu.places.graphs import GraphError, complete, edge_list, lattice, restrict
from fugu.places.hull import complete_hull, graph_hull
from fugu.places.noise import noise_error
from fugu.places.protection import (
    Objective,
    cheapest_difference,
    degree_of_protection,
    list_exposed,
    protect,
    protected_pairs,
    unbounded_factors,
)
from papers.graphs import explicit, one_step, within_radius
from tests.support.dphmm_cases import GOLDEN, GRAPH, VALUES, exact, grid, states

PAPER = GOLDEN["paper"]
SUBSETS = GOLDEN["six_state_all_subsets"]
TRIANGLE = explicit(6, [(3, 4), (3, 5), (4, 5)])
OBJECTIVES: dict[Objective, str] = {"nearest": "greedy_nearest", "area": "alg3_area", "error": "alg3_rmse"}


def added(edges: tuple[tuple[int, int], ...]) -> list[list[int]]:
    return [[state + 1, partner + 1] for state, partner in edges]


@pytest.mark.parametrize("case", SUBSETS, ids=lambda case: "".join(map(str, case["C"])))
def test_every_constraint_set_of_the_six_state_example(case: dict[str, Any]) -> None:
    constraint = states(6, *case["C"])
    plain = graph_hull(VALUES, GRAPH & constraint[:, None] & constraint[None, :])
    assert [state + 1 for state in list_exposed(plain, VALUES, constraint)] == case["exposed"]
    nearest = protect(VALUES, GRAPH, constraint, objective="nearest", cap=None)
    assert added(nearest.added_edges) == case["greedy_added"]
    assert (nearest.hull.rank, nearest.hull.area) == (case["rank"], Fraction(case["area"]))
    assert degree_of_protection(nearest.hull, VALUES, constraint).tolist() == case["dop"]
    assert nearest.factor == exact(case["factor"]) == nearest.hull.largest_gauge(VALUES[constraint])
    assert math.sqrt(noise_error(nearest.hull)) == pytest.approx(case["rmse_eps1"], rel=1e-12)
    best = protect(VALUES, GRAPH, constraint, cap=None)
    assert added(best.added_edges) == case["alg3_rmse_added"]
    assert math.sqrt(noise_error(best.hull)) == pytest.approx(case["alg3_rmse"], rel=1e-12)
    assert best.exposed == ((case["C"][0] - 1,) if len(case["C"]) == 1 else ())
    whole = graph_hull(VALUES, GRAPH)
    if len(case["C"]) > 1:
        assert (list_exposed(whole, VALUES, constraint) == []) == case["ok44_with_unconstrained_K51"]


def test_a_flat_hull_is_capped_so_that_no_point_reveals_the_component() -> None:
    """C = {s1, s2, s3, s4}: every state is protected, yet noise along (1, -1) tells s1s4 from s2s3 for certain."""
    constraint = states(6, 1, 2, 3, 4)
    flat = protect(VALUES, GRAPH, constraint, cap=None)
    assert (flat.added_edges, flat.hull.rank, list_exposed(flat.hull, VALUES, constraint)) == ((), 1, [])
    assert flat.factor == math.inf
    for cap in (1, Fraction(3, 2), 2, 4, 10):
        protection = protect(VALUES, GRAPH, constraint, cap=cap)
        assert (protection.is_capped, protection.hull.rank) == (True, 2)
        assert protection.factor <= cap
        assert np.all(protection.hull.pairs_within(VALUES) >= flat.hull.pairs_within(VALUES))


def test_degrees_of_protection_of_the_paper() -> None:
    hull = graph_hull(VALUES, GRAPH)
    assert degree_of_protection(hull, VALUES, states(6)).tolist() == PAPER["ex5.1"]["dop_all_states"]
    triangle = graph_hull(VALUES, TRIANGLE)
    assert degree_of_protection(triangle, VALUES, states(6, 2, 4, 5, 6)).tolist() == PAPER["fig9a"]["dop"]
    assert degree_of_protection(triangle, VALUES, states(6, 3, 4, 5, 6)).tolist() == PAPER["ex6.1"]["dop"]


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("example", ["ex5.2", "ex6.1"])
def test_edges_added_in_the_paper_s_examples(example: str, objective: Objective) -> None:
    """Example 5.2 has the graph s2s3 and the states s2, s3, s5; example 6.1 the triangle and s3."""
    graph, constraint = {
        "ex5.2": (explicit(6, [(1, 2)]), states(6, 2, 3, 5)),
        "ex6.1": (TRIANGLE, states(6, 3, 4, 5, 6)),
    }[example]
    golden = PAPER[example]
    assert [f"s{state + 1}" for state in list_exposed(graph_hull(VALUES, graph), VALUES, constraint)] == golden[
        "exposed"
    ]
    protection = protect(VALUES, graph, constraint, objective=objective)
    expected = golden[OBJECTIVES[objective]]
    assert [f"s{state + 1}s{partner + 1}" for state, partner in protection.added_edges] == expected["added"]
    assert protection.hull.area == expected["area"]
    assert math.sqrt(noise_error(protection.hull)) == pytest.approx(expected["rmse"], rel=1e-12)


@pytest.mark.parametrize("partner", ["s3s4", "s3s5", "s3s6"])
def test_each_candidate_of_example_6_1(partner: str) -> None:
    golden = PAPER["ex6.1"]["add"][partner]
    graph = TRIANGLE | explicit(6, [(2, int(partner[3]) - 1)])
    constraint = states(6, 3, 4, 5, 6)
    hull = graph_hull(VALUES, graph)
    assert degree_of_protection(hull, VALUES, constraint).tolist() == golden["dop"]
    assert hull.largest_gauge(VALUES[constraint]) == Fraction(golden["factor_exact"])
    assert math.dist(VALUES[2], VALUES[int(partner[3]) - 1]) == pytest.approx(golden["dist_s3"], rel=1e-12)


def test_the_order_of_the_states_matters() -> None:
    """Five states, an edge between the first two: taking s5 before s4 adds two edges and needs 1.22 times the noise."""
    _, points, ((few, *first), (many, *second)) = GOLDEN["counterexamples"]["order_example"]
    for order, edges, (size, rmse, degrees) in (([0, 1, 2, 3, 4], few, first), ([0, 1, 2, 4, 3], many, second)):
        values = lattice([points[state] for state in order])
        protection = protect(values, explicit(5, [(0, 1)]), states(5), objective="nearest")
        assert [[order[state], order[partner]] for state, partner in protection.added_edges] == edges
        assert protection.hull.area == size
        assert math.sqrt(noise_error(protection.hull)) == pytest.approx(rmse, rel=1e-12)
        found_degrees = degree_of_protection(protection.hull, values, states(5)).tolist()
        assert [found_degrees[order.index(state)] for state in range(5)] == degrees


def test_an_edge_for_one_state_may_protect_the_next() -> None:
    """Of three equally spaced states without edges, the first edge protects all."""
    protection = protect(lattice([0, 1, 2]), explicit(3, []), states(3))
    assert protection.added_edges == ((0, 1),)
    assert degree_of_protection(protection.hull, lattice([0, 1, 2]), states(3)).tolist() == [2, 3, 2]


def test_states_with_equal_measurements_protect_each_other() -> None:
    values = lattice([(1, 1), (1, 1)])
    protection = protect(values, explicit(2, []), states(2))
    assert (protection.added_edges, protection.hull.rank, protection.factor) == ((), 0, 0)
    assert protected_pairs(protection.hull, values, states(2)).tolist() == complete(2).tolist()


def test_nothing_protects_the_only_state() -> None:
    protection = protect(VALUES, GRAPH, states(6, 4))
    assert (protection.exposed, protection.added_edges, protection.factor) == ((3,), (), 0)


def test_ties_go_to_the_lowest_index() -> None:
    values = lattice([(0, 0), (1, 0), (0, 1), (-1, 0), (0, -1)])
    for objective in OBJECTIVES:
        assert protect(values, explicit(5, []), states(5), objective=objective).added_edges[0] == (0, 1)


@pytest.mark.long
@pytest.mark.parametrize("seed", sorted({*range(8)} - {2, 5}))
def test_quick_estimates_leave_the_exact_choice_as_it_is(seed: int) -> None:
    """Against every candidate's hull, exactly; in one to three dimensions, flat and capped hulls included."""
    generator = np.random.default_rng(seed)
    space = 1 + seed % 3
    values = generator.integers(-5, 6, (9, space))
    hull = graph_hull(values, explicit(9, [(0, 1), (2, 3), (4, 5)][: 1 + seed % 4]))
    if seed % 2 and hull.rank:
        hull = hull.capped(complete_hull(values), Fraction(5, 2))
    differences = generator.integers(-7, 8, (25, space))
    grown = [hull.extended(difference) for difference in differences]
    for by_error in (False, True):
        costs = [noise_error(region) if by_error else region.area for region in grown]
        assert cheapest_difference(hull, differences, by_error=by_error) == costs.index(min(costs))


def test_refusals() -> None:
    with pytest.raises(GraphError, match="nothing to protect"):
        protect(VALUES, GRAPH, np.zeros(6, dtype=np.bool_))
    with pytest.raises(GraphError, match="cap is at least 1"):
        protect(VALUES, GRAPH, states(6), cap=Fraction(99, 100))
    with pytest.raises(GraphError, match="error, nearest or area"):
        protect(VALUES, TRIANGLE, states(6, 3, 4, 5, 6), objective="printed")


def test_unbounded_factors_of_example_5_3() -> None:
    """Absence answers (0, 0), as s2 does; off the span of a hull it is told for certain."""
    values = lattice([(1, 0), (0, 0), (1, 0), (0, 1), (1, 0), (0, 1)])
    hull = graph_hull(values, GRAPH)
    assert hull.vertices.tolist() == PAPER["ex5.3"]["verts_ccw"]
    assert list(unbounded_factors(hull, values)) == [exact(each) for each in PAPER["ex5.3"]["unbounded_factors"]]
    flat = graph_hull(values, explicit(6, [(1, 2)]))
    assert list(unbounded_factors(flat, values)) == [1, 0, 1, math.inf, 1, math.inf]


def test_a_complete_graph_joins_every_pair_and_no_state_to_itself() -> None:
    assert edge_list(complete(3)) == [(0, 1), (0, 2), (1, 2)]
    assert edge_list(complete(1)) == []


@pytest.mark.parametrize(
    ("radius", "edges"), [(0, 0), (Fraction(99, 100), 0), (1, 12), (1.4142135623730951, 20), (1.4142, 12)]
)
def test_a_pair_at_exactly_the_radius_is_an_edge(radius: float, edges: int) -> None:
    """On a 3 x 3 grid; the float next to the root of 2 squares to a little more than 2, 1.4142 to less."""
    assert len(edge_list(within_radius(grid(3), radius))) == edges


def test_a_transition_graph_joins_states_with_a_common_predecessor() -> None:
    example = GOLDEN["forward_example"]
    assert [[i + 1, j + 1] for i, j in edge_list(one_step(example["M"]))] == example["G_trs_edges"]


def test_a_restricted_graph_keeps_the_edges_inside_the_constraint() -> None:
    assert edge_list(restrict(GRAPH, states(6, 1, 3, 4, 5))) == [(3, 4)]


@pytest.mark.parametrize("edge", [(0, 0), (0, 3), (-1, 1)])
def test_an_edge_joins_two_states_that_are_there(edge: tuple[int, int]) -> None:
    with pytest.raises(GraphError, match="does not join"):
        explicit(3, [edge])


@pytest.mark.parametrize(
    "points", [[[0.5, 1]], [[65536, 0]], [[float("nan"), 0]], [[1, 2, 3, 4]], np.zeros((0, 2)), np.zeros((2, 2, 2))]
)
def test_measurements_are_whole_numbers_in_at_most_three_dimensions(points: object) -> None:
    with pytest.raises(GraphError):
        lattice(points)


def test_the_largest_coordinate_is_taken() -> None:
    assert lattice([65535, -65535]).tolist() == [[65535], [-65535]]


@pytest.mark.parametrize("radius", [-1, float("inf"), float("nan")])
def test_a_radius_is_finite_and_not_negative(radius: float) -> None:
    with pytest.raises(GraphError, match="radius"):
        within_radius(grid(2), radius)


def test_a_graph_needs_a_state_and_a_matrix_needs_to_be_square() -> None:
    with pytest.raises(GraphError, match="at least one state"):
        complete(0)
    with pytest.raises(GraphError, match="square"):
        one_step([[1.0, 0.0]])
