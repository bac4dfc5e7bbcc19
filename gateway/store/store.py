"""The store: sequences of frames, and all that is known of them, in one database that outlives the gateway.

One thread uses a store at a time. A batch of frames is one transaction, durable before any frame is acknowledged.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fugu.contract.errors import FuguError
from fugu.contract.timeline import Drawn, Timeline
from fugu.host.database import STORE
from gateway.store.coverage import Coverage, Place, Shifts, Span
from gateway.store.engine import Database, DatabaseKind, Lease, select_among
from gateway.store.location import Location
from gateway.store.opening import open_engine
from gateway.store.points import LIKELY, PointStore, WindowStore
from gateway.store.symbols import Chunk, SymbolStore

if TYPE_CHECKING:
    from gateway.store.shards import Shard
    from gateway.store.sums import SumStore

__all__ = [
    "KIND",
    "SYMBOLS",
    "AgedFrame",
    "AgedStore",
    "ForgottenCounts",
    "FrameTable",
    "Outgoing",
    "ReleasedTick",
    "Store",
    "StoreError",
    "VersionStore",
]


class StoreError(FuguError):
    """Raised if a store cannot be opened, or is of another version."""


@dataclass
class VersionStore:
    """Ticks that were drawn under each version of a stream's policy, which say since when a promise is true.

    A row is an interval of consecutive ticks. Only the first frame of an interval, and frames out of order, change
    rows. The last interval of a stream goes on to the last tick that is accounted for, whatever end is stored. Used
    within the store's transactions.

    Attributes:
        changed_streams: device and name of streams whose rows have changed; a reader clears the set.
    """

    schema = """
CREATE TABLE versions (
    device TEXT NOT NULL, stream TEXT NOT NULL, first INTEGER NOT NULL, last INTEGER NOT NULL,
    version INTEGER NOT NULL, begin INTEGER NOT NULL, absent INTEGER NOT NULL,
    PRIMARY KEY (device, stream, first, version)) WITHOUT ROWID;
"""
    _db: Database
    changed_streams: set[tuple[str, str]] = field(default_factory=set)

    def timeline(self, device: str, stream: str) -> Timeline:
        """The intervals of a stream, oldest first."""
        query = "SELECT first, last, version, begin, absent FROM intact_versions WHERE device=? AND stream=?"
        return Timeline(Drawn(*row) for row in self._db.execute(query, (device, stream)))

    def put(self, device: str, stream: str, timeline: Timeline, *, is_whole: bool) -> None:
        """Store a stream's changed intervals; unless `is_whole`, a stored last interval keeps its stored end."""
        old_rows, new_rows = timeline.stored, {(row.first, row.version): row for row in timeline.intervals}
        *_, newest_key = new_rows
        if not is_whole and newest_key in old_rows:
            new_rows[newest_key] = new_rows[newest_key]._replace(last=old_rows[newest_key].last)
        if old_rows == new_rows:
            return
        removed_keys = [(device, stream, *key) for key in old_rows if key not in new_rows]
        self._db.executemany("DELETE FROM versions WHERE device=? AND stream=? AND first=? AND version=?", removed_keys)
        query = (
            "INSERT INTO versions (device, stream, first, last, version, begin, absent) VALUES (?, ?, ?, ?, ?, ?, ?) "
            "ON CONFLICT (device, stream, first, version) DO UPDATE SET last=excluded.last, begin=excluded.begin, "
            "absent=excluded.absent"
        )
        changed_rows = [(device, stream, *row) for key, row in new_rows.items() if old_rows.get(key) != row]
        self._db.executemany(query, changed_rows)
        timeline.stored = new_rows
        self.changed_streams.add((device, stream))


@dataclass
class DiscoveryStore:
    """The store's table of published discovery documents: by device the platform of each component, by name."""

    schema = "CREATE TABLE discovered (device TEXT PRIMARY KEY, components TEXT NOT NULL) WITHOUT ROWID;\n"
    _db: Database

    def all_components(self) -> dict[str, dict[str, str]]:
        """By device, the platform of each published component, by name."""
        return {device: json.loads(text) for device, text in self._db.execute("SELECT * FROM intact_discovered")}

    def keep(self, device: str, components: Mapping[str, str]) -> None:
        """Store the components of a document that is about to be published."""
        query = "INSERT INTO discovered VALUES (?, ?) ON CONFLICT (device) DO UPDATE SET components=excluded.components"
        self._db.execute(query, (device, json.dumps(components)))

    def forget(self, device: str) -> None:
        """Remove a device, because the broker no longer has its document."""
        self._db.execute("DELETE FROM discovered WHERE device=?", (device,))


class Conflict(NamedTuple):
    """The conflicts of a sequence.

    Attributes:
        first: the first tick of the first frame that contradicted a stored one; also for windows a tick.
        since: when the first conflict was noted, in seconds of Unix time.
        last: when the last conflict was noted.
        times: number of conflicts.
    """

    device: str
    sequence: str
    first: int
    since: int
    last: int
    times: int


@dataclass
class ConflictStore:
    """The store's tables of conflicts between frames, and of devices that were stopped for them."""

    schema = """
CREATE TABLE conflicts (
    device TEXT NOT NULL, sequence TEXT NOT NULL, first INTEGER NOT NULL, since INTEGER NOT NULL,
    last INTEGER NOT NULL, times INTEGER NOT NULL, PRIMARY KEY (device, sequence)) WITHOUT ROWID;
CREATE TABLE stops (device TEXT PRIMARY KEY, version INTEGER NOT NULL, over INTEGER NOT NULL) WITHOUT ROWID;
"""
    _db: Database
    _owns: Callable[[str], bool]

    def note(self, device: str, sequence: str, first: int, now: int) -> None:
        """Note that the frame that begins at tick `first` contradicts a stored one; `now` is Unix time in seconds."""
        self._db.execute(
            "INSERT INTO conflicts VALUES (?, ?, ?, ?, ?, 1) "
            "ON CONFLICT (device, sequence) DO UPDATE SET last=excluded.last, times=conflicts.times+1",
            (device, sequence, first, now, now),
        )

    def all_conflicts(self) -> list[Conflict]:
        """The conflicts of all sequences of owned devices."""
        return [Conflict(*row) for row in self._db.execute("SELECT * FROM intact_conflicts") if self._owns(row[0])]

    def stop(self, device: str, version: int) -> None:
        """Note that a device must draw nothing under policy documents up to a version."""
        query = "INSERT INTO stops VALUES (?, ?, 0) ON CONFLICT (device) DO UPDATE SET version=excluded.version, over=0"
        self._db.execute(query, (device, version))

    def end_stop(self, device: str) -> None:
        """Note that a device's stop is over, because it has a newer document."""
        self._db.execute("UPDATE stops SET over=1 WHERE device=?", (device,))

    def stops(self) -> dict[str, tuple[int, bool]]:
        """Read the stops by owned device: the version up to which it is stopped, and whether the stop is over."""
        stop_rows = self._db.execute("SELECT device, version, over FROM intact_stops")
        return {device: (version, bool(is_over)) for device, version, is_over in stop_rows if self._owns(device)}


class LedgerRecord(NamedTuple):
    """Identities of store and ledger ('' before there is one), and the newest entry that may be published, or 0."""

    identity: str
    ledger: str
    entry: int


class ReleasedTick(NamedTuple):
    """The last tick of a stream about which something may have been published."""

    device: str
    stream: str
    last: int


@dataclass
class ReleaseStore:
    """The store's record of releases, and of the ledger that they are charged to; used within its transactions."""

    schema = """
CREATE TABLE release_record (identity TEXT NOT NULL, ledger TEXT NOT NULL, entry INTEGER NOT NULL);
INSERT INTO release_record VALUES (lower(hex(randomblob(16))), '', 0);
CREATE TABLE released (
    device TEXT NOT NULL, stream TEXT NOT NULL, last INTEGER NOT NULL, PRIMARY KEY (device, stream)) WITHOUT ROWID;
"""
    _db: Database

    def ledger_record(self) -> LedgerRecord:
        """The identities of the store and of its ledger, and the newest entry that may be published."""
        return LedgerRecord(*self._db.execute("SELECT identity, ledger, entry FROM intact_release_record").fetchone())

    def begin(self, ledger: str, entry_number: int) -> None:
        """Store the identity of the ledger, and the number of its newest entry."""
        self._db.execute("UPDATE release_record SET ledger=?, entry=?", (ledger, entry_number))

    def note(self, entry_number: int, released: Iterable[ReleasedTick]) -> None:
        """Store that an entry may be published, and its last ticks; no stored number ever goes down."""
        query = (
            "INSERT INTO released VALUES (?, ?, ?) "
            "ON CONFLICT (device, stream) DO UPDATE SET last=excluded.last WHERE released.last<excluded.last"
        )
        self._db.executemany(query, released)
        self._db.execute("UPDATE release_record SET entry=? WHERE entry<?", (entry_number, entry_number))

    def released_ticks(self) -> list[ReleasedTick]:
        """The last released tick of every stream."""
        return [ReleasedTick(*row) for row in self._db.execute("SELECT device, stream, last FROM intact_released")]


class AgedFrame(NamedTuple):
    """A frame or chunk that may be removed.

    Attributes:
        key: its first tick, or its window's index.
        last: its last tick.
        version: its policy's version.
    """

    key: int
    last: int
    version: int


class FrameTable(NamedTuple):
    """A table of frames or chunks, with the names of the columns for `Aged.key` and `Aged.last`."""

    table: str
    key: str = "first"
    last: str = "last"


SYMBOLS = FrameTable("chunks")


class ForgottenCounts(NamedTuple):
    """The numbers of symbols, frames of points and frames of windows of a device that were erased."""

    symbols: int
    points: int
    windows: int


@dataclass
class AgedStore:
    """Removes old frames, and frames of devices that are forgotten; used within the store's transactions.

    Frames and chunks are removed in the order of their ticks. A sequence's `begin` is the first tick, or index of a
    window, that is not removed. Coverage stays, so that a device is never asked again for removed frames. Removed rows
    are overwritten, and their room is used again.
    """

    _db: Database
    _symbols: SymbolStore
    _owns: Callable[[str], bool]

    def sequences(self, after_number: int, limit: int) -> list[Place]:
        """The next sequences of owned devices above a number, in order, `limit` at most; empty after the last."""
        query = "SELECT id, device, stream FROM streams WHERE id>? ORDER BY id LIMIT ?"
        return [Place(*row) for row in self.owned_rows(query, after_number, limit)]

    def owned_rows(self, query: str, after: int, page_size: int) -> list[Any]:
        """The first page of a query with rows of owned devices, without other rows; empty after the last page.

        A row begins with a number, which orders the rows, and a device. The query has a `?` for the number before the
        page, and one for the most rows of a page.
        """
        while rows := self._db.execute(query, (after, page_size)).fetchall():
            if owned_rows := [row for row in rows if self._owns(row[1])]:
                return owned_rows
            after = rows[-1][0]
        return []

    def oldest(self, frames: FrameTable, sequence: int, limit: int) -> list[AgedFrame]:
        """The first frames of a sequence, `limit` at most."""
        return self._frame_rows(frames, sequence, "ASC", limit)

    def newest(self, frames: FrameTable, sequence: int) -> AgedFrame | None:
        """The last frame of a sequence; `None` without frames."""
        return next(iter(self._frame_rows(frames, sequence, "DESC", 1)), None)

    def needed_key(self, frames: FrameTable, sequence: int, lag: int) -> int | None:
        """The key of the first frame that a stream's next frame needs for its estimates; `None` without frames.

        That is the newest frame that ends at least `lag` ticks before the end of the newest one. -1 without such a
        frame: all are needed.
        """
        if (newest := self.newest(frames, sequence)) is None:
            return None
        query = f"SELECT first FROM {frames.table} WHERE stream=? AND last<=? ORDER BY first DESC LIMIT 1"
        row = self._db.execute(query, (sequence, newest.last - lag)).fetchone()
        return int(row[0]) if row else -1

    def remove(self, frames: FrameTable, sequence: int, through: int, begin: int) -> None:
        """Remove the frames of a sequence up to key `through`, with their outgoing estimates, and raise its `begin`."""
        self._db.execute(f"DELETE FROM {frames.table} WHERE stream=? AND {frames.key}<=?", (sequence, through))
        if frames is SYMBOLS:
            self._db.execute("UPDATE heads SET chunk=-1 WHERE stream=? AND chunk<=?", (sequence, through))
        else:
            self._db.execute("DELETE FROM outbox WHERE stream=? AND frame<=?", (sequence, through))
        self._raise_begin(sequence, begin)

    def trim(self, chunk: Chunk, remainder: Chunk) -> None:
        """Put the remainder of a chunk in the chunk's place, and raise the `begin` of its sequence."""
        self._symbols.replace_chunk(chunk, remainder)
        self._raise_begin(chunk.number, remainder.first)

    def forget(self, device: str) -> ForgottenCounts | None:
        """Remove a device's frames and all that follows from them. Return how many, or `None` without sequences.

        Coverage stays, so that the device is not asked for the frames again.
        """
        sequence_numbers = [row[0] for row in self._db.execute("SELECT id FROM streams WHERE device=?", (device,))]
        if not sequence_numbers:
            return None
        journal = self._symbols.remove_from_journal(sequence_numbers)
        symbol_count, point_count, window_count = int(journal.ticks.sum()), 0, 0
        for sequence in sequence_numbers:
            journal_rows = np.flatnonzero(journal.number == sequence)
            if len(journal_rows):
                spans = zip(journal.previous[journal_rows].tolist(), journal.last[journal_rows].tolist(), strict=True)
                self.put_coverage(sequence, Coverage([*self.coverage(sequence), *spans]).intervals)
            (last_tick,) = self._db.execute("SELECT MAX(through) FROM coverage WHERE stream=?", (sequence,)).fetchone()
            self._raise_begin(sequence, -1 if last_tick is None else last_tick + 1)
            symbol_count += self._symbols.erase(sequence)
            point_count += self._db.execute("DELETE FROM measured WHERE stream=?", (sequence,)).rowcount
            window_count += self._db.execute("DELETE FROM windows WHERE stream=?", (sequence,)).rowcount
            self._db.execute("DELETE FROM outbox WHERE stream=?", (sequence,))
            self._db.execute(f"DELETE FROM sent_tables WHERE stream=? AND {LIKELY}", (sequence,))
        return ForgottenCounts(symbol_count, point_count, window_count)

    def coverage(self, sequence: int) -> list[tuple[int, int]]:
        """The stored intervals (after, through] of ticks that a sequence has accounted for, without the journal's."""
        return self._db.execute("SELECT after, through FROM intact_coverage WHERE stream=?", (sequence,)).fetchall()

    def put_coverage(self, sequence: int, intervals: Iterable[tuple[int, int]]) -> None:
        """Replace the stored intervals of ticks that a sequence has accounted for."""
        self._db.execute("DELETE FROM coverage WHERE stream=?", (sequence,))
        self._db.executemany("INSERT INTO coverage VALUES (?, ?, ?)", [(sequence, *interval) for interval in intervals])

    def _raise_begin(self, sequence: int, begin: int) -> None:
        self._db.execute("UPDATE streams SET begins=? WHERE id=? AND begins<?", (begin, sequence, begin))

    def begin(self, sequence: int) -> int:
        """The first tick of a sequence, or first index of a window, whose frames are kept."""
        begin: int = self._db.execute("SELECT begins FROM intact_streams WHERE id=?", (sequence,)).fetchone()[0]
        return begin

    def _frame_rows(self, frames: FrameTable, sequence: int, order: str, limit: int) -> list[AgedFrame]:
        query = f"SELECT {frames.key}, {frames.last}, policy_version FROM {frames.table} WHERE stream=? "
        query += f"ORDER BY {frames.key} {order} LIMIT ?"
        return [AgedFrame(*row) for row in self._db.execute(query, (sequence, limit))]


_TABLES = """
CREATE TABLE streams (
    id INTEGER PRIMARY KEY AUTOINCREMENT, device TEXT NOT NULL, stream TEXT NOT NULL, begins INTEGER NOT NULL DEFAULT 0,
    UNIQUE (device, stream));
CREATE TABLE policies (
    stream INTEGER NOT NULL, version INTEGER NOT NULL, document TEXT NOT NULL, PRIMARY KEY (stream, version))
    WITHOUT ROWID;
CREATE TABLE coverage (
    stream INTEGER NOT NULL, after INTEGER NOT NULL, through INTEGER NOT NULL, PRIMARY KEY (stream, after))
    WITHOUT ROWID;
CREATE TABLE layout (shards INTEGER NOT NULL);
INSERT INTO layout VALUES (1);
CREATE TABLE watermarks (reserved INTEGER NOT NULL);
INSERT INTO watermarks VALUES (0);
CREATE TABLE shifts (
    stream INTEGER NOT NULL, shift INTEGER NOT NULL, first INTEGER NOT NULL, last INTEGER NOT NULL,
    PRIMARY KEY (stream, shift)) WITHOUT ROWID;
CREATE TABLE outbox (
    serial INTEGER PRIMARY KEY AUTOINCREMENT, stream INTEGER NOT NULL, frame INTEGER NOT NULL, UNIQUE (stream, frame));
"""
# A sequence of windows has a row in `streams`, under the name {stream}/{window}; its coverage counts windows, not
# ticks.
_PARTS = (SymbolStore, PointStore, WindowStore, ReleaseStore, ConflictStore, DiscoveryStore, VersionStore)
KIND = DatabaseKind(STORE, _TABLES + "".join(part.schema for part in _PARTS), StoreError)
_STATE = sorted(set(re.findall(r"CREATE TABLE (\w+)", KIND.schema)) - {"chunks", "measured", "windows"})


class Outgoing(NamedTuple):
    """A frame whose estimates, or a window whose count, wait to be published.

    Attributes:
        serial: the place in the outbox.
        place: the sequence.
        frame: the first tick of the frame, or the index of the window.
    """

    serial: int
    place: Place
    frame: int


class Store:
    """An open store.

    Args:
        lease: the right to write alone until the store is closed; `None` to open the store without it. Two gateways
            would take each other's session at the broker.
        shard: only this shard's devices are seen; `None` for all devices.

    Attributes:
        symbols, points, windows: the frames of each kind, and what follows from them.
        transaction, snapshot, check, rewrite: the engine's.
        queued: number of estimates that were put into the outbox since the store was opened.

    Raises StoreError if the store cannot be opened, is held, is no store, or is of another version.
    """

    def __init__(
        self, location: Location, *, create: bool = True, lease: Lease | None = None, shard: Shard | None = None
    ) -> None:
        self._location = location
        self._db = db = open_engine(location, KIND, create=create, lease=lease)
        self.transaction, self.snapshot, self.check, self.rewrite = db.transaction, db.snapshot, db.check, db.rewrite
        self.queued = 0
        self._shard = shard
        self._owns: Callable[[str], bool] = (lambda _device: True) if shard is None else shard.owns
        self.symbols = SymbolStore(self._db, shard)
        self.points = PointStore(self._db)
        self.windows = WindowStore(self._db)
        self.releases = ReleaseStore(self._db)
        self.aged = AgedStore(self._db, self.symbols, self._owns)
        self.conflicts = ConflictStore(self._db, self._owns)
        self.discovered = DiscoveryStore(self._db)
        self.versions = VersionStore(self._db)

    @cached_property
    def sums(self) -> SumStore:
        """The reports of groups, in a file or schema beside the store."""
        from gateway.store.sums import SumStore  # here, because few sites have groups

        return SumStore(self._location)

    def close(self) -> None:
        """Close the store, and give the lease back."""
        if "sums" in self.__dict__:
            self.sums.close()
        self._db.close()

    def refuse_damage(self, *, history: bool) -> None:
        """Raise StoreError for damaged pages. Without `history`, tables that grow with the history are not read."""
        if problem := self._db.damage() if history else self._db.damage(_STATE):
            raise StoreError(f"the store {self._location.name} is damaged ({problem}): {STORE.remedy}")

    @property
    def shards(self) -> int:
        """The number of processes that share the devices."""
        return int(self._db.execute("SELECT shards FROM layout").fetchone()[0])

    def arrange(self, shards: int, seal: Callable[[], None]) -> None:
        """Let `shards` processes share the devices from now on; do nothing if that is the number already.

        A journal's row has frames of several devices, so `seal` has to empty the journal. All is one transaction, after
        which no earlier process can write. Raises DatabaseError; nothing has changed then.
        """
        if self.shards != shards:
            with self.new_generation():
                seal()
                self._db.execute("UPDATE layout SET shards=?", (shards,))

    def new_generation(self) -> AbstractContextManager[None]:
        """Begin a transaction that keeps out other processes; after it no earlier shard can write."""
        return self._db.new_generation([Lease.of_shard(index) for index in range(self.shards)])

    def stream_id(self, device: str, stream: str) -> int | None:
        """The number of a stream or of a sequence of windows; `None` if it has none."""
        query = "SELECT id FROM streams WHERE device=? AND stream=?"
        row = self._db.execute(query, (device, stream)).fetchone()
        return row[0] if row else None

    def number_of(self, device: str, stream: str) -> int:
        """The number of a stream or of a sequence of windows; it gets one if it has none."""
        if (number := self.stream_id(device, stream)) is not None:
            return number
        query = "INSERT INTO streams (device, stream) VALUES (?, ?) RETURNING id"
        return int(self._db.execute(query, (device, stream)).fetchone()[0])

    def places(self, sequence_numbers: Iterable[int]) -> list[Place]:
        """The sequences with these numbers, in the order of their numbers."""
        rows = select_among(self._db, "SELECT id, device, stream FROM streams WHERE id", sorted(sequence_numbers))
        return sorted(Place(*row) for row in rows)

    def policy_documents(self) -> list[str]:
        """The policies under which stored frames of owned devices were made, as JSON."""
        if self._shard is None:
            return [row[0] for row in self._db.execute("SELECT document FROM intact_policies")]
        rows = self._db.execute("SELECT device, document FROM intact_policies p JOIN streams ON id=p.stream")
        return [document for device, document in rows if self._owns(device)]

    def policy_versions(self) -> list[tuple[str, str, int]]:
        """Device, stream and version of the policies under which stored frames were made."""
        rows = self._db.execute("SELECT device, streams.stream, version FROM policies p JOIN streams ON id=p.stream")
        return [(device, name.partition("/")[0], version) for device, name, version in rows]

    def add_policy(self, stream: int, version: int, document: str) -> None:
        """Store a version of the policy of a sequence, unless it is stored already."""
        query = "INSERT INTO policies VALUES (?, ?, ?) ON CONFLICT (stream, version) DO NOTHING"
        self._db.execute(query, (stream, version, document))

    def numbers(self, stream: str, devices: Sequence[str]) -> dict[str, int]:
        """The numbers of devices' sequences of a name, by device; devices without one are left out."""
        return dict(select_among(self._db, "SELECT device, id FROM streams WHERE stream=? AND device", devices, stream))

    def coverage_and_shifts(self, sequences: Sequence[int]) -> dict[int, tuple[Coverage, Shifts]]:
        """The coverage and the shifts of sequences, by number; the journal's rows are counted."""
        tail = self.symbols.tail
        intervals = {sequence: tail.intervals(sequence) for sequence in sequences}
        for sequence, after, through in select_among(self._db, "SELECT * FROM intact_coverage WHERE stream", sequences):
            intervals[sequence].append((after, through))
        shifts = self.shifts_of(sequences)
        return {sequence: (Coverage(intervals[sequence]), shifts[sequence]) for sequence in sequences}

    def shifts(self, stream: int | None) -> Shifts:
        """The shifts of a sequence: by how much its numbers are ahead of the wall clock; empty for `None`."""
        return Shifts(self._db.execute("SELECT shift, first, last FROM intact_shifts WHERE stream=?", (stream,)))

    def shifts_of(self, sequences: Sequence[int]) -> dict[int, Shifts]:
        """The shifts of several sequences, by number."""
        spans: dict[int, list[Span]] = {sequence: [] for sequence in sequences}
        for sequence, *span in select_among(self._db, "SELECT * FROM intact_shifts WHERE stream", sequences):
            spans[sequence].append(Span(*span))
        return {sequence: Shifts(sequence_spans) for sequence, sequence_spans in spans.items()}

    def put_shifts(self, stream: int, spans: Iterable[Span], oldest: int) -> None:
        """Store new and changed spans of a sequence's shifts, and remove those whose shift is below the oldest."""
        query = "INSERT INTO shifts VALUES (?, ?, ?, ?) ON CONFLICT (stream, shift) "
        query += "DO UPDATE SET first=excluded.first, last=excluded.last"
        self._db.executemany(query, [(stream, *span) for span in spans])
        self._db.execute("DELETE FROM shifts WHERE stream=? AND shift<?", (stream, oldest))

    def merge_coverage(self, stream: int, absorbed: Sequence[int], after: int, through: int) -> None:
        """Store a change of a sequence's coverage, given as `Coverage.add` returns it."""
        if absorbed == (after,):
            self._db.execute("UPDATE coverage SET through=? WHERE stream=? AND after=?", (through, stream, after))
            return
        removed_keys = [(stream, after_tick) for after_tick in absorbed]
        self._db.executemany("DELETE FROM coverage WHERE stream=? AND after=?", removed_keys)
        self._db.execute("INSERT INTO coverage VALUES (?, ?, ?)", (stream, after, through))

    def extend_coverage(self, last_intervals: Iterable[tuple[int, int, int]]) -> None:
        """Lengthen the last interval of sequences, or begin a new one, by triples of number, after and through."""
        query = (
            "INSERT INTO coverage VALUES (?, ?, ?) ON CONFLICT (stream, after) DO UPDATE SET through=excluded.through"
        )
        self._db.executemany(query, last_intervals)

    def reserved_counter(self) -> int:
        """The number of the newest watermark that may have been published; 0 if there is none."""
        (reserved,) = self._db.execute("SELECT reserved FROM intact_watermarks").fetchone()
        return int(reserved)

    def reserve_counter(self, counter: int) -> None:
        """Store that watermarks up to this number may be published."""
        with self.transaction():
            self._db.execute("UPDATE watermarks SET reserved=? WHERE reserved<?", (counter, counter))

    def queue_estimates(self, stream: int, frame: int) -> None:
        """Put a frame into the outbox, for its estimates; under a new serial if it waits there already."""
        self._db.execute("DELETE FROM outbox WHERE stream=? AND frame=?", (stream, frame))
        self._db.execute("INSERT INTO outbox (stream, frame) VALUES (?, ?)", (stream, frame))
        self.queued += 1

    def outbox(self, after_serial: int, limit: int) -> list[Outgoing]:
        """The next estimates of owned devices above a serial, in order, `limit` at most; empty after the last."""
        query = "SELECT serial, device, outbox.stream, streams.stream, frame FROM outbox "
        query += "JOIN streams ON id=outbox.stream WHERE serial>? ORDER BY serial LIMIT ?"
        rows = self.aged.owned_rows(query, after_serial, limit)
        return [Outgoing(serial, Place(number, device, name), frame) for serial, device, number, name, frame in rows]

    def newest_frames(self) -> dict[int, int]:
        """The newest frame of each sequence of points or windows, by number: its first tick, or its window's index."""
        newest_queries = (
            "(SELECT MAX(first) FROM measured WHERE measured.stream=id)",
            "(SELECT MAX(number) FROM windows WHERE windows.stream=id)",
        )
        rows = self._db.execute(f"SELECT id, device, COALESCE({', '.join(newest_queries)}) FROM streams")
        return {sequence: frame for sequence, device, frame in rows if frame is not None and self._owns(device)}

    def forget_outgoing(self, serials: Iterable[int]) -> None:
        """Remove estimates from the outbox that were published, or will not be."""
        with self.transaction():
            self._db.executemany("DELETE FROM outbox WHERE serial=?", [(serial,) for serial in serials])
