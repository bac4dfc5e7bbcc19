"""A stream's loss for chains of many states that move a few steps at a time, such as walks on a grid.

The accountant's recursion R <- F(loss + R) takes the bound by transport down until that gains little. A pair of states
has few successors, so its step is a small linear programme. F is monotone, so that a step down from a bound is a bound.

Source: docs/proofs/chain-accountant.md, "The chain accountant".

The chain accountant for a stream that ends: any per-tick loss, any start, tick by tick.

The future's leakage goes backward with the transition matrix. The past's goes forward with the reversed chain's kernels
Q_t[x,y] = Pr(X_{t-1} = y | X_t = x) between possible states: others are no secret.

Source: docs/proofs/chain-accountant.md, "The chain accountant".
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fugu.chains.arrays import Bools, Floats, Ints
from fugu.chains.kernel import kernel
from fugu.contract.losses import CLOSED_FORM, LOGARITHM, OUTWARD, UNIT, WIDE, Adversary, reversal_error
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
from fugu.privacy.chain_class import TINY, ChainClassError, MarkovChain, follow

__all__ = ["any_start_bound", "endless_bound", "losses", "past_leakages", "reversed_stationary"]


def reversed_kernel(
    transition: Floats, possible: Bools, distribution: Floats, rows: Ints, columns: Ints
) -> Floats | None:
    """Pr(earlier state = y | later state = x), x in rows and y in columns; `None` if a product is too rare for a float.

    Entries that are `possible` are not 0, whatever became of them in floats; the earlier `distribution` (k,) is
    positive on `columns`.
    """
    joint = (distribution[:, None] * transition)[columns[:, None], rows].T
    if np.any(possible[columns[:, None], rows].T & (joint < TINY)):
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
    closed form. More states: the reversed kernels of all distributions have the odds ratios of the transition matrix.
    Distributions within a factor e^d of the stationary one change a step by at most d on either bound.
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
    counts with its limit. Starts that come as near to it as one likes are in the class, even where the end itself
    leaves no secret. `bounds` (2, 2) are on log h_y / h_y'. All in logarithms, so that nothing is too small.
    """
    with np.errstate(divide="ignore"):
        (stay0, q), (r, stay1) = np.log(transition)
        low = float(np.log(np.maximum(distributions[:, 1] - TINY, 0.0) / (distributions[:, 0] + TINY)).min()) - WIDE
        high = float(np.log((distributions[:, 1] + TINY) / np.maximum(distributions[:, 0] - TINY, 0.0)).max()) + WIDE
    log_ratios = np.zeros((2, 2))
    if stay0 == r == -np.inf or stay1 == q == -np.inf:  # one of the states is never entered
        return log_ratios
    exponents = [abs(float(e)) for e in (stay0, q, r, stay1) if np.isfinite(e)]
    margin = 64.0 * UNIT * (1.0 + float(bounds.max()) + max(exponents))
    for log_u in (float(bounds[0, 1]), -float(bounds[1, 0])):
        points = {low, high}
        if all(np.isfinite([stay0, q, r, stay1])):
            points.add(min(max((q + stay0 + log_u - r - stay1) / 2.0, low), high))
        for w in points:
            ratio = _mean(log_u, r, stay0, w) - _mean(log_u, stay1, q, w)
            log_ratios[0, 1], log_ratios[1, 0] = (
                max(log_ratios[0, 1], ratio + margin),
                max(log_ratios[1, 0], margin - ratio),
            )
    return log_ratios


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
    log_ratios = np.zeros((states, states))
    columns, afresh = np.empty(states, dtype=np.int64), np.empty((0, 0, 1), dtype=np.int32)
    for x in range(states):
        for other in range(x):
            count = 0
            for y in range(states):
                if transition[x, y] > 0.0 or transition[other, y] > 0.0:
                    columns[count] = y
                    count += 1
            distributions, near, most = np.empty((2, count)), np.empty((count, count)), 0.0
            for a in range(count):
                distributions[0, a], distributions[1, a] = transition[x, columns[a]], transition[other, columns[a]]
                for b in range(count):
                    near[a, b] = bounds[columns[a], columns[b]]
                    most = max(most, near[a, b])
            bound = box_step(distributions, ratio_order(distributions), near)
            if count > 2:
                bound = transport_step(distributions, near, bound, bound, afresh)
                if most <= _EXACT:
                    bound = exact_step(distributions, near, bound)
            log_ratios[x, other], log_ratios[other, x] = bound[0, 1], bound[1, 0]
    return log_ratios


def endless_bound(chain: MarkovChain, rate: Floats, adversary: Adversary) -> float | None:
    """Epsilon of an endless stream of a stationary chain, ignorant or informed, at a finite rate (k, k); rounded up.

    It is `None` if a state dies out or no bound was certified.
    """
    backward = reversed_stationary(chain)
    if backward is None:
        return None
    rate = closed(np.asarray(rate * (1.0 - np.eye(chain.states))))
    future = _leakage(chain.transition, rate, adversary)
    # A walk on a graph is its own reversal up to rounding. Probabilities within 1e-12 change a logarithm of a ratio of
    # means by at most 2e-12; the margin of `_converged` is above that. Quilts have none.
    same = adversary == "ignorant" and np.allclose(backward[1], chain.transition, rtol=1e-12, atol=0.0)
    past = future if same or future is None else _leakage(np.ascontiguousarray(backward[1]), rate, adversary)
    if future is None or past is None:
        return None
    return float((rate + future + past).max()) * (1.0 + LOGARITHM)


def any_start_bound(chain: MarkovChain, rate: Floats, adversary: Adversary) -> float | None:
    """Epsilon, rounded up, of an endless stream of a chain that starts anyhow, ignorant or informed, at a rate (k, k).

    The future does not depend on the start. Of the past only P^m counts: whatever the distribution m ticks before, the
    reversed kernel of m ticks has the odds ratios of P^m. So let u = rate + past bound what the tick m before is worth.
    The past is then at most the rates of the m-1 ticks between and an odds-ratio step from u. Ticks before m have at
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


_QUILT_STATES = 2  # up to here the recursion is exact, and quilts add nothing
_MOST_QUILTS = 512


def losses(chain: MarkovChain, rates: Floats) -> Floats:
    """Losses (n, k, k) of every tick at rates (n, k, k), to an adversary who knows no state; 0 for no secrets."""
    supports = _supports(chain, len(rates))
    future, past = _future_leakages(chain.transition, rates), past_leakages(chain, rates)
    total = np.asarray(rates + future + past)
    for tick, possible in enumerate(supports):
        total[tick][~possible] = 0.0
        total[tick][:, ~possible] = 0.0
    return total


def past_leakages(chain: MarkovChain, rates: Floats) -> Floats:
    """Leakage of the past to every tick, (n, k, k)."""
    if chain.initial is None:
        return past_leakages_any(chain, rates)
    backward = reversed_stationary(chain) if chain.is_stationary else None
    if backward is not None:  # the reversed chain is one, too
        return _future_leakages(backward[1], rates[::-1], reversal_error(chain.states))[::-1]
    return _started_leakage(chain, rates, _supports(chain, len(rates)))


def _supports(chain: MarkovChain, ticks: int) -> list[Bools]:
    """For each tick, which states are possible: reachability, not floating point."""
    reached = np.ones(chain.states, dtype=np.bool_)
    if chain.initial is not None:
        reached = np.asarray(chain.initial > 0.0)
    supports: list[Bools] = []
    for _ in range(ticks):
        supports.append(reached)
        reached = np.asarray((chain.transition[reached] > 0.0).any(axis=0))
    return supports


def _future_leakages(transition: Floats, rates: Floats, error: float = 0.0) -> Floats:
    """Leakage of the future, (n, k, k); error: of the logarithms of the kernel's entries."""
    order = ratio_order(transition)
    others = 1.0 - np.eye(len(transition))
    leakages = np.zeros_like(rates)
    powers = _Powers(transition)
    paid = np.concatenate([[0.0], np.cumsum(rates.max(axis=(1, 2)))])
    rounding = 4.0 * len(rates) * UNIT  # of differences of running sums
    for tick in range(len(rates) - 2, -1, -1):
        if tick + 3 <= len(rates) and _same(rates[tick + 1 : tick + 3]) and _same(leakages[tick + 1 : tick + 3]):
            leakages[tick] = leakages[tick + 1]
            continue
        leakage = step(transition, order, rates[tick + 1] + leakages[tick + 1]) + error * others
        if len(transition) > _QUILT_STATES:
            ahead = min(len(rates) - 1 - tick, _MOST_QUILTS)
            quilts = powers.tables(ahead) + error * others
            near = paid[tick + 1 : tick + 1 + ahead] - paid[tick + 1] + paid[-1] * rounding
            leakage = np.minimum(leakage, (near[:, None, None] + quilts).min(axis=0))
        everything = (paid[-1] - paid[tick + 1]) + paid[-1] * rounding
        leakages[tick] = np.minimum(leakage, everything * others)
    return leakages


def _started_leakage(chain: MarkovChain, rates: Floats, supports: list[Bools]) -> Floats:
    """Leakage of the past, (n, k, k), for a given initial distribution."""
    assert chain.initial is not None
    leakages = np.zeros_like(rates)
    distributions = [chain.initial]
    for _ in range(len(rates) - 1):
        distributions.append(distributions[-1] @ chain.transition)
    possible = chain.transition > 0.0
    powers = _Powers(chain.transition)
    paid = np.concatenate([[0.0], np.cumsum(rates.max(axis=(1, 2)))])
    rounding = 4.0 * len(rates) * UNIT  # of differences of running sums
    for tick in range(1, len(rates)):
        rows, columns = np.flatnonzero(supports[tick]), np.flatnonzero(supports[tick - 1])
        converged = tick >= 2 and _same(distributions[tick - 1 : tick + 1]) and _same(distributions[tick - 2 : tick])
        if converged and _same(rates[tick - 2 : tick]) and _same(leakages[tick - 2 : tick]):
            leakages[tick] = leakages[tick - 1]
            continue
        bounds = (rates[tick - 1] + leakages[tick - 1])[columns[:, None], columns]
        # Errors of the distributions: a relative 2 k ulps a tick, in numerator and denominator.
        margin = 8.0 * (tick + 2.0) * (chain.states + 2.0) * UNIT
        backward = reversed_kernel(chain.transition, possible, distributions[tick - 1], rows, columns)
        if backward is None:
            leakage = np.full((len(rows), len(rows)), float(bounds.max()))
        else:
            leakage = step(backward, ratio_order(backward), bounds) + margin
        if chain.states > _QUILT_STATES:
            for distance in range(2, min(tick, _MOST_QUILTS) + 1):
                near = paid[tick] - paid[tick - distance + 1] + paid[-1] * rounding
                if near >= leakage.max():
                    break
                origin = np.flatnonzero(supports[tick - distance])
                distribution = reversed_kernel(*powers.power(distance), distributions[tick - distance], rows, origin)
                if distribution is not None:
                    leakage = np.minimum(leakage, near + log_ratios(distribution) + margin)
        leakage = np.minimum(leakage, paid[tick] + paid[-1] * rounding)
        np.fill_diagonal(leakage, 0.0)
        leakages[tick][rows[:, None], rows] = leakage
    return leakages


class _Powers:
    """Powers of a transition matrix and their log-ratio tables, made when they are wanted."""

    def __init__(self, transition: Floats) -> None:
        self._powers = [np.eye(len(transition)), transition]
        self._possible = [self._powers[0] > 0.0, transition > 0.0]
        self._tables: list[Floats] = []
        self._stacked = np.empty((0, *transition.shape))

    def power(self, distance: int) -> tuple[Floats, Bools]:
        """P^distance, and which of its entries are possible."""
        while len(self._powers) <= distance:
            self._powers.append(np.ascontiguousarray(self._powers[-1] @ self._powers[1]))
            self._possible.append(follow(self._possible[-1], self._possible[1]))
        return self._powers[distance], self._possible[distance]

    def tables(self, count: int) -> Floats:
        """(count, k, k) log-ratio tables of P^1, P^2, ...; infinite where an entry is too rare for a float."""
        if len(self._stacked) < count:
            while len(self._tables) < count:
                distance = len(self._tables) + 1
                power, possible = self.power(distance)
                margin = 4.0 * distance * len(power) * UNIT
                vague = bool(np.any(possible & (power < TINY)))
                self._tables.append(np.full_like(power, np.inf) if vague else log_ratios(power) + margin)
            self._stacked = np.array(self._tables)
        return self._stacked[:count]


def _same(pair: Sequence[Floats] | Floats) -> bool:
    return bool(np.array_equal(pair[0], pair[1]))
