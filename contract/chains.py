"""Classes of Markov chains: what a guarantee assumes about how readings depend on one another."""

from __future__ import annotations

import math
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from contract._document import Document

__all__ = ["BinaryChains", "BoundedChains", "ChainClass", "FiniteChains", "odds_ratio"]

_SUM_TOLERANCE = 1e-9
_ODDS_TOLERANCE = 1e-9
_MOST_KNOWN_STATES = 8


class BinaryChains(Document):
    """Every two-state chain [[1-q, q], [r, 1-r]] with q and r in closed intervals, started stationary.

    Attributes:
        q: Lowest and highest Pr(next state 1 given state 0), inside (0, 1).
        r: Lowest and highest Pr(next state 0 given state 1), inside (0, 1).
    """

    kind: Literal["binary"] = "binary"
    q: tuple[float, float]
    r: tuple[float, float]

    @model_validator(mode="after")
    def _check(self) -> Self:
        for name, (low, high) in (("q", self.q), ("r", self.r)):
            if not 0.0 < low <= high < 1.0:
                raise ValueError(f"{name} must be an interval [low, high] strictly inside (0, 1), got [{low}, {high}]")
        return self

    @property
    def states(self) -> int:
        """The number of states, 2."""
        return 2


class BoundedChains(Document):
    """Every k-state chain, from any start and changing over time, whose steps have bounded odds ratios.

    Attributes:
        states: k, the number of states.
        odds_ratio: Bound >= 1 on P[x,y] P[x',y'] / (P[x,y'] P[x',y]) for all x, x', y, y' at every step.
        transition: A typical member, k x k; used for estimation only, never for privacy.
    """

    kind: Literal["bounded"] = "bounded"
    states: Annotated[int, Field(ge=2, le=255)]
    odds_ratio: Annotated[float, Field(ge=1.0)]
    transition: tuple[tuple[float, ...], ...] | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.transition is None:
            return self
        if len(self.transition) != self.states:
            raise ValueError(f"transition has {len(self.transition)} rows, not {self.states}")
        actual = odds_ratio(self.transition)
        if actual > self.odds_ratio * (1.0 + _ODDS_TOLERANCE):
            raise ValueError(f"transition has odds ratio {actual:.12g}, above the {self.odds_ratio:.12g} of its class")
        return self


class FiniteChains(Document):
    """One of a few known chains, started stationary.

    Attributes:
        transitions: 1 to 8 transition matrices, k x k with 2 <= k <= 8; a step may be impossible, but every state
            must be reached from every other in time.
    """

    kind: Literal["finite"] = "finite"
    transitions: Annotated[tuple[tuple[tuple[float, ...], ...], ...], Field(min_length=1, max_length=8)]

    @model_validator(mode="after")
    def _check(self) -> Self:
        if not 2 <= self.states <= _MOST_KNOWN_STATES or len({len(matrix) for matrix in self.transitions}) != 1:
            raise ValueError(f"transitions must all be k x k, with k from 2 to {_MOST_KNOWN_STATES}")
        for matrix in self.transitions:
            _check_stochastic(matrix, zeros=True)
            if not _irreducible(matrix):
                raise ValueError("a chain does not visit all its states for ever")
        return self

    @property
    def states(self) -> int:
        """The number of states k."""
        return len(self.transitions[0])


def _irreducible(transition: tuple[tuple[float, ...], ...]) -> bool:
    """Whether every state is reached from state 0, and state 0 from every state."""
    for turned in (transition, tuple(zip(*transition, strict=True))):
        reached, waiting = {0}, [0]
        while waiting:
            fresh = {y for y, p in enumerate(turned[waiting.pop()]) if p > 0.0} - reached
            reached |= fresh
            waiting += fresh
        if len(reached) < len(transition):
            return False
    return True


ChainClass = Annotated[BinaryChains | BoundedChains | FiniteChains, Field(discriminator="kind")]
"""A class of chains as it appears in documents; the field `kind` tells which."""


def odds_ratio(transition: tuple[tuple[float, ...], ...]) -> float:
    """Return the largest odds ratio of a transition matrix, rounded up.

    Args:
        transition: k x k, positive, rows summing to 1 within 1e-9.

    Returns:
        max over x, x', y, y' of P[x,y] P[x',y'] / (P[x,y'] P[x',y]), at least 1.

    Raises:
        ValueError: The matrix is not square, positive and row-stochastic, or the ratio is not finite.
    """
    _check_stochastic(transition)
    worst = 1.0
    for i, row in enumerate(transition):
        for other in transition[i + 1 :]:
            if row == other:
                continue
            ratios = [a / b for a, b in zip(row, other, strict=True)]
            low, high = min(ratios), max(ratios)
            # Three roundings to nearest, each within 2^-53 relative; a subnormal quotient is refused below,
            # because rows that sum to 1 have another quotient near or above 1.
            worst = max(worst, high / low * (1.0 + 2.0**-50) if low > 0.0 else math.inf)
    if not worst < 1e300:
        raise ValueError("the odds ratio of the transition matrix is too large for a finite guarantee")
    return worst


def _check_stochastic(transition: tuple[tuple[float, ...], ...], *, zeros: bool = False) -> None:
    for x, row in enumerate(transition):
        if len(row) != len(transition):
            raise ValueError(f"transition row {x} has {len(row)} entries, not {len(transition)}")
        if not all(p > 0.0 or (zeros and p == 0.0) for p in row):
            raise ValueError(f"transition row {x} has an entry that is {'negative' if zeros else 'not positive'}")
        if abs(math.fsum(row) - 1.0) > _SUM_TOLERANCE:
            raise ValueError(f"transition row {x} sums to {math.fsum(row):.12g}, not 1")
