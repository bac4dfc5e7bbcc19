"""Answers from symbols are unbiased, and intervals hold the truth as often as they say: every output is enumerated."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Iterator
from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray

from fugu.contract.noise_table import SCALE, NoiseTable
from gateway.releases.inputs import answer, symbols_addend
from gateway.releases.statistics import Query, Tally, count_symbols, estimate, inversion

COUNT = Query("count", (1,))
UNLIKE = NoiseTable(rows=((SCALE // 2, SCALE // 4 * 3), (SCALE // 8, SCALE // 4 * 3), (SCALE // 8, SCALE // 4)))
"""Each state is shown as often as the table likes."""
Floats = NDArray[np.float64]


def binary(rho0: float, rho1: float) -> NoiseTable:
    return NoiseTable.binary(int(rho0 * SCALE), int(rho1 * SCALE))


def binomial(n: int, p: float) -> Floats:
    return np.array([math.comb(n, i) * p**i * (1.0 - p) ** (n - i) for i in range(n + 1)])


def laplace(scale: Fraction) -> tuple[int, Floats]:
    """How far noise is enumerated, and its probabilities; what is left out, 10^-9, counts as not covered."""
    ratio = math.exp(-1.0 / float(scale))
    reach = math.ceil(21.0 * float(scale)) + 1
    return reach, (1.0 - ratio) / (1.0 + ratio) * ratio ** np.abs(np.arange(-reach, reach + 1))


def outputs(table: NoiseTable, ticks: int, inside: int, scale: Fraction) -> Floats:
    """Probabilities of the noisy count of symbols 1, from the least that is enumerated on."""
    (_, miss), (_, hit) = inversion(table).emission
    return np.convolve(np.convolve(binomial(inside, hit), binomial(ticks - inside, miss)), laplace(scale)[1])


def truths(ticks: int) -> Iterator[int]:
    return iter(sorted({*range(0, ticks + 1, max(ticks // 8, 1)), 1, ticks - 1, ticks}))


@pytest.mark.long
@pytest.mark.parametrize(
    ("rho", "scale", "confidence"),
    [
        ((0.05, 0.05), Fraction(1, 10), 0.5),
        ((0.01, 0.4), Fraction(4), 0.95),
        ((0.001, 0.001), Fraction(1), 0.95),
        ((0.6, 0.3), Fraction(1, 10), 0.999),
    ],
    ids=str,
)
def test_an_interval_of_a_count_covers_as_often_as_it_says(
    rho: tuple[float, float], scale: Fraction, confidence: float
) -> None:
    table, reach = binary(*rho), laplace(scale)[0]
    for ticks in (1, 3, 10, 60):
        intervals = []
        for count in range(-reach, ticks + reach + 1):
            part = Tally(table, ticks, ticks - 1, np.array([count]))
            alone = estimate(COUNT, (part,), scale, confidence)
            added = answer(COUNT, symbols_addend(COUNT, (part,), scale), confidence)
            share = estimate(Query("frequency", (1,)), (part,), scale, confidence)
            assert share.values * ticks == pytest.approx(alone.values)
            assert added.values == pytest.approx(alone.values)
            intervals.append((*alone.low, *alone.high, *added.low, *added.high, *alone.values, *alone.standard_errors))
        low, high, added_low, added_high, values, errors = np.array(intervals).T
        for inside in truths(ticks):
            probabilities = outputs(table, ticks, inside, scale)
            assert probabilities @ values == pytest.approx(inside, abs=1e-4), "unbiased"
            assert probabilities @ errors**2 == pytest.approx(probabilities @ (values - inside) ** 2, rel=0.2)
            assert probabilities[(low <= inside) & (inside <= high)].sum() >= confidence, (ticks, inside)
            assert probabilities[(added_low <= inside) & (inside <= added_high)].sum() >= confidence, (ticks, inside)


@pytest.mark.long
def test_an_interval_of_two_tables_covers_as_often_as_it_says() -> None:
    scale = Fraction(1, 10)
    tables, ticks, reach = (binary(0.05, 0.4), binary(0.3, 0.2)), (4, 3), laplace(scale)[0]
    counts = [range(-reach, n + reach + 1) for n in ticks]
    intervals = []
    for pair in itertools.product(*counts):
        parts = tuple(Tally(*of, 0, np.array([count])) for *of, count in zip(tables, ticks, pair, strict=True))
        answer = estimate(COUNT, parts, scale)
        intervals.append((*answer.low, *answer.high))
    low, high = (column.reshape([len(count) for count in counts]) for column in np.array(intervals).T)
    for inside in itertools.product(*(range(n + 1) for n in ticks)):
        of = zip(tables, ticks, inside, strict=True)
        first, second = (outputs(table, n, m, scale) for table, n, m in of)
        held = (low <= sum(inside)) & (sum(inside) <= high)
        assert np.outer(first, second)[held].sum() >= 0.95, inside


@pytest.mark.long
@pytest.mark.parametrize("table", [NoiseTable.randomised_response(3, 600_000_000), UNLIKE], ids=["alike", "unlike"])
def test_every_bin_of_a_histogram_covers_as_often_as_it_says(table: NoiseTable) -> None:
    states, scale = (0, 1, 2), Fraction(1, 3)
    query, emission = Query("histogram", (0, 1, 2)), inversion(table).emission
    reach, noise = laplace(scale)
    sums: dict[tuple[int, ...], float] = {}
    for symbols in itertools.product(range(3), repeat=len(states)):
        counts = tuple(symbols.count(z) for z in range(3))
        sums[counts] = sums.get(counts, 0.0) + math.prod(emission[x, z] for x, z in zip(states, symbols, strict=True))
    distribution: dict[tuple[int, ...], float] = {}
    for shifts in itertools.product(range(-reach // 3, reach // 3 + 1), repeat=3):  # left out: 10^-3
        for counts, p in sums.items():
            total = tuple(map(sum, zip(counts, shifts, strict=True)))
            distribution[total] = distribution.get(total, 0.0) + p * math.prod(noise[reach + n] for n in shifts)
    held, mean, truth = np.zeros(3), np.zeros(3), np.bincount(states, minlength=3)
    for total, p in distribution.items():
        answer = estimate(query, (Tally(table, len(states), 0, np.array(total)),), scale, 0.9)
        mean += p * answer.values
        held += p * ((answer.low <= truth) & (truth <= answer.high))
    assert held.min() >= 0.9
    assert mean == pytest.approx(truth, rel=2e-3), "unbiased"


def test_an_interval_is_no_wider_than_its_errors_ask_for() -> None:
    """Not so wide that it says nothing: asymmetric tables have narrow intervals where errors are rare."""
    table = binary(0.01, 0.4)
    (few,) = (estimate(COUNT, (Tally(table, 1000, 999, np.array([10])),), Fraction(1, 2)),)
    many = estimate(COUNT, (Tally(table, 1000, 999, np.array([500])),), Fraction(1, 2))
    assert few.high[0] - few.low[0] < 45.0 < 80.0 < many.high[0] - many.low[0] < 130.0
    assert few.low[0] == min(few.values[0], 0.0)


@pytest.mark.long
@pytest.mark.parametrize(("states", "rho"), [("0111101", (0.3, 0.2)), ("1111111", (0.05, 0.05))], ids=str)
def test_an_interval_of_a_dwell_time_covers_as_often_as_it_says(states: str, rho: tuple[float, float]) -> None:
    """Noise is 0 with probability 1 - 10^-8 here."""
    table, path = binary(*rho), np.array([int(state) for state in states])
    emission, scale, query = inversion(table).emission, Fraction(1, 20), Query("dwell", (1,))
    truth = path[:-1].sum() / max((path[:-1] > path[1:]).sum(), 1)
    chances: dict[tuple[int, ...], float] = defaultdict(float)
    for symbols in itertools.product(range(2), repeat=len(path)):
        tally = count_symbols(query, np.array(symbols), table)
        counts = (tally.ticks, tally.steps, *tally.counts.flatten().tolist())
        chances[counts] += math.prod(emission[x, z] for x, z in zip(path, symbols, strict=True))
    held = 0.0
    for (ticks, steps, *counts), chance in chances.items():
        answer = estimate(query, (Tally(table, ticks, steps, np.array(counts).reshape(2, 2)),), scale)
        held += chance * (answer.low[0] <= truth <= answer.high[0])
    assert held >= 0.95


@pytest.mark.long
def test_a_dwell_time_is_right_in_the_middle_and_its_error_is_what_it_says() -> None:
    """Of stays of 60 ticks: a ratio of unbiased numbers is right in the middle, not on average."""
    table, path, generator = binary(0.02, 0.01), np.array(([1] * 60 + [0] * 40) * 40), np.random.default_rng(3)
    answers = []
    for _ in range(100):
        symbols, query = generator.random(len(path)) < inversion(table).emission[path, 1], Query("dwell", (1,))
        tally = count_symbols(query, symbols.astype(np.int64), table)
        answers.append(estimate(query, (tally,), Fraction(1, 20)))
    values = np.array([answer.values[0] for answer in answers])
    errors = np.array([answer.standard_errors[0] for answer in answers])
    assert np.median(values) == pytest.approx(60.0, rel=0.05)
    assert np.median(errors) == pytest.approx(values.std(), rel=0.2)
