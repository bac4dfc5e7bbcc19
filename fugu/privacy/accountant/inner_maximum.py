"""One step of the chain accountant: how well a mixture can tell two states apart.

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
    "close_bounds",
    "exact_step",
    "no_moves",
    "odds_ratio_step",
    "ratio_order",
    "step",
    "transport_step",
    "uniform_bounds",
]


Moves = NDArray[np.int32]
"""(a, a, b + 1): for each pair of rows the number of moves of its last proof, and each move y to z as 2^16 y + z."""

_MOST_RATIOS = 24
_FINE = 1e-6  # relative tolerance of ratios: later steps may still gain the rest
_BEYOND = 1e-7  # part of a Newton step to go beyond, so that the next ratio has a proof


def no_moves(row_count: int, column_count: int) -> Moves:
    """Return an empty list of moves for each pair of a kernel's rows."""
    return np.zeros((row_count, row_count, column_count + 1), dtype=np.int32)


@part
def _transport(
    p_row: Floats,
    q_row: Floats,
    ratio: float,
    high: Floats,
    low: Floats,
    nearest: Ints,
    moves: Moves,
    work_rows: tuple[Floats, Floats, Floats, Ints, Ints],
) -> tuple[bool, float, float]:
    """Try to prove by transport that p_row.h <= ratio * q_row.h, ratio > 1, for all h of the cone.

    Args:
        p_row, q_row: (b,) distributions.
        ratio: the ratio to prove.
        high, low: (b, b) exp(M) and exp(-M).
        nearest: (b, b) for each state all states by rising M.
        moves: (b + 1,) moves of this pair as in `Moves`, tried first, and replaced by the moves made.
        work_rows: buffers (b,) of any content.

    Returns:
        Whether there is a proof; the amount that can still be taken, or, negative, is left to give; and the change of
        this amount with the ratio.
    """
    surplus, slopes, prices, givers, neighbour_rank = work_rows
    state_count = p_row.size
    giver_count = taker_count = 0
    for y in range(state_count):
        surplus[y] = p_row[y] - ratio * q_row[y]
        slopes[y] = -q_row[y]
        giver_count += surplus[y] > 0.0
        taker_count += surplus[y] < 0.0
    tried_moves, count_moved, stored_moves, active_givers = 0, 0, moves[0], -1
    while giver_count > 0 and taker_count > 0:
        if tried_moves < stored_moves:
            tried_moves += 1
            y, z = moves[tried_moves] >> 16, moves[tried_moves] & 0xFFFF
            if surplus[y] <= 0.0 or surplus[z] >= 0.0:
                continue
        else:
            if active_givers < 0:  # each state with a surplus, and the nearest state that can take some
                active_givers = 0
                for y in range(state_count):
                    if surplus[y] > 0.0:
                        givers[active_givers], neighbour_rank[y] = y, 0
                        while surplus[nearest[y, neighbour_rank[y]]] >= 0.0:
                            neighbour_rank[y] += 1
                        prices[active_givers] = high[y, nearest[y, neighbour_rank[y]]]
                        active_givers += 1
            least_price, cheapest_giver = np.inf, 0
            for index in range(active_givers):
                if prices[index] < least_price:
                    least_price, cheapest_giver = prices[index], index
            y = givers[cheapest_giver]
            if surplus[y] <= 0.0:
                active_givers -= 1
                givers[cheapest_giver], prices[cheapest_giver] = givers[active_givers], prices[active_givers]
                continue
            z = nearest[y, neighbour_rank[y]]
            if surplus[z] >= 0.0:
                while surplus[nearest[y, neighbour_rank[y]]] >= 0.0:
                    neighbour_rank[y] += 1
                prices[cheapest_giver] = high[y, nearest[y, neighbour_rank[y]]]
                continue
        count_moved += 1
        moves[count_moved] = (y << 16) | z
        if surplus[y] * high[y, z] <= -surplus[z]:
            surplus[z] = min(0.0, surplus[z] + surplus[y] * high[y, z])
            slopes[z] += slopes[y] * high[y, z]
            surplus[y] = slopes[y] = 0.0
            giver_count -= 1
            taker_count -= surplus[z] == 0.0
        else:
            surplus[y] = max(0.0, surplus[y] + surplus[z] * low[y, z])
            slopes[y] += slopes[z] * low[y, z]
            surplus[z] = slopes[z] = 0.0
            taker_count -= 1
            giver_count -= surplus[y] == 0.0
    moves[0] = count_moved
    remaining = slope = 0.0
    for y in range(state_count):  # what remains has one sign
        remaining -= surplus[y]
        slope -= slopes[y]
    return giver_count == 0, remaining, slope


@part
def _exponentials(bounds: Floats, high: Floats, low: Floats) -> None:
    """Fill (b, b) exp(M) and exp(-M), entry by entry: numba compiles a product of arrays for seconds."""
    for y in range(bounds.shape[0]):
        for z in range(bounds.shape[0]):
            high[y, z] = np.exp(bounds[y, z])
            low[y, z] = 1.0 / high[y, z]


@part
def _largest(table: Floats) -> float:
    """Return the largest entry of a table, NaN if one is NaN; numba's own `max` takes a second to compile."""
    largest = -np.inf
    for y in range(table.shape[0]):
        for z in range(table.shape[1]):
            entry = table[y, z]
            if entry > largest:
                largest = entry
            elif np.isnan(entry):
                return float(entry)
    return largest


@part
def _sort(keys: Floats, row: int, order: Ints) -> None:
    """Fill `order` (b,) with the columns of `keys` (rows, b) by rising keys of a row: numba's sort compiles for 2 s."""
    for y in range(order.size):
        position = y
        while position > 0 and keys[row, y] < keys[row, order[position - 1]]:
            order[position] = order[position - 1]
            position -= 1
        order[position] = y


@kernel
def transport_step(kernel_matrix: Floats, bounds: Floats, valid_bounds: Floats, caps: Floats, moves: Moves) -> Floats:
    """Return bounds (a, a) by transport, or `valid_bounds` where these are better.

    Args:
        kernel_matrix: (a, b) distributions over next states, b < 2^15.
        bounds: (b, b) closed bounds M.
        valid_bounds: (a, a) returned where no better bound is found.
        caps: (a, a) only bounds below these are of use; they need not be valid.
        moves: moves of a similar earlier step, with which proofs begin, and which are replaced; or (0, 0, any) to begin
            each proof with the cheapest.
    """
    row_count, column_count = kernel_matrix.shape
    # each state is emptied or filled once, by a product with a rounded exponential and a sum
    margin = (16.0 * column_count + 8.0 * _largest(bounds) + 32.0) * UNIT
    high, low = np.empty((column_count, column_count)), np.empty((column_count, column_count))
    _exponentials(bounds, high, low)
    nearest = np.empty((column_count, column_count), dtype=np.int64)
    floats, ints = np.empty((3, column_count)), np.empty((2, column_count), dtype=np.int64)
    buffers = (floats[0], floats[1], floats[2], ints[0], ints[1])
    for y in range(column_count):
        _sort(bounds, y, ints[0])
        for z in range(column_count):  # an array assigned whole takes numba seconds more to compile
            nearest[y, z] = ints[0, z]
    pair_buffer = np.zeros(column_count + 1, dtype=np.int32)
    step_bounds = valid_bounds.copy()
    for x in range(row_count):
        for other_row in range(row_count):
            log_bound = min(valid_bounds[x, other_row], caps[x, other_row])
            if x == other_row or not 0.0 < log_bound < np.inf:
                continue
            p_row, q_row = kernel_matrix[x], kernel_matrix[other_row]
            pair_moves = moves[x, other_row] if len(moves) else pair_buffer
            first_ratio = ratio = high_ratio = np.exp(log_bound)
            low_ratio, is_proven = 1.0, False
            for trial in range(_MOST_RATIOS):
                pair_buffer[0] = 0
                is_proof, remaining, slope = _transport(p_row, q_row, ratio, high, low, nearest, pair_moves, buffers)
                if is_proof:
                    high_ratio, is_proven = ratio, True
                elif trial == 0:
                    break
                else:
                    low_ratio = ratio
                newton_step = remaining / slope
                ratio = ratio - newton_step + _BEYOND * abs(newton_step)
                fine = _FINE * high_ratio
                if high_ratio - low_ratio < fine or (is_proof and low_ratio < ratio and high_ratio - ratio < fine):
                    break
                if not low_ratio < ratio < high_ratio:
                    ratio = (low_ratio + high_ratio) / 2.0
            if is_proven:
                proven_bound = log_bound if high_ratio == first_ratio else np.log(high_ratio)
                step_bounds[x, other_row] = min(valid_bounds[x, other_row], proven_bound + margin)
    return step_bounds


EXACT_STATES = 12
"""The most columns for which `step` solves the linear programme."""
_LARGEST = 600.0  # e^600 and e^-600 are well within the range of floats
_LARGEST_LOG = 660.0

Order = NDArray[np.int16]

exact_ratio = kernel(largest_ratio)
widening_kernel = part(widening)


def step(
    kernel_matrix: Floats, order: Order, bounds: Floats, caps: Floats | None = None, moves: Moves | None = None
) -> Floats:
    """Return the least bound of one step that any method finds, for all pairs of rows.

    Args:
        kernel_matrix: (a, b) distributions over next states.
        order: `ratio_order(kernel_matrix)`.
        bounds: (b, b) bounds M >= 0 on log h_y / h_y', 0 on the diagonal.
        caps: (a, a) bounds that the caller has: for many states only lower bounds are sought.
        moves: moves of a similar step, for many states; replaced by those of this step.

    Returns:
        (a, a) bounds, 0 on the diagonal, none above the largest of M: a mean of h is between its ends.
    """
    bounds = close_bounds(bounds)
    peak = float(bounds.max())
    bound = uniform_bounds(len(kernel_matrix), peak)
    least_probability = float(kernel_matrix[kernel_matrix > 0.0].min())
    if peak > _LARGEST or np.log(least_probability) - peak < -_LARGEST_LOG:  # products would not fit a float
        return bound
    if moves is None or not moves.any():  # boxes are no better than earlier proofs by transport
        bound = np.minimum(bound, box_step(kernel_matrix, order, bounds))
    if EXACT_STATES >= kernel_matrix.shape[1] > 2:
        bound = exact_step(kernel_matrix, bounds, bound)
    elif kernel_matrix.shape[1] > 2:
        pair_moves = no_moves(0, kernel_matrix.shape[1]) if moves is None else moves
        bound = transport_step(kernel_matrix, bounds, bound, bound if caps is None else caps, pair_moves)
    return np.asarray(bound)


def odds_ratio_step(odds: float, bound: float) -> float:
    """Return the bound of one step over kernels of which only the odds ratio is known, rounded up.

    It is max log(E h / E' h) over h in [1, e^bound] and distributions whose likelihood ratio varies by at most the
    factor `odds`: 2 log((sqrt(odds G) + 1) / (sqrt(odds) + sqrt(G))), G = e^bound.

    Source: docs/proofs/chain-accountant.md, "The chain accountant"; Birkhoff (1957).
    """
    if not math.isfinite(odds):
        return bound
    if odds <= 1.0 or bound == 0.0:
        return 0.0
    root, inverse_root = math.sqrt(odds), math.exp(-bound / 2.0)
    # The quotient is 1 + (root - 1) (sqrt(G) - 1) / (root + sqrt(G)): no digit cancels, however near both are to 1.
    log_ratio = 2.0 * math.log1p((odds - 1.0) / (root + 1.0) * -math.expm1(-bound / 2.0) / (1.0 + root * inverse_root))
    return min(log_ratio * (1.0 + SIXTEEN_ROUNDINGS), bound)


def uniform_bounds(states: int, bound: float) -> Floats:
    """Return (k, k) the same bound for all pairs of states, 0 on the diagonal."""
    bounds = np.full((states, states), bound)
    bounds.reshape(-1)[:: states + 1] = 0.0  # numpy's own way to fill a diagonal takes five times as long
    return bounds


def close_bounds(bounds: Floats) -> Floats:
    """Tighten bounds M (..., b, b) by the triangle inequality: log h_y / h_z <= M[y,w] + M[w,z]."""
    closure = bounds.copy()
    if closure.shape[-1] > 2:
        for middle in range(closure.shape[-1]):
            np.minimum(closure, closure[..., middle, None] + closure[..., None, middle, :], out=closure)
    return closure


@kernel
def ratio_order(kernel_matrix: Floats) -> Order:
    """Return (a, a, b): for each pair of rows x, x' the columns by falling K[x,y] / K[x',y]."""
    row_count, column_count = kernel_matrix.shape
    order = np.empty((row_count, row_count, column_count), dtype=np.int16)
    ratios = np.empty((1, column_count))
    falling_columns = np.empty(column_count, dtype=np.int64)
    for x in range(row_count):
        for other_row in range(row_count):
            for y in range(column_count):
                numerator, denominator = kernel_matrix[x, y], kernel_matrix[other_row, y]
                if denominator > 0.0:
                    ratios[0, y] = -numerator / denominator
                else:
                    ratios[0, y] = -np.inf if numerator > 0.0 else np.inf
            _sort(ratios, 0, falling_columns)
            for y in range(column_count):
                order[x, other_row, y] = falling_columns[y]
    return order


@kernel
def box_step(kernel_matrix: Floats, order: Order, bounds: Floats) -> Floats:
    """Bound each pair over boxes h_r = 1, h_y in [exp(-M[r,y]), exp(M[y,r])], for its best reference r.

    The maximum gives the upper end to the columns with the largest K[x,y] / K[x',y], and the lower end to the others. A
    column raises the ratio exactly if its own is above.
    """
    row_count, column_count = kernel_matrix.shape
    margin = (4.0 * column_count + 4.0 * _largest(bounds) + 32.0) * UNIT
    step_bounds = np.zeros((row_count, row_count))
    low_ends, gaps = np.empty((column_count, column_count)), np.empty((column_count, column_count))
    _exponentials(bounds, gaps, low_ends)
    for y in range(column_count):
        for reference in range(column_count):  # between the ends of h_y
            gaps[y, reference] -= low_ends[reference, y]
    low_means = np.zeros((row_count, column_count))
    for x in range(row_count):
        for reference in range(column_count):
            for y in range(column_count):
                low_means[x, reference] += kernel_matrix[x, y] * low_ends[reference, y]
    numerators, denominators = np.empty(column_count), np.empty(column_count)
    for x in range(row_count):
        for other_row in range(row_count):
            if x == other_row:
                continue
            for reference in range(column_count):
                numerators[reference] = low_means[x, reference]
                denominators[reference] = low_means[other_row, reference]
            for index in range(column_count):
                y = order[x, other_row, index]
                p, q = kernel_matrix[x, y], kernel_matrix[other_row, y]
                if p <= q:  # the sought ratio is at least 1
                    break
                for reference in range(column_count):  # all at once: a finished reference gains 0
                    gain = gaps[y, reference] if p * denominators[reference] > numerators[reference] * q else 0.0
                    numerators[reference] += p * gain
                    denominators[reference] += q * gain
            least_ratio = np.inf
            for reference in range(column_count):
                least_ratio = min(least_ratio, numerators[reference] / denominators[reference])
            step_bounds[x, other_row] = max(0.0, np.log(least_ratio)) + margin
    return step_bounds


@kernel
def exact_step(kernel_matrix: Floats, bounds: Floats, valid_bounds: Floats) -> Floats:
    """Bound log(K[x].h / K[x'].h) for each pair of rows x, x' by the simplex method, from closed bounds M (b, b).

    The result (a, a) is nowhere above the known `valid_bounds` (a, a).
    """
    row_count, column_count = kernel_matrix.shape
    cone, steepest = np.empty(column_count * column_count), 0.0
    for y in range(column_count):
        for z in range(column_count):
            cone[y * column_count + z] = np.exp(bounds[y, z]) * widening_kernel(y, z)
            steepest = max(steepest, cone[y * column_count + z])
    margin = (16.0 * column_count + 8.0 * column_count * _largest(bounds) + 32.0) * UNIT
    ints, floats = np.empty((5, column_count), dtype=np.int64), np.empty((2, column_count))
    tree = Tree(ints[0], ints[1], ints[2], ints[3], ints[4], floats[0], floats[1])
    step_bounds = valid_bounds.copy()
    for x in range(row_count):
        for other_row in range(row_count):
            if x != other_row:
                ratio, _ = exact_ratio(kernel_matrix[x], kernel_matrix[other_row], cone, steepest, tree)
                step_bounds[x, other_row] = min(step_bounds[x, other_row], max(0.0, np.log(ratio)) + margin)
    return step_bounds
