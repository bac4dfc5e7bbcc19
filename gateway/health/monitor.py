"""The health of a running gateway: at its socket, in its log, and on the topic `health`.

A thread of its own answers, even while the worker is stuck. Other threads leave notes, which wait for the next step;
counters and the times of frames are read directly. This module reads no symbols.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from fugu.contract.errors import FuguError, Reason, cause, printable
from fugu.contract.policies import AnyPolicy
from fugu.contract.policy import Policy
from fugu.contract.reports import MAX_NAMES, AlarmCode, Health, HealthAlarm
from fugu.contract.topics import topic_of
from fugu.host.answering import StatusSocket, ask
from fugu.host.database import DatabaseError
from fugu.host.files import CERTIFICATE_DAYS
from fugu.mqtt import Link
from gateway.health.findings import KINDS
from gateway.parts.describe import InForce
from gateway.store.location import Location, sockets

if TYPE_CHECKING:
    from gateway.estimates.catalogue import Catalogue
    from gateway.store.journal import NewestFrame

__all__ = ["Alarms", "Elsewhere", "Monitor", "NotRunningError", "ask_gateway"]


_log = logging.getLogger(__name__)
_ROUND_SECONDS = 0.25
_HEALTH_SECONDS = 60.0
_SILENT_SECONDS = 600.0
_SILENT_FRAMES = 3
_AWAY_SECONDS = 30.0
_BEAT_SECONDS = 1.0
_MOST_ALARMS = 200
_ALARM_FIELDS = ("code", "name", "since", "count", "detail", "advice")
_MOST_FREQUENT, _FREQUENT_SECONDS = 600, 60.0
"""Most frames that a device may send again in that time: it does so after a lost connection. The same limit is for
messages without a frame, which it sends when it comes online or its state changes."""
_MOST_NOTES = 2_000
"""Most notes between two steps, one for each code and name; further events of a code share a note without a name."""
_CERTIFICATES_SECONDS = 3600.0
_BY_COUNTER = {kind.counter: code for code, kind in KINDS.items() if kind.counter}
_BY_REASON = {reason: code for code, kind in KINDS.items() for reason in kind.reasons}
_MOST_NAMES = 200
"""Most names of a code with an alarm each, since publishers can invent names. Further ones share one without a name."""
_MOST_DETAIL = 190


@dataclass(slots=True)
class _Alarm:
    """A finding that an operator has to look at; `since` is in Unix seconds, `detail` is the first event's.

    `name` is a device or another thing that the code is about, or '' for the gateway itself and for too many names.
    """

    code: AlarmCode
    name: str
    since: float
    count: int
    detail: str
    last: float

    @property
    def advice(self) -> str:
        """The advice for the operator, a sentence."""
        return KINDS[self.code].advice

    def __str__(self) -> str:
        words = [self.code, *([self.name] if self.name else []), *([f"({self.detail})"] if self.detail else [])]
        return f"{' '.join(words)}: {self.advice}"


class Alarms:
    """All alarms of a gateway, used by one thread; `seconds` is a monotonic clock, `wall` Unix time."""

    def __init__(self, seconds: Callable[[], float] = time.monotonic, wall: Callable[[], float] = time.time) -> None:
        self._seconds = seconds
        self._wall = wall
        self._alarms: dict[tuple[AlarmCode, str], _Alarm] = {}
        self._name_counts: Counter[AlarmCode] = Counter()
        self._begun: list[_Alarm] = []

    def note(self, code: AlarmCode, name: str = "", detail: str = "", *, times: int = 1, age: float = 0.0) -> None:
        """Note `times` events of `age` seconds ago; 0 stands for a lasting state, which counts once in an alarm."""
        if (code, name) not in self._alarms and self._name_counts[code] >= _MOST_NAMES:
            name, detail = "", ""
        event_time = self._seconds() - age
        if (alarm := self._alarms.get((code, name))) is None:
            self._name_counts[code] += 1
            alarm = self._alarms[code, name] = _Alarm(code, name, self._wall() - age, 0, detail, event_time)
            self._begun.append(alarm)
            times = max(times, 1)
        alarm.count += times
        alarm.last = max(alarm.last, event_time)

    def step(self) -> tuple[list[_Alarm], list[_Alarm]]:
        """Return the alarms that have begun since the last step, and remove and return those that are over."""
        now = self._seconds()
        ended_alarms = [alarm for alarm in self._alarms.values() if now - alarm.last > KINDS[alarm.code].holds]
        for alarm in ended_alarms:
            del self._alarms[alarm.code, alarm.name]
            self._name_counts[alarm.code] -= 1
        begun_alarms, self._begun = self._begun, []
        return begun_alarms, ended_alarms

    def current(self) -> list[_Alarm]:
        """Return all current alarms, in the order of their codes, then by name."""
        code_order = list(KINDS)
        return sorted(self._alarms.values(), key=lambda alarm: (code_order.index(alarm.code), alarm.name))

    def summary(self) -> tuple[HealthAlarm, ...]:
        """Return the current alarms for the health message: one for each code, with its first few names."""
        groups = groupby(self.current(), attrgetter("code"))
        return tuple(_health_alarm(code, [*alarms]) for code, alarms in groups)


def _health_alarm(code: AlarmCode, alarms: Sequence[_Alarm]) -> HealthAlarm:
    names = tuple(alarm.name for alarm in alarms if alarm.name)
    kind, detail = KINDS[code], printable(alarms[0].detail)[:_MOST_DETAIL]
    return HealthAlarm(
        code,
        int(min(alarm.since for alarm in alarms)),
        sum(alarm.count for alarm in alarms),
        names[:MAX_NAMES],
        len(alarms) - len(names[:MAX_NAMES]) - (not names),
        f"{detail}. {kind.advice[0].upper()}{kind.advice[1:]}" if kind.explained and detail else kind.advice,
    )


class NotRunningError(FuguError):
    """No gateway answers."""


class _Newest(NamedTuple):
    """A device's newest frame: its arrival by the monotonic clock, and the Unix time of the end of the newest tick.

    After `limit` seconds without another frame the device is silent.
    """

    arrival: float
    end: float
    limit: float


class Elsewhere(Protocol):
    """Other processes of a site, as seen by the process that speaks for them."""

    @property
    def missing(self) -> tuple[int, ...]:
        """The indices of processes without a recent report, or without a connection to the broker."""

    @property
    def heard(self) -> int:
        """The number of devices that have sent them a frame."""

    @property
    def inbox(self) -> int:
        """The number of messages that wait there."""

    def counters(self) -> Counter[str]:
        """Return the sums of all their counters."""

    def look(self, alarms: Alarms, now: float) -> None:
        """Note the missing processes, and the alarms of the others."""


class Monitor:
    """Watches a gateway from a thread of its own, between `start` and `stop`.

    The socket is beside `store`, if that is a file; for a server, `Server.status_path` has its place.

    Args:
        stuck_seconds: age of a round from which the worker counts as stuck.
        certificates: returns the ends of certificates, in Unix seconds, by purpose.
        waiting: returns the number of messages that wait for the worker.
        details: returns further values for the report, such as the size of the store.
        has_left: whether a device is no longer in the fleet's registry, so that its silence is no alarm.

    Attributes:
        elsewhere: other processes of the site that this one speaks for, `None` without any; set before `start`.
        tell: receives this process's brief report, in place of the topic, if another process speaks for it.
        expected_devices: devices whose frames are stored; they can be silent even without a frame since the start.
        latest: the health at the last step, for other threads.
        round_began: when the worker has begun a round.
    """

    def __init__(
        self,
        store: Location,
        link: Link,
        catalogue: Catalogue,
        counters: Counter[str],
        stuck_seconds: float,
        certificates: Callable[[], Mapping[str, float]],
        waiting: Callable[[], int],
        details: Callable[[], Mapping[str, Any]],
        has_left: Callable[[str], bool] = lambda _device: False,
        seconds: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._store = store
        self._link = link
        self._catalogue, self._counters, self._has_left = catalogue, counters, has_left
        self._stuck_seconds = stuck_seconds
        self._read_certificates, self._count_waiting, self._read_details = certificates, waiting, details
        self.elsewhere: Elsewhere | None = None
        self.tell: Callable[[Mapping[str, Any]], None] | None = None
        self.expected_devices: set[str] = set()
        self._seconds = seconds
        self._wall = wall
        self.alarms = Alarms(seconds, wall)
        self._in_force = InForce(catalogue)
        self._notes: dict[tuple[AlarmCode, str], tuple[str, int]] = {}
        self._notes_lock = threading.Lock()
        self._held_names: dict[AlarmCode, dict[str, str]] = {}
        self._newest_frames: dict[str, _Newest] = {}
        self._repeat_counts: Counter[tuple[AlarmCode, str]] = Counter()
        self._repeats_since = seconds()
        self._seen_counts: dict[str, int] = {}
        self._start_seconds = seconds()
        self._since = wall()
        self.round_began = self._start_seconds
        self._connected_since: float | None = None
        self._away_since = self._start_seconds
        self._health_due = 0.0
        self._certificates: Mapping[str, float] = {}
        self._certificates_due = self._start_seconds
        self._is_ending = False
        self._answering: StatusSocket | None = None
        self.latest = Health(True, int(self._since), int(self._since))
        self._thread = threading.Thread(target=self._work, name="gateway-monitor", daemon=True)

    def start(self) -> None:
        """Begin to answer and to publish."""
        socket_path = next(sockets(self._store))
        self._answering = StatusSocket(socket_path, own_folder=_has_own_folder(self._store))
        if not self._answering.is_open:
            _log.warning("nobody can ask how this gateway is: there can be no socket at %s", socket_path)
        self._thread.start()

    def stop(self) -> None:
        """Publish that the gateway is offline, and end; to be called before the connection ends."""
        self._is_ending = True
        if self._thread.is_alive():
            self._thread.join()
        if self.tell is None:
            self._link.publish(topic_of("health", self._catalogue.fleet), Health(online=False).encode(), retain=True)
        if self._answering is not None:
            self._answering.close()

    @property
    def waiting(self) -> int:
        """The number of messages that wait in this process, and in those that it speaks for."""
        return self._count_waiting() + (0 if self.elsewhere is None else self.elsewhere.inbox)

    @property
    def round_age(self) -> float:
        """Seconds since the worker has begun its round."""
        return self._seconds() - self.round_began

    # Calls of the worker

    def note(self, code: AlarmCode, name: str = "", detail: str = "", times: int = 1) -> None:
        """Note an event for an alarm."""
        with self._notes_lock:
            if (code, name) not in self._notes and len(self._notes) >= _MOST_NOTES:
                name, detail = "", ""
            first_detail, count_before = self._notes.get((code, name), (detail, 0))
            self._notes[code, name] = first_detail, count_before + times

    def note_frequent(self, code: AlarmCode, message_counts: Mapping[str, int]) -> None:
        """Count each device's repeated or frameless messages of a round, and note those above a minute's limit."""
        if (now := self._seconds()) - self._repeats_since >= _FREQUENT_SECONDS:
            self._repeat_counts, self._repeats_since = Counter(), now
        for device, times in message_counts.items():
            count_before = self._repeat_counts[code, device]
            self._repeat_counts[code, device] += times
            if (excess := self._repeat_counts[code, device] - max(count_before, _MOST_FREQUENT)) > 0:
                self.note(code, device, times=excess)

    def hold(self, code: AlarmCode, names: Iterable[str] | Mapping[str, str]) -> None:
        """Let a code's alarms hold for exactly these names, which may come with details, until the next call."""
        self._held_names[code] = dict(names) if isinstance(names, Mapping) else dict.fromkeys(names, "")

    def remember(self, code: AlarmCode, name: str, detail: str, times: int, *, since: float, last: float) -> None:
        """Note `times` events from before the start, between Unix seconds `since` and `last`; called before `start`."""
        now = max(self._wall(), last)  # this clock may have been set back since
        if now - last <= KINDS[code].holds:  # an alarm that ended before the start is not shown
            self.alarms.note(code, name, detail, times=times, age=now - since)
            self.alarms.note(code, name, times=0, age=now - last)

    def note_refusal(self, device: str, reason: Reason, times: int = 1) -> None:
        """Note the refusal of messages under a device's name."""
        if (code := _BY_REASON.get(reason)) is not None:
            self.note(code, device, times=times)

    def note_frames(self, newest_frames: Iterable[NewestFrame]) -> None:
        """Note each device's newest valid frame."""
        now = self._seconds()
        for device, stream, version, last_tick, shift in newest_frames:
            policy = self._catalogue.policy(device, stream, version)
            end = (policy.clock.epoch_us + (last_tick + 1 - shift) * policy.clock.period_us) / 1e6
            previous = self._newest_frames.get(device)
            limit = max(_SILENT_SECONDS, _SILENT_FRAMES * _frame_seconds(policy))
            self._newest_frames[device] = _Newest(now, end if previous is None else max(end, previous.end), limit)

    def clock_ahead(self) -> float | None:
        """Return the seconds by which this clock is ahead of the newest ticks of recent frames; `None` without frames.

        Each device gives a number; the one nearest to 0 is returned.
        """
        now, wall = self._seconds(), self._wall()
        recent_frames = (newest for newest in self._newest_frames.values() if now - newest.arrival <= _SILENT_SECONDS)
        return min((wall - (now - newest.arrival) - newest.end for newest in recent_frames), key=abs, default=None)

    # The thread

    def _work(self) -> None:
        assert self._answering is not None  # made before the thread began
        while not self._is_ending:
            try:
                self._answering.answer(lambda: json.dumps(self.report()), _ROUND_SECONDS)
                self.step()
            except Exception as error:  # an unexpected error must not end the monitor
                _log.error("the monitor: %s", cause(error))
                time.sleep(_ROUND_SECONDS)

    def step(self) -> None:
        """Look at all sources once; log and publish changes."""
        self._check_all()
        begun_alarms, ended_alarms = self.alarms.step()
        for alarm in begun_alarms:
            _log.warning("alarm: %s", alarm, extra=_log_fields(alarm, "begun"))
        for alarm in ended_alarms:
            _log.warning("alarm is over: %s %s", alarm.code, alarm.name, extra=_log_fields(alarm, "ended"))
        self.latest = self.health()
        now = self._seconds()
        if begun_alarms or ended_alarms:
            self._health_due = now
        if self.tell is not None:
            if now >= self._health_due:
                self._health_due = now + _BEAT_SECONDS
                with suppress(DatabaseError):  # the worker meets and logs the same error
                    self.tell(self.brief())
        elif self._link.connected and now >= self._health_due:
            topic = topic_of("health", self._catalogue.fleet)
            message_id = self._link.publish(topic, self.latest.encode(), retain=True)
            self._health_due = now + (_HEALTH_SECONDS if message_id is not None else _ROUND_SECONDS)

    def _check_all(self) -> None:
        """Turn notes, counters and states of all sources into alarms."""
        with self._notes_lock:
            notes, self._notes = self._notes, {}
        for (code, name), (detail, times) in notes.items():
            self.alarms.note(code, name, detail, times=times)
        for counter, code in _BY_COUNTER.items():
            counter_value = self._counters[counter]
            if new_count := counter_value - self._seen_counts.get(counter, 0):
                self.alarms.note(code, times=new_count)
                self._seen_counts[counter] = counter_value
        for held_code, names in list(self._held_names.items()):
            for name, detail in names.items():
                self.alarms.note(held_code, name, detail, times=0)
        if self.round_age > self._stuck_seconds:
            self.alarms.note(AlarmCode.STUCK, times=0)
        now = self._seconds()
        if self.elsewhere is not None:
            self.elsewhere.look(self.alarms, now)
        self._check_certificates(now)
        if not self._link.connected:
            self._connected_since = None
            if now - self._away_since > _AWAY_SECONDS:
                self.alarms.note(AlarmCode.BROKER, detail=self._link.last_error, times=0)
            return
        if self._connected_since is None:
            self._connected_since = self._health_due = now
        self._away_since = now
        self._check_silence(now, self._connected_since)

    def _check_certificates(self, now: float) -> None:
        if now >= self._certificates_due:
            self._certificates = dict(self._read_certificates())
            self._certificates_due = now + _CERTIFICATES_SECONDS
        for name, end_time in self._certificates.items():
            if end_time - self._wall() < CERTIFICATE_DAYS * 86_400:
                detail = f"ends at {datetime.fromtimestamp(end_time, UTC):%Y-%m-%d %H:%M} UTC"
                self.alarms.note(AlarmCode.CERTIFICATE, name, detail, times=0)

    def connected(self) -> None:
        """Note a new connection: the broker may have lost the health message, and have another certificate."""
        self._health_due = self._certificates_due = 0.0

    def _check_silence(self, now: float, connected_since: float) -> None:
        """Note devices whose last frame is long ago, if the connection has lasted as long."""
        for device, frame in list(self._newest_frames.items()):
            if now - max(frame.arrival, connected_since) > frame.limit and not self._has_left(device):
                self.alarms.note(AlarmCode.SILENT, device, times=0)
        devices = self.expected_devices
        devices -= {name for name in devices if name in self._newest_frames or self._has_left(name)}
        wait_seconds = now - max(self._start_seconds, connected_since)
        for device in self.expected_devices if wait_seconds > _SILENT_SECONDS else ():
            policies = [self._in_force.policy(device, stream) for stream in self._catalogue.streams(device)]
            limits = [_SILENT_FRAMES * _frame_seconds(policy) for policy in policies if policy is not None]
            if limits and wait_seconds > max(limits):
                self.alarms.note(AlarmCode.SILENT, device, times=0)

    # Messages and reports

    def health(self) -> Health:
        """Return the message of the topic `health`."""
        counters = self.counters()
        return Health(
            True,
            int(self._wall()),
            int(self._since),
            len(self._catalogue.names()),
            len(self._newest_frames) + (0 if self.elsewhere is None else self.elsewhere.heard),
            sum(count for name, count in counters.items() if name.endswith("stored") and name != "not_stored"),
            sum(counters.get(reason, 0) for reason in Reason),
            self.alarms.summary(),
        )

    def counters(self) -> Counter[str]:
        """Return the counters of this process, with those of the processes that it speaks for."""
        return Counter(dict(self._counters)) + (Counter() if self.elsewhere is None else self.elsewhere.counters())

    def brief(self) -> dict[str, Any]:
        """Return a short report for the process that speaks for this one."""
        alarms = [(alarm.code, alarm.name, alarm.detail, alarm.count) for alarm in self.alarms.current()]
        return {
            "since": self._since,
            "connected": self._link.subscribed,
            "heard": len(self._newest_frames),
            "inbox": self.waiting,
            "counters": dict(self._counters),
            "alarms": alarms[:_MOST_ALARMS],
        }

    def report(self) -> dict[str, Any]:
        """Return the whole report, for the socket."""
        now, wall = self._seconds(), self._wall()
        devices: dict[str, dict[str, float | None]] = {}
        for device in self._catalogue.names():
            frame = self._newest_frames.get(device)
            age, delay = (None, None) if frame is None else (round(now - frame.arrival, 1), round(wall - frame.end, 1))
            devices[device] = {"seconds_since_frame": age, "seconds_behind": delay}
        return {
            "fleet": self._catalogue.fleet,
            "uptime_seconds": round(now - self._start_seconds, 1),
            "connected": self._link.subscribed,
            "connection": self._link.last_error,
            "worker_round_seconds": round(self.round_age, 1),
            "alarms": [
                {name: getattr(alarm, name) for name in _ALARM_FIELDS} | {"since": int(alarm.since)}
                for alarm in self.alarms.current()
            ],
            "inbox": self.waiting,
            **self._read_details(),
            "devices": devices,
            "counters": dict(sorted(self.counters().items())),
        }


def _frame_seconds(policy: AnyPolicy) -> float:
    ticks = policy.frame_ticks
    if isinstance(policy, Policy) and policy.table is None:
        ticks = min(window.stride for window in policy.counted_windows)
    return ticks * policy.clock.period_us / 1e6


def ask_gateway(store: Location) -> dict[str, Any]:
    """Ask the gateway that runs with a store on this machine for its report.

    The process of the whole fleet has everything but the devices, which the shards on this machine add. Without that
    process, the reports of these shards are merged. Raises NotRunningError if no process answers this account, or an
    answer is cut short; FuguError for an answer of another account.
    """
    fleet_socket, *shard_sockets = sockets(store)
    report = _ask_socket(fleet_socket, store)
    answers = (_ask_socket(path, store) for path in shard_sockets)
    reports = [answer for answer in answers if answer and "process" in answer]  # not of a store with a shard's name
    if report is None and not reports:
        raise NotRunningError(
            f"no gateway answers for the store {store.name}: it does not run, or as another account (try sudo -u)"
        )
    merged_report = _merge_reports(reports) if report is None else report
    for shard_report in reports if report is None or "missing" in report else ():
        merged_report["devices"] |= shard_report["devices"]
    merged_report["devices"] = dict(sorted(merged_report["devices"].items()))
    return merged_report


def _ask_socket(path: Path, store: Location) -> dict[str, Any] | None:
    if not (answer := ask(path, owner_of_folder=not _has_own_folder(store))):
        return None
    try:
        document: dict[str, Any] = json.loads(answer)
    except ValueError:
        raise NotRunningError(f"the gateway of the store {store.name} was too busy to say it all: ask again") from None
    return document


def _merge_reports(reports: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    report = dict(reports[0])
    for other_report in reports[1:]:
        report["connected"] = report["connected"] and other_report["connected"]
        report["alarms"] = [*report["alarms"], *other_report["alarms"]]
        report["counters"] = dict(sorted((Counter(report["counters"]) + Counter(other_report["counters"])).items()))
        for field_name in ("inbox", "estimates_waiting"):
            report[field_name] += other_report[field_name]
        for field_name in ("uptime_seconds", "worker_round_seconds", "store_bytes"):  # the processes share one store
            report[field_name] = max(report[field_name], other_report[field_name])
        report["connection"] = report["connection"] or other_report["connection"]
        report["process"] = f"{report['process']}, {other_report['process']}"
    return report


def _has_own_folder(store: Location) -> bool:
    return not isinstance(store, Path) and store.has_own_folder


def _log_fields(alarm: _Alarm, event: str) -> dict[str, Any]:
    return {"alarm": str(alarm.code), "device": alarm.name, "what": event, "count": alarm.count}
