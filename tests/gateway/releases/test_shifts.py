"""A device whose clock was set back: what its numbers mean, which windows it is a part of, and what it is charged."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from fugu.contract.frames import SymbolFrame
from fugu.contract.reports import StateEstimate
from fugu.contract.sentences import unix_us
from fugu.contract.windows import Window
from gateway.estimates.history import estimates_between
from gateway.releases.audit import verify
from gateway.releases.entries import AccountKey
from gateway.releases.setup import ReleaseRecord, resume_ledger
from gateway.store.coverage import MOST_SHIFTS, ShiftError, Shifts
from tests.support.ledgers import inputs_of
from tests.support.release_scenes import Bench, scheduled
from tests.support.scenes import Scene, policy

FLEET = (policy(1), policy(1, device="ring"))
LAVISH = '[audiences.public]\nepsilon = 50.0\nadversary = "informed"\n'


def added(*frames: tuple[int, int, int]) -> Shifts:
    """Of frames (shift, first, last), as they came."""
    shifts, end = Shifts(), -1
    for shift, first, last in frames:
        shifts.add(shift, first, last, end)
        end = max(end, last)
    return shifts


def owner_of(frames: list[tuple[int, int, int]], wall: int) -> int:
    """The shift that a wall tick belongs to, by its definition: the newest that has begun by then."""
    return max(
        (s for s, first, _ in frames if min(f for t, f, _ in frames if t == s) - s <= wall),
        default=min(s for s, _, _ in frames),
    )


def histories(count: int) -> list[list[tuple[int, int, int]]]:
    """Frames (shift, first, last) of devices whose clocks go back at times, in the order of their numbers."""
    generator, generated = random.Random(11), []
    for _ in range(count):
        number, shift, frames = generator.randrange(4), generator.choice([0, 0, 6]), []
        number += shift
        for _ in range(generator.randrange(1, 9)):
            if frames and generator.random() < 0.4:
                jump, back = generator.randrange(3), generator.randrange(1, 9)
                number, shift = number + jump, shift + jump + min(back, number - shift)
            size = generator.randrange(1, 5)
            frames.append((shift, number, number + size - 1))
            number += size + generator.choice([0, 0, 2])
        generated.append(frames)
    return generated


@pytest.mark.long
def test_the_owner_of_every_window_is_that_of_all_its_ticks_in_whatever_order_frames_come() -> None:
    generator = random.Random(3)
    for frames in histories(40):
        ways = [added(*frames), added(*generator.sample(frames, len(frames)))]
        top = max(last - shift for shift, _, last in frames) + 3
        for shifts in ways:
            assert shifts.newest == frames[-1][0]
            stretches = {n - s: s for low, high, s in shifts.stretches(0) for n in range(low, min(high, low + top) + 1)}
            for wall in range(top):
                assert stretches[wall] == owner_of(frames, wall)
                for end in range(wall, top):
                    owners = {owner_of(frames, tick) for tick in range(wall, end + 1)}
                    owner, _ = shifts.owner(wall, end)
                    assert owner == (owners.pop() if len(owners) == 1 else None), (frames, wall, end)


def test_a_shift_that_falls_is_refused_wherever_its_frame_lies() -> None:
    for frames in histories(100):
        for left_out in range(len(frames)):
            shift, first, last = frames[left_out]
            others = [frame for frame in frames if frame != frames[left_out]]
            shifts, end = added(*others), max((last for _, _, last in others), default=-1)
            low = max((s for s, _, e in others if e < first), default=0)
            high = min((s for s, f, _ in others if f > last), default=10**9)
            for wrong in (low - 1, high + 1):
                if 0 <= wrong < 10**9:
                    with pytest.raises(ShiftError):
                        shifts.add(wrong, first, last, end)
            shifts.add(shift, first, last, end)
            assert shifts.newest == frames[-1][0]


def test_a_frame_whose_shift_fell_is_counted_and_never_stored(tmp_path: Path) -> None:
    scene = Scene(tmp_path / "s.sqlite")
    scene.record(SymbolFrame(1, -1, 0, bytes(5)), SymbolFrame(1, 4, 20, bytes(5), shift=5))
    for _ in range(2):
        scene.record(SymbolFrame(1, 24, 25, bytes(5)), SymbolFrame(1, 4, 6, bytes(3), shift=6))
        scene.reopen()
    assert (scene.counters["shift_fell"], scene.counters["stored"]) == (4, 2)
    scene.record(SymbolFrame(1, 24, 25, bytes(5), shift=5), SymbolFrame(1, 4, 6, bytes(3)))
    assert scene.counters["stored"] == 4
    (commit,) = (stream for stream in scene.committed().streams if stream.stream == "hr")
    assert (commit.through, commit.gaps) == (29, ())


def test_a_device_whose_clock_goes_back_with_every_frame_grows_nothing(tmp_path: Path) -> None:
    scene = Scene(tmp_path / "s.sqlite")
    frames = [SymbolFrame(1, n - 1, n, b"\1", shift=n - n // 2) for n in range(2 * MOST_SHIFTS + 40)]
    scene.record(*frames)
    assert scene.counters["stored"] == len(frames)
    (rows,) = scene.store._db.execute("SELECT COUNT(*) FROM shifts").fetchone()
    assert rows == MOST_SHIFTS
    scene.reopen()
    assert scene.recorder.coverage_of("watch", "hr")[1].newest == frames[-1].shift


@pytest.mark.parametrize("sealed", [False, True])
def test_estimates_tell_the_time_on_the_wall_and_begin_anew_where_the_clock_was_set(
    tmp_path: Path, sealed: bool
) -> None:
    scene, alone = Scene(tmp_path / "s.sqlite", 2), Scene(tmp_path / "alone.sqlite", 2)
    before, after = SymbolFrame(1, -1, 0, b"\1" * 9), SymbolFrame(1, 8, 9, b"\0" * 9, shift=7)

    def estimate_of(here: Scene) -> StateEstimate | None:
        (report,) = here.recorder.symbols.reports.take(9)
        return report.estimate

    scene.record(before)
    first = estimate_of(scene)
    scene.record(after)
    second = estimate_of(scene)
    alone.record(replace(after, previous=-1))
    assert isinstance(first, StateEstimate)
    assert isinstance(second, StateEstimate)
    assert [unix_us(time) for time in (first.since, first.time)] == [0, 8_000_000]
    assert [unix_us(time) for time in (second.since, second.time)] == [2_000_000, 10_000_000]
    assert estimate_of(alone) == second
    rows = list(estimates_between(scene.path, "watch", "hr", lag=2))
    assert {(row.tick, row.shift) for row in rows} == {(tick, 0 if tick < 9 else 7) for tick in range(16)}
    assert [row for row in rows if row.tick >= 9] == list(estimates_between(alone.path, "watch", "hr", lag=2))
    scene.reopen()
    assert estimate_of(scene) == second
    if sealed:
        scene.recorder.seal(now=True)
        scene.reopen()
    assert rows == list(estimates_between(scene.path, "watch", "hr", lag=2))


class Clocked:
    """A device that sends five ticks at a time; its clock goes back once."""

    def __init__(self, seed: int, at: int, back: int, jump: int) -> None:
        self._random = random.Random(seed)
        self._at, self._back, self._jump = at, back, jump
        self.number, self.shift, self.previous = 0, 0, -1
        self.symbols: dict[int, tuple[int, int]] = {}  # of each number: the wall tick, and the symbol
        self.sent: list[tuple[int, int, int]] = []

    def frame(self) -> SymbolFrame:
        if self._back and self.number >= self._at:
            self.number += self._jump
            self.shift += self._jump + self._back
            self._back = 0
        symbols = bytes(self._random.choices((0, 1), k=5))
        frame = SymbolFrame(1, self.previous, self.number, symbols, shift=self.shift)
        self.sent.append((self.shift, frame.first, frame.last))
        self.symbols.update((n, (n - self.shift, s)) for n, s in enumerate(symbols, frame.first))
        self.previous, self.number = frame.last, frame.last + 1
        return frame

    def part(self, first: int, last: int) -> set[int]:
        """The numbers with which it is a part of a window of wall ticks, by what it has sent so far."""
        owners = {owner_of(self.sent, tick) for tick in range(first, last + 1)}
        if len(owners) > 1:
            return set()
        (shift,) = owners
        return {n for n, (wall, _) in self.symbols.items() if first <= wall <= last and n - wall == shift}


@pytest.mark.long
@pytest.mark.parametrize(
    ("at", "back", "jump"), sorted({(30, 1, 4), (35, 5, 0), (40, 20, 4), (45, 45, 0), (60, 33, 4), (75, 70, 0)})
)
def test_every_window_has_the_right_sums_and_no_tick_is_in_two_or_uncharged(
    tmp_path: Path, at: int, back: int, jump: int
) -> None:
    bench = Bench(tmp_path, scheduled(scale="1/10"), audiences=LAVISH, fleet=FLEET)
    devices = {"watch": Clocked(1, at, back, jump), "ring": Clocked(2, 0, 0, 0)}
    used: dict[str, list[int]] = {"watch": [], "ring": []}
    absent = 0
    for _ in range(32):
        for name, device in devices.items():
            bench.scene.record(device.frame(), device=name)
        count = len(bench.frames)
        bench.work()
        sums = inputs_of(bench.ledger)
        for release in bench.frames[count:]:
            parts = {name: device.part(release.first, release.last) for name, device in devices.items()}
            parts = {name: part for name, part in parts.items() if part}
            absent += 2 - len(parts)
            ticks = sum(map(len, parts.values()))
            ones = sum(devices[name].symbols[n][1] for name, part in parts.items() for n in part)
            assert (release.devices, release.observed) == (len(parts), ticks)
            assert sum(counts[0] for _, _, _, counts, _ in sums[release.entry]["symbols"]) == ones
            (charge,) = {bench.ledger.charges(release.entry)[name] for name in parts}
            for name, part in parts.items():
                shift = min(part) - devices[name].symbols[min(part)][0]
                assert bench.ledger.shifts(release.entry)[name] == shift
                used[name] += part
    assert all(b.first - a.first == 20 for a, b in pairwise(bench.frames))
    change = at - back  # in wall ticks; the window in which it lies may have been released before
    assert absent == (change % 20 > 0 and at <= change // 20 * 20 + 20)
    for name, ticks in used.items():
        assert len(set(ticks)) == len(ticks), "a tick is in two windows"
        runs = bench.ledger.spent(AccountKey(name, "hr", "public"), 0, 10**6)
        assert sorted(ticks) == [n for run in runs for n in range(run.first, run.last + 1)]
        assert {run.charge for run in runs} == {charge}
    assert verify(bench.ledger).problems == ()
    bench.ledger._db.execute("UPDATE members SET shift=shift+1 WHERE device='watch'")
    assert any("its charges are not those of its entries" in line for line in verify(bench.ledger).problems)


def test_a_lost_ledger_begins_after_what_was_released_whatever_the_clocks_say(tmp_path: Path) -> None:
    bench = Bench(tmp_path, scheduled(scale="1/10"), audiences=LAVISH, fleet=FLEET)
    devices = {"watch": Clocked(1, 40, 20, 0), "ring": Clocked(2, 0, 0, 0)}
    for _ in range(18):
        for name, device in devices.items():
            bench.scene.record(device.frame(), device=name)
        bench.work()
    assert [(frame.first, frame.devices) for frame in bench.frames] == [(0, 2), (20, 2), (40, 2)]
    ReleaseRecord(bench.scene.store).note(bench.ledger, bench.ledger.newest_entry)
    bench.ledger.close()
    (tmp_path / "l.sqlite").unlink()
    bench.scene.store.close()
    begun = resume_ledger(tmp_path / "l.sqlite", tmp_path / "s.sqlite")
    assert [(start.device, start.first) for start in begun] == [("ring", 60), ("watch", 80)]
    bench.scene.open()
    bench.open()
    for _ in range(12):
        for name, device in devices.items():
            bench.scene.record(device.frame(), device=name)
        bench.work()
    assert [(frame.first, frame.devices) for frame in bench.frames] == [(80, 2), (100, 2)]
    assert bench.counters["releases_refused"] == 1  # next to ticks of which nobody knows what was told


def test_windows_of_a_device_whose_clock_went_back_count_for_wall_time(tmp_path: Path) -> None:
    window = Window(name="level", length=10, stride=10, states=(1,), scale="20")
    assert added((0, 0, 4), (35, 6, 9)).in_ticks(window).owner(20, 39) == (None, 60)
    assert added((0, 0, 4), (35, 6, 9)).in_ticks(window).owner(25, 34) == (35, 60)
    assert list(added((0, 0, 4), (40, 6, 9)).in_ticks(window).stretches(0))[1] == (0, 19, 0)
