"""Pictures of policy graphs: well-formed, with every state and edge in it, and names that cannot break out."""

from __future__ import annotations

from collections import Counter
from xml.etree import ElementTree

import numpy as np
import pytest

from fugu.lanes import Lane, lanes_svg
from fugu.places.graphs import GraphError, complete, lattice
from fugu.places.protection import protect
from fugu_cli.view.measure_plan import MOST_NAMES, graph_lanes
from papers.graphs import explicit, within_radius
from tests.support.dphmm_cases import GRAPH, VALUES, grid, states

EDGE, OUTSIDE, ADDED, STATE, EXPOSED, GONE = "raw", "cell", "promise", "point", "exposed", "here"
AXES = 2


def kinds(lanes: list[Lane]) -> Counter[str]:
    """How often each look of shapes occurs."""
    return Counter(shape.look for lane in lanes for shape in lane.shapes)


def test_the_example_of_the_paper() -> None:
    """Example 6.1: s3 is exposed among s3, s4, s5, s6, and one edge is added; s2s3 leads out of the constraint."""
    constraint = states(6, 3, 4, 5, 6)
    lanes = graph_lanes(VALUES, GRAPH, constraint, protect(VALUES, GRAPH, constraint))
    looks = kinds(lanes)
    assert (looks[EDGE], looks[OUTSIDE], looks[ADDED]) == (3, 1 + AXES, 1)
    assert (looks[STATE], looks[EXPOSED], looks[GONE], looks["within"]) == (3, 1, 2, 1)
    assert lanes[0].number == "4 of 6"
    assert "states possible, 3 edges between them, 1 added" in lanes[0].words
    assert [shape.points for shape in lanes[0].shapes if shape.words == "2"] == [[tuple(map(float, VALUES[2]))]]


def test_names_are_escaped() -> None:
    names = ["<script>", "a & b", '"', "'", "</svg>", "]]>"]
    picture = lanes_svg("<&>", graph_lanes(VALUES, GRAPH, states(6), protect(VALUES, GRAPH, states(6)), names=names))
    tree = ElementTree.fromstring(picture)
    texts = [element.text for element in tree.iter()]
    assert [name for name in names if name not in texts] == []
    assert tree[0].text == "<&>"
    assert not any(element.tag.endswith("script") for element in tree.iter())


@pytest.mark.parametrize("space", [1, 2, 3])
def test_any_number_of_dimensions(space: int) -> None:
    values = lattice(np.indices((3,) * space).reshape(space, -1).T)
    count = len(values)
    everywhere = np.ones(count, dtype=np.bool_)
    looks = kinds(graph_lanes(values, complete(count), everywhere, protect(values, complete(count), everywhere)))
    assert (looks[EDGE], looks[STATE], looks[EXPOSED]) == (count * (count - 1) // 2, count, 0)
    assert looks["within"] == (6 if space == 3 else 1)


def test_flat_empty_and_large_pictures_are_drawn_too() -> None:
    nothing = explicit(6, [])
    flat = kinds(graph_lanes(VALUES, GRAPH, states(6, 2, 3), protect(VALUES, GRAPH, states(6, 2, 3), cap=None)))
    assert (flat["within"], flat[EDGE]) == (1, 1)
    empty = kinds(graph_lanes(VALUES, nothing, states(6, 4), protect(VALUES, nothing, states(6, 4))))
    assert (empty["within"], empty[EXPOSED], empty[GONE]) == (0, 1, 5)
    same = kinds(graph_lanes(lattice([5, 5]), complete(2), states(2), protect(lattice([5, 5]), complete(2), states(2))))
    assert (same[STATE], same[EDGE]) == (2, 1)
    large = grid(10), within_radius(grid(10), 1), states(100), protect(grid(10), complete(100), states(100))
    assert kinds(graph_lanes(*large))[STATE] == 100 > MOST_NAMES
    assert len(lanes_svg("large", graph_lanes(*large))) < 40_000


def test_every_state_needs_a_name() -> None:
    with pytest.raises(GraphError, match="as many names"):
        graph_lanes(VALUES, GRAPH, states(6), protect(VALUES, GRAPH, states(6)), names=["one"])
