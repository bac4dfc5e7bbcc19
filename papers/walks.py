"""A hidden walk over measured places, and what a policy of noisy points costs: simulated with certified tables."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from fugu.chains.arrays import Bools, Floats, Ints
from fugu.chains.tracking import reachable
from fugu.places.graphs import GraphError, delta_set, lattice, surrogates
from fugu.places.hull import complete_hull
from fugu.places.protection import Protection, degree_of_protection, protect_likely
from fugu.places.tables import MOST_OUTPUTS, TableWeights, build_table
from papers.graphs import within_radius

__all__ = [
    "Schedule",
    "Series",
    "Step",
    "Walk",
    "evaluate",
    "fallback_table",
    "grid",
    "overall",
    "paths",
    "schedule",
    "step_of",
    "table_of",
    "walk_over",
]


class Walk(NamedTuple):
    """A hidden state that moves over measured places.

    Attributes:
        values: f, N x d.
        transition: N x N.
        initial: N booleans: the states that are possible at tick 0, all as likely.
    """

    values: Ints
    transition: Floats
    initial: Bools


class Step(NamedTuple):
    """Facts while some states are possible and some have rows of their own: hull and degrees."""

    protection: Protection
    degrees: Ints


class Series(NamedTuple):
    """Costs of a policy, tick by tick.

    Attributes:
        possible: likely states, averaged over the runs.
        protection: degree of protection, averaged over the possible states and the runs.
        released: root mean square error of the released point.
        estimated: of the forward filter's posterior mean.
    """

    possible: Floats
    protection: Floats
    released: Floats
    estimated: Floats


class Schedule(NamedTuple):
    """The constraint sets of all ticks: a run-in, then a cycle for ever.

    C_0, C_1, .. are N booleans each; the last one is followed by constraints[start].
    """

    constraints: tuple[Bools, ...]
    start: int

    @property
    def period(self) -> int:
        """Ticks of the cycle; 1 if the constraint converges."""
        return len(self.constraints) - self.start

    def at(self, tick: int) -> Bools:
        """C_tick, for any tick from 0 on."""
        return self.constraints[self.position(tick)]

    def position(self, tick: int) -> int:
        """The position of C_tick among `constraints`, which may index tables made for them."""
        if tick < 0:
            raise GraphError(f"a schedule starts at tick 0, got {tick}")
        return tick if tick < self.start else self.start + (tick - self.start) % self.period


def schedule(initial: Bools, transition: ArrayLike, *, longest: int = 100_000) -> Schedule:
    """The run-in and the cycle of all constraint sets of a stream, known before it starts.

    They do not depend on what is released as long as every hull keeps a finite factor (theorem 6.3). Then every state
    of C_t stays possible after every output. Unions of periodic parts can make the cycle long.

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
        current = reachable(current, possible)
    return Schedule(tuple(sets), seen[key])


def grid(rows: int, columns: int) -> Ints:
    """The cells of a grid, row by row."""
    return lattice(np.indices((rows, columns)).reshape(2, -1).T)


def walk_over(values: Ints, reach: float, start: int) -> Walk:
    """A walk from one state: a step to itself or to any state within a radius is as likely as any other."""
    steps = within_radius(values, reach) | np.eye(len(values), dtype=np.bool_)
    initial = np.asarray(np.arange(len(values)) == start)
    return Walk(values, steps / steps.sum(axis=1, keepdims=True), initial)


def step_of(values: Ints, graph: Bools, possible: Bools, likely: Bools) -> Step:
    """The protectable graph of a tick, and how many states protect each."""
    protection = protect_likely(values, graph, possible, likely)
    return Step(protection, degree_of_protection(protection.hull, values[surrogates(values, likely)], possible))


def fallback_table(values: Ints, epsilon: float, *, most_outputs: int = MOST_OUTPUTS) -> TableWeights:
    """The table for ticks whose own table is missing: it protects every pair, for every graph and constraint set."""
    everywhere = np.ones(len(values), dtype=np.bool_)
    return build_table(complete_hull(values), values, everywhere, epsilon, most_outputs=most_outputs)


def table_of(values: Ints, step: Step, likely: Bools, epsilon: float) -> TableWeights:
    """The table that the device draws from."""
    if not np.any(values[likely] != values[likely][0]):
        return fallback_table(values, epsilon)
    return build_table(step.protection.hull, values, likely, epsilon)


def paths(walk: Walk, runs: int, ticks: int, generator: np.random.Generator) -> Ints:
    """True states of simulated runs, runs x ticks."""
    rising = np.cumsum(walk.transition, axis=1)
    states = np.empty((runs, ticks), dtype=np.int64)
    states[:, 0] = generator.choice(np.flatnonzero(walk.initial), runs)
    for tick in range(1, ticks):
        drawn = generator.random(runs)[:, None]
        following = np.sum(rising[states[:, tick - 1]] <= drawn, axis=1)
        states[:, tick] = np.minimum(following, len(rising) - 1)
    return states


def evaluate(walk: Walk, graph: Bools, epsilon: float, truth: Ints, delta: float = 0.0) -> Series:
    """Simulate a policy: draw from certified tables, filter, and compare with the truth.

    Args:
        graph: the policy's, N x N.
        epsilon: of a point.
        truth: true states, runs x ticks.
        delta: above 0, every run has a delta-location set of its own, and so a table.
    """
    generator = np.random.default_rng(7)
    plan = schedule(walk.initial, walk.transition)
    runs, ticks = truth.shape
    belief = np.tile(walk.initial / walk.initial.sum(), (runs, 1))
    sums = np.zeros((4, ticks))
    for tick in range(ticks):
        for group in np.arange(runs)[:, None] if delta else [np.arange(runs)]:
            possible = plan.at(tick)
            likely = delta_set(belief[group[0]], delta) & possible if delta else possible
            step = step_of(walk.values, graph, possible, likely)
            table = table_of(walk.values, step, likely, epsilon)
            rising = np.cumsum(table.weights, axis=1)[truth[group, tick]]
            outputs = np.sum(rising <= generator.integers(0, rising[:, -1:]), axis=1)
            belief[group] *= table.weights[:, outputs].T
            belief[group] /= belief[group].sum(axis=1, keepdims=True)
            true = walk.values[truth[group, tick]]
            sums[0, tick] += len(group) * np.count_nonzero(likely)
            sums[1, tick] += len(group) * step.degrees[possible].mean()
            sums[2, tick] += np.sum((table.outputs[outputs] - true) ** 2)
            sums[3, tick] += np.sum((belief[group] @ walk.values - true) ** 2)
        belief = belief @ walk.transition
    sums /= runs
    return Series(sums[0], sums[1], np.sqrt(sums[2]), np.sqrt(sums[3]))


def overall(series: Series, first: int) -> tuple[float, float, float]:
    """The mean degree of protection and the root mean square errors from some tick on."""
    late = [numbers[first:] for numbers in series]
    return float(late[1].mean()), math.sqrt(np.mean(late[2] ** 2)), math.sqrt(np.mean(late[3] ** 2))
