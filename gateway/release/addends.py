"""Answers that are put together: of counts that devices have made noisy themselves, and of symbols.

An addend is an unbiased answer for some devices with a bound on its variance that depends on nothing private: on
scales, tables and how many ticks there were. So which of two answers is taken, and how much each counts, depends on
nothing private either, and what is put together is unbiased. Two answers for the same devices have independent errors
given the states, and are weighed by the inverse of their variances.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np

from gateway.chain.arrays import Floats, Ints
from gateway.release.inversion import inversion, two_valued
from gateway.release.statistics import Estimates, Part, Query, noise_quantile, noise_variance

__all__ = ["Addend", "added", "answer", "combined", "symbols_addend", "symbols_variances", "windows_addend"]


class Addend(NamedTuple):
    """An answer for some devices.

    Attributes:
        values: (n,) unbiased counts of ticks, n = 1 but for a histogram.
        variances: (n,) bounds of their variances.
        least: (n,) what half of an interval is at least: the quantile of the largest noise in each.
        ticks: that were observed.
    """

    values: Floats
    variances: Floats
    least: Floats
    ticks: int

    def document(self) -> list[Any]:
        """As plain values, for JSON."""
        return [self.values.tolist(), self.variances.tolist(), self.least.tolist(), self.ticks]

    @classmethod
    def of_document(cls, listed: Sequence[Any]) -> Addend:
        """What `document` made."""
        values, variances, least = (np.array(one, dtype=np.float64) for one in listed[:3])
        return cls(values, variances, least, listed[3])


def windows_addend(counts: Ints, numbers: Ints, scales: Sequence[Fraction], ticks: int, confidence: float) -> Addend:
    """The answer of a device's own windows.

    Args:
        counts: (w, n) noisy counts of each window that answer the query, added up over its states.
        numbers: (n,) how many noisy numbers of a window were added up.
        scales: (w,) of each window's noise.
        ticks: that the device has counted.
        confidence: of the interval to come, in (0, 1).
    """
    variance = sum(noise_variance(scale) for scale in scales)
    least = max(noise_quantile(scale, confidence) for scale in scales)
    return Addend(
        counts.sum(axis=0).astype(np.float64),
        np.asarray(numbers * variance, dtype=np.float64),
        np.full(len(numbers), float(least)),
        ticks,
    )


def symbols_addend(query: Query, parts: Sequence[Part], scale: Fraction, confidence: float) -> Addend:
    """The answer of noisy counts of symbols; `scale` is that of their noise."""
    values, weights = [], []
    for part in parts:
        inverse = inversion(part.table).inverse
        if len(part.counts) == 1:
            rule = two_valued(part.table, query.states)
            assert rule is not None
            values.append(np.asarray(rule.a * part.counts + rule.b * part.ticks, dtype=np.float64))
            weights.append(np.array([abs(rule.a)]))
        else:
            rows = inverse if query.kind == "histogram" else inverse[list(query.states)].sum(axis=0, keepdims=True)
            values.append(np.asarray(rows @ part.counts, dtype=np.float64))
            weights.append(np.abs(rows).max(axis=1))
    variances = sum(symbols_variances(query, part, scale) for part in parts)
    least = np.max(weights, axis=0) * noise_quantile(scale, confidence)
    return Addend(np.sum(values, axis=0), np.asarray(variances), least, sum(part.ticks for part in parts))


def symbols_variances(query: Query, part: Part, scale: Fraction | None) -> Floats:
    """Bounds (n,) of the variances of what symbols of one table answer: for the worst of states at every tick.

    Args:
        query: a count, frequency or histogram.
        part: how many ticks, of which table.
        scale: of the noise that is added to the counts, or none.
    """
    emission, inverse = inversion(part.table)
    rows = inverse if query.kind == "histogram" else inverse[list(query.states)].sum(axis=0, keepdims=True)
    noise = 0.0 if scale is None else noise_variance(scale)
    rule = None if query.kind == "histogram" else two_valued(part.table, query.states)
    added = np.array([rule.a**2]) if rule is not None else (rows**2).sum(axis=1)
    spread = (rows**2 @ emission.T - (rows @ emission.T) ** 2).max(axis=1)
    return np.asarray(part.ticks * np.maximum(spread, 0.0) + noise * added, dtype=np.float64)


def combined(one: Addend, other: Addend) -> Addend:
    """Two answers for the same devices and ticks, weighed by the inverse of their variances."""
    weight = other.variances / (one.variances + other.variances)
    rest = 1.0 - weight
    return Addend(
        weight * one.values + rest * other.values,
        weight**2 * one.variances + rest**2 * other.variances,
        np.maximum(weight * one.least, rest * other.least),
        max(one.ticks, other.ticks),
    )


def added(addends: Sequence[Addend]) -> Addend:
    """Answers for different devices, added up."""
    values, variances, least, ticks = zip(*addends, strict=True)
    return Addend(np.sum(values, axis=0), np.sum(variances, axis=0), np.max(least, axis=0), sum(ticks))


def answer(query: Query, total: Addend, confidence: float) -> Estimates:
    """Values with standard errors and intervals, which are too wide rather than too narrow.

    Half of an interval is the larger of the normal and the Laplace quantile, and one tick, because noise is whole; and
    at least the quantile of the largest noise alone.

    Args:
        query: a count, frequency or histogram.
        total: of all devices.
        confidence: of the intervals, in (0, 1).
    """
    normal = NormalDist().inv_cdf(0.5 + confidence / 2.0)
    laplace = -math.log(1.0 - confidence) / math.sqrt(2.0)
    errors = np.sqrt(total.variances)
    width = np.maximum(max(normal, laplace) * errors + 1.0, total.least)
    divisor = float(total.ticks) if query.kind == "frequency" else 1.0
    return Estimates(*(one / divisor for one in (total.values, errors, total.values - width, total.values + width)))
