"""Attackers who learn the chain from what was released (EM), the noise being known: it is the policy's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice

import numpy as np

from gateway.attack.chains import hard, smoothing
from gateway.attack.knowledge import Knowledge
from gateway.attack.outputs import Outputs, SymbolOutputs
from gateway.chain import Learned, baum_welch, posterior_marginals, viterbi
from gateway.chain.arrays import Floats

__all__ = ["learned", "learned_path", "regimes"]

_FIRST_ROUNDS = 15
_ROUNDS = 150
_TOLERANCE = 1e-7
_MOST_WORK = 2e9
"""Multiplications that an attacker spends; with many states and ticks it learns from fewer starts, or fewer regimes."""


def learned(outputs: Outputs, knowledge: Knowledge) -> Floats:
    """An attacker who learns a chain from the symbols, and then uses every symbol."""
    return _attack(outputs, knowledge, 1)


def learned_path(outputs: Outputs, knowledge: Knowledge) -> Floats:
    """An attacker who learns a chain from the symbols, and then names the most probable path."""
    return _attack(outputs, knowledge, 1, decode=True)


def regimes(count: int) -> Callable[[Outputs, Knowledge], Floats]:
    """An attacker who learns a chain that switches slowly between several regimes, and then uses every symbol.

    Args:
        count: of regimes; the hidden state is a regime and a state.
    """

    def attacker(outputs: Outputs, knowledge: Knowledge) -> Floats:
        return _attack(outputs, knowledge, count)

    return attacker


def _attack(outputs: Outputs, knowledge: Knowledge, regimes: int, *, decode: bool = False) -> Floats:
    assert isinstance(outputs, SymbolOutputs)
    symbols, table = knowledge.learn_from(outputs.symbols, outputs.emission)
    if np.all(symbols < 0):
        return smoothing(outputs, knowledge)
    k, lengths = outputs.states, knowledge.lengths
    rounds = int(_MOST_WORK / (2 * symbols.size * (k * regimes) ** 2))
    if rounds < 2 * _FIRST_ROUNDS and regimes > 1:
        return _attack(outputs, knowledge, regimes - 1)
    starts = list(islice(_starts(knowledge.transition, regimes), max(1, rounds // (2 * _FIRST_ROUNDS))))
    wide = np.tile(table, (regimes, 1))
    uniform = np.full(k * regimes, 1 / (k * regimes))

    def learn(transition: Floats, rounds: int, initial: Floats = uniform) -> Learned:
        return baum_welch(
            symbols, wide, lengths=lengths, initial=initial, transition=transition, iterations=rounds,
            tolerance=_TOLERANCE,
        )  # fmt: skip

    first = min(_FIRST_ROUNDS, max(3, rounds))
    best = max((learn(start, first) for start in starts), key=lambda one: one.log_likelihoods[-1])
    best = learn(best.transition, max(0, min(_ROUNDS, rounds - first * len(starts))), best.initial)
    model = (symbols, best.initial, best.transition, wide)
    if decode:
        return hard(viterbi(*model, lengths=lengths).states % k, k)
    joint = posterior_marginals(*model, lengths=lengths).reshape(-1, regimes, k)
    return np.asarray(joint.sum(axis=1))


def _starts(believed: Floats, regimes: int) -> Iterator[Floats]:
    """First guesses: the believed chain, and stickier and looser ones; or regimes of speeds, of laws, or phases."""
    k = len(believed)
    chains = [_sticky(np.full(k, 1 / k), stay) for stay in (0.5, 0.9, 0.99)]
    if regimes == 1:
        yield np.maximum(believed, 1e-6) / np.maximum(believed, 1e-6).sum(axis=1, keepdims=True)
        yield from chains
        return
    speeds = [chains[i % len(chains)] for i in range(regimes)]
    for stay in (0.99, 0.999):
        switch = _sticky(np.full(regimes, 1 / regimes), stay)
        for base in (0.5, 0.9):
            laws = [np.full(k, 0.3 / k) + 0.7 * np.eye(k)[i % k] for i in range(regimes)]
            if regimes > k:
                laws[k:] = [np.full(k, 1 / k)] * (regimes - k)
            yield _joined(switch, [_sticky(law, base) for law in laws])
        yield _joined(switch, speeds)
    # A state passes through its regimes as phases, and only then goes on to the next one: lengths of stay, and cycles.
    order = np.arange(regimes * k).reshape(regimes, k).T.ravel()
    onward = np.zeros((regimes * k, regimes * k))
    onward[order, np.roll(order, -1)] = 1.0
    for stay in (0.1, 0.8):
        yield 0.1 / (regimes * k) + 0.9 * (stay * np.eye(regimes * k) + (1 - stay) * onward)


def _sticky(law: Floats, stay: float) -> Floats:
    """A chain (k, k) with a given stationary law, which a state keeps with a probability, else draws anew."""
    return stay * np.eye(law.size) + (1 - stay) * law


def _joined(switch: Floats, chains: list[Floats]) -> Floats:
    """The chain of (regime, state), regime-major: the regime switches, and the state moves as in the new one."""
    return np.block([[switch[i, j] * chain for j, chain in enumerate(chains)] for i in range(len(chains))])
