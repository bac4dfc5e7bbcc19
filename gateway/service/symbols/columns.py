"""Frames of symbols as columns: one array for each field, and the packed symbols of all frames one after the other."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fugu.chains.arrays import Ints
from fugu.chains.kernel import kernel
from fugu.contract.errors import FuguError
from fugu.contract.frames import SymbolFrame

__all__ = ["Bytes", "Columns", "packed_size"]

Bytes = NDArray[np.uint8]
_HEAD = struct.Struct("<BxxxIQ")
_VERSION = 1
_WIDTHS = ("<u4", "<u4", "<i8", "<i8", "<i8", "<u2", "u1")
"""Of the columns in `Columns`, in their order, as they are stored."""


class ColumnsError(FuguError):
    """Stored columns cannot be read."""


class Columns(NamedTuple):
    """Frames of symbols, one a row; also what is accounted for and has no symbols (`ticks` 0).

    Attributes:
        number: (n,) of the sequence in the store.
        version: (n,) of the policy.
        shift: (n,) as in `SymbolFrame`.
        previous, first: (n,) ticks, as in `SymbolFrame`.
        ticks: (n,) symbols; without any, the ticks previous < t < first are accounted for.
        bits: (n,) of a symbol.
        start: (n,) where the packed symbols of a row begin in `packed`.
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
        some = list(rows)
        fields = [
            (number, f.policy_version, f.shift, f.previous, f.first, len(f.symbols), f.bits) for number, f in some
        ]
        table = np.array(fields, dtype=np.int64).reshape(len(some), 7).T.copy()
        sizes = packed_size(table[5], table[6])
        start = np.cumsum(sizes) - sizes
        packed = np.zeros(int(sizes.sum()), dtype=np.uint8)
        for at, (_, frame) in zip(start, some, strict=True):
            pack(np.frombuffer(frame.symbols, dtype=np.uint8), frame.bits, packed, int(at))
        return cls._make((*table, start, packed))

    def frame(self, row: int) -> SymbolFrame:
        """A row as a frame, without the padding that it came with."""
        symbols = unpacked(self.packed, int(self.start[row]), int(self.ticks[row]), int(self.bits[row]))
        ticks = (int(self.version[row]), int(self.previous[row]), int(self.first[row]))
        return SymbolFrame(*ticks, symbols.tobytes(), bits=int(self.bits[row]), shift=int(self.shift[row]))

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
    def decode(cls, stored: bytes) -> Columns:
        """What `encode` has made.

        Raises:
            ColumnsError: these bytes are none of it.
        """
        try:
            version, rows, size = _HEAD.unpack_from(stored)
            at, fields = _HEAD.size, []
            for width in _WIDTHS:
                fields.append(np.frombuffer(stored, width, rows, at).astype(np.int64))
                at += rows * np.dtype(width).itemsize
            packed = np.frombuffer(stored, np.uint8, size, at)
        except (struct.error, ValueError):
            raise ColumnsError("a batch of frames in the store is cut short") from None
        sizes = packed_size(fields[5], fields[6])
        if version != _VERSION or at + size != len(stored) or int(sizes.sum()) != size:
            raise ColumnsError("a batch of frames in the store is not whole")
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
def pack(symbols: Bytes, bits: int, out: Bytes, at: int) -> None:
    """Write symbols into zeroed bytes from `at` on, the first into the highest bits."""
    each = 8 // bits
    for i in range(symbols.size):
        out[at + i // each] |= np.uint8(symbols[i] << (8 - bits - bits * (i % each)))


@kernel
def unpack(packed: Bytes, at: int, count: int, bits: int, out: Bytes, to: int) -> None:
    """Read symbols from bytes from `at` on into `out` from `to` on."""
    each, mask = 8 // bits, (1 << bits) - 1
    for i in range(count):
        out[to + i] = (packed[at + i // each] >> (8 - bits - bits * (i % each))) & mask


def unpacked(packed: Bytes, at: int, count: int, bits: int) -> Bytes:
    """(count,) symbols that are packed from a byte on."""
    out = np.empty(count, dtype=np.uint8)
    unpack(packed, at, count, bits, out, 0)
    return out


@kernel
def _gather(packed: Bytes, starts: Ints, sizes: Ints, out: Bytes) -> None:
    at = 0
    for row in range(starts.size):
        for i in range(sizes[row]):
            out[at + i] = packed[starts[row] + i]
        at += sizes[row]
