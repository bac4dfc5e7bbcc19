"""The part of the store that holds windows: noisy counts, as they came."""

from __future__ import annotations

import json

from fugu.contract.frames import WindowFrame
from gateway.database import Database

__all__ = ["WindowStore"]


class WindowStore:
    """Frames of window counts; used within the store's transactions."""

    schema = """
CREATE TABLE windows (
    stream INTEGER NOT NULL, number INTEGER NOT NULL, previous INTEGER NOT NULL, policy_version INTEGER NOT NULL,
    first INTEGER NOT NULL, length INTEGER NOT NULL, observed INTEGER NOT NULL, counts TEXT NOT NULL,
    shift INTEGER NOT NULL, PRIMARY KEY (stream, number)) WITHOUT ROWID;
"""

    def __init__(self, database: Database) -> None:
        self._db = database

    def at(self, sequence: int, index: int) -> WindowFrame | None:
        """The stored frame of the window of an index, of a sequence."""
        return next(iter(self._frames("number=?", sequence, index)), None)

    def within(self, sequence: int, first: int, last: int) -> list[WindowFrame]:
        """The frames of a sequence's windows that lie in the ticks first..last, in their order."""
        return self._frames("first>=? AND first+length-1<=? ORDER BY number", sequence, first, last)

    def next_first(self, sequence: int, tick: int) -> int | None:
        """The first tick of the first window that ends at a tick or later."""
        query = "SELECT MIN(first) FROM windows WHERE stream=? AND first+length>?"
        found: int | None = self._db.execute(query, (sequence, tick)).fetchone()[0]
        return found

    def _frames(self, where: str, sequence: int, *values: int) -> list[WindowFrame]:
        query = (
            "SELECT policy_version, streams.stream, previous, number, first, length, observed, counts, shift "
            f"FROM windows JOIN streams ON id=windows.stream WHERE windows.stream=? AND {where}"
        )
        return [
            WindowFrame(
                *(version, name.partition("/")[2], previous, index, first, length, observed),
                tuple(json.loads(counts)),
                shift,
            )
            for version, name, previous, index, first, length, observed, counts, shift in self._db.execute(
                query, (sequence, *values)
            )
        ]

    def add(self, sequence: int, frame: WindowFrame) -> None:
        """Store the frame of a window that is not there yet."""
        counts = json.dumps(frame.counts)
        place = (sequence, frame.index, frame.previous, frame.policy_version, frame.first, frame.length)
        row = (*place, frame.observed, counts, frame.shift)
        self._db.execute("INSERT INTO windows VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
