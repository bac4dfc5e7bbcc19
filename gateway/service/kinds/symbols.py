"""Symbols: one of a table's for each tick, filtered by the stream's model as they come."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from contract.errors import FuguError, Reason
from contract.frames import SymbolFrame, decode_symbols
from contract.reports import Estimate
from gateway.chain.arrays import Floats
from gateway.service.kinds.kind import Kind, Place
from gateway.service.kinds.reporting import state_estimate
from gateway.service.kinds.symbol_model import Model, SymbolModel, prior, smoothed
from gateway.service.kinds.symbol_track import Track, Tracked, replay
from gateway.service.policies import Catalogue, WrongKindError
from gateway.service.store import Store

__all__ = ["Symbols"]


class SymbolRangeError(FuguError, reason=Reason.SYMBOL_OUT_OF_RANGE):
    """A symbol is not in the table of the policy that the frame names, or takes other bits than there."""


class Symbols(Kind[SymbolFrame]):
    """The kind of frames of symbols.

    Args:
        store: owned by the thread that calls.
        lag: ticks of later symbols that estimates see.
    """

    counter = ""

    def __init__(self, store: Store, catalogue: Catalogue, lag: int) -> None:
        self._store = store
        self._frames = store.symbols
        self._catalogue = catalogue
        self.lag = lag
        self._tracks: dict[tuple[str, str], Track] = {}

    decode = staticmethod(decode_symbols)

    @staticmethod
    def verify(catalogue: Catalogue, device: str, stream: str, frame: SymbolFrame) -> None:
        """Check that the symbols are those of the policy's table, in as many bits as they take there."""
        known = catalogue.find(device, stream, frame.policy_version, SymbolModel)
        if not known.allowed:
            raise WrongKindError(f"{device}/{stream} has windows only under policy version {frame.policy_version}")
        if frame.symbols.translate(None, delete=known.allowed):
            raise SymbolRangeError(f"symbol above {known.allowed[-1]}")
        if frame.bits != known.bits:
            raise SymbolRangeError(f"{frame.bits} bits a symbol, not {known.bits}")

    @staticmethod
    def same(stored: SymbolFrame, frame: SymbolFrame) -> bool:
        """Whether two frames say the same; neither how one was filled up nor what is before it matters."""
        return replace(stored, padding=0, previous=-1) == replace(frame, padding=0, previous=-1)

    def overlapping(self, place: Place, frame: SymbolFrame) -> SymbolFrame | None:
        """A stored frame that shares a tick with the given one."""
        return self._frames.overlapping(place.number, frame)

    def add(self, place: Place, frame: SymbolFrame, counted: Counter[str], *, late: bool) -> None:
        """Store a frame with its belief and estimates; those of a late one follow when it is replayed."""
        if late:
            self._frames.add(place.number, frame, None)
            counted["late"] += 1
            return
        update = self._track(place.device, place.stream).extend(frame)
        self._frames.add(place.number, frame, update.belief)
        self._frames.put_estimates(place.number, update, self.lag)
        self._store.queue_estimates(place.number, frame.first)

    def revise(self, place: Place, late: Sequence[int]) -> None:
        """Bring beliefs and estimates to what they would be had the late frames come in time."""
        number, device, stream = place
        done_through = -1
        for first in late:
            if first <= done_through:
                continue
            track = self._track_before(device, stream, number, first)
            for update, changed in replay(track, self._frames.following(number, first)):
                if changed:
                    self._frames.set_belief(number, update.frame.first, update.belief)
                if self._frames.replace_estimates(number, update, self.lag) or changed:
                    self._store.queue_estimates(number, update.frame.first)
                done_through = update.frame.last
        self._tracks[device, stream] = self._track_before(device, stream, number)

    def forget(self, device: str, stream: str) -> None:
        """Read a stream from the store again: what is in memory may be ahead of it."""
        self._tracks.pop((device, stream), None)

    def newest(self, device: str, stream: str) -> Tracked | None:
        """The newest frame of a stream, and the belief at its end."""
        return self._track(device, stream).newest

    def report(self, place: Place, first: int) -> Estimate | None:
        """The states of the ticks of the frame that begins at a tick, given all symbols up to its end.

        Of its own ticks each sees `lag` later ones, as far as there are any: all that matters for its share.
        """
        found = self._frames.belief_at(place.number, first)
        if found is None or found.frame.first != first:
            return None
        frame = found.frame
        known = self._catalogue.recall(place.device, place.stream, frame.policy_version, SymbolModel)
        symbols = np.frombuffer(frame.symbols, dtype=np.uint8).astype(np.int64)
        law = self._law(place, frame, known.numbers)
        return state_estimate(known.policy, frame, smoothed(known.numbers, law, symbols, self.lag))

    def _law(self, place: Place, frame: SymbolFrame, model: Model) -> Floats:
        """The law of a frame's first tick, given all frames before it."""
        before = self._frames.belief_at(place.number, frame.first - 1)
        if before is None or before.frame.shift != frame.shift:
            return model.initial
        version = before.frame.policy_version
        other = self._catalogue.recall(place.device, place.stream, version, SymbolModel).numbers
        if other.meaning != model.meaning:
            return model.initial
        return prior(model, before.belief, frame.first - before.frame.last)

    def _track(self, device: str, stream: str) -> Track:
        if (track := self._tracks.get((device, stream))) is None:
            number = self._store.stream_id(device, stream)
            track = self._tracks[device, stream] = self._track_before(device, stream, number)
        return track

    def _track_before(self, device: str, stream: str, number: int | None, tick: int | None = None) -> Track:
        """The track of the frames before a tick, or of all."""

        def model(version: int) -> Model:
            return self._catalogue.recall(device, stream, version, SymbolModel).numbers

        return Track(self.lag, model, [] if number is None else self._frames.tail(number, self.lag, tick))
