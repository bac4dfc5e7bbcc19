"""A plan becomes a policy document."""

from __future__ import annotations

import time
from dataclasses import dataclass

from contract.guarantee import Guarantee
from contract.policy import Clock, Policy, Thresholds
from gateway.planning.errors import PlanningError
from gateway.planning.planner import Plan

__all__ = ["PolicyHeader", "build_policy"]

_MICROSECONDS = 1_000_000


@dataclass(frozen=True, slots=True)
class PolicyHeader:
    """What a policy needs beside the plan.

    Attributes:
        fleet, device, stream: names.
        edges: numbers between neighbouring states.
        period_seconds: length of a tick of the plan's class of chains.
        states: names of the states; low and high, or state0, state1, ... if there are none.
        hysteresis: how far beyond an edge a value must be to change the state.
        frame_ticks: symbols in a frame.
        version: of the policy.
        epoch: Unix time in seconds of tick 0; now, rounded to a second, if not given.
        valid_until: Unix time in seconds from which the policy may not run, or none.
        missing_state: the state of a missing reading, the last one, if there is one.
        missing_share: the most of the ticks that are expected to be missing without a state, or none.
    """

    fleet: str
    device: str
    stream: str
    edges: tuple[float, ...]
    period_seconds: float
    states: tuple[str, ...] | None = None
    hysteresis: float = 0.0
    frame_ticks: int = 32
    version: int = 1
    epoch: float | None = None
    valid_until: int | None = None
    missing_state: int | None = None
    missing_share: float | None = None


def build_policy(plan: Plan, header: PolicyHeader) -> Policy:
    """Make the policy of a plan, and check it as a device would.

    Raises:
        PlanningError: the clock is out of range.
        pydantic.ValidationError: a field is not what a policy allows.
        GuaranteeError: the guarantee does not hold (it always does, for a plan).
    """
    chains, period = plan.chosen.chains, header.period_seconds * plan.chosen.every
    epoch = float(round(time.time())) if header.epoch is None else header.epoch
    if not (0.0 <= epoch < 2**42 and 0.0 < period < 2**42):
        raise PlanningError("epoch and period must be seconds from 0 to 2^42")
    readings = chains.states - (header.missing_state is not None)
    default_names = ("low", "high") if readings == 2 else tuple(f"state{x}" for x in range(readings))
    names = header.states or default_names
    if header.missing_state is not None and len(names) == readings:
        names = (*names, "missing")
    guarantee = Guarantee(epsilon=plan.request.epsilon, adversary=plan.request.adversary)
    clock = Clock(epoch_us=round(epoch * _MICROSECONDS), period_us=round(period * _MICROSECONDS))
    discretiser = Thresholds(
        edges=header.edges,
        states=names,
        hysteresis=header.hysteresis,
        missing=None if header.missing_state is None else names[-1],
    )
    policy = Policy(
        fleet=header.fleet,
        device=header.device,
        stream=header.stream,
        version=header.version,
        valid_until=header.valid_until,
        clock=clock,
        frame_ticks=header.frame_ticks,
        discretiser=discretiser,
        missing_share=header.missing_share,
        table=plan.chosen.table,
        chains=chains,
        guarantee=guarantee,
    )
    policy.verify(plan.request.epsilon)
    return policy
