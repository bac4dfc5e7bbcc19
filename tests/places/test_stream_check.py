"""Claims of a measured stream hold for every table that its device accepts, and for every start named."""

from __future__ import annotations

import math
from array import array
from itertools import product

import numpy as np
import pytest

from fugu.contract.errors import GuaranteeError
from fugu.contract.measure_policy import StreamLoss, StreamStart
from fugu.contract.measurement import Measurement, check_noise
from fugu.contract.noise_table import SCALE, NoiseTable
from fugu.places.composition import accepted_loss, measured_loss, verify_stream
from tests.support.measured import measure_policy

EPSILON = 0.5
FIRST_TWO = 0b011


def measurement(initial: int, steps: tuple[int, ...]) -> Measurement:
    """Three states, of which a policy joins the first two."""
    return Measurement(((0,), (1,), (2,)), (0b010, 0b001, 0), steps, initial, EPSILON, 1)


@pytest.mark.long
def test_a_start_in_states_that_the_policy_takes_for_impossible_has_no_epsilon() -> None:
    """A table that is accepted for states 0 and 1 tells state 2 from one of them by twice what a pair counts for."""
    promise = measurement(FIRST_TWO, (FIRST_TWO,) * 3)
    hits = [0.1, 0.1 * math.exp(0.999 * EPSILON), 0.1 * math.exp(1.998 * EPSILON)]
    noise = NoiseTable(tuple(array("I", [int(p * SCALE)]) for p in hits), ((0,), (2,)))
    check_noise(promise, noise, FIRST_TWO)
    real = math.log(noise.row_weights(2)[0] / noise.row_weights(0)[0])
    assert real > 1.9 * EPSILON > accepted_loss(promise).max()
    steps = np.array([[0.5, 0.5, 0.0]] * 3)  # nothing else speaks about tick 0
    with pytest.raises(GuaranteeError, match="any start may be state 2, which is not possible at tick 0"):
        measured_loss(promise, steps, None, "any", "ignorant")
    assert measured_loss(promise, steps, [0.5, 0.5, 0.0], "given", "ignorant").epsilon < 1.01 * EPSILON
    assert measured_loss(promise, steps, None, "stationary", "ignorant").epsilon < 1.01 * EPSILON
    assert measured_loss(measurement(0b111, (0b111,) * 3), steps, None, "any", "ignorant").epsilon > EPSILON


def test_a_chain_that_has_run_for_ever_begins_where_the_policy_says() -> None:
    """With every state possible in the long run, a policy that begins with two of them has no stationary stream."""
    promise, steps = measurement(FIRST_TWO, (0b111,) * 3), np.full((3, 3), 1.0 / 3.0)
    with pytest.raises(GuaranteeError, match="if the chain has run for ever may be state 2, which is not possible"):
        measured_loss(promise, steps, None, "stationary", "ignorant")


@pytest.mark.long
@pytest.mark.parametrize("start", ["any", "stationary"])
def test_a_policy_of_one_place_is_not_verified_for_others(start: StreamStart) -> None:
    policy = measure_policy(side=2, start=0, stream_loss=StreamLoss(epsilon=1e3, adversary="ignorant", start=start))
    with pytest.raises(GuaranteeError, match=r"is not verified: .* may be state 1, which is not possible at tick 0"):
        verify_stream(policy)
    everywhere = measure_policy(side=2, stream_loss=StreamLoss(epsilon=1e3, adversary="ignorant", start=start))
    assert verify_stream(everywhere).epsilon <= 1e3


@pytest.mark.parametrize("turn", [0.1, 0.5, 0.8])
def test_what_is_lost_about_what_pairs_show_is_bounded(turn: float) -> None:
    """A chain of order 2 over two states that goes back where it came from: enumerated, never above the bound."""
    pairs = [(a, b) for a in range(2) for b in range(2)]
    transition = np.zeros((4, 4))
    for at, (a, b) in enumerate(pairs):
        transition[at, pairs.index((b, 1 - b))] = turn if a == b else 1.0 - turn
        transition[at, pairs.index((b, b))] = 1.0 - transition[at, pairs.index((b, 1 - b))]
    shows = tuple(b for _, b in pairs)
    steps = tuple(sum(1 << other for other in np.flatnonzero(row).tolist()) for row in transition)
    promise = Measurement(((0,), (1,)), (0b10, 0b01), steps, 0b1111, EPSILON, 1, 2, shows)
    loss = measured_loss(promise, transition, None, "stationary", "ignorant")
    distribution = np.linalg.matrix_power(transition, 4096)[0]
    odds = math.exp(EPSILON)
    rows = np.array([[odds, 1.0], [1.0, odds]])[list(shows)] / (1.0 + odds)
    length, worst = 7, 0.0
    for middle in range(length):
        for outputs in product(range(2), repeat=length):
            forward = distribution * rows[:, outputs[0]]
            for output in outputs[1 : middle + 1]:
                forward = (forward @ transition) * rows[:, output]
            backward = np.ones(4)
            for output in reversed(outputs[middle + 1 :]):
                backward = transition @ (rows[:, output] * backward)
            joint, prior = np.bincount(shows, forward * backward), np.bincount(shows, distribution)
            worst = max(worst, abs(math.log(joint[0] / prior[0] * prior[1] / joint[1])))
    assert EPSILON < worst <= loss.epsilon
    with pytest.raises(GuaranteeError, match="ignorant adversary only"):
        measured_loss(promise, transition, None, "stationary", "informed")
    changing = Measurement(((0,), (1,)), (0b10, 0b01), steps, 0b1111, EPSILON, 1, 2, shows, 3, ((1, steps),))
    with pytest.raises(GuaranteeError, match="change with time"):
        measured_loss(changing, transition, None, "stationary", "ignorant")
