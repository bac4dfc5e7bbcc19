"""The part of the store that holds symbols: a journal of what has come, and chunks, into which it is sealed.

A batch of frames is one row of the journal, durable before anybody is told, and in memory, too. When the journal is
large or old enough, the symbols of each stream move into chunks of up to `CHUNK_TICKS` ticks. `coverage` says which
ticks a stream had accounted for at its last seal; the journal's rows have the rest. A chunk holds runs of consecutive
ticks of one policy version. It also holds the distribution of its first tick given all symbols before it, from which
the rest can be computed again.
"""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from heapq import merge
from itertools import pairwise
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

import msgpack
import numpy as np
from numpy.typing import NDArray

from fugu.chains.arrays import Floats, Ints
from fugu.chains.kernel import kernel
from fugu.contract.errors import FuguError
from fugu.contract.frames import MAX_TICK, SymbolFrame
from gateway.store.engine import Database, among

if TYPE_CHECKING:
    from gateway.store.shards import Shard

__all__ = ["Bytes", "Chunk", "Columns", "Head", "SymbolStore", "cut_frame", "packed_size"]


Bytes = NDArray[np.uint8]
_HEAD = struct.Struct("<BxxxIQ")
_VERSION = 1
_WIDTHS = ("<u4", "<u4", "<i8", "<i8", "<i8", "<u2", "u1")
"""Of the columns in `Columns`, in their order, as they are stored."""


class Columns(NamedTuple):
    """Frames of symbols, one a row; also what is accounted for and has no symbols (`ticks` 0).

    Attributes, each (n,) but `packed`:
        number, version: of the sequence in the store; of the policy.
        shift, previous, first: as in `SymbolFrame`.
        ticks: symbols; without any, the ticks previous < t < first are accounted for.
        bits: of a symbol.
        start: where the packed symbols of a row begin in `packed`.
        packed: symbols as on the wire, each row's from a byte of its own on.
    """

    number: Ints
    version: Ints
    shift: Ints
    previous: Ints
    first: Ints
    ticks: Ints
    bits: Ints
    start: Ints
    packed: Bytes

    @property
    def rows(self) -> int:
        """How many there are."""
        return len(self.number)

    @classmethod
    def of(cls, rows: Iterable[tuple[int, SymbolFrame]]) -> Columns:
        """Frames as columns, from the numbers of their sequences and themselves."""
        frames = list(rows)
        fields = [
            (number, f.policy_version, f.shift, f.previous, f.first, len(f.symbols), f.bits) for number, f in frames
        ]
        table = np.array(fields, dtype=np.int64).reshape(len(frames), 7).T.copy()
        sizes = packed_size(table[5], table[6])
        start = np.cumsum(sizes) - sizes
        packed = np.zeros(int(sizes.sum()), dtype=np.uint8)
        for offset, (_, frame) in zip(start, frames, strict=True):
            pack(np.frombuffer(frame.symbols, dtype=np.uint8), frame.bits, packed, int(offset))
        return cls._make((*table, start, packed))

    def frame(self, row: int) -> SymbolFrame:
        """A row as a frame, without the padding that it came with."""
        symbols = unpacked(self.packed, int(self.start[row]), int(self.ticks[row]), int(self.bits[row]))
        ticks = (int(self.version[row]), int(self.previous[row]), int(self.first[row]))
        return SymbolFrame(*ticks, symbols.tobytes(), bits=int(self.bits[row]), shift=int(self.shift[row]))

    def lay_out(self, rows: Sequence[int], lines: Sequence[int], begin: int, out: Ints) -> None:
        """Write the symbols of some rows into lines of `out` (n, ticks), whose first column is the tick `begin`."""
        index = np.array(rows, dtype=np.int64)
        lay_out(
            self.packed,
            self.start[index],
            self.ticks[index],
            self.bits[index],
            self.first[index] - begin,
            np.array(lines),
            out,
        )

    def take(self, rows: Ints) -> Columns:
        """Some rows, in the order given."""
        fields = [column[rows] for column in self[:7]]
        sizes = packed_size(fields[5], fields[6])
        start = np.cumsum(sizes) - sizes
        packed = np.empty(int(sizes.sum()), dtype=np.uint8)
        _gather(self.packed, self.start[rows], sizes, packed)
        return Columns._make((*fields, start, packed))

    @property
    def last(self) -> Ints:
        """(n,) the last tick of each row."""
        return self.first + self.ticks - 1

    def encode(self) -> bytes:
        """Bytes to store; rows must be those of `take` or `of`, their symbols side by side."""
        columns = (column.astype(width) for column, width in zip(self[:7], _WIDTHS, strict=True))
        head = _HEAD.pack(_VERSION, self.rows, len(self.packed))
        return b"".join((head, *(column.tobytes() for column in columns), self.packed.tobytes()))

    @classmethod
    def decode(cls, encoded: bytes) -> Columns:
        """Read what `encode` has made. Raises FuguError for other bytes."""
        try:
            version, rows, size = _HEAD.unpack_from(encoded)
            offset, fields = _HEAD.size, []
            for width in _WIDTHS:
                fields.append(np.frombuffer(encoded, width, rows, offset).astype(np.int64))
                offset += rows * np.dtype(width).itemsize
            packed = np.frombuffer(encoded, np.uint8, size, offset)
        except (struct.error, ValueError):
            raise FuguError("a batch of frames in the store is cut short") from None
        sizes = packed_size(fields[5], fields[6])
        if version != _VERSION or offset + size != len(encoded) or int(sizes.sum()) != size:
            raise FuguError("a batch of frames in the store is not whole")
        return cls._make((*fields, np.cumsum(sizes) - sizes, packed))

    @classmethod
    def joined(cls, parts: Sequence[Columns]) -> Columns:
        """Several one after the other."""
        if len(parts) == 1:
            return parts[0]
        fields = [np.concatenate([np.empty(0, np.int64), *(part[i] for part in parts)]) for i in range(7)]
        sizes = [len(part.packed) for part in parts]
        begins = np.cumsum([0, *sizes[:-1]])
        starts = [part.start + begin for part, begin in zip(parts, begins, strict=False)]
        start = np.concatenate([np.empty(0, np.int64), *starts])
        packed = np.concatenate([np.empty(0, np.uint8), *(part.packed for part in parts)])
        return cls._make((*fields, start, packed))


def packed_size(count: Ints, bits: Ints) -> Ints:
    """(n,) bytes that so many symbols of so many bits take."""
    return (count * bits + 7) >> 3


@kernel
def pack(symbols: Bytes, bits: int, out: Bytes, offset: int) -> None:
    """Write symbols into zeroed bytes from `offset` on, the first into the highest bits."""
    per_byte = 8 // bits
    for i in range(symbols.size):
        out[offset + i // per_byte] |= np.uint8(symbols[i] << (8 - bits - bits * (i % per_byte)))


@kernel
def unpack(packed: Bytes, offset: int, count: int, bits: int, out: Bytes, target: int) -> None:
    """Read symbols from bytes from `offset` on into `out` from `target` on."""
    per_byte, mask = 8 // bits, (1 << bits) - 1
    for i in range(count):
        out[target + i] = (packed[offset + i // per_byte] >> (8 - bits - bits * (i % per_byte))) & mask


@kernel
def lay_out(packed: Bytes, starts: Ints, counts: Ints, bits: Ints, offsets: Ints, lines: Ints, out: Ints) -> None:
    """Read symbols into lines of `out`, each row's from its place on; what lies beside a line is left out."""
    for row in range(starts.size):
        per_byte, mask = 8 // bits[row], (1 << bits[row]) - 1
        for i in range(max(0, -offsets[row]), min(counts[row], out.shape[1] - offsets[row])):
            shift = 8 - bits[row] - bits[row] * (i % per_byte)
            out[lines[row], offsets[row] + i] = (packed[starts[row] + i // per_byte] >> shift) & mask


def unpacked(packed: Bytes, offset: int, count: int, bits: int) -> Bytes:
    """(count,) symbols that are packed from a byte on."""
    out = np.empty(count, dtype=np.uint8)
    unpack(packed, offset, count, bits, out, 0)
    return out


@kernel
def _gather(packed: Bytes, starts: Ints, sizes: Ints, out: Bytes) -> None:
    target = 0
    for row in range(starts.size):
        for i in range(sizes[row]):
            out[target + i] = packed[starts[row] + i]
        target += sizes[row]


_ROW_BYTES = 8 * 8 + 80
"""Approximate bytes of a row beside its symbols."""
_BATCH = 32
"""A row's place is the number of its batch, above so many bits, and its number there."""


@dataclass(slots=True)
class _Rows:
    """Of a sequence the first ticks of its frames, ascending, and where they are; and what has no symbols."""

    firsts: list[int] = field(default_factory=list)
    addresses: list[int] = field(default_factory=list)
    accounted: list[int] = field(default_factory=list)


_NO_ROWS = _Rows()


class Tail:
    """Batches of frames, none of which overlaps another; `size` is about the bytes that their `rows` take in memory.

    `numbers` are the sequences that there is anything of, always as they are now.
    """

    def __init__(self) -> None:
        self.size = self.rows = 0
        self._batches: list[Columns] = []
        self._rows: dict[int, _Rows] = {}
        self.numbers = self._rows.keys()

    def add(self, columns: Columns) -> None:
        """Append a batch."""
        rows_by_number, address = self._rows, len(self._batches) << _BATCH
        self._batches.append(columns)
        columns_as_lists = (columns.number.tolist(), columns.first.tolist(), columns.ticks.tolist())
        for number, first, count in zip(*columns_as_lists, strict=True):
            if (rows := rows_by_number.get(number)) is None:
                rows = rows_by_number[number] = _Rows()
            if not count:
                rows.accounted.append(address)
            else:
                i = len(rows.firsts) if not rows.firsts or first > rows.firsts[-1] else bisect_left(rows.firsts, first)
                rows.firsts.insert(i, first)
                rows.addresses.insert(i, address)
            address += 1
        self.rows += columns.rows
        self.size += columns.rows * _ROW_BYTES + len(columns.packed)

    def newest(self, number: int) -> SymbolFrame | None:
        """The last frame of a sequence, none without one."""
        addresses = self._rows.get(number, _NO_ROWS).addresses[-1:]
        return self._columns_at(addresses).frame(0) if addresses else None

    def first(self, number: int) -> int | None:
        """The first tick of a sequence's first frame, none without one."""
        return next(iter(self._rows.get(number, _NO_ROWS).firsts), None)

    def next_first(self, number: int, tick: int) -> int | None:
        """The first tick from a tick on that has a symbol here, `None` without one; reads two frames at most."""
        rows = self._rows.get(number, _NO_ROWS)
        index = max(bisect_right(rows.firsts, tick) - 1, 0)
        if rows.firsts[index : index + 1] >= [tick]:
            return rows.firsts[index]
        frames = self._columns_at(rows.addresses[index : index + 2])
        firsts = frames.first[frames.last >= tick]
        return max(int(firsts[0]), tick) if firsts.size else None

    def of(self, number: int, first: int = 0, last: int | None = None) -> Columns:
        """The frames of a sequence that have any of the ticks first..last, in tick order."""
        rows = self._rows.get(number, _NO_ROWS)
        low = max(bisect_right(rows.firsts, first) - 1, 0)
        columns = self._columns_at(rows.addresses[low : None if last is None else bisect_right(rows.firsts, last)])
        return columns.take(np.flatnonzero(columns.last >= first))

    def across(self, numbers: Iterable[int], first: int, last: int) -> Columns:
        """Frames of some sequences; among them all that have any of the ticks first..last."""
        addresses = list[int]()
        for number in numbers:
            rows = self._rows.get(number, _NO_ROWS)
            low = max(bisect_right(rows.firsts, first) - 1, 0)
            addresses += rows.addresses[low : bisect_right(rows.firsts, last)]
        return self._columns_at(addresses)

    def intervals(self, number: int) -> list[tuple[int, int]]:
        """Intervals that the rows of a sequence account for, (after, through]."""
        rows = self._rows.get(number, _NO_ROWS)
        columns = self._columns_at(sorted((*rows.addresses, *rows.accounted)))
        return list(zip(columns.previous.tolist(), columns.last.tolist(), strict=True))

    def all_columns(self) -> Columns:
        """All frames, by sequence and then in tick order."""
        columns = Columns.joined(self._batches)
        order = np.lexsort((columns.first, columns.number))
        return columns.take(order[columns.ticks[order] > 0])

    def _columns_at(self, address_list: list[int]) -> Columns:
        addresses = np.array(address_list, dtype=np.int64)
        order = np.argsort(addresses >> _BATCH, kind="stable")
        batches, rows = addresses[order] >> _BATCH, addresses[order] & ((1 << _BATCH) - 1)
        edges = pairwise([0, *(np.flatnonzero(np.diff(batches)) + 1).tolist(), len(addresses)])
        parts = [self._batches[batches[low]].take(rows[low:high]) for low, high in edges if low < high]
        return Columns.joined(parts).take(np.argsort(order))


_PAGE = 64


class Chunk(NamedTuple):
    """Sealed symbols of a stream.

    Attributes:
        number: of the sequence.
        distribution: (k,), of the first tick, given all symbols before it.
        version: of the policy of the last run; its states are those of `distribution` unless `runs` begin with another.
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
    """A stream as it was when it was sealed last: its `last` tick that had a symbol, with its `shift` and `version`.

    `distribution` (k,) is at that tick, given all symbols up to it. `chunk` is the first tick of its last chunk, of so
    many `ticks`, -1 if that is gone. `reported` is the newest tick that was reported, or -1.
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
        self._shard_condition = "" if shard is None else f"WHERE shard={shard.index}"
        self._tail: Tail | None = None
        self._seen_serials: dict[int, tuple[int, int]] = {}

    @property
    def tail(self) -> Tail:
        """Content of the journal: of all shards, or of one."""
        if self._tail is None:
            tail, serials = Tail(), dict[int, tuple[int, int]]()
            query = f"SELECT serial, shard, batch FROM intact_journal {self._shard_condition} ORDER BY serial"
            for serial, shard, batch in self._db.execute(query):
                tail.add(Columns.decode(bytes(batch)))
                serials[shard] = serials.get(shard, (serial, serial))[0], serial
            self._tail, self._seen_serials = tail, serials  # all, or an error comes before: what seals removes all
        return self._tail

    def catch_up(self, shards: int) -> None:
        """Read the journal's rows of so many shards since; all of it anew if one has sealed its own.

        A shard's transactions follow one another, so its rows become visible in the order of their numbers.
        """
        tail = self.tail
        for shard in range(shards):
            query = "SELECT MIN(serial), MAX(serial) FROM journal WHERE shard=?"
            first, last = self._db.execute(query, (shard,)).fetchone()
            seen_serials = self._seen_serials.get(shard)
            if seen_serials is not None and seen_serials[0] != first:
                self._tail = None
                return
            if first is not None and seen_serials != (first, last):
                query = "SELECT batch FROM intact_journal WHERE shard=? AND serial>? AND serial<=? ORDER BY serial"
                last_seen = -1 if seen_serials is None else seen_serials[1]
                for (batch,) in self._db.execute(query, (shard, last_seen, last)):
                    tail.add(Columns.decode(bytes(batch)))
                self._seen_serials[shard] = first, last

    def read_again(self) -> None:
        """Read the journal anew: what is in memory may be ahead of it."""
        self._tail = None

    def append(self, columns: Columns) -> None:
        """Write a batch into the journal; if the transaction fails, `read_again` is to be called."""
        tail = self.tail
        self._db.execute("INSERT INTO journal (shard, batch) VALUES (?, ?)", (self._shard, columns.encode()))
        tail.add(columns)

    def seal(self, removed: Iterable[tuple[int, int]], chunks: Iterable[Chunk], heads: Iterable[Head]) -> None:
        """Put `chunks` in the place of the journal and of chunks from the `removed` ticks on; then call `read_again`.

        `heads` are those of all sequences with new chunks; what was reported of them stays.
        """
        self._db.executemany("DELETE FROM chunks WHERE stream=? AND first>=?", removed)
        self._db.executemany("INSERT INTO chunks VALUES (?, ?, ?, ?, ?, ?, ?, ?)", map(_chunk_row, chunks))
        self._db.executemany(
            "INSERT INTO heads VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (stream) DO UPDATE SET last=excluded.last, "
            "shift=excluded.shift, version=excluded.version, distribution=excluded.distribution, chunk=excluded.chunk, "
            "ticks=excluded.ticks",
            ((*head[:4], head.distribution.tobytes(), *head[5:]) for head in heads),
        )
        self._db.execute(f"DELETE FROM journal {self._shard_condition}")

    def head(self, number: int) -> Head | None:
        """A stream as it was sealed last."""
        return next(iter(self.heads([number])), None)

    def heads(self, numbers: Sequence[int]) -> list[Head]:
        """Those of some streams that have been sealed."""
        rows = among(self._db, "SELECT * FROM intact_heads WHERE stream", numbers)
        return [Head._make((*row[:4], np.frombuffer(row[4], dtype="<f8"), *row[5:])) for row in rows]

    def last(self, number: int) -> int:
        """The newest tick of a stream that is sealed, -1 if none is."""
        head = self.head(number)
        return -1 if head is None else head.last

    def unreported(self) -> list[int]:
        """Streams whose newest tick may not have been reported; those in the journal among them."""
        query = "SELECT heads.stream, device FROM heads JOIN streams ON id=heads.stream WHERE reported<last"
        return sorted(
            {number for number, device in self._db.execute(query) if self._owns(device)} | {*self.tail.numbers}
        )

    def put_reported(self, reported: Iterable[tuple[int, int]]) -> None:
        """Store of streams that have been sealed the newest tick that was reported."""
        self._db.executemany(
            "UPDATE heads SET reported=? WHERE stream=?", ((tick, number) for number, tick in reported)
        )

    def chunks(self, number: int, tick: int) -> Iterator[Chunk]:
        """The chunk that begins at a tick or before it, and all that follow, read as they are asked for."""
        query = "SELECT MAX(first) FROM chunks WHERE stream=? AND first<=?"
        (chunk_first,) = self._db.execute(query, (number, tick)).fetchone()
        tick = tick if chunk_first is None else chunk_first
        query = "SELECT * FROM intact_chunks WHERE stream=? AND first>=? ORDER BY first LIMIT ?"
        while rows := self._db.execute(query, (number, tick, _PAGE)).fetchall():
            for row in rows:
                yield _chunk(row)
            tick = rows[-1][1] + 1

    def following(self, number: int, first: int, last: int = MAX_TICK) -> Iterator[SymbolFrame]:
        """Symbols from a tick on as frames of consecutive ticks, in tick order, read as they are asked for.

        None begins after `last`. Once sealed, frames are not cut as the device did.
        """
        unsealed = _runs(self.tail.of(number, first, last))  # before the chunks: another process may seal them
        sealed = (run for chunk in self.chunks(number, first) for run in _runs(chunk.columns()))
        for frame in merge(sealed, unsealed, key=attrgetter("first")):
            if frame.first > last:
                return
            if frame.last >= first:
                yield cut_frame(frame, first, frame.last)
                first = frame.last + 1

    def holding(self, number: int, first: int, last: int) -> list[SymbolFrame]:
        """Symbols of the ticks first..last as frames, none of which reaches beyond them."""
        return [cut_frame(frame, first, last) for frame in self.following(number, first, last)]

    def across(self, numbers: Sequence[int], first: int, last: int) -> Columns:
        """The frames of some sequences that have any of the ticks first..last; some may be there twice, sealed or not.

        Once sealed, frames are not cut as the device did.
        """
        journal_columns = self.tail.across(numbers, first, last)  # before the chunks: another process may seal them
        query = (
            "SELECT c.stream, c.first, c.last, day, policy_version, distribution, runs, symbols FROM intact_chunks c "
            "JOIN streams ON id=c.stream WHERE c.first<=? AND c.first>=COALESCE("
            "(SELECT MAX(first) FROM chunks WHERE chunks.stream=id AND first<=?), ?) AND id"
        )
        sealed_columns = (_chunk(row).columns() for row in among(self._db, query, numbers, last, first, first))
        columns = Columns.joined([journal_columns, *sealed_columns])
        return columns.take(np.flatnonzero((columns.ticks > 0) & (columns.first <= last) & (columns.last >= first)))

    def next_first(self, number: int, tick: int) -> int | None:
        """The first tick from a tick on that has a symbol."""
        journal_tick = self.tail.next_first(number, tick)  # before the chunks: another process may seal it
        runs = ((chunk.first + run[2], run[3]) for chunk in self.chunks(number, tick) for run in chunk.runs)
        sealed_tick = next((max(first, tick) for first, ticks in runs if first + ticks > tick), None)
        return min((first for first in (journal_tick, sealed_tick) if first is not None), default=None)

    def put_rest(self, chunk: Chunk, remainder: Chunk) -> None:
        """Put a part of a chunk in its place."""
        self._db.execute("DELETE FROM chunks WHERE stream=? AND first=?", (chunk.number, chunk.first))
        self._db.execute("INSERT INTO chunks VALUES (?, ?, ?, ?, ?, ?, ?, ?)", _chunk_row(remainder))
        query = "UPDATE heads SET chunk=?, ticks=? WHERE stream=? AND chunk=?"
        self._db.execute(query, (remainder.first, remainder.ticks, chunk.number, chunk.first))

    def erase(self, number: int) -> int:
        """Remove a stream's chunks and its head; how many symbols they had."""
        symbols = sum(chunk.ticks for chunk in self.chunks(number, -1))
        for table in ("chunks", "heads"):
            self._db.execute(f"DELETE FROM {table} WHERE stream=?", (number,))
        return symbols

    def take_out(self, numbers: Sequence[int]) -> Columns:
        """Remove sequences from the journal, and return what it had of them; `read_again` after the transaction."""
        removed_numbers = np.array(numbers, dtype=np.int64)
        rows = self._db.execute("SELECT serial, batch FROM intact_journal ORDER BY serial").fetchall()
        removed_columns = []
        for serial, batch in rows:
            columns = Columns.decode(bytes(batch))
            is_removed = np.isin(columns.number, removed_numbers)
            if is_removed.any():
                removed_columns.append(columns.take(np.flatnonzero(is_removed)))
                remaining = columns.take(np.flatnonzero(~is_removed))
                self._db.execute("UPDATE journal SET batch=? WHERE serial=?", (remaining.encode(), serial))
        return Columns.joined(removed_columns)


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
    return [columns.frame(row) for row in np.flatnonzero(columns.ticks).tolist()]


def cut_frame(frame: SymbolFrame, first: int, last: int) -> SymbolFrame:
    """A frame's part from a tick to another; it has some of these."""
    low, high = max(frame.first, first), min(frame.last, last)
    if (low, high) == (frame.first, frame.last):
        return frame
    symbols = frame.symbols[low - frame.first : high - frame.first + 1]
    return SymbolFrame(frame.policy_version, low - 1, low, symbols, bits=frame.bits, shift=frame.shift)
