"""Noise is of its distribution: the bound is above the exact quantile of that chance, and wrong noise is found."""

from __future__ import annotations

import math
import random
from fractions import Fraction

import numpy as np
import pytest

from fugu.core.noise import discrete_laplace
from gateway.releases.allowance import FALSE_ALARMS, log_chance, noise_problems


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
    (line,) = noise_problems({scale: (enough, 0)})
    assert line.startswith("noise of scale 20 is 0 on average over 6 numbers, and should be 19.9917: it was not drawn")
    for wrong in (Fraction(10), Fraction(40)):
        assert noise_problems({scale: (200, drawn(wrong, 200, 3))}) != []
    assert noise_problems({}) == []
