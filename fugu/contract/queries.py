"""Queries: what is asked about the ticks of a window.

A query says how many numbers its answer has, which states each of them counts, how far one tick can move them, and what
they are called. Windows, releases, plans and pages ask it; none of them compares names.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeVar

__all__ = ["COUNT", "EACH", "HISTOGRAM", "QUERIES", "WINDOW_QUERIES", "Each", "Query", "clipped", "window_query"]

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
        clip: the most that a number can be; None if there is no such bound.
    """

    name: str
    each: bool = False
    unit: str = "ticks"
    clip: int | None = None

    @property
    def adds_up(self) -> bool:
        """Whether a number is the sum of what its ticks add, as estimates and attackers take it."""
        return self.clip is None

    def moved(self, ticks: int, windows: int) -> int:
        """The most that changes of some ticks move the numbers of windows, added up over windows and numbers.

        A tick moves a number by at most 1, and a clipped number moves by at most `clip`, however many ticks change.

        Args:
            ticks: pairs of a changed tick and a window that has it.
            windows: that have a changed tick.

        Source: docs/proofs/device-windows.md, "Windows counted on the device".
        """
        return self.sensitivity * (ticks if self.clip is None else min(ticks, self.clip * windows))

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


def clipped(most: int) -> Query:
    """Ticks in some states, and `most` where they are more: whether something happened, or how often up to a limit."""
    return Query("clipped", clip=most)


def window_query(text: str) -> Query:
    """The query of a window by the words of a command line: "count", "histogram" or "clipped:N".

    Raises:
        ValueError: it is none of them.
    """
    name, colon, most = text.partition(":")
    if name == "clipped" and most.isdecimal() and int(most) > 0:
        return clipped(int(most))
    if colon or name not in WINDOW_QUERIES:
        raise ValueError(f"query must be {', '.join(WINDOW_QUERIES)} or clipped:N, got {text!r:.40}")
    return WINDOW_QUERIES[name]


COUNT = Query("count")
HISTOGRAM = Query(EACH, each=True)
WINDOW_QUERIES = {query.name: query for query in (COUNT, HISTOGRAM)}
"""By name: what windows count."""
QUERIES = {query.name: query for query in (COUNT, HISTOGRAM, Query("frequency", unit="share"), Query("dwell"))}
"""By name: what releases of the gateway answer."""
