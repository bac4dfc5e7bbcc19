"""Tables of a measured stream, schema 8: how states become released points, and for which ticks.

A table is a message of its own, because a gateway sends new tables while a policy is in force; a policy carries its
fallback table in the same bytes. Sets of states are integers whose bit x stands for state x.

The staircase K-norm mechanism: P(v) proportional to q^ceil(gauge(v)) on the lattice, without truncation or floats. The
gauge of a sum is at most the sum of the gauges. So moving by a vector of K changes the power by at most 1, and the
likelihood by at most 1/q. For a lattice polygon with area A and B boundary points, n K holds A n^2 + (B/2) n + 1 points
(Ehrhart), so shell n has A (2n - 1) + B/2 of them. A draw takes a shell, then a point of it. The cone of an edge (a, b)
holds 2A_ab classes of points (i + alpha) a + (j + beta) b. Here i, j >= 0, alpha is in (0, 1] and beta in [0, 1). A
class with alpha + beta <= 1 meets shell n in n points, any other in n - 1.
"""

import base64
import math
import sys
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, reduce
from itertools import combinations, pairwise
from operator import or_
from typing import Annotated, Any, Self

from fugu.contract.errors import FrameError, range_error
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
    check_binary,
    check_integer,
    check_length,
    frozen,
    read_row,
    row_schema,
)
from fugu.contract.noise_table import MAX_POINTS, MAX_TABLE_STATES, NoiseTable, check_dimensions

__all__ = [
    "COORDINATE_LIMIT",
    "MAX_MEASURED_STATES",
    "MOST_HELD",
    "Noise",
    "Staircase",
    "StaircaseNoise",
    "TimedTable",
    "bezout",
    "set_of",
    "states_in",
]


Below = Callable[[int], int]
"""A function: below(n) is uniform on 0..n-1."""


@dataclass(frozen=True, slots=True)
class Staircase:
    """Staircase noise of a hull K, symmetric about 0, with ratio q in (0, 1).

    Vertices are the two ends of a segment, in any number of dimensions, or a plane polygon's corners,
    counter-clockwise.
    """

    vertices: tuple[Point, ...]
    ratio: Fraction

    def __post_init__(self) -> None:
        if not 0 < self.ratio < 1:
            raise range_error("the ratio of a staircase is not between 0 and 1")
        half_count, is_odd = divmod(len(self.vertices), 2)
        if is_odd or half_count < 1 or len({len(vertex) for vertex in self.vertices}) != 1:
            raise range_error("a hull has an even number of vertices, of equal dimensions")
        opposite = tuple(tuple(-coordinate for coordinate in vertex) for vertex in self.vertices)
        if opposite != self.vertices[half_count:] + self.vertices[:half_count]:
            raise range_error("the hull is not symmetric about 0")
        if half_count == 1:
            if not any(self.vertices[0]):
                raise range_error("the hull is a point")
        elif len(self.vertices[0]) != 2 or not self._is_convex():
            raise range_error("the hull is no convex polygon in the plane, counter-clockwise")

    def _is_convex(self) -> bool:
        """True if the vertices make half a turn from the first to its negative, and turn left at every corner."""
        first_vertex = self.vertices[0]
        half_count = len(self.vertices) // 2
        if not all(_cross(first_vertex, vertex) > 0 for vertex in self.vertices[1:half_count]):
            return False
        if not all(size > 0 for _, _, size in self.cones()):  # a polygon that loops would turn left everywhere, too
            return False
        steps = [(b[0] - a[0], b[1] - a[1]) for a, b in pairwise((*self.vertices, *self.vertices[:2]))]
        return all(_cross(a, b) > 0 for a, b in pairwise(steps))

    @property
    def dimensions(self) -> int:
        """The number of dimensions d."""
        return len(self.vertices[0])

    @property
    def is_segment(self) -> bool:
        """True if K has rank 1."""
        return len(self.vertices) == 2

    @property
    def double_area(self) -> int:
        """Twice the area, 2A, which is 0 for a segment."""
        return 0 if self.is_segment else sum(determinant for _, _, determinant in self.cones())

    @property
    def boundary(self) -> int:
        """The number B of lattice points on the boundary; both sides of a segment are counted."""
        steps = pairwise((*self.vertices, self.vertices[0]))
        return sum(math.gcd(*(y - x for x, y in zip(a, b, strict=True))) for a, b in steps)

    def cones(self) -> Iterator[tuple[Point, Point, int]]:
        """Yield the edges (a, b) of a polygon, counter-clockwise, each with the determinant of its ends."""
        for a, b in pairwise((*self.vertices, self.vertices[0])):
            yield a, b, _cross(a, b)

    def facets(self) -> list[tuple[Point, int]]:
        """Return outward normals and offsets: a point of K's span lies in t K if normal . point <= t offset for all."""
        if self.is_segment:
            end = self.vertices[0]
            length = sum(coordinate * coordinate for coordinate in end)
            return [(end, length), (tuple(-coordinate for coordinate in end), length)]
        return [((b[1] - a[1], a[0] - b[0]), determinant) for a, b, determinant in self.cones()]

    def spans(self, difference: Point) -> bool:
        """True if a vector lies in the span of K."""
        if not self.is_segment:
            return True
        end = self.vertices[0]
        return all(end[i] * difference[j] == end[j] * difference[i] for i, j in combinations(range(len(end)), 2))

    @property
    def shell_weights(self) -> tuple[int, int, int]:
        """The integer weights (w1, w2, w3) of three ways to draw a shell, for q = p/r.

        w1 = 2 (r-p)^2 for shell 0; w2 = (2A + B) p (r-p) for shell n >= 1 with distribution (1-q) q^(n-1); w3 = 4A p^2
        for shell n >= 2 with distribution (n-1)(1-q)^2 q^(n-2). They split A (2n - 1) + B/2 as (A + B/2) + 2A (n - 1).
        """
        p, r = self.ratio.as_integer_ratio()
        return 2 * (r - p) ** 2, (self.double_area + self.boundary) * p * (r - p), 2 * self.double_area * p**2

    @property
    def normaliser(self) -> Fraction:
        """The normaliser Z, the sum of q^ceil(gauge(v)) over the lattice."""
        p, r = self.ratio.as_integer_ratio()
        return Fraction(sum(self.shell_weights), 2 * (r - p) ** 2)

    def draw(self, uniform: Below) -> Point:
        """Draw a vector of the noise, exactly."""
        w1, w2, w3 = self.shell_weights
        pick = uniform(w1 + w2 + w3)
        if pick < w1:
            return (0,) * self.dimensions
        shell = 1 + _geometric(self.ratio, uniform)
        if pick >= w1 + w2:
            shell += 1 + _geometric(self.ratio, uniform)
        if self.is_segment:
            return _segment_point(self, shell, uniform)
        double_area = self.double_area
        while True:
            a, b, alpha, beta, size = self.point_class(uniform(double_area))
            step = uniform(shell)
            is_short = alpha + beta > size
            if is_short and step == shell - 1:  # a short class has one point fewer in this shell
                continue
            i, j = step, shell - 1 - is_short - step
            return tuple(((i * size + alpha) * s + (j * size + beta) * t) // size for s, t in zip(a, b, strict=True))

    def point_class(self, index: int) -> tuple[Point, Point, int, int, int]:
        """Return point class `index` of 0..2A-1: its edge (a, b), alpha and beta as numerators, their denominator."""
        cones = self.cones()
        a, b, determinant = next(cones)
        while index >= determinant:
            index -= determinant
            a, b, determinant = next(cones)
        # In a basis of the lattice where a is (g, 0), the box [0, g) x [0, size / g) meets every class once.
        g, s, t = bezout(*a)
        u, v = index % g, index // g
        x, y = u * (a[0] // g) - v * t, u * (a[1] // g) + v * s
        alpha, beta = (x * b[1] - y * b[0]) % determinant, (a[0] * y - a[1] * x) % determinant
        return a, b, alpha or determinant, beta, determinant


def bezout(a: int, b: int) -> tuple[int, int, int]:
    """Return (g, s, t) with g = gcd(a, b) = s a + t b; g is above 0 unless a and b are 0."""
    s, t, next_s, next_t = 1, 0, 0, 1
    while b:
        quotient = a // b
        a, b = b, a - quotient * b
        s, next_s = next_s, s - quotient * next_s
        t, next_t = next_t, t - quotient * next_t
    return (a, s, t) if a >= 0 else (-a, -s, -t)


def _geometric(ratio: Fraction, uniform: Below) -> int:
    """Draw a count n with probability (1 - ratio) ratio^n."""
    count = 0
    while uniform(ratio.denominator) < ratio.numerator:
        count += 1
    return count


def _segment_point(staircase: Staircase, shell: int, uniform: Below) -> Point:
    """Draw a point of a shell of a segment, which has gcd(end) points on either side of 0."""
    end = staircase.vertices[1]
    steps = math.gcd(*end)
    pick = uniform(2 * steps)
    multiple = (shell - 1) * steps + 1 + pick // 2
    return tuple((multiple if pick % 2 else -multiple) * coordinate // steps for coordinate in end)


def _cross(a: Point, b: Point) -> int:
    return a[0] * b[1] - a[1] * b[0]


MAX_MEASURED_STATES = 1024
COORDINATE_LIMIT = 1 << 16
"""Coordinates stay below this, so that 64-bit integers hold every determinant of a hull in three dimensions."""
MOST_HELD = 32
"""The most tables that a device holds beside the tables of its policy."""
MOST_VERTICES = 256
MOST_RATIO = 1 << 64
_MAX_SHELLS = 1 << 12
"""The most shells of a draw on average: each costs a device some microseconds."""


def set_of(states: Any) -> int:
    """Return a set of states as an integer: bit x stands for state x."""
    return reduce(or_, (1 << int(state) for state in states), 0)  # also of numpy, whose integers end at 64 bits


def states_in(state_set: int) -> list[int]:
    """Return the states of a set, ascending."""
    states = []
    while state_set:
        lowest_bit = state_set & -state_set
        states.append(lowest_bit.bit_length() - 1)
        state_set ^= lowest_bit
    return states


@dataclass(frozen=True)
class StaircaseNoise:
    """Staircase noise around a state's centre, clamped to a box; for more states than a table can hold.

    States that are not `likely` have a surrogate: the nearest likely state, ties to the lowest index.
    """

    likely: int
    staircase: Staircase
    low: Point
    high: Point

    def __post_init__(self) -> None:
        check_integer(self.likely, 1, (1 << MAX_MEASURED_STATES) - 1, "likely")
        check_dimensions((*self.staircase.vertices, self.low, self.high), "a vertex or corner")
        check_length(self.staircase.vertices, 2, MOST_VERTICES, "vertices")
        if any(low > high for low, high in zip(self.low, self.high, strict=True)):
            raise range_error("the box is empty")
        if self.staircase.ratio.denominator > MOST_RATIO:
            raise range_error("the ratio of the staircase has too many digits")
        if (1 - self.staircase.ratio) * _MAX_SHELLS < 1:
            raise range_error(f"the ratio of the staircase is within 1/{_MAX_SHELLS} of 1: draws would take long")

    def draw(self, centre: Point, uniform: Below) -> Point:
        """Draw the point to release around a centre."""
        point = (c + v for c, v in zip(centre, self.staircase.draw(uniform), strict=True))
        return tuple(min(max(x, low), high) for x, low, high in zip(point, self.low, self.high, strict=True))

    @cached_property
    def likely_states(self) -> list[int]:
        """The likely states, ascending."""
        return states_in(self.likely)


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
    """A set of states as an integer; on the wire its bytes, the lowest first."""

    def check(self, value: Any, name: str) -> None:
        check_integer(value, 0, _STATES, name)

    def read(self, value: Any, name: str) -> int:
        _SET.check(value, name)
        return int.from_bytes(value, "little")

    def write(self, value: Any) -> bytes:
        return _set_bytes(value)

    def schema(self) -> Schema:
        return _SET.schema()


class _Body(FieldType):
    def check(self, value: Any, name: str) -> None:
        if isinstance(value, NoiseTable):
            check_length(value.points, 2, MAX_POINTS, "points")

    def schema(self) -> Schema:
        return {"oneOf": [row_schema("NoiseTable", _TABLE_OF_POINTS), row_schema("StaircaseNoise", _STAIRCASE)]}


_POSSIBLE = "The set of possible states that it is for, little-endian, bit x for state x; empty: any set."


@frozen
class TimedTable(Message):
    """Noise around points, with the ticks for which it may be used."""

    SCHEMA = 8
    LAYOUT = (
        *("policy_version", "number"),
        Field("possible", _Set(), _POSSIBLE),
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

    def _check_consistency(self) -> None:
        check_integer(self.until, self.first + 1, MAX_TICK + 1, "until")

    def covers(self, tick: int, constraint: int) -> bool:
        """True if the table is for a tick at which the adversary holds the set `constraint` possible."""
        return self.first <= tick < self.until and self.constraint in (0, constraint)

    def row(self) -> list[Any]:
        """Return the fields of the array."""
        noise = self.noise
        header = [self.policy_version, self.number, _set_bytes(self.constraint), self.first, self.until]
        if isinstance(noise, NoiseTable):
            packed_rows = b"".join(_big_endian(row).tobytes() for row in noise.rows)
            return [*header, 0, [noise.points, len(noise.rows), packed_rows]]
        p, q = noise.staircase.ratio.as_integer_ratio()
        return [*header, 1, [_set_bytes(noise.likely), noise.staircase.vertices, p, q, noise.low, noise.high]]

    @classmethod
    def decode(cls, payload: bytes) -> Self:
        """Parse a table's message; errors as for any message."""
        version, number, constraint, first, until, kind, body = read_row(cls.unpack(payload), cls.wire, "message")
        noise: Noise = _read_staircase(body) if kind else _read_noise_table(body)
        return cls(version, number, constraint, first, until, noise)

    @property
    def text(self) -> str:
        """The table as a policy carries it: base64 of the message."""
        return base64.b64encode(self.encode()).decode()

    @classmethod
    def of_text(cls, text: str) -> Self:
        """Parse the text of a table that a policy carries; the FrameError says what is wrong."""
        try:
            return cls.decode(base64.b64decode(text, validate=True))
        except ValueError:
            raise FrameError("no base64") from None


def _read_noise_table(table_fields: Any) -> NoiseTable:
    points, row_count, packed_rows = read_row(table_fields, _TABLE_OF_POINTS, "weights")
    row_bytes = 4 * (len(points) - 1)
    check_binary(packed_rows, row_count * row_bytes, row_count * row_bytes, "rows")
    rows = []
    for start in range(0, len(packed_rows), row_bytes):
        row = array("I")
        row.frombytes(packed_rows[start : start + row_bytes])
        rows.append(_big_endian(row))
    return NoiseTable(tuple(rows), points)


def _read_staircase(staircase_fields: Any) -> StaircaseNoise:
    likely, corners, p, q, low, high = read_row(staircase_fields, _STAIRCASE, "staircase")
    check_integer(p, 1, q - 1, "p")
    return StaircaseNoise(int.from_bytes(likely, "little"), Staircase(corners, Fraction(p, q)), low, high)


def _set_bytes(state_set: int) -> bytes:
    return state_set.to_bytes((state_set.bit_length() + 7) // 8, "little")


def _big_endian(row: Sequence[int]) -> "array[int]":
    big_endian = array("I", row)
    if sys.byteorder == "little":
        big_endian.byteswap()
    return big_endian
