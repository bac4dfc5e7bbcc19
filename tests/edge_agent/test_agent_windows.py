"""The agent with windows: on clocks that jump, with a full disk, with a gateway that answers, and after restarts."""

from __future__ import annotations

import threading
from itertools import pairwise
from pathlib import Path

import pytest

from edge_agent import sender
from edge_agent.agent import Agent
from edge_agent.outbox import Outbox
from edge_agent.randomiser import system_entropy
from edge_agent.sensors.replay import ReplaySensor
from edge_agent.sensors.sharing import SharedSensor
from edge_agent.ticker import Stream
from edge_agent.window_file import RecordedCounter, WindowRecord
from fugu.contract.errors import StatusCode
from fugu.contract.frames import Committed, Gap, StreamCommit, WindowFrame
from fugu.contract.topics import topic_of
from fugu.core.clocks import TickClock
from fugu.core.noise import uniform_below
from fugu.mqtt import Broker, Link
from tests.support.agents import (
    SECOND,
    JumpingClock,
    agent_plan,
    frames_left,
    nowhere,
    run,
    running,
    stream_plan,
    ticks_left,
    window_plan,
    windows_left,
)
from tests.support.brokers import PATIENCE, Mosquitto, await_end, wait_until
from tests.support.processes import Recorder


def seen_in(frame: WindowFrame, observed: list[int]) -> tuple[int, tuple[int, ...]]:
    """How many of the ticks are in a frame's window, and how many of those were high: the odd ones."""
    inside = [tick for tick in observed if frame.first <= tick <= frame.last]
    return len(inside), (sum(tick % 2 for tick in inside),)


def test_every_window_is_kept_once_and_counts_what_was_seen(tmp_path: Path) -> None:
    plan, clock = nowhere(tmp_path), JumpingClock(103 * SECOND)
    run(plan, clock, lambda: clock.now > 200 * SECOND)
    stored = windows_left(plan)
    assert [(f.previous, f.index, f.first, f.length) for f in stored] == [
        (i - 1 if i > 10 else -1, i, 10 * i, 10) for i in range(10, 10 + len(stored))
    ]
    assert len(stored) >= 9
    assert [f.observed for f in stored] == [6, *[10] * (len(stored) - 1)]
    assert [f.counts for f in stored] == [(3,), *[(5,)] * (len(stored) - 1)]


def test_a_policy_that_is_over_releases_nothing_more(tmp_path: Path) -> None:
    plan, clock = nowhere(tmp_path, valid_from=5, valid_until=27), JumpingClock(0)
    run(plan, clock, lambda: clock.now > 100 * SECOND)
    assert [(frame.index, frame.observed) for frame in windows_left(plan)] == [(0, 5), (1, 10)]


def test_a_full_disk_loses_windows_and_repeats_none(tmp_path: Path) -> None:
    plan, clock = nowhere(tmp_path), JumpingClock(0)
    agent = Agent(plan, [ReplaySensor([0.0, 1.0], loop=True)], system_entropy(), clock)
    (pages,) = agent._outbox._db.execute("PRAGMA page_count").fetchone()
    agent._outbox._db.execute(f"PRAGMA max_page_count = {pages + 1}")
    with running(agent) as thread:
        wait_until(lambda: StatusCode.STORAGE_FULL in agent._trouble_codes())
        full = clock.now
        wait_until(lambda: clock.now > full + 300 * SECOND)
        assert thread.is_alive()
        agent._queue_event(lambda: agent._outbox._db.execute("PRAGMA max_page_count = 100000") and None)
        wait_until(lambda: StatusCode.STORAGE_FULL not in agent._trouble_codes())
        room = clock.now
        wait_until(lambda: clock.now > room + 50 * SECOND)
    stored = windows_left(plan)
    indices = [frame.index for frame in stored]
    assert indices == sorted(set(indices))
    assert [frame.previous for frame in stored] == [-1, *indices[:-1]]
    assert max(b - a for a, b in pairwise(indices)) > 10, "the disk was full long enough to lose some"
    committed = ticks_left(plan)
    assert len(set(committed)) == len(committed)
    for frame in stored:
        assert frame.observed <= seen_in(frame, committed)[0], "a tick without a durable symbol was counted"
        assert frame.counts[0] <= seen_in(frame, committed)[1][0]


def test_windows_stay_until_the_gateway_has_them_and_are_sent_again_when_it_misses_them(
    broker: Mosquitto, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sender, "RESEND_SECONDS", 1e6)  # on a busy machine the gateway takes longer than ten seconds
    address = Broker(port=broker.port)
    recorder = Recorder(address, "fugu/2/home/+/window/+")
    gateway = Link(address, client_id="gateway")
    gateway.start()
    wait_until(lambda: gateway.connected)
    stream = stream_plan(windows=(window_plan(),))
    plan = agent_plan(tmp_path, address, stream, forget="committed", drain_seconds=PATIENCE)
    agent = Agent(plan, [ReplaySensor([0.0, 1.0] * 20, loop=False)], system_entropy(), JumpingClock(0))
    thread = threading.Thread(target=agent.run, daemon=True)
    thread.start()
    wait_until(lambda: len(recorder.payloads) == 4)
    # what is not sent yet is not forgotten: the last symbols may come after the last window
    wait_until(lambda: len(agent._sender._sent_at) == 8 and not agent._sender._in_flight)

    def say(*commits: StreamCommit) -> None:
        payload = Committed(commits).encode()
        wait_until(lambda: gateway.publish(topic_of("committed", "home", "watch"), payload) is not None)

    gateway.publish(topic_of("committed", "home", "watch"), b"\x02garbage")
    agent._sender._sent_at.clear()
    say(StreamCommit("hr", 1000, ()), StreamCommit("hr/high", 2, (Gap(0, 1),)))
    wait_until(lambda: len(recorder.payloads) == 5)
    assert recorder.payloads[4] == recorder.payloads[1], "the same bytes"
    assert WindowFrame.decode(recorder.payloads[4]).index == 1
    wait_until(lambda: agent._outbox.frames.depth() == 2)
    assert agent.refused.total() == 1
    say(StreamCommit("hr/high", 3, ()))
    await_end(thread)
    gateway.stop()
    recorder.link.stop()
    assert windows_left(plan) == []


def test_windows_alone_are_all_that_leaves(tmp_path: Path) -> None:
    """No symbols are drawn; ticks are durable all the same, so that none is counted twice after a restart."""
    plan, clock = nowhere(tmp_path, noise=None, frame_ticks=1), JumpingClock(100 * SECOND)
    run(plan, clock, lambda: clock.now > 145 * SECOND)
    assert [(frame.index, frame.observed, frame.counts) for frame in windows_left(plan)][:3] == [
        (10, 9, (5,)),
        (11, 10, (5,)),
        (12, 10, (5,)),
    ]
    assert frames_left(plan) == []
    outbox = Outbox(plan.outbox, plan.fleet, plan.device)
    last = outbox.register(plan.streams[0])
    outbox.close()
    assert last >= 144
    before = windows_left(plan)
    back = JumpingClock((last - 1) * SECOND)
    run(plan, back, lambda: back.now > (last + 25) * SECOND)
    (window,), next_one = plan.streams[0].windows, before[-1].index + 1
    after = next(frame for frame in windows_left(plan) if frame.index == next_one)
    recorded = [tick for tick in range(after.first, last + 1) if window.is_recorded(next_one, tick)]
    lost = range(max(recorded, default=after.first - 1) + 1, last + 1)
    counted = [tick for tick in range(after.first, after.last + 1) if tick not in lost]
    assert (after.observed, after.counts) == seen_in(after, counted), "the record's, and those that come now"


@pytest.mark.parametrize(
    ("windows", "noise", "next_tick", "share"),
    [
        (((0, 10, 10),), False, 5, 19),
        (((0, 10, 10),), False, 10, 19),
        (((3, 10, 10), (0, 4, 4)), False, 5, 11),
        (((0, 100, 100),), True, 7, 7 + 7),
        ((), True, 0, 8),
        ((), False, 0, None),
    ],
)
def test_the_first_share_is_the_first_whole_window_or_the_first_full_frame(
    windows: tuple[tuple[int, int, int], ...], noise: bool, next_tick: int, share: int | None
) -> None:
    plan = stream_plan(
        frame_ticks=8,
        windows=tuple(
            window_plan(name=f"w{at}", start=window[0], length=window[1], stride=window[2])
            for at, window in enumerate(windows)
        ),
        **({} if noise else {"noise": None}),
    )
    clock = TickClock(1_000_000, 500_000)
    draw = uniform_below(system_entropy())
    counted = [RecordedCounter(window, draw, -1) for window in plan.windows]
    sensor = SharedSensor(ReplaySensor([0.0], loop=True))
    stream = Stream(plan, clock, sensor, system_entropy(), next_tick - 1, counted)
    assert stream.first_share_us(1_000_000) == (None if share is None else clock.time_of(share))


@pytest.mark.parametrize(("next_tick", "share"), [(5, 9), (9, 9), (10, 19), (15, 29)])
def test_the_first_share_after_a_restart_is_that_of_the_window_that_goes_on(next_tick: int, share: int) -> None:
    """A record of a window whose time is over is none."""
    plan = stream_plan(windows=(window_plan(name="hour"),), noise=None)
    counted = [RecordedCounter(plan.windows[0], uniform_below(system_entropy()), -1, 0, [WindowRecord(0, 4, 5, (2,))])]
    clock = TickClock(1_000_000, 500_000)
    sensor = SharedSensor(ReplaySensor([0.0], loop=True))
    stream = Stream(plan, clock, sensor, system_entropy(), next_tick - 1, counted)
    assert stream.first_share_us(1_000_000) == clock.time_of(share)
