"""Estimates of ticks from their symbols and one noisy count that the device made of them, together and exactly.

Of a policy's windows one is used: the one with the least noise of those that lie side by side, have at most 300 ticks,
and count one set of states (or each of two). It is used if the device has counted every tick of it and all of their
symbols are here; nothing else is combined. Beside the count an estimate sees every symbol before, as those from symbols
alone do, and those up to `lag` ticks after the window's end.
"""

from __future__ import annotations

from fractions import Fraction
from typing import NamedTuple

import numpy as np

from fugu.chains.arrays import Floats
from fugu.chains.counting import count_marginals
from fugu.contract.frames import WindowFrame
from fugu.contract.policy import Policy
from fugu.contract.windows import Window
from gateway.service.kinds.kind import Place
from gateway.service.kinds.symbol_model import SymbolModel, told
from gateway.service.policies import Catalogue
from gateway.service.store import Store
from gateway.service.symbols.past import Past, TickProbabilities

__all__ = ["MOST_TICKS", "CountedEstimates"]

MOST_TICKS = 300


def estimated_window(policy: Policy) -> Window | None:
    """The window of a policy that estimates use beside the symbols, if there is one."""
    labels = policy.discretiser.states
    fit = [
        window
        for window in policy.windows
        if window.query.adds_up
        and window.stride == window.length <= MOST_TICKS
        and (not window.query.each or len(labels) == 2)
    ]
    best = min(fit, key=lambda window: (Fraction(window.scale), window.length), default=None)
    return None if policy.table is None else best


class _Found(NamedTuple):
    """A window's frame, its definition and model, and the symbols around it."""

    frame: WindowFrame
    window: Window
    known: SymbolModel
    laid: _Laid


class _Laid(NamedTuple):
    """Ticks from `first` on: symbols (n,) of one model, -1 for none, and the distribution (k,) of the first."""

    first: int
    symbols: np.ndarray[tuple[int], np.dtype[np.int64]]
    distribution: Floats


class CountedEstimates:
    """What windows and symbols in the store tell together.

    Args:
        store: owned by the thread that calls.
        lag: ticks of later symbols that estimates see.
    """

    def __init__(self, store: Store, catalogue: Catalogue, lag: int) -> None:
        self._store = store
        self._catalogue = catalogue
        self._lag = lag
        self._past = Past(store, catalogue, lag)

    def run(self, place: Place, index: int) -> TickProbabilities | None:
        """The probabilities of the ticks of a window; none if it is not used, or not all of it is here."""
        if (found := self._found(place, index)) is None:
            return None
        frame, window, known, laid = found
        offset, ticks = frame.first - laid.first, len(laid.symbols)
        within = np.full(ticks, -1, dtype=np.int64)
        within[offset : offset + frame.length] = 0
        labels = known.policy.discretiser.states
        adds = np.zeros((ticks, len(labels)), dtype=np.int64)
        adds[:, window.groups(labels)[-1]] = 1
        model = known.numbers
        if model.shown is not None:
            adds = adds @ model.shown.T.astype(np.int64)
        try:
            marginals = count_marginals(
                laid.symbols,
                laid.distribution,
                model.transition,
                model.emission,
                within,
                adds,
                _likelihood(frame, window),
            )
        except ValueError:  # a count that its symbols all but exclude, beyond what floating point holds
            return None
        probabilities = told(model, marginals)[offset : offset + frame.length]
        return TickProbabilities(frame.policy_version, frame.first, frame.shift, probabilities)

    def _found(self, place: Place, index: int) -> _Found | None:
        frame = self._store.windows.at(place.number, index)
        if frame is None or frame.observed < frame.length:
            return None
        known = self._catalogue.recall(place.device, place.stream, frame.policy_version, SymbolModel)
        window = estimated_window(known.policy)
        laid = self._laid(place, frame, known) if window is not None and window.name == frame.window else None
        return None if laid is None or window is None else _Found(frame, window, known, laid)

    def _laid(self, place: Place, frame: WindowFrame, known: SymbolModel) -> _Laid | None:
        """The symbols of a window and of the `lag` ticks after it."""
        number = self._store.stream_id(place.device, place.stream)
        first, last, end = frame.first, frame.first + frame.length - 1, frame.first + frame.length - 1 + self._lag
        found = [] if number is None else self._store.symbols.holding(number, first, end)
        same = [one for one in found if (one.policy_version, one.shift) == (frame.policy_version, frame.shift)]
        if number is None or not same or found[-1].last < end:
            return None
        symbols = np.full(end - first + 1, -1, dtype=np.int64)
        for one in same:
            symbols[one.first - first : one.last - first + 1] = np.frombuffer(one.symbols, dtype=np.uint8)
        if (symbols[: last - first + 1] < 0).any():
            return None
        return _Laid(first, symbols, self._past.distribution_at(place._replace(number=number), same[0]))


def _likelihood(frame: WindowFrame, window: Window) -> Floats:
    """Pr(what was released | count), up to a factor, (1, length + 1): of the last state of two, of two counts."""
    counts = np.arange(frame.length + 1)
    distance = np.abs(frame.counts[-1] - counts)
    if window.query.each:
        distance = distance + np.abs(frame.counts[0] - (frame.length - counts))
    return np.asarray(np.exp(-(distance - distance.min()) / float(Fraction(window.scale)))[np.newaxis])
