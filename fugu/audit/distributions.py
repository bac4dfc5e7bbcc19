"""The distributions of a device's outputs by its policy while its readings stay the same; and cells of outputs."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import product

import numpy as np
from numpy.typing import NDArray

from fugu.contract.measure_frames import Point
from fugu.contract.measure_table import Noise, StaircaseNoise
from fugu.contract.noise_table import SCALE, NoiseTable
from fugu.contract.staircase import normaliser

__all__ = ["count_cells", "inside_distribution", "point_cells", "symbol_distribution"]

Distribution = NDArray[np.float64]
Cells = NDArray[np.int64]

_STEPS = 20
"""Cells of a count's noise on either side, a quarter of the scale wide."""


def symbol_distribution(table: NoiseTable, state: int) -> Distribution:
    """(m,) probabilities of all symbols in a state."""
    return np.array(table.row_weights(state)) / SCALE


def count_cells(noise: Sequence[int], scale: Fraction) -> tuple[Cells, Distribution]:
    """The cells of discrete Laplace noise, and their distribution: of a count without what was counted.

    P(N >= n) = a^n / (1 + a) for n >= 1, with a = e^(-1/scale), and N is symmetric about 0.
    """
    a = np.exp(-float(1 / scale))
    upper = np.unique([1 + int(step * scale / 4) for step in range(_STEPS)])
    edges = np.concatenate([1 - upper[::-1], upper])  # cell i has edges[i-1] <= N < edges[i]
    at_least = np.where(edges >= 1, a ** np.maximum(edges, 0) / (1 + a), 1 - a ** (1 - np.minimum(edges, 1)) / (1 + a))
    distribution = -np.diff(np.concatenate([[1.0], at_least, [0.0]]))
    return np.searchsorted(edges, np.asarray(noise, dtype=np.int64), side="right"), distribution


def point_cells(points: Sequence[Point], noise: Noise, state: int, centre: Point) -> tuple[Cells, Distribution]:
    """The cells of released points, and their distribution.

    Of a table every point is a cell; of a staircase every one inside its box. All others are one cell: the border of
    the box, and of a table none.

    Args:
        points: as released.
        noise: that they were drawn from.
        state: the device's.
        centre: of a staircase, for that state.
    """
    if isinstance(noise, NoiseTable):
        number = {point: place for place, point in enumerate(noise.points)}
        distribution = np.append(np.array(noise.row_weights(state)) / SCALE, 0.0)
    else:
        number, distribution = inside_distribution(noise, centre)
    return np.array([number.get(point, len(number)) for point in points], dtype=np.int64), distribution


def inside_distribution(noise: StaircaseNoise, centre: Point) -> tuple[dict[Point, int], Distribution]:
    """The points inside the box, with P(v) = q^ceil(gauge(v)) / Z; last what is left for its border."""
    hull = noise.noise
    ranges = [range(low + 1, high) for low, high in zip(noise.low, noise.high, strict=True)]
    number: dict[Point, int] = {}
    chances: list[float] = []
    for point in product(*ranges):
        v = tuple(x - c for x, c in zip(point, centre, strict=True))
        if hull.spans(v):
            heights = (
                -(-sum(a * b for a, b in zip(normal, v, strict=True)) // offset) for normal, offset in hull.facets()
            )
            number[point] = len(chances)
            chances.append(float(hull.ratio ** max(heights) / normaliser(hull)))
    return number, np.array([*chances, max(0.0, 1.0 - sum(chances))])
