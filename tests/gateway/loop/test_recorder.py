"""A store does not depend on how frames arrived, and nothing that is not stored is ever said to be."""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fugu.contract.frames import MAX_GAPS, Committed, SymbolFrame, WindowFrame
from fugu.contract.windows import Window
from gateway.store.journal import ReceivedFrame
from gateway.store.store import Store
from tests.support.measured import measure_frames, measure_policy
from tests.support.outboxes import is_committed
from tests.support.scenes import Scene, final_state, frames, newest, policy

UNMINDED = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
FRAMES = frames([4, 1, 10, 3, 20, 7, 9, 2], gaps=[0, 0, 3, 0, 30, 8, 7, 0], versions=[1, 1, 1, 2, 2, 3, 1, 1])


def deletable(message: Committed, frame: SymbolFrame, stream: str = "hr") -> bool:
    """True if the device may forget a frame."""
    (commit,) = (commit for commit in message.streams if commit.stream == stream)
    return is_committed(commit, frame)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[int, object]:
    """The final state of an in-order run, by lag."""
    states: dict[int, object] = {}
    for lag in (0, 3, 8):
        scene = Scene(tmp_path_factory.mktemp("store") / "s.sqlite", lag)
        for frame in FRAMES:
            scene.record(frame)
        states[lag] = final_state(scene)
    return states


@pytest.mark.long
@settings(max_examples=12, deadline=None, suppress_health_check=UNMINDED)
@given(st.data())
def test_any_order_repetition_batching_and_restart_ends_in_the_same_bits(
    undisturbed: dict[int, object], data: st.DataObject
) -> None:
    lag = data.draw(st.sampled_from(sorted(undisturbed)))
    repeated = data.draw(st.lists(st.sampled_from(FRAMES), max_size=6))
    arrivals = data.draw(st.permutations([*FRAMES, *repeated]))
    with tempfile.TemporaryDirectory() as folder:
        scene = Scene(Path(folder) / "s.sqlite", lag)
        while arrivals:
            size = data.draw(st.integers(1, len(arrivals)))
            scene.record(*arrivals[:size])
            arrivals = arrivals[size:]
            then = data.draw(st.sampled_from(("go on", "restart", "seal", "seal and restart")))
            if "seal" in then:
                scene.recorder.seal(now=True)
            if "restart" in then:
                scene.reopen()
        assert final_state(scene) == undisturbed[lag]
        assert scene.counters["stored"] == len(FRAMES)
        assert scene.counters["duplicate"] == len(repeated)
        scene.store.close()


@pytest.mark.long
@settings(max_examples=8, deadline=None)
@given(st.data())
def test_a_device_never_forgets_a_frame_that_is_not_stored(data: st.DataObject) -> None:
    sequence = frames([3] * 90, gaps=[0, 2])
    arrivals = data.draw(st.lists(st.sampled_from(sequence), unique=True, max_size=90))
    if data.draw(st.booleans()):  # every second one is missing: more gaps than a message can list
        arrivals = [frame for i, frame in enumerate(sequence) if i % 2 and frame not in arrivals[:5]]
    with tempfile.TemporaryDirectory() as folder:
        scene = Scene(Path(folder) / "s.sqlite")
        for start in range(0, len(arrivals), 7):
            scene.record(*arrivals[start : start + 7])
            if data.draw(st.booleans()):
                scene.recorder.seal(now=True)
            if data.draw(st.booleans()):
                scene.reopen()
            message = scene.committed()
            held = set(arrivals[: start + 7])
            assert not [frame for frame in sequence if deletable(message, frame) and frame not in held]
            if len(message.streams[0].gaps) < MAX_GAPS:
                assert all(deletable(message, frame) for frame in held)
        scene.store.close()


def test_a_conflicting_frame_is_neither_stored_nor_claimed_and_stops_nobody(tmp_path: Path) -> None:
    scene = Scene(tmp_path / "s.sqlite")
    first, second, third = frames([10, 10, 10])
    scene.record(first, third)
    shifted = SymbolFrame(1, 4, 5, bytes(10))  # ticks 5..14: half of them are stored already
    changed = replace(first, symbols=bytes([1 - first.symbols[0] % 2]) + first.symbols[1:])
    scene.record(shifted, changed)
    assert scene.counters["conflict"] == 2
    assert not deletable(scene.committed(), shifted)
    scene.record(second)
    assert scene.counters["stored"] == 3
    assert scene.committed().streams[0].through == 29
    assert scene.committed().streams[0].gaps == ()
    assert [frame.symbols for frame in scene.stored()] == [frame.symbols for frame in (first, second, third)]


def test_a_device_that_lost_its_outbox_begins_anew_beyond_what_is_stored(tmp_path: Path) -> None:
    scene = Scene(tmp_path / "s.sqlite")
    scene.record(*frames([10, 10]))
    scene.record(SymbolFrame(1, -1, 500, bytes(10)))
    assert (scene.committed().streams[0].through, scene.committed().streams[0].gaps) == (509, ())
    assert scene.counters["conflict"] == 0


def whole(some: Iterable[SymbolFrame]) -> bytes:
    """Their symbols one after the other."""
    return b"".join(frame.symbols for frame in some)


@pytest.mark.long
def test_a_full_disk_keeps_frames_out_of_the_watermark_until_there_is_room(tmp_path: Path) -> None:
    scene, reference = Scene(tmp_path / "s.sqlite"), Scene(tmp_path / "reference.sqlite")
    sequence = frames([2000] * 15)
    for frame in sequence:
        reference.record(frame)
    scene.record(sequence[0])
    pages = scene.store._db.execute("PRAGMA page_count").fetchone()[0]
    scene.store._db.execute(f"PRAGMA max_page_count={pages + 1}")
    refused: list[tuple[SymbolFrame, str]] = []
    for frame in sequence[1:]:
        try:
            scene.record(frame)
        except sqlite3.OperationalError as error:
            refused.append((frame, str(error)))
        other = Store(scene.path)
        stored = {tick for frame in other.symbols.following(1, 0) for tick in (frame.first, frame.last)}
        other.close()
        assert {tick for f in sequence if deletable(scene.committed(), f) for tick in (f.first, f.last)} <= stored
    assert refused
    assert {text for _, text in refused} == {"database or disk is full"}
    scene.store._db.execute("PRAGMA max_page_count=1000000")
    scene.record(*sequence)
    assert final_state(scene) == final_state(reference)
    before = scene.stored()
    scene.recorder.seal(now=True)
    assert whole(before) == whole(scene.stored())
    assert scene.committed() == reference.committed()


def test_a_batch_of_all_kinds_is_stored_whole_or_not_at_all(tmp_path: Path) -> None:
    """One transaction for symbols, windows and points; after a failure nothing in memory is ahead of the store."""
    high = Window(name="high", length=10, stride=10, start=3, states=(1,), scale="20")
    measured = measure_policy(3, start=4)
    scene = Scene(tmp_path / "s.sqlite", policies=(policy(1, windows=(high,)), measured))
    window = WindowFrame(1, "high", -1, 5, 53, 10, 10, (4,))
    points, symbols = measure_frames(measured, [10, 10]), frames([10, 10])
    streams = ((symbols, "hr"), (points, "place"))
    batch = [
        ReceivedFrame("watch", "hr", window),
        *(ReceivedFrame("watch", name, frame) for some, name in streams for frame in some),
    ]
    scene.store._db.execute("CREATE TRIGGER full BEFORE INSERT ON measured BEGIN SELECT RAISE(ABORT, 'full'); END")
    for _ in range(2):
        with pytest.raises(sqlite3.IntegrityError):
            scene.receive(batch)
        assert {commit.through for commit in scene.committed().streams} == {-1}
        assert newest(scene) is None
        assert scene.recorder.points.newest("watch", "place") is None
    assert not scene.counters
    scene.store._db.execute("DROP TRIGGER full")
    scene.receive(batch[::-1])
    scene.receive(batch)
    assert [(stream.stream, stream.through) for stream in scene.committed().streams] == [
        ("hr", 19),
        ("hr/high", 5),
        ("place", 19),
    ]
    counted = {name: scene.counters[name] for name in ("stored", "duplicate", "windows_stored", "windows_duplicate")}
    assert counted == {"stored": 4, "duplicate": 4, "windows_stored": 1, "windows_duplicate": 1}
    assert scene.counters["conflict"] == scene.counters["windows_conflict"] == scene.counters["late"] == 0


@pytest.mark.parametrize("sealed", [False, True])
def test_after_a_restart_what_was_known_is_gone_on_with_also_if_the_first_to_come_is_there_already(
    tmp_path: Path, sealed: bool
) -> None:
    scene, reference = Scene(tmp_path / "s.sqlite"), Scene(tmp_path / "r.sqlite")
    sequence = frames([10, 10, 2])
    scene.record(*sequence[:2])
    if sealed:
        scene.recorder.seal(now=True)
    scene.reopen()
    scene.record(sequence[1])
    scene.record(sequence[2])
    reference.record(*sequence[:2])
    reference.record(sequence[2])
    (report,), (other,) = (each.recorder.symbols.reports.take(9) for each in (scene, reference))
    assert report.estimate == other.estimate
    assert scene.counters["duplicate"] == 1


@pytest.mark.parametrize(("first", "stored"), [(19, False), (20, True)])
def test_a_frame_that_shares_only_the_last_tick_is_not_taken_as_one_that_goes_on(
    tmp_path: Path, first: int, stored: bool
) -> None:
    scene, sequence = Scene(tmp_path / "s.sqlite"), frames([10, 10])
    scene.record(sequence[0])
    scene.record(sequence[1])
    scene.record(SymbolFrame(1, first - 1, first, bytes([1 - sequence[1].symbols[-1]]) * 5))
    assert (scene.counters["stored"], scene.counters["conflict"]) == ((3, 0) if stored else (2, 1))
