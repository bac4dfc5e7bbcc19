"""Noise from a sensitivity hull: continuous K-norm noise, for forecasts, and the staircase that devices draw.

A hull is cut into simplices with a corner at 0; the second moment of a simplex is a sum over its corners. Everything
but lengths and areas inside a larger space is an exact fraction.

The K-norm mechanism of Hardt and Talwar has the density exp(-epsilon gauge(v)) on the span of K. It draws floats, so it
never runs on a device; `fugu.contract.measure_table` draws a staircase. Errors are E|n|^2, in squared lattice steps.
"""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import product

import numpy as np

from fugu.contract import measurement
from fugu.contract.errors import GuaranteeError
from fugu.contract.measure_table import Staircase
from fugu.contract.measurement import RATIO_BITS
from fugu.places.graphs import GraphError
from fugu.places.hull import Hull

__all__ = ["floor_exp", "noise_error", "noise_ratio", "staircase", "staircase_error"]


def noise_covariance(hull: Hull, epsilon: Fraction | int | float) -> list[list[Fraction]]:
    """Return the exact covariance (d, d) of continuous K-norm noise.

    It is (rank + 1)(rank + 2) / epsilon^2 times E[U U'], U uniform in K. In a simplex with corners 0, v_1 .. v_r,
    E[U U'] is (sum_i v_i v_i' + s s') / ((r + 1)(r + 2)), s = sum_i v_i.
    """
    if not 0 < epsilon < math.inf:
        raise GraphError(f"epsilon must be above 0 and finite, got {epsilon}")
    moments, total_weight = [[0] * hull.dimensions for _ in range(hull.dimensions)], 0
    for simplex_corners, weight in hull.simplices():
        total_weight += weight
        corners = [*simplex_corners, tuple(sum(column) for column in zip(*simplex_corners, strict=True))]
        for axis, other_axis in product(range(hull.dimensions), repeat=2):
            moments[axis][other_axis] += weight * sum(corner[axis] * corner[other_axis] for corner in corners)
    denominator = max(1, total_weight) * hull.scale**2 * Fraction(epsilon) ** 2
    return [[moment / denominator for moment in row] for row in moments]


def noise_error(hull: Hull, epsilon: Fraction | int | float = 1) -> Fraction:
    """Return E|n|^2 of continuous K-norm noise at epsilon, in squared lattice steps, exactly."""
    covariance = noise_covariance(hull, epsilon)
    return sum((covariance[axis][axis] for axis in range(hull.dimensions)), Fraction(0))


def boundary_points(hull: Hull) -> int:
    """Return B, the number of lattice points on the boundary of a lattice polygon in the plane.

    n K holds area n^2 + (B / 2) n + 1 lattice points (Ehrhart, Pick). For a segment from -g u to g u, with u primitive,
    B is 4 g: both sides are counted.

    Raises:
        GraphError: The hull is not of rank 1, nor of rank 2 in two dimensions, or has a scale other than 1.
    """
    if hull.scale != 1 or not (hull.rank == 1 or hull.rank == hull.dimensions == 2):
        raise GraphError(
            "above 100 states, the hull's lattice points must lie in a segment or a plane polygon, not capped"
        )
    return sum(math.gcd(*edge) for edge in (np.roll(hull.vertices, -1, axis=0) - hull.vertices).tolist())


def floor_exp(epsilon: Fraction | int | float, bits: int = RATIO_BITS) -> int:
    """Return floor(e^epsilon * 2^bits), never too large; GraphError unless epsilon is above 0 and at most 20."""
    try:
        return measurement.floor_exp(epsilon, bits)
    except GuaranteeError as error:
        raise GraphError(str(error)) from None


def noise_ratio(epsilon: Fraction | int | float) -> Fraction:
    """Return q = 2^24 / floor(e^epsilon * 2^24), the least ratio of a staircase with which a table passes its check.

    Raises:
        GraphError: epsilon is out of range, or so small (below 2^-24) that no noise would be enough.
    """
    ratio = Fraction(1 << RATIO_BITS, floor_exp(epsilon))
    if ratio >= 1:
        raise GraphError(f"epsilon {float(epsilon):g} is below 2^-{RATIO_BITS}, the step of the check")
    return ratio


def staircase(hull: Hull, epsilon: Fraction | int | float) -> Staircase:
    """Return the staircase noise of a hull; its ratio q is e^-epsilon rounded up.

    Raises:
        GraphError: The hull is capped, or neither of rank 1 nor of rank 2 in two dimensions; or epsilon is out of
            range.
    """
    boundary_points(hull)  # refuses other shapes
    return Staircase(tuple(tuple(vertex) for vertex in hull.vertices.tolist()), noise_ratio(epsilon))


def staircase_error(noise: Staircase) -> float:
    """Return E|v|^2 of staircase noise, in squared lattice steps: geometric sums over the classes of the cones."""
    q = float(noise.ratio)
    mean, mean_square = q / (1.0 - q), q * (1.0 + q) / (1.0 - q) ** 2
    if noise.is_segment:
        corner = noise.vertices[1]
        steps = math.gcd(*corner)
        squared_length = sum(coordinate * coordinate for coordinate in corner)
        error_sum = sum(mean_square + 2.0 * mean * s / steps + (s / steps) ** 2 for s in range(1, steps + 1))
        return float(2.0 * squared_length * error_sum * q / (1.0 - q) / float(noise.normaliser))
    error_sum = 0.0
    for a, b, alpha, beta, parts in (noise.point_class(index) for index in range(noise.double_area)):
        s, t = alpha / parts, beta / parts
        weight = q ** (1 + (alpha + beta > parts)) / (1.0 - q) ** 2
        error_sum += weight * (a[0] * a[0] + a[1] * a[1]) * (mean_square + 2.0 * mean * s + s * s)
        error_sum += weight * (b[0] * b[0] + b[1] * b[1]) * (mean_square + 2.0 * mean * t + t * t)
        error_sum += weight * 2.0 * (a[0] * b[0] + a[1] * b[1]) * (mean + s) * (mean + t)
    return float(error_sum / float(noise.normaliser))
