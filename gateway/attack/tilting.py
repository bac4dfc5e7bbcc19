"""Smoothing from counts of long windows, approximately."""

from __future__ import annotations

import numpy as np

from gateway.attack.outputs import CountOutputs
from gateway.chain import posterior_marginals
from gateway.chain.arrays import Floats, Ints

__all__ = ["tilted_marginals"]

_ROUNDS = 30
_GRAIN = 64


def tilted_marginals(
    outputs: CountOutputs, symbols: Ints, table: Floats, initial: Floats, transition: Floats, lengths: Ints
) -> Floats:
    """Posteriors when every window multiplies the odds of its counted states by the same factor on all its ticks.

    The factor is e^(what a tick more or less would change the log-likelihood of the released count by), at the count
    that is expected given everything; noise of scale s counts as normal with variance 2 s^2, but never says more than
    1/s a tick. For long windows the count concentrates, and this is its posterior's leading term.

    Args:
        outputs: the counts.
        symbols: (n,) symbols beside them, known states included.
        table: (k, m) of those.
        initial: (k,).
        transition: (k, k).
        lengths: ticks of each stretch.

    Returns:
        (n, k) probabilities.
    """
    scale = float(outputs.scale)
    windows, k = outputs.windows(), outputs.states
    inside = windows >= 0
    weights = inside & (outputs.present > 0)
    m = table.shape[1]
    # Soft evidence takes further symbols: a grid of factors from -1/s to 1/s; symbols are kept beside them.
    grid = np.linspace(-1 / scale, 1 / scale, 2 * _GRAIN + 1)
    soft = np.ones((k, grid.size))
    soft[list(outputs.counted)] = np.exp(grid)
    joint = (np.concatenate([table, np.ones((k, 1))], axis=1)[:, :, None] * soft[:, None, :]).reshape(k, -1)
    bulk = joint.sum(axis=1)
    joint = np.hstack([joint, (bulk.max() - bulk)[:, None]]) / bulk.max()
    tilts = np.zeros(outputs.counts.size)
    lowest, highest = np.full(tilts.size, -1 / scale), np.full(tilts.size, 1 / scale)
    marginals = np.empty((0, k))
    for _ in range(_ROUNDS):
        cell = np.rint((tilts + 1 / scale) * scale * _GRAIN).astype(np.int64)
        codes = np.where(symbols < 0, m, symbols) * grid.size + np.where(weights, cell[windows], _GRAIN)
        marginals = posterior_marginals(codes, initial, transition, joint, lengths=lengths)
        counted = marginals[:, list(outputs.counted)].sum(axis=1)
        expected = np.bincount(windows[weights], counted[weights], tilts.size)
        wanted = np.clip((outputs.counts - expected) / (2 * scale**2), -1 / scale, 1 / scale)
        # What is expected rises with the tilt and what is wanted falls with it: halve the interval between them.
        lowest, highest = np.where(wanted > tilts, tilts, lowest), np.where(wanted < tilts, tilts, highest)
        settled = np.rint((lowest + 1 / scale) * scale * _GRAIN) + 1 >= np.rint((highest + 1 / scale) * scale * _GRAIN)
        if settled.all():
            break
        tilts = (lowest + highest) / 2
    return marginals
