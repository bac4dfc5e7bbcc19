"""Loss of symbols about a chain of two states, in 60 digits: recursions that compute with nothing of the product."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal, localcontext
from fractions import Fraction

from fugu.contract.losses import Adversary

__all__ = ["DIGITS", "exact_loss", "lost"]

Matrix = list[list[Decimal]]
DIGITS = 60


def product(a: Matrix, b: Matrix) -> Matrix:
    matrices = [
        [sum((x * y for x, y in zip(row, column, strict=True)), Decimal(0)) for column in zip(*b, strict=True)]
        for row in a
    ]
    largest = max(map(max, matrices))
    return [[entry / largest for entry in row] for row in matrices]


def powers(matrix: Matrix) -> Iterator[Matrix]:
    """By squares, to 2^63 steps."""
    for _ in range(64):
        yield matrix
        matrix = product(matrix, matrix)


def lost(q: float, r: float, rate: float, adversary: Adversary) -> float:
    """Least loss of a product of symbols, in the worse direction, to who knows no state or the nearest ones."""
    return max(_lost(q, r, rate, adversary), _lost(r, q, rate, adversary))


def _lost(q: float, r: float, rate: float, adversary: Adversary) -> float:
    with localcontext() as context:
        context.prec = DIGITS
        steps = [[1 - Decimal(q), Decimal(q)], [Decimal(r), 1 - Decimal(r)]]
        weighed = [[row[0] * Decimal(rate).exp(), row[1]] for row in steps]
        best = Decimal(1)
        for seen, unseen in zip(powers(weighed), powers(steps), strict=True):
            ends = [sum(row) / sum(other) for row, other in zip(seen, unseen, strict=True)]
            best = max(best, ends[0] / ends[1])  # a state that nobody knows
            if adversary == "informed":
                for start in (0, 1):
                    ones, two = (product(power, steps) for power in (seen, unseen))
                    best = max(best, ones[0][start] * two[1][start] / (ones[1][start] * two[0][start]))
        return float(Decimal(rate) + 2 * best.ln())


def exact_loss(q: Fraction, r: Fraction, ratio: Fraction, start: int, ticks: int) -> Decimal:
    """The likelihood ratio that outputs of some ticks tell, each of one ratio, if the state after them is known."""
    with localcontext() as context:
        context.prec = DIGITS
        away, back, weight = (Decimal(x.numerator) / x.denominator for x in (q, r, ratio))
        steps = [[1 - away, away], [back, 1 - back]]
        weighed = [[row[0] * weight, row[1]] for row in steps]
        seen, unseen = steps, steps
        for bit, more, less in zip(range(64), powers(weighed), powers(steps), strict=True):
            if ticks >> bit & 1:
                seen, unseen = product(more, seen), product(less, unseen)
        return seen[0][start] * unseen[1][start] / (seen[1][start] * unseen[0][start])
