"""Emission tables: the only randomised mechanism a device runs, as integers over 2^32.

A table is a set of exact rational probabilities, so a privacy guarantee is a statement about integers.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Self

from pydantic import model_validator

from contract._document import Document
from contract.discrete_laplace import SCALE

__all__ = ["SCALE", "EmissionTable"]

_MOST_SYMBOLS = 255


class EmissionTable(Document):
    """For each state, the cumulative thresholds that turn a uniform 32-bit word into a symbol.

    Given state x and word u, the symbol is the number of thresholds in rows[x] that are <= u.

    Attributes:
        rows: k rows of m - 1 strictly increasing thresholds in (0, 2^32): every cell has weight >= 1.
    """

    rows: tuple[tuple[int, ...], ...]

    @model_validator(mode="after")
    def _check(self) -> Self:
        if len(self.rows) < 2:
            raise ValueError(f"a table needs at least 2 states, got {len(self.rows)}")
        if len({len(row) for row in self.rows}) != 1:
            raise ValueError("every row of a table needs the same number of thresholds")
        if not 1 <= len(self.rows[0]) <= _MOST_SYMBOLS - 1:
            raise ValueError(f"a table needs 2 to {_MOST_SYMBOLS} symbols, got {len(self.rows[0]) + 1}")
        for state, row in enumerate(self.rows):
            for symbol, (low, high) in enumerate(pairwise((0, *row, SCALE))):
                _check_cell(state, symbol, high - low)
        return self

    @property
    def states(self) -> int:
        """The number of states k."""
        return len(self.rows)

    @property
    def symbols(self) -> int:
        """The number of symbols m."""
        return len(self.rows[0]) + 1

    @property
    def threshold0(self) -> int:
        """Pr(symbol 1 given state 0) * 2^32, of a 2x2 table."""
        return SCALE - self._binary_row(0)

    @property
    def threshold1(self) -> int:
        """Pr(symbol 0 given state 1) * 2^32, of a 2x2 table."""
        return self._binary_row(1)

    def _binary_row(self, state: int) -> int:
        if (self.states, self.symbols) != (2, 2):
            raise ValueError(f"only a 2x2 table has two flip thresholds; this one is {self.states}x{self.symbols}")
        return self.rows[state][0]

    def weights(self) -> tuple[tuple[int, ...], ...]:
        """Return Pr(symbol given state) * 2^32 as k rows of m integers, each row summing to 2^32."""
        return tuple(tuple(high - low for low, high in pairwise((0, *row, SCALE))) for row in self.rows)

    @classmethod
    def binary(cls, threshold0: int, threshold1: int) -> EmissionTable:
        """Build binary randomised response from its two flip probabilities.

        Args:
            threshold0: rho0 * 2^32, where rho0 = Pr(symbol 1 given state 0).
            threshold1: rho1 * 2^32, where rho1 = Pr(symbol 0 given state 1).

        Returns:
            The 2x2 table.

        Raises:
            pydantic.ValidationError: A threshold is not inside (0, 2^32).
        """
        return cls(rows=((SCALE - threshold0,), (threshold1,)))

    @classmethod
    def randomised_response(cls, states: int, flip_weight: int) -> EmissionTable:
        """Build k-ary randomised response: every wrong symbol has the same weight.

        Args:
            states: k >= 2, the number of states and of symbols.
            flip_weight: Pr(symbol z given state x) * 2^32 for each z != x; the true state keeps the rest.

        Returns:
            The k x k table.

        Raises:
            pydantic.ValidationError: A cell would have no weight left.
        """
        keep = SCALE - (states - 1) * flip_weight
        weights = [[keep if z == x else flip_weight for z in range(states)] for x in range(states)]
        return cls(rows=tuple(_thresholds(row) for row in weights))


def _thresholds(weights: list[int]) -> tuple[int, ...]:
    """Return the m - 1 running totals of m cell weights."""
    return tuple(sum(weights[: symbol + 1]) for symbol in range(len(weights) - 1))


def _check_cell(state: int, symbol: int, weight: int) -> None:
    """Refuse a cell without weight; source: docs/privacy.md, "Emission tables"."""
    if weight < 1:
        raise ValueError(
            f"state {state} can never emit symbol {symbol} (weight {weight} of 2^32): a symbol that a state "
            "can never emit would reveal with certainty that the state was another one; "
            "thresholds must increase strictly within (0, 2^32)"
        )
