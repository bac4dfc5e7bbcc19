"""The chain accountant for a stream that ends: any per-tick loss, any start, tick by tick.

The future's leakage goes backward with the transition matrix, the past's forward with the reversed chain's kernels
Q_t[x,y] = Pr(X_{t-1} = y | X_t = x) between states that are possible: others are no secret.

Source: docs/proofs/chain-accountant.md, "The chain accountant".
"""

from __future__ import annotations

import numpy as np

from fugu.chains.arrays import Bools, Floats
from fugu.contract.rounding import UNIT, reversal_error
from fugu.privacy.accountant.endless_leakage import log_ratios
from fugu.privacy.accountant.inner_maximum import closed, ratio_order, step
from fugu.privacy.accountant.walks import past_leakages_any, reversed_kernel, reversed_stationary
from fugu.privacy.chain_class import TINY, MarkovChain, follow

__all__ = ["losses", "past_leakages", "rate_matrices"]

_QUILT_STATES = 2  # up to here the recursion is exact, and quilts add nothing
_MOST_QUILTS = 512


def rate_matrices(rates: Floats, secrets: Floats) -> Floats:
    """Per-tick losses as (n, k, k), closed under the triangle inequality, from (n,) of all secrets or (n, k, k)."""
    if rates.ndim == 1:
        return np.asarray(rates[:, None, None] * secrets)
    return np.array([closed(rate) for rate in rates])


def losses(chain: MarkovChain, rates: Floats) -> Floats:
    """Losses (n, k, k) of every tick at rates (n, k, k), to an adversary who knows no state; 0 for no secrets."""
    supports = _supports(chain, len(rates))
    future, past = _future_leakages(chain.transition, rates), past_leakages(chain, rates)
    return _without_impossible(rates + future + past, supports)


def _without_impossible(total: Floats, supports: list[Bools]) -> Floats:
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
    return _left(chain, rates, _supports(chain, len(rates)))


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


def _left(chain: MarkovChain, rates: Floats, supports: list[Bools]) -> Floats:
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
        converged = (
            tick >= 2
            and np.array_equal(distributions[tick], distributions[tick - 1])
            and np.array_equal(distributions[tick - 1], distributions[tick - 2])
        )
        if converged and _same(rates[tick - 2 : tick]) and _same(leakages[tick - 2 : tick]):
            leakages[tick] = leakages[tick - 1]
            continue
        bounds = (rates[tick - 1] + leakages[tick - 1])[np.ix_(columns, columns)]
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
        leakages[tick][np.ix_(rows, rows)] = leakage
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


def _same(pair: Floats) -> bool:
    return bool(np.array_equal(pair[0], pair[1]))
