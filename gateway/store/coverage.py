"""Coverage: which ticks of a sequence are accounted for, the interval logic behind the watermark.

Intervals are half open, (after, through], as in
`fugu.contract.frames.Gap`. A frame accounts for (previous, last]: the device says that those in (previous, first) never
had a symbol.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from typing import NamedTuple

from fugu.contract.frames import MAX_GAPS, Gap, StreamCommit

__all__ = ["Coverage", "FrameSpan", "Place"]


class Place(NamedTuple):
    """A sequence of frames in the store: its number there, and the stream that it is of."""

    number: int
    device: str
    stream: str


class FrameSpan(NamedTuple):
    """Interval of a frame, (previous, last], and where its own part begins: ticks, or indices of windows."""

    previous: int
    first: int
    last: int


class Merge(NamedTuple):
    """Effect of an interval on the set: it became part of (after, through] and `absorbed` those that began there."""

    absorbed: tuple[int, ...]
    after: int
    through: int


class Coverage:
    """A set of ticks as disjoint intervals, none touching the next; given as pairs (after, through) in any order."""

    def __init__(self, intervals: Iterable[tuple[int, int]] = ()) -> None:
        self._after: list[int] = []
        self._through: list[int] = []
        for after, through in intervals:
            self.add(after, through)

    def add(self, after: int, through: int) -> Merge | None:
        """Account for the ticks (after, through]; None if every tick was in the set before."""
        low = bisect_left(self._through, after)  # the first interval that reaches `after`
        high = bisect_right(self._after, through)  # the first interval that begins beyond `through`
        if low < high:
            if self._after[low] <= after and through <= self._through[low]:
                return None
            after = min(after, self._after[low])
            through = max(through, self._through[high - 1])
        absorbed = tuple(self._after[low:high])
        self._after[low:high] = [after]
        self._through[low:high] = [through]
        return Merge(absorbed, after, through)

    @property
    def last(self) -> tuple[int, int]:
        """The last interval (after, through] of a set that is not empty."""
        return self._after[-1], self._through[-1]

    def extend(self, through: int) -> None:
        """Let the last interval reach at least to a tick."""
        if self._through and self._through[-1] < through:
            self._through[-1] = through

    def joins(self, after: int, through: int) -> bool:
        """True if the ticks (after, through] touch any that are accounted for, rather than stand alone."""
        return bisect_left(self._through, after) < bisect_right(self._after, through)

    def __len__(self) -> int:
        """How many intervals there are."""
        return len(self._after)

    def holds(self, first: int, last: int) -> bool:
        """True if all ticks first..last are accounted for."""
        index = bisect_left(self._through, last)  # the first interval that reaches `last`
        return index < len(self._after) and self._after[index] < first

    def meets(self, first: int, last: int) -> bool:
        """True if any of the ticks first..last is accounted for."""
        index = bisect_left(self._through, first)  # the first interval that reaches `first`
        return index < len(self._after) and self._after[index] < last

    @property
    def end(self) -> int:
        """The last tick that is accounted for, -1 if none is."""
        return self._through[-1] if self._through else -1

    @property
    def intervals(self) -> list[tuple[int, int]]:
        """Pairs (after, through), ascending."""
        return list(zip(self._after, self._through, strict=True))

    def commit(self, stream: str) -> StreamCommit:
        """The watermark: every tick up to `through` that no listed gap holds is in the set.

        If there are more gaps than a message can list, `through` ends where the first unlisted one begins.
        """
        few = MAX_GAPS + 1
        edges = zip([-1, *self._through[:few]], self._after[: few + 1], strict=False)
        gaps = [Gap(after, through) for after, through in edges if after < through]
        if len(gaps) > MAX_GAPS:
            return StreamCommit(stream, gaps[MAX_GAPS].after, tuple(gaps[:MAX_GAPS]))
        return StreamCommit(stream, self.end, tuple(gaps))
