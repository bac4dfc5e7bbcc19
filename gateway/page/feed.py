"""The page's messages from the broker: one connection of one account, subscribed to the devices that are shown."""

from __future__ import annotations

import asyncio
import logging
import secrets
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress

from fugu.contract.errors import FuguError
from fugu.contract.reports import ReleaseFrame
from fugu.contract.topics import Kind, Topic, parse_topic, topic_of
from fugu.mqtt import Broker, Link
from fugu.mqtt.packets import Message
from gateway.page import Fields
from gateway.page.attackers import AttackProcess
from gateway.page.device_view import DeviceView
from gateway.page.fleet_view import FleetQuery, FleetView
from gateway.page.ledger_view import LedgerView
from gateway.page.memory import MOST_REMEMBERED, Memory
from gateway.store.location import Location

__all__ = ["Feed"]

_log = logging.getLogger(__name__)
_POLL_SECONDS = 0.2
_MOST_WAITING = 500
_MOST_RELEASES = 500
_FLEET_KINDS = {"status", "policy_status", "policy_set", "health"}
_ATTACK_SECONDS, _LEDGER_SECONDS, _MEMORY_SECONDS = 1.0, 2.0, 1.0
"""Seconds from one run of the attackers to the next, of the ledger's look-up, and of the update of the memory."""


class Watcher:
    """A reader of a device's page, in an event loop.

    `waiting_updates` were not taken yet; of too many the oldest is dropped. `wake` is set while updates wait.
    """

    def __init__(self, device: str) -> None:
        self.device = device
        self.waiting_updates: deque[Fields] = deque(maxlen=_MOST_WAITING)
        self.wake = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def tell(self, update: Fields) -> None:
        """Add an update to those that wait, from any thread that holds the feed's lock."""
        if not self.waiting_updates:
            self._loop.call_soon_threadsafe(self.wake.set)
        self.waiting_updates.append(update)


class Feed:
    """The state that the page shows, and the watchers of each device.

    The network thread reads messages. While it is behind, the broker keeps further messages. Other work runs in an
    event loop or in its threads. One lock guards the state. Another, which is taken first, keeps subscriptions in the
    order of the changes that they follow.
    """

    def __init__(self, fleet: str, broker: Broker, ledger: LedgerView, store: Location | None = None) -> None:
        self.fleet = fleet
        self._store = store
        self._watched = asyncio.Event()
        self.ledger = ledger
        self.account = broker.username
        self._lock = threading.Lock()
        self._link_lock = threading.Lock()
        self._view = FleetView()
        self._memory = Memory()
        self._memory_changes = 0
        self._devices: dict[str, DeviceView] = {}
        self._releases: dict[tuple[str, str, int], Fields] = {}
        self._release_changes = 0
        self._attackers = AttackProcess()
        kinds: tuple[Kind, ...] = ("status", "policy_status", "policy_set")
        device_topics = [topic_of(kind, fleet, "+") for kind in kinds]
        self.link = Link(
            broker,
            client_id=f"page-{secrets.token_hex(6)}",
            subscriptions=(*device_topics, topic_of("health", fleet), topic_of("release", fleet, "+", "+")),
            on_messages=self._on_messages,
        )

    async def run(self) -> None:
        """Keep the connection to the broker until cancelled."""
        self.link.start()
        tasks = [
            asyncio.create_task(_repeat(_ATTACK_SECONDS, self._run_attacks, self._watched)),
            asyncio.create_task(_repeat(_LEDGER_SECONDS, self._read_budgets)),
            asyncio.create_task(_repeat(_MEMORY_SECONDS, self._remember_devices)),
        ]
        try:
            while True:
                await asyncio.sleep(_POLL_SECONDS)
                if self.link.falls_back:
                    await asyncio.to_thread(self.link.maintain)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.to_thread(self._attackers.close)
            await asyncio.to_thread(self.link.stop)

    @property
    def about(self) -> Fields:
        """The fleet, account and ledger of this view, and the state and last error of the broker connection."""
        connection = {"connected": self.link.connected, "error": self.link.last_error}
        return {"fleet": self.fleet, "account": self.account, "ledger": self.ledger.view, **connection}

    @property
    def changes(self) -> tuple[tuple[int, int], int]:
        """Counters that grow with each change: a pair for the fleet and the memory, and one for the releases."""
        return (self._view.changes, self._memory_changes), self._release_changes

    def fleet_page(self, query: FleetQuery) -> Fields:
        """Return a page of the fleet. From now on, its devices are remembered."""
        with self._link_lock:
            with self._lock:
                page = self._view.page(query)
                device_names = [row["name"] for row in page["rows"]]
                new_and_removed = self._memory.remember(device_names, self._devices)
                for row in page["rows"]:
                    row["newest"] = self._memory.headlines(row["name"])
            self._subscribe(*new_and_removed)
        return page

    def member(self, device: str) -> Fields | None:
        """Return the state of a device; `None` if the device is unknown."""
        with self._lock:
            return self._view.member(device)

    def releases(self) -> list[Fields]:
        """Return the newest releases, the newest first."""
        with self._lock:
            return list(self._releases.values())[::-1]

    def watch(self, device: str) -> Watcher:
        """Begin to watch a device; its kept updates wait for the watcher. TopicError if no device has such a name."""
        topics = frame_topics(self.fleet, device)
        watcher = Watcher(device)
        with self._link_lock:
            with self._lock:
                new_and_removed = self._memory.remember([device], self._devices)
                self._memory.read()
                if is_first := (view := self._devices.get(device)) is None:
                    view = self._devices[device] = DeviceView()
                    for kind, status in self._view.statuses(device).items():
                        view.take(Topic(kind, self.fleet, device, ""), *status)
                    for topic, payload in self._memory.messages(device):
                        view.take(topic, payload)
                watcher.waiting_updates.extend(view)
                view.listeners.append(watcher.tell)
            self._subscribe(*new_and_removed)
            if is_first:
                self.link.subscribe(topics)
        self._watched.set()
        return watcher

    def take(self, watcher: Watcher) -> list[Fields]:
        """Return all updates that wait for a watcher, and remove them."""
        with self._lock:
            return self._take_waiting(watcher)

    def take_and_show(self, watcher: Watcher) -> tuple[list[Fields], list[Fields]]:
        """Return and remove the updates that wait for a watcher; also return the device's kept updates."""
        with self._lock:
            updates, device = self._take_waiting(watcher), watcher.device
            self._memory.read()
            return updates, [*self._devices[device], *self._memory.histories(device)]

    def _take_waiting(self, watcher: Watcher) -> list[Fields]:
        updates = list(watcher.waiting_updates)
        watcher.waiting_updates.clear()
        watcher.wake.clear()
        return updates

    def leave(self, watcher: Watcher) -> None:
        """Remove a watcher; with a device's last watcher also the device's view and subscriptions."""
        with self._link_lock:
            with self._lock:
                listeners = self._devices[watcher.device].listeners
                listeners.remove(watcher.tell)
                is_last = not listeners
                if is_last:
                    del self._devices[watcher.device]
            if is_last:
                self.link.unsubscribe(frame_topics(self.fleet, watcher.device))

    def _subscribe(self, new_devices: Iterable[str], removed_devices: Iterable[str]) -> None:
        self.link.unsubscribe([topic for device in removed_devices for topic in report_topics(self.fleet, device)])
        self.link.subscribe([topic for device in new_devices for topic in report_topics(self.fleet, device)])

    def _remember_devices(self) -> None:
        """Remember the first devices of the fleet while there is room; without room, forget some."""
        with self._link_lock:
            with self._lock:
                self._memory.read()
                device_names = [] if self._memory.is_full else self._view.names(MOST_REMEMBERED)
                new_and_removed = self._memory.remember(device_names, self._devices)
                self._memory_changes = self._memory.changes
            self._subscribe(*new_and_removed)

    def _on_messages(self, messages: list[Message]) -> None:
        now = time.time()
        with self._lock:
            for topic_text, payload, _ in messages:
                try:
                    topic = parse_topic(topic_text)
                    if topic.kind in _FLEET_KINDS:
                        self._view.take(topic, payload, now)
                    elif topic.kind == "release":
                        self._take_release(payload)
                    self._memory.take(topic, payload)
                    if (view := self._devices.get(topic.device)) is not None:
                        view.take(topic, payload, now)
                except FuguError:
                    self._view.refused_count += 1

    def _read_stored_counts(self, store: Location) -> None:
        """Read a week of stored counts of the watched devices, once for each version of a stream."""
        with self._lock:
            reads = [(name, ticks) for name, view in self._devices.items() if (ticks := view.stored_due(time.time()))]
        for device, first_ticks in reads:
            answer = self._attackers.ask("stored_counts", store, device, first_ticks)
            if "none" in answer:
                _log.warning("the page has no counts of the store: %s", answer["none"])
            with self._lock:
                if (view := self._devices.get(device)) is None:
                    continue
                for stream, frames in answer.get("frames", {}).items():
                    _, reports = view.take_stored(Topic("window", self.fleet, device, stream), frames)
                    self._memory.prepend_stored(device, stream, reports)
                for history in self._memory.histories(device):
                    view.tell(history)

    def _run_attacks(self) -> None:
        """Run the attackers on new messages of the watched devices, in a thread that nobody waits for."""
        if self._store is not None:
            self._read_stored_counts(self._store)
        with self._lock:
            requests = [(name, function) for name, view in self._devices.items() for function in view.attacks_due()]
        for device, ask_update in requests:
            update = ask_update(self._attackers.ask)
            with self._lock:
                if device in self._devices:
                    self._devices[device].keep(update)
        self._attackers.end_if_idle()

    def _read_budgets(self) -> None:
        with self._lock:
            devices = list(self._devices)
        for device in devices:
            accounts = self.ledger.budgets(device)
            with self._lock:
                if device in self._devices:
                    self._devices[device].take_budgets(accounts)

    def _take_release(self, payload: bytes) -> None:
        if not payload:
            return
        frame = ReleaseFrame.decode(payload)
        fields = {name: str(value) if name in ("time", "since") else value for name, value in frame.flat().items()}
        value_fields = {"values": frame.values, "low_values": frame.low, "high_values": frame.high}
        release_key = (frame.audience, frame.name, frame.entry)
        self._releases.pop(release_key, None)
        self._releases[release_key] = {**fields, **value_fields, "condition": frame.condition}
        if len(self._releases) > _MOST_RELEASES:
            del self._releases[next(iter(self._releases))]
        self._release_changes += 1


def report_topics(fleet: str, device: str) -> list[str]:
    """Return the topics of a remembered device. TopicError if `device` is no device's name."""
    kinds: tuple[Kind, ...] = ("description", "estimate", "count")
    return [topic_of(kind, fleet, device, "+") for kind in kinds]


def frame_topics(fleet: str, device: str) -> list[str]:
    """Return the further topics of a watched device. TopicError if `device` is no device's name."""
    return [topic_of("symbols", fleet, device, "+"), topic_of("window", fleet, device, "+")]


async def _repeat(seconds: float, job: Callable[[], None], wake: asyncio.Event | None = None) -> None:
    """Run a job in a thread every `seconds`, or when woken; a failed run is logged and ends nothing."""
    wake = wake or asyncio.Event()
    while True:
        with suppress(TimeoutError):
            await asyncio.wait_for(wake.wait(), seconds)
        wake.clear()
        try:
            await asyncio.to_thread(job)
        except Exception:
            _log.exception("what the page shows is not complete")
