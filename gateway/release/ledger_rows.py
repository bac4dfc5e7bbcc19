"""A ledger's rows as they stand in its file, for an audit that believes none of them."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from typing import Any

__all__ = ["LedgerRows"]

_Rows = Iterator[tuple[Any, ...]]


class LedgerRows:
    """The rows of one state of a ledger, table by table.

    Args:
        db: the ledger's file.
    """

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    def accounts(self) -> _Rows:
        """Number, device, stream, audience, allowance, base and exclusive entry of each account."""
        return self._db.execute("SELECT id, device, stream, audience, allowance, base, exclusive FROM accounts")

    def allowances(self) -> _Rows:
        """The entry after which it was given, account, allowance and base of each allowance, oldest first."""
        return self._db.execute("SELECT after_entry, account, allowance, base FROM allowances ORDER BY serial")

    def members(self) -> _Rows:
        """Group, device and charge of each member of a group."""
        return self._db.execute("SELECT in_group, device, charge FROM members")

    def entries(self) -> _Rows:
        """Number, name, audience, stream, ticks, exclusive, reason, payload, group and topic of each, oldest first."""
        columns = "number, name, audience, stream, first, last, exclusive, reason, payload, in_group, topic"
        return self._db.execute(f"SELECT {columns} FROM entries ORDER BY number")

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
