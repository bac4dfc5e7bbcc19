"""Tables in a schema of a PostgreSQL server.

A broken connection is made again, at the first use after a pause that grows. Until then, every use raises an
`AwayError`. Rows that were not committed are lost, and were never called durable.

A lease is a lock of the connection that writes, and an epoch: a number that goes up whenever a process takes the lease.
Every transaction that writes begins with a lock and a check of the epoch. So a process that was frozen or cut off can
write nothing once another one has taken its lease. An old transaction ends with its session, and a new one finds
another epoch.

The lock is the schema's. Processes whose leases have `shares` write side by side: they share the schema's lock, and
each has a lock of its own. They also check a second epoch, that of their generation. A process that begins a new
generation has the schema's lock alone.
"""

from __future__ import annotations

import hashlib
import re
import select
import sqlite3
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from functools import lru_cache
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import TransactionStatus
from psycopg.sql import SQL, Identifier
from psycopg.types.numeric import Int8BinaryDumper

from fugu.contract.errors import cause
from fugu.host.database import FORMAT, AwayError, DatabaseError, FileLostError
from gateway.store.engine import DatabaseKind, Lease, Rows
from gateway.store.location import Server

__all__ = ["PostgresDatabase"]


_UNLOCK_SECONDS = 2.0
_DEFAULTS = {
    "application_name": "fugu-gateway",
    "connect_timeout": "5",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "20000",
}
# The server, too, has to notice soon that a gateway's machine has gone, and to give the lease back.
_SESSION = (
    "SET synchronous_commit = {}; SET lock_timeout = {}; SET client_min_messages = warning; "
    "SET tcp_keepalives_idle = 10; SET tcp_keepalives_interval = 5; SET tcp_keepalives_count = 3; "
    "SET tcp_user_timeout = 20000"
)
STOPPED_SECONDS = 30.0
"""Silence in a transaction after which the server ends it: a frozen process must not keep all others from beginning."""
_HOLD_SECONDS = 0.1
"""Time that the server may take to release the locks of a killed process."""
_TAKE_SECONDS = 5.0
_MAKE_SECONDS = 300.0
"""Time that another process may take to make the tables that this one opens, if several start on a busy server."""
_POLL_SECONDS = 0.05
_FIRST_PAUSE_SECONDS = 0.1
_LONGEST_PAUSE_SECONDS = 5.0
_GENERATION = "generation"
"""Name of the epoch that all leases with `shares` check."""
_LOCKS = (
    "FROM pg_locks JOIN pg_stat_activity USING (pid) WHERE locktype='advisory' AND granted AND objsubid=1 "
    "AND database=(SELECT oid FROM pg_database WHERE datname=current_database())"
)
_NEXT_EPOCH = "INSERT INTO holders VALUES (?, 1) ON CONFLICT (name) DO UPDATE SET epoch=holders.epoch+1 RETURNING epoch"
_KEY = "(classid::bigint << 32 | objid::bigint)"
_SILENCE = "(CASE WHEN state LIKE 'idle%' THEN extract(epoch FROM clock_timestamp()-state_change) ELSE 0 END)::float8"
"""Silence of a session in seconds, by the server's clock; a session that the server works for is not silent."""
_CODES = {"53100": sqlite3.SQLITE_FULL, "XX001": sqlite3.SQLITE_CORRUPT, "XX002": sqlite3.SQLITE_CORRUPT}
"""Error codes of SQLite for the conditions of PostgreSQL that `fugu.host.database` asks for."""


class PostgresDatabase:
    """A `Database` on a server, in the first schema of the search path, or in a part's schema beside that.

    Args:
        create: whether missing tables are made.
        lease: the right to write, which this process takes; `None` to write without one.
        read_only: whether the server refuses to write.

    Raises FuguError if the database cannot be opened, is of another kind or version, or its lease is held.
    """

    def __init__(
        self,
        server: Server,
        kind: DatabaseKind,
        *,
        create: bool = False,
        lease: Lease | None = None,
        read_only: bool = False,
    ) -> None:
        self._server = server
        self._read_only = read_only
        self._kind = kind
        self._lease = lease
        self._epochs = (0, 0)
        self._in_transaction = False
        self._closed = False
        self._lost: FileLostError | None = None
        self._failure_words = ""
        self._next_try = 0.0
        self._pause = _FIRST_PAUSE_SECONDS
        self._schema = ""
        database_name = f"the {kind.file.name} {server.name}"
        try:
            self._connection = self._connect(_MAKE_SECONDS)
        except psycopg.Error as error:
            raise kind.refused(f"cannot open {database_name}: {_first_line(error)}") from None
        try:
            self._identity = self._server_identity()
            *_, self._schema = self._identity
            self._prepare(create)
            if lease is not None and not self._take_lease(lease):
                holder_text = self._holder_text(lease)
                raise kind.refused(
                    f"another gateway runs with {database_name}{holder_text}: stop it, or use another {kind.file.name}"
                )
        except DatabaseError as error:
            self.close()
            raise kind.refused(f"cannot open {database_name}: {error}") from None
        except BaseException:
            self.close()
            raise

    def execute(self, query: str, values: Sequence[object] = (), /) -> Rows:
        """Run a statement with a value for each `?`.

        Raises:
            AwayError: there is no connection now.
            FileLostError: the statement would write, and another process has taken the lease.
            DatabaseError: the server cannot run the statement.
        """
        with nullcontext() if query.startswith("SELECT") else self.transaction(), self._use_connection() as connection:
            return connection.execute(_translated(query), values, binary=True)

    def executemany(self, query: str, rows: Iterable[Sequence[object]], /) -> None:
        """Run a statement that returns nothing once for each row of values."""
        with self.transaction(), self._use_connection() as connection, connection.cursor() as cursor:
            cursor.executemany(_translated(query), rows)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Make all changes durable, or none; a transaction inside another one is part of that.

        Raises:
            FileLostError: another process has taken the lease; nothing is written.
            DatabaseError: nothing is durable, or, if the connection broke at the end, all of it may be.
        """
        if self._in_transaction:
            yield
            return
        with self._write_transaction("write", self._lease):
            yield

    @contextmanager
    def new_generation(self, lease_names: Iterable[str], /) -> Iterator[None]:
        """Begin a transaction that keeps out all other writers. After it, earlier leases with `shares` are void.

        Other sessions that hold the leases called `lease_names` are ended first, because one may be frozen. Raises
        FileLostError if another process has taken this one's lease, or DatabaseError; nothing is changed then.
        """
        for lease_name in lease_names:
            self._end_sessions(Lease(lease_name))
        with self._write_transaction("write", self._lease, exclusive=True):
            yield
            (epoch,) = self.execute(_NEXT_EPOCH, (_GENERATION,)).fetchone()
        if self._lease is not None and self._lease.shares:
            self._epochs = self._epochs[0], epoch

    @contextmanager
    def _write_transaction(self, lock: str, lease: Lease | None, *, exclusive: bool = False) -> Iterator[None]:
        """A transaction under a lock of the schema and the locks of a lease. FileLostError if the lease was taken.

        `exclusive` keeps out leases with `shares`.
        """
        query = "BEGIN"
        if lease is not None and lease.shares and not exclusive:
            query += f"; SELECT pg_advisory_xact_lock_shared({self._lock_key(lock, 'schema')})"
            lock = _write_lock(lease)
        query += f"; SELECT pg_advisory_xact_lock({self._lock_key(lock, 'schema')})"
        if lease is not None:
            query += f"; {_epochs(lease)}"
        try:
            cursor = self._run(query)
            if lease is not None:
                while cursor.nextset():
                    pass
                self._check_epochs(cursor.fetchone())
            self._in_transaction = True
            yield
            if (status := self._run("COMMIT").statusmessage) != "COMMIT":
                raise DatabaseError(f"the transaction has failed before its end: {status}")
        finally:
            self._roll_back()

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Let reads see one state of the database; they block no writer, and change nothing."""
        if self._in_transaction:
            yield
            return
        self._run("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        self._in_transaction = True
        try:
            yield
        finally:
            self._roll_back()

    def silence(self, lease_names: Iterable[str]) -> dict[str, float]:
        """The silence in seconds of each session that holds a lease, by the lease's name."""
        names_by_lock = {self._lock_key(name): name for name in lease_names}
        lock_rows = self.execute(f"SELECT {_KEY}, {_SILENCE} {_LOCKS}")
        return {names_by_lock[lock_key]: seconds for lock_key, seconds in lock_rows if lock_key in names_by_lock}

    def check(self) -> None:
        """Check that this process still has its lease. FileLostError if not, AwayError without a connection."""
        if self._lease is not None and not self._in_transaction:
            self._check_epochs(self.execute(_epochs(self._lease)).fetchone())

    def damage(self, _tables: Iterable[str] = ("",), /) -> str:
        """Return '': the server itself checks its pages by checksums."""
        return ""

    def rewrite(self) -> None:
        """Write every table anew, so that removed rows are in none of the server's files but its log."""
        query = "SELECT tablename FROM pg_tables WHERE schemaname=?"
        for (table,) in self.execute(query, (self._schema,)).fetchall():
            self._run(f'VACUUM FULL "{table}"')

    def size(self) -> int:
        """The bytes of the schema's tables on the server's disk."""
        query = "SELECT coalesce(sum(pg_total_relation_size(oid)), 0)::bigint FROM pg_class "
        kinds = "WHERE relnamespace=current_schema()::regnamespace AND relkind IN ('r', 'm')"
        return int(self.execute(query + kinds).fetchone()[0])

    @staticmethod
    def is_there(server: Server, kind: DatabaseKind) -> bool:
        """Tell whether there is a table in the schema. Raises `kind.refused` if the server does not answer."""
        query = "SELECT 1 FROM pg_tables WHERE schemaname=%s LIMIT 1"
        try:
            with psycopg.connect(**_connection_options(server)) as connection:
                return connection.execute(query, (_own_schema(connection, server),)).fetchone() is not None
        except psycopg.Error as error:
            raise kind.refused(f"cannot open the {kind.file.name} {server.name}: {_first_line(error)}") from None

    def close(self) -> None:
        """Give the lease back, and close the connection."""
        self._closed = True
        self._unlock()
        self._connection.close()

    def _unlock(self) -> None:
        """Give the lease back before the connection ends, because the server ends a session only a moment later."""
        if self._lease is None or self._connection.info.transaction_status != TransactionStatus.IDLE:
            return
        with suppress(psycopg.Error):
            self._connection.pgconn.send_query(b"SELECT pg_advisory_unlock_all()")
            self._connection.pgconn.flush()
            select.select([self._connection.pgconn.socket], [], [], _UNLOCK_SECONDS)  # a frozen server does not answer

    def _connect(self, wait_seconds: float) -> psycopg.Connection[Any]:
        """Connect to the server; statements wait at most `wait_seconds` for a lock."""
        connection = psycopg.connect(**_connection_options(self._server))
        try:
            connection.adapters.register_dumper(int, Int8BinaryDumper)  # one type, so that one plan serves all numbers
            durable, wait_ms = "on" if self._kind.durable else "off", round(wait_seconds * 1000)
            connection.execute(_SESSION.format(durable, wait_ms))
            if self._read_only:
                connection.execute("SET default_transaction_read_only = on")
            else:
                connection.execute(f"SET idle_in_transaction_session_timeout = {round(STOPPED_SECONDS * 1000)}")
            if self._server.part and (schema := _own_schema(connection, self._server)) is not None:
                connection.execute(SQL("SET search_path = {}").format(Identifier(schema)))
        except BaseException:
            connection.close()
            raise
        return connection

    def _server_identity(self) -> tuple[int, int, int, str]:
        """The identities of server, history (new after a restore or a standby's takeover) and database; the schema."""
        query = (
            "SELECT system_identifier, timeline_id, "
            "(SELECT oid::bigint FROM pg_database WHERE datname=current_database()), "
            "current_setting('search_path'), current_schema() FROM pg_control_system(), pg_control_checkpoint()"
        )
        system, timeline, database, search_path, schema = self.execute(query).fetchone()
        if schema is None and not self._server.part:
            raise self._kind.refused(f"{self._server.name} has none of the schemas of its search path: make one")
        return system, timeline, database, schema or search_path.strip('"')  # a part's schema may not exist yet

    def _prepare(self, create: bool) -> None:
        """Create missing tables, unless another process was faster. FuguError for another kind or version."""
        server_name, kind = self._server.name, self._kind
        with self._write_transaction("make", None):
            self.execute(f"SET lock_timeout = {round(kind.wait_seconds * 1000)}")
            query = "SELECT count(*) FROM pg_tables WHERE schemaname=?"
            (table_count,) = self.execute(query, (self._schema,)).fetchone()
            if not (table_count or create):
                raise kind.refused(f"there is no {kind.file.name} {server_name}")
            if not table_count:
                if self._server.part:
                    self.execute(f'CREATE SCHEMA IF NOT EXISTS "{self._schema}"')
                for statement in _statements(kind.schema):
                    self.execute(statement)
                self._disable_compression()
                self.execute("CREATE TABLE holders (name TEXT PRIMARY KEY, epoch BIGINT NOT NULL)")
                self.execute("CREATE TABLE store_format (application BIGINT NOT NULL, version BIGINT NOT NULL)")
                self.execute("INSERT INTO store_format VALUES (?, ?)", (kind.file.application_id, FORMAT))
            has_format = self.execute("SELECT to_regclass('store_format') IS NOT NULL").fetchone()[0]
            application, version = (
                self.execute("SELECT application, version FROM store_format").fetchone() if has_format else (0, 0)
            )
            if problem := kind.file.problem(server_name, application, version, table_count):
                raise kind.refused(problem)

    def _disable_compression(self) -> None:
        """Keep the server from compressing bytes, which are noise: a batch would take twice as long."""
        query = "SELECT attrelid::regclass::text, attname FROM pg_attribute JOIN pg_class c ON c.oid=attrelid WHERE "
        query += "relnamespace=current_schema()::regnamespace AND relkind='r' AND atttypid='bytea'::regtype"
        for table, column in self.execute(query).fetchall():
            self.execute(f"ALTER TABLE {table} ALTER {column} SET STORAGE EXTERNAL")

    def _take_lease(self, lease: Lease) -> bool:
        """Take a lease. Return false if another process has it and keeps it."""
        if lease.take:
            self._end_sessions(lease)  # one of them may be in a transaction, and have the write lock
            self._new_epoch(lease)  # its former holder can write nothing from here on
        elif lease.silent is not None:
            self._end_sessions(lease, lease.silent)
        give_up_time = time.monotonic() + (_TAKE_SECONDS if lease.take else _HOLD_SECONDS)
        if not self._try_lock(lease, give_up_time, end_others=lease.take):
            return False
        if not lease.take:
            self._new_epoch(lease)
        return True

    def _new_epoch(self, lease: Lease) -> None:
        """Raise a lease's epoch, and note the epochs in which this process has it."""
        with self._write_transaction(_write_lock(lease), None):
            self.execute(_NEXT_EPOCH, (lease.name,))
            self._epochs = self.execute(_epochs(lease)).fetchone()

    def _try_lock(self, lease: Lease, deadline: float, *, end_others: bool) -> bool:
        """Take a lease's lock by the deadline. Return whether this session has it; `end_others` ends other holders."""
        while not self.execute("SELECT pg_try_advisory_lock(?)", (self._lock_key(lease.name),)).fetchone()[0]:
            if time.monotonic() >= deadline:
                return False
            if end_others:
                self._end_sessions(lease)
            time.sleep(_POLL_SECONDS)
        return True

    def _end_sessions(self, lease: Lease, silent: float = 0.0) -> None:
        """End the other sessions that have a lease's lock, if they are silent for `silent` seconds or more."""
        query = f"SELECT pg_terminate_backend(pid) {_LOCKS} AND {_KEY}=? AND pid<>pg_backend_pid() AND {_SILENCE}>=?"
        self.execute(query, (self._lock_key(lease.name), silent)).fetchall()

    def _holder_text(self, lease: Lease) -> str:
        """Describe the session that has a lease's lock by its client's address and server process; '' without one."""
        query = f"SELECT pid, COALESCE(host(client_addr), 'its machine') {_LOCKS} AND {_KEY}=?"
        holder_row = self.execute(query, (self._lock_key(lease.name),)).fetchone()
        return "" if holder_row is None else f" (from {holder_row[1]}, by the server's process {holder_row[0]})"

    def _check_epochs(self, epochs: Any) -> None:
        """Raise FileLostError, for good, unless the epochs are those in which this process took its lease."""
        if epochs != self._epochs:
            name = f"the {self._kind.file.name} {self._server.name}"
            reason = f"another generation of processes has {name}"
            self._lost = FileLostError(reason if epochs[0] == self._epochs[0] else f"another process has taken {name}")
            self._connection.close()
            raise self._lost

    def _lock_key(self, name: str, purpose: str = "lease") -> int:
        """The number of a lock; the server keeps the locks of its databases apart."""
        digest = hashlib.sha256(f"fugu\0{self._schema}\0{purpose}\0{name}".encode()).digest()
        return int.from_bytes(digest[:8], "big", signed=True)

    def _roll_back(self) -> None:
        self._in_transaction = False
        with suppress(psycopg.Error):
            if not self._connection.closed and self._connection.info.transaction_status != TransactionStatus.IDLE:
                self._connection.execute("ROLLBACK")

    def _run(self, query: str) -> psycopg.Cursor[Any]:
        """Run statements without values, all in one message."""
        with self._use_connection() as connection:
            return connection.execute(query)

    @contextmanager
    def _use_connection(self) -> Iterator[psycopg.Connection[Any]]:
        """Give the connection. An error of the server within the context becomes a DatabaseError."""
        connection = self._live_connection()
        try:
            yield connection
        except psycopg.Error as error:
            raise self._error_of(error) from None

    def _live_connection(self) -> psycopg.Connection[Any]:
        """The connection, made again if it is broken and the pause is over. AwayError if there is none."""
        if self._lost is not None:
            raise self._lost
        if not self._connection.closed:
            return self._connection
        now = time.monotonic()
        if self._in_transaction or self._closed or now < self._next_try:
            raise AwayError(self._failure_words or "the store is closed")
        self._pause = min(2 * self._pause, _LONGEST_PAUSE_SECONDS)
        try:
            self._connection = self._connect(self._kind.wait_seconds)
        except psycopg.Error as error:
            raise self._error_of(error) from None
        try:
            self._check_lease()
        except BaseException:
            self._connection.close()
            raise
        self._pause = _FIRST_PAUSE_SECONDS
        return self._connection

    def _check_lease(self) -> None:
        """Raise FileLostError if the server is another one, or another process has taken the lease."""
        identity = self._server_identity()
        if identity != self._identity:
            raise FileLostError(f"{self._server.name} is another server now, or has another history")
        if self._lease is not None:
            self.check()
            # A session that is broken here may live on at the server with the lock: in this epoch it is this process's.
            if not self._try_lock(self._lease, time.monotonic() + _TAKE_SECONDS, end_others=True):
                raise AwayError(f"{self._server.name} has a session of before that does not end")

    def _error_of(self, error: psycopg.Error) -> DatabaseError:
        """Convert a server's error; without a connection to an AwayError, and begin a pause before the next attempt."""
        if not self._connection.closed:
            database_error = DatabaseError(_first_line(error))
            database_error.sqlite_errorcode = _CODES.get(error.sqlstate or "", 0)
            return database_error
        self._failure_words = f"no connection to {self._server.name}: {_first_line(error)}"
        self._next_try = time.monotonic() + self._pause
        return AwayError(self._failure_words)


def _connection_options(server: Server) -> dict[str, Any]:
    """The options of each connection to a server; the server's URL may override the defaults."""
    return _DEFAULTS | conninfo_to_dict(server.url) | {"autocommit": True}


def _own_schema(connection: psycopg.Connection[Any], server: Server) -> str | None:
    """The first schema of the search path, or the server's part beside it; `None` if there is no first one."""
    (schema,) = connection.execute("SELECT current_schema()").fetchone() or (None,)
    return schema if schema is None or not server.part else f"{schema}_{server.part.replace('-', '_')}"


def _write_lock(lease: Lease) -> str:
    return f"writer {lease.name}" if lease.shares else "write"


def _epochs(lease: Lease) -> str:
    """A query for the epochs of a lease and of its generation; a missing epoch is 0."""
    lease_names = (lease.name, _GENERATION) if lease.shares else (lease.name,)
    queries = [f"coalesce((SELECT epoch FROM holders WHERE name='{name}'), 0)" for name in lease_names]
    return f"SELECT {', '.join([*queries, '0'][:2])}"


@lru_cache(maxsize=256)
def _translated(query: str) -> str:
    """Translate a query for the server. It has no `intact_` views of rows with matching checksums."""
    return re.sub(r"\bintact_(\w+)", r"\1", query).replace("%", "%%").replace("?", "%s")


def _statements(schema: str) -> Iterator[str]:
    """The statements of a schema, with the server's types."""
    replacements = (
        ("INTEGER PRIMARY KEY( AUTOINCREMENT)?", "BIGINT GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY"),
        ("INTEGER", "BIGINT"),
        ("REAL", "DOUBLE PRECISION"),
        ("BLOB", "BYTEA"),
        (r"\s+WITHOUT ROWID", ""),
        (r"lower\(hex\(randomblob\(16\)\)\)", "replace(gen_random_uuid()::text, '-', '')"),
    )
    for pattern, replacement in replacements:
        schema = re.sub(pattern, replacement, schema)
    yield from filter(str.strip, schema.split(";"))


def _first_line(error: psycopg.Error) -> str:
    """The first line of an error: further lines may have values of rows."""
    return error.diag.message_primary or next(iter(str(error).strip().splitlines()), cause(error))
