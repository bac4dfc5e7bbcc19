"""Statistics of a window: whole numbers of symbols, noise on them, and unbiased estimates about the states.

Three steps show what is private. `count_symbols` counts symbols: the counts may not be published. `add_noise` adds
exact discrete Laplace noise to every count. `estimate` computes values, standard errors and intervals from the noisy
counts and from public numbers (how many ticks had a symbol), and from nothing else.

Sensitivities, in L1, to one symbol of one device: a count 1; a histogram 2 (one bin loses, another gains); pairs of
consecutive symbols 4 (a symbol is in two pairs). A group's counts are sums over devices, and one person's symbols are
of one device. So a group's sensitivity is the same, and noise is added once. Devices with different tables are counted
apart, each table's counts with their own noise; a symbol is in one tally only.

An interval holds every true count m that is no farther from the value than a quantile of m's error. The error is taken
for the states that make it largest. It is that of randomised response, nearly normal, plus noise with heavier tails.
The larger of the normal and the Laplace quantile is taken, and one step of the lattice of values is added. So coverage
is at least the stated confidence (enumerated by `tests/gateway/releases/test_coverage.py`). The standard error is an
estimate.

The inversion from counts of symbols to counts of states is unbiased, whatever the states were: E[symbol counts | state
counts c] = c B, so a k x m matrix R with B R' = I gives E[R symbol counts] = c. For m > k there are many such matrices.
The one used weighs symbols by their probability under uniform states: R = (B D B')^-1 B D with D = diag(1 / column
means). This R also keeps totals: its columns sum to 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from fractions import Fraction
from functools import lru_cache
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from fugu.chains.arrays import Bools, Floats, Ints
from fugu.contract.errors import FuguError
from fugu.contract.noise_table import SCALE, NoiseTable
from fugu.contract.queries import QUERIES, QueryKind
from fugu.contract.queries import Query as QueryDefinition
from fugu.core.noise import discrete_laplace

__all__ = [
    "UNOBSERVED",
    "Estimates",
    "Query",
    "Tally",
    "add_noise",
    "count_symbols",
    "estimate",
    "noise_variance",
    "quantile",
    "sensitivity",
    "two_valued_weights",
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

    symbols: Bools
    a: float
    b: float


@lru_cache(maxsize=256)
def inversion(table: NoiseTable) -> Inversion:
    """Invert an emission table. Raises FuguError if its symbols do not tell the states apart."""
    emission = np.array(table.weights(), dtype=np.float64) / SCALE
    weighted_emission = emission / emission.mean(axis=0)
    gram = weighted_emission @ emission.T
    if table.symbols < table.states or np.linalg.cond(gram) > _WORST_CONDITION:
        raise FuguError("the emission table has no inverse: its symbols do not tell the states apart")
    return Inversion(emission, np.linalg.solve(gram, weighted_emission))


@lru_cache(maxsize=256)
def two_valued_weights(table: NoiseTable, states: tuple[int, ...]) -> TwoValued | None:
    """Find the set of symbols whose count alone estimates the ticks in some states, as for randomised response.

    Returns `None` if the estimate needs a count of each symbol. Raises FuguError if the table has no inverse.
    """
    weights = inversion(table).inverse[list(states)].sum(axis=0)
    low_weight, high_weight = float(weights.min()), float(weights.max())
    in_set = weights > (low_weight + high_weight) / 2.0
    if np.abs(np.where(in_set, high_weight, low_weight) - weights).max() > _EQUAL * (high_weight - low_weight):
        return None
    return TwoValued(in_set, float(weights[in_set].mean()) - low_weight, low_weight)


class Query(NamedTuple):
    """A statistic: a count, frequency or mean dwell time of a set of states, or a histogram of all states in order."""

    kind: QueryKind
    states: tuple[int, ...]

    @property
    def definition(self) -> QueryDefinition:
        """The contract's definition of this kind of query."""
        return QUERIES[self.kind]

    @property
    def groups(self) -> tuple[tuple[int, ...], ...]:
        """The states that each number of the answer is about."""
        return self.definition.groups(self.states)


class Tally(NamedTuple):
    """Counts of symbols of one table.

    Attributes:
        ticks: number of ticks that have a symbol.
        steps: number of pairs of consecutive ticks that both have a symbol.
        counts: (1,) symbols in the set that stands for the states, (m,) of each kind, or (m, m) consecutive pairs.
    """

    table: NoiseTable
    ticks: int
    steps: int
    counts: Ints

    def plus(self, other: Tally) -> Tally:
        """Add up the counts of two tallies of one table."""
        return Tally(self.table, self.ticks + other.ticks, self.steps + other.steps, self.counts + other.counts)


class Estimates(NamedTuple):
    """Values with standard errors and interval ends, (n,) each, n = 1 but for a histogram; times are in ticks."""

    values: Floats
    standard_errors: Floats
    low: Floats
    high: Floats


@lru_cache(maxsize=256)
def noise_variance(scale: Fraction) -> float:
    """The variance of discrete Laplace noise of a scale: 2 p / (1 - p)^2, p = e^(-1/scale)."""
    log_power = float(-1 / scale) if scale > Fraction(1, 1000) else -math.inf
    return 2.0 * math.exp(log_power) / math.expm1(log_power) ** 2


@lru_cache(maxsize=16)
def quantile(confidence: float) -> float:
    """The number of standard errors that bound a normal or Laplace error, or their sum, with a probability."""
    return max(NormalDist().inv_cdf(0.5 + confidence / 2.0), -math.log(1.0 - confidence) / math.sqrt(2.0))


UNOBSERVED = -1
_CLOSE = 1e-9
_GRID = 200
"""Number of leaving probabilities that `dwell` tries: neighbours differ by 4 % if there are 4,000 steps."""


def count_symbols(query: Query, symbols: Ints, table: NoiseTable) -> Tally:
    """Count the symbols of n consecutive ticks (..., n), a line for each device; -1 is a tick without a symbol.

    Raises FuguError if the query cannot be answered from this table.
    """
    has_all_states = len(query.states) == table.states
    if not query.states or max(query.states) >= table.states or has_all_states != query.definition.per_state:
        raise FuguError(f"a {query.kind} of {len(query.states)} of {table.states} states says nothing")
    inversion(table)  # raises for a table without an inverse
    has_symbol, m = symbols != UNOBSERVED, table.symbols
    has_pair = has_symbol[..., 1:] & has_symbol[..., :-1]
    if query.definition.of_pairs:
        counts = np.bincount((symbols[..., :-1] * m + symbols[..., 1:])[has_pair], minlength=m * m).reshape(m, m)
    else:
        counts = np.bincount(symbols[has_symbol], minlength=m)
        rule = None if query.definition.per_state else two_valued_weights(table, query.states)
        counts = counts if rule is None else np.array([counts[rule.symbols].sum()])
    return Tally(table, int(has_symbol.sum()), int(has_pair.sum()), counts)


def sensitivity(tallies: Iterable[Tally]) -> int:
    """The most that counts change with one symbol, in L1; a symbol is in one of the tallies. 1 without tallies."""
    return max((4 if tally.counts.ndim == 2 else min(len(tally.counts), 2) for tally in tallies), default=1)


def add_noise(tallies: tuple[Tally, ...], scale: Fraction, draw: Callable[[int], int]) -> tuple[Tally, ...]:
    """Add independent discrete Laplace noise to every count; draw(below) is uniform in range(below)."""
    sizes = scale.numerator, scale.denominator
    noisy_tallies = []
    for tally in tallies:
        noise = np.array([discrete_laplace(draw, *sizes) for _ in range(tally.counts.size)], dtype=np.int64)
        noisy_tallies.append(tally._replace(counts=tally.counts + noise.reshape(tally.counts.shape)))
    return tuple(noisy_tallies)


def estimate(query: Query, tallies: tuple[Tally, ...], scale: Fraction, confidence: float = 0.95) -> Estimates:
    """Estimate a query's values with standard errors and intervals, from noisy counts and the scale of their noise.

    Raises FuguError if there are no symbols (no pairs of consecutive ones, for a dwell time).
    """
    if query.definition.of_pairs:
        return dwell(query.states, tallies, scale, confidence)
    ticks = sum(tally.ticks for tally in tallies)
    if ticks == 0:
        raise FuguError("no tick of the window has a symbol")
    columns = zip(*(_table_values(query, tally, scale) for tally in tallies), strict=True)
    values, variances = (np.sum(column, axis=0) for column in columns)
    low_ends, high_ends = _interval_ends(query, tallies, scale, values, confidence)
    divisor = query.definition.divisor(ticks)
    return Estimates(*(column / divisor for column in (values, np.sqrt(variances), low_ends, high_ends)))


class Weights(NamedTuple):
    """Weights of a query's n values, for a table of m symbols and k states.

    Attributes:
        amounts: (n, m) the amount that each symbol adds to each value.
        noisy_counts: how many counts get noise: 1 if one count is enough, else m.
        steps: (n,) the largest amount that a single noise of 1 adds.
        noise: (n,) the variance that noise of variance 1 on each count adds.
        spread: (n, k) the variance of the amount that a tick in each state adds.
    """

    amounts: Floats
    noisy_counts: int
    steps: Floats
    noise: Floats
    spread: Floats


@lru_cache(maxsize=256)
def weights_of(query: Query, table: NoiseTable) -> Weights:
    """Compute the weights of a query for a table. Raises FuguError if the table has no inverse."""
    emission, inverse = inversion(table)
    amounts = noises = inverse
    if not query.definition.per_state:
        rule = two_valued_weights(table, query.states)
        amounts = noises = inverse[list(query.states)].sum(axis=0, keepdims=True)
        noises = noises if rule is None else np.array([[rule.a]])
    spread = np.maximum(amounts**2 @ emission.T - (amounts @ emission.T) ** 2, 0.0)
    return Weights(amounts, noises.shape[1], np.abs(noises).max(axis=1), (noises**2).sum(axis=1), spread)


def values_of(query: Query, tally: Tally) -> Floats:
    """Estimate without bias how many ticks (n,) were in a query's states, from counts of symbols."""
    rule = two_valued_weights(tally.table, query.states) if len(tally.counts) == 1 else None
    if rule is None:
        return weights_of(query, tally.table).amounts @ tally.counts
    return np.asarray(rule.a * tally.counts + rule.b * tally.ticks)


def _table_values(query: Query, tally: Tally, scale: Fraction) -> tuple[Floats, Floats]:
    """The values (n,) of one table's counts, and estimates (n,) of their variances."""
    *_, noise, spread = weights_of(query, tally.table)
    noise, values = noise_variance(scale) * noise, values_of(query, tally)
    if len(tally.counts) > 1:
        state_counts = _plausible_counts(inversion(tally.table).inverse @ tally.counts, tally.ticks)
        return values, spread @ state_counts + noise
    inside_ticks = np.clip(values, 0.0, tally.ticks)
    inside_variance, outside_variance = spread[0, query.states[0]], np.delete(spread[0], query.states)[0]
    return values, inside_ticks * inside_variance + (tally.ticks - inside_ticks) * outside_variance + noise


def _interval_ends(
    query: Query, tallies: tuple[Tally, ...], scale: Fraction, values: Floats, confidence: float
) -> tuple[Floats, Floats]:
    """The ends (n,) of the intervals: the least and the largest true counts that the values do not contradict."""
    interval_ends, ticks = [], float(sum(tally.ticks for tally in tallies))
    for index, (states, value) in enumerate(zip(query.groups, values.tolist(), strict=True)):
        error = _worst_error(query, index, states, tallies, scale, confidence)
        centre = min(max(value, 0.0), ticks)
        low, high = _farthest_truth(centre, 0.0, error), _farthest_truth(centre, ticks, error)
        interval_ends.append((min(low, value), max(high, value)))
    low, high = np.array(interval_ends).T
    return low, high


def _worst_error(
    query: Query, index: int, states: tuple[int, ...], tallies: tuple[Tally, ...], scale: Fraction, confidence: float
) -> Callable[[float], float]:
    """Return a function from the number of ticks in the states at `index` to the largest error of their value.

    The largest variance is concave and piecewise linear in that number, because the tables with the largest gain in
    variance are filled first. The largest weight of a single noise is added to the quantile.
    """
    least_variance, step, variance_gains = 0.0, 0.0, []
    for tally in tallies:
        *_, steps, noise, spread = weights_of(query, tally.table)
        inside, outside = spread[index, list(states)].max(), np.delete(spread[index], states).max()
        least_variance += tally.ticks * outside + noise_variance(scale) * noise[index]
        step = max(step, float(steps[index]))
        variance_gains.append((inside - outside, tally.ticks))
    variance_gains.sort(reverse=True)
    tick_sums = np.cumsum([0.0, *(ticks for _, ticks in variance_gains)])
    variances = least_variance + np.cumsum([0.0, *(gain * ticks for gain, ticks in variance_gains)])
    return lambda truth: quantile(confidence) * math.sqrt(np.interp(truth, tick_sums, variances)) + step


def _farthest_truth(centre: float, end: float, error: Callable[[float], float]) -> float:
    """Find the true count, from the centre towards an end, farthest away and still within its error of the centre.

    The result may be a little farther. The error is concave, so all counts up to that one are within their errors.
    """
    if abs(centre - end) <= error(end):
        return end
    near, far = centre, end
    while abs(far - near) > _CLOSE * max(abs(end - centre), 1.0):
        middle = (near + far) / 2.0
        near, far = (middle, far) if abs(centre - middle) <= error(middle) else (near, middle)
    return far


def _plausible_counts(counts: Floats, ticks: int) -> Floats:
    """Clip estimated counts at 0 and scale them to the true total, so that variances can be computed from them."""
    clipped = np.clip(counts, 0.0, None)
    return np.asarray(clipped * (ticks / clipped.sum()) if clipped.sum() > 0.0 else clipped, dtype=np.float64)


def dwell(states: tuple[int, ...], tallies: tuple[Tally, ...], scale: Fraction, confidence: float) -> Estimates:
    """Estimate how many ticks a stay in the set lasts: at least 1, and at most the number of pairs of ticks.

    The pairs' matrix of counts is inverted on both sides, R Y R'. The time is the number of pairs that begin in the set
    over the number of pairs that begin there and leave it. The interval has every time 1/p for which "leave - p begin",
    which is 0 on average if p is true, is near 0. FuguError: no two ticks in a row have symbols, or no inverse.

    Source: Fieller, "Some problems in interval estimation" (1954).
    """
    steps = sum(tally.steps for tally in tallies)
    if steps == 0:
        raise FuguError("no two consecutive ticks of the window have symbols")
    weights = [_pair_weights(states, tally.table) for tally in tallies]
    pair_counts = [
        [(pair_weights * tally.counts).sum() for pair_weights in table_weights]
        for table_weights, tally in zip(weights, tallies, strict=True)
    ]
    begin_count, leave_count = map(float, np.sum(pair_counts, axis=0))
    positive_count = min(max(begin_count, 1.0), float(steps))
    leave_rate = min(max(leave_count, 1.0) / positive_count, 1.0)
    dwell_time = 1.0 / leave_rate

    def error_of(probability: float) -> tuple[float, float]:
        """The standard error of "leave - p begin", and the largest weight of a single noise in it."""
        variance, step = 0.0, 0.0
        for tally, (begin_weights, leave_weights) in zip(tallies, weights, strict=True):
            difference = leave_weights - probability * begin_weights
            stay_variance, change_variance = _worst_pair_variances(difference, states, tally.table)
            # Of two changes one leaves the set, but for the first of a stretch; a change is in two triples of ticks.
            change_count = min(4.0 * probability * steps + 2.0 * (tally.ticks - tally.steps), tally.steps)
            noise = noise_variance(scale) * float((difference**2).sum())
            variance += (tally.steps - change_count) * stay_variance + change_count * change_variance + noise
            step = max(step, float(np.abs(difference).max()))
        return math.sqrt(variance), step

    def is_possible(probability: float) -> bool:
        error, step = error_of(probability)
        return abs(leave_count - probability * begin_count) <= quantile(confidence) * error + step

    standard_error = error_of(leave_rate)[0] / positive_count * dwell_time**2
    grid = np.geomspace(1.0 / steps, 1.0, _GRID).tolist()
    low, high = dwell_time, float(steps)
    if possible := [index for index, probability in enumerate(grid) if is_possible(probability)]:
        low = 1.0 / grid[min(possible[-1] + 1, _GRID - 1)]
        high = high if is_possible(0.0) else 1.0 / grid[max(possible[0] - 1, 0)]
    interval = min(low, dwell_time), max(high, dwell_time)
    return Estimates(*(np.array([column]) for column in (dwell_time, standard_error, *interval)))


def _pair_weights(states: tuple[int, ...], table: NoiseTable) -> tuple[Floats, Floats]:
    """Weights (m, m) of symbol pairs that estimate how many pairs of ticks begin in the set, and how many leave it."""
    _, inverse = inversion(table)
    in_set = np.zeros(len(inverse))
    in_set[list(states)] = 1.0
    inside_weights, outside_weights = in_set @ inverse, (1.0 - in_set) @ inverse
    return np.outer(inside_weights, inverse.sum(axis=0)), np.outer(inside_weights, outside_weights)


def _worst_pair_variances(weights: Floats, states: tuple[int, ...], table: NoiseTable) -> tuple[float, float]:
    """Largest variances that one pair adds to a weighted sum over consecutive pairs of symbols.

    Pairs that share a tick are correlated, and their covariance is counted with the first pair. So three ticks matter.
    Returns the largest variance if all three are in the set or none is, and the largest of any three.
    """
    emission, _ = inversion(table)
    means = emission @ weights @ emission.T
    pair_variances = emission @ weights**2 @ emission.T - means**2
    left, right = emission @ weights, weights @ emission.T  # (k, m) and (m, k)
    covariances = (left[:, None, :] * emission) @ right - means[:, :, None] * means
    spread = np.maximum(pair_variances[:, :, None] + 2.0 * np.maximum(covariances, 0.0), 0.0)
    return float(spread[_same_side_triples(states, table.states)].max()), float(spread.max())


@lru_cache(maxsize=64)
def _same_side_triples(states: tuple[int, ...], state_count: int) -> Bools:
    """Tell for each triple of states (k, k, k) whether all three are in the set, or none is."""
    in_set = np.isin(np.arange(state_count), states)
    return np.asarray((in_set[:, None, None] == in_set[:, None]) & (in_set[:, None] == in_set))
