"""Simulation of chains and symbols."""

from __future__ import annotations

import numpy as np
import pytest

from fugu.chains.model import simulate, stationary_distribution
from tests.support.chain_cases import LONG


def test_frequencies_are_those_of_the_chain_and_the_table():
    transition = np.array([[0.9, 0.1], [0.3, 0.7]])
    emission = np.array([[0.8, 0.1, 0.1], [0.1, 0.2, 0.7]])
    states, symbols = simulate(
        LONG, stationary_distribution(transition), transition, emission, np.random.default_rng(62)
    )
    tolerance = 6 / np.sqrt(LONG)
    for x in range(2):
        after = states[1:][states[:-1] == x]
        np.testing.assert_allclose(np.bincount(after, minlength=2) / after.size, transition[x], atol=3 * tolerance)
        seen = symbols[states == x]
        np.testing.assert_allclose(np.bincount(seen, minlength=3) / seen.size, emission[x], atol=3 * tolerance)
    assert (states == 0).mean() == pytest.approx(0.75, abs=3 * tolerance)


def test_what_has_probability_zero_never_happens():
    transition = np.array([[0.0, 1.0, 0.0], [0.5, 0.0, 0.5], [0.0, 1.0, 0.0]])
    thirds = np.array([[1 / 3, 2 / 3, 0.0], [0.0, 1 / 3, 2 / 3], [0.1, 0.9, 0.0]])
    states, symbols = simulate(5000, [0, 1, 0], transition, thirds, np.random.default_rng(63))
    assert states[0] == 1
    assert (transition[states[:-1], states[1:]] > 0).all()
    assert (thirds[states, symbols] > 0).all()


def test_no_ticks_and_fewer_than_none():
    even = np.full((2, 2), 0.5)
    assert simulate(0, even[0], even, even, np.random.default_rng(64)).states.shape == (0,)
    with pytest.raises(ValueError, match="-1 ticks"):
        simulate(-1, even[0], even, even, np.random.default_rng(64))
    with pytest.raises(ValueError, match="vector"):
        simulate(1, even, even, even, np.random.default_rng(64))
