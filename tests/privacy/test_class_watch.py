"""The gateway's watch over a class: no chain of the class raises alarms, chains outside do, and it says which would."""

from __future__ import annotations

import numpy as np
import pytest

from fugu.chains import simulate
from fugu.chains.arrays import Floats, Ints
from fugu.contract.chains import BinaryChains, BoundedChains, ChainClass, FiniteChains
from fugu.contract.leakage import Adversary
from fugu.privacy.class_watch import Bets, noticeable, why_off

BOX = BinaryChains(q=(0.08, 0.12), r=(0.1, 0.15))
EMISSION = np.array([[0.7, 0.3], [0.35, 0.65]])
COIN = np.array([[0.501, 0.499], [0.499, 0.501]])


def drawn(q: float, r: float, ticks: int, seed: int, emission: Floats = EMISSION) -> Ints:
    generator = np.random.default_rng(seed)
    return simulate(ticks, [1.0, 0.0], [[1 - q, q], [r, 1 - r]], emission, generator).symbols


def most(chains: BinaryChains | FiniteChains, symbols: Ints) -> float:
    bets = Bets(chains, EMISSION)
    bets.invest(0.5)
    bets.observe(symbols[: len(symbols) // 2])
    bets.invest(0.5)
    bets.observe(symbols[len(symbols) // 2 :])
    assert bets.least <= bets.most
    return bets.most


@pytest.mark.long
@pytest.mark.parametrize(("q", "r"), [(0.08, 0.1), (0.08, 0.15), (0.12, 0.1), (0.12, 0.15), (0.1, 0.12)])
def test_a_chain_of_the_class_raises_no_alarm(q: float, r: float) -> None:
    """Ville's bound allows 1 in 20 of 20 runs; the mean of what is won is not above 1 either."""
    runs = [most(BOX, drawn(q, r, 4_000, seed)) for seed in range(20)]
    assert sum(run >= 20.0 for run in runs) <= 4, "more than 4 has a probability below .003"
    assert float(np.median(runs)) < 1.5


@pytest.mark.long
def test_chains_outside_the_class_are_found() -> None:
    for factor in (2.0, 5.0, 20.0):
        found = [most(BOX, drawn(0.08 / factor, 0.1 / factor, 20_000, seed)) for seed in range(3)]
        assert min(found) > 1e4, factor
    known = FiniteChains(transitions=(((0.9, 0.1), (0.2, 0.8)), ((0.7, 0.3), (0.1, 0.9))))
    assert most(known, drawn(0.1, 0.2, 8_000, 1)) < 20.0
    assert most(known, drawn(0.3, 0.1, 8_000, 1)) < 20.0
    assert most(known, drawn(0.02, 0.04, 8_000, 1)) > 1e4


@pytest.mark.long
def test_it_says_which_departure_it_notices_and_notices_that() -> None:
    """In weeks that were not simulated for it; a longer week notices less, and next to pure noise nothing."""
    week, threshold = 20_000, 500.0
    factor = noticeable(BOX, EMISSION, week, threshold)
    assert factor is not None
    found = 0
    for seed in range(10, 20):
        bets = Bets(BOX, EMISSION)
        bets.invest(1.0 / 52.0)
        bets.observe(drawn(0.08 / factor, 0.1 / factor, week, seed))
        found += bets.most >= threshold
    assert found >= 5
    shorter = noticeable(BOX, EMISSION, week // 10, threshold)
    assert shorter is None or shorter >= factor
    assert noticeable(BOX, COIN, week, threshold) is None


@pytest.mark.parametrize(
    ("chains", "adversary", "why"),
    [
        (BOX, "informed", None),
        (BOX, "ignorant", None),
        (BOX, "universal", "may change at every step"),
        (BoundedChains(states=2, odds_ratio=9.0), "universal", "may change at every step"),
        (FiniteChains(transitions=(((0.5, 0.3, 0.2),) * 3,)), "informed", "two states"),
    ],
)
def test_where_nothing_could_be_seen_it_is_off(chains: ChainClass, adversary: Adversary, why: str | None) -> None:
    off = why_off(chains, adversary)
    assert (off is None) == (why is None)
    assert why is None or (off is not None and why in off)
