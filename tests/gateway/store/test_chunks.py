"""Sealing: chunks hold what came, whatever came when, whoever reads meanwhile, and wherever it is cut off."""

from __future__ import annotations

import random
import shutil
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fugu.contract.frames import SymbolFrame
from gateway.store.coverage import Place
from gateway.store.engine import Database, Rows
from gateway.store.journal import Arrivals, ReceivedFrame
from gateway.store.store import Store
from gateway.store.symbols import Chunk
from tests.support.scenes import Scene, final_state, frames, policy, symbols_of


def chunks(scene: Scene, stream: str = "hr") -> list[Chunk]:
    number = scene.store.number_of("watch", stream)
    return list(scene.store.symbols.chunks(number, -1))


def sealed_form(scene: Scene) -> list[tuple[object, ...]]:
    """Everything that is stored of chunks and heads, to the bit."""
    with sqlite3.connect(scene.path) as database:
        return [
            row
            for table in ("chunks", "heads", "coverage")
            for row in database.execute(f"SELECT * FROM {table} ORDER BY stream, 3").fetchall()
        ]


MIXED = frames(
    [400, 1, 900, 33, 800, 700, 5, 64, 2_000, 11, 1_999, 8] * 2,
    gaps=[0, 0, 3, 0, 30, 8, 7, 0, 0, 70_000, 0, 0],
    versions=[1, 1, 1, 2, 2, 3, 3, 1],
)
MIXED[-3:] = [SymbolFrame(f.policy_version, f.previous, f.first, f.symbols, bits=f.bits, shift=500) for f in MIXED[-3:]]


@pytest.mark.long
def test_what_is_sealed_is_read_back_as_it_came_of_every_policy_clock_and_gap(tmp_path: Path) -> None:
    scene = Scene(tmp_path / "s.sqlite")
    scene.record(*MIXED)
    before = final_state(scene)
    assert before.symbols == symbols_of(MIXED)
    next_symbols(scene, before.symbols)
    laid_out(scene.store, before.symbols)
    scene.recorder.seal(now=True)
    assert scene.store._db.execute("SELECT COUNT(*) FROM journal").fetchone() == (0,)
    for restarted in (False, True):
        if restarted:
            scene.reopen()
        assert final_state(scene) == before
    next_symbols(scene, before.symbols)
    laid_out(scene.store, before.symbols)
    for low, high in ((0, 0), (399, 1_400), (5_000, 80_000), (MIXED[-1].last, 2**53), (3_000, 3_001)):
        held = scene.store.symbols.holding(1, low, high)
        assert symbols_of(held) == [symbol for symbol in before.symbols if low <= symbol[0] <= high]
        assert all(low <= frame.first <= frame.last <= high for frame in held)


def laid_out(store: Store, symbols: list[tuple[int, int]]) -> None:
    """See that symbols are right as a release reads them: of many sequences at once, a line each."""
    for low, high in ((5_000, 80_000), (0, 0), (399, 1_400), (4_000, 9_000), (3_000, 3_001)):
        wanted = {symbol[0]: symbol for symbol in symbols if low <= symbol[0] <= high}
        columns = store.symbols.columns_between([7, 1], low, high)
        rows, lines = range(columns.row_count), np.full((2, high - low + 1), -1)
        assert all(columns.first[row] <= high and columns.last[row] >= low for row in rows)
        stored = (symbol for row in rows for symbol in symbols_of([columns.frame(row)]) if low <= symbol[0] <= high)
        assert set(stored) == {*wanted.values()}
        columns.lay_out(rows, [1] * columns.row_count, low, lines)
        assert lines[0].max() == -1
        assert {tick: symbol for tick, symbol in enumerate(lines[1].tolist(), low) if symbol >= 0} == {
            tick: symbol[-1] for tick, symbol in wanted.items()
        }


def next_symbols(scene: Scene, symbols: list[tuple[int, int]]) -> None:
    """See that the first symbol from a tick on is right at both ends of every frame, and beside them."""
    ticks = [tick for tick, *_ in symbols]
    for edge in {tick + beside for frame in MIXED for tick in (frame.first, frame.last) for beside in (-1, 0, 1)}:
        assert scene.store.symbols.next_first(1, edge) == min((tick for tick in ticks if tick >= edge), default=None)


@pytest.mark.long
@pytest.mark.parametrize("size", [1, 10, 999, 4_000])
def test_chunks_of_a_fast_stream_have_1000_to_4000_ticks_however_often_it_is_sealed(tmp_path: Path, size: int) -> None:
    generator, scene = random.Random(size), Scene(tmp_path / "s.sqlite")
    sequence = frames([size] * (10_000 // size))
    sent = 0
    while sent < len(sequence):
        step = generator.choice([1, 30, 300, 3_000]) * max(1, 10 // size)
        scene.record(*sequence[sent : sent + step])
        sent += step
        scene.recorder.seal(now=True)
        stored_chunks = chunks(scene)
        assert all(1_000 <= chunk.ticks <= 4_000 for chunk in stored_chunks[:-1])
        assert stored_chunks[-1].ticks <= 4_000
    assert symbols_of(scene.stored()) == symbols_of(sequence)


@pytest.mark.long
def test_a_slow_stream_has_chunks_of_a_bounded_span(tmp_path: Path) -> None:
    scene = Scene(tmp_path / "s.sqlite")
    sequence = frames([1] * 300, gaps=[999])
    for begin in range(0, 300, 7):
        scene.record(*sequence[begin : begin + 7])
        scene.recorder.seal(now=True)
    stored_chunks = chunks(scene)
    assert all(chunk.last - chunk.first < 1 << 16 for chunk in stored_chunks)
    assert len(stored_chunks) == -(-300 // 66)  # 66 ticks, one in a thousand, are the most that fit into a span
    assert symbols_of(scene.stored()) == symbols_of(sequence)


def test_a_small_last_chunk_is_made_anew_with_what_follows_and_the_result_is_as_if_it_had_come_at_once(
    tmp_path: Path,
) -> None:
    once, often = Scene(tmp_path / "once.sqlite"), Scene(tmp_path / "often.sqlite")
    sequence = frames([90] * 40, versions=[1] * 9 + [2])
    once.record(*sequence)
    once.recorder.seal(now=True)
    for frame in sequence[:11]:
        often.record(frame)
        often.recorder.seal(now=True)
        assert len(chunks(often)) == 1
    often.record(*sequence[11:])
    often.recorder.seal(now=True)
    assert sealed_form(often) == sealed_form(once)


@pytest.mark.long
def test_late_frames_in_sealed_chunks_leave_chunks_and_distributions_as_those_of_a_run_in_order(tmp_path: Path) -> None:
    """To the bit: the distributions of chunks are those given everything before them."""
    seed = 0
    generator = random.Random(seed)
    sequence = frames([generator.choice([1, 80, 250]) for _ in range(90)], gaps=[0, 0, 0, 9], versions=[1, 1, 2, 2, 3])
    late = set(generator.sample(range(90), 6))
    scene, in_order = Scene(tmp_path / "late.sqlite"), Scene(tmp_path / "order.sqlite")
    scene.record(*(frame for i, frame in enumerate(sequence) if i not in late))
    scene.recorder.seal(now=True)
    for i in generator.sample(sorted(late), len(late)):
        scene.record(sequence[i])
        if generator.random() < 0.7:
            scene.recorder.seal(now=True)
        if generator.random() < 0.3:
            scene.reopen()
    in_order.record(*sequence)
    assert final_state(scene) == final_state(in_order)
    for each in (scene, in_order):
        each.recorder.seal(now=True)
    assert final_state(scene) == final_state(in_order)
    past = in_order.recorder.symbols.past
    for chunk in chunks(scene):
        frame = next(in_order.store.symbols.following(1, chunk.first))
        assert chunk.distribution.tobytes() == past.distribution_at(Place(1, "watch", "hr"), frame).tobytes()


@pytest.mark.long
def test_a_binary_symbol_takes_no_more_than_a_fifth_of_a_byte_everything_included(tmp_path: Path) -> None:
    """But for the pages that the journal has left free, which it uses again."""
    devices, each = [f"d{number:02d}" for number in range(50)], 120_000
    scene = Scene(tmp_path / "s.sqlite", policies=tuple(policy(1, device=device) for device in devices))
    held = random.Random(1).randbytes(4_000)
    symbols = bytes(symbol & 1 for symbol in held)
    for begin in range(0, each, 4_000):
        frame = SymbolFrame(1, begin - 1, begin, symbols)
        scene.receive([ReceivedFrame(device, "hr", frame) for device in devices])
        scene.recorder.seal()
    scene.recorder.seal(now=True)
    scene.store._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    bytes_of_all = sum(path.stat().st_size for path in tmp_path.glob("s.sqlite*"))
    (free,) = scene.store._db.execute("PRAGMA freelist_count").fetchone()
    (page,) = scene.store._db.execute("PRAGMA page_size").fetchone()
    assert (bytes_of_all - free * page) / (len(devices) * each) <= 0.20
    assert sum(len(frame.symbols) for frame in scene.stored("d00")) == each


class Interrupted(sqlite3.OperationalError):
    """The disk, or the power, has gone."""


class Failing:
    """A database that fails at its n-th statement from now on, and at those after it."""

    def __init__(self, database: Database, statements: int) -> None:
        self._db, self.left = database, statements

    def _count(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise Interrupted("disk I/O error")

    def execute(self, query: str, values: Sequence[object] = (), /) -> Rows:
        self._count()
        return self._db.execute(query, values)

    def executemany(self, query: str, rows: Iterable[Sequence[object]], /) -> None:
        def counted() -> Iterator[Sequence[object]]:
            for row in rows:
                self._count()
                yield row

        self._count()
        self._db.executemany(query, counted())

    def transaction(self) -> AbstractContextManager[None]:
        @contextmanager
        def counted() -> Iterator[None]:
            with self._db.transaction():
                yield
                self._count()  # all was done, and nothing is durable yet

        return counted()

    def snapshot(self) -> AbstractContextManager[None]:
        self._count()
        return self._db.snapshot()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._db, name)


def put(store: Store, database: Any) -> None:
    """Let a store and its parts use another database."""
    store._db = database
    store.transaction, store.snapshot, store.check = database.transaction, database.snapshot, database.check
    for part in (store.symbols, store.points, store.windows, store.releases, store.aged, store.conflicts):
        part._db = database


SHORT = frames(
    [80, 1, 180, 33, 160, 140, 5, 64, 400, 11, 399, 8],
    gaps=[0, 0, 3, 0, 30, 8, 7, 0, 0, 70_000, 0, 0],
    versions=[1, 1, 1, 2, 2, 3, 3, 1],
)
BATCHES = [
    [ReceivedFrame("watch", "hr", frame) for frame in SHORT[:5]],
    [
        ReceivedFrame(device, stream, frame)
        for device, stream in (("watch", "hr"), ("watch", "steps"))
        for frame in SHORT[7:9]
    ],
    [ReceivedFrame("watch", "hr", frame) for frame in (SHORT[5], SHORT[6], SHORT[9], SHORT[0])],
    [ReceivedFrame("ring", "hr", frame) for frame in frames([200] * 5)],
]


def some_batches() -> list[list[ReceivedFrame]]:
    """With frames that policies allow only: the other streams have but the first version."""
    return [
        [received for received in batch if received.stream == "hr" or received.frame.policy_version == 1]
        for batch in BATCHES
    ]


def final_states(scene: Scene) -> list[object]:
    """The final states of all streams."""
    states: list[object] = [final_state(scene)]
    for device, stream in (("watch", "steps"), ("ring", "hr")):
        if scene.store.stream_id(device, stream) is not None:
            states.append(final_state(scene, device, stream))
    return states


Step = tuple[str, Callable[[Scene], None]]


def steps() -> list[Step]:
    """Batches and seals in turn."""
    steps: list[Step] = []
    for batch in some_batches():
        steps.append(("record", lambda scene, batch=batch: scene.receive(batch)))
        steps.append(("seal", lambda scene: scene.recorder.seal(now=True)))
    return steps


@pytest.mark.long
@pytest.mark.parametrize(
    ("which", "reopened"),
    [(0, False), (3, True), *(pytest.param(which, False, marks=pytest.mark.soak) for which in (1, 2, 4, 5))],
)
def test_a_crash_at_any_statement_loses_and_doubles_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, which: int, reopened: bool
) -> None:
    """Of a batch, or of a seal; whether the process ends there, or goes on and does it again."""
    for name, ticks in (("_CHUNK_TICKS", 150), ("_SMALL_TICKS", 40)):
        monkeypatch.setattr(f"gateway.estimates.past.{name}", ticks)
    todo = steps()
    undisturbed = Scene(tmp_path / "whole.sqlite")
    for _, step in todo:
        step(undisturbed)
    wanted, counted = final_states(undisturbed), +undisturbed.counters
    begun = Scene(tmp_path / "begun.sqlite")
    for _, step in todo[:which]:
        step(begun)
    begun.store._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    before, content = begun.committed(), begun.path.read_bytes()
    held = [*symbols_of(begun.store.symbols.following(1, 0))] if which else []
    counters = Counter(begun.counters)
    for statements in range(1_000):
        path = tmp_path / f"{statements}.sqlite"
        path.write_bytes(content)
        scene = Scene(path, counters=Counter(counters))
        scene.store._db.execute("PRAGMA synchronous=OFF")  # the process ends, not the machine
        assert scene.committed() == before
        database = scene.store._db
        put(scene.store, Failing(database, statements))
        try:
            todo[which][1](scene)
            failed = False
        except sqlite3.OperationalError:
            failed = True
        put(scene.store, database)
        if reopened:
            scene.reopen()
        if failed:
            assert scene.committed() == before
            assert symbols_of(scene.stored()) == held
        for _, step in todo[which + (not failed) :]:
            step(scene)
        assert final_states(scene) == wanted, statements
        assert +scene.counters == counted
        scene.store.close()
        path.unlink()
        if not failed:
            assert statements > 1
            return
    raise AssertionError("it never ended")


class Asking(Failing):
    """A database that does something else before its n-th statement."""

    def __init__(self, database: Database, statement: int, otherwise: Callable[[], None]) -> None:
        super().__init__(database, 0)
        self._statement, self._otherwise, self.asked = statement, otherwise, 0

    def _count(self) -> None:
        if self.asked == self._statement:
            self._otherwise()
        self.asked += 1


def while_sealed(begun: Scene) -> Iterator[tuple[Store, Asking]]:
    """Readers of copies of a store, as of another process; one for each statement before which it is sealed."""
    begun.store.close()
    assert isinstance(begun.path, Path)
    for statement in range(40):
        scene = Scene(shutil.copy(begun.path, begun.path.with_name(f"{statement}.sqlite")))
        reader = Store(scene.path)
        asking = Asking(reader._db, statement, lambda scene=scene: scene.recorder.seal(now=True))
        put(reader, asking)
        yield reader, asking
        reader.close()
        scene.store.close()
        if statement >= asking.asked:
            return
    raise AssertionError("it never ended")


@pytest.mark.long
@pytest.mark.parametrize(("late", "at_once"), [(False, False), (True, False), (True, True)])
def test_who_reads_while_another_seals_sees_every_tick_once(tmp_path: Path, late: bool, at_once: bool) -> None:
    generator = random.Random(4)
    sequence = frames([500] * 45)
    first, second = sequence[:25], sequence[25:]
    missing = generator.sample(first, 4) if late else []
    begun = Scene(tmp_path / "begun.sqlite")
    begun.record(*(received for received in first if received not in missing))
    begun.recorder.seal(now=True)
    begun.record(*second, *missing)
    for reader, asking in while_sealed(begun):
        if at_once:
            laid_out(reader, symbols_of(sequence))
        symbols = symbols_of(reader.symbols.following(1, 0))
        assert symbols == symbols_of(sequence), asking.asked
        for low, high in ((0, 0), (4_000, 9_000), (12_000, 22_000)):
            assert symbols_of(reader.symbols.holding(1, low, high)) == [t for t in symbols if low <= t[0] <= high]


CUT_ANEW = {
    "the first is split": ([*frames([1_000] * 3 + [10] + [1_000] * 20)], 3, ()),
    "the last is split": ([*frames([1_000] * 23 + [10] + [1_000])], 23, ()),
    "two become one": ([*frames([4_000, 1_000, 10, 1_000, 4_000])], 2, (1,)),
}


@pytest.mark.long
@pytest.mark.parametrize("case", CUT_ANEW)
def test_who_reads_sees_every_tick_once_while_chunks_are_cut_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    """A frame that fills a gap moves the borders of chunks."""
    monkeypatch.setattr("gateway.store.symbols._PAGE", 1)
    frames, late, seals = CUT_ANEW[case]
    begun = Scene(tmp_path / "begun.sqlite")
    for i, frame in enumerate(frames):
        if i != late:
            begun.record(frame)
        if i in seals:
            begun.recorder.seal(now=True)
    begun.recorder.seal(now=True)
    begun.record(frames[late])
    wanted = [symbol for symbol in symbols_of(frames) if symbol[0] >= 5500]
    for reader, asking in while_sealed(begun):
        with reader.snapshot():
            assert symbols_of(reader.symbols.following(1, 5500)) == wanted, asking.asked


@pytest.mark.long
def test_the_journal_is_sealed_when_it_is_old_or_large_and_not_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = Scene(tmp_path / "s.sqlite")
    now = [0.0]
    scene.recorder._seconds = lambda: now[0]
    scene.recorder._last_seal = 0.0
    scene.record(*frames([10] * 10))
    now[0] = 3_599.0
    scene.recorder.seal()
    assert scene.store.symbols.tail.row_count == 10
    now[0] = 3_600.0
    scene.recorder.seal()
    assert (scene.store.symbols.tail.row_count, len(chunks(scene))) == (0, 1)
    monkeypatch.setattr("gateway.loop.recorder.SEAL_BYTES", 20_000)
    for i, frame in enumerate(frames([10] * 300)[10:]):
        scene.record(frame)
        scene.recorder.seal()
        if scene.store.symbols.tail.row_count == 0:
            break
        assert scene.store.symbols.tail.row_count == i + 1
    assert 50 < i < 290
    assert scene.committed().streams[0].through == 10 * (i + 11) - 1


def test_a_seal_that_fails_is_tried_again_after_a_minute_and_frames_go_on_meanwhile(tmp_path: Path) -> None:
    scene, reference = Scene(tmp_path / "s.sqlite"), Scene(tmp_path / "r.sqlite")
    now, sequence = [0.0], frames([10] * 4)
    scene.recorder._seconds = lambda: now[0]
    scene.recorder._last_seal = 0.0
    scene.record(sequence[0])
    scene.store._db.execute("CREATE TRIGGER full BEFORE INSERT ON chunks BEGIN SELECT RAISE(ABORT, 'full'); END")
    for moment, frame, tried in (
        (3_600.0, sequence[1], True),
        (3_659.0, sequence[2], False),
        (3_660.0, sequence[3], True),
    ):
        now[0] = moment
        with pytest.raises(sqlite3.IntegrityError) if tried else nullcontext():
            scene.recorder.seal()
        scene.record(frame)
    scene.store._db.execute("DROP TRIGGER full")
    now[0] = 3_720.0
    scene.recorder.seal()
    reference.record(*sequence)
    assert (scene.store.symbols.tail.row_count, final_state(scene)) == (0, final_state(reference))


def test_an_empty_journal_and_a_journal_that_only_accounts_for_ticks_can_be_sealed(tmp_path: Path) -> None:
    scene = Scene(tmp_path / "s.sqlite")
    scene.recorder.seal(now=True)
    sequence = frames([10, 10, 10])
    scene.record(sequence[0], sequence[2])
    scene.recorder.seal(now=True)
    accounts = SymbolFrame(1, sequence[0].last, sequence[2].first, sequence[2].symbols)
    scene.record(accounts)
    assert scene.counters["duplicate"] == 1
    assert not scene.committed().streams[0].gaps
    before = final_state(scene)
    for _ in range(2):
        scene.recorder.seal(now=True)
        assert final_state(scene) == before
        scene.reopen()
        assert final_state(scene) == before


@pytest.mark.long
def test_a_recorder_takes_arrivals_of_many_streams_at_once_as_it_takes_them_alone(tmp_path: Path) -> None:
    together, alone = Scene(tmp_path / "t.sqlite"), Scene(tmp_path / "a.sqlite")
    every = [received for batch in some_batches() for received in batch]
    random.Random(2).shuffle(every)
    together.recorder.record(Arrivals.of(together.recorder.streams, every))
    for received in every:
        alone.receive([received])
    assert final_states(together) == final_states(alone)
    for each in (together, alone):
        each.recorder.seal(now=True)
    assert final_states(together) == final_states(alone)
