"""The part of the store that holds symbols: a journal of what has come, and chunks, into which it is sealed.

A batch of frames is one row of the journal, durable before anybody is told. When the journal is large or old enough,
the symbols of each stream move into chunks of up to `CHUNK_TICKS` ticks. In between, what the journal holds is in
memory, too. Which ticks a stream has accounted for is in `coverage` as it was at its last seal; the journal's rows have
the rest. A chunk holds runs of consecutive ticks of one policy version, and the distribution of its first tick given
all symbols before it, from which everything about its ticks can be computed again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import msgpack
import numpy as np

from fugu.chains.arrays import Floats
from fugu.contract.frames import SymbolFrame
from gateway.database import MOST_VALUES, Database, batched, marks
from gateway.service.ownership import Shard
from gateway.service.symbols.columns import Columns, packed_size
from gateway.service.symbols.tail import Tail

__all__ = ["CHUNK_SPAN", "CHUNK_TICKS", "SMALL_TICKS", "Chunk", "Head", "SymbolStore", "since"]

CHUNK_TICKS = 4_000
SMALL_TICKS = 1_000
"""A last chunk with fewer is made anew with what follows it."""
CHUNK_SPAN = 1 << 16
"""Ticks from the first to the last of a chunk, at most; some of them may have no symbol."""
_PAGE = 64


class Chunk(NamedTuple):
    """Sealed symbols of a stream.

    Attributes:
        number: of the sequence.
        distribution: (k,), of the first tick, given all symbols before it.
        version: of the policy of the last run; its model's states are those of `distribution` unless `runs` begin with
            another.
        day: of the last tick, in days of Unix time.
        runs: of each run its policy version, shift, first tick less the chunk's, ticks, and bits of a symbol.
        symbols: of one run after the other, each packed from a byte of its own on.
    """

    number: int
    first: int
    last: int
    distribution: Floats
    version: int
    day: int
    runs: tuple[tuple[int, int, int, int, int], ...]
    symbols: bytes

    @property
    def ticks(self) -> int:
        """How many ticks have a symbol."""
        return sum(run[3] for run in self.runs)

    def columns(self) -> Columns:
        """Its runs as rows."""
        table = np.array(self.runs, dtype=np.int64).reshape(-1, 5).T.copy()
        version, shift, offset, count, bits = table
        first = offset + self.first
        sizes = packed_size(count, bits)
        packed = np.frombuffer(self.symbols, dtype=np.uint8)
        number = np.full(len(first), self.number, dtype=np.int64)
        return Columns(number, version, shift, first - 1, first, count, bits, np.cumsum(sizes) - sizes, packed)


class Head(NamedTuple):
    """A stream as it was when it was sealed last.

    Attributes:
        last: its newest tick that had a symbol.
        shift, version: of that tick.
        distribution: (k,), at that tick, given all symbols up to it.
        chunk: the first tick of its last chunk; -1 if that is gone.
        ticks: of its last chunk.
        reported: the newest tick that was reported, -1 if none was.
    """

    number: int
    last: int
    shift: int
    version: int
    distribution: Floats
    chunk: int
    ticks: int
    reported: int


class SymbolStore:
    """Symbols; used within the store's transactions."""

    schema = """
CREATE TABLE journal (serial INTEGER PRIMARY KEY AUTOINCREMENT, shard INTEGER NOT NULL, batch BLOB NOT NULL);
CREATE INDEX journal_of_shards ON journal (shard, serial);
CREATE TABLE chunks (
    stream INTEGER NOT NULL, first INTEGER NOT NULL, last INTEGER NOT NULL, day INTEGER NOT NULL,
    policy_version INTEGER NOT NULL, distribution BLOB NOT NULL, runs BLOB NOT NULL, symbols BLOB NOT NULL,
    PRIMARY KEY (stream, first));
CREATE TABLE heads (
    stream INTEGER NOT NULL, last INTEGER NOT NULL, shift INTEGER NOT NULL, version INTEGER NOT NULL,
    distribution BLOB NOT NULL, chunk INTEGER NOT NULL, ticks INTEGER NOT NULL, reported INTEGER NOT NULL,
    PRIMARY KEY (stream)) WITHOUT ROWID;
"""

    def __init__(self, database: Database, shard: Shard | None) -> None:
        self._db = database
        self._owns: Callable[[str], bool] = (lambda _device: True) if shard is None else shard.owns
        self._shard = 0 if shard is None else shard.index
        self._mine = "" if shard is None else f"WHERE shard={shard.index}"
        self._tail: Tail | None = None
        self._seen: dict[int, tuple[int, int]] = {}

    @property
    def tail(self) -> Tail:
        """What the journal holds: of all shards, or of one."""
        if self._tail is None:
            read, seen = Tail(), dict[int, tuple[int, int]]()
            query = f"SELECT serial, shard, batch FROM journal {self._mine} ORDER BY serial"
            for serial, shard, batch in self._db.execute(query):
                read.add(Columns.decode(bytes(batch)))
                seen[shard] = seen.get(shard, (serial, serial))[0], serial
            self._tail, self._seen = read, seen  # all of it, or an error comes before: what seals removes all of it
        return self._tail

    def catch_up(self, shards: int) -> None:
        """Read what so many shards have put into the journal since; all of it anew if one has sealed its own.

        A shard's rows become visible in the order of their numbers: one of its transactions follows the other.
        """
        tail = self.tail
        for shard in range(shards):
            query = "SELECT MIN(serial), MAX(serial) FROM journal WHERE shard=?"
            first, last = self._db.execute(query, (shard,)).fetchone()
            before = self._seen.get(shard)
            if before is not None and before[0] != first:
                self._tail = None
                return
            if first is not None and before != (first, last):
                query = "SELECT batch FROM journal WHERE shard=? AND serial>? AND serial<=? ORDER BY serial"
                through = -1 if before is None else before[1]
                for (batch,) in self._db.execute(query, (shard, through, last)):
                    tail.add(Columns.decode(bytes(batch)))
                self._seen[shard] = first, last

    def read_again(self) -> None:
        """Read the journal anew: what is in memory may be ahead of it."""
        self._tail = None

    def append(self, columns: Columns) -> None:
        """Write a batch into the journal; if the transaction fails, `read_again` is to be called."""
        tail = self.tail
        self._db.execute("INSERT INTO journal (shard, batch) VALUES (?, ?)", (self._shard, columns.encode()))
        tail.add(columns)

    def seal(self, removed: Iterable[tuple[int, int]], chunks: Iterable[Chunk], heads: Iterable[Head]) -> None:
        """Put chunks in the place of what the journal holds, and of other chunks; `read_again` after the transaction.

        Args:
            removed: sequences, and ticks from which on their chunks go.
            heads: of all sequences that have new chunks; what was reported of them stays.
        """
        self._db.executemany("DELETE FROM chunks WHERE stream=? AND first>=?", removed)
        self._db.executemany("INSERT INTO chunks VALUES (?, ?, ?, ?, ?, ?, ?, ?)", map(_chunk_row, chunks))
        self._db.executemany(
            "INSERT INTO heads VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (stream) DO UPDATE SET last=excluded.last, "
            "shift=excluded.shift, version=excluded.version, distribution=excluded.distribution, chunk=excluded.chunk, "
            "ticks=excluded.ticks",
            ((*head[:4], head.distribution.tobytes(), *head[5:]) for head in heads),
        )
        self._db.execute(f"DELETE FROM journal {self._mine}")

    def head(self, number: int) -> Head | None:
        """A stream as it was sealed last."""
        return next(iter(self.heads([number])), None)

    def heads(self, numbers: Sequence[int]) -> list[Head]:
        """Those of some streams that have been sealed."""
        found = []
        for some in batched(numbers, MOST_VALUES):
            for row in self._db.execute(f"SELECT * FROM heads WHERE stream IN ({marks(some)})", some):
                found.append(Head._make((*row[:4], np.frombuffer(row[4], dtype="<f8"), *row[5:])))
        return found

    def last(self, number: int) -> int:
        """The newest tick of a stream that is sealed, -1 if none is."""
        head = self.head(number)
        return -1 if head is None else head.last

    def unreported(self) -> list[int]:
        """Streams whose newest tick may not have been reported; those in the journal among them."""
        query = "SELECT heads.stream, device FROM heads JOIN streams ON id=heads.stream WHERE reported<last"
        found = {number for number, device in self._db.execute(query) if self._owns(device)}
        return sorted(found.union(self.tail.numbers))

    def put_reported(self, reported: Iterable[tuple[int, int]]) -> None:
        """Store of streams that have been sealed the newest tick that was reported."""
        self._db.executemany(
            "UPDATE heads SET reported=? WHERE stream=?", ((tick, number) for number, tick in reported)
        )

    def chunks(self, number: int, tick: int) -> Iterator[Chunk]:
        """The chunk that begins at a tick or before it, and all that follow, read as they are asked for."""
        query = "SELECT MAX(first) FROM chunks WHERE stream=? AND first<=?"
        (before,) = self._db.execute(query, (number, tick)).fetchone()
        tick = tick if before is None else before
        query = "SELECT * FROM chunks WHERE stream=? AND first>=? ORDER BY first LIMIT ?"
        while rows := self._db.execute(query, (number, tick, _PAGE)).fetchall():
            for row in rows:
                yield _chunk(row)
            tick = rows[-1][1] + 1

    def following(self, number: int, first: int, last: int | None = None) -> Iterator[SymbolFrame]:
        """Symbols from a tick on as frames of consecutive ticks, in tick order, read as they are asked for.

        No frame that begins after `last` is asked for. How the device has cut them into frames is not known any more
        once they are sealed.
        """
        late = _runs(
            self.tail.of(number, first, last)
        )  # in memory before the chunks are read: another process may seal them
        for chunk in self.chunks(number, first):
            while late and late[0].first < chunk.first:
                yield from _from(late.pop(0), first)
            for run in _runs(chunk.columns()):
                while late and late[0].first <= run.last:
                    frame = late.pop(0)
                    if frame.last < run.first:
                        yield from _from(frame, first)
                yield from _from(run, first)
        for frame in late:
            yield from _from(frame, first)

    def holding(self, number: int, first: int, last: int) -> list[SymbolFrame]:
        """Symbols of the ticks first..last as frames, none of which reaches beyond them."""
        found = []
        for frame in self.following(number, first, last):
            if frame.first > last:
                break
            found.append(_cut(frame, first, last))
        return found

    def next_first(self, number: int, tick: int) -> int | None:
        """The first tick from a tick on that has a symbol."""
        return next((frame.first for frame in self.following(number, tick)), None)

    def put_rest(self, chunk: Chunk, rest: Chunk) -> None:
        """Put a part of a chunk in its place."""
        self._db.execute("DELETE FROM chunks WHERE stream=? AND first=?", (chunk.number, chunk.first))
        self._db.execute("INSERT INTO chunks VALUES (?, ?, ?, ?, ?, ?, ?, ?)", _chunk_row(rest))
        query = "UPDATE heads SET chunk=?, ticks=? WHERE stream=? AND chunk=?"
        self._db.execute(query, (rest.first, rest.ticks, chunk.number, chunk.first))

    def erase(self, number: int) -> int:
        """Remove a stream's chunks and its head; how many symbols they had."""
        symbols = sum(chunk.ticks for chunk in self.chunks(number, -1))
        for table in ("chunks", "heads"):
            self._db.execute(f"DELETE FROM {table} WHERE stream=?", (number,))
        return symbols

    def take_out(self, numbers: Sequence[int]) -> Columns:
        """Remove sequences from the journal, and return what it had of them; `read_again` after the transaction."""
        gone = np.array(numbers, dtype=np.int64)
        rows = self._db.execute("SELECT serial, batch FROM journal ORDER BY serial").fetchall()
        taken = []
        for serial, batch in rows:
            columns = Columns.decode(bytes(batch))
            out = np.isin(columns.number, gone)
            if out.any():
                taken.append(columns.take(np.flatnonzero(out)))
                rest = columns.take(np.flatnonzero(~out))
                self._db.execute("UPDATE journal SET batch=? WHERE serial=?", (rest.encode(), serial))
        return Columns.joined(taken)


def _chunk_row(chunk: Chunk) -> tuple[object, ...]:
    number, first, last, distribution, version, day, runs, symbols = chunk
    packed = msgpack.packb([value for run in runs for value in run])
    return number, first, last, day, version, distribution.astype("<f8").tobytes(), packed, symbols


def _chunk(row: Sequence[Any]) -> Chunk:
    number, first, last, day, version, distribution, packed, symbols = row
    values = msgpack.unpackb(packed)
    runs = tuple(tuple(values[i : i + 5]) for i in range(0, len(values), 5))
    return Chunk(number, first, last, np.frombuffer(distribution, dtype="<f8"), version, day, runs, bytes(symbols))


def _runs(columns: Columns) -> list[SymbolFrame]:
    """Rows that have symbols as frames."""
    return [columns.frame(row) for row in np.flatnonzero(columns.ticks).tolist()]


def since(frame: SymbolFrame, first: int) -> SymbolFrame:
    """A frame's part from a tick on, which is not above its last one."""
    return _cut(frame, first, frame.last)


def _from(frame: SymbolFrame, first: int) -> Iterator[SymbolFrame]:
    if frame.last >= first:
        yield since(frame, first)


def _cut(frame: SymbolFrame, first: int, last: int) -> SymbolFrame:
    """A frame's ticks first..last."""
    low, high = max(frame.first, first), min(frame.last, last)
    if (low, high) == (frame.first, frame.last):
        return frame
    symbols = frame.symbols[low - frame.first : high - frame.first + 1]
    return SymbolFrame(frame.policy_version, low - 1, low, symbols, bits=frame.bits, shift=frame.shift)
