"""How often epsilon lets an attacker guess a state right, and the least epsilon that explains how tests tell it.

Intervals respect that neighbouring ticks are correlated: they are of means over blocks.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import betaincinv, stdtrit

from fugu.chains.arrays import Floats, Ints

__all__ = ["Interval", "block_sums", "epsilon_bound", "highest_share", "lowest_mean", "mean_interval", "success_bound"]

FEWEST_BLOCKS = 8
_TIMES = 10.0


class Interval(NamedTuple):
    """A mean with its two-sided confidence interval."""

    mean: float
    low: float
    high: float


def mean_interval(series: Floats, confidence: float) -> Interval:
    """The mean of a series of dependent numbers, with an interval.

    Blocks are ten times the integrated autocorrelation time of the series, as far as it has eight blocks; their means
    then count as independent.

    Args:
        series: (n,) numbers, one a tick.
        confidence: inside (0, 1).

    Returns:
        The interval; without end for fewer than eight numbers.

    Source: batch means; Geyer, "Practical Markov Chain Monte Carlo" (1992), for the autocorrelation time.
    """
    if series.size < FEWEST_BLOCKS:
        return Interval(float(series.mean()) if series.size else 0.0, -np.inf, np.inf)
    time = _autocorrelation_time(series)
    length = min(series.size // FEWEST_BLOCKS, max(1, round(_TIMES * time)))
    mean, reach = _spread(block_sums(series, length), confidence)
    if time > 1.0:  # neighbouring blocks share about one autocorrelation time of what they know
        reach /= (1.0 - min(0.5, time / length)) ** 0.5
    return Interval(mean, mean - reach, mean + reach)


def lowest_mean(sums: Floats, confidence: float) -> float:
    """A one-sided lower confidence bound for the mean of independent numbers (blocks,)."""
    mean, reach = _spread(sums, 2 * confidence - 1)
    return mean - reach


def highest_share(blocks: int, affected: int, confidence: float) -> float:
    """A one-sided upper confidence bound for the share of blocks that are affected (Clopper and Pearson)."""
    return 1.0 if affected >= blocks else float(betaincinv(affected + 1, blocks - affected, confidence))


def block_sums(series: Floats, length: int) -> Floats:
    """Means (blocks,) of consecutive blocks of equal length, the last one up to twice as long, weighed equally."""
    edges = np.arange(max(1, series.size // length)) * length
    return np.asarray(np.add.reduceat(series, edges) / np.diff(np.append(edges, series.size)))


def _spread(values: Floats, confidence: float) -> tuple[float, float]:
    """The mean of independent numbers, and half the length of its interval."""
    quantile = float(stdtrit(values.size - 1, (1 + confidence) / 2))
    return float(values.mean()), quantile * float(values.std(ddof=1)) / values.size**0.5


def _autocorrelation_time(series: Floats) -> float:
    """At least 1: twice the sum of pairs of autocorrelations, as long as they are positive, less 1."""
    n = series.size
    centred = series - series.mean()
    size = 1 << (2 * n - 1).bit_length()
    covariance = np.fft.irfft(np.abs(np.fft.rfft(centred, size)) ** 2, size)[: 2 * (n // FEWEST_BLOCKS)]
    if not covariance[0] > 0.0:
        return 1.0
    pairs = covariance.reshape(-1, 2).sum(axis=1) / covariance[0]
    negative = np.flatnonzero(pairs <= 0.0)
    return max(1.0, 2.0 * float(pairs[: negative[0] if negative.size else None].sum()) - 1.0)


def success_bound(prior: ArrayLike, epsilon: float, epsilon_10: float | None = None) -> Floats:
    """The most that any attacker can reach who must name the state of one tick.

    With one epsilon it is the largest, over j, of E / (E - 1 + j) times the prior probability of the j likeliest
    states, E = e^epsilon. Proof: let s_x be the probability of naming x when it is true. Naming x is at most E times as
    likely under x as under another state; so, under x, s_x + sum over z != x of s_z / E <= 1. With S = sum of s that is
    s_x <= u(S) = (E - S) / (E - 1). For a given S the largest sum of prior_x s_x gives u(S) to the likeliest states and
    the rest to the next; it is linear in S between the S at which exactly j states have u(S), S = j E / (E - 1 + j), so
    it is largest at one of those. It is reached: name a state of the j with E / (E - 1 + j) if it is true, with
    1 / (E - 1 + j) if another of the j is, and one of them at random if none is.

    Args:
        prior: (..., k) probabilities before any output.
        epsilon: bound on the log-likelihood ratio of any state over any other, in nats; with `epsilon_10`, of state 0
            over state 1.
        epsilon_10: for two states, that of state 1 over state 0, where it differs.

    Returns:
        (...) probabilities, never below the largest of the prior.

    Source: docs/proofs/learned-classes.md, "An attacker's success"; it corrects the bound in section 4 of
    the BDP paper.
    """
    distribution = np.asarray(prior, dtype=np.float64)
    best = distribution.max(axis=-1)
    if epsilon_10 is None:
        others = np.arange(distribution.shape[-1])
        sums = np.cumsum(-np.sort(-distribution, axis=-1), axis=-1)
        return np.asarray(np.maximum(best, (sums / (1 + others * math.exp(-epsilon))).max(axis=-1)))
    if not epsilon > 0 < epsilon_10:
        return np.asarray(best)
    span = -math.expm1(-(epsilon + epsilon_10))
    right = np.array([math.expm1(-epsilon_10), math.expm1(-epsilon)]) / -span
    return np.asarray(np.maximum(best, distribution @ right))


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
