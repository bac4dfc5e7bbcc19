"""Three sets of a recording, far apart: one to fit a class of chains, one to choose, one to hold back until the end.

Each is made of contiguous blocks. Where a recording allows it, the blocks of the three take turns, so that each set has
seen the whole of it, and leaves out the first ten baselines as well, until a running mean is no longer new.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from gateway.chain.arrays import Ints
from gateway.planning.errors import PlanningError

__all__ = ["BASELINES_APART", "Part", "ThreeSets", "apart_ticks", "three_sets"]

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
        PlanningError: too few ticks are left.
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
        raise PlanningError(
            f"{ticks} ticks are too few to plan from: three sets that lie {apart} ticks apart need {least} or more"
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
