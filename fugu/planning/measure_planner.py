"""Plan a private measurement: which states are possible when, which noise hides them, and which errors remain.

Errors are computed for the mechanisms that a device has, over sets of possible states.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from fugu.chains.arrays import Bools, Floats, Ints
from fugu.chains.model import stationary_distribution
from fugu.chains.tracking import smooth_stream
from fugu.contract.errors import FuguError, GuaranteeError, PolicyError
from fugu.contract.losses import Adversary
from fugu.contract.measure_policy import MeasurePolicy
from fugu.contract.measure_table import Noise, set_of
from fugu.contract.measurement import ConstraintSets, Measurement, check_noise
from fugu.contract.noise_table import MAX_TABLE_STATES, SCALE
from fugu.contract.stretches import Stretch
from fugu.places.composition import START_WORDS, any_pair_loss, measured_loss, measured_stretches, round_up
from fugu.places.graphs import GraphError, delta_set, restrict
from fugu.places.hull import Hull, complete_hull, graph_hull
from fugu.places.noise import noise_error, staircase, staircase_error
from fugu.places.optimal import optimal_table
from fugu.places.protection import Protection, degree_of_protection, list_exposed, protect_likely, unbounded_factors
from fugu.places.tables import (
    Emission,
    TableError,
    TableWeights,
    compile_noise,
    emission,
    fallback_noise,
    noise_loss,
    noise_table,
)
from fugu.planning.errors import PlanningError
from fugu.planning.measure_spec import MeasureSpec, mask_of
from fugu.planning.question import microseconds

__all__ = ["Errors", "MeasurePlan", "SetPlan", "StreamEpsilon", "draw_points", "make_measure_plan"]

_MOST_SETS = 64
_FACTOR_CAP = 4
_SOLVER_SECONDS = 30.0


class SetPlan(NamedTuple):
    """The plan for one set of possible states, from tick `first` until `until`; for ever if `until` is `None`.

    `possible` and `likely` are N booleans; likely states have noise of their own, and a delta-location set has fewer of
    them. `exposed` lists states that the policy graph alone leaves unprotected. `protection` holds the graph with added
    edges, its hull and its factor. `hull` is the hull of the noise, that of the fallback if no other noise would hide
    anything. `degrees` of protection are 0 for impossible states. A device draws from `noise`, `None` if no such noise
    is possible.
    """

    first: int
    until: int | None
    possible: Bools
    likely: Bools
    exposed: tuple[int, ...]
    protection: Protection
    hull: Hull
    degrees: Ints
    fallback: bool
    noise: Noise | None = None

    @property
    def repeats(self) -> bool:
        """True if the set returns in every cycle."""
        return self.until is None


def set_plans(spec: MeasureSpec, constraints: ConstraintSets) -> tuple[SetPlan, ...]:
    """Plan each different set of possible states, ordered by first tick; of too many, prefer sets of the cycle."""
    plans = []
    different_sets = [(*constraints.ticks_of(states), states) for states in dict.fromkeys(constraints.all_sets())]
    for first, until, states in sorted(different_sets, key=lambda ticks: (ticks[1] is not None, ticks[0]))[:_MOST_SETS]:
        possible = mask_of(states, spec.states)
        plans.append(set_plan(spec, first, until, possible, possible))
    return tuple(sorted(plans, key=lambda plan: plan.first))


def set_plan(spec: MeasureSpec, first_tick: int, end_tick: int | None, possible: Bools, likely: Bools) -> SetPlan:
    """Plan the states that are possible between two ticks; only `likely` states have noise of their own."""
    values = spec.values
    # above the size of tables a device draws staircases of whole hulls: those of a cap above 1 are no lattice polygons
    cap = _FACTOR_CAP if spec.states <= MAX_TABLE_STATES else 1
    protection = protect_likely(values, spec.graph, possible, likely, objective=spec.objective, cap=cap)
    exposed_states = list_exposed(graph_hull(values, restrict(spec.graph, possible)), values, possible)
    likely_values = values[likely]
    fallback = not np.any(likely_values != likely_values[0])
    hull = complete_hull(values) if fallback else protection.hull
    degrees = degree_of_protection(protection.hull, values, possible)
    return SetPlan(first_tick, end_tick, possible, likely, tuple(exposed_states), protection, hull, degrees, fallback)


def restricted_prior(distribution: Floats, name: str, plan: SetPlan) -> tuple[Floats, str]:
    """Restrict the long-run distribution to a set's possible states. Return the prior and its name."""
    masses = np.where(plan.possible, distribution, 0.0)
    if masses.sum() <= 0.0:
        return plan.possible / plan.possible.sum(), "the uniform distribution over the possible states"
    return masses / masses.sum(), name if plan.possible.all() else f"{name} within the possible states"


def optimum(spec: MeasureSpec, plan: SetPlan, prior: Floats) -> TableWeights:
    """Compute the table with the least expected error for the states of a set."""
    states = np.ones(spec.states, dtype=np.bool_) if plan.fallback else plan.likely
    return optimal_table(plan.hull, spec.values, states, spec.epsilon, prior=prior, seconds=_SOLVER_SECONDS)


_SEED = 20202
_LEAST_DRAWS, _MOST_DRAWS = 2_000, 20_000
_MOST_CELLS = 1_000_000
_MOST_CLASSES = 100_000
QUICK = "left out by --quick"
"""The reason given for a number that was not computed because it would have taken long."""


class Errors(NamedTuple):
    """Root-mean-square errors of a mechanism, in lattice steps; `None` if unknown.

    `raw` is the error of the noise alone, `released` that after clamping to the range of the states. `single` is the
    error of the posterior mean from one point and the prior. `estimate` is that from all points so far, by simulation.
    """

    raw: float | None
    released: float | None
    single: float | None
    estimate: float | None


def assess(
    spec: MeasureSpec, worst_set: SetPlan, prior: Floats, *, is_endless: bool, quick: bool
) -> tuple[dict[str, Errors], dict[str, str]]:
    """Compute the errors of mechanisms in a set, and why errors are missing; an endless set follows itself."""
    values, epsilon, hull, noise = spec.values, spec.epsilon, worst_set.hull, worst_set.noise
    generator = np.random.default_rng(_SEED)
    walk = draw_walk(spec.transition, prior, generator) if is_endless else None

    def errors_of(noise_rmse: float | None, distribution: Emission) -> Errors:
        filter_rmse = None
        if walk is not None:
            points = draw_points(distribution.probabilities, walk, generator)
            filter_rmse = _filter_rmse(spec, prior, walk, distribution.probabilities.T[points])
        return Errors(noise_rmse, *_point_errors(distribution, values, prior), filter_rmse)

    errors: dict[str, Errors] = {}
    if noise is not None:
        if spec.mechanism == "optimal":
            errors["optimal"] = errors_of(None, emission(noise, values))
            noise = compile_noise(hull, values, worst_set.possible, epsilon, worst_set.likely)
        errors["staircase"] = errors_of(_staircase_error(hull, epsilon), emission(noise, values))
    if "optimal" in errors:
        return errors, {}
    if quick:
        return errors, {"optimal": QUICK}
    try:
        optimal = optimum(spec, worst_set, prior)
    except (TableError, GraphError) as error:
        return errors, {"optimal": str(error)}
    points = {tuple(point): z for z, point in enumerate(optimal.outputs.tolist())}
    errors["optimal"] = errors_of(None, Emission(points, optimal.weights / SCALE))
    return errors, {}


def _point_errors(distribution: Emission, values: Ints, prior: Floats) -> tuple[float, float]:
    joint = prior[:, None] * distribution.probabilities
    point_masses = joint.sum(axis=0)
    means = (joint.T @ values) / np.where(point_masses > 0.0, point_masses, 1.0)[:, None]

    def error(points: Floats) -> float:
        # |f - o|^2, without a matrix for each dimension
        squares = np.sum(values**2, axis=1)[:, None] - 2.0 * values @ points.T + np.sum(points**2, axis=1)
        return math.sqrt(max(0.0, float(np.sum(joint * squares))))

    return error(np.array(list(distribution.points), dtype=np.float64)), error(means)


def _staircase_error(hull: Hull, epsilon: float) -> float | None:
    if hull.scale != 1 or not (hull.rank == 1 or hull.rank == hull.dimensions == 2) or 2 * hull.area > _MOST_CLASSES:
        return None
    return math.sqrt(staircase_error(staircase(hull, epsilon)))


def draw_walk(transition: Floats, distribution: Floats, generator: np.random.Generator) -> Ints:
    """Draw a path of the chain that starts from a distribution."""
    sums = np.cumsum(transition, axis=1)
    ticks = max(_LEAST_DRAWS, min(_MOST_DRAWS, _MOST_CELLS // len(distribution))) // 2
    path = np.empty(ticks, dtype=np.int64)
    state = int(generator.choice(len(distribution), p=distribution))
    for tick, uniform in enumerate(generator.random(len(path)).tolist()):
        path[tick] = state
        state = min(int(np.searchsorted(sums[state], uniform * sums[state, -1], side="right")), len(distribution) - 1)
    return path


def draw_points(distribution: Floats, states: Ints, generator: np.random.Generator) -> Ints:
    """Draw the index (n,) of a released point for each of some states (n,); the distribution is (k, m)."""
    limits = np.cumsum(distribution, axis=1)[:, :-1]
    return np.asarray((generator.random(len(states))[:, None] >= limits[states]).sum(axis=1), dtype=np.int64)


def _filter_rmse(spec: MeasureSpec, distribution: Floats, path: Ints, likelihoods: Floats) -> float:
    """The root-mean-square error of filtered estimates on a path, without the first twentieth of the path."""
    beliefs = smooth_stream(distribution, spec.transition, list(likelihoods), 0)
    warm_up = len(path) // 20
    squared_errors = beliefs[warm_up:] @ spec.values - spec.values[path[warm_up:]]
    return math.sqrt(float(np.mean(np.sum(squared_errors**2, axis=1))))


class StreamEpsilon(NamedTuple):
    """The loss of all released points about one tick and about stretches, or the reason why there is no epsilon."""

    epsilon: float | None
    adversary: Adversary
    bound: str
    reason: str | None
    stretches: tuple[Stretch, ...] = ()


@dataclass(frozen=True)
class MeasurePlan:
    """A planned measurement.

    `constraints` holds the sets of possible states tick by tick. `sets` holds plans of the first different ones and of
    those that return. `worst` is the plan with the largest error among the latter, and errors are computed for it.
    `delta` is the plan of the delta-location set of the distribution before any release. Estimates start from `prior`
    (N probabilities); `initial` is the distribution at tick 0 of a policy. A device draws from `fallback` if it has no
    table; the fallback is `None` if no such noise is possible, and `refused` says why. `reasons` say why a mechanism
    has no errors. All noise keeps the factor `promised` that a policy states. `named_share` is the share of points
    after which an attacker who knows the prior names the true state; `None` without noise.
    """

    spec: MeasureSpec
    constraints: ConstraintSets
    sets: tuple[SetPlan, ...]
    worst: SetPlan
    delta: SetPlan | None
    prior: Floats
    prior_name: str
    errors: dict[str, Errors]
    reasons: dict[str, str]
    named_share: float | None
    stream: StreamEpsilon
    initial: Floats
    fallback: Noise | None
    refused: str | None
    promised: int

    @property
    def factor(self) -> Fraction | float:
        """The factor of Theorem 6.3 for the worst set; 1 for the fallback."""
        return Fraction(1) if self.worst.fallback else self.worst.protection.factor

    @property
    def unbounded_factors(self) -> tuple[Fraction | float, ...]:
        """The factor on epsilon between each state and absence, which is measured as 0."""
        return unbounded_factors(self.worst.hull, self.spec.values)

    @property
    def epsilon_any(self) -> float:
        """The largest epsilon of one point between any two possible states; the factor is rounded up to whole steps."""
        return any_pair_loss(self.spec.epsilon, max(math.ceil(self.factor), self.promised))


def make_measure_plan(
    spec: MeasureSpec, adversary: Adversary, *, quick: bool = False, period: float | None = None
) -> MeasurePlan:
    """Plan a measurement.

    `quick` leaves out the optimal table and the stream's epsilon, which take long for many states. `period` is the
    number of seconds from tick to tick, `None` if unknown.

    Raises:
        PlanningError: a state that can be reached has no successor, or the sets of possible states have no end.
    """
    distribution, distribution_name = _long_run(spec)
    if (initial := spec.initial) is None:
        initial = distribution if np.all(distribution > 0.0) else np.full(len(distribution), 1.0 / len(distribution))
    if spec.shows:
        distribution_name += " of what is shown"
    distribution, masses = spec.measured_distribution(distribution), spec.measured_distribution(initial)
    try:
        constraints = ConstraintSets(_measurement(spec, initial, 1))
        sets = set_plans(spec, constraints)
        start = masses > 0.0
        delta_plan = None if spec.delta is None else set_plan(spec, 0, 1, start, delta_set(masses, spec.delta) & start)
    except (GraphError, PolicyError) as error:
        raise PlanningError(str(error)) from None
    fallback, refused = None, None
    try:
        possible_noise = fallback_noise(spec.values, spec.epsilon)
        sets = tuple(_with_noise(spec, plan, possible_noise, distribution) for plan in sets)
        fallback = possible_noise
    except (TableError, GraphError) as error:
        refused = str(error)
    worst_set = max((plan for plan in sets if plan.repeats), key=lambda plan: noise_error(plan.hull))
    prior, prior_name = restricted_prior(distribution, distribution_name, worst_set)
    named_share, promised_factor = None, 1
    if worst_set.noise is not None:
        named_share = float((prior[:, None] * emission(worst_set.noise, spec.values).probabilities).max(axis=0).sum())
        promised_factor = _promised_factor(spec, initial, sets)
    is_endless = constraints.cycle_index == len(constraints.all_sets()) - 1 and not (spec.shows or spec.changes)
    errors, reasons = assess(spec, worst_set, prior, is_endless=is_endless, quick=quick)
    if refused is not None:
        reasons["staircase"] = refused
        stream = StreamEpsilon(None, adversary, "", "no device can draw such noise")
    elif quick:
        stream = StreamEpsilon(None, adversary, "", QUICK)
    else:
        stream = _loss(spec, _measurement(spec, initial, promised_factor), adversary, period)
    return MeasurePlan(
        spec=spec,
        constraints=constraints,
        sets=sets,
        worst=worst_set,
        delta=delta_plan,
        prior=prior,
        prior_name=prior_name,
        errors=errors,
        reasons=reasons,
        named_share=named_share,
        stream=stream,
        initial=initial,
        fallback=fallback,
        refused=refused,
        promised=promised_factor,
    )


def _long_run(spec: MeasureSpec) -> tuple[Floats, str]:
    """The long-run distribution of the chain's state, at the start of a cycle if steps change, and its name."""
    product, name = spec.transition, "the stationary distribution"
    if spec.changes:
        name = "the distribution that every cycle begins with in the long run"
        tick_pairs = pairwise((0, *(tick for tick, _ in spec.changes), spec.cycle))
        matrices = (spec.transition, *(matrix for _, matrix in spec.changes))
        spans = zip(matrices, tick_pairs, strict=True)
        product = reduce(np.matmul, (np.linalg.matrix_power(matrix, end - begin) for matrix, (begin, end) in spans))
    try:
        return stationary_distribution(product / product.sum(axis=1, keepdims=True)), name
    except ValueError:
        name = "the uniform distribution (there is more than one stationary distribution)"
        return np.full(len(product), 1.0 / len(product)), name


def _with_noise(spec: MeasureSpec, plan: SetPlan, fallback: Noise, distribution: Floats) -> SetPlan:
    if plan.fallback:
        return plan._replace(noise=fallback)
    if spec.mechanism != "optimal":
        return plan._replace(noise=compile_noise(plan.hull, spec.values, plan.possible, spec.epsilon, plan.likely))
    optimal = optimum(spec, plan, restricted_prior(distribution, "", plan)[0])
    if len(optimal.outputs) < 2:
        raise TableError("the optimal table always releases the same point: raise epsilon, or use staircases")
    return plan._replace(noise=noise_table(optimal))


def _measurement(spec: MeasureSpec, initial: Floats, factor: int) -> Measurement:
    degree = MeasurePolicy.model_fields["degree"].default
    return Measurement.of({**spec.fields(initial), "factor": factor, "degree": degree})


def _promised_factor(spec: MeasureSpec, initial: Floats, sets: Sequence[SetPlan]) -> int:
    """Find the least whole factor with which a device accepts the noise of all sets; staircases need whole factors.

    Rounding of tables and of the device's bounds can need one step more, so the device's own check decides.
    """
    set_noises = [(plan, plan.noise) for plan in sets if plan.noise is not None and not plan.fallback]
    least_factor = max((math.ceil(plan.protection.factor) for plan, _ in set_noises), default=1)
    limit = least_factor
    for plan, noise in set_noises:
        possible_pairs = np.ix_(plan.possible, plan.possible)
        limit = max(limit, math.ceil(float(noise_loss(noise, spec.values)[possible_pairs].max()) / spec.epsilon))
    for factor in range(least_factor, limit + 1):
        measurement = _measurement(spec, initial, factor)
        try:
            for plan, noise in set_noises:
                check_noise(measurement, noise, set_of(np.flatnonzero(plan.possible)))
        except GuaranteeError:
            continue
        return factor
    return limit + 1


def _loss(spec: MeasureSpec, measurement: Measurement, adversary: Adversary, period: float | None) -> StreamEpsilon:
    """The stream's epsilon for all tables that a device accepts, as `fugu check policy` derives it."""
    try:
        chain_loss = measured_loss(measurement, spec.transition, spec.initial, spec.start, adversary)
    except (FuguError, GraphError) as error:
        return StreamEpsilon(None, adversary, "", str(error))
    if not math.isfinite(chain_loss.epsilon):
        reason = "no finite bound was found: neighbouring ticks tell too much of one another"
        return StreamEpsilon(None, adversary, chain_loss.bound, reason)
    epsilon = round_up(chain_loss.epsilon)
    stretches = measured_stretches(measurement, epsilon, microseconds(period))
    return StreamEpsilon(epsilon, adversary, f"{chain_loss.bound}; {START_WORDS[spec.start]}", None, stretches)
