"""Removal of frames and chunks that are older than they are to be kept, and of all that a device has sent.

A frame's age is counted from its last tick, by the clock of its policy. It ends now, or at the newest sealed tick of
the whole fleet if that is earlier: a clock that jumps ahead removes nothing too early. Of a chunk the symbols that have
been too old for an hour are cut off. Some things stay, however old: what a release still needs, the newest frames of
points, a stream's newest tick, and all charges. Work is done between batches of frames, in transactions of bounded
size.

When a device is erased, some things stay: its accounted ticks, its policies, its last released tick, and the ledger,
without sums that it was in. So nothing is asked for, charged or released again.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from itertools import takewhile
from typing import NamedTuple

from fugu.host.database import DatabaseError
from gateway.config import Keep
from gateway.estimates.catalogue import Catalogue
from gateway.loop.recorder import Recorder
from gateway.parts import Part
from gateway.store.coverage import Place
from gateway.store.engine import Lease, LedgerError
from gateway.store.location import Location, ledger_beside
from gateway.store.opening import is_there
from gateway.store.store import SYMBOLS, Aged, Forgotten, Frames, Store, StoreError

__all__ = ["Retention", "forget_device"]


_HOUR_US = 3_600_000_000
_MOST_SEQUENCES = 100
_MOST_ROWS = 1_000
_REST_SECONDS = 60.0
_POINTS = Frames("measured")
_WINDOWS = Frames("windows", "number", "first+length-1")


class _Removal(NamedTuple):
    """So many of the first frames of a sequence, up to one, and where those begin that are kept."""

    frames: Frames
    sequence: Place
    through: int
    begin: int
    many: int


class Retention(Part):
    """Goes through all sequences of a store that the calling thread owns, again and again.

    `needed` has for device and stream the first tick that is needed whatever its age, `may_forget` whether that is
    known, if it is not always. Estimates see `lag` later ticks.
    `counters` counts `frames_removed`, of which chunks and parts of them are one each.
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
        may_forget: Callable[[], bool] | None = None,
    ) -> None:
        self._may_forget = may_forget
        self._ages = {SYMBOLS: keep.symbols, _POINTS: keep.points, _WINDOWS: keep.windows}
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

    def pump(self, *, idle: bool = False) -> None:
        """Remove some frames. Raises DatabaseError; it is tried again."""
        if not (self._may_forget is None or self._may_forget()):
            return
        aged = self._store.aged
        if not (sequences := aged.sequences(self._after, _MOST_SEQUENCES)):
            self._newest_us, self._seen_us = self._seen_us, None
            self._after, self.due = 0, self._seconds() + _REST_SECONDS
            return
        if self._after == 0:
            self._needed = self._find_needed()
        removals: list[_Removal] = []
        rows_free, after = _MOST_ROWS, self._after
        for sequence in sequences:
            if (removal := self._aged(self._kind(sequence), sequence, rows_free)) is not None:
                removals.append(removal)
                rows_free -= removal.many
            if rows_free == 0:  # there may be more of it
                break
            after = sequence.number
        self._remove(removals)
        self._after = after

    def _remove(self, removals: list[_Removal]) -> None:
        if not removals:
            return
        with self._store.transaction():
            for frames, sequence, through, begin, _ in removals:
                self._store.aged.remove(frames, sequence.number, through, begin)
        for _, sequence, _, begin, many in removals:
            self._recorder.removed(sequence.device, sequence.name, begin)
            self._counters["frames_removed"] += many

    def _kind(self, sequence: Place) -> Frames:
        if sequence.window:
            return _WINDOWS
        return _POINTS if self._catalogue.is_measured(sequence.device, sequence.stream) else SYMBOLS

    def _aged(self, frames: Frames, sequence: Place, most: int) -> _Removal | None:
        aged, number = self._store.aged, sequence.number
        if (newest := aged.newest(frames, number)) is not None:
            self._seen_us = max(self._ends_us(sequence, newest), self._seen_us or 0)
        if self._newest_us is None or not most:
            return None
        before_us = min(self._newest_us, self._now_us()) - self._ages[frames] * _HOUR_US
        removable = partial(self._removable, sequence, before_us)
        if not any(removable(frame) for frame in aged.oldest(frames, number, 1)):
            if frames is SYMBOLS:
                self._trim(sequence, partial(self._removable, sequence, before_us - _HOUR_US))
            return None
        rests_on = aged.needed(frames, number, self._lag) if frames is _POINTS else None
        oldest = takewhile(removable, aged.oldest(frames, number, most))
        removable_frames = [frame for frame in oldest if rests_on is None or frame.key < rests_on]
        if not removable_frames:
            return None
        last = removable_frames[-1]
        begin = last.key + 1 if frames is _WINDOWS else last.last + 1
        return _Removal(frames, sequence, last.key, begin, len(removable_frames))

    def _removable(self, sequence: Place, before_us: int, aged: Aged) -> bool:
        needed = self._needed.get((sequence.device, sequence.stream))
        return self._ends_us(sequence, aged) <= before_us and (needed is None or self._last(sequence, aged) < needed)

    def _trim(self, sequence: Place, removable: Callable[[Aged], bool]) -> None:
        """Cut off of a stream's first chunk the symbols that are removable, if it begins with such."""
        chunk = next(self._store.symbols.chunks(sequence.number, -1), None)
        if chunk is None:
            return

        def stays(version: int, tick: int) -> bool:
            return not removable(Aged(tick, tick, version))

        for version, _, offset, ticks, _ in chunk.runs:
            run = range(chunk.first + offset, chunk.first + offset + ticks)
            if (at := bisect_left(run, True, key=partial(stays, version))) < ticks:
                first = run[at]
                break
        else:
            return
        if first == chunk.first:
            return
        rest = self._recorder.symbols.past.chunk_from(sequence, chunk, first)
        with self._store.transaction():
            self._store.aged.trim(chunk, rest)
        self._recorder.removed(sequence.device, sequence.name, rest.first)
        self._counters["frames_removed"] += 1

    def _ends_us(self, sequence: Place, aged: Aged) -> int:
        clock = self._catalogue.policy(sequence.device, sequence.stream, aged.version).clock
        return clock.epoch_us + (self._last(sequence, aged) + 1) * clock.period_us

    def _last(self, sequence: Place, aged: Aged) -> int:
        return aged.last - self._recorder.coverage_of(sequence.device, sequence.name)[1].at(aged.key)


def forget_device(location: Location, device: str, ledger: Location | None = None) -> Forgotten:
    """Erase a device's symbols, points and windows, and what is known from them, and write the file anew without them.

    Args:
        location: of the store; its gateway must not be running, and other processes of it that run anyway end.
        ledger: of its releases, if there are any; beside the store if not given.

    Raises:
        StoreError: one line that says what is wrong; it may be done again then, and again after it is done.
        LedgerError: the store's releases were charged to a ledger that is not there, or is another one.
    """
    from gateway.releases.ledger import Ledger

    charged = _ledger(location, ledger)
    with closing(Store(location, create=False, lease=Lease())) as store, _erasing(device, f"store {location.name}"):
        with store.new_generation():
            forgotten = store.aged.forget(device)
        store.sums.forget(device)
        if forgotten is None:
            raise StoreError(f"store {location.name} has nothing of a device {device}")
        store.rewrite()
    if charged is not None:
        with closing(Ledger(charged, create=False)) as opened, _erasing(device, f"ledger {charged.name}"):
            opened.forget(device, time_us=time.time_ns() // 1000)
    return forgotten


@contextmanager
def _erasing(device: str, what: str) -> Iterator[None]:
    try:
        yield
    except DatabaseError as error:
        raise StoreError(f"cannot erase all of {device} from the {what}: {error}; do it again") from None


def _ledger(store: Location, ledger: Location | None) -> Location | None:
    """Where the store's releases were charged, if there were any."""
    from gateway.releases.ledger import Ledger
    from gateway.releases.tables import KIND

    with closing(Store(store, create=False)) as opened:
        bound = opened.releases.charged().ledger
    if not bound:
        return None
    location = ledger or ledger_beside(store)
    if is_there(location, KIND):
        with closing(Ledger(location, create=False)) as opened_ledger:
            if opened_ledger.binding.identity == bound:
                return location
    raise LedgerError(
        f"{location.name} is not the ledger that releases of {store.name} were charged to: name that one with --ledger"
    )
