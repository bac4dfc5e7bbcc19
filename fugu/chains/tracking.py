"""Tracking a stream whose table may differ from tick to tick: filtered and fixed-lag distributions.

A release is given by its likelihood (N,) under each state, and every tick may have a transition of its own. A release
that no possible state can make counts as none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from fugu.chains.arrays import Bools, Floats, Ints
from fugu.chains.kernel import kernel, part
from fugu.chains.messages import LIFT

__all__ = ["Tracking", "fixed_lag", "follow", "moves_of", "reachable", "smooth_stream"]

_HIGH = LIFT**9
"""The factor that keeps products of small numbers from vanishing."""
_SPARSE = 0.1
"""The share of entries other than 0 below which products with sparse matrices are quicker."""


class Moves(NamedTuple):
    """Transitions (K, N, N) of a stream, one of which leads from each tick to the next.

    Attributes:
        dense: (K, N, N), or empty (0, 0, 0) if nonzero entries are few.
        starts: (K, N + 1), where each row of each transition begins among the nonzero entries, and where the last ends.
        columns, weights: of the nonzero entries, row by row; empty if these are many.
    """

    dense: Floats
    starts: Ints
    columns: Ints
    weights: Floats


def moves_of(transitions: Sequence[ArrayLike]) -> Moves:
    """Convert transitions to the form, dense or sparse, in which products with them are quicker."""
    matrices = np.array(transitions, dtype=np.float64)
    if np.count_nonzero(matrices) >= _SPARSE * matrices.size:
        return Moves(matrices, np.zeros((0, 0), dtype=np.int64), np.zeros(0, dtype=np.int64), np.zeros(0))
    nonzero_indices = np.nonzero(matrices)
    row_ends = np.cumsum(np.count_nonzero(matrices, axis=2).ravel()).reshape(matrices.shape[:2])
    row_starts = np.column_stack([np.concatenate([[0], row_ends[:-1, -1]]), row_ends])
    return Moves(np.zeros((0, 0, 0)), row_starts, nonzero_indices[2].astype(np.int64), matrices[nonzero_indices])


class Tracking(NamedTuple):
    """Result of the forward pass.

    Attributes:
        beliefs: (n, N), the distributions at each tick given all releases up to it.
        log_likelihoods: (n,), log probability of the release given all releases before; 0 for a tick without one.
        evidence: (n, N) likelihoods of the release; ones if there is none, or no possible state can make it.
    """

    beliefs: Floats
    log_likelihoods: Floats
    evidence: Floats


def follow(distribution: Floats, moves: Moves, kinds: Ints, likelihoods: Sequence[Floats | None]) -> Tracking:
    """Filter n >= 1 consecutive ticks, the forward pass; likelihoods of `None` stand for a tick without a release.

    The `distribution` (N,) is that of the first tick, given everything before; `kinds` (n - 1,) says which of the moves
    leads to each next tick. Raises ValueError for bad shapes, or if no state is possible at some tick.
    """
    ticks, states = len(likelihoods), len(distribution)
    if len(kinds) != ticks - 1:
        raise ValueError(f"{ticks} ticks have {ticks - 1} steps between them, not {len(kinds)}")
    is_released = np.array([likelihood is not None for likelihood in likelihoods], dtype=np.bool_)
    evidence, beliefs, log_likelihoods = np.ones((ticks, states)), np.empty((ticks, states)), np.zeros(ticks)
    if is_released.any():
        evidence[is_released] = np.array([likelihood for likelihood in likelihoods if likelihood is not None])
    first_distribution = np.ascontiguousarray(distribution, dtype=np.float64)
    if (bad_tick := _filter(first_distribution, moves, kinds, is_released, evidence, beliefs, log_likelihoods)) >= 0:
        raise ValueError(f"no state is possible at tick {bad_tick}")
    return Tracking(beliefs, log_likelihoods, evidence)


def fixed_lag(forward: Tracking, moves: Moves, kinds: Ints, lag: int, ticks: slice = slice(None)) -> Floats:
    """Return the distributions (n, N) of some ticks given all releases up to `lag` >= 0 ticks later, exactly.

    The last ticks use all releases after them; `forward` is from `follow` of the same moves. ValueError: `lag` is
    negative, or no state is possible.
    """
    if lag < 0:
        raise ValueError(f"lag is {lag}; it must be at least 0 ticks")
    tick_ids = np.arange(len(forward.beliefs))[ticks]
    smoothed = np.empty((len(tick_ids), forward.beliefs.shape[1]))
    if not _smooth(forward.beliefs, forward.evidence, moves, kinds, tick_ids, min(lag, len(kinds)), smoothed):
        raise ValueError("no state is possible")
    return smoothed


def smooth_stream(distribution: Floats, transition: Floats, likelihoods: Sequence[Floats | None], lag: int) -> Floats:
    """Return a stream's fixed-lag distributions (n, N), with one transition and a first `distribution` (N,)."""
    moves, kinds = moves_of([transition]), np.zeros(len(likelihoods) - 1, dtype=np.int64)
    return fixed_lag(follow(distribution, moves, kinds, likelihoods), moves, kinds, lag)


def reachable(is_possible: Bools, transition: ArrayLike) -> Bools:
    """Return which states (N,) can follow one of the possible states (N,), by transitions above 0."""
    return np.asarray((np.asarray(transition)[is_possible] > 0).any(axis=0))


@part
def _condition(message: Floats, likelihoods: Floats) -> float:
    """Multiply a message (N,) by likelihoods (N,) and scale it to sum 1; return the product's sum, times `_HIGH`."""
    mass = 0.0
    for state in range(len(message)):
        message[state] *= _HIGH * likelihoods[state]
        mass += message[state]
    if mass > 0.0:
        message /= mass
    return mass


@kernel
def _filter(
    distribution: Floats, moves: Moves, kinds: Ints, is_released: Bools, evidence: Floats, beliefs: Floats, logs: Floats
) -> int:
    """Fill beliefs (n, N) and logs (n,), and set evidence to 1 where a release is impossible.

    Returns a tick at which no state is possible, or -1.
    """
    predicted = distribution
    for tick in range(len(beliefs)):
        if tick > 0:
            predicted = _predict(beliefs[tick - 1], moves, kinds[tick - 1])
        predicted_mass = predicted.sum()
        if not predicted_mass > 0.0:
            return tick
        beliefs[tick] = predicted
        mass = _condition(beliefs[tick], evidence[tick]) if is_released[tick] else 0.0
        if mass > 0.0:
            logs[tick] = np.log(mass / predicted_mass) - np.log(_HIGH)
        else:
            evidence[tick] = 1.0
            beliefs[tick] = predicted / predicted_mass
    return -1


@part
def _predict(belief: Floats, moves: Moves, kind: int) -> Floats:
    """Return the distribution (N,) of the next tick: a row times a transition."""
    next_belief: Floats = np.zeros(len(belief))
    if len(moves.dense) > 0:
        next_belief = np.dot(belief, moves.dense[kind])
    else:
        for state in range(len(belief)):
            for entry in range(moves.starts[kind, state], moves.starts[kind, state + 1]):
                next_belief[moves.columns[entry]] += belief[state] * moves.weights[entry]
    return next_belief


@part
def _predict_back(message: Floats, moves: Moves, kind: int) -> Floats:
    """Return the message (N,) of the tick before: a transition times a column."""
    earlier_message: Floats = np.zeros(len(message))
    if len(moves.dense) > 0:
        earlier_message = np.dot(moves.dense[kind], message)
    else:
        for state in range(len(message)):
            for entry in range(moves.starts[kind, state], moves.starts[kind, state + 1]):
                earlier_message[state] += moves.weights[entry] * message[moves.columns[entry]]
    return earlier_message


@kernel
def _smooth(
    beliefs: Floats, evidence: Floats, moves: Moves, kinds: Ints, ticks: Ints, lag: int, smoothed: Floats
) -> bool:
    """Fill `smoothed` (n, N) with the distributions of chosen ticks. Return False if no state is possible."""
    for index in range(len(ticks)):
        tick, message = ticks[index], np.ones(beliefs.shape[1])
        for later_tick in range(min(tick + lag, len(kinds)), tick, -1):
            if not _condition(message, evidence[later_tick]) > 0.0:
                return False
            message = _predict_back(message, moves, kinds[later_tick - 1])
        smoothed[index] = message if _condition(message, beliefs[tick]) > 0.0 else beliefs[tick]
    return True
