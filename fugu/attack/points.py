"""An attacker who names the state behind one released point, from how likely the point is under each state."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fugu.chains.arrays import Floats, Ints

__all__ = ["PointAttack", "attack_points"]


class PointAttack(NamedTuple):
    """What naming the likeliest state after a point achieves.

    Attributes:
        named: share of points whose state was named rightly.
        certain: share of points that only one state can have released.
    """

    named: float
    certain: float


def attack_points(prior: Floats, truth: Ints, log_densities: Floats) -> PointAttack:
    """Name the state with the largest posterior probability, for each of n points.

    Args:
        prior: N probabilities of the states, before.
        truth: n states.
        log_densities: n x N, up to a constant for each point; minus infinity where a state cannot have released it.
    """
    with np.errstate(divide="ignore"):
        posterior = log_densities + np.log(prior)
    possible = np.count_nonzero(posterior > -np.inf, axis=1)
    return PointAttack(float(np.mean(posterior.argmax(axis=1) == truth)), float(np.mean(possible == 1)))
