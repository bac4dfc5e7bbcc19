"""Pictures of policy graphs: well-formed, with every state and edge in it, and names that cannot break out."""

from __future__ import annotations

from collections import Counter
from xml.etree import ElementTree

import numpy as np
import pytest

from fugu.places.graphs import GraphError, complete, lattice
from fugu.places.protection import protect
from fugu_cli.view.measure_plan import MOST_NAMES, graph_svg
from papers.graphs import explicit, within_radius
from tests.support.dphmm_cases import GRAPH, VALUES, grid, states

SVG = "{http://www.w3.org/2000/svg}"


def kinds(picture: str) -> Counter[str]:
    """How often each class of elements occurs."""
    return Counter(element.get("class", "") for element in ElementTree.fromstring(picture).iter())


def test_the_example_of_the_paper() -> None:
    """Example 6.1: s3 is exposed among s3, s4, s5, s6, and one edge is added; s2s3 leads out of the constraint."""
    constraint = states(6, 3, 4, 5, 6)
    picture = graph_svg(VALUES, GRAPH, constraint, protect(VALUES, GRAPH, constraint))
    found = kinds(picture)
    assert (found["edge"], found["outside"], found["added"]) == (3, 1, 1)
    assert (found["state"], found["exposed"], found["gone"], found["hull"]) == (3, 1, 2, 1)
    assert "4 of 6 states possible, 3 edges between them, 1 added" in picture


def test_names_are_escaped() -> None:
    names = ["<script>", "a & b", '"', "'", "</svg>", "]]>"]
    picture = graph_svg(VALUES, GRAPH, states(6), protect(VALUES, GRAPH, states(6)), names=names, title="<&>")
    tree = ElementTree.fromstring(picture)
    assert [circle[0].text for circle in tree.iter(f"{SVG}circle")] == names
    assert tree[0].text == "<&>"
    assert tree.find(f".//{SVG}script") is None


@pytest.mark.parametrize("space", [1, 2, 3])
def test_any_number_of_dimensions(space: int) -> None:
    values = lattice(np.indices((3,) * space).reshape(space, -1).T)
    count = len(values)
    everywhere = np.ones(count, dtype=np.bool_)
    found = kinds(graph_svg(values, complete(count), everywhere, protect(values, complete(count), everywhere)))
    assert (found["edge"], found["state"], found["exposed"]) == (count * (count - 1) // 2, count, 0)
    assert found["hull"] == (6 if space == 3 else 1)


def test_flat_empty_and_large_pictures_are_drawn_too() -> None:
    nothing = explicit(6, [])
    flat = kinds(graph_svg(VALUES, GRAPH, states(6, 2, 3), protect(VALUES, GRAPH, states(6, 2, 3), cap=None)))
    assert (flat["hull"], flat["edge"]) == (1, 1)
    empty = kinds(graph_svg(VALUES, nothing, states(6, 4), protect(VALUES, nothing, states(6, 4))))
    assert (empty["hull"], empty["exposed"], empty["gone"]) == (0, 1, 5)
    same = kinds(graph_svg(lattice([5, 5]), complete(2), states(2), protect(lattice([5, 5]), complete(2), states(2))))
    assert (same["state"], same["edge"]) == (2, 1)
    large = graph_svg(grid(10), within_radius(grid(10), 1), states(100), protect(grid(10), complete(100), states(100)))
    assert kinds(large)["state"] == 100 > MOST_NAMES
    assert len(large) < 40_000


def test_every_state_needs_a_name() -> None:
    with pytest.raises(GraphError, match="as many names"):
        graph_svg(VALUES, GRAPH, states(6), protect(VALUES, GRAPH, states(6)), names=["one"])
