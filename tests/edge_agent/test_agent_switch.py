"""Switching to other plans: all of it, or nothing, whatever fails and whenever it ends."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from edge_agent.agent import Agent
from edge_agent.outbox import Outbox, OutboxError
from edge_agent.plan import StreamPlan
from edge_agent.randomiser import system_entropy
from edge_agent.sensors.replay import ReplaySensor
from fugu.mqtt import Broker
from tests.support.agents import SECOND, JumpingClock, agent_plan, stream_plan, window_plan
from tests.support.outboxes import symbol_frames

SENSOR = {"kind": "call", "target": "builtins:float", "silence": "samples", "keep_alive_ticks": None}
A, B, C = (stream_plan(stream=name, sensor=SENSOR) for name in "abc")


class PowerCutError(BaseException):
    """Nothing after it happens."""


def agent(folder: Path, clock: JumpingClock, *streams: StreamPlan) -> Agent:
    """An agent after three ticks."""
    plan = replace(agent_plan(folder, Broker(port=9), drain_seconds=0.0, forget="committed"), streams=streams)
    agent = Agent(plan, [ReplaySensor([0.0, 1.0], loop=True) for _ in streams], system_entropy(), clock)
    clock.now += 3 * SECOND
    agent._ticker.catch_up()
    return agent


def newer(plan: StreamPlan, **changes: object) -> StreamPlan:
    return replace(plan, version=2, **changes)


def nothing() -> None:
    """Where plans are stored."""


def full() -> None:
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize(
    ("plans", "store"),
    [
        ((newer(C, period_us=7, windows=(window_plan(length=3),)), newer(B, period_us=5)), nothing),
        ((newer(C, period_us=7, windows=(window_plan(length=3),)), newer(B)), full),
    ],
    ids=["another clock", "full disk"],
)
def test_a_refused_document_fixes_no_clock_and_no_window(
    tmp_path: Path, plans: tuple[StreamPlan, ...], store: Callable[[], None]
) -> None:
    device = agent(tmp_path, JumpingClock(1000 * SECOND), A, B)
    with pytest.raises((OutboxError, OSError)):
        device._ticker.switch(plans, store)
    assert [(s.plan.stream, s.plan.version) for s in device._ticker.streams] == [("a", 1), ("b", 1)]
    device._ticker.switch([newer(B), newer(C, windows=(window_plan(),))], nothing)
    assert [(s.plan.stream, s.plan.version) for s in device._ticker.streams] == [("b", 2), ("c", 2)]


def test_nothing_is_stored_if_the_outbox_takes_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    device, stored = agent(tmp_path, JumpingClock(1000 * SECOND), A, B), []

    def no_room(_plan: StreamPlan) -> bool:
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(device._outbox, "close_frame", no_room)
    with pytest.raises(sqlite3.Error):
        device._ticker.switch([newer(A)], lambda: stored.append(2))
    assert stored == [], "the file of trust would name a policy that does not run"
    assert [s.plan.stream for s in device._ticker.streams] == ["a", "b"]


def test_what_was_drawn_for_a_stream_that_ends_is_sent_even_after_a_power_cut(tmp_path: Path) -> None:
    clock = JumpingClock(1000 * SECOND)
    device = agent(tmp_path, clock, A, B)

    def stored_and_cut() -> None:
        raise PowerCutError

    with pytest.raises(PowerCutError):
        device._ticker.switch([newer(A)], stored_and_cut)
    device._outbox.close()
    outbox = Outbox(tmp_path / "outbox.sqlite", "home", "watch")
    drawn = [(frame.policy_version, frame.first, len(frame.symbols)) for frame in symbol_frames(outbox)]
    assert drawn == [(1, 1001, 3)] * 2


def test_a_stream_that_comes_back_waits_for_the_ticks_that_were_reserved_before_a_kill(tmp_path: Path) -> None:
    clock = JumpingClock(1000 * SECOND)
    killed = agent(tmp_path, clock, A, B)
    killed._ticker.switch([newer(B)], nothing)
    killed._outbox._db.close()
    device = agent(tmp_path, clock, newer(B))
    device._ticker.switch([replace(newer(plan), version=3) for plan in (A, B)], nothing)
    for _ in range(30):
        clock.now += SECOND
        device._ticker.catch_up()
    assert [stream.last_tick for stream in device._ticker.streams] == [1036, 1036]
    device._ticker.finish()
    firsts = [frame.first for frame in symbol_frames(device._outbox) if frame.policy_version == 3]
    assert sorted(firsts)[:2] == [1011, 1011], "the frame of ten ticks that began at tick 1001 was reserved"
