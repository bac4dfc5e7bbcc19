"""The chain accountant for a stream that ends: any per-tick loss, any start, tick by tick.

The right sides go backward with the transition matrix, the left sides forward with the kernels of the reversed chain,
Q_t[x,y] = Pr(X_{t-1} = y | X_t = x), between the states that are possible at each tick: a state that cannot occur is no
secret there.

Source: docs/privacy.md, "The chain accountant".
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gateway.chain.kernel import Floats, Ints
from gateway.privacy.chain_class import ChainClassError, MarkovChain
from gateway.privacy.chain_sides import log_ratios
from gateway.privacy.inner_maximum import Order, closed, ratio_order, step
from gateway.privacy.odds_ratio_bound import odds_ratio_step

__all__ = ["informed_losses", "left_sides", "losses", "pair_rates", "reversed_stationary"]

Support = NDArray[np.bool_]
_QUILT_STATES = 2  # up to here the recursion is exact, and quilts add nothing
_MOST_QUILTS = 512
_UNIT = 2.0**-53


def pair_rates(rates: Floats, states: int) -> Floats:
    """Per-tick losses as (n, k, k), closed under the triangle inequality, from (n,) or (n, k, k)."""
    if rates.ndim == 1:
        return np.asarray(rates[:, None, None] * (1.0 - np.eye(states)))
    return np.array([closed(rate) for rate in rates])


def losses(chain: MarkovChain, rates: Floats) -> Floats:
    """Losses (n, k, k) of every tick to an adversary who knows no state; 0 for pairs that are no secrets.

    Args:
        chain: the chain; its `initial` is the law of the first tick.
        rates: (n, k, k) per-tick losses.
    """
    supports = _supports(chain, len(rates))
    right, left = _right(chain.transition, rates), left_sides(chain, rates)
    return _without_impossible(rates + right + left, supports)


def _without_impossible(total: Floats, supports: list[Support]) -> Floats:
    """Losses (n, k, k) without those of states that cannot occur."""
    for tick, possible in enumerate(supports):
        total[tick][~possible] = 0.0
        total[tick][:, ~possible] = 0.0
    return total


def left_sides(chain: MarkovChain, rates: Floats) -> Floats:
    """What the past adds to every tick, (n, k, k)."""
    if chain.initial is None:
        return _left_any(chain, rates)
    backward = reversed_stationary(chain) if chain.is_stationary else None
    if backward is not None:  # the reversed chain is one, too
        return _right(backward[1], rates[::-1])[::-1]
    return _left(chain, rates, _supports(chain, len(rates)))


def _supports(chain: MarkovChain, ticks: int) -> list[Support]:
    """For each tick, which states are possible: reachability, not floating point."""
    reached = np.ones(chain.states, dtype=np.bool_)
    if chain.initial is not None:
        reached = np.asarray(chain.initial > 0.0)
    supports: list[Support] = []
    for _ in range(ticks):
        supports.append(reached)
        reached = np.asarray((chain.transition[reached] > 0.0).any(axis=0))
    return supports


def _right(transition: Floats, rates: Floats) -> Floats:
    """What the future adds, (n, k, k)."""
    order = ratio_order(transition)
    sides = np.zeros_like(rates)
    powers = _Powers(transition)
    paid = np.concatenate([[0.0], np.cumsum(rates.max(axis=(1, 2)))])
    for tick in range(len(rates) - 2, -1, -1):
        if tick + 3 <= len(rates) and _same(rates[tick + 1 : tick + 3]) and _same(sides[tick + 1 : tick + 3]):
            sides[tick] = sides[tick + 1]
            continue
        side = step(transition, order, rates[tick + 1] + sides[tick + 1])
        if len(transition) > _QUILT_STATES:
            ahead = min(len(rates) - 1 - tick, _MOST_QUILTS)
            quilts = powers.tables(ahead)
            near = paid[tick + 1 : tick + 1 + ahead] - paid[tick + 1]
            side = np.minimum(side, (near[:, None, None] + quilts).min(axis=0))
        everything = (paid[-1] - paid[tick + 1]) * (1.0 + 4.0 * len(rates) * _UNIT)
        sides[tick] = np.minimum(side, everything * (1.0 - np.eye(len(transition))))
    return sides


def _left(chain: MarkovChain, rates: Floats, supports: list[Support]) -> Floats:
    """What the past adds, (n, k, k), for a given initial law."""
    assert chain.initial is not None
    sides = np.zeros_like(rates)
    laws = [chain.initial]
    for _ in range(len(rates) - 1):
        laws.append(laws[-1] @ chain.transition)
    powers = _Powers(chain.transition)
    paid = np.concatenate([[0.0], np.cumsum(rates.max(axis=(1, 2)))])
    for tick in range(1, len(rates)):
        rows, columns = np.flatnonzero(supports[tick]), np.flatnonzero(supports[tick - 1])
        settled = (
            tick >= 2 and np.array_equal(laws[tick], laws[tick - 1]) and np.array_equal(laws[tick - 1], laws[tick - 2])
        )
        if settled and _same(rates[tick - 2 : tick]) and _same(sides[tick - 2 : tick]):
            sides[tick] = sides[tick - 1]
            continue
        reversed_kernel = _reversed(chain.transition, laws[tick - 1], rows, columns)
        bounds = (rates[tick - 1] + sides[tick - 1])[np.ix_(columns, columns)]
        # Errors of the laws: a relative 2 k ulps a tick, in numerator and denominator.
        margin = 8.0 * (tick + 2.0) * (chain.states + 2.0) * _UNIT
        side = step(reversed_kernel, ratio_order(reversed_kernel), bounds) + margin
        if chain.states > _QUILT_STATES:
            for distance in range(2, min(tick, _MOST_QUILTS) + 1):
                near = paid[tick] - paid[tick - distance + 1]
                if near >= side.max():
                    break
                origin = np.flatnonzero(supports[tick - distance])
                law = _reversed(powers.power(distance), laws[tick - distance], rows, origin)
                side = np.minimum(side, near + log_ratios(law) + margin)
        side = np.minimum(side, paid[tick] * (1.0 + 4.0 * len(rates) * _UNIT))
        np.fill_diagonal(side, 0.0)
        sides[tick][np.ix_(rows, rows)] = side
    return sides


def _reversed(transition: Floats, law: Floats, rows: Ints, columns: Ints) -> Floats:
    """Pr(earlier state = y | later state = x), x in rows and y in columns."""
    joint = (law[:, None] * transition)[np.ix_(columns, rows)].T
    return np.ascontiguousarray(joint / joint.sum(axis=1, keepdims=True))


def _left_any(chain: MarkovChain, rates: Floats) -> Floats:
    """What the past adds, (n, k, k), whatever the law of the first tick.

    Two states: the law of a tick is anywhere in an interval that every tick makes narrower, and the maximum over it is
    in closed form. More states: the reversed kernels of all laws have the odds ratios of the transition matrix; and
    laws within a factor e^d of the stationary one change a step by at most d on either bound.
    """
    sides = np.zeros_like(rates)
    others = 1.0 - np.eye(chain.states)
    power = np.eye(chain.states)
    odds = _pair_odds(chain.transition)
    stationary = None if chain.states == 2 else reversed_stationary(chain)
    for tick in range(1, len(rates)):
        bounds = closed(rates[tick - 1] + sides[tick - 1])
        if chain.states == 2:
            sides[tick] = _two_state_interval(chain.transition, power[:, 1].min(), power[:, 1].max(), bounds)
        else:
            spread = float(bounds.max())
            side = np.vectorize(odds_ratio_step)(odds, spread) * others
            if stationary is not None and np.all(power > 0.0):
                law, kernel, order = stationary
                off = float(np.abs(np.log(power / law)).max()) + 8.0 * tick * chain.states * _UNIT
                side = np.minimum(
                    side, step(kernel, order, bounds + 2.0 * off * others) + step(kernel, order, 2.0 * off * others).T
                )
            sides[tick] = side
        power = power @ chain.transition
    return sides


def reversed_stationary(chain: MarkovChain) -> tuple[Floats, Floats, Order] | None:
    """Stationary law (k,), reversed kernel (k, k) and its order; none if some state is not visited for ever."""
    try:
        law = chain.stationary_law
    except ChainClassError:
        return None
    if np.any(law <= 0.0):
        return None
    everywhere = np.arange(chain.states)
    kernel = _reversed(chain.transition, law, everywhere, everywhere)
    return law, kernel, ratio_order(kernel)


def _pair_odds(transition: Floats) -> Floats:
    """(k, k): for columns x, x' the largest P[y,x] P[y',x'] / (P[y,x'] P[y',x]) over y, y', rounded up."""
    forward = np.exp(log_ratios(np.ascontiguousarray(transition.T)))
    odds = forward * forward.T * (1.0 + 1e-13)
    return np.asarray(np.where(np.isfinite(odds), odds, np.inf))


def _two_state_interval(transition: Floats, low: float, high: float, bounds: Floats) -> Floats:
    """The largest step of the reversed kernel, for every law of the tick before with Pr(state 1) in [low, high].

    With w = Pr(1)/Pr(0) and u = h_0/h_1, the likelihood ratio of state 0 over 1 is
    ((1-q)u + wr)/((1-q) + wr) * (q + w(1-r))/(qu + w(1-r)); its only stationary point in w is
    sqrt(q(1-q)u / (r(1-r))).
    """
    (stay0, q), (r, stay1) = transition
    low, high = max(low * (1.0 - 1e-12) - 1e-300, 0.0), min(high * (1.0 + 1e-12), 1.0)
    result = np.zeros((2, 2))
    for direction, u in (
        (0, np.exp(bounds[0, 1])),
        (0, np.exp(-bounds[1, 0])),
        (1, np.exp(bounds[0, 1])),
        (1, np.exp(-bounds[1, 0])),
    ):
        points = {low, high}
        if r * stay1 > 0.0:
            best = np.sqrt(q * stay0 * u / (r * stay1))
            points.add(float(min(max(best / (1.0 + best), low), high)))
        for p in points:
            to0, to1 = ((1 - p) * stay0, p * r), ((1 - p) * q, p * stay1)
            if sum(to0) == 0.0 or sum(to1) == 0.0:
                continue
            ratio = (to0[0] * u + to0[1]) / sum(to0) * sum(to1) / (to1[0] * u + to1[1])
            value = np.log(ratio if direction == 0 else 1.0 / ratio)
            result[direction, 1 - direction] = max(
                result[direction, 1 - direction], value + 64.0 * _UNIT * (1.0 + bounds.max())
            )
    return result


class _Powers:
    """Powers of a transition matrix and their log-ratio tables, made when they are wanted."""

    def __init__(self, transition: Floats) -> None:
        self._powers = [np.eye(len(transition)), transition]
        self._tables: list[Floats] = []
        self._stacked = np.empty((0, *transition.shape))

    def power(self, distance: int) -> Floats:
        """P^distance."""
        while len(self._powers) <= distance:
            self._powers.append(np.ascontiguousarray(self._powers[-1] @ self._powers[1]))
        return self._powers[distance]

    def tables(self, count: int) -> Floats:
        """(count, k, k) log-ratio tables of P^1, P^2, ..."""
        if len(self._stacked) < count:
            while len(self._tables) < count:
                distance = len(self._tables) + 1
                margin = 4.0 * distance * len(self._powers[0]) * _UNIT
                self._tables.append(log_ratios(self.power(distance)) + margin)
            self._stacked = np.array(self._tables)
        return self._stacked[:count]


def informed_losses(chain: MarkovChain, rates: Floats) -> Floats:
    """Losses (n, k, k) of every tick to an adversary who may know any states, or none.

    A known state makes the rest of its side independent, whatever the initial law: from every tick and state that may
    be known the bridge towards it is followed backward, and its mirror image forward.
    """
    supports = _supports(chain, len(rates))
    right, left = _right(chain.transition, rates), left_sides(chain, rates)
    powers = [np.eye(chain.states)]
    for _ in rates:
        powers.append(powers[-1] @ chain.transition)
    for end, possible in enumerate(supports):
        for known in np.flatnonzero(possible):
            towards, away = [power[:, known] for power in powers], [power[known] for power in powers]
            _follow(right, rates, range(end - 1, -1, -1), chain.transition, towards)
            _follow(left, rates, range(end + 1, len(rates)), np.ascontiguousarray(chain.transition.T), away)
    return _without_impossible(rates + right + left, supports)


def _follow(sides: Floats, rates: Floats, ticks: range, kernel: Floats, weights: list[Floats]) -> None:
    """Raise `sides` by those of all ticks on the way away from a known state; weights[s]: what s steps to it weigh."""
    side = np.zeros(kernel.shape)
    before: int | None = None
    for distance, tick in enumerate(ticks):
        near, far = weights[distance], weights[distance + 1]
        rows, columns = np.flatnonzero(far > 0.0), np.flatnonzero(near > 0.0)
        if before is not None:
            bridge = kernel[np.ix_(rows, columns)] * near[columns]
            bridge = np.ascontiguousarray(bridge / bridge.sum(axis=1, keepdims=True))
            bounds = (rates[before] + side)[np.ix_(columns, columns)]
            side = np.zeros(kernel.shape)
            margin = 8.0 * (distance + 2.0) * (len(kernel) + 2.0) * _UNIT
            found = step(bridge, ratio_order(bridge), bounds) + margin
            np.fill_diagonal(found, 0.0)
            side[np.ix_(rows, rows)] = found
        np.maximum(sides[tick], side, out=sides[tick])
        before = tick


def _same(pair: Floats) -> bool:
    return bool(np.array_equal(pair[0], pair[1]))
