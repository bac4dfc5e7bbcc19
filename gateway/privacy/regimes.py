"""Slow regimes: a chain whose rates switch now and then between a few sets, fitted to the states of a recording.

The hidden state is a regime and a state, and the state is seen, so that the kernel which learns a chain from symbols
learns this as well. The number of regimes is that of the largest likelihood after Schwarz's penalty.

Source: Goldfeld and Quandt, "A Markov model for switching regressions" (1973); Schwarz (1978).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from gateway.chain import baum_welch, stationary_law
from gateway.chain.arrays import Floats, Ints

__all__ = ["Regime", "fit_regimes"]

_MOST = 3
_ROUNDS = 60
_TOLERANCE = 1e-6
_SPREAD = 0.5
_STAY = 0.995
_MOST_TICKS = 100_000
_MOST_STATES = 8


class Regime(NamedTuple):
    """One of the regimes of a recording.

    Attributes:
        share: of the time.
        ticks: its mean length.
        transition: (k, k) the chain that it follows.
    """

    share: float
    ticks: float
    transition: Floats


def fit_regimes(states: Ints, segments: Ints, k: int) -> tuple[Regime, ...]:
    """Fit one, two or three regimes to a recording.

    Args:
        states: (n,) states in 0..k-1, -1 where there is none.
        segments: (n,) equal inside a stretch without gaps.
        k: number of states; above 8, there is one regime.

    Returns:
        The regimes, the one of most time first; a single one if more are not needed.
    """
    states, segments = states[:_MOST_TICKS], segments[:_MOST_TICKS]
    lengths = np.diff(np.flatnonzero(np.concatenate([[True], np.diff(segments) != 0, [True]])))
    base = _chain(states, segments, k)
    fits = []
    for count in range(1, _MOST + 1 if k <= _MOST_STATES else 2):
        learned = baum_welch(
            states,
            np.tile(np.eye(k), (count, 1)),
            lengths=lengths,
            transition=_start(base, count),
            iterations=_ROUNDS,
            tolerance=_TOLERANCE,
        )
        free = count * (count - 1) + count * k * (k - 1)
        fits.append((learned.log_likelihoods[-1] - free / 2.0 * math.log(states.size), learned.transition))
        if len(fits) > 1 and fits[-1][0] <= fits[-2][0]:
            break
    _, transition = max(fits, key=lambda each: each[0])
    return _regimes(transition, k)


def _chain(states: Ints, segments: Ints, k: int) -> Floats:
    inside = (segments[1:] == segments[:-1]) & (states[1:] >= 0) & (states[:-1] >= 0)
    counts = np.bincount((states[:-1] * k + states[1:])[inside], minlength=k * k).reshape(k, k) + 1.0 / k
    return np.asarray(counts / counts.sum(axis=1, keepdims=True))


def _start(base: Floats, count: int) -> Floats:
    """Regimes from slow to fast: the chain of the whole recording, with its moves made rarer or more frequent."""
    speeds = np.exp(_SPREAD * (2.0 * np.arange(count) - (count - 1)))
    switch = (1.0 - _STAY) / max(count - 1, 1) * np.ones((count, count))
    np.fill_diagonal(switch, _STAY if count > 1 else 1.0)
    blocks = []
    for speed in speeds:
        moves = base * (1.0 - np.eye(len(base))) * speed
        moves /= np.maximum(1.0, moves.sum(axis=1, keepdims=True) / 0.95)
        blocks.append(moves + np.diag(1.0 - moves.sum(axis=1)))
    return np.block([[switch[i, j] * block for j, block in enumerate(blocks)] for i in range(count)])


def _regimes(transition: Floats, k: int) -> tuple[Regime, ...]:
    count = len(transition) // k
    law = stationary_law(transition).reshape(count, k)
    blocks = transition.reshape(count, k, count, k)
    found = []
    for i in range(count):
        inside = blocks[i, :, i, :]
        stays = inside.sum(axis=1)
        share = float(law[i].sum())
        leaving = float(law[i] @ (1.0 - stays))
        ticks = share / leaving if leaving > 0.0 else math.inf
        found.append(Regime(share, ticks, inside / np.maximum(stays, 1e-300)[:, None]))
    return tuple(sorted(found, key=lambda regime: -regime.share))
