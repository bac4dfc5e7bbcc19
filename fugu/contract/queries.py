"""Queries: what is asked about the ticks of a window.

A query says how many numbers its answer has, which states each of them counts, how far one tick can move them, and what
they are called. Windows, releases, plans and pages ask it; none of them compares names.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeVar

__all__ = ["COUNT", "EACH", "HISTOGRAM", "QUERIES", "WINDOW_QUERIES", "Each", "Query"]

Each = Literal["histogram"]
EACH: Final = "histogram"
"""Instead of the states of a window that are counted together: a count for each."""
_State = TypeVar("_State", int, str)


@dataclass(frozen=True)
class Query:
    """One kind of question.

    Attributes:
        name: in messages and on command lines.
        each: whether there is a number for each state, instead of one for some states together.
        unit: of the answer.
    """

    name: str
    each: bool = False
    unit: str = "ticks"

    @property
    def sensitivity(self) -> int:
        """The most by which one tick's state changes the counts, added up: of several one loses and one gains."""
        return 2 if self.each else 1

    def groups(self, states: Sequence[_State]) -> tuple[tuple[_State, ...], ...]:
        """For each number the states that it counts.

        Args:
            states: those that are asked about.
        """
        return tuple((state,) for state in states) if self.each else (tuple(states),)

    def labels(self, states: Sequence[str]) -> tuple[str, ...]:
        """What each number is called."""
        return tuple(states) if self.each else (f"{self.name} of {' + '.join(states)}",)


COUNT = Query("count")
HISTOGRAM = Query(EACH, each=True)
WINDOW_QUERIES = {query.name: query for query in (COUNT, HISTOGRAM)}
"""By name: what windows count."""
QUERIES = {query.name: query for query in (COUNT, HISTOGRAM, Query("frequency", unit="share"), Query("dwell"))}
"""By name: what releases of the gateway answer."""
