"""Queries about a window: what its numbers count, how a tick moves them, and their names.

Windows of devices, releases, plans and views ask a query for all this; none of them compares names. Only the standard
library is needed, because a running agent has queries, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

if TYPE_CHECKING:
    from fugu.contract.calendar import DayBlocks

__all__ = [
    "COUNT",
    "EACH",
    "QUERIES",
    "WINDOW_QUERIES",
    "Each",
    "Query",
    "QueryKind",
    "Unit",
    "query_of",
    "window_query",
]


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

    def max_ticks(self, length: int, period_us: int | None) -> int:
        """The most a number of a window of so many ticks can be, wherever the window begins; of any period if None."""
        return length if self.blocks is None or period_us is None else self.blocks.most_ticks(length, period_us)

    def usual_ticks(self, length: int) -> int:
        """The ticks of a window of so many that one number is of; for blocks, on days of 24 hours."""
        return length if self.blocks is None else max(1, length * self.blocks.seconds // 86_400)

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
        from fugu.contract.calendar import DayBlocks  # here, because few windows are profiles of the day

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
