"""Continuous mechanisms: log-densities and errors of the golden file, draws against moments."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from fugu.places.graphs import GraphError, complete, lattice
from fugu.places.hull import complete_hull, difference_hull, graph_hull
from fugu.places.noise import noise_covariance, noise_error
from fugu.places.protection import protect
from papers.graphs import explicit, within_radius
from papers.neighbour_noise import draw_knorm, laplace_error
from tests.support.dphmm_cases import GOLDEN, GRAPH, VALUES, grid, knorm_log_density, states

HULL = graph_hull(VALUES, GRAPH)


def fractions(written: str) -> list[Fraction]:
    return [Fraction(part) for part in written.strip("()").split(",")]


@pytest.mark.parametrize("epsilon", ["0.5", "1.0", "2.0"])
def test_log_densities_of_the_example_around_s1(epsilon: str) -> None:
    for point, value in GOLDEN["logdens_K51_at_f_s1"][epsilon].items():
        offset = [z - int(f) for z, f in zip(fractions(point), VALUES[0], strict=True)]
        assert knorm_log_density(HULL, float(epsilon), offset) == pytest.approx(value, abs=1e-12)


def test_log_densities_of_other_ranks() -> None:
    segment, golden = difference_hull([[1, -1]]), GOLDEN["degenerate_segment_pm(1,-1)"]
    density = knorm_log_density(segment, 1.0, [Fraction(1, 2), Fraction(-1, 2)])
    assert density == pytest.approx(golden["log_density_eps1_offset(0.5,-0.5)"], abs=1e-12)
    assert knorm_log_density(segment, 1.0, [1, 0]) == -math.inf
    solid = difference_hull(GOLDEN["hull3d"]["points"])
    assert knorm_log_density(solid, 1.0, [1, 2, 3]) == pytest.approx(GOLDEN["hull3d"]["logdens_eps1_at(1,2,3)"])
    line = difference_hull([[3]])
    assert knorm_log_density(line, 1.0, [2]) == pytest.approx(GOLDEN["d1_K=[-3,3]"]["logdens_eps1_at2"], abs=1e-12)


def test_likelihoods_and_beliefs_of_the_forward_example() -> None:
    example = GOLDEN["forward_example"]
    matrix, belief = np.array(example["M"]), np.array(example["p0"], dtype=float)
    loss = Fraction(0)
    for step in example["steps"]:
        belief = belief @ matrix
        assert belief == pytest.approx(np.array(step["p_minus"]), abs=1e-9)
        hull = protect(VALUES, GRAPH, states(6, *step["C"])).hull
        offsets = [[Fraction(z) - int(f) for z, f in zip(step["z"], value, strict=True)] for value in VALUES]
        logs = np.array([knorm_log_density(hull, example["eps"], offset) for offset in offsets])
        assert logs == pytest.approx(np.array(step["loglik"]), abs=1e-12)
        belief = belief * np.exp(logs)
        belief /= belief.sum()
        assert belief == pytest.approx(np.array(step["p_plus"]), abs=1e-9)
        inside = VALUES[states(6, *step["C"])]
        loss += max(hull.gauge((a - b).tolist()) for a in inside for b in inside)
    assert loss == example["exact_pair_loss"]


@pytest.mark.parametrize("side", [6, 10])
@pytest.mark.parametrize("epsilon", [0.5, 1.0, 2.0])
def test_raw_errors_on_grids(side: int, epsilon: float) -> None:
    values = grid(side)
    golden = GOLDEN[f"mechanisms_{side}x{side}"]
    for name, radius in (("G_util r=1.5 (8-nbr)", 1.5), ("G_trs (k=9 -> 5x5)", 2.9), ("G_cplt", 99)):
        expected = golden[f"{side}|{name}|{epsilon}"]
        graph = within_radius(values, radius)
        assert math.sqrt(laplace_error(values, graph, epsilon)) == pytest.approx(expected["laplace_raw"], rel=1e-12)
        error = noise_error(graph_hull(values, graph), epsilon)
        assert math.sqrt(error) == pytest.approx(expected["knorm_raw"], rel=1e-12)


@pytest.mark.parametrize(
    "differences", [[[3]], [[1, -1]], [[1, 0], [2, 3], [-1, 2]], [[1, 0, 1], [0, 1, 1]], GOLDEN["hull3d"]["points"]]
)
def test_draws_have_the_covariance_of_the_closed_form(differences: list[list[int]]) -> None:
    hull = difference_hull(differences)
    noise = draw_knorm(hull, 0.8, 60_000, np.random.default_rng(3))
    expected = np.array(noise_covariance(hull, Fraction(4, 5)), dtype=float)
    assert np.cov(noise.T).reshape(expected.shape) == pytest.approx(expected, abs=0.05 * expected.max())
    assert np.abs(noise.mean(axis=0)).max() < 0.03 * math.sqrt(expected.max())
    assert np.abs(noise @ hull.equations.T).max(initial=0.0) < 1e-9
    assert draw_knorm(difference_hull(np.zeros((0, 2))), 1.0, 3, np.random.default_rng(0)).tolist() == [[0.0, 0.0]] * 3


def test_draws_have_a_gamma_gauge() -> None:
    """The gauge of K-norm noise has the mean d / epsilon and the variance d / epsilon^2."""
    noise = draw_knorm(HULL, 2.0, 40_000, np.random.default_rng(4))
    gauges = (noise @ HULL.normals.T / HULL.offsets).max(axis=1)
    assert gauges.mean() == pytest.approx(1.0, abs=0.02)
    assert gauges.var() == pytest.approx(0.5, abs=0.03)


def test_knorm_noise_of_a_segment_is_laplace_noise() -> None:
    """In one dimension the two mechanisms are one."""
    values = lattice([0, 2, 5])
    assert float(noise_error(complete_hull(values), Fraction(1, 2))) == laplace_error(values, complete(3), 0.5)


def test_epsilon_is_above_zero() -> None:
    with pytest.raises(GraphError, match="epsilon"):
        laplace_error(VALUES, explicit(6, []), 0.0)


def test_laplace_noise_does_not_protect_a_pair_without_an_edge() -> None:
    """Example 5.2: in the L1 ball, s5 is 1.5 times further from s2 and s3 than Laplace noise allows for."""
    ball = difference_hull([[2, 0], [0, 2]])
    for name, ratio in GOLDEN["paper"]["ex5.2"]["laplace_log_ratio_over_eps"].items():
        difference = VALUES[4] - VALUES[int(name[4]) - 1]
        assert ball.gauge(difference.tolist()) == Fraction(ratio)
    assert graph_hull(VALUES, explicit(6, [(1, 2)])).largest_gauge(VALUES[states(6, 2, 3, 5)]) == math.inf
    assert ball.largest_gauge(VALUES[[1, 2]]) == 1
