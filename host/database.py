"""SQLite files that one process or several keep: opening one, marking it as what it is, transactions and snapshots.

What a database file of this project says of itself: what it is, and of which version its format is.

The two numbers stand in SQLite's header, `application_id` and `user_version`. A file of another version is refused.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from contract.errors import FuguError

__all__ = ["FORMAT", "LEDGER", "OUTBOX", "REGISTRY", "STORE", "FileKind", "open_database", "snapshot", "transaction"]

FORMAT = 2
"""The 2 of `fugu/2`."""


class FileKind(NamedTuple):
    """A kind of file: what it is called, and its `application_id`."""

    name: str
    application: int

    @property
    def stamps(self) -> str:
        """The statements that mark a new file."""
        return f"PRAGMA application_id={self.application};PRAGMA user_version={FORMAT};"

    def problem(self, name: str, application: int, version: int, tables: int) -> str:
        """Why a file cannot be used, in a line; empty for one of this kind and version, and for an empty one."""
        if (application, version) == (self.application, FORMAT) or not (application or version or tables):
            return ""
        if application not in (0, self.application) or not version:
            return f"{name} is no {self.name}"
        if version > FORMAT:
            return f"{self.name} {name} is of version {version}, this program knows {FORMAT}: use a newer program"
        return f"{self.name} {name} is of an older version than this program: begin with a new file"


OUTBOX = FileKind("outbox", 0x4655_4F42)
STORE = FileKind("store", 0x4655_5354)
LEDGER = FileKind("ledger", 0x4655_4C45)
REGISTRY = FileKind("fleet registry", 0x4655_464C)


_POLL_SECONDS = 0.01


def open_database(
    path: Path,
    kind: FileKind,
    schema: str,
    refused: type[FuguError],
    *,
    create: bool = True,
    wait_seconds: float = 5.0,
    settings: Sequence[str] = ("synchronous=FULL",),
    shown: str = "",
    in_use: str = "",
) -> sqlite3.Connection:
    """Open a file, and make it if it is new; a file of another kind or version is not changed.

    Args:
        schema: statements that make it, all in one transaction.
        refused: raised if it cannot be used.
        create: whether it may be made; else it must be there.
        shown: what messages call the file; its name if not given.
        in_use: the message if another process holds the file for all that time; a general one if not given.

    Returns:
        A connection in autocommit mode, in WAL; one thread at a time may use it.
    """
    shown = shown or path.name
    if not create and not path.exists():
        raise refused(f"there is no {kind.name} {shown}")
    try:
        db = sqlite3.connect(path, timeout=wait_seconds, isolation_level=None, check_same_thread=False)
    except sqlite3.Error as error:
        raise refused(f"cannot open the {kind.name} {shown}: {error}") from None
    try:
        for setting in settings:
            db.execute(f"PRAGMA {setting}")
        if problem := _prepared(db, kind, schema, create, shown, wait_seconds):
            raise refused(problem)
    except sqlite3.Error as error:
        db.close()
        raise refused(in_use if in_use and _busy(error) else f"cannot open the {kind.name} {shown}: {error}") from None
    except BaseException:
        db.close()
        raise
    return db


@contextmanager
def transaction(db: sqlite3.Connection) -> Iterator[None]:
    """All of it becomes durable, or nothing does; inside another one, it is part of that."""
    if db.in_transaction:
        yield
        return
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
        db.execute("COMMIT")
    except BaseException:
        _roll_back(db)
        raise


@contextmanager
def snapshot(db: sqlite3.Connection) -> Iterator[None]:
    """Reads see one state of the file, and hold nobody up; inside a transaction they see that."""
    if db.in_transaction:
        yield
        return
    try:
        db.execute("PRAGMA query_only=1")  # a change in here would be lost without a word
        db.execute("BEGIN")
        yield
    finally:
        _roll_back(db)
        db.execute("PRAGMA query_only=0")


def _prepared(db: sqlite3.Connection, kind: FileKind, schema: str, create: bool, shown: str, wait: float) -> str:
    """Make what is new; why the file cannot be used, empty if it can.

    SQLite does not wait by itself before a change to WAL: it is tried again while another process makes the file.
    """
    deadline = time.monotonic() + wait
    while True:
        try:
            application, version, tables = _header(db)
            if not (create or tables):
                return f"{shown} is no {kind.name}"
            if problem := kind.problem(shown, application, version, tables):
                return problem
            db.execute("PRAGMA journal_mode=WAL")
            if not tables:
                _make(db, schema + kind.stamps)
        except sqlite3.OperationalError as error:
            _roll_back(db)
            if not _busy(error) or time.monotonic() >= deadline:
                raise
            time.sleep(_POLL_SECONDS)
        else:
            return ""


def _header(db: sqlite3.Connection) -> tuple[int, int, int]:
    """Application, version and how many tables and the like there are, all of one moment."""
    with snapshot(db):
        (application,) = db.execute("PRAGMA application_id").fetchone()
        (version,) = db.execute("PRAGMA user_version").fetchone()
        (tables,) = db.execute("SELECT count(*) FROM sqlite_master").fetchone()
    return application, version, tables


def _make(db: sqlite3.Connection, script: str) -> None:
    """Run a script in one transaction, unless another process was faster."""
    with transaction(db):
        if db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            return
        statement = ""
        for piece in script.split(";"):
            statement += piece + ";"
            if sqlite3.complete_statement(statement):
                db.execute(statement)
                statement = ""


def _busy(error: sqlite3.Error) -> bool:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def _roll_back(db: sqlite3.Connection) -> None:
    """End a transaction; some errors, a full disk among them, have ended it already."""
    if db.in_transaction:
        db.execute("ROLLBACK")
