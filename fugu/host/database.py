"""SQLite files that one or several processes use; a file of another `application_id` or `user_version` is refused.

The files of an open database are checked before and after each transaction, by i-node, size and time, in a few
microseconds. SQLite goes on in files that have been removed or replaced, and says that its writes are durable. It also
does not notice that another program overwrites pages that it has in memory.

Each record has a checksum: SQLite checks how pages fit together, not their content. Each table has a column that
SQLite computes from all others whenever a row is written. A view, `intact_TABLE`, has the same rows and one column
more, `is_intact`: to read this column of a row that does not match its checksum is an error. Statements that decide
anything, or hand something on, read one view each, and `Database.execute` adds the column to them. It is no condition
of the view: SQLite would compute it from the columns that a statement asks for in place of the stored ones.

All tables are strict: a column takes only values of its type.
"""

from __future__ import annotations

import os
import re
import sqlite3
import time
import zlib
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, Self

import msgpack

from fugu.contract.errors import FuguError, cause
from fugu.host.files import create_private

__all__ = [
    "FORMAT",
    "LEDGER",
    "OUTBOX",
    "REGISTRY",
    "REPORTS",
    "STORE",
    "AwayError",
    "Database",
    "DatabaseError",
    "FileKind",
    "FileLostError",
    "damage",
    "is_full",
    "is_lost",
    "open_database",
    "opening_problem",
    "read_header",
    "snapshot",
    "transaction",
]

DatabaseError = sqlite3.Error
"""Errors of SQLite; errors of another engine are raised as a subclass."""

FORMAT = 2
"""The 2 of `fugu/2`."""


class AwayError(DatabaseError):
    """There is no connection to a database's server now; there may be one soon."""


class FileKind(NamedTuple):
    """A kind of database file: its name, its `application_id`, and what to do about a damaged file."""

    name: str
    application_id: int
    remedy: str

    def problem(self, name: str, application_id: int, version: int, table_count: int) -> str:
        """Return why a file cannot be used, in a line; "" for a file of this kind and version, or an empty file."""
        if (application_id, version) == (self.application_id, FORMAT) or not (application_id or version or table_count):
            return ""
        if application_id not in (0, self.application_id) or not version:
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
REPORTS = FileKind("file of reports", 0x4655_5250, "move it away: the windows under way have no sum")
LEDGER = FileKind("ledger", 0x4655_4C45, "put back the newest copy, or move it away and see fugu gateway ledger resume")
REGISTRY = FileKind("fleet registry", 0x4655_464C, "put back the newest copy")

_POLL_SECONDS = 0.01
_NO_ROOM_FOR_INDEX = sqlite3.SQLITE_IOERR_SHMSIZE


def open_database(
    path: Path,
    kind: FileKind,
    schema: str,
    error_type: type[FuguError],
    *,
    create: bool = True,
    read_only: bool = False,
    wait_seconds: float = 5.0,
    pragmas: Sequence[str] = ("synchronous=FULL",),
    label: str = "",
    busy_message: str = "",
) -> Database:
    """Open a database file, and create it if it is missing; a file of another kind or version is not changed.

    Only its owner may read the file, from its creation on, and again after it was put back from a copy.

    Args:
        schema: statements that create the tables, all in one transaction.
        create: whether the file may be created; else it must exist.
        read_only: open an existing file, so that no other process ever waits for this one.
        wait_seconds: how long to wait for another process that holds the file.
        pragmas: settings of SQLite, as NAME=VALUE.
        label: the file's name in messages, by default that of the path.
        busy_message: the message if another process holds the file all the time; by default a general one.

    Return a connection in autocommit mode, in WAL; one thread at a time may use it.
    """
    label = label or path.name
    create = create and not read_only
    if not create and not path.exists():
        raise error_type(f"there is no {kind.name} {label}")
    if create:
        create_private(path)
    address = f"{path.absolute().as_uri()}?mode=ro" if read_only else path
    try:
        db = sqlite3.connect(
            address,
            timeout=wait_seconds,
            isolation_level=None,
            check_same_thread=False,
            factory=Database,
            uri=read_only,
        )
    except sqlite3.Error as error:
        raise error_type(f"cannot open the {kind.name} {label}: {opening_problem(path, error)}") from None
    db.label, db.statuses = label, {}
    try:
        script, required_objects = _with_checksums(schema)
        add_functions(db)
        for pragma in () if read_only else pragmas:
            db.execute(f"PRAGMA {pragma}")
        if problem := _prepare(db, kind, script, required_objects, create, label, wait_seconds, read_only):
            raise error_type(problem)
        if not read_only:
            _make_private(path)
        db.statuses = {file: _status(file, label) for file in _database_files(path) if file.exists()}
    except (sqlite3.Error, UnicodeDecodeError) as error:  # a message about a damaged schema may be no text
        db.close()
        reason = f"cannot open the {kind.name} {label}: {str(error).partition(chr(10))[0]}"  # without the schema
        if is_lost(error):
            raise error_type(f"{reason}: {kind.remedy}") from None
        raise error_type(busy_message if busy_message and _is_busy(error) else reason) from None
    except BaseException:
        db.close()
        raise
    return db


class Database(sqlite3.Connection):
    """An open file. `statuses` are of the file, its log and the index of the log; `label` is its name in messages."""

    statuses: dict[Path, os.stat_result]
    label: str

    def execute(self, query: str, values: Any = (), /) -> sqlite3.Cursor:
        """Run a statement; if it reads a view of intact rows, each row is checked."""
        if " FROM intact_" in query:
            return self.cursor(_CheckingCursor).execute(query, values)
        return super().execute(query, values)

    def check(self, *, own_write: bool = False) -> None:
        """Raise FileLostError if a file is missing, replaced or shorter, or was damaged by another program.

        A main file that was written since the last check is read and verified, unless this connection itself has just
        written (`own_write`). Files may have grown.
        """
        for file, status_before in self.statuses.items():
            status = _status(file, self.label)
            if (status.st_dev, status.st_ino) != (status_before.st_dev, status_before.st_ino):
                raise FileLostError(f"{_file_words(file, self.label)} is another file now")
            if status.st_size < status_before.st_size:
                raise FileLostError(f"{_file_words(file, self.label)} has been cut short")
            self.statuses[file] = status
            is_main = not file.name.endswith(_SUFFIXES)
            is_overwritten = is_main and status.st_mtime_ns != status_before.st_mtime_ns and not own_write
            if is_overwritten and (problem := _file_damage(file)):
                raise FileLostError(f"{_file_words(file, self.label)} has been overwritten, and is damaged ({problem})")


def is_lost(error: Exception) -> bool:
    """True if an error says that a database's file is damaged or gone, so that another attempt is useless."""
    return isinstance(error, FileLostError | UnicodeDecodeError) or _error_code(error) in (
        sqlite3.SQLITE_CORRUPT,
        sqlite3.SQLITE_NOTADB,
    )


def is_full(error: Exception) -> bool:
    """True if an error says that the disk is full, so that a later attempt may succeed."""
    return _error_code(error) == sqlite3.SQLITE_FULL or _error_code(error, 0xFFFF) == _NO_ROOM_FOR_INDEX


@contextmanager
def transaction(db: Database) -> Iterator[None]:
    """Run a transaction: all of it becomes durable, or nothing. Inside another transaction, it is part of that one.

    FileLostError: the file has been removed, replaced or cut short meanwhile; what was written may be lost.
    sqlite3.Error: nothing of the transaction has become durable.
    """
    if db.in_transaction:
        yield
        return
    db.check()
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
        db.execute("COMMIT")
    except BaseException:
        _roll_back(db)
        raise
    db.check(own_write=True)


@contextmanager
def snapshot(db: sqlite3.Connection) -> Iterator[None]:
    """Let all reads see one state of the file, and hold up no other process. Inside a transaction, see its state."""
    if db.in_transaction:
        yield
        return
    try:
        db.execute("PRAGMA query_only=1")  # a write would be rolled back without an error
        db.execute("BEGIN")
        yield
    finally:
        _roll_back(db)
        db.execute("PRAGMA query_only=0")


def _prepare(
    db: Database,
    kind: FileKind,
    schema: str,
    required_objects: frozenset[tuple[str, str, str]],
    create: bool,
    label: str,
    wait_seconds: float,
    read_only: bool,
) -> str:
    """Create a missing schema. Return the reason why the file cannot be used, or "" if it can.

    SQLite does not wait by itself before a change to WAL, so all is tried again while another process holds the file.
    """
    deadline = time.monotonic() + wait_seconds
    while True:
        try:
            application_id, version, object_count = read_header(db)
            if not (create or object_count):
                return f"{label} is no {kind.name}"
            if problem := kind.problem(label, application_id, version, object_count):
                return problem
            if object_count and not required_objects <= set(db.execute("SELECT type, name, sql FROM sqlite_master")):
                return f"the tables of the {kind.name} {label} are damaged, or another program's: {kind.remedy}"
            if not read_only:
                db.execute("PRAGMA journal_mode=WAL")
            if not object_count:
                stamp_script = f"PRAGMA application_id={kind.application_id};PRAGMA user_version={FORMAT};"
                _create_tables(db, schema + stamp_script)
        except sqlite3.OperationalError as error:
            _roll_back(db)
            if not _is_busy(error) or time.monotonic() >= deadline:
                raise
            time.sleep(_POLL_SECONDS)
        else:
            return ""


def read_header(db: sqlite3.Connection) -> tuple[int, int, int]:
    """Return a database's `application_id`, its `user_version`, and the number of its tables and other objects."""
    queries = ("PRAGMA application_id", "PRAGMA user_version", "SELECT count(*) FROM sqlite_master")
    with snapshot(db):
        application_id, version, object_count = (db.execute(query).fetchone()[0] for query in queries)
    return application_id, version, object_count


def _create_tables(db: Database, script: str) -> None:
    """Run a script in one transaction, unless another process has created tables meanwhile."""
    with transaction(db):
        if db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            return
        statement = ""
        for script_part in script.split(";"):
            statement += script_part + ";"
            if sqlite3.complete_statement(statement):
                db.execute(statement)
                statement = ""


def _is_busy(error: Exception) -> bool:
    return _error_code(error) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def _error_code(error: Exception, mask: int = 0xFF) -> int:
    return int(getattr(error, "sqlite_errorcode", 0)) & mask


def _roll_back(db: sqlite3.Connection) -> None:
    """Roll back the transaction, if there is one: some errors, as of a full disk, have ended it already."""
    if db.in_transaction:
        db.execute("ROLLBACK")


def _database_files(path: Path) -> tuple[Path, ...]:
    """Return the paths of a database's file, its log and the index of the log."""
    real_path = path.resolve()
    return path.absolute(), *(real_path.with_name(real_path.name + suffix) for suffix in _SUFFIXES)


def _make_private(path: Path) -> None:
    """Let only the owner read a database's files, as far as this account may change that."""
    for file in _database_files(path):
        with suppress(OSError):
            if file.stat().st_mode & 0o077:
                file.chmod(0o600)


_SUFFIXES = ("-wal", "-shm")
_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_IOERR)


def opening_problem(path: Path, error: Exception) -> str:
    """Say why a database cannot be opened: its folder is missing or closed, or else the error's reason."""
    try:
        os.close(os.open(path.absolute().parent, os.O_RDONLY))
    except FileNotFoundError:
        return f"there is no folder {path.absolute().parent.name}: make it, or name another"
    except OSError as folder_error:
        return cause(folder_error)
    return getattr(error, "strerror", None) or str(error)


class FileLostError(sqlite3.DatabaseError):
    """A file of an open database was removed, replaced, cut short or damaged: what was written may be lost."""


def _status(file: Path, label: str) -> os.stat_result:
    try:
        return file.stat()
    except OSError as error:
        raise FileLostError(f"{_file_words(file, label)} is gone: {error.strerror}") from None


def _file_words(file: Path, label: str) -> str:
    return label + next((suffix for suffix in _SUFFIXES if file.name.endswith(suffix)), "")


def damage(db: sqlite3.Connection, table_name: str = "") -> str:
    """Read a database, or one of its tables, and check its pages and checksums. Return what is wrong, in a line.

    "" if nothing was found, also if the database could not be read: another process may hold it, or interrupt this.
    """
    try:
        (problem,) = db.execute(f"PRAGMA quick_check({table_name or 1})").fetchone()
        return _damaged_record(db, table_name) if problem == "ok" else " ".join(problem.split())
    except UnicodeDecodeError as error:  # SQLite's message quotes bytes that are no text
        return str(error)
    except sqlite3.DatabaseError as error:
        return str(error).partition("\n")[0] if getattr(error, "sqlite_errorcode", 0) & 0xFF in _DAMAGED else ""


def _file_damage(file: Path) -> str:
    """Check a file on the disk as `damage` does, whatever an open connection has cached."""
    try:
        with closing(sqlite3.connect(f"{file.as_uri()}?mode=ro", uri=True)) as db:
            db.execute("SELECT count(*) FROM sqlite_master")
            return damage(db)
    except sqlite3.OperationalError:  # the file is held, or cannot be opened
        return ""
    except sqlite3.DatabaseError as error:
        return str(error)


_RAISED = "user-defined function raised exception"
_TABLES = "SELECT name FROM sqlite_master WHERE type='table' AND name NOT LIKE 'sqlite_%' ORDER BY name"


def add_functions(db: sqlite3.Connection) -> None:
    """Give a connection the SQL functions that compute and check checksums of records."""
    db.create_function("record_sum", -1, _record_sum, deterministic=True)
    db.create_function("is_intact", -1, _is_intact, deterministic=True)


@lru_cache(maxsize=8)
def _with_checksums(schema: str) -> tuple[str, frozenset[tuple[str, str, str]]]:
    """Add checksums, views and strict types to a schema.

    Return its statements, and (type, name, text) of each object that they create.
    """
    with closing(sqlite3.connect(":memory:")) as db:
        db.executescript(schema)
        columns = {
            table: ", ".join(f'"{column[1]}"' for column in db.execute(f"PRAGMA table_info({table})"))
            for (table,) in db.execute(_TABLES).fetchall()
        }
    script = re.sub(
        r"CREATE TABLE (\w+) \(([^;]*)\)(\s+WITHOUT ROWID)?;",
        lambda match: (
            f"CREATE TABLE {match[1]} (record_sum INTEGER AS (record_sum({columns[match[1]]})) STORED, {match[2]}) "
            f"{'WITHOUT ROWID, ' if match[3] else ''}STRICT;"
        ),
        schema,
    )
    for table, column_names in columns.items():
        check_column = f"is_intact(record_sum, {column_names}) AS is_intact"
        script += f"CREATE VIEW intact_{table} AS SELECT {column_names}, {check_column} FROM {table};\n"
    with closing(sqlite3.connect(":memory:")) as db:
        add_functions(db)
        db.executescript(script)
        return script, frozenset(db.execute("SELECT type, name, sql FROM sqlite_master WHERE sql IS NOT NULL"))


def _damaged_record(db: sqlite3.Connection, table_name: str) -> str:
    """Say in which table (any, if the name is "") a record does not match its checksum; "" if all records match."""
    add_functions(db)
    query = "SELECT name FROM sqlite_master WHERE name LIKE 'intact!_%' ESCAPE '!'"
    for view in [name for (name,) in db.execute(query) if table_name in ("", name.removeprefix("intact_"))]:
        try:
            sqlite3.Cursor(db).execute(f"SELECT count(is_intact) FROM {view}").fetchone()
        except sqlite3.OperationalError as error:
            if str(error) != _RAISED:
                raise
            return f"a record of its table {view.removeprefix('intact_')} does not match its checksum"
    return ""


class _CheckingCursor(sqlite3.Cursor):
    """A cursor for a statement that reads one view of intact rows; SQLITE_CORRUPT if a row does not match."""

    def execute(self, query: str, values: Any = (), /) -> Self:
        """Run the statement, with the checking column added."""
        if not query.startswith("SELECT *"):
            query = query.replace(" FROM intact_", ", is_intact FROM intact_", 1)
        try:
            return super().execute(query, values)
        except sqlite3.OperationalError as error:
            raise _checksum_error(error) from None

    def __next__(self) -> Any:
        try:
            return super().__next__()[:-1]
        except sqlite3.OperationalError as error:
            raise _checksum_error(error) from None

    def fetchone(self) -> Any:
        """Return the next row; `None` if there is none."""
        return next(self, None)

    def fetchall(self) -> list[Any]:
        """Return the remaining rows."""
        return list(self)


def _checksum_error(error: sqlite3.OperationalError) -> sqlite3.DatabaseError:
    if str(error) != _RAISED:
        return error
    checksum_error = sqlite3.DatabaseError("a record does not match its checksum")
    checksum_error.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
    return checksum_error


def _record_sum(*values: Any) -> int:
    return zlib.crc32(msgpack.packb(values))


def _is_intact(stored_sum: Any, *values: Any) -> bool:
    if stored_sum != _record_sum(*values):
        raise ValueError  # SQLite passes on only that an exception was raised
    return True
