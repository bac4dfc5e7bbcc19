"""Frames of points become durable: each tick once; beliefs follow, and late frames are worked in where they belong.

Counted as for symbols: `stored`, `late`, `duplicate`, `conflict`; and `fallback_ticks`, `exposed_ticks` (ticks at which
some possible state was hidden among no other), `unknown_points` (of tables that this store has lost, or that a table
does not have; their ticks count as unobserved).
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from contract.frames import StreamCommit
from contract.measure_frames import MeasureEstimate, MeasureFrame
from contract.measure_table import MeasureTable
from gateway.service.coverage import Coverage
from gateway.service.kinds.point_model import Floats, MeasureModel, Tables
from gateway.service.policies import Catalogue
from gateway.service.store import Store
from gateway.service.store.points import Measured, MeasureStore

__all__ = ["MeasureRecorder"]

_log = logging.getLogger(__name__)
_Key = tuple[str, str]


@dataclass
class _Stream:
    """What the store says of a stream; `number` is none while nothing is stored."""

    number: int | None
    coverage: Coverage
    versions: set[int]


class MeasureRecorder:
    """The state of every measured stream, backed by a store.

    Args:
        store: owned by the thread that calls.
        catalogue: the fleet's policies.
    """

    def __init__(self, store: Store, catalogue: Catalogue) -> None:
        self._store = store
        self._catalogue = catalogue
        self.measured = MeasureStore(store)
        self._streams: dict[_Key, _Stream] = {}

    def record(self, device: str, stream: str, frames: Sequence[MeasureFrame], counted: Counter[str]) -> None:
        """Store the new ones of some frames, as part of the store's transaction.

        Raises:
            sqlite3.Error: if the store cannot take it; call `forget` then.
        """
        key = (device, stream)
        loaded = self._load(key)
        number = self.number(device, stream)
        late: list[int] = []
        for frame in sorted(frames, key=lambda frame: frame.first):
            stored = self.measured.overlapping(number, frame)
            if stored is not None:
                same = replace(stored, padding=0) == replace(frame, padding=0)
                counted["duplicate" if same else "conflict"] += 1
                continue
            newest = self.measured.newest(number)
            is_late = newest is not None and newest.frame.first > frame.first
            self.measured.add(number, frame, self._belief(key, number, frame))
            if is_late:
                late.append(frame.first)
                counted["late"] += 1
            else:
                self._store.queue_estimates(number, frame.first)
            merge = loaded.coverage.add(frame.previous, frame.last)
            if merge is not None:
                self._store.merge_coverage(number, merge)
            if frame.policy_version not in loaded.versions:
                policy = self._catalogue.find_measure(*key, frame.policy_version).policy
                self._store.add_policy(number, frame.policy_version, policy.to_json())
                loaded.versions.add(frame.policy_version)
            counted["stored"] += 1
            self._count(key, frame, counted)
        if late:
            self._replay(key, number, late)

    def number(self, device: str, stream: str) -> int:
        """The stream's number in the store, given now if it has none."""
        loaded = self._load((device, stream))
        if loaded.number is None:
            loaded.number = self._store.add_stream(device, stream)
        return loaded.number

    def forget(self, device: str, stream: str) -> None:
        """Read a stream from the store again: what is in memory may be ahead of it."""
        self._streams.pop((device, stream), None)

    def commit(self, device: str, stream: str) -> StreamCommit:
        """The stream's watermark."""
        return self._load((device, stream)).coverage.commit(stream)

    def newest(self, device: str, stream: str) -> Measured | None:
        """The newest frame, and the belief at its end."""
        number = self._load((device, stream)).number
        return None if number is None else self.measured.newest(number)

    def estimate(self, device: str, stream: str, first: int) -> MeasureEstimate | None:
        """The estimates of the ticks of the frame that begins at a tick."""
        key = (device, stream)
        number = self.number(device, stream)
        if (found := self.measured.at(number, first)) is None:
            return None
        model = self._model(key, found.frame.policy_version)
        return model.estimate(self._law(key, number, found.frame), found.frame, self.tables(key, model))

    def tables(self, key: _Key, model: MeasureModel) -> Tables:
        """The tables of a policy version: its own, and those that were sent."""
        return partial(self._table, self.number(*key), model)

    def _table(self, number: int, model: MeasureModel, table: int) -> MeasureTable | None:
        policy = model.policy
        return policy.table(table) or self.measured.table(number, policy.version, table)

    def _count(self, key: _Key, frame: MeasureFrame, counted: Counter[str]) -> None:
        model = self._model(key, frame.policy_version)
        tables = self.tables(key, model)
        exposed = []
        for tick, released in enumerate(frame.released, frame.first):
            counted["fallback_ticks"] += released.table == 0
            counted["unknown_points"] += not model.has_point(released, tables)
            if model.degree(released.table, tick, tables) == 1:
                exposed.append(tick)
        counted["exposed_ticks"] += len(exposed)
        if exposed:
            ticks = f"{len(exposed)} ticks from tick {exposed[0]} on"
            _log.warning("exposure: %s/%s: an adversary can know some state for certain at %s", *key, ticks)

    def _belief(self, key: _Key, number: int, frame: MeasureFrame) -> Floats:
        model = self._model(key, frame.policy_version)
        found = model.filter(self._law(key, number, frame), frame, self.tables(key, model))
        belief: Floats = found.beliefs[-1].copy()
        return belief

    def _law(self, key: _Key, number: int, frame: MeasureFrame) -> Floats:
        """The law of a frame's first tick, given all frames before it."""
        model = self._model(key, frame.policy_version)
        before = self.measured.before(number, frame.first)
        if before is None or self._model(key, before.frame.policy_version).meaning != model.meaning:
            return model.start(frame.first)
        return model.ahead(before.belief, frame.first - before.frame.last)

    def _replay(self, key: _Key, number: int, late: list[int]) -> None:
        """Bring beliefs and estimates to what they would be had the late frames come in time."""
        changed = set(late)
        for measured in self._following(number, min(late)):
            frame = measured.frame
            belief = self._belief(key, number, frame)
            is_new = frame.first in changed
            changed.discard(frame.first)
            if belief.tobytes() != measured.belief.tobytes():
                self.measured.set_belief(number, frame.first, belief)
            elif not is_new and not changed:
                self._store.queue_estimates(number, frame.first)  # its own ticks may still differ
                return
            self._store.queue_estimates(number, frame.first)

    def _following(self, number: int, first: int) -> Iterator[Measured]:
        return self.measured.following(number, first)

    def _model(self, key: _Key, version: int) -> MeasureModel:
        return self._catalogue.measure_model(*key, version)

    def _load(self, key: _Key) -> _Stream:
        if (loaded := self._streams.get(key)) is None:
            number = self._store.stream_id(*key)
            intervals = [] if number is None else self._store.coverage(number)
            loaded = self._streams[key] = _Stream(number, Coverage(intervals), set())
        return loaded
