"""The schedule of releases: when a window is due, and publishing.

A window is due when its ticks are past for all its devices and none of their frames is missing. A missing frame is on
its way, because the watermark asks its device for it. The window waits for it, but not for ever. Where that is
configured, it does not wait for ever for a device that is behind. The gateway's clock, too, has to say that a window is
past, so that no single device decides it. Just after a new connection, when what has piled up arrives in any order, it
waits. Once it has waited for nothing, it does so for nothing that was past then, so that a device with holes delays
releases only so far.

Where a schedule goes on is in the ledger, in the same transaction as the release, so that each window is released at
most once. Windows that the ledger refuses, or without symbols, are counted and passed over, never tried again. What was
reserved is published from the ledger until the broker has acknowledged it, after a restart with the same bytes. So is,
at every new connection, the newest release of each topic: the broker may have lost what it retained.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping
from typing import NamedTuple

from fugu.contract.errors import FuguError, cause
from fugu.contract.frames import sequence_name
from fugu.contract.windows import Window
from fugu.host.database import DatabaseError, is_lost
from fugu.mqtt import Link
from gateway.releases.inputs import Question
from gateway.releases.jobs import Job
from gateway.releases.maker import EmptyWindowError, LaterError
from gateway.releases.setup import Releases
from gateway.store.coverage import Coverage, Shifts
from gateway.store.engine import LedgerError
from gateway.store.journal import tick_at
from gateway.store.store import Store

__all__ = ["NotKnownError", "Reached", "ReleaseSchedule", "StoreProgress"]


class NotKnownError(Exception):
    """It is not known yet: somebody was asked, and has not answered."""


class Reached(NamedTuple):
    """The newest wall tick of the device that is furthest behind, and of the one that is furthest ahead."""

    low: int
    high: int


class StoreProgress:
    """Where a store's devices are; the calling thread owns it. `known` is as of `gateway.loop.recorder.Recorder`.

    Where others store them, everything may raise `NotKnownError`.
    """

    def __init__(self, store: Store, coverage: Callable[[str, str], tuple[Coverage, Shifts]]) -> None:
        self._store = store
        self._known = coverage

    def reached(self, question: Question) -> Reached:
        """The progress of devices, as far as it is known; one with windows only is after the last that it counted."""
        reached = []
        for device in self.devices_known(question):
            name, window = _sequence(question, device)
            coverage, shifts = self._known(device, name)
            number = coverage.end
            if window is not None and number >= 0:
                number = window.start + number * window.stride + window.length
            reached.append(number - shifts.newest)
        return Reached(min(reached), max(reached))

    def complete(self, question: Question, first: int, end: int) -> bool:
        """True if no frame of any device is missing in the wall ticks first..end."""
        return all(self._complete(question, device, first, end) for device in self.devices_known(question))

    def next_frame(self, question: Question, tick: int) -> int | None:
        """The first wall tick of the first stored frame of any device that ends at a wall tick or later."""
        firsts: list[int] = []
        sequences = {device: _sequence(question, device) for device in self.devices_known(question)}
        numbers = {name: self._store.numbers(name, [*sequences]) for name, _ in set(sequences.values())}
        for device, (name, window) in sequences.items():
            frames = self._store.symbols if window is None else self._store.windows
            number, shifts = numbers[name].get(device), self._known(device, name)[1]
            for low, high, shift in shifts.owned(tick) if window is None else shifts.in_ticks(window).owned(tick):
                first = None if number is None else frames.next_first(number, low)
                if first is not None and first <= high:
                    firsts.append(first - shift)
        return min(firsts, default=None)

    def wall_tick(self, question: Question, numbers: Mapping[str, int]) -> int:
        """The last wall tick that any of these tick numbers of devices stands for, 0 without any."""
        walls = [0]
        for device in {*self.devices_known(question)} & numbers.keys():
            name, window = _sequence(question, device)
            _, shifts = self._known(device, name)
            shifts = shifts if window is None else shifts.in_ticks(window)
            walls.append(numbers[device] - shifts.at(numbers[device]))
        return max(walls)

    def devices_known(self, question: Question) -> tuple[str, ...]:
        """The devices of a question, of which something is about to be asked."""
        return question.devices

    def _complete(self, question: Question, device: str, first: int, end: int) -> bool:
        stream, window = question.stream, question.windows.get(device)
        if device not in question.silent:
            coverage, shifts = self._known(device, stream)
            shift, begun = shifts.owner(first, end)
            low, high = (begun - 1, begun - 1) if shift is None else (first + shift, end + shift)
            if not coverage.holds(low, high):
                return False
        if window is None:
            return True
        coverage, shifts = self._known(device, sequence_name(stream, window.name))
        shift, begun = shifts.in_ticks(window).owner(first, end)
        first, end = (begun - 1, begun - 1) if shift is None else (first + shift, end + shift)
        low = max(0, (first - window.start) // window.stride)
        high = (end + 1 - window.length - window.start) // window.stride
        return coverage.holds(low, max(low, high))


def _sequence(question: Question, device: str) -> tuple[str, Window | None]:
    """The sequence that says how far a device is, and the window that its numbers are indices of, if they are."""
    if device not in question.silent:
        return question.stream, None
    window = question.windows[device]
    return sequence_name(question.stream, window.name), window


_log = logging.getLogger(__name__)
_SHARE = 10
"""Least ratio of the time between looks to the time of looking."""
_SLICE_SECONDS = 0.05
_SCAN_SECONDS = 0.25
_PAUSE_SECONDS = 0.5
_MAX_IN_FLIGHT = 50
_LATE_SECONDS = 30.0
_LOOK_SECONDS = 5.0


class ReleaseSchedule:
    """Makes and publishes the releases that are due; their ledger belongs to the calling thread.

    Counts `releases`, `releases_published`, `releases_refused`, `releases_empty`, `ledger_errors`; `seconds` is
    monotonic. `refused` is told of a window the name of its job, and why.

    Attributes:
        also: topics of releases that others make.
    """

    def __init__(
        self,
        releases: Releases,
        progress: StoreProgress,
        link: Link,
        counters: Counter[str],
        seconds: Callable[[], float] = time.monotonic,
        refused: Callable[[str, str], None] = lambda _name, _why: None,
    ) -> None:
        self._releases = releases
        self._seconds = seconds
        self._refused = refused
        self._gap_since: dict[str, tuple[int, float]] = {}
        self._waited_through: dict[str, int] = {}
        self._connected = float("-inf")
        self._look_again = 0.0
        self._progress = progress
        self._link = link
        self._counters = counters
        self._next: dict[str, int] = {}
        self._due: deque[tuple[Job, int]] = deque()
        self._changed = True
        self._scan_after = 0.0
        self._pause_until = 0.0
        self._waiting = True
        self._sent_through = 0
        self._again: deque[int] | None = None
        self._in_flight: dict[int, int] = {}
        self.also: frozenset[str] = frozenset()

    @property
    def finished(self) -> bool:
        """True if no release is on its way to the broker."""
        return not self._in_flight

    @property
    def busy(self) -> bool:
        """True if there may be work to do now."""
        return (bool(self._due) or self._changed) and time.monotonic() >= self._pause_until

    def following(self) -> dict[str, int]:
        """By release: the first tick of the window that comes next, as far as that is known."""
        return dict(self._next)

    def connected(self, *, begun_anew: bool) -> None:
        """There is a new connection: what waited for it comes now; nothing is published before the first.

        With `begun_anew` what was under way is published again: it will not be answered.
        """
        self._connected = self._seconds()
        self._again = None
        if begun_anew:
            self._in_flight.clear()
            self._sent_through = 0
            self._waiting = True

    def note_release(self) -> None:
        """Note that the ledger has a release that somebody else has made."""
        self._counters["releases"] += 1
        self._waiting = True

    def unsettled(self) -> None:
        """Somebody has come back who takes frames: what is missing may be on its way."""
        self._connected = max(self._connected, self._seconds())
        self._gap_since.clear()

    def needed(self) -> dict[tuple[str, str], int]:
        """By device and stream the first tick that a release still to be made needs. DatabaseError, LedgerError."""
        firsts: dict[tuple[str, str], int] = {}
        for job in self._releases.jobs:
            if job.name not in self._releases.impossible and (first := self._first(job)) is not None:
                for device in job.question.devices:
                    key = device, job.plan.stream
                    firsts[key] = min(first, firsts.get(key, first))
        return firsts

    def stored(self) -> None:
        """New symbols are in the store."""
        self._changed = True

    def acknowledged(self, message_id: int, accepted: bool) -> None:
        """Note the broker's answer; after a DatabaseError the release is published again at the next start."""
        number = self._in_flight.pop(message_id, None)
        if number and accepted:
            self._releases.ledger.mark(number, "published")
            self._counters["releases_published"] += 1

    def pump(self, *, idle: bool) -> None:
        """Publish what waits, and work on releases for a short while.

        Raises DatabaseError if the ledger or the store is damaged or gone; other errors of theirs are waited out.
        """
        if time.monotonic() < self._pause_until:
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
            self._due.clear()
            self._next.clear()  # a release may be in the ledger all the same, if a server went away when it had it
            self._changed = self._waiting = True
            self._pause_until = time.monotonic() + _PAUSE_SECONDS
            self._counters["ledger_errors"] += 1
            if self._counters["ledger_errors"] == 1:
                _log.error("releases wait, because a file cannot be used: %s", error)

    def _advance(self, idle: bool) -> bool:
        """Make one release that is due; false if there is none."""
        if not self._due:
            self._scan(idle)
        if not self._due:
            return False
        job, first = self._due[0]
        following = first + job.plan.step
        try:
            self._releases.maker.make(job, first, following, seconds=_SLICE_SECONDS)
        except LaterError:
            return True
        except EmptyWindowError as error:
            with contextlib.suppress(NotKnownError):  # it is looked at again when there are answers
                self._pass_over(job, self._after_gap(job, first), "releases_empty", str(error))
        except DatabaseError:  # the window is tried again when the file can be used
            raise
        except FuguError as error:
            self._pass_over(job, following, "releases_refused", str(error))
        except Exception as error:  # what nobody thought of must not stop the gateway
            self._pass_over(job, following, "unexpected", f"{cause(error)} in release {job.name}")
        else:
            self._counters["releases"] += 1
            self._waiting = True
            self._done(job, following)
        self._due.popleft()
        return True

    def _pass_over(self, job: Job, following: int, counter: str, text: str) -> None:
        self._counters[counter] += 1
        _log.log(logging.INFO if counter == "releases_empty" else logging.WARNING, "no release: %s", text)
        if counter == "releases_refused":
            self._refused(job.name, text)
        self._releases.ledger.set_progress(job.name, following)
        self._done(job, following)

    def _done(self, job: Job, following: int) -> None:
        self._gap_since.pop(job.name, None)
        self._next[job.name] = following
        self._changed = True

    def _scan(self, idle: bool) -> None:
        """Look for windows that are due, if anything has changed, and not too often while symbols stream in."""
        now = time.monotonic()
        late = any(self._waited(job) for job in self._releases.jobs if job.name in self._gap_since)
        if not (self._changed or late or now >= self._look_again) or (now < self._scan_after and not idle):
            return
        self._changed = False
        for job in self._releases.jobs:
            if job.name in self._releases.impossible:
                continue
            with contextlib.suppress(NotKnownError):  # it is looked at again when there are answers
                first = self._first(job)
                if first is not None and self._is_past(job, first):
                    self._due.append((job, first))
        took = time.monotonic() - now
        self._scan_after, self._look_again = now + max(_SCAN_SECONDS, _SHARE * took), now + _LOOK_SECONDS

    def _first(self, job: Job) -> int | None:
        """The tick at which a schedule goes on: at first the first whole window after the first symbol, or `None`."""
        if (once := self._next.get(job.name)) is None:
            progress = self._releases.ledger.progress(job.name)
            if (once := job.plan.once if progress is None else progress) is None and (
                once := self._progress.next_frame(job.question, 0)
            ) is None:
                return None
            begins = self._releases.ledger.beginnings(job.question.devices, job.plan.stream)
            begun = self._progress.wall_tick(job.question, begins)
            begun = max(begun, tick_at(job.clock, self._releases.ledger.binding.not_before_us - 1) + 1)
            if job.plan.once is None or begun > once:
                once = -(-max(once, begun) // job.plan.step) * job.plan.step
            if progress is not None:  # until the first window is done, an earlier symbol may still come
                self._next[job.name] = once
        return None if job.plan.once is not None and once > job.plan.once else once

    def _is_past(self, job: Job, first: int) -> bool:
        end = first + job.plan.length - 1
        reached = self._progress.reached(job.question)
        if end < self._overdue(job, reached):
            return True
        if reached.low <= end:
            return False
        if end <= self._waited_through.get(job.name, -1):
            return True
        if self._progress.complete(job.question, first, end):
            return True
        if self._gap_since.get(job.name, (-1, 0.0))[0] != first:
            self._gap_since[job.name] = (first, self._seconds())
        if not self._waited(job):
            return False
        self._waited_through[job.name] = min(reached.high, tick_at(job.clock, self._releases.maker.now_us()))
        return True

    def _overdue(self, job: Job, reached: Reached) -> int:
        """Devices that are behind are not waited for with windows that end before this tick."""
        if job.plan.patience is None or self._seconds() - self._connected < _LATE_SECONDS:
            return 0
        return min(reached.high, tick_at(job.clock, self._releases.maker.now_us())) - job.plan.patience

    def _waited(self, job: Job) -> bool:
        """True if the frames that a schedule's next window misses have been waited for long enough."""
        return self._seconds() - self._gap_since[job.name][1] >= _LATE_SECONDS

    def _after_gap(self, job: Job, first: int) -> int:
        """The first window after an empty one that a stored frame reaches into, or that is not past on all devices."""
        step, following = job.plan.step, first + job.plan.step
        frame = self._progress.next_frame(job.question, following)
        if frame is None:
            return following
        reached = self._progress.reached(job.question)
        frame = min(frame, max(reached.low, self._overdue(job, reached)))
        return max(following, ((frame - job.plan.length) // step + 1) * step)

    @property
    def _can_start(self) -> bool:
        return self._connected > float("-inf") and self._link.connected and len(self._in_flight) < _MAX_IN_FLIGHT

    def _publish(self) -> None:
        if self._again is None and self._can_start:
            self._again = deque(self._releases.ledger.newest_published(self._sent_through))
        while self._again and self._can_start and (entry := self._releases.ledger.entry(self._again[0])) is not None:
            is_running = entry.topic in self.also or any(job.topic == entry.topic for job in self._releases.jobs)
            payload = (
                entry.payload if is_running else b""
            )  # of a release that is made no more, the broker keeps nothing
            if (message_id := self._link.publish(entry.topic, payload, retain=True)) is None:
                return
            self._again.popleft()
            self._in_flight[message_id] = 0
        while self._waiting and not self._again and self._can_start:
            entries = self._releases.ledger.entries(self._sent_through, 1, pending=True)
            if not entries:
                self._waiting = False
                return
            entry = entries[0]
            self._releases.record.note(self._releases.ledger, entry.number)
            message_id = self._link.publish(entry.topic, entry.payload, retain=True)
            if message_id is None:
                return
            self._in_flight[message_id] = entry.number
            self._sent_through = entry.number
