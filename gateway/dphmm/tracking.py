"""The forward filter of a measured stream: what released points tell of the state, and of its measurement."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from gateway.chain.arrays import Floats

__all__ = ["Filtered", "forward", "moments"]


class Filtered(NamedTuple):
    """Beliefs tick by tick.

    Attributes:
        beliefs: (n, N), the law of the state at each tick given all points released up to it.
        log_likelihoods: (n,), the logarithm of the probability of each tick's point given all before; 0 without one.
    """

    beliefs: Floats
    log_likelihoods: Floats


def forward(law: Floats, transition: Floats, likelihoods: Sequence[Floats | None]) -> Filtered:
    """Filter consecutive ticks.

    Args:
        law: (N,), the law of the state at the first tick, given everything before.
        transition: (N, N), row-stochastic.
        likelihoods: for each tick the probability (N,) of its point given each state; none where nothing is known.

    Returns:
        Beliefs and log-likelihoods. A point that no possible state can release counts as none.
    """
    beliefs = np.empty((len(likelihoods), len(law)))
    found = np.zeros(len(likelihoods))
    for tick, likelihood in enumerate(likelihoods):
        if tick:
            law = law @ transition
        if likelihood is not None:
            joint = law * likelihood
            total = float(joint.sum())
            if total > 0.0:
                found[tick] = np.log(total)
                law = joint
        law = law / law.sum()
        beliefs[tick] = law
    return Filtered(beliefs, found)


def moments(beliefs: Floats, values: Floats) -> tuple[Floats, Floats]:
    """Mean and covariance of a measurement (N, d) under each of n laws (n, N).

    Returns:
        Means (n, d), and covariances (n, d (d + 1) / 2): the entries on and above the diagonal, row by row.
    """
    means = beliefs @ values
    upper = np.triu_indices(values.shape[1])
    centred = values[None, :, :] - means[:, None, :]
    covariances = np.einsum("tn,tni,tnj->tij", beliefs, centred, centred)
    return means, covariances[:, *upper]
