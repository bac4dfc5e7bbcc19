"""The ledger's file: its tables, opening it, and its rows as they stand for an audit that believes none of them."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gateway.release.entries import LedgerError
from host.database import LEDGER, open_database

__all__ = ["LedgerRows", "open_ledger"]

_SCHEMA = """
CREATE TABLE accounts (
    id INTEGER PRIMARY KEY, device TEXT NOT NULL, stream TEXT NOT NULL, audience TEXT NOT NULL,
    allowance INTEGER NOT NULL, base INTEGER NOT NULL, mechanism TEXT NOT NULL, exclusive INTEGER NOT NULL DEFAULT 0,
    shifted INTEGER NOT NULL DEFAULT 0, UNIQUE (device, stream, audience));
CREATE TABLE allowances (
    serial INTEGER PRIMARY KEY AUTOINCREMENT, account INTEGER NOT NULL, allowance INTEGER NOT NULL,
    base INTEGER NOT NULL, epsilon REAL NOT NULL, adversary TEXT NOT NULL, mechanism TEXT NOT NULL,
    class INTEGER NOT NULL, after_entry INTEGER NOT NULL, time_us INTEGER NOT NULL);
CREATE TABLE classes (id INTEGER PRIMARY KEY, chains TEXT NOT NULL UNIQUE);
CREATE TABLE together (
    serial INTEGER PRIMARY KEY AUTOINCREMENT, device TEXT NOT NULL, stream TEXT NOT NULL, name TEXT NOT NULL,
    after_entry INTEGER NOT NULL, time_us INTEGER NOT NULL);
CREATE TABLE runs (
    account INTEGER NOT NULL, first INTEGER NOT NULL, last INTEGER NOT NULL, charge INTEGER NOT NULL,
    PRIMARY KEY (account, first)) WITHOUT ROWID;
CREATE TABLE groups (id INTEGER PRIMARY KEY, digest TEXT NOT NULL UNIQUE);
CREATE TABLE members (
    in_group INTEGER NOT NULL, device TEXT NOT NULL, charge INTEGER NOT NULL, shift INTEGER NOT NULL,
    PRIMARY KEY (in_group, device)) WITHOUT ROWID;
CREATE TABLE entries (
    number INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL, audience TEXT NOT NULL, stream TEXT NOT NULL,
    time_us INTEGER NOT NULL, mechanism TEXT NOT NULL, noise TEXT NOT NULL, scale TEXT NOT NULL,
    first INTEGER NOT NULL, last INTEGER NOT NULL, exclusive INTEGER NOT NULL, basis TEXT NOT NULL,
    reason TEXT NOT NULL, state TEXT NOT NULL, topic TEXT NOT NULL, payload BLOB NOT NULL, in_group INTEGER NOT NULL);
CREATE INDEX waiting ON entries (number) WHERE state = 'reserved';
CREATE INDEX windows ON entries (name, first);
CREATE INDEX topics ON entries (topic, number, state);
CREATE TABLE progress (name TEXT PRIMARY KEY, next INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE binding (identity TEXT NOT NULL, store TEXT NOT NULL);
INSERT INTO binding VALUES (lower(hex(randomblob(16))), '');
CREATE TABLE beginnings (
    device TEXT NOT NULL, stream TEXT NOT NULL, first INTEGER NOT NULL, PRIMARY KEY (device, stream)) WITHOUT ROWID;
"""


def open_ledger(path: Path, create: bool) -> sqlite3.Connection:
    """Open a ledger's file.

    Args:
        path: the file.
        create: make it if it is not there.

    Returns:
        A connection in autocommit mode; what is committed is on the disk.

    Raises:
        LedgerError: it cannot be opened, is no ledger, or is of another version.
    """
    return open_database(path, LEDGER, _SCHEMA, LedgerError, create=create, wait_seconds=10.0)


_Rows = Iterator[tuple[Any, ...]]


class LedgerRows:
    """The rows of one state of a ledger, table by table.

    Args:
        db: the ledger's file.
    """

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    def accounts(self) -> _Rows:
        """Number, device, stream, audience, allowance, base, mechanism, exclusive entry, shifted, of each account."""
        columns = "id, device, stream, audience, allowance, base, mechanism, exclusive, shifted"
        return self._db.execute(f"SELECT {columns} FROM accounts")

    def allowances(self) -> _Rows:
        """After which entry, account, allowance, base, mechanism, epsilon, adversary, chains; oldest first."""
        columns = "after_entry, account, allowance, base, mechanism, epsilon, adversary, chains"
        return self._db.execute(
            f"SELECT {columns} FROM allowances LEFT JOIN classes ON classes.id=class ORDER BY serial"
        )

    def together(self) -> _Rows:
        """After which entry, device, stream, and what it is called with those that it is charged with; oldest first."""
        return self._db.execute("SELECT after_entry, device, stream, name FROM together ORDER BY serial")

    def members(self) -> _Rows:
        """Group, device, charge and shift of each member of a group."""
        return self._db.execute("SELECT in_group, device, charge, shift FROM members")

    def entries(self) -> Iterator[dict[str, Any]]:
        """The entries, oldest first, as mappings from their columns."""
        cursor = self._db.execute("SELECT * FROM entries ORDER BY number")
        names = [column[0] for column in cursor.description]
        return (dict(zip(names, row, strict=True)) for row in cursor)

    def entry_count(self) -> int:
        """How many entries there are."""
        return int(self._db.execute("SELECT count(*) FROM entries").fetchone()[0])

    def payload(self, number: int) -> bytes | None:
        """What an entry holds, none if there is no such entry."""
        row = self._db.execute("SELECT payload FROM entries WHERE number=?", (number,)).fetchone()
        return None if row is None else row[0]

    def runs(self) -> _Rows:
        """Account, first and last tick and charge of each run, by account and tick."""
        return self._db.execute("SELECT account, first, last, charge FROM runs ORDER BY account, first")
