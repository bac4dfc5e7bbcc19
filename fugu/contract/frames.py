"""Payloads: a schema number in the first byte, then one msgpack array; docs/protocol.md has the byte layouts.

Decoding is strict: whatever is not exactly what the schema says raises the one FrameError that names what is wrong.
Values are checked in the dataclasses themselves, so that what cannot be decoded cannot be encoded either.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import cache
from itertools import product
from typing import Any

import msgpack

from fugu.contract._wire import array, binary, each, fields, integer, kind, length, pack, text
from fugu.contract.errors import FrameLengthError, FrameRangeError, FrameTypeError, StatusCode, ordered

__all__ = [
    "LATE_US",
    "MAX_FRAME_TICKS",
    "MAX_WINDOW_NAME",
    "Committed",
    "Gap",
    "Status",
    "StreamCommit",
    "StreamStatus",
    "SymbolFrame",
    "decode_committed",
    "decode_status",
    "decode_symbols",
    "encode_committed",
    "encode_status",
    "encode_symbols",
    "packed_streams",
    "symbol_bits",
]

SYMBOLS, COMMITTED, STATUS = 1, 2, 3
MAX_FRAME_TICKS = 4096
MAX_TICK = 2**53
"""Ticks stay exact in every language's numbers."""
LATE_US = 250_000
"""Ticks that are overdue by this, and by a period, are absent."""
MAX_STREAMS = 64
MAX_GAPS = 32
TAG_BYTES = 32
MAX_TEXT = 200
MAX_WINDOW_NAME = 32
MAX_SEQUENCE_NAME = 64 + 1 + MAX_WINDOW_NAME
"""The name of a stream, or of one of its windows' sequences: `{stream}/{window}`."""
SYMBOL_BITS = (1, 2, 4, 8)
_FITTING = {bits: bytes(range(1 << bits)) for bits in SYMBOL_BITS}
"""The symbols of so many bits."""


@dataclass(frozen=True, slots=True)
class SymbolFrame:
    """Randomised symbols of consecutive ticks, each of which has one.

    Attributes:
        policy_version: version of the policy that randomised them.
        previous: last tick of the frame before this one, -1 for the first frame of all; ticks between
            `previous` and `first` never had a symbol.
        first: tick of `symbols[0]`.
        symbols: one byte a tick.
        padding: ticks by which a frame that was cut short is filled up on the wire, so that all have one size.
        bits: 1, 2, 4 or 8: what a symbol takes on the wire, whatever the symbols are.
        shift: by how many ticks the numbers are ahead of the wall clock: tick t is that of wall tick t - shift.
    """

    policy_version: int
    previous: int
    first: int
    symbols: bytes
    padding: int = 0
    bits: int = 1
    shift: int = 0

    def __post_init__(self) -> None:
        """Refuse values that no frame can hold."""
        integer(self.policy_version, 1, 2**32 - 1, "policy_version")
        integer(self.previous, -1, MAX_TICK, "previous")
        integer(self.first, 0, MAX_TICK, "first")
        binary(self.symbols, 1, MAX_FRAME_TICKS, "symbols")
        integer(self.padding, 0, MAX_FRAME_TICKS - len(self.symbols), "padding")
        if self.bits not in SYMBOL_BITS:
            raise FrameRangeError(f"bits {self.bits} is not 1, 2, 4 or 8")
        if self.symbols.translate(None, _FITTING[self.bits]):
            raise FrameRangeError(f"symbol {max(self.symbols)} does not fit into {self.bits} bits")
        integer(self.shift, 0, MAX_TICK, "shift")
        if self.previous >= self.first:
            raise FrameRangeError(f"previous tick {self.previous} is not before the first tick {self.first}")
        if self.shift > self.first:
            raise FrameRangeError(f"shift {self.shift} is above the first tick {self.first}")
        if self.last > MAX_TICK:
            raise FrameRangeError(f"last tick {self.last} is above {MAX_TICK}")

    @property
    def last(self) -> int:
        """Tick of the last symbol."""
        return self.first + len(self.symbols) - 1


@dataclass(frozen=True, slots=True)
class Gap:
    """Ticks `after` < t <= `through` that the gateway misses."""

    after: int
    through: int

    def __post_init__(self) -> None:
        """Refuse an empty gap."""
        integer(self.after, -1, MAX_TICK, "after")
        integer(self.through, 0, MAX_TICK, "through")
        if self.after >= self.through:
            raise FrameRangeError(f"gap from {self.after} to {self.through} is empty")


@dataclass(frozen=True, slots=True)
class StreamCommit:
    """What is durable of one stream: every tick up to `through` but those in `gaps`.

    Of a window's sequence, `{stream}/{window}`, the same with indices of windows instead of ticks.
    """

    stream: str
    through: int
    gaps: tuple[Gap, ...]

    def __post_init__(self) -> None:
        """Refuse values that no message can hold."""
        text(self.stream, 1, MAX_SEQUENCE_NAME, "stream")
        integer(self.through, -1, MAX_TICK, "through")
        length(self.gaps, 0, MAX_GAPS, "gaps")


@dataclass(frozen=True, slots=True)
class Committed:
    """The gateway's watermark for a device.

    Attributes:
        streams: what is durable of each.
        counter: above that of every message before.
        tag: HMAC-SHA256 of all of it (`fugu.contract.watermark`); empty where device and gateway share no key.
    """

    streams: tuple[StreamCommit, ...]
    counter: int = 0
    tag: bytes = b""

    def __post_init__(self) -> None:
        """Refuse values that no message can hold."""
        length(self.streams, 0, MAX_STREAMS, "streams")
        integer(self.counter, 0, 2**64 - 1, "counter")
        binary(self.tag, 0, TAG_BYTES, "tag")
        if len(self.tag) not in (0, TAG_BYTES):
            raise FrameLengthError(f"tag has length {len(self.tag)}, not 0 or {TAG_BYTES}")


@dataclass(frozen=True, slots=True)
class StreamStatus:
    """One stream in a device's status: the policy in force and the next tick."""

    stream: str
    policy_version: int
    next_tick: int

    def __post_init__(self) -> None:
        """Refuse values that no message can hold."""
        text(self.stream, 1, 64, "stream")
        integer(self.policy_version, 1, 2**32 - 1, "policy_version")
        integer(self.next_tick, 0, MAX_TICK, "next_tick")


@dataclass(frozen=True, slots=True)
class Status:
    """A device's birth (online) or last will (not online).

    Attributes:
        codes: what is wrong, each code once and in order.
    """

    online: bool
    agent_version: str
    outbox_depth: int
    codes: tuple[StatusCode, ...]
    streams: tuple[StreamStatus, ...]

    def __post_init__(self) -> None:
        """Refuse values that no message can hold."""
        if not isinstance(self.online, bool):
            raise FrameTypeError(f"online is {kind(self.online)}, not a boolean")
        text(self.agent_version, 1, 64, "agent_version")
        integer(self.outbox_depth, 0, MAX_TICK, "outbox_depth")
        if self.codes != ordered(self.codes):
            raise FrameRangeError("codes are not in order, or one is there twice")
        length(self.streams, 0, MAX_STREAMS, "streams")


# Symbol frames of a stream have one size, whatever the numbers in them: the integers are written in msgpack's widest
# forms (0xcc, 0xcd, 0xce: 8, 16, 32 bits unsigned, 0xd3: 64 bits signed, 0xc5: byte string of 16-bit length).
_HEADER = struct.Struct(">BBBIBqBqBqBBBHBHBH")


def symbol_bits(symbols: int) -> int:
    """The bits that a symbol takes in the frames of a table with so many symbols: the fewest that hold them all."""
    return next(bits for bits in SYMBOL_BITS if symbols <= 1 << bits)


@cache
def _unpacked(bits: int) -> list[bytes]:
    """What each byte holds; its first symbol is in its highest bits."""
    return [bytes(some) for some in product(range(1 << bits), repeat=8 // bits)]


@cache
def _packed(bits: int) -> dict[bytes, int]:
    return {some: byte for byte, some in enumerate(_unpacked(bits))}


def _packed_size(ticks: int, bits: int) -> int:
    return -(-ticks * bits // 8)


def encode_symbols(frame: SymbolFrame) -> bytes:
    """Bytes of a symbol frame; their number depends only on the bits of a symbol, the ticks and the padding."""
    count, bits, each_byte = len(frame.symbols), frame.bits, 8 // frame.bits
    size = _packed_size(count + frame.padding, bits)
    symbols = frame.symbols.ljust(size * each_byte, b"\0")
    table = _packed(bits)
    packed = bytes([table[symbols[i : i + each_byte]] for i in range(0, len(symbols), each_byte)])
    head = (SYMBOLS, 0x98, 0xCE, frame.policy_version, 0xD3, frame.shift, 0xD3, frame.previous, 0xD3, frame.first)
    return _HEADER.pack(*head, 0xCC, bits, 0xCD, count, 0xCD, frame.padding, 0xC5, size) + packed


def decode_symbols(payload: bytes) -> SymbolFrame:
    """Parse a symbol frame.

    Raises:
        FrameError: the subclass that says what is wrong.
    """
    version, shift, previous, first, bits, count, padding, packed = fields(payload, SYMBOLS, 8)
    integer(bits, 1, 8, "bits")
    if bits not in SYMBOL_BITS:
        raise FrameRangeError(f"bits {bits} is not 1, 2, 4 or 8")
    integer(count, 1, MAX_FRAME_TICKS, "count")
    integer(padding, 0, MAX_FRAME_TICKS - count, "padding")
    size = _packed_size(count + padding, bits)
    binary(packed, size, size, "symbols")
    symbols = b"".join(map(_unpacked(bits).__getitem__, packed))
    if any(symbols[count:]):
        raise FrameRangeError("the padding of a frame holds symbols")
    return SymbolFrame(version, previous, first, symbols[:count], padding, bits, shift)


def encode_committed(message: Committed) -> bytes:
    """Bytes of a watermark message."""
    return pack(COMMITTED, [message.counter, message.tag, _rows(message)])


def packed_streams(message: Committed) -> bytes:
    """The streams of a watermark message as they are packed in it: its last bytes."""
    packed: bytes = msgpack.packb(_rows(message))
    return packed


def _rows(message: Committed) -> list[Any]:
    return [[c.stream, c.through, [[g.after, g.through] for g in c.gaps]] for c in message.streams]


def decode_committed(payload: bytes) -> Committed:
    """Parse a watermark message.

    Raises:
        FrameError: the subclass that says what is wrong.
    """
    counter, tag, rows = fields(payload, COMMITTED, 3)

    def commit(row: Any) -> StreamCommit:
        stream, through, gaps = array(row, 3, "stream")
        return StreamCommit(stream, through, each(gaps, lambda gap: Gap(*array(gap, 2, "gap")), "gaps"))

    return Committed(each(rows, commit, "streams"), counter, tag)


def encode_status(message: Status) -> bytes:
    """Bytes of a status message."""
    rows = [[s.stream, s.policy_version, s.next_tick] for s in message.streams]
    return pack(STATUS, [message.online, message.agent_version, message.outbox_depth, list(message.codes), rows])


def decode_status(payload: bytes) -> Status:
    """Parse a status message.

    Raises:
        FrameError: the subclass that says what is wrong.
    """
    online, agent, depth, codes, rows = fields(payload, STATUS, 5)
    streams = each(rows, lambda row: StreamStatus(*array(row, 3, "stream")), "streams")
    return Status(online, agent, depth, each(codes, _status_code, "codes"), streams)


def _status_code(word: Any) -> StatusCode:
    try:
        return StatusCode(word)
    except ValueError:
        raise FrameRangeError("a status names an unknown code") from None
