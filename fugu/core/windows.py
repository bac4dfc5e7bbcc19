"""Counts of states over windows of ticks, with the noise in the count from the beginning.

A count begins at its noise, so the true count is nowhere. The noise is drawn before the window's first tick, so that
the time of a release says nothing about the noise.

A window holds the ticks that were drawn for under one version of the policy. Ticks without a usable reading are among
them, the first ticks of a baseline are not. So the number of observed ticks depends on no reading, and without any
usable reading the count is its noise. A window is released at the first tick at or after its end. A host that keeps
counts over restarts passes them as records; ticks between the record and the restart are in no count. A window without
a record begins again. So every tick is once in the windows of the version in force when it happened, and loses at most
that version's rate.
"""

from .frames import COUNT_HIGH, COUNT_LOW
from .noise import discrete_laplace
from .policy import Window

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import NoReturn

__all__ = ["Counter", "NoisyCounts", "Secret"]


class Secret:
    """A value that cannot be printed, logged, pickled or compared by accident; `kind` says of which kind it is."""

    __slots__ = ()
    kind = "secret"

    def __repr__(self) -> str:
        return "<%s>" % self.kind

    def __format__(self, spec: str) -> str:
        return repr(self)

    def __reduce__(self) -> "NoReturn":
        raise TypeError("a %s does not leave the process" % self.kind)


class NoisyCounts(Secret):
    """The counts of one window under way.

    They begin at their noise or at the values of a record. `goes_on` is True once a tick was added since the start.
    """

    kind = "window count"

    def __init__(self, noise: "Sequence[int]", observed: int = 0) -> None:
        self._counts = list(noise)
        self.observed = observed
        self.goes_on = False

    def add(self, position: int | None) -> None:
        """Count an observed tick in the number at `position`, if any, by the same steps in all cases."""
        self.observed += 1
        self.goes_on = True
        for index in range(len(self._counts)):
            self._counts[index] += index == position

    def take(self) -> "list[int]":
        """Remove and return the noisy counts, within the bounds of a frame's numbers."""
        counts, self._counts = self._counts, []
        return [min(max(count, COUNT_LOW), COUNT_HIGH) for count in counts]

    def look(self, low: int, high: int) -> "list[int]":
        """Return the noisy counts so far, within bounds; one look at a window is private, two looks are not."""
        return [min(max(count, low), high) for count in self._counts]


class Counter:
    """The windows of one name that are under way; `draw(n)` gives uniform integers below n.

    `last_index` is the index of the last window that was ever released, -1 for none. A window that begins before
    `since_tick` is not counted: it would hold ticks from before the clock was set. `records` are (index, ticks
    observed, noisy counts) of windows that go on if they have not ended. `counts` has the counts under way by index.
    """

    def __init__(
        self,
        window: Window,
        draw: "Callable[[int], int]",
        last_index: int,
        since_tick: int,
        records: "Sequence[tuple[int, int, Sequence[int]]]" = (),
    ) -> None:
        self.window = window
        self.last_index = last_index
        self._draw = draw
        self._next = max(last_index + 1, window.first_from(since_tick))
        self.counts: dict[int, NoisyCounts] = {}
        for index, observed, counts in records:
            if index >= self._next:
                self.counts[index] = NoisyCounts(counts, observed)

    def prepare(self, tick: int) -> None:
        """Draw the noise of the windows that hold a tick; drop windows that ended before it without a tick.

        A window from a record is dropped, too, if none of its ticks has come since the start. So a copy of a disk that
        is put back after the window's end releases nothing.
        """
        window = self.window
        for index in sorted(self.counts):
            if window.last(index) < tick and not self.counts[index].goes_on:
                self.end(index)
        for index in window.holding(tick):
            if index >= self._next and index not in self.counts:
                scale = window.numerator, window.denominator
                self.counts[index] = NoisyCounts([discrete_laplace(self._draw, *scale) for _ in range(window.counts)])

    def observe(self, tick: int, state: int | None) -> None:
        """Count the state of a tick later than all before; None is a tick without a state."""
        self.prepare(tick)
        position = self.window.place(tick, state)
        for index in self.window.holding(tick):
            counts = self.counts.get(index)
            if counts is not None:
                counts.add(position)

    def close(self, tick: int) -> "list[tuple[int, int, list[int]]]":
        """End the windows whose last tick is not after a tick. Return (index, ticks observed, noisy counts) of each.

        A window without a tick since the start is dropped, unless it has observed ticks and ends at exactly this tick.
        """
        released = []
        for index in sorted(self.counts):
            if self.window.last(index) <= tick:
                counts = self.end(index)
                self._next = index + 1
                if counts.goes_on or (counts.observed and self.window.last(index) == tick):
                    released.append((index, counts.observed, counts.take()))
        return released

    def end(self, index: int) -> NoisyCounts:
        """End a window under way, and return its counts."""
        return self.counts.pop(index)
