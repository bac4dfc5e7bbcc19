"""All mechanisms side by side: their order, what they refuse, and that ours never needs more noise than the papers'."""

from __future__ import annotations

import numpy as np
import pytest

from fugu.contract.chains import BinaryChains, BoundedChains
from fugu.privacy.chain_class import ChainClassError, MarkovChain
from fugu.privacy.window_mechanisms import MECHANISMS, WindowRequest, least_noise, window_noise
from tests.support.mqm_cases import CHAINS


def request(chains: object, epsilon: float = 1.0, length: int | None = None, **other: object) -> WindowRequest:
    fields = {"query": "count", "adversary": "ignorant", **other}
    return WindowRequest(chains, epsilon, length, **fields)


def random_chain(seed: int, k: int) -> np.ndarray:
    generator = np.random.default_rng(seed)
    stay = generator.uniform(0.0, 0.8)
    return stay * np.eye(k) + (1 - stay) * generator.dirichlet(np.ones(k), size=k)


@pytest.mark.long
@pytest.mark.parametrize("length", [None, 40])
@pytest.mark.parametrize(("k", "seed"), [(2, 0), (3, 3)])
def test_ours_needs_no_more_than_quilts_and_these_no_more_than_their_approximation(
    k: int, seed: int, length: int | None
) -> None:
    chains = (MarkovChain.stationary(random_chain(1000 * k + seed, k)),)
    for epsilon in (0.2, 1.0, 5.0):
        asked = request(chains, epsilon, length)
        ours = window_noise(asked, "chain").scale
        exact = window_noise(asked, "mqm-exact").scale
        assert ours <= exact * (1 + 1e-8)
        try:
            approximate = window_noise(asked, "mqm-approx").scale
        except ChainClassError:
            continue
        assert exact <= approximate * (1 + 1e-8)
        assert ours == pytest.approx(least_noise(asked).scale, rel=1e-8)


@pytest.mark.long
def test_ours_needs_no_more_than_quilts_with_many_states() -> None:
    chains = (MarkovChain.stationary(random_chain(5, 14)),)
    for epsilon in (0.2, 1.0, 5.0):
        asked = request(chains, epsilon)
        assert window_noise(asked, "chain").scale <= window_noise(asked, "mqm-exact").scale


def test_a_histogram_needs_twice_the_noise_in_every_bin() -> None:
    for mechanism in MECHANISMS:
        chains = (CHAINS["theta1_stationary"],)
        if mechanism != "wasserstein":
            scale = window_noise(request(chains, 1.0, 30), mechanism).scale
            two = window_noise(request(chains, 1.0, 30, query="histogram"), mechanism).scale
            assert two == pytest.approx(2 * scale, rel=1e-9)


def test_what_there_is_not_is_refused_with_the_reason() -> None:
    chains = (CHAINS["theta1_stationary"],)
    for mechanism, other, reason in (
        ("group", {}, "needs a length"),
        ("wasserstein", {}, "needs a length"),
        ("wasserstein", {"query": "histogram", "length": 9}, "no histogram"),
        ("mqm-exact", {"adversary": "informed"}, "ignorant adversary only"),
    ):
        with pytest.raises(ChainClassError, match=reason):
            window_noise(request(chains, **other), mechanism)
    with pytest.raises(ChainClassError, match="transition matrices"):
        window_noise(request(BoundedChains(states=3, odds_ratio=4.0)), "mqm-exact")
    assert least_noise(request(BoundedChains(states=3, odds_ratio=4.0))).mechanism == "chain"


def test_only_what_composes_is_chosen() -> None:
    """Wasserstein and entry-DP would need less noise here, and protect less."""
    chains = BinaryChains(q=(0.1, 0.1), r=(0.4, 0.4))
    asked = request(chains, 1.0, 100)
    assert window_noise(asked, "entry").scale < least_noise(asked).scale
    assert least_noise(asked).mechanism == "chain"


def test_an_interval_has_no_wasserstein_noise() -> None:
    """The corners are the worst for quilts; nothing proves that they are for distances between distributions."""
    with pytest.raises(ChainClassError, match="not an interval of them"):
        window_noise(request(BinaryChains(q=(0.1, 0.2), r=(0.4, 0.4)), 1.0, 9), "wasserstein")
    assert window_noise(request(BinaryChains(q=(0.1, 0.1), r=(0.4, 0.4)), 1.0, 9), "wasserstein").scale > 1.0
