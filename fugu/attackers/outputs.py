"""An attacker's view of a stream: symbols, noisy counts of windows or both, and knowledge or beliefs beside."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
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
    "known_ticks",
    "laplace_noise",
    "release_counts",
    "release_symbols",
    "window_counts",
    "without",
]


@dataclass(frozen=True)
class SymbolOutputs:
    """A symbol (n,) for every tick, or which of m points; -1 where nothing tells of any state.

    Everybody knows `emission` (k, m), Pr(symbol | state): the policy's table.
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
        counts: (w, g) counts of g groups of states, each with discrete Laplace noise of its own.
        first: (w,) first tick of each window, increasing.
        scale: of the noise, in ticks.
        groups: of states that are counted; a histogram has one for each state.
        present: (n,) 1 where a tick has a state, else 0; whoever sees the counts knows.
        beside: symbols of the same ticks, if they are released too.
    """

    counts: Ints
    first: Ints
    length: int
    scale: Fraction
    groups: tuple[tuple[int, ...], ...]
    ticks: int
    states: int
    present: Ints
    beside: SymbolOutputs | None = None

    def windows(self) -> Ints:
        """The window that each tick is in (n,), or -1."""
        window_of_tick = np.full(self.ticks, -1, dtype=np.int64)
        for w, first in enumerate(self.first):
            window_of_tick[first : first + self.length] = w
        return window_of_tick

    def seen(self) -> SymbolOutputs:
        """The symbols beside the counts; of a single meaningless kind where there are none."""
        no_symbols = SymbolOutputs(np.full(self.ticks, -1, dtype=np.int64), np.ones((self.states, 1)))
        return self.beside or no_symbols


Outputs: TypeAlias = SymbolOutputs | CountOutputs


def without(outputs: Outputs) -> Outputs:
    """The same stream with nothing released."""
    if isinstance(outputs, SymbolOutputs):
        return replace(outputs, symbols=np.full_like(outputs.symbols, -1))
    return replace(outputs, counts=outputs.counts[:0], first=outputs.first[:0], beside=None)


def release_symbols(states: Ints, table: NoiseTable, generator: np.random.Generator) -> SymbolOutputs:
    """Symbols as a device would draw them, for simulations only.

    Where a true state is -1 the symbol comes from a public distribution, and counts as unobserved.
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
    """Noisy counts of tumbling windows as a device would release them, for simulations only.

    States (n,) of -1 are not counted. Segments (n,) number stretches without gaps; windows of `length` ticks do not go
    beyond, and the rest is not released. The states of each group are counted together; `scale` is in ticks.
    """
    counts, first = window_counts(states, segments, length, groups)
    noise = laplace_noise(scale, counts.shape, generator)
    present = (states >= 0).astype(np.int64)
    return CountOutputs(counts + noise, first, length, scale, groups, int(states.size), k, present)


def window_counts(states: Ints, segments: Ints, length: int, groups: Sequence[Sequence[int]]) -> tuple[Ints, Ints]:
    """Counts (w, g) of the states of each group in tumbling windows that cross no gap, and first ticks (w,) of these.

    States are (n,); segments (n,) are equal inside a stretch without gaps.
    """
    begins = np.flatnonzero(np.diff(segments)) + 1
    stretches = zip([0, *begins], [*begins, states.size], strict=True)
    first = np.concatenate([np.arange(low, high - length + 1, length) for low, high in stretches]).astype(np.int64)
    sums = np.array([np.concatenate([[0], np.cumsum(np.isin(states, group))]) for group in groups]).T
    return sums[first + length] - sums[first], first


def laplace_noise(scale: Fraction, shape: tuple[int, ...], generator: np.random.Generator) -> Ints:
    """Discrete Laplace noise, for simulations only: the difference of two geometric numbers of ratio exp(-1/scale)."""
    rises, falls = generator.geometric(-math.expm1(-1 / float(scale)), (2, *shape))
    return np.asarray(rises - falls, dtype=np.int64)


@dataclass(frozen=True)
class Knowledge:
    """Knowledge and beliefs of an attacker beside the outputs.

    The chain `transition` (k, k) is believed; segments (n,) number stretches without gaps. True states `known` (n,) are
    -1 elsewhere; so is `truth` (n,), the same person's states of a time to learn from, where it is held back.
    """

    transition: Floats
    segments: Ints
    known: Ints | None = None
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
        """Ticks of each stretch without gaps."""
        return np.diff(np.concatenate([[0], np.flatnonzero(np.diff(self.segments)) + 1, [self.segments.size]]))

    def learn_from(self, symbols: Ints, emission: Floats) -> tuple[Ints, Floats]:
        """Symbols and a table in which the symbol m + x says that state x is known.

        Every likelihood is halved, which changes no posterior, and so the rows of the table remain distributions.
        """
        if self.known is None:
            return symbols, emission
        k, m = emission.shape
        return np.where(self.known >= 0, m + self.known, symbols), np.hstack([emission, np.eye(k)]) / 2


def known_ticks(states: Ints, tick_stride: int | None) -> Ints | None:
    """True states (n,) at every so many ticks, -1 elsewhere, or none; with 2, both neighbours of the others."""
    return None if tick_stride is None else np.where(np.arange(states.size) % tick_stride == 0, states, -1)
