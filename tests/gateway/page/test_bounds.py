"""Between what a promise keeps a probability, against every likelihood that it allows."""

from __future__ import annotations

import math

import pytest

from fugu.contract.chains import BinaryChains
from gateway.page.device_view import posterior_bounds


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 5.0])
def test_the_bounds_are_reached_and_never_left(epsilon: float) -> None:
    chains = BinaryChains(q=(0.1, 0.3), r=(0.2, 0.5))
    beliefs = []
    for i in range(11):
        for j in range(11):
            q, r = 0.1 + 0.02 * i, 0.2 + 0.03 * j
            for step in range(-10, 11):
                odds = q / r * math.exp(epsilon * step / 10)
                beliefs.append(odds / (1 + odds))
    assert posterior_bounds(chains, epsilon) == (pytest.approx(min(beliefs)), pytest.approx(max(beliefs)))


def test_a_promise_of_nothing_bounds_nothing() -> None:
    assert posterior_bounds(BinaryChains(q=(0.2, 0.2), r=(0.2, 0.2)), 1e4) == (0.0, 1.0)
