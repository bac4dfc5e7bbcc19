"""Losses in nats, from the integers of `fugu.core.leakage`, and outward rounding.

Each margin for floats is named with the errors that it covers; e^x and log x have rigorous bounds.
"""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Context, Decimal
from fractions import Fraction
from functools import lru_cache
from typing import Literal, NamedTuple, Self

from fugu.contract.errors import GuaranteeError
from fugu.core.leakage import BITS, MOST_NATS, ONE, losses

__all__ = [
    "CLOSED_FORM",
    "CONTEXT",
    "HAIR",
    "LOGARITHM",
    "OUTWARD",
    "SIXTEEN_ROUNDINGS",
    "UNIT",
    "UPWARD",
    "WIDE",
    "Adversary",
    "Loss",
    "as_decimal",
    "claimed_ratio",
    "derived_losses",
    "exp_up",
    "float_up",
    "log_up",
    "ratio_below",
    "reversal_error",
]


UNIT = 2.0**-53
"""The relative error of one operation on floats."""
SIXTEEN_ROUNDINGS = 16.0 * UNIT
UPWARD = 1e-15
"""Relative, for nine roundings: the few sums and products at the end of a computation."""
LOGARITHM = 1e-14
"""For the logarithm of a quotient below e^100; relative, for a sum of a few of them."""
HAIR = 1e-14
"""Margin of the constraints of a cone, relative and times up to 11, so that no two are tight together."""
CLOSED_FORM = 1e-13
"""For a leakage in closed form: some hundred roundings, of numbers that may be large."""
OUTWARD = 1e-12
"""Relative, far above the error of thousands of roundings, and far too small to notice."""
WIDE = 1e-11
"""For results of thousands of products of distributions, and of the steps that use them."""


def reversal_error(states: int) -> float:
    """Bound the error of a reversed chain's step by the rounding of its stationary distribution, in nats.

    Elimination without subtractions changes an entry of the matrix at most k - 1 times, by some four roundings. A
    distribution is a sum over trees of products of k - 1 entries (the tree theorem), so it is good to 4 (k - 1)^2
    roundings. The ratio of two means of a step has that error four times.
    """
    return 16.0 * states * (states + 2.0) * UNIT


CONTEXT = Context(prec=50, rounding=ROUND_HALF_EVEN, Emin=-999_999, Emax=999_999)
"""For decimals that are rounded to the nearest, and outward at the end."""
_MAX_NATS = 10_000
# The argument is rounded up by at most 10^-55 (it has at most 5 digits before the point). Decimal rounds e^argument to
# the nearest, and it goes up by one more unit: less than 10^-54 in all, relative to e^x.
_UPWARD = Context(prec=60, rounding=ROUND_CEILING, Emin=-999_999, Emax=999_999)
_DOWNWARD = Context(prec=500, rounding=ROUND_FLOOR, Emin=-999_999, Emax=999_999)


def exp_up(exponent: Fraction) -> Fraction:
    """Return a fraction at least e^exponent, and above it by less than 1e-30 of it; GuaranteeError outside 0..10000."""
    if not 0 <= exponent <= _MAX_NATS:
        raise GuaranteeError(f"a loss of {float(exponent):g} nats in a tick is not in 0..{_MAX_NATS}")
    if exponent == 0:
        return Fraction(1)
    upper_exponent = _UPWARD.divide(Decimal(exponent.numerator), Decimal(exponent.denominator))
    return Fraction(_UPWARD.next_plus(_UPWARD.exp(upper_exponent)))


@lru_cache(maxsize=256)
def ratio_below(epsilon: float) -> int:
    """Return e^epsilon over 2^128, rounded down; GuaranteeError unless epsilon is in (0, 1000] nats."""
    if not 0.0 < epsilon <= MOST_NATS:
        raise GuaranteeError(f"epsilon {epsilon:g} is not above 0 and at most {MOST_NATS}")
    ratio = _DOWNWARD.next_minus(_DOWNWARD.exp(Decimal(epsilon)))
    return int(_DOWNWARD.multiply(ratio, Decimal(1 << BITS)))


def claimed_ratio(epsilon: float) -> int:
    """Return the ratio of a claimed epsilon, or 0 above 1000 nats, where nothing is promised."""
    return ratio_below(epsilon) if epsilon <= MOST_NATS else 0


def log_up(ratio: Fraction) -> float:
    """Return a float at least log(ratio), for ratio >= 1, and above it by at most two units in its last place."""
    if ratio == 1:
        return 0.0
    upper_ratio = _UPWARD.divide(Decimal(ratio.numerator), Decimal(ratio.denominator))
    return float_up(_UPWARD.next_plus(_UPWARD.ln(upper_ratio)))


def float_up(value: Decimal | Fraction) -> float:
    """Return the least float that is not below a number, which is infinity above all finite floats."""
    try:
        nearest = float(value)
    except OverflowError:
        return math.inf
    return nearest if nearest >= value else math.nextafter(nearest, math.inf)


def as_decimal(value: Fraction) -> Decimal:
    """Convert a fraction to a decimal of the precision in force."""
    return Decimal(value.numerator) / Decimal(value.denominator)


Adversary = Literal["ignorant", "informed", "universal"]
"""Knowledge of the adversary: which chain of the class it is; also any set of true states; or any side information.

Every adversary knows the chain: none has to learn it first.
"""
derived_losses = lru_cache(maxsize=256)(losses)
"""The losses of `fugu.core.leakage`, cached: policies of a fleet have few classes and tables."""


class Loss(NamedTuple):
    """The true epsilon of a mechanism, in nats, rounded up, by the theorem or bound that `bound` names.

    `epsilon` is the larger direction, `epsilon_01` that of "state 0 rather than 1"; beyond two states all are equal.
    """

    epsilon: float
    epsilon_01: float
    epsilon_10: float
    adversary: Adversary
    bound: str

    @classmethod
    def of(cls, ratios: tuple[int, int], adversary: Adversary, bound: str) -> Self:
        """Convert likelihood ratios over 2^128 to a loss."""
        epsilons = [log_up(Fraction(ratio, ONE)) for ratio in ratios]
        return cls(max(epsilons), epsilons[0], epsilons[1], adversary, bound)
