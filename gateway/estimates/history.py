"""Estimates from a store, for whoever did not hear them when they were published.

They are of ticks from their symbols and one noisy count that the device made of them, together and exactly. Of a
policy's windows one is used: the one with the least noise of those that lie side by side, have at most 300 ticks, and
count one set of states (or each of two). It is used if the device has counted every tick of it and all of their symbols
are here. Beside the count an estimate sees every symbol before, and those up to `lag` ticks after the window's end.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from fugu.chains.arrays import Floats
from fugu.chains.counting import count_marginals
from fugu.contract.frames import MAX_TICK, WindowFrame
from fugu.contract.measure_frames import MAX_MEASURE_TICKS
from fugu.contract.policy import Policy
from fugu.contract.windows import Window
from gateway.estimates.beliefs import told
from gateway.estimates.catalogue import Catalogue
from gateway.estimates.counts_and_points import Points
from gateway.estimates.models import SymbolModel
from gateway.estimates.past import Past, TickProbabilities
from gateway.location import Location
from gateway.store.coverage import Place
from gateway.store.store import Store, StoreError

__all__ = ["Row", "StateRow", "ValueRow", "estimates_between"]


MOST_TICKS = 300


def estimated_window(policy: Policy) -> Window | None:
    """The window of a policy that estimates use beside the symbols, if there is one."""
    labels = policy.discretiser.states
    fit = [
        window
        for window in policy.windows
        if window.query.additive
        and window.stride == window.length <= MOST_TICKS
        and (not window.query.each or len(labels) == 2)
    ]
    best = min(fit, key=lambda window: (Fraction(window.scale), window.length), default=None)
    return None if policy.table is None else best


class CountedEstimates:
    """Estimates from windows and symbols in the store together; estimates see `lag` ticks of later symbols."""

    def __init__(self, store: Store, catalogue: Catalogue, lag: int) -> None:
        self._store = store
        self._catalogue = catalogue
        self._lag = lag
        self._past = Past(store, catalogue, lag)

    def run(self, place: Place, index: int) -> TickProbabilities | None:
        """The probabilities of the ticks of a window; none if it is not used, or not all of it is here."""
        frame = self._store.windows.at(place.number, index)
        if frame is None or frame.observed < frame.length:
            return None
        known = self._catalogue.recall(place.device, place.stream, frame.policy_version, SymbolModel)
        window, length = estimated_window(known.policy), frame.length
        if window is None or window.name != frame.window:
            return None
        number, end = self._store.stream_id(place.device, place.stream), frame.first + length - 1 + self._lag
        found = [] if number is None else self._store.symbols.holding(number, frame.first, end)
        same = [one for one in found if (one.policy_version, one.shift) == (frame.policy_version, frame.shift)]
        if number is None or not same or found[-1].last < end:
            return None
        symbols = np.full(length + self._lag, -1, dtype=np.int64)
        for one in same:
            low = one.first - frame.first
            symbols[low : low + len(one.symbols)] = np.frombuffer(one.symbols, dtype=np.uint8)
        if (symbols[:length] < 0).any():
            return None
        distribution = self._past.distribution_at(place._replace(number=number), same[0])
        within = np.where(np.arange(len(symbols)) < length, 0, -1)
        labels, model = known.policy.discretiser.states, known.numbers
        adds = np.zeros((len(symbols), len(labels)), dtype=np.int64)
        adds[:, window.groups(labels)[-1]] = 1
        if model.shown is not None:
            adds = adds @ model.shown.T.astype(np.int64)
        given = symbols, distribution, model.transition, model.emission, within, adds, _likelihood(frame, window)
        try:
            probabilities = told(model, count_marginals(*given))[:length]
        except ValueError:  # a count that its symbols all but exclude, beyond what floating point holds
            return None
        return TickProbabilities(frame.policy_version, frame.first, frame.shift, probabilities)


def _likelihood(frame: WindowFrame, window: Window) -> Floats:
    """Pr(what was released | count), up to a factor, (1, length + 1): of the last state of two, of two counts."""
    counts = np.arange(frame.length + 1)
    distance = np.abs(frame.counts[-1] - counts)
    if window.query.each:
        distance = distance + np.abs(frame.counts[0] - (frame.length - counts))
    return np.asarray(np.exp(-(distance - distance.min()) / float(Fraction(window.scale)))[np.newaxis])


class StateRow(NamedTuple):
    """Estimate of one tick of a stream of states; it happened at wall tick tick - shift."""

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
        protection: the least number of possible states that any one is hidden among; 0 if nothing was released.
        lag: ticks of later points that it has seen; each tick is told with and without.
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
_CountedRows = dict[tuple[int, int], Row]


def estimates_between(
    location: Location, device: str, stream: str, first: int = 0, last: int | None = None, lag: int = 8
) -> Iterator[Row]:
    """The estimates of a stream's ticks first..last, or to the newest, in tick order; its gateway may be running.

    Estimates see symbols or points of `lag` later ticks. Raises StoreError for no store, or nothing of the stream.
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
    points, found = Points(store, catalogue, lag), _CountedRows()
    for frame, _ in store.points.following(of.number, max(0, first - MAX_MEASURE_TICKS)):
        if frame.first > last + lag:
            break
        now = points.estimate(of, frame.first)
        for some in (*points.lagged(of, frame.first), *([] if now is None else [now])):
            columns = zip(some.means, some.covariances, some.protection, strict=True)
            for tick, row in enumerate(columns, some.first):
                if first <= tick <= last:
                    found[tick, some.lag] = ValueRow(of.device, of.stream, tick, *row, some.lag, some.shift)
        yield from _told(found, _CountedRows(), frame.first - lag - 1)
    yield from _told(found, _CountedRows(), last)


def _states(store: Store, catalogue: Catalogue, of: Place, first: int, last: int, lag: int) -> Iterator[Row]:
    past, counts = Past(store, catalogue, lag), CountedEstimates(store, catalogue, lag)
    alone, counted, through = _CountedRows(), _CountedRows(), first - 1
    for run in past.estimates(of, first, last):
        alone.update(_rows(of, run, first, last))
        end = run.first + len(run.probabilities) - 1
        for window, index in _windows(store, catalogue, of, through - MOST_TICKS, end):
            if (together := counts.run(window, index)) is not None:
                counted.update(_rows(of, together, first, last))
        through = end
        yield from _told(alone, counted, run.first - MOST_TICKS - 1)
    yield from _told(alone, counted, last)


def _told(alone: _CountedRows, counted: _CountedRows, last: int) -> Iterator[Row]:
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


def _rows(of: Place, run: TickProbabilities, first: int, last: int) -> _CountedRows:
    """The ticks first..last of a run; where the oldest shifts have been forgotten, numbers are ahead by no more."""
    shift = min(run.shift, run.first)
    rows = enumerate(run.probabilities, run.first)
    return {
        (tick, 0): StateRow(of.device, of.stream, tick, tuple(row.tolist()), int(row.argmax()), shift)
        for tick, row in rows
        if first <= tick <= last
    }
