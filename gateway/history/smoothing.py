"""Smoothing of whole histories: the states of every tick given all symbols of its stream, before and after it.

A stream is cut into blocks of consecutive ticks under one policy; ticks of a short gap in a block are unobserved. One
vector about the state at the end of a block sums up all later symbols. So a history of any length is smoothed exactly,
a day at a time: first backwards for these vectors, then forwards for the marginals. Between blocks the chain steps by
the later block's policy. It begins again where states or clock have another meaning, or the device's clock was set.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fugu.chains.arrays import Floats, Ints
from fugu.chains.inference import backward_messages, filter_beliefs, posterior_marginals, predict
from fugu.contract.errors import FuguError
from fugu.contract.policy import Clock
from fugu.contract.sentences import LAST_US
from gateway.estimates.beliefs import Model, stream_beliefs
from gateway.estimates.past import TickProbabilities
from gateway.history.export import marginal_rows, policy_rows
from gateway.history.parquet import ParquetFolder, parquet_folder
from gateway.history.stored import Piece, Span, SymbolStream
from gateway.history.tasks import Group, History, Source, Tasks

__all__ = ["blocks", "smooth_history"]


_CELLS = 1 << 22
"""Most probabilities that are computed at once."""
_GAP = 64
_ALWAYS = Span(0, LAST_US)


class _Evidence(NamedTuple):
    """Evidence about the state at a tick, (k,): a belief by symbols up to it, or a likelihood of symbols from it on."""

    model: Model
    tick: int
    vector: Floats


_Track = tuple[Clock, int]
"""A clock and a shift: ticks between two settings of the clock."""


def blocks(pieces: Iterable[Piece], max_ticks: int) -> Iterator[Piece]:
    """Join pieces in tick order into blocks of at most `max_ticks` ticks, across gaps of up to `_GAP` ticks.

    A tick without a symbol has -1 in a block; a block begins and ends with a symbol.
    """
    symbols: list[Ints] = []
    version, first_tick, shift, end = 0, 0, 0, 0
    for stored_piece in pieces:
        begin = stored_piece.first
        while begin <= stored_piece.last:
            is_adjacent = (stored_piece.version, stored_piece.shift) == (version, shift) and 0 <= begin - end <= _GAP
            if symbols and is_adjacent and begin - first_tick < max_ticks:
                symbols.append(np.full(begin - end, -1, dtype=np.int64))
            else:
                if symbols:
                    yield Piece(version, first_tick, shift, np.concatenate(symbols))
                version, first_tick, shift, symbols = stored_piece.version, begin, stored_piece.shift, []
            piece = stored_piece.cut(begin, first_tick + max_ticks - 1)
            symbols.append(piece.symbols.astype(np.int64))
            begin = end = piece.last + 1
    if symbols:
        yield Piece(version, first_tick, shift, np.concatenate(symbols))


class SmoothedStream:
    """The smoothed marginals of one stream: call `look_back` for each day, the last day first, then `day` in order.

    Symbols outside the span count as unobserved; `days` are the beginnings of days.
    """

    def __init__(self, history: History, stream: SymbolStream, span: Span = _ALWAYS) -> None:
        self.days = history.days(stream, span)
        self._history = history
        self._stream = stream
        self._span = span
        self._message_after: dict[tuple[int, _Track], _Evidence] = {}  # evidence of the days after a day
        self._later_message: dict[_Track, _Evidence] = {}
        self._belief_before: dict[_Track, _Evidence] = {}

    def look_back(self, day: int) -> None:
        """Store the evidence about a day's end, from the symbols after that day."""
        for track, day_blocks in self._blocks(day).items():
            if track in self._later_message:
                self._message_after[day, track] = self._later_message[track]
            self._later_message[track] = self._messages(day_blocks, self._later_message.get(track))[0]

    def day(self, day: int) -> Iterator[TickProbabilities]:
        """Yield the marginals of a day's ticks that have a symbol."""
        for track, day_blocks in self._blocks(day).items():
            message = self._message_after.pop((day, track), None)
            messages = [*self._messages(day_blocks, message)[1:], message] if len(day_blocks) > 1 else [message]
            for block, evidence in zip(day_blocks, messages, strict=True):
                model, belief = self._stream.model(block.version), self._belief_before.get(track)
                distribution = model.initial
                if belief is not None and belief.model.meaning == model.meaning:
                    distribution = predict(belief.vector, model.transition, block.first - belief.tick)
                symbols, emission = _append_message(model, block, _later_message_at(model, block.last, evidence))
                marginals = _run_kernel(
                    posterior_marginals, self._stream, symbols, distribution, model.transition, emission
                )
                beliefs = filter_beliefs(block.symbols, distribution, model.transition, model.emission).beliefs
                self._belief_before[track] = _Evidence(model, block.last, beliefs[-1].copy())
                yield from _observed_runs(block, stream_beliefs(model, marginals))

    def _blocks(self, day: int) -> dict[_Track, list[Piece]]:
        """Return the blocks of a day, in tick order, by clock and shift."""
        max_ticks = max(_CELLS // max(len(self._stream.model(version).initial) for version in self._stream.policies), 1)
        day_blocks = defaultdict[_Track, list[Piece]](list)
        for block in blocks(self._history.pieces(self._stream, self._span.day(day)), max_ticks):
            day_blocks[self._stream.policy(block.version).clock, block.shift].append(block)
        return day_blocks

    def _messages(self, day_blocks: list[Piece], evidence: _Evidence | None) -> list[_Evidence]:
        """Return for each block the evidence of all symbols from its first tick on."""
        messages = []
        for block in reversed(day_blocks):
            model = self._stream.model(block.version)
            message = _later_message_at(model, block.last, evidence)
            if len(block.symbols) > 1:
                symbols, emission = _append_message(model, block, message)
                message = _run_kernel(backward_messages, self._stream, symbols, model.transition, emission)[0]
            evidence = _Evidence(model, block.first, model.rows[block.symbols[0]] * message)
            messages.append(evidence)
        return messages[::-1]


def _later_message_at(model: Model, tick: int, evidence: _Evidence | None) -> Floats:
    """Return the likelihood of later symbols by the state (k,) at a tick, scaled to a maximum of 1."""
    if evidence is None or evidence.model.meaning != model.meaning:
        return np.ones(len(model.initial))
    message = np.linalg.matrix_power(evidence.model.transition, evidence.tick - tick) @ evidence.vector
    return np.asarray(message / message.max(), dtype=np.float64)


def _append_message(model: Model, block: Piece, message: Floats) -> tuple[Ints, Floats]:
    """Return symbols and emissions (k, m + 2) in which the last symbol also carries a message.

    A new symbol stands for the last symbol and the message. All others have half of their probability, in every state
    alike, which changes no posterior. A second new symbol, which never occurs, has the remaining probability.
    """
    last_emission = model.rows[block.symbols[-1]] * message
    last_emission = last_emission / (2.0 * last_emission.max())
    emission = np.column_stack([model.emission / 2.0, last_emission, 0.5 - last_emission])
    symbols = block.symbols.copy()
    symbols[-1] = model.emission.shape[1]
    return symbols, emission


def _observed_runs(block: Piece, marginals: Floats) -> Iterator[TickProbabilities]:
    """Yield the marginals of each run of ticks with symbols."""
    has_symbol = np.concatenate([[False], block.symbols >= 0, [False]])
    edges = np.flatnonzero(np.diff(has_symbol)).reshape(-1, 2)
    for first_index, end_index in edges.tolist():
        yield TickProbabilities(block.version, block.first + first_index, block.shift, marginals[first_index:end_index])


def _run_kernel(kernel: Callable[..., Floats], stream: SymbolStream, *arguments: object) -> Floats:
    """Run a kernel; its ValueError becomes a FuguError that names the stream."""
    try:
        return kernel(*arguments)
    except ValueError as error:
        raise FuguError(f"{stream.device}/{stream.stream}: {error}") from None


def smooth_history(
    source: Source, folder: Path, *, tasks: Tasks | None = None, progress: Callable[..., None] = lambda *_: None
) -> dict[str, int]:
    """Write each stream's probabilities of states given all its symbols. Return the number of rows by table.

    Args:
        folder: a new folder, as for `export_history`.
        tasks: runs the work, by default in this process.
        progress: called with the current work and the finished share.

    Raises FuguError if there is no such source, it holds nothing of that time, or the folder cannot be written.
    """
    groups = Group.all(source)
    with parquet_folder(folder) as parquet:
        calls = [(group, parquet.path) for group in groups]
        row_counts = (tasks or Tasks()).map(
            _smooth_group, calls, lambda count: progress(f"{count} of {len(groups)} groups", count / len(groups))
        )
        if not (row_count := sum(row_counts)):
            raise FuguError(f"{source.path.name} has no symbols of that time")
        with source.open() as history:
            streams = source.streams(history)
            parquet.add("policies", policy_rows(policy for stream in streams for policy in stream.policies.values()))
        return {"smoothed": row_count, **parquet.row_counts}


def _smooth_group(group: Group, folder: Path) -> int:
    with group.open() as (history, streams):
        parquet = ParquetFolder(folder, f"{group.number}-")
        smoothers = [(stream, SmoothedStream(history, stream, group.source.span)) for stream in streams]
        days = sorted({day for _, smoother in smoothers for day in smoother.days})
        for day in reversed(days):
            for _, smoother in smoothers:
                smoother.look_back(day)
        for day in days:
            for stream, smoothed_stream in smoothers:
                for probabilities in smoothed_stream.day(day):
                    parquet.add("smoothed", marginal_rows("smoothed", stream, probabilities))
        parquet.close()
        return parquet.row_counts.get("smoothed", 0)
