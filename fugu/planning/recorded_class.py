"""Is somebody's recording in the class that a policy was made for? What its noise would be worth for this person."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from fugu.contract.chains import BinaryChains, BoundedChains
from fugu.contract.guarantee import Adversary, ratio_loss
from fugu.contract.pins import contains
from fugu.contract.policy import Policy
from fugu.planning.errors import PlanningError
from fugu.planning.readings import read_readings
from fugu.planning.sampled import one_in, states_of_some
from fugu.privacy.covering_class import covering_class

__all__ = ["RecordedClass", "recorded_class"]

_SAME_PERIOD = 0.05


class RecordedClass(NamedTuple):
    """A recording beside the class of a policy.

    Attributes:
        inside: whether the policy's class covers the one that covers the recording.
        odds_ratio: the largest of a step that the recording needs.
        declared: the largest of a step of the policy's class.
        epsilon: what the policy's noise loses for the recording's class, in nats; infinite if nothing is bounded.
        claimed: what the policy promises.
        adversary: whom both epsilons are against.
    """

    inside: bool
    odds_ratio: float
    declared: float
    epsilon: float
    claimed: float
    adversary: Adversary


def recorded_class(policy: Policy, path: Path) -> RecordedClass:
    """Hold the class that covers a recording, with the policy's own states and period, against the policy's.

    Args:
        policy: of two-state intervals, or of a largest odds ratio.
        path: as for `fugu.planning.readings.read_readings`.

    Raises:
        PlanningError: the policy's class is another, or the recording has other ticks.
        ModelError: the recording is too short to tell.
    """
    declared = policy.chains
    if not isinstance(declared, BinaryChains | BoundedChains):
        raise PlanningError(
            "a recording is held against intervals of two states, or a largest odds ratio; here is neither"
        )
    readings = read_readings(path)
    every = 1
    if readings.steady and readings.period_seconds:
        ticks = policy.clock.period_us / 1e6 / readings.period_seconds
        every = round(ticks)
        if every < 1 or abs(ticks - every) > _SAME_PERIOD * every:
            raise PlanningError(
                f"{path.name} has a reading every {readings.period_seconds:g} s, and the policy a tick every "
                f"{policy.clock.period_us / 1e6:g} s: no whole number of readings is a tick"
            )
    selected = one_in(readings.segments, every)
    states = states_of_some(policy.discretiser, readings, selected)
    recorded = covering_class(states, readings.segments[selected], len(policy.discretiser.states)).chains
    of_recording = recorded
    if declared.changes:
        of_recording = BoundedChains(states=recorded.states, odds_ratio=recorded.odds_bound)
    adversary = policy.guarantee.adversary
    return RecordedClass(
        contains(declared, recorded),
        recorded.odds_bound,
        declared.odds_bound,
        ratio_loss(of_recording, *policy.tick_ratios, adversary).epsilon,
        policy.guarantee.epsilon,
        adversary,
    )
