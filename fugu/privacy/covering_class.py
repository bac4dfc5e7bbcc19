"""The class of chains that covers 98 % of a recording's stretches, at every length, and not only its average.

Where no stretch scatters more than one chain would (`local_transitions`), and the state before the last tells nothing,
the class is that chain within its intervals. Else probabilities change over time, and a class of changing chains is
declared, by the largest odds ratio of a step. That ratio covers all but a small share of the stretches of each length,
and every regime that lasts as long. The odds ratio of a stretch takes its probabilities together, each at the low end
of its range. Intervals of each alone would join the lowest of one hour with the lowest of another. Against chains that
change every adversary gets the bound of the universal one, which needs nothing but the odds ratio. Regimes of fewer
ticks than the shortest stretch are not covered: what they are worth to an attacker is measured.

Constants are rounded outward to two digits: a class is published, and more digits would tell of its recording.

Local transition probabilities say how often states follow one another in each stretch, without the sampling error.
Shares that are counted in stretches of one length scatter even for one chain. So a row of the chain is tested first.
Its visits are cut into blocks of one size, in which a chain of constant probabilities makes binomial counts, however
long its states last. Where the blocks scatter no more, all stretches get the probability of the whole recording, with
its Clopper-Pearson interval. Otherwise the distribution of the probabilities over stretches is estimated (the mixing
distribution of largest likelihood). Each stretch gets the range that this and its counts leave, but for a tenth at each
end.

A stretch in which something never happened tells only that it is about as rare as once in the whole stretch, or rarer.
A probability of 0 would make every guarantee infinite. Such a probability is taken to be no less than half an
occurrence, 1 / (2n + 2) for n visits (the mean under Jeffreys' prior). What lasts longer than a stretch needs longer
ones: two thousand equal states are 1 / 4002, not 1 / 1002. Where a state is not visited, a probability may be nearly
the lowest of any stretch.

Source: Laird, "Nonparametric maximum likelihood estimation of a mixing distribution" (1978); Clopper, Pearson (1934).

Slow regimes are a chain whose probabilities switch now and then between a few sets. The hidden state is a regime and a
state, which is seen, so that the kernel which learns a chain from symbols learns this as well. The number of regimes is
that of the largest likelihood after Schwarz's penalty.

Source: Goldfeld and Quandt, "A Markov model for switching regressions" (1973); Schwarz (1978).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Decimal, localcontext
from itertools import product
from typing import NamedTuple

import numpy as np
from scipy import special

from fugu.chains.arrays import Bools, Floats, Ints
from fugu.chains.learning import baum_welch
from fugu.chains.model import stationary_distribution
from fugu.contract.chains import BinaryChains, BoundedChains, odds_ratio
from fugu.privacy.chain_class import ChainClassError
from fugu.privacy.transitions import LikelihoodRatio, count_transitions, count_triples, order_test, share_bounds

__all__ = [
    "CoveringChains",
    "CoveringClass",
    "bounded_class",
    "covering_class",
    "local_transitions",
    "round_outward",
    "smooth_counts",
    "smooth_pair_counts",
    "stretch_lengths",
    "union",
    "widen",
]


_SIGNIFICANT = 1e-3
_LEAST_EXPECTED = 1.0  # of a block: below, the chi-square distribution is none
_GRID = 81
_ROUNDS = 300
_NEVER = 1e-12
TAIL = 0.1
"""Probability below the range of a stretch, and above."""


class LocalTransitions(NamedTuple):
    """Probabilities in the s stretches of one length.

    Attributes:
        length: ticks of a stretch; a remainder of less than half a stretch belongs to the last.
        counts: (s, k, k) steps from state x to y in each stretch.
        low: (s, k, k) the lower end of the range of each probability, inside (0, 1).
        log_odds: (s,) the largest of the logarithms of the odds ratios of a step, at the far end of its range.
        changes: (k, k) whether blocks of visits scatter more than a constant probability does.
    """

    length: int
    counts: Ints
    low: Floats
    log_odds: Floats
    changes: Bools

    @property
    def covered_log(self) -> float:
        """The log odds ratio that no step exceeds in all stretches but the share `_SHARE`."""
        return float(np.sort(self.log_odds)[math.ceil(self.log_odds.size * (1.0 - _SHARE)) - 1])


def local_transitions(states: Ints, segments: Ints, k: int, stretches: Sequence[int]) -> tuple[LocalTransitions, ...]:
    """Estimate the probabilities in stretches of several lengths, each at most n ticks.

    States (n,) are in 0..k-1, -1 for none. Stretches go on across gaps between segments (n,), steps do not.
    """
    step_ticks = np.flatnonzero((segments[1:] == segments[:-1]) & (states[1:] >= 0) & (states[:-1] >= 0))
    from_states, to_states = states[step_ticks], states[step_ticks + 1]
    return tuple(_local_estimate(step_ticks, from_states, to_states, k, length, states.size) for length in stretches)


def _local_estimate(steps: Ints, from_states: Ints, to_states: Ints, k: int, length: int, n: int) -> LocalTransitions:
    stretch_count = max(1, (n + length // 2) // length)
    cell_indices = (np.minimum(steps // length, stretch_count - 1) * k + from_states) * k + to_states
    counts = np.bincount(cell_indices, minlength=stretch_count * k * k).reshape(stretch_count, k, k).astype(np.int64)
    p_values = np.array([_scatter_p_values(to_states[from_states == x], k, stretch_count) for x in range(k)])
    changes = p_values < _SIGNIFICANT / max(1, int((p_values < 1.0).sum()))
    low, high = np.empty(counts.shape), np.empty(counts.shape)
    for x, y in product(range(k), repeat=2):
        if k > 2 or x != y:
            low[:, x, y], high[:, x, y] = _probability_range(counts[:, x], y, changes=bool(changes[x, y]))
    for x in range(k) if k == 2 else ():  # staying is not leaving
        low[:, x, x], high[:, x, x] = 1.0 - high[:, x, 1 - x], 1.0 - low[:, x, 1 - x]
    log_odds = np.array([largest_log_odds(*interval) for interval in zip(low, high, strict=True)])
    return LocalTransitions(length, counts, low, log_odds, changes)


def largest_log_odds(low: Floats, high: Floats) -> float:
    """Bound log( P[x,y] P[w,z] / (P[x,z] P[w,y]) ) over all matrices P (k, k) between `low` and `high`, above 0."""
    log_low, log_high = np.log(low), np.log(high)
    log_ratios = log_high[:, None, :] - log_low[None, :, :]
    order = np.argsort(log_ratios, axis=2)
    largest, second = (np.take_along_axis(log_ratios, order[:, :, -i, None], axis=2)[:, :, 0] for i in (1, 2))
    columns = order[:, :, -1]  # no two entries of an odds ratio are in one column
    log_odds = np.where(columns == columns.T, np.maximum(largest + second.T, second + largest.T), largest + largest.T)
    np.fill_diagonal(log_odds, 0.0)
    return float(log_odds.max())


def _probability_range(counts: Ints, y: int, *, changes: bool) -> tuple[Floats | float, Floats | float]:
    """Return the range of the probability of a step to y in each stretch, by quantiles of its posterior."""
    hits, trials = counts[:, y], counts.sum(axis=1)
    if not changes:
        return constant_probability(int(hits.sum()), int(trials.sum()))
    logits = special.logit((hits + 0.5) / (trials + 1.0))[trials > 0]
    grid = np.linspace(logits.min(), logits.max(), _GRID)
    log_likelihood = hits[:, None] * special.log_expit(grid) + (trials - hits)[:, None] * special.log_expit(-grid)
    likelihood = np.exp(log_likelihood - log_likelihood.max(axis=1, keepdims=True))
    weights = np.full(grid.size, 1.0 / grid.size)
    visited_rows = likelihood[trials > 0]
    for _ in range(_ROUNDS):  # expectation maximisation, from the uniform distribution
        weights *= (visited_rows / (visited_rows @ weights)[:, None]).mean(axis=0)
    cumulative = np.cumsum(likelihood * weights, axis=1)
    cumulative /= cumulative[:, -1:]
    probabilities = special.expit(grid)
    low, high = (probabilities[np.minimum((cumulative < level).sum(axis=1), _GRID - 1)] for level in (TAIL, 1.0 - TAIL))
    return low, high


def _scatter_p_values(next_states: Ints, k: int, block_count: int) -> Floats:
    """Return the p-values (k,) of next states being equally frequent in all blocks of visits; 1 for too few visits."""
    visits = next_states.size // block_count
    p_values = np.ones(k)
    if visits < 2 or block_count < 2:
        return p_values
    blocks = next_states[: visits * block_count].reshape(block_count, visits)
    for y in range(k):
        hits = (blocks == y).sum(axis=1)
        probability = float(hits.mean()) / visits
        if min(probability, 1.0 - probability) * visits >= _LEAST_EXPECTED:
            statistic = float(((hits - visits * probability) ** 2).sum()) / (visits * probability * (1.0 - probability))
            p_values[y] = special.chdtrc(block_count - 1, statistic)
    return p_values


def constant_probability(hits: int, trials: int, tail: float = TAIL) -> tuple[float, float]:
    """Return the interval of a constant probability, whose ends each fail with probability `tail`.

    An event that never happened may be as rare as one that happened once, and one that always did may fail as rarely.
    """
    if not trials:
        return _NEVER, 1.0 - _NEVER
    low, high = (share_bounds(max(hits, 1), trials, tail)[0], share_bounds(min(hits, trials - 1), trials, tail)[1])
    return max(low, _NEVER), min(high, 1.0 - _NEVER)


_MOST = 3
_FIT_ROUNDS = 60
_FIT_TOLERANCE = 1e-6
_SPREAD = 0.5
_STAY = 0.995
_MOST_TICKS = 100_000
_MOST_STATES = 8


class Regime(NamedTuple):
    """A regime of a recording: its share of the time, mean length in ticks, and chain (k, k)."""

    share: float
    ticks: float
    transition: Floats


def fit_regimes(states: Ints, segments: Ints, k: int) -> tuple[Regime, ...]:
    """Fit one, two or three regimes to a recording, the longest in total first; a single one for k above 8.

    The states (n,) are in 0..k-1, -1 for none; segments (n,) are equal inside a stretch without gaps. Only the first
    100,000 ticks count.
    """
    states, segments = states[:_MOST_TICKS], segments[:_MOST_TICKS]
    lengths = np.diff(np.flatnonzero(np.concatenate([[True], np.diff(segments) != 0, [True]])))
    step_counts = count_transitions(states, segments, k) + 1.0 / k
    base_transition = np.asarray(step_counts / step_counts.sum(axis=1, keepdims=True))
    fits = []
    for regime_count in range(1, _MOST + 1 if k <= _MOST_STATES else 2):
        fitted = baum_welch(
            states,
            np.tile(np.eye(k), (regime_count, 1)),
            lengths=lengths,
            transition=_initial_regimes(base_transition, regime_count),
            iterations=_FIT_ROUNDS,
            tolerance=_FIT_TOLERANCE,
        )
        free_count = regime_count * (regime_count - 1) + regime_count * k * (k - 1)
        fits.append((fitted.log_likelihoods[-1] - free_count / 2.0 * math.log(states.size), fitted.transition))
        if len(fits) > 1 and fits[-1][0] <= fits[-2][0]:
            break
    _, transition = max(fits, key=lambda fit: fit[0])
    return _regimes(transition, k)


def _initial_regimes(transition: Floats, regime_count: int) -> Floats:
    """Return a first guess of regimes from slow to fast: the recording's chain, with rarer or more frequent moves."""
    speeds = np.exp(_SPREAD * (2.0 * np.arange(regime_count) - (regime_count - 1)))
    regime_switches = (1.0 - _STAY) / max(regime_count - 1, 1) * np.ones((regime_count, regime_count))
    np.fill_diagonal(regime_switches, _STAY if regime_count > 1 else 1.0)
    blocks = []
    for speed in speeds:
        moves = transition * (1.0 - np.eye(len(transition))) * speed
        moves /= np.maximum(1.0, moves.sum(axis=1, keepdims=True) / 0.95)
        blocks.append(moves + np.diag(1.0 - moves.sum(axis=1)))
    return np.block([[regime_switches[i, j] * block for j, block in enumerate(blocks)] for i in range(regime_count)])


def _regimes(transition: Floats, k: int) -> tuple[Regime, ...]:
    regime_count = len(transition) // k
    distribution = stationary_distribution(transition).reshape(regime_count, k)
    blocks = transition.reshape(regime_count, k, regime_count, k)
    regimes = []
    for i in range(regime_count):
        inner_steps = blocks[i, :, i, :]
        stay_probability = inner_steps.sum(axis=1)
        share = float(distribution[i].sum())
        exit_rate = float(distribution[i] @ (1.0 - stay_probability))
        ticks = share / exit_rate if exit_rate > 0.0 else math.inf
        regimes.append(Regime(share, ticks, inner_steps / np.maximum(stay_probability, 1e-300)[:, None]))
    return tuple(sorted(regimes, key=lambda regime: -regime.share))


SHORTEST = 500
"""Ticks of the shortest stretches, if a recording has enough of them."""
_FEWEST = 8
_LEAST_ROWS = 400
_LEAST_LEFT = 10
_SIGNIFICANT_CHANGE = 1e-4
_OUTWARD = 1.0 + 1e-9
_MOST_ODDS, _LARGEST_LOG = 1e280, 700.0
_SHARE = 0.02
"""The share of the stretches of a length that may have a larger odds ratio than the class."""

CoveringChains = BinaryChains | BoundedChains


class CoveringClass(NamedTuple):
    """A class that covers a recording, and the estimates that decided its width.

    Attributes:
        transition: (k, k) the chain of the whole recording; steps that were never seen count half.
        lengths: estimates in the stretches of each length.
        regimes: the regimes that the recording switches between, perhaps a single one.
        order: test of whether the state before the last tells something.
    """

    chains: CoveringChains
    transition: Floats
    lengths: tuple[LocalTransitions, ...]
    regimes: tuple[Regime, ...]
    order: LikelihoodRatio

    @property
    def changes(self) -> bool:
        """True if probabilities change over time, or depend on more than the last state."""
        return any(length.changes.any() for length in self.lengths) or self.order.p_value < _SIGNIFICANT_CHANGE

    def share(self) -> float:
        """Return the share of stretches that the class covers, at the worst length; 1 for one chain."""
        if not self.chains.changes:
            return 1.0
        limit = math.log(self.chains.odds_bound)
        return min(float(np.mean(length.log_odds <= limit)) for length in self.lengths)


def covering_class(states: Ints, segments: Ints, k: int) -> CoveringClass:
    """Find the class of chains that covers a recording; arguments as for `fit_regimes`.

    Raises ChainClassError if the recording is too short to tell, or a state never occurs.
    """
    states, segments = _without_gaps(states, segments)
    step_counts = count_transitions(states, segments, k)
    _refuse_short(step_counts)
    regimes = fit_regimes(states, segments, k)
    lengths = local_transitions(states, segments, k, stretch_lengths(states.size))
    transition = smooth_counts(step_counts)
    order = order_test(count_triples(states, segments, k))
    visit_counts = step_counts.sum(axis=1)
    slow_regimes = [regime for regime in regimes if regime.ticks >= lengths[0].length / 2 and regime.share >= _SHARE]
    log_odds = [largest_log_odds(*(_floor_regime(regime, visit_counts),) * 2) for regime in slow_regimes]
    log_odds += [length.covered_log for length in lengths]
    covering = CoveringClass(bounded_class(max(log_odds), transition), transition, lengths, regimes, order)
    return covering._replace(chains=_constant_class(step_counts)) if k == 2 and not covering.changes else covering


def _without_gaps(states: Ints, segments: Ints) -> tuple[Ints, Ints]:
    """Return states and segments without the ticks that have no state, which end a segment."""
    has_state = states >= 0
    segment_steps = (np.diff(segments, prepend=segments[:1]) != 0).astype(np.int64) + ~has_state
    return states[has_state], np.cumsum(segment_steps)[has_state]


def smooth_counts(counts: Ints, is_possible: Floats | float = 1.0) -> Floats:
    """Return the chain of transition counts; a step never seen counts half if `is_possible` is 1, not if it is 0."""
    smoothed_counts = np.maximum(counts, 0.5) * is_possible
    return np.asarray(smoothed_counts / smoothed_counts.sum(axis=1, keepdims=True), dtype=np.float64)


def smooth_pair_counts(counts: Ints) -> Floats:
    """Return the chain (k^2, k^2) of pairs (previous, present state) from their counts, as `smooth_counts` does."""
    k = math.isqrt(len(counts))
    return smooth_counts(counts, np.kron(np.ones((k, 1)), np.kron(np.eye(k), np.ones((1, k)))))  # 1 if y follows


def widen(chains: CoveringChains, factor: float) -> BoundedChains:
    """Widen a class so that windows need `factor` >= 1 times the noise, which grows with the odds ratio's root."""
    return _bounded_class(chains.odds_bound * factor * factor, np.array(chains.typical_matrices[0]))


def union(classes: Sequence[CoveringChains]) -> CoveringChains:
    """Return the least class with all chains of several classes, by intervals if all have them, else by odds ratios."""
    if all(member.boxes for member in classes):
        spans = zip(*(box for member in classes for box in member.boxes), strict=True)
        q, r = ((float(min(low for low, _ in span)), float(max(high for _, high in span))) for span in spans)
        return BinaryChains(q=q, r=r)
    return max((widen(member, 1.0) for member in classes), key=lambda member: member.odds_bound)


def _refuse_short(step_counts: Ints) -> None:
    step_count, departure_counts = int(step_counts.sum()), step_counts.sum(axis=1) - np.diag(step_counts)
    if step_count < _LEAST_ROWS or departure_counts.min() < _LEAST_LEFT:
        state = int(departure_counts.argmin())
        times_words = "once" if departure_counts[state] == 1 else f"{departure_counts[state]} times"
        count_words = f"state {state} is left {times_words} in {step_count} steps"
        raise ChainClassError(
            f"too short to tell how readings depend on one another: {count_words}; at least {_LEAST_LEFT} times and "
            f"{_LEAST_ROWS} steps are needed"
        )


def stretch_lengths(ticks: int) -> list[int]:
    """Return the doubling lengths, in ticks, whose stretches are enough in a recording of `ticks` ticks."""
    length = min(SHORTEST, ticks // _FEWEST)
    return [length << doublings for doublings in range(64) if (length << doublings) * _FEWEST <= ticks]


def _floor_regime(regime: Regime, visit_counts: Ints) -> Floats:
    """Return a regime's chain, whose steps are no rarer than half an occurrence in the visits of one stay."""
    min_probability = 0.5 / (np.minimum(visit_counts * min(regime.share, 1.0), regime.ticks) + 1.0)
    chain = np.maximum(regime.transition, min_probability[:, None])
    return np.asarray(chain / chain.sum(axis=1, keepdims=True))


def _constant_class(step_counts: Ints) -> BinaryChains:
    """Return intervals of q and r, so wide that their odds ratio holds with 90 %.

    The errors are independent, and the logarithm of the odds ratio is the sum of the probabilities' log-odds.
    """
    hits, trials = step_counts[[0, 1], [1, 0]], step_counts.sum(axis=1)
    frequencies = (hits + 0.5) / (trials + 1.0)
    standard_errors = 1.0 / np.sqrt(trials * frequencies * (1.0 - frequencies))
    tail = float(special.ndtr(special.ndtri(TAIL) * np.hypot(*standard_errors) / standard_errors.sum()))
    q, r = (constant_probability(int(n), int(m), tail) for n, m in zip(hits, trials, strict=True))
    return BinaryChains(q=round_outward(*q), r=round_outward(*r))


def bounded_class(log_odds: float, transition: Floats) -> BoundedChains:
    """Return a class of chains that change over time, whose steps have at most these log odds; rounded up.

    The odds ratio is at least that of the typical member `transition` (k, k).
    """
    return _bounded_class(math.exp(min(log_odds, _LARGEST_LOG)) * _OUTWARD, transition)


def _bounded_class(odds: float, transition: Floats) -> BoundedChains:
    rows = tuple(_short_row(row.tolist()) for row in transition)
    odds = float(_two_digits(max(min(odds, _MOST_ODDS), odds_ratio(rows)), ROUND_CEILING))
    return BoundedChains(states=len(rows), odds_ratio=odds, transition=rows)


def round_outward(low: float, high: float) -> tuple[float, float]:
    """Widen an interval inside (0, 1) to ends of two digits, of which an upper end above 1/2 has them below 1."""
    if high <= 0.5:
        return float(_two_digits(low, ROUND_FLOOR)), float(_two_digits(high, ROUND_CEILING))
    return float(_two_digits(low, ROUND_FLOOR)), float(1 - _two_digits(1.0 - high, ROUND_FLOOR))


def _short_row(row: list[float]) -> tuple[float, ...]:
    """Round a row of probabilities to two digits each; the largest takes what is missing from 1."""
    rounded = [_two_digits(p, ROUND_HALF_EVEN) for p in row]
    largest_index, rest = row.index(max(row)), Decimal(1) - sum(rounded)
    last_digits = [Decimal((0, (1,), int(p.as_tuple().exponent))) for p in rounded]
    rounding_ratios = [float(rounded_p) / p if p else 1.0 for rounded_p, p in zip(rounded, row, strict=True)]
    for index in sorted(range(len(row)), key=rounding_ratios.__getitem__, reverse=rest < 0):
        if abs(rest) < last_digits[largest_index]:
            break
        last_digit = last_digits[index].copy_sign(rest)
        rounded[index] += last_digit
        rest -= last_digit
    rounded[largest_index] += rest
    return tuple(map(float, rounded))


def _two_digits(number: float, rounding: str) -> Decimal:
    with localcontext(prec=800):
        exact = Decimal(number)
        return exact.quantize(Decimal((0, (1,), exact.adjusted() - 1)), rounding=rounding) if number else exact
