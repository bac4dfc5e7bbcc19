"""Attackers of all that is heard around a tick: how often an event happens under each of two states.

They suppose nothing of how draws depend on each other. Draws are simulated by a policy's own numbers, or were really
made. An event is chosen on simulated trials, and counted on others. It is that the likelihood ratio of all that is
heard is above the threshold that promises the largest bound. For counts of pairs of symbols alone, or windows whose
likelihood is too large, it is that a weighted sum of counts is.
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

__all__ = ["attacked", "least_epsilon", "reach"]


_CHOOSING = 4000
_WORK = 40_000_000
_LEAST_TRIALS = 500
_MOST_PAIRS = 12
_MOST_CELLS = 4000
_LARGEST = 700.0
Statistic = Callable[[Heard], Floats]
"""(trials,) numbers that are larger under the one state than under the other."""
_FEWEST = 8
_THRESHOLDS = 40


class Event(NamedTuple):
    """An event, counted in trials of each of two states: hits under the one, alarms under the other.

    Epsilon is at least `least`; `states` is `None` if nothing could be counted; `ticks` were heard.
    """

    least: float
    trials: int
    hits: int
    alarms: int
    states: tuple[int, int] | None
    chain: MarkovChain
    ticks: int


class _Chosen(NamedTuple):
    promise: float
    threshold: float
    statistic: Statistic
    made: Mechanism
    chain: MarkovChain
    pair: tuple[int, int]
    trials: int


def attacked(
    mechanisms: Callable[[int], Mechanism],
    chains: Sequence[MarkovChain],
    generator: np.random.Generator,
    trials: int,
    recorded: Recorded | None,
    level: float,
    pairs: Container[tuple[int, int]] | None = None,
) -> Event:
    """The event that promises most, counted.

    Args:
        mechanisms: what is heard, by how many ticks on each side are.
        chains: that paths are drawn of: one that promises most is taken.
        trials: to count it on, of each of the two states; fewer where one takes long.
        recorded: draws that were really made; `None` to simulate them.
        level: the probability that the bound is wrong.
        pairs: of states that are told apart; `None` for all.
    """
    best: _Chosen | None = None
    for chain in chains:
        far = reach(chain, 3.0)
        for radius in dict.fromkeys((min(far, 20), min(far, 200)) if recorded is None else (min(far, 20), 10, 2, 0)):
            mechanism = mechanisms(radius)
            counted = min(trials, _affordable(_judged(mechanism)))
            if recorded is not None:
                counted = min(counted, recorded.trials(mechanism, chain))
            for chosen in _candidates(mechanism, chain, generator, counted, level, pairs) if counted else ():
                if best is None or chosen.promise > best.promise:
                    best = chosen
    if best is None:
        return Event(0.0, 0, 0, 0, None, chains[0], 0)
    x, z = best.pair
    mechanism, counted = best.made, best.trials
    drawn = [paths(best.chain, mechanism, state, counted, generator) for state in (x, z)]
    if recorded is not None:
        counted = recorded.enough(mechanism, *drawn)
        recorded.rewind()
    draws = recorded or Simulated(generator)
    statistics = (best.statistic(release(mechanism, states[:counted], draws)) for states in drawn)
    hits, alarms = (int((statistic >= best.threshold).sum()) for statistic in statistics)
    least = least_epsilon(hits, alarms, counted, level)
    return Event(least, counted, hits, alarms, (x, z), best.chain, mechanism.ticks)


def reach(chain: MarkovChain, times: float) -> int:
    """Ticks on each side that may tell of a tick: so many of the times in which the chain forgets."""
    second = float(np.sort(np.abs(np.linalg.eigvals(chain.transition)))[-2])
    return max(2, math.ceil(times / max(1 - second, 1e-9)))


def _candidates(
    mechanism: Mechanism,
    chain: MarkovChain,
    generator: np.random.Generator,
    counted: int,
    level: float,
    among: Container[tuple[int, int]] | None,
) -> Iterator[_Chosen]:
    judged = _judged(mechanism)
    trials = min(_CHOOSING, max(counted, _LEAST_TRIALS), _affordable(judged))
    pairs = [pair for pair in secret_pairs(mechanism) if among is None or pair in among][:_MOST_PAIRS]
    heard = {
        state: release(mechanism, paths(chain, mechanism, state, trials, generator), Simulated(generator))
        for state in dict.fromkeys(state for pair in pairs for state in pair)
    }
    logs = {} if judged is None else {state: log_likelihoods(judged, chain, own) for state, own in heard.items()}
    for x, z in pairs:
        if judged is not None:
            statistic: Statistic = _ratio(judged, chain, x, z)
            under, other = (_clipped(logs[state][:, x] - logs[state][:, z]) for state in (x, z))
        else:
            statistic, used = _weighted(heard[x], heard[z])
            under, other = (statistic(Heard({}, heard[state].counts[used:])) for state in (x, z))
        threshold, promise = _best_threshold(under, other, counted, level)
        yield _Chosen(promise, threshold, statistic, mechanism, chain, (x, z), counted)


def _best_threshold(under: Floats, other: Floats, trials: int, level: float) -> tuple[float, float]:
    """The threshold that promises the largest bound when so many trials of each are counted, and that bound.

    `under` and `other` are (n,) log-likelihood ratios of x over x' in trials under x, and under x'.
    """
    best, threshold = 0.0, math.inf
    ordered = np.sort(other)
    for limit in np.unique(np.quantile(under, np.linspace(0, 1, _THRESHOLDS))):
        share = float((under >= limit).mean())
        against = float(ordered.size - np.searchsorted(ordered, limit)) / ordered.size
        hits, alarms = int(share * trials), math.ceil(against * trials)
        if share * under.size < _FEWEST:
            break
        epsilon = least_epsilon(hits, alarms, trials, level)
        if epsilon > best:
            best, threshold = epsilon, float(limit)
    return threshold, best


def least_epsilon(hits: int, alarms: int, trials: int, level: float) -> float:
    """A lower bound of log( Pr(event | x) / Pr(event | x') ), wrong with a probability of at most `level`.

    Hits are of trials under x, alarms of as many under x'; half of the level is given to each probability.
    """
    low, high = share_bounds(hits, trials, level / 2)[0], share_bounds(alarms, trials, level / 2)[1]
    return max(0.0, math.log(low / high)) if low > 0.0 else 0.0


def _judged(mechanism: Mechanism) -> Mechanism | None:
    """Outputs to attack: all that is heard, or the symbols if counts make it too large; `None` without any."""
    if mechanism.telling and mechanism.cells <= _MOST_CELLS:
        return mechanism
    return mechanism._replace(counts=()) if any(source.heard for source in mechanism.sources) else None


def _affordable(judged: Mechanism | None) -> int:
    """How many trials the work of one leaves time for."""
    return max(_LEAST_TRIALS, _WORK // (1 if judged is None else judged.work))


def _ratio(mechanism: Mechanism, chain: MarkovChain, x: int, z: int) -> Statistic:
    def statistic(heard: Heard) -> Floats:
        logs = log_likelihoods(mechanism, chain, heard)
        return _clipped(logs[:, x] - logs[:, z])

    return statistic


def _weighted(heard: Heard, other: Heard) -> tuple[Statistic, int]:
    """The sum of counts that differs most between two states (Fisher), found on a half of the trials; and how many."""
    half = len(heard.counts) // 2
    under, against = heard.counts[:half].astype(np.float64), other.counts[:half].astype(np.float64)
    spread = np.cov(under, rowvar=False) + np.cov(against, rowvar=False)
    weights = np.linalg.lstsq(np.atleast_2d(spread), under.mean(axis=0) - against.mean(axis=0), rcond=None)[0]
    return lambda heard: np.asarray(heard.counts @ weights), half


def _clipped(logs: Floats) -> Floats:
    return np.clip(logs, -_LARGEST, _LARGEST)
