"""Whether draws are independent and follow a distribution: tests with a stated chance of an alarm without a fault.

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
from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import product
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import special, stats

from fugu.contract.measure_frames import Point
from fugu.contract.measure_table import Noise, StaircaseNoise
from fugu.contract.noise_table import SCALE, NoiseTable
from fugu.contract.staircase import normaliser

__all__ = [
    "Alarm",
    "Tested",
    "checked",
    "count_cells",
    "frequencies",
    "inside_distribution",
    "point_cells",
    "related",
    "scaled",
    "smallest_error",
    "symbol_distribution",
]

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
    """The cells of released points, and their distribution.

    Of a table every point is a cell; of a staircase every one inside its box. All others are one cell: the border of
    the box, and of a table none.

    Args:
        points: as released.
        noise: that they were drawn from.
        state: the device's.
        centre: of a staircase, for that state.
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
            chances.append(float(hull.ratio ** max(heights) / normaliser(hull)))
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
    """What draws were tested, and what was found.

    Attributes:
        of: what they are of.
        draws: how many.
        alarms: none if all is as it should be.
        smallest: an error of this size in the probability of any cell is found with a probability of 99 %.
        longest: draws of a stretch that must not come twice; none if there were too few draws to look.
    """

    of: str
    draws: int
    alarms: tuple[Alarm, ...]
    smallest: float
    longest: int | None


def checked(of: str, cells: Cells, distribution: NDArray[np.float64], false_alarms: float) -> Tested:
    """Test draws.

    Args:
        of: what they are, in words.
        cells: (n,) numbers of cells, 0..m-1.
        distribution: (m,) probabilities.
        false_alarms: probability of an alarm if draws are independent and follow the distribution.
    """
    found = [
        *frequencies(_counted(cells, distribution.size), distribution, false_alarms / 3),
        *_lags(cells, distribution, false_alarms / 3),
    ]
    length = _unlikely(cells.size, distribution, false_alarms / 3)
    if length is not None:
        found += _repeats(cells, length)
    return Tested(of, cells.size, tuple(found), smallest_error(cells.size, distribution, false_alarms), length)


def _counted(cells: Cells, m: int) -> NDArray[np.int64]:
    """(m,) how often every cell came."""
    return sum((np.bincount(cells[at], minlength=m) for at in _pieces(cells.size)), start=np.zeros(m, np.int64))


def frequencies(counts: NDArray[np.int64], distribution: NDArray[np.float64], false_alarms: float) -> list[Alarm]:
    """Exact binomial tests of all cells; one whose probability is 0 must never come.

    Args:
        counts: (m,) how often every cell came.
        distribution: (m,) probabilities.
        false_alarms: probability of an alarm if draws are independent and follow the distribution.
    """
    draws = int(counts.sum())
    below, above = stats.binom.cdf(counts, draws, distribution), stats.binom.sf(counts - 1, draws, distribution)
    chance = 2 * np.minimum(below, above)
    return [
        Alarm("frequencies", f"cell {cell} came {counts[cell]} times, {distribution[cell] * draws:.1f} were expected")
        for cell in np.flatnonzero(chance * distribution.size < false_alarms)
    ]


def smallest_error(draws: int, distribution: NDArray[np.float64], false_alarms: float) -> float:
    """The error of a probability that `checked` finds in 99 of 100 runs: it shifts a cell's mean by both quantiles.

    Args:
        draws: how many.
        distribution: (m,) probabilities; the cell counts where the error is the largest.
        false_alarms: probability as for `checked`.
    """
    quantiles = stats.norm.isf(false_alarms / 3 / 2 / distribution.size) + stats.norm.ppf(_POWER)
    return float((quantiles * np.sqrt(distribution * (1 - distribution) / draws)).max())


def _most_deviations(chance: float, skewness: float) -> float:
    """What a sum of mean 0 and variance 1 exceeds on either side with at most this probability: Pearson's type III.

    A normal sum if it is not skewed. Where outcomes are rare, far tails are much heavier on one side than a normal's.
    """
    if abs(skewness) < _LEAST_SKEWNESS:
        return float(stats.norm.isf(chance))
    shape = 4 / skewness**2
    return float((special.gammainccinv(shape, chance) - shape) / math.sqrt(shape))


def _skewness(p: float) -> float:
    """Of the indicator of an event of probability p."""
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
    one: tuple[Cells, NDArray[np.float64]], other: tuple[Cells, NDArray[np.float64]], false_alarms: float
) -> list[Alarm]:
    """Test whether the draws of two streams depend on each other, at any distance either way.

    Args:
        one, other: cells and distributions of the streams, as for `checked`.
        false_alarms: probability of an alarm if they do not.
    """
    (values, p), (others, r) = _centred(one[1]), _centred(other[1])
    n = min(one[0].size, other[0].size)
    x, y, most = (one[0][:n], values), (other[0][:n], others), min(n // 2, _MOST_LAGS)
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
    number of zeros alone. Both have their exact distributions.

    Args:
        noise: counts, less what was counted.
        scale: that they should have.
        false_alarms: probability of an alarm if draws are independent and have that scale.
    """
    values = np.abs(np.asarray(noise, dtype=np.int64))
    draws, total, zeros = values.size, int(values.sum()), int((values == 0).sum())
    a = math.exp(-float(1 / scale))
    found = []
    if min(total_tails(total, draws, a)) * 4 < false_alarms:
        mean = draws * 2 * a / (1 - a * a)
        found.append(Alarm("scale", f"the noise adds up to {total}, and to {mean:.0f} by its scale"))
    if stats.binom.sf(zeros - 1, draws, (1 - a) / (1 + a)) * 2 < false_alarms:
        expected = draws * (1 - a) / (1 + a)
        found.append(Alarm("scale", f"{zeros} of {draws} counts have no noise, {expected:.1f} were expected"))
    return found


def total_tails(total: int, draws: int, a: float) -> tuple[float, float]:
    """The probabilities of a sum of |N| up to a total, and from it on, for draws of P(N = n) ~ a^|n|.

    Of draws that are not 0, a binomial number, |N| - 1 are geometric: given that number, the rest is negative binomial.
    """
    chance, far = 2 * a / (1 + a), 1e-30
    numbers = np.arange(stats.binom.ppf(far, draws, chance), stats.binom.isf(far, draws, chance) + 1)
    weights = stats.binom.pmf(numbers, draws, chance)
    rest, some = total - numbers, np.maximum(numbers, 1)
    below = np.where(numbers > 0, stats.nbinom.cdf(rest, some, 1 - a), total >= 0)
    above = np.where(numbers > 0, stats.nbinom.sf(rest - 1, some, 1 - a), total <= 0)
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
    one: tuple[Cells, NDArray[np.float64]], other: tuple[Cells, NDArray[np.float64]], most: int
) -> NDArray[np.float64]:
    """Sums over t of x_t y_{t+lag}, for lags 0..most: cells, and the value of each, of x and of y."""
    (cells, values), (others, other_values) = one, other
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
    hashes = np.concatenate(
        [
            _hashes(cells[at.start * length : at.stop * length], length)[::length]
            for at in _pieces(starts.size, max(1, _PIECE // length))
        ]
    )
    order = np.argsort(hashes, kind="stable")
    known = hashes[order]
    for at in _pieces(cells.size - length + 1):
        hashed = _hashes(cells[at.start : at.stop + length - 1], length)
        place = np.minimum(np.searchsorted(known, hashed), known.size - 1)
        for start in at.start + np.flatnonzero(known[place] == hashed):
            first = int(starts[order[place[start - at.start]]])
            if abs(first - start) >= length and np.array_equal(
                cells[first : first + length], cells[start : start + length]
            ):
                return [Alarm("repeats", f"{length} draws from number {first} on come again from number {start} on")]
    return []


def _hashes(cells: Cells, length: int) -> NDArray[np.uint64]:
    """Polynomial hashes, modulo 2^64, of all stretches of a length, by doubling."""
    ones = cells.astype(np.uint64) + np.uint64(1)
    total, done = np.zeros(ones.size + 1, np.uint64), 0
    power, width, scale = ones, 1, _BASE
    with np.errstate(over="ignore"):
        shift = np.uint64(1)
        left = length
        while left:
            if left & 1:
                keep = min(total.size, power.size - done)
                total = total[:keep] + shift * power[done : done + keep]
                done, shift = done + width, shift * scale
            left >>= 1
            if left:
                power = power[:-width] + scale * power[width:]
                width, scale = 2 * width, scale * scale
    return total
