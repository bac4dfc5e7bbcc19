"""Errors of the DPHMM paper, each with a counterexample in exact integers and fractions."""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction
from itertools import permutations, product

import numpy as np

from fugu.places.graphs import complete, lattice
from fugu.places.hull import Hull, complete_hull, difference_hull, graph_hull
from fugu.places.noise import noise_error
from fugu.places.protection import degree_of_protection, list_exposed
from papers.dphmm import TRIANGLE, VALUES, chosen
from papers.errata import Erratum
from papers.facts import Key
from papers.graphs import explicit
from papers.neighbour_noise import l1_sensitivity, laplace_error
from papers.rows import Row, Setting, at_most

__all__ = ["ERRATA", "QUERIES", "QUERY_GRAPH", "TWO_EXPOSED"]

_ALL_OF_THREE = np.ones(3, dtype=np.bool_)

TWO_EXPOSED = lattice([(3, 6), (4, 6), (3, 3), (0, 4), (6, 3), (3, 5)])
"""Six states; s1, s2 and s3 are joined, s4 and s5 are exposed."""
_JOINED = explicit(6, [(0, 1), (0, 2), (1, 2)])


def _greedy_area(order: tuple[int, ...]) -> Fraction:
    """The area that algorithm 3 reaches when it takes the exposed states in an order."""
    hull = graph_hull(TWO_EXPOSED, _JOINED)
    for state in order:
        grown = [hull.extended(TWO_EXPOSED[state] - TWO_EXPOSED[other]) for other in range(6) if other != state]
        hull = min(grown, key=lambda each: each.area)
    return hull.area


def _least_area(exposed_states: list[int]) -> Fraction:
    """The least area of a hull in which each exposed state has a partner, over all choices of partners."""
    partners = [[other for other in range(6) if other != state] for state in exposed_states]
    return min(_joined(exposed_states, chosen_partners).area for chosen_partners in product(*partners))


def _joined(states: list[int], partners: tuple[int, ...]) -> Hull:
    hull = graph_hull(TWO_EXPOSED, _JOINED)
    for state, partner in zip(states, partners, strict=True):
        hull = hull.extended(TWO_EXPOSED[state] - TWO_EXPOSED[partner])
    return hull


def _exposed_of_two() -> list[int]:
    return list(list_exposed(graph_hull(TWO_EXPOSED, _JOINED), TWO_EXPOSED, np.ones(6, dtype=np.bool_)))


def _algorithm_3(setting: Setting) -> Iterator[Row]:
    """Algorithm 3 does not find the least protectable graph where two states are exposed, in either order."""
    states = _exposed_of_two()
    least = float(_least_area(states))
    for order in permutations(states):
        names = ", then ".join(f"s{state + 1}" for state in order)
        about = f"f = (3,6) (4,6) (3,3) (0,4) (6,3) (3,5), triangle s1s2s3: area by algorithm 3, {names}"
        why = "s4s6 and s5s3 together have the least: an edge for one state changes what the next costs"
        yield at_most(about, float(_greedy_area(order)), least, why)


_STAR = (
    lattice([(0, 0, 0), (97, 1, 1), (97, 1, -1), (97, -1, 1), (97, -1, -1)]),
    explicit(5, [(0, other) for other in range(1, 5)]),
)


def _both_protect_the_star() -> bool:
    values, star = _STAR
    hull, sensitivity = graph_hull(values, star), l1_sensitivity(values, star)
    edges = [values[0] - values[other] for other in range(1, 5)]
    return all(hull.gauge(edge.tolist()) <= 1 and np.abs(edge).sum() <= sensitivity for edge in edges)


def _corollary_5_1(setting: Setting) -> Iterator[Row]:
    """Laplace noise can be better than K-norm noise in three dimensions."""
    values, star = _STAR
    about = "five points in space, a star: mean squared error of K-norm noise, epsilon 1"
    why = "the L1 ball is longer than the hull, but thinner where its noise has three dimensions"
    yield at_most(about, float(noise_error(graph_hull(values, star))), laplace_error(values, star, 1.0), why)


QUERIES = lattice([2, 0, 1]), lattice([2, 1, 0])
"""f1 and f2 on three states."""
QUERY_GRAPH = explicit(3, [(1, 2)])
"""The one policy graph of both queries: s2s3."""


def _partners(values: np.ndarray) -> list[Fraction | float]:
    """The gauges of s1 to s2 and to s3 for one query."""
    hull = graph_hull(values, QUERY_GRAPH)
    return [hull.gauge((values[0] - values[other]).tolist()) for other in (1, 2)]


def _theorem_7_1(setting: Setting) -> Iterator[Row]:
    """Two queries on one graph that protect a state by different partners together protect it by neither."""
    joint = min(a + b for a, b in zip(*map(_partners, QUERIES), strict=True))
    about = "three states, s2s3 joined, queries 2 0 1 and 2 1 0: epsilon of s1's best partner over that of a query"
    why = "s1 has gauge 1 to s3 in the first and to s2 in the second: one stacked query sees that"
    yield at_most(about, float(joint), 2.0, why, computed=False)


def _hull_6_1() -> Hull:
    """The hull of example 6.1 with the edge that the paper adds, s3s4."""
    return graph_hull(VALUES, TRIANGLE).extended(VALUES[2] - VALUES[3])


def _section_10_6(setting: Setting) -> Iterator[Row]:
    """Case I: a state that an added edge protects is exposed once its partner is ruled out."""
    least = _hull_6_1().gauge((VALUES[2] - VALUES[4]).tolist())
    about = "example 6.1 with s3s4, then C = {s3, s5}: gauge of s3 to its only partner"
    why = "s4 was its partner, and is ruled out: the graph is found anew for every C"
    yield at_most(about, float(least), 1.0, why, computed=False)


def _variance(setting: Setting) -> Iterator[Row]:
    """Laplace noise at scale 1 has variance 2."""
    about = "two answers that differ by 1, epsilon 1: variance of Laplace noise"
    why = "with variance 1, the scale is 1 / sqrt(2), and epsilon sqrt(2)"
    yield Row(about, laplace_error(lattice([0, 1]), complete(2), 1.0), 1.0, "claim", 1e-12, why=why)


def _example_10_8(setting: Setting) -> Iterator[Row]:
    """Example 10.8 prints the hulls of the path s4-s6-s5; the running example's graph is the triangle."""
    near = [[other for other in (4, 5, 6) if other == state or TRIANGLE[state - 1, other - 1]] for state in (4, 5, 6)]
    ranks, path = (
        " ".join(str(complete_hull(VALUES[chosen(*some)]).rank) for some in graph)
        for graph in (near, [(4, 6), (5, 6), (4, 5, 6)])
    )
    about = "ranks of the noise of the neighbours of s4, s5, s6: triangle"
    why = "with the triangle all hulls are equal and tell nothing; with the path the example's attack is right"
    yield Row(about, ranks, path, "claim", why=why, computed=True)


_PEAK = lattice([(0, 0), (1, 1), (2, 0)])
_PEAK_EDGE = explicit(3, [(0, 1)])


def _theorem_5_2(setting: Setting) -> Iterator[Row]:
    """Theorem 5.2 says that Laplace noise cannot protect a state of degree 1, by the sensitivity hull; it can."""
    degree = degree_of_protection(graph_hull(_PEAK, _PEAK_EDGE), _PEAK, _ALL_OF_THREE)[2]
    sensitivity = l1_sensitivity(_PEAK, _PEAK_EDGE)
    ball = difference_hull([[sensitivity, 0], [0, sensitivity]])
    gauge = min(ball.gauge((_PEAK[2] - _PEAK[other]).tolist()) for other in (0, 1))
    about = "f = (0,0) (1,1) (2,0), edge s1s2: degree of protection of s3"
    yield Row(about, float(degree))
    yield Row(
        "the same: can Laplace noise meet definition 4.4 for s3",
        "yes" if gauge <= 1 else "no",
        "no",
        "claim",
        why=f"the L1 sensitivity is {sensitivity}, which is the distance from s3 to s1",
    )


def _theorem_10_10(setting: Setting) -> Iterator[Row]:
    """Theorem 10.10 holds if adversarial privacy is asked of all priors, not of one."""
    prior = Fraction(1, 2)
    private = math.log(1 / prior)
    about = "two states as likely, released as they are: constrained DP, where adversarial privacy is ln 2"
    yield at_most(about, math.inf, private, "no mechanism more than doubles a probability of one half")


def _slips(setting: Setting) -> Iterator[Row]:
    """Names of lines in example 10.8, and how many nodes theorem 10.6 tries."""
    direction = complete_hull(VALUES[chosen(4, 6)])
    on_line = [
        f"f(s4)f(s{other})"
        for other in (5, 6)
        if math.isfinite(direction.gauge((VALUES[other - 1] - VALUES[3]).tolist()))
    ]
    why = "the noise of s4 is along (1, 1), the direction from f(s4) to f(s6)"
    yield Row("example 10.8: the line on which points of s4 lie", " ".join(on_line), "f(s4)f(s5)", "claim", why=why)
    about = "theorem 10.6, four states and m = 1 edge: nodes that an exposed one may be joined to"
    yield at_most(about, 3.0, 2.0, "nodes without an edge count, too: all but itself", computed=False)


_THREE_POINTS: Key = ("DPHMM", "definition 5.2, 5.3, theorem 5.2", "")
ERRATA = {
    "erratum-dphmm-algorithm-3": Erratum(
        (("DPHMM", "algorithm 3", ""),),
        {
            ("DPHMM", "theorem 6.1", ""): lambda: _exposed_of_two() == [3, 4],
            _THREE_POINTS: lambda: len(np.unique(TWO_EXPOSED, axis=0)) == 6,
        },
        _algorithm_3,
    ),
    "erratum-dphmm-corollary-5-1": Erratum(
        (("DPHMM", "corollary 5.1", ""),),
        {("DPHMM", "definition 4.4", "condition"): _both_protect_the_star},
        _corollary_5_1,
    ),
    "erratum-dphmm-theorem-7-1": Erratum(
        (("DPHMM", "theorem 7.1", ""),),
        {
            ("DPHMM", "theorem 7.1", ""): lambda: len({QUERY_GRAPH.tobytes()}) == 1,
            ("DPHMM", "definition 4.4", "condition"): lambda: all(min(_partners(values)) <= 1 for values in QUERIES),
        },
        _theorem_7_1,
    ),
    "erratum-dphmm-section-10-6": Erratum(
        (("DPHMM", "section 10.6, case I", "C^A subset of C_t"),),
        {
            ("DPHMM", "definition 4.4", "condition"): lambda: _hull_6_1().gauge((VALUES[2] - VALUES[3]).tolist()) <= 1,
            ("DPHMM", "section 10.6, case I", "C^A subset of C_t"): lambda: bool(
                (chosen(3, 4, 5, 6) | ~chosen(3, 5)).all()
            ),
        },
        _section_10_6,
    ),
    "erratum-dphmm-variance": Erratum((("DPHMM", "section 10.1", "standard Laplace"),), {}, _variance),
    "erratum-dphmm-example-10-8": Erratum(
        (("DPHMM", "example 10.8", ""), ("DPHMM", "running example", "policy graph, figure 3(b)")),
        {("DPHMM", "example 3.2", "f"): lambda: VALUES.tolist() == [[1, 0], [2, 1], [3, 0], [0, 1], [4, 2], [1, 2]]},
        _example_10_8,
    ),
    "erratum-dphmm-theorem-5-2": Erratum((_THREE_POINTS,), {}, _theorem_5_2),
    "erratum-dphmm-theorem-10-10": Erratum((("DPHMM", "theorem 10.10 (section 10.6)", ""),), {}, _theorem_10_10),
    "erratum-dphmm-slips": Erratum((("DPHMM", "example 10.8", ""), ("DPHMM", "theorem 10.6, proof", "")), {}, _slips),
}
"""By name: the first line of each one's description is its title."""
