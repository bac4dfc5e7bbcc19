"""The exact joint distribution of counts over windows of a chain, and what their noisy releases really give away.

Counts are followed tick by tick: one array holds the probability of every state and every value of all counts so far.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from fugu.chains.arrays import Floats, Ints
from fugu.privacy.chain_class import ChainClassError, MarkovChain

__all__ = ["NoisyCount", "SecretDistributions", "answer_distributions", "noisy", "worst_ratio"]

_MOST_NUMBERS = 2**20
_MOST_WORK = 2**27
_MOST_NATS = 600.0


class NoisyCount(NamedTuple):
    """A number that is released: the ticks of a window in some states, plus Laplace noise.

    Attributes:
        first, last: ticks from 1.
        states: that are counted.
        scale: of the noise.
    """

    first: int
    last: int
    states: tuple[int, ...]
    scale: float


class SecretDistributions(NamedTuple):
    """What a tick's states make of the counts.

    Attributes:
        node: 1..T.
        states: (s,) those that are possible.
        distributions: (s, n_1 + 1, ..., n_m + 1): Pr(all counts | state).
    """

    node: int
    states: Ints
    distributions: Floats


def answer_distributions(chain: MarkovChain, counts: Sequence[NoisyCount]) -> Iterator[SecretDistributions]:
    """The joint distribution of counts given each state of each tick.

    Args:
        chain: with an initial distribution.
        counts: at least one.

    Yields:
        The distributions of ticks 1 to the last that is counted.

    Raises:
        ChainClassError: there is no initial distribution, they take too long to follow, or noise is too small for
        floats.
    """
    if chain.initial is None:
        raise ChainClassError("every path can be added up only from one initial distribution")
    length, k = max(count.last for count in counts), chain.states
    shape = tuple(count.last - count.first + 2 for count in counts)
    size = math.prod(shape)
    if k * k * size > _MOST_NUMBERS or size * length**2 * k**3 > _MOST_WORK:
        raise ChainClassError(f"{length} ticks with {len(counts)} numbers are too many to add up every path")
    if any((count.last - count.first + 1) / count.scale > _MOST_NATS for count in counts):
        raise ChainClassError("noise is too small for every path to be added up in floating point")
    start = np.zeros((1, k, *shape))
    start.reshape(k, -1)[:, 0] = chain.initial
    ahead = _counted(start, counts, 1)
    for node in range(1, length + 1):
        distribution = ahead[0].reshape(k, -1).sum(axis=1)
        states = np.flatnonzero(distribution > 0.0)
        split = np.zeros((len(states), k, *shape))
        split[np.arange(len(states)), states] = ahead[0, states]
        for tick in range(node + 1, length + 1):
            split = _counted(_stepped(split, chain.transition), counts, tick)
        distributions = split.sum(axis=1) / distribution[states].reshape(-1, *([1] * len(counts)))
        yield SecretDistributions(node, states, distributions)
        if node < length:
            ahead = _counted(_stepped(ahead, chain.transition), counts, node + 1)


def noisy(distributions: Floats, counts: Sequence[NoisyCount], axis: int = 1) -> Floats:
    """Densities of noisy counts, up to a factor, where each is one of the values that its count can have.

    Args:
        distributions: with an axis for each count.
        counts: those of the axes from `axis` on; later axes stay as they are.
        axis: of the first of them.

    Returns:
        The same shape: along these axes, outputs instead of counts. For every ratio of such densities these outputs
        are the extreme ones: between two values every density is A e^z + B e^-z, so that ratios are monotone in z,
        and outside they are constant.
    """
    for index, count in enumerate(counts):
        values = np.arange(distributions.shape[axis + index])
        kernel = np.exp(-np.abs(values[:, None] - values[None, :]) / count.scale)
        distributions = np.moveaxis(np.tensordot(distributions, kernel, (axis + index, 0)), -1, axis + index)
    return distributions


def worst_ratio(densities: Floats) -> float:
    """The largest log-ratio between two rows (s, ...), over all that can happen."""
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.log(densities)
        return float(np.nanmax(logs.max(axis=0) - logs.min(axis=0), initial=0.0))


def _stepped(tensor: Floats, transition: Floats) -> Floats:
    return np.moveaxis(np.tensordot(tensor, transition, (1, 0)), -1, 1)


def _counted(tensor: Floats, counts: Sequence[NoisyCount], tick: int) -> Floats:
    """Count a tick: for its states, one more in every window that it is in."""
    moved = tensor.copy()
    for index, count in enumerate(counts):
        if count.first <= tick <= count.last:
            for state in count.states:
                moved[:, state] = np.roll(moved[:, state], 1, axis=1 + index)
    return moved
