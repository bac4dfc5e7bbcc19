"""The loss of streams of chains with many states and few steps, such as walks on a grid, and of streams that end.

For walks, the accountant's recursion R <- F(loss + R) takes the bound by transport down until that gains little. A pair
of states has few successors, so its step is a small linear programme. F is monotone, so that a step down from a bound
is a bound.

For a stream that ends, with any per-tick loss and any start, leakages are computed tick by tick. The future's leakage
goes backward with the transition matrix. The past's goes forward with the reversed chain's kernels Q_t[x,y] =
Pr(X_{t-1} = y | X_t = x) between possible states: others are no secret.

Source: docs/proofs/chain-accountant.md, "The chain accountant".
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fugu.chains.arrays import Bools, Floats, Ints
from fugu.chains.kernel import kernel
from fugu.chains.tracking import reachable
from fugu.contract.losses import CLOSED_FORM, LOGARITHM, OUTWARD, UNIT, WIDE, Adversary, reversal_error
from fugu.privacy.accountant.endless_leakage import EndlessLeakage, log_ratios
from fugu.privacy.accountant.inner_maximum import (
    Order,
    box_step,
    close_bounds,
    exact_step,
    odds_ratio_step,
    ratio_order,
    step,
    transport_step,
)
from fugu.privacy.chain_class import TINY, ChainClassError, MarkovChain, follow_steps

__all__ = ["any_start_bound", "endless_bound", "losses", "past_leakages", "reversed_stationary"]


def reversed_kernel(
    transition: Floats, is_step: Bools, distribution: Floats, later_states: Ints, earlier_states: Ints
) -> Floats | None:
    """Return Pr(earlier state = y | later state = x), x in rows, y in columns; `None` if one is too rare for a float.

    Entries of the true matrix are positive at `is_step`, even if floats underflow. The earlier state's `distribution`
    (k,) is positive on `earlier_states`.
    """
    joint = (distribution[:, None] * transition)[earlier_states[:, None], later_states].T
    if np.any(is_step[earlier_states[:, None], later_states].T & (joint < TINY)):
        return None
    return np.ascontiguousarray(joint / joint.sum(axis=1, keepdims=True))


def reversed_stationary(chain: MarkovChain) -> tuple[Floats, Floats, Order] | None:
    """Return the stationary distribution (k,), the reversed kernel (k, k) and its order; `None` if a state dies out."""
    try:
        distribution = chain.stationary_distribution
    except ChainClassError:
        return None
    if np.any(distribution <= 0.0):
        return None
    all_states = np.arange(chain.states)
    kernel = reversed_kernel(chain.transition, chain.transition > 0.0, distribution, all_states, all_states)
    return None if kernel is None else (distribution, kernel, ratio_order(kernel))


def any_start_leakages(chain: MarkovChain, rates: Floats) -> Floats:
    """Return the leakage of the past, (n, k, k), to every tick, whatever the distribution of the first.

    Two states: the distribution of a tick is in an interval that every tick makes narrower, and the maximum has a
    closed form. More states: the reversed kernels of all distributions have the odds ratios of the transition matrix.
    Distributions within a factor e^d of the stationary one change a step by at most d on either bound.
    """
    leakages = np.zeros_like(rates)
    off_diagonal = 1.0 - np.eye(chain.states)
    power = np.eye(chain.states)
    pair_odds = _pair_odds(chain.transition)
    stationary = None if chain.states == 2 else reversed_stationary(chain)
    for tick in range(1, len(rates)):
        bounds = close_bounds(rates[tick - 1] + leakages[tick - 1])
        if chain.states == 2:
            leakages[tick] = _two_state_interval(chain.transition, power, bounds)
        else:
            largest_bound = float(bounds.max())
            leakage = np.vectorize(odds_ratio_step)(pair_odds, largest_bound) * off_diagonal
            if stationary is not None and np.all(power >= TINY):
                distribution, kernel, order = stationary
                drift = float(np.abs(np.log(power / distribution)).max()) + 8.0 * tick * chain.states * UNIT
                drift += reversal_error(chain.states)
                drifts = 2.0 * drift * off_diagonal
                leakage = np.minimum(leakage, step(kernel, order, bounds + drifts) + step(kernel, order, drifts).T)
            leakages[tick] = leakage
        power = power @ chain.transition
    return leakages


def _pair_odds(transition: Floats) -> Floats:
    """Return (k, k) for columns x, x' the largest P[y,x] P[y',x'] / (P[y,x'] P[y',x]) over y, y', rounded up."""
    column_ratios = np.exp(log_ratios(np.ascontiguousarray(transition.T)))
    odds = column_ratios * column_ratios.T * (1.0 + CLOSED_FORM)
    return np.asarray(np.where(np.isfinite(odds), odds, np.inf))


def _two_state_interval(transition: Floats, distributions: Floats, bounds: Floats) -> Floats:
    """Return the supremum (2, 2) of a step of the reversed kernel over all earlier distributions between two rows.

    With w = Pr(1)/Pr(0) and u = h_0/h_1, the likelihood ratio of state 0 over 1 is ((1-q)u + wr)/((1-q) + wr) *
    (q + w(1-r))/(qu + w(1-r)); its only stationary point in w is w^2 = q(1-q)u / (r(1-r)). An end w = 0 or w = infinity
    counts with its limit: starts arbitrarily near the end are in the class, even if the end itself leaves no secret.
    `bounds` (2, 2) are on log h_y / h_y'. The computation is in logarithms, so that nothing underflows.
    """
    with np.errstate(divide="ignore"):
        (stay0, q), (r, stay1) = np.log(transition)
        low = float(np.log(np.maximum(distributions[:, 1] - TINY, 0.0) / (distributions[:, 0] + TINY)).min()) - WIDE
        high = float(np.log((distributions[:, 1] + TINY) / np.maximum(distributions[:, 0] - TINY, 0.0)).max()) + WIDE
    log_ratios = np.zeros((2, 2))
    if stay0 == r == -np.inf or stay1 == q == -np.inf:  # no chain ever enters one of the states
        return log_ratios
    exponents = [abs(float(logarithm)) for logarithm in (stay0, q, r, stay1) if np.isfinite(logarithm)]
    margin = 64.0 * UNIT * (1.0 + float(bounds.max()) + max(exponents))
    for log_u in (float(bounds[0, 1]), -float(bounds[1, 0])):
        log_weights = {low, high}
        if all(np.isfinite([stay0, q, r, stay1])):
            log_weights.add(min(max((q + stay0 + log_u - r - stay1) / 2.0, low), high))
        for log_weight in log_weights:
            ratio = _log_mean(log_u, r, stay0, log_weight) - _log_mean(log_u, stay1, q, log_weight)
            log_ratios[0, 1] = max(log_ratios[0, 1], ratio + margin)
            log_ratios[1, 0] = max(log_ratios[1, 0], margin - ratio)
    return log_ratios


def _log_mean(log_u: float, from1: float, from0: float, log_weight: float) -> float:
    """Return log of (u + a) / (1 + a), a = w Pr(from state 1) / Pr(from state 0); all arguments are logarithms."""
    if from0 == -np.inf:  # all mass comes from state 1, however rare that is
        return 0.0
    if from1 == -np.inf:
        return log_u
    log_odds = log_weight + from1 - from0
    return 0.0 if log_odds == np.inf else float(np.logaddexp(log_u, log_odds) - np.logaddexp(0.0, log_odds))


_MOST_STEPS = 200
_CONVERGED = 1e-3  # relative to the leakage
_LARGEST = 500.0
_LONGEST_BLOCK = 1024
_SMALLEST = 1e-280  # below, a product could have lost its accuracy
_DOWNWARD = 64
_EXACT = 18.0  # rounding counts e^bound times in the exact step, so that it is no use for larger bounds


@kernel
def local_step(transition: Floats, bounds: Floats) -> Floats:
    """Bound one step for each pair of rows, over the columns that either can reach.

    Returns bounds (k, k), 0 on the diagonal, never above the best relaxation, from closed bounds of at most 500.
    """
    states = len(transition)
    log_ratios = np.zeros((states, states))
    columns, no_pair_moves = np.empty(states, dtype=np.int64), np.empty((0, 0, 1), dtype=np.int32)
    for x in range(states):
        for other_row in range(x):
            width = 0
            for y in range(states):
                if transition[x, y] > 0.0 or transition[other_row, y] > 0.0:
                    columns[width] = y
                    width += 1
            row_pair, column_bounds, largest_bound = np.empty((2, width)), np.empty((width, width)), 0.0
            for a in range(width):
                row_pair[0, a], row_pair[1, a] = transition[x, columns[a]], transition[other_row, columns[a]]
                for b in range(width):
                    column_bounds[a, b] = bounds[columns[a], columns[b]]
                    largest_bound = max(largest_bound, column_bounds[a, b])
            bound = box_step(row_pair, ratio_order(row_pair), column_bounds)
            if width > 2:
                bound = transport_step(row_pair, column_bounds, bound, bound, no_pair_moves)
                if largest_bound <= _EXACT:
                    bound = exact_step(row_pair, column_bounds, bound)
            log_ratios[x, other_row], log_ratios[other_row, x] = bound[0, 1], bound[1, 0]
    return log_ratios


def endless_bound(chain: MarkovChain, rate: Floats, adversary: Adversary) -> float | None:
    """Return epsilon of an endless stream of a stationary chain at a finite rate (k, k), rounded up.

    The adversary is ignorant or informed. Returns `None` if a state dies out or no bound was certified.
    """
    reversal = reversed_stationary(chain)
    if reversal is None:
        return None
    rate = close_bounds(np.asarray(rate * (1.0 - np.eye(chain.states))))
    future = _leakage(chain.transition, rate, adversary)
    # A walk on a graph is its own reversal up to rounding. Probabilities within 1e-12 change a logarithm of a ratio of
    # means by at most 2e-12; the margin of `_descend_locally` is above that. Quilts have none.
    is_reversal = adversary == "ignorant" and np.allclose(reversal[1], chain.transition, rtol=1e-12, atol=0.0)
    past = future if is_reversal or future is None else _leakage(np.ascontiguousarray(reversal[1]), rate, adversary)
    if future is None or past is None:
        return None
    return float((rate + future + past).max()) * (1.0 + LOGARITHM)


def any_start_bound(chain: MarkovChain, rate: Floats, adversary: Adversary) -> float | None:
    """Return epsilon, rounded up, of an endless stream of a chain with any start at a rate (k, k).

    The adversary is ignorant or informed. The future does not depend on the start. For the past only P^m counts: for
    every distribution m ticks before, the reversed kernel of m ticks has the odds ratios of P^m. Let u = rate + past
    bound the loss of the tick m before. The past is then at most the rates of the m-1 ticks between and an odds-ratio
    step from u. Ticks before m have at most m-1 ticks behind them. A known state of the past is a start, too. Returns
    `None` if the chain never forgets its start, and infinity if the future has no bound.

    Source: docs/proofs/chain-accountant.md, "The chain accountant".
    """
    rate = close_bounds(np.asarray(rate * (1.0 - np.eye(chain.states))))
    past = _any_start_past(chain.transition, float(rate.max()))
    if past is None:
        return None
    future = _leakage(chain.transition, rate, adversary)
    if future is None:
        future = EndlessLeakage(chain.transition).leakage_against(rate, adversary)
    return float((rate + future).max() + past) * (1.0 + LOGARITHM)


def _any_start_past(transition: Floats, rate: float) -> float | None:
    """Return the least bound on the past over all m; `None` if no power of the matrix has every step."""
    least_bound, power = np.inf, np.eye(len(transition))
    for ticks in range(1, _LONGEST_BLOCK + 1):
        if (ticks - 1) * rate >= least_bound:
            break
        power = power @ transition
        if power.min() < _SMALLEST:
            continue
        log_power = np.log(power)
        log_quotients = log_power[:, None, :] - log_power[None, :, :]
        log_odds = float((log_quotients.max(axis=2) - log_quotients.min(axis=2)).max())
        # every entry of a power is good to k + 2 roundings for each of its products, four of them are in a ratio
        odds = np.exp(log_odds) * (1.0 + 8.0 * ticks * (len(transition) + 2) * UNIT + CLOSED_FORM)
        leakage = (ticks - 1) * rate + float(np.log(odds)) + OUTWARD
        for _ in range(_DOWNWARD):  # a step down from a bound is a bound
            leakage = min(leakage, (ticks - 1) * rate + odds_ratio_step(float(odds), rate + leakage))
        least_bound = min(least_bound, leakage * (1.0 + LOGARITHM))
    return least_bound if np.isfinite(least_bound) else None


def _leakage(transition: Floats, rate: Floats, adversary: Adversary) -> Floats | None:
    leakage = EndlessLeakage(transition)
    bound = _descend_locally(leakage, rate)
    if bound is None or adversary == "ignorant":
        return bound
    # quilts cover the bridges of many states; the result is at least the ignorant adversary's leakage
    informed = leakage.informed_leakage(rate, bound)
    return informed if np.all(np.isfinite(informed)) else None


def _descend_locally(leakage: EndlessLeakage, rate: Floats) -> Floats | None:
    """Lower a bound by steps until one gains little; `None` without a bound."""
    bound, off_diagonal = leakage.descend(rate, leakage.quick_bound(rate)), 1.0 - np.eye(leakage.states)
    for _ in range(_MOST_STEPS):
        bounds = close_bounds(rate + bound)
        if bounds.max() > _LARGEST:
            return None
        previous_bound, bound = bound, np.minimum(bound, local_step(leakage.transition, bounds) + WIDE * off_diagonal)
        if float((previous_bound - bound).max()) <= _CONVERGED * float(bound.max()):
            break
    return bound


_QUILT_STATES = 2  # up to here the recursion is exact, and quilts add nothing
_MOST_QUILTS = 512


def losses(chain: MarkovChain, rates: Floats) -> Floats:
    """Return losses (n, k, k) of every tick at rates (n, k, k), to an adversary who knows no state; 0 for no secret."""
    supports = _supports(chain, len(rates))
    future, past = _future_leakages(chain.transition, rates), past_leakages(chain, rates)
    tick_losses = np.asarray(rates + future + past)
    for tick, is_possible in enumerate(supports):
        tick_losses[tick][~is_possible] = 0.0
        tick_losses[tick][:, ~is_possible] = 0.0
    return tick_losses


def past_leakages(chain: MarkovChain, rates: Floats) -> Floats:
    """Return the leakage of the past to every tick, (n, k, k)."""
    if chain.initial is None:
        return any_start_leakages(chain, rates)
    reversed_chain = reversed_stationary(chain) if chain.is_stationary else None
    if reversed_chain is not None:  # the past of a stationary chain is the future of the reversed one
        return _future_leakages(reversed_chain[1], rates[::-1], reversal_error(chain.states))[::-1]
    return _past_from_start(chain, rates, _supports(chain, len(rates)))


def _supports(chain: MarkovChain, ticks: int) -> list[Bools]:
    """Return which states (k,) are possible at each tick, by reachability and not by floats."""
    supports = [np.ones(chain.states, dtype=np.bool_) if chain.initial is None else chain.initial > 0.0]
    for _ in range(ticks - 1):
        supports.append(reachable(supports[-1], chain.transition))
    return supports


def _future_leakages(transition: Floats, rates: Floats, error: float = 0.0) -> Floats:
    """Return the leakage of the future, (n, k, k); `error` is that of the logarithms of the kernel's entries."""
    off_diagonal = 1.0 - np.eye(len(transition))
    leakages = np.zeros_like(rates)
    endless = EndlessLeakage(transition, error)
    cost_sums, rounding = _cost_sums(rates)
    for tick in range(len(rates) - 2, -1, -1):
        if tick + 3 <= len(rates) and _equal(rates[tick + 1 : tick + 3]) and _equal(leakages[tick + 1 : tick + 3]):
            leakages[tick] = leakages[tick + 1]
            continue
        leakage = endless.earlier_leakage(rates[tick + 1] + leakages[tick + 1])
        if len(transition) > _QUILT_STATES:
            quilts = endless.nearest_quilts(min(len(rates) - 1 - tick, _MOST_QUILTS))
            near_costs = cost_sums[tick + 1 : tick + 1 + len(quilts)] - cost_sums[tick + 1] + rounding
            leakage = np.minimum(leakage, (near_costs[:, None, None] + quilts).min(axis=0))
        remaining_loss = (cost_sums[-1] - cost_sums[tick + 1]) + rounding
        leakages[tick] = np.minimum(leakage, remaining_loss * off_diagonal)
    return leakages


def _cost_sums(rates: Floats) -> tuple[Floats, float]:
    """Return the sums (n + 1,) of the largest rates before each tick, and the rounding of their differences."""
    cost_sums = np.concatenate([[0.0], np.cumsum(rates.max(axis=(1, 2)))])
    return cost_sums, float(cost_sums[-1]) * (4.0 * len(rates) * UNIT)


def _past_from_start(chain: MarkovChain, rates: Floats, supports: list[Bools]) -> Floats:
    """Return the leakage of the past, (n, k, k), to every tick, from the chain's initial distribution."""
    assert chain.initial is not None
    leakages = np.zeros_like(rates)
    distributions = [chain.initial]
    for _ in range(len(rates) - 1):
        distributions.append(distributions[-1] @ chain.transition)
    is_step = chain.transition > 0.0
    powers = [(chain.transition, is_step)]
    cost_sums, rounding = _cost_sums(rates)
    for tick in range(1, len(rates)):
        rows, columns = np.flatnonzero(supports[tick]), np.flatnonzero(supports[tick - 1])
        is_steady = tick >= 2 and _equal(distributions[tick - 1 : tick + 1]) and _equal(distributions[tick - 2 : tick])
        if is_steady and _equal(rates[tick - 2 : tick]) and _equal(leakages[tick - 2 : tick]):
            leakages[tick] = leakages[tick - 1]
            continue
        bounds = (rates[tick - 1] + leakages[tick - 1])[columns[:, None], columns]
        # Errors of the distributions: a relative 2 k ulps a tick, in numerator and denominator.
        margin = 8.0 * (tick + 2.0) * (chain.states + 2.0) * UNIT
        reversed_step = reversed_kernel(chain.transition, is_step, distributions[tick - 1], rows, columns)
        if reversed_step is None:
            leakage = np.full((len(rows), len(rows)), float(bounds.max()))
        else:
            leakage = step(reversed_step, ratio_order(reversed_step), bounds) + margin
        if chain.states > _QUILT_STATES:
            for distance in range(2, min(tick, _MOST_QUILTS) + 1):
                near_cost = cost_sums[tick] - cost_sums[tick - distance + 1] + rounding
                if near_cost >= leakage.max():
                    break
                if distance > len(powers):
                    power, is_possible = powers[-1]
                    powers.append((np.ascontiguousarray(power @ chain.transition), follow_steps(is_possible, is_step)))
                origin_states = np.flatnonzero(supports[tick - distance])
                far_kernel = reversed_kernel(*powers[distance - 1], distributions[tick - distance], rows, origin_states)
                if far_kernel is not None:
                    leakage = np.minimum(leakage, near_cost + log_ratios(far_kernel) + margin)
        leakage = np.minimum(leakage, cost_sums[tick] + rounding)
        np.fill_diagonal(leakage, 0.0)
        leakages[tick][rows[:, None], rows] = leakage
    return leakages


def _equal(arrays: Sequence[Floats] | Floats) -> bool:
    return bool(np.array_equal(arrays[0], arrays[1]))
