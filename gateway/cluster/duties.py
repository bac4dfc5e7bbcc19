"""Duties of the processes of a site that share its devices: shards take frames, one process serves the whole fleet."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import closing, suppress
from functools import partial

from fugu.contract.errors import FuguError, UsageError
from fugu.contract.topics import topic_of
from fugu.mqtt import Broker
from gateway.cluster.shard_watch import ShardChannel, ShardWatch, channel_of
from gateway.config import GatewayConfig
from gateway.health.monitor import Monitor
from gateway.loop.duties import NotArrangedError, SoleProcess, frame_topics
from gateway.loop.inbox import Usage
from gateway.loop.recorder import Recorder
from gateway.loop.release_part import ReleasePart
from gateway.parts import Loop, Message, Part
from gateway.releases.inputs import Question
from gateway.releases.schedule import NewestTicks, NotKnownError, StoreProgress
from gateway.store.coverage import Coverage, Shifts
from gateway.store.engine import Lease
from gateway.store.location import Server, part_of
from gateway.store.shards import Shard, own_account, read_role
from gateway.store.store import Store

__all__ = ["FleetProgress", "duty_of", "shard_account"]


_LOOK_SECONDS = 0.5
_MOST_STRAYS = 1000
"""Devices of other shards whose subscriptions are ended on one connection."""


def duty_of(settings: GatewayConfig, role: str) -> SoleProcess:
    """Return the duty of the shard `i/N`, or of `fleet/N`.

    Raises FuguError if there is no such role, no store on a server, or no account for a shard while others have one.
    """
    shards, shard = read_role(role)
    if not isinstance(settings.store, Server):
        raise FuguError(f"the store {settings.store.name} is a file: shards need one on a server, postgresql://...")
    return WholeFleet(settings, shards) if shard is None else OneShard(settings, shard)


class _Sharing(SoleProcess):
    """The duty of a process that shares the devices with others."""

    def _open_channel(self, lease: Lease | None = None) -> ShardChannel:
        """Open a channel between the processes, until the end of the duty."""
        return self.resources.enter_context(closing(ShardChannel(channel_of(self._settings.store), lease)))


class OneShard(_Sharing):
    """The duty of a shard: one of several processes that share the devices."""

    def __init__(self, settings: GatewayConfig, shard: Shard) -> None:
        super().__init__(settings)
        self._shard = shard
        self.broker = shard_account(settings.broker, shard.index, shard.count)
        self.client_id += f"-{shard.index}"
        self.status_store = part_of(settings.store, f"shard-{shard.index}")
        self.will = None

    def owns(self, device: str) -> bool:
        """Tell whether a device is the shard's."""
        return self._shard.owns(device)

    def store(self) -> Store:
        """Open the store, and take the shard's lease even from a process that has it. Raises StoreError."""
        lease = Lease(Lease.of_shard(self._shard.index), take=True, shares=True)
        return Store(self._settings.store, lease=lease, shard=self._shard)

    def details(self) -> dict[str, object]:
        """The shard's index and count under `process`, for the gateway's status."""
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

    def open(self, loop: Loop, monitor: Monitor, usage: Usage) -> Recorder | None:
        """Make the parts that take the frames of the shard's devices."""
        channel = self._open_channel()
        beat_channel = self._open_channel(Lease(f"beats-{self._shard.index}", take=True))
        monitor.tell = partial(beat_channel.beat, self._shard.index)
        recorder = self._add_frame_parts(loop, monitor, usage, channel.needed_ticks, lambda: channel.is_known)
        loop.parts.append(OwnDevices(loop, self._shard))
        return recorder


def shard_account(gateway: Broker, index: int, count: int) -> Broker:
    """The connection of one of `count` shards: its own account, or the gateway's if no shard has its own.

    Raises UsageError if only other shards have accounts of their own.
    """
    if (account := own_account(gateway, index)) is not None:
        return account
    if any(own_account(gateway, index) for index in range(count)):
        raise UsageError(f"shard {index} has no account, and others have: see fugu deploy gateway --shards")
    return gateway


_READ_SECONDS = 0.5
_SHARE = 10
"""Least ratio of the pause between reads to the time that a read takes."""


class FleetProgress(StoreProgress):
    """The progress of the devices of all shards, as stored a moment ago; the store belongs to the calling thread.

    `find_missing` returns the indices of missing shards. From then until `note_return`, `newest_ticks` raises
    NotKnownError: nobody knows how far the devices of these shards are.
    """

    def __init__(self, store: Store, shards: int, find_missing: Callable[[], tuple[int, ...]]) -> None:
        super().__init__(store, lambda device, name: self._accounts[device, name])
        self._accounts: dict[tuple[str, str], tuple[Coverage, Shifts]] = {}
        self._shards = shards
        self._find_missing = find_missing
        self._missing_shards: set[int] = set()
        self._look_at = 0.0
        self._seconds_read = 0.0

    def refresh(self) -> bool:
        """Read the shards' journals again, and forget the devices' old state. Return false if that is not due."""
        now = time.monotonic()
        if now < self._look_at:
            return False
        self._store.symbols.catch_up(self._shards)
        self._accounts.clear()
        self._seconds_read += time.monotonic() - now
        self._look_at, self._seconds_read = now + max(_READ_SECONDS, _SHARE * self._seconds_read), 0.0
        return True

    def note_return(self) -> bool:
        """Look which shards are missing now. Return whether one has come back since the last call."""
        shards_before, self._missing_shards = self._missing_shards, {*self._find_missing()}
        return not shards_before <= self._missing_shards

    def newest_ticks(self, question: Question) -> NewestTicks:
        """The newest wall ticks of a question's devices. NotKnownError while shards are missing."""
        self._missing_shards.update(self._find_missing())
        if self._missing_shards:
            raise NotKnownError(f"shards {(*sorted(self._missing_shards),)} are missing")
        return super().newest_ticks(question)

    def known_devices(self, question: Question) -> tuple[str, ...]:
        """Return a question's devices. Read first which ticks they have accounted for, once after each `refresh`."""
        start_time = time.monotonic()
        devices_by_name = defaultdict[str, list[str]](list)
        sequences = [(device, name) for device in question.devices for name, _ in question.sequences(device)]
        for device, name in sequences:
            if (device, name) not in self._accounts:
                devices_by_name[name].append(device)
        for name, devices in devices_by_name.items():
            sequence_numbers = self._store.numbers(name, devices)
            accounts = self._store.coverage_and_shifts([*sequence_numbers.values()])
            for device in devices:
                account = accounts[sequence_numbers[device]] if device in sequence_numbers else (Coverage(), Shifts())
                self._accounts[device, name] = account
        self._seconds_read += time.monotonic() - start_time
        return question.devices


class WholeFleet(_Sharing):
    """The duty of the process of the whole fleet: the work that a site does once, and no shard does."""

    shares = True

    def __init__(self, settings: GatewayConfig, shards: int) -> None:
        super().__init__(settings)
        self._shards = shards

    def store(self) -> Store:
        """Open the store, and take the fleet's lease even from a process that has it. Raises StoreError."""
        return Store(self._settings.store, lease=Lease(take=True, shares=True))

    def details(self) -> dict[str, object]:
        """The missing shards under `missing`, for the gateway's status."""
        return {"missing": [f"shard {index}/{self._shards}" for index in self._shard_watch.missing]}

    def arrange(self, store: Store) -> None:
        """Let this number of shards share the devices from now on, and no other processes. Raises DatabaseError."""
        store.arrange(self._shards, lambda: self._seal(store))

    def open(self, loop: Loop, monitor: Monitor, usage: Usage) -> Recorder | None:
        """Make a site's single parts, and the watch over the shards. Return `None`, because shards take the frames."""
        settings = self._settings
        loop.catalogue.retire(loop.store.policy_documents())
        channel = self._open_channel(Lease("fleet", take=True))
        channel.begin()
        loop.link.unsubscribe(frame_topics(settings.fleet))  # an earlier session may have subscribed to all frames
        watch_channel = ShardChannel(channel_of(settings.store))
        self._shard_watch = shard_watch = ShardWatch(watch_channel, self._shards, loop.counters)
        monitor.elsewhere = shard_watch
        self.resources.callback(shard_watch.stop)
        progress = FleetProgress(loop.store, self._shards, lambda: shard_watch.missing)
        self._add_site_parts(loop, lambda: progress)
        loop.parts.append(ShardReader(loop, channel, progress, self._releasing))
        shard_watch.start()
        return None


class OwnDevices(Part):
    """Subscribes to a shard's devices. The loop's counters count `strays`: messages of other shards' devices."""

    def __init__(self, loop: Loop, shard: Shard) -> None:
        super().__init__(loop)
        self._shard = shard
        self._subscribed: set[str] = set()
        self._strays: set[str] = set()
        self.renew()

    def heard(self, message: Message) -> bool:
        """Take a message of another shard's device, and end its subscription. Return whether it was one."""
        try:
            parsed = message.parsed
        except FuguError:
            return False  # another part counts unreadable messages
        if not (device := parsed.device) or self._shard.owns(device):
            return False
        self._counters["strays"] += 1
        if device not in self._strays and len(self._strays) < _MOST_STRAYS:
            self._strays.add(device)
            self._link.unsubscribe(_topics(self._fleet, device))
        return True

    def connected(self, *, begun_anew: bool) -> None:
        """Forget which subscriptions were ended: the broker may have them again."""
        self._strays.clear()

    def renew(self) -> None:
        """Subscribe to devices that are new in the catalogue."""
        new_devices = [device for device in self._catalogue.names() if device not in self._subscribed]
        self._link.subscribe(topic for device in new_devices for topic in _topics(self._fleet, device))
        self._subscribed.update(new_devices)

    def pump(self, *, idle: bool = False) -> None:
        """Raise FileLostError if another process has the shard's lease, even while no device sends anything."""
        self.due = self._seconds() + _LOOK_SECONDS
        self._store.check()


def _topics(fleet: str, device: str) -> tuple[str, ...]:
    return (*frame_topics(fleet, device), topic_of("status", fleet, device))


class ShardReader(Part):
    """Reads what shards have stored, and writes for them the first ticks that releases still need.

    The channel belongs to the worker's thread. The progress is that of all shards. Without releases, `releasing` is
    `None`.
    """

    def __init__(
        self, loop: Loop, channel: ShardChannel, progress: FleetProgress, releasing: ReleasePart | None
    ) -> None:
        super().__init__(loop)
        self._channel, self._progress, self._releasing = channel, progress, releasing
        self._needed_ticks: dict[tuple[str, str], int] | None = None

    def pump(self, *, idle: bool = False) -> None:
        """Read what shards have stored, and write needed ticks. FileLostError if another process has a lease."""
        self.due = self._seconds() + _LOOK_SECONDS
        self._store.check()
        self._channel.check()
        if self._releasing is not None:
            if self._progress.note_return():
                self._releasing.wait_again()
            if self._progress.refresh():
                self._releasing.stored()
        with suppress(NotKnownError):
            needed_ticks = {} if self._releasing is None else self._releasing.needed_ticks()
            if needed_ticks != self._needed_ticks:
                self._channel.put_needed(needed_ticks)
                self._needed_ticks = needed_ticks
