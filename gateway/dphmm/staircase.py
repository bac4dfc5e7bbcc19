"""The staircase K-norm mechanism: P(v) proportional to q^ceil(gauge(v)) on the lattice, in integers throughout.

The gauge of a sum is at most the sum of the gauges, so moving by a vector of K changes the power by at most 1, and
the likelihood by at most 1/q. For a lattice polygon with area A and B boundary points, n K holds
A n^2 + (B/2) n + 1 points (Ehrhart), so shell n has A (2n - 1) + B/2 of them, and everything is a small rational.

A draw takes a shell, then a point of it. The cone of an edge (a, b) holds 2A_ab classes of points
(i + alpha) a + (j + beta) b with i, j >= 0, alpha in (0, 1] and beta in [0, 1): a class with alpha + beta <= 1 meets
shell n in n points, any other in n - 1. No table, no truncation, no floating point.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from gateway.dphmm.graphs import GraphError
from gateway.dphmm.hull import Hull, ceil_gauges
from gateway.dphmm.moments import boundary_points, simplices
from gateway.dphmm.ratios import noise_ratio
from gateway.dphmm.unrolling import bezout

__all__ = ["Below", "Staircase", "draw", "normaliser", "probability", "shell_weights", "staircase", "staircase_error"]

Below = Callable[[int], int]
"""below(n) is uniform on 0..n-1: `secrets.randbelow` on a device, a seeded `Random.randrange` in a simulation."""


class Staircase(NamedTuple):
    """Staircase noise of a hull.

    Attributes:
        hull: K, a lattice polygon in the plane or a lattice segment.
        ratio: q, in (0, 1).
        double_area: 2A, 0 for a segment.
        boundary: B.
    """

    hull: Hull
    ratio: Fraction
    double_area: int
    boundary: int


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
    boundary = boundary_points(hull)
    doubled = sum(weight for _, weight in simplices(hull)) if hull.rank == 2 else 0
    return Staircase(hull, q, doubled, boundary)


def shell_weights(noise: Staircase) -> tuple[int, int, int]:
    """Integer weights of three ways to take a shell, for q = p/r: (w1, w2, w3).

    Returns:
        w1 = 2 (r-p)^2 for shell 0; w2 = (2A + B) p (r-p) for shell n >= 1 with law (1-q) q^(n-1); w3 = 4A p^2 for
        shell n >= 2 with law (n-1)(1-q)^2 q^(n-2). They split A (2n - 1) + B/2 as (A + B/2) + 2A (n - 1).
    """
    p, r = noise.ratio.as_integer_ratio()
    return 2 * (r - p) ** 2, (noise.double_area + noise.boundary) * p * (r - p), 2 * noise.double_area * p**2


def normaliser(noise: Staircase) -> Fraction:
    """Z, the sum of q^ceil(gauge(v)) over the lattice."""
    p, r = noise.ratio.as_integer_ratio()
    return Fraction(sum(shell_weights(noise)), 2 * (r - p) ** 2)


def probability(noise: Staircase, point: tuple[int, ...]) -> Fraction:
    """P(point), d integers; 0 outside the span of K."""
    power = int(ceil_gauges(noise.hull, np.array([point], dtype=np.int64))[0])
    return noise.ratio**power / normaliser(noise) if power >= 0 else Fraction(0)


def draw(noise: Staircase, below: Below) -> tuple[int, ...]:
    """Draw one vector of staircase noise, exactly.

    Args:
        noise: from `staircase`.
        below: the source of randomness.

    Returns:
        d integers.
    """
    w1, w2, w3 = shell_weights(noise)
    chosen = below(w1 + w2 + w3)
    if chosen < w1:
        return (0,) * noise.hull.dimensions
    shell = 1 + _geometric(noise.ratio, below)
    if chosen >= w1 + w2:
        shell += 1 + _geometric(noise.ratio, below)
    if noise.hull.rank == 1:
        return _on_segment(noise.hull, shell, below)
    while True:
        a, b, alpha, beta, size = _class(noise, below(noise.double_area))
        step = below(shell)
        far = alpha + beta > size
        if far and step == shell - 1:  # such a class has one point fewer in this shell
            continue
        i, j = step, shell - 1 - far - step
        return tuple(((i * size + alpha) * s + (j * size + beta) * t) // size for s, t in zip(a, b, strict=True))


def staircase_error(noise: Staircase) -> float:
    """E|v|^2 of staircase noise, in squared lattice steps: geometric sums over the classes of the cones."""
    q = float(noise.ratio)
    mean, square = q / (1.0 - q), q * (1.0 + q) / (1.0 - q) ** 2
    if noise.hull.rank == 1:
        end = noise.hull.vertices[1].tolist()
        steps = math.gcd(*end)
        length = sum(value * value for value in end)
        total = sum(square + 2.0 * mean * s / steps + (s / steps) ** 2 for s in range(1, steps + 1))
        on_line: float = 2.0 * length * total * q / (1.0 - q) / float(normaliser(noise))
        return on_line
    total = 0.0
    for a, b, alpha, beta, size in (_class(noise, index) for index in range(noise.double_area)):
        s, t = alpha / size, beta / size
        weight = q ** (1 + (alpha + beta > size)) / (1.0 - q) ** 2
        total += weight * (a[0] * a[0] + a[1] * a[1]) * (square + 2.0 * mean * s + s * s)
        total += weight * (b[0] * b[0] + b[1] * b[1]) * (square + 2.0 * mean * t + t * t)
        total += weight * 2.0 * (a[0] * b[0] + a[1] * b[1]) * (mean + s) * (mean + t)
    error: float = total / float(normaliser(noise))
    return error


def _geometric(ratio: Fraction, below: Below) -> int:
    """How often in a row something of probability q happens."""
    count = 0
    while below(ratio.denominator) < ratio.numerator:
        count += 1
    return count


def _on_segment(hull: Hull, shell: int, below: Below) -> tuple[int, ...]:
    """A point of a shell of a segment: `steps` on either side."""
    end = hull.vertices[1].tolist()
    steps = math.gcd(*end)
    pick = below(2 * steps)
    place = (shell - 1) * steps + 1 + pick // 2
    return tuple((place if pick % 2 else -place) * value // steps for value in end)


def _class(noise: Staircase, index: int) -> tuple[tuple[int, int], tuple[int, int], int, int, int]:
    """Class number `index` of 0..2A-1: the edge (a, b), alpha and beta as numerators, and their denominator."""
    cones = _cones(noise.hull)
    (a, b), size = next(cones)
    while index >= size:
        index -= size
        (a, b), size = next(cones)
    # In a basis of the lattice where a is (g, 0), the box [0, g) x [0, size / g) meets every class once.
    g, s, t = bezout(*a)
    u, v = index % g, index // g
    x, y = u * (a[0] // g) - v * t, u * (a[1] // g) + v * s
    alpha, beta = (x * b[1] - y * b[0]) % size, (a[0] * y - a[1] * x) % size
    return a, b, alpha or size, beta, size


def _cones(hull: Hull) -> Iterator[tuple[tuple[tuple[int, int], tuple[int, int]], int]]:
    """The edges of a polygon, counter-clockwise, each with the determinant of its ends."""
    for chosen, size in simplices(hull):
        (a0, a1), (b0, b1) = chosen
        yield ((a0, a1), (b0, b1)), size
