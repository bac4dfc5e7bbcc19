"""Models of streams of symbols, as their policies give them, and beliefs about streams: one kernel call for a round.

A belief is the distribution of a stream's state at its newest tick, given all symbols up to there. Each tick is
predicted, weighed and normalised by itself, so that how symbols were cut into frames changes no bit of it. Over ticks
without a symbol it is carried by the transition matrix. It begins again from the stationary distribution in three
cases. The states or the clock come to mean something else. The device's clock was set, and the time between two numbers
is unknown. The model holds the symbols for impossible.
"""

from __future__ import annotations

import math
from functools import cache
from typing import NamedTuple

import numpy as np

from fugu.chains.arrays import Floats, Ints
from fugu.chains.kernel import kernel, part
from fugu.chains.model import likelihood_rows, stationary_distribution
from fugu.contract.chains import ChainClass
from fugu.contract.frames import symbol_bits
from fugu.contract.noise_table import SCALE, NoiseTable
from fugu.contract.policy import Policy
from gateway.store.symbols import Bytes, Columns

__all__ = [
    "GIVEN",
    "Bank",
    "Beliefs",
    "Model",
    "SymbolModel",
    "follow",
    "look_back",
    "model_of",
    "stream_beliefs",
]


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

    transition: Floats
    emission: Floats
    rows: Floats
    initial: Floats
    meaning: object
    shown: Floats | None = None


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


class Models(NamedTuple):
    """Models as kernels read them; a model's numbers begin at its entries of `at`.

    `facts` (models, 5) are the states k, which models mean the same by their states, and where three arrays begin in
    `numbers`. These are the transition matrix (k, k), the likelihoods (m + 1, k) of the symbols, and the stationary
    distribution (k,).
    """

    facts: Ints
    numbers: Floats


class Bank:
    """Gives each model an index; `states` is the most that any has."""

    def __init__(self) -> None:
        self.models: list[Model] = []
        self.states = 2
        self._known: dict[int, int] = {}
        self._meanings: dict[object, int] = {}
        self._facts: list[tuple[int, int, int, int, int]] = []
        self._numbers: list[Floats] = []
        self._size = 0
        self._arrays: Models | None = None

    def index(self, model: Model) -> int:
        """The index of a model; equal policies share one object."""
        if (count := self._known.get(id(model))) is None:
            count = self._known[id(model)] = len(self.models)
            self.models.append(model)
            meaning = self._meanings.setdefault(model.meaning, len(self._meanings))
            places = [self._put(part) for part in (model.transition, model.rows, model.initial)]
            self._facts.append((len(model.initial), meaning, places[0], places[1], places[2]))
            self.states = max(self.states, len(model.initial))
            self._arrays = None
        return count

    def _put(self, part: Floats) -> int:
        at, flat = self._size, np.ascontiguousarray(part, dtype=np.float64).ravel()
        self._numbers.append(flat)
        self._size += len(flat)
        return at

    @property
    def arrays(self) -> Models:
        """All models so far."""
        if self._arrays is None:
            numbers = np.concatenate([np.zeros(0), *self._numbers])
            self._arrays = Models(np.array(self._facts, dtype=np.int64).reshape(-1, 5), numbers)
        return self._arrays


NONE, GIVEN = -1, -2
"""In place of a model's index: nothing is known yet; or the distribution of the next row's first tick is."""
_FEW = 64


class Beliefs(NamedTuple):
    """Beliefs about each stream: its distribution (streams, k) at its newest tick that has a symbol.

    `state` (streams, 3) is the index of the model, `NONE` or `GIVEN`; that tick; its shift.
    """

    state: Ints
    distribution: Floats

    @classmethod
    def unknown(cls, streams: int, states: int) -> Beliefs:
        """Nothing is known."""
        state = np.zeros((streams, 3), dtype=np.int64)
        state[:, 0] = NONE
        return cls(state, np.zeros((streams, states)))

    @classmethod
    def of(cls, state: tuple[int, int, int], distribution: Floats) -> Beliefs:
        """Belief about one stream."""
        return cls(np.array([state]), distribution[np.newaxis].copy())

    def widened(self, states: int) -> Beliefs:
        """Room for models of so many states."""
        more = states - self.distribution.shape[1]
        return self if more <= 0 else Beliefs(self.state, np.pad(self.distribution, ((0, 0), (0, more))))

    def grown(self, streams: int) -> Beliefs:
        """Room for so many streams; nothing is known of new ones."""
        if streams <= len(self.state):
            return self
        new = Beliefs.unknown(max(streams, 2 * len(self.state)) - len(self.state), self.distribution.shape[1])
        return Beliefs(np.concatenate((self.state, new.state)), np.concatenate((self.distribution, new.distribution)))


def follow(beliefs: Beliefs, models: Models, which: Ints, model: Ints, columns: Columns, order: Ints) -> Floats:
    """Bring beliefs up to date, in place; (n, k) the distributions of rows' first ticks, given all symbols before.

    `which` and `model` (n,) are each row's stream and model, `order` (n,) the rows in the order of their streams and
    ticks. Rows without symbols change nothing.
    """
    firsts = np.zeros((columns.rows, beliefs.distribution.shape[1]))
    work = np.empty(beliefs.distribution.shape[1])
    frames = (columns.shift, columns.first, columns.ticks, columns.bits, columns.start, columns.packed)
    _follow(order, which, model, *frames, *models, *beliefs, firsts, work)
    return firsts


@kernel
def _follow(
    order: Ints, which: Ints, model: Ints, shift: Ints, first: Ints, count: Ints, bits: Ints, start: Ints,
    packed: Bytes, facts: Ints, numbers: Floats, state: Ints, distribution: Floats, firsts: Floats, work: Floats,
) -> None:  # fmt: skip
    for row in order:
        if count[row] == 0:
            continue
        s, m = which[row], model[row]
        k, meaning, chain, rows, initial = facts[m]
        version = state[s, 0]
        if version != GIVEN:
            goes_on = version >= 0 and facts[version, 1] == meaning and state[s, 2] == shift[row]
            if goes_on:
                _predict_ahead(distribution, s, k, numbers, chain, first[row] - state[s, 1], work)
            else:
                for x in range(k):
                    distribution[s, x] = numbers[initial + x]
        _copy(distribution, s, firsts, row, k)
        if k == 2:
            _two(distribution, s, numbers, chain, rows, initial, packed, start[row], count[row], bits[row])
        else:
            for t in range(count[row]):
                if t:
                    _predict(distribution, s, k, numbers, chain, work)
                at = rows + k * _symbol(packed, start[row], t, bits[row])
                _condition_on(distribution, s, k, numbers, at, initial)
        state[s, 0], state[s, 1], state[s, 2] = m, first[row] + count[row] - 1, shift[row]


@part
def _symbol(packed: Bytes, start: int, t: int, bits: int) -> int:
    per_byte = 8 // bits
    return int((packed[start + t // per_byte] >> (8 - bits - bits * (t % per_byte))) & ((1 << bits) - 1))


@part
def _two(
    distribution: Floats, s: int, numbers: Floats, chain: int, rows: int, initial: int, packed: Bytes, start: int,
    count: int, bits: int,
) -> None:  # fmt: skip
    """A frame of a stream of two states; the same operations as for more."""
    p00, p01, p10, p11 = numbers[chain], numbers[chain + 1], numbers[chain + 2], numbers[chain + 3]
    a, b = distribution[s, 0], distribution[s, 1]
    per_byte, mask = 8 // bits, (1 << bits) - 1
    for t in range(count):
        if t:
            a, b = a * p00 + b * p10, a * p01 + b * p11
        at = rows + 2 * ((packed[start + t // per_byte] >> (8 - bits - bits * (t % per_byte))) & mask)
        c, d = a * numbers[at], b * numbers[at + 1]
        if not c + d > 0.0:
            a, b = numbers[initial], numbers[initial + 1]
            c, d = a * numbers[at], b * numbers[at + 1]
        if c + d > 0.0:
            factor = 1.0 / (c + d)
            a, b = c * factor, d * factor
    distribution[s, 0], distribution[s, 1] = a, b


@part
def _copy(source: Floats, s: int, target: Floats, t: int, k: int) -> None:
    """Copy k numbers of a row; a slice would take five times as long to compile."""
    for x in range(k):
        target[t, x] = source[s, x]


@part
def _predict(distribution: Floats, s: int, k: int, numbers: Floats, chain: int, work: Floats) -> None:
    """Take a distribution one tick ahead."""
    for y in range(k):
        total = 0.0
        for x in range(k):
            total += distribution[s, x] * numbers[chain + x * k + y]
        work[y] = total
    for y in range(k):
        distribution[s, y] = work[y]


@part
def _condition_on(distribution: Floats, s: int, k: int, numbers: Floats, at: int, initial: int) -> None:
    """Condition on a symbol; where that is impossible, on the symbol alone."""
    total = 0.0
    for x in range(k):
        total += distribution[s, x] * numbers[at + x]
    if not total > 0.0:
        total = 0.0
        for x in range(k):
            distribution[s, x] = numbers[initial + x]
            total += distribution[s, x] * numbers[at + x]
    if total > 0.0:
        for x in range(k):
            distribution[s, x] *= numbers[at + x] / total


@part
def _predict_ahead(distribution: Floats, s: int, k: int, numbers: Floats, chain: int, ticks: int, work: Floats) -> None:
    """Take a distribution at least one tick ahead and normalise it; far ahead by squaring."""
    if ticks <= _FEW:
        for _ in range(ticks):
            _predict(distribution, s, k, numbers, chain, work)
    else:
        power, square = np.empty(k * k), np.empty(k * k)
        for i in range(k * k):
            power[i] = numbers[chain + i]
        while ticks:
            if ticks & 1:
                _predict(distribution, s, k, power, 0, work)
            ticks >>= 1
            for x in range(k):
                for y in range(k):
                    total = 0.0
                    for z in range(k):
                        total += power[x * k + z] * power[z * k + y]
                    square[x * k + y] = total
            power, square = square, power
    total = 0.0
    for x in range(k):
        total += distribution[s, x]
    for x in range(k):
        distribution[s, x] /= total


def look_back(models: Models, model: Ints, columns: Columns, firsts: Floats, lag: int) -> tuple[Floats, Floats]:
    """Estimate the ticks of frames, each given the symbols of up to `lag` later ones of the same frame.

    `model` (n,) is of each row, `firsts` (n, k) as `follow` returns it. Returns (n, k) means over the ticks of a row of
    the probabilities of the states, and (n, k) those of its last tick.
    """
    means, lasts = np.zeros_like(firsts), np.zeros_like(firsts)
    longest = int(columns.ticks.max(initial=1))
    work = np.empty((longest + 3, firsts.shape[1]))
    frames = (columns.ticks, columns.bits, columns.start, columns.packed)
    _look_back(model, *frames, *models, firsts, lag, means, lasts, work)
    return means, lasts


@kernel
def _look_back(
    model: Ints, count: Ints, bits: Ints, start: Ints, packed: Bytes, facts: Ints, numbers: Floats, firsts: Floats,
    lag: int, means: Floats, lasts: Floats, work: Floats,
) -> None:  # fmt: skip
    for row in range(model.size):
        k, _, chain, rows, initial = facts[model[row]]
        n = count[row]
        spare, after = n, n + 1  # rows of `work` behind the beliefs
        _copy(firsts, row, work, 0, k)
        for t in range(n):
            if t:
                _copy(work, t - 1, work, t, k)
                _predict(work, t, k, numbers, chain, work[spare])
            _condition_on(work, t, k, numbers, rows + k * _symbol(packed, start[row], t, bits[row]), initial)
        _copy(work, n - 1, lasts, row, k)
        for t in range(n):
            for x in range(k):
                work[after, x] = 1.0
            for later in range(min(t + lag, n - 1), t, -1):
                at = rows + k * _symbol(packed, start[row], later, bits[row])
                highest = 0.0
                for x in range(k):
                    total = 0.0
                    for y in range(k):
                        total += numbers[chain + x * k + y] * numbers[at + y] * work[after, y]
                    work[spare, x] = total
                    highest = max(highest, total)
                for x in range(k):
                    work[after, x] = work[spare, x] / highest if highest > 0.0 else 1.0
            total = 0.0
            for x in range(k):
                total += work[t, x] * work[after, x]
            for x in range(k):
                share = work[t, x] * work[after, x] / total if total > 0.0 else work[t, x]
                means[row, x] += share / n


def stream_beliefs(model: Model, beliefs: Floats) -> Floats:
    """Beliefs (..., k) about a model's states as those (..., s) about the states of the stream."""
    return beliefs if model.shown is None else np.asarray(beliefs @ model.shown)
