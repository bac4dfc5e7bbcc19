"""Staircase noise made from a hull, its distribution and its error; `fugu.contract.staircase` draws it."""

from __future__ import annotations

import math
from fractions import Fraction

from fugu.contract import measure_check
from fugu.contract.errors import GuaranteeError
from fugu.contract.measure_check import MOST_EPSILON, RATIO_BITS
from fugu.contract.staircase import Staircase, normaliser, point_class
from fugu.places.graphs import GraphError
from fugu.places.hull import Hull
from fugu.places.moments import boundary_points

__all__ = ["MOST_EPSILON", "RATIO_BITS", "floor_exp", "noise_ratio", "staircase", "staircase_error"]


def floor_exp(epsilon: Fraction | int | float, bits: int = RATIO_BITS) -> int:
    """floor(e^epsilon * 2^bits), never above it.

    Args:
        epsilon: above 0 and at most 20, in nats.

    Raises:
        GraphError: epsilon is out of range.
    """
    try:
        return measure_check.floor_exp(epsilon, bits)
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
    """Prepare staircase noise.

    Args:
        hull: K, of rank 1, or of rank 2 in two dimensions; not capped.
        epsilon: above 0; q is then e^-epsilon rounded up.
        ratio: q itself, instead of epsilon.

    Raises:
        GraphError: The hull has another shape, or not exactly one of epsilon and ratio is given and in range.
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
