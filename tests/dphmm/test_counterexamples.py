"""What the DPHMM paper gets wrong, each shown by an example; 14 is in test_constraints.py."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from fugu.cli.view.measure_plan import _edge_list as edge_list
from fugu.places.graphs import complete, lattice
from fugu.places.hull import difference_hull, graph_hull
from fugu.places.noise import noise_error
from fugu.places.protection import degree_of_protection, exposed, protect
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
    found = protect(VALUES, explicit(6, [(1, 2)]), constraint, objective="nearest")
    assert (found.added, exposed(found.hull, VALUES, constraint)) == (((4, 1),), [])


def test_counterexample_9_algorithm_3_takes_the_largest_hull_and_area_is_the_wrong_objective() -> None:
    candidates = PAPER["ex6.1"]["add"]
    by_area = {name: Fraction(candidate["area"]) for name, candidate in candidates.items()}
    hull = graph_hull(VALUES, TRIANGLE)
    errors = {name: noise_error(hull.extended(VALUES[2] - VALUES[int(name[3]) - 1])) for name in candidates}
    assert by_area == {"s3s4": 14, "s3s6": 20, "s3s5": 16}
    assert [round(math.sqrt(errors[name]), 3) for name in ("s3s4", "s3s6", "s3s5")] == [7.348, 7.071, 6.856]
    literal = PAPER["ex6.1"]["alg3_clockwise_literal"]["added"]
    assert literal == [max(by_area, key=lambda name: by_area[name])] == ["s3s6"]
    assert min(by_area, key=lambda name: by_area[name]) == "s3s4" != min(errors, key=lambda name: errors[name])
    # a determinant sum over clockwise vertices is minus twice the area
    corners = np.array(candidates["s3s6"]["verts_ccw"])[::-1]
    turned = sum(int(a[0] * b[1] - a[1] * b[0]) for a, b in zip(corners, np.roll(corners, -1, axis=0), strict=True))
    assert turned == -2 * by_area["s3s6"]


def test_counterexample_10_a_protectable_graph_can_reveal_the_component() -> None:
    """C = {s1, s2, s3, s4}: every state is protected, yet noise along (1, -1) tells s1s4 from s2s3 for certain."""
    constraint = states(6, 1, 2, 3, 4)
    flat = protect(VALUES, GRAPH, constraint, cap=None)
    assert (flat.added, flat.hull.rank, exposed(flat.hull, VALUES, constraint)) == ((), 1, [])
    assert flat.factor == math.inf
    for cap in (1, Fraction(3, 2), 2, 4, 10):
        found = protect(VALUES, GRAPH, constraint, cap=cap)
        assert (found.capped, found.hull.rank) == (True, 2)
        assert found.factor <= cap
        assert np.all(found.hull.pairs_within(VALUES) >= flat.hull.pairs_within(VALUES))


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
    """s1 has partner s2 for one query, s3 for the other: no one partner is within 1 + 1/9 of it for both."""
    golden = WRONG["thm71_counterexample"]
    gauges = []
    for f in (golden["f1"], golden["f2"]):
        values = lattice(f)
        hull = graph_hull(values, explicit(3, [(1, 2)]))
        assert exposed(hull, values, states(3)) == []
        gauges.append([hull.gauge((values[0] - values[other]).tolist()) for other in (1, 2)])
    assert np.array(gauges, dtype=float) == pytest.approx(np.array(golden["gauge_s1_to_s2_s3"]), rel=1e-12)
    joint = [first + second for first, second in zip(*gauges, strict=True)]
    assert float(min(joint)) == pytest.approx(golden["best_joint"], rel=1e-12)
    # one stacked query sees what both reveal: s1 is exposed, and gets an edge
    stacked = lattice(list(zip(golden["f1"], golden["f2"], strict=True)))
    assert exposed(graph_hull(stacked, explicit(3, [(1, 2)])), stacked, states(3)) == [0]
    found = protect(stacked, explicit(3, [(1, 2)]), states(3))
    assert exposed(found.hull, stacked, states(3)) == []


@pytest.mark.parametrize("case", WRONG["caseI"], ids=lambda case: case[0] + "".join(case[1]))
def test_counterexample_12_a_hull_does_not_protect_a_smaller_constraint_set(
    case: tuple[str, list[str], list[str], list[list[str]]],
) -> None:
    """Section 10.6, case I: a state protected by an added edge is exposed once its partner is ruled out."""
    edge, inside, alone, gauges = case
    hull = graph_hull(VALUES, TRIANGLE).extended(VALUES[2] - VALUES[int(edge[3]) - 1])
    constraint = states(6, *(int(name[1]) for name in inside))
    found = exposed(hull, VALUES, constraint)
    assert [f"s{state + 1}" for state in found] == alone
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
