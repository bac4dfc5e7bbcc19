"""The gateway process: one connection, one store, one worker; and a check of the store's file beside it.

The network thread only fills the inbox. The worker takes what has piled up, stores all new frames in one transaction,
and only then publishes watermarks, then estimates. No message and no full disk ends the process. Ticks that could not
be stored are missing in the watermark, and their device sends them again. The process ends, with a line of log, if a
store or ledger is gone or damaged, or a store has taken nothing for a minute. The next start checks the files.

A start reads no part that grows with the history. The whole file is read once while the gateway serves. Where damage is
found, the gateway ends, and leaves a mark beside the file. With it the next start reads everything first, and serves
only if all of it is whole again.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from fugu.contract.errors import FuguError, Reason, TopicError, cause
from fugu.contract.reports import AlarmCode
from fugu.contract.topics import RESERVED_DEVICES, check_device_name, parse_topic, topic_of
from fugu.host.database import STORE, AwayError, DatabaseError, FileLostError, damage, is_full, is_lost
from fugu.host.files import certificate_validity
from fugu.mqtt import Link
from gateway.config import GatewayConfig
from gateway.estimates.catalogue import Catalogue
from gateway.health.monitor import Monitor
from gateway.loop.duties import SoleProcess
from gateway.loop.inbox import Acknowledged, Inbox, Ingest, Usage
from gateway.loop.publisher import Publisher
from gateway.loop.recorder import Recorder
from gateway.parts import Loop, Message, Part, Registered
from gateway.parts.describe import digest
from gateway.store.engine import LedgerError, file_bytes
from gateway.store.journal import Arrivals
from gateway.store.location import Location
from gateway.store.opening import open_engine
from gateway.store.store import KIND, Store, StoreError

if TYPE_CHECKING:
    from gateway.health.metrics import Metrics, Reading

__all__ = ["IDLE_SECONDS", "STUCK_SECONDS", "Gateway", "store_bytes"]


_LOOK_SECONDS = 0.1


class HistoryCheck:
    """The check of a store that is a file. `problem` is '', or a line with the fault of its pages and the remedy."""

    def __init__(self, location: Location) -> None:
        self._path = location if isinstance(location, Path) else None
        self._db: sqlite3.Connection | None = None
        self._thread = threading.Thread(target=self._read, name="gateway-history-check", daemon=True)
        self._is_ending = False
        self.problem = ""

    def check_start(self, store: Store) -> None:
        """Check the pages that a start reads, or all if damage was found before. Raises StoreError for damage."""
        mark = self._damage_mark
        store.refuse_damage(history=mark is not None and mark.exists())
        if mark is not None:
            mark.unlink(missing_ok=True)

    def start(self) -> None:
        """Begin to read the whole file in a thread. Do nothing for a store on a server."""
        if self._path is not None:
            self._db = sqlite3.connect(f"{self._path.resolve().as_uri()}?mode=ro", uri=True, check_same_thread=False)
            self._thread.start()

    def stop(self) -> None:
        """End the reading."""
        self._is_ending = True
        while self._db is not None and self._thread.is_alive():
            with suppress(sqlite3.ProgrammingError):  # it has been closed
                self._db.interrupt()
            self._thread.join(_LOOK_SECONDS)

    def mark_damaged(self) -> None:
        """Let the next start check the whole store, because damage was found."""
        if (mark := self._damage_mark) is not None:
            with suppress(OSError):
                mark.touch()

    @property
    def _damage_mark(self) -> Path | None:
        return None if self._path is None else self._path.with_name(f"{self._path.name}.damaged")

    def _read(self) -> None:
        assert self._path is not None
        assert self._db is not None
        with closing(self._db) as db:
            problem = damage(db)
        if problem and not self._is_ending:
            self.mark_damaged()
            self.problem = f"the store {self._path.name} is damaged ({problem}): {STORE.remedy}"


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
"""Most bytes of a delivered message: frames and most descriptions. A larger one is published at every connection."""
_CALLS = ("busy", "finished", "heard", "born", "stored", "acknowledged", "connected", "renew", "pump")


def _alarm_name(device: str) -> str:
    """Return a device's name for an alarm; '' for a name that no device can have, because publishers invent names."""
    try:
        check_device_name(device)
    except TopicError:
        return ""
    return device


class UselessError(FuguError):
    """The store or the ledger is of no use any more, so that the gateway ends."""


class Gateway:
    """A gateway that runs in threads of its own between `start` and `stop`.

    `counters` counts events, and refusals under their `Reason`. `failed` is set if the worker has ended by itself,
    after a lost store or ledger, or an unexpected error.
    """

    def __init__(self, settings: GatewayConfig, duty: SoleProcess | None = None) -> None:
        self.counters: Counter[str] = Counter()
        self.failed = threading.Event()
        fleet = settings.fleet
        self._settings = settings
        self._duty = duty = duty or SoleProcess(settings)
        self._last_round = time.monotonic()
        self._failing_since: float | None = None
        self._store_is_away = False
        self._unreachable = False
        self._clients = 0
        self._size, self._size_due = 0, float("-inf")
        self._registered = Registered()
        self._parts: list[Part] = []
        self._parts_by_call: dict[str, list[Part]] = {}
        self._recorder: Recorder | None = None
        self._metrics: Metrics | None = None
        self._catalogue: Catalogue | None = None
        self._inbox = Inbox(_INBOX_MESSAGES, _INBOX_BYTES, _INBOX_PATIENCE_SECONDS, knows=self._is_known_name)
        self._link = Link(
            duty.broker,
            client_id=duty.client_id,
            durable=True,
            max_payload=_LARGEST_BYTES,
            max_in_flight=3 * Publisher.MAX_IN_FLIGHT,  # watermarks, estimates, and the rest
            will=duty.will,
            on_connected=lambda: self._inbox.notify(None),
            on_messages=self._deliver,
            on_published=self._note_answer,
            on_absent=self._warn_unreachable,
        )
        self._descriptions = topic_of("description", fleet, "+", "+").removesuffix("+/+")
        self._worker = threading.Thread(target=self._work, name="gateway-worker")

    def start(self) -> None:
        """Check policies and store, then begin to connect.

        Raises NotArrangedError if another number of processes shares the devices; the gateway may then be started
        again. Raises another FuguError, one line, if a policy, store or setting is wrong.
        """
        settings, duty, self._last_round = self._settings, self._duty, time.monotonic()
        is_signed = settings.signed is not None
        self._catalogue = catalogue = Catalogue.load(settings.policies, settings.fleet, duty.owns, signed=is_signed)
        duty.await_turn()
        self._check = HistoryCheck(settings.store)
        self._store = duty.store()
        try:
            duty.arrange(self._store)
            self._check.check_start(self._store)
            if settings.signed is not None:
                from gateway.fleet.enrolled import EnrolledDevices

                self._registered = EnrolledDevices(settings.fleet, settings.signed, catalogue, self.counters)
            self._usage = usage = Usage(self._inbox.sender)
            self._monitor = Monitor(
                *(duty.status_store, self._link, catalogue, self.counters, STUCK_SECONDS, self._certificates),
                *(lambda: self._inbox.waiting, self._details, self._registered.has_left),
            )
            objects = self._store, self._link, catalogue, self.counters, self._registered, self._monitor, self._parts
            self._recorder = recorder = duty.open(Loop(*objects), self._monitor, usage)
            self._parts_by_call = {  # by call, the parts that override it
                call: [part for part in self._parts if getattr(type(part), call) is not getattr(Part, call)]
                for call in _CALLS
            }
            streams = None if recorder is None else recorder.streams
            self._symbols = {} if streams is None else streams.topics
            self._ingest = Ingest(catalogue, self.counters, on_refused=self._note_refusal, streams=streams, usage=usage)
            if settings.metrics is not None:
                from gateway.health.metrics import Metrics

                self._metrics = Metrics(settings.metrics, self._read_metrics)
            self._link.subscribe(topic for part in self._parts for topic in part.topics)
            self._link.start()
            for part in self._parts:
                part.start()
        except BaseException:
            self._close()
            raise
        self._worker.start()
        self._check.start()
        self._monitor.start()

    def _is_known_name(self, name: str) -> bool:
        """Return whether a name in a topic is reserved, or is a device's; any thread may call this."""
        if name in RESERVED_DEVICES or self._catalogue is None:  # no message is delivered before there is a catalogue
            return True
        return self._catalogue.has(name) or self._registered.has(name)

    def _note_refusal(self, topic: str, reason: Reason) -> None:
        """Note a refused message for the alarms, unless its device is in the registry and only has no policy yet."""
        device = ""
        with suppress(TopicError):  # a large message is refused before its topic is parsed
            device = parse_topic(topic).device
        if not (self._registered.has(device) and reason is Reason.UNKNOWN_DEVICE):
            self._monitor.note_refusal(device, reason)

    def _certificates(self) -> dict[str, float]:
        """Return the end of each certificate by its name, in Unix seconds."""
        broker, settings = self._duty.broker, self._settings
        files = {"authority": broker.ca_file, "gateway": broker.cert_file}
        files["operator"] = None if settings.signed is None else settings.operator.cert_file
        end_times = {} if self._link.certificate_end is None else {"broker": self._link.certificate_end}
        for name, file in files.items():
            if file is not None:
                with suppress(OSError, ValueError):  # without the file there is no connection: an alarm
                    end_times[name] = certificate_validity(Path(file))[1]
        return end_times

    def _store_bytes(self) -> int:
        """Return the store's bytes on its disk; on a server, their number is up to half a minute old."""
        now = time.monotonic()
        if isinstance(self._settings.store, Path) or now >= self._size_due:
            self._size, self._size_due = store_bytes(self._settings.store), now + _SIZE_SECONDS
        return self._size

    def _read_metrics(self) -> Reading:
        from gateway.health.metrics import Reading

        monitor = self._monitor
        connected = self._link.connected and (monitor.elsewhere is None or not monitor.elsewhere.missing)
        worker_numbers = monitor.round_age, monitor.waiting, self._store_bytes()
        return Reading(monitor.latest, monitor.counters(), connected, *worker_numbers)

    def _details(self) -> dict[str, object]:
        details: dict[str, object] = {"store_bytes": self._store_bytes(), "estimates_waiting": 0, "next_releases": {}}
        for part in self._parts:
            details |= part.details()
        return details | self._duty.details()

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
        self._duty.resources.close()
        self._store.close()
        while self._parts:
            self._parts.pop().close()
        self._registered.close()

    @property
    def is_alive(self) -> bool:
        """True if the worker, or a start, has begun a round lately, and frames can be stored."""
        return self._failing_since is None and time.monotonic() - self._last_round < STUCK_SECONDS

    def _deliver(self, messages: Sequence[tuple[str, bytes, bool]]) -> None:
        accepted = [
            Message(topic, digest(payload) if topic.startswith(self._descriptions) else payload)
            for topic, payload, retained in messages
            if retained or not topic.startswith(self._descriptions)  # else the gateway has just published it
        ]
        if refused_count := self._inbox.deliver(accepted):
            self.counters["not_taken"] += refused_count

    def _note_answer(self, message_id: int, accepted: bool) -> None:
        if not accepted:
            self.counters["publish_refused"] += 1
        self._inbox.notify(Acknowledged(message_id, accepted))

    def _report_connection(self) -> None:
        if self._link.connected and self._unreachable:
            self._unreachable = False
            _log.warning("connected to the broker")
        elif not self._link.connected and self._link.last_error:
            self._warn_unreachable(self._link.last_error)

    def _warn_unreachable(self, reason: str) -> None:
        if not self._unreachable:
            fleet = self._settings.fleet
            _log.warning("fleet %s: no connection to the broker: %s; trying until there is one", fleet, reason)
        self._unreachable = True

    def _work(self) -> None:
        try:
            while not self._inbox.drained:
                self._last_round = self._monitor.round_began = time.monotonic()
                if self._check.problem:
                    raise UselessError(self._check.problem)
                self._link.maintain()
                self._report_connection()
                self._round(self._inbox.take(_BATCH, self._patience()))
            deadline = time.monotonic() + _FAREWELL_SECONDS
            while self._link.connected and not self._finished and time.monotonic() < deadline:
                self._round(self._inbox.take_after_close(IDLE_SECONDS))
            if self._recorder is not None:
                self._use_store(partial(self._recorder.seal, now=True))
        except UselessError as error:
            _log.critical("the gateway ends: %s", error)
            self.failed.set()
        except BaseException as error:
            _log.critical("the worker has ended: %s", cause(error))
            self.failed.set()
            raise

    @property
    def _finished(self) -> bool:
        return all(part.finished for part in self._parts_by_call["finished"])

    def _patience(self) -> float:
        """Return the seconds to wait for messages: 0 if a part has work, unless the store is away."""
        is_busy = not self._store_is_away and any(part.busy for part in self._parts_by_call["busy"])
        return 0.0 if is_busy else IDLE_SECONDS

    def _round(self, events: Sequence[Message | Acknowledged | None]) -> None:
        self._store_is_away = False
        oversized_counts, flood_counts = self._inbox.take_refused()
        for device, count in oversized_counts.items():
            self.counters["received"] += count
            self.counters[Reason.OVERSIZED] += count
            self._monitor.note_refusal(_alarm_name(device), Reason.OVERSIZED, times=count)
        for device, count in flood_counts.items():
            self._monitor.note(AlarmCode.FLOOD, _alarm_name(device), times=count)
        messages = []
        for event in events:
            if isinstance(event, Message):
                if event.topic in self._symbols or not self._offer_message(event):
                    messages.append(event)
            elif isinstance(event, Acknowledged):
                self._call_parts("acknowledged", *event)
            else:
                self._tell_connected()
        if messages:
            self._take_messages(messages)
        usage = self._usage.take()
        self._inbox.note_costs(usage.seconds)
        self._monitor.note_frequent(AlarmCode.FLOOD, usage.frameless)
        self._monitor.note_frequent(AlarmCode.REPEATS, usage.repeats)
        if self._registered.refresh():
            self._call_parts("renew")
        now = time.monotonic()
        for part in self._parts_by_call["pump"]:
            if part.due <= now:
                self._use_store(partial(part.pump, idle=not events))
        if self._recorder is not None:
            self._use_store(self._recorder.seal)

    def _offer_message(self, message: Message) -> bool:
        """Give a message to the parts until one takes it. Return whether a part took it."""
        start_time, is_taken = time.perf_counter(), False
        try:
            is_taken = any(part.heard(message) for part in self._parts_by_call["heard"])
        except (DatabaseError, LedgerError) as error:
            self._store_failed(error)
        self._usage.add(message.topic, time.perf_counter() - start_time, frameless=is_taken)
        return is_taken

    def _take_messages(self, messages: Sequence[Message]) -> None:
        """Validate messages, store their frames, and tell the parts which devices came online or sent frames."""
        arrivals, births = self._ingest.take(messages)
        if (recorder := self._recorder) is None:
            return  # messages without a known device have been refused
        self.counters["births"] += len(births)
        for device in dict.fromkeys(births):
            self._call_parts("born", device)
        if arrivals.frames:
            newest_frames = [*arrivals.newest(recorder.streams)]
            self._monitor.note_frames(newest_frames)
            self._record(recorder, arrivals)
            self._call_parts("stored", newest_frames)

    def _call_parts(self, method_name: str, *arguments: object, **options: object) -> None:
        """Make a call to all parts that override it."""
        for part in self._parts_by_call[method_name]:
            self._use_store(partial(getattr(part, method_name), *arguments, **options))

    def _use_store(self, store_call: Callable[[], None]) -> None:
        """Make a call, and count an error of store or ledger."""
        try:
            store_call()
        except (DatabaseError, LedgerError) as error:
            self._store_failed(error)

    def _tell_connected(self) -> None:
        """Tell the monitor and the parts of a new connection: the broker may have lost its retained messages."""
        self._monitor.connected()
        begun_anew, self._clients = self._link.client_count != self._clients, self._link.client_count
        self._call_parts("connected", begun_anew=begun_anew)

    def _record(self, recorder: Recorder, arrivals: Arrivals) -> None:
        """Store a round's frames. A frame that causes an unexpected error is left out, and counted."""
        try:
            recorder.record(arrivals)
            self._failing_since = None
        except DatabaseError as error:
            self.counters["not_stored"] += arrivals.frames
            self._store_failed(error)
        except Exception as error:
            if arrivals.frames > 1:
                for half in arrivals.halves():
                    self._record(recorder, half)
            else:
                self.counters["unexpected"] += 1
                _log.error("a frame could not be taken: %s", cause(error))

    def _store_failed(self, error: DatabaseError | LedgerError) -> None:
        """Count an error of store or ledger. Raises UselessError if it is permanent, or has lasted for a minute.

        A full disk, a server that is away and an error of the ledger may last for any time.
        """
        self.counters["store_errors"] += 1
        if self.counters["store_errors"] == 1:
            _log.error("the store does not take data: %s; devices will send again", error)
        self._store_is_away |= isinstance(error, AwayError)
        self._end_if_lost(error)
        if is_full(error) or isinstance(error, AwayError | LedgerError):
            return
        now = time.monotonic()
        self._failing_since = self._failing_since or now
        if now - self._failing_since >= _FAILING_SECONDS:
            raise UselessError(f"the store has taken nothing for {_FAILING_SECONDS:g} s ({error})")

    def _end_if_lost(self, error: Exception) -> None:
        """Raise UselessError if the store or the ledger is gone, damaged, or another process's now."""
        if isinstance(error, FileLostError):
            raise UselessError(f"{error}: nothing is stored or called durable any more") from None
        if is_lost(error):
            self._check.mark_damaged()
            raise UselessError(f"the store or the ledger is damaged ({error})") from None


def store_bytes(location: Location) -> int:
    """Return the bytes of a store on its disk, whoever uses it; 0 if the store cannot be opened."""
    if isinstance(location, Path):
        return file_bytes(location)
    try:
        with closing(open_engine(location, KIND, create=False)) as db:
            return db.size()
    except (StoreError, DatabaseError):
        return 0
