"""Sensitivity hulls: the convex hull K of the differences f(i) - f(j) over protected pairs, exactly.

All points are integers, small enough that determinants fit in 63 bits, and all decisions are made in integers. So a
point on the boundary has gauge exactly 1. Hulls are symmetric about 0. A hull of lower rank than its space (a segment
in the plane, a polygon in space) is bounded by its edges. It lies in the plane of its equations. Source: DPHMM, section
5.

Hulls are found by a monotone chain in the plane and gift wrapping in space. Qhull is not used: it decides in floating
point, and a facet that it misses would have to be found exactly anyway.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fugu.chains.arrays import Bools, Ints
from fugu.places.graphs import GraphError

__all__ = [
    "Hull",
    "complete_hull",
    "difference_hull",
    "distinct",
    "graph_hull",
]

_FLAGS_PER_POINT = 16
_DIRECTIONS = np.array([[1, 1, 0, -1], [0, 1, 1, 1]])  # half a turn, as columns


def distinct(points: Ints) -> Ints:
    """The different points of (n, d), in lexicographic order; the sides of their box, multiplied, are below 2^63."""
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
    """Points in the plane (within 2^28) without those strictly inside an octagon of far points and their negatives.

    The octagon is part of the hull of the points and their negatives, so that loses none of its vertices.
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
    """The span of points, none of them 0: (d - rank, d) normals, and `rank` coordinates that tell its points apart."""
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

    The points (n, d) are not all on one line; `axes` tell them apart, and in these the result is counter-clockwise.
    """
    seen = points[:, axes]
    below = points[_turning_left(seen, _columns(seen)[0])]
    below = below if np.any(below[0] + below[-1]) else below[:-1]
    return np.concatenate([below, -below])


def wrap(points: Ints) -> tuple[Ints, tuple[tuple[int, ...], ...]]:
    """The convex hull of points (n, 3), not all in one plane, by gift wrapping.

    It is vertices in lexicographic order, and for each facet the cycle of its corners, counter-clockwise from outside,
    collinear corners left out.
    """
    points = distinct(points)
    start = _first_facet(points)
    parents = {start: None}
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
            if neighbour not in parents:
                parents[neighbour] = None
                waiting.append(neighbour)
    used = sorted({corner for facet in parents for corner in facet})
    number = {corner: index for index, corner in enumerate(used)}
    return points[used], tuple(tuple(number[corner] for corner in facet) for facet in parents)


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
    """Remove the points where a chain of points in the plane does not turn left."""
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


# Points of a hull stay below this in each dimension, so that its determinants fit in 63 bits.
_POINT_LIMIT = {1: 1 << 28, 2: 1 << 28, 3: 1 << 18}
_SAFE = 1 << 62
_CLOSE = 1.0 + 1e-9


class Hull(NamedTuple):
    """A symmetric convex polytope { x : equations x = 0, scale * normals x <= offsets }.

    K is the convex hull of `vertices` divided by `scale`, which is 1 unless it was capped. A polygon's are
    counter-clockwise from the lexicographically lowest one (as seen from its projection, in three dimensions); a
    segment has its two ends. `normals` are outward, (F, d), one per facet within the span, `offsets` above 0; `faces`
    are cycles of a facet's corners, counter-clockwise from outside. `equations` are (d - rank, d), normal to the span,
    whose points `axes` tell apart.
    """

    vertices: Ints
    scale: int
    normals: Ints
    offsets: Ints
    faces: tuple[tuple[int, ...], ...]
    equations: Ints
    axes: tuple[int, ...]

    @property
    def dimensions(self) -> int:
        """d, of the space."""
        return int(self.equations.shape[1])

    @property
    def rank(self) -> int:
        """Dimensions of K itself."""
        return len(self.axes)

    def extended(self, difference: Ints) -> Hull:
        """Conv(K and +-difference); difference has d integers."""
        return difference_hull(np.concatenate([self.vertices, self.scale * difference[None, :]]), scale=self.scale)

    def capped(self, everything: Hull, cap: Fraction | int) -> Hull:
        """K_c = Conv(K and K_complete / c), of finite factor: no pair of states is further apart than gauge c.

        `everything` is K_complete, the hull of all differences within the constraint set.

        Raises:
            GraphError: c is below 1, or its numerator or denominator is too large for exact 64-bit arithmetic.
        """
        if cap < 1:
            raise GraphError(f"a cap is at least 1, got {cap}")
        if max(Fraction(cap).as_integer_ratio()) > 1 << 16:
            raise GraphError(f"a cap is a fraction of numbers up to 65536, got {cap}")
        ratio = Fraction(cap) * everything.scale
        scale = math.lcm(self.scale, ratio.numerator)
        ours = self.vertices * (scale // self.scale)
        return difference_hull(np.concatenate([ours, everything.vertices * int(scale / ratio)]), scale=scale)

    def gauge(self, point: Sequence[int | Fraction]) -> Fraction | float:
        """The least t >= 0 with the point in t K: a fraction, exactly 1 on the boundary; `math.inf` off K's span."""
        exact = [Fraction(value) for value in point]
        if any(_dot(equation, exact) != 0 for equation in self.equations.tolist()):
            return math.inf
        sides = zip(self.normals.tolist(), self.offsets.tolist(), strict=True)
        return max((self.scale * _dot(normal, exact) / offset for normal, offset in sides), default=Fraction(0))

    def largest_gauge(self, values: Ints) -> Fraction | float:
        """The largest gauge among differences of points, theorem 6.3's factor; `math.inf` if one leaves K's span."""
        spread = values - values[0]
        if np.any(spread @ self.equations.T):
            return math.inf
        heights = self._products(spread)
        widths = heights.max(axis=0) - heights.min(axis=0)
        rough = widths / self.offsets
        near = rough * _CLOSE >= rough.max(initial=0.0)
        sides = zip(widths[near].tolist(), self.offsets[near].tolist(), strict=True)
        return max((Fraction(width, offset) for width, offset in sides), default=Fraction(0))

    def differences_within(self, left: Ints, right: Ints) -> Bools:
        """Which differences left[i] - right[j] of m x d and n x d points lie in K: m x n, by integers; n >= 1."""
        inside = np.ones((len(left), len(right)), dtype=np.bool_)
        for here, there in zip((left @ self.equations.T).T, (right @ self.equations.T).T, strict=True):
            inside &= here[:, None] == there[None, :]
        ours = self._products(left).T
        theirs = ours if right is left else self._products(right).T
        if not len(left) or not len(self.offsets):
            return inside
        low = theirs.min(axis=1)
        cuts = np.flatnonzero(ours.max(axis=1) - low > self.offsets)  # the other facets cut nobody off
        low, limits = low[cuts, None], self.offsets[cuts, None]
        ours, theirs = ours[cuts] - low, theirs[cuts] - low + limits
        # narrow integers are compared several times faster
        if len(cuts) and max(ours.max(), theirs.max(), -ours.min()) < 1 << 15:
            ours, theirs = ours.astype(np.int16), theirs.astype(np.int16)
        for here, there in zip(ours, theirs, strict=True):
            inside &= (here[:, None] <= there[None, :]).astype(np.bool_)
        return inside

    def pairs_within(self, values: Ints) -> Bools:
        """Which differences f(i) - f(j) of n x d points lie in K: n x n, true on the diagonal; n at least 1."""
        leading = self.normals[np.arange(len(self.normals)), np.argmax(self.normals != 0, axis=1)]
        half = self._replace(normals=self.normals[leading > 0], offsets=self.offsets[leading > 0])
        inside = half.differences_within(values, values)  # of two opposite facets one is enough, both ways
        return inside & inside.T

    def ceil_gauges(self, points: Ints) -> Ints:
        """The gauges of n x d points, rounded up to n whole numbers; -1 outside the span of K."""
        gauges = np.zeros(len(points), dtype=np.int64)
        for height, offset in zip(self._products(points).T, self.offsets.tolist(), strict=True):
            np.maximum(gauges, (-(-height // offset)).astype(np.int64), out=gauges)
        if len(self.equations):
            gauges[np.any(points @ self.equations.T, axis=1)] = -1
        return gauges

    def _products(self, points: Ints) -> NDArray[Any]:
        """scale * normals . points as n x F integers, of Python's own kind if 62 bits might not hold them."""
        reach = int(np.abs(points).max(initial=0)) * self.scale * int(np.abs(self.normals).max(initial=0)) * 6
        kind: Any = np.int64 if reach < _SAFE else object
        product: NDArray[Any] = (points.astype(kind) * self.scale) @ self.normals.T.astype(kind)
        return product

    @property
    def area(self) -> Fraction:
        """The length, area or volume of K in its d-dimensional space, exactly; 0 if its rank is lower."""
        if self.rank < self.dimensions:
            return Fraction(0)
        return Fraction(
            sum(weight for _, weight in self.simplices()), math.factorial(self.rank) * self.scale**self.rank
        )

    def simplices(self) -> Iterator[tuple[tuple[tuple[int, ...], ...], int]]:
        """Cut a hull of rank at least 1 into simplices with a corner at 0.

        Yields:
            The `rank` other corners, times the hull's scale, and rank! times the volume in the coordinates `axes`.
        """
        corners = [tuple(vertex) for vertex in self.vertices.tolist()]
        for face in self.faces:
            # a facet of rank 3 is a fan of triangles; an edge and an end are one simplex each
            parts = [(face[0], *pair) for pair in pairwise(face[1:])] if self.rank == 3 else [face]
            for part in parts:
                chosen = tuple(corners[index] for index in part)
                yield chosen, abs(_determinant([[corner[axis] for axis in self.axes] for corner in chosen]))


def difference_hull(differences: ArrayLike, *, scale: int = 1) -> Hull:
    """The hull of differences (n, d), d in 1..3, of their negatives, and of 0; n may be 0.

    Raises:
        GraphError: They have another shape, or are too large for exact 64-bit arithmetic.
    """
    points = np.asarray(differences, dtype=np.int64)
    if points.ndim != 2 or points.shape[1] not in _POINT_LIMIT:
        raise GraphError(f"differences are n points in 1 to 3 dimensions, got shape {points.shape}")
    points, space = points[points.any(axis=1)], points.shape[1]
    if len(points) and np.abs(points).max() > _POINT_LIMIT[space]:
        raise GraphError(f"a hull in {space} dimensions needs points within {_POINT_LIMIT[space]}: scale them down")
    points = np.concatenate([points, -points])
    equations, axes = span(points)
    if len(axes) == 3:
        vertices, faces = wrap(points)
        corners = vertices[np.array([face[:3] for face in faces])]
        normals = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    else:
        vertices = _flat_vertices(points, axes)
        count, normals = len(vertices), np.zeros(vertices.shape, dtype=np.int64)
        if len(axes) == 2:
            faces = tuple((index, (index + 1) % count) for index in range(count))
            step = (np.roll(vertices, -1, axis=0) - vertices)[:, axes]
            normals[:, axes[0]], normals[:, axes[1]] = step[:, 1], -step[:, 0]
        else:
            faces = tuple((index,) for index in range(count))
            normals[:, axes] = np.sign(vertices[:, axes])
    offsets = np.sum(normals * vertices[[face[0] for face in faces]], axis=1)
    return Hull(vertices, scale, normals, offsets, faces, equations, axes)


def graph_hull(values: Ints, graph: Bools) -> Hull:
    """Conv{ f(i) - f(j) : i ~ j in the constraint set }, the sensitivity hull of f under a graph; 0 without an edge."""
    states = np.flatnonzero(graph.any(axis=0))
    if np.count_nonzero(graph) == len(states) * (len(states) - 1):
        return complete_hull(values[states] if len(states) else values[:1])
    first, second = np.divmod(np.flatnonzero(graph), len(graph))
    once = first < second
    differences = values[first[once]] - values[second[once]]
    return difference_hull((outermost if values.shape[1] == 2 else distinct)(differences))


def complete_hull(values: Ints) -> Hull:
    """K_complete, the hull of all differences f(i) - f(j) among n x d points, n at least 1.

    Only extreme points matter, so the others are dropped before differences are taken.
    """
    spread = values - values[0]
    _, axes = span(spread[spread.any(axis=1)])
    if len(axes) == 3:
        corners, _ = wrap(spread)
    elif len(axes) == 2:
        corners = spread[polygon(spread[:, axes])]
    else:
        key = spread[:, axes[0] if axes else 0]
        corners = spread[[int(np.argmin(key)), int(np.argmax(key))]]
    return difference_hull((corners[:, None, :] - corners[None, :, :]).reshape(-1, values.shape[1]))


def _flat_vertices(points: Ints, axes: tuple[int, ...]) -> Ints:
    if len(axes) == 2:
        return mirrored_polygon(points, axes)
    if len(axes) == 1:
        top = points[int(np.argmax(points[:, axes[0]]))]
        return np.array(sorted((top.tolist(), (-top).tolist())), dtype=np.int64)
    return np.zeros((0, points.shape[1]), dtype=np.int64)


def _dot(left: Sequence[int], right: Sequence[Fraction]) -> Fraction:
    return sum((a * b for a, b in zip(left, right, strict=True)), Fraction(0))


def _determinant(rows: list[list[int]]) -> int:
    if len(rows) == 1:
        return rows[0][0]
    if len(rows) == 2:
        return rows[0][0] * rows[1][1] - rows[0][1] * rows[1][0]
    (a, b, c), (d, e, f), (g, h, i) = rows
    return a * (e * i - f * h) - b * (d * i - f * g) + c * (d * h - e * g)
