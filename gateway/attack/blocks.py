"""Confidence for averages over ticks that depend on their neighbours: means of long blocks, and a t quantile."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import betaincinv, stdtrit

from gateway.chain.arrays import Floats

__all__ = ["Interval", "block_sums", "highest_share", "lowest_mean", "mean_interval"]

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
