"""Opens the engine that a location says, and finds the parts that are kept beside something."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from gateway.database.engine import Database, Kind, Lease, SQLiteDatabase
from gateway.location import Location, part_of

if TYPE_CHECKING:
    from gateway.database.postgresql import PostgresDatabase

__all__ = ["delete_part", "is_there", "open_engine", "parts_of"]


def open_engine(
    location: Location, kind: Kind, *, create: bool = True, lease: Lease | None = None, read_only: bool = False
) -> Database:
    """Open a database, and make it if it is new.

    Args:
        create: whether it may be made; else it must be there.
        lease: for this process alone; none if it shares it.
        read_only: it must be there, nothing is written, and nobody waits for this process.

    Raises:
        FuguError: `kind.refused`: it cannot be opened, is of another kind or version, or another process holds it.
    """
    if isinstance(location, Path):
        return SQLiteDatabase(location, kind, create=create, lease=lease, read_only=read_only)
    return _on_server(kind)(location, kind, create=create and not read_only, lease=lease, read_only=read_only)


def is_there(location: Location, kind: Kind) -> bool:
    """Whether there is anything in a file, or in the schema, whatever it is.

    Raises:
        FuguError: `kind.refused`: the server does not say.
    """
    if isinstance(location, Path):
        return location.exists() and location.stat().st_size > 0
    return _on_server(kind).is_there(location, kind)


def parts_of(location: Location, kind: Kind, prefix: str) -> dict[str, Location]:
    """The parts that there are beside something whose names begin like this, in the order of their names.

    Raises:
        FuguError: `kind.refused`: the server does not say.
    """
    if isinstance(location, Path):
        name = re.compile(re.escape(f"{location.stem}-") + f"({prefix}[a-z0-9-]*)" + re.escape(location.suffix))
        files = location.parent.iterdir() if location.parent.is_dir() else ()
        found = [match[1] for path in files if (match := name.fullmatch(path.name))]
    else:
        found = _on_server(kind).parts(location, kind, prefix)
    return {part: part_of(location, part) for part in sorted(found)}


def delete_part(location: Location, kind: Kind) -> None:
    """Delete what is kept there, and whatever belongs to it.

    Raises:
        FuguError: `kind.refused`: somebody uses it, or the server does not do it.
    """
    open_engine(location, kind, create=False, lease=Lease()).remove()


def _on_server(kind: Kind) -> type[PostgresDatabase]:
    try:
        from gateway.database.postgresql import PostgresDatabase
    except ImportError as error:
        raise kind.refused(
            f"a {kind.file.name} on a server needs {error.name}: pip install 'fugu-edge[postgres]'"
        ) from None
    return PostgresDatabase
