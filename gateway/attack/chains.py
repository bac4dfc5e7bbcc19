"""Attackers who believe a chain: a single output at a time, all outputs (forward-backward), the most probable path."""

from __future__ import annotations

import numpy as np

from gateway.attack.knowledge import Knowledge
from gateway.attack.outputs import CountOutputs, Outputs, SymbolOutputs
from gateway.attack.tilting import tilted_marginals
from gateway.chain import posterior_marginals, viterbi
from gateway.chain.arrays import Floats, Ints
from gateway.chain.counting import count_marginals

__all__ = ["hard", "path", "single", "smoothing", "smoothing_with"]

EXACT_TICKS = 1000
"""Windows up to this length are smoothed exactly: time and memory grow with its square."""


def single(outputs: Outputs, knowledge: Knowledge) -> Floats:
    """An attacker who takes ticks for independent: each symbol, or each window, for itself."""
    law = knowledge.law
    return smoothing_with(outputs, knowledge, law, np.tile(law, (law.size, 1)))


def smoothing(outputs: Outputs, knowledge: Knowledge) -> Floats:
    """An attacker who believes a chain and uses every output (forward-backward)."""
    return smoothing_with(outputs, knowledge, knowledge.law, knowledge.transition)


def path(outputs: Outputs, knowledge: Knowledge) -> Floats:
    """An attacker who names the most probable path under the believed chain (Viterbi): probabilities 0 and 1."""
    assert isinstance(outputs, SymbolOutputs)
    symbols, table = knowledge.learn_from(outputs.symbols, outputs.emission)
    if np.all(symbols < 0):
        return smoothing(outputs, knowledge)
    decoded = viterbi(symbols, knowledge.law, knowledge.transition, table, lengths=knowledge.lengths)
    return hard(decoded.states, table.shape[0])


def hard(states: Ints, k: int) -> Floats:
    """Probabilities (n, k) of someone who is certain of a state at every tick."""
    return np.eye(k)[states]


def smoothing_with(outputs: Outputs, knowledge: Knowledge, initial: Floats, transition: Floats) -> Floats:
    """Posteriors (n, k) under a chain, given outputs and known states.

    Args:
        outputs: what was released; one count (or two states' histogram) of windows up to 1,000 ticks exactly, what is
            longer or has more counts by `tilted_marginals`.
        knowledge: the known states and the stretches.
        initial: (k,) law at the beginning of a stretch.
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
