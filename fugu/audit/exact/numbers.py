"""Numbers rounded up: fractions, and integers in units of 2^-192."""

from __future__ import annotations

from fractions import Fraction
from math import isqrt

__all__ = ["BITS", "ONE", "NotRecomputed", "ceil_of", "exp_up", "log_up", "sqrt_of"]

BITS = 192
ONE = 1 << BITS


class NotRecomputed(Exception):  # noqa: N818 - nothing is wrong with what is not recomputed
    """A loss is not computed by this certificate; the message says which."""


def ceil_of(x: Fraction) -> int:
    """An integer of at least x, in units of 2^-192."""
    return -(-x.numerator * ONE // x.denominator)


def sqrt_of(x: int) -> int:
    """An integer of at least the square root of x, both in units of 2^-192."""
    return isqrt(x << BITS) + 1


def exp_up(x: Fraction) -> Fraction:
    """An upper bound on e^x, for 0 <= x <= 10000: Taylor's series at x / 2^k <= 1/256, then k squarings."""
    if not 0 <= x <= 10_000:
        raise NotRecomputed(f"a loss of {float(x):g} nats in a tick")
    halvings, total, term = int(x).bit_length() + 8, ONE, ONE
    reduced = ceil_of(x / 2**halvings)
    for n in range(1, 30):
        term = -(-term * reduced // (n << BITS))
        total += term
    total += term  # the remaining terms add up to less than the last one
    for _ in range(halvings):
        total = -(-total * total >> BITS)
    return Fraction(total, ONE)


def log_up(x: Fraction) -> Fraction:
    """An upper bound on log(x) = 2^k log(m), m^(2^k) = x: the sum of 2 z^(2n+1) / (2n+1), z = (m-1)/(m+1) <= 1/17."""
    root, scale, total = ceil_of(x), 2, 0
    while 8 * root > 9 * ONE:
        root, scale = sqrt_of(root), 2 * scale
    power = z = -((ONE - root) * ONE // (root + ONE))
    for n in range(30):
        total -= -power // (2 * n + 1)
        power = -(-power * z * z >> 2 * BITS)
    return Fraction(scale * (total + power), ONE)  # the remaining terms add up to at most a hundredth of the next power
