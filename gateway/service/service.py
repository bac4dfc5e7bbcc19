"""The gateway process: one connection, one store, one worker.

The network thread only puts what arrives into the inbox. The worker takes what has piled up, stores all new frames in
one transaction, and only then says so: watermarks first, then estimates. Nothing that arrives ends it, nor a disk that
is full; what could not be stored is missing in the watermark, and its device sends it again. But a store or a ledger
that is gone or damaged, or a store that has taken nothing for a minute, ends the process with a line that says so: it
is started anew, looks at its files then, and lives on or says what to do. Nobody is told that it lives in between.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from contract.errors import FuguError, Reason
from contract.health import Health, encode_health
from contract.topics import description_topic, health_topic, status_topic, symbols_topic, window_topic
from gateway.dphmm.tracking import warm as warm_points
from gateway.release.entries import LedgerError
from gateway.release.ledger import Ledger
from gateway.service.contradictions import Contradictions, Stopping
from gateway.service.describing import Describing, digest
from gateway.service.fleet_service import FleetService
from gateway.service.home_assistant import HomeAssistant
from gateway.service.ingest import (
    Acknowledged,
    Birth,
    Connected,
    Event,
    Inbox,
    Ingest,
    Message,
    Received,
)
from gateway.service.kinds.symbol_model import warm
from gateway.service.metrics import Metrics, Reading
from gateway.service.monitor import Monitor, Sources
from gateway.service.policies import Catalogue
from gateway.service.publisher import MAX_IN_FLIGHT, Publisher
from gateway.service.recorder import Recorder
from gateway.service.release_schedule import Schedule
from gateway.service.release_setup import Releases, ledger_beside, open_releases
from gateway.service.retention import Retention
from gateway.service.settings import GatewaySettings, SettingsError
from gateway.service.store import Store, estimates_waiting, hold_store
from gateway.service.table_sender import TableSender
from host.checks import certificate_end
from host.database import DatabaseError, is_full, is_lost
from host.held_files import FileLostError
from mqtt_link import Link, Will

__all__ = ["IDLE_SECONDS", "STUCK_SECONDS", "Gateway"]

_log = logging.getLogger(__name__)
_INBOX_MESSAGES = 20_000
_INBOX_BYTES = 1 << 25
_INBOX_PATIENCE_SECONDS = 5.0
_BATCH = 250
IDLE_SECONDS = 0.5
_FAREWELL_SECONDS = 5.0
STUCK_SECONDS = 120.0
_FAILING_SECONDS = 60.0
_LARGEST_BYTES = 1 << 16
"""Of a frame, and of most descriptions; a larger one is said again at every connection."""


class UselessError(FuguError):
    """The store or the ledger can be used no more."""


class Gateway:
    """A gateway that runs in threads of its own between `start` and `stop`.

    Attributes:
        counters: what has happened so far, by name; refusals under their `Reason`.
        failed: set if the worker has ended by itself: its files are of no use, or it met what it never should.
    """

    def __init__(self, settings: GatewaySettings) -> None:
        self.counters: Counter[str] = Counter()
        self.failed = threading.Event()
        fleet = settings.fleet
        self._settings = settings
        self._last_round = time.monotonic()
        self._failing_since: float | None = None
        self._unreachable = False
        self._clients = 0
        self._ledger: Ledger | None = None
        self._releases: Releases | None = None
        self._enrolled: FleetService | None = None
        self._metrics: Metrics | None = None
        self._inbox = Inbox(_INBOX_MESSAGES, _INBOX_BYTES, _INBOX_PATIENCE_SECONDS)
        self._link = Link(
            settings.broker,
            client_id=f"gateway-{fleet}",
            subscriptions=(
                symbols_topic(fleet, "+", "+"),
                window_topic(fleet, "+", "+"),
                status_topic(fleet, "+"),
                *Describing.topics(fleet),
                *(FleetService.topics(fleet) if settings.enrolled else ()),
                *(HomeAssistant.topics() if settings.home_assistant else ()),
            ),
            durable=True,
            max_payload=_LARGEST_BYTES,
            max_in_flight=3 * MAX_IN_FLIGHT,  # watermarks, estimates, and the rest
            will=Will(health_topic(fleet), encode_health(Health(online=False))),
            on_connected=lambda: self._inbox.notify(Connected()),
            on_message=self._delivered,
            on_published=self._answered,
            on_absent=self._say_unreachable,
        )
        self._descriptions = description_topic(fleet, "+", "+").removesuffix("+/+")
        self._worker = threading.Thread(target=self._work, name="gateway-worker")

    def start(self) -> None:
        """Check policies and store, compile the kernels, then begin to connect.

        Raises:
            FuguError: one line that says which policy, store or setting is wrong.
        """
        fleet, files = self._settings.fleet, self._settings.enrolled
        catalogue = Catalogue.load(self._settings.policies, fleet)
        self._held = hold_store(self._settings.store)
        try:
            self._store = Store(self._settings.store)
        except BaseException:
            self._held.close()
            raise
        try:
            self._store.refuse_damage()
            if self._settings.metrics is not None:
                self._metrics = Metrics(self._settings.metrics, self._measured)
            if files is not None:
                self._enrolled = FleetService(fleet, files, self._link, catalogue, self.counters)
            catalogue.retire(self._store.policy_documents())
            warm()
            if catalogue.measured():
                warm_points()
            self._recorder = Recorder(
                *(self._store, catalogue, self._settings.lag, self.counters),
                conflict=lambda *seen: self._contradictions.found(*seen),
            )
            self._monitor = Monitor(fleet, self._settings.store, self._link, self._sources(catalogue))
            self._ingest = Ingest(catalogue, self.counters, refused=self._monitor.refused)
            self._contradictions = Contradictions(fleet, self._store, self._link, self._monitor, self._stopping())
            sealed, key = (None, None) if self._enrolled is None else (self._enrolled.sealed, self._enrolled.key)
            self._publisher = Publisher(self._link, fleet, self._store, self._recorder, self.counters, key=key)
            self._tables = TableSender(self._store, catalogue, self._recorder, self._link, self.counters, sealed=sealed)
            left = (lambda _device: False) if self._enrolled is None else self._enrolled.has_left
            self._describing = Describing(self._link, catalogue, self.counters, left)
            described = self._describing.described if self._settings.home_assistant else None
            self._told = HomeAssistant(fleet, self._link, self._store, described, self.counters)
            schedule = self._schedule = self._open_schedule(catalogue)
            self._retention = Retention(
                *(self._settings.keep, self._store, catalogue, self._recorder),
                *((lambda: {}) if schedule is None else schedule.needed, self._settings.lag, self.counters),
            )
            self._link.start()
            if self._enrolled is not None:
                self._enrolled.start()
        except BaseException:
            self._close()
            raise
        self._worker.start()
        self._monitor.start()
        if self._metrics is not None:
            self._metrics.start()

    def _stopping(self) -> Stopping | None:
        """How devices that contradict themselves are stopped, if they are."""
        if self._settings.on_conflict == "alarm":
            return None
        if self._enrolled is None or (stopping := self._enrolled.stopping) is None:
            raise SettingsError("to stop devices the gateway needs the fleet's registry and the gateway's key")
        return stopping

    def _sources(self, catalogue: Catalogue) -> Sources:
        """What the monitor looks at."""
        known = [device for device in catalogue.names() if self._recorder.has_frames(device)]
        age, details = (lambda: time.monotonic() - self._last_round), self._details
        return Sources(catalogue, self.counters, known, age, STUCK_SECONDS, self._certificates, details)

    def _certificates(self) -> dict[str, float]:
        """When the certificates end by which the gateway and the broker know each other."""
        broker, enrolled = self._settings.broker, self._settings.enrolled
        files = {"authority": broker.ca_file, "gateway": broker.cert_file}
        files["operator"] = None if enrolled is None else enrolled.operator.cert_file
        found = {} if self._link.certificate_end is None else {"broker": self._link.certificate_end}
        for name, file in files.items():
            if file is not None:
                with contextlib.suppress(OSError, ValueError):  # without them there is no connection, which is said
                    found[name] = certificate_end(Path(file))[1]
        return found

    def _store_bytes(self) -> int:
        """What the store and its log take on the disk."""
        found, store = 0, self._settings.store
        for file in (store, store.with_name(f"{store.name}-wal")):
            with contextlib.suppress(OSError):
                found += file.stat().st_size
        return found

    def _measured(self) -> Reading:
        """For a scrape."""
        age = time.monotonic() - self._last_round
        return Reading(
            *(self._monitor.latest, self.counters, self._link.connected, age),
            *(self._inbox.waiting, self._store_bytes()),
        )

    def _details(self) -> dict[str, object]:
        """For those who ask: what only the gateway itself knows."""
        return {
            "inbox": self._inbox.waiting,
            "store_bytes": self._store_bytes(),
            "estimates_waiting": estimates_waiting(self._settings.store),
            "next_releases": {} if self._schedule is None else self._schedule.following(),
        }

    def _open_schedule(self, catalogue: Catalogue) -> Schedule | None:
        settings = self._settings
        if settings.releases is None:
            return None
        path = settings.ledger or ledger_beside(settings.store)
        releases = open_releases(settings.releases, path, self._store, catalogue)
        self._ledger, self._releases = releases.ledger, releases
        return Schedule(releases.jobs, releases.maker, self._recorder, self._link, self.counters)

    def _renew_allowances(self) -> None:
        """New policies may allow less; what cannot be accounted for is not released any more."""
        try:
            if (ours := self._releases) is not None:
                ours.renew()
        except (FuguError, DatabaseError) as error:
            _log.error("releases end, because a new policy cannot be accounted for: %s", error)
            self.counters["ledger_errors"] += 1
            self._schedule = self._releases = None

    def stop(self) -> None:
        """Store and acknowledge what has arrived, then disconnect."""
        self._inbox.close()
        self._worker.join()
        self._monitor.stop()
        self._link.stop()
        self._close()

    def _close(self) -> None:
        if self._metrics is not None:
            self._metrics.stop()
        self._store.close()
        if self._enrolled is not None:
            self._enrolled.stop()
        if self._ledger is not None:
            self._ledger.close()
        self._held.close()

    @property
    def is_alive(self) -> bool:
        """Whether the worker has finished a round of late, and could store what there was."""
        return self._failing_since is None and time.monotonic() - self._last_round < STUCK_SECONDS

    @property
    def last_error(self) -> str:
        """The connection's newest problem in words, empty while all is well."""
        return self._link.last_error

    def _delivered(self, topic: str, payload: bytes, retained: bool) -> None:
        if topic.startswith(self._descriptions):
            if not retained:
                return  # our own, as it is published
            payload = digest(payload)
        if not self._inbox.deliver(Message(topic, payload)):
            self.counters["not_taken"] += 1

    def _answered(self, message_id: int, accepted: bool) -> None:
        if not accepted:
            self.counters["publish_refused"] += 1
        self._inbox.notify(Acknowledged(message_id, accepted))

    def _report_connection(self) -> None:
        """Say in one line that there is no connection, and in one that there is again."""
        if self._link.connected and self._unreachable:
            self._unreachable = False
            _log.warning("connected to the broker")
        elif not self._link.connected and self._link.last_error:
            self._say_unreachable(self._link.last_error)

    def _say_unreachable(self, why: str) -> None:
        if not self._unreachable:
            fleet = self._settings.fleet
            _log.warning("fleet %s: no connection to the broker: %s; trying until there is one", fleet, why)
        self._unreachable = True

    def _work(self) -> None:
        try:
            while not self._inbox.drained:
                self._last_round = time.monotonic()
                self._link.maintain()
                self._report_connection()
                busy = self._schedule is not None and self._schedule.busy
                self._round(self._inbox.take(_BATCH, 0.0 if busy else IDLE_SECONDS))
            deadline = time.monotonic() + _FAREWELL_SECONDS
            while self._link.connected and not self._finished and time.monotonic() < deadline:
                self._round(self._inbox.take_after_close(IDLE_SECONDS))
        except UselessError as error:
            _log.critical("the gateway ends: %s", error)
            self.failed.set()
        except BaseException as error:
            _log.critical("the worker has ended: %s", type(error).__name__)
            self.failed.set()
            raise

    @property
    def _finished(self) -> bool:
        return self._publisher.finished and (self._schedule is None or self._schedule.finished)

    def _round(self, events: Sequence[Event]) -> None:
        batch: list[Received] = []
        if oversized := self._inbox.oversized():
            self.counters["received"] += oversized
            self.counters[Reason.OVERSIZED] += oversized
        for event in events:
            if isinstance(event, Message):
                if self._describing.heard(event.topic, event.payload):
                    continue
                if self._enrolled is not None and self._enrolled.heard(event.topic, event.payload):
                    continue
                if self._told.heard(event.topic, event.payload):
                    continue
                meaning = self._ingest.read(event.topic, event.payload)
                if isinstance(meaning, Received):
                    batch.append(meaning)
                elif isinstance(meaning, Birth):
                    self.counters["births"] += 1
                    self._publisher.owe(meaning.device)
                    self._tables.born(meaning.device)
            elif isinstance(event, Acknowledged):
                self._publisher.acknowledged(event.message_id)
                self._acknowledged_release(event)
                self._use_store(partial(self._told.acknowledged, *event))
            else:
                self._connected()
        if batch:
            self._monitor.received(batch)
            self._record(batch)
            for received in batch:
                self._publisher.owe(received.device)
                self._tables.stored(received.device, received.stream)
        if self._enrolled is not None and self._enrolled.pump():
            self._tables.renew()
            self._describing.renew()
            self._renew_allowances()
            self._told.renew()
        self._describing.pump()
        self._use_store(self._tables.pump)
        self._use_store(self._contradictions.pump)
        self._use_store(self._told.pump)
        self._use_store(lambda: self._publisher.pump(idle=not events))
        self._use_store(self._retention.pump)
        if (schedule := self._schedule) is not None:
            if batch:
                schedule.stored()
            self._use_store(lambda: schedule.pump(idle=not events))

    def _use_store(self, pump: Callable[[], None]) -> None:
        try:
            pump()
        except (DatabaseError, LedgerError) as error:
            self._store_failed(error)

    def _connected(self) -> None:
        """The broker may have come back without what was retained: it is told again."""
        self._monitor.connected()
        self._describing.connected()
        begun_anew, self._clients = self._link.clients != self._clients, self._link.clients
        self._contradictions.connected()
        self._told.connected()
        if self._enrolled is not None:
            self._enrolled.connected()
        if self._schedule is not None:
            self._schedule.connected()
        if begun_anew:
            self._publisher.begin_anew()
            if self._schedule is not None:
                self._schedule.begin_anew()

    def _acknowledged_release(self, event: Acknowledged) -> None:
        try:
            if self._schedule is not None:
                self._schedule.acknowledged(event.message_id, event.accepted)
        except DatabaseError as error:  # the release counts as not published, and is published again at the next start
            self._end_if_lost(error)
            self.counters["ledger_errors"] += 1

    def _record(self, batch: Sequence[Received]) -> None:
        """Store a batch; if one frame brings an error that nobody thought of, only that frame is left out."""
        try:
            self._recorder.record(batch)
            self._failing_since = None
        except DatabaseError as error:
            self.counters["not_stored"] += len(batch)
            self._store_failed(error)
        except Exception as error:
            if len(batch) > 1:
                self._record(batch[: len(batch) // 2])
                self._record(batch[len(batch) // 2 :])
            else:
                self.counters["unexpected"] += 1
                _log.error("a frame could not be taken: %s", type(error).__name__)

    def _store_failed(self, error: DatabaseError | LedgerError) -> None:
        """Count, and go on; but not for ever with what does not heal by itself."""
        self.counters["store_errors"] += 1
        if self.counters["store_errors"] == 1:
            _log.error("the store does not take data: %s; devices will send again", error)
        self._end_if_lost(error)
        if is_full(error) or isinstance(error, LedgerError):
            return
        now = time.monotonic()
        self._failing_since = self._failing_since or now
        if now - self._failing_since >= _FAILING_SECONDS:
            raise UselessError(f"the store has taken nothing for {_FAILING_SECONDS:g} s ({error})")

    def _end_if_lost(self, error: Exception) -> None:
        """A file that is gone or damaged is looked at by the next start, which says what to do."""
        if isinstance(error, FileLostError):
            raise UselessError(f"{error}: nothing is stored or called durable any more") from None
        if is_lost(error):
            raise UselessError(f"the store or the ledger is damaged ({error})") from None
