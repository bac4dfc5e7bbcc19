"""Knowledge from noisy counts of symbols, by adding up every path: never more than epsilon."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from fugu.contract.chains import BinaryChains, BoundedChains, odds_ratio
from fugu.contract.losses import Adversary
from fugu.contract.noise_table import SCALE, NoiseTable
from fugu.contract.reports import QueryKind
from gateway.releases.allowance import allowance, charge, smallest_scale
from gateway.releases.charges import units_above
from gateway.releases.statistics import Query, count_symbols, sensitivity
from tests.support.sanitised_counts import stationary, worst_loss


@pytest.mark.parametrize(("adversary", "n"), [("ignorant", 7), ("informed", 5)])
@pytest.mark.parametrize(("q", "r"), [(0.1, 0.4), (0.2, 0.3), (0.03, 0.05), (0.7, 0.8)])
@pytest.mark.parametrize("rho", [(0.1, 0.1), (0.3, 0.1), (0.02, 0.4)])
@pytest.mark.parametrize("epsilon", [0.3, 1.5])
def test_two_states(adversary: Adversary, n: int, q: float, r: float, rho: tuple[float, float], epsilon: float) -> None:
    chains = BinaryChains(q=(q, q), r=(r, r))
    table = NoiseTable.binary(round(rho[0] * SCALE), round(rho[1] * SCALE))
    allowed = allowance(chains, epsilon, adversary)
    transition = np.array([[1 - q, q], [r, 1 - r]])
    hit = np.array([rho[0], 1 - rho[1]])
    scale = float(smallest_scale([table], 1, allowed))
    half = float(smallest_scale([table], 1, allowed // 2))
    initial, informed = stationary(transition), adversary == "informed"
    assert worst_loss(initial, transition, hit, n, [scale], informed=informed) <= epsilon
    few = min(n, 4)
    assert worst_loss(initial, transition, hit, few, [half, half], informed=informed) <= epsilon


@pytest.mark.long
@pytest.mark.parametrize("epsilon", [0.5, 2.0])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_three_states(seed: int, epsilon: float) -> None:
    generator = np.random.default_rng(seed)
    transition = generator.dirichlet([1.0, 1.0, 1.0], size=3) * 0.85 + 0.05
    transition[-1] = transition[0] * 0.3 + transition[-1] * 0.7
    rows = tuple(tuple(map(float, row / row.sum())) for row in transition)
    transition = np.array(rows)
    chains = BoundedChains(states=3, odds_ratio=odds_ratio(rows))
    weights = generator.dirichlet([2.0, 2.0, 2.0], size=3)
    table = NoiseTable(rows=tuple((int(w[0] * SCALE), int((w[0] + w[1]) * SCALE)) for w in weights))
    allowed = allowance(chains, epsilon, "universal")
    emission = np.array(table.weights()) / SCALE
    for symbol in range(3):
        for initial in (np.array([1.0, 1.0, 1.0]) / 3, np.array([0.98, 0.01, 0.01])):
            scale = float(smallest_scale([table], 1, allowed))
            assert worst_loss(initial, transition, emission[:, symbol], 4, [scale], informed=True) <= epsilon
            assert worst_loss(initial, transition, emission[:, symbol], 7, [scale], informed=False) <= epsilon


def test_a_release_in_every_window_that_takes_the_whole_allowance_reaches_epsilon() -> None:
    """On a sticky chain the bound is attained: with 1 % less noise, the accountant's loss is above epsilon."""
    chains, table = BinaryChains(q=(0.1, 0.1), r=(0.4, 0.4)), NoiseTable.binary(SCALE // 10, SCALE // 10)
    scale = smallest_scale([table], 1, allowance(chains, 1.0, "ignorant"))
    for factor, holds in ((1.0, True), (0.99, False)):
        ratio = Fraction(math.exp(units_above(charge(table, 1 / (float(scale) * factor))) / 10**12))
        assert (chains.ratio_loss(ratio, ratio, "ignorant").epsilon <= 1.0) is holds
    transition = np.array([[0.9, 0.1], [0.4, 0.6]])
    worst = [
        worst_loss(stationary(transition), transition, np.array([0.1, 0.9]), n, [float(scale)], informed=False)
        for n in (1, 7, 31)
    ]
    assert worst[0] < worst[1] < worst[2] <= 1.0
    assert worst[2] > 0.99


@pytest.mark.parametrize("kind", ["histogram", "dwell"])
@pytest.mark.parametrize("rho", [(0.1, 0.1), (0.3, 0.1)])
def test_histograms_and_pairs_of_symbols(kind: QueryKind, rho: tuple[float, float]) -> None:
    """Every path of four ticks; outputs near, and so far outside on any side that only their direction counts."""
    n, epsilon = 4, 1.0
    chains = BinaryChains(q=(0.1, 0.1), r=(0.4, 0.4))
    table = NoiseTable.binary(round(rho[0] * SCALE), round(rho[1] * SCALE))
    query = Query(kind, (0, 1) if kind == "histogram" else (1,))
    paths = np.array(list(product((0, 1), repeat=n)))
    tallies = [count_symbols(query, path, table) for path in paths]
    counts = np.array([tally.counts.ravel() for tally in tallies])
    scale = float(smallest_scale([table], sensitivity(tallies), allowance(chains, epsilon, "ignorant")))
    outputs = np.array(list(product((-50, 0, 1, 2, 50), repeat=counts.shape[1])))
    density = np.exp(-np.abs(outputs[:, None, :] - counts[None, :, :]).sum(axis=2) / scale)
    transition, emission = np.array([[0.9, 0.1], [0.4, 0.6]]), np.array(table.weights()) / SCALE
    distribution = stationary(transition)[paths[:, 0]] * transition[paths[:, :-1], paths[:, 1:]].prod(axis=1)
    symbols = emission[paths[:, None, :], paths[None, :, :]].prod(axis=2)  # (states, symbols)
    worst = 0.0
    for tick in range(n):
        densities = [np.where(paths[:, tick] == x, distribution, 0.0) for x in (0, 1)]
        values = [density @ (weights @ symbols) / weights.sum() for weights in densities]
        worst = max(worst, float(np.abs(np.log(values[0] / values[1])).max()))
    assert 0.3 * epsilon < worst <= epsilon
