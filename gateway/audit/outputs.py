"""All that an audience hears of a stream around one tick, drawn for many paths at once, and its exact likelihood.

The likelihood adds up all paths and all counts that are under way: forward over the chain, with a count beside the
state for every window that has begun and not ended. Counts of symbols that are heard say nothing that the symbols do
not, and are left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple, Protocol

import numpy as np

from contract.noise_table import SCALE, NoiseTable
from gateway.chain.arrays import Floats, Ints
from gateway.privacy.chain_class import MarkovChain

__all__ = ["Counted", "Heard", "Mechanism", "Randomness", "Simulated", "log_likelihoods", "paths", "release"]

_CELLS = 4_000_000
"""Numbers of one array: trials are taken a part at a time."""


class Counted(NamedTuple):
    """A noisy count.

    Attributes:
        name: whose noise it has.
        first, length: its ticks.
        members: the states that are counted, or the symbols.
        symbols: whether symbols are counted, and not states.
        scale: of the discrete Laplace noise.
        terms: how many such noises were added up.
    """

    name: str
    first: int
    length: int
    members: tuple[int, ...]
    symbols: bool
    scale: Fraction
    terms: int = 1


class Mechanism(NamedTuple):
    """What is released of some ticks.

    Attributes:
        ticks: how many there are.
        secret: the tick that is attacked.
        states: of the stream.
        table: of its symbols, if it has some.
        heard: whether symbols are.
        counts: that are heard.
    """

    ticks: int
    secret: int
    states: int
    table: NoiseTable | None
    heard: bool
    counts: tuple[Counted, ...]

    @property
    def emission(self) -> Floats:
        """(k, m) probabilities of symbols; of one meaningless symbol if there are none."""
        if self.table is None:
            return np.ones((self.states, 1))
        return np.array(self.table.weights(), dtype=np.float64) / SCALE

    @property
    def telling(self) -> tuple[int, ...]:
        """The counts that do not follow from symbols that are heard."""
        return tuple(n for n, one in enumerate(self.counts) if not (one.symbols and self.heard))

    @property
    def draws_symbols(self) -> bool:
        """Whether anything that is heard is made of symbols."""
        return self.table is not None and (self.heard or any(one.symbols for one in self.counts))

    def uses(self, name: str) -> int:
        """How many noises of a name are drawn."""
        return sum(one.name == name for one in self.counts)

    @property
    def cells(self) -> int:
        """The numbers that the likelihood of one trial holds at a time, at most."""
        most = 1
        for tick in range(self.ticks):
            size = 1
            for n in self.telling:
                one = self.counts[n]
                if one.first <= tick < one.first + one.length:
                    size *= tick - one.first + 2
            most = max(most, size)
        return most * self.states


class Heard(NamedTuple):
    """Symbols (trials, ticks), -1 where none is heard, and counts (trials, counts)."""

    symbols: Ints
    counts: Ints


class Randomness(Protocol):
    """Where a device's draws come from."""

    def symbols(self, states: Ints, table: NoiseTable) -> Ints:
        """A symbol for each state, in the same shape."""

    def noise(self, count: Counted, trials: int) -> Ints:
        """(trials,) noise of a count."""


class Simulated:
    """Draws by the integers of a table, and by the stated scales."""

    def __init__(self, generator: np.random.Generator) -> None:
        self._generator = generator

    def symbols(self, states: Ints, table: NoiseTable) -> Ints:
        """A symbol for each state, in the same shape."""
        limits = np.cumsum(np.array(table.weights(), dtype=np.int64), axis=1)[:, :-1]
        words = self._generator.integers(SCALE, size=states.shape)
        return np.asarray((words[..., None] >= limits[states]).sum(axis=-1), dtype=np.int64)

    def noise(self, count: Counted, trials: int) -> Ints:
        """(trials,) noise of a count: the difference of two geometric numbers."""
        up, down = self._generator.geometric(-np.expm1(-1 / float(count.scale)), (2, trials, count.terms))
        return np.asarray((up - down).sum(axis=1), dtype=np.int64)


def paths(chain: MarkovChain, mechanism: Mechanism, state: int, trials: int, generator: np.random.Generator) -> Ints:
    """Paths (trials, ticks) of a stationary chain that are in a state at the secret tick."""
    law, forward = _law(chain), chain.transition
    backward = (law[:, None] * forward).T / law[:, None]
    found = np.empty((trials, mechanism.ticks), dtype=np.int64)
    found[:, mechanism.secret] = state
    for tick in range(mechanism.secret + 1, mechanism.ticks):
        found[:, tick] = _stepped(found[:, tick - 1], forward, generator)
    for tick in range(mechanism.secret - 1, -1, -1):
        found[:, tick] = _stepped(found[:, tick + 1], backward, generator)
    return found


def _stepped(states: Ints, transition: Floats, generator: np.random.Generator) -> Ints:
    edges = np.cumsum(transition, axis=1)[:, :-1]
    return np.asarray((generator.random(states.size)[:, None] >= edges[states]).sum(axis=1), dtype=np.int64)


def release(mechanism: Mechanism, states: Ints, randomness: Randomness) -> Heard:
    """What is heard of paths (trials, ticks)."""
    symbols = np.full(states.shape, -1, dtype=np.int64)
    if mechanism.table is not None and mechanism.draws_symbols:
        symbols = randomness.symbols(states, mechanism.table)
    counts = np.zeros((len(states), len(mechanism.counts)), dtype=np.int64)
    for n, one in enumerate(mechanism.counts):
        of = (symbols if one.symbols else states)[:, one.first : one.first + one.length]
        counts[:, n] = np.isin(of, one.members).sum(axis=1) + randomness.noise(one, len(states))
    return Heard(symbols if mechanism.heard else np.full_like(symbols, -1), counts)


def log_likelihoods(mechanism: Mechanism, chain: MarkovChain, heard: Heard) -> Floats:
    """(trials, k) logarithms of the likelihood of all that is heard, given each state of the secret tick.

    Up to a number for each trial.
    """
    size = max(1, _CELLS // mechanism.cells)
    parts = []
    for at in range(0, len(heard.symbols), size):
        part = Heard(heard.symbols[at : at + size], heard.counts[at : at + size])
        law = _law(chain)
        parts.append(
            np.stack(
                [_forward(mechanism, chain, part, state) - np.log(law[state]) for state in range(mechanism.states)],
                axis=1,
            )
        )
    return np.concatenate(parts)


def _law(chain: MarkovChain) -> Floats:
    assert chain.initial is not None
    return chain.initial


def _forward(mechanism: Mechanism, chain: MarkovChain, heard: Heard, state: int) -> Floats:
    """(trials,) logarithms of the likelihood of what is heard, and the secret being in a state."""
    emission = mechanism.emission
    total = np.zeros(len(heard.symbols))
    weights = _law(chain)[None, :].copy()  # (trials or 1, k, counts of each window under way)
    open_: list[int] = []
    for tick in range(mechanism.ticks):
        if tick:
            weights = np.moveaxis(np.tensordot(weights, chain.transition, axes=(1, 0)), -1, 1)
        if tick == mechanism.secret:
            others = np.arange(mechanism.states) != state
            weights[:, others] = 0.0
        for n in mechanism.telling:
            if mechanism.counts[n].first == tick:
                open_.append(n)
                weights = weights[..., None]
        if open_:
            weights = _counted(weights, [mechanism.counts[n] for n in open_], emission)
        if mechanism.heard:
            seen = emission[:, heard.symbols[:, tick]].T
            weights = weights * seen.reshape(seen.shape + (1,) * (weights.ndim - 2))
        for n in [n for n in open_ if mechanism.counts[n].first + mechanism.counts[n].length == tick + 1]:
            weights = _told(weights, 2 + open_.index(n), mechanism.counts[n], heard.counts[:, n])
            open_.remove(n)
        scale = weights.reshape(len(weights), -1).sum(axis=1)
        total = total + np.log(scale)
        weights = weights / scale.reshape((-1,) + (1,) * (weights.ndim - 1))
    return total


def _counted(weights: Floats, counts: Sequence[Counted], emission: Floats) -> Floats:
    """One more tick in all windows under way."""
    states, symbols = emission.shape
    grown = np.zeros((*weights.shape[:2], *(size + 1 for size in weights.shape[2:])))
    for x in range(states):
        added: dict[tuple[int, ...], float] = {}
        for z in range(symbols):
            step = tuple(int((z if one.symbols else x) in one.members) for one in counts)
            added[step] = added.get(step, 0.0) + float(emission[x, z])
        for step, chance in added.items():
            at = tuple(slice(s, s + size) for s, size in zip(step, weights.shape[2:], strict=True))
            inside = grown[:, x][(slice(None), *at)]
            inside += chance * weights[:, x]
    return grown


def _told(weights: Floats, axis: int, count: Counted, told: Ints) -> Floats:
    """The end of a window: its count is added up with the probability that noise makes of it what was told."""
    size = weights.shape[axis]
    distance = told[:, None] - np.arange(size)
    law = np.exp(_log_noise(count, distance))
    shape = [len(told)] + [1] * (weights.ndim - 1)
    shape[axis] = size
    return np.asarray((weights * law.reshape(shape)).sum(axis=axis))


def _log_noise(count: Counted, distance: Ints) -> Floats:
    """Logarithms of the probability of noise, up to a number for each row."""
    size = np.abs(distance)
    if count.terms == 1:
        return np.asarray(-(size - size.min(axis=1, keepdims=True)) / float(count.scale))
    most = int(size.max())
    reach = max(most, int(40 * float(count.scale) * count.terms)) + 1
    one = np.exp(-np.abs(np.arange(-reach, reach + 1)) / float(count.scale))
    law = one / one.sum()
    whole = law
    for _ in range(count.terms - 1):
        whole = np.convolve(whole, law, mode="same")
    logs = np.log(np.maximum(whole[reach:], 1e-300))[size]
    return np.asarray(logs - logs.max(axis=1, keepdims=True))
