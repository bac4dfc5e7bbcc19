"""The agent's loop: one symbol a tick on a steady clock, durable before it is sent, sent until it is safe.

A tick is counted in its windows once its symbol is durable, and a window leaves at the first tick at or after its end.
A symbol or a count that cannot be made durable is thrown away, and never drawn again.

One thread does everything but MQTT's network traffic, whose callbacks only leave events for it. Time comes from a
clock object, randomness from the `entropy` passed in, readings from the sensors.
"""

from __future__ import annotations

import logging
import queue
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from importlib.metadata import version

from contract.errors import FrameError
from contract.frames import MAX_TEXT, Status, StreamStatus, decode_committed, encode_status
from contract.topics import committed_topic, parse_topic, status_topic, symbols_topic, table_topic, window_topic
from edge_agent.clock import Clock, SystemClock
from edge_agent.outbox import Outbox
from edge_agent.plan import AgentPlan
from edge_agent.sensors import Sensor
from edge_agent.stream import Stream
from edge_agent.window import StreamWindows
from mqtt_link import Link, Will

__all__ = ["Agent"]

_log = logging.getLogger(__name__)
LATE_SECONDS = 10.0
"""Ticks that are overdue by more than this (and more than one tick) are left out instead of made up for."""
IN_FLIGHT = 20
RESEND_SECONDS = 10.0
RESEND_SECONDS_MAX = 3600.0
IDLE_SECONDS = 1.0
RETRY_SECONDS = 0.2


class Agent:
    """One device.

    Args:
        plan: the verified configuration.
        sensors: one for each of the plan's streams.
        entropy: fills a buffer with the operating system's randomness.
        clock: time.
    """

    def __init__(
        self,
        plan: AgentPlan,
        sensors: Sequence[Sensor],
        entropy: Callable[[memoryview], None],
        clock: Clock | None = None,
    ) -> None:
        self._plan = plan
        self._clock = clock or SystemClock()
        self._outbox = Outbox(plan.outbox, plan.fleet, plan.device)
        now = self._clock.now_us()
        self._streams: list[Stream] = []
        for stream_plan, sensor in zip(plan.streams, sensors, strict=True):
            last_tick = self._outbox.register(stream_plan)
            released = [self._outbox.register_window(stream_plan.stream, window) for window in stream_plan.windows]
            windows = StreamWindows(stream_plan.windows, released, entropy)
            stream = Stream(stream_plan, sensor, entropy, last_tick, windows)
            stream.next_tick = max(stream.last_tick, stream_plan.tick_at(now)) + 1
            self._streams.append(stream)
        self._wake = threading.Event()
        self._stopping = False
        self._events: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        will = Status(False, _version(), 0, "connection lost", ())
        self._link = Link(
            plan.broker,
            client_id=f"{plan.fleet}-{plan.device}",
            subscriptions=(
                committed_topic(plan.fleet, plan.device),
                *(table_topic(plan.fleet, plan.device, stream.stream) for stream in plan.streams if stream.measure),
            ),
            will=Will(status_topic(plan.fleet, plan.device), encode_status(will)),
            on_connected=lambda: self._later(self._connected),
            on_message=lambda topic, payload, _retained: self._later(lambda: self._arrived(topic, payload)),
            on_published=lambda mid, accepted: self._later(lambda: self._answered(mid, accepted)),
        )
        self._sent_through = 0
        self._resend: list[int] = []
        self._in_flight: dict[int, int] = {}
        self._progress = time.monotonic()
        self._patience = RESEND_SECONDS
        self._sent_at: dict[int, float] = {}
        self._storage_error = ""
        self._status_due = 0.0
        self._last_status: Status | None = None
        self.rejected = 0

    def stop(self) -> None:
        """Ask the loop to drain and end; may be called from a signal handler or another thread."""
        self._stopping = True
        self._wake.set()

    def run(self) -> None:
        """Run until `stop` is called or every sensor has finished; then drain.

        Raises:
            LinkError: if the broker's credentials cannot be read.
        """
        self._link.start()
        try:
            while not self._stopping and not all(stream.finished for stream in self._streams):
                self._tick_all()
                self._communicate()
                for stream in self._streams:
                    stream.windows.prepare(stream.next_tick)
                self._clock.wait(self._wake, self._pause())
                self._wake.clear()
            self._drain()
        finally:
            self._link.stop()
            self._outbox.close()

    def _later(self, event: Callable[[], None]) -> None:
        """Leave work for the loop; called in the network thread."""
        self._events.put(event)
        self._wake.set()

    # Ticks

    def _tick_all(self) -> None:
        for stream in self._streams:
            while not stream.finished and not self._stopping and self._due(stream):
                self._tick(stream)

    def _due(self, stream: Stream) -> bool:
        """Whether the stream's next tick has come; leaves out ticks that are too late to be made up for."""
        now = self._clock.now_us()
        current = stream.plan.tick_at(now)
        late = max(1, int(LATE_SECONDS * 1e6) // stream.plan.period_us)
        if current - late > stream.next_tick:
            stream.next_tick = current - late
        behind = (stream.plan.time_of(stream.last_tick) - now) / 1e6
        period = stream.plan.period_us / 1e6
        if behind > 2 * period + 1.0:
            stream.error = f"the clock is {behind:.0f} s behind the last tick: waiting"
            return False
        if current < stream.next_tick or stream.next_tick < 0:
            return False
        if not stream.plan.valid_at(stream.plan.time_of(stream.next_tick)):
            stream.error = "the policy is not valid at this time"
            stream.next_tick = current + 1
            return False
        return True

    def _tick(self, stream: Stream) -> None:
        """Draw for one tick and commit it; what cannot be committed is thrown away."""
        tick = stream.next_tick
        stream.next_tick += 1
        if stream.sensor.finished(tick):
            stream.finished = True
            return
        state = stream.discretiser.observe(stream.sensor.read(tick))
        try:
            self._outbox.append(stream.plan, tick, stream.draw(tick, state))
        except sqlite3.Error as error:
            self._storage_error = f"outbox: {error}"
        else:
            self._storage_error = ""
            stream.last_tick = tick
            stream.error = stream.sensor.error
            stream.windows.observe(tick, state)
        self._release(stream, tick)

    def _release(self, stream: Stream, tick: int) -> None:
        """Commit the windows that have ended; what cannot be committed is thrown away."""
        closed = stream.windows.close(tick)
        if closed:
            try:
                self._outbox.append_windows(stream.plan, closed)
            except sqlite3.Error as error:
                self._storage_error = f"outbox: {error}"

    def _pause(self) -> float:
        """Seconds until there is something to do without being woken."""
        if not self._events.empty():
            return 0.0
        now = self._clock.now_us()
        due = [(s.plan.time_of(s.next_tick) - now) / 1e6 for s in self._streams if not s.finished]
        return max(0.0, min([IDLE_SECONDS, *due]))

    # MQTT

    def _communicate(self) -> None:
        """Handle what the network thread has left, and send what there is to send."""
        self._link.maintain()
        try:
            while not self._events.empty():
                self._events.get()()
            if self._link.connected:
                self._resend_unanswered()
                while len(self._in_flight) < IN_FLIGHT and self._send_next():
                    pass
                self._send_status()
        except sqlite3.Error as error:  # what was not forgotten or sent now will be, once there is room again
            self._storage_error = f"outbox: {error}"

    def _send_next(self) -> bool:
        """Publish the next frame, if there is one and a connection."""
        fresh = not self._resend
        after = self._sent_through if fresh else self._resend[0] - 1
        frame = self._outbox.next_frame(after)
        if frame is None:
            self._resend.clear()
            return not fresh
        frame_id, name, payload = frame
        stream, _, window = name.partition("/")
        topic = window_topic if window else symbols_topic
        mid = self._link.publish(topic(self._plan.fleet, self._plan.device, stream), payload)
        if mid is None:
            return False
        if fresh:
            self._sent_through = frame_id
        else:
            self._resend.pop(0)
        self._in_flight[mid] = frame_id
        self._sent_at[frame_id] = time.monotonic()
        return True

    def _connected(self) -> None:
        """A (new) connection: what was in flight is sent again by paho-mqtt; tell the world that we are here."""
        self._progress = time.monotonic()
        self._last_status = None

    def _answered(self, mid: int, accepted: bool) -> None:
        """The broker has answered a publication."""
        frame_id = self._in_flight.pop(mid, None)
        if frame_id is not None and accepted and self._plan.forget == "puback":
            self._outbox.forget_frame(frame_id)
            self._sent_at.pop(frame_id, None)
            self._advance()

    def _arrived(self, topic: str, payload: bytes) -> None:
        """A message on one of the topics subscribed to."""
        parsed = parse_topic(topic)
        if parsed.kind == "committed":
            self._committed(payload)
            return
        for stream in self._streams:
            if stream.plan.stream == parsed.stream and not stream.offer_table(payload):
                self.rejected += 1

    def _committed(self, payload: bytes) -> None:
        """The gateway has said what is durable."""
        try:
            message = decode_committed(payload)
        except FrameError:
            self.rejected += 1
            return
        now = time.monotonic()
        for commit in message.streams:
            forgotten, missing = self._outbox.forget_committed(commit.stream, commit.through, commit.gaps)
            if forgotten:
                self._advance()
            overdue = [i for i in missing if now - self._sent_at.get(i, -RESEND_SECONDS) >= RESEND_SECONDS / 2]
            self._resend = sorted({*self._resend, *(i for i in overdue if i <= self._sent_through)})

    def _advance(self) -> None:
        self._progress = time.monotonic()
        self._patience = RESEND_SECONDS
        self._sent_at = {i: at for i, at in self._sent_at.items() if i > self._sent_through - 10 * IN_FLIGHT}

    def _resend_unanswered(self) -> None:
        """Send the oldest frames again when nothing has been said of them for a while."""
        now = time.monotonic()
        if self._in_flight or self._resend or now - self._progress < self._patience:
            return
        self._progress = now
        self._patience = min(2 * self._patience, RESEND_SECONDS_MAX)
        after = 0
        while len(self._resend) < IN_FLIGHT and (frame := self._outbox.next_frame(after)) is not None:
            after = frame[0]
            if after > self._sent_through:
                break
            self._resend.append(after)

    def _errors(self) -> str:
        of_streams = (problem for stream in self._streams for problem in (stream.error, stream.refusal))
        problems = [self._storage_error, self._link.last_error, *of_streams]
        return "; ".join(problem for problem in problems if problem)[:MAX_TEXT]

    def _status(self, *, online: bool) -> Status:
        streams = tuple(StreamStatus(s.plan.stream, s.plan.version, max(0, s.next_tick)) for s in self._streams)
        return Status(online, _version(), self._outbox.depth(), self._errors(), streams)

    def _send_status(self) -> None:
        """Publish the status at birth, when the error changes, and now and then."""
        changed = self._last_status is None or self._last_status.last_error != self._errors()
        if changed or time.monotonic() >= self._status_due:
            self._last_status = self._status(online=True)
            self._status_due = time.monotonic() + self._plan.status_seconds
            self._publish_status(self._last_status)

    def _publish_status(self, status: Status) -> None:
        self._link.publish(status_topic(self._plan.fleet, self._plan.device), encode_status(status), retain=True)

    def _drain(self) -> None:
        """Close the frames that are not full, and wait for the outbox to empty, but not for ever."""
        try:
            for stream in self._streams:
                self._outbox.close_frame(stream.plan)
            deadline = time.monotonic() + self._plan.drain_seconds
            while self._outbox.depth() and (left := deadline - time.monotonic()) > 0:
                self._communicate()
                self._wake.wait(min(left, RETRY_SECONDS))
                self._wake.clear()
            self._publish_status(self._status(online=False))
            if depth := self._outbox.depth():
                _log.warning("stopped with %d frames in the outbox; they will be sent after the next start", depth)
        except sqlite3.Error as error:
            _log.error("outbox: %s; what it holds will be sent after the next start", error)


def _version() -> str:
    return version("fugu-edge")
