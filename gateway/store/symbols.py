"""The store's tables of symbols: a journal of arrived frames, and chunks, into which the journal is sealed.

A batch of frames is one row of the journal, durable before any frame is acknowledged, and is kept in memory, too. When
the journal is large or old enough, the symbols of each stream move into chunks of up to 4,000 ticks. The table
`coverage` says which ticks a stream had accounted for at its last seal; the journal's rows have the other ticks. A
chunk holds runs of consecutive ticks of one policy version. It also holds the distribution of its first tick given all
symbols before it, from which the distributions of later ticks can be computed again.
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
from gateway.store.engine import Database, select_among

if TYPE_CHECKING:
    from gateway.store.shards import Shard

__all__ = ["Bytes", "Chunk", "Columns", "Head", "SymbolStore", "cut_frame", "packed_size"]


Bytes = NDArray[np.uint8]
_HEAD = struct.Struct("<BxxxIQ")
_VERSION = 1
_WIDTHS = ("<u4", "<u4", "<i8", "<i8", "<i8", "<u2", "u1")
"""Stored types of the first columns of `Columns`, in their order."""


class Columns(NamedTuple):
    """Frames of symbols, one a row; also rows without symbols (`ticks` 0), whose ticks are accounted for.

    Attributes, each (n,) but `packed`:
        number: number of the sequence in the store.
        version: version of the policy.
        shift, previous, first: as in `SymbolFrame`.
        ticks: number of symbols; without symbols, the ticks previous < t < first are accounted for.
        bits: bits of a symbol.
        start: index in `packed` at which the symbols of a row begin.
        packed: symbols as on the wire; each row's symbols begin with a byte of their own.
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
    def row_count(self) -> int:
        """The number of rows."""
        return len(self.number)

    @classmethod
    def of(cls, rows: Iterable[tuple[int, SymbolFrame]]) -> Columns:
        """Convert frames, each with the number of its sequence, to columns."""
        frames = list(rows)
        field_rows = [
            (number, frame.policy_version, frame.shift, frame.previous, frame.first, len(frame.symbols), frame.bits)
            for number, frame in frames
        ]
        table = np.array(field_rows, dtype=np.int64).reshape(len(frames), 7).T.copy()
        sizes = packed_size(table[5], table[6])
        start = np.cumsum(sizes) - sizes
        packed = np.zeros(int(sizes.sum()), dtype=np.uint8)
        for offset, (_, frame) in zip(start, frames, strict=True):
            pack(np.frombuffer(frame.symbols, dtype=np.uint8), frame.bits, packed, int(offset))
        return cls._make((*table, start, packed))

    def frame(self, row: int) -> SymbolFrame:
        """Convert a row to a frame without padding."""
        symbols = unpacked(self.packed, int(self.start[row]), int(self.ticks[row]), int(self.bits[row]))
        ticks = (int(self.version[row]), int(self.previous[row]), int(self.first[row]))
        return SymbolFrame(*ticks, symbols.tobytes(), bits=int(self.bits[row]), shift=int(self.shift[row]))

    def lay_out(self, rows: Sequence[int], lines: Sequence[int], begin: int, out: Ints) -> None:
        """Write the symbols of each of `rows` into a line of `out` (n, ticks), whose first column is tick `begin`.

        `lines` has the index of the line for each row. Symbols of other ticks are left out.
        """
        row_array = np.array(rows, dtype=np.int64)
        lay_out(
            self.packed,
            self.start[row_array],
            self.ticks[row_array],
            self.bits[row_array],
            self.first[row_array] - begin,
            np.array(lines, dtype=np.int64),
            out,
        )

    def take(self, rows: Ints) -> Columns:
        """The given rows, in the given order."""
        int_columns = [column[rows] for column in self[:7]]
        sizes = packed_size(int_columns[5], int_columns[6])
        start = np.cumsum(sizes) - sizes
        packed = np.empty(int(sizes.sum()), dtype=np.uint8)
        _copy_rows(self.packed, self.start[rows], sizes, packed)
        return Columns._make((*int_columns, start, packed))

    @property
    def last(self) -> Ints:
        """The last tick of each row, (n,)."""
        return self.first + self.ticks - 1

    def encode(self) -> bytes:
        """Encode the columns as bytes; they must come from `take` or `of`, so that symbols lie side by side."""
        columns = (column.astype(width) for column, width in zip(self[:7], _WIDTHS, strict=True))
        header = _HEAD.pack(_VERSION, self.row_count, len(self.packed))
        return b"".join((header, *(column.tobytes() for column in columns), self.packed.tobytes()))

    @classmethod
    def decode(cls, encoded: bytes) -> Columns:
        """Decode the bytes of `encode`. Raises FuguError for other bytes."""
        try:
            version, row_count, packed_bytes = _HEAD.unpack_from(encoded)
            offset, int_columns = _HEAD.size, []
            for width in _WIDTHS:
                int_columns.append(np.frombuffer(encoded, width, row_count, offset).astype(np.int64))
                offset += row_count * np.dtype(width).itemsize
            packed = np.frombuffer(encoded, np.uint8, packed_bytes, offset)
        except (struct.error, ValueError):
            raise FuguError("a batch of frames in the store is cut short") from None
        sizes = packed_size(int_columns[5], int_columns[6])
        if version != _VERSION or offset + packed_bytes != len(encoded) or int(sizes.sum()) != packed_bytes:
            raise FuguError("a batch of frames in the store is not whole")
        return cls._make((*int_columns, np.cumsum(sizes) - sizes, packed))

    @classmethod
    def joined(cls, batches: Sequence[Columns]) -> Columns:
        """Join several columns, one after the other."""
        if len(batches) == 1:
            return batches[0]
        int_columns = [np.concatenate([np.empty(0, np.int64), *(batch[i] for batch in batches)]) for i in range(7)]
        sizes = [len(batch.packed) for batch in batches]
        offsets = np.cumsum([0, *sizes[:-1]])
        starts = [batch.start + begin for batch, begin in zip(batches, offsets, strict=False)]
        start = np.concatenate([np.empty(0, np.int64), *starts])
        packed = np.concatenate([np.empty(0, np.uint8), *(batch.packed for batch in batches)])
        return cls._make((*int_columns, start, packed))


def packed_size(count: Ints, bits: Ints) -> Ints:
    """The number of bytes (n,) that `count` symbols of `bits` bits take."""
    return (count * bits + 7) >> 3


@kernel
def pack(symbols: Bytes, bits: int, packed: Bytes, offset: int) -> None:
    """Write symbols into zeroed bytes from `offset` on, the first into the highest bits."""
    per_byte = 8 // bits
    for i in range(symbols.size):
        packed[offset + i // per_byte] |= np.uint8(symbols[i] << (8 - bits - bits * (i % per_byte)))


@kernel
def unpack(packed: Bytes, offset: int, bits: int, out: Bytes) -> None:
    """Read symbols from bytes from `offset` on into all of `out`."""
    per_byte, mask = 8 // bits, (1 << bits) - 1
    for i in range(out.size):
        out[i] = (packed[offset + i // per_byte] >> (8 - bits - bits * (i % per_byte))) & mask


@kernel
def lay_out(packed: Bytes, starts: Ints, ticks: Ints, bits: Ints, offsets: Ints, lines: Ints, out: Ints) -> None:
    """Read each row's symbols into a line of `out`, from the row's offset on, as far as the line reaches."""
    for row in range(starts.size):
        per_byte, mask = 8 // bits[row], (1 << bits[row]) - 1
        for i in range(max(0, -offsets[row]), min(ticks[row], out.shape[1] - offsets[row])):
            shift = 8 - bits[row] - bits[row] * (i % per_byte)
            out[lines[row], offsets[row] + i] = (packed[starts[row] + i // per_byte] >> shift) & mask


def unpacked(packed: Bytes, offset: int, count: int, bits: int) -> Bytes:
    """Read `count` symbols from bytes from `offset` on; (count,)."""
    out = np.empty(count, dtype=np.uint8)
    unpack(packed, offset, bits, out)
    return out


@kernel
def _copy_rows(packed: Bytes, starts: Ints, sizes: Ints, out: Bytes) -> None:
    """Copy the bytes of rows into `out`, one row after the other."""
    target = 0
    for row in range(starts.size):
        for i in range(sizes[row]):
            out[target + i] = packed[starts[row] + i]
        target += sizes[row]


_ROW_BYTES = 8 * 8 + 80
"""Approximate bytes of a row beside its symbols."""
_ROW_BITS = 32
"""Low bits of a row's address, which are its number in the batch; the high bits are the number of the batch."""


@dataclass(slots=True)
class _Rows:
    """The rows of a sequence.

    Attributes:
        firsts: the first ticks of its frames, ascending.
        addresses: the addresses of these frames.
        accounted: the addresses of rows without symbols.
    """

    firsts: list[int] = field(default_factory=list)
    addresses: list[int] = field(default_factory=list)
    accounted: list[int] = field(default_factory=list)


_NO_ROWS = _Rows()


class Tail:
    """The journal in memory: batches of frames, none of which overlaps another.

    Attributes:
        rows: number of rows.
        size: approximate bytes that the rows take in memory.
        numbers: a live view of the numbers of sequences that have rows.
    """

    def __init__(self) -> None:
        self.byte_count = self.row_count = 0
        self._batches: list[Columns] = []
        self._rows: dict[int, _Rows] = {}
        self.sequences = self._rows.keys()

    def add(self, columns: Columns) -> None:
        """Append a batch."""
        rows_by_number, address = self._rows, len(self._batches) << _ROW_BITS
        self._batches.append(columns)
        columns_as_lists = (columns.number.tolist(), columns.first.tolist(), columns.ticks.tolist())
        for sequence, first, tick_count in zip(*columns_as_lists, strict=True):
            if (sequence_rows := rows_by_number.get(sequence)) is None:
                sequence_rows = rows_by_number[sequence] = _Rows()
            if not tick_count:
                sequence_rows.accounted.append(address)
            else:
                position = bisect_left(sequence_rows.firsts, first)
                sequence_rows.firsts.insert(position, first)
                sequence_rows.addresses.insert(position, address)
            address += 1
        self.row_count += columns.row_count
        self.byte_count += columns.row_count * _ROW_BYTES + len(columns.packed)

    def newest(self, sequence: int) -> SymbolFrame | None:
        """The last frame of a sequence; `None` without frames."""
        addresses = self._rows.get(sequence, _NO_ROWS).addresses[-1:]
        return self._columns_at(addresses).frame(0) if addresses else None

    def first(self, sequence: int) -> int | None:
        """The first tick of a sequence's first frame; `None` without frames."""
        return next(iter(self._rows.get(sequence, _NO_ROWS).firsts), None)

    def next_first(self, sequence: int, tick: int) -> int | None:
        """The first tick from `tick` on with a symbol in the journal; `None` without one. Reads two frames at most."""
        sequence_rows = self._rows.get(sequence, _NO_ROWS)
        index = max(bisect_right(sequence_rows.firsts, tick) - 1, 0)
        if sequence_rows.firsts[index : index + 1] >= [tick]:
            return sequence_rows.firsts[index]
        frames = self._columns_at(sequence_rows.addresses[index : index + 2])
        firsts = frames.first[frames.last >= tick]
        return max(int(firsts[0]), tick) if firsts.size else None

    def of(self, sequence: int, first: int = 0, last: int = MAX_TICK) -> Columns:
        """The frames of a sequence that have any of the ticks first..last, in tick order."""
        columns = self.columns_between([sequence], first, last)
        return columns.take(np.flatnonzero(columns.last >= first))

    def columns_between(self, sequence_numbers: Iterable[int], first: int, last: int) -> Columns:
        """The frames of some sequences with any of the ticks first..last, and perhaps one earlier frame of each.

        The frames of each sequence are in tick order.
        """
        addresses: list[int] = []
        for sequence in sequence_numbers:
            rows = self._rows.get(sequence, _NO_ROWS)
            begin = max(bisect_right(rows.firsts, first) - 1, 0)
            addresses += rows.addresses[begin : bisect_right(rows.firsts, last)]
        return self._columns_at(addresses)

    def intervals(self, sequence: int) -> list[tuple[int, int]]:
        """The intervals (after, through] that the rows of a sequence account for."""
        sequence_rows = self._rows.get(sequence, _NO_ROWS)
        columns = self._columns_at(sorted((*sequence_rows.addresses, *sequence_rows.accounted)))
        return list(zip(columns.previous.tolist(), columns.last.tolist(), strict=True))

    def all_columns(self) -> Columns:
        """All frames, ordered by sequence, then by tick."""
        columns = Columns.joined(self._batches)
        order = np.lexsort((columns.first, columns.number))
        return columns.take(order[columns.ticks[order] > 0])

    def _columns_at(self, address_list: list[int]) -> Columns:
        """The rows at some addresses, in their order."""
        addresses = np.array(address_list, dtype=np.int64)
        batch_order = np.argsort(addresses >> _ROW_BITS, kind="stable")
        batches, rows = addresses[batch_order] >> _ROW_BITS, addresses[batch_order] & ((1 << _ROW_BITS) - 1)
        edges = pairwise([0, *(np.flatnonzero(np.diff(batches)) + 1).tolist(), len(addresses)])
        batch_parts = [self._batches[batches[begin]].take(rows[begin:end]) for begin, end in edges if begin < end]
        return Columns.joined(batch_parts).take(np.argsort(batch_order))


_PAGE = 64


class Chunk(NamedTuple):
    """Sealed symbols of a stream.

    Attributes:
        number: number of the sequence.
        distribution: (k,) distribution of the first tick's state, given all symbols before it.
        version: version of the last run's policy. Its states are those of `distribution`, unless `runs` begin with
            another version.
        day: day of the last tick, in days of Unix time.
        runs: policy version, shift, first tick less the chunk's, number of ticks and bits of a symbol of each run.
        symbols: packed symbols of one run after the other; each run begins with a byte of its own.
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
        """The number of ticks that have a symbol."""
        return sum(run[3] for run in self.runs)

    def columns(self) -> Columns:
        """The chunk's runs as rows."""
        run_table = np.array(self.runs, dtype=np.int64).reshape(-1, 5).T.copy()
        version, shift, offset, tick_count, bits = run_table
        first = offset + self.first
        sizes = packed_size(tick_count, bits)
        packed = np.frombuffer(self.symbols, dtype=np.uint8)
        numbers = np.full(len(first), self.number, dtype=np.int64)
        return Columns(numbers, version, shift, first - 1, first, tick_count, bits, np.cumsum(sizes) - sizes, packed)


class Head(NamedTuple):
    """The state of a stream at its last seal.

    Attributes:
        last: the last tick that had a symbol.
        shift, version: the shift and the policy version of that tick.
        distribution: (k,) distribution of that tick's state, given all symbols up to it.
        chunk: the first tick of the last chunk, -1 if that was removed.
        ticks: number of ticks of the last chunk.
        reported: the newest tick that was reported, or -1.
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
    """The journal, chunks and heads of symbols; used within the store's transactions."""

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
        """The content of the journal, of this process's shard or of all; read when it is first used."""
        if self._tail is None:
            tail, serials = Tail(), dict[int, tuple[int, int]]()
            query = f"SELECT serial, shard, batch FROM intact_journal {self._shard_condition} ORDER BY serial"
            for serial, shard, batch in self._db.execute(query):
                tail.add(Columns.decode(bytes(batch)))
                serials[shard] = serials.get(shard, (serial, serial))[0], serial
            self._tail, self._seen_serials = tail, serials  # only if all was read: a seal removes all rows
        return self._tail

    def catch_up(self, shards: int) -> None:
        """Read the new rows of `shards` shards. If one of them has sealed its rows, all is read again at the next use.

        A shard's transactions follow one another, so its rows become visible in the order of their numbers.
        """
        tail = self.tail
        for shard in range(shards):
            query = "SELECT MIN(serial), MAX(serial) FROM journal WHERE shard=?"
            first_serial, last_serial = self._db.execute(query, (shard,)).fetchone()
            seen_serials = self._seen_serials.get(shard)
            if seen_serials is not None and seen_serials[0] != first_serial:
                self._tail = None
                return
            if first_serial is not None and seen_serials != (first_serial, last_serial):
                query = "SELECT batch FROM intact_journal WHERE shard=? AND serial>? AND serial<=? ORDER BY serial"
                last_seen = -1 if seen_serials is None else seen_serials[1]
                for (batch,) in self._db.execute(query, (shard, last_seen, last_serial)):
                    tail.add(Columns.decode(bytes(batch)))
                self._seen_serials[shard] = first_serial, last_serial

    def read_again(self) -> None:
        """Read the journal again at its next use: the rows in memory may be ahead of it."""
        self._tail = None

    def append(self, columns: Columns) -> None:
        """Write a batch into the journal; if the transaction fails, call `read_again`."""
        tail = self.tail
        self._db.execute("INSERT INTO journal (shard, batch) VALUES (?, ?)", (self._shard, columns.encode()))
        tail.add(columns)

    def seal(self, removed_chunks: Iterable[tuple[int, int]], chunks: Iterable[Chunk], heads: Iterable[Head]) -> None:
        """Replace the journal and old chunks by new chunks. Call `read_again` after the transaction.

        Args:
            removed_chunks: numbers of sequences, each with the first tick of the first chunk that is removed.
            heads: the heads of all sequences with new chunks; the reported ticks of earlier heads stay.
        """
        self._db.executemany("DELETE FROM chunks WHERE stream=? AND first>=?", removed_chunks)
        self._db.executemany("INSERT INTO chunks VALUES (?, ?, ?, ?, ?, ?, ?, ?)", map(_chunk_row, chunks))
        self._db.executemany(
            "INSERT INTO heads VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (stream) DO UPDATE SET last=excluded.last, "
            "shift=excluded.shift, version=excluded.version, distribution=excluded.distribution, chunk=excluded.chunk, "
            "ticks=excluded.ticks",
            ((*head[:4], head.distribution.tobytes(), *head[5:]) for head in heads),
        )
        self._db.execute(f"DELETE FROM journal {self._shard_condition}")

    def head(self, sequence: int) -> Head | None:
        """The head of a stream; `None` before its first seal."""
        return next(iter(self.heads([sequence])), None)

    def heads(self, sequences: Sequence[int]) -> list[Head]:
        """The heads of streams, without those that were never sealed."""
        rows = select_among(self._db, "SELECT * FROM intact_heads WHERE stream", sequences)
        return [Head._make((*row[:4], np.frombuffer(row[4], dtype="<f8"), *row[5:])) for row in rows]

    def last(self, sequence: int) -> int:
        """The newest sealed tick of a stream, -1 if there is none."""
        head = self.head(sequence)
        return -1 if head is None else head.last

    def unreported(self) -> list[int]:
        """The numbers of streams whose newest tick may not have been reported, such as all in the journal."""
        query = "SELECT heads.stream, device FROM heads JOIN streams ON id=heads.stream WHERE reported<last"
        sealed_numbers = {number for number, device in self._db.execute(query) if self._owns(device)}
        return sorted(sealed_numbers | {*self.tail.sequences})

    def put_reported(self, reported_ticks: Iterable[tuple[int, int]]) -> None:
        """Store the newest reported tick of sealed streams, each with the number of its stream."""
        rows = ((tick, number) for number, tick in reported_ticks)
        self._db.executemany("UPDATE heads SET reported=? WHERE stream=?", rows)

    def chunks(self, sequence: int, tick: int) -> Iterator[Chunk]:
        """Iterate over the chunks from the last one that begins at `tick` or before, in pages of `_PAGE`."""
        query = "SELECT MAX(first) FROM chunks WHERE stream=? AND first<=?"
        (chunk_first,) = self._db.execute(query, (sequence, tick)).fetchone()
        tick = tick if chunk_first is None else chunk_first
        query = "SELECT * FROM intact_chunks WHERE stream=? AND first>=? ORDER BY first LIMIT ?"
        while rows := self._db.execute(query, (sequence, tick, _PAGE)).fetchall():
            for row in rows:
                yield _chunk(row)
            tick = rows[-1][1] + 1

    def following(self, sequence: int, first: int, last: int = MAX_TICK) -> Iterator[SymbolFrame]:
        """Iterate over the symbols from a tick on, as frames of consecutive ticks in tick order.

        No frame begins after `last`. Sealed frames are cut otherwise than the device has cut them.
        """
        unsealed = _run_frames(self.tail.of(sequence, first, last))  # before the chunks: another process may seal them
        sealed = (run for chunk in self.chunks(sequence, first) for run in _run_frames(chunk.columns()))
        for frame in merge(sealed, unsealed, key=attrgetter("first")):
            if frame.first > last:
                return
            if frame.last >= first:
                yield cut_frame(frame, first, frame.last)
                first = frame.last + 1

    def holding(self, sequence: int, first: int, last: int) -> list[SymbolFrame]:
        """The symbols of the ticks first..last as frames, cut to these ticks."""
        return [cut_frame(frame, first, last) for frame in self.following(sequence, first, last)]

    def columns_between(self, sequences: Sequence[int], first: int, last: int) -> Columns:
        """The frames of some sequences that have any of the ticks first..last, in no order.

        A frame may be there twice, from the journal and sealed. Sealed frames are cut otherwise than the device has cut
        them.
        """
        journal_columns = self.tail.columns_between(
            sequences, first, last
        )  # before the chunks: another process may seal them
        query = (
            "SELECT c.stream, c.first, c.last, day, policy_version, distribution, runs, symbols FROM intact_chunks c "
            "JOIN streams ON id=c.stream WHERE c.first<=? AND c.first>=COALESCE("
            "(SELECT MAX(first) FROM chunks WHERE chunks.stream=id AND first<=?), ?) AND id"
        )
        sealed_columns = (_chunk(row).columns() for row in select_among(self._db, query, sequences, last, first, first))
        columns = Columns.joined([journal_columns, *sealed_columns])
        return columns.take(np.flatnonzero((columns.ticks > 0) & (columns.first <= last) & (columns.last >= first)))

    def next_first(self, sequence: int, tick: int) -> int | None:
        """The first tick from `tick` on that has a symbol, or `None`."""
        journal_tick = self.tail.next_first(sequence, tick)  # before the chunks: another process may seal it
        runs = ((chunk.first + run[2], run[3]) for chunk in self.chunks(sequence, tick) for run in chunk.runs)
        sealed_tick = next((max(first_tick, tick) for first_tick, ticks in runs if first_tick + ticks > tick), None)
        return min((first_tick for first_tick in (journal_tick, sealed_tick) if first_tick is not None), default=None)

    def replace_chunk(self, chunk: Chunk, remainder: Chunk) -> None:
        """Put the remainder of a chunk in its place."""
        self._db.execute("DELETE FROM chunks WHERE stream=? AND first=?", (chunk.number, chunk.first))
        self._db.execute("INSERT INTO chunks VALUES (?, ?, ?, ?, ?, ?, ?, ?)", _chunk_row(remainder))
        query = "UPDATE heads SET chunk=?, ticks=? WHERE stream=? AND chunk=?"
        self._db.execute(query, (remainder.first, remainder.ticks, chunk.number, chunk.first))

    def erase(self, sequence: int) -> int:
        """Remove a stream's chunks and its head. Return the number of symbols in them."""
        symbols = sum(chunk.ticks for chunk in self.chunks(sequence, -1))
        for table in ("chunks", "heads"):
            self._db.execute(f"DELETE FROM {table} WHERE stream=?", (sequence,))
        return symbols

    def remove_from_journal(self, sequences: Sequence[int]) -> Columns:
        """Remove sequences from the journal of all shards. Return their rows. Later call `read_again`."""
        removed_numbers = np.array(sequences, dtype=np.int64)
        journal_rows = self._db.execute("SELECT serial, batch FROM intact_journal ORDER BY serial").fetchall()
        removed_columns = []
        for serial, batch in journal_rows:
            columns = Columns.decode(bytes(batch))
            is_removed = np.isin(columns.number, removed_numbers)
            if is_removed.any():
                removed_columns.append(columns.take(np.flatnonzero(is_removed)))
                remaining = columns.take(np.flatnonzero(~is_removed))
                self._db.execute("UPDATE journal SET batch=? WHERE serial=?", (remaining.encode(), serial))
        return Columns.joined(removed_columns)


def _chunk_row(chunk: Chunk) -> tuple[object, ...]:
    """A chunk as a row of its table."""
    number, first, last, distribution, version, day, runs, symbols = chunk
    packed = msgpack.packb([value for run in runs for value in run])
    return number, first, last, day, version, distribution.astype("<f8").tobytes(), packed, symbols


def _chunk(row: Sequence[Any]) -> Chunk:
    """Read a chunk from a row of its table."""
    number, first, last, day, version, distribution, packed, symbols = row
    run_numbers = msgpack.unpackb(packed)
    runs = tuple(tuple(run_numbers[i : i + 5]) for i in range(0, len(run_numbers), 5))
    return Chunk(number, first, last, np.frombuffer(distribution, dtype="<f8"), version, day, runs, bytes(symbols))


def _run_frames(columns: Columns) -> list[SymbolFrame]:
    """Convert the rows that have symbols to frames."""
    return [columns.frame(row) for row in np.flatnonzero(columns.ticks).tolist()]


def cut_frame(frame: SymbolFrame, first: int, last: int) -> SymbolFrame:
    """Cut a frame to the ticks first..last; it must have at least one of them."""
    first_tick, last_tick = max(frame.first, first), min(frame.last, last)
    if (first_tick, last_tick) == (frame.first, frame.last):
        return frame
    symbols = frame.symbols[first_tick - frame.first : last_tick - frame.first + 1]
    return SymbolFrame(frame.policy_version, first_tick - 1, first_tick, symbols, bits=frame.bits, shift=frame.shift)
