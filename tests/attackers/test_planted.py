"""Every attacker finds a weakness that was planted for it, and nothing where there is nothing to find."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from fugu.attackers.evaluation import attack
from fugu.attackers.learning import ATTACKERS, COUNT_ATTACKERS
from fugu.attackers.outputs import SymbolOutputs, known_ticks, release_counts, release_symbols
from fugu.contract.noise_table import NoiseTable
from tests.support.soak import only

TICKS = 6000
ONE, EVEN = np.zeros(TICKS, dtype=np.int64), np.full(TICKS, 0.5)
ORDINARY = NoiseTable.binary(*[round(2**32 / (1 + math.e))] * 2)
"""Randomised response at epsilon 1 for a single independent tick."""
FAST = np.array([[0.6, 0.4], [0.4, 0.6]])


def walk(shares, seed=0):
    """States (n,) that draw anew with probability .2, from a distribution with a share (n,) of state 1."""
    generator = np.random.default_rng(seed)
    states = np.zeros(len(shares), dtype=np.int64)
    for t, share in enumerate(shares):
        keep = t and generator.random() < 0.8
        states[t] = states[t - 1] if keep else generator.random() < share
    return states


def regimes(*shares, ticks=1000):
    """Shares (n,) of slow regimes that take turns."""
    return np.resize(np.repeat(shares, ticks), TICKS)


def symbols(states, table=ORDINARY, seed=1):
    return release_symbols(states, table, np.random.default_rng(seed))


def counts(states, length, scale, state=1):
    """Counts of a state, as they are released."""
    return release_counts(states, ONE, length, Fraction(scale), ((state,),), np.random.default_rng(1), k=2)


def reached(states, outputs, *names, **options):
    attackers = {name: (ATTACKERS if isinstance(outputs, SymbolOutputs) else COUNT_ATTACKERS)[name] for name in names}
    return {run.attacker: run for run in attack(states, ONE, outputs, 1.0, attackers=attackers, **options)}


@pytest.mark.long
def test_single_symbols_betray_a_table_that_is_too_weak():
    states = np.random.default_rng(0).integers(0, 2, TICKS)
    single = reached(states, symbols(states, NoiseTable.binary(2**28, 2**28)), "single symbol")["single symbol"]
    assert single.low > single.ceiling == pytest.approx(0.731, abs=0.001)
    assert 1.0 < single.epsilon_low < math.log(15)


@pytest.mark.long
def test_forward_backward_and_viterbi_add_up_symbols_of_a_sticky_chain():
    states = walk(EVEN)
    reach = reached(states, symbols(states), "forward-backward", "Viterbi", "single symbol")
    assert reach["forward-backward"].low > reach["forward-backward"].ceiling
    assert reach["forward-backward"].low > reach["single symbol"].high
    assert reach["forward-backward"].epsilon_low > 1.0
    assert reach["Viterbi"].low > reach["single symbol"].high


@pytest.mark.long
@pytest.mark.parametrize("name", only(["learned chain"], ["learned chain", "learned chain, Viterbi"]))
def test_a_learned_chain_beats_a_wrong_one(name):
    """States that alternate, with a slip now and then; the believed chain is sticky."""
    states = np.cumsum(np.random.default_rng(2).random(TICKS) < 0.97) % 2
    reach = reached(states, symbols(states), name, "forward-backward", transition=FAST)
    assert reach[name].low > reach[name].ceiling
    assert reach[name].low > reach["forward-backward"].high


@pytest.mark.long
def test_learned_regimes_find_slow_regimes():
    states = walk(regimes(0.95, 0.05))
    weak = NoiseTable.binary(round(0.42 * 2**32), round(0.42 * 2**32))
    learners = ("2 learned regimes", "3 learned regimes")
    reach = reached(states, symbols(states, weak), "forward-backward", *learners, transition=FAST)
    assert reach["2 learned regimes"].low > reach["forward-backward"].high
    assert reach["2 learned regimes"].low > reach["2 learned regimes"].ceiling
    assert reach["3 learned regimes"].low > reach["forward-backward"].high


@pytest.mark.long
def test_three_learned_regimes_find_a_cycle_that_two_cannot_hold():
    """A cycle of six ticks, 0 0 0 1 1 1, with a slip now and then: it takes six hidden states."""
    steps = np.cumsum(np.random.default_rng(3).random(TICKS) < 0.98)
    states = (steps % 6 >= 3).astype(np.int64)
    reach = reached(states, symbols(states), "forward-backward", "2 learned regimes", "3 learned regimes")
    assert reach["3 learned regimes"].low > reach["2 learned regimes"].high
    assert reach["3 learned regimes"].low > reach["forward-backward"].high


@pytest.mark.long
def test_supervision_finds_symbols_that_mean_something_else_than_the_policy_says():
    """The device's rows are swapped: whoever trusts the table is wrong most of the time."""
    states = walk(EVEN)
    honest = symbols(states, NoiseTable.binary(2**28, 2**28))
    swapped = SymbolOutputs(1 - honest.symbols, symbols(states).emission)
    reach = reached(states, swapped, "supervised", "forward-backward")
    assert reach["supervised"].low > reach["supervised"].ceiling
    assert reach["forward-backward"].success < 0.2


@pytest.mark.long
def test_single_windows_betray_noise_that_is_too_small():
    states = np.random.default_rng(0).integers(0, 2, TICKS)
    single = reached(states, counts(states, 1, 0.25), "single window")["single window"]
    assert single.low > single.ceiling
    assert single.epsilon_low > 1.0


@pytest.mark.long
def test_forward_backward_adds_up_windows_of_a_sticky_chain():
    """Noise that is right for a single tick in a single window."""
    states = walk(EVEN)
    reach = reached(states, counts(states, 2, 1), "forward-backward", "single window")
    assert reach["forward-backward"].low > reach["forward-backward"].ceiling
    assert reach["forward-backward"].low > reach["single window"].high


@pytest.mark.long
def test_learned_levels_find_slow_regimes_in_counts():
    states = walk(regimes(0.95, 0.05, ticks=300))
    even = np.full((2, 2), 0.5)
    reach = reached(states, counts(states, 20, 10), "learned levels", "forward-backward", transition=even)
    assert reach["learned levels"].low > reach["learned levels"].ceiling
    assert reach["learned levels"].success > reach["forward-backward"].success + 0.05


def test_supervision_finds_counts_of_other_states_than_the_policy_says():
    states = walk(regimes(0.95, 0.05))
    wrong = replace(counts(states, 50, 5, state=0), groups=((1,),))
    reach = reached(states, wrong, "supervised", "forward-backward")
    assert reach["supervised"].low > reach["supervised"].ceiling
    assert reach["forward-backward"].success < 0.3


@pytest.mark.long
@pytest.mark.parametrize(
    ("released", "name"), [*product(["symbols"], ATTACKERS), *product(["counts"], COUNT_ATTACKERS)]
)
def test_nothing_is_found_in_pure_noise(released, name):
    states, others = walk(EVEN), np.random.default_rng(4).integers(0, 2, TICKS)
    single = reached(states, symbols(others) if released == "symbols" else counts(others, 50, 5), name)[name]
    assert single.low <= single.guess
    assert single.high < single.ceiling
    assert single.epsilon_low < 0.1


@pytest.mark.long
def test_known_states_raise_the_guess_and_a_reused_symbol_still_shows():
    """A bug that draws each symbol nine times and sends the most frequent one leaks beside known states, too."""
    every = 20
    states = walk(EVEN)
    known_states = known_ticks(states, every)
    names = ("forward-backward", "2 learned regimes", "supervised")
    honest = reached(
        states, symbols(states, NoiseTable.binary(*[round(0.45 * 2**32)] * 2)), *names, known_states=known_states
    )
    drawn = [symbols(states, seed=seed).symbols for seed in range(9)]
    often = SymbolOutputs((np.mean(drawn, axis=0) > 0.5).astype(np.int64), symbols(states).emission)
    leaky = reached(states, often, *names, known_states=known_states)
    for name in names:
        assert leaky[name].low > leaky[name].guess, name
        assert leaky[name].epsilon_low > 1.0
        assert honest[name].high < honest[name].ceiling
    assert honest["forward-backward"].guess > 0.55
    assert honest["forward-backward"].ceiling > 0.733
