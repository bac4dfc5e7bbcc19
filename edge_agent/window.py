"""Counting states over windows of ticks, with the noise in the count from its first moment.

A count begins at its noise, so the true count is nowhere. The noise is drawn before the window's first tick, so that
the moment at which anything leaves says nothing about it. Where what a tick adds depends on those before it, the window
remembers a number of its query: it is in no record, and dies with the window.

A window holds ticks that the agent has drawn for, under one version of the policy. Ticks without a
usable reading are among them, but not those at the beginning of a baseline: how many it says it has observed depends on
no reading, and without any usable one it is its noise. After a restart under the same policy a window that is still
under way goes on from its record (`edge_agent.window_file`): the ticks since then are in no count, and it says how many
it has observed. One without a record begins anew. So every tick is in the windows of the version in force when it
happened, once, and loses at most that version's rate.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NoReturn

from edge_agent.plan import WindowPlan
from edge_agent.window_file import WindowRecord
from fugu.contract.frames import COUNT_HIGH, COUNT_LOW, MAX_WINDOW_TICKS
from fugu.contract.queries import COUNT, Query
from fugu.core.noise import discrete_laplace, uniform_below

__all__ = ["ClosedWindow", "StreamWindows"]


@dataclass(frozen=True, slots=True)
class ClosedWindow:
    """A window that may be released: which one, the number of ticks drawn for in it, and the noisy counts."""

    window: WindowPlan
    index: int
    observed: int
    counts: tuple[int, ...]


class WindowCount:
    """The noisy counts of one window under way, which cannot be printed, logged, pickled or compared by accident.

    They begin at `noise`, or where a record has them. `goes_on` is True once a tick was added since the start of the
    agent.
    """

    __slots__ = ("_counts", "_memory", "_query", "goes_on", "observed")

    def __init__(self, noise: Sequence[int], query: Query = COUNT, observed: int = 0) -> None:
        self._counts = list(noise)
        self._query = query
        self._memory = 0
        self.observed = observed
        self.goes_on = False

    def add(self, place: int | None) -> None:
        """Count one observed tick, in a place, elsewhere, or without a state; the same is done whichever it is."""
        self.observed += 1
        self.goes_on = True
        place, self._memory = self._query.counted(place, self._memory)
        self._counts = [count + (number == place) for number, count in enumerate(self._counts)]

    def take(self) -> tuple[int, ...]:
        """The noisy counts, as a frame can hold them; afterwards there are none."""
        counts = tuple(min(max(count, COUNT_LOW), COUNT_HIGH) for count in self._counts)
        self._counts.clear()
        self._memory = 0
        return counts

    def record(self, index: int, through: int) -> WindowRecord:
        """Make its record. Ticks to come cannot bring what is beyond these bounds back into a frame's."""
        counts = (min(max(count, COUNT_LOW - MAX_WINDOW_TICKS), COUNT_HIGH) for count in self._counts)
        return WindowRecord(index, through, self.observed, tuple(counts))

    def __repr__(self) -> str:
        return "<window count>"

    def __format__(self, spec: str) -> str:
        return "<window count>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a window count does not leave the process")


class StreamWindows:
    """The windows of one stream that are under way.

    Args:
        last_indices: for each of its definitions, the index of the last window that was ever released, -1 for none.
        since: no window that begins before this tick is counted: it would hold ticks from before the clock was set.
        records: for each definition, the records of windows that go on if their time is not over.

    Attributes:
        to_blank: whose records are to be blank before anything is released: definitions, and remainders of indices.
    """

    def __init__(
        self,
        plans: Sequence[WindowPlan],
        last_indices: Sequence[int],
        entropy: Callable[[memoryview], None],
        since: int = 0,
        records: Sequence[Sequence[WindowRecord]] = (),
    ) -> None:
        self._plans = plans
        self._draw = uniform_below(entropy)
        self._next = [max(last + 1, plan.first_from(since)) for plan, last in zip(plans, last_indices, strict=True)]
        self._open: list[dict[int, WindowCount]] = [{} for _ in plans]
        self.to_blank = {(plan, slot) for plan in plans if plan.query.recorded for slot in range(plan.overlap)}
        records = records or [()] * len(plans)
        for plan, following, counts, own in zip(plans, self._next, self._open, records, strict=True):
            for record in own:
                if record.index >= following:
                    counts[record.index] = WindowCount(record.counts, plan.query, record.observed)
                    self.to_blank.discard((plan, record.index % plan.overlap))

    def prepare(self, tick: int) -> None:
        """Draw the noise of the windows that hold a tick; forget those that ended before it and observed nothing.

        Those that a record had are forgotten, too, if none of their ticks has come since: a copy of the disk that was
        put back after their end releases nothing.
        """
        for plan, following, counts in zip(self._plans, self._next, self._open, strict=True):
            for index in [i for i, count in counts.items() if plan.last(i) < tick and not count.goes_on]:
                del counts[index]
                self._blank(plan, index)
            for index in plan.holding(tick):
                if index >= following and index not in counts:
                    scale = plan.scale_numerator, plan.scale_denominator
                    noise = [discrete_laplace(self._draw, *scale) for _ in range(plan.counts)]
                    counts[index] = WindowCount(noise, plan.query)

    def observe(self, tick: int, state: int | None) -> None:
        """Count the state of a tick that is later than every one before, or a tick without one."""
        self.prepare(tick)
        for plan, counts in zip(self._plans, self._open, strict=True):
            for index in plan.holding(tick):
                if index in counts:
                    counts[index].add(plan.place(tick, state))

    def close(self, tick: int) -> list[ClosedWindow]:
        """The windows that end at a tick or before it and observed anything; each is handed out once."""
        closed = []
        for number, (plan, counts) in enumerate(zip(self._plans, self._open, strict=True)):
            for index in sorted(i for i in counts if plan.last(i) <= tick):
                count = counts.pop(index)
                self._next[number] = index + 1
                self._blank(plan, index)
                if count.goes_on or (count.observed and plan.last(index) == tick):
                    closed.append(ClosedWindow(plan, index, count.observed, count.take()))
        return closed

    def keep(self, tick: int) -> list[tuple[WindowPlan, WindowRecord]]:
        """Return the records of windows of which a quarter ends at a tick, the last one left out."""
        return [
            (plan, counts[index].record(index, tick))
            for plan, counts in zip(self._plans, self._open, strict=True)
            for index in plan.holding(tick)
            if index in counts and plan.query.recorded and plan.is_recorded(index, tick)
        ]

    def _blank(self, plan: WindowPlan, index: int) -> None:
        if plan.query.recorded:
            self.to_blank.add((plan, index % plan.overlap))
