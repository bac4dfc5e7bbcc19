"""Which streams have something new to tell, and the reports of stored frames, made for people.

A live subscriber needs what is newest. So of each stream one frame waits, and the streams take turns. What was told,
and that the broker has it, is stored with what is sealed: after a crash the newest is told again where that is not
known, and nothing else. All of it is computed from what the device has published, and from its policy.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from datetime import datetime
from fractions import Fraction
from itertools import count, islice, repeat
from typing import NamedTuple

import numpy as np

from fugu.chains.arrays import Floats, Ints
from fugu.contract.descriptions import PlaceGrid
from fugu.contract.errors import FuguError
from fugu.contract.frames import WindowFrame
from fugu.contract.policy import Policy, PolicyHeader
from fugu.contract.reports import (
    PlaceEstimate,
    SmoothedPlace,
    SmoothedValue,
    StateEstimate,
    ValueEstimate,
    WindowCount,
    ellipse,
)
from fugu.contract.sentences import instant
from gateway.estimates.beliefs import look_back, told
from gateway.estimates.catalogue import Catalogue
from gateway.estimates.models import MeasureModel, PointEstimates, SymbolModel
from gateway.estimates.past import Past
from gateway.store.coverage import Place
from gateway.store.symbols import Columns

__all__ = ["Fresh", "Reports", "measured_estimate", "window_count"]


CONFIDENCE = 0.95
Row = tuple[float, ...]
_DIGITS, _DEGREE_DIGITS, _METRE_DIGITS, _ANGLE_DIGITS = 6, 7, 1, 4


def state_estimate(policy: Policy, first: int, last: int, shift: int, shares: Floats, now: Floats) -> StateEstimate:
    """The report of a frame of symbols with this first and last tick and shift.

    `shares` (k,) are the means over its ticks of the probabilities of the states, `now` (k,) those of its last tick.
    """
    labels = policy.discretiser.states
    likely = int(now.argmax())
    return StateEstimate(
        time=_time(policy, last, shift),
        since=_time(policy, first, shift),
        tick=last,
        ticks=last - first + 1,
        state=labels[likely],
        probability=round(float(now[likely]), _DIGITS),
        shares={label: round(share, _DIGITS) for label, share in zip(labels, shares.tolist(), strict=True)},
        epsilon=policy.guarantee.epsilon,
        adversary=policy.guarantee.adversary,
        useful=policy.useful_for == "state",
    )


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
    time, promise = _time(policy, tick, shift), policy.stream_loss
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
    grid: PlaceGrid, policy: PolicyHeader, some: PointEstimates, tick: int, mean: Row, covariance: Row
) -> SmoothedPlace:
    latitude, longitude = grid.located(*mean)
    east, north = grid.metres(latitude)
    deviation = round(
        math.hypot(*(step * math.sqrt(v) for step, v in ((east, covariance[0]), (north, covariance[2])))), _METRE_DIGITS
    )
    degrees = round(latitude, _DEGREE_DIGITS), round(longitude, _DEGREE_DIGITS)
    return SmoothedPlace(_time(policy, tick, some.shift), tick, some.lag, *degrees, deviation)


def _smoothed_value(policy: PolicyHeader, some: PointEstimates, tick: int, mean: Row, covariance: Row) -> SmoothedValue:
    axes = len(mean)
    variances = [covariance[axis * axes - axis * (axis - 1) // 2] for axis in range(axes)]  # of the upper triangle
    values = tuple(round(value, _DIGITS) for value in mean)
    deviations = tuple(round(math.sqrt(variance), _DIGITS) for variance in variances)
    return SmoothedValue(_time(policy, tick, some.shift), tick, some.lag, values, deviations)


def window_count(policy: Policy, frame: WindowFrame) -> WindowCount:
    """The report of a window that a device has counted."""
    window = policy.window(frame.window)
    assert window is not None
    labels = policy.discretiser.states
    off = noise_within(Fraction(window.scale), CONFIDENCE)
    return WindowCount(
        time=_time(policy, frame.last + 1, frame.shift),
        since=_time(policy, frame.first, frame.shift),
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
        useful=policy.useful_for == "share",
    )


def noise_within(scale: Fraction, confidence: float) -> int:
    """The least h >= 0 such that discrete Laplace noise of a scale is in -h..h with this probability.

    Outside of -h..h it is with probability 2 a^(h+1) / (1 + a), where a = e^(-1/scale).
    """
    spread = float(scale)
    most = (1.0 - confidence) * (1.0 + math.exp(-1.0 / spread)) / 2.0
    return max(0, math.ceil(-spread * math.log(most)) - 1)


def _time(policy: PolicyHeader, tick: int, shift: int) -> datetime:
    """When a tick was, by the wall clock; a `FrameError` after the year 9999."""
    return instant(policy.clock.epoch_us + (tick - shift) * policy.clock.period_us)


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


class Fresh(NamedTuple):
    """Rows that have come together, and (n, k) the distributions of their first ticks."""

    columns: Columns
    distributions: Floats


class Report(NamedTuple):
    """Report about a stream at its newest tick; `None` if there can be none, as `refused` says."""

    place: Place
    tick: int
    estimate: StateEstimate | None
    refused: FuguError | None = None


class Reports:
    """Reports that wait.

    `unread` streams may have something to tell from before the start. `look_up` finds the newest stored frame of a
    stream, as a single row. `place` is of a stream's number. Estimates see `lag` ticks of later symbols. `known` is
    what the broker has, by stream, since the last seal.
    """

    def __init__(
        self,
        catalogue: Catalogue,
        past: Past,
        lag: int,
        unread: Iterable[int],
        look_up: Callable[[int], Fresh | None],
        place: Callable[[int], Place],
    ) -> None:
        self._catalogue = catalogue
        self._past = past
        self._lag = lag
        self._unread = dict.fromkeys(unread)
        self._look_up = look_up
        self._place = place
        self._waiting: dict[int, tuple[Fresh, int]] = {}
        self.known: dict[int, int] = {}
        self._coalesced = 0

    def __len__(self) -> int:
        return len(self._waiting) + len(self._unread)

    def put(self, fresh: Fresh, numbers: list[int], rows: list[int], frames: int) -> None:
        """Take the newest frames of some streams, each named once, and the row of each; `frames` have come in all."""
        before = len(self._waiting)
        self._waiting.update(zip(numbers, zip(repeat(fresh), rows), strict=False))
        self._coalesced += frames - (len(self._waiting) - before)
        if self._unread:
            again = self._unread.keys() & set(numbers)
            self._coalesced += len(again)
            self._unread = {number: None for number in self._unread if number not in again}

    def put_again(self, number: int) -> None:
        """Note that what was told of a stream may not have come through."""
        if number not in self._waiting:
            self._unread[number] = None

    def acknowledged(self, number: int, tick: int) -> None:
        """Note that the broker has what was told of a stream up to a tick."""
        self.known[number] = max(tick, self.known.get(number, -1))

    def sealed(self) -> None:
        """Note that what is known is written down; of the columns only the rows that wait are needed now."""
        self.known = {}
        for (columns, distributions), numbers, rows in self._groups(self._waiting):
            few = Fresh(columns.take(rows), distributions[rows])
            self._waiting.update((number, (few, row)) for row, number in enumerate(numbers))

    def take_coalesced(self) -> int:
        """How many frames are not told because a newer one of their stream is, since this was asked last."""
        found, self._coalesced = self._coalesced, 0
        return found

    def take(self, capacity: int) -> list[Report]:
        """Remove so many, in the order in which their streams changed first."""
        while self._unread and len(self._waiting) < capacity:
            number = next(iter(self._unread))
            if (found := self._look_up(number)) is not None:
                self._waiting[number] = found, 0
            self._unread.pop(number, None)
        taken = {number: self._waiting.pop(number) for number in [*islice(self._waiting, max(capacity, 0))]}
        made: list[Report] = []
        for (columns, distributions), numbers, rows in self._groups(taken):
            places, some = [self._place(number) for number in numbers], columns.take(rows)
            versions = zip(places, some.version.tolist(), strict=True)
            models = [self._past.model(place.device, place.stream, version) for place, version in versions]
            wide = np.zeros((len(rows), self._past.bank.states))
            wide[:, : distributions.shape[1]] = distributions[rows]
            shares, now = look_back(self._past.bank.arrays, np.array(models), some, wide, self._lag)
            made += [self._report(place, some, row, shares[row], now[row]) for row, place in enumerate(places)]
        return made

    @staticmethod
    def _groups(waiting: dict[int, tuple[Fresh, int]]) -> list[tuple[Fresh, list[int], Ints]]:
        """Groups of waiting reports that came together: the streams, and the row of each."""
        groups: dict[int, tuple[Fresh, list[int], list[int]]] = {}
        for number, (fresh, row) in waiting.items():
            _, numbers, rows = groups.setdefault(id(fresh), (fresh, [], []))
            numbers.append(number)
            rows.append(row)
        return [(fresh, numbers, np.array(rows, dtype=np.int64)) for fresh, numbers, rows in groups.values()]

    def _report(self, place: Place, some: Columns, row: int, shares: Floats, now: Floats) -> Report:
        version, shift, first, count = (
            int(column[row]) for column in (some.version, some.shift, some.first, some.ticks)
        )
        known = self._catalogue.recall(place.device, place.stream, version, SymbolModel)
        states = len(known.numbers.initial)
        shares, now = (told(known.numbers, each[:states]) for each in (shares, now))
        last = first + count - 1
        try:
            return Report(place, last, state_estimate(known.policy, first, last, shift, shares, now))
        except FuguError as error:
            return Report(place, last, None, error)
