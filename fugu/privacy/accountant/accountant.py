"""The chain accountant: from the loss of every tick by itself to the epsilon of a whole stream, and back.

One or more mechanisms together have a per-tick loss `rate[x, x']`. If only the state of one tick changes, from x' to x,
the log-density of all releases changes by at most that. Rates of independent mechanisms add. The accountant adds what
the chain lets an adversary infer from the other ticks.

Source: docs/proofs/chain-accountant.md, "The chain accountant".

For chains whose states show those of several streams, the joint loss of these follows from the device's own check.

Source: docs/proofs/joint-streams.md, "Streams that move together".
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import singledispatch
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from fugu.chains.arrays import Floats
from fugu.contract.chains import BinaryChains, BoundedChains, ChainClass, JointChains
from fugu.contract.losses import OUTWARD, UNIT, Adversary
from fugu.privacy.accountant.bounded import IntervalChains, OddsRatioChains
from fugu.privacy.accountant.finite import MOST_WORK, KnownChains
from fugu.privacy.accountant.inner_maximum import EXACT_STATES, close_bounds
from fugu.privacy.accountant.walks import any_start_bound, endless_bound
from fugu.privacy.chain_class import ChainClassError, Chains, Covered, MarkovChain, Start

__all__ = [
    "ChainAccountant",
    "ChainLoss",
    "Chains",
    "chain_loss",
    "class_of",
    "covered_start",
    "known_chains",
    "largest_rate",
    "with_start",
]


class ShownChains(OddsRatioChains):
    """Every chain with bounded odds ratios whose states show those of streams; see `ClassOfChains`."""

    def __init__(self, chains: JointChains) -> None:
        super().__init__(BoundedChains(states=chains.states, odds_ratio=chains.odds_ratio))
        self._joint = chains
        self.secrets = np.array([[a != b for b in chains.shows] for a in chains.shows], dtype=np.float64)
        self.words += f", which show {' and '.join(stream.name for stream in chains.streams)}"

    def endless_loss(self, rate: Floats, adversary: Adversary) -> tuple[float, str]:
        """Return epsilon and the name of its bound; the ticks that an odds ratio spans count as one."""
        return super().endless_loss(rate * self._joint.steps, adversary)

    def tick_losses(self, rates: Floats, adversary: Adversary) -> tuple[Floats, str]:
        """Return losses (n, k, k) and the bound's name; odds ratios of two steps give those of an endless stream."""
        if self._joint.steps == 1:
            return super().tick_losses(rates, adversary)
        epsilon, bound = self.endless_loss(rates.max(axis=0), adversary)
        return np.broadcast_to(epsilon * self.secrets, rates.shape).copy(), bound

    def has_equal_leakages(self, adversary: Adversary) -> bool:
        """Return False: states may differ and show the same."""
        return False

    def with_start(self, start: Start | None) -> Chains:
        """Return the class itself, which has every start."""
        return self._joint

    def known_chains(self, start: Start | None) -> tuple[MarkovChain, ...]:
        """Raise a ChainClassError: no chain of the class is known."""
        raise ChainClassError("needs the chain of one stream, not of several or of a higher order")

    def decimate(self, stride: int) -> ChainClass:
        """Raise a ChainClassError: the class has no chain of every `stride`-th tick."""
        raise ChainClassError("joint chains are of one period, that of all their streams")


ClassOfChains: TypeAlias = KnownChains | OddsRatioChains
"""The common interface of the kinds of classes; each kind has its own bounds."""


@singledispatch
def class_of(chains: Chains) -> ClassOfChains:
    """Return the object with the bounds of a class; ChainClassError for no chain, or different numbers of states."""
    raise TypeError(f"{type(chains).__name__} is no class of chains")


class_of.register(tuple, KnownChains)
class_of.register(BinaryChains, IntervalChains)
class_of.register(BoundedChains, OddsRatioChains)
class_of.register(JointChains, ShownChains)


def with_start(chains: Chains, start: Start | None) -> Chains:
    """Return a class that holds the same chains with a start; with `None` each keeps its own.

    Raises ChainClassError without a single stationary distribution, or without a bound for any start.
    """
    return chains if start is None else class_of(chains).with_start(start)


def covered_start(chains: Chains) -> Covered:
    """Return the starts that a class covers."""
    return class_of(chains).covered_start


def known_chains(chains: Chains, start: Start | None = None) -> tuple[MarkovChain, ...] | BinaryChains:
    """Return the chains of a class with a start, or an interval of them, for mechanisms that need known chains.

    Raises ChainClassError without a single stationary distribution, for bounded odds ratios, and for several streams.
    """
    return class_of(chains).known_chains(start)


_LEAST_SHARE = 1e-9
_HALVE_EVERY = 12  # steps of a search, so that a loss that jumps ends it too
_ROUGH = 1e-3  # for chains of many states, where one loss takes long
_QUICK = 1.2  # about the ratio of an allowance to that by quilts or the hockey-stick bound
_FAR = 1.5  # the largest reduction in one step of a search, as a logarithm
_FAR_RATIO = 40.0
_NO_BOUND = 1e6


@dataclass(frozen=True)
class ChainLoss:
    """Loss of a stream of `length` ticks, or of an endless one if that is `None`; rounded up.

    Attributes:
        epsilon: bound on the log-likelihood ratio between two states of a tick, over all ticks, in nats.
        bound: the bound's name, or "exact" if some release with these rates, such as a count, really loses epsilon.
        chains: the class of chains, in words.
        by_tick: (n,) the largest loss of each tick if the stream was followed tick by tick; else `None`.
    """

    epsilon: float
    adversary: Adversary
    bound: str
    chains: str
    length: int | None
    by_tick: Floats | None = None


class ChainAccountant:
    """Accounts for a finite set of chains, each with its start, or a class of `fugu.contract.chains`.

    Slow terms are computed once. Raises ChainClassError if the set is empty or has different numbers of states.
    """

    def __init__(self, chains: Chains) -> None:
        self._class = class_of(chains)

    @property
    def states(self) -> int:
        """k, the number of states."""
        return self._class.states

    @property
    def sticky(self) -> bool:
        """True if all chains of the class have two states, a stationary start, and q + r < 1."""
        return self._class.sticky

    def loss(self, rate: ArrayLike, adversary: Adversary = "ignorant", length: int | None = None) -> ChainLoss:
        """Return the loss of a stream whose ticks all have one rate >= 0, or (k, k) for each pair of states.

        The stream is endless if `length` is `None`. Raises ChainClassError if a rate is negative or infinite, the
        length is below 1, or no bound exists for the class.
        """
        rate_matrix = self._rate_matrix(rate)
        if length is not None and length < 1:
            raise ChainClassError(f"a stream needs at least 1 tick, got {length}")
        if length is not None and self._class.is_followed(length):
            return self.schedule_loss(np.broadcast_to(rate_matrix, (length, *rate_matrix.shape)), adversary)
        epsilon, bound = self._class.endless_loss(rate_matrix, adversary)
        if length is not None:
            full_loss = length * float(rate_matrix.max())
            if not epsilon <= full_loss:
                epsilon, bound = full_loss * (1.0 + OUTWARD), "every tick in full"
            elif bound == "exact":
                bound = "endless bound"  # a stream that ends need not reach it
        return ChainLoss(epsilon, adversary, bound, self._class.words, length)

    def schedule_loss(self, rates: ArrayLike, adversary: Adversary = "ignorant") -> ChainLoss:
        """Return the loss of a stream that ends, from the rates (n,) or (n, k, k) of its ticks.

        The loss to an informed adversary is the smaller of two: with any side information, and of an endless stream
        with the largest rates. Raises ChainClassError if a rate is negative, or the computation takes too long.
        """
        tick_rates = np.asarray(rates, dtype=np.float64)
        is_valid = np.all((tick_rates >= 0.0) & (tick_rates < np.inf))  # False for NaN
        if tick_rates.ndim not in (1, 3) or not len(tick_rates) or not is_valid:
            raise ChainClassError("rates must be finite and non-negative, of shape (n,) or (n, k, k)")
        if self._class.work(len(tick_rates), adversary) > MOST_WORK:
            raise ChainClassError(
                f"{len(tick_rates)} ticks are too many to follow one by one for {self.states} states and the "
                f"{adversary} adversary. Use fewer states, or a stationary start and the bound of an endless stream"
            )
        is_scalar = tick_rates.ndim == 1  # the same for all secrets
        rate_matrices = tick_rates[:, None, None] * self._class.secrets if is_scalar else close_bounds(tick_rates)
        # All ticks together cannot lose more than the sum of their rates, which also replaces a bound beyond floats.
        full_loss = float(rate_matrices.max(axis=(1, 2)).sum()) * (1.0 + OUTWARD)
        is_informed = adversary == "informed"  # there is no recursion over ticks for known true states
        losses, bound = self._class.tick_losses(rate_matrices, "universal" if is_informed else adversary)
        if is_informed and not self._class.changes:
            with suppress(ChainClassError):
                endless_loss, name = self._class.endless_loss(rate_matrices.max(axis=0), adversary)
                if endless_loss < float(losses.max()):
                    losses, bound = np.minimum(losses, endless_loss), "endless bound" if name == "exact" else name
        by_tick = np.asarray(np.fmin(losses.max(axis=(1, 2)), full_loss))
        return ChainLoss(float(by_tick.max()), adversary, bound, self._class.words, len(rate_matrices), by_tick)

    def allowance(self, epsilon: float, adversary: Adversary = "ignorant", length: int | None = None) -> float:
        """Return the largest rate, the same at every tick, with a loss of at most epsilon nats; rounded down.

        Raises ChainClassError if epsilon is not positive, or the chain never forgets: no rate is small enough.
        """
        if not (math.isfinite(epsilon) and epsilon > 0.0):
            raise ChainClassError(f"epsilon must be a finite number above 0, got {epsilon:g}")

        def excess(rate: float) -> float:
            return min(self.loss(rate, adversary, length).epsilon, _NO_BOUND) - epsilon

        tolerance, first_guess = OUTWARD, (0.0, 1.0)
        if self.states > EXACT_STATES:
            tolerance, first_guess = _ROUGH, self._estimate_rate(epsilon, adversary)
        max_rate, min_rate = min(epsilon, _FAR_RATIO), _LEAST_SHARE * epsilon
        if not (rate := largest_rate(excess, epsilon, max_rate, min_rate, tolerance, *first_guess)):
            raise ChainClassError(f"no noise is enough for epsilon {epsilon:g}: the chain does not forget its past")
        return rate

    def _estimate_rate(self, epsilon: float, adversary: Adversary) -> tuple[float, float]:
        """Return a rate near the allowance, and the power of the rate that the loss grows with; 0 and 1 if unknown."""
        if adversary != "ignorant":
            return 0.0, 1.0

        def excess(rate: float) -> float:
            return min(self._class.quick_bound(self._rate_matrix(rate)), _NO_BOUND) - epsilon

        try:
            rate = largest_rate(excess, epsilon, min(epsilon, _FAR_RATIO), _LEAST_SHARE * epsilon, _ROUGH)
        except ChainClassError:
            return 0.0, 1.0
        if not rate:
            return 0.0, 1.0
        log_growth = math.log1p(excess(rate * _QUICK) / epsilon) - math.log1p(excess(rate) / epsilon)
        return rate * _QUICK, min(max(log_growth / math.log(_QUICK), 0.5), 2.0)

    def _rate_matrix(self, rate: ArrayLike) -> Floats:
        rates = np.asarray(rate, dtype=np.float64)
        if rates.ndim not in (0, 2) or not np.all(rates >= 0.0) or not np.all(np.isfinite(rates)):
            raise ChainClassError("a rate must be a finite number >= 0, or such a number for each pair of states")
        secret_pairs = self._class.secrets if rates.ndim == 0 else 1.0 - np.eye(self.states)
        return close_bounds(np.asarray(rates * secret_pairs))


def largest_rate(
    excess: Callable[[float], float],
    epsilon: float,
    max_rate: float,
    min_rate: float,
    tolerance: float,
    rate_guess: float = 0.0,
    exponent: float = 1.0,
) -> float:
    """Find the largest rate from `min_rate` to `max_rate` with a loss of at most epsilon; 0 if there is none.

    `excess` returns a rate's loss less epsilon. Losses grow nearly like a power of the rate. The loss at the result is
    within twice the relative tolerance of epsilon, or the rate within once.
    """
    low_rate, high_rate, rate = 0.0, math.inf, min(rate_guess, max_rate) or max_rate
    previous_point: tuple[float, float] | None = None
    steps = 0
    while True:
        rate_excess = excess(rate)
        if rate_excess <= 0.0:
            low_rate = rate
            if rate == max_rate or rate_excess >= -2.0 * tolerance * epsilon:
                return rate
        elif rate <= min_rate:
            return 0.0
        else:
            high_rate = rate
        if high_rate * (1.0 - tolerance) <= low_rate:
            return low_rate
        # The sum aims at the middle of the tolerance. A loss of 0 has no logarithm: it counts as the least above it.
        log_excess = math.log1p(max(rate_excess / epsilon, UNIT - 1.0)) + tolerance
        if previous_point is not None and rate != previous_point[0]:
            exponent = max(0.5, (log_excess - previous_point[1]) / math.log(rate / previous_point[0]))
        previous_point = rate, log_excess
        rate = min(max(rate * math.exp(max(-log_excess / exponent, -_FAR)), min_rate), max_rate)
        steps += 1
        if not low_rate < rate < high_rate or steps % _HALVE_EVERY == 0:
            middle_rate = math.sqrt(low_rate) * math.sqrt(high_rate) if low_rate > 0.0 else high_rate / 2.0
            rate = min(max(middle_rate, min_rate), max_rate)


_LARGEST_BOUND = 1200.0  # larger numbers are limits of the computation, and not bounds


def chain_loss(chain: MarkovChain, rate: Floats, adversary: Adversary, length: int | None = None) -> ChainLoss:
    """Return the loss of a stream of one chain whose ticks all have the same finite rate (k, k).

    The stream is endless if `length` is `None`. Epsilon is never below the truth, and infinite if no bound was found.
    Raises ChainClassError if a rate is negative, or no bound exists for such a chain.
    """
    if chain.states > EXACT_STATES and chain.is_stationary and adversary != "universal":
        bound = endless_bound(chain, rate, adversary)
        if bound is not None and (length is None or bound <= length * float(rate.max())):
            bound_name = "quilts" if adversary == "informed" else "local linear programmes"
            return ChainLoss(bound, adversary, bound_name, class_of((chain,)).words, length)
    if length is None and chain.states > 2 and not chain.is_stationary and adversary != "universal":
        return _any_start_loss(chain, rate, adversary)
    loss = ChainAccountant((chain,)).loss(rate, adversary, length)
    if loss.epsilon > _LARGEST_BOUND and loss.bound != "every tick in full":
        full_loss = math.inf if length is None else length * float(rate.max()) * (1.0 + OUTWARD)
        return replace(loss, epsilon=full_loss, bound="none" if length is None else "every tick in full")
    return loss


def _any_start_loss(chain: MarkovChain, rate: Floats, adversary: Adversary) -> ChainLoss:
    """Return the least known bound on an endless stream of many states that does not start stationary."""
    least_loss = ChainLoss(math.inf, adversary, "none", class_of((chain,)).words, None)
    any_start_epsilon = any_start_bound(chain, rate, adversary)
    if any_start_epsilon is not None:
        least_loss = replace(least_loss, epsilon=any_start_epsilon, bound="any start")
    if chain.states <= EXACT_STATES and (chain.initial is not None or chain.transition.min() > 0.0):
        try:
            accountant_loss = ChainAccountant((chain,)).loss(rate, adversary)
        except ChainClassError:
            return least_loss
        if accountant_loss.epsilon < min(least_loss.epsilon, _LARGEST_BOUND):
            return accountant_loss
    return least_loss
