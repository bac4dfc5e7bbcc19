"""The chain accountant for an endless stream of one chain.

Source: docs/privacy.md, "The chain accountant".
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import cached_property

import numpy as np

from contract.chains import BinaryChains, BoundedChains
from contract.guarantee import Adversary, ratio_loss
from contract.rounding import reversal_error
from gateway.chain.kernel import Floats, Ints
from gateway.privacy.accountant.endless_side import EndlessSide
from gateway.privacy.accountant.inner_maximum import EXACT_STATES, step
from gateway.privacy.accountant.reversal import reversed_stationary
from gateway.privacy.accountant.schedule import left_sides
from gateway.privacy.chain_class import ChainClassError, MarkovChain

__all__ = ["ALTERNATING", "MOST_WORK", "ChainMember", "contract_loss", "interval_name", "recursion_name"]

ALTERNATING = "alternating bound"
"""Of readings that alternate (q + r > 1): symbols can reach it, a count cannot, because it cannot reward them."""

_LONGEST_START = 4096
_MOST_RATE = 160.0
_FORGOTTEN = 1e-9
_HARDLY_FORGOTTEN = 1e-3
_TIGHT = 1e-10
MOST_WORK = 3 * 10**8
"""Steps times the fourth power of the states: seconds."""


class ChainMember:
    """One chain of a class, with what endless streams need of it.

    Args:
        chain: the chain, with its start.
    """

    def __init__(self, chain: MarkovChain) -> None:
        self.chain = chain

    @property
    def rates(self) -> tuple[float, float] | None:
        """q and r of a stationary two-state chain that changes both ways; else none."""
        if self.chain.states != 2 or not self.chain.is_stationary:
            return None
        q, r = float(self.chain.transition[0, 1]), float(self.chain.transition[1, 0])
        return (q, r) if 0.0 < q < 1.0 and 0.0 < r < 1.0 else None

    @cached_property
    def _support(self) -> Ints:
        """Indices of the states of the stationary law."""
        return np.flatnonzero(self.chain.stationary_law)

    @cached_property
    def _future(self) -> EndlessSide:
        inside = self.chain.transition[np.ix_(self._support, self._support)]
        return EndlessSide(inside / inside.sum(axis=1, keepdims=True))

    @cached_property
    def _past(self) -> EndlessSide:
        inside, law = self._future.transition, self.chain.stationary_law[self._support]
        if len(inside) <= 2:  # two states are their own reversal
            return self._future
        joint = (law[:, None] * inside).T
        backward = joint / joint.sum(axis=1, keepdims=True)
        return EndlessSide(backward, reversal_error(len(inside)))

    def endless(self, pairs: Floats, adversary: Adversary) -> tuple[float, str]:
        """Epsilon and the name of its bound.

        Args:
            pairs: (k, k) per-tick loss, the same at every tick.
            adversary: ignorant or informed.

        Raises:
            ChainClassError: the start is not stationary, and is not forgotten.
        """
        if self.rates is not None:
            q, r = self.rates
            return contract_loss(BinaryChains(q=(q, q), r=(r, r)), pairs, adversary)
        if not self.chain.is_stationary:
            return self._endless_from_start(pairs, adversary)
        rate = pairs[np.ix_(self._support, self._support)]
        sides = []
        for side in (self._future, self._past):
            bound = side.ignorant(rate)
            sides.append(side.informed(rate, bound) if adversary == "informed" else bound)
        return _upward(float((rate + sides[0] + sides[1]).max())), self._name(rate, sides[0], adversary)

    def quick(self, pairs: Floats) -> float:
        """A bound on epsilon for a stationary start that is had at once."""
        rate = pairs[np.ix_(self._support, self._support)]
        return float((rate + self._future.quick(rate) + self._past.quick(rate)).max())

    def _endless_from_start(self, pairs: Floats, adversary: Adversary) -> tuple[float, str]:
        """A start that is not stationary: the left sides of all ticks, until the start is forgotten."""
        stationary = reversed_stationary(self.chain)
        if stationary is None:
            raise ChainClassError("an endless stream with this start needs a chain that visits all its states for ever")
        law, kernel, order = stationary
        future = self._future.ignorant(pairs)
        limit = self._past.ignorant(pairs)
        others = 1.0 - np.eye(len(law))
        ticks = 64
        error = reversal_error(len(law))
        while (off := self._distance(ticks, law) + 1e-13 * ticks + error) > _FORGOTTEN and ticks < _LONGEST_START:
            ticks *= 2
        if not off < _HARDLY_FORGOTTEN:
            raise ChainClassError("the chain forgets its start too slowly: give it a stationary start, or a length")
        if ticks * len(law) ** 4 > MOST_WORK:
            raise ChainClassError(
                f"{ticks} ticks, until its start is forgotten, are too many to follow for {len(law)} states: give it "
                "a stationary start, or merge states"
            )
        sides = left_sides(self.chain, np.broadcast_to(pairs, (ticks, *pairs.shape)))
        extra = 2.0 * off * others
        back = step(kernel, order, extra).T + error * others
        tail = self._past.certified(
            np.maximum(sides[-1], limit), lambda bound: step(kernel, order, pairs + bound + extra) + back
        )
        reached = float((pairs + future + sides.max(axis=0)).max())
        past = np.maximum(sides.max(axis=0), tail)
        if adversary == "informed":
            past = np.maximum(past, self._past.informed(pairs, limit))
            future = self._future.informed(pairs, future)
        epsilon, name = float((pairs + future + past).max()), recursion_name(self.chain)
        # The tail is for all later ticks at once, and no tick need have it.
        return _upward(epsilon), name if reached >= epsilon * (1.0 - _TIGHT) else "forgotten-start bound"

    def _distance(self, ticks: int, law: Floats) -> float:
        """The largest |log| of the law after so many ticks over the stationary one."""
        power = np.linalg.matrix_power(self.chain.transition, ticks - 1)
        laws = power if self.chain.initial is None else self.chain.initial @ power
        with np.errstate(divide="ignore"):
            return float(np.abs(np.log(laws / law)).max())

    def _name(self, rate: Floats, side: Floats, adversary: Adversary) -> str:
        if self.chain.states <= EXACT_STATES:
            return recursion_name(self.chain)
        if adversary == "informed" or side.max() >= self._future.quilt_bound(rate).max():
            return "quilts"
        hockey = self._future.hockey_stick(float(rate.max()))
        return "hockey-stick" if side.max() >= hockey else "transport"


def contract_loss(chains: BinaryChains | BoundedChains, pairs: Floats, adversary: Adversary) -> tuple[float, str]:
    """Epsilon and the name of its bound, by the device's own check in exact arithmetic."""
    if pairs.max() > _MOST_RATE:
        return math.inf, "none"
    if chains.states == 2:
        ratios = [_ratio_above(pairs[0, 1]), _ratio_above(pairs[1, 0])]
    else:
        ratios = [_ratio_above(pairs.max())] * 2
    found = ratio_loss(chains, ratios[0], ratios[1], adversary)
    if not isinstance(chains, BinaryChains):
        return found.epsilon, found.bound
    point = chains.q[0] == chains.q[1] and chains.r[0] == chains.r[1]
    if found.bound == "BDP theorem 1" or (point and found.bound == "bridge recursion"):
        return found.epsilon, interval_name(chains)
    return found.epsilon, found.bound


def _ratio_above(rate: float) -> Fraction:
    return Fraction(math.exp(rate) * (1.0 + 2.0**-51)) if rate > 0.0 else Fraction(1)


def recursion_name(chain: MarkovChain) -> str:
    """What the recursion along a chain is called."""
    if chain.states > 2:
        return "linear programme" if chain.states <= EXACT_STATES else "transport"
    if chain.initial is None:
        return "any-start bound"  # each tick's law is the worst one, and no start need have them all
    (stay0, q), (r, stay1) = (tuple(Fraction(float(p)) for p in row) for row in chain.transition)
    return "exact" if stay0 * stay1 >= q * r else ALTERNATING


def interval_name(chains: BinaryChains) -> str:
    """What the recursion along the worst corners of an interval class is called."""
    if Fraction(chains.q[1]) + Fraction(chains.r[1]) <= 1:
        return "exact"
    return ALTERNATING if Fraction(chains.q[0]) + Fraction(chains.r[0]) >= 1 else "corners"


def _upward(value: float) -> float:
    return value * (1.0 + 1e-15) if math.isfinite(value) else math.inf
