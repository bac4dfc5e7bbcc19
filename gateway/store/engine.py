"""The engines of databases: their types, and SQLite, the engine without a server.

Statements are SQL that SQLite and PostgreSQL share. This includes `INSERT ... ON CONFLICT (...) DO UPDATE SET ...` or
`DO NOTHING`, with the table's name before columns of the present row. Row numbers are columns of their own, and MAX and
MIN have a single argument.
"""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TextIO, TypeAlias

from fugu.contract.errors import FuguError
from fugu.host.database import DatabaseError, FileKind, damage, open_database, opening_problem, snapshot, transaction
from fugu.host.files import create_private

if TYPE_CHECKING:
    from gateway.store.postgresql import PostgresDatabase

__all__ = ["Database", "DatabaseKind", "Lease", "LedgerError", "Rows", "SQLiteDatabase", "file_bytes", "select_among"]


class LedgerError(FuguError):
    """The ledger refuses a release, or cannot be used; one line that says why."""


@dataclass(frozen=True, slots=True)
class DatabaseKind:
    """A kind of database.

    Attributes:
        file: the kind's name, and the marks by which a file of this kind is known.
        schema: statements that create the tables.
        refused: raised if a database of this kind cannot be opened.
        durable: whether a transaction ends only when it is on the disk; else the last ones may be lost with the power.
        wait_seconds: how long an open waits for another process that has the file.
    """

    file: FileKind
    schema: str
    refused: type[FuguError]
    durable: bool = True
    wait_seconds: float = 5.0


@dataclass(frozen=True, slots=True)
class Lease:
    """The right of one process alone to write to a database, or to a named part of it, while others may read.

    Attributes:
        name: name of the part: small letters, digits, spaces and dashes; empty for the whole database.
        take: whether the lease is taken from a process that has it, which can then no longer write; on a server only.
        silent: as `take`, but only if that process was silent at the server for this many seconds; `None` for never.
        shares: whether processes with leases of other names may write at the same time, until `new_generation`.
    """

    name: str = ""
    take: bool = False
    silent: float | None = None
    shares: bool = False

    @staticmethod
    def of_shard(index: int) -> str:
        """The name of the lease of a shard's process."""
        return f"shard {index}"

    def __post_init__(self) -> None:
        """Refuse a name that would have to be quoted."""
        if not re.fullmatch("[a-z0-9 -]*", self.name):
            raise ValueError(f"a lease cannot be called {self.name!r}")


MOST_VALUES = 500
"""Most values of a statement."""


def select_among(db: Database, query: str, values: Sequence[object], *other_values: object) -> Iterator[Any]:
    """Run a query that ends with `IN (...)` for all values, in batches. Yield the rows of all batches.

    `other_values` are for each `?` of the query itself.
    """
    for i in range(0, len(values), MOST_VALUES):
        batch = values[i : i + MOST_VALUES]
        yield from db.execute(f"{query} IN ({', '.join('?' * len(batch))})", (*other_values, *batch))


class Rows(Protocol):
    """Rows of a query."""

    @property
    def rowcount(self) -> int:
        """The number of rows that a statement changed."""

    def fetchone(self) -> Any:
        """The next row; `None` if there is none."""

    def fetchall(self) -> list[Any]:
        """All remaining rows."""

    def __iter__(self) -> Iterator[Any]:
        """The remaining rows, one by one."""


Database: TypeAlias = "SQLiteDatabase | PostgresDatabase"
"""An open database in autocommit mode; one thread at a time uses it.

Failures raise `fugu.host.database.DatabaseError`. An engine may read all rows of a query at once: use LIMIT.
"""


class SQLiteDatabase:
    """A database in a file. Opening raises no other error than `kind.refused`.

    Args:
        create: whether a missing file is created.
        lease: a lock of the file, or of a named part of it; `None` to open the file without a lock.
        read_only: nothing is written, and no other process waits for this one.

    Attributes:
        execute: runs a statement with a value for each `?`.
        executemany: runs a statement that returns nothing once for each row of values.
        transaction: makes all changes durable, or none; a transaction inside another one is part of that.
        snapshot: lets reads see one state of the file; they block no writer, and change nothing.
        check: raises FileLostError if the file is gone, or not whole.
    """

    def __init__(
        self, path: Path, kind: DatabaseKind, *, create: bool, lease: Lease | None = None, read_only: bool = False
    ) -> None:
        settings = ("synchronous=FULL" if kind.durable else "synchronous=NORMAL", "secure_delete=ON")
        self._path = path
        self._lock: TextIO | None = None
        if lease is not None and (create or path.exists()):
            self._lock = lock_file(path, kind, lease.name)
        try:
            self._db = open_database(
                *(path, kind.file, kind.schema, kind.refused),
                create=create,
                read_only=read_only,
                wait_seconds=kind.wait_seconds,
                pragmas=settings,
            )
        except BaseException:
            self._close_lock()
            raise
        self.execute, self.executemany = self._db.execute, self._db.executemany
        self.transaction, self.snapshot = partial(transaction, self._db), partial(snapshot, self._db)
        self.check = self._db.check

    def new_generation(self, lease_names: Iterable[str], /) -> AbstractContextManager[None]:
        """Begin a transaction. Nothing else is needed, because one process at a time has the lease of a file."""
        del lease_names
        return self.transaction()

    def damage(self, tables: Iterable[str] = ("",), /) -> str:
        """Read some tables, by default the whole file. Return the first problem of their pages, or ''."""
        return next(filter(None, (damage(self._db, table) for table in tables)), "")

    def rewrite(self) -> None:
        """Write the file anew without removed rows. DatabaseError without room, or while another process reads."""
        self._db.execute("VACUUM")
        (blocked, *_) = self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        if blocked:
            raise DatabaseError("somebody else reads it")

    def size(self) -> int:
        """The bytes of the file and its log."""
        return file_bytes(self._path)

    def close(self) -> None:
        """Close the file, and give the lease back."""
        self._db.close()
        self._close_lock()

    def _close_lock(self) -> None:
        if self._lock is not None:
            self._lock.close()


def file_bytes(path: Path) -> int:
    """The bytes of a database and its log on the disk; a missing file has 0."""
    size = 0
    for file in (path, path.with_name(f"{path.name}-wal")):
        with suppress(OSError):
            size += file.stat().st_size
    return size


def lock_file(path: Path, kind: DatabaseKind, part_name: str = "") -> TextIO:
    """Lock a file for this process, or a named part of it. Return the open lock file.

    The operating system releases the lock when the lock file is closed or the process ends. The lock file has the
    process's number. It lies beside the database, because closing any handle of an SQLite file ends SQLite's own locks.
    Raises `kind.refused` if the lock is held, or the lock file cannot be opened.
    """
    lock_path = Path(f"{path.resolve()}{part_name and '.'}{part_name}.lock")
    create_private(lock_path)  # any account that may open the file could lock it
    try:
        handle = lock_path.open("a+")
    except OSError as error:
        raise kind.refused(f"cannot open the {kind.file.name} {path.name}: {opening_problem(path, error)}") from None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        with handle:
            handle.seek(0)
            process_number = handle.read(20)
        file_name, holder_words = kind.file.name, f" (process {process_number})" if process_number.isdecimal() else ""
        raise kind.refused(
            f"another gateway runs with the {file_name} {path.name}{holder_words}: stop it, or use another {file_name}"
        ) from None
    with suppress(OSError):  # on a full disk, only messages lack the number
        os.truncate(handle.fileno(), 0)
        os.write(handle.fileno(), str(os.getpid()).encode())
    return handle
