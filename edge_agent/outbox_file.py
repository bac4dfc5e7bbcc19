"""The file of an outbox: whose it is, and which streams and windows it knows."""

from __future__ import annotations

import secrets
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from edge_agent.binding import BINDING_SCHEMA
from edge_agent.open_frame import OpenFrame
from edge_agent.plan import StreamPlan, WindowPlan
from edge_agent.stored_frames import FRAMES_SCHEMA
from fugu.contract.errors import FuguError, Reason
from fugu.host.database import OUTBOX, open_database, transaction

__all__ = ["OutboxError", "forgetting_what_is_new", "known_stream", "known_window", "open_outbox"]

_SCHEMA = f"""
    CREATE TABLE device (fleet TEXT NOT NULL, device TEXT NOT NULL, salt BLOB NOT NULL, counter TEXT NOT NULL,
        watermark_key BLOB NOT NULL);
    CREATE TABLE streams (
        stream TEXT PRIMARY KEY, epoch_us INTEGER NOT NULL, period_us INTEGER NOT NULL,
        reserved INTEGER NOT NULL, last_framed INTEGER NOT NULL,
        shift INTEGER NOT NULL, since INTEGER NOT NULL) WITHOUT ROWID;
    CREATE TABLE anchor (boot TEXT NOT NULL, offset_us INTEGER NOT NULL);
    CREATE TABLE pending (
        stream TEXT NOT NULL, tick INTEGER NOT NULL, output BLOB NOT NULL, version INTEGER NOT NULL,
        frame_ticks INTEGER NOT NULL, bits INTEGER NOT NULL, PRIMARY KEY (stream, tick)) WITHOUT ROWID;
    CREATE TABLE windows (
        stream TEXT NOT NULL, window TEXT NOT NULL, start INTEGER NOT NULL, length INTEGER NOT NULL,
        stride INTEGER NOT NULL, last_index INTEGER NOT NULL, PRIMARY KEY (stream, window)) WITHOUT ROWID;
    {BINDING_SCHEMA}{FRAMES_SCHEMA}"""


class OutboxError(FuguError, reason=Reason.OUTBOX):
    """The outbox cannot be opened, or belongs to somebody else."""


def open_outbox(path: Path, fleet: str, device: str) -> tuple[sqlite3.Connection, int]:
    """Open a file, or make it; a second process is refused.

    Returns:
        The connection, and the counter of the newest watermark that was taken.

    Raises:
        OutboxError: it cannot be used, or is of another device.
    """
    db = open_database(
        path,
        OUTBOX,
        _SCHEMA,
        OutboxError,
        wait_seconds=2.0,
        settings=("page_size=512", "locking_mode=EXCLUSIVE", "synchronous=NORMAL", "cache_size=-256"),
        shown=str(path),
        in_use=f"outbox {path} is in use by another agent that runs: stop that one, "
        "or give this one an outbox and a device name of its own",
    )
    try:
        with transaction(db):
            if db.execute("SELECT 1 FROM device").fetchone() is None:
                salt = secrets.token_bytes(16)
                db.execute("INSERT INTO device VALUES (?, ?, ?, '0', X'')", (fleet, device, salt))
            *owner, counter = db.execute("SELECT fleet, device, counter FROM device").fetchone()
        if owner != [fleet, device]:
            raise OutboxError(f"outbox {path} belongs to {owner[0]}/{owner[1]}, not to {fleet}/{device}")
    except sqlite3.Error as error:
        db.close()
        raise OutboxError(f"cannot open the outbox {path}: {error}") from None
    except OutboxError:
        db.close()
        raise
    return db, int(counter)


def known_stream(db: sqlite3.Connection, plan: StreamPlan) -> OpenFrame:
    """What the file knows of a stream, which is made known to it.

    Raises:
        OutboxError: the stream's clock has changed: its ticks would mean other moments than before.
    """
    row = db.execute(
        "SELECT epoch_us, period_us, reserved, last_framed, shift, since FROM streams WHERE stream = ?", (plan.stream,)
    ).fetchone()
    if row is None:
        row = plan.epoch_us, plan.period_us, -1, -1, 0, 0
        db.execute("INSERT INTO streams VALUES (?, ?, ?, ?, ?, ?, ?)", (plan.stream, *row))
    if row[:2] != (plan.epoch_us, plan.period_us):
        raise OutboxError(f"the clock of stream {plan.stream} has changed: give the stream a new name")
    frame = OpenFrame(row[2], row[2], *row[3:])
    for pending in db.execute(
        "SELECT tick, output, version, frame_ticks, bits FROM pending WHERE stream = ? ORDER BY tick", (plan.stream,)
    ):
        frame.take(*pending)
    frame.stored = len(frame.outputs)
    return frame


def known_window(db: sqlite3.Connection, stream: str, window: WindowPlan) -> int:
    """The index of the last window that was ever committed, -1 for none, of a window that is made known to the file.

    Raises:
        OutboxError: its ticks have changed: its indices would mean other ticks than before.
    """
    ticks = (window.start, window.length, window.stride)
    row = db.execute(
        "SELECT start, length, stride, last_index FROM windows WHERE stream = ? AND window = ?", (stream, window.name)
    ).fetchone()
    if row is None:
        db.execute("INSERT INTO windows VALUES (?, ?, ?, ?, ?, -1)", (stream, window.name, *ticks))
        return -1
    if row[:3] != ticks:
        raise OutboxError(f"the ticks of window {stream}/{window.name} have changed: give the window a new name")
    return int(row[3])


@contextmanager
def forgetting_what_is_new(db: sqlite3.Connection) -> Iterator[None]:
    """If what is done in here fails, streams and windows that it has made known were never known."""
    tables = (("streams", "stream"), ("windows", "stream, window"))
    before = [set(db.execute(f"SELECT {key} FROM {table}")) for table, key in tables]
    try:
        yield
    except BaseException:
        with suppress(sqlite3.Error), transaction(db):
            for (table, key), known in zip(tables, before, strict=True):
                new = [row for row in db.execute(f"SELECT {key} FROM {table}") if row not in known]
                places = ", ".join("?" for _ in key.split(", "))
                db.executemany(f"DELETE FROM {table} WHERE ({key}) = ({places})", new)
        raise
