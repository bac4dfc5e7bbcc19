"""Counts of symbols, sensitivities and noise; `test_coverage` enumerates what answers are worth."""

from __future__ import annotations

import math
import random
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fugu.contract.errors import FuguError
from fugu.contract.noise_table import SCALE, NoiseTable
from fugu.core.noise import discrete_laplace
from gateway.releases.allowance import FALSE_ALARMS, log_chance, noise_problems
from gateway.releases.statistics import (
    Query,
    Tally,
    add_noise,
    count_symbols,
    estimate,
    inversion,
    noise_variance,
    sensitivity,
    two_valued_weights,
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


def test_a_group_is_added_up_before_the_noise_and_tables_are_counted_apart() -> None:
    first, second, sharp = (
        count_symbols(Query("count", (1,)), np.array([1] * ones + [0] * 5), table)
        for ones, table in ((1, BINARY), (2, BINARY), (3, SHARP))
    )
    tallies = first.plus(second), sharp
    assert [(tally.table, tally.ticks, tally.counts.tolist()) for tally in tallies] == [
        *((BINARY, 13, [3]), (SHARP, 8, [3]))
    ]
    assert sensitivity(tallies) == 1


SYMBOLS = st.lists(st.integers(-1, 2), min_size=3, max_size=30)


@settings(max_examples=40)
@given(SYMBOLS, st.data())
def test_one_symbol_changes_the_counts_by_no_more_than_the_sensitivity(symbols: list[int], data: st.DataObject) -> None:
    position = data.draw(st.sampled_from([i for i, symbol in enumerate(symbols) if symbol >= 0] or [0]))
    other = [*symbols]
    other[position] = data.draw(st.integers(0, 2)) if symbols[position] >= 0 else symbols[position]
    for kind, states in (("count", (1,)), ("frequency", (0, 1)), ("histogram", (0, 1, 2)), ("dwell", (2,))):
        query = Query(kind, states)
        tally, other_tally = (count_symbols(query, np.array(sequence), TERNARY) for sequence in (symbols, other))
        assert np.abs(tally.counts - other_tally.counts).sum() <= sensitivity([tally])
        assert sensitivity([tally]) == {"count": 1, "frequency": 1, "histogram": 2, "dwell": 4}[kind]


def test_missing_ticks_are_not_counted_and_break_pairs() -> None:
    tally = count_symbols(Query("dwell", (1,)), np.array([0, 1, -1, 1, 1, -1, -1, 0]), BINARY)
    assert (tally.ticks, tally.steps) == (5, 2)
    assert tally.counts.tolist() == [[0, 1], [0, 1]]


def test_a_count_of_states_needs_one_count_of_symbols_where_randomised_response_made_them() -> None:
    assert two_valued_weights(BINARY, (1,)) is not None
    assert two_valued_weights(TERNARY, (0, 2)) is not None
    assert two_valued_weights(WIDE, (0,)) is None
    tally = count_symbols(Query("count", (0,)), np.array([0, 1, 2, 3]), WIDE)
    assert (sensitivity([tally]), tally.counts.tolist()) == (2, [1, 1, 1, 1])


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
        with pytest.raises(FuguError) as refused:
            count_symbols(query, np.array([0, 1]), table)
        assert "\n" not in str(refused.value)
    with pytest.raises(FuguError, match="no tick of the window has a symbol"):
        estimate(Query("count", (1,)), (Tally(BINARY, 0, 0, np.array([3])),), Fraction(5))
    with pytest.raises(FuguError, match="no two consecutive ticks"):
        estimate(Query("dwell", (1,)), (Tally(BINARY, 9, 0, np.zeros((2, 2), dtype=np.int64)),), Fraction(5))


def test_a_dwell_time_that_is_lost_in_noise_has_an_interval_that_says_so() -> None:
    counts = np.array([[900, -40], [-30, 60]])
    answer = estimate(Query("dwell", (1,)), (Tally(BINARY, 1000, 999, counts),), Fraction(50))
    assert answer.low[0] >= 1.0
    assert answer.low[0] <= answer.values[0] <= answer.high[0] == 999.0


def test_noise_is_on_every_whole_number_and_has_the_distribution_it_should() -> None:
    scale, draws = Fraction(7, 2), random.Random(1)
    part = Tally(BINARY, 0, 0, np.zeros(20_000, dtype=np.int64))
    (changed,) = add_noise((part,), scale, draws.randrange)
    ratio = math.exp(-2 / 7)
    assert changed.counts.var() == pytest.approx(noise_variance(scale), rel=0.05)
    assert noise_variance(scale) == pytest.approx(2 * ratio / (1 - ratio) ** 2)
    assert [noise_variance(Fraction(scale)) for scale in ("1/999", "1/1000", "1e-400")] == [0.0, 0.0, 0.0]
    assert noise_variance(Fraction(10**9)) == pytest.approx(2e18)
    assert (changed.counts == 0).mean() == pytest.approx((1 - ratio) / (1 + ratio), abs=0.01)
    assert changed.counts.dtype == np.int64


def sizes(scale: float, numbers: int, most: int) -> list[float]:
    """The distribution of the sum of the sizes of so many independent numbers, by adding them up one by one."""
    p = math.exp(-1.0 / scale)
    law = np.array([1.0, *(2.0 * p**n for n in range(1, most))]) * (1.0 - p) / (1.0 + p)
    distribution = np.ones(1)
    for _ in range(numbers):
        distribution = np.convolve(distribution, law)[:most]
    return [float(weight) for weight in distribution]


def drawn(scale: Fraction, numbers: int, seed: int) -> int:
    generator = random.Random(seed)
    return sum(abs(discrete_laplace(generator.randrange, scale.numerator, scale.denominator)) for _ in range(numbers))


@pytest.mark.parametrize(("scale", "numbers"), [(Fraction(1, 2), 5), (Fraction(3), 12), (Fraction(7, 3), 40)])
def test_the_bound_is_above_the_exact_chance_on_both_sides_and_near_it(scale: Fraction, numbers: int) -> None:
    distribution = sizes(float(scale), numbers, 1500)
    p = math.exp(-1.0 / float(scale))
    expected = numbers * 2.0 * p / (1.0 - p * p)
    for size in range(int(4 * expected)):
        exact = math.log(math.fsum(distribution[: size + 1] if size < expected else distribution[size:]))
        bound = log_chance(scale, numbers, size)
        assert exact <= bound + 1e-9
        assert bound <= max(exact + 4.0, 0.0)
    assert log_chance(scale, numbers, 0) == pytest.approx(math.log(distribution[0]))


@pytest.mark.parametrize("scale", [Fraction(1, 10), Fraction(8, 3), Fraction(20), Fraction(10**6)])
def test_noise_of_the_scale_is_no_problem_however_much_of_it(scale: Fraction) -> None:
    assert noise_problems({scale: (2000, drawn(scale, 2000, 1)), scale + 1: (3, drawn(scale + 1, 3, 2))}) == []


def test_no_noise_and_the_wrong_scale_are_found_as_soon_as_they_cannot_be_chance() -> None:
    scale = Fraction(20)
    enough = math.ceil(math.log(FALSE_ALARMS / 2.0) / math.log(math.tanh(0.5 / 20)))
    assert noise_problems({scale: (enough - 1, 0)}) == []
    others = {scale + more: (3, drawn(scale + more, 3, 2)) for more in (1, 2)}
    assert noise_problems({scale: (enough, 0), **others}) == []  # three may each seem wrong by chance
    (line,) = noise_problems({scale: (enough, 0)})
    assert line.startswith("noise of scale 20 is 0 on average over 6 numbers, and should be 19.9917: it was not drawn")
    for wrong in (Fraction(10), Fraction(40)):
        assert noise_problems({scale: (200, drawn(wrong, 200, 3))}) != []
    assert noise_problems({}) == []
