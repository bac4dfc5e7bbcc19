"""The store's tables of points and of noisy counts of windows."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fugu.chains.arrays import Floats
from fugu.contract.frames import MAX_TICK, WindowFrame
from fugu.contract.measure_frames import MAX_MEASURE_TICKS, MeasureFrame
from gateway.store.engine import Database, select_among

if TYPE_CHECKING:
    from fugu.contract.measure_table import TimedTable

__all__ = ["LIKELY", "MeasuredFrame", "PointStore", "WindowStore"]


MOST_LIKELY = 1_000
LIKELY = "substr(key, 1, length(key) / 2) != substr(key, length(key) / 2 + 1)"
"""Condition for rows of tables of likely states: the two sets of states in their keys differ. Such tables depend on the
belief, the few other tables on the policy alone."""


class MeasuredFrame(NamedTuple):
    """A frame of points, and the belief (N,) at its last tick."""

    frame: MeasureFrame
    belief: Floats


_FRAMES = "SELECT payload, belief FROM intact_measured WHERE stream=? AND"


@dataclass
class PointStore:
    """Frames of points and the tables that they were drawn from; used within the store's transactions."""

    schema = """
CREATE TABLE measured (
    stream INTEGER NOT NULL, first INTEGER NOT NULL, last INTEGER NOT NULL, policy_version INTEGER NOT NULL,
    payload BLOB NOT NULL, belief BLOB NOT NULL, PRIMARY KEY (stream, first)) WITHOUT ROWID;
CREATE TABLE sent_tables (
    serial INTEGER PRIMARY KEY AUTOINCREMENT, stream INTEGER NOT NULL, policy_version INTEGER NOT NULL,
    number INTEGER NOT NULL, key BLOB NOT NULL, message BLOB NOT NULL,
    UNIQUE (stream, policy_version, number), UNIQUE (stream, policy_version, key));
"""
    _db: Database

    def newest(self, stream: int) -> MeasuredFrame | None:
        """The last frame of a stream; `None` without frames."""
        return self.before(stream, 2**62)

    def before(self, stream: int, tick: int) -> MeasuredFrame | None:
        """The last frame that begins before a tick, or `None`."""
        query = f"{_FRAMES} first<? ORDER BY first DESC LIMIT 1"
        return self._frame(query, stream, tick)

    def at(self, stream: int, first_tick: int) -> MeasuredFrame | None:
        """The frame that begins at a tick, or `None`."""
        return self._frame(f"{_FRAMES} first=?", stream, first_tick)

    def following(self, stream: int, first: int, last: int = MAX_TICK) -> Iterator[MeasuredFrame]:
        """Iterate over frames that begin at the ticks first..last, in tick order; 64 are read at a time."""
        query = f"{_FRAMES} first BETWEEN ? AND ? ORDER BY first LIMIT 64"
        while rows := self._db.execute(query, (stream, first, last)).fetchall():
            for row in rows:
                yield (stored_frame := _measured_of_row(row))
                first = stored_frame.frame.first + 1

    def holding(self, stream: int, first: int, last: int) -> list[MeasureFrame]:
        """The frames that hold any of the ticks first..last, in tick order."""
        query = f"{_FRAMES} first BETWEEN ? AND ? AND last>=? ORDER BY first"
        rows = self._db.execute(query, (stream, first - MAX_MEASURE_TICKS, last, first))
        return [_measured_of_row(row).frame for row in rows]

    def overlapping(self, stream: int, frame: MeasureFrame) -> MeasureFrame | None:
        """The first stored frame that shares a tick with another frame, or `None`."""
        return next(iter(self.holding(stream, frame.first, frame.last)), None)

    def add(self, stream: int, frame: MeasureFrame, belief: Floats) -> None:
        """Store a frame that overlaps no other."""
        row = (stream, frame.first, frame.last, frame.policy_version, frame.encode(), belief.tobytes())
        self._db.execute("INSERT INTO measured VALUES (?, ?, ?, ?, ?, ?)", row)

    def set_belief(self, stream: int, first: int, belief: Floats) -> None:
        """Replace the stored belief at a frame's last tick."""
        self._db.execute("UPDATE measured SET belief=? WHERE stream=? AND first=?", (belief.tobytes(), stream, first))

    def table(self, stream: int, version: int, table_number: int) -> TimedTable | None:
        """The table with a number of a policy version, or `None`."""
        query = "SELECT message FROM intact_sent_tables WHERE stream=? AND policy_version=? AND number=?"
        return self._table(query, stream, version, table_number)

    def table_for(self, stream: int, version: int, table_key: bytes) -> TimedTable | None:
        """The table that was made for a key, or `None`."""
        query = "SELECT message FROM intact_sent_tables WHERE stream=? AND policy_version=? AND key=?"
        return self._table(query, stream, version, table_key)

    def next_number(self, stream: int, version: int, minimum: int) -> int:
        """The number for the next table of a policy version: above all stored ones, and at least `minimum`."""
        query = "SELECT MAX(number) FROM sent_tables WHERE stream=? AND policy_version=?"
        (largest,) = self._db.execute(query, (stream, version)).fetchone()
        return minimum if largest is None else max(minimum, largest + 1)

    def put_table(self, stream: int, table_key: bytes, table: TimedTable) -> None:
        """Store a table before it is sent, in place of tables of its version with its number or key.

        Of a stream's tables of likely states, only the newest `MOST_LIKELY` stay.
        """
        table_id = (stream, table.policy_version, table.number, table_key)
        query = "DELETE FROM sent_tables WHERE stream=? AND policy_version=? AND (number=? OR key=?)"
        self._db.execute(query, table_id)
        columns = "stream, policy_version, number, key, message"
        self._db.execute(f"INSERT INTO sent_tables ({columns}) VALUES (?, ?, ?, ?, ?)", (*table_id, table.encode()))
        likely_tables = f"FROM sent_tables WHERE stream=? AND {LIKELY}"
        oldest_serial = f"SELECT serial {likely_tables} ORDER BY serial DESC LIMIT 1 OFFSET {MOST_LIKELY}"
        self._db.execute(f"DELETE {likely_tables} AND serial<=({oldest_serial})", (stream, stream))

    def _frame(self, query: str, *values: int) -> MeasuredFrame | None:
        row = self._db.execute(query, values).fetchone()
        return None if row is None else _measured_of_row(row)

    def _table(self, query: str, *values: int | bytes) -> TimedTable | None:
        from fugu.contract.measure_table import TimedTable  # here, because few streams have points

        row = self._db.execute(query, values).fetchone()
        return None if row is None else TimedTable.decode(row[0])


def _measured_of_row(row: Any) -> MeasuredFrame:
    payload, belief = row
    return MeasuredFrame(MeasureFrame.decode(payload), np.frombuffer(belief, dtype="<f8").copy())


def _window_frame(row: Any) -> WindowFrame:
    _, index, version, name, previous, first, length, observed, counts, shift = row
    head_fields = version, name.partition("/")[2], previous, index, first, length, observed
    return WindowFrame(*head_fields, tuple(json.loads(counts)), shift)


@dataclass
class WindowStore:
    """Frames of window counts; used within the store's transactions."""

    schema = """
CREATE TABLE windows (
    stream INTEGER NOT NULL, number INTEGER NOT NULL, previous INTEGER NOT NULL, policy_version INTEGER NOT NULL,
    first INTEGER NOT NULL, length INTEGER NOT NULL, observed INTEGER NOT NULL, counts TEXT NOT NULL,
    shift INTEGER NOT NULL, PRIMARY KEY (stream, number)) WITHOUT ROWID;
CREATE INDEX windows_by_tick ON windows (stream, first);
"""
    _db: Database

    def at(self, sequence: int, index: int) -> WindowFrame | None:
        """The frame of a sequence's window with an index, or `None`."""
        return next((frame for _, frame in self._frames("number=?", [sequence], index)), None)

    def within(self, sequence: int, first: int, last: int) -> list[WindowFrame]:
        """The frames of a sequence's windows that lie within ticks first..last, by index."""
        return [frame for _, frame in self.frames_between([sequence], first, last)]

    def frames_between(self, sequences: Sequence[int], first: int, last: int) -> list[tuple[int, WindowFrame]]:
        """The frames of windows of several sequences within ticks first..last, each with its sequence's number."""
        return self._frames("first BETWEEN ? AND ? AND first+length-1<=?", sequences, first, last, last)

    def next_first(self, sequence: int, tick: int) -> int | None:
        """The least first tick of the windows that end at `tick` or later; `None` without such a window."""
        query = "SELECT MIN(first) FROM windows WHERE stream=? AND first+length>?"
        first: int | None = self._db.execute(query, (sequence, tick)).fetchone()[0]
        return first

    def _frames(self, condition: str, sequences: Sequence[int], *values: int) -> list[tuple[int, WindowFrame]]:
        query = (
            "SELECT id, number, policy_version, streams.stream, previous, first, length, observed, counts, shift "
            f"FROM intact_windows w JOIN streams ON id=w.stream WHERE {condition} AND w.stream"
        )
        return [(row[0], _window_frame(row)) for row in sorted(select_among(self._db, query, sequences, *values))]

    def add(self, sequence: int, frame: WindowFrame) -> None:
        """Store the frame of a window that has none yet."""
        counts = json.dumps(frame.counts)
        window_columns = (sequence, frame.index, frame.previous, frame.policy_version, frame.first, frame.length)
        row = (*window_columns, frame.observed, counts, frame.shift)
        self._db.execute("INSERT INTO windows VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
