"""The scale of a count's noise: exact chances of an alarm, with and without a fault, at the default number."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from numpy.typing import NDArray

from fugu.audit.device import scale_alarms, total_tails

COUNTS = 100_000
EACH = 1e-3 / 2 / 2 / 3 / 2
"""Part that the test has of the command's rate: of a part, of the draws by themselves, of three samples, of one."""
SCALES = [Fraction(3), Fraction(70, 3), Fraction(400)]


def ratio(scale: Fraction | float) -> float:
    return math.exp(-1 / float(scale))


def noise(seed: int, scale: float, counts: int = COUNTS) -> NDArray[np.int64]:
    up, two = np.random.default_rng(seed).geometric(1 - ratio(scale), (2, counts))
    return np.asarray(up - two)


def first_total(counts: int, a: float, side: int, rate: float) -> int:
    """The total next to the mean that is an alarm: the tail from it on, on its side, is below a quarter of the rate."""
    low, high = 0, 8 * math.ceil(counts / (1 - a))
    while high - low > 1:
        middle = (low + high) // 2
        inside = total_tails(middle, counts, a)[side] * 4 < rate
        low, high = (middle, high) if inside == (side == 0) else (low, middle)
    return (low, high)[side]


def detected(counts: int, scale: Fraction, of: float, rate: float = EACH) -> float:
    """The probability of an alarm by the total, at a scale that is another by a factor."""
    low, high = (first_total(counts, ratio(scale), side, rate) for side in (0, 1))
    a = ratio(float(scale) * of)
    return total_tails(low, counts, a)[0] + total_tails(high, counts, a)[1]


@pytest.mark.parametrize("draws", [1, 2, 3])
def test_tails_of_totals_are_those_of_all_draws_one_by_one(draws: int) -> None:
    a, most = 0.6, 12
    chance = {n: (1 - a) / (1 + a) * a ** abs(n) for n in range(-most, most + 1)}
    exact = [0.0] * (most + 1)
    for every in product(chance, repeat=draws):
        if (total := sum(map(abs, every))) <= most:
            exact[total] += math.prod(chance[n] for n in every)
    for total in range(most + 1):
        below, above = total_tails(total, draws, a)
        assert below == pytest.approx(sum(exact[: total + 1]), abs=1e-12)
        assert above == pytest.approx(1 - sum(exact[:total]), abs=1e-12)


@pytest.mark.long
@pytest.mark.parametrize("scale", SCALES[2:])
def test_noise_two_per_cent_too_small_is_found(scale: Fraction) -> None:
    """Of 100,000 counts of a state; and of those of two states and of the changes together, as they are tested too."""
    assert detected(COUNTS, scale, 0.98) > 0.95
    assert detected(3 * COUNTS, scale, 0.98) > 1 - 1e-8
    assert detected(COUNTS, scale, 0.99) < 0.2
    assert {alarm.test for alarm in scale_alarms(noise(1, float(scale) * 0.98).tolist(), scale, EACH)} == {"scale"}


@pytest.mark.long
@pytest.mark.parametrize("scale", SCALES[1:2])
def test_one_count_of_a_hundred_without_noise_is_found(scale: Fraction) -> None:
    from scipy import stats  # takes as long to import as many tests to run

    zero = (1 - ratio(scale)) / (1 + ratio(scale))
    zeros = next(n for n in range(COUNTS) if stats.binom.sf(n - 1, COUNTS, zero) * 2 < EACH)
    assert stats.binom.sf(zeros - 1, COUNTS, zero * 0.99 + 0.01) > 0.99
    drawn = noise(2, float(scale))
    drawn[::100] = 0
    alarms = scale_alarms(drawn.tolist(), scale, EACH)
    assert any("have no noise" in alarm.about for alarm in alarms)
    assert not any(
        "have no noise" in alarm.about for alarm in scale_alarms(noise(2, float(scale)).tolist(), scale, EACH)
    )


@pytest.mark.long
@pytest.mark.parametrize("scale", SCALES[2:])
@pytest.mark.parametrize("counts", [100, COUNTS])
def test_honest_noise_is_called_wrong_no_more_often_than_stated(scale: Fraction, counts: int) -> None:
    """By the exact distributions, and nearly as often: half the rate has the total, half the zeros."""
    for rate in (0.1, EACH):
        assert detected(counts, scale, 1.0, rate) <= rate / 2
        assert detected(COUNTS, scale, 1.0, rate) > 0.45 * rate


@pytest.mark.long
def test_alarms_come_where_the_exact_chances_have_them() -> None:
    """Runs at a rate of 20 %: 200 honest ones have more than 64 alarms with a probability below 10^-4."""
    scale = Fraction(7, 2)
    alarms = sum(bool(scale_alarms(noise(seed, 3.5, 1000).tolist(), scale, 0.2)) for seed in range(200))
    assert 10 < alarms <= 64
    assert first_total(1000, ratio(scale), 0, 0.2) < 1000 * 2 * ratio(scale) / (1 - ratio(scale) ** 2)
    low, high = (first_total(1000, ratio(scale), side, 0.2) for side in (0, 1))
    assert [total_tails(total, 1000, ratio(scale))[side] * 4 < 0.2 for total, side in ((low, 0), (high, 1))] == [
        True
    ] * 2
    assert total_tails(low + 1, 1000, ratio(scale))[0] * 4 >= 0.2
