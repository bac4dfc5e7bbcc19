"""What needs no recursion: the device's own bounds of endless streams, and the allowance of two sticky states.

Source: docs/privacy.md, "Binary chains in closed form".
"""

from __future__ import annotations

import math
from fractions import Fraction

from contract.chains import BinaryChains, BoundedChains
from contract.guarantee import Adversary, ratio_loss
from contract.rounding import FOUR_ROUNDINGS
from gateway.chain.arrays import Floats

__all__ = ["allowance", "certified"]

_MOST_RATE = 160.0


def certified(chains: BinaryChains | BoundedChains, pairs: Floats, adversary: Adversary) -> tuple[float, str]:
    """Epsilon of an endless stream and the name of its bound, by the device's own check in exact arithmetic.

    Args:
        chains: the class.
        pairs: (k, k) per-tick loss, the same at every tick.
        adversary: what the adversary may know.
    """
    if pairs.max() > _MOST_RATE:
        return math.inf, "none"
    if chains.states == 2:
        ratios = [_ratio_above(pairs[0, 1]), _ratio_above(pairs[1, 0])]
    else:
        ratios = [_ratio_above(pairs.max())] * 2
    found = ratio_loss(chains, ratios[0], ratios[1], adversary)
    return found.epsilon, found.bound


def _ratio_above(rate: float) -> Fraction:
    return Fraction(math.exp(rate) * (1.0 + FOUR_ROUNDINGS)) if rate > 0.0 else Fraction(1)


def allowance(q: float, r: float, epsilon: float) -> float:
    """The largest rate of an endless stream of a positively correlated two-state chain, in one direction.

    Args:
        q: Pr(next state 1 given state 0), inside (0, 1).
        r: Pr(next state 0 given state 1), inside (0, 1), with q + r < 1.
        epsilon: in nats, to an adversary who knows no state.

    Returns:
        The rate in nats, to within rounding.
    """
    e = math.exp(min(epsilon, 500.0))
    b = r * e - q
    root = math.sqrt(b * b + 4.0 * (1.0 - q) * (1.0 - r) * e)
    u = 2.0 * e * (1.0 - q) / (b + root) if b > 0.0 else (root - b) / (2.0 * (1.0 - r))
    return epsilon - 2.0 * math.log(u)
