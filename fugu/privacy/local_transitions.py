"""Local transition probabilities: how often states follow one another in each stretch, without the sampling error.

A recording is cut into stretches of one length. Even if one chain made all of it, the shares that are counted in
stretches scatter. So a row of the chain is tested first: its visits are cut into blocks of one size, in which a chain
of constant probabilities makes binomial counts, however long its states last. Where the blocks scatter no more than
those, all stretches get the probability of the whole recording, with its Clopper-Pearson interval. Where they scatter
more, the distribution of the probabilities over stretches is estimated (the mixing distribution of largest likelihood),
and each stretch gets the range that this distribution and its own counts leave, but for a tenth at each end.

A stretch in which something never happened does not tell how rare that is, only that it is about as rare as once in
the whole stretch, or rarer; no estimate can do better, and 0 would make every guarantee infinite. Such a probability is
taken to be no less than half an occurrence, 1 / (2n + 2) for n visits (the mean under Jeffreys' prior). What lasts
longer than a stretch is seen in longer ones, so they are needed as well: two thousand equal states are 1 / 4002, not
1 / 1002. A probability that a stretch says nothing about, because a state is not visited there, may be nearly the
lowest of any stretch.

Source: Laird, "Nonparametric maximum likelihood estimation of a mixing distribution" (1978); Clopper, Pearson (1934).

Slow regimes are a chain whose probabilities switch now and then between a few sets. The hidden state is a regime and a
state, and the state is seen, so that the kernel which learns a chain from symbols learns this as well. The number of
regimes is that of the largest likelihood after Schwarz's penalty.

Source: Goldfeld and Quandt, "A Markov model for switching regressions" (1973); Schwarz (1978).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy import special

from fugu.chains import baum_welch, stationary_distribution
from fugu.chains.arrays import Bools, Floats, Ints
from fugu.privacy.model_fit import clopper_pearson

__all__ = [
    "TAIL",
    "LocalTransitions",
    "Regime",
    "constant_probability",
    "fit_regimes",
    "largest_log_odds",
    "local_transitions",
]

_SIGNIFICANT = 1e-3
_LEAST_EXPECTED = 1.0  # of a block: below, the chi-square distribution is none
_GRID = 81
_ROUNDS = 300
_NEVER = 1e-12
TAIL = 0.1
"""What may be below the range of a probability, and above."""


class LocalTransitions(NamedTuple):
    """Probabilities in the stretches of one length.

    Attributes:
        length: ticks of a stretch; a rest of less than half of one belongs to the last.
        counts: (s, k, k) steps from state x to y in each stretch.
        low, high: (s, k, k) the range of each probability, inside (0, 1).
        log_odds: (s,) the largest of the logarithms of the odds ratios of a step, at the far end of its range.
        dispersion: (k, k) variance between blocks of visits, over that of binomial counts: 1 for a constant
            probability.
        p_value: (k, k) how likely a constant probability scatters that much; 1 where too little was seen.
        changes: (k, k) whether that is too unlikely.
    """

    length: int
    counts: Ints
    low: Floats
    high: Floats
    log_odds: Floats
    dispersion: Floats
    p_value: Floats
    changes: Bools


def local_transitions(states: Ints, segments: Ints, k: int, stretches: Sequence[int]) -> tuple[LocalTransitions, ...]:
    """Estimate the probabilities in stretches of several lengths.

    Args:
        states: (n,) states in 0..k-1, -1 where there is none.
        segments: (n,) equal inside a stretch without gaps; stretches go on across gaps, steps do not.
        stretches: lengths in ticks, each at most n.

    Returns:
        One for each length.
    """
    rows = np.flatnonzero((segments[1:] == segments[:-1]) & (states[1:] >= 0) & (states[:-1] >= 0))
    here, there = states[rows], states[rows + 1]
    return tuple(_of_length(rows, here, there, k, length, states.size) for length in stretches)


def _of_length(rows: Ints, here: Ints, there: Ints, k: int, length: int, n: int) -> LocalTransitions:
    number = max(1, (n + length // 2) // length)
    cells = (np.minimum(rows // length, number - 1) * k + here) * k + there
    counts = np.bincount(cells, minlength=number * k * k).reshape(number, k, k).astype(np.int64)
    dispersion, p_value = np.ones((k, k)), np.ones((k, k))
    for x in range(k):
        dispersion[x], p_value[x] = _scatter(there[here == x], k, number)
    changes = p_value < _SIGNIFICANT / max(1, int((p_value < 1.0).sum()))
    low, high = np.empty(counts.shape), np.empty(counts.shape)
    for x in range(k):
        for y in range(k):
            if k > 2 or x != y:
                low[:, x, y], high[:, x, y] = _range(counts[:, x], y, changes=bool(changes[x, y]))
        if k == 2:  # staying is not leaving
            low[:, x, x], high[:, x, x] = 1.0 - high[:, x, 1 - x], 1.0 - low[:, x, 1 - x]
    log_odds = np.array([largest_log_odds(*pair) for pair in zip(low, high, strict=True)])
    return LocalTransitions(length, counts, low, high, log_odds, dispersion, p_value, changes)


def largest_log_odds(low: Floats, high: Floats) -> float:
    """Bound log( P[x,y] P[w,z] / (P[x,z] P[w,y]) ) over all matrices between two.

    Args:
        low, high: (k, k), inside (0, 1].
    """
    least, most = np.log(low), np.log(high)
    above = most[:, None, :] - least[None, :, :]
    order = np.argsort(above, axis=2)
    best, second = (np.take_along_axis(above, order[:, :, -i, None], axis=2)[:, :, 0] for i in (1, 2))
    first = order[:, :, -1]  # no two entries of an odds ratio are in one column
    pairs = np.where(first == first.T, np.maximum(best + second.T, second + best.T), best + best.T)
    np.fill_diagonal(pairs, 0.0)
    return float(pairs.max())


def _range(row: Ints, y: int, *, changes: bool) -> tuple[Floats | float, Floats | float]:
    """The range of a probability in each stretch: posterior quantiles under all stretches' mixing distribution."""
    seen, of = row[:, y], row.sum(axis=1)
    if not changes:
        return constant_probability(int(seen.sum()), int(of.sum()))
    middle = special.logit((seen + 0.5) / (of + 1.0))[of > 0]
    grid = np.linspace(middle.min(), middle.max(), _GRID)
    logs = seen[:, None] * special.log_expit(grid) + (of - seen)[:, None] * special.log_expit(-grid)
    likelihood = np.exp(logs - logs.max(axis=1, keepdims=True))
    weights = np.full(grid.size, 1.0 / grid.size)
    visited = likelihood[of > 0]
    for _ in range(_ROUNDS):  # expectation maximisation, from the uniform distribution
        weights *= (visited / (visited @ weights)[:, None]).mean(axis=0)
    sums = np.cumsum(likelihood * weights, axis=1)
    sums /= sums[:, -1:]
    probabilities = special.expit(grid)
    low, high = (probabilities[np.minimum((sums < level).sum(axis=1), _GRID - 1)] for level in (TAIL, 1.0 - TAIL))
    return low, high


def _scatter(followers: Ints, k: int, number: int) -> tuple[Floats, Floats]:
    """Pearson's statistic over its degrees of freedom for blocks of visits, by next state, and its p-value."""
    size = followers.size // number
    dispersion, p_value = np.ones(k), np.ones(k)
    if size < 2 or number < 2:
        return dispersion, p_value
    blocks = followers[: size * number].reshape(number, size)
    for y in range(k):
        seen = (blocks == y).sum(axis=1)
        probability = float(seen.mean()) / size
        if min(probability, 1.0 - probability) * size >= _LEAST_EXPECTED:
            statistic = float(((seen - size * probability) ** 2).sum()) / (size * probability * (1.0 - probability))
            dispersion[y] = statistic / (number - 1)
            p_value[y] = special.chdtrc(number - 1, statistic)
    return dispersion, p_value


def constant_probability(seen: int, of: int, tail: float = TAIL) -> tuple[float, float]:
    """The interval of a constant probability. Each end holds with 90 %, and an odds ratio, made of several, with more.

    What was never seen may be as rare as what was seen once, and what always happened fails as rarely.

    Args:
        tail: the probability that an end does not hold.
    """
    if not of:
        return _NEVER, 1.0 - _NEVER
    confidence = 1.0 - 2.0 * tail
    low = clopper_pearson(max(seen, 1), of, confidence).low
    return max(low, _NEVER), min(clopper_pearson(min(seen, of - 1), of, confidence).high, 1.0 - _NEVER)


_MOST = 3
_FIT_ROUNDS = 60
_FIT_TOLERANCE = 1e-6
_SPREAD = 0.5
_STAY = 0.995
_MOST_TICKS = 100_000
_MOST_STATES = 8


class Regime(NamedTuple):
    """One of the regimes of a recording.

    Attributes:
        share: of the time.
        ticks: its mean length.
        transition: (k, k) the chain that it follows.
    """

    share: float
    ticks: float
    transition: Floats


def fit_regimes(states: Ints, segments: Ints, k: int) -> tuple[Regime, ...]:
    """Fit one, two or three regimes to a recording.

    Args:
        states: (n,) states in 0..k-1, -1 where there is none.
        segments: (n,) equal inside a stretch without gaps.
        k: number of states; above 8, there is one regime.

    Returns:
        The regimes, the one of most time first; a single one if more are not needed.
    """
    states, segments = states[:_MOST_TICKS], segments[:_MOST_TICKS]
    lengths = np.diff(np.flatnonzero(np.concatenate([[True], np.diff(segments) != 0, [True]])))
    base = _chain(states, segments, k)
    fits = []
    for count in range(1, _MOST + 1 if k <= _MOST_STATES else 2):
        learned = baum_welch(
            states,
            np.tile(np.eye(k), (count, 1)),
            lengths=lengths,
            transition=_start(base, count),
            iterations=_FIT_ROUNDS,
            tolerance=_FIT_TOLERANCE,
        )
        free = count * (count - 1) + count * k * (k - 1)
        fits.append((learned.log_likelihoods[-1] - free / 2.0 * math.log(states.size), learned.transition))
        if len(fits) > 1 and fits[-1][0] <= fits[-2][0]:
            break
    _, transition = max(fits, key=lambda each: each[0])
    return _regimes(transition, k)


def _chain(states: Ints, segments: Ints, k: int) -> Floats:
    inside = (segments[1:] == segments[:-1]) & (states[1:] >= 0) & (states[:-1] >= 0)
    counts = np.bincount((states[:-1] * k + states[1:])[inside], minlength=k * k).reshape(k, k) + 1.0 / k
    return np.asarray(counts / counts.sum(axis=1, keepdims=True))


def _start(base: Floats, count: int) -> Floats:
    """Regimes from slow to fast: the chain of the whole recording, with its moves made rarer or more frequent."""
    speeds = np.exp(_SPREAD * (2.0 * np.arange(count) - (count - 1)))
    switch = (1.0 - _STAY) / max(count - 1, 1) * np.ones((count, count))
    np.fill_diagonal(switch, _STAY if count > 1 else 1.0)
    blocks = []
    for speed in speeds:
        moves = base * (1.0 - np.eye(len(base))) * speed
        moves /= np.maximum(1.0, moves.sum(axis=1, keepdims=True) / 0.95)
        blocks.append(moves + np.diag(1.0 - moves.sum(axis=1)))
    return np.block([[switch[i, j] * block for j, block in enumerate(blocks)] for i in range(count)])


def _regimes(transition: Floats, k: int) -> tuple[Regime, ...]:
    count = len(transition) // k
    distribution = stationary_distribution(transition).reshape(count, k)
    blocks = transition.reshape(count, k, count, k)
    found = []
    for i in range(count):
        inside = blocks[i, :, i, :]
        stays = inside.sum(axis=1)
        share = float(distribution[i].sum())
        leaving = float(distribution[i] @ (1.0 - stays))
        ticks = share / leaving if leaving > 0.0 else math.inf
        found.append(Regime(share, ticks, inside / np.maximum(stays, 1e-300)[:, None]))
    return tuple(sorted(found, key=lambda regime: -regime.share))
