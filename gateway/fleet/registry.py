"""The fleet registry: its devices, what they should run, what they say they run, and all actions of operators.

One SQLite file per fleet is used by the gateway and the command line at the same time. Every change is one short
transaction, written through to the disk. If the file is locked or full, a `RegistryError` is raised, and nothing was
changed.

- A document's version is a number of the fleet, higher than all before it. A version is never reused: the same bytes
  again are a no-op, other bytes an error. A "rollback" is a new version; `restores` names the one whose content it has.
- The version that a device should have never goes down, because the device would refuse it.
- A document goes only to devices that it is addressed to.
- Answers other than `accepted` (up to a number for each device) and actions of operators are stored for ever.
"""

from __future__ import annotations

import secrets
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from fugu.contract.errors import FuguError
from fugu.contract.frames import KEY_BYTES
from fugu.host.database import REGISTRY, Database, damage, open_database, snapshot, transaction
from gateway.fleet.entries import (
    Document,
    DueDocument,
    Event,
    FleetError,
    PolicyReport,
    Refusal,
    RegistryError,
    Sighting,
    Target,
    check_name,
)

__all__ = ["Device", "Registry", "lock_path"]

_BUSY_SECONDS = 5.0
_FINAL = """
CREATE TRIGGER {table}_stay BEFORE UPDATE ON {table}
    BEGIN SELECT RAISE(ABORT, '{table} are never changed'); END;
CREATE TRIGGER {table}_last BEFORE DELETE ON {table}
    BEGIN SELECT RAISE(ABORT, '{table} are never removed'); END;
"""
_SCHEMA = """
CREATE TABLE fleet (id INTEGER PRIMARY KEY CHECK (id = 1), name TEXT NOT NULL);
CREATE TABLE devices (
    name TEXT PRIMARY KEY, enrolled_us INTEGER NOT NULL, key BLOB NOT NULL, last_seen_us INTEGER NOT NULL DEFAULT 0,
    online INTEGER NOT NULL DEFAULT 0, outbox_depth INTEGER NOT NULL DEFAULT 0, codes TEXT NOT NULL DEFAULT '',
    agent_version TEXT NOT NULL DEFAULT '') WITHOUT ROWID;
CREATE TABLE members (
    device TEXT NOT NULL, in_group TEXT NOT NULL, PRIMARY KEY (device, in_group)) WITHOUT ROWID;
CREATE TABLE documents (
    version INTEGER PRIMARY KEY, kind TEXT NOT NULL, name TEXT NOT NULL, digest TEXT NOT NULL, payload BLOB NOT NULL,
    description TEXT NOT NULL, added_by TEXT NOT NULL, added_us INTEGER NOT NULL, restores INTEGER);
CREATE TABLE desired (
    device TEXT PRIMARY KEY, version INTEGER NOT NULL, since_us INTEGER NOT NULL,
    published INTEGER NOT NULL DEFAULT 0, rollout INTEGER NOT NULL DEFAULT 0) WITHOUT ROWID;
CREATE INDEX unpublished ON desired (since_us, device) WHERE published = 0;
CREATE TABLE sent (
    number INTEGER PRIMARY KEY AUTOINCREMENT, device TEXT NOT NULL, version INTEGER NOT NULL, UNIQUE (device, version));
CREATE TABLE reported (
    device TEXT PRIMARY KEY, in_force INTEGER, version INTEGER NOT NULL, outcome TEXT NOT NULL, reason TEXT NOT NULL,
    since_us INTEGER NOT NULL, stale INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE refusals (
    number INTEGER PRIMARY KEY AUTOINCREMENT, time_us INTEGER NOT NULL, device TEXT NOT NULL,
    version INTEGER NOT NULL, outcome TEXT NOT NULL, reason TEXT NOT NULL);
CREATE INDEX refused ON refusals (device, version);
CREATE TABLE history (
    number INTEGER PRIMARY KEY AUTOINCREMENT, time_us INTEGER NOT NULL, who TEXT NOT NULL, what TEXT NOT NULL,
    subject TEXT NOT NULL, detail TEXT NOT NULL);
CREATE TABLE rollouts (
    number INTEGER PRIMARY KEY AUTOINCREMENT, plan TEXT NOT NULL, phase TEXT NOT NULL, stage INTEGER NOT NULL,
    approved INTEGER NOT NULL, clock_us INTEGER NOT NULL, seen_us INTEGER NOT NULL, slot_us INTEGER NOT NULL,
    cause TEXT NOT NULL, created_us INTEGER NOT NULL, ended_us INTEGER);
CREATE INDEX active ON rollouts (number) WHERE phase IN ('running', 'waiting', 'paused');
CREATE TABLE rollout_devices (
    rollout INTEGER NOT NULL, device TEXT NOT NULL, stage INTEGER NOT NULL, place INTEGER NOT NULL, at_us INTEGER,
    time_us INTEGER, former INTEGER, reached_us INTEGER, PRIMARY KEY (rollout, device)) WITHOUT ROWID;
""" + "".join(_FINAL.format(table=table) for table in ("documents", "refusals", "history"))
MOST_REFUSALS = 1000
"""Most stored refusals of one device, which must not fill the gateway's disk."""
_COLUMNS = (
    "name, (SELECT group_concat(in_group) FROM members WHERE device=name), last_seen_us, online, "
    "outbox_depth, codes, agent_version, w.version, w.since_us, w.published, "
    "r.device, r.version, r.outcome, r.reason, r.since_us, r.stale, r.in_force"
)
_DEVICES = f"SELECT {_COLUMNS} FROM devices LEFT JOIN desired w ON w.device=name "
_DEVICES += "LEFT JOIN reported r ON r.device=name"
_DOCUMENT = "version, kind, name, digest, payload, description, added_by, added_us, restores"


class DesiredVersion(NamedTuple):
    """The version that a device should have, its time, and whether the broker has acknowledged it."""

    version: int
    since_us: int
    published: bool


@dataclass(frozen=True, slots=True)
class Device:
    """A device, with all that the registry has about it.

    `last_seen_us` is the last time when it was connected, 0 if never; `codes` are those of its newest status, separated
    by spaces. `reported` is its newest answer, with the time when this answer first came, and the last version that the
    device has called in force.
    """

    name: str
    groups: frozenset[str]
    last_seen_us: int
    online: bool
    outbox_depth: int
    codes: str
    agent_version: str
    desired: DesiredVersion | None
    reported: PolicyReport | None


def lock_path(path: Path) -> Path:
    """Return the file that a gateway locks while it sends a registry's documents."""
    return path.with_name(f"{path.name}.gateway")


class Registry:
    """An open registry; one thread uses it at a time, several processes may have it open.

    Its file holds the keys of devices, and only its owner can ever read it. With `fleet` a missing file is created;
    without, it must exist. Raises RegistryError if it cannot be opened, is no registry or another fleet's, or was
    written by another version. Raises FuguError if the fleet's name is invalid.

    Attributes:
        db: a connection in autocommit mode; each commit is on the disk.
        fleet: the fleet's name.
    """

    def __init__(self, path: Path, *, fleet: str | None = None, busy_seconds: float = _BUSY_SECONDS) -> None:
        insert_fleet = "" if fleet is None else f"INSERT INTO fleet VALUES (1, '{check_name(fleet, 'fleet')}');"
        schema = _SCHEMA + insert_fleet  # a checked name holds no quote
        create = fleet is not None
        self.db = open_database(path, REGISTRY, schema, RegistryError, create=create, wait_seconds=busy_seconds)
        try:
            if problem := damage(self.db):
                raise RegistryError(f"the fleet registry {path.name} is damaged ({problem}): {REGISTRY.remedy}")
            self.fleet = str(self.db.execute("SELECT name FROM fleet").fetchone()[0])
            if fleet not in (None, self.fleet):
                raise RegistryError(f"{path.name} is the registry of fleet {self.fleet}, not of {fleet}")
        except sqlite3.Error as error:
            self.db.close()
            raise RegistryError(f"cannot open the fleet registry {path.name}: {error}") from None
        except BaseException:
            self.db.close()
            raise

    def close(self) -> None:
        """Close the file."""
        self.db.close()

    def transaction(self) -> AbstractContextManager[None]:
        """Make all changes of the block durable, or none; nested, as part of the outer. Raises RegistryError."""
        return self._translate_errors(transaction, "does not take the change, nothing was done")

    def snapshot(self) -> AbstractContextManager[None]:
        """Let all reads of the block see one state, without blocking writers. RegistryError if it cannot be read."""
        return self._translate_errors(snapshot, "cannot be read")

    @contextmanager
    def _translate_errors(
        self, context: Callable[[Database], AbstractContextManager[None]], problem: str
    ) -> Iterator[None]:
        """Run a block in a context of the database, with its errors as RegistryError."""
        if self.db.in_transaction:
            yield
            return
        try:
            with context(self.db):
                yield
        except (sqlite3.Error, OverflowError) as error:
            raise RegistryError(f"the fleet registry {problem}: {error}") from None

    # Devices

    def enrol(self, device: str, groups: Iterable[str] = (), *, actor: str, time_us: int) -> bytes:
        """Add a device, and return its new key. FuguError for an invalid name, or one that is taken."""
        group_names = _group_names(groups)
        with self.transaction():
            if self.db.execute("SELECT 1 FROM devices WHERE name=?", (check_name(device, "device"),)).fetchone():
                raise FuguError(f"device {device} is enrolled already")
            key = secrets.token_bytes(KEY_BYTES)
            self.db.execute("INSERT INTO devices (name, enrolled_us, key) VALUES (?, ?, ?)", (device, time_us, key))
            self._put_groups(device, group_names)
            self.record(actor, "enrol", device, " ".join(group_names), time_us=time_us)
        return key

    def remove(self, device: str, *, actor: str, time_us: int) -> None:
        """Remove a device; its refusals and the history stay. Raises FuguError if there is no such device."""
        with self.transaction():
            self.device(device)
            for table in ("members", "desired", "reported"):
                self.db.execute(f"DELETE FROM {table} WHERE device=?", (device,))
            self.db.execute("DELETE FROM devices WHERE name=?", (device,))
            query = "UPDATE rollout_devices SET at_us=NULL, time_us=NULL, former=NULL, reached_us=NULL WHERE device=?"
            self.db.execute(query, (device,))  # a device that is enrolled again gets its offers again
            self.record(actor, "remove", device, time_us=time_us)

    def set_groups(self, device: str, groups: Iterable[str], *, actor: str, time_us: int) -> None:
        """Put a device into these groups and no others. FuguError for an unknown device, or an invalid name."""
        group_names = _group_names(groups)
        with self.transaction():
            self.device(device)
            self._put_groups(device, group_names)
            self.record(actor, "groups", device, " ".join(group_names), time_us=time_us)

    def device(self, name: str) -> Device:
        """Return a device. Raises FuguError if there is none of this name."""
        if devices := self._select_devices("WHERE name=?", name):
            return devices[0]
        raise FuguError(f"there is no device {name[:80]!r} in fleet {self.fleet}")

    def devices(self, group: str | None = None) -> list[Device]:
        """Return all devices, or those of a group, by name."""
        if group is None:
            return self._select_devices("ORDER BY name")
        return self._select_devices("WHERE name IN (SELECT device FROM members WHERE in_group=?) ORDER BY name", group)

    def keys(self) -> dict[str, bytes]:
        """Return by device the key that authenticates its watermarks."""
        return dict(self._select("SELECT name, key FROM intact_devices"))

    def groups(self) -> dict[str, int]:
        """Return by group the number of its devices."""
        return dict(self._select("SELECT in_group, COUNT(*) FROM members GROUP BY in_group ORDER BY in_group"))

    # What devices say

    def note_sightings(self, sightings: Iterable[Sighting]) -> int:
        """Store statuses in one transaction, except those of devices that are not enrolled, whose number is returned.

        Only a device's first last will sets `last_seen_us`: the broker repeats it for ever.
        """
        stranger_count = 0
        with self.transaction():
            for sighting in sightings:
                cursor = self.db.execute(
                    "UPDATE devices SET last_seen_us=CASE WHEN :online OR online THEN max(last_seen_us, :time_us) "
                    "ELSE last_seen_us END, online=:online, outbox_depth=:outbox_depth, "
                    "codes=:codes, agent_version=:agent_version WHERE name=:device",
                    sighting._asdict(),
                )
                stranger_count += not cursor.rowcount
        return stranger_count

    def note_reports(self, reports: Iterable[PolicyReport]) -> int:
        """Store answers in one transaction; repeated ones change nothing. Return the number of strangers' answers."""
        stranger_count = 0
        with self.transaction():
            for report in reports:
                if not self.db.execute("SELECT 1 FROM devices WHERE name=?", (report.device,)).fetchone():
                    stranger_count += 1
                    continue
                self._put_report(report)
        return stranger_count

    def refusals(self, last_number: int = 0, limit: int = 1000) -> list[Refusal]:
        """Return up to `limit` answers other than `accepted` after a number, oldest first."""
        query = "SELECT number, time_us, device, version, outcome, reason FROM refusals WHERE number>? "
        query += "ORDER BY number LIMIT ?"
        return list(map(Refusal._make, self._select(query, last_number, limit)))

    # Documents

    def add_document(self, document: Document, *, actor: str, time_us: int) -> None:
        """Store a signed document, except its `added_by` and `added_us`; the same bytes again are a no-op.

        Raises FleetError if its version is not higher than all others. Raises FuguError if the document that it
        restores is missing.
        """
        with self.transaction():
            query = "SELECT digest, payload FROM intact_documents WHERE version=?"
            row = self.db.execute(query, (document.version,)).fetchone()
            if row == (document.digest, document.payload):
                return
            if row or document.version < (newest_version := self.newest_version()):
                reason = "it is taken by another document" if row else f"version {newest_version} is there already"
                raise FleetError(f"version {document.version} is refused: {reason}")
            if document.restores is not None:
                self.document(document.restores)
            columns = (document.version, *document.target, document.digest, document.payload, document.description)
            query = f"INSERT INTO documents ({_DOCUMENT}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
            self.db.execute(query, (*columns, actor, time_us, document.restores))
            detail = f"for {document.target}, digest {document.digest}"
            if document.restores is not None:
                detail += f", restores {document.restores}"
            self.record(actor, "document", str(document.version), detail, time_us=time_us)

    def document(self, version: int) -> Document:
        """Return a document. Raises FuguError if there is none of this version."""
        if documents := self._select(f"SELECT {_DOCUMENT} FROM intact_documents WHERE version=?", version):
            return _document_of(documents[0])
        raise FuguError(f"there is no document of version {version} in fleet {self.fleet}")

    def documents(self, after: int = 0) -> list[Document]:
        """Return all documents above a version, oldest first."""
        query = f"SELECT {_DOCUMENT} FROM intact_documents WHERE version>? ORDER BY version"
        return list(map(_document_of, self._select(query, after)))

    def newest_version(self) -> int:
        """Return the highest version of all documents, 0 if there is none."""
        [(version,)] = self._select("SELECT COALESCE(MAX(version), 0) FROM documents")
        return int(version)

    # What devices should have

    def desire(self, devices: Iterable[str], version: int, *, actor: str, time_us: int) -> None:
        """Let devices have a document at once, without a rollout; a no-op for devices that have the document.

        Raises FuguError if there is no such document, or a device is not enrolled. Raises FleetError if the document
        does not address a device, or a device should have a newer version already.
        """
        with self.transaction():
            document, device_names = self.document(version), sorted(set(devices))
            for device_name in device_names:
                device = self.device(device_name)
                if not document.target.covers(device_name, device.groups):
                    raise FleetError(f"document {version} is for {document.target}, not for device {device_name}")
                if device.desired is not None and device.desired.version > version:
                    raise FleetError(
                        f"device {device_name} should have version {device.desired.version} already: the way back to "
                        f"the content of {version} is a new version"
                    )
                self.raise_desired(device_name, version, time_us)
            self.record(actor, "push", str(version), " ".join(device_names), time_us=time_us)

    def raise_desired(self, device: str, version: int, time_us: int, rollout: int = 0) -> None:
        """Raise the version that a device should have, as part of a transaction; `rollout` is 0 for a push."""
        self.db.execute(
            "INSERT INTO desired (device, version, since_us, rollout) VALUES (?, ?, ?, ?) ON CONFLICT DO UPDATE SET "
            "since_us=CASE WHEN version<excluded.version THEN excluded.since_us ELSE since_us END, "
            "published=published AND version=excluded.version, version=excluded.version, rollout=excluded.rollout "
            "WHERE version<=excluded.version",
            (device, version, time_us, rollout),
        )

    def unpublished(self, limit: int) -> list[DueDocument]:
        """Return up to `limit` documents that the broker has not acknowledged, the longest waiting first.

        Documents of a paused, stopped or aborted rollout are held back, unless they are pushed.
        """
        query = (
            "SELECT device, w.version, payload FROM intact_documents d "
            "JOIN desired w ON d.version=w.version LEFT JOIN rollouts ON number=rollout "
            "WHERE published=0 AND COALESCE(phase, '') NOT IN "
            "('paused', 'stopped', 'aborted') ORDER BY since_us, device LIMIT ?"
        )
        return list(map(DueDocument._make, self._select(query, limit)))

    def note_sent(self, documents: Iterable[tuple[str, int]]) -> None:
        """Note that devices may have documents (device, version) from now on."""
        with self.transaction():
            query = "INSERT INTO sent (device, version) VALUES (?, ?) ON CONFLICT DO NOTHING"
            self.db.executemany(query, documents)

    def sent_documents(self, last_number: int = 0) -> list[tuple[int, str, int]]:
        """Return number, device and version of the sent documents after `last_number`."""
        return self._select("SELECT number, device, version FROM sent WHERE number>? ORDER BY number", last_number)

    def note_published(self, documents: Iterable[tuple[str, int]]) -> None:
        """Note that the broker has these documents (device, version); newer desired documents stay unpublished."""
        with self.transaction():
            query = "UPDATE desired SET published=1 WHERE device=? AND version=? AND NOT published"
            self.db.executemany(query, documents)

    def publish_again(self, versions: Mapping[str, int]) -> int:
        """Mark documents newer than the broker's `versions` by device as unpublished. Return their number."""
        with self.transaction():
            rows = self.db.execute("SELECT device, version FROM desired WHERE published").fetchall()
            documents = [(device, version) for device, version in rows if versions.get(device, 0) < version]
            self.db.executemany("UPDATE desired SET published=0 WHERE device=? AND version=?", documents)
        return len(documents)

    # History

    def record(self, actor: str, action: str, subject: str, detail: str = "", *, time_us: int) -> None:
        """Add an event to the history."""
        with self.transaction():
            query = "INSERT INTO history (time_us, who, what, subject, detail) VALUES (?, ?, ?, ?, ?)"
            self.db.execute(query, (time_us, actor, action, subject, detail))

    def history(self, last_number: int = 0, limit: int = 1000) -> list[Event]:
        """Return up to `limit` events after a number, oldest first."""
        query = "SELECT number, time_us, who, what, subject, detail FROM history WHERE number>? ORDER BY number LIMIT ?"
        return list(map(Event._make, self._select(query, last_number, limit)))

    # Inside

    def _put_report(self, report: PolicyReport) -> None:
        """Store an answer, and a new refusal for ever, unless MOST_REFUSALS are stored; as part of a transaction."""
        query = "SELECT version, outcome, reason FROM reported WHERE device=?"
        old_report = self.db.execute(query, (report.device,)).fetchone()
        is_accepted, is_new = report.outcome == "accepted", old_report != report[1:4]
        in_force = report.version if is_accepted else report.in_force
        self.db.execute(
            "INSERT INTO reported VALUES (:device, :in_force, :version, :outcome, :reason, :time_us, :stale) "
            "ON CONFLICT DO UPDATE SET in_force=COALESCE(:in_force, in_force), version=:version, outcome=:outcome, "
            "reason=:reason, stale=:stale, since_us=CASE WHEN :new THEN :time_us ELSE since_us END",
            report._asdict() | {"in_force": in_force, "new": is_new},
        )
        if is_accepted or not is_new:
            return
        (refusal_count,) = self.db.execute("SELECT COUNT(*) FROM refusals WHERE device=?", (report.device,)).fetchone()
        if refusal_count < MOST_REFUSALS:
            query = "INSERT INTO refusals (time_us, device, version, outcome, reason) VALUES (?, ?, ?, ?, ?)"
            self.db.execute(query, (report.time_us, *report[:4]))

    def _put_groups(self, device: str, groups: list[str]) -> None:
        self.db.execute("DELETE FROM members WHERE device=?", (device,))
        self.db.executemany("INSERT INTO members VALUES (?, ?)", [(device, group) for group in groups])

    def _select_devices(self, condition: str, *parameters: object) -> list[Device]:
        return [_device_of(row) for row in self._select(f"{_DEVICES} {condition}", *parameters)]

    def _select(self, query: str, *parameters: object) -> list[Any]:
        with self.snapshot():
            return self.db.execute(query, parameters).fetchall()


def _group_names(groups: Iterable[str]) -> list[str]:
    return sorted({check_name(group, "group") for group in groups})


def _document_of(document_row: Any) -> Document:
    version, kind, name, *columns = document_row
    return Document(version, Target(kind, name), *columns)


def _device_of(device_row: Any) -> Device:
    name, groups, last_seen_us, online, outbox_depth, codes, agent_version = device_row[:7]
    version, since_us, published = device_row[7:10]
    report = PolicyReport._make(device_row[10:])
    return Device(
        *(name, frozenset(groups.split(",") if groups else ()), last_seen_us, bool(online)),
        *(outbox_depth, codes, agent_version),
        None if version is None else DesiredVersion(version, since_us, bool(published)),
        None if report.device is None else report._replace(stale=bool(report.stale)),
    )
