"""Sensitivity hulls, gauges, moments and lattice coordinates: the paper's examples, and oracles."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import combinations, product
from typing import Any

import numpy as np
import pytest
from scipy.optimize import linprog
from scipy.spatial import ConvexHull

from fugu.places.graphs import GraphError, complete, lattice
from fugu.places.hull import Hull, complete_hull, difference_hull, graph_hull
from fugu.places.noise import boundary_points, noise_covariance, noise_error
from fugu.places.tables import bezout, lattice_basis, unroll
from papers.graphs import explicit, within_radius
from papers.neighbour_noise import measure
from tests.support.dphmm_cases import GOLDEN, GRAPH, VALUES, exact, grid

PAPER = GOLDEN["paper"]
TRIANGLE = explicit(6, [(3, 4), (3, 5), (4, 5)])
HULLS: dict[str, tuple[Hull, dict[str, Any]]] = {
    "ex5.1": (graph_hull(VALUES, GRAPH), PAPER["ex5.1"]),
    "ex5.2": (graph_hull(VALUES, explicit(6, [(1, 2)])), PAPER["ex5.2"]),
    "fig9a": (graph_hull(VALUES, TRIANGLE), PAPER["fig9a"]),
    "ex6.1": (graph_hull(VALUES, TRIANGLE), PAPER["ex6.1"]),
    "ex5.3": (difference_hull(PAPER["ex5.3"]["delta_f_columns"]), PAPER["ex5.3"]),
    "ex10.8": (graph_hull(VALUES, TRIANGLE), PAPER["ex10.8"]["under_fig3b_clique_K_for_any_true_state"]),
} | {
    f"ex6.1 {name}": (graph_hull(VALUES, TRIANGLE).extended(VALUES[2] - VALUES[partner]), PAPER["ex6.1"]["add"][name])
    for name, partner in (("s3s4", 3), ("s3s5", 4), ("s3s6", 5))
}


@pytest.mark.parametrize("name", HULLS)
def test_hulls_of_the_paper(name: str) -> None:
    hull, golden = HULLS[name]
    assert hull.rank == golden["rank"]
    assert hull.vertices.tolist() == golden["verts_ccw"]
    assert hull.area == Fraction(golden["area"])
    assert boundary_points(hull) == golden["B"]
    assert math.sqrt(noise_error(hull, 1)) == pytest.approx(golden["rmse_eps1"], rel=1e-12)
    assert np.array(noise_covariance(hull, 1), dtype=float) == pytest.approx(np.array(golden["cov_eps1"]), rel=1e-12)
    assert math.log(math.factorial(hull.rank) * measure(hull)) == pytest.approx(golden["log_norm_eps1"], rel=1e-12)
    for normal, offset, facet in zip(hull.normals, hull.offsets, golden.get("facets_nx_ny_D", []), strict=False):
        assert [*normal.tolist(), int(offset)] == facet
    for n, count in enumerate(golden.get("ehrhart_n1_to_4", []), 1):
        assert hull.area * n * n + Fraction(boundary_points(hull) * n, 2) + 1 == count


def test_differences_of_the_paper() -> None:
    first, second = np.nonzero(GRAPH)
    rows = sorted({tuple(row) for row in (VALUES[first] - VALUES[second]).tolist()})
    assert [list(row) for row in rows] == PAPER["ex5.1"]["delta_f_columns"]
    assert VALUES.T.tolist() == PAPER["ex3.2_f"]


def test_every_pairwise_gauge_of_the_example_is_exact() -> None:
    hull = HULLS["ex5.1"][0]
    for name, written in PAPER["ex5.1"]["gauge_pairs"].items():
        i, j = int(name[1]) - 1, int(name[3]) - 1
        assert hull.gauge((VALUES[i] - VALUES[j]).tolist()) == exact(written)


def test_a_point_on_the_boundary_is_inside_and_has_gauge_exactly_one() -> None:
    """Example 9(a): s2 and s5."""
    hull, golden = HULLS["fig9a"]
    for state, written in golden["gauges_from_s2"].items():
        assert hull.gauge((VALUES[1] - VALUES[int(state[1]) - 1]).tolist()) == exact(written)
    assert hull.gauge((VALUES[1] - VALUES[4]).tolist()) == 1
    assert hull.pairs_within(VALUES)[1, 4]
    for state, written in PAPER["ex6.1"]["gauges_from_s3"].items():
        assert hull.gauge((VALUES[2] - VALUES[int(state[1]) - 1]).tolist()) == exact(written)


def test_a_segment_has_gauge_infinity_off_its_line() -> None:
    hull, golden = HULLS["ex5.2"][0], GOLDEN["degenerate_segment_pm(1,-1)"]
    assert hull.gauge((2, -2)) == golden["gauge(2,-2)"]
    assert hull.gauge((1, 0)) == exact(golden["gauge(1,0)"]) == math.inf
    assert measure(hull) == pytest.approx(golden["length"], rel=1e-12)
    assert math.sqrt(noise_error(hull)) == pytest.approx(golden["rmse_eps1"], rel=1e-12)
    for name, pair in (("gauge_s5_s3", (4, 2)), ("gauge_s5_s2", (4, 1)), ("gauge_s2_s3", (1, 2))):
        assert hull.gauge((VALUES[pair[0]] - VALUES[pair[1]]).tolist()) == exact(PAPER["ex5.2"][name])


def test_a_hull_in_three_dimensions() -> None:
    golden = GOLDEN["hull3d"]
    hull = difference_hull(golden["points"])
    assert (hull.area, len(hull.faces)) == (golden["vol"], golden["facets"])
    assert noise_error(hull) == golden["rmse_eps1"] ** 2
    for point, value in golden["gauges"].items():
        written = [Fraction(part) for part in point.strip("()").split(",")]
        assert hull.gauge(written) == Fraction(str(value))


def test_a_polygon_in_three_dimensions() -> None:
    golden = GOLDEN["plane_in_R3"]
    hull = difference_hull([[1, 0, 1], [0, 1, 1]])
    assert (hull.rank, hull.area) == (golden["rank"], 0)
    assert measure(hull) == pytest.approx(golden["area"], rel=1e-12)
    assert hull.gauge((1, 1, 2)) == golden["gauge(1,1,2)"]
    assert hull.gauge((1, 1, 0)) == exact(golden["gauge(1,1,0)"])
    assert math.sqrt(noise_error(hull)) == pytest.approx(golden["rmse_eps1"], rel=1e-12)


def test_a_hull_in_one_dimension() -> None:
    hull = difference_hull([[3], [-2]])
    assert (hull.vertices.tolist(), hull.area) == ([[-3], [3]], 6)
    assert math.sqrt(noise_error(hull)) == pytest.approx(GOLDEN["d1_K=[-3,3]"]["rmse_eps1"], rel=1e-12)


def test_no_edges_make_the_point_zero() -> None:
    hull = difference_hull(np.zeros((0, 3)))
    assert (hull.rank, hull.gauge((0, 0, 0)), hull.gauge((0, 1, 0)), noise_error(hull)) == (0, 0, math.inf, 0)
    assert (hull.largest_gauge(VALUES[:1].repeat(3, axis=1)[:, :3]), measure(hull)) == (0, 1.0)
    assert hull.ceil_gauges(lattice([(0, 0, 0), (1, 0, 0)])).tolist() == [0, -1]


@pytest.mark.parametrize("seed", range(16))
def test_gauges_against_a_linear_programme(seed: int) -> None:
    """The gauge is the least total weight of differences that make up the point."""
    generator = np.random.default_rng(seed)
    space = int(generator.integers(1, 4))
    basis = generator.integers(-2, 3, (int(generator.integers(1, space + 1)), space))
    differences = generator.integers(-3, 4, (int(generator.integers(1, 9)), len(basis))) @ basis
    hull = difference_hull(differences)
    corners = np.concatenate([differences, -differences]).T
    points = np.concatenate([differences[:2], generator.integers(-3, 4, (4, len(basis))) @ basis, np.eye(space)])
    for point in points.astype(np.int64):
        best = linprog(np.ones(corners.shape[1]), A_eq=corners, b_eq=point)
        gauge = hull.gauge(point.tolist())
        assert (best.status == 2) == (gauge == math.inf)
        power = int(hull.ceil_gauges(point[None, :])[0])
        if gauge < math.inf:
            assert float(gauge) == pytest.approx(best.fun, abs=1e-9)
            assert power == math.ceil(gauge)
            assert bool(hull.pairs_within(np.stack([point, 0 * point]))[0, 1]) == (gauge <= 1)
        else:
            assert power == -1
    assert all(hull.gauge(vertex) == 1 for vertex in hull.vertices.tolist())


@pytest.mark.parametrize("reach", [2, 5, 1000, 65535])
@pytest.mark.parametrize("count", [3, 8, 60])
def test_hulls_in_space_against_qhull(reach: int, count: int) -> None:
    points = np.random.default_rng(count * reach + 1).integers(-reach, reach + 1, (count, 3))
    hull, other = difference_hull(points), ConvexHull(np.concatenate([points, -points]))
    assert float(hull.area) == pytest.approx(other.volume, rel=1e-9)
    assert len(hull.vertices) == len(other.vertices)
    edges = [pair for face in hull.faces for pair in zip(face, face[1:] + face[:1], strict=True)]
    assert len(hull.vertices) - len(edges) // 2 + len(hull.faces) == 2
    assert sorted(edges) == sorted((b, a) for a, b in edges)


@pytest.mark.parametrize(("space", "rank"), [(1, 1), (2, 1), (2, 2), (3, 1), (3, 2), (3, 3), (2, 0)])
def test_the_hull_of_all_differences_needs_only_extreme_points(space: int, rank: int) -> None:
    generator = np.random.default_rng(rank)
    values = generator.integers(-4, 5, (14, rank)) @ generator.integers(-2, 3, (rank, space)) + 7
    whole = graph_hull(values, complete(14))
    quick = complete_hull(values)
    assert sorted(whole.vertices.tolist()) == sorted(quick.vertices.tolist())


def test_the_largest_gauge_is_the_largest_of_all_pairs() -> None:
    generator = np.random.default_rng(5)
    for _ in range(20):
        values = generator.integers(-9, 10, (7, 2))
        hull = graph_hull(values, explicit(7, [(0, 1), (2, 3), (4, 5)]))
        pairs = combinations(values.tolist(), 2)
        assert hull.largest_gauge(values) == max(
            hull.gauge([a - b for a, b in zip(*pair, strict=True)]) for pair in pairs
        )


@pytest.mark.parametrize("case", ["6-state", "6x6 8nbr", "10x10 8nbr"])
def test_capped_hulls_of_the_examples(case: str) -> None:
    side = int(case.split("x")[0]) if "x" in case else 0
    values = grid(side) if side else VALUES
    hull = graph_hull(values, within_radius(values, 1.5)) if side else HULLS["ex5.1"][0]
    factor, error, caps = GOLDEN["capped_hull"][f"cap|{case}"]
    assert hull.largest_gauge(values) == factor
    assert math.sqrt(noise_error(hull)) == pytest.approx(error, rel=1e-12)
    for cap, capped_factor, capped_error in caps:
        result = hull.capped(complete_hull(values), Fraction(cap))
        assert result.largest_gauge(values) == Fraction(capped_factor)
        assert math.sqrt(noise_error(result)) == pytest.approx(capped_error, abs=6e-5)


def test_a_capped_flat_hull_keeps_its_points_and_bounds_every_pair() -> None:
    values = VALUES[:4]
    hull = graph_hull(VALUES, explicit(6, [(1, 2)]))
    assert hull.largest_gauge(values) == math.inf
    result = hull.capped(complete_hull(values), Fraction(7, 3))
    assert result.largest_gauge(values) == Fraction(7, 3)
    assert (result.gauge((1, -1)), result.rank) == (1, 2)
    assert measure(result) == pytest.approx(float(result.area), rel=1e-12)
    assert result.capped(complete_hull(values), 1).largest_gauge(values) == 1


def test_capping_a_flat_hull_costs_more_the_less_it_may_leak() -> None:
    """The segment to (0, 1) among states of a box of 5 x 1, capped at 10, 5, 2 and 1."""
    box = difference_hull([[5, 1], [5, -1]])
    for name in (10, 5, 2, 1):
        [error] = GOLDEN["capped_hull"][f"leakcap|{name}"]
        result = difference_hull([[0, 1]]).capped(box, name)
        assert math.sqrt(noise_error(result)) == pytest.approx(error, rel=1e-12)


def test_a_larger_hull_can_need_less_noise() -> None:
    """Adding (1, -1) to the hull of example 9(a) lowers the error."""
    before, after, added = GOLDEN["lattice_padding"]["pad|fig9 K0"]
    hull = HULLS["fig9a"][0]
    assert math.sqrt(noise_error(hull)) == pytest.approx(before, rel=1e-12)
    assert math.sqrt(noise_error(hull.extended(np.array(added[0])))) == pytest.approx(after, rel=1e-12)


def test_refusals() -> None:
    with pytest.raises(GraphError, match="1 to 3 dimensions"):
        difference_hull([[1, 2, 3, 4]])
    with pytest.raises(GraphError, match="scale them down"):
        difference_hull([[1 << 18, 0, 0], [(1 << 18) + 1, 0, 0]])
    hull = HULLS["ex5.1"][0]
    with pytest.raises(GraphError, match="at least 1"):
        hull.capped(hull, Fraction(1, 2))
    with pytest.raises(GraphError, match="up to 65536"):
        hull.capped(hull, Fraction(100001, 100000))
    with pytest.raises(GraphError, match="epsilon"):
        noise_error(hull, 0)
    with pytest.raises(GraphError, match="lattice points"):
        boundary_points(hull.capped(complete_hull(VALUES), Fraction(3, 2)))


FLAT = [
    difference_hull(points)
    for points in (
        [[4, -2]],
        [[0, 3, -6]],
        [[1, 0, 1], [0, 1, 1]],
        [[2, 4, 0], [0, 6, 3]],
        [[3, 5, 7], [2, -4, 9]],
        [[5, 1, 0], [1, 5, 0]],
        [[0, 5, 2], [0, 1, 3]],
    )
]


@pytest.mark.parametrize(("a", "b"), [(12, 18), (-12, 18), (0, -5), (7, 0), (0, 0), (-3, -9)])
def test_bezout(a: int, b: int) -> None:
    g, s, t = bezout(a, b)
    assert g == np.gcd(a, b) == s * a + t * b


@pytest.mark.parametrize("hull", FLAT)
def test_a_basis_reaches_every_integer_point_of_the_span(hull: Hull) -> None:
    basis = lattice_basis(hull)
    assert not np.any(basis @ hull.equations.T)
    inside = {point for point in product(range(-3, 4), repeat=hull.dimensions) if not np.any(hull.equations @ point)}
    weights = np.array(list(product(range(-9, 10), repeat=hull.rank)))
    reached = {tuple(point) for point in (weights @ basis).tolist()}
    assert inside <= reached
    assert len(reached) == 19**hull.rank


@pytest.mark.parametrize("hull", FLAT)
def test_gauges_stay_and_coordinates_lead_back(hull: Hull) -> None:
    weights = np.array(list(product(range(-2, 3), repeat=hull.rank)))
    values = 5 + weights @ lattice_basis(hull)
    inner, places, basis = unroll(hull, values)
    assert inner.rank == inner.dimensions == hull.rank
    assert np.array_equal(values[0] + places @ basis, values)
    for value, place in zip(values - values[0], places, strict=True):
        assert hull.gauge(value.tolist()) == inner.gauge(place.tolist())


def test_a_hull_of_full_rank_stays_and_one_too_flat_is_refused() -> None:
    values = lattice([(0, 0), (2, 1), (1, 3)])
    hull = complete_hull(values)
    assert unroll(hull, values)[0] is hull
    with pytest.raises(GraphError, match="too flat"):
        unroll(difference_hull([[1, 1]]), values)
