"""Refusals of the public functions, and stationary distributions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fugu.chains.inference import filter_beliefs
from fugu.chains.model import stationary_distribution
from tests.support.chain_cases import bounded, distributions

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
