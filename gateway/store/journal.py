"""Arrived frames of a round as columns, parsed and checked by arrays.

A compiled parser takes only the one layout in which `fugu.contract.frames.SymbolFrame` is written, and reads the same
from it as the contract's decoder. Other payloads go to that decoder, which takes other layouts of the same numbers, and
says what is wrong with the remaining ones.

A stream gets a slot with its first valid frame. Until its policy changes, all later frames are checked by arrays. A
frame whose last tick lies further ahead of the gateway's clock than clocks may differ is refused. Its device sends it
again.
"""

from __future__ import annotations

import time
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
    "NewestFrame",
    "ReceivedFrame",
    "Streams",
    "enlarge",
    "newest_tick",
    "parse",
    "tick_at",
    "time_us",
    "wall_time",
]


TOLERANCE_US = 60_000_000
"""By how much a device's clock may be ahead of the gateway's, unless two periods are more."""


def time_us() -> int:
    """The Unix time now, in microseconds."""
    return time.time_ns() // 1000


def tick_at(clock: Clock, now_us: int) -> int:
    """The newest tick at a Unix time in microseconds, negative before the first tick."""
    return (now_us - clock.epoch_us) // clock.period_us


def wall_time(clock: Clock, tick: int) -> datetime:
    """The time of a wall tick. Raises `FrameError` after the year 9999."""
    return instant(clock.epoch_us + tick * clock.period_us)


def newest_tick(clock: Clock, now_us: int) -> int:
    """The newest tick that a device can have drawn, if its clock is ahead by no more than the tolerance."""
    return tick_at(clock, now_us + max(TOLERANCE_US, 2 * clock.period_us))


def enlarge(array: Ints, size: int) -> Ints:
    """Enlarge an array, unless it has `size` entries already, to that many or more; new entries are 0."""
    if len(array) >= size:
        return array
    larger = np.zeros((max(size, 2 * len(array), 64), *array.shape[1:]), dtype=array.dtype)
    larger[: len(array)] = array
    return larger


class Streams:
    """The slots of streams, and the rules by which their frames are checked.

    Attributes:
        names: device and stream of each slot.
        topics: the slot of each topic on which a valid frame has come.
        slots: the slot of each device and stream.
    """

    def __init__(self) -> None:
        self.names: list[tuple[str, str]] = []
        self.topics: dict[str, int] = {}
        self.slots: dict[tuple[str, str], int] = {}
        self._rules = np.zeros((0, 5), dtype=np.int64)

    def slot(self, device: str, stream: str) -> int:
        """The slot of a stream; it gets one if it has none."""
        if (slot := self.slots.get((device, stream))) is None:
            slot = self.slots[device, stream] = len(self.names)
            self.names.append((device, stream))
            self._rules = enlarge(self._rules, slot + 1)
        return slot

    def follow(self, topic: str, slot: int, version: int, symbols: int, clock: Clock) -> None:
        """Let frames of a policy version pass for a slot, and note the slot's topic."""
        self.topics[topic] = slot
        bits = next(bits for bits in SYMBOL_BITS if symbols <= 1 << bits)
        self._rules[slot] = version, bits, symbols, clock.epoch_us, clock.period_us

    def valid_rows(self, slots: Ints, columns: Columns, is_frame: Bools, now_us: int) -> Bools:
        """Tell for each row (n,) whether it is a frame that its slot's rule allows, and not from the future."""
        is_right = is_frame.copy()
        _check_rows(slots, *columns[1:], self._rules, now_us, is_right)
        return is_right


@kernel
def _check_rows(
    slots: Ints, version: Ints, shift: Ints, _previous: Ints, first: Ints, ticks: Ints, bits: Ints, start: Ints,
    packed: Bytes, rules: Ints, now_us: int, is_right: Bools,
) -> None:  # fmt: skip
    """Clear `is_right` for rows that break their slot's rule of version, bits or symbols, or are from the future."""
    for row in range(slots.size):
        if not is_right[row]:
            continue
        rule_version, width, symbols, epoch, period = rules[slots[row]]
        newest = (now_us + max(TOLERANCE_US, 2 * period) - epoch) // period
        wall_tick = first[row] + ticks[row] - 1 - shift[row]
        passes = version[row] == rule_version and bits[row] == width and wall_tick <= newest
        if passes and symbols < 1 << width:
            per_byte, mask = 8 // width, (1 << width) - 1
            for i in range(ticks[row]):
                passes &= (packed[start[row] + i // per_byte] >> (8 - width - width * (i % per_byte))) & mask < symbols
        is_right[row] = passes


HEAD_BYTES = 45
"""Bytes before the packed symbols: schema, array of 8, and eight fields, each of a fixed width."""
_OFFSETS = (0, 1, 2, 7, 16, 25, 34, 36, 39, 42)
_TYPES = (1, 0x98, 0xCE, 0xD3, 0xD3, 0xD3, 0xCC, 0xCD, 0xCD, 0xC5)
"""Type bytes of the fields, which begin at `_OFFSETS`; docs/protocol.md has the layout."""


def parse(payloads: Sequence[bytes]) -> tuple[Columns, Bools]:
    """Parse payloads. Return a row for each payload, with number 0, and (n,) which payloads are frames of symbols."""
    row_count = len(payloads)
    buffer = np.frombuffer(b"".join(payloads), dtype=np.uint8)
    ends = np.cumsum(np.fromiter(map(len, payloads), dtype=np.int64, count=row_count))
    fields = np.zeros((8, row_count), dtype=np.int64)
    is_frame = np.zeros(row_count, dtype=np.bool_)
    _parse(buffer, ends, fields, is_frame)
    return Columns._make((*fields, buffer)), is_frame


@part
def _int(buffer: Bytes, offset: int, size: int) -> int:
    """Read a big-endian integer of `size` bytes, at most eight."""
    number = np.uint64(0)
    for i in range(offset, offset + size):
        number = (number << np.uint64(8)) | np.uint64(buffer[i])
    return int(np.int64(number))


@kernel
def _parse(buffer: Bytes, ends: Ints, fields: Ints, is_frame: Bools) -> None:
    """Fill `fields` (8, n) for rows that are frames, and set `is_frame` for these."""
    for row in range(ends.size):
        base = ends[row - 1] if row else 0
        payload_size = ends[row] - base
        if payload_size <= HEAD_BYTES:
            continue
        is_valid = True
        for i in range(len(_TYPES)):
            is_valid &= buffer[base + _OFFSETS[i]] == _TYPES[i]
        version = _int(buffer, base + 3, 4)
        shift, previous, first = (_int(buffer, base + 8, 8), _int(buffer, base + 17, 8), _int(buffer, base + 26, 8))
        bits, count, padding = (_int(buffer, base + 35, 1), _int(buffer, base + 37, 2), _int(buffer, base + 40, 2))
        is_valid &= bits == 1 or bits == 2 or bits == 4 or bits == 8
        is_valid &= count >= 1 and count + padding <= MAX_FRAME_TICKS
        is_valid &= version >= 1 and -1 <= previous < first and 0 <= shift <= first and first <= MAX_TICK
        if not is_valid or first + count - 1 > MAX_TICK:
            continue
        packed_bytes = (count + padding) * bits + 7 >> 3
        if _int(buffer, base + 43, 2) != packed_bytes or payload_size != HEAD_BYTES + packed_bytes:
            continue
        used_bits = count * bits  # the later bits of the last byte, and the bytes of the padding, must be zero
        padding_bits = buffer[base + HEAD_BYTES + (used_bits >> 3)] & (0xFF >> (used_bits & 7)) if used_bits & 7 else 0
        for i in range(base + HEAD_BYTES + (used_bits + 7 >> 3), base + payload_size):
            padding_bits |= buffer[i]
        if padding_bits:
            continue
        is_frame[row] = True
        fields[1, row], fields[2, row], fields[3, row], fields[4, row] = version, shift, previous, first
        fields[5, row], fields[6, row], fields[7, row] = count, bits, base + HEAD_BYTES


class ReceivedFrame(NamedTuple):
    """A frame that may be stored."""

    device: str
    stream: str
    frame: AnyFrame


class NewestFrame(NamedTuple):
    """The policy version, last tick and shift of a stream's newest frame in a round."""

    device: str
    stream: str
    version: int
    last: int
    shift: int


class Arrivals(NamedTuple):
    """Frames that may be stored.

    Attributes:
        slots: (n,) slot of the stream of each row of `symbols`.
        symbols: frames of symbols.
        other_frames: frames of points and windows.
    """

    slots: Ints
    symbols: Columns
    other_frames: list[ReceivedFrame]

    @classmethod
    def of(cls, streams: Streams, received: Iterable[ReceivedFrame]) -> Arrivals:
        """Convert frames to arrivals."""
        frames = list(received)
        symbol_frames = [
            (streams.slot(device, stream), frame) for device, stream, frame in frames if isinstance(frame, SymbolFrame)
        ]
        slots = np.array([slot for slot, _ in symbol_frames], dtype=np.int64)
        other_frames = [frame for frame in frames if not isinstance(frame.frame, SymbolFrame)]
        return cls(slots, Columns.of([(0, frame) for _, frame in symbol_frames]), other_frames)

    @property
    def frames(self) -> int:
        """The number of frames."""
        return self.symbols.row_count + len(self.other_frames)

    def halves(self) -> tuple[Arrivals, Arrivals]:
        """Split the frames into two parts; neither is empty if there are two frames or more."""
        row_count, others = self.symbols.row_count, self.other_frames
        middle = row_count // 2 if others else (row_count + 1) // 2
        half = Arrivals(self.slots[:middle], self.symbols.take(np.arange(middle)), others[: (len(others) + 1) // 2])
        last_symbols = self.symbols.take(np.arange(middle, row_count))
        return half, Arrivals(self.slots[middle:], last_symbols, others[(len(others) + 1) // 2 :])

    def newest(self, streams: Streams) -> Iterator[NewestFrame]:
        """Give the newest frame of symbols of each stream, and all frames of points and windows."""
        last_ticks = self.symbols.last
        order = np.lexsort((last_ticks, self.slots))
        last_rows = np.flatnonzero(np.diff(self.slots[order], append=-1))
        rows = order[last_rows]
        columns = (self.slots[rows], self.symbols.version[rows], last_ticks[rows], self.symbols.shift[rows])
        for slot, version, tick, shift in zip(*(column.tolist() for column in columns), strict=True):
            device, stream = streams.names[slot]
            yield NewestFrame(device, stream, version, tick, shift)
        for device, stream, frame in self.other_frames:
            yield NewestFrame(device, stream, frame.policy_version, frame.last, frame.shift)
