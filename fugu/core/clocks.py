"""A device's clock, monotonic time anchored to the wall clock, and the numbers of its ticks.

Between anchors, wall time is what the monotonic clock says. A difference of up to a second is followed, by at most 500
millionths of the time that passes. A larger one is a jump. It counts once a signed time confirms it, or once the wall
clock has stayed there for a while.

Tick numbers only go up. When the wall clock has gone back, they are ahead of it by a shift: tick t is wall tick t -
shift, which happens at epoch + (t - shift) * period. The shift never falls, and is a multiple of the strides of all
windows and the cycles of all chains. So a window is always at the same time of day. However often the clock is set, a
tick is due at least a period after the tick before it. Closer readings would be more alike than the policy's class
says.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Protocol

    class Clock(Protocol):
        """The clocks of a machine, in microseconds."""

        def now_us(self) -> int:
            """Unix time."""

        def elapsed_us(self) -> int:
            """Time since the start, which nobody sets."""


__all__ = ["MADE_UP", "SMALL_US", "Anchored", "TickClock", "common_multiple"]

SMALL_US = 1000000
"""Differences up to this are followed: NTP leaves smaller ones, and to readers of ticks a second is little."""
_PATIENCE_US = 600000000
MADE_UP = 8
"""Ticks are at least a period apart, less one part in this many."""
_FOLLOWED = 2000
_NEAR_US = 300000000
_MOST_MULTIPLE = 1 << 42


class Anchored:
    """Wall time by the monotonic clock, anchored once `is_right(wall clock)` is True or a signed time is near.

    `anchors` counts the anchors: 0 before the time is known, one more with each jump that counts. `jump` is a jump that
    does not count yet, as its offset and the elapsed time at which it began; None without one. Wall time is `offset_us`
    ahead of elapsed time; the argument is that of an earlier anchor. A jump without a signed time counts after
    `patience_us`.
    """

    def __init__(
        self,
        clock: "Clock",
        is_right: "Callable[[int], bool]",
        patience_us: int = _PATIENCE_US,
        offset_us: int | None = None,
    ) -> None:
        self._clock, self._right, self.patience_us = clock, is_right, patience_us
        self.anchors = 0 if offset_us is None else 1
        self.offset_us = offset_us or 0
        self._followed = clock.elapsed_us()
        self.jump: tuple[int, int] | None = None

    def elapsed_us(self) -> int:
        """Return the microseconds of the monotonic clock."""
        return self._clock.elapsed_us()

    def now_us(self) -> int:
        """Return Unix time in microseconds, by the wall clock until the time is known."""
        return self._clock.elapsed_us() + self.offset_us if self.anchors else self._clock.now_us()

    def follow(self, signed_time: int | None = None) -> None:
        """Follow the wall clock; call it often, and with each newer signed Unix time in seconds."""
        wall_us, elapsed_us = self._clock.now_us(), self._clock.elapsed_us()
        offset_us = wall_us - elapsed_us
        signed_gap_us = _NEAR_US + 1 if signed_time is None else abs(wall_us - signed_time * 1000000)
        if not self.anchors:
            if signed_gap_us <= _NEAR_US or self._right(wall_us):
                self._set(offset_us, elapsed_us)
        elif abs(offset_us - self.offset_us) <= SMALL_US:
            self.jump = None
            max_step_us = max(0, elapsed_us - self._followed) // _FOLLOWED
            step_us = min(max(offset_us - self.offset_us, -max_step_us), max_step_us)
            self.offset_us += step_us
            self._followed = self._followed + max_step_us * _FOLLOWED if abs(step_us) == max_step_us else elapsed_us
        else:
            self._followed = elapsed_us
            if self.jump is None or abs(offset_us - self.jump[0]) > SMALL_US:
                self.jump = offset_us, elapsed_us
            is_confirmed = signed_gap_us <= _NEAR_US and abs(offset_us - self.offset_us) > 2 * signed_gap_us
            if is_confirmed or elapsed_us - self.jump[1] >= self.patience_us:
                self._set(offset_us, elapsed_us)

    def _set(self, offset: int, elapsed: int) -> None:
        self.offset_us, self._followed, self.jump = offset, elapsed, None
        self.anchors += 1


class TickClock:
    """The ticks of one epoch and period; from tick `since` on, numbers are `shift` ahead of wall ticks."""

    def __init__(self, epoch_us: int, period_us: int) -> None:
        self.epoch_us, self.period_us = epoch_us, period_us
        self.shift = self.since = 0
        self._tick = -1
        self._due_us: int | None = None

    def at(self, now_us: int) -> int:
        """Return the last tick that has come by a wall time; before the epoch its number is below the shift."""
        return (now_us - self.epoch_us) // self.period_us + self.shift

    def time_of(self, tick: int) -> int:
        """Return the wall time of a tick, in microseconds of Unix time."""
        return self.epoch_us + (tick - self.shift) * self.period_us

    def follow(self, shift: int, since_tick: int) -> None:
        """Use a shift from a tick on, if it is larger than the shift so far."""
        if shift > self.shift:
            self.shift, self.since = shift, since_tick

    def due(self, tick: int, offset_us: int) -> int:
        """Return the elapsed time at which a tick comes, with wall time `offset_us` ahead of elapsed time."""
        if self._due_us is None:
            return self.time_of(tick) - offset_us
        if tick <= self._tick:
            return self._due_us
        return max(self.time_of(tick) - offset_us, self._due_us + self.period_us)

    def ready(self, tick: int, offset_us: int, drawn_us: int | None) -> int:
        """Return the elapsed time from which a tick may be drawn for; the tick before, if any, was at `drawn_us`."""
        due_us = self.due(tick, offset_us)
        return due_us if drawn_us is None else max(due_us, drawn_us + self.period_us - self.period_us // MADE_UP)

    def begin(self, tick: int, offset_us: int) -> None:
        """Note that a tick has come."""
        if tick > self._tick:
            self._due_us = self.due(tick, offset_us)
            self._tick = tick

    def restart(self, elapsed_us: int) -> None:
        """Note that ticks may have been drawn for before a restart, up to an elapsed time."""
        self._due_us = elapsed_us

    def next_wall(self, now_us: int, offset_us: int) -> int:
        """Return the first wall tick after a wall time, at least a period after the last tick drawn for."""
        earliest_us = now_us if self._due_us is None else max(now_us, self._due_us + self.period_us + offset_us - 1)
        return max(0, (earliest_us - self.epoch_us) // self.period_us + 1)

    def place(self, wall_tick: int, last_tick: int, patience_us: int, multiple: int) -> tuple[int, int, int]:
        """Return the shift, its first tick, and the next tick, given the next wall tick and the last tick drawn for.

        The shift is rounded up to a multiple of `multiple`. It is otherwise as before, unless that would mean a silence
        of more than `patience_us`.
        """
        silence_us = (last_tick + 1 - wall_tick - self.shift) * self.period_us
        last_used_tick = last_tick if silence_us > patience_us else wall_tick + self.shift - 1
        shift = -(-max(self.shift, last_used_tick + 1 - wall_tick) // multiple) * multiple
        next_tick = max(wall_tick + shift, last_tick + 1)
        return shift, next_tick if shift > self.shift else self.since, next_tick


def common_multiple(numbers: "Iterable[int]") -> int:
    """Return the least common multiple of numbers, or 1 if it is above 2^42.

    A hundred times this bound is still below the largest tick.
    """
    multiple = 1
    for number in numbers:
        divisor, remainder = multiple, number
        while remainder:
            divisor, remainder = remainder, divisor % remainder
        multiple = multiple // divisor * number
    return multiple if multiple <= _MOST_MULTIPLE else 1
