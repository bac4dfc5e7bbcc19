"""The watch of an agent takes time by true states, and may fail: neither is seen in what leaves, and when."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from edge_agent import watch as watch_module
from edge_agent.agent import Agent
from edge_agent.local_control import LocalStatusError, ask_status
from edge_agent.randomiser import system_entropy
from edge_agent.sensors.source import Reading, Sensor, SensorUpdate
from edge_agent.watch import Watch
from fugu.mqtt import Broker
from tests.support.agents import SECOND, JumpingClock, agent_plan, running, stream_plan
from tests.support.brokers import wait_until

BOX = {"q": [0.1, 0.2], "r": [0.2, 0.3], "rate": 0.1, "adversary": "informed", "hour": 3600}
TICKS = 600
JUDGE, OBSERVE = Watch.judge, Watch.observe


class Live(Sensor):
    """A sensor that knows no past readings, in one state or the other for so many ticks."""

    def __init__(self, stays: int) -> None:
        self._stays = stays

    def poll(self, tick: int) -> SensorUpdate:
        return SensorUpdate(Reading(float(tick // self._stays % 2)), None)


def opened(folder: Path, sensor: Sensor, clock: JumpingClock) -> Agent:
    folder.mkdir(exist_ok=True)
    plan = agent_plan(folder, Broker(port=9), stream_plan(watch=BOX), drain_seconds=0.0)
    agent = Agent(plan, [sensor], system_entropy(), clock)
    agent._link.start = lambda: None  # there is no network
    return agent


def run(agent: Agent, until: Callable[[], bool]) -> list[int]:
    """Run an agent until a condition holds; the ticks that it drew for."""
    drawn: list[int] = []
    append = agent._outbox.append

    def noted(plan: Any, tick: int, symbol: bytes | None) -> bool:
        drawn.append(tick)
        return append(plan, tick, symbol)

    agent._outbox.append = noted
    with running(agent):
        wait_until(until)
    return drawn


@pytest.mark.parametrize("dear", [0.16, 0.32], ids=["in time", "too slow"])
def test_when_ticks_come_does_not_depend_on_what_judging_costs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dear: float
) -> None:
    """A virtual clock is charged with it. Up to its part of the time, nothing else begins later either."""
    runs = []
    for name, stays, cost in (("quick", 300, 0.001), ("slow", 1, dear)):
        clock = JumpingClock()
        agent = opened(tmp_path / name, Live(stays), clock)
        drawn: list[tuple[int, int]] = []
        judged: list[int] = []

        def judge(watch: Watch, clock: JumpingClock = clock, cost: float = cost) -> None:
            JUDGE(watch)
            clock.now += round(cost * SECOND)

        def observe(
            watch: Watch, tick: int, state: int | None, clock: JumpingClock = clock, drawn: Any = drawn
        ) -> None:
            OBSERVE(watch, tick, state)
            drawn.append((tick, clock.now))

        def go_on(
            work: Callable[[], bool] = agent._ticker.judge, clock: JumpingClock = clock, judged: list[int] = judged
        ) -> bool:
            if did := work():
                judged.append(clock.now)
            return did

        with monkeypatch.context() as patched:
            patched.setattr(Watch, "judge", judge)
            patched.setattr(Watch, "observe", observe)
            patched.setattr(agent._ticker, "judge", go_on)
            run(agent, lambda clock=clock: clock.now > TICKS * SECOND)
        runs.append((drawn[:TICKS], [moment for moment in judged if moment < TICKS * SECOND]))
    (ticks, judged), (later_ticks, later_judged) = runs
    assert [tick for tick, _ in ticks] == list(range(ticks[0][0], ticks[0][0] + TICKS))
    assert ticks == later_ticks
    assert len(judged) == len(later_judged) > 20
    assert sum(later - sooner < SECOND for sooner, later in pairwise(judged)) > 10, "several between two ticks"
    assert (judged == later_judged) == (dear < 0.2)


class Broken(Live):
    """A sensor of which a part raises."""

    def __init__(self, part: str) -> None:
        super().__init__(1)
        self._part = part

    def _raise(self, part: str) -> None:
        if part == self._part:
            raise ZeroDivisionError("72.5")

    def poll(self, tick: int) -> SensorUpdate:
        self._raise("poll")
        return super().poll(tick)

    def finished(self, tick: int) -> bool:
        self._raise("finished")
        return False

    @property
    def trouble(self) -> str:
        self._raise("trouble")
        return ""


def fail(*_arguments: Any) -> Any:
    raise ZeroDivisionError("72.5")


@pytest.mark.parametrize("part", ["poll", "finished", "trouble", "count", "judge"])
def test_no_fault_of_a_sensor_or_of_the_watch_ends_a_tick(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, part: str
) -> None:
    clock = JumpingClock()
    agent = opened(tmp_path, Broken(part), clock)
    if part == "count":
        monkeypatch.setattr(Watch, "_count_step", fail)
    if part == "judge":
        monkeypatch.setattr(watch_module, "log_e_value", fail)
    drawn = run(agent, lambda: clock.now > 200 * SECOND)
    assert drawn[:199] == list(range(drawn[0], drawn[0] + 199))
    stream, of_sensor = agent._ticker.streams[0], part in ("poll", "finished", "trouble")
    assert ("raises an exception" in stream.sensor.trouble) == ("raises an exception" in caplog.text) == of_sensor
    assert ("ZeroDivisionError inside the agent" in stream.watch.sentence()) != of_sensor
    assert (stream.silent_ticks == stream.ticks) == (part == "poll")
    assert "72.5" not in caplog.text
    assert "ZeroDivision" not in caplog.text, "what fails, and when, may depend on readings"


def test_nor_does_a_fault_in_what_is_told_to_the_owner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = JumpingClock()
    agent = opened(tmp_path, Live(1), clock)
    monkeypatch.setattr(Watch, "sentence", fail)
    asked: list[str] = []

    def ask() -> bool:
        with pytest.raises(LocalStatusError) as refusal:
            ask_status(tmp_path / "outbox.sqlite")
        asked.append(str(refusal.value))
        return "the agent goes on" in asked[-1] and clock.now > 20 * SECOND

    drawn = run(agent, ask)
    assert drawn[:19] == list(range(drawn[0], drawn[0] + 19))
    assert asked[-1] == ("the agent goes on, but cannot say how it is: ZeroDivisionError inside it, please report it")
