"""Estimates from a store, for whoever did not hear them when they were published."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from itertools import islice
from typing import NamedTuple

from contract.frames import MAX_FRAME_TICKS, MAX_TICK, SymbolFrame
from contract.measure_frames import MeasureFrame
from gateway.service.kinds.counted_estimates import MOST_TICKS, CountedEstimates
from gateway.service.kinds.kind import Place
from gateway.service.kinds.symbol_track import Run
from gateway.service.policies import Catalogue
from gateway.service.recorder import Recorder
from gateway.service.store import Location, Store, StoreError

__all__ = ["Row", "StateRow", "ValueRow", "estimates_between"]

_BATCH = 256


class StateRow(NamedTuple):
    """What is known of one tick of a stream of states.

    Attributes:
        shift: by how many ticks the numbers are ahead of the wall clock: it happened at wall tick tick - shift.
    """

    device: str
    stream: str
    tick: int
    probabilities: tuple[float, ...]
    most_likely: int
    shift: int


class ValueRow(NamedTuple):
    """What is known of a measurement at one tick.

    Attributes:
        mean: d numbers, in the policy's unit.
        covariance: the entries on and above the diagonal of the covariance, row by row.
        protection: the least number of possible states that any one is hidden among; 0 if nothing was released.
        lag: ticks of later points that it has seen; each tick is told with and without.
        shift: as for states.
    """

    device: str
    stream: str
    tick: int
    mean: tuple[float, ...]
    covariance: tuple[float, ...]
    protection: int
    lag: int
    shift: int


Row = StateRow | ValueRow
_Found = dict[tuple[int, int], Row]


def estimates_between(
    location: Location, device: str, stream: str, first: int = 0, last: int | None = None, lag: int = 8
) -> Iterator[Row]:
    """The estimates of a stream's ticks first..last, in tick order.

    Args:
        location: of the store; its gateway may be running.
        last: the newest if not given.
        lag: ticks of later points that estimates of points and windows see; those of symbols are as they were made.

    Raises:
        StoreError: there is no such store, or it has nothing of the stream.
    """
    last = MAX_TICK if last is None else last
    with closing(Store(location, create=False)) as store:
        catalogue = Catalogue("")
        catalogue.retire(store.policy_documents())
        number = store.stream_id(device, stream)
        if number is None:
            raise StoreError(f"store {location.name} has nothing of {device}/{stream}")
        recorder = Recorder(store, catalogue, lag, Counter())
        of, counts = Place(number, device, stream), CountedEstimates(store, catalogue, lag)
        alone, counted = _Found(), _Found()
        through = first - MAX_FRAME_TICKS - 1
        frames = _frames(store, catalogue, of, first - MAX_FRAME_TICKS)
        while batch := list(islice(frames, _BATCH)):
            for frame in batch:
                alone.update(_rows(recorder, store, of, frame, first, last))
            for window, index in _windows(store, catalogue, of, through - MOST_TICKS, batch[-1].last):
                if (run := counts.run(window, index)) is not None:
                    counted.update(_state_rows(of, run, _shift(store, of, run), first, last))
            through = batch[-1].last
            yield from _told(alone, counted, batch[-1].first - 2 * MAX_FRAME_TICKS)
            if batch[-1].first > last + 2 * MAX_FRAME_TICKS:
                break
        yield from _told(alone, counted, last)


def _told(alone: _Found, counted: _Found, last: int) -> Iterator[Row]:
    """Hand out, and remove, what is known of ticks up to one; what has seen a count, where there is any."""
    both = alone | counted
    for key in sorted(key for key in both if key[0] <= last):
        alone.pop(key, None)
        counted.pop(key, None)
        yield both[key]


def _frames(store: Store, catalogue: Catalogue, of: Place, first: int) -> Iterator[SymbolFrame | MeasureFrame]:
    """A stream's frames from a tick on."""
    measured = catalogue.is_measured(of.device, of.stream)
    following = (store.points if measured else store.symbols).following(of.number, max(0, first))
    return (one[0] for one in following)


def _windows(store: Store, catalogue: Catalogue, of: Place, first: int, last: int) -> Iterator[tuple[Place, int]]:
    """The windows of a stream that lie in the ticks first..last: their sequences and indices."""
    for name in catalogue.sequences(of.device, of.stream):
        number, window = store.stream_id(of.device, name), name.partition("/")[2]
        if window and number is not None:
            for frame in store.windows.within(number, first, last):
                yield of._replace(number=number), frame.index


def _rows(
    recorder: Recorder, store: Store, of: Place, frame: SymbolFrame | MeasureFrame, first: int, last: int
) -> _Found:
    """What a frame determines of the ticks first..last, by tick and lag."""
    found: _Found = {}
    if isinstance(frame, SymbolFrame):
        for _, run in store.symbols.estimates(of.number, frame.first):
            found |= _state_rows(of, run, _shift(store, of, run), first, last)
        return found
    now = recorder.points.estimate(of, frame.first)
    for some in (*recorder.points.lagged(of, frame.first), *([] if now is None else [now])):
        columns = zip(some.means, some.covariances, some.protection, strict=True)
        for tick, row in enumerate(columns, some.first):
            if first <= tick <= last:
                found[tick, some.lag] = ValueRow(of.device, of.stream, tick, *row, some.lag, some.shift)
    return found


def _state_rows(of: Place, run: Run, shift: int, first: int, last: int) -> _Found:
    """The ticks first..last of a run."""
    rows = enumerate(run.probabilities, run.first)
    return {
        (tick, 0): StateRow(of.device, of.stream, tick, tuple(row.tolist()), int(row.argmax()), shift)
        for tick, row in rows
        if first <= tick <= last
    }


def _shift(store: Store, of: Place, run: Run) -> int:
    """By how many ticks the numbers of a run are ahead; where the oldest shifts have been forgotten, by no more."""
    return min(store.shifts(of.number).at(run.first), run.first)
