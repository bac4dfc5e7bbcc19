"""Filtering, smoothing and decoding of sequences of symbols.

Forward and backward messages do not depend on each other, so one loop carries both from the two ends, each hiding the
other's waiting. Until they meet, both are left in the result; after, each replaces the other's by the posterior.
"""

from __future__ import annotations

from math import log, log2
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fugu.chains.arrays import Floats, Ints
from fugu.chains.kernel import kernel, part
from fugu.chains.messages import (
    LIFT,
    Message,
    combine,
    condition_on,
    first,
    lift,
    lift_row,
    predict_and_condition,
    scaled,
    store,
)
from fugu.chains.model import Problem, check_distribution, check_transition, pose, refuse_impossible

__all__ = [
    "backward_messages",
    "filter_beliefs",
    "fixed_lag_marginals",
    "posterior_marginals",
    "predict",
    "run_filter",
    "viterbi",
]


_LOG_LIFT = log(LIFT)
_MOST, _BITS = 16, 132.0
"""Messages are lifted after at most so many ticks, and before they can have lost so many bits since the last time."""


class Filtered(NamedTuple):
    """Filtered beliefs (n, k), row t = Pr(X_t | symbols up to t), and log-likelihoods (sequences,), in nats."""

    beliefs: Floats
    log_likelihoods: Floats

    @property
    def log_likelihood(self) -> float:
        """Log-likelihood of all sequences together, in nats."""
        return float(self.log_likelihoods.sum())


@kernel
def _filter_small(
    symbols: Ints, starts: Ints, initial: Floats, rows: Floats, table: Floats, unit: Message, beliefs: Floats,
    log_likelihoods: Floats,
) -> int:  # fmt: skip
    """Filter sequences with k = 2, 3 or 4; returns the position of impossible evidence, or -1."""
    for sequence in range(starts.size - 1):
        low, high = starts[sequence], starts[sequence + 1]
        if low == high:
            log_likelihoods[sequence] = 0.0
            continue
        a, mass, lifts = lift(first(initial, sequence, rows, symbols[low], unit))
        if mass == 0.0:
            return int(low)
        store(beliefs, low, scaled(a, 1.0 / mass))
        for t in range(low + 1, high):
            a, mass, more = lift(predict_and_condition(a, table, symbols, t))
            lifts += more
            if mass == 0.0:
                return int(t)
            store(beliefs, t, scaled(a, 1.0 / mass))
        log_likelihoods[sequence] = np.log(mass) - lifts * _LOG_LIFT
    return -1


@kernel
def _filter_wide(
    symbols: Ints, starts: Ints, initial: Floats, rows: Floats, transition: Floats, beliefs: Floats,
    log_likelihoods: Floats, smooth: bool,
) -> int:  # fmt: skip
    """Filter sequences with any k, or smooth them, `beliefs` (n, k) being backward messages; -1, or a position."""
    k = transition.shape[0]
    work = np.empty((2, k))
    for sequence in range(starts.size - 1):
        log_likelihoods[sequence] = 0.0
        now, mass, lifts = 0, 1.0, 0
        for t in range(starts[sequence], starts[sequence + 1]):
            if t == starts[sequence]:
                for j in range(k):
                    work[now, j] = initial[sequence, j]
            else:
                _predict_row(work, now, 1 - now, transition)
                now = 1 - now
            mass, more = lift_row(work, now, condition_on(work, now, rows, symbols[t]))
            lifts += more
            if mass == 0.0:
                return int(t)
            if not smooth:
                for j in range(k):
                    beliefs[t, j] = work[now, j] / mass
            elif not _normalise_product(beliefs, t, work, now):
                return int(t)
        log_likelihoods[sequence] = np.log(mass) - lifts * _LOG_LIFT
    return -1


def run_filter(problem: Problem) -> Filtered:
    """Filter a checked problem, for `filter_beliefs` and the learner; ValueError for symbols of probability zero."""
    k = problem.transition.shape[0]
    beliefs = np.empty((problem.symbols.size, k))
    logs = np.empty(problem.starts.size - 1)
    arrays = (problem.symbols, problem.starts, problem.initial, problem.rows)
    if _fits_registers(k):
        bad = _filter_small(*arrays, _step_tables(problem)[0], (1.0,) * k, beliefs, logs)
    else:
        bad = _filter_wide(*arrays, problem.transition, beliefs, logs, False)
    refuse_impossible(bad)
    return Filtered(beliefs, logs)


def filter_beliefs(
    symbols: ArrayLike,
    initial: ArrayLike,
    transition: ArrayLike,
    emission: ArrayLike,
    *,
    lengths: ArrayLike | None = None,
) -> Filtered:
    """Filter one or many sequences of symbols: beliefs (n, k) and log-likelihoods (sequences,), in nats.

    Args:
        symbols: (n,) integers in -1..m-1, -1 for an unobserved tick; sequences one after the other.
        initial: (k,) distribution of the first tick, or (sequences, k).
        transition: (k, k) row-stochastic.
        emission: (k, m), Pr(symbol | state).
        lengths: (sequences,) ticks in each sequence; `None` for a single one.

    Raises:
        ValueError: bad shapes or distributions, or symbols of probability zero.

    Source: the forward recursion (Rabiner 1989, section III), rescaled by powers of two only.
    """
    return run_filter(pose(symbols, initial, transition, emission, lengths))


def predict(belief: ArrayLike, transition: ArrayLike, ticks: int = 1) -> Floats:
    """Carry beliefs (..., k) over unobserved ticks; ValueError for bad shapes or distributions, or negative ticks."""
    matrix = check_transition(transition)
    distribution = check_distribution(belief, "belief", matrix.shape[0])
    if ticks < 0:
        raise ValueError(f"cannot predict {ticks} ticks ahead; ticks must be at least 0")
    later = distribution @ np.linalg.matrix_power(matrix, ticks)
    return np.asarray(later / later.sum(axis=-1, keepdims=True), dtype=np.float64)


class _Inputs(NamedTuple):
    """Inputs of messages over 2, 3 or 4 states.

    Symbols (n,) are in -1..m-1; `initial` is (sequences, k); `rows` (m + 1, k) are likelihoods, those of an unobserved
    tick last; `forward` and `backward` (m + 1, k, k) are from `step_tables`; sizes are checked after `every` ticks.
    """

    symbols: Ints
    initial: Floats
    rows: Floats
    forward: Floats
    backward: Floats
    every: int

    @classmethod
    def of(cls, problem: Problem) -> Self:
        forward, backward = _step_tables(problem)
        least = min(forward.sum(axis=2).min(), backward.sum(axis=2).min())  # of its sum, a message keeps at a tick
        loss = -log2(least) if least > 0.0 else _BITS
        every = max(int(min(_BITS / loss, _MOST)), 1) if loss > 0.0 else _MOST
        return cls(problem.symbols, problem.initial, problem.rows, forward, backward, every)


def _step_tables(problem: Problem) -> tuple[Floats, Floats]:
    """The matrices Pr(next state, symbol | state) of every symbol for `predict_and_condition`, and their transposes.

    The first is that of an unobserved tick: the transition alone.
    """
    forward = problem.transition[None, :, :] * np.roll(problem.rows, 1, axis=0)[:, None, :]
    return np.ascontiguousarray(forward), np.ascontiguousarray(forward.transpose(0, 2, 1))


@part
def _store_messages(
    inputs: _Inputs, left: int, right: int, ticks: int, a: Message, b: Message, out: Floats
) -> tuple[Message, Message]:
    """Store the forward message `a` from `left` on and the backward one `b` from `right` back; returns the next."""
    done = 0
    while done < ticks:
        until = min(done + inputs.every, ticks)
        for i in range(done, until):
            store(out, left + i, a)
            store(out, right - i, b)
            a = predict_and_condition(a, inputs.forward, inputs.symbols, left + i + 1)
            b = predict_and_condition(b, inputs.backward, inputs.symbols, right - i)
        a, b, done = lift(a)[0], lift(b)[0], until
    return a, b


@part
def _middle(
    inputs: _Inputs, middle: int, last: int, a: Message, b: Message, out: Floats
) -> tuple[bool, Message, Message]:  # fmt: skip
    """The posterior of the tick at which both messages are, and the messages beyond it; whether it is not 0."""
    store(out, middle, a)
    possible = combine(out, middle, b)
    a = predict_and_condition(a, inputs.forward, inputs.symbols, min(middle + 1, last))
    return possible, a, predict_and_condition(b, inputs.backward, inputs.symbols, middle)


@part
def _combine_messages(
    inputs: _Inputs, left: int, right: int, ticks: int, last: int, a: Message, b: Message, out: Floats
) -> int:
    """Turn stored messages of so many ticks to each side into posteriors; -1, or a position where one would be 0."""
    done = 0
    while done < ticks:
        until = min(done + inputs.every, ticks)
        for i in range(done, until):
            if not (combine(out, left + i, a) and combine(out, right - i, b)):
                return left + i
            a = predict_and_condition(a, inputs.forward, inputs.symbols, min(left + i + 1, last))
            b = predict_and_condition(b, inputs.backward, inputs.symbols, right - i)
        a, b, done = lift(a)[0], lift(b)[0], until
    return -1


@kernel
def _smooth_small(inputs: _Inputs, starts: Ints, unit: Message, out: Floats) -> int:
    """Smooth sequences with k = 2, 3 or 4; -1, or a position of impossible evidence."""
    for sequence in range(starts.size - 1):
        low, high = starts[sequence], starts[sequence + 1]
        if low == high:
            continue
        half, last = (high - low) // 2, high - 1
        a, b = lift(first(inputs.initial, sequence, inputs.rows, inputs.symbols[low], unit))[0], unit
        a, b = _store_messages(inputs, low, last, half, a, b, out)
        if (high - low) % 2:
            possible, a, b = _middle(inputs, low + half, last, a, b, out)
            if not possible:
                return int(low + half)
        bad = _combine_messages(inputs, high - half, low + half - 1, half, last, a, b, out)
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
                lift_row(work, 0, condition_on(work, 0, rows, symbols[t + 1]))
                _predict_row(work, 0, 1, reverse)
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
) -> Floats:
    """Messages (n, k): row t is proportional to Pr(symbols after t | X_t = x), with sum 1.

    Arguments are as for `filter_beliefs`. Raises ValueError for bad arguments, or symbols that no state explains.

    Source: the backward recursion (Rabiner 1989, section III).
    """
    k = np.shape(transition)[0] if np.ndim(transition) else 0
    problem = pose(symbols, np.full(max(k, 1), 1.0 / max(k, 1)), transition, emission, None)
    out = np.empty((problem.symbols.size, k))
    bad = _backward_wide(*problem[:2], problem.rows, np.ascontiguousarray(problem.transition.T), out)
    refuse_impossible(bad)
    return out


def posterior_marginals(
    symbols: ArrayLike,
    initial: ArrayLike,
    transition: ArrayLike,
    emission: ArrayLike,
    *,
    lengths: ArrayLike | None = None,
) -> Floats:
    """Smooth one or many sequences: (n, k), row t = Pr(X_t | all symbols of its sequence).

    Arguments and errors are as for `filter_beliefs`.

    Source: the forward-backward recursions (Rabiner 1989, section III), from both ends at once.
    """
    problem = pose(symbols, initial, transition, emission, lengths)
    k = problem.transition.shape[0]
    out = np.empty((problem.symbols.size, k))
    arrays = (problem.symbols, problem.starts, problem.initial, problem.rows)
    if _fits_registers(k):
        bad = _smooth_small(_Inputs.of(problem), problem.starts, (1.0,) * k, out)
    else:
        bad = _backward_wide(*arrays[:2], problem.rows, np.ascontiguousarray(problem.transition.T), out)
        if bad < 0:
            bad = _filter_wide(*arrays, problem.transition, out, np.empty(problem.starts.size - 1), True)
    refuse_impossible(bad)
    return out


@kernel
def _look_ahead_small(inputs: _Inputs, starts: Ints, lag: int, unit: Message, out: Floats) -> int:
    """Turn filtered beliefs `out` (n, k), k = 2, 3 or 4, into fixed-lag marginals; -1, or a position."""
    for sequence in range(starts.size - 1):
        high = starts[sequence + 1]
        for t in range(starts[sequence], high):
            b = unit
            later = min(t + lag, high - 1)
            while later > t:
                until = max(later - inputs.every, t)
                for tick in range(later, until, -1):
                    b = predict_and_condition(b, inputs.backward, inputs.symbols, tick)
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
                lift_row(work, now, condition_on(work, now, rows, symbols[later]))
                _predict_row(work, now, 1 - now, reverse)
                now = 1 - now
            if not _normalise_product(out, t, work, now):
                return int(t)
    return -1


def fixed_lag_marginals(
    symbols: ArrayLike,
    initial: ArrayLike,
    transition: ArrayLike,
    emission: ArrayLike,
    lag: int,
) -> Floats:
    """Smooth every tick with the symbols up to `lag` >= 0 ticks after it, exactly, in O(n lag k^2).

    Row t of the result (n, k) is Pr(X_t | symbols up to t + lag); the last ticks of a sequence use what there is.
    Arguments and errors are as for `filter_beliefs`. In the middle of a stream, `initial` is the distribution of the
    window's first tick: `predict(belief, transition)` with the filtered belief of the tick before the window.
    """
    if lag < 0:
        raise ValueError(f"lag is {lag}; it must be at least 0 ticks")
    problem = pose(symbols, initial, transition, emission, None)
    k = problem.transition.shape[0]
    out = run_filter(problem).beliefs
    reach = min(lag, problem.symbols.size)
    if _fits_registers(k):
        bad = _look_ahead_small(_Inputs.of(problem), problem.starts, reach, (1.0,) * k, out)
    else:
        reverse = np.ascontiguousarray(problem.transition.T)
        bad = _look_ahead_wide(problem.symbols, problem.starts, reach, problem.rows, reverse, out)
    refuse_impossible(bad)
    return out


def _fits_registers(states: int) -> bool:
    """True if a message over this many states is a tuple."""
    return 2 <= states <= 4


@part
def _predict_row(work: Floats, source: int, target: int, matrix: Floats) -> None:
    """Set row `target` of `work` (rows, k) to row `source` times `matrix` (k, k)."""
    k = matrix.shape[0]
    weight = work[source, 0]
    for j in range(k):
        work[target, j] = weight * matrix[0, j]
    for i in range(1, k):
        weight = work[source, i]
        for j in range(k):  # along rows: a sum over columns would not vectorise
            work[target, j] += weight * matrix[i, j]


@part
def _normalise_product(out: Floats, t: int, work: Floats, row: int) -> bool:
    """Multiply row t of `out` (n, k) by a row of `work` (rows, k) and normalise; False if the product is 0."""
    k = out.shape[1]
    mass = 0.0
    for j in range(k):
        out[t, j] *= work[row, j]
        mass += out[t, j]
    if mass == 0.0:
        return False
    for j in range(k):
        out[t, j] /= mass
    return True


@kernel
def _decode(
    symbols: Ints, starts: Ints, initial: Floats, transition: Floats, rows: Floats,
    came_from: NDArray[np.int32], states: Ints,
) -> int:  # fmt: skip
    """Viterbi paths, all tables as logarithms; returns the position of impossible evidence, or -1."""
    k = transition.shape[0]
    score = np.empty((2, k))
    for sequence in range(starts.size - 1):
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
) -> Ints:
    """Most probable state path (n,) of sequences; of equals, the lowest state at each choice.

    Arguments and errors are as for `filter_beliefs`.

    Source: the Viterbi recursion (Rabiner 1989, section III.B), in logarithms.
    """
    problem = pose(symbols, initial, transition, emission, lengths)
    k = problem.transition.shape[0]
    n = problem.symbols.size
    with np.errstate(divide="ignore"):
        tables = np.log(problem.initial), np.log(problem.transition), np.log(problem.rows)
    states = np.empty(n, dtype=np.int64)
    bad = _decode(problem.symbols, problem.starts, *tables, np.empty((n, k), dtype=np.int32), states)
    refuse_impossible(bad)
    return states
