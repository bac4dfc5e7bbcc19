"""The ticks of a device's streams: one symbol a tick on a steady clock, reserved before it is drawn.

A tick is drawn for when it comes or not at all. A tick that is overdue, because the machine slept or the clock was set,
is absent. Smaller delays are made up for by an eighth of a period with each tick. Readings closer together would be
more alike than the policy's class says. Tick numbers never go back: see `fugu.core.clocks`.
"""

from .clocks import SMALL_US, Anchored, TickClock, common_multiple
from .policy import LATE_US, Policy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

__all__ = ["Pace", "Ticker", "find_place", "multiple_of", "restart"]

_NO_SPACE = 28
_MOST_TICK = 1 << 53


class Pace:
    """The progress of a stream: `next_tick` is the next tick to draw for.

    `trouble` is the status code that says why no tick is drawn now, or None. `policy` says when ticks are valid.
    `clock` counts the ticks of all streams with the same epoch and period. `last_tick` is the last tick ever drawn for,
    or -1. `drawn_us` is the elapsed time at which this stream, or another of its clock, may have been drawn for last.
    A recording is at most `late_us` behind, and need not wait after `drawn_us`.
    """

    late_us = LATE_US
    recorded = False

    def __init__(self, policy: "Any", clock: TickClock, last_tick: int) -> None:
        self.policy = policy
        self.clock = clock
        self.last_tick = last_tick
        self.next_tick = last_tick + 1
        self.drawn_us: int | None = None
        self.trouble: str | None = None

    def ready_us(self, anchored: Anchored) -> int:
        """Return the elapsed time at which the next tick may be drawn for."""
        return self.clock.ready(self.next_tick, anchored.offset_us, None if self.recorded else self.drawn_us)

    def comes(self, anchored: Anchored, silent: "Callable[[int], str | None]") -> "bool | None":
        """Skip overdue ticks. Return True if the next tick has come, False if not, None if it may not be drawn for.

        `silent` returns the status code that says why nothing may be drawn at a Unix time in seconds, or None.
        """
        clock, policy, elapsed_us = self.clock, self.policy, anchored.elapsed_us()
        now_us = elapsed_us + anchored.offset_us
        self.next_tick = max(self.next_tick, clock.at(now_us - max(policy.period_us, self.late_us)) + 1)
        if self.next_tick > _MOST_TICK:
            self.trouble = "clock"
            return None
        if elapsed_us < self.ready_us(anchored):
            return False
        tick_seconds, valid_until = clock.time_of(self.next_tick) // 1000000, policy.valid_until
        self.trouble = silent(now_us // 1000000)
        if not self.trouble and (tick_seconds < policy.valid_from or (valid_until and tick_seconds >= valid_until)):
            self.trouble = "policy-inactive"
        if not self.trouble:
            return True
        self.next_tick = clock.at(now_us) + 1
        return None

    def begin(self, anchored: Anchored) -> int:
        """Begin the next tick, which has come. Return its number."""
        tick = self.next_tick
        self.next_tick += 1
        self.clock.begin(tick, anchored.offset_us)
        self.drawn_us = anchored.elapsed_us()
        return tick


def restart(streams: "Sequence[Pace]", anchored: Anchored, goes_on: bool = False) -> None:
    """Keep a period's distance from ticks that may have been drawn for just before a restart.

    `goes_on`: the anchor from before the restart goes on, so that ticks keep their times.
    """
    elapsed_us = anchored.elapsed_us()
    clocks = [stream.clock for stream in streams if stream.last_tick >= 0]
    for stream in streams:
        if stream.clock in clocks:
            stream.drawn_us = elapsed_us
            if not goes_on:
                stream.clock.restart(elapsed_us)


def find_place(streams: "Sequence[Pace]", anchored: Anchored, started: bool) -> tuple[int, int, int]:
    """Return the shift of the streams of one clock, its first tick, and the next tick.

    This is asked once the time is known, and after each jump. The shift is as before, unless that would mean a silence.
    Before these streams have `started`, a silence may last as long as the ticks that were reserved and perhaps never
    drawn for.
    """
    clock, patience = streams[0].clock, SMALL_US
    if not started:
        patience = max(patience, max([stream.policy.frame_ticks + 1 for stream in streams]) * clock.period_us)
    last_tick = max([stream.last_tick for stream in streams])
    wall_tick = clock.next_wall(anchored.now_us(), anchored.offset_us)
    return clock.place(wall_tick, last_tick, min(patience, anchored.patience_us), multiple_of(streams))


def multiple_of(streams: "Sequence[Pace]") -> int:
    """Return the number whose multiples shifts of these streams are, so that windows keep their time of day."""
    return common_multiple([period for stream in streams for period in stream.policy.repeats])


class Ticker(Pace):
    """Draws for the ticks of one stream of a board when they come.

    `policy` is verified; None for a stream without a policy. `make_stream` makes a `Stream` of a policy and an outbox,
    which begins after the outbox's frames. `read_sensor` returns a reading or None. `silence` is for `Pace.comes`.
    """

    def __init__(
        self,
        policy: Policy | None,
        anchored: Anchored,
        outbox: "Any",
        make_stream: "Callable[[Policy, Any], Any]",
        read_sensor: "Callable[[], object]",
        silence: "Callable[[int], str | None]" = lambda _seconds: None,
    ) -> None:
        super().__init__(policy, TickClock(*outbox.clock), outbox.reserved)
        self.clock.follow(outbox.shift, outbox.since)
        self._anchored, self._outbox, self._read = anchored, outbox, read_sensor
        self._silent = silence
        self._make = make_stream
        self._stream: Any = None
        self._memory: Any = None
        self._anchors = 0
        restart([self], anchored)

    def due_us(self) -> int | None:
        """Return the elapsed time at which the next tick comes, or None while it is not known."""
        if not self._anchors or self.policy is None:
            return None
        return self.ready_us(self._anchored)

    def step(self) -> bool:
        """Draw for the next tick if it has come. Return True if that completed a frame."""
        self._anchored.follow()
        if self.policy is None:
            return False
        try:
            if self._anchors != self._anchored.anchors:
                self._place()
            if not self._anchors:
                return False
            has_come = self.comes(self._anchored, self._silent)
            if has_come is None:
                self.close()
            return bool(has_come) and self._tick()
        except OSError as error:
            self.trouble = "storage-full" if error.errno == _NO_SPACE else "storage"
            return False

    def close(self) -> None:
        """Store the frame under way and those that wait; after an OSError all wait for the next frame."""
        if self._stream is None:
            return
        if self._stream.is_empty:
            self._outbox.reserve(self._outbox.reserved)  # a later policy's frames must follow those that wait
        else:
            self._outbox.seal(self._stream.close(), self.last_tick)

    def switch(self, policy: Policy | None) -> None:
        """Go on with the next tick under another policy of the same clock, or None; call `close` first."""
        self.policy, self._stream, self.trouble = policy, None, None
        if policy is None:
            return
        self._outbox.expect(policy)
        if self._anchors == self._anchored.anchors and not self._outbox.shift % multiple_of([self]):
            self._begin()
        elif self._anchors:
            self._anchors = -1

    def _place(self) -> None:
        shift, since_tick, first_tick = find_place([self], self._anchored, self._anchors != 0)
        is_new_shift = shift != self.clock.shift
        if is_new_shift and self._stream is not None:
            self._outbox.seal(self._stream.close(), self._outbox.reserved)
        self._outbox.set_shift(shift, since_tick)
        self.clock.follow(shift, since_tick)
        if is_new_shift or self._stream is None:
            self._begin()
        self.next_tick = first_tick
        self._anchors = self._anchored.anchors

    def _begin(self) -> None:
        self._stream = self._make(self.policy, self._outbox)
        if self._memory is not None:
            self._stream.go_on(self._memory)
        self._memory = self._stream.memory

    def _tick(self) -> bool:
        tick, policy, outbox, stream = self.begin(self._anchored), self.policy, self._outbox, self._stream
        try:
            reading = self._read()
        except Exception:  # a sensor that fails gives no reading; what it says may be one
            reading = None
        ended_frames = stream.close_gap(tick)
        if policy.symbols:
            last_reserved = tick + policy.frame_ticks
            if ended_frames:
                outbox.seal(ended_frames, last_reserved - 1)
            if stream.is_empty and not outbox.fits():
                self.trouble = "storage-full"
                return False
            outbox.reserve(last_reserved - 1 if tick > outbox.reserved else tick)
        else:
            last_reserved = tick
        self.last_tick = tick
        completed = stream.tick(tick, reading)
        if completed:
            outbox.seal(completed, last_reserved if stream.is_empty else outbox.reserved)
        self.trouble = None
        return bool(ended_frames or completed)
