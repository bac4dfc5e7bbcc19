"""What an attacker sees of a stream: sanitised symbols, or noisy counts of windows, or both."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TypeAlias

import numpy as np

from contract.noise_table import SCALE, NoiseTable
from gateway.chain.arrays import Floats, Ints

__all__ = ["CountOutputs", "Outputs", "SymbolOutputs", "release_counts", "release_symbols", "without"]


@dataclass(frozen=True)
class SymbolOutputs:
    """A symbol for every tick.

    Attributes:
        symbols: (n,) integers in -1..m-1, -1 for a tick that says nothing of any state.
        emission: (k, m), Pr(symbol | state): the policy's table, which everybody knows.
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
    """A noisy count for every window; windows follow each other without sharing a tick.

    Attributes:
        counts: (w,) counts with discrete Laplace noise.
        first: (w,) first tick of each window, increasing.
        length: ticks in a window.
        scale: of the noise, in ticks.
        counted: the states that are counted.
        ticks: n.
        states: k.
        present: (n,) whether a tick has a state; whoever sees the counts knows.
        beside: symbols of the same ticks, if they are released too.
    """

    counts: Ints
    first: Ints
    length: int
    scale: Fraction
    counted: tuple[int, ...]
    ticks: int
    states: int
    present: Ints
    beside: SymbolOutputs | None = None

    def windows(self) -> Ints:
        """The window that each tick is in (n,), or -1."""
        found = np.full(self.ticks, -1, dtype=np.int64)
        for w, first in enumerate(self.first):
            found[first : first + self.length] = w
        return found

    def seen(self) -> SymbolOutputs:
        """The symbols beside the counts; of a single meaningless kind where there are none."""
        nothing = SymbolOutputs(np.full(self.ticks, -1, dtype=np.int64), np.ones((self.states, 1)))
        return self.beside or nothing


Outputs: TypeAlias = SymbolOutputs | CountOutputs


def without(outputs: Outputs) -> Outputs:
    """The same stream with nothing released."""
    if isinstance(outputs, SymbolOutputs):
        return replace(outputs, symbols=np.full_like(outputs.symbols, -1))
    none = np.zeros(0, dtype=np.int64)
    return replace(outputs, counts=none, first=none, beside=None)


def release_symbols(states: Ints, table: NoiseTable, generator: np.random.Generator) -> SymbolOutputs:
    """Symbols as a device would draw them, for simulations only.

    Args:
        states: (n,) true states, -1 where there is none: its symbol comes from a public law, and counts as unobserved.
        table: the noise table.
        generator: source of randomness.
    """
    weights = np.array(table.weights(), dtype=np.float64)
    emission = weights / weights.sum(axis=1, keepdims=True)
    limits = np.cumsum(np.array(table.weights(), dtype=np.int64), axis=1)
    words = generator.integers(SCALE, size=states.size)
    symbols = (words[:, None] >= limits[states]).sum(axis=1)
    return SymbolOutputs(np.where(states >= 0, symbols, -1), emission)


def release_counts(
    states: Ints,
    segments: Ints,
    length: int,
    scale: Fraction,
    counted: tuple[int, ...],
    generator: np.random.Generator,
    beside: SymbolOutputs | None = None,
) -> CountOutputs:
    """Noisy counts of tumbling windows as a device would release them, for simulations only.

    Args:
        states: (n,) true states, -1 where there is none, which is not counted.
        segments: (n,) equal inside a stretch without gaps; windows do not go beyond it, and its rest is not released.
        length: ticks in a window.
        scale: of the noise, in ticks.
        counted: the states that are counted.
        generator: source of randomness.
        beside: symbols of the same ticks; they also say how many states there are.
    """
    edges = np.flatnonzero(np.diff(segments)) + 1
    stretches = zip([0, *edges], [*edges, states.size], strict=True)
    first = np.concatenate([np.arange(low, high - length + 1, length) for low, high in stretches]).astype(np.int64)
    inside = np.concatenate([[0], np.cumsum(np.isin(states, counted))])
    # The difference of two geometric numbers with ratio exp(-1/s) is discrete Laplace noise of scale s.
    success = -math.expm1(-1 / float(scale))
    noise = generator.geometric(success, first.size) - generator.geometric(success, first.size)
    k = beside.states if beside is not None else max(2, int(states.max(initial=0)) + 1, *(x + 1 for x in counted))
    present = (states >= 0).astype(np.int64)
    counts = (inside[first + length] - inside[first] + noise).astype(np.int64)
    return CountOutputs(counts, first, length, scale, counted, int(states.size), k, present, beside)
