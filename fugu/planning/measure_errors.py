"""What is left of a measurement: the errors of its mechanisms, in closed form where there is one, else simulated."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from fugu.chains.arrays import Floats, Ints
from fugu.contract.measure_table import Noise
from fugu.contract.noise_table import SCALE
from fugu.places.compiled import Emission, compile_noise, emission
from fugu.places.graphs import GraphError, complete
from fugu.places.hull import Hull
from fugu.places.local_noise import float_gauge
from fugu.places.moments import area, draw_knorm, l1_sensitivity, laplace_error, noise_error
from fugu.places.staircase import staircase, staircase_error
from fugu.places.tables import TableError
from fugu.places.tracking import lagged
from fugu.planning.measure_sets import SetPlan, optimum
from fugu.planning.measure_spec import MeasureSpec

__all__ = ["QUICK", "Errors", "assess", "draws", "rms", "walk_of"]

_SEED = 20202
_LEAST_DRAWS, _MOST_DRAWS = 2_000, 20_000
_MOST_CELLS = 1_000_000
_CELLS_AT_ONCE = 100_000
_MOST_CLASSES = 100_000
QUICK = "left out by --quick"
"""Why there is no number, if it would have taken long."""


class Errors(NamedTuple):
    """Root-mean-square errors of a mechanism, in lattice steps; none where they are not known.

    Attributes:
        raw: of the noise alone.
        released: of the released point, after it was clamped to where states are.
        single: of the posterior mean from one point and the prior.
        estimate: of the gateway's estimate, the posterior mean from all points so far, by simulation.
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
        single = rms(_means(prior * seen(alone), values) - values[alone])
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
    """The root-mean-square errors of the released point, and of the posterior mean."""
    joint = prior[:, None] * distribution.probabilities
    total = joint.sum(axis=0)
    means = (joint.T @ values) / np.where(total > 0.0, total, 1.0)[:, None]

    def error(points: Floats) -> float:
        # |f - o|^2, without a matrix for each dimension
        squares = np.sum(values**2, axis=1)[:, None] - 2.0 * values @ points.T + np.sum(points**2, axis=1)
        return math.sqrt(max(0.0, float(np.sum(joint * squares))))

    return error(np.array(list(distribution.points), dtype=np.float64)), error(means)


def _staircase_error(hull: Hull, epsilon: float) -> float | None:
    """The error of staircase noise itself; none for a hull without a closed form."""
    if hull.scale != 1 or not (hull.rank == 1 or hull.rank == hull.dimensions == 2) or 2 * area(hull) > _MOST_CLASSES:
        return None
    return math.sqrt(staircase_error(staircase(hull, epsilon)))


def _gauge(hull: Hull) -> Callable[[Floats], Floats]:
    """The gauge of points of the span, in floating point: for forecasts only."""
    sides = (hull.scale * hull.normals / hull.offsets[:, None]).T

    def gauge(points: Floats) -> Floats:
        return np.asarray((points @ sides).max(axis=-1), dtype=np.float64)

    return gauge


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
    """For each tick of a path, how likely its noisy point is under each state, up to a factor.

    Args:
        values: f, N x d.
        noise: n x d, added to what they measure.
        cost: minus the log-density of offsets, up to a constant.

    Returns:
        n x N.
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


def _means(joint: Floats, values: Ints) -> Floats:
    means: Floats = (joint @ values) / joint.sum(axis=1, keepdims=True)
    return means


def rms(errors: Floats) -> float:
    """The root of the mean squared length of errors (n, d)."""
    return math.sqrt(float(np.mean(np.sum(errors**2, axis=1))))
