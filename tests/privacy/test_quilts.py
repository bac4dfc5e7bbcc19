"""MQMExact: the paper's examples, golden numbers, and what its noise really gives away."""

from __future__ import annotations

import math
from itertools import product
from typing import Any

import numpy as np
import pytest

from fugu.contract.chains import BinaryChains
from fugu.privacy import quilts
from fugu.privacy.chain_class import ChainClassError, MarkovChain
from fugu.privacy.quilt_tables import QuiltTables, log_ratio_table, node_terms
from fugu.privacy.quilts import ENDLESS, best_quilt, group_dp_scale, mqm_exact
from papers.quilts import influence
from tests.support.mqm_cases import CHAINS, GOLDEN, SHORT, close
from tests.support.oracle import paths_of
from tests.support.released import chain_losses

CLOCK = np.roll(np.eye(5), 1, axis=1)


def random_chain(rng: np.random.Generator, k: int, start: str = "given") -> MarkovChain:
    transition = rng.dirichlet(np.full(k, 1.5), k)
    if start == "stationary":
        return MarkovChain.stationary(transition)
    return MarkovChain(transition, None if start == "any" else rng.dirichlet(np.ones(k)))


def sticky_chain(rng: np.random.Generator, k: int, jumps: float) -> MarkovChain:
    """Mostly steps to neighbours, like a discretised sensor."""
    steps = np.triu(np.tril(rng.random((k, k)) + 3.0 * np.eye(k), 1), -1)
    jump = 0.95 * rng.dirichlet(np.ones(k)) + 0.05 / k
    return MarkovChain.stationary((1 - jumps) * steps / steps.sum(axis=1, keepdims=True) + jumps * jump)


def node_scale(chain: MarkovChain, length: int, node: int, epsilon: float) -> float:
    start = node_terms(chain, node).start
    return best_quilt(QuiltTables(chain.transition), start, node - 1, length - node, epsilon, length / epsilon).scale


# ---- golden numbers


@pytest.mark.parametrize("name", ["theta1", "theta2"])
@pytest.mark.parametrize("kind", ["literal", "all_initial"])
def test_the_running_examples(name: str, kind: str) -> None:
    golden = GOLDEN["1_mqm_exact"][kind][name]
    chain = CHAINS[name].any_start if kind == "all_initial" else CHAINS[name]
    scale = mqm_exact((chain,), 100, 1.0)
    assert scale.scale == close(golden["sigma"])
    assert (scale.node, list(scale.quilt), scale.card) == (golden["node"], golden["quilt"], golden["card"])
    assert scale.influence == close(golden["e"])
    both = mqm_exact((CHAINS["theta1"], CHAINS["theta2"]), 100, 1.0)
    assert (both.scale, both.chain) == (close(13.021923496180), 0)


@pytest.mark.parametrize("name", ["theta1", "theta2"])
@pytest.mark.parametrize("epsilon", [0.2, 1.0, 5.0])
def test_the_endless_stream(name: str, epsilon: float) -> None:
    scale, a, b, e = GOLDEN["1_mqm_exact"]["sigma_infinity"][f"{name}|{epsilon}"]
    noise = mqm_exact((CHAINS[f"{name}_stationary"],), None, epsilon)
    assert (noise.scale, noise.influence, noise.quilt) == (close(scale), close(e), (a, b))
    assert mqm_exact((CHAINS[f"{name}_stationary"],), 1000, epsilon).scale == close(scale)


@pytest.mark.parametrize("key", GOLDEN["3_wasserstein"])
def test_windows_of_many_lengths(key: str) -> None:
    golden = GOLDEN["3_wasserstein"][key]
    name, ticks, eps = key.split("|")
    chain, length, epsilon = CHAINS[SHORT[name]], int(ticks[2:]), float(eps[4:])
    assert mqm_exact((chain,), length, epsilon).scale == close(golden["mqm_literal"])
    assert group_dp_scale(length, epsilon) == close(golden["group"])


@pytest.mark.parametrize("key", GOLDEN["9_synthetic"])
def test_the_synthetic_experiment(key: str) -> None:
    golden = GOLDEN["9_synthetic"][key]
    alpha, epsilon = map(float, key.split("|"))
    corners = [np.array([[p, 1 - p], [1 - q, q]]) for p, q in product((golden["at"][0], alpha, 1 - alpha), repeat=2)]
    scale = mqm_exact(tuple(MarkovChain(corner, None) for corner in corners), 100, epsilon)
    assert (scale.scale, scale.influence) == (close(golden["exact_all"]), close(golden["e"]))
    assert scale.node == golden["node"]
    assert [width or 0 for width in scale.quilt] == golden["quilt"]
    stationary = mqm_exact(tuple(MarkovChain.stationary(corner) for corner in corners), 100, epsilon)
    assert stationary.scale == close(golden["stationary_only"])
    interval = mqm_exact(BinaryChains(q=(alpha, 1 - alpha), r=(alpha, 1 - alpha)), 100, epsilon)
    assert interval.scale == close(golden["stationary_only"])


# ---- what the noise really gives away


def enumerated_influence(chain: MarkovChain, length: int, node: int, quilt: list[int]) -> float:
    """Definition 4.1, by adding up paths."""
    assert chain.initial is not None
    paths, weight = paths_of(chain.initial, [chain.transition] * (length - 1))
    worst = 0.0
    for values in product(range(chain.states), repeat=len(quilt)):
        match = np.all(paths[:, [q - 1 for q in quilt]] == values, axis=1)
        likelihoods = []
        for state in range(chain.states):
            at = paths[:, node - 1] == state
            if weight[at].sum() > 0:
                likelihoods.append(weight[at & match].sum() / weight[at].sum())
        if max(likelihoods) > 0:
            worst = max(worst, math.log(max(likelihoods) / min(likelihoods)) if min(likelihoods) > 0 else math.inf)
    return worst


@pytest.mark.long
@pytest.mark.parametrize("seed", [1, 4])
def test_the_scale_is_the_smallest_over_every_quilt(seed: int) -> None:
    rng = np.random.default_rng(100 + seed)
    length, k = 6, 2 + seed % 2
    chain = random_chain(rng, k, "given" if seed < 4 else "stationary")
    for epsilon in (0.5, 2.0, 6.0):
        scales = []
        for node in range(1, length + 1):
            best = length / epsilon
            for left, right in product(range(node), range(node + 1, length + 2)):
                quilt = [at for at in (left, right) if 1 <= at <= length]
                e = enumerated_influence(chain, length, node, quilt)
                if e < epsilon:
                    best = min(best, (right - left - 1) / (epsilon - e))
            assert node_scale(chain, length, node, epsilon) == close(best)
            scales.append(best)
        assert mqm_exact((chain,), length, epsilon).scale == close(max(scales))


@pytest.mark.long
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("start", ["stationary", "given", "any"])
def test_not_looking_at_every_node_loses_nothing(seed: int, start: str) -> None:
    rng = np.random.default_rng(200 + seed)
    chain = random_chain(rng, 2 + seed % 3, start)
    transition = 0.7 * np.eye(chain.states) + 0.3 * chain.transition
    chain = MarkovChain.stationary(transition) if start == "stationary" else MarkovChain(transition, chain.initial)
    for length, epsilon in ((5, 1.0), (40, 0.5), (90, 2.0)):
        nodes = [node_scale(chain, length, node, epsilon) for node in range(1, length + 1)]
        assert mqm_exact((chain,), length, epsilon).scale == close(max(nodes))


@pytest.mark.parametrize("epsilon", [0.2, 1.0, 5.0])
def test_on_a_stationary_stream_the_best_pair_of_widths_decides(epsilon: float) -> None:
    chain = sticky_chain(np.random.default_rng(5), 7, 0.2)
    tables = QuiltTables(chain.transition)
    tables.grow(120)
    start = node_terms(chain, None).start
    pairs = start + tables.left_tables[:, None] + tables.right_tables[None, :]
    e = pairs.reshape(*pairs.shape[:2], -1).max(axis=-1)
    card = np.arange(120)[:, None] + np.arange(120)[None, :] + 1
    best = (card[e < epsilon] / (epsilon - e[e < epsilon])).min()
    assert best * epsilon < 120  # no larger width could do better
    assert mqm_exact((chain,), None, epsilon).scale == close(best)
    assert mqm_exact((chain,), 10**6, epsilon).scale == close(best)


def test_a_stream_without_end_from_any_start_is_the_limit_of_long_windows() -> None:
    for chain in (CHAINS["theta1"], CHAINS["theta2"], CHAINS["theta2"].any_start):
        endless = mqm_exact((chain,), None, 1.0)
        assert endless.scale == close(mqm_exact((chain,), 5000, 1.0).scale)
        stationary = mqm_exact((MarkovChain.stationary(chain.transition),), None, 1.0)
        assert endless.scale >= stationary.scale


# ---- tables and edges


def test_a_table_tells_impossible_from_never_seen() -> None:
    table = log_ratio_table([[0.5, 0.5, 0.0], [0.25, 0.75, 0.0], [0.0, 1.0, 0.0]])
    assert table[0, 1] == close(math.log(2.0))
    assert table[0, 2] == math.inf  # only the denominator is 0
    assert table[2, 0] == close(math.log(2.0))  # the zero numerator is no threat, and 0/0 is passed over
    assert np.all(np.diag(table) == 0.0)


def test_side_tables_only_fall_with_the_distance() -> None:
    chain = random_chain(np.random.default_rng(0), 4)
    direct = np.stack([log_ratio_table(np.linalg.matrix_power(chain.transition, b)) for b in range(1, 12)])
    assert np.all(np.diff(direct, axis=0) <= 1e-12)
    tables = QuiltTables(chain.transition)
    tables.grow(11)
    np.testing.assert_allclose(tables.right_tables, direct, rtol=1e-9, atol=1e-12)


def test_a_periodic_chain_needs_the_noise_of_a_whole_window() -> None:
    clock = MarkovChain(CLOCK, np.full(5, 0.2))
    assert mqm_exact((clock,), 300, 1.0).scale == close(300.0)
    with pytest.raises(ChainClassError, match="no Markov quilt"):
        mqm_exact((clock,), None, 1.0)
    with pytest.raises(ChainClassError, match="no Markov quilt"):
        mqm_exact((MarkovChain(np.eye(2), None),), None, 1.0)


def test_states_that_die_out() -> None:
    transition = np.array([[0.5, 0.5, 0.0], [0.0, 0.6, 0.4], [0.0, 0.3, 0.7]])
    rounded = MarkovChain.stationary(transition)  # with 1e-17 left in the dying state
    assert node_terms(rounded, None).start[0, 1] == -math.inf
    with pytest.raises(ChainClassError):
        mqm_exact((MarkovChain(transition, np.array([1.0, 0.0, 0.0])),), None, 1.0)
    for state in range(3):
        scale = mqm_exact((MarkovChain(transition, np.array([1.0, 0.0, 0.0])),), 7, 1.0).scale
        dying = MarkovChain(transition, np.array([1.0, 0.0, 0.0]))
        assert chain_losses(dying, 7, [(range(1, 8), np.eye(3)[state], scale)]).max() <= 1.0


def test_a_probability_too_small_to_divide_by_is_not_taken_for_impossible() -> None:
    rare = 1e-200
    chain = MarkovChain(np.array([[1.0 - 1e-9, 1e-9], [0.5, 0.5]]), np.array([1.0, rare]))
    assert influence(chain, 1, None, 3) < math.inf
    drop = MarkovChain(np.array([[1.0, rare], [0.5, 0.5]]), np.array([0.5, 0.5]))
    assert influence(drop, 3, 1, 1) == math.inf
    assert mqm_exact((drop,), 20, 1.0).scale == close(20.0)
    assert node_terms(MarkovChain(np.eye(2), np.array([1.0, rare])), 5).start[0, 1] == math.inf


def test_the_scale_is_rounded_up_and_not_by_much() -> None:
    chain = CHAINS["theta1_stationary"]
    terms, tables = node_terms(chain, None), QuiltTables(chain.transition)
    raw = best_quilt(tables, terms.start, ENDLESS, ENDLESS, 1.0, math.inf).scale
    assert raw < mqm_exact((chain,), None, 1.0).scale <= raw * (1 + 1.1e-12)


@pytest.mark.parametrize(
    ("length", "epsilon"), [(0, 1.0), (-3, 1.0), (10, 0.0), (10, -1.0), (10, math.inf), (10, math.nan)]
)
def test_questions_without_an_answer(length: int, epsilon: float) -> None:
    with pytest.raises(ChainClassError):
        mqm_exact((CHAINS["theta1"],), length, epsilon)


def test_more_questions_without_an_answer() -> None:
    with pytest.raises(ChainClassError):
        mqm_exact((), 10, 1.0)
    with pytest.raises(ChainClassError):
        influence(CHAINS["theta1"], 3, 3, None)
    with pytest.raises(ChainClassError):
        influence(CHAINS["theta1"], 3, None, 0)


@pytest.mark.parametrize("length", [100, 9_000, 10**6])
def test_a_stationary_chain_is_searched_at_two_ticks_however_many_there_are(
    length: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which is why table 2 of the paper has other seconds: algorithm 3 goes over every tick."""
    searched = []

    def counted(*arguments: Any, **more: Any) -> Any:
        searched.append(arguments)
        return best_quilt(*arguments, **more)

    monkeypatch.setattr(quilts, "best_quilt", counted)
    assert mqm_exact((CHAINS["theta1_stationary"],), length, 1.0).scale == close(12.839964231247)
    assert len(searched) == 2
