"""SQLite: databases of programs that are known, opened so that nothing is written beside them or run from them."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Protocol
from urllib.parse import quote

from fugu.recordings.errors import RecordingError
from fugu.recordings.file import File
from fugu.recordings.forms.gadgetbridge import Gadgetbridge
from fugu.recordings.forms.recorder import Recorder
from fugu.recordings.table import Only, Table

__all__ = ["Sqlite"]

_MAGIC = b"SQLite format 3\0"
_MOST_CELL = 1 << 20
"""Bytes of a cell, or of a statement."""


class _Program(Protocol):
    """A program whose database is known by the names of its tables."""

    def knows(self, tables: list[str]) -> bool:
        """Return whether a database with these tables is its."""

    def read(self, database: sqlite3.Connection, file: File, only: Only) -> Table:
        """Read its readings."""


_PROGRAMS: tuple[_Program, ...] = (Recorder(), Gadgetbridge())


class Sqlite:
    """A database of Home Assistant's recorder or of Gadgetbridge."""

    def sniff(self, head: bytes, name: str) -> bool:
        """Return whether it is SQLite."""
        return head.startswith(_MAGIC)

    def read(self, file: File, only: Only) -> Table:
        """Read the readings of the program whose database it is."""
        with _opened(file) as database:
            # Views may run anything, and are no tables.
            rows = database.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND rootpage > 0")
            tables = [str(name) for (name,) in rows]
            for program in _PROGRAMS:
                if program.knows(tables):
                    return program.read(database, file, only)
        raise RecordingError(
            f"{file.name} is a SQLite database of a program that is not known: export a table of it by "
            "sqlite3 -header -csv FILE 'SELECT ...' > mine.csv"
        )


@contextmanager
def _opened(file: File) -> Iterator[sqlite3.Connection]:
    """Open a database read-only and immutable: no lock, no journal, no temporary file, no code of its schema.

    Raises:
        RecordingError: it is zipped, or cannot be read.
    """
    if file.zipped:
        raise RecordingError(f"{file.name} is a zipped SQLite database: unpack it by gunzip")
    size, pages = int.from_bytes(file.head[16:18]), int.from_bytes(file.head[28:32])
    if file.path.stat().st_size < (1 << 16 if size == 1 else size) * pages:  # what is absent would be read as zeros
        raise RecordingError(f"{file.name} is a SQLite database that breaks off: copy it while nothing writes to it")
    try:
        where = f"file:{quote(str(file.path.resolve()))}?mode=ro&immutable=1"
        with closing(sqlite3.connect(where, uri=True)) as database:
            database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _MOST_CELL)
            for pragma in ("trusted_schema = OFF", "query_only = ON", "temp_store = MEMORY"):
                database.execute(f"PRAGMA {pragma}")
            yield database
    except (sqlite3.Error, OverflowError, UnicodeDecodeError) as error:
        kind = type(error).__name__
        raise RecordingError(
            f"{file.name} is a SQLite database that cannot be read ({kind}): copy it while nothing writes to it"
        ) from None
