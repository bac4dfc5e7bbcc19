"""The device's clock, monotonic time anchored to the wall clock, and the numbers of its ticks.

Between anchors no tick depends on what somebody sets the wall clock to. A difference of up to a second is followed, by
at most 500 millionths of the time that passes, as the kernel follows NTP. A larger one is a jump. It counts once the
gateway's signed time confirms it, or once the wall clock has stayed there for a while; until then the device goes on by
its monotonic clock, and says so. No time is known before the wall clock is synchronised, or its owner says that it is
right. An anchor is kept for as long as the machine runs, so that a restart of the agent is none.

Tick numbers only go up. When the wall clock has gone back, they are ahead of it by a shift: tick t is wall tick t -
shift, which happens at epoch + (t - shift) * period. The shift never falls, and is a multiple of the strides of all
windows and the cycles of all chains, so that a window is always at the same time of day. However often the clock is
set, a tick is due a period after the one before, or later: closer readings are more alike than the policy's class says.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from typing import NamedTuple

from edge_agent.plan import ClockSettings
from fugu.host import clock as machine
from fugu.host.process import Wake

__all__ = ["SMALL_US", "Anchor", "DeviceClock", "SystemClock", "TickClock"]


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


SMALL_US = 1_000_000
"""Differences up to this are followed: more than NTP leaves to be followed, and little for whoever reads the ticks."""
_FOLLOWED = 2000
"""A difference changes by at most one part in so many of the time that passes."""
_NEAR_US = 300_000_000
"""The signed time may be so old: gateways sign one every five minutes, and the broker keeps it."""
_BOOTTIME: int = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class SystemClock:
    """The operating system's clocks."""

    def now_us(self) -> int:
        """Microseconds of Unix time, as the wall clock has it."""
        return time.time_ns() // 1000

    def elapsed_us(self) -> int:
        """Microseconds by a clock that nobody sets, and that counts while the machine sleeps."""
        return time.clock_gettime_ns(_BOOTTIME) // 1000

    def synchronised(self) -> bool:
        """True if something that knows the time has set the wall clock."""
        return machine.synchronised()

    def known_synchronised(self) -> bool:
        """The same, and False where the system cannot know."""
        return machine.known_synchronised()

    def boot(self) -> str:
        """Names the time since the machine was switched on, in which `elapsed_us` has one origin; empty if unknown."""
        return machine.boot()

    def wait(self, wake: Wake, seconds: float) -> None:
        """Wait until woken, or some seconds have passed."""
        wake.wait(seconds)


class Anchor(NamedTuple):
    """Unix time is elapsed time and an offset, in microseconds, until the machine is switched on again."""

    boot: str
    offset_us: int


_log = logging.getLogger(__name__)


class DeviceClock:
    """Wall time by the monotonic clock; used from the agent's loop.

    `anchors` counts them: none before the time is known, another with each jump that counts. `continues` is whether the
    first is that of an agent before, on the same machine since it was switched on. Wall time is `offset_us` ahead of
    elapsed time; a jump that nobody confirms waits for `patience_us` before it counts.
    """

    def __init__(
        self, clock: SystemClock, settings: ClockSettings, anchor: Anchor | None, keep: Callable[[Anchor], None]
    ) -> None:
        self._clock = clock
        self._settings = settings
        self._keep = keep
        self.patience_us = int(settings.confirm_seconds * 1e6)
        self._boot = clock.boot()
        self.offset_us = 0
        self.continues = anchor is not None and anchor.boot != "" and anchor.boot == self._boot
        self.anchors = int(self.continues)
        if anchor is not None and self.continues:
            self.offset_us = anchor.offset_us
        self._stored = self.offset_us
        self._followed = clock.elapsed_us()
        self._jump: tuple[int, int] | None = None
        self._told: int | None = None

    @property
    def uncertain(self) -> bool:
        """True if the time is not known yet, or the wall clock has jumped and that is not confirmed."""
        return not self.anchors or self._jump is not None

    def elapsed_us(self) -> int:
        """Microseconds by the monotonic clock."""
        return self._clock.elapsed_us()

    def rest(self, microseconds: int) -> None:
        """Let some time pass, whatever arrives."""
        if microseconds > 0:
            self._clock.wait(Wake(), microseconds / 1e6)

    def now_us(self) -> int:
        """Microseconds of Unix time; those of the wall clock until the time is known."""
        return self._clock.elapsed_us() + self.offset_us if self.anchors else self._clock.now_us()

    def follow(self, signed: int | None = None) -> None:
        """Look at the wall clock; call it often, and with each newer Unix time that the gateway has signed."""
        wall, elapsed = self._clock.now_us(), self._clock.elapsed_us()
        offset = wall - elapsed
        away = math.inf if signed is None else abs(wall - signed * 1_000_000)
        near = away <= _NEAR_US
        if not self.anchors:
            if near or self._settings.trusted or self._clock.synchronised():
                if self._told is not None:
                    _log.warning("clock: it is synchronised now; ticks begin")
                self._set(offset, elapsed)
            elif self._told is None:
                self._told = elapsed
                _log.warning(
                    "clock: it is not synchronised, and no tick is drawn until it is: let NTP set it "
                    "(timedatectl set-ntp true), or, if it is right, say so: [clock] trusted = true"
                )
        elif abs(offset - self.offset_us) <= SMALL_US:
            self._jump = None
            most = max(0, elapsed - self._followed) // _FOLLOWED
            step = min(max(offset - self.offset_us, -most), most)
            self.offset_us += step
            self._followed = self._followed + most * _FOLLOWED if abs(step) == most else elapsed
            if abs(self.offset_us - self._stored) > SMALL_US // 2:
                self._remember()
        else:
            self._judge_jump(offset, elapsed, near and abs(offset - self.offset_us) > 2 * away)

    def _judge_jump(self, offset: int, elapsed: int, confirmed: bool) -> None:
        self._followed = elapsed
        if self._jump is None or abs(offset - self._jump[0]) > SMALL_US:
            self._jump = offset, elapsed
            if self._told is None or elapsed - self._told >= self.patience_us:
                self._told = elapsed
                _log.warning(
                    "clock: the wall clock jumped by %+.1f s; ticks go on without it, until the gateway's signed time "
                    "confirms that, or it has stayed there for %g s",
                    (offset - self.offset_us) / 1e6,
                    self._settings.confirm_seconds,
                )
        if confirmed or elapsed - self._jump[1] >= self.patience_us:
            _log.warning("clock: the jump of the wall clock by %+.1f s counts now", (offset - self.offset_us) / 1e6)
            self._set(offset, elapsed)

    def _set(self, offset: int, elapsed: int) -> None:
        self.offset_us, self._followed, self._jump, self._told = offset, elapsed, None, None
        self.anchors += 1
        self._remember()

    def _remember(self) -> None:
        self._stored = self.offset_us
        self._keep(Anchor(self._boot, self.offset_us))
