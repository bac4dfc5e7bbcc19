"""The part of the store that removes what is kept no longer, or is to be forgotten.

Frames are removed in the order of their ticks, and a sequence's `kept` says up to where. Coverage stays, so that a
device is never asked again for what was removed. What is removed is overwritten, and its room is used again.
"""

from __future__ import annotations

from typing import NamedTuple

from gateway.service.store.database import Database
from gateway.service.store.points import LIKELY

__all__ = ["ESTIMATES", "POINTS", "SYMBOLS", "WINDOWS", "Aged", "AgedStore", "Forgotten", "Frames", "Sequence"]


class Sequence(NamedTuple):
    """A sequence of frames: a stream's own, or of one of its windows, under the name {stream}/{window}."""

    number: int
    device: str
    name: str

    @property
    def stream(self) -> str:
        """The stream that it is of."""
        return self.name.partition("/")[0]

    @property
    def window(self) -> str:
        """The window that it is of, empty for a stream's own."""
        return self.name.partition("/")[2]


class Aged(NamedTuple):
    """A frame: its first tick, or its window's index; its last tick, and its policy's version."""

    key: int
    last: int
    version: int


class Frames(NamedTuple):
    """A table of frames, or of their estimates; the columns that say what `Aged` does, and which rows join it."""

    table: str
    key: str = "first"
    last: str = "last"
    joined: str = ""


SYMBOLS = Frames("frames")
POINTS = Frames("measured")
WINDOWS = Frames("windows", "number", "first+length-1")
ESTIMATES = Frames("estimates", "frame", joined="JOIN frames ON frames.stream=a.stream AND frames.first=frame")


class Forgotten(NamedTuple):
    """How many frames of a device were erased, and of how many of symbols there were estimates."""

    symbols: int
    points: int
    windows: int
    estimates: int


class AgedStore:
    """Frames of all kinds, oldest first; used within the store's transactions."""

    def __init__(self, database: Database) -> None:
        self._db = database

    def sequences(self, after: int, limit: int) -> list[Sequence]:
        """Sequences whose numbers are above one, in the order of their numbers."""
        query = "SELECT id, device, stream FROM streams WHERE id>? ORDER BY id LIMIT ?"
        return [Sequence(*row) for row in self._db.execute(query, (after, limit))]

    def oldest(self, frames: Frames, number: int, limit: int) -> list[Aged]:
        """The first frames of a sequence."""
        return self._aged(frames, number, "ASC", limit)

    def newest(self, frames: Frames, number: int) -> Aged | None:
        """The last frame of a sequence."""
        return next(iter(self._aged(frames, number, "DESC", 1)), None)

    def needed(self, frames: Frames, number: int, lag: int) -> int | None:
        """The first frame that the estimates of a stream's next one rest on; none if there are no frames."""
        if (newest := self.newest(frames, number)) is None:
            return None
        query = f"SELECT first FROM {frames.table} WHERE stream=? AND last<=? ORDER BY first DESC LIMIT 1"
        row = self._db.execute(query, (number, newest.last - lag)).fetchone()
        return int(row[0]) if row else -1

    def remove(self, frames: Frames, number: int, through: int, kept: int) -> None:
        """Remove the first frames of a sequence, up to one, and what follows from them; none before `kept` is left."""
        self._remove(frames, number, through)
        if frames is not ESTIMATES:
            self._remove(ESTIMATES, number, through)
            self._db.execute("DELETE FROM outbox WHERE stream=? AND frame<=?", (number, through))
            self._db.execute("UPDATE streams SET kept=MAX(kept, ?) WHERE id=?", (kept, number))

    def forget(self, device: str) -> Forgotten | None:
        """Remove all frames of a device, and what follows from them; none if there never was one.

        What is accounted for stays, so that no frame is asked for again or stored that was before.
        """
        mine = "stream IN (SELECT id FROM streams WHERE device=?)"
        if self._db.execute("SELECT 1 FROM streams WHERE device=?", (device,)).fetchone() is None:
            return None
        query = f"SELECT COUNT(*) FROM (SELECT DISTINCT stream, frame FROM estimates WHERE {mine})"
        (estimates,) = self._db.execute(query, (device,)).fetchone()
        query = "SELECT MAX(through) FROM coverage WHERE coverage.stream=id"
        self._db.execute(f"UPDATE streams SET kept=MAX(kept, IFNULL(({query}), -1) + 1) WHERE device=?", (device,))
        for table in ("estimates", "outbox"):
            self._db.execute(f"DELETE FROM {table} WHERE {mine}", (device,))
        self._db.execute(f"DELETE FROM sent_tables WHERE {mine} AND {LIKELY}", (device,))
        erased = {
            kind: self._db.execute(f"DELETE FROM {frames.table} WHERE {mine}", (device,)).rowcount
            for kind, frames in (("symbols", SYMBOLS), ("points", POINTS), ("windows", WINDOWS))
        }
        return Forgotten(**erased, estimates=estimates)

    def kept(self, number: int) -> int:
        """Where frames of a sequence begin that are kept: a tick, or a window's index."""
        found: int = self._db.execute("SELECT kept FROM streams WHERE id=?", (number,)).fetchone()[0]
        return found

    def _aged(self, frames: Frames, number: int, order: str, limit: int) -> list[Aged]:
        query = (
            f"SELECT DISTINCT a.{frames.key}, {frames.last}, policy_version FROM {frames.table} AS a {frames.joined} "
            f"WHERE a.stream=? ORDER BY a.{frames.key} {order} LIMIT ?"
        )
        return [Aged(*row) for row in self._db.execute(query, (number, limit))]

    def _remove(self, frames: Frames, number: int, through: int) -> None:
        self._db.execute(f"DELETE FROM {frames.table} WHERE stream=? AND {frames.key}<=?", (number, through))
