"""The DPHMM paper on sequences and on several queries, as far as no program needs it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike

from fugu.chains.arrays import Bools, Floats, Ints
from fugu.contract.losses import OUTWARD
from fugu.places.composition import any_pair_loss
from fugu.places.graphs import GraphError, lattice
from fugu.places.hull import Hull

__all__ = ["joint_epsilon", "joint_loss", "sequence_epsilon", "stacked", "staircase_loss", "trajectory_loss"]

MOST_DIMENSIONS = 3
_UP = 1.0 + OUTWARD


def staircase_loss(hull: Hull, values: Ints, epsilon: float) -> Floats:
    """The per-tick loss of staircase noise: epsilon * ceil(gauge(f(i) - f(j))), f N x d.

    Not epsilon times the gauge: the power of the ratio is a whole number. So two states half a gauge apart differ at
    some output by a full step.

    Returns:
        N x N in nats, rounded up; infinite off the span of K.
    """
    powers = np.array([hull.ceil_gauges(value - values) for value in values])
    return np.asarray(np.where(powers < 0, np.inf, powers * (epsilon * _UP)), dtype=np.float64)


def joint_loss(losses: Sequence[Floats]) -> Floats:
    """Theorem 7.1, corrected: the loss (N, N), rounded up, of several independent releases of one tick, pair by pair.

    It is exact: outputs are drawn independently, so the worst of each can come together. As printed the theorem adds
    the epsilons. That is false for definition 4.4 when a state's partner differs from release to release. No one state
    is then close to it for all of them. What holds is the least epsilon of this sum; one release of the stacked
    query is usually better.
    """
    return np.asarray(np.sum(losses, axis=0) * _UP, dtype=np.float64)


def joint_epsilon(protected: Sequence[Bools], epsilons: Sequence[float]) -> float:
    """Theorem 7.1 where it is true: epsilons of releases that protect the same pairs add up, for those; rounded up.

    Raises:
        GraphError: The releases of the tick protect different pairs.
    """
    if any(not np.array_equal(pairs, protected[0]) for pairs in protected[1:]):
        raise GraphError(
            "epsilons add up only over releases that protect the same pairs: use joint_loss, or stack them"
        )
    return math.fsum(epsilons) * _UP


def trajectory_loss(losses: Sequence[Floats], first: Sequence[int], second: Sequence[int]) -> float:
    """Theorem 7.2, exactly: what n releases, with losses N x N, reveal between two trajectories of n states.

    It says nothing of an adversary who knows how states follow one another and asks about one tick: for that there is
    `stream_loss`.

    Returns:
        The largest log of the likelihood of all outputs under the first over that under the second, rounded up.
    """
    return math.fsum(loss[i, k] for loss, i, k in zip(losses, first, second, strict=True)) * _UP


def sequence_epsilon(epsilons: Sequence[float], factors: Sequence[Fraction | int | float]) -> float:
    """Theorem 7.2 as a bound: the sum over ticks of epsilon times theorem 6.3's factor.

    It holds between any two trajectories inside the constraint sets; factors count as for `any_pair_loss`. Like every
    bound of a sequence, it grows with the number of ticks.
    """
    return math.fsum(any_pair_loss(*pair) for pair in zip(epsilons, factors, strict=True)) * _UP


def stacked(*queries: ArrayLike) -> Ints:
    """Several queries as one: each state's answers side by side, to be released together as one point.

    Args:
        queries: each N x d' integers, or N for d' = 1; for the same states in the same order.

    Returns:
        N x d integers, d the sum of the dimensions.

    Raises:
        GraphError: There is no query, they are for different numbers of states, a query is refused by `lattice`, or
            there are more than three dimensions in all.
    """
    points = [lattice(query) for query in queries]
    if len({len(query) for query in points}) != 1:
        raise GraphError(f"queries answered at once need the same states, got {[len(query) for query in points]}")
    total = sum(query.shape[1] for query in points)
    if total > MOST_DIMENSIONS:
        raise GraphError(
            f"queries answered at once have at most {MOST_DIMENSIONS} dimensions together, not {total}: "
            "release fewer, or none that another one tells already"
        )
    return np.concatenate(points, axis=1)
