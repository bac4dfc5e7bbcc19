"""Classes of chains that are sampled less often.

A chain P seen at every D-th tick is the chain P^D: less correlated, so that the same epsilon needs less noise.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from fugu.contract.chains import BinaryChains, BoundedChains, FiniteChains, odds_ratio
from fugu.contract.errors import FuguError
from fugu.contract.rounding import UNIT, WIDE

__all__ = [
    "DecimationError",
    "decimated_bounded",
    "decimated_interval",
    "decimated_known",
    "decimated_odds_ratio",
    "decimated_transition",
]

_LARGEST = 1.0 - UNIT


class DecimationError(FuguError):
    """Sampled that rarely, a class of chains leaves the range that a guarantee can be given for."""


def decimated_transition(transition: NDArray[np.float64], step: int) -> NDArray[np.float64]:
    """P^D of a row-stochastic P (k, k), D >= 1."""
    power = np.linalg.matrix_power(transition, step)
    return np.asarray(power / power.sum(axis=1, keepdims=True))


def decimated_odds_ratio(ratio: float, step: int) -> float:
    """Bound the odds ratio of a product of D >= 1 matrices, each with odds ratio at most `ratio` >= 1, rounded up.

    The logarithm of the odds ratio is the projective diameter of a positive matrix, and t = tanh(log(ratio) / 4) its
    Birkhoff contraction; contractions of a product are at most multiplied. So sqrt(ratio_D) = (1 + t^D) / (1 - t^D). It
    is attained by two-state chains with soft evidence between the samples, and holds for chains that change.

    Source: G. Birkhoff, "Extensions of Jentzsch's theorem" (1957), theorem 3 and its corollary.
    """
    if step == 1 or ratio == 1.0:
        return ratio
    contraction = math.tanh(math.log(ratio) / 4.0) ** step * (1.0 + WIDE)
    if not contraction < 1.0:
        return ratio
    return min(ratio, ((1.0 + contraction) / (1.0 - contraction)) ** 2 * (1.0 + WIDE))


def decimated_interval(chains: BinaryChains, step: int) -> BinaryChains:
    """Return intervals that hold q and r of P^D for every chain P of a class, D > 1.

    q_D = q/(q+r) (1 - l^D) and r_D = r/(q+r) (1 - l^D) with l = 1-q-r.

    Where l >= 0 on the whole box, q_D grows with q and falls with r (and r_D the other way round), so that corners are
    extreme: every chain with l >= 0 is stochastically monotone, and raising q, or lowering r, makes each row larger;
    hence every power is larger (Daley 1968, comparison of monotone chains). Where l < 0 is possible, the two factors
    are bounded one by one: q/(q+r) = 1/(1 + r/q) at corners, and l^D over the interval of l (monotone on each side of
    zero). That is a cover, not always the smallest. Raises DecimationError if a probability rounds to 0.
    """
    (q0, q1), (r0, r1) = chains.q, chains.r
    if Fraction(q1) + Fraction(r1) <= 1:
        q = (_step_probability(q0, r1, step), _step_probability(q1, r0, step))
        r = (_step_probability(r0, q1, step), _step_probability(r1, q0, step))
    else:
        # In fractions: 1 - l^D of a small q + r is the difference of numbers that a float cannot tell apart.
        low, high = _power_range(1 - Fraction(q1) - Fraction(r1), 1 - Fraction(q0) - Fraction(r0), step)
        least, most = float(1 - high), float(1 - low)
        q = (q0 / (q0 + r1) * least, q1 / (q1 + r0) * most)
        r = (r0 / (r0 + q1) * least, r1 / (r1 + q0) * most)
    if min(*q, *r) <= 0.0:
        raise DecimationError(f"at every {step}th tick, a transition probability of the class rounds to 0")
    return BinaryChains(q=_outward(q), r=_outward(r))


def decimated_known(transitions: Sequence[NDArray[np.float64]], step: int) -> FiniteChains:
    """Return the powers of known chains, as good as floats are; DecimationError if one does not visit all states."""
    powers = [decimated_transition(transition, step).tolist() for transition in transitions]
    try:
        return FiniteChains(transitions=tuple(tuple(map(tuple, power)) for power in powers))
    except ValueError:
        raise DecimationError(f"at every {step}th tick, a chain does not visit all its states for ever") from None


def decimated_bounded(chains: BoundedChains, step: int) -> BoundedChains:
    """Return the class of every product of steps, with the power of the typical member."""
    ratio = decimated_odds_ratio(chains.odds_ratio, step)
    if chains.transition is None:
        return BoundedChains(states=chains.states, odds_ratio=ratio)
    power = decimated_transition(np.array(chains.transition), step)
    transition = tuple(tuple(float(p) for p in row) for row in power)
    return BoundedChains(states=chains.states, odds_ratio=max(ratio, odds_ratio(transition)), transition=transition)


def _step_probability(leave: float, enter: float, step: int) -> float:
    """Return leave/(leave+enter) (1 - (1-leave-enter)^D) for leave + enter <= 1, without cancellation."""
    total = leave + enter
    return leave / total if total >= 1.0 else leave / total * -math.expm1(step * math.log1p(-total))


def _power_range(low: Fraction, high: Fraction, step: int) -> tuple[Fraction, Fraction]:
    """The range of l^D for l in [low, high]."""
    ends = (low**step, high**step)
    return (Fraction(0), max(ends)) if step % 2 == 0 and low < 0 < high else (min(ends), max(ends))


def _outward(interval: tuple[float, float]) -> tuple[float, float]:
    """Widen an interval by more than the rounding errors, but stay inside (0, 1)."""
    return interval[0] * (1.0 - WIDE), min(interval[1] * (1.0 + WIDE), _LARGEST)
