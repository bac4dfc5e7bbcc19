"""Belief of the first tick: classes with any start, and with a stationary one, against every path."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from fugu.contract.chains import BinaryChains, BoundedChains
from fugu.privacy.accountant import ChainAccountant
from fugu.privacy.accountant.accountant import covered_start, with_start
from fugu.privacy.accountant.accountant import known_chains as started_members
from fugu.privacy.chain_class import ChainClassError, MarkovChain
from fugu.privacy.window_mechanisms import WindowRequest, window_noise
from papers.quilts import influence
from tests.support.mqm_cases import CHAINS, GOLDEN
from tests.support.oracle import count_density, enumerated_losses, starts_anyhow


@pytest.mark.parametrize("key", GOLDEN["9_synthetic"])
def test_the_worst_of_an_interval_with_any_start_is_the_paper_s(key: str) -> None:
    """Section 5.2 of the paper, with all initial distributions: one interval, not a grid of chains."""
    alpha, epsilon = map(float, key.split("|"))
    chains = BinaryChains(q=(alpha, 1.0 - alpha), r=(alpha, 1.0 - alpha))
    for start, column in (("any", "exact_all"), ("stationary", "stationary_only")):
        asked = WindowRequest(chains, epsilon, 100, "count", "ignorant", start=start)
        noise = window_noise(asked, "mqm-exact")
        assert noise.scale == pytest.approx(GOLDEN["9_synthetic"][key][column], rel=3e-9)
        assert noise.start == start


@pytest.mark.long
@pytest.mark.parametrize("seed", range(4))
def test_no_chain_of_an_interval_has_more_influence_than_a_corner(seed: int) -> None:
    generator = np.random.default_rng(seed)
    low, high = np.sort(generator.uniform(0.02, 0.98, (2, 2)), axis=0)
    box = BinaryChains(q=(low[0], high[0]), r=(low[1], high[1]))
    corners = started_members(box, "any")
    assert isinstance(corners, tuple)
    grid = [np.linspace(low[at], high[at], 5) for at in (0, 1)]
    members = [MarkovChain(np.array([[1 - q, q], [r, 1 - r]]), None) for q, r in product(*grid)]
    for _ in range(6):
        before, after = int(generator.integers(0, 5)), int(generator.integers(0, 5))
        if before + after:
            quilt = before + int(generator.integers(1, 6)), before or None, after or None
            worst = max(influence(corner, *quilt) for corner in corners)
            assert max(influence(member, *quilt) for member in members) <= worst * (1 + 1e-9) + 1e-12


@pytest.mark.long
@pytest.mark.parametrize("adversary", ["ignorant", "informed", "universal"])
@pytest.mark.parametrize("seed", range(2))
def test_any_start_is_accounted_for(adversary: str, seed: int) -> None:
    generator = np.random.default_rng(seed)
    low = generator.uniform(0.05, 0.9, 2)
    high = low + generator.uniform(0.0, 0.95 - low) * (seed % 2)
    box = BinaryChains(q=(low[0], high[0]), r=(low[1], high[1]))
    rate, length = 0.4, 5
    bound = ChainAccountant(with_start(box, "any")).loss(rate, adversary, length).epsilon
    for q, r in product(box.q, box.r):
        transition = np.array([[1 - q, q], [r, 1 - r]])
        starts = starts_anyhow(generator, 2)
        real = enumerated_losses(
            starts, transition, length, count_density(1 / rate, 0, length - 1), informed=adversary == "informed"
        )
        assert real.max() <= bound * (1 + 1e-9)


def test_the_start_that_a_class_covers() -> None:
    point, box = BinaryChains(q=(0.1, 0.1), r=(0.4, 0.4)), BinaryChains(q=(0.1, 0.2), r=(0.4, 0.4))
    few = (MarkovChain.stationary(((0.9, 0.1), (0.3, 0.7))),)
    bounded = BoundedChains(states=2, odds_ratio=13.5)
    classes = (CHAINS["theta1"],)
    for chains, words in ((point, "stationary"), (box, "stationary"), (few, "stationary"), (classes, "as given")):
        assert covered_start(with_start(chains, None)) == words
        assert covered_start(with_start(chains, "stationary")) == "stationary"
        assert covered_start(with_start(chains, "any")) == "any"
    assert with_start(bounded, "stationary") is bounded
    assert covered_start(bounded) == "any"
    wide = with_start(box, "any")
    assert isinstance(wide, BoundedChains)
    assert wide.odds_ratio == pytest.approx(13.5)
    with pytest.raises(ChainClassError):
        with_start((MarkovChain(np.eye(2), np.array([1.0, 0.0])),), "stationary")
