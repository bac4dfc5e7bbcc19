"""A test of ticks without a reading: do they have to do with the states around them?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fugu.chains.arrays import Floats, Ints
from fugu.planning.question import Cut

__all__ = ["Gaps", "gaps_of"]

_FEWEST, _SIGNIFICANT, _DRAWS = 20, 0.05, 2000


class Gaps(NamedTuple):
    """Ticks without a reading between others: how many such gaps there are, and how the states beside them are.

    `before` and `after` are p-values: how often as many states, drawn like all states of the recording, differ from
    these by as much. Gaps that come in groups make them too small, never too large.
    """

    number: int
    before: float
    after: float

    @property
    def dependent(self) -> bool:
        """True if they have to do with the states before or after them; both tests together err once in 20."""
        return self.number >= _FEWEST and min(self.before, self.after) < _SIGNIFICANT / 2.0

    @property
    def independent(self) -> bool:
        """True if there are enough gaps to tell, and they look independent."""
        return self.number >= _FEWEST and not self.dependent


def gaps_of(cuts: Sequence[Cut], missing: int | None) -> Gaps | None:
    """The gaps of recordings, None without any; ticks of the state `missing`, or without a state, are in gaps."""
    seen, before, after = [], [], []
    for states, segments in cuts:
        stated = (states >= 0) & (states != (-1 if missing is None else missing))
        edges = np.diff(stated.astype(np.int8))
        begins, ends = np.flatnonzero(edges == -1), np.flatnonzero(edges == 1) + 1
        place = np.searchsorted(ends, begins, side="right")
        begins, ends = begins[place < len(ends)], ends[place[place < len(ends)]]
        inside = segments[begins] == segments[ends]
        seen.append(states[stated])
        before.append(states[begins[inside]])
        after.append(states[ends[inside]])
    number = sum(map(len, before))
    if not number:
        return None
    counts = np.bincount(np.concatenate(seen))
    shares, rng = counts / counts.sum(), np.random.default_rng(1)
    return Gaps(number, *(_p_value(np.concatenate(side), shares, rng) for side in (before, after)))


def _p_value(states: Ints, shares: Floats, rng: np.random.Generator) -> float:
    """How often as many independent draws are at least as far from their expectation, by Pearson's statistic."""
    expected = np.maximum(len(states) * shares, 1e-12)
    drawn = np.vstack([np.bincount(states, minlength=len(shares)), rng.multinomial(len(states), shares, _DRAWS)])
    far = ((drawn - expected) ** 2 / expected).sum(axis=1)
    return float((far[1:] >= far[0] * (1.0 - 1e-9)).sum() + 1) / (_DRAWS + 1)
