"""Staircase noise made from a hull, its distribution and its error; `fugu.contract.measure_table` draws it."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from fugu.chains.arrays import Floats
from fugu.contract import measurement
from fugu.contract.errors import GuaranteeError
from fugu.contract.measure_table import Staircase, normaliser, point_class
from fugu.contract.measurement import MOST_EPSILON, RATIO_BITS
from fugu.places.graphs import GraphError
from fugu.places.hull import Hull
from fugu.places.moments import boundary_points

__all__ = [
    "MOST_EPSILON",
    "RATIO_BITS",
    "float_gauge",
    "floor_exp",
    "noise_ratio",
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


def staircase(hull: Hull, epsilon: Fraction | int | float) -> Staircase:
    """Prepare staircase noise; its ratio q is e^-epsilon rounded up.

    Raises:
        GraphError: The hull is capped, or neither of rank 1 nor of rank 2 in two dimensions; or epsilon is out of
            range.
    """
    boundary_points(hull)  # refuses other shapes
    return Staircase(tuple(tuple(vertex) for vertex in hull.vertices.tolist()), noise_ratio(epsilon))


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


def float_gauge(hull: Hull, points: Floats) -> Floats:
    """The gauges of ... x d points of the span, in floating point: for forecasts only; 0 for a hull that is a point."""
    sides = (hull.scale * hull.normals / hull.offsets[:, None]).T
    return np.asarray((points @ sides).max(axis=-1, initial=0.0), dtype=np.float64)
