"""What a measured stream promises, as plain values: measurements, policy graph, and which states are possible when.

Every pair of states that the policy graph joins stays hidden: no released point is more than e^epsilon times likelier
under the one than under the other. Only edges between states that an adversary can hold possible count, and a state
without such an edge is hidden among some other possible state. Sets of states are integers whose bit x stands for
state x.

Source: docs/proofs/private-points.md, "Private measurements".
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import reduce
from itertools import product
from operator import add, itemgetter, or_
from typing import Any

from fugu.contract.errors import PolicyError
from fugu.contract.measure_frames import Point
from fugu.contract.measure_table import members, set_of

__all__ = ["MOST_SETS", "ConstraintSets", "Measurement", "neighbours_of", "shown"]

MOST_SETS = 4096
_WIDEST = Fraction(1 << 18)
"""No two points of the lattice are this far apart."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """A measurement and its protection.

    Attributes:
        coordinates: f, for each state a point of the lattice.
        neighbours: for each state the set of those that the policy graph joins to it.
        successors: for each state of the chain the set of those that can follow it.
        initial: the states of the chain that are possible at tick 0.
        epsilon: for neighbours, in nats.
        factor: epsilon times this bounds what is revealed between any two possible states.
        degree: every possible state is hidden among so many possible ones, itself included.
        shows: for each state of the chain the state that it shows; itself if that is empty.
        cycle: ticks after which the steps that are possible repeat.
        changes: from which tick of the cycle on which other successors hold, ascending; those above hold before.
    """

    coordinates: tuple[Point, ...]
    neighbours: tuple[int, ...]
    successors: tuple[int, ...]
    initial: int
    epsilon: float
    factor: int
    degree: int = 2
    shows: tuple[int, ...] = ()
    cycle: int = 1
    changes: tuple[tuple[int, tuple[int, ...]], ...] = ()

    @classmethod
    def of(cls, policy: Mapping[str, Any]) -> Measurement:
        """Take it from the JSON form of a measurement policy.

        Raises:
            PolicyError: the policy graph does not fit the states.
        """
        coordinates = tuple(tuple(point) for point in policy["coordinates"])
        shows = tuple(policy.get("shows", ()))
        successors = _followers(policy["transition"])
        changes = tuple((one["tick"], _followers(one["transition"])) for one in policy.get("changes", ()))
        every = (*successors, *(states for _, steps in changes for states in steps))
        return cls(
            coordinates,
            neighbours_of(policy["graph"], coordinates, [shown(states, shows) for states in every]),
            successors,
            set_of(state for state, p in enumerate(policy["initial"]) if p > 0.0),
            policy["epsilon"],
            policy["factor"],
            policy["degree"],
            shows,
            policy.get("cycle", 1),
            changes,
        )

    @property
    def states(self) -> int:
        """N."""
        return len(self.coordinates)

    def steps(self, tick: int) -> tuple[tuple[int, ...], int]:
        """The successors that hold from a tick to the next, and the first tick after it from which others do."""
        here = tick % self.cycle
        place = bisect_right(self.changes, here, key=itemgetter(0))
        after = self.changes[place][0] if place < len(self.changes) else self.cycle
        return (self.changes[place - 1][1] if place else self.successors), tick - here + after

    def surrogate(self, state: int, likely: Sequence[int]) -> int:
        """The likely state whose measurement is used for one that is not: the nearest, ties to the lowest index."""
        here = self.coordinates[state]
        return min(likely, key=lambda other: (_squared(here, self.coordinates[other]), other))

    def centres(self, likely: int) -> tuple[Point, ...]:
        """For each state its own measurement if it is likely, else that of its surrogate."""
        inside = members(likely)
        answers = (state if likely >> state & 1 else self.surrogate(state, inside) for state in range(self.states))
        return tuple(self.coordinates[answer] for answer in answers)


@dataclass(slots=True)
class ConstraintSets:
    """The sets of states that an adversary can hold possible, tick by tick: a run-in, then a cycle for ever.

    They follow from where the chain can start and step, and not from what was released, because no state of a set is
    ruled out by any output. Sets are found as far as they are asked for. What the chain can be in is followed, and what
    that shows is the constraint set; one that stays as long as the same steps hold is kept once for all these ticks.
    """

    measurement: Measurement
    _hidden: int = field(init=False)
    _sets: list[int] = field(init=False)
    _ticks: list[int] = field(init=False)
    _seen: dict[tuple[int, int], int] = field(init=False)
    _start: int | None = field(init=False, default=None)
    _end: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        """Begin at tick 0."""
        self._hidden = self.measurement.initial
        self._sets, self._ticks = [shown(self._hidden, self.measurement.shows)], [0]
        self._seen = {(self._hidden, 0): 0}

    def at(self, tick: int) -> int:
        """The set of a tick, from 0 on; a `PolicyError` if there are too many different sets, or none is left."""
        while self._start is None and tick > self._ticks[-1]:
            self._extend()
        if self._start is not None and tick >= self._end:
            first = self._ticks[self._start]
            tick = first + (tick - first) % (self._end - first)
        return self._sets[bisect_right(self._ticks, tick) - 1]

    def all(self) -> list[int]:
        """All sets in the order in which they come, each for some ticks; errors as for `at`."""
        while self._start is None:
            self._extend()
        return list(self._sets)

    def has(self, states: int) -> bool:
        """Whether a set is the possible one at some tick; errors as for `at`."""
        return states in self.all()

    @property
    def first_ticks(self) -> tuple[int, ...]:
        """The first tick of each of the sets of `all`."""
        self.all()
        return tuple(self._ticks)

    def ticks(self, states: int) -> tuple[int, int | None]:
        """The first tick of a set that `has` knows, and the first from which it never comes back; none if it does."""
        sets = self.all()
        first = self._ticks[sets.index(states)]
        if states in sets[self.start :]:
            return first, None
        return first, self._ticks[len(sets) - sets[::-1].index(states)]

    @property
    def start(self) -> int:
        """Where in `all` the cycle begins."""
        self.all()
        assert self._start is not None
        return self._start

    def _extend(self) -> None:
        tick = self._ticks[-1]
        steps, until = self.measurement.steps(tick)
        following = 0
        for state in members(self._hidden):
            following |= steps[state]
        if not following:
            raise PolicyError(f"no state is possible at tick {tick + 1}: every state needs a successor")
        tick = until if following == self._hidden else tick + 1
        key = (following, tick % self.measurement.cycle)
        if key in self._seen:
            self._start, self._end = self._seen[key], tick
        elif len(self._sets) == MOST_SETS:
            raise PolicyError(f"the sets of possible states do not repeat within {MOST_SETS} ticks")
        else:
            self._hidden = following
            self._seen[key] = len(self._sets)
            self._sets.append(shown(following, self.measurement.shows))
            self._ticks.append(tick)


def shown(states: int, shows: Sequence[int]) -> int:
    """The states that those of a set show; the same if there is no map."""
    return set_of({shows[state] for state in members(states)}) if shows else states


def _followers(rows: Sequence[Sequence[tuple[int, float]]]) -> tuple[int, ...]:
    """For each state the set of those that a matrix, as a policy has it, lets follow."""
    return tuple(set_of(state for state, _ in row) for row in rows)


def neighbours_of(graph: Mapping[str, Any], coordinates: Sequence[Point], successors: Sequence[int]) -> tuple[int, ...]:
    """The policy graph as sets of neighbours.

    Args:
        graph: one of `{"complete": true}`; `{"categories": [label of each state]}`, joining equal labels;
            `{"radius": r}`, joining measurements at a Euclidean distance of at most r; `{"transition": true}`, joining
            states that can follow from some one state; `{"edges": [[0, 1], ...]}`.
        coordinates: f, for each state a point of the lattice.
        successors: sets of states that can follow some one state of the chain.

    Raises:
        PolicyError: labels or edges do not fit the states.
    """
    ((kind, value),) = graph.items()
    count = len(coordinates)
    joined = [0] * count
    if kind == "complete":
        joined = [(1 << count) - 1] * count
    elif kind == "categories":
        if len(value) != count:
            raise PolicyError(f"graph: {len(value)} categories for {count} states")
        groups = {label: set_of(x for x, other in enumerate(value) if other == label) for label in set(value)}
        joined = [groups[label] for label in value]
    elif kind == "radius":
        joined = _near(coordinates, min(Fraction(value), _WIDEST))
    elif kind == "transition":
        for following in set(successors):
            for state in members(following):
                joined[state] |= following
    else:
        for a, b in value:
            if not (0 <= a < count and 0 <= b < count) or a == b:
                raise PolicyError(f"graph: edge ({a}, {b}) does not join two different states of 0..{count - 1}")
            joined[a] |= 1 << b
            joined[b] |= 1 << a
    return tuple(others & ~(1 << state) for state, others in enumerate(joined))


def _near(coordinates: Sequence[Point], radius: Fraction) -> list[int]:
    """For each point the set of those at a distance of at most a radius, itself included."""
    at: dict[Point, int] = {}
    for state, point in enumerate(coordinates):
        at[point] = at.get(point, 0) | 1 << state
    most, reach = int(radius**2), range(-int(radius), int(radius) + 1)
    dimensions = len(coordinates[0])
    if len(reach) ** dimensions > len(at):
        found = {a: [states for b, states in at.items() if _squared(a, b) <= most] for a in at}
    else:
        steps = [step for step in product(reach, repeat=dimensions) if sum(x * x for x in step) <= most]
        found = {a: [at.get(tuple(map(add, a, step)), 0) for step in steps] for a in at}
    sets = {a: reduce(or_, near) for a, near in found.items()}
    return [sets[point] for point in coordinates]


def _squared(a: Point, b: Point) -> int:
    return sum((x - y) * (x - y) for x, y in zip(a, b, strict=True))
