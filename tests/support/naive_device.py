"""The device's rules as the agent had them before it took the core: the core is held to the same."""

from __future__ import annotations

__all__ = ["TickClock"]


class TickClock:
    """Clock of the streams of one epoch and period; from `since` on, numbers are ahead by `shift` ticks."""

    def __init__(self, epoch_us: int, period_us: int) -> None:
        self.epoch_us = epoch_us
        self.period_us = period_us
        self.shift = 0
        self.since = 0
        self._tick = -1
        self._due_us: int | None = None

    def at(self, now_us: int) -> int:
        """The last tick that has happened at a wall time; below the shift before the epoch."""
        return (now_us - self.epoch_us) // self.period_us + self.shift

    def time_of(self, tick: int) -> int:
        """Wall time of a tick, in microseconds of Unix time."""
        return self.epoch_us + (tick - self.shift) * self.period_us

    def follow(self, shift: int, since: int) -> None:
        """Take over a larger shift."""
        if shift > self.shift:
            self.shift, self.since = shift, since

    def due(self, tick: int, offset_us: int) -> int:
        """Elapsed time at which a tick comes; `offset_us` is what wall time is ahead of elapsed time."""
        if self._due_us is None:
            return self.time_of(tick) - offset_us
        if tick <= self._tick:
            return self._due_us
        return max(self.time_of(tick) - offset_us, self._due_us + self.period_us)

    def begin(self, tick: int, offset_us: int) -> None:
        """A tick has come."""
        if tick > self._tick:
            self._tick, self._due_us = tick, self.due(tick, offset_us)

    def rested(self, elapsed_us: int) -> None:
        """Note that up to now something may have been drawn by an unknown clock."""
        self._due_us = elapsed_us

    def next_wall(self, now_us: int, offset_us: int) -> int:
        """The first wall tick after a wall time, and a period after what was drawn before."""
        after = now_us if self._due_us is None else max(now_us, self._due_us + self.period_us + offset_us - 1)
        return max(0, (after - self.epoch_us) // self.period_us + 1)

    def raised(self, wall: int, last: int, multiple: int) -> int:
        """The least shift, no smaller than this one, with which the number of a wall tick is above `last`."""
        return -(-max(self.shift, last + 1 - wall) // multiple) * multiple
