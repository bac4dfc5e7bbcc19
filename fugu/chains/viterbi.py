"""The single most probable state path."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fugu.chains.arrays import Floats, Ints
from fugu.chains.kernel import kernel
from fugu.chains.model import impossible, pose

__all__ = ["Decoded", "viterbi"]


class Decoded(NamedTuple):
    """A state path (n,) and log Pr(path, symbols) of each sequence (sequences,), in nats."""

    states: Ints
    log_probabilities: Floats


@kernel
def _decode(
    symbols: Ints, starts: Ints, initial: Floats, transition: Floats, rows: Floats,
    came_from: NDArray[np.int32], states: Ints, log_probabilities: Floats,
) -> int:  # fmt: skip
    """Viterbi paths, all tables as logarithms; returns the position of impossible evidence, or -1."""
    k = transition.shape[0]
    score = np.empty((2, k))
    for sequence in range(starts.size - 1):
        log_probabilities[sequence] = 0.0
        low, high = starts[sequence], starts[sequence + 1]
        if low == high:
            continue
        now = 0
        for j in range(k):
            score[now, j] = initial[sequence, j] + rows[symbols[low], j]
        for t in range(low + 1, high):
            for j in range(k):
                best, origin = score[now, 0] + transition[0, j], 0
                for i in range(1, k):
                    candidate = score[now, i] + transition[i, j]
                    if candidate > best:  # strictly: of equals, the lowest state
                        best, origin = candidate, i
                score[1 - now, j] = best + rows[symbols[t], j]
                came_from[t, j] = origin
            now = 1 - now
        state = 0
        for j in range(1, k):
            if score[now, j] > score[now, state]:
                state = j
        if score[now, state] == -np.inf:
            return int(low)
        log_probabilities[sequence] = score[now, state]
        states[high - 1] = state
        for t in range(high - 1, low, -1):
            state = came_from[t, state]
            states[t - 1] = state
    return -1


def viterbi(
    symbols: ArrayLike,
    initial: ArrayLike,
    transition: ArrayLike,
    emission: ArrayLike,
    *,
    lengths: ArrayLike | None = None,
) -> Decoded:
    """Most probable state path of one or many sequences; of equals, the lowest state at each choice.

    Args:
        symbols, initial, transition, emission, lengths: as for `filter_beliefs`.

    Returns:
        States (n,), and log Pr(path, symbols) of each sequence (sequences,), in nats.

    Raises:
        ValueError: bad shapes or distributions, or symbols of probability zero.

    Source: the Viterbi recursion (Rabiner 1989, section III.B), in logarithms.
    """
    problem = pose(symbols, initial, transition, emission, lengths)
    k = problem.transition.shape[0]
    n = problem.symbols.size
    with np.errstate(divide="ignore"):
        tables = np.log(problem.initial), np.log(problem.transition), np.log(problem.rows)
    states = np.empty(n, dtype=np.int64)
    logs = np.empty(problem.starts.size - 1)
    came_from = np.empty((n, k), dtype=np.int32)
    bad = _decode(problem.symbols, problem.starts, *tables, came_from, states, logs)
    if bad >= 0:
        raise impossible(bad)
    return Decoded(states, logs)
