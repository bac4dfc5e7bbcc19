"""The way from a delivered message to a validated frame, or to a reason of refusal; no message stops the gateway."""

from __future__ import annotations

import logging
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from threading import Condition
from typing import Any, NamedTuple

import numpy as np

from fugu.contract.errors import FuguError, Reason, RefusedError, StatusCode
from fugu.contract.frames import MAX_FRAME_TICKS, MAX_STREAMS, MAX_TICK, Status, StreamStatus, SymbolFrame
from fugu.contract.measure_frames import MAX_MEASURE_TICKS, AnyFrame, MeasureFrame, Released
from gateway.estimates.beliefs import SymbolModel
from gateway.estimates.catalogue import Catalogue
from gateway.estimates.kinds import Kind, Windows
from gateway.estimates.symbols import Symbols
from gateway.parts import Message
from gateway.store.journal import Arrivals, ReceivedFrame, Streams, newest_tick, parse, tick_at, time_us
from gateway.store.symbols import Columns

__all__ = ["Acknowledged", "Inbox", "Ingest", "Usage"]


_log = logging.getLogger(__name__)
_REPEAT_SECONDS = 60.0
_LEAST_MESSAGES, _LEAST_BYTES = 64, 1 << 19
"""Messages and bytes of a device that may always wait, if the inbox has room at all."""
_AT_ONCE, _SECONDS = 256, 0.02
"""Most messages of a device in a round, and most seconds for them."""
_OVERHEAD_BYTES = 200
"""Bytes of a message in memory beside its topic and payload."""


class Acknowledged(NamedTuple):
    """The broker's answer to a message that the gateway published; a message that is not accepted reaches nobody."""

    message_id: int
    accepted: bool = True


_Event = Message | Acknowledged | None
"""`None`: there is a new connection."""


class Inbox:
    """Queues of messages, one for each device; no device takes the room or the time of the others.

    A device's queue may be as long as the room that is left for all. Further messages are refused at once, and the
    device sends them again. Such a device has few turns until its queue is empty: otherwise messages of other devices
    would wait in the broker behind its own. If many devices use up the room, the network thread waits, and the broker
    keeps the other messages. Devices take turns. The broker's answers come before all messages: frames ahead of them
    would keep the gateway from publishing.

    A message that is too large for its topic is only counted. All unknown names share one queue. A device whose
    messages take long has fewer of them in a round.

    Args:
        capacity: most messages.
        capacity_bytes: most bytes of messages in memory; the last message may exceed them.
        patience_seconds: the time to wait for room; then the message and all after it are refused.
        pause_seconds: the time between the turns of a device that has sent more than its share.
        knows: whether a name is a device's or reserved; any thread may call it.
    """

    def __init__(
        self,
        capacity: int,
        capacity_bytes: int,
        patience_seconds: float,
        pause_seconds: float = 0.25,
        knows: Callable[[str], bool] = lambda _name: True,
    ) -> None:
        self._capacity = capacity
        self._capacity_bytes = capacity_bytes
        self._patience_seconds = patience_seconds
        self._pause_seconds = pause_seconds
        self._knows = knows
        self._costs: dict[str, float] = {}
        """Seconds of a message, by the devices whose messages take long."""
        self._served: Counter[str] = Counter()
        self._count = self._bytes = 0
        self._oversized: Counter[str] = Counter()
        self._flood_counts: Counter[str] = Counter()
        self._answers: deque[Acknowledged | None] = deque()
        self._queues: dict[str, deque[tuple[Message, int]]] = {}
        """Waiting messages by device, and the bytes of each in memory."""
        self._slow_devices: set[str] = set()
        self._sizes: Counter[str] = Counter()
        self._slow_due = 0.0
        self._changed = Condition()
        self._closed = False

    def deliver(self, messages: Sequence[Message]) -> int:
        """Append messages. Return how many were refused: the inbox was closed or full, or a device's share used up."""
        refused_count = 0
        with self._changed:
            for index, message in enumerate(messages):
                device = self.sender(message.topic)
                if is_oversized(message):
                    self._oversized[device] += 1
                    continue
                size = len(message.topic) + len(message.payload) + _OVERHEAD_BYTES
                if device in self._queues and self._exceeds_share(device):
                    self._flood_counts[device] += 1
                    refused_count += 1
                    self._slow_devices.add(device)
                    continue
                if self._closed or not self._accepts:
                    self._changed.notify_all()
                    accepts = self._changed.wait_for(lambda: self._closed or self._accepts, self._patience_seconds)
                    if self._closed or not accepts:
                        return refused_count + len(messages) - index
                self._queues.setdefault(device, deque()).append((message, size))
                self._sizes[device] += size
                self._count += 1
                self._bytes += size
            self._changed.notify_all()
            return refused_count

    def sender(self, topic: str) -> str:
        """Return the device's name in a topic; '' if the name is unknown or missing."""
        device = "".join(topic.split("/", 4)[3:4])
        return device if self._knows(device) else ""

    def note_costs(self, seconds: Mapping[str, float]) -> None:
        """Note each device's seconds of a round, which limit the number of its messages in later rounds."""
        for device, message_count in self._served.items():
            cost = max(seconds.get(device, 0.0) / message_count, self._costs.pop(device, 0.0) / 2)
            if cost * _AT_ONCE > _SECONDS:
                self._costs[device] = cost
        self._served.clear()

    def _exceeds_share(self, device: str) -> bool:
        max_messages = max(self._capacity - self._count, _LEAST_MESSAGES)
        max_bytes = max(self._capacity_bytes - self._bytes, _LEAST_BYTES)
        return len(self._queues[device]) >= max_messages or self._sizes[device] >= max_bytes

    def notify(self, event: Acknowledged | None) -> None:
        """Append an answer, or `None` for a new connection, even if the inbox is full or closed."""
        with self._changed:
            self._answers.append(event)
            self._changed.notify_all()

    def take(self, max_messages: int, timeout: float) -> list[_Event]:
        """Remove and return all answers, and the oldest messages of each device, `max_messages` at most in all.

        Waits for the first answer or message, up to `timeout` seconds, unless the inbox is closed. A device has only so
        many messages that the round stays short.
        """
        with self._changed:
            if self._slow_devices:
                timeout = min(timeout, max(self._slow_due - time.monotonic(), 0.0))
            self._changed.wait_for(lambda: self._is_ready or self._closed, timeout=timeout)
            return self._take(max_messages)

    def take_after_close(self, timeout: float) -> list[_Event]:
        """Remove and return all answers and messages. Wait up to `timeout` seconds for the first, although closed."""
        with self._changed:
            self._changed.wait_for(lambda: self.waiting > 0, timeout=timeout)
            return self._take(self._count, self._count)

    def _take(self, max_messages: int, per_device: int = _AT_ONCE) -> list[_Event]:
        events: list[_Event] = [*self._answers]
        self._answers.clear()
        shares = {device: per_device for device in self._queues if device not in self._slow_devices}
        if self._slow_devices and (self._slow_due <= (now := time.monotonic()) or self._closed):
            self._slow_due = now + self._pause_seconds
            shares |= {device: per_device for device in self._queues if device in self._slow_devices}
        for device in self._costs.keys() & shares.keys() if per_device == _AT_ONCE else ():
            shares[device] = max(1, int(_SECONDS / self._costs[device]))
        self._served.clear()
        while max_messages and shares:
            share = max(max_messages // len(shares), 1)
            for device in [*shares][:max_messages]:
                queue = self._queues.pop(device)
                device_batch = [queue.popleft() for _ in range(min(share, shares[device], len(queue)))]
                self._served[device] += len(device_batch)
                batch_size = sum(batch_size for _, batch_size in device_batch)
                self._sizes[device] -= batch_size
                self._bytes -= batch_size
                self._count -= len(device_batch)
                max_messages -= len(device_batch)
                shares[device] -= len(device_batch)
                events += [message for message, _ in device_batch]
                if queue:
                    self._queues[device] = queue  # behind the others
                else:
                    del self._sizes[device]
                    self._slow_devices.discard(device)
                if not (queue and shares[device]):
                    del shares[device]
        if self._accepts:
            self._changed.notify_all()
        return events

    def take_refused(self) -> tuple[Counter[str], Counter[str]]:
        """Return two counts of messages by device since the last call: too large, and beyond the device's share."""
        with self._changed:
            refused_counts = self._oversized, self._flood_counts
            self._oversized, self._flood_counts = Counter(), Counter()
            return refused_counts

    def close(self) -> None:
        """Refuse all further messages."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    @property
    def waiting(self) -> int:
        """The number of waiting answers and messages."""
        return len(self._answers) + self._count

    @property
    def drained(self) -> bool:
        """True if the inbox is closed and empty."""
        with self._changed:
            return self._closed and not self.waiting

    @property
    def _is_ready(self) -> bool:
        has_turn = len(self._queues) > len(self._slow_devices) or self._slow_due <= time.monotonic()
        return bool(self._answers or (self._queues and has_turn))

    @property
    def _accepts(self) -> bool:
        return self._count < self._capacity and self._bytes < self._capacity_bytes


MAX_PAYLOAD_BYTES = len(SymbolFrame(1, -1, 0, bytes(MAX_FRAME_TICKS), bits=8).encode())
"""The largest symbol frame; window counts, answers to documents and all other messages are smaller."""
_LONGEST_STREAMS = (StreamStatus("s" * 64, 2**32 - 1, MAX_TICK),) * MAX_STREAMS
MAX_STATUS_BYTES = len(Status(True, "v" * 64, MAX_TICK, tuple(StatusCode), _LONGEST_STREAMS).encode())
"""The largest status."""
MAX_POINTS_BYTES = len(MeasureFrame(1, -1, 0, 3, (Released(0, (0, 0, 0)),) * MAX_MEASURE_TICKS).encode())
"""The largest frame of points, and the largest message of all."""
_POINTS = bytes([MeasureFrame.SCHEMA])
MAX_REPORT_BYTES = 1 << 12
"""More than the bytes of the largest report for a sum of homes, with a name of 64 letters and 24 numbers."""
MAX_ANSWER_BYTES = 1 << 14
"""More than the bytes of a helper's largest answer, about a set of 65,536 reports."""
_MAX_TOPIC = 256
"""Most letters of a topic, which has up to three names of 64 letters."""


def is_oversized(message: Message) -> bool:
    """Return whether a message is larger than any valid message on its topic."""
    payload_bytes = len(message.payload)
    if payload_bytes <= MAX_PAYLOAD_BYTES:
        return len(message.topic) > _MAX_TOPIC
    if message.payload[:1] == _POINTS:
        return payload_bytes > MAX_POINTS_BYTES
    topic_levels = message.topic.split("/", 5)
    if topic_levels[3:4] == ["group"]:
        return payload_bytes > MAX_ANSWER_BYTES
    if topic_levels[4:5] == ["report"]:
        return payload_bytes > MAX_REPORT_BYTES
    return payload_bytes > MAX_STATUS_BYTES or topic_levels[4:] != ["status"]


@dataclass
class DeviceUse:
    """Use of the worker by device: seconds, messages without a frame, and frames of ticks that had come before."""

    seconds: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    frameless: Counter[str] = field(default_factory=Counter)
    repeats: Counter[str] = field(default_factory=Counter)


@dataclass
class Usage:
    """Each device's use of the worker, since the last `take` in `now`.

    Messages without a frame are statuses, answers and refused messages. The check of frames as arrays is not counted.
    """

    _sender: Callable[[str], str] = lambda _topic: ""
    now: DeviceUse = field(default_factory=DeviceUse)

    def add(self, topic: str, seconds: float, *, frameless: bool) -> None:
        """Note the seconds that a message on a topic took, and whether it was `frameless`."""
        sender = self._sender(topic)
        self.now.seconds[sender] += seconds
        if frameless:
            self.now.frameless[sender] += 1

    def take(self) -> DeviceUse:
        """Return the use since the last call."""
        usage, self.now = self.now, DeviceUse()
        return usage


class Ingest:
    """The check of messages against the contract, the policies and the time.

    `on_refused` is called with topic and reason of each refused message. `streams` receives the streams of symbols.
    `usage` counts the messages that are read one by one.
    """

    def __init__(
        self,
        catalogue: Catalogue,
        counters: Counter[str],
        now_us: Callable[[], int] = time_us,
        on_refused: Callable[[str, Reason], None] = lambda _topic, _reason: None,
        streams: Streams | None = None,
        usage: Usage | None = None,
    ) -> None:
        self._catalogue = catalogue
        self._counters = counters
        self._now_us = now_us
        self._refused = on_refused
        self._streams = Streams() if streams is None else streams
        self._usage = Usage() if usage is None else usage
        self._last_warning = float("-inf")

    def take(self, messages: Sequence[Message]) -> tuple[Arrivals, list[str]]:
        """Check messages. Return the frames to store, and the device of each online status.

        On topics that have brought frames of symbols before, frames are parsed and checked as arrays. All other
        messages, and frames that fail this check, are read one by one. A wrong message is refused with its reason.
        """
        slots = np.array([self._streams.topics.get(message.topic, -1) for message in messages], dtype=np.int64)
        symbol_candidates = np.flatnonzero(slots >= 0)
        columns, is_frame = parse([messages[row].payload for row in symbol_candidates.tolist()])
        is_passed = self._streams.valid_rows(slots[symbol_candidates], columns, is_frame, self._now_us())
        self._counters["received"] += int(is_passed.sum())
        fast_rows = symbol_candidates[is_passed]
        columns = columns.take(np.flatnonzero(is_passed))
        if len(fast_rows) == len(messages):
            return Arrivals(slots, columns, []), []
        is_slow = np.ones(len(messages), dtype=np.bool_)
        is_slow[fast_rows] = False
        symbol_rows, received_frames, born_devices = [], [], []
        for row in np.flatnonzero(is_slow).tolist():
            start_time = time.perf_counter()
            content = self.read(messages[row])
            seconds = time.perf_counter() - start_time
            self._usage.add(messages[row].topic, seconds, frameless=not isinstance(content, ReceivedFrame))
            if isinstance(content, ReceivedFrame):
                received_frames.append(content)
                if isinstance(content.frame, SymbolFrame):
                    symbol_rows.append(row)
            elif isinstance(content, str):
                born_devices.append(content)
        slow_arrivals = Arrivals.of(self._streams, received_frames)
        message_order = np.argsort(np.concatenate((fast_rows, np.array(symbol_rows, dtype=np.int64))))
        symbols = Columns.joined((columns, slow_arrivals.symbols)).take(message_order)
        symbol_slots = np.concatenate((slots[fast_rows], slow_arrivals.slots))[message_order]
        return Arrivals(symbol_slots, symbols, slow_arrivals.other_frames), born_devices

    def read(self, message: Message) -> ReceivedFrame | str | None:
        """Return a message's frame, or the device of an online status; `None` for other and for refused messages."""
        self._counters["received"] += 1
        try:
            return self._read(message)
        except FuguError as error:
            self._counters[error.reason] += 1
            self._refused(message.topic, error.reason)
        except Exception:  # an unexpected error must not stop the gateway, and its text may hold payload: no log
            self._counters[Reason.UNEXPECTED] += 1
        return None

    def _read(self, message: Message) -> ReceivedFrame | str | None:
        if is_oversized(message):
            raise RefusedError(f"payload of {len(message.payload)} bytes", Reason.OVERSIZED)
        parsed, payload = message.parsed, message.payload
        if parsed.fleet != self._catalogue.fleet:
            raise RefusedError(f"message of fleet {parsed.fleet}", Reason.WRONG_FLEET)
        if parsed.kind == "status":
            if not self._catalogue.streams(parsed.device):
                raise RefusedError(f"no policy for device {parsed.device}", Reason.UNKNOWN_DEVICE)
            return parsed.device if message.decode(Status).online else None
        if (frame_kind := _frame_kind(parsed.kind, payload)) is None:
            return None
        frame = frame_kind.decode(payload)
        frame_kind.verify(self._catalogue, parsed.device, parsed.stream, frame)
        self._refuse_future(parsed.device, parsed.stream, frame)
        if isinstance(frame, SymbolFrame):
            self._follow_stream(message.topic, parsed.device, parsed.stream, frame.policy_version)
        return ReceivedFrame(parsed.device, parsed.stream, frame)

    def _follow_stream(self, topic: str, device: str, stream: str, version: int) -> None:
        """Let `take` check further frames of a stream and version as arrays."""
        model = self._catalogue.find(device, stream, version, SymbolModel)
        slot = self._streams.slot(device, stream)
        self._streams.follow(topic, slot, version, len(model.allowed_symbols), model.policy.clock)

    def _refuse_future(self, device: str, stream: str, frame: AnyFrame) -> None:
        """Refuse a frame of future ticks, and log a warning, because this machine's clock may be wrong."""
        clock, now = self._catalogue.policy(device, stream, frame.policy_version).clock, self._now_us()
        if (last_tick := frame.last - frame.shift) <= newest_tick(clock, now):
            return
        if time.monotonic() - self._last_warning >= _REPEAT_SECONDS:
            self._last_warning = time.monotonic()
            lead_s = (last_tick - tick_at(clock, now)) * clock.period_us // 1_000_000
            _log.warning(
                "a frame of %s/%s is refused: it ends %d s after this machine's clock, which says %s. Set the clock if "
                "it is wrong: devices keep what is refused, and send it again",
                *(device, stream, lead_s, datetime.fromtimestamp(now / 1e6, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")),
            )
        raise RefusedError("the frame is of ticks that have not come yet", Reason.FROM_THE_FUTURE)


def _frame_kind(topic_kind: str, payload: bytes) -> type[Kind[Any]] | None:
    """Return the kind of a topic's frames, or `None`. Topics of symbols also carry points."""
    if topic_kind == "window":
        return Windows
    if topic_kind == "symbols":
        if payload[:1] != _POINTS:
            return Symbols
        from gateway.estimates.points import Points

        return Points
    return None
