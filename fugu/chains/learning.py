"""Learning a chain from sanitised symbols; the emission table is known from the policy."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from fugu.chains.arrays import Floats, Ints
from fugu.chains.inference import run_filter
from fugu.chains.kernel import kernel
from fugu.chains.messages import LIFT, TINY, condition_on, lift_row
from fugu.chains.model import Problem, check_distribution, check_emission, check_transition, problem_of

__all__ = ["ExpectedCounts", "LearnedChain", "baum_welch", "expectations"]


class LearnedChain(NamedTuple):
    """A fitted chain; `log_likelihoods` (iterations,) are those of each iteration, in nats, the last of this chain."""

    transition: Floats
    initial: Floats
    log_likelihoods: Floats


class ExpectedCounts(NamedTuple):
    """The log-likelihood of a chain, and expected counts of first states (k,) and of moves (k, k) between states."""

    log_likelihood: float
    first: Floats
    moves: Floats


@kernel
def _expect_two(
    symbols: Ints, starts: Ints, beliefs: Floats, transition: Floats, likelihoods: Floats, first_states: Floats,
    moves: Floats,
) -> None:  # fmt: skip
    """Add the expected first states (2,) and moves (2, 2), for k = 2, from filtered beliefs (n, 2)."""
    p00, p01, p10, p11 = transition[0, 0], transition[0, 1], transition[1, 0], transition[1, 1]
    m00 = m01 = m10 = m11 = 0.0
    for sequence in range(starts.size - 1):
        start, end = starts[sequence], starts[sequence + 1]
        if start == end:
            continue
        b0 = b1 = 1.0
        for t in range(end - 1, start, -1):
            w0, w1 = b0 * likelihoods[symbols[t], 0], b1 * likelihoods[symbols[t], 1]
            b0, b1 = p00 * w0 + p01 * w1, p10 * w0 + p11 * w1
            a0, a1 = beliefs[t - 1, 0], beliefs[t - 1, 1]
            scale = 1.0 / (a0 * b0 + a1 * b1)
            a0, a1 = a0 * scale, a1 * scale
            m00, m01, m10, m11 = m00 + a0 * w0, m01 + a0 * w1, m10 + a1 * w0, m11 + a1 * w1
            while 0.0 < b0 + b1 < TINY:
                b0, b1 = b0 * LIFT, b1 * LIFT
        a0, a1 = beliefs[start, 0] * b0, beliefs[start, 1] * b1
        first_states[0] += a0 / (a0 + a1)
        first_states[1] += a1 / (a0 + a1)
    moves[0, 0], moves[0, 1] = m00 * p00, m01 * p01
    moves[1, 0], moves[1, 1] = m10 * p10, m11 * p11


@kernel
def _expect(
    symbols: Ints, starts: Ints, beliefs: Floats, transition: Floats, likelihoods: Floats, first_states: Floats,
    moves: Floats,
) -> None:  # fmt: skip
    """Add the expected first states (k,) and moves (k, k), from filtered beliefs (n, k)."""
    k = transition.shape[0]
    messages = np.empty((2, k))  # row 0: the weighted message of a tick, row 1: the message of the tick before
    for sequence in range(starts.size - 1):
        start, end = starts[sequence], starts[sequence + 1]
        if start == end:
            continue
        for i in range(k):
            messages[1, i] = 1.0
        for t in range(end - 1, start, -1):
            for i in range(k):
                messages[0, i] = messages[1, i]
            lift_row(messages, 0, condition_on(messages, 0, likelihoods, symbols[t]))
            mass = 0.0
            for i in range(k):
                messages[1, i] = 0.0
                for j in range(k):
                    messages[1, i] += transition[i, j] * messages[0, j]
                mass += beliefs[t - 1, i] * messages[1, i]
            for i in range(k):
                weight = beliefs[t - 1, i] / mass
                for j in range(k):
                    moves[i, j] += weight * messages[0, j]
        mass = 0.0
        for i in range(k):
            mass += beliefs[start, i] * messages[1, i]
        for i in range(k):
            first_states[i] += beliefs[start, i] * messages[1, i] / mass
    for i in range(k):
        for j in range(k):
            moves[i, j] *= transition[i, j]


def expectations(problem: Problem) -> ExpectedCounts:
    """Return the expected first states and moves of sequences under a chain: the E step of expectation maximisation."""
    filter_result = run_filter(problem)
    k = problem.transition.shape[0]
    first_states, moves = np.zeros(k), np.zeros((k, k))
    expect_kernel = _expect_two if k == 2 else _expect
    symbols, starts, _, transition, likelihoods = problem
    expect_kernel(symbols, starts, filter_result.beliefs, transition, likelihoods, first_states, moves)
    return ExpectedCounts(filter_result.log_likelihood, first_states, moves)


def _normalise_rows(counts: Floats, fallback: Floats) -> Floats:
    """Scale rows of counts (..., k) to distributions; a row of zeros becomes that of `fallback`."""
    row_sums = counts.sum(axis=-1, keepdims=True)
    return np.where(row_sums > 0.0, counts / np.where(row_sums > 0.0, row_sums, 1.0), fallback)


def baum_welch(
    symbols: ArrayLike,
    emission: ArrayLike,
    *,
    transition: ArrayLike,
    initial: ArrayLike | None = None,
    lengths: ArrayLike | None = None,
    iterations: int = 100,
    tolerance: float = 1e-8,
) -> LearnedChain:
    """Fit transition and initial distribution to symbols by expectation maximisation with a known emission table.

    Args:
        symbols, emission, lengths: as for `filter_beliefs`.
        initial: (k,) first guess; `None`: uniform. With few sequences the fit tends to a corner, as expected.
        transition: (k, k) first guess, whose zeros stay zeros; a uniform one does not change.
        tolerance: stop when an iteration gains less than this, in nats per symbol.

    Raises:
        ValueError: bad shapes or distributions, no symbols, or symbols of probability zero under the first guess.

    Source: Baum, Petrie, Soules, Weiss 1970; Rabiner 1989, section III.C.
    """
    k = check_distribution(emission, "emission").shape[0]
    emission_table = check_emission(emission, k)
    initial_guess = np.full(k, 1.0 / k) if initial is None else check_distribution(initial, "initial", k)
    chain_guess = check_transition(transition)
    if initial_guess.ndim != 1 or chain_guess.shape != (k, k):
        raise ValueError(f"initial and transition must be ({k},) and ({k}, {k}), like the {k} emission rows")
    problem = problem_of(symbols, initial_guess, chain_guess, emission_table, lengths)
    if problem.symbols.size == 0:
        raise ValueError("cannot learn from no symbols at all")
    log_likelihoods: list[float] = []
    for _ in range(iterations + 1):
        log_likelihood, expected_first, expected_moves = expectations(problem)
        gain = log_likelihood - log_likelihoods[-1] if log_likelihoods else np.inf
        log_likelihoods.append(log_likelihood)
        if gain < tolerance * problem.symbols.size or len(log_likelihoods) > iterations:
            break
        initial_guess = _normalise_rows(expected_first, initial_guess)
        chain_guess = _normalise_rows(expected_moves, chain_guess)
        problem = problem._replace(
            initial=np.array(np.broadcast_to(initial_guess, problem.initial.shape), order="C"), transition=chain_guess
        )
    return LearnedChain(chain_guess, initial_guess, np.array(log_likelihoods))
