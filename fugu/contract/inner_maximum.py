"""The inner maximum of the chain accountant, as a device computes it: a linear programme over a cone, for few states.

Source: docs/proofs/chain-accountant.md, "The chain accountant".
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from fugu.contract.rounding import UNIT
from fugu.contract.simplex import Tree, largest_ratio, widening

__all__ = ["LARGEST", "Matrix", "Work", "closed", "largest", "step", "unbounded"]

Matrix = list[list[float]]
LARGEST = 300.0
"""Bounds in nats from here on are none."""


@dataclass
class Work:
    """What a check may still cost, in steps of the simplex method."""

    pivots: int


def largest(matrix: Matrix) -> float:
    """Return the largest entry."""
    return max(map(max, matrix))


def unbounded(kernel: Matrix) -> Matrix:
    """Return infinity off the diagonal, of the size of a kernel."""
    return [[0.0 if x == y else math.inf for y in range(len(kernel))] for x in range(len(kernel))]


def closed(bounds: Matrix) -> Matrix:
    """Return bounds M on log h_y / h_z under the triangle inequality: at most M[y][w] + M[w][z]."""
    result = [list(row) for row in bounds]
    for w, through in enumerate(result):
        for row in result:
            for z, more in enumerate(through):
                row[z] = min(row[z], row[w] + more)
    return result


def step(kernel: Matrix, bounds: Matrix, work: Work) -> Matrix:
    """Return bounds on log(K[x].h / K[x'].h) over all h with log h_y / h_z <= bounds[y][z], for every x and x'.

    Args:
        kernel: n x k, row-stochastic.
        bounds: k x k.
        work: What the check may still cost.
    """
    rows, states = range(len(kernel)), range(len(bounds))
    bounds = closed(bounds)
    if largest(bounds) >= LARGEST:
        return unbounded(kernel)
    high = [math.exp(bounds[y][z]) * widening(y, z) for y in states for z in states]
    steepest, tree = max(high), _tree(len(bounds))
    margin = (16.0 * len(bounds) + 8.0 * len(bounds) * largest(bounds) + 64.0) * UNIT
    result = [[0.0 for _ in rows] for _ in rows]
    for x in rows:
        for other in rows:
            if x != other:
                ratio, visited = largest_ratio(kernel[x], kernel[other], high, steepest, tree)
                work.pivots -= visited
                result[x][other] = math.log(max(ratio, 1.0)) + margin
    return result


def _tree(states: int) -> Tree:
    numbers, floats = ([0] * states for _ in range(5)), ([0.0] * states for _ in range(2))
    upper, lower, order, parent, inside = numbers
    ray, left = floats
    return Tree(upper, lower, order, parent, inside, ray, left)
