"""Smoothing from counts of long windows, approximately."""

from __future__ import annotations

import numpy as np

from gateway.attack.outputs import CountOutputs
from gateway.chain import posterior_marginals
from gateway.chain.arrays import Floats, Ints

__all__ = ["tilted_marginals"]

_ROUNDS = 40


def tilted_marginals(
    outputs: CountOutputs, symbols: Ints, table: Floats, initial: Floats, transition: Floats, lengths: Ints
) -> Floats:
    """Posteriors when each count multiplies the odds of its states by the same factor on all ticks of its window.

    The factor is e^(what one more tick would change the log-likelihood of the released count by), at the count that is
    expected given everything; noise of scale s is taken for normal with variance 2 s^2, but never says more than 1/s a
    tick. In long windows counts concentrate, and this is the leading term of the posterior.

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
    members = np.array([[x in group for x in range(outputs.states)] for group in outputs.groups], dtype=np.float64)
    windows, w = outputs.windows(), len(outputs.counts)
    cells = np.where((outputs.present > 0) & (windows >= 0), windows, w)
    codes = np.where(symbols < 0, table.shape[1], symbols) * (w + 1) + cells
    seen = np.concatenate([table, np.ones((outputs.states, 1))], axis=1)
    # A step towards the wanted tilt that is short enough never to overshoot: a count's variance is at most this.
    second = float(np.sort(np.abs(np.linalg.eigvals(transition)))[-2])
    variance = min(outputs.length**2, outputs.length * (1 + second) / max(1 - second, 1e-9)) / 4
    step = 1 / (1 + variance / (2 * scale**2))
    tilts = np.zeros(outputs.counts.shape)
    for _ in range(_ROUNDS):
        factors = np.exp(np.vstack([tilts @ members, np.zeros((1, outputs.states))]).T)
        joint = (seen[:, :, None] * factors[:, None, :]).reshape(outputs.states, -1)
        joint /= joint.sum(axis=1).max() * (1 + 1e-12)  # a further symbol, which is never seen, makes rows laws
        joint = np.hstack([joint, 1 - joint.sum(axis=1, keepdims=True)])
        marginals = posterior_marginals(codes, initial, transition, joint, lengths=lengths)
        expected = np.array([np.bincount(cells, marginals @ group, w + 1)[:w] for group in members]).T
        wanted = np.clip((outputs.counts - expected) / (2 * scale**2), -1 / scale, 1 / scale)
        tilts += step * (wanted - tilts)
        if np.abs(wanted - tilts).max(initial=0.0) < 1e-3 / scale:
            break
    return marginals
