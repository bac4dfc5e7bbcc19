"""Upper bounds of e^x as fractions and of log x as floats: the bridge between losses in nats and likelihood ratios."""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, Context, Decimal
from fractions import Fraction

from fugu.contract.errors import GuaranteeError

__all__ = ["exp_up", "log_up"]

_MOST = 10_000
# The argument is rounded up by at most 10^-55 (it has at most 5 digits before the point), and e^argument, which
# Decimal rounds to the nearest, goes up by one more unit: less than 10^-54 in all, relative to e^x.
_UPWARD = Context(prec=60, rounding=ROUND_CEILING, Emin=-999_999, Emax=999_999)


def exp_up(exponent: Fraction) -> Fraction:
    """Return a fraction that is at least e^exponent, and above it by less than 1e-30 of it.

    Args:
        exponent: A loss in nats, in 0..10000.

    Raises:
        GuaranteeError: The exponent is negative, or too large to be a guarantee of anything.
    """
    if not 0 <= exponent <= _MOST:
        raise GuaranteeError(f"a loss of {float(exponent):g} nats in a tick is not in 0..{_MOST}")
    if exponent == 0:
        return Fraction(1)
    above = _UPWARD.divide(Decimal(exponent.numerator), Decimal(exponent.denominator))
    return Fraction(_UPWARD.next_plus(_UPWARD.exp(above)))


def log_up(ratio: Fraction) -> float:
    """Return a float that is at least log(ratio), and above it by no more than two units in its last place.

    Args:
        ratio: A likelihood ratio, at least 1.
    """
    if ratio == 1:
        return 0.0
    above = _UPWARD.divide(Decimal(ratio.numerator), Decimal(ratio.denominator))
    logarithm = _UPWARD.next_plus(_UPWARD.ln(above))
    nearest = float(logarithm)
    return nearest if Decimal(nearest) >= logarithm else math.nextafter(nearest, math.inf)
