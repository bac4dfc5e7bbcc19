"""What a measured stream promises, as plain values: measurements, policy graph, and which states are possible when.

Every pair of states that the policy graph joins stays hidden: no released point is more than e^epsilon times likelier
under the one than under the other. Only edges between states that an adversary can hold possible count, and a state
without such an edge is hidden among some other possible state. Sets of states are integers whose bit x stands for
state x.

Source: docs/privacy.md, "Private measurements".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import reduce
from itertools import product
from operator import add, or_
from typing import Any

from contract.errors import PolicyError
from contract.measure_frames import Point
from contract.measure_table import members, set_of

__all__ = ["MOST_SETS", "Measurement", "Reach", "neighbours_of"]

MOST_SETS = 4096
_WIDEST = Fraction(1 << 18)
"""No two points of the lattice are this far apart."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """A measurement and its protection.

    Attributes:
        coordinates: f, for each state a point of the lattice.
        neighbours: for each state the set of those that the policy graph joins to it.
        successors: for each state the set of those that can follow it.
        initial: the states possible at tick 0.
        epsilon: for neighbours, in nats.
        factor: epsilon times this bounds what is revealed between any two possible states.
        degree: every possible state is hidden among so many possible ones, itself included.
    """

    coordinates: tuple[Point, ...]
    neighbours: tuple[int, ...]
    successors: tuple[int, ...]
    initial: int
    epsilon: float
    factor: int
    degree: int = 2

    @classmethod
    def of(cls, policy: Mapping[str, Any]) -> Measurement:
        """Take it from the JSON form of a measurement policy.

        Raises:
            PolicyError: the policy graph does not fit the states.
        """
        coordinates = tuple(tuple(point) for point in policy["coordinates"])
        successors = tuple(set_of(state for state, _ in row) for row in policy["transition"])
        return cls(
            coordinates,
            neighbours_of(policy["graph"], coordinates, successors),
            successors,
            set_of(state for state, p in enumerate(policy["initial"]) if p > 0.0),
            policy["epsilon"],
            policy["factor"],
            policy["degree"],
        )

    @property
    def states(self) -> int:
        """N."""
        return len(self.coordinates)

    def stand_in(self, state: int, kept: Sequence[int]) -> int:
        """The state that answers for one that is not kept: the nearest, ties to the lowest index."""
        here = self.coordinates[state]
        return min(kept, key=lambda other: (_squared(here, self.coordinates[other]), other))

    def centres(self, kept: int) -> tuple[Point, ...]:
        """For each state the measurement that it is answered with if only the states of a set stand for themselves."""
        inside = members(kept)
        answers = (state if kept >> state & 1 else self.stand_in(state, inside) for state in range(self.states))
        return tuple(self.coordinates[answer] for answer in answers)


@dataclass(slots=True)
class Reach:
    """The sets of states that an adversary can hold possible, tick by tick: a run-in, then a cycle for ever.

    They follow from where the chain can start and step, and not from what was released, because no state of a set is
    ruled out by any output. Sets are found as far as they are asked for.
    """

    measurement: Measurement
    _sets: list[int] = field(init=False)
    _seen: dict[int, int] = field(init=False)
    _start: int | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        """Begin at tick 0."""
        self._sets = [self.measurement.initial]
        self._seen = {self.measurement.initial: 0}

    def at(self, tick: int) -> int:
        """The set of a tick, from 0 on.

        Raises:
            PolicyError: there are too many different sets, or none is left.
        """
        while self._start is None and tick >= len(self._sets):
            self._extend()
        if self._start is None or tick < len(self._sets):
            return self._sets[tick]
        return self._sets[self._start + (tick - self._start) % (len(self._sets) - self._start)]

    def all(self) -> list[int]:
        """All sets there are, in the order in which they come; errors as for `at`."""
        while self._start is None:
            self._extend()
        return list(self._sets)

    def has(self, states: int) -> bool:
        """Whether a set is the possible one at some tick; errors as for `at`."""
        while self._start is None:
            self._extend()
        return states in self._seen

    @property
    def start(self) -> int:
        """The tick at which the cycle begins."""
        self.all()
        assert self._start is not None
        return self._start

    def _extend(self) -> None:
        following = 0
        for state in members(self._sets[-1]):
            following |= self.measurement.successors[state]
        if not following:
            raise PolicyError(f"no state is possible at tick {len(self._sets)}: every state needs a successor")
        if following in self._seen:
            self._start = self._seen[following]
        elif len(self._sets) == MOST_SETS:
            raise PolicyError(f"the sets of possible states do not repeat within {MOST_SETS} ticks")
        else:
            self._seen[following] = len(self._sets)
            self._sets.append(following)


def neighbours_of(graph: Mapping[str, Any], coordinates: Sequence[Point], successors: Sequence[int]) -> tuple[int, ...]:
    """The policy graph as sets of neighbours.

    Args:
        graph: one of `{"complete": true}`; `{"categories": [label of each state]}`, joining equal labels;
            `{"radius": r}`, joining measurements at a Euclidean distance of at most r; `{"transition": true}`, joining
            states that can follow from some one state; `{"edges": [[0, 1], ...]}`.
        coordinates: f, for each state a point of the lattice.
        successors: for each state the set of those that can follow it.

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
