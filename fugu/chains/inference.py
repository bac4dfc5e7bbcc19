"""Filtering, smoothing and decoding of sequences of symbols.

Forward and backward messages do not depend on each other, so one loop computes both from the two ends, and the
processor waits less. Until they meet, both are stored in the result; then each meets the other's, and replaces them by
posteriors.
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
    begin,
    combine,
    condition_on,
    lift,
    lift_row,
    normalise_row,
    predict_and_condition,
    scale,
    store,
)
from fugu.chains.model import Problem, check_distribution, check_transition, problem_of, refuse_impossible

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
"""The most ticks from one lift of messages to the next, and the most bits that messages may lose in between."""


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
    symbols: Ints, starts: Ints, initial: Floats, likelihoods: Floats, table: Floats, unit_message: Message,
    beliefs: Floats, log_likelihoods: Floats,
) -> int:  # fmt: skip
    """Filter sequences with k = 2, 3 or 4. Return the position of impossible evidence, or -1."""
    for sequence in range(starts.size - 1):
        start, end = starts[sequence], starts[sequence + 1]
        if start == end:
            log_likelihoods[sequence] = 0.0
            continue
        message, mass, lifts = lift(begin(initial, sequence, likelihoods, symbols[start], unit_message))
        if mass == 0.0:
            return int(start)
        store(beliefs, start, scale(message, 1.0 / mass))
        for t in range(start + 1, end):
            message, mass, new_lifts = lift(predict_and_condition(message, table, symbols, t))
            lifts += new_lifts
            if mass == 0.0:
                return int(t)
            store(beliefs, t, scale(message, 1.0 / mass))
        log_likelihoods[sequence] = np.log(mass) - lifts * _LOG_LIFT
    return -1


@kernel
def _filter_wide(
    symbols: Ints, starts: Ints, initial: Floats, likelihoods: Floats, transition: Floats, beliefs: Floats,
    log_likelihoods: Floats, is_smoother: bool,
) -> int:  # fmt: skip
    """Filter sequences with any k. With `is_smoother`, turn backward messages in `beliefs` (n, k) into posteriors.

    Returns the position of impossible evidence, or -1.
    """
    k = transition.shape[0]
    messages = np.empty((2, k))
    for sequence in range(starts.size - 1):
        row, mass, lifts = 0, 1.0, 0
        for j in range(k):
            messages[row, j] = initial[sequence, j]
        for t in range(starts[sequence], starts[sequence + 1]):
            mass, new_lifts = lift_row(messages, row, condition_on(messages, row, likelihoods, symbols[t]))
            lifts += new_lifts
            if mass == 0.0:
                return int(t)
            if not is_smoother:
                for j in range(k):
                    beliefs[t, j] = messages[row, j] / mass
            elif not _normalise_product(beliefs, t, messages, row):
                return int(t)
            _predict_row(messages, row, 1 - row, transition)
            row = 1 - row
        log_likelihoods[sequence] = np.log(mass) - lifts * _LOG_LIFT
    return -1


def run_filter(problem: Problem) -> Filtered:
    """Filter a checked problem. Raises ValueError for symbols of probability zero."""
    k = problem.transition.shape[0]
    beliefs = np.empty((problem.symbols.size, k))
    log_likelihoods = np.empty(problem.starts.size - 1)
    sequences = (problem.symbols, problem.starts, problem.initial, problem.likelihoods)
    if _fits_registers(k):
        bad_tick = _filter_small(*sequences, _step_tables(problem)[0], (1.0,) * k, beliefs, log_likelihoods)
    else:
        bad_tick = _filter_wide(*sequences, problem.transition, beliefs, log_likelihoods, False)
    refuse_impossible(bad_tick)
    return Filtered(beliefs, log_likelihoods)


def filter_beliefs(
    symbols: ArrayLike,
    initial: ArrayLike,
    transition: ArrayLike,
    emission: ArrayLike,
    *,
    lengths: ArrayLike | None = None,
) -> Filtered:
    """Return the filtered beliefs (n, k) and log-likelihoods (sequences,), in nats, of sequences of symbols.

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
    return run_filter(problem_of(symbols, initial, transition, emission, lengths))


def predict(belief: ArrayLike, transition: ArrayLike, ticks: int = 1) -> Floats:
    """Predict beliefs (..., k) after unobserved ticks; ValueError for bad shapes or distributions, or ticks below 0."""
    matrix = check_transition(transition)
    distribution = check_distribution(belief, "belief", matrix.shape[0])
    if ticks < 0:
        raise ValueError(f"cannot predict {ticks} ticks ahead; ticks must be at least 0")
    predicted = distribution @ np.linalg.matrix_power(matrix, ticks)
    return np.asarray(predicted / predicted.sum(axis=-1, keepdims=True), dtype=np.float64)


class _Inputs(NamedTuple):
    """Inputs of messages over 2, 3 or 4 states.

    Symbols (n,) are in -1..m-1; `initial` is (sequences, k); `likelihoods` (m + 1, k) have those of an unobserved tick
    last; `forward` and `backward` (m + 1, k, k) are from `_step_tables`; messages are lifted every `lift_stride` ticks.
    """

    symbols: Ints
    initial: Floats
    likelihoods: Floats
    forward: Floats
    backward: Floats
    lift_stride: int

    @classmethod
    def of(cls, problem: Problem) -> Self:
        forward, backward = _step_tables(problem)
        min_share = min(forward.sum(axis=2).min(), backward.sum(axis=2).min())  # of a message's sum after a tick
        bits_per_tick = -log2(min_share) if min_share > 0.0 else _BITS
        lift_stride = max(int(min(_BITS / bits_per_tick, _MOST)), 1) if bits_per_tick > 0.0 else _MOST
        return cls(problem.symbols, problem.initial, problem.likelihoods, forward, backward, lift_stride)


def _step_tables(problem: Problem) -> tuple[Floats, Floats]:
    """Return the matrices Pr(next state, symbol | state) of every symbol, and their transposes.

    The first matrix is that of an unobserved tick: the transition alone.
    """
    forward = problem.transition[None, :, :] * np.roll(problem.likelihoods, 1, axis=0)[:, None, :]
    return np.ascontiguousarray(forward), np.ascontiguousarray(forward.transpose(0, 2, 1))


@part
def _store_messages(
    inputs: _Inputs, left: int, right: int, ticks: int, a: Message, b: Message, messages: Floats
) -> tuple[Message, Message]:
    """Store forward messages, `a` first, from tick `left` on, and backward messages, `b` first, from `right` back.

    Returns both messages after `ticks` steps.
    """
    done_ticks = 0
    while done_ticks < ticks:
        block_end = min(done_ticks + inputs.lift_stride, ticks)
        for i in range(done_ticks, block_end):
            store(messages, left + i, a)
            store(messages, right - i, b)
            a = predict_and_condition(a, inputs.forward, inputs.symbols, left + i + 1)
            b = predict_and_condition(b, inputs.backward, inputs.symbols, right - i)
        a, b, done_ticks = lift(a)[0], lift(b)[0], block_end
    return a, b


@part
def _combine_middle(
    inputs: _Inputs, middle_tick: int, last_tick: int, a: Message, b: Message, messages: Floats
) -> tuple[bool, Message, Message]:  # fmt: skip
    """Store the posterior of the tick where both messages meet; return whether it is above 0, and the next messages."""
    store(messages, middle_tick, a)
    is_possible = combine(messages, middle_tick, b)
    a = predict_and_condition(a, inputs.forward, inputs.symbols, min(middle_tick + 1, last_tick))
    return is_possible, a, predict_and_condition(b, inputs.backward, inputs.symbols, middle_tick)


@part
def _combine_messages(
    inputs: _Inputs, left: int, right: int, ticks: int, last_tick: int, a: Message, b: Message, messages: Floats
) -> int:
    """Turn stored messages of `ticks` ticks to each side into posteriors. Return a position where one is 0, or -1."""
    done_ticks = 0
    while done_ticks < ticks:
        block_end = min(done_ticks + inputs.lift_stride, ticks)
        for i in range(done_ticks, block_end):
            if not (combine(messages, left + i, a) and combine(messages, right - i, b)):
                return left + i
            a = predict_and_condition(a, inputs.forward, inputs.symbols, min(left + i + 1, last_tick))
            b = predict_and_condition(b, inputs.backward, inputs.symbols, right - i)
        a, b, done_ticks = lift(a)[0], lift(b)[0], block_end
    return -1


@kernel
def _smooth_small(inputs: _Inputs, starts: Ints, unit_message: Message, marginals: Floats) -> int:
    """Smooth sequences, k = 2, 3 or 4, by messages `a` forward and `b` backward. Return a bad position, or -1."""
    for sequence in range(starts.size - 1):
        start, end = starts[sequence], starts[sequence + 1]
        if start == end:
            continue
        half, last_tick = (end - start) // 2, end - 1
        a = lift(begin(inputs.initial, sequence, inputs.likelihoods, inputs.symbols[start], unit_message))[0]
        a, b = _store_messages(inputs, start, last_tick, half, a, unit_message, marginals)
        if (end - start) % 2:
            is_possible, a, b = _combine_middle(inputs, start + half, last_tick, a, b, marginals)
            if not is_possible:
                return int(start + half)
        bad_tick = _combine_messages(inputs, end - half, start + half - 1, half, last_tick, a, b, marginals)
        if bad_tick >= 0:
            return int(bad_tick)
    return -1


@kernel
def _backward_wide(symbols: Ints, starts: Ints, likelihoods: Floats, backward: Floats, messages: Floats) -> int:
    """Fill backward messages (n, k) with any k, each of sum 1. Return the position of a message of zeros, or -1."""
    k = likelihoods.shape[1]
    message_rows = np.empty((2, k))
    for sequence in range(starts.size - 1):
        row = 0
        for j in range(k):
            message_rows[row, j] = 1.0
        for t in range(starts[sequence + 1] - 1, starts[sequence] - 1, -1):
            for j in range(k):
                messages[t, j] = message_rows[row, j]
            if not normalise_row(messages, t):
                return int(t)
            lift_row(message_rows, row, condition_on(message_rows, row, likelihoods, symbols[t]))
            _predict_row(message_rows, row, 1 - row, backward)
            row = 1 - row
    return -1


def backward_messages(symbols: ArrayLike, transition: ArrayLike, emission: ArrayLike) -> Floats:
    """Return backward messages (n, k): row t is proportional to Pr(symbols after t | X_t = x), with sum 1.

    Arguments are as for `filter_beliefs`. Raises ValueError for bad arguments, or impossible symbols after the first.

    Source: the backward recursion (Rabiner 1989, section III).
    """
    k = np.shape(transition)[0] if np.ndim(transition) else 0
    problem = problem_of(symbols, np.full(max(k, 1), 1.0 / max(k, 1)), transition, emission, None)
    messages = np.empty((problem.symbols.size, k))
    bad_tick = _backward_wide(*problem[:2], problem.likelihoods, np.ascontiguousarray(problem.transition.T), messages)
    refuse_impossible(bad_tick)
    return messages


def posterior_marginals(
    symbols: ArrayLike,
    initial: ArrayLike,
    transition: ArrayLike,
    emission: ArrayLike,
    *,
    lengths: ArrayLike | None = None,
) -> Floats:
    """Return the smoothed beliefs (n, k) of sequences: row t = Pr(X_t | all symbols of its sequence).

    Arguments and errors are as for `filter_beliefs`.

    Source: the forward-backward recursions (Rabiner 1989, section III), from both ends at once.
    """
    problem = problem_of(symbols, initial, transition, emission, lengths)
    k = problem.transition.shape[0]
    marginals = np.empty((problem.symbols.size, k))
    if _fits_registers(k):
        bad_tick = _smooth_small(_Inputs.of(problem), problem.starts, (1.0,) * k, marginals)
    else:
        stream, starts, initial_rows, matrix, likelihoods = problem
        bad_tick = _backward_wide(stream, starts, likelihoods, np.ascontiguousarray(matrix.T), marginals)
        if bad_tick < 0:
            log_likelihoods = np.empty(starts.size - 1)
            bad_tick = _filter_wide(stream, starts, initial_rows, likelihoods, matrix, marginals, log_likelihoods, True)
    refuse_impossible(bad_tick)
    return marginals


@kernel
def _look_ahead_small(inputs: _Inputs, starts: Ints, lag: int, unit_message: Message, marginals: Floats) -> int:
    """Turn filtered beliefs `marginals` (n, k), k = 2, 3 or 4, into fixed-lag beliefs. Return a bad position, or -1."""
    for sequence in range(starts.size - 1):
        end = starts[sequence + 1]
        for t in range(starts[sequence], end):
            message = unit_message
            later_tick = min(t + lag, end - 1)
            while later_tick > t:
                block_end = max(later_tick - inputs.lift_stride, t)
                for tick in range(later_tick, block_end, -1):
                    message = predict_and_condition(message, inputs.backward, inputs.symbols, tick)
                message, later_tick = lift(message)[0], block_end
            if not combine(marginals, t, message):
                return int(t)
    return -1


@kernel
def _look_ahead_wide(
    symbols: Ints, starts: Ints, lag: int, likelihoods: Floats, backward: Floats, marginals: Floats
) -> int:
    """Turn filtered beliefs `marginals` (n, k), any k, into fixed-lag beliefs. Return a bad position, or -1."""
    k = likelihoods.shape[1]
    messages = np.empty((2, k))
    for sequence in range(starts.size - 1):
        end = starts[sequence + 1]
        for t in range(starts[sequence], end):
            row = 0
            for j in range(k):
                messages[row, j] = 1.0
            for later_tick in range(min(t + lag, end - 1), t, -1):
                lift_row(messages, row, condition_on(messages, row, likelihoods, symbols[later_tick]))
                _predict_row(messages, row, 1 - row, backward)
                row = 1 - row
            if not _normalise_product(marginals, t, messages, row):
                return int(t)
    return -1


def fixed_lag_marginals(
    symbols: ArrayLike, initial: ArrayLike, transition: ArrayLike, emission: ArrayLike, lag: int
) -> Floats:
    """Return the beliefs (n, k) of every tick given symbols up to `lag` >= 0 ticks later, exactly, in O(n lag k^2).

    Row t of the result (n, k) is Pr(X_t | symbols up to t + lag); the last ticks use all symbols after them.
    Arguments and errors are as for `filter_beliefs`. In the middle of a stream, `initial` is the distribution of the
    window's first tick: `predict(belief, transition)` with the filtered belief of the tick before the window.
    """
    if lag < 0:
        raise ValueError(f"lag is {lag}; it must be at least 0 ticks")
    problem = problem_of(symbols, initial, transition, emission, None)
    k = problem.transition.shape[0]
    marginals = run_filter(problem).beliefs
    bounded_lag = min(lag, problem.symbols.size)
    if _fits_registers(k):
        bad_tick = _look_ahead_small(_Inputs.of(problem), problem.starts, bounded_lag, (1.0,) * k, marginals)
    else:
        backward, likelihoods = np.ascontiguousarray(problem.transition.T), problem.likelihoods
        bad_tick = _look_ahead_wide(problem.symbols, problem.starts, bounded_lag, likelihoods, backward, marginals)
    refuse_impossible(bad_tick)
    return marginals


def _fits_registers(states: int) -> bool:
    """Return True if kernels hold a message over `states` states in a tuple."""
    return 2 <= states <= 4


@part
def _predict_row(messages: Floats, source: int, target: int, matrix: Floats) -> None:
    """Set row `target` of `messages` (rows, k) to row `source` times `matrix` (k, k)."""
    k = matrix.shape[0]
    weight = messages[source, 0]
    for j in range(k):
        messages[target, j] = weight * matrix[0, j]
    for i in range(1, k):
        weight = messages[source, i]
        for j in range(k):  # along rows: a sum over columns would not vectorise
            messages[target, j] += weight * matrix[i, j]


@part
def _normalise_product(marginals: Floats, t: int, messages: Floats, row: int) -> bool:
    """Multiply row t of `marginals` (n, k) by a row of `messages`, to sum 1; return False if the product is 0."""
    condition_on(marginals, t, messages, row)
    return normalise_row(marginals, t)


@kernel
def _decode(
    symbols: Ints, starts: Ints, initial: Floats, transition: Floats, likelihoods: Floats,
    previous_states: NDArray[np.int32], states: Ints,
) -> int:  # fmt: skip
    """Fill Viterbi paths; all tables are logarithms. Return the first tick of an impossible sequence, or -1."""
    k = transition.shape[0]
    score = np.empty((2, k))
    for sequence in range(starts.size - 1):
        start, end = starts[sequence], starts[sequence + 1]
        if start == end:
            continue
        row = 0
        for j in range(k):
            score[row, j] = initial[sequence, j] + likelihoods[symbols[start], j]
        for t in range(start + 1, end):
            for j in range(k):
                best_score, best_state = score[row, 0] + transition[0, j], 0
                for i in range(1, k):
                    candidate = score[row, i] + transition[i, j]
                    if candidate > best_score:  # strictly: of equals, the lowest state
                        best_score, best_state = candidate, i
                score[1 - row, j] = best_score + likelihoods[symbols[t], j]
                previous_states[t, j] = best_state
            row = 1 - row
        state = 0
        for j in range(1, k):
            if score[row, j] > score[row, state]:
                state = j
        if score[row, state] == -np.inf:
            return int(start)
        states[end - 1] = state
        for t in range(end - 1, start, -1):
            state = previous_states[t, state]
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
    """Return the most probable state paths (n,) of sequences; of equally good states the lowest is chosen.

    Arguments and errors are as for `filter_beliefs`.

    Source: the Viterbi recursion (Rabiner 1989, section III.B), in logarithms.
    """
    problem = problem_of(symbols, initial, transition, emission, lengths)
    k = problem.transition.shape[0]
    n = problem.symbols.size
    with np.errstate(divide="ignore"):
        log_tables = np.log(problem.initial), np.log(problem.transition), np.log(problem.likelihoods)
    states = np.empty(n, dtype=np.int64)
    bad_tick = _decode(problem.symbols, problem.starts, *log_tables, np.empty((n, k), dtype=np.int32), states)
    refuse_impossible(bad_tick)
    return states
