"""Past ticks by stored symbols, and the sealing of the journal into chunks, in one pass over all streams.

Most streams go on where they were sealed last. Where late frames have come, or the last chunk is small, the chunks from
there on are made anew, together with what has come.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice, pairwise, takewhile
from typing import NamedTuple

import numpy as np

from fugu.chains.arrays import Floats, Ints
from fugu.chains.kernel import kernel
from fugu.contract.frames import MAX_TICK, SymbolFrame
from gateway.estimates.beliefs import GIVEN, Bank, Beliefs, Model, SymbolModel, follow, stream_beliefs
from gateway.estimates.catalogue import Catalogue
from gateway.store.coverage import Place
from gateway.store.store import Store
from gateway.store.symbols import Bytes, Chunk, Columns, Head, packed_size, part

__all__ = ["Past", "TickProbabilities", "cut"]


_PAGES = 4, 32
"""How many frames are read at once, at first and at most: often the first few are enough."""
_CHUNK_TICKS = 4_000
_SMALL_TICKS = 1_000
"""A last chunk with fewer is made anew with what follows it."""
_DAY_US = 86_400_000_000
_CHUNK_SPAN = 1 << 16
"""Ticks from the first to the last of a chunk, at most; some of them may have no symbol."""


class TickProbabilities(NamedTuple):
    """Probabilities (n, s) of a policy version's states at n ticks from `first` on; numbers are ahead by `shift`."""

    version: int
    first: int
    shift: int
    probabilities: Floats

    def cut(self, first: int, last: int) -> TickProbabilities:
        """Only the ticks from one to another."""
        low = max(first - self.first, 0)
        inside = self.probabilities[low : max(last - self.first + 1, low)]
        return self._replace(first=self.first + low, probabilities=inside)


class _Stretch(NamedTuple):
    """Symbols (n,) of consecutive ticks under one policy and one shift, and the distribution (k,) of the first."""

    version: int
    first: int
    shift: int
    symbols: Ints
    distribution: Floats

    @property
    def last(self) -> int:
        """Tick of the last symbol."""
        return self.first + len(self.symbols) - 1


class Past:
    """Reads a store, with the models needed so far in `bank`; estimates see `lag` ticks of later symbols."""

    def __init__(self, store: Store, catalogue: Catalogue, lag: int) -> None:
        self._store = store
        self._frames = store.symbols
        self._catalogue = catalogue
        self._lag = lag
        self.bank = Bank()
        self._indices: dict[tuple[str, str, int], int] = {}

    def model(self, device: str, stream: str, version: int) -> int:
        """The index of the model of a policy version."""
        key = (device, stream, version)
        if (index := self._indices.get(key)) is None:
            model = self._catalogue.recall(device, stream, version, SymbolModel)
            index = self._indices[key] = self.bank.index(model.numbers)
        return index

    def models(self, places: Sequence[Place], columns: Columns, which: Ints) -> Ints:
        """(n,) the indices of the models of rows, each of one of some streams."""
        keys, inverse = np.unique(which << 32 | columns.version, return_inverse=True)
        named = [(places[key >> 32], key & (1 << 32) - 1) for key in keys.tolist()]
        indices = [self.model(place.device, place.stream, version) for place, version in named]
        return np.array(indices, dtype=np.int64)[inverse]

    def standing(self, place: Place, tick: int, last: int = MAX_TICK) -> tuple[Beliefs, Columns]:
        """The rows that reach from a tick to another, after what is known before the first; that may begin earlier."""
        tick = self._start(place, tick)
        tail = self._frames.tail.of(place.number, tick, last)
        head = self._frames.head(place.number)
        if head is not None and head.last < tick:
            return self.after(place, head), tail
        chunks = takewhile(lambda chunk: chunk.first <= last, self._frames.chunks(place.number, tick))
        rows = Columns.joined([*(chunk.columns() for chunk in chunks), tail])
        rows = rows.take(np.argsort(rows.first, kind="stable"))
        return self._before(place, int(rows.first[0]) if rows.rows else tick), rows

    def _start(self, place: Place, tick: int) -> int:
        """Where to begin to know what is known at a tick: chunks do not know of late frames in the journal."""
        earliest = self._frames.tail.first(place.number)
        return tick if earliest is None else min(tick, earliest)

    def _before(self, place: Place, tick: int) -> Beliefs:
        """Belief before a tick that a chunk begins with, or that is after all or before all of them."""
        head = self._frames.head(place.number)
        if head is not None and head.last < tick:
            return self.after(place, head)
        chunk = next(self._frames.chunks(place.number, tick), None)
        if chunk is None or chunk.first != tick:
            return Beliefs.unknown(1, self.bank.states)
        return Beliefs.of((GIVEN, 0, 0), chunk.distribution).widened(self.bank.states)

    def after(self, place: Place, head: Head) -> Beliefs:
        """Belief at the end of what is sealed."""
        model = self.model(place.device, place.stream, head.version)
        return Beliefs.of((model, head.last, head.shift), head.distribution).widened(self.bank.states)

    def follow(self, place: Place, beliefs: Beliefs, rows: Columns) -> tuple[Beliefs, Floats]:
        """Belief after rows, from the belief before, and (n, k) the distributions of their first ticks."""
        which = np.zeros(rows.rows, dtype=np.int64)
        model = self.models([place], rows, which)
        beliefs = beliefs.widened(self.bank.states)
        return beliefs, follow(beliefs, self.bank.arrays, which, model, rows, np.arange(rows.rows))

    def distribution_at(self, place: Place, frame: SymbolFrame) -> Floats:
        """The distribution (k,) of the first tick of a stored frame, given all symbols before it."""
        beliefs, rows = self.standing(place, frame.first, frame.first)
        before = np.flatnonzero(rows.first < frame.first).tolist()
        earlier = (part(stored, stored.first, frame.first - 1) for stored in map(rows.frame, before))
        _, firsts = self.follow(place, beliefs, Columns.of((place.number, frame) for frame in (*earlier, frame)))
        return firsts[-1, : self._states(place, frame)].copy()

    def _states(self, place: Place, frame: SymbolFrame) -> int:
        return len(self.bank.models[self.model(place.device, place.stream, frame.policy_version)].initial)

    def rest(self, place: Place, chunk: Chunk, first: int) -> Chunk:
        """Rest of a chunk from a tick on, which is not above its last one."""
        rows = chunk.columns()
        frames = [rows.frame(row) for row in np.flatnonzero(rows.last >= first).tolist()]
        frames[0] = part(frames[0], first, chunk.last)
        first, distribution = frames[0].first, self.distribution_at(place, frames[0])
        columns = Columns.of((place.number, frame) for frame in frames)
        fields = (columns.version, columns.shift, columns.first - first, columns.ticks, columns.bits)
        runs = tuple(zip(*(field.tolist() for field in fields), strict=True))
        return chunk._replace(first=first, distribution=distribution, runs=runs, symbols=columns.packed.tobytes())

    def estimates(
        self, place: Place, first: int = 0, last: int = MAX_TICK, *, newest: bool = False
    ) -> Iterator[TickProbabilities]:
        """The probabilities of the ticks first..last, in tick order, each given the symbols of up to `lag` later ticks.

        Symbols of another policy version, or from after the clock was set, do not count for the ticks before them.
        Ticks without a symbol have an estimate where fewer than `lag` of them lie side by side within a version. With
        `newest`, the newest `lag` ticks have one, too, which later symbols may change.
        """
        waiting: list[_Stretch] = []
        end = -1
        for stretch in self._stretches(place, first):
            end = stretch.last
            waiting.append(stretch)
            while len(waiting) > 1 and waiting[0].last + self._lag < stretch.first:
                yield from self._smoothed_ticks(place, waiting, first, last, MAX_TICK)
                del waiting[0]
            if end >= last + self._lag:
                break
        while waiting:
            yield from self._smoothed_ticks(place, waiting, first, last, MAX_TICK if newest else end - self._lag)
            del waiting[0]

    def _stretches(self, place: Place, first: int) -> Iterator[_Stretch]:
        """Symbols from before a tick on, or from it if a chunk begins there, page by page."""
        start = self._start(place, first)
        chunk = next(self._frames.chunks(place.number, start), None)
        begin = chunk.first if chunk is not None and chunk.first <= start else 0
        frames, (size, most) = self._frames.following(place.number, begin), _PAGES
        beliefs: Beliefs | None = None
        while page := list(islice(frames, size)):
            rows = Columns.of((place.number, frame) for frame in page)
            if beliefs is None:
                beliefs = self._before(place, page[0].first)
            beliefs, distributions = self.follow(place, beliefs, rows)
            joined = (rows.first[1:] == rows.last[:-1] + 1) & (np.diff(rows.version) == 0) & (np.diff(rows.shift) == 0)
            for low, high in pairwise([0, *(np.flatnonzero(~joined) + 1).tolist(), len(page)]):
                symbols = np.frombuffer(b"".join(frame.symbols for frame in page[low:high]), dtype=np.uint8)
                distribution = distributions[low, : self._states(place, page[low])].copy()
                place_of = page[low].policy_version, page[low].first, page[low].shift
                yield _Stretch(*place_of, symbols.astype(np.int64), distribution)
            size = min(2 * size, most)

    def _smoothed_ticks(
        self, place: Place, stretches: list[_Stretch], first: int, last: int, newest: int
    ) -> Iterator[TickProbabilities]:
        """The ticks first..last, and up to `newest`, of the first of some stretches, and of a short gap after it."""
        from fugu.chains.inference import fixed_lag_marginals  # here, because a gateway looks back in frames only

        head = stretches[0]
        model, parts, at, ticks = self._model(place, head), [head.symbols], head.last, len(head.symbols)
        for later in stretches[1:]:
            gap = later.first - at - 1
            if self._model(place, later) is not model or later.shift != head.shift or gap >= max(self._lag, 1):
                break
            if at == head.last:
                ticks += gap
            parts += [np.full(gap, -1, dtype=np.int64), later.symbols]
            at = later.last
            if at >= head.first + ticks - 1 + self._lag:
                break
        low, high = max(first - head.first, 0), min(min(last, newest) - head.first + 1, ticks)
        if low < high:
            inputs = np.concatenate(parts)[: high + self._lag], head.distribution, model.transition, model.emission
            probabilities = stream_beliefs(model, fixed_lag_marginals(*inputs, self._lag)[low:high])
            yield TickProbabilities(head.version, head.first + low, head.shift, probabilities)

    def _model(self, place: Place, stretch: _Stretch) -> Model:
        return self.bank.models[self.model(place.device, place.stream, stretch.version)]

    def seal(self) -> list[Place]:
        """Write chunks of all that the journal holds, within a transaction, and empty it; return its sequences."""
        places = {place.number: place for place in self._store.places(self._frames.tail.numbers)}
        rows, standing, removed = self._rows(places)
        numbers, which = np.unique(rows.number, return_inverse=True)
        sealed = [places[number] for number in numbers.tolist()]
        model = self.models(sealed, rows, which)
        sizes = self.bank.arrays.facts[:, 0]
        beliefs = Beliefs.unknown(len(sealed), self.bank.states)
        for at, place in enumerate(sealed):
            if (belief := standing.get(place.number)) is not None:
                beliefs.state[at] = belief.state[0]
                beliefs.distribution[at, : belief.distribution.shape[1]] = belief.distribution[0]
        firsts = follow(beliefs, self.bank.arrays, which, model, rows, np.arange(rows.rows))
        chunks: list[Chunk] = []
        heads: dict[int, Head] = {}
        for row, first, runs, symbols in cut(rows, _CHUNK_TICKS, _CHUNK_SPAN):
            place, distribution = sealed[which[row]], firsts[row, : sizes[model[row]]]
            version, shift, offset, ticks, _ = runs[-1]
            last = first + offset + ticks - 1
            clock = self._catalogue.policy(place.device, place.stream, version).clock
            day = (clock.epoch_us + (last + 1 - shift) * clock.period_us) // _DAY_US
            chunks.append(Chunk(place.number, first, last, distribution, version, day, runs, symbols))
            known_by, tick, shift = beliefs.state[which[row]].tolist()
            end = beliefs.distribution[which[row], : sizes[known_by]]
            heads[place.number] = Head(place.number, tick, shift, version, end, first, chunks[-1].ticks, -1)
        self._frames.seal(removed, chunks, heads.values())
        return list(places.values())

    def _rows(self, places: dict[int, Place]) -> tuple[Columns, dict[int, Beliefs], list[tuple[int, int]]]:
        """Rows to be sealed, by sequence and in tick order.

        Also what is known of each sequence before its first row, and the ticks from which on its chunks are made anew.
        """
        every = self._frames.tail.every()
        numbers, begins = np.unique(every.number, return_index=True)
        firsts = every.first[begins].tolist()
        heads = {head.number: head for head in self._frames.heads(numbers.tolist())}
        standing: dict[int, Beliefs] = {}
        parts, removed = [], []
        for number, first in zip(numbers.tolist(), firsts, strict=True):
            if (head := heads.get(number)) is None:
                continue
            if head.last < first and (head.chunk < 0 or head.ticks >= _SMALL_TICKS):
                standing[number] = self.after(places[number], head)
                continue
            begin = min(first, head.chunk) if head.chunk >= 0 else first
            standing[number], frames = self.standing(places[number], begin)
            parts.append(frames)
            removed.append((number, min(first, int(frames.first[0]))))
        if parts:
            whole = every.take(np.flatnonzero(~np.isin(every.number, np.array([number for number, _ in removed]))))
            every = Columns.joined((whole, *parts))
            every = every.take(np.lexsort((every.first, every.number)))
        return every, standing, removed


def cut(
    columns: Columns, most_ticks: int, most_span: int
) -> Iterator[tuple[int, int, tuple[tuple[int, int, int, int, int], ...], bytes]]:
    """Cut rows with symbols, in the order of their sequences and ticks, into chunks; none is of two sequences.

    A chunk has at most `most_ticks` symbols, unless a single row has more, and spans at most `most_span` ticks. Yields
    the first row of each, its first tick, and its runs and symbols, as `store.symbols.Chunk` has them.
    """
    chunk_of, run_of = np.zeros((2, columns.rows), dtype=np.int64)
    arrays = (columns.number, columns.version, columns.shift, columns.first, columns.ticks, columns.bits)
    chunks, runs = _number(*arrays, most_ticks, most_span, chunk_of, run_of)
    begin = np.searchsorted(run_of, np.arange(runs))
    _, version, shift, first, _, bits = (column[begin] for column in arrays)
    ticks = np.add.reduceat(columns.ticks, begin)
    sizes = packed_size(ticks, bits)
    ends = np.cumsum(sizes)
    packed = np.zeros(int(sizes.sum()), dtype=np.uint8)
    _join(columns.ticks, columns.bits, columns.start, columns.packed, run_of, ends - sizes, packed)
    rows = np.searchsorted(chunk_of, np.arange(chunks))
    begins, stored = [0, *ends.tolist()], packed.tobytes()
    every = list(zip(*(column.tolist() for column in (version, shift, first, ticks, bits)), strict=True))
    for row, (low, high) in zip(rows.tolist(), pairwise([*run_of[rows].tolist(), runs]), strict=True):
        start = every[low][2]
        pieces = tuple((version, shift, at - start, count, bits) for version, shift, at, count, bits in every[low:high])
        yield row, start, pieces, stored[begins[low] : begins[high]]


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
def _join(count: Ints, bits: Ints, start: Ints, packed: Bytes, run_of: Ints, begins: Ints, out: Bytes) -> None:
    """Pack the symbols of each run from where it begins, into zeroed bytes."""
    run, to = -1, 0
    for row in range(count.size):
        if run_of[row] != run:
            run, to = run_of[row], 0
        wide, at, base = bits[row], start[row], begins[run]
        per_byte, mask = 8 // wide, (1 << wide) - 1
        if to % per_byte == 0:  # whole bytes
            size = (count[row] + per_byte - 1) // per_byte
            for i in range(size):
                out[base + to // per_byte + i] = packed[at + i]
            to += count[row]
            continue
        for i in range(count[row]):
            symbol = (packed[at + i // per_byte] >> (8 - wide - wide * (i % per_byte))) & mask
            out[base + to // per_byte] |= np.uint8(symbol << (8 - wide - wide * (to % per_byte)))
            to += 1
