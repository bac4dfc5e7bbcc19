"""A recording at the clock of a policy, with its states."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fugu.chains.arrays import Ints
from fugu.contract.policy import Policy
from fugu.planning.errors import PlanningError
from fugu.planning.question import one_in, states_of_some
from fugu.recordings.options import ReadOptions
from fugu.recordings.readings import Readings, Recorded, load, read_readings

__all__ = ["Truth", "states_by", "truth_by"]

_SAME_PERIOD = 0.05
_MOST_TICKS = 20_000_000


def states_by(policy: Policy, recording: Recorded, options: ReadOptions) -> tuple[Readings, Ints, Ints]:
    """Read a recording at a policy's clock: its readings, and the (n,) states and segments of the policy's ticks.

    A log of changes is looked at once a tick; of samples every so many are taken; events are ticks as they are.

    Raises:
        PlanningError: no whole number of readings is a tick, or no reading has a state.
        RecordingError: it cannot be read.
        QuestionError: it can be read in more than one way.
    """
    readings, selected, states = _at_clock(policy, recording, options)
    return readings, states, readings.segments[selected]


def _at_clock(policy: Policy, recording: Recorded, options: ReadOptions) -> tuple[Readings, NDArray[np.bool_], Ints]:
    """Readings, (n,) which of them are at ticks of a policy, and the states of these."""
    loaded, period = load(recording, options), policy.clock.period_us / 1e6
    readings = read_readings(loaded, options)
    every = 1
    if readings.changes:
        readings = read_readings(loaded, replace(options, period=period))
    elif readings.steady and readings.period_seconds:
        ticks = period / readings.period_seconds
        every = round(ticks)
        if every < 1 or abs(ticks - every) > _SAME_PERIOD * every:
            raise PlanningError(
                f"{readings.source} has a reading every {readings.period_seconds:g} s, and the policy a tick every "
                f"{period:g} s: no whole number of readings is a tick"
            )
    selected = one_in(readings.segments, every)
    states = states_of_some(policy.discretiser, readings, selected)
    if not (states >= 0).any():
        raise PlanningError(f"{readings.source}: no reading has a state under this policy")
    return readings, selected, states


class Numbered(NamedTuple):
    """States and segments (n,) of ticks one after another, from `first` on; no state is -1."""

    first: int
    states: Ints
    segments: Ints

    def at(self, ticks: Ints, *, loop: bool) -> tuple[Ints, Ints]:
        """States and segments of ticks, which may begin anew after the last; outside there is no state."""
        turns, places = np.divmod(ticks - self.first, len(self.states))
        states = np.where(loop | (turns == 0), self.states[places], -1)
        return states, self.segments[places] + turns * len(self.states)


class Truth(NamedTuple):
    """The states of a sensor, at the ticks of a policy.

    Attributes:
        source: where it is from.
        replayed: ticks as an agent counts that replays it, from 0.
        dated: ticks by its times; None if it has none of a day.
    """

    source: str
    replayed: Numbered
    dated: Numbered | None

    def numbered(self, begin: int, end: int) -> Numbered:
        """Ticks by its times if any lies in begin..end; else as of a replay."""
        if self.dated is not None and self.dated.first < end and self.dated.first + len(self.dated.states) > begin:
            return self.dated
        return self.replayed


def truth_by(policy: Policy, recording: Recorded, options: ReadOptions) -> Truth:
    """Read what was true at the ticks of a policy; errors as of `states_by`."""
    readings, selected, states = _at_clock(policy, recording, options)
    segments = readings.segments[selected]
    rows = np.arange(len(states)) if readings.rows is None or not selected.all() else readings.rows
    replayed = _numbered(rows, states, segments)
    if readings.moments is None or readings.facts[0].first is None:
        return Truth(readings.source, replayed, None)
    ticks = np.round((readings.moments[selected] * 1e6 - policy.clock.epoch_us) / policy.clock.period_us)
    return Truth(readings.source, replayed, _numbered(ticks.astype(np.int64), states, segments))


def _numbered(ticks: Ints, states: Ints, segments: Ints) -> Numbered:
    """Place states and segments at their ticks; those without a tick, -1 in a recording's rows, have none."""
    at = ticks >= 0
    ticks, states, segments = ticks[at], states[at], segments[at]
    first = int(ticks.min()) if ticks.size else 0
    length = int(ticks.max()) - first + 1 if ticks.size else 1
    if length > _MOST_TICKS:
        raise PlanningError(
            f"the recording has times of more than {_MOST_TICKS} ticks of the policy: give a part of it"
        )
    placed, parts = np.full(length, -1, dtype=np.int64), np.zeros(length, dtype=np.int64)
    placed[ticks - first], parts[ticks - first] = states, segments
    return Numbered(first, placed, np.maximum.accumulate(parts))
