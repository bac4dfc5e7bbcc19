"""The schedule of releases: when a window is due, and publishing.

A window is due when its ticks are past for all its devices and none of their frames is missing. A missing frame is on
its way, because the watermark asks its device for it. The window waits for the frame, but only for a time. If the
release has a patience, the window also waits only for a time for a device that is behind. The first window of a
schedule waits for all frames before it, too, because an earlier window may be in them. The gateway's clock, too, has
to say that a window is past, so that no single device decides this. Just after a new connection, when frames that have
piled up arrive in any order, the window waits. Once a window has waited in vain, frames of other windows that were past
by then are not waited for. So a device with holes delays releases by one wait only.

The next tick of a schedule is in the ledger, in the same transaction as the release, so that each window is released at
most once. Windows that the ledger refuses, or without symbols, are counted and passed over, never tried again. Reserved
releases are published from the ledger until the broker has acknowledged them, after a restart with the same bytes. At
every new connection the newest release of each topic is published again: the broker may have lost what it retained.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from fugu.contract.errors import FuguError, cause
from fugu.contract.windows import Window
from fugu.host.database import AwayError, DatabaseError, is_lost
from fugu.mqtt import Link
from gateway.releases.inputs import Question
from gateway.releases.jobs import Job
from gateway.releases.maker import EmptyWindowError, LaterError
from gateway.releases.setup import Releases
from gateway.store.coverage import Coverage, Shifts
from gateway.store.engine import LedgerError
from gateway.store.journal import tick_at
from gateway.store.store import Store

__all__ = ["NewestTicks", "NotKnownError", "ReleaseSchedule", "StoreProgress"]


class NotKnownError(Exception):
    """Raised if a question about devices was put to other processes and is not answered yet."""


class NewestTicks(NamedTuple):
    """The newest wall tick of the device that is furthest behind, and of the one that is furthest ahead."""

    low: int
    high: int


class StoreProgress:
    """How far the frames of a store's devices reach; it belongs to the calling thread.

    `coverage` is as `gateway.loop.recorder.Recorder.coverage_of`. If other processes store the frames, every method may
    raise `NotKnownError`.
    """

    def __init__(self, store: Store, coverage: Callable[[str, str], tuple[Coverage, Shifts]]) -> None:
        self._store = store
        self._coverage_of = coverage

    def newest_ticks(self, question: Question) -> NewestTicks:
        """The newest wall ticks of a question's devices; with windows only, the tick after a device's last window."""
        wall_ticks = []
        for _, _, window, coverage, shifts in self._sequences(question):
            end = coverage.end
            if window is not None and end >= 0:
                end = window.start + end * window.stride + window.length
            wall_ticks.append(end - shifts.newest)
        return NewestTicks(min(wall_ticks), max(wall_ticks))

    def complete(self, question: Question, first: int, end: int) -> bool:
        """Tell whether no symbols and no windows of any device are missing in the wall ticks first..end."""
        for device in self.known_devices(question):
            for name, window in question.sequences(device):
                coverage, shifts = self._coverage_of(device, name)
                shift, beginning = (shifts if window is None else shifts.in_ticks(window)).owner(first, end)
                low, high = (beginning - 1, beginning - 1) if shift is None else (first + shift, end + shift)
                if window is not None:
                    low = max(0, (low - window.start) // window.stride)
                    high = max(low, (high + 1 - window.length - window.start) // window.stride)
                if not coverage.holds(low, high):
                    return False
        return True

    def next_frame(self, question: Question, tick: int) -> int | None:
        """The first wall tick of any device's first stored frame that ends at `tick` or later, or `None`."""
        first_ticks: list[int] = []
        sequences = list(self._sequences(question))
        numbers = {name: self._store.numbers(name, question.devices) for name in {name for _, name, *_ in sequences}}
        for device, name, window, _, shifts in sequences:
            frames = self._store.symbols if window is None else self._store.windows
            sequence_number = numbers[name].get(device)
            for low, high, shift in shifts.stretches(tick):
                first = None if sequence_number is None else frames.next_first(sequence_number, low)
                if first is not None and first <= high:
                    first_ticks.append(first - shift)
        return min(first_ticks, default=None)

    def wall_tick(self, question: Question, tick_numbers: Mapping[str, int]) -> int:
        """The largest wall tick of tick numbers, given by device; 0 without any. Other devices' numbers are ignored."""
        wall_ticks = [0]
        for device, *_, shifts in self._sequences(question) if tick_numbers else ():
            if device in tick_numbers:
                wall_ticks.append(tick_numbers[device] - shifts.at(tick_numbers[device]))
        return max(wall_ticks)

    def known_devices(self, question: Question) -> tuple[str, ...]:
        """Return a question's devices; a subclass first reads how far their frames reach."""
        return question.devices

    def _sequences(self, question: Question) -> Iterator[tuple[str, str, Window | None, Coverage, Shifts]]:
        """Yield each device with its first sequence that may answer: name, window, coverage, and shifts by tick."""
        for device in self.known_devices(question):
            name, window = question.sequences(device)[0]
            coverage, shifts = self._coverage_of(device, name)
            yield device, name, window, coverage, shifts if window is None else shifts.in_ticks(window)


_log = logging.getLogger(__name__)
_SHARE = 10
"""Least ratio of the pause between searches for due windows to the time that a search takes."""
_SLICE_SECONDS = 0.05
_SCAN_SECONDS = 0.25
_PAUSE_SECONDS = 0.5
_MAX_IN_FLIGHT = 50
_LATE_SECONDS = 30.0
_MOST_LATE_SECONDS = 600.0
"""For so long at most, each new connection lets missing frames be waited for anew, if none lasts."""
_LOOK_SECONDS = 5.0


_FEW_ACCOUNTS = 200
_LEAST_RATIO = 10
"""With more than `_FEW_ACCOUNTS` accounts, the least ratio of the time between renewals to the time of one."""


class ReleaseSchedule:
    """Makes and publishes the releases that are due; the ledger belongs to the calling thread.

    The ledger's accounts follow the policies of the fleet: they are renewed before the next release. If a policy cannot
    be accounted for, releases wait.

    Counts `releases`, `releases_published`, `releases_refused`, `releases_empty` and `ledger_errors`.

    Args:
        seconds: a monotonic clock.
        refused: called for each refused window, with the name of its job and the reason.

    Attributes:
        other_topics: topics of releases that are not made here, and stay retained.
        has_changed: True if the store may have frames that the search for due windows has not seen.
    """

    def __init__(
        self,
        releases: Releases,
        progress: StoreProgress,
        link: Link,
        counters: Counter[str],
        seconds: Callable[[], float] = time.monotonic,
        refused: Callable[[str, str], None] = lambda _name, _reason: None,
    ) -> None:
        self._releases = releases
        self._ledger = releases.ledger
        self._seconds = seconds
        self._refused = refused
        self._gap_since: dict[str, tuple[int, float]] = {}
        self._gap_waited_through: dict[str, int] = {}
        self._connected_at = self._unsteady_since = float("-inf")
        self._look_after = 0.0
        self._progress = progress
        self._link = link
        self._counters = counters
        self._next_ticks: dict[str, int] = {}
        self._due_windows: deque[tuple[Job, int]] = deque()
        self.has_changed = True
        self._scan_after = 0.0
        self._pause_until = 0.0
        self._has_unsent = True
        self._sent_through = 0
        self._repeats: deque[int] | None = None
        self._in_flight: dict[int, int] = {}
        self.other_topics: frozenset[str] = frozenset()
        self._to_renew = self._halted = False
        self._renew_at = 0.0
        self._charges = releases.maker.catalogue.charges

    @property
    def finished(self) -> bool:
        """Tell whether no release is on its way to the broker."""
        return self._halted or not self._in_flight

    @property
    def busy(self) -> bool:
        """Tell whether there may be a release to work on now."""
        is_paused = self._halted or self._must_renew or time.monotonic() < self._pause_until
        return not is_paused and (bool(self._due_windows) or self.has_changed)

    def next_windows(self) -> dict[str, int]:
        """The first tick of each release's next window, by name; without those that are not known yet."""
        return {} if self._halted else dict(self._next_ticks)

    def connected(self, *, begun_anew: bool) -> None:
        """Note a new connection to the broker, over which missing frames may come.

        Nothing is published before the first connection. With `begun_anew` releases under way are published again,
        because the broker will not acknowledge them.
        """
        self._note_connection()
        self._repeats = None
        if begun_anew:
            self._in_flight.clear()
            self._sent_through = 0
            self._has_unsent = True

    def note_release(self) -> None:
        """Note that the ledger has a release that was not made here."""
        self._counters["releases"] += 1
        self._has_unsent = True

    def wait_again(self) -> None:
        """Wait again for missing frames, because another process takes frames again."""
        self._note_connection()

    def _note_connection(self) -> None:
        now = self._seconds()
        if now - self._connected_at >= _LATE_SECONDS:
            self._unsteady_since = now
        self._connected_at = now

    def needed_ticks(self) -> dict[tuple[str, str], int]:
        """The first tick that future releases need, by device and stream. Raises DatabaseError or LedgerError."""
        first_ticks: dict[tuple[str, str], int] = {}
        for job in () if self._halted else self._releases.jobs:
            if job.name not in self._releases.impossible and (first := self._next_window(job)) is not None:
                for device in job.question.devices:
                    stream = device, job.plan.stream
                    first_ticks[stream] = min(first, first_ticks.get(stream, first))
        return first_ticks

    def acknowledged(self, message_id: int, is_accepted: bool) -> None:
        """Note the broker's answer to a message. Raises DatabaseError if the ledger is lost.

        A release that cannot be marked as published is published again at the next start.
        """
        entry_number = self._in_flight.pop(message_id, None)
        if entry_number and is_accepted:
            try:
                self._ledger.mark(entry_number, "published")
                self._counters["releases_published"] += 1
            except DatabaseError as error:
                if is_lost(error):
                    raise
                self._counters["ledger_errors"] += 1

    def renew(self) -> None:
        """Let the ledger's accounts be renewed before the next release: new policies may allow less."""
        self._to_renew = True

    @property
    def _must_renew(self) -> bool:
        return self._to_renew or self._charges != self._releases.maker.catalogue.charges

    def _renew(self) -> None:
        """Renew the ledger's accounts. Raises DatabaseError if the ledger is lost or its server is away."""
        charges, start_time = self._releases.maker.catalogue.charges, time.monotonic()
        try:
            self._releases.renew()
        except (FuguError, DatabaseError) as error:
            if isinstance(error, AwayError) or is_lost(error):
                raise
            _log.error("releases wait, because a policy cannot be accounted for: %s", error)
            self._counters["ledger_errors"] += 1
            self._halted = True
        else:
            if self._halted:
                _log.warning("releases go on")
            self._halted = False
        self._to_renew, self._charges = False, charges
        now, account_count = time.monotonic(), sum(len(job.question.devices) for job in self._releases.jobs)
        self._renew_at = now + _LEAST_RATIO * (now - start_time) if account_count > _FEW_ACCOUNTS else now

    def pump(self, *, idle: bool = False) -> None:
        """Renew the ledger's accounts, or publish reserved releases and make due ones, for a short while.

        Raises DatabaseError if the ledger or the store is damaged or gone, or another process has taken the ledger.
        Raises DatabaseError, too, if the ledger's server is away at a renewal: a later call tries again. After other
        errors of a file the schedule pauses.
        """
        if self._must_renew:
            if time.monotonic() >= self._renew_at:
                self._renew()
            return
        if self._halted or time.monotonic() < self._pause_until:
            return
        try:
            self._publish()
            deadline = time.monotonic() + _SLICE_SECONDS
            while time.monotonic() < deadline and self._advance(idle):
                pass
            self._publish()
        except (DatabaseError, LedgerError) as error:
            if is_lost(error):
                raise
            self._due_windows.clear()
            self._next_ticks.clear()  # a server that went away may have stored the release all the same
            self.has_changed = self._has_unsent = True
            self._pause_until = time.monotonic() + _PAUSE_SECONDS
            self._counters["ledger_errors"] += 1
            if self._counters["ledger_errors"] == 1:
                _log.error("releases wait, because a file cannot be used: %s", error)

    def _advance(self, idle: bool) -> bool:
        """Make one release that is due. Return false if none is."""
        if not self._due_windows:
            self._find_due_windows(idle)
        if not self._due_windows:
            return False
        job, first = self._due_windows[0]
        next_tick = first + job.plan.step
        try:
            self._releases.maker.make(job, first, next_tick, seconds=_SLICE_SECONDS)
        except LaterError:
            return True
        except EmptyWindowError as error:
            with contextlib.suppress(NotKnownError):  # the window is looked at again when there are answers
                self._skip_window(job, self._window_after_gap(job, first), "releases_empty", str(error))
        except DatabaseError:  # the window is tried again when the file can be used
            raise
        except FuguError as error:
            self._skip_window(job, next_tick, "releases_refused", str(error))
        except Exception as error:  # an unforeseen error must not stop the gateway
            self._skip_window(job, next_tick, "unexpected", f"{cause(error)} in release {job.name}")
        else:
            self._counters["releases"] += 1
            self._has_unsent = True
            self._set_next_window(job, next_tick)
        self._due_windows.popleft()
        return True

    def _skip_window(self, job: Job, next_tick: int, counter: str, reason: str) -> None:
        """Count and log a window that is not released, and let its schedule go on with tick `next_tick`."""
        self._counters[counter] += 1
        _log.log(logging.INFO if counter == "releases_empty" else logging.WARNING, "no release: %s", reason)
        if counter == "releases_refused":
            self._refused(job.name, reason)
        self._ledger.set_progress(job.name, next_tick)
        self._set_next_window(job, next_tick)

    def _set_next_window(self, job: Job, next_tick: int) -> None:
        """Note that a schedule's next window begins at tick `next_tick`."""
        self._gap_since.pop(job.name, None)
        self._next_ticks[job.name] = next_tick
        self.has_changed = True

    def _find_due_windows(self, idle: bool) -> None:
        """Look for windows that are due, if anything has changed, but not too often while symbols stream in."""
        now = time.monotonic()
        has_late_jobs = any(self._has_waited(job) for job in self._releases.jobs if job.name in self._gap_since)
        if not (self.has_changed or has_late_jobs or now >= self._look_after) or (now < self._scan_after and not idle):
            return
        self.has_changed = False
        for job in self._releases.jobs:
            if job.name in self._releases.impossible:
                continue
            with contextlib.suppress(NotKnownError):  # the release is looked at again when there are answers
                first = self._next_window(job)
                if first is not None and self._is_due(job, first):
                    self._due_windows.append((job, first))
        duration = time.monotonic() - now
        self._scan_after, self._look_after = now + max(_SCAN_SECONDS, _SHARE * duration), now + _LOOK_SECONDS

    def _next_window(self, job: Job) -> int | None:
        """The first tick of a schedule's next window; `None` if there is none, or not yet.

        A new schedule begins with the first whole window from the first symbol on.
        """
        if (first := self._next_ticks.get(job.name)) is None:
            progress = self._ledger.progress(job.name)
            if (first := job.plan.once if progress is None else progress) is None and (
                first := self._progress.next_frame(job.question, 0)
            ) is None:
                return None
            beginnings = self._ledger.beginnings(job.question.devices, job.plan.stream)
            earliest = self._progress.wall_tick(job.question, beginnings)
            earliest = max(earliest, tick_at(job.clock, self._ledger.binding.not_before_us - 1) + 1)
            if job.plan.once is None or earliest > first:
                first = -(-max(first, earliest) // job.plan.step) * job.plan.step
            if progress is not None:  # until the first window is done, an earlier symbol may still come
                self._next_ticks[job.name] = first
        return None if job.plan.once is not None and first > job.plan.once else first

    def _is_due(self, job: Job, first: int) -> bool:
        """Tell whether the window from a tick on is due: past, and without missing frames that are waited for."""
        end = first + job.plan.length - 1
        newest_ticks = self._progress.newest_ticks(job.question)
        if end < self._overdue_end(job, newest_ticks):
            return True
        if newest_ticks.low <= end:
            return False
        if end <= self._gap_waited_through.get(job.name, -1):
            return True
        is_new = job.name not in self._next_ticks and job.plan.once is None  # missing frames may hold earlier windows
        if self._progress.complete(job.question, 0 if is_new else first, end):
            return True
        if self._gap_since.get(job.name, (-1, 0.0))[0] != first:
            self._gap_since[job.name] = (first, self._seconds())
        if not self._has_waited(job):
            return False
        self._gap_waited_through[job.name] = min(newest_ticks.high, tick_at(job.clock, self._releases.maker.now_us()))
        return True

    def _overdue_end(self, job: Job, newest_ticks: NewestTicks) -> int:
        """The tick up to which windows no longer wait for devices that are behind."""
        if job.plan.patience is None or self._seconds() - self._awaited_since < _LATE_SECONDS:
            return 0
        return min(newest_ticks.high, tick_at(job.clock, self._releases.maker.now_us())) - job.plan.patience

    def _has_waited(self, job: Job) -> bool:
        """Tell whether missing frames of a schedule's next window were waited for, also since the newest connection."""
        return self._seconds() - max(self._gap_since[job.name][1], self._awaited_since) >= _LATE_SECONDS

    @property
    def _awaited_since(self) -> float:
        """The time since which missing frames are awaited: the newest connection, or earlier after unsteady ones."""
        return min(self._connected_at, self._unsteady_since + _MOST_LATE_SECONDS)

    def _window_after_gap(self, job: Job, first: int) -> int:
        """The first tick of the next window after an empty one: it has a stored frame, or is not past everywhere."""
        step, next_tick = job.plan.step, first + job.plan.step
        frame = self._progress.next_frame(job.question, next_tick)
        if frame is None:
            return next_tick
        newest_ticks = self._progress.newest_ticks(job.question)
        frame = min(frame, max(newest_ticks.low, self._overdue_end(job, newest_ticks)))
        return max(next_tick, ((frame - job.plan.length) // step + 1) * step)

    @property
    def _can_start(self) -> bool:
        return self._connected_at > float("-inf") and self._link.connected and len(self._in_flight) < _MAX_IN_FLIGHT

    def _publish(self) -> None:
        """Publish each topic's newest release after a new connection, then reserved releases, oldest first."""
        if self._repeats is None and self._can_start:
            self._repeats = deque(self._ledger.newest_published(self._sent_through))
        while self._repeats and self._can_start and (entry := self._ledger.entry(self._repeats[0])) is not None:
            is_made = entry.topic in self.other_topics or any(job.topic == entry.topic for job in self._releases.jobs)
            payload = entry.payload if is_made else b""  # the broker drops a release that is made no more
            if (message_id := self._link.publish(entry.topic, payload, retain=True)) is None:
                return
            self._repeats.popleft()
            self._in_flight[message_id] = 0
        while self._has_unsent and not self._repeats and self._can_start:
            entries = self._ledger.entries(self._sent_through, 1, pending=True)
            if not entries:
                self._has_unsent = False
                return
            entry = entries[0]
            self._releases.record.note(self._ledger, entry.number)
            message_id = self._link.publish(entry.topic, entry.payload, retain=True)
            if message_id is None:
                return
            self._in_flight[message_id] = entry.number
            self._sent_through = entry.number
