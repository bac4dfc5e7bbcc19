"""Attackers who know all but a stretch: their odds against brute force, and within the promise."""

from __future__ import annotations

import math
from bisect import bisect_right
from fractions import Fraction
from itertools import pairwise, product

import numpy as np
import pytest

from fugu.attackers.outputs import CountOutputs, Outputs, release_counts, release_symbols
from fugu.attackers.stretches import (
    FEWEST,
    SECRETS,
    Odds,
    StretchAttack,
    attack_stretches,
    secret_answers,
    stretches_anywhere,
    window_stretches,
)
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
    states, steps = [0], chain.cumsum(axis=1).tolist()
    for draw in rng.random(ticks - 1).tolist():
        states.append(bisect_right(steps[states[-1]][:-1], draw))
    return np.array(states, dtype=np.int64)


def attacked(
    states: Ints, outputs: Outputs, counted: tuple[int, ...], ticks: int, unknown: int
) -> tuple[StretchAttack, ...]:
    return attack_stretches(states, np.zeros_like(states), outputs, counted, ticks, unknown, 1.0, CHAIN)


def released(states: Ints, k: int, length: int, scale: int, seed: int) -> CountOutputs:
    rng, segments = np.random.default_rng(seed), np.zeros_like(states)
    return release_counts(states, segments, length, Fraction(scale), ((k - 1,),), rng, k=k)


def by_paths(
    states: Ints, outputs: Outputs, asked: tuple[int, int, int], ticks: int, chain: np.ndarray, usual: float
) -> list[float]:
    """Log-odds of the secrets by adding up every course of the unknown ticks."""
    first, begin, end = asked
    k = len(chain)
    weights = np.zeros((3, 2))
    for course in product(range(k), repeat=end - begin):
        path = [int(states[begin - 1]), *course, int(states[end])]
        weight = math.prod(chain[x, y] for x, y in pairwise(path))
        whole = states.copy()
        whole[begin:end] = course
        if isinstance(outputs, CountOutputs):
            for start, counts in zip(outputs.first_ticks, outputs.counts, strict=True):
                true = int((whole[start : start + outputs.length] == k - 1).sum())
                weight *= math.exp(-abs(int(counts[0]) - true) / float(outputs.scale))
        else:
            for tick in range(begin, end):
                weight *= outputs.emission[whole[tick], outputs.symbols[tick]]
        for secret, answer in enumerate(secret_answers(whole[first - 1 : first + ticks] == k - 1, usual)):
            weights[secret, int(answer)] += weight
    with np.errstate(divide="ignore"):
        return [float(np.log(yes) - np.log(no)) for no, yes in weights]


@pytest.mark.parametrize("chain", [CHAIN, THREE])
@pytest.mark.parametrize(
    ("length", "ticks", "unknown"),
    [*((6, 2, 6), (6, 3, 6), (3, 1, 3), (3, 3, 3)), pytest.param(2, 2, 4, marks=pytest.mark.long)],
)
def test_the_odds_after_counts_are_those_of_all_courses(
    chain: np.ndarray, length: int, ticks: int, unknown: int
) -> None:
    k = len(chain)
    states = drawn(chain, 40, 4)
    outputs = released(states, k, length, 2, 5)
    some = list(window_stretches(states, outputs, 0, ticks, unknown))[1 : 5 if k == 2 else 2]
    assert some
    for usual in (0.0, 1.0):
        odds = Odds(chain, np.arange(k) == k - 1, ticks, usual, outputs)
        for stretch in some:
            log_odds = odds.posterior_odds(stretch, int(states[stretch.begin - 1]), int(states[stretch.end]))
            assert log_odds == pytest.approx(by_paths(states, outputs, stretch[:3], ticks, chain, usual), abs=1e-9)


@pytest.mark.parametrize(("ticks", "unknown"), [(1, 1), (3, 3), (2, 6), (1, 5)])
def test_the_odds_after_symbols_are_those_of_all_courses(ticks: int, unknown: int) -> None:
    states = drawn(CHAIN, 40, 4)
    outputs = release_symbols(states, TABLE, np.random.default_rng(1))
    odds = Odds(CHAIN, np.array([False, True]), ticks, 0.5, outputs)
    for stretch in list(stretches_anywhere(states, ticks, unknown))[:6]:
        log_odds = odds.posterior_odds(stretch, int(states[stretch.begin - 1]), int(states[stretch.end]))
        assert log_odds == pytest.approx(by_paths(states, outputs, stretch[:3], ticks, CHAIN, 0.5), abs=1e-9)


@pytest.mark.long
@pytest.mark.parametrize("ticks", [60, 240])
def test_nobody_who_knows_all_other_days_moves_odds_further_than_the_promise(ticks: int) -> None:
    states = drawn(CHAIN, 24_000, 1)
    outputs = released(states, 2, 120, 40, 2)
    chains = BoundedChains(states=2, odds_ratio=float(0.95 * 0.9 / (0.05 * 0.1)) * (1 + 1e-12))
    stream = StreamOutputs(None, (Window(name="w", length=120, stride=120, states=(1,), scale="40"),))
    bound = stream.bound(chains, "universal", chains.ratio_loss(*stream.ratios, "universal").epsilon)
    attack = attacked(states, outputs, (1,), ticks, 480)
    assert {run.secret for run in attack} <= set(SECRETS)
    assert max(run.scored for run in attack) >= (FEWEST if ticks < 240 else 100)
    for run in attack:
        assert 1.0 <= run.typical <= run.furthest <= math.exp(bound.epsilon(ticks)) * (1 + 1e-9)
    if ticks == 60:  # what is around is unknown, and leaks beyond the floor
        known_attacks = attacked(states, outputs, (1,), 120, 120)
        assert all(run.furthest <= math.exp(bound.floor(120)) * (1 + 1e-9) for run in known_attacks)


@pytest.mark.long
def test_symbols_move_odds_no_further_than_the_promise() -> None:
    states = drawn(CHAIN, 400, 1)
    outputs = release_symbols(states, TABLE, np.random.default_rng(1))
    chains = BoundedChains(states=2, odds_ratio=float(0.95 * 0.9 / (0.05 * 0.1)) * (1 + 1e-12))
    symbol_outputs = StreamOutputs(TABLE)
    bound = symbol_outputs.bound(chains, "universal", chains.ratio_loss(*symbol_outputs.ratios, "universal").epsilon)
    for ticks in (1, 20):
        attack = attacked(states, outputs, (1,), ticks, 60)
        assert max(run.furthest for run in attack) <= math.exp(bound.epsilon(ticks)) * (1 + 1e-9)


@pytest.mark.long
def test_without_noise_the_share_is_known_and_with_much_it_is_a_guess() -> None:
    states = drawn(CHAIN, 4000, 3)
    sharp, blunt = (attacked(states, released(states, 2, 12, scale, 2), (1,), 12, 12)[0] for scale in (1, 100_000))
    assert sharp.success > blunt.success + 0.05
    assert blunt.success == pytest.approx(blunt.guess, abs=0.02)
    assert blunt.furthest < 1.01


def test_a_recording_without_whole_stretches_or_of_other_counts_is_not_scored() -> None:
    states = drawn(CHAIN, 100, 3)
    outputs, holes = released(states, 2, 12, 5, 2), np.where(np.arange(100) % 5 == 0, -1, states)
    assert attacked(states, outputs, (0,), 12, 12) == attacked(holes, outputs, (1,), 12, 12) == ()
    assert attack_stretches(states, np.arange(100), outputs, (1,), 12, 12, 1.0) == ()  # every tick is apart
