"""What the journal holds, in memory: frames of symbols that have come since the last seal, found by their sequence."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from fugu.contract.frames import SymbolFrame
from gateway.service.symbols.columns import Columns

__all__ = ["Tail"]

_ROW_BYTES = 8 * 8 + 80
"""What a row takes beside its symbols, about."""
_BATCH = 32
"""A row's place is the number of its batch, above so many bits, and its number there."""


@dataclass(slots=True)
class _Rows:
    """Of a sequence the first ticks of its frames, ascending, and where they are; and what has no symbols."""

    firsts: list[int] = field(default_factory=list)
    places: list[int] = field(default_factory=list)
    accounted: list[int] = field(default_factory=list)


class Tail:
    """Batches of frames, none of which overlaps another.

    Attributes:
        size: bytes that they take in memory, about.
    """

    def __init__(self) -> None:
        self.size = 0
        self._batches: list[Columns] = []
        self._rows: dict[int, _Rows] = {}
        self._count = 0

    def add(self, columns: Columns) -> None:
        """Append a batch."""
        every, place = self._rows, len(self._batches) << _BATCH
        self._batches.append(columns)
        some = (columns.number.tolist(), columns.first.tolist(), columns.ticks.tolist())
        for number, first, count in zip(*some, strict=True):
            if (rows := every.get(number)) is None:
                rows = every[number] = _Rows()
            if not count:
                rows.accounted.append(place)
            elif not rows.firsts or first > rows.firsts[-1]:
                rows.firsts.append(first)
                rows.places.append(place)
            else:
                at = bisect_left(rows.firsts, first)
                rows.firsts.insert(at, first)
                rows.places.insert(at, place)
            place += 1
        self._count += columns.rows
        self.size += columns.rows * _ROW_BYTES + len(columns.packed)

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return self._count

    @property
    def sequences(self) -> int:
        """How many sequences there is anything of."""
        return len(self._rows)

    @property
    def numbers(self) -> list[int]:
        """The sequences that there is anything of."""
        return list(self._rows)

    def newest(self, number: int) -> SymbolFrame | None:
        """The last frame of a sequence, none without one."""
        rows = self._rows.get(number)
        return self._take(rows.places[-1:]).frame(0) if rows is not None and rows.places else None

    def first(self, number: int) -> int | None:
        """The first tick of a sequence's first frame, none without one."""
        rows = self._rows.get(number)
        return rows.firsts[0] if rows is not None and rows.firsts else None

    def of(self, number: int, first: int = 0, last: int | None = None) -> Columns:
        """The frames of a sequence that have any of the ticks first..last, in tick order."""
        if (rows := self._rows.get(number)) is None:
            return self._take([])
        low = max(bisect_right(rows.firsts, first) - 1, 0)
        found = self._take(rows.places[low : None if last is None else bisect_right(rows.firsts, last)])
        return found.take(np.flatnonzero(found.last >= first))

    def intervals(self, number: int) -> list[tuple[int, int]]:
        """What the rows of a sequence account for, (after, through]."""
        if (rows := self._rows.get(number)) is None:
            return []
        found = self._take(sorted((*rows.places, *rows.accounted)))
        return list(zip(found.previous.tolist(), found.last.tolist(), strict=True))

    def every(self) -> Columns:
        """All frames, by sequence and then in tick order."""
        found = Columns.joined(self._batches)
        order = np.lexsort((found.first, found.number))
        return found.take(order[found.ticks[order] > 0])

    def _take(self, places: list[int]) -> Columns:
        """Rows in the order of their places, which is that of their ticks."""
        at = np.array(places, dtype=np.int64)
        order = np.argsort(at >> _BATCH, kind="stable")
        batches, rows = at[order] >> _BATCH, at[order] & ((1 << _BATCH) - 1)
        parts = []
        for low, high in pairwise([0, *(np.flatnonzero(np.diff(batches)) + 1).tolist(), len(at)]):
            if low < high:
                parts.append(self._batches[batches[low]].take(rows[low:high]))
        if not parts:
            return Columns.of([])
        return Columns.joined(parts).take(np.argsort(order))
