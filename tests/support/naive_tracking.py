"""The naive twin of `fugu.chains.tracking`, in numpy and scipy: a step at a time.

A release enters as its likelihood (N,) under each state, and every tick may have a transition of its own. Ticks without
a release are gaps; one that no possible state can release counts as none.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import log
from typing import NamedTuple, TypeAlias

import numpy as np
from scipy.sparse import csr_array

from fugu.chains.arrays import Floats
from fugu.chains.messages import LIFT

__all__ = ["Steps", "Tracking", "fixed_lag", "follow", "stepping"]

_HIGH = LIFT**9
"""The factor that keeps products of small numbers from vanishing."""
_SPARSE = 0.1
"""The share of entries other than 0 below which products with a sparse matrix are quicker."""

Steps: TypeAlias = Sequence[Floats | csr_array]
"""The transition (N, N) from each tick to the next one."""


def stepping(transition: Floats) -> Floats | csr_array:
    """A transition in the form in which products with it are quick."""
    return csr_array(transition) if np.count_nonzero(transition) < _SPARSE * transition.size else transition


class Tracking(NamedTuple):
    """Result of the forward pass.

    Attributes:
        beliefs: (n, N), the distributions at each tick given everything released up to it.
        log_likelihoods: (n,), log probability of what was released, given all before; 0 if that is nothing.
        counting: (n, N) likelihoods of what some possible state can release, else ones.
    """

    beliefs: Floats
    log_likelihoods: Floats
    evidence: Floats


def follow(distribution: Floats, steps: Steps, likelihoods: Sequence[Floats | None]) -> Tracking:
    """Filter n >= 1 consecutive ticks: the forward pass; `None` is a tick without a release.

    The `distribution` (N,) is that of the first tick, given everything before; there are n - 1 `steps`. Raises
    ValueError for bad shapes, or if no state is possible at some tick.
    """
    if len(steps) != len(likelihoods) - 1:
        raise ValueError(f"{len(likelihoods)} ticks have {len(likelihoods) - 1} steps between them, not {len(steps)}")
    beliefs, logs = np.empty((len(likelihoods), len(distribution))), np.zeros(len(likelihoods))
    evidence = np.ones_like(beliefs)
    for tick, likelihood in enumerate(likelihoods):
        before = beliefs[tick - 1] @ steps[tick - 1] if tick else distribution
        if not (total := float(before.sum())) > 0.0:
            raise ValueError(f"no state is possible at tick {tick}")
        beliefs[tick] = before / total
        if likelihood is not None:
            joint, mass = _weighed(before, likelihood)
            if mass.item() > 0.0:
                beliefs[tick], evidence[tick], logs[tick] = joint, likelihood, log(mass.item() / total) - log(_HIGH)
    return Tracking(beliefs, logs, evidence)


def _weighed(distributions: Floats, likelihoods: Floats) -> tuple[Floats, Floats]:
    """Distributions (..., N) given releases, and their mass (..., 1), lifted; those of mass 0 are 0."""
    joint = distributions * _HIGH * likelihoods
    mass = joint.sum(axis=-1, keepdims=True)
    return joint / np.where(mass > 0.0, mass, 1.0), mass


def fixed_lag(followed: Tracking, steps: Steps, lag: int, ticks: slice = slice(None)) -> Floats:
    """The distributions (n, N) of some ticks given everything released up to `lag` >= 0 ticks later, exactly.

    The last ticks use what there is; `followed` is from `follow` of the same steps.
    """
    if lag < 0:
        raise ValueError(f"lag is {lag}; it must be at least 0 ticks")
    chosen = np.arange(len(followed.beliefs))[ticks]
    messages = np.ones_like(followed.beliefs[ticks])
    kinds, kind_of = {id(step): step for step in steps}, np.array([id(step) for step in steps], dtype=np.int64)
    for ahead in range(min(lag, len(steps)), 0, -1):
        rows = np.flatnonzero(chosen + ahead <= len(steps))
        later = chosen[rows] + ahead
        weighed, mass = _weighed(messages[rows], followed.evidence[later])
        if not mass.all():
            raise ValueError("no state is possible")
        for kind, step in kinds.items():
            same = kind_of[later - 1] == kind
            messages[rows[same]] = weighed[same] @ step.T
    distributions, mass = _weighed(followed.beliefs[ticks], messages)
    return np.where(mass > 0.0, distributions, followed.beliefs[ticks])
