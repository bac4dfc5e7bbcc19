"""Errors of a measurement's mechanisms, and of what others would add to it, over possible sets."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from fugu.chains.arrays import Bools, Floats, Ints
from fugu.chains.tracking import lagged
from fugu.contract.measure_table import Noise
from fugu.contract.noise_table import MAX_TABLE_STATES, SCALE
from fugu.places.graphs import GraphError, complete, restrict
from fugu.places.hull import Hull, complete_hull, graph_hull
from fugu.places.noise import (
    area,
    draw_knorm,
    float_gauge,
    l1_sensitivity,
    laplace_error,
    noise_error,
    staircase,
    staircase_error,
)
from fugu.places.optimal import optimal_table
from fugu.places.protection import Protection, degree_of_protection, exposed, protect_likely
from fugu.places.tables import Emission, TableError, TableWeights, compile_noise, emission
from fugu.planning.measure_spec import MeasureSpec

__all__ = [
    "QUICK",
    "Errors",
    "Schedule",
    "SetPlan",
    "assess",
    "optimum",
    "prior_within",
    "set_plan",
    "set_plans",
]


_MOST_SETS = 64
_CAP = 4
_SOLVER_SECONDS = 30.0


class Schedule(NamedTuple):
    """The sets of possible states, N booleans each: a run-in, then a cycle for ever.

    The last one is followed by constraints[start]; `ticks` are the first of each.
    """

    constraints: tuple[Bools, ...]
    start: int
    ticks: tuple[int, ...]

    @property
    def period(self) -> int:
        """Sets of the cycle; 1 if the constraint converges."""
        return len(self.constraints) - self.start


class SetPlan(NamedTuple):
    """Plan while one set of states is possible: from tick `first` until `until`, or for ever.

    `possible` and `likely` (states with noise of their own; fewer in a delta-location set) are N booleans. `exposed`
    are states that the policy graph alone leaves unprotected; `protection` is the graph with edges added, its hull and
    its factor. `hull` is that of the noise, the fallback's if nothing else would hide anything. `degrees` of protection
    are 0 for states that are not possible.
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

    @property
    def repeats(self) -> bool:
        """True if the set comes back for ever."""
        return self.until is None

    @property
    def area(self) -> Fraction:
        """Of the hull; 0 if it is flat."""
        return area(self.hull)


def set_plans(spec: MeasureSpec, found: Schedule) -> tuple[SetPlan, ...]:
    """The different sets of a schedule in the order of their first ticks; if they are many, the cycle goes first."""
    places: dict[bytes, list[int]] = {}  # what is possible may come again before the chain's own states do
    for place, possible in enumerate(found.constraints):
        places.setdefault(possible.tobytes(), []).append(place)
    chosen = sorted(places.values(), key=lambda own: (own[-1] < found.start, own[0]))[:_MOST_SETS]
    return tuple(
        set_plan(
            spec,
            found.ticks[own[0]],
            None if own[-1] >= found.start else found.ticks[own[-1] + 1],
            found.constraints[own[0]],
            found.constraints[own[0]],
        )
        for own in sorted(chosen)
    )


def set_plan(spec: MeasureSpec, first: int, until: int | None, possible: Bools, likely: Bools) -> SetPlan:
    """Plan that protects the states possible from one tick until another, when only some have rows of their own."""
    values = spec.values
    # above the size of tables a device draws staircases of whole hulls: those of a cap above 1 are no lattice polygons
    cap = _CAP if spec.states <= MAX_TABLE_STATES else 1
    protection = protect_likely(values, spec.graph, possible, likely, objective=spec.objective, cap=cap)
    alone = exposed(graph_hull(values, restrict(spec.graph, possible)), values, possible)
    inside = values[likely]
    fallback = not np.any(inside != inside[0])
    hull = complete_hull(values) if fallback else protection.hull
    degrees = degree_of_protection(protection.hull, values, possible)
    return SetPlan(first, until, possible, likely, tuple(alone), protection, hull, degrees, fallback)


def prior_within(distribution: Floats, name: str, worst: SetPlan) -> tuple[Floats, str]:
    """The long-run distribution within a set of states."""
    inside = np.where(worst.possible, distribution, 0.0)
    if inside.sum() <= 0.0:
        return worst.possible / worst.possible.sum(), "the uniform distribution over the possible states"
    return inside / inside.sum(), name + ("" if worst.possible.all() else " within the possible states")


def optimum(spec: MeasureSpec, each: SetPlan, prior: Floats) -> TableWeights:
    """The table of least expected error for the states of a set."""
    within = np.ones(spec.states, dtype=np.bool_) if each.fallback else each.likely
    return optimal_table(each.hull, spec.values, within, spec.epsilon, prior=prior, seconds=_SOLVER_SECONDS)


_SEED = 20202
_LEAST_DRAWS, _MOST_DRAWS = 2_000, 20_000
_MOST_CELLS = 1_000_000
_CELLS_AT_ONCE = 100_000
_MOST_CLASSES = 100_000
QUICK = "left out by --quick"
"""Why there is no number, if it would have taken long."""


class Errors(NamedTuple):
    """Root-mean-square errors of a mechanism, in lattice steps; None where they are not known.

    `raw` is of the noise alone, `released` after clamping to where states are, `single` of the posterior mean from one
    point and the prior, `estimate` of that from all points so far, by simulation.
    """

    raw: float | None
    released: float | None
    single: float | None
    estimate: float | None


def assess(
    spec: MeasureSpec, worst: SetPlan, noise: Noise | None, prior: Floats, *, endless: bool, quick: bool
) -> tuple[dict[str, Errors], dict[str, str]]:
    """The errors of every mechanism in a set (one that is followed by itself, if endless), and why some have none."""
    values, epsilon, hull = spec.values, spec.epsilon, worst.hull
    generator = np.random.default_rng(_SEED)
    walk = walk_of(spec.transition, prior, generator) if endless else None
    graph = complete(spec.states) if worst.fallback else worst.protection.graph
    scale = max(1, l1_sensitivity(values, graph)) / epsilon

    def continuous(raw: float, draw: Callable[[int], Floats], cost: Callable[[Floats], Floats]) -> Errors:
        def seen(path: Ints) -> Floats:
            return _likelihoods(values, path, draw(len(path)), cost)

        alone = generator.choice(spec.states, size=draws(spec.states), p=prior)
        joint = prior * seen(alone)
        single = rms((joint @ values) / joint.sum(axis=1, keepdims=True) - values[alone])
        return Errors(raw, None, single, None if walk is None else _tracked(spec, prior, walk, seen(walk)))

    def compiled(raw: float | None, distribution: Emission) -> Errors:
        released, single = _released(distribution, values, prior)
        if walk is None:
            return Errors(raw, released, single, None)
        chosen = np.argmax(
            generator.random(len(walk))[:, None] < np.cumsum(distribution.probabilities, axis=1)[walk], axis=1
        )
        return Errors(raw, released, single, _tracked(spec, prior, walk, distribution.probabilities.T[chosen]))

    errors = {
        "laplace": continuous(
            math.sqrt(laplace_error(values, graph, epsilon)),
            lambda size: generator.laplace(scale=scale, size=(size, values.shape[1])),
            lambda offsets: np.abs(offsets).sum(axis=-1) / scale,
        ),
        "knorm": continuous(
            math.sqrt(noise_error(hull, Fraction(epsilon))),
            lambda size: draw_knorm(hull, epsilon, size, generator),
            lambda offsets: epsilon * float_gauge(hull, offsets),
        ),
    }
    reasons: dict[str, str] = {}
    if noise is not None:
        if spec.mechanism == "optimal":
            errors["optimal"] = compiled(None, emission(noise, values))
            noise = compile_noise(hull, values, worst.possible, epsilon, worst.likely)
        errors["staircase"] = compiled(_staircase_error(hull, epsilon), emission(noise, values))
    if "optimal" not in errors and quick:
        reasons["optimal"] = QUICK
    elif "optimal" not in errors:
        try:
            best = optimum(spec, worst, prior)
        except (TableError, GraphError) as error:
            reasons["optimal"] = str(error)
        else:
            distribution = Emission(
                {tuple(point): z for z, point in enumerate(best.outputs.tolist())}, best.weights / SCALE
            )
            errors["optimal"] = compiled(None, distribution)
    return errors, reasons


def _released(distribution: Emission, values: Ints, prior: Floats) -> tuple[float, float]:
    joint = prior[:, None] * distribution.probabilities
    total = joint.sum(axis=0)
    means = (joint.T @ values) / np.where(total > 0.0, total, 1.0)[:, None]

    def error(points: Floats) -> float:
        # |f - o|^2, without a matrix for each dimension
        squares = np.sum(values**2, axis=1)[:, None] - 2.0 * values @ points.T + np.sum(points**2, axis=1)
        return math.sqrt(max(0.0, float(np.sum(joint * squares))))

    return error(np.array(list(distribution.points), dtype=np.float64)), error(means)


def _staircase_error(hull: Hull, epsilon: float) -> float | None:
    if hull.scale != 1 or not (hull.rank == 1 or hull.rank == hull.dimensions == 2) or 2 * area(hull) > _MOST_CLASSES:
        return None
    return math.sqrt(staircase_error(staircase(hull, epsilon)))


def draws(states: int) -> int:
    """How many ticks to simulate."""
    return max(_LEAST_DRAWS, min(_MOST_DRAWS, _MOST_CELLS // states))


def walk_of(transition: Floats, distribution: Floats, generator: np.random.Generator) -> Ints:
    """A path of the chain, from a distribution."""
    steps = np.cumsum(transition, axis=1)
    path = np.empty(draws(len(distribution)) // 2, dtype=np.int64)
    state = int(generator.choice(len(distribution), p=distribution))
    for tick, lot in enumerate(generator.random(len(path)).tolist()):
        path[tick] = state
        state = min(int(np.searchsorted(steps[state], lot * steps[state, -1], side="right")), len(distribution) - 1)
    return path


def _likelihoods(values: Ints, path: Ints, noise: Floats, cost: Callable[[Floats], Floats]) -> Floats:
    """(n, N) likelihoods of a path's noisy points under each state, up to a factor.

    `values` are (N, d), the added noise (n, d); `cost` is minus the log-density of offsets, up to a constant.
    """
    points = values[path] + noise
    rows = []
    for part in np.array_split(points, max(1, len(points) * len(values) // _CELLS_AT_ONCE)):
        costs = cost(part[:, None, :] - values[None, :, :])
        rows.append(np.exp(costs.min(axis=1, keepdims=True) - costs))
    return np.concatenate(rows)


def _tracked(spec: MeasureSpec, distribution: Floats, path: Ints, likelihoods: Floats) -> float:
    """The root-mean-square error of a gateway that filters a path, once it has begun."""
    beliefs = lagged(distribution, spec.transition, list(likelihoods), 0)
    begun = len(path) // 20
    return rms(beliefs[begun:] @ spec.values - spec.values[path[begun:]])


def rms(errors: Floats) -> float:
    """The root of the mean squared length of errors (n, d)."""
    return math.sqrt(float(np.mean(np.sum(errors**2, axis=1))))
