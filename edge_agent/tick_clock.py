"""The ticks of one epoch and period: which number each has, and when it comes by the monotonic clock.

Numbers only ever go up. When the wall clock has gone back, they are ahead of it by a shift from then on: tick t is wall
tick t - shift, which happens at epoch + (t - shift) * period. The shift never falls, and is a multiple of the strides
of all windows and of the cycles of all chains, so that a window is always at the same time of day.

However often the clock is set, a tick is due a period after the one before, or later: readings that lie closer together
are more alike than the policy's class says.
"""

from __future__ import annotations

__all__ = ["TickClock"]


class TickClock:
    """What the streams of one epoch and period have in common.

    Attributes:
        shift: by how many ticks the numbers are ahead of the wall clock.
        since: the first tick of that shift.
    """

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
        """Take over a shift, if it is a larger one."""
        if shift > self.shift:
            self.shift, self.since = shift, since

    def due(self, tick: int, offset_us: int) -> int:
        """Elapsed time at which a tick comes.

        Args:
            offset_us: what wall time is ahead of elapsed time.
        """
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
        """Up to now, something may have been drawn by who knows what clock."""
        self._due_us = elapsed_us

    def next_wall(self, now_us: int, offset_us: int) -> int:
        """The first wall tick after a wall time, and a period after what was drawn before."""
        after = now_us if self._due_us is None else max(now_us, self._due_us + self.period_us + offset_us - 1)
        return max(0, (after - self.epoch_us) // self.period_us + 1)

    def raised(self, wall: int, last: int, multiple: int) -> int:
        """The least shift, no smaller than this one, with which the number of a wall tick is above `last`."""
        return -(-max(self.shift, last + 1 - wall) // multiple) * multiple
