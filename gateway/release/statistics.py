"""Statistics of a window: whole numbers of symbols, noise on them, and unbiased estimates about the states.

Three steps, so that it can be seen what is private. `SymbolCounter` counts symbols: not yet private for the public.
`noisy` adds exact discrete Laplace noise to every count. `estimate` computes values, standard errors and intervals from
the noisy counts and from numbers that are public anyway (how many ticks had a symbol), and from nothing else.

Sensitivities, in L1, to one symbol of one device: a count 1; a histogram 2 (one bin loses, another gains); pairs of
consecutive symbols 4 (a symbol is in two pairs). A group's counts are sums over devices, and one person's symbols are
in one of them: the same sensitivity, and noise is added once. Devices with different tables are counted apart, each
with its noise; a symbol is in one part only.

A value's error is that of randomised response, which is nearly normal, plus noise with heavier tails. Intervals take
the larger of the normal and the Laplace quantile, and at least the noise's own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from fractions import Fraction
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from contract.discrete_laplace import discrete_laplace
from contract.noise_table import NoiseTable
from contract.release_frames import QueryKind
from gateway.chain.arrays import Floats, Ints
from gateway.release.inversion import Inversion, ReleaseError, inversion, two_valued

__all__ = [
    "Estimates",
    "Part",
    "Query",
    "SymbolCounter",
    "dwell",
    "estimate",
    "half_widths",
    "noise_quantile",
    "noise_variance",
    "noisy",
    "sensitivity",
]


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
        steps: how many times two consecutive ticks have symbols.
        counts: (1,) symbols in the set that stands for the states, (m,) of each kind, or (m, m) pairs of consecutive
            ones.
    """

    table: NoiseTable
    ticks: int
    steps: int
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
    return np.maximum(max(normal, laplace) * errors, steps * noise_quantile(scale, confidence))


def noise_quantile(scale: Fraction, confidence: float) -> int:
    """What |noise| does not exceed with this probability: Pr(|noise| > n) = 2 p^(n+1) / (1 + p), p = e^(-1/scale)."""
    decay = 1.0 / float(scale)
    return max(math.ceil(-math.log((1.0 - confidence) * (1.0 + math.exp(-decay)) / 2.0) / decay) - 1, 0)


UNOBSERVED = -1


class SymbolCounter:
    """Counts symbols, a piece at a time.

    Args:
        query: what is asked.
    """

    def __init__(self, query: Query) -> None:
        self.query = query
        self._parts: dict[NoiseTable, Part] = {}

    def add(self, symbols: Ints, table: NoiseTable) -> None:
        """Count consecutive ticks (n,) of one device; -1 is a tick without a symbol.

        Raises:
            ReleaseError: the query cannot be answered from this table.
        """
        states = self.query.states
        whole = len(states) == table.states
        if not states or max(states) >= table.states or whole != (self.query.kind == "histogram"):
            raise ReleaseError(f"a {self.query.kind} of {len(states)} of {table.states} states says nothing")
        seen = symbols != UNOBSERVED
        both = seen[1:] & seen[:-1]
        counts = self._counts(symbols, seen, both, table)
        self.add_part(Part(table, int(seen.sum()), int(both.sum()), counts))

    def add_part(self, part: Part) -> None:
        """Add what was counted elsewhere, for the same query."""
        table, ticks, steps, counts = part
        before = self._parts.get(table, Part(table, 0, 0, np.zeros_like(counts)))
        self._parts[table] = Part(table, before.ticks + ticks, before.steps + steps, before.counts + counts)

    def _counts(self, symbols: Ints, seen: NDArray[np.bool_], both: NDArray[np.bool_], table: NoiseTable) -> Ints:
        m = table.symbols
        if self.query.kind == "dwell":
            inversion(table)
            return np.bincount((symbols[:-1] * m + symbols[1:])[both], minlength=m * m).reshape(m, m)
        histogram = np.bincount(symbols[seen], minlength=m)
        if self.query.kind == "histogram" or (rule := two_valued(table, self.query.states)) is None:
            inversion(table)
            return histogram
        return np.array([histogram[rule.symbols].sum()])

    @property
    def parts(self) -> tuple[Part, ...]:
        """What was counted, by table."""
        return tuple(self._parts.values())

    @property
    def ticks(self) -> int:
        """Ticks that had a symbol."""
        return sum(part.ticks for part in self.parts)

    @property
    def sensitivity(self) -> int:
        """The most that the counts change with one symbol, added up."""
        return sensitivity(self.parts)


def sensitivity(parts: Iterable[Part]) -> int:
    """The most that counts change with one symbol, added up; a symbol is in one of the parts."""
    return max((4 if part.counts.ndim == 2 else min(len(part.counts), 2) for part in parts), default=1)


def noisy(parts: tuple[Part, ...], scale: Fraction, draw: Callable[[int], int]) -> tuple[Part, ...]:
    """Add independent discrete Laplace noise to every count.

    Args:
        parts: from `SymbolCounter.parts`.
        scale: of the noise; the release's spread is sensitivity / scale.
        draw: uniform integers, draw(below) in range(below).
    """
    sizes = scale.numerator, scale.denominator
    result = []
    for part in parts:
        noise = np.array([discrete_laplace(draw, *sizes) for _ in range(part.counts.size)], dtype=np.int64)
        result.append(part._replace(counts=part.counts + noise.reshape(part.counts.shape)))
    return tuple(result)


def estimate(query: Query, parts: tuple[Part, ...], scale: Fraction, confidence: float = 0.95) -> Estimates:
    """Values with standard errors and intervals, from noisy counts.

    Args:
        query: what is asked.
        parts: noisy counts.
        scale: of their noise.
        confidence: of the intervals, in (0, 1).

    Raises:
        ReleaseError: there are no symbols (no pairs of consecutive ones, for a dwell time).
    """
    if query.kind == "dwell":
        return dwell(query.states, parts, scale, confidence)
    ticks = sum(part.ticks for part in parts)
    if ticks == 0:
        raise ReleaseError("no tick of the window has a symbol")
    answers = [_one_table(query, part, noise_variance(scale)) for part in parts]
    values, variances, steps = (np.array(column) for column in zip(*answers, strict=True))
    divisor = ticks if query.kind == "frequency" else 1
    errors, centre = np.sqrt(variances.sum(axis=0)) / divisor, values.sum(axis=0) / divisor
    width = half_widths(errors, steps.max(axis=0) / divisor, scale, confidence)
    return Estimates(centre, errors, centre - width, centre + width)


def _one_table(query: Query, part: Part, noise: float) -> tuple[Floats, Floats, Floats]:
    """Values (n,), their variances and the largest weight of a single noise in each."""
    emission, inverse = inversion(part.table)
    if len(part.counts) == 1:
        rule = two_valued(part.table, query.states)
        assert rule is not None
        value = rule.a * part.counts + rule.b * part.ticks
        inside = np.clip(value, 0.0, part.ticks)
        hit, miss = (1.0 - rule.b) / rule.a, -rule.b / rule.a  # Pr(symbol in Z | state in the set, or not)
        spread = inside * hit * (1.0 - hit) + (part.ticks - inside) * miss * (1.0 - miss)
        return np.asarray(value), np.asarray(rule.a**2 * (spread + noise)), np.array([rule.a])
    counts = inverse @ part.counts
    weights = inverse if query.kind == "histogram" else inverse[list(query.states)].sum(axis=0, keepdims=True)
    means = weights @ emission.T  # (n, k): what a tick in each state adds, on average
    spread = (weights**2 @ emission.T - means**2) @ _plausible(counts, part.ticks)
    variances = np.maximum(spread, 0.0) + noise * (weights**2).sum(axis=1)
    return np.asarray(weights @ part.counts), np.asarray(variances), np.asarray(np.abs(weights).max(axis=1))


def _plausible(counts: Floats, total: int) -> Floats:
    """Estimated counts made fit for variances: none negative, and with the true total."""
    positive = np.clip(counts, 0.0, None)
    return np.asarray(positive * (total / positive.sum()) if positive.sum() > 0.0 else positive, dtype=np.float64)


class _Sums(NamedTuple):
    """Pairs that begin in the set and that leave it; (m, m) weights of symbol pairs in each; (k, k) steps of states."""

    begin: float
    leave: float
    weight_begin: Floats
    weight_leave: Floats
    steps: Floats


def dwell(states: tuple[int, ...], parts: tuple[Part, ...], scale: Fraction, confidence: float) -> Estimates:
    """Estimate how many ticks a stay in the set lasts.

    The pairs' matrix of counts is inverted on both sides, R Y R'. The time is the number of pairs that begin in the set
    over those that begin there and leave it, a ratio; its inverse, the probability of leaving, is nearly linear
    in what is noisy, so the delta method is applied to that, and the interval's ends are turned over.

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
    steps = sum(part.steps for part in parts)
    if steps == 0:
        raise ReleaseError("no two consecutive ticks of the window have symbols")
    sums = [_sums(states, part) for part in parts]
    begin = min(max(sum(one.begin for one in sums), 1.0), float(steps))
    leaving = min(max(sum(one.leave for one in sums), 1.0) / begin, 1.0)
    variance, step = 0.0, 0.0
    for part, one in zip(parts, sums, strict=True):
        weights = one.weight_leave - leaving * one.weight_begin
        variance += _variance(weights, one.steps, inversion(part.table))
        variance += noise_variance(scale) * float((weights**2).sum())
        step = max(step, float(np.abs(weights).max()))
    error = np.array([np.sqrt(variance) / begin])
    width = float(half_widths(error, np.array([step / begin]), scale, confidence)[0])
    value = np.array([1.0 / leaving])
    low = 1.0 / min(leaving + width, 1.0)
    high = 1.0 / (leaving - width) if leaving - width > 1.0 / steps else float(steps)
    return Estimates(value, error * value**2, np.array([low]), np.maximum([high], value))


def _sums(states: tuple[int, ...], part: Part) -> _Sums:
    _, inverse = inversion(part.table)
    inside = np.zeros(len(inverse))
    inside[list(states)] = 1.0
    first, other = inside @ inverse, (1.0 - inside) @ inverse
    begin, leave = np.outer(first, inverse.sum(axis=0)), np.outer(first, other)
    steps = np.clip(inverse @ part.counts @ inverse.T, 0.0, None)
    steps *= part.steps / steps.sum() if steps.sum() > 0.0 else 0.0
    return _Sums(float((begin * part.counts).sum()), float((leave * part.counts).sum()), begin, leave, steps)


def _variance(weights: Floats, steps: Floats, table: Inversion) -> float:
    """Variance, given the states, of a weighted sum over pairs of consecutive symbols.

    Pairs that share a tick are correlated. How often states x, y, w follow each other is taken from the steps, as in a
    Markov chain: c[x,y] c[y,w] / c[y].
    """
    emission = table.emission
    means = emission @ weights @ emission.T
    alone = emission @ weights**2 @ emission.T - means**2
    left, right = emission @ weights, weights @ emission.T  # (k, m) and (m, k)
    shared = np.einsum("xz,yz,zw->xyw", left, emission, right, optimize=True) - means[:, :, None] * means[None, :, :]
    passing = steps.sum(axis=1)
    follow = np.divide(steps, passing[:, None], out=np.zeros_like(steps), where=passing[:, None] > 0.0)
    triples = steps[:, :, None] * follow[None, :, :]
    return max(float((steps * alone).sum() + 2.0 * (triples * shared).sum()), 0.0)
