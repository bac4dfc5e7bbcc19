"""Attackers who know all but a stretch: their odds against brute force, and within the promise."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import pairwise, product

import numpy as np
import pytest

from fugu.attack.outputs import CountOutputs, Outputs, release_counts, release_symbols
from fugu.attack.stretches import FEWEST, SECRETS, _odds, _secrets_of, attack_stretches
from fugu.chains.arrays import Ints
from fugu.contract.chains import BoundedChains
from fugu.contract.guarantee import StreamOutputs
from fugu.contract.noise_table import SCALE, NoiseTable
from fugu.contract.windows import Window

CHAIN = np.array([[0.95, 0.05], [0.1, 0.9]])
THREE = np.array([[0.8, 0.15, 0.05], [0.1, 0.7, 0.2], [0.3, 0.1, 0.6]])
TABLE = NoiseTable.binary(round(0.45 * SCALE), round(0.47 * SCALE))


def drawn(chain: np.ndarray, ticks: int, seed: int) -> Ints:
    rng = np.random.default_rng(seed)
    states = [0]
    for _ in range(ticks - 1):
        states.append(int(rng.choice(len(chain), p=chain[states[-1]])))
    return np.array(states, dtype=np.int64)


def released(states: Ints, k: int, length: int, scale: int, seed: int, *, symbols: bool) -> CountOutputs:
    rng = np.random.default_rng(seed)
    table = TABLE if k == 2 else NoiseTable.randomised_response(k, round(0.3 * SCALE))
    beside = release_symbols(states, table, rng) if symbols else None
    segments = np.zeros_like(states)
    return release_counts(states, segments, length, Fraction(scale), ((k - 1,),), rng, k=k, beside=beside)


def by_paths(states: Ints, outputs: Outputs, first: int, ticks: int, chain: np.ndarray, usual: float) -> list[float]:
    """Log-odds of the secrets by adding up every course."""
    k = len(chain)
    weights = np.zeros((3, 2))
    for course in product(range(k), repeat=ticks):
        path = [int(states[first - 1]), *course, int(states[first + ticks])]
        weight = math.prod(chain[x, y] for x, y in pairwise(path))
        whole = states.copy()
        whole[first : first + ticks] = course
        seen = outputs.seen() if isinstance(outputs, CountOutputs) else outputs
        for tick in range(first, first + ticks):
            if seen.symbols[tick] >= 0:
                weight *= seen.emission[whole[tick], seen.symbols[tick]]
        if isinstance(outputs, CountOutputs):
            for begin, counts in zip(outputs.first, outputs.counts, strict=True):
                true = int((whole[begin : begin + outputs.length] == k - 1).sum())
                weight *= math.exp(-abs(int(counts[0]) - true) / float(outputs.scale))
        inside = np.array([x == k - 1 for x in path[:-1]])
        for secret, answer in enumerate(_secrets_of(inside, usual)):
            weights[secret, int(answer)] += weight
    with np.errstate(divide="ignore"):
        return [float(np.log(yes) - np.log(no)) for no, yes in weights]


@pytest.mark.parametrize("chain", [CHAIN, THREE])
@pytest.mark.parametrize(("length", "first", "ticks"), [(20, 25, 4), (3, 10, 7), (5, 13, 6), (4, 7, 1)])
@pytest.mark.parametrize("symbols", [False, True])
def test_the_odds_are_those_of_all_courses(
    chain: np.ndarray, length: int, first: int, ticks: int, *, symbols: bool
) -> None:
    k = len(chain)
    states = drawn(chain, 60, 4)
    outputs: Outputs = released(states, k, length, 2, 5, symbols=symbols)
    inside = np.arange(k) == k - 1
    for usual in (0.0, 1.5, 3.0):
        found = _odds(states, outputs, first, ticks, chain, inside, (k - 1,), usual)
        assert found == pytest.approx(by_paths(states, outputs, first, ticks, chain, usual), abs=1e-9)


@pytest.mark.parametrize("ticks", [1, 10, 60])
@pytest.mark.parametrize("symbols", [False, True])
def test_nobody_who_knows_all_else_moves_odds_further_than_the_promise(ticks: int, *, symbols: bool) -> None:
    states = drawn(CHAIN, 4000, 1)
    outputs = released(states, 2, 120, 40, 2, symbols=symbols)
    chains = BoundedChains(states=2, odds_ratio=float(0.95 * 0.9 / (0.05 * 0.1)) * (1 + 1e-12))
    told = StreamOutputs(
        TABLE if symbols else None, (Window(name="w", length=120, stride=120, states=(1,), scale="40"),)
    )
    bound = told.bound(chains, "universal", chains.ratio_loss(*told.ratios, "universal").epsilon)
    found = attack_stretches(states, outputs, (1,), ticks, CHAIN)
    assert {one.secret for one in found} <= set(SECRETS)
    assert max(one.scored for one in found) >= FEWEST
    for one in found:
        assert 1.0 <= one.typical <= one.furthest <= math.exp(bound.floor(ticks)) * (1 + 1e-9)
        assert one.furthest <= math.exp(bound.epsilon(ticks))


def test_without_noise_the_share_is_known_and_with_much_it_is_a_guess() -> None:
    states = drawn(CHAIN, 4000, 3)
    sharp, blunt = (
        attack_stretches(states, released(states, 2, 12, scale, 2, symbols=False), (1,), 12, CHAIN)[0]
        for scale in (1, 100_000)
    )
    assert sharp.success > blunt.success + 0.05
    assert blunt.success == pytest.approx(blunt.guess, abs=0.02)
    assert blunt.furthest < 1.01


def test_a_recording_without_whole_stretches_or_of_other_counts_is_not_scored() -> None:
    states = drawn(CHAIN, 100, 3)
    outputs = released(states, 2, 12, 5, 2, symbols=False)
    assert attack_stretches(states, outputs, (0,), 12, CHAIN) == ()
    assert attack_stretches(np.where(np.arange(100) % 5 == 0, -1, states), outputs, (1,), 12, CHAIN) == ()
