"""Frames of measured streams, schema 7: released points."""

import struct
from typing import Annotated, Any, NamedTuple, Self

from fugu.contract.errors import length_error, range_error
from fugu.contract.frames import First, PolicyVersion, Previous, Shift, SymbolFrame, WindowFrame, check_ticks
from fugu.contract.message import (
    Binary,
    Field,
    FieldType,
    Integer,
    Message,
    Schema,
    check_binary,
    check_integer,
    check_length,
    frozen,
)

__all__ = ["MAX_MEASURE_TICKS", "AnyFrame", "MeasureFrame", "Point", "Released"]

MAX_MEASURE_TICKS = 1024
_DIMENSIONS = Integer(1, 3)
_TABLE = Integer(0, 2**32 - 1)
_COORDINATE = Integer(-(2**31), 2**31 - 1)

Point = tuple[int, ...]
"""A point of the measurement's lattice, in 1 to 3 dimensions."""


class Released(NamedTuple):
    """The point released for a tick, and the number of the table that it was drawn from."""

    table: int
    point: Point

    @property
    def packed(self) -> bytes:
        """The bytes of one tick in a frame."""
        return _record(len(self.point)).pack(self.table, *self.point)

    @classmethod
    def unpack(cls, packed: bytes) -> Self:
        """Read the table's number and the point of one tick from its bytes in a frame."""
        table, *point = _record(len(packed) // 4 - 1).unpack(packed)
        return cls(table, tuple(point))


class _Points(FieldType):
    def check(self, value: Any, name: str) -> None:
        check_length(value, 1, MAX_MEASURE_TICKS, name)
        for table, point in value:
            _TABLE.check(table, "table")
            for coordinate in point:
                _COORDINATE.check(coordinate, "coordinate")

    def schema(self) -> Schema:
        parts = ("table", "uint", 32, 1), ("point", "int", 32, "dimensions")
        return Binary(8, 16 * MAX_MEASURE_TICKS, "count", *parts).schema()


# As for symbol frames, integers are written in msgpack's widest forms (0xcc: 8 bits unsigned, 0xc6: byte string of
# 32-bit length), so that frames of a stream have one size.
_HEADER = struct.Struct(">BBBIBqBqBqBBBHBI")


@frozen
class MeasureFrame(Message):
    """Released points of consecutive ticks."""

    SCHEMA = 7
    LAYOUT = (
        *("policy_version", "shift", "previous", "first", "dimensions"),
        Field("count", Integer(1, MAX_MEASURE_TICKS), "Points: every tick from `first` on has one."),
        Field(
            "points",
            _Points(),
            "For each tick 4 + 4d bytes: number of the table that it was drawn from (unsigned, big-endian), then d "
            "coordinates in steps of the lattice (signed, big-endian). The rest is padding, all zero.",
        ),
    )

    policy_version: PolicyVersion
    previous: Previous
    first: First
    dimensions: Annotated[int, _DIMENSIONS, "d, coordinates of a point."]
    released: Annotated[tuple[Released, ...], _Points()]
    padding: Annotated[int, Integer(0, MAX_MEASURE_TICKS - 1)] = 0
    shift: Shift = 0

    def _check_consistency(self) -> None:
        check_integer(self.padding, 0, MAX_MEASURE_TICKS - len(self.released), "padding")
        for point in self.released:
            check_length(point.point, self.dimensions, self.dimensions, "point")
        check_ticks(self.previous, self.first, self.last, self.shift)

    @property
    def last(self) -> int:
        """The tick of the last point."""
        return self.first + len(self.released) - 1

    def encode(self) -> bytes:
        """Encode the frame; its size depends only on dimensions, ticks and padding."""
        body = b"".join(point.packed for point in self.released) + bytes(self.padding * _record(self.dimensions).size)
        header = (self.SCHEMA, 0x97, 0xCE, self.policy_version, 0xD3, self.shift, 0xD3, self.previous, 0xD3, self.first)
        return _HEADER.pack(*header, 0xCC, self.dimensions, 0xCD, len(self.released), 0xC6, len(body)) + body

    @classmethod
    def decode(cls, payload: bytes) -> Self:
        """Parse a frame; errors as for any message."""
        row = cls.unpack(payload)
        version, shift, previous, first_tick, dimensions, drawn_ticks, points = row
        _DIMENSIONS.check(dimensions, "dimensions")
        form = _record(dimensions)
        check_binary(points, form.size, MAX_MEASURE_TICKS * form.size, "points")
        if len(points) % form.size:
            raise length_error("the points of a frame end in the middle of one")
        ticks = len(points) // form.size
        check_integer(drawn_ticks, 1, ticks, "count")
        if any(points[drawn_ticks * form.size :]):
            raise range_error("the padding of a frame holds points")
        records = form.iter_unpack(points[: drawn_ticks * form.size])
        released = tuple(Released(table, tuple(point)) for table, *point in records)
        return cls(version, previous, first_tick, dimensions, released, ticks - drawn_ticks, shift)


def _record(dimensions: int) -> struct.Struct:
    return struct.Struct(f">I{dimensions}i")


AnyFrame = SymbolFrame | MeasureFrame | WindowFrame
