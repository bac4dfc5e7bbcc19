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
    promised_epsilon: float
    threshold: float
    statistic: Statistic
    mechanism: Mechanism
    chain: MarkovChain
    secrets: tuple[int, int]
    trials: int


def pick_event(
    make_mechanism: Callable[[int], Mechanism],
    chains: Sequence[MarkovChain],
    generator: np.random.Generator,
    trials: int,
    real_draws: Recorded | None,
    level: float,
    pairs: Container[tuple[int, int]] | None = None,
) -> Event:
    """Choose the event that promises the largest bound on epsilon, and count how often it happens.

    Args:
        make_mechanism: the mechanism that is heard, as a function of the ticks on each side.
        chains: chains to draw paths from; the one that promises the largest bound is used.
        generator: source of random numbers.
        trials: trials of each of the two states; fewer if a trial takes long.
        real_draws: a device's real draws; `None` to simulate draws.
        level: the largest probability that the bound is wrong.
        pairs: pairs of states to tell apart; `None` for all.
    """
    best_candidate: _EventCandidate | None = None
    for chain in chains:
        longest_radius = ticks_to_forget(chain, 3.0)
        other_radii = (min(longest_radius, 200),) if real_draws is None else (10, 2, 0)
        for radius in dict.fromkeys((min(longest_radius, 20), *other_radii)):
            mechanism = make_mechanism(radius)
            trial_count = min(trials, _affordable_trials(_quick_mechanism(mechanism)))
            if real_draws is not None:
                trial_count = min(trial_count, real_draws.trials(mechanism, chain))
            for candidate in _candidates(mechanism, chain, generator, trial_count, level, pairs) if trial_count else ():
                if best_candidate is None or candidate.promised_epsilon > best_candidate.promised_epsilon:
                    best_candidate = candidate
    if best_candidate is None:
        return Event(0.0, 0, 0, 0, None, chains[0], 0)
    x, z = best_candidate.secrets
    mechanism, trial_count = best_candidate.mechanism, best_candidate.trials
    walks = [paths(best_candidate.chain, mechanism, state, trial_count, generator) for state in (x, z)]
    if real_draws is not None:
        trial_count = real_draws.paths_covered(mechanism, *walks)
        real_draws.rewind()
    draws = real_draws or Simulated(generator)
    statistics = (best_candidate.statistic(release(mechanism, states[:trial_count], draws)) for states in walks)
    hits, alarms = (int((statistic >= best_candidate.threshold).sum()) for statistic in statistics)
    epsilon_low = least_epsilon(hits, alarms, trial_count, level)
    return Event(epsilon_low, trial_count, hits, alarms, (x, z), best_candidate.chain, mechanism.ticks)


def ticks_to_forget(chain: MarkovChain, multiple: float) -> int:
    """A multiple of the ticks after which a chain has forgotten its state, at least 2."""
    second_eigenvalue = float(np.sort(np.abs(np.linalg.eigvals(chain.transition)))[-2])
    return max(2, math.ceil(multiple / max(1 - second_eigenvalue, 1e-9)))


def _candidates(
    mechanism: Mechanism,
    chain: MarkovChain,
    generator: np.random.Generator,
    trial_count: int,
    level: float,
    allowed_pairs: Container[tuple[int, int]] | None,
) -> Iterator[_EventCandidate]:
    quick_mechanism = _quick_mechanism(mechanism)
    trials = min(_CHOICE_TRIALS, max(trial_count, _LEAST_TRIALS), _affordable_trials(quick_mechanism))
    pairs = [pair for pair in secret_pairs(mechanism) if allowed_pairs is None or pair in allowed_pairs][:_MOST_PAIRS]
    samples = {
        state: release(mechanism, paths(chain, mechanism, state, trials, generator), Simulated(generator))
        for state in dict.fromkeys(state for pair in pairs for state in pair)
    }
    log_probs = {}
    if quick_mechanism is not None:
        log_probs = {state: log_likelihoods(quick_mechanism, chain, heard) for state, heard in samples.items()}
    for x, z in pairs:
        if quick_mechanism is not None:
            statistic: Statistic = _ratio_statistic(quick_mechanism, chain, x, z)
            ratios, other_ratios = (_clip_logs(log_probs[state][:, x] - log_probs[state][:, z]) for state in (x, z))
        else:
            statistic, first_trial = _weighted_sum(samples[x], samples[z])
            ratios, other_ratios = (statistic(Heard({}, samples[state].counts[first_trial:])) for state in (x, z))
        threshold, promised_epsilon = _best_threshold(ratios, other_ratios, trial_count, level)
        yield _EventCandidate(promised_epsilon, threshold, statistic, mechanism, chain, (x, z), trial_count)


def _best_threshold(ratios: Floats, other_ratios: Floats, trials: int, level: float) -> tuple[float, float]:
    """Choose the threshold that promises the largest bound on epsilon; return the threshold and this bound.

    `ratios` and `other_ratios` (n,) are log-likelihood ratios of x over x', in trials under x and under x'. The
    bound is for `trials` of each state.
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


def _quick_mechanism(mechanism: Mechanism) -> Mechanism | None:
    """Leave out the counts if their likelihood takes too long; `None` if no symbols remain."""
    if mechanism.followed_counts and mechanism.cells <= _MOST_CELLS:
        return mechanism
    return mechanism._replace(counts=()) if any(source.heard for source in mechanism.sources) else None


def _affordable_trials(mechanism: Mechanism | None) -> int:
    """The number of trials that can be computed in acceptable time."""
    return max(_LEAST_TRIALS, _WORK_PER_COUNT // (1 if mechanism is None else mechanism.work))


def _ratio_statistic(mechanism: Mechanism, chain: MarkovChain, x: int, z: int) -> Statistic:
    def statistic(heard: Heard) -> Floats:
        logs = log_likelihoods(mechanism, chain, heard)
        return _clip_logs(logs[:, x] - logs[:, z])

    return statistic


def _weighted_sum(heard: Heard, other_heard: Heard) -> tuple[Statistic, int]:
    """Fit the weighted sum of counts that best separates two states (Fisher); also return the number of trials used."""
    half_trials = len(heard.counts) // 2
    counts, other_counts = (outputs.counts[:half_trials].astype(np.float64) for outputs in (heard, other_heard))
    covariance = np.cov(counts, rowvar=False) + np.cov(other_counts, rowvar=False)
    weights = np.linalg.lstsq(np.atleast_2d(covariance), counts.mean(axis=0) - other_counts.mean(axis=0), rcond=None)[0]
    return lambda heard: heard.counts @ weights, half_trials


def _clip_logs(logs: Floats) -> Floats:
    return np.clip(logs, -_LARGEST_LOG, _LARGEST_LOG)
