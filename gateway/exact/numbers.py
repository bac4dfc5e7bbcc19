"""Fractions rounded outward: every function says on which side of the true value its result is."""

from __future__ import annotations

from fractions import Fraction
from math import isqrt

__all__ = ["BITS", "NotRecomputed", "exp_up", "log_up", "sqrt_up", "up"]

BITS = 192


class NotRecomputed(Exception):  # noqa: N818 - nothing is wrong with what is not recomputed
    """Says what is not computed here."""


def up(x: Fraction, bits: int = BITS) -> Fraction:
    """x >= 0 with so many significant bits: at least x, and less than x (1 + 2^(1 - bits))."""
    shift = bits - x.numerator.bit_length() + x.denominator.bit_length()
    if shift < 0:
        return Fraction(-(-x.numerator // (x.denominator << -shift)) << -shift)
    return Fraction(-(-(x.numerator << shift) // x.denominator), 1 << shift)


def sqrt_up(x: Fraction) -> Fraction:
    """At least sqrt(x) = sqrt(n d) / d, for x = n / d >= 0."""
    return Fraction(isqrt(x.numerator * x.denominator << 2 * BITS) + 1, x.denominator << BITS)


def exp_up(x: Fraction) -> Fraction:
    """At least e^x, for 0 <= x <= 10000: Taylor's series at x / 2^k <= 1/256, then k squarings."""
    if not 0 <= x <= 10_000:
        raise NotRecomputed(f"a loss of {float(x):g} nats in a tick")
    halvings = int(x).bit_length() + 8
    small, total, term = up(x / 2**halvings), Fraction(1), Fraction(1)
    for n in range(1, 30):
        term = term * small / n
        total += term
    total += term  # what is left of the series is less than its last term
    for _ in range(halvings):
        total = up(total * total)
    return total


def log_up(x: Fraction) -> Fraction:
    """At least log(x) = 2^k log(m), m^(2^k) = x >= 1: the sum of 2 z^(2n+1) / (2n+1), z = (m-1)/(m+1) <= 1/17."""
    twice, total = 2, Fraction(0)
    while x > Fraction(9, 8):
        x, twice = up(sqrt_up(x)), 2 * twice
    power = z = up((x - 1) / (x + 1))
    for n in range(30):
        total += up(power / (2 * n + 1))
        power = up(power * z * z)
    return twice * up(total + power)  # what is left of the series is at most a hundredth of its next power
