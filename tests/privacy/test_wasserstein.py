"""The Wasserstein mechanism: the papers' examples, distances by another definition, and real losses."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pytest
from scipy.optimize import linprog

from fugu.privacy.chain_class import ChainClassError, MarkovChain
from fugu.privacy.wasserstein import infinity_wasserstein, integer_weights, wasserstein_count, wasserstein_states
from tests.support.mqm_cases import CHAINS, GOLDEN, SHORT
from tests.support.oracle import paths_of
from tests.support.released import chain_losses, losses

INFECTED = [Fraction(p) for p in ("0.1", "0.15", "0.5", "0.15", "0.1")]
CLIQUE = [(people, INFECTED[sum(people)] / [1, 4, 6, 4, 1][sum(people)]) for people in product((0, 1), repeat=4)]


@pytest.mark.long
@pytest.mark.parametrize("name", CHAINS)
def test_golden_distances(name: str) -> None:
    assert wasserstein_count((CHAINS[name],), 100).distance == GOLDEN["3_wasserstein_W"][name]


@pytest.mark.parametrize("key", GOLDEN["3_wasserstein"])
def test_golden_scales(key: str) -> None:
    name, ticks, eps = key.split("|")
    if ticks != "T=100":  # those of 100 ticks are tested above, once for every epsilon
        distance = wasserstein_count((CHAINS[SHORT[name]],), int(ticks[2:])).distance
        assert float(distance) / float(eps[4:]) == pytest.approx(GOLDEN["3_wasserstein"][key]["W_over_eps"], rel=1e-12)


@pytest.mark.long
@pytest.mark.parametrize("length", [20, 50])
def test_the_distance_does_not_grow_with_the_window(length: int) -> None:
    for name in ("theta1", "theta2"):
        assert wasserstein_count((CHAINS[name],), length).distance == GOLDEN["3_W_by_T"][name][str(length)]


def distributions(
    joint: list[tuple[tuple[int, ...], Fraction | float]], secret: int, answer: Callable[[Any], int]
) -> Fraction:
    """The distance of an answer's distributions given 0 and given 1 at one place of an outcome."""
    return infinity_wasserstein(*([(answer(at), p) for at, p in joint if at[secret] == x] for x in (0, 1)))


def test_the_flu_clique() -> None:
    """Four people, of whom 0 to 4 are infected with these probabilities, any of them alike."""
    assert max(distributions(CLIQUE, person, sum) for person in range(4)) == GOLDEN["3_flu"]["W"] == 2
    assert max(distributions([(people, float(p)) for people, p in CLIQUE], person, sum) for person in range(4)) == 2
    people, weight = np.array([p for p, _ in CLIQUE]), np.array([float(w) for _, w in CLIQUE])
    for eps, least in GOLDEN["3_flu"]["exact_laplace_scale"].items():
        assert losses(people, weight, [(range(1, 5), (0, 1), 2 / float(eps))]).max() <= float(eps)
        assert losses(people, weight, [(range(1, 5), (0, 1), least)]).max() == pytest.approx(float(eps), rel=1e-9)


def smallest_move(distribution: dict[int, float], other: dict[int, float]) -> int:
    """The smallest distance within which all mass can be moved: a linear programme for each one."""
    for distance in range(100):
        moves = [(u, v) for u in distribution for v in other if abs(u - v) <= distance]
        rows = [[float(u == at) for u, _ in moves] for at in distribution] + [
            [float(v == at) for _, v in moves] for at in other
        ]
        demand = [*distribution.values(), *other.values()]
        if moves and linprog(np.zeros(len(moves)), A_eq=rows, b_eq=demand, method="highs").status == 0:
            return distance
    raise AssertionError


@pytest.mark.parametrize("seed", range(10))
def test_the_quantile_coupling_moves_mass_no_further_than_needed(seed: int) -> None:
    rng = np.random.default_rng(seed)
    distributions = []
    for _ in range(2):
        values = rng.choice(12, size=4, replace=False)
        distributions.append(
            dict(zip(values.tolist(), (rng.multinomial(16, np.full(4, 0.25)) / 16).tolist(), strict=True))
        )
    distributions = [
        {value: weight for value, weight in distribution.items() if weight} for distribution in distributions
    ]
    assert infinity_wasserstein(distributions[0].items(), distributions[1].items()) == smallest_move(*distributions)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(6))
def test_the_distribution_of_a_window_is_that_of_its_paths(seed: int) -> None:
    rng = np.random.default_rng(seed)
    k, length = (2, 8) if seed % 2 else (3, 6)
    transition = np.array([row / row.sum() for row in rng.integers(1, 9, (k, k)).astype(float)])
    chain = MarkovChain(transition, np.full(k, 1 / k))
    adds = (0, 1, 3)[:k]
    paths, weight = paths_of(np.full(k, 1 / k), [transition] * (length - 1))
    sums = np.array(adds)[paths].sum(axis=1)
    worst = 0
    for node, a, b in product(range(length), range(k), range(k)):
        distributions = []
        for state in (a, b):
            at = paths[:, node] == state
            distributions.append(
                {int(s): float(weight[at & (sums == s)].sum() / weight[at].sum()) for s in np.unique(sums[at])}
            )
        worst = max(worst, int(infinity_wasserstein(distributions[0].items(), distributions[1].items())))
    assert wasserstein_count((chain,), length, adds).distance == worst


def test_two_releases_can_give_away_everything() -> None:
    """It does not compose, so that a ledger must refuse a second release. Each answer hides the secret perfectly,
    without any noise, and the two together tell it."""
    joint = [((secret, coin, secret ^ coin), Fraction(1, 4)) for secret, coin in product((0, 1), repeat=2)]
    assert distributions(joint, 0, lambda at: at[1]) == 0
    assert distributions(joint, 0, lambda at: at[2]) == 0
    assert distributions(joint, 0, lambda at: at[1] ^ at[2]) == 1


def test_independent_readings_need_no_more_than_one() -> None:
    """The tails of the two distributions are exactly alike, one apart: a rounded comparison would find 2."""
    for p in (0.5, 0.3, 0.1):
        chain = MarkovChain.stationary([[1 - p, p], [1 - p, p]])
        assert wasserstein_count((chain,), 25).distance == 1


def test_other_weights_and_classes() -> None:
    chain = CHAINS["theta1_stationary"]
    assert wasserstein_count((chain,), 12, (7, 5)).distance == 2 * wasserstein_count((chain,), 12, (1, 0)).distance
    both = wasserstein_count((CHAINS["theta2"], CHAINS["theta1"]), 12)
    assert both.distance == max(wasserstein_count((CHAINS[name],), 12).distance for name in ("theta1", "theta2"))


def test_a_state_that_cannot_be_is_no_secret() -> None:
    certain = MarkovChain(np.array([[1.0, 0.0], [0.0, 1.0]]), np.array([1.0, 0.0]))
    assert wasserstein_count((certain,), 9).distance == 0
    frozen = MarkovChain(np.eye(2), np.array([0.5, 0.5]))
    assert wasserstein_count((frozen,), 9).distance == 9


def test_questions_without_an_answer() -> None:
    chain = CHAINS["theta1"]
    for chains, length, weights in (
        ((), 5, (0, 1)),
        ((chain,), 0, (0, 1)),
        ((chain,), 5, (0, 1, 2)),
        ((MarkovChain(chain.transition, None),), 5, (0, 1)),
        ((chain,), 20_000, (0, 1)),
    ):
        with pytest.raises(ChainClassError):
            wasserstein_count(chains, length, weights)


# Which states are counted


MIDDLE = [
    [[0.94, 0.05, 0.01], [0.475, 0.05, 0.475], [0.01, 0.05, 0.94]],
    [[0.99, 0.0, 0.01], [0.5, 0.0, 0.5], [0.01, 0.0, 0.99]],
]


@pytest.mark.parametrize("rows", MIDDLE)
def test_noise_for_a_count_of_one_state_is_none_for_a_count_of_another(rows: list[list[float]]) -> None:
    """State 1 was counted whatever was asked: 6 ticks at epsilon 1 had scale 1, or 0, and counts of {0} lose 5.31."""
    chain = MarkovChain.stationary(rows)
    named = {each: wasserstein_states((chain,), 6, each).bound.distance for each in ((0,), (1,), (2,), (0, 1), (0, 2))}
    assert named[(0,)] == named[(2,)] == named[(0, 1)] == 6
    assert named[(1,)] == named[(0, 2)] == (1 if rows[0][1] else 0)
    worst = wasserstein_states((chain,), 6)
    assert (worst.bound.distance, worst.states) == (6, (2,))
    if rows[0][1]:
        assert chain_losses(chain, 6, [(range(1, 7), (1, 0, 0), 1.0)]).max() == pytest.approx(5.31, abs=5e-3)
    for counted in ((0,), (2,), (0, 1), (1,)):
        adds = [float(x in counted) for x in range(3)]
        assert chain_losses(chain, 6, [(range(1, 7), adds, float(worst.bound.distance))]).max() <= 1.0


@pytest.mark.long
@pytest.mark.parametrize("seed", range(4))
def test_the_worst_set_needs_no_less_than_any(seed: int) -> None:
    rng = np.random.default_rng(seed)
    chain = MarkovChain(rng.dirichlet(np.full(4, 0.3), 4), rng.dirichlet(np.ones(4)))
    worst = wasserstein_states((chain,), 5)
    every = [[x for x in range(4) if mask >> x & 1] for mask in range(1, 16)]
    assert worst.bound.distance == max(wasserstein_states((chain,), 5, each).bound.distance for each in every)
    assert wasserstein_states((chain,), 5, worst.states).bound == worst.bound
    assert wasserstein_states((chain,), 5, range(4)).bound.distance == 0


def test_states_that_cannot_be_counted() -> None:
    chain = MarkovChain.stationary(MIDDLE[0])
    for states in ((), (3,), (0, -1)):
        with pytest.raises(ChainClassError, match="some of 0 to 2"):
            wasserstein_states((chain,), 6, states)
    many = MarkovChain.stationary(np.full((9, 9), 1 / 9))
    with pytest.raises(ChainClassError, match="name the states that are counted"):
        wasserstein_states((many,), 3)
    assert wasserstein_states((many,), 3, (0, 4)).bound.distance == 1


def test_a_step_too_rare_for_a_multiple_of_2_to_the_minus_53_is_read_as_it_is() -> None:
    """Read as 2^-53 it was 10,000 times as likely; and 1e-6 + 3e-16 is not 1e-6."""
    for few in (1e-20, 1e-6 + 3e-16, 1e-300):
        weights, total = integer_weights(np.array([1.0, few, 0.0]))
        assert (Fraction(weights[1], total), weights[2], sum(weights)) == (Fraction(few), 0, total)
    assert integer_weights(np.array([0.1, 0.2, 0.7])) == ([1, 2, 7], 10)
