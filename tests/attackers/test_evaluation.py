"""Results of an attack: intervals, ceilings, lower bounds on epsilon, and the change of odds."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise, permutations, product

import numpy as np
import pytest
from scipy.optimize import linprog

from fugu.attackers.evaluation import attack, block_means, lowest_mean, mean_interval, odds_change, success_bound
from fugu.attackers.learning import ATTACKERS, COUNT_ATTACKERS, smoothing, tilted_marginals
from fugu.attackers.outputs import Knowledge, SymbolOutputs, empty_outputs, known_ticks, release_counts, release_symbols
from fugu.chains.model import simulate, stationary_distribution
from fugu.contract.chains import BinaryChains
from fugu.contract.noise_table import NoiseTable
from fugu.privacy.randomised_response import calibrate
from fugu.privacy.transitions import share_bounds

STICKY = np.array([[0.9, 0.1], [0.2, 0.8]])
THREE = np.array([[0.8, 0.1, 0.1], [0.1, 0.8, 0.1], [0.2, 0.2, 0.6]])


def walked(transition, ticks, seed=0):
    k = len(transition)
    return simulate(
        ticks, stationary_distribution(transition), transition, np.eye(k), np.random.default_rng(seed)
    ).states


def table(flip, states=2):
    return NoiseTable.randomised_response(states, round(flip * 2**32))


def test_released_symbols_have_the_distribution_of_the_table():
    states = np.repeat([0, 1, -1], 40_000)
    outputs = release_symbols(states, NoiseTable.binary(2**30, 2**29), np.random.default_rng(1))
    flips = [(outputs.symbols[:40_000] != 0).mean(), (outputs.symbols[40_000:80_000] != 1).mean()]
    assert flips == pytest.approx([0.25, 0.125], abs=0.01)
    assert (outputs.symbols[80_000:] == -1).all()


def test_released_counts_have_discrete_laplace_noise_and_keep_to_their_stretch():
    states = np.tile([0, 1, 1, 2, -1], 20_000)
    segments = np.repeat([0, 1], [50_003, 49_997])
    outputs = release_counts(states, segments, 5, Fraction(3), ((0,), (1,), (2,)), np.random.default_rng(1), k=3)
    assert outputs.first_ticks[10_000] == 50_003
    assert len(outputs.first_ticks) == 10_000 + 9_999
    noise = outputs.counts[:10_000] - [1, 2, 1]
    distribution = np.array([(np.abs(noise) == n).mean() for n in range(4)])
    ratio = math.exp(-1 / 3)
    expected = (1 - ratio) / (1 + ratio) * np.array([1, 2 * ratio, 2 * ratio**2, 2 * ratio**3])
    assert distribution == pytest.approx(expected, abs=0.01)


@pytest.mark.long
def test_the_attack_on_a_true_chain_is_within_the_ceiling_and_its_lower_bound_within_epsilon():
    """Independent readings, so that epsilon is the table's: 20 runs, each bound holds with probability 0.95."""
    epsilon, violated, bounds = 1.0, 0, []
    for seed in range(20):
        states = np.random.default_rng(seed).integers(0, 2, 4000)
        outputs = release_symbols(states, table(1 / (1 + math.e)), np.random.default_rng(100 + seed))
        single = attack(states, states * 0, outputs, epsilon, attackers={"single": ATTACKERS["single symbol"]})[0]
        bounds.append(single.epsilon_low)
        violated += single.low > single.ceiling or single.epsilon_low > epsilon
    assert violated <= 3
    assert np.mean(bounds) > 0.7


@pytest.mark.long
def test_intervals_cover_what_is_reached_on_average_and_stay_below_the_ceiling_of_a_true_class():
    """25 walks of a chain of the class, with the noise of the class: forward-backward with the true chain."""
    chains = BinaryChains(q=(0.1, 0.1), r=(0.2, 0.2))
    noise = calibrate(chains, 1.0, "informed").table
    attacks = []
    for seed in range(25):
        states = walked(STICKY, 3000, seed)
        outputs = release_symbols(states, noise, np.random.default_rng(1000 + seed))
        attackers = {"forward-backward": ATTACKERS["forward-backward"]}
        attacks += attack(states, states * 0, outputs, 1.0, transition=STICKY, attackers=attackers)
    added = np.array([outcome.success - outcome.guess for outcome in attacks])
    average = added.mean()
    covered = [run.low - run.guess <= average <= run.high - run.guess for run in attacks]
    assert np.mean(covered) > 0.85
    assert np.mean([run.high <= run.ceiling for run in attacks]) > 0.95
    assert max(run.epsilon_low for run in attacks) < 1.0


@pytest.mark.long
def test_points_are_attacked_like_symbols():
    """Three cells of a line, and five points: the table of a private measurement."""
    weights = np.array([[0.5, 0.2, 0.15, 0.1, 0.05], [0.1, 0.2, 0.4, 0.2, 0.1], [0.05, 0.1, 0.15, 0.2, 0.5]])
    limits = tuple(tuple(int(limit) for limit in row) for row in np.cumsum(weights, axis=1)[:, :-1] * 2**32)
    points = NoiseTable(limits, points=tuple((place,) for place in range(5)))
    states = walked(THREE, 3000)
    outputs = release_symbols(states, points, np.random.default_rng(1))
    np.testing.assert_allclose(outputs.emission, weights, atol=1e-9)
    attackers = {name: ATTACKERS[name] for name in ("single symbol", "forward-backward")}
    by_name = {single.attacker: single for single in attack(states, states * 0, outputs, 1.0, attackers=attackers)}
    assert by_name["forward-backward"].low > by_name["single symbol"].success > by_name["single symbol"].guess


@pytest.mark.long
def test_certain_outputs_have_an_unbounded_epsilon_as_far_as_32_blocks_can_say():
    states = np.random.default_rng(0).integers(0, 2, 4000)
    outputs = release_symbols(states, NoiseTable.binary(1, 1), np.random.default_rng(1))
    single = attack(states, states * 0, outputs, 1.0, attackers={"single": ATTACKERS["single symbol"]})[0]
    assert single.success == single.low == single.high == 1.0
    assert single.epsilon_low > 1.0


def noted(attacker, answers):
    """An attacker whose answers are kept: with the outputs, and without."""

    def noting(outputs, knowledge):
        answers.append(attacker(outputs, knowledge))
        return answers[-1]

    return noting


@pytest.mark.long
@pytest.mark.parametrize("attackers", [ATTACKERS, COUNT_ATTACKERS], ids=["symbols", "counts"])
def test_every_attacker_takes_three_states_gaps_and_ticks_without_a_state(attackers):
    states = walked(THREE, 300)
    states[50:70] = -1
    segments = np.repeat([4, 7, 9], 100)
    generator = np.random.default_rng(2)
    if attackers is ATTACKERS:
        outputs = release_symbols(states, table(0.2, 3), generator)
    else:
        outputs = release_counts(states, segments, 30, Fraction(2), ((0,), (1,), (2,)), generator, k=3)
    for known_states in (None, known_ticks(states, 10)):
        answers = {}
        noting = {name: noted(attacker, answers.setdefault(name, [])) for name, attacker in attackers.items()}
        attacks = attack(states, segments, outputs, 1.0, known_states=known_states, transition=THREE, attackers=noting)
        assert {run.attacker for run in attacks} == set(attackers)
        assert [run.success for run in attacks] == sorted((run.success for run in attacks), reverse=True)
        for result_of in attacks:
            assert 0 <= result_of.low <= result_of.success <= result_of.high <= 1
            assert result_of.guess <= result_of.ceiling <= 1
            assert result_of.epsilon_low >= 0
        for name, attacker in attackers.items():
            distribution, _ = answers[name]
            assert distribution.shape == (300, 3)
            np.testing.assert_allclose(distribution.sum(axis=1), 1.0)
            if known_states is not None and attacker is smoothing:
                assert (distribution.argmax(axis=1) == known_states)[known_states >= 0].all()


@pytest.mark.long
def test_attackers_give_the_same_answer_twice():
    states = walked(STICKY, 200)
    outputs = release_symbols(states, table(0.3), np.random.default_rng(2))
    assert attack(states, states * 0, outputs, 1.0) == attack(states, states * 0, outputs, 1.0)


@pytest.mark.long
@pytest.mark.parametrize(("ticks", "every"), [(1, None), (9, 3)])
def test_the_shortest_recordings_say_nothing_and_break_nothing(ticks, every):
    for states in (
        np.zeros(ticks + 1, dtype=np.int64),
        np.arange(ticks + 1) % 2,
        np.where(np.arange(ticks + 1) % 2, 1, -1),
    ):
        segments, generator = states * 0, np.random.default_rng(1)
        known_states = None if every is None else known_ticks(states, every)
        for outputs in (
            release_symbols(states, table(0.4), generator),
            release_counts(states, segments, 2, Fraction(1, 50), ((1,),), generator, k=2),
            release_counts(states, segments, 2000, Fraction(2), ((0,), (1,)), generator, k=2),
        ):
            for run in attack(states, segments, outputs, 1.0, known_states=known_states):
                assert 0.0 <= run.low <= run.success <= run.high <= 1.0
                assert ticks > 8 or run.high == 1.0
                assert run.epsilon_low == 0.0 or ticks == 64


def test_an_attack_without_a_tick_to_judge_is_refused():
    states = np.full(50, -1)
    outputs = release_symbols(states, table(0.3), np.random.default_rng(2))
    with pytest.raises(ValueError, match="a tick to judge"):
        attack(states, states * 0, outputs, 1.0)


@pytest.mark.long
def test_the_change_of_odds_is_that_of_enumeration():
    symbols = np.array([1, 0, 1, 1, -1, 0])
    emission = np.array([[0.7, 0.3], [0.2, 0.8]])
    distribution = stationary_distribution(STICKY)
    totals = np.zeros((6, 2))
    for path in product((0, 1), repeat=6):
        weight = distribution[path[0]] * np.prod([STICKY[a, b] for a, b in pairwise(path)])
        weight *= np.prod([emission[x, z] for x, z in zip(path, symbols, strict=True) if z >= 0])
        for t, x in enumerate(path):
            totals[t, x] += weight
    expected = np.abs(np.log(totals[:, 1] / totals[:, 0]) - math.log(distribution[1] / distribution[0]))
    odds_after = odds_change(SymbolOutputs(symbols, emission), Knowledge(STICKY, np.zeros(6, dtype=np.int64)))
    np.testing.assert_allclose(odds_after, expected, atol=1e-12)


@pytest.mark.long
@pytest.mark.parametrize(("length", "scale"), [(100, 5), (300, 12), (300, 30)])
def test_long_windows_are_smoothed_almost_as_exactly_as_short_ones(length, scale):
    states = walked(STICKY, 6000)
    segments = states * 0
    outputs = release_counts(states, segments, length, Fraction(scale), ((1,),), np.random.default_rng(1), k=2)
    knowledge = Knowledge(STICKY, segments)
    seen = outputs.symbols_or_empty()
    tilted = tilted_marginals(outputs, seen.symbols, seen.emission, knowledge.distribution, STICKY, knowledge.lengths)
    exact = smoothing(outputs, knowledge)
    prior = smoothing(empty_outputs(outputs), knowledge)
    assert np.abs(tilted - exact).max() < 0.04
    assert np.abs(exact - prior).max() > 3 * np.abs(tilted - exact).mean()


@pytest.mark.long
def test_two_states_histogram_is_two_counts_of_the_same():
    """Half the noise of a count, in variance: the histogram's posterior is that of the difference of both."""
    states = walked(STICKY, 2000)
    segments = states * 0
    both = release_counts(states, segments, 20, Fraction(4), ((0,), (1,)), np.random.default_rng(1), k=2)
    outputs = release_counts(states, segments, 20, Fraction(4), ((1,),), np.random.default_rng(1), k=2)
    knowledge = Knowledge(STICKY, segments)
    right = [(smoothing(outputs, knowledge).argmax(axis=1) == states).mean() for outputs in (both, outputs)]
    assert right[0] > right[1]


def test_symbols_and_counts_together_say_more_than_either():
    states = walked(STICKY, 4000)
    segments = states * 0
    symbols = release_symbols(states, table(0.4), np.random.default_rng(1))
    counts = release_counts(states, segments, 20, Fraction(4), ((1,),), np.random.default_rng(2), k=2)
    joint = replace(counts, symbol_outputs=symbols)
    knowledge = Knowledge(STICKY, segments)
    right = [(smoothing(outputs, knowledge).argmax(axis=1) == states).mean() for outputs in (joint, symbols, counts)]
    assert right[0] > max(right[1:])


def best_test(prior, epsilon):
    """The success of the best randomised guess W[x, z] with W[x, z] <= e^epsilon W[x', z]: a linear programme."""
    k = len(prior)
    rows = []
    for z, (x, other) in product(range(k), permutations(range(k), 2)):
        row = np.zeros((k, k))
        row[x, z], row[other, z] = 1.0, -math.exp(epsilon)
        rows.append(row.ravel())
    sums = np.kron(np.eye(k), np.ones(k))
    objective = -np.diag(prior).ravel()
    return -linprog(objective, np.array(rows), np.zeros(len(rows)), sums, np.ones(k)).fun


@pytest.mark.parametrize("k", [2, 3, 4, 5])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0])
@pytest.mark.parametrize("seed", range(4))
def test_the_bound_is_the_best_test_for_any_number_of_states(k, epsilon, seed):
    prior = np.random.default_rng(seed).dirichlet(np.full(k, 0.5 + seed))
    assert float(success_bound(prior, epsilon)) == pytest.approx(best_test(prior, epsilon), abs=1e-9)


def test_one_epsilon_is_two_equal_ones():
    for share in (0.5, 0.6, 0.75, 0.9):
        distribution = [1 - share, share]
        assert float(success_bound(distribution, 1.0)) == pytest.approx(
            float(success_bound(distribution, 1.0, 1.0)), abs=1e-15
        )
    assert float(success_bound([0.5, 0.5], 1.0)) == pytest.approx(math.e / (1 + math.e))
    assert float(success_bound([0.9, 0.1], 1.0)) == 0.9
    assert float(success_bound([0.3, 0.7], 0.0)) == 0.7


def test_every_row_of_priors_has_its_own_bound():
    distributions = np.array([[0.5, 0.5], [0.9, 0.1]])
    np.testing.assert_allclose(
        success_bound(distributions, 1.0), [success_bound(distribution, 1.0) for distribution in distributions]
    )


@pytest.mark.long
@pytest.mark.parametrize(("memory", "least"), [(0.0, 0.93), (0.9, 0.93), (0.99, 0.90)])
def test_intervals_cover_the_mean_of_a_correlated_series(memory, least):
    """200 series of 5,000 numbers; a memory of 0.99 leaves only 25 independent stretches."""
    from scipy.signal import lfilter  # takes longer to import than all of pytest

    generator = np.random.default_rng(5)
    covered = 0
    for _ in range(200):
        series = lfilter([1.0], [1.0, -memory], generator.normal(size=7000))[2000:]
        low, high = mean_interval(np.asarray(series > 0, dtype=np.float64), 0.95)
        covered += low <= 0.5 <= high
    assert covered / 200 >= least - 0.03


def test_a_constant_series_has_no_doubt_and_a_short_one_every():
    assert mean_interval(np.ones(100), 0.95) == (1.0, 1.0)
    assert mean_interval(np.ones(3), 0.95) == (-np.inf, np.inf)


def test_blocks_are_means_of_all_numbers():
    np.testing.assert_allclose(block_means(np.arange(11.0), 3), [1.0, 4.0, 8.0])


def test_bounds_are_on_their_side():
    sums = np.random.default_rng(0).normal(1.0, 0.1, 32)
    assert 0.9 < lowest_mean(sums, 0.99) < sums.mean()
    assert share_bounds(0, 32, 0.05) == (0.0, pytest.approx(1 - 0.05 ** (1 / 32)))
    assert share_bounds(32, 32, 0.05) == (pytest.approx(0.05 ** (1 / 32)), 1.0)
