"""Bridges: the leakage to those who know a true state of the chain beyond it, for few states.

With the nearest known state c beyond s unknown ticks the kernel is K_s[a,b] = P[a,b] P^s[b,c] / P^(s+1)[a,c]. Once
the columns of P^s are constant up to a factor e^d, a step of the bridge is at most a step of P with bounds larger by d,
plus d, which covers all longer ones. Work is bounded by counting: what takes longer is left to other bounds.

Source: docs/proofs/chain-accountant.md, "The chain accountant".
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable

from contract.inner_maximum import LARGEST, Matrix, Work, largest, step, unbounded
from contract.rounding import CLOSED_FORM, UNIT

__all__ = ["bridged"]

_CHECK_EVERY = 16
_CLOSE = 1e-3
_LEAST = 1e-250


def bridged(kernel: Matrix, error: float, rates: Matrix, ignorant: Matrix, work: Work) -> Matrix:
    """Return what the ticks on one side add for whoever knows the state of one of them, or of none.

    Args:
        kernel: k x k, positive, row-stochastic.
        error: Of the logarithms of its entries.
        rates: k x k, what a tick tells of any two states, in nats.
        ignorant: k x k, the leakage to those who know no state.
        work: What bridges may still cost.

    Returns:
        Bounds for each pair; infinite if there are none, or they take too much work.
    """
    states = range(len(kernel))
    worst = ignorant
    leakages = [[[0.0 for _ in states] for _ in states] for _ in states]
    power, distance = kernel, 0
    while work.pivots > 0 and min(map(min, power)) > _LEAST and largest(worst) < LARGEST:
        distance += 1
        margin = distance * (4.0 * (len(kernel) + 2.0) * UNIT + 2.0 * error)
        for known in states:
            weights = [[p * power[y][known] for y, p in enumerate(row)] for row in kernel]
            bridge = [[p / math.fsum(row) for p in row] for row in weights]
            leakages[known] = _raised(step(bridge, _both(operator.add, rates, leakages[known]), work), margin)
            worst = _both(max, worst, leakages[known])
        power = [[math.fsum(p * power[w][y] for w, p in enumerate(row)) for y in states] for row in kernel]
        power = [[p / math.fsum(row) for p in row] for row in power]
        if distance % _CHECK_EVERY == 0:
            forgotten = margin + max(math.log(max(column) / min(column)) for column in zip(*power, strict=True))
            reached = _both(max, ignorant, _widest(leakages))
            found, slack = None, _CLOSE * largest(worst) + CLOSED_FORM
            while slack > CLOSED_FORM and work.pivots > 0:
                tail = _raised(reached, slack)
                longer = step(kernel, _raised(_both(operator.add, rates, tail), forgotten), work)
                if not all(map(_within, _raised(longer, forgotten + error), tail)):
                    break
                found, slack = _both(max, worst, tail), slack / 8.0
            if found is not None:
                return found
    return unbounded(kernel)


def _within(row: list[float], bound: list[float]) -> bool:
    return all(map(operator.le, row, bound))


def _widest(leakages: list[Matrix]) -> Matrix:
    return [[max(values) for values in zip(*rows, strict=True)] for rows in zip(*leakages, strict=True)]


def _both(choose: Callable[[float, float], float], one: Matrix, other: Matrix) -> Matrix:
    return [list(map(choose, row, line)) for row, line in zip(one, other, strict=True)]


def _raised(matrix: Matrix, amount: float) -> Matrix:
    return [[value + amount if x != y else 0.0 for y, value in enumerate(row)] for x, row in enumerate(matrix)]
