"""The ticks of a board's stream: one symbol a tick on a steady clock, reserved before it is drawn."""

from .clocks import LATE_US, PATIENCE_US, SMALL_US, Anchored, TickClock, common_multiple
from .policy import Policy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

__all__ = ["Ticker"]

_NO_SPACE = 28


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
        self._memory: Any = None
        self._last: int = outbox.reserved
        self._ticks = TickClock(*outbox.clock)
        self._ticks.follow(outbox.shift, outbox.since)
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
        return self._ticks.ready(self.next_tick, self._clock.offset_us, self._drawn_us)

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
            self._begin()
        elif self._placed:
            self._placed = -1

    def _place(self) -> None:
        ticks, clock, policy = self._ticks, self._clock, self.policy
        wall = ticks.next_wall(clock.now_us(), clock.offset_us)
        patience = SMALL_US
        if not self._placed:
            patience = max(patience, (policy.frame_ticks + 1) * policy.period_us)
        shift, since, first = ticks.place(wall, self._last, min(patience, PATIENCE_US), self._multiple())
        changed = shift != ticks.shift
        if changed and self._stream is not None:
            self._outbox.seal(self._stream.close(), self._outbox.reserved)
        self._outbox.set_shift(shift, since)
        ticks.follow(shift, since)
        if changed or self._stream is None:
            self._begin()
        self.next_tick = first
        self._placed = clock.anchors

    def _begin(self) -> None:
        self._stream = self._make(self.policy, self._outbox)
        if self._memory is not None:
            self._stream.go_on(self._memory)
        self._memory = self._stream.memory

    def _multiple(self) -> int:
        return common_multiple([window.stride for window in self.policy.windows])

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
