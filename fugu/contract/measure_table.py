"""Tables of a measured stream, schema 8: how each state is turned into a released point, for which ticks.

A table is a message of its own, because a gateway sends new ones while a policy is in force; a policy carries its
fallback table in the same bytes. Sets of states are integers whose bit x stands for state x.
"""

from __future__ import annotations

import base64
import sys
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

from fugu.contract._wire import array as fixed
from fugu.contract._wire import binary, each, fields, identity, integer, length, pack
from fugu.contract.errors import FrameRangeError, MalformedFrameError
from fugu.contract.frames import MAX_TICK
from fugu.contract.measure_frames import Point
from fugu.contract.noise_table import MAX_POINTS, MAX_TABLE_STATES, NoiseTable, check_dimensions
from fugu.contract.staircase import Below, Staircase, draw

__all__ = [
    "MOST_HELD",
    "MOST_VERTICES",
    "Noise",
    "StaircaseNoise",
    "TimedTable",
    "decode_table",
    "decoded_table",
    "encode_table",
    "encoded_table",
    "members",
    "set_of",
]

TABLE = 8
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


@dataclass(frozen=True, slots=True)
class TimedTable:
    """Noise around points, and when it may be used.

    Attributes:
        policy_version: version of the policy that it belongs to.
        number: its name in frames; 0 is the policy's fallback.
        constraint: the states that the adversary holds possible at the ticks it is for; 0 for any set.
        first, until: ticks first <= t < until.
        noise: a table of points, or a staircase.
    """

    policy_version: int
    number: int
    constraint: int
    first: int
    until: int
    noise: Noise

    def __post_init__(self) -> None:
        """Refuse values that no message can hold."""
        integer(self.policy_version, 1, 2**32 - 1, "policy_version")
        integer(self.number, 0, 2**32 - 1, "number")
        integer(self.constraint, 0, (1 << MAX_MEASURED_STATES) - 1, "constraint")
        integer(self.first, 0, MAX_TICK, "first")
        integer(self.until, self.first + 1, MAX_TICK + 1, "until")
        if isinstance(self.noise, NoiseTable):
            length(self.noise.points, 2, MAX_POINTS, "points")

    def covers(self, tick: int, constraint: int) -> bool:
        """Whether it is for a tick at which the adversary holds this set possible."""
        return self.first <= tick < self.until and self.constraint in (0, constraint)


def encode_table(table: TimedTable) -> bytes:
    """Bytes of a table's message."""
    noise = table.noise
    head = [table.policy_version, table.number, _set_bytes(table.constraint), table.first, table.until]
    if isinstance(noise, NoiseTable):
        rows = b"".join(_big_endian(row).tobytes() for row in noise.rows)
        return pack(TABLE, [*head, 0, [noise.points, len(noise.rows), rows]])
    p, r = noise.noise.ratio.as_integer_ratio()
    return pack(TABLE, [*head, 1, [_set_bytes(noise.likely), noise.noise.vertices, p, r, noise.low, noise.high]])


def decode_table(payload: bytes) -> TimedTable:
    """Parse a table's message.

    Raises:
        FrameError: the subclass that says what is wrong.
    """
    version, number, constraint, first, until, kind, body = fields(payload, TABLE, 7)
    integer(kind, 0, 1, "kind")
    noise = _staircase(body) if kind else _weights(body)
    return TimedTable(version, number, _set(constraint, "constraint"), first, until, noise)


def encoded_table(table: TimedTable) -> str:
    """A table as a policy carries it."""
    return base64.b64encode(encode_table(table)).decode()


def decoded_table(text: str) -> TimedTable:
    """A table that a policy carries.

    Raises:
        FrameError: the subclass that says what is wrong.
    """
    try:
        return decode_table(base64.b64decode(text, validate=True))
    except ValueError:
        raise MalformedFrameError("no base64") from None


def _weights(body: Any) -> NoiseTable:
    points, count, packed = fixed(body, 3, "weights")
    integer(count, 2, MAX_TABLE_STATES, "states")
    found = each(points, _point, "points")
    length(found, 2, MAX_POINTS, "points")
    size = 4 * (len(found) - 1)
    binary(packed, count * size, count * size, "rows")
    rows = []
    for start in range(0, len(packed), size):
        row = array("I")
        row.frombytes(packed[start : start + size])
        rows.append(_big_endian(row))
    return NoiseTable(tuple(rows), found)


def _staircase(body: Any) -> StaircaseNoise:
    likely, vertices, p, r, low, high = fixed(body, 6, "staircase")
    corners = each(vertices, _point, "vertices")
    length(corners, 2, MOST_VERTICES, "vertices")
    integer(r, 2, MOST_RATIO, "denominator")
    integer(p, 1, r - 1, "numerator")
    return StaircaseNoise(_set(likely, "likely"), Staircase(corners, Fraction(p, r)), _point(low), _point(high))


def _point(value: Any) -> Point:
    point = each(value, identity, "point")
    length(point, 1, 3, "point")
    for coordinate in point:
        integer(coordinate, -2 * COORDINATE_LIMIT, 2 * COORDINATE_LIMIT, "coordinate")
    return point


def _set(value: Any, name: str) -> int:
    binary(value, 0, MAX_MEASURED_STATES // 8, name)
    return int.from_bytes(value, "little")


def _set_bytes(states: int) -> bytes:
    return states.to_bytes((states.bit_length() + 7) // 8, "little")


def _big_endian(row: Sequence[int]) -> array[int]:
    """A row of 32-bit numbers in the other byte order, on machines whose own is little-endian."""
    turned = array("I", row)
    if sys.byteorder == "little":
        turned.byteswap()
    return turned
