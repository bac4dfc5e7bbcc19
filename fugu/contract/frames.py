"""Messages between a device and the gateway: symbols, window counts, watermarks, statuses.

Schema 5 is for counts of windows, with noise added on the device. The frames of a window are a sequence of their own.
Its name in a `committed` message is `{stream}/{window}`, and window indices stand where symbols have ticks.
"""

import hmac
from dataclasses import replace
from functools import cache
from itertools import product
from typing import Annotated, Any, Self

import msgpack

from fugu.contract.errors import StatusCode, length_error, range_error
from fugu.contract.message import (
    Binary,
    Field,
    FieldType,
    Flag,
    Integer,
    Many,
    Message,
    Row,
    Schema,
    Text,
    Word,
    check_binary,
    check_integer,
    frozen,
)
from fugu.core.frames import COUNT_HIGH, COUNT_LOW, symbol_frame, window_frame

__all__ = [
    "JUDGED_BYTES",
    "KEY_BYTES",
    "MAX_ANSWERS",
    "MAX_COUNTS",
    "MAX_DETAIL",
    "MAX_FRAME_TICKS",
    "MAX_GAPS",
    "MAX_REASON",
    "MAX_STREAMS",
    "MAX_TICK",
    "MAX_WINDOW_TICKS",
    "SYMBOL_BITS",
    "TICK",
    "WINDOW_NAME_PATTERN",
    "Committed",
    "First",
    "Gap",
    "PolicyStatus",
    "PolicyVersion",
    "Previous",
    "Shift",
    "Status",
    "StreamCommit",
    "StreamStatus",
    "SymbolFrame",
    "WindowFrame",
    "check_ticks",
    "sequence_name",
    "symbol_bits",
]


class _Choice(FieldType):
    """One of a few integers."""

    def __init__(self, *numbers: int) -> None:
        self.numbers = numbers

    def check(self, value: Any, name: str) -> None:
        if type(value) is not int or value not in self.numbers:
            check_integer(value, self.numbers[0], self.numbers[-1], name)
            *first_numbers, last_number = map(str, self.numbers)
            raise range_error(f"{name} {value} is not {', '.join(first_numbers)} or {last_number}")

    def schema(self) -> Schema:
        return {"type": "integer", "enum": list(self.numbers)}


MAX_FRAME_TICKS = 4096
MAX_TICK = 2**53
"""Ticks stay exact in every language's numbers."""
MAX_WINDOW_NAME = 32
MAX_STREAMS = 64
MAX_GAPS = 32
_TAG_BYTES = 32
SYMBOL_BITS = (1, 2, 4, 8)
_SYMBOLS_OF_BITS = {bits: bytes(range(1 << bits)) for bits in SYMBOL_BITS}
"""The symbols that fit into a number of bits."""
_BITS = _Choice(*SYMBOL_BITS)
_COUNT = Integer(1, MAX_FRAME_TICKS)
VERSION = Integer(1, 2**32 - 1)
TICK = Integer(0, MAX_TICK)
PolicyVersion = Annotated[int, VERSION, "Version of the policy that it was made under."]
Previous = Annotated[
    int,
    Integer(-1, MAX_TICK),
    "The last tick of the device's frame before this one, -1 for its first; below `first`. No tick between the two has "
    "anything, or nothing that will come: a frame that was dropped has its ticks there.",
]
First = Annotated[int, TICK, "The tick of the first symbol or point; every tick from there on has one."]
Shift = Annotated[
    int,
    TICK,
    "By how many ticks the numbers are ahead of the wall clock, at most `first`. Tick t happens at epoch + (t - shift) "
    "* period, both as in the stream's description.",
]


@frozen
class SymbolFrame(Message):
    """Randomised symbols of consecutive ticks, one byte a symbol; packed on the wire."""

    SCHEMA = 1
    LAYOUT = (
        *("policy_version", "shift", "previous", "first", "bits"),
        Field("count", _COUNT, "Symbols: every tick from `first` on has one."),
        *("padding", "symbols"),
    )

    policy_version: PolicyVersion
    previous: Previous
    first: First
    symbols: Annotated[
        bytes,
        Binary(1, MAX_FRAME_TICKS, "count", ("symbol", "uint", "bits", 1)),
        "(count + padding) * bits / 8 bytes, rounded up; the first symbol in the highest bits of the first byte. All "
        "bits behind the last are 0.",
    ]
    padding: Annotated[
        int,
        Integer(0, MAX_FRAME_TICKS - 1),
        "Ticks by which a frame that was cut short is filled up, so that all have one size; with `count` at most 4096.",
    ] = 0
    bits: Annotated[int, _BITS, "What a symbol takes: the fewest that hold all symbols of the policy's table."] = 1
    shift: Shift = 0

    def _check_consistency(self) -> None:
        if self.padding + len(self.symbols) > MAX_FRAME_TICKS:
            check_integer(self.padding, 0, MAX_FRAME_TICKS - len(self.symbols), "padding")
        if self.symbols.translate(None, _SYMBOLS_OF_BITS[self.bits]):
            raise range_error(f"symbol {max(self.symbols)} does not fit into {self.bits} bits")
        check_ticks(self.previous, self.first, self.last, self.shift)

    @property
    def last(self) -> int:
        """The tick of the last symbol."""
        return self.first + len(self.symbols) - 1

    def encode(self) -> bytes:
        """Encode the frame; its size depends only on the bits of a symbol, the ticks and the padding."""
        ticks = len(self.symbols) + self.padding
        return symbol_frame(self.policy_version, self.shift, self.previous, self.first, self.symbols, ticks, self.bits)

    @classmethod
    def decode(cls, payload: bytes) -> Self:
        """Parse a frame; errors as for any message."""
        row = cls.unpack(payload)
        version, shift, previous, first_tick, bits, symbol_count, padding, packed = row
        _BITS.check(bits, "bits")
        _COUNT.check(symbol_count, "count")
        check_integer(padding, 0, MAX_FRAME_TICKS - symbol_count, "padding")
        packed_size = -(-(symbol_count + padding) * bits // 8)
        check_binary(packed, packed_size, packed_size, "symbols")
        symbols = b"".join(map(_symbols_of_bytes(bits).__getitem__, packed))
        if any(symbols[symbol_count:]):
            raise range_error("the padding of a frame holds symbols")
        return cls(version, previous, first_tick, symbols[:symbol_count], padding, bits, shift)


@frozen
class Gap(Message):
    """Ticks `after` < t <= `through` that the gateway misses."""

    after: Annotated[int, Integer(-1, MAX_TICK)]
    through: Annotated[int, TICK]

    def _check_consistency(self) -> None:
        if self.after >= self.through:
            raise range_error(f"gap from {self.after} to {self.through} is empty")


@frozen
class StreamCommit(Message):
    """The durable part of a stream, or of one of its windows, with window indices in the place of ticks."""

    stream: Annotated[str, Text(1, 64 + 1 + MAX_WINDOW_NAME), "A stream, or `{stream}/{window}`."]
    through: Annotated[int, Integer(-1, MAX_TICK), "All up to this tick, or window, is durable, but for the gaps."]
    gaps: Annotated[
        tuple[Gap, ...], Many(Row(Gap, "after < t <= through"), 0, MAX_GAPS, "gap"), "What the gateway misses."
    ]


@frozen
class Committed(Message):
    """The gateway's watermark for a device."""

    SCHEMA = 2
    LAYOUT = ("counter", "tag", "streams")

    streams: Annotated[
        tuple[StreamCommit, ...],
        Many(Row(StreamCommit), 0, MAX_STREAMS, "stream"),
        "One for each stream and each window.",
    ]
    counter: Annotated[int, Integer(0, 2**64 - 1), "Above the counter of every message before."] = 0
    tag: Annotated[
        bytes,
        Binary(0, _TAG_BYTES),
        "The HMAC-SHA256 of all of it under the device's key; empty where device and gateway share no key.",
    ] = b""

    def _check_consistency(self) -> None:
        if len(self.tag) not in (0, _TAG_BYTES):
            raise length_error(f"tag has length {len(self.tag)}, not 0 or {_TAG_BYTES}")

    def with_tag(self, tag_key: bytes, fleet: str, device: str) -> Self:
        """Return the message with its tag under a key of 32 bytes."""
        return replace(self, tag=_tag(tag_key, fleet, device, self))

    def is_authentic(self, tag_key: bytes, fleet: str, device: str) -> bool:
        """True if the tag is by the holder of the key, for this device; the time taken does not depend on the tag."""
        return hmac.compare_digest(self.tag, _tag(tag_key, fleet, device, self))


@frozen
class StreamStatus(Message):
    """A stream in a device's status."""

    stream: Annotated[str, Text(1, 64)]
    policy_version: Annotated[int, VERSION, "Of the policy in force."]
    next_tick: Annotated[int, TICK, "The next that will be drawn for."]


@frozen
class Status(Message):
    """A device's status: its birth and state while it is online, its last will when it is not."""

    SCHEMA = 3

    online: Annotated[bool, Flag(), "False in the last will, and after a farewell."]
    agent_version: Annotated[str, Text(1, 64), "Of the program."]
    outbox_depth: Annotated[int, TICK, "Frames that wait to be durable."]
    codes: Annotated[
        tuple[StatusCode, ...],
        Many(Word(StatusCode), 0, len(StatusCode), "codes", ordered=True),
        "What is wrong, each once and in the order of the list.",
    ]
    streams: Annotated[
        tuple[StreamStatus, ...], Many(Row(StreamStatus), 0, MAX_STREAMS, "stream"), "All streams of the device."
    ]


KEY_BYTES = 32
"""Length of the key that only a device and its gateway have, and that authenticates watermarks."""
_DOMAIN = "fugu/2 committed"


def _tag(tag_key: bytes, fleet: str, device: str, message: Committed) -> bytes:
    """Return the HMAC-SHA256 of domain, fleet and device, each with a zero byte, then the counter and the streams.

    The counter has 8 bytes, the highest first; the streams are packed as in the message.
    """
    check_binary(tag_key, KEY_BYTES, KEY_BYTES, "key")
    header = b"".join(name.encode() + b"\0" for name in (_DOMAIN, fleet, device))
    packed: bytes = msgpack.packb([stream.row() for stream in message.streams])
    return hmac.digest(tag_key, header + message.counter.to_bytes(8, "big") + packed, "sha256")


def check_ticks(previous: int, first: int, last: int, shift: int) -> None:
    """Refuse a frame whose ticks contradict one another."""
    if previous >= first:
        raise range_error(f"previous tick {previous} is not before the first tick {first}")
    if shift > first:
        raise range_error(f"shift {shift} is above the first tick {first}")
    if last > MAX_TICK:
        raise range_error(f"last tick {last} is above {MAX_TICK}")


def symbol_bits(symbols: int) -> int:
    """Return the bits that a symbol takes in frames: the fewest that hold a number of symbols."""
    return next(bits for bits in SYMBOL_BITS if symbols <= 1 << bits)


@cache
def _symbols_of_bytes(bits: int) -> list[bytes]:
    """Return for each byte its symbols of `bits` bits, the first in the highest bits."""
    return [bytes(symbols) for symbols in product(range(1 << bits), repeat=8 // bits)]


WINDOW_NAME_PATTERN = f"^[A-Za-z0-9_-]{{1,{MAX_WINDOW_NAME}}}$"
MAX_WINDOW_TICKS = 2**31
MAX_ANSWERS = 50_000
"""Windows that a helper remembers as answered; each until its key is gone: two days, a window and the deadline."""
MAX_COUNTS = 255


def sequence_name(stream: str, window: str) -> str:
    """Return the name of a window's sequence in watermarks."""
    return f"{stream}/{window}"


@frozen
class WindowFrame(Message):
    """The noisy counts of one window."""

    SCHEMA = 5
    LAYOUT = (*("policy_version", "shift", "window", "previous", "index", "first", "length", "observed", "counts"),)

    policy_version: PolicyVersion
    window: Annotated[str, Text(1, MAX_WINDOW_NAME, WINDOW_NAME_PATTERN), "Which of the policy's windows."]
    previous: Annotated[
        int,
        Integer(-1, MAX_TICK),
        "Index of the device's frame before this one of the same window, -1 for its first; no window between "
        "`previous` and `index` is ever released.",
    ]
    index: Annotated[int, TICK, "Number of this window: `first` = start + index * stride."]
    first: Annotated[int, TICK, "Its first tick."]
    length: Annotated[int, Integer(1, MAX_WINDOW_TICKS), "Its number of ticks."]
    observed: Annotated[
        int,
        Integer(1, MAX_WINDOW_TICKS),
        "Ticks that the device has observed, at most `length`; the others (it did not run, or its baseline had no mean "
        "yet) are in no count.",
    ]
    counts: Annotated[
        tuple[int, ...],
        Many(Integer(COUNT_LOW, COUNT_HIGH), 1, MAX_COUNTS, "a count"),
        "Ticks in the counted states (one count), or in each state (a histogram), each with discrete Laplace noise of "
        "its own, so below zero at times.",
    ]
    shift: Shift = 0

    def _check_consistency(self) -> None:
        if self.observed > self.length:
            check_integer(self.observed, 1, self.length, "observed")
        if self.previous >= self.index:
            raise range_error(f"previous index {self.previous} is not before the index {self.index}")
        check_ticks(-1, self.first, self.last, self.shift)

    @property
    def last(self) -> int:
        """The last tick of the window."""
        return self.first + self.length - 1

    def encode(self) -> bytes:
        """Encode the frame; its size depends only on the window's name and the number of counts."""
        header = self.policy_version, self.shift, self.window, (self.first, self.length)
        return window_frame(*header, self.previous, self.index, self.observed, self.counts)


JUDGED_BYTES = 8
MAX_REASON = 32
MAX_DETAIL = 200


@frozen
class PolicyStatus(Message):
    """The policy document in force, and the newest verdict."""

    SCHEMA = 11

    version: Annotated[int, Integer(0, 2**32 - 1), "Of the document in force; 0: none."]
    judged: Annotated[
        bytes,
        Binary(0, JUDGED_BYTES),
        "The first 8 bytes of the SHA-256 of the newest message that was judged; empty: none was.",
    ]
    reason: Annotated[str, Text(0, MAX_REASON), "Why it was refused, in one word; empty: it was not refused."]
    detail: Annotated[str, Text(0, MAX_DETAIL), "The same in a sentence."]
    refused: Annotated[int, TICK, "Messages refused since the start."]
    stale: Annotated[
        bool, Flag(), "Whether the document in force is past its time, or the newest signed time is too old."
    ]
