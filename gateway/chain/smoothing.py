"""Smoothing: what symbols before and after a tick say about its state (the backward pass, and both together).

The forward and the backward message of one sequence do not depend on each other, so one loop carries both, from
the two ends at once: each hides the other's waiting. Until they meet, each leaves its messages in the result;
after, each finds there the other's message, and leaves the posterior in its place.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from gateway.chain.arrays import Floats, Ints
from gateway.chain.filtering import filter_wide, run_filter
from gateway.chain.kernel import kernel
from gateway.chain.model import impossible, pose, step_tables
from gateway.chain.steps import (
    Message,
    advance,
    combine,
    condition_row,
    fits_registers,
    lift,
    lift_row,
    normalise_product,
    predict_row,
    product,
    store,
)

__all__ = ["backward_messages", "fixed_lag_marginals", "posterior_marginals"]


@kernel
def _smooth_small(
    symbols: Ints, starts: Ints, initial: Floats, rows: Floats, forward: Floats, backward: Floats,
    unit: Message, out: Floats,
) -> int:  # fmt: skip
    """Smooth sequences with k = 2, 3 or 4; returns a position if the evidence is impossible, else -1."""
    for sequence in range(starts.size - 1):
        low, high = starts[sequence], starts[sequence + 1]
        a, b = product(initial, sequence, product(rows, symbols[low], unit)) if high > low else unit, unit
        left, right = low, high - 1  # a is the forward message of `left`, b the backward one of `right`
        a, _, _ = lift(a)
        while left < right:  # leave messages for the other side
            store(out, left, a, 1.0)
            store(out, right, b, 1.0)
            left += 1
            a, _, _ = lift(advance(a, forward, symbols[left]))
            b, _, _ = lift(advance(b, backward, symbols[right]))
            right -= 1
        if left == right:
            store(out, left, a, 1.0)
        while left < high:  # and find there the other side's; at a middle tick there is one left to multiply by
            if not ((left == right or combine(out, left, a)) and combine(out, right, b)):
                return int(left)
            left, right = left + 1, right - 1
            if left < high:
                a, _, _ = lift(advance(a, forward, symbols[left]))
                b, _, _ = lift(advance(b, backward, symbols[right + 1]))
    return -1


@kernel
def _backward_wide(symbols: Ints, starts: Ints, rows: Floats, reverse: Floats, out: Floats) -> int:
    """Backward messages with any k, each with sum 1; -1, or a position of impossible evidence."""
    k = rows.shape[1]
    work = np.empty((2, k))
    for sequence in range(starts.size - 1):
        low, high = starts[sequence], starts[sequence + 1]
        for t in range(high - 1, low - 1, -1):
            if t == high - 1:
                for j in range(k):
                    work[0, j] = 1.0
            else:
                lift_row(work, 0, condition_row(work, 0, rows, symbols[t + 1]))
                predict_row(work, 0, 1, reverse)
                for j in range(k):
                    work[0, j] = work[1, j]
            mass = 0.0
            for j in range(k):
                mass += work[0, j]
            if mass == 0.0:
                return int(t)
            for j in range(k):
                out[t, j] = work[0, j] / mass
    return -1


def backward_messages(
    symbols: ArrayLike,
    transition: ArrayLike,
    emission: ArrayLike,
    *,
    lengths: ArrayLike | None = None,
) -> Floats:
    """What the symbols after each tick say about its state.

    Args:
        symbols, transition, emission, lengths: as for `filter_beliefs`.

    Returns:
        (n, k), row t proportional to Pr(symbols after t | X_t = x) and with sum 1.

    Raises:
        ValueError: bad shapes or laws, or symbols that no state explains.

    Source: the backward recursion (Rabiner 1989, section III).
    """
    k = np.shape(transition)[0] if np.ndim(transition) else 0
    problem = pose(symbols, np.full(max(k, 1), 1.0 / max(k, 1)), transition, emission, lengths)
    out = np.empty((problem.symbols.size, k))
    bad = _backward_wide(*problem[:2], problem.rows, np.ascontiguousarray(problem.transition.T), out)
    if bad >= 0:
        raise impossible(bad)
    return out


def posterior_marginals(
    symbols: ArrayLike,
    initial: ArrayLike,
    transition: ArrayLike,
    emission: ArrayLike,
    *,
    lengths: ArrayLike | None = None,
) -> Floats:
    """Smooth one or many sequences of symbols.

    Args:
        symbols, initial, transition, emission, lengths: as for `filter_beliefs`.

    Returns:
        (n, k), row t = Pr(X_t | all symbols of its sequence).

    Raises:
        ValueError: bad shapes or laws, or symbols of probability zero.

    Source: the forward-backward recursions (Rabiner 1989, section III), from both ends at once.
    """
    problem = pose(symbols, initial, transition, emission, lengths)
    k = problem.transition.shape[0]
    out = np.empty((problem.symbols.size, k))
    given = (problem.symbols, problem.starts, problem.initial, problem.rows)
    if fits_registers(k):
        bad = _smooth_small(*given, *step_tables(problem), (1.0,) * k, out)
    else:
        bad = _backward_wide(*given[:2], problem.rows, np.ascontiguousarray(problem.transition.T), out)
        if bad < 0:
            bad = filter_wide(*given, problem.transition, out, np.empty(problem.starts.size - 1), True)
    if bad >= 0:
        raise impossible(bad)
    return out


@kernel
def _look_ahead_small(symbols: Ints, starts: Ints, lag: int, backward: Floats, unit: Message, out: Floats) -> int:
    """Turn filtered beliefs `out` (n, k), k = 2, 3 or 4, into fixed-lag marginals; -1, or a position."""
    for sequence in range(starts.size - 1):
        high = starts[sequence + 1]
        for t in range(starts[sequence], high):
            b = unit
            for later in range(min(t + lag, high - 1), t, -1):
                b, _, _ = lift(advance(b, backward, symbols[later]))
            if not combine(out, t, b):
                return int(t)
    return -1


@kernel
def _look_ahead_wide(symbols: Ints, starts: Ints, lag: int, rows: Floats, reverse: Floats, out: Floats) -> int:
    """Turn filtered beliefs `out` (n, k), any k, into fixed-lag marginals; -1, or a position."""
    k = rows.shape[1]
    work = np.empty((2, k))
    for sequence in range(starts.size - 1):
        high = starts[sequence + 1]
        for t in range(starts[sequence], high):
            now = 0
            for j in range(k):
                work[now, j] = 1.0
            for later in range(min(t + lag, high - 1), t, -1):
                lift_row(work, now, condition_row(work, now, rows, symbols[later]))
                predict_row(work, now, 1 - now, reverse)
                now = 1 - now
            if not normalise_product(out, t, work, now):
                return int(t)
    return -1


def fixed_lag_marginals(
    symbols: ArrayLike,
    initial: ArrayLike,
    transition: ArrayLike,
    emission: ArrayLike,
    lag: int,
    *,
    lengths: ArrayLike | None = None,
) -> Floats:
    """Smooth every tick with the symbols up to `lag` ticks after it, exactly, in O(n lag k^2).

    For a window in the middle of a stream, `initial` is the law of the window's first tick:
    `predict(belief, transition)` with the filtered belief of the tick before the window.

    Args:
        symbols, initial, transition, emission, lengths: as for `filter_beliefs`.
        lag: ticks to look ahead, at least 0; the last ticks of a sequence use what there is.

    Returns:
        (n, k), row t = Pr(X_t | symbols up to t + lag).

    Raises:
        ValueError: bad shapes or laws, a negative lag, or symbols of probability zero.
    """
    if lag < 0:
        raise ValueError(f"lag is {lag}; it must be at least 0 ticks")
    problem = pose(symbols, initial, transition, emission, lengths)
    k = problem.transition.shape[0]
    out = run_filter(problem).beliefs
    given = (problem.symbols, problem.starts, min(lag, problem.symbols.size))
    if fits_registers(k):
        bad = _look_ahead_small(*given, step_tables(problem)[1], (1.0,) * k, out)
    else:
        bad = _look_ahead_wide(*given, problem.rows, np.ascontiguousarray(problem.transition.T), out)
    if bad >= 0:
        raise impossible(bad)
    return out
