"""What the shards of a fleet and the process of the whole fleet tell each other, in a schema beside that of the store.

Each process holds what it writes under a name of its own: one that was thought dead writes nothing any more once
another one has its place. A shard says how it is, and the fleet's process what releases still need, whatever its age.
Nothing is lost with the schema: it is said again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from fugu.contract.errors import FuguError
from fugu.host.database import SHARDS, DatabaseError
from gateway.database import Kind, Lease, open_engine
from gateway.location import Location, part_of
from gateway.releases.entries import canonical

__all__ = ["KIND", "ShardChannel", "ShardChannelError", "channel_of"]

_SCHEMA = """
CREATE TABLE known (known INTEGER NOT NULL);
INSERT INTO known VALUES (0);
CREATE TABLE needed (device TEXT NOT NULL, stream TEXT NOT NULL, first INTEGER NOT NULL, PRIMARY KEY (device, stream));
CREATE TABLE beats (shard INTEGER PRIMARY KEY, number INTEGER NOT NULL, body BLOB NOT NULL);
"""


class ShardChannelError(FuguError):
    """The channel cannot be used."""


# What is lost with the power is said again: no need to wait for the disk.
KIND = Kind(SHARDS, _SCHEMA, ShardChannelError, durable=False)


def channel_of(store: Location) -> Location:
    """Where the channel of a store's shards is."""
    return part_of(store, "shards")


class Beat(NamedTuple):
    """How a shard was when it last said so: the numbers go up while it lives."""

    number: int
    body: dict[str, Any]


class ShardChannel:
    """An open channel; one thread uses it at a time, several processes have it open.

    Args:
        lease: of what this process says in it; none if it only reads.

    Raises:
        ShardChannelError: it cannot be opened, or another process holds that.
    """

    def __init__(self, location: Location, lease: Lease | None = None) -> None:
        self._db = open_engine(location, KIND, lease=lease)

    def close(self) -> None:
        """Close it, and let others say what this process did."""
        self._db.close()

    def check(self) -> None:
        """See whether this process still has its place.

        Raises:
            FileLostError: it has not.
        """
        self._db.check()

    def begin(self) -> None:
        """Forget what is only of this moment."""
        with self._db.transaction():
            self._db.execute("DELETE FROM beats")
            self._db.execute("UPDATE known SET known=0")

    def say_needed(self, needed: Mapping[tuple[str, str], int]) -> None:
        """Say for device and stream the first tick that is needed whatever its age; nothing else is."""
        with self._db.transaction():
            self._db.execute("DELETE FROM needed")
            self._db.executemany("INSERT INTO needed VALUES (?, ?, ?)", [(*key, tick) for key, tick in needed.items()])
            self._db.execute("UPDATE known SET known=1")

    def needed(self) -> dict[tuple[str, str], int]:
        """What `say_needed` has said.

        Raises:
            DatabaseError: nothing, since the fleet's process was started.
        """
        with self._db.snapshot():
            if not self.known:
                raise DatabaseError("it is not known yet what releases need")
            rows = self._db.execute("SELECT device, stream, first FROM needed").fetchall()
        return {(device, stream): first for device, stream, first in rows}

    @property
    def known(self) -> bool:
        """Whether it was said what releases need."""
        return bool(self._db.execute("SELECT known FROM known").fetchone()[0])

    def beat(self, shard: int, document: Mapping[str, Any]) -> None:
        """Say how a shard is."""
        query = "INSERT INTO beats VALUES (?, 1, ?) ON CONFLICT (shard) DO UPDATE SET number=beats.number+1, body="
        with self._db.transaction():
            self._db.execute(query + "excluded.body", (shard, canonical(document)))

    def beats(self) -> dict[int, Beat]:
        """How each shard was when it last said so."""
        rows = self._db.execute("SELECT shard, number, body FROM beats")
        return {shard: Beat(number, json.loads(body)) for shard, number, body in rows}
