"""Two states, P = [[1-q, q], [r, 1-r]], and classes of any number of states by the odds ratios of their steps.

All is about likelihood ratios. G is the largest ratio of a tick's outputs in one direction (state 0 over 1; the other
direction swaps q and r). f(u) = ((1-q) u + q) / (r u + 1-r) carries a ratio u one step along the chain.
Proofs: docs/proofs/randomised-response.md, "Binary chains in closed form".
"""

from __future__ import annotations

import math
from fractions import Fraction

from gateway.exact.numbers import BITS, NotRecomputed, sqrt_up, up

__all__ = ["binary_loss", "odds_ratio_loss"]

_MOST_TICKS = 100_000
_STOP_BITS = 110
Pair = tuple[Fraction, Fraction]


def binary_loss(q: Pair, r: Pair, most: Pair, adversary: str) -> tuple[Fraction, bool]:
    """At least the e^epsilon of an endless stream over all q and r of intervals; and whether no lower bound is proven.

    `most` is of a tick, either way. Of chains that alternate (q + r > 1) only the odds-ratio bound is computed; for the
    informed and more than one chain it is the only one.
    """
    if sum(high := (q[1], r[1])) > 1:
        most = (max(most),) * 2  # else tables that take turns would lose more than each alone
    odds = [(1 - a) * (1 - b) / (a * b) for a in q for b in r]  # monotone in q and in r: a corner is worst
    if adversary == "universal":
        return odds_ratio_loss(max(*odds, 1 / min(odds)), max(most)), True
    found, sharp = [max(most)], True
    if sum(high) > 1:
        found.append(odds_ratio_loss(max(1 / odds[-1], odds[-1]), max(most)))
        sharp = adversary == "informed" and (q[0], r[0]) != high
    if q[0] + r[0] < 1:  # the stickiest corner is the worst
        for a, b, g in ((q[0], r[0], most[0]), (r[0], q[0], most[1])):
            found.append(g * _side(a, b, g, informed=adversary == "informed") ** 2)
    return max(found), sharp


def odds_ratio_loss(alpha: Fraction, most: Fraction) -> Fraction:
    """At least E = G w^4, w = (sqrt(alpha) (s-1) + sqrt(alpha (s-1)^2 + 4 s)) / (2 s), s = sqrt(G); it grows with s.

    For any side information, any start and steps that change, with odds ratios of at most alpha.
    """
    s = sqrt_up(most)
    slope = sqrt_up(alpha) * (s - 1)
    return up(most * ((slope + sqrt_up(slope * slope + 4 * s)) / (2 * s)) ** 4)


def _side(q: Fraction, r: Fraction, g: Fraction, *, informed: bool) -> Fraction:
    """At least what the past, or the future, of a tick multiplies its ratio by, for q + r < 1.

    Without known states: m*, the positive root of r G m^2 + (1-r - (1-q) G) m - q = 0, which is the limit of
    m -> f(G m). With the nearest known state after t unknown ticks: h_t = m_t / n_t, where m takes the worst outputs in
    and n none, both from f(infinity) or f(0). m goes to m* and n to 1, both rising or both falling, so all that is to
    come is at most m* / n, or m.
    """
    one, slope = 1 << BITS, (1 - q) * g + r - 1
    limit = max(Fraction(1), (slope + sqrt_up(slope**2 + 4 * q * r * g)) / (2 * r * g))
    best = top = math.ceil(limit * one)  # from here on all are integers, in units of 2^-192
    whole = math.lcm(*(value.denominator for value in (q, r, q * g, r * g, g)))
    a, b, c, d, e, f = (int(value * whole) for value in ((1 - q) * g, q, r * g, 1 - r, 1 - q, r))
    for start in (q / (1 - r), (1 - q) / r) if informed else ():
        m, n, rising = math.ceil(start * one), math.floor(start * one), start < 1
        for _ in range(_MOST_TICKS):
            best, rest = max(best, -(-m * one // n)), -(-top * one // n) if rising else m
            if rest - best <= best >> _STOP_BITS:
                break
            m, n = -(-(a * m + b * one) * one // (c * m + d * one)), (e * n + b * one) * one // (f * n + d * one)
        else:
            raise NotRecomputed(f"a chain that has not forgotten a known state after {_MOST_TICKS} ticks")
        best = max(best, rest)
    return Fraction(best, one)
