"""Real loss of noisy sums over windows of a chain, by adding up every path: a judge of batch mechanisms."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from fugu.privacy.chain_class import MarkovChain
from tests.support.oracle import Array, paths_of

Release = tuple[Iterable[int], Sequence[float], float]
"""(ticks from 1, what each state adds, Laplace scale)"""


def losses(paths: npt.NDArray[np.int64], weight: Array, releases: Sequence[Release]) -> Array:
    """The largest log-likelihood ratio between two possible states of each node (n,), over every output.

    Between two neighbouring values of a sum the densities are A e^z + B e^-z, so that their ratios are monotone:
    the worst outputs are the values themselves. Beyond the outermost ones the ratio is constant.
    """
    density = weight[:, None]
    for ticks, adds, scale in releases:
        answer = np.asarray(adds, dtype=float)[paths[:, [tick - 1 for tick in ticks]]].sum(axis=1)
        kernel = np.exp(-np.abs(answer[:, None] - np.unique(answer)[None, :]) / scale)
        density = (density[:, :, None] * kernel[:, None, :]).reshape(len(paths), -1)
    losses = []
    for node in range(paths.shape[1]):
        distributions = []
        for state in np.unique(paths[:, node]):
            at = paths[:, node] == state
            if weight[at].sum() > 0:
                distributions.append(np.log(density[at].sum(axis=0) / weight[at].sum()))
        losses.append(max(float((a - b).max()) for a in distributions for b in distributions))
    return np.array(losses)


def chain_losses(chain: MarkovChain, length: int, releases: Sequence[Release]) -> Array:
    """`losses` under a chain; without an initial distribution, the worst over starts close to one state."""
    if chain.initial is not None:
        return losses(*paths_of(chain.initial, [chain.transition] * (length - 1)), releases)
    k = chain.states
    starts = np.vstack([np.eye(k) * (1 - 1e-9) + 1e-9 / k, np.full((1, k), 1 / k)])
    return np.max([losses(*paths_of(start, [chain.transition] * (length - 1)), releases) for start in starts], axis=0)
