"""Two states, P = [[1-q, q], [r, 1-r]], and classes of any number of states by the odds ratios of their steps.

All is about likelihood ratios. G is the largest of a tick's outputs in one direction (state 0 over 1; the other swaps q
and r). f(u) = ((1-q) u + q) / (r u + 1-r) carries a ratio one step along. Proofs: docs/proofs/randomised-response.md.
"""

from __future__ import annotations

import math
from fractions import Fraction

from gateway.exact.numbers import BITS, NotRecomputed, sqrt_up, up

__all__ = ["binary_loss", "odds_ratio_loss"]

_MOST_TICKS, _STOP_BITS = 100_000, 110
Pair = tuple[Fraction, Fraction]


def binary_loss(q: Pair, r: Pair, most: Pair, adversary: str) -> Fraction:
    """At least the e^epsilon of an endless stream over all q and r of intervals.

    `most` is of a tick, either way. With q + r < 1 the stickiest corner is the worst, with q + r > 1 the one that
    alternates most; but for the informed only if it is the only chain, and else the odds-ratio bound counts there.
    """
    low, high = zip(q, r, strict=True)
    if sum(high) > 1:
        most = (max(most),) * 2  # else tables that take turns would lose more than each alone
    odds = [(1 - a) * (1 - b) / (a * b) for a in q for b in r]  # monotone in q and in r: a corner is worst
    if adversary == "universal":
        return odds_ratio_loss(max(*odds, 1 / min(odds)), max(most))
    found, corners = [max(most)], [low] if sum(low) < 1 else []
    if sum(high) > 1 and adversary == "informed" and low != high:
        found = [odds_ratio_loss(max(1 / odds[-1], odds[-1]), max(most))]
    elif sum(high) > 1:
        corners.append(high)
    for a, b in corners:
        for one, other, g in ((a, b, most[0]), (b, a, most[1])):
            found.append(g * _side(one, other, g, informed=adversary == "informed") ** 2)
    return max(found)


def odds_ratio_loss(alpha: Fraction, most: Fraction) -> Fraction:
    """At least E = G w^4, w = (sqrt(alpha) (s-1) + sqrt(alpha (s-1)^2 + 4 s)) / (2 s), s = sqrt(G); for any
    start, steps that change, with odds ratios of at most alpha, and any side information. It grows with s."""
    s = sqrt_up(most)
    slope = sqrt_up(alpha) * (s - 1)
    return up(most * ((slope + sqrt_up(slope * slope + 4 * s)) / (2 * s)) ** 4)


def _side(q: Fraction, r: Fraction, g: Fraction, *, informed: bool) -> Fraction:
    """At least what the past, or the future, of a tick multiplies its ratio by.

    For q + r < 1, without known states: m*, the limit of m -> f(G m). With the nearest known state after t unknown
    ticks: h_t = m_t / n_t, where m takes the worst outputs and n none, both from f(infinity) or f(0). m goes to m*
    and n to 1, both rising or both falling, so what is to come is at most m* / n, or m. For q + r > 1 f falls, and the
    worst outputs take turns: two ticks are one map that rises, f(f(G m) / G), and t is even or odd.
    """
    one, starts = 1 << BITS, [[start, start] for start in (q / (1 - r), (1 - q) / r)]
    maps = [((1 - q) * x, q, r * x, 1 - r) for x in (g, Fraction(1))]
    if q + r > 1:
        again = [((1 - q) * x, q, r * x, 1 - r) for x in (1 / g, Fraction(1))]
        starts += [[(a * start + b) / (c * start + d) for a, b, c, d in again] for start, _ in starts]
        maps = [
            (a * e + b * h, a * f + b * i, c * e + d * h, c * f + d * i)
            for (a, b, c, d), (e, f, h, i) in zip(again, maps, strict=True)
        ]
    whole = math.lcm(*(value.denominator for each in maps for value in each))
    (a, b, c, d), (e, f, h, i) = ([int(value * whole) for value in each] for each in maps)
    limit = max(Fraction(1), (a - d + sqrt_up(Fraction((a - d) ** 2 + 4 * b * c))) / (2 * c))
    best = top = math.ceil(limit * one)  # from here on all are integers, in units of 2^-192
    for loud, quiet in starts if informed else ():
        m, n, rising = math.ceil(loud * one), math.floor(quiet * one), quiet < 1
        for _ in range(_MOST_TICKS):
            best, rest = max(best, -(-m * one // n)), -(-top * one // n) if rising else m
            if rest - best <= best >> _STOP_BITS:
                break
            m, n = -(-(a * m + b * one) * one // (c * m + d * one)), (e * n + f * one) * one // (h * n + i * one)
        else:
            raise NotRecomputed(f"a chain that has not forgotten a known state after {_MOST_TICKS} ticks")
        best = max(best, rest)
    return Fraction(best, one)
