"""The part of the store that removes what is kept no longer, or is to be forgotten.

Frames and chunks are removed in the order of their ticks, and a sequence's `begin` says up to where. Coverage stays, so
that a device is never asked again for what was removed. What is removed is overwritten, and its room is used again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np

from gateway.store.coverage import Coverage, Place
from gateway.store.engine import Database
from gateway.store.points import LIKELY
from gateway.store.symbols import Chunk, SymbolStore

__all__ = ["SYMBOLS", "Aged", "AgedStore", "Forgotten", "Frames"]


class Aged(NamedTuple):
    """A frame: its first tick, or its window's index; its last tick, and its policy's version."""

    key: int
    last: int
    version: int


class Frames(NamedTuple):
    """A table of frames, or of chunks; the columns that say what `Aged` does."""

    table: str
    key: str = "first"
    last: str = "last"


SYMBOLS = Frames("chunks")


class Forgotten(NamedTuple):
    """How many symbols, and how many frames of points and windows, of a device were erased."""

    symbols: int
    points: int
    windows: int


class AgedStore:
    """Frames of all kinds, oldest first; used within the store's transactions."""

    def __init__(self, database: Database, symbols: SymbolStore, owns: Callable[[str], bool]) -> None:
        self._db = database
        self._symbols = symbols
        self._owns = owns

    def sequences(self, after: int, limit: int) -> list[Place]:
        """Some sequences whose numbers are above one, in the order of their numbers; none if there are no more."""
        query = "SELECT id, device, stream FROM streams WHERE id>? ORDER BY id LIMIT ?"
        while rows := self._db.execute(query, (after, limit)).fetchall():
            if mine := [Place(*row) for row in rows if self._owns(row[1])]:
                return mine
            after = rows[-1][0]
        return []

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

    def remove(self, frames: Frames, number: int, through: int, begin: int) -> None:
        """Remove the first frames of a sequence, up to one, and what follows from them; none before `begin` is left."""
        self._db.execute(f"DELETE FROM {frames.table} WHERE stream=? AND {frames.key}<=?", (number, through))
        if frames is SYMBOLS:
            self._db.execute("UPDATE heads SET chunk=-1 WHERE stream=? AND chunk<=?", (number, through))
        else:
            self._db.execute("DELETE FROM outbox WHERE stream=? AND frame<=?", (number, through))
        self._keep(number, begin)

    def trim(self, chunk: Chunk, rest: Chunk) -> None:
        """Put the rest of a chunk in its place; none before that is left."""
        self._symbols.put_rest(chunk, rest)
        self._keep(chunk.number, rest.first)

    def forget(self, device: str) -> Forgotten | None:
        """Remove a device's frames and what follows; None without any. Coverage stays: nothing is asked for again."""
        numbers = [row[0] for row in self._db.execute("SELECT id FROM streams WHERE device=?", (device,))]
        if not numbers:
            return None
        journal = self._symbols.take_out(numbers)
        symbols, points, windows = int(journal.ticks.sum()), 0, 0
        for number in numbers:
            mine = np.flatnonzero(journal.number == number)
            if len(mine):
                spans = zip(journal.previous[mine].tolist(), journal.last[mine].tolist(), strict=True)
                query = "SELECT after, through FROM intact_coverage WHERE stream=?"
                self.put_coverage(number, Coverage([*self._db.execute(query, (number,)), *spans]).intervals)
            (last,) = self._db.execute("SELECT MAX(through) FROM coverage WHERE stream=?", (number,)).fetchone()
            self._keep(number, -1 if last is None else last + 1)
            symbols += self._symbols.erase(number)
            points += self._db.execute("DELETE FROM measured WHERE stream=?", (number,)).rowcount
            windows += self._db.execute("DELETE FROM windows WHERE stream=?", (number,)).rowcount
            self._db.execute("DELETE FROM outbox WHERE stream=?", (number,))
            self._db.execute(f"DELETE FROM sent_tables WHERE stream=? AND {LIKELY}", (number,))
        return Forgotten(symbols, points, windows)

    def put_coverage(self, number: int, intervals: Iterable[tuple[int, int]]) -> None:
        """Replace what is stored of the ticks that a sequence has accounted for."""
        self._db.execute("DELETE FROM coverage WHERE stream=?", (number,))
        self._db.executemany("INSERT INTO coverage VALUES (?, ?, ?)", [(number, *interval) for interval in intervals])

    def _keep(self, number: int, begin: int) -> None:
        self._db.execute("UPDATE streams SET begins=? WHERE id=? AND begins<?", (begin, number, begin))

    def begin(self, number: int) -> int:
        """Where frames of a sequence begin that are kept: a tick, or a window's index."""
        begins: int = self._db.execute("SELECT begins FROM intact_streams WHERE id=?", (number,)).fetchone()[0]
        return begins

    def _aged(self, frames: Frames, number: int, order: str, limit: int) -> list[Aged]:
        query = (
            f"SELECT {frames.key}, {frames.last}, policy_version FROM {frames.table} "
            f"WHERE stream=? ORDER BY {frames.key} {order} LIMIT ?"
        )
        return [Aged(*row) for row in self._db.execute(query, (number, limit))]
