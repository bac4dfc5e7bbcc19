"""Measurement queries: real values on a lattice, and several queries answered as one.

A mechanism of this room answers a query f by a lattice point for each state. Answering two queries by two mechanisms,
each with a hull of its own, does not keep definition 4.4: a state may have one partner for the first answer, another
for the second, and none for both. One stacked query sees what the answers reveal together.
Source: DPHMM, section 7; theorem 7.1 as printed overlooks this.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from gateway.chain.arrays import Ints
from gateway.dphmm.graphs import GraphError, lattice

__all__ = ["scaled", "stacked"]

_MOST_DIMENSIONS = 3
_HALF = Fraction(1, 2)

Resolution = Fraction | int | float


def scaled(values: ArrayLike, resolution: Resolution | Sequence[Resolution]) -> Ints:
    """Real measurements as multiples of a declared resolution, each rounded to the nearest.

    Numbers are taken as they are written: the float 0.1 counts as one tenth. The division is exact. A value halfway
    between two multiples goes to the upper one, so that a shift of all values by the resolution shifts all results
    by 1. Rounding is part of the query, and public: it costs no privacy, and up to half a resolution of accuracy.

    Args:
        values: N x d numbers, or N for d = 1.
        resolution: the size of a lattice step, above 0, in the unit of the values; or one for each dimension.

    Returns:
        N x d integers.

    Raises:
        GraphError: A value or a resolution is not finite or a resolution not above 0, the shape does not fit, or a
            result is 65536 or more in size.
    """
    given: Any = np.asarray(values)
    given = given[:, None] if given.ndim == 1 else given
    if given.ndim != 2:
        raise GraphError(f"measurements are points, one per state; got shape {given.shape}")
    steps = list(resolution) if isinstance(resolution, Sequence) else [resolution] * given.shape[1]
    if len(steps) != given.shape[1]:
        raise GraphError(f"{len(steps)} resolutions do not fit measurements in {given.shape[1]} dimensions")
    units = [_written(step, "a resolution") for step in steps]
    if any(unit <= 0 for unit in units):
        raise GraphError(f"a resolution is above 0, got {min(units)}")
    rows = [
        [math.floor(_written(value, "a measurement") / unit + _HALF) for value, unit in zip(row, units, strict=True)]
        for row in given.tolist()
    ]
    # as objects, so that a number too large for 64 bits is refused by `lattice`, not by numpy
    return lattice(np.array(rows, dtype=object).reshape(given.shape))


def stacked(*queries: ArrayLike) -> Ints:
    """Several queries as one: each state's answers side by side, to be released together as one point.

    Args:
        queries: each N x d' integers, or N for d' = 1; for the same states in the same order.

    Returns:
        N x d integers, d the sum of the dimensions.

    Raises:
        GraphError: There is no query, they are for different numbers of states, a query is refused by `lattice`, or
            there are more than three dimensions in all.
    """
    points = [lattice(query) for query in queries]
    if len({len(query) for query in points}) != 1:
        raise GraphError(f"queries answered at once need the same states, got {[len(query) for query in points]}")
    total = sum(query.shape[1] for query in points)
    if total > _MOST_DIMENSIONS:
        raise GraphError(
            f"queries answered at once have at most {_MOST_DIMENSIONS} dimensions together, not {total}: "
            "release fewer, or none that another one tells already"
        )
    return np.concatenate(points, axis=1)


def _written(value: Resolution, what: str) -> Fraction:
    """A number as it is written."""
    try:
        return Fraction(value) if isinstance(value, int | Fraction) else Fraction(repr(value))
    except (ValueError, TypeError):
        raise GraphError(f"{what} must be a finite number, got {value}") from None
