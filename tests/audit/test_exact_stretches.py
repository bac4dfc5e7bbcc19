"""A device's claims about stretches against the second certificate, on random policies of every class."""

from __future__ import annotations

import json
from collections.abc import Callable
from fractions import Fraction
from typing import get_args

import numpy as np
import pytest

from fugu.audit.exact.chains.claims import recompute
from fugu.contract.chains import BinaryChains, BoundedChains, ChainClass, JointChains, JointStream
from fugu.contract.discretisers import Thresholds
from fugu.contract.guarantee import Guarantee, StreamOutputs
from fugu.contract.losses import Adversary, float_up
from fugu.contract.noise_table import SCALE, NoiseTable
from fugu.contract.policy import Policy
from fugu.contract.queries import EACH
from fugu.contract.windows import Window
from tests.support.windows import policy

ADVERSARIES: tuple[Adversary, ...] = get_args(Adversary)
PERIOD = 60_000_000
FEW = (0, 1, 2, 3, 5)
Draw = Callable[[np.random.Generator, int, Fraction], ChainClass]


def binary(rng: np.random.Generator, _states: int, _told: Fraction) -> ChainClass:
    q, r = rng.uniform(0.02, 0.45, 2)
    return BinaryChains(q=(q, q * rng.choice([1.0, 1.1])), r=(r, r * rng.choice([1.0, 1.1])))


def bounded(rng: np.random.Generator, states: int, _told: Fraction) -> ChainClass:
    return BoundedChains(states=states, odds_ratio=float(np.exp(rng.uniform(0, 8))))


def pairs(rng: np.random.Generator, _states: int, fraction: Fraction) -> ChainClass:
    """Order 2: what is shown is the later of two states."""
    steps = ((0.5, 0.5, 0.0, 0.0), (0.0, 0.0, 0.5, 0.5)) * 2
    shown, odds = JointStream(name="hr", states=2, rate=float_up(fraction)), float(np.exp(rng.uniform(0, 8)))
    shows = ((0,), (1,), (0,), (1,))
    return JointChains(streams=(shown,), period_us=PERIOD, shows=shows, odds_ratio=odds, steps=2, transition=steps)


def together(rng: np.random.Generator, _states: int, fraction: Fraction) -> ChainClass:
    """Beside another stream, which may tell what it may."""
    rates = {"hr": float_up(fraction), "steps": float(rng.uniform(0.05, 0.3))}
    shown = tuple(JointStream(name=name, states=2, rate=rate) for name, rate in rates.items())
    shows = ((0, 0), (0, 1), (1, 0), (1, 1))
    return JointChains(streams=shown, period_us=PERIOD, shows=shows, odds_ratio=float(np.exp(rng.uniform(0, 4))))


def random_policy(seed: int, draw: Draw) -> Policy:
    """Windows that tile, overlap and skip, symbols beside them or not, and a stretch of any length."""
    rng = np.random.default_rng(seed)
    states = int(rng.integers(2, 4)) if draw is bounded else 2
    windows = tuple(
        Window(
            name=f"w{number}",
            length=int(rng.integers(1, 12)),
            stride=int(rng.integers(1, 15)),
            states=EACH if rng.random() < 0.3 else (1,),
            scale=str(Fraction(int(rng.integers(40, 900)), 7)),
        )
        for number in range(int(rng.integers(0, 3)))
    )
    table = None
    if not windows or rng.random() < 0.6:
        wrong = SCALE // states - int(rng.integers(SCALE // 100, SCALE // 10))
        table = NoiseTable.binary(wrong, wrong) if states == 2 else NoiseTable.randomised_response(states, wrong)
    adversary = ADVERSARIES[int(rng.integers(3))]
    loose = Guarantee(epsilon=1e5, adversary=adversary, stretch_ticks=int(rng.choice([1, 2, 3, 7, 60, 481])))
    draft = policy(
        *windows,
        table=table,
        frame_ticks=1 if table is None else 10,
        discretiser=Thresholds(edges=tuple(range(states - 1)), states=tuple("abc"[:states])),
        guarantee=loose,
        windows_guarantee=loose if windows and table is not None else None,
        chains=draw(rng, states, StreamOutputs(table, windows).rate),
        clock={"epoch_us": 0, "period_us": PERIOD},
    )
    return Policy.from_json(draft.to_json())


def check(seed: int, draw: Draw) -> None:
    policy = random_policy(seed, draw)
    ticks = policy.guarantee.stretch_ticks
    claims = {claim.output: claim.loss for claim in recompute(json.loads(policy.to_json()))}
    first = policy.bound(policy.verify()).epsilon(ticks)
    second = next(iter(claims.values()))
    assert 0 <= first - second <= 2e-6 * first, (seed, ticks)
    if policy.windows_guarantee is not None:
        bound, second = policy.windows_bound(policy.verify_windows()), claims["windows alone"]
        # what the other streams' class allows this one counts in the device's, and not here
        assert 0 <= bound.epsilon(ticks) - second <= (1.0 if draw is together else 2e-6) * bound.epsilon(ticks)


@pytest.mark.long
@pytest.mark.parametrize("draw", [binary, bounded, pairs, together])
def test_both_certificates_agree_on_stretches_of_every_class(draw: Draw) -> None:
    for seed in FEW:
        check(seed, draw)
