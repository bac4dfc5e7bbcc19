"""A stream's loss for chains of many states that move a few steps at a time, such as walks on a grid.

The accountant's recursion R <- F(loss + R) takes the bound by transport down until that gains little. A pair of states
has few successors, so its step is a small linear programme. F is monotone, so that a step down from a bound is a bound.

Source: docs/proofs/chain-accountant.md, "The chain accountant".
"""

from __future__ import annotations

import numpy as np

from fugu.chains.arrays import Bools, Floats, Ints
from fugu.chains.kernel import kernel
from fugu.contract.guarantee import Adversary
from fugu.contract.rounding import CLOSED_FORM, LOGARITHM, OUTWARD, UNIT, WIDE, reversal_error
from fugu.privacy.accountant.endless_leakage import EndlessLeakage, log_ratios
from fugu.privacy.accountant.inner_maximum import (
    Order,
    box_step,
    closed,
    exact_step,
    odds_ratio_step,
    ratio_order,
    step,
    transport_step,
)
from fugu.privacy.chain_class import TINY, ChainClassError, MarkovChain

__all__ = ["any_start_bound", "endless_bound", "past_leakages_any", "reversed_kernel", "reversed_stationary"]


def reversed_kernel(
    transition: Floats, possible: Bools, distribution: Floats, rows: Ints, columns: Ints
) -> Floats | None:
    """Pr(earlier state = y | later state = x), x in rows and y in columns; `None` if a product is too rare for a float.

    Entries that are `possible` are not 0, whatever became of them in floats; the earlier `distribution` (k,) is
    positive on `columns`.
    """
    joint = (distribution[:, None] * transition)[np.ix_(columns, rows)].T
    if np.any(possible[np.ix_(columns, rows)].T & (joint < TINY)):
        return None
    return np.ascontiguousarray(joint / joint.sum(axis=1, keepdims=True))


def reversed_stationary(chain: MarkovChain) -> tuple[Floats, Floats, Order] | None:
    """Stationary distribution (k,), reversed kernel (k, k) and its order; none if a state is not visited for ever."""
    try:
        distribution = chain.stationary_distribution
    except ChainClassError:
        return None
    if np.any(distribution <= 0.0):
        return None
    everywhere = np.arange(chain.states)
    kernel = reversed_kernel(chain.transition, chain.transition > 0.0, distribution, everywhere, everywhere)
    return None if kernel is None else (distribution, kernel, ratio_order(kernel))


def past_leakages_any(chain: MarkovChain, rates: Floats) -> Floats:
    """Leakage of the past, (n, k, k), whatever the distribution of the first tick.

    Two states: the distribution of a tick is anywhere in an interval that every tick makes narrower, with a maximum in
    closed form. More states: the reversed kernels of all distributions have the odds ratios of the transition matrix;
    and distributions within a factor e^d of the stationary one change a step by at most d on either bound.
    """
    leakages = np.zeros_like(rates)
    others = 1.0 - np.eye(chain.states)
    power = np.eye(chain.states)
    odds = _pair_odds(chain.transition)
    stationary = None if chain.states == 2 else reversed_stationary(chain)
    for tick in range(1, len(rates)):
        bounds = closed(rates[tick - 1] + leakages[tick - 1])
        if chain.states == 2:
            leakages[tick] = _two_state_interval(chain.transition, power, bounds)
        else:
            spread = float(bounds.max())
            leakage = np.vectorize(odds_ratio_step)(odds, spread) * others
            if stationary is not None and np.all(power >= TINY):
                distribution, kernel, order = stationary
                off = float(np.abs(np.log(power / distribution)).max()) + 8.0 * tick * chain.states * UNIT
                off += reversal_error(chain.states)
                leakage = np.minimum(
                    leakage,
                    step(kernel, order, bounds + 2.0 * off * others) + step(kernel, order, 2.0 * off * others).T,
                )
            leakages[tick] = leakage
        power = power @ chain.transition
    return leakages


def _pair_odds(transition: Floats) -> Floats:
    """(k, k): for columns x, x' the largest P[y,x] P[y',x'] / (P[y,x'] P[y',x]) over y, y', rounded up."""
    forward = np.exp(log_ratios(np.ascontiguousarray(transition.T)))
    odds = forward * forward.T * (1.0 + CLOSED_FORM)
    return np.asarray(np.where(np.isfinite(odds), odds, np.inf))


def _two_state_interval(transition: Floats, distributions: Floats, bounds: Floats) -> Floats:
    """The supremum of a step of the reversed kernel over all distributions of the tick before between two rows (2, 2).

    With w = Pr(1)/Pr(0) and u = h_0/h_1, the likelihood ratio of state 0 over 1 is ((1-q)u + wr)/((1-q) + wr) *
    (q + w(1-r))/(qu + w(1-r)); its only stationary point in w is w^2 = q(1-q)u / (r(1-r)). An end w = 0 or w = infinity
    counts with its limit: starts that come as near to it as one likes are in the class, even where the end itself
    leaves no secret. `bounds` (2, 2) are on log h_y / h_y'. All in logarithms, so that nothing is too small.
    """
    with np.errstate(divide="ignore"):
        (stay0, q), (r, stay1) = np.log(transition)
        low = float(np.log(np.maximum(distributions[:, 1] - TINY, 0.0) / (distributions[:, 0] + TINY)).min()) - WIDE
        high = float(np.log((distributions[:, 1] + TINY) / np.maximum(distributions[:, 0] - TINY, 0.0)).max()) + WIDE
    result = np.zeros((2, 2))
    if stay0 == r == -np.inf or stay1 == q == -np.inf:  # one of the states is never entered
        return result
    exponents = [abs(float(e)) for e in (stay0, q, r, stay1) if np.isfinite(e)]
    margin = 64.0 * UNIT * (1.0 + float(bounds.max()) + max(exponents))
    for log_u in (float(bounds[0, 1]), -float(bounds[1, 0])):
        points = {low, high}
        if all(np.isfinite([stay0, q, r, stay1])):
            points.add(min(max((q + stay0 + log_u - r - stay1) / 2.0, low), high))
        for w in points:
            ratio = _mean(log_u, r, stay0, w) - _mean(log_u, stay1, q, w)
            result[0, 1], result[1, 0] = max(result[0, 1], ratio + margin), max(result[1, 0], margin - ratio)
    return result


def _mean(log_u: float, from1: float, from0: float, w: float) -> float:
    """log of (u + a) / (1 + a), a = w Pr(from state 1) / Pr(from state 0); all arguments are logarithms."""
    if from0 == -np.inf:  # everything comes from state 1, however little of it there is
        return 0.0
    if from1 == -np.inf:
        return log_u
    a = w + from1 - from0
    return 0.0 if a == np.inf else float(np.logaddexp(log_u, a) - np.logaddexp(0.0, a))


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

    Bounds (k, k), 0 on the diagonal, from closed ones, at most 500; never above the best relaxation.
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
    """Epsilon of an endless stream of a stationary chain, ignorant or informed, at a finite rate (k, k); rounded up.

    It is `None` if a state dies out or no bound was certified.
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
    """Epsilon, rounded up, of an endless stream of a chain that starts anyhow, ignorant or informed, at a rate (k, k).

    The future does not depend on the start. Of the past only P^m counts: whatever the distribution m ticks before, the
    reversed kernel of m ticks has the odds ratios of P^m. So with u = rate + past bounding what the tick m before is
    worth, the past is at most the rates of the m-1 ticks between and an odds-ratio step from u; ticks before m have at
    most m-1 ticks behind them. A known state of the past is a start, too. It is `None` if the chain never forgets its
    start, and infinite if the future has no bound.

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
