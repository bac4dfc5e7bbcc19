"""What protects a measurement tick by tick: constraint set, policy graph, hull, degree of protection, table.

A delta-location set C' leaves out unlikely states of the reachable set C, yet the device may be in one of them, and
then draws from the row of its surrogate. So the promise is made on all of C: an edge (i, j) of the user's graph holds
between the rows of sur(i) and sur(j), and the hull is that of the surrogates' differences f(sur(i)) - f(sur(j)).
States that share a row protect one another. With C' = C nothing changes.

Every cell of a table is above 0, so no output rules a state out, and the reachable sets are known in advance.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from fractions import Fraction
from hashlib import blake2b
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from gateway.chain.arrays import Bools, Ints
from gateway.dphmm.constraints import delta_set, schedule, surrogates
from gateway.dphmm.graphs import GraphError
from gateway.dphmm.protection import Objective, Protection, degree_of_protection, protect
from gateway.dphmm.tables import TableWeights, build_table, fallback_table

__all__ = ["FALLBACK", "Progress", "Step", "protect_kept", "surrogate_graph"]

FALLBACK = "fallback"
"""The key of the fallback table."""

Found = TypeVar("Found")


class Step(NamedTuple):
    """What holds at a tick. Equal constraint sets give the very same object.

    Attributes:
        reachable: C, N booleans: the states that an adversary can hold possible.
        kept: C', N booleans, the states with rows of their own; C itself without a delta-location set.
        protection: graph, added edges, hull and factor, from `protect_kept`.
        degrees: degree of protection, N counts over C with surrogate rows; 0 outside C.
        key: of the table to use: equal keys, equal tables. `FALLBACK` if all of C would share one output.
    """

    reachable: Bools
    kept: Bools
    protection: Protection
    degrees: Ints
    key: str

    @property
    def exposed(self) -> list[int]:
        """The states of C that nothing protects, ascending; the fallback table is for them."""
        return np.flatnonzero(self.degrees == 1).tolist()


class Progress:
    """The steps of one measured stream, each worked out once.

    Attributes:
        schedule: the reachable sets of all ticks.
    """

    def __init__(
        self,
        values: Ints,
        graph: Bools,
        transition: ArrayLike,
        initial: Bools,
        *,
        epsilon: Fraction | int | float,
        objective: Objective = "error",
        cap: Fraction | int = 4,
        delta: float = 0.0,
        remembered: int = 256,
    ) -> None:
        """Work out the reachable sets.

        Args:
            values: f, N x d integers, from `lattice`.
            graph: the user's policy graph, N x N.
            transition: N x N; a step is possible if its entry is above 0.
            initial: N booleans, the states possible at tick 0.
            epsilon: of a table, above 0, at most 20.
            objective: how partners for exposed states are chosen, as for `protect`.
            cap: of flat hulls, as for `protect`. It cannot be declined: under a flat hull an output rules out states,
                and the reachable sets would no longer be known.
            delta: mass that a delta-location set may leave out, 0 <= delta < 1; 0 for none.
            remembered: steps and tables to keep, at least 1; the ones used longest ago go first. A step holds an
                N x N matrix of booleans. Delta-location sets rarely come back.

        Raises:
            GraphError: The arguments do not fit each other, or a reachable set is empty.
        """
        count = len(values)
        if graph.shape != (count, count) or np.shape(transition) != (count, count) or initial.shape != (count,):
            raise GraphError(
                f"{count} measurements need a graph and a transition of {count} x {count}, and {count} flags"
            )
        if not 0.0 <= delta < 1.0:
            raise GraphError(f"delta must be at least 0 and below 1, got {delta}")
        if remembered < 1:
            raise GraphError(f"at least one step has to be remembered, got {remembered}")
        self.schedule = schedule(initial, transition)
        self._values, self._graph = values, graph
        self._epsilon, self._objective, self._cap, self._delta = epsilon, objective, cap, delta
        self._remembered = remembered
        self._steps: OrderedDict[Hashable, Step] = OrderedDict()
        self._tables: OrderedDict[Hashable, TableWeights] = OrderedDict()

    def at(self, tick: int, belief: ArrayLike | None = None) -> Step:
        """The step of a tick.

        Args:
            tick: from 0 on.
            belief: N probabilities of the state at that tick, given what was released before it; with a
                delta-location set, and only then.

        Raises:
            GraphError: The belief is missing, not wanted, no distribution, or likely only where no state is possible.
        """
        if (belief is None) != (self._delta == 0.0):
            raise GraphError("a belief is needed for a delta-location set, and for nothing else")
        position = self.schedule.position(tick)
        reachable = self.schedule.constraints[position]
        if belief is None:
            return self._remember(self._steps, position, lambda: self._step(reachable, reachable))
        kept = delta_set(belief, self._delta) & reachable
        return self._remember(self._steps, (position, kept.tobytes()), lambda: self._step(reachable, kept))

    def table(self, step: Step) -> TableWeights:
        """The certified table of a step, the same object for the same key; it has at most 100 states.

        Raises:
            TableError: There are too many states.
        """
        return self._remember(self._tables, step.key, lambda: self._table(step))

    def _step(self, reachable: Bools, kept: Bools) -> Step:
        stand_in = _stand_ins(self._values, reachable, kept)
        found = _protected(self._values, self._graph, reachable, kept, stand_in, self._objective, self._cap)
        rows = self._values[stand_in]
        degrees = degree_of_protection(found.hull, rows, reachable)
        inside = rows[reachable]
        name = FALLBACK
        if np.any(inside != inside[0]):
            # the table follows from the kept states and the hull; the reachable set acts through the hull alone
            parts = (np.packbits(kept), found.hull.vertices, np.int64(found.hull.scale))
            name = blake2b(b"".join(part.tobytes() for part in parts), digest_size=16).hexdigest()
        return Step(reachable, kept, found, degrees, name)

    def _table(self, step: Step) -> TableWeights:
        if step.key == FALLBACK:
            return fallback_table(self._values, self._epsilon)
        return build_table(step.protection.hull, self._values, step.kept, self._epsilon)

    def _remember(self, store: OrderedDict[Hashable, Found], key: Hashable, make: Callable[[], Found]) -> Found:
        found = store.get(key)
        if found is None:
            found = store[key] = make()
            if len(store) > self._remembered:
                store.popitem(last=False)
        store.move_to_end(key)
        return found


def surrogate_graph(values: Ints, graph: Bools, reachable: Bools, kept: Bools) -> Bools:
    """The pairs of rows that the user's graph on C asks to be protected.

    Args:
        values: f, N x d.
        graph: the user's policy graph, N x N.
        reachable: C, N booleans.
        kept: C', N booleans, at least one true.

    Returns:
        N x N: (sur(i), sur(j)) for every edge (i, j) inside C whose surrogates differ.

    Raises:
        GraphError: No state is kept, or one that is not reachable.
    """
    return _joined(graph, reachable, kept, _stand_ins(values, reachable, kept))


def protect_kept(
    values: Ints,
    graph: Bools,
    reachable: Bools,
    kept: Bools,
    *,
    objective: Objective = "error",
    cap: Fraction | int | None = 4,
) -> Protection:
    """Protect every state of a reachable set when only the kept ones have rows of their own.

    Args:
        values: f, N x d integers, from `lattice`.
        graph: the user's policy graph, N x N.
        reachable: C, N booleans.
        kept: C', N booleans, at least one true, within C.
        objective: as for `protect`.
        cap: as for `protect`.

    Returns:
        The surrogate graph with the edges added, all among kept states, and its hull: a table made from that hull and
        C' protects every edge of the user's graph inside C. The factor bounds what is revealed within all of C.

    Raises:
        GraphError: No state is kept, or one that is not reachable; or as for `protect`.
    """
    return _protected(values, graph, reachable, kept, _stand_ins(values, reachable, kept), objective, cap)


def _stand_ins(values: Ints, reachable: Bools, kept: Bools) -> Ints:
    """The surrogates of all states, N."""
    if not kept.any() or np.any(kept & ~reachable):
        raise GraphError("a delta-location set keeps at least one state, and only states that are possible")
    return surrogates(values, kept)


def _protected(
    values: Ints,
    graph: Bools,
    reachable: Bools,
    kept: Bools,
    stand_in: Ints,
    objective: Objective,
    cap: Fraction | int | None,
) -> Protection:
    if np.array_equal(reachable, kept):
        return protect(values, graph, reachable, objective=objective, cap=cap)
    # a state measured as its surrogate has the difference 0 to all that share the row, and 0 lies in every hull
    found = protect(values[stand_in], graph, reachable, objective=objective, cap=cap)
    final = _joined(graph, reachable, kept, stand_in)
    added = tuple((state, int(stand_in[partner])) for state, partner in found.added)
    for state, partner in added:
        final[state, partner] = final[partner, state] = True
    return found._replace(graph=final, added=added)


def _joined(graph: Bools, reachable: Bools, kept: Bools, stand_in: Ints) -> Bools:
    """The graph inside C with all states that share a row made one; every kept state is among those of its row."""
    states = np.flatnonzero(reachable)
    states = states[np.argsort(stand_in[states], kind="stable")]
    starts = np.searchsorted(stand_in[states], np.flatnonzero(kept))
    # twice the rows, since columns are slower: the graph is symmetric
    half = np.logical_or.reduceat(graph[np.ix_(states, states)], starts, axis=0)
    result = np.zeros_like(graph)
    result[np.ix_(kept, kept)] = np.logical_or.reduceat(half.T, starts, axis=0)
    np.fill_diagonal(result, False)
    return result
