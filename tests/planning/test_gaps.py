"""Missing ticks that are ignored: tested for independence, and by enumeration no tick loses more for them."""

from __future__ import annotations

from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from fugu.chains.arrays import Ints
from fugu.contract.chains import BinaryChains
from fugu.contract.guarantee import StreamOutputs
from fugu.planning.auto import plan_auto
from fugu.planning.candidates import wanted_window
from fugu.planning.errors import PlanningError
from fugu.planning.question import Cut, Question, sample_mask
from fugu.planning.states import gaps_of
from fugu.privacy.covering_class import covering_class
from fugu.recordings.readings import Readings

Q, R, TICKS, LENGTH, SCALE = 0.15, 0.25, 6, 3, 4
CHAIN = np.array([[1 - Q, Q], [R, 1 - R]])


def simulated(ticks: int, seed: int) -> Ints:
    moves, states, state = np.random.default_rng(seed).random(ticks), [], 0
    for move in moves:
        state ^= int(move < (Q, R)[state])
        states.append(state)
    return np.array(states, dtype=np.int64)


def cut(states: Ints, gone: Ints) -> Cut:
    return Cut(np.where(gone, -1, states), np.zeros(len(states), dtype=np.int64))


def test_gaps_are_dependent_independent_or_too_few_to_tell() -> None:
    states, drawn = simulated(30_000, 1), np.random.default_rng(2).random(30_000)
    even = gaps_of([cut(states, drawn < 0.02)], None)
    assert (even.number > 400, even.independent, even.dependent) == (True, True, False)
    more = gaps_of([cut(states, drawn < np.where(states == 1, 0.03, 0.01))], None)
    assert (more.independent, more.dependent) == (False, True)
    few = gaps_of([cut(states[:600], drawn[:600] < 0.02)], None)
    assert (few.number < 20, few.independent, few.dependent) == (True, False, False)
    assert gaps_of([cut(states, drawn < 0.0)], None) is None
    named = gaps_of([Cut(np.where(drawn < 0.02, 2, states), np.zeros(30_000, dtype=np.int64))], 2)
    assert named == even, "a state of its own or none: the gaps are the same"


def test_a_test_of_independence_errs_as_often_as_it_says() -> None:
    dependents = []
    for seed in range(60):
        states, drawn = simulated(4_000, 100 + seed), np.random.default_rng(200 + seed).random(4_000)
        gaps = gaps_of([cut(states, drawn < 0.02)], None)
        dependents.append(gaps.dependent)
    assert sum(dependents) <= 9


def test_the_class_is_that_of_the_chain_beneath_and_its_powers_are_inside_the_odds_ratio() -> None:
    states, gone = simulated(40_000, 3), np.random.default_rng(4).random(40_000) < 0.2
    chains = covering_class(*cut(states, gone), 2).chains
    assert isinstance(chains, BinaryChains)
    assert float(chains.q[0]) <= Q <= float(chains.q[1])
    assert float(chains.r[0]) <= R <= float(chains.r[1])
    power, least = CHAIN, np.inf
    for _ in range(6):
        odds = power[0, 0] * power[1, 1] / (power[0, 1] * power[1, 0])
        assert odds < least, "a gap is a step of a smaller odds ratio"
        least, power = odds, power @ CHAIN


def test_no_tick_loses_more_for_ticks_that_are_missing_whatever_their_fixed_pattern() -> None:
    window = wanted_window(LENGTH, ((1,),)).window(Fraction(SCALE))
    outputs, chains = StreamOutputs(None, (window,)), BinaryChains(q=(Q, Q), r=(R, R))
    promised = float(np.exp(chains.ratio_loss(*outputs.ratios, "universal").epsilon))
    courses = np.array(list(product((0, 1), repeat=TICKS)))
    values = np.arange(-9, LENGTH + 10)

    def likelihoods(seen: Ints) -> np.ndarray:
        """Of every pair of counts that is told, by course."""
        counts = seen.reshape(len(seen), -1, LENGTH).sum(axis=2)
        each = np.exp(-np.abs(values[None, None, :] - counts[:, :, None]) / SCALE)
        return np.einsum("co,cp->cop", each[:, 0], each[:, 1]).reshape(len(seen), -1)

    def furthest(output: np.ndarray, start: np.ndarray) -> float:
        prior = start[courses[:, 0]] * np.prod(CHAIN[courses[:, :-1], courses[:, 1:]], axis=1)
        worst = 1.0
        for tick in range(TICKS):
            ones, zero = (
                (prior[which] @ output[which]) / prior[which].sum()
                for which in (courses[:, tick] == 1, courses[:, tick] == 0)
            )
            worst = max(worst, float((ones / zero).max()), float((zero / ones).max()))
        return worst

    starts = (np.array([R, Q]) / (Q + R), np.array([0.999, 0.001]), np.array([0.001, 0.999]))
    patterns = [np.array(pattern) for pattern in product((1, 0), repeat=TICKS)]
    losses = [furthest(likelihoods(courses * pattern), start) for pattern in patterns for start in starts]
    assert max(losses) <= promised
    assert max(losses) == max(losses[: len(starts)]), "most is lost where nothing is missing"
    random = sum(likelihoods(courses * pattern) for pattern in patterns) / len(patterns)
    assert furthest(random, starts[0]) <= promised, "nor if the pattern is random by itself"
    # Where a tick is missing because of its state, who sees the pattern sees the state.
    shown = likelihoods(courses) * (courses[:, [2]] == 0)
    assert furthest(shown + 1e-12, starts[0]) > promised


def test_missing_ticks_that_depend_on_states_are_not_ignored() -> None:
    states, drawn = simulated(12_000, 5), np.random.default_rng(6).random(12_000)
    values = np.where(drawn < np.where(states == 1, 0.05, 0.01), np.nan, states.astype(np.float64))
    readings = Readings(
        values, np.zeros(12_000, dtype=np.int64), 60.0, True, False, "on/off", "value", "room.csv", 0.025, ()
    )
    with pytest.raises(PlanningError, match=r"room.csv: which ticks are missing depends on states \(p = "):
        plan_auto(readings, Question(missing="ignore", protect=0), np.random.default_rng(1))


def test_every_third_tick_is_counted_from_the_beginning_of_each_stretch() -> None:
    assert sample_mask(np.array([1, 1, 1, 1, 2, 2]), 3).tolist() == [True, False, False, True, True, False]
    assert sample_mask(np.zeros(0, dtype=np.int64), 3).tolist() == []
