"""Draw a policy graph under a constraint set, and its sensitivity hull, as SVG for the operator."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from fugu.chains.arrays import Bools, Ints
from fugu.lanes import Lane, Shape, lanes_svg
from fugu.places.graphs import GraphError, edge_list, restrict
from fugu.places.hull import Hull, graph_hull
from fugu.places.noise import noise_error
from fugu.places.protection import Protection, list_exposed
from fugu.planning.measure_planner import MeasurePlan

__all__ = ["draw_measure_plan", "graph_lanes"]

MOST_NAMES = 60
"""The most states whose names are drawn; more would cover the picture."""
Points = NDArray[np.float64]
_BEND = np.linspace(0.0, 1.0, 9)


def graph_lanes(
    measurements: Ints, graph: Bools, constraint: Bools, protection: Protection, *, names: Sequence[str] | None = None
) -> list[Lane]:
    """Return two maps: the policy graph, with states at their measurements; and the sensitivity hull.

    The graph has the user's edges and added edges. Three dimensions are drawn in oblique projection. States outside the
    constraint set are grey, with the edges that lead to them. States that the user's own edges leave exposed are red.
    Names are numbers from 0 by default. GraphError: there is not one name for each state.
    """
    state_labels = [str(state) for state in range(len(measurements))] if names is None else list(names)
    if len(state_labels) != len(measurements):
        raise GraphError(f"{len(measurements)} states need as many names, got {len(state_labels)}")
    subgraph = restrict(graph, constraint)
    exposed_states = set(list_exposed(graph_hull(measurements, subgraph), measurements, constraint))
    places = _projected(measurements.astype(np.float64))
    edges = ((edge_list(graph & ~subgraph), "cell"), (edge_list(subgraph), "raw"), (protection.added_edges, "promise"))
    shapes = [
        Shape("line", style, _edge_points(places[list(pair)], is_curved=measurements.shape[1] == 1))
        for pairs, style in edges
        for pair in pairs
    ]
    shown_labels = state_labels if len(state_labels) <= MOST_NAMES else [""] * len(state_labels)
    for state, (x, y) in enumerate(places.tolist()):
        style = "exposed" if state in exposed_states else "point" if constraint[state] else "here"
        shapes.append(Shape("dots", style, [(x, y)], shown_labels[state]))
    exposure = f"{len(exposed_states)} exposed without added edges (red)" if exposed_states else "no state is exposed"
    edge_words = f"{len(edge_list(subgraph))} edges between them, {len(protection.added_edges)} added (dashed)"
    possible_words = f"{int(constraint.sum())} of {len(measurements)}"
    cap_words = "capped, " if protection.is_capped else ""
    hull_error = math.sqrt(noise_error(protection.hull))
    loss_words = f"any two possible states: {_number_text(protection.factor)} times epsilon"
    noise_words = f"of noise at epsilon 1, {cap_words}rank {protection.hull.rank}; {loss_words}"
    return [
        _map_lane("Policy graph", possible_words, f"states possible, {edge_words}; {exposure}", places, shapes),
        _map_lane("Sensitivity hull", f"{hull_error:.3g} steps", noise_words, *_hull_shapes(protection.hull)),
    ]


def _map_lane(title: str, number_text: str, words: str, points: Points, shapes: Sequence[Shape]) -> Lane:
    """Return a map that holds all points, with the same scale in both directions."""
    low, high = points.min(axis=0), points.max(axis=0)
    radius = 0.6 * max(float((high - low).max()), 1e-9)
    (x, y) = ((low + high) / 2.0).tolist()
    span, height = (x - radius, x + radius), (y - radius, y + radius)
    return Lane("leaves", title, number_text, words, "", 0, span, (), height, (), shapes)


def _hull_shapes(hull: Hull) -> tuple[Points, list[Shape]]:
    """Return the corners of a hull with the origin, and the shapes of its axes and its outline, or facets in 3-D."""
    corners = _projected(hull.vertices / hull.scale)
    points = np.concatenate([corners, np.zeros((1, 2))])
    radius = 1.2 * float(np.abs(points).max())
    axes = [(-radius, 0.0), (radius, 0.0)], [(0.0, -radius), (0.0, radius)]
    shapes = [Shape("line", "cell", axis) for axis in axes]
    for corner_indices in hull.faces if hull.rank == 3 else [tuple(range(len(corners)))] if len(corners) else []:
        outline = [(x, y) for x, y in corners[[*corner_indices, corner_indices[0]]].tolist()]
        shapes += [Shape("line", "within", outline), Shape("line", "got", outline)]
    return points, shapes


def _edge_points(ends: Points, *, is_curved: bool) -> list[tuple[float, float]]:
    """Return the points of an edge. On a line it is curved, since straight edges would hide one another."""
    (a, b), (c, d) = ends.tolist()
    if not is_curved:
        return [(a, b), (c, d)]
    return [(a + t * (c - a), b + 2.0 * t * (1.0 - t) * abs(c - a)) for t in _BEND.tolist()]


def _projected(points: Points) -> Points:
    """Project points with 1 to 3 coordinates (n, d) onto the picture, (n, 2); the third goes obliquely backwards."""
    x, y = points[:, 0], points[:, 1] if points.shape[1] > 1 else np.zeros(len(points))
    depth = points[:, 2] if points.shape[1] > 2 else np.zeros(len(points))
    return np.stack([x + 0.45 * depth, y + 0.3 * depth], axis=1)


def _number_text(value: Fraction | float) -> str:
    return str(value) if isinstance(value, Fraction) and value.denominator < 100 else f"{float(value):.3g}"


def draw_measure_plan(plan: MeasurePlan) -> str:
    """Return the states, the policy graph and the hull of a plan as SVG."""
    spec, worst = plan.spec, plan.worst
    title = f"Policy graph and sensitivity hull, epsilon {spec.epsilon:g}"
    return lanes_svg(title, graph_lanes(spec.values, spec.graph, worst.possible, worst.protection, names=spec.names))
