"""Reports of groups until the sum of their window opens, and the sets of homes that were asked for: beside the store.

A part is uniform by itself, and with the helper's masks it is a home's count. So reports are in a file or schema of
their own, which is never copied, and are removed once their window is settled. The file is made with the first report.
Source: docs/proofs/sums.md.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import AbstractContextManager
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import msgpack

from fugu.contract.errors import FuguError
from fugu.contract.group_frames import Report, SealedMasks
from fugu.host.database import REPORTS
from gateway.store.engine import Database, DatabaseKind
from gateway.store.location import Location, part_of
from gateway.store.opening import is_there, open_engine

__all__ = ["Opening", "StoredReport", "SumStore"]


class StoredReport(NamedTuple):
    """The fields of a report that a site needs.

    Attributes:
        version: the version of the home's policy.
        observed: observed ticks, for each part of the day.
        parts: the masked counts.
        sealed: the masks, which only the helper can open.
    """

    version: int
    observed: tuple[int, ...]
    parts: bytes
    sealed: SealedMasks


class Opening(NamedTuple):
    """A window whose set of homes was fixed; `request` is the set's digest."""

    document: bytes
    number: int
    request: bytes


_REPORT = "version, observed, parts, sealed"
_SCHEMA = """
CREATE TABLE reports (
    document BLOB NOT NULL, number INTEGER NOT NULL, device TEXT NOT NULL, version INTEGER NOT NULL,
    observed TEXT NOT NULL, parts BLOB NOT NULL, sealed BLOB NOT NULL, place INTEGER NOT NULL DEFAULT -1,
    PRIMARY KEY (document, number, device)) WITHOUT ROWID;
CREATE TABLE settled (document BLOB PRIMARY KEY, through INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE asked (
    document BLOB NOT NULL, number INTEGER NOT NULL, request BLOB NOT NULL, PRIMARY KEY (document, number))
    WITHOUT ROWID;
"""


_KIND = DatabaseKind(REPORTS, _SCHEMA, FuguError)


class SumStore:
    """Reports and sets of homes, beside a store. Calls that belong together are made within `transaction`."""

    def __init__(self, store: Location) -> None:
        self._location = part_of(store, "reports")

    @cached_property
    def _db(self) -> Database:
        return open_engine(self._location, _KIND)

    @property
    def _is_there(self) -> bool:
        return "_db" in self.__dict__ or is_there(self._location, _KIND)

    def close(self) -> None:
        """Close the database, if it was opened."""
        if "_db" in self.__dict__:
            self._db.close()
            del self._db

    def transaction(self) -> AbstractContextManager[None]:
        """Begin a transaction: all changes become durable, or none. A missing file is created."""
        return self._db.transaction()

    def forget(self, device: str) -> None:
        """Remove all reports of a device; a fixed set that had one of them never gets a sum."""
        if self._is_there:
            self._db.execute("DELETE FROM reports WHERE device=?", (device,))
            self.erase()

    def newest_closed(self, document: bytes) -> int | None:
        """The newest settled window of a group; `None` before the first."""
        if not self._is_there:
            return None
        row = self._db.execute("SELECT through FROM intact_settled WHERE document=?", (document,)).fetchone()
        return None if row is None else int(row[0])

    def settle(self, document: bytes, through: int) -> None:
        """Settle windows up to a number: their reports are late for ever."""
        query = "INSERT INTO settled VALUES (?, ?) ON CONFLICT (document) DO UPDATE SET through=excluded.through "
        self._db.execute(query + "WHERE settled.through<excluded.through", (document, through))

    def add(self, report: Report, device: str) -> str:
        """Store a report. Return `stored`, or `duplicate` or `conflict` if the device has one of the window already."""
        report_key = (report.document, report.number, device)
        sealed = msgpack.packb(report.sealed.row())
        report_row = (report.policy_version, json.dumps(report.observed), report.parts, sealed)
        query = f"SELECT {_REPORT} FROM intact_reports WHERE (document, number, device)=(?, ?, ?)"
        if (stored_row := self._db.execute(query, report_key).fetchone()) is not None:
            is_same = (stored_row[0], stored_row[1], bytes(stored_row[2]), bytes(stored_row[3])) == report_row
            return "duplicate" if is_same else "conflict"
        columns = f"document, number, device, {_REPORT}"
        self._db.execute(f"INSERT INTO reports ({columns}) VALUES (?, ?, ?, ?, ?, ?, ?)", (*report_key, *report_row))
        return "stored"

    def waiting_windows(self, document: bytes, through: int) -> list[int]:
        """The numbers, up to `through`, of a group's windows that have reports and no fixed set."""
        if not self._is_there:
            return []
        rows = self._db.execute(
            "SELECT DISTINCT number FROM intact_reports WHERE document=? AND number<=? AND number NOT IN "
            "(SELECT number FROM asked WHERE document=?) ORDER BY number",
            (document, through, document),
        )
        return [int(number) for (number,) in rows]

    def reports(self, document: bytes, window_number: int) -> list[StoredReport]:
        """All reports of a window, by device."""
        return self._reports("", document, window_number)

    def chosen(self, document: bytes, window_number: int) -> list[StoredReport]:
        """The reports of a window's set, in the order of the set."""
        return self._reports(" AND place>=0", document, window_number)

    def fix(self, request: Opening, devices: Sequence[str]) -> None:
        """Fix the one set of a window: some devices, in this order."""
        rows = [(position, request.document, request.number, device) for position, device in enumerate(devices)]
        self._db.executemany("UPDATE reports SET place=? WHERE (document, number, device)=(?, ?, ?)", rows)
        self._db.execute("INSERT INTO asked VALUES (?, ?, ?)", request)

    def openings(self) -> list[Opening]:
        """The windows whose set is fixed and whose sum is not open yet, oldest first."""
        if not self._is_there:
            return []
        rows = self._db.execute("SELECT document, number, request FROM intact_asked ORDER BY number, document")
        return [Opening(bytes(document), int(number), bytes(request)) for document, number, request in rows]

    def remove(self, document: bytes, window_number: int) -> None:
        """Remove all reports of a window, and its set."""
        for table in ("reports", "asked"):
            self._db.execute(f"DELETE FROM {table} WHERE document=? AND number=?", (document, window_number))

    def erase(self) -> None:
        """Close the file, which ends its log with the removed rows; the next use opens it again."""
        if isinstance(self._location, Path):
            self.close()

    def _reports(self, condition: str, document: bytes, window_number: int) -> list[StoredReport]:
        query = f"SELECT {_REPORT} FROM intact_reports WHERE document=? AND number=?{condition} ORDER BY place, device"
        reports = []
        for version, observed, parts, sealed in self._db.execute(query, (document, window_number)):
            masks = SealedMasks.read(msgpack.unpackb(bytes(sealed)), "report")
            reports.append(StoredReport(version, tuple(json.loads(observed)), bytes(parts), masks))
        return reports
