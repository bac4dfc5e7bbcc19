"""Classes given by bounds on their steps: intervals of q and r, or a largest odds ratio.

Chains whose steps have bounded odds ratios may have any start and change over time. One bound on their loss, by the
odds ratio alone, holds for every adversary. Two-state chains with q and r in intervals, started stationary, lose less.
The loss of the worst of them has a closed form, or is found at the corners.

Source: docs/proofs/randomised-response.md, "Binary chains in closed form" and "Worst corner"; Birkhoff (1957).

Also the classes of chains that are sampled less often. A chain P seen at every D-th tick is the chain P^D: less
correlated, so that the same epsilon needs less noise.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from fugu.chains.arrays import Floats
from fugu.contract.chains import BinaryChains, BoundedChains, ChainClass, odds_ratio
from fugu.contract.losses import OUTWARD, UNIT, WIDE, Adversary, exp_up
from fugu.privacy.accountant.inner_maximum import EXACT_STATES, odds_ratio_step
from fugu.privacy.chain_class import ChainClassError, Chains, Covered, MarkovChain, Start, matrix_rows
from fugu.privacy.quilts import corner_chains

__all__ = [
    "ALTERNATING",
    "ODDS_RATIO_BOUND",
    "IntervalChains",
    "OddsRatioChains",
    "decimated_odds_ratio",
    "decimated_transition",
    "is_short",
    "odds_ratio_above",
    "odds_ratio_loss",
    "odds_ratio_losses",
    "stretch_losses",
]


_LARGEST = 1.0 - UNIT


def decimated_transition(transition: NDArray[np.float64], stride: int) -> NDArray[np.float64]:
    """Return the transition matrix (k, k) of every `stride`-th tick, P^D."""
    power = np.linalg.matrix_power(transition, stride)
    return np.asarray(power / power.sum(axis=1, keepdims=True))


def decimated_odds_ratio(ratio: float, stride: int) -> float:
    """Bound the odds ratio of a product of D >= 1 matrices, each with odds ratio at most `ratio` >= 1, rounded up.

    The logarithm of the odds ratio is the projective diameter of a positive matrix, and t = tanh(log(ratio) / 4) its
    Birkhoff contraction; contractions of a product are at most multiplied. So sqrt(ratio_D) = (1 + t^D) / (1 - t^D). It
    is attained by two-state chains with soft evidence between the samples, and holds for chains that change.

    Source: G. Birkhoff, "Extensions of Jentzsch's theorem" (1957), theorem 3 and its corollary.
    """
    if stride == 1 or ratio == 1.0:
        return ratio
    contraction = math.tanh(math.log(ratio) / 4.0) ** stride * (1.0 + WIDE)
    if not contraction < 1.0:
        return ratio
    return min(ratio, ((1.0 + contraction) / (1.0 - contraction)) ** 2 * (1.0 + WIDE))


def decimated_interval(chains: BinaryChains, stride: int) -> BinaryChains:
    """Return intervals that hold q and r of P^D for every chain P of a class, D > 1.

    q_D = q/(q+r) (1 - l^D) and r_D = r/(q+r) (1 - l^D) with l = 1-q-r.

    Where l >= 0 on the whole box, q_D grows with q and falls with r (and r_D the other way round), so corners are
    extreme. Every chain with l >= 0 is stochastically monotone, and raising q, or lowering r, makes each row larger.
    Hence every power is larger (Daley 1968, comparison of monotone chains). Where l < 0 is possible, the two factors
    are bounded one by one: q/(q+r) = 1/(1 + r/q) at corners, and l^D over the interval of l (monotone on each side of
    zero). That is a cover, not always the smallest. Raises ChainClassError if a probability rounds to 0.
    """
    (q0, q1), (r0, r1) = chains.q, chains.r
    if Fraction(q1) + Fraction(r1) <= 1:
        q = (_step_probability(q0, r1, stride), _step_probability(q1, r0, stride))
        r = (_step_probability(r0, q1, stride), _step_probability(r1, q0, stride))
    else:
        # In fractions: 1 - l^D of a small q + r is the difference of numbers that a float cannot tell apart.
        low_power, high_power = _power_range(1 - Fraction(q1) - Fraction(r1), 1 - Fraction(q0) - Fraction(r0), stride)
        low_factor, high_factor = float(1 - high_power), float(1 - low_power)
        q = (q0 / (q0 + r1) * low_factor, q1 / (q1 + r0) * high_factor)
        r = (r0 / (r0 + q1) * low_factor, r1 / (r1 + q0) * high_factor)
    if min(*q, *r) <= 0.0:
        raise ChainClassError(f"at every {stride}th tick, a transition probability of the class rounds to 0")
    return BinaryChains(q=_widen_interval(q), r=_widen_interval(r))


def decimated_bounded(chains: BoundedChains, stride: int) -> BoundedChains:
    """Return the class of all products of `stride` steps, with that power of the typical transition matrix."""
    ratio = decimated_odds_ratio(chains.odds_ratio, stride)
    if chains.transition is None:
        return BoundedChains(states=chains.states, odds_ratio=ratio)
    transition = matrix_rows(decimated_transition(np.array(chains.transition), stride))
    return BoundedChains(states=chains.states, odds_ratio=max(ratio, odds_ratio(transition)), transition=transition)


def _step_probability(leave_rate: float, enter_rate: float, stride: int) -> float:
    """Return q/(q+r) (1 - (1-q-r)^D) without cancellation, q to leave and r to enter a state, q + r <= 1."""
    rate_sum = leave_rate + enter_rate
    forgotten_share = 1.0 if rate_sum >= 1.0 else -math.expm1(stride * math.log1p(-rate_sum))
    return leave_rate / rate_sum * forgotten_share


def _power_range(low_base: Fraction, high_base: Fraction, stride: int) -> tuple[Fraction, Fraction]:
    """Return the least and the largest l^D for l from `low_base` to `high_base`, where D = `stride`."""
    powers = (low_base**stride, high_base**stride)
    return (Fraction(0), max(powers)) if stride % 2 == 0 and low_base < 0 < high_base else (min(powers), max(powers))


def _widen_interval(interval: tuple[float, float]) -> tuple[float, float]:
    """Widen an interval by more than its rounding errors, but stay inside (0, 1)."""
    return interval[0] * (1.0 - WIDE), min(interval[1] * (1.0 + WIDE), _LARGEST)


ODDS_RATIO_BOUND = "odds-ratio bound"
ALTERNATING = "alternating bound"
"""The bound's name for readings that alternate (q + r > 1): symbols can reach it, a count cannot."""
_SHORT = 256
_LARGEST_LOG = 700.0  # of an odds ratio that a float can hold
_MOST_RATE = 5000.0


class OddsRatioChains:
    """Every chain, of any start and changing over time, whose steps have bounded odds ratios; see `ClassOfChains`."""

    sticky = False
    """True if all chains have two states, a stationary start, and q + r < 1."""

    def __init__(self, chains: BoundedChains) -> None:
        self._chains: ChainClass = chains
        self._declared = chains
        self.states = chains.states
        self.secrets = 1.0 - np.eye(self.states)
        self.words = f"all {chains.states}-state chains with odds ratios up to {chains.odds_ratio:g}"
        self._odds_ratio = chains.odds_ratio

    def endless_loss(self, rate: Floats, adversary: Adversary) -> tuple[float, str]:
        """Return epsilon and the name of its bound by the device's own check, in exact arithmetic."""
        if rate.max() > _MOST_RATE:
            return math.inf, "none"
        rates = (rate[0, 1], rate[1, 0]) if self.states == 2 else (rate.max(), rate.max())
        ratios = [exp_up(Fraction(float(rate))) for rate in rates]
        loss = self._chains.ratio_loss(ratios[0], ratios[1], adversary)
        return loss.epsilon, loss.bound

    def tick_losses(self, rates: Floats, adversary: Adversary) -> tuple[Floats, str]:
        """Return losses (n, k, k) of every tick and the bound's name; the adversary does not matter."""
        return odds_ratio_losses(self._odds_ratio, rates), ODDS_RATIO_BOUND

    def is_followed(self, length: int) -> bool:
        """Return True if a stream of this length is to be computed tick by tick."""
        return is_short(length, self.states)

    def work(self, length: int, adversary: Adversary) -> int:
        """Return 0: the work is negligible."""
        return 0

    def quick_bound(self, rate: Floats) -> float:
        """Return epsilon of an endless stream, which is quick to compute here."""
        return self.endless_loss(rate, "ignorant")[0]

    covered_start: Covered = "any"
    changes = True

    def has_equal_leakages(self, adversary: Adversary) -> bool:
        """Return True: odds ratios bound past and future alike, and a stationary two-state chain is reversible."""
        return True

    def with_start(self, start: Start | None) -> Chains:
        """Return the class itself, which has every start."""
        return self._chains

    def known_chains(self, start: Start | None) -> tuple[MarkovChain, ...] | BinaryChains:
        """Raise a ChainClassError: no chain of the class is known."""
        raise ChainClassError("needs transition matrices, not a bound on their odds ratios")

    def decimate(self, stride: int) -> ChainClass:
        """Return the class of the chains at every `stride`-th tick."""
        return decimated_bounded(self._declared, stride)


class IntervalChains(OddsRatioChains):
    """Every stationary two-state chain with q and r in intervals; see `ClassOfChains`."""

    def __init__(self, chains: BinaryChains) -> None:
        self._chains = self._intervals = chains
        self.states, self.secrets = chains.states, 1.0 - np.eye(2)
        self.words = f"all stationary two-state chains with q in {list(chains.q)} and r in {list(chains.r)}"
        self._low_sum, self._high_sum = (Fraction(q) + Fraction(r) for q, r in zip(chains.q, chains.r, strict=True))
        self._is_single = chains.q[0] == chains.q[1] and chains.r[0] == chains.r[1]
        self.sticky = self._high_sum < 1
        log_odds = [abs(math.log((1 - q) / q) + math.log((1 - r) / r)) for q in chains.q for r in chains.r]
        self._odds_ratio = odds_ratio_above(max(log_odds))

    def endless_loss(self, rate: Floats, adversary: Adversary) -> tuple[float, str]:
        """Return epsilon and the name of its bound by the device's own check, which is exact for the worst corner."""
        epsilon, bound = super().endless_loss(rate, adversary)
        if bound == "BDP theorem 1" or (self._is_single and bound == "bridge recursion"):
            return epsilon, self._bound_name
        return epsilon, bound

    def tick_losses(self, rates: Floats, adversary: Adversary) -> tuple[Floats, str]:
        """Return losses (n, 2, 2) and the bound's name; for the ignorant adversary those of the worst corners."""
        if adversary == "ignorant":
            return _losses(self._intervals, rates), self._bound_name
        return super().tick_losses(rates, adversary)

    covered_start: Covered = "stationary"
    changes = False

    def with_start(self, start: Start | None) -> Chains:
        """Return the class, or one that also holds its chains with any start: the corners alone would not do."""
        if start != "any":
            return self._chains
        if self._is_single:
            return tuple(chain.any_start for chain in corner_chains(self._intervals))
        return BoundedChains(states=2, odds_ratio=self._intervals.odds_bound)

    def known_chains(self, start: Start | None) -> tuple[MarkovChain, ...] | BinaryChains:
        """Return the interval, or its corners with any start, which are the worst for every Markov quilt.

        Let D = 1 - q - r and G_m = 1 + D + ... + D^(m-1). At node m + 1, a quilt with a left width a has, for states 0
        and 1 and any start, the likelihood ratio S C R. S is the largest of (1 - r G_m) / (r G_m) and q G_m / (1 - q
        G_m), the first if D^m >= 0. C is the same with q and r swapped at a, R of the right width. For D >= 0 the
        derivative of log S C in r has the sign of r (1 - x_a) (q + r D^m) - (q + r x_m) (r + q D^a), x_m = m D^(m-1) /
        G_m >= D^m, and so is not above 0; that in q likewise, and R falls (`corner_chains`). For D < 0, where q and r
        are at least |D|, the same computation for even and odd m and a shows that S C does not fall, and neither does
        R.
        """
        return tuple(chain.any_start for chain in corner_chains(self._intervals)) if start == "any" else self._intervals

    def decimate(self, stride: int) -> ChainClass:
        """Return intervals that hold q and r of every chain at every `stride`-th tick."""
        return decimated_interval(self._intervals, stride)

    @property
    def _bound_name(self) -> str:
        if self._high_sum <= 1:
            return "exact"
        return ALTERNATING if self._low_sum >= 1 else "corners"


def is_short(length: int, states: int) -> bool:
    """Return True if a stationary stream is so short that it loses much less than an endless one."""
    return length <= (_SHORT if states <= EXACT_STATES else 1)


def odds_ratio_above(log_odds: float) -> float:
    """Return an odds ratio from its logarithm, rounded up; infinite beyond floats."""
    return math.exp(log_odds) * (1.0 + OUTWARD) if log_odds < _LARGEST_LOG else math.inf


def odds_ratio_loss(odds: float, rate: float) -> float:
    """Return epsilon of an endless stream, for every adversary and start, by the device's formula; rounded up."""
    if rate == 0.0 or odds == 1.0:
        return rate
    if not math.isfinite(odds) or rate > _MOST_RATE:
        return math.inf
    ratio = exp_up(Fraction(rate))
    return BoundedChains(states=2, odds_ratio=odds).ratio_loss(ratio, ratio, "universal").epsilon


def odds_ratio_losses(odds: float, rates: Floats) -> Floats:
    """Return losses (n, k, k) of every tick, for every adversary and start, if steps have bounded odds ratios."""
    largest_rates = rates.max(axis=(1, 2))
    leakages = _past_leakages(odds, largest_rates) + _past_leakages(odds, largest_rates[::-1])[::-1]
    off_diagonal = 1.0 - np.eye(rates.shape[1])
    return np.asarray(rates + leakages[:, None, None] * off_diagonal)


def stretch_losses(odds: float, rates: Floats, ticks: int) -> Floats:
    """Return the losses of every stretch of `ticks` ticks, by its first tick, of a stream with rates (n,).

    They hold for every adversary and start, and are rounded up. A stretch loses the rates of its own ticks, and the
    leakages of past and future. A shorter stream is one stretch. Source: docs/proofs/stretches.md, theorem 1.
    """
    ticks = min(ticks, len(rates))
    past, future = _past_leakages(odds, rates), _past_leakages(odds, rates[::-1])[::-1]
    stretch_rates = np.convolve(rates, np.ones(ticks), "valid")
    return np.asarray((stretch_rates + past[: len(stretch_rates)] + future[ticks - 1 :]) * (1.0 + OUTWARD))


def _past_leakages(odds: float, rates: Floats) -> Floats:
    """Return the leakage (n,) of all ticks before each tick, in nats."""
    leakages = np.zeros(len(rates))
    for tick in range(1, len(rates)):
        leakages[tick] = odds_ratio_step(odds, rates[tick - 1] + leakages[tick - 1])
    return leakages


def _losses(chains: BinaryChains, rates: Floats) -> Floats:
    """Return losses (n, 2, 2) of every tick with rates (n, 2, 2), to an adversary who knows no state.

    A leakage is the image under f(u) = ((1-q)u + q)/(ru + 1-r) of the likelihood ratio u beyond it. For u >= 1 it falls
    with q and r, for u <= 1 it rises, so the corners are worst at every step. A stationary chain of two states is its
    own reversal, so past and future are computed alike.
    """
    future_leakages = _leakages(chains, rates)
    past_leakages = _leakages(chains, rates[::-1])[::-1]
    return rates + future_leakages + past_leakages


def _leakages(chains: BinaryChains, rates: Floats) -> Floats:
    (q0, q1), (r0, r1) = chains.q, chains.r
    leakages = np.zeros_like(rates)
    for tick in range(len(rates) - 2, -1, -1):
        loss_01, loss_10 = (rates[tick + 1] + leakages[tick + 1])[[0, 1], [1, 0]]
        margin = 64.0 * UNIT * (1.0 + max(loss_01, loss_10))
        directions = ((loss_01, loss_10, q0, r0, q1, r1), (loss_10, loss_01, r0, q0, r1, q1))
        for direction, (log_up, log_down, low_q, low_r, high_q, high_r) in enumerate(directions):
            upper_image = _image(log_up, low_q, low_r)
            lower_image = _image(-log_down, high_q, high_r)
            leakages[tick, direction, 1 - direction] = max(upper_image, lower_image, 0.0) + margin
    return leakages


def _image(log_u: float, q: float, r: float) -> float:
    if log_u > _LARGEST_LOG:  # the limit: not below the image if q + r <= 1, else within a rounding of it
        return math.log1p(-q) - math.log(r)
    u = np.exp(log_u)
    return float(np.log(((1.0 - q) * u + q) / (r * u + 1.0 - r)))
