"""Attack all outputs heard around a tick by an event: count how often it happens under each of two states.

The attack assumes nothing about how draws depend on each other. Draws are simulated by a policy's own numbers, or are
a device's real draws. An event is chosen on simulated trials, and counted on other trials. It happens if the likelihood
ratio of all outputs exceeds the threshold that promises the largest bound. A weighted sum of counts takes the place of
the ratio for counts of pairs of symbols alone, and for windows whose likelihood takes too long.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from fugu.attackers.mechanisms import Heard, Mechanism, Recorded, Simulated, log_likelihoods, paths, release
from fugu.attackers.witness import secret_pairs
from fugu.chains.arrays import Floats
from fugu.privacy.chain_class import MarkovChain
from fugu.privacy.transitions import share_bounds

__all__ = ["pick_event", "ticks_to_forget"]


_CHOICE_TRIALS = 4000
_WORK_PER_COUNT = 40_000_000
_LEAST_TRIALS = 500
_MOST_PAIRS = 12
_MOST_CELLS = 4000
_LARGEST_LOG = 700.0
Statistic = Callable[[Heard], Floats]
"""A function to numbers (trials,) that are larger under one state than under the other."""
_FEWEST_HITS = 8
_THRESHOLDS = 40


class Event(NamedTuple):
    """An event, counted in equally many trials of two states: hits under the first, alarms under the second.

    Epsilon is at least `epsilon_low`. `states` is `None` if nothing could be counted; `ticks` is the number of ticks
    that were heard.
    """

    epsilon_low: float
    trials: int
    hits: int
    alarms: int
    states: tuple[int, int] | None
    chain: MarkovChain
    ticks: int


class _EventCandidate(NamedTuple):
    promise: float
    threshold: float
    statistic: Statistic
    mechanism: Mechanism
    chain: MarkovChain
    secrets: tuple[int, int]
    trials: int


def pick_event(
    mechanisms: Callable[[int], Mechanism],
    chains: Sequence[MarkovChain],
    generator: np.random.Generator,
    trials: int,
    real_draws: Recorded | None,
    level: float,
    pairs: Container[tuple[int, int]] | None = None,
) -> Event:
    """Choose the event that promises the largest bound, and count it.

    Args:
        mechanisms: the mechanism that is heard, as a function of the ticks on each side.
        chains: chains to draw paths from; the one that promises the largest bound is used.
        generator: source of random numbers.
        trials: trials of each of the two states; fewer if a trial takes long.
        real_draws: a device's real draws; `None` to simulate draws.
        level: the largest probability that the bound is wrong.
        pairs: pairs of states to tell apart; `None` for all.
    """
    best_event: _EventCandidate | None = None
    for chain in chains:
        longest_radius = ticks_to_forget(chain, 3.0)
        other_radii = (min(longest_radius, 200),) if real_draws is None else (10, 2, 0)
        for radius in dict.fromkeys((min(longest_radius, 20), *other_radii)):
            mechanism = mechanisms(radius)
            trial_count = min(trials, _affordable_trials(_attackable(mechanism)))
            if real_draws is not None:
                trial_count = min(trial_count, real_draws.trials(mechanism, chain))
            for candidate in _candidates(mechanism, chain, generator, trial_count, level, pairs) if trial_count else ():
                if best_event is None or candidate.promise > best_event.promise:
                    best_event = candidate
    if best_event is None:
        return Event(0.0, 0, 0, 0, None, chains[0], 0)
    x, z = best_event.secrets
    mechanism, trial_count = best_event.mechanism, best_event.trials
    walks = [paths(best_event.chain, mechanism, state, trial_count, generator) for state in (x, z)]
    if real_draws is not None:
        trial_count = real_draws.paths_covered(mechanism, *walks)
        real_draws.rewind()
    draws = real_draws or Simulated(generator)
    statistics = (best_event.statistic(release(mechanism, states[:trial_count], draws)) for states in walks)
    hits, alarms = (int((statistic >= best_event.threshold).sum()) for statistic in statistics)
    epsilon_low = least_epsilon(hits, alarms, trial_count, level)
    return Event(epsilon_low, trial_count, hits, alarms, (x, z), best_event.chain, mechanism.ticks)


def ticks_to_forget(chain: MarkovChain, times: float) -> int:
    """The ticks on each side that may tell of a tick: `times` times the chain's forgetting time, at least 2."""
    second_eigenvalue = float(np.sort(np.abs(np.linalg.eigvals(chain.transition)))[-2])
    return max(2, math.ceil(times / max(1 - second_eigenvalue, 1e-9)))


def _candidates(
    mechanism: Mechanism,
    chain: MarkovChain,
    generator: np.random.Generator,
    trial_count: int,
    level: float,
    allowed_pairs: Container[tuple[int, int]] | None,
) -> Iterator[_EventCandidate]:
    outputs = _attackable(mechanism)
    trials = min(_CHOICE_TRIALS, max(trial_count, _LEAST_TRIALS), _affordable_trials(outputs))
    pairs = [pair for pair in secret_pairs(mechanism) if allowed_pairs is None or pair in allowed_pairs][:_MOST_PAIRS]
    heard = {
        state: release(mechanism, paths(chain, mechanism, state, trials, generator), Simulated(generator))
        for state in dict.fromkeys(state for pair in pairs for state in pair)
    }
    logs = {} if outputs is None else {state: log_likelihoods(outputs, chain, trial) for state, trial in heard.items()}
    for x, z in pairs:
        if outputs is not None:
            statistic: Statistic = _ratio_statistic(outputs, chain, x, z)
            ratios, other_ratios = (_clip_logs(logs[state][:, x] - logs[state][:, z]) for state in (x, z))
        else:
            statistic, first_trial = _weighted_sum(heard[x], heard[z])
            ratios, other_ratios = (statistic(Heard({}, heard[state].counts[first_trial:])) for state in (x, z))
        threshold, promise = _best_threshold(ratios, other_ratios, trial_count, level)
        yield _EventCandidate(promise, threshold, statistic, mechanism, chain, (x, z), trial_count)


def _best_threshold(ratios: Floats, other_ratios: Floats, trials: int, level: float) -> tuple[float, float]:
    """The threshold that promises the largest bound for a number of trials of each state, and that bound.

    `ratios` and `other_ratios` (n,) are log-likelihood ratios of x over x', in trials under x and under x'.
    """
    best_epsilon, threshold = 0.0, math.inf
    for limit in np.unique(np.quantile(ratios, np.linspace(0, 1, _THRESHOLDS))):
        hit_share, alarm_share = (float((trial_ratios >= limit).mean()) for trial_ratios in (ratios, other_ratios))
        hits, alarms = int(hit_share * trials), math.ceil(alarm_share * trials)
        if hit_share * ratios.size < _FEWEST_HITS:
            break
        epsilon = least_epsilon(hits, alarms, trials, level)
        if epsilon > best_epsilon:
            best_epsilon, threshold = epsilon, float(limit)
    return threshold, best_epsilon


def least_epsilon(hits: int, alarms: int, trials: int, level: float) -> float:
    """A lower bound of log( Pr(event | x) / Pr(event | x') ), wrong with a probability of at most `level`.

    `hits` counts events in trials under x, `alarms` in equally many under x'; each probability gets half of the level.
    """
    hit_share, alarm_share = share_bounds(hits, trials, level / 2)[0], share_bounds(alarms, trials, level / 2)[1]
    return max(0.0, math.log(hit_share / alarm_share)) if hit_share > 0.0 else 0.0


def _attackable(mechanism: Mechanism) -> Mechanism | None:
    """The outputs to attack: all that is heard; symbols alone if counts take too long, or `None` without symbols."""
    if mechanism.followed and mechanism.cells <= _MOST_CELLS:
        return mechanism
    return mechanism._replace(counts=()) if any(source.heard for source in mechanism.sources) else None


def _affordable_trials(outputs: Mechanism | None) -> int:
    """The number of trials that can be computed in acceptable time."""
    return max(_LEAST_TRIALS, _WORK_PER_COUNT // (1 if outputs is None else outputs.work))


def _ratio_statistic(mechanism: Mechanism, chain: MarkovChain, x: int, z: int) -> Statistic:
    def statistic(heard: Heard) -> Floats:
        logs = log_likelihoods(mechanism, chain, heard)
        return _clip_logs(logs[:, x] - logs[:, z])

    return statistic


def _weighted_sum(heard: Heard, other_heard: Heard) -> tuple[Statistic, int]:
    """Fit the weighted sum of counts that best separates two states (Fisher), and count the trials used."""
    half_trials = len(heard.counts) // 2
    counts, other_counts = (trials.counts[:half_trials].astype(np.float64) for trials in (heard, other_heard))
    covariance = np.cov(counts, rowvar=False) + np.cov(other_counts, rowvar=False)
    weights = np.linalg.lstsq(np.atleast_2d(covariance), counts.mean(axis=0) - other_counts.mean(axis=0), rcond=None)[0]
    return lambda heard: heard.counts @ weights, half_trials


def _clip_logs(logs: Floats) -> Floats:
    return np.clip(logs, -_LARGEST_LOG, _LARGEST_LOG)
