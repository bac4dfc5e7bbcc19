"""Every reported loss against enumeration: never exceeded; the papers' errors, by name."""

from __future__ import annotations

import numpy as np
import pytest

from fugu.contract.chains import BinaryChains
from fugu.contract.guarantee import loss
from fugu.contract.losses import Adversary
from fugu.contract.noise_table import NoiseTable
from tests.support.oracle import worst_loss

SCALE = 2**32


def point(q: float, r: float) -> BinaryChains:
    return BinaryChains(q=(q, q), r=(r, r))


def emission(table: NoiseTable) -> np.ndarray:
    return np.array(table.weights()) / SCALE


def flips(rho0: float, rho1: float) -> NoiseTable:
    return NoiseTable.binary(round(rho0 * SCALE), round(rho1 * SCALE))


def random_table(generator: np.random.Generator, states: int, symbols: int) -> NoiseTable:
    while True:
        weights = generator.dirichlet(np.ones(symbols), size=states)
        cuts = (np.cumsum(weights, axis=1)[:, :-1] * SCALE).astype(np.int64)
        if (weights > 0.02).all():
            return NoiseTable(rows=tuple(tuple(int(c) for c in row) for row in cuts))


@pytest.mark.long
@pytest.mark.parametrize("seed", range(6))
def test_no_adversary_on_a_binary_chain_ever_exceeds_the_loss(seed: int) -> None:
    """All outputs, positions, known sets and values; both signs of correlation; two or three symbols."""
    generator = np.random.default_rng(seed)
    q, r = (float(x) for x in generator.uniform(0.02, 0.98, size=2))
    n, symbols = (6, 2) if seed % 3 else (5, 3)
    table = random_table(generator, 2, symbols)
    transition = np.array([[1 - q, q], [r, 1 - r]])
    distribution = np.linalg.matrix_power(transition, 4096)[0]
    for adversary, informed in (("ignorant", False), ("informed", True)):
        worst = worst_loss(distribution, [transition] * (n - 1), emission(table), informed=informed)
        bound = loss(point(q, r), table, adversary)
        assert worst[0, 1] <= bound.epsilon_01 + 1e-12
        assert worst[1, 0] <= bound.epsilon_10 + 1e-12


@pytest.mark.long
@pytest.mark.parametrize("adversary", ["ignorant", "informed", "universal"])
def test_no_chain_of_an_interval_class_loses_more_than_the_class(adversary: Adversary) -> None:
    """Streams without end: for `informed` and q + r < 1 there is a proof, and this looks for exceptions."""
    seed = 3
    generator = np.random.default_rng(300 + seed)
    for _ in range(10):
        q = np.sort(generator.beta(0.5, 0.8, size=2) * 0.98 + 0.01)
        r = np.sort(generator.beta(0.5, 0.8, size=2) * 0.98 + 0.01)
        rho0 = generator.uniform(0.001, 0.9)
        table = flips(rho0, generator.uniform(0.01, 0.99) * (1 - rho0))
        bound = loss(BinaryChains(q=(q[0], q[1]), r=(r[0], r[1])), table, adversary)
        for _ in range(8):
            inside = loss(point(float(generator.uniform(*q)), float(generator.uniform(*r))), table, adversary)
            assert inside.epsilon_01 <= bound.epsilon_01 * (1 + 1e-12)
            assert inside.epsilon_10 <= bound.epsilon_10 * (1 + 1e-12)


# What the paper gets wrong


def test_a_start_that_is_not_stationary_breaks_theorem_1_and_universal_covers_it() -> None:
    table = flips(0.1, 0.1)
    transition = np.array([[0.95, 0.05], [0.3, 0.7]])
    worst = worst_loss(np.array([0.02, 0.98]), [transition] * 5, emission(table), informed=False)
    assert worst[0, 1] > loss(point(0.05, 0.3), table, "ignorant").epsilon_01 + 1
    assert worst.max() <= loss(point(0.05, 0.3), table, "universal").epsilon
