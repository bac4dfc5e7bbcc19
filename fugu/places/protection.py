"""Degree of protection, exposed states, and the edges that protect them.

Definition 4.4 in its strict form: state i is protected if one other state k in C has a likelihood within e^epsilon of
that of i. That k is the same for every output. With K-norm noise that says that f(i) - f(k) lies in K. As printed the
definition allows k = i, and says nothing. Source: DPHMM, definition 4.4, algorithms 1 and 3.

A delta-location set C' leaves out unlikely states of the constraint set C. The device may still be in one of them, and
then draws from the row of its surrogate. So the promise is made on all of C. An edge (i, j) of the user's graph holds
between the rows of sur(i) and sur(j), and the hull is that of the surrogates' differences f(sur(i)) - f(sur(j)). States
that share a row protect one another. With C' = C nothing changes.

Every cell of a table is above 0, so no output rules a state out, and the constraint sets are known in advance.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fugu.chains.arrays import Bools, Ints
from fugu.places.graphs import GraphError, restrict, surrogates
from fugu.places.hull import Hull, complete_hull, distinct_points, graph_hull
from fugu.places.noise import noise_error

__all__ = [
    "Objective",
    "Protection",
    "degree_of_protection",
    "list_exposed",
    "protect_likely",
    "protected_pairs",
    "unbounded_factors",
]

_CLOSE = 1.0 + 1e-9


def cheapest_difference(hull: Hull, differences: Ints, *, by_error: bool) -> int:
    """Return the index of the difference whose addition makes the cheapest hull; of equals the lowest index.

    The cost is the error, or else the area. Estimates in floating point only exclude differences that cannot be the
    cheapest; exact costs decide among the others.
    """
    signs = np.sign(differences)
    leading_signs = signs[np.arange(len(signs)), np.argmax(signs != 0, axis=1)]
    upper_half = np.where(leading_signs < 0, -1, 1)[:, None] * differences  # v and -v make the same hull
    candidates = distinct_points(upper_half)
    estimates = _noise_errors(hull, candidates) if by_error else _areas(hull, candidates)
    candidates = candidates[estimates <= estimates.min() * _CLOSE]
    extended_hulls = [hull.extended(candidate) for candidate in candidates]
    costs = [noise_error(extended_hull) if by_error else extended_hull.area for extended_hull in extended_hulls]
    least_cost = min(costs)
    winners = [candidate for candidate, cost in zip(candidates, costs, strict=True) if cost == least_cost]
    return min(int(np.argmax(np.all(upper_half == winner, axis=1))) for winner in winners)


def _noise_errors(hull: Hull, differences: Ints) -> NDArray[np.float64]:
    """Estimate the mean squared K-norm noise at epsilon 1 with the hull Conv(K and +-v), for each difference v.

    If v is outside the span of K, this hull is a double pyramid over K: its simplices are those of K with one more
    corner, v or -v. The second moment of a simplex, sum |c|^2 + |sum c|^2 over its corners c, grows by 2 |v|^2.
    """
    squared_lengths: NDArray[np.float64] = np.sum(differences.astype(np.float64) ** 2, axis=1)
    estimates = float(noise_error(hull)) + 2.0 * squared_lengths
    in_span = ~np.any(differences @ hull.equations.T, axis=1)
    if hull.rank:
        volumes, moments = _extended_moments(hull, differences[in_span])
        estimates[in_span] = moments / volumes / float(hull.scale) ** 2
    return estimates


def _areas(hull: Hull, differences: Ints) -> NDArray[np.float64]:
    """Return the volume of Conv(K and +-v) for each difference v, up to a constant factor; 0 if that hull is flat."""
    if hull.rank == hull.dimensions:
        return _extended_moments(hull, differences)[0]
    if hull.rank < hull.dimensions - 1:
        return np.zeros(len(differences))
    heights = np.abs(differences @ hull.equations[0])  # of a double pyramid over K
    return np.asarray(heights, dtype=np.float64)


def _extended_moments(hull: Hull, differences: Ints) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return volume and second moment of Conv(K and +-v), up to constant factors, for each of n differences v.

    K grows by the simplices between v and the facets that are visible from v, and by their mirror images: no facet is
    visible from both v and -v. A simplex with corners c_0 .. c_r has the second moment sum |c_i|^2 + |sum c_i|^2 times
    its volume. The differences lie in the span of K, whose `axes` carry the signs of the volumes.
    """
    points = hull.scale * differences.astype(np.float64)
    simplices = list(hull.simplices())
    corners = np.array([simplex_corners for simplex_corners, _ in simplices], dtype=np.float64)
    volumes = np.array([volume for _, volume in simplices], dtype=np.float64)
    squares, corner_sums = np.sum(corners**2, axis=(1, 2)), corners.sum(axis=1)
    sum_squares = np.sum(corner_sums**2, axis=1)
    # the simplex over a facet has its sign from the side of the facet that v is on; 0 lies on the other
    span_corners = corners[:, :, hull.axes]
    edges = span_corners[None] - points[:, None, None, hull.axes]
    gains = 2.0 * np.maximum(-_determinants(edges) * np.sign(_determinants(span_corners)), 0.0)
    v_squares = np.sum(points**2, axis=1)[:, None]
    moments = gains * (squares + sum_squares + 2.0 * (v_squares + points @ corner_sums.T))  # from |sum c + v|^2
    return volumes.sum() + gains.sum(axis=1), volumes @ (squares + sum_squares) + moments.sum(axis=1)


def _determinants(matrices: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the determinants of matrices, r x r in the last two axes, r in 1..3; formulas for 1 and 2 are quicker."""
    if matrices.shape[-1] == 1:
        return matrices[..., 0, 0]
    if matrices.shape[-1] == 2:
        return matrices[..., 0, 0] * matrices[..., 1, 1] - matrices[..., 0, 1] * matrices[..., 1, 0]
    return np.asarray(np.linalg.det(matrices), dtype=np.float64)


Objective = Literal["error", "nearest", "area"]

_AT_ONCE = 64


class Protection(NamedTuple):
    """A policy graph that protects every state of a constraint set, and its hull.

    `added_edges` (exposed state, partner) are in the order of their addition; `graph` includes them. `hull` is K, or
    the capped hull K_c. Epsilon times `factor`, theorem 6.3's, bounds the loss between any two states of C; it is
    infinite only if capping was declined. `exposed` has a state that nothing can protect, the only one of its
    constraint set: use the fallback table.
    """

    graph: Bools
    added_edges: tuple[tuple[int, int], ...]
    hull: Hull
    factor: Fraction | float
    is_capped: bool
    exposed: tuple[int, ...]


def protected_pairs(hull: Hull, points: Ints, constraint: Bools) -> Bools:
    """Return the pairs (i, j), i != j, of C with f(i) - f(j) in K, which noise of K protects: all edges, and others."""
    states = np.flatnonzero(constraint)
    is_protected = np.zeros((len(points), len(points)), dtype=np.bool_)
    is_protected[np.ix_(states, states)] = hull.pairs_within(points[states])
    np.fill_diagonal(is_protected, False)
    return is_protected


def degree_of_protection(hull: Hull, points: Ints, constraint: Bools) -> Ints:
    """Return for each state the number of states of C among which it is protected: 1 if exposed, 0 outside C."""
    states = np.flatnonzero(constraint)
    degrees = np.zeros(len(points), dtype=np.int64)
    if len(states):
        degrees[states] = np.count_nonzero(hull.pairs_within(points[states]), axis=1)
    return degrees


def list_exposed(hull: Hull, points: Ints, constraint: Bools) -> list[int]:
    """Return the states of C that K does not protect, ascending; arguments as for `degree_of_protection`."""
    return np.flatnonzero(degree_of_protection(hull, points, constraint) == 1).tolist()


def unbounded_factors(hull: Hull, points: Ints) -> tuple[Fraction | float, ...]:
    """Return each state's factor if a person may be absent, with an answer of 0 (unbounded Blowfish, example 5.3).

    Epsilon times the factor bounds the loss by a point between the state and absence; `math.inf` off the span of K.
    """
    return tuple(hull.gauge(point) for point in points.tolist())


def protect(
    points: Ints, graph: Bools, constraint: Bools, *, objective: Objective = "error", cap: Fraction | int | None = 4
) -> Protection:
    """Add edges until no state of the constraint set C is exposed.

    Exposed states are taken in ascending order and tested again before each edge, since an edge for one may protect
    another. The partner minimises the objective, ties go to the lowest index. "error" is that of continuous K-norm
    noise, and "nearest" the distance of f (algorithm 1, the state itself excluded). "area" is that of the hull
    (algorithm 3, which as printed maximises it).

    A flat K can still reveal for certain which part of C the state is in. It becomes Conv(K and K_complete / cap),
    whose factor is at most `cap`; None keeps it flat.

    Raises:
        GraphError: The constraint set is empty, or the cap is below 1.
    """
    states = np.flatnonzero(constraint)
    if not len(states):
        raise GraphError("no state is possible, so there is nothing to protect")
    if cap is not None and cap < 1:
        raise GraphError(f"a cap is at least 1, got {cap}")
    added_edges: list[tuple[int, int]] = []
    protected_graph = restrict(graph, constraint)
    hull = graph_hull(points, protected_graph)
    unchecked_states = states[~protected_graph[states].any(axis=1)]  # an edge protects both its ends
    while len(states) > 1 and len(unchecked_states := _skip_protected(hull, points, unchecked_states, states)):
        state = int(unchecked_states[0])
        partner = _partner(hull, points, state, states, objective)
        added_edges.append((state, partner))
        protected_graph[state, partner] = protected_graph[partner, state] = True
        hull = hull.extended(points[state] - points[partner])
    capped_hull, factor = hull, hull.largest_gauge(points[states])
    if cap is not None and factor == math.inf:
        capped_hull = hull.capped(complete_hull(points[states]), cap)
        factor = capped_hull.largest_gauge(points[states])
    unprotectable = (int(states[0]),) if len(states) == 1 else ()
    return Protection(protected_graph, tuple(added_edges), capped_hull, factor, capped_hull is not hull, unprotectable)


def protect_likely(
    points: Ints,
    graph: Bools,
    is_possible: Bools,
    is_likely: Bools,
    *,
    objective: Objective = "error",
    cap: Fraction | int | None = 4,
) -> Protection:
    """Protect every state of a constraint set C when only the likely ones, C' within C, have rows of their own.

    The result is the surrogate graph with the edges added, all among likely states, and its hull. A table made from
    that hull and C' protects every edge of the user's graph inside C. The factor bounds what is revealed within all of
    C.

    Raises:
        GraphError: No state is likely, or one that is not possible; or as for `protect`.
    """
    if not is_likely.any() or np.any(is_likely & ~is_possible):
        raise GraphError("a delta-location set keeps at least one state, and only states that are possible")
    if np.array_equal(is_possible, is_likely):
        return protect(points, graph, is_possible, objective=objective, cap=cap)
    surrogate = surrogates(points, is_likely)
    # a state measured as its surrogate has the difference 0 to all that share the row, and 0 lies in every hull
    protection = protect(points[surrogate], graph, is_possible, objective=objective, cap=cap)
    merged_graph = _merge_surrogates(graph, is_possible, is_likely, surrogate)
    added_edges = tuple((state, int(surrogate[partner])) for state, partner in protection.added_edges)
    for state, partner in added_edges:
        merged_graph[state, partner] = merged_graph[partner, state] = True
    return protection._replace(graph=merged_graph, added_edges=added_edges)


def _merge_surrogates(graph: Bools, is_possible: Bools, is_likely: Bools, surrogate: Ints) -> Bools:
    """Merge the states inside C that share a row into the likely state of the row, and return the graph."""
    states = np.flatnonzero(is_possible)
    states = states[np.argsort(surrogate[states], kind="stable")]
    row_starts = np.searchsorted(surrogate[states], np.flatnonzero(is_likely))
    # twice the rows, since columns are slower: the graph is symmetric
    merged_rows = np.logical_or.reduceat(graph[np.ix_(states, states)], row_starts, axis=0)
    merged_graph = np.zeros_like(graph)
    merged_graph[np.ix_(is_likely, is_likely)] = np.logical_or.reduceat(merged_rows.T, row_starts, axis=0)
    np.fill_diagonal(merged_graph, False)
    return merged_graph


def _skip_protected(hull: Hull, points: Ints, candidates: Ints, states: Ints) -> Ints:
    """Return `candidates` from the first exposed state on; none if no candidate is exposed."""
    for start in range(0, len(candidates), _AT_ONCE):
        candidate_block = candidates[start : start + _AT_ONCE]
        is_exposed = np.count_nonzero(hull.differences_within(points[candidate_block], points[states]), axis=1) == 1
        if is_exposed.any():
            return candidates[start + int(np.argmax(is_exposed)) :]
    return candidates[:0]


def _partner(hull: Hull, points: Ints, state: int, states: Ints, objective: Objective) -> int:
    other_states = states[states != state]
    differences = points[state] - points[other_states]
    if objective == "nearest":
        partner_index = int(np.argmin(np.sum(differences * differences, axis=1)))  # the first of equals
    elif objective in ("area", "error"):
        partner_index = cheapest_difference(hull, differences, by_error=objective == "error")
    else:
        raise GraphError(f"the objective is error, nearest or area, not {objective}")
    return int(other_states[partner_index])
