"""One object for each class of chains: its bounds, its starts, and what it is if a stream is sampled less often."""

from __future__ import annotations

from functools import singledispatch
from typing import Protocol

from fugu.chains.arrays import Floats
from fugu.contract.chains import BinaryChains, BoundedChains, ChainClass, FiniteChains, JointChains
from fugu.contract.guarantee import Adversary
from fugu.privacy.accountant.bounded import IntervalChains, OddsRatioChains
from fugu.privacy.accountant.finite import KnownChains
from fugu.privacy.accountant.shown import ShownBoundedChains, ShownChains
from fugu.privacy.chain_class import Chains, Covered, MarkovChain, Start

__all__ = ["class_of", "covered_start", "decimated_class", "known_chains", "started"]


class ClassOfChains(Protocol):
    """What is asked of a class of chains; each kind of class has its own bounds."""

    @property
    def states(self) -> int:
        """k, the number of states."""

    @property
    def secrets(self) -> Floats:
        """(k, k), 1 for any two states that must not be told apart, 0 for others."""

    @property
    def words(self) -> str:
        """The class in words."""

    @property
    def sticky(self) -> tuple[tuple[float, float], ...]:
        """q and r of the worst chains, if all have two states, a stationary start, and q + r < 1; else none."""

    def endless(self, rate: Floats, adversary: Adversary) -> tuple[float, str]:
        """Epsilon and the name of its bound, with the same rate (k, k) at every tick."""

    def tick_by_tick(self, rates: Floats, adversary: Adversary) -> tuple[Floats, str]:
        """Losses (n, k, k) of every tick, with rates (n, k, k), and the name of the bound."""

    def follows(self, length: int, adversary: Adversary) -> bool:
        """Whether a stream of this length is worth following: an endless one that is stationary loses hardly more."""

    def work(self, length: int, adversary: Adversary) -> int:
        """Steps times the fourth power of the states that following so many ticks takes."""

    def quick(self, rate: Floats) -> float:
        """A bound on what an endless stream loses to those who know no state that is had at once; may be infinite."""

    @property
    def changes(self) -> bool:
        """Whether steps may change from tick to tick."""

    @property
    def covered_start(self) -> Covered:
        """The starts that the class has."""

    def equal_leakages(self, adversary: Adversary) -> bool:
        """Whether past and future leak alike."""

    def started(self, start: Start | None) -> Chains:
        """As the function of this name."""

    def followed(self, start: Start | None) -> tuple[MarkovChain, ...] | BinaryChains:
        """As `known_chains`."""

    def decimated(self, step: int) -> ChainClass:
        """As `decimated_class`, for more than one step."""


@singledispatch
def class_of(chains: Chains) -> ClassOfChains:
    """The object of a class of chains.

    Raises:
        ChainClassError: a set of chains is empty, or its chains have different numbers of states.
    """
    raise TypeError(f"{type(chains).__name__} is no class of chains")


class_of.register(tuple, KnownChains)
class_of.register(BinaryChains, IntervalChains)
class_of.register(BoundedChains, OddsRatioChains)


@class_of.register
def _(chains: FiniteChains) -> ClassOfChains:
    return KnownChains(tuple(MarkovChain.stationary(transition) for transition in chains.transitions))


@class_of.register
def _(chains: JointChains) -> ClassOfChains:
    return ShownBoundedChains(chains) if chains.changes else ShownChains(chains)


def started(chains: Chains, start: Start | None) -> Chains:
    """A class with a start, for the chain accountant.

    Args:
        chains: of any kind.
        start: the start to be covered; None for the one that the class comes with.

    Returns:
        A class that holds every chain of the given one with that start.

    Raises:
        ChainClassError: a chain has no single stationary distribution, or there is no bound for any start.
    """
    return chains if start is None else class_of(chains).started(start)


def covered_start(chains: Chains) -> Covered:
    """The starts that a class has."""
    return class_of(chains).covered_start


def known_chains(chains: Chains, start: Start | None = None) -> tuple[MarkovChain, ...] | BinaryChains:
    """The chains of a class with a start, or an interval of them, for mechanisms that follow one after another.

    Raises:
        ChainClassError: a chain has no single stationary distribution, or the class bounds odds ratios only, or is of
            several streams.
    """
    return class_of(chains).followed(start)


def decimated_class(chains: ChainClass, step: int) -> ChainClass:
    """Return a class that holds P^D for every stationary chain P of a class; for bounded chains, every product.

    Args:
        chains: of the ticks.
        step: D >= 1.

    Raises:
        DecimationError: a probability of the class rounds to 0 or 1, or the class is of one period.
    """
    return chains if step == 1 else class_of(chains).decimated(step)
