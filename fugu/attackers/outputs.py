"""An attacker's view of a stream: symbols, noisy counts of windows or both, and the attacker's other knowledge."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from typing import TypeAlias

import numpy as np

from fugu.chains.arrays import Floats, Ints
from fugu.chains.inference import posterior_marginals
from fugu.chains.model import stationary_distribution
from fugu.contract.noise_table import SCALE, NoiseTable

__all__ = [
    "CountOutputs",
    "Knowledge",
    "Outputs",
    "SymbolOutputs",
    "empty_outputs",
    "known_ticks",
    "laplace_noise",
    "release_counts",
    "release_symbols",
    "stretch_edges",
    "window_counts",
]


@dataclass(frozen=True)
class SymbolOutputs:
    """A symbol (n,) for every tick, or the index of one of m points; -1 if the output does not depend on any state.

    `emission` (k, m) is the policy's public table, Pr(symbol | state).
    """

    symbols: Ints
    emission: Floats

    @property
    def ticks(self) -> int:
        """The number of ticks n."""
        return int(self.symbols.size)

    @property
    def states(self) -> int:
        """The number of states k."""
        return int(self.emission.shape[0])


@dataclass(frozen=True)
class CountOutputs:
    """Noisy counts of consecutive windows that share no tick.

    Attributes:
        counts: (w, g) counts of g groups of states, each with its own discrete Laplace noise.
        first_ticks: (w,) first tick of each window, increasing.
        length: ticks of a window.
        scale: scale of the noise, in ticks.
        groups: groups of states that are counted together; a histogram has one for each state.
        ticks: number of ticks n.
        states: number of states k.
        has_state: (n,) 1 for a tick with a state, else 0; known to everybody who sees the counts.
        symbol_outputs: symbols of the same ticks, if they are released too.
    """

    counts: Ints
    first_ticks: Ints
    length: int
    scale: Fraction
    groups: tuple[tuple[int, ...], ...]
    ticks: int
    states: int
    has_state: Ints
    symbol_outputs: SymbolOutputs | None = None

    def windows(self) -> Ints:
        """The index (n,) of the window that holds each tick; -1 outside all windows."""
        tick_windows = np.full(self.ticks, -1, dtype=np.int64)
        for window, begin in enumerate(self.first_ticks):
            tick_windows[begin : begin + self.length] = window
        return tick_windows

    def symbols_or_empty(self) -> SymbolOutputs:
        """The symbols beside the counts, or -1 for every tick if there are none."""
        no_symbols = SymbolOutputs(np.full(self.ticks, -1, dtype=np.int64), np.ones((self.states, 1)))
        return self.symbol_outputs or no_symbols


Outputs: TypeAlias = SymbolOutputs | CountOutputs


def empty_outputs(outputs: Outputs) -> Outputs:
    """The outputs of the same stream if nothing were released."""
    if isinstance(outputs, SymbolOutputs):
        return replace(outputs, symbols=np.full_like(outputs.symbols, -1))
    return replace(outputs, counts=outputs.counts[:0], first_ticks=outputs.first_ticks[:0], symbol_outputs=None)


def release_symbols(states: Ints, table: NoiseTable, generator: np.random.Generator) -> SymbolOutputs:
    """Draw symbols as a device would, for simulations only.

    A tick with state -1 has a symbol from a public distribution, which counts as unobserved.
    """
    weights = np.array(table.weights(), dtype=np.int64)
    emission, limits = weights / weights.sum(axis=1, keepdims=True), np.cumsum(weights, axis=1)
    random_words, symbols = generator.integers(SCALE, size=states.size), np.zeros(states.size, dtype=np.int64)
    for limit in limits.T[:-1]:
        symbols += random_words >= limit[states]
    return SymbolOutputs(np.where(states >= 0, symbols, -1), emission)


def release_counts(
    states: Ints,
    segments: Ints,
    length: int,
    scale: Fraction,
    groups: tuple[tuple[int, ...], ...],
    generator: np.random.Generator,
    *,
    k: int,
) -> CountOutputs:
    """Draw noisy counts of tumbling windows as a device would release them, for simulations only.

    States (n,) of -1 are not counted. Segments (n,) number stretches without gaps. Windows of `length` ticks do not
    cross gaps, and remaining ticks are not released. The states of each group are counted together; `scale` is in
    ticks.
    """
    counts, first = window_counts(states, segments, length, groups)
    noise = laplace_noise(scale, counts.shape, generator)
    has_state = (states >= 0).astype(np.int64)
    return CountOutputs(counts + noise, first, length, scale, groups, int(states.size), k, has_state)


def window_counts(states: Ints, segments: Ints, length: int, groups: Sequence[Sequence[int]]) -> tuple[Ints, Ints]:
    """Count the states of each group (w, g) in tumbling windows that cross no gap; also return their first ticks (w,).

    States are (n,); segments (n,) are equal inside a stretch without gaps.
    """
    stretches = pairwise(stretch_edges(segments))
    first = np.concatenate([np.arange(begin, end - length + 1, length) for begin, end in stretches]).astype(np.int64)
    sums = np.array([np.concatenate([[0], np.cumsum(np.isin(states, group))]) for group in groups]).T
    return sums[first + length] - sums[first], first


def stretch_edges(segments: Ints) -> Ints:
    """The first tick of each stretch of equal segments (n,), and n at the end."""
    return np.concatenate([[0], np.flatnonzero(np.diff(segments)) + 1, [segments.size]])


def laplace_noise(scale: Fraction, shape: tuple[int, ...], generator: np.random.Generator) -> Ints:
    """Draw discrete Laplace noise, for simulations only: a difference of two geometric numbers, ratio e^(-1/scale)."""
    rises, falls = generator.geometric(-math.expm1(-1 / float(scale)), (2, *shape))
    return np.asarray(rises - falls, dtype=np.int64)


@dataclass(frozen=True)
class Knowledge:
    """The knowledge and beliefs of an attacker beside the outputs.

    The attacker believes the chain `transition` (k, k). Segments (n,) number stretches without gaps. `known_states`
    (n,) are true states, else -1. `truth` (n,) holds the same person's states to learn from, -1 where held back.
    """

    transition: Floats
    segments: Ints
    known_states: Ints | None = None
    truth: Ints | None = None

    @cached_property
    def distribution(self) -> Floats:
        """The stationary distribution (k,) of the believed chain."""
        return stationary_distribution(self.transition)

    @cached_property
    def prior(self) -> Floats:
        """Probabilities (n, k) under the believed chain, given known states and no output."""
        no_symbols = np.full(self.segments.size, -1, dtype=np.int64)
        symbols, table = self.learn_from(no_symbols, np.ones((len(self.transition), 1)))
        return posterior_marginals(symbols, self.distribution, self.transition, table, lengths=self.lengths)

    @cached_property
    def lengths(self) -> Ints:
        """The ticks of each stretch without gaps."""
        return np.diff(stretch_edges(self.segments))

    def learn_from(self, symbols: Ints, emission: Floats) -> tuple[Ints, Floats]:
        """Add known states to symbols and a table: the symbol m + x says that state x is known.

        Every likelihood is halved, so that the rows of the table remain distributions; posteriors do not change.
        """
        if self.known_states is None:
            return symbols, emission
        k, m = emission.shape
        return np.where(self.known_states >= 0, m + self.known_states, symbols), np.hstack([emission, np.eye(k)]) / 2


def known_ticks(states: Ints, tick_stride: int | None) -> Ints | None:
    """True states (n,) at every `tick_stride`-th tick and -1 elsewhere, or `None` if the stride is `None`."""
    return None if tick_stride is None else np.where(np.arange(states.size) % tick_stride == 0, states, -1)
