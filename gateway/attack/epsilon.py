"""An empirical lower bound on epsilon: the least that explains how well tests tell a state from the others."""

from __future__ import annotations

import math

import numpy as np

from gateway.attack.blocks import block_sums, highest_share, lowest_mean
from gateway.chain.arrays import Floats, Ints

__all__ = ["epsilon_bound"]

_BLOCKS = 32
_FEWEST_AFFECTED = 10
_THRESHOLDS = (0.0, 0.5, 1.0, 2.0)


def epsilon_bound(truth: Ints, prior: Floats, evidence: Floats, epsilon: float, confidence: float) -> float:
    """A lower confidence bound on epsilon.

    Each test says "state x" where its log-odds rose by more than a threshold (0, 1/2, 1 and 2 epsilon: chosen before
    the data). Epsilon promises Pr(test | x) <= e^epsilon Pr(test | not x) on every tick. Weighed by 1 / prior, both
    sides are means over ticks, and over 32 blocks; the largest epsilon that the blocks refute is the answer. Where
    fewer than ten blocks have a false alarm no mean is normal, and their share of blocks is bounded instead (Clopper
    and Pearson). Confidence is shared out among all tests.

    Args:
        truth: (n,) true states of the judged ticks.
        prior: (n, k) probabilities without the outputs, that of the true chain.
        evidence: (n, k) change of each state's log-odds by the outputs, in nats.
        epsilon: what was promised; says only where the thresholds are.
        confidence: inside (0, 1).

    Returns:
        A number of nats, at least 0.
    """
    n, k = prior.shape
    if n < 2 * _BLOCKS:
        return 0.0
    level = 1 - (1 - confidence) / (k * len(_THRESHOLDS))
    best = 0.0
    for x in range(k):
        true = truth == x
        for threshold in _THRESHOLDS:
            said = evidence[:, x] > threshold * epsilon
            share = np.clip(prior[:, x], 1e-9, 1 - 1e-9)
            hits = block_sums(np.where(said & true, 1 / share, 0.0), n // _BLOCKS)
            alarms = block_sums(np.where(said & ~true, 1 / (1 - share), 0.0), n // _BLOCKS)
            best = max(best, _refuted(hits, alarms, level))
    return best


def _refuted(hits: Floats, alarms: Floats, confidence: float) -> float:
    """The largest epsilon with mean(hits) > e^epsilon mean(alarms) at a confidence."""
    affected = int((alarms > 0).sum())
    if affected < _FEWEST_AFFECTED:
        half = (1 + confidence) / 2
        least = lowest_mean(hits, half)
        return max(0.0, math.log(least / highest_share(hits.size, affected, half))) if least > 0 else 0.0
    low, high = 0.0, 60.0
    if not lowest_mean(hits - alarms, confidence) > 0:
        return 0.0
    while high - low > 1e-6:
        middle = (low + high) / 2
        refuted = lowest_mean(hits - math.exp(middle) * alarms, confidence) > 0
        low, high = (middle, high) if refuted else (low, middle)
    return low
