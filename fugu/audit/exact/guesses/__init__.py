"""Guesses for `fugu.audit.exact.chains`, in floats: what to try. Nothing depends on them but whether a bound is found.

So nobody who checks the second certificate has to read this.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from operator import mul
from typing import Any

__all__ = ["guessed_limit", "guessed_ratio", "useful_distances"]

Rows = Sequence[Sequence[Any]]
Matrix = list[list[int]]
_MOST_GUESSES, _MOST_DISTANCE, _TINY = 200, 4096, 1e-13


def guessed_ratio(
    above: Sequence[float], below: Sequence[float], wide: Rows, most: float
) -> tuple[float, list[tuple[int, int, float]]]:
    """The largest above . h of all h >= 0 with below . h <= 1 and h[a] <= wide[a][b] h[b].

    It is found by the simplex method on the dual: the least ratio with amounts f[a,b] >= 0 that prove it. The start is
    the best where all amounts go to one target. From `most` on `wide` counts as infinite.

    Returns:
        The ratio, and a, b and f[a,b] of amounts above 0.
    """
    size, best = range(len(above)), (math.inf, 0, [0])
    order = sorted(size, key=lambda y: above[y] / below[y] if below[y] else math.inf, reverse=True)
    for b in (b for b in size if below[b]):
        top, bottom, givers = above[b], below[b], []
        for a in order:
            if a != b and above[a] * bottom > top * below[a]:
                top, bottom = top + above[a] * wide[a][b], bottom + below[a] * wide[a][b]
                givers.append(a)
        best = min(best, (top / bottom, b, givers))
    ratio, target, givers = best
    if not ratio < most:
        return math.inf, []
    h = [1.0 if a == target else wide[a][target] * (a in givers) for a in size]
    h = [value / sum(map(mul, below, h)) for value in h]
    basis = [(a, target if a in givers else a) for a in size]
    signs = [1.0 if a in givers else -1.0 for a in size]
    inverse = [[sign * ((a == b) - below[a] * h[b]) for b in size] for a, sign in enumerate(signs)]
    inverse[target] = h
    amounts = [sum(map(mul, row, above)) for row in inverse]
    # h[a] < 0 is a gain, too, of h[a] - 2 h[a]
    pairs = [(a, b, wide[a][b] if a != b else 2.0) for a in size for b in size if wide[a][b] < most]
    for _ in range(20 * len(above)):
        h = inverse[target]
        gain, a, b, w = max((h[a] - w * h[b], a, b, w) for a, b, w in pairs)
        if gain <= _TINY * max(h):
            break
        along = [row[a] - w * row[b] for row in inverse]
        leaving = [(amounts[i] / along[i], i) for i in size if along[i] > _TINY and i != target]
        if not leaving:
            break
        amount, out = min(leaving)
        line = [value / along[out] for value in inverse[out]]
        inverse = [[v - along[i] * u for v, u in zip(row, line, strict=True)] for i, row in enumerate(inverse)]
        amounts = [value - along[i] * amount for i, value in enumerate(amounts)]
        inverse[out], amounts[out], basis[out] = line, amount, (a, b)
    flow = [(*basis[i], amounts[i]) for i in size if i != target and amounts[i] > 0]
    return amounts[target], [(a, b, amount) for a, b, amount in flow if a != b]


def guessed_limit(step: Callable[[Matrix], Matrix], unit: int, size: int, most: int) -> Matrix:
    """The limit of leakage <- step(leakage) from `unit` on, by steps that shrink geometrically in the end.

    `most` counts as infinite.
    """
    leakage = [[unit] * size for _ in range(size)]
    for _ in range(_MOST_GUESSES):
        first = step(leakage)
        second = step(first)
        if max(map(max, first + second)) >= most:
            return [[most] * size for _ in range(size)]
        before, change = _moved(leakage, first), _moved(first, second)
        far = min(change / (before - change), 20 / change) if 0 < change < before else 0.0
        ahead = _cells(lambda a, b, far=far: int(b * min((b / a) ** far, 1e9)), first, second)
        if change < 1e-14 or change * far < 1e-12:
            return ahead
        ahead = _cells(lambda a, b: a + (b - a) * 7 // 8, second, ahead)
        leakage = step(ahead)
        if any(
            a > b * (1 + change / 4) for rows in zip(ahead, leakage, strict=True) for a, b in zip(*rows, strict=True)
        ):
            leakage = second  # it went too far
    return leakage


def _cells(function: Callable[..., int], *matrices: Matrix) -> Matrix:
    return [[function(*cell) for cell in zip(*rows, strict=True)] for rows in zip(*matrices, strict=True)]


def _moved(before: Matrix, other: Matrix) -> float:
    return max(abs(math.log(b / a)) for rows in zip(before, other, strict=True) for a, b in zip(*rows, strict=True))


def useful_distances(
    rows: Rows, paid: Callable[[int], int], worth: Callable[[int, Matrix, Matrix], Matrix], unit: int, most: int
) -> Iterable[int]:
    """The n for which a quilt of n ticks is the best of any two states; `rows` are of the kernel.

    `paid` is what the n - 1 nearest ticks can tell; `worth` is of that, and of what states n and n + 1 ticks away tell.
    `unit` is a ratio of 1; `most` is infinite.
    """
    power, columns = rows, list(zip(*rows, strict=True))
    near = _quotients(power, unit, most)
    best: Matrix = [[most] * len(rows) for _ in rows]
    used: Matrix = [[0] * len(rows) for _ in rows]
    for n in range(1, _MOST_DISTANCE):
        power = [[sum(map(mul, row, column)) for column in columns] for row in power]
        far, all_told = _quotients(power, unit, most), paid(n)
        value = worth(all_told, near, far)
        used = _cells(lambda a, b, last, n=n: n if a < b else last, value, best, used)
        best, near = _cells(min, best, value), far
        if all_told >= max(map(max, best)):
            break
    return {n for x, row in enumerate(used) for y, n in enumerate(row) if n and x != y}


def _quotients(power: Rows, unit: int, most: int) -> Matrix:
    quotients = ((max(a / b if b else math.inf for a, b in zip(x, y, strict=True) if a) for y in power) for x in power)
    return [[int(min(quotient, most / unit) * unit) for quotient in row] for row in quotients]
