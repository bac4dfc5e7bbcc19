"""Queries about a window: what its numbers count, how a tick changes them, and their names.

Windows of devices, releases, plans and views ask a query for this, and never compare names of queries. The module needs
only the standard library, because a running agent has queries, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeVar

if TYPE_CHECKING:
    from fugu.contract.calendar import DayBlocks
    from fugu.contract.windows import Blocks

__all__ = ["COUNT", "EACH", "QUERIES", "WINDOW_QUERIES", "Each", "Query", "QueryKind", "Unit", "query_of"]


Each = Literal["histogram"]
EACH: Final = "histogram"
"""Stands in the place of a window's states if each state has a count of its own."""
Unit = Literal["ticks", "share"]
QueryKind = Literal["count", Each, "frequency", "dwell"]
_State = TypeVar("_State", int, str)


@dataclass(frozen=True)
class Query:
    """A kind of question about a sum over ticks.

    Attributes:
        unit: of its numbers.
        per_state: whether every state has a number of its own.
        of_pairs: whether it is about pairs of consecutive ticks.
        blocks: blocks of the local day that have a number each, for a profile of the day; else none.
    """

    name: str
    per_state: bool = False
    unit: Unit = "ticks"
    of_pairs: bool = False
    blocks: DayBlocks | None = None

    @property
    def is_additive(self) -> bool:
        """True if a window is the sum of its parts: what a tick adds depends neither on other ticks nor on the time."""
        return self.blocks is None and not self.of_pairs

    @property
    def is_single(self) -> bool:
        """True if the answer is a single sum over ticks."""
        return self.is_additive and not self.per_state

    @property
    def sensitivity(self) -> int:
        """The largest change of all counts together by one tick's state; 2 with several: one loses, one gains."""
        return 2 if self.per_state else 1

    def groups(self, states: Sequence[_State]) -> tuple[tuple[_State, ...], ...]:
        """Return for each number its states, among the states of the query."""
        if self.blocks is not None:
            return (tuple(states),) * len(self.blocks.labels)
        return tuple((state,) for state in states) if self.per_state else (tuple(states),)

    def count_names(self, states: Sequence[str]) -> tuple[str, ...]:
        """Return each number of a window in words; `states` are the states of the query."""
        return tuple(map(" or ".join, self.groups(states))) if self.blocks is None else self.blocks.labels

    def number_names(self, states: Sequence[str]) -> tuple[str, ...]:
        """Return the names of the numbers; `states` are the states of the query."""
        return tuple(states) if self.per_state else (f"{self.name} of {' + '.join(states)}",)

    def description(self, states: Sequence[str]) -> str:
        """Describe all numbers in words; `states` are the states of the query."""
        tail = "" if self.blocks is None else f", by {self.blocks.seconds / 3600:g} h of the day ({self.blocks.zone})"
        return f"{self.unit} of {'each state' if self.per_state else ' + '.join(states)}{tail}"

    def max_ticks(self, length: int, period_us: int | None) -> int:
        """Return the largest possible number of a window of `length` ticks, for any period if `period_us` is None."""
        return length if self.blocks is None or period_us is None else self.blocks.max_ticks(length, period_us)

    def usual_ticks(self, length: int) -> int:
        """Return how many of a window's `length` ticks fall to each number; for blocks, on a day of 24 hours."""
        return length if self.blocks is None else max(1, length * self.blocks.seconds // 86_400)

    def divisor(self, ticks: int) -> int:
        """Return the divisor of a count over `ticks` ticks, which makes it a share if the query is for shares."""
        return ticks if self.unit == "share" else 1


def query_of(states: object, blocks: Blocks | None) -> Query:
    """Return the query of a window from the states and the blocks of its document."""
    if blocks is not None:
        from fugu.contract.calendar import DayBlocks  # here, because few windows are profiles of the day

        return Query("profile", blocks=DayBlocks(**vars(blocks)))
    return HISTOGRAM if states == EACH else COUNT


COUNT = Query("count")
HISTOGRAM = Query(EACH, per_state=True)
WINDOW_QUERIES = {query.name: query for query in (COUNT, HISTOGRAM)}
"""The queries of windows by name."""
QUERIES = WINDOW_QUERIES | {"frequency": Query("frequency", unit="share"), "dwell": Query("dwell", of_pairs=True)}
"""The queries of the gateway's releases by name."""
