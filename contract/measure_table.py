"""Tables of a measured stream, schema 8: how each state is turned into a released point, for which ticks.

A table is a message of its own, because a gateway sends new ones while a policy is in force; a policy carries its
fallback table in the same bytes. Sets of states are integers whose bit x stands for state x.
"""

from __future__ import annotations

import base64
import sys
from array import array
from bisect import bisect_right
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from typing import Any

from contract._wire import array as fixed
from contract._wire import binary, each, fields, identity, integer, length, pack
from contract.discrete_laplace import SCALE
from contract.errors import FrameLengthError, FrameRangeError, MalformedFrameError
from contract.frames import MAX_TICK
from contract.measure_frames import Point
from contract.staircase import Below, Staircase, draw

__all__ = [
    "MAX_POINTS",
    "MAX_TABLE_STATES",
    "MOST_HELD",
    "MOST_VERTICES",
    "MeasureTable",
    "Noise",
    "StaircaseNoise",
    "WeightNoise",
    "decode_table",
    "decoded_table",
    "encode_table",
    "encoded_table",
    "members",
    "set_of",
]

TABLE = 8
MAX_MEASURED_STATES = 1024
MAX_TABLE_STATES = 100
MAX_POINTS = 1024
COORDINATE_LIMIT = 1 << 16
MOST_HELD = 32
"""Tables that a device holds beside those of its policy."""
MOST_VERTICES = 256
_MOST_RATIO = 1 << 64
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


@dataclass(frozen=True, slots=True)
class WeightNoise:
    """A row of weights for each state: the released point is drawn by one 32-bit word.

    Attributes:
        points: M points, d integers each.
        rows: for each state the M - 1 strictly increasing cumulative thresholds within (0, 2^32).
    """

    points: tuple[Point, ...]
    rows: tuple[array[int], ...]

    def __post_init__(self) -> None:
        """Refuse what cannot be drawn from, and cells without weight."""
        length(self.points, 2, MAX_POINTS, "points")
        length(self.rows, 2, MAX_TABLE_STATES, "rows")
        _check_points(self.points, "a point")
        if len(set(self.points)) != len(self.points):
            raise FrameRangeError("a table names a point twice")
        for row in self.rows:
            if len(row) != len(self.points) - 1:
                raise FrameLengthError(f"{len(row)} thresholds for {len(self.points)} points")
            if row[0] < 1 or any(low >= high for low, high in pairwise(row)):
                raise FrameRangeError("thresholds must increase strictly: an empty cell would reveal its state")

    @property
    def states(self) -> int:
        """N."""
        return len(self.rows)

    def weights(self, state: int) -> list[int]:
        """Pr(point | state) * 2^32 for every point."""
        return [high - low for low, high in pairwise((0, *self.rows[state], SCALE))]

    def draw(self, state: int, below: Below) -> Point:
        """The point to release for a state."""
        return self.points[bisect_right(self.rows[state], below(SCALE))]


@dataclass(frozen=True)
class StaircaseNoise:
    """Staircase noise around a state's centre, then clamped to a box; for more states than a table can hold.

    Attributes:
        kept: the states that stand for themselves; any other is stood in for by the nearest of them, ties to the lowest
            index.
        noise: the staircase.
        low, high: corners of the box.
    """

    kept: int
    noise: Staircase
    low: Point
    high: Point

    def __post_init__(self) -> None:
        """Refuse an empty box, or one of other dimensions."""
        integer(self.kept, 1, (1 << MAX_MEASURED_STATES) - 1, "kept")
        _check_points((*self.noise.vertices, self.low, self.high), "a vertex or corner")
        length(self.noise.vertices, 2, MOST_VERTICES, "vertices")
        if any(low > high for low, high in zip(self.low, self.high, strict=True)):
            raise FrameRangeError("the box is empty")
        if self.noise.ratio.denominator > _MOST_RATIO:
            raise FrameRangeError("the ratio of the staircase has too many digits")
        if (1 - self.noise.ratio) * _MOST_SHELLS < 1:
            raise FrameRangeError(f"the ratio of the staircase is within 1/{_MOST_SHELLS} of 1: draws would take long")

    def draw(self, centre: Point, below: Below) -> Point:
        """The point to release around a centre."""
        noisy = (c + v for c, v in zip(centre, draw(self.noise, below), strict=True))
        return tuple(min(max(x, low), high) for x, low, high in zip(noisy, self.low, self.high, strict=True))

    @cached_property
    def kept_states(self) -> list[int]:
        """The states of `kept`, ascending."""
        return members(self.kept)


Noise = WeightNoise | StaircaseNoise


@dataclass(frozen=True, slots=True)
class MeasureTable:
    """A table, and when it may be used.

    Attributes:
        policy_version: version of the policy that it belongs to.
        number: its name in frames; 0 is the policy's fallback.
        constraint: the states that the adversary holds possible at the ticks it is for; 0 for any set.
        first, until: ticks first <= t < until.
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

    def covers(self, tick: int, constraint: int) -> bool:
        """Whether it is for a tick at which the adversary holds this set possible."""
        return self.first <= tick < self.until and self.constraint in (0, constraint)


def encode_table(table: MeasureTable) -> bytes:
    """Bytes of a table's message."""
    noise = table.noise
    head = [table.policy_version, table.number, _set_bytes(table.constraint), table.first, table.until]
    if isinstance(noise, WeightNoise):
        rows = b"".join(_big_endian(row).tobytes() for row in noise.rows)
        return pack(TABLE, [*head, 0, [noise.points, len(noise.rows), rows]])
    p, r = noise.noise.ratio.as_integer_ratio()
    return pack(TABLE, [*head, 1, [_set_bytes(noise.kept), noise.noise.vertices, p, r, noise.low, noise.high]])


def decode_table(payload: bytes) -> MeasureTable:
    """Parse a table's message.

    Raises:
        FrameError: the subclass that says what is wrong.
    """
    version, number, constraint, first, until, kind, body = fields(payload, TABLE, 7)
    integer(kind, 0, 1, "kind")
    noise = _staircase(body) if kind else _weights(body)
    return MeasureTable(version, number, _set(constraint, "constraint"), first, until, noise)


def encoded_table(table: MeasureTable) -> str:
    """A table as a policy carries it."""
    return base64.b64encode(encode_table(table)).decode()


def decoded_table(text: str) -> MeasureTable:
    """A table that a policy carries.

    Raises:
        FrameError: the subclass that says what is wrong.
    """
    try:
        return decode_table(base64.b64decode(text, validate=True))
    except ValueError:
        raise MalformedFrameError("no base64") from None


def _weights(body: Any) -> WeightNoise:
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
    return WeightNoise(found, tuple(rows))


def _staircase(body: Any) -> StaircaseNoise:
    kept, vertices, p, r, low, high = fixed(body, 6, "staircase")
    corners = each(vertices, _point, "vertices")
    length(corners, 2, MOST_VERTICES, "vertices")
    integer(r, 2, _MOST_RATIO, "denominator")
    integer(p, 1, r - 1, "numerator")
    return StaircaseNoise(_set(kept, "kept"), Staircase(corners, Fraction(p, r)), _point(low), _point(high))


def _point(value: Any) -> Point:
    point = each(value, identity, "point")
    length(point, 1, 3, "point")
    for coordinate in point:
        integer(coordinate, -2 * COORDINATE_LIMIT, 2 * COORDINATE_LIMIT, "coordinate")
    return point


def _check_points(points: tuple[Point, ...], name: str) -> None:
    for point in points:
        if len(point) != len(points[0]):
            raise FrameLengthError(f"{name} has {len(point)} dimensions beside {len(points[0])}")


def _set(value: Any, name: str) -> int:
    binary(value, 0, MAX_MEASURED_STATES // 8, name)
    return int.from_bytes(value, "little")


def _set_bytes(states: int) -> bytes:
    return states.to_bytes((states.bit_length() + 7) // 8, "little")


def _big_endian(row: array[int]) -> array[int]:
    """A row of 32-bit numbers in the other byte order, on machines whose own is little-endian."""
    turned = array("I", row)
    if sys.byteorder == "little":
        turned.byteswap()
    return turned
