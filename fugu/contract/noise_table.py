"""Noise as a device draws it: tables of integers over 2^32, and discrete Laplace noise.

A table is a set of exact rational probabilities, so a privacy guarantee is a statement about integers. Its outputs are
symbols, or points of a measurement; either way one uniform 32-bit word against one row decides. A tick without a usable
reading takes its row by one more word, whatever the state is: it has the loss 0 if which ticks are missing does not
depend on the readings (docs/proofs/states-and-ticks.md, "Missing readings").

Exact discrete Laplace noise: P(n) proportional to exp(-|n| / s) on the integers, for a rational scale s. Only integers
are drawn, compared and divided: there is no rounding whose traces could tell noise and count apart. Source: Canonne,
Kamath, Steinke, "The Discrete Gaussian for Differential Privacy" (2020), algorithms 1 and 2.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from fugu.contract.errors import FrameError, Reason
from fugu.contract.measure_frames import Point
from fugu.contract.message import length

__all__ = [
    "MAX_POINTS",
    "MAX_TABLE_STATES",
    "SCALE",
    "NoiseTable",
    "check_dimensions",
    "discrete_laplace",
    "uniform_below",
]


SCALE = 1 << 32
"""The number of values of one 32-bit random word."""


def uniform_below(entropy: Callable[[memoryview], None]) -> Callable[[int], int]:
    """Return draw(below), uniform in range(below) for below >= 1, of a function that fills a buffer with random bytes.

    As few bits as can hold the largest value are taken; a number that is too large is thrown away, never folded back.
    The bytes are uniform and independent, and overwritten before draw returns.
    """

    def draw(below: int) -> int:
        if below < 1:
            raise ValueError(f"no integer is below {below} and at least 0")
        bits = (below - 1).bit_length()
        mask = (1 << bits) - 1
        buffer = bytearray((bits + 7) // 8)
        value = 0
        while bits:
            entropy(memoryview(buffer))
            value = int.from_bytes(buffer, "little") & mask
            if value < below:
                break
        buffer[:] = bytes(len(buffer))
        return value

    return draw


def discrete_laplace(draw: Callable[[int], int], numerator: int, denominator: int) -> int:
    """Draw an integer n with probability (1 - a) / (1 + a) * a^|n|, where a = exp(-1/s), s = numerator / denominator.

    A count of sensitivity 1 that is released with it has the loss 1/s. ValueError: the scale is not positive.
    Source: algorithm 2 with t = numerator and s = denominator. A remainder below t is kept with probability
    exp(-remainder / t) and a quotient counts successes of exp(-1), so t * quotient + remainder is geometric with ratio
    exp(-1/t); its quotient by s is geometric with ratio exp(-s/t). A sign makes that two-sided, once minus zero is
    refused.
    """
    if numerator < 1 or denominator < 1:
        raise ValueError(f"the scale {numerator}/{denominator} is not positive")
    while True:
        remainder = draw(numerator)
        if not _happens(draw, remainder, numerator):
            continue
        quotient = 0
        while _happens(draw, 1, 1):
            quotient += 1
        size = (remainder + numerator * quotient) // denominator
        negative = draw(2) == 1
        if not (negative and size == 0):
            return -size if negative else size


def _happens(draw: Callable[[int], int], numerator: int, denominator: int) -> bool:
    """True if an event of probability exp(-numerator/denominator) happens, for a fraction x in 0..1.

    Source: algorithm 1. The first k at which an event of probability x/k fails is odd with probability 1 - x + x^2/2! -
    ... = exp(-x).
    """
    tries = 1
    while draw(denominator * tries) < numerator:
        tries += 1
    return tries % 2 == 1


MAX_TABLE_STATES = 100
"""Of a table of points."""
MAX_POINTS = 1024
_MOST_SYMBOLS = 255


@dataclass(frozen=True, slots=True)
class NoiseTable:
    """For state x and a uniform 32-bit word u, the output is the number of thresholds in rows[x] that are <= u.

    Attributes:
        rows: k rows of m - 1 strictly increasing thresholds in (0, 2^32): every cell has weight >= 1. A table of
            symbols of another shape is a ValueError, one of points a FrameError.
        points: the m points that are the outputs, d integers each; empty if they are symbols, 0..m-1.
    """

    rows: tuple[Sequence[int], ...]
    points: tuple[Point, ...] = ()

    def __post_init__(self) -> None:
        (_check_points if self.points else _check_symbols)(self)

    @property
    def states(self) -> int:
        """The number of states k."""
        return len(self.rows)

    @property
    def symbols(self) -> int:
        """The number of symbols, or of points, m."""
        return len(self.rows[0]) + 1

    @property
    def thresholds(self) -> tuple[int, int]:
        """Pr(symbol 1 given state 0) and Pr(symbol 0 given state 1), times 2^32, of a 2x2 table."""
        if (self.states, self.symbols) != (2, 2):
            raise ValueError(f"only a 2x2 table has two flip thresholds; this one is {self.states}x{self.symbols}")
        return SCALE - self.rows[0][0], self.rows[1][0]

    @property
    def flips(self) -> tuple[tuple[str, str], ...]:
        """The names and values of rho0 and rho1 of a 2x2 table, as decimals and integers; none of other tables."""
        if self.points or (self.states, self.symbols) != (2, 2):
            return ()
        names = ("rho0 = Pr(symbol 1 | state 0)", "rho1 = Pr(symbol 0 | state 1)")
        return tuple(
            (name, f"{flip / SCALE:.10f}  ({flip} of 2^32)") for name, flip in zip(names, self.thresholds, strict=True)
        )

    def draw(self, state: int, word: int) -> int:
        """The number of the output for a state and a word that is uniform in 0..2^32-1."""
        return bisect_right(self.rows[state], word)

    def row_weights(self, state: int) -> tuple[int, ...]:
        """Pr(output given a state) * 2^32 of every output: m integers that sum to 2^32."""
        return tuple(high - low for low, high in pairwise((0, *self.rows[state], SCALE)))

    def weights(self) -> tuple[tuple[int, ...], ...]:
        """Return Pr(output given state) * 2^32 as k rows of m integers, each row summing to 2^32."""
        return tuple(self.row_weights(state) for state in range(self.states))

    @classmethod
    def binary(cls, threshold0: int, threshold1: int) -> NoiseTable:
        """The table of the flip probabilities of states 0 and 1, times 2^32; ValueError unless inside (0, 2^32)."""
        return cls(((SCALE - threshold0,), (threshold1,)))

    @classmethod
    def randomised_response(cls, states: int, flip_weight: int) -> NoiseTable:
        """k-ary randomised response: `flip_weight` / 2^32 for each wrong symbol; ValueError if a cell has no weight."""
        keep = SCALE - (states - 1) * flip_weight
        weights = [[keep if z == x else flip_weight for z in range(states)] for x in range(states)]
        return cls(tuple(tuple(accumulate(row[:-1])) for row in weights))


def check_dimensions(points: tuple[Point, ...], name: str) -> None:
    """Refuse points of different dimensions with a FrameError."""
    for point in points:
        if len(point) != len(points[0]):
            raise FrameError(f"{name} has {len(point)} dimensions beside {len(points[0])}", Reason.WRONG_LENGTH)


def _check_symbols(table: NoiseTable) -> None:
    rows = table.rows
    if len(rows) < 2:
        raise ValueError(f"a table needs at least 2 states, got {len(rows)}")
    if len({len(row) for row in rows}) != 1:
        raise ValueError("every row of a table needs the same number of thresholds")
    if not 1 <= len(rows[0]) <= _MOST_SYMBOLS - 1:
        raise ValueError(f"a table needs 2 to {_MOST_SYMBOLS} symbols, got {len(rows[0]) + 1}")
    for state, weights in enumerate(table.weights()):
        for symbol, weight in enumerate(weights):
            if weight < 1:
                raise ValueError(
                    f"state {state} can never emit symbol {symbol} (weight {weight} of 2^32): a symbol that a state "
                    "can never emit would reveal with certainty that the state was another one; "
                    "thresholds must increase strictly within (0, 2^32)"
                )


def _check_points(table: NoiseTable) -> None:
    length(table.points, 2, MAX_POINTS, "points")
    length(table.rows, 2, MAX_TABLE_STATES, "rows")
    check_dimensions(table.points, "a point")
    if len(set(table.points)) != len(table.points):
        raise FrameError("a table names a point twice", Reason.OUT_OF_RANGE)
    for row in table.rows:
        if len(row) != len(table.points) - 1:
            raise FrameError(f"{len(row)} thresholds for {len(table.points)} points", Reason.WRONG_LENGTH)
        if any(low >= high for low, high in pairwise((0, *row, SCALE))):
            raise FrameError(
                "thresholds must increase strictly: an empty cell would reveal its state", Reason.OUT_OF_RANGE
            )
