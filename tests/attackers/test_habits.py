"""Habits are not protected: attackers who learn a chain move odds beyond e^epsilon, those who know it do not."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from functools import cache

import numpy as np
import pytest

from fugu.attackers.evaluation import Attack, attack, furthest_learner, mean_transitions, odds_change
from fugu.attackers.learning import COUNT_ATTACKERS, COUNT_LEARNERS, smoothing
from fugu.attackers.outputs import Knowledge, empty_outputs, release_counts
from fugu.contract.chains import BinaryChains
from fugu.privacy.randomised_response import allowed_ratios
from fugu_cli.demo.evaluation import EPSILON, load_night
from tests.support.proofs import check_printed

SHARES = (Fraction(1, 5), Fraction(4, 5))
MOVES = ((Fraction(1, 20), Fraction(1, 5)), (Fraction(1, 5), Fraction(1, 20)))
"""q and r of two chains of one class, whose shares of state 1 are those."""
TICKS = 401
MIDDLE = 200
READERS = ("forward-backward", "learned levels", "supervised")


@cache
def path_probability(moves, path):
    """Of a path under a stationary chain, exactly."""
    q, r = moves
    step = ((1 - q, q), (r, 1 - r))
    probability = (r, q)[path[0]] / (q + r)
    for a, b in itertools.pairwise(path):
        probability *= step[a][b]
    return probability


def odds(chains, likelihood, tick, ticks):
    """Odds of state 1 of a tick under an even mixture of chains, by enumeration of all paths."""
    sums = [Fraction(0), Fraction(0)]
    for path in itertools.product((0, 1), repeat=ticks):
        for chain in chains:
            sums[path[tick]] += path_probability(chain, path) * likelihood(chain, path)
    return sums[1] / sums[0]


def test_odds_move_fourfold_as_soon_as_the_share_is_known():
    """The even mixture of two chains of one class: every tick's odds are 1, and 4 once the chain is known."""
    assert [q / (q + r) for q, r in MOVES] == list(SHARES)
    for tick in range(6):
        assert odds(MOVES, lambda *_: 1, tick, 6) == 1
        for move, factor in zip(MOVES, (Fraction(1, 4), 4), strict=True):
            assert odds(MOVES, lambda chain, _, move=move: int(chain == move), tick, 6) == factor
    check_printed("Every tick's odds, 1 before, are {} once the share is known to be 0.8", 4)


@pytest.mark.long
def test_a_count_keeps_its_promise_to_whom_the_chain_is_known_and_cannot_keep_it_to_a_mixture():
    """Readings that are independent given the chain, noise of ratio 1/2: the promise is a factor of 2, exactly."""
    ticks, chains = 8, tuple((share, 1 - share) for share in SHARES)

    def factor(believed, count):
        def noise(_, path):
            return Fraction(1, 2 ** abs(count - sum(path)))

        return odds(believed, noise, 3, ticks) / odds(believed, lambda *_: 1, 3, ticks)

    for count in (-3, 0, 4, 8, 11):
        for chain in chains:
            assert Fraction(1, 2) <= factor((chain,), count) <= 2
    # Beyond its range the count says: 2 for each of the tick's states, and 4 for the habit, less what is not yet known.
    assert factor((chains[1],), 13) == 2
    learned = Fraction(3, 2) ** (ticks - 1)
    assert factor(chains, 13) == (2 * (SHARES[0] + SHARES[1] * learned)) / (1 - SHARES[0] + (1 - SHARES[1]) * learned)
    assert 6 < factor(chains, 13) < 8


def counted(moves):
    """Joint probabilities (TICKS + 1, 2) of the count of state 1 and the middle tick's state, under one chain."""
    q, r = (float(move) for move in moves)
    step, share = np.array([[1 - q, q], [r, 1 - r]]), np.array([r, q]) / (q + r)
    side = np.zeros((MIDDLE + 1, 2))
    side[0, 0], side[1, 1] = share
    for _ in range(MIDDLE):
        onward = side @ step
        side = np.zeros((len(side) + 1, 2))
        side[:-1, 0] = onward[:-1, 0] if len(onward) == len(side) else onward[:, 0]
        side[1:, 1] = onward[:, 1]
        side = side[: MIDDLE + 2]
    weights = np.zeros((TICKS + 1, 2))
    for x in (0, 1):  # reversible: both sides of the tick are alike, and independent given its state
        both = np.convolve(side[:, x], side[:, x]) / share[x]
        weights[: both[x:].size, x] = both[x:][: TICKS + 1]
    return weights


@pytest.mark.long
def test_the_windows_of_a_class_reveal_the_chain_within_the_class():
    """A count of 401 sticky ticks at epsilon 1, universal: exact posteriors for every value that may be released."""
    bounds = tuple(sorted(float(move) for move in MOVES[0]))
    ratios = allowed_ratios(BinaryChains(q=bounds, r=bounds), 1.0, "universal")
    scale = math.ceil(100 / math.log(min(ratios))) / 100
    released = np.arange(-200, TICKS + 201)
    noise = np.exp(-np.abs(released[:, None] - np.arange(TICKS + 1)) / scale)
    laws = [noise @ counted(moves) for moves in MOVES]
    changes = [
        np.log(law[:, 1] / law[:, 0]) - math.log(share / (1 - share))
        for law, share in zip(laws, (0.2, 0.8), strict=True)
    ]
    largest = max(np.abs(change).max() for change in changes)
    assert 0.2 < largest <= 1.0
    mixed = np.abs(np.log(sum(laws)[:, 1] / sum(laws)[:, 0]))
    assert mixed.max() > math.log(4)
    weights = sum(law.sum(axis=1) for law in laws)
    beyond = float(weights[mixed > 1.0].sum() / weights.sum())
    check_printed("odds on the middle tick move by x {} at most. For one who has yet to", math.exp(largest))
    check_printed("learn it, they move by up to x {}, and beyond x 2.7 for {} %", math.exp(mixed.max()), 100 * beyond)


def released(night, seed):
    [window] = night.policy.windows
    generator, scale = np.random.default_rng(seed), Fraction(window.scale)
    segments = np.zeros_like(night.states)
    return release_counts(night.states, segments, window.length, scale, ((1,),), generator, k=2)


@pytest.mark.long
def test_on_the_nights_learners_go_beyond_the_promise_that_holds_for_known_habits():
    """The demo's plan for a night, released once, and attacked."""
    night = load_night("N10")
    states, segments, outputs = night.states, np.zeros_like(night.states), released(night, 1)
    attackers = {name: COUNT_ATTACKERS[name] for name in READERS}
    attacks = attack(states, segments, outputs, EPSILON, attackers=attackers)
    by_name = {attack.attacker: attack for attack in attacks}
    chain_attack, learner = by_name["forward-backward"], furthest_learner(attacks)
    assert 1.0 < chain_attack.furthest < math.e
    assert chain_attack.beyond == 0.0
    believed = Knowledge(mean_transitions(states, segments, 2), segments, truth=states)
    answers = []

    def noting(*arguments):
        answers.append(attackers[learner.attacker](*arguments))
        return answers[-1]

    change = odds_change(outputs, believed, noting)[states >= 0]
    assert (math.exp(change.max()), (change > 1).mean()) == pytest.approx((learner.furthest, learner.beyond))
    odds = [(by_name[attacker].furthest, 100 * by_name[attacker].beyond) for attacker in attackers]
    factors, shares = zip(*odds, strict=True)
    check_printed("| N10 | x {}, none | x {}, none | x {}, {} % |", *factors, shares[2])
    assert learner.attacker == "supervised"
    after = answers[0][states >= 0]
    right = after.argmax(axis=1) == states[states >= 0]
    beyond = change > EPSILON
    sure, correct = float(after.max(axis=1)[beyond].mean()), float(right[beyond].mean())
    check_printed("is {} sure of the state that he names, and right on {} of them.", sure, correct)


def numbers_on(name):
    """Factor and, where there are any, per cent of the heartbeats beyond e^epsilon of each of `READERS` on a night."""
    night = load_night(name)
    attackers = {reader: COUNT_ATTACKERS[reader] for reader in READERS}
    attacks = attack(night.states, np.zeros_like(night.states), released(night, 1), EPSILON, attackers=attackers)
    by_name = {attack.attacker: attack for attack in attacks}
    for reader in READERS:
        yield by_name[reader].furthest
        yield from [100 * by_name[reader].beyond] * (by_name[reader].beyond > 0)


@pytest.mark.long
def test_on_the_other_nights_they_reach_what_the_manual_says():
    check_printed("| N05 | x {}, none | x {}, none | x {}, none |", *numbers_on("N05"))
    check_printed("| N07 | x {}, none | x {}, {} % | x {}, {} % |", *numbers_on("N07"))


@pytest.mark.soak
def test_over_many_draws_of_the_noise_the_share_beyond_is_as_the_manual_says():
    shares: dict[str, list[float]] = {}
    for name in ("N10", "N05", "N07"):
        night = load_night(name)
        knowledge = Knowledge(night.transition, np.zeros_like(night.states), truth=night.states)
        for attacker in ("supervised", "learned levels"):
            use = COUNT_ATTACKERS[attacker]
            draws = [odds_change(released(night, seed), knowledge, use)[night.states >= 0] for seed in range(30)]
            beyond = [100 * float((change > EPSILON).mean()) for change in draws]
            shares[attacker] = [*shares.get(attacker, []), min(beyond), max(beyond)]
    check_printed(
        "on {} to {} % of the heartbeats of N10, on {} to {} % of those of N05, and on {} to {} % of those of N07.",
        *shares["supervised"],
    )
    alone = shares["learned levels"]
    check_printed("(learned levels) it is {} to {} % on N10 and {} to {} % on N07.", *alone[:2], *alone[4:])


def test_who_names_a_path_has_no_odds_and_is_no_learner_to_report():
    attack = Attack("forward-backward", 0.6, 0.5, 0.7, 0.7, 0.5, 0.0, 0.9, 90.0)
    path = Attack("learned chain, Viterbi", 0.6, 0.5, 0.7, 0.7, 0.5, 0.0)
    learners = [Attack("supervised", 0.6, 0.5, 0.7, 0.7, 0.5, 0.0, *odds) for odds in ((0.0, 2.0), (0.1, 1.9))]
    assert furthest_learner([attack, path]) is None
    assert furthest_learner([attack, path, *learners]) is learners[1]


def test_who_learns_two_regimes_sees_them_through_the_noise_and_no_more_than_there_is():
    """Busy and quiet stretches of twenty windows: the share that he believes is theirs; one share has no regimes."""
    rng, length, scale = np.random.default_rng(3), 100, Fraction(8)
    shares = np.repeat(np.tile([0.1, 0.8], 6), 20 * length)
    learner = COUNT_LEARNERS["2 learned regimes"]
    for share, busy, quiet in ((shares, 0.8, 0.1), (np.full(shares.size, 0.45), 0.45, 0.45)):
        states = (rng.random(share.size) < share).astype(np.int64)
        segments = np.zeros_like(states)
        outputs = release_counts(states, segments, length, scale, ((1,),), rng, k=2)
        knowledge = Knowledge(mean_transitions(states, segments, 2), segments, truth=states)
        believed = learner(outputs, knowledge)[:, 1]
        assert believed[shares == 0.8].mean() == pytest.approx(busy, abs=0.03)
        assert believed[shares == 0.1].mean() == pytest.approx(quiet, abs=0.03)
        few = release_counts(states[:150], segments[:150], length, scale, ((1,),), rng, k=2)
        short = Knowledge(knowledge.transition, segments[:150], truth=states[:150])
        assert learner(few, short) == pytest.approx(smoothing(empty_outputs(few), short)), "one window has no regimes"
