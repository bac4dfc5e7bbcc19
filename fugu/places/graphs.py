"""Policy graphs: which pairs of states an adversary must not tell apart, and which states are possible to them.

A graph on the states 0..N-1 is a symmetric N x N boolean matrix without a diagonal. Under a constraint set C only the
edges inside C count (bounded Blowfish semantics without a null state): nothing is promised about states that the
adversary can rule out. Source: DPHMM, section 3.

A query f is a lattice point for each state. Answering two queries by two mechanisms, each with its own hull, does not
keep definition 4.4. A state may have one partner for the first answer, another for the second, and none for both. One
stacked query sees what the answers reveal together (section 7; theorem 7.1 as printed overlooks this).

Reachability is boolean: products of small probabilities underflow, and a possible state would seem not to be.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fugu.chains.arrays import Bools, Ints
from fugu.contract.measure_table import COORDINATE_LIMIT

__all__ = ["GraphError", "complete", "delta_set", "edge_list", "lattice", "restrict", "scale_points", "surrogates"]


class GraphError(ValueError):
    """A policy graph, a measurement or a constraint set is not valid."""


def lattice(coordinates: ArrayLike) -> Ints:
    """Check the measurements f (N, d) of all states, and return them as integers; N numbers are taken as N x 1.

    Raises:
        GraphError: A coordinate is not whole or is 2^16 or more in size, or d is not in 1..3.
    """
    numbers = np.asarray(coordinates)
    numbers = numbers[:, None] if numbers.ndim == 1 else numbers
    if numbers.ndim != 2 or numbers.shape[0] < 1 or not 1 <= numbers.shape[1] <= 3:
        raise GraphError(f"measurements are points in 1 to 3 dimensions, one per state; got shape {numbers.shape}")
    if not np.all(np.abs(numbers) < COORDINATE_LIMIT):
        raise GraphError("a coordinate is 65536 or more in size: declare a coarser resolution")
    points = numbers.astype(np.int64)
    if not np.array_equal(points, numbers):
        raise GraphError("coordinates must be whole numbers: scale them by a declared resolution first")
    return points


def complete(states: int) -> Bools:
    """Return the graph (N, N) with an edge between every two states; N is at least 1."""
    if states < 1:
        raise GraphError(f"a graph needs at least one state, got {states}")
    return ~np.eye(states, dtype=np.bool_)


def restrict(graph: Bools, constraint: Bools) -> Bools:
    """Return the edges (N, N) of a graph inside a constraint set, N booleans: the states thought possible."""
    return graph & constraint[:, None] & constraint[None, :]


_HALF = Fraction(1, 2)
Resolution = Fraction | int | float


def edge_list(graph: Bools) -> list[tuple[int, int]]:
    """Return the edges (i, j) of a graph with i < j, in ascending order."""
    lower_states, upper_states = np.nonzero(np.triu(graph, 1))
    return list(zip(lower_states.tolist(), upper_states.tolist(), strict=True))


def scale_points(points: ArrayLike, resolution: Resolution | Sequence[Resolution]) -> Ints:
    """Round real measurements (N, d) to multiples of a declared resolution, or of one for each dimension.

    Numbers are taken as they are written: the float 0.1 counts as one tenth. The division is exact. A number halfway
    between two multiples goes to the upper one, so that a shift of all points by the resolution shifts all results by
    1. Rounding is part of the query, and public: it costs no privacy, and up to half a resolution of accuracy.

    Raises:
        GraphError: A value or resolution is not finite, a resolution is not above 0, the shape does not fit, or a
            result is 65536 or more in size.
    """
    array: Any = np.asarray(points)
    array = array[:, None] if array.ndim == 1 else array
    if array.ndim != 2:
        raise GraphError(f"measurements are points, one per state; got shape {array.shape}")
    resolutions = list(resolution) if isinstance(resolution, Sequence) else [resolution] * array.shape[1]
    if len(resolutions) != array.shape[1]:
        raise GraphError(f"{len(resolutions)} resolutions do not fit measurements in {array.shape[1]} dimensions")
    units = [_exact(number, "a resolution") for number in resolutions]
    if any(unit <= 0 for unit in units):
        raise GraphError(f"a resolution is above 0, got {min(units)}")
    multiples = [
        [math.floor(_exact(value, "a measurement") / unit + _HALF) for value, unit in zip(row, units, strict=True)]
        for row in array.tolist()
    ]
    # as objects, so that a number too large for 64 bits is refused by `lattice`, not by numpy
    return lattice(np.array(multiples, dtype=object).reshape(array.shape))


def _exact(number: Resolution, noun: str) -> Fraction:
    try:
        return Fraction(number) if isinstance(number, int | Fraction) else Fraction(str(number))
    except (ValueError, TypeError):
        raise GraphError(f"{noun} must be a finite number, got {number}") from None


def delta_set(belief: ArrayLike, delta: float) -> Bools:
    """Return the delta-location set: all states but the least likely ones, with a total mass of at most delta.

    The set is never empty. It depends on the belief, hence on earlier releases. A state outside the set keeps its
    probability in the belief; its surrogate has its row. Of equally likely states the highest index is dropped first.
    With delta = 0 states of probability 0 are dropped, which underflow may have caused; for reachability, intersect
    with the states that can follow instead.

    Raises:
        GraphError: delta is not in [0, 1), or the belief is not a distribution.
    """
    distribution = np.asarray(belief, dtype=np.float64)
    if distribution.ndim != 1 or not (distribution >= 0.0).all() or not abs(distribution.sum() - 1.0) < 1e-6:
        raise GraphError("a belief is a list of probabilities that sum to 1")
    if not 0.0 <= delta < 1.0:
        raise GraphError(f"delta must be at least 0 and below 1, got {delta}")
    order = len(distribution) - 1 - np.argsort(distribution[::-1], kind="stable")  # of equals the highest index first
    masses = distribution[order]
    # quick sums are good to far better than 1e-9. Correctly rounded sums, which never fall as terms are added, decide
    # what these leave open.
    limits = np.searchsorted(np.cumsum(masses[:-1]), (delta - 1e-9, delta + 1e-9), side="right").tolist()
    cutoff = bisect_right(range(1, len(distribution)), delta, *limits, key=lambda count: math.fsum(masses[:count]))
    is_likely = np.ones(len(distribution), dtype=np.bool_)
    is_likely[order[:cutoff]] = False
    return is_likely


def surrogates(coordinates: ArrayLike, constraint: Bools) -> Ints:
    """Map every state to its public surrogate: the state of the constraint set whose row it uses.

    A state of the set is its own surrogate; others have the nearest, of equals the lowest index. GraphError if the set
    is empty.
    """
    points = lattice(coordinates)
    possible_states = np.flatnonzero(constraint)
    if not len(possible_states):
        raise GraphError("no state is possible, so none can stand in for another")
    surrogate = np.arange(len(points))
    excluded_states = np.flatnonzero(~constraint)
    if not len(excluded_states):
        return surrogate
    # |a - b|^2 less the |a|^2 that all share, in floating point, where these whole numbers are exact
    excluded_points, possible_points = (points[k].astype(np.float64) for k in (excluded_states, possible_states))
    distances = np.sum(possible_points * possible_points, axis=1) - 2.0 * excluded_points @ possible_points.T
    surrogate[excluded_states] = possible_states[np.argmin(distances, axis=1)]  # argmin takes the first of equals
    return surrogate.astype(np.int64)
