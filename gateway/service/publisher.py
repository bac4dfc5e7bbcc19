"""What the gateway says: watermarks to devices, estimates to whoever listens.

Estimates wait in the store's outbox until the broker has acknowledged them, so that neither a crash nor a broken
connection loses one; a watermark is said again whenever its device gives a sign of life.
"""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, replace

from contract.frames import encode_committed
from contract.topics import committed_topic, estimate_topic
from gateway.service.recorder import Recorder
from gateway.service.store import Outgoing, Store
from mqtt_link import Link

__all__ = ["Publisher"]

MAX_IN_FLIGHT = 400
_FORGET_EVERY = 500


@dataclass
class _Sending:
    """An entry of the outbox on its way, in so many messages that are not acknowledged yet."""

    serial: int
    left: int


class Publisher:
    """Publishes as much as the connection takes, and remembers the rest.

    Args:
        counters: counts `committed` and `estimates`.
    """

    def __init__(self, link: Link, fleet: str, store: Store, recorder: Recorder, counters: Counter[str]) -> None:
        self._link = link
        self._fleet = fleet
        self._store = store
        self._recorder = recorder
        self._counters = counters
        self._owed: dict[str, None] = {}
        self._in_flight: dict[int, _Sending | None] = {}
        self._sent_through = 0
        self._done: list[int] = []
        self._counter = time.time_ns() // 1000

    def owe(self, device: str) -> None:
        """Publish the device's watermark at the next opportunity."""
        self._owed[device] = None

    def acknowledged(self, message_id: int) -> None:
        """The broker has a message."""
        if (sending := self._in_flight.pop(message_id, None)) is not None:
            sending.left -= 1
            if sending.left == 0:
                self._done.append(sending.serial)

    def pump(self, *, idle: bool) -> None:
        """Publish what fits into the window; when there is nothing else to do, also tidy the outbox.

        Raises:
            sqlite3.Error: if the store cannot be used; nothing is lost then.
        """
        while self._owed and self._room():
            device = next(iter(self._owed))
            for message in self._recorder.committed(device):
                self._counter += 1  # above those of every earlier start, whose messages were fewer than microseconds
                payload = encode_committed(replace(message, counter=self._counter))
                if not self._publish(committed_topic(self._fleet, device), payload, None):
                    return
                self._counters["committed"] += 1
            del self._owed[device]
        if room := self._room():
            for outgoing in self._store.outbox(self._sent_through, room):
                if not self._send(outgoing):
                    break
                self._sent_through = outgoing.serial
        if self._done and (idle or len(self._done) >= _FORGET_EVERY):
            self._store.forget_outgoing(self._done)
            self._done.clear()

    @property
    def finished(self) -> bool:
        """Whether nothing is owed or under way."""
        return not self._owed and not self._in_flight and not self._done

    def _room(self) -> int:
        return max(MAX_IN_FLIGHT - len(self._in_flight), 0) if self._link.connected else 0

    def _send(self, outgoing: Outgoing) -> bool:
        if not (messages := list(self._recorder.estimates(outgoing))):
            self._done.append(outgoing.serial)
        sending = _Sending(outgoing.serial, len(messages))
        topic = estimate_topic(self._fleet, outgoing.device, outgoing.stream)
        for message in messages:
            if not self._publish(topic, message, sending):
                return False
            self._counters["estimates"] += 1
        return True

    def _publish(self, topic: str, payload: bytes, sending: _Sending | None) -> bool:
        if (message_id := self._link.publish(topic, payload)) is None:
            return False
        self._in_flight[message_id] = sending
        return True
