"""Duties of a process of a site, by its settings: all of it, the devices of one shard, or what a fleet has once.

Each duty says how its process connects, which places in the store it takes, and which parts its loop has.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import closing
from functools import partial
from typing import Any, NamedTuple

from fugu.contract.errors import FuguError, UsageError
from fugu.contract.reports import AlarmCode, Health
from fugu.contract.topics import topic_of
from fugu.mqtt import Broker, Link, Will
from gateway.config import GatewaySettings, SettingsError
from gateway.estimates.catalogue import Catalogue
from gateway.fleet.enrolled import Enrolled
from gateway.fleet.service import FleetService
from gateway.health.contradictions import Contradictions
from gateway.health.monitor import Monitor
from gateway.health.shared_subscriptions import SharedSubscriptions
from gateway.loop.publisher import Publisher
from gateway.loop.recorder import Recorder
from gateway.loop.release_part import Releasing, ShardsLook
from gateway.loop.retention import Retention
from gateway.loop.sums import Reports, Sums
from gateway.parts.describe import Describing
from gateway.parts.home_assistant import HomeAssistant
from gateway.parts.part import Message, Part
from gateway.parts.place_tables import TableSender
from gateway.releases.schedule import FleetProgress, StoreProgress
from gateway.store.engine import Lease
from gateway.store.location import part_of
from gateway.store.shard_watch import ShardChannel, ShardWatch, channel_of
from gateway.store.shards import Shard, own_account
from gateway.store.store import Store

__all__ = ["Loop", "NotArrangedError", "duty_of"]


_LOOK_SECONDS = 0.5
_MOST_STRAYS = 1000
"""Devices of other shards whose subscriptions are ended on one connection."""


class NotArrangedError(FuguError):
    """A shard cannot start yet: another number of processes shares the devices."""


class Loop(NamedTuple):
    """The things that parts are made with, and the list that they go to, in the order of a round.

    `enrolled` is None for a site without a fleet of signed documents. `watch` makes the monitor, given the devices of
    which frames are stored.
    """

    store: Store
    link: Link
    catalogue: Catalogue
    counters: Counter[str]
    enrolled: Enrolled | None
    watch: Callable[[list[str]], Monitor]
    parts: list[Part]


def duty_of(settings: GatewaySettings) -> Alone:
    """Find a process's duty. Raises UsageError if a shard has no account where others have."""
    if settings.shard is not None:
        return OneShard(settings, settings.shard)
    return WholeFleet(settings) if settings.shards > 1 else Alone(settings)


class Alone:
    """The only process of a site: it takes frames, and does what a site has once.

    Attributes:
        broker: how it connects.
        client_id: its name at the broker.
        will: what the broker says when it is gone.
        path: what the socket lies beside where it says how it is.
        watch: the shards that it looks at.
        says_to: takes what it says of itself, in place of the topic `health`.
    """

    def __init__(self, settings: GatewaySettings) -> None:
        self._settings = settings
        self._releasing: Releasing | None = None
        self.broker, self.path = settings.broker, settings.store
        self.client_id = f"gateway-{settings.fleet}"
        self.will: Will | None = Will(topic_of("health", settings.fleet), Health(online=False).encode())
        self.watch: ShardWatch | None = None
        self.says_to: Callable[[Mapping[str, Any]], None] | None = None

    def owns(self, device: str) -> bool:
        """True if the process has to know a device."""
        return True

    @property
    def lease(self) -> Lease:
        """The place in the store that it takes."""
        return Lease()

    @property
    def missing(self) -> tuple[int, ...]:
        """Shards of which nothing was heard lately."""
        return () if self.watch is None else self.watch.missing

    @property
    def inbox(self) -> int:
        """Messages that wait in the inboxes of shards."""
        return 0 if self.watch is None else sum(report["inbox"] for report in dict(self.watch.reports).values())

    def details(self) -> dict[str, object]:
        """Return its share of what the gateway tells of itself."""
        return {}

    def await_turn(self) -> None:
        """Raise NotArrangedError while another number of processes shares the devices."""

    def arrange(self, store: Store) -> None:
        """Take the devices of all processes that were there before. Raises DatabaseError."""
        store.arrange(self._settings.shards, lambda: self._seal(store))

    def open(self, loop: Loop) -> Recorder | None:
        """Make the parts; the recorder is None where others take frames. Raises FuguError for a file or a setting."""
        loop.link.subscribe(_frame_topics(self._settings.fleet))
        recorder, monitor = self._take_frames(loop, self._needed)
        self._do_once(loop, monitor, StoreProgress(loop.store, recorder.known))
        return recorder

    def close(self) -> None:
        """Close what was opened beside store and parts."""

    def _needed(self) -> dict[tuple[str, str], int]:
        return {} if self._releasing is None else self._releasing.needed()

    def _seal(self, store: Store) -> None:
        """Seal what the journal holds, before other processes own the devices."""
        known = Catalogue(self._settings.fleet)
        known.retire(store.policy_documents())
        Recorder(store, known, self._settings.lag, Counter()).seal(now=True)

    def _take_frames(
        self,
        loop: Loop,
        needed: Callable[[], dict[tuple[str, str], int]],
        may_forget: Callable[[], bool] | None = None,
    ) -> tuple[Recorder, Monitor]:
        settings, enrolled = self._settings, loop.enrolled
        store, link, catalogue, counters = loop.store, loop.link, loop.catalogue, loop.counters
        catalogue.retire(store.policy_documents())
        recorder = Recorder(store, catalogue, settings.lag, counters)
        monitor = loop.watch([device for device in catalogue.names() if recorder.has_frames(device)])
        sealed, key = (None, None) if enrolled is None else (enrolled.sealed, enrolled.key)
        stopping = None
        if settings.on_conflict != "alarm" and (enrolled is None or (stopping := enrolled.stopping) is None):
            raise SettingsError("to stop devices the gateway needs the fleet's registry and the gateway's key")
        contradictions = Contradictions(settings.fleet, store, link, monitor, stopping)
        recorder.conflict = contradictions.found
        if enrolled is not None or catalogue.measured():
            loop.parts.append(TableSender(store, catalogue, recorder.points, link, counters, sealed=sealed))
        if stopping is not None:
            loop.parts.append(contradictions)
        publisher = Publisher(link, settings.fleet, store, recorder, counters, key=key)
        tells = publisher.born, monitor.refused, monitor.received
        loop.parts.append(Reports(store, catalogue, recorder, counters, *tells))
        loop.parts.append(publisher)
        keep = settings.keep, store, catalogue, recorder, needed, settings.lag, counters
        loop.parts.append(Retention(*keep, may_forget=may_forget))
        return recorder, monitor

    def _do_once(self, loop: Loop, monitor: Monitor, progress: StoreProgress) -> None:
        settings, enrolled = self._settings, loop.enrolled
        store, link, catalogue, counters = loop.store, loop.link, loop.catalogue, loop.counters
        has_left = (lambda _device: False) if enrolled is None else enrolled.has_left
        is_enrolled = (lambda _device: False) if enrolled is None else enrolled.has
        refusing = partial(monitor.hold, AlarmCode.POLICY_REFUSED)
        taken = (link, catalogue, store.versions, counters, has_left, refusing, is_enrolled)
        describing = Describing(*taken, shared=settings.shards > 1)
        loop.parts.append(describing)

        def hold_shared(details: Mapping[str, str]) -> None:
            monitor.hold(AlarmCode.SUBSCRIPTIONS, details, details)

        loop.parts.append(SharedSubscriptions(catalogue, hold_shared))
        if enrolled is not None and settings.enrolled is not None:
            tells = monitor.clock_ahead, partial(monitor.hold, AlarmCode.CLOCK), monitor.refused
            loop.parts.append(FleetService(settings.fleet, settings.enrolled, link, enrolled, counters, *tells))
        if settings.home_assistant or store.discovered.every():  # what was told before is taken back
            described = describing.described if settings.home_assistant else None
            told = HomeAssistant(
                *(settings.fleet, link, store, described, counters),
                page_url=settings.page_url,
                knows=lambda device: catalogue.has(device) or is_enrolled(device),
            )
            loop.parts.append(told)
            describing.changed = told.renew
        if settings.releases is not None:
            self._releasing = Releasing(
                *(settings.releases, settings, link, store, catalogue, progress, counters),
                monitor=monitor,
                shared=settings.shards > 1,
                history=describing.in_force.history,
            )
            loop.parts.append(self._releasing)
        lost = partial(monitor.note, AlarmCode.RELEASE_REFUSED)
        loop.parts.append(Sums(store, catalogue, link, self._releasing, counters, lost))


class OneShard(Alone):
    """One of several processes that share the devices."""

    def __init__(self, settings: GatewaySettings, shard: Shard) -> None:
        super().__init__(settings)
        self._shard = shard
        self._channels: list[ShardChannel] = []
        self.broker = _shard_account(settings.broker, shard.index, shard.count)
        self.client_id += f"-{shard.index}"
        self.path = part_of(settings.store, f"shard-{shard.index}")
        self.will = None

    def owns(self, device: str) -> bool:
        """True if a device is the shard's."""
        return self._shard.owns(device)

    @property
    def lease(self) -> Lease:
        """The shard's place, also if a process has it that was thought dead."""
        return Lease(Lease.of_shard(self._shard.index), take=True, shares=True)

    def details(self) -> dict[str, object]:
        """Which shard it is."""
        return {"shard": str(self._shard)}

    def await_turn(self) -> None:
        """Raise NotArrangedError while another number of processes shares the devices."""
        with closing(Store(self._settings.store)) as seen:
            self.arrange(seen)

    def arrange(self, store: Store) -> None:
        """Raise NotArrangedError if another number of processes shares the devices."""
        if (found := store.shards) != self._shard.count:
            now = f"{found} shards" if found > 1 else "one process"
            raise NotArrangedError(f"shard {self._shard} waits: {now} may have the devices now")

    def open(self, loop: Loop) -> Recorder | None:
        """Make the parts that take the frames of its own devices."""
        channel = ShardChannel(channel_of(self._settings.store))
        self._channels.append(channel)
        beats = ShardChannel(channel_of(self._settings.store), Lease(f"beats-{self._shard.index}", take=True))
        self._channels.append(beats)
        self.says_to = partial(beats.beat, self._shard.index)
        recorder, _ = self._take_frames(loop, channel.needed, lambda: channel.known)
        loop.parts.append(OwnDevices(self._shard, loop.store, loop.link, loop.catalogue, loop.counters))
        return recorder

    def close(self) -> None:
        """Close the channels to the fleet's process."""
        while self._channels:
            self._channels.pop().close()


def _shard_account(gateway: Broker, index: int, count: int) -> Broker:
    """How one of so many shards connects. Raises UsageError if only others have accounts of their own."""
    if (own := own_account(gateway, index)) is not None:
        return own
    if any(own_account(gateway, one) for one in range(count)):
        raise UsageError(f"shard {index} has no account, and others have: see fugu deploy gateway --shards")
    return gateway


class WholeFleet(Alone):
    """The process that does once for a site what shards do not."""

    def __init__(self, settings: GatewaySettings) -> None:
        super().__init__(settings)
        self._channel: ShardChannel | None = None

    @property
    def lease(self) -> Lease:
        """The store's own place, also if a process has it that was thought dead."""
        return Lease(take=True, shares=True)

    def details(self) -> dict[str, object]:
        """How many shards there are, and which of them are missing."""
        return {"shards": {"count": self._settings.shards, "missing": list(self.missing)}}

    def open(self, loop: Loop) -> Recorder | None:
        """Make what a site has once, and what looks at the shards."""
        settings, catalogue = self._settings, loop.catalogue
        catalogue.retire(loop.store.policy_documents())
        self._channel = channel = ShardChannel(channel_of(settings.store), Lease("fleet", take=True))
        channel.begin()
        loop.link.unsubscribe(_frame_topics(settings.fleet))  # a session of before may have had all frames
        self.watch = ShardWatch(ShardChannel(channel_of(settings.store)), settings.shards, loop.counters)
        progress = FleetProgress(loop.store, settings.shards, lambda: self.missing)
        self._do_once(loop, loop.watch([]), progress)
        loop.parts.append(ShardsLook(loop.store, channel, progress, lambda: self.missing, self._releasing))
        self.watch.start()
        return None

    def close(self) -> None:
        """Look at the shards no more."""
        if self.watch is not None:
            self.watch.stop()
        if self._channel is not None:
            self._channel.close()


class OwnDevices(Part):
    """Subscribes to a shard's devices; `counters` counts `strays`, messages of other shards' (an old session's)."""

    def __init__(self, shard: Shard, store: Store, link: Link, catalogue: Catalogue, counters: Counter[str]) -> None:
        self._shard = shard
        self._store = store
        self._link = link
        self._catalogue = catalogue
        self._counters = counters
        self._subscribed: set[str] = set()
        self._strays: set[str] = set()
        self.renew()

    def heard(self, message: Message) -> bool:
        """True if a message is of a device that is another shard's: a session of before has subscribed to it."""
        try:
            parsed = message.parsed
        except FuguError:
            return False  # whoever else reads it counts it
        if not (device := parsed.device) or self._shard.owns(device):
            return False
        self._counters["strays"] += 1
        if device not in self._strays and len(self._strays) < _MOST_STRAYS:
            self._strays.add(device)
            self._link.unsubscribe(_topics(self._catalogue.fleet, device))
        return True

    def connected(self, *, begun_anew: bool) -> None:
        """A broker may have other subscriptions now."""
        self._strays.clear()

    def renew(self) -> None:
        """The catalogue may have changed: new devices are subscribed to."""
        new = [device for device in self._catalogue.names() if device not in self._subscribed]
        self._link.subscribe(topic for device in new for topic in _topics(self._catalogue.fleet, device))
        self._subscribed.update(new)

    def pump(self, *, idle: bool = False) -> None:
        """Raise FileLostError if the devices are no longer this shard's, also while none of them says anything."""
        self.due = time.monotonic() + _LOOK_SECONDS
        self._store.check()


def _topics(fleet: str, device: str) -> tuple[str, ...]:
    return (*_frame_topics(fleet, device), topic_of("status", fleet, device))


def _frame_topics(fleet: str, device: str = "+") -> tuple[str, ...]:
    """Where the frames of a device come, or of all."""
    return tuple(topic_of(kind, fleet, device, "+") for kind in ("symbols", "window", "report"))
