"""Bridges: the leakage to those who know a true state of the chain beyond it, for few states.

With the nearest known state c beyond s unknown ticks the kernel is K_s[a,b] = P[a,b] P^s[b,c] / P^(s+1)[a,c], between
the states that can lead to c; of two others at least one is excluded by c, and they are no secret. Once the columns of
P^s are constant up to a factor e^d, a step of the bridge is at most a step of P with bounds larger by d, plus d, which
covers all longer ones. Work is bounded by counting: what takes longer is left to other bounds.

Source: docs/proofs/chain-accountant.md, "The chain accountant".
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable

from fugu.contract.inner_maximum import LARGEST, Matrix, Work, largest, step, unbounded
from fugu.contract.rounding import CLOSED_FORM, UNIT

__all__ = ["bridged"]

_CHECK_EVERY = 16
_CLOSE = 1e-3
_LEAST = 1e-250
"""Of a probability: whatever is less might be taken for impossible."""


def bridged(kernel: Matrix, error: float, rates: Matrix, ignorant: Matrix, work: Work) -> Matrix:
    """Return what the ticks on one side add for whoever knows the state of one of them, or of none.

    Args:
        kernel: k x k, row-stochastic, irreducible; steps may be impossible.
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
    power, distance, rarest = kernel, 0, _rarest(kernel)
    while _rarest(power) * rarest > _LEAST and work.pivots > 0:
        distance += 1
        margin = distance * (4.0 * (len(kernel) + 2.0) * UNIT + 2.0 * error)
        for known in states:
            column = [row[known] for row in power]
            leakages[known] = _raised(_bridge_step(kernel, column, rates, leakages[known], work), margin)
            worst = _both(max, worst, leakages[known])
        power = [_normalised([math.fsum(p * power[w][y] for w, p in enumerate(row)) for y in states]) for row in kernel]
        possible = min(map(min, power)) > 0.0
        # A chain where k^2 ticks leave a step impossible is a cycle, by Wielandt's theorem, and forgets nothing.
        if largest(worst) >= LARGEST or (distance > len(kernel) ** 2 and not possible):
            break
        if possible and distance % _CHECK_EVERY == 0:
            forgotten = margin + max(math.log(max(column) / min(column)) for column in zip(*power, strict=True))
            reached = _both(max, ignorant, _widest(leakages))
            # More where more leaks: states that exclude one another a tick later pass on what is added to all alike.
            shape = _raised([[part / largest(reached) for part in row] for row in reached], 1.0)
            found, slack = None, _CLOSE * largest(worst) + CLOSED_FORM
            while slack > CLOSED_FORM and work.pivots > 0:
                tail = _both(operator.add, reached, [[slack * more for more in row] for row in shape])
                longer = step(kernel, _raised(_both(operator.add, rates, tail), forgotten), work)
                if not all(map(_within, _raised(longer, forgotten + error), tail)):
                    break
                found, slack = _both(max, worst, tail), slack / 8.0
            if found is not None:
                return found
    return unbounded(kernel)


def _bridge_step(kernel: Matrix, near: list[float], rates: Matrix, leakage: Matrix, work: Work) -> Matrix:
    """Return the leakage of one tick more before a known state, 0 where that excludes a state.

    Args:
        near: Of each state after this step, how probable the known one is from there.
        leakage: Of the ticks between.
    """
    columns = [y for y, p in enumerate(near) if p > 0.0]
    weights = {x: [kernel[x][y] * near[y] for y in columns] for x in range(len(kernel))}
    rows = [x for x, weight in weights.items() if max(weight) > 0.0]
    bounds = [[rates[y][z] + leakage[y][z] for z in columns] for y in columns]
    found = step([_normalised(weights[x]) for x in rows], bounds, work)
    result = [[0.0 for _ in kernel] for _ in kernel]
    for x, row in zip(rows, found, strict=True):
        for other, bound in zip(rows, row, strict=True):
            result[x][other] = bound
    return result


def _normalised(values: list[float]) -> list[float]:
    total = math.fsum(values)
    return [value / total for value in values]


def _rarest(power: Matrix) -> float:
    return min(p for row in power for p in row if p > 0.0)


def _within(row: list[float], bound: list[float]) -> bool:
    return all(map(operator.le, row, bound))


def _widest(leakages: list[Matrix]) -> Matrix:
    return [[max(values) for values in zip(*rows, strict=True)] for rows in zip(*leakages, strict=True)]


def _both(choose: Callable[[float, float], float], one: Matrix, other: Matrix) -> Matrix:
    return [list(map(choose, row, line)) for row, line in zip(one, other, strict=True)]


def _raised(matrix: Matrix, amount: float) -> Matrix:
    return [[value + amount if x != y else 0.0 for y, value in enumerate(row)] for x, row in enumerate(matrix)]
