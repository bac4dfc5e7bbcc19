"""The journal: frames of a round as columns, checked by arrays and put in order, stream by stream.

A compiled parser takes only the one layout in which `fugu.contract.frames.SymbolFrame` is written, and reads the same
from it as the contract's decoder. What it does not take goes to that decoder, which takes other layouts of the same
numbers, and says what is wrong with the rest.

A stream gets a slot with its first valid frame. Until its policy changes, all later frames are checked by arrays. A
frame whose last tick lies further ahead of the gateway's clock than clocks may differ is refused. Its device sends it
again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import NamedTuple

import numpy as np

from fugu.chains.arrays import Bools, Ints
from fugu.chains.kernel import kernel, part
from fugu.contract.frames import MAX_FRAME_TICKS, MAX_TICK, SYMBOL_BITS, SymbolFrame
from fugu.contract.measure_frames import AnyFrame
from fugu.contract.policy import Clock
from fugu.contract.sentences import instant
from gateway.store.symbols import Bytes, Columns

__all__ = [
    "Arrivals",
    "Heard",
    "Received",
    "Streams",
    "grown",
    "newest_tick",
    "parse",
    "tick_at",
    "wall_time",
]


TOLERANCE_US = 60_000_000
"""By how much a device's clock may be ahead of the gateway's; by two periods, if that is more."""


def tick_at(clock: Clock, now_us: int) -> int:
    """The newest tick that has come at a Unix time, negative before the first."""
    return (now_us - clock.epoch_us) // clock.period_us


def wall_time(clock: Clock, tick: int) -> datetime:
    """When a tick of the wall clock is; a `FrameError` after the year 9999."""
    return instant(clock.epoch_us + tick * clock.period_us)


def newest_tick(clock: Clock, now_us: int) -> int:
    """The newest tick that a device whose clock is right, or not far wrong, can have drawn."""
    return tick_at(clock, now_us + max(TOLERANCE_US, 2 * clock.period_us))


def grown(array: Ints, size: int, fill: int) -> Ints:
    """An array with room for at least so many entries; new ones hold `fill`."""
    if len(array) >= size:
        return array
    larger = np.full((max(size, 2 * len(array), 64), *array.shape[1:]), fill, dtype=array.dtype)
    larger[: len(array)] = array
    return larger


class Streams:
    """Slots by device and stream: the `names` of each, and the slots of `topics` on which a valid frame has come."""

    def __init__(self) -> None:
        self.names: list[tuple[str, str]] = []
        self.topics: dict[str, int] = {}
        self._slots: dict[tuple[str, str], int] = {}
        self._rules = np.zeros((0, 5), dtype=np.int64)

    def slot(self, device: str, stream: str) -> int:
        """The slot of a stream, given now if it has none."""
        if (slot := self._slots.get((device, stream))) is None:
            slot = self._slots[device, stream] = len(self.names)
            self.names.append((device, stream))
            self._rules = grown(self._rules, slot + 1, 0)
        return slot

    def find(self, device: str, stream: str) -> int | None:
        """The slot of a stream, if it has one."""
        return self._slots.get((device, stream))

    def follow(self, topic: str, slot: int, version: int, symbols: int, clock: Clock) -> None:
        """Let frames like a valid one on a topic pass; `symbols` are those of its policy version's table."""
        self.topics[topic] = slot
        bits = next(bits for bits in SYMBOL_BITS if symbols <= 1 << bits)
        self._rules[slot] = version, bits, symbols, clock.epoch_us, clock.period_us

    def passing(self, slots: Ints, columns: Columns, read: Bools, now_us: int) -> Bools:
        """(n,) which of the rows that were read are as the newest policy says, and not from the future."""
        is_right = read.copy()
        _check(slots, *columns[1:], self._rules, now_us, is_right)
        return is_right


@kernel
def _check(
    slots: Ints, version: Ints, shift: Ints, _previous: Ints, first: Ints, count: Ints, bits: Ints, start: Ints,
    packed: Bytes, rules: Ints, now_us: int, is_right: Bools,
) -> None:  # fmt: skip
    """Leave in `is_right` only rows of their stream's version, bits, symbols and past."""
    for row in range(slots.size):
        if not is_right[row]:
            continue
        rule_version, wide, symbols, epoch, period = rules[slots[row]]
        newest = (now_us + max(TOLERANCE_US, 2 * period) - epoch) // period
        right = (
            version[row] == rule_version and bits[row] == wide and first[row] + count[row] - 1 - shift[row] <= newest
        )
        if right and symbols < 1 << wide:
            per_byte, mask = 8 // wide, (1 << wide) - 1
            for i in range(count[row]):
                right &= (packed[start[row] + i // per_byte] >> (8 - wide - wide * (i % per_byte))) & mask < symbols
        is_right[row] = right


HEAD_BYTES = 45
"""Before the packed symbols: schema, array of 8, and eight fields, each of a fixed width."""
_PLACES = (0, 1, 2, 7, 16, 25, 34, 36, 39, 42)
_TYPES = (1, 0x98, 0xCE, 0xD3, 0xD3, 0xD3, 0xCC, 0xCD, 0xCD, 0xC5)
"""Where each field begins, and the byte that says its type; docs/protocol.md has the layout."""


def parse(payloads: Sequence[bytes]) -> tuple[Columns, Bools]:
    """Read frames of symbols: a row for each payload, with number 0, and (n,) whether the row means anything."""
    rows = len(payloads)
    data = np.frombuffer(b"".join(payloads), dtype=np.uint8)
    ends = np.cumsum(np.fromiter(map(len, payloads), dtype=np.int64, count=rows))
    fields = np.zeros((8, rows), dtype=np.int64)
    read = np.zeros(rows, dtype=np.bool_)
    _parse(data, ends, fields, read)
    return Columns._make((*fields, data)), read


@part
def _number(data: Bytes, at: int, size: int) -> int:
    number = np.uint64(0)
    for i in range(at, at + size):
        number = (number << np.uint64(8)) | np.uint64(data[i])
    return int(np.int64(number))


@kernel
def _parse(data: Bytes, ends: Ints, fields: Ints, read: Bools) -> None:
    """Fill the columns (8, n) of the rows that are frames, and say which are."""
    for row in range(ends.size):
        at = ends[row - 1] if row else 0
        size = ends[row] - at
        if size <= HEAD_BYTES:
            continue
        whole = True
        for i in range(len(_TYPES)):
            whole &= data[at + _PLACES[i]] == _TYPES[i]
        version = _number(data, at + 3, 4)
        shift, previous, first = _number(data, at + 8, 8), _number(data, at + 17, 8), _number(data, at + 26, 8)
        bits, count, padding = _number(data, at + 35, 1), _number(data, at + 37, 2), _number(data, at + 40, 2)
        whole &= bits == 1 or bits == 2 or bits == 4 or bits == 8
        whole &= count >= 1 and count + padding <= MAX_FRAME_TICKS
        whole &= version >= 1 and -1 <= previous < first and 0 <= shift <= first and first <= MAX_TICK
        if not whole or first + count - 1 > MAX_TICK:
            continue
        packed = (count + padding) * bits + 7 >> 3
        if _number(data, at + 43, 2) != packed or size != HEAD_BYTES + packed:
            continue
        used = count * bits  # what follows in the last byte, and in those of the padding, is zero
        rest = data[at + HEAD_BYTES + (used >> 3)] & (0xFF >> (used & 7)) if used & 7 else 0
        for i in range(at + HEAD_BYTES + (used + 7 >> 3), at + size):
            rest |= data[i]
        if rest:
            continue
        read[row] = True
        fields[1, row], fields[2, row], fields[3, row], fields[4, row] = version, shift, previous, first
        fields[5, row], fields[6, row], fields[7, row] = count, bits, at + HEAD_BYTES


class Received(NamedTuple):
    """A frame that may be stored."""

    device: str
    stream: str
    frame: AnyFrame


class Heard(NamedTuple):
    """The newest frame of a stream in a round: its policy version, last tick and shift."""

    device: str
    stream: str
    version: int
    last: int
    shift: int


class Arrivals(NamedTuple):
    """Frames that may be stored; `slots` (n,) is each `symbols` row's stream; `others` are points and windows."""

    slots: Ints
    symbols: Columns
    others: list[Received]

    @classmethod
    def of(cls, streams: Streams, received: Iterable[Received]) -> Arrivals:
        """Frames one by one."""
        arrived = list(received)
        rows = [
            (streams.slot(device, stream), frame) for device, stream, frame in arrived if isinstance(frame, SymbolFrame)
        ]
        slots = np.array([slot for slot, _ in rows], dtype=np.int64)
        return cls(
            slots,
            Columns.of([(0, frame) for _, frame in rows]),
            [frame for frame in arrived if not isinstance(frame.frame, SymbolFrame)],
        )

    @property
    def frames(self) -> int:
        """How many there are."""
        return self.symbols.rows + len(self.others)

    def halves(self) -> tuple[Arrivals, Arrivals]:
        """Two parts, each with some of them if there are two or more."""
        rows, others = self.symbols.rows, self.others
        low = rows // 2 if others else (rows + 1) // 2
        first = Arrivals(self.slots[:low], self.symbols.take(np.arange(low)), others[: (len(others) + 1) // 2])
        rest = self.symbols.take(np.arange(low, rows))
        return first, Arrivals(self.slots[low:], rest, others[(len(others) + 1) // 2 :])

    def newest(self, streams: Streams) -> Iterator[Heard]:
        """Of each stream the frame that ends last."""
        last = self.symbols.last
        order = np.lexsort((last, self.slots))
        ends = np.flatnonzero(np.diff(self.slots[order], append=-1))
        rows = order[ends]
        columns = (self.slots[rows], self.symbols.version[rows], last[rows], self.symbols.shift[rows])
        for slot, version, tick, shift in zip(*(column.tolist() for column in columns), strict=True):
            device, stream = streams.names[slot]
            yield Heard(device, stream, version, tick, shift)
        for device, stream, frame in self.others:
            yield Heard(device, stream, frame.policy_version, frame.last, frame.shift)
