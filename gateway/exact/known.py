"""Known chains of k states, started stationary: the recursion of the chain accountant, and quilts for known states.

With W[y][z] bounding the ratio of a tick's outputs and of all beyond it, a side one tick longer is worth at most
S[x][x'] = max of (P[x] . h) / (P[x'] . h) over h >= 0 with h[y] <= W[y][z] h[z]. A limit of this is guessed by
floats and proven in fractions: any S with step(S) <= S is a bound. Proof: docs/proofs/chain-accountant.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from gateway.exact.numbers import NotRecomputed, up

__all__ = ["known_loss", "known_odds"]

Number = Any  # a float or a fraction
Matrix = list[list[Number]]
_MOST_STEPS, _MOST_QUILT, _LARGEST, _BITS = 60, 500, 1e100, 64
_ROUNDED = 1 + Fraction(1, 1 << (_BITS - 2))  # laws have so many bits: a quotient of means can be off by 2^-62 of it
_SLACKS = (1e-12, 1e-11, 1e-10, 1e-9, 1e-8)


def known_odds(chain: Sequence[Sequence[float]]) -> Fraction | None:
    """The largest P[x][y] P[x'][y'] / (P[x][y'] P[x'][y]); none if a step is impossible."""
    rows = [[Fraction(p) for p in row] for row in chain]
    if not all(p for row in rows for p in row):
        return None
    quotients = [[p / s for p, s in zip(a, b, strict=True)] for a in rows for b in rows]
    return max(max(row) / min(row) for row in quotients)


def known_loss(chain: Sequence[Sequence[float]], tick: Matrix, adversary: str) -> Any:
    """At least the e^epsilon of an endless stream, `tick` bounding the ratio of a tick's outputs for any two states."""
    future = [[Fraction(p) / sum(map(Fraction, row)) for p in row] for row in chain]
    law, size = _stationary(future), range(len(future))
    past = [[law[y] * future[y][x] / law[x] for y in size] for x in size]
    tick = [[up(value, _BITS) for value in row] for row in tick]
    kernels = [[[up(p, _BITS) for p in row] for row in kernel] for kernel in (past, future)]
    left, right = ((_side if adversary == "ignorant" else _quilts)(kernel, tick) for kernel in kernels)
    if (loss := max(tick[x][y] * left[x][y] * right[x][y] for x in size for y in size if tick[x][y] > 1)) == math.inf:
        raise NotRecomputed("known chains for which the recursion has no limit, or quilts no bound, or hardly one")
    return loss


def _stationary(chain: Matrix) -> list[Fraction]:
    """The law with law P = law of an irreducible chain, by elimination; the last equation says that it sums to 1."""
    k = len(chain)
    rows = [[chain[y][x] - (x == y) for y in range(k)] + [Fraction(0)] for x in range(k - 1)]
    rows.append([Fraction(1)] * (k + 1))
    for i in range(k):
        rows[i:] = sorted(rows[i:], key=lambda row: row[i] == 0)
        rows[i] = [value / rows[i][i] for value in rows[i]]
        for j in {*range(k)} - {i}:
            rows[j] = [a - rows[j][i] * b for a, b in zip(rows[j], rows[i], strict=True)]
    return [row[k] for row in rows]


def _side(kernel: Matrix, tick: Matrix) -> Matrix:
    """A matrix S >= 1 with step(S) <= S: the limit, guessed from two steps at a time, raised a little, tried."""
    states = range(len(kernel))
    rough, told = ([[float(value) for value in row] for row in matrix] for matrix in (kernel, tick))
    side, last = [[1.0 for _ in states] for _ in states], math.inf
    for _ in range(_MOST_STEPS):
        one = _step(rough, told, side)
        two = _step(rough, told, one)
        if not max(map(max, one + two)) < _LARGEST:
            break
        first, change = (max(map(abs, map(math.log, _quotients(b, a)))) for a, b in ((side, one), (one, two)))
        far = min(change / (first - change), 20 / change) if 0 < change < first else 0.0
        side = [[b * (b / a) ** far for a, b in zip(*rows, strict=True)] for rows in zip(one, two, strict=True)]
        if change < 1e-13 or last <= change < 1e-9:
            break
        last = change
    for slack in _SLACKS if max(map(max, side)) < _LARGEST else ():
        raised = [[Fraction(v * (1 + slack * (x != y))) for y, v in enumerate(row)] for x, row in enumerate(side)]
        longer = _step(kernel, tick, raised)
        if sum(quotient * _ROUNDED > 1 for quotient in _quotients(longer, raised)) == len(states):  # the diagonal
            return raised
    return [[math.inf for _ in states] for _ in states]


def _quilts(kernel: Matrix, tick: Matrix) -> Matrix:
    """At least a side for whoever knows no state, or may know the nearest one m ticks away: the least of any n.

    If m <= n, m - 1 ticks tell no more than all their ratios. Else the first n - 1 do, what is beyond tells P^n[x] over
    P^n[x'], and what the known state itself says is taken out: P^m[x'] over P^m[x], most for m = n + 1.
    """
    power, most, size = kernel, max(map(max, tick)), range(len(kernel))
    found: Matrix = [[math.inf for _ in size] for _ in size]
    for n in range(1, _MOST_QUILT):
        near, more = power, most ** (n - 1)
        if more >= min(max(map(max, found)), _LARGEST):
            break
        power = [[up(sum(p * near[z][y] for z, p in enumerate(row)), _BITS) for y in size] for row in kernel]
        off = more * (_ROUNDED + n * (_ROUNDED - 1) * 8)
        near, far = ([[max(_quotients([x], [y])) for y in one] for x in one] for one in (near, power))
        told = [[off * near[x][y] * far[y][x] for y in size] for x in size]
        found = [list(map(min, *rows)) for rows in zip(found, told, strict=True)]
    return found


def _step(kernel: Matrix, tick: Matrix, side: Matrix) -> Matrix:
    """A side one tick longer."""
    states = range(len(kernel))
    wide = [[a * b for a, b in zip(*rows, strict=True)] for rows in zip(tick, side, strict=True)]
    return [[_largest(kernel[x], kernel[y], wide) if x != y else tick[x][x] for y in states] for x in states]


def _largest(above: list[Number], below: list[Number], wide: Matrix) -> Number:
    """The maximum of above . h over h >= 0 with below . h <= 1 and h[a] <= wide[a][b] h[b]: simplex by Bland's rule."""
    k, zero, least = len(above), above[0] * 0, 0 if isinstance(above[0], Fraction) else 1e-13
    pairs = [(a, b) for a in range(k) for b in range(k) if a != b]
    rows = [[(y == a) - (y == b) * wide[a][b] + zero for y in range(k)] + [zero] for a, b in pairs]
    rows = [[*below, zero + 1], *rows, [*(-p for p in above), zero]]
    outside, inside = list(range(k)), list(range(k, k + len(rows)))
    while falling := [j for j in range(k) if rows[-1][j] < -least]:
        entering = min(falling, key=outside.__getitem__)
        rising = [i for i, row in enumerate(rows[:-1]) if row[entering] > least]
        if not rising:
            return math.inf
        leaving = min(rising, key=lambda i: (rows[i][k] / rows[i][entering], inside[i]))
        line = [value / rows[leaving][entering] for value in rows[leaving]]
        line[entering] = 1 / rows[leaving][entering]
        for i, row in enumerate(rows):
            factor, row[entering] = row[entering], zero
            rows[i] = [a - factor * b for a, b in zip(row, line, strict=True)] if factor else row
        rows[leaving] = line
        outside[entering], inside[leaving] = inside[leaving], outside[entering]
    return max(rows[-1][k], zero + 1)


def _quotients(above: Matrix, below: Matrix) -> list[Number]:
    cells = (cell for rows in zip(above, below, strict=True) for cell in zip(*rows, strict=True))
    return [a / b if b else math.inf for a, b in cells if a]
