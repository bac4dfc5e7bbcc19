"""Run attackers on a recording, and compare their success with the ceiling that epsilon allows.

Each attacker is judged by its gain over itself without the outputs, on the same blocks; intervals are for that gain.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import stdtrit

from fugu.attackers.learning import ATTACKERS, COUNT_ATTACKERS, COUNT_LEARNERS, Attacker, smoothing
from fugu.attackers.outputs import CountOutputs, Knowledge, Outputs, empty_outputs
from fugu.chains.arrays import Floats, Ints
from fugu.privacy.transitions import count_transitions, share_bounds

__all__ = [
    "DRAWS",
    "Attack",
    "attack",
    "epsilon_bound",
    "furthest_learner",
    "learners",
    "mean_interval",
    "mean_transitions",
    "odds_change",
    "success_bound",
]

FEWEST_BLOCKS = 8
_TIMES_PER_BLOCK = 10.0


def mean_interval(series: Floats, confidence: float) -> tuple[float, float]:
    """A confidence interval for the mean of a series (n,) of dependent numbers, one per tick, or all numbers if n < 8.

    Means of blocks of ten times the integrated autocorrelation time, if there are eight, count as independent.

    Source: batch means; Geyer, "Practical Markov Chain Monte Carlo" (1992), for the autocorrelation time.
    """
    if series.size < FEWEST_BLOCKS:
        return -np.inf, np.inf
    correlation_time = _autocorrelation_time(series)
    block_length = min(series.size // FEWEST_BLOCKS, max(1, round(_TIMES_PER_BLOCK * correlation_time)))
    mean, half_width = _mean_and_width(block_means(series, block_length), confidence)
    if correlation_time > 1.0:  # neighbouring blocks overlap, in information, by about one autocorrelation time
        half_width /= (1.0 - min(0.5, correlation_time / block_length)) ** 0.5
    return mean - half_width, mean + half_width


def lowest_mean(values: Floats, confidence: float) -> float:
    """A one-sided lower confidence bound for the mean of independent numbers (blocks,)."""
    mean, half_width = _mean_and_width(values, 2 * confidence - 1)
    return mean - half_width


def block_means(series: Floats, block_length: int) -> Floats:
    """Means (blocks,) of consecutive blocks of equal length; the last block is up to twice as long."""
    edges = np.arange(max(1, series.size // block_length)) * block_length
    return np.add.reduceat(series, edges) / np.diff(np.append(edges, series.size))


def _mean_and_width(values: Floats, confidence: float) -> tuple[float, float]:
    quantile = float(stdtrit(values.size - 1, (1 + confidence) / 2))
    return float(values.mean()), quantile * float(values.std(ddof=1)) / values.size**0.5


def _autocorrelation_time(series: Floats) -> float:
    """The integrated autocorrelation time in ticks, at least 1: twice the sum over leading positive pairs, less 1."""
    n = series.size
    centred = series - series.mean()
    transform_size = 1 << (2 * n - 1).bit_length()
    power = np.abs(np.fft.rfft(centred, transform_size)) ** 2
    covariance = np.fft.irfft(power, transform_size)[: 2 * (n // FEWEST_BLOCKS)]
    if not covariance[0] > 0.0:
        return 1.0
    pair_sums = covariance.reshape(-1, 2).sum(axis=1) / covariance[0]
    ends = np.flatnonzero(pair_sums <= 0.0)
    return max(1.0, 2.0 * float(pair_sums[: ends[0] if ends.size else None].sum()) - 1.0)


def success_bound(prior: ArrayLike, epsilon: float, epsilon_10: float | None = None) -> Floats:
    """The largest possible success of an attacker who must name the state of one tick.

    With one epsilon it is the largest, over j, of E / (E - 1 + j) times the prior probability of the j likeliest
    states, E = e^epsilon. Proof: let s_x be the probability of naming x when it is true. Naming x is at most E times as
    likely under x as under another state; so, under x, s_x + sum over z != x of s_z / E <= 1. With S = sum of s that is
    s_x <= u(S) = (E - S) / (E - 1). For a given S the largest sum of prior_x s_x gives u(S) to the likeliest states and
    the rest to the next. It is linear in S between the S at which exactly j states have u(S), S = j E / (E - 1 + j), so
    it is largest at one of those. It is reached by a rule on j states. Name one of them with E / (E - 1 + j) if it is
    true, with 1 / (E - 1 + j) if another of them is, and one of them at random if none is.

    Args:
        prior: (..., k) probabilities before any output; the result (...) is never below its largest.
        epsilon: bound on the log-likelihood ratio of any state over any other, in nats; with `epsilon_10`, of 0 over 1.
        epsilon_10: for two states, that of state 1 over state 0, where it differs.

    Source: docs/proofs/learned-classes.md, "An attacker's success"; it corrects section 4 of the BDP paper.
    """
    distribution = np.asarray(prior, dtype=np.float64)
    best_guess = distribution.max(axis=-1)
    if epsilon_10 is None:
        other_counts = np.arange(distribution.shape[-1])
        top_masses = np.cumsum(-np.sort(-distribution, axis=-1), axis=-1)
        return np.asarray(np.maximum(best_guess, (top_masses / (1 + other_counts * math.exp(-epsilon))).max(axis=-1)))
    if not epsilon > 0 < epsilon_10:
        return np.asarray(best_guess)
    denominator = -math.expm1(-(epsilon + epsilon_10))
    right_chances = np.array([math.expm1(-epsilon_10), math.expm1(-epsilon)]) / -denominator
    return np.asarray(np.maximum(best_guess, distribution @ right_chances))


_BLOCKS = 32
_FEWEST_AFFECTED = 10
_THRESHOLDS = (0.0, 0.5, 1.0, 2.0)


def epsilon_bound(truth: Ints, prior: Floats, evidence: Floats, epsilon: float, confidence: float) -> float:
    """A lower confidence bound on epsilon in nats, at least 0; the promised `epsilon` sets only the thresholds.

    Each test says "state x" if the log-odds of x rose by more than a threshold (0, 1/2, 1 and 2 epsilon, chosen before
    the data). Epsilon promises Pr(test | x) <= e^epsilon Pr(test | not x) on every tick. Weighted by 1 / prior, both
    sides are means over ticks, and over 32 blocks. The result is the largest epsilon that the blocks refute. If fewer
    than ten blocks have a false alarm, their mean is not normal, and the share of such blocks is bounded instead
    (Clopper and Pearson). Confidence is divided among all tests.

    Args:
        truth: (n,) true states of the judged ticks.
        prior: (n, k) probabilities under the true chain without the outputs.
        evidence: (n, k) change of each state's log-odds by the outputs, in nats.
        epsilon: the promised epsilon, in nats.
        confidence: of the bound.
    """
    n, k = prior.shape
    if n < 2 * _BLOCKS:
        return 0.0
    test_confidence = 1 - (1 - confidence) / (k * len(_THRESHOLDS))
    largest_bound = 0.0
    for x in range(k):
        is_state = truth == x
        for threshold in _THRESHOLDS:
            is_alarm = evidence[:, x] > threshold * epsilon
            state_prior = np.clip(prior[:, x], 1e-9, 1 - 1e-9)
            hits = block_means(np.where(is_alarm & is_state, 1 / state_prior, 0.0), n // _BLOCKS)
            alarms = block_means(np.where(is_alarm & ~is_state, 1 / (1 - state_prior), 0.0), n // _BLOCKS)
            largest_bound = max(largest_bound, _refuted_epsilon(hits, alarms, test_confidence))
    return largest_bound


def _refuted_epsilon(hits: Floats, alarms: Floats, confidence: float) -> float:
    """The largest epsilon with mean(hits) > e^epsilon mean(alarms) at a confidence."""
    alarmed_blocks = int((alarms > 0).sum())
    if alarmed_blocks < _FEWEST_AFFECTED:
        half_confidence = (1 + confidence) / 2
        lowest_hits = lowest_mean(hits, half_confidence)
        largest_share = share_bounds(alarmed_blocks, hits.size, 1 - half_confidence)[1]
        return max(0.0, math.log(lowest_hits / largest_share)) if lowest_hits > 0 else 0.0
    low_epsilon, high_epsilon = 0.0, 60.0
    if not lowest_mean(hits - alarms, confidence) > 0:
        return 0.0
    while high_epsilon - low_epsilon > 1e-6:
        middle_epsilon = (low_epsilon + high_epsilon) / 2
        is_refuted = lowest_mean(hits - math.exp(middle_epsilon) * alarms, confidence) > 0
        low_epsilon, high_epsilon = (middle_epsilon, high_epsilon) if is_refuted else (low_epsilon, middle_epsilon)
    return low_epsilon


_BELIEVERS = {"single symbol", "single window", "forward-backward", "Viterbi"}
"""Attackers who believe a chain from the beginning; epsilon bounds only their odds, if the chain is in the class."""

_LARGEST_LOG = 700.0
"""The logarithm of the largest factor that is distinguished from certainty; the factor fits a float."""

_HARMFUL_EXCESS = 0.05
"""The excess of success over the ceiling that a recording must be long enough to show."""

DRAWS = 6
"""Draws of the noise for attackers who learn, as their gain differs from draw to draw.

The median over all draws lies between the least and the largest of six with a probability of 97 %.
"""


@dataclass(frozen=True)
class Attack:
    """The result of one attacker.

    Attributes:
        success: share of judged ticks whose state the attacker named.
        low, high: interval of the success: the guess and the gain over it, corrected for the number of attackers. Both
            equal the guess for an attacker who never departs from it.
        ceiling: the largest success that epsilon allows at the prior of the attacker who believes the chain, if the
            readings are in the class. An attacker who learns drifting rates may exceed it without breaking a theorem.
        guess: success of the same attacker without the outputs.
        epsilon_low: lower confidence bound on epsilon by this attack; 0 if it refutes none.
        beyond: share of judged ticks on which the outputs changed the odds between two states by more than e^epsilon.
            `None` for an attacker who names a path, and so has no odds.
        furthest: the largest change of odds on any tick, as a factor; `None` without odds.
    """

    attacker: str
    success: float
    low: float
    high: float
    ceiling: float
    guess: float
    epsilon_low: float
    beyond: float | None = None
    furthest: float | None = None

    @property
    def refutes(self) -> bool:
        """True if the outputs helped beyond doubt, and the success may be above the ceiling.

        A gain whose interval includes 0 refutes nothing: if one state is rare, the ceiling equals the guess, and any
        other answer may exceed it by chance.
        """
        return self.low > self.guess and self.high > self.ceiling

    @property
    def unclear(self) -> bool:
        """True if the success may be 0.05 or more above the ceiling, but the gain is not beyond doubt.

        The recording is then too short to tell. Without a gain in success the result is clear.
        """
        return self.low <= self.guess < self.success and self.high > self.ceiling + _HARMFUL_EXCESS


def attack(
    states: Ints,
    segments: Ints,
    outputs: Outputs,
    epsilon: float,
    *,
    transition: Floats | None = None,
    known_states: Ints | None = None,
    attackers: Mapping[str, Attacker] | None = None,
    confidence: float = 0.95,
) -> tuple[Attack, ...]:
    """Attack outputs whose truth is known; the most successful attacker comes first.

    Args:
        states: (n,) true states, -1 for none. Ticks without a state are not judged, nor are ticks that attackers know.
        segments: (n,) equal within a stretch without gaps.
        epsilon: the promised epsilon, in nats.
        transition: (k, k) the chain that attackers believe; `None` for the recording's own mean chain.
        known_states: (n,) true states that attackers know, -1 elsewhere.
        attackers: attackers by name; `None` for all that can read these outputs.
        confidence: of all intervals together (Bonferroni).

    Raises:
        ValueError: no tick is judged, or arrays do not fit together.
    """
    k = outputs.states
    is_judged = (states >= 0) & (True if known_states is None else known_states < 0)
    if not is_judged.any() or states.shape != (outputs.ticks,) or segments.shape != states.shape:
        raise ValueError("an attack needs a state, a segment and an output for every tick, and a tick to judge")
    believed_chain = mean_transitions(states, segments, k) if transition is None else transition
    knowledge = Knowledge(believed_chain, segments, known_states, states)
    named_attackers = attackers or (COUNT_ATTACKERS if isinstance(outputs, CountOutputs) else ATTACKERS)
    level = 1 - (1 - confidence) / len(named_attackers)
    no_outputs = empty_outputs(outputs)
    truth = states[is_judged]
    prior = knowledge.prior[is_judged]
    slack = float((success_bound(prior, epsilon) - prior.max(axis=1)).mean())
    best_guess = float((prior.argmax(axis=1) == truth).mean())
    attacks = []
    for name, attacker in named_attackers.items():
        posterior, baseline = (attacker(heard, knowledge)[is_judged] for heard in (outputs, no_outputs))
        is_right, is_guessed = posterior.argmax(axis=1) == truth, baseline.argmax(axis=1) == truth
        guess = float(is_guessed.mean())
        with np.errstate(invalid="ignore"):  # an attacker who was certain before has learned nothing
            evidence = np.nan_to_num(_log_odds(posterior) - _log_odds(baseline), nan=0.0, posinf=np.inf, neginf=-np.inf)
        gains = is_right.astype(np.int64) - is_guessed
        low_gain, high_gain = mean_interval(_residuals(gains, truth * k + baseline.argmax(axis=1)), level)
        success = float(is_right.mean())
        low, high = max(0.0, success + low_gain), min(1.0, success + high_gain)
        ceiling = min(1.0, max(guess, best_guess) + slack)
        epsilon_low = epsilon_bound(truth, prior, evidence, epsilon, level)
        result = Attack(name, success, low, high, ceiling, guess, epsilon_low)
        if not (posterior.max(axis=1) == 1.0).all():
            log_factors = _log_odds_range(posterior, baseline)
            beyond = float((log_factors > epsilon * (1 + 1e-9)).mean())
            furthest = math.exp(min(_LARGEST_LOG, log_factors.max()))
            result = replace(result, beyond=beyond, furthest=furthest)
        attacks.append(result)
    return tuple(sorted(attacks, key=lambda attack: -attack.success))


def learners(outputs: Outputs) -> dict[str, Attacker]:
    """The attackers, by name, who can read these outputs, learn habits, and have odds."""
    attackers = COUNT_ATTACKERS | COUNT_LEARNERS if isinstance(outputs, CountOutputs) else ATTACKERS
    return {name: attacker for name, attacker in attackers.items() if name not in _BELIEVERS and "Viterbi" not in name}


def furthest_learner(attacks: Sequence[Attack]) -> Attack | None:
    """Choose the attack that moved odds furthest among attackers who did not know the chain; `None` without such."""
    candidates = (attack for attack in attacks if attack.attacker not in _BELIEVERS and attack.furthest is not None)
    return max(candidates, key=attrgetter("beyond", "furthest"), default=None)


def odds_change(outputs: Outputs, knowledge: Knowledge, attacker: Attacker = smoothing) -> Floats:
    """The logarithm (n,) of the largest factor by which outputs move an attacker's odds between two states, in nats.

    By default the attacker uses every output under the believed chain (forward-backward). If that chain is in the
    class, the factor stays within e^epsilon, whatever the truth is. An attacker who learns the chain may exceed it.
    """
    return _log_odds_range(attacker(outputs, knowledge), attacker(empty_outputs(outputs), knowledge))


def _log_odds_range(posterior: Floats, prior: Floats) -> Floats:
    with np.errstate(divide="ignore", invalid="ignore"):
        log_ratios = np.where(prior > 0.0, np.log(posterior) - np.log(prior), np.nan)
    return np.asarray(np.nanmax(log_ratios, axis=1) - np.nanmin(log_ratios, axis=1))


def mean_transitions(states: Ints, segments: Ints, k: int, *, pseudocount: float = 0.5) -> Floats:
    """The chain (k, k) of a recording's own transition counts, each increased by `pseudocount`."""
    counts = count_transitions(states, segments, k) + pseudocount
    return np.asarray(counts / counts.sum(axis=1, keepdims=True))


def _residuals(gains: Ints, strata: Ints) -> Floats:
    """Subtract from gains (n,) the mean gain of their stratum."""
    sums, stratum_sizes = np.bincount(strata, gains), np.bincount(strata)
    return gains - (sums / np.maximum(stratum_sizes, 1))[strata]


def _log_odds(probabilities: Floats) -> Floats:
    complement = probabilities.sum(axis=1, keepdims=True) - probabilities
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(probabilities) - np.log(np.maximum(complement, 0.0)))
