"""Counts of windows, and points: taken, and told of.

A frame of points is reported by what is known of its newest tick. It determines two sets of estimates: those of its own
ticks given all points up to each, and those of the ticks t whose t + lag lies in (end of the frame before, its own
end], given all points up to t + lag. Ticks of another policy version are not looked ahead to.

Counted beside what is counted for every kind: `fallback_ticks`, `exposed_ticks` (ticks at which some possible state was
hidden among no other), `unknown_points` (of tables that this store has lost, or that a table does not have; their ticks
are unobserved).

Of two noisy counts of one window the first is kept, and what the second would tell beside it is not.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from fugu.chains.arrays import Floats
from fugu.contract.errors import Reason, RefusedError
from fugu.contract.frames import WindowFrame, sequence_name
from fugu.contract.measure_frames import MeasureFrame, Released
from fugu.contract.reports import Estimate, WindowCount
from gateway.estimates.catalogue import Catalogue
from gateway.estimates.kind import Kind
from gateway.estimates.models import MeasureModel, PointEstimates, SymbolModel, Tables
from gateway.estimates.reporting import measured_estimate, window_count
from gateway.store.coverage import FrameSpan, Place
from gateway.store.points import Measured
from gateway.store.store import Store

__all__ = ["Points", "Windows"]


class Windows(Kind[WindowFrame]):
    """The kind of frames of window counts; each window's are a sequence of their own."""

    counter = "windows_"

    def __init__(self, store: Store, catalogue: Catalogue) -> None:
        self._store = store
        self._frames = store.windows
        self._catalogue = catalogue

    decode = staticmethod(WindowFrame.decode)

    @staticmethod
    def verify(catalogue: Catalogue, device: str, stream: str, frame: WindowFrame) -> None:
        """Check that the policy has this window, with these ticks and so many counts."""
        policy = catalogue.find(device, stream, frame.policy_version, SymbolModel).policy
        if (window := policy.window(frame.window)) is None:
            raise RefusedError(f"policy version {policy.version} has no window {frame.window}", Reason.UNKNOWN_WINDOW)
        if not window.covers(frame.index, frame.first, frame.length):
            raise RefusedError(
                f"window {frame.index} of {frame.window} has other ticks than its policy says", Reason.WINDOW_MISMATCH
            )
        if len(frame.counts) != len(window.groups(policy.discretiser.states)):
            raise RefusedError(f"{len(frame.counts)} counts in window {frame.window}", Reason.WINDOW_MISMATCH)

    @staticmethod
    def sequence(stream: str, frame: WindowFrame) -> str:
        """The window's own."""
        return sequence_name(stream, frame.window)

    @staticmethod
    def span(frame: WindowFrame) -> FrameSpan:
        """The window's index."""
        return FrameSpan(frame.previous, frame.index, frame.index)

    @staticmethod
    def same(stored: WindowFrame, frame: WindowFrame) -> bool:
        """True if two frames say the same; what is before one does not matter."""
        return replace(stored, previous=-1) == replace(frame, previous=-1)

    def overlapping(self, place: Place, frame: WindowFrame) -> WindowFrame | None:
        """The stored frame of the same window."""
        return self._frames.at(place.number, frame.index)

    def add(self, place: Place, frame: WindowFrame, _counted: Counter[str], *, late: bool) -> None:
        """Store a frame, and queue its report."""
        del late  # nothing depends on the order of windows
        self._frames.add(place.number, frame)
        self._store.queue_estimates(place.number, frame.index)

    def report(self, place: Place, first: int) -> WindowCount | None:
        """The counts of the window of an index."""
        if (frame := self._frames.at(place.number, first)) is None:
            return None
        known = self._catalogue.recall(place.device, place.stream, frame.policy_version, SymbolModel)
        return window_count(known.policy, frame)


_log = logging.getLogger(__name__)


class Points(Kind[MeasureFrame]):
    """The kind of frames of points; estimates see `lag` ticks of later points."""

    counter = ""

    def __init__(self, store: Store, catalogue: Catalogue, lag: int) -> None:
        self._store = store
        self._catalogue = catalogue
        self._frames = store.points
        self._lag = lag

    decode = staticmethod(MeasureFrame.decode)

    @staticmethod
    def verify(catalogue: Catalogue, device: str, stream: str, frame: MeasureFrame) -> None:
        """Check that the points have the policy's dimensions."""
        model = catalogue.find(device, stream, frame.policy_version, MeasureModel)
        if frame.dimensions != len(model.policy.resolution):
            raise RefusedError(f"points of {frame.dimensions} dimensions", Reason.POINT_MISMATCH)

    @staticmethod
    def same(stored: MeasureFrame, frame: MeasureFrame) -> bool:
        """True if two frames say the same; neither how one was filled up nor what is before it matters."""
        return replace(stored, padding=0, previous=-1) == replace(frame, padding=0, previous=-1)

    def overlapping(self, place: Place, frame: MeasureFrame) -> MeasureFrame | None:
        """A stored frame that shares a tick with the given one."""
        return self._frames.overlapping(place.number, frame)

    def add(self, place: Place, frame: MeasureFrame, counted: Counter[str], *, late: bool) -> None:
        """Store a frame with its belief; that of a late one is brought up to date when it is replayed."""
        self._frames.add(place.number, frame, self._belief(place, frame))
        if late:
            counted["late"] += 1
        else:
            self._store.queue_estimates(place.number, frame.first)
        self._count(place, frame, counted)

    def revise(self, place: Place, late: Sequence[int]) -> None:
        """Bring beliefs and estimates to what they would be had the late frames come in time."""
        waiting, changed_through = set(late), -1
        for measured in self._frames.following(place.number, min(late)):
            frame = measured.frame
            if not waiting and self._rests_on(place, frame) > changed_through:
                return
            belief = self._belief(place, frame)
            if frame.first in waiting or belief.tobytes() != measured.belief.tobytes():
                self._frames.set_belief(place.number, frame.first, belief)
                changed_through = frame.last
            waiting.discard(frame.first)
            self._store.queue_estimates(place.number, frame.first)

    def _rests_on(self, place: Place, frame: MeasureFrame) -> int:
        """The tick of the belief that a frame's messages begin from; -1 for those of a stream's beginning."""
        before = self._frames.before(place.number, frame.first)
        low = frame.first if before is None else before.frame.last - self._lag + 1
        first = min((one.first for one in self._frames.holding(place.number, low, frame.first)), default=frame.first)
        begun = self._frames.before(place.number, first)
        return -1 if begun is None else begun.frame.last

    def newest(self, device: str, stream: str) -> Measured | None:
        """The newest frame of a stream, and the belief at its end."""
        number = self._store.stream_id(device, stream)
        return None if number is None else self._frames.newest(number)

    def report(self, place: Place, first: int) -> Estimate | None:
        """Report about the newest tick of a frame, and about earlier ones that have now seen `lag` ticks more."""
        if (found := self._frames.at(place.number, first)) is None:
            return None
        frame, model = found.frame, self._model(place, found.frame.policy_version)
        protection = model.degree(frame.released[-1].table, frame.last, self._tables(place, model))
        newest = frame.last, frame.shift, model.measured(found.belief), protection
        return measured_estimate(model, *newest, self.lagged(place, first))

    def estimate(self, place: Place, first: int) -> PointEstimates | None:
        """The estimates of the ticks of the frame that begins at a tick, given all points up to each."""
        if (found := self._frames.at(place.number, first)) is None:
            return None
        model = self._model(place, found.frame.policy_version)
        return model.estimate(self._distribution(place, found.frame), found.frame, self._tables(place, model))

    def lagged(self, place: Place, first: int) -> Iterator[PointEstimates]:
        """The estimates that see `lag` ticks more, for which the frame that begins at a tick brings the last point."""
        found = self._frames.at(place.number, first)
        if found is None or self._lag == 0:
            return
        before = self._frames.before(place.number, first)
        low = first if before is None else before.frame.last - self._lag + 1
        high = found.frame.last - self._lag
        for frame in self._frames.holding(place.number, low, high):
            model = self._model(place, frame.policy_version)
            ticks = slice(max(low - frame.first, 0), min(high, frame.last) - frame.first + 1)
            later: list[Released | None] = [None] * max(frame.first + ticks.stop - 1 + self._lag - frame.last, 0)
            for one in self._frames.holding(place.number, frame.last + 1, frame.last + len(later)):
                if (one.policy_version, one.shift) == (frame.policy_version, frame.shift):
                    some = one.released[: frame.last + len(later) - one.first + 1]
                    later[one.first - frame.last - 1 : one.first - frame.last - 1 + len(some)] = some
            distribution, tables = self._distribution(place, frame), self._tables(place, model)
            yield model.estimate(distribution, frame, tables, later, self._lag, ticks)

    def _tables(self, place: Place, model: MeasureModel) -> Tables:
        policy = model.policy
        return lambda table: policy.table(table) or self._frames.table(place.number, policy.version, table)

    def _count(self, place: Place, frame: MeasureFrame, counted: Counter[str]) -> None:
        model = self._model(place, frame.policy_version)
        tables = self._tables(place, model)
        exposed = []
        for tick, released in enumerate(frame.released, frame.first):
            counted["fallback_ticks"] += released.table == 0
            counted["unknown_points"] += not model.has_point(released, tables)
            if model.degree(released.table, tick, tables) == 1:
                exposed.append(tick)
        counted["exposed_ticks"] += len(exposed)
        if exposed:
            where = (place.device, place.stream, f"{len(exposed)} ticks from tick {exposed[0]} on")
            _log.warning("exposure: %s/%s: an adversary can know some state for certain at %s", *where)

    def _belief(self, place: Place, frame: MeasureFrame) -> Floats:
        model = self._model(place, frame.policy_version)
        given = self._distribution(place, frame), frame.first, frame.released, self._tables(place, model)
        belief: Floats = model.follow(*given).beliefs[-1].copy()
        return belief

    def _distribution(self, place: Place, frame: MeasureFrame) -> Floats:
        """The distribution of a frame's first tick, given all frames before it."""
        model = self._model(place, frame.policy_version)
        before = self._frames.before(place.number, frame.first)
        if (
            before is None
            or before.frame.shift != frame.shift
            or self._model(place, before.frame.policy_version).meaning != model.meaning
        ):
            return model.start(frame.first)
        return model.ahead(before.belief, before.frame.last, frame.first - before.frame.last)

    def _model(self, place: Place, version: int) -> MeasureModel:
        return self._catalogue.recall(place.device, place.stream, version, MeasureModel)
