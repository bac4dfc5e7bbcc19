"""Continuous noise for measurements, for comparison: the K-norm mechanism, Laplace, and randomised response.

The K-norm mechanism of Hardt and Talwar has the density exp(-epsilon gauge(v)) on the span of K. It draws floats, so
it never runs on a device: the staircase and certified tables do. Errors are E|n|^2, in squared lattice steps.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike

from gateway.chain.arrays import Bools, Floats, Ints
from gateway.dphmm.graphs import GraphError
from gateway.dphmm.hull import Hull, gauge
from gateway.dphmm.moments import measure, simplices

__all__ = ["draw_knorm", "knorm_log_density", "l1_sensitivity", "laplace_error", "randomised_response_error"]


def knorm_log_density(hull: Hull, epsilon: float, offset: Sequence[int | Fraction]) -> float:
    """The log-density of K-norm noise, with respect to length, area or volume within the span of K.

    Args:
        hull: K.
        epsilon: above 0.
        offset: z - f(x), d exact numbers.

    Returns:
        -epsilon gauge - log(rank! measure(K) / epsilon^rank), or -inf outside the span.
    """
    normaliser = math.lgamma(hull.rank + 1) + math.log(measure(hull)) - hull.rank * math.log(epsilon)
    return -epsilon * float(gauge(hull, offset)) - normaliser


def draw_knorm(hull: Hull, epsilon: float, size: int, generator: np.random.Generator) -> Floats:
    """Draw continuous K-norm noise: a gamma radius times a uniform point of K.

    Args:
        hull: K.
        epsilon: above 0.
        size: draws.
        generator: of randomness; simulation only.

    Returns:
        size x d.
    """
    if hull.rank == 0:
        return np.zeros((size, hull.dimensions))
    pieces = list(simplices(hull))
    corners = np.array([chosen for chosen, _ in pieces], dtype=np.float64) / hull.scale
    weights = np.array([weight for _, weight in pieces], dtype=np.float64)
    chosen = generator.choice(len(pieces), size=size, p=weights / weights.sum())
    # uniform in a simplex with a corner at 0: Dirichlet weights, the one of 0 dropped
    shares = generator.dirichlet(np.ones(hull.rank + 1), size=size)[:, : hull.rank]
    radius = generator.gamma(hull.rank + 1, 1.0 / epsilon, size=size)
    noise: Floats = radius[:, None] * np.einsum("nr,nrd->nd", shares, corners[chosen])
    return noise


def l1_sensitivity(values: Ints, graph: Bools) -> int:
    """The largest |f(i) - f(j)|_1 over the edges of a graph (N x N, within the constraint set); 0 without edges."""
    first, second = np.nonzero(np.triu(graph, 1))
    return int(np.abs(values[first] - values[second]).sum(axis=1).max(initial=0))


def laplace_error(values: Ints, graph: Bools, epsilon: float) -> float:
    """E|n|^2 of Laplace noise in every coordinate: 2 d S^2 / epsilon^2, S the L1 sensitivity.

    In one or two dimensions it is never below the K-norm mechanism's; in three it can be (corollary 5.1 is false).
    """
    _check(epsilon)
    return float(2.0 * values.shape[1] * (l1_sensitivity(values, graph) / epsilon) ** 2)


def randomised_response_error(values: Ints, epsilon: float, prior: ArrayLike | None = None) -> float:
    """The mean squared error of naming the true state with odds e^epsilon to 1 against each other one.

    Args:
        values: f of the states that the answer may name, n x d.
        epsilon: above 0; it then protects every pair.
        prior: n probabilities of the true state; uniform by default.

    Returns:
        E|f(answer) - f(state)|^2.
    """
    _check(epsilon)
    count = len(values)
    law = np.full(count, 1.0 / count) if prior is None else np.asarray(prior, dtype=np.float64)
    away = np.sum((values[:, None, :] - values[None, :, :]) ** 2, axis=2)
    return float(law @ away.sum(axis=1)) / (math.exp(epsilon) + count - 1)


def _check(epsilon: float) -> None:
    if not 0.0 < epsilon < math.inf:
        raise GraphError(f"epsilon must be above 0 and finite, got {epsilon}")
