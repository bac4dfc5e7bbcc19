"""Likelihood ratios as integers: what a device compares weights with."""

from __future__ import annotations

from fractions import Fraction

from contract.exponential import exp_up
from gateway.dphmm.graphs import GraphError

__all__ = ["RATIO_BITS", "floor_exp", "noise_ratio"]

RATIO_BITS = 24
"""Ratios are compared as floor(e^epsilon * 2^24) over 2^24."""

# exp_up is above e^x by less than 1e-30 of it: what is left after this is below.
_BELOW = 1 - Fraction(1, 10**30)
_MOST = 20


def floor_exp(epsilon: Fraction | int | float, bits: int = RATIO_BITS) -> int:
    """floor(e^epsilon * 2^bits), never above it.

    Args:
        epsilon: above 0 and at most 20, in nats.
        bits: of the fraction.

    Raises:
        GraphError: epsilon is out of range.
    """
    if not 0 < epsilon <= _MOST:
        raise GraphError(f"epsilon of a table must be above 0 and at most {_MOST}, got {epsilon}")
    return int(exp_up(Fraction(epsilon)) * _BELOW * (1 << bits))


def noise_ratio(epsilon: Fraction | int | float) -> Fraction:
    """q, the largest step of a staircase for which 1/q passes the check of a table: 2^24 / floor(e^epsilon * 2^24).

    Raises:
        GraphError: epsilon is out of range, or so small (below 2^-24) that no noise would be enough.
    """
    ratio = Fraction(1 << RATIO_BITS, floor_exp(epsilon))
    if ratio >= 1:
        raise GraphError(f"epsilon {float(epsilon):g} is below 2^-{RATIO_BITS}, the step of the check")
    return ratio
