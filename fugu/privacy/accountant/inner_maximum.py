"""One step of the chain accountant: how much a mixture can tell two states apart.

Let K (a, b) be a kernel of distributions over the states y of the next tick. Let M (b, b) bound how much everything
from that tick on depends on y. Each function here bounds, rounded outward, for all pairs of rows x, x',

    max over h in H(M) of log( K[x,:].h / K[x',:].h ),   H(M) = { h > 0 : h_y / h_y' <= exp(M[y,y']) for all y, y' }

This is a linear programme: maximise K[x,:].h subject to K[x',:].h = 1. `exact_step` solves it. `box_step` relaxes the
cone to a box around each reference state; the least of the references is exact for two states. For many states
`transport_step` looks for good solutions of the dual, each of which is a bound.

Transport: for a ratio rho, let c = K[x,:] - rho K[x',:]. Let amounts f[y,z] >= 0 move all of every positive c_y to
negative c_z, with the sum over y of f[y,z] exp(M[y,z]) at most -c_z. Then c.h <= 0 for all h of the cone, because h_y
<= exp(M[y,z]) h_z. So log(rho) bounds the maximum. Moving along the cheapest pairs first is not always optimal, but
every move that works is a proof. What is left at the end is piecewise linear in rho, for Newton's method.

Source: docs/proofs/chain-accountant.md, "The chain accountant".
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from fugu.chains.arrays import Floats, Ints
from fugu.chains.kernel import kernel, part
from fugu.contract.losses import SIXTEEN_ROUNDINGS, UNIT
from fugu.privacy.accountant.simplex import Tree, largest_ratio, widening

__all__ = [
    "EXACT_STATES",
    "Order",
    "box_step",
    "closed",
    "exact_step",
    "no_moves",
    "odds_ratio_step",
    "ratio_order",
    "step",
    "transport_step",
]


Moves = NDArray[np.int32]
"""(a, a, b + 1): for each pair of rows how many moves its last proof had, and each from y to z as 2^16 y + z."""

_MOST_RATIOS = 24
_FINE = 1e-6  # relative, of ratios: a later step may still gain what this one leaves
_BEYOND = 1e-7  # of a Newton step, so that it ends where there is a proof


def no_moves(rows: int, columns: int) -> Moves:
    """None yet, for kernels (rows, columns)."""
    return np.zeros((rows, rows, columns + 1), dtype=np.int32)


@part
def _transported(
    above: Floats,
    below: Floats,
    ratio: float,
    high: Floats,
    low: Floats,
    nearest: Ints,
    moves: Moves,
    work: tuple[Floats, Floats, Floats, Ints, Ints],
) -> tuple[bool, float, float]:
    """True if transport proves above.h <= ratio * below.h, ratio > 1, for all h of the cone.

    Args:
        above, below: (b,) distributions.
        high, low: (b, b) exp(M) and exp(-M).
        nearest: (b, b) for each state all states by rising M.
        moves: (b + 1,) those of `Moves` for this pair, tried first; replaced by those that were made.
        work: rows (b,), whatever they hold.

    Returns:
        Whether it does; how much can still be taken, or, negative, is left to give; its change with the ratio.
    """
    surplus, drift, price, givers, at = work
    size = above.size
    waiting = capacity = 0
    for y in range(size):
        surplus[y] = above[y] - ratio * below[y]
        drift[y] = -below[y]
        waiting += surplus[y] > 0.0
        capacity += surplus[y] < 0.0
    tried, count_moved, planned, count = 0, 0, moves[0], -1
    while waiting > 0 and capacity > 0:
        if tried < planned:
            tried += 1
            y, z = moves[tried] >> 16, moves[tried] & 0xFFFF
            if surplus[y] <= 0.0 or surplus[z] >= 0.0:
                continue
        else:
            if count < 0:  # each that still has something to give, and its nearest that can take
                count = 0
                for y in range(size):
                    if surplus[y] > 0.0:
                        givers[count], at[y] = y, 0
                        while surplus[nearest[y, at[y]]] >= 0.0:
                            at[y] += 1
                        price[count] = high[y, nearest[y, at[y]]]
                        count += 1
            cheapest, giver = np.inf, 0
            for index in range(count):
                if price[index] < cheapest:
                    cheapest, giver = price[index], index
            y = givers[giver]
            if surplus[y] <= 0.0:
                count -= 1
                givers[giver], price[giver] = givers[count], price[count]
                continue
            z = nearest[y, at[y]]
            if surplus[z] >= 0.0:
                while surplus[nearest[y, at[y]]] >= 0.0:
                    at[y] += 1
                price[giver] = high[y, nearest[y, at[y]]]
                continue
        count_moved += 1
        moves[count_moved] = (y << 16) | z
        if surplus[y] * high[y, z] <= -surplus[z]:
            surplus[z] = min(0.0, surplus[z] + surplus[y] * high[y, z])
            drift[z] += drift[y] * high[y, z]
            surplus[y] = drift[y] = 0.0
            waiting -= 1
            capacity -= surplus[z] == 0.0
        else:
            surplus[y] = max(0.0, surplus[y] + surplus[z] * low[y, z])
            drift[y] += drift[z] * low[y, z]
            surplus[z] = drift[z] = 0.0
            capacity -= 1
            waiting -= surplus[y] == 0.0
    moves[0] = count_moved
    remaining = change = 0.0
    for y in range(size):  # what remains has one sign
        remaining -= surplus[y]
        change -= drift[y]
    return waiting == 0, remaining, change


@part
def _exponentials(bounds: Floats, high: Floats, low: Floats) -> None:
    """Fill (b, b) exp(M) and exp(-M); an array that is computed whole takes numba seconds more to compile."""
    for y in range(bounds.shape[0]):
        for z in range(bounds.shape[0]):
            high[y, z] = np.exp(bounds[y, z])
            low[y, z] = 1.0 / high[y, z]


@part
def _largest(table: Floats) -> float:
    """The largest entry of a table, NaN if one is NaN; numba's own `max` takes a second to compile."""
    largest = -np.inf
    for y in range(table.shape[0]):
        for z in range(table.shape[1]):
            value = table[y, z]
            if value > largest:
                largest = value
            elif np.isnan(value):
                return float(value)
    return largest


@part
def _sort(keys: Floats, row: int, order: Ints) -> None:
    """Fill `order` (b,) with the columns of `keys` (rows, b) by rising keys of a row: numba's sort compiles for 2 s."""
    for y in range(order.size):
        place = y
        while place > 0 and keys[row, y] < keys[row, order[place - 1]]:
            order[place] = order[place - 1]
            place -= 1
        order[place] = y


@kernel
def transport_step(kernel_matrix: Floats, bounds: Floats, start: Floats, lower: Floats, moves: Moves) -> Floats:
    """Bounds by transport, where that is better than given ones.

    Args:
        kernel_matrix: (a, b) distributions over next states, b < 2^15.
        bounds: (b, b) closed bounds M.
        start: (a, a) valid bounds, returned where nothing better is found.
        lower: (a, a) only what is below is of use; need not be valid.
        moves: of a similar earlier step, from which proofs begin, and which are replaced; or (0, 0, any) to begin each
            afresh with the cheapest.
    """
    rows, columns = kernel_matrix.shape
    # each state is emptied or filled once, by a product with a rounded exponential and a sum
    margin = (16.0 * columns + 8.0 * _largest(bounds) + 32.0) * UNIT
    high, low = np.empty((columns, columns)), np.empty((columns, columns))
    _exponentials(bounds, high, low)
    nearest = np.empty((columns, columns), dtype=np.int64)
    floats, ints = np.empty((3, columns)), np.empty((2, columns), dtype=np.int64)
    work = (floats[0], floats[1], floats[2], ints[0], ints[1])
    for y in range(columns):
        _sort(bounds, y, ints[0])
        for z in range(columns):  # an array assigned whole takes numba seconds more to compile
            nearest[y, z] = ints[0, z]
    own = np.zeros(columns + 1, dtype=np.int32)
    step_bounds = start.copy()
    for x in range(rows):
        for other in range(rows):
            top = min(start[x, other], lower[x, other])
            if x == other or not 0.0 < top < np.inf:
                continue
            above, below = kernel_matrix[x], kernel_matrix[other]
            pair_moves = moves[x, other] if len(moves) else own
            first = ratio = best = np.exp(top)
            bottom, proven = 1.0, False
            for count in range(_MOST_RATIOS):
                own[0] = 0
                proof, remaining, change = _transported(above, below, ratio, high, low, nearest, pair_moves, work)
                if proof:
                    best, proven = ratio, True
                elif count == 0:
                    break
                else:
                    bottom = ratio
                newton = remaining / change
                ratio = ratio - newton + _BEYOND * abs(newton)
                if best - bottom < _FINE * best or (proof and bottom < ratio and best - ratio < _FINE * best):
                    break
                if not bottom < ratio < best:
                    ratio = (bottom + best) / 2.0
            if proven:
                least = top if best == first else np.log(best)
                step_bounds[x, other] = min(start[x, other], least + margin)
    return step_bounds


EXACT_STATES = 12
"""The most columns for which `step` solves the linear programme."""
_LARGEST = 600.0  # e^600 and e^-600 are far from the ends of a float
_LARGEST_LOG = 660.0

Order = NDArray[np.int16]

exact_ratio = kernel(largest_ratio)
widened = part(widening)


def step(
    kernel_matrix: Floats, order: Order, bounds: Floats, lower: Floats | None = None, moves: Moves | None = None
) -> Floats:
    """The best bound that is known for all pairs of rows.

    Args:
        kernel_matrix: (a, b) distributions over next states.
        order: `ratio_order(kernel_matrix)`.
        bounds: (b, b) bounds M >= 0 on log h_y / h_y', 0 on the diagonal.
        lower: (a, a) bounds that the caller has: for many states only what is below is looked for.
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
        bound = transport_step(kernel_matrix, bounds, bound, bound if lower is None else lower, unmoved)
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
    bounds = np.full((states, states), bound)
    bounds.reshape(-1)[:: states + 1] = 0.0  # numpy's own way to fill a diagonal takes five times as long
    return bounds


def closed(bounds: Floats) -> Floats:
    """Bounds (..., b, b) under the triangle inequality: log h_y / h_z <= M[y,w] + M[w,z]."""
    closure = bounds.copy()
    if closure.shape[-1] > 2:
        for middle in range(closure.shape[-1]):
            np.minimum(closure, closure[..., middle, None] + closure[..., None, middle, :], out=closure)
    return closure


@kernel
def ratio_order(kernel_matrix: Floats) -> Order:
    """(a, a, b): for each pair of rows x, x' the columns by falling K[x,y] / K[x',y]."""
    rows, columns = kernel_matrix.shape
    order = np.empty((rows, rows, columns), dtype=np.int16)
    ratios = np.empty((1, columns))
    falling = np.empty(columns, dtype=np.int64)
    for x in range(rows):
        for other in range(rows):
            for y in range(columns):
                top, bottom = kernel_matrix[x, y], kernel_matrix[other, y]
                if bottom > 0.0:
                    ratios[0, y] = -top / bottom
                else:
                    ratios[0, y] = -np.inf if top > 0.0 else np.inf
            _sort(ratios, 0, falling)
            for y in range(columns):
                order[x, other, y] = falling[y]
    return order


@kernel
def box_step(kernel_matrix: Floats, order: Order, bounds: Floats) -> Floats:
    """Bound by boxes: h_r = 1 and h_y in [exp(-M[r,y]), exp(M[y,r])], for the best reference r of each pair.

    The maximum gives the upper end to the columns with the largest K[x,y] / K[x',y], and the lower end to the others. A
    column raises the ratio exactly if its own is above.
    """
    rows, columns = kernel_matrix.shape
    margin = (4.0 * columns + 4.0 * _largest(bounds) + 32.0) * UNIT
    step_bounds = np.zeros((rows, rows))
    low, gaps = np.empty((columns, columns)), np.empty((columns, columns))
    _exponentials(bounds, gaps, low)
    for y in range(columns):
        for reference in range(columns):  # between the ends of h_y
            gaps[y, reference] -= low[reference, y]
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
            for reference in range(columns):
                top[reference], bottom[reference] = lowest[x, reference], lowest[other, reference]
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
            step_bounds[x, other] = max(0.0, np.log(least)) + margin
    return step_bounds


@kernel
def exact_step(kernel_matrix: Floats, bounds: Floats, start: Floats) -> Floats:
    """The maximum, by the simplex method of `fugu.privacy.accountant.simplex`, from closed bounds M (b, b).

    Valid bounds `start` (a, a) are returned where nothing better is found.
    """
    rows, columns = kernel_matrix.shape
    flat, steepest = np.empty(columns * columns), 0.0
    for y in range(columns):
        for z in range(columns):
            flat[y * columns + z] = np.exp(bounds[y, z]) * widened(y, z)
            steepest = max(steepest, flat[y * columns + z])
    margin = (16.0 * columns + 8.0 * columns * _largest(bounds) + 32.0) * UNIT
    ints, floats = np.empty((5, columns), dtype=np.int64), np.empty((2, columns))
    tree = Tree(ints[0], ints[1], ints[2], ints[3], ints[4], floats[0], floats[1])
    step_bounds = start.copy()
    for x in range(rows):
        for other in range(rows):
            if x != other:
                ratio, _ = exact_ratio(kernel_matrix[x], kernel_matrix[other], flat, steepest, tree)
                step_bounds[x, other] = min(step_bounds[x, other], max(0.0, np.log(ratio)) + margin)
    return step_bounds
