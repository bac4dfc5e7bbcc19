"""What outlives the gateway: frames, window counts, beliefs, estimates and coverage in one SQLite file.

One thread uses a store at a time. Everything that a batch of frames changes is one transaction, written through to the
disk (WAL, synchronous=FULL) before anybody is told.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from contract.errors import FuguError
from contract.file_format import STORE
from contract.frames import MAX_FRAME_TICKS, SymbolFrame
from contract.window_frames import WindowFrame
from gateway.service.coverage import Merge
from gateway.service.kinds.symbol_model import Beliefs
from gateway.service.kinds.symbol_track import Run, Tracked, Update

__all__ = ["Outgoing", "Store", "StoreError"]

_CHUNK = 64
_SCHEMA = """
CREATE TABLE streams (
    id INTEGER PRIMARY KEY, device TEXT NOT NULL, stream TEXT NOT NULL, UNIQUE (device, stream));
CREATE TABLE policies (
    stream INTEGER NOT NULL, version INTEGER NOT NULL, document TEXT NOT NULL, PRIMARY KEY (stream, version))
    WITHOUT ROWID;
CREATE TABLE frames (
    stream INTEGER NOT NULL, first INTEGER NOT NULL, last INTEGER NOT NULL, previous INTEGER NOT NULL,
    policy_version INTEGER NOT NULL, symbols BLOB NOT NULL, bits INTEGER NOT NULL, belief BLOB,
    PRIMARY KEY (stream, first)) WITHOUT ROWID;
CREATE TABLE coverage (
    stream INTEGER NOT NULL, after INTEGER NOT NULL, through INTEGER NOT NULL, PRIMARY KEY (stream, after))
    WITHOUT ROWID;
CREATE TABLE estimates (
    stream INTEGER NOT NULL, frame INTEGER NOT NULL, first INTEGER NOT NULL, lag INTEGER NOT NULL,
    states INTEGER NOT NULL, probabilities BLOB NOT NULL, PRIMARY KEY (stream, frame, first)) WITHOUT ROWID;
CREATE TABLE outbox (serial INTEGER PRIMARY KEY AUTOINCREMENT, stream INTEGER NOT NULL, frame INTEGER NOT NULL);
CREATE TABLE windows (
    stream INTEGER NOT NULL, number INTEGER NOT NULL, previous INTEGER NOT NULL, policy_version INTEGER NOT NULL,
    first INTEGER NOT NULL, length INTEGER NOT NULL, observed INTEGER NOT NULL, counts TEXT NOT NULL,
    PRIMARY KEY (stream, number)) WITHOUT ROWID;
CREATE TABLE measured (
    stream INTEGER NOT NULL, first INTEGER NOT NULL, last INTEGER NOT NULL, payload BLOB NOT NULL, belief BLOB NOT NULL,
    PRIMARY KEY (stream, first)) WITHOUT ROWID;
CREATE TABLE sent_tables (
    stream INTEGER NOT NULL, policy_version INTEGER NOT NULL, number INTEGER NOT NULL, key BLOB NOT NULL,
    message BLOB NOT NULL, PRIMARY KEY (stream, policy_version, number), UNIQUE (stream, policy_version, key));
CREATE TABLE release_record (identity TEXT NOT NULL, ledger TEXT NOT NULL, entry INTEGER NOT NULL);
INSERT INTO release_record VALUES (lower(hex(randomblob(16))), '', 0);
CREATE TABLE released (
    device TEXT NOT NULL, stream TEXT NOT NULL, last INTEGER NOT NULL, PRIMARY KEY (device, stream)) WITHOUT ROWID;
"""
# A sequence of windows has a row in `streams`, under the name {stream}/{window}; its coverage counts windows, not
# ticks. `measured` and `sent_tables` are those of `gateway.service.store.points`,
# `release_record` and `released` those of `gateway.service.release_record`.
_FRAME = "policy_version, previous, first, symbols, bits, belief"


class StoreError(FuguError):
    """The store cannot be opened, or is not one of this version."""


class Outgoing(NamedTuple):
    """Estimates that wait to be published: those that one frame determined."""

    serial: int
    stream_id: int
    device: str
    stream: str
    frame: int


class Store:
    """An open store.

    Args:
        path: the file; created if it is not there.

    Raises:
        StoreError: if it cannot be opened, is no store, or is of another version.
    """

    def __init__(self, path: Path) -> None:
        try:
            self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=5.0)
        except sqlite3.Error as error:
            raise StoreError(f"cannot open the store {path.name}: {error}") from None
        try:
            self._prepare(path.name)
        except sqlite3.Error as error:
            self._db.close()
            raise StoreError(f"cannot open the store {path.name}: {error}") from None
        except StoreError:
            self._db.close()
            raise

    def _prepare(self, name: str) -> None:
        (application,), (version,) = self._one("PRAGMA application_id"), self._one("PRAGMA user_version")
        (tables,) = self._one("SELECT count(*) FROM sqlite_master")
        if problem := STORE.problem(name, application, version, tables):
            raise StoreError(problem)
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("PRAGMA synchronous=FULL")
        if not tables:
            self._db.executescript(f"BEGIN IMMEDIATE;{_SCHEMA}{STORE.stamps}COMMIT;")

    @property
    def database(self) -> sqlite3.Connection:
        """The connection, for the parts that have tables of their own."""
        return self._db

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All of it becomes durable, or nothing does."""
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._db.execute("COMMIT")
        except BaseException:
            if self._db.in_transaction:  # some errors, a full disk among them, have rolled back already
                self._db.execute("ROLLBACK")
            raise

    def stream_id(self, device: str, stream: str) -> int | None:
        """The number of a stream or of a sequence of windows, none if nothing of it is stored."""
        row = self._one("SELECT id FROM streams WHERE device=? AND stream=?", device, stream)
        return row[0] if row else None

    def number(self, device: str, stream: str) -> int:
        """The number of a stream or of a sequence of windows, given now if it has none."""
        if (found := self.stream_id(device, stream)) is not None:
            return found
        cursor = self._db.execute("INSERT INTO streams (device, stream) VALUES (?, ?)", (device, stream))
        return int(cursor.lastrowid or 0)

    def policy_documents(self) -> list[str]:
        """The policies that stored frames were made under."""
        return [row[0] for row in self._db.execute("SELECT document FROM policies")]

    def add_policy(self, stream: int, version: int, document: str) -> None:
        """Keep the policy that frames are stored under."""
        self._db.execute("INSERT OR IGNORE INTO policies VALUES (?, ?, ?)", (stream, version, document))

    def overlapping(self, stream: int, frame: SymbolFrame) -> SymbolFrame | None:
        """A stored frame that shares a tick with the given one."""
        query = f"SELECT {_FRAME} FROM frames WHERE stream=? AND first<=? ORDER BY first DESC LIMIT 1"
        row = self._one(query, stream, frame.last)
        found = _tracked(row)[0] if row else None
        return found if found is not None and found.last >= frame.first else None

    def add_frame(self, stream: int, frame: SymbolFrame, belief: Beliefs | None) -> None:
        """Store a frame that overlaps no other; the belief may follow in the same transaction."""
        blob = None if belief is None else belief.tobytes()
        row = (stream, frame.first, frame.last, frame.previous, frame.policy_version, frame.symbols, frame.bits, blob)
        self._db.execute("INSERT INTO frames VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)

    def set_belief(self, stream: int, first: int, belief: Beliefs) -> None:
        """Store the belief at a frame's last tick."""
        self._db.execute("UPDATE frames SET belief=? WHERE stream=? AND first=?", (belief.tobytes(), stream, first))

    def tail(self, stream: int, lag: int, before: int | None = None) -> list[Tracked]:
        """The window of a track: the newest frames, or those before a tick, in tick order."""
        bound = 2**62 if before is None else before
        query = f"SELECT {_FRAME} FROM frames WHERE stream=? AND first<? ORDER BY first DESC"
        window: list[Tracked] = []
        for row in self._db.execute(query, (stream, bound)):
            frame, belief = _tracked(row)
            assert belief is not None
            window.append(Tracked(frame, belief))
            if frame.last <= window[0].frame.last - lag:
                break
        return window[::-1]

    def following(self, stream: int, first: int) -> Iterator[tuple[SymbolFrame, Beliefs | None]]:
        """Frames from the one that begins at `first`, in tick order, read as they are asked for."""
        query = f"SELECT {_FRAME} FROM frames WHERE stream=? AND first>=? ORDER BY first LIMIT ?"
        while rows := self._db.execute(query, (stream, first, _CHUNK)).fetchall():
            for row in rows:
                tracked = _tracked(row)
                yield tracked
                first = tracked[0].first + 1

    def symbols(self, stream: int, first: int, last: int) -> list[SymbolFrame]:
        """The frames that hold any of the ticks first..last, in tick order."""
        query = f"SELECT {_FRAME} FROM frames WHERE stream=? AND first BETWEEN ? AND ? AND last>=? ORDER BY first"
        rows = self._db.execute(query, (stream, first - MAX_FRAME_TICKS + 1, last, first))
        return [_tracked(row)[0] for row in rows]

    def next_frame(self, stream: int, tick: int) -> int | None:
        """The first tick of the first frame that ends at a tick or later."""
        query = "SELECT first FROM frames WHERE stream=? AND first>? AND last>=? ORDER BY first LIMIT 1"
        row = self._one(query, stream, tick - MAX_FRAME_TICKS, tick)
        return None if row is None else int(row[0])

    def belief_at(self, stream: int, tick: int) -> Tracked | None:
        """The frame that holds a tick, or the last one before it."""
        query = f"SELECT {_FRAME} FROM frames WHERE stream=? AND first<=? ORDER BY first DESC LIMIT 1"
        row = self._one(query, stream, tick)
        frame, belief = _tracked(row) if row else (None, None)
        return None if frame is None or belief is None else Tracked(frame, belief)

    def coverage(self, stream: int) -> list[tuple[int, int]]:
        """The intervals of ticks that are accounted for."""
        return self._db.execute("SELECT after, through FROM coverage WHERE stream=?", (stream,)).fetchall()

    def merge_coverage(self, stream: int, merge: Merge) -> None:
        """Follow a change of the coverage."""
        if merge.absorbed == (merge.after,):
            row = (merge.through, stream, merge.after)
            self._db.execute("UPDATE coverage SET through=? WHERE stream=? AND after=?", row)
            return
        gone = [(stream, after) for after in merge.absorbed]
        self._db.executemany("DELETE FROM coverage WHERE stream=? AND after=?", gone)
        self._db.execute("INSERT INTO coverage VALUES (?, ?, ?)", (stream, merge.after, merge.through))

    def window(self, sequence: int, name: str, index: int) -> WindowFrame | None:
        """The stored frame of a window of a sequence, which has the window's name."""
        query = "SELECT policy_version, previous, number, first, length, observed, counts FROM windows"
        row = self._one(f"{query} WHERE stream=? AND number=?", sequence, index)
        if row is None:
            return None
        version, previous, number, first, length, observed, counts = row
        return WindowFrame(version, name, previous, number, first, length, observed, tuple(json.loads(counts)))

    def add_window(self, sequence: int, frame: WindowFrame) -> None:
        """Store the frame of a window that is not there yet."""
        counts = json.dumps(frame.counts)
        place = (sequence, frame.index, frame.previous, frame.policy_version, frame.first, frame.length)
        self._db.execute("INSERT INTO windows VALUES (?, ?, ?, ?, ?, ?, ?, ?)", (*place, frame.observed, counts))

    def put_estimates(self, stream: int, update: Update, lag: int) -> None:
        """Store what a new frame determines, and put it into the outbox."""
        self._db.executemany("INSERT INTO estimates VALUES (?, ?, ?, ?, ?, ?)", _rows(stream, update, lag))
        self.queue_estimates(stream, update.frame.first)

    def replace_estimates(self, stream: int, update: Update, lag: int) -> bool:
        """Let what a frame determines take the place of what is stored for it, unless that is the same.

        Returns:
            Whether it is different, and was put into the outbox.
        """
        first = update.frame.first
        query = "SELECT * FROM estimates WHERE stream=? AND frame=? ORDER BY first"
        if self._db.execute(query, (stream, first)).fetchall() == _rows(stream, update, lag):
            return False
        self._db.execute("DELETE FROM estimates WHERE stream=? AND frame=?", (stream, first))
        self.put_estimates(stream, update, lag)
        return True

    def estimates(self, stream: int, frame: int) -> list[tuple[int, Run]]:
        """Lag and probabilities of each run that a frame determines, as 32-bit floats."""
        query = "SELECT lag, first, states, probabilities FROM estimates WHERE stream=? AND frame=? ORDER BY first"
        return [
            (lag, Run(first, np.frombuffer(blob, dtype="<f4").reshape(-1, states)))
            for lag, first, states, blob in self._db.execute(query, (stream, frame))
        ]

    def queue_estimates(self, stream: int, frame: int) -> None:
        """Put what a frame determines into the outbox."""
        self._db.execute("INSERT INTO outbox (stream, frame) VALUES (?, ?)", (stream, frame))

    def outbox(self, after: int, limit: int) -> list[Outgoing]:
        """Estimates that wait to be published, oldest first."""
        query = (
            "SELECT serial, outbox.stream, device, streams.stream, frame FROM outbox JOIN streams ON id=outbox.stream "
            "WHERE serial>? ORDER BY serial LIMIT ?"
        )
        return [Outgoing(*row) for row in self._db.execute(query, (after, limit))]

    def forget_outgoing(self, serials: Iterable[int]) -> None:
        """Remove what has been published."""
        with self.transaction():
            self._db.executemany("DELETE FROM outbox WHERE serial=?", [(serial,) for serial in serials])

    def _one(self, query: str, *values: object) -> Any:
        return self._db.execute(query, values).fetchone()


def _rows(stream: int, update: Update, lag: int) -> list[tuple[int, int, int, int, int, bytes]]:
    return [
        (
            *(stream, update.frame.first, run.first, lag),
            *(run.probabilities.shape[1], run.probabilities.astype("<f4").tobytes()),
        )
        for run in update.runs
    ]


def _tracked(row: Any) -> tuple[SymbolFrame, Beliefs | None]:
    version, previous, first, symbols, bits, belief = row
    frame = SymbolFrame(version, previous, first, symbols, bits=bits)
    return frame, None if belief is None else np.frombuffer(belief, dtype="<f8").copy()
