"""Points: the hidden Markov model of a policy of points, and the reports of their streams.

A frame of points is reported by the belief at its newest tick. It determines two sets of estimates. The first are its
own ticks, given all points up to each. The second are the ticks t with t + lag in (end of the frame before, its own
end], given all points up to t + lag. They do not see ticks of another policy version.

Three counters belong to points: `fallback_ticks`, `exposed_ticks` (some possible state was hidden among no other) and
`unknown_points`. An unknown point's table is lost from this store, or lacks the point; its tick is unobserved.
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
from fugu.chains.tracking import Tracking, fixed_lag, follow, moves_of
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
from gateway.store.points import MeasuredFrame
from gateway.store.store import Store

if TYPE_CHECKING:
    from fugu.places.tables import Emission
    from gateway.estimates.catalogue import Catalogue

__all__ = ["MeasureModel", "PointEstimates", "Points"]


_MAX_CACHED = 32
Tables = Callable[[int], TimedTable | None]
"""Gives the table with a number, of one policy version; `None` if it is unknown."""


class PointEstimates(NamedTuple):
    """Estimates of a measurement at consecutive ticks, given the points released up to `lag` ticks after each.

    Attributes, by tick from `first` on:
        means: the posterior means, d numbers in the policy's unit.
        covariances: the entries on and above the diagonal of the posterior covariance, row by row.
        protection: the least number of states among which a possible state is hidden; 0 without a released point.
        log_likelihoods: of the released point, given all points before; 0 without one.
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
    """Return means (n, d) and covariances of a measurement (N, d) under each of n distributions (n, N).

    Covariances are (n, d (d + 1) / 2): the entries on and above the diagonal, row by row.
    """
    means = beliefs @ values
    upper_indices = np.triu_indices(values.shape[1])
    centred = values[None, :, :] - means[:, None, :]
    covariances = np.einsum("tn,tni,tnj->tij", beliefs, centred, centred)
    return means, covariances[:, *upper_indices]


class MeasureModel:
    """One verified policy of a measured stream. Raises PolicyError for too many states and points to estimate with.

    `values` are f, (N, d) integers. `reach` has the sets of possible states, tick by tick. `grid` places the states on
    the earth, if the policy does. For `meaning` see `Model`.
    """

    def __init__(self, policy: MeasurePolicy) -> None:
        self.policy = policy
        self.measurement = policy.measurement
        self.values = np.array(policy.coordinates, dtype=np.int64)
        self._shown_states = np.array(policy.shows or range(len(self.values)), dtype=np.int64)
        matrices: list[Floats] = [np.array(matrix, dtype=np.float64) for matrix in policy.matrices]
        self._matrices = [matrix / matrix.sum(axis=1, keepdims=True) for matrix in matrices]
        self._transitions = moves_of(self._matrices)
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
        size = max(math.prod(side + 1 for side in box) for box in boxes)
        if len(self.values) * size > MOST_CELLS:
            raise PolicyError(f"{len(self.values)} states and {size} points are too many: measure on a coarser lattice")

    def initial_at(self, tick: int) -> Floats:
        """Return the distribution of the chain's state at a tick of which nothing is known."""
        return self.predict_ahead(self._initial, 0, tick)

    def predict_ahead(self, distribution: Floats, tick: int, ticks: int) -> Floats:
        """Return the distribution `ticks` after a tick, without points in between."""
        cycles, ticks = divmod(ticks, self.policy.cycle) if self._changes else (0, ticks)
        if cycles:
            cycle_matrix = self._propagate(np.eye(len(distribution)), tick, self.policy.cycle)
            distribution = predict(distribution, cycle_matrix / cycle_matrix.sum(axis=1, keepdims=True), cycles)
        distribution = self._propagate(distribution, tick, ticks)
        return np.asarray(distribution / distribution.sum())

    def _propagate(self, distributions: Floats, tick: int, ticks: int) -> Floats:
        """Carry distributions (N,) or (n, N) `ticks` ahead of a tick, at most a cycle if the matrices change."""
        while ticks > 0:
            _, next_change = self.measurement.steps(tick)
            steps = min(next_change - tick, ticks) if self._changes else ticks
            matrix = self._matrices[self._matrix_index(tick)]
            if steps > len(matrix):  # then powers of the matrix are quicker
                distributions = distributions @ np.linalg.matrix_power(matrix, steps)
            else:
                for _ in range(steps):
                    distributions = distributions @ matrix
            tick, ticks = tick + steps, ticks - steps
        return distributions

    def _matrix_index(self, tick: int) -> int:
        return bisect_right(self._changes, tick % self.policy.cycle)

    def measured_belief(self, distribution: Floats) -> Floats:
        """Convert a distribution of the chain's state to the distribution (N,) of the measured state."""
        return np.asarray(np.bincount(self._shown_states, distribution, len(self.values)), dtype=np.float64)

    def possible_states(self, tick: int) -> NDArray[np.bool_]:
        """Return (N,) for each state whether an adversary can hold it possible at a tick."""
        constraint = self.reach.set_at(tick)
        return np.array([bool(constraint >> state & 1) for state in range(len(self.values))])

    def follow(self, distribution: Floats, first: int, points: Sequence[Released | None], tables: Tables) -> Tracking:
        """Return the beliefs at consecutive ticks, from the distribution of the first tick, without unknown points."""
        likelihoods = [point and self._likelihood(point, tables) for point in points]
        return follow(distribution, self._transitions, self._matrix_indices(first, len(likelihoods)), likelihoods)

    def estimate(
        self,
        distribution: Floats,
        frame: MeasureFrame,
        tables: Tables,
        later_points: Sequence[Released | None] = (),
        lag: int = 0,
        ticks: slice = slice(None),
    ) -> PointEstimates:
        """Return the estimates of some ticks of a frame, given the distribution of its first tick.

        `ticks` are counted from the first. `later_points` are the released points after the frame, tick by tick; each
        estimate sees `lag` ticks after its own.
        """
        tracking = self.follow(distribution, frame.first, (*frame.released, *later_points), tables)
        tick_range = range(len(frame.released))[ticks]
        rows = slice(tick_range.start, tick_range.stop)
        matrix_indices = self._matrix_indices(frame.first, len(tracking.beliefs))
        beliefs = fixed_lag(tracking, self._transitions, matrix_indices, lag, rows)
        means, covariances = moments(beliefs, (self.values * np.array(self.policy.resolution))[self._shown_states])
        protection = [self.degree(frame.released[offset].table, frame.first + offset, tables) for offset in tick_range]
        return PointEstimates(
            lag,
            frame.first + tick_range.start,
            tuple(map(tuple, means.tolist())),
            tuple(map(tuple, covariances.tolist())),
            tuple(protection),
            tuple(tracking.log_likelihoods[rows].tolist()),
            frame.shift,
        )

    def _matrix_indices(self, first: int, ticks: int) -> Ints:
        return np.array([self._matrix_index(tick) for tick in range(first, first + ticks - 1)], dtype=np.int64)

    def degree(self, table_number: int, tick: int, tables: Tables) -> int:
        """Return the least number of states among which a table hides a possible state at a tick; 0 if unknown."""
        constraint = self.reach.set_at(tick)
        cache_key = (table_number, constraint)
        if cache_key not in self._degrees:
            if (table := tables(table_number)) is None:
                return 0
            from fugu.places.tables import noise_pairs

            is_possible = self.possible_states(tick)
            pairs = noise_pairs(table.noise, self.values, is_possible, self.policy.epsilon)
            self._degrees[cache_key] = int(pairs[is_possible].sum(axis=1).min()) + 1
            if len(self._degrees) > _MAX_CACHED * _MAX_CACHED:
                self._degrees.popitem(last=False)
        return self._degrees[cache_key]

    def has_point(self, point: Released, tables: Tables) -> bool:
        """Return whether a released point is in its table."""
        return self._likelihood(point, tables) is not None

    def _likelihood(self, point: Released, tables: Tables) -> Floats | None:
        """Return (N,) the probability of a released point given each state; `None` for an unknown table or point."""
        emission = self._emission(point.table, tables)
        column = None if emission is None else emission.points.get(point.point)
        return None if emission is None or column is None else emission.probabilities[self._shown_states, column]

    def _emission(self, table_number: int, tables: Tables) -> Emission | None:
        if table_number not in self._emissions:
            if (table := tables(table_number)) is None:
                return None
            from fugu.places.tables import emission

            self._emissions[table_number] = emission(table.noise, self.values)
            if len(self._emissions) > _MAX_CACHED:
                self._emissions.popitem(last=False)
        self._emissions.move_to_end(table_number)
        return self._emissions[table_number]


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
        """Return a stored frame that shares a tick with a frame, `None` if there is none."""
        return self._frames.overlapping(place.number, frame)

    def add(self, place: Place, frame: MeasureFrame, counts: Counter[str], *, late: bool) -> None:
        """Store a frame with its belief; `revise` brings the belief of a late frame up to date."""
        self._frames.add(place.number, frame, self._compute_belief(place, frame))
        if late:
            counts["late"] += 1
        else:
            self._store.queue_estimates(place.number, frame.first)
        self._count_ticks(place, frame, counts)

    def revise(self, place: Place, late_firsts: Sequence[int]) -> None:
        """Bring beliefs and estimates up to date, as if the late frames had come in time."""
        late_ticks, last_changed = set(late_firsts), -1
        for stored_frame in self._frames.following(place.number, min(late_firsts)):
            frame = stored_frame.frame
            if not late_ticks and self._base_tick(place, frame) > last_changed:
                return
            belief = self._compute_belief(place, frame)
            if frame.first in late_ticks or belief.tobytes() != stored_frame.belief.tobytes():
                self._frames.set_belief(place.number, frame.first, belief)
                last_changed = frame.last
            late_ticks.discard(frame.first)
            self._store.queue_estimates(place.number, frame.first)

    def _base_tick(self, place: Place, frame: MeasureFrame) -> int:
        """Return the tick of the belief that a frame's estimates begin from, -1 for the stream's beginning."""
        previous = self._frames.before(place.number, frame.first)
        search_from = frame.first if previous is None else previous.frame.last - self._lag + 1
        frames = self._frames.holding(place.number, search_from, frame.first)
        first_tick = min((earlier.first for earlier in frames), default=frame.first)
        previous = self._frames.before(place.number, first_tick)
        return -1 if previous is None else previous.frame.last

    def newest(self, device: str, stream: str) -> MeasuredFrame | None:
        """Return the newest frame of a stream, with the belief at its end."""
        stream_number = self._store.stream_id(device, stream)
        return None if stream_number is None else self._frames.newest(stream_number)

    def report(self, place: Place, first_tick: int) -> Estimate | None:
        """Return the report of a frame's newest tick, and of earlier ticks that now see `lag` later ones."""
        if (stored_frame := self._frames.at(place.number, first_tick)) is None:
            return None
        frame, model = stored_frame.frame, self._model(place, stored_frame.frame.policy_version)
        protection = model.degree(frame.released[-1].table, frame.last, self._tables(place, model))
        arguments = frame.last, frame.shift, model.measured_belief(stored_frame.belief), protection
        return measured_estimate(model, *arguments, self.lagged_estimates(place, frame))

    def estimate(self, place: Place, frame: MeasureFrame) -> PointEstimates:
        """Return the estimates of a stored frame's ticks, given all points up to each."""
        model = self._model(place, frame.policy_version)
        return model.estimate(self._prior(place, frame), frame, self._tables(place, model))

    def lagged_estimates(self, place: Place, last_frame: MeasureFrame) -> Iterator[PointEstimates]:
        """Yield the estimates whose last of `lag` later points is in a stored frame."""
        if self._lag == 0:
            return
        previous = self._frames.before(place.number, last_frame.first)
        first_tick = last_frame.first if previous is None else previous.frame.last - self._lag + 1
        last_tick = last_frame.last - self._lag
        for frame in self._frames.holding(place.number, first_tick, last_tick):
            model = self._model(place, frame.policy_version)
            ticks = slice(max(first_tick - frame.first, 0), min(last_tick, frame.last) - frame.first + 1)
            later_ticks = range(frame.last + 1, frame.first + ticks.stop + self._lag)
            points_by_tick = {
                tick: point
                for later_frame in self._frames.holding(place.number, later_ticks.start, later_ticks.stop - 1)
                if (later_frame.policy_version, later_frame.shift) == (frame.policy_version, frame.shift)
                for tick, point in enumerate(later_frame.released, later_frame.first)
            }
            later_points = [points_by_tick.get(tick) for tick in later_ticks]
            distribution, tables = self._prior(place, frame), self._tables(place, model)
            yield model.estimate(distribution, frame, tables, later_points, self._lag, ticks)

    def _tables(self, place: Place, model: MeasureModel) -> Tables:
        policy = model.policy
        return lambda table: policy.table(table) or self._frames.table(place.number, policy.version, table)

    def _count_ticks(self, place: Place, frame: MeasureFrame, counts: Counter[str]) -> None:
        model = self._model(place, frame.policy_version)
        tables = self._tables(place, model)
        exposed_ticks = []
        for tick, released in enumerate(frame.released, frame.first):
            counts["fallback_ticks"] += released.table == 0
            counts["unknown_points"] += not model.has_point(released, tables)
            if model.degree(released.table, tick, tables) == 1:
                exposed_ticks.append(tick)
        counts["exposed_ticks"] += len(exposed_ticks)
        if exposed_ticks:
            log_values = (*place.device_and_stream, f"{len(exposed_ticks)} ticks from tick {exposed_ticks[0]} on")
            _log.warning("exposure: %s/%s: an adversary can know some state for certain at %s", *log_values)

    def _compute_belief(self, place: Place, frame: MeasureFrame) -> Floats:
        """Return the distribution of a frame's last tick, given all points up to there."""
        model = self._model(place, frame.policy_version)
        inputs = self._prior(place, frame), frame.first, frame.released, self._tables(place, model)
        belief: Floats = model.follow(*inputs).beliefs[-1].copy()
        return belief

    def _prior(self, place: Place, frame: MeasureFrame) -> Floats:
        """Return the distribution of a frame's first tick, given earlier frames with the same clock and meaning."""
        model = self._model(place, frame.policy_version)
        previous = self._frames.before(place.number, frame.first)
        if (
            previous is None
            or previous.frame.shift != frame.shift
            or self._model(place, previous.frame.policy_version).meaning != model.meaning
        ):
            return model.initial_at(frame.first)
        return model.predict_ahead(previous.belief, previous.frame.last, frame.first - previous.frame.last)

    def _model(self, place: Place, version: int) -> MeasureModel:
        return self._catalogue.recall(*place.device_and_stream, version, MeasureModel)


def measured_estimate(
    model: MeasureModel,
    tick: int,
    shift: int,
    distribution: Floats,
    protection: int,
    lagged_estimates: Iterable[PointEstimates] = (),
) -> PlaceEstimate | ValueEstimate:
    """Return the report of the newest tick of a frame of points: a place if the policy places its states, else a value.

    `distribution` (N,) is of the measured states, `protection` as `MeasureModel.degree` returns it. `lagged_estimates`
    are the estimates of earlier ticks that the frame completes.
    """
    policy = model.policy
    states = model.values * np.array(policy.resolution)
    mean = distribution @ states
    time, stream_loss = wall_time(policy.clock, tick - shift), policy.stream_loss
    guarantee = (protection, stream_loss.epsilon, stream_loss.adversary)
    rows = [(run, *row) for run in lagged_estimates for row in zip(count(run.first), run.means, run.covariances)]
    if model.grid is not None:
        latitude, longitude = model.grid.measured_position(float(mean[0]), float(mean[1]))
        accuracy = round(_accuracy(model.grid, latitude, states - mean, distribution), _METRE_DIGITS)
        outline = _outline(model.grid, latitude, states, distribution)
        degrees = round(latitude, _DEGREE_DIGITS), round(longitude, _DEGREE_DIGITS)
        place_fields = (*degrees, accuracy, *outline)
        is_useful = policy.useful_for == "place"
        smoothed_fields = [_smoothed_place(model.grid, policy, *row) for row in rows]
        return PlaceEstimate(time, tick, *place_fields, *guarantee, is_useful, tuple(smoothed_fields))
    intervals = [_interval(states[:, axis], distribution, float(mean[axis])) for axis in range(states.shape[1])]
    low, means, high = zip(*intervals, strict=True)
    smoothed_values = [_smoothed_value(policy, *row) for row in rows]
    return ValueEstimate(time, tick, means, low, high, policy.unit or None, *guarantee, False, tuple(smoothed_values))


def _smoothed_place(
    grid: PlaceGrid, policy: PolicyHeader, estimates: PointEstimates, tick: int, mean: _Row, covariance: _Row
) -> SmoothedPlace:
    latitude, longitude = grid.measured_position(*mean)
    east, north = grid.metres(latitude)
    deviation = round(math.hypot(east * math.sqrt(covariance[0]), north * math.sqrt(covariance[2])), _METRE_DIGITS)
    degrees = round(latitude, _DEGREE_DIGITS), round(longitude, _DEGREE_DIGITS)
    return SmoothedPlace(wall_time(policy.clock, tick - estimates.shift), tick, estimates.lag, *degrees, deviation)


def _smoothed_value(
    policy: PolicyHeader, estimates: PointEstimates, tick: int, mean: _Row, covariance: _Row
) -> SmoothedValue:
    axes = len(mean)
    variances = [covariance[axis * axes - axis * (axis - 1) // 2] for axis in range(axes)]  # of the upper triangle
    means = tuple(round(value, _DIGITS) for value in mean)
    deviations = tuple(round(math.sqrt(variance), _DIGITS) for variance in variances)
    return SmoothedValue(wall_time(policy.clock, tick - estimates.shift), tick, estimates.lag, means, deviations)


def _accuracy(grid: PlaceGrid, latitude: float, offsets: Floats, distribution: Floats) -> float:
    """Return the metres within which the true place is with probability 0.95, wherever in its cell it is.

    `offsets` is (N, 2), of each state, to the east and to the north, in the unit of the measurement.
    """
    metres = np.array(grid.metres(latitude))
    distances = np.hypot(*(offsets * metres).T)
    assert grid.cell_size is not None
    corner = math.hypot(*(metres * np.array(grid.cell_size))) / 2.0
    return _quantile(distances, distribution, CONFIDENCE) + corner


def _outline(grid: PlaceGrid, latitude: float, coordinates: Floats, distribution: Floats) -> tuple[float, float, float]:
    """Return half-axes in metres, rounded up, and orientation of the ellipse that holds the true place with 0.95.

    `coordinates` are (N, 2), of each state, in the unit of the measurement.
    """
    east, north = grid.metres(latitude)
    assert grid.cell_size is not None
    cell = grid.cell_size[0] * east, grid.cell_size[1] * north
    region = ellipse((coordinates * np.array((east, north))).tolist(), distribution.tolist(), cell, CONFIDENCE)
    major, minor = (math.ceil(axis * 10.0**_METRE_DIGITS) / 10.0**_METRE_DIGITS for axis in region[2:4])
    return major, minor, round(region.orientation, _ANGLE_DIGITS) % 180.0


def _interval(values: Floats, distribution: Floats, mean: float) -> tuple[float, float, float]:
    """Return low end, mean and high end of an interval that holds a number with probability 0.95."""
    low, high = (_quantile(values, distribution, tail) for tail in ((1.0 - CONFIDENCE) / 2.0, (1.0 + CONFIDENCE) / 2.0))
    return round(min(low, mean), _DIGITS), round(mean, _DIGITS), round(max(high, mean), _DIGITS)


def _quantile(values: Floats, distribution: Floats, probability: float) -> float:
    """Return the least of some values that is not exceeded with at least a given probability."""
    order = values.argsort(kind="stable")
    index = int(np.searchsorted(distribution[order].cumsum(), probability))
    return float(values[order[min(index, len(order) - 1)]])
