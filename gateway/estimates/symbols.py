"""Symbols: frames with one symbol of a table for each tick; all streams are followed at once by their models.

Frames that continue their stream without a gap are taken as arrays. The others are checked one by one, like frames of
other kinds, and end in the same journal. `warm` compiles the kernels that a round needs, so that no frame waits for
them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice, repeat
from typing import NamedTuple

import numpy as np

from fugu.chains.arrays import Bools, Floats, Ints
from fugu.chains.kernel import kernel
from fugu.chains.model import likelihood_rows
from fugu.contract.errors import FuguError, Reason, RefusedError
from fugu.contract.frames import SymbolFrame
from fugu.contract.policy import Clock, Policy
from fugu.contract.reports import StateEstimate
from gateway.estimates.beliefs import Bank, Beliefs, Model, SymbolModel, follow, look_back, stream_beliefs
from gateway.estimates.catalogue import Catalogue
from gateway.estimates.kinds import Kind
from gateway.estimates.past import Past, cut_chunks
from gateway.store.coverage import FrameSpan, Place
from gateway.store.journal import Arrivals, Streams, enlarge, parse, wall_time
from gateway.store.store import Store
from gateway.store.symbols import Columns

__all__ = ["Reports", "Symbols", "warm"]


_DIGITS = 6
NUMBER, AFTER, END, SHIFT, VERSION = range(5)
PROGRESS_FIELDS = 5
"""A stream in the store: its number, the last interval (after, end] of accounted ticks, and its newest frame's shift
and policy version."""
UNKNOWN = -2
"""In place of a stream's end that has to be read from the store."""
_NO_ROWS = np.zeros(0, dtype=np.int64)
_NO_ARRIVALS = Arrivals(_NO_ROWS, Columns.of(()), []), _NO_ROWS.astype(np.bool_), _NO_ROWS


def take_continuing(slots: Ints, columns: Columns, order: Ints, progress: Ints) -> Bools:
    """Take the frames that continue their stream, without a gap, under the same policy and clock.

    After a frame that does not, no frame of its stream is taken. Returns (n,) which rows are taken.

    Args:
        slots: (n,) the stream of each row in `progress`.
        order: (n,) the rows in the order of their streams and ticks.
        progress: (streams, 5), changed in place by the taken rows.
    """
    is_taken = np.zeros(columns.row_count, dtype=np.bool_)
    _take_rows(
        *(order, slots, columns.version, columns.shift, columns.previous, columns.first, columns.ticks),
        *(progress, is_taken),
    )
    return is_taken


@kernel
def _take_rows(
    order: Ints, slots: Ints, version: Ints, shift: Ints, previous: Ints, first: Ints, ticks: Ints, progress: Ints,
    is_taken: Bools,
) -> None:  # fmt: skip
    slot, is_continued = -1, True
    for row in order:
        if slots[row] != slot:
            slot, is_continued = slots[row], True
        slot_progress = progress[slot]
        is_continued &= slot_progress[AFTER] <= previous[row] <= slot_progress[END] == first[row] - 1
        is_continued &= version[row] == slot_progress[VERSION] and shift[row] == slot_progress[SHIFT]
        if is_continued:
            slot_progress[END] = first[row] + ticks[row] - 1
            is_taken[row] = True


class Symbols(Kind[SymbolFrame]):
    """The kind of frames of symbols, with the `past` of their streams, and the `reports` of new frames.

    The calling thread owns `store`; estimates see `lag` ticks of later symbols. `revise` does nothing, because `write`
    computes again what late frames change.
    """

    counter = ""

    def __init__(self, store: Store, catalogue: Catalogue, lag: int, streams: Streams, counters: Counter[str]) -> None:
        self._store = store
        self._frames = store.symbols
        self._streams = streams
        self._catalogue = catalogue
        self.past = Past(store, catalogue, lag)
        self.reports = Reports(self.past, store.symbols.unreported(), counters)
        self._progress = np.zeros((0, PROGRESS_FIELDS), dtype=np.int64)
        self._models = np.zeros(0, dtype=np.int64)
        self._beliefs = Beliefs.unknown(0, 2)
        self._round = _Round(*_NO_ARRIVALS)

    decode = staticmethod(SymbolFrame.decode)

    @staticmethod
    def verify(catalogue: Catalogue, device: str, stream: str, frame: SymbolFrame) -> None:
        """Check that the symbols are in the policy's table, and have its number of bits."""
        model = catalogue.find(device, stream, frame.policy_version, SymbolModel)
        if not model.allowed_symbols:
            raise RefusedError(
                f"{device}/{stream} has windows only under policy version {frame.policy_version}", Reason.WRONG_KIND
            )
        if frame.symbols.translate(None, delete=model.allowed_symbols):
            raise RefusedError(f"symbol above {model.allowed_symbols[-1]}", Reason.SYMBOL_OUT_OF_RANGE)
        if frame.bits != model.bits:
            raise RefusedError(f"{frame.bits} bits a symbol, not {model.bits}", Reason.SYMBOL_OUT_OF_RANGE)

    # A round: `begin`, then `add` for each frame that it has not taken, then `write`; `confirm` once all is durable

    def begin(self, arrivals: Arrivals, counts: Counter[str]) -> dict[int, list[SymbolFrame]]:
        """Take the frames that continue their stream. Return the others by slot, in tick order."""
        if (stream_count := len(self._streams.names)) > len(self._progress):
            self._add_streams(stream_count)
        slots, columns = arrivals.slots, arrivals.symbols
        row_order = np.lexsort((columns.first, slots))
        is_taken = take_continuing(slots, columns, row_order, self._progress)
        self._round = _Round(arrivals, is_taken, self._models[slots])
        columns.number[:] = self._progress[slots, NUMBER]
        counts["stored"] += int(is_taken.sum())
        other_frames = defaultdict[int, list[SymbolFrame]](list)
        for row in row_order[~is_taken[row_order]].tolist():
            other_frames[int(slots[row])].append(columns.frame(row))
        return other_frames

    def overlapping(self, place: Place, frame: SymbolFrame) -> SymbolFrame | None:
        """Return the stored symbols of a frame's ticks, as one frame if alike and complete, else the first part."""
        slot = self._streams.slot(*place.device_and_stream)
        new_frames = self._round.overlapping(slot, frame)
        frames = self._frames.holding(place.number, frame.first, frame.last)
        if new_frames or not frames:
            return next(iter(new_frames), None)
        is_alike = len({(other.policy_version, other.bits, other.shift) for other in frames}) == 1
        is_complete = frames[-1].last - frames[0].first + 1 == sum(len(other.symbols) for other in frames)
        symbols = b"".join(other.symbols for other in frames)
        return replace(frames[0], symbols=symbols) if is_alike and is_complete else frames[0]

    def add(self, place: Place, frame: SymbolFrame, counts: Counter[str], *, late: bool) -> None:
        """Add a frame that `begin` has not taken."""
        slot = self._streams.slot(*place.device_and_stream)
        self._round.checked_frames[slot].append((place.number, frame))
        if late:
            counts["late"] += 1
            self._round.stale_slots.add(slot)

    def account(self, place: Place, span: FrameSpan) -> None:
        """Note that a frame that is not stored accounts for ticks."""
        self._round.accounted_ticks.append((place.number, span.previous, span.last))

    def set_progress(
        self, slot: int, place: Place, interval: tuple[int, int] | None, shift: int, *, is_known: bool
    ) -> None:
        """Update a stream's progress after single checks, so that `begin` can take the stream's next frames as arrays.

        `interval` is the last accounted interval (after, end], `shift` the newest frame's. `is_known`: the store had
        frames of the stream before this round.
        """
        added_frames = self._round.checked_frames.get(slot)
        if is_known and self._progress[slot, END] == UNKNOWN and self._beliefs.heads[slot, 0] < 0:
            self._round.stale_slots.add(slot)
        if added_frames:
            version = added_frames[-1][1].policy_version
            self._models[slot] = self.past.model_index(*self._streams.names[slot], version)
            self._progress[slot, VERSION] = version
        self.reports.places[place.number] = place
        if interval is not None:
            self._progress[slot, NUMBER], self._progress[slot, SHIFT] = place.number, shift
            self._progress[slot, AFTER], self._progress[slot, END] = interval

    def last_tick(self, device: str, stream: str) -> int:
        """Return the last accounted tick of a stream, -1 if it is not known here."""
        slot = self._streams.slots.get((device, stream))
        return -1 if slot is None or slot >= len(self._progress) else max(int(self._progress[slot, END]), -1)

    def write(self) -> None:
        """Append the round's frames to the journal, and follow them."""
        arrivals = self._round.arrivals
        taken_rows = np.flatnonzero(self._round.is_taken)
        batch, slots = arrivals.symbols.take(taken_rows), arrivals.slots[taken_rows]
        models = self._round.models[taken_rows]
        if self._round.checked_frames or self._round.accounted_ticks:
            new_rows = [(slot, *row) for slot, slot_rows in self._round.checked_frames.items() for row in slot_rows]
            names = self._streams.names
            indices = [self.past.model_index(*names[slot], frame.policy_version) for slot, _, frame in new_rows]
            unstored_rows = _rows_without_symbols(self._round.accounted_ticks)
            batches = batch, Columns.of((sequence, frame) for _, sequence, frame in new_rows), unstored_rows
            slots = np.concatenate((slots, np.array([slot for slot, *_ in new_rows], dtype=np.int64)))
            models, batch = (np.concatenate((models, np.array(indices, dtype=np.int64))), Columns.joined(batches))
        if batch.row_count:
            self._frames.append(batch)
        if batch.row_count or self._round.stale_slots:
            self._follow_rows(batch, slots, models)

    def confirm(self) -> None:
        """Note that the written frames are durable."""
        for arguments in self._round.newest:
            self.reports.put(*arguments)
        self._round = _Round(*_NO_ARRIVALS)

    def read_again(self) -> None:
        """Drop the state in memory, which may be ahead of the store."""
        self._frames.read_again()
        self._progress[:, END] = UNKNOWN
        self._beliefs = Beliefs.unknown(len(self._progress), self._beliefs.distribution.shape[1])
        self._round = _Round(*_NO_ARRIVALS)

    def seal(self) -> list[Place]:
        """Move the journal into chunks, and return its sequences; `sealed` is to be called after the transaction."""
        places = self.past.seal()
        self._frames.put_reported(self.reports.acknowledged_ticks.items())
        return places

    def sealed(self) -> None:
        """Note that the journal is empty."""
        self._frames.read_again()
        self.reports.sealed()

    def _add_streams(self, stream_count: int) -> None:
        old_size = len(self._progress)
        self._progress = enlarge(self._progress, stream_count)
        self._progress[old_size:, END] = UNKNOWN
        self._models = enlarge(self._models, stream_count)
        self._beliefs = self._beliefs.with_streams(len(self._progress))

    def _follow_rows(self, batch: Columns, slots: Ints, models: Ints) -> None:
        """Bring beliefs up to date with rows, of which the last ones may only account for ticks."""
        stale_slots, slot_list = self._round.stale_slots, slots.tolist()
        self._beliefs = self._beliefs.with_states(self.past.bank.states)
        order = np.lexsort((batch.first[: len(slot_list)], slots))
        if stale_slots:
            order = order[~np.isin(slots[order], np.array([*stale_slots], dtype=np.int64))]
        priors = follow(self._beliefs, self.past.bank.arrays, slots, models, batch, order)
        ends = order[np.flatnonzero(np.diff(slots[order], append=-1))]
        newest_rows = batch.number[ends].tolist(), ends.tolist(), len(order)
        self._round.newest.append((_NewRows(batch, priors, models), *newest_rows))
        for slot in stale_slots:
            if (new_rows := self._recompute_belief(slot)) is not None and (frames := slot_list.count(slot)):
                sequence = int(self._progress[slot, NUMBER])
                self._round.newest.append((new_rows, [sequence], [0], frames))

    def _recompute_belief(self, slot: int) -> _NewRows | None:
        """Compute the belief about a stream again, from the store, and return its newest frame."""
        place = Place(int(self._progress[slot, NUMBER]), *self._streams.names[slot])
        tail_first = self._frames.tail.first(place.number)
        first_tick = self._frames.last(place.number) + 1 if tail_first is None else tail_first
        beliefs, rows = self.past.beliefs_before(place, first_tick)
        beliefs, priors = self.past.follow(place, beliefs, rows)
        self._beliefs = self._beliefs.with_states(beliefs.distribution.shape[1])
        self._beliefs.heads[slot] = beliefs.heads[0]
        self._beliefs.distribution[slot, : beliefs.distribution.shape[1]] = beliefs.distribution[0]
        return _NewRows.of(self.past, place, rows.frame(rows.row_count - 1), priors[-1]) if rows.row_count else None


@dataclass(slots=True)
class _Round:
    """Accepted frames of a round, until they are durable.

    Attributes:
        is_taken, models: (n,) of each row of the arrivals whether it continues its stream, and its model.
        checked_frames: by slot the frames to be stored, with the number of their sequence.
        accounted_ticks: sequences and ticks (after, through] that are accounted for without a frame.
        stale_slots: slots whose belief has to be computed again from an earlier tick.
        newest: arguments of `Reports.put`.
    """

    arrivals: Arrivals
    is_taken: Bools
    models: Ints
    checked_frames: defaultdict[int, list[tuple[int, SymbolFrame]]] = field(default_factory=lambda: defaultdict(list))
    accounted_ticks: list[tuple[int, int, int]] = field(default_factory=list)
    stale_slots: set[int] = field(default_factory=set)
    newest: list[tuple[_NewRows, list[int], list[int], int]] = field(default_factory=list)

    def overlapping(self, slot: int, frame: SymbolFrame) -> list[SymbolFrame]:
        """Return the round's frames of a slot that share a tick with a frame."""
        symbols = self.arrivals.symbols
        overlaps = (symbols.first <= frame.last) & (symbols.last >= frame.first)
        taken_rows = np.flatnonzero(overlaps & self.is_taken & (self.arrivals.slots == slot)).tolist()
        checked_frames = (
            checked
            for _, checked in self.checked_frames.get(slot, ())
            if checked.first <= frame.last and frame.first <= checked.last
        )
        return [*map(symbols.frame, taken_rows), *checked_frames]


def _rows_without_symbols(accounted_ticks: Sequence[tuple[int, int, int]]) -> Columns:
    """Return rows without symbols that account for ticks (after, through] of sequences."""
    number, previous, last = np.array(accounted_ticks, dtype=np.int64).reshape(-1, 3).T.copy()
    zeros = np.zeros(len(number), dtype=np.int64)
    return Columns(number, zeros, zeros, previous, last + 1, zeros, zeros + 1, zeros, np.zeros(0, dtype=np.uint8))


def state_estimate(policy: Policy, first: int, last: int, shift: int, shares: Floats, belief: Floats) -> StateEstimate:
    """Return the report of a frame of symbols of the ticks first..last, ahead of the wall clock by `shift`.

    `shares` (k,) are the means over its ticks of the probabilities of the states, `belief` (k,) those of its last tick.
    """
    labels = policy.discretiser.states
    likely_state = int(belief.argmax())
    return StateEstimate(
        time=wall_time(policy.clock, last - shift),
        since=wall_time(policy.clock, first - shift),
        tick=last,
        ticks=last - first + 1,
        state=labels[likely_state],
        probability=round(float(belief[likely_state]), _DIGITS),
        shares={label: round(share, _DIGITS) for label, share in zip(labels, shares.tolist(), strict=True)},
        epsilon=policy.guarantee.epsilon,
        adversary=policy.guarantee.adversary,
        useful=policy.useful_for == "state",
    )


class _NewRows(NamedTuple):
    """Rows that have come together, with (n, k) the distributions of their first ticks, and (n,) their models."""

    columns: Columns
    distributions: Floats
    models: Ints

    @classmethod
    def of(cls, past: Past, place: Place, frame: SymbolFrame, distribution: Floats) -> _NewRows:
        """Return a frame as a single row, with the distribution (k,) of its first tick."""
        model = past.model_index(*place.device_and_stream, frame.policy_version)
        return cls(Columns.of([(place.number, frame)]), distribution[np.newaxis], np.array([model], dtype=np.int64))


class _Report(NamedTuple):
    """Report about a stream at its newest tick; `estimate` is the reason if there can be none."""

    place: Place
    tick: int
    estimate: StateEstimate | FuguError


class Reports:
    """Reports that wait to be published.

    A live subscriber needs the newest report. So one frame of each stream waits, and the streams take turns. The ticks
    that the broker has acknowledged are stored at each seal. After a crash only the newest estimate is published again,
    if it is not known to be acknowledged.

    `unread_streams` may have a frame from before the start to report. `acknowledged_ticks` has by stream the tick that
    the broker has, since the last seal. `places` has by number the places of these streams, and of all that came since.
    `counters` counts as `coalesced` frames that are not reported because a newer one of their stream is.
    """

    def __init__(self, past: Past, unread_streams: Iterable[int], counters: Counter[str]) -> None:
        self._past = past
        self._unread_streams = dict.fromkeys(unread_streams)
        self.places = {place.number: place for place in past.store.places(self._unread_streams)}
        self._waiting_rows: dict[int, tuple[_NewRows, int]] = {}
        self._counters = counters
        self.acknowledged_ticks: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._waiting_rows) + len(self._unread_streams)

    def put(self, new_rows: _NewRows, streams: list[int], rows: list[int], frame_count: int) -> None:
        """Queue the newest frame of each numbered stream, by its row; the round had `frame_count` frames."""
        old_size = len(self._waiting_rows)
        self._waiting_rows.update(zip(streams, zip(repeat(new_rows), rows), strict=False))
        self._counters["coalesced"] += frame_count - (len(self._waiting_rows) - old_size)
        if self._unread_streams:
            repeated_streams = self._unread_streams.keys() & set(streams)
            self._counters["coalesced"] += len(repeated_streams)
            self._unread_streams = {stream: None for stream in self._unread_streams if stream not in repeated_streams}

    def put_again(self, stream: int) -> None:
        """Queue a stream's report again, because the broker may not have it."""
        if stream not in self._waiting_rows:
            self._unread_streams[stream] = None

    def acknowledged(self, stream: int, tick: int) -> None:
        """Note that the broker has the report of a stream up to a tick."""
        self.acknowledged_ticks[stream] = max(tick, self.acknowledged_ticks.get(stream, -1))

    def sealed(self) -> None:
        """Forget the acknowledged ticks, which are stored now, and all columns but the waiting rows."""
        self.acknowledged_ticks = {}
        for (columns, distributions, models), streams, rows in self._group_by_arrival(self._waiting_rows):
            copied_rows = _NewRows(columns.take(rows), distributions[rows], models[rows])
            self._waiting_rows.update((stream, (copied_rows, row)) for row, stream in enumerate(streams))

    def take(self, capacity: int) -> list[_Report]:
        """Remove and return up to `capacity` reports, in the order in which their streams changed first."""
        while self._unread_streams and len(self._waiting_rows) < capacity:
            stream = next(iter(self._unread_streams))
            place = self.places[stream]
            if (frame := self._past.newest_frame(place)) is not None:
                distribution = self._past.distribution_at(place, frame)
                self._waiting_rows[stream] = _NewRows.of(self._past, place, frame, distribution), 0
            self._unread_streams.pop(stream, None)
        batch = {stream: self._waiting_rows.pop(stream) for stream in [*islice(self._waiting_rows, max(capacity, 0))]}
        reports = []
        for (columns, distributions, models), streams, rows in self._group_by_arrival(batch):
            places, frames = [self.places[stream] for stream in streams], columns.take(rows)
            priors = np.zeros((len(rows), self._past.bank.states))
            priors[:, : distributions.shape[1]] = distributions[rows]
            shares, beliefs = look_back(self._past.bank.arrays, models[rows], frames, priors, self._past.lag)
            reports += [
                self._make_report(place, frames, row, shares[row], beliefs[row]) for row, place in enumerate(places)
            ]
        return reports

    @staticmethod
    def _group_by_arrival(waiting_rows: dict[int, tuple[_NewRows, int]]) -> list[tuple[_NewRows, list[int], Ints]]:
        """Group waiting reports by round. Return of each its new rows, stream numbers, and each stream's row."""
        groups: dict[int, tuple[_NewRows, list[int], list[int]]] = {}
        for stream, (new_rows, row) in waiting_rows.items():
            _, streams, rows = groups.setdefault(id(new_rows), (new_rows, [], []))
            streams.append(stream)
            rows.append(row)
        return [(new_rows, streams, np.array(rows, dtype=np.int64)) for new_rows, streams, rows in groups.values()]

    def _make_report(self, place: Place, columns: Columns, row: int, shares: Floats, belief: Floats) -> _Report:
        version, shift, first_tick, tick_count = (
            int(column[row]) for column in (columns.version, columns.shift, columns.first, columns.ticks)
        )
        model = self._past.catalogue.recall(*place.device_and_stream, version, SymbolModel)
        states = len(model.chain_model.initial)
        shares, belief = (stream_beliefs(model.chain_model, distribution[:states]) for distribution in (shares, belief))
        last_tick = first_tick + tick_count - 1
        try:
            return _Report(place, last_tick, state_estimate(model.policy, first_tick, last_tick, shift, shares, belief))
        except FuguError as error:
            return _Report(place, last_tick, error)


def warm() -> None:
    """Compile all kernels of a round with a made-up frame; the compiled code suits every model."""
    columns, is_frame = parse([SymbolFrame(1, -1, 0, bytes(3)).encode()])
    streams, zeros = Streams(), np.zeros(1, dtype=np.int64)
    streams.follow("", streams.slot("", ""), 1, 2, Clock(epoch_us=0, period_us=1_000))
    streams.valid_rows(zeros, columns, is_frame, 1)
    take_continuing(zeros, columns, zeros, np.zeros((1, PROGRESS_FIELDS), dtype=np.int64))
    bank, table = Bank(), np.full((2, 2), 0.5)
    bank.index(Model(table, table, likelihood_rows(table), table[0], None))
    columns = columns.take(zeros)
    priors = follow(Beliefs.unknown(1, bank.states), bank.arrays, zeros, zeros, columns, zeros)
    look_back(bank.arrays, zeros, columns, priors, 1)
    list(cut_chunks(columns, 1, 1))
