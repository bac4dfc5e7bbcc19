"""One step of the chain accountant: how much a mixture can tell two states apart.

Given a kernel K (a, b) of distributions over the states y of the next tick, and bounds M (b, b) on how much everything
from that tick on depends on y, each function here bounds, for all pairs of rows x, x',

    max over h in H(M) of log( K[x,:].h / K[x',:].h ),   H(M) = { h > 0 : h_y / h_y' <= exp(M[y,y']) for all y, y' }

This is a linear programme: maximise K[x,:].h subject to K[x',:].h = 1. `exact_step` solves it. `box_step` relaxes the
cone to a box around each reference state, where the maximum has a threshold structure; the least of the references is
exact for two states. For many states `transport.transport_step` looks for good solutions of the dual, each of which is
a bound. All results are rounded outward.

Source: docs/proofs/chain-accountant.md, "The chain accountant".
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from fugu.chains.arrays import Floats
from fugu.chains.kernel import kernel
from fugu.contract.rounding import SIXTEEN_ROUNDINGS, UNIT
from fugu.contract.simplex import Tree, largest_ratio, widening
from fugu.privacy.accountant.transport import Moves, no_moves, transport_step

__all__ = [
    "EXACT_STATES",
    "Order",
    "box_step",
    "closed",
    "exact_step",
    "odds_ratio_step",
    "ratio_order",
    "step",
]

EXACT_STATES = 12
"""The most columns for which `step` solves the linear programme."""
_LARGEST = 600.0  # e^600 and e^-600 are far from the ends of a float
_LARGEST_LOG = 660.0

Order = NDArray[np.int16]

exact_ratio = kernel(largest_ratio)
widened = kernel(widening)


def step(
    kernel_matrix: Floats, order: Order, bounds: Floats, known: Floats | None = None, moves: Moves | None = None
) -> Floats:
    """The best bound that is known for all pairs of rows.

    Args:
        kernel_matrix: (a, b) distributions over next states.
        order: `ratio_order(kernel_matrix)`.
        bounds: (b, b) bounds M >= 0 on log h_y / h_y', 0 on the diagonal.
        known: (a, a) bounds that the caller has: of many states only what is below is looked for.
        moves: of a step like this one, for many states; replaced by this one's.

    Returns:
        (a, a) bounds, 0 on the diagonal, none above the largest of M: a mean of h is between its ends.
    """
    bounds = closed(bounds)
    most = float(bounds.max())
    least = float(kernel_matrix[kernel_matrix > 0.0].min())
    if most > _LARGEST or np.log(least) - most < -_LARGEST_LOG:  # the products of the kernels would not fit a float
        return _everywhere(len(kernel_matrix), most)
    bound = _everywhere(len(kernel_matrix), most)
    if moves is None or not moves.any():  # boxes gain nothing on proofs by transport
        bound = np.minimum(bound, box_step(kernel_matrix, order, bounds))
    if EXACT_STATES >= kernel_matrix.shape[1] > 2:
        bound = exact_step(kernel_matrix, bounds, bound)
    elif kernel_matrix.shape[1] > 2:
        unmoved = no_moves(0, kernel_matrix.shape[1]) if moves is None else moves
        bound = transport_step(kernel_matrix, bounds, bound, bound if known is None else known, unmoved)
    return np.asarray(bound)


def odds_ratio_step(odds: float, bound: float) -> float:
    """One step over kernels of which only the odds ratio is known, rounded up.

    max log(E h / E' h) over h in [1, e^bound] and distributions whose likelihood ratio varies by at most the factor
    `odds`: 2 log((sqrt(odds G) + 1) / (sqrt(odds) + sqrt(G))), G = e^bound.

    Source: docs/proofs/chain-accountant.md, "The chain accountant"; Birkhoff (1957).
    """
    if not math.isfinite(odds):
        return bound
    if odds <= 1.0 or bound == 0.0:
        return 0.0
    root, small = math.sqrt(odds), math.exp(-bound / 2.0)
    # The quotient is 1 + (root - 1) (sqrt(G) - 1) / (root + sqrt(G)): no digit cancels, however near both are to 1.
    value = 2.0 * math.log1p((odds - 1.0) / (root + 1.0) * -math.expm1(-bound / 2.0) / (1.0 + root * small))
    return min(value * (1.0 + SIXTEEN_ROUNDINGS), bound)


def _everywhere(states: int, bound: float) -> Floats:
    """The same bound for all pairs of states."""
    result = np.full((states, states), bound)
    np.fill_diagonal(result, 0.0)
    return result


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
    margin = (4.0 * columns + 4.0 * bounds.max() + 32.0) * UNIT
    result = np.zeros((rows, rows))
    high = np.exp(bounds)
    low = 1.0 / high
    gaps = high - low.T  # entry y, r: between the ends of h_y, where r is the reference
    lowest = np.zeros((rows, columns))
    for x in range(rows):
        for reference in range(columns):
            for y in range(columns):
                lowest[x, reference] += kernel_matrix[x, y] * low[reference, y]
    top, bottom = np.empty(columns), np.empty(columns)
    for x in range(rows):
        for other in range(rows):
            if x == other:
                continue
            top[:], bottom[:] = lowest[x], lowest[other]
            for index in range(columns):
                y = order[x, other, index]
                above, below = kernel_matrix[x, y], kernel_matrix[other, y]
                if above <= below:  # no ratio that is looked for is below 1
                    break
                for reference in range(columns):  # all at once: for a reference that is done, nothing is gained
                    gain = gaps[y, reference] if above * bottom[reference] > top[reference] * below else 0.0
                    top[reference] += above * gain
                    bottom[reference] += below * gain
            least = np.inf
            for reference in range(columns):
                least = min(least, top[reference] / bottom[reference])
            result[x, other] = max(0.0, np.log(least)) + margin
    return result


@kernel
def exact_step(kernel_matrix: Floats, bounds: Floats, start: Floats) -> Floats:
    """The maximum itself, by the simplex method of `fugu.contract.simplex`.

    Args:
        kernel_matrix: (a, b) distributions over next states.
        bounds: (b, b) closed bounds M.
        start: (a, a) valid bounds, returned where nothing better is found.
    """
    rows, columns = kernel_matrix.shape
    high = np.exp(bounds)
    for y in range(columns):
        for z in range(columns):
            high[y, z] *= widened(y, z)
    margin = (16.0 * columns + 8.0 * columns * bounds.max() + 32.0) * UNIT
    tree = Tree(
        np.empty(columns, dtype=np.int64),
        np.empty(columns, dtype=np.int64),
        np.empty(columns, dtype=np.int64),
        np.empty(columns, dtype=np.int64),
        np.empty(columns, dtype=np.int64),
        np.empty(columns),
        np.empty(columns),
    )
    result = start.copy()
    for x in range(rows):
        for other in range(rows):
            if x != other:
                ratio, _ = exact_ratio(kernel_matrix[x], kernel_matrix[other], high.ravel(), high.max(), tree)
                result[x, other] = min(result[x, other], max(0.0, np.log(ratio)) + margin)
    return result
