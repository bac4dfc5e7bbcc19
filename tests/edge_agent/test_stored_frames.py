"""Contents of an outbox: how long it keeps them, and which go when it is full."""

from __future__ import annotations

from pathlib import Path

import pytest

from edge_agent.agent import Agent
from edge_agent.local_control import status_words
from edge_agent.outbox import Outbox, OutboxFullError
from edge_agent.randomiser import system_entropy
from edge_agent.sensors.replay import ReplaySensor
from edge_agent.stored_frames import Keeping, StoredFrames
from fugu.contract.errors import StatusCode
from fugu.contract.frames import Gap
from fugu.mqtt import Broker
from tests.support.agents import SECOND, JumpingClock, agent_plan, stream_plan, ticks, window_plan
from tests.support.outboxes import symbol_frames, window_frames

PLAN = stream_plan(frame_ticks=4, windows=(window_plan(),))
POWER = stream_plan(stream="power", frame_ticks=4)


class Hours:
    """A monotonic clock that is set by hand, in hours."""

    now = 0.0

    def __call__(self) -> float:
        return self.now * 3600


def outbox_of(folder: Path, frames: int, keeping: Keeping | None = None) -> tuple[Outbox, Hours]:
    """Frames of the ticks 0..3, 4..7 and so on."""
    outbox, hours = Outbox(folder / "outbox.sqlite", "home", "watch", keeping), Hours()
    outbox.frames._now = hours
    outbox.register(PLAN)
    outbox.register_window("hr", PLAN.windows[0])
    outbox.register(POWER)
    for tick in range(4 * frames):
        outbox.append(PLAN, tick, b"\1")
    return outbox, hours


def on_disk(outbox: Outbox) -> list[int]:
    return [row[0] for row in outbox._db.execute("SELECT last FROM frames ORDER BY id")]


def seal(outbox: Outbox, first: int) -> None:
    for tick in range(first, first + 4):
        outbox.append(POWER, tick, b"\0")


def test_a_forged_watermark_deletes_no_frame_within_the_time_of_grace(tmp_path: Path) -> None:
    """The gateway's next word brings the frames back that it misses: those in its gaps, and those above it."""
    outbox, hours = outbox_of(tmp_path, 5)
    everything = [frame.first for frame in symbol_frames(outbox)]
    assert outbox.frames.forget_committed("hr", 2**53, (), sent_through=5, grace_seconds=3600.0) == (5, [])
    assert outbox.frames.depth() == 0
    assert symbol_frames(outbox) == []
    hours.now = 0.9
    seal(outbox, 100)
    assert on_disk(outbox) == [3, 7, 11, 15, 19, 103]
    assert outbox.frames.forget_committed("hr", 11, (Gap(3, 7),), sent_through=5, grace_seconds=3600.0) == (0, [2])
    assert outbox.frames.depth() == 4
    assert [frame.first for frame in symbol_frames(outbox)] == [4, 12, 16, 100]
    assert outbox.frames.forget_committed("hr", 19, (), sent_through=5, grace_seconds=3600.0) == (3, [])
    hours.now = 1.1
    seal(outbox, 104)
    assert on_disk(outbox) == [7, 15, 19, 103, 107], "what was covered since the forgery, and no gap since, has gone"
    hours.now = 2.0
    seal(outbox, 108)
    assert on_disk(outbox) == [103, 107, 111]
    assert everything == [0, 4, 8, 12, 16]


def test_what_is_forgotten_waits_for_the_next_transaction_and_comes_back_after_a_crash(tmp_path: Path) -> None:
    outbox, _ = outbox_of(tmp_path, 5)
    changes = outbox._db.total_changes
    outbox.frames.forget_committed("hr", 11, (), sent_through=5, grace_seconds=0.0)
    outbox.frames.forget(4)
    outbox.frames.forget(77)
    assert (outbox._db.total_changes, outbox.frames.depth()) == (changes, 1)
    seal(outbox, 100)
    assert on_disk(outbox) == [19, 103]
    assert outbox.frames.depth() == 2
    outbox.frames.forget_committed("hr", 19, (), sent_through=5, grace_seconds=0.0)
    outbox._db.close()  # as by SIGKILL
    again, _ = outbox_of(tmp_path, 0)
    assert again.frames.depth() == 2


def test_the_watermark_s_counter_is_stored_with_the_next_frame(tmp_path: Path) -> None:
    outbox, _ = outbox_of(tmp_path, 1)
    changes = outbox._db.total_changes
    outbox.counter = 2**64 - 1
    assert outbox._db.total_changes == changes
    seal(outbox, 100)
    outbox._db.close()
    again, _ = outbox_of(tmp_path, 0)
    assert again.counter == 2**64 - 1
    again.counter = 3
    again.close()
    assert outbox_of(tmp_path, 0)[0].counter == 3, "an orderly end stores it"


@pytest.mark.long
def test_many_covered_frames_do_not_fill_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edge_agent.stored_frames.MOST_COVERED", most := 1_000)
    outbox, _ = outbox_of(tmp_path, 0)
    with outbox.frames.transaction(is_forced=False):
        for tick in range(most + 10):
            outbox.frames.add("hr", tick - 1, tick, b"\1")
    outbox.frames.forget_committed("hr", 2**53, (), sent_through=2**53, grace_seconds=3600.0)
    assert outbox.frames.covered_count == most // 2
    assert len(on_disk(outbox)) == most // 2
    assert outbox.frames.depth() == 0


# Full


SMALL = 1 << 15


def fill(outbox: Outbox, first: int) -> int:
    """Draw until there is no room; the tick that could not be drawn."""
    for tick in range(first, first + 100_000):
        try:
            outbox.reserve(PLAN, tick)
        except OutboxFullError:
            return tick
        outbox.append(PLAN, tick, bytes((tick % 2,)))
    raise AssertionError("it is never full")


@pytest.mark.long
@pytest.mark.parametrize("by_tick", [False, True])
def test_a_full_outbox_keeps_the_oldest_and_draws_no_more_until_there_is_room(tmp_path: Path, by_tick: bool) -> None:
    outbox, _ = outbox_of(tmp_path, 0, Keeping(by_tick, SMALL))
    end = fill(outbox, 0)
    assert outbox.frames.used_bytes() <= SMALL
    assert outbox.path.stat().st_size <= SMALL
    assert end > SMALL / 70 * 4 / 2
    changes = outbox._db.total_changes
    assert fill(outbox, end + 50) == end + 50
    assert outbox._db.total_changes == changes, "nothing is written while it is full"
    with pytest.raises(OutboxFullError):
        outbox.append_windows(PLAN, [(PLAN.windows[0], 3, 1, (0,))])
    assert window_frames(outbox) == []
    assert symbol_frames(outbox)[0].first == 0
    outbox.frames.forget_committed("hr", 399, (), sent_through=10**6, grace_seconds=3600.0)
    again = fill(outbox, end + 60)
    assert again >= end + 60 + 300, "the time of grace is over when the room is needed"
    assert symbol_frames(outbox)[0].first == 400
    outbox.finish()
    stored = ticks(symbol_frames(outbox))
    assert stored == [*range(400, end), *range(end + 60, again)]


@pytest.mark.long
def test_the_oldest_are_dropped_and_those_after_them_account_for_their_ticks(tmp_path: Path) -> None:
    outbox, _ = outbox_of(tmp_path, 0, Keeping(max_bytes=SMALL, drop_oldest=True))
    seal(outbox, 0)
    for index in (0, 1, 5):
        outbox.append_windows(PLAN, [(PLAN.windows[0], index, 1, (index,))])
    for tick in range(2000):
        outbox.append(PLAN, tick, bytes((tick % 2,)))
    assert outbox.path.stat().st_size <= SMALL
    frames = symbol_frames(outbox)
    assert [(f.previous, f.first) for f in frames if f.first == 0] == [(-1, 0)], "the last one of a sequence stays"
    mine = [frame for frame in frames if frame.first > 0]
    assert (mine[0].previous, mine[-1].last) == (-1, 1999)
    assert [f.previous for f in mine[1:]] == [f.last for f in mine[:-1]]
    assert all(f.symbols == b"\0\1\0\1" for f in mine)
    assert [(f.previous, f.index, f.counts) for f in window_frames(outbox)] == [(-1, 5, (5,))]
    assert outbox.frames.dropped == 500 - len(mine) + 2
    outbox.close()
    again = Outbox(tmp_path / "outbox.sqlite", "home", "watch")
    assert again.frames.depth() == len(mine) + 2


@pytest.mark.long
def test_a_device_says_that_its_outbox_is_full_and_how_much_it_has_lost(tmp_path: Path) -> None:
    plan = agent_plan(tmp_path, Broker(port=9), PLAN, max_bytes=SMALL)
    clock = JumpingClock(0)
    agent = Agent(plan, [ReplaySensor([0.0], loop=True)], system_entropy(), clock)
    for _ in range(2_500):
        clock.now += SECOND
        agent._ticker.catch_up()
    assert agent._trouble_codes() == (StatusCode.STORAGE_FULL,)
    stream = agent._ticker.streams[0]
    assert agent._ticker.not_drawn + len(ticks(symbol_frames(agent._outbox))) == stream.ticks == 2_500
    assert f"{agent._ticker.not_drawn} ticks were not drawn for" in status_words(agent._status_document(), {})


def test_a_transaction_that_fails_changes_nothing_of_what_is_counted(tmp_path: Path) -> None:
    outbox, _ = outbox_of(tmp_path, 3)
    frames: StoredFrames = outbox.frames
    outbox.frames.forget(1)

    def fails() -> None:
        with frames.transaction(is_forced=True):
            frames.add("hr", 0, 1, b"\1")
            frames._drop_oldest()
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fails()
    assert (frames.depth(), frames.covered_count, frames.dropped) == (2, 1, 0)
    assert on_disk(outbox) == [3, 7, 11]
