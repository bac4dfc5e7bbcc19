"""A class that attackers do not refute: too narrow ones are found out and widened, and what cannot be told is said."""

from __future__ import annotations

import itertools
from functools import partial

import numpy as np
import pytest

from fugu.attackers.evaluation import Attack
from fugu.attackers.learning import COUNT_ATTACKERS
from fugu.attackers.outputs import Outputs, release_counts, release_symbols
from fugu.chains.arrays import Ints
from fugu.contract.chains import BinaryChains, BoundedChains, ChainClass
from fugu.contract.discretisers import Baseline
from fugu.contract.noise_table import NoiseTable
from fugu.contract.windows import policy_scale
from fugu.planning.states import states_of
from fugu.planning.true_class import Step, TrueClass, count_scale, draw_symbols, true_class
from fugu.privacy.chain_class import ChainClassError
from fugu.privacy.covering_class import covering_class
from fugu.recordings.options import ReadOptions
from fugu.recordings.readings import read_readings
from fugu_cli.demo.evaluation import RECORDINGS


def night(name: str, baseline: int | None) -> Ints:
    """States of a night of heartbeats: above its own mean, or above the running mean of so many beats."""
    readings = read_readings(RECORDINGS / f"hr_sleep_{name}.csv.gz", ReadOptions(column="value"))
    values = np.asarray(readings.values, dtype=np.float64)
    if baseline is None:
        return (values >= values.mean()).astype(np.int64)
    discretiser = Baseline(baseline_ticks=baseline, lowest=20.0, highest=220.0)
    return states_of(discretiser, values, readings.segments)


def of_symbols(states: Ints, epsilon: float = 1.0) -> TrueClass:
    segments = np.zeros(states.size, dtype=np.int64)
    chains = covering_class(states, segments, 2).chains
    draw = partial(draw_symbols, states, epsilon)
    return true_class(states, segments, chains, epsilon, draw, np.random.default_rng(1))


AVERAGE = BinaryChains(q=(0.15, 0.15), r=(0.15, 0.15))


def two_speeds() -> Ints:
    """States that move with probability .3 for 3,000 ticks, then .001 for 3,000 ticks, and so on."""
    draw = np.random.default_rng(3).random(24_000)
    states = np.zeros(draw.size, dtype=np.int64)
    for t in range(1, states.size):
        states[t] = states[t - 1] ^ (draw[t] < (0.001 if t // 3_000 % 2 else 0.3))
    return states


@pytest.mark.long
def test_a_class_that_attackers_refute_is_widened() -> None:
    """N10 above its own mean: what covers stretches of 500 beats is not enough, and what is costs more."""
    widened = of_symbols(night("N10", None)[:20_000])
    assert widened.chains is not None
    first, last = widened.steps[0], widened.steps[-1]
    assert not first.passed
    assert first.strongest_attack.high > first.strongest_attack.ceiling
    assert last.passed
    assert widened.chains.odds_bound == last.chains.odds_bound > first.chains.odds_bound
    scales = [count_scale(step.chains, 1.0) for step in widened.steps]
    assert all(1.4 < wide / narrow < 1.6 for narrow, wide in itertools.pairwise(scales))


def test_who_gains_nothing_is_not_the_strongest() -> None:
    """An attacker below its guess has a wide interval, and says nothing."""
    chains = BoundedChains(states=2, odds_ratio=4.0)
    wide = Attack("learner", 0.5, 0.1, 0.95, 0.8, 0.7, 0.0)
    still = Attack("guesser", 0.7, 0.7, 0.7, 0.8, 0.7, 0.0)
    step = Step(chains, (still, wide))
    assert step.passed
    assert step.strongest_attack is still
    gained = Attack("reader", 0.75, 0.7, 0.81, 0.8, 0.7, 0.0)
    beaten = Step(chains, (gained, still, wide))
    assert beaten.strongest_attack is gained
    assert beaten.passed, "a gain that may be none refutes nothing"


@pytest.mark.parametrize(
    ("low", "success", "high", "refutes", "unclear"),
    [
        (0.901, 0.903, 0.905, True, False),  # helped beyond doubt, and a rare state allows nothing
        (0.9, 0.903, 0.906, False, False),
        (0.85, 0.903, 0.95, False, False),
        (0.85, 0.903, 0.951, False, True),  # as much as .05 more would not have been noticed
        (0.85, 0.9, 0.96, False, False),  # it is right no more often than without the outputs
        (0.9, 0.9, 0.9, False, False),
    ],
)
def test_a_gain_beyond_doubt_refutes_and_one_that_cannot_be_told_is_said(
    low: float, success: float, high: float, refutes: bool, unclear: bool
) -> None:
    attack = Attack("reader", success, low, high, 0.9, 0.9, 0.0)
    assert (attack.refutes, attack.unclear) == (refutes, unclear)
    assert Step(BoundedChains(states=2, odds_ratio=4.0), (attack,)).passed == (not refutes and not unclear)
    allowed = Attack("reader", success, low, high, 0.96, 0.9, 0.0)
    assert not allowed.refutes
    assert not allowed.unclear


def rare(seed: int) -> Ints:
    """State 1 on a tenth of 6,000 ticks: one chain."""
    draw = np.random.default_rng(seed).random(6_000)
    states = np.zeros(draw.size, dtype=np.int64)
    for t in range(1, states.size):
        states[t] = states[t - 1] ^ (draw[t] < (0.9 if states[t - 1] else 0.1))
    return states


@pytest.mark.long
def test_a_rare_state_is_not_widened_for_a_chance_difference_and_a_planted_gain_is_found() -> None:
    """The ceiling is the guess; half of the time the device sends symbols that hide nothing."""
    seed = 0
    states = rare(seed)
    segments = np.zeros(states.size, dtype=np.int64)
    chains = covering_class(states, segments, 2).chains
    arguments = (states, segments, chains, 1.0)
    honest = true_class(*arguments, partial(draw_symbols, states, 1.0), np.random.default_rng(seed))
    assert [len(honest.steps), honest.chains] == [1, chains]
    assert honest.steps[0].strongest_attack.ceiling == honest.steps[0].strongest_attack.guess

    def noise(chains: ChainClass, generator: np.random.Generator) -> Outputs:
        return release_symbols(generator.permutation(states), NoiseTable.binary(2**28, 2**28), generator)

    assert len(true_class(*arguments, noise, np.random.default_rng(seed)).steps) == 1

    def leaks(chains: ChainClass, generator: np.random.Generator) -> Outputs:
        return release_symbols(states, NoiseTable.binary(2**27, 2**27), generator)

    refused = true_class(*arguments, leaks, np.random.default_rng(seed), most_steps=2)
    assert refused.chains is None
    assert refused.steps[0].strongest_attack.refutes
    assert (refused.reason or "").startswith("no class passes")


@pytest.mark.long
def test_windows_are_attacked_as_windows() -> None:
    states = night("N05", 100)[:2_000]
    segments = np.zeros(states.size, dtype=np.int64)

    def windows(chains: ChainClass, generator: np.random.Generator) -> Outputs:
        return release_counts(states, segments, 60, policy_scale(count_scale(chains, 1.0)), ((1,),), generator, k=2)

    chains = covering_class(states, segments, 2).chains
    judged = true_class(states, segments, chains, 1.0, windows, np.random.default_rng(1))
    assert judged.chains is not None
    assert {attack.attacker for attack in judged.steps[0].attacks} == set(COUNT_ATTACKERS)


@pytest.mark.long
def test_what_cannot_be_told_is_said_in_one_line() -> None:
    states = two_speeds()
    with pytest.raises(ChainClassError, match="too short to tell"):
        of_symbols(states[:300])
    states = states[:12_000]
    segments = np.zeros(states.size, dtype=np.int64)
    draw = partial(draw_symbols, states, 1.0)
    stopped = true_class(states, segments, AVERAGE, 1.0, draw, np.random.default_rng(1), most_steps=1)
    assert stopped.chains is None
    assert "\n" not in stopped.reason
    assert stopped.reason.startswith(("no class passes: even with noise of", "too short to tell: even with noise of"))
    nothing = true_class(states, segments, AVERAGE, 1.0, lambda chains, generator: None, np.random.default_rng(1))
    assert nothing.reason == "nothing useful can be released at epsilon 1"
