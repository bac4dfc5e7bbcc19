"""Margins for the roundings of floats, outward: each named, with the errors that it is for."""

from __future__ import annotations

__all__ = ["UNIT", "reversal_error"]

UNIT = 2.0**-53
"""The relative error of one operation on floats."""


def reversal_error(states: int) -> float:
    """Return what rounding of a stationary law can add to a step of the reversed chain, in nats.

    Elimination without subtractions is good to some 2 k (k + 2) roundings in every state, and an entry of the reversed
    kernel has two of them; numerator and denominator of a step have it, and there is twice as much to spare.
    """
    return 16.0 * states * (states + 2.0) * UNIT
