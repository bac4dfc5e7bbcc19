"""Statistics of a window: whole numbers of symbols, noise on them, and unbiased estimates about the states.

Three steps, so that it can be seen what is private. `SymbolCounter` counts symbols: not yet private for the public.
`noisy` adds exact discrete Laplace noise to every count. `estimate` computes values, standard errors and intervals from
the noisy counts and from public numbers (how many ticks had a symbol), and from nothing else.

Sensitivities, in L1, to one symbol of one device: a count 1; a histogram 2 (one bin loses, another gains); pairs of
consecutive symbols 4 (a symbol is in two pairs). A group's counts are sums over devices, and one person's symbols are
in one of them: the same sensitivity, and noise is added once. Devices with different tables are counted apart, each
with its noise; a symbol is in one part only.

An interval holds every truth m whose value is no farther from m than a quantile of the error that m would have, with
whatever states give the largest. The error is that of randomised response, nearly normal, plus noise with heavier
tails. The larger of the normal and the Laplace quantile is taken, and one step of the lattice of values is added. So
coverage is at least what is stated (enumerated by `tests/gateway/releases/test_coverage.py`); the standard error is an
estimate.

The inversion from counts of symbols to counts of states is unbiased, whatever the states were: E[symbol counts | state
counts c] = c B, so a k x m matrix R with B R' = I gives E[R symbol counts] = c. For m > k there are many such. The one
used weighs symbols by their probability under uniform states: R = (B D B')^-1 B D with D = diag(1 / column means). It
also keeps totals: the columns of R sum to 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fugu.chains.arrays import Floats, Ints
from fugu.contract.errors import FuguError
from fugu.contract.noise_table import SCALE, NoiseTable
from fugu.contract.queries import QUERIES, QueryKind
from fugu.contract.queries import Query as Asked
from fugu.core.noise import discrete_laplace

__all__ = [
    "UNOBSERVED",
    "Estimates",
    "Part",
    "Query",
    "SymbolCounter",
    "estimate",
    "inversion",
    "noise_variance",
    "noisy",
    "quantile",
    "sensitivity",
    "two_valued",
    "values_of",
    "weights_of",
]

_WORST_CONDITION = 1e8
_EQUAL = 1e-7


class Inversion(NamedTuple):
    """An emission table as a matrix B (k, m), and its right inverse R (k, m): B R' = I."""

    emission: Floats
    inverse: Floats


class TwoValued(NamedTuple):
    """A count of states as a * (symbols in Z) + b * (all symbols); `symbols` (m,) says whether a symbol is in Z."""

    symbols: NDArray[np.bool_]
    a: float
    b: float


@lru_cache(maxsize=256)
def inversion(table: NoiseTable) -> Inversion:
    """Invert a table. Raises FuguError if its symbols do not tell the states apart."""
    emission = np.array(table.weights(), dtype=np.float64) / SCALE
    weighted = emission / emission.mean(axis=0)
    gram = weighted @ emission.T
    if table.symbols < table.states or np.linalg.cond(gram) > _WORST_CONDITION:
        raise FuguError("the emission table has no inverse: its symbols do not tell the states apart")
    return Inversion(emission, np.linalg.solve(gram, weighted))


@lru_cache(maxsize=256)
def two_valued(table: NoiseTable, states: tuple[int, ...]) -> TwoValued | None:
    """How to count some states, not all, by one count of symbols, as for randomised response; `None` if impossible.

    Raises FuguError if the table has no inverse.
    """
    weights = inversion(table).inverse[list(states)].sum(axis=0)
    low, high = float(weights.min()), float(weights.max())
    in_set = weights > (low + high) / 2.0
    if np.abs(np.where(in_set, high, low) - weights).max() > _EQUAL * (high - low):
        return None
    return TwoValued(in_set, float(weights[in_set].mean()) - low, low)


class Query(NamedTuple):
    """A count, frequency or mean dwell time of a set of states, or a histogram of all, in order."""

    kind: QueryKind
    states: tuple[int, ...]

    @property
    def asked(self) -> Asked:
        """Question to be answered."""
        return QUERIES[self.kind]

    @property
    def groups(self) -> tuple[tuple[int, ...], ...]:
        """For each number of the answer the states that it is about."""
        return self.asked.groups(self.states)


class Part(NamedTuple):
    """Counts of symbols of one table.

    Attributes:
        steps: how many times two consecutive ticks have symbols.
        counts: (1,) symbols in the set that stands for the states, (m,) of each kind, or (m, m) consecutive pairs.
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


@lru_cache(maxsize=256)
def noise_variance(scale: Fraction) -> float:
    """Variance of the noise: 2 p / (1 - p)^2, p = e^(-1/scale)."""
    power = float(-1 / scale) if scale > Fraction(1, 1000) else -math.inf
    return 2.0 * math.exp(power) / math.expm1(power) ** 2


@lru_cache(maxsize=16)
def quantile(confidence: float) -> float:
    """Standard errors within which an error is with this probability, normal or Laplace or a sum of both."""
    return max(NormalDist().inv_cdf(0.5 + confidence / 2.0), -math.log(1.0 - confidence) / math.sqrt(2.0))


UNOBSERVED = -1
_CLOSE = 1e-9
_GRID = 200
"""Probabilities of leaving that are tried: neighbours differ by 4 % where there are 4,000 steps."""


@dataclass(slots=True)
class SymbolCounter:
    """Counts symbols, a piece at a time."""

    query: Query
    _parts: dict[NoiseTable, Part] = field(default_factory=dict, init=False)

    def add(self, symbols: Ints, table: NoiseTable) -> None:
        """Count consecutive ticks (..., n) of devices, each its own line; -1 is a tick without a symbol.

        Raises FuguError if the query cannot be answered from this table.
        """
        states = self.query.states
        whole = len(states) == table.states
        if not states or max(states) >= table.states or whole != self.query.asked.each:
            raise FuguError(f"a {self.query.kind} of {len(states)} of {table.states} states says nothing")
        seen = symbols != UNOBSERVED
        both = seen[..., 1:] & seen[..., :-1]
        counts = self._counts(symbols, seen, both, table)
        _, ticks, steps, before = self._parts.get(table, (table, 0, 0, np.zeros_like(counts)))
        self._parts[table] = Part(table, ticks + int(seen.sum()), steps + int(both.sum()), before + counts)

    def _counts(self, symbols: Ints, seen: NDArray[np.bool_], both: NDArray[np.bool_], table: NoiseTable) -> Ints:
        m = table.symbols
        if self.query.asked.pairs:
            inversion(table)
            return np.bincount((symbols[..., :-1] * m + symbols[..., 1:])[both], minlength=m * m).reshape(m, m)
        histogram = np.bincount(symbols[seen], minlength=m)
        if self.query.asked.each or (rule := two_valued(table, self.query.states)) is None:
            inversion(table)
            return histogram
        return np.array([histogram[rule.symbols].sum()])

    @property
    def parts(self) -> tuple[Part, ...]:
        """The counts, by table."""
        return tuple(self._parts.values())


def sensitivity(parts: Iterable[Part]) -> int:
    """The most that counts change with one symbol, added up; a symbol is in one of the parts."""
    return max((4 if part.counts.ndim == 2 else min(len(part.counts), 2) for part in parts), default=1)


def noisy(parts: tuple[Part, ...], scale: Fraction, draw: Callable[[int], int]) -> tuple[Part, ...]:
    """Add independent discrete Laplace noise to every count; draw(below) is uniform in range(below)."""
    sizes = scale.numerator, scale.denominator
    result = []
    for part in parts:
        noise = np.array([discrete_laplace(draw, *sizes) for _ in range(part.counts.size)], dtype=np.int64)
        result.append(part._replace(counts=part.counts + noise.reshape(part.counts.shape)))
    return tuple(result)


def estimate(query: Query, parts: tuple[Part, ...], scale: Fraction, confidence: float = 0.95) -> Estimates:
    """Values with standard errors and intervals, from noisy counts and the scale of their noise.

    Raises FuguError if there are no symbols (no pairs of consecutive ones, for a dwell time).
    """
    if query.asked.pairs:
        return dwell(query.states, parts, scale, confidence)
    ticks = sum(part.ticks for part in parts)
    if ticks == 0:
        raise FuguError("no tick of the window has a symbol")
    values, variances = (
        sum(column) for column in zip(*(_one_table(query, part, scale) for part in parts), strict=True)
    )
    low, high = _bounds(query, parts, scale, np.asarray(values), confidence)
    divisor = query.asked.divisor(ticks)
    return Estimates(*(column / divisor for column in (np.asarray(values), np.sqrt(variances), low, high)))


class Weights(NamedTuple):
    """Weights of a query's values.

    Attributes:
        rows: (n, m) what a symbol adds to each value.
        noises: (n, c) what noise on each count adds; c = 1 if one count will do.
        spread: (n, k) the variance of what a tick in each state adds.
    """

    rows: Floats
    noises: Floats
    spread: Floats


@lru_cache(maxsize=256)
def weights_of(query: Query, table: NoiseTable) -> Weights:
    """The weights of a table's symbols. Raises FuguError if the table has no inverse."""
    emission, inverse = inversion(table)
    rows = noises = inverse
    if not query.asked.each:
        rule = two_valued(table, query.states)
        rows = noises = inverse[list(query.states)].sum(axis=0, keepdims=True)
        noises = noises if rule is None else np.array([[rule.a]])
    return Weights(rows, noises, np.maximum(rows**2 @ emission.T - (rows @ emission.T) ** 2, 0.0))


def values_of(query: Query, part: Part) -> Floats:
    """Unbiased counts of ticks (n,) that counts of symbols stand for."""
    rule = two_valued(part.table, query.states) if len(part.counts) == 1 else None
    if rule is None:
        return np.asarray(weights_of(query, part.table).rows @ part.counts)
    return np.asarray(rule.a * part.counts + rule.b * part.ticks)


def _one_table(query: Query, part: Part, scale: Fraction) -> tuple[Floats, Floats]:
    """Values (n,), and estimates of their variances."""
    _, noises, spread = weights_of(query, part.table)
    added = noise_variance(scale) * (noises**2).sum(axis=1)
    values = values_of(query, part)
    if len(part.counts) > 1:
        states = _plausible(inversion(part.table).inverse @ part.counts, part.ticks)
        return values, spread @ states + added
    inside = np.clip(values, 0.0, part.ticks)
    hit, miss = spread[0, query.states[0]], np.delete(spread[0], query.states)[0]
    return values, inside * hit + (part.ticks - inside) * miss + added


def _bounds(
    query: Query, parts: tuple[Part, ...], scale: Fraction, values: Floats, confidence: float
) -> tuple[Floats, Floats]:
    """Ends (n,) of the intervals: the least and the largest count that the values do not contradict."""
    ends = []
    for j, (states, value) in enumerate(zip(query.groups, values.tolist(), strict=True)):
        ticks, variances, step = _worst_variances(query, j, states, parts, scale)
        centre = min(max(value, 0.0), float(ticks[-1]))

        def error(truth: float, ticks: Floats = ticks, variances: Floats = variances, step: float = step) -> float:
            return quantile(confidence) * math.sqrt(np.interp(truth, ticks, variances)) + step

        ends.append((min(_farthest(centre, 0.0, error), value), max(_farthest(centre, float(ticks[-1]), error), value)))
    low, high = np.array(ends).T
    return low, high


def _worst_variances(
    query: Query, j: int, states: tuple[int, ...], parts: tuple[Part, ...], scale: Fraction
) -> tuple[Floats, Floats, float]:
    """Largest variance of value j, for every number of ticks in a set of states; and the largest weight of one noise.

    It is concave and linear between some numbers of ticks: those are filled first whose table makes most of them.
    The numbers of ticks rise from 0 to all.
    """
    rest, step, gains = 0.0, 0.0, []
    for part in parts:
        _, noises, spread = weights_of(query, part.table)
        inside, outside = spread[j, list(states)].max(), np.delete(spread[j], states).max()
        rest += part.ticks * outside + noise_variance(scale) * (noises[j] ** 2).sum()
        step = max(step, float(np.abs(noises[j]).max()))
        gains.append((inside - outside, part.ticks))
    gains.sort(reverse=True)
    ticks = np.cumsum([0.0, *(ticks for _, ticks in gains)])
    return ticks, rest + np.cumsum([0.0, *(gain * ticks for gain, ticks in gains)]), step


def _farthest(centre: float, end: float, error: Callable[[float], float]) -> float:
    """The truth farthest towards an end that is within its error of the centre, or a little farther.

    The error is concave, so that all truths up to that one are within theirs.
    """
    if abs(centre - end) <= error(end):
        return end
    inside, outside = centre, end
    while abs(outside - inside) > _CLOSE * max(abs(end - centre), 1.0):
        middle = (inside + outside) / 2.0
        inside, outside = (middle, outside) if abs(centre - middle) <= error(middle) else (inside, middle)
    return outside


def _plausible(counts: Floats, total: int) -> Floats:
    """Estimated counts made fit for variances: none negative, and with the true total."""
    positive = np.clip(counts, 0.0, None)
    return np.asarray(positive * (total / positive.sum()) if positive.sum() > 0.0 else positive, dtype=np.float64)


def dwell(states: tuple[int, ...], parts: tuple[Part, ...], scale: Fraction, confidence: float) -> Estimates:
    """Estimate how many ticks a stay in the set lasts: at least 1, and all that was seen if nobody seems to leave.

    The pairs' matrix of counts is inverted on both sides, R Y R'. The time is the number of pairs that begin in the set
    over those that begin there and leave it. The interval has every time 1/p for which "leave - p begin", which is 0 on
    average if p is true, is near 0. Raises FuguError if no two consecutive ticks have symbols.

    Source: Fieller, "Some problems in interval estimation" (1954).
    """
    steps = sum(part.steps for part in parts)
    if steps == 0:
        raise FuguError("no two consecutive ticks of the window have symbols")
    weights = [_pair_weights(states, part.table) for part in parts]
    begins = sum(float((begin * part.counts).sum()) for (begin, _), part in zip(weights, parts, strict=True))
    leaves = sum(float((leave * part.counts).sum()) for (_, leave), part in zip(weights, parts, strict=True))
    begin = min(max(begins, 1.0), float(steps))
    leaving = min(max(leaves, 1.0) / begin, 1.0)
    value, error = 1.0 / leaving, 0.0

    def possible(probability: float) -> bool:
        variance, step = 0.0, 0.0
        for part, (of_begin, of_leave) in zip(parts, weights, strict=True):
            difference = of_leave - probability * of_begin
            stay, change = _worst_variances_of_a_pair(difference, states, part.table)
            # Of two changes one leaves, but for the first of every piece; a change is in two triples of ticks.
            changes = min(4.0 * probability * steps + 2.0 * (part.ticks - part.steps), part.steps)
            variance += (
                (part.steps - changes) * stay + changes * change + noise_variance(scale) * float((difference**2).sum())
            )
            step = max(step, float(np.abs(difference).max()))
        nonlocal error
        error = math.sqrt(variance) / begin
        return abs(leaves - probability * begins) <= quantile(confidence) * math.sqrt(variance) + step

    possible(leaving)
    standard_error = error * value**2
    grid = np.geomspace(1.0 / steps, 1.0, _GRID).tolist()
    first = next((i for i, probability in enumerate(grid) if possible(probability)), None)
    low, high = value, float(steps)
    if first is not None:
        last = next(i for i in range(_GRID - 1, -1, -1) if possible(grid[i]))
        low = 1.0 / grid[min(last + 1, _GRID - 1)]
        high = high if possible(0.0) else 1.0 / grid[max(first - 1, 0)]
    ends = min(low, value), max(high, value)
    return Estimates(*(np.array([column]) for column in (value, standard_error, *ends)))


def _pair_weights(states: tuple[int, ...], table: NoiseTable) -> tuple[Floats, Floats]:
    """Weights of (m, m) pairs of symbols for the pairs that begin in the set, and to those that leave it."""
    _, inverse = inversion(table)
    inside = np.zeros(len(inverse))
    inside[list(states)] = 1.0
    first, other = inside @ inverse, (1.0 - inside) @ inverse
    return np.outer(first, inverse.sum(axis=0)), np.outer(first, other)


def _worst_variances_of_a_pair(weights: Floats, states: tuple[int, ...], table: NoiseTable) -> tuple[float, float]:
    """Largest variance that one pair adds to a weighted sum over consecutive pairs of symbols.

    Pairs that share a tick are correlated: the covariance belongs to the first. So this is about three ticks: the
    largest where all three are in the set or none is, and that of any three.
    """
    emission, _ = inversion(table)
    means = emission @ weights @ emission.T
    alone = emission @ weights**2 @ emission.T - means**2
    left, right = emission @ weights, weights @ emission.T  # (k, m) and (m, k)
    shared = (left[:, None, :] * emission) @ right - means[:, :, None] * means
    spread = np.maximum(alone[:, :, None] + 2.0 * np.maximum(shared, 0.0), 0.0)
    return float(spread[_of_one_side(states, table.states)].max()), float(spread.max())


@lru_cache(maxsize=64)
def _of_one_side(states: tuple[int, ...], many: int) -> NDArray[np.bool_]:
    """Which of three states (k, k, k) are all in the set, or none."""
    inside = np.isin(np.arange(many), states)
    return np.asarray((inside[:, None, None] == inside[:, None]) & (inside[:, None] == inside))
