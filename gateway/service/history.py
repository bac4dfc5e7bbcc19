"""Estimates from a store, for whoever did not hear them when they were published."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from itertools import islice
from pathlib import Path

from contract.frames import MAX_FRAME_TICKS, MAX_TICK, SymbolFrame
from contract.measure_frames import MeasureFrame
from gateway.service.kinds.counted_estimates import MOST_TICKS
from gateway.service.policies import Catalogue
from gateway.service.recorder import Recorder
from gateway.service.store import Outgoing, Store, StoreError
from mqtt_link.estimate_frames import MeasureEstimateReading, TickEstimateReading, estimate_readings

__all__ = ["estimates_between"]

_BATCH = 256
_Reading = TickEstimateReading | MeasureEstimateReading
_Found = dict[tuple[int, int], _Reading]


def estimates_between(
    path: Path, device: str, stream: str, first: int = 0, last: int | None = None, lag: int = 8
) -> Iterator[_Reading]:
    """The estimates of a stream's ticks first..last, in tick order, as they would be published now.

    Args:
        path: of the store; its gateway may be running.
        last: the newest if not given.
        lag: ticks of later points that estimates of points and windows see; those of symbols are as they were made.

    Raises:
        StoreError: there is no such store, or it has nothing of the stream.
    """
    last = MAX_TICK if last is None else last
    if not path.is_file():
        raise StoreError(f"there is no store {path.name}")
    with closing(Store(path)) as store:
        catalogue = Catalogue("")
        catalogue.retire(store.policy_documents())
        number = store.stream_id(device, stream)
        if number is None:
            raise StoreError(f"store {path.name} has nothing of {device}/{stream}")
        recorder = Recorder(store, catalogue, lag, Counter())
        of = Outgoing(0, number, device, stream, "", 0)
        alone, counted = _Found(), _Found()
        through = first - MAX_FRAME_TICKS - 1
        frames = _frames(store, catalogue, of, first - MAX_FRAME_TICKS)
        while batch := list(islice(frames, _BATCH)):
            for frame in batch:
                alone.update(_readings(recorder, of._replace(frame=frame.first), first, last))
            for window in _windows(store, catalogue, of, through - MOST_TICKS, batch[-1].last):
                counted.update(_readings(recorder, window, first, last))
            through = batch[-1].last
            yield from _told(alone, counted, batch[-1].first - 2 * MAX_FRAME_TICKS)
            if batch[-1].first > last + 2 * MAX_FRAME_TICKS:
                break
        yield from _told(alone, counted, last)


def _told(alone: _Found, counted: _Found, last: int) -> Iterator[_Reading]:
    """Hand out, and remove, what is known of ticks up to one; what has seen a count, where there is any."""
    both = alone | counted
    for key in sorted(key for key in both if key[0] <= last):
        alone.pop(key, None)
        counted.pop(key, None)
        yield both[key]


def _frames(store: Store, catalogue: Catalogue, of: Outgoing, first: int) -> Iterator[SymbolFrame | MeasureFrame]:
    """A stream's frames from a tick on."""
    measured = catalogue.is_measured(of.device, of.stream)
    following = (store.points if measured else store.symbols).following(of.stream_id, max(0, first))
    return (one[0] for one in following)


def _windows(store: Store, catalogue: Catalogue, of: Outgoing, first: int, last: int) -> Iterator[Outgoing]:
    """The windows of a stream that lie in the ticks first..last."""
    for name in catalogue.sequences(of.device, of.stream):
        number, window = store.stream_id(of.device, name), name.partition("/")[2]
        if window and number is not None:
            for frame in store.windows.within(number, first, last):
                yield of._replace(stream_id=number, window=window, frame=frame.index)


def _readings(recorder: Recorder, of: Outgoing, first: int, last: int) -> _Found:
    """What a frame determines of the ticks first..last, by tick and lag."""
    found: _Found = {}
    for payload in recorder.estimates(of):
        for reading in estimate_readings(of.device, of.stream, payload):
            if first <= reading.tick <= last:
                found[reading.tick, reading.lag if isinstance(reading, MeasureEstimateReading) else 0] = reading
    return found
