"""Measured streams at the gateway: the filter against every path, any order of arrival, and the tables it sends."""

from __future__ import annotations

import math
import random
import sqlite3
import tempfile
import time
from collections import Counter
from dataclasses import replace
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from fugu.contract.descriptions import METRES_PER_DEGREE
from fugu.contract.discretisers import Cells
from fugu.contract.errors import PolicyError
from fugu.contract.frames import MAX_TICK, StreamCommit, SymbolFrame
from fugu.contract.measure_frames import MAX_MEASURE_TICKS, MeasureFrame, Released
from fugu.contract.measure_policy import Change, MeasurePolicy
from fugu.contract.measure_table import MOST_HELD, StaircaseNoise, TimedTable, states_in
from fugu.contract.measurement import check_noise
from fugu.contract.noise_table import NoiseTable
from fugu.contract.reports import PlaceEstimate, SmoothedValue, ValueEstimate, decode_estimate
from fugu.contract.sentences import instant
from fugu.contract.topics import parse_topic, topic_of
from fugu.places.protection import protect_likely
from fugu.places.tables import compile_noise, emission
from gateway.estimates.catalogue import Catalogue
from gateway.estimates.points import MeasureModel, PointEstimates, measured_estimate
from gateway.loop.inbox import Ingest
from gateway.parts import Message
from gateway.parts.place_tables import TableSender, make_noise, policy_graph
from gateway.store.coverage import Place
from gateway.store.journal import NewestFrame, ReceivedFrame
from tests.support.measured import decoded_covariance, grid, measure_frames, measure_policy
from tests.support.scenes import Scene as AnyScene
from tests.support.scenes import loop_of
from tests.support.scenes import policy as symbol_policy
from tests.support.wires import Wire

Floats = NDArray[np.float64]
POLICY = measure_policy(3, start=4)
SECOND_VERSION = measure_policy(3, start=4, version=2, epsilon=2.0)
SECOND = 1_000_000


class Scene(AnyScene):
    """A recorder of measured streams on a store file."""

    def __init__(self, path: Path, *policies: MeasurePolicy, lag: int = 8) -> None:
        super().__init__(path, lag, policies or (POLICY, SECOND_VERSION))

    @property
    def place(self) -> Place:
        return Place(self.store.number_of("watch", "place"), "watch", "place")

    def record(self, *some: MeasureFrame) -> None:
        super().record(*some, stream="place")

    def commit(self) -> StreamCommit:
        return self.committed().streams[0]

    def frame(self, first: int) -> MeasureFrame:
        stored = self.store.points.at(self.place.number, first)
        assert stored is not None
        return stored.frame

    def estimate(self, first: int) -> PointEstimates:
        return self.recorder.points.estimate(self.place, self.frame(first))

    def lagged_estimates(self, first: int) -> list[PointEstimates]:
        return list(self.recorder.points.lagged_estimates(self.place, self.frame(first)))

    def final(self) -> tuple[object, ...]:
        """Everything that must not depend on the order of arrival, to the last bit."""
        with sqlite3.connect(self.path) as database:
            frames = database.execute("SELECT * FROM measured ORDER BY first").fetchall()
            queued = {row[0] for row in database.execute("SELECT frame FROM outbox")}
            coverage = database.execute("SELECT * FROM coverage ORDER BY after").fetchall()
        firsts = [measured.frame.first for measured in self.store.points.following(self.place.number, 0)]
        estimates = [(self.estimate(first), *self.lagged_estimates(first)) for first in firsts]
        return frames, queued, coverage, estimates, self.commit()


# The filter against enumeration


def by_paths(
    policy: MeasurePolicy, frames: list[MeasureFrame], tables: dict[int, TimedTable], lag: int = 0
) -> dict[int, tuple[float, Floats, Floats, float]]:
    """For each tick of the frames probability, mean and covariance by adding up all paths, and the probability before.

    The probability is that of all points up to `lag` ticks after it.
    """
    released = {f.first + i: point for f in frames for i, point in enumerate(f.released)}
    last, count = max(released), len(policy.transition)
    parts = [(0, policy.transition), *((change.tick, change.transition) for change in policy.changes)]
    shows = policy.shows or range(count)
    values = (np.array(policy.coordinates) * np.array(policy.resolution))[list(shows)]

    @cache
    def step(tick: int, state: int, other: int) -> float:
        rows = [rows for begin, rows in parts if begin <= tick % policy.cycle][-1]
        return dict(rows[state]).get(other, 0.0)

    @cache
    def likelihood(tick: int, state: int) -> float:
        point = released.get(tick)
        if point is None or point.table not in tables or point.point not in (noise := tables[point.table].noise).points:
            return 1.0
        return noise.row_weights(shows[state])[noise.points.index(point.point)] / 2**32

    sums = np.zeros((last + 1, count))

    def go(path: tuple[int, ...], p: float) -> None:
        """Add a path up to its last state, and all longer ones that begin like it."""
        tick = len(path) - 1
        p *= likelihood(tick, path[-1])
        for end in range(max(tick - lag, 0), last + 1) if tick == last else [tick - lag]:
            if end >= 0:
                sums[end, path[end]] += p
        for state in range(count) if tick < last else ():
            if (chance := step(tick, path[-1], state)) > 0.0:
                go((*path, state), p * chance)

    for state in range(count):
        if policy.initial[state] > 0.0:
            go((state,), policy.initial[state])
    moments = {}
    for tick in released:
        total = float(sums[tick].sum())
        distribution = sums[tick] / total
        mean = distribution @ values
        away = values - mean
        before = float(sums[tick - 1].sum()) if tick else 1.0
        moments[tick] = total, mean, (away * distribution[:, None]).T @ away, before
    return moments


def check_by_paths(store: Path, policy: MeasurePolicy, frames: list[MeasureFrame], lag: int) -> None:
    """Compare means and covariances with those of all paths: each tick once, when it is known."""
    scene = Scene(store, policy, lag=lag)
    scene.record(*frames)
    expected = by_paths(policy, frames, {table.number: table for table in policy.measure_tables}, lag)
    ticks = []
    for frame in frames:
        for message in scene.lagged_estimates(frame.first) if lag else [scene.estimate(frame.first)]:
            assert lag == 0 or message.lag == lag
            for tick, row in enumerate(zip(message.means, message.covariances, strict=True), message.first):
                ticks.append(tick)
                assert row[0] == pytest.approx(expected[tick][1], abs=1e-12)
                assert decoded_covariance(row[1]) == pytest.approx(expected[tick][2], abs=1e-12)
    every = {tick for frame in frames for tick in range(frame.first, frame.last + 1)}
    assert ticks == sorted(tick for tick in every if tick + lag <= frames[-1].last)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(4))
def test_estimates_are_what_all_paths_add_up_to(tmp_path: Path, seed: int) -> None:
    """Four states; gaps between frames, two tables and an unknown one, points of no table."""
    policy = measure_policy(2, start=seed, resolution=(2.0, 0.5), epsilon=1.5)
    frames = measure_frames(policy, [2, 1, 3], gaps=[0, 1, 0] if seed % 2 else [1, 0, 0], tables=[1, 0], seed=seed)
    last = frames[2]
    split = [replace(last, released=last.released[:1])]
    split.append(replace(last, previous=last.first, first=last.first + 2, released=last.released[2:]))
    unknown = Released(77, (0, 0)) if seed % 2 else Released(1, (50, 50))
    frames = [frames[0], replace(frames[1], released=(unknown,)), *split]
    scene = Scene(tmp_path / "s.sqlite", policy)
    scene.record(*frames)
    expected = by_paths(policy, frames, {table.number: table for table in policy.measure_tables})
    for frame in frames:
        message = scene.estimate(frame.first)
        rows = zip(frame.released, message.means, message.covariances, message.log_likelihoods, strict=True)
        for tick, (point, mean, covariance, log_likelihood) in enumerate(rows, frame.first):
            total, true_mean, true_covariance, before = expected[tick]
            assert mean == pytest.approx(true_mean, abs=1e-12)
            assert decoded_covariance(covariance) == pytest.approx(true_covariance, abs=1e-12)
            is_seen = point != unknown
            assert log_likelihood == (pytest.approx(math.log(total / before), abs=1e-12) if is_seen else 0.0)
    for lag in (1, 2, 4):
        check_by_paths(tmp_path / f"{lag}.sqlite", policy, frames, lag)
    assert scene.counters["unknown_points"] == 1
    assert scene.counters["fallback_ticks"] == sum(point.table == 0 for frame in frames for point in frame.released)


def pairs_policy() -> MeasurePolicy:
    """A walk of order 2 on two by two cells that would rather not turn back, and in every third tick rather stays."""
    cells = [(a, b) for a in range(4) for b in range(4) if (a ^ b) != 3]

    def rows(back: float, stay: float) -> Any:
        rows = []
        for a, b in cells:
            row = [(at, back if c == a != b else stay if c == b else 1.0) for at, (x, c) in enumerate(cells) if x == b]
            rows.append(tuple((at, weight / sum(w for _, w in row)) for at, weight in row))
        return tuple(rows)

    fields = {
        "shows": tuple(b for _, b in cells),
        "transition": rows(0.2, 1.5),
        "initial": tuple(float(a == b == 0) for a, b in cells),
        "cycle": 3,
        "changes": (Change(tick=2, transition=rows(0.1, 7.0)),),
    }
    return MeasurePolicy.from_json(measure_policy(2, epsilon=1.5).model_copy(update=fields).to_json())


@pytest.mark.long
@pytest.mark.parametrize("kind", ["steps that change", "pairs"])
def test_chains_that_change_and_chains_of_pairs_are_followed_as_all_paths_add_up(tmp_path: Path, kind: str) -> None:
    """Twelve pairs, or four states; in the gap of a tick or two the steps change too."""
    if kind == "pairs":
        policy = pairs_policy()
        walk = measure_policy(2, start=0, epsilon=1.5)
        frames = measure_frames(walk, [2, 1, 1], gaps=[0, 0, 1], tables=[1, 0], seed=4)
    else:
        night = tuple(((state, 0.9), ((state + 1) % 4, 0.1)) for state in range(4))
        policy = measure_policy(2, epsilon=1.5, cycle=4, changes=({"tick": 3, "transition": night},))
        frames = measure_frames(policy, [2, 1, 3], gaps=[0, 0, 2], tables=[1, 0], seed=4)
    for lag in (0, 2):
        check_by_paths(tmp_path / f"{lag}.sqlite", policy, frames, lag)


def test_distributions_are_carried_over_many_cycles_as_tick_by_tick() -> None:
    model = MeasureModel(pairs_policy())
    distribution = model.initial_at(0)
    for tick in range(1, 400):
        distribution = model.predict_ahead(distribution, tick - 1, 1)
        if tick in (1, 2, 3, 4, 50, 399):
            assert model.initial_at(tick) == pytest.approx(distribution, abs=1e-12)
            assert model.predict_ahead(model.initial_at(2), 2, tick) == pytest.approx(
                model.initial_at(tick + 2), abs=1e-12
            )
    assert model.initial_at(10**12) == pytest.approx(model.initial_at(10**12 + 3), abs=1e-12)
    assert model.measured_belief(distribution) == pytest.approx(
        [distribution[[b == x for b in model.policy.shows]].sum() for x in range(4)]
    )
    assert [model.possible_states(tick).tolist() for tick in range(3)] == [
        [True, False, False, False],
        [True, True, True, False],
        [True, True, True, True],
    ]


def test_protection_counts_the_states_that_each_is_hidden_among(tmp_path: Path) -> None:
    """By the definition, on the integers of the table, over the states possible at the tick."""
    policy = measure_policy(3, start=4, epsilon=0.7)
    (frame,) = measure_frames(policy, [6], tables=[1, 0, 1])
    scene = Scene(tmp_path / "s.sqlite", policy)
    scene.record(replace(frame, released=frame.released[:5]))
    message = scene.estimate(0)
    reach, bound = MeasureModel(policy).reach, math.exp(0.7)
    for tick, point in enumerate(frame.released[:5]):
        table = policy.table(point.table)
        assert table is not None
        states = states_in(reach.set_at(tick))
        rows = {x: np.array(table.noise.row_weights(x)) for x in states}
        hidden = [
            sum(max((rows[i] / rows[j]).max(), (rows[j] / rows[i]).max()) <= bound for j in states) for i in states
        ]
        assert message.protection[tick] == min(hidden)
    assert message.protection[0] == 1, "the walk begins in a place that everybody knows"
    assert scene.counters["exposed_ticks"] == sum(p == 1 for p in message.protection)


# Arrival

FRAMES = [
    *(early := measure_frames(POLICY, [3, 1, 10, 4, 6], gaps=[0, 0, 3, 0, 30], tables=[1, 0, 1], seed=8)),
    *(
        replace(frame, first=frame.first + 90, previous=frame.previous + 90 if i else early[-1].last)
        for i, frame in enumerate(measure_frames(SECOND_VERSION, [5, 5, 2], tables=[0, 1], seed=9))
    ),
]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[object, ...]:
    """The final state of an in-order run."""
    scene = Scene(tmp_path_factory.mktemp("store") / "s.sqlite")
    for frame in FRAMES:
        scene.record(frame)
    return scene.final()


@pytest.mark.long
@settings(max_examples=8, deadline=None)
@given(st.data())
def test_any_order_repetition_batching_and_restart_ends_in_the_same_bits(
    undisturbed: tuple[object, ...], data: st.DataObject
) -> None:
    repeated = data.draw(st.lists(st.sampled_from(FRAMES), max_size=4))
    arrivals = data.draw(st.permutations([*FRAMES, *repeated]))
    with tempfile.TemporaryDirectory() as folder:
        scene = Scene(Path(folder) / "s.sqlite")
        while arrivals:
            size = data.draw(st.integers(1, len(arrivals)))
            scene.record(*arrivals[:size])
            arrivals = arrivals[size:]
            if data.draw(st.booleans()):
                scene.reopen()
        assert scene.final() == undisturbed
        assert scene.counters["stored"] == len(FRAMES)
        assert scene.counters["duplicate"] == len(repeated)
        scene.store.close()


def test_each_tick_is_told_once_when_the_later_points_have_come(tmp_path: Path) -> None:
    """In the reports of 200 ticks, with gaps: 185 estimates at a lag, those of the store, and none for the newest."""
    scene = Scene(tmp_path / "s.sqlite", lag=9)
    frames = measure_frames(POLICY, [10] * 18 + [7, 7], gaps=[0, 0, 6] + [0] * 17, seed=5)
    smoothed_values: dict[int, SmoothedValue] = {}
    for frame in frames:
        scene.record(frame)
        (*_, outgoing) = scene.store.outbox(0, 99)
        report = scene.recorder.report(outgoing)
        assert isinstance(report, ValueEstimate)
        assert decode_estimate(report.encode()) == report
        for smoothed_value in report.smoothed:
            assert smoothed_value.tick not in smoothed_values
            assert smoothed_value.time == instant(SECOND * smoothed_value.tick)
            smoothed_values[smoothed_value.tick] = smoothed_value
    assert len(smoothed_values) == 185
    for some in (estimates for frame in frames for estimates in scene.lagged_estimates(frame.first)):
        for tick, row in enumerate(zip(some.means, some.covariances, strict=True), some.first):
            smoothed_value = smoothed_values.pop(tick)
            assert smoothed_value.lag == some.lag == 9
            assert smoothed_value.values == pytest.approx(row[0], abs=1e-6)
            assert smoothed_value.deviations == pytest.approx(np.sqrt(decoded_covariance(row[1]).diagonal()), abs=1e-6)
    assert not smoothed_values


def test_a_late_frame_changes_what_was_published_after_it(tmp_path: Path) -> None:
    """All later frames are queued again, until one that stays the same."""
    scene = Scene(tmp_path / "s.sqlite")
    scene.record(FRAMES[0], *FRAMES[2:])
    published = scene.final()[3]
    scene.store._db.execute("DELETE FROM outbox")
    scene.record(FRAMES[1])
    assert scene.counters["late"] == 1
    queued = {row.frame for row in scene.store.outbox(0, 99)}
    assert {FRAMES[1].first, FRAMES[2].first} <= queued
    changed = scene.final()
    assert isinstance(published, list)
    assert isinstance(changed[3], list)
    again = {first[0].first for first in changed[3] if first not in published}
    assert again <= queued, "whatever differs is published again"


def test_what_contradicts_a_stored_frame_is_counted_and_left_out(tmp_path: Path) -> None:
    scene = Scene(tmp_path / "s.sqlite")
    first, second, *_ = measure_frames(POLICY, [10, 10, 10])
    scene.record(first)
    other = Released(1, (0, 0)) if first.released[0] != Released(1, (0, 0)) else Released(1, (1, 1))
    scene.record(
        replace(first, padding=5),
        replace(first, released=(other, *first.released[1:])),
        replace(first, policy_version=2),
        MeasureFrame(1, 3, 9, 2, (other,) * 3),
        MeasureFrame(1, -1, 0, 2, (other,)),
        second,
    )
    assert scene.counters == Counter(stored=2, duplicate=1, conflict=4, **_of_points(scene.counters))
    assert scene.commit() == StreamCommit("place", 19, ())
    assert scene.store.points.at(1, 0).frame == first


def _of_points(counters: Counter[str]) -> dict[str, int]:
    return {name: counters[name] for name in ("fallback_ticks", "exposed_ticks", "unknown_points") if name in counters}


def test_frames_of_a_retired_policy_are_still_estimated(tmp_path: Path) -> None:
    scene = Scene(tmp_path / "s.sqlite")
    scene.record(*FRAMES)
    before = scene.final()
    scene.policies = (SECOND_VERSION,)
    scene.reopen()
    assert scene.final() == before


PLACE = topic_of("symbols", "home", "watch", "place")
POINT = Released(1, (0, 0, 0))
LAST = MeasureFrame(1, -1, MAX_TICK, 2, (Released(0, (0, 0)),))


@pytest.mark.parametrize(
    ("topic", "payload", "reason"),
    [
        (PLACE, FRAMES[0].encode(), None),
        (topic_of("symbols", "home", "watch", "hr"), FRAMES[0].encode(), "wrong_kind"),
        (PLACE, SymbolFrame(1, -1, 0, b"\0").encode(), "wrong_kind"),
        (PLACE, replace(FRAMES[0], policy_version=9).encode(), "unknown_policy_version"),
        (PLACE, FRAMES[0].encode()[:-1], "malformed"),
        (PLACE, MeasureFrame(1, -1, 0, 3, (POINT,)).encode(), "point_mismatch"),
        (PLACE, MeasureFrame(1, -1, 0, 3, (POINT,) * MAX_MEASURE_TICKS).encode() + b"\0", "oversized"),
        (PLACE, LAST.encode(), "from_the_future"),
        (PLACE, replace(LAST, shift=MAX_TICK).encode(), None),
    ],
)
def test_a_frame_that_its_policy_does_not_allow_is_counted_by_its_reason(
    topic: str, payload: bytes, reason: str | None
) -> None:
    catalogue = Catalogue("home")
    for policy in (POLICY, symbol_policy()):
        catalogue.add(policy)
    counters: Counter[str] = Counter()
    meaning = Ingest(catalogue, counters).read(Message(topic, payload))
    assert meaning == (None if reason else ReceivedFrame("watch", "place", MeasureFrame.decode(payload)))
    assert counters == Counter(["received", *([reason] if reason else [])])


def test_a_frame_from_the_end_of_time_is_taken(tmp_path: Path) -> None:
    scene = Scene(tmp_path / "s.sqlite")
    scene.record(MeasureFrame(1, -1, MAX_TICK, 2, (Released(1, (1, 1)),)))
    assert scene.counters["stored"] == 1
    assert scene.estimate(MAX_TICK) is not None


def test_symbols_and_points_do_not_share_a_stream(tmp_path: Path) -> None:
    catalogue = Catalogue("home")
    catalogue.add(symbol_policy())
    with pytest.raises(PolicyError, match="use two streams"):
        catalogue.add(measure_policy(2, stream="hr"))
    catalogue = Catalogue("home")
    catalogue.add(measure_policy(2, stream="hr"))
    with pytest.raises(PolicyError, match="use two streams"):
        catalogue.retire([symbol_policy(2).to_json()])


def test_a_box_too_large_to_estimate_with_is_refused_when_the_policy_is_read() -> None:
    """121 states that are 600 steps apart: 36 million points."""
    policy = measure_policy(11, tables=False)
    far = tuple((600 * x, 600 * y) for x, y in policy.coordinates)
    with pytest.raises(PolicyError, match="121 states and 36012001 points are too many"):
        MeasureModel(policy.model_copy(update={"coordinates": far}))


# Tables


class Sending:
    """A sender of tables at a moment that a test sets."""

    def __init__(self, folder: Path, *policies: MeasurePolicy) -> None:
        self.scene = Scene(folder / "s.sqlite", *policies)
        self.now = 1_900_000_000 * SECOND
        self.seconds = 0.0
        self.wire = Wire()
        self.open()

    def open(self) -> None:
        scene = self.scene
        loop = loop_of(
            store=scene.store,
            link=self.wire,
            catalogue=scene.catalogue,
            counters=scene.counters,
            now_us=lambda: self.now,
            seconds=lambda: self.seconds,
        )
        self.sender = TableSender(loop, scene.recorder.points)

    def reopen(self) -> None:
        self.scene.reopen()
        self.open()

    def pump(self, seconds: float = 100.0) -> list[TimedTable]:
        self.seconds += seconds
        self.sender.stored([NewestFrame("watch", "place", 1, 0, 0)])
        self.sender.pump()
        tables = [TimedTable.decode(payload) for _, payload in self.wire.sent]
        self.wire.sent.clear()
        return tables


def at_epoch(side: int = 4, **fields: Any) -> MeasurePolicy:
    """A walk from a corner that begins at the sender's moment."""
    clock = {"epoch_us": 1_900_000_000 * SECOND, "period_us": 10 * SECOND}
    return measure_policy(side, start=0, clock=clock, frame_ticks=2, **fields)


def test_tables_are_sent_ahead_of_their_ticks(tmp_path: Path) -> None:
    """Each set gets its own, at least a frame before it comes; none is sent twice, and none that the policy has."""
    sending = Sending(tmp_path, policy := at_epoch())
    model = MeasureModel(policy)
    sent: dict[int, TimedTable] = {}
    for tick in range(-1, 12):  # at tick 0 one state alone is possible
        sending.now = (1_900_000_000 + 10 * tick) * SECOND
        for table in sending.pump():
            assert table.number not in sent
            assert table.until > tick + 1
            sent[table.number] = table
        for later in range(max(tick, 0) + 1, tick + 4):
            constraint = model.reach.set_at(later)
            in_policy = constraint in {table.constraint for table in policy.measure_tables}
            covered = any(table.covers(later, constraint) for table in sent.values())
            assert covered or in_policy
    assert {table.constraint for table in sent.values()} == {
        mask for mask in model.reach.all_sets() if mask.bit_count() > 1 and mask != (1 << 16) - 1
    }
    for table in sent.values():
        check_noise(policy.measurement, table.noise, table.constraint)
    assert len({table.number for table in sent.values()} & {0, 1}) == 0
    assert sending.scene.counters["tables_made"] == len(sent)
    assert sending.scene.counters["tables_failed"] == 0


def test_a_device_whose_clock_went_back_is_sent_tables_for_the_numbers_that_its_ticks_have_now(tmp_path: Path) -> None:
    """Its numbers are ahead of the wall clock by its shift; tables for wall ticks would have ended already."""
    clock = {"epoch_us": 1_900_000_000 * SECOND - 600 * SECOND, "period_us": SECOND}
    policy = measure_policy(8, clock=clock, frame_ticks=2, delta=0.2, epsilon=3.0, factor=30)
    sending = Sending(tmp_path, policy)
    for shift in (0, 5000):
        tables = []
        for frame in measure_frames(policy, [4] * 3, seed=3):
            moved = replace(frame, first=frame.first + 560 + shift, previous=frame.previous + 560 + shift, shift=shift)
            sending.scene.record(moved)
            sending.now = clock["epoch_us"] + (moved.last - shift + 1) * SECOND
            tables += [(moved.last, table) for table in sending.pump()]
        assert tables
        for last, table in tables:
            assert table.first <= last + 2 < table.until <= last + 2 + 60


def test_a_device_that_comes_online_is_sent_them_again(tmp_path: Path) -> None:
    sending = Sending(tmp_path, at_epoch())
    first = sending.pump()
    assert first
    assert sending.pump() == []
    sending.sender.born("ring")
    assert sending.pump() == []
    sending.sender.born("watch")
    assert sending.pump() == first
    sending.wire.connected = False
    sending.sender.born("watch")
    assert sending.pump() == []
    sending.wire.connected = True
    assert sending.pump() == first
    assert sending.scene.counters["tables_made"] == len(first)


def test_after_a_restart_a_number_means_the_same(tmp_path: Path) -> None:
    sending = Sending(tmp_path, at_epoch())
    first = sending.pump()
    sending.reopen()
    assert sending.pump() == first
    assert sending.scene.counters["tables_made"] == len(first)
    number = sending.scene.place.number
    assert [sending.scene.store.points.table(number, 1, table.number) for table in first] == first


def test_a_store_that_is_lost_repeats_no_number(tmp_path: Path) -> None:
    """The device may still hold the tables of the old one, and its frames name them."""
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    policy = at_epoch()
    first, second = Sending(tmp_path / "a", policy), Sending(tmp_path / "b", policy)
    old = first.pump()
    second.now += 40 * SECOND
    new = second.pump()
    assert new
    assert not {table.number for table in old} & {table.number for table in new}


def test_streams_whose_tables_take_long_wait_for_one_another_and_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each table takes a second: one stream is served at a time, in turn, and rests 20 times as long."""
    devices = ("watch", "ring", "band")
    sending = Sending(tmp_path, *(at_epoch(device=device) for device in devices))
    publish = sending.wire.publish
    passed = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: passed[0])

    def slowly(*arguments: Any, **options: Any) -> Any:
        passed[0] += 1.0
        return publish(*arguments, **options)

    monkeypatch.setattr(sending.wire, "publish", slowly)

    def served() -> list[str]:
        sending.sender.pump()
        topics = [parse_topic(topic).device for topic, _ in sending.wire.sent]
        sending.wire.sent.clear()
        return list(dict.fromkeys(topics))

    turns = [served() for _ in devices]
    assert sorted(device for turn in turns for device in turn) == sorted(devices)
    assert all(len(turn) == 1 for turn in turns)
    for device in devices:
        sending.sender.born(device)
    sending.seconds = 19.0
    assert served() == []
    assert not sending.sender.busy
    sending.seconds = 600.0
    assert [served() for _ in devices] == turns, "who has waited longest comes first"
    assert served() == []


def test_what_goes_wrong_with_one_stream_stops_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sending = Sending(tmp_path, at_epoch())

    def broken(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("gateway.parts.place_tables.make_noise", broken)
    assert sending.pump() == []
    assert sending.scene.counters["unexpected"] == 1
    monkeypatch.undo()
    assert sending.pump()


def test_tables_are_for_the_policy_that_the_device_runs(tmp_path: Path) -> None:
    """As its newest frame says; before the first one, for the newest policy."""
    old, new = at_epoch(3, tables=False), at_epoch(3, tables=False, version=2, epsilon=2.0)
    sending = Sending(tmp_path, old, new)
    sending.now += 60 * SECOND
    assert {table.policy_version for table in sending.pump()} == {2}
    for version in (1, 2, 1):
        newest = sending.scene.recorder.points.newest("watch", "place")
        first = 0 if newest is None else newest.frame.last + 1
        sending.scene.record(MeasureFrame(version, first - 1, first, 2, (Released(0, (1, 1)),)))
        tables = sending.pump()
        assert {table.policy_version for table in tables} == {version}
        for table in tables:
            check_noise((old, new)[version - 1].measurement, table.noise, table.constraint)
    sending.scene.policies = (new,)
    sending.reopen()
    assert {table.policy_version for table in sending.pump()} == {2}, "the other one is retired"


def test_a_belief_about_the_states_of_a_policy_of_before_leads_to_no_table(tmp_path: Path) -> None:
    old, new = at_epoch(3, delta=0.2), at_epoch(4, delta=0.2, version=2)
    sending = Sending(tmp_path, old, new)
    sending.scene.record(MeasureFrame(1, -1, 0, 2, (Released(0, (1, 1)), Released(0, (1, 1)))))
    sending.scene.policies = (new,)
    sending.reopen()
    sending.now += 60 * SECOND
    sending.pump()
    assert sending.scene.counters["unexpected"] == 0


def cyclic(count: int) -> MeasurePolicy:
    """Two states of a large ring are possible, others at every tick: as many sets as states."""
    policy = measure_policy(2, start=0)
    values = [(x, 0) for x in range(count)]
    from fugu.places.tables import fallback_noise

    noise = fallback_noise(np.array(values), 1.0)
    names = tuple(f"c{x}" for x in range(count))
    changes = {
        "discretiser": policy.discretiser.model_copy(
            update={"states": names, "categories": {name: x for x, name in enumerate(names)}}
        ),
        "coordinates": tuple(values),
        "transition": tuple((((x + 1) % count, 1.0),) for x in range(count)),
        "initial": (0.5, 0.5, *([0.0] * (count - 2))),
        "graph": {"complete": True},
        "clock": {"epoch_us": 1_900_000_000 * SECOND, "period_us": SECOND // 10},
        "factor": 1000,
        "fallback": TimedTable(1, 0, 0, 0, MAX_TICK + 1, noise).text,
        "tables": (),
    }
    document = policy.model_dump() | changes
    document["discretiser"] = changes["discretiser"].model_dump()
    return MeasurePolicy.model_validate(document)


def test_a_device_is_never_sent_more_tables_than_it_holds(tmp_path: Path) -> None:
    """A cycle of 60 sets: what does not fit is left to the fallback, and nothing is sent again and again."""
    sending = Sending(tmp_path, cyclic(60))
    sent = sending.pump()
    assert len(sent) == len({table.number for table in sent}) == MOST_HELD - 4
    for tick in range(1, 130, 7):
        sending.now = 1_900_000_000 * SECOND + tick * SECOND // 10
        assert sending.pump() == []


# Tables that follow the belief


def test_a_table_for_likely_states_keeps_the_promise_and_follows_the_belief(tmp_path: Path) -> None:
    """A walk on 64 cells whose whereabouts are fairly well known; the promise is for all possible states."""
    clock = {"epoch_us": 1_900_000_000 * SECOND - 600 * SECOND, "period_us": SECOND}
    policy = measure_policy(8, clock=clock, frame_ticks=2, delta=0.2, epsilon=3.0, factor=30)
    sending = Sending(tmp_path, policy)
    tables: list[TimedTable] = []
    seen: dict[int, tuple[object, object]] = {}
    for frame in measure_frames(policy, [4] * 12, seed=3):
        moved = replace(frame, first=frame.first + 560, previous=frame.previous + 560)
        sending.scene.record(moved)
        sending.now = clock["epoch_us"] + (moved.last + 1) * SECOND
        for table in sending.pump():
            check_noise(policy.measurement, table.noise, table.constraint)
            assert table.constraint == (1 << 64) - 1
            assert table.first <= moved.last + 2 < table.until <= table.first + 3 * 20
            assert seen.setdefault(table.number, (table.constraint, table.noise)) == (table.constraint, table.noise)
            tables.append(table)
    assert len({table.number for table in tables}) > 2, "the belief has moved"
    with sqlite3.connect(sending.scene.path) as database:
        likely = {
            row[0]: TimedTable.decode(row[1]) for row in database.execute("SELECT number, message FROM sent_tables")
        }
    assert {table.number for table in tables} <= set(likely)
    assert all(table.noise.likely.bit_count() < 64 for table in tables), "unlikely states have surrogates"
    assert sum(len(table.encode()) for table in tables) < 200 * 48, "bytes a tick"


def test_frames_drawn_from_sent_tables_are_estimated_with_them(tmp_path: Path) -> None:
    sending = Sending(tmp_path, at_epoch(3, tables=False))
    sending.now += 30 * SECOND
    table = next(table for table in sending.pump() if table.constraint == (1 << 9) - 1)
    generator = random.Random(4)
    noise = table.noise
    assert isinstance(noise, StaircaseNoise)
    points = tuple(Released(table.number, noise.draw((1, 1), generator.randrange)) for _ in range(5))
    frame = MeasureFrame(1, -1, 10, 2, points)
    sending.scene.record(frame)
    assert sending.scene.counters["unknown_points"] == 0
    before = sending.scene.final()
    message = sending.scene.estimate(10)
    assert min(message.protection) > 1
    assert all(number < 0 for number in message.log_likelihoods)
    sending.scene.reopen()
    assert sending.scene.final() == before


def test_made_noise_passes_the_check_for_every_set_of_a_walk() -> None:
    """Also when only some of the possible states are kept."""
    policy = measure_policy(4, start=5, graph={"categories": [x % 3 for x in range(16)]}, factor=6)
    model = MeasureModel(policy)
    generator = np.random.default_rng(1)
    assert np.array_equal(policy_graph(model), policy_graph(model).T)
    for constraint in model.reach.all_sets():
        if constraint.bit_count() < 2:
            continue
        possible = np.array([bool(constraint >> x & 1) for x in range(16)])
        for _ in range(3):
            likely = possible & (generator.random(16) < 0.7)
            noise, _ = make_noise(model, possible, likely if likely.sum() > 1 else possible)
            check_noise(policy.measurement, noise, constraint)


def test_a_sent_staircase_is_the_table_that_it_stands_for() -> None:
    """The same points, as likely up to what certifying whole weights costs; a hull that has none is sent as weights."""
    policy = measure_policy(4, factor=6)
    model = MeasureModel(policy)
    possible, generator = np.ones(16, dtype=np.bool_), np.random.default_rng(2)
    for _ in range(5):
        likely = generator.random(16) < 0.7
        noise, _ = make_noise(model, possible, likely)
        hull = protect_likely(model.values, policy_graph(model), possible, likely, cap=6).hull
        weights = compile_noise(hull, model.values, possible, policy.epsilon, likely)
        assert isinstance(noise, StaircaseNoise)
        assert isinstance(weights, NoiseTable)
        short, whole = emission(noise, model.values), emission(weights, model.values)
        assert short.points == whole.points
        assert short.probabilities == pytest.approx(whole.probabilities, abs=1e-6)
        sizes = [len(TimedTable(1, 9, 0, 0, 9, body).encode()) for body in (noise, weights)]
        assert sizes[0] < 100 < 900 < sizes[1]
    widened = MeasureModel(measure_policy(4, graph={"categories": [x // 4 for x in range(16)]}))
    assert isinstance(make_noise(widened, possible, possible)[0], NoiseTable)


def test_the_topic_of_tables_is_the_device_s_own(tmp_path: Path) -> None:
    sending = Sending(tmp_path, at_epoch())
    sending.sender.pump()
    assert {topic for topic, _ in sending.wire.sent} == {topic_of("table", "home", "watch", "place")}


ORIGIN, STEP = (52.0, 4.0), (0.001, 0.002)
CELLS = tuple((int(x), int(y)) for x, y in grid(4)[0])


@pytest.mark.parametrize("seed", range(4))
def test_the_ellipse_holds_cells_of_95_percent(seed: int) -> None:
    """With corners of cells as latitudes and longitudes, in a policy whose steps are worth 7 and 11 of its units."""
    cells = Cells(origin=ORIGIN, step=STEP, cells=CELLS, states=tuple(f"c{x}" for x in range(16)))
    model = MeasureModel(measure_policy(4, tables=False, discretiser=cells, resolution=(7.0, 11.0)))
    likely = np.random.default_rng(seed).dirichlet(np.full(16, 0.3))
    estimate = measured_estimate(model, 5, 0, likely, 3)
    assert isinstance(estimate, PlaceEstimate)
    assert decode_estimate(estimate.encode()) == estimate
    narrow = METRES_PER_DEGREE * math.cos(math.radians(estimate.latitude))
    turn = math.radians(estimate.orientation)

    def inside(cell: tuple[int, int], scale: float) -> bool:
        for x, y in product((0, 1), repeat=2):
            east = (ORIGIN[1] + (cell[0] + x) * STEP[1] - estimate.longitude) * narrow
            north = (ORIGIN[0] + (cell[1] + y) * STEP[0] - estimate.latitude) * METRES_PER_DEGREE
            along, across = (
                east * math.sin(turn) + north * math.cos(turn),
                east * math.cos(turn) - north * math.sin(turn),
            )
            if math.hypot(along / estimate.semi_major, across / estimate.semi_minor) > scale:
                return False
        return True

    assert sum(weight for cell, weight in zip(CELLS, likely, strict=True) if inside(cell, 1.001)) >= 0.95
    assert sum(weight for cell, weight in zip(CELLS, likely, strict=True) if inside(cell, 0.99)) < 0.95
