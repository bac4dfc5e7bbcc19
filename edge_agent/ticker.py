"""The ticks of a device's streams: one symbol a tick on a steady clock, reserved before it is drawn.

A tick is drawn for when it comes or not at all: one that is overdue, because the machine slept or the clock was set, is
absent and never made up for. Only a recording still knows the readings of past ticks, and may catch up a little.

A tick is counted in its windows once the outbox has its symbol, and a window leaves at the first tick at or after its
end. A tick that the outbox cannot reserve is not drawn for; a count that cannot be made durable is thrown away.
"""

from __future__ import annotations

import logging
import sqlite3
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from contract.errors import StatusCode
from edge_agent.outbox import Outbox, OutboxFullError
from edge_agent.plan import StreamPlan
from edge_agent.sensors import Sensor
from edge_agent.stream import Sensors, SharedSensor, Stream, check_lines
from edge_agent.window import StreamWindows
from host.wake import Wake

__all__ = ["Clock", "SystemClock", "Ticker"]


class Clock(Protocol):
    """Time for the agent."""

    def now_us(self) -> int:
        """Microseconds of Unix time."""

    def wait(self, wake: Wake, seconds: float) -> None:
        """Wait until woken, or some seconds have passed."""


class SystemClock:
    """The operating system's clock."""

    def now_us(self) -> int:
        """Microseconds of Unix time."""
        return time.time_ns() // 1000

    def wait(self, wake: Wake, seconds: float) -> None:
        """Wait until woken, or some seconds have passed."""
        wake.wait(seconds)


_log = logging.getLogger(__name__)

LATE_US = 250_000
"""Ticks that are overdue by this (and by a period) are absent."""
REPLAY_LATE_US = 10_000_000
"""The same of a recording."""
IDLE_SECONDS = 1.0


class Ticker:
    """The streams of one device; used from the agent's loop.

    Args:
        silent: why nothing may be drawn at a time in seconds, and no sensor read, if that is so.

    Attributes:
        streams: in the order of their policies.
        storage_trouble: what keeps symbols from becoming durable, if anything does.
        not_drawn: ticks since the start that were not drawn for because of that.
        stopping: set it to draw no more; a signal handler may.
    """

    def __init__(
        self,
        outbox: Outbox,
        clock: Clock,
        entropy: Callable[[memoryview], None],
        silent: Callable[[float], StatusCode | None],
    ) -> None:
        self._outbox = outbox
        self._clock = clock
        self._entropy = entropy
        self._silent = silent
        self._sensors = Sensors()
        self.streams: list[Stream] = []
        self.storage_trouble: StatusCode | None = None
        self.not_drawn = 0
        self.stopping = False

    def begin(self, plans: Sequence[StreamPlan], sensors: Sequence[Sensor]) -> None:
        """Begin with the tick after this one.

        Args:
            sensors: one for each; streams with the same one, and the same clock, get the same readings.

        Raises:
            OutboxError: the clock of a stream has changed, or the ticks of a window have.
        """
        now = self._clock.now_us()
        for plan, sensor in zip(plans, sensors, strict=True):
            stream = self._open(plan, self._sensors.adopt(plan, sensor))
            stream.next_tick = max(stream.last_tick, plan.tick_at(now)) + 1
            self.streams.append(stream)
        _align(self.streams, ())

    def switch(self, plans: Sequence[StreamPlan], store: Callable[[], None]) -> None:
        """Put new plans in force between two ticks, once they are stored.

        A frame that was begun under the old plan ends there; ticks that have been drawn are never drawn again.

        Raises:
            ConfigError: a sensor cannot be opened, or standard input would be read on two clocks.
            OutboxError: a stream cannot go on under its new plan; nothing has changed.
            OSError, sqlite3.Error: they could not be stored; nothing has changed.
        """
        before = {stream.plan.stream: stream for stream in self.streams}
        now = self._clock.now_us()
        streams = []
        check_lines(plans)
        self.close_frames()  # before anything is stored: after that nothing may fail, and no tick stay behind
        with self._outbox.forgets_if_refused():
            for plan in plans:
                old = before.get(plan.stream)
                stream = self._open(plan, self._sensors.of(plan))
                stream.next_tick = max(stream.last_tick + 1, plan.tick_at(now) + 1 if old is None else old.next_tick)
                streams.append(stream)
            store()
        _align(streams, self.streams)
        self.streams = streams

    def catch_up(self) -> None:
        """Draw for every tick that has come, one tick of each stream after the other: some have one sensor."""
        came = True
        while came:
            came = False
            for stream in self.streams:
                if not stream.finished and not self.stopping and self._due(stream):
                    self._tick(stream)
                    came = True

    def prepare(self) -> None:
        """Draw the noise of the windows that begin next, while there is time."""
        for stream in self.streams:
            stream.windows.prepare(stream.next_tick)

    def pause(self) -> float:
        """Seconds until the next tick, but not more than one."""
        now = self._clock.now_us()
        due = [(s.plan.time_of(s.next_tick) - now) / 1e6 for s in self.streams if not s.finished]
        return max(0.0, min([IDLE_SECONDS, *due]))

    def settle(self) -> None:
        """Draw nothing any more, and let frames that are not full leave.

        Raises:
            sqlite3.Error: the outbox does not take it.
        """
        self.stopping = True
        self._outbox.settle()

    def close_frames(self) -> None:
        """Let frames that are not full leave.

        Raises:
            sqlite3.Error: the outbox does not take it.
        """
        for stream in self.streams:
            self._outbox.close_frame(stream.plan)

    def forget_readings(self) -> None:
        """Of what sensors have said until now, nothing is for a tick that comes."""
        for stream in self.streams:
            if not stream.sensor.recorded:
                stream.sensor.read(stream.next_tick - 1)

    @property
    def over(self) -> bool:
        """Whether all is done: asked to stop, or no sensor has more. Waiting for a first policy is not the end."""
        return self.stopping or (bool(self.streams) and all(stream.finished for stream in self.streams))

    def _open(self, plan: StreamPlan, sensor: SharedSensor) -> Stream:
        """A stream, as far as the outbox knows it."""
        last_tick = self._outbox.register(plan)
        released = [self._outbox.register_window(plan.stream, window) for window in plan.windows]
        return Stream(plan, sensor, self._entropy, last_tick, StreamWindows(plan.windows, released, self._entropy))

    def _due(self, stream: Stream) -> bool:
        """Whether the stream's next tick has come; leaves out ticks that are too late to be made up for."""
        now = self._clock.now_us()
        current = stream.plan.tick_at(now)
        late = max(stream.plan.period_us, REPLAY_LATE_US if stream.sensor.recorded else LATE_US)
        overdue = stream.plan.tick_at(now - late) + 1
        stream.next_tick = max(stream.next_tick, stream.sensor.newest, overdue)  # before the newest nothing is known
        behind = (stream.plan.time_of(stream.last_tick) - now) / 1e6
        period = stream.plan.period_us / 1e6
        if behind > 2 * period + 1.0:
            stream.trouble = StatusCode.CLOCK
            return False
        if current < stream.next_tick or stream.next_tick < 0:
            return False
        if (silent := self._silent(now / 1e6)) is not None:
            stream.trouble = silent
            stream.next_tick = current + 1
            return False
        if not stream.plan.valid_at(stream.plan.time_of(stream.next_tick)):
            stream.trouble = StatusCode.POLICY_INACTIVE
            stream.next_tick = current + 1
            return False
        return True

    def _tick(self, stream: Stream) -> None:
        """Draw for one tick, if the outbox has reserved it, and hand it over."""
        tick = stream.next_tick
        stream.next_tick += 1
        if stream.sensor.finished(tick):
            stream.finished = True
            return
        state = stream.observe(tick)
        reserved = False
        try:
            self._outbox.reserve(stream.plan, tick)
            reserved = True
            self._outbox.append(stream.plan, tick, stream.mechanism.draw(tick, state))
        except (sqlite3.Error, OutboxFullError) as error:
            self.not_drawn += not reserved
            self.storage_failed(error)
        else:
            self.storage_trouble = None
            stream.last_tick = tick
            stream.trouble = None
            if not stream.discretiser.beginning:
                stream.windows.observe(tick, state)
        self._release(stream, tick)

    def storage_failed(self, error: sqlite3.Error | OutboxFullError) -> None:
        """Remember that the outbox took nothing, and tell the journal when that begins."""
        full = isinstance(error, OutboxFullError) or error.sqlite_errorcode == sqlite3.SQLITE_FULL
        trouble = StatusCode.STORAGE_FULL if full else StatusCode.STORAGE
        if trouble != self.storage_trouble:
            _log.error("outbox %s: %s; nothing is drawn until it takes something again", self._outbox.path, error)
        self.storage_trouble = trouble

    def _release(self, stream: Stream, tick: int) -> None:
        """Commit the windows that have ended; what cannot be committed is thrown away."""
        if closed := stream.windows.close(tick):
            try:
                self._outbox.append_windows(stream.plan, closed)
            except (sqlite3.Error, OutboxFullError) as error:
                self.storage_failed(error)


def _align(streams: Sequence[Stream], before: Sequence[Stream]) -> None:
    """Let streams of one clock begin at one tick, after what was drawn before.

    What streams of one sensor tell together at a tick is bounded for the tables of one document. No tick may have the
    table of one stream from the old document, and that of another from the new one.
    """
    first: dict[tuple[int, int], int] = {}
    for stream in (*streams, *before):
        clock = stream.plan.epoch_us, stream.plan.period_us
        first[clock] = max(first.get(clock, stream.next_tick), stream.next_tick)
    for stream in streams:
        stream.next_tick = first[stream.plan.epoch_us, stream.plan.period_us]
