"""Noise as a device draws it from tables of integers over 2^32.

A table is a set of exact rational probabilities, so a privacy guarantee is a statement about integers. Its outputs are
symbols, or points of a measurement; a comparison of a uniform 32-bit word with a row decides (`fugu.core.noise`).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from fugu.contract.errors import length_error, range_error
from fugu.contract.measure_frames import Point
from fugu.contract.message import check_length

__all__ = ["MAX_POINTS", "MAX_TABLE_STATES", "SCALE", "NoiseTable", "check_dimensions"]


SCALE = 1 << 32
"""The number of values of one 32-bit random word."""
MAX_TABLE_STATES = 100
"""The most states of a table of points."""
MAX_POINTS = 1024
_MAX_SYMBOLS = 255


@dataclass(frozen=True, slots=True)
class NoiseTable:
    """For state x and a uniform 32-bit word u, the output is the number of thresholds in rows[x] that are <= u.

    Attributes:
        rows: k rows of m - 1 strictly increasing thresholds in (0, 2^32): every cell has weight >= 1. Other rows raise
            a ValueError for symbols, a FrameError for points.
        points: the m points that are the outputs, d integers each; empty if the outputs are symbols, 0..m-1.
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
    def flip_weights(self) -> tuple[int, int]:
        """Pr(symbol 1 given state 0) and Pr(symbol 0 given state 1), times 2^32; ValueError unless the table is 2x2."""
        if (self.states, self.symbols) != (2, 2):
            raise ValueError(f"only a 2x2 table has two flip thresholds; this one is {self.states}x{self.symbols}")
        return SCALE - self.rows[0][0], self.rows[1][0]

    @property
    def flips(self) -> tuple[tuple[str, str], ...]:
        """The flip probabilities rho0 and rho1 of a 2x2 table, each with its name, in words; empty for other tables."""
        if self.points or (self.states, self.symbols) != (2, 2):
            return ()
        names = ("rho0 = Pr(symbol 1 | state 0)", "rho1 = Pr(symbol 0 | state 1)")
        named_weights = zip(names, self.flip_weights, strict=True)
        return tuple((name, f"{weight / SCALE:.10f}  ({weight} of 2^32)") for name, weight in named_weights)

    def draw(self, state: int, word: int) -> int:
        """Return the index of the output for a state and a word that is uniform in 0..2^32-1."""
        return bisect_right(self.rows[state], word)

    def row_weights(self, state: int) -> tuple[int, ...]:
        """Return Pr(output given a state) * 2^32 of every output: m integers that sum to 2^32."""
        return tuple(high - low for low, high in pairwise((0, *self.rows[state], SCALE)))

    def weights(self) -> tuple[tuple[int, ...], ...]:
        """Return Pr(output given state) * 2^32 as k rows of m integers, each row summing to 2^32."""
        return tuple(self.row_weights(state) for state in range(self.states))

    @classmethod
    def binary(cls, flip_weight0: int, flip_weight1: int) -> NoiseTable:
        """Make a 2x2 table of the flip probabilities of states 0 and 1, times 2^32; ValueError outside (0, 2^32)."""
        return cls(((SCALE - flip_weight0,), (flip_weight1,)))

    @classmethod
    def randomised_response(cls, states: int, flip_weight: int) -> NoiseTable:
        """Make a table of k-ary randomised response: each wrong symbol has probability `flip_weight` / 2^32.

        ValueError if a cell has no weight.
        """
        true_weight = SCALE - (states - 1) * flip_weight
        weights = [[true_weight if z == x else flip_weight for z in range(states)] for x in range(states)]
        return cls(tuple(tuple(accumulate(row[:-1])) for row in weights))


def check_dimensions(points: tuple[Point, ...], name: str) -> None:
    """Refuse, by a FrameError, points of different dimensions."""
    for point in points:
        if len(point) != len(points[0]):
            raise length_error(f"{name} has {len(point)} dimensions beside {len(points[0])}")


def _check_symbols(table: NoiseTable) -> None:
    rows = table.rows
    if len(rows) < 2:
        raise ValueError(f"a table needs at least 2 states, got {len(rows)}")
    if len({len(row) for row in rows}) != 1:
        raise ValueError("every row of a table needs the same number of thresholds")
    if not 1 <= len(rows[0]) <= _MAX_SYMBOLS - 1:
        raise ValueError(f"a table needs 2 to {_MAX_SYMBOLS} symbols, got {len(rows[0]) + 1}")
    for state, weights in enumerate(table.weights()):
        for symbol, weight in enumerate(weights):
            if weight < 1:
                raise ValueError(
                    f"state {state} can never emit symbol {symbol} (weight {weight} of 2^32): the symbol would reveal "
                    "that the state was another one. Thresholds must increase strictly within (0, 2^32)"
                )


def _check_points(table: NoiseTable) -> None:
    check_length(table.points, 2, MAX_POINTS, "points")
    check_length(table.rows, 2, MAX_TABLE_STATES, "rows")
    check_dimensions(table.points, "a point")
    if len(set(table.points)) != len(table.points):
        raise range_error("a table names a point twice")
    for row in table.rows:
        if len(row) != len(table.points) - 1:
            raise length_error(f"{len(row)} thresholds for {len(table.points)} points")
        if any(low >= high for low, high in pairwise((0, *row, SCALE))):
            raise range_error("thresholds must increase strictly: an empty cell would reveal its state")
