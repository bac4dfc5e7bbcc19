"""Queries about a window: what its numbers count, how a tick moves them, and their names.

Windows of devices, releases, plans and views ask a query for all this; none of them compares names.

A profile counts in blocks of the local day. The transitions of a time zone are compiled into the signed policy. So
neither the device's zone, nor its place, nor a later zone database moves a block. Days of 23 and of 25 hours put every
tick into exactly one block.

Only the standard library is needed, because a running agent has queries and asks for blocks.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, Literal, TypeVar

__all__ = [
    "COUNT",
    "DAY",
    "EACH",
    "QUERIES",
    "WINDOW_QUERIES",
    "DayBlocks",
    "Each",
    "Query",
    "QueryKind",
    "Unit",
    "query_of",
    "window_query",
]


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
        return cls(fields["zone"], fields["seconds"], tuple((moment, offset) for moment, offset in fields["offsets"]))

    def at(self, unix_us: int) -> int:
        """The number of the block that a time is in, from 0 at midnight."""
        seconds = unix_us // _MICROSECONDS
        index = bisect_right(self.offsets, (seconds, DAY)) - 1
        return (seconds + self.offsets[max(index, 0)][1]) % DAY // self.seconds

    def most_ticks(self, length: int, period_us: int) -> int:
        """The most of so many ticks in a row that can be in one block; at most one too many for each time it comes.

        Clocks that are set forward bring the next day's block nearer; set back, they let one be there twice.
        """
        span, changes = (length - 1) * period_us, self._clock_jumps()
        max_ticks = 0
        for first in range(len(changes) + 1):
            jumps = [jump for time, jump in changes[first:] if (time - changes[first][0]) * _MICROSECONDS <= span]
            forward = sum(jump for jump in jumps if jump > 0) * _MICROSECONDS
            days, remainder = divmod(span + forward, DAY * _MICROSECONDS)
            ticks = days * self._max_ticks(self.seconds, period_us)
            ticks += min(self._max_ticks(self.seconds, period_us), remainder // period_us + 1)
            ticks += sum(self._max_ticks(min(-jump, self.seconds), period_us) for jump in jumps if jump < 0)
            max_ticks = max(max_ticks, ticks)
        return min(max_ticks, length)

    def _clock_jumps(self) -> list[tuple[int, int]]:
        """When the clocks are set, and by how many seconds forward."""
        return [(time, offset - former) for (_, former), (time, offset) in pairwise(self.offsets) if offset != former]

    @staticmethod
    def _max_ticks(seconds: int, period_us: int) -> int:
        """The most ticks within so many seconds, the last left out."""
        return -(-seconds * _MICROSECONDS // period_us)

    @property
    def labels(self) -> tuple[str, ...]:
        """Each block by its local times, such as 00:00-04:00."""
        edges = [f"{second // 3600:02}:{second % 3600 // 60:02}" for second in range(0, DAY + 1, self.seconds)]
        return tuple(f"{begin}-{end}" for begin, end in pairwise(edges))


Each = Literal["histogram"]
EACH: Final = "histogram"
"""Instead of the states of a window that are counted together: a count for each."""
Unit = Literal["ticks", "share"]
QueryKind = Literal["count", Each, "frequency", "dwell"]
_State = TypeVar("_State", int, str)


@dataclass(frozen=True)
class Query:
    """One kind of question about a sum over ticks.

    Attributes:
        unit: of its numbers.
        each: every state has a number, not some together.
        pairs: it is asked about consecutive ticks.
        blocks: of the local day, which have a number each; a profile of the day.
    """

    name: str
    each: bool = False
    unit: Unit = "ticks"
    pairs: bool = False
    blocks: DayBlocks | None = None

    @property
    def additive(self) -> bool:
        """True if each tick adds to a number whatever the others are, and when: a window is the sum of its parts."""
        return self.blocks is None and not self.pairs

    @property
    def single(self) -> bool:
        """True if its answer is one sum over ticks."""
        return self.additive and not self.each

    @property
    def sensitivity(self) -> int:
        """The most by which one tick's state changes the counts, added up: of several one loses and one gains."""
        return 2 if self.each else 1

    def groups(self, states: Sequence[_State]) -> tuple[tuple[_State, ...], ...]:
        """For each number the states that it counts, of those that are asked about."""
        if self.blocks is not None:
            return (tuple(states),) * len(self.blocks.labels)
        return tuple((state,) for state in states) if self.each else (tuple(states),)

    def names(self, states: Sequence[str]) -> tuple[str, ...]:
        """Each number of a window in words, by the states that are asked about."""
        return tuple(map(" or ".join, self.groups(states))) if self.blocks is None else self.blocks.labels

    def labels(self, states: Sequence[str]) -> tuple[str, ...]:
        """Names of the numbers."""
        return tuple(states) if self.each else (f"{self.name} of {' + '.join(states)}",)

    def about(self, states: Sequence[str]) -> str:
        """All its numbers in words, by the states that are asked about."""
        tail = "" if self.blocks is None else f", by {self.blocks.seconds / 3600:g} h of the day ({self.blocks.zone})"
        return self.words("each state" if self.each else " + ".join(states)) + tail

    def words(self, subject: str = "") -> str:
        """A number of a window in words, with its unit, and of what it is where that is not said beside it."""
        return f"{self.unit} of {subject}" if subject else self.unit

    def most(self, length: int, period_us: int | None) -> int:
        """The most a number of a window of so many ticks can be, wherever the window begins; of any period if None."""
        return length if self.blocks is None or period_us is None else self.blocks.most_ticks(length, period_us)

    def usual(self, length: int) -> int:
        """The ticks of a window of so many that one number is of; for blocks, on days of 24 hours."""
        return length if self.blocks is None else max(1, length * self.blocks.seconds // DAY)

    def divisor(self, ticks: int) -> int:
        """By what a count of so many ticks is divided."""
        return ticks if self.unit == "share" else 1

    @property
    def fields(self) -> dict[str, Any]:
        """The fields of a window's document that say what is asked of its states; `query_of` reads them."""
        return {} if self.blocks is None else {"blocks": vars(self.blocks)}


def query_of(fields: Mapping[str, Any]) -> Query:
    """The query of a window, by the fields of its document."""
    if (blocks := fields.get("blocks")) is not None:
        return Query("profile", blocks=DayBlocks.of(blocks if isinstance(blocks, Mapping) else vars(blocks)))
    return HISTOGRAM if fields["states"] == EACH else COUNT


def window_query(text: str) -> Query:
    """The query of a window by "count" or "histogram"; ValueError if it is none of them."""
    if text not in WINDOW_QUERIES:
        raise ValueError(f"query must be {' or '.join(WINDOW_QUERIES)}, got {text!r:.40}")
    return WINDOW_QUERIES[text]


COUNT = Query("count")
HISTOGRAM = Query(EACH, each=True)
WINDOW_QUERIES = {query.name: query for query in (COUNT, HISTOGRAM)}
"""By name: what windows count."""
QUERIES = WINDOW_QUERIES | {
    query.name: query for query in (Query("frequency", unit="share"), Query("dwell", pairs=True))
}
"""By name: what releases of the gateway answer."""
