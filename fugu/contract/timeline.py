"""Ticks in a row that were drawn under one version of a stream's policy, as devices and gateways keep them.

A running agent has these without the mathematics of `fugu.contract.history`, which says what follows from them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from typing import NamedTuple

__all__ = ["Drawn", "Timeline"]

MOST_INTERVALS = 256


class Drawn(NamedTuple):
    """Ticks that were drawn under one version.

    Attributes:
        begin: no tick from there up to `first` was drawn, by the device's own word.
        absent: how many of the ticks first..last were not drawn, where the device does not say which.
    """

    first: int
    last: int
    version: int
    begin: int
    absent: int = 0


class Timeline:
    """The intervals of one stream, in order; those of different versions overlap only where windows did.

    `stored` are the rows that the disk has, by first tick and version. Of `most` rows at most, the oldest are merged or
    forgotten.
    """

    def __init__(self, rows: Iterable[Drawn] = (), most: int = MOST_INTERVALS) -> None:
        self._most = most
        self.rows = sorted(rows)
        self.stored = {(row.first, row.version): row for row in self.rows}

    def extend(self, end: int) -> None:
        """Let the last interval reach at least to a tick: frames that follow one another change no row."""
        if self.rows and self.rows[-1].last < end:
            self.rows[-1] = self.rows[-1]._replace(last=end)

    def add(self, ticks: Drawn) -> None:
        """Add an interval; what touches it under the same version becomes one with it."""
        low = bisect_left(self.rows, (ticks.first,))
        if low and _joins(self.rows[low - 1], ticks):
            low -= 1
        high = low
        while high < len(self.rows) and _joins(self.rows[high], ticks):
            other = self.rows[high]
            inside = ticks.first <= other.first and other.last <= ticks.last
            around = other.first <= ticks.first and ticks.last <= other.last
            absent = ticks.absent if inside else other.absent if around else ticks.absent + other.absent
            early = min(ticks, other)
            last = max(ticks.last, other.last)
            ticks = Drawn(early.first, last, ticks.version, min(early.begin, early.first), absent)
            high += 1
        self.rows[low:high] = [ticks]
        while len(self.rows) > self._most:
            older, oldest = self.rows[1], self.rows[0]
            if older.version == oldest.version and not oldest.begin:  # nothing was before: how many ticks is no matter
                self.rows[:2] = [oldest._replace(last=max(oldest.last, older.last))]
            else:
                del self.rows[0]


def _joins(ticks: Drawn, other: Drawn) -> bool:
    early, late = min(ticks, other), max(ticks, other)
    if early.version != late.version or late.first > early.last + 1:
        return False
    return late.first <= early.last or not (early.absent or late.absent)
