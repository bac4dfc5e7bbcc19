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
    `parent` the edge that leads to each. `is_inside` marks the states of a part, `ray` is h, and `surplus` is what each
    state still has to balance.
    """

    upper: Row[int]
    lower: Row[int]
    order: Row[int]
    parent: Row[int]
    is_inside: Row[int]
    ray: Row[float]
    surplus: Row[float]


def widening(y: int, z: int) -> float:
    """Return a factor just above 1 for entry (y, z) of a cone, which breaks ties: these could stop the method."""
    return 1.0 + HAIR * (1.0 + (7 * y + 13 * z + 5 * y * z) % 11)


def largest_ratio(
    p_row: Row[float], q_row: Row[float], high: Row[float], steepest: float, tree: Tree
) -> tuple[float, int]:
    """Return the largest p_row.h / q_row.h over all h > 0 with h_u <= high[u, v] h_v, or a bound on it.

    A vertex is a ray with a spanning tree of tight constraints. The dual solution of a tree has one amount for each
    edge, found leaf by leaf from c = p_row - ratio * q_row. So c.h is the sum of amount (h_u - high[u, v] h_v) for
    every h. If no amount is negative, that proves the ratio of the vertex. If one is, its edge is cut, and the part
    that holds u is scaled down until another constraint is tight. Because h_v <= steepest * q_row.h, a negative amount
    proves the ratio raised by its size times high[u, v] times steepest: so whatever vertex is reached, the result is a
    bound. (It holds for every ratio; the ray only chooses it. A ray beyond floats costs the search, not the proof.)

    `p_row`, `q_row`: (k,) distributions. `high`: (k * k,) the cone, row by row, closed up to its widening, no entry
    below 1. `tree`: k rows to work in. Returns the bound, to be rounded up by the caller, infinite if there is none,
    and how many vertices were visited.
    """
    upper, lower, order, parent, is_inside, ray, surplus = tree
    size = len(upper)
    best_bound, visited_vertices = math.inf, 0
    for edge in range(1, size):
        upper[edge], lower[edge] = edge, 0
    while visited_vertices < _PIVOTS * size:
        visited_vertices += 1
        for y in range(size):
            is_inside[y] = 0
        is_inside[0], order[0], ray[0], placed_count = 1, 0, 1.0, 1
        while placed_count < size:
            for edge in range(1, size):
                u, v = upper[edge], lower[edge]
                if is_inside[u] != is_inside[v]:
                    y = v if is_inside[u] else u
                    ray[y] = ray[u] / high[u * size + v] if is_inside[u] else ray[v] * high[u * size + v]
                    is_inside[y], order[placed_count], parent[y] = 1, y, edge
                    placed_count += 1
        numerator, denominator = 0.0, 0.0
        for y in range(size):
            numerator += p_row[y] * ray[y]
            denominator += q_row[y] * ray[y]
        if not 0.0 < denominator < math.inf:
            break
        ratio = numerator / denominator
        for y in range(size):
            surplus[y] = p_row[y] - ratio * q_row[y]
        least_flow, cut_state, missing_amount, moved_amount = 0.0, 0, 0.0, 0.0
        for index in range(size - 1, 0, -1):
            y = order[index]
            u, v = upper[parent[y]], lower[parent[y]]
            moved_amount += abs(surplus[y])
            if y == u:
                edge_flow = surplus[y]
                surplus[v] += edge_flow * high[u * size + v]
            else:
                edge_flow = -surplus[y] / high[u * size + v]
                surplus[u] -= edge_flow
            if edge_flow < 0.0:
                missing_amount -= edge_flow * high[u * size + v]
                if edge_flow * ray[u] < least_flow:
                    least_flow, cut_state = edge_flow * ray[u], y
        # What rounding leaves unbalanced, at the root above all, counts like a negative amount.
        missing_amount += max(surplus[0], 0.0) + 4.0 * size * UNIT * (moved_amount + abs(surplus[0]))
        best_bound = min(best_bound, ratio + missing_amount * steepest)
        if cut_state == 0 or least_flow >= -_SMALL * numerator:
            break
        # The part below the cut, and which of its ends is scaled down.
        edge = parent[cut_state]
        u, v = upper[edge], lower[edge]
        for y in range(size):
            is_inside[y] = 0
        is_inside[cut_state] = 1
        for index in range(1, size):
            y = order[index]
            if y != cut_state:
                is_inside[y] = is_inside[upper[parent[y]] + lower[parent[y]] - y]
        side = is_inside[u]
        slack, enter_u, enter_v = 0.0, u, v
        for y in range(size):
            for z in range(size):
                if is_inside[y] != side and is_inside[z] == side and ray[y] > slack * high[y * size + z] * ray[z]:
                    tight_value = high[y * size + z] * ray[z]
                    slack = ray[y] / tight_value if tight_value > 0.0 else math.inf
                    enter_u, enter_v = y, z
        upper[edge], lower[edge] = enter_u, enter_v
    return best_bound, visited_vertices
