"""Recompute losses of two-state chains, P = [[1-q, q], [r, 1-r]], and of classes by the odds ratios of their steps.

All numbers are likelihood ratios. G is a tick's largest output ratio in one direction (state 0 over 1; the other
swaps q and r). f(u) = ((1-q) u + q) / (r u + 1-r) carries a ratio over one step. Proofs:
docs/proofs/randomised-response.md.
"""

from __future__ import annotations

from fractions import Fraction
from heapq import heappop, heappush
from typing import Any

from fugu.audit.exact.numbers import BITS, ONE, ceil_of, sqrt_of

__all__ = ["binary_loss", "odds_leakage", "odds_ratio_loss"]

_STOP_BITS, _MAX_INTERVALS = 110, 100_000
Pair = tuple[Fraction, Fraction]
Map = tuple[Any, Any, Any, Any]  # u -> (a u + b) / (c u + d)


def binary_loss(q: Pair, r: Pair, ratios: Pair, adversary: str) -> Fraction:
    """An upper bound on e^epsilon of an endless stream over all q and r in intervals.

    `ratios` are a tick's ratios in both directions. With q + r < 1 the stickiest corner is the worst, with q + r > 1
    the one that alternates most. For the informed adversary the latter holds only for a single chain; otherwise the
    odds-ratio bound is used.
    """
    low, high = zip(q, r, strict=True)
    if sum(high) > 1:
        ratios = (max(ratios),) * 2  # otherwise alternating tables would lose more than each alone
    odds = [(1 - a) * (1 - b) / (a * b) for a in q for b in r]  # monotone in q and in r: a corner is worst
    if adversary == "universal":
        return odds_ratio_loss(max(*odds, 1 / min(odds)), max(ratios))
    losses, corners = [max(ratios)], [low] if sum(low) < 1 else []
    if sum(high) > 1 and adversary == "informed" and low != high:
        losses = [odds_ratio_loss(max(1 / odds[-1], odds[-1]), max(ratios))]
    elif sum(high) > 1:
        corners.append(high)
    for a, b in corners:
        for first, other, g in ((a, b, ratios[0]), (b, a, ratios[1])):
            losses.append(g * Fraction(_leakage(first, other, g, informed=adversary == "informed"), ONE) ** 2)
    return max(losses)


def odds_ratio_loss(alpha: Fraction, tick_ratio: Fraction) -> Fraction:
    """An upper bound on e^epsilon for any start and evidence, and changing steps with odds ratios up to alpha."""
    return tick_ratio * Fraction(odds_leakage(ceil_of(alpha), ceil_of(tick_ratio), ONE), ONE) ** 2


def odds_leakage(alpha: int, tick_ratio: int, power: int) -> int:
    """An upper bound on the leakage of steps of n ticks with odds ratios up to alpha, in units of 2^-192.

    Let t be `tick_ratio`, and p = t^(n-1) be `power`. The leakage is the v with v = p ((sqrt(alpha u) + 1) /
    (sqrt(alpha) + sqrt(u)))^2 for u = t v. With s = sqrt(u) and g = sqrt(t p) this is the quadratic equation s^2 +
    sqrt(alpha) (1 - g) s - g = 0. Its solution grows with g and alpha.
    """
    g, root = sqrt_of(tick_ratio * power >> BITS) + 1, sqrt_of(alpha)
    slope = (root * (g - ONE) >> BITS) + 1
    s = (slope + sqrt_of((slope * slope >> BITS) + 1 + 4 * g)) // 2 + 1
    return max(s * s // tick_ratio + 1, ONE)


def _leakage(q: Fraction, r: Fraction, g: Fraction, *, informed: bool) -> int:
    """An upper bound on the factor by which the past, or the future, multiplies a tick's ratio, in units of 2^-192.

    For q + r < 1 without known states it is m*, the limit of m -> f(G m). If the nearest known state is t ticks away,
    it is h_t = m_t / n_t. Here m takes the worst outputs and n none, both from f(infinity) or f(0). While m tends to
    m*, n tends to 1, both rising or both falling. For q + r > 1 f falls, and the worst outputs alternate: two ticks
    are one rising map, f(f(G m) / G), and t is even or odd.
    """
    starts = [(start, start) for start in (q / (1 - r), (1 - q) / r)]
    loud_map, quiet_map = ((((1 - q) * x, q, r * x, 1 - r)) for x in (g, Fraction(1)))
    if q + r > 1:
        high_map, low_map = loud_map, ((1 - q) / g, q, r / g, 1 - r)
        starts += [(_image(low_map, start), _image(quiet_map, start)) for start, _ in starts]
        loud_map, quiet_map = _compose(low_map, high_map), _compose(quiet_map, quiet_map)
    a, b, c, d = loud_map
    limit = best = ceil_of(
        max(Fraction(1), (a - d + Fraction(sqrt_of(ceil_of((a - d) ** 2 + 4 * b * c)), ONE)) / (2 * c))
    )
    for m, n in starts if informed else ():
        best = _peak(best, limit, _Powers(loud_map, m), _Powers(quiet_map, n), is_rising=n < 1)
    odds = (1 - q) * (1 - r) / (q * r)
    return min(best, odds_leakage(ceil_of(max(odds, 1 / odds)), ceil_of(g), ONE))


def _peak(best: int, limit: int, m: _Powers, n: _Powers, *, is_rising: bool) -> int:
    """An upper bound on the largest h_t: for t in [a, b] it is at most m_a / n_b, or m_b / n_a if both rise."""

    def upper_bound(a: int, b: int) -> int:
        numerator, denominator = (m.bound(b, 1), n.bound(a, 0)) if is_rising else (m.bound(a, 1), n.bound(b, 0))
        return -(-numerator * ONE // denominator)

    end, intervals = 1, [(-upper_bound(0, 1), 0, 1)]
    best = max(best, upper_bound(0, 0))
    while (-(-limit * ONE // n.bound(end, 0)) if is_rising else m.bound(end, 1)) > best + (best >> _STOP_BITS):
        best, end = max(best, upper_bound(end, end)), 2 * end
        heappush(intervals, (-upper_bound(end // 2, end), end // 2, end))
    for _ in range(_MAX_INTERVALS):
        bound, a, b = heappop(intervals)
        if -bound <= best + (best >> _STOP_BITS):
            return best + (best >> _STOP_BITS) + 1
        middle = (a + b) // 2
        best = max(best, upper_bound(middle, middle), upper_bound(b, b))
        for interval in ((a, middle), (middle, b)) if b - a > 1 else ():
            heappush(intervals, (-upper_bound(*interval), *interval))
        heappush(intervals, (-best, b, b))
    return -intervals[0][0]


class _Powers:
    """Bounds on a ratio after t steps, rounded up or down; t steps are composed of powers of two."""

    def __init__(self, step: Map, start: Fraction) -> None:
        rounded_up = [ceil_of(value / max(step)) for value in step]
        self._squares = [([value - 1 for value in rounded_up], rounded_up)]
        self._bounds: dict[tuple[int, int], int] = {}
        self._start = (ceil_of(start) - 1, ceil_of(start))

    def bound(self, t: int, rounds_up: int) -> int:
        """The ratio after t steps in units of 2^-192, rounded up if `rounds_up` is 1, down if it is 0."""
        if (t, rounds_up) not in self._bounds:
            ratio = self._start[rounds_up]
            for level in range(t.bit_length()):
                if level == len(self._squares):
                    self._squares.append(self._square(*self._squares[-1]))
                (a, b, _, _), (_, _, c, d) = self._squares[level][rounds_up], self._squares[level][1 - rounds_up]
                if t >> level & 1:
                    numerator, denominator = a * ratio + (b << BITS), c * ratio + (d << BITS)
                    ratio = -(-numerator * ONE // denominator) if rounds_up else numerator * ONE // denominator
            self._bounds[t, rounds_up] = int(ratio)
        return self._bounds[t, rounds_up]

    @staticmethod
    def _square(*maps: list[int]) -> tuple[list[int], list[int]]:
        low, high = (_compose((a, b, c, d), (a, b, c, d)) for a, b, c, d in maps)
        shift = max(high).bit_length() - BITS
        return [value >> shift for value in low], [-(-value >> shift) for value in high]


def _compose(outer: Map, inner: Map) -> Map:
    (a, b, c, d), (e, f, g, h) = outer, inner
    return a * e + b * g, a * f + b * h, c * e + d * g, c * f + d * h


def _image(function: Map, u: Fraction) -> Fraction:
    a, b, c, d = function
    return Fraction((a * u + b) / (c * u + d))
