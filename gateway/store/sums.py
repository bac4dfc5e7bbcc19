"""The part of the store that holds reports of groups until the sum of their window opens, and the sets that were asked.

A part is uniform by itself, and with the helper's masks it is a home's count: reports are removed once their window is
settled, and are in no export. Source: docs/proofs/sums.md.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import NamedTuple

import msgpack

from fugu.contract.group_frames import Report, SealedMasks
from gateway.store.engine import Database

__all__ = ["Asked", "StoredReport", "SumStore"]


class StoredReport(NamedTuple):
    """The part of a report that a site needs: observed ticks and parts, for each number, and what the helper opens."""

    version: int
    observed: tuple[int, ...]
    parts: bytes
    sealed: SealedMasks


class Asked(NamedTuple):
    """A window whose one set was fixed; `request` is the set's digest."""

    document: bytes
    number: int
    request: bytes


_PLACED = 0
_REPORT = "version, observed, parts, sealed"


class SumStore:
    """Reports and sets; used within the store's transactions."""

    schema = """
CREATE TABLE reports (
    document BLOB NOT NULL, number INTEGER NOT NULL, device TEXT NOT NULL, version INTEGER NOT NULL,
    observed TEXT NOT NULL, parts BLOB NOT NULL, sealed BLOB NOT NULL, place INTEGER NOT NULL DEFAULT -1,
    PRIMARY KEY (document, number, device)) WITHOUT ROWID;
CREATE TABLE settled (document BLOB PRIMARY KEY, through INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE asked (
    document BLOB NOT NULL, number INTEGER NOT NULL, request BLOB NOT NULL, PRIMARY KEY (document, number))
    WITHOUT ROWID;
"""

    def __init__(self, database: Database) -> None:
        self._db = database

    def through(self, document: bytes) -> int | None:
        """The newest window whose set is settled; `None` before the first."""
        row = self._db.execute("SELECT through FROM intact_settled WHERE document=?", (document,)).fetchone()
        return None if row is None else int(row[0])

    def settle(self, document: bytes, through: int) -> None:
        """Let reports of windows up to one be late for ever."""
        query = "INSERT INTO settled VALUES (?, ?) ON CONFLICT (document) DO UPDATE SET through=excluded.through "
        self._db.execute(query + "WHERE settled.through<excluded.through", (document, through))

    def add(self, report: Report, device: str) -> str:
        """Keep a report: `stored`, or `duplicate` or `conflict` if there is one of this window already."""
        key = (report.document, report.number, device)
        sealed = msgpack.packb(report.sealed.row())
        row = (report.policy_version, json.dumps(report.observed), report.parts, sealed)
        query = f"SELECT {_REPORT} FROM intact_reports WHERE (document, number, device)=(?, ?, ?)"
        if (found := self._db.execute(query, key).fetchone()) is not None:
            same = (found[0], found[1], bytes(found[2]), bytes(found[3])) == row
            return "duplicate" if same else "conflict"
        columns = f"document, number, device, {_REPORT}"
        self._db.execute(f"INSERT INTO reports ({columns}) VALUES (?, ?, ?, ?, ?, ?, ?)", (*key, *row))
        return "stored"

    def waiting(self, document: bytes, through: int) -> list[int]:
        """The windows up to one that have reports, and whose set is not fixed."""
        rows = self._db.execute(
            "SELECT DISTINCT number FROM intact_reports WHERE document=? AND number<=? AND number NOT IN "
            "(SELECT number FROM asked WHERE document=?) ORDER BY number",
            (document, through, document),
        )
        return [int(number) for (number,) in rows]

    def reports(self, document: bytes, number: int) -> list[StoredReport]:
        """All reports of a window, by device."""
        return self._reports("", document, number)

    def chosen(self, document: bytes, number: int) -> list[StoredReport]:
        """The set of a window, in its order."""
        return self._reports(f" AND place>={_PLACED}", document, number)

    def fix(self, asked: Asked, devices: Sequence[str]) -> None:
        """Fix a window's one set, in its order."""
        places = [(place, asked.document, asked.number, device) for place, device in enumerate(devices)]
        self._db.executemany("UPDATE reports SET place=? WHERE (document, number, device)=(?, ?, ?)", places)
        self._db.execute("INSERT INTO asked VALUES (?, ?, ?)", asked)

    def asked(self) -> list[Asked]:
        """The windows whose set was asked for and is not open, oldest first."""
        rows = self._db.execute("SELECT document, number, request FROM intact_asked ORDER BY number, document")
        return [Asked(bytes(document), int(number), bytes(request)) for document, number, request in rows]

    def remove(self, document: bytes, number: int) -> None:
        """Remove all reports of a window, and its set."""
        for table in ("reports", "asked"):
            self._db.execute(f"DELETE FROM {table} WHERE document=? AND number=?", (document, number))

    def _reports(self, where: str, document: bytes, number: int) -> list[StoredReport]:
        query = f"SELECT {_REPORT} FROM intact_reports WHERE document=? AND number=?{where} ORDER BY place, device"
        return [
            StoredReport(
                version,
                tuple(json.loads(observed)),
                bytes(parts),
                SealedMasks.read(msgpack.unpackb(bytes(sealed)), "report"),
            )
            for version, observed, parts, sealed in self._db.execute(query, (document, number))
        ]


def _sealed(row: bytes) -> SealedMasks:
    return SealedMasks.read(msgpack.unpackb(row), "report")
