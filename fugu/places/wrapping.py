"""Convex hulls of integer points in two and three dimensions, exactly: a monotone chain, and gift wrapping.

Coordinates must be small enough that determinants fit in 63 bits: `fugu.places.hull` sees to it. Qhull is not
used: it decides in floating point, and a facet that it misses would have to be found exactly anyway.
"""

from __future__ import annotations

import math

import numpy as np

from fugu.chains.arrays import Bools, Ints

__all__ = ["distinct", "mirrored_polygon", "outermost", "polygon", "span", "wrap"]

_FLAGS_PER_POINT = 16
_DIRECTIONS = np.array([[1, 1, 0, -1], [0, 1, 1, 1]])  # half a turn, as columns


def distinct(points: Ints) -> Ints:
    """The different points among n x d integers, in lexicographic order.

    The sides of their box, multiplied, stay below 2^63.
    """
    if not len(points):
        return points
    low = points.min(axis=0)
    sides = (points.max(axis=0) - low + 1).tolist()
    key = np.zeros(len(points), dtype=np.int64)
    for column, least, side in zip(points.T, low, sides, strict=True):
        key = key * side + (column - least)
    cells = math.prod(sides)
    if cells <= _FLAGS_PER_POINT * len(points):  # a flag for every cell of the box is cheaper than sorting
        flags = np.zeros(cells, dtype=np.bool_)
        flags[key] = True
        key = np.flatnonzero(flags)
    else:
        key = np.unique(key)
    return np.asarray(np.stack(np.unravel_index(key, sides), axis=1) + low, dtype=np.int64)


def outermost(points: Ints) -> Ints:
    """Points in the plane, n x 2, without those strictly inside an octagon of far points and their negatives.

    The octagon is part of the hull of the points and their negatives, so that loses none of its vertices. The points
    are within 2^28.
    """
    if not len(points):
        return points
    heights = points @ _DIRECTIONS
    farthest = np.argmax(np.abs(heights), axis=0)
    ring = points[farthest] * np.sign(heights[farthest, np.arange(4)])[:, None]
    sides = np.diff(np.concatenate([ring, -ring[:1]]), axis=0)
    normals = np.stack([sides[:, 1], -sides[:, 0]])
    offsets = np.sum(normals.T * ring, axis=1)
    real = offsets > 0  # the same point may be farthest in two directions; of a flat octagon there is no inside
    if not real.any():
        return points
    outside: Bools = (np.abs(points @ normals[:, real]) >= offsets[real]).any(axis=1)
    return points[outside]


def span(points: Ints) -> tuple[Ints, tuple[int, ...]]:
    """The span of n x d points, none of them 0: its equations, and coordinates that tell its points apart.

    Returns:
        (d - rank) x d integers, normal to the span, and `rank` axes.
    """
    space = points.shape[1]
    identity = np.eye(space, dtype=np.int64)
    if not len(points):
        return identity, ()
    first = points[0]
    axis = int(np.argmax(np.abs(first)))
    others = [other for other in range(space) if other != axis]
    equations = first[axis] * identity[others] - first[others][:, None] * identity[axis]
    off = points @ equations.T  # rows of zeros are multiples of the first point
    outside = off.any(axis=1)
    if not outside.any():
        return equations, (axis,)
    if space == 2:
        return np.zeros((0, 2), dtype=np.int64), (0, 1)
    normal = np.cross(first, points[int(np.argmax(outside))])
    if np.any(points @ normal):
        return np.zeros((0, 3), dtype=np.int64), (0, 1, 2)
    dropped = int(np.argmax(np.abs(normal)))
    return normal[None, :], tuple(other for other in range(3) if other != dropped)


def polygon(points: Ints) -> list[int]:
    """Indices of the vertices of the hull of n x 2 points, not all on a line, counter-clockwise from the lowest."""
    lowest, highest = _columns(points)
    below, above = _turning_left(points, lowest), _turning_left(points, highest[::-1])
    above = above[1:] if above[0] == below[-1] else above
    return below + (above[:-1] if above[-1] == below[0] else above)


def mirrored_polygon(points: Ints, axes: tuple[int, ...]) -> Ints:
    """The vertices of a flat hull that contains -x with every x: half the work of `polygon`.

    Args:
        points: n x d, with the negative of each, on a plane through 0 but not all on one line.
        axes: two coordinates that tell the points of the plane apart; in them the result is counter-clockwise.
    """
    seen = points[:, axes]
    below = points[_turning_left(seen, _columns(seen)[0])]
    below = below if np.any(below[0] + below[-1]) else below[:-1]
    return np.concatenate([below, -below])


def wrap(points: Ints) -> tuple[Ints, tuple[tuple[int, ...], ...]]:
    """The convex hull of points in space, by gift wrapping.

    Args:
        points: n x 3, not all in one plane.

    Returns:
        Vertices, V x 3 in lexicographic order, and for each facet the cycle of its corners, counter-clockwise from
        outside, collinear corners left out.
    """
    points = distinct(points)
    start = _first_facet(points)
    found = {start: None}
    waiting = [start]
    crossed: set[tuple[int, int]] = set()
    while waiting:
        facet = waiting.pop()
        for here, there in zip(facet, facet[1:] + facet[:1], strict=True):
            if (there, here) in crossed:
                continue
            # seen from the neighbour, the shared edge runs the other way
            third = _pivot(points, there, points[here] - points[there])
            neighbour = _facet(points, there, np.cross(points[here] - points[there], points[third] - points[there]))
            crossed.update(zip(neighbour, neighbour[1:] + neighbour[:1], strict=True))
            if neighbour not in found:
                found[neighbour] = None
                waiting.append(neighbour)
    used = sorted({corner for facet in found for corner in facet})
    number = {corner: index for index, corner in enumerate(used)}
    return points[used], tuple(tuple(number[corner] for corner in facet) for facet in found)


def _first_facet(points: Ints) -> tuple[int, ...]:
    """Tip the plane x = max about a line in it until it rests on three points."""
    corner = len(points) - 1  # the lexicographically highest
    lowest = int(np.searchsorted(points[:, 0], points[corner, 0]))
    # the line runs through all points of the plane x = max, unless they span it
    edge = points[corner] - points[lowest] if lowest < corner else np.array([0, 0, 1], dtype=np.int64)
    touching = points[lowest:]
    if np.any(np.cross(edge, touching - points[corner])):
        return _facet(points, corner, np.array([1, 0, 0], dtype=np.int64))
    third = _pivot(points, corner, edge)
    normal = np.cross(edge, points[third] - points[corner])
    touching = points[(points - points[corner]) @ normal == 0]
    edge = points[third] - points[corner]
    if not np.any(np.cross(edge, touching - points[corner])):
        third = _pivot(points, corner, edge)
        normal = np.cross(edge, points[third] - points[corner])
    return _facet(points, corner, normal)


def _pivot(points: Ints, corner: int, edge: Ints) -> int:
    """The point that a plane through a line meets last: no point is above the plane of the line and it.

    The line touches the hull, so the points around it span less than half a turn and the order is total.
    """
    away = points - points[corner]
    best = int(np.argmax(np.cross(edge, away).any(axis=1)))
    while True:
        above = away @ np.cross(edge, away[best])
        higher = int(np.argmax(above))
        if above[higher] <= 0:
            return best
        best = higher


def _facet(points: Ints, corner: int, normal: Ints) -> tuple[int, ...]:
    """The corners of the facet with an outward normal, counter-clockwise from outside, lowest index first."""
    touching = np.flatnonzero((points - points[corner]) @ normal == 0)
    dropped = int(np.argmax(np.abs(normal)))
    cycle = touching[polygon(points[touching][:, [(dropped + 1) % 3, (dropped + 2) % 3]])].tolist()
    if normal[dropped] < 0:
        cycle.reverse()
    turn = cycle.index(min(cycle))
    return tuple(cycle[turn:] + cycle[:turn])


def _turning_left(points: Ints, chain: list[int]) -> list[int]:
    """What is left of a chain of points in the plane without those where it does not turn left."""
    x, y = points[:, 0].tolist(), points[:, 1].tolist()
    corners: list[int] = []
    for index in chain:
        while len(corners) > 1:
            a, b = corners[-2], corners[-1]
            if (x[b] - x[a]) * (y[index] - y[a]) > (y[b] - y[a]) * (x[index] - x[a]):
                break
            corners.pop()
        corners.append(index)
    return corners


def _columns(points: Ints) -> tuple[list[int], list[int]]:
    """Of each abscissa, from left to right, the lowest and the highest point."""
    order = np.lexsort((points[:, 1], points[:, 0]))
    new = np.diff(points[order, 0]) != 0
    lowest = order[np.concatenate([[True], new])]
    highest = order[np.concatenate([new, [True]])]
    highest = np.where(points[highest, 1] == points[lowest, 1], lowest, highest)  # one of equal points
    return lowest.tolist(), highest.tolist()
