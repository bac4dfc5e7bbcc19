"""Steps of which nothing is known but a bound on their odds ratio: any start, any side information.

Source: docs/privacy.md, "Binary chains in closed form" (the universal adversary); Birkhoff (1957).
"""

from __future__ import annotations

import math

import numpy as np

from contract.chains import BoundedChains
from contract.guarantee import Adversary
from contract.rounding import LOGARITHM, OUTWARD, SIDE, UNIT
from gateway.chain.arrays import Floats
from gateway.privacy.accountant.closed_form import certified
from gateway.privacy.accountant.inner_maximum import EXACT_STATES

__all__ = [
    "ODDS_RATIO_BOUND",
    "OddsRatioChains",
    "followed",
    "odds_ratio_above",
    "odds_ratio_loss",
    "odds_ratio_losses",
    "odds_ratio_step",
]

ODDS_RATIO_BOUND = "odds-ratio bound"
_SHORT = 256
_SHORT_INFORMED = 16
_LARGEST_LOG = 700.0  # of an odds ratio that a float can hold


class OddsRatioChains:
    """Every chain, of any start and changing over time, whose steps have bounded odds ratios.

    Args:
        chains: the class.
    """

    def __init__(self, chains: BoundedChains) -> None:
        self._chains = chains
        self.states = chains.states
        self.words = f"all {chains.states}-state chains with odds ratios up to {chains.odds_ratio:g}"
        self.sticky: tuple[tuple[float, float], ...] = ()

    def endless(self, pairs: Floats, adversary: Adversary) -> tuple[float, str]:
        """Epsilon and the name of its bound, with the same rates (k, k) at every tick."""
        return certified(self._chains, pairs, adversary)

    def tick_by_tick(self, rates: Floats, adversary: Adversary) -> tuple[Floats, str]:
        """Losses (n, k, k) of every tick and the name of the bound; the same for all adversaries."""
        return odds_ratio_losses(self._chains.odds_ratio, rates), ODDS_RATIO_BOUND

    def follows(self, length: int, adversary: Adversary) -> bool:
        """Whether a stream of this length is worth following tick by tick."""
        return followed(length, self.states, adversary)

    def work(self, length: int, adversary: Adversary) -> int:
        """Steps times the fourth power of the states that this takes: none."""
        return 0

    def quick(self, pairs: Floats) -> float:
        """A bound on what an endless stream loses to those who know no state that is had at once."""
        return self.endless(pairs, "ignorant")[0]


def followed(length: int, states: int, adversary: Adversary) -> bool:
    """Whether a stationary stream is so short that it loses much less than an endless one, tick by tick."""
    return length <= (_SHORT_INFORMED if adversary == "informed" else _SHORT if states <= EXACT_STATES else 1)


def odds_ratio_above(log_odds: float) -> float:
    """An odds ratio from its logarithm, rounded up; infinite beyond floats."""
    return math.exp(log_odds) * (1.0 + OUTWARD) if log_odds < _LARGEST_LOG else math.inf


def odds_ratio_loss(odds: float, rate: float) -> float:
    """Epsilon of an endless stream, for every adversary and every start, rounded up."""
    return (rate + 2.0 * _side(odds, rate)) * (1.0 + LOGARITHM)


def odds_ratio_losses(odds: float, rates: Floats) -> Floats:
    """Losses (n, k, k) of every tick, for every adversary and every start, when steps have bounded odds ratios."""
    largest = rates.max(axis=(1, 2))
    ahead, behind = np.zeros(len(rates)), np.zeros(len(rates))
    for tick in range(len(rates) - 2, -1, -1):
        ahead[tick] = odds_ratio_step(odds, largest[tick + 1] + ahead[tick + 1])
    for tick in range(1, len(rates)):
        behind[tick] = odds_ratio_step(odds, largest[tick - 1] + behind[tick - 1])
    others = 1.0 - np.eye(rates.shape[1])
    return np.asarray(rates + (ahead + behind)[:, None, None] * others)


def odds_ratio_step(odds: float, bound: float) -> float:
    """One step over kernels of which only the odds ratio is known, rounded up.

    max log(E h / E' h) over h in [1, e^bound] and laws whose likelihood ratio varies by at most the factor `odds`:
    2 log((sqrt(odds G) + 1) / (sqrt(odds) + sqrt(G))), G = e^bound.

    Source: docs/privacy.md, "The chain accountant"; Birkhoff (1957).
    """
    if not np.isfinite(odds):
        return bound
    half_odds, half_bound = np.log(odds) / 2.0, bound / 2.0
    # log((e^(a+b) + 1) / (e^a + e^b)) without overflow
    value = np.logaddexp(half_odds + half_bound, 0.0) - np.logaddexp(half_odds, half_bound)
    return float(max(0.0, 2.0 * value)) + 64.0 * UNIT * (1.0 + bound)


def _side(odds: float, rate: float) -> float:
    """The endless side of steps of bounded odds ratio, for every adversary and every start, rounded up.

    Source: docs/privacy.md, "Binary chains in closed form" (the universal adversary).
    """
    if rate == 0.0 or odds == 1.0:
        return 0.0
    if not np.isfinite(odds):
        return float(np.inf)
    g, root = np.exp(rate / 2.0), np.sqrt(odds)
    w = (root * (g - 1.0) + np.sqrt(odds * (g - 1.0) ** 2 + 4.0 * g)) / (2.0 * g)
    return float(2.0 * np.log(w)) * (1.0 + SIDE) + LOGARITHM
