"""The part of the store that holds windows: noisy counts, as they came."""

from __future__ import annotations

import json
import sqlite3

from contract.window_frames import WindowFrame

__all__ = ["WindowStore"]


class WindowStore:
    """Frames of window counts; used within the store's transactions.

    Args:
        database: the store's connection.
    """

    schema = """
CREATE TABLE windows (
    stream INTEGER NOT NULL, number INTEGER NOT NULL, previous INTEGER NOT NULL, policy_version INTEGER NOT NULL,
    first INTEGER NOT NULL, length INTEGER NOT NULL, observed INTEGER NOT NULL, counts TEXT NOT NULL,
    PRIMARY KEY (stream, number)) WITHOUT ROWID;
"""

    def __init__(self, database: sqlite3.Connection) -> None:
        self._db = database

    def at(self, sequence: int, name: str, index: int) -> WindowFrame | None:
        """The stored frame of a window of a sequence, which has the window's name."""
        query = "SELECT policy_version, previous, number, first, length, observed, counts FROM windows"
        row = self._db.execute(f"{query} WHERE stream=? AND number=?", (sequence, index)).fetchone()
        if row is None:
            return None
        version, previous, number, first, length, observed, counts = row
        return WindowFrame(version, name, previous, number, first, length, observed, tuple(json.loads(counts)))

    def add(self, sequence: int, frame: WindowFrame) -> None:
        """Store the frame of a window that is not there yet."""
        counts = json.dumps(frame.counts)
        place = (sequence, frame.index, frame.previous, frame.policy_version, frame.first, frame.length)
        self._db.execute("INSERT INTO windows VALUES (?, ?, ?, ?, ?, ?, ?, ?)", (*place, frame.observed, counts))
