"""Promises of measured streams as plain values, and the check of a table against its policy graph, in integers.

Sets of states are integers whose bit x stands for state x. For a set C of at least two possible states, the source's
four conditions are checked, the second and fourth for `degree`. Every state, possible or not, is protected together
with degree - 1 other states of C (all, if there are no more), the same for every point. States outside C count because
the sender of tables could otherwise mark them. Ratios are compared as W[i,z] 2^24 <= floor(e^epsilon 2^24) W[j,z],
staircases by the gauge of differences; both without rounding. Source: docs/proofs/private-points.md, "Private
measurements".
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, reduce
from itertools import islice, product
from operator import add, itemgetter, le, or_
from typing import Any

from fugu.contract.errors import GuaranteeError, PolicyError
from fugu.contract.losses import exp_up
from fugu.contract.measure_frames import Point
from fugu.contract.measure_table import Noise, StaircaseNoise, set_of, states_in
from fugu.contract.noise_table import NoiseTable

__all__ = ["MOST_EPSILON", "RATIO_BITS", "ConstraintSets", "Measurement", "check_noise", "floor_exp", "neighbours_of"]


MOST_SETS = 4096
_MAX_RADIUS = Fraction(1 << 18)
"""No two points of the lattice are this far apart."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """A measurement and its protection.

    Attributes:
        coordinates: f, for each state a point of the lattice.
        neighbours: for each state the set of states that the policy graph joins to it.
        successors: for each state of the chain the set of states that can follow it.
        initial: the set of states of the chain that are possible at tick 0.
        epsilon: for neighbours, in nats.
        factor: any two possible states are told apart by at most factor * epsilon.
        degree: every possible state is hidden among this many possible states, itself included.
        shows: for each state of the chain the state that it shows; empty if each shows itself.
        cycle: ticks after which the possible steps repeat.
        changes: ticks of the cycle, ascending, each with the successors from there on; `successors` hold before.
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
        """Read the promise from a policy's JSON form; PolicyError if the policy graph does not fit the states."""
        coordinates = tuple(tuple(point) for point in policy["coordinates"])
        shows = tuple(policy.get("shows", ()))
        successors = _successor_sets(policy["transition"])
        changes = tuple((change["tick"], _successor_sets(change["transition"])) for change in policy.get("changes", ()))
        all_successors = (*successors, *(states for _, steps in changes for states in steps))
        return cls(
            coordinates,
            neighbours_of(policy["graph"], coordinates, [shown_set(states, shows) for states in all_successors]),
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
        """The number N of states."""
        return len(self.coordinates)

    def steps(self, tick: int) -> tuple[tuple[int, ...], int]:
        """Return the successors that hold from a tick to the next, and the next tick at which they may change."""
        cycle_tick = tick % self.cycle
        index = bisect_right(self.changes, cycle_tick, key=itemgetter(0))
        end = self.changes[index][0] if index < len(self.changes) else self.cycle
        return (self.changes[index - 1][1] if index else self.successors), tick - cycle_tick + end

    def surrogate(self, state: int, likely_states: Sequence[int]) -> int:
        """Return the likely state that is nearest to an unlikely state, ties to the lowest index."""
        point = self.coordinates[state]
        return min(likely_states, key=lambda x: (_squared_distance(point, self.coordinates[x]), x))

    def centres(self, likely_set: int) -> tuple[Point, ...]:
        """Return for each state its own measurement if it is likely, else the measurement of its surrogate."""
        likely_states = states_in(likely_set)
        centres = (x if likely_set >> x & 1 else self.surrogate(x, likely_states) for x in range(self.states))
        return tuple(self.coordinates[centre] for centre in centres)


class ConstraintSets:
    """The sets of states that an adversary can hold possible, tick by tick: a run-in, then an endless cycle.

    They follow from where the chain can start and step, not from releases: no output rules out a state of a set. Sets
    are computed on demand. A set that stays as long as the same steps hold is stored once.
    """

    def __init__(self, measurement: Measurement) -> None:
        self.measurement, self._chain_states = measurement, measurement.initial
        self._sets, self._ticks = [shown_set(self._chain_states, measurement.shows)], [0]
        self._visited = {(self._chain_states, 0): 0}
        self._start: int | None = None
        self._end = 0

    def set_at(self, tick: int) -> int:
        """Return the set of a tick; PolicyError if there are too many different sets, or no state is possible."""
        while self._start is None and tick > self._ticks[-1]:
            self._add_set()
        if self._start is not None and tick >= self._end:
            first_tick = self._ticks[self._start]
            tick = first_tick + (tick - first_tick) % (self._end - first_tick)
        return self._sets[bisect_right(self._ticks, tick) - 1]

    def all_sets(self) -> list[int]:
        """Return all sets in their order, each for some ticks; errors as for `set_at`."""
        while self._start is None:
            self._add_set()
        return list(self._sets)

    def ticks_of(self, state_set: int) -> tuple[int, int | None]:
        """Return the first tick of a set and the tick after its last, or None for this if the set recurs for ever."""
        sets = self.all_sets()
        first_tick = self._ticks[sets.index(state_set)]
        if state_set in sets[self.cycle_index :]:
            return first_tick, None
        return first_tick, self._ticks[len(sets) - sets[::-1].index(state_set)]

    @property
    def cycle_index(self) -> int:
        """The index, in `all_sets`, of the set that begins the cycle."""
        self.all_sets()
        assert self._start is not None
        return self._start

    @property
    def cycle_tick(self) -> int:
        """The tick at which the cycle begins."""
        return self._ticks[self.cycle_index]

    def _add_set(self) -> None:
        tick = self._ticks[-1]
        steps, change_tick = self.measurement.steps(tick)
        next_states = reduce(or_, (steps[state] for state in states_in(self._chain_states)), 0)
        if not next_states:
            raise PolicyError(f"no state is possible at tick {tick + 1}: every state needs a successor")
        tick = change_tick if next_states == self._chain_states else tick + 1
        chain_position = (next_states, tick % self.measurement.cycle)
        if chain_position in self._visited:
            self._start, self._end = self._visited[chain_position], tick
        elif len(self._sets) == MOST_SETS:
            raise PolicyError(f"the sets of possible states do not repeat within {MOST_SETS} ticks")
        else:
            self._chain_states = next_states
            self._visited[chain_position] = len(self._sets)
            self._sets.append(shown_set(next_states, self.measurement.shows))
            self._ticks.append(tick)


def shown_set(state_set: int, shows: Sequence[int]) -> int:
    """Return the set of states that the states of a set show, which is the same set if `shows` is empty."""
    return set_of({shows[state] for state in states_in(state_set)}) if shows else state_set


def _successor_sets(rows: Sequence[Sequence[tuple[int, float]]]) -> tuple[int, ...]:
    """Return for each row of a policy's transition matrix the set of states that can follow."""
    return tuple(set_of(state for state, _ in row) for row in rows)


def neighbours_of(graph: Mapping[str, Any], coordinates: Sequence[Point], successors: Sequence[int]) -> tuple[int, ...]:
    """Return the policy graph as sets of neighbours; PolicyError if labels or edges do not fit the states.

    Args:
        graph: one of `{"complete": true}`; `{"categories": [label of each state]}`, joining equal labels; `{"radius":
            r}`, joining measurements at a Euclidean distance of at most r; `{"transition": true}`, joining states that
            can follow the same state; `{"edges": [[0, 1], ...]}`.
        successors: sets of states that can follow the same state of the chain.
    """
    ((kind, graph_value),) = graph.items()
    state_count = len(coordinates)
    neighbours = [0] * state_count
    if kind == "complete":
        neighbours = [(1 << state_count) - 1] * state_count
    elif kind == "categories":
        if len(graph_value) != state_count:
            raise PolicyError(f"graph: {len(graph_value)} categories for {state_count} states")
        groups = {label: set_of(x for x, name in enumerate(graph_value) if name == label) for label in set(graph_value)}
        neighbours = [groups[label] for label in graph_value]
    elif kind == "radius":
        neighbours = _neighbours_within(coordinates, min(Fraction(graph_value), _MAX_RADIUS))
    elif kind == "transition":
        for next_states in set(successors):
            for state in states_in(next_states):
                neighbours[state] |= next_states
    else:
        for a, b in graph_value:
            if not (0 <= a < state_count and 0 <= b < state_count) or a == b:
                raise PolicyError(f"graph: edge ({a}, {b}) does not join two different states of 0..{state_count - 1}")
            neighbours[a] |= 1 << b
            neighbours[b] |= 1 << a
    return tuple(neighbour_set & ~(1 << state) for state, neighbour_set in enumerate(neighbours))


def _neighbours_within(coordinates: Sequence[Point], radius: Fraction) -> list[int]:
    """Return for each point the set of points within a radius, itself included."""
    states_at: dict[Point, int] = {}
    for state, point in enumerate(coordinates):
        states_at[point] = states_at.get(point, 0) | 1 << state
    max_square, offsets = int(radius**2), range(-int(radius), int(radius) + 1)
    dimensions = len(coordinates[0])
    if len(offsets) ** dimensions > len(states_at):
        near_sets = {
            a: [states for b, states in states_at.items() if _squared_distance(a, b) <= max_square] for a in states_at
        }
    else:
        steps = [step for step in product(offsets, repeat=dimensions) if sum(x * x for x in step) <= max_square]
        near_sets = {a: [states_at.get(tuple(map(add, a, step)), 0) for step in steps] for a in states_at}
    neighbours = {a: reduce(or_, neighbour_sets) for a, neighbour_sets in near_sets.items()}
    return [neighbours[point] for point in coordinates]


def _squared_distance(a: Point, b: Point) -> int:
    return sum((x - y) * (x - y) for x, y in zip(a, b, strict=True))


RATIO_BITS = 24
MOST_EPSILON = 20
_SEPARATES_ALL = Fraction(2219, 100)
"""Just above the logarithm of 2^32: no two weights differ by a larger factor."""

# exp_up is above e^x by less than 1e-30 of it: times this margin it is below.
_ROUNDING_MARGIN = 1 - Fraction(1, 10**30)

PairTest = Callable[[int, int], bool]


def floor_exp(epsilon: Fraction | int | float, bits: int = RATIO_BITS) -> int:
    """Return floor(e^epsilon * 2^bits), never more; GuaranteeError unless epsilon is in (0, 20] nats."""
    if not 0 < epsilon <= MOST_EPSILON:
        raise GuaranteeError(f"epsilon of a table must be above 0 and at most {MOST_EPSILON}, got {epsilon}")
    return int(exp_up(Fraction(epsilon)) * _ROUNDING_MARGIN * (1 << bits))


def check_noise(measurement: Measurement, noise: Noise, constraint: int) -> None:
    """Refuse, by a GuaranteeError, noise that breaks the promise for a set of possible states.

    The set 0 stands for any set: then every pair of states has to be protected.
    """
    all_states = (1 << measurement.states) - 1
    if constraint & ~all_states:
        raise GuaranteeError("the table is for states that the policy does not have")
    states = states_in(constraint or all_states)
    if len(states) < 2:
        raise GuaranteeError("a table for one possible state protects nothing: only the fallback may be used then")
    bound = floor_exp(measurement.epsilon)
    if len(noise.points[0] if isinstance(noise, NoiseTable) else noise.low) != len(measurement.coordinates[0]):
        raise GuaranteeError("the table's points have other dimensions than the policy's measurements")
    if isinstance(noise, NoiseTable):
        if noise.states != measurement.states:
            raise GuaranteeError(f"the table has {noise.states} states, the policy {measurement.states}")
        protects_all, protects = _table_test(measurement, noise, states, bound)
    else:
        protects_all, protects = _hull_test(measurement, noise, states, bound)
    if not protects_all:
        if not constraint:
            raise GuaranteeError("a fallback table has to protect every pair of states")
        _check_pairs(measurement, states, constraint, protects)
    for state in states_in(all_states & ~constraint) if constraint else ():
        if (partners := _too_few_partners(measurement, state, states, protects)) is not None:
            count_words = "none that is" if partners == 0 else f"only {partners} that are"
            raise GuaranteeError(f"state {state}, which should not be possible, is hidden together with {count_words}")


def _check_pairs(measurement: Measurement, states: list[int], constraint: int, protects: PairTest) -> None:
    """Refuse noise that tells neighbours apart, or hides a state among too few possible states."""
    for state in states:
        neighbours = states_in(measurement.neighbours[state] & constraint)
        for peer in neighbours:
            if peer > state and not protects(state, peer):
                raise GuaranteeError(f"some point tells state {state} from state {peer}, which the policy graph joins")
        if len(neighbours) >= measurement.degree - 1:
            continue
        if (partners := _too_few_partners(measurement, state, states, protects)) is not None:
            if partners == 0:
                raise GuaranteeError(f"state {state} is exposed: no other possible state is hidden together with it")
            raise GuaranteeError(
                f"state {state} is hidden among {partners + 1} possible states: a degree of protection of "
                f"{measurement.degree} is promised"
            )


def _too_few_partners(measurement: Measurement, state: int, states: list[int], protects: PairTest) -> int | None:
    """Count the states that a state is hidden together with, or return None if the promised number is reached."""
    peers = [peer for peer in states if peer != state]
    required = min(measurement.degree - 1, len(peers))
    partners = sum(1 for _ in islice((peer for peer in peers if protects(state, peer)), required))
    return partners if partners < required else None


def _table_test(measurement: Measurement, noise: NoiseTable, states: list[int], bound: int) -> tuple[bool, PairTest]:
    """Return whether a table protects every pair of the states, and the test of one pair."""
    index_of_row: dict[tuple[int, ...], int] = {}
    row_indices = [index_of_row.setdefault(tuple(row), len(index_of_row)) for row in noise.rows]
    weights = {index: noise.row_weights(state) for state, index in enumerate(row_indices)}
    columns = list(zip(*(weights[index] for index in {row_indices[state] for state in states}), strict=True))
    least_weights, largest_weights = [min(column) for column in columns], [max(column) for column in columns]
    _check_factor(measurement, least_weights, largest_weights)

    @cache
    def weight_limits(index: int) -> list[int]:
        return [bound * weight >> RATIO_BITS for weight in weights[index]]

    def protects(a: int, b: int) -> bool:
        i, j = row_indices[a], row_indices[b]
        return i == j or (all(map(le, weights[i], weight_limits(j))) and all(map(le, weights[j], weight_limits(i))))

    return all(a << RATIO_BITS <= bound * b for a, b in zip(largest_weights, least_weights, strict=True)), protects


def _check_factor(measurement: Measurement, least_weights: list[int], largest_weights: list[int]) -> None:
    """Refuse weights whose largest and smallest per point differ by more than e^(factor * epsilon)."""
    largest_loss = Fraction(measurement.epsilon) * measurement.factor
    if largest_loss >= _SEPARATES_ALL:
        return
    bound = int(exp_up(largest_loss) * _ROUNDING_MARGIN * (1 << RATIO_BITS))
    if any(a << RATIO_BITS > bound * b for a, b in zip(largest_weights, least_weights, strict=True)):
        raise GuaranteeError(f"some point tells two possible states apart by more than {measurement.factor} epsilon")


def _hull_test(measurement: Measurement, noise: StaircaseNoise, states: list[int], bound: int) -> tuple[bool, PairTest]:
    """Return whether a staircase protects every pair of the states, and the test of one pair."""
    if noise.likely >> measurement.states:
        raise GuaranteeError("the table keeps states that the policy does not have")
    hull = noise.staircase
    if hull.ratio.denominator << RATIO_BITS > bound * hull.ratio.numerator:
        raise GuaranteeError("the steps of the staircase are higher than e^epsilon")
    centres = measurement.centres(noise.likely)
    if not all(hull.spans(_difference(point, centres[0])) for point in centres):
        raise GuaranteeError("the hull is flat: points would reveal for certain where the state is")
    facets = hull.facets()[: len(hull.vertices) // 2]  # the others are their negatives
    heights = [[_height(normal, centres[state]) for state in states] for normal, _ in facets]
    widths = [max(state_heights) - min(state_heights) for state_heights in heights]
    offsets = [offset for _, offset in facets]
    if any(width > measurement.factor * offset for width, offset in zip(widths, offsets, strict=True)):
        raise GuaranteeError(f"some point tells two possible states apart by more than {measurement.factor} epsilon")

    @cache  # many pairs of a lattice have the same difference
    def in_hull(difference: Point) -> bool:
        return all(abs(_height(normal, difference)) <= offset for normal, offset in facets)

    def protects(a: int, b: int) -> bool:
        return in_hull(_difference(centres[a], centres[b]))

    return all(width <= offset for width, offset in zip(widths, offsets, strict=True)), protects


def _height(normal: Point, point: Point) -> int:
    return sum(a * b for a, b in zip(normal, point, strict=True))


def _difference(a: Point, b: Point) -> Point:
    return tuple(x - y for x, y in zip(a, b, strict=True))
