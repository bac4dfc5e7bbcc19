"""Several streams of one sensor: one reading a tick, one state, and new tables for all of them at one tick."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from edge_agent.agent import Agent
from edge_agent.plan import StreamPlan
from edge_agent.randomiser import system_entropy
from edge_agent.sensors.sharing import SharedSensor, check_shared, open_sensors
from edge_agent.sensors.source import ConfigError, LineSensor, Reading, Sensor, SensorUpdate
from fugu.contract.compiler import compile_discretiser
from fugu.contract.discretisers import Thresholds
from fugu.contract.noise_table import NoiseTable
from fugu.mqtt import Broker
from tests.support.agents import SECOND, JumpingClock, agent_plan, stream_plan
from tests.support.brokers import wait_until
from tests.support.outboxes import symbol_frames

CALL = {"kind": "call", "target": "builtins:float", "silence": "samples", "keep_alive_ticks": None}
LINES = {"kind": "stdin", "silence": "samples", "keep_alive": None, "keep_alive_ticks": None}
PIN = {"kind": "gpio", "pin": 17, "pull_up": True, "active_state": None, "since": False, "silence": "samples"}
TELLS = NoiseTable((((1 << 32) - 1,), (1,)))
"""Symbols are states, but for one draw in 2^32."""
ONE = stream_plan(stream="one", version=1, table=TELLS, frame_ticks=1, sensor=CALL)
TWO = replace(ONE, stream="two", version=2)


class Counted:
    """A live sensor whose readings follow one another; it knows how often it was read."""

    recorded = False
    trouble = ""

    def __init__(self, value: Callable[[int], float]) -> None:
        self.reads = 0
        self._value = value

    def poll(self, tick: int) -> SensorUpdate:
        return SensorUpdate(self.read(tick), None)

    def read(self, tick: int) -> Reading:
        self.reads += 1
        return Reading(self._value(self.reads))

    def finished(self, tick: int) -> bool:
        return False


def agent(folder: Path, clock: JumpingClock, sensor: Sensor, *streams: StreamPlan) -> Agent:
    plan = agent_plan(folder, Broker(port=9), *streams, drain_seconds=0.0, forget="committed")
    return Agent(plan, [sensor for _ in streams], system_entropy(), clock)


def pass_time(device: Agent, clock: JumpingClock, *steps: int) -> None:
    """Let time pass in steps, and after each the ticks come that are due."""
    for step in steps:
        clock.now += step
        device._ticker.catch_up()


def symbols(device: Agent, version: int) -> dict[int, int]:
    """Symbols to leave under a version, which tells the stream: tick and symbol."""
    frames = [frame for frame in symbol_frames(device._outbox) if frame.policy_version == version]
    return {frame.first + i: symbol for frame in frames for i, symbol in enumerate(frame.symbols)}


def test_streams_of_one_sensor_get_one_reading_a_tick(tmp_path: Path) -> None:
    """Readings change whenever the sensor is asked; both streams say the same at every tick all the same."""
    clock, sensor = JumpingClock(1000 * SECOND), Counted(lambda reads: float(reads % 3 == 0))
    device = agent(tmp_path, clock, sensor, ONE, TWO)
    pass_time(device, clock, *[SECOND] * 60)
    device._ticker.close_frames()
    assert sensor.reads == 60
    assert len(symbols(device, 1)) == 60
    assert symbols(device, 1) == symbols(device, 2)


def test_a_line_of_standard_input_is_for_all_streams(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    clock = JumpingClock(1000 * SECOND)
    device = agent(tmp_path, clock, LineSensor(os.fdopen(reader, "rb")), ONE, TWO)
    shared = device._ticker.streams[0].sensor.sensor
    for tick in range(40):
        os.write(writer, b"1\n" if tick % 5 == 2 else b"0\n")
        wait_until(lambda: shared._update.reading is not None)
        pass_time(device, clock, SECOND)
    os.close(writer)
    expected = {1001 + tick: int(tick % 5 == 2) for tick in range(40)}
    assert symbols(device, 1) == symbols(device, 2) == expected


def test_a_new_stream_remembers_the_state_that_hysteresis_holds(tmp_path: Path) -> None:
    """Between the edges the state is what it was; a stream that begins later would know no better than the value."""
    sticky = compile_discretiser(Thresholds(edges=(0.5,), states=("low", "high"), hysteresis=0.2))
    first, two = replace(ONE, discretiser=sticky), replace(TWO, discretiser=sticky)
    clock, sensor = JumpingClock(1000 * SECOND), Counted(lambda reads: 1.0 if reads == 1 else 0.4)
    device = agent(tmp_path, clock, sensor, first)
    for tick in range(6):
        if tick == 2:
            device._ticker.switch([first, two], lambda: None)
        pass_time(device, clock, SECOND)
    assert list(symbols(device, 1).values()) == [1] * 6
    assert list(symbols(device, 2).values()) == [1] * 4


def test_no_tick_has_an_old_table_of_one_stream_and_a_new_one_of_another(tmp_path: Path) -> None:
    """One stream is a tick ahead when a document comes: the other leaves that tick out, and both go on together."""
    clock = JumpingClock(1000 * SECOND)
    device = agent(tmp_path, clock, Counted(float), ONE, TWO)
    pass_time(device, clock, SECOND)
    clock.now += SECOND
    ahead, behind = device._ticker.streams
    device._ticker._tick(ahead)
    assert (ahead.next_tick, behind.next_tick) == (1003, 1002)
    device._ticker.switch([replace(ONE, version=3), replace(TWO, version=4)], lambda: None)
    pass_time(device, clock, 0, SECOND * 9 // 10, SECOND // 10)
    ticks = {version: sorted(symbols(device, version)) for version in (1, 2, 3, 4)}
    assert ticks == {1: [1001, 1002], 2: [1001], 3: [1003], 4: [1003]}


def test_a_stream_that_ends_with_a_document_leaves_the_others_no_tick_that_it_has_told_of(tmp_path: Path) -> None:
    clock = JumpingClock(1000 * SECOND)
    device = agent(tmp_path, clock, Counted(float), ONE, TWO)
    for _ in range(2):
        clock.now += SECOND
        device._ticker._tick(device._ticker.streams[0])
    device._ticker.switch([replace(TWO, version=4)], lambda: None)
    pass_time(device, clock, 0, SECOND * 9 // 10, SECOND // 10)
    ended, begun = sorted(symbols(device, 1)), sorted(symbols(device, 4))
    assert len(ended) == 2
    assert begun == [ended[-1] + 1]


def test_a_restart_does_not_put_streams_of_one_clock_apart(tmp_path: Path) -> None:
    """The clock was set back behind the tick that one of them had reached."""
    clock = JumpingClock(1000 * SECOND)
    device = agent(tmp_path, clock, Counted(float), ONE, TWO)
    pass_time(device, clock, SECOND)
    clock.now += SECOND
    device._ticker._tick(device._ticker.streams[0])
    device._ticker.finish()
    device._outbox.close()
    again = agent(tmp_path, JumpingClock(1001 * SECOND), Counted(float), ONE, TWO)
    assert [stream.next_tick for stream in again._ticker.streams] == [1003, 1003]


def test_equal_sensors_are_opened_once_and_others_apart() -> None:
    other = {**CALL, "target": "builtins:int"}
    plans = (ONE, TWO, replace(TWO, sensor=other), replace(TWO, period_us=2 * SECOND))
    first, two, three, four = open_sensors(plans)
    assert first is two
    assert len({id(sensor) for sensor in (first, three, four)}) == 3


@pytest.mark.parametrize("change", [{"period_us": 2 * SECOND}, {"epoch_us": 1}, {"sensor": ...}])
@pytest.mark.parametrize(
    ("sensor", "other", "what"),
    [(LINES, {"keep_alive": "x"}, "standard input"), (PIN, {"pull_up": False}, "GPIO pin 17")],
)
def test_what_can_be_open_only_once_is_for_streams_of_one_clock_and_table(
    tmp_path: Path, sensor: dict[str, Any], other: dict[str, Any], what: str, change: dict[str, Any]
) -> None:
    first, two = (replace(plan, sensor=dict(sensor)) for plan in (ONE, TWO))
    check_shared((first, two))
    two = replace(two, **{"sensor": sensor | other} if "sensor" in change else change)
    with pytest.raises(ConfigError, match=f"{what} feeds the streams of one clock and one sensor table only"):
        open_sensors((first, two))
    device = agent(tmp_path, JumpingClock(1000 * SECOND), Counted(float), first)
    with pytest.raises(ConfigError, match=f"{what} feeds the streams of one clock"):
        device._ticker.switch([first, two], lambda: None)
    assert [stream.plan.stream for stream in device._ticker.streams] == ["one"]


def test_a_tick_that_nobody_knows_any_more_has_no_reading() -> None:
    shared = SharedSensor(Counted(float))
    newest = shared.read(5)
    assert newest is not None
    assert shared.read(5) is newest
    assert shared.read(4) is None
