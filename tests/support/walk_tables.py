"""Tables of noise for a walk on nine cells, as a gateway sends them."""

from __future__ import annotations

from array import array

import numpy as np

from edge_agent.measurer import PointSource
from fugu.contract.frames import MAX_TICK
from fugu.contract.measure_policy import MeasurePolicy
from fugu.contract.measure_table import Noise, TimedTable
from fugu.contract.noise_table import SCALE, NoiseTable
from fugu.places.protection import protect_likely
from fugu.places.tables import compile_noise
from gateway.estimates.points import MeasureModel
from gateway.parts.place_tables import policy_graph
from tests.support.measured import measure_policy

__all__ = ["FOR_EVER", "FULL", "MARKED", "SETS", "WALK", "message", "noise_at", "plan"]

FOR_EVER = MAX_TICK + 1
WALK = measure_policy(3, start=0, tables=False)
"""A walk from a corner of nine cells: one state is possible at tick 0, then 3, 6, 8, and all from tick 4 on."""
SETS = [MeasureModel(WALK).reach.set_at(tick) for tick in range(5)]


def plan(policy: MeasurePolicy) -> PointSource:
    return PointSource.of(policy.model_dump(mode="json"))


def noise_at(tick: int, policy: MeasurePolicy = WALK, likely: int | None = None) -> Noise:
    """Noise for the states possible at a tick, as weights: the gateway sends a staircase where the hull has one."""
    model = MeasureModel(policy)
    possible = model.possible_states(tick)
    chosen = possible if likely is None else np.array([bool(likely >> x & 1) for x in range(len(possible))])
    arguments = (model.values, policy_graph(model), possible, chosen)
    protection = protect_likely(*arguments, objective=policy.objective, cap=policy.factor)
    assert protection.factor <= policy.factor
    return compile_noise(protection.hull, model.values, possible, policy.epsilon, chosen)


def message(noise: Noise, number: int = 7, constraint: int = SETS[4], **changes: int) -> bytes:
    fields = {"policy_version": 1, "first": 0, "until": FOR_EVER} | changes
    return TimedTable(number=number, constraint=constraint, noise=noise, **fields).encode()


FULL = noise_at(4)
MARKED = NoiseTable(tuple(array("I", [1 if x < 8 else SCALE - 1]) for x in range(9)), ((0, 0), (1, 1)))
"""Tells state 8 from all others."""
