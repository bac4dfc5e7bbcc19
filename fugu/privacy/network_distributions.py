"""The distributions of a sum over a small Bayesian network given each secret, exactly, and the noise that they need.

From them follow the Wasserstein mechanism (Song, Wang, Chaudhuri 2017, algorithm 1), and the least scale of Laplace
noise that keeps epsilon at all: where the loss, which falls as the scale grows, meets it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from itertools import product
from typing import NamedTuple

import numpy as np
from scipy.optimize import brentq

from fugu.chains.arrays import Floats
from fugu.privacy.bayes_net import Secrets
from fugu.privacy.chain_class import ChainClassError
from fugu.privacy.wasserstein import infinity_wasserstein

__all__ = [
    "ExactNode",
    "ExactScale",
    "NetworkDistance",
    "SumDistributions",
    "exact_scale",
    "network_distance",
    "sum_distributions",
]

_MOST_OUTCOMES = 1 << 16
_MOST_ANSWERS = 500
_DECIMALS = 1.0 + 1e-11
_WIDEST = 64


class ExactNode(NamedTuple):
    """A node whose probabilities are exact.

    Attributes:
        name: unique.
        parents: names of nodes before it.
        rows: by the parents' values, the last changing fastest: probabilities of its own values, summing to 1.
        adds: what each of its values adds to the sum.
    """

    name: str
    parents: tuple[str, ...]
    rows: tuple[tuple[Fraction, ...], ...]
    adds: tuple[Fraction, ...]


class SumDistributions(NamedTuple):
    """The distributions of a sum given each value of each node.

    Attributes:
        unit: what a step of the sum is worth.
        given: by node and value, if that is possible: whole weights by the number of steps.
    """

    unit: Fraction
    given: Mapping[tuple[str, int], Mapping[int, int]]


class NetworkDistance(NamedTuple):
    """W: the furthest that a secret moves the distribution of the sum, and the secret that does."""

    distance: Fraction
    node: str
    values: tuple[int, int]


class ExactScale(NamedTuple):
    """The least Laplace scale, rounded up, and the secret that needs it."""

    scale: float
    node: str
    values: tuple[int, int]


def sum_distributions(nodes: Sequence[ExactNode]) -> SumDistributions:
    """The distribution of the sum given each value of each node, by adding up every outcome.

    Raises:
        ChainClassError: there are too many outcomes.
    """
    sizes = {node.name: len(node.adds) for node in nodes}
    if math.prod(sizes.values()) > _MOST_OUTCOMES:
        raise ChainClassError(
            f"{math.prod(sizes.values())} outcomes are too many to add up: at most {_MOST_OUTCOMES} are"
        )
    place = {node.name: index for index, node in enumerate(nodes)}
    unit = math.lcm(*(add.denominator for node in nodes for add in node.adds))
    # whole numbers all along: fractions would be brought to lowest terms a million times
    reached: list[tuple[tuple[int, ...], int, int]] = [((), 1, 0)]
    for node in nodes:
        scale = math.lcm(*(p.denominator for row in node.rows for p in row))
        weights = [[int(p * scale) for p in row] for row in node.rows]
        rows = dict(zip(product(*(range(sizes[name]) for name in node.parents)), weights, strict=True))
        steps = [int(add * unit) for add in node.adds]
        at = [place[name] for name in node.parents]
        reached = [
            ((*values, x), weight * p, total + steps[x])
            for values, weight, total in reached
            for x, p in enumerate(rows[tuple(values[i] for i in at)])
            if p
        ]
    distributions: list[list[dict[int, int]]] = [[{} for _ in node.adds] for node in nodes]
    for values, weight, total in reached:
        for index, x in enumerate(values):
            distribution = distributions[index][x]
            distribution[total] = distribution.get(total, 0) + weight
    given = {
        (node.name, x): distribution
        for node, by_value in zip(nodes, distributions, strict=True)
        for x, distribution in enumerate(by_value)
        if distribution
    }
    return SumDistributions(Fraction(1, unit), given)


def network_distance(distributions: SumDistributions, secrets: Secrets) -> NetworkDistance:
    """W of a sum (algorithm 1): the Wasserstein mechanism's scale is W / epsilon.

    Raises:
        ChainClassError: no secret has two possible values.
    """
    found = [
        (infinity_wasserstein(distributions.given[name, a].items(), distributions.given[name, b].items()), name, (a, b))
        for name, (a, b) in _secret_pairs(distributions, secrets)
    ]
    distance, node, values = max(found, key=lambda each: each[0])
    return NetworkDistance(distance * distributions.unit, node, values)


def exact_scale(distributions: SumDistributions, secrets: Secrets, epsilon: float) -> ExactScale:
    """The least scale of Laplace noise with which one release of the sum keeps epsilon for every secret.

    Raises:
        ChainClassError: no secret has two possible values, or there are too many answers.
    """
    answers = sorted({answer for distribution in distributions.given.values() for answer in distribution})
    if len(answers) > _MOST_ANSWERS:
        raise ChainClassError(f"{len(answers)} different answers are too many: at most {_MOST_ANSWERS}")
    at = np.array([float(answer * distributions.unit) for answer in answers])
    gaps = np.abs(at[:, None] - at[None, :])
    pairs = _secret_pairs(distributions, secrets)
    exact = {
        key: _masses(distributions.given[key], answers) for name, values in pairs for key in product([name], values)
    }
    masses = {key: np.array([float(p) for p in distribution]) for key, distribution in exact.items()}
    differ = [(name, (a, b)) for name, (a, b) in pairs if exact[name, a] != exact[name, b]]
    if not differ:
        return ExactScale(0.0, *pairs[0])

    def losses(scale: float) -> list[float]:
        """Of each pair: between two neighbouring answers the ratio is monotone, beyond the last ones constant."""
        densities = {key: _log_density(gaps / scale, mass) for key, mass in masses.items()}
        return [float(np.abs(densities[name, a] - densities[name, b]).max()) for name, (a, b) in differ]

    spread = float(at[-1] - at[0])
    high = 2.0 * spread / epsilon  # the loss is at most spread / scale, and often just that
    low = high
    for _ in range(_WIDEST):
        low /= 2.0
        if max(losses(low)) > epsilon:
            break
    else:
        raise ChainClassError("these secrets can be told apart by so little that any noise hides them")
    scale = float(brentq(lambda scale: max(losses(scale)) - epsilon, low, high, xtol=1e-300, rtol=1e-13)) * _DECIMALS
    found = losses(scale)
    if max(found) > epsilon:
        raise ChainClassError("the least noise could not be computed to eleven digits")
    return ExactScale(scale, *differ[int(np.argmax(found))])


def _secret_pairs(distributions: SumDistributions, secrets: Secrets) -> list[tuple[str, tuple[int, int]]]:
    found = [
        (name, (a, b))
        for name, pairs in secrets.items()
        for a, b in pairs
        if a != b and (name, a) in distributions.given and (name, b) in distributions.given
    ]
    if not found:
        raise ChainClassError("no secret has two values that are both possible")
    return found


def _masses(distribution: Mapping[int, int], answers: Sequence[int]) -> list[Fraction]:
    total = sum(distribution.values())
    return [Fraction(distribution.get(answer, 0), total) for answer in answers]


def _log_density(costs: Floats, mass: Floats) -> Floats:
    """log of the sum of mass[j] e^-costs[i, j], for each i; some mass is positive."""
    with np.errstate(divide="ignore"):
        logs = np.log(mass)[None, :] - costs
    top = logs.max(axis=1, keepdims=True)
    return np.asarray(top[:, 0] + np.log(np.exp(logs - top).sum(axis=1)))
