"""Exact smoothing when windows of ticks are counted: forward and backward over (state, count so far).

In windows the forward pass stores only the messages at their beginnings; the backward pass computes each lattice again.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from fugu.chains.arrays import Floats, Ints
from fugu.chains.kernel import kernel, part
from fugu.chains.messages import normalise_row
from fugu.chains.model import problem_of, refuse_impossible

__all__ = ["count_marginals"]


@part
def _start_window(prior: Floats, likelihoods: Floats, increments: Ints, lattice: Floats) -> None:
    """Fill the `lattice` (counts, k) of a window's first tick, from its prior and its symbol's likelihoods (k,)."""
    for x in range(prior.size):
        lattice[1 - increments[x], x], lattice[increments[x], x] = 0.0, prior[x] * likelihoods[x]


@part
def _predict_and_condition(
    lattice: Floats, transition: Floats, likelihoods: Floats, increments: Ints, max_count: int, next_lattice: Floats
) -> None:
    """Fill `next_lattice`, of sum 1, from the `lattice` (counts, k) one tick before, with counts up to `max_count`."""
    k = likelihoods.size
    for count in range(max_count + 2):
        for y in range(k):
            next_lattice[count, y] = 0.0
    mass = 0.0
    for count in range(max_count + 1):
        for y in range(k):
            joint = 0.0
            for x in range(k):
                joint += lattice[count, x] * transition[x, y]
            joint *= likelihoods[y]
            next_lattice[count + increments[y], y] += joint
            mass += joint
    if mass > 0.0:
        for count in range(max_count + 2):
            for y in range(k):
                next_lattice[count, y] /= mass


@part
def _predict_backward(transition: Floats, weighted_message: Floats, message: Floats) -> None:
    """Fill the backward `message` (k,) of the tick before, with largest entry 1, from the weighted message (k,)."""
    largest = 0.0
    for x in range(weighted_message.size):
        message[x] = 0.0
        for y in range(weighted_message.size):
            message[x] += transition[x, y] * weighted_message[y]
        largest = max(largest, message[x])
    for x in range(weighted_message.size):
        message[x] /= largest


@kernel
def _forward(
    symbols: Ints, starts: Ints, initial: Floats, transition: Floats, evidence: Floats, windows: Ints,
    increments: Ints, likelihoods: Floats, messages: Floats, window_priors: Floats,
) -> int:  # fmt: skip
    """Fill the forward messages of ticks outside windows and at windows' ends, and the windows' priors.

    Returns the position of impossible evidence, or -1.
    """
    k = transition.shape[0]
    lattice = np.empty((2, likelihoods.shape[1], k))
    distribution = np.empty(k)
    for sequence in range(starts.size - 1):
        slot, max_count = 0, 0
        for t in range(starts[sequence], starts[sequence + 1]):
            row, window = evidence[symbols[t]], windows[t]
            is_first = t == starts[sequence]
            if window < 0 or is_first or windows[t - 1] != window:
                for y in range(k):
                    distribution[y] = 0.0
                    if is_first:
                        distribution[y] = initial[sequence, y]
                    else:
                        for x in range(k):
                            distribution[y] += messages[t - 1, x] * transition[x, y]
            if window < 0:
                for y in range(k):
                    messages[t, y] = distribution[y] * row[y]
            else:
                if is_first or windows[t - 1] != window:
                    for y in range(k):
                        window_priors[window, y] = distribution[y]
                    _start_window(distribution, row, increments[t], lattice[slot])
                    max_count = 1
                else:
                    _predict_and_condition(lattice[slot], transition, row, increments[t], max_count, lattice[1 - slot])
                    slot, max_count = 1 - slot, max_count + 1
                if t + 1 < starts[sequence + 1] and windows[t + 1] == window:
                    continue
                for y in range(k):
                    messages[t, y] = 0.0
                    for count in range(max_count + 1):
                        messages[t, y] += lattice[slot, count, y] * likelihoods[window, count]
            if not normalise_row(messages, t):
                return int(t)
    return -1


@kernel
def _backward(
    symbols: Ints, starts: Ints, transition: Floats, evidence: Floats, windows: Ints, increments: Ints,
    likelihoods: Floats, messages: Floats, window_priors: Floats,
) -> None:  # fmt: skip
    """Replace the forward messages (n, k) by posteriors, and fill those of ticks inside windows."""
    k, count_limit = transition.shape[0], likelihoods.shape[1]
    lattices = np.empty((count_limit, count_limit, k))
    message, count_messages, weighted_message = np.empty(k), np.empty((2, count_limit, k)), np.empty(k)
    for sequence in range(starts.size - 1):
        start, last_tick = starts[sequence], starts[sequence + 1] - 1
        for x in range(k):
            message[x] = 1.0
        while last_tick >= start:
            window = windows[last_tick]
            if window < 0:
                for x in range(k):
                    messages[last_tick, x] *= message[x]
                    weighted_message[x] = evidence[symbols[last_tick], x] * message[x]
                normalise_row(messages, last_tick)
                _predict_backward(transition, weighted_message, message)
                last_tick -= 1
                continue
            first_tick = last_tick
            while first_tick > start and windows[first_tick - 1] == window:
                first_tick -= 1
            _start_window(window_priors[window], evidence[symbols[first_tick]], increments[first_tick], lattices[0])
            for j in range(1, last_tick - first_tick + 1):
                row = evidence[symbols[first_tick + j]]
                _predict_and_condition(lattices[j - 1], transition, row, increments[first_tick + j], j, lattices[j])
            slot = 0
            for c in range(count_limit):
                for x in range(k):
                    count_messages[slot, c, x] = likelihoods[window, c] * message[x]
            for j in range(last_tick - first_tick, -1, -1):
                tick, row, increment = (first_tick + j, evidence[symbols[first_tick + j]], increments[first_tick + j])
                for x in range(k):
                    messages[tick, x] = 0.0
                    for c in range(j + 2):
                        messages[tick, x] += lattices[j, c, x] * count_messages[slot, c, x]
                normalise_row(messages, tick)
                if j == 0:
                    for x in range(k):
                        weighted_message[x] = row[x] * count_messages[slot, increment[x], x]
                    _predict_backward(transition, weighted_message, message)
                    break
                largest = 0.0
                for c in range(j + 1):
                    for x in range(k):
                        message_sum = 0.0
                        for y in range(k):
                            message_sum += transition[x, y] * row[y] * count_messages[slot, c + increment[y], y]
                        count_messages[1 - slot, c, x] = message_sum
                        largest = max(largest, message_sum)
                slot = 1 - slot
                for c in range(j + 1):
                    for x in range(k):
                        count_messages[slot, c, x] /= largest
            last_tick = first_tick - 1


def count_marginals(
    symbols: ArrayLike,
    initial: ArrayLike,
    transition: ArrayLike,
    emission: ArrayLike,
    windows: Ints,
    adds: Ints,
    likelihoods: Floats,
    *,
    lengths: ArrayLike | None = None,
) -> Floats:
    """Return every tick's posterior (n, k) given the symbols and the released counts of windows.

    Arguments are as for `filter_beliefs`, and three more. `windows` (n,) is the window of each tick, or -1; a window's
    ticks follow each other in one sequence. `adds` (n, k) is 1 where a tick in that state is counted, else 0.
    `likelihoods` (w, counts) is Pr(released count | true count) up to a factor, for true counts from 0 to the ticks of
    the longest window.

    Raises:
        ValueError: bad shapes or distributions, a window with more ticks than counts, or evidence of probability zero.
    """
    problem = problem_of(symbols, initial, transition, emission, lengths)
    ticks, k = problem.symbols.size, problem.transition.shape[0]
    if windows.shape != (ticks,) or adds.shape != (ticks, k):
        raise ValueError(f"windows {windows.shape} and adds {adds.shape} must be ({ticks},) and ({ticks}, {k})")
    window_ticks = np.bincount(windows[windows >= 0], minlength=len(likelihoods))
    if window_ticks.size != len(likelihoods) or (window_ticks.size and window_ticks.max() >= likelihoods.shape[1]):
        raise ValueError("likelihoods needs a row for each window, and a column for each count from 0 to its ticks")
    messages, window_priors = np.empty((ticks, k)), np.empty((len(likelihoods), k))
    increments = np.ascontiguousarray(adds, dtype=np.int64)
    factors = np.ascontiguousarray(likelihoods, dtype=np.float64)
    stream, starts, priors, matrix, evidence = problem
    bad_tick = _forward(stream, starts, priors, matrix, evidence, windows, increments, factors, messages, window_priors)
    refuse_impossible(bad_tick)
    _backward(stream, starts, matrix, evidence, windows, increments, factors, messages, window_priors)
    return messages
