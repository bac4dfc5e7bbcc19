"""The Markov quilt mechanism on a small Bayesian network: readings that depend on one another in any pattern.

Song, Wang, Chaudhuri: Pufferfish Privacy Mechanisms for Correlated Data (SIGMOD 2017), algorithm 2. The quilts that are
tried are all sets of at most two nodes, and the nodes at each distance from the protected node. Those at distance 1 are
its Markov blanket. Influences are computed from the joint distribution, so networks must be small.

The exact distributions of a sum given each secret give the Wasserstein mechanism (the same paper, algorithm 1). They
also give the least scale of Laplace noise that keeps epsilon: the loss falls as the scale grows.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import chain, combinations, product
from typing import NamedTuple, Self, TypeAlias

import numpy as np
from scipy.optimize import brentq

from fugu.chains.arrays import Floats
from fugu.contract.losses import OUTWARD
from fugu.privacy.chain_class import TINY, ChainClassError
from fugu.privacy.wasserstein import infinity_wasserstein

__all__ = ["BayesNet", "BayesNode", "ExactNode", "Secrets", "SumDistributions"]


Secrets: TypeAlias = Mapping[str, Sequence[tuple[int, int]]]
"""Pairs of values of a node that nobody may tell apart, by the name of the node."""

_MOST_STATES = 2**20
_UP = 1.0 + OUTWARD
_LARGEST_QUILT = 2


@dataclass(frozen=True, eq=False)
class BayesNode:
    """A reading with a unique name; `table` (states of each parent ..., own states) has its distributions."""

    name: str
    parents: tuple[str, ...]
    table: Floats


@dataclass(frozen=True, eq=False)
class BayesNet:
    """A directed network of readings without cycles, parents before children."""

    nodes: tuple[BayesNode, ...]

    def __post_init__(self) -> None:
        state_counts: dict[str, int] = {}
        for node in self.nodes:
            table = np.asarray(node.table, dtype=np.float64)
            if node.name in state_counts:
                raise ChainClassError(f"two nodes are called {node.name!r}")
            if missing_parents := [parent for parent in node.parents if parent not in state_counts]:
                raise ChainClassError(f"{node.name!r} comes before its parent {missing_parents[0]!r}")
            if table.ndim != len(node.parents) + 1 or table.shape[:-1] != tuple(state_counts[p] for p in node.parents):
                raise ChainClassError(f"the table of {node.name!r} needs an axis for each parent and one of its own")
            # negated, so that it also refuses what is not a number
            if not (np.all(table >= 0.0) and np.all(np.abs(table.sum(axis=-1) - 1.0) <= 1e-9)):
                raise ChainClassError(f"the table of {node.name!r} must hold distributions along its last axis")
            state_counts[node.name] = table.shape[-1]
        if not state_counts:
            raise ChainClassError("a network needs at least one node")
        if math.prod(state_counts.values()) > _MOST_STATES:
            raise ChainClassError(
                f"the network has {math.prod(state_counts.values())} joint states, more than {_MOST_STATES}: "
                "cut it into independent parts, or merge states"
            )

    @cached_property
    def joint(self) -> Floats:
        """The joint distribution, with one axis for each node in order."""
        axis_of_node = {node.name: axis for axis, node in enumerate(self.nodes)}
        joint = np.ones((1,) * len(self.nodes))
        is_possible = joint > 0.0
        for node in self.nodes:
            axes = [axis_of_node[name] for name in (*node.parents, node.name)]
            other_axes = tuple(axis for axis in range(len(self.nodes)) if axis not in axes)
            table = np.expand_dims(np.transpose(node.table, np.argsort(axes)), other_axes)
            joint, is_possible = joint * table, is_possible & (table > 0.0)
        if np.any(is_possible & (joint < TINY)):
            raise ChainClassError("some joint state is so rare that its probability does not fit a float")
        return np.asarray(joint / joint.sum())

    def connected_nodes(self, node: str, observed: Iterable[str]) -> frozenset[str]:
        """Return the unobserved nodes that the `observed` ones do not d-separate from a node, the node included."""
        observed_nodes = set(observed)
        parents = {member.name: member.parents for member in self.nodes}
        children = {name: [member.name for member in self.nodes if name in member.parents] for name in parents}
        # A path that arrives from a child may go on to parents and children, one from a parent to children only. At an
        # observed node, a path from a parent goes back to parents, which opens colliders above.
        path_stack, visited_steps = [(node, True)], set()
        while path_stack:
            name, is_from_child = path_stack.pop()
            if (name, is_from_child) in visited_steps:
                continue
            visited_steps.add((name, is_from_child))
            if name not in observed_nodes:
                path_stack += [(child, False) for child in children[name]]
            if is_from_child != (name in observed_nodes):
                path_stack += [(parent, True) for parent in parents[name]]
        return frozenset(name for name, _ in visited_steps) - observed_nodes

    @cached_property
    def moral_neighbours(self) -> dict[str, frozenset[str]]:
        """The neighbours of each node in the moral graph: its parents, its children, and their other parents."""
        families = [frozenset((*node.parents, node.name)) for node in self.nodes]
        return {
            node.name: frozenset[str]().union(*(family for family in families if node.name in family)) - {node.name}
            for node in self.nodes
        }

    def layers(self, node: str) -> list[tuple[str, ...]]:
        """Return the nodes at each distance from a node in the moral graph; each layer separates it from later ones."""
        visited, layer, name_layers = {node}, {node}, []
        while layer := set[str]().union(*(self.moral_neighbours[name] for name in layer)) - visited:
            visited |= layer
            name_layers.append(tuple(member.name for member in self.nodes if member.name in layer))
        return name_layers

    def influence(
        self, quilt: Iterable[str], node: str, secret_pairs: Sequence[tuple[int, int]] | None = None
    ) -> float:
        """Return the max-influence of a quilt, a set of nodes, on a node outside it (definition 4.1 of the paper).

        It is the largest log Pr(quilt | node = x) / Pr(quilt | node = x') over possible values of the node in
        `secret_pairs`, in either order; `None` compares all pairs.
        """
        names = [variable.name for variable in self.nodes]
        node_axis, quilt_axes = names.index(node), {names.index(name) for name in quilt}
        summed_axes = tuple(axis for axis in range(len(names)) if axis != node_axis and axis not in quilt_axes)
        joint = np.moveaxis(self.joint.sum(axis=summed_axes, keepdims=True), node_axis, 0)
        joint = joint.reshape(self.joint.shape[node_axis], -1)
        node_distribution = joint.sum(axis=1, keepdims=True)
        distributions = joint / np.where(node_distribution > 0.0, node_distribution, 1.0)
        value_pairs = combinations(range(len(distributions)), 2) if secret_pairs is None else secret_pairs
        largest_log_ratio = 0.0
        for a, b in value_pairs:
            if node_distribution[a] > 0.0 and node_distribution[b] > 0.0:
                pair_rows = distributions[[a, b]]
                high, low = pair_rows.max(axis=0), pair_rows.min(axis=0)
                with np.errstate(divide="ignore"):
                    largest_log_ratio = max(largest_log_ratio, float(np.log(high[high > 0.0] / low[high > 0.0]).max()))
        return largest_log_ratio

    def quilt_scale(
        self, epsilon: float, *, sensitivities: Mapping[str, float] | None = None, secrets: Secrets | None = None
    ) -> NetworkQuilt:
        """Return the Markov quilt mechanism's scale for the worst node.

        A quilt is a whole layer, or has at most two nodes, which is enough for a chain. `sensitivities` are the largest
        changes of the answer by each node alone; `None` for 1 each. `secrets` are protected; `None` for all values of
        all nodes. Raises ChainClassError if there is nothing to protect, or epsilon is not above 0.
        """
        if not 0.0 < epsilon < math.inf:
            raise ChainClassError(f"the mechanism needs an epsilon above 0, got {epsilon}")
        weights = sensitivities or {node.name: 1.0 for node in self.nodes}
        secret_pairs = dict.fromkeys(node.name for node in self.nodes) if secrets is None else secrets
        worst_quilt: NetworkQuilt | None = None
        for node in self.nodes:
            if node.name in secret_pairs:
                scale_floor = worst_quilt.scale if worst_quilt else 0.0
                quilt = _best_node_quilt(self, node.name, epsilon, scale_floor, weights, secret_pairs[node.name])
                if worst_quilt is None or quilt.scale > worst_quilt.scale:
                    worst_quilt = quilt
        if worst_quilt is None:
            raise ChainClassError("there is no secret to protect")
        return worst_quilt._replace(scale=worst_quilt.scale * _UP)


class NetworkQuilt(NamedTuple):
    """A Laplace scale for a query, rounded up, and the worst node and its quilt, which decide it.

    `nearby` has the nodes that the quilt does not separate from the node, and the node itself.
    """

    scale: float
    node: str
    quilt: tuple[str, ...]
    nearby: frozenset[str]
    influence: float


def _best_node_quilt(
    network: BayesNet,
    node: str,
    epsilon: float,
    scale_floor: float,
    weights: Mapping[str, float],
    secret_pairs: Sequence[tuple[int, int]] | None,
) -> NetworkQuilt:
    """Return the best quilt of one node, or any with a scale not above `scale_floor`; the scale is not rounded."""
    all_names = frozenset(member.name for member in network.nodes)
    best_quilt = NetworkQuilt(math.fsum(weights.values()) / epsilon, node, (), all_names, 0.0)
    other_names = [member.name for member in network.nodes if member.name != node]
    quilts = {*chain.from_iterable(combinations(other_names, size) for size in range(_LARGEST_QUILT + 1))}
    candidates = [(network.connected_nodes(node, quilt), quilt) for quilt in sorted(quilts | set(network.layers(node)))]
    weighted_quilts = [(math.fsum(weights[name] for name in nearby), nearby, quilt) for nearby, quilt in candidates]
    for nearby_weight, nearby, quilt in sorted(weighted_quilts, key=lambda triple: triple[0]):
        # with this much nearby, even no influence is no better, nor with any later one
        if best_quilt.scale <= scale_floor or nearby_weight / epsilon >= best_quilt.scale:
            break
        influence = network.influence(quilt, node, secret_pairs) if quilt else 0.0
        if influence < epsilon and nearby_weight / (epsilon - influence) < best_quilt.scale:
            best_quilt = NetworkQuilt(nearby_weight / (epsilon - influence), node, quilt, nearby, influence)
    return best_quilt


_MOST_OUTCOMES = 1 << 16
_MOST_ANSWERS = 500
_DECIMALS = 1.0 + 1e-11
_WIDEST = 64


class ExactNode(NamedTuple):
    """A node whose probabilities are exact.

    Attributes:
        rows: probabilities of the node's values for all values of its parents, the last parent changing fastest.
        adds: what each of the node's values adds to the sum.
    """

    name: str
    parents: tuple[str, ...]
    rows: tuple[tuple[Fraction, ...], ...]
    adds: tuple[Fraction, ...]


class SumDistributions(NamedTuple):
    """A sum's distribution given each value of each node: whole weights by the sum in units of `unit`."""

    unit: Fraction
    conditionals: Mapping[tuple[str, int], Mapping[int, int]]

    @classmethod
    def of(cls, nodes: Sequence[ExactNode]) -> Self:
        """Compute the sum's distribution given each value of each node; ChainClassError for too many outcomes."""
        sizes = {node.name: len(node.adds) for node in nodes}
        if math.prod(sizes.values()) > _MOST_OUTCOMES:
            raise ChainClassError(
                f"{math.prod(sizes.values())} outcomes are too many to add up: at most {_MOST_OUTCOMES} are"
            )
        node_index = {node.name: index for index, node in enumerate(nodes)}
        unit = math.lcm(*(summand.denominator for node in nodes for summand in node.adds))
        # whole numbers, as fractions would be reduced a million times
        outcomes: list[tuple[tuple[int, ...], int, int]] = [((), 1, 0)]
        for node in nodes:
            denominator = math.lcm(*(p.denominator for row in node.rows for p in row))
            row_weights = [[int(p * denominator) for p in row] for row in node.rows]
            parent_values = product(*(range(sizes[name]) for name in node.parents))
            weights_of_values = dict(zip(parent_values, row_weights, strict=True))
            unit_steps = [int(summand * unit) for summand in node.adds]
            parent_indices = [node_index[name] for name in node.parents]
            outcomes = [
                ((*node_values, x), weight * p, unit_sum + unit_steps[x])
                for node_values, weight, unit_sum in outcomes
                for x, p in enumerate(weights_of_values[tuple(node_values[i] for i in parent_indices)])
                if p
            ]
        conditionals: dict[tuple[str, int], dict[int, int]] = {}
        for node_values, weight, unit_sum in outcomes:
            for node, x in zip(nodes, node_values, strict=True):
                distribution = conditionals.setdefault((node.name, x), {})
                distribution[unit_sum] = distribution.get(unit_sum, 0) + weight
        return cls(Fraction(1, unit), conditionals)

    def largest_distance(self, secrets: Secrets) -> NetworkDistance:
        """Return W of the sum (algorithm 1), epsilon times the mechanism's scale. ChainClassError without a secret."""
        distances = [
            (infinity_wasserstein(self.conditionals[name, a].items(), self.conditionals[name, b].items()), name, (a, b))
            for name, (a, b) in self._pairs(secrets)
        ]
        distance, node, values = max(distances, key=lambda distance_of_pair: distance_of_pair[0])
        return NetworkDistance(distance * self.unit, node, values)

    def least_scale(self, secrets: Secrets, epsilon: float) -> ExactScale:
        """Return the least scale of Laplace noise with which one release of the sum keeps epsilon for every secret.

        Raises ChainClassError if no secret has two possible values, or there are too many answers.
        """
        sums = sorted({unit_sum for distribution in self.conditionals.values() for unit_sum in distribution})
        if len(sums) > _MOST_ANSWERS:
            raise ChainClassError(f"{len(sums)} different answers are too many: at most {_MOST_ANSWERS}")
        positions = np.array([float(unit_sum * self.unit) for unit_sum in sums])
        distances = np.abs(positions[:, None] - positions[None, :])
        secret_pairs = self._pairs(secrets)
        fractions: dict[tuple[str, int], list[Fraction]] = {}
        for key in {(name, value) for name, values in secret_pairs for value in values}:
            total_weight = sum(self.conditionals[key].values())
            fractions[key] = [Fraction(self.conditionals[key].get(unit_sum, 0), total_weight) for unit_sum in sums]
        masses = {key: np.array([float(p) for p in distribution]) for key, distribution in fractions.items()}
        unequal_pairs = [(name, (a, b)) for name, (a, b) in secret_pairs if fractions[name, a] != fractions[name, b]]
        if not unequal_pairs:
            return ExactScale(0.0, *secret_pairs[0])

        def losses(scale: float) -> list[float]:
            """Return each pair's loss: ratios are monotone between neighbouring answers, constant beyond the last."""
            densities = {key: _log_density(distances / scale, mass) for key, mass in masses.items()}
            return [float(np.abs(densities[name, a] - densities[name, b]).max()) for name, (a, b) in unequal_pairs]

        spread = float(positions[-1] - positions[0])
        high_scale = 2.0 * spread / epsilon  # the loss is at most spread / scale
        halved_scales = (high_scale / 2.0**halvings for halvings in range(1, _WIDEST + 1))
        low_scale = next((low_scale for low_scale in halved_scales if max(losses(low_scale)) > epsilon), None)
        if low_scale is None:
            raise ChainClassError("these secrets can be told apart by so little that any noise hides them")
        root = brentq(lambda scale: max(losses(scale)) - epsilon, low_scale, high_scale, xtol=1e-300, rtol=1e-13)
        scale = float(root) * _DECIMALS
        pair_losses = losses(scale)
        if max(pair_losses) > epsilon:
            raise ChainClassError("the least noise could not be computed to eleven digits")
        return ExactScale(scale, *unequal_pairs[int(np.argmax(pair_losses))])

    def _pairs(self, secrets: Secrets) -> list[tuple[str, tuple[int, int]]]:
        pairs = [
            (name, (a, b))
            for name, pairs in secrets.items()
            for a, b in pairs
            if a != b and (name, a) in self.conditionals and (name, b) in self.conditionals
        ]
        if not pairs:
            raise ChainClassError("no secret has two values that are both possible")
        return pairs


class NetworkDistance(NamedTuple):
    """W, the largest distance that a secret moves the distribution of the sum, and that secret."""

    distance: Fraction
    node: str
    values: tuple[int, int]


class ExactScale(NamedTuple):
    """The least Laplace scale, rounded up, and the secret that needs it."""

    scale: float
    node: str
    values: tuple[int, int]


def _log_density(costs: Floats, masses: Floats) -> Floats:
    """Return log(sum over j of masses[j] e^-costs[i, j]) for each i; some mass is positive."""
    with np.errstate(divide="ignore"):
        log_terms = np.log(masses)[None, :] - costs
    largest_logs = log_terms.max(axis=1, keepdims=True)
    return np.asarray(largest_logs[:, 0] + np.log(np.exp(log_terms - largest_logs).sum(axis=1)))
