"""Answers and their errors: against the distribution of the noise, by hand, and at their edges."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from fugu.planning.answers import group_error, noisy_shares, true_shares, window_error
from fugu.planning.candidates import guess_error


def naive_error(scale: float, length: int, devices: int) -> tuple[float, float]:
    """By adding up every combination of noise of every device."""
    a = math.exp(-1.0 / scale)
    distribution = {n: (1 - a) / (1 + a) * a ** abs(n) for n in range(-60, 61)}
    total: dict[int, float] = {}
    for noise in product(distribution, repeat=devices):
        total[abs(sum(noise))] = total.get(abs(sum(noise)), 0.0) + math.prod(distribution[n] for n in noise)
    whole = devices * length
    most, mass = 0, total[0]
    while mass < 0.95:
        most += 1
        mass += total[most]
    return sum(min(n, whole) * p for n, p in total.items()) / whole, min(most, whole) / whole


@pytest.mark.parametrize(("scale", "length", "devices"), [(2.5, 10, 1), (2.5, 1000, 1), (0.4, 30, 2), (2.0, 30, 2)])
def test_the_error_of_a_group_is_that_of_all_noise_together(scale: float, length: int, devices: int) -> None:
    assert group_error(Fraction(scale), length, devices) == pytest.approx(naive_error(scale, length, devices), abs=1e-9)


@pytest.mark.parametrize("scale", [Fraction(1, 20), Fraction(7, 2), Fraction(375)])
@pytest.mark.parametrize("length", [10, 300])
def test_a_group_of_one_is_a_device(scale: Fraction, length: int) -> None:
    alone = window_error(scale, length)
    mean, most = group_error(scale, length, 1)
    assert mean == pytest.approx(alone.share_mean, rel=1e-6, abs=1e-9)
    assert most == pytest.approx(alone.share_95)


def test_shares_are_of_ticks_with_a_state_and_no_window_crosses_a_gap() -> None:
    states = np.array([1, 0, 1, 1, -1, 1, 1, 1, 1, 1, 0, 0] + [1] * 25)
    segments = np.repeat([0, 1], [12, 25])
    shares = true_shares(states, segments, 10, ((1,),))
    assert shares.first.tolist() == [0, 12, 22]
    assert shares.counts[:, 0].tolist() == [8, 10, 10]
    assert shares.truth[:, 0].tolist() == [8 / 9, 1.0, 1.0]
    assert shares.bias[0, 0] == pytest.approx(8 / 9 - 0.8)


def test_windows_with_many_ticks_without_a_state_are_not_judged() -> None:
    states = np.where(np.arange(40) % 5 == 0, -1, 1)
    assert not len(true_shares(states, np.zeros(40, dtype=np.int64), 10, ((1,),)).counts)


def test_what_is_told_has_the_noise_of_its_distribution() -> None:
    shares = true_shares(np.tile([0, 1], 5_000), np.zeros(10_000, dtype=np.int64), 100, ((0,), (1,)))
    rng = np.random.default_rng(3)
    for devices in (1, 9):
        noisy = noisy_shares(shares, Fraction(4), devices, rng, 200)
        assert noisy.shape == (200, 100, 2)
        mean, most = group_error(Fraction(4), 100, devices)
        errors = np.abs(noisy - shares.truth)
        assert errors.mean() == pytest.approx(mean, rel=0.03)
        assert (errors <= most + 1e-12).mean() == pytest.approx(0.95, abs=0.02)


def test_always_guessing_is_judged_elsewhere_than_it_was_learned() -> None:
    fitted, truth = np.full((50, 1), 0.3), np.full((50, 1), 0.8)
    assert guess_error(fitted, truth, 1, np.random.default_rng(1)) == pytest.approx(0.5)


def test_the_average_of_a_group_is_easier_to_guess() -> None:
    rng = np.random.default_rng(2)
    some = rng.random((300, 1))
    alone, group = (guess_error(some, some, devices, rng) for devices in (1, 25))
    assert group < alone / 3


def test_a_group_that_has_the_day_in_common_is_no_easier_to_guess_than_its_day() -> None:
    times = np.arange(400) % 2
    some = np.where(times == 0, 0.1, 0.9)[:, None] + np.random.default_rng(3).uniform(-0.1, 0.1, (400, 1))
    unaware, aware = (guess_error(some, some, 400, np.random.default_rng(1), hours) for hours in (None, (times, times)))
    assert unaware < 0.03
    assert aware == pytest.approx(0.4, abs=0.01)


def test_noise_beyond_all_counting_has_a_bound() -> None:
    assert group_error(Fraction(10**12), 100, 1) == (1.0, 1.0)
    mean, most = group_error(Fraction(10**6), 10_000, 10**6)
    assert 0.0 < mean < most < 1.0
    assert mean == pytest.approx(1e6 * 2**0.5 * 1e3 / 1e10)
