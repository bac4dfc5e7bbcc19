"""A device that tells of changes is found: draws must not depend on the states of other ticks."""

from __future__ import annotations

import random
from array import array
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from firmware_sim import constant
from fugu.audit.device import device_tests
from fugu.contract.noise_table import NoiseTable
from fugu.contract.policies import AnyPolicy
from fugu.contract.windows import Window
from tests.support.audited import planned
from tests.support.measured import measure_policy

TICKS = 30_000
SCRIPT = constant._script((0, 1), random.Random(1))
WINDOW = Window(name="high", length=20, stride=10, states=(1,), scale="400")
PLAN = planned()


def states(count: int, script: Sequence[int] = SCRIPT) -> list[int]:
    return [script[tick % len(script)] for tick in range(count)]


def alarms(policy: AnyPolicy, of: str | int, drawn: list[Any], rate: float, script: Sequence[int] = SCRIPT) -> set[str]:
    ticks = array("q", range(TICKS if of else len(drawn)))
    tested = device_tests(policy, {}, {}, {}, rate, script, {of: (ticks, drawn)})
    return {alarm.test for judgement in tested for alarm in judgement.alarms}


def symbols(generator: np.random.Generator, shown: Sequence[int]) -> list[int]:
    table = PLAN.table
    thresholds = np.array([table.rows[state][0] for state in shown], dtype=np.uint64)
    return (generator.integers(0, 1 << 32, len(shown), dtype=np.uint64) >= thresholds).astype(int).tolist()


def raw(drawn: list[int], shown: list[int], late: int) -> list[int]:
    """The state of every change, `late` ticks after it."""
    states = list(drawn)
    for tick, (before, state) in enumerate(pairwise(shown), 1):
        if before != state and 0 <= tick + late < len(states):
            states[tick + late] = state
    return states


def weaker(drawn: list[int], shown: list[int]) -> list[int]:
    """No longer flipped at every third change."""
    at = [tick for tick, (before, state) in enumerate(pairwise(shown), 1) if before != state][::3]
    wrong = list(drawn)
    for tick in at:
        wrong[tick] = shown[tick]
    return wrong


@pytest.mark.parametrize("seed", range(3))
def test_a_script_has_every_step_and_every_stay(seed: int) -> None:
    script = constant._script(tuple(range(8)), random.Random(seed))
    assert set(pairwise(script)) == {(first, other) for first in range(8) for other in range(8)}
    stays, length = set(), 1
    for before, state in pairwise(script):
        length, stays = (length + 1, stays) if before == state else (1, stays | {length})
    assert stays == {1, 2, 4, 8, 16, 32, 64}
    assert sum(before != state for before, state in pairwise(script)) > len(script) / 12


@pytest.mark.long
@pytest.mark.parametrize(
    ("fault", "failing"),
    [
        (lambda drawn, _shown: drawn, set()),
        (lambda drawn, shown: raw(drawn, shown, 0), {"changes"}),
        (lambda drawn, shown: raw(drawn, shown, 5), {"changes"}),
        (lambda drawn, shown: raw(drawn, shown, -1), {"changes"}),
        (weaker, {"changes"}),
    ],
    ids=["honest", "at once", "later", "before, as frames leave later", "at some"],
)
def test_symbols_that_tell_a_change_are_found(
    fault: Callable[[list[int], list[int]], list[int]], failing: set[str]
) -> None:
    shown = states(TICKS)
    drawn = fault(symbols(np.random.default_rng(5), shown), shown)
    assert alarms(PLAN, 0, drawn, 1e-9) == failing


@pytest.mark.long
@pytest.mark.parametrize("fault", ["honest", "own count", "count before", "other counts"])
def test_counts_that_tell_a_change_are_found(fault: str) -> None:
    """The noise of one count is left out where the state has changed; of others a tick later."""
    up, two = np.random.default_rng(6).geometric(1 - np.exp(-1 / 400), (2, TICKS, 3))
    noise, shown = up - two, states(TICKS)
    for tick, (before, state) in enumerate(pairwise(shown), 1):
        if before != state and fault != "honest":
            noise[tick, {"own count": state, "count before": before, "other counts": 2}[fault]] = 0
    failing = {"changes"} if fault != "honest" else set()
    assert alarms(planned(windows=(WINDOW,)), "high", noise.ravel().tolist(), 1e-9) == failing


@pytest.mark.long
def test_points_that_tell_a_change_are_found() -> None:
    policy = measure_policy(3)
    noise = policy.measure_tables[0].noise
    assert isinstance(noise, NoiseTable)
    generator, script = np.random.default_rng(7), constant._script((0, 4, 8), random.Random(2))
    shown = states(TICKS, script)
    drawn = [noise.points[noise.draw(state, int(generator.integers(1 << 32)))] for state in shown]
    assert alarms(policy, 0, drawn, 1e-9, script) == set()
    for tick, (before, state) in enumerate(pairwise(shown), 1):
        if before != state:
            drawn[tick] = policy.coordinates[state]
    assert alarms(policy, 0, drawn, 1e-9, script) == {"changes"}
    assert alarms(policy, 7, drawn, 1e-9, script) == {"tables"}


@pytest.mark.long
def test_no_more_alarms_at_changes_than_stated() -> None:
    """Changes have a quarter of the rate: of 10 runs at 0.8, more alarms have a probability below 10^-4."""
    shown, generator = states(3000), np.random.default_rng(8)
    assert sum(bool(alarms(PLAN, 0, symbols(generator, shown), 0.8)) for _ in range(10)) <= 7
