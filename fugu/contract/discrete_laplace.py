"""Exact discrete Laplace noise: P(n) proportional to exp(-|n| / s) on the integers, for a rational scale s.

Only integers are drawn, compared and divided, so the distribution is the one that a guarantee is about and not a
floating-point neighbour of it: there is no rounding whose traces could tell noise and count apart.

Source: Canonne, Kamath, Steinke, "The Discrete Gaussian for Differential Privacy" (2020), algorithms 1 and 2.
"""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["SCALE", "discrete_laplace", "uniform_below"]

SCALE = 1 << 32
"""The number of values of one 32-bit random word."""


def uniform_below(entropy: Callable[[memoryview], None]) -> Callable[[int], int]:
    """Return a function that draws uniform integers from a source of uniform bytes, without any bias.

    As few bits as can hold the largest value are taken; a number that is too large is thrown away, never folded back.

    Args:
        entropy: Fills a writable buffer with independent uniform bytes.

    Returns:
        draw(below), uniform in range(below) for below >= 1; its bytes are overwritten before it returns.
    """

    def draw(below: int) -> int:
        if below < 1:
            raise ValueError(f"no integer is below {below} and at least 0")
        bits = (below - 1).bit_length()
        mask = (1 << bits) - 1
        buffer = bytearray((bits + 7) // 8)
        value = 0
        while bits:
            entropy(memoryview(buffer))
            value = int.from_bytes(buffer, "little") & mask
            if value < below:
                break
        buffer[:] = bytes(len(buffer))
        return value

    return draw


def discrete_laplace(draw: Callable[[int], int], numerator: int, denominator: int) -> int:
    """Draw an integer n with probability (1 - a) / (1 + a) * a^|n|, where a = exp(-denominator / numerator).

    Args:
        draw: Uniform integers: draw(below) in range(below).
        numerator: Of the scale s = numerator / denominator, at least 1.
        denominator: Of the scale, at least 1.

    Returns:
        The noise: a count of sensitivity 1 that is released with it has the loss 1/s.

    Raises:
        ValueError: The scale is not positive.

    Source: algorithm 2 with t = numerator and s = denominator. A remainder below t is kept with probability
        exp(-remainder / t) and a quotient counts successes of exp(-1), so t * quotient + remainder is geometric with
        ratio exp(-1/t); its quotient by s is geometric with ratio exp(-s/t). A sign makes that two-sided, once minus
        zero is refused.
    """
    if numerator < 1 or denominator < 1:
        raise ValueError(f"the scale {numerator}/{denominator} is not positive")
    while True:
        remainder = draw(numerator)
        if not _happens(draw, remainder, numerator):
            continue
        quotient = 0
        while _happens(draw, 1, 1):
            quotient += 1
        size = (remainder + numerator * quotient) // denominator
        negative = draw(2) == 1
        if not (negative and size == 0):
            return -size if negative else size


def _happens(draw: Callable[[int], int], numerator: int, denominator: int) -> bool:
    """Whether an event of probability exp(-numerator/denominator) happens, for a fraction x in 0..1.

    Source: algorithm 1. The first k at which an event of probability x/k fails is odd with probability
        1 - x + x^2/2! - ... = exp(-x).
    """
    tries = 1
    while draw(denominator * tries) < numerator:
        tries += 1
    return tries % 2 == 1
