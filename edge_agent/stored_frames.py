"""The frames of an outbox, from when they are sealed until they are safe elsewhere, within a limit.

Deletions are noted in memory and done in the next transaction that there is anyway; after a crash, frames are sent
again. A frame covered by a watermark which anybody could have written is kept for a grace period, and sent again if a
later watermark misses it. When there is no room, covered frames go first. After that either nothing is taken any more,
or the oldest frame is dropped. The newest of a sequence is never dropped: the next one then accounts for its ticks.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import NamedTuple

from fugu.contract.frames import Gap, SymbolFrame, WindowFrame
from fugu.contract.group_frames import Report
from fugu.contract.measure_frames import MeasureFrame
from fugu.host.database import Database, transaction

__all__ = ["FRAMES_SCHEMA", "Keeping", "StoredFrames", "accounting"]

FRAMES_SCHEMA = """
    CREATE TABLE frames (
        id INTEGER PRIMARY KEY, stream TEXT NOT NULL, previous INTEGER NOT NULL, last INTEGER NOT NULL,
        payload BLOB NOT NULL);
"""
MOST_COVERED = 20_000
"""So many frames at most wait to be deleted, with a grace period or without."""
_SLACK = 1024


@dataclass(frozen=True, slots=True)
class Keeping:
    """How an outbox keeps things: each tick committed before the next if `by_tick`, else a full frame.

    Frames and what belongs to them take at most `max_bytes` on the disk; then the oldest is dropped if `drop_oldest`,
    else no tick is drawn any more.
    """

    by_tick: bool = False
    max_bytes: int = 64 << 20
    drop_oldest: bool = False


class StoredFrame(NamedTuple):
    """A frame: its id, its stream or its window's sequence, and its bytes."""

    id: int
    sequence: str
    payload: bytes


class StoredFrames:
    """The frames in a database that one connection uses, the newest's id, and how many were dropped since the start."""

    def __init__(self, db: Database, keeping: Keeping, now: Callable[[], float] = time.monotonic) -> None:
        self._db = db
        self.keeping = keeping
        self._now = now
        (self._page_size,) = db.execute("PRAGMA page_size").fetchone()
        self.newest, self._count = db.execute("SELECT COALESCE(MAX(id), 0), COUNT(*) FROM frames").fetchone()
        self._covered: dict[int, float] = {}  # when each may be deleted
        self._prefix: dict[str, tuple[int, int]] = {}  # of each sequence: all up to (id, last) are covered
        self._reach: dict[str, int] = {}  # of each sequence: none above this id is covered
        self._deleted: set[int] = set()
        self.dropped = 0

    @contextmanager
    def changing(self, *, forced: bool) -> Iterator[None]:
        """One transaction, also of deletions, or a part of the outer one.

        If it is `forced`, it and all before outlast a power cut.
        """
        if self._db.in_transaction:
            yield
            return
        before = self._count, self.dropped
        self._deleted.clear()
        self._db.execute(f"PRAGMA synchronous = {'FULL' if forced else 'NORMAL'}")
        try:
            with transaction(self._db):
                now = self._now()
                self._delete(frame for frame, until in self._covered.items() if until <= now)
                yield
        except BaseException:
            self._count, self.dropped = before
            raise
        for frame in self._deleted:
            self._covered.pop(frame, None)

    def add(self, sequence: str, previous: int, last: int, payload: bytes) -> None:
        """Keep a frame; in a transaction."""
        self.newest += 1
        self._count += 1
        self._db.execute("INSERT INTO frames VALUES (?, ?, ?, ?, ?)", (self.newest, sequence, previous, last, payload))

    def next(self, after: int) -> StoredFrame | None:
        """The oldest frame with an id above `after` that is not known to be safe elsewhere."""
        for row in self._db.execute("SELECT id, stream, payload FROM intact_frames WHERE id > ? ORDER BY id", (after,)):
            if row[0] not in self._covered:
                return StoredFrame(*row)
        return None

    def forget(self, frame: int) -> None:
        """Forget one frame."""
        if self._db.execute("SELECT 1 FROM frames WHERE id = ?", (frame,)).fetchone():
            self._covered[frame] = 0.0
            self._delete_some()

    def forget_committed(
        self, sequence: str, through: int, gaps: Sequence[Gap], *, sent_through: int, grace: float
    ) -> tuple[int, list[int]]:
        """Forget the frames that are durable elsewhere; those that an earlier watermark covered may be live again.

        Args:
            through, gaps: what is durable, as in `fugu.contract.frames.StreamCommit`.
            sent_through: the newest frame that has been sent; none above it is forgotten.
            grace: seconds for which they are kept all the same.

        Returns:
            The number of frames newly forgotten, and the ids of the frames that hold ticks of a gap.
        """
        until = self._now() + grace if grace else 0.0
        edge = gaps[0].after if gaps else through
        prefix, last_of_prefix = self._prefix.get(sequence, (0, -1))
        if edge < last_of_prefix:
            prefix, last_of_prefix = 0, -1
        reach = self._reach.get(sequence, 0)
        before, missing, unbroken = len(self._covered), list[int](), True
        rows = self._db.execute(
            "SELECT id, previous, last FROM intact_frames WHERE id > ? AND id <= ? AND stream = ? ORDER BY id",
            (prefix, sent_through, sequence),
        )
        for frame, previous, last in rows:
            if last > through and frame > reach:
                break
            if last > through or any(previous < gap.through and last > gap.after for gap in gaps):
                unbroken = False
                before -= self._covered.pop(frame, None) is not None
                if last <= through:
                    missing.append(frame)
                continue
            self._covered[frame] = min(until, self._covered.get(frame, until))
            self._reach[sequence] = max(frame, self._reach.get(sequence, 0))
            if unbroken:
                prefix, last_of_prefix = frame, last
        self._prefix[sequence] = prefix, last_of_prefix
        forgotten = len(self._covered) - before
        self._delete_some()
        return forgotten, missing

    @property
    def covered(self) -> int:
        """The number of frames that wait to be deleted."""
        return len(self._covered)

    def depth(self) -> int:
        """The number of frames that are not known to be safe elsewhere."""
        return int(self._count - len(self._covered))

    def used(self) -> int:
        """Bytes on the disk that are in use."""
        (pages,) = self._db.execute("PRAGMA page_count").fetchone()
        (free,) = self._db.execute("PRAGMA freelist_count").fetchone()
        return int((pages - free) * self._page_size)

    def takes(self, size: int) -> bool:
        """True if there is room for a frame of so many bytes, or could be made."""
        return bool(self._covered) or self.keeping.drop_oldest or self.fits(size)

    def free(self, size: int) -> bool:
        """Make room for a frame of so many bytes if there is none, in a transaction; whether there is room then."""
        if not self.fits(size):
            self._delete(self._covered)
        while not (fits := self.fits(size)) and self.keeping.drop_oldest and self._drop_oldest():
            pass
        return fits

    def fits(self, size: int) -> bool:
        """True if there is room for a frame of so many bytes as it is."""
        return self.used() + size + _SLACK <= self.keeping.max_bytes

    def _drop_oldest(self) -> bool:
        """Drop the oldest frame that another of its sequence follows, which then accounts for its ticks as well."""
        for frame, sequence, previous in self._db.execute("SELECT id, stream, previous FROM frames ORDER BY id"):
            following = self._db.execute(
                "SELECT id, payload FROM intact_frames WHERE id > ? AND stream = ? ORDER BY id LIMIT 1",
                (frame, sequence),
            ).fetchone()
            if following is not None:
                self._delete([frame])
                self._db.execute(
                    "UPDATE frames SET previous = ?, payload = ? WHERE id = ?",
                    (previous, accounting(following[1], previous), following[0]),
                )
                self.dropped += 1
                return True
        return False

    def _delete_some(self) -> None:
        if len(self._covered) > MOST_COVERED:
            for frame in list(self._covered)[: len(self._covered) - MOST_COVERED // 2]:
                self._covered[frame] = 0.0
            with self.changing(forced=False):
                pass

    def _delete(self, ids: Iterable[int]) -> None:
        fresh = set(ids) - self._deleted
        self._db.executemany("DELETE FROM frames WHERE id = ?", [(frame,) for frame in sorted(fresh)])
        self._deleted |= fresh
        self._count -= len(fresh)


def accounting(payload: bytes, previous: int) -> bytes:
    """A frame that accounts for the ticks after `previous`."""
    frame = next(form for form in (SymbolFrame, MeasureFrame, WindowFrame, Report) if payload[0] == form.SCHEMA)
    return replace(frame.decode(payload), previous=previous).encode()
