"""Mean dwell time in a set of states, from noisy counts of pairs of consecutive symbols.

The pairs' matrix of counts is inverted on both sides, R Y R'. The time is the number of pairs that begin in the set
over those that begin there and leave it, which is a ratio; its inverse, the rate of leaving, is nearly linear in what
is noisy, so the delta method is applied to the rate, and the interval's ends are turned over.
"""

from __future__ import annotations

from fractions import Fraction
from typing import NamedTuple

import numpy as np

from gateway.chain.arrays import Floats
from gateway.release.inversion import Inversion, ReleaseError, inversion
from gateway.release.parts import Estimates, Part, half_widths, noise_variance

__all__ = ["dwell"]


class _Sums(NamedTuple):
    """Pairs that begin in the set and that leave it; (m, m) weights of symbol pairs in each; (k, k) pairs of states."""

    begin: float
    leave: float
    weight_begin: Floats
    weight_leave: Floats
    pairs: Floats


def dwell(states: tuple[int, ...], parts: tuple[Part, ...], scale: Fraction, confidence: float) -> Estimates:
    """Estimate how many ticks a stay in the set lasts.

    Args:
        states: the set.
        parts: noisy counts of pairs, by table.
        scale: of their noise.
        confidence: of the interval.

    Returns:
        One value, at least 1 tick; if nobody seems to leave, as long as all that was seen.

    Raises:
        ReleaseError: no two consecutive ticks have symbols.
    """
    pairs = sum(part.pairs for part in parts)
    if pairs == 0:
        raise ReleaseError("no two consecutive ticks of the window have symbols")
    sums = [_sums(states, part) for part in parts]
    begin = min(max(sum(one.begin for one in sums), 1.0), float(pairs))
    rate = min(max(sum(one.leave for one in sums), 1.0) / begin, 1.0)
    variance, step = 0.0, 0.0
    for part, one in zip(parts, sums, strict=True):
        weights = one.weight_leave - rate * one.weight_begin
        variance += _variance(weights, one.pairs, inversion(part.table))
        variance += noise_variance(scale) * float((weights**2).sum())
        step = max(step, float(np.abs(weights).max()))
    error = np.array([np.sqrt(variance) / begin])
    width = float(half_widths(error, np.array([step / begin]), scale, confidence)[0])
    value = np.array([1.0 / rate])
    low = 1.0 / min(rate + width, 1.0)
    high = 1.0 / (rate - width) if rate - width > 1.0 / pairs else float(pairs)
    return Estimates(value, error * value**2, np.array([low]), np.maximum([high], value))


def _sums(states: tuple[int, ...], part: Part) -> _Sums:
    _, inverse = inversion(part.table)
    inside = np.zeros(len(inverse))
    inside[list(states)] = 1.0
    first, other = inside @ inverse, (1.0 - inside) @ inverse
    begin, leave = np.outer(first, inverse.sum(axis=0)), np.outer(first, other)
    pairs = np.clip(inverse @ part.counts @ inverse.T, 0.0, None)
    pairs *= part.pairs / pairs.sum() if pairs.sum() > 0.0 else 0.0
    return _Sums(float((begin * part.counts).sum()), float((leave * part.counts).sum()), begin, leave, pairs)


def _variance(weights: Floats, pairs: Floats, table: Inversion) -> float:
    """Variance, given the states, of a weighted sum over pairs of consecutive symbols.

    Pairs that share a tick are correlated. How often states x, y, w follow each other is taken from the pairs, as in a
    Markov chain: c[x,y] c[y,w] / c[y].
    """
    emission = table.emission
    means = emission @ weights @ emission.T
    alone = emission @ weights**2 @ emission.T - means**2
    left, right = emission @ weights, weights @ emission.T  # (k, m) and (m, k)
    shared = np.einsum("xz,yz,zw->xyw", left, emission, right, optimize=True) - means[:, :, None] * means[None, :, :]
    passing = pairs.sum(axis=1)
    follow = np.divide(pairs, passing[:, None], out=np.zeros_like(pairs), where=passing[:, None] > 0.0)
    triples = pairs[:, :, None] * follow[None, :, :]
    return max(float((pairs * alone).sum() + 2.0 * (triples * shared).sum()), 0.0)
