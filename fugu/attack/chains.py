"""Attackers who believe a chain: a single output at a time, all outputs (forward-backward), the most probable path.

Smoothing from counts of long windows is approximate.
"""

from __future__ import annotations

import numpy as np

from fugu.attack.outputs import CountOutputs, Knowledge, Outputs, SymbolOutputs
from fugu.chains import posterior_marginals, viterbi
from fugu.chains.arrays import Floats, Ints
from fugu.chains.counting import count_marginals

__all__ = ["hard", "path", "single", "smoothing"]

EXACT_TICKS = 1000
"""Windows up to this length are smoothed exactly: time and memory grow with its square."""


def single(outputs: Outputs, knowledge: Knowledge) -> Floats:
    """An attacker who takes ticks for independent: each symbol, or each window, for itself."""
    distribution = knowledge.distribution
    return smoothing_with(outputs, knowledge, distribution, np.tile(distribution, (distribution.size, 1)))


def smoothing(outputs: Outputs, knowledge: Knowledge) -> Floats:
    """An attacker who believes a chain and uses every output (forward-backward)."""
    return smoothing_with(outputs, knowledge, knowledge.distribution, knowledge.transition)


def path(outputs: Outputs, knowledge: Knowledge) -> Floats:
    """An attacker who names the most probable path under the believed chain (Viterbi): probabilities 0 and 1."""
    assert isinstance(outputs, SymbolOutputs)
    symbols, table = knowledge.learn_from(outputs.symbols, outputs.emission)
    if np.all(symbols < 0):
        return smoothing(outputs, knowledge)
    decoded = viterbi(symbols, knowledge.distribution, knowledge.transition, table, lengths=knowledge.lengths)
    return hard(decoded.states, table.shape[0])


def hard(states: Ints, k: int) -> Floats:
    """Probabilities (n, k) of someone who is certain of a state at every tick."""
    return np.eye(k)[states]


def smoothing_with(outputs: Outputs, knowledge: Knowledge, initial: Floats, transition: Floats) -> Floats:
    """Posteriors (n, k) under a chain, given outputs and known states.

    Args:
        outputs: what was released; one count (or two states' histogram) of windows up to 1,000 ticks exactly, what is
            longer or has more counts by `tilted_marginals`.
        initial: (k,) distribution at the beginning of a stretch.
        transition: (k, k) row-stochastic.
    """
    seen = outputs.seen() if isinstance(outputs, CountOutputs) else outputs
    symbols, table = knowledge.learn_from(seen.symbols, seen.emission)
    if isinstance(outputs, SymbolOutputs) or not outputs.counts.size:
        return posterior_marginals(symbols, initial, transition, table, lengths=knowledge.lengths)
    whole = outputs.present.all()
    if outputs.length > EXACT_TICKS or not (len(outputs.groups) == 1 or (outputs.states == 2 and whole)):
        return tilted_marginals(outputs, symbols, table, initial, transition, knowledge.lengths)
    adds = np.zeros((outputs.ticks, outputs.states), dtype=np.int64)
    adds[:, outputs.groups[-1]] = outputs.present[:, None]
    # Of two states, the other one's count is what is left.
    counts = np.arange(outputs.length + 1)
    distance = np.abs(outputs.counts[:, -1:] - counts)
    if len(outputs.groups) == 2:
        distance += np.abs(outputs.counts[:, :1] - (outputs.length - counts))
    likelihoods = np.exp(-(distance - distance.min(axis=1, keepdims=True)) / float(outputs.scale))
    windows = outputs.windows()
    return count_marginals(symbols, initial, transition, table, windows, adds, likelihoods, lengths=knowledge.lengths)


_ROUNDS = 40


def tilted_marginals(
    outputs: CountOutputs, symbols: Ints, table: Floats, initial: Floats, transition: Floats, lengths: Ints
) -> Floats:
    """Posteriors when each count multiplies the odds of its states by the same factor on all ticks of its window.

    The factor is e^(what one more tick would change the log-likelihood of the released count by), at the count that is
    expected given everything; noise of scale s is taken for normal with variance 2 s^2, but never says more than 1/s a
    tick. In long windows counts concentrate, and this is the leading term of the posterior.

    Args:
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
        joint /= joint.sum(axis=1).max() * (
            1 + 1e-12
        )  # a further symbol, which is never seen, makes rows distributions
        joint = np.hstack([joint, 1 - joint.sum(axis=1, keepdims=True)])
        marginals = posterior_marginals(codes, initial, transition, joint, lengths=lengths)
        expected = np.array([np.bincount(cells, marginals @ group, w + 1)[:w] for group in members]).T
        wanted = np.clip((outputs.counts - expected) / (2 * scale**2), -1 / scale, 1 / scale)
        tilts += step * (wanted - tilts)
        if np.abs(wanted - tilts).max(initial=0.0) < 1e-3 / scale:
            break
    return marginals
