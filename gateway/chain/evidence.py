"""Evidence: how much a whole stream tells an adversary for one state against another, at every tick.

log Pr(symbols | X_t = a) / Pr(symbols | X_t = b) is the quantity that epsilon bounds. It is the sum of what
the symbols before t say (a message of the time-reversed chain), the symbol of t itself, and what the symbols
after t say. All three travel as logarithms, so that chains that never forget (zeros in the transition) are
exact too, and no posterior is ever divided by a prior.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from gateway.chain.arrays import Floats, Ints
from gateway.chain.kernel import kernel
from gateway.chain.model import impossible, pose

__all__ = ["log_likelihood_ratio"]

_SAFE = 1e-200  # a mixture above this has lost nothing to terms that underflowed


@kernel
def _log_mix(weights: Floats, logs: Floats, scaled: Floats, peak: float) -> float:
    """log of the sum of weights (k,) times exp(logs (k,)); `scaled` (k,) holds exp(logs - peak)."""
    mass = 0.0
    for x in range(weights.size):
        mass += weights[x] * scaled[x]
    if mass > _SAFE:
        return peak + float(np.log(mass))
    top = -np.inf  # this row gives no weight to the leading states: take the peak among those it has
    for x in range(weights.size):
        if weights[x] > 0.0 and logs[x] > top:
            top = logs[x]
    if top == -np.inf:
        return top
    mass = 0.0
    for x in range(weights.size):
        if weights[x] > 0.0:
            mass += weights[x] * np.exp(logs[x] - top)
    return top + float(np.log(mass))


@kernel
def _mix_all(weights: Floats, logs: Floats, scaled: Floats, out: Floats) -> bool:
    """Set out (k,) to log(weights (k, k) exp(logs (k,))), shifted by a constant; False if all are -inf."""
    peak = -np.inf
    for x in range(logs.size):
        peak = max(peak, logs[x])
    if peak == -np.inf:
        return False
    for x in range(logs.size):
        scaled[x] = np.exp(logs[x] - peak)
    for y in range(logs.size):
        out[y] = _log_mix(weights[y], logs, scaled, peak) - peak
    return True


@kernel
def _reverse(distribution: Floats, transition: Floats, weights: Floats, later: Floats) -> None:
    """One tick of the time-reversed chain.

    Sets `later` (k,) to the distribution after `distribution` (k,), and `weights[y, x]` to Pr(state x before | state y
    now), all zero where y cannot be reached.
    """
    k = distribution.size
    for y in range(k):
        later[y] = 0.0
        for x in range(k):
            weights[y, x] = distribution[x] * transition[x, y]
            later[y] += weights[y, x]
        for x in range(k):
            weights[y, x] = weights[y, x] / later[y] if later[y] > 0.0 else 0.0


@kernel
def _ratios(
    symbols: Ints, starts: Ints, initial: Floats, transition: Floats, log_rows: Floats, a: int, b: int,
    out: Floats,
) -> int:  # fmt: skip
    """Log-likelihood ratios; returns the position of impossible evidence, or -1."""
    k = transition.shape[0]
    distribution, later = np.empty(k), np.empty(k)
    message, joint, scaled = np.empty(k), np.empty(k), np.empty(k)
    weights = np.empty((k, k))
    for sequence in range(starts.size - 1):
        low, high = starts[sequence], starts[sequence + 1]
        distribution[:] = initial[sequence]
        for x in range(k):
            message[x] = 0.0 if distribution[x] > 0.0 else -np.inf
        for t in range(low, high):  # what the symbols up to t say
            for x in range(k):
                joint[x] = message[x] + log_rows[symbols[t], x]
            out[t] = joint[a] - joint[b] if distribution[a] > 0.0 and distribution[b] > 0.0 else np.nan
            _reverse(distribution, transition, weights, later)
            if not _mix_all(weights, joint, scaled, message):
                return int(t)
            distribution[:] = later
        message[:] = 0.0
        for t in range(high - 1, low - 1, -1):  # what the symbols after t say
            out[t] += message[a] - message[b]
            for x in range(k):
                joint[x] = message[x] + log_rows[symbols[t], x]
            if not _mix_all(transition, joint, scaled, message):
                return int(t)
    return -1


def log_likelihood_ratio(
    symbols: ArrayLike,
    initial: ArrayLike,
    transition: ArrayLike,
    emission: ArrayLike,
    *,
    state: int = 0,
    other: int = 1,
    lengths: ArrayLike | None = None,
) -> Floats:
    """What all symbols say for one state against another, at every tick.

    Args:
        symbols, initial, transition, emission, lengths: as for `filter_beliefs`.
        state, other: the states a and b.

    Returns:
        (n,) log Pr(symbols | X_t = a) / Pr(symbols | X_t = b) in nats: posterior log-odds minus prior
        log-odds. Infinite if only one of the states can explain the symbols; not a number if X_t takes one
        of them with probability zero a priori, or if neither explains the symbols.

    Raises:
        ValueError: bad shapes or distributions, states outside 0..k-1, or symbols of probability zero.

    Source: the likelihood ratio of the definitions of Bayesian and Pufferfish privacy.
    """
    problem = pose(symbols, initial, transition, emission, lengths)
    k = problem.transition.shape[0]
    if not (0 <= state < k and 0 <= other < k):
        raise ValueError(f"states {state} and {other} must both be in 0..{k - 1}")
    out = np.empty(problem.symbols.size)
    with np.errstate(divide="ignore", invalid="ignore"):
        log_rows = np.log(problem.rows)
        bad = _ratios(problem.symbols, problem.starts, problem.initial, problem.transition, log_rows, state, other, out)
    if bad >= 0:
        raise impossible(bad)
    return out
