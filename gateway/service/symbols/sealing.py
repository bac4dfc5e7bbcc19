"""Moves what the journal holds into chunks, in one pass over the frames of all streams.

Most streams go on where they were sealed last. Where late frames have come, or the last chunk is small, the chunks from
there on are made anew, together with what has come.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from fugu.chains.arrays import Ints
from fugu.chains.kernel import kernel
from gateway.service.kinds.kind import Place
from gateway.service.policies import Catalogue
from gateway.service.store import Store
from gateway.service.store.symbols import CHUNK_SPAN, CHUNK_TICKS, SMALL_TICKS, Chunk, Head
from gateway.service.symbols.beliefs import Beliefs, follow
from gateway.service.symbols.columns import Bytes, Columns, packed_size
from gateway.service.symbols.past import Past

__all__ = ["cut", "seal"]

_DAY_US = 86_400_000_000


def seal(store: Store, catalogue: Catalogue, past: Past) -> list[Place]:
    """Write chunks of all that the journal holds, within a transaction; the journal is empty afterwards.

    Returns:
        The sequences that it had anything of.
    """
    places = store.places(store.symbols.tail.numbers)
    rows, standing, removed = _rows(store, past, {place.number: place for place in places})
    numbers, which = np.unique(rows.number, return_inverse=True)
    some = set(numbers.tolist())
    sealed = [place for place in places if place.number in some]
    model = _models(past, sealed, rows, which)
    states, sizes = past.bank.states, past.bank.arrays.facts[:, 0]
    beliefs = Beliefs.unknown(len(sealed), states)
    for at, place in enumerate(sealed):
        if (known := standing.get(place.number)) is not None:
            beliefs.state[at], beliefs.distribution[at, : known.distribution.shape[1]] = (
                known.state[0],
                known.distribution[0],
            )
    firsts = follow(beliefs, past.bank.arrays, which, model, rows, np.arange(rows.rows))
    chunks, last = [], {}
    for piece in cut(rows, CHUNK_TICKS, CHUNK_SPAN):
        place, distribution = sealed[which[piece.row]], firsts[piece.row, : sizes[model[piece.row]]]
        version, shift = piece.runs[-1][:2]
        clock = catalogue.policy(place.device, place.stream, version).clock
        day = (clock.epoch_us + (piece.last + 1 - shift) * clock.period_us) // _DAY_US
        chunks.append(
            Chunk(place.number, piece.first, piece.last, distribution, version, day, piece.runs, piece.symbols)
        )
        last[place.number] = piece
    heads = []
    for place, (known, tick, shift), distribution in zip(
        sealed, beliefs.state.tolist(), beliefs.distribution, strict=True
    ):
        piece = last[place.number]
        version = piece.runs[-1][0]
        heads.append(
            Head(place.number, tick, shift, version, distribution[: sizes[known]], piece.first, piece.ticks, -1)
        )
    store.symbols.seal(removed, chunks, heads)
    return places


def _rows(
    store: Store, past: Past, places: dict[int, Place]
) -> tuple[Columns, dict[int, Beliefs], list[tuple[int, int]]]:
    """What is to be sealed, by sequence and in tick order.

    Returns:
        The rows; what is known of each sequence before its first one, if anything is; and the ticks from which on
        chunks are made anew, by sequence.
    """
    every = store.symbols.tail.every()
    numbers, begins = np.unique(every.number, return_index=True)
    firsts = every.first[begins].tolist()
    heads = {head.number: head for head in store.symbols.heads(numbers.tolist())}
    standing: dict[int, Beliefs] = {}
    parts, removed = [], []
    for number, first in zip(numbers.tolist(), firsts, strict=True):
        if (head := heads.get(number)) is None:
            continue
        if head.last < first and (head.chunk < 0 or head.ticks >= SMALL_TICKS):
            standing[number] = past.after(places[number], head)
            continue
        found = past.standing(places[number], min(first, head.chunk) if head.chunk >= 0 else first)
        standing[number] = found.beliefs
        parts.append(found.rows)
        removed.append((number, min(first, int(found.rows.first[0]))))
    if parts:
        whole = every.take(np.flatnonzero(~np.isin(every.number, np.array([number for number, _ in removed]))))
        every = Columns.joined((whole, *parts))
        every = every.take(np.lexsort((every.first, every.number)))
    return every, standing, removed


def _models(past: Past, places: list[Place], rows: Columns, which: Ints) -> Ints:
    """(n,) the indices of the rows' models."""
    keys, inverse = np.unique(which << 32 | rows.version, return_inverse=True)
    found = []
    for key in keys.tolist():
        place = places[key >> 32]
        found.append(past.model(place.device, place.stream, key & (1 << 32) - 1))
    return np.array(found, dtype=np.int64)[inverse]


class Piece(NamedTuple):
    """A chunk to be: the first of the given rows that it holds, its ticks, and its runs, as `store.symbols.Chunk`."""

    row: int
    first: int
    last: int
    ticks: int
    runs: tuple[tuple[int, int, int, int, int], ...]
    symbols: bytes


def cut(columns: Columns, most_ticks: int, most_span: int) -> Iterator[Piece]:
    """Cut rows with symbols, in the order of their sequences and ticks, into chunks; none is of two sequences.

    Args:
        most_ticks: symbols of a chunk, at most, unless a single row has more.
        most_span: ticks from the first to the last of a chunk, at most.
    """
    chunk_of, run_of = np.zeros((2, columns.rows), dtype=np.int64)
    given = (columns.number, columns.version, columns.shift, columns.first, columns.ticks, columns.bits)
    chunks, runs = _number(*given, most_ticks, most_span, chunk_of, run_of)
    table = np.zeros((runs, 6), dtype=np.int64)
    _describe(*given[1:], chunk_of, run_of, table)
    sizes = packed_size(table[:, 3], table[:, 4])
    ends = np.cumsum(sizes)
    packed = np.zeros(int(sizes.sum()), dtype=np.uint8)
    _join(columns.ticks, columns.bits, columns.start, columns.packed, run_of, ends - sizes, packed)
    rows = np.searchsorted(chunk_of, np.arange(chunks))
    first_runs = np.searchsorted(table[:, 5], np.arange(chunks + 1)).tolist()
    begins, stored, lists = [0, *ends.tolist()], packed.tobytes(), table.tolist()
    for chunk, row in enumerate(rows.tolist()):
        low, high = first_runs[chunk], first_runs[chunk + 1]
        first = lists[low][2]
        some = tuple(
            (version, shift, at - first, count, bits) for version, shift, at, count, bits, _ in lists[low:high]
        )
        last = first + some[-1][2] + some[-1][3] - 1
        yield Piece(row, first, last, sum(run[3] for run in some), some, stored[begins[low] : begins[high]])


@kernel
def _number(
    number: Ints, version: Ints, shift: Ints, first: Ints, count: Ints, bits: Ints, most_ticks: int, most_span: int,
    chunk_of: Ints, run_of: Ints,
) -> tuple[int, int]:  # fmt: skip
    """Number the chunks and the runs of rows; how many there are."""
    chunk, run, ticks, begin = -1, -1, 0, 0
    for row in range(number.size):
        last, before = first[row] + count[row] - 1, row - 1
        if row == 0 or number[row] != number[before] or ticks + count[row] > most_ticks or last - begin >= most_span:
            chunk, ticks, begin = chunk + 1, 0, first[row]
            run += 1
        elif (
            first[row] != first[before] + count[before]
            or version[row] != version[before]
            or shift[row] != shift[before]
            or bits[row] != bits[before]
        ):
            run += 1
        ticks += count[row]
        chunk_of[row], run_of[row] = chunk, run
    return chunk + 1, run + 1


@kernel
def _describe(
    version: Ints, shift: Ints, first: Ints, count: Ints, bits: Ints, chunk_of: Ints, run_of: Ints, table: Ints
) -> None:
    """Fill in of each run its version, shift, first tick, ticks, bits of a symbol, and chunk."""
    for row in range(version.size):
        run = run_of[row]
        if table[run, 3] == 0:
            table[run, 0], table[run, 1], table[run, 2] = version[row], shift[row], first[row]
            table[run, 4], table[run, 5] = bits[row], chunk_of[row]
        table[run, 3] += count[row]


@kernel
def _join(count: Ints, bits: Ints, start: Ints, packed: Bytes, run_of: Ints, begins: Ints, out: Bytes) -> None:
    """Pack the symbols of each run from where it begins, into zeroed bytes."""
    run, to = -1, 0
    for row in range(count.size):
        if run_of[row] != run:
            run, to = run_of[row], 0
        wide, at, base = bits[row], start[row], begins[run]
        each, mask = 8 // wide, (1 << wide) - 1
        if to % each == 0:  # whole bytes
            size = (count[row] + each - 1) // each
            for i in range(size):
                out[base + to // each + i] = packed[at + i]
            to += count[row]
            continue
        for i in range(count[row]):
            symbol = (packed[at + i // each] >> (8 - wide - wide * (i % each))) & mask
            out[base + to // each] |= np.uint8(symbol << (8 - wide - wide * (to % each)))
            to += 1
