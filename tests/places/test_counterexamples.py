"""Errors of the DPHMM paper, each shown by an example; 14 is in test_constraints.py."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from fugu.places.graphs import complete, edge_list, lattice
from fugu.places.hull import difference_hull, graph_hull
from fugu.places.noise import noise_error
from fugu.places.protection import degree_of_protection, exposed, protect
from papers.errata_dphmm import QUERIES, QUERY_GRAPH, greedy_area, least_area
from papers.graphs import explicit, one_step
from papers.neighbour_noise import l1_sensitivity, laplace_error
from tests.support.dphmm_cases import GOLDEN, GRAPH, VALUES, exact, states

PAPER = GOLDEN["paper"]
WRONG = GOLDEN["counterexamples"]
TRIANGLE = explicit(6, [(3, 4), (3, 5), (4, 5)])


def test_counterexample_8_an_isolated_state_is_exposed_though_it_is_its_own_partner() -> None:
    """Definition 4.4 as printed is met by s_k = s_j: s5 of example 5.2 has gauge 0 to itself, infinity to others."""
    hull = graph_hull(VALUES, explicit(6, [(1, 2)]))
    constraint = states(6, 2, 3, 5)
    assert hull.gauge((0, 0)) == 0
    assert exposed(hull, VALUES, constraint) == [4]
    assert degree_of_protection(hull, VALUES, constraint)[4] == 1
    # algorithm 1 as printed takes the nearest state, which is the state itself, and adds nothing
    printed = PAPER["ex5.2"]["greedy_printed_argmin_includes_self"]
    assert (printed["added"], printed["def44"]) == (["s5s5"], False)
    assert hull.extended(VALUES[4] - VALUES[4]).vertices.tolist() == hull.vertices.tolist()
    protection = protect(VALUES, explicit(6, [(1, 2)]), constraint, objective="nearest")
    assert (protection.added, exposed(protection.hull, VALUES, constraint)) == (((4, 1),), [])


def test_the_least_area_of_example_6_1_is_the_printed_edge_and_not_the_least_error() -> None:
    candidates = PAPER["ex6.1"]["add"]
    by_area = {name: Fraction(candidate["area"]) for name, candidate in candidates.items()}
    hull = graph_hull(VALUES, TRIANGLE)
    errors = {name: noise_error(hull.extended(VALUES[2] - VALUES[int(name[3]) - 1])) for name in candidates}
    assert by_area == {"s3s4": 14, "s3s6": 20, "s3s5": 16}
    assert [round(math.sqrt(errors[name]), 3) for name in ("s3s4", "s3s6", "s3s5")] == [7.348, 7.071, 6.856]
    assert min(by_area, key=lambda name: by_area[name]) == "s3s4" != min(errors, key=lambda name: errors[name])


def test_counterexample_10_a_protectable_graph_can_reveal_the_component() -> None:
    """C = {s1, s2, s3, s4}: every state is protected, yet noise along (1, -1) tells s1s4 from s2s3 for certain."""
    constraint = states(6, 1, 2, 3, 4)
    flat = protect(VALUES, GRAPH, constraint, cap=None)
    assert (flat.added, flat.hull.rank, exposed(flat.hull, VALUES, constraint)) == ((), 1, [])
    assert flat.factor == math.inf
    for cap in (1, Fraction(3, 2), 2, 4, 10):
        protection = protect(VALUES, GRAPH, constraint, cap=cap)
        assert (protection.capped, protection.hull.rank) == (True, 2)
        assert protection.factor <= cap
        assert np.all(protection.hull.pairs_within(VALUES) >= flat.hull.pairs_within(VALUES))


def test_counterexample_11_laplace_beats_knorm_in_three_dimensions() -> None:
    golden = WRONG["cor51_int"]
    values = lattice([(0, 0, 0), *golden["points"]])
    star = explicit(5, [(0, other) for other in range(1, 5)])
    assert l1_sensitivity(values, star) == golden["S"]
    assert laplace_error(values, star, 1.0) == pytest.approx(golden["laplace_mse"], rel=1e-12)
    assert float(noise_error(graph_hull(values, star))) == pytest.approx(golden["knorm_mse"], rel=1e-12)
    assert golden["laplace_mse"] < golden["knorm_mse"]


def test_corollary_5_1_holds_in_the_plane_on_random_examples() -> None:
    generator = np.random.default_rng(11)
    for _ in range(200):
        values = generator.integers(-6, 7, (5, 2))
        if (values[0] == values[1]).all():
            continue
        graph = explicit(5, [(0, 1), (1, 2), (3, 4)])
        ratio = float(noise_error(graph_hull(values, graph))) / laplace_error(values, graph, 1.0)
        assert ratio <= 1.0 + 1e-12
    assert WRONG["cor51_d2_worst_ratio"] <= 1.0


def test_counterexample_12_two_protected_queries_together_expose_a_state() -> None:
    """One graph, s2s3: s1 has gauges 2 and 1 to s2 and s3 for one query, 1 and 2 for the other, hence 3 for both."""
    gauges = []
    for values in QUERIES:
        hull = graph_hull(values, QUERY_GRAPH)
        assert exposed(hull, values, states(3)) == []
        gauges.append([hull.gauge((values[0] - values[other]).tolist()) for other in (1, 2)])
    assert gauges == [[2, 1], [1, 2]]
    # one stacked query sees what both reveal: s1 is exposed, and gets an edge
    stacked = np.hstack(QUERIES)
    assert exposed(graph_hull(stacked, QUERY_GRAPH), stacked, states(3)) == [0]
    repaired = protect(stacked, QUERY_GRAPH, states(3))
    assert exposed(repaired.hull, stacked, states(3)) == []


def test_algorithm_3_misses_the_least_area_in_either_order() -> None:
    assert [greedy_area(order) for order in ((3, 4), (4, 3))] == [25, 26]
    assert least_area([3, 4]) == 23


@pytest.mark.parametrize("case", WRONG["caseI"], ids=lambda case: case[0] + "".join(case[1]))
def test_counterexample_12_a_hull_does_not_protect_a_smaller_constraint_set(
    case: tuple[str, list[str], list[str], list[list[str]]],
) -> None:
    """Section 10.6, case I: a state protected by an added edge is exposed once its partner is ruled out."""
    edge, inside, alone, gauges = case
    hull = graph_hull(VALUES, TRIANGLE).extended(VALUES[2] - VALUES[int(edge[3]) - 1])
    constraint = states(6, *(int(name[1]) for name in inside))
    shown = exposed(hull, VALUES, constraint)
    assert [f"s{state + 1}" for state in shown] == alone
    nearest = []
    pairs = [(2, int(inside[1][1]) - 1)] * 2 if len(inside) == 2 else [(2, int(name[1]) - 1) for name in inside[1:]]
    for here, there in pairs:
        nearest.append(hull.gauge((VALUES[here] - VALUES[there]).tolist()))
    assert nearest == [exact(written) for _, written in gauges]
    assert min(nearest) > 1


def test_counterexample_13_laplace_noise_at_scale_one_has_variance_two() -> None:
    assert laplace_error(lattice([0, 1]), complete(2), 1.0) == 2.0
    assert laplace_error(VALUES, GRAPH, 1.0) == pytest.approx(PAPER["ex5.1"]["laplace_rmse_eps1_S5"] ** 2, rel=1e-12)
    assert l1_sensitivity(VALUES, GRAPH) == PAPER["ex5.1"]["l1_sensitivity"]
    assert l1_sensitivity(VALUES, explicit(6, [(1, 2)])) == PAPER["ex5.2"]["l1"]


def test_counterexample_13_a_transition_graph_needs_some_common_predecessor_not_all() -> None:
    """States 1 and 2 follow from 0, not from 3: "for all i" would leave them apart."""
    assert edge_list(one_step([[0, 1, 1, 0], [0, 1, 0, 0], [0, 0, 1, 0], [1, 0, 0, 1]])) == [(0, 3), (1, 2)]


def test_laplace_noise_does_not_protect_a_pair_without_an_edge() -> None:
    """Example 5.2: in the L1 ball, s5 is 1.5 times further from s2 and s3 than Laplace noise allows for."""
    ball = difference_hull([[2, 0], [0, 2]])
    for name, ratio in PAPER["ex5.2"]["laplace_log_ratio_over_eps"].items():
        difference = VALUES[4] - VALUES[int(name[4]) - 1]
        assert ball.gauge(difference.tolist()) == Fraction(ratio)
    assert graph_hull(VALUES, explicit(6, [(1, 2)])).largest_gauge(VALUES[states(6, 2, 3, 5)]) == math.inf
    assert ball.largest_gauge(VALUES[[1, 2]]) == 1
