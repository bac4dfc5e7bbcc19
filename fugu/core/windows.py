"""Counting states over windows of ticks, with the noise in the count from its first moment.

A count begins at its noise, so the true count is nowhere. The noise is drawn before the window's first tick, so that
the moment at which anything leaves says nothing about it.

A window holds ticks that were drawn for, under one version of the policy. Ticks without a usable reading are among
them, but not those at the beginning of a baseline. So the number of observed ticks depends on no reading, and without
any usable one the count is its noise. A window leaves at the first tick at or after its end. A host that keeps counts
over restarts hands them in as records: the ticks since then are in no count. A window without a record begins anew. So
every tick is in the windows of the version in force when it happened, once, and loses at most that version's rate.
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
    """A value that cannot be printed, logged, pickled or compared by accident; `what` says what it is."""

    __slots__ = ()
    what = "secret"

    def __repr__(self) -> str:
        return "<%s>" % self.what

    def __format__(self, spec: str) -> str:
        return repr(self)

    def __reduce__(self) -> "NoReturn":
        raise TypeError("a %s does not leave the process" % self.what)


class NoisyCounts(Secret):
    """The counts of one window under way.

    They begin at their noise, or where a record has them. `goes_on` is True once a tick was added since the start.
    """

    what = "window count"

    def __init__(self, noise: "Sequence[int]", observed: int = 0) -> None:
        self._counts = list(noise)
        self.observed = observed
        self.goes_on = False

    def add(self, position: int | None) -> None:
        """Count one observed tick, in a place, elsewhere, or without a state; the same is done whichever it is."""
        self.observed += 1
        self.goes_on = True
        for number in range(len(self._counts)):
            self._counts[number] += number == position

    def take(self, low: int = COUNT_LOW, high: int = COUNT_HIGH) -> "list[int]":
        """The noisy counts, as a frame can hold them; afterwards there are none."""
        counts, self._counts = self._counts, []
        return [min(max(count, low), high) for count in counts]

    def look(self, low: int, high: int) -> "list[int]":
        """The noisy counts so far, for a record; one look at a window is private, and two are not."""
        return [min(max(count, low), high) for count in self._counts]


class Counter:
    """The windows of one definition that are under way; `draw` gives uniform integers below a number.

    `last_index` is of the last window that was ever released, -1 for none. None that begins before `since_tick` counts:
    it would hold ticks from before the clock was set. `records` are (index, ticks observed, noisy counts) of windows
    that go on if their time is not over. `open` are the windows under way, by index.
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
        self.open: dict[int, NoisyCounts] = {}
        for index, observed, counts in records:
            if index >= self._next:
                self.open[index] = NoisyCounts(counts, observed)

    def prepare(self, tick: int) -> None:
        """Draw the noise of the windows that hold a tick; forget those that ended before it and observed nothing.

        Those that a record had are forgotten, too, if none of their ticks has come since. So a copy of a disk that was
        put back after their end releases nothing.
        """
        window = self.window
        for index in sorted(self.open):
            if window.last(index) < tick and not self.open[index].goes_on:
                self.end(index)
        for index in window.holding(tick):
            if index >= self._next and index not in self.open:
                scale = window.numerator, window.denominator
                self.open[index] = NoisyCounts([discrete_laplace(self._draw, *scale) for _ in range(window.counts)])

    def observe(self, tick: int, state: int | None) -> None:
        """Count the state of a tick that is later than every one before, or a tick without one."""
        self.prepare(tick)
        position = self.window.place(tick, state)
        for index in self.window.holding(tick):
            counts = self.open.get(index)
            if counts is not None:
                counts.add(position)

    def close(self, tick: int) -> "list[tuple[int, int, list[int]]]":
        """The windows that end at a tick or before it, once: (index, ticks observed, noisy counts) of each."""
        closed = []
        for index in sorted(self.open):
            if self.window.last(index) <= tick:
                counts = self.end(index)
                self._next = index + 1
                if counts.goes_on or (counts.observed and self.window.last(index) == tick):
                    closed.append((index, counts.observed, counts.take()))
        return closed

    def end(self, index: int) -> NoisyCounts:
        """End a window, and hand out its counts."""
        return self.open.pop(index)
