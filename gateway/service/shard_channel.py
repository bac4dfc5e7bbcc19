"""What the shards of a fleet and the process of the whole fleet tell each other: small tables, looked at now and then.

They are in a file or on a server, beside the store. Each process holds what it writes under a name of its own: one that
was thought dead writes nothing any more once another one has its place.

A question is of all shards; each has at most one answer to it from each of them, under the digest of the question as it
was read. So an answer to another question is never taken for one to this, whoever was started again in between, and
what was asked and answered is still there after a crash. Nothing in here is lost with the file: it is asked again.

A shard also says now and then how it is, and the fleet's process what releases still need, whatever its age, and for
how many shards devices are arranged.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from fugu.contract.errors import FuguError
from fugu.host.database import SHARDS, DatabaseError
from fugu.host.held_files import FileLostError
from gateway.database import Kind, Lease, open_engine
from gateway.location import Location
from gateway.releases.entries import canonical

__all__ = ["KIND", "Asked", "Beat", "ShardChannel", "ShardChannelError"]

_SCHEMA = """
CREATE TABLE layout (shards INTEGER NOT NULL, known INTEGER NOT NULL);
INSERT INTO layout VALUES (0, 0);
CREATE TABLE questions (name TEXT PRIMARY KEY, digest TEXT NOT NULL, body BLOB NOT NULL);
CREATE TABLE answers (
    name TEXT NOT NULL, shard INTEGER NOT NULL, digest TEXT NOT NULL, body BLOB NOT NULL, PRIMARY KEY (name, shard));
CREATE TABLE needed (device TEXT NOT NULL, stream TEXT NOT NULL, first INTEGER NOT NULL, PRIMARY KEY (device, stream));
CREATE TABLE beats (shard INTEGER PRIMARY KEY, number INTEGER NOT NULL, body BLOB NOT NULL);
"""


class ShardChannelError(FuguError):
    """The channel cannot be used."""


# What is lost with the power is asked and answered again: no need to wait for the disk.
KIND = Kind(SHARDS, _SCHEMA, ShardChannelError, durable=False)


class Asked(NamedTuple):
    """A question: what it is called, and the SHA-256 of its body, in hexadecimal."""

    name: str
    digest: str


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

    def check(self, shards: int) -> None:
        """See whether this process still has its place, and there are still as many shards.

        Raises:
            FileLostError: it has not, or there are not.
        """
        self._db.check()
        if (found := self.shards) != shards:
            raise FileLostError(f"the stores are arranged for {found or 'other'} shards now, not for {shards}")

    # The fleet's process

    def begin(self, shards: int) -> None:
        """Say for how many shards devices are arranged, 0 while they are moved.

        With another number, all that was asked and answered is forgotten, and else what is only of this moment.
        """
        with self._db.transaction():
            if self.shards != shards:
                for table in ("questions", "answers", "needed"):
                    self._db.execute(f"DELETE FROM {table}")
            self._db.execute("DELETE FROM questions WHERE name NOT LIKE 'count:%'")
            self._db.execute("DELETE FROM beats")
            self._db.execute("UPDATE layout SET shards=?, known=0", (shards,))

    @property
    def shards(self) -> int:
        """For how many shards devices are arranged, 0 while they are moved or before that was said."""
        return int(self._db.execute("SELECT shards FROM layout").fetchone()[0])

    def ask(self, name: str, document: Mapping[str, Any]) -> Asked:
        """Ask all shards, in place of what was asked under this name before; answers to the same question stay."""
        body = canonical(document)
        asked = Asked(name, hashlib.sha256(body).hexdigest())
        row = self._db.execute("SELECT digest FROM questions WHERE name=?", (name,)).fetchone()
        if row is None or row[0] != asked.digest:
            with self._db.transaction():
                self._db.execute("DELETE FROM answers WHERE name=?", (name,))
                query = "INSERT INTO questions VALUES (?, ?, ?) ON CONFLICT (name) DO UPDATE SET "
                self._db.execute(query + "digest=excluded.digest, body=excluded.body", (*asked, body))
        return asked

    def answers(self, asked: Asked) -> dict[int, dict[str, Any]]:
        """What shards have answered so far to exactly this question."""
        query = "SELECT shard, body FROM answers WHERE name=? AND digest=?"
        return {shard: json.loads(body) for shard, body in self._db.execute(query, asked)}

    def refused(self, asked: Asked) -> list[int]:
        """The shards that have answered under this name, but to something else."""
        query = "SELECT shard FROM answers WHERE name=? AND digest<>? ORDER BY shard"
        return [row[0] for row in self._db.execute(query, asked)]

    def withdraw(self, names: Iterable[str]) -> None:
        """Ask no more."""
        with self._db.transaction():
            for name in names:
                self._db.execute("DELETE FROM questions WHERE name=?", (name,))
                self._db.execute("DELETE FROM answers WHERE name=?", (name,))

    def say_needed(self, needed: Mapping[tuple[str, str], int]) -> None:
        """Say for device and stream the first tick that is needed whatever its age; nothing else is."""
        with self._db.transaction():
            self._db.execute("DELETE FROM needed")
            self._db.executemany("INSERT INTO needed VALUES (?, ?, ?)", [(*key, tick) for key, tick in needed.items()])
            self._db.execute("UPDATE layout SET known=1")

    def beats(self) -> dict[int, Beat]:
        """How each shard was when it last said so."""
        rows = self._db.execute("SELECT shard, number, body FROM beats")
        return {shard: Beat(number, json.loads(body)) for shard, number, body in rows}

    # Shards

    def questions(self) -> list[Asked]:
        """All that is asked."""
        return [Asked(*row) for row in self._db.execute("SELECT name, digest FROM questions ORDER BY name")]

    def question(self, name: str) -> tuple[Asked, dict[str, Any]] | None:
        """What is asked under a name."""
        row = self._db.execute("SELECT digest, body FROM questions WHERE name=?", (name,)).fetchone()
        return None if row is None else (Asked(name, row[0]), json.loads(row[1]))

    def answer(self, shard: int, asked: Asked, document: Mapping[str, Any]) -> None:
        """Answer, in place of what the shard answered before."""
        query = (
            "INSERT INTO answers VALUES (?, ?, ?, ?) ON CONFLICT (name, shard) DO UPDATE SET "
            "digest=excluded.digest, body=excluded.body"
        )
        with self._db.transaction():
            self._db.execute(query, (asked.name, shard, asked.digest, canonical(document)))

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
        return bool(self._db.execute("SELECT known FROM layout").fetchone()[0])

    def answered(self, shard: int) -> set[Asked]:
        """What a shard has answered."""
        return {Asked(*row) for row in self._db.execute("SELECT name, digest FROM answers WHERE shard=?", (shard,))}

    def beat(self, shard: int, document: Mapping[str, Any]) -> None:
        """Say how a shard is."""
        query = "INSERT INTO beats VALUES (?, 1, ?) ON CONFLICT (shard) DO UPDATE SET number=beats.number+1, body="
        with self._db.transaction():
            self._db.execute(query + "excluded.body", (shard, canonical(document)))
