"""Blocks of the local day: the block of a tick follows from the number of its wall tick alone.

The transitions of a time zone are compiled into the signed policy. So neither the device's zone, nor its place, nor a
later zone database moves a block. Days of 23 and of 25 hours put every tick into exactly one block. The module needs
only the standard library, because a running agent uses it.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from itertools import pairwise

__all__ = ["DAY", "DayBlocks"]

DAY = 86_400
_MICROSECONDS = 1_000_000


@dataclass(frozen=True)
class DayBlocks:
    """Blocks of equal length of the local day.

    Attributes:
        zone: the name of the time zone.
        seconds: the length of a block; a divisor of the day.
        offsets: Unix seconds, increasing, each with the offset from UTC from then on; the first one holds before, too.
    """

    zone: str
    seconds: int
    offsets: tuple[tuple[int, int], ...]

    def index_at(self, unix_us: int) -> int:
        """Return the index of the block that holds a time; block 0 begins at midnight."""
        seconds = unix_us // _MICROSECONDS
        index = bisect_right(self.offsets, (seconds, DAY)) - 1
        return (seconds + self.offsets[max(index, 0)][1]) % DAY // self.seconds

    def max_ticks(self, length: int, period_us: int) -> int:
        """Bound the ticks of one block among `length` ticks in a row.

        The bound is at most one tick too high for each time that the block comes. Clocks that are set forward bring the
        next day's block nearer; clocks that are set back repeat a block. If ticks do not have the same local times
        every day, the block's first and last time may hold one tick more.
        """
        span_us, ticks_bound = (length - 1) * period_us, 0
        offset_pairs = pairwise(self.offsets)
        jumps = [(time, jump) for (_, previous), (time, offset) in offset_pairs if (jump := offset - previous)]
        is_uneven = any(seconds * _MICROSECONDS % period_us for seconds in (DAY, *(jump for _, jump in jumps)))
        for first in range(len(jumps) + 1):
            near_jumps = [jump for time, jump in jumps[first:] if (time - jumps[first][0]) * _MICROSECONDS <= span_us]
            forward_us = sum(jump for jump in near_jumps if jump > 0) * _MICROSECONDS
            days, remainder = divmod(span_us + forward_us, DAY * _MICROSECONDS)
            ticks = days * self._ticks_within(self.seconds, period_us)
            ticks += min(self._ticks_within(self.seconds, period_us), remainder // period_us + 1)
            ticks += sum(self._ticks_within(min(-jump, self.seconds), period_us) for jump in near_jumps if jump < 0)
            ticks_bound = max(ticks_bound, ticks)
        return min(ticks_bound + is_uneven, length)

    @staticmethod
    def _ticks_within(seconds: int, period_us: int) -> int:
        """Return the largest number of ticks within some seconds, the end left out."""
        return -(-seconds * _MICROSECONDS // period_us)

    @property
    def labels(self) -> tuple[str, ...]:
        """The local times of each block, such as 00:00-04:00."""
        edges = [f"{second // 3600:02}:{second % 3600 // 60:02}" for second in range(0, DAY + 1, self.seconds)]
        return tuple(f"{begin}-{end}" for begin, end in pairwise(edges))
