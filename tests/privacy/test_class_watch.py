"""Bets on the class of a stream: no chain of the class loses them, chains outside do."""

from __future__ import annotations

import numpy as np
import pytest

from fugu.chains.arrays import Floats, Ints
from fugu.chains.model import simulate
from fugu.contract.chains import BinaryChains, BoundedChains, ChainClass
from fugu.contract.losses import Adversary
from fugu.privacy.class_watch import largest_capital

BOX = BinaryChains(q=(0.08, 0.12), r=(0.1, 0.15))
EMISSION = np.array([[0.7, 0.3], [0.35, 0.65]])


def drawn(q: float, r: float, ticks: int, seed: int, emission: Floats = EMISSION) -> Ints:
    generator = np.random.default_rng(seed)
    return simulate(ticks, [1.0, 0.0], [[1 - q, q], [r, 1 - r]], emission, generator).symbols


def most(chains: BinaryChains, symbols: Ints) -> float:
    return largest_capital(chains, "ignorant", EMISSION, symbols)


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
        worst = [most(BOX, drawn(0.08 / factor, 0.1 / factor, 20_000, seed)) for seed in range(3)]
        assert min(worst) > 1e4, factor


@pytest.mark.parametrize(
    ("chains", "adversary"),
    [
        (BOX, "universal"),
        (BoundedChains(states=2, odds_ratio=9.0), "ignorant"),
        (BoundedChains(states=3, odds_ratio=9.0), "informed"),
    ],
)
def test_where_nothing_could_be_seen_nothing_is_won(chains: ChainClass, adversary: Adversary) -> None:
    assert largest_capital(chains, adversary, EMISSION, np.zeros(20_000, dtype=np.int64)) == 0.0
    assert largest_capital(BOX, "informed", EMISSION, np.zeros(20_000, dtype=np.int64)) > 1e4
