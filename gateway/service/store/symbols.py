"""The part of the store that holds symbols: frames, beliefs and estimates."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from contract.frames import MAX_FRAME_TICKS, SymbolFrame
from gateway.service.kinds.symbol_model import Beliefs
from gateway.service.kinds.symbol_track import Run, Tracked, Update
from gateway.service.store.database import Database

__all__ = ["SymbolStore"]

_CHUNK = 64
_FRAME = "policy_version, previous, first, symbols, bits, shift, belief"


class SymbolStore:
    """Frames of symbols and what they determine; used within the store's transactions."""

    schema = """
CREATE TABLE frames (
    stream INTEGER NOT NULL, first INTEGER NOT NULL, last INTEGER NOT NULL, previous INTEGER NOT NULL,
    policy_version INTEGER NOT NULL, symbols BLOB NOT NULL, bits INTEGER NOT NULL, shift INTEGER NOT NULL,
    belief BLOB, PRIMARY KEY (stream, first)) WITHOUT ROWID;
CREATE TABLE estimates (
    stream INTEGER NOT NULL, frame INTEGER NOT NULL, first INTEGER NOT NULL, lag INTEGER NOT NULL,
    states INTEGER NOT NULL, probabilities BLOB NOT NULL, PRIMARY KEY (stream, frame, first)) WITHOUT ROWID;
"""

    def __init__(self, database: Database) -> None:
        self._db = database

    def overlapping(self, stream: int, frame: SymbolFrame) -> SymbolFrame | None:
        """A stored frame that shares a tick with the given one."""
        query = f"SELECT {_FRAME} FROM frames WHERE stream=? AND first<=? ORDER BY first DESC LIMIT 1"
        row = self._one(query, stream, frame.last)
        found = _tracked(row)[0] if row else None
        return found if found is not None and found.last >= frame.first else None

    def add(self, stream: int, frame: SymbolFrame, belief: Beliefs | None) -> None:
        """Store a frame that overlaps no other; the belief may follow in the same transaction."""
        blob = None if belief is None else belief.tobytes()
        ticks = (frame.first, frame.last, frame.previous)
        row = (stream, *ticks, frame.policy_version, frame.symbols, frame.bits, frame.shift, blob)
        self._db.execute("INSERT INTO frames VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", row)

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

    def holding(self, stream: int, first: int, last: int) -> list[SymbolFrame]:
        """The frames that hold any of the ticks first..last, in tick order."""
        query = f"SELECT {_FRAME} FROM frames WHERE stream=? AND first BETWEEN ? AND ? AND last>=? ORDER BY first"
        rows = self._db.execute(query, (stream, first - MAX_FRAME_TICKS + 1, last, first))
        return [_tracked(row)[0] for row in rows]

    def next_first(self, stream: int, tick: int) -> int | None:
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

    def put_estimates(self, stream: int, update: Update, lag: int) -> None:
        """Store what a new frame determines."""
        self._db.executemany("INSERT INTO estimates VALUES (?, ?, ?, ?, ?, ?)", _rows(stream, update, lag))

    def replace_estimates(self, stream: int, update: Update, lag: int) -> bool:
        """Let what a frame determines take the place of what is stored for it, unless that is the same.

        Returns:
            Whether it is different.
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
    version, previous, first, symbols, bits, shift, belief = row
    frame = SymbolFrame(version, previous, first, symbols, bits=bits, shift=shift)
    return frame, None if belief is None else np.frombuffer(belief, dtype="<f8").copy()
