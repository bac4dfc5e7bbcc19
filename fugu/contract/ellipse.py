"""The ellipse that holds a place with a probability, from the probabilities of cells."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate, product
from typing import NamedTuple

__all__ = ["ellipse"]

_MARGIN = 1e-9
"""The relative width that is added to cover rounding errors."""


class Ellipse(NamedTuple):
    """An ellipse, all in one unit; `orientation` of its longer axis is in degrees clockwise from north, in [0, 180)."""

    east: float
    north: float
    semi_major: float
    semi_minor: float
    orientation: float


def ellipse(
    places: Sequence[Sequence[float]], weights: Sequence[float], cell_size: tuple[float, float], probability: float
) -> Ellipse:
    """Return an ellipse that holds a place with at least a probability in (0, 1], wherever it is in its cell.

    Centre and shape are mean and covariance of a place that is uniform within its cell. It is the smallest ellipse of
    this shape that contains whole cells of that total weight.

    Args:
        places: (n, 2), the middle of each cell, to the east and to the north.
        weights: (n,), not negative, not all 0: the relative probabilities of the cells.
        cell_size: width and height of a cell, in the same unit, above 0.
    """
    total_weight = math.fsum(weights)
    shares = [weight / total_weight for weight in weights]
    east, north = (math.fsum(w * place[axis] for w, place in zip(shares, places, strict=True)) for axis in (0, 1))
    offsets = [(place[0] - east, place[1] - north) for place in places]
    width, height = cell_size
    a = math.fsum(w * x * x for w, (x, _) in zip(shares, offsets, strict=True)) + width * width / 12.0
    b = math.fsum(w * x * y for w, (x, y) in zip(shares, offsets, strict=True))
    c = math.fsum(w * y * y for w, (_, y) in zip(shares, offsets, strict=True)) + height * height / 12.0
    corners = [*product((-width / 2.0, width / 2.0), (-height / 2.0, height / 2.0))]
    determinant = a * c - b * b

    def distance(x: float, y: float) -> float:
        """Return the squared distance of a cell's farthest corner, by the covariance."""
        points = ((x + u, y + v) for u, v in corners)
        return max((c * u * u - 2.0 * b * u * v + a * v * v) / determinant for u, v in points)

    weighted_distances = sorted((distance(*place), w) for place, w in zip(offsets, shares, strict=True) if w > 0.0)
    cumulative_shares = list(accumulate(weight for _, weight in weighted_distances))
    radius_2 = weighted_distances[min(bisect_left(cumulative_shares, probability), len(weighted_distances) - 1)][0]
    middle, spread = (a + c) / 2.0, math.hypot((a - c) / 2.0, b)
    eigenvalue = middle + spread
    major, minor = (math.sqrt(radius_2 * value) * (1.0 + _MARGIN) for value in (eigenvalue, determinant / eigenvalue))
    return Ellipse(east, north, major, minor, (math.degrees(math.atan2(2.0 * b, c - a) / 2.0) + 180.0) % 180.0)
