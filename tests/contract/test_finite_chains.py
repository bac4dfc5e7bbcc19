"""Known chains of a few states: the device's own accountant against enumeration and against the gateway's."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from fugu.contract.chains import BinaryChains, FiniteChains
from fugu.contract.errors import GuaranteeError
from fugu.contract.finite_leakage import finite_loss, stationary_distribution
from fugu.contract.guarantee import Guarantee, StreamOutputs, check_outputs, loss
from fugu.contract.leakage import Adversary
from fugu.contract.noise_table import NoiseTable
from fugu.contract.rounding import exp_up
from fugu.privacy.accountant import ChainAccountant
from fugu.privacy.chain_class import MarkovChain
from fugu.privacy.randomised_response import calibrate
from tests.support.oracle import histogram_density, symbol_density, worst_release_loss
from tests.support.proofs import check_printed

ADVERSARIES: tuple[Adversary, ...] = ("ignorant", "informed", "universal")
THREE = ((0.9, 0.1, 0.0), (0.05, 0.9, 0.05), (0.0, 0.2, 0.8))


def random_chain(seed: int, k: int) -> np.ndarray:
    generator = np.random.default_rng(seed)
    stay = generator.uniform(0.2, 0.9)
    return stay * np.eye(k) + (1 - stay) * generator.dirichlet(np.ones(k), size=k)


@pytest.mark.long
@pytest.mark.parametrize(
    ("k", "seed", "rate"),
    [(2, 0, 0.8), (3, 0, 0.01), (3, 0, 0.1), (4, 0, 0.1)],
)
def test_the_device_and_the_gateway_agree(k: int, seed: int, rate: float) -> None:
    """The device's number is never below the gateway's exact one, and hardly above it."""
    transition = random_chain(seed, k)
    exact = ChainAccountant((MarkovChain.stationary(transition),)).loss(rate).epsilon
    assert exact * (1 - 1e-9) <= finite_loss([transition.tolist()], rate, informed=False) <= exact * (1 + 1e-5)


@pytest.mark.long
def test_the_informed_learn_no_more_than_the_device_says() -> None:
    seed = 0
    transition = random_chain(20 + seed, 3)
    exact = ChainAccountant((MarkovChain.stationary(transition),)).loss(0.1, "informed").epsilon
    assert finite_loss([transition.tolist()], 0.1, informed=True) >= exact


@pytest.mark.long
@pytest.mark.parametrize("informed", [False, True])
def test_no_histogram_loses_more(informed: bool) -> None:
    seed = 0
    transition, n, scale = random_chain(40 + seed, 3), 5, 4.0
    distribution = np.array(stationary_distribution(transition.tolist()))
    worst = worst_release_loss(distribution, transition, n, histogram_density(scale, 0, n - 1, 3), informed=informed)
    assert worst.max() <= finite_loss([transition.tolist()], 2 / scale, informed=informed)


STICKY = tuple(tuple(8 / 9 if x == y else 1 / 18 for y in range(3)) for x in range(3))


@pytest.mark.long
def test_the_informed_are_never_given_more_noise_than_the_universal() -> None:
    """Nor less than the ignorant: to them the table of those loses less than epsilon, and the table of these more."""
    epsilon, universal = 1.0, 0.3475
    chains = FiniteChains(transitions=(STICKY,))
    most, least = (calibrate(chains, epsilon, adversary) for adversary in ("universal", "ignorant"))
    assert loss(chains, most.table, "informed").epsilon <= epsilon <= loss(chains, least.table, "informed").epsilon
    assert max(most.loss.epsilon, least.loss.epsilon) <= epsilon
    keep, kept = (found.table.weights()[0][0] / 2**32 for found in (most, least))
    assert universal < keep < universal + 1e-4
    assert keep <= kept
    if epsilon == 1.0:
        check_printed("a symbol is the state with probability {} by the universal bound", keep)


@pytest.mark.soak
@pytest.mark.parametrize("epsilon", [0.5, 4.0])
def test_a_table_for_the_informed_is_between_those_for_the_others(epsilon: float) -> None:
    """Share of symbols that are the state."""
    keep = {}
    for adversary in ADVERSARIES:
        found = calibrate(FiniteChains(transitions=(STICKY,)), epsilon, adversary)
        keep[adversary] = found.table.weights()[0][0] / 2**32
        assert found.loss.epsilon <= epsilon
    assert keep["ignorant"] >= keep["informed"] >= keep["universal"] - 1e-9


@pytest.mark.long
@pytest.mark.parametrize("rate", [0.02, 0.5])
def test_the_least_bound_of_the_informed_holds(rate: float) -> None:
    """Symbols of a few ticks, whatever is known: by enumeration, at rates where either bound is the least."""
    seed = 0
    transition = random_chain(60 + seed, 3)
    truth = np.exp(rate)
    emission = (np.ones((3, 3)) + (truth - 1.0) * np.eye(3)) / (truth + 2.0)
    distribution = np.array(stationary_distribution(transition.tolist()))
    worst = worst_release_loss(distribution, transition, 5, symbol_density(emission, 5), informed=True)
    ratio = exp_up(Fraction(rate))
    chains = FiniteChains(transitions=(tuple(map(tuple, transition.tolist())),))
    device = chains.ratio_loss(ratio, ratio, "informed").epsilon
    gateway = ChainAccountant(chains).loss(rate, "informed").epsilon
    assert worst.max() <= min(device, gateway)
    everyone = chains.ratio_loss(ratio, ratio, "universal").epsilon
    assert gateway * (1 - 1e-9) <= device <= everyone
    logs = np.log(transition)
    lange = rate + 4.0 * float(logs.max() - logs.min())  # Lange et al. (2025)
    assert worst.max() <= lange
    assert everyone <= lange, "a leakage is at most the logarithm of the odds ratio, which is at most twice their span"


WITH_IMPOSSIBLE_STEPS = [
    (THREE, 0.05),
    (((0.9, 0.1, 0.0), (0.05, 0.9, 0.05), (0.0, 0.1, 0.9)), 0.0475),
    (((0.3, 0.0, 0.7), (0.2, 0.8, 0.0), (0.0, 0.4, 0.6)), 0.25),
    (((0.0, 1.0, 0.0), (0.0, 0.0, 1.0), (0.4, 0.6, 0.0)), 0.1),
    (((0.8, 0.2, 0.0, 0.0), (0.2, 0.6, 0.2, 0.0), (0.0, 0.2, 0.6, 0.2), (0.0, 0.0, 0.2, 0.8)), 0.05),
]
"""Some known states exclude others, near the tick or at a distance; in the last, two states share no next one."""


@pytest.mark.long
@pytest.mark.parametrize(("transition", "rate"), [WITH_IMPOSSIBLE_STEPS[n] for n in (0, 3)])
def test_known_states_of_a_chain_with_an_impossible_step_tell_a_device_what_they_tell(
    transition: tuple[tuple[float, ...], ...], rate: float
) -> None:
    """At most 1 % more than the gateway has proven, and never below what any course of states reaches."""
    accountant = ChainAccountant((MarkovChain.stationary(transition),))
    ignorant, gateway = (accountant.loss(rate, adversary).epsilon for adversary in ("ignorant", "informed"))
    device = finite_loss([transition], rate, informed=True)
    assert gateway * (1 - 1e-9) <= device <= 1.01 * gateway
    assert gateway <= 1.2 * ignorant, "quilts say up to 4.8 times as much"
    emission = (np.ones((len(transition),) * 2) + (np.exp(rate) - 1.0) * np.eye(len(transition))) / (
        np.exp(rate) + len(transition) - 1.0
    )
    distribution = np.array(stationary_distribution([list(row) for row in transition]))
    worst = worst_release_loss(distribution, np.array(transition), 5, symbol_density(emission, 5), informed=True)
    assert worst.max() <= device


def test_a_class_is_as_bad_as_its_worst_chain() -> None:
    one, two = random_chain(1, 3).tolist(), random_chain(2, 3).tolist()
    both = finite_loss([one, two], 0.2, informed=False)
    assert both == max(finite_loss([one], 0.2, informed=False), finite_loss([two], 0.2, informed=False))


def test_steps_may_be_impossible() -> None:
    chains = FiniteChains(transitions=(THREE,))
    table = NoiseTable.randomised_response(3, 1_300_000_000)
    exact = ChainAccountant((MarkovChain.stationary(THREE),)).loss(float(np.log(1_694_967_296 / 1_300_000_000))).epsilon
    found = loss(chains, table, "ignorant")
    assert exact * (1 - 1e-9) <= found.epsilon <= exact * (1 + 1e-5)
    with pytest.raises(GuaranteeError, match="universal"):
        loss(chains, table, "universal")


@pytest.mark.long
def test_a_table_is_held_to_its_guarantee_from_both_sides() -> None:
    chains = FiniteChains(transitions=(tuple(map(tuple, random_chain(5, 3))),))
    table = NoiseTable.randomised_response(3, 1_000_000_000)
    achieved = loss(chains, table, "ignorant").epsilon
    check_outputs(chains, StreamOutputs(table), Guarantee(epsilon=achieved, adversary="ignorant"))
    with pytest.raises(GuaranteeError, match="above"):
        check_outputs(chains, StreamOutputs(table), Guarantee(epsilon=achieved * (1 - 1e-9), adversary="ignorant"))


def test_two_known_states_are_as_in_closed_form() -> None:
    q, r = 0.1, 0.4
    table = NoiseTable.binary(2**31 - 2**28, 2**31 - 2**28)
    closed = loss(BinaryChains(q=(q, q), r=(r, r)), table, "ignorant").epsilon
    known = loss(FiniteChains(transitions=(((1 - q, q), (r, 1 - r)),)), table, "ignorant").epsilon
    assert closed <= known <= closed * (1 + 1e-5)


@pytest.mark.parametrize(
    "transitions",
    [
        (),
        (((1.0, 0.0), (0.5, 0.5)),),
        (((0.5, 0.5), (0.0, 1.0)),),
        (((0.5, 0.6), (0.5, 0.5)),),
        (((1.5, -0.5), (0.5, 0.5)),),
        (((0.5, 0.5),),),
        (((0.5, 0.5), (0.5, 0.5)), THREE),
        (tuple(tuple(1 / 9 for _ in range(9)) for _ in range(9)),),
    ],
)
def test_what_is_no_class_of_known_chains(transitions: Any) -> None:
    with pytest.raises(ValidationError):
        FiniteChains(transitions=transitions)


@pytest.mark.long
def test_a_chain_that_forgets_nothing_is_refused() -> None:
    with pytest.raises(GuaranteeError, match="forgets"):
        finite_loss([[[0.0, 1.0], [1.0, 0.0]]], 0.1, informed=False)
