"""The chain accountant: from what every tick says of its state to the epsilon of a whole stream, and back.

A mechanism, or any number of them together, has a per-tick loss `rate[x, x']`: changing the state of one tick from x'
to x, all others held fixed, changes the log-density of everything that is released by at most that. Rates of
independent mechanisms add. The accountant adds what the chain lets an adversary infer from the other ticks.

Source: docs/privacy.md, "The chain accountant".
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import brentq

from contract.chains import BinaryChains, BoundedChains, ChainClass, FiniteChains
from contract.guarantee import Adversary
from gateway.chain.kernel import Floats
from gateway.privacy.accountant.endless_side import log_ratios
from gateway.privacy.accountant.finite import MOST_WORK, ChainMember, contract_loss, interval_name, recursion_name
from gateway.privacy.accountant.inner_maximum import EXACT_STATES, closed
from gateway.privacy.accountant.interval_search import worst_informed_losses
from gateway.privacy.accountant.intervals import interval_losses, odds_ratio_losses
from gateway.privacy.accountant.odds_ratio import odds_ratio_side
from gateway.privacy.accountant.schedule import informed_losses, losses, pair_rates
from gateway.privacy.chain_class import ChainClassError, MarkovChain

__all__ = ["ChainAccountant", "ChainLoss", "Chains"]

Chains = tuple[MarkovChain, ...] | ChainClass
_LONGEST_RECURSION = 4096
_LONGEST_INFORMED = 128
_SHORT = 256
_SHORT_INFORMED = 16
_LEAST_SHARE = 1e-9
_OUTWARD = 1e-12
_FINE = 4e-15
_ROUGH = 1e-3  # for chains of many states, where one loss takes a second
_FAR_RATIO = 40.0
_LARGEST_LOG = 700.0  # of an odds ratio that a float can hold


@dataclass(frozen=True)
class ChainLoss:
    """What a stream loses, rounded up.

    Attributes:
        epsilon: bound on the log-likelihood ratio between two states of a tick, over all ticks, in nats.
        adversary: what the adversary may know.
        bound: how it was found: the name of a bound, or "exact" where some release with these rates, a count or symbols
            for one, really loses epsilon.
        chains: the class of chains that it holds for, in words.
        length: ticks of the stream, or None for an endless one.
        by_tick: (n,) the largest loss of each tick, for streams that end.
    """

    epsilon: float
    adversary: Adversary
    bound: str
    chains: str
    length: int | None
    by_tick: Floats | None = None


class ChainAccountant:
    """Accounts for one class of chains; what takes long is computed once.

    Args:
        chains: a finite set of chains, each with its start; or a class of `contract.chains`.

    Raises:
        ChainClassError: the set is empty, or its chains have different numbers of states.
    """

    def __init__(self, chains: Chains) -> None:
        if isinstance(chains, FiniteChains):
            chains = tuple(MarkovChain.stationary(transition) for transition in chains.transitions)
        if isinstance(chains, tuple) and len({chain.states for chain in chains}) != 1:
            raise ChainClassError("a class needs at least one chain, and one number of states")
        self.chains: tuple[MarkovChain, ...] | BinaryChains | BoundedChains = chains
        self._members = tuple(ChainMember(chain) for chain in chains) if isinstance(chains, tuple) else ()

    @property
    def states(self) -> int:
        """k, the number of states."""
        return self.chains[0].states if isinstance(self.chains, tuple) else self.chains.states

    def loss(self, rate: ArrayLike, adversary: Adversary = "ignorant", length: int | None = None) -> ChainLoss:
        """The loss of a stream whose every tick has the same rate.

        Args:
            rate: a number, or (k, k) for each pair of states, >= 0.
            adversary: what the adversary may know.
            length: ticks, or None for an endless stream.

        Raises:
            ChainClassError: a rate is negative, or no bound exists for such a class.
        """
        pairs = self._pairs(rate)
        if length is not None and length < 1:
            raise ChainClassError(f"a stream needs at least 1 tick, got {length}")
        if length is not None and self._tick_by_tick(length, adversary):
            return self.schedule_loss(np.broadcast_to(pairs, (length, *pairs.shape)), adversary)
        endless = self._endless(pairs, adversary)
        if length is None or endless.epsilon <= length * float(pairs.max()):
            return ChainLoss(endless.epsilon, adversary, endless.bound, endless.chains, length)
        everything = length * float(pairs.max()) * (1.0 + _OUTWARD)
        return ChainLoss(everything, adversary, "every tick in full", endless.chains, length)

    def _tick_by_tick(self, length: int, adversary: Adversary) -> bool:
        """Whether a stream of this length is worth following: an endless one that is stationary loses hardly more."""
        if adversary == "informed":
            return length <= _SHORT_INFORMED and self._work(length, adversary) <= MOST_WORK
        if not all(member.chain.is_stationary for member in self._members):
            return length <= _LONGEST_RECURSION
        return length <= (_SHORT if self.states <= EXACT_STATES else 1)

    def _work(self, length: int, adversary: Adversary) -> int:
        """Steps times the fourth power of the states, of chains that are followed tick by tick."""
        steps = {"informed": length**2 * self.states, "ignorant": length, "universal": 0}[adversary]
        return steps * self.states**4 * len(self._members)

    def schedule_loss(self, rates: ArrayLike, adversary: Adversary = "ignorant") -> ChainLoss:
        """The loss of a stream that ends, tick by tick.

        Args:
            rates: (n,) or (n, k, k) per-tick losses.
            adversary: what the adversary may know.

        Raises:
            ChainClassError: a rate is negative; or `informed` was asked for more than 128 ticks (use `loss` with the
                largest rate: it covers any schedule below).
        """
        schedule = np.asarray(rates, dtype=np.float64)
        usable = np.all((schedule >= 0.0) & (schedule < np.inf))  # which what is no number is not, either
        if schedule.ndim not in (1, 3) or not len(schedule) or not usable:
            raise ChainClassError("rates must be finite and non-negative, of shape (n,) or (n, k, k)")
        pairs = pair_rates(schedule, self.states)
        if self._members and self._work(len(pairs), adversary) > MOST_WORK:
            raise ChainClassError(
                f"{len(pairs)} ticks are too many to follow one by one for {self.states} states and the {adversary} "
                "adversary: use fewer states, or a stationary start and the bound of an endless stream"
            )
        if adversary == "informed" and len(pairs) > _LONGEST_INFORMED:
            raise ChainClassError(
                f"at most {_LONGEST_INFORMED} ticks can be accounted for one by one with known states"
            )
        if isinstance(self.chains, tuple):
            total, bound = self._finite(pairs, adversary)
        elif adversary == "ignorant" and isinstance(self.chains, BinaryChains):
            total, bound = interval_losses(self.chains, pairs), interval_name(self.chains)
        elif (
            adversary == "informed"
            and isinstance(self.chains, BinaryChains)
            and Fraction(self.chains.q[1]) + Fraction(self.chains.r[1]) <= 1
        ):
            total, bound = self._informed_interval(self.chains, pairs)
        else:
            total, bound = odds_ratio_losses(self._odds(), pairs), "odds-ratio bound"
        # All states together cannot tell more than all their rates; nor does a bound that no float holds.
        everything = float(pairs.max(axis=(1, 2)).sum()) * (1.0 + _OUTWARD)
        by_tick = np.asarray(np.fmin(total.max(axis=(1, 2)), everything))
        return ChainLoss(float(by_tick.max()), adversary, bound, self._words(), len(pairs), by_tick)

    def allowance(self, epsilon: float, adversary: Adversary = "ignorant", length: int | None = None) -> float:
        """The largest rate, the same at every tick, with a loss of at most epsilon; rounded down.

        Args:
            epsilon: in nats.
            adversary: what the adversary may know.
            length: ticks, or None for an endless stream.

        Raises:
            ChainClassError: epsilon is not a positive number, or the chain never forgets: no rate is small enough.
        """
        if not (math.isfinite(epsilon) and epsilon > 0.0):
            raise ChainClassError(f"epsilon must be a finite number above 0, got {epsilon:g}")
        found: dict[float, float] = {}

        def excess(rate: float) -> float:
            if rate not in found:
                found[rate] = min(self.loss(rate, adversary, length).epsilon, 1e6) - epsilon
            return found[rate]

        guess = self._closed_form(epsilon, adversary, length) * (1.0 - _OUTWARD)
        if guess > 0.0 and excess(guess) <= 0.0:
            return guess
        large = self.states > EXACT_STATES
        low, high = self._bracket(excess, epsilon, self._quick(epsilon, adversary) if large else 0.0)
        if low == high:
            return low
        rate = float(brentq(excess, low, high, xtol=1e-300, rtol=_ROUGH if large else _FINE))
        back = _ROUGH if large else _OUTWARD
        while excess(rate * (1.0 - back)) > 0.0:
            back *= 2.0
        return rate * (1.0 - back)

    def _bracket(self, excess: Callable[[float], float], epsilon: float, guess: float) -> tuple[float, float]:
        """Rates on either side of the allowance; twice the same if all rates up to it will do."""
        most = min(epsilon, _FAR_RATIO)
        low = high = min(guess, most) or most
        while excess(high) <= 0.0:
            if high == most:
                return most, most
            low, high = high, min(high * 1.5, most)
        while excess(low) > 0.0:
            high, low = low, low / 2.0
            if low < _LEAST_SHARE * epsilon:
                raise ChainClassError(f"no noise is enough for epsilon {epsilon:g}: the chain does not forget its past")
        return low, high

    def _quick(self, epsilon: float, adversary: Adversary) -> float:
        """A rate not far below the allowance, from bounds that are had at once; 0 if there is none."""
        if adversary != "ignorant" or not all(member.chain.is_stationary for member in self._members):
            return 0.0

        def excess(rate: float) -> float:
            return max(member.quick(self._pairs(rate)) for member in self._members) - epsilon

        low = epsilon
        while excess(low) > 0.0:
            low /= 2.0
            if low < _LEAST_SHARE * epsilon:
                return 0.0
        return float(brentq(excess, low, 2.0 * low, xtol=1e-300, rtol=_ROUGH)) * (1.0 - 2.0 * _ROUGH)

    def _pairs(self, rate: ArrayLike) -> Floats:
        values = np.asarray(rate, dtype=np.float64)
        if values.ndim not in (0, 2) or not np.all(values >= 0.0) or not np.all(np.isfinite(values)):
            raise ChainClassError("a rate must be a finite number >= 0, or such a number for each pair of states")
        pairs = np.asarray(values * (1.0 - np.eye(self.states)))
        return closed(pairs)

    def _endless(self, pairs: Floats, adversary: Adversary) -> ChainLoss:
        if not isinstance(self.chains, tuple):
            epsilon, bound = contract_loss(self.chains, pairs, adversary)
            return ChainLoss(epsilon, adversary, bound, self._words(), None)
        if adversary == "universal":
            side = odds_ratio_side(self._odds(), float(pairs.max()))
            return ChainLoss(
                (float(pairs.max()) + 2.0 * side) * (1.0 + 1e-14), adversary, "odds-ratio bound", self._words(), None
            )
        found = [member.endless(pairs, adversary) for member in self._members]
        epsilon, bound = max(found)
        return ChainLoss(epsilon, adversary, bound, self._words(), None)

    def _finite(self, pairs: Floats, adversary: Adversary) -> tuple[Floats, str]:
        """Losses (n, k, k), the largest of the class."""
        if adversary == "universal":
            return odds_ratio_losses(self._odds(), pairs), "odds-ratio bound"
        of = informed_losses if adversary == "informed" else losses
        found = [(of(member.chain, pairs), recursion_name(member.chain)) for member in self._members]
        worst = max(found, key=lambda each: float(each[0].max()))
        return np.max([total for total, _ in found], axis=0), worst[1]

    def _informed_interval(self, chains: BinaryChains, pairs: Floats) -> tuple[Floats, str]:
        """Losses (n, 2, 2) of a class with q + r <= 1 to those who may know states."""
        (q, q1), (r, r1) = chains.q, chains.r
        if q == q1 and r == r1:
            return informed_losses(MarkovChain.stationary([[1 - q, q], [r, 1 - r]]), pairs), "bridge recursion"
        searched, universal = worst_informed_losses(chains, pairs), odds_ratio_losses(self._odds(), pairs)
        return np.minimum(searched, universal), "branch and bound"

    def _odds(self) -> float:
        """The largest odds ratio of a step, or its inverse, rounded up."""
        if isinstance(self.chains, BoundedChains):
            return self.chains.odds_ratio
        if isinstance(self.chains, BinaryChains):
            corners = [(q, r) for q in self.chains.q for r in self.chains.r]
            log_odds = [abs(math.log((1 - q) / q) + math.log((1 - r) / r)) for q, r in corners]
            return math.exp(max(log_odds)) * (1.0 + _OUTWARD) if max(log_odds) < _LARGEST_LOG else math.inf
        forward = [log_ratios(member.chain.transition) for member in self._members]
        largest = max(float((table + table.T).max()) for table in forward)
        return math.exp(largest) * (1.0 + _OUTWARD) if largest < _LARGEST_LOG else math.inf

    def _closed_form(self, epsilon: float, adversary: Adversary, length: int | None) -> float:
        """The allowance of two states that are positively correlated, to within rounding; 0 for all others."""
        if adversary != "ignorant" or length is not None or isinstance(self.chains, BoundedChains):
            return 0.0
        if isinstance(self.chains, BinaryChains):
            corners = [(self.chains.q[0], self.chains.r[0])] if self.chains.q[1] + self.chains.r[1] < 1.0 else []
        else:
            corners = [member.rates or (1.0, 1.0) for member in self._members]
        if not corners or any(q + r >= 1.0 for q, r in corners):
            return 0.0
        return min(_one_direction(*pair, epsilon) for q, r in corners for pair in ((q, r), (r, q)))

    def _words(self) -> str:
        if isinstance(self.chains, BinaryChains):
            return f"all stationary two-state chains with q in {list(self.chains.q)} and r in {list(self.chains.r)}"
        if isinstance(self.chains, BoundedChains):
            return f"all {self.chains.states}-state chains with odds ratios up to {self.chains.odds_ratio:g}"
        count = len(self.chains)
        starts = {_start(chain) for chain in self.chains}
        return f"{count} chain{'s' * (count > 1)} of {self.states} states, started {' or '.join(sorted(starts))}"


def _one_direction(q: float, r: float, epsilon: float) -> float:
    """The allowance of a positively correlated two-state chain, in one direction; docs/privacy.md has the formula."""
    e = math.exp(min(epsilon, 500.0))
    b = r * e - q
    root = math.sqrt(b * b + 4.0 * (1.0 - q) * (1.0 - r) * e)
    u = 2.0 * e * (1.0 - q) / (b + root) if b > 0.0 else (root - b) / (2.0 * (1.0 - r))
    return epsilon - 2.0 * math.log(u)


def _start(chain: MarkovChain) -> str:
    if chain.initial is None:
        return "anyhow"
    return "stationary" if chain.is_stationary else "as given"
