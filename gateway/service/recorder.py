"""A batch of frames becomes durable: which are new, what they change, in one transaction.

A frame whose ticks overlap those of a stored one is a `duplicate` if it is the same, else a `conflict`. A conflict is
never stored; its ticks stay missing in the watermark unless stored frames account for them, so a device that
contradicts itself re-sends in vain, and nobody else notices.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from contract.frames import MAX_STREAMS, Committed, StreamCommit, SymbolFrame
from contract.measure_frames import MeasureFrame
from contract.window_frames import WindowFrame
from gateway.service.coverage import Coverage
from gateway.service.ingest import AnyReceived, Received, ReceivedPoints
from gateway.service.kinds.points import MeasureRecorder
from gateway.service.kinds.symbol_track import Track, Tracked, replay
from gateway.service.kinds.windows import WindowRecorder
from gateway.service.policies import Catalogue
from gateway.service.store import Store

__all__ = ["Recorder"]

_Key = tuple[str, str]


@dataclass
class _Stream:
    """What the store says of a stream, kept in memory; `number` is none while nothing is stored."""

    number: int | None
    coverage: Coverage
    track: Track
    versions: set[int]


class Recorder:
    """The state of every stream, backed by a store.

    Args:
        store: owned by the thread that calls.
        catalogue: the fleet's policies.
        lag: ticks of later symbols that estimates see.
        counters: counts `stored`, `late`, `duplicate`, `conflict`, and those of windows and measurements.

    Attributes:
        measures: the measured streams.
    """

    def __init__(self, store: Store, catalogue: Catalogue, lag: int, counters: Counter[str]) -> None:
        self._store = store
        self._catalogue = catalogue
        self._lag = lag
        self._counters = counters
        self._streams: dict[_Key, _Stream] = {}
        self._windows = WindowRecorder(store, catalogue)
        self.measures = MeasureRecorder(store, catalogue)

    def record(self, batch: Sequence[AnyReceived]) -> None:
        """Store the new frames of a batch and what they change, or nothing of it.

        Raises:
            sqlite3.Error: if the store cannot take it.
        """
        frames: dict[_Key, list[SymbolFrame]] = {}
        windows: dict[_Key, list[WindowFrame]] = {}
        points: dict[_Key, list[MeasureFrame]] = {}
        for received in batch:
            key = (received.device, received.stream)
            if isinstance(received, Received):
                frames.setdefault(key, []).append(received.frame)
            elif isinstance(received, ReceivedPoints):
                points.setdefault(key, []).append(received.frame)
            else:
                windows.setdefault(key, []).append(received.frame)
        counted: Counter[str] = Counter()
        try:
            with self._store.transaction():
                for key, group in frames.items():
                    self._record_stream(key, sorted(group, key=lambda frame: frame.first), counted)
                for key, some in windows.items():
                    self._windows.record(*key, some, counted)
                for key, measured in points.items():
                    self.measures.record(*key, measured, counted)
        except BaseException:
            for key in frames:
                self._streams.pop(key, None)  # what is in memory may be ahead of the store: read it again
            for key in windows:
                self._windows.forget(*key)
            for key in points:
                self.measures.forget(*key)
            raise
        self._counters.update(counted)

    def committed(self, device: str) -> list[Committed]:
        """The watermark of a device, in as many messages as it takes."""
        commits: list[StreamCommit] = []
        for stream in self._catalogue.streams(device):
            if self._catalogue.newest_measure(device, stream) is not None:
                commits.append(self.measures.commit(device, stream))
            else:
                commits += [self._commit(device, stream), *self._windows.commits(device, stream)]
        return [Committed(tuple(commits[i : i + MAX_STREAMS])) for i in range(0, len(commits), MAX_STREAMS)]

    def newest(self, device: str, stream: str) -> Tracked | None:
        """The newest frame of a stream, and the belief at its end."""
        return self._load((device, stream)).track.newest

    def complete(self, device: str, stream: str, first: int, last: int) -> bool:
        """Whether no frame of the ticks first..last is missing."""
        return self._load((device, stream)).coverage.holds(first, last)

    def _commit(self, device: str, stream: str) -> StreamCommit:
        return self._load((device, stream)).coverage.commit(stream)

    def _load(self, key: _Key) -> _Stream:
        if (loaded := self._streams.get(key)) is None:
            number = self._store.stream_id(*key)
            intervals = [] if number is None else self._store.coverage(number)
            loaded = _Stream(number, Coverage(intervals), self._track(key, number), set())
            self._streams[key] = loaded
        return loaded

    def _track(self, key: _Key, number: int | None, before: int | None = None) -> Track:
        window = [] if number is None else self._store.tail(number, self._lag, before)
        return Track(self._lag, partial(self._catalogue.model, *key), window)

    def _record_stream(self, key: _Key, frames: list[SymbolFrame], counted: Counter[str]) -> None:
        stream = self._load(key)
        if stream.number is None:
            stream.number = self._store.add_stream(*key)
        late: list[int] = []
        for frame in frames:
            if stream.track.newest is None or frame.first > stream.track.newest.frame.last:
                if late:
                    self._replay(key, stream, late)
                    late = []
                update = stream.track.extend(frame)
                self._store.add_frame(stream.number, frame, update.belief)
                self._store.put_estimates(stream.number, update, self._lag)
            elif (stored := self._store.overlapping(stream.number, frame)) is not None:
                counted["duplicate" if _same(stored, frame) else "conflict"] += 1
                continue
            else:
                self._store.add_frame(stream.number, frame, None)
                late.append(frame.first)
                counted["late"] += 1
            self._account(key, stream, frame)
            counted["stored"] += 1
        if late:
            self._replay(key, stream, late)

    def _account(self, key: _Key, stream: _Stream, frame: SymbolFrame) -> None:
        assert stream.number is not None
        merge = stream.coverage.add(frame.previous, frame.last)
        if merge is not None:
            self._store.merge_coverage(stream.number, merge)
        if frame.policy_version not in stream.versions:
            policy = self._catalogue.find(*key, frame.policy_version).policy
            self._store.add_policy(stream.number, frame.policy_version, policy.to_json())
            stream.versions.add(frame.policy_version)

    def _replay(self, key: _Key, stream: _Stream, late: list[int]) -> None:
        """Bring beliefs and estimates to what they would be had the late frames come in time."""
        assert stream.number is not None
        number, done_through = stream.number, -1
        for first in late:
            if first <= done_through:
                continue
            track = self._track(key, number, before=first)
            for update, changed in replay(track, self._store.following(number, first)):
                if changed:
                    self._store.set_belief(number, update.frame.first, update.belief)
                if not self._store.replace_estimates(number, update, self._lag) and changed:
                    self._store.queue_estimates(number, update.frame.first)
                done_through = update.frame.last
        stream.track = self._track(key, number)


def _same(stored: SymbolFrame, frame: SymbolFrame) -> bool:
    """Whether two frames say the same; how one was filled up on the wire does not matter."""
    return (stored.policy_version, stored.previous, stored.first, stored.symbols) == (
        *(frame.policy_version, frame.previous, frame.first),
        frame.symbols,
    )
