"""Opens the engine of a location: SQLite for a file, PostgreSQL for a server."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from gateway.store.engine import Database, DatabaseKind, Lease, SQLiteDatabase
from gateway.store.location import Location

if TYPE_CHECKING:
    from gateway.store.postgresql import PostgresDatabase


__all__ = ["is_there", "open_engine"]


def open_engine(
    location: Location, kind: DatabaseKind, *, create: bool = True, lease: Lease | None = None, read_only: bool = False
) -> Database:
    """Open a database.

    Args:
        create: whether a missing database is created; never with `read_only`.
        lease: the right to write, which this process takes; `None` to open the database without one.
        read_only: nothing is written, and no other process waits for this one.

    Raises `kind.refused` if the database cannot be opened, is held, or of another kind or version.
    """
    if isinstance(location, Path):
        return SQLiteDatabase(location, kind, create=create, lease=lease, read_only=read_only)
    return _on_server(kind)(location, kind, create=create and not read_only, lease=lease, read_only=read_only)


def is_there(location: Location, kind: DatabaseKind) -> bool:
    """Tell whether a file is there and not empty, or a schema has a table. `kind.refused` if no server answers."""
    if isinstance(location, Path):
        return location.exists() and location.stat().st_size > 0
    return _on_server(kind).is_there(location, kind)


def _on_server(kind: DatabaseKind) -> type[PostgresDatabase]:
    """The engine for servers, imported only when needed. Raises `kind.refused` if its library is not installed."""
    try:
        from gateway.store.postgresql import PostgresDatabase
    except ImportError as error:
        need = f"a {kind.file.name} on a server needs {error.name}"
        raise kind.refused(f"{need}: pip install 'fugu-edge[postgres]'") from None
    return PostgresDatabase
