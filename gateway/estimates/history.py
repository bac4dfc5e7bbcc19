"""Estimates from a store, for a reader who missed their publication."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import NamedTuple

from fugu.contract.frames import MAX_TICK
from fugu.contract.measure_frames import MAX_MEASURE_TICKS
from gateway.estimates.catalogue import Catalogue
from gateway.estimates.past import Past
from gateway.estimates.points import Points
from gateway.store.coverage import Place
from gateway.store.location import Location
from gateway.store.store import Store, StoreError

__all__ = ["Row", "StateRow", "ValueRow", "estimates_between"]


class StateRow(NamedTuple):
    """Estimate of one tick of a stream of states, at the wall clock's tick `tick - shift`."""

    device: str
    stream: str
    tick: int
    probabilities: tuple[float, ...]
    most_likely: int
    shift: int


class ValueRow(NamedTuple):
    """Estimate of a measurement at one tick; `mean` is in the policy's unit.

    Attributes:
        covariance: the entries on and above the diagonal, row by row.
        protection: the least number of states among which a possible state is hidden; 0 if nothing was released.
        lag: ticks of later points that the estimate sees; a tick has one estimate with them and one without.
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


def estimates_between(
    location: Location, device: str, stream: str, first: int = 0, last: int | None = None, lag: int = 8
) -> Iterator[Row]:
    """Yield the estimates of a stream's ticks first..last, or up to the newest, in tick order.

    The gateway may be running. Estimates see the symbols or points of `lag` later ticks. Raises StoreError for no
    store, or if it has nothing of the stream.
    """
    last = MAX_TICK if last is None else last
    with closing(Store(location, create=False)) as store, store.snapshot():
        catalogue = Catalogue("")
        catalogue.retire(store.policy_documents())
        stream_number = store.stream_id(device, stream)
        if stream_number is None:
            raise StoreError(f"store {location.name} has nothing of {device}/{stream}")
        place = Place(stream_number, device, stream)
        read_rows = _value_rows if catalogue.is_measured(device, stream) else _state_rows
        yield from read_rows(store, catalogue, place, first, last, lag)


def _value_rows(store: Store, catalogue: Catalogue, place: Place, first: int, last: int, lag: int) -> Iterator[Row]:
    points, value_rows = Points(store, catalogue, lag), dict[tuple[int, int], Row]()
    for frame, _ in store.points.following(place.number, max(0, first - MAX_MEASURE_TICKS)):
        for run in (points.estimate(place, frame), *points.lagged_estimates(place, frame)):
            moments_by_tick = zip(run.means, run.covariances, run.protection, strict=True)
            for tick, moments in enumerate(moments_by_tick, run.first):
                if first <= tick <= last:
                    value_rows[tick, run.lag] = ValueRow(place.device, place.stream, tick, *moments, run.lag, run.shift)
        for key in sorted(key for key in value_rows if key[0] < frame.first - lag):  # later frames do not change them
            yield value_rows.pop(key)
        if frame.last >= last + lag:
            break
    yield from (value_rows[key] for key in sorted(value_rows))


def _state_rows(store: Store, catalogue: Catalogue, place: Place, first: int, last: int, lag: int) -> Iterator[Row]:
    for run in Past(store, catalogue, lag).estimates(place, first, last):
        shift = min(run.shift, run.first)  # a shift whose start was forgotten is at most the tick
        for tick, belief in enumerate(run.probabilities, run.first):
            yield StateRow(*place.device_and_stream, tick, tuple(belief.tolist()), int(belief.argmax()), shift)
