"""Independent segments: windows across them, against every path of all of them, and what never reaches a policy."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from fugu.contract.chains import BinaryChains, BoundedChains
from fugu.privacy.chain_class import ChainClassError, MarkovChain
from fugu.privacy.window_mechanisms import Mechanism, WindowRequest, plan_noise
from tests.support.oracle import paths_of
from tests.support.released import Release, losses

STICKY = [[0.9, 0.1], [0.4, 0.6]]
MECHANISMS: tuple[Mechanism, ...] = ("chain", "mqm-exact", "mqm-approx", "group")


def apart(chain: MarkovChain, lengths: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """All paths through independent segments that follow one another, and their probabilities."""
    assert chain.initial is not None
    each = [paths_of(chain.initial, [chain.transition] * (length - 1)) for length in lengths]
    joined = [np.concatenate(parts) for parts in product(*(paths for paths, _ in each))]
    weights = [float(np.prod(parts)) for parts in product(*(weight for _, weight in each))]
    return np.array(joined), np.array(weights)


@pytest.mark.parametrize("lengths", [(4, 4), (2, 4, 1), (3, 4)])
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_windows_inside_and_across_segments_keep_epsilon(mechanism: Mechanism, lengths: tuple[int, ...]) -> None:
    chain = MarkovChain.stationary(STICKY)
    for epsilon in (0.5, 3.0):
        asked = WindowRequest((chain,), epsilon, None, "count", "ignorant", segments=4)
        noise = plan_noise(asked, mechanism, None).noise
        assert noise.composes
        ticks = sum(lengths)
        for cuts in ((ticks,), (2, ticks), (1, 3, ticks), tuple(range(1, ticks + 1))):
            windows: list[Release] = [
                (range(first + 1, last + 1), (0, 1), noise.scale)
                for first, last in zip((0, *cuts), cuts, strict=False)
                if first < last
            ]
            real = losses(*apart(chain, lengths), windows)
            assert real.max() <= epsilon * (1 + 1e-9)


def test_a_segment_of_the_most_ticks_needs_the_noise_of_the_plan() -> None:
    chain = MarkovChain.stationary(STICKY)
    noise = plan_noise(WindowRequest((chain,), 1.0, None, "count", "ignorant", segments=5), "chain", None).noise
    real = losses(*apart(chain, (5, 2)), [(range(1, 8), (0, 1), noise.scale)])
    assert real.max() == pytest.approx(1.0, rel=1e-6)


def test_a_segment_without_end_is_the_plan_without_segments() -> None:
    whole = WindowRequest(BinaryChains(q=(0.1, 0.1), r=(0.4, 0.4)), 1.0, None, "count", "ignorant")
    cut = WindowRequest(whole.chains, 1.0, None, "count", "ignorant", segments=10_000)
    for mechanism in MECHANISMS[:3]:
        assert plan_noise(cut, mechanism, None).noise.scale == pytest.approx(
            plan_noise(whole, mechanism, None).noise.scale
        )
    assert (cut.dependent_ticks, whole.dependent_ticks) == (10_000, None)
    request = WindowRequest(whole.chains, 1.0, 30, "count", "ignorant", segments=10)
    assert request.dependent_ticks == 10
    assert not plan_noise(request, "chain", None).noise.composes
    with pytest.raises(ChainClassError, match="plan each segment"):
        plan_noise(request, "wasserstein", None)


def test_what_rests_on_segments_is_declared_by_no_policy() -> None:
    for chains in (BinaryChains(q=(0.1, 0.1), r=(0.4, 0.4)), BoundedChains(states=2, odds_ratio=13.5)):
        for adversary in ("ignorant", "universal"):
            asked = WindowRequest(chains, 1.0, None, "count", adversary, segments=6)
            planned = plan_noise(asked, "chain", None)
            assert planned.device is None
            assert not planned.raised
