"""Counts of states over windows of ticks, in memory, by the agent's rules (`edge_agent/window.py`).

A count begins at its noise, so the true count is nowhere; a window leaves at the first tick at or after its end.
"""

from .noise import discrete_laplace
from .policy import NONE, Window

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["COUNT_HIGH", "COUNT_LOW", "Counter"]

COUNT_LOW, COUNT_HIGH = -(1 << 63), (1 << 63) - 1


class Counter:
    """The windows of one definition that are under way; `draw` gives uniform integers below a number.

    `last_index` is of the last window that was ever released, -1 for none; none that begins before `since` is counted.
    """

    def __init__(self, window: Window, draw: "Callable[[int], int]", last_index: int, since: int) -> None:
        self.window = window
        self.last_index = last_index
        self._draw = draw
        self._next = max(last_index + 1, window.first_from(since))
        self._open: dict[int, list[int]] = {}  # by index: the ticks observed, then the counts

    def prepare(self, tick: int) -> None:
        """Draw the noise of the windows that hold a tick; forget those that ended before it and observed nothing."""
        window = self.window
        for index in sorted(self._open):
            if window.last(index) < tick and not self._open[index][0]:
                del self._open[index]
        for index in window.holding(tick):
            if index >= self._next and index not in self._open:
                scale = window.numerator, window.denominator
                self._open[index] = [0] + [discrete_laplace(self._draw, *scale) for _ in range(window.counts)]

    def observe(self, tick: int, state: int | None) -> None:
        """Count a tick's state, or a tick without one, in every window that holds the tick."""
        self.prepare(tick)
        place = NONE if state is None else self.window.places[state]
        for index in self.window.holding(tick):
            counts = self._open.get(index)
            if counts is not None:
                counts[0] += 1
                if place != NONE:
                    counts[1 + place] += 1

    def close(self, tick: int) -> list[tuple[int, int, list[int]]]:
        """The windows that end at a tick or before it, once: (index, ticks observed, noisy counts) of each."""
        closed = []
        for index in sorted(self._open):
            if self.window.last(index) <= tick:
                counts = self._open.pop(index)
                self._next = index + 1
                if counts[0]:
                    closed.append((index, counts[0], [min(max(c, COUNT_LOW), COUNT_HIGH) for c in counts[1:]]))
        return closed
