"""Retention: frames and estimates are removed when they are older than they are to be kept.

A frame's age is counted from its last tick to now, by the clock of the policy that it was made under, or, if that is
earlier, to the newest tick of the whole fleet: a gateway whose clock has jumped ahead removes nothing too early. What
stays, however old it is: what a release needs that is still to be made, the newest frames of a stream, which the next
estimates rest on, and everything that has been charged.

The work is done in small pieces, between batches of frames: one transaction each, of a bounded number of rows.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields, replace
from itertools import takewhile
from typing import NamedTuple, Self

from contract.errors import FuguError
from gateway.service.policies import Catalogue
from gateway.service.recorder import Recorder
from gateway.service.store import Store
from gateway.service.store.aged import ESTIMATES, POINTS, SYMBOLS, WINDOWS, Aged, Frames, Sequence

__all__ = ["Keep", "KeepError", "Retention"]

_HOURS = {"h": 1, "d": 24}
_HOUR_US = 3_600_000_000
_MOST_SEQUENCES = 100
_MOST_ROWS = 1_000
_REST_SECONDS = 60.0


class KeepError(FuguError):
    """What is to be kept cannot be read."""


@dataclass(frozen=True, slots=True)
class Keep:
    """For how many hours each kind is kept, counted from its last tick; estimates never longer than their symbols."""

    symbols: int = 400 * 24
    points: int = 400 * 24
    windows: int = 400 * 24
    estimates: int = 30 * 24

    @classmethod
    def parse(cls, given: Iterable[str]) -> Self:
        """Read texts like `symbols=400d` or `estimates=12h`; what is not given has its default.

        Raises:
            KeepError: one of them is not like that.
        """
        kinds = [field.name for field in fields(cls)]
        hours: dict[str, int] = {}
        for text in given:
            kind, _, age = text.partition("=")
            number, unit = age[:-1], age[-1:]
            if kind not in kinds or unit not in _HOURS or not re.fullmatch("[1-9][0-9]{0,6}", number):
                raise KeepError(f"cannot keep {text!r}: say KIND=AGE, with {', '.join(kinds)}, and 12h or 400d")
            hours[kind] = int(number) * _HOURS[unit]
        return replace(cls(), **hours)


class _Removal(NamedTuple):
    """So many of the first frames of a sequence, up to one, and where those begin that are kept."""

    frames: Frames
    sequence: Sequence
    through: int
    kept: int
    many: int


class Retention:
    """Goes through all sequences again and again.

    Args:
        store: owned by the thread that calls.
        needed: for device and stream the first tick that is needed whatever its age.
        lag: ticks of later symbols or points that estimates see.
        counters: counts `frames_removed` and `estimates_removed` (of so many frames).
        now_us: the time in microseconds of Unix time.
        seconds: a clock that only goes forward.
    """

    def __init__(
        self,
        keep: Keep,
        store: Store,
        catalogue: Catalogue,
        recorder: Recorder,
        needed: Callable[[], dict[tuple[str, str], int]],
        lag: int,
        counters: Counter[str],
        now_us: Callable[[], int] = lambda: time.time_ns() // 1000,
        seconds: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ages = {
            SYMBOLS: keep.symbols,
            POINTS: keep.points,
            WINDOWS: keep.windows,
            ESTIMATES: min(keep.estimates, keep.symbols),
        }
        self._store = store
        self._catalogue = catalogue
        self._recorder = recorder
        self._find_needed = needed
        self._lag = lag
        self._counters = counters
        self._now_us = now_us
        self._seconds = seconds
        self._needed: dict[tuple[str, str], int] = {}
        self._after = 0
        self._newest_us: int | None = None
        self._seen_us: int | None = None
        self._next = 0.0

    def pump(self) -> None:
        """Look at some sequences, and remove some frames.

        Raises:
            DatabaseError: the store cannot be used; nothing is lost then, and it is tried again.
        """
        if self._seconds() < self._next:
            return
        aged = self._store.aged
        if not (sequences := aged.sequences(self._after, _MOST_SEQUENCES)):
            self._newest_us, self._seen_us = self._seen_us, None
            self._after, self._next = 0, self._seconds() + _REST_SECONDS
            return
        if self._after == 0:
            self._needed = self._find_needed()
        removals: list[_Removal] = []
        room, after = _MOST_ROWS, self._after
        for sequence in sequences:
            for frames in self._kinds(sequence):
                if (removal := self._aged(frames, sequence, room)) is not None:
                    removals.append(removal)
                    room -= removal.many
            if room == 0:  # there may be more of it
                break
            after = sequence.number
        self._remove(removals)
        self._after = after

    def _remove(self, removals: list[_Removal]) -> None:
        if not removals:
            return
        with self._store.transaction():
            for frames, sequence, through, kept, _ in removals:
                self._store.aged.remove(frames, sequence.number, through, kept)
        for frames, sequence, _, kept, many in removals:
            self._recorder.removed(sequence.device, sequence.name, kept)
            self._counters["estimates_removed" if frames is ESTIMATES else "frames_removed"] += many

    def _kinds(self, sequence: Sequence) -> tuple[Frames, ...]:
        if sequence.window:
            return (WINDOWS,)
        return (POINTS,) if self._catalogue.is_measured(sequence.device, sequence.stream) else (ESTIMATES, SYMBOLS)

    def _aged(self, frames: Frames, sequence: Sequence, most: int) -> _Removal | None:
        """What is to be removed of a sequence."""
        aged, number = self._store.aged, sequence.number
        if frames is not ESTIMATES and (newest := aged.newest(frames, number)) is not None:
            self._seen_us = max(self._ends_us(sequence, newest), self._seen_us or 0)
        if self._newest_us is None or not most:
            return None
        before_us = min(self._newest_us, self._now_us()) - self._ages[frames] * _HOUR_US
        needed = None if frames is ESTIMATES else self._needed.get((sequence.device, sequence.stream))

        def removable(one: Aged) -> bool:
            return self._ends_us(sequence, one) <= before_us and (needed is None or self._last(sequence, one) < needed)

        if not any(removable(one) for one in aged.oldest(frames, number, 1)):
            return None
        rests_on = aged.needed(frames, number, self._lag) if frames in (SYMBOLS, POINTS) else None
        found = [*takewhile(removable, aged.oldest(frames, number, most))]
        found = [one for one in found if rests_on is None or one.key < rests_on]
        if not found:
            return None
        last = found[-1]
        kept = 0 if frames is ESTIMATES else last.key + 1 if frames is WINDOWS else last.last + 1
        return _Removal(frames, sequence, last.key, kept, len(found))

    def _ends_us(self, sequence: Sequence, one: Aged) -> int:
        """When a frame ended, in microseconds of Unix time."""
        clock = self._catalogue.policy(sequence.device, sequence.stream, one.version).clock
        return clock.epoch_us + (self._last(sequence, one) + 1) * clock.period_us

    def _last(self, sequence: Sequence, one: Aged) -> int:
        """The wall tick that a frame ended with."""
        return one.last - self._recorder.shifts(sequence.device, sequence.name).at(one.key)
