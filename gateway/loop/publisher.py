"""The gateway's publications: watermarks to devices, reports to subscribers.

Each of the two has its own limit of unacknowledged messages, so that neither holds up the other. No crash or broken
connection loses the newest report. Reports of points and windows wait in the store's outbox until the broker has
acknowledged them. Of a stream of symbols, the newest report is published again until the broker has it. A watermark is
published again whenever its device gives a sign of life.

The times of reports of a stream, or of one of its windows, never go back. An older report is left out; its frame is
in the store. After a restart the gateway does not know what it had reported, so it reports nothing older than the
newest frame.

The numbers of watermarks go up, across restarts and across gateways that follow each other. They are microseconds of
Unix time as it was at the start, so that the numbers of a new store are higher. The store reserves numbers before they
are used. So a clock that was set back, or was ahead for a while, changes nothing for a gateway that keeps its store.

A live subscriber needs the newest report, and no report should wait for a device that sends much. So streams take
turns. In its turn a stream gets reports of its newest waiting frames, as many as its share of the room, and at most
`MOST_WAITING`. Older frames are not reported.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime

from fugu.contract.errors import FuguError
from fugu.contract.reports import Estimate, WindowCount
from fugu.contract.topics import topic_of
from gateway.estimates.symbols import Reports
from gateway.loop.recorder import Recorder
from gateway.parts import Loop, Part
from gateway.store.journal import NewestFrame, time_us
from gateway.store.store import Outgoing, Store

__all__ = ["Publisher"]


RESERVED_US = 10_000_000


class WatermarkCounter:
    """A counter that starts at the store's number or the Unix time, if higher, and goes on with a steady clock."""

    def __init__(
        self,
        store: Store,
        now_us: Callable[[], int] = time_us,
        elapsed_us: Callable[[], int] = lambda: time.monotonic_ns() // 1000,
    ) -> None:
        self._store = store
        self._elapsed_us = elapsed_us
        self._reserved = store.reserved_counter()
        self._last = max(now_us(), self._reserved)
        self._ahead = self._last - elapsed_us()

    def next(self) -> int:
        """Return a number above all former ones. Raises DatabaseError if the store cannot be used."""
        number = max(self._last + 1, self._ahead + self._elapsed_us())
        if number > self._reserved:
            self._store.reserve_counter(number + RESERVED_US)
            self._reserved = number + RESERVED_US
        self._last = number
        return number


MOST_WAITING = 32
"""Most frames of one sequence that wait."""


class WaitingFrames:
    """Frames and windows that wait to be reported, by sequence, as in the store's outbox."""

    def __init__(self) -> None:
        self._sequences: dict[int, tuple[Outgoing, dict[int, int]]] = {}
        """A template of each sequence's rows, and serials by frame."""

    def __len__(self) -> int:
        """The number of frames and windows; any thread may ask."""
        return sum(len(serials) for _, serials in [*self._sequences.values()])

    def put(self, outgoing: Outgoing) -> int | None:
        """Add a frame, in place of the same frame. Return the serial of a frame dropped for it, or `None`."""
        _, serials = self._sequences.setdefault(outgoing.place.number, (outgoing, {}))
        serials[outgoing.frame] = outgoing.serial
        return serials.pop(min(serials)) if len(serials) > MOST_WAITING else None

    def take(self, capacity: int) -> tuple[list[Outgoing], list[int]]:
        """Remove and return up to `capacity` frames: the newest ones of each sequence in turn, in their order.

        Also removes the older frames of these sequences, which are not reported any more, and returns their serials.
        """
        outgoing_frames, dropped_serials = list[Outgoing](), list[int]()
        sequence_share = max(1, capacity // max(1, len(self._sequences)))
        while self._sequences and (free_count := capacity - len(outgoing_frames)) > 0:
            template, serials = self._sequences.pop(next(iter(self._sequences)))
            newest_frames = sorted(serials)[-min(sequence_share, free_count) :]
            outgoing_frames += [template._replace(serial=serials.pop(frame), frame=frame) for frame in newest_frames]
            dropped_serials += serials.values()
        return outgoing_frames, dropped_serials


_READ_ROWS = 1_000
_FORGET_EVERY = 500


class Publisher(Part):
    """Publishes as much as the connection takes, and queues the rest.

    The loop's counters count `committed` watermarks, `estimates`, `counts` of windows and, under their `Reason`, frames
    that cannot be reported. `coalesced` reports were left out, because a newer one was out, or too many waited.

    Attributes:
        MAX_IN_FLIGHT: most watermarks that the broker has not acknowledged; the same for reports.
    """

    MAX_IN_FLIGHT = 200

    def __init__(self, loop: Loop, recorder: Recorder) -> None:
        super().__init__(loop)
        self._recorder = recorder
        self._owed_devices: dict[str, None] = {}
        self._watermark_messages: set[int] = set()
        self._report_messages: dict[int, int | tuple[int, int]] = {}
        """By message the serial of a report of the outbox, or the number and tick of a stream of symbols."""
        self._symbols: Reports = recorder.symbols.reports
        self._waiting = WaitingFrames()
        self._start_frames = loop.store.newest_frames()
        self._report_times: dict[int, datetime | None] = {}
        self._read_through, self._queued = 0, -1
        self._done_serials: list[int] = []
        self._counter = WatermarkCounter(loop.store)

    def born(self, device: str) -> None:
        """Publish the device's watermark as soon as possible."""
        self._owed_devices[device] = None

    def stored(self, newest_frames: Sequence[NewestFrame]) -> None:
        """Publish the watermarks of devices whose frames were stored, or refused for good, as soon as possible."""
        self._owed_devices.update(dict.fromkeys(frame.device for frame in newest_frames))

    def connected(self, *, begun_anew: bool) -> None:
        """Publish the reports under way again if the session has `begun_anew`; watermarks wait for their devices."""
        if not begun_anew:
            return
        self._watermark_messages.clear()
        for report in self._report_messages.values():
            if isinstance(report, tuple):
                self._symbols.put_again(report[0])
        self._report_messages.clear()
        self._waiting = WaitingFrames()
        self._read_through, self._queued = 0, -1

    def acknowledged(self, message_id: int, accepted: bool = True) -> None:
        """Note that the broker has answered a message; a refused report is not published again either."""
        self._watermark_messages.discard(message_id)
        report = self._report_messages.pop(message_id, None)
        if isinstance(report, tuple):
            self._symbols.acknowledged(*report)
        elif report is not None:
            self._done_serials.append(report)

    def pump(self, *, idle: bool = False) -> None:
        """Publish as much as may be under way; when idle, also tidy the outbox. DatabaseError: a later call goes on."""
        self._send_watermarks()
        self._report_symbols()
        self._report_outbox()
        if self._done_serials and (idle or len(self._done_serials) >= _FORGET_EVERY):
            self._store.forget_outgoing(self._done_serials)
            self._done_serials.clear()

    @property
    def finished(self) -> bool:
        """True if no message is owed or under way."""
        under_way = self._watermark_messages or self._report_messages
        return not (self._owed_devices or under_way or self._done_serials)

    def details(self) -> dict[str, object]:
        """Return how many frames and windows wait to be reported."""
        return {"estimates_waiting": len(self._symbols) + len(self._waiting)}

    def _send_watermarks(self) -> None:
        if self._owed_devices and self._link.connected:
            self._store.check()  # frames of a lost file are not durable, whatever memory says
        while self._owed_devices and self._link.connected and len(self._watermark_messages) < self.MAX_IN_FLIGHT:
            device = next(iter(self._owed_devices))
            for message in self._recorder.watermarks(device):
                watermark = replace(message, counter=self._counter.next())
                if (device_key := self._registered.key(device)) is not None:
                    watermark = watermark.with_tag(device_key, self._fleet, device)
                topic = topic_of("committed", self._fleet, device)
                if (message_id := self._link.publish(topic, watermark.encode())) is None:
                    return
                self._watermark_messages.add(message_id)
                self._counters["committed"] += 1
            del self._owed_devices[device]

    def _report_symbols(self) -> None:
        if not self._link.connected:
            return
        reports = self._symbols.take(self.MAX_IN_FLIGHT - len(self._report_messages))
        for sent_count, (place, tick, estimate) in enumerate(reports):
            if isinstance(estimate, FuguError):
                self._counters[estimate.reason] += 1
                continue
            if (newest_time := self._report_times.get(place.number)) is not None and estimate.time < newest_time:
                self._counters["coalesced"] += 1
                continue
            topic = topic_of("estimate", self._fleet, *place.device_and_stream)
            if (message_id := self._link.publish(topic, estimate.encode())) is None:
                for unsent_report in reports[sent_count:]:
                    self._symbols.put_again(unsent_report.place.number)
                return
            self._report_times[place.number] = estimate.time
            self._report_messages[message_id] = place.number, tick
            self._counters["estimates"] += 1

    def _report_outbox(self) -> None:
        if self._queued != self._store.queued:
            while outgoing_rows := self._store.outbox(self._read_through, _READ_ROWS):
                for outgoing in outgoing_rows:
                    if (excess_serial := self._waiting.put(outgoing)) is not None:
                        self._leave_out(excess_serial)
                self._read_through = outgoing_rows[-1].serial
            self._queued = self._store.queued
        if not self._link.connected:
            return
        sendable, superseded_serials = self._waiting.take(self.MAX_IN_FLIGHT - len(self._report_messages))
        for serial in superseded_serials:
            self._leave_out(serial)
        sent_count = 0
        try:
            while sent_count < len(sendable) and self._send_report(sendable[sent_count]):
                sent_count += 1
        finally:
            for unsent_frame in sendable[sent_count:]:
                self._waiting.put(unsent_frame)

    def _leave_out(self, serial: int) -> None:
        self._done_serials.append(serial)
        self._counters["coalesced"] += 1

    def _send_report(self, outgoing: Outgoing) -> bool:
        """Publish the report of a frame, unless there is none or a newer one is out. Return False without room."""
        if (report := self._make_report(outgoing)) is None:
            self._done_serials.append(outgoing.serial)
            return True
        if (last_time := self._last_report_time(outgoing)) is not None and report.time < last_time:
            self._leave_out(outgoing.serial)
            return True
        place = outgoing.place
        topic = topic_of("count" if place.window_name else "estimate", self._fleet, *place.device_and_stream)
        if (message_id := self._link.publish(topic, report.encode())) is None:
            return False
        self._report_times[place.number] = report.time
        self._report_messages[message_id] = outgoing.serial
        self._counters["counts" if place.window_name else "estimates"] += 1
        return True

    def _make_report(self, outgoing: Outgoing) -> Estimate | WindowCount | None:
        """Return the report of a frame; count the reason and return `None` if there can be none."""
        try:
            return self._recorder.report(outgoing)
        except FuguError as error:
            self._counters[error.reason] += 1
            return None

    def _last_report_time(self, outgoing: Outgoing) -> datetime | None:
        """Return the time of a sequence's newest report, also from before the start; `None` if there is none."""
        sequence_number = outgoing.place.number
        if sequence_number not in self._report_times:
            frame = self._start_frames.get(sequence_number)
            newest_report = None if frame is None else self._make_report(outgoing._replace(frame=frame))
            self._report_times[sequence_number] = None if newest_report is None else newest_report.time
        return self._report_times[sequence_number]
