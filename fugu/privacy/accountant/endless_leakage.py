"""The leakage of an endless stream: how much the future (or the past) of a tick adds to what an adversary learns.

It is a matrix R (k, k): the log-likelihood ratio of all releases beyond the tick, between the tick's states x and x',
is at most R[x,x']. With one per-tick loss at every tick, R is the limit of R <- F(rate + R) from 0, where F is one step
of `inner_maximum`. Any R with F(rate + R) <= R bounds that limit, because F is monotone; so does every step down from a
bound. That certifies results, however they were found.

The past is the future of the reversed chain: the functions take either kernel.

Source: docs/proofs/chain-accountant.md, "The chain accountant".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
from scipy.optimize import brentq

from fugu.chains.arrays import Floats
from fugu.chains.kernel import kernel
from fugu.contract.losses import LOGARITHM, UNIT, Adversary
from fugu.privacy.accountant.inner_maximum import EXACT_STATES, Order, no_moves, ratio_order, step, uniform_bounds
from fugu.privacy.chain_class import TINY, follow_steps

__all__ = ["EndlessLeakage", "log_ratios"]

Step = Callable[[Floats], Floats]
_SLACK = 1e-13
_MOST_SLACK = 1.0
_MOST_STEPS = 5_000
_CONVERGED = 1e-14
_SHAPED = 1e-8
_SHAPE_EVERY = 8
_FORGOTTEN = 1e-10
_FORGOTTEN_LARGE = 1e-7
_CLOSE = 1e-6
_CHECK_EVERY = 64
_MOST_DISTANCE = 20_000
_MOST_DISTANCE_LARGE = 2_000
_SWEEPS = 2
_SWEEPS_LARGE = 3
_LARGEST = 600.0
# What bounds the work of one loss to seconds: table entries, and steps times the fourth power of the states.
_TABLE_WORK = 10**10
_STEP_WORK = 10**7
_MOST_TRANSPORT = 64


@kernel
def log_ratios(distributions: Floats) -> Floats:
    """Return (a, a) max over y of log(distributions[x,y] / distributions[x',y]), rounded up; infinite over 0."""
    row_count, column_count = distributions.shape
    largest_log_ratios = np.zeros((row_count, row_count))
    inverse, largest_ratios = np.empty((column_count, row_count)), np.empty(row_count)
    for x in range(row_count):
        for y in range(column_count):
            inverse[y, x] = 1.0 / distributions[x, y]
    for x in range(row_count):
        for other_row in range(row_count):
            largest_ratios[other_row] = 1.0
        for y in range(column_count):
            for other_row in range(row_count):  # 0 times infinity is NaN, and not above
                ratio = distributions[x, y] * inverse[y, other_row]
                largest_ratios[other_row] = ratio if ratio > largest_ratios[other_row] else largest_ratios[other_row]
        for other_row in range(row_count):
            if x != other_row:
                largest_log_ratios[x, other_row] = np.log(largest_ratios[other_row]) + LOGARITHM
    return largest_log_ratios


@dataclass
class EndlessLeakage:
    """Common terms of the leakages of one kernel (k, k), a chain's or the reversed chain's.

    Attributes:
        error: error of the logarithms of the kernel's entries.
        quilts: (n, k, k): quilts[m - 1] bounds the leakage of knowing the state m ticks away.
        largest: (n,) the largest entry of each quilt.
        blocks: (m, P^m, its order) for some m: the recursion may also take m ticks at once.
    """

    transition: Floats
    error: float = 0.0
    quilts: Floats = field(init=False)
    largest_entries: Floats = field(init=False)
    blocks: list[tuple[int, Floats, Order]] = field(init=False)

    def __post_init__(self) -> None:
        self.transition = np.ascontiguousarray(self.transition)
        self.blocks = [(1, self.transition, ratio_order(self.transition))]
        self._off_diagonal, self._unbounded = 1.0 - np.eye(self.states), uniform_bounds(self.states, np.inf)
        self.quilts, self.largest_entries = np.empty((0, self.states, self.states)), np.empty(0)
        self._remaining_quilts = self._next_quilts()

    def _next_quilts(self) -> Iterator[Floats]:
        """Yield the quilt (k, k) of each distance in ticks, until the kernel has forgotten."""
        is_small = self.states <= EXACT_STATES
        max_distance, threshold = (_MOST_DISTANCE, _FORGOTTEN) if is_small else (_MOST_DISTANCE_LARGE, _FORGOTTEN_LARGE)
        power = np.eye(self.states)
        support, is_step, reaches_all = power > 0.0, self.transition > 0.0, False
        for distance in range(1, min(max_distance, _TABLE_WORK // self.states**3) + 1):
            power = np.ascontiguousarray(power @ self.transition)
            # A product of distributions is a distribution: without this, rounding errors of many ticks would add up.
            power /= power.sum(axis=1, keepdims=True)
            reaches_all = reaches_all or bool(support.all())
            support = support if reaches_all else follow_steps(support, is_step)
            if power.min() < TINY and np.any(support & (power < TINY)):  # ratios of this and later powers are inexact
                yield self._unbounded
                return
            quilt = log_ratios(power) + (4.0 * self.states * UNIT + self.error) * distance
            if not is_small and distance >= 2 * self.blocks[-1][0]:
                self.blocks.append((distance, power.copy(), ratio_order(power)))
            yield quilt
            if quilt.max() < threshold or (distance > 2 * self.states**2 and not np.isfinite(quilt).any()):
                return

    def _extend_quilts(self, rate: float, max_quilts: int = _MOST_DISTANCE) -> None:
        """Compute up to `max_quilts` quilts, until a further one would cost more than the least bound."""
        quilts, largest_entries = list(self.quilts), list(self.largest_entries)
        least_bound = float((np.arange(len(largest_entries)) * rate + self.largest_entries).min(initial=np.inf))
        while len(quilts) < max_quilts and len(quilts) * rate <= least_bound:
            if (quilt := next(self._remaining_quilts, None)) is None:
                break
            least_bound = min(least_bound, len(quilts) * rate + float(quilt.max()))
            quilts.append(quilt)
            largest_entries.append(float(quilt.max()))
        if len(quilts) > len(self.quilts):
            self.quilts, self.largest_entries = np.array(quilts), np.array(largest_entries)

    def nearest_quilts(self, max_quilts: int) -> Floats:
        """Return the quilts (n, k, k) of the nearest ticks, at most `max_quilts`; fewer if the kernel has forgotten."""
        self._extend_quilts(0.0, max_quilts)
        return self.quilts[:max_quilts]

    @property
    def states(self) -> int:
        """k, the number of states."""
        return len(self.transition)

    def quilt_bound(self, rate: Floats) -> Floats:
        """Bound the leakage (k, k) as if some tick's state were known, and the ticks before it counted in full."""
        self._extend_quilts(float(rate.max()))
        return _least_bound(np.arange(len(self.quilts)) * rate.max(), self.quilts, self.largest_entries)

    def ignorant_leakage(self, rate: Floats) -> Floats:
        """Return the leakage (k, k) to an adversary who knows no state: the least of all bounds, infinite without any.

        The per-tick loss `rate` (k, k) is 0 on the diagonal.
        """
        if self.states <= EXACT_STATES:
            return self.descend(rate, np.minimum(self.quilt_bound(rate), self._limit(rate)))
        return self.descend(rate, self.quick_bound(rate)) if self.states <= _MOST_TRANSPORT else self.quick_bound(rate)

    def leakage_against(self, rate: Floats, adversary: Adversary) -> Floats:
        """Return the leakage (k, k) to the ignorant or the informed adversary, at a rate as for `ignorant_leakage`."""
        bound = self.ignorant_leakage(rate)
        return self.informed_leakage(rate, bound) if adversary == "informed" else bound

    def quick_bound(self, rate: Floats) -> Floats:
        """Bound the leakage to the ignorant adversary without the recursion: by quilts and the hockey-stick bound."""
        hockey_bound = uniform_bounds(self.states, self.hockey_stick_bound(float(rate.max())))
        return np.minimum(self.quilt_bound(rate), hockey_bound)

    def earlier_leakage(self, bounds: Floats) -> Floats:
        """Return the leakage (k, k) one tick further away, from bounds (k, k) on a tick's loss and leakage together."""
        _, matrix, order = self.blocks[0]
        return step(matrix, order, bounds) + self.error * self._off_diagonal

    def _limit(self, rate: Floats) -> Floats:
        """Approach the limit of the recursion from below, and return a certified bound just above it."""
        leakage = np.zeros_like(rate)
        increase = raise_shape = checked_leakage = np.zeros_like(rate)
        for step_count in range(min(_MOST_STEPS, _STEP_WORK // self.states**4)):
            previous_leakage, leakage = leakage, self.earlier_leakage(rate + leakage)
            previous_increase, increase = increase, leakage - previous_leakage
            if leakage.max() > _LARGEST:
                return self._unbounded
            if step_count % _SHAPE_EVERY == 0:
                if (leakage - checked_leakage).max() > _SHAPED:
                    raise_shape = (leakage - checked_leakage) / (leakage - checked_leakage).max()
                checked_leakage = leakage
            if np.abs(increase).max() <= _CONVERGED * max(1.0, leakage.max()):
                break
        else:  # add the remainder of a geometric series
            shrink_factor = min(float(increase.max() / max(previous_increase.max(), 1e-300)), 1.0 - 1e-9)
            leakage = leakage + np.maximum(increase, 0.0) * shrink_factor / (1.0 - shrink_factor)
        limit = self.certify(leakage, lambda bound: self.earlier_leakage(rate + bound))
        if np.isfinite(limit).all():
            return limit
        # States that exclude one another a tick later do not shrink a uniform increase: raise by the shape as well.
        return self.certify(leakage, lambda bound: self.earlier_leakage(rate + bound), raise_shape)

    def certify(self, candidate: Floats, next_bound: Step, raise_shape: Floats | float = 0.0) -> Floats:
        """Raise a candidate bound, each pair in proportion to 1 + `raise_shape`, until a step does not exceed it.

        Returns infinity without success. The proof is an induction from 0, so a bound is at least 0: an empty cone
        would certify itself.
        """
        candidate, slack = np.maximum(candidate, 0.0), _SLACK
        slack_matrix = (1.0 + raise_shape) * self._off_diagonal
        while slack < _MOST_SLACK:
            bound = candidate + slack * slack_matrix
            if np.all(next_bound(bound) <= bound):
                return bound
            slack *= 2.0
        return self._unbounded

    def descend(self, rate: Floats, bound: Floats) -> Floats:
        """Lower a bound by steps of one tick and of blocks of ticks, whose inner ticks count in full."""
        largest_rate = float(rate.max())
        moves = {ticks: no_moves(self.states, self.states) for ticks, _, _ in self.blocks}
        for _ in range(_SWEEPS if self.states <= EXACT_STATES else _SWEEPS_LARGE):
            previous_bound = bound
            for ticks, matrix, order in reversed(self.blocks):
                if (ticks - 1) * largest_rate < bound.max() < _LARGEST:
                    inner_loss = ((ticks - 1) * largest_rate + ticks * self.error) * self._off_diagonal
                    step_bound = step(matrix, order, rate + bound, bound - inner_loss, moves[ticks])
                    bound = np.minimum(bound, inner_loss + step_bound)
            if np.all(bound >= previous_bound - _CONVERGED):
                break
        return bound

    def hockey_stick_bound(self, rate: float) -> float:
        """Return one bound for all pairs, from the hockey-stick divergence of blocks of m ticks; infinite without any.

        With H_g(m) = max over u, u' of the sum over y of (P^m[u,y] - g P^m[u',y])_+, any rho with (e^rate rho - 1)
        H_g(m) <= g - 1, where g = rho e^(-rate (m-1)), bounds e^R.

        Source: docs/proofs/chain-accountant.md, "The chain accountant".
        """
        self._extend_quilts(rate)
        bound = math.inf
        for ticks, matrix, order in self.blocks:
            inner_loss = (ticks - 1) * rate
            if inner_loss < bound:
                high_log = float(self.largest_entries[ticks - 1])
                bound = min(bound, inner_loss + _hockey_root(matrix, order, rate, inner_loss, high_log))
        return bound

    def informed_leakage(self, rate: Floats, ignorant_leakage: Floats) -> Floats:
        """Return the leakage to an adversary who may know true states of that direction, from that to an ignorant one.

        With the nearest known state c beyond s unknown ticks, the kernel is the bridge K_s[a,b] = P[a,b]
        P^s[b,c] / P^(s+1)[a,c]. From some distance on the columns of P^s are constant up to e^d. Then a step of the
        bridge is at most a step of P with bounds larger by d, plus d: that covers all longer distances.
        """
        quilt_bound = self._informed_quilts(rate)
        if self.states > EXACT_STATES:
            return np.maximum(quilt_bound, ignorant_leakage)
        bridge_bound = self._bridge_bound(rate, ignorant_leakage)
        return np.maximum(np.minimum(quilt_bound, bridge_bound), ignorant_leakage)

    def _informed_quilts(self, rate: Floats) -> Floats:
        """Bound the informed leakage by quilts: a known state beyond adds the reversed pair's quilt at m + 1 ticks."""
        self._extend_quilts(0.0)
        if len(self.quilts) < 2:
            return self._unbounded
        costs = np.arange(len(self.quilts) - 1) * rate.max()
        quilt_sums = self.quilts[:-1] + self.quilts[1:].transpose(0, 2, 1)
        return _least_bound(costs, quilt_sums, quilt_sums.max(axis=(1, 2)))

    def _bridge_bound(self, rate: Floats, ignorant_leakage: Floats) -> Floats:
        largest_leakage = ignorant_leakage.copy()
        states = self.states
        leakages = np.zeros((states, states, states))
        near_power, is_step = self.transition, self.transition > 0.0
        near_reachable = is_step
        tail_bound = self._unbounded
        for distance in range(1, min(_MOST_DISTANCE, max(_STEP_WORK // states**5, _CHECK_EVERY + 1))):
            far_power = self.transition @ near_power
            far_power /= far_power.sum(axis=1, keepdims=True)
            far_reachable = near_reachable if near_reachable.all() else follow_steps(is_step, near_reachable)
            if np.any(far_reachable & (far_power < TINY)):
                return self._unbounded
            # The rounding error of a power after that many products.
            margin = distance * (4.0 * (states + 2.0) * UNIT + 2.0 * self.error) * self._off_diagonal
            for state in range(states):
                near_column, far_column = near_power[:, state], far_power[:, state]
                leakages[state] = margin + _bridge_step(self.transition, near_column, far_column, rate, leakages[state])
            near_reachable = far_reachable
            np.maximum(largest_leakage, np.where(np.isfinite(leakages), leakages, 0.0).max(axis=0), out=largest_leakage)
            if leakages.max() + rate.max() > _LARGEST:
                return self._unbounded
            near_power = far_power
            if distance % _CHECK_EVERY == 0:
                bridge_bound = np.maximum(leakages.max(axis=0), ignorant_leakage)
                memory_bound = float(log_ratios(far_power).max() + margin.max())
                tail_bound = self._tail_bound(rate, bridge_bound, memory_bound)
                if memory_bound < _CLOSE or np.all(tail_bound <= bridge_bound * (1.0 + _CLOSE) + _SLACK):
                    break
        return np.maximum(largest_leakage, tail_bound)

    def _tail_bound(self, rate: Floats, bridge_bound: Floats, memory_bound: float) -> Floats:
        """Bound all bridges longer than the last one computed."""
        if not math.isfinite(memory_bound):  # a cycle: every power has impossible steps
            return self._unbounded
        memory = memory_bound * self._off_diagonal
        # Raise larger leakages more: states that exclude one another a tick later do not shrink a uniform increase.
        shape = bridge_bound / max(float(bridge_bound.max()), 1e-300)
        return self.certify(bridge_bound, lambda bound: self.earlier_leakage(rate + bound + memory) + memory, shape)


def _bridge_step(transition: Floats, near_column: Floats, far_column: Floats, rate: Floats, leakage: Floats) -> Floats:
    """Return the leakage (k, k) of one more tick before a known state; 0 for states that cannot lead there."""
    from_states, to_states = np.flatnonzero(far_column > 0.0), np.flatnonzero(near_column > 0.0)
    bridge = transition[from_states[:, None], to_states] * near_column[to_states] / far_column[from_states, None]
    bridge = np.ascontiguousarray(bridge / bridge.sum(axis=1, keepdims=True))
    bounds = (rate + leakage)[to_states[:, None], to_states]
    next_leakage = np.zeros_like(leakage)
    next_leakage[from_states[:, None], from_states] = step(bridge, ratio_order(bridge), bounds)
    return next_leakage


@kernel
def _spread_ratio(matrix: Floats, order: Order, spread: float) -> float:
    """Return the largest E_u[h] / E_u'[h] over all pairs of rows and all h in [1, spread]."""
    row_count, column_count = matrix.shape
    largest_ratio = 1.0
    for x in range(row_count):
        for other_row in range(row_count):
            numerator, denominator = 1.0, 1.0
            for index in range(column_count):
                y = order[x, other_row, index]
                if matrix[x, y] * denominator <= numerator * matrix[other_row, y]:
                    break
                numerator += matrix[x, y] * (spread - 1.0)
                denominator += matrix[other_row, y] * (spread - 1.0)
            largest_ratio = max(largest_ratio, numerator / denominator)
    return largest_ratio


def _hockey_root(matrix: Floats, order: Order, rate: float, inner_loss: float, high_log: float) -> float:
    """Return the least log g, up to rounding, whose largest ratio at spread e^(rate + inner_loss) g is at most g."""
    high_log = min(high_log, _LARGEST - rate - inner_loss)
    margin = (8.0 * len(matrix) + 32.0) * UNIT

    def excess(log_ratio: float) -> float:
        spread = float(np.exp(rate + inner_loss + log_ratio))
        return float(np.log(_spread_ratio(matrix, order, spread))) + margin - log_ratio

    if high_log <= 0.0 or excess(high_log) > 0.0:
        return np.inf
    if excess(0.0) <= 0.0:
        return 0.0
    root, increase = float(brentq(excess, 0.0, high_log, xtol=1e-300, rtol=1e-14)), 1e-14
    while excess(root) > 0.0:
        root, increase = root * (1.0 + increase), 2.0 * increase
    return root


def _least_bound(costs: Floats, tables: Floats, largest_entries: Floats) -> Floats:
    """Return (k, k) the least over n of costs (n,) plus tables (n, k, k), whose largest entries are given."""
    is_useful = costs <= (costs + largest_entries).min()  # others exceed the bound of some n for all pairs
    return np.asarray((costs[is_useful, None, None] + tables[is_useful]).min(axis=0))
