"""The input of every kernel: checks, tables, and draws from a chain.

A chain is (initial, transition). Symbols of many sequences are concatenated, and `lengths` says where each ends.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from fugu.chains.arrays import Floats, Ints
from fugu.chains.kernel import kernel, part

__all__ = [
    "Problem",
    "check_distribution",
    "check_emission",
    "check_transition",
    "likelihood_rows",
    "problem_of",
    "refuse_impossible",
    "simulate",
    "stationary_distribution",
]


# Rows come from exact rationals over 2^32 or from a fit: this only catches tables that are not distributions at all.
_SUM_TOLERANCE = 1e-9
_TINY = 1e-290  # below this a float loses relative accuracy soon


class Problem(NamedTuple):
    """The checked input of a kernel: symbols (n,) of all sequences, one after the other, and a chain.

    Sequences begin at `starts` (sequences + 1,), whose last entry is n; `initial` is (sequences, k), `transition`
    (k, k). `likelihoods` (m + 1, k) are those of each symbol, and ones for an unobserved tick.
    """

    symbols: Ints
    starts: Ints
    initial: Floats
    transition: Floats
    likelihoods: Floats


def check_distribution(probabilities: ArrayLike, name: str, states: int | None = None) -> Floats:
    """Check distributions (..., k), one per row, and return a C-contiguous float64 array. Errors call them `name`.

    Raises ValueError for a wrong shape, a negative or non-finite entry, or a row that does not sum to 1.
    """
    distributions = np.ascontiguousarray(probabilities, dtype=np.float64)
    if (
        distributions.ndim == 0
        or distributions.shape[-1] == 0
        or (states is not None and distributions.shape[-1] != states)
    ):
        raise ValueError(f"{name} has shape {distributions.shape}; its last axis must be the {states or 'k'} states")
    if not (distributions >= 0.0).all():
        raise ValueError(f"{name} has a negative or undefined entry; all entries must be probabilities")
    sums = distributions.sum(axis=-1)
    if distributions.size and not (np.abs(sums - 1.0) <= _SUM_TOLERANCE).all():
        worst_sum = float(sums.flat[np.argmax(np.abs(sums - 1.0))])
        raise ValueError(f"{name} has a row that sums to {worst_sum!r} instead of 1")
    return distributions


def check_transition(transition: ArrayLike) -> Floats:
    """Check a transition matrix, which may have zeros; return a C-contiguous float64 array (k, k), or ValueError."""
    matrix = check_distribution(transition, "transition")
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise ValueError(f"transition has shape {matrix.shape}; it must be square (k, k)")
    return matrix


def check_emission(emission: ArrayLike, states: int) -> Floats:
    """Check an emission table Pr(symbol z | state x); return a C-contiguous float64 array (k, m), or ValueError."""
    table = check_distribution(emission, "emission")
    if table.ndim != 2 or table.shape[0] != states:
        raise ValueError(f"emission has shape {table.shape}; it must have one row per state ({states}, m)")
    return table


def check_symbols(symbols: ArrayLike, symbol_count: int) -> Ints:
    """Check symbols in -1..m-1, -1 for an unobserved tick; return a C-contiguous int64 array (n,), or ValueError."""
    array = np.asarray(symbols)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise ValueError(f"symbols must be a vector of integers, not {array.dtype} of shape {array.shape}")
    stream = np.ascontiguousarray(array, dtype=np.int64)
    if stream.size and (stream.min() < -1 or stream.max() >= symbol_count):
        raise ValueError(f"symbols reach from {stream.min()} to {stream.max()}; allowed: -1..{symbol_count - 1}")
    return stream


def problem_of(
    symbols: ArrayLike, initial: ArrayLike, transition: ArrayLike, emission: ArrayLike, lengths: ArrayLike | None
) -> Problem:
    """Return the checked arguments of `filter_beliefs` as kernels take them. ValueError if one is wrong."""
    matrix = check_transition(transition)
    k = matrix.shape[0]
    table = check_emission(emission, k)
    stream = check_symbols(symbols, table.shape[1])
    tick_counts = np.array([stream.size]) if lengths is None else np.asarray(lengths)
    if tick_counts.ndim != 1 or (tick_counts.size and (tick_counts.dtype.kind not in "iu" or tick_counts.min() < 0)):
        raise ValueError("lengths must be a vector of counts")
    if int(tick_counts.sum()) != stream.size:
        raise ValueError(f"lengths sum to {int(tick_counts.sum())}, but there are {stream.size} symbols")
    starts = np.concatenate([[0], np.cumsum(tick_counts)]).astype(np.int64)
    initial_rows = check_distribution(initial, "initial", k)
    if initial_rows.ndim > 2 or (initial_rows.ndim == 2 and initial_rows.shape[0] != tick_counts.size):
        raise ValueError(f"initial has shape {initial_rows.shape}; it must be ({k},) or ({tick_counts.size}, {k})")
    # a copy, as kernels compile again for read-only arrays
    initial_rows = np.array(np.broadcast_to(initial_rows, (tick_counts.size, k)), order="C")
    return Problem(stream, starts, initial_rows, matrix, likelihood_rows(table))


def likelihood_rows(emission: Floats) -> Floats:
    """Return the likelihoods (m + 1, k) of the states for each symbol; the last row, index -1, is all ones."""
    return np.ascontiguousarray(np.vstack([emission.T, np.ones((1, emission.shape[0]))]))


def refuse_impossible(tick: int) -> None:
    """Raise ValueError if `tick`, which a kernel returned, is a position of impossible evidence and not -1."""
    if tick >= 0:
        raise ValueError(
            f"the symbols have probability zero under this chain and emission table (noticed at position {tick}); "
            "check that they belong together"
        )


def stationary_distribution(transition: ArrayLike) -> Floats:
    """Return the distribution pi (k,) with pi P = pi: small relative errors, and 0 for transient states.

    Raises ValueError if there are several such distributions, or an entry is too small for a float.
    """
    matrix = check_transition(transition)
    closed_states = _recurrent_states(matrix)
    distribution = np.zeros(len(matrix))
    distribution[closed_states] = _eliminate_states(matrix[np.ix_(closed_states, closed_states)].copy())
    if not np.all(distribution[closed_states] >= _TINY):
        raise ValueError("a state is so rare that its stationary probability does not fit a float")
    return distribution


def _recurrent_states(transition: Floats) -> Ints:
    """Return the states of the only class that the chain never leaves; ValueError if there are several classes."""
    is_reachable = np.eye(len(transition), dtype=np.bool_) | (transition > 0.0)
    for _ in range(len(transition).bit_length()):
        is_reachable = (is_reachable.astype(np.float32) @ is_reachable.astype(np.float32)) > 0.0
    recurrent_states = np.flatnonzero(np.all(~is_reachable | is_reachable.T, axis=1))
    if not is_reachable[np.ix_(recurrent_states, recurrent_states)].all():
        raise ValueError("the chain has more than one stationary distribution; give the initial distribution instead")
    return np.asarray(recurrent_states, dtype=np.int64)


def _eliminate_states(matrix: Floats) -> Floats:
    """Return the stationary distribution (k,) of an irreducible (k, k) chain, whose matrix is overwritten.

    Grassmann, Taksar, Heyman (1985): no subtraction, so that rare states keep their relative accuracy.
    """
    k = len(matrix)
    with np.errstate(all="ignore"):  # the caller refuses underflow
        for last in range(k - 1, 0, -1):
            matrix[:last, last] /= matrix[last, :last].sum()
            matrix[:last, :last] += np.outer(matrix[:last, last], matrix[last, :last])
        distribution = np.ones(k)
        for state in range(1, k):
            distribution[state] = distribution[:state] @ matrix[:state, state]
        return np.asarray(distribution / distribution.sum(), dtype=np.float64)


class Simulated(NamedTuple):
    """A state path (n,) and the symbols (n,) that it emitted."""

    states: Ints
    symbols: Ints


@part
def _draw(thresholds: Floats, row: int, number: float) -> int:
    """Return the first column whose threshold in a row of `thresholds` (rows, columns) exceeds a number in [0, 1)."""
    column = 0
    while number >= thresholds[row, column]:
        column += 1
    return column


@kernel
def _walk(initial: Floats, transition: Floats, emission: Floats, uniforms: Floats, states: Ints, symbols: Ints) -> None:
    """Draw a state path and its symbols from cumulative distributions and `uniforms` (n, 2)."""
    for t in range(states.size):
        state = _draw(transition, states[t - 1], uniforms[t, 0]) if t else _draw(initial, 0, uniforms[t, 0])
        states[t] = state
        symbols[t] = _draw(emission, state, uniforms[t, 1])


def _thresholds(distributions: Floats) -> Floats:
    """Return cumulative distributions (rows, columns), which end in exactly 1 so that every draw finds a column."""
    cumulative_sums = np.cumsum(distributions, axis=-1)
    return np.ascontiguousarray(cumulative_sums / cumulative_sums[..., -1:])


def simulate(
    ticks: int, initial: ArrayLike, transition: ArrayLike, emission: ArrayLike, generator: np.random.Generator
) -> Simulated:
    """Draw a state path and its symbols; ValueError for bad shapes or distributions, or a negative length."""
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
    _walk(_thresholds(distribution[None, :]), _thresholds(matrix), _thresholds(table), uniforms, states, symbols)
    return Simulated(states, symbols)
