"""Certified noise tables: measurements protected by a table of integers that anyone can check.

A table has one row of weights per state, each summing to 2^32, and no cell is empty. It protects a pair (i, j) if
W[i,z] 2^24 <= floor(e^epsilon 2^24) W[j,z] for every output z, and the same with i and j swapped. The check is in
integers, so truncation and rounding cost no privacy; they may cost a little accuracy, which mixing counts.

Flat hulls become problems in fewer dimensions, in coordinates of the lattice within their span. A device draws from a
table for up to 100 states, above that from the vertices of a staircase's hull. For an estimate both are a matrix of
emission probabilities, for the accountant a matrix of losses.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from contextlib import suppress
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fugu.chains.arrays import Bools, Ints
from fugu.contract import measurement
from fugu.contract.errors import FrameError
from fugu.contract.losses import CLOSED_FORM, OUTWARD
from fugu.contract.measure_table import Noise, StaircaseNoise, bezout, set_of
from fugu.contract.measurement import MOST_EPSILON, RATIO_BITS
from fugu.contract.noise_table import MAX_TABLE_STATES, SCALE, NoiseTable
from fugu.places.graphs import GraphError, complete, surrogates
from fugu.places.hull import Hull, complete_hull, difference_hull
from fugu.places.noise import floor_exp, noise_ratio, staircase
from fugu.places.protection import protected_pairs

__all__ = [
    "MOST_CELLS",
    "MOST_OUTPUTS",
    "MOST_STATES",
    "Emission",
    "TableError",
    "TableWeights",
    "certify",
    "check_table",
    "compile_noise",
    "emission",
    "fallback_noise",
    "finite_factor",
    "noise_loss",
    "noise_pairs",
    "noise_table",
]


_TAIL = 2.0**-52
_MOST_TERMS = 12_000_000
_LEAST_POINTS = 50_000


class Box(NamedTuple):
    """A box of lattice points, `step` apart in each of d dimensions, in row-major order.

    Attributes:
        low: the lowest point, d integers.
        step: the distance of neighbours on each axis, at least 1.
        shape: the number of points on each axis, d counts.
    """

    low: tuple[int, ...]
    step: int
    shape: tuple[int, ...]

    def points(self) -> Ints:
        """Return all points of the box, M x d."""
        grid = np.indices(self.shape).reshape(len(self.shape), -1).T
        return (np.array(self.low) + self.step * grid).astype(np.int64)


def output_box(points: Ints, max_outputs: int) -> Box:
    """Return a centred box around n x d points, with the least step that leaves at most `max_outputs` >= 1 points."""
    low, high = points.min(axis=0), points.max(axis=0)
    step = 1
    while math.prod(int(axis_size) for axis_size in (high - low) // step + 1) > max_outputs:
        step += 1
    shape = (high - low) // step + 1
    return Box(tuple((low + ((high - low) - step * (shape - 1)) // 2).tolist()), step, tuple(shape.tolist()))


def clamped_mass(hull: Hull, points: Ints, outputs: Box, ratio: float) -> NDArray[np.float64]:
    """Return (n, M) distributions of f + noise, each coordinate clamped to a box of M points; f is (n, d).

    Noise v has weight q^ceil(gauge(v)), q = `ratio` in (0, 1), on the lattice of the box. GraphError if the hull is
    flat.
    """
    if hull.rank < hull.dimensions:
        raise GraphError("the hull is flat: clamp within its span")
    step, shape = outputs.step, np.array(outputs.shape)
    output_indices, residues = np.divmod(points - np.array(outputs.low), step)
    distinct_residues = np.unique(residues, axis=0)
    max_points = max(_LEAST_POINTS, _MOST_TERMS // (len(distinct_residues) * len(hull.normals)))
    noise_reach = _noise_reach(hull, ratio, step, np.abs(output_indices).max(axis=0) + shape + 1, max_points)
    distributions = {tuple(row): _distribution(hull, row, step, noise_reach, ratio) for row in distinct_residues}
    cell_masses = []
    for output_index, residue in zip(output_indices, residues, strict=True):
        cell_mass = distributions[tuple(residue)]
        for axis, axis_size in enumerate(outputs.shape):
            # the first cell takes everything below it, the last one everything above
            cell_starts = noise_reach[axis] - output_index[axis] + np.arange(axis_size)
            cell_starts[0] = 0
            cell_mass = np.add.reduceat(cell_mass, cell_starts, axis=axis)
        cell_masses.append(cell_mass.ravel() / cell_mass.sum())
    return np.array(cell_masses)


def _noise_reach(hull: Hull, ratio: float, step: int, min_reach: Ints, max_points: int) -> Ints:
    """Return the steps of the box on each axis that the noise needs to a negligible tail, or fewer by `max_points`."""
    shells = math.log(_TAIL) / math.log(ratio) + 2.0
    extent = np.abs(hull.vertices).max(axis=0) / (hull.scale * step)
    while True:
        reach: Ints = np.maximum(np.ceil(shells * extent).astype(np.int64), min_reach)
        if math.prod(int(length) for length in 2 * reach + 1) <= max_points or np.array_equal(reach, min_reach):
            return reach
        shells *= 0.9


def _distribution(hull: Hull, residue: Ints, step: int, reach: Ints, ratio: float) -> NDArray[np.float64]:
    """Return q^ceil(gauge(step m - residue)) for -reach <= m <= reach, as an array of d axes."""
    shape = tuple((2 * reach + 1).tolist())
    points = (step * (np.indices(shape).reshape(len(shape), -1).T - reach) - residue).astype(np.int64)
    powers = hull.ceil_gauges(points)
    return np.where(powers < 0, 0.0, ratio ** np.maximum(powers, 0)).reshape(shape)


def lattice_basis(hull: Hull) -> Ints:
    """Return a short basis, rank x d, of the integer points in a hull's span; the unit vectors if the rank is full."""
    if hull.rank == 1 < hull.dimensions:
        first_vertex = hull.vertices[1]
        return np.asarray(first_vertex[None, :] // math.gcd(*first_vertex.tolist()), dtype=np.int64)
    if hull.rank != 2 or hull.dimensions != 3:
        return np.eye(hull.dimensions, dtype=np.int64)[list(hull.axes)]
    normal = hull.equations[0].tolist()
    k, m, n = (component // math.gcd(*normal) for component in normal)
    g, s, t = bezout(k, m)
    # with (k, m, n) . x = 0 and gcd(g, n) = 1, the last coordinate is a multiple of g
    first, second = ((m // g, -k // g, 0), (-n * s, -n * t, g)) if g else ((1, 0, 0), (0, 1, 0))
    while True:  # Gauss's reduction, so that the axes of a box are nearly at right angles
        if _dot(first, first) > _dot(second, second):
            first, second = second, first
        squared_length = _dot(first, first)
        multiple = (2 * _dot(first, second) + squared_length) // (2 * squared_length)
        if multiple == 0:
            return np.array([first, second], dtype=np.int64)
        second = (second[0] - multiple * first[0], second[1] - multiple * first[1], second[2] - multiple * first[2])
        if _dot(second, second) >= squared_length:
            return np.array([first, second], dtype=np.int64)


def unroll(hull: Hull, points: Ints) -> tuple[Hull, Ints, Ints]:
    """Express a hull and points in coordinates of the hull's span, where its rank is full and at least 1.

    Returns:
        The hull in `rank` dimensions; the coordinates of points - points[0], n x rank; and the basis, rank x d, for the
            inverse: points[0] + coordinates @ basis.

    Raises:
        GraphError: Some difference of the points (n, d) is not in the span.
    """
    basis = lattice_basis(hull)
    if hull.rank == hull.dimensions:
        return hull, points - points[0], basis
    differences = points - points[0]
    if hull.rank == 0 or np.any(differences @ hull.equations.T):
        raise GraphError("the hull is too flat for these points: cap it against the hull of all differences")
    span_hull = difference_hull(_coordinates(hull, basis, hull.vertices), scale=hull.scale)
    return span_hull, _coordinates(hull, basis, differences), basis


def _coordinates(hull: Hull, basis: Ints, points: Ints) -> Ints:
    """Return the coordinates of points of the span in a basis of its lattice; always whole."""
    projected, projected_basis = points[:, hull.axes], basis[:, hull.axes]
    if hull.rank == 1:
        return np.asarray(projected // projected_basis[0, 0], dtype=np.int64)
    (a, b), (c, d) = projected_basis.tolist()
    x, y = projected[:, 0], projected[:, 1]
    return np.asarray(np.stack([x * d - y * c, y * a - x * b], axis=1) // (a * d - b * c), dtype=np.int64)


def _dot(left: tuple[int, int, int], right: tuple[int, int, int]) -> int:
    return sum(a * b for a, b in zip(left, right, strict=True))


MOST_STATES = 100
MOST_OUTPUTS = 255
_SMALL_SHARE = 2.0**-10


class TableError(ValueError):
    """A table cannot be built, or does not keep its promise."""


class TableWeights(NamedTuple):
    """Emission weights of all states, N x M, each at least 1, with rows that sum to 2^32, and the points of outputs.

    Output z is released as the lattice point outputs[z]. `share`, 0..1, is the part of a common profile in every row,
    which certification adds at the cost of accuracy.
    """

    weights: Ints
    outputs: Ints
    share: float


def check_table(weights: ArrayLike, is_protected: Bools, epsilon: Fraction | int | float) -> None:
    """Certify a table of N x M weights for protected pairs (N x N, symmetric), in integers; epsilon is at most 20.

    Raises:
        TableError: A row does not sum to 2^32, a cell is empty, or some output separates a protected pair by more than
            e^epsilon.
    """
    table = np.asarray(weights)
    if table.ndim != 2 or not np.issubdtype(table.dtype, np.integer) or is_protected.shape != (len(table),) * 2:
        raise TableError("a table is a matrix of integers with one row for each state of the graph")
    if table.min(initial=1) < 1 or table.max(initial=1) > SCALE:
        raise TableError("every weight of a table is at least 1: an output that a state can never give reveals it")
    table = table.astype(np.int64)
    for state in np.flatnonzero(table.sum(axis=1) != SCALE):
        raise TableError(f"the weights of state {state} sum to {int(table[state].sum())}, not to 2^32")
    if (violation := _find_violation(table, is_protected, floor_exp(epsilon))) is not None:
        i, j, z = violation
        raise TableError(
            f"output {z} tells state {i} from state {j}: weights {table[i, z]} and {table[j, z]} "
            f"are further apart than e^{float(epsilon):g}"
        )


def build_table(
    hull: Hull, points: Ints, constraint: Bools, epsilon: Fraction | int | float, *, most_outputs: int = MOST_OUTPUTS
) -> TableWeights:
    """Compile a hull with a finite factor, from `protect`, into a certified table; epsilon is at most 20.

    Every pair of the constraint set C with f(i) - f(j) in K is protected. The loss between any two states of C is at
    most epsilon times the factor, rounded up. A state outside C has the row of its public surrogate. The points f are
    (N, d). With `most_outputs` below the number of lattice points around C, outputs are several steps apart. The table
    passes `check_table` for `protected_pairs` of the hull.

    Raises:
        TableError: N is above 100, C has one state (use the fallback table), the measurements of C are all the same (a
            release would be exact), or the factor is infinite.
    """
    if len(points) > MOST_STATES:
        raise TableError(f"a table has at most {MOST_STATES} states, not {len(points)}: use the staircase sampler")
    constraint_values = points[constraint]
    if len(constraint_values) < 2:
        raise TableError("the constraint set leaves one state or none: use the fallback table")
    if not np.any(constraint_values - constraint_values[0]):
        raise TableError("all possible states measure the same, so a release would be exact: use the fallback table")
    factor = math.ceil(finite_factor(hull, constraint_values))
    is_protected = protected_pairs(hull, points, constraint)
    demands = [(is_protected[np.ix_(constraint, constraint)], floor_exp(epsilon))]
    if factor * Fraction(epsilon) <= MOST_EPSILON:
        demands.append((complete(len(constraint_values)), floor_exp(factor * Fraction(epsilon))))
    span_hull, span_points, basis = unroll(hull, constraint_values)
    box = output_box(span_points, most_outputs)
    exact_ratio = float(noise_ratio(epsilon))
    best_table: tuple[Ints, float] | None = None
    # If outputs are several steps apart, rows need different normalisers; a little more noise compensates that.
    for ratio_exponent in (1.0,) if box.step == 1 else (1.0, 0.97, 0.94, 0.9, 0.85, 0.8, 0.7, 0.6, 0.5):
        candidate = certify(clamped_mass(span_hull, span_points, box, exact_ratio**ratio_exponent), demands)
        if best_table is None or candidate[1] < best_table[1]:
            best_table = candidate
        if best_table[1] <= _SMALL_SHARE:
            break
    assert best_table is not None
    weights = best_table[0][(np.cumsum(constraint) - 1)[surrogates(points, constraint)]]
    check_table(weights, is_protected, epsilon)
    return TableWeights(weights, constraint_values[0] + box.points() @ basis, best_table[1])


def finite_factor(hull: Hull, points: Ints) -> Fraction | float:
    """Return the largest gauge of a difference of points (n, d); TableError if it is infinite."""
    factor = hull.largest_gauge(points)
    if factor == math.inf:
        raise TableError("the hull is flat: outputs would reveal for certain where the state is; cap it first")
    return factor


def table_loss(weights: Ints) -> NDArray[np.float64]:
    """Return the per-tick loss (N, N) of weights, in nats, rounded up: max over outputs of log(W[i,z] / W[j,z])."""
    logs = np.log(weights.astype(np.float64))
    loss: NDArray[np.float64] = np.array([(row - logs).max(axis=1) for row in logs])
    loss = np.maximum(loss, 0.0) * (1.0 + OUTWARD) + CLOSED_FORM  # each logarithm is at most 22.2, and good to 4e-15
    np.fill_diagonal(loss, 0.0)
    return loss


def certify(mass: NDArray[np.float64], demands: Sequence[tuple[Bools, int]]) -> tuple[Ints, float]:
    """Mix rows with the least share of a common profile that meets every demand; return integers, and the share.

    The search ends: with a share of 1 all rows are equal. Demands are pairs to protect, n x n, each with its bound
    floor(e^epsilon 2^24), at least 2^24.
    """
    profile = 0.5 * mass.mean(axis=0) + 0.5 / mass.shape[1]
    share = 2.0**-28
    while True:
        table = _round_rows((1.0 - share) * mass + share * profile)
        if share == 1.0 or all(_find_violation(table, is_protected, bound) is None for is_protected, bound in demands):
            return table, share
        share *= 2.0


def _find_violation(table: Ints, is_protected: Bools, bound: int) -> tuple[int, int, int] | None:
    """Return a protected pair and an output that separates it by more than bound / 2^24; `None` if there is none."""
    upper_bounds = _upper_bounds(table, bound)
    for state in np.flatnonzero(is_protected.any(axis=1)):
        partners = np.flatnonzero(is_protected[state])
        exceeds_bound = table[state] > upper_bounds[partners]
        if exceeds_bound.any():
            partner_index, output = np.argwhere(exceeds_bound)[0]
            return int(state), int(partners[partner_index]), int(output)
    return None


def _upper_bounds(table: Ints, bound: int) -> Ints:
    """Return floor(bound W / 2^24) of weights W, in two parts so that neither overflows."""
    integer_part, fraction = divmod(bound, 1 << RATIO_BITS)
    return integer_part * table + (fraction * table >> RATIO_BITS)


def _round_rows(probabilities: NDArray[np.float64]) -> Ints:
    """Round rows to integers of at least 1 that sum to 2^32; the largest cell takes the difference."""
    table = np.maximum(1, np.floor(probabilities * SCALE)).astype(np.int64)
    table[np.arange(len(table)), np.argmax(table, axis=1)] += SCALE - table.sum(axis=1)
    return np.asarray(table, dtype=np.int64)


MOST_CELLS = 1 << 25
"""The most cells of an emission matrix: 256 MB."""
_MOST_SHORT_CELLS = MOST_CELLS >> 5
"""The most cells of each of the 32 matrices that are cached of a stream of few states."""


class Emission(NamedTuple):
    """Compiled noise as an N x M matrix of probabilities, and the column of each released point."""

    points: dict[tuple[int, ...], int]
    probabilities: NDArray[np.float64]


def noise_table(table: TableWeights) -> NoiseTable:
    """Convert a certified table to the form in which it is sent."""
    cumulative_rows = tuple(array("I", row) for row in np.cumsum(table.weights, axis=1)[:, :-1].tolist())
    return NoiseTable(cumulative_rows, tuple(tuple(point) for point in table.outputs.tolist()))


def compile_noise(
    hull: Hull, points: Ints, constraint: Bools, epsilon: float, is_likely: Bools | None = None, *, short: bool = False
) -> Noise:
    """Compile a hull with a finite factor over the constraint set C into noise that devices draw; epsilon up to 20.

    Only likely states, at least two, by default those of C, have rows of their own; others use the row of the nearest
    likely state. The result is a table for at most 100 states, else a staircase. For a staircase, a flat or capped hull
    is replaced by the hull of all differences. With `short`, a few states get a staircase as well if the hull allows
    one: it has a thousandth of a table's bytes, and the same distribution, or a finer one.

    Raises:
        TableError: no table can be built; use the fallback.
        GraphError: there are too many states, and their differences are no plane polygon or segment. Or a polygon has
            more corners, or noise more steps, than a device takes.
    """
    is_likely = constraint if is_likely is None else is_likely
    if len(points) <= MAX_TABLE_STATES:
        cells = math.prod((np.ptp(points[is_likely], axis=0) + 1).tolist())
        if short and hull.scale == 1 and hull.rank == hull.dimensions and len(points) * cells <= _MOST_SHORT_CELLS:
            with suppress(GraphError):
                return _staircase_noise(hull, points, is_likely, epsilon)
        return noise_table(build_table(hull, points, is_likely, epsilon))
    differences = points[is_likely] - points[is_likely][0]
    if hull.scale != 1 or hull.rank < hull.dimensions or np.any(differences @ hull.equations.T):
        hull = complete_hull(points[is_likely])
    return _staircase_noise(hull, points, is_likely, epsilon)


def fallback_noise(points: Ints, epsilon: float) -> Noise:
    """Compile the noise for ticks without a table; it protects every pair of states."""
    return compile_noise(complete_hull(points), points, np.ones(len(points), dtype=np.bool_), epsilon)


def emission(noise: Noise, points: Ints) -> Emission:
    """Return the probability of each point given each state; GraphError if the matrix would be too large."""
    if isinstance(noise, NoiseTable):
        return Emission({point: index for index, point in enumerate(noise.points)}, _weights(noise) / SCALE)
    shape = tuple(high - low + 1 for low, high in zip(noise.low, noise.high, strict=True))
    if len(points) * (point_count := math.prod(shape)) > MOST_CELLS:
        raise GraphError(f"{len(points)} states and {point_count} points are too many: measure on a coarser lattice")
    box = Box(noise.low, 1, shape)
    mass = clamped_mass(_hull_of(noise.staircase.vertices), _centres(noise, points), box, float(noise.staircase.ratio))
    return Emission({tuple(point): index for index, point in enumerate(box.points().tolist())}, mass)


def noise_loss(noise: Noise, points: Ints) -> NDArray[np.float64]:
    """Return the per-tick loss of compiled noise for each pair of states, N x N in nats, rounded up."""
    if isinstance(noise, NoiseTable):
        return table_loss(_weights(noise))
    centres, hull = _centres(noise, points), _hull_of(noise.staircase.vertices)
    step_loss = -float(np.log(float(noise.staircase.ratio))) * (1.0 + OUTWARD)
    return np.array([hull.ceil_gauges(centre - centres) * step_loss for centre in centres])


def noise_pairs(noise: Noise, points: Ints, constraint: Bools, epsilon: float) -> Bools:
    """Return the pairs of states of a set, N x N, that compiled noise protects at epsilon."""
    is_protected = np.zeros((len(points), len(points)), dtype=np.bool_)
    states = np.flatnonzero(constraint)
    if isinstance(noise, NoiseTable):
        weights = _weights(noise)[states]
        upper_bounds = _upper_bounds(weights, measurement.floor_exp(epsilon))
        keeps_bound = np.array([np.all(state_weights <= upper_bounds, axis=1) for state_weights in weights])
        is_protected[np.ix_(states, states)] = keeps_bound & keeps_bound.T
    else:
        centres = _centres(noise, points)[states]
        is_protected[np.ix_(states, states)] = _hull_of(noise.staircase.vertices).pairs_within(centres)
    np.fill_diagonal(is_protected, False)
    return is_protected


def _weights(table: NoiseTable) -> Ints:
    cumulative_weights = np.array(table.rows, dtype=np.int64).reshape(table.states, -1)
    return np.asarray(np.diff(cumulative_weights, prepend=0, append=SCALE, axis=1), dtype=np.int64)


def _staircase_noise(hull: Hull, points: Ints, is_likely: Bools, epsilon: float) -> StaircaseNoise:
    if hull.rank < hull.dimensions:
        raise GraphError("the states lie in a line or a plane of a larger space: measure fewer dimensions")
    likely_values = points[is_likely]
    low, high = (tuple(corner.tolist()) for corner in (likely_values.min(axis=0), likely_values.max(axis=0)))
    try:
        return StaircaseNoise(set_of(np.flatnonzero(is_likely).tolist()), staircase(hull, epsilon), low, high)
    except FrameError as error:
        raise GraphError(f"no device draws from this staircase: {error}") from None


def _centres(noise: StaircaseNoise, points: Ints) -> Ints:
    is_likely = np.zeros(len(points), dtype=np.bool_)
    is_likely[noise.likely_states] = True
    return points[surrogates(points, is_likely)]


@lru_cache(maxsize=64)
def _hull_of(vertices: tuple[tuple[int, ...], ...]) -> Hull:
    return difference_hull(np.array(vertices, dtype=np.int64))
