"""What several releases about one chain give away together, by Markov quilts.

Releases are charged to the ticks that they cover: c_t is the sum of 1/scale (for a query that changes by at most 1
with one state) over the releases that read tick t. The loss of a node is then at most, for every quilt, its influence
plus the charges of the nodes nearby. This contains theorem 3.7 of Song, Chaudhuri: Composition Properties of
Inferential Privacy for Time-Series Data (2017), and needs no record of which quilt was active when.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from fugu.chains.arrays import Floats
from fugu.contract.rounding import OUTWARD
from fugu.privacy.chain_class import ChainClassError, MarkovChain
from fugu.privacy.quilt_kernels import smallest_loss
from fugu.privacy.quilt_tables import QuiltTables, node_terms, walk

__all__ = [
    "model_distance",
    "quilt_accountant",
    "quilt_rate_loss",
    "two_windows_bound",
]

_UP = 1.0 + OUTWARD


def quilt_accountant(chains: MarkovChain | tuple[MarkovChain, ...], charges: ArrayLike) -> Floats:
    """The loss of every node under releases that charge the ticks they cover.

    Args:
        chains: one chain, or a class.
        charges: (T,) at least 0: what all releases together charge to each tick.

    Returns:
        (T,) bounds on the log-likelihood ratio between any two states of a node, for the worst chain; rounded up.

    Raises:
        ChainClassError: the charges are no such vector, or there is no chain.
    """
    members = chains if isinstance(chains, tuple) else (chains,)
    costs = np.asarray(charges, dtype=np.float64)
    # negated, so that it also refuses what is not a number
    if costs.ndim != 1 or not costs.size or not np.all((costs >= 0.0) & (costs < np.inf)) or not members:
        raise ChainClassError("charges are a vector of numbers from 0 on, one per tick, and a class has a chain")
    losses = [_losses(chain, costs) for chain in members]
    return np.asarray(np.max(losses, axis=0) * _UP, dtype=np.float64)


def quilt_rate_loss(chains: MarkovChain | tuple[MarkovChain, ...], rate: float) -> float:
    """The loss of any node of a stationary stream without end, every tick of which is charged the same.

    Tumbling windows are such a stream: with 1-Lipschitz queries and noise of one scale, rate = 1 / scale.

    Args:
        chains: one stationary chain, or a class of such.
        rate: charge per tick, at least 0.

    Returns:
        min over a, b of influence + rate (a + b - 1), for the worst chain; rounded up.

    Raises:
        ChainClassError: a chain that does not start stationary, or that never forgets.
    """
    members = chains if isinstance(chains, tuple) else (chains,)
    if not 0.0 <= rate < math.inf:
        raise ChainClassError(f"a rate is a number from 0 on, got {rate}")
    _require_stationary(members)
    return max(_rate_loss(chain, rate) for chain in members) * _UP if rate else 0.0


def two_windows_bound(epsilon_a: float, epsilon_b: float, on_last: float, on_first: float) -> float:
    """The joint loss of two pufferfish releases on disjoint windows (theorem 3.1, corrected).

    The printed theorem has the two influences swapped, and can be broken.

    Args:
        epsilon_a, epsilon_b: losses of the release on the earlier window and of the one on the later window.
        on_last: the influence of the first node of the later window on the last node of the earlier one.
        on_first: the influence of the last node of the earlier window on the first node of the later one.

    Returns:
        A bound for every secret in either window.
    """
    both = epsilon_a + epsilon_b
    return max(min(both, epsilon_a + on_last), min(both, epsilon_b + on_first))


def model_distance(assumed: MarkovChain, actual: MarkovChain, length: int) -> float:
    """The Delta of theorem 2.4: epsilon under one model is epsilon + 2 Delta under the other.

    It grows with the length of the window. To allow for a wrong model, account under the other chain instead, that
    is, put both into the class.

    Args:
        assumed, actual: chains with an initial distribution.
        length: T.

    Returns:
        The largest |log| ratio that the two give to a path, given the state of any one node.
    """
    if assumed.initial is None or actual.initial is None or assumed.states != actual.states or length < 1:
        raise ChainClassError(
            "two models are compared over a window, with as many states and an initial distribution each"
        )
    return max(_path_ratio(assumed, actual, length), _path_ratio(actual, assumed, length))


def _path_ratio(chain: MarkovChain, other: MarkovChain, length: int) -> float:
    """max over nodes, states and paths of log Pr(path | state) under one chain over the same under the other."""
    assert chain.initial is not None
    assert other.initial is not None
    step = _log_ratio(chain.transition, other.transition)
    before, after = [_log_ratio(chain.initial, other.initial)], [np.zeros(chain.states)]
    distributions, other_distributions = [chain.initial], [other.initial]
    for _ in range(length - 1):
        before.append(_plus(before[-1][:, None], step).max(axis=0))
        after.append(_plus(step, after[-1]).max(axis=1))
        distributions.append(distributions[-1] @ chain.transition)
        other_distributions.append(other_distributions[-1] @ other.transition)
    paths = _plus(np.array(before), np.array(after[::-1]))
    states = _log_ratio(np.array(distributions), np.array(other_distributions))
    possible = (np.array(distributions) > 0.0) & (np.array(other_distributions) > 0.0)
    return float((paths[possible] - states[possible]).max())


def _log_ratio(distribution: Floats, other: Floats) -> Floats:
    """log distribution / other; -inf where the distribution is 0, inf where only the other one is."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(distribution > 0.0, np.log(distribution) - np.log(other), -np.inf)


def _plus(ratios: Floats, more: Floats) -> Floats:
    """Their sum; what the first chain rules out stays ruled out, whatever the other says."""
    with np.errstate(invalid="ignore"):
        return np.where(np.isneginf(ratios) | np.isneginf(more), -np.inf, ratios + more)


def _losses(chain: MarkovChain, costs: Floats) -> Floats:
    """(T,) the loss of every node, not rounded."""
    length = costs.size
    # a window's charge is a difference of running sums: their rounding is added back below
    spent = np.concatenate([[0.0], np.cumsum(costs, dtype=np.longdouble)]).astype(np.float64)
    rounding = 2.0**-50 * float(spent[-1])
    tables = QuiltTables(chain.transition)
    tables.grow(min(32, length - 1))
    while True:
        terms = zip(range(length), walk(chain), strict=False)
        losses = np.array([smallest_loss(at.start, tables.column, tables.right, node, spent)[0] for node, at in terms])
        # a wider quilt counts all nodes that it passes over
        node = np.arange(length)
        beyond = tables.count
        ahead = spent[np.minimum(node + beyond + 1, length)] - spent[node]
        behind = spent[node + 1] - spent[np.maximum(node - beyond, 0)]
        open_ahead = (node + beyond + 1 < length) & (ahead < losses)
        open_behind = (node - beyond > 0) & (behind < losses)
        if not (open_ahead | open_behind).any() or tables.stalled or not tables.grow(min(2 * tables.count, length - 1)):
            return losses + rounding


def _rate_loss(chain: MarkovChain, rate: float) -> float:
    """The loss of a node far from both ends, not rounded."""
    tables, start = QuiltTables(chain.transition), node_terms(chain, None).start
    tables.grow(32)
    while True:
        # on a window this wide, a quilt that makes use of its ends costs more than rate * count
        spent = rate * np.arange(2.0 * tables.count + 2.0)
        loss = smallest_loss(start, tables.column, tables.right, tables.count, spent)[0]
        if loss < rate * tables.count:
            return float(loss)
        if tables.stalled or not tables.grow(2 * tables.count):
            raise ChainClassError("the chain never forgets, so that an endless stream gives everything away")


def _require_stationary(chains: Sequence[MarkovChain]) -> None:
    if not chains or not all(chain.is_stationary for chain in chains):
        raise ChainClassError("a bound for an endless stream needs chains that start stationary")
