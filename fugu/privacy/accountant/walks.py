"""A stream's loss for chains of many states that move a few steps at a time, such as walks on a grid.

The bound that the chain accountant has by transport is taken further down by its recursion R <- F(loss + R), until that
gains little, which on a walk is soon. A pair of states has few successors, so its step is a small linear programme,
solved for itself. F is monotone, so that a step down from a bound is a bound.

Source: docs/proofs/chain-accountant.md, "The chain accountant".
"""

from __future__ import annotations

import numpy as np

from fugu.chains.arrays import Floats
from fugu.chains.kernel import kernel
from fugu.contract.guarantee import Adversary
from fugu.contract.rounding import CLOSED_FORM, LOGARITHM, OUTWARD, UNIT, WIDE
from fugu.privacy.accountant.endless_leakage import EndlessLeakage
from fugu.privacy.accountant.inner_maximum import (
    box_step,
    closed,
    exact_step,
    odds_ratio_step,
    ratio_order,
)
from fugu.privacy.accountant.past import reversed_stationary
from fugu.privacy.accountant.transport import transport_step
from fugu.privacy.chain_class import MarkovChain

__all__ = ["any_start_bound", "endless_bound", "local_step"]

_MOST_STEPS = 200
_CONVERGED = 1e-3  # relative to the leakage
_LARGEST = 500.0
_LONGEST_BLOCK = 1024
_SMALLEST = 1e-280  # below, a product could have lost its accuracy
_DOWNWARD = 64
_EXACT = 18.0  # rounding counts e^bound times in the exact step, so that it is no use for larger bounds


@kernel
def local_step(transition: Floats, bounds: Floats) -> Floats:
    """One step of the recursion, each pair of rows on the columns that either can reach.

    Returns:
        (k, k) bounds, 0 on the diagonal, from closed ones, at most 500; as `inner_maximum.step`, never above its best
        relaxation.
    """
    states = len(transition)
    result = np.zeros((states, states))
    columns, afresh = np.empty(states, dtype=np.int64), np.empty((0, 0, 1), dtype=np.int32)
    for x in range(states):
        for other in range(x):
            count = 0
            for y in range(states):
                if transition[x, y] > 0.0 or transition[other, y] > 0.0:
                    columns[count] = y
                    count += 1
            distributions, near = np.empty((2, count)), np.empty((count, count))
            for a in range(count):
                distributions[0, a], distributions[1, a] = transition[x, columns[a]], transition[other, columns[a]]
                for b in range(count):
                    near[a, b] = bounds[columns[a], columns[b]]
            found = box_step(distributions, ratio_order(distributions), near)
            if count > 2:
                found = transport_step(distributions, near, found, found, afresh)
                if near.max() <= _EXACT:
                    found = exact_step(distributions, near, found)
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
    future = _leakage(chain.transition, rate, adversary)
    # A walk on a graph is its own reversal up to rounding; probabilities within 1e-12 change a logarithm of a ratio of
    # means by at most 2e-12, which the margin of `_converged` is above. Quilts have none.
    same = adversary == "ignorant" and np.allclose(backward[1], chain.transition, rtol=1e-12, atol=0.0)
    past = future if same or future is None else _leakage(np.ascontiguousarray(backward[1]), rate, adversary)
    if future is None or past is None:
        return None
    return float((rate + future + past).max()) * (1.0 + LOGARITHM)


def any_start_bound(chain: MarkovChain, rate: Floats, adversary: Adversary) -> float | None:
    """Epsilon of an endless stream of a chain that starts anyhow, ignorant or informed.

    The future does not depend on the start. Of the past only P^m counts: whatever the distribution m ticks before, the
    reversed kernel of m ticks has the odds ratios of P^m. So with u = rate + past bounding what the tick m before is
    worth, the past is at most the rates of the m-1 ticks between and an odds-ratio step from u; ticks before m have at
    most m-1 ticks behind them. A known state of the past is a start, too.

    Args:
        chain: whatever its start.
        rate: (k, k) per-tick loss, finite.
        adversary: "ignorant" or "informed".

    Returns:
        A bound, rounded up; None if the chain never forgets its start. It is infinite if the future has no bound.

    Source: docs/proofs/chain-accountant.md, "The chain accountant".
    """
    rate = closed(np.asarray(rate * (1.0 - np.eye(chain.states))))
    past = _any_past(chain.transition, float(rate.max()))
    if past is None:
        return None
    future = _leakage(chain.transition, rate, adversary)
    if future is None:
        leakage = EndlessLeakage(chain.transition)
        future = leakage.ignorant(rate)
        if adversary == "informed":
            future = leakage.informed(rate, future)
    return float((rate + future).max() + past) * (1.0 + LOGARITHM)


def _any_past(transition: Floats, rate: float) -> float | None:
    """The least bound on the past over all m; none if no power of the matrix has every step."""
    best, power = np.inf, np.eye(len(transition))
    for ticks in range(1, _LONGEST_BLOCK + 1):
        if (ticks - 1) * rate >= best:
            break
        power = power @ transition
        if power.min() < _SMALLEST:
            continue
        logs = np.log(power)
        apart = logs[:, None, :] - logs[None, :, :]
        log_odds = float((apart.max(axis=2) - apart.min(axis=2)).max())
        # every entry of a power is good to k + 2 roundings for each of its products, four of them are in a ratio
        odds = np.exp(log_odds) * (1.0 + 8.0 * ticks * (len(transition) + 2) * UNIT + CLOSED_FORM)
        leakage = (ticks - 1) * rate + float(np.log(odds)) + OUTWARD
        for _ in range(_DOWNWARD):  # a step down from a bound is a bound
            leakage = min(leakage, (ticks - 1) * rate + odds_ratio_step(float(odds), rate + leakage))
        best = min(best, leakage * (1.0 + LOGARITHM))
    return best if np.isfinite(best) else None


def _leakage(transition: Floats, rate: Floats, adversary: Adversary) -> Floats | None:
    leakage = EndlessLeakage(transition)
    bound = _converged(leakage, rate)
    if bound is None or adversary == "ignorant":
        return bound
    # the bridges of many states are covered by quilts, at least as much as an adversary who knows nothing learns
    informed = leakage.informed(rate, bound)
    return informed if np.all(np.isfinite(informed)) else None


def _converged(leakage: EndlessLeakage, rate: Floats) -> Floats | None:
    """Steps down from a bound, each of which is a bound, until one gains little; none if there is no bound."""
    bound, others = leakage.descend(rate, leakage.quick(rate)), 1.0 - np.eye(leakage.states)
    for _ in range(_MOST_STEPS):
        bounds = closed(rate + bound)
        if bounds.max() > _LARGEST:
            return None
        before, bound = bound, np.minimum(bound, local_step(leakage.transition, bounds) + WIDE * others)
        if float((before - bound).max()) <= _CONVERGED * float(bound.max()):
            break
    return bound
