"""Convex hulls of integer points in two and three dimensions, exactly: a monotone chain, and gift wrapping.

Coordinates must be small enough that determinants fit in 63 bits: `gateway.dphmm.hull` sees to it. Qhull is not
used: it decides in floating point, and a facet that it misses would have to be found exactly anyway.
"""

from __future__ import annotations

import numpy as np

from gateway.dphmm.graphs import IntArray

__all__ = ["polygon", "wrap"]


def polygon(points: IntArray) -> list[int]:
    """The vertices of the convex hull of points in the plane.

    Args:
        points: n x 2, not all on one line.

    Returns:
        Indices of the vertices, counter-clockwise from the lexicographically lowest point.
    """
    columns = _columns(points)
    x, y = points[:, 0].tolist(), points[:, 1].tolist()
    chains = []
    for chain in (columns[0], columns[1][::-1]):
        kept: list[int] = []
        for index in chain:
            while len(kept) > 1:
                a, b = kept[-2], kept[-1]
                if (x[b] - x[a]) * (y[index] - y[a]) > (y[b] - y[a]) * (x[index] - x[a]):
                    break
                kept.pop()
            kept.append(index)
        chains.append(kept)
    below, above = chains
    above = above[1:] if above[0] == below[-1] else above
    return below + (above[:-1] if above[-1] == below[0] else above)


def wrap(points: IntArray) -> tuple[IntArray, tuple[tuple[int, ...], ...]]:
    """The convex hull of points in space, by gift wrapping.

    Args:
        points: n x 3, not all in one plane.

    Returns:
        Vertices, V x 3 in lexicographic order, and for each facet the cycle of its corners, counter-clockwise from
        outside, collinear corners left out.
    """
    points = np.unique(points, axis=0)
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
            normal = np.cross(points[here] - points[there], points[third] - points[there])
            neighbour = _facet(points, there, normal)
            crossed.update(zip(neighbour, neighbour[1:] + neighbour[:1], strict=True))
            if neighbour not in found:
                found[neighbour] = None
                waiting.append(neighbour)
    used = sorted({corner for facet in found for corner in facet})
    number = {corner: index for index, corner in enumerate(used)}
    return points[used], tuple(tuple(number[corner] for corner in facet) for facet in found)


def _first_facet(points: IntArray) -> tuple[int, ...]:
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


def _pivot(points: IntArray, corner: int, edge: IntArray) -> int:
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


def _facet(points: IntArray, corner: int, normal: IntArray) -> tuple[int, ...]:
    """The corners of the facet with an outward normal, counter-clockwise from outside, lowest index first."""
    touching = np.flatnonzero((points - points[corner]) @ normal == 0)
    dropped = int(np.argmax(np.abs(normal)))
    axes = [(dropped + 1) % 3, (dropped + 2) % 3]
    cycle = touching[polygon(points[touching][:, axes])].tolist()
    if normal[dropped] < 0:
        cycle.reverse()
    turn = cycle.index(min(cycle))
    return tuple(cycle[turn:] + cycle[:turn])


def _columns(points: IntArray) -> tuple[list[int], list[int]]:
    """Of each abscissa, from left to right, the lowest and the highest point."""
    order = np.lexsort((points[:, 1], points[:, 0]))
    new = np.diff(points[order, 0]) != 0
    lowest = order[np.concatenate([[True], new])]
    highest = order[np.concatenate([new, [True]])]
    highest = np.where(points[highest, 1] == points[lowest, 1], lowest, highest)  # one of equal points
    return lowest.tolist(), highest.tolist()
