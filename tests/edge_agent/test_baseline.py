"""A device with a baseline: nothing leaves it, or stays on its disk, but what the states make."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from edge_agent.agent import Agent
from edge_agent.plan import StreamPlan
from edge_agent.sensors.replay import ReplaySensor
from fugu.contract.classify import classifier_of
from fugu.contract.compiler import compile_discretiser
from fugu.contract.discretisers import Baseline
from fugu.contract.frames import SymbolFrame
from fugu.contract.noise_table import NoiseTable
from fugu.host.database import add_functions
from fugu.mqtt import Broker
from tests.support.agents import SECOND, JumpingClock, agent_plan, stream_plan, window_plan
from tests.support.entropy import seeded
from tests.support.outboxes import symbol_frames, window_frames

M = 20
PULSE = Baseline(baseline_ticks=M, lowest=30.0, highest=230.0)
TABLE = NoiseTable.binary(1_500_000_000, 1_200_000_000)
PLAN = stream_plan(
    table=TABLE,
    discretiser=compile_discretiser(PULSE),
    windows=(window_plan(length=15, stride=15, numerator=3, denominator=1),),
)


def device(folder: Path, readings: Sequence[float], *, plan: StreamPlan = PLAN, start: int = 0, seed: int = 1) -> Agent:
    """An agent at a tick, before the first of its readings."""
    folder.mkdir(exist_ok=True)
    sensor = ReplaySensor([*readings], loop=True)
    options = agent_plan(folder, Broker(port=9), plan, drain_seconds=0.0, forget="committed", status_seconds=0.0)
    return Agent(options, [sensor], seeded(seed), JumpingClock(start * SECOND))


def go_on(agent: Agent, ticks: int) -> None:
    for _ in range(ticks):
        agent._clock.now += SECOND
        agent._ticker.prepare()
        agent._ticker.catch_up()
    agent._ticker.close_frames()


def symbols(agent: Agent) -> list[int]:
    return [symbol for frame in symbol_frames(agent._outbox) for symbol in frame.symbols]


def traces(agent: Agent) -> list[object]:
    """All that is to leave the device, and all that is on its disk."""
    status_text = repr(agent._status_document())
    frames, status = map(SymbolFrame.encode, symbol_frames(agent._outbox)), agent._status(online=True).encode()
    traces: list[object] = [*frames, *window_frames(agent._outbox), status]
    agent._outbox.close()
    with closing(sqlite3.connect(agent._plan.outbox)) as disk:
        add_functions(disk)
        disk.executescript("UPDATE device SET salt = x''; DELETE FROM binding")  # random
        return [*traces, *disk.iterdump(), status_text]


def with_states(states: Sequence[int], seed: int) -> list[float]:
    """Readings of the states after the first M ticks, which have others for every seed."""
    generator, readings = random.Random(seed), []
    mean = 130.0
    for tick in range(M + len(states)):
        up = generator.random() < 0.5 if tick < M else states[tick - M] == 1
        away = generator.uniform(0.05, 0.6) if tick >= M else generator.uniform(0.0, 1.0)
        readings.append(mean + away * (229.0 - mean) if up else mean - away * (mean - 31.0))
        mean += (readings[-1] - mean) / min(tick + 1, M)
    return readings


def replayed(readings: Sequence[float], first: int = 1) -> list[float]:
    """A looped recording whose reading at tick `first` is the first one."""
    shift = first % len(readings)
    return [*readings[-shift:], *readings[:-shift]] if shift else [*readings]


def test_equal_states_leave_equal_bytes_and_an_equal_disk(tmp_path: Path) -> None:
    states = random.Random(3).choices((0, 1), k=300)
    readings = [with_states(states, seed) for seed in (5, 6)]
    for some in readings:
        classifier = classifier_of(PLAN.discretiser)
        assert [classifier.observe(tick, value) for tick, value in enumerate(some)] == [None] * M + states
    readings.append(with_states([1 - state for state in states], 5))
    agents = [device(tmp_path / str(i), replayed(some)) for i, some in enumerate(readings)]
    for agent in agents:
        go_on(agent, len(states) + M)
    first, same, other = map(traces, agents)
    assert first == same
    assert first != other, "the states did not even reach the symbols"


def test_windows_do_not_say_that_they_have_observed_the_first_ticks(tmp_path: Path) -> None:
    """A count of nothing would pass for a share of 0. The start alone decides how many ticks there were."""
    first, other = (device(tmp_path / str(i), readings) for i, readings in enumerate(([100.0], [31.0, 229.0, 1e308])))
    for agent in (first, other):
        go_on(agent, 60)
    observed = [window_frames(agent._outbox) for agent in (first, other)]
    assert [(frame.first, frame.observed) for frame in observed[0]] == [(15, 9), (30, 15), (45, 15)]
    assert [frame.observed for frame in observed[0]] == [frame.observed for frame in observed[1]]
