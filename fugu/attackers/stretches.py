"""Attackers of stretches: who knows all other days, and asks about a stretch of this one as a whole.

They believe one chain, know every true state outside the day around a stretch, and see all that is released. They ask
whether a state took more of the stretch than it usually does, at least half of it, or began in it. Their odds on such a
secret, before and after the outputs, are computed over all courses of that day (forward, over pairs of a state and a
count). If the chain is in the class, no output moves them by more than the promise for the stretch.
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

__all__ = ["FEWEST", "MOST_FOLLOWED", "PARTS", "Odds", "StretchAttack", "anywhere", "attack_stretches", "by_windows"]

SECRETS = ("more than usual", "at least half", "begins in it")
FEWEST, MOST = 200, 800
"""Stretches that are scored where the recording is long enough; those of symbols overlap where it is not."""
MOST_FOLLOWED = 3000
"""Ticks of a stretch, or of a window, whose courses are followed; it takes long beyond."""
PARTS = 8
"""At most so many stretches of a window are asked about."""
_LARGEST = 700.0


class StretchAttack(NamedTuple):
    """Result of attackers on stretches of so many ticks, about one secret.

    `success` is the share of stretches on which the likelier answer is true, `low` and `high` its 95 % interval, and
    `guess` the same without outputs. `ceiling` is the most that epsilon allows. Epsilon is at least `epsilon_low` at 95
    %. `furthest` is the largest factor by which outputs moved odds, `typical` a median.
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


class _Asked(NamedTuple):
    """A stretch, the ticks around it that are unknown, and what is released of these."""

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
    unknown: int,
    epsilon: float,
    transition: Floats | None = None,
) -> tuple[StretchAttack, ...]:
    """Attack stretches of outputs whose truth is known; one result for each of `SECRETS`.

    Of counts a stretch is a part of one window, or as many whole windows as fit into so many ticks.

    Args:
        states: (n,) true states, -1 where there is none: of no tick that is unknown, nor of the two beside them.
        segments: (n,) equal inside a stretch without gaps; nothing that is unknown goes beyond.
        outputs: symbols; or counts, of windows that count `counted` together (what is beside them is not read).
        counted: the states that the secrets are about.
        ticks: of a stretch, at least 1.
        unknown: how many ticks, those of the stretch and around it, are unknown.
        epsilon: what is promised about such a stretch, in nats.
        transition: (k, k) the chain that is believed; by default the recording's own mean chain.

    Returns nothing where no stretch can be scored, or no count is of `counted`.
    """
    chain = mean_transitions(states, segments, outputs.states) if transition is None else transition
    inside = np.isin(np.arange(outputs.states), counted)
    if isinstance(outputs, CountOutputs):
        if counted not in outputs.groups:
            return ()
        ticks = ticks if ticks < outputs.length else ticks // outputs.length * outputs.length
        scored_stretches = list(by_windows(states, outputs, outputs.groups.index(counted), ticks, unknown))
    else:
        scored_stretches = list(anywhere(states, ticks, unknown))
    scored_stretches = [stretch for stretch in scored_stretches if segments[stretch.begin - 1] == segments[stretch.end]]
    scored_stretches = scored_stretches[:: max(1, len(scored_stretches) // MOST)]
    if not scored_stretches:
        return ()
    own = [inside[states[stretch.first - 1 : stretch.first + ticks]] for stretch in scored_stretches]
    usual = float(np.median([course[1:].sum() for course in own]))
    odds = Odds(chain, inside, ticks, usual, outputs)
    trials: dict[str, list[tuple[bool, float, float]]] = {secret: [] for secret in SECRETS}
    for stretch, course in zip(scored_stretches, own, strict=True):
        ends = int(states[stretch.begin - 1]), int(states[stretch.end])
        before, after = odds.before(stretch, *ends), odds.after(stretch, *ends)
        for secret, true, prior, after_odds in zip(SECRETS, secrets_of(course, usual), before, after, strict=True):
            if np.isfinite(prior):  # what is certain from what is known is no secret
                trials[secret].append((true, prior, after_odds))
    return tuple(_judged(secret, ticks, outcomes, epsilon) for secret, outcomes in trials.items() if outcomes)


def secrets_of(course: Bools, usual: float) -> tuple[bool, bool, bool]:
    """Answers about a stretch, by whether its ticks are counted, the one before it first."""
    own = course[1:]
    return bool(own.sum() > usual), bool(2 * own.sum() >= own.size), bool((own & ~course[:-1]).any())


def _judged(secret: str, ticks: int, outcomes: list[tuple[bool, float, float]], epsilon: float) -> StretchAttack:
    truth, before, after = (np.array(column) for column in zip(*outcomes, strict=True))
    right, guessed = (after > 0) == truth, (before > 0) == truth
    lower, upper = mean_interval(right - guessed.astype(np.float64), 0.95)
    guess, odds_factors = float(guessed.mean()), np.exp(np.minimum(np.abs(after - before), _LARGEST))
    low, high = max(0.0, guess + lower), min(1.0, guess + upper)
    prior = expit(np.stack([-before, before], axis=1))
    ceiling = float(success_bound(prior, epsilon).mean())
    evidence = np.stack([before - after, after - before], axis=1).clip(-_LARGEST, _LARGEST)
    least = epsilon_bound(truth.astype(np.int64), prior, evidence, epsilon, 0.95)
    furthest, typical = float(odds_factors.max()), float(np.median(odds_factors))
    success = float(right.mean())
    return StretchAttack(secret, ticks, len(outcomes), success, low, high, guess, ceiling, least, furthest, typical)


def anywhere(states: Ints, ticks: int, unknown: int) -> Iterator[_Asked]:
    """Stretches in the middle of so many ticks, so many that about `FEWEST` fit in."""
    present, around = np.concatenate([[0], np.cumsum(states >= 0)]), max(0, unknown - ticks) // 2
    every = max(1, min(ticks, (states.size - ticks - 2 * around) // FEWEST))
    for first in range(1 + around, states.size - ticks - around, every):
        begin, end = first - around, first + ticks + around
        if present[end + 1] - present[begin - 1] == end - begin + 2:
            yield _Asked(first, begin, end, np.zeros(0, dtype=np.int64))


def by_windows(states: Ints, outputs: CountOutputs, group: int, ticks: int, unknown: int) -> Iterator[_Asked]:
    """Stretches in the middle of whole windows that follow one another without a missing tick."""
    length, present = outputs.length, np.concatenate([[0], np.cumsum(states >= 0)])
    windows_inside = max(1, ticks // length)
    around = max(0, -(-(unknown - windows_inside * length) // (2 * length)))
    for number in range(around, outputs.first.size - windows_inside - around + 1):
        begins = outputs.first[number - around : number + windows_inside + around]
        begin, end = int(begins[0]), int(begins[-1]) + length
        if end - begin != begins.size * length or begin < 1 or end >= states.size:
            continue
        if present[end + 1] - present[begin - 1] != end - begin + 2:
            continue
        counts = outputs.counts[number - around : number + windows_inside + around, group]
        for offset in range(0, max(length - ticks, 0) + 1, max(ticks, length // PARTS)):
            yield _Asked(int(outputs.first[number]) + offset, begin, end, counts)


class Odds:
    """Log-odds of the secrets of a stretch, before and after the outputs, by one chain."""

    def __init__(self, chain: Floats, inside: Bools, ticks: int, usual: float, outputs: Outputs) -> None:
        self._chain, self._inside, self._ticks, self._outputs = chain, inside, ticks, outputs
        numbers = np.arange(ticks + 1)
        onset = np.zeros((2, ticks + 1), dtype=bool)
        onset[1] = True
        shares = [np.tile(yes, (2, 1)) for yes in (numbers > usual, 2 * numbers >= ticks)]
        self._yes = np.stack([*shares, onset])  # (secrets, onset, count)
        self._moves = cache(self._counted)
        self._priors: dict[tuple[int, ...], Floats] = {}

    def before(self, stretch: _Asked, start: int, end: int) -> Floats:
        """The log-odds (secrets,) by what is known."""
        shape = (stretch.first - stretch.begin, stretch.end - stretch.begin, start, end)
        if shape not in self._priors:
            self._priors[shape] = self._weigh_stretch(stretch, start, end, read=False)
        return self._priors[shape]

    def after(self, stretch: _Asked, start: int, end: int) -> Floats:
        """The log-odds (secrets,) by the outputs as well."""
        return self._weigh_stretch(stretch, start, end, read=True)

    def _weigh_stretch(self, stretch: _Asked, start: int, end: int, *, read: bool) -> Floats:
        forward, backward, outputs = np.eye(len(self._chain))[start], self._chain[:, end], self._outputs
        if isinstance(outputs, SymbolOutputs):
            weights = self._by_symbols(stretch, forward, backward, outputs, read=read)
        else:
            weights = self._by_counts(stretch, forward, backward, outputs, read=read)
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(np.maximum(weights[:, 1], 0.0)) - np.log(np.maximum(weights[:, 0], 0.0)))

    def _by_symbols(
        self, stretch: _Asked, forward: Floats, backward: Floats, outputs: SymbolOutputs, *, read: bool
    ) -> Floats:
        symbols = outputs.symbols[stretch.begin : stretch.end]
        likelihoods = np.where(read & (symbols[:, None] >= 0), outputs.emission.T[np.maximum(symbols, 0)], 1.0)
        low = stretch.first - stretch.begin
        for likelihood in likelihoods[:low]:
            forward = (forward @ self._chain) * likelihood
            forward = forward / forward.sum()
        for likelihood in likelihoods[: low + self._ticks - 1 : -1]:
            backward = self._chain @ (likelihood * backward)
            backward = backward / backward.max()
        moves = self._through(forward[None], likelihoods[low : low + self._ticks])[0]  # (to, onset, count)
        return self._answer_weights(np.einsum("yoc,y->oc", moves, backward))

    def _by_counts(
        self, stretch: _Asked, forward: Floats, backward: Floats, outputs: CountOutputs, *, read: bool
    ) -> Floats:
        """Windows before the stretch, those that hold it, and those after it."""
        length, numbers = outputs.length, np.arange(outputs.length + 1)

        def likelihood(window: int) -> Floats:
            if not read:
                return np.ones(length + 1)
            weights = -np.abs(stretch.counts[window] - numbers) / float(outputs.scale)
            return np.asarray(np.exp(weights - weights.max()))

        low, windows_inside = (stretch.first - stretch.begin) // length, max(1, self._ticks // length)
        for window in range(low):
            forward = np.einsum("x,xyoc,c->y", forward, self._moves(length), likelihood(window))
            forward = forward / forward.sum()
        for window in range(len(stretch.counts) - 1, low + windows_inside - 1, -1):
            backward = np.einsum("xyoc,c,y->x", self._moves(length), likelihood(window), backward)
            backward = backward / backward.max()
        if self._ticks >= length:
            return self._weigh_windows(forward, backward, [likelihood(low + n) for n in range(windows_inside)], length)
        return self._part(forward, backward, likelihood(low), (stretch.first - stretch.begin) % length, length)

    def _weigh_windows(self, forward: Floats, backward: Floats, likelihoods: list[Floats], length: int) -> Floats:
        """A stretch of whole windows: the counts of each are weighed, and add up."""
        k = len(self._chain)
        weights_so_far = np.zeros((k, 2, 1))
        weights_so_far[:, 0, 0] = forward
        for weights in likelihoods:
            moves = self._moves(length) * weights
            grown = np.zeros((k, 2, weights_so_far.shape[2] + length))
            for x, y, before, after in product(range(k), range(k), range(2), range(2)):
                grown[y, max(before, after)] += np.convolve(weights_so_far[x, before], moves[x, y, after])
            weights_so_far = grown / grown.max()
        return self._answer_weights(np.einsum("yoc,y->oc", weights_so_far, backward))

    def _part(self, forward: Floats, backward: Floats, weights: Floats, offset: int, length: int) -> Floats:
        """A stretch inside a window, whose count is that of the stretch and of the ticks around it."""
        from scipy.signal import fftconvolve  # takes a second to import

        ahead = np.einsum("x,xyc->yc", forward, self._moves(offset).sum(axis=2))
        behind = np.einsum("xyc,y->xc", self._moves(length - offset - self._ticks).sum(axis=2), backward)
        own = self._moves(self._ticks)
        weights_within = np.zeros(own.shape[2:])
        for u, v in product(range(len(self._chain)), repeat=2):
            around = fftconvolve(ahead[u], behind[v])
            weights_within += own[u, v] * np.correlate(weights, np.maximum(around, 0.0), "valid")
        return self._answer_weights(weights_within)

    def _answer_weights(self, weights: Floats) -> Floats:
        """(secrets, 2): what no and yes weigh, of weights (onset, count)."""
        yes = np.where(self._yes, weights, 0.0).sum(axis=(1, 2))
        no = np.where(self._yes, 0.0, weights).sum(axis=(1, 2))
        return np.stack([no, yes], axis=1)

    def _counted(self, length: int) -> Floats:
        return self._through(np.eye(len(self._chain)), np.ones((length, len(self._chain))))

    def _through(self, start: Floats, likelihoods: Floats) -> Floats:
        """Weights (a, k, 2, n + 1) of courses from starts (a, k), by whether a counted state began, and the count."""
        k, inside = len(self._chain), self._inside
        moves = np.zeros((len(start), k, 2, len(likelihoods) + 1))
        moves[:, :, 0, 0] = start
        begins = ~inside[:, None] & inside[None, :]
        stays, enters = np.where(begins, 0.0, self._chain), np.where(begins, self._chain, 0.0)
        for likelihood in likelihoods:
            moved_on = np.einsum("axoc,xy->ayoc", moves, stays)
            moved_on[:, :, 1] += np.einsum("axoc,xy->ayc", moves, enters)
            moved_on *= likelihood[None, :, None, None]
            moves = moved_on.copy()
            moves[:, inside, :, 1:] = moved_on[:, inside, :, :-1]
            moves[:, inside, :, 0] = 0.0
            moves /= moves.max()
        return moves
