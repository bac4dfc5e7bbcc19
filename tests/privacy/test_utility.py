"""The worth of a stream, where it is known in closed form."""

from __future__ import annotations

import numpy as np
import pytest

from fugu.contract.noise_table import NoiseTable
from fugu.privacy.randomised_response import utility

HALF = 1 << 31


@pytest.mark.long
def test_independent_readings_are_guessed_from_their_own_symbol() -> None:
    flips = round(0.2 * 2**32)
    worth = utility(np.full((2, 2), 0.5), NoiseTable.binary(flips, flips), np.random.default_rng(1), ticks=20_000)
    assert worth.accuracy == pytest.approx(0.8, abs=1e-6)
    assert worth.majority == 0.5
    capacity = 1 + 0.2 * np.log2(0.2) + 0.8 * np.log2(0.8)
    assert worth.bits_per_reading == pytest.approx(capacity, abs=1e-6)


def test_a_coin_flip_is_worth_nothing() -> None:
    worth = utility(
        np.array([[0.9, 0.1], [0.3, 0.7]]), NoiseTable.binary(HALF, HALF), np.random.default_rng(1), ticks=5_000
    )
    assert worth.accuracy == pytest.approx(worth.majority, abs=1e-9)
    assert worth.majority == pytest.approx(0.75)
    assert worth.bits_per_reading == pytest.approx(0.0, abs=1e-12)


def test_nearly_silent_noise_carries_the_entropy_of_the_chain() -> None:
    chain = np.array([[0.9, 0.1], [0.3, 0.7]])
    worth = utility(chain, NoiseTable.binary(1, 1), np.random.default_rng(1), ticks=100_000)

    def entropy(p: float) -> float:
        return float(-p * np.log2(p) - (1 - p) * np.log2(1 - p))

    assert worth.accuracy == pytest.approx(1.0, abs=1e-6)
    assert worth.bits_per_reading == pytest.approx(0.75 * entropy(0.1) + 0.25 * entropy(0.3), abs=0.005)


def test_a_gateway_that_assumes_another_chain_does_no_better() -> None:
    chain, table = np.array([[0.95, 0.05], [0.05, 0.95]]), NoiseTable.binary(HALF // 2, HALF // 2)
    right = utility(chain, table, np.random.default_rng(3), ticks=20_000)
    wrong = utility(chain, table, np.random.default_rng(3), assumed_chain=np.full((2, 2), 0.5), ticks=20_000)
    assert wrong.accuracy < right.accuracy - 0.05
    assert wrong.bits_per_reading == right.bits_per_reading
