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

__all__ = ["Hull", "complete_hull", "difference_hull", "distinct_points", "graph_hull"]

_FLAGS_PER_POINT = 16


def distinct_points(points: Ints) -> Ints:
    """Return the distinct points of (n, d), in lexicographic order; the volume of their box is below 2^63."""
    if not len(points):
        return points
    low_corner = points.min(axis=0)
    box_lengths = (points.max(axis=0) - low_corner + 1).tolist()
    cell_index = np.zeros(len(points), dtype=np.int64)
    for column, lowest, length in zip(points.T, low_corner, box_lengths, strict=True):
        cell_index = cell_index * length + (column - lowest)
    cell_count = math.prod(box_lengths)
    if cell_count <= _FLAGS_PER_POINT * len(points):  # a flag for every cell of the box is cheaper than sorting
        flags = np.zeros(cell_count, dtype=np.bool_)
        flags[cell_index] = True
        cell_index = np.flatnonzero(flags)
    else:
        cell_index = np.unique(cell_index)
    return np.asarray(np.stack(np.unravel_index(cell_index, box_lengths), axis=1) + low_corner, dtype=np.int64)


def span(points: Ints) -> tuple[Ints, tuple[int, ...]]:
    """Return the span of nonzero points: its normals (d - rank, d), and `rank` axes that tell its points apart."""
    dimensions = points.shape[1]
    identity = np.eye(dimensions, dtype=np.int64)
    if not len(points):
        return identity, ()
    first_point = points[0]
    axis = int(np.argmax(np.abs(first_point)))
    other_axes = [other_axis for other_axis in range(dimensions) if other_axis != axis]
    equations = first_point[axis] * identity[other_axes] - first_point[other_axes][:, None] * identity[axis]
    residuals = points @ equations.T  # rows of zeros are multiples of the first point
    is_independent = residuals.any(axis=1)
    if not is_independent.any():
        return equations, (axis,)
    if dimensions == 2:
        return np.zeros((0, 2), dtype=np.int64), (0, 1)
    normal = np.cross(first_point, points[int(np.argmax(is_independent))])
    if np.any(points @ normal):
        return np.zeros((0, 3), dtype=np.int64), (0, 1, 2)
    projection_axis = int(np.argmax(np.abs(normal)))
    return normal[None, :], tuple(other_axis for other_axis in range(3) if other_axis != projection_axis)


def polygon(points: Ints) -> list[int]:
    """Find the hull of points (n, 2), not all on one line: vertex indices, counter-clockwise from the lowest."""
    lowest, highest = _column_ends(points)
    lower_chain, upper_chain = _left_turns(points, lowest), _left_turns(points, highest[::-1])
    upper_chain = upper_chain[1:] if upper_chain[0] == lower_chain[-1] else upper_chain
    return lower_chain + (upper_chain[:-1] if upper_chain[-1] == lower_chain[0] else upper_chain)


def wrap_hull(points: Ints) -> tuple[Ints, tuple[tuple[int, ...], ...]]:
    """Compute the convex hull of points (n, 3), not all in one plane, by gift wrapping.

    Returns the vertices in lexicographic order, and for each facet the cycle of its corners, counter-clockwise from
    outside, without collinear corners.
    """
    points = distinct_points(points)
    first_facet = _first_facet(points)
    facets = {first_facet: None}
    facet_stack = [first_facet]
    crossed_edges: set[tuple[int, int]] = set()
    while facet_stack:
        facet = facet_stack.pop()
        for tail, head in zip(facet, facet[1:] + facet[:1], strict=True):
            if (head, tail) in crossed_edges:
                continue
            # seen from the neighbour, the shared edge runs the other way
            third_corner = _pivot_point(points, head, points[tail] - points[head])
            neighbour = _facet(points, head, np.cross(points[tail] - points[head], points[third_corner] - points[head]))
            crossed_edges.update(zip(neighbour, neighbour[1:] + neighbour[:1], strict=True))
            if neighbour not in facets:
                facets[neighbour] = None
                facet_stack.append(neighbour)
    used_corners = sorted({corner for facet in facets for corner in facet})
    vertex_index = {corner: index for index, corner in enumerate(used_corners)}
    return points[used_corners], tuple(tuple(vertex_index[corner] for corner in facet) for facet in facets)


def _first_facet(points: Ints) -> tuple[int, ...]:
    """Find a first facet: tip the plane x = max about a line in it until it touches three points."""
    corner = len(points) - 1  # the lexicographically highest
    lowest = int(np.searchsorted(points[:, 0], points[corner, 0]))
    # the line runs through all points of the plane x = max, unless they span it
    edge = points[corner] - points[lowest] if lowest < corner else np.array([0, 0, 1], dtype=np.int64)
    plane_points = points[lowest:]
    if np.any(np.cross(edge, plane_points - points[corner])):
        return _facet(points, corner, np.array([1, 0, 0], dtype=np.int64))
    third_corner = _pivot_point(points, corner, edge)
    normal = np.cross(edge, points[third_corner] - points[corner])
    plane_points = points[(points - points[corner]) @ normal == 0]
    edge = points[third_corner] - points[corner]
    if not np.any(np.cross(edge, plane_points - points[corner])):
        third_corner = _pivot_point(points, corner, edge)
        normal = np.cross(edge, points[third_corner] - points[corner])
    return _facet(points, corner, normal)


def _pivot_point(points: Ints, corner: int, edge: Ints) -> int:
    """Find the point that spans the plane of a facet together with a line, and return its index.

    No point is above that plane. The line runs through a corner along `edge`. It touches the hull, so the points around
    it span less than half a turn, and their order is total.
    """
    offsets = points - points[corner]
    farthest = int(np.argmax(np.cross(edge, offsets).any(axis=1)))
    while True:
        heights = offsets @ np.cross(edge, offsets[farthest])
        highest = int(np.argmax(heights))
        if heights[highest] <= 0:
            return farthest
        farthest = highest


def _facet(points: Ints, corner: int, normal: Ints) -> tuple[int, ...]:
    """Return the corners of the facet with this outward normal, counter-clockwise from outside, lowest index first."""
    on_plane = np.flatnonzero((points - points[corner]) @ normal == 0)
    drop_axis = int(np.argmax(np.abs(normal)))
    cycle = on_plane[polygon(points[on_plane][:, [(drop_axis + 1) % 3, (drop_axis + 2) % 3]])].tolist()
    if normal[drop_axis] < 0:
        cycle.reverse()
    first_position = cycle.index(min(cycle))
    return tuple(cycle[first_position:] + cycle[:first_position])


def _left_turns(points: Ints, chain: list[int]) -> list[int]:
    """Keep the points, given by indices, at which a chain in the plane turns left."""
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


def _column_ends(points: Ints) -> tuple[list[int], list[int]]:
    """Return the indices of the lowest and the highest point at each abscissa, from left to right."""
    sorted_indices = np.lexsort((points[:, 1], points[:, 0]))
    is_new_abscissa = np.diff(points[sorted_indices, 0]) != 0
    lowest = sorted_indices[np.concatenate([[True], is_new_abscissa])]
    highest = sorted_indices[np.concatenate([is_new_abscissa, [True]])]
    highest = np.where(points[highest, 1] == points[lowest, 1], lowest, highest)  # one of equal points
    return lowest.tolist(), highest.tolist()


# Points of a hull stay below this in each dimension, so that its determinants fit in 63 bits.
_POINT_LIMIT = {1: 1 << 28, 2: 1 << 28, 3: 1 << 18}
_SAFE = 1 << 62


class Hull(NamedTuple):
    """A symmetric convex polytope { x : equations x = 0, scale * normals x <= offsets }.

    K is the convex hull of `vertices` divided by `scale`, which is 1 unless K was capped. The vertices of a polygon are
    counter-clockwise from the lexicographically lowest one (as seen from its projection, in three dimensions); a
    segment has its two ends. `normals` are outward, (F, d), one per facet within the span, `offsets` above 0; `faces`
    are cycles of a facet's corners, counter-clockwise from outside. `equations` are (d - rank, d), normal to the span;
    the coordinates `axes` tell its points apart.
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
        """The dimensions d of the space."""
        return int(self.equations.shape[1])

    @property
    def rank(self) -> int:
        """The dimensions of K itself."""
        return len(self.axes)

    def extended(self, difference: Ints) -> Hull:
        """Return Conv(K and +-difference); the difference has d integers."""
        return difference_hull(np.concatenate([self.vertices, self.scale * difference[None, :]]), scale=self.scale)

    def capped(self, complete: Hull, cap: Fraction | int) -> Hull:
        """Return K_c = Conv(K and K_complete / c), of finite factor: no two states are further apart than gauge c.

        `complete` is K_complete, the hull of all differences within the constraint set.

        Raises:
            GraphError: c is below 1, or its numerator or denominator is too large for exact 64-bit arithmetic.
        """
        if cap < 1:
            raise GraphError(f"a cap is at least 1, got {cap}")
        if max(Fraction(cap).as_integer_ratio()) > 1 << 16:
            raise GraphError(f"a cap is a fraction of numbers up to 65536, got {cap}")
        ratio = Fraction(cap) * complete.scale
        scale = math.lcm(self.scale, ratio.numerator)
        own_vertices = self.vertices * (scale // self.scale)
        return difference_hull(np.concatenate([own_vertices, complete.vertices * int(scale / ratio)]), scale=scale)

    def gauge(self, point: Sequence[int | Fraction]) -> Fraction | float:
        """Return the gauge of a point: the least t >= 0 with the point in t K; `math.inf` outside the span of K."""
        coordinates = [Fraction(coordinate) for coordinate in point]
        if any(_dot(equation, coordinates) != 0 for equation in self.equations.tolist()):
            return math.inf
        facets = zip(self.normals.tolist(), self.offsets.tolist(), strict=True)
        return max((self.scale * _dot(normal, coordinates) / offset for normal, offset in facets), default=Fraction(0))

    def largest_gauge(self, points: Ints) -> Fraction | float:
        """Return the largest gauge of a difference of two points (theorem 6.3); `math.inf` outside the span of K."""
        differences = points - points[0]
        if np.any(differences @ self.equations.T):
            return math.inf
        heights = self._products(differences)
        widths = heights.max(axis=0) - heights.min(axis=0)
        return max(map(Fraction, widths.tolist(), self.offsets.tolist()), default=Fraction(0))

    def differences_within(self, points: Ints, other_points: Ints) -> Bools:
        """Test exactly (m, n) whether points[i] - other_points[j] lies in K; there is at least one other point."""
        in_hull = np.ones((len(points), len(other_points)), dtype=np.bool_)
        for left_row, right_row in zip((points @ self.equations.T).T, (other_points @ self.equations.T).T, strict=True):
            in_hull &= left_row[:, None] == right_row[None, :]
        heights = self._products(points).T
        other_heights = heights if other_points is points else self._products(other_points).T
        if not len(points) or not len(self.offsets):
            return in_hull
        lowest = other_heights.min(axis=1)
        facets = np.flatnonzero(heights.max(axis=1) - lowest > self.offsets)  # the other facets cut nobody off
        lowest, limits = lowest[facets, None], self.offsets[facets, None]
        heights, other_heights = heights[facets] - lowest, other_heights[facets] - lowest + limits
        # narrow integers are compared several times faster
        if len(facets) and max(heights.max(), other_heights.max(), -heights.min()) < 1 << 15:
            heights, other_heights = heights.astype(np.int16), other_heights.astype(np.int16)
        for left_row, right_row in zip(heights, other_heights, strict=True):
            in_hull &= (left_row[:, None] <= right_row[None, :]).astype(np.bool_)
        return in_hull

    def pairs_within(self, points: Ints) -> Bools:
        """Test exactly (n, n) whether the difference of two of n points lies in K; n is at least 1."""
        leading_signs = self.normals[np.arange(len(self.normals)), np.argmax(self.normals != 0, axis=1)]
        half_hull = self._replace(normals=self.normals[leading_signs > 0], offsets=self.offsets[leading_signs > 0])
        in_half_hull = half_hull.differences_within(points, points)  # of two opposite facets one is enough, both ways
        return in_half_hull & in_half_hull.T

    def ceil_gauges(self, points: Ints) -> Ints:
        """Return the gauges (n,) of points (n, d), rounded up to whole numbers; -1 outside the span of K."""
        gauges = np.zeros(len(points), dtype=np.int64)
        for height, offset in zip(self._products(points).T, self.offsets.tolist(), strict=True):
            np.maximum(gauges, (-(-height // offset)).astype(np.int64), out=gauges)
        if len(self.equations):
            gauges[np.any(points @ self.equations.T, axis=1)] = -1
        return gauges

    def _products(self, points: Ints) -> NDArray[Any]:
        """Return scale * normals . points, n x F integers; Python's own integers if 62 bits might not hold them."""
        largest_product = int(np.abs(points).max(initial=0)) * self.scale * int(np.abs(self.normals).max(initial=0)) * 6
        number_type: Any = np.int64 if largest_product < _SAFE else object
        product: NDArray[Any] = (points.astype(number_type) * self.scale) @ self.normals.T.astype(number_type)
        return product

    @property
    def area(self) -> Fraction:
        """The length, area or volume of K in its d-dimensional space, exactly; 0 if its rank is lower."""
        if self.rank < self.dimensions:
            return Fraction(0)
        return Fraction(sum(size for _, size in self.simplices()), math.factorial(self.rank) * self.scale**self.rank)

    def simplices(self) -> Iterator[tuple[tuple[tuple[int, ...], ...], int]]:
        """Cut a hull of rank at least 1 into simplices with a corner at 0.

        Yields:
            The `rank` other corners, times the hull's scale, and rank! times the volume in the coordinates `axes`.
        """
        corners = [tuple(vertex) for vertex in self.vertices.tolist()]
        for face in self.faces:
            # a facet of rank 3 is a fan of triangles; an edge and an end are one simplex each
            simplex_faces = [(face[0], *pair) for pair in pairwise(face[1:])] if self.rank == 3 else [face]
            for simplex_face in simplex_faces:
                simplex = tuple(corners[index] for index in simplex_face)
                yield simplex, abs(_determinant([[corner[axis] for axis in self.axes] for corner in simplex]))


def difference_hull(differences: ArrayLike, *, scale: int = 1) -> Hull:
    """Compute the hull of differences (n, d), d in 1..3, of their negatives, and of 0; n may be 0.

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
        vertices, faces = wrap_hull(points)
        corners = vertices[np.array([face[:3] for face in faces])]
        normals = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    else:
        vertices = _flat_vertices(points, axes)
        vertex_count, normals = len(vertices), np.zeros(vertices.shape, dtype=np.int64)
        if len(axes) == 2:
            faces = tuple((index, (index + 1) % vertex_count) for index in range(vertex_count))
            edge = (np.roll(vertices, -1, axis=0) - vertices)[:, axes]
            normals[:, axes[0]], normals[:, axes[1]] = edge[:, 1], -edge[:, 0]
        else:
            faces = tuple((index,) for index in range(vertex_count))
            normals[:, axes] = np.sign(vertices[:, axes])
    offsets = np.sum(normals * vertices[[face[0] for face in faces]], axis=1)
    return Hull(vertices, scale, normals, offsets, faces, equations, axes)


def graph_hull(points: Ints, graph: Bools) -> Hull:
    """Return Conv{ f(i) - f(j) : i ~ j }, the sensitivity hull of points f under a graph."""
    states = np.flatnonzero(graph.any(axis=0))
    if np.count_nonzero(graph) == len(states) * (len(states) - 1):
        return complete_hull(points[states] if len(states) else points[:1])
    from_states, to_states = np.divmod(np.flatnonzero(graph), len(graph))
    is_ascending = from_states < to_states
    return difference_hull(distinct_points(points[from_states[is_ascending]] - points[to_states[is_ascending]]))


def complete_hull(points: Ints) -> Hull:
    """Return K_complete, the hull of all differences f(i) - f(j) among n x d points, n at least 1.

    Only extreme points matter, so all others are dropped before differences are taken.
    """
    differences = points - points[0]
    _, axes = span(differences[differences.any(axis=1)])
    if len(axes) == 3:
        corners, _ = wrap_hull(differences)
    elif len(axes) == 2:
        corners = differences[polygon(differences[:, axes])]
    else:
        abscissae = differences[:, axes[0] if axes else 0]
        corners = differences[[int(np.argmin(abscissae)), int(np.argmax(abscissae))]]
    return difference_hull((corners[:, None, :] - corners[None, :, :]).reshape(-1, points.shape[1]))


def _flat_vertices(points: Ints, axes: tuple[int, ...]) -> Ints:
    if len(axes) == 2:
        return points[polygon(points[:, axes])]
    if len(axes) == 1:
        vertex = points[int(np.argmax(points[:, axes[0]]))]
        return np.array(sorted((vertex.tolist(), (-vertex).tolist())), dtype=np.int64)
    return np.zeros((0, points.shape[1]), dtype=np.int64)


def _dot(left: Sequence[int], right: Sequence[Fraction]) -> Fraction:
    return sum((a * b for a, b in zip(left, right, strict=True)), Fraction(0))


def _determinant(matrix: list[list[int]]) -> int:
    if len(matrix) == 1:
        return matrix[0][0]
    if len(matrix) == 2:
        return matrix[0][0] * matrix[1][1] - matrix[0][1] * matrix[1][0]
    (a, b, c), (d, e, f), (g, h, i) = matrix
    return a * (e * i - f * h) - b * (d * i - f * g) + c * (d * h - e * g)
