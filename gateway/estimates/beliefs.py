"""Models of streams of symbols, as their policies give them, and beliefs about streams: one kernel call for a round.

A belief is the distribution of a stream's state at its newest tick, given all symbols up to there. Each tick is
predicted, weighed and normalised by itself, so that the division of symbols into frames changes no bit of it. Over
ticks without a symbol it is carried by the transition matrix. It begins again from the stationary distribution in three
cases. The states or the clock get another meaning. The device's clock was set, and the time between two numbers is
unknown. The symbols are impossible by the model.
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

__all__ = ["GIVEN", "Bank", "Beliefs", "Model", "SymbolModel", "follow", "look_back", "model_of", "stream_beliefs"]


class Model(NamedTuple):
    """The numbers of an estimate, and the meaning of its states.

    Attributes:
        transition: (k, k), row-stochastic.
        emission: (k, m), row-stochastic; a column of ones where there are no symbols.
        rows: (m + 1, k), likelihoods of each symbol, and of no symbol.
        initial: (k,), the stationary distribution.
        meaning: models of equal meaning have the same states on the same clock, so that a belief carries over.
        shown: (k, s), 1 for the stream's state that each state of a joint chain shows; None if they are the same.
    """

    transition: Floats
    emission: Floats
    rows: Floats
    initial: Floats
    meaning: object
    shown_states: Floats | None = None


class SymbolModel(NamedTuple):
    """One policy of symbols, windows, or both, with the symbols that its frames may hold, and the bits of a symbol."""

    policy: Policy
    allowed_symbols: bytes
    bits: int
    chain_model: Model

    @classmethod
    def of(cls, policy: Policy) -> SymbolModel:
        """Create the model of a policy."""
        symbol_count = 0 if policy.table is None else policy.table.symbols
        return cls(policy, bytes(range(symbol_count)), symbol_bits(symbol_count), model_of(policy))


def model_of(policy: Policy) -> Model:
    """Return the model of a policy's chains and table; one object for equal policies."""
    chains = policy.chains
    column = chains.stream_index(policy.device, policy.stream)
    return _make_model(chains, column, policy.table, (policy.discretiser.model_dump_json(), policy.clock))


@cache
def _make_model(chains: ChainClass, column: int, table: NoiseTable | None, meaning: object) -> Model:
    shown_states = None
    state_count = chains.state_counts[column]
    if chains.typical_matrices:
        matrices = np.array(chains.typical_matrices, dtype=np.float64)
        transition = np.asarray(np.mean(matrices / matrices.sum(axis=2, keepdims=True), axis=0))
        if chains.named_streams:
            shown_states = np.eye(state_count)[list(chains.shown_states(column))]
            meaning = meaning, tuple(map(chains.shown_states, range(len(chains.named_streams)))), column
    else:
        diagonal_ratio = math.sqrt(chains.odds_bound)
        weights = np.ones((state_count, state_count)) + (diagonal_ratio - 1.0) * np.eye(state_count)
        transition = np.asarray(weights / (diagonal_ratio + state_count - 1.0), dtype=np.float64)
    weights = np.full((state_count, 1), SCALE) if table is None else np.array(table.weights())
    emission = weights.astype(np.float64) / SCALE
    if shown_states is not None:
        emission = np.ascontiguousarray(shown_states @ emission)
    rows, initial = likelihood_rows(emission), stationary_distribution(transition)
    return Model(transition, emission, rows, initial, meaning, shown_states)


class Models(NamedTuple):
    """Models as kernels read them: one array of all numbers, and where each model's numbers are.

    `facts` (models, 5) are the number of states k, an index of the meaning, and the offsets of three arrays in
    `parameters`. These are the transition matrix (k, k), the symbols' likelihoods (m + 1, k), and the initial (k,).
    """

    facts: Ints
    parameters: Floats


class Bank:
    """Gives each model an index; `states` is the largest number of states of a model."""

    def __init__(self) -> None:
        self.models: list[Model] = []
        self.states = 2
        self._index_by_id: dict[int, int] = {}
        self._arrays: Models | None = None

    def index(self, model: Model) -> int:
        """Return the index of a model, which is one object for equal policies."""
        if (model_index := self._index_by_id.get(id(model))) is None:
            model_index = self._index_by_id[id(model)] = len(self.models)
            self.models.append(model)
            self.states = max(self.states, len(model.initial))
            self._arrays = None
        return model_index

    @property
    def arrays(self) -> Models:
        """The arrays of all models so far."""
        if self._arrays is None:
            matrices = [m.ravel() for model in self.models for m in (model.transition, model.rows, model.initial)]
            offsets = np.cumsum([0, *map(len, matrices)])[:-1].reshape(-1, 3).tolist()
            meanings: dict[object, int] = {}
            facts = [
                (len(model.initial), meanings.setdefault(model.meaning, len(meanings)), *model_offsets)
                for model, model_offsets in zip(self.models, offsets, strict=True)
            ]
            parameters = np.concatenate([np.zeros(0), *matrices])
            self._arrays = Models(np.array(facts, dtype=np.int64).reshape(-1, 5), parameters)
        return self._arrays


NONE, GIVEN = -1, -2
"""In place of a model's index. `NONE`: nothing is known. `GIVEN`: the distribution is of the next row's first tick."""
_MAX_SINGLE_TICKS = 64


class Beliefs(NamedTuple):
    """Beliefs about streams: the distribution (streams, k) of each at its newest tick with a symbol.

    `heads` (streams, 3) is the index of the model, `NONE` or `GIVEN`; the newest tick; the shift of the newest tick.
    """

    heads: Ints
    distribution: Floats

    @classmethod
    def unknown(cls, streams: int, states: int) -> Beliefs:
        """Create beliefs about streams of which nothing is known."""
        heads = np.zeros((streams, 3), dtype=np.int64)
        heads[:, 0] = NONE
        return cls(heads, np.zeros((streams, states)))

    @classmethod
    def of(cls, heads: tuple[int, int, int], distribution: Floats) -> Beliefs:
        """Create the belief about one stream."""
        return cls(np.array([heads]), distribution[np.newaxis].copy())

    def with_states(self, states: int) -> Beliefs:
        """Return the beliefs with room for models of `states` states."""
        padding = states - self.distribution.shape[1]
        return self if padding <= 0 else Beliefs(self.heads, np.pad(self.distribution, ((0, 0), (0, padding))))

    def with_streams(self, streams: int) -> Beliefs:
        """Return the beliefs with room for at least `streams` streams; nothing is known of the new ones."""
        if streams <= len(self.heads):
            return self
        room = Beliefs.unknown(max(streams, 2 * len(self.heads)) - len(self.heads), self.distribution.shape[1])
        return Beliefs(np.concatenate((self.heads, room.heads)), np.concatenate((self.distribution, room.distribution)))


def follow(beliefs: Beliefs, models: Models, slots: Ints, row_models: Ints, columns: Columns, order: Ints) -> Floats:
    """Bring beliefs up to date, in place. Return (n, k) the distributions of rows' first ticks, given all ticks before.

    `slots` and `row_models` (n,) are each row's stream and model, `order` (n,) the rows in the order of their streams
    and ticks. Rows without symbols change nothing.
    """
    priors = np.zeros((columns.row_count, beliefs.distribution.shape[1]))
    buffer = np.empty(beliefs.distribution.shape[1])
    frame_columns = (columns.shift, columns.first, columns.ticks, columns.bits, columns.start, columns.packed)
    _follow_rows(order, slots, row_models, *frame_columns, *models, *beliefs, priors, buffer)
    return priors


@kernel
def _follow_rows(
    order: Ints, slots: Ints, row_models: Ints, shift: Ints, first: Ints, ticks: Ints, bits: Ints, start: Ints,
    packed: Bytes, facts: Ints, params: Floats, heads: Ints, distribution: Floats, priors: Floats, buffer: Floats,
) -> None:  # fmt: skip
    for row in order:
        if ticks[row] == 0:
            continue
        slot, model_index = slots[row], row_models[row]
        k, meaning, chain, table, initial = facts[model_index]
        previous_model = heads[slot, 0]
        if previous_model != GIVEN:
            is_continued = previous_model >= 0 and facts[previous_model, 1] == meaning and heads[slot, 2] == shift[row]
            if is_continued:
                _propagate(distribution, slot, k, params, chain, first[row] - heads[slot, 1], buffer)
            else:
                for x in range(k):
                    distribution[slot, x] = params[initial + x]
        _copy_row(distribution, slot, priors, row, k)
        if k == 2:
            _follow_binary(distribution, slot, params, chain, table, initial, packed, start[row], ticks[row], bits[row])
        else:
            for t in range(ticks[row]):
                if t:
                    _predict(distribution, slot, k, params, chain, buffer)
                row_offset = table + k * _read_symbol(packed, start[row], t, bits[row])
                _condition_on(distribution, slot, k, params, row_offset, initial)
        heads[slot, 0], heads[slot, 1], heads[slot, 2] = model_index, first[row] + ticks[row] - 1, shift[row]


@part
def _read_symbol(packed: Bytes, start: int, t: int, bits: int) -> int:
    """Read symbol t of a row from packed bytes."""
    per_byte = 8 // bits
    return int((packed[start + t // per_byte] >> (8 - bits - bits * (t % per_byte))) & ((1 << bits) - 1))


@part
def _follow_binary(
    distribution: Floats, slot: int, params: Floats, chain: int, table: int, initial: int, packed: Bytes, start: int,
    ticks: int, bits: int,
) -> None:  # fmt: skip
    """Follow the frame of a stream of two states, by the same operations as for more states."""
    p00, p01, p10, p11 = params[chain], params[chain + 1], params[chain + 2], params[chain + 3]
    a, b = distribution[slot, 0], distribution[slot, 1]
    per_byte, mask = 8 // bits, (1 << bits) - 1
    for t in range(ticks):
        if t:
            a, b = a * p00 + b * p10, a * p01 + b * p11
        row_offset = table + 2 * ((packed[start + t // per_byte] >> (8 - bits - bits * (t % per_byte))) & mask)
        c, d = a * params[row_offset], b * params[row_offset + 1]
        if not c + d > 0.0:
            a, b = params[initial], params[initial + 1]
            c, d = a * params[row_offset], b * params[row_offset + 1]
        if c + d > 0.0:
            factor = 1.0 / (c + d)
            a, b = c * factor, d * factor
    distribution[slot, 0], distribution[slot, 1] = a, b


@part
def _copy_row(source: Floats, source_row: int, target: Floats, target_row: int, length: int) -> None:
    """Copy k numbers of a row; a slice would take five times as long to compile."""
    for x in range(length):
        target[target_row, x] = source[source_row, x]


@part
def _predict(distribution: Floats, row: int, k: int, params: Floats, chain_start: int, buffer: Floats) -> None:
    """Carry a distribution one tick ahead."""
    for y in range(k):
        total = 0.0
        for x in range(k):
            total += distribution[row, x] * params[chain_start + x * k + y]
        buffer[y] = total
    for y in range(k):
        distribution[row, y] = buffer[y]


@part
def _condition_on(distribution: Floats, row: int, k: int, params: Floats, row_offset: int, initial: int) -> None:
    """Condition a distribution on a symbol, or if that is impossible the initial distribution."""
    total = 0.0
    for x in range(k):
        total += distribution[row, x] * params[row_offset + x]
    if not total > 0.0:
        total = 0.0
        for x in range(k):
            distribution[row, x] = params[initial + x]
            total += distribution[row, x] * params[row_offset + x]
    if total > 0.0:
        for x in range(k):
            distribution[row, x] *= params[row_offset + x] / total


@part
def _propagate(distribution: Floats, row: int, k: int, params: Floats, chain: int, ticks: int, buffer: Floats) -> None:
    """Carry a distribution `ticks` ahead, at least one, and normalise it."""
    if ticks <= _MAX_SINGLE_TICKS:
        for _ in range(ticks):
            _predict(distribution, row, k, params, chain, buffer)
    else:
        power, square = np.empty(k * k), np.empty(k * k)
        for i in range(k * k):
            power[i] = params[chain + i]
        while ticks:
            if ticks & 1:
                _predict(distribution, row, k, power, 0, buffer)
            ticks >>= 1
            for x in range(k):
                for y in range(k):
                    total = 0.0
                    for middle in range(k):
                        total += power[x * k + middle] * power[middle * k + y]
                    square[x * k + y] = total
            power, square = square, power
    total = 0.0
    for x in range(k):
        total += distribution[row, x]
    for x in range(k):
        distribution[row, x] /= total


def look_back(models: Models, row_models: Ints, columns: Columns, priors: Floats, lag: int) -> tuple[Floats, Floats]:
    """Estimate the ticks of frames, each given the symbols of up to `lag` later ticks of the same frame.

    `row_models` (n,) are the models of rows, `priors` (n, k) as `follow` returns them. Returns (n, k) the means over a
    row's ticks of the probabilities of the states, and (n, k) the probabilities at its last tick.
    """
    means, last_beliefs = np.zeros_like(priors), np.zeros_like(priors)
    max_ticks = int(columns.ticks.max(initial=1))
    buffer = np.empty((max_ticks + 3, priors.shape[1]))
    frame_columns = (columns.ticks, columns.bits, columns.start, columns.packed)
    _look_back(row_models, *frame_columns, *models, priors, lag, means, last_beliefs, buffer)
    return means, last_beliefs


@kernel
def _look_back(
    row_models: Ints, ticks: Ints, bits: Ints, start: Ints, packed: Bytes, facts: Ints, params: Floats, priors: Floats,
    lag: int, means: Floats, last_beliefs: Floats, buffer: Floats,
) -> None:  # fmt: skip
    for row in range(row_models.size):
        k, _, chain_start, table, initial = facts[row_models[row]]
        tick_count = ticks[row]
        scratch_row, backward_row = tick_count, tick_count + 1  # rows of `buffer` behind the beliefs
        _copy_row(priors, row, buffer, 0, k)
        for t in range(tick_count):
            if t:
                _copy_row(buffer, t - 1, buffer, t, k)
                _predict(buffer, t, k, params, chain_start, buffer[scratch_row])
            _condition_on(buffer, t, k, params, table + k * _read_symbol(packed, start[row], t, bits[row]), initial)
        _copy_row(buffer, tick_count - 1, last_beliefs, row, k)
        for t in range(tick_count):
            for x in range(k):
                buffer[backward_row, x] = 1.0
            for later_tick in range(min(t + lag, tick_count - 1), t, -1):
                row_offset = table + k * _read_symbol(packed, start[row], later_tick, bits[row])
                highest = 0.0
                for x in range(k):
                    total = 0.0
                    for y in range(k):
                        total += params[chain_start + x * k + y] * params[row_offset + y] * buffer[backward_row, y]
                    buffer[scratch_row, x] = total
                    highest = max(highest, total)
                for x in range(k):
                    buffer[backward_row, x] = buffer[scratch_row, x] / highest if highest > 0.0 else 1.0
            total = 0.0
            for x in range(k):
                total += buffer[t, x] * buffer[backward_row, x]
            for x in range(k):
                share = buffer[t, x] * buffer[backward_row, x] / total if total > 0.0 else buffer[t, x]
                means[row, x] += share / tick_count


def stream_beliefs(model: Model, beliefs: Floats) -> Floats:
    """Convert beliefs (..., k) about a model's states to beliefs (..., s) about the states of the stream."""
    return beliefs if model.shown_states is None else np.asarray(beliefs @ model.shown_states)
