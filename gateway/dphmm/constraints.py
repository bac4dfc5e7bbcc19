"""Which states an adversary holds possible: reachable sets, their schedule, and delta-location sets.

Reachability is boolean. Whether a probability is above 0 in floating point is another question: products of small
numbers underflow, and a state that is possible would seem not to be.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from gateway.dphmm.graphs import BoolArray, GraphError, IntArray, lattice

__all__ = ["Schedule", "delta_set", "schedule", "successors", "surrogates"]


class Schedule(NamedTuple):
    """The constraint sets of all ticks: a run-in, then a cycle for ever.

    Attributes:
        constraints: C_0, C_1, .., each N booleans; the last one is followed by constraints[start].
        start: first tick of the cycle.
    """

    constraints: tuple[BoolArray, ...]
    start: int

    @property
    def period(self) -> int:
        """Ticks of the cycle; 1 if the constraint settles."""
        return len(self.constraints) - self.start

    def at(self, tick: int) -> BoolArray:
        """C_tick, for any tick from 0 on."""
        return self.constraints[self.position(tick)]

    def position(self, tick: int) -> int:
        """The position of C_tick among `constraints`, which may index tables made for them."""
        if tick < 0:
            raise GraphError(f"a schedule starts at tick 0, got {tick}")
        return tick if tick < self.start else self.start + (tick - self.start) % self.period


def successors(constraint: BoolArray, transition: ArrayLike) -> BoolArray:
    """C_{t+1}: the states that can follow from a state of C_t.

    Args:
        constraint: N booleans.
        transition: N x N; a step is possible if its entry is above 0.

    Returns:
        N booleans.
    """
    possible = np.asarray(transition) > 0
    return np.asarray(possible[constraint].any(axis=0), dtype=np.bool_)


def schedule(initial: BoolArray, transition: ArrayLike, *, longest: int = 100_000) -> Schedule:
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
    possible: BoolArray = np.asarray(transition) > 0
    current = np.asarray(initial, dtype=np.bool_)
    seen: dict[bytes, int] = {}
    sets: list[BoolArray] = []
    while (key := np.packbits(current).tobytes()) not in seen:
        if not current.any():
            raise GraphError(f"no state is possible at tick {len(sets)}: every state needs a successor")
        if len(sets) >= longest:
            raise GraphError(f"the constraint sets do not repeat within {longest} ticks")
        seen[key] = len(sets)
        sets.append(current)
        current = successors(current, possible)
    return Schedule(tuple(sets), seen[key])


def delta_set(belief: ArrayLike, delta: float) -> BoolArray:
    """The delta-location set: all states but the least likely ones, whose mass together is at most delta.

    It depends on the belief, hence on what was released. What is left out stays in the belief: a state outside is
    answered for by its surrogate, and never has its probability set to 0.

    Args:
        belief: N probabilities.
        delta: 0 <= delta < 1. With delta = 0 states of probability 0 are dropped, which underflow may have caused;
            intersect with `successors` for reachability instead.

    Returns:
        N booleans, never all false. Of equally likely states the highest index goes first.

    Raises:
        GraphError: delta is out of range, or the belief is not a distribution.
    """
    law = np.asarray(belief, dtype=np.float64)
    if law.ndim != 1 or not np.all(law >= 0.0) or not abs(math.fsum(law) - 1.0) < 1e-6:
        raise GraphError("a belief is a list of probabilities that sum to 1")
    if not 0.0 <= delta < 1.0:
        raise GraphError(f"delta must be at least 0 and below 1, got {delta}")
    kept = np.ones(len(law), dtype=np.bool_)
    dropped: list[float] = []
    for state in sorted(range(len(law)), key=lambda state: (law[state], -state))[:-1]:
        dropped.append(float(law[state]))
        if math.fsum(dropped) > delta:
            break
        kept[state] = False
    return kept


def surrogates(coordinates: ArrayLike, constraint: BoolArray) -> IntArray:
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
    away = points[:, None, :] - points[None, inside, :]
    nearest = inside[np.argmin(np.sum(away * away, axis=2), axis=1)]  # argmin takes the first of equals
    return np.where(constraint, np.arange(len(points)), nearest).astype(np.int64)
