"""The scale of a planned window as it is written into a policy: a fraction that the device's own check accepts.

A plan finds the least scale as a real number; a policy holds a fraction, and the device judges the class of chains by
arithmetic of its own. So the number is rounded up to a fraction of eight digits, and raised until the check of a policy
with that scale and the same promise passes.

Source: docs/proofs/device-windows.md, "Windows counted on the device"; docs/proofs/chain-accountant.md, "Stretches of
time".
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from scipy.optimize import brentq

from fugu.contract.chains import BinaryChains, BoundedChains, ChainClass, FiniteChains, odds_ratio
from fugu.contract.errors import GuaranteeError
from fugu.contract.exponential import exp_up
from fugu.contract.guarantee import Adversary, ratio_loss
from fugu.contract.stretches import Stretch, stretch_epsilon, stretches
from fugu.privacy.accountant import ChainAccountant, Chains
from fugu.privacy.accountant.classes import class_of
from fugu.privacy.chain_class import ChainClassError
from fugu.privacy.window_mechanisms import WindowNoise, WindowRequest

__all__ = ["PlannedScale", "declared_class", "lawful_scale", "planned_scale"]

_MOST = 9_999_999_999  # of numerator and denominator: fugu.contract.windows
_DIGITS = 10**7
_FINE = Fraction(1, 10**7)
_WIDEST = 64
_MOST_CHAINS = 8


@dataclass(frozen=True)
class PlannedScale:
    """A scale, and what holds with it.

    Attributes:
        scale: of the noise on every number, in ticks, as a policy writes it.
        epsilon: what a single tick loses with it, rounded up; infinite without a bound.
        device: the class of chains of a policy whose windows a device accepts with this scale; none if the plan is for
            one window only, does not protect, or no policy can declare such chains.
        raised: whether the device's check needed more noise than the plan did.
        stretches: what whole stretches lose.
    """

    scale: Fraction
    epsilon: float
    device: ChainClass | None
    raised: bool
    stretches: tuple[Stretch, ...]


def lawful_scale(least: float | Fraction) -> Fraction:
    """Round a scale up to a fraction that a policy may hold, by less than 1e-7 of it.

    From 1 on it is a decimal number, below the inverse of one.

    Args:
        least: above 0.

    Raises:
        ChainClassError: it is more than a policy can hold.
    """
    exact = Fraction(least)
    if exact > _MOST:
        raise ChainClassError(f"noise of scale {float(exact):.6g} is more than a policy can hold")
    if exact >= 1:
        tens = 1
        while exact * tens < _DIGITS and tens < 10**9:
            tens *= 10
        while math.ceil(exact * tens) > _MOST:
            tens //= 10
        return Fraction(math.ceil(exact * tens), tens)
    tens = 1
    while tens / exact < _DIGITS:
        tens *= 10
    return Fraction(tens, min(math.floor(tens / exact), _MOST))


def declared_class(chains: Chains, adversary: Adversary) -> ChainClass | None:
    """The narrowest class that a policy can declare and that holds these chains and starts; none if there is none.

    Args:
        adversary: of the plan; the universal one is promised for every start anyway.
    """
    if not isinstance(chains, tuple):
        return chains
    rows = tuple(tuple(tuple(float(p) for p in row) for row in chain.transition) for chain in chains)
    if adversary == "universal":
        try:
            return BoundedChains(states=chains[0].states, odds_ratio=max(map(odds_ratio, rows)))
        except ValueError:
            return None
    if not all(chain.is_stationary for chain in chains):
        return None
    if chains[0].states == 2 and len(chains) == 1 and 0.0 < rows[0][0][1] < 1.0 and 0.0 < rows[0][1][0] < 1.0:
        (_, q), (r, _) = rows[0]
        return BinaryChains(q=(q, q), r=(r, r))
    try:
        return FiniteChains(transitions=rows)
    except ValueError:
        return None


def planned_scale(request: WindowRequest, noise: WindowNoise, period_us: int | None) -> PlannedScale:
    """Write the scale of a mechanism as a policy holds it, and derive what holds with it.

    Args:
        period_us: microseconds from tick to tick, or none if that is not known.

    Raises:
        ChainClassError: no policy can hold such a scale.
    """
    scale = lawful_scale(noise.scale)
    declared = None
    if noise.composes and request.segments is None:  # which no device can check
        declared = declared_class(request.accounted, request.adversary)
    accepted = scale
    if declared is not None:
        accepted = _raised(scale, request, declared)
    rate = request.sensitivity / float(accepted) * (1.0 + 2.0**-50)
    chains = request.accounted
    accountant = ChainAccountant(chains)
    alike = request.life is None and class_of(chains).equal_leakages(request.adversary)
    try:
        single = accountant.loss(rate, request.adversary, request.life).epsilon
    except ChainClassError:
        single = math.inf
    told = stretches(single, rate, period_us, equal_leakages=alike)
    if request.length is not None:
        told = tuple(_within(stretch, request.length, single, rate) for stretch in told)
    return PlannedScale(accepted, single, declared, accepted > scale, told)


def _within(stretch: Stretch, length: int, single: float, rate: float) -> Stretch:
    """A stretch of a stream that ends: it has no more ticks than that, and its past and future leak differently."""
    ticks = min(stretch.ticks, length)
    return Stretch(stretch.name, ticks, stretch_epsilon(single, ticks, rate, equal_leakages=False))


def _excess(scale: Fraction, request: WindowRequest, declared: ChainClass) -> float:
    """By how much the device's check finds a policy with this scale above its promise; 0 or below: it is accepted."""
    ratio = exp_up(request.sensitivity / scale)
    try:
        return min(ratio_loss(declared, ratio, ratio, request.adversary).epsilon, 1e6) - request.epsilon
    except GuaranteeError:
        return 1e6


def _raised(scale: Fraction, request: WindowRequest, declared: ChainClass) -> Fraction:
    """The least lawful scale above a refused one that is accepted, to some ten-millionths."""

    def excess(factor: float) -> float:
        return _excess(lawful_scale(scale * Fraction(factor)), request, declared)

    if _excess(scale, request, declared) <= 0.0:
        return scale
    high = 1.0 + float(_FINE)
    while excess(high) > 0.0:
        if high > _WIDEST:
            raise ChainClassError("the device's check accepts no noise for such chains")
        high = 1.0 + 4.0 * (high - 1.0)
    factor, back = float(brentq(excess, 1.0, high, xtol=1e-9, rtol=1e-8)), float(_FINE)
    while excess(factor) > 0.0:
        factor *= 1.0 + back
        back *= 2.0
    return lawful_scale(scale * Fraction(factor))
