"""The agent: its loop, and the messages that it sends and receives over MQTT.

One thread runs the loop. MQTT has a network thread, whose callbacks only queue events for the loop.
"""

from __future__ import annotations

import logging
import queue
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from edge_agent.describing import Describer
from edge_agent.device_clock import Anchor, DeviceClock, SystemClock
from edge_agent.local_control import LocalStatus, Pause
from edge_agent.outbox import Outbox, identifiers
from edge_agent.plan import AgentPlan
from edge_agent.randomiser import Entropy
from edge_agent.sender import Sender
from edge_agent.sensors.source import Sensor
from edge_agent.stored_frames import Keeping
from edge_agent.ticker import Ticker
from fugu.contract.errors import FrameError, StatusCode
from fugu.contract.frames import Committed, Status, StreamStatus
from fugu.contract.topics import topic_of
from fugu.host.process import NOTICES, Notifier, Wake, first_share
from fugu.mqtt import Link, Will

if TYPE_CHECKING:
    from edge_agent.fleet_policy import FleetPolicy
    from edge_agent.shares import Helpers

__all__ = ["Agent"]


_log = logging.getLogger(__name__)
RETRY_SECONDS = 0.2
EVENT_SECONDS = 0.1
"""Longest time for arrived messages in a round of the loop, so that a flood of messages delays no tick."""
MAX_MESSAGE_BYTES = 1 << 19
MAX_DOCUMENT_BYTES = 1 << 21
MOST_WAITING = 64
MOST_WAITING_BYTES = 4 * MAX_DOCUMENT_BYTES


class Agent:
    """One device. `sensors` has a sensor for each stream of the plan; `refused` counts useless messages by reason."""

    def __init__(
        self,
        plan: AgentPlan,
        sensors: Sequence[Sensor],
        entropy: Entropy,
        clock: SystemClock | None = None,
        notifier: Notifier | None = None,
    ) -> None:
        self._plan = plan
        self._clock = clock or SystemClock()
        self._notifier = notifier or Notifier()
        retention = Keeping(plan.durability == "tick", plan.max_bytes, plan.when_full == "drop-oldest")
        self._outbox = Outbox(plan.outbox, plan.fleet, plan.device, retention)
        if plan.binding != "off":
            self._outbox.bind(identifiers(plan.binding))
        self._pause, self._is_paused = Pause(plan.outbox), False
        self._device_clock = DeviceClock(self._clock, plan.clock, self._outbox.anchor(), self._keep_anchor)
        self._wake = Wake()
        self._events: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._helpers: Helpers | None = None
        if plan.groups:
            from edge_agent.shares import Helpers  # only a device that has joined a group needs it

            self._helpers = Helpers(self._outbox, plan.fleet, plan.device, self._queue_event)
        self._opening_keys = {topic_of("group_key", plan.fleet, group): group for group in plan.groups}
        self._ticker = Ticker(self._outbox, self._device_clock, entropy, self._silence_code, self._helpers)
        self._ticker.begin(plan.streams, sensors)
        self._committed_topic = topic_of("committed", plan.fleet, plan.device)
        self._tables = {
            topic_of("table", plan.fleet, plan.device, stream.plan.stream): stream
            for stream in self._ticker.streams
            if stream.mechanism.offer is not None and plan.managed is None
        }
        self._signed_time = 0 if plan.managed is None else plan.managed.trusted.time
        self._fleet: FleetPolicy | None = None
        if plan.managed is not None:
            from edge_agent.fleet_policy import FleetPolicy  # an agent with policies of its own does not need it

            fleet_arguments = plan.fleet, plan.device, plan.managed, self._queue_event, self._ticker.switch
            self._fleet = FleetPolicy(*fleet_arguments, self._offer_table, self._now, self._clock.known_synchronised)
        policy_topics = () if self._fleet is None else self._fleet.topics
        self._status_topic = topic_of("status", plan.fleet, plan.device)
        will = Status(False, plan.program, 0, (StatusCode.CONNECTION_LOST,), ())
        self._link = Link(
            plan.broker,
            client_id=f"{plan.fleet}-{plan.device}",
            subscriptions=(self._committed_topic, *self._tables, *self._opening_keys, *policy_topics),
            will=Will(self._status_topic, will.encode()),
            max_payload=MAX_MESSAGE_BYTES if self._fleet is None else MAX_DOCUMENT_BYTES,
            on_connected=lambda: self._queue_event(self._on_connected),
            on_message=lambda topic, payload, _retained: self._queue_message(topic, payload),
            on_published=self._on_published,
            on_absent=self._log_cut_off,
        )
        watermark_key = None if plan.managed is None or plan.managed.key is None else bytes.fromhex(plan.managed.key)
        self._sender = Sender(self._outbox, self._link, plan, watermark_key)
        self._status_due = 0.0
        self._last_status: Status | None = None
        self._is_reconnected = True
        self._describing = Describer(plan.config, plan.descriptions, self._outbox, self._queue_event)
        self._is_cut_off = self._was_greeted = False
        self._local_status = LocalStatus(plan.outbox)
        self._bytes_delivered = self._bytes_taken = 0  # each is written by one thread
        self.refused = Counter(too_many=0)  # the network thread changes this count, and adds no other key

    def _now(self) -> float:
        return self._device_clock.now_us() / 1e6

    def _keep_anchor(self, anchor: Anchor) -> None:
        with self._ticker.noting_failures():
            self._outbox.keep_anchor(anchor)

    def _silence_code(self, seconds: float) -> StatusCode | None:
        if self._is_paused:
            return StatusCode.PAUSED
        return None if self._fleet is None else self._fleet.silence_code(seconds)

    def _follow_pause(self) -> None:
        """Begin or end a pause as its file says. A pause that begins closes the open frames."""
        is_paused = self._pause.holds(min(self._clock.now_us() / 1e6, self._now()))  # setting the clock ends no pause
        if is_paused == self._is_paused:
            return
        _log.warning("paused: no sensor is read, and nothing is drawn" if is_paused else "not paused any more")
        self._is_paused = is_paused
        if not is_paused:
            self._ticker.forget_readings()
            return
        with self._ticker.noting_failures():
            self._ticker.close_frames()

    def stop(self) -> None:
        """Ask the loop to drain and end; a signal handler or another thread may call this."""
        self._ticker.stopping = True
        self._wake.set()

    def run(self) -> None:
        """Run until `stop` or until every sensor has ended, then drain. Raises LinkError for unreadable credentials."""
        self._link.start()
        self._notifier.ready()
        is_drained = False
        try:
            while not self._ticker.is_over:
                self._notifier.alive(time.monotonic())
                if self._fleet is not None and self._fleet.trusted.time > self._signed_time:
                    self._signed_time = self._fleet.trusted.time  # a newer signed time can confirm the device's clock
                    self._device_clock.follow(self._signed_time)
                self._follow_pause()
                self._ticker.catch_up()
                self._communicate()
                self._ticker.prepare()
                is_busy = self._ticker.judge() or not self._events.empty()
                self._clock.wait(self._wake, 0.0 if is_busy else self._ticker.seconds_to_tick())
            self._notifier.stopping()
            is_drained = self._drain()
        finally:
            self._link.stop(in_order=is_drained)
            self._ticker.sensors.close()
            self._local_status.close()
            self._outbox.close()

    def _queue_event(self, event: Callable[[], None]) -> None:
        """Queue work for the loop; called in the network thread."""
        self._events.put(event)
        self._wake.set()

    def _on_published(self, mid: int, accepted: bool) -> None:
        client = self._link.client_count
        self._queue_event(lambda: self._sender.take_answer(client, mid, accepted))

    def _queue_message(self, topic: str, payload: bytes) -> None:
        """Queue a message for the loop, unless too many messages wait; called in the network thread."""
        waiting_bytes = self._bytes_delivered - self._bytes_taken
        if waiting_bytes + len(payload) > MOST_WAITING_BYTES or self._events.qsize() >= MOST_WAITING:
            self.refused["too_many"] += 1
            return
        self._bytes_delivered += len(payload)
        self._queue_event(lambda: self._take_message(topic, payload))

    # MQTT

    def _communicate(self) -> None:
        self._link.maintain()
        self._watch_broker()
        try:
            deadline = time.monotonic() + EVENT_SECONDS
            while not self._events.empty() and time.monotonic() < deadline:
                self._events.get()()
            if self._link.connected:
                self._sender.pump()
                self._send_status()
                self._describing.pump([stream.plan for stream in self._ticker.streams], self._publish_description)
        except sqlite3.Error as error:  # frames that were not sent or forgotten now will be, once there is room again
            self._ticker.storage_failed(error)
        self._local_status.answer(self._status_document)

    def _watch_broker(self) -> None:
        """Log once when the broker cannot be reached, and when it is back."""
        broker = self._plan.broker
        if self._link.connected:
            if self._is_cut_off:
                _log.warning("broker %s:%d: connected again", broker.host, broker.port)
            self._is_cut_off = False
        elif self._link.last_error:
            self._log_cut_off(self._link.last_error)

    def _log_cut_off(self, reason: str) -> None:
        broker = self._plan.broker
        if not self._is_cut_off:
            _log.warning("broker %s:%d: %s; frames wait in the outbox", broker.host, broker.port, reason)
        self._is_cut_off = True

    def _offer_table(self, stream_name: str, payload: bytes) -> bool:
        stream = next((stream for stream in self._ticker.streams if stream.plan.stream == stream_name), None)
        return stream is not None and stream.offer_table(payload)

    def _on_connected(self) -> None:
        """Make status and descriptions due again; the link re-sends publications that were in flight."""
        self._sender.note_connection()
        if not self._was_greeted:
            self._was_greeted = True
            NOTICES.info("connected; %s", self._first_share_words())
        self._last_status = None
        self._is_reconnected = True
        self._describing.make_due()

    def _first_share_words(self) -> str:
        """Say when the first window or frame leaves, from the policies and the clock alone."""
        if not self._ticker.streams:
            return "there is no policy yet"
        if not self._device_clock.anchors:
            return "the first share comes once the clock is set"
        now_us = self._device_clock.now_us()
        departures = (stream.first_share_us(now_us) for stream in self._ticker.streams)
        return first_share([departure_us for departure_us in departures if departure_us is not None], now_us)

    def _take_message(self, topic: str, payload: bytes) -> None:
        self._bytes_taken += len(payload)
        if topic == self._committed_topic:
            try:
                is_accepted = self._sender.take_watermark(Committed.decode(payload))
            except FrameError as error:
                self.refused[error.reason] += 1
                return
            if not is_accepted:
                if not self.refused["watermark"]:
                    _log.warning(
                        "a watermark is not the gateway's, or is an old one: nothing is forgotten because of it. If "
                        "frames pile up, the gateway's registry has another key for this device: enrol it anew"
                    )
                self.refused["watermark"] += 1
        elif self._helpers is not None and (group := self._opening_keys.get(topic)) is not None:
            self.refused["opening_key"] += not self._helpers.take_key(group, payload)
        elif self._fleet is not None:
            self._fleet.take_document(topic, payload)
        elif (stream := self._tables.get(topic)) is None or not stream.offer_table(payload):
            self.refused["table"] += 1

    def _trouble_codes(self) -> tuple[StatusCode, ...]:
        """Return the codes of all troubles, with pauses and refused tables; none may depend on a reading."""
        codes: set[str | None] = {self._ticker.storage_trouble, *(stream.trouble for stream in self._ticker.streams)}
        if self._link.last_error:
            codes.add(StatusCode.LINK)
        if self._is_paused:
            codes.add(StatusCode.PAUSED)
        if self._device_clock.is_uncertain:
            codes.add(StatusCode.CLOCK)
        if self._fleet is not None and self._fleet.is_gateway_ahead(self._now()):
            codes.add(StatusCode.GATEWAY_CLOCK)
        if any(stream.refusal for stream in self._ticker.streams):
            codes.add(StatusCode.TABLE_REFUSED)
        return tuple(code for code in StatusCode if code in codes)

    def _status(self, *, online: bool) -> Status:
        streams = tuple(StreamStatus(s.plan.stream, s.plan.version, max(0, s.next_tick)) for s in self._ticker.streams)
        return Status(online, self._plan.program, self._outbox.frames.depth(), self._trouble_codes(), streams)

    def _send_status(self) -> None:
        """Publish the status after a connection, when the codes change, and every `status_seconds`."""
        if self._fleet is not None:
            self._fleet.maintain(time.monotonic())
            if (message := self._fleet.next_status(self._now(), self._is_reconnected)) is not None:
                self._link.publish(*message, retain=True)
            self._is_reconnected = False
        is_changed = self._last_status is None or self._last_status.codes != self._trouble_codes()
        if is_changed or time.monotonic() >= self._status_due:
            self._status_due = time.monotonic() + self._plan.status_seconds
            self._publish_status(online=True)

    def _publish_description(self, stream: str, text: str) -> bool:
        topic = topic_of("description", self._plan.fleet, self._plan.device, stream)
        return self._link.publish(topic, text.encode(), retain=True) is not None

    def _status_document(self) -> dict[str, Any]:
        return {
            "device": f"{self._plan.fleet}/{self._plan.device}",
            "connected": self._link.connected,
            "outbox_depth": self._outbox.frames.depth(),
            "outbox_bytes": self._outbox.frames.used_bytes(),
            "max_bytes": self._plan.max_bytes,
            "not_drawn": self._ticker.not_drawn,
            "dropped": self._outbox.frames.dropped,
            "codes": self._trouble_codes(),
            "refused": self.refused + (Counter() if self._fleet is None else self._fleet.refused),
            "streams": [
                {
                    "stream": stream.plan.stream,
                    "policy_version": stream.plan.version,
                    "drawn": self._outbox.drawn_document(stream.plan),
                    "next_tick": stream.next_tick,
                    "ticks": stream.ticks,
                    "silent": stream.silent_ticks,
                    "unusable": stream.discretiser.unusable,
                    "sensor": stream.sensor.trouble,
                    "watch": stream.watch.sentence() if stream.watch else "",
                    "own_epsilon": stream.watch.own_epsilon if stream.watch else None,
                }
                for stream in self._ticker.streams
            ],
        }

    def _publish_status(self, *, online: bool) -> None:
        self._last_status = self._status(online=online)
        self._link.publish(self._status_topic, self._last_status.encode(), retain=True)

    def _drain(self) -> bool:
        """Close all frames, and wait until the outbox is empty, at most `drain_seconds`. False if the outbox failed."""
        if self._fleet is not None:
            self._fleet.close()
        self._describing.close()
        try:
            self._ticker.finish()
            deadline = time.monotonic() + self._plan.drain_seconds
            while self._outbox.frames.depth() and (seconds_left := deadline - time.monotonic()) > 0:
                self._notifier.alive(time.monotonic())
                self._communicate()
                self._wake.wait(min(seconds_left, RETRY_SECONDS))
            self._publish_status(online=False)
            if depth := self._outbox.frames.depth():
                _log.warning("stopped with %d frames in the outbox; they will be sent after the next start", depth)
        except sqlite3.Error as error:
            _log.error("outbox: %s; what it holds will be sent after the next start", error)
            return False
        return True
