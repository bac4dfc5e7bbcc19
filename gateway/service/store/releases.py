"""The part of the store that says what has been released, and to which ledger it was charged."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from gateway.database import Database

__all__ = ["ReleaseStore", "Released"]


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
    """What has been released; used within the store's transactions."""

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
        return Charged(*self._db.execute("SELECT identity, ledger, entry FROM release_record").fetchone())

    def bind(self, ledger: str) -> None:
        """Store the identity of the ledger."""
        self._db.execute("UPDATE release_record SET ledger=?", (ledger,))

    def begin(self, ledger: str, entry: int) -> None:
        """Store another ledger, whose newest entry this is."""
        self._db.execute("UPDATE release_record SET ledger=?, entry=?", (ledger, entry))

    def note(self, released: Iterable[Released]) -> None:
        """Store the last ticks of releases; a stream's never goes back."""
        query = (
            "INSERT INTO released VALUES (?, ?, ?) "
            "ON CONFLICT (device, stream) DO UPDATE SET last=excluded.last WHERE released.last<excluded.last"
        )
        self._db.executemany(query, released)

    def note_entry(self, entry: int) -> None:
        """Store that entries up to a number may be published; it never goes back."""
        self._db.execute("UPDATE release_record SET entry=? WHERE entry<?", (entry, entry))

    def released(self) -> list[Released]:
        """For every stream the last tick of a release."""
        return [Released(*row) for row in self._db.execute("SELECT device, stream, last FROM released")]
