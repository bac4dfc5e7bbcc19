"""Answers that are put together: of counts that devices have made noisy themselves, and of symbols.

An addend is an unbiased answer for some devices with a bound on its variance that depends on nothing private: on
scales, tables and how many ticks there were. So which of two answers is taken, and how much each counts, depends on
nothing private either, and what is put together is unbiased. Two answers for the same devices have independent errors
given the states, and are weighed by the inverse of their variances.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from fugu.chains.arrays import Floats, Ints
from gateway.release.inversion import inversion, two_valued
from gateway.release.statistics import Estimates, Part, Query, noise_variance, quantile, rows_of

__all__ = ["Addend", "added", "answer", "combined", "symbols_addend", "symbols_variances", "windows_addend"]


class Addend(NamedTuple):
    """An answer for some devices.

    Attributes:
        values: (n,) unbiased counts of ticks, n = 1 but for a histogram.
        variances: (n,) bounds of their variances.
        steps: (n,) the largest weight of a single noise in each.
        ticks: that were observed.
    """

    values: Floats
    variances: Floats
    steps: Floats
    ticks: int

    def document(self) -> list[Any]:
        """As plain values, for JSON."""
        return [self.values.tolist(), self.variances.tolist(), self.steps.tolist(), self.ticks]

    @classmethod
    def of_document(cls, listed: Sequence[Any]) -> Addend:
        """What `document` made."""
        values, variances, steps = (np.array(one, dtype=np.float64) for one in listed[:3])
        return cls(values, variances, steps, listed[3])


def windows_addend(counts: Ints, numbers: Ints, scales: Sequence[Fraction], ticks: int) -> Addend:
    """The answer of a device's own windows.

    Args:
        counts: (w, n) noisy counts of each window that answer the query, added up over its states.
        numbers: (n,) how many noisy numbers of a window were added up.
        scales: (w,) of each window's noise.
        ticks: that the device has counted.
    """
    variance = sum(noise_variance(scale) for scale in scales)
    return Addend(
        counts.sum(axis=0).astype(np.float64),
        np.asarray(numbers * variance, dtype=np.float64),
        np.ones(len(numbers)),
        ticks,
    )


def symbols_addend(query: Query, parts: Sequence[Part], scale: Fraction) -> Addend:
    """The answer of noisy counts of symbols; `scale` is that of their noise."""
    values, steps = [], []
    for part in parts:
        rows, noises = rows_of(query, part.table)
        rule = two_valued(part.table, query.states) if len(part.counts) == 1 else None
        value = rows @ part.counts if rule is None else rule.a * part.counts + rule.b * part.ticks
        values.append(np.asarray(value, dtype=np.float64))
        steps.append(np.abs(noises).max(axis=1))
    variances = sum(symbols_variances(query, part, scale) for part in parts)
    return Addend(
        np.sum(values, axis=0), np.asarray(variances), np.max(steps, axis=0), sum(part.ticks for part in parts)
    )


def symbols_variances(query: Query, part: Part, scale: Fraction | None) -> Floats:
    """Bounds (n,) of the variances of what symbols of one table answer: for the worst of states at every tick.

    Args:
        query: a count, frequency or histogram.
        part: how many ticks, of which table.
        scale: of the noise that is added to the counts, or none.
    """
    emission, _ = inversion(part.table)
    rows, noises = rows_of(query, part.table)
    noise = 0.0 if scale is None else noise_variance(scale)
    spread = (rows**2 @ emission.T - (rows @ emission.T) ** 2).max(axis=1)
    return np.asarray(part.ticks * np.maximum(spread, 0.0) + noise * (noises**2).sum(axis=1), dtype=np.float64)


def combined(one: Addend, other: Addend) -> Addend:
    """Two answers for the same devices and ticks, weighed by the inverse of their variances."""
    weight = other.variances / (one.variances + other.variances)
    rest = 1.0 - weight
    return Addend(
        weight * one.values + rest * other.values,
        weight**2 * one.variances + rest**2 * other.variances,
        np.maximum(weight * one.steps, rest * other.steps),
        max(one.ticks, other.ticks),
    )


def added(addends: Sequence[Addend]) -> Addend:
    """Answers for different devices, added up."""
    values, variances, steps, ticks = zip(*addends, strict=True)
    return Addend(np.sum(values, axis=0), np.sum(variances, axis=0), np.max(steps, axis=0), sum(ticks))


def answer(query: Query, total: Addend, confidence: float) -> Estimates:
    """Values with standard errors and intervals, which are too wide rather than too narrow.

    Half of an interval is the larger of the normal and the Laplace quantile, and one step, because noise is whole.

    Args:
        query: a count, frequency or histogram.
        total: of all devices.
        confidence: of the intervals, in (0, 1).
    """
    errors = np.sqrt(total.variances)
    width = quantile(confidence) * errors + total.steps
    divisor = float(total.ticks) if query.kind == "frequency" else 1.0
    return Estimates(*(one / divisor for one in (total.values, errors, total.values - width, total.values + width)))
