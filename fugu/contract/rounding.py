"""Margins for the roundings of floats, outward: each named, with the errors that it is for."""

from __future__ import annotations

__all__ = [
    "CLOSED_FORM",
    "FOUR_ROUNDINGS",
    "HAIR",
    "LOGARITHM",
    "OUTWARD",
    "SIXTEEN_ROUNDINGS",
    "UNIT",
    "UPWARD",
    "WIDE",
    "reversal_error",
]

UNIT = 2.0**-53
"""The relative error of one operation on floats."""
FOUR_ROUNDINGS = 4.0 * UNIT
SIXTEEN_ROUNDINGS = 16.0 * UNIT
UPWARD = 1e-15
"""Relative, for nine roundings: the few sums and products that end a computation."""
LOGARITHM = 1e-14
"""For the logarithm of a quotient below e^100; relative, for a sum of a few of them."""
HAIR = 1e-14
"""What the constraints of a cone are widened by, relative and times up to 11, so that no two are tight together."""
CLOSED_FORM = 1e-13
"""For a leakage in closed form: some hundred roundings, of numbers that may be large."""
OUTWARD = 1e-12
"""Relative, far above the error of thousands of roundings, and far below what anybody would notice."""
WIDE = 1e-11
"""For what goes through thousands of products of distributions, and the steps that use them."""


def reversal_error(states: int) -> float:
    """Return what rounding of a stationary distribution can add to a step of the reversed chain, in nats.

    Elimination without subtractions changes an entry of the matrix at most k - 1 times, by some four roundings. A
    distribution is a sum over trees of products of k - 1 entries (the tree theorem), so it is good to 4 (k - 1)^2
    roundings, and the ratio of two means of a step has it four times.
    """
    return 16.0 * states * (states + 2.0) * UNIT
