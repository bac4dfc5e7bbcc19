"""Attack whole stretches by attackers who know all other days.

The attackers believe one chain, know every true state outside the day around a stretch, and see all outputs. They ask
whether a state took more of the stretch than usual, took at least half of it, or began in it. Their odds on such a
secret, before and after the outputs, are computed over all courses of that day (forward, over pairs of a state and a
count). If the chain is in the class, no output moves the odds by more than the promise for the stretch.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import product
from typing import NamedTuple

import numpy as np
from scipy.special import expit

from fugu.attackers.evaluation import epsilon_bound, mean_interval, mean_transitions, success_bound
from fugu.attackers.outputs import CountOutputs, Outputs, SymbolOutputs
from fugu.chains.arrays import Bools, Floats, Ints

__all__ = ["FEWEST", "MOST_FOLLOWED", "PARTS", "Odds", "StretchAttack", "attack_stretches", "stretches_anywhere"]

SECRETS = ("more than usual", "at least half", "begins in it")
FEWEST, MOST = 200, 800
"""The least and the largest number of scored stretches; stretches of symbols overlap in a short recording."""
MOST_FOLLOWED = 3000
"""The most ticks of a stretch, or of a window, whose courses are computed; more would take long."""
PARTS = 8
"""The largest number of stretches within one window that are attacked."""
_LARGEST_LOG = 700.0


class StretchAttack(NamedTuple):
    """The result of attacks on `scored` stretches of `ticks` ticks, about one secret.

    `success` is the share of stretches on which the likelier answer is true, `low` and `high` its 95 % interval, and
    `guess` the same share without outputs. `ceiling` is the largest success that epsilon allows. Epsilon is at least
    `epsilon_low` at 95 %. `furthest` is the largest factor by which outputs moved odds, `typical` the median.
    """

    secret: str
    ticks: int
    scored: int
    success: float
    low: float
    high: float
    guess: float
    ceiling: float
    epsilon_low: float
    furthest: float
    typical: float


class _Span(NamedTuple):
    """A stretch from tick `first` on, the unknown ticks begin..end around it, and their counts."""

    first: int
    begin: int
    end: int
    counts: Ints  # of the windows that fill begin..end, or none


def attack_stretches(
    states: Ints,
    segments: Ints,
    outputs: Outputs,
    counted: tuple[int, ...],
    ticks: int,
    unknown_ticks: int,
    epsilon: float,
    transition: Floats | None = None,
) -> tuple[StretchAttack, ...]:
    """Attack stretches of outputs whose truth is known; one result for each of `SECRETS`.

    For counts, a stretch is a part of one window, or as many whole windows as fit into `ticks`.

    Args:
        states: (n,) true states, -1 for none. Unknown ticks, and the two ticks beside them, must have a state.
        segments: (n,) equal within a stretch without gaps; unknown ticks lie within one.
        outputs: symbols; or counts of windows that count `counted` together (symbols beside them are not read).
        counted: the states that the secrets are about.
        ticks: ticks of a stretch, at least 1.
        unknown_ticks: number of unknown ticks, in the stretch and around it.
        epsilon: the promise about such a stretch, in nats.
        transition: (k, k) the believed chain; by default the recording's own mean chain.

    Returns:
        The results; empty if no stretch can be scored, or no count is that of `counted`.
    """
    chain = mean_transitions(states, segments, outputs.states) if transition is None else transition
    is_counted = np.isin(np.arange(outputs.states), counted)
    if isinstance(outputs, CountOutputs):
        if counted not in outputs.groups:
            return ()
        ticks = ticks if ticks < outputs.length else ticks // outputs.length * outputs.length
        scored_stretches = list(window_stretches(states, outputs, outputs.groups.index(counted), ticks, unknown_ticks))
    else:
        scored_stretches = list(stretches_anywhere(states, ticks, unknown_ticks))
    scored_stretches = [stretch for stretch in scored_stretches if segments[stretch.begin - 1] == segments[stretch.end]]
    scored_stretches = scored_stretches[:: max(1, len(scored_stretches) // MOST)]
    if not scored_stretches:
        return ()
    courses = [is_counted[states[stretch.first - 1 : stretch.first + ticks]] for stretch in scored_stretches]
    usual_count = float(np.median([course[1:].sum() for course in courses]))
    odds = Odds(chain, is_counted, ticks, usual_count, outputs)
    results: dict[str, list[tuple[bool, float, float]]] = {secret: [] for secret in SECRETS}
    for stretch, course in zip(scored_stretches, courses, strict=True):
        end_states = int(states[stretch.begin - 1]), int(states[stretch.end])
        prior_odds, posterior_odds = odds.prior_odds(stretch, *end_states), odds.posterior_odds(stretch, *end_states)
        for secret, is_true, prior, posterior in zip(
            SECRETS, secret_answers(course, usual_count), prior_odds, posterior_odds, strict=True
        ):
            if np.isfinite(prior):  # a certain answer is no secret
                results[secret].append((is_true, prior, posterior))
    return tuple(_judge_secret(secret, ticks, outcomes, epsilon) for secret, outcomes in results.items() if outcomes)


def secret_answers(course: Bools, usual_count: float) -> tuple[bool, bool, bool]:
    """The true answers about a stretch; `course` marks counted states, from the tick before the stretch on."""
    hits = course[1:]
    return (bool(hits.sum() > usual_count), bool(2 * hits.sum() >= hits.size), bool((hits & ~course[:-1]).any()))


def _judge_secret(secret: str, ticks: int, outcomes: list[tuple[bool, float, float]], epsilon: float) -> StretchAttack:
    truth, prior_odds, posterior_odds = (np.array(column) for column in zip(*outcomes, strict=True))
    is_right, is_guessed = (posterior_odds > 0) == truth, (prior_odds > 0) == truth
    low_gain, high_gain = mean_interval(is_right - is_guessed.astype(np.float64), 0.95)
    odds_change = posterior_odds - prior_odds
    guess, odds_factors = float(is_guessed.mean()), np.exp(np.minimum(np.abs(odds_change), _LARGEST_LOG))
    low, high = max(0.0, guess + low_gain), min(1.0, guess + high_gain)
    prior = expit(np.stack([-prior_odds, prior_odds], axis=1))
    ceiling = float(success_bound(prior, epsilon).mean())
    evidence = np.stack([-odds_change, odds_change], axis=1).clip(-_LARGEST_LOG, _LARGEST_LOG)
    bound = epsilon_bound(truth.astype(np.int64), prior, evidence, epsilon, 0.95)
    furthest, typical = float(odds_factors.max()), float(np.median(odds_factors))
    success = float(is_right.mean())
    return StretchAttack(secret, ticks, len(outcomes), success, low, high, guess, ceiling, bound, furthest, typical)


def stretches_anywhere(states: Ints, ticks: int, unknown_ticks: int) -> Iterator[_Span]:
    """Yield stretches in the middle of unknown ticks; stretches overlap if fewer than `FEWEST` would fit."""
    sums, margin = np.concatenate([[0], np.cumsum(states >= 0)]), max(0, unknown_ticks - ticks) // 2
    tick_stride = max(1, min(ticks, (states.size - ticks - 2 * margin) // FEWEST))
    for first in range(1 + margin, states.size - ticks - margin, tick_stride):
        begin, end = first - margin, first + ticks + margin
        if sums[end + 1] - sums[begin - 1] == end - begin + 2:
            yield _Span(first, begin, end, np.zeros(0, dtype=np.int64))


def window_stretches(states: Ints, outputs: CountOutputs, group: int, ticks: int, unknown: int) -> Iterator[_Span]:
    """Yield stretches in the middle of at least `unknown` ticks: consecutive windows without a missing tick."""
    length, sums = outputs.length, np.concatenate([[0], np.cumsum(states >= 0)])
    windows = max(1, ticks // length)
    margin = max(0, -(-(unknown - windows * length) // (2 * length)))
    for first_window in range(margin, outputs.first_ticks.size - windows - margin + 1):
        window_begins = outputs.first_ticks[first_window - margin : first_window + windows + margin]
        begin, end = int(window_begins[0]), int(window_begins[-1]) + length
        if end - begin != window_begins.size * length or begin < 1 or end >= states.size:
            continue
        if sums[end + 1] - sums[begin - 1] != end - begin + 2:
            continue
        counts = outputs.counts[first_window - margin : first_window + windows + margin, group]
        for offset in range(0, max(length - ticks, 0) + 1, max(ticks, length // PARTS)):
            yield _Span(int(outputs.first_ticks[first_window]) + offset, begin, end, counts)


class Odds:
    """The log-odds of the secrets of stretches of `ticks` ticks, before and after the outputs, by one chain (k, k).

    `is_counted` (k,) marks the states that the secrets are about; `usual_count` is their usual number of ticks.
    """

    def __init__(self, chain: Floats, is_counted: Bools, ticks: int, usual_count: float, outputs: Outputs) -> None:
        self._chain, self._is_counted, self._ticks, self._outputs = chain, is_counted, ticks, outputs
        counts = np.arange(ticks + 1)
        has_onset = np.zeros((2, ticks + 1), dtype=bool)
        has_onset[1] = True
        count_answers = [np.tile(is_yes, (2, 1)) for is_yes in (counts > usual_count, 2 * counts >= ticks)]
        self._is_yes = np.stack([*count_answers, has_onset])  # (secrets, onset, count)
        self._courses = cache(lambda length: self._course_weights(np.eye(len(chain)), np.ones((length, len(chain)))))
        self._priors: dict[tuple[int, ...], Floats] = {}

    def prior_odds(self, stretch: _Span, state_before: int, state_after: int) -> Floats:
        """The log-odds (secrets,) by the states outside the unknown ticks."""
        key = (stretch.first - stretch.begin, stretch.end - stretch.begin, state_before, state_after)
        if key not in self._priors:
            self._priors[key] = self._weigh_stretch(stretch, state_before, state_after, reads_outputs=False)
        return self._priors[key]

    def posterior_odds(self, stretch: _Span, state_before: int, state_after: int) -> Floats:
        """The log-odds (secrets,) by the states outside the unknown ticks and by the outputs."""
        return self._weigh_stretch(stretch, state_before, state_after, reads_outputs=True)

    def _weigh_stretch(self, stretch: _Span, state_before: int, state_after: int, *, reads_outputs: bool) -> Floats:
        forward, backward, outputs = np.eye(len(self._chain))[state_before], self._chain[:, state_after], self._outputs
        if isinstance(outputs, SymbolOutputs):
            weights = self._weigh_symbols(stretch, forward, backward, outputs, reads_outputs=reads_outputs)
        else:
            weights = self._weigh_counts(stretch, forward, backward, outputs, reads_outputs=reads_outputs)
        with np.errstate(divide="ignore"):
            return np.log(np.maximum(weights[:, 1], 0.0)) - np.log(np.maximum(weights[:, 0], 0.0))

    def _weigh_symbols(
        self, stretch: _Span, forward: Floats, backward: Floats, outputs: SymbolOutputs, *, reads_outputs: bool
    ) -> Floats:
        symbols = outputs.symbols[stretch.begin : stretch.end]
        likelihoods = np.where(reads_outputs & (symbols[:, None] >= 0), outputs.emission.T[np.maximum(symbols, 0)], 1.0)
        offset = stretch.first - stretch.begin
        for likelihood in likelihoods[:offset]:
            forward = (forward @ self._chain) * likelihood
            forward = forward / forward.sum()
        for likelihood in likelihoods[: offset + self._ticks - 1 : -1]:
            backward = self._chain @ (likelihood * backward)
            backward = backward / backward.max()
        weights = self._course_weights(forward[None], likelihoods[offset : offset + self._ticks])[0]
        return self._answer_weights(np.einsum("yoc,y->oc", weights, backward))  # from (to, onset, count)

    def _weigh_counts(
        self, stretch: _Span, forward: Floats, backward: Floats, outputs: CountOutputs, *, reads_outputs: bool
    ) -> Floats:
        """Weights of the answers by the counts of all windows: before the stretch, around or in it, and after it."""
        length, possible_counts = outputs.length, np.arange(outputs.length + 1)

        def likelihood(window: int) -> Floats:
            if not reads_outputs:
                return np.ones(length + 1)
            weights = -np.abs(stretch.counts[window] - possible_counts) / float(outputs.scale)
            return np.asarray(np.exp(weights - weights.max()))

        windows, (first, offset) = max(1, self._ticks // length), divmod(stretch.first - stretch.begin, length)
        for window in range(first):
            forward = np.einsum("x,xyoc,c->y", forward, self._courses(length), likelihood(window))
            forward = forward / forward.sum()
        for window in range(len(stretch.counts) - 1, first + windows - 1, -1):
            backward = np.einsum("xyoc,c,y->x", self._courses(length), likelihood(window), backward)
            backward = backward / backward.max()
        if self._ticks >= length:
            return self._weigh_windows(forward, backward, [likelihood(first + n) for n in range(windows)], length)
        return self._weigh_inside(forward, backward, likelihood(first), offset, length)

    def _weigh_windows(self, forward: Floats, backward: Floats, likelihoods: list[Floats], length: int) -> Floats:
        """Weights of the answers for a stretch of whole windows; the windows' counts add up."""
        k = len(self._chain)
        weights_so_far = np.zeros((k, 2, 1))
        weights_so_far[:, 0, 0] = forward
        for likelihood in likelihoods:
            courses = self._courses(length) * likelihood
            next_weights = np.zeros((k, 2, weights_so_far.shape[2] + length))
            for x, y, had_onset, has_onset in product(range(k), range(k), range(2), range(2)):
                sums = np.convolve(weights_so_far[x, had_onset], courses[x, y, has_onset])
                next_weights[y, max(had_onset, has_onset)] += sums
            weights_so_far = next_weights / next_weights.max()
        return self._answer_weights(np.einsum("yoc,y->oc", weights_so_far, backward))

    def _weigh_inside(self, forward: Floats, backward: Floats, likelihood: Floats, offset: int, length: int) -> Floats:
        """Weights of the answers for a stretch inside a window; the window also counts the ticks around the stretch."""
        from scipy.signal import fftconvolve  # takes a second to import

        weights_before = np.einsum("x,xyc->yc", forward, self._courses(offset).sum(axis=2))
        weights_after = np.einsum("xyc,y->xc", self._courses(length - offset - self._ticks).sum(axis=2), backward)
        courses = self._courses(self._ticks)
        weights_within = np.zeros(courses.shape[2:])
        for u, v in product(range(len(self._chain)), repeat=2):
            outer_weights = fftconvolve(weights_before[u], weights_after[v])
            weights_within += courses[u, v] * np.correlate(likelihood, np.maximum(outer_weights, 0.0), "valid")
        return self._answer_weights(weights_within)

    def _answer_weights(self, weights: Floats) -> Floats:
        """The weights (secrets, 2) of the answers no and yes, from weights (onset, count)."""
        yes_weights = np.where(self._is_yes, weights, 0.0).sum(axis=(1, 2))
        no_weights = np.where(self._is_yes, 0.0, weights).sum(axis=(1, 2))
        return np.stack([no_weights, yes_weights], axis=1)

    def _course_weights(self, start_weights: Floats, likelihoods: Floats) -> Floats:
        """Weights (a, k, 2, n + 1) of courses from starts (a, k), by whether a counted state began, and the count."""
        k, is_counted = len(self._chain), self._is_counted
        weights = np.zeros((len(start_weights), k, 2, len(likelihoods) + 1))
        weights[:, :, 0, 0] = start_weights
        is_onset = ~is_counted[:, None] & is_counted[None, :]
        other_steps, onset_steps = np.where(is_onset, 0.0, self._chain), np.where(is_onset, self._chain, 0.0)
        for likelihood in likelihoods:
            next_weights = np.einsum("axoc,xy->ayoc", weights, other_steps)
            next_weights[:, :, 1] += np.einsum("axoc,xy->ayc", weights, onset_steps)
            next_weights *= likelihood[None, :, None, None]
            weights = next_weights.copy()
            weights[:, is_counted, :, 1:] = next_weights[:, is_counted, :, :-1]
            weights[:, is_counted, :, 0] = 0.0
            weights /= weights.max()
        return weights
