"""The ledger's file: its tables, and opening it."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from contract.file_format import LEDGER
from gateway.release.entries import LedgerError
from host.database import open_database

__all__ = ["open_ledger"]

_SCHEMA = """
CREATE TABLE accounts (
    id INTEGER PRIMARY KEY, device TEXT NOT NULL, stream TEXT NOT NULL, audience TEXT NOT NULL,
    allowance INTEGER NOT NULL, base INTEGER NOT NULL, exclusive INTEGER NOT NULL DEFAULT 0,
    UNIQUE (device, stream, audience));
CREATE TABLE allowances (
    serial INTEGER PRIMARY KEY AUTOINCREMENT, account INTEGER NOT NULL, allowance INTEGER NOT NULL,
    base INTEGER NOT NULL, epsilon REAL NOT NULL, adversary TEXT NOT NULL, after_entry INTEGER NOT NULL,
    time_us INTEGER NOT NULL);
CREATE TABLE runs (
    account INTEGER NOT NULL, first INTEGER NOT NULL, last INTEGER NOT NULL, charge INTEGER NOT NULL,
    PRIMARY KEY (account, first)) WITHOUT ROWID;
CREATE TABLE groups (id INTEGER PRIMARY KEY, digest TEXT NOT NULL UNIQUE);
CREATE TABLE members (
    in_group INTEGER NOT NULL, device TEXT NOT NULL, charge INTEGER NOT NULL, PRIMARY KEY (in_group, device))
    WITHOUT ROWID;
CREATE TABLE entries (
    number INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL, audience TEXT NOT NULL, stream TEXT NOT NULL,
    time_us INTEGER NOT NULL, mechanism TEXT NOT NULL, scale TEXT NOT NULL, first INTEGER NOT NULL,
    last INTEGER NOT NULL, exclusive INTEGER NOT NULL, reason TEXT NOT NULL, state TEXT NOT NULL, topic TEXT NOT NULL,
    payload BLOB NOT NULL, in_group INTEGER NOT NULL);
CREATE INDEX waiting ON entries (number) WHERE state = 'reserved';
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
