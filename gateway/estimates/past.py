"""Estimates of past ticks by stored symbols, and the sealing of the journal into chunks, in one pass over all streams.

Most streams continue at their last sealed tick. If late frames have come, or the last chunk is small, the chunks from
there on are made again, together with the new frames.
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
from gateway.store.symbols import Bytes, Chunk, Columns, Head, cut_frame, packed_size

__all__ = ["Past", "TickProbabilities", "cut_chunks"]


_PAGES = 4, 32
"""Frames of the first page that is read, and of the largest: often the first page is enough."""
_CHUNK_TICKS = 4_000
_SMALL_TICKS = 1_000
"""A last chunk with fewer ticks is made again, together with the next rows."""
_DAY_US = 86_400_000_000
_CHUNK_SPAN = 1 << 16
"""Most ticks from the first to the last of a chunk, including ticks without a symbol."""


class TickProbabilities(NamedTuple):
    """Probabilities (n, s) of a policy version's states at n ticks from `first` on, ahead by `shift`."""

    version: int
    first: int
    shift: int
    probabilities: Floats

    def cut(self, first: int, last: int) -> TickProbabilities:
        """Return only the ticks first..last."""
        offset = max(first - self.first, 0)
        probabilities = self.probabilities[offset : max(last - self.first + 1, offset)]
        return self._replace(first=self.first + offset, probabilities=probabilities)


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
    """Reads a store; the models needed so far are in `bank`. Estimates see `lag` ticks of later symbols."""

    def __init__(self, store: Store, catalogue: Catalogue, lag: int) -> None:
        self.store = store
        self._frames = store.symbols
        self.catalogue = catalogue
        self.lag = lag
        self.bank = Bank()

    def model_index(self, device: str, stream: str, version: int) -> int:
        """Return the index of the model of a policy version."""
        return self.bank.index(self.catalogue.recall(device, stream, version, SymbolModel).chain_model)

    def model_indices(self, sequences: Sequence[Place], columns: Columns, slots: Ints) -> Ints:
        """Return (n,) the index of each row's model; `slots` (n,) are the rows' places in `sequences`."""
        key_codes, row_codes = np.unique(slots << 32 | columns.version, return_inverse=True)
        model_keys = [(sequences[key_code >> 32], key_code & (1 << 32) - 1) for key_code in key_codes.tolist()]
        indices = [self.model_index(sequence.device, sequence.stream, version) for sequence, version in model_keys]
        return np.array(indices, dtype=np.int64)[row_codes]

    def beliefs_before(self, place: Place, tick: int, last: int = MAX_TICK) -> tuple[Beliefs, Columns]:
        """Return the belief before the ticks tick..last, and their rows, of which the first may begin earlier."""
        tick = self._first_known_tick(place, tick)
        journal_rows = self._frames.tail.of(place.number, tick, last)
        chunks = takewhile(lambda chunk: chunk.first <= last, self._frames.chunks(place.number, tick))
        rows = Columns.joined([*(chunk.columns() for chunk in chunks), journal_rows])
        rows = rows.take(np.argsort(rows.first, kind="stable"))
        return self._belief_before(place, int(rows.first[0]) if rows.row_count else tick), rows

    def _first_known_tick(self, place: Place, tick: int) -> int:
        """Return the earlier one of a tick and the journal's first frame, which later chunks lack."""
        earliest = self._frames.tail.first(place.number)
        return tick if earliest is None else min(tick, earliest)

    def _belief_before(self, place: Place, tick: int) -> Beliefs:
        """Return the belief before a tick, which is the start of a chunk, or before or after all chunks."""
        head = self._frames.head(place.number)
        if head is not None and head.last < tick:
            return self.belief_after(place, head)
        chunk = next(self._frames.chunks(place.number, tick), None)
        if chunk is None or chunk.first != tick:
            return Beliefs.unknown(1, self.bank.states)
        return Beliefs.of((GIVEN, 0, 0), chunk.distribution).with_states(self.bank.states)

    def belief_after(self, place: Place, head: Head) -> Beliefs:
        """Return the belief at the last sealed tick."""
        model_index = self.model_index(*place.device_and_stream, head.version)
        return Beliefs.of((model_index, head.last, head.shift), head.distribution).with_states(self.bank.states)

    def follow(self, place: Place, beliefs: Beliefs, rows: Columns) -> tuple[Beliefs, Floats]:
        """Return the belief after rows, from the belief before, and (n, k) the distributions of their first ticks."""
        slots = np.zeros(rows.row_count, dtype=np.int64)
        row_models = self.model_indices([place], rows, slots)
        beliefs = beliefs.with_states(self.bank.states)
        return beliefs, follow(beliefs, self.bank.arrays, slots, row_models, rows, np.arange(rows.row_count))

    def distribution_at(self, place: Place, frame: SymbolFrame) -> Floats:
        """Return the distribution (k,) of the first tick of a stored frame, given all symbols before it."""
        beliefs, rows = self.beliefs_before(place, frame.first, frame.first)
        earlier_rows = np.flatnonzero(rows.first < frame.first).tolist()
        earlier_frames = (cut_frame(other, other.first, frame.first - 1) for other in map(rows.frame, earlier_rows))
        _, priors = self.follow(place, beliefs, Columns.of((place.number, frame) for frame in (*earlier_frames, frame)))
        return priors[-1, : self._state_count(place, frame)].copy()

    def newest_frame(self, place: Place) -> SymbolFrame | None:
        """Return a stream's newest stored frame, or `None`; a sealed one has at most the policy's frame length."""
        tail_frame, sealed_tick = self._frames.tail.newest(place.number), self._frames.last(place.number)
        if tail_frame is not None and tail_frame.last > sealed_tick:
            return tail_frame
        if sealed_tick < 0 or not (frames := self._frames.holding(place.number, sealed_tick, sealed_tick)):
            return None
        policy = self.catalogue.policy(*place.device_and_stream, frames[0].policy_version)
        return self._frames.holding(place.number, max(sealed_tick - policy.frame_ticks + 1, 0), sealed_tick)[-1]

    def _state_count(self, place: Place, frame: SymbolFrame) -> int:
        return len(self.bank.models[self.model_index(*place.device_and_stream, frame.policy_version)].initial)

    def chunk_from(self, place: Place, chunk: Chunk, first_tick: int) -> Chunk:
        """Return the remainder of a chunk from a tick on, which is at most the chunk's last tick."""
        rows = chunk.columns()
        frames = [rows.frame(row) for row in np.flatnonzero(rows.last >= first_tick).tolist()]
        frames[0] = cut_frame(frames[0], first_tick, chunk.last)
        first_tick, distribution = frames[0].first, self.distribution_at(place, frames[0])
        columns = Columns.of((place.number, frame) for frame in frames)
        run_columns = (columns.version, columns.shift, columns.first - first_tick, columns.ticks, columns.bits)
        runs = tuple(zip(*(run_column.tolist() for run_column in run_columns), strict=True))
        return chunk._replace(first=first_tick, distribution=distribution, runs=runs, symbols=columns.packed.tobytes())

    def estimates(
        self, place: Place, first: int = 0, last: int = MAX_TICK, *, with_newest: bool = False
    ) -> Iterator[TickProbabilities]:
        """Yield the probabilities of the ticks first..last, in tick order, given symbols up to `lag` ticks later.

        Symbols of another policy version, or from after the clock was set, do not count for the ticks before them. Of
        ticks without a symbol, fewer than `lag` in a row within a version have an estimate. With `with_newest`, so do
        the newest `lag` ticks, whose estimates later symbols may change.
        """
        stretches: list[_Stretch] = []
        end = -1
        for stretch in self._stretches(place, first):
            end = stretch.last
            stretches.append(stretch)
            while len(stretches) > 1 and stretches[0].last + self.lag < stretch.first:
                yield from self._smoothed_ticks(place, stretches, first, last, MAX_TICK)
                del stretches[0]
            if end >= last + self.lag:
                break
        while stretches:
            yield from self._smoothed_ticks(place, stretches, first, last, MAX_TICK if with_newest else end - self.lag)
            del stretches[0]

    def _stretches(self, place: Place, first: int) -> Iterator[_Stretch]:
        """Yield the stretches of symbols from a tick on, read in pages; the first may begin before the tick."""
        read_from = self._first_known_tick(place, first)
        chunk = next(self._frames.chunks(place.number, read_from), None)
        chunk_start = chunk.first if chunk is not None and chunk.first <= read_from else 0
        frames, (page_size, max_page_size) = self._frames.following(place.number, chunk_start), _PAGES
        beliefs: Beliefs | None = None
        while page := list(islice(frames, page_size)):
            rows = Columns.of((place.number, frame) for frame in page)
            if beliefs is None:
                beliefs = self._belief_before(place, page[0].first)
            beliefs, distributions = self.follow(place, beliefs, rows)
            is_next = (rows.first[1:] == rows.last[:-1] + 1) & (np.diff(rows.version) == 0) & (np.diff(rows.shift) == 0)
            for begin, end in pairwise([0, *(np.flatnonzero(~is_next) + 1).tolist(), len(page)]):
                symbols = np.frombuffer(b"".join(frame.symbols for frame in page[begin:end]), dtype=np.uint8)
                distribution = distributions[begin, : self._state_count(place, page[begin])].copy()
                stretch_start = page[begin].policy_version, page[begin].first, page[begin].shift
                yield _Stretch(*stretch_start, symbols.astype(np.int64), distribution)
            page_size = min(2 * page_size, max_page_size)

    def _smoothed_ticks(
        self, place: Place, stretches: list[_Stretch], first: int, last: int, newest_tick: int
    ) -> Iterator[TickProbabilities]:
        """Yield estimates of the first stretch and a short gap after it, at ticks first..last up to `newest_tick`."""
        from fugu.chains.inference import fixed_lag_marginals  # here, because a gateway looks back in frames only

        stretch = stretches[0]
        model, symbols = self._model_of(place, stretch), [stretch.symbols]
        end, ticks = stretch.last, len(stretch.symbols)
        for later in stretches[1:]:
            gap = later.first - end - 1
            if self._model_of(place, later) is not model or later.shift != stretch.shift or gap >= max(self.lag, 1):
                break
            if end == stretch.last:
                ticks += gap
            symbols += [np.full(gap, -1, dtype=np.int64), later.symbols]
            end = later.last
            if end >= stretch.first + ticks - 1 + self.lag:
                break
        low_index, stop = max(first - stretch.first, 0), min(min(last, newest_tick) - stretch.first + 1, ticks)
        if low_index < stop:
            inputs = np.concatenate(symbols)[: stop + self.lag], stretch.distribution, model.transition, model.emission
            probabilities = stream_beliefs(model, fixed_lag_marginals(*inputs, self.lag)[low_index:stop])
            yield TickProbabilities(stretch.version, stretch.first + low_index, stretch.shift, probabilities)

    def _model_of(self, place: Place, stretch: _Stretch) -> Model:
        return self.bank.models[self.model_index(*place.device_and_stream, stretch.version)]

    def seal(self) -> list[Place]:
        """Write the journal's rows into chunks, within a transaction, and empty the journal. Return its sequences."""
        places = {place.number: place for place in self.store.places(self._frames.tail.sequences)}
        rows, prior_beliefs, removals = self._rows_to_seal(places)
        sequence_numbers, slots = np.unique(rows.number, return_inverse=True)
        sealed_places = [places[number] for number in sequence_numbers.tolist()]
        row_models = self.model_indices(sealed_places, rows, slots)
        state_counts = self.bank.arrays.facts[:, 0]
        beliefs = Beliefs.unknown(len(sealed_places), self.bank.states)
        for index, place in enumerate(sealed_places):
            if (belief := prior_beliefs.get(place.number)) is not None:
                beliefs.heads[index] = belief.heads[0]
                beliefs.distribution[index, : belief.distribution.shape[1]] = belief.distribution[0]
        priors = follow(beliefs, self.bank.arrays, slots, row_models, rows, np.arange(rows.row_count))
        chunks, heads = [], {}
        for row, first_tick, runs, symbols in cut_chunks(rows, _CHUNK_TICKS, _CHUNK_SPAN):
            place, distribution = (sealed_places[slots[row]], priors[row, : state_counts[row_models[row]]])
            version, shift, offset, ticks, _ = runs[-1]
            last_tick = first_tick + offset + ticks - 1
            clock = self.catalogue.policy(place.device, place.stream, version).clock
            day = (clock.epoch_us + (last_tick + 1 - shift) * clock.period_us) // _DAY_US
            chunks.append(Chunk(place.number, first_tick, last_tick, distribution, version, day, runs, symbols))
            model_index, newest_tick, shift = beliefs.heads[slots[row]].tolist()
            end_distribution = beliefs.distribution[slots[row], : state_counts[model_index]]
            heads[place.number] = Head(
                place.number, newest_tick, shift, version, end_distribution, first_tick, chunks[-1].ticks, -1
            )
        self._frames.seal(removals, chunks, heads.values())
        return list(places.values())

    def _rows_to_seal(self, places: dict[int, Place]) -> tuple[Columns, dict[int, Beliefs], list[tuple[int, int]]]:
        """Return the rows to be sealed, by sequence and in tick order.

        Also returns the belief about each sequence before its first row, and the ticks from which its chunks are made
        again.
        """
        rows = self._frames.tail.all_columns()
        sequence_numbers, first_rows = np.unique(rows.number, return_index=True)
        first_ticks = rows.first[first_rows].tolist()
        heads = {head.number: head for head in self._frames.heads(sequence_numbers.tolist())}
        prior_beliefs, reread_rows, removals = {}, [], []
        for number, first_new_tick in zip(sequence_numbers.tolist(), first_ticks, strict=True):
            if (head := heads.get(number)) is None:
                continue
            if head.last < first_new_tick and (head.chunk < 0 or head.ticks >= _SMALL_TICKS):
                prior_beliefs[number] = self.belief_after(places[number], head)
                continue
            first_tick = min(first_new_tick, head.chunk) if head.chunk >= 0 else first_new_tick
            prior_beliefs[number], sequence_rows = self.beliefs_before(places[number], first_tick)
            reread_rows.append(sequence_rows)
            removals.append((number, min(first_new_tick, int(sequence_rows.first[0]))))
        if reread_rows:
            intact_rows = rows.take(np.flatnonzero(~np.isin(rows.number, np.array([number for number, _ in removals]))))
            rows = Columns.joined((intact_rows, *reread_rows))
            rows = rows.take(np.lexsort((rows.first, rows.number)))
        return rows, prior_beliefs, removals


def cut_chunks(
    columns: Columns, max_ticks: int, max_span: int
) -> Iterator[tuple[int, int, tuple[tuple[int, int, int, int, int], ...], bytes]]:
    """Cut rows with symbols, in the order of their sequences and ticks, into chunks of one sequence each.

    A chunk has at most `max_ticks` symbols, unless a single row has more, and spans at most `max_span` ticks. Yields
    the first row of each chunk, its first tick, and its runs and symbols, as `store.symbols.Chunk` has them.
    """
    chunk_of, run_of = np.zeros((2, columns.row_count), dtype=np.int64)
    row_columns = (columns.number, columns.version, columns.shift, columns.first, columns.ticks, columns.bits)
    chunk_count, run_count = _number_chunks(*row_columns, max_ticks, max_span, chunk_of, run_of)
    first_rows = np.searchsorted(run_of, np.arange(run_count))
    _, version, shift, first, _, bits = (column[first_rows] for column in row_columns)
    ticks = np.add.reduceat(columns.ticks, first_rows)
    sizes = packed_size(ticks, bits)
    byte_ends = np.cumsum(sizes)
    packed = np.zeros(int(sizes.sum()), dtype=np.uint8)
    _pack_runs(columns.ticks, columns.bits, columns.start, columns.packed, run_of, byte_ends - sizes, packed)
    chunk_rows = np.searchsorted(chunk_of, np.arange(chunk_count))
    byte_offsets, symbol_bytes = [0, *byte_ends.tolist()], packed.tobytes()
    runs = list(zip(*(column.tolist() for column in (version, shift, first, ticks, bits)), strict=True))
    for row, (begin, end) in zip(chunk_rows.tolist(), pairwise([*run_of[chunk_rows].tolist(), run_count]), strict=True):
        start = runs[begin][2]
        chunk_runs = (
            (version, shift, tick - start, count, bits) for version, shift, tick, count, bits in runs[begin:end]
        )
        yield row, start, tuple(chunk_runs), symbol_bytes[byte_offsets[begin] : byte_offsets[end]]


@kernel
def _number_chunks(
    number: Ints, version: Ints, shift: Ints, first: Ints, count: Ints, bits: Ints, max_ticks: int, max_span: int,
    chunk_of: Ints, run_of: Ints,
) -> tuple[int, int]:  # fmt: skip
    """Number the chunks and the runs of rows. Return how many chunks and runs there are."""
    chunk, run, ticks, begin = -1, -1, 0, 0
    for row in range(number.size):
        last, previous = first[row] + count[row] - 1, row - 1
        if row == 0 or number[row] != number[previous] or ticks + count[row] > max_ticks or last - begin >= max_span:
            chunk, ticks, begin = chunk + 1, 0, first[row]
            run += 1
        elif (
            first[row] != first[previous] + count[previous]
            or version[row] != version[previous]
            or shift[row] != shift[previous]
            or bits[row] != bits[previous]
        ):
            run += 1
        ticks += count[row]
        chunk_of[row], run_of[row] = chunk, run
    return chunk + 1, run + 1


@kernel
def _pack_runs(ticks: Ints, bits: Ints, start: Ints, packed: Bytes, run_of: Ints, offsets: Ints, out: Bytes) -> None:
    """Pack the symbols of each run into zeroed bytes, from the run's offset on."""
    run, target = -1, 0
    for row in range(ticks.size):
        if run_of[row] != run:
            run, target = run_of[row], 0
        width, source_byte, offset = bits[row], start[row], offsets[run]
        per_byte, mask = 8 // width, (1 << width) - 1
        if target % per_byte == 0:  # whole bytes
            byte_count = (ticks[row] + per_byte - 1) // per_byte
            for i in range(byte_count):
                out[offset + target // per_byte + i] = packed[source_byte + i]
            target += ticks[row]
            continue
        for i in range(ticks[row]):
            symbol = (packed[source_byte + i // per_byte] >> (8 - width - width * (i % per_byte))) & mask
            out[offset + target // per_byte] |= np.uint8(symbol << (8 - width - width * (target % per_byte)))
            target += 1
