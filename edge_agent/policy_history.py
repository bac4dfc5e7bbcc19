"""The drawn ticks of a stream, by policy; stored in the outbox.

A row is an interval of consecutive ticks under one *edition*: a version of the policy, with a bound on its noise. A new
row begins only where numbers skip or the policy changes, in the transaction that makes its first tick durable. After a
restart the last row ends with the last durable tick: lost ticks do not count.
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
"""Most rows of a stream; further rows are merged, or the oldest forgotten."""


class Edition(NamedTuple):
    """A version of a policy, and its noise as `fugu.contract.history.Noise.text` writes it."""

    version: int
    noise: str


class DrawnTicks:
    """The rows of one stream, in order.

    Attributes:
        changed: True if rows have changed that are not stored yet.
    """

    def __init__(self, db: Database, stream: str) -> None:
        self._stream = stream
        query = "SELECT edition, version, noise FROM intact_editions WHERE stream = ?"
        self._editions = {edition_number: Edition(*fields) for edition_number, *fields in db.execute(query, (stream,))}
        query = "SELECT first, last, edition, begin FROM intact_drawn WHERE stream = ?"
        self._timeline = Timeline((Drawn(*row) for row in db.execute(query, (stream,))), MOST_ROWS)
        self.note_stored()

    def extend_to(self, last_tick: int) -> None:
        """Extend the last row to `last_tick`, the last durable tick, unless the row began later."""
        rows = self._timeline.intervals
        if rows and rows[-1].first <= last_tick:
            self._timeline.extend(last_tick)

    def note(self, tick: int, version: int, noise: str) -> None:
        """Add a drawn tick, later than all before, with the version and noise bound of its policy."""
        rows, edition = self._timeline.intervals, Edition(version, noise)
        if rows and rows[-1].last == tick - 1 and self._editions[rows[-1].version] == edition:
            self._timeline.extend(tick)
            return
        next_number = max(self._editions, default=0) + 1
        edition_number = next((number for number, pair in self._editions.items() if pair == edition), next_number)
        self._editions[edition_number] = edition
        # Version 1 was the first policy, so that nothing was drawn before it; before other versions, it is not known.
        begin = rows[-1].last + 1 if rows else 0 if version == 1 else tick
        self._timeline.add(Drawn(tick, tick, edition_number, begin))
        used_numbers = {row.version for row in rows}
        self._editions = {number: edition for number, edition in self._editions.items() if number in used_numbers}
        self.changed = True

    def store(self, db: Database) -> None:
        """Write changed rows and editions, within a transaction; call `note_stored` after the transaction."""
        old_rows, new_rows = self._timeline.stored, self._rows_by_key()
        removed_keys = [(self._stream, first) for first, edition in old_rows if (first, edition) not in new_rows]
        db.executemany("DELETE FROM drawn WHERE stream = ? AND first = ?", removed_keys)
        changed_rows = [(self._stream, *row[:4]) for key, row in new_rows.items() if old_rows.get(key) != row]
        db.executemany("INSERT OR REPLACE INTO drawn VALUES (?, ?, ?, ?, ?)", changed_rows)
        unused_editions = [(self._stream, number) for number in self._stored_editions if number not in self._editions]
        db.executemany("DELETE FROM editions WHERE stream = ? AND edition = ?", unused_editions)
        editions = [(self._stream, *pair) for pair in self._editions.items() if pair[0] not in self._stored_editions]
        db.executemany("INSERT INTO editions VALUES (?, ?, ?, ?)", [(*key, *edition) for *key, edition in editions])

    def note_stored(self) -> None:
        """Note that the changes are stored."""
        self._timeline.stored = self._rows_by_key()
        self._stored_editions = dict(self._editions)
        self.changed = False

    def _rows_by_key(self) -> dict[tuple[int, int], Drawn]:
        return {(row.first, row.version): row for row in self._timeline.intervals}

    @property
    def unchanged(self) -> bool:
        """True if no policy but the first has ever drawn."""
        rows = self._timeline.intervals
        return not rows or (rows[0].begin == 0 and len(self._editions) == 1)

    @property
    def row_starts(self) -> tuple[tuple[int, int], ...]:
        """First tick and edition of each row: these, and the length of the last row, decide the dates of promises."""
        return tuple((row.first, row.version) for row in self._timeline.intervals)

    def document(self) -> dict[str, Any]:
        """Return the rows and editions, as JSON can carry them."""
        return {"rows": [list(row) for row in self._timeline.intervals], "editions": self._editions}
