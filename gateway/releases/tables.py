"""Tables of a ledger, and their rows without any interpretation, for an audit that trusts none of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fugu.host.database import LEDGER
from gateway.releases.entries import Entry
from gateway.store.engine import Database, DatabaseKind, LedgerError, Rows

__all__ = ["KIND", "LedgerRows"]


_SCHEMA = """
CREATE TABLE accounts (
    id INTEGER PRIMARY KEY, device TEXT NOT NULL, stream TEXT NOT NULL, audience TEXT NOT NULL,
    allowance INTEGER NOT NULL, base INTEGER NOT NULL, mechanism TEXT NOT NULL, exclusive INTEGER NOT NULL DEFAULT 0,
    shifted INTEGER NOT NULL DEFAULT 0, UNIQUE (device, stream, audience));
CREATE TABLE allowances (
    serial INTEGER PRIMARY KEY AUTOINCREMENT, account INTEGER NOT NULL, allowance INTEGER NOT NULL,
    base INTEGER NOT NULL, epsilon REAL NOT NULL, adversary TEXT NOT NULL, seconds INTEGER NOT NULL,
    period_us INTEGER NOT NULL, mechanism TEXT NOT NULL, class INTEGER NOT NULL,
    after_entry INTEGER NOT NULL, time_us INTEGER NOT NULL);
CREATE INDEX changes ON allowances (account, serial);
CREATE TABLE classes (id INTEGER PRIMARY KEY, chains TEXT NOT NULL UNIQUE);
CREATE TABLE together (
    serial INTEGER PRIMARY KEY AUTOINCREMENT, device TEXT NOT NULL, stream TEXT NOT NULL, name TEXT NOT NULL,
    after_entry INTEGER NOT NULL, time_us INTEGER NOT NULL);
CREATE INDEX ties ON together (device, stream, serial);
CREATE INDEX tied ON together (name, device, stream);
CREATE TABLE runs (
    account INTEGER NOT NULL, first INTEGER NOT NULL, last INTEGER NOT NULL, charge INTEGER NOT NULL,
    PRIMARY KEY (account, first)) WITHOUT ROWID;
CREATE TABLE groups (id INTEGER PRIMARY KEY, digest TEXT NOT NULL UNIQUE);
CREATE TABLE members (
    in_group INTEGER NOT NULL, device TEXT NOT NULL, charge INTEGER NOT NULL, shift INTEGER NOT NULL,
    PRIMARY KEY (in_group, device)) WITHOUT ROWID;
CREATE TABLE entries (
    number INTEGER PRIMARY KEY, name TEXT NOT NULL, audience TEXT NOT NULL, stream TEXT NOT NULL,
    time_us INTEGER NOT NULL, mechanism TEXT NOT NULL, noise TEXT NOT NULL, scale TEXT NOT NULL,
    first INTEGER NOT NULL, last INTEGER NOT NULL, exclusive INTEGER NOT NULL, basis TEXT NOT NULL,
    reason TEXT NOT NULL, state TEXT NOT NULL, topic TEXT NOT NULL, payload BLOB NOT NULL, in_group INTEGER NOT NULL,
    question INTEGER NOT NULL, inputs TEXT NOT NULL, inputs_digest TEXT NOT NULL);
CREATE TABLE documents (id INTEGER PRIMARY KEY, digest TEXT NOT NULL UNIQUE, document TEXT NOT NULL);
CREATE INDEX waiting ON entries (number) WHERE state = 'reserved';
CREATE INDEX windows ON entries (name, first);
CREATE INDEX audiences ON entries (audience, number);
CREATE INDEX topics ON entries (topic, number, state);
CREATE TABLE forgotten (
    device TEXT PRIMARY KEY, through INTEGER NOT NULL, time_us INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE progress (name TEXT PRIMARY KEY, next INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE binding (identity TEXT NOT NULL, store TEXT NOT NULL, not_before_us INTEGER NOT NULL);
INSERT INTO binding VALUES (lower(hex(randomblob(16))), '', 0);
CREATE TABLE beginnings (
    device TEXT NOT NULL, stream TEXT NOT NULL, first INTEGER NOT NULL, uncharged INTEGER NOT NULL,
    PRIMARY KEY (device, stream)) WITHOUT ROWID;
CREATE TABLE outlived (
    device TEXT NOT NULL, stream TEXT NOT NULL, class INTEGER NOT NULL, period_us INTEGER NOT NULL,
    after_entry INTEGER NOT NULL, PRIMARY KEY (device, stream, class, period_us)) WITHOUT ROWID;
"""
KIND = DatabaseKind(LEDGER, _SCHEMA, LedgerError, wait_seconds=10.0)
_ENTRY = (*Entry._fields, "in_group", "question", "inputs", "inputs_digest")
_SHOWN = "number, name, audience, stream, time_us, mechanism, noise, scale, first, last, reason, state, in_group"
_PAGE = 500


class LedgerRows:
    """The rows of one state of a ledger, table by table."""

    def __init__(self, db: Database) -> None:
        self._db = db

    def accounts(self) -> Rows:
        """Id, device, stream, audience, allowance, base, mechanism, exclusive entry and shifted of each account."""
        columns = "id, device, stream, audience, allowance, base, mechanism, exclusive, shifted"
        return self._db.execute(f"SELECT {columns} FROM intact_accounts")

    def allowances(self) -> Rows:
        """Each change of an allowance, oldest first, with the number of the entry after which it was made.

        Columns: that number, account, allowance, base, mechanism, epsilon, adversary, seconds, period, chains.
        """
        columns = "after_entry, account, allowance, base, mechanism, epsilon, adversary, seconds, period_us, chains"
        return self._db.execute(
            f"SELECT {columns} FROM intact_allowances LEFT JOIN classes ON classes.id=class ORDER BY serial"
        )

    def outlived_classes(self) -> Rows:
        """Device, stream, chains and period of classes that count for ever, and the entry after which they count."""
        columns = "device, stream, chains, period_us, after_entry"
        return self._db.execute(f"SELECT {columns} FROM intact_outlived LEFT JOIN classes ON classes.id=class")

    def group_changes(self) -> Rows:
        """Changes of streams that share charges, oldest first: entry before the change, device, stream, group name."""
        return self._db.execute("SELECT after_entry, device, stream, name FROM intact_together ORDER BY serial")

    def members(self) -> Rows:
        """Group, device, charge and shift of each member of each group."""
        return self._db.execute("SELECT in_group, device, charge, shift FROM intact_members")

    def entries(self) -> Iterator[dict[str, Any]]:
        """The entries, oldest first, as mappings from column to value."""
        query = f"SELECT {', '.join(_ENTRY)} FROM intact_entries WHERE number>? ORDER BY number LIMIT ?"
        last_number = -1
        while page := self._db.execute(query, (last_number, _PAGE)).fetchall():
            last_number = page[-1][0]
            yield from (dict(zip(_ENTRY, row, strict=True)) for row in page)

    def newest_entries(self, audience: str | None, below: int, limit: int) -> list[tuple[Any, ...]]:
        """Up to `limit` entries below number `below`, newest first, of an audience or, with `None`, of all.

        Columns: number, name, audience, stream, time, mechanism, noise, scale, first and last tick, reason, state,
        group.
        """
        condition, parameters = ("", ()) if audience is None else ("audience=? AND ", (audience,))
        query = f"SELECT {_SHOWN} FROM intact_entries WHERE {condition}number<? ORDER BY number DESC LIMIT ?"
        return self._db.execute(query, (*parameters, below, limit)).fetchall()

    def group(self, number: int) -> tuple[int, str, int]:
        """The number of devices of a group, the first of their names, and the largest charge; 0 and '' if unknown."""
        query = "SELECT count(*), coalesce(min(device), ''), coalesce(max(charge), 0) FROM members WHERE in_group=?"
        devices, first_device, charge = self._db.execute(query, (number,)).fetchone()
        return int(devices), str(first_device), int(charge)

    def audiences(self) -> list[str]:
        """The audiences that have an account."""
        return [row[0] for row in self._db.execute("SELECT DISTINCT audience FROM accounts ORDER BY 1")]

    def entry_count(self) -> int:
        """The number of entries."""
        return int(self._db.execute("SELECT count(*) FROM entries").fetchone()[0])

    def payload(self, number: int) -> bytes | None:
        """The payload of an entry; `None` if there is no such entry."""
        row = self._db.execute("SELECT payload FROM intact_entries WHERE number=?", (number,)).fetchone()
        return None if row is None else row[0]

    def forgotten_devices(self) -> Rows:
        """Forgotten devices, each with the number of the newest entry when its sums were erased."""
        return self._db.execute("SELECT device, through FROM intact_forgotten")

    def documents(self) -> Rows:
        """Number, digest and text of each question and noise table."""
        return self._db.execute("SELECT id, digest, document FROM intact_documents")

    def runs(self) -> Rows:
        """Account, first and last tick and charge of each run, in the order of account and tick."""
        return self._db.execute("SELECT account, first, last, charge FROM intact_runs ORDER BY account, first")
