"""Chains: refusals, stationary distributions, and simulations of them and of their symbols."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fugu.chains.inference import filter_beliefs
from fugu.chains.model import simulate, stationary_distribution
from tests.support.chain_cases import LONG, bounded, distributions

EVEN = np.full((2, 2), 0.5)


@bounded
@given(st.integers(0, 2**32 - 1), st.integers(1, 8))
def test_a_stationary_distribution_does_not_move(seed, k):
    transition = distributions(np.random.default_rng(seed), k, k, floor=0.001)
    distribution = stationary_distribution(transition)
    assert distribution.sum() == pytest.approx(1.0, abs=1e-14)
    np.testing.assert_allclose(distribution @ transition, distribution, rtol=1e-12)


def test_stationary_distributions_in_closed_form():
    for q, r in [(0.2, 0.35), (1e-12, 0.3), (1e-9, 1e-6), (1.0, 1.0)]:
        distribution = stationary_distribution([[1 - q, q], [r, 1 - r]])
        leaves = 1 - (1 - q), 1 - (1 - r)  # what the matrix holds after rounding
        np.testing.assert_allclose(distribution[1], q / (q + r), rtol=1e-9)
        assert distribution[0] == pytest.approx(1 - q / (q + r), rel=1e-6)
        assert leaves[0] >= 0
    np.testing.assert_allclose(stationary_distribution([[0.5, 0.5], [0.0, 1.0]]), [0.0, 1.0], atol=1e-15)
    np.testing.assert_allclose(stationary_distribution([[1.0, 0.0], [0.5, 0.5]]), [1.0, 0.0], atol=1e-15)
    with pytest.raises(ValueError, match="more than one stationary distribution"):
        stationary_distribution(np.eye(2))


@pytest.mark.parametrize(
    ("changed", "complaint"),
    [
        ({"transition": [[0.5, 0.6], [0.5, 0.5]]}, "transition has a row that sums to 1.1"),
        ({"transition": [[1.5, -0.5], [0.5, 0.5]]}, "negative"),
        ({"transition": [[np.nan, 1.0], [0.5, 0.5]]}, "negative or undefined"),
        ({"transition": [[1.0, 0.0]]}, "square"),
        ({"emission": [[0.5, 0.5]]}, "one row per state"),
        ({"emission": [[0.5, 0.4], [0.5, 0.5]]}, "emission has a row"),
        ({"initial": [0.2, 0.3, 0.5]}, "initial has shape"),
        ({"initial": [[0.5, 0.5], [0.5, 0.5]]}, r"\(2,\) or \(1, 2\)"),
        ({"symbols": [0, 2]}, r"allowed: -1\.\.1"),
        ({"symbols": [0, -2]}, r"allowed: -1\.\.1"),
        ({"symbols": [0.0, 1.0]}, "integers"),
        ({"symbols": [[0, 1]]}, "vector of integers"),
        ({"lengths": [1, 2]}, "lengths sum to 3, but there are 2 symbols"),
        ({"lengths": [3, -1]}, "counts"),
    ],
)
def test_what_is_not_a_chain_or_its_symbols_is_refused(changed, complaint):
    fields = {"symbols": [0, 1], "initial": EVEN[0], "transition": EVEN, "emission": EVEN} | changed
    with pytest.raises(ValueError, match=complaint):
        filter_beliefs(**fields)


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
