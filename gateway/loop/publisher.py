"""The gateway's publications: watermarks to devices, reports to whoever listens.

Both have a share of what may be under way, so that neither holds up the other. No crash or broken connection loses the
newest report. Those of points and windows wait in the store's outbox until the broker has acknowledged them. Of a
stream of symbols, the newest is published again until the broker is known to have it. A watermark is said again
whenever its device gives a sign of life.

The times of reports of a stream, or of one of its windows, never go back. Older ones are left out; they are in the
store. After a restart nobody knows what was told, so nothing older than the newest frame is.

The numbers of watermarks go up, across restarts and across gateways that follow each other. They are microseconds of
Unix time as it was at the start, so that those of a new store are above. The store reserves numbers before they are
used. So a clock that was set back, or was ahead for a while, changes nothing for a gateway that keeps its store.

A live subscriber needs what is newest, and none should wait for a device that sends much. So streams take turns, each
with the newest frames that wait, as many as fit its share, at most `MOST_WAITING`. Older ones are not reported.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime

from fugu.contract.errors import FuguError, Reason
from fugu.contract.reports import Estimate, WindowCount
from fugu.contract.topics import topic_of
from fugu.mqtt import Link
from gateway.estimates.symbols import Reports
from gateway.loop.recorder import Recorder
from gateway.parts import Part
from gateway.store.journal import Heard
from gateway.store.store import Outgoing, Store

__all__ = ["Publisher"]


RESERVED_US = 10_000_000


class WatermarkCounter:
    """Counts from the store or the Unix time at the start, whichever is further; both clocks in microseconds."""

    def __init__(
        self,
        store: Store,
        now_us: Callable[[], int] = lambda: time.time_ns() // 1000,
        elapsed_us: Callable[[], int] = lambda: time.monotonic_ns() // 1000,
    ) -> None:
        self._store = store
        self._elapsed_us = elapsed_us
        self._reserved = store.reserved_counter()
        self._last = max(now_us(), self._reserved)
        self._ahead = self._last - elapsed_us()

    def next(self) -> int:
        """A number above all before. Raises DatabaseError if the store cannot be used."""
        number = max(self._last + 1, self._ahead + self._elapsed_us())
        if number > self._reserved:
            self._store.reserve_counter(number + RESERVED_US)
            self._reserved = number + RESERVED_US
        self._last = number
        return number


MOST_WAITING = 32
"""Frames of one sequence that wait, at most."""


class Waiting:
    """Waiting frames and windows, by sequence; the store has the same."""

    def __init__(self) -> None:
        self._sequences: dict[int, tuple[Outgoing, dict[int, int]]] = {}  # one of each sequence, and serials by frame

    def __len__(self) -> int:
        return sum(len(serials) for _, serials in self._sequences.values())

    def put(self, outgoing: Outgoing) -> int | None:
        """Add one in place of what waits of its frame; the serial of one that is now one too many, if any."""
        _, serials = self._sequences.setdefault(outgoing.key.number, (outgoing, {}))
        serials[outgoing.frame] = outgoing.serial
        return serials.pop(min(serials)) if len(serials) > MOST_WAITING else None

    def take(self, capacity: int) -> tuple[list[Outgoing], list[int]]:
        """Remove so many, the newest of each sequence in turn; those of one sequence in their order.

        Also returns the serials of those that are not published any more, because newer ones of their sequence are.
        """
        outgoing: list[Outgoing] = []
        superseded: list[int] = []
        share = max(1, capacity // max(1, len(self._sequences)))
        while self._sequences and (room := capacity - len(outgoing)) > 0:
            template, serials = self._sequences.pop(next(iter(self._sequences)))
            newest = sorted(serials)[-min(share, room) :]
            outgoing += [template._replace(serial=serials.pop(frame), frame=frame) for frame in newest]
            superseded += serials.values()
        return outgoing, superseded


_READ = 1_000
_FORGET_EVERY = 500


class Publisher(Part):
    """Publishes as much as the connection takes, and queues the rest.

    Args:
        key: the key that a device knows its watermarks by, None if it has none; None if nobody has one.
        counters: counts `committed`, `estimates`, `counts` (of windows) and, under their `Reason`, frames that cannot
            be reported. `coalesced` are not reported because a newer frame of their stream was, or too many waited.

    Attributes:
        MAX_IN_FLIGHT: watermarks that the broker has not acknowledged, at most; and as many reports.
    """

    MAX_IN_FLIGHT = 200

    def __init__(
        self,
        link: Link,
        fleet: str,
        store: Store,
        recorder: Recorder,
        counters: Counter[str],
        *,
        key: Callable[[str], bytes | None] | None = None,
    ) -> None:
        self._link = link
        self._fleet = fleet
        self._store = store
        self._recorder = recorder
        self._counters = counters
        self._owed_devices: dict[str, None] = {}
        self._watermarks: set[int] = set()
        self._reports: dict[int, int] = {}
        self._symbols: Reports = recorder.symbols.reports
        self._symbol_messages: dict[int, tuple[int, int]] = {}
        self._symbol_times: dict[int, datetime] = {}
        self._waiting = Waiting()
        self._start_frames = store.newest_frames()
        self._report_times: dict[int, datetime | None] = {}
        self._read_through, self._queued = 0, -1
        self._done_serials: list[int] = []
        self._counter = WatermarkCounter(store)
        self._key = key

    def born(self, device: str) -> None:
        """Publish the device's watermark at the next opportunity."""
        self._owed_devices[device] = None

    def stored(self, heard: Sequence[Heard]) -> None:
        """Publish the watermarks of devices whose frames were stored, or refused for good."""
        self._owed_devices.update(dict.fromkeys(heard_frame.device for heard_frame in heard))

    def connected(self, *, begun_anew: bool) -> None:
        """Forget what will never be answered: reports are published again, watermarks when they are owed."""
        if not begun_anew:
            return
        self._watermarks.clear()
        self._reports.clear()
        for number, _ in self._symbol_messages.values():
            self._symbols.put_again(number)
        self._symbol_messages.clear()
        self._waiting = Waiting()
        self._read_through, self._queued = 0, -1

    def acknowledged(self, message_id: int, accepted: bool = True) -> None:
        """The broker has a message."""
        self._watermarks.discard(message_id)
        if (serial := self._reports.pop(message_id, None)) is not None:
            self._done_serials.append(serial)
        elif (symbol := self._symbol_messages.pop(message_id, None)) is not None:
            self._symbols.acknowledged(*symbol)

    def pump(self, *, idle: bool = False) -> None:
        """Publish what there is room for; when idle, also tidy the outbox. Raises DatabaseError; nothing is lost."""
        self._say_watermarks()
        self._report_symbols()
        self._report()
        if self._done_serials and (idle or len(self._done_serials) >= _FORGET_EVERY):
            self._store.forget_outgoing(self._done_serials)
            self._done_serials.clear()

    @property
    def finished(self) -> bool:
        """True if nothing is owed or under way."""
        under_way = self._watermarks or self._reports or self._symbol_messages
        return not (self._owed_devices or under_way or self._done_serials)

    def details(self) -> dict[str, object]:
        """How many frames and windows wait to be reported."""
        return {"estimates_waiting": len(self._symbols) + len(self._waiting)}

    def _say_watermarks(self) -> None:
        if self._owed_devices and self._link.connected:
            self._store.check()  # what has gone with its file is not durable, whatever was noted of it
        while self._owed_devices and self._link.connected and len(self._watermarks) < self.MAX_IN_FLIGHT:
            device = next(iter(self._owed_devices))
            for message in self._recorder.committed(device):
                signed = replace(message, counter=self._counter.next())
                if self._key is not None and (key := self._key(device)) is not None:
                    signed = signed.signed(key, self._fleet, device)
                topic = topic_of("committed", self._fleet, device)
                if (message_id := self._link.publish(topic, signed.encode())) is None:
                    return
                self._watermarks.add(message_id)
                self._counters["committed"] += 1
            del self._owed_devices[device]

    def _report_symbols(self) -> None:
        if not self._link.connected:
            return
        in_flight = len(self._reports) + len(self._symbol_messages)
        reports = self._symbols.take(max(self.MAX_IN_FLIGHT - in_flight, 0))
        for sent_count, (key, tick, estimate, error) in enumerate(reports):
            if estimate is None:
                self._counters[Reason.UNEXPECTED if error is None else error.reason] += 1
                continue
            if (newest := self._symbol_times.get(key.number)) is not None and estimate.time < newest:
                self._counters["coalesced"] += 1
                continue
            topic = topic_of("estimate", self._fleet, key.device, key.stream)
            if (message_id := self._link.publish(topic, estimate.encode())) is None:
                for unsent in reports[sent_count:]:
                    self._symbols.put_again(unsent.key.number)
                return
            self._symbol_times[key.number] = estimate.time
            self._symbol_messages[message_id] = key.number, tick
            self._counters["estimates"] += 1

    def _report(self) -> None:
        if self._queued != self._store.queued:
            while outgoing_rows := self._store.outbox(self._read_through, _READ):
                for outgoing in outgoing_rows:
                    if (excess_serial := self._waiting.put(outgoing)) is not None:
                        self._leave_out(excess_serial)
                self._read_through = outgoing_rows[-1].serial
            self._queued = self._store.queued
        if not self._link.connected:
            return
        in_flight = len(self._reports) + len(self._symbol_messages)
        rows, superseded = self._waiting.take(max(self.MAX_IN_FLIGHT - in_flight, 0))
        for serial in superseded:
            self._leave_out(serial)
        sent_count = 0
        try:
            while sent_count < len(rows) and self._send(rows[sent_count]):
                sent_count += 1
        finally:
            for unsent in rows[sent_count:]:
                self._waiting.put(unsent)

    def _leave_out(self, serial: int) -> None:
        self._done_serials.append(serial)
        self._counters["coalesced"] += 1

    def _send(self, outgoing: Outgoing) -> bool:
        """Publish what is known of a frame, unless that is nothing or a newer one was; whether it is dealt with."""
        if (report := self._report_of(outgoing)) is None:
            self._done_serials.append(outgoing.serial)
            return True
        if (last_time := self._last_report_time(outgoing)) is not None and report.time < last_time:
            self._leave_out(outgoing.serial)
            return True
        key = outgoing.key
        topic = topic_of("count" if key.window else "estimate", self._fleet, key.device, key.stream)
        if (message_id := self._link.publish(topic, report.encode())) is None:
            return False
        self._report_times[key.number] = report.time
        self._reports[message_id] = outgoing.serial
        self._counters["counts" if key.window else "estimates"] += 1
        return True

    def _report_of(self, outgoing: Outgoing) -> Estimate | WindowCount | None:
        try:
            return self._recorder.report(outgoing)
        except FuguError as error:
            self._counters[error.reason] += 1
            return None

    def _last_report_time(self, outgoing: Outgoing) -> datetime | None:
        """The time of the newest report that may have been published of a sequence, also before the start."""
        number = outgoing.key.number
        if number not in self._report_times:
            frame = self._start_frames.pop(number, None)
            newest = None if frame is None else self._report_of(outgoing._replace(frame=frame))
            self._report_times[number] = None if newest is None else newest.time
        return self._report_times[number]
