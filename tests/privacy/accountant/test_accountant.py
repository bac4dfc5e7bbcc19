"""The chain accountant against the enumeration of all paths, published numbers, and itself backward."""

from __future__ import annotations

from itertools import count, product

import numpy as np
import pytest

from fugu.contract.chains import BinaryChains, BoundedChains
from fugu.contract.losses import Adversary
from fugu.privacy.accountant import ChainAccountant
from fugu.privacy.accountant.accountant import largest_rate
from fugu.privacy.accountant.finite import KnownChains
from fugu.privacy.accountant.walks import any_start_bound, endless_bound
from fugu.privacy.chain_class import ChainClassError, MarkovChain
from tests.support.mqm_cases import CHAINS, GOLDEN
from tests.support.oracle import count_density, together, worst_loss, worst_release_loss

THETA = {name: CHAINS[name].transition for name in ("theta1", "theta2")}
EPSILONS = (0.2, 1.0, 5.0)


def stationary(transition: np.ndarray) -> ChainAccountant:
    return ChainAccountant((MarkovChain.stationary(transition),))


def random_chain(seed: int, k: int, *, sticky: float = 0.0) -> np.ndarray:
    generator = np.random.default_rng(seed)
    return sticky * np.eye(k) + (1 - sticky) * generator.dirichlet(np.ones(k), size=k)


@pytest.mark.parametrize("seed", [1, 9])
def test_no_endless_stream_of_three_states_tells_the_informed_more(seed: int) -> None:
    """Chains whose five ticks tell the informed more than an endless stream tells the ignorant."""
    generator = np.random.default_rng(seed)
    transition = 0.97 * (0.5 * np.eye(3) + 0.5 * generator.dirichlet(np.full(3, 0.4), 3)) + 0.01
    table = generator.dirichlet(np.ones(2), 3) * 0.8 + 0.1
    rate = np.log(table[:, None] / table).max(axis=2)
    chain = MarkovChain.stationary(transition)
    truth = worst_loss(np.asarray(chain.initial), [transition] * 4, table, informed=True).max()
    losses = {
        adversary: ChainAccountant((chain,)).loss(rate, adversary).epsilon for adversary in ("ignorant", "informed")
    }
    assert losses["ignorant"] < truth <= losses["informed"]


# Published numbers


@pytest.mark.parametrize("name", THETA)
@pytest.mark.parametrize("epsilon", EPSILONS)
def test_endless_scale(name: str, epsilon: float) -> None:
    expected = GOLDEN["C_coupling"][f"{name}_stationary|eps={epsilon}"]
    accountant = stationary(THETA[name])
    assert 1 / accountant.allowance(epsilon) == pytest.approx(expected["scale_coupling_endless"], rel=1e-9)


@pytest.mark.long
@pytest.mark.parametrize(("name", "epsilon"), [("theta1", 5.0), ("theta2", 0.2), ("theta2", 1.0)])
def test_scale_of_a_hundred_ticks_from_a_given_start(name: str, epsilon: float) -> None:
    key = {"theta1": "q10", "theta2": "q.9.1"}[name]
    expected = GOLDEN["C_coupling"][f"{name}_{key}|T=100|eps={epsilon}"]["scale_coupling"]
    accountant = ChainAccountant((CHAINS[name],))
    assert 1 / accountant.allowance(epsilon, length=100) == pytest.approx(expected, rel=1e-9)


def test_overlapping_releases_of_unequal_scale() -> None:
    expected = GOLDEN["5_composition"]["heterogeneous_T60"]
    rates = np.zeros(60)
    for first, last, scale in ((1, 20, 12.839964231247), (21, 40, 10), (41, 60, 15), (11, 50, 50)):
        rates[first - 1 : last] += 1 / scale
    schedule = stationary(THETA["theta1"]).schedule_loss(rates)
    assert schedule.epsilon == pytest.approx(expected["coupling_max"], rel=1e-9)
    for tick, loss in expected["coupling"].items():
        assert schedule.by_tick[int(tick) - 1] == pytest.approx(loss, rel=1e-9)


def test_every_golden_rate_of_endless_streams() -> None:
    checked = 0
    for key, numbers in GOLDEN["5_composition"]["endless_stream"].items():
        name, _, what = key.partition("|")
        rate = float(what[7:]) if what.startswith("rate c=") else 1 / numbers["sigma_window"]
        expected = numbers.get("coupling", numbers.get("coupling_accountant"))
        assert stationary(THETA[name]).loss(rate).epsilon == pytest.approx(expected, rel=1e-9), key
        checked += 1
    assert checked >= 18


SYNTHETIC = sorted(GOLDEN["9_synthetic_coupling_[allq_numeric,stationary]"])


@pytest.mark.long
@pytest.mark.parametrize("key", SYNTHETIC[::3])
def test_synthetic_classes(key: str) -> None:
    alpha, epsilon = map(float, key.split("|"))
    searched, expected = GOLDEN["9_synthetic_coupling_[allq_numeric,stationary]"][key]
    interval = ChainAccountant(BinaryChains(q=(alpha, 1 - alpha), r=(alpha, 1 - alpha)))
    assert 1 / interval.allowance(epsilon) == pytest.approx(expected, rel=1e-9)
    any_start = ChainAccountant((MarkovChain(np.array([[1 - alpha, alpha], [alpha, 1 - alpha]]), None),))
    assert 1 / any_start.allowance(epsilon, length=100) >= searched * (1 - 1e-9)


# Enumeration


@pytest.mark.parametrize("seed", range(12))
def test_a_binary_count_is_exact(seed: int) -> None:
    """Positively correlated: the bound is attained by an output far outside the range."""
    generator = np.random.default_rng(seed)
    q, r = generator.uniform(0.02, 0.48, 2)
    n, scale = int(generator.integers(3, 9)), float(generator.uniform(0.3, 4.0))
    transition, initial = np.array([[1 - q, q], [r, 1 - r]]), generator.dirichlet(np.ones(2))
    worst = worst_release_loss(initial, transition, n, count_density(scale, 0, n - 1))
    loss = ChainAccountant((MarkovChain(transition, initial),)).schedule_loss(np.full(n, 1 / scale))
    assert loss.bound == "exact"
    assert loss.by_tick == pytest.approx(worst.max(axis=(1, 2)), rel=1e-9)


@pytest.mark.parametrize("seed", range(4))
def test_no_member_of_an_interval_class_loses_more(seed: int) -> None:
    """On both sides of q + r = 1, where alone a leakage needs the image of the lower end."""
    generator = np.random.default_rng(300 + seed)
    q, r = np.sort(generator.uniform(0.05, 0.95, 2)), np.sort(generator.uniform(0.05, 0.95, 2))
    chains = BinaryChains(q=(q[0], q[1]), r=(r[0], r[1]))
    rates = generator.uniform(0.1, 1.5, 6)
    release = together(*(count_density(1 / rates[tick], tick, tick) for tick in (0, 1)))
    rates[2:] = 0.0
    for q1, r1 in product((*q, q.mean()), (*r, r.mean())):
        transition, distribution = np.array([[1 - q1, q1], [r1, 1 - r1]]), np.array([r1, q1]) / (q1 + r1)
        worst = worst_release_loss(distribution, transition, 6, release)
        schedule = ChainAccountant(chains).schedule_loss(rates)
        assert np.all(worst.max(axis=(1, 2)) <= schedule.by_tick + 1e-12)


def test_a_state_that_cannot_occur_is_no_secret() -> None:
    """Started in state 0, the first tick has nothing to hide, whatever is released."""
    chain = CHAINS["theta1"]
    loss = ChainAccountant((chain,)).schedule_loss(np.full(5, 0.5))
    assert loss.by_tick[0] == 0.0
    assert loss.by_tick[1] > 0.5


# Backward, and from both sides


@pytest.mark.long
@pytest.mark.parametrize("adversary", ["ignorant", "informed", "universal"])
def test_the_allowance_is_the_inverse(adversary: str) -> None:
    k = 2
    accountant = stationary(random_chain(k, k, sticky=0.6))
    allowance = accountant.allowance(0.7, adversary)
    assert accountant.loss(allowance, adversary).epsilon == pytest.approx(0.7, rel=1e-9)
    assert accountant.loss(allowance, adversary).epsilon <= 0.7
    assert accountant.loss(allowance * (1 + 1e-6), adversary).epsilon > 0.7


def test_the_allowance_of_many_states_is_safe_and_near() -> None:
    accountant = stationary(random_chain(0, 14, sticky=0.5))
    allowance = accountant.allowance(1.0)
    assert 0.995 < accountant.loss(allowance).epsilon <= 1.0
    assert accountant.loss(allowance * 1.01).epsilon > 1.0


@pytest.mark.parametrize("k", [2, 3, 4])
def test_an_endless_stream_is_the_limit_of_long_ones(k: int) -> None:
    accountant = stationary(random_chain(k + 9, k, sticky=0.5))
    assert accountant.loss(0.2, length=300).epsilon == pytest.approx(accountant.loss(0.2).epsilon, rel=1e-9)


@pytest.mark.parametrize("start", [np.array([0.97, 0.02, 0.01]), None])
def test_an_endless_stream_from_any_start_is_covered(start: np.ndarray | None) -> None:
    transition = random_chain(4, 3, sticky=0.6)
    accountant = ChainAccountant((MarkovChain(transition, start),))
    endless_loss = accountant.loss(0.2).epsilon
    assert max(accountant.loss(0.2, length=length).epsilon for length in (2, 3, 5, 9, 30, 200)) <= endless_loss
    assert endless_loss >= stationary(transition).loss(0.2).epsilon * (1 - 1e-9)


def test_a_class_is_as_bad_as_its_worst_chain() -> None:
    first, two = CHAINS["theta1_stationary"], CHAINS["theta2_stationary"]
    both = ChainAccountant((first, two)).loss(0.3).epsilon
    assert both == max(ChainAccountant((first,)).loss(0.3).epsilon, ChainAccountant((two,)).loss(0.3).epsilon)


def test_a_bounded_class_has_the_universal_bound() -> None:
    transition = random_chain(2, 3, sticky=0.3)
    odds = max(
        transition[a, c] * transition[b, d] / (transition[a, d] * transition[b, c])
        for a, b, c, d in product(range(3), repeat=4)
    )
    bounded = ChainAccountant(BoundedChains(states=3, odds_ratio=odds))
    assert bounded.loss(0.2).epsilon == pytest.approx(stationary(transition).loss(0.2, "universal").epsilon, rel=1e-9)


@pytest.mark.parametrize("rate", [-0.1, float("nan"), float("inf"), [0.1, 0.2]])
def test_a_rate_must_be_one(rate: object) -> None:
    with pytest.raises(ChainClassError, match="rate"):
        stationary(THETA["theta1"]).loss(rate)


@pytest.mark.long
def test_a_cycle_tells_everything_and_is_given_no_bound() -> None:
    """Above twelve states the hockey-stick bound once began from a large number and passed it off as proven."""
    states = 14
    cycle = MarkovChain.stationary(np.roll(np.eye(states), 1, axis=1))
    accountant = ChainAccountant((cycle,))
    assert accountant.loss(0.1).epsilon == np.inf
    with pytest.raises(ChainClassError, match="does not forget"):
        accountant.allowance(1.0)


def test_steps_that_cannot_happen_leave_the_universal_adversary_without_a_bound() -> None:
    chain = MarkovChain.stationary([[0.5, 0.5, 0.0], [0.25, 0.5, 0.25], [0.0, 0.5, 0.5]])
    accountant = ChainAccountant((chain,))
    assert accountant.loss(0.1, "universal").epsilon == np.inf
    assert accountant.loss(0.1, "universal", length=5).epsilon == pytest.approx(0.5)
    with pytest.raises(ChainClassError, match="does not forget"):
        accountant.allowance(1.0, "universal")


def test_bounded_chains_of_many_states_have_an_allowance() -> None:
    accountant = ChainAccountant(BoundedChains(states=40, odds_ratio=9.0))
    rate = accountant.allowance(1.0)
    assert accountant.loss(rate).epsilon <= 1.0 < accountant.loss(rate * 1.01).epsilon


@pytest.mark.parametrize("adversary", ["ignorant", "informed"])
def test_an_endless_stream_loses_as_much_backwards_and_no_less_from_another_start(adversary: Adversary) -> None:
    """The past of a chain that goes round is the future of its reversal, and another past than future."""
    forward = np.array([[0.9, 0.09, 0.01], [0.02, 0.9, 0.08], [0.3, 0.01, 0.69]])
    rate = np.array([[0.0, 0.5, 0.1], [0.5, 0.0, 0.3], [0.1, 0.3, 0.0]])
    chain = MarkovChain.stationary(forward)
    backward = (chain.stationary_distribution[:, None] * forward).T
    reversal = MarkovChain.stationary(backward / backward.sum(axis=1, keepdims=True))
    epsilon, other = (KnownChains((each,)).endless_loss(rate, adversary)[0] for each in (chain, reversal))
    assert epsilon == pytest.approx(other, rel=1e-6)
    for each in (chain, reversal):
        started = MarkovChain(each.transition, np.array([0.2, 0.3, 0.5]))
        assert KnownChains((started,)).endless_loss(rate, adversary)[0] >= epsilon * (1.0 - 1e-9)
    bounds = [endless_bound(each, rate, adversary) for each in (chain, reversal)]
    assert bounds[0] == pytest.approx(bounds[1], rel=1e-6)
    any_start = any_start_bound(chain, rate, adversary)
    assert any_start >= bounds[0] * (1.0 - 1e-9)


@pytest.mark.parametrize("power", [0.3, 1.0, 2.0, 9.0])
@pytest.mark.parametrize("edge", [1.0001e-3, 0.02, 0.999])
def test_the_largest_rate_is_found_also_near_the_ends_and_where_a_loss_jumps(power: float, edge: float) -> None:
    """A first search went below the least rate on its way, and found none."""

    def smooth(rate: float) -> float:
        return float((rate / edge) ** power - 1.0)

    def jump(rate: float) -> float:
        return -0.5 if rate <= edge else 1e6

    for excess in (smooth, jump):
        rate = largest_rate(excess, 1.0, 1.0, 1e-3, 1e-9)
        assert excess(rate) <= 0.0
        assert rate == pytest.approx(edge, rel=1e-8)
    assert largest_rate(smooth, 1.0, 1e-4, 1e-5, 1e-9) == 1e-4, "all of these rates are allowed"
    assert largest_rate(smooth, 1.0, 5.0, 2.0, 1e-9) == 0.0, "none of these rates is"


@pytest.mark.parametrize("edge", [0.3, 0.02])
@pytest.mark.parametrize("epsilon", [1.0, 1e-160, 1e-300])
@pytest.mark.parametrize("least_loss", [0.0, 0.2])
def test_the_search_for_a_rate_ends_at_losses_of_0_and_at_tiny_promises(
    edge: float, epsilon: float, least_loss: float
) -> None:
    """A loss of 0 was a traceback, and the product of two tiny rates was 0, so that the search never ended."""
    calls = count(1)

    def jump(rate: float) -> float:
        assert next(calls) < 500, "the search goes on"
        return (least_loss if rate <= edge * epsilon else 5.0) * epsilon - epsilon

    rate = largest_rate(jump, epsilon, epsilon, 1e-9 * epsilon, 1e-9)
    assert jump(rate) <= 0.0
    assert rate / epsilon == pytest.approx(edge, rel=1e-8)
