"""Staircase noise made from a hull, its distribution and its error; `fugu.contract.measure_table` draws it.

And LocalDP, which no device draws: K-norm noise of each state's own hull, that of all differences among the state and
its neighbours in the policy graph. The point then lies in f(s) plus the span of that hull, and where two states have
different such planes, it lies on one of them only, but for points of probability 0: the plane names the states that
share it, for certain. In a path of three cells whose two steps have different directions, every state is alone on its
plane.

Source: DPHMM, section 10, example 10.8 (which needs the path s4 - s6 - s5: a clique gives all three one hull).
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from fugu.chains.arrays import Bools, Floats, Ints
from fugu.contract import measurement
from fugu.contract.errors import GuaranteeError
from fugu.contract.measure_table import Staircase, normaliser, point_class
from fugu.contract.measurement import MOST_EPSILON, RATIO_BITS
from fugu.places.graphs import GraphError
from fugu.places.hull import Hull, complete_hull
from fugu.places.moments import boundary_points, draw_knorm, measure

__all__ = [
    "MOST_EPSILON",
    "RATIO_BITS",
    "float_gauge",
    "floor_exp",
    "local_hulls",
    "local_points",
    "noise_ratio",
    "planes",
    "point_densities",
    "staircase",
    "staircase_error",
]


def floor_exp(epsilon: Fraction | int | float, bits: int = RATIO_BITS) -> int:
    """floor(e^epsilon * 2^bits), never above it; GraphError unless epsilon is above 0 and at most 20."""
    try:
        return measurement.floor_exp(epsilon, bits)
    except GuaranteeError as error:
        raise GraphError(str(error)) from None


def noise_ratio(epsilon: Fraction | int | float) -> Fraction:
    """q, the largest step of a staircase for which 1/q passes the check of a table: 2^24 / floor(e^epsilon * 2^24).

    Raises:
        GraphError: epsilon is out of range, or so small (below 2^-24) that no noise would be enough.
    """
    ratio = Fraction(1 << RATIO_BITS, floor_exp(epsilon))
    if ratio >= 1:
        raise GraphError(f"epsilon {float(epsilon):g} is below 2^-{RATIO_BITS}, the step of the check")
    return ratio


def staircase(hull: Hull, epsilon: Fraction | int | float | None = None, *, ratio: Fraction | None = None) -> Staircase:
    """Prepare staircase noise; q is `ratio`, or e^-epsilon rounded up.

    Raises:
        GraphError: The hull is capped, or neither of rank 1 nor of rank 2 in two dimensions; or not exactly one of
            epsilon and ratio is given and in range.
    """
    if (epsilon is None) == (ratio is None):
        raise GraphError("give either epsilon or the ratio of a staircase")
    q = noise_ratio(epsilon) if epsilon is not None else Fraction(ratio or 0)
    if not 0 < q < 1:
        raise GraphError(f"the ratio of a staircase is between 0 and 1, got {q}")
    boundary_points(hull)  # refuses other shapes
    return Staircase(tuple(tuple(vertex) for vertex in hull.vertices.tolist()), q)


def probability(noise: Staircase, point: tuple[int, ...]) -> Fraction:
    """P(point), d integers; 0 outside the span of K."""
    if not noise.spans(point):
        return Fraction(0)
    heights = [(sum(a * b for a, b in zip(normal, point, strict=True)), offset) for normal, offset in noise.facets()]
    return noise.ratio ** max(0, *(-(-height // offset) for height, offset in heights)) / normaliser(noise)


def staircase_error(noise: Staircase) -> float:
    """E|v|^2 of staircase noise, in squared lattice steps: geometric sums over the classes of the cones."""
    q = float(noise.ratio)
    mean, square = q / (1.0 - q), q * (1.0 + q) / (1.0 - q) ** 2
    if noise.is_segment:
        end = noise.vertices[1]
        steps = math.gcd(*end)
        length = sum(value * value for value in end)
        total = sum(square + 2.0 * mean * s / steps + (s / steps) ** 2 for s in range(1, steps + 1))
        on_line: float = 2.0 * length * total * q / (1.0 - q) / float(normaliser(noise))
        return on_line
    total = 0.0
    for a, b, alpha, beta, size in (point_class(noise, index) for index in range(noise.double_area)):
        s, t = alpha / size, beta / size
        weight = q ** (1 + (alpha + beta > size)) / (1.0 - q) ** 2
        total += weight * (a[0] * a[0] + a[1] * a[1]) * (square + 2.0 * mean * s + s * s)
        total += weight * (b[0] * b[0] + b[1] * b[1]) * (square + 2.0 * mean * t + t * t)
        total += weight * 2.0 * (a[0] * b[0] + a[1] * b[1]) * (mean + s) * (mean + t)
    error: float = total / float(normaliser(noise))
    return error


def local_hulls(values: Ints, graph: Bools) -> tuple[Hull, ...]:
    """The hull of each state's own noise; f is (N, d), the policy graph among these states (N, N)."""
    made: dict[bytes, Hull] = {}
    found = []
    for state in range(len(values)):
        near = values[graph[state] | (np.arange(len(values)) == state)]
        moved = np.unique(near - near.min(axis=0), axis=0)
        found.append(made.setdefault(moved.tobytes(), complete_hull(moved)))
    return tuple(found)


def planes(values: Ints, hulls: tuple[Hull, ...]) -> Ints:
    """N numbers of the planes f(s) + span of the hull of s, equal for states that share their plane; f is (N, d)."""
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

    It is to a plane's own length, area or volume; minus infinity off it, and under states of other planes.
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
