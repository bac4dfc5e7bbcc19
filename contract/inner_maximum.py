"""The inner maximum of the chain accountant, as a device computes it: a linear programme over a cone, for few states.

Source: docs/privacy.md, "The chain accountant".
"""

from __future__ import annotations

import math
from dataclasses import dataclass

__all__ = ["LARGEST", "UNIT", "Matrix", "Work", "largest", "step", "unbounded"]

Matrix = list[list[float]]
UNIT = 2.0**-53
LARGEST = 300.0
"""Bounds in nats from here on are none."""
_HAIR = 1e-14
_SMALL = 1e-15
_PIVOTS = 8


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


def step(kernel: Matrix, bounds: Matrix, work: Work) -> Matrix:
    """Return bounds on log(K[x].h / K[x'].h) over all h with log h_y / h_z <= bounds[y][z], for every x and x'."""
    states = range(len(kernel))
    for w in states:
        for y in states:
            for z in states:
                bounds[y][z] = min(bounds[y][z], bounds[y][w] + bounds[w][z])
    if largest(bounds) >= LARGEST:
        return unbounded(kernel)
    # Ties between constraints would let the simplex method stand still: a cone larger by a hair has none.
    high = [
        [math.exp(bounds[y][z]) * (1.0 + _HAIR * (1 + (7 * y + 13 * z + 5 * y * z) % 11)) for z in states]
        for y in states
    ]
    margin = (16.0 * len(kernel) + 8.0 * len(kernel) * largest(bounds) + 64.0) * UNIT
    return [
        [0.0 if x == other else _most(kernel[x], kernel[other], high, work) + margin for other in states]
        for x in states
    ]


def _most(above: list[float], below: list[float], high: Matrix, work: Work) -> float:
    """Return the largest log(above.h / below.h) over all h > 0 with h_y <= high[y][z] h_z, or a bound on it.

    The simplex method on spanning trees of tight constraints h_u = high[u][v] h_v. With c = above - ratio * below, the
    dual solution of a tree has an amount for each edge; none is negative at the maximum. A negative one proves the
    ratio raised by its size times high[u][v] times the largest of `high`, so every vertex gives a bound. (The bound
    holds for every ratio; the ray only chooses it. So a ray beyond floats costs the search, not the proof.)
    """
    size = len(above)
    steepest, best = largest(high), math.inf
    edges = [(state, 0) for state in range(1, size)]
    for _ in range(_PIVOTS * size):
        work.pivots -= 1
        order, via, ray = _rooted(edges, high)
        least = _dot(below, ray)
        if not 0.0 < least < math.inf:
            break
        ratio = _dot(above, ray) / least
        left = [a - ratio * b for a, b in zip(above, below, strict=True)]
        worst, cut, missing, moved = 0.0, -1, 0.0, 0.0
        for state in reversed(order[1:]):
            u, v = edges[via[state]]
            moved += abs(left[state])
            flow = left[state] if state == u else -left[state] / high[u][v]
            left[v if state == u else u] += flow * high[u][v] if state == u else -flow
            if flow < 0.0:
                missing -= flow * high[u][v]
                if flow * ray[u] < worst:
                    worst, cut = flow * ray[u], state
        # What rounding leaves unbalanced, at the root above all, counts like a negative amount.
        missing += max(left[0], 0.0) + 4.0 * size * UNIT * (moved + abs(left[0]))
        best = min(best, ratio + missing * steepest)
        if cut < 0 or -worst <= _SMALL * _dot(above, ray):
            break
        edges[via[cut]] = _entering(edges, order, via, cut, ray, high)
    return math.log(max(best, 1.0))


def _rooted(edges: list[tuple[int, int]], high: Matrix) -> tuple[list[int], list[int], list[float]]:
    """Return the states of a tree from state 0 outward, the edge that leads to each, and the ray."""
    order, via, ray = [0], [-1] * len(high), [1.0] * len(high)
    reached = {0}
    while len(order) < len(high):
        for index, (u, v) in enumerate(edges):
            if (u in reached) != (v in reached):
                state = v if u in reached else u
                ray[state] = ray[u] / high[u][v] if state == v else ray[v] * high[u][v]
                via[state] = index
                order.append(state)
                reached.add(state)
    return order, via, ray


def _entering(
    edges: list[tuple[int, int]], order: list[int], via: list[int], cut: int, ray: list[float], high: Matrix
) -> tuple[int, int]:
    """Cut the edge that leads to a state, scale the part that holds its upper end down, and return what gets tight."""
    part = {cut}
    for state in order[1:]:
        u, v = edges[via[state]]
        if state != cut and (v if state == u else u) in part:
            part.add(state)
    upper = edges[via[cut]][0]
    down = part if upper in part else set(order) - part

    def slack(pair: tuple[int, int]) -> float:
        y, z = pair
        least = high[y][z] * ray[z]
        return ray[y] / least if least > 0.0 else math.inf

    return max(((y, z) for y in order if y not in down for z in down), key=slack)


def _dot(one: list[float], other: list[float]) -> float:
    return sum(a * b for a, b in zip(one, other, strict=True))
