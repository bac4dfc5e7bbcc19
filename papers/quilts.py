"""Parts of Markov quilts that only the papers' theorems name: one influence, two windows, and a wrong model.

Song, Wang, Chaudhuri (SIGMOD 2017), equation 5 and theorem 2.4; Song, Chaudhuri (2017), theorem 3.1.
"""

from __future__ import annotations

import numpy as np

from fugu.chains.arrays import Floats
from fugu.privacy.chain_class import ChainClassError, MarkovChain
from fugu.privacy.quilt_tables import QuiltTables, node_terms

__all__ = ["influence", "model_distance", "two_windows_bound"]


def influence(chain: MarkovChain, node: int | None, before: int | None, after: int | None) -> float:
    """The influence of the nodes {node - before, node + after} on a node (equation 5), at least 0.

    The node is 1.., or `None` for one of the stationary chain. inf if they can rule a state out.
    """
    too_long = node is not None and node <= (before or 0)
    if too_long or any(width is not None and width < 1 for width in (before, after)):
        raise ChainClassError("widths are at least 1, and the left one ends at node 1 or later")
    tables = QuiltTables(chain.transition)
    tables.grow(max(before or 1, after or 1))
    if tables.count < max(before or 1, after or 1):
        return float("inf")
    start = node_terms(chain, node).start
    total = np.zeros_like(start) if before is None else start + tables.left_tables[before - 1]
    with np.errstate(invalid="ignore"):
        total = total if after is None else total + tables.right_tables[after - 1]
    return max(0.0, float(np.nanmax(total)))


def two_windows_bound(epsilon_a: float, epsilon_b: float, on_last: float, on_first: float) -> float:
    """The joint loss, for every secret, of two pufferfish releases on disjoint windows (theorem 3.1, corrected).

    The printed theorem has the two influences swapped, and can be broken.

    Args:
        epsilon_a, epsilon_b: losses of the release on the earlier window and of the one on the later window.
        on_last: the influence of the first node of the later window on the last node of the earlier one.
        on_first: the influence of the last node of the earlier window on the first node of the later one.
    """
    both = epsilon_a + epsilon_b
    return max(min(both, epsilon_a + on_last), min(both, epsilon_b + on_first))


def model_distance(assumed: MarkovChain, actual: MarkovChain, length: int) -> float:
    """The Delta of theorem 2.4: epsilon under one model is epsilon + 2 Delta under the other.

    It is the largest |log| ratio that the two, with initial distributions, give to a path of T ticks, given the state
    of any one node. It grows with T. To allow for a wrong model, put both into the class instead.
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
