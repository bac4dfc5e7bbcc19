"""The class that covers a recording: every regime that was planted, no chain that is none, and nothing inward."""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fugu.chains.arrays import Floats, Ints
from fugu.chains.model import simulate
from fugu.contract.chains import BinaryChains, BoundedChains, odds_ratio
from fugu.planning.joint_recording import StreamRule, read_joint
from fugu.privacy.chain_class import ChainClassError
from fugu.privacy.covering_class import (
    CoveringClass,
    bounded_class,
    covering_class,
    largest_log_odds,
    local_transitions,
    round_outward,
    widen,
)
from fugu.privacy.window_mechanisms import WindowRequest, least_noise
from fugu.recordings.readings import AS_FOUND
from fugu_cli.demo.evaluation import RECORDINGS
from tests.support.proofs import check_printed

DATA = Path(__file__).parents[1] / "data"
Rates = tuple[float, float]


def switching(regimes: list[Rates], stay: float, n: int, seed: int) -> Ints:
    """States of a chain whose rates (q, r) are those of a regime, which changes with probability 1 / stay."""
    draw = np.random.default_rng(seed).random((n, 2))
    states, regime = np.zeros(n, dtype=np.int64), 0
    for t in range(1, n):
        if draw[t, 0] < 1.0 / stay:
            regime = (regime + 1) % len(regimes)
        states[t] = states[t - 1] ^ (draw[t, 1] < regimes[regime][states[t - 1]])
    return states


def covered(states: Ints) -> CoveringClass:
    return covering_class(states, np.zeros(states.size, dtype=np.int64), int(states.max()) + 1)


def noise(chains: BinaryChains | BoundedChains) -> float:
    """Scale of the noise of a count at epsilon 1 against the universal adversary, in ticks."""
    return least_noise(WindowRequest(chains, 1.0, None, "count", "universal")).scale


@pytest.mark.long
@pytest.mark.parametrize("transitions", [(0.09, 0.11), (0.24, 0.38), (0.06, 0.36), (0.5, 0.4)])
@pytest.mark.parametrize("seed", range(4))
def test_a_chain_of_constant_rates_is_hardly_widened(transitions: Rates, seed: int) -> None:
    covering = covered(switching([transitions], np.inf, 25_000, seed))
    point = BinaryChains(q=(transitions[0],) * 2, r=(transitions[1],) * 2)
    assert 0.97 * noise(point) < noise(covering.chains) < 1.1 * noise(point)
    assert isinstance(covering.chains, BinaryChains)
    assert len(covering.regimes) == 1


@pytest.mark.long
def test_a_short_recording_of_one_chain_is_widened_by_its_sampling_error_alone() -> None:
    """Errors of both rates are independent: the odds ratio holds in nine of ten, and needs no corner that is rarer."""
    point = noise(BinaryChains(q=(0.05,) * 2, r=(0.1,) * 2))
    classes = [covered(switching([(0.05, 0.1)], np.inf, 10_000, seed)).chains for seed in range(10)]
    scales = np.array([noise(chains) for chains in classes]) / point
    assert np.median(scales) < 1.08
    assert (scales < 1.0).mean() <= 0.2
    for chains in classes:
        assert isinstance(chains, BinaryChains)
        middle = BinaryChains(q=(sum(chains.q) / 2,) * 2, r=(sum(chains.r) / 2,) * 2)
        assert 1.04 < noise(chains) / noise(middle) < 1.11, "1.05, and two digits"


@pytest.mark.long
def test_rare_moves_of_one_chain_are_no_regimes() -> None:
    """Stretches without a single move are what a chain makes that hardly moves; it is left as it is."""
    alarms = sum(covered(switching([(0.0036, 0.012)], np.inf, 20_000, seed)).changes for seed in range(5))
    assert alarms <= 1


@pytest.mark.long
@pytest.mark.parametrize(
    "regimes", [[(0.02, 0.03), (0.25, 0.3)], [(0.05, 0.4), (0.4, 0.05)], [(0.1, 0.1), (0.03, 0.05), (0.4, 0.5)]]
)
def test_planted_regimes_are_recognised_and_covered(regimes: list[Rates]) -> None:
    seed = 0
    covering = covered(switching(regimes, 2_000, 40_000, seed))
    assert covering.changes
    assert isinstance(covering.chains, BoundedChains)
    worst = max(odds_ratio(((1 - q, q), (r, 1 - r))) for q, r in regimes)
    assert covering.chains.odds_ratio >= worst * 0.9  # within what the slowest regime can be told from its own sample
    q, r = (min(transitions) for transitions in zip(*regimes, strict=True))
    assert covering.chains.odds_ratio <= 4.0 * odds_ratio(((1 - q, q), (r, 1 - r)))
    slow, fast = (min(covering.regimes, key=lambda r: sign * r.transition[0, 1]) for sign in (1, -1))
    assert slow.transition[0, 1] == pytest.approx(min(q for q, _ in regimes), rel=0.5)
    assert fast.transition[0, 1] == pytest.approx(max(q for q, _ in regimes), rel=0.2)


def test_a_state_that_is_not_left_for_a_whole_stretch() -> None:
    """No rate is 0: it is half an occurrence in the longest stretch that has none."""
    states = switching([(0.2, 0.2)], np.inf, 16_000, 1)
    states[5_000:6_515] = 1
    covering = covered(states)
    assert covering.changes
    at_500, at_1000 = covering.lengths[0], covering.lengths[1]
    assert at_500.low[:, 1, 0].min() == pytest.approx(0.5 / 501)
    assert at_1000.low[:, 1, 0].min() == pytest.approx(0.5 / 1001)
    still = at_500.counts[:, 1, 0] == 0
    assert still.sum() == 3
    # Where state 0 is not seen either, its rate is what the other stretches have.
    assert at_500.low[still, 0, 1].max() == pytest.approx(0.2, rel=0.15)


def test_rows_without_a_state_are_left_out() -> None:
    states = switching([(0.2, 0.3)], np.inf, 20_000, 3)
    holes = states.copy()
    holes[::50] = -1
    assert noise(covered(holes).chains) == pytest.approx(noise(covered(states).chains), rel=0.05)
    transitions = local_transitions(holes, np.arange(20_000) // 7_000, 2, [500])[0]
    pairs = [(a, b) for i, (a, b) in enumerate(itertools.pairwise(holes)) if (i + 1) % 7_000 and min(a, b) >= 0]
    assert transitions.counts.sum() == len(pairs)


@pytest.mark.long
@pytest.mark.parametrize(("name", "least", "most"), [("N05", 4.5, 5.5), ("N07", 400.0, 1100.0), ("N10", 25.0, 130.0)])
def test_nights_need_what_their_slowest_stretches_need(name: str, least: float, most: float) -> None:
    """The state above the night's mean; a plain quantile of counted rates over 500 beats gives 4.8, 989 and 119.

    That joins the slowest rate of one stretch with the slowest of another, which N10 never has together.
    """
    recording = read_joint([StreamRule(RECORDINGS / f"hr_sleep_{name}.csv.gz", "value", "mean")], AS_FOUND)
    covered = covering_class(recording.states[:, 0], recording.segments, 2)
    assert covered.changes
    assert least < noise(covered.chains) < most


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "least", "most"), [("ampds2_water_on_30d", 11.0, 15.0), ("occupancy_office", 375.0, 500.0)]
)
def test_sensors_at_home_need_what_their_quiet_hours_need(name: str, least: float, most: float) -> None:
    """A plain quantile over 500 minutes gives 14 (water runs) and 375 (somebody in the office).

    Sampling error is a part of the 14; at the office nobody comes for whole stretches of 1,000 minutes, too.
    """
    recording = read_joint([StreamRule(DATA / f"{name}.csv.gz", "value", 0.5)], AS_FOUND)
    covered = covering_class(recording.states[:, 0], recording.segments, 2)
    assert covered.changes
    assert least < noise(covered.chains) < most
    if name == "occupancy_office":
        check_printed("water that runs, and {} for an office", noise(covered.chains))
    else:
        check_printed("The noise is {} for water that runs", noise(covered.chains))


@pytest.mark.long
def test_a_regime_is_no_rarer_in_its_steps_than_one_of_its_stays_can_show() -> None:
    """Of an office nobody comes to for days, half as much tells no rarer steps, whichever stays count as a regime."""
    recording = read_joint([StreamRule(DATA / "occupancy_office.csv.gz", "value", 0.5)], AS_FOUND)
    for part in (slice(0, 10_000), slice(5_000, 15_000)):
        covered = covering_class(recording.states[part, 0], recording.segments[part], 2)
        longest = max(length.length for length in covered.lengths)
        stays = max(regime.ticks for regime in covered.regimes)
        assert noise(covered.chains) < max(longest, stays)


@pytest.mark.long
def test_three_states_and_a_step_that_never_happens() -> None:
    """Neighbours only: steps from end to end are smoothed, so that every odds ratio is finite and covers the rest."""
    generator = np.random.default_rng(5)
    chain = np.array([[0.8, 0.2, 0.0], [0.1, 0.7, 0.2], [0.0, 0.3, 0.7]])
    states = simulate(20_000, [1.0, 0.0, 0.0], chain, np.eye(3), generator).states
    covering = covered(states)
    assert isinstance(covering.chains, BoundedChains)
    assert covering.chains.transition is not None
    assert 1e6 < covering.chains.odds_ratio < 1e12
    positive = [chain[np.ix_([0, 1], [0, 1])], chain[np.ix_([1, 2], [1, 2])]]
    assert all(covering.chains.odds_ratio > m[0, 0] * m[1, 1] / (m[0, 1] * m[1, 0]) for m in positive)


@pytest.mark.parametrize(
    ("states", "reason"),
    [
        (np.arange(300) % 2, "300 steps"),
        (np.repeat([0, 1], 2_000), "state 1 is left 0 times in 3999 steps"),
        (np.zeros(5_000, dtype=np.int64), "state 0 is left 0 times"),
    ],
)
def test_a_recording_too_short_to_tell(states: Ints, reason: str) -> None:
    with pytest.raises(ChainClassError) as error:
        covering_class(states, np.arange(states.size) // 300 * 0, 2)
    assert reason in str(error.value).replace("299", "300")
    assert "too short to tell" in str(error.value)


@pytest.mark.long
def test_the_odds_ratio_of_a_box_is_that_of_its_worst_matrix() -> None:
    generator = np.random.default_rng(2)

    def largest(chain: Floats) -> float:
        cells = range(len(chain))
        pairs = list(itertools.permutations(cells, 2))
        return max(chain[x, y] * chain[w, z] / (chain[x, z] * chain[w, y]) for x, w in pairs for y, z in pairs)

    for k in (2, 3, 4):
        low = generator.uniform(0.01, 0.5, (k, k))
        high = low * generator.uniform(1.0, 3.0, (k, k))
        # Each entry of an odds ratio stands on one side only, so corners are worst.
        corners = (np.where(generator.random((k, k)) < 0.5, low, high) for _ in range(1_000))
        bound = math.exp(largest_log_odds(low, high))
        exact = max(map(largest, corners))
        assert exact <= bound * (1.0 + 1e-9)
        assert exact >= 0.3 * bound
        assert math.exp(largest_log_odds(low, low)) == pytest.approx(largest(low), rel=1e-8)


def test_a_wider_class_needs_that_much_more_noise() -> None:
    chains = covered(switching([(0.03, 0.05)], np.inf, 20_000, 1)).chains
    for factor in (1.0, 1.25, 2.0):
        assert noise(widen(chains, factor)) == pytest.approx(factor * noise(chains), rel=0.02)
        assert noise(widen(widen(chains, factor), 1.5)) == pytest.approx(1.5 * factor * noise(chains), rel=0.03)


@given(
    low=st.floats(1e-12, 1.0, exclude_min=True, exclude_max=True),
    high=st.floats(1e-12, 1.0, exclude_min=True, exclude_max=True),
)
def test_an_interval_is_rounded_outward_to_two_digits(low: float, high: float) -> None:
    low, high = sorted((low, high))
    least, most = round_outward(low, high)
    assert 0.0 < 0.89 * low <= least <= low <= high <= most < 1.0
    for bound in (least, most if high <= 0.5 else 1.0 - most):
        assert bound == pytest.approx(float(f"{bound:.1e}"), rel=1e-9, abs=1e-15)


@pytest.mark.long
@given(odds=st.floats(1.0, 1e270), share=st.floats(1e-9, 0.999999))
def test_an_odds_ratio_is_rounded_up_to_two_digits(odds: float, share: float) -> None:
    """And its typical member is in the class."""
    chains = bounded_class(math.log(odds), np.array([[1.0 - share, share], [0.3, 0.7]]))
    assert chains.odds_ratio == float(f"{chains.odds_ratio:.1e}")
    assert chains.odds_ratio >= max(odds, odds_ratio(chains.transition)) * (1.0 - 1e-12)
    assert all(p == pytest.approx(q, rel=0.06) for p, q in zip(chains.transition[0], (1.0 - share, share), strict=True))


@pytest.mark.parametrize("states", [67, 199, 201, 202, 250, 255])
def test_the_typical_member_of_many_states_keeps_all_its_steps(states: int) -> None:
    """Rounded up one by one, equal probabilities would leave nothing to the largest."""
    chains = bounded_class(0.0, np.full((states, states), 1.0 / states))
    assert all(0.5 <= p * states <= 5.0 for row in chains.transition for p in row)


def test_rounding_of_many_like_states_raises_the_odds_ratio_little() -> None:
    """The largest of 64 took all that others were rounded by: the odds ratio became 13."""
    transition = np.random.default_rng(1).dirichlet(np.full(64, 1e5), size=64)
    chains = bounded_class(0.0, transition)
    assert odds_ratio(tuple(map(tuple, transition.tolist()))) < 1.05
    assert chains.odds_ratio <= 1.2
    assert np.allclose(chains.transition, transition, rtol=0.1)


@pytest.mark.long
def test_gaps_end_stretches_however_many_ticks_they_are() -> None:
    """Where stretches are cut must not depend on how many ticks without a state come first."""
    states = switching([(0.2, 0.3), (0.05, 0.1)], 700, 12_000, 3)
    later = np.concatenate([np.full(300, -1), states])
    assert covered(later).chains == covered(states).chains
