"""Likelihood ratios as integers: what a device compares weights with."""

from __future__ import annotations

from fractions import Fraction

from contract import measure_check
from contract.errors import GuaranteeError
from contract.measure_check import MOST_EPSILON, RATIO_BITS
from gateway.dphmm.graphs import GraphError

__all__ = ["MOST_EPSILON", "RATIO_BITS", "floor_exp", "noise_ratio"]


def floor_exp(epsilon: Fraction | int | float, bits: int = RATIO_BITS) -> int:
    """floor(e^epsilon * 2^bits), never above it.

    Args:
        epsilon: above 0 and at most 20, in nats.
        bits: of the fraction.

    Raises:
        GraphError: epsilon is out of range.
    """
    try:
        return measure_check.floor_exp(epsilon, bits)
    except GuaranteeError as error:
        raise GraphError(str(error)) from None


def noise_ratio(epsilon: Fraction | int | float) -> Fraction:
    """q, the largest step of a staircase for which 1/q passes the check of a table: 2^24 / floor(e^epsilon * 2^24).

    Raises:
        GraphError: epsilon is out of range, or so small (below 2^-24) that no noise would be enough.
    """
    ratio = Fraction(1 << RATIO_BITS, floor_exp(epsilon))
    if ratio >= 1:
        raise GraphError(f"epsilon {float(epsilon):g} is below 2^-{RATIO_BITS}, the step of the check")
    return ratio
