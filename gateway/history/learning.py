"""Learning a class of chains from the symbols of many devices: expectation maximisation with the policies' tables.

The expected moves of one E step are also the gradient of the log-likelihood (Fisher's identity). So a few steps of
expectation maximisation run on a part of the symbols, then a quasi-Newton method (L-BFGS) on all of them. It needs tens
of passes where expectation maximisation needs hundreds.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import optimize

from fugu.chains.arrays import Floats, Ints
from fugu.chains.learning import ExpectedCounts, expectations
from fugu.chains.model import Problem, likelihood_rows, stationary_distribution
from fugu.contract.errors import FuguError
from fugu.contract.noise_table import SCALE
from fugu.contract.policy import Policy
from fugu.contract.sentences import instant, instant_text
from fugu.privacy.chain_class import matrix_rows
from fugu.privacy.learned_class import Deviations, LearnedClass, LearnedModel, learned_class, log_ratios, transition_of
from gateway.history.smoothing import blocks
from gateway.history.stored import Piece, Span, SymbolStream, tick_times
from gateway.history.tasks import Group, Source, Tasks

__all__ = ["learn_class"]


SEQUENCE_TICKS = 2048
_CHUNK = 1 << 20
_MAX_INT8 = 127
_MIN_STRETCHES = 8
"""Least number of stretches of a length."""


class Sequences(NamedTuple):
    """Sequences of consecutive ticks of one stream and table each.

    Attributes:
        symbols: (n,), one sequence after another; -1 for a tick without a symbol.
        starts: (s + 1,), the index in `symbols` at which each sequence begins, and n.
        streams: (s,), the number of each sequence's stream.
        tables: (s,), the index of each sequence's table in `emissions`.
        emissions: the emission matrix (k, m) of each table.
        since: the time of the first tick of all, in microseconds of Unix time.
        until: the time after the last tick of all.
    """

    symbols: NDArray[np.int8 | np.int16]
    starts: Ints
    streams: Ints
    tables: Ints
    emissions: tuple[Floats, ...]
    since: int
    until: int

    @property
    def ticks(self) -> int:
        """The number of ticks with a symbol."""
        return int(np.count_nonzero(self.symbols >= 0))

    @classmethod
    def of(cls, symbols: Iterable[NDArray[Any]], ticks: Any, streams: Any, tables: Any, *columns: Any) -> Sequences:
        """Create s sequences of `ticks` (s,) ticks from arrays that are joined; `columns` are the other attributes."""
        arrays = np.append(0, ticks), streams, tables
        starts, streams, tables = (np.asarray(array, dtype=np.int64) for array in arrays)
        return cls(np.concatenate([np.empty(0, dtype=np.int8), *symbols]), np.cumsum(starts), streams, tables, *columns)

    def take(self, indices: Sequence[int] | Ints) -> Sequences:
        """Return the sequences of these indices."""
        pieces = [self.symbols[self.starts[i] : self.starts[i + 1]] for i in indices]
        index = np.asarray(indices, dtype=np.int64)
        return self.of(pieces, [len(piece) for piece in pieces], self.streams[index], self.tables[index], *self[4:])


def read_sequences(group: Group) -> Sequences:
    """Read the symbols of a group of streams. FuguError if a policy is missing."""
    table_index: dict[tuple[tuple[int, ...], ...], int] = {}
    symbols, streams, tables = [], [], []
    since, until = group.source.span.until, group.source.span.since
    with group.open() as (history, stream_list):
        span, pieces = group.source.span, list[list[Piece]]([] for _ in stream_list)
        for day in sorted({day for stream in stream_list for day in history.days(stream, span)}):
            for stream, stream_pieces in zip(stream_list, pieces, strict=True):
                stream_pieces.extend(history.pieces(stream, span.day(day)))
        for stream_number, (stream, stream_pieces) in enumerate(zip(stream_list, pieces, strict=True), group.first):
            for block in blocks(stream_pieces, SEQUENCE_TICKS):
                policy = stream.policy(block.version)
                if policy.table is None:
                    raise FuguError(f"policy version {block.version} of {stream.device}/{stream.stream} has no table")
                symbols.append(block.symbols.astype(np.int8 if policy.table.symbols <= _MAX_INT8 else np.int16))
                streams.append(stream_number)
                tables.append(table_index.setdefault(tuple(map(tuple, policy.table.weights())), len(table_index)))
                begin_us = int(tick_times(policy.clock, block.first, block.shift, 1)[0])
                since, until = min(since, begin_us), max(until, begin_us + len(block.symbols) * policy.clock.period_us)
            stream_pieces.clear()
    emissions = tuple(np.array(table) / SCALE for table in table_index)
    return Sequences.of(symbols, [len(symbol) for symbol in symbols], streams, tables, emissions, since, until)


def joined_sequences(groups: Sequence[Sequences]) -> Sequences:
    """Join the sequences of several groups."""
    emissions: list[Floats] = []
    tables = []
    for group in groups:
        tables.append(group.tables + len(emissions))
        emissions += group.emissions
    symbols, _, streams, _, _, since, until = zip(*groups, strict=True)
    ticks = np.concatenate([np.diff(group.starts) for group in groups])
    columns = np.concatenate(streams), np.concatenate(tables), tuple(emissions), min(since), max(until)
    return Sequences.of(symbols, ticks, *columns)


def e_step(sequences: Sequences, transition: Floats, initial: Floats) -> ExpectedCounts:
    """Return the expected counts of sequences under a chain; `initial` (k,) is each sequence's first distribution."""
    log_likelihood, first, moves = 0.0, np.zeros_like(initial), np.zeros_like(transition)
    for problem in _problems(sequences, transition, initial):
        step = expectations(problem)
        log_likelihood, first, moves = log_likelihood + step.log_likelihood, first + step.first, moves + step.moves
    return ExpectedCounts(log_likelihood, first, moves)


def _problems(group: Sequences, transition: Floats, initial: Floats) -> Iterator[Problem]:
    """Yield problems of a group of sequences for the E step, each of a chunk of one table."""
    rows = [likelihood_rows(emission) for emission in group.emissions]
    low = 0
    while low < len(group.tables):
        limit = int(np.searchsorted(group.starts, group.starts[low] + _CHUNK, side="right")) - 1
        table_changes = np.flatnonzero(group.tables[low:limit] != group.tables[low])
        high = max(low + int(table_changes[0]) if len(table_changes) else limit, low + 1)
        begin, end = group.starts[low], group.starts[high]
        distributions = np.ascontiguousarray(np.broadcast_to(initial, (high - low, len(initial))))
        symbols = group.symbols[begin:end].astype(np.int64)
        yield Problem(symbols, group.starts[low : high + 1] - begin, distributions, transition, rows[group.tables[low]])
        low = high


_MOST_STATES = 8
_MOST_RATIO = 18.0
_STAYS = (0.5, 0.9, 0.99)
_FIRST_ROUNDS = 15
_ROUNDS = 200
_SAMPLE_TICKS = 1 << 22
_STEP = 1e-3
_SIGNIFICANT = 1e-3
_UNKNOWN = 1e12
"""Variance of log-ratios about which symbols have no information."""
_MIN_GAIN = 1e-9
"""Least gain in log-likelihood a tick for another step of the search."""
Progress = Callable[..., None]


def learn_class(source: Source, *, tasks: Tasks | None = None, progress: Progress = lambda *_: None) -> LearnedModel:
    """Learn one class of chains for all streams of a source, which must have one name.

    `tasks` runs the work, by default in this process. `progress` is called with each step in words. Raises FuguError
    without streams or symbols, or if names, states or ticks of streams differ.
    """
    tasks = tasks or Tasks()
    with source.open() as history:
        streams = source.streams(history)
    policy = _common_policy(streams)
    state_count = len(policy.discretiser.states)
    progress("reading symbols")
    groups = tasks.hold(read_sequences, [(group,) for group in Group.all(source)])
    ticks_of_groups, lengths, since, until = zip(*tasks.map(_part_sizes, [(group,) for group in groups]), strict=True)
    if not (ticks := sum(ticks_of_groups)):
        raise FuguError(f"{source.path.name} has no symbols of that time")
    step = -(-sum(lengths) // _SAMPLE_TICKS)
    sample = joined_sequences(tasks.map(_take_sample, [(group, step) for group in groups]))
    progress("finding the chain of some symbols")
    start_chain = _start_chain(sample, state_count)
    initial = stationary_distribution(start_chain)

    def evaluate(transition: Floats) -> tuple[float, Floats]:
        progress("finding the chain of all symbols")
        group_counts = tasks.map(e_step, [(group, transition, initial) for group in groups])
        log_likelihood = sum(counts.log_likelihood for counts in group_counts)
        return log_likelihood, np.asarray(sum(counts.moves for counts in group_counts))

    transition = _most_likely_chain(evaluate, start_chain, ticks)
    progress("measuring what is certain")
    information = _information(sample, transition, initial) * (ticks / sample.ticks)
    levels: list[Deviations] = []
    if ticks >= _MIN_STRETCHES * SEQUENCE_TICKS and np.linalg.eigvalsh(information)[0] > 0.0:
        progress("comparing streams")
        tick_noise = np.asarray(np.linalg.inv(information / ticks), dtype=np.float64)
        chains = _Chains(transition, {}, tick_noise[None])
        if len(streams) > 1:
            chains, stream_level = _stream_deviations(tasks, groups, chains, initial)
            levels += [stream_level] if len(streams) >= _MIN_STRETCHES else []
        progress("comparing stretches")
        levels = _stretch_deviations(tasks, groups, chains, initial) + levels
    fit = learned_class(transition, information, ticks, levels)
    if not (levels or fit.refused):
        reason = f"the symbols of {ticks} ticks are fewer than {_MIN_STRETCHES} stretches of {SEQUENCE_TICKS} ticks"
        fit = fit._replace(chains=None, refused=f"{reason}: too few to tell whether the chain changes")
    return _learned_model(source, streams, policy, fit, ticks, Span(min(since), max(until)))


def _part_sizes(sequences: Sequences) -> tuple[int, int, int, int]:
    return sequences.ticks, len(sequences.symbols), sequences.since, sequences.until


def _take_sample(sequences: Sequences, step: int) -> Sequences:
    return sequences.take(np.arange(0, len(sequences.tables), step))


def _common_policy(streams: list[SymbolStream]) -> Policy:
    """Return the first policy. FuguError if streams differ in name, states or ticks, or have too many states."""
    if len(stream_names := sorted({stream.stream for stream in streams})) > 1:
        raise FuguError(f"one class is learned for one stream: name it with --stream, one of {', '.join(stream_names)}")
    policies = [policy for stream in streams for policy in stream.policies.values()]
    first_policy = policies[0]
    for policy in policies:
        if (policy.discretiser, policy.clock.period_us) != (first_policy.discretiser, first_policy.clock.period_us):
            raise FuguError(
                f"{policy.device}/{policy.stream} version {policy.version} has other states or ticks than "
                f"{first_policy.device}/{first_policy.stream} version {first_policy.version}: "
                "choose devices, or a time, that agree"
            )
    if (states := len(first_policy.discretiser.states)) > _MOST_STATES:
        raise FuguError(f"{first_policy.stream} has {states} states: a class is learned for at most {_MOST_STATES}")
    return first_policy


def _start_chain(sample: Sequences, state_count: int) -> Floats:
    """Return the likeliest chain of a sample after a few rounds of expectation maximisation."""
    best_chain: tuple[float, Floats] = (-np.inf, np.eye(state_count))
    uniform = np.full(state_count, 1.0 / state_count)
    for stay_probability in _STAYS:
        chain = stay_probability * np.eye(state_count) + (1.0 - stay_probability) / state_count
        for _ in range(_FIRST_ROUNDS):
            counts = e_step(sample, chain, uniform)
            if counts.log_likelihood > best_chain[0]:
                best_chain = counts.log_likelihood, chain
            chain = np.maximum(counts.moves, 1e-12)
            chain /= chain.sum(axis=1, keepdims=True)
    return best_chain[1]


def _most_likely_chain(evaluate: Callable[[Floats], tuple[float, Floats]], start_chain: Floats, ticks: int) -> Floats:
    """Return the likeliest chain near `start_chain`; `evaluate` gives a chain's log-likelihood and moves (k, k)."""
    k = len(start_chain)

    def cost(ratios: Floats) -> tuple[float, Floats]:
        chain = transition_of(ratios, k)
        log_likelihood, moves = evaluate(chain)
        return -log_likelihood / ticks, -_gradient(chain, moves) / ticks

    start_ratios = np.clip(log_ratios(np.maximum(start_chain, 1e-7)), -_MOST_RATIO, _MOST_RATIO)
    optimum: Any = optimize.minimize(
        cost,
        start_ratios,
        jac=True,
        method="L-BFGS-B",
        bounds=[(-_MOST_RATIO, _MOST_RATIO)] * len(start_ratios),
        options={"maxiter": _ROUNDS, "ftol": _MIN_GAIN, "gtol": 1e-8},
    )
    return transition_of(np.asarray(optimum.x), k)


def _gradient(chain: Floats, moves: Floats) -> Floats:
    """Return the gradient of the log-likelihood by the log-ratios (k (k - 1),), from expected moves."""
    differences = moves - moves.sum(axis=1, keepdims=True) * chain
    return np.asarray(differences[~np.eye(len(chain), dtype=np.bool_)])


def _information(sample: Sequences, transition: Floats, initial: Floats) -> Floats:
    """Return a sample's information about the log-ratios: the curvature (d, d) of its log-likelihood."""
    ratios = log_ratios(transition)

    def gradient(shifted_ratios: Floats) -> Floats:
        chain = transition_of(shifted_ratios, len(transition))
        return _gradient(chain, e_step(sample, chain, initial).moves)

    steps = _STEP * np.eye(len(ratios))
    curvature = np.array([gradient(ratios - step) - gradient(ratios + step) for step in steps]) / (2.0 * _STEP)
    return np.asarray((curvature + curvature.T) / 2.0)


class _Chains(NamedTuple):
    """The common chain, and the chains of streams if these deviate.

    `noise` (g, d, d) is the inverse of the information of a tick, for each stream, or for all if g = 1.
    """

    common_chain: Floats
    stream_chains: dict[int, Floats]
    noise: Floats

    def of(self, stream: int) -> Floats:
        return self.stream_chains.get(stream, self.common_chain)


def _stream_deviations(tasks: Tasks, groups: list[Any], chains: _Chains, initial: Floats) -> tuple[_Chains, Deviations]:
    """Return the chains for the comparison of stretches, and the deviations of streams by each stream's own chain."""
    group_rows = tasks.map(_chains_of_streams, [(group, chains.common_chain, initial) for group in groups])
    stream_numbers, ticks, own_chains, noises = zip(*itertools.chain.from_iterable(group_rows), strict=True)
    deviations = np.array([*map(log_ratios, own_chains)]) - log_ratios(chains.common_chain)
    level = Deviations(np.array(ticks, dtype=np.int64), deviations, np.zeros(len(ticks), dtype=np.int64), chains.noise)
    if level.p_value >= _SIGNIFICANT:
        return chains, level
    kinds = np.array(stream_numbers, dtype=np.int64)
    noise = np.broadcast_to(chains.noise[0], (int(kinds.max()) + 1, *chains.noise[0].shape)).copy()
    noise[kinds] = noises
    return _Chains(chains.common_chain, dict(zip(stream_numbers, own_chains, strict=True)), noise), level._replace(
        kinds=kinds, noise=noise
    )


def _chains_of_streams(part: Sequences, transition: Floats, initial: Floats) -> list[tuple[int, int, Floats, Floats]]:
    """Return for each stream its number, ticks and chain, and the inverse (d, d) of the information of a tick."""
    rows = []
    for stream in np.unique(part.streams).tolist():
        sequences = part.take(np.flatnonzero(part.streams == stream))

        def evaluate(chain: Floats, sequences: Sequences = sequences) -> tuple[float, Floats]:
            counts = e_step(sequences, chain, initial)
            return counts.log_likelihood, counts.moves

        own_chain = _most_likely_chain(evaluate, transition, sequences.ticks)
        information = _information(sequences, own_chain, initial) / sequences.ticks
        is_regular = np.linalg.eigvalsh(information)[0] > 0.0
        noise = np.linalg.inv(information) if is_regular else _UNKNOWN * np.eye(len(information))
        rows.append((stream, sequences.ticks, own_chain, np.asarray(noise, dtype=np.float64)))
    return rows


def _stretch_deviations(tasks: Tasks, groups: list[Any], chains: _Chains, initial: Floats) -> list[Deviations]:
    """Return the deviations of stretches, by one Newton step each: of sequences, then of pairs in a row, and so on."""
    scores = tasks.map(_scores, [(group, chains, initial) for group in groups])
    gradients, ticks, streams = (np.concatenate(column) for column in zip(*scores, strict=True))
    levels: list[Deviations] = []
    while True:
        is_long = ticks >= 0.75 * SEQUENCE_TICKS * 2 ** len(levels)
        if is_long.sum() < _MIN_STRETCHES:
            return levels
        kinds = streams[is_long] if chains.stream_chains else np.zeros(int(is_long.sum()), dtype=np.int64)
        bases = np.array([log_ratios(chains.of(stream)) for stream in range(int(streams.max()) + 1)])[streams[is_long]]
        steps = np.einsum("sij,sj->si", chains.noise[kinds], gradients[is_long]) / ticks[is_long, None]
        levels.append(Deviations(ticks[is_long], bases - log_ratios(chains.common_chain) + steps, kinds, chains.noise))
        position = np.arange(len(streams)) - np.searchsorted(streams, streams)
        pair_starts = np.flatnonzero((position[:-1] % 2 == 0) & (streams[:-1] == streams[1:]))
        gradients, ticks = (column[pair_starts] + column[pair_starts + 1] for column in (gradients, ticks))
        streams = streams[pair_starts]


def _scores(group: Sequences, chains: _Chains, initial: Floats) -> tuple[Floats, Ints, Ints]:
    """Return for each sequence the log-likelihood's gradient at its stream's chain, its ticks, and its stream."""
    gradients = []
    for i, stream in enumerate(group.streams.tolist()):
        chain = chains.of(stream)
        gradients.append(_gradient(chain, e_step(group.take([i]), chain, initial).moves))
    ticks = np.add.reduceat(group.symbols >= 0, group.starts[:-1], dtype=np.int64)
    dimension = len(chains.common_chain) * (len(chains.common_chain) - 1)
    return np.array(gradients).reshape(-1, dimension), ticks, group.streams


def _learned_model(
    source: Source, streams: list[SymbolStream], policy: Policy, fit: LearnedClass, ticks: int, span: Span
) -> LearnedModel:
    return LearnedModel(
        source=source.path.name,
        stream=streams[0].stream,
        devices=len(streams),
        ticks=ticks,
        since=instant_text(instant(span.since)),
        until=instant_text(instant(span.until)),
        discretiser=policy.discretiser,
        states=len(fit.transition),
        period_seconds=policy.clock.period_us / 1e6,
        transition=matrix_rows(fit.transition),
        low=matrix_rows(fit.low),
        high=matrix_rows(fit.high),
        known=max(fit.known, 1.0),
        scales=fit.scales,
        chains=fit.chains,
        refused=fit.refused or None,
    )
