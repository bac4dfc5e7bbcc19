"""Estimates are unbiased, intervals cover the truth as often as they say, and only noisy numbers enter."""

from __future__ import annotations

import math
import random
from fractions import Fraction
from functools import lru_cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from fugu.contract.noise_table import SCALE, NoiseTable
from gateway.releases.statistics import (
    Estimates,
    Part,
    Query,
    ReleaseError,
    SymbolCounter,
    estimate,
    inversion,
    noise_variance,
    noisy,
    sensitivity,
    two_valued,
)

BINARY = NoiseTable.binary(1_200_000_000, 900_000_000)
SHARP = NoiseTable.binary(400_000_000, 500_000_000)
TERNARY = NoiseTable.randomised_response(3, 600_000_000)
WIDE = NoiseTable(
    rows=tuple(
        (int(a * SCALE), int(b * SCALE), int(c * SCALE))
        for a, b, c in ((0.5, 0.75, 0.875), (0.125, 0.625, 0.75), (0.125, 0.25, 0.5))
    )
)
CHAINS = {
    2: np.array([[0.95, 0.05], [0.1, 0.9]]),
    3: np.array([[0.9, 0.07, 0.03], [0.1, 0.8, 0.1], [0.05, 0.15, 0.8]]),
}
Integers = NDArray[np.int64]


def walk(generator: np.random.Generator, states: int, n: int) -> Integers:
    path, steps = [0], generator.random(n)
    cumulative = CHAINS[states].cumsum(axis=1)
    for step in steps[1:]:
        path.append(min(int((step >= cumulative[path[-1]]).sum()), states - 1))
    return np.array(path)


def randomise(generator: np.random.Generator, table: NoiseTable, states: Integers) -> Integers:
    cumulative = (np.array(table.weights()) / SCALE).cumsum(axis=1)[states]
    return np.asarray((generator.random(len(states))[:, None] >= cumulative).sum(axis=1), dtype=np.int64)


def truth(query: Query, states: Integers) -> NDArray[np.float64]:
    inside = np.isin(states, query.states)
    if query.kind == "histogram":
        return np.bincount(states, minlength=len(query.states)).astype(float)
    if query.kind == "dwell":
        return np.array([inside[:-1].sum() / max((inside[:-1] & ~inside[1:]).sum(), 1)])
    return np.array([inside.mean() if query.kind == "frequency" else inside.sum()], dtype=float)


@lru_cache(maxsize=1)
def tallied(
    query: Query, table: NoiseTable, states: int, n: int, windows: int
) -> list[tuple[tuple[Part, ...], NDArray[np.float64]]]:
    """Counts in windows before there is noise, and the truth; a new walk every 20 windows."""
    generator, tallies = np.random.default_rng(11), []
    for window in range(windows):
        if window % 20 == 0:
            path = walk(generator, states, n)
            expected = truth(query, path)
        tally = SymbolCounter(query)
        tally.add(randomise(generator, table, path), table)
        tallies.append((tally.parts, expected))
    return tallies


def simulate(
    query: Query, table: NoiseTable, states: int, n: int, scale: Fraction, windows: int
) -> tuple[NDArray[np.float64], NDArray[np.bool_], list[Estimates]]:
    """Errors (windows, values) and whether the interval holds the truth, for the noise of one scale."""
    draws = random.Random(12)
    errors, covered, estimates = [], [], []
    for parts, expected in tallied(query, table, states, n, windows):
        answer = estimate(query, noisy(parts, scale, draws.randrange), scale)
        errors.append(answer.values - expected)
        covered.append((answer.low <= expected) & (expected <= answer.high))
        estimates.append(answer)
    return np.array(errors), np.array(covered), estimates


@pytest.mark.long
@pytest.mark.parametrize(
    ("query", "table", "states", "scale"),
    [
        (Query("count", (1,)), BINARY, 2, Fraction(40)),
        (Query("frequency", (0, 2)), TERNARY, 3, Fraction(1, 3)),
        (Query("histogram", (0, 1)), SHARP, 2, Fraction(40)),
        pytest.param(Query("histogram", (0, 1, 2)), WIDE, 3, Fraction(5), marks=pytest.mark.soak),
    ],
    ids=lambda value: value.kind if isinstance(value, Query) else None,
)
def test_estimates_are_unbiased_and_intervals_cover(
    query: Query, table: NoiseTable, states: int, scale: Fraction
) -> None:
    windows = 700
    errors, covered, estimates = simulate(query, table, states, 250, scale, windows)
    spread = errors.std(axis=0)
    assert np.all(np.abs(errors.mean(axis=0)) < 4 * spread / math.sqrt(windows))
    assert np.all(covered.mean(axis=0) >= 0.95)
    stated = np.sqrt(np.mean([estimate.standard_errors**2 for estimate in estimates], axis=0))
    assert np.all(np.mean([estimate.high - estimate.low for estimate in estimates], axis=0) < 6.0 * stated)
    assert stated == pytest.approx(spread, rel=0.1)


@pytest.mark.long
@pytest.mark.parametrize(
    ("table", "states", "chosen", "scale"),
    [
        (BINARY, 2, (1,), Fraction(20)),
        pytest.param(TERNARY, 3, (0, 2), Fraction(1), marks=pytest.mark.soak),
    ],
)
def test_dwell_times_are_right_within_their_intervals(
    table: NoiseTable, states: int, chosen: tuple[int, ...], scale: Fraction
) -> None:
    query = Query("dwell", chosen)
    errors, covered, estimates = simulate(query, table, states, 4000, scale, 60)
    assert covered.mean() >= 0.95
    # A ratio of unbiased numbers is right in the middle, not on average.
    assert abs(np.median(errors)) < 0.2 * np.median([estimate.standard_errors[0] for estimate in estimates])


def test_a_group_is_added_up_before_the_noise_and_tables_are_counted_apart() -> None:
    tally = SymbolCounter(Query("count", (1,)))
    for ones, table in ((1, BINARY), (2, BINARY), (3, SHARP)):
        tally.add(np.array([1] * ones + [0] * 5), table)
    assert [(part.table, part.ticks, part.counts.tolist()) for part in tally.parts] == [
        *((BINARY, 13, [3]), (SHARP, 8, [3])),
    ]
    assert sensitivity(tally.parts) == 1


SYMBOLS = st.lists(st.integers(-1, 2), min_size=3, max_size=30)


@settings(max_examples=40)
@given(SYMBOLS, st.data())
def test_one_symbol_changes_the_counts_by_no_more_than_the_sensitivity(symbols: list[int], data: st.DataObject) -> None:
    position = data.draw(st.sampled_from([i for i, symbol in enumerate(symbols) if symbol >= 0] or [0]))
    other = [*symbols]
    other[position] = data.draw(st.integers(0, 2)) if symbols[position] >= 0 else symbols[position]
    for kind, states in (("count", (1,)), ("frequency", (0, 1)), ("histogram", (0, 1, 2)), ("dwell", (2,))):
        counts = []
        for sequence in (symbols, other):
            tally = SymbolCounter(Query(kind, states))  # type: ignore[arg-type]
            tally.add(np.array(sequence), TERNARY)
            counts.append(tally.parts[0].counts)
        assert np.abs(counts[0] - counts[1]).sum() <= sensitivity(tally.parts)
        assert sensitivity(tally.parts) == {"count": 1, "frequency": 1, "histogram": 2, "dwell": 4}[kind]


def test_the_sensitivities_are_attained() -> None:
    for kind, states, moved in (("count", (1,), 1), ("histogram", (0, 1), 2), ("dwell", (1,), 4)):
        counts = []
        for sequence in ([0, 0, 1], [0, 1, 1]) if kind != "dwell" else ([0, 0, 0], [0, 1, 0]):
            tally = SymbolCounter(Query(kind, states))  # type: ignore[arg-type]
            tally.add(np.array(sequence), BINARY)
            counts.append(tally.parts[0].counts)
        assert np.abs(counts[0] - counts[1]).sum() == moved == sensitivity(tally.parts)


def test_missing_ticks_are_not_counted_and_break_pairs() -> None:
    tally = SymbolCounter(Query("dwell", (1,)))
    tally.add(np.array([0, 1, -1, 1, 1, -1, -1, 0]), BINARY)
    (part,) = tally.parts
    assert (part.ticks, part.steps) == (5, 2)
    assert part.counts.tolist() == [[0, 1], [0, 1]]


def test_a_count_of_states_needs_one_count_of_symbols_where_randomised_response_made_them() -> None:
    assert two_valued(BINARY, (1,)) is not None
    assert two_valued(TERNARY, (0, 2)) is not None
    assert two_valued(WIDE, (0,)) is None
    tally = SymbolCounter(Query("count", (0,)))
    tally.add(np.array([0, 1, 2, 3]), WIDE)
    assert (sensitivity(tally.parts), tally.parts[0].counts.tolist()) == (2, [1, 1, 1, 1])


@pytest.mark.parametrize("table", [BINARY, TERNARY, WIDE])
def test_the_inverse_is_one_and_keeps_totals(table: NoiseTable) -> None:
    emission, inverse = inversion(table)
    assert emission @ inverse.T == pytest.approx(np.eye(table.states), abs=1e-9)
    assert inverse.sum(axis=0) == pytest.approx(np.ones(table.symbols))


def test_what_cannot_be_answered_is_refused_in_one_line() -> None:
    same = NoiseTable(rows=((SCALE // 2,), (SCALE // 2,)))
    narrow = NoiseTable(rows=((10,), (20,), (30,)))
    for query, table in (
        (Query("count", (1,)), same),
        (Query("histogram", (0, 1, 2)), narrow),
        (Query("count", (0, 1)), BINARY),
        (Query("dwell", ()), BINARY),
        (Query("count", (2,)), BINARY),
        (Query("histogram", (0,)), BINARY),
    ):
        with pytest.raises(ReleaseError) as refused:
            SymbolCounter(query).add(np.array([0, 1]), table)
        assert "\n" not in str(refused.value)
    with pytest.raises(ReleaseError, match="no tick of the window has a symbol"):
        estimate(Query("count", (1,)), (Part(BINARY, 0, 0, np.array([3])),), Fraction(5))
    with pytest.raises(ReleaseError, match="no two consecutive ticks"):
        estimate(Query("dwell", (1,)), (Part(BINARY, 9, 0, np.zeros((2, 2), dtype=np.int64)),), Fraction(5))


def test_a_dwell_time_that_is_lost_in_noise_has_an_interval_that_says_so() -> None:
    counts = np.array([[900, -40], [-30, 60]])
    answer = estimate(Query("dwell", (1,)), (Part(BINARY, 1000, 999, counts),), Fraction(50))
    assert answer.low[0] >= 1.0
    assert answer.low[0] <= answer.values[0] <= answer.high[0] == 999.0


def test_noise_is_on_every_whole_number_and_has_the_distribution_it_should() -> None:
    scale, draws = Fraction(7, 2), random.Random(1)
    part = Part(BINARY, 0, 0, np.zeros(20_000, dtype=np.int64))
    (changed,) = noisy((part,), scale, draws.randrange)
    ratio = math.exp(-2 / 7)
    assert changed.counts.var() == pytest.approx(noise_variance(scale), rel=0.05)
    assert noise_variance(scale) == pytest.approx(2 * ratio / (1 - ratio) ** 2)
    assert [noise_variance(Fraction(scale)) for scale in ("1/999", "1/1000", "1e-400")] == [0.0, 0.0, 0.0]
    assert noise_variance(Fraction(10**9)) == pytest.approx(2e18)
    assert (changed.counts == 0).mean() == pytest.approx((1 - ratio) / (1 + ratio), abs=0.01)
    assert changed.counts.dtype == np.int64
