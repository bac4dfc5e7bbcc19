"""The six-state example of the paper, grids, and the golden numbers, shared by the tests of this room."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from fractions import Fraction
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fugu.chains.arrays import Bools, Floats, Ints
from fugu.contract.measure_table import Staircase
from fugu.contract.noise_table import SCALE
from fugu.places.graphs import lattice
from fugu.places.hull import Hull
from fugu.places.tables import TableWeights
from papers.graphs import explicit
from papers.neighbour_noise import measure

GOLDEN: dict[str, Any] = json.loads((Path(__file__).parents[1] / "golden" / "dphmm.json").read_text())
VALUES = lattice([(1, 0), (2, 1), (3, 0), (0, 1), (4, 2), (1, 2)])
OBJECTIVES = ("error", "nearest", "area")
GRAPH = explicit(6, [(1, 2), (3, 4), (3, 5), (4, 5)])


def states(count: int, *chosen: int) -> Bools:
    """A constraint set, from states counted from 1 as in the paper; all of them by default."""
    constraint = np.zeros(count, dtype=np.bool_)
    constraint[[state - 1 for state in chosen or range(1, count + 1)]] = True
    return constraint


def grid(side: int) -> Ints:
    """The cells of a square grid, row by row."""
    return lattice([(index // side, index % side) for index in range(side * side)])


def exact(written: str | None) -> Fraction | float:
    """A gauge as the golden file writes it."""
    return math.inf if written in (None, "inf") else Fraction(written)


def random_case(seed: int) -> tuple[Ints, Bools, Bools]:
    """Up to six states on a lattice whose rank may be too low, some edges, and at least two possible states."""
    generator = np.random.default_rng(seed)
    count, space = int(generator.integers(2, 7)), int(generator.integers(1, 4))
    basis = generator.integers(-1, 2, (int(generator.integers(1, space + 1)), space))
    values = lattice(generator.integers(-2, 3, (count, len(basis))) @ basis)
    pairs = [pair for pair in combinations(range(count), 2) if generator.random() < 0.35]
    constraint = generator.random(count) < 0.7
    constraint[generator.permutation(count)[:2]] = True
    return values, explicit(count, pairs), constraint


def close(table: TableWeights, i: int, k: int, bound: int) -> bool:
    """True if no output separates i and k by more than bound / 2^24, one output at a time."""
    return all(
        int(a) * 2**24 <= bound * int(b) and int(b) * 2**24 <= bound * int(a)
        for a, b in zip(table.weights[i], table.weights[k], strict=True)
    )


def strict_epsilon(loss: Floats, constraint: Bools) -> float:
    """The least epsilon for which definition 4.4 holds strictly: one other state, the same for all outputs."""
    both = np.maximum(loss, loss.T)[np.ix_(constraint, constraint)]
    np.fill_diagonal(both, np.inf)
    return float(both.min(axis=1).max())


def estimate_error(table: TableWeights, values: Ints, prior: ArrayLike | None = None) -> tuple[float, float]:
    """E|z - f|^2 and E|E[f|z] - f|^2 of a table, in squared lattice steps; the prior is uniform by default."""
    count = len(values)
    distribution = np.full(count, 1.0 / count) if prior is None else np.asarray(prior, dtype=np.float64)
    joint = distribution[:, None] * table.weights / SCALE
    means = (joint.T @ values) / joint.sum(axis=0)[:, None]

    def error(points: Floats) -> float:
        return float(np.sum(joint * np.sum((values[:, None, :] - points[None, :, :]) ** 2, axis=2)))

    return error(table.outputs.astype(np.float64)), error(means)


def knorm_log_density(hull: Hull, epsilon: float, offset: Sequence[int | Fraction]) -> float:
    """The log-density of K-norm noise at z - f(x), d exact numbers; to length, area or volume within the span of K.

    Returns:
        -epsilon gauge - log(rank! measure(K) / epsilon^rank), or -inf outside the span.
    """
    total = math.lgamma(hull.rank + 1) + math.log(measure(hull)) - hull.rank * math.log(epsilon)
    return -epsilon * float(hull.gauge(offset)) - total


def stairs(hull: Hull, ratio: Fraction) -> Staircase:
    """Staircase noise of a hull, with steps of any ratio."""
    return Staircase(tuple(tuple(vertex) for vertex in hull.vertices.tolist()), ratio)


def probability(noise: Staircase, point: tuple[int, ...]) -> Fraction:
    """P(point), d integers; 0 outside the span of K."""
    if not noise.spans(point):
        return Fraction(0)
    heights = [(sum(a * b for a, b in zip(normal, point, strict=True)), offset) for normal, offset in noise.facets()]
    return noise.ratio ** max(0, *(-(-height // offset) for height, offset in heights)) / noise.normaliser
