"""Staircase noise clamped to a window of outputs: the real-valued rows that a table is rounded from.

Clamping is post-processing, and truncating the far tail moves less than rounding does; both are before the check.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fugu.chains.arrays import Ints
from fugu.places.graphs import GraphError
from fugu.places.hull import Hull, ceil_gauges

__all__ = ["Box", "clamped_mass", "window"]

_TAIL = 2.0**-52
_MOST_TERMS = 12_000_000
_LEAST_POINTS = 50_000


class Box(NamedTuple):
    """A box of lattice points, `step` apart in each of d dimensions, in row-major order.

    Attributes:
        low: d integers, its lowest point.
        step: at least 1.
        shape: d counts.
    """

    low: tuple[int, ...]
    step: int
    shape: tuple[int, ...]

    def points(self) -> Ints:
        """All points, M x d."""
        grid = np.indices(self.shape).reshape(len(self.shape), -1).T
        return (np.array(self.low) + self.step * grid).astype(np.int64)


def window(values: Ints, most: int) -> Box:
    """The box around n x d points, of the smallest step that a number of outputs, at least 1, allows; centred."""
    low, high = values.min(axis=0), values.max(axis=0)
    step = 1
    while math.prod(int(size) for size in (high - low) // step + 1) > most:
        step += 1
    shape = (high - low) // step + 1
    return Box(tuple((low + ((high - low) - step * (shape - 1)) // 2).tolist()), step, tuple(shape.tolist()))


def clamped_mass(hull: Hull, values: Ints, outputs: Box, ratio: float) -> NDArray[np.float64]:
    """The distribution of f + noise, clamped to a window coordinate by coordinate.

    Args:
        hull: K, of full rank (see `fugu.places.tables`).
        values: f, n x d.
        outputs: the window, M points.
        ratio: q in (0, 1): noise v has weight q^ceil(gauge(v)), on the lattice of the window.

    Returns:
        n x M, rows summing to 1.

    Raises:
        GraphError: The hull is flat.
    """
    if hull.rank < hull.dimensions:
        raise GraphError("the hull is flat: clamp within its span")
    step, shape = outputs.step, np.array(outputs.shape)
    places, residues = np.divmod(values - np.array(outputs.low), step)
    classes = np.unique(residues, axis=0)
    points = max(_LEAST_POINTS, _MOST_TERMS // (len(classes) * len(hull.normals)))
    reach = _reach(hull, ratio, step, np.abs(places).max(axis=0) + shape + 1, points)
    distributions = {tuple(row): _distribution(hull, row, step, reach, ratio) for row in classes}
    rows = []
    for place, residue in zip(places, residues, strict=True):
        cells = distributions[tuple(residue)]
        for axis, size in enumerate(outputs.shape):
            # the first cell takes everything below it, the last one everything above
            starts = reach[axis] - place[axis] + np.arange(size)
            starts[0] = 0
            cells = np.add.reduceat(cells, starts, axis=axis)
        rows.append(cells.ravel() / cells.sum())
    return np.array(rows)


def _reach(hull: Hull, ratio: float, step: int, least: Ints, points: int) -> Ints:
    """How many steps of the window to follow the noise in each direction: to a negligible tail, if that is feasible."""
    shells = math.log(_TAIL) / math.log(ratio) + 2.0
    extent = np.abs(hull.vertices).max(axis=0) / (hull.scale * step)
    while True:
        reach: Ints = np.maximum(np.ceil(shells * extent).astype(np.int64), least)
        if math.prod(int(side) for side in 2 * reach + 1) <= points or np.array_equal(reach, least):
            return reach
        shells *= 0.9


def _distribution(hull: Hull, residue: Ints, step: int, reach: Ints, ratio: float) -> NDArray[np.float64]:
    """q^ceil(gauge(step m - residue)) for -reach <= m <= reach, as an array of d axes."""
    shape = tuple((2 * reach + 1).tolist())
    points = (step * (np.indices(shape).reshape(len(shape), -1).T - reach) - residue).astype(np.int64)
    powers = ceil_gauges(hull, points)
    return np.where(powers < 0, 0.0, ratio ** np.maximum(powers, 0)).reshape(shape)
