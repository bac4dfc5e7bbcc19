"""A tick is drawn for at most once, whatever dies between any two steps, and although most ticks are in memory only."""

from __future__ import annotations

import os
import random
import shutil
import signal
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_agent.outbox import Outbox, OutboxError
from edge_agent.stored_frames import Keeping, StoredFrames
from fugu.contract.frames import SymbolFrame
from tests.support.agents import stream_plan, window_plan
from tests.support.lives import READS, lives
from tests.support.outboxes import symbol_frames

PLAN = stream_plan(frame_ticks=4, windows=(window_plan(),))


def append_ticks(outbox: Outbox, *ticks: int) -> None:
    for tick in ticks:
        outbox.append(PLAN, tick, b"\1")


def opened(folder: Path, keeping: Keeping | None = None) -> tuple[Outbox, int]:
    outbox = Outbox(folder / "outbox.sqlite", "home", "watch", keeping)
    outbox.register_window("hr", PLAN.windows[0])
    return outbox, outbox.register(PLAN)


def test_nothing_of_a_frame_under_way_is_on_the_disk_but_its_reservation(tmp_path: Path) -> None:
    outbox, _ = opened(tmp_path)
    changes = outbox._db.total_changes
    outbox.append(PLAN, 10, b"\1")
    reserved = outbox._db.total_changes
    assert reserved == changes + 3, "the reservation, and which policy has drawn from tick 10 on"
    append_ticks(outbox, 11, 12)
    assert outbox._db.total_changes == reserved
    outbox.append(PLAN, 13, b"\1")
    sealed = outbox._db.total_changes
    assert sealed == reserved + 2, "the frame, and the stream with the next reservation"
    append_ticks(outbox, 14, 15, 16)
    assert outbox._db.total_changes == sealed
    outbox.close()
    again, last = opened(tmp_path)
    assert last == 17, "the ticks 14 to 17 were reserved, and three of them drawn for"
    assert [(frame.first, frame.last) for frame in symbol_frames(again)] == [(10, 13)]
    with pytest.raises(OutboxError, match="tick 17 of stream hr was committed before"):
        again.append(PLAN, 17, b"\0")


def test_an_orderly_stop_seals_and_gives_back_what_is_reserved(tmp_path: Path) -> None:
    outbox, _ = opened(tmp_path)
    append_ticks(outbox, *range(10, 16))
    outbox.finish()
    outbox.close()
    again, last = opened(tmp_path)
    assert last == 15
    assert [(frame.first, frame.last, frame.padding) for frame in symbol_frames(again)] == [(10, 13, 0), (14, 15, 2)]
    again.finish()
    again.close()
    assert opened(tmp_path)[1] == 15, "who stops without a tick gives back nothing"


@pytest.mark.long
@given(
    steps=st.lists(st.tuples(st.integers(1, 6), st.sampled_from(["", "", "", "crash", "stop", "close"])), max_size=40)
)
@settings(max_examples=20, deadline=None)
@pytest.mark.parametrize("keeping", [Keeping(), Keeping(by_tick=True)], ids=["frame", "tick"])
def test_whatever_crashes_frames_come_out_once_and_in_order(
    tmp_path_factory: pytest.TempPathFactory, keeping: Keeping, steps: list[tuple[int, str]]
) -> None:
    """After a crash the ticks of the frame under way are absent, unless each was stored; none can be drawn again."""
    folder = tmp_path_factory.mktemp("outbox")
    outbox, tick = opened(folder, keeping)
    drawn: dict[int, int] = {}
    under_way: list[int] = []
    for number, (jump, then) in enumerate(steps):
        tick += jump
        if under_way and (tick != under_way[-1] + 1):
            under_way.clear()
        outbox.append(PLAN, tick, bytes((number % 2,)))
        drawn[tick] = number % 2
        under_way = [] if len(under_way) == PLAN.frame_ticks - 1 else [*under_way, tick]
        if then == "close":
            outbox.close_frame(PLAN)
            under_way.clear()
        elif then:
            if then == "stop":
                outbox.finish()
                under_way.clear()
            outbox.close()
            outbox, last = opened(folder, keeping)
            assert last == tick if then == "stop" or keeping.by_tick else tick <= last <= tick + PLAN.frame_ticks
            for lost in () if keeping.by_tick else under_way:
                del drawn[lost]
            under_way.clear()
            tick = last
    outbox.finish()
    frames = symbol_frames(outbox)
    assert {f.first + i: symbol for f in frames for i, symbol in enumerate(f.symbols)} == drawn
    assert sum(len(f.symbols) for f in frames) == len(drawn)
    assert all(len(f.symbols) + f.padding == PLAN.frame_ticks for f in frames)
    assert [f.previous for f in frames] == [-1, *(f.last for f in frames[:-1])][: len(frames)]


def test_what_was_drawn_waits_while_the_disk_takes_nothing_and_no_more_is_drawn(tmp_path: Path) -> None:
    outbox, _ = opened(tmp_path)
    append_ticks(outbox, 10, 11, 12)
    with refusing(outbox):
        with pytest.raises(sqlite3.OperationalError):
            outbox.append(PLAN, 13, b"\0")
        for tick in range(14, 30):
            with pytest.raises(sqlite3.OperationalError):
                outbox.reserve(PLAN, tick)
        assert symbol_frames(outbox) == []
    outbox.append(PLAN, 30, b"\1")
    outbox.finish()
    frames = symbol_frames(outbox)
    assert [(f.first, f.symbols) for f in frames] == [(10, b"\1\1\1\0"), (30, b"\1")]


@contextmanager
def refusing(outbox: Outbox) -> Iterator[None]:
    """A disk that takes nothing."""
    outbox._db.set_authorizer(lambda action, *_: sqlite3.SQLITE_DENY if action == sqlite3.SQLITE_UPDATE else 0)
    real, outbox._db = outbox._db, Denied(outbox._db)
    outbox.frames._db = outbox._db
    try:
        yield
    finally:
        outbox._db = outbox.frames._db = real
        outbox._db.set_authorizer(None)


class Denied:
    """A connection whose changes fail as those of a broken disk do."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    def __getattr__(self, name: str) -> object:
        return getattr(self._db, name)

    def execute(self, statement: str, *parameters: object) -> sqlite3.Cursor:
        if statement.startswith("UPDATE"):
            raise sqlite3.OperationalError("disk I/O error")
        return self._db.execute(statement, *parameters)


# Death between any two statements


def _live(folder: Path, kill_at: int, keeping: Keeping) -> None:
    diary = os.open(folder / "diary", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    statements = 0
    connect = sqlite3.connect

    def died(statement: str) -> None:
        nonlocal statements
        statements += READS.match(statement) is None
        if statements == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)

    def connected(*arguments: object, **options: object) -> sqlite3.Connection:
        db: sqlite3.Connection = connect(*arguments, **options)
        db.set_trace_callback(died)
        return db

    sqlite3.connect = connected
    outbox, tick = opened(folder, keeping)
    sent = 0
    for number in range(11):
        tick += 1 if number != 6 else 3
        outbox.reserve(PLAN, tick)
        symbol = random.SystemRandom().randrange(2)
        os.write(diary, f"drawn {tick} {symbol}\n".encode())
        outbox.append(PLAN, tick, bytes((symbol,)))
        if number == 4:
            index = outbox.register_window("hr", PLAN.windows[0]) + 1
            outbox.append_windows(PLAN, [(PLAN.windows[0], index, 1, (0,))])
        while (frame := outbox.frames.next(sent)) is not None:
            sent = frame.id
            if frame.sequence == "hr":
                os.write(diary, f"sent {frame.payload.hex()}\n".encode())
                last = SymbolFrame.decode(frame.payload).last
                outbox.frames.forget_committed("hr", last, (), sent_through=sent, grace_seconds=0.0)
            else:
                outbox.frames.forget(sent)
    outbox.finish()
    outbox.close()
    os._exit(0)


@pytest.mark.long
@pytest.mark.parametrize(
    "keeping", [Keeping(), pytest.param(Keeping(by_tick=True), marks=pytest.mark.soak)], ids=["frame", "tick"]
)
def test_a_device_killed_before_every_statement_draws_no_tick_twice(tmp_path: Path, keeping: Keeping) -> None:
    """Its clock stands still meanwhile: each life begins as early as its outbox allows."""
    kill_at = 1
    with lives(_live) as live:
        while not live(tmp_path, kill_at, keeping):
            kill_at += 1
            assert kill_at < 1000
    assert kill_at > 20
    words = [line.split() for line in (tmp_path / "diary").read_text().splitlines()]
    drawn = {int(word[1]): int(word[2]) for word in words if word[0] == "drawn"}
    if not keeping.by_tick:  # there a tick is drawn again that was not committed, and which nobody can have seen
        assert len(drawn) == sum(word[0] == "drawn" for word in words), "a tick was drawn for twice"
    sent = [SymbolFrame.decode(bytes.fromhex(word[1])) for word in words if word[0] == "sent"]
    assert len(sent) > len(set(sent)) > 3
    published: dict[int, int] = {}
    for frame in set(sent):
        for i, symbol in enumerate(frame.symbols):
            assert drawn[frame.first + i] == symbol
            assert frame.first + i not in published, "a tick is in two frames"
            published[frame.first + i] = symbol


# A power cut: what was not flushed is gone


@pytest.mark.long
@given(jumps=st.lists(st.integers(1, 5), min_size=1, max_size=30), stops=st.sets(st.integers(0, 30), max_size=3))
@settings(max_examples=12, deadline=None)
def test_after_a_power_cut_no_tick_is_drawn_again_and_nothing_that_was_sent_has_changed(
    tmp_path_factory: pytest.TempPathFactory, jumps: list[int], stops: set[int]
) -> None:
    """The files as of each flush are all that outlasts a cut before the next one."""
    folder = tmp_path_factory.mktemp("device")
    copies: list[Path] = []

    def keep() -> None:
        copies.append(folder / f"after{len(copies)}")
        copies[-1].mkdir()
        for file in folder.glob("outbox.sqlite*"):
            shutil.copy(file, copies[-1])

    outbox, tick = opened(folder)
    drawn: list[tuple[int, int]] = []
    sent: list[tuple[int, bytes]] = []
    with after_each_flush(keep):
        keep()
        for number, jump in enumerate(jumps):
            tick += jump
            outbox.reserve(PLAN, tick)
            drawn.append((len(copies), tick))
            outbox.append(PLAN, tick, bytes((number % 2,)))
            if number in stops:
                outbox.close_frame(PLAN)
            newest = None
            while (frame := outbox.frames.next(newest.id if newest else 0)) is not None:
                newest = frame
            if newest is not None:
                sent.append((len(copies), newest.payload))
    outbox.close()
    for number, copy in enumerate(copies, 1):
        again, last = opened(copy)
        assert all(tick <= last for flushes, tick in drawn if flushes <= number)
        there = {frame.payload for frame in map(again.frames.next, range(len(jumps) + 1)) if frame is not None}
        assert {payload for flushes, payload in sent if flushes <= number} <= there
        again.close()


@contextmanager
def after_each_flush(action: Callable[[], None]) -> Iterator[None]:
    """Do something after each transaction that was forced to disk."""
    changing = StoredFrames.transaction

    @contextmanager
    def watched(frames: StoredFrames, *, is_forced: bool) -> Iterator[None]:
        outermost = not frames._db.in_transaction
        with changing(frames, is_forced=is_forced):
            yield
        if is_forced and outermost:
            action()

    StoredFrames.transaction = watched
    try:
        yield
    finally:
        StoredFrames.transaction = changing


def test_what_was_drawn_for_the_ticks_of_a_window_is_forced_to_disk_with_its_counts(tmp_path: Path) -> None:
    outbox, _ = opened(tmp_path)
    for tick in range(10, 13):
        outbox.append(PLAN, tick, b"\1")
        if tick < 12:
            outbox.append_windows(PLAN, [(PLAN.windows[0], tick, 1, (0,))])
    outbox.close()
    again, last = opened(tmp_path)
    assert last == 13
    again.append(PLAN, 14, b"\0")
    again.finish()
    assert [(f.first, f.symbols, f.padding) for f in symbol_frames(again)] == [(10, b"\1\1", 2), (14, b"\0", 3)]
