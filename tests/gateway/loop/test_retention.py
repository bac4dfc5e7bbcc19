"""Old rows go in small pieces, and nothing else does; gone rows do not come back."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import ValidationError

from fugu.contract.frames import SymbolFrame, WindowFrame
from fugu.contract.measure_frames import MeasureFrame, Released
from fugu.contract.policy import Clock
from fugu.contract.windows import Window
from gateway.config import Keep
from gateway.loop.retention import Retention
from gateway.store.coverage import Place
from gateway.store.journal import ReceivedFrame
from tests.support.measured import measure_policy
from tests.support.release_scenes import Bench, scheduled
from tests.support.scenes import Scene, asked, frames, loop_of, newest, packed, policy

HOUR = 3600
SECOND_US = 1_000_000
WINDOW = Window(name="high", length=600, stride=600, start=0, states=(1,), scale="2")


class Keeper:
    """A scene of hours at one tick a second, and a retention of it at a moment that a test sets."""

    def __init__(self, scene: Scene, *keep: str) -> None:
        self.scene, self.keep = scene, Keep.model_validate(dict(text.split("=") for text in keep))
        self.now_us, self.seconds = 0, 0.0
        self.needed: dict[tuple[str, str], int] = {}
        self.open()

    def open(self) -> None:
        here = self.scene
        loop = loop_of(
            store=here.store,
            catalogue=here.recorder._catalogue,
            counters=here.counters,
            now_us=lambda: self.now_us,
            seconds=lambda: self.seconds,
        )
        settings: Any = SimpleNamespace(keep=self.keep, lag=here.lag)
        self.retention = Retention(loop, settings, here.recorder, lambda: self.needed)

    def reopen(self) -> None:
        self.scene.reopen()
        self.open()

    def run(self, hour: float | None = None) -> None:
        """Work of the worker in an hour or so."""
        self.scene.recorder.seal(now=True)
        if hour is not None:
            self.now_us = round(hour * HOUR * SECOND_US)
        for _ in range(60):
            self.seconds += 61.0
            self.retention.pump()

    def count(self, table: str) -> int:
        ((number,),) = asked(self.scene.path, f"SELECT COUNT(*) FROM {table}")
        return int(number)

    def first(self, table: str, column: str = "first") -> int:
        ((number,),) = asked(self.scene.path, f"SELECT MIN({column}) FROM {table}")
        return int(number)


def symbols(folder: Path, hours: int, size: int = 600) -> tuple[Scene, list[SymbolFrame]]:
    """A stream of so many hours, in frames of so many seconds."""
    scene = Scene(folder / "s.sqlite", lag=8, policies=(policy(1, windows=(WINDOW,)),))
    sequence = frames([size] * (hours * HOUR // size))
    scene.record(*sequence)
    return scene, sequence


def test_each_kind_goes_at_its_own_age_to_the_frame_or_chunk(tmp_path: Path) -> None:
    scene, _made = symbols(tmp_path, 10)
    scene.receive(
        [ReceivedFrame("watch", "hr", WindowFrame(1, "high", i - 1, i, 600 * i, 600, 600, (i,))) for i in range(60)]
    )
    keeper = Keeper(scene, "symbols=4h", "windows=6h")
    keeper.run(10)
    assert keeper.first("chunks") == 6 * HOUR
    assert keeper.first("windows") == 4 * HOUR
    assert keeper.count("coverage") == 2
    assert scene.counters["frames_removed"] == 6 + 24
    before = keeper.count("chunks")
    keeper.run()
    assert keeper.count("chunks") == before


def test_nothing_goes_a_microsecond_too_early(tmp_path: Path) -> None:
    scene, _made = symbols(tmp_path, 10)
    keeper = Keeper(scene, "symbols=4h")
    first_end = HOUR * SECOND_US  # of the first chunk: six frames of 600 ticks
    keeper.now_us = first_end + 4 * HOUR * SECOND_US - 1
    keeper.run()
    assert keeper.first("chunks") == 0
    keeper.now_us += 1
    keeper.run()
    assert keeper.first("chunks") == HOUR


def test_what_came_after_a_clock_that_went_back_is_as_old_as_its_time_of_day(tmp_path: Path) -> None:
    """Numbers of ticks are an hour ahead of the wall clock from the third hour on."""
    scene = Scene(tmp_path / "s.sqlite", lag=8, policies=(policy(1, windows=(WINDOW,)),))
    sequence = frames([600] * 60)
    scene.record(*(replace(frame, shift=HOUR * (frame.first >= 2 * HOUR)) for frame in sequence))
    keeper = Keeper(scene, "symbols=4h")
    for early, first in ((1, HOUR), (0, 3 * HOUR)):
        keeper.now_us = (2 + 4) * HOUR * SECOND_US - early
        keeper.run()
        assert keeper.first("chunks") == first


def test_of_a_long_chunk_what_has_been_too_old_for_an_hour_is_cut_off_to_the_tick(tmp_path: Path) -> None:
    """And the rest says what it said before, to the bit, also after a restart, a late frame and another seal."""
    policies = (policy(1, period_us=60 * SECOND_US),)
    sequence = frames([100] * 50)
    whole, scene = Scene(tmp_path / "w.sqlite", policies=policies), Scene(tmp_path / "s.sqlite", policies=policies)
    for each in (whole, scene):
        each.record(*sequence[:25], *sequence[26:])
        each.recorder.seal(now=True)
    keeper = Keeper(scene, "symbols=4h")
    for tick, now in ((0, -1), (1, 0), (1, 60 * SECOND_US - 1), (2, 60 * SECOND_US), (333, 332 * 60 * SECOND_US)):
        keeper.now_us = (60 + 5 * HOUR) * SECOND_US + now
        keeper.run()
        assert keeper.first("chunks") == tick
        assert keeper.count("chunks") == 2
    removed = scene.counters["frames_removed"]
    assert removed == 3
    assert scene.stored()[0].symbols == sequence[3].symbols[33:] + b"".join(frame.symbols for frame in sequence[4:25])
    for restarted in (False, True):
        if restarted:
            keeper.reopen()
        assert after(scene, 333) == after(whole, 333)
        scene.record(*sequence[:3])
        assert scene.committed() == whole.committed()
    assert scene.counters["duplicate"] == 6
    for each in (whole, scene):
        each.record(sequence[25])
    assert after(scene, 333) == after(whole, 333)
    for each in (whole, scene):
        each.recorder.seal(now=True)
    assert after(scene, 333) == after(whole, 333)


def after(scene: Scene, tick: int) -> tuple[object, ...]:
    """Knowledge of a stream's ticks from one on, and of its newest."""
    past, last = scene.recorder.symbols.past, newest(scene)
    runs = [
        (at, row.tobytes())
        for run in past.estimates(Place(scene.store.number_of("watch", "hr"), "watch", "hr"), tick)
        for at, row in enumerate(run.probabilities.round(12), run.first)
    ]
    return runs, None if last is None else last.belief.tobytes(), scene.committed()


@pytest.mark.parametrize("frame", [100, 1_000])
def test_a_chunk_in_which_a_clock_was_set_back_loses_what_is_too_old_and_no_more(tmp_path: Path, frame: int) -> None:
    """Its ticks are not as old as they are numbered: after the first ones come some that are older."""
    streams = (policy(1, period_us=60 * SECOND_US), policy(1, stream="steps", period_us=60 * SECOND_US))
    scene = Scene(tmp_path / "s.sqlite", policies=streams)
    sequence = frames([frame] * (4_000 // frame))
    half = len(sequence) // 2
    sequence = [
        *sequence[:half],
        *(replace(frame, shift=1_500) for frame in sequence[half:]),
    ]  # wall ticks 0..1999, then 500..2499
    scene.record(*sequence)
    scene.record(*frames([100] * 60), stream="steps")
    keeper = Keeper(scene, "symbols=4h")
    for wall in range(100, 6_000, 491):
        keeper.now_us = (wall + 5 * 60) * 60 * SECOND_US
        keeper.run()
        held = {tick for frame in scene.stored() for tick in range(frame.first, frame.last + 1)}
        young = {tick for tick in range(4_000) if tick - (1_500 if tick >= 2_000 else 0) + 1 > wall + 60}
        assert young <= held
    assert not held


def test_a_gateway_whose_clock_has_jumped_ahead_removes_nothing_that_is_young(tmp_path: Path) -> None:
    scene, _made = symbols(tmp_path, 10)
    keeper = Keeper(scene, "symbols=8h")
    keeper.run(10 + 24 * 365 * 5)
    assert keeper.first("chunks") == 2 * HOUR  # eight hours before the newest tick, as with a clock that is right


def test_a_removed_frame_that_is_sent_again_is_a_duplicate_and_not_stored_again(tmp_path: Path) -> None:
    scene, frames = symbols(tmp_path, 10)
    before = scene.committed()
    keeper = Keeper(scene, "symbols=4h")
    keeper.run(10)
    for restarted in (False, True):
        if restarted:
            keeper.reopen()
        chunks_before = keeper.count("chunks")
        scene.record(*frames[:36])
        scene.record(*frames)
        assert keeper.count("chunks") == chunks_before
        assert scene.committed() == before  # nothing is asked for again
    assert scene.counters["stored"] == len(frames)
    assert scene.counters["duplicate"] == 2 * (36 + len(frames))
    assert scene.counters["conflict"] == 0


def test_a_frame_that_was_missing_and_is_older_than_what_is_kept_is_acknowledged_and_not_stored(tmp_path: Path) -> None:
    scene = Scene(tmp_path / "s.sqlite", lag=8)
    sequence = frames([600] * 60)
    scene.record(*sequence[:3], *sequence[4:])
    assert scene.committed().streams[0].gaps
    keeper = Keeper(scene, "symbols=4h")
    keeper.run(10)
    chunks_before = keeper.count("chunks")
    scene.record(sequence[3])
    assert (scene.counters["too_old"], keeper.count("chunks")) == (1, chunks_before)
    assert not scene.committed().streams[0].gaps
    scene.record(sequence[3])
    assert scene.counters["duplicate"] == 1
    keeper.reopen()
    assert not scene.committed().streams[0].gaps


def test_a_device_that_contradicts_what_was_removed_is_in_conflict_and_covers_nothing(tmp_path: Path) -> None:
    scene = Scene(tmp_path / "s.sqlite", lag=8)
    sequence = frames([600] * 60)
    scene.record(*sequence[:3], *sequence[4:])
    keeper = Keeper(scene, "symbols=4h")
    keeper.run(10)
    before = scene.committed()
    scene.record(SymbolFrame(1, 1700, 1750, bytes(100)))  # a part of what was stored, and of what is missing
    assert scene.counters["conflict"] == 1
    assert scene.committed() == before


def test_a_missing_frame_that_is_young_enough_is_stored_after_those_before_it_have_gone(tmp_path: Path) -> None:
    scene = Scene(tmp_path / "s.sqlite", lag=8)
    sequence = frames([600] * 60)
    scene.record(*sequence[:30], *sequence[37:])
    keeper = Keeper(scene, "symbols=5h")
    keeper.run(10)
    assert keeper.first("chunks") == sequence[37].first
    scene.record(*sequence[30:37])
    assert scene.counters["late"] == 7
    scene.recorder.seal(now=True)
    assert keeper.first("chunks") == sequence[30].first
    assert not scene.committed().streams[0].gaps


def test_what_a_release_needs_that_is_still_to_be_made_stays(tmp_path: Path) -> None:
    bench = Bench(tmp_path, scheduled(length=7200, share=0.5), scheduled("short", length=3000, share=0.5))
    arguments = frames([600] * 60)
    bench.scene.record(*arguments)  # the other device of the release has said nothing yet
    keeper = Keeper(bench.scene, "symbols=1h")
    keeper.needed = bench.schedule.needed_ticks()
    keeper.run(10)
    assert keeper.needed == {("watch", "hr"): 0, ("ring", "hr"): 0}
    assert keeper.first("chunks") == 0
    bench.scene.record(*frames([600] * 18), device="ring")
    bench.schedule.has_changed = True
    bench.work()
    keeper.needed = bench.schedule.needed_ticks()
    keeper.run(10)
    assert keeper.needed == {("watch", "hr"): 7200, ("ring", "hr"): 7200}
    assert keeper.first("chunks") == 7200


def test_what_is_known_of_the_newest_tick_stays_and_the_next_estimates_are_as_if_nothing_had_gone(
    tmp_path: Path,
) -> None:
    generator = random.Random(11)
    sizes = [generator.choice([1, 2, 3, 7]) for _ in range(80)]
    sequence = frames([*sizes, 5, 5], gaps=[0, 0, 2, 0, 11])
    results = []
    for name in ("whole", "removed"):
        scene = Scene(tmp_path / f"{name}.sqlite", lag=8)
        scene.record(*sequence[:80])
        other = frames([600] * 24)
        scene.record(*other, stream="steps")  # whose ticks tell that hours have passed
        if name == "removed":
            keeper = Keeper(scene, "symbols=1h")
            keeper.run(4)
            assert keeper.count("chunks WHERE stream=1") == 0
            before = newest(scene)
            keeper.reopen()
            assert before is None
            assert not scene.stored()
        scene.record(sequence[80])
        for sealed in (False, True):
            if sealed:
                scene.recorder.seal(now=True)
            results.append((name, sealed, after(scene, sequence[80].first)))
        scene.record(sequence[81])
        results.append((name, True, after(scene, sequence[80].first)))
    whole, removed = (
        [(sealed, state) for name, sealed, state in results if name == wanted] for wanted in ("whole", "removed")
    )
    assert whole == removed
    assert len(whole[-1][1][0]) > 0


def test_points_go_as_symbols_do(tmp_path: Path) -> None:
    minutes = measure_policy(clock=Clock(epoch_us=0, period_us=60 * SECOND_US))
    scene = Scene(tmp_path / "p.sqlite", lag=3, policies=(minutes,))
    frames = [
        MeasureFrame(1, first - 1, first, 2, tuple(Released(0, (0, 0)) for _ in range(20)))
        for first in range(0, 180, 20)
    ]
    scene.receive([ReceivedFrame("watch", "place", frame) for frame in frames])
    keeper = Keeper(scene, "points=1h")
    keeper.run(3)
    assert keeper.first("measured") == 120
    scene.receive([ReceivedFrame("watch", "place", frames[0])])
    assert scene.counters["duplicate"] == 1
    scene.receive([ReceivedFrame("watch", "place", MeasureFrame(1, 179, 180, 2, (Released(0, (1, 1)),)))])
    assert scene.counters["stored"] == len(frames) + 1


def test_a_round_removes_a_bounded_number_of_frames_and_the_rest_follows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.loop.retention._MOST_ROWS", 100)
    short = Window(name="high", length=4, stride=4, start=0, states=(1,), scale="2")
    scene = Scene(tmp_path / "s.sqlite", lag=2, policies=(policy(1, windows=(short,)),))
    frames = [WindowFrame(1, "high", i - 1, i, 4 * i, 4, 4, (1,)) for i in range(1_450)]
    scene.receive([ReceivedFrame("watch", "hr", frame) for frame in frames])
    keeper = Keeper(scene, "windows=1h")
    keeper.now_us = 5_800 * SECOND_US
    assert removed_by_rounds(keeper, "windows") == [100] * 5 + [50]
    assert keeper.first("windows") == 5_800 - 3_600


def test_a_round_removes_a_bounded_number_of_chunks_and_the_rest_follows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.loop.retention._MOST_ROWS", 2)
    scene, _made = symbols(tmp_path, 10)
    scene.recorder.seal(now=True)
    keeper = Keeper(scene, "symbols=3h")
    keeper.now_us = 10 * HOUR * SECOND_US
    assert removed_by_rounds(keeper, "chunks") == [2, 2, 2, 1]
    assert keeper.first("chunks") == 7 * HOUR


def removed_by_rounds(keeper: Keeper, table: str) -> list[int]:
    """How many rows went in each of some rounds in which any did."""
    counts = [keeper.count(table)]
    for _ in range(30):
        keeper.seconds += 61.0
        keeper.retention.pump()
        counts.append(keeper.count(table))
    return [before - after for before, after in itertools.pairwise(counts) if before > after]


def test_what_has_gone_is_not_in_the_file_and_its_room_is_used_again(tmp_path: Path) -> None:
    scene = Scene(tmp_path / "s.sqlite", lag=2)
    sequence = frames([600] * 60)
    needle = packed(sequence[3].symbols)
    scene.record(*sequence)
    keeper = Keeper(scene, "symbols=1h")
    keeper.run(10)
    scene.store.close()
    files = [path.read_bytes() for path in tmp_path.glob("s.sqlite*")]
    assert not any(needle[10:40] in content for content in files)
    assert any(packed(sequence[-1].symbols) in content for content in files)
    size = sum(map(len, files))
    scene.open()
    keeper.open()
    for hour in range(1, 5):
        some = [
            SymbolFrame(1, first - 1, first, sequence[i].symbols)
            for i, first in enumerate(range(36_000 * hour, 36_000 * (hour + 1), 600))
        ]
        scene.record(*some)
        keeper.run(10 * (hour + 1))
    scene.store.close()
    assert sum(len(path.read_bytes()) for path in tmp_path.glob("s.sqlite*")) <= 1.5 * size


@pytest.mark.parametrize(
    "text",
    [
        "symbols",
        "symbols=",
        "symbols=3",
        "symbols=0d",
        "symbols=-1d",
        "ledger=3d",
        "points=²d",
        "estimates=3d",
        "windows=12345678d",
    ],
)
def test_an_age_that_is_none_is_refused_in_a_line(text: str) -> None:
    kind, _, age = text.partition("=")
    with pytest.raises(ValidationError, match=r"give an age, such as 12h or 400d|Extra inputs"):
        Keep.model_validate({kind: age})


def test_ages_that_are_not_given_are_those_of_the_manual() -> None:
    keep = Keep.model_validate({"symbols": "90d", "windows": "12h"})
    assert (keep.symbols, keep.points, keep.windows) == (90 * 24, 400 * 24, 12)
