"""A few known chains, each with its start: the loss of the worst of them.

Source: docs/proofs/chain-accountant.md, "The chain accountant".
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import cached_property

import numpy as np

from fugu.chains.arrays import Floats, Ints
from fugu.contract.chains import BinaryChains, ChainClass
from fugu.contract.losses import CLOSED_FORM, UPWARD, Adversary, reversal_error
from fugu.privacy.accountant.bounded import (
    ALTERNATING,
    ODDS_RATIO_BOUND,
    IntervalChains,
    is_short,
    odds_ratio_above,
    odds_ratio_loss,
    odds_ratio_losses,
)
from fugu.privacy.accountant.endless_leakage import EndlessLeakage, log_ratios
from fugu.privacy.accountant.inner_maximum import EXACT_STATES, step
from fugu.privacy.accountant.walks import losses, past_leakages, reversed_stationary
from fugu.privacy.chain_class import ChainClassError, Covered, MarkovChain, Start

__all__ = ["MOST_WORK", "KnownChains"]


MOST_WORK = 3 * 10**8
"""The most steps times the fourth power of the states, which takes seconds."""
_LONGEST_RECURSION = 4096
_LONGEST_START = 4096
_FORGOTTEN = 1e-9
_HARDLY_FORGOTTEN = 1e-3
_TIGHT = 1e-10


class KnownChains:
    """A class of a few known chains, each with its start. ChainClassError for different numbers of states.

    `secrets` (k, k) is 1 for states that must not be told apart and 0 for others; `None` protects all pairs.
    """

    def __init__(self, chains: tuple[MarkovChain, ...], secrets: Floats | None = None) -> None:
        if len({chain.states for chain in chains}) != 1:
            raise ChainClassError("a class needs at least one chain, and one number of states")
        self.states = chains[0].states
        self.secrets = 1.0 - np.eye(self.states) if secrets is None else secrets
        self._members = tuple(_Member(chain, self.secrets) for chain in chains)

    @property
    def words(self) -> str:
        """Words for the number of chains and their starts."""
        count, starts = len(self._members), sorted({_start_words(member.chain) for member in self._members})
        return f"{count} chain{'s' * (count > 1)} of {self.states} states, started {' or '.join(starts)}"

    @property
    def sticky(self) -> bool:
        """True if all members have two states, a stationary start, and q + r < 1."""
        rates = [member.rates for member in self._members]
        return all(pair is not None and Fraction(pair[0]) + Fraction(pair[1]) < 1 for pair in rates)

    def endless_loss(self, rate: Floats, adversary: Adversary) -> tuple[float, str]:
        """Return the least epsilon of all bounds and its bound's name, with the same rates (k, k) at every tick.

        Raises ChainClassError if odds ratios have no bound, and a start is neither stationary nor forgotten in time.
        """
        odds_ratio_bound = odds_ratio_loss(self._odds_ratio, float(rate.max())), ODDS_RATIO_BOUND
        if adversary == "universal":
            return odds_ratio_bound
        try:
            return min(max(member.endless_loss(rate, adversary) for member in self._members), odds_ratio_bound)
        except ChainClassError:
            if not math.isfinite(odds_ratio_bound[0]):
                raise
            return odds_ratio_bound

    changes = False

    def has_equal_leakages(self, adversary: Adversary) -> bool:
        """Return True if past and future have equal bounds: only bounds by odds ratios are equal."""
        return adversary == "universal"

    @property
    def covered_start(self) -> Covered:
        """The starts that every chain of the class covers."""
        chains = [member.chain for member in self._members]
        if all(chain.initial is None for chain in chains):
            return "any"
        return "stationary" if all(chain.is_stationary for chain in chains) else "as given"

    def known_chains(self, start: Start | None) -> tuple[MarkovChain, ...]:
        """Return the chains with a start; with `None` each keeps its own."""
        chains = tuple(member.chain for member in self._members)
        if start == "any":
            return tuple(chain.any_start for chain in chains)
        return chains if start is None else tuple(MarkovChain.stationary(chain.transition) for chain in chains)

    with_start = known_chains

    def decimate(self, stride: int) -> ChainClass:
        """Raise a ChainClassError: the class has no chain of every `stride`-th tick."""
        raise ChainClassError("known chains are of one period")

    def tick_losses(self, rates: Floats, adversary: Adversary) -> tuple[Floats, str]:
        """Return losses (n, k, k) of every tick, the largest of the class, and the name of the bound."""
        odds_bounds = odds_ratio_losses(self._odds_ratio, rates)
        if adversary == "universal":
            return odds_bounds, ODDS_RATIO_BOUND
        member_losses = [(losses(member.chain, rates), _recursion_name(member.chain)) for member in self._members]
        worst_member = max(member_losses, key=lambda member_loss: float(member_loss[0].max()))
        class_loss = np.max([np.where(self.secrets > 0.0, table, 0.0) for table, _ in member_losses], axis=0)
        is_member_bound = class_loss.max() <= odds_bounds.max()
        return np.minimum(class_loss, odds_bounds), worst_member[1] if is_member_bound else ODDS_RATIO_BOUND

    def is_followed(self, length: int) -> bool:
        """Return True if a stream of this length is to be computed tick by tick."""
        return is_short(length, self.states) if self._is_stationary else length <= _LONGEST_RECURSION

    def work(self, length: int, adversary: Adversary) -> int:
        """Return the work of computing `length` ticks: steps times the fourth power of the states."""
        return length * self.states**4 * len(self._members) if adversary == "ignorant" else 0

    def quick_bound(self, rate: Floats) -> float:
        """Return a quick bound on the loss of an endless stream to the ignorant adversary; it may be infinite."""
        return max(member.quick_bound(rate) for member in self._members) if self._is_stationary else math.inf

    @cached_property
    def _is_stationary(self) -> bool:
        return all(member.chain.is_stationary for member in self._members)

    @cached_property
    def _odds_ratio(self) -> float:
        """The largest odds ratio of a step, or its inverse, rounded up."""
        tables = [log_ratios(member.chain.transition) for member in self._members]
        return odds_ratio_above(max(float((table + table.T).max()) for table in tables))


class _Member:
    """One chain of a class with its start, and the leakages of its endless streams."""

    def __init__(self, chain: MarkovChain, secrets: Floats) -> None:
        self.chain, self._secrets = chain, secrets

    @property
    def rates(self) -> tuple[float, float] | None:
        """q and r of a stationary two-state chain that changes both ways; else `None`."""
        if self.chain.states != 2 or not self.chain.is_stationary:
            return None
        q, r = float(self.chain.transition[0, 1]), float(self.chain.transition[1, 0])
        return (q, r) if 0.0 < q < 1.0 and 0.0 < r < 1.0 else None

    @cached_property
    def _support(self) -> Ints:
        """Indices of the states of the stationary distribution."""
        return np.flatnonzero(self.chain.stationary_distribution)

    @cached_property
    def _future(self) -> EndlessLeakage:
        support_transition = self.chain.transition[np.ix_(self._support, self._support)]
        return EndlessLeakage(support_transition / support_transition.sum(axis=1, keepdims=True))

    @cached_property
    def _past(self) -> EndlessLeakage:
        if self._support.size <= 2:  # two states are their own reversal
            return self._future
        reversal = reversed_stationary(MarkovChain(self._future.transition, None))
        if reversal is None:
            raise ChainClassError("some step backward in time is too rare for a float")
        return EndlessLeakage(reversal[1], reversal_error(self._support.size))

    def endless_loss(self, rate: Floats, adversary: Adversary) -> tuple[float, str]:
        if self.rates is not None:
            q, r = self.rates
            return IntervalChains(BinaryChains(q=(q, q), r=(r, r))).endless_loss(rate, adversary)
        if not self.chain.is_stationary:
            return self._endless_from_start(rate, adversary)
        rate = rate[np.ix_(self._support, self._support)]
        leakages = [direction.leakage_against(rate, adversary) for direction in (self._future, self._past)]
        return _round_up(self._largest_total(rate, *leakages)), self._bound_name(rate, leakages[0], adversary)

    def quick_bound(self, rate: Floats) -> float:
        rate = rate[np.ix_(self._support, self._support)]
        return self._largest_total(rate, self._future.quick_bound(rate), self._past.quick_bound(rate))

    def _largest_total(self, rate: Floats, future: Floats, past: Floats) -> float:
        """Return the largest sum of the rate and both leakages of any secret pair of states."""
        return float((rate + future + past)[self._secrets[np.ix_(self._support, self._support)] > 0.0].max(initial=0.0))

    def _endless_from_start(self, rate: Floats, adversary: Adversary) -> tuple[float, str]:
        """Bound a stream that does not start stationary: follow the past's leakage until the start is forgotten."""
        stationary = reversed_stationary(self.chain)
        if stationary is None:
            raise ChainClassError("an endless stream with this start needs a chain that visits all its states for ever")
        distribution, kernel, order = stationary
        future_leakage = self._future.ignorant_leakage(rate)
        past_limit = self._past.ignorant_leakage(rate)
        off_diagonal, error, ticks = 1.0 - np.eye(len(distribution)), reversal_error(len(distribution)), 64
        while (
            distance_to_stationary := self._distance(ticks, distribution) + CLOSED_FORM * ticks + error
        ) > _FORGOTTEN and ticks < _LONGEST_START:
            ticks *= 2
        if not distance_to_stationary < _HARDLY_FORGOTTEN:
            raise ChainClassError("the chain forgets its start too slowly: give it a stationary start, or a length")
        if ticks * len(distribution) ** 4 > MOST_WORK:
            raise ChainClassError(
                f"{ticks} ticks, until its start is forgotten, are too many for {len(distribution)} states: give it "
                "a stationary start, or merge states"
            )
        leakages = past_leakages(self.chain, np.broadcast_to(rate, (ticks, *rate.shape)))
        start_term = 2.0 * distance_to_stationary * off_diagonal
        reversal_term = step(kernel, order, start_term).T + error * off_diagonal
        tail_leakage = self._past.certify(
            np.maximum(leakages[-1], past_limit),
            lambda bound: step(kernel, order, rate + bound + start_term) + reversal_term,
        )
        loss_over_start = float((rate + future_leakage + leakages.max(axis=0)).max())
        past_leakage = np.maximum(leakages.max(axis=0), tail_leakage)
        if adversary == "informed":
            past_leakage = np.maximum(past_leakage, self._past.informed_leakage(rate, past_limit))
            future_leakage = self._future.informed_leakage(rate, future_leakage)
        epsilon, bound_name = float((rate + future_leakage + past_leakage).max()), _recursion_name(self.chain)
        # The tail bounds all later ticks at once, and no tick need reach it.
        is_tight = loss_over_start >= epsilon * (1.0 - _TIGHT)
        return _round_up(epsilon), bound_name if is_tight else "forgotten-start bound"

    def _distance(self, ticks: int, stationary: Floats) -> float:
        """Return the largest |log| of the distribution at tick `ticks` over the stationary one."""
        power = np.linalg.matrix_power(self.chain.transition, ticks - 1)
        distributions = power if self.chain.initial is None else self.chain.initial @ power
        with np.errstate(divide="ignore"):
            return float(np.abs(np.log(distributions / stationary)).max())

    def _bound_name(self, rate: Floats, leakage: Floats, adversary: Adversary) -> str:
        if self.chain.states <= EXACT_STATES:
            return _recursion_name(self.chain)
        if adversary == "informed" or leakage.max() >= self._future.quilt_bound(rate).max():
            return "quilts"
        hockey_bound = self._future.hockey_stick_bound(float(rate.max()))
        return "hockey-stick" if leakage.max() >= hockey_bound else "transport"


def _recursion_name(chain: MarkovChain) -> str:
    if chain.states > 2:
        return "linear programme" if chain.states <= EXACT_STATES else "transport"
    if chain.initial is None:
        return "any-start bound"  # no single start need have every tick's worst distribution
    (stay0, q), (r, stay1) = (tuple(Fraction(float(p)) for p in row) for row in chain.transition)
    return "exact" if stay0 * stay1 >= q * r else ALTERNATING


def _round_up(epsilon: float) -> float:
    return epsilon * (1.0 + UPWARD) if math.isfinite(epsilon) else math.inf


def _start_words(chain: MarkovChain) -> str:
    if chain.initial is None:
        return "anyhow"
    return "stationary" if chain.is_stationary else "as given"
