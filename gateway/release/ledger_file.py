"""The ledger's file: its tables, and opening it."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from contract.file_format import LEDGER
from gateway.release.entries import LedgerError

__all__ = ["open_ledger"]

_SCHEMA = """
CREATE TABLE IF NOT EXISTS accounts (
    id INTEGER PRIMARY KEY, device TEXT NOT NULL, stream TEXT NOT NULL, audience TEXT NOT NULL,
    allowance INTEGER NOT NULL, base INTEGER NOT NULL, exclusive INTEGER NOT NULL DEFAULT 0,
    UNIQUE (device, stream, audience));
CREATE TABLE IF NOT EXISTS allowances (
    serial INTEGER PRIMARY KEY AUTOINCREMENT, account INTEGER NOT NULL, allowance INTEGER NOT NULL,
    base INTEGER NOT NULL, epsilon REAL NOT NULL, adversary TEXT NOT NULL, after_entry INTEGER NOT NULL,
    time_us INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS runs (
    account INTEGER NOT NULL, first INTEGER NOT NULL, last INTEGER NOT NULL, charge INTEGER NOT NULL,
    PRIMARY KEY (account, first)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS groups (id INTEGER PRIMARY KEY, digest TEXT NOT NULL UNIQUE);
CREATE TABLE IF NOT EXISTS members (
    in_group INTEGER NOT NULL, device TEXT NOT NULL, charge INTEGER NOT NULL, PRIMARY KEY (in_group, device))
    WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS entries (
    number INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL, audience TEXT NOT NULL, stream TEXT NOT NULL,
    time_us INTEGER NOT NULL, mechanism TEXT NOT NULL, scale TEXT NOT NULL, first INTEGER NOT NULL,
    last INTEGER NOT NULL, exclusive INTEGER NOT NULL, reason TEXT NOT NULL, state TEXT NOT NULL, topic TEXT NOT NULL,
    payload BLOB NOT NULL, in_group INTEGER NOT NULL);
CREATE INDEX IF NOT EXISTS waiting ON entries (number) WHERE state = 'reserved';
CREATE TABLE IF NOT EXISTS progress (name TEXT PRIMARY KEY, next INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS binding (identity TEXT NOT NULL, store TEXT NOT NULL);
INSERT INTO binding VALUES (lower(hex(randomblob(16))), '');
CREATE TABLE IF NOT EXISTS beginnings (
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
    if not create and not path.exists():
        raise LedgerError(f"there is no ledger {path.name}")
    try:
        db = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=10.0)
    except sqlite3.Error as error:
        raise LedgerError(f"cannot open the ledger {path.name}: {error}") from None
    try:
        _prepare(db, path.name)
    except sqlite3.Error as error:
        db.close()
        raise LedgerError(f"cannot open the ledger {path.name}: {error}") from None
    except LedgerError:
        db.close()
        raise
    return db


def _prepare(db: sqlite3.Connection, name: str) -> None:
    (version,) = db.execute("PRAGMA user_version").fetchone()
    (application,) = db.execute("PRAGMA application_id").fetchone()
    (tables,) = db.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if problem := LEDGER.problem(name, application, version, tables):
        raise LedgerError(problem)
    db.execute("PRAGMA journal_mode=WAL")
    db.execute("PRAGMA synchronous=FULL")
    if not version:
        db.executescript(f"BEGIN IMMEDIATE;{_SCHEMA}{LEDGER.stamps}COMMIT;")
