"""Points: the hidden Markov model that a policy of them gives, and what is told of their streams.

A frame of points is reported by what is known of its newest tick. It determines two sets of estimates. The first are
its own ticks, given all points up to each. The second are the ticks t with t + lag in (end of the frame before, its own
end], given all points up to t + lag. Ticks of another policy version are not looked ahead to.

Three counters are its own: `fallback_ticks`, `exposed_ticks` (some possible state was hidden among no other) and
`unknown_points`. These points are of a table that this store has lost, or that lacks them; their ticks are unobserved.
"""

from __future__ import annotations

import logging
import math
from bisect import bisect_right
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import count
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fugu.chains.arrays import Floats, Ints
from fugu.chains.inference import predict
from fugu.chains.tracking import Followed, fixed_lag, follow, moves_of
from fugu.contract.descriptions import PlaceGrid, place_grid
from fugu.contract.ellipse import ellipse
from fugu.contract.errors import PolicyError, Reason, RefusedError
from fugu.contract.measure_frames import MeasureFrame, Released
from fugu.contract.measure_policy import MeasurePolicy
from fugu.contract.measure_table import StaircaseNoise, TimedTable
from fugu.contract.measurement import ConstraintSets
from fugu.contract.noise_table import MAX_TABLE_STATES
from fugu.contract.policy import PolicyHeader
from fugu.contract.reports import CONFIDENCE, Estimate, PlaceEstimate, SmoothedPlace, SmoothedValue, ValueEstimate
from gateway.estimates.kinds import Kind
from gateway.store.coverage import Place
from gateway.store.journal import wall_time
from gateway.store.points import Measured
from gateway.store.store import Store

if TYPE_CHECKING:
    from fugu.places.tables import Emission
    from gateway.estimates.catalogue import Catalogue

__all__ = ["MeasureModel", "PointEstimates", "Points"]


_REMEMBERED = 32
Tables = Callable[[int], TimedTable | None]
"""The table of a number of one policy version, none if it is not known."""


class PointEstimates(NamedTuple):
    """Estimates of a measurement at consecutive ticks, given the points released up to `lag` ticks after each.

    Attributes, by tick from `first` on:
        means: the posterior means, d numbers in the policy's unit.
        covariances: the entries on and above the diagonal of the posterior covariance, row by row.
        protection: the least number of possible states that any one is hidden among; 0: nothing was released.
        log_likelihoods: that of what was released, given all before; 0 if nothing was.
        shift: by how many ticks the rows' numbers are ahead of the wall clock.
    """

    lag: int
    first: int
    means: tuple[tuple[float, ...], ...]
    covariances: tuple[tuple[float, ...], ...]
    protection: tuple[int, ...]
    log_likelihoods: tuple[float, ...]
    shift: int = 0


def moments(beliefs: Floats, values: Floats) -> tuple[Floats, Floats]:
    """Means (n, d) and covariances of a measurement (N, d) under each of n distributions (n, N).

    Covariances are (n, d (d + 1) / 2): the entries on and above the diagonal, row by row.
    """
    means = beliefs @ values
    upper = np.triu_indices(values.shape[1])
    centred = values[None, :, :] - means[:, None, :]
    covariances = np.einsum("tn,tni,tnj->tij", beliefs, centred, centred)
    return means, covariances[:, *upper]


class MeasureModel:
    """One verified policy of a measured stream; a PolicyError if there are too many states and points to estimate with.

    `values` are f, (N, d) integers. `reach` has the sets of possible states, tick by tick. `grid` is where on the earth
    the states are, if the policy says so. For `meaning` see `Model`.
    """

    def __init__(self, policy: MeasurePolicy) -> None:
        self.policy = policy
        self.measurement = policy.measurement
        self.values = np.array(policy.coordinates, dtype=np.int64)
        self._shows = np.array(policy.shows or range(len(self.values)), dtype=np.int64)
        matrices: list[Floats] = [np.array(matrix, dtype=np.float64) for matrix in policy.matrices]
        self._matrices = [matrix / matrix.sum(axis=1, keepdims=True) for matrix in matrices]
        self._moves = moves_of(self._matrices)
        self._changes = [change.tick for change in policy.changes]
        self.reach = ConstraintSets(self.measurement)
        self.grid = place_grid(policy)
        self.meaning = (policy.discretiser.model_dump_json(), policy.clock, policy.coordinates, policy.shows)
        self._initial = np.array(policy.initial) / sum(policy.initial)
        self._emissions: OrderedDict[int, Emission] = OrderedDict()
        self._degrees: OrderedDict[tuple[int, int], int] = OrderedDict()
        self._refuse_large()

    def _refuse_large(self) -> None:
        if len(self.values) <= MAX_TABLE_STATES:
            return
        from fugu.places.tables import MOST_CELLS

        boxes = [np.ptp(self.values, axis=0).tolist()]
        for table in self.policy.measure_tables:
            if isinstance(table.noise, StaircaseNoise):
                boxes.append([high - low for low, high in zip(table.noise.low, table.noise.high, strict=True)])
        most = max(math.prod(side + 1 for side in box) for box in boxes)
        if len(self.values) * most > MOST_CELLS:
            raise PolicyError(f"{len(self.values)} states and {most} points are too many: measure on a coarser lattice")

    def start(self, tick: int) -> Floats:
        """The distribution of the chain's state at a tick of which nothing is known."""
        return self.ahead(self._initial, 0, tick)

    def ahead(self, distribution: Floats, tick: int, ticks: int) -> Floats:
        """The distribution so many ticks after a tick, without points in between."""
        cycles, ticks = divmod(ticks, self.policy.cycle) if self._changes else (0, ticks)
        if cycles:
            whole = self._carried(np.eye(len(distribution)), tick, self.policy.cycle)
            distribution = predict(distribution, whole / whole.sum(axis=1, keepdims=True), cycles)
        distribution = self._carried(distribution, tick, ticks)
        return np.asarray(distribution / distribution.sum())

    def _carried(self, distributions: Floats, tick: int, ticks: int) -> Floats:
        """Distributions (N,) or (n, N) so many ticks after a tick, at most a cycle of which changes."""
        while ticks > 0:
            _, until = self.measurement.steps(tick)
            steps = min(until - tick, ticks) if self._changes else ticks
            matrix = self._matrices[self._part(tick)]
            if steps > len(matrix):  # then powers of the matrix are quicker
                distributions = distributions @ np.linalg.matrix_power(matrix, steps)
            else:
                for _ in range(steps):
                    distributions = distributions @ matrix
            tick, ticks = tick + steps, ticks - steps
        return distributions

    def _part(self, tick: int) -> int:
        return bisect_right(self._changes, tick % self.policy.cycle)

    def measured(self, distribution: Floats) -> Floats:
        """The distribution (N,) of the state that is measured, of that of the chain."""
        return np.asarray(np.bincount(self._shows, distribution, len(self.values)), dtype=np.float64)

    def possible(self, tick: int) -> NDArray[np.bool_]:
        """The states (N,) that an adversary can hold possible at a tick."""
        constraint = self.reach.at(tick)
        return np.array([bool(constraint >> state & 1) for state in range(len(self.values))])

    def follow(self, distribution: Floats, first: int, released: Sequence[Released | None], tables: Tables) -> Followed:
        """Beliefs at consecutive ticks, from the distribution of the first; unknown points count as none."""
        likelihoods = [point and self._likelihood(point, tables) for point in released]
        return follow(distribution, self._moves, self._kinds(first, len(likelihoods)), likelihoods)

    def estimate(
        self,
        distribution: Floats,
        frame: MeasureFrame,
        tables: Tables,
        later: Sequence[Released | None] = (),
        lag: int = 0,
        ticks: slice = slice(None),
    ) -> PointEstimates:
        """The estimates of some `ticks` of a frame, from 0 on, from the distribution of its first.

        `later` is what was released after it, tick by tick; each estimate sees `lag` ticks of that.
        """
        followed = self.follow(distribution, frame.first, (*frame.released, *later), tables)
        chosen = range(len(frame.released))[ticks]
        rows = slice(chosen.start, chosen.stop)
        kinds = self._kinds(frame.first, len(followed.beliefs))
        beliefs = fixed_lag(followed, self._moves, kinds, lag, rows)
        means, covariances = moments(beliefs, (self.values * np.array(self.policy.resolution))[self._shows])
        protection = [self.degree(frame.released[at].table, frame.first + at, tables) for at in chosen]
        return PointEstimates(
            lag,
            frame.first + chosen.start,
            tuple(map(tuple, means.tolist())),
            tuple(map(tuple, covariances.tolist())),
            tuple(protection),
            tuple(followed.log_likelihoods[rows].tolist()),
            frame.shift,
        )

    def _kinds(self, first: int, ticks: int) -> Ints:
        return np.array([self._part(tick) for tick in range(first, first + ticks - 1)], dtype=np.int64)

    def degree(self, number: int, tick: int, tables: Tables) -> int:
        """The least number of states among which a table hides any possible one at a tick; 0 for an unknown table."""
        constraint = self.reach.at(tick)
        key = (number, constraint)
        if key not in self._degrees:
            if (table := tables(number)) is None:
                return 0
            from fugu.places.tables import noise_pairs

            possible = self.possible(tick)
            pairs = noise_pairs(table.noise, self.values, possible, self.policy.epsilon)
            self._degrees[key] = int(pairs[possible].sum(axis=1).min()) + 1
            if len(self._degrees) > _REMEMBERED * _REMEMBERED:
                self._degrees.popitem(last=False)
        return self._degrees[key]

    def has_point(self, released: Released, tables: Tables) -> bool:
        """True if a released point is one of its table's."""
        return self._likelihood(released, tables) is not None

    def _likelihood(self, released: Released, tables: Tables) -> Floats | None:
        """The probability (N,) of a released point given each state; none if its table or the point is not known."""
        emission = self._emission(released.table, tables)
        column = None if emission is None else emission.points.get(released.point)
        return None if emission is None or column is None else emission.probabilities[self._shows, column]

    def _emission(self, number: int, tables: Tables) -> Emission | None:
        if number not in self._emissions:
            if (table := tables(number)) is None:
                return None
            from fugu.places.tables import emission

            self._emissions[number] = emission(table.noise, self.values)
            if len(self._emissions) > _REMEMBERED:
                self._emissions.popitem(last=False)
        self._emissions.move_to_end(number)
        return self._emissions[number]


_Row = tuple[float, ...]
_DIGITS, _DEGREE_DIGITS, _METRE_DIGITS, _ANGLE_DIGITS = 6, 7, 1, 4
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
        first = min(
            (frame.first for frame in self._frames.holding(place.number, low, frame.first)),
            default=frame.first,
        )
        begun = self._frames.before(place.number, first)
        return -1 if begun is None else begun.frame.last

    def newest(self, device: str, stream: str) -> Measured | None:
        """The newest frame of a stream, and the belief at its end."""
        number = self._store.stream_id(device, stream)
        return None if number is None else self._frames.newest(number)

    def report(self, place: Place, first: int) -> Estimate | None:
        """Report about the newest tick of a frame, and about earlier ones that have now seen `lag` ticks more."""
        if (stored := self._frames.at(place.number, first)) is None:
            return None
        frame, model = stored.frame, self._model(place, stored.frame.policy_version)
        protection = model.degree(frame.released[-1].table, frame.last, self._tables(place, model))
        newest = frame.last, frame.shift, model.measured(stored.belief), protection
        return measured_estimate(model, *newest, self.lagged(place, first))

    def estimate(self, place: Place, first: int) -> PointEstimates | None:
        """The estimates of the ticks of the frame that begins at a tick, given all points up to each."""
        if (stored := self._frames.at(place.number, first)) is None:
            return None
        model = self._model(place, stored.frame.policy_version)
        return model.estimate(self._distribution(place, stored.frame), stored.frame, self._tables(place, model))

    def lagged(self, place: Place, first: int) -> Iterator[PointEstimates]:
        """The estimates that see `lag` ticks more, for which the frame that begins at a tick brings the last point."""
        stored = self._frames.at(place.number, first)
        if stored is None or self._lag == 0:
            return
        before = self._frames.before(place.number, first)
        low = first if before is None else before.frame.last - self._lag + 1
        high = stored.frame.last - self._lag
        for frame in self._frames.holding(place.number, low, high):
            model = self._model(place, frame.policy_version)
            ticks = slice(max(low - frame.first, 0), min(high, frame.last) - frame.first + 1)
            later: list[Released | None] = [None] * max(frame.first + ticks.stop - 1 + self._lag - frame.last, 0)
            for later_frame in self._frames.holding(place.number, frame.last + 1, frame.last + len(later)):
                if (later_frame.policy_version, later_frame.shift) == (frame.policy_version, frame.shift):
                    points = later_frame.released[: frame.last + len(later) - later_frame.first + 1]
                    later[later_frame.first - frame.last - 1 : later_frame.first - frame.last - 1 + len(points)] = (
                        points
                    )
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
        inputs = self._distribution(place, frame), frame.first, frame.released, self._tables(place, model)
        belief: Floats = model.follow(*inputs).beliefs[-1].copy()
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
    guarantee = (protection, promise.epsilon, promise.adversary)
    rows = [(points, *row) for points in lagged for row in zip(count(points.first), points.means, points.covariances)]
    if model.grid is not None:
        latitude, longitude = model.grid.located(float(mean[0]), float(mean[1]))
        accuracy = round(_accuracy(model.grid, latitude, values - mean, distribution), _METRE_DIGITS)
        outline = _outline(model.grid, latitude, values, distribution)
        degrees = round(latitude, _DEGREE_DIGITS), round(longitude, _DEGREE_DIGITS)
        place = (*degrees, accuracy, *outline)
        useful = policy.useful_for == "place"
        smoothed = [_smoothed_place(model.grid, policy, *row) for row in rows]
        return PlaceEstimate(time, tick, *place, *guarantee, useful, tuple(smoothed))
    columns = [_interval(values[:, axis], distribution, float(mean[axis])) for axis in range(values.shape[1])]
    low, middle, high = zip(*columns, strict=True)
    smoothed_values = [_smoothed_value(policy, *row) for row in rows]
    return ValueEstimate(time, tick, middle, low, high, policy.unit or None, *guarantee, False, tuple(smoothed_values))


def _smoothed_place(
    grid: PlaceGrid, policy: PolicyHeader, points: PointEstimates, tick: int, mean: _Row, covariance: _Row
) -> SmoothedPlace:
    latitude, longitude = grid.located(*mean)
    east, north = grid.metres(latitude)
    deviation = round(
        math.hypot(*(step * math.sqrt(v) for step, v in ((east, covariance[0]), (north, covariance[2])))), _METRE_DIGITS
    )
    degrees = round(latitude, _DEGREE_DIGITS), round(longitude, _DEGREE_DIGITS)
    return SmoothedPlace(wall_time(policy.clock, tick - points.shift), tick, points.lag, *degrees, deviation)


def _smoothed_value(
    policy: PolicyHeader, points: PointEstimates, tick: int, mean: _Row, covariance: _Row
) -> SmoothedValue:
    axes = len(mean)
    variances = [covariance[axis * axes - axis * (axis - 1) // 2] for axis in range(axes)]  # of the upper triangle
    values = tuple(round(value, _DIGITS) for value in mean)
    deviations = tuple(round(math.sqrt(variance), _DIGITS) for variance in variances)
    return SmoothedValue(wall_time(policy.clock, tick - points.shift), tick, points.lag, values, deviations)


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
    region = ellipse((values * np.array((east, north))).tolist(), distribution.tolist(), cell, CONFIDENCE)
    major, minor = (math.ceil(axis * 10.0**_METRE_DIGITS) / 10.0**_METRE_DIGITS for axis in region[2:4])
    return major, minor, round(region.orientation, _ANGLE_DIGITS) % 180.0


def _interval(values: Floats, distribution: Floats, mean: float) -> tuple[float, float, float]:
    """Low end, mean and high end of what holds a number with probability 0.95."""
    low, high = (_quantile(values, distribution, tail) for tail in ((1.0 - CONFIDENCE) / 2.0, (1.0 + CONFIDENCE) / 2.0))
    return round(min(low, mean), _DIGITS), round(mean, _DIGITS), round(max(high, mean), _DIGITS)


def _quantile(values: Floats, distribution: Floats, probability: float) -> float:
    """The least of some values that is not exceeded with a probability."""
    order = values.argsort(kind="stable")
    place = int(np.searchsorted(distribution[order].cumsum(), probability))
    return float(values[order[min(place, len(order) - 1)]])
