"""The outbox: a tick once and only once, whatever happens between any two steps."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from edge_agent.outbox import Outbox, OutboxError
from edge_agent.stored_frames import Keeping
from fugu.contract.measure_frames import Released
from fugu.contract.noise_table import NoiseTable
from tests.support.agents import plan_of, stream_plan
from tests.support.measured import measure_policy
from tests.support.outboxes import measure_frames, symbol_frames

PLAN = stream_plan()


BY_TICK = Keeping(by_tick=True)


def new_outbox(folder: Path, keeping: Keeping | None = None) -> Outbox:
    outbox = Outbox(folder / "outbox.sqlite", "home", "watch", keeping)
    outbox.register(PLAN)
    return outbox


@pytest.fixture
def outbox(tmp_path: Path) -> Outbox:
    return new_outbox(tmp_path)


def test_a_frame_ends_before_a_tick_that_is_left_out(outbox: Outbox) -> None:
    for tick in (5, 6, 8, 14, 15, 40):
        outbox.append(PLAN, tick, b"\1")
    outbox.close_frame(PLAN)
    frames = symbol_frames(outbox)
    assert [(f.previous, f.first, f.last, len(f.symbols) + f.padding) for f in frames] == [
        (-1, 5, 6, 10),
        (6, 8, 8, 10),
        (8, 14, 15, 10),
        (15, 40, 40, 10),
    ]
    assert {len(row[0]) for row in outbox._db.execute("SELECT payload FROM frames")} == {45 + 2}
    assert all(frame.symbols == b"\1" * len(frame.symbols) for frame in frames)


def test_frames_of_a_table_have_one_size_whatever_its_symbols_and_the_policy_that_follows(tmp_path: Path) -> None:
    """The size is that of the table the symbols were drawn from, even if the next policy's plan closes the frame."""
    sizes = set()
    for number, symbol in enumerate((0, 1, 2)):
        folder = tmp_path / str(number)
        folder.mkdir()
        outbox = new_outbox(folder, BY_TICK)
        outbox.append(stream_plan(table=NoiseTable(((1, 2), (3, 4)))), 1, bytes((symbol,)))
        outbox.close()
        outbox = new_outbox(folder)
        outbox.append(stream_plan(version=2, frame_ticks=40), 2, b"\0")
        sizes.add(len(outbox._db.execute("SELECT payload FROM frames").fetchone()[0]))
        assert (symbol_frames(outbox)[0].bits, symbol_frames(outbox)[0].symbols) == (2, bytes([symbol]))
    assert sizes == {45 + 3}


def test_an_outbox_that_was_emptied_begins_anew_with_a_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    new_outbox(tmp_path).close()
    new_outbox(tmp_path).close()
    assert not caplog.messages
    (tmp_path / "outbox.sqlite").write_bytes(b"")
    new_outbox(tmp_path).close()
    (line,) = caplog.messages
    assert "was an empty file: if frames were in it, they are lost" in line


def test_a_new_policy_version_begins_a_new_frame(outbox: Outbox) -> None:
    outbox.append(PLAN, 1, b"\0")
    newer = stream_plan(version=2, frame_ticks=4)
    for tick in range(2, 6):
        outbox.append(newer, tick, b"\1")
    assert [(f.policy_version, f.symbols) for f in symbol_frames(outbox)] == [(1, b"\0"), (2, b"\1\1\1\1")]


def test_forgotten_frames_do_not_make_their_ticks_new(outbox: Outbox, tmp_path: Path) -> None:
    for tick in range(10):
        outbox.append(PLAN, tick, b"\0")
    outbox.frames.forget_committed("hr", 9, (), sent_through=100, grace_seconds=0.0)
    outbox.finish()
    outbox.close()
    outbox = Outbox(tmp_path / "outbox.sqlite", "home", "watch")
    assert outbox.register(PLAN) == 9
    outbox.append(PLAN, 10, b"\0")
    outbox.close_frame(PLAN)
    assert symbol_frames(outbox)[0].previous == 9


def test_what_was_drawn_under_a_shift_is_in_a_frame_of_that_shift(outbox: Outbox) -> None:
    for tick in (5, 6):
        outbox.append(PLAN, tick, b"\1")
    outbox.set_shift(PLAN, 60, 66)
    assert [(f.first, f.symbols, f.shift) for f in symbol_frames(outbox)] == [(5, b"\1\1", 0)]
    outbox.append(PLAN, 66, b"\0")
    outbox.finish()
    assert [(f.first, f.symbols, f.shift) for f in symbol_frames(outbox)] == [(5, b"\1\1", 0), (66, b"\0", 60)]


def test_a_stream_of_a_document_that_was_refused_is_new_when_it_comes_again(outbox: Outbox, tmp_path: Path) -> None:
    """The outbox believes its file: else no tick would be reserved, or the old shift come back."""
    power = stream_plan(stream="power")

    def refuse() -> None:
        with outbox.forgets_if_refused():
            outbox.register(power)
            outbox.set_shift(power, 60, 40)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        refuse()
    assert outbox.register(power) == -1
    assert outbox.shift("power") == (0, 0)
    outbox.set_shift(power, 60, 40)
    for tick in range(100, 105):
        outbox.append(power, tick, b"\1")
    outbox.append(PLAN, 7, b"\0")
    outbox._db.close()  # as by SIGKILL
    again = new_outbox(tmp_path)
    assert again.register(power) >= 104
    assert again.shift("power") == (60, 40)
    assert again.register(PLAN) >= 7


def test_an_outbox_of_another_device_or_clock_is_refused(tmp_path: Path) -> None:
    new_outbox(tmp_path).close()
    with pytest.raises(OutboxError, match="belongs to home/watch, not to home/ring"):
        Outbox(tmp_path / "outbox.sqlite", "home", "ring")
    outbox = Outbox(tmp_path / "outbox.sqlite", "home", "watch")
    with pytest.raises(OutboxError, match="the clock of stream hr has changed"):
        outbox.register(stream_plan(period_us=2_000_000))


def test_a_file_that_is_no_outbox_is_refused(tmp_path: Path) -> None:
    (tmp_path / "outbox.sqlite").write_bytes(b"not a database, but long enough to look like one" * 50)
    with pytest.raises(OutboxError, match="cannot open the outbox"):
        Outbox(tmp_path / "outbox.sqlite", "home", "watch")


def test_a_full_disk_loses_the_newest_symbol_at_most(outbox: Outbox) -> None:
    (pages,) = outbox._db.execute("PRAGMA page_count").fetchone()
    outbox._db.execute(f"PRAGMA max_page_count = {pages}")
    stored: list[int] = []

    def fill() -> None:
        for tick in range(100_000):
            outbox.append(PLAN, tick, b"\1")
            stored.append(tick)

    with pytest.raises(sqlite3.OperationalError, match="full"):
        fill()
    outbox._db.execute("PRAGMA max_page_count = 1000000")
    outbox.append(PLAN, stored[-1] + 2, b"\0")
    outbox.close_frame(PLAN)
    seen = [f.first + i for f in symbol_frames(outbox) for i in range(len(f.symbols))]
    assert [tick for tick in seen if tick != stored[-1] + 1] == [*stored, stored[-1] + 2]


def test_the_file_holds_nothing_but_symbols(outbox: Outbox) -> None:
    columns = {
        (table, column)
        for (table,) in outbox._db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        for (_, column, *_rest) in outbox._db.execute(f"PRAGMA table_info({table})")
    }
    assert {column for table, column in columns if table == "pending"} == {
        *("stream", "tick", "output", "version", "frame_ticks", "bits")
    }
    assert {column for table, column in columns if table == "frames"} == {"id", "stream", "previous", "last", "payload"}


def test_points_are_framed_although_the_next_policy_has_longer_frames_of_symbols(tmp_path: Path) -> None:
    outbox = Outbox(tmp_path / "outbox.sqlite", "home", "watch")
    before = plan_of(measure_policy(3), stream="hr", frame_ticks=10)
    outbox.register(before)
    outbox.append(before, 1, Released(0, (3, 4)).packed)
    outbox.append(stream_plan(version=2, frame_ticks=4096), 2, b"\1")
    (frame,) = measure_frames(outbox)
    assert (frame.policy_version, frame.first, frame.released) == (1, 1, (Released(0, (3, 4)),))
