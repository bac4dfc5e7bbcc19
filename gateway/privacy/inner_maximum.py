"""One step of the chain accountant: how much a mixture can tell two states apart.

Given a kernel K (a, b) of laws over the states y of the next tick, and bounds M (b, b) on how much everything from that
tick on depends on y, each function here bounds, for all pairs of rows x, x',

    max over h in H(M) of log( K[x,:].h / K[x',:].h ),   H(M) = { h > 0 : h_y / h_y' <= exp(M[y,y']) for all y, y' }

This is a linear programme: maximise K[x,:].h subject to K[x',:].h = 1. `exact_step` solves it for all pairs at once:
the maximum is attained on an extreme ray of the cone, and those are spanning trees of tight constraints (b <= 5).
`box_step` relaxes the cone to a box around each reference state, where the maximum has a threshold structure; the least
of the references is a bound for any size, exact for two states. `transport_step` looks for feasible solutions of the
dual, each of which is a bound, too. All results are rounded outward.

Source: docs/privacy.md, "The chain accountant".
"""

from __future__ import annotations

from functools import cache
from itertools import product

import numpy as np
from numpy.typing import NDArray

from gateway.chain.kernel import Floats, Ints, kernel

__all__ = ["EXACT_STATES", "Order", "box_step", "closed", "exact_step", "ratio_order", "step", "transport_step"]

EXACT_STATES = 5
"""The most columns for which extreme rays are enumerated: 7 states have a million trees."""
_HALVINGS = 40
_HALVINGS_LARGE = 20
_FINE_STATES = 10
_LARGEST = 600.0  # e^600 and e^-600 are far from the ends of a float
_UNIT = 2.0**-53
_TIGHT = 1e-12  # rays that violate a constraint by this much are kept: a larger cone is a larger maximum

Order = NDArray[np.int16]


def step(kernel_matrix: Floats, order: Order, bounds: Floats) -> Floats:
    """The best bound at hand for all pairs of rows.

    Args:
        kernel_matrix: (a, b) laws over next states.
        order: `ratio_order(kernel_matrix)`.
        bounds: (b, b) bounds M >= 0 on log h_y / h_y', 0 on the diagonal.

    Returns:
        (a, a) bounds, 0 on the diagonal; infinite if a bound is too large for a float.
    """
    rows, columns = kernel_matrix.shape
    bounds = closed(bounds)
    if bounds.max() > _LARGEST:
        result = np.full((rows, rows), np.inf)
        np.fill_diagonal(result, 0.0)
        return result
    if 3 <= columns <= EXACT_STATES:
        return exact_step(kernel_matrix, bounds)
    bound = box_step(kernel_matrix, order, bounds)
    return bound if columns == 2 else transport_step(kernel_matrix, bounds, bound)


def closed(bounds: Floats) -> Floats:
    """Bounds (b, b) under the triangle inequality: log h_y / h_z <= M[y,w] + M[w,z]."""
    result = bounds.copy()
    if len(result) > 2:
        for middle in range(len(result)):
            np.minimum(result, result[:, middle, None] + result[middle], out=result)
    return result


@kernel
def ratio_order(kernel_matrix: Floats) -> Order:
    """(a, a, b): for each pair of rows x, x' the columns by falling K[x,y] / K[x',y]."""
    rows, columns = kernel_matrix.shape
    order = np.empty((rows, rows, columns), dtype=np.int16)
    ratios = np.empty(columns)
    for x in range(rows):
        for other in range(rows):
            for y in range(columns):
                top, bottom = kernel_matrix[x, y], kernel_matrix[other, y]
                if bottom > 0.0:
                    ratios[y] = -top / bottom
                else:
                    ratios[y] = -np.inf if top > 0.0 else np.inf
            order[x, other] = np.argsort(ratios).astype(np.int16)
    return order


@kernel
def box_step(kernel_matrix: Floats, order: Order, bounds: Floats) -> Floats:
    """Bound by boxes: h_r = 1 and h_y in [exp(-M[r,y]), exp(M[y,r])], for the best reference r of each pair.

    In a box the maximum gives the upper end to the columns with the largest K[x,y] / K[x',y], and the lower end to the
    others: a column raises the ratio exactly if its own is above.
    """
    rows, columns = kernel_matrix.shape
    high = np.exp(bounds)
    margin = (4.0 * columns + 4.0 * bounds.max() + 32.0) * _UNIT
    result = np.zeros((rows, rows))
    top0 = np.empty((rows, columns))
    for x in range(rows):
        for reference in range(columns):
            total = 0.0
            for y in range(columns):
                total += kernel_matrix[x, y] / high[reference, y]
            top0[x, reference] = total
    for x in range(rows):
        for other in range(rows):
            if x == other:
                continue
            least = np.inf
            for reference in range(columns):
                top, bottom = top0[x, reference], top0[other, reference]
                for index in range(columns):
                    y = order[x, other, index]
                    if kernel_matrix[x, y] * bottom <= top * kernel_matrix[other, y]:
                        break
                    gap = high[y, reference] - 1.0 / high[reference, y]
                    top += kernel_matrix[x, y] * gap
                    bottom += kernel_matrix[other, y] * gap
                least = min(least, top / bottom)
            result[x, other] = max(0.0, np.log(least)) + margin
    return result


@kernel
def _transportable(
    above: Floats, below: Floats, ratio: float, costs: Floats, sources: Ints, targets: Ints, count: int, left: Floats
) -> bool:
    """Whether cheapest-first transport proves above.h <= ratio * below.h for all h of the cone.

    Sources y have above_y - ratio below_y > 0 to give away, targets z have room for the negative of that, and a unit
    from y fills exp(M[y,z]) of z, because h_y <= exp(M[y,z]) h_z.
    """
    waiting = 0
    for y in range(above.size):
        left[y] = above[y] - ratio * below[y]
        waiting += left[y] > 0.0
    for index in range(count):
        if waiting == 0:
            return True
        y, z = sources[index], targets[index]
        if left[y] <= 0.0 or left[z] >= 0.0:
            continue
        cost = costs[index]
        if left[y] * cost <= -left[z]:
            left[z] = min(0.0, left[z] + left[y] * cost)
            left[y] = 0.0
            waiting -= 1
        else:
            left[y] += left[z] / cost
            left[z] = 0.0
            waiting -= left[y] <= 0.0
    return waiting == 0


@kernel
def transport_step(kernel_matrix: Floats, bounds: Floats, start: Floats) -> Floats:
    """Bounds by transport, where that is better than given ones.

    For a ratio rho, let c = K[x,:] - rho K[x',:]. If amounts f[y,z] >= 0 move all of every positive c_y to negative
    c_z, with the sum over y of f[y,z] exp(M[y,z]) at most -c_z, then c.h <= 0 for all h of the cone, so the maximum is
    at most log(rho). Moving along the cheapest pairs first is not always optimal, but every move that works is a proof.

    Args:
        kernel_matrix: (a, b) laws over next states.
        bounds: (b, b) closed bounds M.
        start: (a, a) valid bounds, returned where nothing better is found.
    """
    rows, columns = kernel_matrix.shape
    margin = (16.0 * columns + 8.0 * bounds.max() + 32.0) * _UNIT
    cheapest = np.argsort(bounds.ravel())
    all_costs = np.exp(bounds.ravel()[cheapest])
    sources, targets = np.empty(cheapest.size, dtype=np.int64), np.empty(cheapest.size, dtype=np.int64)
    costs, left = np.empty(cheapest.size), np.empty(columns)
    result = start.copy()
    for x in range(rows):
        for other in range(rows):
            top = start[x, other]
            if x == other or not np.isfinite(top):
                continue
            above, below = kernel_matrix[x], kernel_matrix[other]
            count, largest = 0, np.exp(top)
            for index in range(cheapest.size):  # what may be a source or a target at any ratio from 1 to the largest
                y, z = cheapest[index] // columns, cheapest[index] % columns
                if above[y] > below[y] and above[z] < largest * below[z]:
                    sources[count], targets[count], costs[count] = y, z, all_costs[index]
                    count += 1
            if not _transportable(above, below, largest, costs, sources, targets, count, left):
                continue
            bottom = 0.0
            for _ in range(_HALVINGS if columns <= _FINE_STATES else _HALVINGS_LARGE):
                middle = (bottom + top) / 2.0
                if _transportable(above, below, np.exp(middle), costs, sources, targets, count, left):
                    top = middle
                else:
                    bottom = middle
            result[x, other] = min(start[x, other], top + margin)
    return result


def exact_step(kernel_matrix: Floats, bounds: Floats) -> Floats:
    """The maximum itself, over the extreme rays of the cone of closed bounds; at most 5 columns."""
    return _over_rays(np.ascontiguousarray(kernel_matrix), bounds, *_trees(kernel_matrix.shape[1]))


@kernel
def _over_rays(kernel_matrix: Floats, bounds: Floats, trees: Order, directions: Order) -> Floats:
    """Largest log-ratios (a, a); trees (t, b - 1, 2) hold (node, its parent), directions (d, b - 1) which end."""
    rows, columns = kernel_matrix.shape
    high = np.exp(bounds)
    margin = (4.0 * columns + 8.0 * columns * bounds.max() + 32.0) * _UNIT
    result = np.ones((rows, rows))
    ray = np.ones(columns)
    values = np.empty(rows)
    for tree in range(trees.shape[0]):
        for direction in range(directions.shape[0]):
            ray[trees[tree, 0, 1]] = 1.0
            for edge in range(columns - 1):
                node, parent = trees[tree, edge, 0], trees[tree, edge, 1]
                if directions[direction, edge]:
                    ray[node] = ray[parent] * high[node, parent]
                else:
                    ray[node] = ray[parent] / high[parent, node]
            inside = True
            for y in range(columns):
                for z in range(columns):
                    if ray[y] > ray[z] * high[y, z] * (1.0 + _TIGHT):
                        inside = False
                        break
                if not inside:
                    break
            if not inside:
                continue
            for x in range(rows):
                total = 0.0
                for y in range(columns):
                    total += kernel_matrix[x, y] * ray[y]
                values[x] = total
            for x in range(rows):
                for other in range(rows):
                    result[x, other] = max(result[x, other], values[x] / values[other])
    for x in range(rows):
        for other in range(rows):
            result[x, other] = 0.0 if x == other else np.log(result[x, other]) + margin
    return result


@cache
def _trees(nodes: int) -> tuple[Order, Order]:
    """All trees on `nodes` nodes, from Pruefer codes, as (node, parent) from node 0 outward; all directions."""
    directions = np.array(list(product((0, 1), repeat=nodes - 1)), dtype=np.int16).reshape(-1, nodes - 1)
    if nodes == 2:
        return np.array([[[1, 0]]], dtype=np.int16), directions
    trees = []
    for code in product(range(nodes), repeat=nodes - 2):
        degree = [1 + code.count(node) for node in range(nodes)]
        edges = []
        for node in code:
            leaf = degree.index(1)
            edges.append((leaf, node))
            degree[leaf] = 0
            degree[node] -= 1
        last = [node for node in range(nodes) if degree[node] == 1]
        trees.append(_rooted([*edges, (last[0], last[1])]))
    return np.array(trees, dtype=np.int16), directions


def _rooted(edges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The edges of a tree as (node, parent), parents first, from node 0."""
    placed = {0}
    ordered: list[tuple[int, int]] = []
    while len(ordered) < len(edges):
        for a, b in edges:
            if (a in placed) != (b in placed):
                node, parent = (b, a) if a in placed else (a, b)
                ordered.append((node, parent))
                placed.add(node)
    return ordered
