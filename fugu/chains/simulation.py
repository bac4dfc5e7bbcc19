"""Drawing state paths and symbols from a chain and an emission table."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from fugu.chains.arrays import Floats, Ints
from fugu.chains.kernel import kernel
from fugu.chains.model import check_distribution, check_emission, check_transition

__all__ = ["Simulated", "simulate"]


class Simulated(NamedTuple):
    """A state path (n,) and the symbols (n,) it emitted."""

    states: Ints
    symbols: Ints


@kernel
def _draw(thresholds: Floats, row: int, uniform: float) -> int:
    """First column of `thresholds` (rows, columns), cumulative distributions, that exceeds a number in [0, 1)."""
    column = 0
    while uniform >= thresholds[row, column]:
        column += 1
    return column


@kernel
def _run(initial: Floats, transition: Floats, emission: Floats, uniforms: Floats, states: Ints, symbols: Ints) -> None:
    """Draw a path from cumulative distributions and `uniforms` (n, 2)."""
    for t in range(states.size):
        state = _draw(transition, states[t - 1], uniforms[t, 0]) if t else _draw(initial, 0, uniforms[t, 0])
        states[t] = state
        symbols[t] = _draw(emission, state, uniforms[t, 1])


def _thresholds(distributions: Floats) -> Floats:
    """Cumulative distributions (rows, columns) whose last positive entry is exactly 1: every draw ends there."""
    sums = np.cumsum(distributions, axis=-1)
    return np.ascontiguousarray(sums / sums[..., -1:])


def simulate(
    ticks: int,
    initial: ArrayLike,
    transition: ArrayLike,
    emission: ArrayLike,
    generator: np.random.Generator,
) -> Simulated:
    """Draw a state path and its symbols.

    Args:
        ticks: length n of the path, at least 0.
        initial: (k,) distribution of the first tick.
        transition: (k, k) row-stochastic.
        emission: (k, m), Pr(symbol | state).
        generator: source of randomness; the same state gives the same path.

    Returns:
        States (n,) and symbols (n,).

    Raises:
        ValueError: bad shapes or distributions, or a negative length.
    """
    if ticks < 0:
        raise ValueError(f"cannot simulate {ticks} ticks")
    matrix = check_transition(transition)
    distribution = check_distribution(initial, "initial", matrix.shape[0])
    if distribution.ndim != 1:
        raise ValueError(f"initial has shape {distribution.shape}; it must be a vector (k,)")
    table = check_emission(emission, matrix.shape[0])
    states = np.empty(ticks, dtype=np.int64)
    symbols = np.empty(ticks, dtype=np.int64)
    uniforms = generator.random((ticks, 2))
    _run(_thresholds(distribution[None, :]), _thresholds(matrix), _thresholds(table), uniforms, states, symbols)
    return Simulated(states, symbols)
