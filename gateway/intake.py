"""The intake of devices' messages: taken, answered, and in a shard only those of its own devices."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial

from fugu.contract.errors import FuguError
from fugu.contract.topics import parse_topic, status_topic, symbols_topic, window_topic
from fugu.mqtt import Link
from gateway.contradictions import Contradictions
from gateway.estimates.catalogue import Catalogue
from gateway.fleet.enrolled import Enrolled
from gateway.health import Monitor
from gateway.journal.arrivals import Heard
from gateway.place_tables import TableSender
from gateway.publisher import Publisher
from gateway.recorder import Recorder
from gateway.retention import Retention
from gateway.settings import GatewaySettings, SettingsError
from gateway.shards import Shard
from gateway.store.store import Store

__all__ = ["Intake", "OwnDevices"]


class Intake:
    """Used by the gateway's worker.

    `needed` has for device and stream the first tick that a coming release needs, `may_forget` whether that is known.
    `contradictions` hears of every conflict. Raises SettingsError if devices are to be stopped, and nothing is signed.
    """

    def __init__(
        self,
        settings: GatewaySettings,
        link: Link,
        store: Store,
        catalogue: Catalogue,
        recorder: Recorder,
        monitor: Monitor,
        enrolled: Enrolled | None,
        needed: Callable[[], dict[tuple[str, str], int]],
        counters: Counter[str],
        may_forget: Callable[[], bool] = lambda: True,
    ) -> None:
        fleet = settings.fleet
        sealed, key = (None, None) if enrolled is None else (enrolled.sealed, enrolled.key)
        stopping = None
        if settings.on_conflict != "alarm" and (enrolled is None or (stopping := enrolled.stopping) is None):
            raise SettingsError("to stop devices the gateway needs the fleet's registry and the gateway's key")
        self.contradictions = Contradictions(fleet, store, link, monitor, stopping)
        self._recorder = recorder
        self._may_forget = may_forget
        self._publisher = Publisher(link, fleet, store, recorder, counters, key=key)
        self._new_tables = partial(TableSender, store, catalogue, recorder, link, counters, sealed=sealed)
        self._catalogue = catalogue
        self._tables: TableSender | None = None
        self.renew()
        self._retention = Retention(settings.keep, store, catalogue, recorder, needed, settings.lag, counters)

    @staticmethod
    def topics(fleet: str, device: str = "+") -> tuple[str, ...]:
        """What the gateway's connection subscribes to for this, of a device or of all."""
        return symbols_topic(fleet, device, "+"), window_topic(fleet, device, "+"), status_topic(fleet, device)

    @property
    def finished(self) -> bool:
        """True if nothing is owed or under way."""
        return self._publisher.finished

    @property
    def reports_waiting(self) -> int:
        """How many frames and windows wait to be reported."""
        return self._publisher.reports_waiting

    def born(self, device: str) -> None:
        """Note that a device has come online."""
        self._publisher.owe(device)
        if self._tables is not None:
            self._tables.born(device)

    def stored(self, heard: Iterable[Heard]) -> None:
        """Note that frames of streams were stored, or refused for good."""
        for one in heard:
            self._publisher.owe(one.device)
            if self._tables is not None:
                self._tables.stored(one.device, one.stream)

    def seal(self) -> None:
        """Seal what has come, at a clean end."""
        self._recorder.seal(now=True)

    def acknowledged(self, message_id: int) -> None:
        """The broker has a message."""
        self._publisher.acknowledged(message_id)

    def renew(self) -> None:
        """The catalogue may have changed: tables are sent from the first measured stream on."""
        if self._tables is not None:
            self._tables.renew()
        elif self._catalogue.measured():
            self._tables = self._new_tables()

    def connected(self, *, begun_anew: bool) -> None:
        """Note a new connection; with `begun_anew`, what was under way will not be answered."""
        self.contradictions.connected()
        if begun_anew:
            self._publisher.begin_anew()

    def pumps(self, *, idle: bool) -> tuple[Callable[[], None], ...]:
        """What is to be done in every round; each may raise what a store raises."""
        return (
            *(() if self._tables is None else (self._tables.pump,)),
            *((self.contradictions.pump,) if self.contradictions.stops else ()),
            lambda: self._publisher.pump(idle=idle),
            self._seal,
            self._forget,
        )

    def _forget(self) -> None:
        if self._may_forget():
            self._retention.pump()

    def _seal(self) -> None:
        self._recorder.seal()


_LOOK_SECONDS = 0.5


class OwnDevices:
    """Subscribes to a shard's devices; `counters` counts `strays`, messages of other shards' (an old session's)."""

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
        """True if a message is of a device that is another shard's: a session of before has subscribed to it."""
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
        """Raise FileLostError if the devices are no longer this shard's, also while none of them says anything."""
        if (now := time.monotonic()) >= self._look_at:
            self._look_at = now + _LOOK_SECONDS
            self._store.check()
