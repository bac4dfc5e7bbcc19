"""Noise for the neighbours of the true state alone (LocalDP): what its shape tells of the state.

Each state s draws K-norm noise of its own hull, that of all differences among s and its neighbours in the policy graph.
The point then lies in f(s) plus the span of that hull, and where two states have different such planes, it lies on one
of them only, but for points of probability 0: the plane names the states that share it, for certain. In a path of
three cells whose two steps have different directions, every state is alone on its plane.

Source: DPHMM, section 10, example 10.8 (which needs the path s4 - s6 - s5: a clique gives all three one hull). Nothing
here is ever drawn by a device.
"""

from __future__ import annotations

import math

import numpy as np

from fugu.chains.arrays import Bools, Floats, Ints
from fugu.places.hull import Hull, complete_hull
from fugu.places.moments import draw_knorm, measure

__all__ = ["float_gauge", "local_hulls", "local_points", "planes", "point_densities"]


def local_hulls(values: Ints, graph: Bools) -> tuple[Hull, ...]:
    """The hull of each state's own noise.

    Args:
        values: f, N x d.
        graph: the policy graph among these states, N x N.
    """
    made: dict[bytes, Hull] = {}
    found = []
    for state in range(len(values)):
        near = values[graph[state] | (np.arange(len(values)) == state)]
        moved = np.unique(near - near.min(axis=0), axis=0)
        found.append(made.setdefault(moved.tobytes(), complete_hull(moved)))
    return tuple(found)


def planes(values: Ints, hulls: tuple[Hull, ...]) -> Ints:
    """Number the planes f(s) + span of the hull of s: N numbers, equal for states that share their plane.

    Args:
        values: f, N x d.
        hulls: N.
    """
    spans: list[Hull] = []
    numbers: dict[tuple[int, tuple[int, ...]], int] = {}
    found = []
    for value, hull in zip(values, hulls, strict=True):
        same = (
            k for k, span in enumerate(spans) if span.rank == hull.rank and not (hull.vertices @ span.equations.T).any()
        )
        number = next(same, len(spans))
        if number == len(spans):
            spans.append(hull)
        key = number, tuple((spans[number].equations @ value).tolist())
        found.append(numbers.setdefault(key, len(numbers)))
    return np.array(found, dtype=np.int64)


def local_points(
    values: Ints, hulls: tuple[Hull, ...], epsilon: float, path: Ints, generator: np.random.Generator
) -> Floats:
    """Draw a point for each state of a path, n x d, with the noise of that state's hull."""
    points = values[path].astype(np.float64)
    for state in np.unique(path).tolist():
        at = path == state
        points[at] += draw_knorm(hulls[state], epsilon, int(at.sum()), generator)
    return points


def point_densities(values: Ints, hulls: tuple[Hull, ...], epsilon: float, path: Ints, points: Floats) -> Floats:
    """The log-density of each point under each state, n x N, for points that `local_points` drew.

    Densities on a plane are to its own length, area or volume; off it, and under states of other planes, they are minus
    infinity.
    """
    plane = planes(values, hulls)
    found = np.full((len(points), len(values)), -np.inf)
    for state, hull in enumerate(hulls):
        at = plane[path] == plane[state]
        normaliser = math.lgamma(hull.rank + 1) + math.log(measure(hull)) - hull.rank * math.log(epsilon)
        found[at, state] = -epsilon * float_gauge(hull, points[at] - values[state]) - normaliser
    return found


def float_gauge(hull: Hull, points: Floats) -> Floats:
    """The gauges of ... x d points of the span, in floating point: for forecasts only; 0 for a hull that is a point."""
    sides = (hull.scale * hull.normals / hull.offsets[:, None]).T
    return np.asarray((points @ sides).max(axis=-1, initial=0.0), dtype=np.float64)
