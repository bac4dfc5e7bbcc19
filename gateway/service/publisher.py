"""What the gateway says: watermarks to devices, estimates to whoever listens.

Both have a share of what may be under way, so that neither holds up the other. Estimates wait in the store's outbox
until the broker has acknowledged them, so that neither a crash nor a broken connection loses the newest one; a
watermark is said again whenever its device gives a sign of life.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace

from contract.frames import encode_committed
from contract.topics import committed_topic, estimate_topic
from contract.watermark import sign_committed
from gateway.service.recorder import Recorder
from gateway.service.store import Outgoing, Store
from gateway.service.waiting import Waiting
from gateway.service.watermark_counter import WatermarkCounter
from mqtt_link import Link

__all__ = ["Publisher"]

MAX_IN_FLIGHT = 200
"""Watermarks that the broker has not acknowledged, at most; and as many messages of estimates."""
_READ = 1_000
_FORGET_EVERY = 500


@dataclass
class _Sending:
    """An entry of the outbox on its way, in so many messages that are not acknowledged yet."""

    serial: int
    left: int


class Publisher:
    """Publishes as much as the connection takes, and remembers the rest.

    Args:
        key: the key that a device knows its watermarks by, none if it has none; none if nobody has one.
        counters: counts `committed`, `estimates` (messages), and `coalesced` (frames whose estimates are not published,
            because too many newer ones of their stream waited).
    """

    def __init__(
        self,
        link: Link,
        fleet: str,
        store: Store,
        recorder: Recorder,
        counters: Counter[str],
        *,
        key: Callable[[str], bytes | None] | None = None,
    ) -> None:
        self._link = link
        self._fleet = fleet
        self._store = store
        self._recorder = recorder
        self._counters = counters
        self._owed: dict[str, None] = {}
        self._watermarks: set[int] = set()
        self._estimates: dict[int, _Sending] = {}
        self._waiting = Waiting()
        self._read_through = 0
        self._done: list[int] = []
        self._counter = WatermarkCounter(store)
        self._key = key

    def owe(self, device: str) -> None:
        """Publish the device's watermark at the next opportunity."""
        self._owed[device] = None

    def acknowledged(self, message_id: int) -> None:
        """The broker has a message."""
        self._watermarks.discard(message_id)
        if (sending := self._estimates.pop(message_id, None)) is not None:
            sending.left -= 1
            if sending.left == 0:
                self._done.append(sending.serial)

    def begin_anew(self) -> None:
        """What was under way will never be answered: estimates are published again, watermarks when they are owed."""
        self._watermarks.clear()
        self._estimates.clear()
        self._waiting = Waiting()
        self._read_through = 0

    def pump(self, *, idle: bool) -> None:
        """Publish what there is room for; when there is nothing else to do, also tidy the outbox.

        Raises:
            sqlite3.Error: if the store cannot be used; nothing is lost then.
        """
        self._say_watermarks()
        self._say_estimates()
        if self._done and (idle or len(self._done) >= _FORGET_EVERY):
            self._store.forget_outgoing(self._done)
            self._done.clear()

    @property
    def finished(self) -> bool:
        """Whether nothing is owed or under way."""
        return not (self._owed or self._watermarks or self._estimates or self._done)

    def _say_watermarks(self) -> None:
        if self._owed and self._link.connected:
            self._store.check()  # what has gone with its file is not durable, whatever was remembered of it
        while self._owed and self._link.connected and len(self._watermarks) < MAX_IN_FLIGHT:
            device = next(iter(self._owed))
            for message in self._recorder.committed(device):
                said = replace(message, counter=self._counter.next())
                if self._key is not None and (key := self._key(device)) is not None:
                    said = sign_committed(key, self._fleet, device, said)
                topic = committed_topic(self._fleet, device)
                if (message_id := self._link.publish(topic, encode_committed(said))) is None:
                    return
                self._watermarks.add(message_id)
                self._counters["committed"] += 1
            del self._owed[device]

    def _say_estimates(self) -> None:
        while new := self._store.outbox(self._read_through, _READ):
            for outgoing in new:
                if (left_out := self._waiting.put(outgoing)) is not None:
                    self._done.append(left_out)
                    self._counters["coalesced"] += 1
            self._read_through = new[-1].serial
        if not self._link.connected:
            return
        taken = self._waiting.take(max(MAX_IN_FLIGHT - len(self._estimates), 0))
        sent = 0
        try:
            while sent < len(taken) and self._send(taken[sent]):
                sent += 1
        finally:
            for unsent in taken[sent:]:
                self._waiting.put(unsent)

    def _send(self, outgoing: Outgoing) -> bool:
        messages = list(self._recorder.estimates(outgoing))
        if not messages:
            self._done.append(outgoing.serial)
        sending = _Sending(outgoing.serial, len(messages))
        topic = estimate_topic(self._fleet, outgoing.device, outgoing.stream)
        for message in messages:
            if (message_id := self._link.publish(topic, message)) is None:
                return False
            self._estimates[message_id] = sending
            self._counters["estimates"] += 1
        return True
