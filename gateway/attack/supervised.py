"""An attacker who has seen the truth of another time of the same person, and learns what outputs mean from it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise

import numpy as np
from scipy.special import expit

from gateway.attack.chains import smoothing
from gateway.attack.outputs import CountOutputs, Knowledge, Outputs, without
from gateway.chain.arrays import Floats, Ints

__all__ = ["folded", "supervised"]

_WIDTHS = (1, 3, 9, 27, 81, 243, 729)
_WINDOWS = (1, 3, 9, 27)
_PENALTY = 1.0
_STEPS = 10
_MOST_TICKS = 5000
"""Ticks that are learned from, evenly taken from all: neighbours say nearly the same."""


def supervised(outputs: Outputs, knowledge: Knowledge) -> Floats:
    """Logistic regression on sums of outputs over windows of several widths around each tick, one state at a time.

    What it knows without the outputs, the odds of each tick under the believed chain given known states, is a feature,
    too, and without any output all that it goes by.
    """
    truth = knowledge.truth
    prior = smoothing(without(outputs), knowledge)
    silent = not outputs.counts.size if isinstance(outputs, CountOutputs) else not (outputs.symbols >= 0).any()
    if truth is None or silent or not (truth >= 0).any():
        return prior
    chosen = np.flatnonzero(truth >= 0)
    chosen = chosen[:: -(-chosen.size // _MOST_TICKS)]
    found = np.empty_like(prior)
    for x in range(outputs.states):
        odds = np.log(np.clip(prior[:, x], 1e-9, 1.0)) - np.log(np.clip(1 - prior[:, x], 1e-9, 1.0))
        given = np.column_stack([np.ones(outputs.ticks), odds - odds.mean(), *_features(outputs, knowledge, x)])
        found[:, x] = np.clip(expit(given @ _regression(given[chosen], truth[chosen] == x)), 1e-12, 1.0)
    return np.asarray(found / found.sum(axis=1, keepdims=True))


def folded(attacker: Callable[[Outputs, Knowledge], Floats], folds: int) -> Callable[[Outputs, Knowledge], Floats]:
    """An attacker who learns from the truth of some time, judged on another: on contiguous folds.

    Args:
        attacker: uses `truth`.
        folds: number of parts; each is attacked with its own truth, and a tenth of its length on both sides, held back.
    """

    def attack(outputs: Outputs, knowledge: Knowledge) -> Floats:
        if (truth := knowledge.truth) is None:
            return attacker(outputs, knowledge)
        found = np.empty((outputs.ticks, outputs.states))
        for low, high in pairwise(np.linspace(0, outputs.ticks, folds + 1).astype(int)):
            held, margin = truth.copy(), (high - low) // 10
            held[max(0, low - margin) : high + margin] = -1
            found[low:high] = attacker(outputs, replace(knowledge, truth=held))[low:high]
        return found

    return attack


def _features(outputs: Outputs, knowledge: Knowledge, x: int) -> Iterator[Floats]:
    """Standardised features (n,) for a state: what symbols say for it, and counts that it is in, else all counts."""
    seen = outputs.beside if isinstance(outputs, CountOutputs) else outputs
    if seen is not None:
        scores = np.append(np.log(seen.emission[x]) - np.log(seen.emission.mean(axis=0)), 0.0)
        yield from map(_standard, _sums(scores[seen.symbols], knowledge.segments, _WIDTHS))
    if isinstance(outputs, CountOutputs):
        windows = outputs.windows()
        own = [x in group for group in outputs.groups]
        for counts in outputs.counts.T[own if any(own) else slice(None)].astype(np.float64):
            for column in map(_standard, _sums(counts, knowledge.segments[outputs.first], _WINDOWS)):
                yield np.append(column, 0.0)[windows]


def _standard(column: Floats) -> Floats:
    """Mean 0 and standard deviation 1; a constant becomes 0."""
    return np.asarray((column - column.mean()) / (float(column.std()) or 1.0))


def _sums(series: Floats, segments: Ints, widths: tuple[int, ...]) -> list[Floats]:
    """Means of a series (n,) over centred windows of odd widths, cut off where its segment ends."""
    n = series.size
    total = np.concatenate([[0.0], np.cumsum(series)])
    edges = np.concatenate([[0], np.flatnonzero(np.diff(segments)) + 1, [n]])
    first, last = np.repeat(edges[:-1], np.diff(edges)), np.repeat(edges[1:], np.diff(edges))
    low = [np.maximum(first, np.arange(n) - width // 2) for width in widths]
    high = [np.minimum(last, np.arange(n) + width // 2 + 1) for width in widths]
    return [(total[h] - total[b]) / (h - b) for b, h in zip(low, high, strict=True)]


def _regression(features: Floats, label: Floats) -> Floats:
    """Weights (f,) of a logistic regression with a small ridge: Newton's method."""
    weights = np.zeros(features.shape[1])
    ridge = np.full(weights.size, _PENALTY)
    for _ in range(_STEPS):
        chance = expit(features @ weights)
        slope = features.T @ (chance - label) + ridge * weights
        curve = (features * (chance * (1 - chance))[:, None]).T @ features + np.diag(ridge)
        step = np.linalg.solve(curve, slope)
        weights -= step
        if np.abs(step).max() < 1e-8:
            break
    return weights
