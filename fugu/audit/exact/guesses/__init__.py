"""Guess in floats what `fugu.audit.exact.chains` should try. Guesses only decide whether a bound is found.

A reader of the second certificate need not read this module.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from operator import mul
from typing import Any

__all__ = ["guessed_limit", "guessed_ratio", "useful_distances"]

Rows = Sequence[Sequence[Any]]
Matrix = list[list[int]]
_MAX_GUESSES, _MAX_DISTANCE, _TINY = 200, 4096, 1e-13


def guessed_ratio(
    numerator: Sequence[float], denominator: Sequence[float], limits: Rows, infinity: float
) -> tuple[float, list[tuple[int, int, float]]]:
    """The largest numerator . h of all h >= 0 with denominator . h <= 1 and h[a] <= limits[a][b] h[b].

    It is found by the simplex method on the dual: the least ratio with amounts f[a,b] >= 0 that prove it. The search
    starts from the best solution in which all amounts go to one target. Limits from `infinity` on count as infinite.

    Returns:
        The ratio, and a, b and f[a,b] of amounts above 0.
    """
    states, best_start = range(len(numerator)), (math.inf, 0, [0])
    ranking = sorted(states, key=lambda y: numerator[y] / denominator[y] if denominator[y] else math.inf, reverse=True)
    for b in (b for b in states if denominator[b]):
        top, bottom, sources = numerator[b], denominator[b], []
        for a in ranking:
            if a != b and numerator[a] * bottom > top * denominator[a]:
                top, bottom = (top + numerator[a] * limits[a][b], bottom + denominator[a] * limits[a][b])
                sources.append(a)
        best_start = min(best_start, (top / bottom, b, sources))
    ratio, target, sources = best_start
    if not ratio < infinity:
        return math.inf, []
    h = [1.0 if a == target else limits[a][target] * (a in sources) for a in states]
    h = [value / sum(map(mul, denominator, h)) for value in h]
    basis = [(a, target if a in sources else a) for a in states]
    signs = [1.0 if a in sources else -1.0 for a in states]
    inverse = [[sign * ((a == b) - denominator[a] * h[b]) for b in states] for a, sign in enumerate(signs)]
    inverse[target] = h
    amounts = [sum(map(mul, row, numerator)) for row in inverse]
    # h[a] < 0 is a gain as well: h[a] - 2 h[a]
    constraints = [(a, b, limits[a][b] if a != b else 2.0) for a in states for b in states if limits[a][b] < infinity]
    for _ in range(20 * len(numerator)):
        h = inverse[target]
        gain, a, b, w = max((h[a] - w * h[b], a, b, w) for a, b, w in constraints)
        if gain <= _TINY * max(h):
            break
        direction = [row[a] - w * row[b] for row in inverse]
        candidates = [(amounts[i] / direction[i], i) for i in states if direction[i] > _TINY and i != target]
        if not candidates:
            break
        amount, leaving_index = min(candidates)
        pivot_row = [value / direction[leaving_index] for value in inverse[leaving_index]]
        inverse = [[v - direction[i] * u for v, u in zip(row, pivot_row, strict=True)] for i, row in enumerate(inverse)]
        amounts = [value - direction[i] * amount for i, value in enumerate(amounts)]
        inverse[leaving_index], amounts[leaving_index], basis[leaving_index] = pivot_row, amount, (a, b)
    flow = [(*basis[i], amounts[i]) for i in states if i != target and amounts[i] > 0]
    return amounts[target], [(a, b, amount) for a, b, amount in flow if a != b]


def guessed_limit(step: Callable[[Matrix], Matrix], unit: int, size: int, infinity: int) -> Matrix:
    """Extrapolate the limit of leakage <- step(leakage) from `unit` on; steps finally shrink geometrically.

    Leakages from `infinity` on count as infinite.
    """
    leakage = [[unit] * size for _ in range(size)]
    for _ in range(_MAX_GUESSES):
        first = step(leakage)
        second = step(first)
        if max(map(max, first + second)) >= infinity:
            return [[infinity] * size for _ in range(size)]
        last_change, change = _log_change(leakage, first), _log_change(first, second)
        exponent = min(change / (last_change - change), 20 / change) if 0 < change < last_change else 0.0
        leap = _cells(lambda a, b, exponent=exponent: int(b * min((b / a) ** exponent, 1e9)), first, second)
        if change < 1e-14 or change * exponent < 1e-12:
            return leap
        leap = _cells(lambda a, b: a + (b - a) * 7 // 8, second, leap)
        leakage = step(leap)
        if any(
            a > b * (1 + change / 4) for rows in zip(leap, leakage, strict=True) for a, b in zip(*rows, strict=True)
        ):
            leakage = second  # the extrapolation went too far
    return leakage


def _cells(function: Callable[..., int], *matrices: Matrix) -> Matrix:
    return [[function(*cell) for cell in zip(*rows, strict=True)] for rows in zip(*matrices, strict=True)]


def _log_change(leakage: Matrix, other: Matrix) -> float:
    return max(abs(math.log(b / a)) for rows in zip(leakage, other, strict=True) for a, b in zip(*rows, strict=True))


def useful_distances(
    kernel: Rows, ratio: Callable[[int], int], quilt: Callable[[int, Matrix, Matrix], Matrix], unit: int, infinity: int
) -> Iterable[int]:
    """List the distances n at which a quilt gives some pair of states its least bound; `kernel` is (k, k).

    `ratio(n)` is the largest likelihood ratio by the n - 1 nearest ticks. `quilt` bounds the leakage (k, k) from this
    ratio and from the ratios of known states n and n + 1 ticks away. `unit` and `infinity` encode the ratios 1 and oo.
    """
    power, columns = kernel, list(zip(*kernel, strict=True))
    near_ratios = _quotients(power, unit, infinity)
    best_bounds: Matrix = [[infinity] * len(kernel) for _ in kernel]
    best_n: Matrix = [[0] * len(kernel) for _ in kernel]
    for n in range(1, _MAX_DISTANCE):
        power = [[sum(map(mul, row, column)) for column in columns] for row in power]
        far_ratios, power_ratio = _quotients(power, unit, infinity), ratio(n)
        bound = quilt(power_ratio, near_ratios, far_ratios)
        best_n = _cells(lambda a, b, last_n, n=n: n if a < b else last_n, bound, best_bounds, best_n)
        best_bounds, near_ratios = _cells(min, best_bounds, bound), far_ratios
        if power_ratio >= max(map(max, best_bounds)):
            break
    return {n for x, row in enumerate(best_n) for y, n in enumerate(row) if n and x != y}


def _quotients(power: Rows, unit: int, infinity: int) -> Matrix:
    quotients = ((max(a / b if b else math.inf for a, b in zip(x, y, strict=True) if a) for y in power) for x in power)
    return [[int(min(quotient, infinity / unit) * unit) for quotient in row] for row in quotients]
