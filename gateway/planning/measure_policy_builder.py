"""A planned measurement becomes a policy document, with the tables that a device needs."""

from __future__ import annotations

import json
import math
import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from contract.frames import MAX_TICK
from contract.measure_frames import MAX_MEASURE_TICKS
from contract.measure_policy import MAX_TABLES, MeasurePolicy, sparse_rows
from contract.measure_table import TimedTable, encoded_table, set_of
from contract.policy_header import MAX_POLICY_BYTES
from gateway.chain.arrays import Bools
from gateway.planning.errors import PlanningError
from gateway.planning.measure_planner import MeasurePlan
from gateway.planning.measure_spec import MeasureSpec
from gateway.planning.policy_builder import LATENCY_SECONDS, frame_ticks

__all__ = ["MeasureHeader", "build_measure_policy", "missing_fields"]

_MICROSECONDS = 1_000_000
_DEFAULTS: dict[str, Any] = {"latency": LATENCY_SECONDS, "version": 1}
_ROOM = 0.9


@dataclass(frozen=True, slots=True)
class MeasureHeader:
    """What a policy needs beside the plan; what is none here is taken from the specification.

    Attributes:
        period: seconds from tick to tick.
        latency: seconds that a frame of points may gather.
        epoch: Unix time in seconds of tick 0; now, rounded to a second, if it is given nowhere.
        valid_until: Unix time in seconds from which the policy may not run.
    """

    fleet: str | None = None
    device: str | None = None
    stream: str | None = None
    period: float | None = None
    latency: float | None = None
    version: int | None = None
    epoch: float | None = None
    valid_until: int | None = None


def build_measure_policy(plan: MeasurePlan, header: MeasureHeader) -> MeasurePolicy:
    """Make the policy of a plan, and check it as a device would.

    It carries the fallback table, and tables for the sets of possible states as far as there is room: first of those
    that come back, then from tick 0 on. A gateway can send the others; without them a device uses the fallback.

    Raises:
        PlanningError: something that a policy needs was not given, or no device could follow such a policy.
        PolicyError: a field is not what a policy allows.
        GuaranteeError: a table does not keep the promise (it always does, for a plan).
    """
    spec = plan.spec
    fields = _fields(spec, header)
    if plan.fallback is None:
        raise PlanningError(f"no device can draw such noise: {plan.refused}")
    found = [(each, noise) for each, noise in zip(plan.sets, plan.noises, strict=True) if not each.fallback]
    wanted = sorted(found, key=lambda pair: not pair[0].repeats)[:MAX_TABLES]
    version = fields["version"]
    tables = [TimedTable(version, 0, 0, 0, MAX_TICK + 1, plan.fallback)]
    for number, (each, noise) in enumerate(wanted, start=1):
        until = MAX_TICK + 1 if each.repeats else each.first + 1
        tables.append(TimedTable(version, number, _set(each.possible), each.first, until, noise))
    encoded = [encoded_table(table) for table in tables]
    document = {
        "format": "fugu/2",
        "kind": "points",
        **fields,
        "coordinates": spec.values.tolist(),
        "resolution": list(spec.resolution),
        "unit": spec.unit,
        "transition": sparse_rows(spec.transition.tolist()),
        "initial": plan.initial.tolist(),
        "graph": spec.rule,
        "epsilon": spec.epsilon,
        "delta": spec.delta or 0.0,
        "objective": spec.objective,
        "stream_loss": {
            "epsilon": plan.stream.epsilon,
            "adversary": plan.stream.adversary,
            "start": spec.start,
        },
        "fallback": encoded[0],
    }
    bare = len(json.dumps(document, indent=2))
    while len(encoded) > 1 and bare + sum(map(len, encoded[1:])) > _ROOM * MAX_POLICY_BYTES:
        encoded.pop()
    document["tables"] = encoded[1:]
    policy = MeasurePolicy.from_json(json.dumps({**document, "factor": plan.promised}))
    policy.verify(spec.epsilon)
    return policy


def missing_fields(spec: MeasureSpec, header: MeasureHeader) -> list[str]:
    """Names of the fields that a policy needs, and that neither the header nor the specification gives."""
    given = _given(spec, header)
    return [name for name in ("fleet", "device", "stream", "period") if given.get(name) is None]


def _given(spec: MeasureSpec, header: MeasureHeader) -> dict[str, Any]:
    given = {**_DEFAULTS, **spec.header}
    for name in header.__slots__:
        if getattr(header, name) is not None:
            given[name] = getattr(header, name)
    return given


def _fields(spec: MeasureSpec, header: MeasureHeader) -> dict[str, Any]:
    """The fields that every policy has."""
    given = _given(spec, header)
    if missing := missing_fields(spec, header):
        raise PlanningError(f"a policy needs {', '.join(missing)}")
    epoch = given.get("epoch", float(round(time.time())))
    period, latency = given["period"], given["latency"]
    if not all(type(value) in (int, float) for value in (epoch, period, latency)) or not (
        0.0 <= epoch < 2**42 and 0.0 < period < 2**42 and 0.0 < latency < math.inf
    ):
        raise PlanningError("epoch and period must be seconds from 0 to 2^42, latency above 0")
    return {
        **{name: given[name] for name in ("fleet", "device", "stream", "version")},
        "frame_ticks": frame_ticks(latency, period, MAX_MEASURE_TICKS),
        "valid_until": given.get("valid_until"),
        "clock": {"epoch_us": round(epoch * _MICROSECONDS), "period_us": round(period * _MICROSECONDS)},
        "discretiser": _discretiser(spec, given.get("discretiser")),
    }


def _discretiser(spec: MeasureSpec, given: Any) -> Any:
    """How readings become states: as it was given, by the cells of a grid on earth, or by the names of the states."""
    names = list(spec.names)
    if isinstance(given, dict):
        return {"states": names, **given}
    if given is not None:
        raise PlanningError('discretiser must be an object, such as {"kind": "thresholds", "edges": [1, 2]}')
    if spec.cells is not None:
        return {"kind": "cells", **spec.cells, "cells": spec.values.tolist(), "states": names}
    return {"kind": "categories", "categories": {name: state for state, name in enumerate(names)}, "states": names}


def _set(states: Bools) -> int:
    return set_of(np.flatnonzero(states).tolist())
