"""Compiled noise: what a device draws from, made from hulls and tables, and turned back into matrices.

Up to 100 states a device gets a table of weights; above that the vertices of a staircase's hull. For an estimate both
are a matrix of emission probabilities, for the accountant a matrix of losses.
"""

from __future__ import annotations

import math
from array import array
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fugu.chains.arrays import Bools, Ints
from fugu.contract.errors import FrameError
from fugu.contract.measure_check import floor_exp
from fugu.contract.measure_table import Noise, StaircaseNoise, set_of
from fugu.contract.noise_table import MAX_TABLE_STATES, SCALE, NoiseTable
from fugu.contract.rounding import OUTWARD
from fugu.places.constraints import surrogates
from fugu.places.graphs import GraphError
from fugu.places.hull import Hull, ceil_gauges, complete_hull, difference_hull, pairs_within
from fugu.places.staircase import RATIO_BITS, staircase
from fugu.places.tables import Box, TableWeights, build_table, clamped_mass, fallback_table, table_loss

__all__ = ["Emission", "compile_noise", "emission", "fallback_noise", "noise_loss", "noise_pairs", "noise_table"]

MOST_CELLS = 1 << 25
"""Of an emission matrix: 256 MB."""


class Emission(NamedTuple):
    """Compiled noise as a matrix.

    Attributes:
        points: for each released point its column.
        probabilities: N x M, rows summing to 1.
    """

    points: dict[tuple[int, ...], int]
    probabilities: NDArray[np.float64]


def noise_table(table: TableWeights) -> NoiseTable:
    """A certified table in the form in which it travels."""
    rows = tuple(array("I", row) for row in np.cumsum(table.weights, axis=1)[:, :-1].tolist())
    return NoiseTable(rows, tuple(tuple(point) for point in table.outputs.tolist()))


def compile_noise(hull: Hull, values: Ints, constraint: Bools, epsilon: float, likely: Bools | None = None) -> Noise:
    """Compile a hull into what a device draws from.

    Args:
        hull: K, with a finite factor over the constraint set.
        values: f, N x d.
        constraint: C, N booleans, at least two true.
        epsilon: above 0, at most 20.
        likely: the states with rows of their own, at least two; all others use the row of the nearest of them. By
            default those of the constraint set.

    Returns:
        Weights for at most 100 states, else a staircase; a flat or capped hull is then replaced by that of all
        differences, because staircases have neither.

    Raises:
        TableError: no table can be built; use the fallback.
        GraphError: there are too many states, and their differences are no polygon in the plane or segment, or one
            with more corners, or noise with more steps, than a device takes.
    """
    likely = constraint if likely is None else likely
    if len(values) <= MAX_TABLE_STATES:
        return noise_table(build_table(hull, values, likely, epsilon))
    spread = values[likely] - values[likely][0]
    if hull.scale != 1 or hull.rank < hull.dimensions or np.any(spread @ hull.equations.T):
        hull = complete_hull(values[likely])
    return _staircase_noise(hull, values, likely, epsilon)


def fallback_noise(values: Ints, epsilon: float) -> Noise:
    """The noise for ticks without a table; it protects every pair of states. For the rest see `compile_noise`."""
    if len(values) <= MAX_TABLE_STATES:
        return noise_table(fallback_table(values, epsilon))
    return _staircase_noise(complete_hull(values), values, np.ones(len(values), dtype=np.bool_), epsilon)


def emission(noise: Noise, values: Ints) -> Emission:
    """The probability of each point given each state; values are f, N x d.

    Raises:
        GraphError: the matrix would be too large.
    """
    if isinstance(noise, NoiseTable):
        rows = np.array(noise.rows, dtype=np.int64).reshape(noise.states, -1)
        weights = np.diff(rows, prepend=0, append=SCALE, axis=1)
        return Emission({point: index for index, point in enumerate(noise.points)}, weights / SCALE)
    shape = tuple(high - low + 1 for low, high in zip(noise.low, noise.high, strict=True))
    if len(values) * (points := math.prod(shape)) > MOST_CELLS:
        raise GraphError(f"{len(values)} states and {points} points are too many: measure on a coarser lattice")
    box = Box(noise.low, 1, shape)
    mass = clamped_mass(_polygon(noise.noise.vertices), _centres(noise, values), box, float(noise.noise.ratio))
    return Emission({tuple(point): index for index, point in enumerate(box.points().tolist())}, mass)


def noise_loss(noise: Noise, values: Ints) -> NDArray[np.float64]:
    """The per-tick loss of compiled noise for each pair of states, N x N in nats, rounded up; for the accountant."""
    if isinstance(noise, NoiseTable):
        return table_loss(np.rint(emission(noise, values).probabilities * SCALE).astype(np.int64))
    centres, hull = _centres(noise, values), _polygon(noise.noise.vertices)
    step = -float(np.log(float(noise.noise.ratio))) * (1.0 + OUTWARD)
    return np.array([ceil_gauges(hull, centre - centres) * step for centre in centres])


def noise_pairs(noise: Noise, values: Ints, constraint: Bools, epsilon: float) -> Bools:
    """The pairs of different states of a set that compiled noise keeps within e^epsilon, N x N, exactly."""
    result = np.zeros((len(values), len(values)), dtype=np.bool_)
    states = np.flatnonzero(constraint)
    if isinstance(noise, NoiseTable):
        weights = np.rint(emission(noise, values).probabilities * SCALE).astype(np.int64)[states]
        whole, part = divmod(floor_exp(epsilon), 1 << RATIO_BITS)
        most = whole * weights + (part * weights >> RATIO_BITS)
        within = np.array([np.all(row <= most, axis=1) for row in weights])
        result[np.ix_(states, states)] = within & within.T
    else:
        result[np.ix_(states, states)] = pairs_within(_polygon(noise.noise.vertices), _centres(noise, values)[states])
    np.fill_diagonal(result, False)
    return result


def _staircase_noise(hull: Hull, values: Ints, likely: Bools, epsilon: float) -> StaircaseNoise:
    if hull.rank < hull.dimensions:
        raise GraphError("the states lie in a line or a plane of a larger space: measure fewer dimensions")
    inside = values[likely]
    low, high = (tuple(corner.tolist()) for corner in (inside.min(axis=0), inside.max(axis=0)))
    try:
        return StaircaseNoise(set_of(np.flatnonzero(likely).tolist()), staircase(hull, epsilon), low, high)
    except FrameError as error:
        raise GraphError(f"no device draws from this staircase: {error}") from None


def _centres(noise: StaircaseNoise, values: Ints) -> Ints:
    likely = np.zeros(len(values), dtype=np.bool_)
    likely[noise.likely_states] = True
    return values[surrogates(values, likely)]


@lru_cache(maxsize=64)
def _polygon(vertices: tuple[tuple[int, ...], ...]) -> Hull:
    return difference_hull(np.array(vertices, dtype=np.int64))
