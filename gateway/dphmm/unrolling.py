"""Flat hulls as problems in fewer dimensions: coordinates of the lattice within the span of a hull."""

from __future__ import annotations

import math

import numpy as np

from contract.staircase import bezout
from gateway.chain.arrays import Ints
from gateway.dphmm.graphs import GraphError
from gateway.dphmm.hull import Hull, difference_hull

__all__ = ["bezout", "lattice_basis", "unrolled"]


def lattice_basis(hull: Hull) -> Ints:
    """A short basis, rank x d, of the integer points in the span of a hull; the unit vectors if the rank is full."""
    if hull.rank == 1 < hull.dimensions:
        end = hull.vertices[1]
        return np.asarray(end[None, :] // math.gcd(*end.tolist()), dtype=np.int64)
    if hull.rank != 2 or hull.dimensions != 3:
        return np.eye(hull.dimensions, dtype=np.int64)[list(hull.axes)]
    normal = hull.equations[0].tolist()
    k, m, n = (value // math.gcd(*normal) for value in normal)
    g, s, t = bezout(k, m)
    # with (k, m, n) . x = 0 and gcd(g, n) = 1, the last coordinate is a multiple of g
    first, second = ((m // g, -k // g, 0), (-n * s, -n * t, g)) if g else ((1, 0, 0), (0, 1, 0))
    while True:  # Gauss's reduction, so that the axes of a window are nearly at right angles
        if _dot(first, first) > _dot(second, second):
            first, second = second, first
        length = _dot(first, first)
        multiple = (2 * _dot(first, second) + length) // (2 * length)
        if multiple == 0:
            return np.array([first, second], dtype=np.int64)
        second = (second[0] - multiple * first[0], second[1] - multiple * first[1], second[2] - multiple * first[2])
        if _dot(second, second) >= length:
            return np.array([first, second], dtype=np.int64)


def unrolled(hull: Hull, values: Ints) -> tuple[Hull, Ints, Ints]:
    """A hull and points in coordinates of the span, where the hull has full rank.

    Args:
        hull: K, of rank at least 1.
        values: n x d, whose differences lie in the span of K.

    Returns:
        The hull in `rank` dimensions; the coordinates of values - values[0], n x rank; and the basis, rank x d, for
        the way back: values[0] + coordinates @ basis.

    Raises:
        GraphError: Some difference leaves the span.
    """
    basis = lattice_basis(hull)
    if hull.rank == hull.dimensions:
        return hull, values - values[0], basis
    spread = values - values[0]
    if hull.rank == 0 or np.any(spread @ hull.equations.T):
        raise GraphError("the hull is too flat for these points: cap it against the hull of all differences")
    inner = difference_hull(_coordinates(hull, basis, hull.vertices), scale=hull.scale)
    return inner, _coordinates(hull, basis, spread), basis


def _coordinates(hull: Hull, basis: Ints, points: Ints) -> Ints:
    """Coordinates of points of the span in a basis of its lattice; always whole."""
    seen, axes = points[:, hull.axes], basis[:, hull.axes]
    if hull.rank == 1:
        return np.asarray(seen // axes[0, 0], dtype=np.int64)
    (a, b), (c, d) = axes.tolist()
    x, y = seen[:, 0], seen[:, 1]
    return np.asarray(np.stack([x * d - y * c, y * a - x * b], axis=1) // (a * d - b * c), dtype=np.int64)


def _dot(left: tuple[int, int, int], right: tuple[int, int, int]) -> int:
    return sum(a * b for a, b in zip(left, right, strict=True))
