"""The windows of one stream that are under way, by the core, with the records that outlast a restart of the agent.

After a restart under the same policy a window that is still under way goes on from its record
(`edge_agent.window_file`): the ticks since then are in no count, and it says how many it has observed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from edge_agent.plan import WindowPlan
from edge_agent.window_file import WindowRecord
from fugu.contract.frames import MAX_WINDOW_TICKS
from fugu.core.noise import uniform_below
from fugu.core.windows import COUNT_HIGH, COUNT_LOW, Counter

__all__ = ["ClosedWindow", "StreamWindows"]


@dataclass(frozen=True, slots=True)
class ClosedWindow:
    """A window that may be released: which one, the number of ticks drawn for in it, and the noisy counts."""

    window: WindowPlan
    index: int
    observed: int
    counts: tuple[int, ...]


class StreamWindows:
    """The windows of one stream that are under way.

    Args:
        last_indices: for each of its definitions, the index of the last window that was ever released, -1 for none.
        since: no window that begins before this tick is counted.
        records: for each definition, the records of windows that go on if their time is not over.

    Attributes:
        counters: the windows under way of each definition.
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
        draw = uniform_below(entropy)
        self.to_blank = {(plan, slot) for plan in plans for slot in range(plan.overlap)}
        self.counters: list[tuple[WindowPlan, Counter]] = []
        for plan, last, own in zip(plans, last_indices, records or [()] * len(plans), strict=True):
            counted = [(record.index, record.observed, record.counts) for record in own]
            counter = Counter(plan, draw, last, since, counted, partial(self._blank, plan))
            self.counters.append((plan, counter))
            self.to_blank -= {(plan, record.index % plan.overlap) for record in own if record.index in counter.open}

    def prepare(self, tick: int) -> None:
        """Draw the noise of the windows that hold a tick; forget those that ended before it and observed nothing."""
        for _, counter in self.counters:
            counter.prepare(tick)

    def observe(self, tick: int, state: int | None) -> None:
        """Count the state of a tick that is later than every one before, or a tick without one."""
        for _, counter in self.counters:
            counter.observe(tick, state)

    def close(self, tick: int) -> list[ClosedWindow]:
        """The windows that end at a tick or before it and observed anything; each is handed out once."""
        return [
            ClosedWindow(plan, index, observed, tuple(counts))
            for plan, counter in self.counters
            for index, observed, counts in counter.close(tick)
        ]

    def keep(self, tick: int) -> list[tuple[WindowPlan, WindowRecord]]:
        """Return the records of windows of which a quarter ends at a tick, the last one left out.

        Ticks to come cannot bring what is beyond a record's bounds back into a frame's.
        """
        bounds = COUNT_LOW - MAX_WINDOW_TICKS, COUNT_HIGH
        return [
            (plan, WindowRecord(index, tick, counts.observed, tuple(counts.look(*bounds))))
            for plan, counter in self.counters
            for index, counts in counter.under_way(tick)
            if plan.is_recorded(index, tick)
        ]

    def _blank(self, plan: WindowPlan, index: int) -> None:
        self.to_blank.add((plan, index % plan.overlap))
