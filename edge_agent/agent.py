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
import time
from collections.abc import Callable, Sequence
from importlib.metadata import version
from typing import TYPE_CHECKING

from contract.errors import FrameError
from contract.frames import MAX_TEXT, Status, StreamStatus, decode_committed, encode_status
from contract.topics import committed_topic, status_topic, table_topic
from edge_agent.clock import Clock, SystemClock
from edge_agent.outbox import Outbox
from edge_agent.plan import AgentPlan, Managed, StreamPlan
from edge_agent.sender import Sender
from edge_agent.sensors import Sensor, open_sensor
from edge_agent.stream import Stream
from edge_agent.window import StreamWindows
from mqtt_link import Link, Will
from mqtt_link.notify import Notifier
from mqtt_link.wake import Wake

if TYPE_CHECKING:
    from edge_agent.fleet_policy import FleetPolicy

__all__ = ["Agent"]

_log = logging.getLogger(__name__)
LATE_SECONDS = 10.0
"""Ticks that are overdue by more than this (and more than one tick) are left out instead of made up for."""
IDLE_SECONDS = 1.0
RETRY_SECONDS = 0.2
EVENT_SECONDS = 0.1
"""What has arrived waits after so long, so that a flood of messages stops no tick."""
MAX_MESSAGE_BYTES = 1 << 19
MAX_DOCUMENT_BYTES = 1 << 21
MOST_WAITING = 64


class Agent:
    """One device.

    Args:
        plan: the verified configuration.
        sensors: one for each of the plan's streams.
        entropy: fills a buffer with the operating system's randomness.
        clock: time.
        notifier: tells the service manager that all is well.
    """

    def __init__(
        self,
        plan: AgentPlan,
        sensors: Sequence[Sensor],
        entropy: Callable[[memoryview], None],
        clock: Clock | None = None,
        notifier: Notifier | None = None,
    ) -> None:
        self._plan = plan
        self._clock = clock or SystemClock()
        self._notifier = notifier or Notifier()
        self._outbox = Outbox(plan.outbox, plan.fleet, plan.device)
        now = self._clock.now_us()
        self._streams: list[Stream] = []
        self._entropy = entropy
        for stream_plan, sensor in zip(plan.streams, sensors, strict=True):
            stream = self._open(stream_plan, sensor)
            stream.next_tick = max(stream.last_tick, stream_plan.tick_at(now)) + 1
            self._streams.append(stream)
        self._sensors = {stream.plan.stream: stream.sensor for stream in self._streams}
        self._wake = Wake()
        self._stopping = False
        self._events: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._committed_topic = committed_topic(plan.fleet, plan.device)
        self._tables = {
            table_topic(plan.fleet, plan.device, stream.plan.stream): stream
            for stream in self._streams
            if stream.plan.measure is not None and plan.managed is None
        }
        self._fleet = None if plan.managed is None else self._enrolled(plan.managed)
        followed = () if self._fleet is None else self._fleet.topics
        will = Status(False, _version(), 0, "connection lost", ())
        self._link = Link(
            plan.broker,
            client_id=f"{plan.fleet}-{plan.device}",
            subscriptions=(self._committed_topic, *self._tables, *followed),
            will=Will(status_topic(plan.fleet, plan.device), encode_status(will)),
            on_connected=lambda: self._later(self._connected),
            on_message=lambda topic, payload, _retained: self._delivered(topic, payload),
            on_published=lambda mid, accepted: self._later(lambda: self._sender.answered(mid, accepted)),
        )
        self._sender = Sender(self._outbox, self._link, plan.fleet, plan.device, forget_early=plan.forget == "puback")
        self._storage_error = ""
        self._status_due = 0.0
        self._last_status: Status | None = None
        self._connected_anew = True
        self.rejected = 0
        self.dropped = 0

    def _open(self, plan: StreamPlan, sensor: Sensor) -> Stream:
        """A stream, as far as the outbox knows it.

        Raises:
            OutboxError: its clock has changed, or the ticks of a window have.
        """
        last_tick = self._outbox.register(plan)
        released = [self._outbox.register_window(plan.stream, window) for window in plan.windows]
        return Stream(plan, sensor, self._entropy, last_tick, StreamWindows(plan.windows, released, self._entropy))

    def _enrolled(self, managed: Managed) -> FleetPolicy:
        from edge_agent.fleet_policy import FleetPolicy  # an agent with policies of its own does not need it

        plan = self._plan
        return FleetPolicy(plan.fleet, plan.device, managed, self._later, self._switch, self._offer_table)

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
        self._notifier.ready()
        try:
            while not self._stopping and not self._finished:
                self._notifier.alive(time.monotonic())
                self._tick_all()
                self._communicate()
                for stream in self._streams:
                    stream.windows.prepare(stream.next_tick)
                self._clock.wait(self._wake, self._pause())
            self._notifier.stopping()
            self._drain()
        finally:
            self._link.stop()
            self._outbox.close()

    @property
    def _finished(self) -> bool:
        """Whether every sensor has finished; a device that waits for its first policy has not."""
        return bool(self._streams) and all(stream.finished for stream in self._streams)

    def _later(self, event: Callable[[], None]) -> None:
        """Leave work for the loop; called in the network thread."""
        self._events.put(event)
        self._wake.set()

    def _delivered(self, topic: str, payload: bytes) -> None:
        """Keep a message for the loop, unless it is too large or too many wait; called in the network thread."""
        most = MAX_MESSAGE_BYTES if self._fleet is None else MAX_DOCUMENT_BYTES
        if len(payload) > most or self._events.qsize() >= MOST_WAITING:
            self.dropped += 1
            return
        self._later(lambda: self._arrived(topic, payload))

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
        if self._fleet is not None and self._fleet.silent(now / 1e6):
            stream.error = "the policy has expired"
            stream.next_tick = current + 1
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

    def _switch(self, plans: Sequence[StreamPlan], store: Callable[[], None]) -> None:
        """Put new plans in force between two ticks, once they are stored.

        A frame that was begun under the old plan stays what it is; ticks that have been drawn are never drawn again.

        Raises:
            OutboxError: a stream cannot go on under its new plan; nothing has changed.
            OSError: they could not be stored; nothing has changed.
        """
        before = {stream.plan.stream: stream for stream in self._streams}
        now = self._clock.now_us()
        streams = []
        for plan in plans:
            old = before.pop(plan.stream, None)
            sensor = self._sensors.get(plan.stream) or open_sensor(plan.sensor)
            self._sensors[plan.stream] = sensor
            stream = self._open(plan, sensor)
            reached = plan.tick_at(now) + 1 if old is None else old.next_tick
            stream.next_tick = max(stream.last_tick + 1, reached)
            streams.append(stream)
        store()
        for stream in before.values():
            self._outbox.close_frame(stream.plan)
        self._streams = streams

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
            until = time.monotonic() + EVENT_SECONDS
            while not self._events.empty() and time.monotonic() < until:
                self._events.get()()
            if self._link.connected:
                self._sender.pump()
                self._send_status()
        except sqlite3.Error as error:  # what was not forgotten or sent now will be, once there is room again
            self._storage_error = f"outbox: {error}"

    def _offer_table(self, name: str, payload: bytes) -> bool:
        """A table that the gateway has signed; whether it was taken."""
        stream = next((stream for stream in self._streams if stream.plan.stream == name), None)
        return stream is not None and stream.offer_table(payload)

    def _connected(self) -> None:
        """A (new) connection: what was in flight is sent again by paho-mqtt; tell the world that we are here."""
        self._sender.connected()
        self._last_status = None
        self._connected_anew = True

    def _arrived(self, topic: str, payload: bytes) -> None:
        """A message on one of the topics subscribed to."""
        if topic == self._committed_topic:
            self._committed(payload)
        elif self._fleet is not None:
            self._fleet.arrived(topic, payload)
        elif (stream := self._tables.get(topic)) is None or not stream.offer_table(payload):
            self.rejected += 1

    def _committed(self, payload: bytes) -> None:
        """The gateway has said what is durable."""
        try:
            self._sender.committed(decode_committed(payload))
        except FrameError:
            self.rejected += 1

    def _errors(self) -> str:
        of_streams = (problem for stream in self._streams for problem in (stream.error, stream.refusal))
        problems = [self._storage_error, self._link.last_error, *of_streams]
        return "; ".join(problem for problem in problems if problem)[:MAX_TEXT]

    def _status(self, *, online: bool) -> Status:
        streams = tuple(StreamStatus(s.plan.stream, s.plan.version, max(0, s.next_tick)) for s in self._streams)
        return Status(online, _version(), self._outbox.depth(), self._errors(), streams)

    def _send_status(self) -> None:
        """Publish the status at birth, when the error changes, and now and then."""
        if self._fleet is not None:
            self._fleet.maintain(time.monotonic())
            said = self._fleet.said(self._clock.now_us() / 1e6, self._connected_anew)
            if said is not None:
                self._link.publish(*said, retain=True)
            self._connected_anew = False
        changed = self._last_status is None or self._last_status.last_error != self._errors()
        if changed or time.monotonic() >= self._status_due:
            self._last_status = self._status(online=True)
            self._status_due = time.monotonic() + self._plan.status_seconds
            self._publish_status(self._last_status)

    def _publish_status(self, status: Status) -> None:
        self._link.publish(status_topic(self._plan.fleet, self._plan.device), encode_status(status), retain=True)

    def _drain(self) -> None:
        """Close the frames that are not full, and wait for the outbox to empty, but not for ever."""
        if self._fleet is not None:
            self._fleet.close()
        try:
            for stream in self._streams:
                self._outbox.close_frame(stream.plan)
            deadline = time.monotonic() + self._plan.drain_seconds
            while self._outbox.depth() and (left := deadline - time.monotonic()) > 0:
                self._notifier.alive(time.monotonic())
                self._communicate()
                self._wake.wait(min(left, RETRY_SECONDS))
            self._publish_status(self._status(online=False))
            if depth := self._outbox.depth():
                _log.warning("stopped with %d frames in the outbox; they will be sent after the next start", depth)
        except sqlite3.Error as error:
            _log.error("outbox: %s; what it holds will be sent after the next start", error)


def _version() -> str:
    return version("fugu-edge")
