"""Discrete Laplace noise has exactly the distribution that guarantees speak of, and its integers no bias."""

from __future__ import annotations

import math
import random
from collections import Counter
from fractions import Fraction
from functools import cache

import pytest

from fugu.core.noise import discrete_laplace, uniform_below

SCALES = ("1/2", "1", "7/3", "20", "1000/7")
DRAWS = 40_000
SMALLEST_P = 1e-4


def probability(value: int, scale: Fraction) -> float:
    ratio = math.exp(-1 / scale)
    return (1 - ratio) / (1 + ratio) * ratio ** abs(value)


@cache
def sample(scale: Fraction, seed: int, draws: int = DRAWS) -> list[int]:
    generator = random.Random(seed)
    return [discrete_laplace(generator.randrange, scale.numerator, scale.denominator) for _ in range(draws)]


def cells(scale: Fraction) -> list[tuple[int, int]]:
    """Intervals of values with 300 expected draws or more each; what lies beyond them on both sides is one more."""
    draws, start, value, weight = [], 0, 0, 0.0
    while value <= 12 * scale + 1:
        weight += DRAWS * probability(value, scale)
        if weight >= 300:
            draws.append((start, value))
            start, weight = value + 1, 0.0
        value += 1
    return [(-high, -low) for low, high in reversed(draws) if low > 0] + draws


def occupation(values: list[int], scale: Fraction) -> list[int]:
    """How many values each cell of a scale holds."""
    counts = Counter(values)
    inside = [sum(counts[value] for value in range(low, high + 1)) for low, high in cells(scale)]
    return [*inside, len(values) - sum(inside)]


def expectation(scale: Fraction) -> list[float]:
    """How many draws each cell should hold."""
    inside = [DRAWS * sum(probability(v, scale) for v in range(low, high + 1)) for low, high in cells(scale)]
    return [*inside, DRAWS - sum(inside)]


class Drawn:
    """Uniform integers that are given: each with what it is to be below."""

    def __init__(self, *pairs: tuple[int, int]) -> None:
        self._given = iter(pairs)

    def __call__(self, below: int) -> int:
        asked, value = next(self._given, (0, 0))
        assert below == asked, "another draw than by the algorithm"
        return value


@pytest.mark.parametrize(
    ("words", "noise"),
    [
        ([(5, 0), (5, 4), (1, 0), (2, 1), (2, 0)], 0),
        ([(5, 3), (5, 3), (1, 0), (2, 1), (2, 1)], -1),
        ([(5, 3), (5, 2), (10, 7), (5, 3), (5, 2), (10, 2), (15, 5), (1, 0), (2, 1), (2, 0)], 1),
        ([(5, 4), (5, 4), *[(1, 0), (2, 0), (3, 2)] * 2, (1, 0), (2, 1), (2, 1)], -7),
        ([(5, 1), (5, 1), (1, 0), (2, 1), (2, 1), (5, 2), (5, 2), (1, 0), (2, 1), (2, 1)], -1),
    ],
)
def test_the_words_that_are_drawn_make_the_noise(words: list[tuple[int, int]], noise: int) -> None:
    """Algorithm 2 by hand, for a scale of 5/2."""
    assert discrete_laplace(Drawn(*words), 5, 2) == noise


@pytest.mark.long
@pytest.mark.parametrize("name", SCALES)
def test_the_distribution_is_exact(name: str) -> None:
    """A chi-square test against the closed form."""
    from scipy import stats  # takes as long to import as many tests to run

    scale = Fraction(name)
    assert stats.chisquare(occupation(sample(scale, 11), scale), expectation(scale)).pvalue > SMALLEST_P


@pytest.mark.parametrize(("numerator", "denominator"), [(0, 1), (1, 0), (-1, 1), (1, -1)])
def test_a_scale_that_is_not_positive_is_refused(numerator: int, denominator: int) -> None:
    with pytest.raises(ValueError, match="is not positive"):
        discrete_laplace(random.Random(0).randrange, numerator, denominator)


def test_a_tiny_scale_is_no_noise_and_a_huge_one_is_drawn_at_once() -> None:
    assert set(sample(Fraction(1, 200), 13, 200)) == {0}
    assert max(abs(value) for value in sample(Fraction(10**9), 13, 200)) > 10**8


# Uniform integers


@pytest.mark.parametrize("below", [2, 3, 5, 6, 7, 100, 257])
def test_every_integer_below_a_bound_comes_from_equally_many_bytes(below: int) -> None:
    """All pairs of bytes, one after the other: values that are not thrown away are hit equally often."""
    width = ((below - 1).bit_length() + 7) // 8
    stream = iter(range(256**width))
    counts: Counter[int] = Counter()

    def every(buffer: memoryview) -> None:
        assert len(buffer) == width
        buffer[:] = next(stream).to_bytes(width, "little")

    draw = uniform_below(every)
    try:
        while True:
            counts[draw(below)] += 1
    except StopIteration:
        pass
    assert sorted(counts) == list(range(below))
    assert len(set(counts.values())) == 1


def test_one_value_takes_no_randomness_and_none_is_an_error() -> None:
    def never(_buffer: memoryview) -> None:
        raise AssertionError("no bytes are needed")

    assert uniform_below(never)(1) == 0
    with pytest.raises(ValueError, match="no integer is below 0"):
        uniform_below(never)(0)


def test_without_randomness_there_is_no_noise() -> None:
    def broken(_buffer: memoryview) -> None:
        raise OSError("no entropy")

    with pytest.raises(OSError, match="no entropy"):
        discrete_laplace(uniform_below(broken), 20, 1)
