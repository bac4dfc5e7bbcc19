"""Estimates from a store, for whoever did not hear them when they were published."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import NamedTuple

from fugu.contract.frames import MAX_TICK
from fugu.contract.measure_frames import MAX_MEASURE_TICKS
from gateway.service.kinds.counted_estimates import MOST_TICKS, CountedEstimates
from gateway.service.kinds.kind import Place
from gateway.service.kinds.points import Points
from gateway.service.policies import Catalogue
from gateway.service.store import Location, Store, StoreError
from gateway.service.symbols.past import Past, TickProbabilities

__all__ = ["Row", "StateRow", "ValueRow", "estimates_between"]


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
        lag: ticks of later symbols or points that estimates see.

    Raises:
        StoreError: there is no such store, or it has nothing of the stream.
    """
    last = MAX_TICK if last is None else last
    with closing(Store(location, create=False)) as store, store.snapshot():
        catalogue = Catalogue("")
        catalogue.retire(store.policy_documents())
        number = store.stream_id(device, stream)
        if number is None:
            raise StoreError(f"store {location.name} has nothing of {device}/{stream}")
        of = Place(number, device, stream)
        told = _values if catalogue.is_measured(device, stream) else _states
        yield from told(store, catalogue, of, first, last, lag)


def _values(store: Store, catalogue: Catalogue, of: Place, first: int, last: int, lag: int) -> Iterator[Row]:
    points, found = Points(store, catalogue, lag), _Found()
    for frame, _ in store.points.following(of.number, max(0, first - MAX_MEASURE_TICKS)):
        if frame.first > last + lag:
            break
        now = points.estimate(of, frame.first)
        for some in (*points.lagged(of, frame.first), *([] if now is None else [now])):
            columns = zip(some.means, some.covariances, some.protection, strict=True)
            for tick, row in enumerate(columns, some.first):
                if first <= tick <= last:
                    found[tick, some.lag] = ValueRow(of.device, of.stream, tick, *row, some.lag, some.shift)
        yield from _told(found, _Found(), frame.first - lag - 1)
    yield from _told(found, _Found(), last)


def _states(store: Store, catalogue: Catalogue, of: Place, first: int, last: int, lag: int) -> Iterator[Row]:
    past, counts = Past(store, catalogue, lag), CountedEstimates(store, catalogue, lag)
    alone, counted, through = _Found(), _Found(), first - 1
    for run in past.estimates(of, first, last):
        alone.update(_rows(of, run, first, last))
        end = run.first + len(run.probabilities) - 1
        for window, index in _windows(store, catalogue, of, through - MOST_TICKS, end):
            if (together := counts.run(window, index)) is not None:
                counted.update(_rows(of, together, first, last))
        through = end
        yield from _told(alone, counted, run.first - MOST_TICKS - 1)
    yield from _told(alone, counted, last)


def _told(alone: _Found, counted: _Found, last: int) -> Iterator[Row]:
    """Hand out, and remove, what is known of ticks up to one; what has seen a count, where there is any."""
    both = alone | counted
    for key in sorted(key for key in both if key[0] <= last):
        alone.pop(key, None)
        counted.pop(key, None)
        yield both[key]


def _windows(store: Store, catalogue: Catalogue, of: Place, first: int, last: int) -> Iterator[tuple[Place, int]]:
    """The windows of a stream that lie in the ticks first..last: their sequences and indices."""
    for name in catalogue.sequences(of.device, of.stream):
        number, window = store.stream_id(of.device, name), name.partition("/")[2]
        if window and number is not None:
            for frame in store.windows.within(number, first, last):
                yield of._replace(number=number), frame.index


def _rows(of: Place, run: TickProbabilities, first: int, last: int) -> _Found:
    """The ticks first..last of a run; where the oldest shifts have been forgotten, numbers are ahead by no more."""
    shift = min(run.shift, run.first)
    rows = enumerate(run.probabilities, run.first)
    return {
        (tick, 0): StateRow(of.device, of.stream, tick, tuple(row.tolist()), int(row.argmax()), shift)
        for tick, row in rows
        if first <= tick <= last
    }
