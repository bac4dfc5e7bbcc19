"""Fit a Markov chain to a sequence of states, and test what such a chain assumes.

Transitions are counted inside segments only (a segment is a stretch without gaps). The tests are likelihood-ratio
tests (G tests), asymptotically chi-square; with tens of thousands of steps they reject differences that are too small
to matter, so each comes with its effect per step.

Source: Anderson and Goodman, "Statistical inference about Markov chains" (1957); Clopper and Pearson, "The use of
confidence or fiducial limits illustrated in the case of the binomial" (1934).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy import special

from fugu.chains.arrays import Floats, Ints

__all__ = [
    "GTest",
    "Interval",
    "Sojourn",
    "clopper_pearson",
    "count_transitions",
    "count_triples",
    "decimate",
    "order_test",
    "sojourns",
    "transition_matrix",
]


class Interval(NamedTuple):
    """A confidence interval for a probability."""

    low: float
    high: float


class GTest(NamedTuple):
    """A likelihood-ratio test.

    Attributes:
        statistic: twice the gain in log-likelihood, in nats.
        degrees: degrees of freedom.
        p_value: probability of a statistic at least as large if the simpler model holds.
        nats_per_step: gain in log-likelihood per step, the size of the effect.
    """

    statistic: float
    degrees: int
    p_value: float
    nats_per_step: float


class Sojourn(NamedTuple):
    """How long a state lasts, in ticks, over the stays of which both ends were seen.

    Attributes:
        stays: number of complete stays.
        mean, median: of their lengths; none without a complete stay.
        geometric_mean, geometric_median: what a first-order chain with the fitted exit probability gives.
    """

    stays: int
    mean: float | None
    median: float | None
    geometric_mean: float | None
    geometric_median: float | None


def decimate(states: Ints, segments: Ints, step: int) -> tuple[Ints, Ints]:
    """Keep every `step`-th row of each segment, from its first row on.

    Args:
        states: (n,) states.
        segments: (n,) segment numbers, equal within a segment and not repeated after it.
        step: D >= 1.

    Returns:
        The remaining states and segment numbers.
    """
    _, first = np.unique(segments, return_index=True)
    starts = np.zeros(segments.size, dtype=np.int64)
    starts[first] = first
    keep = (np.arange(segments.size) - np.maximum.accumulate(starts)) % step == 0
    return states[keep], segments[keep]


def count_transitions(states: Ints, segments: Ints, k: int) -> Ints:
    """Count the steps x -> y inside segments.

    Args:
        states: (n,) states in 0..k-1, -1 where there is none.
        segments: (n,) segment numbers.
        k: number of states.

    Returns:
        (k, k) counts.
    """
    inside = (segments[1:] == segments[:-1]) & (states[1:] >= 0) & (states[:-1] >= 0)
    pairs = (states[:-1] * k + states[1:])[inside]
    return np.bincount(pairs, minlength=k * k).reshape(k, k).astype(np.int64)


def count_triples(states: Ints, segments: Ints, k: int) -> Ints:
    """Count the double steps w -> x -> y inside segments; arguments as for `count_transitions`.

    Returns:
        (k, k, k) counts.
    """
    known = states >= 0
    inside = (segments[2:] == segments[:-2]) & known[2:] & known[1:-1] & known[:-2]
    triples = ((states[:-2] * k + states[1:-1]) * k + states[2:])[inside]
    return np.bincount(triples, minlength=k**3).reshape(k, k, k).astype(np.int64)


def transition_matrix(counts: Ints) -> Floats:
    """Return the maximum-likelihood transition matrix; the row of a state that is never left is uniform.

    Args:
        counts: (k, k) transition counts.

    Returns:
        (k, k), row-stochastic.
    """
    totals = counts.sum(axis=1, keepdims=True)
    k = counts.shape[0]
    return np.asarray(np.where(totals > 0, counts / np.maximum(totals, 1), 1.0 / k), dtype=np.float64)


def clopper_pearson(successes: int, trials: int, confidence: float) -> Interval:
    """Return the exact (conservative) confidence interval of a probability.

    Args:
        successes: number of successes.
        trials: number of trials; without any, the interval is [0, 1].
        confidence: coverage, inside (0, 1), at least attained.

    Source: Clopper and Pearson (1934), by quantiles of the beta distribution.
    """
    half = (1.0 - confidence) / 2.0
    failures = trials - successes
    low = float(special.betaincinv(successes, failures + 1, half)) if successes else 0.0
    high = float(special.betaincinv(successes + 1, failures, 1.0 - half)) if failures else 1.0
    return Interval(low, high)


def order_test(triples: Ints) -> GTest:
    """Test a first-order chain against a second-order one.

    Args:
        triples: (k, k, k) counts of w -> x -> y.
    """
    return _gain(triples)


def _gain(counts: Ints) -> GTest:
    """Test whether the distribution of y given x depends on w.

    Args:
        counts: (c, k, k) counts over context w, state x and next state y.
    """
    pooled = counts.sum(axis=0)
    statistic = 2.0 * (_log_likelihood(counts) - _log_likelihood(pooled))
    contexts = (counts.sum(axis=2) > 0).sum(axis=0)
    outcomes = (pooled > 0).sum(axis=1)
    degrees = int(np.sum(np.maximum(contexts - 1, 0) * np.maximum(outcomes - 1, 0)))
    statistic = max(statistic, 0.0)
    p_value = float(special.chdtrc(degrees, statistic)) if degrees else 1.0
    return GTest(statistic, degrees, p_value, statistic / 2.0 / max(int(counts.sum()), 1))


def _log_likelihood(counts: Ints) -> float:
    """Return the largest log-likelihood of independent rows of counts (last axis: outcomes)."""
    rows = counts.sum(axis=-1)
    return float(special.xlogy(counts, counts).sum() - special.xlogy(rows, rows).sum())


def sojourns(states: Ints, segments: Ints, counts: Ints) -> list[Sojourn]:
    """Summarise how long each state lasts.

    Stays that touch the end of a segment are left out, because their length is not known.

    Args:
        states, segments: (n,) as for `count_transitions`.
        counts: (k, k) transition counts of the same rows.
    """
    fresh = segments[1:] != segments[:-1]
    starts = np.concatenate([[0], np.flatnonzero(fresh | (states[1:] != states[:-1])) + 1])
    ends = np.append(starts[1:], states.size)
    at_start = np.append(True, fresh)[starts]
    at_end = np.append(fresh, True)[ends - 1]
    complete = ~at_start & ~at_end
    lengths, owners = (ends - starts)[complete], states[starts][complete]
    return [_sojourn(lengths[owners == x], counts[x], x) for x in range(counts.shape[0])]


def _sojourn(lengths: Ints, row: Ints, state: int) -> Sojourn:
    total = int(row.sum())
    stay = int(row[state]) / total if total else 1.0
    mean = median = None
    if stay < 1.0:
        mean = 1.0 / (1.0 - stay)
        median = 1.0 if stay == 0.0 else max(1.0, float(np.ceil(np.log(0.5) / np.log(stay))))
    if not lengths.size:
        return Sojourn(0, None, None, mean, median)
    return Sojourn(int(lengths.size), float(lengths.mean()), float(np.median(lengths)), mean, median)
