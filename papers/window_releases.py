"""Counts over windows that have been released with given noise: what each of them guarantees by its own mechanism.

What they really give away follows from their exact joint distribution. Tick by tick, one array holds the probability of
every state and every value of all counts so far.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from scipy.optimize import brentq

from fugu.chains.arrays import Floats, Ints
from fugu.contract.queries import WINDOW_QUERIES
from fugu.privacy.accountant import ChainAccountant
from fugu.privacy.chain_class import ChainClassError, MarkovChain
from fugu.privacy.quilts import quilt_accountant
from fugu.privacy.window_mechanisms import Mechanism, WindowRelease, WindowRequest, charges, window_noise

__all__ = ["QUILTS", "NoisyCount", "Released", "answer_distributions", "noisy", "own_loss", "worst_ratio"]


_MOST_NUMBERS = 2**20
_MOST_WORK = 2**27
_MOST_NATS = 600.0


class NoisyCount(NamedTuple):
    """A released number: the ticks first..last (from 1) of a window in some states, plus Laplace noise."""

    first: int
    last: int
    states: tuple[int, ...]
    scale: float


class SecretDistributions(NamedTuple):
    """Posterior of the counts over the possible states (s,) of tick `node`, 1..T.

    Pr(all counts | state) is (s, n_1 + 1, ..., n_m + 1).
    """

    node: int
    states: Ints
    distributions: Floats


def answer_distributions(chain: MarkovChain, counts: Sequence[NoisyCount]) -> Iterator[SecretDistributions]:
    """The joint distributions of counts, at least one, given each state of ticks 1 to the last that is counted.

    Raises ChainClassError without an initial distribution, for too much work, or for noise too small for floats.
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

    The counts are those of the axes from `axis` on; later axes stay as they are. Along these axes the result has
    outputs instead of counts. For every ratio of such densities these outputs are the extreme ones. Between two values
    every density is A e^z + B e^-z, so that ratios are monotone in z, and outside they are constant.
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


QUILTS: tuple[Mechanism, ...] = ("mqm-exact", "mqm-approx")
_FINE = 1e-12


@dataclass(frozen=True)
class Released(WindowRelease):
    """A release, and the mechanism by whose reasoning its noise was chosen."""

    mechanism: Mechanism

    def counts(self, states: int, counted: tuple[int, ...]) -> list[NoisyCount]:
        """The numbers that are released, each a count, out of k `states`."""
        query = WINDOW_QUERIES[self.query]
        sets = query.groups(tuple(range(states)) if query.per_state else counted)
        return [NoisyCount(self.first, self.last, each, self.scale) for each in sets]


def own_loss(request: WindowRequest, members: tuple[MarkovChain, ...], release: Released) -> float:
    """The epsilon that one release guarantees on its own for every tick, by its mechanism.

    The `members` stand for the class; they are empty where there are no matrices. Raises ChainClassError if the
    mechanism protects no correlated readings, or cannot be had for these chains.
    """
    mechanism = release.mechanism
    if mechanism == "entry":
        raise ChainClassError("entry guarantees nothing for correlated readings")
    if mechanism == "chain":
        rates = charges([release], release.last)
        return ChainAccountant(request.chains_with_start).schedule_loss(rates, "ignorant").epsilon
    if mechanism == "mqm-exact" and members:
        return float(quilt_accountant(members, charges([release], release.last)).max())
    chains = request.chains
    if isinstance(chains, tuple) and request.start is None:
        chains = tuple(_later(chain, release.first - 1) for chain in chains)
    asked = replace(request, chains=chains, length=release.length, query=release.query, adversary="ignorant")

    def needed(epsilon: float) -> float:
        return window_noise(replace(asked, epsilon=epsilon), mechanism).scale / release.scale

    if mechanism != "mqm-approx":  # noise in proportion to 1 / epsilon
        return needed(1.0)
    # a window is never charged more than all of its ticks, with a little for the rounding of scales
    most = release.length * release.rate * (1.0 + 1e-8)
    low = most
    while needed(low) <= 1.0 and low > 1e-9 * most:
        low /= 2.0
    if needed(low) <= 1.0:
        return low
    root = float(brentq(lambda epsilon: needed(epsilon) - 1.0, low, most, rtol=_FINE))
    while needed(root) > 1.0:
        root *= 1.0 + 4.0 * _FINE
    return root


def _later(chain: MarkovChain, ticks: int) -> MarkovChain:
    if chain.initial is None or chain.is_stationary or not ticks:
        return chain
    return MarkovChain(chain.transition, chain.initial @ np.linalg.matrix_power(chain.transition, ticks))
