"""Frames of measured streams, schema 7: released points."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import NamedTuple

from fugu.contract._wire import binary, fields, integer, length
from fugu.contract.errors import FrameLengthError, FrameRangeError
from fugu.contract.frames import MAX_TICK

__all__ = [
    "MAX_MEASURE_TICKS",
    "MeasureFrame",
    "Point",
    "Released",
    "decode_measure",
    "encode_measure",
    "pack_released",
    "unpack_released",
]

MEASURE = 7
MAX_MEASURE_TICKS = 1024

Point = tuple[int, ...]
"""Of the measurement's lattice, in 1 to 3 dimensions."""


class Released(NamedTuple):
    """The point released for a tick, and the number of the table that it was drawn from."""

    table: int
    point: Point


@dataclass(frozen=True, slots=True)
class MeasureFrame:
    """Released points of consecutive ticks, each of which has one.

    Attributes:
        policy_version: version of the policy that they were made under.
        previous: last tick of the frame before this one, -1 for the first frame of all.
        first: tick of `released[0]`.
        dimensions: coordinates of a point.
        released: what was released at each tick.
        padding: ticks by which a frame that was cut short is filled up on the wire, so that all have one size.
        shift: by how many ticks the numbers are ahead of the wall clock: tick t is that of wall tick t - shift.
    """

    policy_version: int
    previous: int
    first: int
    dimensions: int
    released: tuple[Released, ...]
    padding: int = 0
    shift: int = 0

    def __post_init__(self) -> None:
        """Refuse values that no frame can hold."""
        integer(self.policy_version, 1, 2**32 - 1, "policy_version")
        integer(self.previous, -1, MAX_TICK, "previous")
        integer(self.first, 0, MAX_TICK, "first")
        integer(self.dimensions, 1, 3, "dimensions")
        length(self.released, 1, MAX_MEASURE_TICKS, "released")
        integer(self.padding, 0, MAX_MEASURE_TICKS - len(self.released), "padding")
        integer(self.shift, 0, MAX_TICK, "shift")
        for one in self.released:
            integer(one.table, 0, 2**32 - 1, "table")
            length(one.point, self.dimensions, self.dimensions, "point")
            for coordinate in one.point:
                integer(coordinate, -(2**31), 2**31 - 1, "coordinate")
        if self.previous >= self.first:
            raise FrameRangeError(f"previous tick {self.previous} is not before the first tick {self.first}")
        if self.shift > self.first:
            raise FrameRangeError(f"shift {self.shift} is above the first tick {self.first}")
        if self.last > MAX_TICK:
            raise FrameRangeError(f"last tick {self.last} is above {MAX_TICK}")

    @property
    def last(self) -> int:
        """Tick of the last point."""
        return self.first + len(self.released) - 1


# As for symbol frames, integers are written in msgpack's widest forms (0xcc: 8 bits unsigned, 0xc6: byte string of
# 32-bit length), so that frames of a stream have one size.
_HEADER = struct.Struct(">BBBIBqBqBqBBBHBI")


def encode_measure(frame: MeasureFrame) -> bytes:
    """Bytes of a frame of points; their number depends only on dimensions, ticks and padding."""
    body = b"".join(map(pack_released, frame.released)) + bytes(frame.padding * _cell(frame.dimensions).size)
    head = (MEASURE, 0x97, 0xCE, frame.policy_version, 0xD3, frame.shift, 0xD3, frame.previous, 0xD3, frame.first)
    return _HEADER.pack(*head, 0xCC, frame.dimensions, 0xCD, len(frame.released), 0xC6, len(body)) + body


def pack_released(released: Released) -> bytes:
    """The bytes of one tick in a frame."""
    return _cell(len(released.point)).pack(released.table, *released.point)


def unpack_released(packed: bytes) -> Released:
    """What `pack_released` packed."""
    table, *point = _cell(len(packed) // 4 - 1).unpack(packed)
    return Released(table, tuple(point))


def decode_measure(payload: bytes) -> MeasureFrame:
    """Parse a frame of points.

    Raises:
        FrameError: the subclass that says what is wrong.
    """
    version, shift, previous, first, dimensions, count, body = fields(payload, MEASURE, 7)
    integer(dimensions, 1, 3, "dimensions")
    cell = _cell(dimensions)
    binary(body, cell.size, MAX_MEASURE_TICKS * cell.size, "points")
    if len(body) % cell.size:
        raise FrameLengthError("the points of a frame end in the middle of one")
    ticks = len(body) // cell.size
    integer(count, 1, ticks, "count")
    if any(body[count * cell.size :]):
        raise FrameRangeError("the padding of a frame holds points")
    released = tuple(Released(table, tuple(point)) for table, *point in cell.iter_unpack(body[: count * cell.size]))
    return MeasureFrame(version, previous, first, dimensions, released, ticks - count, shift)


def _cell(dimensions: int) -> struct.Struct:
    return struct.Struct(f">I{dimensions}i")
