"""Markov quilts on networks: separation against probabilities, chains against MQMExact, and real losses."""

from __future__ import annotations

import math
from itertools import combinations, product

import numpy as np
import pytest

from fugu.privacy.bayes_net import BayesNet, BayesNode
from fugu.privacy.chain_class import ChainClassError, MarkovChain
from fugu.privacy.quilts import mqm_exact
from tests.support.released import losses


def chain_network(chain: MarkovChain, length: int) -> BayesNet:
    assert chain.initial is not None
    later = [BayesNode(f"X{i + 1}", (f"X{i}",), chain.transition) for i in range(1, length)]
    return BayesNet((BayesNode("X1", (), chain.initial), *later))


def random_network(rng: np.random.Generator, size: int, k: int = 2) -> BayesNet:
    nodes = []
    for i in range(size):
        parents = tuple(f"n{j}" for j in range(i) if rng.random() < 0.4)[:3]
        nodes.append(BayesNode(f"n{i}", parents, rng.dirichlet(np.ones(k), (k,) * len(parents))))
    return BayesNet(tuple(nodes))


def real_losses(network: BayesNet, scale: float) -> np.ndarray:
    """Loss of each node when the number of ones is released with Laplace noise."""
    paths = np.array(list(product(*(range(size) for size in network.joint.shape))))
    adds = np.eye(max(network.joint.shape))[1]
    return losses(paths, network.joint.ravel(), [(range(1, paths.shape[1] + 1), adds, scale)])


@pytest.mark.parametrize("seed", range(8))
def test_a_chain_is_a_network_too(seed: int) -> None:
    rng = np.random.default_rng(seed)
    k, length = 2 + seed % 2, 3 + seed % 4
    chain = MarkovChain(rng.dirichlet(np.ones(k), k), rng.dirichlet(np.ones(k)))
    for epsilon in (0.3, 1.0, 5.0):
        quilt = chain_network(chain, length).quilt_scale(epsilon)
        assert quilt.scale == pytest.approx(mqm_exact((chain,), length, epsilon).scale, rel=1e-9)


@pytest.mark.parametrize("seed", range(6))
def test_separated_is_independent_and_connected_is_not(seed: int) -> None:
    """Tables drawn at random have no independence that the graph does not show."""
    network = random_network(np.random.default_rng(seed), 5)
    names = [node.name for node in network.nodes]
    for node, size in product(names, range(4)):
        for evidence in combinations([name for name in names if name != node], size):
            connected_nodes = network.connected_nodes(node, evidence)
            for other in set(names) - {node, *evidence}:
                axes = [names.index(name) for name in (node, other, *evidence)]
                joint = network.joint.sum(axis=tuple(set(range(5)) - set(axes)), keepdims=True)
                joint = np.moveaxis(joint, axes, range(len(axes))).reshape(2, 2, -1)
                product_distribution = joint.sum(axis=1, keepdims=True) * joint.sum(axis=0, keepdims=True)
                dependence = np.abs(joint * joint.sum(axis=(0, 1), keepdims=True) - product_distribution).max()
                assert (dependence > 1e-9) == (other in connected_nodes)


@pytest.mark.parametrize("seed", range(6))
def test_noise_of_this_scale_really_gives_epsilon(seed: int) -> None:
    rng = np.random.default_rng(50 + seed)
    network = random_network(rng, 7)
    for epsilon in (0.5, 1.0, 4.0):
        quilt = network.quilt_scale(epsilon)
        assert real_losses(network, quilt.scale).max() <= epsilon
        assert quilt.scale <= 7 / epsilon * (1 + 1e-9)


def test_a_hub_separates_its_sensors() -> None:
    """Four sensors of one room: each is told by the hub alone, the hub by all of them."""
    noisy = np.array([[0.6, 0.4], [0.4, 0.6]])
    hub = BayesNode("hub", (), np.array([0.5, 0.5]))
    network = BayesNet((hub, *(BayesNode(f"s{i}", ("hub",), noisy) for i in range(4))))
    assert network.connected_nodes("s0", ["hub"]) == {"s0"}
    assert network.connected_nodes("s0", ["s1"]) == {"s0", "hub", "s2", "s3"}
    assert network.influence(["hub"], "s0") == pytest.approx(math.log(1.5))
    assert network.influence(["s0", "s1", "s2", "s3"], "hub") == pytest.approx(4 * math.log(1.5))
    quilt = network.quilt_scale(2.5)
    assert (quilt.node, quilt.quilt) == ("hub", ("s0", "s1", "s2", "s3"))
    assert quilt.scale == pytest.approx(1 / (2.5 - 4 * math.log(1.5)), rel=1e-9)
    assert real_losses(network, quilt.scale).max() <= 2.5


def test_a_common_effect_separates_only_while_unseen() -> None:
    either = np.array([[[0.9, 0.1], [0.2, 0.8]], [[0.3, 0.7], [0.1, 0.9]]])
    coin = np.array([0.5, 0.5])
    network = BayesNet((BayesNode("a", (), coin), BayesNode("b", (), coin), BayesNode("c", ("a", "b"), either)))
    assert network.connected_nodes("a", []) == {"a", "c"}
    assert network.connected_nodes("a", ["c"]) == {"a", "b"}
    assert network.connected_nodes("b", ["a"]) == {"b", "c"}


def test_independent_parts_do_not_pay_for_one_another() -> None:
    coin = np.array([0.5, 0.5])
    copy = np.array([[0.99, 0.01], [0.01, 0.99]])
    parts = []
    for room in range(3):
        parts += [BayesNode(f"door{room}", (), coin), BayesNode(f"lamp{room}", (f"door{room}",), copy)]
    quilt = BayesNet(tuple(parts)).quilt_scale(1.0)
    assert quilt.scale == pytest.approx(2.0, rel=1e-9)
    assert quilt.nearby == {"door0", "lamp0"}


def test_parents_in_any_order_and_of_any_size() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.dirichlet(np.ones(2)), rng.dirichlet(np.ones(3), 2)
    c = rng.dirichlet(np.ones(4), (3, 2))
    joint = BayesNet((BayesNode("a", (), a), BayesNode("b", ("a",), b), BayesNode("c", ("b", "a"), c))).joint
    np.testing.assert_allclose(joint, a[:, None, None] * b[:, :, None] * c.transpose(1, 0, 2))


def test_what_is_no_small_network() -> None:
    coin = np.array([0.5, 0.5])
    wrong = [
        (),
        (BayesNode("a", (), coin), BayesNode("a", (), coin)),
        (BayesNode("a", ("b",), np.full((2, 2), 0.5)), BayesNode("b", (), coin)),
        (BayesNode("a", (), np.array([0.5, 0.6])),),
        (BayesNode("a", (), np.array([1.5, -0.5])),),
        (BayesNode("a", (), np.array([0.5, np.nan])),),
        (BayesNode("a", (), coin), BayesNode("b", ("a",), coin)),
        (BayesNode("a", (), coin), BayesNode("b", ("a",), np.full((3, 2), 0.5))),
    ]
    for nodes in wrong:
        with pytest.raises(ChainClassError):
            BayesNet(nodes)
    with pytest.raises(ChainClassError, match="joint states"):
        BayesNet(tuple(BayesNode(f"n{i}", (), coin) for i in range(21)))
    with pytest.raises(ChainClassError):
        BayesNet((BayesNode("a", (), coin),)).quilt_scale(0.0)


def test_a_joint_state_too_rare_for_a_float_is_refused() -> None:
    """1e-200 twice is 0 in a float, and what is impossible has no influence."""
    rare = np.array([1.0 - 1e-200, 1e-200])
    nodes = (BayesNode("one", (), rare), BayesNode("two", ("one",), np.array([rare, rare])))
    with pytest.raises(ChainClassError, match="does not fit a float"):
        BayesNet(nodes).quilt_scale(1.0)
