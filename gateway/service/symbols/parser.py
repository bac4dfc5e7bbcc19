"""A compiled parser for the one layout in which `fugu.contract.frames.SymbolFrame` is written.

It takes nothing that the contract's decoder would not take, and reads the same from it. What it does not take goes to
that decoder, which takes other layouts of the same numbers, too, and says what is wrong with the rest.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fugu.chains.arrays import Bools, Ints
from fugu.chains.kernel import kernel
from fugu.contract.frames import MAX_FRAME_TICKS, MAX_TICK
from gateway.service.symbols.columns import Bytes, Columns

__all__ = ["parse"]

HEAD_BYTES = 45
"""Before the packed symbols: schema, array of 8, and eight fields, each of a fixed width."""
_TYPES = (
    (0, 1),
    (1, 0x98),
    (2, 0xCE),
    (7, 0xD3),
    (16, 0xD3),
    (25, 0xD3),
    (34, 0xCC),
    (36, 0xCD),
    (39, 0xCD),
    (42, 0xC5),
)
"""Where each field begins, and the byte that says its type; docs/protocol.md has the layout."""


def parse(payloads: Sequence[bytes]) -> tuple[Columns, Bools]:
    """Read frames of symbols.

    Returns:
        A row for each payload, with number 0, and (n,) whether it was read; the other rows mean nothing.
    """
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
        for where, kind in _TYPES:
            whole &= data[at + where] == kind
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
