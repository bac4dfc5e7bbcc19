"""Payloads: a schema number in the first byte, then one msgpack array; docs/protocol.md has the byte layouts.

Decoding is strict: whatever is not exactly what the schema says raises the one FrameError that names what is wrong.
Values are checked in the dataclasses themselves, so that what cannot be decoded cannot be encoded either.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import msgpack

from contract.errors import (
    FrameLengthError,
    FrameRangeError,
    FrameTypeError,
    MalformedFrameError,
    TrailingBytesError,
    UnknownSchemaError,
)

__all__ = [
    "ABSENT",
    "MAX_FRAME_TICKS",
    "Committed",
    "Estimate",
    "Gap",
    "Status",
    "StreamCommit",
    "StreamStatus",
    "SymbolFrame",
    "decode_committed",
    "decode_estimate",
    "decode_status",
    "decode_symbols",
    "encode_committed",
    "encode_estimate",
    "encode_status",
    "encode_symbols",
]

SYMBOLS, COMMITTED, STATUS, ESTIMATE = 1, 2, 3, 4
ABSENT = 255
"""In a symbol frame: the device was not running at this tick."""
MAX_FRAME_TICKS = 4096
MAX_TICK = 2**53
"""Ticks stay exact in every language's numbers."""
MAX_STREAMS = 64
MAX_GAPS = 32
MAX_TEXT = 200
PROBABILITY_SLACK = 1e-3


@dataclass(frozen=True, slots=True)
class SymbolFrame:
    """Randomised symbols of consecutive ticks.

    Attributes:
        policy_version: version of the policy that randomised them.
        previous: last tick of the frame before this one, -1 for the first frame of all; ticks between
            `previous` and `first` never had a symbol.
        first: tick of `symbols[0]`.
        symbols: one byte a tick, ABSENT where the device was not running.
        padding: bytes by which a frame that was cut short is filled up on the wire, so that all have one size.
    """

    policy_version: int
    previous: int
    first: int
    symbols: bytes
    padding: int = 0

    def __post_init__(self) -> None:
        """Refuse values that no frame can hold."""
        _integer(self.policy_version, 1, 2**32 - 1, "policy_version")
        _integer(self.previous, -1, MAX_TICK, "previous")
        _integer(self.first, 0, MAX_TICK, "first")
        _binary(self.symbols, 1, MAX_FRAME_TICKS, "symbols")
        _integer(self.padding, 0, MAX_FRAME_TICKS - len(self.symbols), "padding")
        if self.previous >= self.first:
            raise FrameRangeError(f"previous tick {self.previous} is not before the first tick {self.first}")
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
        _integer(self.after, -1, MAX_TICK, "after")
        _integer(self.through, 0, MAX_TICK, "through")
        if self.after >= self.through:
            raise FrameRangeError(f"gap from {self.after} to {self.through} is empty")


@dataclass(frozen=True, slots=True)
class StreamCommit:
    """What is durable of one stream: every tick up to `through` but those in `gaps`."""

    stream: str
    through: int
    gaps: tuple[Gap, ...]

    def __post_init__(self) -> None:
        """Refuse values that no message can hold."""
        _text(self.stream, 1, 64, "stream")
        _integer(self.through, -1, MAX_TICK, "through")
        _length(self.gaps, 0, MAX_GAPS, "gaps")


@dataclass(frozen=True, slots=True)
class Committed:
    """The gateway's watermark for a device."""

    streams: tuple[StreamCommit, ...]

    def __post_init__(self) -> None:
        """Refuse values that no message can hold."""
        _length(self.streams, 0, MAX_STREAMS, "streams")


@dataclass(frozen=True, slots=True)
class StreamStatus:
    """One stream in a device's status: the policy in force and the next tick."""

    stream: str
    policy_version: int
    next_tick: int

    def __post_init__(self) -> None:
        """Refuse values that no message can hold."""
        _text(self.stream, 1, 64, "stream")
        _integer(self.policy_version, 1, 2**32 - 1, "policy_version")
        _integer(self.next_tick, 0, MAX_TICK, "next_tick")


@dataclass(frozen=True, slots=True)
class Status:
    """A device's birth (online) or last will (not online)."""

    online: bool
    agent_version: str
    outbox_depth: int
    last_error: str
    streams: tuple[StreamStatus, ...]

    def __post_init__(self) -> None:
        """Refuse values that no message can hold."""
        if not isinstance(self.online, bool):
            raise FrameTypeError(f"online is {_kind(self.online)}, not a boolean")
        _text(self.agent_version, 1, 64, "agent_version")
        _integer(self.outbox_depth, 0, MAX_TICK, "outbox_depth")
        _text(self.last_error, 0, MAX_TEXT, "last_error")
        _length(self.streams, 0, MAX_STREAMS, "streams")


@dataclass(frozen=True, slots=True)
class Estimate:
    """The gateway's belief about consecutive ticks; post-processing, costs no privacy.

    Attributes:
        lag: ticks of later symbols that each probability has seen.
        first: tick of the first row.
        probabilities: one row a tick, one probability a state.
        most_likely: the most likely state of each tick, one byte each.
        current_tick: newest tick the gateway has seen.
        current: probability of each state at `current_tick`.
    """

    lag: int
    first: int
    probabilities: tuple[tuple[float, ...], ...]
    most_likely: bytes
    current_tick: int
    current: tuple[float, ...]

    def __post_init__(self) -> None:
        """Refuse values that no message can hold."""
        _integer(self.lag, 0, MAX_FRAME_TICKS, "lag")
        _integer(self.first, 0, MAX_TICK, "first")
        _integer(self.current_tick, 0, MAX_TICK, "current_tick")
        _length(self.probabilities, 0, 2 * MAX_FRAME_TICKS, "probabilities")
        _binary(self.most_likely, len(self.probabilities), len(self.probabilities), "most_likely")
        for row in (*self.probabilities, self.current):
            _length(row, 2, 255, "probabilities")
            for value in row:
                if not isinstance(value, float):
                    raise FrameTypeError(f"a probability is {_kind(value)}, not a float")
                if not 0.0 <= value <= 1.0 + PROBABILITY_SLACK:
                    raise FrameRangeError(f"{value} is not a probability")
            if len(row) != len(self.current):
                raise FrameLengthError(f"{len(row)} states beside {len(self.current)}")
            if abs(sum(row) - 1.0) > PROBABILITY_SLACK:
                raise FrameRangeError(f"probabilities sum to {sum(row)}")
        if any(state >= len(self.current) for state in self.most_likely):
            raise FrameRangeError("most_likely names a state that does not exist")


# Symbol frames of a stream have one size, whatever the numbers in them: the integers are written in msgpack's widest
# forms (0xce: 32 bits unsigned, 0xd3: 64 bits signed, 0xcd: 16 bits unsigned, 0xc5: byte string of 16-bit length).
_HEADER = struct.Struct(">BBBIBqBqBHBH")


def encode_symbols(frame: SymbolFrame) -> bytes:
    """Bytes of a symbol frame; their number depends only on the number of ticks and the padding."""
    head = (SYMBOLS, 0x95, 0xCE, frame.policy_version, 0xD3, frame.previous, 0xD3, frame.first)
    count = len(frame.symbols)
    padding = bytes([ABSENT]) * frame.padding
    return _HEADER.pack(*head, 0xCD, count, 0xC5, count + frame.padding) + frame.symbols + padding


def decode_symbols(payload: bytes) -> SymbolFrame:
    """Parse a symbol frame.

    Raises:
        FrameError: the subclass that says what is wrong.
    """
    version, previous, first, count, symbols = _fields(payload, SYMBOLS, 5)
    _binary(symbols, 1, MAX_FRAME_TICKS, "symbols")
    _integer(count, 1, len(symbols), "count")
    padding = symbols[count:]
    if padding.strip(bytes([ABSENT])):
        raise FrameRangeError("the padding of a frame holds symbols")
    return SymbolFrame(version, previous, first, symbols[:count], len(padding))


def encode_committed(message: Committed) -> bytes:
    """Bytes of a watermark message."""
    rows = [[c.stream, c.through, [[g.after, g.through] for g in c.gaps]] for c in message.streams]
    return _pack(COMMITTED, [rows])


def decode_committed(payload: bytes) -> Committed:
    """Parse a watermark message.

    Raises:
        FrameError: the subclass that says what is wrong.
    """
    (rows,) = _fields(payload, COMMITTED, 1)

    def commit(row: Any) -> StreamCommit:
        stream, through, gaps = _array(row, 3, "stream")
        return StreamCommit(stream, through, _each(gaps, lambda gap: Gap(*_array(gap, 2, "gap")), "gaps"))

    return Committed(_each(rows, commit, "streams"))


def encode_status(message: Status) -> bytes:
    """Bytes of a status message."""
    rows = [[s.stream, s.policy_version, s.next_tick] for s in message.streams]
    return _pack(STATUS, [message.online, message.agent_version, message.outbox_depth, message.last_error, rows])


def decode_status(payload: bytes) -> Status:
    """Parse a status message.

    Raises:
        FrameError: the subclass that says what is wrong.
    """
    online, agent, depth, error, rows = _fields(payload, STATUS, 5)
    streams = _each(rows, lambda row: StreamStatus(*_array(row, 3, "stream")), "streams")
    return Status(online, agent, depth, error, streams)


def encode_estimate(message: Estimate) -> bytes:
    """Bytes of an estimate; probabilities travel as 32-bit floats."""
    body = [message.lag, message.first, message.probabilities, message.most_likely]
    return _pack(ESTIMATE, [*body, message.current_tick, message.current])


def decode_estimate(payload: bytes) -> Estimate:
    """Parse an estimate.

    Raises:
        FrameError: the subclass that says what is wrong.
    """
    lag, first, rows, most_likely, tick, current = _fields(payload, ESTIMATE, 6)
    probabilities = _each(rows, lambda row: _each(row, _identity, "row"), "probabilities")
    return Estimate(lag, first, probabilities, most_likely, tick, _each(current, _identity, "current"))


_T = TypeVar("_T")


def _pack(schema: int, body: list[Any]) -> bytes:
    packed: bytes = msgpack.packb(body, use_single_float=True)
    return bytes([schema]) + packed


def _fields(payload: bytes, schema: int, count: int) -> list[Any]:
    """The fields of a payload of the given schema."""
    if not payload:
        raise MalformedFrameError("empty payload")
    if payload[0] != schema:
        raise UnknownSchemaError(f"schema {payload[0]}, expected {schema}")
    try:
        body = msgpack.unpackb(memoryview(payload)[1:], raw=False, strict_map_key=True)
    except msgpack.ExtraData:
        raise TrailingBytesError("bytes follow the end of the message") from None
    except (ValueError, TypeError, RecursionError, msgpack.UnpackException) as error:
        raise MalformedFrameError(f"no msgpack message: {type(error).__name__}") from None
    return _array(body, count, "message")


def _kind(value: object) -> str:
    return type(value).__name__


def _identity(value: Any) -> Any:
    return value


def _array(value: Any, count: int, name: str) -> list[Any]:
    if not isinstance(value, list):
        raise FrameTypeError(f"{name} is {_kind(value)}, not an array")
    if len(value) != count:
        raise FrameLengthError(f"{name} has {len(value)} fields, not {count}")
    return value


def _each(value: Any, item: Callable[[Any], _T], name: str) -> tuple[_T, ...]:
    if not isinstance(value, list):
        raise FrameTypeError(f"{name} is {_kind(value)}, not an array")
    return tuple([item(element) for element in value])


def _integer(value: Any, low: int, high: int, name: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise FrameTypeError(f"{name} is {_kind(value)}, not an integer")
    if not low <= value <= high:
        raise FrameRangeError(f"{name} {value} is not in {low}..{high}")


def _length(value: tuple[Any, ...] | bytes | str, low: int, high: int, name: str) -> None:
    if not low <= len(value) <= high:
        raise FrameLengthError(f"{name} has length {len(value)}, not {low}..{high}")


def _binary(value: Any, low: int, high: int, name: str) -> None:
    if not isinstance(value, bytes):
        raise FrameTypeError(f"{name} is {_kind(value)}, not a byte string")
    _length(value, low, high, name)


def _text(value: Any, low: int, high: int, name: str) -> None:
    if not isinstance(value, str):
        raise FrameTypeError(f"{name} is {_kind(value)}, not a string")
    _length(value, low, high, name)
