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
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import count

import numpy as np

from fugu.chains.arrays import Floats
from fugu.contract.descriptions import PlaceGrid
from fugu.contract.errors import Reason, RefusedError
from fugu.contract.frames import WindowFrame, sequence_name
from fugu.contract.measure_frames import MeasureFrame, Released
from fugu.contract.policy import Policy, PolicyHeader
from fugu.contract.reports import (
    Estimate,
    PlaceEstimate,
    SmoothedPlace,
    SmoothedValue,
    ValueEstimate,
    WindowCount,
    ellipse,
)
from gateway.estimates.catalogue import Catalogue
from gateway.estimates.kind import Kind
from gateway.estimates.models import MeasureModel, PointEstimates, SymbolModel, Tables
from gateway.store.coverage import FrameSpan, Place
from gateway.store.journal import wall_time
from gateway.store.points import Measured
from gateway.store.store import Store

__all__ = ["Points", "Windows", "window_count"]


CONFIDENCE = 0.95
_Row = tuple[float, ...]
_DIGITS, _DEGREE_DIGITS, _METRE_DIGITS, _ANGLE_DIGITS = 6, 7, 1, 4


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


def measured_estimate(
    model: MeasureModel,
    tick: int,
    shift: int,
    distribution: Floats,
    protection: int,
    lagged: Iterable[PointEstimates] = (),
) -> PlaceEstimate | ValueEstimate:
    """The report of the newest tick of a frame of points: a place if the policy says where its states are.

    `distribution` (N,) is of the measured states, `protection` as `MeasureModel.degree`; `lagged` are the estimates of
    earlier ticks that the frame completes.
    """
    policy = model.policy
    values = model.values * np.array(policy.resolution)
    mean = distribution @ values
    time, promise = wall_time(policy.clock, tick - shift), policy.stream_loss
    told = (protection, promise.epsilon, promise.adversary)
    rows = [(some, *row) for some in lagged for row in zip(count(some.first), some.means, some.covariances)]
    if model.grid is not None:
        latitude, longitude = model.grid.located(float(mean[0]), float(mean[1]))
        accuracy = round(_accuracy(model.grid, latitude, values - mean, distribution), _METRE_DIGITS)
        outline = _outline(model.grid, latitude, values, distribution)
        degrees = round(latitude, _DEGREE_DIGITS), round(longitude, _DEGREE_DIGITS)
        place = (*degrees, accuracy, *outline)
        useful = policy.useful_for == "place"
        smoothed = [_smoothed_place(model.grid, policy, *row) for row in rows]
        return PlaceEstimate(time, tick, *place, *told, useful, tuple(smoothed))
    columns = [_interval(values[:, axis], distribution, float(mean[axis])) for axis in range(values.shape[1])]
    low, middle, high = zip(*columns, strict=True)
    smoothed_values = [_smoothed_value(policy, *row) for row in rows]
    return ValueEstimate(time, tick, middle, low, high, policy.unit or None, *told, False, tuple(smoothed_values))


def _smoothed_place(
    grid: PlaceGrid, policy: PolicyHeader, some: PointEstimates, tick: int, mean: _Row, covariance: _Row
) -> SmoothedPlace:
    latitude, longitude = grid.located(*mean)
    east, north = grid.metres(latitude)
    deviation = round(
        math.hypot(*(step * math.sqrt(v) for step, v in ((east, covariance[0]), (north, covariance[2])))), _METRE_DIGITS
    )
    degrees = round(latitude, _DEGREE_DIGITS), round(longitude, _DEGREE_DIGITS)
    return SmoothedPlace(wall_time(policy.clock, tick - some.shift), tick, some.lag, *degrees, deviation)


def _smoothed_value(
    policy: PolicyHeader, some: PointEstimates, tick: int, mean: _Row, covariance: _Row
) -> SmoothedValue:
    axes = len(mean)
    variances = [covariance[axis * axes - axis * (axis - 1) // 2] for axis in range(axes)]  # of the upper triangle
    values = tuple(round(value, _DIGITS) for value in mean)
    deviations = tuple(round(math.sqrt(variance), _DIGITS) for variance in variances)
    return SmoothedValue(wall_time(policy.clock, tick - some.shift), tick, some.lag, values, deviations)


def window_count(policy: Policy, frame: WindowFrame) -> WindowCount:
    """The report of a window that a device has counted."""
    window = policy.window(frame.window)
    assert window is not None
    labels = policy.discretiser.states
    off = noise_within(Fraction(window.scale), CONFIDENCE)
    return WindowCount(
        time=wall_time(policy.clock, frame.last + 1 - frame.shift),
        since=wall_time(policy.clock, frame.first - frame.shift),
        window=frame.window,
        states=tuple(labels[state] for state in window.counted(labels)),
        blocks=() if (blocks := window.query.blocks) is None else blocks.labels,
        values=tuple(float(count) for count in frame.counts),
        low=tuple(float(count - off) for count in frame.counts),
        high=tuple(float(count + off) for count in frame.counts),
        confidence=CONFIDENCE,
        observed=frame.observed,
        unit=window.query.unit,
        epsilon=policy.guarantee.epsilon,
        adversary=policy.guarantee.adversary,
        useful=policy.useful_for == "share" and 2 * frame.observed >= frame.length,
    )


def noise_within(scale: Fraction, confidence: float) -> int:
    """The least h >= 0 such that discrete Laplace noise of a scale is in -h..h with this probability.

    Outside of -h..h it is with probability 2 a^(h+1) / (1 + a), where a = e^(-1/scale).
    """
    spread = float(scale)
    most = (1.0 - confidence) * (1.0 + math.exp(-1.0 / spread)) / 2.0
    return max(0, math.ceil(-spread * math.log(most)) - 1)


def _accuracy(grid: PlaceGrid, latitude: float, away: Floats, distribution: Floats) -> float:
    """Metres that the true place is within with probability 0.95, wherever in its cell it is.

    `away` is (N, 2), of each state, to the east and to the north, in the unit of the measurement.
    """
    metres = np.array(grid.metres(latitude))
    distance = np.hypot(*(away * metres).T)
    assert grid.cell_size is not None
    corner = math.hypot(*(metres * np.array(grid.cell_size))) / 2.0
    return _quantile(distance, distribution, CONFIDENCE) + corner


def _outline(grid: PlaceGrid, latitude: float, values: Floats, distribution: Floats) -> tuple[float, float, float]:
    """Half-axes in metres, rounded up, and orientation of the ellipse that holds the true place likewise.

    `values` are (N, 2), of each state, in the unit of the measurement.
    """
    east, north = grid.metres(latitude)
    assert grid.cell_size is not None
    cell = grid.cell_size[0] * east, grid.cell_size[1] * north
    found = ellipse((values * np.array((east, north))).tolist(), distribution.tolist(), cell, CONFIDENCE)
    major, minor = (math.ceil(axis * 10.0**_METRE_DIGITS) / 10.0**_METRE_DIGITS for axis in found[2:4])
    return major, minor, round(found.orientation, _ANGLE_DIGITS) % 180.0


def _interval(values: Floats, distribution: Floats, mean: float) -> tuple[float, float, float]:
    """Low end, mean and high end of what holds a number with probability 0.95."""
    low, high = (_quantile(values, distribution, tail) for tail in ((1.0 - CONFIDENCE) / 2.0, (1.0 + CONFIDENCE) / 2.0))
    return round(min(low, mean), _DIGITS), round(mean, _DIGITS), round(max(high, mean), _DIGITS)


def _quantile(values: Floats, distribution: Floats, probability: float) -> float:
    """The least of some values that is not exceeded with a probability."""
    order = values.argsort(kind="stable")
    place = int(np.searchsorted(distribution[order].cumsum(), probability))
    return float(values[order[min(place, len(order) - 1)]])
