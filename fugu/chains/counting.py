"""Smoothing when windows of ticks are counted: forward and backward over (state, count so far), exactly.

The forward pass stores only the messages at the windows' beginnings; the backward pass computes each lattice again.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from fugu.chains.arrays import Floats, Ints
from fugu.chains.kernel import kernel, part
from fugu.chains.model import pose, refuse_impossible

__all__ = ["count_marginals"]


@part
def _begin(prior: Floats, row: Floats, adds: Ints, lattice: Floats) -> None:
    """The first tick of a window: lattice (counts, k) from the predicted distribution (k,) and its likelihood (k,)."""
    for x in range(prior.size):
        lattice[0, x] = lattice[1, x] = 0.0
    for x in range(prior.size):
        lattice[adds[x], x] = prior[x] * row[x]


@part
def _predict_and_condition(
    before: Floats, transition: Floats, row: Floats, adds: Ints, reach: int, after: Floats
) -> None:
    """Take a lattice one tick on: lattice (counts, k) to lattice, counts up to `reach` before; scaled to mass 1."""
    k = row.size
    for c in range(reach + 2):
        for y in range(k):
            after[c, y] = 0.0
    mass = 0.0
    for c in range(reach + 1):
        for y in range(k):
            flow = 0.0
            for x in range(k):
                flow += before[c, x] * transition[x, y]
            flow *= row[y]
            after[c + adds[y], y] += flow
            mass += flow
    if mass > 0.0:
        for c in range(reach + 2):
            for y in range(k):
                after[c, y] /= mass


@part
def _normalise(distributions: Floats, t: int) -> bool:
    """Scale row t to sum 1; false if its sum is 0."""
    mass = 0.0
    for x in range(distributions.shape[1]):
        mass += distributions[t, x]
    if not mass > 0.0:
        return False
    for x in range(distributions.shape[1]):
        distributions[t, x] /= mass
    return True


@part
def _predict_backward(transition: Floats, weighed: Floats, message: Floats) -> None:
    """The backward message (k,) one tick earlier, its largest entry 1, from the weighed one (k,)."""
    top = 0.0
    for x in range(weighed.size):
        message[x] = 0.0
        for y in range(weighed.size):
            message[x] += transition[x, y] * weighed[y]
        top = max(top, message[x])
    for x in range(weighed.size):
        message[x] /= top


@kernel
def _forward(
    symbols: Ints, starts: Ints, initial: Floats, transition: Floats, rows: Floats, windows: Ints, adds: Ints,
    likelihoods: Floats, forward: Floats, entries: Floats,
) -> int:  # fmt: skip
    """Messages after each tick outside windows, and predicted distributions where windows begin; -1, or a position."""
    k = transition.shape[0]
    lattice = np.empty((2, likelihoods.shape[1], k))
    distribution = np.empty(k)
    for sequence in range(starts.size - 1):
        now, reach = 0, 0
        for t in range(starts[sequence], starts[sequence + 1]):
            row, w = rows[symbols[t]], windows[t]
            fresh = t == starts[sequence]
            if w < 0 or fresh or windows[t - 1] != w:
                for y in range(k):
                    distribution[y] = 0.0
                    if fresh:
                        distribution[y] = initial[sequence, y]
                    else:
                        for x in range(k):
                            distribution[y] += forward[t - 1, x] * transition[x, y]
            if w < 0:
                for y in range(k):
                    forward[t, y] = distribution[y] * row[y]
            else:
                if fresh or windows[t - 1] != w:
                    for y in range(k):
                        entries[w, y] = distribution[y]
                    _begin(distribution, row, adds[t], lattice[now])
                    reach = 1
                else:
                    _predict_and_condition(lattice[now], transition, row, adds[t], reach, lattice[1 - now])
                    now, reach = 1 - now, reach + 1
                if t + 1 < starts[sequence + 1] and windows[t + 1] == w:
                    continue
                for y in range(k):
                    forward[t, y] = 0.0
                    for c in range(reach + 1):
                        forward[t, y] += lattice[now, c, y] * likelihoods[w, c]
            if not _normalise(forward, t):
                return int(t)
    return -1


@kernel
def _backward(
    symbols: Ints, starts: Ints, transition: Floats, rows: Floats, windows: Ints, adds: Ints, likelihoods: Floats,
    forward: Floats, entries: Floats,
) -> None:  # fmt: skip
    """Replace the forward messages (n, k) by posteriors."""
    k, counts = transition.shape[0], likelihoods.shape[1]
    lattices = np.empty((counts, counts, k))
    after, later, weighed = np.empty(k), np.empty((2, counts, k)), np.empty(k)
    for sequence in range(starts.size - 1):
        low, t = starts[sequence], starts[sequence + 1] - 1
        for x in range(k):
            after[x] = 1.0
        while t >= low:
            w = windows[t]
            if w < 0:
                for x in range(k):
                    forward[t, x] *= after[x]
                    weighed[x] = rows[symbols[t], x] * after[x]
                _normalise(forward, t)
                _predict_backward(transition, weighed, after)
                t -= 1
                continue
            first = t
            while first > low and windows[first - 1] == w:
                first -= 1
            _begin(entries[w], rows[symbols[first]], adds[first], lattices[0])
            for j in range(1, t - first + 1):
                _predict_and_condition(
                    lattices[j - 1], transition, rows[symbols[first + j]], adds[first + j], j, lattices[j]
                )
            now = 0
            for c in range(counts):
                for x in range(k):
                    later[now, c, x] = likelihoods[w, c] * after[x]
            for j in range(t - first, -1, -1):
                here, row, add = first + j, rows[symbols[first + j]], adds[first + j]
                for x in range(k):
                    forward[here, x] = 0.0
                    for c in range(j + 2):
                        forward[here, x] += lattices[j, c, x] * later[now, c, x]
                _normalise(forward, here)
                if j == 0:
                    for x in range(k):
                        weighed[x] = row[x] * later[now, add[x], x]
                    _predict_backward(transition, weighed, after)
                    break
                top = 0.0
                for c in range(j + 1):
                    for x in range(k):
                        value = 0.0
                        for y in range(k):
                            value += transition[x, y] * row[y] * later[now, c + add[y], y]
                        later[1 - now, c, x] = value
                        top = max(top, value)
                now = 1 - now
                for c in range(j + 1):
                    for x in range(k):
                        later[now, c, x] /= top
            t = first - 1


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
    """Posterior (n, k) of every tick's state given symbols and what was released of the windows' counts.

    Arguments are as for `filter_beliefs`, and three more. `windows` (n,) is the window that a tick is in, or -1; a
    window's ticks follow each other in one sequence. `adds` (n, k) is 1 where a tick in that state is counted, else 0.
    `likelihoods` (w, counts) is Pr(what was released | a window's count) up to a factor, for counts from 0 to a
    window's most ticks.

    Raises:
        ValueError: bad shapes or distributions, a window with more ticks than counts, or evidence of probability zero.
    """
    problem = pose(symbols, initial, transition, emission, lengths)
    n, k = problem.symbols.size, problem.transition.shape[0]
    if windows.shape != (n,) or adds.shape != (n, k):
        raise ValueError(f"windows {windows.shape} and adds {adds.shape} must be ({n},) and ({n}, {k})")
    sizes = np.bincount(windows[windows >= 0], minlength=len(likelihoods))
    if sizes.size != len(likelihoods) or (sizes.size and sizes.max() >= likelihoods.shape[1]):
        raise ValueError("likelihoods needs a row for each window, and a column for each count from 0 to its ticks")
    forward, entries = np.empty((n, k)), np.empty((len(likelihoods), k))
    added = np.ascontiguousarray(adds, dtype=np.int64)
    weighed = np.ascontiguousarray(likelihoods, dtype=np.float64)
    stream, starts, first, matrix, rows = problem
    bad = _forward(stream, starts, first, matrix, rows, windows, added, weighed, forward, entries)
    refuse_impossible(bad)
    _backward(stream, starts, matrix, rows, windows, added, weighed, forward, entries)
    return forward
