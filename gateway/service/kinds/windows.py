"""Frames of window counts become durable: each window once, whatever arrives twice or contradicts itself.

A frame whose window is stored is a `windows_duplicate` if it is the same, else a `windows_conflict`, which is never
stored: of two noisy counts of one window the first is kept, and what the second would tell beside it is not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from contract.frames import StreamCommit
from contract.window_frames import WindowFrame, sequence_name
from gateway.service.coverage import Coverage
from gateway.service.policies import Catalogue
from gateway.service.store import Store

__all__ = ["WindowRecorder"]

_Key = tuple[str, str, str]


@dataclass
class _Sequence:
    """What the store says of the windows of one name; `number` is none while nothing is stored."""

    number: int | None
    coverage: Coverage
    versions: set[int]


class WindowRecorder:
    """The state of every sequence of windows, backed by a store.

    Args:
        store: owned by the thread that calls.
        catalogue: the fleet's policies.
    """

    def __init__(self, store: Store, catalogue: Catalogue) -> None:
        self._store = store
        self._catalogue = catalogue
        self._sequences: dict[_Key, _Sequence] = {}

    def record(self, device: str, stream: str, frames: Sequence[WindowFrame], counted: Counter[str]) -> None:
        """Store the new ones of some frames, as part of the store's transaction.

        Args:
            counted: counts `windows_stored`, `windows_duplicate`, `windows_conflict`.

        Raises:
            sqlite3.Error: if the store cannot take it; call `forget` then.
        """
        for frame in frames:
            key = (device, stream, frame.window)
            sequence = self._load(key)
            if sequence.number is None:
                sequence.number = self._store.add_stream(device, sequence_name(stream, frame.window))
            stored = self._store.window(sequence.number, frame.window, frame.index)
            if stored is not None:
                counted["windows_duplicate" if stored == frame else "windows_conflict"] += 1
                continue
            self._store.add_window(sequence.number, frame)
            merge = sequence.coverage.add(frame.previous, frame.index)
            if merge is not None:
                self._store.merge_coverage(sequence.number, merge)
            if frame.policy_version not in sequence.versions:
                policy = self._catalogue.find(device, stream, frame.policy_version).policy
                self._store.add_policy(sequence.number, frame.policy_version, policy.to_json())
                sequence.versions.add(frame.policy_version)
            counted["windows_stored"] += 1

    def forget(self, device: str, stream: str) -> None:
        """Read a stream's windows from the store again: what is in memory may be ahead of it."""
        for key in [key for key in self._sequences if key[:2] == (device, stream)]:
            del self._sequences[key]

    def commits(self, device: str, stream: str) -> list[StreamCommit]:
        """The watermark of each window that a policy of the stream has, or has had."""
        policies = self._catalogue.policies(device, stream)
        names = sorted({window.name for policy in policies for window in policy.windows})
        return [self._load((device, stream, name)).coverage.commit(sequence_name(stream, name)) for name in names]

    def _load(self, key: _Key) -> _Sequence:
        if (loaded := self._sequences.get(key)) is None:
            device, stream, window = key
            number = self._store.stream_id(device, sequence_name(stream, window))
            intervals = [] if number is None else self._store.coverage(number)
            loaded = self._sequences[key] = _Sequence(number, Coverage(intervals), set())
        return loaded
