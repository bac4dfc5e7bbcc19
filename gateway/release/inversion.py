"""From counts of symbols back to counts of states: unbiased, whatever the states were.

E[symbol counts | state counts c] = c B, so a k x m matrix R with B R' = I gives E[R symbol counts] = c. For m > k there
are many such; the one used weighs symbols by their probability under uniform states, R = (B D B')^-1 B D with
D = diag(1 / column means), which also keeps totals: the columns of R sum to 1.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fugu.chains.arrays import Floats
from fugu.contract.errors import FuguError
from fugu.contract.noise_table import SCALE, NoiseTable

__all__ = ["Inversion", "ReleaseError", "TwoValued", "inversion", "two_valued"]

_WORST_CONDITION = 1e8
_EQUAL = 1e-7


class ReleaseError(FuguError):
    """A statistic cannot be computed from the symbols that there are."""


class Inversion(NamedTuple):
    """An emission table as a matrix B (k, m), and its right inverse R (k, m): B R' = I."""

    emission: Floats
    inverse: Floats


class TwoValued(NamedTuple):
    """A count of states as a * (symbols in Z) + b * (all symbols).

    Attributes:
        symbols: (m,) whether a symbol is in Z.
        a, b: the weights.
    """

    symbols: NDArray[np.bool_]
    a: float
    b: float


@lru_cache(maxsize=256)
def inversion(table: NoiseTable) -> Inversion:
    """Invert a table.

    Raises:
        ReleaseError: symbols do not tell the states apart.
    """
    emission = np.array(table.weights(), dtype=np.float64) / SCALE
    weighted = emission / emission.mean(axis=0)
    gram = weighted @ emission.T
    if table.symbols < table.states or np.linalg.cond(gram) > _WORST_CONDITION:
        raise ReleaseError("the emission table has no inverse: its symbols do not tell the states apart")
    return Inversion(emission, np.linalg.solve(gram, weighted))


def two_valued(table: NoiseTable, states: tuple[int, ...]) -> TwoValued | None:
    """How to count states from one count of symbols, if that can be done; so it can for randomised response.

    Args:
        table: the emission table.
        states: some states, not all.

    Raises:
        ReleaseError: the table has no inverse.
    """
    weights = inversion(table).inverse[list(states)].sum(axis=0)
    low, high = float(weights.min()), float(weights.max())
    in_set = weights > (low + high) / 2.0
    if np.abs(np.where(in_set, high, low) - weights).max() > _EQUAL * (high - low):
        return None
    return TwoValued(in_set, float(weights[in_set].mean()) - low, low)
