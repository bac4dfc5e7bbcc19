"""Policy graphs: which pairs are edges, under every way to draw one."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from fugu.places.graphs import GraphError, complete, edge_list, lattice, restrict
from papers.graphs import explicit, one_step, within_radius
from tests.support.dphmm_cases import GOLDEN, GRAPH, grid, states


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
        lattice(points)  # type: ignore[arg-type]


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
