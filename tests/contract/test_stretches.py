"""Stretches of a stream: the bound on what several ticks lose, against every path and output; and verdicts on it."""

from __future__ import annotations

import math
import re
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fugu.contract.chains import BinaryChains, BoundedChains, ChainClass, odds_ratio
from fugu.contract.errors import GuaranteeError
from fugu.contract.guarantee import Guarantee, loss, tick_ratios
from fugu.contract.losses import Adversary, exp_up, log_up
from fugu.contract.noise_table import SCALE, NoiseTable
from fugu.contract.policy import Clock, Policy
from fugu.contract.sentences import (
    LARGEST_PRIVATE,
    largest_posterior,
    privacy_of,
    privacy_sentence,
    promised_words,
    sure_words,
)
from fugu.contract.stretches import DAYS, LARGEST_PROTECTED, Ceiling, Stretch, StretchBound, stretch_ticks
from fugu.contract.windows import Window
from fugu.privacy.accountant import ChainAccountant
from fugu.privacy.chain_class import MarkovChain
from tests.support.oracle import Array, by_evidence, joint_distribution
from tests.support.proofs import check_printed
from tests.support.windows import policy as any_policy

TURNING = ((0.90, 0.09, 0.01), (0.01, 0.90, 0.09), (0.09, 0.01, 0.90))
"""A chain that turns one way: its past is not like its future."""


def stretch_truth(joint: Array, states: int, length: int, ticks: int, *, informed: bool) -> float:
    """The largest log-likelihood ratio between two sequences of states of `ticks` ticks, wherever they are."""
    worst = 0.0
    for first in range(length - ticks + 1):
        at = by_evidence(joint, states, length, range(first, first + ticks), informed=informed)
        mass = at.sum(axis=2)
        with np.errstate(divide="ignore", invalid="ignore"):
            logs = np.log(at) - np.log(mass)[:, :, None]
        high, low = (np.where(mass[:, :, None] > 0.0, logs, beyond) for beyond in (-np.inf, np.inf))
        some = (mass > 0.0).any(axis=0)
        worst = max(worst, float((high.max(axis=0) - low.min(axis=0))[some].max()))
    return worst


def stationary(transition: Array) -> Array:
    return np.asarray(np.linalg.matrix_power(transition, 4096)[0])


loss_of = cache(loss)


def bound(chains: ChainClass, table: NoiseTable, adversary: Adversary, ticks: int) -> float:
    single = loss_of(chains, table, adversary)
    return StretchBound(single.epsilon, 1, log_up(max(tick_ratios(table)))).epsilon(ticks)


def known_loss(transition: Any, table: NoiseTable, adversary: Adversary) -> float:
    return (
        ChainAccountant((MarkovChain.stationary(transition),)).loss(log_up(max(tick_ratios(table))), adversary).epsilon
    )


def known_bound(transition: Any, table: NoiseTable, adversary: Adversary, ticks: int) -> float:
    single, rate = known_loss(transition, table, adversary), log_up(max(tick_ratios(table)))
    return StretchBound(single, 1, rate, equal_leakages=False).epsilon(ticks)


@pytest.mark.parametrize("ticks", [1, 2, 3])
@pytest.mark.parametrize("adversary", ["ignorant", "informed"])
@pytest.mark.parametrize(
    ("q", "r", "flips"),
    [(0.1, 0.4, (0.3, 0.2)), (0.02, 0.3, (0.45, 0.4)), (0.9, 0.7, (0.3, 0.4)), (0.5, 0.5, (0.2, 0.2))],
)
def test_no_stretch_of_two_states_loses_more(
    q: float, r: float, flips: tuple[float, float], adversary: Adversary, ticks: int
) -> None:
    table = NoiseTable.binary(*(round(flip * SCALE) for flip in flips))
    transition = np.array([[1 - q, q], [r, 1 - r]])
    emission = np.array(table.weights()) / SCALE
    _, joint = joint_distribution(stationary(transition), [transition] * 5, emission)
    truth = stretch_truth(joint, 2, 6, ticks, informed=adversary == "informed")
    assert truth <= bound(BinaryChains(q=(q, q), r=(r, r)), table, adversary, ticks) + 1e-9
    assert truth <= known_bound(transition, table, adversary, ticks) + 1e-9
    assert truth <= bound(BinaryChains(q=(q, q), r=(r, r)), table, "universal", ticks) + 1e-9
    # a tick inside says no less of itself than it does alone
    assert truth >= ticks * math.log(max(tick_ratios(table))) - 1e-9


@pytest.mark.parametrize("ticks", [1, 2, 3])
def test_the_bound_of_a_stretch_is_reached(ticks: int) -> None:
    """A symmetric table on a sticky chain: all outputs 0 are the worst of a stretch, and of each of its sides."""
    table = NoiseTable.binary(round(0.2 * SCALE), round(0.2 * SCALE))
    q = 0.3
    transition = np.array([[1 - q, q], [q, 1 - q]])
    length = ticks + 40
    emission = np.array(table.weights()) / SCALE
    leakage = np.ones(2)
    for _ in range((length - ticks) // 2):
        leakage = transition @ (emission[:, 0] * leakage)
        leakage /= leakage.max()
    truth = ticks * math.log(emission[0, 0] / emission[1, 0]) + 2 * math.log(leakage[0] / leakage[1])
    claimed = bound(BinaryChains(q=(q, q), r=(q, q)), table, "ignorant", ticks)
    assert truth <= claimed <= truth + 1e-6


@pytest.mark.parametrize("adversary", ["ignorant", "informed"])
@pytest.mark.parametrize("ticks", [1, 2, 3])
def test_past_and_future_that_differ_count_apart(adversary: Adversary, ticks: int) -> None:
    """A chain that turns one way: its stretches can lose more than epsilon and a tick for each further one."""
    weights = round(0.3 * SCALE)
    table = NoiseTable.randomised_response(3, weights)
    transition = np.array(TURNING)
    _, joint = joint_distribution(stationary(transition), [transition] * 4, np.array(table.weights()) / SCALE)
    truth = stretch_truth(joint, 3, 5, ticks, informed=adversary == "informed")
    assert truth <= known_bound(TURNING, table, adversary, ticks) + 1e-9
    wide = BoundedChains(states=3, odds_ratio=odds_ratio(TURNING), transition=None)
    assert truth <= bound(wide, table, adversary, ticks) + 1e-9


@pytest.mark.parametrize(("length", "stride"), [(1, 1), (5, 5), (5, 2), (7, 3), (3, 8), (64, 1), (6, 4), (4, 6)])
def test_a_tick_of_a_stretch_has_the_most_windows_around_it_that_any_tick_has(length: int, stride: int) -> None:
    """Nothing is taken off for ticks in fewer windows, or in none: numbers may skip them."""
    window = Window(name="w", length=length, stride=stride, states=(1,), scale="3")
    around = [
        sum(begin <= tick < begin + length for begin in range(0, tick + 1, stride))
        for tick in range(length + stride, length + 3 * stride)
    ]
    counts = StretchBound(0.0, 1, 0.25, (window,))
    assert counts.tick_rate == Fraction(1, 4) + Fraction(max(around), 3)
    for ticks in range(1, 4 * (length + stride)):
        assert counts.floor(ticks) == pytest.approx(ticks * (0.25 + max(around) / 3), rel=1e-15)


def test_ticks_of_a_time_are_the_most_that_can_fall_into_it() -> None:
    """One more than without late ticks; never more than an eighth sooner each."""
    assert stretch_ticks(60, 1_000_000) == 61
    assert stretch_ticks(60, 7_000_000) == 10  # at 0, 7, ..., 56, and one that was late before
    assert stretch_ticks(60, 60_000_000) == 2
    assert stretch_ticks(60, 68_571_428) == 2
    assert stretch_ticks(60, 68_571_429) == stretch_ticks(60, 3_600_000_000) == 1
    assert stretch_ticks(60, 1000) == 60_250


@given(st.integers(1, 400), st.lists(st.integers(0, 12), min_size=30, max_size=30))
def test_no_late_ticks_bring_more_into_a_time(seconds: int, lateness: list[int]) -> None:
    """Ticks are late by up to a period, and then come 7/8 of one apart until that is made up for."""
    period, drawn, now = 8_000_000, [], 0
    for tick, late in enumerate(lateness):
        due = max(tick * period, now + 7 * period // 8 if drawn else 0)
        now = due + min(late, 8) * period // 8
        if now - tick * period <= period:
            drawn.append(now)
    most = max(sum(begin <= tick < begin + seconds * 1_000_000 for tick in drawn) for begin in drawn)
    assert most <= stretch_ticks(seconds, period)


def policy(windows: tuple[Window, ...], chains: ChainClass, period_us: int = 60_000_000) -> Policy:
    promise = Guarantee(epsilon=100.0, adversary="informed")
    fields = {"guarantee": promise, "windows_guarantee": promise if windows else None, "chains": chains}
    table = NoiseTable.binary(round(0.48 * SCALE), round(0.45 * SCALE))
    return any_policy(*windows, **fields, table=table, clock=Clock(epoch_us=0, period_us=period_us))


def test_a_single_tick_is_the_guarantee_and_an_hour_adds_its_ticks() -> None:
    window = Window(name="w", length=60, stride=90, states="histogram", scale="40")
    promised = policy((window,), BinaryChains(q=(0.1, 0.1), r=(0.4, 0.4)))
    single, alone = promised.verify(100.0), promised.verify_windows()
    tick, minutes, own, hour, night, often = promised.bound(single).rows(60_000_000)
    assert tick.epsilon == single.epsilon
    assert (minutes.ticks, own.ticks, hour.ticks, night.ticks, often.ticks) == (11, 60, 61, 481, DAYS * 61)
    rate = log_up(max(tick_ratios(promised.table)))
    assert minutes.epsilon == pytest.approx(single.epsilon + 10 * rate + 10 * 2 / 40, rel=1e-12)
    assert minutes.floor == pytest.approx(11 * rate + 11 * 2 / 40, rel=1e-12)
    assert often.epsilon == pytest.approx(DAYS * hour.epsilon, rel=1e-12)
    assert hour.epsilon == pytest.approx(single.epsilon + 60 * rate + 60 * 2 / 40, rel=1e-12)
    # a third of the ticks is in no window, but which ones is up to whoever sets the clock
    assert night.epsilon == pytest.approx(single.epsilon + 480 * rate + 480 * 2 / 40, rel=1e-12)
    counts = promised.windows_bound(alone)
    assert counts.epsilon(61) == pytest.approx(alone.epsilon + 60 * 2 / 40, rel=1e-12)
    assert tick.protected
    assert not night.protected


def test_epsilon_and_a_tick_for_each_further_one_is_no_bound_where_past_and_future_differ() -> None:
    """One pair of states has the worst past, another the worst future: a stretch begins with one, ends with the other.

    Six ticks before and six after, all outputs: the past of a first tick, and the future of a last one.
    """
    transition = ((0.34, 0.07, 0.59), (0.01, 0.0, 0.99), (0.01, 0.0, 0.99))
    table = NoiseTable.randomised_response(3, round(0.3 * SCALE))
    future, emission = np.array(transition), np.array(table.weights()) / SCALE
    distribution = stationary(future)
    past = (distribution[:, None] * future).T / distribution[:, None]
    leakages = []
    for kernel in (past, future):
        likelihoods = [np.ones(3)]
        for _ in range(6):
            likelihoods = [kernel @ (emission[:, symbol] * h) for h in likelihoods for symbol in range(3)]
        logs = np.log(np.array(likelihoods))
        leakages.append(float((logs.max(axis=1) - logs.min(axis=1)).max()))
    rate = log_up(max(tick_ratios(table)))
    truth = 2.0 * rate + sum(leakages)
    single = known_loss(transition, table, "ignorant")
    assert single + rate < truth - 0.1
    assert truth <= known_bound(transition, table, "ignorant", 2)
    check_printed("errs 0.3 to each side, epsilon {}: two ticks", single)
    check_printed(
        "two ticks can lose {} (enumerated with six ticks on either side), more than {}.", truth, single + rate
    )


@pytest.mark.parametrize(
    ("equal_leakages", "hidden", "total"),
    [(True, False, 1.5), (True, True, 1.75), (False, False, 2.25), (False, True, 2.75)],
)
def test_states_that_show_the_same_leave_all_of_epsilon_to_the_ticks_around(
    equal_leakages: bool, hidden: bool, total: float
) -> None:
    """A rate of .25 in each of three ticks, and of epsilon 1 what is not the rate of a tick, once or twice."""
    assert StretchBound(1.0, 1, 0.25, equal_leakages=equal_leakages, hidden=hidden).epsilon(3) == total


@given(st.floats(0.001, 8.0), st.floats(0.0, 1.0), st.integers(2, 30_000))
def test_the_bound_of_a_stretch_is_rounded_up(epsilon: float, share: float, ticks: int) -> None:
    rate = epsilon * share
    exact = Fraction(epsilon) + (ticks - 1) * Fraction(rate)
    upper = StretchBound(epsilon, 1, rate).epsilon(ticks)
    assert math.nextafter(upper, 0.0) <= exact <= upper


def promised(ticks: int, scale: str, odds: float = 16.0) -> Policy:
    """Windows of an hour of minutes, for bounded odds ratios, with a promise of epsilon 1 for so many ticks."""
    draft = policy((), BoundedChains(states=2, odds_ratio=odds))
    window = Window(name="w", length=60, stride=60, states=(1,), scale=scale)
    guarantee = Guarantee(epsilon=1.0, adversary="universal", stretch_ticks=ticks)
    return draft.model_copy(update={"table": None, "windows": (window,), "guarantee": guarantee, "frame_ticks": 1})


@pytest.mark.parametrize("ticks", [1, 2, 10, 60, 481])
def test_a_promise_for_a_stretch_holds_just_inside_and_is_refused_just_outside(ticks: int) -> None:
    """With w ticks at scale s in closed form, epsilon is w/s and twice the leakage at 1/s."""
    chains = BoundedChains(states=2, odds_ratio=16.0)

    def lost(scale: Fraction) -> float:
        one_tick = chains.ratio_loss(exp_up(1 / scale), exp_up(1 / scale), "universal").epsilon
        return one_tick + (ticks - 1) / float(scale)

    low, high = 1, 10**6
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if lost(Fraction(middle, 1000)) <= 1.0 else (middle, high)
    promised(ticks, str(Fraction(high, 1000))).verify()
    with pytest.raises(GuaranteeError, match="of its guarantee"):
        promised(ticks, str(Fraction(low, 1000))).verify()
    assert high / 1000 <= ticks + math.sqrt(16.0) - 1 + 0.002  # the closed form for any side information
    assert high / 1000 >= (ticks + math.sqrt(16.0) - 1) * (0.98 if ticks == 1 else 0.995)


def test_a_longer_promise_keeps_the_shorter_ones() -> None:
    quilted = promised(61, "64")
    one_tick = quilted.verify()
    from_promise, derived = quilted.bound(), quilted.bound(one_tick)
    assert from_promise.epsilon(61) == 1.0
    for ticks in (1, 2, 11, 61, 62, 481):
        assert derived.epsilon(ticks) <= from_promise.epsilon(ticks)
        assert from_promise.floor(ticks) == derived.floor(ticks) == pytest.approx(ticks / 64)
    assert derived.longest(1.0) >= from_promise.longest(1.0) == 61
    assert from_promise.epsilon(from_promise.longest(2.0) + 1) > 2.0


def test_a_ceiling_is_held_against_the_loss_of_its_own_time() -> None:
    """A promise of an hour at epsilon 1 keeps ceilings of a tick and of ten minutes that are above its loss of them."""
    quilted = promised(61, "64")
    quilted.verify(Ceiling(epsilon=1.0, seconds=3600))
    quilted.verify(Ceiling(epsilon=0.3, seconds=600))
    quilted.verify(0.07)
    for ceiling in (Ceiling(epsilon=0.99, seconds=3600), Ceiling(epsilon=1.0, seconds=7200), Ceiling(epsilon=0.01)):
        with pytest.raises(GuaranteeError, match="above this device's ceiling"):
            quilted.verify(ceiling)


def test_a_false_promise_is_told_by_its_own_outputs_and_a_huge_one_has_no_bound() -> None:
    """`fugu check statement` said of the first "must be above 0.0", and broke off at the second."""
    assert StretchBound(60.0, 1024, 4.0).epsilon(1) == 4.0
    assert StretchBound(1e308, 1, 4.0).rows(60_000_000)[-1].epsilon == math.inf


@given(st.integers(1, 400), st.integers(1, 50), st.integers(1, 50), st.integers(1, 30), st.floats(0.0, 2.0))
def test_the_longest_stretch_is_the_last_within_epsilon(
    ticks: int, length: int, stride: int, scale: int, rate: float
) -> None:
    window = Window(
        name="w",
        length=max(length, -(-length // 8)),
        stride=max(stride, -(-length // 60)),
        states=(1,),
        scale=str(scale),
    )
    bound = StretchBound(1.0 + rate + float(window.rate), 1, rate, (window,))
    longest = bound.longest(bound.epsilon(ticks))
    assert longest >= ticks
    assert bound.epsilon(longest) <= bound.epsilon(ticks) < bound.epsilon(longest + 1) or rate == 0.0


DOM = Path(__file__).parents[2] / "gateway" / "page" / "assets" / "dom.js"


@pytest.mark.parametrize(
    ("epsilon", "level"),
    [
        (1e-9, "private"),
        (3.0, "private"),
        (math.nextafter(3.0, 4.0), "weak"),
        (6.0, "weak"),
        (math.nextafter(6.0, 7.0), "none"),
        (math.inf, "none"),
        (math.nan, "none"),
        (None, "none"),
    ],
)
def test_an_epsilon_is_private_up_to_three_and_weakly_up_to_six(epsilon: float | None, level: str) -> None:
    assert (LARGEST_PRIVATE, LARGEST_PROTECTED) == (3.0, 6.0)
    assert privacy_of(epsilon) == level
    assert Stretch("an hour", 60, epsilon or math.inf, 0.0).protected == (level != "none")


@pytest.mark.parametrize("epsilon", [0.01, 0.1, 1.0, 3.0, 5.5, 6.0, 30.0])
def test_the_chance_is_the_largest_posterior_of_a_fair_coin_rounded_up(epsilon: float) -> None:
    odds = exp_up(Fraction(epsilon))  # an attacker thought both equally likely: his odds were 1
    exact = odds / (1 + odds)
    assert exact * (1 - Fraction(1, 10**12)) <= Fraction(largest_posterior(epsilon)) <= 1
    assert Fraction(largest_posterior(epsilon)) >= exact - Fraction(1, 10**30)
    assert largest_posterior(epsilon) == pytest.approx(float(exact), rel=1e-14)


def test_an_infinite_epsilon_makes_anybody_sure() -> None:
    assert largest_posterior(math.inf) == largest_posterior(1e300) == 1.0


def test_chances_are_said_in_words() -> None:
    assert sure_words(1.0) == "from 50 % to at most 73 % sure"
    assert sure_words(6.0) == "from 50 % to at most 99.8 % sure"


def test_the_verdict_names_the_shortest_stretch_that_is_not_private() -> None:
    rows = [
        Stretch("a single tick", 1, 0.2, 0.1, 0),
        Stretch("10 minutes", 10, 1.0, 0.5, 600),
        Stretch("a window 'day'", 1440, 7.0, 3.0),
        Stretch("1 hour", 60, 6.5, 3.0, 3600),
        Stretch("8 hours", 480, 50.0, 30.0, 28_800),
    ]
    private = "Private: about any 10 minutes, from 50 % to at most 73 % sure."
    assert privacy_sentence(1.0, "10 minutes", rows) == f"{private} Not private: an hour or longer."
    assert privacy_sentence(1.0, "10 minutes", rows[:2]) == private
    weak = [*rows[:2], rows[3]._replace(epsilon=6.0), rows[4]]
    assert (
        privacy_sentence(1.0, "10 minutes", weak)
        == f"{private} Weakly private: an hour. Not private: 8 hours or longer."
    )
    assert promised_words(1.0, 10, rows) == f"{private} Not private: an hour or longer."
    assert promised_words(1.0, 7, ()) == "Private: about any 7 ticks in a row, from 50 % to at most 73 % sure."
    assert promised_words(4.0, 1, ()) == "Weakly private: about any single tick, from 50 % to at most 98.2 % sure."


def test_what_is_not_private_is_said_in_odds_without_digits_that_mean_nothing() -> None:
    assert privacy_sentence(8.0, "hour") == "Not private: odds may change 2,981 times."
    assert privacy_sentence(40.0, "hour") == "Not private: odds may change more than 10,000 times."
    assert privacy_sentence(None, "hour") == privacy_sentence(math.inf, "hour")
    assert privacy_sentence(None, "hour") == "Not private: nothing bounds how far odds may change."


def test_the_page_has_the_same_boundary() -> None:
    match = re.search(r"export const LARGEST_PROTECTED = (\d+);", DOM.read_text())
    assert match
    assert float(match[1]) == LARGEST_PROTECTED
