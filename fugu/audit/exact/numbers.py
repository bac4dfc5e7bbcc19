"""Numbers rounded up: fractions, and integers in units of 2^-192."""

from __future__ import annotations

from fractions import Fraction
from math import isqrt

__all__ = ["BITS", "ONE", "NotRecomputed", "ceil_of", "exp_up", "log_up", "sqrt_of"]

BITS = 192
ONE = 1 << BITS


class NotRecomputed(Exception):  # noqa: N818 - nothing is wrong with what is not recomputed
    """Says what is not computed here."""


def ceil_of(x: Fraction) -> int:
    """At least x, in units."""
    return -(-x.numerator * ONE // x.denominator)


def sqrt_of(x: int) -> int:
    """At least the root, both in units."""
    return isqrt(x << BITS) + 1


def exp_up(x: Fraction) -> Fraction:
    """At least e^x, for 0 <= x <= 10000: Taylor's series at x / 2^k <= 1/256, then k squarings."""
    if not 0 <= x <= 10_000:
        raise NotRecomputed(f"a loss of {float(x):g} nats in a tick")
    halvings, total, term = int(x).bit_length() + 8, ONE, ONE
    reduced = ceil_of(x / 2**halvings)
    for n in range(1, 30):
        term = -(-term * reduced // (n << BITS))
        total += term
    total += term  # what is left of the series is less than its last term
    for _ in range(halvings):
        total = -(-total * total >> BITS)
    return Fraction(total, ONE)


def log_up(x: Fraction) -> Fraction:
    """At least log(x) = 2^k log(m), m^(2^k) = x >= 1: the sum of 2 z^(2n+1) / (2n+1), z = (m-1)/(m+1) <= 1/17."""
    root, scale, total = ceil_of(x), 2, 0
    while 8 * root > 9 * ONE:
        root, scale = sqrt_of(root), 2 * scale
    power = z = -((ONE - root) * ONE // (root + ONE))
    for n in range(30):
        total -= -power // (2 * n + 1)
        power = -(-power * z * z >> 2 * BITS)
    return Fraction(scale * (total + power), ONE)  # what is left of the series is at most a hundredth of its next power
