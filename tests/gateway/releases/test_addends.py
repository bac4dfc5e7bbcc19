"""Answers put together from windows and symbols: unbiased, better than each part, and covered by their intervals."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pytest

from fugu.contract.chains import BinaryChains
from fugu.contract.losses import exp_up
from fugu.contract.noise_table import SCALE, NoiseTable
from gateway.releases.allowance import allowance, charge, smallest_scale
from gateway.releases.charges import PER_NAT, units_above
from gateway.releases.inputs import Addend, answer, sum_addends, symbols_addend, weighted_mean
from gateway.releases.maker import windows_addend
from gateway.releases.statistics import Estimates, Query, add_noise, count_symbols
from tests.support.sanitised_counts import stationary
from tests.support.soak import only

TABLE = NoiseTable.binary(1_500_000_000, 1_300_000_000)
THREE = NoiseTable.randomised_response(3, 900_000_000)
CONFIDENCE = 0.9
RUNS = 800


def laplace(generator: np.random.Generator, scale: Fraction, *shape: int) -> Any:
    ratio = math.exp(-1.0 / float(scale))
    return generator.geometric(1.0 - ratio, shape) - generator.geometric(1.0 - ratio, shape)


def randomised(generator: np.random.Generator, table: NoiseTable, states: Any) -> Any:
    cumulative = (np.array(table.weights()) / SCALE).cumsum(axis=1)[states]
    return (generator.random(len(states))[:, None] >= cumulative).sum(axis=1)


class Case:
    """So many ticks of one device: its windows, its symbols, and the answers from them."""

    def __init__(self, query: Query, table: NoiseTable, window: str, release: str, windows: int) -> None:
        self.query, self.table, self.release = query, table, Fraction(release)
        self.window, self.windows = Fraction(window), windows
        self.states = np.random.default_rng(3).choice(
            table.states, 240, p=[0.7, *[0.3 / (table.states - 1)] * (table.states - 1)]
        )
        counts = np.array([np.bincount(part, minlength=table.states) for part in np.split(self.states, windows)])
        self.counts = counts if query.kind == "histogram" else counts[:, list(query.states)].sum(axis=1, keepdims=True)
        divisor = len(self.states) if query.kind == "frequency" else 1
        self.truth = self.counts.sum(axis=0) / divisor

    def from_windows(self, generator: np.random.Generator) -> Addend:
        counts = self.counts + laplace(generator, self.window, *self.counts.shape)
        numbers = np.ones(counts.shape[1], dtype=np.int64)
        return windows_addend(counts, numbers, [self.window] * self.windows, len(self.states))

    def from_symbols(self, generator: np.random.Generator) -> Addend:
        tally = count_symbols(self.query, randomised(generator, self.table, self.states), self.table)
        tallies = add_noise((tally,), self.release, lambda below: int(generator.integers(below)))
        return symbols_addend(self.query, tallies, self.release)


CASES = {
    "a count of one window": Case(Query("count", (1,)), TABLE, "12", "40", 1),
    "a count of many windows": Case(Query("count", (1,)), TABLE, "3", "5", 12),
    "a share": Case(Query("frequency", (1,)), TABLE, "30", "5", 2),
    "a histogram": Case(Query("histogram", (0, 1, 2)), THREE, "20", "10", 4),
    "two states of three": Case(Query("count", (0, 2)), THREE, "1/2", "1/10", 3),
    "windows say less": Case(Query("count", (1,)), TABLE, "300", "1", 1),
}


def several(case: Case, kind: str, runs: int) -> list[Estimates]:
    estimates = []
    for seed in range(runs):
        generator = np.random.default_rng(seed)
        windows, symbols = case.from_windows(generator), case.from_symbols(generator)
        total = {"windows": windows, "symbols": symbols, "both": weighted_mean(windows, symbols)}.get(kind)
        if total is None:  # two devices with equal states, one of which has symbols only
            total = sum_addends([weighted_mean(windows, symbols), case.from_symbols(generator)])
        estimates.append(answer(case.query, total, CONFIDENCE))
    return estimates


@pytest.mark.long
@pytest.mark.parametrize("kind", only(["both"], ["windows", "symbols", "both", "two devices"]))
@pytest.mark.parametrize("name", CASES)
def test_answers_are_unbiased_and_intervals_cover_at_least_as_often_as_they_say(name: str, kind: str) -> None:
    case = CASES[name]
    truth = case.truth * (2 if kind == "two devices" and case.query.kind != "frequency" else 1)
    runs = RUNS if kind == "both" else 4 * RUNS
    estimates = several(case, kind, runs)
    values = np.array([estimate.values for estimate in estimates])
    errors = values.std(axis=0) / math.sqrt(runs)
    assert (np.abs(values.mean(axis=0) - truth) < 4.5 * errors).all()
    assert (values.std(axis=0) <= np.mean([estimate.standard_errors for estimate in estimates], axis=0) * 1.06).all()
    inside = np.mean([(estimate.low <= truth) & (truth <= estimate.high) for estimate in estimates], axis=0)
    assert (inside >= CONFIDENCE - 3 * math.sqrt(CONFIDENCE * (1 - CONFIDENCE) / runs)).all()


@pytest.mark.parametrize("name", CASES)
def test_both_together_are_better_than_either(name: str) -> None:
    generator = np.random.default_rng(1)
    windows, symbols = CASES[name].from_windows(generator), CASES[name].from_symbols(generator)
    both = weighted_mean(windows, symbols)
    assert (both.variances < np.minimum(windows.variances, symbols.variances)).all()
    weights = (both.values - symbols.values) / (windows.values - symbols.values)
    assert np.allclose(weights, symbols.variances / (windows.variances + symbols.variances))


@pytest.mark.parametrize("rho", [(0.1, 0.1), (0.3, 0.1)])
@pytest.mark.parametrize("share", [0.2, 0.7])
def test_counts_of_windows_and_of_symbols_lose_no_more_together_than_both_are_charged(
    rho: tuple[float, float], share: float
) -> None:
    """Both counts far outside their range, in every combination of directions, where the loss is largest."""
    chains = BinaryChains(q=(0.1, 0.1), r=(0.4, 0.4))
    transition = np.array([[0.9, 0.1], [0.4, 0.6]])
    table = NoiseTable.binary(round(rho[0] * SCALE), round(rho[1] * SCALE))
    allowed = allowance(chains, 1.0, "ignorant")
    base = units_above(Fraction(allowed, PER_NAT) * Fraction(share)) - 1
    window, release = PER_NAT / base, float(smallest_scale([table], 1, allowed - base))
    emission = np.array(table.weights()) / SCALE
    worst = 0.0
    for up, out in product((1.0, -1.0), repeat=2):
        likelihood = np.exp(up * np.arange(2) / window) * (emission @ np.exp(out * np.arange(2) / release))
        ahead, behind = stationary(transition), np.ones(2)
        for _ in range(15):
            ahead, behind = (ahead * likelihood) @ transition, transition @ (likelihood * behind)
        distribution = ahead / stationary(transition) * likelihood * behind
        worst = max(worst, abs(math.log(distribution[0] / distribution[1])))
    assert worst <= 1.0
    charged = exp_up(Fraction(base + units_above(charge(table, 1.0 / release)), PER_NAT))
    assert worst <= chains.ratio_loss(charged, charged, "ignorant").epsilon <= 1.0 + 1e-9
    assert worst > 0.95 or rho[0] != rho[1]
