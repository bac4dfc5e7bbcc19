"""The arrivals of a round, checked: frames of symbols as columns, other frames as they are.

A compiled parser takes only the one layout in which `fugu.contract.frames.SymbolFrame` is written, and reads the same
from it as the contract's decoder. What it does not take goes to that decoder, which takes other layouts of the same
numbers, and says what is wrong with the rest.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from fugu.chains.arrays import Bools, Ints
from fugu.chains.kernel import kernel
from fugu.contract.frames import MAX_FRAME_TICKS, MAX_TICK, SymbolFrame
from fugu.contract.measure_frames import AnyFrame
from gateway.journal.streams import Streams
from gateway.store.symbols import Bytes, Columns

__all__ = ["Arrivals", "Heard", "Received", "parse"]


HEAD_BYTES = 45
"""Before the packed symbols: schema, array of 8, and eight fields, each of a fixed width."""
_PLACES = (0, 1, 2, 7, 16, 25, 34, 36, 39, 42)
_TYPES = (1, 0x98, 0xCE, 0xD3, 0xD3, 0xD3, 0xCC, 0xCD, 0xCD, 0xC5)
"""Where each field begins, and the byte that says its type; docs/protocol.md has the layout."""


def parse(payloads: Sequence[bytes]) -> tuple[Columns, Bools]:
    """Read frames of symbols: a row for each payload, with number 0, and (n,) whether the row means anything."""
    rows = len(payloads)
    data = np.frombuffer(b"".join(payloads), dtype=np.uint8)
    ends = np.cumsum(np.fromiter(map(len, payloads), dtype=np.int64, count=rows))
    fields = np.zeros((8, rows), dtype=np.int64)
    read = np.zeros(rows, dtype=np.bool_)
    _parse(data, ends, fields, read)
    return Columns._make((*fields, data)), read


@kernel
def _number(data: Bytes, at: int, size: int) -> int:
    found = np.uint64(0)
    for i in range(at, at + size):
        found = (found << np.uint64(8)) | np.uint64(data[i])
    return int(np.int64(found))


@kernel
def _parse(data: Bytes, ends: Ints, fields: Ints, read: Bools) -> None:
    """Fill the columns (8, n) of the rows that are frames, and say which are."""
    for row in range(ends.size):
        at = ends[row - 1] if row else 0
        size = ends[row] - at
        if size <= HEAD_BYTES:
            continue
        whole = True
        for i in range(len(_TYPES)):
            whole &= data[at + _PLACES[i]] == _TYPES[i]
        version = _number(data, at + 3, 4)
        shift, previous, first = _number(data, at + 8, 8), _number(data, at + 17, 8), _number(data, at + 26, 8)
        bits, count, padding = _number(data, at + 35, 1), _number(data, at + 37, 2), _number(data, at + 40, 2)
        whole &= bits == 1 or bits == 2 or bits == 4 or bits == 8
        whole &= count >= 1 and count + padding <= MAX_FRAME_TICKS
        whole &= version >= 1 and -1 <= previous < first and 0 <= shift <= first and first <= MAX_TICK
        if not whole or first + count - 1 > MAX_TICK:
            continue
        packed = (count + padding) * bits + 7 >> 3
        if _number(data, at + 43, 2) != packed or size != HEAD_BYTES + packed:
            continue
        used = count * bits  # what follows in the last byte, and in those of the padding, is zero
        rest = data[at + HEAD_BYTES + (used >> 3)] & (0xFF >> (used & 7)) if used & 7 else 0
        for i in range(at + HEAD_BYTES + (used + 7 >> 3), at + size):
            rest |= data[i]
        if rest:
            continue
        read[row] = True
        fields[1, row], fields[2, row], fields[3, row], fields[4, row] = version, shift, previous, first
        fields[5, row], fields[6, row], fields[7, row] = count, bits, at + HEAD_BYTES


class Received(NamedTuple):
    """A frame that may be stored."""

    device: str
    stream: str
    frame: AnyFrame


class Heard(NamedTuple):
    """The newest frame of a stream in a round: its policy version, last tick and shift."""

    device: str
    stream: str
    version: int
    last: int
    shift: int


class Arrivals(NamedTuple):
    """Frames that may be stored; `slots` (n,) is each `symbols` row's stream; `others` are points and windows."""

    slots: Ints
    symbols: Columns
    others: list[Received]

    @classmethod
    def of(cls, streams: Streams, received: Iterable[Received]) -> Arrivals:
        """Frames one by one."""
        some = list(received)
        rows = [(streams.slot(device, stream), one) for device, stream, one in some if isinstance(one, SymbolFrame)]
        slots = np.array([slot for slot, _ in rows], dtype=np.int64)
        return cls(
            slots,
            Columns.of([(0, frame) for _, frame in rows]),
            [one for one in some if not isinstance(one.frame, SymbolFrame)],
        )

    @property
    def frames(self) -> int:
        """How many there are."""
        return self.symbols.rows + len(self.others)

    def halves(self) -> tuple[Arrivals, Arrivals]:
        """Two parts, each with some of them if there are two or more."""
        rows, others = self.symbols.rows, self.others
        low = rows // 2 if others else (rows + 1) // 2
        first = Arrivals(self.slots[:low], self.symbols.take(np.arange(low)), others[: (len(others) + 1) // 2])
        rest = self.symbols.take(np.arange(low, rows))
        return first, Arrivals(self.slots[low:], rest, others[(len(others) + 1) // 2 :])

    def newest(self, streams: Streams) -> Iterator[Heard]:
        """Of each stream the frame that ends last."""
        last = self.symbols.last
        order = np.lexsort((last, self.slots))
        ends = np.flatnonzero(np.diff(self.slots[order], append=-1))
        rows = order[ends]
        found = (self.slots[rows], self.symbols.version[rows], last[rows], self.symbols.shift[rows])
        for slot, version, tick, shift in zip(*(column.tolist() for column in found), strict=True):
            device, stream = streams.names[slot]
            yield Heard(device, stream, version, tick, shift)
        for device, stream, frame in self.others:
            yield Heard(device, stream, frame.policy_version, frame.last, frame.shift)
