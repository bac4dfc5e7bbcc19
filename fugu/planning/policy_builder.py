"""Build policies from plans; the policy of a measurement holds the tables that a device needs."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fugu.contract.dating import SLACK
from fugu.contract.discretisers import Discretiser, Thresholds
from fugu.contract.errors import PolicyError
from fugu.contract.frames import MAX_TICK
from fugu.contract.guarantee import Guarantee, StreamOutputs
from fugu.contract.measure_frames import MAX_MEASURE_TICKS
from fugu.contract.measure_policy import MAX_TABLES, MeasurePolicy
from fugu.contract.measure_table import TimedTable, set_of
from fugu.contract.policies import AnyPolicy, read_policy
from fugu.contract.policy import MAX_POLICY_BYTES, Clock, Policy, UsefulFor
from fugu.contract.sentences import LAST_US
from fugu.planning.errors import PlanningError
from fugu.planning.question import LATENCY_SECONDS, frame_ticks
from fugu.planning.window_plan import JointPlan

if TYPE_CHECKING:  # loaded only for types: a plan of one kind does not need the others
    from fugu.planning.measure_planner import MeasurePlan
    from fugu.planning.measure_spec import MeasureSpec
    from fugu.planning.planner import StreamPlan

__all__ = [
    "ANY_TARGET",
    "PolicyHeader",
    "Target",
    "build_measure_policy",
    "build_policy",
    "build_window_policy",
    "make_policy",
    "missing_fields",
    "next_version",
    "thresholds",
]

_MICROSECONDS = 1_000_000
_LAST_SECOND = LAST_US // _MICROSECONDS


@dataclass(frozen=True, slots=True)
class PolicyHeader:
    """The fields of a policy that a plan does not determine.

    `period_seconds` is the length of a tick of the plan's class; a frame of symbols may gather for `latency_seconds`.
    `epoch` (the time of tick 0, by default now, rounded to a second) and `valid_until` are Unix seconds.
    `missing_share` is the largest expected share of ticks without a state. `useful_for` is `None` unless answers were
    compared with guessing.
    """

    fleet: str
    device: str
    stream: str
    discretiser: Discretiser
    period_seconds: float
    latency_seconds: float = LATENCY_SECONDS
    version: int = 1
    epoch: float | None = None
    valid_until: int | None = None
    missing_share: float | None = None
    useful_for: UsefulFor | None = None


class Target(NamedTuple):
    """The stream that a plan is for, by default named after the column, and the Unix time of tick 0, by default now."""

    fleet: str = "home"
    device: str = "device-1"
    stream: str | None = None
    epoch: float | None = None


ANY_TARGET = Target()


def next_version(policy: AnyPolicy, old_text: str | bytes | None) -> AnyPolicy:
    """Give a policy the version after that of its predecessor in `old_text`, or the same version if both are equal.

    The policy is unchanged if `old_text` is `None`, or no policy of the same stream.
    """
    try:
        old = None if old_text is None else read_policy(old_text)
    except PolicyError:
        return policy
    if old is None or (old.fleet, old.device, old.stream) != (policy.fleet, policy.device, policy.stream):
        return policy
    copy = policy.model_copy(update={"version": old.version})
    return copy if copy == old else policy.model_copy(update={"version": max(policy.version, old.version + 1)})


def thresholds(
    edges: tuple[float, ...], names: tuple[str, ...] | None = None, *, hysteresis: float = 0.0, missing: bool = False
) -> Thresholds:
    """A discretiser by edges between states; the default names are low and high, or state0, state1, ...

    A value must be `hysteresis` beyond an edge to change the state. With `missing`, the last state is that of missing
    readings.
    """
    states = names or (("low", "high") if len(edges) == 1 else tuple(f"state{x}" for x in range(len(edges) + 1)))
    if missing and len(states) == len(edges) + 1:
        states = (*states, "missing")
    return Thresholds(edges=edges, states=states, hysteresis=hysteresis, missing=states[-1] if missing else None)


def build_policy(plan: StreamPlan, header: PolicyHeader) -> Policy:
    """Make the policy of a symbol stream's plan, and check it as a device would.

    Raises:
        PlanningError: the clock is out of range, or fewer readings have other states than those of the chain.
    """
    option = plan.chosen
    if option.every > 1 and header.discretiser.remembers:
        raise PlanningError(
            f"with one reading every {option.every} ticks a running mean or hysteresis makes other states than those "
            "of the chain. Fit one to such readings, or use 'fugu plan auto'"
        )
    return build_window_policy(option.release, replace(header, period_seconds=header.period_seconds * option.every))


def build_window_policy(plan: JointPlan, header: PolicyHeader) -> Policy:
    """Make the policy of planned windows and symbols, if any, and check it; errors as for `build_policy`."""
    promise, table, windows_guarantee = plan.guarantee, plan.table, None
    rate = StreamOutputs(table, plan.windows).rate
    if (windows_loss := plan.windows_loss) is not None:
        bound = StreamOutputs(None, plan.windows).bound(plan.chains, promise.adversary, windows_loss.epsilon)
        # Slack for changes of policy; it exceeds the rounding of the class that is named below.
        epsilon = bound.epsilon(promise.stretch_ticks) * float(1 + SLACK)
        windows_guarantee = promise.model_copy(update={"epsilon": epsilon})
    return make_policy(
        header,
        table=table,
        # joint chains of one stream get its name, period and rate
        chains=plan.chains.for_stream(header.stream, round(header.period_seconds * _MICROSECONDS), rate),
        guarantee=promise,
        windows=plan.windows,
        windows_guarantee=windows_guarantee,
    )


def make_policy(header: PolicyHeader, *, guarantee: Guarantee, **policy_fields: Any) -> Policy:
    """Make a policy of its parts, and check it as a device would; `policy_fields` holds further fields of `Policy`.

    Raises:
        PlanningError: the clock is out of range.
        GuaranteeError: the guarantee does not hold.
    """
    epoch = float(round(time.time())) if header.epoch is None else header.epoch
    period = header.period_seconds
    if not (0.0 <= epoch <= _LAST_SECOND and 0.0 < period <= _LAST_SECOND):
        raise PlanningError(f"epoch and period must be seconds from 0 to {_LAST_SECOND}, which is in the year 9999")
    policy = Policy(
        fleet=header.fleet,
        device=header.device,
        stream=header.stream,
        version=header.version,
        valid_until=header.valid_until,
        clock=Clock(epoch_us=round(epoch * _MICROSECONDS), period_us=round(period * _MICROSECONDS)),
        frame_ticks=1 if policy_fields["table"] is None else frame_ticks(header.latency_seconds, period),
        discretiser=header.discretiser,
        missing_share=header.missing_share,
        useful_for=header.useful_for,
        guarantee=guarantee,
        **policy_fields,
    )
    policy.verify()
    return policy


_LARGEST_FILL = 0.9


def build_measure_policy(
    plan: MeasurePlan, *, epoch: float | None = None, useful_for: UsefulFor | None = None
) -> MeasurePolicy:
    """Make the policy of a measurement's plan, and check it as a device would.

    It carries the fallback table, and tables for the sets of possible states as far as there is room. Sets that return
    in every cycle come first, then those from tick 0 on. A gateway can send further tables; without them a device uses
    the fallback.

    `epoch` is the time of tick 0 in Unix seconds, by default the specification's, or now, rounded to a second.

    Raises:
        PlanningError: a field is missing or wrong, or no device can draw the noise. FuguError: the check fails.
    """
    spec = plan.spec
    header_fields = _header_fields(spec, epoch)
    if plan.fallback is None:
        raise PlanningError(f"no device can draw such noise: {plan.refused}")
    version, no_end = header_fields["version"], MAX_TICK + 1
    tables = [TimedTable(version, 0, 0, 0, no_end, plan.fallback)]
    for set_plan in sorted(plan.sets, key=lambda set_plan: not set_plan.repeats):
        if set_plan.noise is not None and not set_plan.fallback and len(tables) <= MAX_TABLES:
            states, end_tick = set_of(np.flatnonzero(set_plan.possible)), set_plan.until or no_end
            tables.append(TimedTable(version, len(tables), states, set_plan.first, end_tick, set_plan.noise))
    fallback_text, *table_texts = (table.text for table in tables)
    document = {
        "format": "fugu/2",
        "kind": "points",
        **header_fields,
        "useful_for": useful_for,
        **spec.fields(plan.initial),
        "resolution": list(spec.resolution),
        "unit": spec.unit,
        "delta": spec.delta or 0.0,
        "objective": spec.objective,
        "stream_loss": {"epsilon": plan.stream.epsilon, "adversary": plan.stream.adversary, "start": spec.start},
        "fallback": fallback_text,
    }
    base_size = len(json.dumps(document, indent=2))
    while table_texts and base_size + sum(map(len, table_texts)) > _LARGEST_FILL * MAX_POLICY_BYTES:
        table_texts.pop()
    policy = MeasurePolicy.from_json(json.dumps({**document, "tables": table_texts, "factor": plan.promised}))
    policy.verify(spec.epsilon)
    return policy


def missing_fields(spec: MeasureSpec) -> list[str]:
    """The names of fields that a policy needs and the specification does not give."""
    return [name for name in ("fleet", "device", "stream", "period") if spec.header.get(name) is None]


def _header_fields(spec: MeasureSpec, epoch: float | None) -> dict[str, Any]:
    header = {"latency": LATENCY_SECONDS, "version": 1, **spec.header}
    if missing := missing_fields(spec):
        raise PlanningError(f"a policy needs {', '.join(missing)}")
    epoch = header.get("epoch", float(round(time.time()))) if epoch is None else epoch
    period, latency = header["period"], header["latency"]
    if not {type(epoch), type(period), type(latency)} <= {int, float} or not (
        0.0 <= epoch <= _LAST_SECOND and 0.0 < period <= _LAST_SECOND and 0.0 < latency <= _LAST_SECOND
    ):
        raise PlanningError(f"epoch, period and latency must be seconds from 0 to {_LAST_SECOND}")
    return {
        **{name: header[name] for name in ("fleet", "device", "stream", "version")},
        "frame_ticks": frame_ticks(latency, period, MAX_MEASURE_TICKS),
        "valid_until": header.get("valid_until"),
        "clock": {"epoch_us": round(epoch * _MICROSECONDS), "period_us": round(period * _MICROSECONDS)},
        "discretiser": _discretiser(spec, header.get("discretiser")),
    }


def _discretiser(spec: MeasureSpec, declared: Any) -> Any:
    """The fields of a discretiser: as declared, or by the cells of a grid on earth, or by the names of states."""
    names = list(spec.names)
    if isinstance(declared, dict):
        return {"states": names, **declared}
    if declared is not None:
        raise PlanningError('discretiser must be an object, such as {"kind": "thresholds", "edges": [1, 2]}')
    if spec.cells is not None:
        return {"kind": "cells", **spec.cells, "cells": spec.values.tolist(), "states": names}
    return {"kind": "categories", "categories": {name: state for state, name in enumerate(names)}, "states": names}
