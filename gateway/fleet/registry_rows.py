"""The registry's rows: read as values, and the row of what a device said."""

from __future__ import annotations

import sqlite3
from typing import Any

from gateway.fleet.entries import Desired, Device, Document, PolicyReport, Reported, Target

__all__ = ["DEVICES", "DOCUMENT", "MOST_REFUSALS", "device_of", "document_of", "put_report"]

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
    query = "SELECT version, outcome, reason FROM reported WHERE device=?"
    known = db.execute(query, (one.device,)).fetchone()
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
    (kept,) = db.execute("SELECT COUNT(*) FROM refusals WHERE device=?", (one.device,)).fetchone()
    if kept < MOST_REFUSALS:
        db.execute(
            "INSERT INTO refusals (time_us, device, version, outcome, reason) VALUES (?, ?, ?, ?, ?)",
            (one.time_us, *one[:4]),
        )
