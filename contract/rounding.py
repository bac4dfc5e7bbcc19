"""Margins for the roundings of floats, outward: each named, with the errors that it is for."""

from __future__ import annotations

__all__ = ["OUTWARD", "UNIT", "UPWARD", "reversal_error"]

UNIT = 2.0**-53
"""The relative error of one operation on floats."""
UPWARD = 1e-15
"""Relative, for a handful of roundings."""
OUTWARD = 1e-12
"""Relative, far above the error of thousands of roundings, and far below what anybody would notice."""


def reversal_error(states: int) -> float:
    """Return what rounding of a stationary law can add to a step of the reversed chain, in nats.

    Elimination without subtractions changes an entry of the matrix at most k - 1 times, by some four roundings. A law
    is a sum over trees of products of k - 1 entries (the tree theorem), so it is good to 4 (k - 1)^2 roundings, and the
    ratio of two means of a step has it four times.
    """
    return 16.0 * states * (states + 2.0) * UNIT
