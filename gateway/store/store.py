"""The store: sequences of frames, and all that is known of them, in one database that outlives the gateway.

One thread uses a store at a time. A batch of frames is one transaction, durable before anybody is told.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fugu.contract.errors import FuguError
from fugu.contract.timeline import Drawn, Timeline
from fugu.host.database import STORE
from gateway.store.coverage import Coverage, Place, Shifts, Span
from gateway.store.engine import Database, Kind, Lease, among
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
    "Aged",
    "AgedStore",
    "Forgotten",
    "Frames",
    "Outgoing",
    "Released",
    "Store",
    "StoreError",
    "VersionStore",
]


class StoreError(FuguError):
    """The store cannot be opened, or is not one of this version."""


class VersionStore:
    """Ticks that were drawn under each version of a stream's policy: from them follows since when a promise is true.

    A row is an interval of ticks in a row. Only the first frame of an interval, and frames out of turn, change rows.
    The last interval of a stream goes on to the last tick that is accounted for. Used within the store's transactions.
    `changed` are the streams whose rows were changed since somebody cleared it.
    """

    schema = """
CREATE TABLE versions (
    device TEXT NOT NULL, stream TEXT NOT NULL, first INTEGER NOT NULL, last INTEGER NOT NULL,
    version INTEGER NOT NULL, begin INTEGER NOT NULL, absent INTEGER NOT NULL,
    PRIMARY KEY (device, stream, first, version)) WITHOUT ROWID;
"""

    def __init__(self, db: Database) -> None:
        self._db = db
        self.changed: set[tuple[str, str]] = set()

    def timeline(self, device: str, stream: str) -> Timeline:
        """The intervals of a stream."""
        query = "SELECT first, last, version, begin, absent FROM intact_versions WHERE device=? AND stream=?"
        return Timeline(Drawn(*row) for row in self._db.execute(query, (device, stream)))

    def put(self, device: str, stream: str, timeline: Timeline, *, is_whole: bool) -> None:
        """Store a stream's intervals; unless `is_whole`, the end of the last one only where another follows."""
        old_rows, new_rows = timeline.stored, {(row.first, row.version): row for row in timeline.rows}
        newest_row = timeline.rows[-1]
        stored_row = old_rows.get((newest_row.first, newest_row.version))
        if not is_whole and stored_row is not None:
            new_rows[newest_row.first, newest_row.version] = newest_row._replace(last=stored_row.last)
        if old_rows == new_rows:
            return
        removed_keys = [(device, stream, *key) for key in old_rows if key not in new_rows]
        self._db.executemany("DELETE FROM versions WHERE device=? AND stream=? AND first=? AND version=?", removed_keys)
        query = (
            "INSERT INTO versions (device, stream, first, last, version, begin, absent) VALUES (?, ?, ?, ?, ?, ?, ?) "
            "ON CONFLICT (device, stream, first, version) DO UPDATE SET last=excluded.last, begin=excluded.begin, "
            "absent=excluded.absent"
        )
        self._db.executemany(
            query, [(device, stream, *row) for key, row in new_rows.items() if old_rows.get(key) != row]
        )
        timeline.stored = new_rows
        self.changed.add((device, stream))


class DiscoveryStore:
    """A part of the store: of each document that was published its components, by name, and the platform of each."""

    schema = "CREATE TABLE discovered (device TEXT PRIMARY KEY, components TEXT NOT NULL) WITHOUT ROWID;\n"

    def __init__(self, db: Database) -> None:
        self._db = db

    def every(self) -> dict[str, dict[str, str]]:
        """By device, the components that were ever published."""
        return {device: json.loads(text) for device, text in self._db.execute("SELECT * FROM intact_discovered")}

    def keep(self, device: str, components: Mapping[str, str]) -> None:
        """Store a document that is about to be published."""
        query = "INSERT INTO discovered VALUES (?, ?) ON CONFLICT (device) DO UPDATE SET components=excluded.components"
        self._db.execute(query, (device, json.dumps(components)))

    def forget(self, device: str) -> None:
        """Note that the broker has a document no longer."""
        self._db.execute("DELETE FROM discovered WHERE device=?", (device,))


class Conflict(NamedTuple):
    """The conflicts of one sequence, and how many `times`; `since` and `last` are Unix seconds.

    `first` is the first tick of the frame that came first, also of windows.
    """

    device: str
    sequence: str
    first: int
    since: int
    last: int
    times: int


class ConflictStore:
    """A part of the store."""

    schema = """
CREATE TABLE conflicts (
    device TEXT NOT NULL, sequence TEXT NOT NULL, first INTEGER NOT NULL, since INTEGER NOT NULL,
    last INTEGER NOT NULL, times INTEGER NOT NULL, PRIMARY KEY (device, sequence)) WITHOUT ROWID;
CREATE TABLE stops (device TEXT PRIMARY KEY, version INTEGER NOT NULL, over INTEGER NOT NULL) WITHOUT ROWID;
"""

    def __init__(self, db: Database, owns: Callable[[str], bool]) -> None:
        self._db = db
        self._owns = owns

    def note(self, device: str, sequence: str, first: int, now: int) -> None:
        """Note that one more frame contradicts another."""
        self._db.execute(
            "INSERT INTO conflicts VALUES (?, ?, ?, ?, ?, 1) "
            "ON CONFLICT (device, sequence) DO UPDATE SET last=excluded.last, times=conflicts.times+1",
            (device, sequence, first, now, now),
        )

    def every(self) -> list[Conflict]:
        """All of them."""
        return [Conflict(*row) for row in self._db.execute("SELECT * FROM intact_conflicts") if self._owns(row[0])]

    def stop(self, device: str, version: int) -> None:
        """Note that a device is to draw nothing under policy documents up to a version."""
        query = "INSERT INTO stops VALUES (?, ?, 0) ON CONFLICT (device) DO UPDATE SET version=excluded.version, over=0"
        self._db.execute(query, (device, version))

    def go_on(self, device: str) -> None:
        """Note that a device has a newer document."""
        self._db.execute("UPDATE stops SET over=1 WHERE device=?", (device,))

    def stops(self) -> dict[str, tuple[int, bool]]:
        """By device: the version up to which it is or was stopped, and whether that is over."""
        rows = self._db.execute("SELECT device, version, over FROM intact_stops")
        return {device: (version, bool(over)) for device, version, over in rows if self._owns(device)}


class Charged(NamedTuple):
    """The store's random identity, that of its ledger, and the newest entry that may have been published."""

    identity: str
    ledger: str
    entry: int


class Released(NamedTuple):
    """The last tick of a stream about which something may have been published."""

    device: str
    stream: str
    last: int


class ReleaseStore:
    """Store of releases; used within the store's transactions."""

    schema = """
CREATE TABLE release_record (identity TEXT NOT NULL, ledger TEXT NOT NULL, entry INTEGER NOT NULL);
INSERT INTO release_record VALUES (lower(hex(randomblob(16))), '', 0);
CREATE TABLE released (
    device TEXT NOT NULL, stream TEXT NOT NULL, last INTEGER NOT NULL, PRIMARY KEY (device, stream)) WITHOUT ROWID;
"""

    def __init__(self, database: Database) -> None:
        self._db = database

    def charged(self) -> Charged:
        """To which ledger releases were charged, and how far."""
        return Charged(*self._db.execute("SELECT identity, ledger, entry FROM intact_release_record").fetchone())

    def begin(self, ledger: str, entry: int) -> None:
        """Store the identity of the ledger, and its newest entry."""
        self._db.execute("UPDATE release_record SET ledger=?, entry=?", (ledger, entry))

    def note(self, entry: int, released: Iterable[Released]) -> None:
        """Store that an entry may be published, and the last ticks that it is about; neither ever goes back."""
        query = (
            "INSERT INTO released VALUES (?, ?, ?) "
            "ON CONFLICT (device, stream) DO UPDATE SET last=excluded.last WHERE released.last<excluded.last"
        )
        self._db.executemany(query, released)
        self._db.execute("UPDATE release_record SET entry=? WHERE entry<?", (entry, entry))

    def released(self) -> list[Released]:
        """For every stream the last tick of a release."""
        return [Released(*row) for row in self._db.execute("SELECT device, stream, last FROM intact_released")]


class Aged(NamedTuple):
    """A frame: its first tick, or its window's index; its last tick, and its policy's version."""

    key: int
    last: int
    version: int


class Frames(NamedTuple):
    """A table of frames, or of chunks; the columns that say what `Aged` does."""

    table: str
    key: str = "first"
    last: str = "last"


SYMBOLS = Frames("chunks")


class Forgotten(NamedTuple):
    """How many symbols, and how many frames of points and windows, of a device were erased."""

    symbols: int
    points: int
    windows: int


class AgedStore:
    """The part that removes what is kept no longer, or is to be forgotten; used within the store's transactions.

    Frames and chunks are removed in the order of their ticks, and a sequence's `begin` says up to where. Coverage
    stays, so that a device is never asked again for what was removed. What is removed is overwritten, and its room is
    used again.
    """

    def __init__(self, database: Database, symbols: SymbolStore, owns: Callable[[str], bool]) -> None:
        self._db = database
        self._symbols = symbols
        self._owns = owns

    def sequences(self, after: int, limit: int) -> list[Place]:
        """Some sequences whose numbers are above one, in the order of their numbers; none if there are no more."""
        query = "SELECT id, device, stream FROM streams WHERE id>? ORDER BY id LIMIT ?"
        while rows := self._db.execute(query, (after, limit)).fetchall():
            if owned_keys := [Place(*row) for row in rows if self._owns(row[1])]:
                return owned_keys
            after = rows[-1][0]
        return []

    def oldest(self, frames: Frames, number: int, limit: int) -> list[Aged]:
        """The first frames of a sequence."""
        return self._frame_rows(frames, number, "ASC", limit)

    def newest(self, frames: Frames, number: int) -> Aged | None:
        """The last frame of a sequence."""
        return next(iter(self._frame_rows(frames, number, "DESC", 1)), None)

    def needed(self, frames: Frames, number: int, lag: int) -> int | None:
        """The first frame that the estimates of a stream's next one rest on; none if there are no frames."""
        if (newest := self.newest(frames, number)) is None:
            return None
        query = f"SELECT first FROM {frames.table} WHERE stream=? AND last<=? ORDER BY first DESC LIMIT 1"
        row = self._db.execute(query, (number, newest.last - lag)).fetchone()
        return int(row[0]) if row else -1

    def remove(self, frames: Frames, number: int, through: int, begin: int) -> None:
        """Remove the first frames of a sequence, up to one, and what follows from them; none before `begin` is left."""
        self._db.execute(f"DELETE FROM {frames.table} WHERE stream=? AND {frames.key}<=?", (number, through))
        if frames is SYMBOLS:
            self._db.execute("UPDATE heads SET chunk=-1 WHERE stream=? AND chunk<=?", (number, through))
        else:
            self._db.execute("DELETE FROM outbox WHERE stream=? AND frame<=?", (number, through))
        self._raise_begin(number, begin)

    def trim(self, chunk: Chunk, remainder: Chunk) -> None:
        """Put the rest of a chunk in its place; none before that is left."""
        self._symbols.put_rest(chunk, remainder)
        self._raise_begin(chunk.number, remainder.first)

    def forget(self, device: str) -> Forgotten | None:
        """Remove a device's frames and what follows; None without any. Coverage stays: nothing is asked for again."""
        numbers = [row[0] for row in self._db.execute("SELECT id FROM streams WHERE device=?", (device,))]
        if not numbers:
            return None
        journal = self._symbols.take_out(numbers)
        symbols, points, windows = int(journal.ticks.sum()), 0, 0
        for number in numbers:
            rows = np.flatnonzero(journal.number == number)
            if len(rows):
                spans = zip(journal.previous[rows].tolist(), journal.last[rows].tolist(), strict=True)
                query = "SELECT after, through FROM intact_coverage WHERE stream=?"
                self.put_coverage(number, Coverage([*self._db.execute(query, (number,)), *spans]).intervals)
            (last,) = self._db.execute("SELECT MAX(through) FROM coverage WHERE stream=?", (number,)).fetchone()
            self._raise_begin(number, -1 if last is None else last + 1)
            symbols += self._symbols.erase(number)
            points += self._db.execute("DELETE FROM measured WHERE stream=?", (number,)).rowcount
            windows += self._db.execute("DELETE FROM windows WHERE stream=?", (number,)).rowcount
            self._db.execute("DELETE FROM outbox WHERE stream=?", (number,))
            self._db.execute(f"DELETE FROM sent_tables WHERE stream=? AND {LIKELY}", (number,))
        return Forgotten(symbols, points, windows)

    def put_coverage(self, number: int, intervals: Iterable[tuple[int, int]]) -> None:
        """Replace what is stored of the ticks that a sequence has accounted for."""
        self._db.execute("DELETE FROM coverage WHERE stream=?", (number,))
        self._db.executemany("INSERT INTO coverage VALUES (?, ?, ?)", [(number, *interval) for interval in intervals])

    def _raise_begin(self, number: int, begin: int) -> None:
        self._db.execute("UPDATE streams SET begins=? WHERE id=? AND begins<?", (begin, number, begin))

    def begin(self, number: int) -> int:
        """Where frames of a sequence begin that are kept: a tick, or a window's index."""
        begins: int = self._db.execute("SELECT begins FROM intact_streams WHERE id=?", (number,)).fetchone()[0]
        return begins

    def _frame_rows(self, frames: Frames, number: int, order: str, limit: int) -> list[Aged]:
        query = (
            f"SELECT {frames.key}, {frames.last}, policy_version FROM {frames.table} "
            f"WHERE stream=? ORDER BY {frames.key} {order} LIMIT ?"
        )
        return [Aged(*row) for row in self._db.execute(query, (number, limit))]


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
KIND = Kind(STORE, _TABLES + "".join(part.schema for part in _PARTS), StoreError)
_STATE = sorted(set(re.findall(r"CREATE TABLE (\w+)", KIND.schema)) - {"chunks", "measured", "windows"})


class Outgoing(NamedTuple):
    """Estimates that wait to be published: those that one frame determined, or a window (`frame` is its index)."""

    serial: int
    key: Place
    frame: int


class Store:
    """An open store.

    If `lease` is not None, this process alone has it until it is closed: two gateways would take each other's session
    at the broker. With `shard`, its devices alone are seen. `symbols`, `points` and `windows` are the frames of each
    kind, and what follows from them. `transaction`, `snapshot`, `check` and `rewrite` are the engine's. `queued` counts
    what was put into the outbox since. Raises StoreError if it cannot be opened, is held, no store, or of another
    version.
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
        """Reports of groups, beside it."""
        from gateway.store.sums import SumStore  # here, because few sites have groups

        return SumStore(self._location)

    def close(self) -> None:
        """Close it, and let others have it."""
        if "sums" in self.__dict__:
            self.sums.close()
        self._db.close()

    def refuse_damage(self, *, history: bool) -> None:
        """Raise a StoreError if pages do not fit together; without `history`, only of what does not grow with it."""
        if problem := self._db.damage() if history else self._db.damage(_STATE):
            raise StoreError(f"the store {self._location.name} is damaged ({problem}): {STORE.remedy}")

    @property
    def shards(self) -> int:
        """How many processes share the devices."""
        return int(self._db.execute("SELECT shards FROM layout").fetchone()[0])

    def arrange(self, shards: int, seal: Callable[[], None]) -> None:
        """Let so many processes share the devices from now on, if it were not so many before.

        Journal rows are not one device's: `seal` empties it. All is one transaction, after which no process of before
        can write. Raises DatabaseError; nothing has changed then.
        """
        if self.shards != shards:
            with self.new_generation():
                seal()
                self._db.execute("UPDATE layout SET shards=?", (shards,))

    def new_generation(self) -> AbstractContextManager[None]:
        """A transaction while nobody else writes, after which no shard can write that began before."""
        return self._db.new_generation([Lease.of_shard(index) for index in range(self.shards)])

    def stream_id(self, device: str, stream: str) -> int | None:
        """The number of a stream or of a sequence of windows, none if nothing of it is stored."""
        query = "SELECT id FROM streams WHERE device=? AND stream=?"
        row = self._db.execute(query, (device, stream)).fetchone()
        return row[0] if row else None

    def number(self, device: str, stream: str) -> int:
        """The number of a stream or of a sequence of windows, given now if it has none."""
        if (number := self.stream_id(device, stream)) is not None:
            return number
        self._db.execute("INSERT INTO streams (device, stream) VALUES (?, ?)", (device, stream))
        new_number = self.stream_id(device, stream)
        assert new_number is not None
        return new_number

    def places(self, numbers: Iterable[int]) -> list[Place]:
        """The sequences that have these numbers, in the order of their numbers."""
        rows = among(self._db, "SELECT id, device, stream FROM streams WHERE id", sorted(numbers))
        return sorted(Place(*row) for row in rows)

    def policy_documents(self) -> list[str]:
        """The policies that stored frames were made under."""
        if self._shard is None:
            return [row[0] for row in self._db.execute("SELECT document FROM intact_policies")]
        rows = self._db.execute("SELECT device, document FROM intact_policies p JOIN streams ON id=p.stream")
        return [document for device, document in rows if self._owns(device)]

    def made_under(self) -> list[tuple[str, str, int]]:
        """Device, stream and version of the policies that stored frames were made under."""
        rows = self._db.execute("SELECT device, streams.stream, version FROM policies p JOIN streams ON id=p.stream")
        return [(device, name.partition("/")[0], version) for device, name, version in rows]

    def add_policy(self, stream: int, version: int, document: str) -> None:
        """Keep the policy that frames are stored under."""
        query = "INSERT INTO policies VALUES (?, ?, ?) ON CONFLICT (stream, version) DO NOTHING"
        self._db.execute(query, (stream, version, document))

    def numbers(self, stream: str, devices: Sequence[str]) -> dict[str, int]:
        """By device the number of its sequence of a name, as far as anything is stored."""
        return dict(among(self._db, "SELECT device, id FROM streams WHERE stream=? AND device", devices, stream))

    def accounted(self, numbers: Sequence[int]) -> dict[int, tuple[Coverage, Shifts]]:
        """Of some sequences what is accounted for, and their shifts."""
        tail = self.symbols.tail
        intervals = {number: tail.intervals(number) for number in numbers}
        for number, after, through in among(self._db, "SELECT * FROM intact_coverage WHERE stream", numbers):
            intervals[number].append((after, through))
        shifts = self.shifts_of(numbers)
        return {number: (Coverage(intervals[number]), shifts[number]) for number in numbers}

    def coverage(self, stream: int) -> list[tuple[int, int]]:
        """The intervals of ticks that are accounted for."""
        return self._db.execute("SELECT after, through FROM intact_coverage WHERE stream=?", (stream,)).fetchall()

    def shifts(self, stream: int | None) -> Shifts:
        """By how much the numbers of a sequence are ahead of the wall clock."""
        return Shifts(self._db.execute("SELECT shift, first, last FROM intact_shifts WHERE stream=?", (stream,)))

    def shifts_of(self, numbers: Sequence[int]) -> dict[int, Shifts]:
        """The same of several sequences."""
        spans: dict[int, list[Span]] = {number: [] for number in numbers}
        for number, *span in among(self._db, "SELECT * FROM intact_shifts WHERE stream", numbers):
            spans[number].append(Span(*span))
        return {number: Shifts(rows) for number, rows in spans.items()}

    def put_shifts(self, stream: int, spans: Iterable[Span], oldest: int) -> None:
        """Follow a change of the shifts; those below the oldest are forgotten."""
        query = (
            "INSERT INTO shifts VALUES (?, ?, ?, ?) "
            "ON CONFLICT (stream, shift) DO UPDATE SET first=excluded.first, last=excluded.last"
        )
        self._db.executemany(query, [(stream, *span) for span in spans])
        self._db.execute("DELETE FROM shifts WHERE stream=? AND shift<?", (stream, oldest))

    def merge_coverage(self, stream: int, absorbed: Sequence[int], after: int, through: int) -> None:
        """Follow a change of the coverage, as `Coverage.add` says it."""
        if absorbed == (after,):
            self._db.execute("UPDATE coverage SET through=? WHERE stream=? AND after=?", (through, stream, after))
            return
        self._db.executemany(
            "DELETE FROM coverage WHERE stream=? AND after=?", [(stream, after_tick) for after_tick in absorbed]
        )
        self._db.execute("INSERT INTO coverage VALUES (?, ?, ?)", (stream, after, through))

    def extend_coverage(self, ends: Iterable[tuple[int, int, int]]) -> None:
        """Lengthen the last interval of some sequences, or begin one: their numbers, and (after, through]."""
        query = (
            "INSERT INTO coverage VALUES (?, ?, ?) ON CONFLICT (stream, after) DO UPDATE SET through=excluded.through"
        )
        self._db.executemany(query, ends)

    def reserved_counter(self) -> int:
        """The number of the newest watermark that may have been said, 0 if there was none."""
        (reserved,) = self._db.execute("SELECT reserved FROM intact_watermarks").fetchone()
        return int(reserved)

    def reserve_counter(self, number: int) -> None:
        """Store that watermarks up to this number may be said."""
        with self.transaction():
            self._db.execute("UPDATE watermarks SET reserved=? WHERE reserved<?", (number, number))

    def queue_estimates(self, stream: int, frame: int) -> None:
        """Put what a frame determines into the outbox, under a new serial if it waits there already."""
        self._db.execute("DELETE FROM outbox WHERE stream=? AND frame=?", (stream, frame))
        self._db.execute("INSERT INTO outbox (stream, frame) VALUES (?, ?)", (stream, frame))
        self.queued += 1

    def outbox(self, after: int, limit: int) -> list[Outgoing]:
        """Estimates that wait to be published, in the order in which they were put there; none if there are no more."""
        query = (
            "SELECT serial, outbox.stream, device, streams.stream, frame FROM outbox JOIN streams ON id=outbox.stream "
            "WHERE serial>? ORDER BY serial LIMIT ?"
        )
        while rows := self._db.execute(query, (after, limit)).fetchall():
            if owned_rows := [Outgoing(row[0], Place(*row[1:4]), row[4]) for row in rows if self._owns(row[2])]:
                return owned_rows
            after = rows[-1][0]
        return []

    def newest_frames(self) -> dict[int, int]:
        """The newest frame of each sequence of points or windows: its first tick, or its window's index."""
        newest_queries = (
            "(SELECT MAX(first) FROM measured WHERE measured.stream=id)",
            "(SELECT MAX(number) FROM windows WHERE windows.stream=id)",
        )
        rows = self._db.execute(f"SELECT id, device, COALESCE({', '.join(newest_queries)}) FROM streams")
        return {number: frame for number, device, frame in rows if frame is not None and self._owns(device)}

    def forget_outgoing(self, serials: Iterable[int]) -> None:
        """Remove what has been published, or is not to be."""
        with self.transaction():
            self._db.executemany("DELETE FROM outbox WHERE serial=?", [(serial,) for serial in serials])
