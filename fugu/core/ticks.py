"""When ticks come: the agent's rules (`edge_agent/device_clock.py`), in integers.

Between anchors, wall time is what the monotonic clock says; small differences are followed, and a jump counts once the
wall clock has stayed there for ten minutes. Numbers of ticks only ever go up.
"""

from .policy import Policy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Protocol

    class Clock(Protocol):
        """The clocks of a machine, in microseconds."""

        def now_us(self) -> int:
            """Unix time."""

        def elapsed_us(self) -> int:
            """Time since the start, which nobody sets."""


__all__ = ["LATE_US", "MADE_UP", "PATIENCE_US", "SMALL_US", "Anchored", "TickClock", "Ticker"]

SMALL_US = 1000000
PATIENCE_US = 600000000
_FOLLOWED = 2000
MADE_UP = 8
LATE_US = 250000
_NO_SPACE = 28


class Anchored:
    """Wall time by the monotonic clock; before `not_before` (microseconds of Unix time) the wall clock is wrong.

    `anchors` counts them: none before the time is known, one more with each jump that counts; `jump` is one that does
    not count yet, its offset and when it began.
    """

    def __init__(self, clock: "Clock", not_before: int) -> None:
        self._clock = clock
        self._not_before = not_before
        self.anchors = self.offset_us = self._followed = 0
        self.jump: tuple[int, int] | None = None

    def elapsed_us(self) -> int:
        """Microseconds by the monotonic clock."""
        return self._clock.elapsed_us()

    def now_us(self) -> int:
        """Microseconds of Unix time."""
        return self._clock.elapsed_us() + self.offset_us

    def follow(self) -> None:
        """Look at the wall clock; call it often."""
        wall, elapsed = self._clock.now_us(), self._clock.elapsed_us()
        offset = wall - elapsed
        if not self.anchors:
            if wall >= self._not_before:
                self._set(offset, elapsed)
        elif abs(offset - self.offset_us) <= SMALL_US:
            self.jump = None
            most = max(0, elapsed - self._followed) // _FOLLOWED
            step = min(max(offset - self.offset_us, -most), most)
            self.offset_us += step
            self._followed = self._followed + most * _FOLLOWED if abs(step) == most else elapsed
        else:
            self._followed = elapsed
            if self.jump is None or abs(offset - self.jump[0]) > SMALL_US:
                self.jump = offset, elapsed
            if elapsed - self.jump[1] >= PATIENCE_US:
                self._set(offset, elapsed)

    def _set(self, offset: int, elapsed: int) -> None:
        self.offset_us, self._followed, self.jump = offset, elapsed, None
        self.anchors += 1


class TickClock:
    """The ticks of one epoch and period."""

    def __init__(self, epoch_us: int, period_us: int, shift: int, since: int) -> None:
        self.epoch_us, self.period_us, self.shift, self.since = epoch_us, period_us, shift, since
        self._tick = -1
        self._due_us: int | None = None

    def at(self, now_us: int) -> int:
        """The last tick that has happened at a wall time."""
        return (now_us - self.epoch_us) // self.period_us + self.shift

    def time_of(self, tick: int) -> int:
        """Wall time of a tick."""
        return self.epoch_us + (tick - self.shift) * self.period_us

    def due(self, tick: int, offset_us: int) -> int:
        """Elapsed time at which a tick comes."""
        if self._due_us is None:
            return self.time_of(tick) - offset_us
        if tick <= self._tick:
            return self._due_us
        return max(self.time_of(tick) - offset_us, self._due_us + self.period_us)

    def begin(self, tick: int, offset_us: int) -> None:
        """A tick has come."""
        if tick > self._tick:
            self._due_us = self.due(tick, offset_us)
            self._tick = tick

    def rested(self, elapsed_us: int) -> None:
        """Up to now, something may have been drawn by who knows what clock."""
        self._due_us = elapsed_us

    def next_wall(self, now_us: int, offset_us: int) -> int:
        """The first wall tick after a wall time, and a period after what was drawn before."""
        after = now_us if self._due_us is None else max(now_us, self._due_us + self.period_us + offset_us - 1)
        return max(0, (after - self.epoch_us) // self.period_us + 1)

    def raised(self, wall: int, last: int, multiple: int) -> int:
        """The least shift, no smaller than this one, with which the number of a wall tick is above the last."""
        return -(-max(self.shift, last + 1 - wall) // multiple) * multiple


class Ticker:
    """Draws for the ticks of one stream when they come.

    `policy` is verified; None for a stream that has none now. `stream` makes a `Stream` of a policy that begins after
    what the outbox knows; `read`, the sensor, gives a reading or None; `silent` says why nothing may be drawn at a Unix
    time in seconds: a code of a status, or None, as `trouble` says what keeps ticks from being drawn. `next_tick` is
    the next to draw for.
    """

    def __init__(
        self,
        policy: Policy | None,
        clock: Anchored,
        outbox: "Any",
        stream: "Callable[[Policy, Any], Any]",
        read: "Callable[[], object]",
        silent: "Callable[[int], str | None]" = lambda _seconds: None,
    ) -> None:
        self.policy: Any = policy
        self._clock, self._outbox, self._read = clock, outbox, read
        self._silent = silent
        self._make = stream
        self._stream: Any = None
        self._last: int = outbox.reserved
        epoch_us, period_us = outbox.clock
        self._ticks = TickClock(epoch_us, period_us, outbox.shift, outbox.since)
        self._placed = 0
        self._drawn_us: int | None = None
        self.next_tick = max(0, self._last + 1)
        self.trouble: str | None = None
        if self._last >= 0:
            self._drawn_us = clock.elapsed_us()
            self._ticks.rested(self._drawn_us)

    def due_us(self) -> int | None:
        """Elapsed time at which the next tick comes; none if that is not known yet."""
        if not self._placed or self.policy is None:
            return None
        due = self._ticks.due(self.next_tick, self._clock.offset_us)
        if self._drawn_us is None:
            return due
        period: int = self.policy.period_us
        return max(due, self._drawn_us + period - period // MADE_UP)

    def step(self) -> bool:
        """Draw for the next tick if it has come; whether frames have ended."""
        self._clock.follow()
        if self.policy is None:
            return False
        try:
            if self._placed != self._clock.anchors:
                self._place()
            return bool(self._placed) and self._comes() and self._tick()
        except OSError as error:
            self.trouble = "storage-full" if error.errno == _NO_SPACE else "storage"
            return False

    def close(self) -> None:
        """Let the frame under way leave, as it is; after an OSError it stays, and leaves with the next."""
        if self._stream is not None and not self._stream.is_empty:
            self._outbox.seal(self._stream.close(), self._last)

    def switch(self, policy: Policy | None) -> None:
        """Go on with the next tick under another policy, of the same clock, or under none; `close` comes first."""
        self.policy, self._stream, self.trouble = policy, None, None
        if policy is None:
            return
        self._outbox.expect(policy)
        self.next_tick = max(self.next_tick, self._last + 1)
        if self._placed == self._clock.anchors and not self._outbox.shift % self._multiple():
            self._stream = self._make(policy, self._outbox)
        elif self._placed:
            self._placed = -1

    def _place(self) -> None:
        ticks, clock, policy = self._ticks, self._clock, self.policy
        wall = ticks.next_wall(clock.now_us(), clock.offset_us)
        patience = SMALL_US
        if not self._placed:
            patience = max(patience, (policy.frame_ticks + 1) * policy.period_us)
        silence = (self._last + 1 - wall - ticks.shift) * policy.period_us
        above = self._last if silence > min(patience, PATIENCE_US) else wall + ticks.shift - 1
        shift = ticks.raised(wall, above, self._multiple())
        first = max(wall + shift, self._last + 1)
        since = first if shift > ticks.shift else ticks.since
        changed = shift != ticks.shift
        if changed and self._stream is not None:
            self._outbox.seal(self._stream.close(), self._outbox.reserved)
        self._outbox.set_shift(shift, since)
        ticks.shift, ticks.since = shift, since
        if changed or self._stream is None:
            self._stream = self._make(policy, self._outbox)
        self.next_tick = first
        self._placed = clock.anchors

    def _multiple(self) -> int:
        found = 1
        for window in self.policy.windows:
            one, other = found, window.stride
            while other:
                one, other = other, one % other
            found = found // one * window.stride
        return found if found <= 1 << 42 else 1

    def _comes(self) -> bool:
        elapsed = self._clock.elapsed_us()
        now = elapsed + self._clock.offset_us
        overdue = self._ticks.at(now - max(self.policy.period_us, LATE_US)) + 1
        self.next_tick = max(self.next_tick, overdue)
        if elapsed < self.due_us():  # type: ignore[operator]  # a place is known
            return False
        seconds = self._ticks.time_of(self.next_tick) // 1000000
        until = self.policy.valid_until
        self.trouble = self._silent(now // 1000000)
        if not self.trouble and (seconds < self.policy.valid_from or (until and seconds >= until)):
            self.trouble = "policy-inactive"
        if not self.trouble:
            return True
        self.next_tick = self._ticks.at(now) + 1
        self.close()
        return False

    def _tick(self) -> bool:
        tick, policy, outbox, stream = self.next_tick, self.policy, self._outbox, self._stream
        self.next_tick += 1
        self._ticks.begin(tick, self._clock.offset_us)
        self._drawn_us = self._clock.elapsed_us()
        try:
            reading = self._read()
        except Exception:  # a sensor that fails gives no reading; what it says may be one
            reading = None
        ended = stream.before(tick)
        if policy.symbols:
            through = tick + policy.frame_ticks
            if stream.is_empty and not outbox.fits():
                self.trouble = "storage-full"
                return False
            if ended:
                outbox.seal(ended, through - 1)
            outbox.reserve(through - 1 if tick > outbox.reserved else tick)
        else:
            through = tick
        self._last = tick
        done = stream.tick(tick, reading)
        if done:
            outbox.seal(done, through if stream.is_empty else outbox.reserved)
        self.trouble = None
        return bool(ended or done)
