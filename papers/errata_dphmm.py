"""What the DPHMM paper gets wrong, each with a counterexample in exact integers and fractions."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from fugu.cli.view.measure_plan import _edge_list as edge_list
from fugu.places.graphs import complete, lattice
from fugu.places.hull import complete_hull, graph_hull
from fugu.places.noise import noise_error
from fugu.places.protection import exposed, protect
from papers.dphmm import GRAPH, TRIANGLE, VALUES, chosen, edge_names
from papers.graphs import explicit, one_step
from papers.neighbour_noise import laplace_error
from papers.rows import Row, Setting, at_most
from papers.walks import successors

__all__ = ["ERRATA"]


def _definition_4_4(setting: Setting) -> Iterator[Row]:
    """Definition 4.4 is met by every state through itself, and algorithm 1 adds an edge to the state itself."""
    graph, constraint = explicit(6, [(1, 2)]), chosen(2, 3, 5)
    hull = graph_hull(VALUES, graph)
    least = min(hull.gauge((VALUES[4] - VALUES[other]).tolist()) for other in (1, 2))
    about, why = "example 5.2: least gauge of s5 to a state that protects it", "the partner must be another state"
    yield Row(about, str(least), "0", "claim", why=f"{why}, the same one for every output")
    added = edge_names(protect(VALUES, graph, constraint, objective="nearest").added)
    about = "example 5.2: the edge of algorithm 1 for s5"
    yield Row(about, added, "s5s5", "formula", why="the nearest state is the state itself")


def _algorithm_3(setting: Setting) -> Iterator[Row]:
    """Algorithm 3 takes the largest hull, and area is the wrong objective."""
    hull = graph_hull(VALUES, TRIANGLE)
    hulls = {f"s3s{partner}": hull.extended(VALUES[2] - VALUES[partner - 1]) for partner in (4, 5, 6)}
    sizes = {name: one.area for name, one in hulls.items()}
    errors = {name: noise_error(one) for name, one in hulls.items()}
    corners = hulls["s3s6"].vertices[::-1]  # clockwise, as the algorithm goes round
    turned = sum(int(a[0] * b[1] - a[1] * b[0]) for a, b in zip(corners, np.roll(corners, -1, axis=0), strict=True))
    least, best = min(sizes, key=lambda one: sizes[one]), min(errors, key=lambda one: errors[one])
    about = "example 6.1, hull with s3s6: twice the area, by determinants over clockwise corners"
    why = "clockwise they sum to minus twice the area, so that the smallest sum is the largest hull"
    yield Row(about, 2.0 * float(sizes["s3s6"]), float(turned), "formula", why=why, computed=True)
    about = "example 6.1: error, epsilon 1, of the edge with the smallest hull"
    why = f"{least} makes the smallest hull, {best} the least error"
    yield at_most(about, math.sqrt(errors[least]), math.sqrt(errors[best]), why)


def _protectable(setting: Setting) -> Iterator[Row]:
    """A protectable graph can reveal for certain which part of the set the state is in."""
    constraint = chosen(1, 2, 3, 4)
    flat = protect(VALUES, GRAPH, constraint, cap=None)
    found = protect(VALUES, GRAPH, constraint, cap=4)
    left = len(exposed(flat.hull, VALUES, constraint))
    yield Row("C = {s1, s2, s3, s4}: exposed states", float(left), 0.0, "formula")
    about, why = "the same: factor of theorem 6.3 between any two of them", "noise along (1, -1) alone tells"
    yield Row(about, str(flat.factor), "finite", "claim", why=f"{why} s1 and s4 from s2 and s3 for certain")
    yield Row("the same with ours, the hull capped at 4", float(found.factor))


def _corollary_5_1(setting: Setting) -> Iterator[Row]:
    """Laplace noise can be better than K-norm noise in three dimensions."""
    values = lattice([(0, 0, 0), (97, 1, 1), (97, 1, -1), (97, -1, 1), (97, -1, -1)])
    star = explicit(5, [(0, other) for other in range(1, 5)])
    about = "five points in space, a star: mean squared error of K-norm noise, epsilon 1"
    why = "the L1 ball is longer than the hull, but thinner where its noise has three dimensions"
    yield at_most(about, float(noise_error(graph_hull(values, star))), laplace_error(values, star, 1.0), why)


def _theorem_7_1(setting: Setting) -> Iterator[Row]:
    """Two queries that protect a state by different partners together protect it by neither."""
    first, second = lattice([9, 1, 0, 10]), lattice([2, 10, 3, 9])
    told = []
    for values, edge in ((first, (1, 2)), (second, (1, 3))):
        hull = graph_hull(values, explicit(4, [edge]))
        told.append([hull.gauge((values[0] - values[other]).tolist()) for other in (1, 2, 3)])
    joint = min(a + b for a, b in zip(*told, strict=True))
    about = "four states, queries 9 1 0 10 and 2 10 3 9: epsilon of s1's best partner over that of a query"
    why = "s1 has gauge 1 to s4 in the first, to s3 in the second: one stacked query sees that"
    yield at_most(about, float(joint), 2.0, why, computed=False)


def _section_10_6(setting: Setting) -> Iterator[Row]:
    """Case I: a state that an added edge protects is exposed once its partner is ruled out."""
    hull = graph_hull(VALUES, TRIANGLE).extended(VALUES[2] - VALUES[3])
    least = hull.gauge((VALUES[2] - VALUES[4]).tolist())
    about = "example 6.1 with s3s4, then C = {s3, s5}: gauge of s3 to its only partner"
    why = "s4 was its partner, and is ruled out: the graph is found anew for every C"
    yield at_most(about, float(least), 1.0, why, computed=False)


def _variance(setting: Setting) -> Iterator[Row]:
    """Laplace noise at scale 1 has variance 2."""
    about = "two answers that differ by 1, epsilon 1: variance of Laplace noise"
    why = "with variance 1, the scale is 1 / sqrt(2), and epsilon sqrt(2)"
    yield Row(about, laplace_error(lattice([0, 1]), complete(2), 1.0), 1.0, "claim", 1e-12, why=why)


def _transition_graph(setting: Setting) -> Iterator[Row]:
    """The transition graph joins states that follow from some one state, not from all states."""
    steps = np.array([[0, 1, 1, 0], [0, 1, 0, 0], [0, 0, 1, 0], [1, 0, 0, 1]])
    every = [(a, b) for a in range(4) for b in range(a + 1, 4) if all(row[a] and row[b] for row in steps)]
    some, printed = (" ".join(f"{a}-{b}" for a, b in edges) or "none" for edges in (edge_list(one_step(steps)), every))
    about, why = (
        "four states, steps 0>1 0>2 1>1 2>2 3>0 3>3: edges",
        "as printed, for every i: hardly any graph has one",
    )
    yield Row(about, some, printed, "formula", why=why, computed=True)


def _example_10_8(setting: Setting) -> Iterator[Row]:
    """Example 10.8 needs the path s4-s6-s5: with the triangle all three states have the same neighbours."""
    near = [[one for one in (4, 5, 6) if one == state or TRIANGLE[state - 1, one - 1]] for state in (4, 5, 6)]
    ranks, path = (
        " ".join(str(complete_hull(VALUES[chosen(*some)]).rank) for some in graph)
        for graph in (near, [(4, 6), (5, 6), (4, 5, 6)])
    )
    about = "ranks of the noise of the neighbours of s4, s5, s6: triangle"
    why = "equal hulls reveal nothing of the state; those of the path do"
    yield Row(about, ranks, path, "claim", why=why, computed=True)


def _reachability(setting: Setting) -> Iterator[Row]:
    """A probability above 0 in floating point is not reachability."""
    rare = 1e-200
    transition = np.array([[1.0, rare, 0.0], [0.0, 1.0, rare], [0.0, 0.0, 1.0]])
    distribution = np.array([1.0, 0.0, 0.0]) @ transition @ transition
    possible = successors(successors(np.array([True, False, False]), transition), transition)
    about = "steps of probability 1e-200: is state 2 possible after two ticks"
    ours, printed = str(bool(possible[2])), str(bool(distribution[2] > 0.0))
    why = "its probability is 1e-400, which is 0 in floating point"
    yield Row(about, ours, printed, "formula", why=why, computed=True)


ERRATA = {
    "erratum-dphmm-definition-4-4": _definition_4_4,
    "erratum-dphmm-algorithm-3": _algorithm_3,
    "erratum-dphmm-protectable": _protectable,
    "erratum-dphmm-corollary-5-1": _corollary_5_1,
    "erratum-dphmm-theorem-7-1": _theorem_7_1,
    "erratum-dphmm-section-10-6": _section_10_6,
    "erratum-dphmm-variance": _variance,
    "erratum-dphmm-transition-graph": _transition_graph,
    "erratum-dphmm-example-10-8": _example_10_8,
    "erratum-dphmm-reachability": _reachability,
}
"""By name: the first line of each one's description is its title."""
