"""The gateway process: one connection, one store, one worker; and a check of the store's file beside it.

The network thread only fills the inbox. The worker takes what has piled up, stores all new frames in one transaction,
and only then says so: watermarks first, then estimates. Nothing that arrives ends it, nor a full disk; what could not
be stored is missing in the watermark, and its device sends it again. A store or a ledger that is gone or damaged, or a
store that has taken nothing for a minute, ends the process with a line that says so: the next start looks at its files,
and lives on or says what to do.

A start reads what does not grow with the history; the whole file is read once while its gateway serves. Where damage is
found, the gateway ends, and leaves a mark beside the file: with it the next start reads everything first, and serves
only if all of it is whole again.
"""

from __future__ import annotations

import contextlib
import logging
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import Any

from fugu.contract.errors import FuguError, Reason, cause
from fugu.contract.reports import AlarmCode, Health
from fugu.contract.topics import description_topic, health_topic, parse_topic
from fugu.host.checks import certificate_end
from fugu.host.database import STORE, AwayError, DatabaseError, is_full, is_lost
from fugu.host.files import FileLostError, damage
from fugu.mqtt import Link, Will
from fugu.places.tracking import warm as warm_points
from gateway.describe import digest
from gateway.estimates.catalogue import Catalogue
from gateway.estimates.symbols import warm
from gateway.fleet.enrolled import Enrolled
from gateway.fleet_part import FleetPart, OfShards
from gateway.health import Monitor, Sources
from gateway.inbox import Acknowledged, Connected, Event, Inbox, Ingest, Message
from gateway.intake import Intake, OwnDevices
from gateway.journal.arrivals import Arrivals
from gateway.journal.streams import Streams
from gateway.location import Location, part_of
from gateway.metrics import Metrics, Reading
from gateway.publisher import MAX_IN_FLIGHT
from gateway.recorder import Recorder
from gateway.releases.entries import LedgerError
from gateway.releases.progress import FleetProgress
from gateway.releases.schedule import StoreProgress
from gateway.settings import GatewaySettings
from gateway.shard_watch import ShardChannel, ShardWatch, channel_of
from gateway.shards import Shard, shard_account
from gateway.store.engine import Lease
from gateway.store.store import Store, lease_of, store_bytes

__all__ = ["IDLE_SECONDS", "STUCK_SECONDS", "Gateway", "NotArrangedError"]


_LOOK_SECONDS = 0.1


class HistoryCheck:
    """The check of a store that is a file; `problem` says in a line what is wrong and what to do, or is empty."""

    def __init__(self, location: Location) -> None:
        self._path = location if isinstance(location, Path) else None
        self._db: sqlite3.Connection | None = None
        self._thread = threading.Thread(target=self._read, name="gateway-history-check", daemon=True)
        self._ending = False
        self.problem = ""

    def before(self, store: Store) -> None:
        """Check what a start needs, or everything where damage was found before. Raises StoreError for damage."""
        mark = self._mark
        store.refuse_damage(history=mark is not None and mark.exists())
        if mark is not None:
            mark.unlink(missing_ok=True)

    def start(self) -> None:
        """Begin to read, in a thread of its own."""
        if self._path is not None:
            self._db = sqlite3.connect(f"{self._path.resolve().as_uri()}?mode=ro", uri=True, check_same_thread=False)
            self._thread.start()

    def stop(self) -> None:
        """Read no further."""
        self._ending = True
        while self._db is not None and self._thread.is_alive():
            with suppress(sqlite3.ProgrammingError):  # it has been closed
                self._db.interrupt()
            self._thread.join(_LOOK_SECONDS)

    def doubt(self) -> None:
        """Let the next start read everything, because damage was met."""
        if (mark := self._mark) is not None:
            with suppress(OSError):
                mark.touch()

    @property
    def _mark(self) -> Path | None:
        return None if self._path is None else self._path.with_name(f"{self._path.name}.damaged")

    def _read(self) -> None:
        assert self._path is not None
        assert self._db is not None
        with closing(self._db) as db:
            found = damage(db)
        if found and not self._ending:
            self.doubt()
            self.problem = f"the store {self._path.name} is damaged ({found}): {STORE.remedy}"


_log = logging.getLogger(__name__)
_INBOX_MESSAGES = 20_000
_INBOX_BYTES = 1 << 25
_INBOX_PATIENCE_SECONDS = 5.0
_BATCH = 2_000
IDLE_SECONDS = 0.5
_FAREWELL_SECONDS = 5.0
STUCK_SECONDS = 120.0
_FAILING_SECONDS = 60.0
_SIZE_SECONDS = 30.0
_LARGEST_BYTES = 1 << 16
"""Of a frame, and of most descriptions; a larger one is said again at every connection."""


class NotArrangedError(FuguError):
    """A shard cannot start yet: another number of processes shares the devices."""


class UselessError(FuguError):
    """The store or the ledger can be used no more."""


class Gateway:
    """A gateway that runs in threads of its own between `start` and `stop`.

    `counters` has what has happened so far, refusals under their `Reason`. `failed` is set if the worker has ended by
    itself: its files are of no use, or it met what it never should.
    """

    def __init__(self, settings: GatewaySettings) -> None:
        self.counters: Counter[str] = Counter()
        self.failed = threading.Event()
        fleet = settings.fleet
        self._settings = settings
        self._broker = settings.broker
        if (one := settings.shard) is not None:
            self._broker = shard_account(settings.broker, one.index, one.count)
        self._shard_watch: ShardWatch | None = None
        self._shard = settings.shard
        self._path = settings.store if self._shard is None else part_of(settings.store, f"shard-{self._shard.index}")
        self._last_round = time.monotonic()
        self._failing_since: float | None = None
        self._unreachable = False
        self._clients = 0
        self._size, self._size_due = 0, float("-inf")
        self._enrolled: Enrolled | None = None
        self._channels: list[ShardChannel] = []
        self._intake: Intake | None = None
        self._own: OwnDevices | None = None
        self._fleet_part: FleetPart | None = None
        self._metrics: Metrics | None = None
        self._inbox = Inbox(_INBOX_MESSAGES, _INBOX_BYTES, _INBOX_PATIENCE_SECONDS)
        self._link = Link(
            self._broker,
            client_id=f"gateway-{fleet}" if self._shard is None else f"gateway-{fleet}-{self._shard.index}",
            subscriptions=() if self._shard else (*Intake.topics(fleet), *FleetPart.topics(settings)),
            durable=True,
            max_payload=_LARGEST_BYTES,
            max_in_flight=3 * MAX_IN_FLIGHT,  # watermarks, estimates, and the rest
            will=None if self._shard else Will(health_topic(fleet), Health(online=False).encode()),
            on_connected=lambda: self._inbox.notify(Connected()),
            on_messages=self._delivered,
            on_published=self._answered,
            on_absent=self._say_unreachable,
        )
        self._descriptions = description_topic(fleet, "+", "+").removesuffix("+/+")
        self._worker = threading.Thread(target=self._work, name="gateway-worker")

    def start(self) -> None:
        """Check policies and store, compile the kernels, then begin to connect.

        Raises NotArrangedError, to be tried again, if another number of processes shares the devices; else a FuguError
        with one line that says which policy, store or setting is wrong.
        """
        settings, shard = self._settings, self._shard
        catalogue = Catalogue.load(settings.policies, settings.fleet, (lambda _: True) if shard is None else shard.owns)
        if shard is not None:
            with closing(Store(settings.store)) as seen:
                _refuse_others(seen, shard)
        self._check = HistoryCheck(settings.store)
        lease = Lease("" if shard is None else lease_of(shard.index), take=self._shared, shares=self._shared)
        self._store = Store(settings.store, lease=lease, shard=shard)
        try:
            if shard is None:
                self._store.arrange(settings.shards, self._seal)
            else:
                _refuse_others(self._store, shard)
            self._check.before(self._store)
            if settings.metrics is not None:
                self._metrics = Metrics(settings.metrics, self._measured)
            if settings.enrolled is not None:
                self._enrolled = Enrolled(settings.fleet, settings.enrolled, catalogue, self.counters)
            if shard is not None:
                self._open_shard(catalogue, shard)
            elif settings.shards > 1:
                self._open_fleet(catalogue)
            else:
                self._open_alone(catalogue)
            self._link.start()
            if self._fleet_part is not None:
                self._fleet_part.start()
        except BaseException:
            self._close()
            raise
        self._worker.start()
        self._check.start()
        self._monitor.start()
        if self._metrics is not None:
            self._metrics.start()

    @property
    def _shared(self) -> bool:
        return self._settings.shards > 1

    def _seal(self) -> None:
        """Seal what the journal holds, before other processes own the devices."""
        known = Catalogue(self._settings.fleet)
        known.retire(self._store.policy_documents())
        Recorder(self._store, known, self._settings.lag, Counter()).seal(now=True)

    def _open_alone(self, catalogue: Catalogue) -> None:
        recorder = self._open_recorder(catalogue)
        progress = StoreProgress(self._store, recorder)
        self._fleet_part = FleetPart(
            *(self._settings, self._link, self._store, catalogue, progress, self._enrolled),
            *(self.counters, self._monitor.hold),
        )
        self._open_intake(catalogue, recorder, self._fleet_part.needed)

    def _open_shard(self, catalogue: Catalogue, shard: Shard) -> None:
        channel = self._open_channel(None)
        self._beats = self._open_channel(f"beats-{shard.index}")
        recorder = self._open_recorder(catalogue)
        self._open_intake(catalogue, recorder, channel.needed, lambda: channel.known)
        self._own = OwnDevices(shard, self._store, self._link, catalogue, self.counters)

    def _open_fleet(self, catalogue: Catalogue) -> None:
        """What the fleet has once; the shards have their devices."""
        settings, count = self._settings, self._settings.shards
        catalogue.retire(self._store.policy_documents())
        channel = self._open_channel("fleet")
        channel.begin()
        self._link.unsubscribe(Intake.topics(settings.fleet)[:2])  # a session of before may have had all frames
        self._shard_watch = watch = ShardWatch(ShardChannel(channel_of(settings.store)), count, self.counters)
        self._open_monitor(catalogue, [])
        progress = FleetProgress(self._store, count, lambda: watch.missing)
        self._fleet_part = FleetPart(
            *(settings, self._link, self._store, catalogue, progress, self._enrolled),
            *(self.counters, self._monitor.hold),
            OfShards(channel, progress, lambda: watch.missing),
        )
        watch.start()

    def _open_channel(self, name: str | None) -> ShardChannel:
        lease = None if name is None else Lease(name, take=True)
        self._channels.append(ShardChannel(channel_of(self._settings.store), lease))
        return self._channels[-1]

    def _open_recorder(self, catalogue: Catalogue) -> Recorder:
        catalogue.retire(self._store.policy_documents())
        warm()
        if catalogue.measured():
            warm_points()
        recorder = Recorder(
            *(self._store, catalogue, self._settings.lag, self.counters),
            conflict=lambda *seen: self._taking.contradictions.found(*seen),
        )
        self._recorder = recorder
        known = [device for device in catalogue.names() if recorder.has_frames(device)]
        self._open_monitor(catalogue, known, recorder.streams)
        return recorder

    def _open_monitor(self, catalogue: Catalogue, known: list[str], streams: Streams | None = None) -> None:
        age, details = (lambda: time.monotonic() - self._last_round), self._details
        sources = Sources(
            *(catalogue, self.counters, known, age, STUCK_SECONDS, self._certificates, details, self._shard_watch),
            self._tell if self._shard else None,
        )
        self._monitor = Monitor(self._settings.fleet, self._path, self._link, sources)
        self._ingest = Ingest(catalogue, self.counters, refused=self._refused, streams=streams)

    def _refused(self, topic: str, reason: Reason) -> None:
        """Note a refusal, but for a device of the registry that has no policy yet: it is no stranger."""
        waits = self._enrolled is not None and self._enrolled.has(parse_topic(topic).device)
        if self._monitor is not None and not (waits and reason is Reason.UNKNOWN_DEVICE):
            self._monitor.refused(topic, reason)

    def _open_intake(
        self,
        catalogue: Catalogue,
        recorder: Recorder,
        needed: Callable[[], dict[tuple[str, str], int]],
        may_forget: Callable[[], bool] = lambda: True,
    ) -> None:
        self._intake = Intake(
            *(self._settings, self._link, self._store, catalogue, recorder, self._monitor, self._enrolled),
            *(needed, self.counters, may_forget),
        )

    @property
    def _taking(self) -> Intake:
        assert self._intake is not None
        return self._intake

    def _tell(self, brief: Mapping[str, Any]) -> None:
        assert self._shard is not None
        more = {"alive": self.is_alive, "inbox": self._inbox.waiting}
        with contextlib.suppress(DatabaseError):  # the worker finds the same, and says what is wrong
            self._beats.beat(self._shard.index, {**brief, **more})

    def _certificates(self) -> dict[str, float]:
        broker, enrolled = self._broker, self._settings.enrolled
        files = {"authority": broker.ca_file, "gateway": broker.cert_file}
        files["operator"] = None if enrolled is None else enrolled.operator.cert_file
        found = {} if self._link.certificate_end is None else {"broker": self._link.certificate_end}
        for name, file in files.items():
            if file is not None:
                with contextlib.suppress(OSError, ValueError):  # without them there is no connection, which is said
                    found[name] = certificate_end(Path(file))[1]
        return found

    def _store_bytes(self) -> int:
        """What the store takes on its disk; of one on a server as it was a short while ago."""
        now = time.monotonic()
        if isinstance(self._path, Path) or now >= self._size_due:
            self._size, self._size_due = store_bytes(self._settings.store), now + _SIZE_SECONDS
        return self._size

    def _of_shards(self, name: str) -> int:
        watch = self._shard_watch
        return 0 if watch is None else sum(report[name] for report in dict(watch.reports).values())

    def _measured(self) -> Reading:
        age = time.monotonic() - self._last_round
        connected = self._link.connected and not (self._shard_watch and self._shard_watch.missing)
        return Reading(
            *(self._monitor.latest, self._monitor.counters(), connected, age),
            *(self._inbox.waiting + self._of_shards("inbox"), self._store_bytes()),
        )

    def _details(self) -> dict[str, object]:
        found: dict[str, object] = {
            "inbox": self._inbox.waiting + self._of_shards("inbox"),
            "store_bytes": self._store_bytes(),
            "estimates_waiting": 0 if self._intake is None else self._intake.reports_waiting,
            "next_releases": {} if self._fleet_part is None else self._fleet_part.following(),
        }
        if self._shard is not None:
            found["shard"] = str(self._shard)
        if self._shard_watch is not None:
            found["shards"] = {"count": self._settings.shards, "missing": list(self._shard_watch.missing)}
        return found

    def stop(self) -> None:
        """Store and acknowledge what has arrived, then disconnect."""
        self._inbox.close()
        self._worker.join()
        self._check.stop()
        self._monitor.stop()
        self._link.stop()
        self._close()

    def _close(self) -> None:
        if self._metrics is not None:
            self._metrics.stop()
        if self._shard_watch is not None:
            self._shard_watch.stop()
        self._store.close()
        if self._fleet_part is not None:
            self._fleet_part.stop()
        while self._channels:
            self._channels.pop().close()
        if self._enrolled is not None:
            self._enrolled.close()

    @property
    def is_alive(self) -> bool:
        """True if the worker has finished a round of late, and could store what there was."""
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
                if self._check.problem:
                    raise UselessError(self._check.problem)
                self._link.maintain()
                self._report_connection()
                busy = self._fleet_part is not None and self._fleet_part.busy
                self._round(self._inbox.take(_BATCH, 0.0 if busy else IDLE_SECONDS))
            deadline = time.monotonic() + _FAREWELL_SECONDS
            while self._link.connected and not self._finished and time.monotonic() < deadline:
                self._round(self._inbox.take_after_close(IDLE_SECONDS))
            if self._intake is not None:
                self._use_store(self._intake.seal)
        except UselessError as error:
            _log.critical("the gateway ends: %s", error)
            self.failed.set()
        except BaseException as error:
            _log.critical("the worker has ended: %s", cause(error))
            self.failed.set()
            raise

    @property
    def _finished(self) -> bool:
        return all(part.finished for part in (self._intake, self._fleet_part) if part is not None)

    def _round(self, events: Sequence[Event]) -> None:
        if oversized := self._inbox.oversized():
            self.counters["received"] += oversized
            self.counters[Reason.OVERSIZED] += oversized
        for device, count in self._inbox.beyond().items():
            self._monitor.note(AlarmCode.FLOOD, device, times=count)
        once = self._fleet_part
        messages: list[Message] = []
        for event in events:
            if isinstance(event, Message):
                if not self._is_for_others(event):
                    messages.append(event)
            elif isinstance(event, Acknowledged):
                if self._intake is not None:
                    self._intake.acknowledged(event.message_id)
                if once is not None:
                    self._use_store(partial(once.acknowledged, *event))
            else:
                self._connected()
        if messages:
            self._take(messages)
        parts = [part for part in (self._intake, self._own, once) if part is not None]
        if self._enrolled is not None and self._enrolled.refresh():
            for part in parts:
                part.renew()
        for part in parts:
            for pump in part.pumps(idle=not events):
                self._use_store(pump)

    def _is_for_others(self, message: Message) -> bool:
        if self._fleet_part is not None and self._fleet_part.heard(message.topic, message.payload):
            return True
        return self._own is not None and self._own.heard(message.topic)

    def _take(self, messages: Sequence[Message]) -> None:
        arrivals, births = self._ingest.take(messages)
        if self._intake is None:
            return  # what is of no device of any policy has been refused
        for birth in births:
            self.counters["births"] += 1
            self._intake.born(birth.device)
        if arrivals.frames:
            heard = [*arrivals.newest(self._recorder.streams)]
            self._monitor.received(heard)
            self._record(arrivals)
            self._monitor.repeated(self._recorder.repeats())
            self._intake.stored(heard)
            if self._fleet_part is not None:
                self._fleet_part.stored(heard)

    def _use_store(self, pump: Callable[[], None]) -> None:
        try:
            pump()
        except (DatabaseError, LedgerError) as error:
            self._store_failed(error)

    def _connected(self) -> None:
        """Tell the broker again: it may have come back without what was retained."""
        self._monitor.connected()
        begun_anew, self._clients = self._link.clients != self._clients, self._link.clients
        for part in (self._intake, self._fleet_part):
            if part is not None:
                part.connected(begun_anew=begun_anew)

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
                _log.error("a frame could not be taken: %s", cause(error))

    def _store_failed(self, error: DatabaseError | LedgerError) -> None:
        """Count, and go on; but not for ever with what does not pass by itself."""
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
            self._check.doubt()
            raise UselessError(f"the store or the ledger is damaged ({error})") from None


def _refuse_others(store: Store, shard: Shard) -> None:
    if (found := store.shards) != shard.count:
        now = f"{found} shards" if found > 1 else "one process"
        raise NotArrangedError(f"shard {shard} waits: {now} may have the devices now")
