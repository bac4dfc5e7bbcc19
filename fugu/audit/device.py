"""A device's randomness, from the bytes that it publishes: whether draws are independent and follow their distribution.

Each test has a stated chance of an alarm without a fault:

- frequencies: how often every cell came, against its exact binomial distribution, two-sided;
- lags: how often two draws at a distance are both in one half of the cells, for up to a million distances;
- repeats: whether a stretch of draws, so long that no two should be equal, comes twice;
- streams: the same as lags, between the draws of two streams;
- scale: of a count's noise, by the likelihood ratio against another scale, and against counts without noise.

A third of the rate goes to each of the first three, shared out equally among its comparisons. A hundred million draws
are taken a piece at a time: nothing but the draws themselves grows with their number.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import combinations, compress, product
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import special, stats

from fugu.contract.measure_frames import Point
from fugu.contract.measure_policy import MeasurePolicy
from fugu.contract.measure_table import Noise, StaircaseNoise, TimedTable
from fugu.contract.noise_table import SCALE, NoiseTable
from fugu.contract.policies import AnyPolicy
from fugu.contract.policy import Policy

__all__ = ["Tested", "device_tests", "inside_distribution"]


Distribution = NDArray[np.float64]
Cells = NDArray[np.integer]

_STEPS = 20
"""Cells of a count's noise on either side, a quarter of the scale wide."""


def symbol_distribution(table: NoiseTable, state: int) -> Distribution:
    """(m,) probabilities of all symbols in a state."""
    return np.array(table.row_weights(state)) / SCALE


def count_cells(noise: Sequence[int], scale: Fraction) -> tuple[Cells, Distribution]:
    """The cells of discrete Laplace noise, and their distribution: of a count without what was counted.

    P(N >= n) = a^n / (1 + a) for n >= 1, with a = e^(-1/scale), and N is symmetric about 0.
    """
    a = np.exp(-float(1 / scale))
    upper = np.unique([1 + int(step * scale / 4) for step in range(_STEPS)])
    edges = np.concatenate([1 - upper[::-1], upper])  # cell i has edges[i-1] <= N < edges[i]
    at_least = np.where(edges >= 1, a ** np.maximum(edges, 0) / (1 + a), 1 - a ** (1 - np.minimum(edges, 1)) / (1 + a))
    distribution = -np.diff(np.concatenate([[1.0], at_least, [0.0]]))
    return np.searchsorted(edges, np.asarray(noise, dtype=np.int64), side="right"), distribution


def point_cells(points: Sequence[Point], noise: Noise, state: int, centre: Point) -> tuple[Cells, Distribution]:
    """The cells of released points of one state, and their distribution.

    Of a table every point is a cell; of a staircase about its centre every one inside its box. All others are one cell:
    the border of the box, and of a table none.
    """
    if isinstance(noise, NoiseTable):
        number = {point: place for place, point in enumerate(noise.points)}
        distribution = np.append(np.array(noise.row_weights(state)) / SCALE, 0.0)
    else:
        number, distribution = inside_distribution(noise, centre)
    return np.array([number.get(point, len(number)) for point in points], dtype=np.int64), distribution


def inside_distribution(noise: StaircaseNoise, centre: Point) -> tuple[dict[Point, int], Distribution]:
    """The points inside the box, with P(v) = q^ceil(gauge(v)) / Z; last what is left for its border."""
    hull = noise.noise
    ranges = [range(low + 1, high) for low, high in zip(noise.low, noise.high, strict=True)]
    number: dict[Point, int] = {}
    chances: list[float] = []
    for point in product(*ranges):
        v = tuple(x - c for x, c in zip(point, centre, strict=True))
        if hull.spans(v):
            heights = (
                -(-sum(a * b for a, b in zip(normal, v, strict=True)) // offset) for normal, offset in hull.facets()
            )
            number[point] = len(chances)
            chances.append(float(hull.ratio ** max(heights) / hull.normaliser))
    return number, np.array([*chances, max(0.0, 1.0 - sum(chances))])


_MOST_LAGS = 1 << 20
_FEWEST_TOGETHER = 100.0
"""Expected pairs at a distance, from which their number is taken for normal but for its skewness."""
_LEAST_SKEWNESS = 1e-5
"""Below it a sum is taken for normal."""
_POWER = 0.99
_PIECE = 1 << 22
"""Draws that are looked at together."""
_BASE = np.uint64(0x9E3779B97F4A7C15)


class Alarm(NamedTuple):
    """A test that failed, and what it saw."""

    test: str
    about: str


class Tested(NamedTuple):
    """Result of testing draws, with the alarms.

    An error of size `smallest` in the probability of any cell is found with a probability of 99 %. `longest` is a
    stretch of draws that must not come twice; None if there were too few to look.
    """

    of: str
    draws: int
    alarms: tuple[Alarm, ...]
    smallest: float
    longest: int | None


def checked(of: str, cells: Cells, distribution: NDArray[np.float64], false_alarms: float) -> Tested:
    """Test draws, (n,) cells in 0..m-1, against (m,) probabilities, with a probability of a false alarm."""
    alarms = [
        *frequencies(_counted(cells, distribution.size), distribution, false_alarms / 3),
        *_lags(cells, distribution, false_alarms / 3),
    ]
    length = _unlikely(cells.size, distribution, false_alarms / 3)
    if length is not None:
        alarms += _repeats(cells, length)
    return Tested(of, cells.size, tuple(alarms), smallest_error(cells.size, distribution, false_alarms), length)


def _counted(cells: Cells, m: int) -> NDArray[np.int64]:
    return sum((np.bincount(cells[at], minlength=m) for at in _pieces(cells.size)), start=np.zeros(m, np.int64))


def frequencies(counts: NDArray[np.int64], distribution: NDArray[np.float64], false_alarms: float) -> list[Alarm]:
    """Exact binomial tests of (m,) counts of cells; one whose probability is 0 must never come."""
    draws = int(counts.sum())
    below, above = stats.binom.cdf(counts, draws, distribution), stats.binom.sf(counts - 1, draws, distribution)
    chance = 2 * np.minimum(below, above)
    return [
        Alarm("frequencies", f"cell {cell} came {counts[cell]} times, {distribution[cell] * draws:.1f} were expected")
        for cell in np.flatnonzero(chance * distribution.size < false_alarms)
    ]


def smallest_error(draws: int, distribution: NDArray[np.float64], false_alarms: float) -> float:
    """The error of a probability that `checked` finds in 99 of 100 runs: it shifts a cell's mean by both quantiles.

    The cell counts where the error is the largest.
    """
    quantiles = stats.norm.isf(false_alarms / 3 / 2 / distribution.size) + stats.norm.ppf(_POWER)
    return float((quantiles * np.sqrt(distribution * (1 - distribution) / draws)).max())


def _most_deviations(chance: float, skewness: float) -> float:
    """Quantile that a sum of mean 0 and variance 1 exceeds on either side with at most this probability (Pearson III).

    A normal sum if it is not skewed. Where outcomes are rare, far tails are much heavier on one side than a normal's.
    """
    if abs(skewness) < _LEAST_SKEWNESS:
        return float(stats.norm.isf(chance))
    shape = 4 / skewness**2
    return float((special.gammainccinv(shape, chance) - shape) / math.sqrt(shape))


def _skewness(p: float) -> float:
    return (1 - 2 * p) / math.sqrt(p * (1 - p))


def _lags(cells: Cells, distribution: NDArray[np.float64], false_alarms: float) -> list[Alarm]:
    """Sums over t of x_t x_{t+lag}, x the centred indicator of half of the cells: uncorrelated, of variance (p q)^2."""
    values, p = _centred(distribution)
    n, most = cells.size, min(cells.size // 2, _MOST_LAGS)
    if most < 1 or min(p, 1 - p) ** 2 * (n - most) < _FEWEST_TOGETHER:
        return []
    scores = _products((cells, values), (cells, values), most)[1:] / (p * (1 - p) * np.sqrt(n - np.arange(1, most + 1)))
    worst = int(np.argmax(np.abs(scores)))
    if abs(scores[worst]) < _most_deviations(false_alarms / 2 / most, _skewness(p) ** 2 / math.sqrt(n - most)):
        return []
    return [Alarm("lags", f"draws at a distance of {worst + 1} depend on each other: {scores[worst]:.1f} deviations")]


def related(
    first: tuple[Cells, NDArray[np.float64]], other: tuple[Cells, NDArray[np.float64]], false_alarms: float
) -> list[Alarm]:
    """Test whether the draws of two streams depend on each other, at any distance either way, as `checked` does."""
    (values, p), (others, r) = _centred(first[1]), _centred(other[1])
    n = min(first[0].size, other[0].size)
    x, y, most = (first[0][:n], values), (other[0][:n], others), min(n // 2, _MOST_LAGS)
    if most < 1 or min(p, 1 - p) * min(r, 1 - r) * (n - most) < _FEWEST_TOGETHER:
        return []
    together = n - np.arange(most + 1)
    deviation = np.sqrt(p * (1 - p) * r * (1 - r) * together)
    worst, lag = max(
        (float(np.max(np.abs(s))), int(np.argmax(np.abs(s))))
        for s in (_products(x, y, most) / deviation, _products(y, x, most) / deviation)
    )
    if worst < _most_deviations(false_alarms / 4 / (most + 1), _skewness(p) * _skewness(r) / math.sqrt(n - most)):
        return []
    return [Alarm("streams", f"draws of the two at a distance of {lag} depend on each other: {worst:.1f} deviations")]


def scaled(noise: Sequence[int], scale: Fraction, false_alarms: float) -> list[Alarm]:
    """Test the scale of discrete Laplace noise, by the sum of its absolute values and by how often it is 0.

    The likelihood of any other scale depends on the sum alone. That of a share of counts without noise depends on the
    number of zeros alone. Both have their exact distributions. `noise` is counts, less what was counted.
    """
    values = np.abs(np.asarray(noise, dtype=np.int64))
    draws, total, zeros = values.size, int(values.sum()), int((values == 0).sum())
    a = math.exp(-float(1 / scale))
    alarms = []
    if min(total_tails(total, draws, a)) * 4 < false_alarms:
        mean = draws * 2 * a / (1 - a * a)
        alarms.append(Alarm("scale", f"the noise adds up to {total}, and to {mean:.0f} by its scale"))
    if stats.binom.sf(zeros - 1, draws, (1 - a) / (1 + a)) * 2 < false_alarms:
        expected = draws * (1 - a) / (1 + a)
        alarms.append(Alarm("scale", f"{zeros} of {draws} counts have no noise, {expected:.1f} were expected"))
    return alarms


def total_tails(total: int, draws: int, a: float) -> tuple[float, float]:
    """The probabilities of a sum of |N| up to a total, and from it on, for draws of P(N = n) ~ a^|n|.

    Of draws that are not 0, a binomial number, |N| - 1 are geometric: given that number, the rest is negative binomial.
    """
    chance, far = 2 * a / (1 + a), 1e-30
    numbers = np.arange(stats.binom.ppf(far, draws, chance), stats.binom.isf(far, draws, chance) + 1)
    weights = stats.binom.pmf(numbers, draws, chance)
    remainder, summed = total - numbers, np.maximum(numbers, 1)
    below = np.where(numbers > 0, stats.nbinom.cdf(remainder, summed, 1 - a), total >= 0)
    above = np.where(numbers > 0, stats.nbinom.sf(remainder - 1, summed, 1 - a), total <= 0)
    return float(weights @ below), float(weights @ above)


def _pieces(count: int, size: int | None = None) -> Iterator[slice]:
    size = size or _PIECE
    return (slice(at, min(at + size, count)) for at in range(0, count, size))


def _centred(distribution: NDArray[np.float64]) -> tuple[NDArray[np.float64], float]:
    """For every cell (m,) the centred indicator of one half of them, and the probability of that half."""
    half = _half(distribution)
    p = float(distribution[half].sum())
    values = np.full(distribution.size, -p)
    values[half] += 1
    return values, p


def _products(
    first: tuple[Cells, NDArray[np.float64]], other: tuple[Cells, NDArray[np.float64]], most: int
) -> NDArray[np.float64]:
    """Sums over t of x_t y_{t+lag}, for lags 0..most: cells, and the value of each, of x and of y."""
    (cells, values), (others, other_values) = first, other
    total = np.zeros(most + 1)
    for at in _pieces(cells.size):
        x, y = values[cells[at]], other_values[others[at.start : at.stop + most]]
        size = 1 << (y.size + most - 1).bit_length()
        total += np.fft.irfft(np.conj(np.fft.rfft(x, size)) * np.fft.rfft(y, size), size)[: most + 1]
    return total


def _half(distribution: NDArray[np.float64]) -> NDArray[np.intp]:
    """Cells whose probabilities add up to about a half: the likeliest first, as long as they fit."""
    chosen: list[int] = []
    for cell in np.argsort(-distribution, kind="stable"):
        if not chosen or distribution[chosen].sum() + distribution[cell] <= 0.5:
            chosen.append(int(cell))
    return np.array(chosen)


def _unlikely(draws: int, distribution: NDArray[np.float64], false_alarms: float) -> int | None:
    """How long a stretch is, none of whose starts at its multiples should be equal to any other, at a rate."""
    alike = float((distribution**2).sum())
    if draws < 2 or alike >= 1:
        return None
    length = math.ceil((2 * math.log(draws) - math.log(false_alarms)) / -math.log(alike))
    return length if 2 * length <= draws else None


def _repeats(cells: Cells, length: int) -> list[Alarm]:
    """A stretch that begins at a multiple of its length, and comes again elsewhere, without a common draw."""
    starts = np.arange(0, cells.size - length + 1, length)
    pieces = (slice(at.start * length, at.stop * length) for at in _pieces(starts.size, max(1, _PIECE // length)))
    hashes = np.concatenate([_hashes(cells[piece], length)[::length] for piece in pieces])
    order = np.argsort(hashes, kind="stable")
    digest = hashes[order]
    for at in _pieces(cells.size - length + 1):
        hashed = _hashes(cells[at.start : at.stop + length - 1], length)
        place = np.minimum(np.searchsorted(digest, hashed), digest.size - 1)
        for start in at.start + np.flatnonzero(digest[place] == hashed):
            first = int(starts[order[place[start - at.start]]])
            same = np.array_equal(cells[first : first + length], cells[start : start + length])
            if same and abs(first - start) >= length:
                return [Alarm("repeats", f"{length} draws from number {first} on come again from number {start} on")]
    return []


def _hashes(cells: Cells, length: int) -> NDArray[np.uint64]:
    """Polynomial hashes, modulo 2^64, of all stretches of a length, by doubling."""
    ones = cells.astype(np.uint64) + np.uint64(1)
    total, done = np.zeros(ones.size + 1, np.uint64), 0
    power, width, scale = ones, 1, _BASE
    with np.errstate(over="ignore"):
        shift = np.uint64(1)
        bit = length
        while bit:
            if bit & 1:
                keep = min(total.size, power.size - done)
                total = total[:keep] + shift * power[done : done + keep]
                done, shift = done + width, shift * scale
            bit >>= 1
            if bit:
                power = power[:-width] + scale * power[width:]
                width, scale = 2 * width, scale * scale
    return total


Changes = Mapping[str | int, tuple[Sequence[int], Sequence[Any]]]

_FAR = 8
"""Ticks before and after, at which a state must not show."""


class _Sample(NamedTuple):
    """Draws (n,) of one kind of cells; `noise` of a scale, less what was counted, if they are counts."""

    of: str
    cells: NDArray[np.integer]
    distribution: NDArray[np.float64]
    noise: Sequence[int] = ()
    scale: Fraction = Fraction(0)

    def tested(self, false_alarms: float) -> Tested:
        """Test them by themselves."""
        if not self.noise:
            return checked(self.of, self.cells, self.distribution, false_alarms)
        test = checked(self.of, self.cells, self.distribution, false_alarms / 2)
        return test._replace(alarms=(*test.alarms, *scaled(self.noise, self.scale, false_alarms / 2)))


def device_tests(
    policy: AnyPolicy,
    symbols: Mapping[int, bytes | bytearray],
    noise: Mapping[tuple[int, str], array[int]],
    points: Mapping[tuple[int, int], Sequence[Point]],
    false_alarms: float,
    script: Sequence[int] = (),
    changes: Changes | None = None,
) -> list[Tested]:
    """Test all outputs of a device whose readings are known: each by itself, every two of them, and at changes.

    Symbols are by state, noise by state and window, points by state and number of the table, from readings that stayed
    the same. `script` has the state of every tick of readings that changed, and begins again after the last. `changes`
    are its ticks and draws. By a window's name, they are as many counts a tick, less the true counts. Points are by the
    number of a table, symbols under 0. `false_alarms` is the probability of any alarm at all, if the device is as it
    should be.
    """
    changed = {of: own for of, own in (changes or {}).items() if own[1]}
    samples = [sample for sample in _samples(policy, symbols, noise, points) if sample.cells.size]
    pooled = list(_pooled(policy, noise, changed))
    tested = [sample.tested(false_alarms / 2 / len(samples + pooled)) for sample in samples + pooled]
    pairs = list(combinations(samples, 2))
    for first, other in pairs:
        if alarms := related(first[1:3], other[1:3], false_alarms / 4 / len(pairs)):
            few = min(first.cells.size, other.cells.size)
            tested.append(Tested(f"{first.of}, and {other.of}", few, tuple(alarms), 1.0, None))
    for of, (ticks, drawn) in changed.items():
        tested.append(_at_changes(policy, of, ticks, drawn, np.array(script), false_alarms / 4 / len(changed)))
    for (_, number), released in points.items():
        if _table(policy, number) is None:
            tested.append(_unknown(number, len(released)))
    return tested


def _samples(
    policy: AnyPolicy,
    symbols: Mapping[int, bytes | bytearray],
    noise: Mapping[tuple[int, str], array[int]],
    points: Mapping[tuple[int, int], Sequence[Point]],
) -> Iterator[_Sample]:
    names = policy.discretiser.states
    for state, drawn in symbols.items():
        yield _Sample(f"symbols of {names[state]}", *_cells(policy, 0, state, drawn))
    for (state, name), counts in noise.items():
        yield _Sample(
            f"window {name} of {names[state]}", *_cells(policy, name, state, counts), counts, _scale(policy, name)
        )
    for (state, number), released in points.items():
        if _table(policy, number) is not None:
            yield _Sample(f"points of {names[state]}, table {number}", *_cells(policy, number, state, released))


def _pooled(policy: AnyPolicy, noise: Mapping[tuple[int, str], array[int]], changed: Changes) -> Iterator[_Sample]:
    for name in dict.fromkeys(name for _, name in noise):
        own = (counts for (_, of), counts in noise.items() if of == name)
        every = sum(own, start=array("q", changed[name][1] if name in changed else ()))
        yield _Sample(f"window {name}", *_cells(policy, name, 0, every), every, _scale(policy, name))


def _cells(
    policy: AnyPolicy, of: str | int, state: int, drawn: Sequence[Any]
) -> tuple[NDArray[np.integer], NDArray[np.float64]]:
    """Cells, and their distribution: of symbols, of a window or of a table, as in `device_tests`."""
    if isinstance(of, str):
        return count_cells(drawn, _scale(policy, of))
    if (table := _table(policy, of)) is not None:
        likely = table.noise.likely if isinstance(table.noise, StaircaseNoise) else 1
        assert isinstance(policy, MeasurePolicy)
        return point_cells(drawn, table.noise, state, policy.measurement.centres(likely)[state])
    assert isinstance(policy, Policy)
    assert policy.table is not None
    return np.frombuffer(bytes(drawn), dtype=np.uint8), symbol_distribution(policy.table, state)


def _scale(policy: AnyPolicy, name: str) -> Fraction:
    assert isinstance(policy, Policy)
    window = policy.window(name)
    assert window is not None
    return Fraction(window.scale)


def _table(policy: AnyPolicy, number: int) -> TimedTable | None:
    return policy.table(number) if isinstance(policy, MeasurePolicy) else None


def _unknown(number: int, draws: int) -> Tested:
    alarm = Alarm("tables", "the policy has no such table")
    return Tested(f"points of table {number}", draws, (alarm,), 1.0, None)


def _at_changes(
    policy: AnyPolicy,
    of: str | int,
    ticks: Sequence[int],
    drawn: Sequence[Any],
    script: NDArray[np.int64],
    false_alarms: float,
) -> Tested:
    """Test that draws are as their own state has them, whatever the states of other ticks were or will be."""
    if isinstance(of, int) and isinstance(policy, MeasurePolicy) and _table(policy, of) is None:
        return _unknown(of, len(drawn))
    names, at = policy.discretiser.states, np.asarray(ticks, dtype=np.int64)
    every, groups = np.unique(script).tolist(), []
    for now in every:
        inside = script[at % script.size] == now
        each_tick = len(drawn) // at.size
        cells, distribution = _cells(policy, of, now, list(compress(drawn, np.repeat(inside, each_tick).tolist())))
        cells = cells.reshape(-1, each_tick)
        for distance in (*range(-_FAR, 0), *range(1, _FAR + 1)):
            then = script[(at[inside] + distance) % script.size]
            for other in every:
                lag_words = (
                    f"{names[now]}, {abs(distance)} ticks {'after' if distance < 0 else 'before'} {names[other]}"
                )
                for count_words, places in _places(each_tick, now, other):
                    chosen = cells[then == other][:, places].ravel()
                    if chosen.size:
                        counts = np.bincount(chosen, minlength=distribution.size)
                        groups.append((count_words + lag_words, counts, distribution))
    rate = false_alarms / max(1, len(groups))
    alarms = [
        Alarm("changes", f"{lag_words}: {alarm.about}")
        for lag_words, counts, distribution in groups
        for alarm in frequencies(counts, distribution, rate)
    ]
    smallest = max(smallest_error(int(counts.sum()), distribution, 3 * rate) for _, counts, distribution in groups)
    name = (
        f"window {of}" if isinstance(of, str) else "symbols" if isinstance(policy, Policy) else f"points of table {of}"
    )
    return Tested(f"{name} at changes", len(drawn), tuple(alarms), min(1.0, smallest), None)


def _places(each_tick: int, now: int, other: int) -> list[tuple[str, list[int]]]:
    """Which counts of a tick are taken together: those of the state of either tick, and all the others."""
    if each_tick == 1:
        return [("", [0])]
    others = [place for place in range(each_tick) if place not in (now, other)]
    own = [("count of the state, ", [now])]
    return (
        own + [("count of the other state, ", [other])] * (now != other) + [("other counts, ", others)] * bool(others)
    )
