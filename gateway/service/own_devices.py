"""What a shard hears: its own devices alone."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable

from fugu.contract.errors import FuguError
from fugu.contract.topics import parse_topic
from fugu.mqtt import Link
from gateway.service.intake import Intake
from gateway.service.ownership import Shard
from gateway.service.policies import Catalogue
from gateway.service.store import Store

__all__ = ["OwnDevices"]

_LOOK_SECONDS = 0.5


class OwnDevices:
    """Subscribes to what the devices of a shard send; used by the gateway's worker.

    Args:
        counters: counts `strays` (messages of devices that are other shards': an old session's).
    """

    def __init__(self, shard: Shard, store: Store, link: Link, catalogue: Catalogue, counters: Counter[str]) -> None:
        self._shard = shard
        self._store = store
        self._look_at = 0.0
        self._link = link
        self._catalogue = catalogue
        self._counters = counters
        self._subscribed: set[str] = set()
        self._mine: set[str] = set()
        self.renew()

    def heard(self, topic: str) -> bool:
        """Whether a message is of a device that is another shard's: a session of before has subscribed to it."""
        if topic in self._mine:
            return False
        try:
            parsed = parse_topic(topic)
        except FuguError:
            return False  # whoever else reads it counts it
        if not (device := parsed.device) or self._shard.owns(device):
            if parsed.stream in self._catalogue.streams(device):
                self._mine.add(topic)
            return False
        self._counters["strays"] += 1
        self._link.unsubscribe(Intake.topics(self._catalogue.fleet, device))
        return True

    def renew(self) -> None:
        """The catalogue may have changed: new devices are subscribed to."""
        new = [device for device in self._catalogue.names() if device not in self._subscribed]
        self._link.subscribe(topic for device in new for topic in Intake.topics(self._catalogue.fleet, device))
        self._subscribed.update(new)

    def pumps(self, *, idle: bool) -> tuple[Callable[[], None], ...]:
        """What is to be done in every round."""
        del idle
        return (self._check,)

    def _check(self) -> None:
        """See now and then whether the devices are still this shard's, also while none of them says anything.

        Raises:
            FileLostError: they are not.
        """
        if (now := time.monotonic()) >= self._look_at:
            self._look_at = now + _LOOK_SECONDS
            self._store.check()
