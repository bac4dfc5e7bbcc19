"""Attacks on a real night: known figures, on both sides of what epsilon allows."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fugu.attack import Knowledge, attack, mean_transitions, odds_change, release_symbols
from fugu.cli.demo.evaluation import RECORDINGS
from fugu.contract.chains import BinaryChains
from fugu.contract.noise_table import NoiseTable
from fugu.planning.attacked import class_of_halves, two_states
from fugu.planning.readings import read_readings
from fugu.privacy.randomised_response import calibrate

EPSILON = 1.0
ORDINARY = NoiseTable.binary(*[round(2**32 / (1 + math.e))] * 2)


def night(name, baseline):
    readings = read_readings(RECORDINGS / f"hr_sleep_{name}.csv.gz", "value")
    return two_states(readings, baseline, None)[1], readings.segments


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "baseline", "beyond", "furthest"),
    [("N10", None, 0.78, 107), ("N10", 300, 0.61, 25), ("N07", 300, 0.54, 6), ("N05", 300, 0.54, 8)],
)
def test_ordinary_randomised_response_moves_the_odds_far_beyond_epsilon_and_ours_never(
    name, baseline, beyond, furthest
):
    states, segments = night(name, baseline)
    knowledge = Knowledge(mean_transitions(states, segments, 2), segments)
    ordinary = odds_change(release_symbols(states, ORDINARY, np.random.default_rng(1)), knowledge)[states >= 0]
    assert (ordinary > EPSILON).mean() == pytest.approx(beyond, abs=0.02)
    assert math.exp(ordinary.max()) == pytest.approx(furthest, rel=0.05)
    table = calibrate(class_of_halves(states, segments), EPSILON, "universal").table
    ours = odds_change(release_symbols(states, table, np.random.default_rng(2)), knowledge)
    assert ours.max() < EPSILON
    assert ours.max() > 0.1


@pytest.mark.long
def test_learners_find_slow_regimes_above_the_nights_mean_and_none_above_the_running_mean():
    """The class of the mean chain of the night and its halves, informed adversary: .731 is what epsilon 1 allows."""
    found = {}
    for baseline in (None, 300):
        states, segments = night("N10", baseline)
        table = calibrate(class_of_halves(states, segments), EPSILON).table
        outputs = release_symbols(states, table, np.random.default_rng(1))
        found[baseline] = {one.attacker: one for one in attack(states, segments, outputs, EPSILON)}
    assert max(one.success for one in found[None].values()) > 0.74
    assert found[None]["learned chain, Viterbi"].success > 0.68
    assert found[None]["forward-backward"].success < 0.6
    assert all(one.high < one.ceiling for one in found[300].values())
    assert max(one.success for one in found[300].values()) < 0.63


def test_the_class_of_halves_holds_the_rates_of_both_and_of_the_whole():
    states = np.array([0, 0, 1, 1, 0, 1, 1, 1, 0, 0, 0, 1, 1, 0, 0, 1], dtype=np.int64)
    found = class_of_halves(states, np.zeros(16, dtype=np.int64))
    assert found == BinaryChains(q=(0.4, 2 / 3), r=(0.25, 0.5))
