"""Counts of windows under way on a device's disk: what goes on after a restart, what never does, and what is seen."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from edge_agent.device_clock import DeviceClock
from edge_agent.outbox import Outbox, OutboxError
from edge_agent.plan import ClockSettings, StreamPlan
from edge_agent.randomiser import system_entropy
from edge_agent.sensors.replay import ReplaySensor
from edge_agent.stored_frames import Keeping
from edge_agent.ticker import Ticker
from edge_agent.window_file import WindowFile, WindowRecord
from fugu.contract.compiled import AgentWindow
from fugu.contract.compiler import compile_discretiser
from fugu.contract.discretisers import Baseline, Thresholds
from fugu.contract.errors import StatusCode
from fugu.contract.frames import WindowFrame
from fugu.core.policy import NONE
from tests.support.agents import SECOND, JumpingClock, stream_plan, ticks, window_plan
from tests.support.entropy import seeded
from tests.support.lives import READS, lives
from tests.support.outboxes import symbol_frames, window_frames
from tests.support.soak import only

NOISY = {"numerator": 1000, "denominator": 1}
HOUR = window_plan(length=40, stride=40)
BY_TICK = Keeping(by_tick=True)


class Device:
    """An agent's outbox and ticks without its link; its sensor has odd ticks in the second state, unless told."""

    def __init__(
        self,
        folder: Path,
        *windows: AgentWindow,
        at: int = 0,
        readings: Sequence[float] = (0.0, 1.0),
        seed: int | None = None,
        keeping: Keeping = BY_TICK,
        **changes: Any,
    ) -> None:
        folder.mkdir(exist_ok=True)
        self._restarted = partial(Device, folder, *windows, readings=readings, seed=seed, keeping=keeping, **changes)
        self.plan = stream_plan(windows=windows, **{"frame_ticks": 1, **changes})
        self.outbox = Outbox(folder / "outbox.sqlite", "home", "watch", keeping)
        self.clock = JumpingClock((at - 1) * SECOND)  # no tick comes earlier than a period after the start
        clock = DeviceClock(self.clock, ClockSettings(trusted=True), self.outbox.anchor(), self.outbox.keep_anchor)
        entropy = system_entropy() if seed is None else seeded(seed)
        self.ticker = Ticker(self.outbox, clock, entropy, lambda _seconds: None)
        self.ticker.begin([self.plan], [ReplaySensor([*readings], loop=True)])
        self.ticker.catch_up()

    def tick(self, *at: int) -> None:
        """Let ticks come, one after the other; those between them are absent."""
        for tick in at:
            self.clock.now = tick * SECOND + SECOND // 8
            self.ticker.catch_up()
            self.ticker.prepare()

    def killed(self) -> None:
        """End without a word: what is in memory is gone."""
        self.outbox._db.close()

    def restarted(self, at: int) -> Device:
        """Kill the agent, and start another one before tick `at`."""
        self.killed()
        return self._restarted(at=at)

    def frames(self) -> list[tuple[int, int, tuple[int, ...]]]:
        return [(frame.index, frame.observed, frame.counts) for frame in window_frames(self.outbox)]


def stored_records(folder: Path, plan: StreamPlan) -> dict[tuple[str, str], list[WindowRecord]]:
    """The records as the disk has them, read from a copy."""
    copy = folder.with_name(f"{folder.name}-looked-at")
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(folder, copy)
    outbox = Outbox(copy / "outbox.sqlite", "home", "watch")
    try:
        return WindowFile(outbox.path, outbox.salt()).begin([plan])
    finally:
        outbox.close()


@pytest.fixture
def device(tmp_path: Path) -> Device:
    return Device(tmp_path, HOUR)


@pytest.mark.parametrize("more", [{}, {"keeping": Keeping(), "noise": None}])
def test_a_window_under_way_goes_on_after_a_kill_with_what_its_last_quarter_had(
    tmp_path: Path, more: dict[str, Any]
) -> None:
    """Ticks 0 to 19 are in its record; 20 to 24 were counted in memory only, and 25 to 29 never came."""
    device = Device(tmp_path, HOUR, **more)
    device.tick(*range(25))
    device = device.restarted(30)
    device.tick(*range(30, 81))
    assert device.frames() == [(0, 30, (15,)), (1, 40, (20,))]


def test_a_second_kill_loses_no_more_than_since_the_last_quarter(device: Device) -> None:
    device.tick(*range(12))
    for begin, end in ((12, 15), (15, 21), (21, 29), (29, 40)):
        device = device.restarted(begin)
        device.tick(*range(begin, end))
    observed = [*range(10), *range(15, 20), *range(29, 40)]  # 0-9, then 15-19 on top of it, then 29-39
    assert device.frames() == [(0, len(observed), (sum(tick % 2 for tick in observed),))]


def test_overlapping_windows_and_histograms_go_on_side_by_side(tmp_path: Path) -> None:
    bars = window_plan(name="bars", length=12, stride=4, counts=2, places=(0, 1))
    device = Device(tmp_path, HOUR, bars)
    device.tick(*range(31))
    device = device.restarted(31)
    device.tick(*range(31, 44))
    frames = {(frame.window, frame.index): frame for frame in window_frames(device.outbox)}
    assert frames["high", 0].observed == 39, "tick 30 came after the third quarter"
    assert [frames["bars", index].observed for index in (5, 6, 7, 8)] == [10, 11, 12, 12]
    assert all(sum(frames["bars", index].counts) == frames["bars", index].observed for index in range(9))
    assert {record.index for record in stored_records(tmp_path, device.plan)["hr", "bars"]} <= {9, 10}


def test_noise_is_drawn_once_a_window_however_often_the_agent_starts(tmp_path: Path) -> None:
    """The difference of record and release is what was counted in between: it is the same noise."""
    device = Device(tmp_path, window_plan(length=40, **NOISY))
    device.tick(*range(20))
    ((record,),) = stored_records(tmp_path, device.plan).values()
    device = device.restarted(20)
    device.tick(*range(20, 40))
    ((index, observed, counts),) = device.frames()
    assert (index, observed, counts[0] - record.counts[0]) == (0, 40, 10)


def test_the_record_is_written_as_quarters_end_and_blank_before_the_frame_is_made(
    device: Device, tmp_path: Path
) -> None:
    name = ("hr", "high")
    assert stored_records(tmp_path, device.plan) == {}
    through = []
    for tick in range(40):
        device.tick(tick)
        through += [record.through for record in stored_records(tmp_path, device.plan).get(name, ())]
    assert sorted(set(through)) == [9, 19, 29]
    assert stored_records(tmp_path, device.plan) == {}
    assert len(device.frames()) == 1
    assert set((tmp_path / "outbox.sqlite.windows").read_bytes()) == {0}


@pytest.mark.parametrize("length", range(1, 14))
def test_a_window_of_any_length_is_written_three_times_at_most(length: int) -> None:
    plan = window_plan(length=length, start=5)
    written = [tick for tick in range(5, 5 + length) if plan.is_recorded(0, tick)]
    assert len(written) == min(3, length - 1)
    assert 5 + length - 1 not in written


# What never goes on


def changed(device: Device, **changes: Any) -> StreamPlan:
    return replace(device.plan, **changes)


@pytest.mark.parametrize(
    "changes",
    [
        {"version": 2},
        {"windows": (window_plan(length=40, numerator=2),)},
        {"windows": (window_plan(length=40, denominator=101),)},
        {"windows": (window_plan(length=40, places=(0, NONE)),)},
        {"windows": (window_plan(length=40, counts=2, places=(0, 1)),)},
        {"discretiser": compile_discretiser(Thresholds(edges=(0.7,), states=("low", "high")))},
    ],
)
@pytest.mark.parametrize("switched", [True, False])
def test_under_another_policy_an_open_count_is_over_and_its_noise_is_never_used(
    tmp_path: Path, changes: dict[str, Any], switched: bool
) -> None:
    device = Device(tmp_path, HOUR, seed=3)
    device.tick(*range(21))
    plan = changed(device, **changes)
    if switched:
        device.ticker.switch([plan], lambda: None)
    else:
        device.killed()
        options = {key: value for key, value in changes.items() if key != "windows"}
        device = Device(tmp_path, *plan.windows, at=21, **options)
    assert stored_records(tmp_path, device.plan) == stored_records(tmp_path, plan) == {}
    device.tick(*range(21, 40))
    assert [(index, observed) for index, observed, _ in device.frames()] == [(0, 19)]


def test_a_policy_that_is_refused_ends_no_count(device: Device, tmp_path: Path) -> None:
    device.tick(*range(21))

    def refuse() -> None:
        raise OSError("no room for it")

    with pytest.raises(OSError, match="no room"):
        device.ticker.switch([changed(device, version=2)], refuse)
    assert stored_records(tmp_path, device.plan) != {}
    device.tick(*range(21, 40))
    assert device.frames() == [(0, 40, (20,))]


def test_a_record_that_was_put_back_sends_no_second_count(device: Device, tmp_path: Path) -> None:
    device.tick(*range(20))
    shutil.copy(tmp_path / "outbox.sqlite.windows", tmp_path / "copy")
    device.tick(*range(20, 40))
    released = device.frames()
    shutil.copy(tmp_path / "copy", tmp_path / "outbox.sqlite.windows")
    device = device.restarted(40)
    assert device.ticker.streams[0].counters[0].counts == {}
    device.tick(*range(40, 81))
    assert device.frames() == [*released, (1, 40, (20,))]


def test_a_record_put_back_before_its_window_was_sent_counts_no_tick_twice(device: Device, tmp_path: Path) -> None:
    device.tick(*range(10))
    shutil.copy(tmp_path / "outbox.sqlite.windows", tmp_path / "copy")
    device.tick(*range(10, 25))
    shutil.copy(tmp_path / "copy", tmp_path / "outbox.sqlite.windows")
    device = device.restarted(25)
    device.tick(*range(25, 40))
    assert device.frames() == [(0, 25, (13,))]


@pytest.mark.parametrize("back", [40, 41, 60, 1000])
def test_a_whole_disk_that_is_put_back_after_the_windows_end_sends_nothing_of_it(tmp_path: Path, back: int) -> None:
    """Neither the outbox nor the record knows then that the count was sent; the clock does."""
    device = Device(tmp_path / "disk", HOUR)
    device.tick(*range(25))
    shutil.copytree(tmp_path / "disk", tmp_path / "copy")
    device.tick(*range(25, 40))
    assert len(device.frames()) == 1
    device.killed()
    device = Device(tmp_path / "copy", HOUR, at=back)
    device.tick(*range(back, back + 81))
    assert 0 not in {index for index, _, _ in device.frames()}


def test_a_window_whose_last_tick_comes_first_after_a_restart_is_sent_and_one_later_is_not(tmp_path: Path) -> None:
    for name, at in (("in time", 39), ("late", 40)):
        device = Device(tmp_path / name, HOUR)
        device.tick(*range(30))
        device = device.restarted(at)
        device.tick(*range(at, 45))
        assert device.frames() == ([(0, 31, (16,))] if at == 39 else [])


def test_a_record_is_of_no_use_beside_another_outbox_or_an_older_one(tmp_path: Path) -> None:
    device = Device(tmp_path / "a", HOUR)
    device.tick(*range(8))
    shutil.copytree(tmp_path / "a", tmp_path / "older")
    device.tick(*range(8, 20))
    device.killed()
    (tmp_path / "b").mkdir()
    for other in ("older", "b"):
        shutil.copy(tmp_path / "a" / "outbox.sqlite.windows", tmp_path / other)
        device = Device(tmp_path / other, HOUR, at=20)
        device.tick(*range(20, 40))
        assert device.frames() == [(0, 20, (10,))]


def test_a_torn_record_or_one_of_another_slot_is_none(tmp_path: Path) -> None:
    device = Device(tmp_path, window_plan(length=40, stride=20, **NOISY))
    device.tick(*range(20))
    device.killed()
    file = tmp_path / "outbox.sqlite.windows"
    whole = file.read_bytes()
    size = len(whole) // 2
    assert len(stored_records(tmp_path, device.plan)["hr", "high"]) == 1
    for at in range(size):
        file.write_bytes(whole[:at] + bytes((whole[at] ^ 1,)) + whole[at + 1 :])
        assert stored_records(tmp_path, device.plan) == {}
    for cut in (0, 1, size // 2, size - 1):
        file.write_bytes(whole[:cut])
        assert stored_records(tmp_path, device.plan) == {}
    file.write_bytes(whole[size:] + whole[:size])
    assert stored_records(tmp_path, device.plan) == {}


def test_after_a_clock_that_was_set_no_record_of_before_goes_on(tmp_path: Path) -> None:
    """The numbers of the ticks mean other moments then."""
    device = Device(tmp_path, window_plan(length=4000, stride=4000))
    device.tick(*range(1990, 2005))
    device = device.restarted(100)
    device.tick(*range(100, 200))
    assert device.outbox.shift("hr")[0] > 0
    assert device.ticker.streams[0].counters[0].counts == {}


def test_a_baselines_mean_is_in_no_record_and_its_first_ticks_are_in_no_count(tmp_path: Path) -> None:
    discretiser = compile_discretiser(Baseline(baseline_ticks=8, lowest=0.0, highest=2.0))
    files = []
    for name, readings in (("a", (0.5, 1.5)), ("b", (0.9, 1.1))):
        device = Device(tmp_path / name, HOUR, readings=readings, discretiser=discretiser, seed=5)
        device.tick(*range(25))
        files.append((tmp_path / name / "outbox.sqlite.windows").read_bytes()[16:])
        device = device.restarted(25)
        device.tick(*range(25, 40))
        ((_, observed, _),) = device.frames()
        assert observed == (20 - 8) + (15 - 8)
    assert files[0] == files[1], "equal states leave equal bytes, whatever the mean was"


# What is seen of it


@pytest.mark.parametrize("other", [(0.0,), (1.0,), (float("nan"),), (0.0, 1.0, 1.0)])
def test_when_and_where_is_written_depends_on_ticks_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, other: tuple[float, ...]
) -> None:
    """With the same noise, records are as far apart as the partial counts are; nothing else differs."""
    windows = window_plan(length=12, stride=5, **NOISY), window_plan(name="day", length=64, **NOISY)
    seen: list[list[tuple[int, int, int]]] = []
    records: list[list[list[WindowRecord]]] = []
    pwrite = os.pwrite

    def watched(file: int, piece: bytes, offset: int) -> int:
        seen[-1].append((tick, offset, len(piece)))
        return pwrite(file, piece, offset)

    monkeypatch.setattr(os, "pwrite", watched)
    for name, readings in (("a", (0.0, 1.0)), ("b", other)):
        seen.append([])
        records.append([])
        tick = -1
        device = Device(tmp_path / name, *windows, readings=readings, seed=9)
        for tick in range(60):
            device.tick(tick)
            if tick % 7 == 0:
                records[-1] += stored_records(tmp_path / name, device.plan).values()
    assert len(seen[0]) > 30
    assert seen[0] == seen[1]
    for record, two in zip(*records, strict=True):
        for mine, yours in zip(record, two, strict=True):
            assert (mine.index, mine.through, mine.observed) == (yours.index, yours.through, yours.observed)
            assert abs(mine.counts[0] - yours.counts[0]) <= mine.observed


def test_a_record_is_the_noisy_count_and_the_outbox_never_has_it(tmp_path: Path) -> None:
    day = window_plan(length=64, numerator=10**9, denominator=1)
    device = Device(tmp_path, day)
    device.tick(*range(50))
    ((record,),) = stored_records(tmp_path, device.plan).values()
    assert (record.index, record.through, record.observed) == (0, 47, 48)
    assert abs(record.counts[0]) > 48, "next to all noise"
    (count,) = device.ticker.streams[0].counters[0].counts.values()
    assert count.look(-(2**80), 2**80)[0] - record.counts[0] == 1
    raw = abs(record.counts[0]).to_bytes(9, "big").lstrip(b"\0")
    for file in tmp_path.glob("outbox.sqlite*"):
        if not file.name.endswith(".windows"):
            assert raw not in file.read_bytes()
            assert raw[::-1] not in file.read_bytes()


def test_counts_beyond_what_a_frame_holds_are_kept_as_far_as_ticks_can_bring_them_back(tmp_path: Path) -> None:
    plan = stream_plan(windows=(window_plan(counts=3),))
    file = WindowFile(tmp_path / "outbox", b"salt")
    file.begin([plan])
    edge = WindowRecord(4, 44, 5, (-(2**63) - 2**31, 2**63 - 1, 0))
    file.keep(plan, [(plan.windows[0], edge)])
    assert WindowFile(tmp_path / "outbox", b"salt").begin([plan]) == {("hr", "high"): [edge]}
    assert WindowFile(tmp_path / "outbox", b"other").begin([plan]) == {}


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_the_file_is_its_owners_alone_whatever_the_umask_and_whatever_it_was(tmp_path: Path, umask: int) -> None:
    file = tmp_path / "outbox.sqlite.windows"
    before = os.umask(umask)
    try:
        device = Device(tmp_path, HOUR)
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        file.chmod(0o644)
        device.tick(*range(10))
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        device.killed()
        file.unlink()
        file.symlink_to(tmp_path / "elsewhere")
        with pytest.raises(OutboxError, match="cannot use the windows of outbox"):
            Device(tmp_path, HOUR, at=10)
        assert not (tmp_path / "elsewhere").exists()
    finally:
        os.umask(before)


def test_no_file_is_made_where_nothing_is_counted(tmp_path: Path) -> None:
    Device(tmp_path).tick(*range(10))
    assert [file.name for file in tmp_path.glob("*.windows")] == []


# A disk that takes nothing


@contextmanager
def broken(monkeypatch: pytest.MonkeyPatch, error: int) -> Iterator[None]:
    def refuse(*_: object) -> int:
        raise OSError(error, os.strerror(error))

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", refuse)
        yield


def test_a_count_whose_record_cannot_be_made_blank_is_not_sent(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would be a second look at what the disk has still."""
    device.tick(*range(25))
    with broken(monkeypatch, 28):
        device.tick(*range(25, 40))
        assert device.ticker.storage_trouble == StatusCode.STORAGE_FULL
        device.tick(*range(40, 45))
    device.tick(*range(45, 80))
    assert device.frames() == [(1, 40, (20,))]
    assert len(ticks(symbol_frames(device.outbox))) == 80, "symbols are drawn all the same"


def test_a_record_that_cannot_be_written_costs_no_count_while_the_agent_runs(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    device.tick(*range(5))
    with broken(monkeypatch, 5):
        device.tick(*range(5, 35))
    device.tick(*range(35, 40))
    assert device.frames() == [(0, 40, (20,))]


# Death between any two steps


LIVES = (window_plan(length=16, stride=16), window_plan(name="sliding", length=30, stride=11))


def _live(folder: Path, at: int, ticks: int, kill_at: int, keeping: Keeping) -> None:
    steps = 0
    connect, write = sqlite3.connect, os.pwrite

    def step(*_: Any) -> None:
        nonlocal steps
        steps += 1
        if steps == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)

    def torn(file: int, piece: bytes, offset: int) -> int:
        step()
        if steps == kill_at - 1:  # half of a record reaches the disk
            write(file, piece[: len(piece) // 2], offset)
        step()
        return write(file, piece, offset)

    def connected(*arguments: object, **options: object) -> sqlite3.Connection:
        db: sqlite3.Connection = connect(*arguments, **options)
        db.set_trace_callback(lambda text: None if READS.match(text) else step())
        return db

    sqlite3.connect = connected
    os.pwrite = torn
    for name in ("open", "fsync", "ftruncate"):
        setattr(os, name, _after(step, getattr(os, name)))
    device = Device(folder, *LIVES, at=at, keeping=keeping, frame_ticks=2)
    counters = device.ticker.streams[0].counters
    resumed = {(counter.window.name, index) for counter in counters for index in counter.counts}
    with (folder / "resumed").open("a") as diary:
        diary.writelines(f"{name} {index}\n" for name, index in resumed)
    device.tick(*range(at, at + ticks))
    os._exit(0)


def _after(step: Callable[..., None], call: Callable[..., Any]) -> Callable[..., Any]:
    def stepped(*arguments: Any, **options: Any) -> Any:
        step(*arguments)
        return call(*arguments, **options)

    return stepped


@pytest.mark.long
@pytest.mark.parametrize("life", only([5], [5, 7, 12]))
@pytest.mark.parametrize(
    "keeping", [pytest.param(Keeping(), marks=pytest.mark.soak), Keeping(by_tick=True)], ids=["frame", "tick"]
)
def test_a_device_killed_before_every_step_sends_each_window_once_and_shows_it_once(
    tmp_path: Path, keeping: Keeping, life: int
) -> None:
    """After each death the disk has each window's count once at most, and at the end no tick is in a count twice."""
    folder = tmp_path / "disk"
    folder.mkdir()
    plan = stream_plan(windows=LIVES, frame_ticks=2)
    released: dict[tuple[str, int], WindowFrame] = {}
    at = kill_at = 1
    with lives(_live) as live:
        while not live(folder, at, life, kill_at, keeping):
            looked = {
                (name, record.index)
                for (_, name), of_window in stored_records(folder, plan).items()
                for record in of_window
            }
            outbox = Outbox(tmp_path / "disk-looked-at" / "outbox.sqlite", "home", "watch", keeping)
            frames = {(frame.window, frame.index): frame for frame in window_frames(outbox)}
            with suppress(OutboxError):
                at = max(at, outbox.register(plan) + 1)
            outbox.close()
            assert len(frames) == len(released.keys() | frames.keys()), "a frame is gone"
            assert all(frames[name] == frame for name, frame in released.items()), "a frame has changed"
            assert not looked & frames.keys(), "the disk shows a record and a release of one window"
            released = frames
            kill_at += 1
            assert kill_at < 2000
    outbox = Outbox(folder / "outbox.sqlite", "home", "watch", keeping)
    frames_left = window_frames(outbox)
    drawn = ticks(symbol_frames(outbox)) + [
        tick for (tick,) in outbox._db.execute("SELECT tick FROM pending WHERE stream = 'hr'")
    ]
    outbox.close()
    assert len(drawn) == len(set(drawn))
    resumed = {tuple(line.split()) for line in (folder / "resumed").read_text().splitlines()}
    assert {(frame.window, str(frame.index)) for frame in frames_left} & resumed, "no window went on after a kill"
    for frame in frames_left:
        inside = [tick for tick in drawn if frame.first <= tick <= frame.last]
        odd = sum(tick % 2 for tick in inside)
        assert frame.observed <= len(inside), "a tick was counted whose symbol is not durable, or twice"
        assert frame.counts[0] <= odd
        assert frame.observed - frame.counts[0] <= len(inside) - odd
