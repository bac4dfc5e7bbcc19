"""Symbols: one of a table's for each tick, filtered by the stream's model as they come."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from contract.errors import FuguError, Reason
from contract.frames import MAX_FRAME_TICKS, Estimate, SymbolFrame, decode_symbols, encode_estimate
from gateway.service.kinds.counted_estimates import CountedEstimates
from gateway.service.kinds.kind import Kind, Place
from gateway.service.kinds.symbol_model import Model, SymbolModel, told
from gateway.service.kinds.symbol_track import Run, Track, Tracked, replay
from gateway.service.policies import Catalogue, WrongKindError
from gateway.service.store import Store

__all__ = ["Symbols", "estimate_messages"]

_MAX_ROWS = 2 * MAX_FRAME_TICKS
_MAX_VALUES = 1 << 16


class SymbolRangeError(FuguError, reason=Reason.SYMBOL_OUT_OF_RANGE):
    """A symbol is not in the table of the policy that the frame names, or takes other bits than there."""


class Symbols(Kind[SymbolFrame]):
    """The kind of frames of symbols.

    Args:
        store: owned by the thread that calls.
        lag: ticks of later symbols that estimates see.

    Attributes:
        counted: estimates that see a window as well.
    """

    counter = ""

    def __init__(self, store: Store, catalogue: Catalogue, lag: int) -> None:
        self._store = store
        self._frames = store.symbols
        self._catalogue = catalogue
        self.lag = lag
        self._tracks: dict[tuple[str, str], Track] = {}
        self.counted = CountedEstimates(store, catalogue, lag)

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
        self.counted.renew(place, frame)

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
                self.counted.renew(place, update.frame)
                done_through = update.frame.last
        self._tracks[device, stream] = self._track_before(device, stream, number)

    def forget(self, device: str, stream: str) -> None:
        """Read a stream from the store again: what is in memory may be ahead of it."""
        self._tracks.pop((device, stream), None)

    def newest(self, device: str, stream: str) -> Tracked | None:
        """The newest frame of a stream, and the belief at its end."""
        return self._track(device, stream).newest

    def estimates(self, place: Place, first: int) -> Iterator[bytes]:
        """The messages that tell what the frame that begins at a tick determines."""
        for lag, run in self._frames.estimates(place.number, first):
            yield from self.messages(place, lag, run)

    def messages(self, place: Place, lag: int, run: Run) -> Iterator[bytes]:
        """The messages that tell the probabilities of some ticks of a stream, and what is known of its newest one."""
        newest = self.newest(place.device, place.stream)
        number = self._store.stream_id(place.device, place.stream)
        assert newest is not None
        assert number is not None
        current = self._told(place, newest)
        if len(current.belief) != run.probabilities.shape[1]:  # from before a change of states
            at_end = self._frames.belief_at(number, run.first + max(len(run.probabilities), 1) - 1)
            current = self._told(place, at_end or newest)
        shift = min(self._store.shifts(number).at(run.first), run.first)  # where the oldest have been forgotten
        return map(encode_estimate, estimate_messages(lag, run, current, shift))

    def _told(self, place: Place, tracked: Tracked) -> Tracked:
        """A frame with the belief about the states of its stream."""
        version = tracked.frame.policy_version
        model = self._catalogue.recall(place.device, place.stream, version, SymbolModel).numbers
        return tracked._replace(belief=told(model, tracked.belief))

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


def estimate_messages(lag: int, run: Run, current: Tracked, shift: int = 0) -> Iterator[Estimate]:
    """A run as messages, each within the contract's limits; one without rows if the run has none."""
    rows, states = run.probabilities.shape
    size = min(_MAX_ROWS, max(_MAX_VALUES // states, 1))
    now = tuple(current.belief.tolist())
    for start in range(0, max(rows, 1), size):
        part = run.probabilities[start : start + size]
        likely = part.argmax(axis=1).astype(np.uint8).tobytes() if rows else b""
        newest = (current.frame.last, now, shift, current.frame.shift)
        yield Estimate(lag, run.first + start, tuple(map(tuple, part.tolist())), likely, *newest)
