"""Opens the engine that a location says."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from gateway.store.engine import Database, Kind, Lease, SQLiteDatabase
from gateway.store.location import Location

if TYPE_CHECKING:
    from gateway.store.postgresql import PostgresDatabase


__all__ = ["is_there", "open_engine"]


def open_engine(
    location: Location, kind: Kind, *, create: bool = True, lease: Lease | None = None, read_only: bool = False
) -> Database:
    """Open a database, and make it if it is new and `create`.

    `lease` is for this process alone; None if it shares it. If `read_only`, it must be there, nothing is written, and
    nobody waits for this process. Raises `kind.refused` if it cannot be opened, is held, or of another kind or version.
    """
    if isinstance(location, Path):
        return SQLiteDatabase(location, kind, create=create, lease=lease, read_only=read_only)
    return _on_server(kind)(location, kind, create=create and not read_only, lease=lease, read_only=read_only)


def is_there(location: Location, kind: Kind) -> bool:
    """True if there is anything in a file or a schema. Raises `kind.refused` if the server does not say."""
    if isinstance(location, Path):
        return location.exists() and location.stat().st_size > 0
    return _on_server(kind).is_there(location, kind)


def _on_server(kind: Kind) -> type[PostgresDatabase]:
    try:
        from gateway.store.postgresql import PostgresDatabase
    except ImportError as error:
        raise kind.refused(
            f"a {kind.file.name} on a server needs {error.name}: pip install 'fugu-edge[postgres]'"
        ) from None
    return PostgresDatabase
