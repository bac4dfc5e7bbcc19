"""Which ticks were drawn under which version: kept by both engines, over restarts, in whatever order frames come."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from fugu.contract.chains import BinaryChains
from fugu.contract.dating import dates_of
from fugu.contract.frames import SymbolFrame, WindowFrame
from fugu.contract.guarantee import Guarantee
from fugu.contract.history import NamedVersion, Noise, Span, history_of
from fugu.contract.noise_table import SCALE, NoiseTable
from fugu.contract.timeline import Drawn, Timeline
from fugu.contract.windows import Window
from gateway.store.journal import ReceivedFrame
from gateway.store.location import Location
from tests.support.scenes import Scene, frames, policy

TWO = tuple(
    policy(version, table=NoiseTable.binary(flip, flip)) for version, flip in ((1, SCALE // 5), (2, SCALE * 2 // 5))
)
HOUR = Window(name="hour", length=60, stride=60, states=(1,), scale="20")
COUNTS = tuple(
    member.model_copy(update={"table": None, "windows": (HOUR,), "frame_ticks": 1, "windows_guarantee": None})
    for member in TWO
)


def rows(scene: Scene, stream: str = "hr") -> list[tuple[int, int, int]]:
    """(version, first, last) of the intervals that the store has, the last one up to what is accounted for."""
    timeline = scene.store.versions.timeline("watch", stream)
    coverage, _ = scene.recorder.coverage_of("watch", stream)
    timeline.extend(coverage.end)
    return [(row.version, row.first, row.last) for row in timeline.intervals]


@pytest.mark.parametrize("seed", range(3))
def test_frames_in_any_order_leave_the_same_intervals_and_a_restart_loses_none(location: Location, seed: int) -> None:
    """Pauses of two ticks, and a change of version in the middle."""
    sequence = frames((10, 10, 10, 5, 7, 10, 10), gaps=(0, 0, 2, 0, 0, 3, 0), versions=(1, 1, 1, 1, 2, 2, 2))
    expected = [(1, 0, 19), (1, 22, 36), (2, 37, 43), (2, 47, 66)]
    scene = Scene(location, policies=TWO)
    random.Random(seed).shuffle(sequence)
    for frame in sequence:
        scene.record(frame)
        scene.reopen()
    assert rows(scene) == expected
    scene.record(*sequence)
    assert rows(scene) == expected
    scene.recorder.seal(now=True)
    scene.reopen()
    assert rows(scene) == expected
    noises = {member.version: Noise.of(member) for member in TWO}
    history = history_of(scene.store.versions.timeline("watch", "hr").intervals, noises)
    assert history.complete
    assert [span[:1] + span[2:] for span in history.spans][:-1] == expected[:-1]
    assert history.spans[-1].last is None


def test_frames_that_follow_one_another_write_nothing(location: Location) -> None:
    scene = Scene(location, policies=TWO)
    first, *others = frames((10,) * 8)
    scene.record(first)
    scene.store.versions.changed_streams.clear()
    for frame in others:
        scene.record(frame)
    assert not scene.store.versions.changed_streams
    scene.record(SymbolFrame(2, 79, 80, bytes(10), bits=1))
    assert scene.store.versions.changed_streams == {("watch", "hr")}
    assert scene.store.versions.timeline("watch", "hr").intervals == [Drawn(0, 79, 1, 0), Drawn(80, 89, 2, 80)]


def test_windows_count_where_there_are_no_symbols(location: Location) -> None:
    scene = Scene(location, policies=COUNTS)
    counts = [(1, -1, 0, 60), (1, 0, 1, 60), (1, 1, 2, 50), (2, 2, 4, 60), (2, 4, 5, 60)]
    for version, previous, index, observed in counts:
        frame = WindowFrame(version, "hour", previous, index, index * 60, 60, observed, (30,))
        scene.receive([ReceivedFrame("watch", "hr", frame)])
    scene.reopen()
    rows = scene.store.versions.timeline("watch", "hr").intervals
    assert rows == [Drawn(0, 119, 1, 0), Drawn(120, 179, 1, 120, 10), Drawn(240, 359, 2, 180)]
    noises = {member.version: Noise.of(member) for member in COUNTS}
    spans = history_of(rows, noises).spans
    assert [span[:1] + span[2:] for span in spans] == [
        (1, 0, 119),
        (0, 120, 129),
        (1, 130, 169),
        (0, 170, 179),
        (2, 240, None),
    ]


def test_where_symbols_are_windows_are_not_counted_again(location: Location) -> None:
    beside = TWO[0].model_copy(update={"windows": (HOUR,), "windows_guarantee": TWO[0].guarantee})
    scene = Scene(location, policies=(beside,))
    scene.receive([ReceivedFrame("watch", "hr", WindowFrame(1, "hour", -1, 5, 300, 60, 60, (30,)))])
    assert rows(scene) == []


def test_of_missing_ticks_any_version_between_may_have_been_in_force() -> None:
    first, last = (Noise.of(member) for member in TWO)
    middle = Noise.of(policy(2, table=NoiseTable.binary(SCALE // 9, SCALE // 9)))
    far = [Drawn(0, 9, 1, 0), Drawn(30, 39, 3, 25)]
    spans = history_of(far, {1: first, 2: middle, 3: last}).spans
    assert [(span.version, span.first, span.last) for span in spans] == [(1, 0, 9), (0, 10, 24), (3, 30, None)]
    assert spans[1].noise == middle
    assert history_of(far, {1: first, 3: last}).spans[1].noise == first
    assert history_of(far, {1: first, 2: None, 3: last}).spans[1].noise is None
    assert not history_of([Drawn(5, 9, 1, 3)], {1: first}).complete
    back = [Drawn(0, 9, 2, 0, 3), Drawn(30, 39, 1, 25)]  # three of its ticks are absent, perhaps the last ones
    assert history_of(back, {1: last, 2: middle}).spans[3] == Span(0, middle, 10, 24)
    assert history_of(far, {3: last}).spans[1].noise is None
    other = middle._replace(discretiser_digest="another map from readings to states")
    assert history_of(far, {1: first, 2: other, 3: last}).spans[1].noise is None


def test_a_device_that_goes_back_may_have_run_a_later_version_in_a_gap() -> None:
    """Where versions only grow, both ends of a gap bound it; a gap is a span only if it may be louder than its ends."""
    quiet, loud = (Noise.of(member) for member in reversed(TWO))
    again = [Drawn(0, 9, 1, 0), Drawn(30, 39, 1, 25)]
    gap = Span(0, loud, 10, 24)
    assert history_of(again, {1: quiet, 2: loud}).spans[1] == gap
    assert history_of(again, {1: loud, 2: quiet}).spans == (Span(1, loud, 0, 9), Span(1, loud, 30))
    assert history_of(again, {1: quiet, 2: loud}, may_go_back=False).spans[1].version == 1
    assert history_of(again, {1: quiet, 2: None}).spans[1].noise is None
    up, down = ([Drawn(0, 9, version, 0), Drawn(30, 39, 5 - version, 25)] for version in (2, 3))
    assert history_of(up, {2: quiet, 3: quiet, 4: loud}).spans[1] == gap
    assert history_of(up, {1: loud, 2: quiet, 3: quiet}).spans[1].noise == quiet
    assert history_of(down, {1: loud, 2: quiet, 3: quiet}).spans[1] == gap
    assert history_of(up, {2: quiet, 3: quiet, 4: loud}, may_go_back=False).spans[1].noise == quiet
    assert history_of(up, {2: quiet, 3: loud}, may_go_back=False).spans[1].noise == loud
    named = history_of(again[:1], {1: quiet, 2: loud}, NamedVersion(1, 25))
    assert named.spans == (Span(1, quiet, 0, 9), gap, Span(1, quiet, 25))
    assert len(history_of(again[:1], {1: quiet, 2: loud}, NamedVersion(1, 10)).spans) == 1


def test_ticks_of_a_louder_version_within_a_window_of_a_later_one_stay_loud() -> None:
    """Windows of two lengths, then a version with a longer one: 46 loud ticks were taken for two."""
    first, last = (Noise.of(member) for member in TWO)
    drawn = [Drawn(0, 15, 1, 0, 1), Drawn(0, 63, 2, 0, 62), Drawn(16, 61, 1, 16)]
    spans = history_of(drawn, {1: first, 2: last}, NamedVersion(2, None)).spans
    assert {span.noise for span in spans[:-1]} == {first}
    assert spans[-1] == Span(0, last, 62, None), "no later version is waited for"
    assert all(earlier.end + 1 == later.first for earlier, later in pairwise(spans))


@pytest.mark.parametrize("may_drop", [False, True])
def test_a_document_in_force_that_stored_ticks_have_already_leaves_no_gap_after_them(may_drop: bool) -> None:
    """A window of the earlier version began last, within one of the version in force: its promise said "never"."""
    first, last = (Noise.of(member) for member in TWO)
    drawn = [Drawn(0, 99, 1, 0), Drawn(100, 199, 2, 100), Drawn(110, 119, 1, 110)]
    spans = history_of(drawn, {1: first, 2: last}, NamedVersion(2, None), may_drop=may_drop).spans
    assert spans[-1] == Span(2, last, 120, None)
    assert [span.first for span in spans] == [0, 100, 110, 120]


def test_a_version_that_is_named_comes_after_what_is_stored() -> None:
    first, last = (Noise.of(member) for member in TWO)
    stored = [Drawn(0, 99, 1, 0)]
    named = history_of(stored, {1: first, 2: last}, NamedVersion(2, 150))
    assert named.spans == (Span(1, first, 0, 99), Span(0, first, 100, 149), Span(2, last, 150))
    answered = history_of(stored, {1: first, 2: last}, NamedVersion(2, None))
    assert answered.spans == (Span(1, first, 0, 99), Span(0, first, 100), Span(2, last, None))
    alone = history_of([], {1: first}, NamedVersion(1, 150))
    assert alone.complete
    assert not history_of([], {1: first, 2: last}, NamedVersion(2, 150)).complete


@pytest.mark.parametrize(
    ("windows", "row"),
    [
        ([Drawn(0, 9, 1, 0, 3), Drawn(5, 14, 1, 5, 2)], Drawn(0, 14, 1, 0, 5)),
        ([Drawn(0, 19, 1, 0, 3), Drawn(5, 14, 1, 5, 2)], Drawn(0, 19, 1, 0, 3)),
        ([Drawn(5, 14, 1, 5, 2), Drawn(0, 19, 1, 0, 3)], Drawn(0, 19, 1, 0, 3)),
    ],
)
def test_ticks_that_windows_miss_stay_missing_where_they_overlap(windows: list[Drawn], row: Drawn) -> None:
    """As many as may be: a promise comes true by ticks that were drawn."""
    timeline = Timeline()
    for window in windows:
        timeline.add(window)
    assert timeline.intervals == [row]


def test_a_longer_window_of_an_earlier_version_is_not_lost_behind_one_of_a_later_version() -> None:
    """Two rows had one first tick and version, and the store kept the shorter one."""
    timeline = Timeline()
    for window in (Drawn(0, 9, 1, 0), Drawn(0, 59, 2, 0, 15), Drawn(0, 14, 1, 0)):
        timeline.add(window)
    assert timeline.intervals == [Drawn(0, 14, 1, 0), Drawn(0, 59, 2, 0, 15)]


def test_the_oldest_intervals_are_merged_or_forgotten() -> None:
    timeline = Timeline(max_intervals=4)
    for begin in range(0, 80, 10):
        timeline.add(Drawn(begin, begin + 4, 1, begin))
    assert timeline.intervals[0] == Drawn(0, 44, 1, 0, 20), "what was not drawn is remembered, though not where"
    assert len(timeline.intervals) == 4
    for begin in range(80, 130, 10):
        timeline.add(Drawn(begin, begin + 4, 2, begin))
    later = [Drawn(begin, begin + 4, 2, begin) for begin in range(90, 130, 10)]
    assert timeline.intervals == later, "ticks that were not drawn are none of those since a change"


def test_a_promise_before_a_weaker_version_ends_no_later_where_intervals_were_merged() -> None:
    """The numbers between merged intervals counted as ticks that were drawn, so that too few came before the change."""
    strong, weak = (
        policy(version, table=NoiseTable.binary(flip, flip), chains=BinaryChains(q=(0.01, 0.01), r=(0.01, 0.01)))
        for version, flip in ((1, round(0.46 * SCALE)), (2, SCALE // 5))
    )
    promise = Guarantee(epsilon=8.3575, adversary="universal")
    dates = []
    for max_intervals in (1000, 4):
        timeline = Timeline(max_intervals=max_intervals)
        for tick in range(0, 6000, 10):
            timeline.add(Drawn(tick, tick + 8, 1, max(0, tick - 1)))
        timeline.add(Drawn(6000, 7000, 2, 5999))
        history = history_of(timeline.intervals, {1: Noise.of(strong), 2: Noise.of(weak)}, may_go_back=False)
        dates.append(dates_of(strong.model_copy(update={"guarantee": promise}), history))
    exact, merged = dates
    assert (exact.since, merged.since) == (0, 0)
    assert merged.until is not None
    assert exact.until is not None
    assert merged.until <= exact.until
