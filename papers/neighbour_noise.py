"""LocalDP, which no device draws: K-norm noise of each state's own hull, and what one of its points tells an attacker.

That hull is of all differences among the state and its neighbours in the policy graph. The point then lies in f(s) plus
the span of that hull. Where two states have different such planes, it lies on one of them only, but for points of
probability 0. The plane names the states that share it, for certain. In a path of three cells whose two steps have
different directions, every state is alone on its plane.

Beside it, noise that other papers draw: continuous K-norm noise, by a hull, and Laplace noise in every coordinate.

Source: DPHMM, section 10, example 10.8 (which needs the path s4 - s6 - s5: a clique gives all three one hull).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from fugu.chains.arrays import Bools, Floats, Ints
from fugu.places.graphs import GraphError
from fugu.places.hull import Hull, complete_hull

__all__ = [
    "attack_points",
    "draw_knorm",
    "float_gauge",
    "l1_sensitivity",
    "laplace_error",
    "local_hulls",
    "local_points",
    "measure",
    "planes",
    "point_densities",
]


def draw_knorm(hull: Hull, epsilon: float, size: int, generator: np.random.Generator) -> Floats:
    """Draw continuous K-norm noise, size x d, for simulation: a gamma radius times a uniform point of K."""
    if hull.rank == 0:
        return np.zeros((size, hull.dimensions))
    pieces = list(hull.simplices())
    corners = np.array([chosen for chosen, _ in pieces], dtype=np.float64) / hull.scale
    weights = np.array([weight for _, weight in pieces], dtype=np.float64)
    chosen = generator.choice(len(pieces), size=size, p=weights / weights.sum())
    # uniform in a simplex with a corner at 0: Dirichlet weights, the one of 0 dropped
    shares = generator.dirichlet(np.ones(hull.rank + 1), size=size)[:, : hull.rank]
    radius = generator.gamma(hull.rank + 1, 1.0 / epsilon, size=size)
    noise: Floats = radius[:, None] * np.einsum("nr,nrd->nd", shares, corners[chosen])
    return noise


def float_gauge(hull: Hull, points: Floats) -> Floats:
    """The gauges of ... x d points of the span, in floating point: for forecasts only; 0 for a hull that is a point."""
    sides = (hull.scale * hull.normals / hull.offsets[:, None]).T
    return np.asarray((points @ sides).max(axis=-1, initial=0.0), dtype=np.float64)


def l1_sensitivity(values: Ints, graph: Bools) -> int:
    """The largest |f(i) - f(j)|_1 over the edges of a graph (N x N, within the constraint set); 0 without edges."""
    first, second = np.nonzero(np.triu(graph, 1))
    return int(np.abs(values[first] - values[second]).sum(axis=1).max(initial=0))


def laplace_error(values: Ints, graph: Bools, epsilon: float) -> float:
    """E|n|^2 of Laplace noise in every coordinate: 2 d S^2 / epsilon^2, S the L1 sensitivity.

    In one or two dimensions it is never below the K-norm mechanism's; in three it can be (corollary 5.1 is false).
    """
    if not 0.0 < epsilon < math.inf:
        raise GraphError(f"epsilon must be above 0 and finite, got {epsilon}")
    return float(2.0 * values.shape[1] * (l1_sensitivity(values, graph) / epsilon) ** 2)


def measure(hull: Hull) -> float:
    """The length, area or volume of K within its own span; 1 for the point 0."""
    total = 0.0
    for chosen, _ in hull.simplices():
        gram = [[sum(a * b for a, b in zip(left, right, strict=True)) for right in chosen] for left in chosen]
        total += math.sqrt(float(np.linalg.det(np.array(gram, dtype=np.float64))))
    return total / (math.factorial(hull.rank) * float(hull.scale) ** hull.rank) if hull.rank else 1.0


def local_hulls(values: Ints, graph: Bools) -> tuple[Hull, ...]:
    """The hull of each state's own noise; f is (N, d), the policy graph among these states (N, N)."""
    hulls: dict[bytes, Hull] = {}
    chosen = []
    for state in range(len(values)):
        near = values[graph[state] | (np.arange(len(values)) == state)]
        moved = np.unique(near - near.min(axis=0), axis=0)
        chosen.append(hulls.setdefault(moved.tobytes(), complete_hull(moved)))
    return tuple(chosen)


def planes(values: Ints, hulls: tuple[Hull, ...]) -> Ints:
    """N numbers of the planes f(s) + span of the hull of s, equal for states that share their plane; f is (N, d)."""
    spans: list[Hull] = []
    numbers: dict[tuple[int, tuple[int, ...]], int] = {}
    planes = []
    for value, hull in zip(values, hulls, strict=True):
        same = (
            k for k, span in enumerate(spans) if span.rank == hull.rank and not (hull.vertices @ span.equations.T).any()
        )
        number = next(same, len(spans))
        if number == len(spans):
            spans.append(hull)
        key = number, tuple((spans[number].equations @ value).tolist())
        planes.append(numbers.setdefault(key, len(numbers)))
    return np.array(planes, dtype=np.int64)


def local_points(
    values: Ints, hulls: tuple[Hull, ...], epsilon: float, path: Ints, generator: np.random.Generator
) -> Floats:
    """Draw a point for each state of a path, n x d, with the noise of that state's hull."""
    points = values[path].astype(np.float64)
    for state in np.unique(path).tolist():
        at = path == state
        points[at] += draw_knorm(hulls[state], epsilon, int(at.sum()), generator)
    return points


def point_densities(values: Ints, hulls: tuple[Hull, ...], epsilon: float, path: Ints, points: Floats) -> Floats:
    """The log-density of each point under each state, n x N, for points that `local_points` drew.

    It is to a plane's own length, area or volume; minus infinity off it, and under states of other planes.
    """
    plane = planes(values, hulls)
    densities = np.full((len(points), len(values)), -np.inf)
    for state, hull in enumerate(hulls):
        at = plane[path] == plane[state]
        normaliser = math.lgamma(hull.rank + 1) + math.log(measure(hull)) - hull.rank * math.log(epsilon)
        densities[at, state] = -epsilon * float_gauge(hull, points[at] - values[state]) - normaliser
    return densities


class PointAttack(NamedTuple):
    """Naming the likeliest state: the share of points `named` rightly, and of those that only one state can release."""

    named: float
    certain: float


def attack_points(prior: Floats, truth: Ints, log_densities: Floats) -> PointAttack:
    """Name the state with the largest posterior probability, for each of n points.

    The `log_densities` (n, N) are up to a constant per point, minus infinity where a state cannot have released it.
    """
    with np.errstate(divide="ignore"):
        posterior = log_densities + np.log(prior)
    possible = np.count_nonzero(posterior > -np.inf, axis=1)
    return PointAttack(float(np.mean(posterior.argmax(axis=1) == truth)), float(np.mean(possible == 1)))
