"""Plan from traces of places which points a device should release, if any.

A point says in which cell a device is, with noise that protects every pair of cells. Larger cells and fewer points need
less noise for one epsilon of the whole stream. Every candidate is planned for the class of chains that covers each
stretch of a first set, against any side information. Answers are judged on other sets: at every row, the newest
estimate's error in metres.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from typing import NamedTuple

import numpy as np

from fugu.attackers.evaluation import attack
from fugu.attackers.outputs import Outputs, SymbolOutputs
from fugu.chains.arrays import Floats, Ints
from fugu.chains.inference import filter_beliefs
from fugu.chains.model import stationary_distribution
from fugu.contract.descriptions import METRES_PER_DEGREE
from fugu.contract.discretisers import Cells
from fugu.contract.errors import FuguError
from fugu.contract.measure_frames import MAX_MEASURE_TICKS, MeasureFrame, Released
from fugu.contract.measure_policy import MeasurePolicy
from fugu.places.composition import round_up, verify_stream
from fugu.places.graphs import GraphError, complete
from fugu.places.tables import TableError, emission, fallback_noise
from fugu.planning.candidates import Candidate, Curve, no_candidate, traffic
from fugu.planning.errors import PlanningError, TooShortError
from fugu.planning.grid_model import GridModel, fit_grid
from fugu.planning.measure_planner import StreamEpsilon, draw_points, make_measure_plan
from fugu.planning.measure_spec import MeasureSpec
from fugu.planning.policy_builder import ANY_TARGET, Target, build_measure_policy
from fugu.planning.question import Cut, Progress, Question, ThreeSets, frame_ticks, no_progress, sample_mask, three_sets
from fugu.planning.states import states_of
from fugu.planning.true_class import ceiling_failures, true_class
from fugu.privacy.accountant.bounded import odds_ratio_loss
from fugu.privacy.chain_class import ChainClassError
from fugu.privacy.covering_class import CoveringChains, CoveringClass, covering_class
from fugu.recordings.options import ReadOptions
from fugu.recordings.places import Traces, read_traces, resample
from fugu.recordings.readings import AS_FOUND, Recorded

__all__ = ["PlacePlan", "place_policy", "plan_places", "read_places"]

_CELLS_ACROSS, _ROW_STRIDES = (1, 2, 3), (1, 10, 60, 300)
_MIN_CELL, _COARSEST = 10.0, 100_000.0
_EPSILONS = (1.0, 2.0, 4.0, 6.0, 8.0, 10.0, 15.0, 20.0)
_MOST_POINT_EPSILON, _HALVINGS, _MARGIN = 20.0, 50, 1e-6
_RUNS, _QUANTILE, _BLOCKS = 5, 0.955, 8
_FEWEST_DEPARTURES = 20


class PlacePlan(NamedTuple):
    """The points to release, or the reasons why none are recommended (`recommended` is then of kind `none`).

    Errors of `candidates` are in metres. For each candidate `curves` holds the errors by epsilon, and `sides` the side
    of a cell in metres. `least_epsilon` is the least compared epsilon, from the wanted one on, at which points are
    twice as good as guessing. `reasons` say why a useful candidate is not recommended. `held_back` holds the increasing
    indices of the third set's places.
    """

    recommended: Candidate
    candidates: tuple[Candidate, ...]
    curves: tuple[Curve, ...]
    least_epsilon: float | None
    reasons: tuple[str, ...]
    traces: Traces
    period: float
    question: Question
    sides: tuple[float, ...]
    spec: MeasureSpec | None
    held_back: Ints


class _Set(NamedTuple):
    """A set: cells of one sampled place per stride, every row's place, and the index of its newest sampled place."""

    cut: Cut
    places: Floats
    newest: Ints


class _Grid(NamedTuple):
    """Cells of one size at one period, the chain and the class fitted to the first set, and the three sets."""

    every: int
    model: GridModel
    cells: Cells
    covered: CoveringClass
    fit: _Set
    choose: _Set
    test: _Set

    @property
    def centres(self) -> Floats:
        """(k, 2) metres to the east and north of the grid's corner."""
        return np.asarray((self.model.cells + 0.5) * self.model.metres, dtype=np.float64)

    def metres(self, places: Floats) -> Floats:
        """(n, 2) metres to the east and north of the grid's corner, from latitudes and longitudes."""
        return np.asarray(((places - self.model.origin) / self.model.step)[:, ::-1] * self.model.metres)


class _Points(NamedTuple):
    """Points that could be released on a grid, their distribution for each cell (k, m), and their errors by epsilon."""

    grid: _Grid
    candidate: Candidate
    emission: Floats
    curve: Curve


def read_places(recording: Recorded, options: ReadOptions = AS_FOUND) -> tuple[Traces, float]:
    """Read traces and resample them to the period, by default their median step. Return them and the period, in s.

    Traces without times are read row by row.

    Raises:
        FuguError: the recording cannot be read, or has no period; one line says why, and where.
        QuestionError: the recording can be read in more than one way.
    """
    traces = read_traces(recording, options)
    period = options.period or traces.median_step
    if period is None:
        raise FuguError(f"{traces.source}: no times say how far apart its rows are: give --period, in seconds")
    return (traces if traces.times is None else resample(traces, period)), period


def plan_places(
    traces: Traces, period: float, question: Question, rng: np.random.Generator, progress: Progress = no_progress
) -> PlacePlan:
    """Compare points for several cell sizes and periods, and recommend useful ones that attackers do not refute.

    Raises:
        PlanningError: there are too few places, only one place, or `question` protects longer stretches.
    """
    if question.protect:
        raise PlanningError(
            "points of places are planned for single ticks: give --protect tick, or leave it out. Points before and "
            "after a stretch tell of it without a bound where steps between places are impossible, as most are"
        )
    question = replace(question, protect=0)
    sets = three_sets(traces.trace, 0)
    fit_places = traces.places[sets.fit.rows]
    fit_places = fit_places[~np.isnan(fit_places[:, 0])]
    if not len(fit_places) or not np.any(fit_places != fit_places[0]):
        raise PlanningError(f"{traces.source}: the place never changes in the first set: there is nothing to plan")
    grids: list[_Grid] = []
    reason = ""
    cell_sizes = _cell_sizes(fit_places) if question.cell is None else [question.cell]
    grid_sizes = [*product(cell_sizes, _ROW_STRIDES)]
    for index, (metres, stride) in enumerate(grid_sizes):
        progress("cells and their chains", 0.3 * index / len(grid_sizes))
        if stride * period > question.max_latency:
            continue
        try:
            grids.append(_fit_cells(traces, sets, metres, stride))
        except (PlanningError, ChainClassError) as error:
            # too few places are left at this period, or no trace returns to cells of this size
            cells_words = f"cells of {metres:g} m, one place every {stride} rows, in the first of three sets"
            reason = reason or f"{error} ({cells_words})".removeprefix(f"{traces.source}: ")
    guess = min(map(_guess_errors, grids), default=(math.nan, math.nan))[1]
    rivals: list[_Points] = []
    for index, grid in enumerate(grids):
        progress("points", 0.3 + 0.4 * index / len(grids))
        point_epsilon = _point_epsilon(grid.covered.chains, question.epsilon)
        if (emission := _point_emission(grid, point_epsilon)) is None:
            continue
        candidate = replace(_judged_points(grid, question, period, point_epsilon, emission, rng), guess_error=guess)
        error_by_epsilon = {question.epsilon: candidate.expected_error}
        for e in sorted({*_EPSILONS} - {question.epsilon}):
            if (noise := _point_emission(grid, _point_epsilon(grid.covered.chains, e))) is not None:
                error_by_epsilon[e] = float(_track_errors(grid, noise, grid.choose, rng, 1).mean())
        rivals.append(_Points(grid, candidate, emission, Curve(candidate, tuple(sorted(error_by_epsilon.items())))))
    if not rivals:
        if grids:
            reason = "no noise is enough for the cells of its places, or too few of them are left to judge points by"
        mean_distance, distance_95 = _middle_errors(traces.places[sets.choose.rows], fit_places)
        raise TooShortError(
            f"{traces.source}: {reason or 'no points come as soon as is wanted'}. No point is worth it where guessing "
            f"the middle, always, is off by {mean_distance:.0f} m on average, 95 % within {distance_95:.0f} m",
            0,
        )
    progress("attackers", 0.7)
    best, failures = _choose_points(rivals, question.epsilon, rng)
    curve_points = [point for points in rivals for point in points.curve.points]
    useful_epsilons = [e for e, error in curve_points if e >= question.epsilon and 2.0 * error <= guess]
    if best is None or failures:
        recommended = no_candidate(grids[0].cells, None, question, answers="place", adversary="universal")
        spec = None
    else:
        recommended, spec = best.candidate, _measure_spec(best.grid, best.candidate, period, question)
        rivals = [best if points.grid is best.grid else points for points in rivals]
    return PlacePlan(
        recommended=recommended,
        candidates=tuple(points.candidate for points in rivals),
        curves=tuple(points.curve for points in rivals),
        least_epsilon=min(useful_epsilons, default=None),
        reasons=failures,
        traces=traces,
        period=period,
        question=question,
        sides=tuple(points.grid.model.metres for points in rivals),
        spec=spec,
        held_back=sets.test.rows,
    )


def place_policy(plan: PlacePlan, target: Target = ANY_TARGET) -> MeasurePolicy:
    """Make the policy of recommended points, checked as a device would. PlanningError: nothing is recommended."""
    if plan.spec is None:
        raise PlanningError("nothing is recommended: there is no policy to write")
    recommended = plan.recommended
    target_names = {"fleet": target.fleet, "device": target.device, "stream": target.stream or "place"}
    spec = replace(plan.spec, header={**plan.spec.header, **target_names})
    measure_plan = make_measure_plan(spec, recommended.adversary, quick=True)
    epsilon = StreamEpsilon(recommended.epsilon, recommended.adversary, "odds-ratio bound", None)
    measure_plan = replace(measure_plan, stream=epsilon)
    policy = build_measure_policy(measure_plan, epoch=target.epoch, useful_for=recommended.useful_for)
    verify_stream(policy)
    return policy


def _cell_sizes(places: Floats) -> list[float]:
    """Find sides of cells, in metres: 96 % of places (n, 2) lie within the width of one, two or three cells."""
    south_west, north_east = np.quantile(places, (0.02, 0.98), axis=0)
    longitude_factor = math.cos(math.radians(float(np.median(places[:, 0]))))
    extent = METRES_PER_DEGREE * max(north_east[0] - south_west[0], (north_east[1] - south_west[1]) * longitude_factor)
    return sorted({float(f"{min(max(extent / n, _MIN_CELL), _COARSEST):.2g}") for n in _CELLS_ACROSS}, reverse=True)


def _middle_errors(places: Floats, recorded_places: Floats) -> tuple[float, float]:
    """Distances in metres from places (n, 2) to the median of recorded places: the mean and the 95 % quantile."""
    median = np.median(recorded_places, axis=0)
    axis_factors = np.array([1.0, math.cos(math.radians(float(median[0])))])
    offsets = (places[~np.isnan(places[:, 0])] - median) * axis_factors
    distances = METRES_PER_DEGREE * np.linalg.norm(offsets, axis=-1)
    return (float(distances.mean()), float(np.quantile(distances, 0.95))) if len(distances) else (math.nan, math.nan)


def _fit_cells(traces: Traces, sets: ThreeSets, metres: float, stride: int) -> _Grid:
    fit_rows, segments = sets.fit
    is_sampled = sample_mask(segments, stride)
    fit_traces = traces._replace(places=traces.places[fit_rows][is_sampled], trace=segments[is_sampled], times=None)
    model = _common_cells(fit_traces, fit_grid(fit_traces, metres))
    corners = tuple((x, y) for x, y in model.cells.tolist())
    missing_name = model.grid.get("missing")
    cells = Cells(origin=model.origin, step=model.step, cells=corners, states=model.names, missing=missing_name)
    grid_sets = []
    for set_part in sets:
        places, is_sampled = traces.places[set_part.rows], sample_mask(set_part.segments, stride)
        place_texts = [None if math.isnan(x) else f"{x!r},{y!r}" for x, y in places[is_sampled].tolist()]
        cut = Cut(states_of(cells, place_texts, set_part.segments[is_sampled]), set_part.segments[is_sampled])
        grid_sets.append(_Set(cut, places, np.cumsum(is_sampled) - 1))
    return _Grid(stride, model, cells, covering_class(*grid_sets[0].cut, len(corners)), *grid_sets)


def _common_cells(fit_traces: Traces, model: GridModel) -> GridModel:
    """Keep the cells that traces leave often enough to estimate steps; other places belong to the nearest cell."""
    places = fit_traces.places[~np.isnan(fit_traces.places[:, 0])]
    trace_of_place = fit_traces.trace[~np.isnan(fit_traces.places[:, 0])]
    place_cells = np.floor((places - model.origin) / model.step)[:, ::-1]
    touched_cells, cell_of_row = np.unique(place_cells, axis=0, return_inverse=True)
    while True:
        nearest_cells = ((touched_cells[:, None] - model.cells) ** 2).sum(axis=2).argmin(axis=1)[cell_of_row.ravel()]
        is_move = (np.diff(nearest_cells) != 0) & (np.diff(trace_of_place) == 0)
        departures = np.bincount(nearest_cells[:-1][is_move], minlength=len(model.cells))
        is_rare = departures < _FEWEST_DEPARTURES
        is_rare[model.missing if model.missing is not None else int(departures.argmax())] = False
        if not is_rare.any() or len(model.cells) <= 2:
            return model
        is_common = ~is_rare | (departures > np.median(departures[is_rare]))
        is_common[np.argsort(departures, kind="stable")[-2:]] = True
        if is_common.all():
            return model
        model = model.restrict(np.flatnonzero(is_common))


def _guess_errors(grid: _Grid) -> tuple[float, float]:
    """The mean distances, in metres, of the first and the second set to the most central cell of the first set."""
    fit_distances, choice_distances = (
        np.linalg.norm(grid.metres(part.places)[:, None] - grid.centres, axis=-1) for part in (grid.fit, grid.choose)
    )
    central_cell = int(np.nanmean(fit_distances, axis=0).argmin())
    return float(np.nanmean(fit_distances[:, central_cell])), float(np.nanmean(choice_distances[:, central_cell]))


def _point_epsilon(chains: CoveringChains, epsilon: float) -> float:
    """Find the largest epsilon of a single point with which all points lose at most `epsilon` about a tick.

    The odds-ratio bound of the class holds for any side information and start, and for chains that change over time.
    """
    odds, low, high = chains.odds_bound, 0.0, min(epsilon, _MOST_POINT_EPSILON)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2.0
        low, high = (middle, high) if odds_ratio_loss(odds, middle) <= epsilon * (1.0 - _MARGIN) else (low, middle)
    return low


def _point_emission(grid: _Grid, point_epsilon: float) -> Floats | None:
    """Find the distribution of points for each cell (k, m); `None` if no such noise is possible."""
    try:
        return emission(fallback_noise(grid.model.cells, point_epsilon), grid.model.cells).probabilities
    except (TableError, GraphError):
        return None


def _draw_points(distribution: Floats, cut: Cut, rng: np.random.Generator) -> SymbolOutputs:
    symbols = draw_points(distribution, np.maximum(cut.states, 0), rng)
    return SymbolOutputs(np.where(cut.states >= 0, symbols, -1), distribution)


def _track_errors(grid: _Grid, distribution: Floats, grid_set: _Set, rng: np.random.Generator, runs: int) -> Floats:
    """Distances in metres from every place of a set to the newest estimate, for `runs` draws of the noise."""
    chain, errors = grid.covered.transition, []
    start_distribution = stationary_distribution(chain)
    truth = grid.metres(grid_set.places)
    for _ in range(runs):
        symbols = _draw_points(distribution, grid_set.cut, rng).symbols
        beliefs = filter_beliefs(symbols, start_distribution, chain, distribution, lengths=grid_set.cut.lengths).beliefs
        distances = np.linalg.norm((beliefs @ grid.centres)[grid_set.newest] - truth, axis=-1)
        errors.append(distances[~np.isnan(distances)])
    return np.concatenate(errors)


def _judged_points(
    grid: _Grid, question: Question, period: float, point_epsilon: float, emission: Floats, rng: np.random.Generator
) -> Candidate:
    choose_errors = _track_errors(grid, emission, grid.choose, rng, _RUNS)
    test_errors = _track_errors(grid, emission, grid.test, rng, _RUNS)
    all_errors = np.concatenate([choose_errors, _track_errors(grid, emission, grid.fit, rng, 1)])
    chains = grid.covered.chains
    tick_seconds = period * grid.every
    frame_length = frame_ticks(question.gathering_seconds, tick_seconds, MAX_MEASURE_TICKS)
    return Candidate(
        kind="points",
        answers="place",
        every=grid.every,
        discretiser=grid.cells,
        chains=chains,
        epsilon=round_up(odds_ratio_loss(chains.odds_bound, point_epsilon)),
        adversary="universal",
        expected_error=float(choose_errors.mean()),
        error_95=float(
            max([np.quantile(all_errors, _QUANTILE), *(block.mean() for block in np.array_split(all_errors, _BLOCKS))])
        ),
        held_back_error=float(test_errors.mean()),
        judged=len(grid.choose.cut.states),
        point_epsilon=point_epsilon,
        **traffic(frame_length * tick_seconds, frame_length * tick_seconds, partial(_frame_bytes, frame_length), 1),
    )


def _choose_points(
    rivals: Sequence[_Points], epsilon: float, rng: np.random.Generator
) -> tuple[_Points | None, tuple[str, ...]]:
    """Choose the most accurate useful points that attackers do not refute on the first set; attack them on the third.

    Return the points, or `None`, and the reasons against them.
    """
    useful_points = [points for points in rivals if points.candidate.useful]
    for points in sorted(useful_points, key=lambda points: points.candidate.expected_error):
        grid, candidate = points.grid, points.candidate
        if _is_class_refuted(grid, candidate, epsilon, rng):
            continue
        attacks = attack(*grid.test.cut, _draw_points(points.emission, grid.test.cut, rng), candidate.epsilon)
        failures = [*ceiling_failures(attacks)]
        if candidate.held_back_error is None or candidate.held_back_error > candidate.error_95:
            failures.append("on the third set the error is beyond what 95 % of answers should be within")
        return points._replace(candidate=replace(candidate, attack=attacks[0])), tuple(failures)
    return None, ("attackers refute the class of every candidate that is worth it",) if useful_points else ()


def _is_class_refuted(grid: _Grid, candidate: Candidate, epsilon: float, rng: np.random.Generator) -> bool:
    """True if attackers on the first set refute the class of a grid; all points together keep epsilon."""

    def draw_outputs(chains: CoveringChains, generator: np.random.Generator) -> Outputs | None:
        emission = _point_emission(grid, _point_epsilon(chains, epsilon))
        return None if emission is None else _draw_points(emission, grid.fit.cut, generator)

    chains = grid.covered.chains
    return true_class(*grid.fit.cut, chains, candidate.epsilon, draw_outputs, rng, most_steps=1).chains is None


def _frame_bytes(ticks: int) -> bytes:
    return MeasureFrame(1, -1, 0, 2, (Released(0, (0, 0)),) * ticks).encode()


def _measure_spec(grid: _Grid, candidate: Candidate, period: float, question: Question) -> MeasureSpec:
    """The measurement for a policy; its transition allows steps that were never recorded."""
    model = grid.model
    return MeasureSpec(
        values=model.cells,
        transition=grid.covered.transition,
        rule={"complete": True},
        graph=complete(len(model.cells)),
        epsilon=candidate.point_epsilon or 0.0,
        names=model.names,
        resolution=(model.metres, model.metres),
        unit="m",
        cells=model.grid,
        header={"period": period * grid.every, "latency": question.gathering_seconds},
    )
