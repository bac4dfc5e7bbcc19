"""What a device needs to carry out a recommendation: its policy, and the configuration of its agent."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np

from fugu.chains.arrays import Ints
from fugu.contract.guarantee import Guarantee, check_guarantee
from fugu.contract.measure_policy import MeasurePolicy
from fugu.contract.policy import Policy
from fugu.planning.auto import AutoPlan
from fugu.planning.auto_places import PlacePlan
from fugu.planning.candidates import Candidate, useful_for, wanted_window
from fugu.planning.errors import PlanningError
from fugu.planning.joint_plan import JointPlan, joint_plan
from fugu.planning.policy_builder import LATENCY_SECONDS, PolicyHeader, build_window_policy
from fugu.planning.traces import place_columns

__all__ = ["UNKNOWN_PERIOD", "agent_configuration", "auto_policy", "place_configuration"]

UNKNOWN_PERIOD = 1.0
"""Seconds from tick to tick in the policy of a recording without times."""
_FLEET, _DEVICE = "home", "device-1"


def auto_policy(plan: AutoPlan, epoch: float | None = None) -> Policy:
    """The policy of a recommendation, checked as a device would.

    Args:
        epoch: Unix time of tick 0; now, if not given.

    Raises:
        PlanningError: it recommends nothing.
    """
    candidate, period = plan.recommended, plan.readings.period_seconds or UNKNOWN_PERIOD
    if candidate.chains is None or candidate.kind == "none":
        raise PlanningError("nothing is recommended: there is no policy to write")
    latency = LATENCY_SECONDS if plan.question.latency_seconds is None else plan.question.latency_seconds
    header = PolicyHeader(
        fleet=_FLEET,
        device=_DEVICE,
        stream=re.sub(r"[^A-Za-z0-9_-]+", "-", plan.readings.column.rpartition(".")[2]).strip("-")[:32] or "readings",
        discretiser=candidate.discretiser,
        period_seconds=period * candidate.every,
        latency_seconds=min(latency, LATENCY_SECONDS),
        epoch=epoch,
        missing_share=None if candidate.discretiser.missing else plan.readings.missing_share or None,
        useful_for=useful_for(candidate),
    )
    return build_window_policy(_planned(plan, candidate), header)


def _planned(plan: AutoPlan, candidate: Candidate) -> JointPlan:
    assert candidate.chains is not None
    if candidate.table is not None:
        guarantee = Guarantee(epsilon=candidate.epsilon, adversary=candidate.adversary)
        loss = check_guarantee(candidate.chains, candidate.table, guarantee)
        return JointPlan(candidate.chains, guarantee, candidate.table, (), loss, None, ())
    assert candidate.window_ticks is not None
    window = wanted_window(candidate.window_ticks, plan.bins)
    return joint_plan(candidate.chains, candidate.epsilon, candidate.adversary, [window])


def agent_configuration(plan: AutoPlan, policy: Policy, recording: Path, policy_file: str) -> str:
    """The configuration of an agent that replays what the plan held back; of several recordings none is replayed.

    Args:
        recording: the file that was read; a real device's sensor takes its place.
    """
    if plan.readings.rows is None:
        sensor = ['kind = "stdin"  # for a trial: a reading a line; docs/deploy.md has the sensors of real devices']
        return _configuration(policy, [f"ceiling = {float(policy.guarantee.epsilon)!r}"], policy_file, sensor)
    sensor = _replayed(recording, plan.readings.column)
    if plan.readings.changes:
        sensor.append(f"time = {json.dumps(plan.readings.time)}  # its rows are changes, each holds until the next")
        sensor.append(f"every = {policy.clock.period_us / 1e6!r}  # seconds")
    step = plan.recommended.every if plan.readings.changes else 1
    sensor.append(_held_back(plan.readings.rows, plan.held_back, step))
    return _configuration(policy, [f"ceiling = {float(policy.guarantee.epsilon)!r}"], policy_file, sensor)


def _held_back(rows: Ints, held_back: Ints, step: int) -> str:
    """Spans of the file's rows, or of its ticks, that hold readings of the third set and no others.

    Args:
        rows: (n,) the row, or the tick, that each reading is from; -1 where there is none.
        held_back: the readings of the third set.
        step: how many ticks there are to one of the agent's.
    """
    used = np.ones(len(rows), dtype=bool)
    used[held_back] = False
    wanted, others = (np.unique(rows[which & (rows >= 0)]) for which in (~used, used))
    wanted = np.setdiff1d(wanted, others)
    parts = np.split(wanted, np.flatnonzero(np.diff(np.searchsorted(others, wanted))) + 1)
    spans = [(-(-int(part[0]) // step), int(part[-1]) // step + 1) for part in parts]
    told = json.dumps([(first, end) for first, end in spans if first < end])
    return f"rows = {told}  # held back: nothing was chosen by them"


def place_configuration(plan: PlacePlan, policy: MeasurePolicy, recording: Path, policy_file: str) -> str:
    """The configuration of an agent that replays the traces that the plan held back.

    Args:
        recording: the file that was read; a real device's sensor takes its place.
    """
    ceilings = [
        f"ceiling = {float(policy.stream_loss.epsilon or 0.0)!r}",
        f"measurement_ceiling = {float(policy.epsilon)!r}",
    ]
    sensor = _replayed(recording, ",".join(place_columns(recording) or ()))
    sensor.append(_held_back(plan.traces.at, plan.held_back, 1))
    return _configuration(policy, ceilings, policy_file, sensor)


def _replayed(recording: Path, column: str) -> list[str]:
    return [
        'kind = "replay"  # for a trial: a row a tick; docs/deploy.md has the sensors of real devices',
        f"file = {json.dumps(str(recording.resolve()))}",
        f"column = {json.dumps(column)}",
    ]


def _configuration(policy: Policy | MeasurePolicy, ceilings: list[str], policy_file: str, sensor: list[str]) -> str:
    lines = [
        f"fleet = {json.dumps(policy.fleet)}",
        f"device = {json.dumps(policy.device)}",
        'outbox = "outbox.sqlite"',
        *ceilings,
        "",
        "[broker]",
        'host = "127.0.0.1"',
        "port = 1883",
        "",
        "[[streams]]",
        f"policy = {json.dumps(policy_file)}",
        "",
        "[streams.sensor]",
        *sensor,
    ]
    return "\n".join(lines) + "\n"
