"""A recording at the clock of a policy, with its states."""

from __future__ import annotations

from dataclasses import replace

from fugu.chains.arrays import Ints
from fugu.contract.policy import Policy
from fugu.planning.errors import PlanningError
from fugu.planning.question import one_in, states_of_some
from fugu.recordings.options import ReadOptions
from fugu.recordings.readings import Readings, Recorded, load, read_readings

__all__ = ["states_by"]

_SAME_PERIOD = 0.05


def states_by(policy: Policy, recording: Recorded, options: ReadOptions) -> tuple[Readings, Ints, Ints]:
    """Read a recording at a policy's clock: its readings, and the (n,) states and segments of the policy's ticks.

    A log of changes is looked at once a tick; of samples every so many are taken; events are ticks as they are.

    Raises:
        PlanningError: no whole number of readings is a tick, or no reading has a state.
        RecordingError: it cannot be read.
        QuestionError: it can be read in more than one way.
    """
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
    return readings, states, readings.segments[selected]
