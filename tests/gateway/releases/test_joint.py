"""A reader of several audiences is bound by what they tell it together, and a sum of their epsilons is no bound."""

from __future__ import annotations

import math

import numpy as np

from fugu.contract.chains import BinaryChains
from gateway.releases.allowance import allowance, joint_loss
from gateway.releases.charges import nats
from gateway.releases.config import joint_charge


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
