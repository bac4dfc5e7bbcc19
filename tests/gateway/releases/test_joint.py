"""A reader of several audiences is bound by what they tell it together, and a sum of their epsilons is no bound."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fugu.contract.chains import BinaryChains
from fugu.contract.noise_table import SCALE, NoiseTable
from gateway.releases.allowance import allowance, joint_loss, smallest_scale
from gateway.releases.charges import nats
from gateway.releases.config import joint_charge
from tests.support.sanitised_counts import stationary, worst_loss

TABLE = NoiseTable.binary(SCALE // 100, SCALE // 100)


def test_two_audiences_are_within_the_joint_bound_and_not_within_the_sum_of_their_epsilons() -> None:
    """Every output of both audiences' counts of all ticks of a sticky chain, added up over all paths."""
    q, r, n, epsilon = 0.0036, 0.012, 9, 0.1
    chains = BinaryChains(q=(q, q), r=(r, r))
    allowed = allowance(chains, epsilon, "ignorant")
    transition = np.array([[1 - q, q], [r, 1 - r]])
    distribution, hit = stationary(transition), np.array([0.01, 0.99])
    scale = float(smallest_scale([TABLE], 1, allowed))
    eight = joint_loss(chains, joint_charge([allowed] * 8, 0), "ignorant")
    assert eight > 8 * epsilon  # so a limit of .8 would be broken although eight times .1 is .8
    assert eight == pytest.approx(0.8646, abs=2e-4)
    worst = worst_loss(distribution, transition, hit, n, [scale], informed=False)
    two = worst_loss(distribution, transition, hit, 4, [scale, scale], informed=False)
    assert worst <= epsilon
    assert two <= joint_loss(chains, joint_charge([allowed] * 2, 0), "ignorant")


def test_the_joint_bound_is_reached_by_long_windows() -> None:
    """Far outside the range a Laplace count's density is e^(-x/s) a tick: the joint bound is attained in the limit."""
    q, r, n = 0.1, 0.4, 60
    chains = BinaryChains(q=(q, q), r=(r, r))
    charge = joint_charge([allowance(chains, 0.5, "ignorant")] * 2, 0)
    transition, real = np.array([[1 - q, q], [r, 1 - r]]), 0.0
    for factor in (math.exp(nats(charge)), math.exp(-nats(charge))):
        right = np.ones(2)  # a tick's state 1 weighs so much more or less, over both audiences' releases
        for _ in range(n):
            right = transition @ (np.array([1.0, factor]) * right)
            right /= right.max()
        real = max(real, 2 * abs(math.log(right[0] / right[1])) + nats(charge))  # two states: both sides are alike
    bound = joint_loss(chains, charge, "ignorant")
    assert bound * (1 - 1e-9) <= real <= bound


def test_what_a_device_releases_itself_counts_once() -> None:
    assert joint_charge([], 5) == 0
    assert joint_charge([10], 4) == 10
    assert joint_charge([10, 12], 4) == 6 + 8 + 4
    assert joint_charge([3, 3], 4) == 0  # the gateway may tell neither anything
    assert joint_charge([4, 3], 4) == 4  # it may tell the first what the device counted
    assert joint_charge([4, 9], 4) == 9
