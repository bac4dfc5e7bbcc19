"""How the shards of a fleet are, and what they and the process of the whole fleet tell each other.

The channel is a schema beside that of the store. Each process holds what it writes under a name of its own. A process
that was thought dead writes nothing any more once another has its place. A shard says how it is, and the fleet's
process what releases still need, whatever its age. Nothing is lost with the schema: it is said again.

A shard of which nothing was heard lately is missing; one that says that it began at another time was started again.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from fugu.contract.errors import FuguError, cause
from fugu.contract.reports import AlarmCode
from fugu.host.database import DatabaseError, FileKind
from gateway.health.monitor import Alarms
from gateway.store.engine import Kind, Lease
from gateway.store.location import Location, part_of
from gateway.store.opening import open_engine

__all__ = ["KIND", "ShardChannel", "ShardWatch", "channel_of"]


_SCHEMA = """
CREATE TABLE known (known INTEGER NOT NULL);
INSERT INTO known VALUES (0);
CREATE TABLE needed (device TEXT NOT NULL, stream TEXT NOT NULL, first INTEGER NOT NULL, PRIMARY KEY (device, stream));
CREATE TABLE beats (shard INTEGER PRIMARY KEY, number INTEGER NOT NULL, body BLOB NOT NULL);
"""


# What is lost with the power is said again: no need to wait for the disk.
_FILE = FileKind("channel of shards", 0x4655_5348, "stop the gateway and move it away; nothing is lost with it")
KIND = Kind(_FILE, _SCHEMA, FuguError, durable=False)


def channel_of(store: Location) -> Location:
    """Where the channel of a store's shards is."""
    return part_of(store, "shards")


class ShardChannel:
    """An open channel; one thread uses it at a time, several processes have it open.

    `lease` is of what this process says in it, or None. Raises FuguError if it cannot be opened, or is held.
    """

    def __init__(self, location: Location, lease: Lease | None = None) -> None:
        self._db = open_engine(location, KIND, lease=lease)

    def close(self) -> None:
        """Close it, and let others say what this process did."""
        self._db.close()

    def check(self) -> None:
        """See whether this process still has its place. Raises FileLostError."""
        self._db.check()

    def begin(self) -> None:
        """Forget what is only of this moment."""
        with self._db.transaction():
            self._db.execute("DELETE FROM beats")
            self._db.execute("UPDATE known SET known=0")

    def say_needed(self, first_ticks: Mapping[tuple[str, str], int]) -> None:
        """Say for device and stream the first tick that is needed whatever its age; nothing else is."""
        with self._db.transaction():
            self._db.execute("DELETE FROM needed")
            self._db.executemany(
                "INSERT INTO needed VALUES (?, ?, ?)", [(*key, tick) for key, tick in first_ticks.items()]
            )
            self._db.execute("UPDATE known SET known=1")

    def needed_ticks(self) -> dict[tuple[str, str], int]:
        """Read the value of `say_needed`. Raises DatabaseError if nothing, since the fleet's process was started."""
        with self._db.snapshot():
            if not self.is_known:
                raise DatabaseError("it is not known yet what releases need")
            rows = self._db.execute("SELECT device, stream, first FROM needed").fetchall()
        return {(device, stream): first for device, stream, first in rows}

    @property
    def is_known(self) -> bool:
        """True if it was said what releases need."""
        return bool(self._db.execute("SELECT known FROM known").fetchone()[0])

    def beat(self, shard: int, document: Mapping[str, Any]) -> None:
        """Say how a shard is."""
        query = "INSERT INTO beats VALUES (?, 1, ?) ON CONFLICT (shard) DO UPDATE SET number=beats.number+1, body="
        with self._db.transaction():
            self._db.execute(query + "excluded.body", (shard, json.dumps(document).encode()))

    def beats(self) -> dict[int, tuple[int, dict[str, Any]]]:
        """How each shard was when it last said so, with a number that goes up while it lives."""
        rows = self._db.execute("SELECT shard, number, body FROM beats")
        return {shard: (number, json.loads(body)) for shard, number, body in rows}


_log = logging.getLogger(__name__)
_ROUND_SECONDS = 0.25
_MISSING_SECONDS = 5.0
_ALARM_SECONDS = 10.0
"""For so long a shard is missing before somebody is told."""


@dataclass
class _ShardState:
    """Last messages of a shard; times are seconds of a steady clock."""

    heard_at: float
    number: int = 0
    began_at: float = 0.0
    counters_before: Counter[str] = field(default_factory=Counter)
    counters_now: Counter[str] = field(default_factory=Counter)


class ShardWatch:
    """Looks in a thread of its own, between `start` and `stop`, at a channel that only this uses, and closes.

    `counters` counts `shards_restarted`. `reports` has by shard how it was when it last said so.
    """

    def __init__(
        self, channel: ShardChannel, count: int, counters: Counter[str], seconds: Callable[[], float] = time.monotonic
    ) -> None:
        self._channel = channel
        self._seconds = seconds
        self._shards = [_ShardState(seconds()) for _ in range(count)]
        self._counters = counters
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._read_rounds, name="gateway-shard-watch", daemon=True)
        self._missing_since: dict[int, float] = {}
        self._alarm_counts: dict[tuple[int, str, str], int] = {}
        self.reports: dict[int, dict[str, Any]] = {}

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def stop(self) -> None:
        """Look no more."""
        self._ending.set()
        if self._thread.is_alive():
            self._thread.join()
        self._channel.close()

    @property
    def heard(self) -> int:
        """Devices that have sent shards a frame."""
        return self._sum("heard")

    @property
    def inbox(self) -> int:
        """Messages that wait in the inboxes of shards."""
        return self._sum("inbox")

    def _sum(self, number: str) -> int:
        return sum(report[number] for report in dict(self.reports).values())

    def look(self, alarms: Alarms, now: float) -> None:
        """Note which shards are away, and their alarms."""
        missing = self.missing
        self._missing_since = {index: self._missing_since.get(index, now) for index in missing}
        for index, missing_since in self._missing_since.items():
            if now - missing_since > _ALARM_SECONDS:
                alarms.note(AlarmCode.SHARD, str(index), times=0)
        counts_before, self._alarm_counts = self._alarm_counts, {}
        for index, report in dict(self.reports).items():
            for code, name, detail, count in report["alarms"]:
                count_before = counts_before.get((index, code, name), 0)
                self._alarm_counts[index, code, name] = count_before if index in missing else count
                if index not in missing:
                    alarms.note(AlarmCode(code), name, detail, times=max(count - count_before, 0))

    @property
    def missing(self) -> tuple[int, ...]:
        """The shards that nothing was heard of lately, or that have no connection to the broker."""
        now, reports = self._seconds(), dict(self.reports)
        return tuple(
            index
            for index, shard in enumerate(self._shards)
            if now - shard.heard_at > _MISSING_SECONDS or not reports.get(index, {"connected": False})["connected"]
        )

    def counters(self) -> Counter[str]:
        """Of all shards together, also from before they were started again."""
        return sum(((shard.counters_before + shard.counters_now) for shard in self._shards), Counter[str]())

    def read(self) -> None:
        """See what was said. Raises DatabaseError if it cannot be read."""
        beats, now = self._channel.beats(), self._seconds()
        for index, shard in enumerate(self._shards):
            number, body = beats.get(index, (shard.number, {}))
            if number == shard.number:
                continue
            shard.number, shard.heard_at = number, now
            if body["since"] != shard.began_at:
                self._counters["shards_restarted"] += shard.began_at > 0.0
                shard.began_at, shard.counters_before = body["since"], shard.counters_before + shard.counters_now
            shard.counters_now = Counter(body["counters"])
            self.reports[index] = body

    def _read_rounds(self) -> None:
        is_unreadable = False
        while not self._ending.wait(_ROUND_SECONDS):
            try:
                self.read()
                is_unreadable = False
            except DatabaseError as error:
                if not is_unreadable:
                    _log.error("what shards say cannot be read: %s", error)
                is_unreadable = True
            except Exception as error:  # what nobody thought of must not end what watches
                _log.error("the watch over shards: %s", cause(error))
