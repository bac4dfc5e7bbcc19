"""The attack on noise for the neighbours of the true state (example 10.8), and its parts against exact densities."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from fugu.places.graphs import lattice
from papers.graphs import explicit
from papers.neighbour_noise import attack_points, local_hulls, local_points, planes, point_densities
from tests.support.dphmm_cases import GOLDEN, VALUES, knorm_log_density

THREE = VALUES[3:]  # s4, s5, s6
PATH = explicit(3, [(0, 2), (2, 1)])
CLIQUE = explicit(3, [(0, 1), (0, 2), (1, 2)])
UNIFORM = np.full(3, 1 / 3)


def draws(graph: np.ndarray, epsilon: float, size: int = 3000) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(108)
    path = generator.integers(0, 3, size)
    hulls = local_hulls(THREE, graph)
    points = local_points(THREE, hulls, epsilon, path, generator)
    return path, point_densities(THREE, hulls, epsilon, path, points)


@pytest.mark.parametrize("epsilon", [0.01, 1.0, 4.0])
def test_example_10_8_a_path_of_three_states_is_named_by_every_point(epsilon: float) -> None:
    """However small epsilon is: s4's points lie on a line of direction (1, 1), s5's on (1, 0), s6's on neither."""
    golden = GOLDEN["paper"]["ex10.8"]
    hulls = local_hulls(THREE, PATH)
    expected = [golden[f"path_graph_true_s{state}"] for state in (4, 5, 6)]
    assert [hull.vertices.tolist() for hull in hulls] == [each["verts"] for each in expected]
    assert len(set(planes(THREE, hulls).tolist())) == 3
    assert attack_points(UNIFORM, *draws(PATH, epsilon)) == (1.0, 1.0)


def test_example_10_8_a_clique_has_one_hull_and_hides_its_states() -> None:
    hulls = local_hulls(THREE, CLIQUE)
    assert all(hull.vertices.tolist() == hulls[0].vertices.tolist() for hull in hulls)
    epsilon = 0.5
    attack = attack_points(UNIFORM, *draws(CLIQUE, epsilon))
    assert attack.certain == 0.0
    assert (
        1 / 3 - 0.03 < attack.named <= np.exp(epsilon) / (np.exp(epsilon) + 2) + 0.03
    )  # all three gauges are 1 at most
    assert max(hulls[0].gauge((a - b).tolist()) for a in THREE for b in THREE) == 1


def test_densities_are_those_of_the_noise_and_states_of_one_plane_share_points() -> None:
    """Three cells of a row share a line; one beside it has its own, and one without neighbours is released as it is."""
    values = lattice([(0, 0), (1, 0), (2, 0), (3, 0), (1, 1), (9, 9)])
    graph = explicit(6, [(0, 1), (1, 2), (2, 3), (4, 1)])
    hulls = local_hulls(values, graph)
    assert [hull.rank for hull in hulls] == [1, 2, 1, 1, 1, 0]
    numbers = planes(values, hulls).tolist()
    assert numbers[0] == numbers[2] == numbers[3]
    assert len(set(numbers)) == 4
    path = np.arange(6)
    points = values + np.array([[0.5, 0], [0.5, 0.25], [-1.5, 0], [0, 0], [0, 2], [0, 0]])
    densities = point_densities(values, hulls, 0.7, path, points)
    for tick, state in np.ndindex(6, 6):
        offset = [Fraction(x) for x in (points[tick] - values[state]).tolist()]
        exact = knorm_log_density(hulls[state], 0.7, offset) if numbers[tick] == numbers[state] else -np.inf
        assert densities[tick, state] == pytest.approx(exact, abs=1e-12)


def test_the_likeliest_state_is_named_and_doubt_is_counted() -> None:
    logs = np.log(np.array([[0.5, 0.25, 1e-300], [0.2, 0.3, 0.1]]))
    logs = np.vstack([logs, [[-np.inf, -np.inf, 0.0], [0.0, -np.inf, -np.inf]]])
    assert attack_points(np.array([0.2, 0.5, 0.3]), np.array([0, 1, 2, 1]), logs) == (0.5, 0.5)
    assert attack_points(np.array([0.0, 0.5, 0.5]), np.array([1, 1, 2, 2]), logs).certain == 0.25
