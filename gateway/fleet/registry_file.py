"""The registry's file: its tables, and opening it."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from fugu.host.database import REGISTRY, open_database
from fugu.host.files import damage
from gateway.fleet.entries import RegistryError, checked_name

__all__ = ["BUSY_SECONDS", "open_registry"]

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
