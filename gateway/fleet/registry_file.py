"""The registry's file: its tables, opening it, transactions whose failure is one clear error, and its rows."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from fugu.host.database import REGISTRY, open_database, snapshot, transaction
from fugu.host.files import damage
from gateway.fleet.entries import (
    Desired,
    Device,
    Document,
    PolicyReport,
    RegistryError,
    Reported,
    RolloutPlan,
    Target,
    checked_name,
)
from gateway.fleet.rollout import Offer, Report, StageCounts, State

__all__ = [
    "BUSY_SECONDS",
    "DEVICES",
    "DOCUMENT",
    "Rollout",
    "RolloutRows",
    "device_of",
    "document_of",
    "open_registry",
    "put_report",
    "reading",
    "writing",
]

BUSY_SECONDS = 5.0
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


def open_registry(path: Path, fleet: str | None, busy_seconds: float = BUSY_SECONDS) -> tuple[sqlite3.Connection, str]:
    """Open a registry's file; it holds the keys of devices, and is readable by its owner only from its creation.

    It is made for `fleet` if it is not there; `None`: it must be there. Returns a connection in autocommit mode (what
    is committed is on the disk), and the name of the fleet. Raises RegistryError if it cannot be opened, is no registry
    or another fleet's, or is of another version; UnknownNameError if the fleet's name is none.
    """
    first = "" if fleet is None else f"INSERT INTO fleet VALUES (1, '{checked_name(fleet, 'fleet')}');"
    schema = _SCHEMA + first  # a checked name holds no quote
    db = open_database(path, REGISTRY, schema, RegistryError, create=fleet is not None, wait_seconds=busy_seconds)
    try:
        if problem := damage(db):
            raise RegistryError(f"the fleet registry {path.name} is damaged ({problem}): {REGISTRY.remedy}")
        (found,) = db.execute("SELECT name FROM fleet").fetchone()
        if fleet is not None and found != fleet:
            raise RegistryError(f"{path.name} is the registry of fleet {found}, not of {fleet}")
    except sqlite3.Error as error:
        db.close()
        raise RegistryError(f"cannot open the fleet registry {path.name}: {error}") from None
    except BaseException:
        db.close()
        raise
    return db, str(found)


def writing(db: sqlite3.Connection) -> AbstractContextManager[None]:
    """All becomes durable, or nothing; nested, it is part of the outer.

    RegistryError if the disk is full or file locked.
    """
    return _translated(db, transaction, "does not take the change, nothing was done")


def reading(db: sqlite3.Connection) -> AbstractContextManager[None]:
    """Reads see one state of the registry, and hold nobody up. Raises RegistryError if the file cannot be read."""
    return _translated(db, snapshot, "cannot be read")


@contextmanager
def _translated(
    db: sqlite3.Connection, kind: Callable[[sqlite3.Connection], AbstractContextManager[None]], what: str
) -> Iterator[None]:
    if db.in_transaction:
        yield
        return
    try:
        with kind(db):
            yield
    except (sqlite3.Error, OverflowError) as error:
        raise RegistryError(f"the fleet registry {what}: {error}") from None


MOST_REFUSALS = 1000
"""Kept of one device: what a device says must not fill the gateway's disk."""
_DEVICE = (
    "name, (SELECT group_concat(in_group) FROM members WHERE device=name), enrolled_us, last_seen_us, online, "
    "outbox_depth, codes, agent_version, w.version, w.since_us, w.published, "
    "r.in_force, r.version, r.outcome, r.reason, r.since_us, r.stale"
)
DEVICES = f"SELECT {_DEVICE} FROM devices LEFT JOIN desired w ON w.device=name LEFT JOIN reported r ON r.device=name"
DOCUMENT = "version, kind, name, digest, payload, description, added_by, added_us, restores"


def document_of(row: Any) -> Document:
    """A row of `DOCUMENT`."""
    version, kind, name, *rest = row
    return Document(version, Target(kind, name), *rest)


def device_of(row: Any) -> Device:
    """A row of `DEVICES`."""
    name, groups, enrolled, last_seen, online, depth, error, agent = row[:8]
    version, since, published = row[8:11]
    in_force, answered, outcome, reason, answered_us, stale = row[11:17]
    return Device(
        *(name, frozenset(groups.split(",") if groups else ()), enrolled, last_seen, bool(online)),
        *(depth, error, agent),
        None if version is None else Desired(version, since, bool(published)),
        None if outcome is None else Reported(in_force, answered, outcome, reason, answered_us, bool(stale)),
    )


def put_report(db: sqlite3.Connection, one: PolicyReport) -> None:
    """Write down an answer, and a new refusal for ever, as part of a transaction."""
    known = db.execute("SELECT version, outcome, reason FROM reported WHERE device=?", (one.device,)).fetchone()
    in_force = one.version if one.outcome == "accepted" else one.in_force
    db.execute(
        "INSERT INTO reported VALUES (:device, :in_force, :version, :outcome, :reason, :time, :stale) "
        "ON CONFLICT DO UPDATE SET in_force=COALESCE(:in_force, in_force), version=:version, outcome=:outcome, "
        "reason=:reason, stale=:stale, since_us=CASE WHEN :new THEN :time ELSE since_us END",
        {
            **{"device": one.device, "in_force": in_force, "version": one.version, "outcome": one.outcome},
            **{"reason": one.reason, "time": one.time_us, "stale": one.stale, "new": known != one[1:4]},
        },
    )
    if one.outcome == "accepted" or known == one[1:4]:
        return
    (stored,) = db.execute("SELECT COUNT(*) FROM refusals WHERE device=?", (one.device,)).fetchone()
    if stored < MOST_REFUSALS:
        db.execute(
            "INSERT INTO refusals (time_us, device, version, outcome, reason) VALUES (?, ?, ?, ?, ?)",
            (one.time_us, *one[:4]),
        )


_STATE = "phase, stage, approved, clock_us, seen_us, slot_us, cause"
_UNDER_WAY = "phase IN ('running', 'waiting', 'paused')"  # in the words of the index of those rollouts
_REPORTS = """
SELECT m.device, d.online, d.last_seen_us, w.version, r.in_force, r.version, r.outcome,
    (SELECT outcome FROM refusals f WHERE f.device=m.device AND f.version=:version
        AND f.time_us>=d.enrolled_us ORDER BY number DESC LIMIT 1)
FROM rollout_devices m JOIN devices d ON d.name=m.device LEFT JOIN desired w ON w.device=m.device
LEFT JOIN reported r ON r.device=m.device WHERE m.rollout=:rollout
"""


class Rollout(NamedTuple):
    """A rollout; `ended_us` is when it was completed, stopped or aborted, `tallies` how its stages stand, if asked."""

    plan: RolloutPlan
    state: State
    created_us: int
    ended_us: int | None
    tallies: tuple[StageCounts, ...] = ()


class RolloutRows:
    """The rollouts of a registry, as rows."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    def numbers(self, *, under_way: bool = False) -> list[int]:
        """Numbers of all rollouts, or of those that are under way."""
        where = f"WHERE {_UNDER_WAY}" if under_way else ""
        return [row[0] for row in self._db.execute(f"SELECT number FROM rollouts {where} ORDER BY number")]

    def add(self, plan: RolloutPlan, time_us: int) -> int:
        """Keep a plan; the number of its rollout."""
        query = f"INSERT INTO rollouts (plan, {_STATE}, created_us) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
        return int(self._db.execute(query, (plan.to_json(), *_row(State()), time_us)).lastrowid or 0)

    def choose(self, number: int, stages: Iterable[Iterable[str]]) -> None:
        """Keep the devices of each stage, in their order."""
        rows = [(number, name, stage, place) for stage, names in enumerate(stages) for place, name in enumerate(names)]
        self._db.executemany("INSERT INTO rollout_devices (rollout, device, stage, place) VALUES (?, ?, ?, ?)", rows)

    def in_the_way(self, number: int) -> tuple[int, int] | None:
        """Another rollout that is under way at devices of this one, and at how many of them."""
        row: tuple[int, int] | None = self._db.execute(
            f"SELECT rollout, COUNT(*) FROM rollout_devices JOIN rollouts ON rollout=number WHERE {_UNDER_WAY} "
            "AND device IN (SELECT device FROM rollout_devices WHERE rollout=:number) GROUP BY rollout",
            {"number": number},
        ).fetchone()
        return row

    def load(self, number: int) -> Rollout | None:
        """A rollout, `None` if there is none of this number."""
        query = f"SELECT plan, created_us, ended_us, {_STATE} FROM rollouts WHERE number=?"
        if (row := self._db.execute(query, (number,)).fetchone()) is None:
            return None
        text, created, ended, phase, stage, approved, clock, seen, slot, cause = row
        members: dict[int, list[str]] = {}
        offers: dict[str, Offer] = {}
        query = (
            "SELECT stage, device, at_us, time_us, former, reached_us FROM rollout_devices WHERE rollout=? "
            "ORDER BY stage, place"
        )
        for place, device, *offer in self._db.execute(query, (number,)):
            members.setdefault(place, []).append(device)
            if offer[0] is not None:
                offers[device] = Offer(*offer)
        plan = RolloutPlan.from_json(text)
        stages = tuple(tuple(members.get(i, ())) for i in range(len(plan.stages))) if members else ()
        return Rollout(plan, State(phase, stages, stage, approved, clock, seen, slot, offers, cause), created, ended)

    def save(self, number: int, before: State, after: State, ended_us: int | None) -> None:
        """Write what is different."""
        columns = ", ".join(f"{column}=?" for column in _STATE.split(", "))
        query = f"UPDATE rollouts SET {columns}, ended_us=? WHERE number=?"
        self._db.execute(query, (*_row(after), ended_us, number))
        changed = [(*offer, number, name) for name, offer in after.offers.items() if before.offers.get(name) != offer]
        query = "UPDATE rollout_devices SET at_us=?, time_us=?, former=?, reached_us=? WHERE rollout=? AND device=?"
        self._db.executemany(query, changed)

    def reports(self, number: int, version: int) -> Mapping[str, Report]:
        """Reports of the devices of a rollout about a version."""
        found = {}
        rows = self._db.execute(_REPORTS, {"rollout": number, "version": version})
        for device, online, last_seen, desired, in_force, latest, outcome, refused in rows:
            # failure after acceptance counts, a refusal before it does not
            answer: Any = (outcome if latest == version else refused) or ""
            answer = "accepted" if in_force == version and answer != "failed" else answer
            newest = max(desired or 0, in_force or 0)
            found[device] = Report(bool(online), last_seen, answer, in_force or desired, newest)
        return found


def _row(state: State) -> tuple[object, ...]:
    return (state.phase, state.stage, state.approved, state.clock_us, state.seen_us, state.slot_us, state.cause)
