"""Which states an adversary holds possible: constraint sets, their schedule, and delta-location sets.

Reachability is boolean. Whether a probability is above 0 in floating point is another question: products of small
numbers underflow, and a state that is possible would seem not to be.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from fugu.chains.arrays import Bools, Ints
from fugu.places.graphs import GraphError, lattice

__all__ = ["ConstraintSchedule", "delta_set", "schedule", "successors", "surrogates"]


class ConstraintSchedule(NamedTuple):
    """The constraint sets of all ticks: a run-in, then a cycle for ever.

    Attributes:
        constraints: C_0, C_1, .., each N booleans; the last one is followed by constraints[start].
        start: where in them the cycle begins: its first tick, if each is for one tick.
        ticks: the first tick of each, if they are for several.
    """

    constraints: tuple[Bools, ...]
    start: int
    ticks: tuple[int, ...] = ()

    @property
    def period(self) -> int:
        """Ticks of the cycle; 1 if the constraint converges."""
        return len(self.constraints) - self.start

    def first(self, position: int) -> int:
        """The first tick of a set."""
        return self.ticks[position] if self.ticks else position

    def at(self, tick: int) -> Bools:
        """C_tick, for any tick from 0 on."""
        return self.constraints[self.position(tick)]

    def position(self, tick: int) -> int:
        """The position of C_tick among `constraints`, which may index tables made for them."""
        if tick < 0:
            raise GraphError(f"a schedule starts at tick 0, got {tick}")
        return tick if tick < self.start else self.start + (tick - self.start) % self.period


def successors(constraint: Bools, transition: ArrayLike) -> Bools:
    """C_{t+1}, N booleans: the states that can follow from one of C_t; a step is possible if its entry is above 0."""
    return np.asarray((np.asarray(transition) > 0)[constraint].any(axis=0), dtype=np.bool_)


def schedule(initial: Bools, transition: ArrayLike, *, longest: int = 100_000) -> ConstraintSchedule:
    """All constraint sets of a stream, known before it starts.

    They do not depend on what is released as long as every hull keeps a finite factor (theorem 6.3): then every
    state of C_t stays possible after every output.

    Args:
        initial: C_0, N booleans, at least one true: the states possible at the first tick.
        transition: N x N; every state of the schedule needs a successor.
        longest: ticks to look for the cycle; unions of periodic parts can make it long.

    Returns:
        The run-in and the cycle.

    Raises:
        GraphError: A set is empty, or no cycle shows within `longest` ticks.
    """
    possible: Bools = np.asarray(transition) > 0
    current = np.asarray(initial, dtype=np.bool_)
    seen: dict[bytes, int] = {}
    sets: list[Bools] = []
    while (key := np.packbits(current).tobytes()) not in seen:
        if not current.any():
            raise GraphError(f"no state is possible at tick {len(sets)}: every state needs a successor")
        if len(sets) >= longest:
            raise GraphError(f"the constraint sets do not repeat within {longest} ticks")
        seen[key] = len(sets)
        sets.append(current)
        current = successors(current, possible)
    return ConstraintSchedule(tuple(sets), seen[key])


def delta_set(belief: ArrayLike, delta: float) -> Bools:
    """The delta-location set: all states but the least likely ones, whose mass together is at most delta.

    It depends on the belief, hence on what was released. What is left out stays in the belief: a state outside is
    answered for by its surrogate, and never has its probability set to 0.

    Args:
        delta: 0 <= delta < 1. With delta = 0 states of probability 0 are dropped, which underflow may have caused;
            intersect with `successors` for reachability instead.

    Returns:
        N booleans, never all false. Of equally likely states the highest index goes first.

    Raises:
        GraphError: delta is out of range, or the belief is not a distribution.
    """
    distribution = np.asarray(belief, dtype=np.float64)
    if distribution.ndim != 1 or not (distribution >= 0.0).all() or not abs(distribution.sum() - 1.0) < 1e-6:
        raise GraphError("a belief is a list of probabilities that sum to 1")
    if not 0.0 <= delta < 1.0:
        raise GraphError(f"delta must be at least 0 and below 1, got {delta}")
    order = len(distribution) - 1 - np.argsort(distribution[::-1], kind="stable")  # of equals the highest index first
    rising = distribution[order]
    # quick sums are good to far better than 1e-9; what they leave open is decided by correctly rounded ones, which
    # never fall as terms are added
    low, high = np.searchsorted(np.cumsum(rising[:-1]), (delta - 1e-9, delta + 1e-9), side="right").tolist()
    dropped = bisect_right(range(1, len(distribution)), delta, low, high, key=lambda count: math.fsum(rising[:count]))
    likely = np.ones(len(distribution), dtype=np.bool_)
    likely[order[:dropped]] = False
    return likely


def surrogates(coordinates: ArrayLike, constraint: Bools) -> Ints:
    """The public map of every state to the state whose row it uses.

    Args:
        coordinates: N x d, as for `lattice`.
        constraint: N booleans, at least one true.

    Returns:
        N states of the constraint set: itself inside it, else the nearest one, ties to the lowest index.

    Raises:
        GraphError: The constraint set is empty.
    """
    points = lattice(coordinates)
    inside = np.flatnonzero(constraint)
    if not len(inside):
        raise GraphError("no state is possible, so none can stand in for another")
    surrogate = np.arange(len(points))
    outside = np.flatnonzero(~constraint)
    if not len(outside):
        return surrogate
    # |a - b|^2 less the |a|^2 that all share, in floating point, where these whole numbers are exact
    seen, near = points[outside].astype(np.float64), points[inside].astype(np.float64)
    away = np.sum(near * near, axis=1) - 2.0 * seen @ near.T
    surrogate[outside] = inside[np.argmin(away, axis=1)]  # argmin takes the first of equals
    return surrogate.astype(np.int64)
