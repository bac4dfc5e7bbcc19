"""Bounds on a step of the chain accountant by transport, for many states.

For a ratio rho, let c = K[x,:] - rho K[x',:]. If amounts f[y,z] >= 0 move all of every positive c_y to negative c_z,
with the sum over y of f[y,z] exp(M[y,z]) at most -c_z, then c.h <= 0 for all h of the cone of `inner_maximum`, because
h_y <= exp(M[y,z]) h_z; so log(rho) bounds the maximum. Moving along the cheapest pairs first is not always optimal, but
every move that works is a proof. What is left at the end is piecewise linear in rho, so that Newton's method soon finds
the least rho with a proof.

Source: docs/proofs/chain-accountant.md, "The chain accountant".
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fugu.chains.arrays import Floats, Ints
from fugu.chains.kernel import kernel
from fugu.contract.rounding import UNIT

__all__ = ["Moves", "no_moves", "transport_step"]

Moves = NDArray[np.int32]
"""(a, a, b + 1): for each pair of rows how many moves its last proof had, and each from y to z as 2^16 y + z."""

_MOST_RATIOS = 24
_FINE = 1e-6  # relative, of ratios: a later step may still gain what this one leaves
_BEYOND = 1e-7  # of a Newton step, so that it ends where there is a proof


def no_moves(rows: int, columns: int) -> Moves:
    """None yet, for kernels (rows, columns)."""
    return np.zeros((rows, rows, columns + 1), dtype=np.int32)


@kernel
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
    """Whether transport proves above.h <= ratio * below.h for all h of the cone.

    Args:
        above: (b,) one distribution.
        below: (b,) another.
        ratio: above 1.
        high: (b, b) exp(M).
        low: (b, b) exp(-M).
        nearest: (b, b) for each state all states by rising M.
        moves: (b + 1,) those of `Moves` for this pair, which are tried first; those that were made are left there.
        work: rows (b,), whatever they hold.

    Returns:
        Whether it does; how much can still be taken, or, negative, how much is left to give; and how that changes with
        the ratio.
    """
    left, drift, price, givers, at = work
    size = above.size
    waiting = capacity = 0
    for y in range(size):
        left[y] = above[y] - ratio * below[y]
        drift[y] = -below[y]
        waiting += left[y] > 0.0
        capacity += left[y] < 0.0
    tried, made, planned, count = 0, 0, moves[0], -1
    while waiting > 0 and capacity > 0:
        if tried < planned:
            tried += 1
            y, z = moves[tried] >> 16, moves[tried] & 0xFFFF
            if left[y] <= 0.0 or left[z] >= 0.0:
                continue
        else:
            if count < 0:  # each that still has something to give, and its nearest that can take
                count = 0
                for y in range(size):
                    if left[y] > 0.0:
                        givers[count], at[y] = y, 0
                        while left[nearest[y, at[y]]] >= 0.0:
                            at[y] += 1
                        price[count] = high[y, nearest[y, at[y]]]
                        count += 1
            cheapest, giver = np.inf, 0
            for index in range(count):
                if price[index] < cheapest:
                    cheapest, giver = price[index], index
            y = givers[giver]
            if left[y] <= 0.0:
                count -= 1
                givers[giver], price[giver] = givers[count], price[count]
                continue
            z = nearest[y, at[y]]
            if left[z] >= 0.0:
                while left[nearest[y, at[y]]] >= 0.0:
                    at[y] += 1
                price[giver] = high[y, nearest[y, at[y]]]
                continue
        made += 1
        moves[made] = (y << 16) | z
        if left[y] * high[y, z] <= -left[z]:
            left[z] = min(0.0, left[z] + left[y] * high[y, z])
            drift[z] += drift[y] * high[y, z]
            left[y] = drift[y] = 0.0
            waiting -= 1
            capacity -= left[z] == 0.0
        else:
            left[y] = max(0.0, left[y] + left[z] * low[y, z])
            drift[y] += drift[z] * low[y, z]
            left[z] = drift[z] = 0.0
            capacity -= 1
            waiting -= left[y] == 0.0
    moves[0] = made
    rest = change = 0.0
    for y in range(size):  # what remains has one sign
        rest -= left[y]
        change -= drift[y]
    return waiting == 0, rest, change


@kernel
def transport_step(kernel_matrix: Floats, bounds: Floats, start: Floats, known: Floats, moves: Moves) -> Floats:
    """Bounds by transport, where that is better than given ones.

    Args:
        kernel_matrix: (a, b) distributions over next states, b < 2^15.
        bounds: (b, b) closed bounds M.
        start: (a, a) valid bounds, returned where nothing better is found.
        known: (a, a) only what is below is of use; need not be valid.
        moves: of an earlier step that was much like this one, from which proofs begin, and which are then replaced; or
            (0, 0, any) to begin each afresh with the cheapest.
    """
    rows, columns = kernel_matrix.shape
    # each state is emptied or filled once, by a product with a rounded exponential and a sum
    margin = (16.0 * columns + 8.0 * bounds.max() + 32.0) * UNIT
    high = np.exp(bounds)
    low = 1.0 / high
    nearest = np.empty((columns, columns), dtype=np.int64)
    for y in range(columns):
        nearest[y] = np.argsort(bounds[y])
    floats, ints = np.empty((3, columns)), np.empty((2, columns), dtype=np.int64)
    work = (floats[0], floats[1], floats[2], ints[0], ints[1])
    own = np.zeros(columns + 1, dtype=np.int32)
    result = start.copy()
    for x in range(rows):
        for other in range(rows):
            top = min(start[x, other], known[x, other])
            if x == other or not 0.0 < top < np.inf:
                continue
            above, below = kernel_matrix[x], kernel_matrix[other]
            pair_moves = moves[x, other] if len(moves) else own
            first = ratio = best = np.exp(top)
            bottom, proven = 1.0, False
            for count in range(_MOST_RATIOS):
                own[0] = 0
                proof, rest, change = _transported(above, below, ratio, high, low, nearest, pair_moves, work)
                if proof:
                    best, proven = ratio, True
                elif count == 0:
                    break
                else:
                    bottom = ratio
                newton = rest / change
                ratio = ratio - newton + _BEYOND * abs(newton)
                if best - bottom < _FINE * best or (proof and bottom < ratio and best - ratio < _FINE * best):
                    break
                if not bottom < ratio < best:
                    ratio = (bottom + best) / 2.0
            if proven:
                least = top if best == first else np.log(best)
                result[x, other] = min(start[x, other], least + margin)
    return result
