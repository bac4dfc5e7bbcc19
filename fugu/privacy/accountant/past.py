"""The chain seen backward, Q[x,y] = Pr(X_{t-1} = y | X_t = x), and the past when the first distribution may be any.

Source: docs/proofs/chain-accountant.md, "The chain accountant".
"""

from __future__ import annotations

import numpy as np

from fugu.chains.arrays import Bools, Floats, Ints
from fugu.contract.rounding import CLOSED_FORM, UNIT, WIDE, reversal_error
from fugu.privacy.accountant.endless_leakage import log_ratios
from fugu.privacy.accountant.inner_maximum import Order, closed, odds_ratio_step, ratio_order, step
from fugu.privacy.chain_class import TINY, ChainClassError, MarkovChain

__all__ = ["past_leakages_any", "reversed_kernel", "reversed_stationary"]


def reversed_kernel(
    transition: Floats, possible: Bools, distribution: Floats, rows: Ints, columns: Ints
) -> Floats | None:
    """Pr(earlier state = y | later state = x), x in rows and y in columns; none if a product is too rare for a float.

    Args:
        transition: (k, k), and `possible` which of its entries are not 0, whatever became of them in floats.
        distribution: (k,) of the earlier state, positive on `columns`.
        rows, columns: the states that are possible later and earlier.
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
    """What the past adds, (n, k, k), whatever the distribution of the first tick.

    Two states: the distribution of a tick is anywhere in an interval that every tick makes narrower, and the maximum
    over it is in closed form. More states: the reversed kernels of all distributions have the odds ratios of the
    transition matrix; and distributions within a factor e^d of the stationary one change a step by at most d on either
    bound.
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
    """The supremum of a step of the reversed kernel over all distributions of the tick before between two.

    With w = Pr(1)/Pr(0) and u = h_0/h_1, the likelihood ratio of state 0 over 1 is
    ((1-q)u + wr)/((1-q) + wr) * (q + w(1-r))/(qu + w(1-r)); its only stationary point in w is
    w^2 = q(1-q)u / (r(1-r)). An end w = 0 or w = infinity counts with its limit: starts that come as near to it as one
    likes are in the class, even where the end itself leaves no secret. All in logarithms, so that nothing is too small.

    Args:
        transition: (2, 2).
        distributions: (2, 2), a distribution in each row.
        bounds: (2, 2) on log h_y / h_y'.
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
