"""An attacker who learns from noisy counts how the share of the counted states drifts from window to window."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from gateway.attack.chains import smoothing
from gateway.attack.knowledge import Knowledge
from gateway.attack.outputs import CountOutputs, Outputs, without
from gateway.chain.arrays import Floats, Ints

__all__ = ["learned_levels"]

_LEVELS = 41
_STEPS = (0.01, 0.03, 0.1, 0.3, 1.0)
_SPREADS = (0.3, 1.0, 3.0, 10.0, 30.0)


def learned_levels(outputs: Outputs, knowledge: Knowledge) -> Floats:
    """A share for every window that drifts; how fast, and how far counts scatter about it, is what is most likely.

    A share drifts by a normal step, and now and then anywhere. The count of L ticks at a share p is normal with mean
    L p and variance spread L p (1 - p) + 2 scale^2. On every tick of a window the odds of the counted states are then
    multiplied by what they are for the expected share, over what they were; each count by itself.
    """
    prior = smoothing(without(outputs), knowledge)
    assert isinstance(outputs, CountOutputs)
    if not outputs.counts.size:
        return prior
    grid = (np.arange(_LEVELS) + 0.5) / _LEVELS
    windows, odds = outputs.windows(), prior.copy()
    for group, counts in zip(outputs.groups, outputs.counts.T, strict=True):
        shares = max(_models(outputs, counts, grid), key=lambda one: one[0])[1] @ grid
        usual = float(np.clip(knowledge.law[list(group)].sum(), 1e-6, 1 - 1e-6))
        factors = np.append(shares / (1 - shares) * (1 - usual) / usual, 1.0)
        odds[:, group] *= factors[windows][:, None]
    return np.asarray(odds / odds.sum(axis=1, keepdims=True))


def _models(outputs: CountOutputs, counts: Ints, grid: Floats) -> Iterator[tuple[float, Floats]]:
    """Log-likelihood and posterior of the levels (w, levels) for every pair of step and spread."""
    length, noise = outputs.length, 2 * float(outputs.scale) ** 2
    for spread in _SPREADS:
        variance = spread * length * grid * (1 - grid) + noise
        logs = -((counts[:, None] - length * grid) ** 2) / (2 * variance) - np.log(variance) / 2
        for step in _STEPS:
            move = np.exp(-((grid[:, None] - grid) ** 2) / (2 * step**2)) + 1e-4
            yield _smoothed(logs, move / move.sum(axis=1, keepdims=True))


def _smoothed(logs: Floats, move: Floats) -> tuple[float, Floats]:
    """Forward and backward over levels, from log-likelihoods (w, levels)."""
    top = logs.max(axis=1, keepdims=True)
    weights = np.exp(logs - top)
    forward, backward = np.empty_like(weights), np.ones_like(weights)
    total = float(top.sum())
    law = np.full(len(move), 1 / len(move))
    for w, weight in enumerate(weights):
        law = law * weight
        mass = law.sum()
        total += float(np.log(mass))
        forward[w] = law / mass
        law = forward[w] @ move
    for w in range(len(weights) - 1, 0, -1):
        message = move @ (weights[w] * backward[w])
        backward[w - 1] = message / message.max()
    joint = forward * backward
    return total, joint / joint.sum(axis=1, keepdims=True)
