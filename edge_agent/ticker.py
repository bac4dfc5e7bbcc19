"""The ticks of a device's streams: `fugu.core.ticks` with the agent's sensors, its outbox and its windows.

Only a recording still knows the readings of past ticks, and may catch up a little. A tick is counted in its windows
once the outbox has its symbol, and a window leaves at the first tick at or after its end. Counts that cannot be made
durable are thrown away, as are counts whose record cannot be made blank before.
"""

from __future__ import annotations

import logging
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from errno import ENOSPC
from typing import TYPE_CHECKING

from edge_agent.device_clock import DeviceClock
from edge_agent.outbox import Outbox, OutboxError, OutboxFullError
from edge_agent.plan import StreamPlan
from edge_agent.randomiser import Entropy, Mechanism
from edge_agent.sensors.sharing import Sensors, SharedSensor, check_shared
from edge_agent.sensors.source import Sensor
from edge_agent.watch import Watch
from edge_agent.window_file import RecordedCounter, Records, WindowFile
from fugu.contract.compiled import read_discretiser
from fugu.contract.errors import FuguError, Reason, StatusCode, cause
from fugu.core.clocks import TickClock
from fugu.core.noise import uniform_below
from fugu.core.policy import LATE_US
from fugu.core.ticks import Pace, find_place, multiple_of, restart
from fugu.host.database import FileLostError, is_full

if TYPE_CHECKING:
    from edge_agent.shares import Helpers, StreamSums

__all__ = ["Ticker"]


_log = logging.getLogger(__name__)

REPLAY_LATE_US = 10_000_000
"""How late a tick of a recording may be, as `LATE_US` for other sensors."""
IDLE_SECONDS = 1.0
_SLICE_US = 250_000
"""Longest time for overdue ticks before the agent does other work."""
_JUDGING_US = 200_000
_JUDGING_SHARE = 6
"""Longest time for a piece of a watch's judgement: `_JUDGING_US`, and the shortest period over `_JUDGING_SHARE`."""


class Stream(Pace):
    """A stream: its plan, its sensor, its mechanism, and its position; `last_tick` is the last tick ever committed.

    Attributes:
        refusal: why the newest table was refused, "" if it was not; for the log.
        watch: checks the states against the policy's class, for the owner only; None if nothing can be checked.
        ticks, silent_ticks: how many ticks were drawn since the start, and how many of them had no reading.
    """

    def __init__(
        self,
        plan: StreamPlan,
        clock: TickClock,
        sensor: SharedSensor,
        entropy: Entropy,
        last_tick: int,
        counters: Sequence[RecordedCounter] = (),
        sums: StreamSums | None = None,
    ) -> None:
        super().__init__(plan, clock, last_tick)
        self.plan = plan
        self.sensor = sensor
        self.recorded = sensor.recorded
        self.late_us = REPLAY_LATE_US if sensor.recorded else LATE_US
        self.counters = counters
        self.sums = sums
        self.discretiser = sensor.discretiser(plan.discretiser)
        self.finished = False
        self.refusal = ""
        self.ticks = 0
        self.watch = None if plan.watch is None else Watch(read_discretiser(plan.discretiser).states, plan.watch)
        self.silent_ticks = 0
        self._warnings: set[str] = set()
        no_mechanism = Mechanism(lambda _tick, _state, _shift: None, None)
        self.mechanism = no_mechanism if plan.noise is None else plan.noise.begin(entropy)

    def observe(self, tick: int) -> int | None:
        """Read the sensor and return the state of a tick; None without one. Log each trouble of the sensor once."""
        reading = self.sensor.read(tick)
        state = self.discretiser.observe(tick, None if reading is None else reading.reveal())
        self.ticks += 1
        if self.watch is not None:
            self.watch.observe(tick, state)
        self.silent_ticks += reading is None
        if self.sensor.trouble:
            self._warn_once(f"sensor: {self.sensor.trouble}")
        if self.discretiser.unusable:
            self._warn_once("a reading is no number, category or place of its policy")
        return state

    def first_share_us(self, now_us: int) -> int | None:
        """Return the Unix time in microseconds at which the next window or full frame leaves; None if none does.

        This may be a window that was under way before a restart; any other window must be whole.
        """
        tick = max(self.next_tick, self.clock.at(now_us) + 1)
        end_ticks = [window.last(window.first_from(tick)) for window in self.plan.windows]
        open_window_ends = (counter.window.last(index) for counter in self.counters for index in counter.counts)
        end_ticks += [end_tick for end_tick in open_window_ends if end_tick >= tick]
        if self.plan.noise is not None:
            end_ticks.append(tick + self.plan.frame_ticks - 1)
        return self.clock.time_of(min(end_ticks)) if end_ticks else None

    def _warn_once(self, trouble: str) -> None:
        if trouble not in self._warnings:
            self._warnings.add(trouble)
            _log.warning("stream %s: %s", self.plan.stream, trouble)

    def offer_table(self, payload: bytes) -> bool:
        """Offer the mechanism a table. False if it takes none, or refuses this one for the reason in `refusal`."""
        if self.mechanism.offer is None:
            return False
        try:
            self.mechanism.offer(payload, self.next_tick)
        except FuguError as error:
            refusal = str(error)
        except Exception as error:  # an unexpected error must not stop the device either
            refusal = cause(error)
        else:
            self.refusal = ""
            return True
        if refusal != self.refusal:
            _log.warning("table for %s refused: %s", self.plan.stream, refusal)
        self.refusal = refusal
        return False


class Ticker:
    """The streams of one device; used from the agent's loop.

    Args:
        silent: returns why no sensor may be read and nothing drawn at a Unix time in seconds, or None.
        helpers: helpers of the groups that the owner has joined; None if there are none.

    Attributes:
        storage_trouble: what keeps outputs from becoming durable; None if nothing does.
        not_drawn: number of ticks that were not drawn because the outbox took nothing.
        stopping: set it to draw no more; a signal handler may.
    """

    def __init__(
        self,
        outbox: Outbox,
        clock: DeviceClock,
        entropy: Entropy,
        silence_code: Callable[[float], StatusCode | None],
        helpers: Helpers | None = None,
    ) -> None:
        self._outbox = outbox
        self._window_file = WindowFile(outbox.path, outbox.salt())
        self._clock = clock
        self._entropy = entropy
        self._silence_code = silence_code
        self._helpers = helpers
        self.sensors = Sensors()
        self._clocks: dict[tuple[int, int], TickClock] = {}
        self._placed_anchors = 0
        self.streams: list[Stream] = []
        self.storage_trouble: StatusCode | None = None
        self.not_drawn = 0
        self.stopping = False

    def begin(self, plans: Sequence[StreamPlan], sensors: Sequence[Sensor]) -> None:
        """Open the streams of the plans; they begin with the next tick.

        Streams with the same sensor and clock get the same readings. Raises OutboxError for a changed clock or window,
        and for a file of windows that cannot be used.
        """
        try:
            stored_records = self._window_file.begin(plans)
        except OSError as error:
            raise OutboxError(f"cannot use the windows of outbox {self._outbox.path}: {error}") from None
        for plan, sensor in zip(plans, sensors, strict=True):
            self.streams.append(self._open_stream(plan, self.sensors.adopt(plan, sensor), stored_records))
        if self._helpers is not None:
            self._helpers.follow(plans)
        restart(self.streams, self._clock, self._clock.continues)
        self._follow_clock()

    def switch(self, plans: Sequence[StreamPlan], store: Callable[[], None]) -> None:
        """Put new plans in force between two ticks, once they are stored; a frame of the old plan ends there.

        Raises:
            ConfigError: a sensor cannot be opened, or would have to be opened twice where that cannot be.
            FuguError: a stream cannot go on under its new plan, or the device has no key for its sums.
            sqlite3.Error, or an error of `store`: the plans could not be stored. After each of these the old plans run.
        """
        stream_of_name = {stream.plan.stream: stream for stream in self.streams}
        streams = []
        check_shared(plans)
        self.close_frames()  # before `store`, after which nothing may fail, so that all old outputs are in frames
        try:
            with self._outbox.forgets_if_refused():
                for plan in plans:
                    old_stream = stream_of_name.get(plan.stream)
                    stream = self._open_stream(plan, self.sensors.of(plan), {})
                    draw_times_us = (peer.drawn_us for peer in self.streams if peer.clock is stream.clock)
                    # Streams of one clock may share a sensor.
                    stream.drawn_us = max((time_us for time_us in draw_times_us if time_us is not None), default=None)
                    if stream.drawn_us is None:  # it may have been drawn for before it was withdrawn
                        restart([stream], self._clock)
                    if old_stream is not None:
                        stream.next_tick = max(stream.last_tick + 1, old_stream.next_tick)
                    elif self._placed_anchors:
                        clock_times = self._clock.now_us(), self._clock.offset_us
                        stream.next_tick = stream.clock.next_wall(*clock_times) + stream.clock.shift
                        if stream.next_tick <= stream.last_tick:  # reserved before a restart, or the clock went back
                            self._placed_anchors = 0
                    self._outbox.set_shift(plan, stream.clock.shift, stream.clock.since)
                    streams.append(stream)
                store()
            _align(streams, self.streams)
            self.streams = streams
            if self._helpers is not None:
                self._helpers.follow(plans)
            with self.noting_failures():  # counts of the old policy end; their records would never be used
                self._window_file.begin(plans, discard=True)
        finally:
            if self._placed_anchors and any(self._is_misplaced(stream) for stream in self.streams):
                self._placed_anchors = -1

    def catch_up(self) -> None:
        """Draw every tick that has come, the streams taking turns, as some share a sensor.

        After a quarter of a second, further ticks are left to the next call, so that other work goes on. Raises
        OutboxError if the outbox is lost.
        """
        has_drawn, slice_end_us = self._follow_clock(), self._clock.elapsed_us() + _SLICE_US
        while has_drawn and self._clock.elapsed_us() < slice_end_us:
            has_drawn = False
            for stream in self.streams:
                stream.next_tick = max(stream.next_tick, stream.sensor.newest)  # earlier ticks have no reading
                if not stream.finished and not self.stopping and stream.comes(self._clock, self._silence_code):
                    self._tick(stream)
                    has_drawn = True

    def prepare(self) -> None:
        """Draw the noise of the windows that begin next, while there is time, and store reports of ended sums."""
        for stream in self.streams:
            for counter in stream.counters:
                counter.prepare(stream.next_tick)
            if stream.sums is not None and self._placed_anchors > 0:
                with self.noting_failures():
                    for report in stream.sums.advance(stream.next_tick):
                        self._outbox.append_report(stream.plan.stream, report)

    def judge(self) -> bool:
        """Let a watch judge one waiting piece, if there is time before the next tick. True if one was judged.

        The time of a judgement depends on true states. So earlier publications leave first, and later work begins at a
        moment that was set beforehand. A watch that needs longer is ended.
        """
        watch = next((stream.watch for stream in self.streams if stream.watch and stream.watch.has_work), None)
        if watch is None:
            return False
        piece_us = min(_JUDGING_US, *(stream.plan.period_us // _JUDGING_SHARE for stream in self.streams))
        if self.seconds_to_tick() * 1e6 < 3 * piece_us:
            return False
        judging_end_us = self._clock.elapsed_us() + 2 * piece_us
        self._clock.sleep(piece_us)
        start_seconds = time.thread_time()
        watch.judge()
        if (time.thread_time() - start_seconds) * 1e6 > piece_us:
            watch.end("this machine is too slow for it at such a period")
        self._clock.sleep(judging_end_us - self._clock.elapsed_us())
        return True

    def seconds_to_tick(self) -> float:
        """Return the seconds until the next tick, at most one."""
        if self._placed_anchors != self._clock.anchors or not self._placed_anchors:
            return IDLE_SECONDS
        now_us = self._clock.elapsed_us()
        due_seconds = [(stream.ready_us(self._clock) - now_us) / 1e6 for stream in self.streams if not stream.finished]
        return max(0.0, min([IDLE_SECONDS, *due_seconds]))

    def finish(self) -> None:
        """End drawing, and close frames that are not full. Raises sqlite3.Error."""
        self.stopping = True
        self._outbox.finish()

    def close_frames(self) -> None:
        """Close frames that are not full. Raises sqlite3.Error."""
        for stream in self.streams:
            self._outbox.close_frame(stream.plan)

    def forget_readings(self) -> None:
        """Drop the readings that have come until now, so that no later tick uses them."""
        for stream in self.streams:
            if not stream.recorded:
                stream.sensor.drop_readings(stream.next_tick - 1)

    @property
    def is_over(self) -> bool:
        """True after a request to stop, or when every sensor has ended. Waiting for a first policy is not the end."""
        return self.stopping or (bool(self.streams) and all(stream.finished for stream in self.streams))

    def _open_stream(self, plan: StreamPlan, sensor: SharedSensor, stored_records: Records) -> Stream:
        last_tick = self._outbox.register(plan)
        clock = self._clocks.setdefault((plan.epoch_us, plan.period_us), TickClock(plan.epoch_us, plan.period_us))
        clock.follow(*self._outbox.shift(plan.stream))
        counters = self._counters(plan, clock.shift, clock.since, last_tick, stored_records)
        return Stream(plan, clock, sensor, self._entropy, last_tick, counters, self._sums(plan, clock.shift))

    def _counters(
        self, plan: StreamPlan, shift: int, since_tick: int, last_tick: int, stored_records: Records
    ) -> list[RecordedCounter]:
        draw_below, counters = uniform_below(self._entropy), []
        for window in map(copy, plan.windows):
            window.shift = shift
            records = stored_records.get((plan.stream, window.name), ())
            records = [record for record in records if record.through <= last_tick]  # later ones are of another outbox
            last_index = self._outbox.register_window(plan.stream, window)
            counters.append(RecordedCounter(window, draw_below, last_index, since_tick, records))
        return counters

    def _sums(self, plan: StreamPlan, shift: int) -> StreamSums | None:
        return self._helpers.begin_sums(plan, self._entropy, shift) if self._helpers is not None and plan.sums else None

    # The clock

    def _follow_clock(self) -> bool:
        """Follow the device's clock, and find the next ticks again if it has jumped. True if the time is known."""
        self._clock.follow()
        if self._placed_anchors != self._clock.anchors:
            with self.noting_failures():
                for clock in self._clocks.values():
                    if same_clock := [stream for stream in self.streams if stream.clock is clock]:
                        self._place_streams(clock, same_clock)
                self._placed_anchors = self._clock.anchors
        return 0 < self._placed_anchors == self._clock.anchors

    def _place_streams(self, clock: TickClock, streams: Sequence[Stream]) -> None:
        """Find the next tick of the streams of one clock, and their shift."""
        shift, since_tick, first_tick = find_place(streams, self._clock, self._placed_anchors != 0)
        for stream in streams:
            shift_before, _ = self._outbox.shift(stream.plan.stream)
            self._outbox.set_shift(stream.plan, shift, since_tick)
            if shift != shift_before:
                stream.counters = self._counters(stream.plan, shift, since_tick, -1, {})
        for stream in streams:
            stream.next_tick = first_tick
            stream.sums = self._sums(stream.plan, shift)  # a clock that was set ends the windows under way
        clock.follow(shift, since_tick)

    def _is_misplaced(self, stream: Stream) -> bool:
        """True if a stream's shift is not that of its clock, or no multiple of all repeats of the clock's streams."""
        shift, _ = self._outbox.shift(stream.plan.stream)
        same_clock = [peer for peer in self.streams if peer.clock is stream.clock]
        return shift != stream.clock.shift or stream.clock.shift % multiple_of(same_clock) != 0

    def _tick(self, stream: Stream) -> None:
        """Draw one tick, if the outbox has reserved it, and append the output to the outbox."""
        if stream.sensor.finished(stream.next_tick):
            stream.finished = True
            return
        tick = stream.begin(self._clock)
        state = stream.observe(tick)
        is_reserved = False
        try:
            self._outbox.reserve(stream.plan, tick)
            is_reserved = True
            self._outbox.append(stream.plan, tick, stream.mechanism.draw(tick, state, stream.clock.shift))
        except (sqlite3.Error, OutboxFullError) as error:
            self.not_drawn += not is_reserved
            self.storage_failed(error)
        else:
            self.storage_trouble = None
            stream.last_tick = tick
            stream.trouble = None
            if not stream.discretiser.beginning:
                for counter in stream.counters:
                    counter.observe(tick, state)
                if stream.sums is not None:
                    stream.sums.observe(tick, state)
        self._close_windows(stream, tick)

    def _close_windows(self, stream: Stream, tick: int) -> None:
        """Store frames of ended windows, and records of others: first blanks, then frames, then records.

        In this order, a kill at any moment is harmless.
        """
        counters = stream.counters
        windows = [(counter.window, *window) for counter in counters for window in counter.close(tick)]
        records = [(counter.window, record) for counter in counters for record in counter.records(tick)]
        with self.noting_failures():
            blank_slots = ((counter.window, slot) for counter in counters for slot in counter.to_blank)
            self._window_file.blank(stream.plan, blank_slots)
            for counter in counters:
                counter.to_blank.clear()
            if windows or records:  # ticks are durable before the records that count them, so none is counted twice
                self._outbox.append_windows(stream.plan, windows)
            self._window_file.keep(stream.plan, records)

    @contextmanager
    def noting_failures(self) -> Iterator[None]:
        """Note failures of the outbox and the file of windows within the context. OutboxError if the outbox is lost."""
        try:
            yield
        except (sqlite3.Error, OutboxFullError, OSError) as error:
            self.storage_failed(error)

    def storage_failed(self, error: sqlite3.Error | OutboxFullError | OSError) -> None:
        """Note that the outbox, or the file of windows, took nothing. Raises OutboxError if the outbox is lost."""
        if isinstance(error, FileLostError):
            raise OutboxError(f"the outbox is lost, and what was in it: {error}", Reason.STORAGE) from None
        has_no_room = isinstance(error, OutboxFullError) or is_full(error) or getattr(error, "errno", 0) == ENOSPC
        trouble = StatusCode.STORAGE_FULL if has_no_room else StatusCode.STORAGE
        if trouble != self.storage_trouble:
            loss_words = "counts of windows are lost" if isinstance(error, OSError) else "nothing is drawn"
            _log.error("outbox %s: %s; %s until it takes something again", self._outbox.path, error, loss_words)
        self.storage_trouble = trouble


def _align(streams: Sequence[Stream], old_streams: Sequence[Stream]) -> None:
    """Let all streams of one clock go on at one tick, after every drawn tick.

    The loss by all streams of one sensor at a tick is bounded for the tables of one document. So no tick may mix tables
    of the old and the new document.
    """
    for stream in streams:
        stream.next_tick = max(peer.next_tick for peer in (*streams, *old_streams) if peer.clock is stream.clock)
