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
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise

from fugu.contract.errors import FrameRangeError
from fugu.contract.measure_frames import Point

__all__ = ["Below", "Staircase", "bezout", "draw", "normaliser", "point_class", "shell_weights"]

Below = Callable[[int], int]
"""below(n) is uniform on 0..n-1."""

Plane = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Staircase:
    """Staircase noise of a hull K.

    Attributes:
        vertices: of K, integers: the two ends of a segment, in any number of dimensions, or the corners of a polygon in
            the plane, counter-clockwise. K is symmetric about 0.
        ratio: q, in (0, 1).
    """

    vertices: tuple[Point, ...]
    ratio: Fraction

    def __post_init__(self) -> None:
        """Refuse what is no symmetric convex hull, or no ratio."""
        if not 0 < self.ratio < 1:
            raise FrameRangeError("the ratio of a staircase is not between 0 and 1")
        half, odd = divmod(len(self.vertices), 2)
        if odd or half < 1 or len({len(vertex) for vertex in self.vertices}) != 1:
            raise FrameRangeError("a hull has an even number of vertices, of equal dimensions")
        opposite = tuple(tuple(-value for value in vertex) for vertex in self.vertices)
        if opposite != self.vertices[half:] + self.vertices[:half]:
            raise FrameRangeError("the hull is not symmetric about 0")
        if half == 1:
            if not any(self.vertices[0]):
                raise FrameRangeError("the hull is a point")
        elif len(self.vertices[0]) != 2 or not self._convex():
            raise FrameRangeError("the hull is no convex polygon in the plane, counter-clockwise")

    def _convex(self) -> bool:
        """Whether half a turn is made from the first vertex to its negative, with every corner to the left."""
        first = _plane(self.vertices[0])
        half = len(self.vertices) // 2
        if not all(_cross(first, _plane(vertex)) > 0 for vertex in self.vertices[1:half]):
            return False
        if not all(size > 0 for _, _, size in self.cones()):  # a polygon that loops would turn left everywhere, too
            return False
        steps = [(b[0] - a[0], b[1] - a[1]) for a, b in pairwise((*self.vertices, *self.vertices[:2]))]
        return all(_cross(a, b) > 0 for a, b in pairwise(steps))

    @property
    def dimensions(self) -> int:
        """d, of the space."""
        return len(self.vertices[0])

    @property
    def is_segment(self) -> bool:
        """Whether K has rank 1."""
        return len(self.vertices) == 2

    @property
    def double_area(self) -> int:
        """2A; 0 for a segment."""
        return 0 if self.is_segment else sum(size for _, _, size in self.cones())

    @property
    def boundary(self) -> int:
        """B, the lattice points on the boundary; both sides of a segment are counted."""
        steps = pairwise((*self.vertices, self.vertices[0]))
        return sum(math.gcd(*(y - x for x, y in zip(a, b, strict=True))) for a, b in steps)

    def cones(self) -> Iterator[tuple[Plane, Plane, int]]:
        """The edges (a, b) of a polygon, counter-clockwise, each with the determinant of its ends."""
        for a, b in pairwise((*self.vertices, self.vertices[0])):
            u, v = _plane(a), _plane(b)
            yield u, v, _cross(u, v)

    def facets(self) -> list[tuple[Point, int]]:
        """Outward normals and offsets: a point of the span of K lies in t K if normal . point <= t offset for all."""
        if self.is_segment:
            end = self.vertices[0]
            length = sum(value * value for value in end)
            return [(end, length), (tuple(-value for value in end), length)]
        return [((b[1] - a[1], a[0] - b[0]), size) for a, b, size in self.cones()]

    def spans(self, difference: Point) -> bool:
        """Whether a vector lies in the span of K."""
        if not self.is_segment:
            return True
        end = self.vertices[0]
        return all(
            end[i] * difference[j] == end[j] * difference[i] for i in range(len(end)) for j in range(i + 1, len(end))
        )


def shell_weights(noise: Staircase) -> tuple[int, int, int]:
    """Integer weights of three ways to take a shell, for q = p/r: (w1, w2, w3).

    Returns:
        w1 = 2 (r-p)^2 for shell 0; w2 = (2A + B) p (r-p) for shell n >= 1 with distribution (1-q) q^(n-1); w3 = 4A p^2
        for shell n >= 2 with distribution (n-1)(1-q)^2 q^(n-2). They split A (2n - 1) + B/2 as (A + B/2) + 2A (n - 1).
    """
    p, r = noise.ratio.as_integer_ratio()
    return 2 * (r - p) ** 2, (noise.double_area + noise.boundary) * p * (r - p), 2 * noise.double_area * p**2


def normaliser(noise: Staircase) -> Fraction:
    """Z, the sum of q^ceil(gauge(v)) over the lattice."""
    p, r = noise.ratio.as_integer_ratio()
    return Fraction(sum(shell_weights(noise)), 2 * (r - p) ** 2)


def draw(noise: Staircase, below: Below) -> Point:
    """Draw one vector of staircase noise, exactly.

    Returns:
        d integers.
    """
    w1, w2, w3 = shell_weights(noise)
    chosen = below(w1 + w2 + w3)
    if chosen < w1:
        return (0,) * noise.dimensions
    shell = 1 + _geometric(noise.ratio, below)
    if chosen >= w1 + w2:
        shell += 1 + _geometric(noise.ratio, below)
    if noise.is_segment:
        return _on_segment(noise, shell, below)
    double_area = noise.double_area
    while True:
        a, b, alpha, beta, size = point_class(noise, below(double_area))
        step = below(shell)
        far = alpha + beta > size
        if far and step == shell - 1:  # such a class has one point fewer in this shell
            continue
        i, j = step, shell - 1 - far - step
        return tuple(((i * size + alpha) * s + (j * size + beta) * t) // size for s, t in zip(a, b, strict=True))


def point_class(noise: Staircase, index: int) -> tuple[Plane, Plane, int, int, int]:
    """Class number `index` of 0..2A-1: the edge (a, b), alpha and beta as numerators, and their denominator."""
    cones = noise.cones()
    a, b, size = next(cones)
    while index >= size:
        index -= size
        a, b, size = next(cones)
    # In a basis of the lattice where a is (g, 0), the box [0, g) x [0, size / g) meets every class once.
    g, s, t = bezout(*a)
    u, v = index % g, index // g
    x, y = u * (a[0] // g) - v * t, u * (a[1] // g) + v * s
    alpha, beta = (x * b[1] - y * b[0]) % size, (a[0] * y - a[1] * x) % size
    return a, b, alpha or size, beta, size


def bezout(a: int, b: int) -> tuple[int, int, int]:
    """(g, s, t) with g = gcd(a, b) = s a + t b, above 0 unless both are 0."""
    s, t, next_s, next_t = 1, 0, 0, 1
    while b:
        quotient = a // b
        a, b = b, a - quotient * b
        s, next_s = next_s, s - quotient * next_s
        t, next_t = next_t, t - quotient * next_t
    return (a, s, t) if a >= 0 else (-a, -s, -t)


def _geometric(ratio: Fraction, below: Below) -> int:
    """How often in a row something of probability q happens."""
    count = 0
    while below(ratio.denominator) < ratio.numerator:
        count += 1
    return count


def _on_segment(noise: Staircase, shell: int, below: Below) -> Point:
    """A point of a shell of a segment: `steps` on either side."""
    end = noise.vertices[1]
    steps = math.gcd(*end)
    pick = below(2 * steps)
    place = (shell - 1) * steps + 1 + pick // 2
    return tuple((place if pick % 2 else -place) * value // steps for value in end)


def _cross(a: Plane, b: Plane) -> int:
    return a[0] * b[1] - a[1] * b[0]


def _plane(point: Point) -> Plane:
    return point[0], point[1]
