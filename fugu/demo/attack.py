"""What an attacker who uses the correlation gets, from ordinary randomised response and from ours."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from contract.guarantee import loss
from contract.noise_table import NoiseTable
from contract.policy import Policy
from fugu.demo.people import Person
from gateway.attack import success_bound
from gateway.chain import posterior_marginals
from gateway.chain.arrays import Ints
from gateway.privacy.randomised_response import calibrate_binary

__all__ = ["Attack", "Price", "attack", "price", "randomise"]


class Attack(NamedTuple):
    """Success probabilities of attackers on one recording.

    Attributes:
        majority: guessing the more frequent state without looking at anything.
        promised: what epsilon promises as the most that an attacker may reach.
        ordinary: reached against ordinary randomised response at the same epsilon.
        ordinary_epsilon: epsilon that ordinary randomised response really has on this class of chains.
        ours: reached against our table, by the same attacker.
        ceiling: the most that any attacker can reach against our symbols and windows together, proven.
    """

    majority: float
    promised: float
    ordinary: float
    ordinary_epsilon: float
    ours: float
    ceiling: float


class Price(NamedTuple):
    """What privacy costs at one epsilon.

    Attributes:
        rho0, rho1: flip probabilities for the person's class of chains.
        honest: how often an honest subscriber's best guess is right.
        honest_average: the same with the noise for the average chain alone, which would do if people were chains.
        ordinary_attack: how often an attacker's is, against ordinary randomised response.
    """

    epsilon: float
    rho0: float
    rho1: float
    honest: float
    honest_average: float
    ordinary_attack: float


def randomise(states: Ints, table: NoiseTable, generator: np.random.Generator) -> Ints:
    """Symbols for known states of a binary chain, for simulations only."""
    flip = np.array([table.threshold0, table.threshold1]) / 2**32
    return np.where(generator.random(len(states)) < flip[states], 1 - states, states)


def smoothed_accuracy(states: Ints, symbols: Ints, table: NoiseTable) -> float:
    """How often the most likely state, given all symbols and the person's own chain, is the true one."""
    initial, transition = _own_chain(states)
    emission = np.array(table.weights()) / 2.0**32
    posterior = posterior_marginals(symbols, initial, transition, emission)
    return float((posterior.argmax(axis=1) == states).mean())


def attack(person: Person, policy: Policy, states: Ints, symbols: Ints, generator: np.random.Generator) -> Attack:
    """Attack the symbols that the device published, and ordinary randomised response on the same states.

    The attacker knows the tables and this person's own transition rates, and uses every symbol (forward-backward). The
    ceiling also holds for one who uses the windows as well.
    """
    epsilon = person.epsilon
    assert policy.table is not None
    loss_of_both = policy.verify(epsilon)
    ordinary = _ordinary_table(epsilon)
    return Attack(
        majority=float(max(states.mean(), 1 - states.mean())),
        promised=math.exp(epsilon) / (1 + math.exp(epsilon)),
        ordinary=smoothed_accuracy(states, randomise(states, ordinary, generator), ordinary),
        ordinary_epsilon=loss(person.chains, ordinary, "informed").epsilon,
        ours=smoothed_accuracy(states, symbols, policy.table),
        ceiling=float(
            success_bound(np.bincount(states) / states.size, loss_of_both.epsilon_01, loss_of_both.epsilon_10)
        ),
    )


def price(person: Person, epsilon: float, generator: np.random.Generator) -> Price:
    """The honest subscriber's accuracy at an epsilon, on the whole recording."""
    ours = calibrate_binary(person.chains, epsilon)
    average = calibrate_binary(person.average, epsilon)

    def accuracy(table: NoiseTable) -> float:
        return smoothed_accuracy(person.states, randomise(person.states, table, generator), table)

    tables = (ours.table, average.table, _ordinary_table(epsilon))
    return Price(epsilon, ours.rho0, ours.rho1, *(accuracy(table) for table in tables))


def _own_chain(states: Ints) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    counts = np.zeros((2, 2))
    np.add.at(counts, (states[:-1], states[1:]), 1.0)
    transition = counts / counts.sum(axis=1, keepdims=True)
    q, r = transition[0, 1], transition[1, 0]
    return np.array([r, q]) / (q + r), transition


def _ordinary_table(epsilon: float) -> NoiseTable:
    """Ordinary randomised response, rounded to the nearest threshold."""
    threshold = round(2**32 / (1 + math.exp(epsilon)))
    return NoiseTable.binary(threshold, threshold)
