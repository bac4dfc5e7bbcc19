"""Influence matrices (GK16) against probabilities and real losses, and the bound for affiliated readings as ours."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest

from fugu.contract.chains import BinaryChains
from fugu.privacy.accountant import ChainAccountant
from fugu.privacy.chain_class import ChainClassError, MarkovChain
from papers.influence_matrix import influence_matrix, influence_scale
from tests.support.oracle import count_density, paths_of, worst_release_loss
from tests.support.released import chain_losses


def weak_chain(seed: int, k: int, *, has_start: bool = False) -> MarkovChain:
    """A chain whose next state hardly depends on this one."""
    rng = np.random.default_rng(seed)
    distribution = rng.dirichlet(np.full(k, 8.0))
    step = (1 - 0.12) * distribution + 0.12 * rng.dirichlet(np.ones(k), k)
    return MarkovChain(step, rng.dirichlet(np.full(k, 8.0))) if has_start else MarkovChain.stationary(step)


def enumerated_matrix(chain: MarkovChain, length: int) -> np.ndarray:
    """Half the largest log-ratio of Pr(x_i | all others) between values of the others that differ in x_j."""
    assert chain.initial is not None
    k = chain.states
    _, weight = paths_of(chain.initial, [chain.transition] * (length - 1))
    joint = weight.reshape((k,) * length)
    distances = np.zeros((length, length))
    for i, j in product(range(length), repeat=2):
        if i != j:
            distribution = np.log(joint / joint.sum(axis=i, keepdims=True))
            distances[i, j] = 0.5 * (distribution.max(axis=j) - distribution.min(axis=j)).max()
    return distances


@pytest.mark.parametrize("seed", range(6))
def test_entries_are_the_largest_ratios_of_a_reading_given_all_others(seed: int) -> None:
    k, length = 2 + seed % 3, 2 + seed % 4
    chain = weak_chain(seed, k, has_start=seed % 2 == 0)
    np.testing.assert_allclose(influence_matrix(chain, length), enumerated_matrix(chain, length), atol=1e-9)


@pytest.mark.long
def test_any_start_has_the_influence_of_the_worst_one() -> None:
    chain = weak_chain(3, 3)
    worst = influence_matrix(MarkovChain(chain.transition, None), 2)[0, 1]
    starts = np.random.default_rng(0).dirichlet(np.full(3, 0.05), 1000)
    starts = starts[starts.min(axis=1) > 1e-200]
    reached = max(influence_matrix(MarkovChain(chain.transition, start), 2)[0, 1] for start in starts)
    assert 0.99 * worst < reached <= worst * (1 + 1e-9)


@pytest.mark.long
@pytest.mark.parametrize("seed", [0, 1, 4])
def test_the_noise_really_gives_epsilon_to_either_adversary(seed: int) -> None:
    k, length = 2 + seed % 2, 2 + seed % 5
    chain = weak_chain(50 + seed, k, has_start=seed % 3 == 0)
    assert chain.initial is not None
    for epsilon in (0.3, 1.0, 4.0):
        scale = influence_scale((chain,), length, epsilon)
        released = count_density(scale.scale, 0, length - 1)
        for informed in (False, True):
            lost = worst_release_loss(chain.initial, chain.transition, length, released, informed=informed).max()
            assert 0.3 * epsilon < lost <= epsilon * (1 + 1e-12)


def test_endless_windows_cost_what_a_symmetric_chain_says_in_closed_form() -> None:
    """Between equal neighbours a state is told from the other by ((1-q)/q)^2, between different ones not at all."""
    q, epsilon = 0.4, 0.7
    most = ((1 - q) ** 2 + q * q) / (2 * q * q)
    norm = math.log(most)
    scale = influence_scale(BinaryChains(q=(q, q), r=(q, q)), None, epsilon)
    assert scale.norm == pytest.approx(norm, rel=1e-9)
    assert scale.scale == pytest.approx(1 / (epsilon * (1 - norm)), rel=1e-9)
    windows = [influence_scale(BinaryChains(q=(q, q), r=(q, q)), n, epsilon).scale for n in (1, 2, 3, 10, 400, 401)]
    assert windows == sorted(windows)
    assert windows[0] == pytest.approx(1 / epsilon)
    assert windows[-1] <= scale.scale


@pytest.mark.long
@pytest.mark.parametrize(
    ("q", "r"), [((0.35, 0.5), (0.4, 0.45)), ((0.6, 0.68), (0.3, 0.31)), ((0.45, 0.62), (0.3, 0.35))]
)
def test_an_interval_needs_what_its_worst_chain_needs(q: tuple[float, float], r: tuple[float, float]) -> None:
    inside = [
        influence_matrix(MarkovChain.stationary([[1 - a, a], [b, 1 - b]]), 5)
        for a, b in product(np.linspace(*q, 13), np.linspace(*r, 13))
    ]
    worst = np.max(inside, axis=0)
    norm = influence_scale(BinaryChains(q=q, r=r), None, 1.0).norm
    assert (worst[2, 1] + worst[2, 3]) * (1 - 1e-12) <= norm <= (worst[2, 1] + worst[2, 3]) * (1 + 1e-3)
    each = [influence_scale(BinaryChains(q=(a, a), r=(b, b)), 4, 1.0).scale for a in q for b in r]
    assert max(each) <= influence_scale(BinaryChains(q=q, r=r), 4, 1.0).scale * (1 + 1e-9)


def test_what_it_does_not_apply_to_is_said_in_one_line() -> None:
    sticky = (MarkovChain.stationary([[0.9, 0.1], [0.4, 0.6]]),)
    for chains, length, reason in (
        (sticky, None, "not applicable: the spectral norm of its influence matrix must be below 1, and is up to 2.14"),
        ((MarkovChain(sticky[0].transition, None),), 1000, "not applicable"),
        ((MarkovChain.stationary([[0.5, 0.5], [1.0, 0.0]]),), 5, "is up to infinity: something is impossible"),
        (BinaryChains(q=(0.4, 0.6), r=(0.4, 0.4)), None, "not an interval of them, where q \\+ r can reach 1"),
    ):
        with pytest.raises(ChainClassError, match=reason):
            influence_scale(chains, length, 1.0)


@pytest.mark.parametrize(("q", "r"), [(0.1, 0.4), (0.3, 0.3), (0.02, 0.9), (0.55, 0.2)])
@pytest.mark.parametrize("rate", [0.05, 1.0, 6.0])
def test_the_bound_for_affiliated_readings_is_ours_for_sticky_chains(q: float, r: float, rate: float) -> None:
    """Affiliated: p(x or y) p(x and y) >= p(x) p(y). The bound is then the loss of e^(rate * sum), which Laplace noise
    on the sum reaches far outside of its range."""
    n = 7
    chain = MarkovChain.stationary([[1 - q, q], [r, 1 - r]])
    assert chain.initial is not None
    paths, weight = paths_of(chain.initial, [chain.transition] * (n - 1))
    code = paths @ (1 << np.arange(n))
    distribution = np.zeros(1 << n)
    distribution[code] = weight
    both, either = distribution[code[:, None] & code], distribution[code[:, None] | code]
    assert np.all(both * either >= np.outer(distribution[code], distribution[code]) * (1 - 1e-12))
    sums = paths.sum(axis=1)
    bound = 0.0
    for t, sign in product(range(n), (1.0, -1.0)):
        means = [
            np.average(np.exp(sign * rate * sums)[at], weights=weight[at])
            for at in (paths[:, t] == 0, paths[:, t] == 1)
        ]
        bound = max(bound, abs(math.log(means[0] / means[1])))
    assert ChainAccountant(BinaryChains(q=(q, q), r=(r, r))).loss(rate, "ignorant", n).epsilon == pytest.approx(
        bound, rel=1e-9
    )
    assert chain_losses(chain, n, [(range(1, n + 1), (0.0, 1.0), 1.0 / rate)]).max() == pytest.approx(bound, rel=1e-9)
