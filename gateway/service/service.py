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
from contract.topics import description_topic, health_topic
from gateway.dphmm.tracking import warm as warm_points
from gateway.release.entries import LedgerError
from gateway.service.describing import digest
from gateway.service.enrolled import Enrolled
from gateway.service.fleet_part import FleetPart
from gateway.service.ingest import (
    Acknowledged,
    Connected,
    Event,
    Inbox,
    Ingest,
    Message,
)
from gateway.service.intake import Intake
from gateway.service.metrics import Metrics, Reading
from gateway.service.monitor import Monitor, Sources
from gateway.service.policies import Catalogue
from gateway.service.publisher import MAX_IN_FLIGHT
from gateway.service.recorder import Recorder
from gateway.service.settings import GatewaySettings
from gateway.service.store import Store, store_bytes
from gateway.service.symbols.arrivals import Arrivals
from gateway.service.symbols.warming import warm
from host.checks import certificate_end
from host.database import AwayError, DatabaseError, is_full, is_lost
from host.held_files import FileLostError
from mqtt_link import Link, Will

__all__ = ["IDLE_SECONDS", "STUCK_SECONDS", "Gateway"]

_log = logging.getLogger(__name__)
_INBOX_MESSAGES = 20_000
_INBOX_BYTES = 1 << 25
_INBOX_PATIENCE_SECONDS = 5.0
_BATCH = 2_000
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
        self._enrolled: Enrolled | None = None
        self._fleet_part: FleetPart | None = None
        self._metrics: Metrics | None = None
        self._inbox = Inbox(_INBOX_MESSAGES, _INBOX_BYTES, _INBOX_PATIENCE_SECONDS)
        self._link = Link(
            settings.broker,
            client_id=f"gateway-{fleet}",
            subscriptions=(*Intake.topics(fleet), *FleetPart.topics(settings)),
            durable=True,
            max_payload=_LARGEST_BYTES,
            max_in_flight=3 * MAX_IN_FLIGHT,  # watermarks, estimates, and the rest
            will=Will(health_topic(fleet), encode_health(Health(online=False))),
            on_connected=lambda: self._inbox.notify(Connected()),
            on_messages=self._delivered,
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
        settings, fleet, files = self._settings, self._settings.fleet, self._settings.enrolled
        catalogue = Catalogue.load(self._settings.policies, fleet)
        self._store = Store(self._settings.store, hold="")
        try:
            self._store.refuse_damage()
            if self._settings.metrics is not None:
                self._metrics = Metrics(self._settings.metrics, self._measured)
            if files is not None:
                self._enrolled = Enrolled(fleet, files, catalogue, self.counters)
            catalogue.retire(self._store.policy_documents())
            warm()
            if catalogue.measured():
                warm_points()
            self._recorder = Recorder(
                *(self._store, catalogue, self._settings.lag, self.counters),
                conflict=lambda *seen: self._intake.contradictions.found(*seen),
            )
            self._monitor = Monitor(fleet, self._settings.store, self._link, self._sources(catalogue))
            self._ingest = Ingest(
                *(catalogue, self.counters), refused=self._monitor.refused, streams=self._recorder.streams
            )
            everything = (settings, self._link, self._store, catalogue, self._recorder)
            self._fleet_part = FleetPart(*everything, self._enrolled, self.counters)
            self._intake = Intake(
                *(*everything, self._monitor, self._enrolled),
                *(self._fleet_part.needed, self.counters),
            )
            self._link.start()
            self._fleet_part.start()
        except BaseException:
            self._close()
            raise
        self._worker.start()
        self._monitor.start()
        if self._metrics is not None:
            self._metrics.start()

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

    def _measured(self) -> Reading:
        """For a scrape."""
        age = time.monotonic() - self._last_round
        return Reading(
            *(self._monitor.latest, self.counters, self._link.connected, age),
            *(self._inbox.waiting, store_bytes(self._settings.store)),
        )

    def _details(self) -> dict[str, object]:
        """For those who ask: what only the gateway itself knows."""
        return {
            "inbox": self._inbox.waiting,
            "store_bytes": store_bytes(self._settings.store),
            "estimates_waiting": self._intake.reports_waiting,
            "next_releases": {} if self._fleet_part is None else self._fleet_part.following(),
        }

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
        if self._fleet_part is not None:
            self._fleet_part.stop()
        if self._enrolled is not None:
            self._enrolled.close()

    @property
    def is_alive(self) -> bool:
        """Whether the worker has finished a round of late, and could store what there was."""
        return self._failing_since is None and time.monotonic() - self._last_round < STUCK_SECONDS

    @property
    def last_error(self) -> str:
        """The connection's newest problem in words, empty while all is well."""
        return self._link.last_error

    def _delivered(self, messages: Sequence[tuple[str, bytes, bool]]) -> None:
        taken = [
            Message(topic, digest(payload) if topic.startswith(self._descriptions) else payload)
            for topic, payload, retained in messages
            if retained or not topic.startswith(self._descriptions)  # else it is our own, as it is published
        ]
        if missed := self._inbox.deliver(taken):
            self.counters["not_taken"] += missed

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
                busy = self._fleet_part is not None and self._fleet_part.busy
                self._round(self._inbox.take(_BATCH, 0.0 if busy else IDLE_SECONDS))
            deadline = time.monotonic() + _FAREWELL_SECONDS
            while self._link.connected and not self._finished and time.monotonic() < deadline:
                self._round(self._inbox.take_after_close(IDLE_SECONDS))
            self._use_store(self._intake.seal)
        except UselessError as error:
            _log.critical("the gateway ends: %s", error)
            self.failed.set()
        except BaseException as error:
            _log.critical("the worker has ended: %s", type(error).__name__)
            self.failed.set()
            raise

    @property
    def _finished(self) -> bool:
        return self._intake.finished and (self._fleet_part is None or self._fleet_part.finished)

    def _round(self, events: Sequence[Event]) -> None:
        if oversized := self._inbox.oversized():
            self.counters["received"] += oversized
            self.counters[Reason.OVERSIZED] += oversized
        once = self._fleet_part
        messages: list[Message] = []
        for event in events:
            if isinstance(event, Message):
                if once is None or not once.heard(event.topic, event.payload):
                    messages.append(event)
            elif isinstance(event, Acknowledged):
                self._intake.acknowledged(event.message_id)
                if once is not None:
                    self._use_store(partial(once.acknowledged, *event))
            else:
                self._connected()
        if messages:
            self._take(messages)
        if self._enrolled is not None and self._enrolled.refresh():
            self._intake.renew()
            if once is not None:
                once.renew()
        for pump in (*self._intake.pumps(idle=not events), *(() if once is None else once.pumps(idle=not events))):
            self._use_store(pump)

    def _take(self, messages: Sequence[Message]) -> None:
        arrivals, births = self._ingest.take(messages)
        for birth in births:
            self.counters["births"] += 1
            self._intake.born(birth.device)
        if arrivals.frames:
            heard = [*arrivals.newest(self._recorder.streams)]
            self._monitor.received(heard)
            self._record(arrivals)
            self._intake.stored(heard)
            if self._fleet_part is not None:
                self._fleet_part.stored()

    def _use_store(self, pump: Callable[[], None]) -> None:
        try:
            pump()
        except (DatabaseError, LedgerError) as error:
            self._store_failed(error)

    def _connected(self) -> None:
        """The broker may have come back without what was retained: it is told again."""
        self._monitor.connected()
        begun_anew, self._clients = self._link.clients != self._clients, self._link.clients
        self._intake.connected(begun_anew=begun_anew)
        if self._fleet_part is not None:
            self._fleet_part.connected(begun_anew=begun_anew)

    def _record(self, arrivals: Arrivals) -> None:
        """Store a round's frames; if one brings an error that nobody thought of, only that frame is left out."""
        try:
            self._recorder.record(arrivals)
            self._failing_since = None
        except DatabaseError as error:
            self.counters["not_stored"] += arrivals.frames
            self._store_failed(error)
        except Exception as error:
            if arrivals.frames > 1:
                for half in arrivals.halves():
                    self._record(half)
            else:
                self.counters["unexpected"] += 1
                _log.error("a frame could not be taken: %s", type(error).__name__)

    def _store_failed(self, error: DatabaseError | LedgerError) -> None:
        """Count, and go on; but not for ever with what does not heal by itself."""
        self.counters["store_errors"] += 1
        if self.counters["store_errors"] == 1:
            _log.error("the store does not take data: %s; devices will send again", error)
        self._end_if_lost(error)
        if is_full(error) or isinstance(error, AwayError | LedgerError):
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
