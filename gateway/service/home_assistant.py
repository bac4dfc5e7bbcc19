"""Tells Home Assistant of a fleet's devices: a retained document for each, said again whenever Home Assistant starts.

What was published is in the store, so that it is taken back with the device, or where this is not wanted any more:
Home Assistant then removes what it made of it. Of a component that there is no longer the document says so, which is
how Home Assistant removes one alone.
"""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fugu.contract.descriptions import Description
from fugu.contract.topics import discovery_topic
from fugu.mqtt import Link
from gateway.service.discovery import GATEWAY, STATUS_TOPIC, device_document, gateway_document
from gateway.service.store import Store

__all__ = ["HomeAssistant"]

_SOONEST_SECONDS, _LATEST_SECONDS = 1.0, 10.0
"""After a start of Home Assistant everybody who has something to say waits for a moment of their own."""


class HomeAssistant:
    """Used by the gateway's worker.

    Args:
        describe: the descriptions of the streams of each device; none takes back whatever was published before.
        counters: counts `discovery`: documents that were published or taken back.
        seconds: a clock that only goes forward.
        pause: seconds to wait after Home Assistant has started.
    """

    def __init__(
        self,
        fleet: str,
        link: Link,
        store: Store,
        describe: Callable[[], Mapping[str, Sequence[Description]]] | None,
        counters: Counter[str],
        *,
        seconds: Callable[[], float] = time.monotonic,
        pause: Callable[[], float] = lambda: random.uniform(_SOONEST_SECONDS, _LATEST_SECONDS),
    ) -> None:
        self._fleet = fleet
        self._link = link
        self._store = store
        self._describe = describe
        self._counters = counters
        self._seconds = seconds
        self._pause = pause
        self._known = store.discovered.every()
        self._documents: dict[str, dict[str, Any]] = {}
        self._due: set[str] = set()
        self._clearing: dict[int, str] = {}
        self._again_at: float | None = None
        self.renew()

    @staticmethod
    def topics() -> tuple[str, ...]:
        """What the gateway's connection subscribes to for this."""
        return (STATUS_TOPIC,)

    def heard(self, topic: str, payload: bytes) -> bool:
        """Take note of a start of Home Assistant; whether the message was for nobody else."""
        if topic != STATUS_TOPIC:
            return False
        if payload == b"online" and self._again_at is None:
            self._again_at = self._seconds() + self._pause()
        return True

    def connected(self) -> None:
        """There is a new connection, to a broker that may have lost what it had."""
        self._clearing.clear()
        self._due = {*self._documents, *self._known}

    def renew(self) -> None:
        """There are new policies."""
        wanted: dict[str, dict[str, Any]] = {}
        if self._describe is not None:
            wanted = {device: device_document(streams) for device, streams in self._describe().items() if streams}
            wanted[GATEWAY] = gateway_document(self._fleet)
        changed = {device for device, document in wanted.items() if self._documents.get(device) != document}
        self._documents = wanted
        self._due |= changed | (self._known.keys() - wanted.keys())

    def acknowledged(self, message_id: int, accepted: bool) -> None:
        """The broker has answered for a message.

        Raises:
            DatabaseError: the store cannot be used; it is asked again with the next connection.
        """
        device = self._clearing.pop(message_id, None)
        if device is not None and accepted and device not in self._documents:
            with self._store.transaction():
                self._store.discovered.forget(device)
            self._known.pop(device, None)

    def pump(self) -> None:
        """Publish what is due.

        Raises:
            DatabaseError: the store cannot be used; it is tried again.
        """
        if self._again_at is not None and self._seconds() >= self._again_at:
            self._again_at = None
            self._due |= self._documents.keys()
        for device in sorted(self._due):
            if not self._link.connected or not self._publish(device):
                return
            self._due.discard(device)
            self._counters["discovery"] += 1

    def _publish(self, device: str) -> bool:
        topic, document = discovery_topic(self._fleet, device), self._documents.get(device)
        if document is None:
            if (message_id := self._link.publish(topic, b"", retain=True)) is not None:
                self._clearing[message_id] = device
            return message_id is not None
        components = {name: component["platform"] for name, component in document["cmps"].items()}
        every = self._known.get(device, {}) | components
        if every != self._known.get(device):
            with self._store.transaction():  # first, so that nothing is published that is not stored
                self._store.discovered.keep(device, every)
            self._known[device] = every
        gone = {name: {"platform": platform} for name, platform in every.items() if name not in components}
        said = json.dumps({**document, "cmps": {**document["cmps"], **gone}}, ensure_ascii=False)
        return self._link.publish(topic, said.encode(), retain=True) is not None
