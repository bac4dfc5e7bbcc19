"""The slow, obvious twin of every kernel, and the oracle that adds up all k^n state paths."""

from __future__ import annotations

from itertools import product

import numpy as np


def likelihood(emission, z):
    """Pr(symbol z | state) for every state; ones for an unobserved tick."""
    return np.ones(len(emission)) if z < 0 else emission[:, z]


def enumerate_paths(symbols, initial, transition, emission):
    """All state paths (k^n, n) and Pr(path, symbols) (k^n,)."""
    k = len(initial)
    paths = np.array(list(product(range(k), repeat=len(symbols))), dtype=int)
    weights = initial[paths[:, 0]].copy()
    for t, z in enumerate(symbols):
        if t > 0:
            weights *= transition[paths[:, t - 1], paths[:, t]]
        weights *= likelihood(emission, z)[paths[:, t]]
    return paths, weights


def path_marginals(symbols, initial, transition, emission, upto=None):
    """Pr(X_t | symbols[: upto(t)]) for every t, by enumeration; by default all symbols."""
    n = len(symbols)
    rows = []
    for t in range(n):
        end = n if upto is None else upto(t)
        seen = [z if s < end else -1 for s, z in enumerate(symbols)]
        paths, weights = enumerate_paths(seen, initial, transition, emission)
        row = np.array([weights[paths[:, t] == x].sum() for x in range(len(initial))])
        rows.append(row / row.sum())
    return np.array(rows)


def forward(symbols, initial, transition, emission):
    """Filtered beliefs (n, k) and the log-likelihood."""
    belief, log_likelihood, rows = np.asarray(initial, float), 0.0, []
    for t, z in enumerate(symbols):
        joint = (belief if t == 0 else belief @ transition) * likelihood(emission, z)
        log_likelihood += np.log(joint.sum())
        belief = joint / joint.sum()
        rows.append(belief)
    return np.array(rows).reshape(len(symbols), len(initial)), log_likelihood


def backward(symbols, transition, emission):
    """Pr(later symbols | X_t) (n, k), each row divided by its sum."""
    k = len(transition)
    message, rows = np.ones(k), []
    for t in range(len(symbols) - 1, -1, -1):
        if t < len(symbols) - 1:
            message = transition @ (likelihood(emission, symbols[t + 1]) * message)
        message = message / message.sum()
        rows.append(message)
    return np.array(rows[::-1]).reshape(len(symbols), k)


def smooth(symbols, initial, transition, emission):
    """Posterior marginals (n, k): one plain loop each way."""
    joint = forward(symbols, initial, transition, emission)[0] * backward(symbols, transition, emission)
    return joint / joint.sum(axis=1, keepdims=True)


def expected_moves(symbols, initial, transition, emission):
    """Expected first state (k,) and expected number of moves (k, k)."""
    alpha, _ = forward(symbols, initial, transition, emission)
    beta = backward(symbols, transition, emission)
    moves = np.zeros_like(transition)
    for t in range(1, len(symbols)):
        joint = alpha[t - 1][:, None] * transition * (likelihood(emission, symbols[t]) * beta[t])[None, :]
        moves += joint / joint.sum()
    return smooth(symbols, initial, transition, emission)[0], moves


def baum_welch_step(sequences, initial, transition, emission):
    """One improvement of a chain from several sequences."""
    first, moves = np.zeros_like(initial), np.zeros_like(transition)
    for symbols in sequences:
        start, steps = expected_moves(symbols, initial, transition, emission)
        first, moves = first + start, moves + steps
    return first / first.sum(), moves / moves.sum(axis=1, keepdims=True)
