"""A store in a database of a PostgreSQL server.

A connection that breaks is made again, with growing pauses; until there is one, every use raises an `AwayError`. What
was not committed then is lost, and was not called durable. A store that is held is held by the connection that writes:
who has lost that connection has lost the hold with it, and writes nothing before it holds the store again.
"""

from __future__ import annotations

import hashlib
import re
import sqlite3
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from typing import Any, NamedTuple

import psycopg
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import TransactionStatus
from psycopg.types.numeric import Int8BinaryDumper

from gateway.location import Server
from gateway.service.store.database import Rows, StoreError
from host.database import FORMAT, STORE, AwayError, DatabaseError
from host.held_files import FileLostError

__all__ = ["PostgresDatabase"]

_DEFAULTS = {
    "application_name": "fugu-gateway",
    "connect_timeout": "5",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "20000",
}
# The server, too, shall notice soon that a gateway's machine has gone, and give its hold back.
_SESSION = (
    "SET synchronous_commit = on; SET client_min_messages = warning; SET tcp_keepalives_idle = 10; "
    "SET tcp_keepalives_interval = 5; SET tcp_keepalives_count = 3; SET tcp_user_timeout = 20000"
)
_PAGE = 64
_HOLD_SECONDS = 0.1
"""For how long the server may hold what a gateway had that was killed."""
_TAKE_AGAIN_SECONDS = 5.0
_POLL_SECONDS = 0.05
_FIRST_PAUSE_SECONDS = 0.1
_LONGEST_PAUSE_SECONDS = 5.0
_CODES = {"53100": sqlite3.SQLITE_FULL, "XX001": sqlite3.SQLITE_CORRUPT, "XX002": sqlite3.SQLITE_CORRUPT}
"""Of conditions of PostgreSQL that `host.database` asks for: what SQLite calls the same."""


class ServerError(DatabaseError):
    """The server has refused a statement, or could not run it."""

    def __init__(self, error: psycopg.Error) -> None:
        super().__init__(_line(error))
        self.sqlite_errorcode = _CODES.get(error.sqlstate or "", 0)


class _Identity(NamedTuple):
    """Which server it is, and which of its histories: another one after a copy was put back or a standby took over."""

    system: int
    timeline: int
    database: int
    schema: str


class PostgresDatabase:
    """A `Database` on a server.

    Args:
        server: where; its tables are in the first schema of the search path.
        schema: statements that make it, as SQLite would be given them.
        create: whether it may be made; else it must be there.
        hold: the name under which this process alone has it; none if it shares it.

    Raises:
        StoreError: it cannot be opened, is no store, is of another version, or another process holds it.
    """

    def __init__(self, server: Server, schema: str = "", *, create: bool = False, hold: str | None = None) -> None:
        self._server = server
        self._hold = hold
        self._in_transaction = False
        self._closed = False
        self._why = ""
        self._next_try = 0.0
        self._pause = _FIRST_PAUSE_SECONDS
        self._holder: tuple[int, str] = (0, "")
        try:
            arguments: dict[str, Any] = _DEFAULTS | conninfo_to_dict(server.url)
            self._arguments = arguments
            self._connection = self._connect()
        except psycopg.Error as error:
            raise StoreError(f"cannot open the store {server.name}: {_line(error)}") from None
        try:
            self._identity = self._found()
            self._prepare(schema, create)
            if not self._held(time.monotonic() + _HOLD_SECONDS):
                raise StoreError(f"another gateway runs with the store {server.name}: stop it, or use another store")
        except DatabaseError as error:
            self.close()
            raise StoreError(f"cannot open the store {server.name}: {error}") from None
        except BaseException:
            self.close()
            raise

    def execute(self, query: str, values: Sequence[object] = (), /) -> Rows:
        """Run a statement with a value for each `?`.

        Raises:
            AwayError: there is no connection now.
            DatabaseError: the server cannot run it.
        """
        connection = self._usable()
        try:
            return connection.execute(_translated(query), values, binary=True)
        except psycopg.Error as error:
            raise self._failed(error) from None

    def executemany(self, query: str, rows: Iterable[Sequence[object]], /) -> None:
        """Run a statement that finds nothing once for each row of values."""
        connection = self._usable()
        try:
            with connection.cursor() as cursor:
                cursor.executemany(_translated(query), rows)
        except psycopg.Error as error:
            raise self._failed(error) from None

    def every(self, table: str, /) -> Iterator[Any]:
        """The rows of a table as they are read, within a snapshot."""
        self.execute(f"DECLARE every NO SCROLL CURSOR FOR SELECT * FROM {table}")
        while rows := self.execute(f"FETCH {_PAGE} FROM every").fetchall():
            yield from rows
        self.execute("CLOSE every")

    def copy(self, table: str, rows: Iterable[Sequence[object]], /) -> None:
        """Put many rows into a table: values for all of its columns; those that are numbered are numbered on."""
        connection = self._usable()
        try:
            with connection.cursor() as cursor:
                with cursor.copy(f"COPY {table} FROM STDIN (FORMAT BINARY)") as copy:
                    for row in rows:
                        copy.write_row(row)
                query = "SELECT attname FROM pg_attribute WHERE attrelid=%s::regclass AND attidentity<>''"
                for (column,) in cursor.execute(query, (table,)).fetchall():
                    sequence = f"pg_get_serial_sequence('{table}', '{column}')"
                    cursor.execute(f"SELECT setval({sequence}, coalesce(max({column}), 0) + 1, false) FROM {table}")
        except psycopg.Error as error:
            raise self._failed(error) from None

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All of it becomes durable, or nothing does; inside another one, it is part of that.

        Raises:
            DatabaseError: nothing of it has become durable, or, if the connection broke at its end, all of it may have.
        """
        if self._in_transaction:
            yield
            return
        self.execute("BEGIN")
        self._in_transaction = True
        try:
            yield
            if (said := self._run("COMMIT").statusmessage) != "COMMIT":
                raise DatabaseError(f"the transaction has failed before its end: {said}")
        finally:
            self._roll_back()

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Reads see one state of it; they hold nobody up, and change nothing."""
        if self._in_transaction:
            yield
            return
        self.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        self._in_transaction = True
        try:
            yield
        finally:
            self._roll_back()

    def check(self) -> None:
        """What the server has called durable is its own concern."""

    def damage(self) -> str:
        """Nothing is looked at: the server has checksums for it."""
        return ""

    def rewrite(self) -> None:
        """Write every table anew, so that what was removed is in none of the server's files but its log."""
        query = "SELECT tablename FROM pg_tables WHERE schemaname=?"
        for (table,) in self.execute(query, (self._identity.schema,)).fetchall():
            self.execute(f'VACUUM FULL "{table}"')

    def size(self) -> int:
        """What its tables take on the server's disk, in bytes."""
        query = "SELECT coalesce(sum(pg_total_relation_size(oid)), 0)::bigint FROM pg_class "
        kinds = "WHERE relnamespace=current_schema()::regnamespace AND relkind IN ('r', 'm')"
        return int(self.execute(query + kinds).fetchone()[0])

    def close(self) -> None:
        """Give it back."""
        self._closed = True
        if hasattr(self, "_connection"):
            self._connection.close()

    def _connect(self) -> psycopg.Connection[Any]:
        connection = psycopg.connect(**self._arguments, autocommit=True)
        try:
            connection.adapters.register_dumper(int, Int8BinaryDumper)  # one type, so that one plan serves all numbers
            connection.execute(_SESSION)
        except BaseException:
            connection.close()
            raise
        return connection

    def _found(self) -> _Identity:
        query = (
            "SELECT system_identifier, timeline_id, "
            "(SELECT oid::bigint FROM pg_database WHERE datname=current_database()), "
            "current_schema() FROM pg_control_system(), pg_control_checkpoint()"
        )
        found = _Identity(*self.execute(query).fetchone())
        if found.schema is None:
            raise StoreError(f"{self._server.name} has none of the schemas of its search path: make one")
        return found

    def _prepare(self, schema: str, create: bool) -> None:
        """Make what is new, unless another process was faster.

        Raises:
            StoreError: it is no store, or of another version.
        """
        name = self._server.name
        with self.transaction():
            self.execute("SELECT pg_advisory_xact_lock(?)", (self._key("make"),))
            query = "SELECT count(*) FROM pg_tables WHERE schemaname=?"
            (tables,) = self.execute(query, (self._identity.schema,)).fetchone()
            if not (tables or create):
                raise StoreError(f"there is no store {name}")
            if not tables:
                for statement in _statements(schema):
                    self.execute(statement)
                self._leave_as_it_is()
                self.execute("CREATE TABLE store_format (application BIGINT NOT NULL, version BIGINT NOT NULL)")
                self.execute("INSERT INTO store_format VALUES (?, ?)", (STORE.application, FORMAT))
            marked = self.execute("SELECT to_regclass('store_format') IS NOT NULL").fetchone()[0]
            query = "SELECT application, version FROM store_format"
            application, version = self.execute(query).fetchone() if marked else (0, 0)
            if problem := STORE.problem(name, application, version, tables):
                raise StoreError(problem)

    def _leave_as_it_is(self) -> None:
        """Let the server not try to compress noise: a batch takes twice as long for that."""
        query = "SELECT attrelid::regclass::text, attname FROM pg_attribute JOIN pg_class c ON c.oid=attrelid WHERE "
        query += "relnamespace=current_schema()::regnamespace AND relkind='r' AND atttypid='bytea'::regtype"
        for table, column in self.execute(query).fetchall():
            self.execute(f"ALTER TABLE {table} ALTER {column} SET STORAGE EXTERNAL")

    def _held(self, deadline: float) -> bool:
        """Whether the store is this connection's, or nobody wants to hold it."""
        if self._hold is None:
            return True
        while not self.execute("SELECT pg_try_advisory_lock(?)", (self._key(self._hold),)).fetchone()[0]:
            if time.monotonic() >= deadline:
                return False
            time.sleep(_POLL_SECONDS)
        query = "SELECT pid::bigint, backend_start::text FROM pg_stat_activity WHERE pid=pg_backend_pid()"
        self._holder = self.execute(query).fetchone()
        return True

    def _key(self, name: str) -> int:
        """A number for a lock; the server keeps those of its databases apart."""
        digest = hashlib.sha256(f"fugu\0{self._identity.schema}\0{name}".encode()).digest()
        return int.from_bytes(digest[:8], "big", signed=True)

    def _roll_back(self) -> None:
        """End a transaction, if its end has not been the server's, or the connection's."""
        self._in_transaction = False
        with suppress(psycopg.Error):
            if not self._connection.closed and self._connection.info.transaction_status != TransactionStatus.IDLE:
                self._connection.execute("ROLLBACK")

    def _run(self, query: str) -> psycopg.Cursor[Any]:
        try:
            return self._connection.execute(query)
        except psycopg.Error as error:
            raise self._failed(error) from None

    def _usable(self) -> psycopg.Connection[Any]:
        """The connection, made again if it is time for that."""
        if not self._connection.closed:
            return self._connection
        now = time.monotonic()
        if self._in_transaction or self._closed or now < self._next_try:
            raise AwayError(self._why or "the store is closed")
        self._pause = min(2 * self._pause, _LONGEST_PAUSE_SECONDS)
        try:
            self._connection = self._connect()
        except psycopg.Error as error:
            raise self._failed(error) from None
        try:
            self._take_again()
        except BaseException:
            self._connection.close()
            raise
        self._pause = _FIRST_PAUSE_SECONDS
        return self._connection

    def _take_again(self) -> None:
        """Be sure that the server is the same, and that nobody else has the store.

        Raises:
            FileLostError: it is not, or somebody has.
        """
        found = self._found()
        if found != self._identity:
            raise FileLostError(f"{self._server.name} is another server now, or has another history")
        # A connection that is broken here may live on there, and hold the store.
        query = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid=? AND backend_start::text=?"
        self.execute(query, self._holder)
        if not self._held(time.monotonic() + _TAKE_AGAIN_SECONDS):
            raise FileLostError(f"another gateway has taken the store {self._server.name}")

    def _failed(self, error: psycopg.Error) -> DatabaseError:
        """What is raised for an error of the server's or of the connection."""
        if not self._connection.closed:
            return ServerError(error)
        self._why = f"no connection to {self._server.name}: {_line(error)}"
        self._next_try = time.monotonic() + self._pause
        return AwayError(self._why)


@lru_cache(maxsize=256)
def _translated(query: str) -> str:
    return query.replace("%", "%%").replace("?", "%s")


def _statements(schema: str) -> Iterator[str]:
    """A schema's statements, in the server's words."""
    words = (
        ("INTEGER PRIMARY KEY( AUTOINCREMENT)?", "BIGINT GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY"),
        ("INTEGER", "BIGINT"),
        ("REAL", "DOUBLE PRECISION"),
        ("BLOB", "BYTEA"),
        (r"\s+WITHOUT ROWID", ""),
        (r"lower\(hex\(randomblob\(16\)\)\)", "replace(gen_random_uuid()::text, '-', '')"),
    )
    for word, ours in words:
        schema = re.sub(word, ours, schema)
    yield from filter(str.strip, schema.split(";"))


def _line(error: psycopg.Error) -> str:
    """The first line of what went wrong: the others may tell values."""
    return error.diag.message_primary or next(iter(str(error).strip().splitlines()), type(error).__name__)
