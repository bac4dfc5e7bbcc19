"""The channel between the shards of a fleet and the process of the whole fleet, and a watch over the shards.

The channel is a schema beside that of the store. Each process writes under a lease of its own. So a process that was
thought dead can no longer write once another has its place. A shard writes beats: documents of its state. The fleet's
process writes the ticks that releases still need, whatever their age. Nothing is lost with the schema: all of it is
written again.

A shard without a recent beat is missing. A shard whose beat names another start time was started again.
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
from gateway.health.monitor import Alarms, Elsewhere
from gateway.store.engine import DatabaseKind, Lease
from gateway.store.location import Location, part_of
from gateway.store.opening import open_engine

__all__ = ["KIND", "ShardChannel", "ShardWatch", "channel_of"]


_SCHEMA = """
CREATE TABLE known (known INTEGER NOT NULL);
INSERT INTO known VALUES (0);
CREATE TABLE needed (device TEXT NOT NULL, stream TEXT NOT NULL, first INTEGER NOT NULL, PRIMARY KEY (device, stream));
CREATE TABLE beats (shard INTEGER PRIMARY KEY, number INTEGER NOT NULL, body BLOB NOT NULL);
"""


# Rows that are lost with the power are written again: no need to wait for the disk.
_FILE = FileKind("channel of shards", 0x4655_5348, "stop the gateway and move it away; nothing is lost with it")
KIND = DatabaseKind(_FILE, _SCHEMA, FuguError, durable=False)


def channel_of(store: Location) -> Location:
    """The location of the channel of a store's shards."""
    return part_of(store, "shards")


class ShardChannel:
    """An open channel; one thread uses it at a time, several processes have it open.

    `lease` is the right to write this process's rows; `None` for a process that only reads. Raises FuguError if the
    channel cannot be opened, or the lease is held.
    """

    def __init__(self, location: Location, lease: Lease | None = None) -> None:
        self._db = open_engine(location, KIND, lease=lease)

    def close(self) -> None:
        """Close the channel, and give the lease back."""
        self._db.close()

    def check(self) -> None:
        """Raise FileLostError if another process has taken the lease."""
        self._db.check()

    def begin(self) -> None:
        """Remove the beats, and note that the needed ticks are not known yet."""
        with self._db.transaction():
            self._db.execute("DELETE FROM beats")
            self._db.execute("UPDATE known SET known=0")

    def put_needed(self, first_ticks: Mapping[tuple[str, str], int]) -> None:
        """Replace the needed ticks: by device and stream, the first tick that releases need, whatever its age."""
        with self._db.transaction():
            self._db.execute("DELETE FROM needed")
            rows = [(*stream_key, tick) for stream_key, tick in first_ticks.items()]
            self._db.executemany("INSERT INTO needed VALUES (?, ?, ?)", rows)
            self._db.execute("UPDATE known SET known=1")

    def needed_ticks(self) -> dict[tuple[str, str], int]:
        """Read the ticks that `put_needed` has written. DatabaseError if there was no such call since `begin`."""
        with self._db.snapshot():
            if not self.is_known:
                raise DatabaseError("it is not known yet what releases need")
            rows = self._db.execute("SELECT device, stream, first FROM needed").fetchall()
        return {(device, stream): first for device, stream, first in rows}

    @property
    def is_known(self) -> bool:
        """Tell whether the needed ticks are known."""
        return bool(self._db.execute("SELECT known FROM known").fetchone()[0])

    def beat(self, shard: int, document: Mapping[str, Any]) -> None:
        """Write a shard's document of its state."""
        query = "INSERT INTO beats VALUES (?, 1, ?) ON CONFLICT (shard) DO UPDATE SET number=beats.number+1, body="
        with self._db.transaction():
            self._db.execute(query + "excluded.body", (shard, json.dumps(document).encode()))

    def beats(self) -> dict[int, tuple[int, dict[str, Any]]]:
        """Read each shard's newest document by index, with the document's number, which goes up with each beat."""
        beat_rows = self._db.execute("SELECT shard, number, body FROM beats")
        return {shard: (number, json.loads(body)) for shard, number, body in beat_rows}


_log = logging.getLogger(__name__)
_ROUND_SECONDS = 0.25
_MISSING_SECONDS = 5.0
_ALARM_SECONDS = 10.0
"""Time that a shard is missing before there is an alarm."""


_NO_REPORT: dict[str, Any] = {"since": 0.0, "connected": False, "heard": 0, "inbox": 0, "alarms": ()}


@dataclass
class _ShardState:
    """The last beat of a shard.

    Attributes:
        heard_at: when it was read, in seconds of a steady clock; at first, when the watch was made.
        beat_number: its number, 0 before the first.
        report: its document; `since` is when the shard was started, in Unix seconds of its own clock.
        counters_before: the sums of the counters of earlier starts.
        counters_now: the counters since the last start.
    """

    heard_at: float
    beat_number: int = 0
    report: Mapping[str, Any] = field(default_factory=lambda: _NO_REPORT)
    counters_before: Counter[str] = field(default_factory=Counter)
    counters_now: Counter[str] = field(default_factory=Counter)


class ShardWatch(Elsewhere):
    """Reads the beats of shards in a thread of its own, between `start` and `stop`.

    Args:
        channel: used only here, and closed by `stop`.
        counters: counts `shards_restarted`.
    """

    def __init__(
        self, channel: ShardChannel, shards: int, counters: Counter[str], seconds: Callable[[], float] = time.monotonic
    ) -> None:
        self._channel = channel
        self._seconds = seconds
        self._shards = [_ShardState(seconds()) for _ in range(shards)]
        self._counters = counters
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._read_rounds, name="gateway-shard-watch", daemon=True)
        self._missing_since: dict[int, float] = {}
        self._alarm_counts: dict[tuple[int, str, str], int] = {}

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread, and close the channel."""
        self._ending.set()
        if self._thread.is_alive():
            self._thread.join()
        self._channel.close()

    @property
    def heard(self) -> int:
        """The number of devices that have sent shards a frame."""
        return sum(shard.report["heard"] for shard in self._shards)

    @property
    def inbox(self) -> int:
        """The number of messages that wait in the inboxes of shards."""
        return sum(shard.report["inbox"] for shard in self._shards)

    def look(self, alarms: Alarms, now: float) -> None:
        """Note shards that have been missing for more than ten seconds, and the new alarms of the other shards."""
        missing_indices = self.missing
        self._missing_since = {index: self._missing_since.get(index, now) for index in missing_indices}
        for index, missing_since in self._missing_since.items():
            if now - missing_since > _ALARM_SECONDS:
                alarms.note(AlarmCode.SHARD, str(index), times=0)
        counts_before, self._alarm_counts = self._alarm_counts, {}
        for index, shard in enumerate(self._shards):
            for code, name, detail, count in shard.report["alarms"]:
                count_before = counts_before.get((index, code, name), 0)
                self._alarm_counts[index, code, name] = count_before if index in missing_indices else count
                if index not in missing_indices:
                    alarms.note(AlarmCode(code), name, detail, times=max(count - count_before, 0))

    @property
    def missing(self) -> tuple[int, ...]:
        """The indices of shards without a recent beat, or without a connection to the broker."""
        now = self._seconds()
        return tuple(
            index
            for index, shard in enumerate(self._shards)
            if now - shard.heard_at > _MISSING_SECONDS or not shard.report["connected"]
        )

    def counters(self) -> Counter[str]:
        """The sums of the counters of all shards, with those of earlier starts."""
        return sum(((shard.counters_before + shard.counters_now) for shard in self._shards), Counter[str]())

    def read(self) -> None:
        """Read the beats. Raises DatabaseError if they cannot be read."""
        beats, now = self._channel.beats(), self._seconds()
        for index, shard in enumerate(self._shards):
            beat_number, document = beats.get(index, (shard.beat_number, {}))
            if beat_number == shard.beat_number:
                continue
            shard.beat_number, shard.heard_at = beat_number, now
            if document["since"] != shard.report["since"]:
                self._counters["shards_restarted"] += shard.report["since"] > 0.0
                shard.counters_before = shard.counters_before + shard.counters_now
            shard.counters_now, shard.report = Counter(document["counters"]), document

    def _read_rounds(self) -> None:
        """Read the beats until `stop`. An unreadable channel is logged once."""
        is_unreadable = False
        while not self._ending.wait(_ROUND_SECONDS):
            try:
                self.read()
                is_unreadable = False
            except Exception as error:  # an unforeseen error must not end the watch
                if not is_unreadable:
                    reason = error if isinstance(error, DatabaseError) else cause(error)
                    _log.error("what shards say cannot be read: %s", reason)
                is_unreadable = True
