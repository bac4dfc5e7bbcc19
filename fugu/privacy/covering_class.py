"""The class of chains that covers a recording: every stretch of it, at every length, and not only its average.

Where no stretch scatters more than one chain would (`local_transitions`), and the state before the last tells nothing,
the class is that chain within its intervals. Else probabilities change over time, and a class of changing chains is
declared, by the largest odds ratio of a step: that of all but a small share of the stretches of each length, and of
every regime that lasts as long as they do. The odds ratio of a stretch takes its probabilities together, each at the
low end of its range; intervals of each alone would join the lowest of one hour with the lowest of another. Against
chains that change every adversary gets the bound of the universal one, which needs nothing but the odds ratio.

Constants are rounded outward to two digits: a class is published, and more digits would tell of its recording.

Regimes of fewer ticks than the shortest stretch are not covered: what they are worth to an attacker is measured.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Decimal, localcontext
from typing import NamedTuple

import numpy as np
from scipy import special

from fugu.chains.arrays import Floats, Ints
from fugu.contract.chains import BinaryChains, BoundedChains, odds_ratio
from fugu.privacy import model_fit
from fugu.privacy.chain_model import ModelError
from fugu.privacy.local_transitions import (
    TAIL,
    LocalTransitions,
    Regime,
    constant_probability,
    fit_regimes,
    largest_log_odds,
    local_transitions,
)

__all__ = [
    "SHORTEST",
    "Covered",
    "CoveringChains",
    "Length",
    "bounded_class",
    "class_odds",
    "covering_class",
    "stretch_lengths",
    "union",
    "widened",
]

SHORTEST = 500
"""Ticks of the shortest stretches, where a recording has enough of them."""
_FEWEST = 8
_LEAST_ROWS = 400
_LEAST_LEFT = 10
_SIGNIFICANT = 1e-4
_OUTWARD = 1.0 + 1e-9
_MOST_ODDS = 1e280

CoveringChains = BinaryChains | BoundedChains


class Length(NamedTuple):
    """What the stretches of one length need.

    Attributes:
        odds_ratio: the largest of a step, of all stretches but a share.
        changes: whether some probability changes over them.
    """

    transitions: LocalTransitions
    odds_ratio: float
    changes: bool


class Covered(NamedTuple):
    """A class that covers a recording, and what made it so wide.

    Attributes:
        transition: (k, k) the chain of the whole recording; steps that were never seen count as half a one.
        low, high: (k, k) the least and largest probability of any stretch that is covered.
        lengths: what the stretches of each length need.
        regimes: the regimes that the recording switches between; a single one if there are no others.
        order: test of whether the state before the last tells something.
    """

    chains: CoveringChains
    transition: Floats
    low: Floats
    high: Floats
    lengths: tuple[Length, ...]
    regimes: tuple[Regime, ...]
    order: model_fit.GTest

    @property
    def changes(self) -> bool:
        """Whether probabilities change over time, so that no chain of constant probabilities is declared."""
        return any(length.changes for length in self.lengths) or self.order.p_value < _SIGNIFICANT

    def share(self, *lengths: Length) -> float:
        """Of the stretches of some length, the share that the class covers; all if there is one chain.

        Args:
            lengths: the worst of these counts; by default of all.
        """
        if not self.chains.changes:
            return 1.0
        limit = math.log(self.chains.odds_bound)
        return min(float(np.mean(length.transitions.log_odds <= limit)) for length in lengths or self.lengths)


def covering_class(states: Ints, segments: Ints, k: int, *, share: float = 0.02) -> Covered:
    """Find the class of chains that covers a recording.

    Args:
        states: (n,) states in 0..k-1, -1 where there is none.
        segments: (n,) equal inside a stretch without gaps.
        share: of the stretches of a length whose odds ratio may be larger.

    Raises:
        ModelError: the recording is too short to tell, or a state never occurs.
    """
    states, segments = _without_gaps(states, segments)
    counts = model_fit.count_transitions(states, segments, k)
    _refuse_short(counts)
    regimes = fit_regimes(states, segments, k)
    lengths = tuple(
        _length(transitions, share)
        for transitions in local_transitions(states, segments, k, stretch_lengths(states.size))
    )
    transition = smoothed(counts)
    order = model_fit.order_test(model_fit.count_triples(states, segments, k))
    low = np.min([_quantile(length.transitions.low, share) for length in lengths], axis=0)
    high = np.max([_quantile(length.transitions.high, 1.0 - share) for length in lengths], axis=0)
    constant = _constant(counts) if k == 2 else _bounded(class_odds(low, high), transition)
    found = Covered(constant, transition, low, high, lengths, regimes, order)
    if k == 2 and not found.changes:
        return found
    slow = [regime for regime in regimes if regime.ticks >= lengths[0].transitions.length / 2 and regime.share >= share]
    visited = counts.sum(axis=1)
    odds = [class_odds(_floored(regime, visited)) for regime in slow]
    return found._replace(chains=_bounded(max(odds + [length.odds_ratio for length in lengths]), transition))


def _without_gaps(states: Ints, segments: Ints) -> tuple[Ints, Ints]:
    """Ticks that have a state; each that has none ends a stretch. Where stretches are cut depends on nothing else."""
    seen = states >= 0
    begins = (np.diff(segments, prepend=segments[:1]) != 0).astype(np.int64) + ~seen
    return states[seen], np.cumsum(begins)[seen]


def smoothed(counts: Ints) -> Floats:
    """The chain of transition counts; a step that was never seen counts as half a one."""
    seen = np.maximum(counts, 0.5)
    return np.asarray(seen / seen.sum(axis=1, keepdims=True), dtype=np.float64)


def widened(chains: CoveringChains, factor: float) -> BoundedChains:
    """A class whose windows need about so many times the noise: noise grows with the root of the odds ratio.

    Args:
        factor: at least 1.
    """
    return _bounded(chains.odds_bound * factor * factor, np.array(chains.typical[0]))


def union(classes: Sequence[CoveringChains]) -> CoveringChains:
    """The least class, intervals or odds ratio, that has all chains of several."""
    if all(one.boxes for one in classes):
        sides = zip(*(box for one in classes for box in one.boxes), strict=True)
        q, r = ((float(min(low for low, _ in side)), float(max(high for _, high in side))) for side in sides)
        return BinaryChains(q=q, r=r)
    return max((widened(one, 1.0) for one in classes), key=lambda one: one.odds_bound)


def class_odds(low: Floats, high: Floats | None = None) -> float:
    """Bound P[x,y] P[w,z] / (P[x,z] P[w,y]) over all matrices between two.

    Args:
        low, high: (k, k), inside (0, 1]; the same matrix if there is one only.
    """
    return _odds(largest_log_odds(low, low if high is None else high))


def _odds(logarithm: float) -> float:
    """An odds ratio that a class can hold, rounded up."""
    return min(math.exp(min(logarithm, 700.0)) * _OUTWARD, _MOST_ODDS)


def _refuse_short(counts: Ints) -> None:
    steps, left = int(counts.sum()), counts.sum(axis=1) - np.diag(counts)
    if steps < _LEAST_ROWS or left.min() < _LEAST_LEFT:
        state = int(left.argmin())
        times = "once" if left[state] == 1 else f"{left[state]} times"
        seen = f"state {state} is left {times} in {steps} steps"
        raise ModelError(
            f"too short to tell how readings depend on one another: {seen}; at least {_LEAST_LEFT} times and "
            f"{_LEAST_ROWS} steps are needed"
        )


def stretch_lengths(rows: int) -> list[int]:
    """Ticks of stretches, each length twice the last, while so many rows have some of them."""
    length = min(SHORTEST, rows // _FEWEST)
    return [length << i for i in range(64) if (length << i) * _FEWEST <= rows]


def _length(transitions: LocalTransitions, share: float) -> Length:
    covered = np.sort(transitions.log_odds)[math.ceil(transitions.log_odds.size * (1.0 - share)) - 1]
    return Length(transitions, _odds(float(covered)), bool(transitions.changes.any()))


def _quantile(transitions: Floats, share: float) -> Floats:
    """The probability (k, k) that a share of the stretches is below, never further inside than one of theirs."""
    return np.quantile(transitions, share, axis=0, method="lower" if share < 0.5 else "higher")


def _floored(regime: Regime, visited: Ints) -> Floats:
    """The chain of a regime; a step is never rarer than half a time in the visits of one stay, as in a stretch."""
    least = 0.5 / (np.minimum(visited * min(regime.share, 1.0), regime.ticks) + 1.0)
    chain = np.maximum(regime.transition, least[:, None])
    return np.asarray(chain / chain.sum(axis=1, keepdims=True))


def _constant(counts: Ints) -> BinaryChains:
    """One chain within intervals of both probabilities, so long that the odds ratio, which they make, holds with 90 %.

    Errors of the two probabilities are independent, and the logarithm of the odds ratio is the sum of their log-odds.
    """
    seen, of = counts[[0, 1], [1, 0]], counts.sum(axis=1)
    share = (seen + 0.5) / (of + 1.0)
    deviations = 1.0 / np.sqrt(of * share * (1.0 - share))
    tail = float(special.ndtr(special.ndtri(TAIL) * np.hypot(*deviations) / deviations.sum()))
    q, r = (constant_probability(int(n), int(m), tail) for n, m in zip(seen, of, strict=True))
    return BinaryChains(q=_outward(*q), r=_outward(*r))


def bounded_class(logarithm: float, transition: Floats) -> BoundedChains:
    """The class of chains that change over time, by the logarithm of the largest odds ratio of a step, rounded up.

    Args:
        logarithm: if it is smaller than that of the typical member, that one's counts.
        transition: (k, k), a typical member.
    """
    return _bounded(_odds(logarithm), transition)


def _bounded(odds: float, transition: Floats) -> BoundedChains:
    rows = tuple(_short_row(row.tolist()) for row in transition)
    odds = float(_two_digits(max(min(odds, _MOST_ODDS), odds_ratio(rows)), ROUND_CEILING))
    return BoundedChains(states=len(rows), odds_ratio=odds, transition=rows)


def _outward(low: float, high: float) -> tuple[float, float]:
    """An interval of two digits around one inside (0, 1); near 1 the distance to it has two."""
    if high <= 0.5:
        return float(_two_digits(low, ROUND_FLOOR)), float(_two_digits(high, ROUND_CEILING))
    return float(_two_digits(low, ROUND_FLOOR)), float(1 - _two_digits(1.0 - high, ROUND_FLOOR))


def _short_row(row: list[float]) -> tuple[float, ...]:
    """A row of two-digit probabilities; the largest is what the others leave."""
    short = [_two_digits(p, ROUND_HALF_EVEN) for p in row]
    at = row.index(max(row))
    short[at] += 1 - sum(short)
    return tuple(map(float, short))


def _two_digits(value: float, rounding: str) -> Decimal:
    with localcontext(prec=800):
        exact = Decimal(value)
        return exact.quantize(Decimal((0, (1,), exact.adjusted() - 1)), rounding=rounding) if value else exact
