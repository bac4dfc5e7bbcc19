"""Duties of the processes of a site that share its devices: a shard takes frames, one process does the rest."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from functools import partial

from fugu.contract.errors import FuguError, UsageError
from fugu.contract.frames import sequence_name
from fugu.contract.topics import topic_of
from fugu.mqtt import Broker, Link
from gateway.cluster.shard_watch import ShardChannel, ShardWatch, channel_of
from gateway.config import GatewayConfig
from gateway.estimates.catalogue import Catalogue
from gateway.loop.duties import Alone, Loop, NotArrangedError, frame_topics
from gateway.loop.recorder import Recorder
from gateway.loop.release_part import Releasing
from gateway.parts import Message, Part
from gateway.releases.inputs import Question
from gateway.releases.schedule import NewestTicks, NotKnownError, StoreProgress
from gateway.store.coverage import Coverage, Shifts
from gateway.store.engine import Lease
from gateway.store.location import Server, part_of
from gateway.store.shards import Role, Shard, own_account
from gateway.store.store import Store

__all__ = ["FleetProgress", "duty_of", "shard_account"]


_LOOK_SECONDS = 0.5
_MOST_STRAYS = 1000
"""Devices of other shards whose subscriptions are ended on one connection."""


def duty_of(settings: GatewayConfig, role: str) -> Alone:
    """Find the duty of the shard `i/N`, or of `fleet/N`.

    Raises FuguError if there is no such role, no store on a server, or no account where other shards have theirs.
    """
    shards, shard = Role.parse(role)
    if not isinstance(settings.store, Server):
        raise FuguError(f"the store {settings.store.name} is a file: shards need one on a server, postgresql://...")
    return WholeFleet(settings, shards) if shard is None else OneShard(settings, shard)


class OneShard(Alone):
    """One of several processes that share the devices."""

    def __init__(self, settings: GatewayConfig, shard: Shard) -> None:
        super().__init__(settings)
        self._shard = shard
        self._channels: list[ShardChannel] = []
        self.broker = shard_account(settings.broker, shard.index, shard.count)
        self.client_id += f"-{shard.index}"
        self.path = part_of(settings.store, f"shard-{shard.index}")
        self.will = None

    def owns(self, device: str) -> bool:
        """True if a device is the shard's."""
        return self._shard.owns(device)

    def store(self) -> Store:
        """Open the store in the shard's place, also if a process has it that was thought dead. Raises StoreError."""
        lease = Lease(Lease.of_shard(self._shard.index), take=True, shares=True)
        return Store(self._settings.store, lease=lease, shard=self._shard)

    def details(self) -> dict[str, object]:
        """Which shard it is."""
        return {"process": f"shard {self._shard}"}

    def await_turn(self) -> None:
        """Raise NotArrangedError while another number of processes shares the devices."""
        with closing(Store(self._settings.store)) as store:
            self.arrange(store)

    def arrange(self, store: Store) -> None:
        """Raise NotArrangedError if another number of processes shares the devices."""
        if (shards := store.shards) != self._shard.count:
            owner_words = f"{shards} shards" if shards > 1 else "one process"
            raise NotArrangedError(f"shard {self._shard} waits: {owner_words} may have the devices now")

    def open(self, loop: Loop) -> Recorder | None:
        """Make the parts that take the frames of its own devices."""
        channel = ShardChannel(channel_of(self._settings.store))
        self._channels.append(channel)
        beats = ShardChannel(channel_of(self._settings.store), Lease(f"beats-{self._shard.index}", take=True))
        self._channels.append(beats)
        self.says_to = partial(beats.beat, self._shard.index)
        recorder, _ = self._add_frame_parts(loop, channel.needed_ticks, lambda: channel.is_known)
        loop.parts.append(OwnDevices(self._shard, loop.store, loop.link, loop.catalogue, loop.counters))
        return recorder

    def close(self) -> None:
        """Close the channels to the fleet's process."""
        while self._channels:
            self._channels.pop().close()


def shard_account(gateway: Broker, index: int, count: int) -> Broker:
    """How one of so many shards connects. Raises UsageError if only others have accounts of their own."""
    if (account := own_account(gateway, index)) is not None:
        return account
    if any(own_account(gateway, index) for index in range(count)):
        raise UsageError(f"shard {index} has no account, and others have: see fugu deploy gateway --shards")
    return gateway


_READ_SECONDS = 0.5
_SHARE = 10
"""Least ratio of the time between reads to the time of reading."""


class FleetProgress(StoreProgress):
    """The progress of all shards: what they have stored a moment ago; the store is owned by the thread that calls.

    While nothing was heard lately of one (`find_missing`), nothing is decided: nobody knows how far its devices are.
    """

    def __init__(self, store: Store, shards: int, find_missing: Callable[[], tuple[int, ...]]) -> None:
        super().__init__(store, lambda device, name: self._accounts[device, name])
        self._accounts: dict[tuple[str, str], tuple[Coverage, Shifts]] = {}
        self._shards = shards
        self._find_missing = find_missing
        self._look_at = 0.0
        self._seconds_read = 0.0

    def look(self) -> bool:
        """Read again what is stored, if it is time for that; whether it was."""
        now = time.monotonic()
        if now < self._look_at:
            return False
        self._store.symbols.catch_up(self._shards)
        self._accounts.clear()
        self._seconds_read += time.monotonic() - now
        self._look_at, self._seconds_read = now + max(_READ_SECONDS, _SHARE * self._seconds_read), 0.0
        return True

    def newest_ticks(self, question: Question) -> NewestTicks:
        """As of `StoreProgress`, which knows nothing of shards that are missing."""
        if missing := self._find_missing():
            raise NotKnownError(f"shards {missing} are missing")
        return super().newest_ticks(question)

    def known_devices(self, question: Question) -> tuple[str, ...]:
        """The devices of a question, once what shards have stored of them is read."""
        start = time.monotonic()
        devices_by_name: dict[str, list[str]] = {}
        symbol_streams = [(device, question.stream) for device in question.devices if device not in question.silent]
        windows = [(device, sequence_name(question.stream, window.name)) for device, window in question.windows.items()]
        for device, name in (*symbol_streams, *windows):
            if (device, name) not in self._accounts:
                devices_by_name.setdefault(name, []).append(device)
        for name, devices in devices_by_name.items():
            numbers = self._store.numbers(name, devices)
            accounts = self._store.accounted([*numbers.values()])
            for device in devices:
                account = accounts[numbers[device]] if device in numbers else (Coverage(), Shifts())
                self._accounts[device, name] = account
        self._seconds_read += time.monotonic() - start
        return question.devices


class WholeFleet(Alone):
    """The process that does once for a site what shards do not."""

    shares = True

    def __init__(self, settings: GatewayConfig, shards: int) -> None:
        super().__init__(settings)
        self._shards = shards
        self._channel: ShardChannel | None = None
        self._watch: ShardWatch | None = None

    def store(self) -> Store:
        """Open the store in its own place, also if a process has it that was thought dead. Raises StoreError."""
        return Store(self._settings.store, lease=Lease(take=True, shares=True))

    def details(self) -> dict[str, object]:
        """Which shards are missing."""
        missing = () if self._watch is None else self._watch.missing
        return {"missing": [f"shard {index}/{self._shards}" for index in missing]}

    def arrange(self, store: Store) -> None:
        """Let so many shards have the devices from now on, and no others. Raises DatabaseError."""
        store.arrange(self._shards, lambda: self._seal(store))

    def open(self, loop: Loop) -> Recorder | None:
        """Make what a site has once, and what looks at the shards."""
        settings, catalogue = self._settings, loop.catalogue
        catalogue.retire(loop.store.policy_documents())
        self._channel = channel = ShardChannel(channel_of(settings.store), Lease("fleet", take=True))
        channel.begin()
        loop.link.unsubscribe(frame_topics(settings.fleet))  # a session of before may have had all frames
        shard_watch = ShardWatch(ShardChannel(channel_of(settings.store)), self._shards, loop.counters)
        self.elsewhere = self._watch = shard_watch
        progress = FleetProgress(loop.store, self._shards, lambda: shard_watch.missing)
        self._add_site_parts(loop, loop.make_monitor([]), lambda: progress)
        loop.parts.append(ShardsLook(loop.store, channel, progress, lambda: shard_watch.missing, self._releasing))
        shard_watch.start()
        return None

    def close(self) -> None:
        """Look at the shards no more."""
        if self._watch is not None:
            self._watch.stop()
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
        new_devices = [device for device in self._catalogue.names() if device not in self._subscribed]
        self._link.subscribe(topic for device in new_devices for topic in _topics(self._catalogue.fleet, device))
        self._subscribed.update(new_devices)

    def pump(self, *, idle: bool = False) -> None:
        """Raise FileLostError if the devices are no longer this shard's, also while none of them says anything."""
        self.due = time.monotonic() + _LOOK_SECONDS
        self._store.check()


def _topics(fleet: str, device: str) -> tuple[str, ...]:
    return (*frame_topics(fleet, device), topic_of("status", fleet, device))


class ShardsLook(Part):
    """Looks at what shards have stored, and tells them what releases still need.

    The worker's thread owns `channel`; `progress` is of all shards; `find_missing` gives those of which nothing
    was heard lately.
    """

    def __init__(
        self,
        store: Store,
        channel: ShardChannel,
        progress: FleetProgress,
        find_missing: Callable[[], tuple[int, ...]],
        releasing: Releasing | None,
    ) -> None:
        self._store = store
        self._channel = channel
        self._progress = progress
        self._find_missing = find_missing
        self._releasing = releasing
        self._missing_shards: set[int] = set()
        self._needed_ticks: dict[tuple[str, str], int] | None = None

    def pump(self, *, idle: bool = False) -> None:
        """Look again. Raises FileLostError if another process has this one's place."""
        self.due = time.monotonic() + _LOOK_SECONDS
        self._store.check()
        self._channel.check()
        missing_before, self._missing_shards = self._missing_shards, set(self._find_missing())
        if self._releasing is not None and self._progress.look():
            if missing_before - self._missing_shards:
                self._releasing.unsettled()
            self._releasing.stored()
        with contextlib.suppress(NotKnownError):
            if (needed_ticks := {} if self._releasing is None else self._releasing.needed()) != self._needed_ticks:
                self._channel.say_needed(needed_ticks)
                self._needed_ticks = needed_ticks
