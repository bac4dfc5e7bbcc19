"""The frames of an outbox, from when they are sealed until they are safe elsewhere, within a limit.

Deletions are noted in memory, and done in the next transaction that other work needs; after a crash, frames are sent
again. A frame that is covered by a watermark which anybody could have written is kept for a grace period, and sent
again if a later watermark misses it. When there is no room, covered frames are deleted first. Then either no more
frames are taken, or the oldest frame is dropped, and the next of its sequence accounts for its ticks. So the newest
frame of a sequence is never dropped.
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

__all__ = ["FRAMES_SCHEMA", "Keeping", "StoredFrames", "with_previous"]

FRAMES_SCHEMA = """
    CREATE TABLE frames (
        id INTEGER PRIMARY KEY, stream TEXT NOT NULL, previous INTEGER NOT NULL, last INTEGER NOT NULL,
        payload BLOB NOT NULL);
"""
MOST_COVERED = 20_000
"""Most frames that wait to be deleted, with or without a grace period."""
_SLACK = 1024


@dataclass(frozen=True, slots=True)
class Keeping:
    """How an outbox stores: if `by_tick`, each tick is committed before the next, else each full frame.

    The file uses at most `max_bytes`. When it is full, the oldest frame is dropped if `drop_oldest`, else no more ticks
    are drawn.
    """

    by_tick: bool = False
    max_bytes: int = 64 << 20
    drop_oldest: bool = False


class StoredFrame(NamedTuple):
    """A frame: its id, the name of its stream or window, and its bytes."""

    id: int
    sequence: str
    payload: bytes


class StoredFrames:
    """The frames in a database; `newest` is the newest frame's id, `dropped` counts dropped frames since the start."""

    def __init__(self, db: Database, retention: Keeping, now: Callable[[], float] = time.monotonic) -> None:
        self._db = db
        self.keeping = retention
        self._now = now
        (self._page_size,) = db.execute("PRAGMA page_size").fetchone()
        self.newest, self._frame_count = db.execute("SELECT COALESCE(MAX(id), 0), COUNT(*) FROM frames").fetchone()
        self._covered: dict[int, float] = {}  # by frame id: when the frame may be deleted
        self._prefix: dict[str, tuple[int, int]] = {}  # by sequence: all frames up to (id, last tick) are covered
        self._highest_covered: dict[str, int] = {}  # by sequence: no frame above this id is covered
        self._deleted_ids: set[int] = set()
        self.dropped = 0

    @contextmanager
    def transaction(self, *, is_forced: bool) -> Iterator[None]:
        """Run a transaction that also deletes covered frames; inside another transaction, be a part of it.

        If `is_forced`, this transaction and all before outlast a power cut.
        """
        if self._db.in_transaction:
            yield
            return
        counts_before = self._frame_count, self.dropped
        self._deleted_ids.clear()
        self._db.execute(f"PRAGMA synchronous = {'FULL' if is_forced else 'NORMAL'}")
        try:
            with transaction(self._db):
                now = self._now()
                self._delete(frame_id for frame_id, deletion_time in self._covered.items() if deletion_time <= now)
                yield
        except BaseException:
            self._frame_count, self.dropped = counts_before
            raise
        for frame_id in self._deleted_ids:
            self._covered.pop(frame_id, None)

    def add(self, sequence: str, previous: int, last: int, payload: bytes) -> None:
        """Store a frame in a transaction; the frame before in its sequence ended at tick or window `previous`."""
        self.newest += 1
        self._frame_count += 1
        self._db.execute("INSERT INTO frames VALUES (?, ?, ?, ?, ?)", (self.newest, sequence, previous, last, payload))

    def next(self, after: int) -> StoredFrame | None:
        """Return the oldest frame with an id above `after` that is not covered; `None` if there is none."""
        for row in self._db.execute("SELECT id, stream, payload FROM intact_frames WHERE id > ? ORDER BY id", (after,)):
            if row[0] not in self._covered:
                return StoredFrame(*row)
        return None

    def forget(self, frame_id: int) -> None:
        """Forget one frame."""
        if self._db.execute("SELECT 1 FROM frames WHERE id = ?", (frame_id,)).fetchone():
            self._covered[frame_id] = 0.0
            self._limit_covered()

    def forget_committed(
        self, sequence: str, durable_tick: int, gaps: Sequence[Gap], *, sent_through: int, grace_seconds: float
    ) -> tuple[int, list[int]]:
        """Forget the frames that a watermark covers. Frames that only an earlier watermark covered are sent again.

        Args:
            durable_tick, gaps: the durable ticks, as `through` and `gaps` of `fugu.contract.frames.StreamCommit`.
            sent_through: id of the newest frame that has been sent; none above it is forgotten.
            grace_seconds: how long forgotten frames are still kept.

        Returns:
            The number of frames newly forgotten, and the ids of the frames that hold ticks of a gap.
        """
        deletion_time = self._now() + grace_seconds if grace_seconds else 0.0
        prefix_end = gaps[0].after if gaps else durable_tick
        prefix_id, last_of_prefix = self._prefix.get(sequence, (0, -1))
        if prefix_end < last_of_prefix:
            prefix_id, last_of_prefix = 0, -1
        highest_covered = self._highest_covered.get(sequence, 0)
        covered_before, missing_ids, is_unbroken = len(self._covered), list[int](), True
        frame_rows = self._db.execute(
            "SELECT id, previous, last FROM intact_frames WHERE id > ? AND id <= ? AND stream = ? ORDER BY id",
            (prefix_id, sent_through, sequence),
        )
        for frame_id, previous_tick, last_tick in frame_rows:
            if last_tick > durable_tick and frame_id > highest_covered:
                break
            if last_tick > durable_tick or any(previous_tick < gap.through and last_tick > gap.after for gap in gaps):
                is_unbroken = False
                covered_before -= self._covered.pop(frame_id, None) is not None
                if last_tick <= durable_tick:
                    missing_ids.append(frame_id)
                continue
            self._covered[frame_id] = min(deletion_time, self._covered.get(frame_id, deletion_time))
            self._highest_covered[sequence] = max(frame_id, self._highest_covered.get(sequence, 0))
            if is_unbroken:
                prefix_id, last_of_prefix = frame_id, last_tick
        self._prefix[sequence] = prefix_id, last_of_prefix
        forgotten_count = len(self._covered) - covered_before
        self._limit_covered()
        return forgotten_count, missing_ids

    @property
    def covered_count(self) -> int:
        """Number of frames that wait to be deleted."""
        return len(self._covered)

    def depth(self) -> int:
        """Return the number of frames that are not known to be safe elsewhere."""
        return int(self._frame_count - len(self._covered))

    def used_bytes(self) -> int:
        """Return the bytes on the disk that are in use."""
        (page_count,) = self._db.execute("PRAGMA page_count").fetchone()
        (free_pages,) = self._db.execute("PRAGMA freelist_count").fetchone()
        return int((page_count - free_pages) * self._page_size)

    def can_take(self, frame_bytes: int) -> bool:
        """True if a frame of this size has room, or `make_room` may find some."""
        return bool(self._covered) or self.keeping.drop_oldest or self.fits(frame_bytes)

    def make_room(self, frame_bytes: int) -> bool:
        """Delete frames until another frame has room, in a transaction; True if it has."""
        if not self.fits(frame_bytes):
            self._delete(self._covered)
        while not (has_room := self.fits(frame_bytes)) and self.keeping.drop_oldest and self._drop_oldest():
            pass
        return has_room

    def fits(self, frame_bytes: int) -> bool:
        """True if a frame of this size has room without deletions."""
        return self.used_bytes() + frame_bytes + _SLACK <= self.keeping.max_bytes

    def _drop_oldest(self) -> bool:
        """Drop the oldest frame that has a next one in its sequence, which then accounts for its ticks.

        False if there is no such frame.
        """
        query = "SELECT id, stream, previous FROM frames ORDER BY id"
        for frame_id, sequence, previous_tick in self._db.execute(query):
            next_row = self._db.execute(
                "SELECT id, payload FROM intact_frames WHERE id > ? AND stream = ? ORDER BY id LIMIT 1",
                (frame_id, sequence),
            ).fetchone()
            if next_row is not None:
                self._delete([frame_id])
                self._db.execute(
                    "UPDATE frames SET previous = ?, payload = ? WHERE id = ?",
                    (previous_tick, with_previous(next_row[1], previous_tick), next_row[0]),
                )
                self.dropped += 1
                return True
        return False

    def _limit_covered(self) -> None:
        if len(self._covered) > MOST_COVERED:
            for frame_id in list(self._covered)[: len(self._covered) - MOST_COVERED // 2]:
                self._covered[frame_id] = 0.0
            with self.transaction(is_forced=False):
                pass

    def _delete(self, frame_ids: Iterable[int]) -> None:
        new_ids = set(frame_ids) - self._deleted_ids
        self._db.executemany("DELETE FROM frames WHERE id = ?", [(frame_id,) for frame_id in sorted(new_ids)])
        self._deleted_ids |= new_ids
        self._frame_count -= len(new_ids)


def with_previous(payload: bytes, previous: int) -> bytes:
    """Return an encoded frame or report with another `previous`, the tick after which it accounts for all ticks."""
    frame = next(kind for kind in (SymbolFrame, MeasureFrame, WindowFrame, Report) if payload[0] == kind.SCHEMA)
    return replace(frame.decode(payload), previous=previous).encode()
