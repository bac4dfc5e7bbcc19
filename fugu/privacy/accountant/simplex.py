"""The inner maximum of the chain accountant: the largest ratio of two means over a cone, by the simplex method.

A device runs it as it is, on lists; the gateway compiles the same function, on arrays. So it takes flat sequences of
numbers, calls nothing, and keeps what it needs in a tree that its caller made.
Source: docs/proofs/chain-accountant.md, "The chain accountant".
"""

from __future__ import annotations

import math
from typing import NamedTuple, Protocol, TypeVar

from fugu.contract.losses import HAIR, UNIT

__all__ = ["Tree", "largest_ratio", "widening"]


_SMALL = 1e-15
_PIVOTS = 8
_N = TypeVar("_N", int, float)


class Row(Protocol[_N]):
    """A list of numbers, or an array."""

    def __getitem__(self, index: int, /) -> _N: ...
    def __setitem__(self, index: int, value: _N, /) -> None: ...
    def __len__(self) -> int: ...


class Tree(NamedTuple):
    """A spanning tree of tight constraints h_u = high[u, v] h_v, rooted at state 0; rows (k,), whatever they hold.

    `upper` and `lower` are u and v of each edge (entry 0 is not used). `order` has the states from the root outward,
    `parent` the edge that leads to each. `inside` is which states a part holds, `ray` is h, and `left` is what is left
    to balance in each.
    """

    upper: Row[int]
    lower: Row[int]
    order: Row[int]
    parent: Row[int]
    inside: Row[int]
    ray: Row[float]
    left: Row[float]


def widening(y: int, z: int) -> float:
    """Return the factor for entry (y, z) of a cone, different by hairs: ties would let the method stand still."""
    return 1.0 + HAIR * (1.0 + (7 * y + 13 * z + 5 * y * z) % 11)


def largest_ratio(
    above: Row[float], below: Row[float], high: Row[float], steepest: float, tree: Tree
) -> tuple[float, int]:
    """Return the largest above.h / below.h over all h > 0 with h_u <= high[u, v] h_v, or a bound on it.

    A vertex is a ray with a spanning tree of tight constraints. The dual solution of a tree has one amount for each
    edge, found leaf by leaf from c = above - ratio * below. So c.h is the sum of amount (h_u - high[u, v] h_v) for
    every h. If no amount is negative, that proves the ratio of the vertex. If one is, its edge is cut, and the part
    that holds u is scaled down until another constraint is tight. Because h_v <= steepest * below.h, a negative amount
    proves the ratio raised by its size times high[u, v] times steepest: so whatever vertex is reached, the result is a
    bound. (It holds for every ratio; the ray only chooses it. A ray beyond floats costs the search, not the proof.)

    `above`, `below`: (k,) distributions. `high`: (k * k,) the cone, row by row, closed up to its widening, no entry
    below 1. `tree`: k rows to work in. Returns the bound, to be rounded up by the caller, infinite if there is none,
    and how many vertices were visited.
    """
    upper, lower, order, parent, inside, ray, surplus = tree
    size = len(upper)
    best, visited = math.inf, 0
    for edge in range(1, size):
        upper[edge], lower[edge] = edge, 0
    while visited < _PIVOTS * size:
        visited += 1
        for y in range(size):
            inside[y] = 0
        inside[0], order[0], ray[0], placed = 1, 0, 1.0, 1
        while placed < size:
            for edge in range(1, size):
                u, v = upper[edge], lower[edge]
                if inside[u] != inside[v]:
                    y = v if inside[u] else u
                    ray[y] = ray[u] / high[u * size + v] if inside[u] else ray[v] * high[u * size + v]
                    inside[y], order[placed], parent[y] = 1, y, edge
                    placed += 1
        top, bottom = 0.0, 0.0
        for y in range(size):
            top += above[y] * ray[y]
            bottom += below[y] * ray[y]
        if not 0.0 < bottom < math.inf:
            break
        ratio = top / bottom
        for y in range(size):
            surplus[y] = above[y] - ratio * below[y]
        worst, cut, missing, moved = 0.0, 0, 0.0, 0.0
        for index in range(size - 1, 0, -1):
            y = order[index]
            u, v = upper[parent[y]], lower[parent[y]]
            moved += abs(surplus[y])
            if y == u:
                flow = surplus[y]
                surplus[v] += flow * high[u * size + v]
            else:
                flow = -surplus[y] / high[u * size + v]
                surplus[u] -= flow
            if flow < 0.0:
                missing -= flow * high[u * size + v]
                if flow * ray[u] < worst:
                    worst, cut = flow * ray[u], y
        # What rounding leaves unbalanced, at the root above all, counts like a negative amount.
        missing += max(surplus[0], 0.0) + 4.0 * size * UNIT * (moved + abs(surplus[0]))
        best = min(best, ratio + missing * steepest)
        if cut == 0 or worst >= -_SMALL * top:
            break
        # The part below the cut, and which of its ends is scaled down.
        edge = parent[cut]
        u, v = upper[edge], lower[edge]
        for y in range(size):
            inside[y] = 0
        inside[cut] = 1
        for index in range(1, size):
            y = order[index]
            if y != cut:
                inside[y] = inside[upper[parent[y]] + lower[parent[y]] - y]
        down = inside[u]
        slack, enter_u, enter_v = 0.0, u, v
        for y in range(size):
            for z in range(size):
                if inside[y] != down and inside[z] == down and ray[y] > slack * high[y * size + z] * ray[z]:
                    least = high[y * size + z] * ray[z]
                    slack = ray[y] / least if least > 0.0 else math.inf
                    enter_u, enter_v = y, z
        upper[edge], lower[edge] = enter_u, enter_v
    return best, visited
