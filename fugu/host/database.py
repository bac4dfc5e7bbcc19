"""SQLite files that one process or several keep; one of another `application_id` or `user_version` is refused."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from fugu.contract.errors import FuguError
from fugu.host.files import FileLostError, HeldFiles, create_private, make_private, why_not_open
from fugu.host.records import Checking, add_functions, with_checksums

__all__ = [
    "FORMAT",
    "LEDGER",
    "OUTBOX",
    "REGISTRY",
    "STORE",
    "AwayError",
    "DatabaseError",
    "FileKind",
    "check_files",
    "is_full",
    "is_lost",
    "open_database",
    "snapshot",
    "transaction",
]

DatabaseError = sqlite3.Error
"""Errors of SQLite; an error of another engine is raised as a kind of it."""

FORMAT = 2
"""The 2 of `fugu/2`."""


class AwayError(DatabaseError):
    """There is no connection to a database's server now; there may be one soon."""


class FileKind(NamedTuple):
    """A kind of file: what it is called, its `application_id`, and what to do about one that is damaged."""

    name: str
    application: int
    remedy: str

    def problem(self, name: str, application: int, version: int, tables: int) -> str:
        """Why a file cannot be used, in a line; empty for one of this kind and version, and for an empty one."""
        if (application, version) == (self.application, FORMAT) or not (application or version or tables):
            return ""
        if application not in (0, self.application) or not version:
            return f"{name} is no {self.name}"
        if version > FORMAT:
            return f"{self.name} {name} is of version {version}, this program knows {FORMAT}: use a newer program"
        return f"{self.name} {name} is of an older version than this program: begin with a new file"


OUTBOX = FileKind(
    "outbox",
    0x4655_4F42,
    "never put back a copy, which would draw for ticks twice; move it away, and give the device a new name",
)
STORE = FileKind("store", 0x4655_5354, "put back a copy, or move it away; devices send again what they still hold")
LEDGER = FileKind("ledger", 0x4655_4C45, "put back the newest copy, or move it away and see fugu gateway ledger resume")
REGISTRY = FileKind("fleet registry", 0x4655_464C, "put back the newest copy")


_POLL_SECONDS = 0.01
_NO_ROOM_FOR_INDEX = sqlite3.SQLITE_IOERR_SHMSIZE


def open_database(
    path: Path,
    kind: FileKind,
    schema: str,
    refused: type[FuguError],
    *,
    create: bool = True,
    read_only: bool = False,
    wait_seconds: float = 5.0,
    settings: Sequence[str] = ("synchronous=FULL",),
    shown: str = "",
    in_use: str = "",
) -> sqlite3.Connection:
    """Open a file, and make it if it is new; a file of another kind or version is not changed.

    It is its owner's alone from its creation, and becomes so again if it was put back from a copy.

    Args:
        schema: statements that make it, all in one transaction.
        create: whether it may be made; else it must be there, as with `read_only`, when no other process ever waits for
            this one.
        shown: what messages call the file; its name if not given.
        in_use: the message if another process holds the file for all that time; a general one if not given.

    Returns a connection in autocommit mode, in WAL; one thread at a time may use it.
    """
    shown = shown or path.name
    create = create and not read_only
    if not create and not path.exists():
        raise refused(f"there is no {kind.name} {shown}")
    if create:
        create_private(path)
    where = f"{path.absolute().as_uri()}?mode=ro" if read_only else path
    try:
        db = sqlite3.connect(
            where,
            timeout=wait_seconds,
            isolation_level=None,
            check_same_thread=False,
            factory=_Connection,
            uri=read_only,
        )
    except sqlite3.Error as error:
        raise refused(f"cannot open the {kind.name} {shown}: {why_not_open(path, error)}") from None
    try:
        script, wanted = with_checksums(schema)
        add_functions(db)
        for setting in () if read_only else settings:
            db.execute(f"PRAGMA {setting}")
        if problem := _prepared(db, kind, script, wanted, create, shown, wait_seconds, read_only):
            raise refused(problem)
        if not read_only:
            make_private(path)
        db.files = HeldFiles(path, shown)
    except (sqlite3.Error, UnicodeDecodeError) as error:  # a message about a damaged schema is perhaps no text
        db.close()
        why = f"cannot open the {kind.name} {shown}: {str(error).partition(chr(10))[0]}"  # of a schema it says all
        if is_lost(error):
            raise refused(f"{why}: {kind.remedy}") from None
        raise refused(in_use if in_use and _busy(error) else why) from None
    except BaseException:
        db.close()
        raise
    return db


class _Connection(sqlite3.Connection):
    files: HeldFiles | None = None

    def execute(self, query: str, values: Any = (), /) -> sqlite3.Cursor:
        if " FROM intact_" in query:
            return self.cursor(Checking).execute(query, values)
        return super().execute(query, values)


def check_files(db: sqlite3.Connection, *, own: bool = False) -> None:
    """Raise FileLostError unless an open database's files are there, and whole; `own`: this has just written."""
    if isinstance(db, _Connection) and db.files is not None:
        db.files.check(own=own)


def is_lost(error: Exception) -> bool:
    """True if an error says that a database's file is damaged or gone, so that to try again is useless."""
    return isinstance(error, FileLostError | UnicodeDecodeError) or _code(error) in (
        sqlite3.SQLITE_CORRUPT,
        sqlite3.SQLITE_NOTADB,
    )


def is_full(error: Exception) -> bool:
    """True if an error says that there is no room on the disk, which may come back."""
    return _code(error) == sqlite3.SQLITE_FULL or _code(error, 0xFFFF) == _NO_ROOM_FOR_INDEX


@contextmanager
def transaction(db: sqlite3.Connection) -> Iterator[None]:
    """All of it becomes durable, or nothing does; inside another one, it is part of that.

    FileLostError: the file has been removed, replaced or cut short meanwhile; what was written may be lost.
    sqlite3.Error: nothing of it has become durable.
    """
    if db.in_transaction:
        yield
        return
    check_files(db)
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
        db.execute("COMMIT")
    except BaseException:
        _roll_back(db)
        raise
    check_files(db, own=True)


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


def _prepared(
    db: sqlite3.Connection,
    kind: FileKind,
    schema: str,
    wanted: frozenset[tuple[str, str, str]],
    create: bool,
    shown: str,
    wait: float,
    read_only: bool,
) -> str:
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
            if tables and not wanted <= set(db.execute("SELECT type, name, sql FROM sqlite_master")):
                return f"the tables of the {kind.name} {shown} are damaged, or another program's: {kind.remedy}"
            if not read_only:
                db.execute("PRAGMA journal_mode=WAL")
            if not tables:
                stamps = f"PRAGMA application_id={kind.application};PRAGMA user_version={FORMAT};"
                _make(db, schema + stamps)
        except sqlite3.OperationalError as error:
            _roll_back(db)
            if not _busy(error) or time.monotonic() >= deadline:
                raise
            time.sleep(_POLL_SECONDS)
        else:
            return ""


def _header(db: sqlite3.Connection) -> tuple[int, int, int]:
    asked = ("PRAGMA application_id", "PRAGMA user_version", "SELECT count(*) FROM sqlite_master")
    with snapshot(db):
        application, version, tables = (db.execute(one).fetchone()[0] for one in asked)
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


def _busy(error: Exception) -> bool:
    return _code(error) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def _code(error: Exception, mask: int = 0xFF) -> int:
    return int(getattr(error, "sqlite_errorcode", 0)) & mask


def _roll_back(db: sqlite3.Connection) -> None:
    """End a transaction; some errors, a full disk among them, have ended it already."""
    if db.in_transaction:
        db.execute("ROLLBACK")
