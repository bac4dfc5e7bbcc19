"""How far devices are whose frames other processes store: read from the store that all of them share."""

from __future__ import annotations

import time
from collections.abc import Callable

from fugu.contract.frames import sequence_name
from gateway.releases.inputs import Question
from gateway.releases.schedule import NotKnownError, Reached, StoreProgress
from gateway.store.coverage import Coverage, Shifts
from gateway.store.store import Store

__all__ = ["FleetProgress"]


_LOOK_SECONDS = 0.5
_SHARE = 10
"""Least ratio of the time between reads to the time of reading."""


class FleetProgress(StoreProgress):
    """The progress of all shards: what they have stored a moment ago; the store is owned by the thread that calls.

    While nothing was heard lately of one (`missing`), nothing is decided: how far its devices are, nobody knows.
    """

    def __init__(self, store: Store, shards: int, missing: Callable[[], tuple[int, ...]]) -> None:
        super().__init__(store, lambda device, name: self._read[device, name])
        self._read: dict[tuple[str, str], tuple[Coverage, Shifts]] = {}
        self._shards = shards
        self._missing = missing
        self._look_at = 0.0
        self._took = 0.0

    def look(self) -> bool:
        """Read again what is stored, if it is time for that; whether it was."""
        now = time.monotonic()
        if now < self._look_at:
            return False
        self._store.symbols.catch_up(self._shards)
        self._read.clear()
        self._took += time.monotonic() - now
        self._look_at, self._took = now + max(_LOOK_SECONDS, _SHARE * self._took), 0.0
        return True

    def reached(self, question: Question) -> Reached:
        """As of `StoreProgress`, which knows nothing of shards that are missing."""
        if missing := self._missing():
            raise NotKnownError(f"shards {missing} are missing")
        return super().reached(question)

    def _devices(self, question: Question) -> tuple[str, ...]:
        began = time.monotonic()
        wanted: dict[str, list[str]] = {}
        heard = [(device, question.stream) for device in question.devices if device not in question.silent]
        counted = [(device, sequence_name(question.stream, one.name)) for device, one in question.windows.items()]
        for device, name in (*heard, *counted):
            if (device, name) not in self._read:
                wanted.setdefault(name, []).append(device)
        for name, devices in wanted.items():
            numbers = self._store.numbers(name, devices)
            found = self._store.accounted([*numbers.values()])
            for device in devices:
                known = found[numbers[device]] if device in numbers else (Coverage(), Shifts())
                self._read[device, name] = known
        self._took += time.monotonic() - began
        return question.devices
