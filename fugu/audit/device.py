"""Test a device's randomness from its published bytes: whether draws are independent and follow their distribution.

Each test has a stated probability of a false alarm:

- frequencies: the number of draws in every cell, against its exact binomial distribution, two-sided;
- lags: how often two draws at a distance are both in one half of the cells, for up to a million distances;
- repeats: whether a stretch of draws, so long that no two should be equal, occurs twice;
- streams: the same as lags, between the draws of two streams;
- scale: the scale of a count's noise, by likelihood ratios against another scale, and against counts without noise.

A third of the rate goes to each of the first three, divided equally among its comparisons. Draws are processed in
pieces, so that only the draws themselves take memory in proportion to their number.
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

from fugu.chains.arrays import Floats, Ints
from fugu.contract.measure_frames import Point
from fugu.contract.measure_policy import MeasurePolicy
from fugu.contract.measure_table import Noise, StaircaseNoise, TimedTable
from fugu.contract.noise_table import SCALE, NoiseTable
from fugu.contract.policies import AnyPolicy
from fugu.contract.policy import Policy

__all__ = ["DrawTest", "device_tests", "inside_distribution"]


Distribution = Floats
Cells = NDArray[np.integer]

_STEPS = 20
"""The number of cells of a count's noise on either side, each a quarter of the scale wide."""


def symbol_distribution(table: NoiseTable, state: int) -> Distribution:
    """The probabilities (m,) of all symbols in a state."""
    return np.array(table.row_weights(state)) / SCALE


def count_cells(noise: Sequence[int], scale: Fraction) -> tuple[Cells, Distribution]:
    """The cell of each value of discrete Laplace `noise`, counts less true counts, and the cells' distribution.

    P(N >= n) = a^n / (1 + a) for n >= 1, with a = e^(-1/scale), and N is symmetric about 0.
    """
    a = np.exp(-float(1 / scale))
    upper = np.unique([1 + int(step * scale / 4) for step in range(_STEPS)])
    edges = np.concatenate([1 - upper[::-1], upper])  # cell i has edges[i-1] <= N < edges[i]
    at_least = np.where(edges >= 1, a ** np.maximum(edges, 0) / (1 + a), 1 - a ** (1 - np.minimum(edges, 1)) / (1 + a))
    distribution = -np.diff(np.concatenate([[1.0], at_least, [0.0]]))
    return np.searchsorted(edges, np.asarray(noise, dtype=np.int64), side="right"), distribution


def point_cells(points: Sequence[Point], noise: Noise, state: int, centre: Point) -> tuple[Cells, Distribution]:
    """The cell of each released point of one state, and the cells' distribution.

    Each point of a table, and each point inside the box of a staircase around `centre`, is a cell. All other points
    are one last cell: the border of the box; for a table it has probability 0.
    """
    if isinstance(noise, NoiseTable):
        index_of_point = {point: index for index, point in enumerate(noise.points)}
        distribution = np.append(np.array(noise.row_weights(state)) / SCALE, 0.0)
    else:
        index_of_point, distribution = inside_distribution(noise, centre)
    return np.array([index_of_point.get(point, len(index_of_point)) for point in points], dtype=np.int64), distribution


def inside_distribution(noise: StaircaseNoise, centre: Point) -> tuple[dict[Point, int], Distribution]:
    """The cells of points inside the box, with P(v) = q^ceil(gauge(v)) / Z; the last cell is the border of the box."""
    hull = noise.staircase
    ranges = [range(low + 1, high) for low, high in zip(noise.low, noise.high, strict=True)]
    index_of_point: dict[Point, int] = {}
    probabilities: list[float] = []
    for point in product(*ranges):
        v = tuple(x - c for x, c in zip(point, centre, strict=True))
        if hull.spans(v):
            heights = (
                -(-sum(a * b for a, b in zip(normal, v, strict=True)) // offset) for normal, offset in hull.facets()
            )
            index_of_point[point] = len(probabilities)
            probabilities.append(float(hull.ratio ** max(heights) / hull.normaliser))
    return index_of_point, np.array([*probabilities, max(0.0, 1.0 - sum(probabilities))])


_MAX_LAGS = 1 << 20
_MIN_EXPECTED_PAIRS = 100.0
"""The expected number of pairs at a distance from which on it is treated as normal, except for its skewness."""
_MIN_SKEWNESS = 1e-5
"""The skewness below which a sum is treated as normal."""
_POWER = 0.99
_PIECE = 1 << 22
"""The number of draws that are processed together."""
_BASE = 0x9E3779B97F4A7C15
_BASE_INVERSE = pow(_BASE, -1, 1 << 64)


class Alarm(NamedTuple):
    """A failed test, and a sentence on what it found."""

    test: str
    about: str


class DrawTest(NamedTuple):
    """The result of testing draws, with the alarms.

    An error of size `smallest` in the probability of any cell is found with a probability of 99 %. `longest` is the
    length of a stretch of draws that must not occur twice; `None` if there were too few draws to test this.
    """

    of: str
    draws: int
    alarms: tuple[Alarm, ...]
    smallest: float
    longest: int | None


def check_draws(output: str, cells: Cells, distribution: Distribution, false_alarms: float) -> DrawTest:
    """Test draws, as cells (n,) in 0..m-1, against probabilities (m,), with a given probability of a false alarm."""
    alarms = [
        *frequency_alarms(_cell_counts(cells, distribution.size), distribution, false_alarms / 3),
        *_lag_alarms(cells, distribution, false_alarms / 3),
    ]
    length = _repeat_free_length(cells.size, distribution, false_alarms / 3)
    if length is not None:
        alarms += _repeat_alarms(cells, length)
    return DrawTest(output, cells.size, tuple(alarms), smallest_error(cells.size, distribution, false_alarms), length)


def _cell_counts(cells: Cells, m: int) -> Ints:
    return sum((np.bincount(cells[piece], minlength=m) for piece in _slices(cells.size)), start=np.zeros(m, np.int64))


def frequency_alarms(counts: Ints, distribution: Distribution, false_alarms: float) -> list[Alarm]:
    """Test the counts (m,) of cells by exact binomial tests; a cell with probability 0 must never occur."""
    draws = int(counts.sum())
    lower_tail = stats.binom.cdf(counts, draws, distribution)
    upper_tail = stats.binom.sf(counts - 1, draws, distribution)
    p_values = 2 * np.minimum(lower_tail, upper_tail)
    return [
        Alarm("frequencies", f"cell {cell} came {counts[cell]} times, {distribution[cell] * draws:.1f} were expected")
        for cell in np.flatnonzero(p_values * distribution.size < false_alarms)
    ]


def smallest_error(draws: int, distribution: Distribution, false_alarms: float) -> float:
    """The error of a cell's probability that `check_draws` finds in 99 of 100 runs; the largest over all cells.

    Such an error shifts the cell's mean by the quantiles of both kinds of mistake.
    """
    quantiles = stats.norm.isf(false_alarms / 3 / 2 / distribution.size) + stats.norm.ppf(_POWER)
    return float((quantiles * np.sqrt(distribution * (1 - distribution) / draws)).max())


def _max_deviations(chance: float, skewness: float) -> float:
    """The quantile that a sum of mean 0 and variance 1 exceeds on either side with probability `chance` (Pearson III).

    A sum without skewness is normal. If outcomes are rare, one far tail is much heavier than that of a normal sum.
    """
    if abs(skewness) < _MIN_SKEWNESS:
        return float(stats.norm.isf(chance))
    shape = 4 / skewness**2
    return float((special.gammainccinv(shape, chance) - shape) / math.sqrt(shape))


def _skewness(p: float) -> float:
    return (1 - 2 * p) / math.sqrt(p * (1 - p))


def _lag_alarms(cells: Cells, distribution: Distribution, false_alarms: float) -> list[Alarm]:
    """Test whether draws of one stream depend on each other, at any distance."""
    draws = cells, distribution
    return [
        Alarm("lags", f"draws at a distance of {lag} depend on each other: {score:.1f} deviations")
        for lag, score in _dependence(draws, draws, 1, false_alarms)
    ]


def dependence_alarms(
    first: tuple[Cells, Distribution], other: tuple[Cells, Distribution], false_alarms: float
) -> list[Alarm]:
    """Test whether the draws of two streams depend on each other, at any distance either way, as `check_draws` does."""
    findings = [*_dependence(first, other, 0, false_alarms / 2), *_dependence(other, first, 0, false_alarms / 2)]
    return [
        Alarm("streams", f"draws of the two at a distance of {lag} depend on each other: {abs(score):.1f} deviations")
        for lag, score in sorted(findings, key=lambda finding: -abs(finding[1]))[:1]
    ]


def _dependence(
    first: tuple[Cells, Distribution], other: tuple[Cells, Distribution], least_lag: int, false_alarms: float
) -> Iterator[tuple[int, float]]:
    """Yield the lag with the largest sum over t of x_t y_{t+lag}, in deviations, unless chance explains the sum.

    x and y are the centred indicators of half of the cells of two streams. With p and r the probabilities of these
    halves, each product has the variance p (1 - p) r (1 - r).
    """
    (indicator, p), (other_indicator, r) = _half_indicator(first[1]), _half_indicator(other[1])
    n = min(first[0].size, other[0].size)
    lags = min(n // 2, _MAX_LAGS)
    if lags < 1 or min(p, 1 - p) * min(r, 1 - r) * (n - lags) < _MIN_EXPECTED_PAIRS:
        return
    products = _lagged_products((first[0][:n], indicator), (other[0][:n], other_indicator), lags)
    scores = (products / np.sqrt(p * (1 - p) * r * (1 - r) * (n - np.arange(lags + 1))))[least_lag:]
    lag = int(np.argmax(np.abs(scores)))
    skewness = _skewness(p) * _skewness(r) / math.sqrt(n - lags)
    if abs(scores[lag]) >= _max_deviations(false_alarms / 2 / scores.size, skewness):
        yield lag + least_lag, float(scores[lag])


def scale_alarms(noise: Sequence[int], scale: Fraction, false_alarms: float) -> list[Alarm]:
    """Test the scale of discrete Laplace noise, by the sum of its absolute values and by the number of zeros.

    The likelihood of any other scale depends only on the sum. That of a share of counts without noise depends only on
    the number of zeros. Both tests use exact distributions. `noise` is counts less true counts.
    """
    noise_sizes = np.abs(np.asarray(noise, dtype=np.int64))
    draws, total_size, zeros = noise_sizes.size, int(noise_sizes.sum()), int((noise_sizes == 0).sum())
    a = math.exp(-float(1 / scale))
    alarms = []
    if min(total_tails(total_size, draws, a)) * 4 < false_alarms:
        mean = draws * 2 * a / (1 - a * a)
        alarms.append(Alarm("scale", f"the noise adds up to {total_size}, and to {mean:.0f} by its scale"))
    if stats.binom.sf(zeros - 1, draws, (1 - a) / (1 + a)) * 2 < false_alarms:
        expected = draws * (1 - a) / (1 + a)
        alarms.append(Alarm("scale", f"{zeros} of {draws} counts have no noise, {expected:.1f} were expected"))
    return alarms


def total_tails(total: int, draws: int, a: float) -> tuple[float, float]:
    """The probabilities of a sum of |N| of at most, and at least, `total`, for draws with P(N = n) ~ a^|n|.

    The number of draws other than 0 is binomial, and their |N| - 1 are geometric with a negative binomial sum.
    """
    p, tail_mass = 2 * a / (1 + a), 1e-30
    nonzero_counts = np.arange(stats.binom.ppf(tail_mass, draws, p), stats.binom.isf(tail_mass, draws, p) + 1)
    weights = stats.binom.pmf(nonzero_counts, draws, p)
    excess, successes = total - nonzero_counts, np.maximum(nonzero_counts, 1)
    lower_tail = np.where(nonzero_counts > 0, stats.nbinom.cdf(excess, successes, 1 - a), total >= 0)
    upper_tail = np.where(nonzero_counts > 0, stats.nbinom.sf(excess - 1, successes, 1 - a), total <= 0)
    return float(weights @ lower_tail), float(weights @ upper_tail)


def _slices(count: int, piece_size: int | None = None) -> Iterator[slice]:
    piece_size = piece_size or _PIECE
    return (slice(start, min(start + piece_size, count)) for start in range(0, count, piece_size))


def _half_indicator(distribution: Distribution) -> tuple[Floats, float]:
    """The centred indicator (m,) of cells with about half of the probability, and the probability of these cells."""
    half_cells = _half_mass_cells(distribution)
    p = float(distribution[half_cells].sum())
    indicator = np.full(distribution.size, -p)
    indicator[half_cells] += 1
    return indicator, p


def _lagged_products(first: tuple[Cells, Floats], other: tuple[Cells, Floats], lags: int) -> Floats:
    """The sums over t of x_t y_{t+lag} for lags 0..`lags`; x and y are given by cells and the value of each cell."""
    (cells, values), (other_cells, other_values) = first, other
    sums = np.zeros(lags + 1)
    for piece in _slices(cells.size):
        x, y = values[cells[piece]], other_values[other_cells[piece.start : piece.stop + lags]]
        fft_size = 1 << (y.size + lags - 1).bit_length()
        sums += np.fft.irfft(np.conj(np.fft.rfft(x, fft_size)) * np.fft.rfft(y, fft_size), fft_size)[: lags + 1]
    return sums


def _half_mass_cells(distribution: Distribution) -> NDArray[np.intp]:
    """The likeliest cell; then, by falling probability, each that keeps the sum at most a half."""
    half_cells: list[int] = []
    for cell in np.argsort(-distribution, kind="stable"):
        if not half_cells or distribution[half_cells].sum() + distribution[cell] <= 0.5:
            half_cells.append(int(cell))
    return np.array(half_cells)


def _repeat_free_length(draws: int, distribution: Distribution, false_alarms: float) -> int | None:
    """The length of stretches of which no two should be equal, at a false-alarm rate; `None` if draws are too few."""
    p_equal = float((distribution**2).sum())
    if draws < 2 or p_equal >= 1:
        return None
    length = math.ceil((2 * math.log(draws) - math.log(false_alarms)) / -math.log(p_equal))
    return length if 2 * length <= draws else None


def _repeat_alarms(cells: Cells, length: int) -> list[Alarm]:
    """Find a stretch that begins at a multiple of its length and occurs again elsewhere, without a common draw."""
    starts = np.arange(0, cells.size - length + 1, length)
    pieces = (slice(span.start * length, span.stop * length) for span in _slices(starts.size, max(1, _PIECE // length)))
    hashes = np.concatenate([_hashes(cells[piece], length)[::length] for piece in pieces])
    hash_order = np.argsort(hashes, kind="stable")
    sorted_hashes = hashes[hash_order]
    for span in _slices(cells.size - length + 1):
        stretch_hashes = _hashes(cells[span.start : span.stop + length - 1], length)
        positions = np.minimum(np.searchsorted(sorted_hashes, stretch_hashes), sorted_hashes.size - 1)
        for start in span.start + np.flatnonzero(sorted_hashes[positions] == stretch_hashes):
            twin = int(starts[hash_order[positions[start - span.start]]])
            is_equal = np.array_equal(cells[twin : twin + length], cells[start : start + length])
            if is_equal and abs(twin - start) >= length:
                return [Alarm("repeats", f"{length} draws from number {twin} on come again from number {start} on")]
    return []


def _hashes(cells: Cells, length: int) -> NDArray[np.uint64]:
    """Compute polynomial hashes, modulo 2^64, of all stretches of a length, as differences of running sums."""
    powers, inverse_powers = (np.cumprod(np.full(cells.size, base, np.uint64)) for base in (_BASE, _BASE_INVERSE))
    sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum((cells.astype(np.uint64) + np.uint64(1)) * powers)])
    return np.asarray((sums[length:] - sums[:-length]) * inverse_powers[: sums.size - length])


Changes = Mapping[str | int, tuple[Sequence[int], Sequence[Any]]]

_MAX_DISTANCE = 8
"""The distance in ticks, before and after, at which another state must not influence draws."""


class _Sample(NamedTuple):
    """The draws (n,) of one output as cells; for counts also `noise`, the counts less true counts, and its scale."""

    output: str
    cells: Cells
    distribution: Distribution
    noise: Sequence[int] = ()
    scale: Fraction = Fraction(0)

    def draw_test(self, false_alarms: float) -> DrawTest:
        """Test the draws of this output by themselves."""
        if not self.noise:
            return check_draws(self.output, self.cells, self.distribution, false_alarms)
        test = check_draws(self.output, self.cells, self.distribution, false_alarms / 2)
        return test._replace(alarms=(*test.alarms, *scale_alarms(self.noise, self.scale, false_alarms / 2)))


def device_tests(
    policy: AnyPolicy,
    symbols: Mapping[int, bytes | bytearray],
    noise: Mapping[tuple[int, str], array[int]],
    points: Mapping[tuple[int, int], Sequence[Point]],
    false_alarms: float,
    script: Sequence[int] = (),
    changes: Changes | None = None,
) -> list[DrawTest]:
    """Test all outputs of a device whose readings are known: each by itself, every two of them, and at changes.

    Args:
        policy: the device's policy.
        symbols: draws by state, from constant readings.
        noise: counts less true counts, by state and window, from constant readings.
        points: released points by state and number of the table, from constant readings.
        false_alarms: probability of any alarm if the device has no fault.
        script: the state of every tick of changing readings; it starts again after the last.
        changes: ticks and draws from changing readings: noise by a window's name, points by a table's number, symbols
            under 0. Each tick has equally many draws.
    """
    changed_draws = {name: recording for name, recording in (changes or {}).items() if recording[1]}
    samples = [sample for sample in _samples(policy, symbols, noise, points) if sample.cells.size]
    pooled_samples = list(_pools(policy, noise, changed_draws))
    tests = [sample.draw_test(false_alarms / 2 / len(samples + pooled_samples)) for sample in samples + pooled_samples]
    sample_pairs = list(combinations(samples, 2))
    for first, other in sample_pairs:
        if alarms := dependence_alarms(first[1:3], other[1:3], false_alarms / 4 / len(sample_pairs)):
            sample_size = min(first.cells.size, other.cells.size)
            tests.append(DrawTest(f"{first.output}, and {other.output}", sample_size, tuple(alarms), 1.0, None))
    for name, (ticks, draws) in changed_draws.items():
        tests.append(_change_test(policy, name, ticks, draws, np.array(script), false_alarms / 4 / len(changed_draws)))
    for (_, table_number), table_points in points.items():
        if _table(policy, table_number) is None:
            tests.append(_unknown_table(table_number, len(table_points)))
    return tests


def _samples(
    policy: AnyPolicy,
    symbols: Mapping[int, bytes | bytearray],
    noise: Mapping[tuple[int, str], array[int]],
    points: Mapping[tuple[int, int], Sequence[Point]],
) -> Iterator[_Sample]:
    labels = policy.discretiser.states
    for state, draws in symbols.items():
        yield _Sample(f"symbols of {labels[state]}", *_cells(policy, 0, state, draws))
    for (state, name), counts in noise.items():
        yield _Sample(
            f"window {name} of {labels[state]}", *_cells(policy, name, state, counts), counts, _scale(policy, name)
        )
    for (state, number), released_points in points.items():
        if _table(policy, number) is not None:
            yield _Sample(f"points of {labels[state]}, table {number}", *_cells(policy, number, state, released_points))


def _pools(policy: AnyPolicy, noise: Mapping[tuple[int, str], array[int]], changes: Changes) -> Iterator[_Sample]:
    for name in dict.fromkeys(name for _, name in noise):
        state_counts = (counts for (_, window_name), counts in noise.items() if window_name == name)
        all_counts = sum(state_counts, start=array("q", changes[name][1] if name in changes else ()))
        yield _Sample(f"window {name}", *_cells(policy, name, 0, all_counts), all_counts, _scale(policy, name))


def _cells(policy: AnyPolicy, output: str | int, state: int, draws: Sequence[Any]) -> tuple[Cells, Distribution]:
    """The cells of draws, and their distribution; `output` is a window's name, a table's number, or 0 for symbols."""
    if isinstance(output, str):
        return count_cells(draws, _scale(policy, output))
    if (table := _table(policy, output)) is not None:
        likely_set = table.noise.likely if isinstance(table.noise, StaircaseNoise) else 1
        assert isinstance(policy, MeasurePolicy)
        return point_cells(draws, table.noise, state, policy.measurement.centres(likely_set)[state])
    assert isinstance(policy, Policy)
    assert policy.table is not None
    return np.frombuffer(bytes(draws), dtype=np.uint8), symbol_distribution(policy.table, state)


def _scale(policy: AnyPolicy, window_name: str) -> Fraction:
    assert isinstance(policy, Policy)
    window = policy.window(window_name)
    assert window is not None
    return Fraction(window.scale)


def _table(policy: AnyPolicy, number: int) -> TimedTable | None:
    return policy.table(number) if isinstance(policy, MeasurePolicy) else None


def _unknown_table(number: int, draws: int) -> DrawTest:
    alarm = Alarm("tables", "the policy has no such table")
    return DrawTest(f"points of table {number}", draws, (alarm,), 1.0, None)


def _change_test(
    policy: AnyPolicy, output: str | int, ticks: Sequence[int], draws: Sequence[Any], script: Ints, false_alarms: float
) -> DrawTest:
    """Test that draws depend only on their own tick's state, not on the states of ticks before or after it."""
    if isinstance(output, int) and isinstance(policy, MeasurePolicy) and _table(policy, output) is None:
        return _unknown_table(output, len(draws))
    labels, tick_array = policy.discretiser.states, np.asarray(ticks, dtype=np.int64)
    script_states, groups = np.unique(script).tolist(), []
    for state in script_states:
        mask = script[tick_array % script.size] == state
        per_tick = len(draws) // tick_array.size
        cells, distribution = _cells(policy, output, state, list(compress(draws, np.repeat(mask, per_tick).tolist())))
        cells = cells.reshape(-1, per_tick)
        for lag in (*range(-_MAX_DISTANCE, 0), *range(1, _MAX_DISTANCE + 1)):
            distant_states = script[(tick_array[mask] + lag) % script.size]
            for other_state in script_states:
                subject = f"{labels[state]}, {abs(lag)} ticks {'after' if lag < 0 else 'before'} {labels[other_state]}"
                for count_words, columns in _count_columns(per_tick, state, other_state):
                    samples = cells[distant_states == other_state][:, columns].ravel()
                    if samples.size:
                        counts = np.bincount(samples, minlength=distribution.size)
                        groups.append((count_words + subject, counts, distribution))
    rate = false_alarms / max(1, len(groups))
    alarms = [
        Alarm("changes", f"{subject}: {alarm.about}")
        for subject, counts, distribution in groups
        for alarm in frequency_alarms(counts, distribution, rate)
    ]
    smallest = max(smallest_error(int(counts.sum()), distribution, 3 * rate) for _, counts, distribution in groups)
    output_name = (
        f"window {output}"
        if isinstance(output, str)
        else "symbols"
        if isinstance(policy, Policy)
        else f"points of table {output}"
    )
    return DrawTest(f"{output_name} at changes", len(draws), tuple(alarms), min(1.0, smallest), None)


def _count_columns(draws_per_tick: int, x: int, y: int) -> list[tuple[str, list[int]]]:
    """Group the counts of one tick: those of the states of the two ticks, and all others, with words for each group."""
    if draws_per_tick == 1:
        return [("", [0])]
    others = [column for column in range(draws_per_tick) if column not in (x, y)]
    groups = [("count of the state, ", [x])]
    return groups + [("count of the other state, ", [y])] * (x != y) + [("other counts, ", others)] * bool(others)
