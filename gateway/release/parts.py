"""What statistics are made of: queries, counts of symbols, estimates, and the widths of intervals.

A value's error is that of randomised response, which is nearly normal, plus noise with heavier tails. Intervals take
the larger of the normal and the Laplace quantile, and at least the noise's own.
"""

from __future__ import annotations

import math
from fractions import Fraction
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from contract.noise_table import NoiseTable
from contract.release_frames import QueryKind
from gateway.chain.arrays import Floats, Ints

__all__ = ["Estimates", "Part", "Query", "half_widths", "noise_variance"]


class Query(NamedTuple):
    """What is asked about a window.

    Attributes:
        kind: "count", "frequency" or mean "dwell" time of a set of states, or the "histogram" of all.
        states: the set; for a histogram every state, in order.
    """

    kind: QueryKind
    states: tuple[int, ...]


class Part(NamedTuple):
    """Counts of symbols of one table.

    Attributes:
        table: what made the symbols.
        ticks: how many there are.
        pairs: how many pairs of consecutive ticks have both symbols.
        counts: (1,) symbols in the set that stands for the states, (m,) of each kind, or (m, m) pairs of consecutive
            ones.
    """

    table: NoiseTable
    ticks: int
    pairs: int
    counts: Ints


class Estimates(NamedTuple):
    """Arrays (n,) of values, n = 1 but for a histogram; counts and dwell times are in ticks."""

    values: Floats
    standard_errors: Floats
    low: Floats
    high: Floats


def noise_variance(scale: Fraction) -> float:
    """Variance of the noise: 2 p / (1 - p)^2, p = e^(-1/scale)."""
    return 0.5 / math.sinh(0.5 / float(scale)) ** 2 if scale > Fraction(1, 1000) else 0.0


def half_widths(errors: Floats, steps: Floats, scale: Fraction, confidence: float) -> Floats:
    """Half of each interval.

    Args:
        errors: (n,) standard errors.
        steps: (n,) the largest weight of a single noise in each value.
        scale: of the noise.
        confidence: in (0, 1).
    """
    normal = NormalDist().inv_cdf(0.5 + confidence / 2.0)
    laplace = -math.log(1.0 - confidence) / math.sqrt(2.0)
    # Pr(|noise| > n) = 2 p^(n+1) / (1 + p), p = e^(-1/scale)
    rate = 1.0 / float(scale)
    quantile = max(math.ceil(-math.log((1.0 - confidence) * (1.0 + math.exp(-rate)) / 2.0) / rate) - 1, 0)
    return np.maximum(max(normal, laplace) * errors, steps * quantile)
