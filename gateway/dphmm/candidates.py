"""What a hull would cost with one more difference: quickly for many differences, exactly for the few that matter."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from gateway.dphmm.graphs import IntArray
from gateway.dphmm.hull import Hull, extended
from gateway.dphmm.moments import simplices

__all__ = ["cheapest"]

_CLOSE = 1.0 + 1e-9


def cheapest(hull: Hull, differences: IntArray, cost: Callable[[Hull], Fraction], *, by_error: bool) -> int:
    """The difference whose addition makes the cheapest hull.

    Args:
        hull: K.
        differences: n x d, n at least 1.
        cost: of a hull, exactly: its area, or the error of its noise.
        by_error: whether the cost is the error; it says what to estimate.

    Returns:
        An index; of equals the lowest. Estimates in floating point only leave out what cannot win.
    """
    among = np.arange(len(differences))
    if hull.rank == hull.dimensions:
        sizes, moments = _grown(hull, differences)
        estimates = moments / sizes if by_error else sizes
        among = np.flatnonzero(estimates <= estimates.min() * _CLOSE)
    known: dict[tuple[int, ...], Fraction] = {}
    for index in among.tolist():
        difference = tuple(differences[index].tolist())
        mirrored = max(difference, tuple(-value for value in difference))
        if mirrored not in known:
            known[mirrored] = cost(extended(hull, np.array(mirrored, dtype=np.int64)))
    costs = [known[max(tuple(row), tuple(-value for value in row))] for row in differences[among].tolist()]
    return int(among[min(range(len(costs)), key=costs.__getitem__)])


def _grown(hull: Hull, differences: IntArray) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The volume of Conv(K and +-v) and its second moment, up to constant factors, for each of n differences.

    K grows by the simplices between v and the facets that v sees, and by their mirror images: a facet that v sees,
    -v does not. A simplex with corners c_0 .. c_r has the second moment sum |c_i|^2 + |sum c_i|^2 times its volume.
    """
    points = hull.scale * differences.astype(np.float64)
    sizes, moments = np.zeros(len(points)), np.zeros(len(points))
    for chosen, size in simplices(hull):
        corners = np.array(chosen, dtype=np.float64)
        total, squares = corners.sum(axis=0), float(np.sum(corners**2))
        sizes += size
        moments += size * (squares + float(total @ total))
        edges = corners[None, :, :] - points[:, None, :]
        # the simplex over a facet has its sign from the side of the facet that v is on; 0 lies on the other
        new = -np.linalg.det(edges) * np.sign(np.linalg.det(corners))
        new = 2.0 * np.maximum(new, 0.0)
        sizes += new
        moments += new * (squares + np.sum(points**2, axis=1) + np.sum((total + points) ** 2, axis=1))
    return sizes, moments
