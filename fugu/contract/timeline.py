"""Intervals of ticks that were drawn under one version of a stream's policy, as devices and gateways keep them.

A running agent keeps them without the mathematics of `fugu.contract.history`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from typing import NamedTuple

__all__ = ["Drawn", "Timeline"]

MAX_INTERVALS = 256


class Drawn(NamedTuple):
    """An interval of ticks that were drawn under one version.

    Attributes:
        begin: by the device's own word, no tick in begin..first-1 was drawn.
        absent: the number of the ticks first..last that were not drawn, where the device does not say which.
    """

    first: int
    last: int
    version: int
    begin: int
    absent: int = 0


class Timeline:
    """The intervals of a stream, in order; intervals of different versions overlap only where windows did.

    `stored` has the rows on the disk by first tick and version. Beyond `max_rows` rows, the oldest are merged or
    dropped.
    """

    def __init__(self, rows: Iterable[Drawn] = (), max_rows: int = MAX_INTERVALS) -> None:
        self._max_rows = max_rows
        self.rows = sorted(rows)
        self.stored = {(row.first, row.version): row for row in self.rows}

    def extend(self, end: int) -> None:
        """Extend the last interval to a tick, so that consecutive frames add no rows."""
        if self.rows and self.rows[-1].last < end:
            self.rows[-1] = self.rows[-1]._replace(last=end)

    def add(self, ticks: Drawn) -> None:
        """Add an interval; intervals of the same version that touch it are merged with it."""
        start = bisect_left(self.rows, (ticks.first,))
        while start and self.rows[start - 1].last >= ticks.first - 1:
            start -= 1
        end, others = start, []
        while end < len(self.rows) and self.rows[end].first <= ticks.last + 1:
            peer = self.rows[end]
            end += 1
            if not _joins(peer, ticks):
                others.append(peer)
                continue
            covers_peer = ticks.first <= peer.first and peer.last <= ticks.last
            is_inside = peer.first <= ticks.first and ticks.last <= peer.last
            absent = ticks.absent if covers_peer else peer.absent if is_inside else ticks.absent + peer.absent
            earlier = min(ticks, peer)
            last = max(ticks.last, peer.last)
            ticks = Drawn(earlier.first, last, ticks.version, min(earlier.begin, earlier.first), absent)
        self.rows[start:end] = sorted([*others, ticks])
        while len(self.rows) > self._max_rows:
            next_row, oldest_row = self.rows[1], self.rows[0]
            # Where nothing was before, the number of ticks does not matter.
            if next_row.version == oldest_row.version and not oldest_row.begin:
                self.rows[:2] = [oldest_row._replace(last=max(oldest_row.last, next_row.last))]
            else:
                del self.rows[0]


def _joins(ticks: Drawn, peer: Drawn) -> bool:
    earlier, later = min(ticks, peer), max(ticks, peer)
    if earlier.version != later.version or later.first > earlier.last + 1:
        return False
    return later.first <= earlier.last or not (earlier.absent or later.absent)
