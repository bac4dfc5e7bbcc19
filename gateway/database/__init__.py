"""Tables in a file (SQLite) or in a schema of a server (PostgreSQL), asked by the same words."""

from __future__ import annotations

from gateway.database.engine import MOST_VALUES, Database, Kind, Lease, Rows, batched, file_bytes, lock_file, marks
from gateway.database.opening import is_there, open_engine

__all__ = [
    "MOST_VALUES",
    "Database",
    "Kind",
    "Lease",
    "Rows",
    "batched",
    "file_bytes",
    "is_there",
    "lock_file",
    "marks",
    "open_engine",
]
