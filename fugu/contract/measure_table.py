"""Tables of a measured stream, schema 8: how each state is turned into a released point, for which ticks.

A table is a message of its own, because a gateway sends new ones while a policy is in force; a policy carries its
fallback table in the same bytes. Sets of states are integers whose bit x stands for state x.
"""

import base64
import sys
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Annotated, Any, ClassVar, Self

from fugu.contract.errors import FrameRangeError, MalformedFrameError
from fugu.contract.frames import MAX_TICK, TICK, PolicyVersion
from fugu.contract.measure_frames import Point
from fugu.contract.message import (
    Binary,
    Field,
    FieldType,
    Integer,
    Many,
    Message,
    Schema,
    binary,
    integer,
    length,
    read_row,
    row_schema,
    unpacked,
)
from fugu.contract.noise_table import MAX_POINTS, MAX_TABLE_STATES, NoiseTable, check_dimensions
from fugu.contract.staircase import Below, Staircase, draw

__all__ = [
    "MOST_HELD",
    "MOST_VERTICES",
    "Noise",
    "StaircaseNoise",
    "TimedTable",
    "decoded_table",
    "encoded_table",
    "members",
    "set_of",
]

MAX_MEASURED_STATES = 1024
COORDINATE_LIMIT = 1 << 16
MOST_HELD = 32
"""Tables that a device holds beside those of its policy."""
MOST_VERTICES = 256
MOST_RATIO = 1 << 64
_MOST_SHELLS = 1 << 12
"""Of a draw, on average: each costs a device some microseconds."""


def set_of(states: Any) -> int:
    """The set of some states."""
    found = 0
    for state in states:
        found |= 1 << int(state)  # also of numpy, whose integers end at 64 bits
    return found


def members(states: int) -> list[int]:
    """The states of a set, ascending."""
    found = []
    while states:
        lowest = states & -states
        found.append(lowest.bit_length() - 1)
        states ^= lowest
    return found


@dataclass(frozen=True)
class StaircaseNoise:
    """Staircase noise around a state's centre, then clamped to a box; for more states than a table can hold.

    Attributes:
        likely: the states with points of their own; any other has a surrogate, the nearest of them, ties to the lowest
            index.
        noise: the staircase.
        low, high: corners of the box.
    """

    likely: int
    noise: Staircase
    low: Point
    high: Point

    def __post_init__(self) -> None:
        """Refuse an empty box, or one of other dimensions."""
        integer(self.likely, 1, (1 << MAX_MEASURED_STATES) - 1, "likely")
        check_dimensions((*self.noise.vertices, self.low, self.high), "a vertex or corner")
        length(self.noise.vertices, 2, MOST_VERTICES, "vertices")
        if any(low > high for low, high in zip(self.low, self.high, strict=True)):
            raise FrameRangeError("the box is empty")
        if self.noise.ratio.denominator > MOST_RATIO:
            raise FrameRangeError("the ratio of the staircase has too many digits")
        if (1 - self.noise.ratio) * _MOST_SHELLS < 1:
            raise FrameRangeError(f"the ratio of the staircase is within 1/{_MOST_SHELLS} of 1: draws would take long")

    def draw(self, centre: Point, below: Below) -> Point:
        """The point to release around a centre."""
        noisy = (c + v for c, v in zip(centre, draw(self.noise, below), strict=True))
        return tuple(min(max(x, low), high) for x, low, high in zip(noisy, self.low, self.high, strict=True))

    @cached_property
    def likely_states(self) -> list[int]:
        """The states of `likely`, ascending."""
        return members(self.likely)


Noise = NoiseTable | StaircaseNoise

_STATES = (1 << MAX_MEASURED_STATES) - 1
_SET = Binary(0, MAX_MEASURED_STATES // 8)
_POINT = Many(Integer(-2 * COORDINATE_LIMIT, 2 * COORDINATE_LIMIT), 1, 3, "coordinate")
_TABLE_OF_POINTS = (
    Field("points", Many(_POINT, 2, MAX_POINTS, "point"), "M points."),
    Field("states", Integer(2, MAX_TABLE_STATES), "N states."),
    Field(
        "rows",
        Binary(8, 4 * MAX_TABLE_STATES * (MAX_POINTS - 1), "", ("threshold", "uint", 32, 1)),
        "N rows of M-1 cumulative thresholds over 2^32, each big-endian; a 32-bit word gives the point with the index "
        "of the number of thresholds that do not exceed it.",
    ),
)
_STAIRCASE = (
    Field(
        "likely", Binary(1, MAX_MEASURED_STATES // 8), "The likely states, as `possible`; the others have surrogates."
    ),
    Field("corners", Many(_POINT, 2, MOST_VERTICES, "corner"), "Of the hull."),
    Field("p", Integer(1, MOST_RATIO - 1), "Numerator of the ratio p/q, at most 4095/4096."),
    Field("q", Integer(2, MOST_RATIO), "Its denominator."),
    Field("low", _POINT, "A corner of the box that points are clamped to."),
    Field("high", _POINT, "The other."),
)


class _Set(FieldType):
    """A set of states, as an integer; on the wire its bytes, the lowest first."""

    __slots__ = ()

    def check(self, value: Any, name: str) -> None:
        integer(value, 0, _STATES, name)

    def read(self, value: Any, name: str) -> int:
        _SET.check(value, name)
        return int.from_bytes(value, "little")

    def write(self, value: Any) -> bytes:
        return _set_bytes(value)

    def schema(self) -> Schema:
        return _SET.schema()


class _Body(FieldType):
    """The noise, of either kind."""

    __slots__ = ()

    def check(self, value: Any, name: str) -> None:
        if isinstance(value, NoiseTable):
            length(value.points, 2, MAX_POINTS, "points")

    def schema(self) -> Schema:
        return {"oneOf": [row_schema("NoiseTable", _TABLE_OF_POINTS), row_schema("StaircaseNoise", _STAIRCASE)]}


@dataclass(frozen=True, slots=True)
class TimedTable(Message):
    """Noise around points, and when it may be used."""

    SCHEMA: ClassVar[int] = 8
    LAYOUT: ClassVar[tuple[str | Field, ...]] = (
        *(
            "policy_version",
            "number",
            Field(
                "possible",
                _Set(),
                "The set of possible states that it is for, little-endian, bit x for state x; empty: any set.",
            ),
        ),
        *("first", "until", Field("kind", Integer(0, 1), "0: a table of points; 1: a staircase.")),
        Field("body", _Body()),
    )

    policy_version: PolicyVersion
    number: Annotated[
        int,
        Integer(0, 2**32 - 1),
        "Its name in frames; 0 is the policy's fallback, 1, 2, ... its other tables; those that are sent have higher "
        "ones, by the gateway's clock.",
    ]
    constraint: Annotated[int, _Set()]
    first: Annotated[int, TICK, "The first tick that it is for."]
    until: Annotated[int, Integer(1, MAX_TICK + 1), "The first that it is not for, above `first`."]
    noise: Annotated[Noise, _Body()]

    def _consistent(self) -> None:
        integer(self.until, self.first + 1, MAX_TICK + 1, "until")

    def covers(self, tick: int, constraint: int) -> bool:
        """Whether it is for a tick at which the adversary holds this set possible."""
        return self.first <= tick < self.until and self.constraint in (0, constraint)

    def row(self) -> list[Any]:
        """The array."""
        noise = self.noise
        head = [self.policy_version, self.number, _set_bytes(self.constraint), self.first, self.until]
        if isinstance(noise, NoiseTable):
            rows = b"".join(_big_endian(row).tobytes() for row in noise.rows)
            return [*head, 0, [noise.points, len(noise.rows), rows]]
        p, q = noise.noise.ratio.as_integer_ratio()
        return [*head, 1, [_set_bytes(noise.likely), noise.noise.vertices, p, q, noise.low, noise.high]]

    @classmethod
    def decode(cls, payload: bytes) -> Self:
        """Parse a table's message; errors as for any message."""
        version, number, constraint, first, until, kind, body = read_row(
            unpacked(payload, cls.SCHEMA), cls.wire, "message"
        )
        return cls(version, number, constraint, first, until, _staircase(body) if kind else _weights(body))


def encoded_table(table: TimedTable) -> str:
    """A table as a policy carries it."""
    return base64.b64encode(table.encode()).decode()


def decoded_table(text: str) -> TimedTable:
    """A table that a policy carries.

    Raises:
        FrameError: the subclass that says what is wrong.
    """
    try:
        return TimedTable.decode(base64.b64decode(text, validate=True))
    except ValueError:
        raise MalformedFrameError("no base64") from None


def _weights(body: Any) -> NoiseTable:
    points, count, packed = read_row(body, _TABLE_OF_POINTS, "weights")
    size = 4 * (len(points) - 1)
    binary(packed, count * size, count * size, "rows")
    rows = []
    for start in range(0, len(packed), size):
        row = array("I")
        row.frombytes(packed[start : start + size])
        rows.append(_big_endian(row))
    return NoiseTable(tuple(rows), points)


def _staircase(body: Any) -> StaircaseNoise:
    likely, corners, p, q, low, high = read_row(body, _STAIRCASE, "staircase")
    integer(p, 1, q - 1, "p")
    return StaircaseNoise(int.from_bytes(likely, "little"), Staircase(corners, Fraction(p, q)), low, high)


def _set_bytes(states: int) -> bytes:
    return states.to_bytes((states.bit_length() + 7) // 8, "little")


def _big_endian(row: Sequence[int]) -> "array[int]":
    """A row of 32-bit numbers in the other byte order, on machines whose own is little-endian."""
    turned = array("I", row)
    if sys.byteorder == "little":
        turned.byteswap()
    return turned
