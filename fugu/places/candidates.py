"""What a hull would cost with one more difference: quickly for many differences, exactly for the few that matter."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from fugu.chains.arrays import Ints
from fugu.places.hull import Hull, extended
from fugu.places.moments import noise_error, simplices
from fugu.places.wrapping import distinct

__all__ = ["cheapest"]

_CLOSE = 1.0 + 1e-9


def cheapest(hull: Hull, differences: Ints, cost: Callable[[Hull], Fraction], *, by_error: bool) -> int:
    """The difference whose addition makes the cheapest hull.

    Args:
        differences: n x d, n at least 1.
        cost: of a hull, exactly: its area, or the error of its noise.
        by_error: whether the cost is the error; it says what to estimate.

    Returns:
        An index; of equals the lowest. Estimates in floating point only leave out what cannot be the least.
    """
    signs = np.sign(differences)
    leading = signs[np.arange(len(signs)), np.argmax(signs != 0, axis=1)]
    upright = np.where(leading < 0, -1, 1)[:, None] * differences  # v and -v make the same hull
    candidates = distinct(upright)
    estimates = _errors(hull, candidates) if by_error else _areas(hull, candidates)
    candidates = candidates[estimates <= estimates.min() * _CLOSE]
    costs = [cost(extended(hull, candidate)) for candidate in candidates]
    least = min(costs)
    winners = [candidate for candidate, value in zip(candidates, costs, strict=True) if value == least]
    return min(int(np.argmax(np.all(upright == winner, axis=1))) for winner in winners)


def _errors(hull: Hull, differences: Ints) -> NDArray[np.float64]:
    """E|n|^2 at epsilon 1 with the hull Conv(K and +-v), for each of n differences v.

    Off the span of K that hull is a double pyramid over K: its simplices are those of K with one more corner, +-v,
    all of one height, so the mean of |c|^2 summed over the corners and of |sum c|^2 grows by 2 |v|^2.
    """
    estimates: NDArray[np.float64] = float(noise_error(hull)) + 2.0 * np.sum(
        differences.astype(np.float64) ** 2, axis=1
    )
    within = ~np.any(differences @ hull.equations.T, axis=1)
    if hull.rank:
        sizes, moments = _grown(hull, differences[within])
        estimates[within] = moments / sizes / float(hull.scale) ** 2
    return estimates


def _areas(hull: Hull, differences: Ints) -> NDArray[np.float64]:
    """The volume of Conv(K and +-v), up to a constant factor; 0 if it is flat."""
    if hull.rank == hull.dimensions:
        return _grown(hull, differences)[0]
    if hull.rank < hull.dimensions - 1:
        return np.zeros(len(differences))
    heights = np.abs(differences @ hull.equations[0])  # of a double pyramid over K
    return np.asarray(heights, dtype=np.float64)


def _grown(hull: Hull, differences: Ints) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The volume of Conv(K and +-v) and its second moment, up to constant factors, for each of n differences.

    K grows by the simplices between v and the facets that v sees, and by their mirror images: a facet that v sees,
    -v does not. A simplex with corners c_0 .. c_r has the second moment sum |c_i|^2 + |sum c_i|^2 times its volume.
    The differences lie in the span of K, whose `axes` carry the signs of the volumes.
    """
    points = hull.scale * differences.astype(np.float64)
    pieces = list(simplices(hull))
    corners = np.array([chosen for chosen, _ in pieces], dtype=np.float64)
    own = np.array([size for _, size in pieces], dtype=np.float64)
    squares, totals = np.sum(corners**2, axis=(1, 2)), corners.sum(axis=1)
    spread = np.sum(totals**2, axis=1)
    # the simplex over a facet has its sign from the side of the facet that v is on; 0 lies on the other
    places = corners[:, :, hull.axes]
    edges = places[None] - points[:, None, None, hull.axes]
    new = 2.0 * np.maximum(-_determinants(edges) * np.sign(_determinants(places)), 0.0)
    lengths = np.sum(points**2, axis=1)[:, None]
    moments = new * (squares + spread + 2.0 * (lengths + points @ totals.T))  # |sum c + v|^2 multiplied out
    return own.sum() + new.sum(axis=1), own @ (squares + spread) + moments.sum(axis=1)


def _determinants(matrices: NDArray[np.float64]) -> NDArray[np.float64]:
    """Of matrices, r x r in the last two axes, r in 1..3: small ones by hand, since a general routine is slow."""
    if matrices.shape[-1] == 1:
        return matrices[..., 0, 0]
    if matrices.shape[-1] == 2:
        return matrices[..., 0, 0] * matrices[..., 1, 1] - matrices[..., 0, 1] * matrices[..., 1, 0]
    return np.asarray(np.linalg.det(matrices), dtype=np.float64)
