"""The hidden Markov models of streams of symbols, as their policies give them."""

from __future__ import annotations

import math
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fugu.chains import stationary_distribution
from fugu.chains.model import likelihood_rows
from fugu.contract.chains import ChainClass
from fugu.contract.frames import symbol_bits
from fugu.contract.noise_table import SCALE, NoiseTable
from fugu.contract.policy import Policy

__all__ = ["Model", "SymbolModel", "model_of"]


Beliefs = NDArray[np.float64]
Symbols = NDArray[np.int64]


class Model(NamedTuple):
    """Numbers to estimate with, and what its states mean.

    Attributes:
        transition: (k, k), row-stochastic.
        emission: (k, m), row-stochastic; a column of ones where there are no symbols.
        rows: (m + 1, k), likelihoods of each symbol, and of none.
        initial: (k,), the stationary distribution.
        meaning: models of equal meaning have the same states on the same clock, so that a belief carries over.
        shown: (k, s), 1 for the stream's state that each state of a joint chain shows; None if they are the same.
    """

    transition: Beliefs
    emission: Beliefs
    rows: Beliefs
    initial: Beliefs
    meaning: object
    shown: Beliefs | None = None


class SymbolModel(NamedTuple):
    """One policy of symbols, windows, or both: the symbols that its frames may hold, and the bits of each."""

    policy: Policy
    allowed: bytes
    bits: int
    numbers: Model

    @classmethod
    def of(cls, policy: Policy) -> SymbolModel:
        """The model of a policy."""
        symbols = 0 if policy.table is None else policy.table.symbols
        return cls(policy, bytes(range(symbols)), symbol_bits(symbols), model_of(policy))


def model_of(policy: Policy) -> Model:
    """The model that a policy's chains and table stand for; one object for equal policies."""
    chains = policy.chains
    column = chains.column(policy.device, policy.stream)
    return _model(chains, column, policy.table, (policy.discretiser.model_dump_json(), policy.clock))


@cache
def _model(chains: ChainClass, column: int, table: NoiseTable | None, meaning: object) -> Model:
    shown = None
    states = chains.stream_sizes[column]
    if chains.typical:
        matrices = np.array(chains.typical, dtype=np.float64)
        transition = np.asarray(np.mean(matrices / matrices.sum(axis=2, keepdims=True), axis=0))
        if chains.named_streams:
            shown = np.eye(states)[list(chains.shown(column))]
            meaning = meaning, tuple(map(chains.shown, range(len(chains.named_streams)))), column
    else:
        ratio = math.sqrt(chains.odds_bound)
        weights = np.ones((states, states)) + (ratio - 1.0) * np.eye(states)
        transition = np.asarray(weights / (ratio + states - 1.0), dtype=np.float64)
    weights = np.full((states, 1), SCALE) if table is None else np.array(table.weights())
    emission = weights.astype(np.float64) / SCALE
    if shown is not None:
        emission = np.ascontiguousarray(shown @ emission)
    return Model(transition, emission, likelihood_rows(emission), stationary_distribution(transition), meaning, shown)
