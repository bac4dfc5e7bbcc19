"""Three sets of a recording, far apart: one for attackers to learn from, one to choose, one to hold back until the end.

Each is made of contiguous blocks. Where a recording allows it, the blocks of the three take turns, so that each set has
seen the whole of it, and leaves out the first ten baselines as well, until a running mean is no longer new.
Their states are taken at the period of the readings, or at a longer one.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fugu.chains.arrays import Ints
from fugu.contract.discretisers import Baseline, Discretiser
from fugu.planning.errors import TooShortError
from fugu.planning.question import ChosenStates
from fugu.planning.readings import Readings
from fugu.planning.recording import states_of

__all__ = ["BASELINES_APART", "Cut", "Part", "Sampled", "ThreeSets", "apart_ticks", "sampled", "three_sets"]

BASELINES_APART = 10
"""How many baselines lie between the blocks of two sets: of what a running mean knows of the one, e^-10 is left."""
_LEAST_APART = 300
_SHARES = (0.5, 0.15, 0.35)
_MOST_TURNS = 5
_MOST_LOST = 0.4
_LONG_BLOCK = 1_500
"""Blocks take turns only where the shortest ones are at least that long: long windows need room as well."""
_LEAST_TICKS = 300


class Part(NamedTuple):
    """A set of ticks.

    Attributes:
        rows: (m,) their indices, increasing.
        segments: (m,) numbers, equal inside a stretch without gaps.
    """

    rows: Ints
    segments: Ints


class ThreeSets(NamedTuple):
    """The sets of a recording, and how many ticks lie between any two blocks."""

    fit: Part
    choose: Part
    test: Part
    apart: int


def apart_ticks(baseline_ticks: int) -> int:
    """How many ticks must lie between two sets: ten baselines, and 300 for states that look back at nothing."""
    return max(BASELINES_APART * baseline_ticks, _LEAST_APART)


def three_sets(segments: Ints, baseline_ticks: int) -> ThreeSets:
    """Cut a recording into blocks that take turns.

    Args:
        segments: (n,) numbers, equal inside a stretch without gaps.
        baseline_ticks: how far back a state looks.

    Raises:
        TooShortError: too few ticks are left.
    """
    ticks, apart = len(segments), apart_ticks(baseline_ticks)
    new = apart if baseline_ticks and 3 * apart <= _MOST_LOST * ticks else 0

    def left(turns: int) -> int:
        return ticks - new - (3 * turns - 1) * apart

    turns = 1
    while (
        turns < _MOST_TURNS
        and left(turns + 1) >= (1.0 - _MOST_LOST) * ticks
        and left(turns + 1) * min(_SHARES) >= _LONG_BLOCK * (turns + 1)
    ):
        turns += 1
    usable = left(turns)
    if usable * min(_SHARES) < _LEAST_TICKS:
        least = 2 * apart + round(_LEAST_TICKS / min(_SHARES))
        raise TooShortError(
            f"{ticks} ticks are too few to plan from: three sets that lie {apart} ticks apart need {least} or more",
            baseline_ticks,
        )
    blocks: list[list[Ints]] = [[], [], []]
    begin = new
    for _ in range(turns):
        for place, share in enumerate(_SHARES):
            end = begin + int(usable / turns * share)
            blocks[place].append(np.arange(begin, end, dtype=np.int64))
            begin = end + apart
    fit, choose, test = (_part(some, segments) for some in blocks)
    return ThreeSets(fit, choose, test, apart)


def _part(blocks: list[Ints], segments: Ints) -> Part:
    """Blocks one after another; no stretch goes from one into the next."""
    rows = np.concatenate(blocks)
    new = np.concatenate([[False], (np.diff(rows) != 1) | (np.diff(segments[rows]) != 0)])
    return Part(rows, np.cumsum(new).astype(np.int64))


class Cut(NamedTuple):
    """The states (m,) of a set, -1 where there is none, and its segments (m,), equal inside a stretch without gaps."""

    states: Ints
    segments: Ints


class Sampled(NamedTuple):
    """A recording in three sets of states.

    Attributes:
        every: one reading every so many ticks.
        discretiser: what makes states of these.
        whole: all of them, for each donor, whom the class of chains covers.
    """

    every: int
    discretiser: Discretiser
    whole: tuple[Cut, ...]
    fit: Cut
    choose: Cut
    test: Cut


def one_in(segments: Ints, every: int) -> NDArray[np.bool_]:
    """(n,) whether a tick is taken: the first of every stretch without gaps, and every so many ticks from there on."""
    begins = np.flatnonzero(np.diff(segments, prepend=segments[0] - 1) != 0)
    within = np.arange(len(segments)) - np.repeat(begins, np.diff(np.append(begins, len(segments))))
    return np.asarray(within % every == 0)


def states_of_some(discretiser: Discretiser, readings: Readings, selected: NDArray[np.bool_]) -> Ints:
    """The states of the ticks that are taken, as if there were no others."""
    rows, values = np.flatnonzero(selected), readings.values
    some = [values[row] for row in rows.tolist()] if isinstance(values, list) else values[rows]
    return states_of(discretiser, some, readings.segments[rows])


def sampled(readings: Readings, chosen: ChosenStates, sets: ThreeSets, every: int = 1) -> Sampled:
    """The states of one reading every so many ticks; a running mean looks back as long in time.

    Args:
        readings: of the whole recording, so that a running mean is never new at the beginning of a block.
        every: D >= 1.
    """
    discretiser = chosen.discretiser
    if isinstance(discretiser, Baseline) and every > 1:
        discretiser = discretiser.model_copy(update={"baseline_ticks": max(1, round(chosen.baseline_ticks / every))})
    selected = one_in(readings.segments, every)
    states = np.full(len(readings.segments), -1, dtype=np.int64)
    states[selected] = states_of_some(discretiser, readings, selected)

    def cut(part: Part) -> Cut:
        inside = selected[part.rows]
        return Cut(states[part.rows[inside]], part.segments[inside])

    ends = (*readings.starts[1:], len(states))
    parts = [np.flatnonzero(selected[first:end]) + first for first, end in zip(readings.starts, ends, strict=True)]
    whole = tuple(Cut(states[part], readings.segments[part]) for part in parts)
    return Sampled(every, discretiser, whole, cut(sets.fit), cut(sets.choose), cut(sets.test))
