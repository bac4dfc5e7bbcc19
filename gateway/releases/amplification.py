"""What a statistic over randomised symbols tells about states: less than about symbols, because symbols are noisy.

The likelihood of a release changes by a factor of at most e^c when one symbol changes (c = sensitivity / scale). With
every other tick's state held fixed, the symbols are independent, so the likelihood as a function g of one tick's symbol
stays within such a box, and what it tells of that tick's states x and x' is at most

    loss(c) = max over g in [1, e^c]^m of log( B[x].g / B[x'].g ).

A linear-fractional function on a box is largest at a corner, and the best corner puts e^c on the symbols Z whose
likelihood ratio B[x,z]/B[x',z] is above a threshold: with A = B[x](Z) > B[x'](Z) = B,

    F(c) = log( (1 - A + A e^c) / (1 - B + B e^c) ),       loss = max over pairs of states and thresholds.

**Several releases over the same symbols.** They are independent given the symbols, not given the states: together they
are one release with c1 + c2 + ..., and lose F(c1 + c2 + ...). That may be MORE than F(c1) + F(c2) + ... F' is h(u) =
sigma(u + logit A) - sigma(u + logit B), a hump, symmetric around u1 = -(logit A + logit B) / 2, so F is convex up to u1
and concave only after it. Example: rho0 = .3, rho1 = .1: F(1) = .6312 and 2 F(1/2) = .6231. So a release is not charged
F(c), but the least concave function above it:

    charge(c) = c F(c0) / c0  for c < c0,    F(c)  for c >= c0,    c0 in [u1, 2 u1] where the chord is the tangent,

and c0 = 0 if u1 <= 0. It is concave with charge(0) = 0, hence charge(c1 + c2) <= charge(c1) + charge(c2); and so is the
maximum of such functions over pairs and thresholds subadditive: charges of any number of releases may be added. The two
agree for symmetric randomised response; for the tables that calibration makes, the charge of a small release is less
than 5 % above its loss.

**Whether noise that was drawn is of its distribution**, judged by its mean size. Discrete Laplace noise of scale s has
the distribution Pr(n) proportional to p^|n|, p = e^(-1/s). Tilted by its size it is of the same kind with another p, so
that the bound of Chernoff is the divergence of two such distributions: of N independent numbers, the mean size is m or
further from what is expected, on the same side, with a probability of at most

    e^(-N D),    D = m log(q / p) + log( (1 - q)(1 + p) / ((1 + q)(1 - p)) ),

where q is the one for which the mean size is m, 2q / (1 - q^2) = m. For N times no noise at all this is exact. Source:
Chernoff: A Measure of Asymptotic Efficiency (1952), theorem 1, for an exponential family.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fugu.chains.arrays import Floats
from fugu.contract.noise_table import SCALE, NoiseTable
from fugu.contract.rounding import OUTWARD
from gateway.releases.charges import PER_NAT, units_above

__all__ = [
    "FALSE_ALARMS",
    "LEAST_SCALE",
    "amplified_loss",
    "charge",
    "largest_spread",
    "log_chance",
    "noise_problems",
    "scale_above",
    "smallest_scale",
]

FALSE_ALARMS = 1e-9
"""How probable it is that all noise of a ledger is right, and a problem is found with it."""


def log_chance(scale: Fraction, numbers: int, size: int) -> float:
    """A bound of the logarithm of the probability of so small or so large noise.

    Args:
        scale: of the noise.
        numbers: how many were drawn, at least 1.
        size: of all of them, without their signs, added up.
    """
    decay, mean = 1.0 / float(scale), size / numbers
    log_normal = math.log(math.tanh(decay / 2.0))  # of (1 - p) / (1 + p)
    if size == 0:
        return numbers * log_normal
    tilted = mean / (1.0 + math.hypot(1.0, mean))
    divergence = mean * (math.log(tilted) + decay) + math.log((1.0 - tilted) / (1.0 + tilted)) - log_normal
    return -numbers * max(divergence, 0.0)


def noise_problems(drawn: Mapping[Fraction, tuple[int, int]]) -> list[str]:
    """What cannot be chance, two-sided, and with all scales together at a rate of `FALSE_ALARMS`.

    Args:
        drawn: by scale, how many numbers got noise, and the sizes of it added up.
    """
    limit = math.log(FALSE_ALARMS / (2.0 * max(len(drawn), 1)))
    found = []
    for scale, (numbers, size) in drawn.items():
        if log_chance(scale, numbers, size) < limit:
            p = math.exp(-1.0 / float(scale))
            found.append(
                f"noise of scale {scale} is {size / numbers:.6g} on average over {numbers} numbers, and should be "
                f"{2.0 * p / (1.0 - p * p):.6g}: it was not drawn, or with another scale"
            )
    return found


LEAST_SCALE = Fraction(1, 10)
"""What is released always has noise, also where the table alone is within the allowance."""
_UP = 1.0 + OUTWARD  # far above the error of the few operations that follow, each within 2^-52
_MOST_SPREAD = 200.0  # e^c over a table of 32 bits is the table's own loss by then
_BISECTIONS = 48


class _Thresholds(NamedTuple):
    """Sets of symbols that matter: (n,) weights of 2^32 under two states, and each curve's tangent from the origin.

    Attributes:
        above, below: Pr(set | x) > Pr(set | x'), times 2^32; exact.
        slope: of the tangent from the origin, rounded up; 0 for a curve that is concave everywhere.
        touch: where it touches the curve, rounded up; 0 likewise.
    """

    above: Floats
    below: Floats
    slope: Floats
    touch: Floats


def amplified_loss(table: NoiseTable, spread: float) -> float:
    """The per-tick loss of one release over a table's symbols, rounded up: exact for one release, no bound for several.

    Args:
        spread: c, the most by which the release's log-likelihood changes with one symbol.

    Returns:
        max over ordered pairs of states, in nats; at most the spread, and at most the table's own loss.
    """
    sets = _thresholds(table)
    return _capped(_curve(sets, min(spread, _MOST_SPREAD)), spread)


def charge(table: NoiseTable, spread: float) -> float:
    """The per-tick loss to charge for a release over symbols, rounded up: charges of several releases add up.

    Returns:
        A subadditive bound of `amplified_loss`, in nats; at most the spread.
    """
    sets = _thresholds(table)
    spread_used = min(spread, _MOST_SPREAD)
    curve = np.where(spread_used < sets.touch, sets.slope * spread_used, _curve(sets, spread_used))
    return _capped(curve, spread)


def largest_spread(table: NoiseTable, loss: float) -> float:
    """The inverse of `amplified_loss`, not rounded: the most spread of one release whose loss is within a bound.

    The loss is above 0; the spread is infinite if the table alone does not lose more.
    """
    return float(_inverse(_thresholds(table), loss).min())


def smallest_scale(tables: Iterable[NoiseTable], sensitivity: int, budget: int) -> Fraction:
    """The least noise whose charge is within a budget, for symbols of any of the tables.

    Args:
        tables: at least one.
        sensitivity: the most by which one symbol changes the released counts, added up.
        budget: in units of `gateway.releases.charges`, at least 1.

    Returns:
        A scale of discrete Laplace noise, rounded up to a short fraction, and at least `LEAST_SCALE`.
    """
    known = list(tables)
    if budget < 1:
        raise ValueError("no scale is large enough for a budget of nothing")
    spread = min(_composable_inverse(_thresholds(table), budget / PER_NAT) for table in known)
    scale = scale_above(Fraction(sensitivity / spread) if math.isfinite(spread) else LEAST_SCALE)
    while max(units_above(charge(table, float_above(sensitivity / scale))) for table in known) > budget:
        scale = scale_above(scale * (1 + Fraction(1, 10**9)))
    return scale


def float_above(value: Fraction) -> float:
    """The least float that is not below a fraction."""
    nearest = float(value)
    return nearest if Fraction(nearest) >= value else math.nextafter(nearest, math.inf)


def scale_above(scale: Fraction) -> Fraction:
    """The next fraction with few digits that is not smaller, and at least `LEAST_SCALE`."""
    digits = 6 if scale < 100 else 3 if scale < 10**6 else 0
    return max(Fraction(math.ceil(scale * 10**digits), 10**digits), LEAST_SCALE)


@lru_cache(maxsize=256)
def _thresholds(table: NoiseTable) -> _Thresholds:
    """The threshold sets of every ordered pair of states, but for those that another one dominates."""
    weights = np.array(table.weights(), dtype=np.int64)
    points: list[NDArray[np.int64]] = []
    for row in weights:
        order = np.argsort(-(row / weights), axis=1, kind="stable")  # (k, m), by likelihood ratio over each other state
        above = np.cumsum(row[order], axis=1)[:, :-1]
        below = np.cumsum(np.take_along_axis(weights, order, axis=1), axis=1)[:, :-1]
        points.append(_undominated(np.stack([above.ravel(), below.ravel()], axis=1)))
    frontier = _undominated(np.concatenate(points)).astype(np.float64)
    return _Thresholds(frontier[:, 0], frontier[:, 1], *_tangents(frontier[:, 0], frontier[:, 1]))


def _undominated(points: NDArray[np.int64]) -> NDArray[np.int64]:
    """Points (a, b), a > b, without those that have another of no less a and no more b: F grows in a, falls in b."""
    points = points[points[:, 0] > points[:, 1]]
    points = points[np.lexsort((points[:, 1], -points[:, 0]))]
    least_before = np.minimum.accumulate(np.concatenate([[SCALE], points[:, 1]]))[:-1]
    return points[points[:, 1] < least_before]


def _tangents(above: Floats, below: Floats) -> tuple[Floats, Floats]:
    """Slope and end of each curve's tangent from the origin; zeros where the curve is concave.

    F(u)/u rises while F' exceeds it and F' = h falls after u1, so the end is where they meet; h(0) = h(2 u1) is less
    than the mean of h in between, so it lies before 2 u1. The slope is taken at the lower end of the last bracket,
    where h is larger: rounded up.
    """
    logit_above, logit_below = (np.log(w) - np.log(SCALE - w) for w in (above, below))
    crest = -(logit_above + logit_below) / 2.0
    convex = crest > 1e-12
    low, high = np.where(convex, crest, 0.0), np.where(convex, 2.0 * crest, 0.0)
    sets = _Thresholds(above, below, low, high)
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2.0
        rising = _curve(sets, middle) < middle * _derivative(sets, middle)
        low, high = np.where(rising, middle, low), np.where(rising, high, middle)
    slope = np.where(convex, _derivative(sets, low) * _UP, 0.0)
    return slope, np.where(convex, high * _UP, 0.0)


def _curve(sets: _Thresholds, spread: float | Floats) -> Floats:
    """F at a spread, each set its own; not rounded."""
    growth = np.expm1(spread)
    return np.log1p((sets.above - sets.below) * growth / (SCALE + sets.below * growth))


def _derivative(sets: _Thresholds, spread: Floats) -> Floats:
    growth = np.exp(spread)
    parts = [w * growth / (SCALE - w + w * growth) for w in (sets.above, sets.below)]
    return np.asarray(parts[0] - parts[1], dtype=np.float64)


def _capped(losses: Floats, spread: float) -> float:
    if not len(losses):  # every state has the same row: symbols say nothing
        return 0.0
    return min(float(losses.max()) * _UP, spread)


def _inverse(sets: _Thresholds, loss: float) -> Floats:
    """The spread at which F reaches a loss: e^c - 1 = 2^32 (e^loss - 1) / (a - b e^loss), infinite if it never does."""
    gain = math.expm1(min(loss, _MOST_SPREAD))
    slack = sets.above - sets.below - sets.below * gain
    with np.errstate(divide="ignore", invalid="ignore"):
        spread = np.where(slack > 0.0, np.log1p(SCALE * gain / slack), np.inf)
    return np.append(spread, np.inf)


def _composable_inverse(sets: _Thresholds, loss: float) -> float:
    """The spread at which the charge reaches a loss."""
    with np.errstate(divide="ignore", invalid="ignore"):
        straight = np.where(sets.slope > 0.0, loss / sets.slope, np.inf)
    curved = _inverse(sets, loss)[:-1]
    spread = np.where(straight < sets.touch, np.minimum(straight, np.inf), np.maximum(curved, 0.0))
    return float(np.append(spread, np.inf).min())
