"""LocalDP, which no device draws: K-norm noise of each state's own hull, and what one of its points tells an attacker.

That hull is of all differences among the state and its neighbours in the policy graph. The point then lies in f(s) plus
the span of that hull, and where two states have different such planes, it lies on one of them only, but for points of
probability 0: the plane names the states that share it, for certain. In a path of three cells whose two steps have
different directions, every state is alone on its plane.

Source: DPHMM, section 10, example 10.8 (which needs the path s4 - s6 - s5: a clique gives all three one hull).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from fugu.chains.arrays import Bools, Floats, Ints
from fugu.places.hull import Hull, complete_hull
from fugu.places.noise import draw_knorm, float_gauge, simplices

__all__ = ["attack_points", "local_hulls", "local_points", "measure", "planes", "point_densities"]


def measure(hull: Hull) -> float:
    """The length, area or volume of K within its own span; 1 for the point 0."""
    total = 0.0
    for chosen, _ in simplices(hull):
        gram = [[sum(a * b for a, b in zip(left, right, strict=True)) for right in chosen] for left in chosen]
        total += math.sqrt(float(np.linalg.det(np.array(gram, dtype=np.float64))))
    return total / (math.factorial(hull.rank) * float(hull.scale) ** hull.rank) if hull.rank else 1.0


def local_hulls(values: Ints, graph: Bools) -> tuple[Hull, ...]:
    """The hull of each state's own noise; f is (N, d), the policy graph among these states (N, N)."""
    made: dict[bytes, Hull] = {}
    found = []
    for state in range(len(values)):
        near = values[graph[state] | (np.arange(len(values)) == state)]
        moved = np.unique(near - near.min(axis=0), axis=0)
        found.append(made.setdefault(moved.tobytes(), complete_hull(moved)))
    return tuple(found)


def planes(values: Ints, hulls: tuple[Hull, ...]) -> Ints:
    """N numbers of the planes f(s) + span of the hull of s, equal for states that share their plane; f is (N, d)."""
    spans: list[Hull] = []
    numbers: dict[tuple[int, tuple[int, ...]], int] = {}
    found = []
    for value, hull in zip(values, hulls, strict=True):
        same = (
            k for k, span in enumerate(spans) if span.rank == hull.rank and not (hull.vertices @ span.equations.T).any()
        )
        number = next(same, len(spans))
        if number == len(spans):
            spans.append(hull)
        key = number, tuple((spans[number].equations @ value).tolist())
        found.append(numbers.setdefault(key, len(numbers)))
    return np.array(found, dtype=np.int64)


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
    found = np.full((len(points), len(values)), -np.inf)
    for state, hull in enumerate(hulls):
        at = plane[path] == plane[state]
        normaliser = math.lgamma(hull.rank + 1) + math.log(measure(hull)) - hull.rank * math.log(epsilon)
        found[at, state] = -epsilon * float_gauge(hull, points[at] - values[state]) - normaliser
    return found


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
