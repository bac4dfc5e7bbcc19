"""Following measured streams: what released points tell of the state, and of its measurement."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fugu.chains.arrays import Floats
from fugu.chains.tracking import Seen, Transition, fixed_lag, follow

__all__ = ["lagged", "moments", "seen_alone", "warm"]


def seen_alone(likelihoods: Sequence[Floats | None], states: int) -> list[Seen]:
    """Outputs of a single device at consecutive ticks; likelihoods are (N,), None where nothing is known."""
    nothing, first = Seen.nothing(1, states), np.zeros(1, dtype=np.int64)
    rows = (None if one is None else np.ascontiguousarray(one, dtype=np.float64)[None] for one in likelihoods)
    return [nothing if row is None else Seen(row, first) for row in rows]


def lagged(distribution: Floats, transition: Floats, likelihoods: Sequence[Floats | None], lag: int) -> Floats:
    """The distributions (n, N) of consecutive ticks of one stream, each given the points up to `lag` ticks later.

    `distribution` (N,) is of the state at the first tick, given everything before; likelihoods as for `seen_alone`.
    """
    seen = seen_alone(likelihoods, len(distribution))
    steps = [Transition.of(transition)] * (len(seen) - 1)
    return fixed_lag(follow(distribution[None], steps, seen), steps, seen, lag)[:, 0]


def moments(beliefs: Floats, values: Floats) -> tuple[Floats, Floats]:
    """Means (n, d) and covariances of a measurement (N, d) under each of n distributions (n, N).

    Covariances are (n, d (d + 1) / 2): the entries on and above the diagonal, row by row.
    """
    means = beliefs @ values
    upper = np.triu_indices(values.shape[1])
    centred = values[None, :, :] - means[:, None, :]
    covariances = np.einsum("tn,tni,tnj->tij", beliefs, centred, centred)
    return means, covariances[:, *upper]


def warm() -> None:
    """Compile the kernels for every form of a matrix, so that the first frame does not wait for it."""
    for matrix in (np.eye(64), np.eye(64)[np.arange(64) * 27 % 64], np.full((64, 64), 1.0 / 64.0)):
        lagged(matrix[0], matrix, [np.ones(64), None], 1)
