"""A gateway's store as a history: one state of it, while the gateway may change it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from functools import cache, partial
from itertools import islice
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from fugu.chains.arrays import Ints
from fugu.contract.errors import FuguError
from fugu.contract.frames import MAX_TICK, WindowFrame
from fugu.contract.measure_frames import MeasureFrame
from fugu.contract.measure_policy import MeasurePolicy
from fugu.contract.policies import AnyPolicy, read_policy
from fugu.contract.policy import Clock, Policy
from fugu.contract.sentences import LAST_US
from gateway.estimates.beliefs import Model, model_of
from gateway.estimates.catalogue import Catalogue
from gateway.estimates.past import Past, TickProbabilities
from gateway.estimates.points import PointEstimates, Points
from gateway.store.coverage import Place
from gateway.store.coverage import Span as ShiftSpan
from gateway.store.location import Location
from gateway.store.store import Store

__all__ = ["DAY_US", "Piece", "Span", "StoredHistory", "SymbolStream", "WindowSequence", "stored_history", "tick_times"]


DAY_US = 86_400_000_000


class Span(NamedTuple):
    """A stretch of wall-clock time, in microseconds of Unix time: since <= time < until."""

    since: int
    until: int

    def day(self, day: int) -> Span:
        """Return the part of the span in the day that begins at `day`."""
        return Span(max(day, self.since), min(day + DAY_US, self.until))

    def wall_ticks(self, clock: Clock) -> tuple[int, int]:
        """Return the first and the last wall tick of a clock in the span; without a tick, the last is the lower one."""
        first_tick = -((clock.epoch_us - self.since) // clock.period_us)
        return max(first_tick, 0), -((clock.epoch_us - self.until) // clock.period_us) - 1


class Piece(NamedTuple):
    """Symbols (n,) of consecutive ticks under one policy version, ahead of the wall clock by `shift`."""

    version: int
    first: int
    shift: int
    symbols: NDArray[Any]

    @property
    def last(self) -> int:
        """Tick of the last symbol."""
        return self.first + len(self.symbols) - 1

    def cut(self, first: int, last: int) -> Piece:
        """Return only the ticks first..last."""
        skip = max(first - self.first, 0)
        return self._replace(first=self.first + skip, symbols=self.symbols[skip : max(last - self.first + 1, skip)])


class SymbolStream(NamedTuple):
    """A stream of symbols, with its policies by version."""

    device: str
    stream: str
    policies: Mapping[int, Policy]

    def policy(self, version: int) -> Policy:
        """Return the policy of a version. FuguError if it is missing."""
        if (policy := self.policies.get(version)) is None:
            raise FuguError(f"policy version {version} of {self.device}/{self.stream} is not there")
        return policy

    def model(self, version: int) -> Model:
        """Return the model of a version. FuguError if the version is missing."""
        return model_of(self.policy(version))


def tick_times(clock: Clock, first: int, shift: int, ticks: int) -> Ints:
    """Return the times of consecutive ticks, (ticks,) microseconds of Unix time."""
    begin = clock.epoch_us + (first - shift) * clock.period_us
    return begin + clock.period_us * np.arange(ticks, dtype=np.int64)


_SEQUENCES = 1_000
_AnyKind = TypeVar("_AnyKind", Policy, MeasurePolicy)


class WindowSequence(NamedTuple):
    """A stream's windows of one name, with its policies by version."""

    device: str
    stream: str
    window: str
    policies: dict[int, Policy]


class MeasuredStream(NamedTuple):
    """A stream of points, with its policies by version."""

    device: str
    stream: str
    policies: dict[int, MeasurePolicy]


@contextmanager
def stored_history(location: Location) -> Iterator[StoredHistory]:
    """Open one state of a store, whose gateway may be running. StoreError if there is no such store."""
    with closing(Store(location, create=False)) as store, store.snapshot():
        yield StoredHistory(store)


class StoredHistory:
    """The content of a store by spans of wall-clock time, all in one state of the store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._policies: dict[tuple[str, str], dict[int, AnyPolicy]] = defaultdict(dict)
        self._catalogue = Catalogue("")
        self._places: dict[tuple[str, str, str], Place] = {}
        self._past = cache(partial(Past, store, self._catalogue))
        self._points = cache(partial(Points, store, self._catalogue))
        documents = store.policy_documents()
        self._catalogue.retire(documents)
        for policy in map(read_policy, documents):
            self._policies[policy.device, policy.stream][policy.version] = policy
        last_number = 0
        while sequences := store.aged.sequences(last_number, _SEQUENCES):
            last_number = sequences[-1].number
            for sequence in sequences:
                self._places[sequence.device, sequence.stream, sequence.window_name] = sequence

    def policies(self) -> list[AnyPolicy]:
        """Return the policies of all stored frames, sorted by device, stream and version."""
        return [versions[version] for _, versions in sorted(self._policies.items()) for version in sorted(versions)]

    def streams(self) -> list[SymbolStream]:
        """Return every stream of symbols, sorted by device and name."""
        return [SymbolStream(*fields) for fields in self._stored_streams(Policy)]

    def measured_streams(self) -> list[MeasuredStream]:
        """Return every stream of points, sorted by device and name."""
        return [MeasuredStream(*fields) for fields in self._stored_streams(MeasurePolicy)]

    def _stored_streams(self, policy_class: type[_AnyKind]) -> Iterator[tuple[str, str, dict[int, _AnyKind]]]:
        for (device, stream), versions in sorted(self._policies.items()):
            if (policies := _policies_of(versions, policy_class)) and (device, stream, "") in self._places:
                yield device, stream, policies

    def windows(self) -> list[WindowSequence]:
        """Return every sequence of windows, sorted by device, stream and name."""
        return [
            WindowSequence(device, stream, window, _policies_of(self._policies.get((device, stream), {}), Policy))
            for device, stream, window in sorted(self._places)
            if window
        ]

    def pieces(self, stream: SymbolStream, span: Span) -> Iterator[Piece]:
        """Yield the symbols of a stream in a span of time, in tick order under each clock and shift."""
        for place, clock, (first, last), (wall_low, wall_high) in self._tick_ranges(stream, span):
            for frame in self._store.symbols.following(place.number, first, last):
                if stream.policy(frame.policy_version).clock == clock:
                    symbols = np.frombuffer(frame.symbols, dtype=np.uint8)
                    piece = Piece(frame.policy_version, frame.first, frame.shift, symbols)
                    piece = piece.cut(max(first, wall_low + frame.shift), min(last, wall_high + frame.shift))
                    if len(piece.symbols):
                        yield piece

    def estimates(self, stream: SymbolStream, span: Span, lag: int) -> Iterator[TickProbabilities]:
        """Yield estimates of a stream's ticks in a span of time, given all symbols before and `lag` later ones."""
        past = self._past(lag)
        for place, clock, (first, last), (wall_low, wall_high) in self._tick_ranges(stream, span):
            for run in past.estimates(place, first, last, with_newest=True):
                run_in_span = run.cut(wall_low + run.shift, wall_high + run.shift)
                if stream.policy(run.version).clock == clock and len(run_in_span.probabilities):
                    yield run_in_span

    def days(self, stream: SymbolStream, span: Span) -> list[int]:
        """Return the days, by their beginnings, that hold symbols of a stream in a span of time."""
        days: set[int] = set()
        for piece in self.pieces(stream, span):
            clock = stream.policy(piece.version).clock
            end_times = (clock.epoch_us + (tick - piece.shift) * clock.period_us for tick in (piece.first, piece.last))
            first_day, last_day = (end // DAY_US for end in end_times)
            days.update(range(first_day, last_day + 1))
        return [day * DAY_US for day in sorted(days)]

    def points(self, stream: MeasuredStream, span: Span) -> Iterator[MeasureFrame]:
        """Yield the frames of points that begin in a span of time, in tick order under each clock and shift."""
        for place, clock, (first, last), (wall_low, wall_high) in self._tick_ranges(stream, span):
            for frame, _ in self._store.points.following(place.number, first, last):
                policy = stream.policies.get(frame.policy_version)
                if policy is not None and policy.clock == clock and wall_low <= frame.first - frame.shift <= wall_high:
                    yield frame

    def measurements(self, stream: MeasuredStream, frame: MeasureFrame, lag: int) -> Iterator[PointEstimates]:
        """Yield a frame's new estimates: of its own ticks without lag, and of earlier ticks with `lag`."""
        place, points = self._places[stream.device, stream.stream, ""], self._points(lag)
        yield points.estimate(place, frame)
        yield from points.lagged_estimates(place, frame)

    def counts(self, sequence: WindowSequence, span: Span) -> Iterator[WindowFrame]:
        """Yield the windows that begin in a span of time, by index under each clock."""
        sequence_number = self._places[sequence.device, sequence.stream, sequence.window].number
        shift = self._store.shifts(sequence_number).newest
        windows = [policy.window(sequence.window) for policy in sequence.policies.values()]
        max_length = max((window.length for window in windows if window is not None), default=0)
        for clock in _clocks(sequence.policies):
            wall_low, wall_high = span.wall_ticks(clock)
            for frame in self._store.windows.within(sequence_number, wall_low, wall_high + shift + max_length):
                policy = sequence.policies.get(frame.policy_version)
                if policy is not None and policy.clock == clock and wall_low <= frame.first - frame.shift <= wall_high:
                    yield frame

    def next_time(self, begin_us: int) -> int | None:
        """Return a time from `begin_us` on, in microseconds, before which nothing is stored after `begin_us`.

        No symbol lies between them, and no frame of points or window begins there. `None` if there is none later.
        """
        span, times = Span(begin_us, LAST_US), list[int]()
        for sequence in self.windows():
            number = self._places[sequence.device, sequence.stream, sequence.window].number
            shift = self._store.shifts(number).newest
            for clock in _clocks(sequence.policies):
                if (tick := self._store.windows.next_first(number, span.wall_ticks(clock)[0])) is not None:
                    times.append(clock.epoch_us + (tick - shift) * clock.period_us)
        for stream in self.streams():
            times += self._first_times(stream, self._store.symbols.following, span)
        points = self._store.points.following
        for point_stream in self.measured_streams():
            times += self._first_times(
                point_stream, lambda number, first: (measured.frame for measured in points(number, first)), span
            )
        return max(min(times), begin_us) if times else None

    def _first_times(
        self, stream: SymbolStream | MeasuredStream, read_frames: Callable[[int, int], Iterator[Any]], span: Span
    ) -> Iterator[int]:
        for place, clock, (first, _), _ in self._tick_ranges(stream, span):
            for frame in islice(read_frames(place.number, first), 1):
                yield clock.epoch_us + (frame.first - frame.shift) * clock.period_us

    def _tick_ranges(
        self, stream: SymbolStream | MeasuredStream, span: Span
    ) -> Iterator[tuple[Place, Clock, tuple[int, int], tuple[int, int]]]:
        """Yield for each clock and shift of a stream its place, the clock, and the first and last tick of a span.

        These two ticks are given as the device's own and as wall ticks.
        """
        place = self._places[stream.device, stream.stream, ""]
        spans = self._store.shifts(place.number).spans or (ShiftSpan(0, 0, MAX_TICK),)
        for clock in _clocks(stream.policies):
            wall_low, wall_high = span.wall_ticks(clock)
            for i, (shift, first_tick, _) in enumerate(spans):
                first = max(wall_low + shift, first_tick) if i else wall_low  # earlier, forgotten shifts were smaller
                last = min(wall_high + shift, spans[i + 1].first - 1 if i + 1 < len(spans) else MAX_TICK)
                if first <= last:
                    yield place, clock, (first, last), (wall_low, wall_high)


def _policies_of(policies: Mapping[int, AnyPolicy], policy_class: type[_AnyKind]) -> dict[int, _AnyKind]:
    return {version: policy for version, policy in sorted(policies.items()) if isinstance(policy, policy_class)}


def _clocks(policies: Mapping[int, AnyPolicy]) -> list[Clock]:
    return list(dict.fromkeys(policies[version].clock for version in sorted(policies)))
