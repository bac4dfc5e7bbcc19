"""Intervals for averages over dependent ticks cover as often as they say."""

from __future__ import annotations

import numpy as np
import pytest

from fugu.attackers.evaluation import block_sums, lowest_mean, mean_interval
from fugu.privacy.transitions import share_bounds


@pytest.mark.long
@pytest.mark.parametrize(("memory", "least"), [(0.0, 0.93), (0.9, 0.93), (0.99, 0.90)])
def test_intervals_cover_the_mean_of_a_correlated_series(memory, least):
    """200 series of 5,000 numbers; a memory of 0.99 leaves only 25 independent stretches."""
    from scipy.signal import lfilter  # takes longer to import than all of pytest

    generator = np.random.default_rng(5)
    covered = 0
    for _ in range(200):
        series = lfilter([1.0], [1.0, -memory], generator.normal(size=7000))[2000:]
        low, high = mean_interval(np.asarray(series > 0, dtype=np.float64), 0.95)
        covered += low <= 0.5 <= high
    assert covered / 200 >= least - 0.03


def test_a_constant_series_has_no_doubt_and_a_short_one_every():
    assert mean_interval(np.ones(100), 0.95) == (1.0, 1.0)
    assert mean_interval(np.ones(3), 0.95) == (-np.inf, np.inf)


def test_blocks_are_means_of_all_numbers():
    np.testing.assert_allclose(block_sums(np.arange(11.0), 3), [1.0, 4.0, 8.0])


def test_bounds_are_on_their_side():
    sums = np.random.default_rng(0).normal(1.0, 0.1, 32)
    assert 0.9 < lowest_mean(sums, 0.99) < sums.mean()
    assert share_bounds(0, 32, 0.05) == (0.0, pytest.approx(1 - 0.05 ** (1 / 32)))
    assert share_bounds(32, 32, 0.05) == (pytest.approx(0.05 ** (1 / 32)), 1.0)
