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

    `stored` has the rows on the disk by first tick and version. Of over `max_intervals`, the oldest merge or go.
    """

    def __init__(self, intervals: Iterable[Drawn] = (), max_intervals: int = MAX_INTERVALS) -> None:
        self._max_intervals = max_intervals
        self.intervals = sorted(intervals)
        self.stored = {(interval.first, interval.version): interval for interval in self.intervals}

    def extend(self, end: int) -> None:
        """Extend the last interval to a tick, so that consecutive frames add no intervals."""
        if self.intervals and self.intervals[-1].last < end:
            self.intervals[-1] = self.intervals[-1]._replace(last=end)

    def add(self, ticks: Drawn) -> None:
        """Add an interval; intervals of the same version that touch it are merged with it."""
        start = bisect_left(self.intervals, (ticks.first,))
        while start and self.intervals[start - 1].last >= ticks.first - 1:
            start -= 1
        end, unmerged_peers = start, []
        while end < len(self.intervals) and self.intervals[end].first <= ticks.last + 1:
            peer = self.intervals[end]
            end += 1
            if not _joins(peer, ticks):
                unmerged_peers.append(peer)
                continue
            covers_peer = ticks.first <= peer.first and peer.last <= ticks.last
            is_inside = peer.first <= ticks.first and ticks.last <= peer.last
            absent = ticks.absent if covers_peer else peer.absent if is_inside else ticks.absent + peer.absent
            earlier = min(ticks, peer)
            last_tick = max(ticks.last, peer.last)
            ticks = Drawn(earlier.first, last_tick, ticks.version, min(earlier.begin, earlier.first), absent)
        self.intervals[start:end] = sorted([*unmerged_peers, ticks])
        while len(self.intervals) > self._max_intervals:
            next_interval, oldest_interval = self.intervals[1], self.intervals[0]
            # Where nothing was before, it does not matter which of the ticks were drawn.
            if next_interval.version == oldest_interval.version and not oldest_interval.begin:
                first, last = oldest_interval.first, max(oldest_interval.last, next_interval.last)
                absent = oldest_interval.absent + next_interval.absent
                absent += max(0, next_interval.first - oldest_interval.last - 1)
                self.intervals[:2] = [oldest_interval._replace(last=last, absent=min(absent, last - first + 1))]
            else:
                del self.intervals[0]


def _joins(ticks: Drawn, peer: Drawn) -> bool:
    earlier, later = min(ticks, peer), max(ticks, peer)
    if earlier.version != later.version or later.first > earlier.last + 1:
        return False
    return later.first <= earlier.last or not (earlier.absent or later.absent)
