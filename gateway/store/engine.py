"""The engine that tables are kept in, and SQLite, the one without a server.

Statements are SQL that SQLite and PostgreSQL share. This includes `INSERT ... ON CONFLICT (...) DO UPDATE SET ...` or
`DO NOTHING`, with the table's name before columns of the present row. There are no row numbers but columns, and MAX and
MIN of one column only.
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
from fugu.host.database import DatabaseError, FileKind, damage, open_database, snapshot, transaction, why_not_open
from fugu.host.files import create_private

if TYPE_CHECKING:
    from gateway.store.postgresql import PostgresDatabase

__all__ = ["Database", "Kind", "Lease", "LedgerError", "Rows", "SQLiteDatabase", "among", "file_bytes"]


class LedgerError(FuguError):
    """The ledger refuses a release, or cannot be used; one line that says why."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of database.

    Attributes:
        file: what it is called, and how it says what it is.
        schema: statements that make it.
        refused: raised if one cannot be opened.
        durable: whether a transaction ends only when it is on the disk; else the last may be lost with the power.
        wait_seconds: for how long an open waits for another process that has a file.
    """

    file: FileKind
    schema: str
    refused: type[FuguError]
    durable: bool = True
    wait_seconds: float = 5.0


@dataclass(frozen=True, slots=True)
class Lease:
    """A lease: one process alone has a database, or under a name a part of it, while others may read.

    Attributes:
        name: of the part; small letters, digits, spaces and dashes.
        take: whether it is taken, on a server only, from a process that has it and can write nothing from then on.
        silent: as `take`, but only if that process has said nothing to the server for so many seconds.
        shares: whether processes that hold other names write at the same time, until `Database.new_generation`.
    """

    name: str = ""
    take: bool = False
    silent: float | None = None
    shares: bool = False

    @staticmethod
    def of_shard(index: int) -> str:
        """The name under which a shard's process holds its devices."""
        return f"shard {index}"

    def __post_init__(self) -> None:
        """Refuse a name that would have to be quoted."""
        if not re.fullmatch("[a-z0-9 -]*", self.name):
            raise ValueError(f"a lease cannot be called {self.name!r}")


MOST_VALUES = 500
"""Of a statement, at most."""


def among(db: Database, query: str, values: Sequence[object], *other_values: object) -> Iterator[Any]:
    """The rows that a query finds, whose last condition is that something is among some values, after those given."""
    for i in range(0, len(values), MOST_VALUES):
        batch = values[i : i + MOST_VALUES]
        yield from db.execute(f"{query} IN ({', '.join('?' * len(batch))})", (*other_values, *batch))


class Rows(Protocol):
    """Rows of a query."""

    @property
    def rowcount(self) -> int:
        """How many rows a statement changed."""

    def fetchone(self) -> Any:
        """The next row, none if there is none."""

    def fetchall(self) -> list[Any]:
        """The rows that are left."""

    def __iter__(self) -> Iterator[Any]:
        """The rows that are left, one by one."""


Database: TypeAlias = "SQLiteDatabase | PostgresDatabase"
"""An open database in autocommit mode; one thread at a time uses it.

Failures raise `fugu.host.database.DatabaseError`. An engine may read all rows of a query at once: use LIMIT.
"""


class SQLiteDatabase:
    """A database in a file; no other error than `kind.refused` is raised.

    It may be made if `create`. `lease` is for this process alone; None if it shares it. If `read_only`, nothing is
    written, and nobody waits for this process.

    Attributes:
        execute: runs a statement with a value for each `?`.
        executemany: runs a statement that finds nothing once for each row of values.
        transaction: makes all of it durable, or nothing; inside another one, it is part of that.
        snapshot: lets reads see one state of the file; they hold nobody up, and change nothing.
        check: sees whether the file is still there, and whole. Raises FileLostError.
    """

    def __init__(
        self, path: Path, kind: Kind, *, create: bool, lease: Lease | None = None, read_only: bool = False
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
                settings=settings,
            )
        except BaseException:
            self._close_lock()
            raise
        self.execute, self.executemany = self._db.execute, self._db.executemany
        self.transaction, self.snapshot = partial(transaction, self._db), partial(snapshot, self._db)
        self.check = self._db.check

    def new_generation(self, names: Iterable[str], /) -> AbstractContextManager[None]:
        """A transaction: nobody shares a file."""
        del names
        return self.transaction()

    def damage(self, tables: Iterable[str] = ("",), /) -> str:
        """Read some tables, or the whole file, and see whether the pages fit together."""
        return next(filter(None, (damage(self._db, table) for table in tables)), "")

    def rewrite(self) -> None:
        """Write the file anew without what was removed. Raises DatabaseError if there is no room, or a reader."""
        self._db.execute("VACUUM")
        (blocked, *_) = self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        if blocked:
            raise DatabaseError("somebody else reads it")

    def size(self) -> int:
        """Bytes of the file and its log."""
        return file_bytes(self._path)

    def close(self) -> None:
        """Close the file, and let others have it."""
        self._db.close()
        self._close_lock()

    def _close_lock(self) -> None:
        if self._lock is not None:
            self._lock.close()


def file_bytes(path: Path) -> int:
    """Bytes of a file and its log on the disk, as far as they are there."""
    st_size = 0
    for file in (path, path.with_name(f"{path.name}-wal")):
        with suppress(OSError):
            st_size += file.stat().st_size
    return st_size


def lock_file(path: Path, kind: Kind, name: str = "") -> TextIO:
    """Take a file for this process, under a name if several may each have a part of it.

    The operating system gives it back when the file is closed or the process ends. The lock is a file of its own beside
    it, which says whose it is: closing any handle of an SQLite file ends SQLite's own locks. Raises FuguError if it is
    held or cannot be made.
    """
    lock_path = Path(f"{path.resolve()}{name and '.'}{name}.lock")
    create_private(lock_path)  # whoever may open it could take it
    try:
        handle = lock_path.open("a+")
    except OSError as error:
        raise kind.refused(f"cannot open the {kind.file.name} {path.name}: {why_not_open(path, error)}") from None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        with handle:
            handle.seek(0)
            holder = handle.read(20)
        file_name, holder_words = kind.file.name, f" (process {holder})" if holder.isdecimal() else ""
        raise kind.refused(
            f"another gateway runs with the {file_name} {path.name}{holder_words}: stop it, or use another {file_name}"
        ) from None
    handle.truncate(0)
    handle.write(str(os.getpid()))
    handle.flush()
    return handle
