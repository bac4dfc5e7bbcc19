"""A checksum for each record of an SQLite file: a bit that has flipped on the disk is noticed, wherever it is.

SQLite checks how pages fit together, not what is in them. So each table has a column that SQLite itself computes from
all others whenever a row is written, and a view, `intact_TABLE`, of the same rows with one column more: to read that of
a row that does not match its checksum is an error. Statements that decide anything, or hand something on, read the
view, one a statement, and are asked for that column as well. It is no condition of the view: SQLite would compute it
from what a statement asks for in place of what is stored.
"""

from __future__ import annotations

import re
import sqlite3
import zlib
from contextlib import closing
from functools import lru_cache
from typing import Any, Self

import msgpack

__all__ = ["Checking", "add_functions", "damaged_record", "with_checksums"]

_RAISED = "user-defined function raised exception"
_TABLES = "SELECT name FROM sqlite_master WHERE type='table' AND name NOT LIKE 'sqlite_%' ORDER BY name"


def add_functions(db: sqlite3.Connection) -> None:
    """Let a connection write rows of such tables, and read the views."""
    db.create_function("record_sum", -1, _record_sum, deterministic=True)
    db.create_function("is_intact", -1, _is_intact, deterministic=True)


@lru_cache(maxsize=8)
def with_checksums(schema: str) -> tuple[str, frozenset[tuple[str, str, str]]]:
    """A schema's statements with checksums and views; and what is in `sqlite_master` then: type, name, text of each."""
    with closing(sqlite3.connect(":memory:")) as db:
        db.executescript(schema)
        columns = {
            table: ", ".join(f'"{column[1]}"' for column in db.execute(f"PRAGMA table_info({table})"))
            for (table,) in db.execute(_TABLES).fetchall()
        }
    script = re.sub(
        r"CREATE TABLE (\w+) \(",
        lambda found: f"{found[0]}record_sum INTEGER AS (record_sum({columns[found[1]]})) STORED, ",
        schema,
    )
    for table, names in columns.items():
        check = f"is_intact(record_sum, {names}) AS is_intact"
        script += f"CREATE VIEW intact_{table} AS SELECT {names}, {check} FROM {table};\n"
    with closing(sqlite3.connect(":memory:")) as db:
        add_functions(db)
        db.executescript(script)
        return script, frozenset(db.execute("SELECT type, name, sql FROM sqlite_master WHERE sql IS NOT NULL"))


def damaged_record(db: sqlite3.Connection, table: str = "") -> str:
    """Read all rows of a table, or of every table, and say in a line of which one does not match its checksum."""
    add_functions(db)
    views = [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE name LIKE 'intact!_%' ESCAPE '!'")]
    for view in views if not table else [f"intact_{table}"] if f"intact_{table}" in views else ():
        try:
            sqlite3.Cursor(db).execute(f"SELECT count(is_intact) FROM {view}").fetchone()
        except sqlite3.OperationalError as error:
            if str(error) != _RAISED:
                raise
            return f"a record of its table {view.removeprefix('intact_')} does not match its checksum"
    return ""


class Checking(sqlite3.Cursor):
    """A cursor for a statement that reads one such view; SQLITE_CORRUPT if a row does not match its checksum."""

    def execute(self, query: str, values: Any = (), /) -> Self:
        """Run it, and ask for the check as well."""
        if not query.startswith("SELECT *"):
            query = query.replace(" FROM intact_", ", is_intact FROM intact_", 1)
        try:
            return super().execute(query, values)
        except sqlite3.OperationalError as error:
            raise _named(error) from None

    def __next__(self) -> Any:
        try:
            return super().__next__()[:-1]
        except sqlite3.OperationalError as error:
            raise _named(error) from None

    def fetchone(self) -> Any:
        """The next row, `None` if there is none."""
        return next(self, None)

    def fetchall(self) -> list[Any]:
        """The rows that are left."""
        return list(self)


def _named(error: sqlite3.OperationalError) -> sqlite3.DatabaseError:
    if str(error) != _RAISED:
        return error
    found = sqlite3.DatabaseError("a record does not match its checksum")
    found.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
    return found


def _record_sum(*values: Any) -> int:
    return zlib.crc32(msgpack.packb(values))


def _is_intact(stored: Any, *values: Any) -> bool:
    if stored != _record_sum(*values):
        raise ValueError  # SQLite passes on that it was raised, nothing else
    return True
