"""A stream's loss for chains of many states that move a few steps at a time, such as walks on a grid.

The chain accountant's recursion R <- F(loss + R) is followed from 0 until it settles, which a walk does within some
twenty steps, though it takes hundreds of ticks to mix. A pair of states has few successors, so its step is a small
linear programme, solved for itself. Where the recursion would grow on, the bound by quilts cuts it off. Whatever was
found counts only if one more step does not exceed it: F is monotone, so such a bound is above every R of the recursion.

Source: docs/privacy.md, "The chain accountant".
"""

from __future__ import annotations

import numpy as np

from contract.guarantee import Adversary
from gateway.chain.kernel import Floats, kernel
from gateway.privacy.chain_class import MarkovChain
from gateway.privacy.chain_schedule import reversed_stationary
from gateway.privacy.chain_sides import EndlessSide
from gateway.privacy.inner_maximum import box_step, closed, exact_step, ratio_order, transport_step

__all__ = ["endless_bound", "local_step"]

_MOST_STEPS = 200
_SETTLED = 3e-3  # relative to the side
_LEAST_BUMP = 1e-4
_LARGEST = 500.0
_HAIR = 1e-11
_EXACT = 18.0  # rounding counts e^bound times in the exact step, so that it is no use for larger bounds


@kernel
def local_step(transition: Floats, bounds: Floats) -> Floats:
    """One step of the recursion, each pair of rows on the columns that either can reach.

    Args:
        transition: (k, k) laws.
        bounds: (k, k) closed bounds, at most 500.

    Returns:
        (k, k) bounds, 0 on the diagonal; as `inner_maximum.step`, never above its best relaxation.
    """
    states = len(transition)
    result = np.zeros((states, states))
    columns = np.empty(states, dtype=np.int64)
    for x in range(states):
        for other in range(x):
            count = 0
            for y in range(states):
                if transition[x, y] > 0.0 or transition[other, y] > 0.0:
                    columns[count] = y
                    count += 1
            laws, near = np.empty((2, count)), np.empty((count, count))
            for a in range(count):
                laws[0, a], laws[1, a] = transition[x, columns[a]], transition[other, columns[a]]
                for b in range(count):
                    near[a, b] = bounds[columns[a], columns[b]]
            found = box_step(laws, ratio_order(laws), near)
            if count > 2:
                found = transport_step(laws, near, found)
                if near.max() <= _EXACT:
                    found = exact_step(laws, near, found)
            result[x, other], result[other, x] = found[0, 1], found[1, 0]
    return result


def endless_bound(chain: MarkovChain, rate: Floats, adversary: Adversary) -> float | None:
    """Epsilon of an endless stream of a stationary chain, ignorant or informed.

    Args:
        chain: with a stationary start.
        rate: (k, k) per-tick loss, finite.
        adversary: "ignorant" or "informed".

    Returns:
        A bound, rounded up; None if a state dies out or no bound was certified.
    """
    backward = reversed_stationary(chain)
    if backward is None:
        return None
    rate = closed(np.asarray(rate * (1.0 - np.eye(chain.states))))
    future = _side(chain.transition, rate, adversary)
    # A walk on a graph is its own reversal, up to rounding that the hair in `_settled` is above.
    same = np.allclose(backward[1], chain.transition, rtol=1e-12, atol=0.0)
    past = future if same or future is None else _side(np.ascontiguousarray(backward[1]), rate, adversary)
    if future is None or past is None:
        return None
    return float((rate + future + past).max()) * (1.0 + 1e-14)


def _side(transition: Floats, rate: Floats, adversary: Adversary) -> Floats | None:
    side = EndlessSide(transition)
    bound = _settled(transition, rate, side.quick(rate))
    if bound is None or adversary == "ignorant":
        return bound
    # the bridges of many states are covered by quilts, at least as much as an adversary who knows nothing learns
    informed = side.informed(rate, bound)
    return informed if np.all(np.isfinite(informed)) else None


def _settled(transition: Floats, rate: Floats, most: Floats) -> Floats | None:
    """A certified limit of the recursion, cut off at a known bound: raised where a step exceeds it, until none does."""
    side, raised, bump = np.zeros_like(rate), False, _LEAST_BUMP
    for _ in range(_MOST_STEPS):
        bounds = closed(rate + side)
        if bounds.max() > _LARGEST:
            return None
        after = local_step(transition, bounds)
        after = np.minimum(after + _HAIR * (1.0 - np.eye(len(rate))), most)
        above = after > side
        if not above.any():
            return after  # a step down from a bound is a bound, and a better one
        raised = raised or float(np.abs(after - side).max()) <= _SETTLED * max(1.0, float(side.max()))
        if raised:
            # greedy transport is not quite monotone: from here on, only upward
            side = np.where(above, after + bump, side)
            bump *= 1.2
        else:
            side = after
    return None
