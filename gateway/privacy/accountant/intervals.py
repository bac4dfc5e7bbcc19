"""The chain accountant, tick by tick, for classes that are not finite: intervals of q and r, bounded odds ratios.

Source: docs/privacy.md, "Binary chains in closed form".
"""

from __future__ import annotations

import numpy as np

from contract.chains import BinaryChains
from gateway.chain.kernel import Floats
from gateway.privacy.accountant.odds_ratio import odds_ratio_step

__all__ = ["interval_losses", "odds_ratio_losses"]

_UNIT = 2.0**-53


def interval_losses(chains: BinaryChains, rates: Floats) -> Floats:
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
        margin = 64.0 * _UNIT * (1.0 + max(largest, smallest))
        pairs = ((largest, smallest, q0, r0, q1, r1), (smallest, largest, r0, q0, r1, q1))
        for direction, (up, down, low_q, low_r, high_q, high_r) in enumerate(pairs):
            above = _image(np.exp(up), low_q, low_r)
            below = _image(np.exp(-down), high_q, high_r)
            sides[tick, direction, 1 - direction] = max(above, below, 0.0) + margin
    return sides


def _image(u: float, q: float, r: float) -> float:
    return float(np.log(((1.0 - q) * u + q) / (r * u + 1.0 - r)))


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
