"""A pause of the person who is measured: nothing is drawn, no sensor is read, and what was drawn leaves."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from edge_agent.__main__ import main
from edge_agent.agent import Agent
from edge_agent.local_control import LocalStatusError, Pause, ask_status
from edge_agent.randomiser import system_entropy
from edge_agent.sensors.call import CallSensor
from edge_agent.sensors.replay import ReplaySensor
from edge_agent.sensors.source import LineSensor, LiveSensor, Reading, Sensor
from fugu.contract.errors import StatusCode
from fugu.mqtt import Broker
from tests.support.agents import COIN, SECOND, JumpingClock, agent_plan, frames_left, running, stream_plan, ticks
from tests.support.brokers import wait_until
from tests.support.processes import policy, write_device


def device(folder: Path, clock: JumpingClock, sensor: Sensor) -> Agent:
    plan = agent_plan(folder, Broker(port=9), stream_plan(COIN), drain_seconds=0.0, forget="committed")
    return Agent(plan, [sensor], system_entropy(), clock)


def go_on(agent: Agent, clock: JumpingClock, seconds: int) -> None:
    for _ in range(seconds):
        clock.now += SECOND
        agent._follow_pause()
        agent._ticker.catch_up()


def end(agent: Agent) -> list[int]:
    agent._ticker.finish()
    agent._outbox.close()
    return ticks(frames_left(agent._plan))


def test_ticks_of_a_pause_are_absent_and_what_was_drawn_before_it_leaves(tmp_path: Path) -> None:
    clock = JumpingClock(1000 * SECOND)
    agent, pause = device(tmp_path, clock, ReplaySensor([0.0, 1.0], loop=True)), Pause(tmp_path / "outbox.sqlite")
    go_on(agent, clock, 13)
    assert agent._trouble_codes() == ()
    pause.begin(None)
    assert agent._outbox.frames.depth() == 1
    go_on(agent, clock, 5)
    assert agent._trouble_codes() == (StatusCode.PAUSED,)
    assert agent._outbox.frames.depth() == 2, "the frame that was under way has been sealed"
    go_on(agent, clock, 2000)
    pause.end()
    go_on(agent, clock, 7)
    assert agent._trouble_codes() == ()
    assert end(agent) == [*range(1001, 1014), *range(3019, 3026)]


def test_a_pause_outlasts_a_restart_and_ends_by_itself(tmp_path: Path) -> None:
    clock = JumpingClock(1000 * SECOND)
    agent = device(tmp_path, clock, ReplaySensor([0.0, 1.0], loop=True))
    Pause(agent._plan.outbox).begin(1200)
    go_on(agent, clock, 50)
    assert end(agent) == []
    again = device(tmp_path, clock, ReplaySensor([0.0, 1.0], loop=True))
    go_on(again, clock, 155)
    assert end(again) == list(range(1200, 1206))


def test_no_function_is_called_in_a_pause_and_no_reading_of_before_is_used_after_it(tmp_path: Path) -> None:
    calls: list[int] = []
    clock, pause = JumpingClock(1000 * SECOND), Pause(tmp_path / "outbox.sqlite")

    def measured() -> float:
        calls.append(1)
        return 1.0

    agent = device(tmp_path, clock, CallSensor(measured))
    wait_until(lambda: len(calls) == 1)
    go_on(agent, clock, 1)
    wait_until(lambda: len(calls) == 2)
    pause.begin(None)
    go_on(agent, clock, 100)
    assert len(calls) == 2
    stream = agent._ticker.streams[0]
    assert (stream.ticks, stream.silent_ticks) == (1, 0)
    pause.end()
    agent._follow_pause()
    agent._ticker.catch_up()
    wait_until(lambda: len(calls) == 3)
    go_on(agent, clock, 1)
    assert (stream.ticks, stream.silent_ticks) == (2, 0), "the reading is of the call after the pause"


def test_a_line_of_a_pause_is_not_the_reading_of_the_tick_after_it(tmp_path: Path) -> None:
    import io

    lines = io.BytesIO(b"1\n")
    sensor = LineSensor(lines)
    wait_until(lambda: sensor.trouble != "")
    clock, pause = JumpingClock(1000 * SECOND), Pause(tmp_path / "outbox.sqlite")
    agent = device(tmp_path, clock, sensor)
    pause.begin(None)
    go_on(agent, clock, 10)
    pause.end()
    go_on(agent, clock, 2)
    stream = agent._ticker.streams[0]
    assert (stream.ticks, stream.silent_ticks) == (2, 2)


def test_a_reading_of_a_pause_between_two_ticks_is_not_that_of_the_second(tmp_path: Path) -> None:
    clock, pause, sensor = JumpingClock(1200 * SECOND), Pause(tmp_path / "outbox.sqlite"), LiveSensor()
    plan = stream_plan(COIN, period_us=60 * SECOND)
    agent = Agent(agent_plan(tmp_path, Broker(port=9), plan, drain_seconds=0.0), [sensor], system_entropy(), clock)
    go_on(agent, clock, 61)
    pause.begin(None)
    go_on(agent, clock, 5)
    sensor._add_update(Reading(1.0))
    pause.end()
    go_on(agent, clock, 60)
    stream = agent._ticker.streams[0]
    assert (stream.ticks, stream.silent_ticks) == (2, 2)


@pytest.mark.parametrize("text", ["tomorrow", "nan", "1e999", "\0", "12 13"])
def test_a_file_of_a_pause_that_nobody_understands_is_a_pause(tmp_path: Path, text: str) -> None:
    pause = Pause(tmp_path / "outbox.sqlite")
    assert not pause.holds(1e9)
    pause.path.write_text(text)
    assert pause.holds(1e9)
    pause.path.unlink()
    pause.path.mkdir()
    assert pause.holds(1e9)
    pause.path.rmdir()
    pause.path.symlink_to(pause.path)  # which leads nowhere
    assert pause.holds(1e9)
    pause.path.unlink()
    assert not pause.holds(1e9)


@pytest.mark.long
def test_a_running_agent_obeys_at_once_and_one_that_does_not_run_when_it_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = write_device(
        tmp_path, policy(epoch_us=0, period_us=SECOND), tmp_path / "night.csv", "value", Broker(port=9)
    )
    outbox = tmp_path / "outbox.sqlite"
    assert main(["pause", str(config), "--for", "2h"]) == 0
    assert "no agent that runs here says so" in capsys.readouterr().out
    assert Pause(outbox).holds(time.time() + 7100)
    assert not Pause(outbox).holds(time.time() + 7300)
    agent = device(tmp_path, JumpingClock(time.time_ns() // 1000), ReplaySensor([0.0, 1.0], loop=True))
    agent._clock.wait = lambda wake, seconds: wake.wait(0.01) and None
    with running(agent):
        wait_until(lambda: "paused" in ask_status(outbox)["codes"])
        assert main(["resume", str(config)]) == 0
        assert capsys.readouterr().out == "not paused any more\n"
        assert main(["pause", str(config)]) == 0
        assert "no agent" not in capsys.readouterr().out
        assert Pause(outbox).holds(float("inf")) or Pause(outbox).path.read_text() == ""
    with pytest.raises(LocalStatusError):
        ask_status(outbox)
    assert main(["pause", str(config), "--for", "soon"]) == 2
    assert "is no length of time" in capsys.readouterr().err
