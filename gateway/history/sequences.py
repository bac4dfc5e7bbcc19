"""Symbols of many streams as sequences to learn one chain from; a byte a tick where they are few."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fugu.chains.arrays import Floats, Ints
from fugu.chains.learning import Expected, expectations
from fugu.chains.model import Problem, likelihood_rows
from fugu.contract.noise_table import SCALE
from gateway.history.pieces import HistoryError, Piece, tick_times
from gateway.history.smoothing import blocks
from gateway.history.tasks import Group

__all__ = ["SEQUENCE_TICKS", "Sequences", "expected", "joined", "read_sequences"]

SEQUENCE_TICKS = 2048
_CHUNK = 1 << 20
_SMALL = 127


class Sequences(NamedTuple):
    """Sequences of consecutive ticks of one table each.

    Attributes:
        symbols: (n,), one sequence after another; -1 where there is none.
        starts: (s + 1,), where sequences begin, and n.
        streams: (s,), a number for each stream.
        tables: (s,), of the table in `emissions`.
        emissions: of each table (k, m).
        since, until: microseconds of Unix time of the first tick, and after the last.
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
        """How many ticks have a symbol."""
        return int(np.count_nonzero(self.symbols >= 0))

    def take(self, chosen: Sequence[int] | Ints) -> Sequences:
        """Some of the sequences."""
        parts = [self.symbols[self.starts[i] : self.starts[i + 1]] for i in chosen]
        return self._replace(
            symbols=np.concatenate([np.empty(0, dtype=np.int8), *parts]),
            starts=np.concatenate([[0], np.cumsum([len(part) for part in parts])]).astype(np.int64),
            streams=self.streams[np.asarray(chosen, dtype=np.int64)],
            tables=self.tables[np.asarray(chosen, dtype=np.int64)],
        )


def read_sequences(group: Group) -> Sequences:
    """The symbols of a group of streams.

    Raises:
        HistoryError: a policy is not known.
    """
    found: dict[tuple[tuple[int, ...], ...], int] = {}
    symbols, streams, tables = list[NDArray[np.int8 | np.int16]](), list[int](), list[int]()
    since, until = group.source.span.until, group.source.span.since
    with group.open() as (history, some):
        span, pieces = group.source.span, list[list[Piece]]([] for _ in some)
        for day in sorted({day for stream in some for day in history.days(stream, span)}):
            for stream, collected in zip(some, pieces, strict=True):
                collected.extend(history.pieces(stream, span.day(day)))
        for number, (stream, collected) in enumerate(zip(some, pieces, strict=True), group.first):
            for block in blocks(collected, SEQUENCE_TICKS):
                policy = stream.policy(block.version)
                if policy.table is None:
                    raise HistoryError(
                        f"policy version {block.version} of {stream.device}/{stream.stream} has no table"
                    )
                symbols.append(block.symbols.astype(np.int8 if policy.table.symbols <= _SMALL else np.int16))
                streams.append(number)
                tables.append(found.setdefault(tuple(map(tuple, policy.table.weights())), len(found)))
                time = int(tick_times(policy.clock, block.first, block.shift, 1)[0])
                since, until = min(since, time), max(until, time + len(block.symbols) * policy.clock.period_us)
            collected.clear()
    return Sequences(
        np.concatenate([np.empty(0, dtype=np.int8), *symbols]),
        np.concatenate([[0], np.cumsum([len(one) for one in symbols])]).astype(np.int64),
        np.array(streams, dtype=np.int64),
        np.array(tables, dtype=np.int64),
        tuple(np.array(table) / SCALE for table in found),
        since,
        until,
    )


def joined(parts: Sequence[Sequences]) -> Sequences:
    """The sequences of several groups."""
    emissions: list[Floats] = []
    tables = []
    for part in parts:
        tables.append(part.tables + len(emissions))
        emissions += part.emissions
    shifted = [part.starts[:-1] + sum(len(one.symbols) for one in parts[:i]) for i, part in enumerate(parts)]
    symbols = np.concatenate([part.symbols for part in parts])
    return Sequences(
        symbols,
        np.concatenate([*shifted, [len(symbols)]]).astype(np.int64),
        np.concatenate([part.streams for part in parts]),
        np.concatenate(tables),
        tuple(emissions),
        min(part.since for part in parts),
        max(part.until for part in parts),
    )


def expected(some: Sequences, transition: Floats, initial: Floats) -> Expected:
    """What symbols say of the moves under a chain, each sequence begun by a distribution (k,)."""
    total, first, moves = 0.0, np.zeros_like(initial), np.zeros_like(transition)
    for problem in _problems(some, transition, initial):
        found = expectations(problem)
        total, first, moves = total + found.log_likelihood, first + found.first, moves + found.moves
    return Expected(total, first, moves)


def _problems(some: Sequences, transition: Floats, initial: Floats) -> Iterator[Problem]:
    """Sequences side by side that have one table, so many ticks at once."""
    rows = [likelihood_rows(emission) for emission in some.emissions]
    low = 0
    while low < len(some.tables):
        limit = int(np.searchsorted(some.starts, some.starts[low] + _CHUNK, side="right")) - 1
        others = np.flatnonzero(some.tables[low:limit] != some.tables[low])
        high = max(low + int(others[0]) if len(others) else limit, low + 1)
        begin, end = some.starts[low], some.starts[high]
        distributions = np.ascontiguousarray(np.broadcast_to(initial, (high - low, len(initial))))
        symbols = some.symbols[begin:end].astype(np.int64)
        yield Problem(symbols, some.starts[low : high + 1] - begin, distributions, transition, rows[some.tables[low]])
        low = high
