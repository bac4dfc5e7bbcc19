"""Blocks of the local day: which of them a tick is in, by its number alone.

The transitions of a time zone are compiled into the signed policy. So neither the device's zone, nor its place, nor a
later zone database moves a block, and days of 23 and of 25 hours put every tick into exactly one. Only the standard
library is needed, because a running agent asks for blocks.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

__all__ = ["DAY", "DayBlocks"]

DAY = 86_400
_MICROSECONDS = 1_000_000


@dataclass(frozen=True)
class DayBlocks:
    """Blocks of so many seconds of the local day.

    Attributes:
        zone: the name of the time zone.
        seconds: of a block; a divisor of the day.
        offsets: pairs of Unix seconds, increasing, and the offset from UTC in seconds from then on; the first offset
            holds before as well.
    """

    zone: str
    seconds: int
    offsets: tuple[tuple[int, int], ...]

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> DayBlocks:
        """The blocks of a document that was checked."""
        return cls(fields["zone"], fields["seconds"], tuple((since, offset) for since, offset in fields["offsets"]))

    def at(self, unix_us: int) -> int:
        """The number of the block that a time is in, from 0 at midnight."""
        seconds = unix_us // _MICROSECONDS
        since = bisect_right(self.offsets, (seconds, DAY)) - 1
        return (seconds + self.offsets[max(since, 0)][1]) % DAY // self.seconds

    @property
    def labels(self) -> tuple[str, ...]:
        """Each block by its local times, such as 00:00-04:00."""
        edges = [f"{second // 3600:02}:{second % 3600 // 60:02}" for second in range(0, DAY + 1, self.seconds)]
        return tuple(f"{begin}-{end}" for begin, end in pairwise(edges))
