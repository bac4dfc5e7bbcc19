"""What draws of single ticks show of a whole stream, if draws are independent of each other given the states.

The rarest outputs tell most, and no number of trials meets them. But for two states that tend to stay, they are known:
every symbol favours the same state, and every count is beyond what can be. There the accountant's bound is reached,
and it grows with what one tick tells. So a lower bound for one tick, which many draws give closely, is one for the
stream. Source: docs/proofs/chain-accountant.md, "The chain accountant".
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from scipy.special import betaincinv

from fugu.chains.arrays import Floats, Ints
from fugu.contract.chains import BinaryChains
from fugu.contract.errors import GuaranteeError
from fugu.contract.guarantee import Adversary, ratio_loss
from fugu.contract.policy import Policy
from gateway.audit.told import Definition
from gateway.releases.amplification import log_chance

__all__ = ["extended_epsilon", "largest_scale", "symbol_bounds"]

_BISECTIONS = 60
_DIGITS = 10**9


def extended_epsilon(
    policy: Policy,
    heard: bool,
    counted: Sequence[tuple[Definition, Ints]],
    symbols: Sequence[Ints],
    adversary: Adversary,
    level: float,
) -> float | None:
    """The epsilon that all outputs together have at least.

    Args:
        heard: whether symbols are.
        counted: counts that it hears, each with (n,) noises that were drawn.
        symbols: for each state those that were drawn in it.
        adversary: that the bound is for; it is reached for the ignorant and the informed.
        level: the probability that it is wrong.

    Returns:
        Nats; none where it is not known that the bound is reached.
    """
    chains = policy.chains
    reached = isinstance(chains, BinaryChains) and chains.q[0] + chains.r[0] <= 1 and adversary != "universal"
    if not reached or any((len(one.groups) > 1 or one.terms > 1) and not (heard and one.symbols) for one, _ in counted):
        return None
    share = level / (1 + len(counted))
    logs, spread = np.zeros(2), 0.0
    for one, noise in counted:
        if one.symbols and heard:
            continue
        scale = largest_scale(noise, share)
        if one.symbols:
            spread += one.overlap / scale
        else:
            logs += one.overlap / scale
    if heard:
        low, high = symbol_bounds(symbols, share)
        logs += [max(0.0, float(np.log(low[x] / high[1 - x]).max())) for x in (0, 1)]
    elif spread:
        low, high = symbol_bounds(symbols, share)
        gain = math.expm1(min(spread, 200.0))
        told = np.log1p(low * gain) - np.log1p(high[::-1] * gain)  # a set of one symbol, for two states
        logs += np.maximum(told.max(axis=1), 0.0)
    ratios = [Fraction(math.floor(math.exp(one) * _DIGITS), _DIGITS) for one in logs]
    try:
        return ratio_loss(chains, ratios[0], ratios[1], adversary).epsilon
    except GuaranteeError:
        return None


def symbol_bounds(drawn: Sequence[Ints], level: float) -> tuple[Floats, Floats]:
    """Bounds (k, m), low and high, that all probabilities of symbols are within (Clopper and Pearson)."""
    symbols = max(int(own.max(initial=0)) for own in drawn) + 1
    each = level / (2 * len(drawn) * symbols)
    low, high = np.zeros((len(drawn), symbols)), np.ones((len(drawn), symbols))
    for x, own in enumerate(drawn):
        for z, hits in enumerate(np.bincount(own, minlength=symbols)):
            low[x, z] = betaincinv(hits, own.size - hits + 1, each) if hits else 0.0
            high[x, z] = betaincinv(hits + 1, own.size - hits, 1 - each) if hits < own.size else 1.0
    return low, high


def largest_scale(noise: Ints, level: float) -> float:
    """The largest scale of discrete Laplace noise that (n,) noises are not too small for (Chernoff)."""
    size, limit = int(np.abs(noise).sum()), math.log(level)
    mean = max(size, 1) / max(noise.size, 1)
    low = high = 1 / math.log((1 + math.hypot(1.0, mean)) / mean)  # the likeliest
    while log_chance(Fraction(high), noise.size, size) >= limit and high < 1e9:
        high *= 2
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        low, high = (middle, high) if log_chance(Fraction(middle), noise.size, size) >= limit else (low, middle)
    return high
