"""The states of a recording's three sets, at the period of the readings or at a longer one."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from contract.discretisers import Baseline, Discretiser
from gateway.chain.arrays import Ints
from gateway.planning.held_back import Part, ThreeSets
from gateway.planning.question import ChosenStates
from gateway.planning.readings import Readings
from gateway.planning.states import states_of

__all__ = ["Cut", "Sampled", "sampled"]


class Cut(NamedTuple):
    """The states (m,) of a set, -1 where there is none, and its segments (m,), equal inside a stretch without gaps."""

    states: Ints
    segments: Ints


class Sampled(NamedTuple):
    """A recording in three sets of states.

    Attributes:
        every: one reading every so many ticks.
        discretiser: what makes states of these.
        fit, choose, test: the sets.
    """

    every: int
    discretiser: Discretiser
    fit: Cut
    choose: Cut
    test: Cut


def sampled(readings: Readings, chosen: ChosenStates, sets: ThreeSets, every: int = 1) -> Sampled:
    """The states of one reading every so many ticks; a running mean looks back as long in time.

    Args:
        readings: of the whole recording, so that a running mean is never new at the beginning of a block.
        chosen: how readings become states.
        sets: of ticks.
        every: D >= 1.
    """
    discretiser = chosen.discretiser
    if isinstance(discretiser, Baseline) and every > 1:
        ticks = max(1, round(chosen.baseline_ticks / every))
        discretiser = discretiser.model_copy(update={"baseline_ticks": ticks})
    segments = readings.segments
    begins = np.flatnonzero(np.diff(segments, prepend=segments[0] - 1) != 0)
    within = np.arange(len(segments)) - np.repeat(begins, np.diff(np.append(begins, len(segments))))
    taken = np.flatnonzero(within % every == 0)
    values = readings.values
    some = [values[row] for row in taken.tolist()] if isinstance(values, list) else values[taken]
    states = np.full(len(segments), -1, dtype=np.int64)
    states[taken] = states_of(discretiser, some, segments[taken])
    kept = within % every == 0

    def cut(part: Part) -> Cut:
        inside = kept[part.rows]
        return Cut(states[part.rows[inside]], part.segments[inside])

    return Sampled(every, discretiser, cut(sets.fit), cut(sets.choose), cut(sets.test))
