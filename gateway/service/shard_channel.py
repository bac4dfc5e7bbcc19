"""What the shards of a fleet and the process of the whole fleet tell each other: small tables, looked at now and then.

A question is of all shards; each has at most one answer to it from each of them, under the digest of the question as it
was read. So an answer to another question is never taken for one to this, whoever was started again in between, and
what was asked and answered is still there after a crash. Nothing in here is lost with the file: it is asked again.

A shard also says now and then how it is, and the fleet's process what releases still need, whatever its age.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from contract.errors import FuguError
from gateway.service.release_question import canonical
from host.database import SHARDS, DatabaseError, open_database, snapshot, transaction

__all__ = ["Asked", "Beat", "ShardChannel", "ShardChannelError"]

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
    """The file cannot be used, or says that there are other shards."""


class Asked(NamedTuple):
    """A question: what it is called, and the SHA-256 of its body, in hexadecimal."""

    name: str
    digest: str


class Beat(NamedTuple):
    """How a shard was when it last said so: the numbers go up while it lives."""

    number: int
    body: dict[str, Any]


class ShardChannel:
    """The open file; one thread uses it at a time, several processes have it open.

    Raises:
        ShardChannelError: it cannot be opened.
    """

    def __init__(self, path: Path) -> None:
        # What is lost with the power is asked and answered again: no need to wait for the disk.
        settings = ("synchronous=NORMAL", "secure_delete=ON")
        self._db = open_database(path, SHARDS, _SCHEMA, ShardChannelError, settings=settings)

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    # The fleet's process

    def begin(self, shards: int) -> None:
        """Say how many shards there are; with another number, all that was asked and answered is forgotten."""
        with transaction(self._db):
            if self.shards != shards:
                for table in ("questions", "answers", "needed"):
                    self._db.execute(f"DELETE FROM {table}")
            self._db.execute("DELETE FROM questions WHERE name NOT LIKE 'count:%'")
            self._db.execute("DELETE FROM beats")
            self._db.execute("UPDATE layout SET shards=?, known=0", (shards,))

    @property
    def shards(self) -> int:
        """How many shards there are, 0 before that was said."""
        return int(self._db.execute("SELECT shards FROM layout").fetchone()[0])

    def ask(self, name: str, document: Mapping[str, Any]) -> Asked:
        """Ask all shards, in place of what was asked under this name before; answers to the same question stay."""
        body = canonical(document)
        asked = Asked(name, hashlib.sha256(body).hexdigest())
        row = self._db.execute("SELECT digest FROM questions WHERE name=?", (name,)).fetchone()
        if row is None or row[0] != asked.digest:
            with transaction(self._db):
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
        with transaction(self._db):
            for name in names:
                self._db.execute("DELETE FROM questions WHERE name=?", (name,))
                self._db.execute("DELETE FROM answers WHERE name=?", (name,))

    def say_needed(self, needed: Mapping[tuple[str, str], int]) -> None:
        """Say for device and stream the first tick that is needed whatever its age; nothing else is."""
        with transaction(self._db):
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
        with transaction(self._db):
            self._db.execute(query, (asked.name, shard, asked.digest, canonical(document)))

    def needed(self) -> dict[tuple[str, str], int]:
        """What `say_needed` has said.

        Raises:
            DatabaseError: nothing, since the fleet's process was started.
        """
        with snapshot(self._db):
            if not self.known:
                raise DatabaseError("it is not known yet what releases need")
            rows = self._db.execute("SELECT device, stream, first FROM needed").fetchall()
        return {(device, stream): first for device, stream, first in rows}

    @property
    def known(self) -> bool:
        """Whether it was said what releases need."""
        return bool(self._db.execute("SELECT known FROM layout").fetchone()[0])

    def has_answered(self, shard: int, asked: Asked) -> bool:
        """Whether a shard has answered exactly this question."""
        query = "SELECT 1 FROM answers WHERE name=? AND digest=? AND shard=?"
        return self._db.execute(query, (*asked, shard)).fetchone() is not None

    def beat(self, shard: int, document: Mapping[str, Any]) -> None:
        """Say how a shard is."""
        query = "INSERT INTO beats VALUES (?, 1, ?) ON CONFLICT (shard) DO UPDATE SET number=beats.number+1, body="
        with transaction(self._db):
            self._db.execute(query + "excluded.body", (shard, canonical(document)))
