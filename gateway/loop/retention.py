"""Removal of frames and chunks that are too old, and of everything that a device has sent.

A frame's age is the time from the end of its last tick, by its policy's clock, until now. If the newest sealed symbol,
point or window ended earlier than now, its end counts as now: a clock that jumps ahead removes nothing too early. From
the first chunk of a stream, the symbols that have been too old for an hour are cut off. Some things stay, however old:
ticks that a release still needs, the newest frames of points, a stream's newest tick, and all charges. Work is done
between batches of frames, in transactions of bounded size.

When a device is erased, some things stay: its accounted ticks, its policies, its last released tick, and the ledger
without the device's sums. So nothing is asked for, charged or released again.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from itertools import takewhile
from typing import NamedTuple

from fugu.host.database import DatabaseError
from gateway.config import GatewayConfig
from gateway.loop.recorder import Recorder
from gateway.parts import Loop, Part
from gateway.store.coverage import Place
from gateway.store.engine import Lease, LedgerError
from gateway.store.journal import time_us
from gateway.store.location import Location, ledger_beside
from gateway.store.opening import is_there
from gateway.store.store import SYMBOLS, AgedFrame, ForgottenCounts, FrameTable, Store, StoreError

__all__ = ["Retention", "forget_device"]


_HOUR_US = 3_600_000_000
_MOST_SEQUENCES = 100
_MOST_ROWS = 1_000
_REST_SECONDS = 60.0
_POINTS = FrameTable("measured")
_WINDOWS = FrameTable("windows", "number", "first+length-1")


class _Removal(NamedTuple):
    """The first `row_count` frames of a sequence, up to the key `through`; the frames that stay begin at `begin`."""

    frames: FrameTable
    sequence: Place
    through: int
    begin: int
    row_count: int


class Retention(Part):
    """Removes old frames from all sequences of a store that the calling thread owns, again and again.

    `find_needed` gives by device and stream the first tick that releases need, whatever its age. Nothing is removed
    while `may_forget` returns false. The loop's counters count `frames_removed`: a chunk counts once, and so does the
    cut-off part of a chunk.
    """

    def __init__(
        self,
        loop: Loop,
        settings: GatewayConfig,
        recorder: Recorder,
        find_needed: Callable[[], dict[tuple[str, str], int]],
        may_forget: Callable[[], bool] = lambda: True,
    ) -> None:
        super().__init__(loop)
        keep, self._lag = settings.keep, settings.lag
        self._ages = {SYMBOLS: keep.symbols, _POINTS: keep.points, _WINDOWS: keep.windows}
        self._recorder = recorder
        self._find_needed, self._may_forget = find_needed, may_forget
        self._needed: dict[tuple[str, str], int] = {}
        self._after = 0
        self._newest_us: int | None = None
        self._seen_us: int | None = None

    def pump(self, *, idle: bool = False) -> None:
        """Remove some frames. Raises DatabaseError, after which a later call tries again."""
        if not self._may_forget():
            return
        aged = self._store.aged
        if not (sequences := aged.sequences(self._after, _MOST_SEQUENCES)):
            self._newest_us, self._seen_us = self._seen_us, None
            self._after, self.due = 0, self._seconds() + _REST_SECONDS
            return
        if self._after == 0:
            self._needed = self._find_needed()
        removals, rows_free, after_number = [], _MOST_ROWS, self._after
        for sequence in sequences:
            if (removal := self._find_removal(self._frames_of(sequence), sequence, rows_free)) is not None:
                removals.append(removal)
                rows_free -= removal.row_count
            if rows_free == 0:  # there may be more of it
                break
            after_number = sequence.number
        self._remove(removals)
        self._after = after_number

    def _remove(self, removals: list[_Removal]) -> None:
        if not removals:
            return
        with self._store.transaction():
            for frames, sequence, through, begin, _ in removals:
                self._store.aged.remove(frames, sequence.number, through, begin)
        for _, sequence, _, begin, row_count in removals:
            self._recorder.note_removed(sequence.device, sequence.name, begin)
            self._counters["frames_removed"] += row_count

    def _frames_of(self, sequence: Place) -> FrameTable:
        if sequence.window_name:
            return _WINDOWS
        return _POINTS if self._catalogue.is_measured(*sequence.device_and_stream) else SYMBOLS

    def _find_removal(self, frames: FrameTable, sequence: Place, max_rows: int) -> _Removal | None:
        """Return the removal of up to `max_rows` old frames of a sequence; `None` without old frames.

        Without old frames of symbols, also trim the first chunk.
        """
        aged, sequence_number = self._store.aged, sequence.number
        if (newest_frame := aged.newest(frames, sequence_number)) is not None:
            self._seen_us = max(self._end_us(sequence, newest_frame), self._seen_us or 0)
        if self._newest_us is None or not max_rows:
            return None
        before_us = min(self._newest_us, self._now_us()) - self._ages[frames] * _HOUR_US
        is_removable = partial(self._is_removable, sequence, before_us)
        if not any(is_removable(frame) for frame in aged.oldest(frames, sequence_number, 1)):
            if frames is SYMBOLS:
                self._trim(sequence, partial(self._is_removable, sequence, before_us - _HOUR_US))
            return None
        first_needed = aged.needed_key(frames, sequence_number, self._lag) if frames is _POINTS else None
        oldest_frames = takewhile(is_removable, aged.oldest(frames, sequence_number, max_rows))
        removable_frames = [frame for frame in oldest_frames if first_needed is None or frame.key < first_needed]
        if not removable_frames:
            return None
        last_removed = removable_frames[-1]
        begin = last_removed.key + 1 if frames is _WINDOWS else last_removed.last + 1
        return _Removal(frames, sequence, last_removed.key, begin, len(removable_frames))

    def _is_removable(self, sequence: Place, before_us: int, frame: AgedFrame) -> bool:
        """Return whether a frame ended by the Unix time `before_us`, and no release needs the frame."""
        needed_tick = self._needed.get(sequence.device_and_stream, math.inf)
        return self._end_us(sequence, frame) <= before_us and self._wall_tick(sequence, frame) < needed_tick

    def _trim(self, sequence: Place, is_removable: Callable[[AgedFrame], bool]) -> None:
        """Cut off the removable symbols at the start of a stream's first chunk, if there are any."""
        chunk = next(self._store.symbols.chunks(sequence.number, -1), None)
        if chunk is None:
            return

        def must_stay(version: int, tick: int) -> bool:
            return not is_removable(AgedFrame(tick, tick, version))

        for version, _, run_offset, ticks, _ in chunk.runs:
            run_ticks = range(chunk.first + run_offset, chunk.first + run_offset + ticks)
            if (removable_count := bisect_left(run_ticks, True, key=partial(must_stay, version))) < ticks:
                first_tick = run_ticks[removable_count]
                break
        else:
            return
        if first_tick == chunk.first:
            return
        remainder = self._recorder.symbols.past.chunk_from(sequence, chunk, first_tick)
        with self._store.transaction():
            self._store.aged.trim(chunk, remainder)
        self._recorder.note_removed(sequence.device, sequence.name, remainder.first)
        self._counters["frames_removed"] += 1

    def _end_us(self, sequence: Place, frame: AgedFrame) -> int:
        """Return the end of a frame's last tick, in microseconds of Unix time."""
        clock = self._catalogue.policy(*sequence.device_and_stream, frame.version).clock
        return clock.epoch_us + (self._wall_tick(sequence, frame) + 1) * clock.period_us

    def _wall_tick(self, sequence: Place, frame: AgedFrame) -> int:
        """Return the wall tick of a frame's last tick."""
        return frame.last - self._recorder.coverage_of(sequence.device, sequence.name)[1].at(frame.key)


def forget_device(location: Location, device: str, ledger: Location | None = None) -> ForgottenCounts:
    """Erase a device's frames and reports, and all that follows from these, and rewrite the store.

    Args:
        location: the store, whose gateway must not be running; shards that run end.
        ledger: the ledger of its releases; `None` for the one beside the store.

    Raises:
        StoreError: one line that says what is wrong; the call may be repeated, also after success.
        LedgerError: the ledger that the store's releases were charged to is missing, or another one was named.
    """
    from gateway.releases.ledger import Ledger

    ledger = _charged_ledger(location, ledger)
    with closing(Store(location, create=False, lease=Lease())) as store, _erasing(device, f"store {location.name}"):
        with store.new_generation():
            forgotten = store.aged.forget(device)
        store.sums.forget(device)
        if forgotten is None:
            raise StoreError(f"store {location.name} has nothing of a device {device}")
        store.rewrite()
    if ledger is not None:
        with closing(Ledger(ledger, create=False)) as open_ledger, _erasing(device, f"ledger {ledger.name}"):
            open_ledger.forget(device, time_us=time_us())
    return forgotten


@contextmanager
def _erasing(device: str, place_name: str) -> Iterator[None]:
    """Turn a DatabaseError within the context into a StoreError that names the device and the place."""
    try:
        yield
    except DatabaseError as error:
        raise StoreError(f"cannot erase all of {device} from the {place_name}: {error}; do it again") from None


def _charged_ledger(store: Location, ledger: Location | None) -> Location | None:
    """Return the ledger that the store's releases were charged to, `None` without releases."""
    from gateway.releases.ledger import Ledger
    from gateway.releases.tables import KIND

    with closing(Store(store, create=False)) as open_store:
        identity = open_store.releases.ledger_record().ledger
    if not identity:
        return None
    location = ledger or ledger_beside(store)
    if is_there(location, KIND):
        with closing(Ledger(location, create=False)) as open_ledger:
            if open_ledger.binding.identity == identity:
                return location
    raise LedgerError(
        f"{location.name} is not the ledger that releases of {store.name} were charged to: name that one with --ledger"
    )
