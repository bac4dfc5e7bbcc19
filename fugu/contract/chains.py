"""Classes of Markov chains: what a guarantee assumes about how readings depend on one another."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from fugu.contract._document import Document
from fugu.contract.topics import NAME_PATTERN

__all__ = ["BinaryChains", "BoundedChains", "ChainClass", "FiniteChains", "JointChains", "Shown", "odds_ratio"]

_SUM_TOLERANCE = 1e-9
_ODDS_TOLERANCE = 1e-9
_MOST_KNOWN_STATES = 8
_MOST_JOINT_STATES = 12
_ONE_NAME = NAME_PATTERN.strip("^$")


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
        if not 2 <= self.states <= _MOST_KNOWN_STATES:
            raise ValueError(f"transitions must all be k x k, with k from 2 to {_MOST_KNOWN_STATES}")
        _check_known(self.transitions, self.states)
        return self

    @property
    def states(self) -> int:
        """The number of states k."""
        return len(self.transitions[0])


def _check_known(transitions: tuple[tuple[tuple[float, ...], ...], ...], states: int) -> None:
    if not transitions or any(len(matrix) != states for matrix in transitions):
        raise ValueError(f"transitions must be given, and all be {states} x {states}")
    for matrix in transitions:
        _check_stochastic(matrix, zeros=True)
        if not _irreducible(matrix):
            raise ValueError("a chain does not visit all its states for ever")


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


class Shown(Document):
    """A stream whose states the states of a joint chain show.

    Attributes:
        name: "stream", of the device that has the policy, or "device/stream".
        states: how many it has.
        rate: the most, in nats, that all releases of the stream together tell of any two of its states at one tick.
    """

    name: Annotated[str, Field(pattern=f"^({_ONE_NAME}/)?{_ONE_NAME}$")]
    states: Annotated[int, Field(ge=2, le=255)]
    rate: Annotated[float, Field(gt=0.0)]


class JointChains(Document):
    """Chains whose states show the states of one or several streams: streams that move together, chains of order 2.

    Guarantees are for all that the named streams publish together, each of them with a policy of this class. The rates
    are what every device can hold its own streams to, whatever the others do. Chains of order 2 are chains of pairs of
    states, the one before and the present one, which each show the present one.

    Attributes:
        streams: which, each by name, and with what it may tell per tick.
        period_us: of every stream's clock, in microseconds: tick t of the chain is what each reads in the t-th period.
        shows: for each state of the chain the state of every stream, in their order.
        transitions: known chains, up to 8 of up to 12 states, of which one is true, started stationary; a step may be
            impossible, but every state must be reached from every other in time. With `odds_ratio`, at most one typical
            member, used for estimation only.
        odds_ratio: instead of known chains, a bound as of `BoundedChains`, for up to 255 states.
    """

    kind: Literal["joint"] = "joint"
    streams: Annotated[tuple[Shown, ...], Field(min_length=1, max_length=8)]
    period_us: Annotated[int, Field(ge=100)]
    shows: Annotated[tuple[tuple[int, ...], ...], Field(min_length=2, max_length=255)]
    transitions: Annotated[tuple[tuple[tuple[float, ...], ...], ...], Field(max_length=8)] = ()
    odds_ratio: Annotated[float, Field(ge=1.0)] | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        names = [stream.name for stream in self.streams]
        if len(set(names)) != len(names) or len({"/" in name for name in names}) != 1:
            raise ValueError("streams must have different names, all with their device or all without")
        if any(len(row) != len(names) for row in self.shows):
            raise ValueError(f"each state of the chain must show one state of each of the {len(names)} streams")
        for stream, column in zip(self.streams, zip(*self.shows, strict=True), strict=True):
            if set(column) != set(range(stream.states)):
                raise ValueError(f"all states of stream {stream.name}, 0 to {stream.states - 1}, must be shown")
        if self.odds_ratio is not None:
            if len(self.transitions) > 1:
                raise ValueError("beside an odds ratio there is at most one typical member")
            BoundedChains(states=self.states, odds_ratio=self.odds_ratio, transition=next(iter(self.transitions), None))
            return self
        if self.states > _MOST_JOINT_STATES:
            raise ValueError(
                f"chains of more than {_MOST_JOINT_STATES} states are declared by their odds_ratio, not known"
            )
        _check_known(self.transitions, self.states)
        return self

    @property
    def states(self) -> int:
        """The number of states of the chain."""
        return len(self.shows)

    def column(self, device: str, stream: str) -> int:
        """Which of the streams one of a device is.

        Raises:
            ValueError: it is none of them.
        """
        for number, shown in enumerate(self.streams):
            if shown.name in (stream, f"{device}/{stream}"):
                return number
        names = ", ".join(shown.name for shown in self.streams)
        raise ValueError(f"the class of chains is of the streams {names}, not of {device}/{stream}")

    def joint_rates(self, rates: Sequence[float]) -> list[list[float]]:
        """The most that a tick tells of any two states of the chain.

        Args:
            rates: of each stream, in nats.

        Returns:
            For each state and each other the sum over the streams that they show in different states, rounded up.
        """
        return [
            [_sum_above([rate for rate, a, b in zip(rates, row, other, strict=True) if a != b]) for other in self.shows]
            for row in self.shows
        ]


def _sum_above(values: Sequence[float]) -> float:
    return math.nextafter(math.fsum(values), math.inf) if len(values) > 1 else math.fsum(values)


ChainClass = Annotated[BinaryChains | BoundedChains | FiniteChains | JointChains, Field(discriminator="kind")]
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
