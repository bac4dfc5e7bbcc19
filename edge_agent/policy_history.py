"""Which ticks of a stream were drawn under which of its policies, durable beside what was drawn.

A row is an interval of ticks in a row under one *edition*: a version of the policy, with a bound on its noise. Rows
change only where numbers skip or the policy changes, within the transaction that makes the first tick of a row durable.
The last row ends, after a restart, with the last tick that is durable: ticks that were lost count for nothing.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from fugu.contract.timeline import Drawn, Timeline
from fugu.host.database import Database

__all__ = ["HISTORY_SCHEMA", "DrawnTicks", "Edition"]

HISTORY_SCHEMA = """
    CREATE TABLE editions (
        stream TEXT NOT NULL, edition INTEGER NOT NULL, version INTEGER NOT NULL, noise TEXT NOT NULL,
        PRIMARY KEY (stream, edition)) WITHOUT ROWID;
    CREATE TABLE drawn (
        stream TEXT NOT NULL, first INTEGER NOT NULL, last INTEGER NOT NULL, edition INTEGER NOT NULL,
        begin INTEGER NOT NULL, PRIMARY KEY (stream, first)) WITHOUT ROWID;
"""
MOST_ROWS = 64
"""Of a stream, at most; beyond, the oldest are merged or forgotten."""


class Edition(NamedTuple):
    """A version of a policy, and its noise as `fugu.contract.history.Noise` writes it."""

    version: int
    noise: str


class DrawnTicks:
    """The intervals of one stream, in order.

    Attributes:
        changed: whether the disk has to be told.
    """

    def __init__(self, db: Database, stream: str) -> None:
        self._stream = stream
        query = "SELECT edition, version, noise FROM intact_editions WHERE stream = ?"
        self._editions = {number: Edition(*fields) for number, *fields in db.execute(query, (stream,))}
        query = "SELECT first, last, edition, begin FROM intact_drawn WHERE stream = ?"
        self._timeline = Timeline((Drawn(*row) for row in db.execute(query, (stream,))), MOST_ROWS)
        self._written = dict(self._editions)
        self.changed = False

    def reach(self, last_tick: int) -> None:
        """Let the last row go on to the last tick that is durable, if it began before."""
        rows = self._timeline.rows
        if rows and rows[-1].first <= last_tick:
            self._timeline.extend(last_tick)

    def note(self, tick: int, version: int, noise: str) -> None:
        """Take a tick that is drawn, later than every one before."""
        rows, edition = self._timeline.rows, Edition(version, noise)
        if rows and rows[-1].last == tick - 1 and self._editions[rows[-1].version] == edition:
            self._timeline.extend(tick)
            return
        edition_number = next((key for key, value in self._editions.items() if value == edition), None)
        if edition_number is None:
            edition_number = max(self._editions, default=0) + 1
            self._editions[edition_number] = edition
        # The first version is the first policy there was; of what was before another one nothing is known.
        begin = rows[-1].last + 1 if rows else 0 if version == 1 else tick
        self._timeline.add(Drawn(tick, tick, edition_number, begin))
        used_editions = {row.version for row in rows}
        self._editions = {edition: value for edition, value in self._editions.items() if edition in used_editions}
        self.changed = True

    def store(self, db: Database) -> None:
        """Write what has changed, within a transaction; call `stored` after it."""
        old_rows, new_rows = self._timeline.stored, {(row.first, row.version): row for row in self._timeline.rows}
        removed_keys = [(self._stream, first) for first, edition in old_rows if (first, edition) not in new_rows]
        db.executemany("DELETE FROM drawn WHERE stream = ? AND first = ?", removed_keys)
        rows = [(self._stream, *row[:4]) for key, row in new_rows.items() if old_rows.get(key) != row]
        db.executemany("INSERT OR REPLACE INTO drawn VALUES (?, ?, ?, ?, ?)", rows)
        unused_editions = [(self._stream, number) for number in self._written if number not in self._editions]
        db.executemany("DELETE FROM editions WHERE stream = ? AND edition = ?", unused_editions)
        editions = [(self._stream, *pair) for pair in self._editions.items() if pair[0] not in self._written]
        db.executemany("INSERT INTO editions VALUES (?, ?, ?, ?)", [(*key, *edition) for *key, edition in editions])

    def stored(self) -> None:
        """Note that the transaction has ended."""
        self._timeline.stored = {(row.first, row.version): row for row in self._timeline.rows}
        self._written = dict(self._editions)
        self.changed = False

    @property
    def unchanged(self) -> bool:
        """True if at most one policy has drawn anything, and it was the first."""
        rows = self._timeline.rows
        return not rows or (rows[0].begin == 0 and len(self._editions) == 1)

    @property
    def shape(self) -> tuple[tuple[int, int], ...]:
        """Begin and edition of each row: all that a date depends on but how long the last row is."""
        return tuple((row.first, row.version) for row in self._timeline.rows)

    def document(self) -> dict[str, Any]:
        """The rows and editions, as JSON can carry them."""
        return {"rows": [list(row) for row in self._timeline.rows], "editions": self._editions}
