"""Ticks that were drawn under each version of a stream's policy: from them follows since when a promise is true.

A row is an interval of ticks in a row. Only the first frame of an interval, and frames out of turn, change rows; the
last interval of a stream goes on to the last tick that is accounted for.
"""

from __future__ import annotations

from fugu.contract.timeline import Drawn, Timeline
from gateway.store.engine import Database

__all__ = ["VersionStore"]


class VersionStore:
    """A part of the store; used within the store's transactions.

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

    def put(self, device: str, stream: str, timeline: Timeline, *, whole: bool) -> None:
        """Store a stream's intervals; unless `whole`, the end of the last one only where another follows."""
        old, new = timeline.stored, {(row.first, row.version): row for row in timeline.rows}
        newest = timeline.rows[-1]
        before = old.get((newest.first, newest.version))
        if not whole and before is not None:
            new[newest.first, newest.version] = newest._replace(last=before.last)
        if old == new:
            return
        gone = [(device, stream, *key) for key in old if key not in new]
        self._db.executemany("DELETE FROM versions WHERE device=? AND stream=? AND first=? AND version=?", gone)
        query = (
            "INSERT INTO versions (device, stream, first, last, version, begin, absent) VALUES (?, ?, ?, ?, ?, ?, ?) "
            "ON CONFLICT (device, stream, first, version) DO UPDATE SET last=excluded.last, begin=excluded.begin, "
            "absent=excluded.absent"
        )
        self._db.executemany(query, [(device, stream, *row) for key, row in new.items() if old.get(key) != row])
        timeline.stored = new
        self.changed.add((device, stream))
