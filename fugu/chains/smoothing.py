"""Smoothing: what symbols before and after a tick say about its state (the backward pass, and both together).

The forward and the backward message of one sequence do not depend on each other, so one loop carries both, from
the two ends at once: each hides the other's waiting. Until they meet, each leaves its messages in the result;
after, each finds there the other's message, and leaves the posterior in its place.
"""

from __future__ import annotations

from math import log2
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike

from fugu.chains.arrays import Floats, Ints
from fugu.chains.filtering import filter_wide, run_filter
from fugu.chains.kernel import kernel
from fugu.chains.model import Problem, impossible, pose, step_tables
from fugu.chains.steps import (
    combine,
    condition_row,
    first,
    fits_registers,
    lift,
    lift_row,
    normalise_product,
    predict_row,
)
from fugu.chains.vectors import Message, advance, message, prefetch, store

__all__ = ["backward_messages", "fixed_lag_marginals", "posterior_marginals"]

_MOST, _BITS = 16, 132.0
"""Messages are lifted after at most so many ticks, and before they can have lost so many bits since the last time."""
_NEAR = 4096
"""Ticks of sequences whose results fit the cache: while they are made, room for the next is brought there."""


class _Given(NamedTuple):
    """What messages over 2, 3 or 4 states are made of.

    Attributes:
        symbols: (n,) in -1..m-1.
        initial: (sequences, k).
        rows: (m + 1, k), likelihoods, those of an unobserved tick last.
        forward, backward: (m + 1, k, k), from `step_tables`.
        every: ticks after which a message's size is looked at.
    """

    symbols: Ints
    initial: Floats
    rows: Floats
    forward: Floats
    backward: Floats
    every: int

    @classmethod
    def of(cls, problem: Problem) -> Self:
        """From a checked problem."""
        forward, backward = step_tables(problem)
        least = min(forward.sum(axis=2).min(), backward.sum(axis=2).min())  # of its sum, a message keeps at a tick
        loss = -log2(least) if least > 0.0 else _BITS
        every = max(int(min(_BITS / loss, _MOST)), 1) if loss > 0.0 else _MOST
        return cls(problem.symbols, problem.initial, problem.rows, forward, backward, every)


@kernel
def _leave(
    given: _Given, left: int, right: int, ticks: int, a: Message, b: Message, out: Floats
) -> tuple[Message, Message]:
    """Take the forward message `a` of `left` and the backward one `b` of `right` so many ticks on, leaving them."""
    done = 0
    while done < ticks:
        until = min(done + given.every, ticks)
        for i in range(done, until):
            store(out, left + i, a)
            store(out, right - i, b)
            a = advance(a, given.forward, given.symbols, left + i + 1)
            b = advance(b, given.backward, given.symbols, right - i)
        a, b, done = lift(a)[0], lift(b)[0], until
    return a, b


@kernel
def _leave_two(
    given: _Given, left: int, right: int, left2: int, right2: int, ticks: int, a: Message, b: Message, a2: Message,
    b2: Message, out: Floats,
) -> tuple[Message, Message, Message, Message]:  # fmt: skip
    """`_leave` for two sequences."""
    done = 0
    while done < ticks:
        until = min(done + given.every, ticks)
        for i in range(done, until):
            store(out, left + i, a)
            store(out, right - i, b)
            store(out, left2 + i, a2)
            store(out, right2 - i, b2)
            a = advance(a, given.forward, given.symbols, left + i + 1)
            b = advance(b, given.backward, given.symbols, right - i)
            a2 = advance(a2, given.forward, given.symbols, left2 + i + 1)
            b2 = advance(b2, given.backward, given.symbols, right2 - i)
        a, b, a2, b2, done = lift(a)[0], lift(b)[0], lift(a2)[0], lift(b2)[0], until
    return a, b, a2, b2


@kernel
def _middle(
    given: _Given, middle: int, last: int, a: Message, b: Message, out: Floats
) -> tuple[bool, Message, Message]:  # fmt: skip
    """The posterior of the tick at which both messages are, and the messages beyond it; whether it is not 0."""
    store(out, middle, a)
    possible = combine(out, middle, b)
    a = advance(a, given.forward, given.symbols, min(middle + 1, last))
    return possible, a, advance(b, given.backward, given.symbols, middle)


@kernel
def _find(
    given: _Given, left: int, right: int, ticks: int, last: int, near: int, pace: int, a: Message, b: Message,
    out: Floats,
) -> int:  # fmt: skip
    """Make posteriors of the messages left at so many ticks to each side; -1, or a position where one would be 0."""
    done = 0
    while done < ticks:
        until = min(done + given.every, ticks)
        for i in range(done, until):
            if not (combine(out, left + i, a) and combine(out, right - i, b)):
                return left + i
            prefetch(given.symbols, out, near + pace * i, a)
            a = advance(a, given.forward, given.symbols, min(left + i + 1, last))
            b = advance(b, given.backward, given.symbols, right - i)
        a, b, done = lift(a)[0], lift(b)[0], until
    return -1


@kernel
def _find_two(
    given: _Given, left: int, right: int, left2: int, right2: int, ticks: int, last: int, last2: int, near: int,
    pace: int, a: Message, b: Message, a2: Message, b2: Message, out: Floats,
) -> tuple[bool, Message, Message, Message, Message]:  # fmt: skip
    """`_find` for two sequences; whether no posterior is 0, and the messages beyond."""
    done = 0
    while done < ticks:
        until = min(done + given.every, ticks)
        for i in range(done, until):
            if not (combine(out, left + i, a) and combine(out, right - i, b)):
                return False, a, b, a2, b2
            if not (combine(out, left2 + i, a2) and combine(out, right2 - i, b2)):
                return False, a, b, a2, b2
            prefetch(given.symbols, out, near + pace * i, a)
            a = advance(a, given.forward, given.symbols, min(left + i + 1, last))
            b = advance(b, given.backward, given.symbols, right - i)
            a2 = advance(a2, given.forward, given.symbols, min(left2 + i + 1, last2))
            b2 = advance(b2, given.backward, given.symbols, right2 - i)
        a, b, a2, b2, done = lift(a)[0], lift(b)[0], lift(a2)[0], lift(b2)[0], until
    return True, a, b, a2, b2


@kernel
def _smooth_small(given: _Given, starts: Ints, together: int, unit: Message, out: Floats) -> int:
    """Smooth sequences with k = 2, 3 or 4, one or two together; -1, or a position of impossible evidence.

    Two that are smoothed together do not wait for each other: each one's next step begins while the other's is made.
    """
    sequences = starts.size - 1
    for sequence in range(0, sequences, together):
        low, high, end = starts[sequence], starts[sequence + 1], starts[min(sequence + together, sequences)]
        half, half2, last, last2 = (high - low) // 2, (end - high) // 2, high - 1, end - 1
        both = min(half, half2)
        a, b = message(unit), message(unit)
        a2, b2 = a, b
        if low < high:
            a = lift(first(given.initial, sequence, given.rows, given.symbols[low], unit))[0]
        if high < end:
            a2 = lift(first(given.initial, sequence + 1, given.rows, given.symbols[high], unit))[0]
        a, b, a2, b2 = _leave_two(given, low, last, high, last2, both, a, b, a2, b2, out)
        a, b = _leave(given, low + both, last - both, half - both, a, b, out)
        a2, b2 = _leave(given, high + both, last2 - both, half2 - both, a2, b2, out)
        if (high - low) % 2:
            possible, a, b = _middle(given, low + half, last, a, b, out)
            if not possible:
                return int(low + half)
        if (end - high) % 2:
            possible, a2, b2 = _middle(given, high + half2, last2, a2, b2, out)
            if not possible:
                return int(high + half2)
        left, right, left2, right2 = high - half, low + half - 1, end - half2, high + half2 - 1
        pace = 4 if end - low <= _NEAR else 0
        good, a, b, a2, b2 = _find_two(
            given, left, right, left2, right2, both, last, last2, end, pace, a, b, a2, b2, out
        )
        if not good:
            return int(low)
        near = end + pace * both
        bad = _find(given, left + both, right - both, half - both, last, near, pace, a, b, out)
        if bad < 0:
            bad = _find(given, left2 + both, right2 - both, half2 - both, last2, near, pace, a2, b2, out)
        if bad >= 0:
            return int(bad)
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
        ValueError: bad shapes or distributions, or symbols that no state explains.

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
    out: Floats | None = None,
) -> Floats:
    """Smooth one or many sequences of symbols.

    Args:
        symbols, initial, transition, emission, lengths: as for `filter_beliefs`.
        out: (n, k) float64, C-contiguous, where to put the result; None: a new array.

    Returns:
        (n, k), row t = Pr(X_t | all symbols of its sequence).

    Raises:
        ValueError: bad shapes or distributions, or symbols of probability zero; `out` then holds nothing of use.

    Source: the forward-backward recursions (Rabiner 1989, section III), from both ends at once.
    """
    problem = pose(symbols, initial, transition, emission, lengths)
    k = problem.transition.shape[0]
    shape = problem.symbols.size, k
    if out is None:
        out = np.empty(shape)
    elif not (out.shape == shape and out.dtype == np.float64 and out.flags.c_contiguous):
        raise ValueError(f"out must be a C-contiguous float64 array of shape {shape}")
    given = (problem.symbols, problem.starts, problem.initial, problem.rows)
    if fits_registers(k):
        small = _Given.of(problem), problem.starts
        bad = _smooth_small(*small, 2, (1.0,) * k, out)
        if bad >= 0:  # one after the other, for the place in the first that is impossible
            bad = _smooth_small(*small, 1, (1.0,) * k, out)
    else:
        bad = _backward_wide(*given[:2], problem.rows, np.ascontiguousarray(problem.transition.T), out)
        if bad < 0:
            bad = filter_wide(*given, problem.transition, out, np.empty(problem.starts.size - 1), True)
    if bad >= 0:
        raise impossible(bad)
    return out


@kernel
def _look_ahead_small(given: _Given, starts: Ints, lag: int, unit: Message, out: Floats) -> int:
    """Turn filtered beliefs `out` (n, k), k = 2, 3 or 4, into fixed-lag marginals; -1, or a position."""
    for sequence in range(starts.size - 1):
        high = starts[sequence + 1]
        for t in range(starts[sequence], high):
            b = message(unit)
            later = min(t + lag, high - 1)
            while later > t:
                until = max(later - given.every, t)
                for tick in range(later, until, -1):
                    b = advance(b, given.backward, given.symbols, tick)
                b, later = lift(b)[0], until
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

    For a window in the middle of a stream, `initial` is the distribution of the window's first tick:
    `predict(belief, transition)` with the filtered belief of the tick before the window.

    Args:
        symbols, initial, transition, emission, lengths: as for `filter_beliefs`.
        lag: ticks to look ahead, at least 0; the last ticks of a sequence use what there is.

    Returns:
        (n, k), row t = Pr(X_t | symbols up to t + lag).

    Raises:
        ValueError: bad shapes or distributions, a negative lag, or symbols of probability zero.
    """
    if lag < 0:
        raise ValueError(f"lag is {lag}; it must be at least 0 ticks")
    problem = pose(symbols, initial, transition, emission, lengths)
    k = problem.transition.shape[0]
    out = run_filter(problem).beliefs
    reach = min(lag, problem.symbols.size)
    if fits_registers(k):
        bad = _look_ahead_small(_Given.of(problem), problem.starts, reach, (1.0,) * k, out)
    else:
        reverse = np.ascontiguousarray(problem.transition.T)
        bad = _look_ahead_wide(problem.symbols, problem.starts, reach, problem.rows, reverse, out)
    if bad >= 0:
        raise impossible(bad)
    return out
