"""Every two-state chain with q and r in intervals, started stationary: what its worst member loses.

Source: docs/privacy.md, "Binary chains in closed form" and "Worst corner".
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from contract.chains import BinaryChains
from contract.guarantee import Adversary
from contract.rounding import UNIT
from gateway.chain.arrays import Floats
from gateway.privacy.accountant.closed_form import certified
from gateway.privacy.accountant.interval_search import worst_informed_losses
from gateway.privacy.accountant.odds_ratio import (
    ODDS_RATIO_BOUND,
    followed,
    odds_ratio_above,
    odds_ratio_losses,
)
from gateway.privacy.accountant.schedule import informed_losses
from gateway.privacy.chain_class import MarkovChain

__all__ = ["ALTERNATING", "IntervalChains"]

ALTERNATING = "alternating bound"
"""Of readings that alternate (q + r > 1): symbols can reach it, a count cannot, because it cannot reward them."""


class IntervalChains:
    """Every stationary two-state chain with q and r in intervals.

    Args:
        chains: the class.
    """

    def __init__(self, chains: BinaryChains) -> None:
        self._chains = chains
        self.states = chains.states
        self.words = f"all stationary two-state chains with q in {list(chains.q)} and r in {list(chains.r)}"
        self._least, self._most = (Fraction(q) + Fraction(r) for q, r in zip(chains.q, chains.r, strict=True))
        self._point = chains.q[0] == chains.q[1] and chains.r[0] == chains.r[1]
        self.sticky: tuple[tuple[float, float], ...] = ((chains.q[0], chains.r[0]),) if self._most < 1 else ()

    def endless(self, pairs: Floats, adversary: Adversary) -> tuple[float, str]:
        """Epsilon and the name of its bound, with the same rates (2, 2) at every tick."""
        epsilon, bound = certified(self._chains, pairs, adversary)
        if bound == "BDP theorem 1" or (self._point and bound == "bridge recursion"):
            return epsilon, self._name
        return epsilon, bound

    def tick_by_tick(self, rates: Floats, adversary: Adversary) -> tuple[Floats, str]:
        """Losses (n, 2, 2) of every tick and the name of the bound."""
        if adversary == "ignorant":
            return _losses(self._chains, rates), self._name
        universal = odds_ratio_losses(self._odds_ratio(), rates)
        if adversary == "universal" or self._most > 1:
            return universal, ODDS_RATIO_BOUND
        if self._point:
            q, r = self._chains.q[0], self._chains.r[0]
            return informed_losses(MarkovChain.stationary([[1 - q, q], [r, 1 - r]]), rates), "bridge recursion"
        return np.minimum(worst_informed_losses(self._chains, rates), universal), "branch and bound"

    def follows(self, length: int, adversary: Adversary) -> bool:
        """Whether a stream of this length is worth following tick by tick."""
        return followed(length, self.states, adversary)

    def work(self, length: int, adversary: Adversary) -> int:
        """Steps times the fourth power of the states that this takes: none that count."""
        return 0

    def quick(self, pairs: Floats) -> float:
        """A bound on what an endless stream loses to those who know no state that is had at once."""
        return self.endless(pairs, "ignorant")[0]

    @property
    def _name(self) -> str:
        """What the recursion along the worst corners is called."""
        if self._most <= 1:
            return "exact"
        return ALTERNATING if self._least >= 1 else "corners"

    def _odds_ratio(self) -> float:
        """The largest odds ratio of a step, or its inverse, rounded up."""
        corners = [(q, r) for q in self._chains.q for r in self._chains.r]
        return odds_ratio_above(max(abs(math.log((1 - q) / q) + math.log((1 - r) / r)) for q, r in corners))


def _losses(chains: BinaryChains, rates: Floats) -> Floats:
    """Losses (n, 2, 2) of every tick to an adversary who knows no state.

    A side is the image under f(u) = ((1-q)u + q)/(ru + 1-r) of the likelihood ratio u beyond it. For u >= 1 it falls
    with q and r, for u <= 1 it rises, so the corners are worst at every step; a stationary chain of two states is its
    own reversal, so both sides are computed alike.

    Args:
        chains: the class.
        rates: (n, 2, 2) per-tick losses.
    """
    ahead = _sides(chains, rates)
    behind = _sides(chains, rates[::-1])[::-1]
    return rates + ahead + behind


def _sides(chains: BinaryChains, rates: Floats) -> Floats:
    (q0, q1), (r0, r1) = chains.q, chains.r
    sides = np.zeros_like(rates)
    for tick in range(len(rates) - 2, -1, -1):
        largest, smallest = (rates[tick + 1] + sides[tick + 1])[[0, 1], [1, 0]]
        margin = 64.0 * UNIT * (1.0 + max(largest, smallest))
        pairs = ((largest, smallest, q0, r0, q1, r1), (smallest, largest, r0, q0, r1, q1))
        for direction, (up, down, low_q, low_r, high_q, high_r) in enumerate(pairs):
            above = _image(np.exp(up), low_q, low_r)
            below = _image(np.exp(-down), high_q, high_r)
            sides[tick, direction, 1 - direction] = max(above, below, 0.0) + margin
    return sides


def _image(u: float, q: float, r: float) -> float:
    return float(np.log(((1.0 - q) * u + q) / (r * u + 1.0 - r)))
