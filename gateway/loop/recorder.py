"""Storing a batch of frames: finds the new frames and their consequences, and makes them durable in one transaction.

A frame that overlaps a stored one is a `duplicate` if it is the same, else a `conflict`. A conflict is never stored.
Its ticks stay missing in the watermark unless stored frames account for them, so a device that contradicts itself
re-sends in vain. A frame before a stored one is late, and the results of later frames are brought up to date. Frames of
ticks whose frames were removed are not stored. If the ticks are accounted for, the frame is a `duplicate`. If not, the
frame is `too_old`, and its ticks count as accounted for, so that the device forgets it. Where a sequence has very many
gaps, a frame that would make another gap is `scattered`, and not taken until some gaps are filled.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from fugu.contract.frames import MAX_STREAMS, Committed, SymbolFrame, WindowFrame, sequence_name
from fugu.contract.measure_frames import AnyFrame, MeasureFrame
from fugu.contract.policies import AnyPolicy
from fugu.contract.policy import Policy
from fugu.contract.reports import Estimate, WindowCount
from fugu.contract.timeline import Drawn, Timeline
from gateway.estimates.catalogue import Catalogue
from gateway.estimates.kinds import Kind, Windows
from gateway.estimates.symbols import Symbols
from gateway.loop.inbox import Usage
from gateway.store.coverage import Coverage, FrameSpan, Place, ShiftError, Shifts
from gateway.store.journal import Arrivals, Streams
from gateway.store.store import Outgoing, Store

if TYPE_CHECKING:
    from fugu.contract.group_frames import Report
    from fugu.contract.groups import GroupDocument
    from gateway.estimates.points import Points

__all__ = ["DeviceReport", "Recorder"]


SEAL_BYTES, STREAM_BYTES, MOST_SEAL_BYTES = 1 << 24, 4_000, 1 << 27
"""Bytes of the journal in memory at which it is sealed; bytes for each of many streams, for larger chunks; the most."""
SEAL_SECONDS = 3_600.0
SEAL_AGAIN_SECONDS = 60.0
"""Wait after a failed seal: until then frames go on into the journal, if there is room."""
MAX_INTERVALS = 4096
"""Most intervals of a sequence's accounted ticks: a device fills its gaps from the lowest on."""


class DeviceReport(NamedTuple):
    """A device's report for the sum of a window."""

    device: str
    stream: str
    report: Report
    group: GroupDocument


@dataclass
class _Sequence:
    """A sequence of frames in the store, as memory has it; its place has number 0 while nothing is stored.

    Frames that begin before `begin` are not stored. `rewritten`: the coverage has changed before its last interval
    since it was stored.
    """

    place: Place
    coverage: Coverage = field(default_factory=Coverage)
    shifts: Shifts = field(default_factory=Shifts)
    begin: int = 0
    versions: set[int] = field(default_factory=set)
    rewritten: bool = False

    def has_no_room(self, after: int, through: int) -> bool:
        """Return whether ticks (after, through] would make another interval of too many."""
        return len(self.coverage) >= MAX_INTERVALS and not self.coverage.meets(after, through + 1)


class Recorder:
    """The state of every sequence of frames, backed by a store that the calling thread owns.

    `conflict` is called with device, sequence and frame of each conflict, within the transaction.

    Args:
        lag: ticks of later symbols that estimates see.
        counters: counts `stored`, `late`, `duplicate`, `conflict`, `too_old`, `scattered`, and the counters of each
            kind.
        usage: counts the seconds of frames that are recorded one by one, and the frames that came again.
    """

    def __init__(
        self, store: Store, catalogue: Catalogue, lag: int, counters: Counter[str], usage: Usage | None = None
    ) -> None:
        self._store = store
        self.conflict: Callable[[str, str, AnyFrame], None] = lambda _device, _sequence, _frame: None
        self._catalogue = catalogue
        self._counters = counters
        self._sequences: dict[tuple[str, str], _Sequence] = {}
        self._usage = Usage() if usage is None else usage
        self._seconds: Callable[[], float] = time.monotonic
        self._last_seal = self._seconds()
        self._next_seal = 0.0
        self.streams = Streams()
        self.symbols = Symbols(store, catalogue, lag, self.streams, counters)
        self._windows = Windows(store, catalogue)
        self._lag = lag

    def record(self, arrivals: Arrivals) -> None:
        """Store a round's new frames and their consequences, all or none. Raises DatabaseError."""
        groups = defaultdict[tuple[Kind[Any], str, str, str], list[AnyFrame]](list)
        for device, stream, frame in arrivals.other_frames:
            kind = self._kind(type(frame))
            groups[kind, device, stream, kind.sequence(stream, frame)].append(frame)
        counts: Counter[str] = Counter()
        try:
            with self._store.transaction():
                for slot, gap_frames in self.symbols.begin(arrivals, counts).items():
                    self._record_symbols(slot, gap_frames, counts)
                for (kind, device, stream, name), frames in groups.items():
                    with self._time_for(device):
                        self._record(kind, device, stream, name, frames, counts)
                self.symbols.write()
        except BaseException:
            self._drop_memory()
            raise
        self.symbols.confirm()
        self._counters.update(counts)

    def account_reports(self, reports: Sequence[DeviceReport]) -> None:
        """Account for the windows of stored reports, all or none. Raises DatabaseError."""
        try:
            with self._store.transaction():
                for device, stream, report, group in reports:
                    with self._time_for(device):
                        self._account_report(device, stream, report, group)
        except BaseException:
            self._drop_memory()
            raise

    def _account_report(self, device: str, stream: str, report: Report, group: GroupDocument) -> None:
        sequence = self._load_stored(device, sequence_name(stream, group.name))
        if sequence.has_no_room(report.previous, report.number):
            return
        if (merge := sequence.coverage.add(report.previous, report.number)) is not None:
            self._store.merge_coverage(sequence.place.number, *merge)
        policy = self._catalogue.policy(device, stream, report.policy_version)
        self._store_policy(sequence, policy)
        if not isinstance(policy, Policy) or policy.table is not None or policy.windows:
            return  # the policy's frames give the timeline
        first_tick = group.start + report.number * group.length
        last_tick = first_tick + group.length - 1
        shift = self._load(device, stream).shifts.possible(first_tick, last_tick)[-1]
        begin = max(0, group.start + (report.previous + 1) * group.length + (shift if report.previous >= 0 else 0))
        timeline = self._store.versions.timeline(device, stream)
        absent_ticks = group.length - sum(report.observed)
        timeline.add(Drawn(first_tick + shift, last_tick + shift, report.policy_version, begin, absent_ticks))
        self._store.versions.put(device, stream, timeline, is_whole=True)

    @contextmanager
    def _time_for(self, device: str) -> Iterator[None]:
        """Add the seconds of a context to the device's use."""
        start_time = time.perf_counter()
        try:
            yield
        finally:
            self._usage.now.seconds[device] += time.perf_counter() - start_time

    def _record_symbols(self, slot: int, frames: list[SymbolFrame], counts: Counter[str]) -> None:
        device, stream = self.streams.names[slot]
        sequence = self._load(device, stream)
        is_known = sequence.coverage.end >= 0
        with self._time_for(device):
            self._record(self.symbols, device, stream, stream, [*frames], counts)
        last_interval = sequence.coverage.last if len(sequence.coverage) else None
        self.symbols.set_progress(slot, sequence.place, last_interval, sequence.shifts.newest, is_known=is_known)

    def _drop_memory(self) -> None:
        """Drop the state in memory, which may be ahead of the store."""
        self._sequences.clear()
        self.symbols.read_again()

    def seal(self, *, now: bool = False) -> None:
        """Seal the journal if it is large or old, or with `now` anyway. DatabaseError: a later call tries again."""
        tail, seconds = self._store.symbols.tail, self._seconds()
        if not tail.row_count and not now:
            self._last_seal = seconds
            return
        if not now and seconds < self._next_seal:
            return
        size_limit = min(max(SEAL_BYTES, STREAM_BYTES * len(tail.sequences)), MOST_SEAL_BYTES)
        if not (now or tail.byte_count >= size_limit or seconds - self._last_seal >= SEAL_SECONDS):
            return
        try:
            with self._store.transaction():
                self._store_coverage(self.symbols.seal())
        except BaseException:
            self._next_seal = seconds + SEAL_AGAIN_SECONDS
            self._drop_memory()
            raise
        self.symbols.sealed()
        self._last_seal = seconds

    def _store_coverage(self, places: list[Place]) -> None:
        last_intervals = []
        for stream_number, device, stream in places:
            sequence = self._load(device, stream)
            if sequence.rewritten:
                self._store.aged.put_coverage(stream_number, sequence.coverage.intervals)
                sequence.rewritten = False
            else:
                last_intervals.append((stream_number, *sequence.coverage.last))
        self._store.extend_coverage(last_intervals)

    def watermarks(self, device: str) -> list[Committed]:
        """Return a device's watermark, as messages of up to `MAX_STREAMS` sequences each."""
        names = self._catalogue.sequences(device)
        commits = [self._load(device, name).coverage.commit(name) for name in names]
        return [Committed(tuple(commits[i : i + MAX_STREAMS])) for i in range(0, len(commits), MAX_STREAMS)]

    def has_frames(self, device: str) -> bool:
        """Return whether any tick or window of a device is accounted for, also by frames that were removed since."""
        return any(self._load(device, name).coverage.end >= 0 for name in self._catalogue.sequences(device))

    def coverage_of(self, device: str, name: str) -> tuple[Coverage, Shifts]:
        """Return a sequence's accounted ticks, and the shifts of its tick numbers."""
        sequence = self._load(device, name)
        return sequence.coverage, sequence.shifts

    def note_removed(self, device: str, sequence: str, begin: int) -> None:
        """Note that a sequence's frames before a tick, or before the index of a window, have been removed."""
        sequence_state = self._load(device, sequence)
        sequence_state.begin = max(sequence_state.begin, begin)

    def report(self, outgoing: Outgoing) -> Estimate | WindowCount | None:
        """Return the report of a stored frame; `None` if the frame is gone. Raises FuguError if it has no report."""
        _, place, frame = outgoing
        if place.window_name:
            return self._windows.report(place, frame)
        is_measured = self._catalogue.is_measured(*place.device_and_stream)
        return self.points.report(place, frame) if is_measured else self.symbols.report(place, frame)

    @cached_property
    def points(self) -> Points:
        """The kind of points, made at the first stream of points."""
        from gateway.estimates.points import Points

        return Points(self._store, self._catalogue, self._lag)

    def _kind(self, frame_type: type[AnyFrame]) -> Kind[Any]:
        if frame_type is WindowFrame:
            return self._windows
        return self.points if frame_type is MeasureFrame else self.symbols

    def _record(
        self, kind: Kind[Any], device: str, stream: str, name: str, frames: list[AnyFrame], counts: Counter[str]
    ) -> None:
        """Store frames of one sequence in the order of their ticks, and count the outcome of each."""
        sequence = self._load_stored(device, name)
        place = sequence.place
        late_firsts: list[int] = []
        timeline: Timeline | None = None
        for frame in sorted(frames, key=lambda frame: kind.span(frame).first):
            span = kind.span(frame)
            is_late = span.first <= sequence.coverage.end
            overlaps = is_late and sequence.coverage.meets(span.first, span.last)
            if overlaps and (stored_frame := kind.overlapping(place, frame)) is not None:
                self._usage.now.repeats[device] += 1
                if kind.has_same_content(stored_frame, frame):  # it may account for more ticks, of frames dropped since
                    counts[kind.counter + "duplicate"] += 1
                    self._account_for(sequence, kind, span, is_stored=True)
                else:
                    counts[kind.counter + "conflict"] += 1
                    self.conflict(device, name, frame)
                continue
            if span.first < sequence.begin:
                self._usage.now.repeats[device] += 1
                timeline = self._note_version(device, stream, frame, timeline)
                counter = self._account_for_removed(sequence, kind, span)
                counts[kind.counter + counter] += 1
                if counter == "conflict":
                    self.conflict(device, name, frame)
                continue
            if sequence.has_no_room(span.previous, span.last):
                counts[kind.counter + "scattered"] += 1
                continue
            try:
                spans = sequence.shifts.add(frame.shift, span.first, span.last, sequence.coverage.end)
            except ShiftError as error:
                counts[error.reason] += 1
                continue
            if spans:
                self._store.put_shifts(place.number, spans, sequence.shifts.oldest)
            if is_late:
                late_firsts.append(span.first)
            elif late_firsts:
                kind.revise(place, late_firsts)
                late_firsts = []
            kind.add(place, frame, counts, late=is_late)
            timeline = self._note_version(device, stream, frame, timeline)
            self._account_for(sequence, kind, span, is_stored=False)
            self._store_policy(sequence, self._catalogue.policy(device, stream, frame.policy_version))
            counts[kind.counter + "stored"] += 1
        if late_firsts:
            kind.revise(place, late_firsts)
        if timeline is not None:
            self._store.versions.put(device, stream, timeline, is_whole=kind is self._windows)

    def _note_version(self, device: str, stream: str, frame: AnyFrame, timeline: Timeline | None) -> Timeline | None:
        """Note a frame's policy version in the timeline of its stream, read from the store if `None`, and return it.

        A window's frame is noted only if its policy has no symbols.
        """
        begin, absent_ticks = frame.previous + 1, 0
        if isinstance(frame, WindowFrame):
            policy = self._catalogue.policy(device, stream, frame.policy_version)
            if not isinstance(policy, Policy) or policy.table is not None:
                return timeline
            absent_ticks = frame.length - frame.observed
            if (window := policy.window(frame.window)) is not None and frame.previous >= 0:
                skipped_ticks = (frame.index - frame.previous) * window.stride - frame.length
                begin = max(0, frame.first - max(0, skipped_ticks))  # ticks between windows do not count
        timeline = timeline or self._store.versions.timeline(device, stream)
        timeline.extend(min(self._load(device, stream).coverage.end, frame.first - 1))
        timeline.add(Drawn(frame.first, frame.last, frame.policy_version, begin, absent_ticks))
        return timeline

    def _account_for_removed(self, sequence: _Sequence, kind: Kind[Any], span: FrameSpan) -> str:
        """Account for the ticks of a frame from before the sequence's `begin`. Return the counter of its outcome."""
        is_held = sequence.coverage.holds(span.first, span.last)
        if not is_held and sequence.coverage.meets(span.first, span.last):
            return "conflict"
        self._account_for(sequence, kind, span, is_stored=True)  # also frames that its device had to drop since
        return "duplicate" if is_held else "too_old"

    def _account_for(self, sequence: _Sequence, kind: Kind[Any], span: FrameSpan, *, is_stored: bool) -> None:
        """Account for a frame's ticks; with `is_stored`, another frame of these ticks is or was in the store."""
        if (merge := sequence.coverage.add(span.previous, span.last)) is None:
            return
        if kind is not self.symbols:
            self._store.merge_coverage(sequence.place.number, *merge)
            return
        sequence.rewritten = True
        if is_stored:
            self.symbols.account(sequence.place, span)

    def _store_policy(self, sequence: _Sequence, policy: AnyPolicy) -> None:
        """Store the policy of a sequence's frame, unless it is stored already."""
        if policy.version not in sequence.versions:
            self._store.add_policy(sequence.place.number, policy.version, policy.to_json())
            sequence.versions.add(policy.version)

    def _load_stored(self, device: str, name: str) -> _Sequence:
        """Return a sequence that gets frames; its place gets a number if it has none."""
        sequence = self._load(device, name)
        if not sequence.place.number:
            sequence.place = Place(self._store.number_of(device, name), device, name)
        return sequence

    def _load(self, device: str, name: str) -> _Sequence:
        if (sequence := self._sequences.get((device, name))) is None:
            number = self._store.stream_id(device, name)
            sequence = _Sequence(Place(number or 0, device, name))
            if number is not None:
                journal_intervals = self._store.symbols.tail.intervals(number)
                sequence.coverage = Coverage([*self._store.aged.coverage(number), *journal_intervals])
                sequence.shifts = self._store.shifts(number)
                sequence.begin = self._store.aged.begin(number)
                sequence.rewritten = bool(journal_intervals)
            self._sequences[device, name] = sequence  # only if all was read
        sequence.coverage.extend(self.symbols.last_tick(device, name))
        return sequence
