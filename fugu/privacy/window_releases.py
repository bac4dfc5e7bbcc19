"""Counts over windows that have been released with given noise: what each of them guarantees by its own mechanism."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import brentq

from fugu.chains.arrays import Floats
from fugu.contract.queries import WINDOW_QUERIES
from fugu.contract.rounding import OUTWARD
from fugu.privacy.accountant import ChainAccountant
from fugu.privacy.accountant.classes import class_of, covered_start
from fugu.privacy.answer_distributions import NoisyCount
from fugu.privacy.chain_class import ChainClassError, MarkovChain
from fugu.privacy.quilt_composition import quilt_accountant
from fugu.privacy.window_mechanisms import Mechanism, WindowRequest, window_noise

__all__ = ["WindowRelease", "charges", "moved_to_the_front", "own_loss"]

QUILTS: tuple[Mechanism, ...] = ("mqm-exact", "mqm-approx")
_FINE = 1e-12


@dataclass(frozen=True)
class WindowRelease:
    """A statistic over a window, plus Laplace noise on every number.

    Attributes:
        first: tick of the window, from 1.
        length: its ticks.
        mechanism: by whose reasoning the noise was chosen.
        scale: of the noise, in ticks.
        query: by name: the number of ticks in some states, or in each state.
    """

    first: int
    length: int
    mechanism: Mechanism
    scale: float
    query: str

    def __post_init__(self) -> None:
        """Refuse what is no window.

        Raises:
            ChainClassError: its first tick, its length or its scale is out of range.
        """
        if self.first < 1 or self.length < 1 or not 0.0 < self.scale < float("inf"):
            raise ChainClassError("a release has a first tick and a length from 1 on, and noise of a scale above 0")

    @property
    def last(self) -> int:
        """Its last tick."""
        return self.first + self.length - 1

    @property
    def rate(self) -> float:
        """What it adds to the loss of a tick, rounded up."""
        return WINDOW_QUERIES[self.query].sensitivity / self.scale * (1.0 + OUTWARD)

    def counts(self, states: int, counted: tuple[int, ...]) -> list[NoisyCount]:
        """The numbers that are released, each a count.

        Args:
            states: k.
            counted: by a count.
        """
        query = WINDOW_QUERIES[self.query]
        sets = query.groups(tuple(range(states)) if query.each else counted)
        return [NoisyCount(self.first, self.last, each, self.scale) for each in sets]


def charges(releases: Sequence[WindowRelease], length: int) -> Floats:
    """(length,) what releases add to the loss of each tick."""
    total = np.zeros(length)
    for release in releases:
        total[release.first - 1 : release.last] += release.rate
    return total * (1.0 + OUTWARD)


def moved_to_the_front(request: WindowRequest, releases: Sequence[WindowRelease]) -> tuple[WindowRelease, ...]:
    """Windows that begin at tick 1, where earlier ticks are no different: of a stationary chain, or of any steps."""
    ahead = min(release.first for release in releases) - 1
    if covered_start(request.accounted) != "stationary" and not class_of(request.chains).changes:
        return tuple(releases)
    return tuple(replace(release, first=release.first - ahead) for release in releases)


def own_loss(request: WindowRequest, members: tuple[MarkovChain, ...], release: WindowRelease) -> float:
    """The epsilon that one release guarantees on its own for every tick, by its mechanism.

    Args:
        request: the class and what a count counts.
        members: that stand for the class; empty where there are no matrices.
        release: any.

    Raises:
        ChainClassError: the mechanism protects no correlated readings, or cannot be had for these chains.
    """
    mechanism = release.mechanism
    if mechanism == "entry":
        raise ChainClassError("entry guarantees nothing for correlated readings")
    if mechanism == "chain":
        rates = charges([release], release.last)
        return ChainAccountant(request.accounted).schedule_loss(rates, "ignorant").epsilon
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
    found = float(brentq(lambda epsilon: needed(epsilon) - 1.0, low, most, rtol=_FINE))
    while needed(found) > 1.0:
        found *= 1.0 + 4.0 * _FINE
    return found


def _later(chain: MarkovChain, ticks: int) -> MarkovChain:
    """The chain from a later tick on."""
    if chain.initial is None or chain.is_stationary or not ticks:
        return chain
    return MarkovChain(chain.transition, chain.initial @ np.linalg.matrix_power(chain.transition, ticks))
