"""Promises of the store, kept by both of its engines: SQLite and PostgreSQL; old frames, conflicts and stops."""

from __future__ import annotations

import os
import random
import re
import resource
from array import array
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
import pytest

from fugu.contract.errors import UsageError
from fugu.contract.frames import WindowFrame
from fugu.contract.measure_frames import MeasureFrame, Released
from fugu.contract.measure_table import TimedTable
from fugu.contract.noise_table import NoiseTable
from fugu.contract.windows import Window
from fugu.host.database import DatabaseError
from gateway.loop.gateway import store_bytes
from gateway.loop.inbox import ReceivedFrame
from gateway.store import points
from gateway.store.coverage import Coverage, Span
from gateway.store.engine import Lease, lock_file
from gateway.store.location import Location, Server, store_location
from gateway.store.shards import Shard, owner
from gateway.store.store import KIND, SYMBOLS, Conflict, LedgerRecord, ReleasedTick, Store, StoreError
from tests.support.scenes import OTHER, Scene, frames, policy

FAR = 2**52
NOISE = NoiseTable((array("I", [1 << 30, 3 << 30]), array("I", [1, 2])), ((0, -1), (70_000, 2), (3, 3)))
POINTS = MeasureFrame(1, -1, FAR, 2, (Released(0, (5, -6)), Released(3, (70_000, 1))))
BELIEF = np.array([0.25, 0.75])


@pytest.fixture
def store(location: Location) -> Iterator[Store]:
    opened = Store(location)
    yield opened
    opened.close()


def table(number: int, constraint: int = 1) -> TimedTable:
    return TimedTable(2, number, constraint, 600, 1200, NOISE)


def test_a_stream_keeps_its_number(store: Store, location: Location) -> None:
    assert store.stream_id("watch", "hr") is None
    numbers = {
        (device, stream): store.number_of(device, stream) for device in ("watch", "ring") for stream in ("hr", "s/d")
    }
    assert len(set(numbers.values())) == 4
    store.close()
    again = Store(location)
    assert {key: again.stream_id(*key) for key in numbers} == numbers == {key: again.number_of(*key) for key in numbers}
    again.close()


def test_coverage_and_shifts_are_what_was_said_last(store: Store) -> None:
    coverage = Coverage()
    for after, through in ((-1, 9), (19, 29), (FAR, FAR + 1), (9, 14), (14, 40)):
        merge = coverage.add(after, through)
        store.merge_coverage(1, *merge)
    store.merge_coverage(2, *(Coverage().add(0, 1) or pytest.fail("a set with nothing in it has changed")))
    assert sorted(store.aged.coverage(1)) == coverage.intervals == [(-1, 40), (FAR, FAR + 1)]
    store.put_shifts(1, [Span(0, 0, 9), Span(5, 10, 19)], 0)
    store.put_shifts(1, [Span(5, 10, 29), Span(8, 30, FAR)], 5)
    shifts = store.shifts(1)
    assert (shifts.oldest, shifts.newest, shifts.at(29), shifts.at(30)) == (5, 8, 5, 8)


def test_a_policy_is_kept_once(store: Store) -> None:
    for document in ("first", "second"):
        store.add_policy(1, 7, document)
    assert store.policy_documents() == ["first"]


def test_what_is_queued_again_waits_under_a_new_number(store: Store, location: Location) -> None:
    number = store.number_of("watch", "place/day")
    with store.transaction():
        for frame in (10, 20, 10):
            store.queue_estimates(number, frame)
    waiting = store.outbox(0, 10)
    assert [(waiting.place.stream, waiting.place.window_name, waiting.frame) for waiting in waiting] == [
        ("place", "day", 20),
        ("place", "day", 10),
    ]
    assert store.outbox(waiting[0].serial, 10) == waiting[1:]
    store.forget_outgoing([waiting[0].serial])
    store.queue_estimates(number, 30)
    assert [waiting.frame for waiting in store.outbox(0, 1)] == [10]
    assert max(waiting.serial for waiting in store.outbox(0, 3)) > max(waiting.serial for waiting in waiting)


def test_the_counter_of_watermarks_never_goes_back(store: Store) -> None:
    for number in (5, FAR, 7):
        store.reserve_counter(number)
    assert store.reserved_counter() == FAR


def test_points_come_back_as_they_were(store: Store) -> None:
    with store.transaction():
        store.points.add(1, POINTS, BELIEF)
    newest = store.points.newest(1)
    assert newest.frame == POINTS
    assert newest.belief.tobytes() == BELIEF.tobytes()
    store.points.set_belief(1, FAR, BELIEF[::-1])
    assert [frame.belief.tolist() for frame in store.points.following(1, 0)] == [[0.75, 0.25]]
    assert store.points.overlapping(1, replace(POINTS, first=FAR + 1)) == POINTS
    assert store.points.holding(1, FAR + 2, FAR + 9) == store.points.holding(2, 0, 2 * FAR) == []
    with pytest.raises(DatabaseError):
        store.points.add(1, POINTS, BELIEF)


def test_a_table_takes_the_place_of_one_with_its_number_or_key(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(points, "MOST_LIKELY", 3)
    policy_key, keys = b"\0\1\0\1", [bytes([0, 1, 0, i]) for i in range(2, 8)]
    store.points.put_table(1, policy_key, table(1))
    for number, key in enumerate(keys, 2):
        store.points.put_table(1, key, table(number))
    store.points.put_table(1, keys[-1], table(50))
    store.points.put_table(1, b"else", table(6))
    assert [store.points.table(1, 2, number) is not None for number in (1, 2, 3, 4, 5, 6, 7, 50)] == [
        *(True, False, False, False, True, True, False, True)
    ], "the newest three for likely states, and that of the policy"
    assert store.points.table_for(1, 2, keys[-1]) == table(50)
    assert store.points.table_for(1, 2, keys[-2]) is None
    assert store.points.next_number(1, 2, 9) == 51
    assert store.points.next_number(1, 3, 9) == 9


def test_what_was_released_never_goes_back(store: Store, tmp_path: Path) -> None:
    identity = store.releases.ledger_record().identity
    assert len(bytes.fromhex(identity)) == 16
    other = Store(tmp_path / "other.sqlite")
    assert other.releases.ledger_record().identity != identity
    other.close()
    store.releases.begin("ledger", 3)
    for entry, last in ((4, 8), (FAR, FAR), (5, 9)):
        store.releases.note(entry, [ReleasedTick("watch", "hr", last), ReleasedTick("ring", "hr", 1)])
    assert store.releases.ledger_record() == LedgerRecord(identity, "ledger", FAR)
    assert sorted(store.releases.released_ticks()) == [ReleasedTick("ring", "hr", 1), ReleasedTick("watch", "hr", FAR)]


def test_contradictions_are_counted_and_stops_end(store: Store) -> None:
    for now in (100, 200):
        store.conflicts.note("watch", "hr", 7, now)
    assert store.conflicts.all_conflicts() == [Conflict("watch", "hr", 7, 100, 200, 2)]
    store.conflicts.stop("watch", 3)
    store.conflicts.end_stop("watch")
    store.conflicts.stop("ring", 1)
    assert store.conflicts.stops() == {"watch": (3, True), "ring": (1, False)}
    store.conflicts.stop("watch", 4)
    assert store.conflicts.stops()["watch"] == (4, False)


def test_what_home_assistant_was_told_can_be_taken_back(store: Store) -> None:
    for platform in ("sensor", "binary?%s"):
        store.discovered.keep("watch", {"hr": platform})
    assert store.discovered.all_components() == {"watch": {"hr": "binary?%s"}}
    store.discovered.forget("watch")
    assert store.discovered.all_components() == {}


def test_a_transaction_is_all_or_nothing_and_one_inside_is_a_part_of_it(store: Store, location: Location) -> None:
    def fail() -> None:
        with store.transaction():
            store.add_policy(1, 1, "lost")
            store.reserve_counter(FAR)
            raise LookupError

    with pytest.raises(LookupError):
        fail()
    with store.transaction():
        store.add_policy(1, 1, "kept")
        other = Store(location)
        assert other.policy_documents() == [], "others see nothing of it yet"
        other.close()
    assert (store.policy_documents(), store.reserved_counter()) == (["kept"], 0)


def test_a_snapshot_sees_one_state_and_changes_nothing(store: Store, location: Location) -> None:
    store.add_policy(1, 1, "before")
    reader = Store(location)
    with reader.snapshot():
        assert reader.policy_documents() == ["before"]
        store.add_policy(1, 2, "after")
        assert reader.policy_documents() == ["before"]
        with pytest.raises(DatabaseError):
            reader.add_policy(1, 3, "by a reader")
    assert sorted(reader.policy_documents()) == ["after", "before"]
    reader.close()


def test_one_gateway_has_a_store_and_gives_it_back(location: Location) -> None:
    first = Store(location, lease=Lease())
    shard = Store(location, lease=Lease("shard 1"))
    reader = Store(location)
    who = rf"process {os.getpid()}" if isinstance(location, Path) else r"from .+, by the server's process \d+"
    for lease in (Lease(), Lease("shard 1")):
        with pytest.raises(StoreError, match=rf"^another gateway runs with the store \S+ \({who}\): stop it"):
            Store(location, lease=lease)
    first.close()
    Store(location, lease=Lease()).close()
    for opened in (shard, reader):
        opened.close()


def test_a_full_disk_keeps_nobody_from_a_lock(tmp_path: Path) -> None:
    """Its file has the number of its process, for messages only."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))
    try:
        lock = lock_file(tmp_path / "s.sqlite", KIND)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    with lock, pytest.raises(StoreError, match=r"another gateway runs with the store s\.sqlite: stop it"):
        lock_file(tmp_path / "s.sqlite", KIND)


def test_a_store_that_is_not_there_is_made_only_for_a_gateway(location: Location) -> None:
    with pytest.raises(StoreError, match="there is no store "):
        Store(location, create=False)
    assert store_bytes(location) == 0
    Store(location).close()
    Store(location, create=False).close()
    assert store_bytes(location) > 0


def test_it_is_stored_anew_without_what_was_removed(store: Store) -> None:
    store.add_policy(1, 1, "kept")
    store.rewrite()
    assert store.policy_documents() == ["kept"]
    store.refuse_damage(history=True)


@pytest.mark.processes
@pytest.mark.parametrize(
    ("statement", "says"),
    [
        ("CREATE TABLE songs (name TEXT)", "is no store"),
        ("CREATE TABLE store_format AS SELECT 9::bigint AS application, 2::bigint AS version", "is no store"),
        ("UPDATE store_format SET version=9", "is of version 9, this program knows 2: use a newer program"),
        ("UPDATE store_format SET version=1", "is of an older version than this program"),
    ],
)
def test_a_schema_with_anything_else_is_refused_and_left_alone(server: Server, statement: str, says: str) -> None:
    if statement.startswith("UPDATE"):
        Store(server).close()
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute(statement)
        query = "SELECT count(*) FROM pg_tables WHERE schemaname=current_schema()"
        before = connection.execute(query).fetchone()
        with pytest.raises(StoreError, match=says) as error:
            Store(server)
        assert "\n" not in str(error.value)
        assert connection.execute(query).fetchone() == before


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("mysql://fugu@db/home", "a store is a file, or postgresql://USER@HOST/DATABASE, not mysql://"),
        ("postgresql://fugu:secret@db/home", "no password in the store's URL"),
        ("postgresql://fugu@db/home?password=secret", "no password in the store's URL"),
        ("postgresql://[fugu/home", "the store's URL cannot be read"),
    ],
)
def test_a_location_that_cannot_be_used_is_refused_without_saying_a_secret(text: str, says: str) -> None:
    with pytest.raises(UsageError, match=says) as error:
        store_location(text)
    assert "secret" not in str(error.value)


def test_a_location_is_a_path_or_a_server_that_messages_call_by_host_and_database() -> None:
    assert store_location("some/home.db") == Path("some/home.db")
    location = store_location("postgresql://fugu@db.example:5433/home?sslmode=verify-full")
    assert isinstance(location, Server)
    assert f"{location}" == location.name == "postgresql://db.example:5433/home"


def test_a_server_that_cannot_be_reached_is_one_line() -> None:
    with pytest.raises(StoreError, match=r"cannot open the store postgresql://127\.0\.0\.1:1/home: ") as error:
        Store(Server("postgresql://fugu@127.0.0.1:1/home?connect_timeout=2"))
    assert "\n" not in str(error.value)
    with pytest.raises(StoreError, match="cannot open the store"):
        Store(Server("postgresql://fugu@127.0.0.1/home?no_such_option=1"))


HIGH = Window(name="high", length=10, stride=10, start=3, states=(1,), scale="20")
POLICIES = (policy(1, windows=(HIGH,)), policy(2, table=OTHER), policy(1, device="ring"))
STEPS = 60
MOST = 12


def rows(scene: Scene) -> dict[str, list[Any]]:
    """Everything that is stored, but for what is random."""
    database = scene.store._db
    with scene.store.snapshot():
        tables = {
            name: sorted(database.execute(f"SELECT * FROM intact_{name}"), key=repr)
            for name in re.findall(r"CREATE TABLE (\w+)", KIND.schema)
        }
    del tables["release_record"]
    return tables


def frames_of(device: str) -> list[ReceivedFrame]:
    """Frames with gaps, under two policies, some of which contradict others; and windows."""
    gaps, versions = (0, 0, 7), (1, 1, 1, 2) if device == "watch" else (1,)
    sequence = frames([13, 10, 31] * MOST, gaps=gaps, versions=versions, seed=len(device))
    others = [replace(frame, symbols=bytes(1 - value for value in frame.symbols)) for frame in sequence[::7]]
    received = [ReceivedFrame(device, "hr", frame) for frame in (*sequence, *others)]
    if device == "watch":
        counts = [WindowFrame(1, "high", i - 1, i, 3 + 10 * i, 10, 10, (i - 4,)) for i in range(MOST)]
        received += [ReceivedFrame(device, "hr", frame) for frame in (*counts, replace(counts[3], counts=(9,)))]
    return received


@pytest.mark.long
@pytest.mark.processes
def test_both_engines_come_to_the_same_state(tmp_path: Path, server: Server) -> None:
    drawn = random.Random(18)
    sent = [received for device in ("watch", "ring") for received in frames_of(device)]
    places: tuple[Location, ...] = (tmp_path / "s.sqlite", server)
    scenes = [Scene(place, policies=POLICIES) for place in places]
    for _ in range(STEPS):
        batch = drawn.sample(sent, drawn.randint(1, MOST))
        sealed, again = drawn.random() < 0.2, drawn.random() < 0.1
        for scene in scenes:
            scene.receive(batch)
            if sealed:
                scene.recorder.seal(now=True)
            if again:
                scene.reopen()
    file, database = scenes
    assert rows(file) == rows(database)
    assert file.counters == database.counters
    assert file.counters > Counter(stored=50, late=20, duplicate=50, conflict=5), "everything has happened"
    for device in ("watch", "ring"):
        assert file.committed(device) == database.committed(device)
    forgotten = []
    for scene in scenes:
        with scene.store.transaction():
            forgotten.append(scene.store.aged.forget("watch"))
    assert forgotten[0] == forgotten[1]
    assert rows(file) == rows(database)
    for scene in scenes:
        scene.store.close()


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    """A stream with three chunks of ten ticks, as far apart as chunks have to be."""
    scene = Scene(tmp_path / "s.sqlite")
    for frame in frames([10, 10, 10], gaps=(99_990,)):
        scene.record(frame)
        scene.recorder.seal(now=True)
    return scene


def test_the_first_frame_that_the_next_one_needs_ends_a_lag_before_the_newest(scene: Scene) -> None:
    number = scene.store.number_of("watch", "hr")
    needed = [scene.store.aged.needed_key(SYMBOLS, number, lag) for lag in (0, 100_000, 100_001, 200_000, 200_001)]
    assert needed == [299_990, 199_990, 99_990, 99_990, -1]
    assert scene.store.aged.needed_key(SYMBOLS, number + 1, 0) is None
    scene.store.close()


def test_what_was_removed_once_is_never_kept_again(scene: Scene) -> None:
    number = scene.store.number_of("watch", "hr")
    for through, begin in ((199_990, 200_000), (99_990, 100_000)):
        scene.store.aged.remove(SYMBOLS, number, through, begin)
        assert scene.store.aged.begin(number) == 200_000
        assert [frame.key for frame in scene.store.aged.oldest(SYMBOLS, number, 9)] == [299_990]
    scene.store.close()


def test_conflicts_say_when_they_began_and_a_stop_ends_for_its_own_device(tmp_path: Path) -> None:
    with closing(Store(tmp_path / "s.sqlite")) as store:
        for first, now in ((7, 100), (3, 200)):
            store.conflicts.note("watch", "hr", first, now)
        assert store.conflicts.all_conflicts() == [Conflict("watch", "hr", 7, 100, 200, 2)]
        for device in ("ring", "watch", "yard"):
            store.conflicts.stop(device, 5)
        store.conflicts.end_stop("watch")
        assert store.conflicts.stops() == {"ring": (5, False), "watch": (5, True), "yard": (5, False)}
        store.conflicts.stop("watch", 6)
        assert store.conflicts.stops()["watch"] == (6, False)


def test_a_shard_knows_conflicts_and_stops_of_its_own_devices(tmp_path: Path) -> None:
    devices = [f"d{i}" for i in range(8)]
    with closing(Store(tmp_path / "s.sqlite")) as store:
        store.arrange(2, lambda: None)
        for device in devices:
            store.conflicts.note(device, "hr", 0, 1)
            store.conflicts.stop(device, 1)
    for index in range(2):
        with closing(Store(tmp_path / "s.sqlite", shard=Shard(index, 2))) as store:
            mine = {device for device in devices if owner(device, 2) == index}
            assert 0 < len(mine) < 8
            assert {conflict.device for conflict in store.conflicts.all_conflicts()} == mine
            assert store.conflicts.stops().keys() == mine
