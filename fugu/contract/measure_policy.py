"""Policies of measured streams: what a device measures, which states it must not tell apart, and by which noise.

The policy has the policy graph, epsilon and the possible steps. The sender of tables can only choose among tables that
keep the promise, because the device checks each table against the policy.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import Annotated, Literal

from pydantic import Field

from fugu.contract._document import Document, Printable
from fugu.contract.chains import check_sum
from fugu.contract.errors import FrameError, GuaranteeError, PolicyError
from fugu.contract.frames import MAX_TICK
from fugu.contract.losses import Adversary
from fugu.contract.measure_frames import MAX_MEASURE_TICKS
from fugu.contract.measure_table import COORDINATE_LIMIT, MAX_MEASURED_STATES, TimedTable
from fugu.contract.measurement import MOST_EPSILON, ConstraintSets, Measurement, check_noise
from fugu.contract.policy import PolicyHeader
from fugu.contract.sentences import privacy_sentence

__all__ = [
    "MAX_CHANGES",
    "MAX_CYCLE",
    "MAX_TABLES",
    "CategoryGraph",
    "CompleteGraph",
    "EdgeGraph",
    "MeasurePolicy",
    "StreamLoss",
    "StreamStart",
    "sparse_rows",
]

MAX_TABLES = 16
MAX_CYCLE = 1 << 24
MAX_CHANGES = 48

Coordinate = Annotated[int, Field(gt=-COORDINATE_LIMIT, lt=COORDINATE_LIMIT)]
Step = tuple[Annotated[int, Field(ge=0, lt=MAX_MEASURED_STATES)], Annotated[float, Field(gt=0.0, le=1.0)]]
Edge = tuple[Annotated[int, Field(ge=0)], Annotated[int, Field(ge=0)]]
Probability = Annotated[float, Field(ge=0.0, le=1.0)]
StreamStart = Literal["any", "given", "stationary"]
EncodedTable = Annotated[str, Field(max_length=1 << 20)]


class CompleteGraph(Document):
    """A graph that joins every pair of states."""

    complete: Literal[True]


class CategoryGraph(Document):
    """A graph that joins states with equal labels; one label for each state."""

    categories: tuple[Printable | int, ...]


class RadiusGraph(Document):
    """A graph that joins states whose measurements are at most a radius apart, in lattice steps."""

    radius: Annotated[float, Field(ge=0.0)]


class TransitionGraph(Document):
    """A graph that joins states that can follow the same state."""

    transition: Literal[True]


class EdgeGraph(Document):
    """A graph that lists the joined pairs of states."""

    edges: tuple[Edge, ...]


Graph = CompleteGraph | CategoryGraph | RadiusGraph | TransitionGraph | EdgeGraph


class Change(Document):
    """Other steps from a tick of the cycle on, until the next change or the cycle's end.

    Attributes:
        tick: of the cycle; the step from this tick to the next is the first of them.
    """

    tick: int = Field(ge=1)
    transition: tuple[tuple[Step, ...], ...]


class StreamLoss(Document):
    """The loss about one tick's state by all releases; `fugu check policy` checks it, no device does.

    Attributes:
        epsilon: in nats; none if there is no finite bound.
        start: the distributions of the first state for which it holds: any, the policy's initial, or the stationary.
    """

    epsilon: Annotated[float, Field(gt=0.0)] | None
    adversary: Adversary
    start: StreamStart = "any"


class MeasurePolicy(PolicyHeader):
    """Measurements of one device, and the states that no released point tells apart.

    Attributes:
        coordinates: f, for each state a point of the integer lattice in 1 to 3 dimensions.
        resolution: the value of a step of the lattice, for each dimension.
        unit: of the resolution.
        transition: for each state the states that can follow it, with their probabilities. Which states can follow
            counts for privacy; the probabilities are for estimates only.
        initial: the distribution of the state at tick 0; only which states are possible counts for privacy.
        shows: for chains over other states than the measured states, such as pairs of the last and the present state.
            It has the measured state that each state of the chain shows. Transition and initial are then of the chain's
            states, all other fields of the measured states.
        cycle: ticks after which the steps repeat; tick 0 begins a cycle.
        changes: the steps of later parts of the cycle, in their order.
        graph: the pairs of states that must not be told apart.
        epsilon: no point is more than e^epsilon times likelier under one state of such a pair than under the other.
        factor: factor * epsilon is the bound for any two possible states.
        degree: every possible state is hidden among at least this many possible states, itself included, or among all.
        delta: above 0, the gateway sends tables in which the least likely states, of together at most this probability,
            have surrogates. The promise holds for these states, too.
        objective: the objective by which the gateway chooses partners for exposed states.
        stream_loss: the loss of the stream as a whole.
        fallback: the table for ticks without another table, as base64 of its message; it protects every pair.
        tables: other tables, in the same form.
    """

    kind: Literal["points"] = "points"
    frame_ticks: int = Field(ge=1, le=MAX_MEASURE_TICKS)
    coordinates: tuple[Annotated[tuple[Coordinate, ...], Field(min_length=1, max_length=3)], ...] = Field(
        min_length=2, max_length=MAX_MEASURED_STATES
    )
    resolution: tuple[Annotated[float, Field(gt=0.0, le=1e9)], ...]
    unit: Annotated[Printable, Field(max_length=32)] = ""
    transition: tuple[tuple[Step, ...], ...]
    initial: tuple[Probability, ...]
    shows: tuple[Annotated[int, Field(ge=0)], ...] = Field(default=(), max_length=MAX_MEASURED_STATES)
    cycle: int = Field(default=1, ge=1, le=MAX_CYCLE)
    changes: tuple[Change, ...] = Field(default=(), max_length=MAX_CHANGES)
    graph: Graph
    epsilon: Annotated[float, Field(gt=0.0, le=MOST_EPSILON)]
    factor: Annotated[int, Field(ge=1, le=1000)]
    degree: int = Field(default=2, ge=2, le=MAX_MEASURED_STATES)
    delta: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.0
    objective: Literal["error", "nearest", "area"] = "error"
    stream_loss: StreamLoss
    fallback: EncodedTable
    tables: tuple[EncodedTable, ...] = Field(default=(), max_length=MAX_TABLES)

    def _check_consistency(self) -> None:
        super()._check_consistency()
        states = len(self.coordinates)
        chain_states = len(self.shows) or states
        state_counts = (len(self.discretiser.states), states, len(self.transition), len(self.initial))
        if state_counts != (states, states, chain_states, chain_states):
            raise ValueError(f"discretiser, coordinates, transition and initial have {state_counts} states")
        if self.shows and set(self.shows) != set(range(states)):
            raise ValueError("shows names a state that is not measured, or leaves one out")
        ticks = [change.tick for change in self.changes]
        if ticks != sorted(set(ticks)) or any(tick >= self.cycle for tick in ticks):
            raise ValueError(f"changes are at ticks {ticks}: they have to ascend, below the cycle of {self.cycle}")
        if {len(point) for point in self.coordinates} != {len(self.resolution)}:
            raise ValueError("coordinates and resolution have different dimensions")
        for transition in (self.transition, *(change.transition for change in self.changes)):
            if len(transition) != chain_states:
                raise ValueError(f"a change has {len(transition)} rows for {chain_states} states")
            for state, row in enumerate(transition):
                successors = [y for y, _ in row]
                if len(set(successors)) != len(successors) or not all(y < chain_states for y in successors):
                    raise ValueError(f"transition row {state} names a state twice, or one that does not exist")
                check_sum((p for _, p in row), f"transition row {state}")
        check_sum(self.initial, "initial")
        try:
            measure_tables = self.measure_tables
        except FrameError as error:
            raise ValueError(f"a table: {error}") from None
        if [table.number for table in measure_tables] != list(range(len(measure_tables))):
            raise ValueError("the fallback has number 0, and the other tables 1, 2, ... in order")
        if any(table.policy_version != self.version for table in measure_tables):
            raise ValueError("a table is for another version of the policy")

    @cached_property
    def measure_tables(self) -> tuple[TimedTable, ...]:
        """The fallback and the other tables, by number."""
        return tuple(TimedTable.of_text(text) for text in (self.fallback, *self.tables))

    @cached_property
    def measurement(self) -> Measurement:
        """The measurement and its promise as plain values; PolicyError if the graph does not fit the states."""
        return Measurement.of(self.model_dump(mode="json"))

    @property
    def matrix(self) -> list[list[float]]:
        """The transition probabilities of the cycle's first part, a row for each state of the chain."""
        return self.matrices[0]

    @property
    def matrices(self) -> list[list[list[float]]]:
        """The transition probabilities of all parts of the cycle, as `matrix`."""
        transitions = (self.transition, *(change.transition for change in self.changes))
        return [
            [[row.get(state, 0.0) for state in range(len(rows))] for row in map(dict, rows)] for rows in transitions
        ]

    def table(self, table_number: int) -> TimedTable | None:
        """Return the table with a number, or None if the policy has no such table."""
        return self.measure_tables[table_number] if 0 <= table_number < len(self.measure_tables) else None

    @property
    def privacy(self) -> str:
        """The verdict on the privacy of a tick, by the promise about all points."""
        return privacy_sentence(self.stream_loss.epsilon, "single tick")

    def __str__(self) -> str:
        return f"{self.fleet}/{self.device}/{self.stream} version {self.version}. {self.privacy}"

    def verify(self, ceiling: float | None = None) -> None:
        """Check every table against the policy graph, and the epsilon of a point against the owner's ceiling.

        PolicyError: the graph does not fit the states, or the sets of possible states do not repeat. GuaranteeError: a
        table does not keep the promise, or epsilon is above the ceiling.
        """
        fallback, *other_tables = self.measure_tables
        if fallback.constraint or fallback.first or fallback.until <= MAX_TICK:
            raise PolicyError("the fallback table has to be for every set of possible states, from tick 0 on for ever")
        check_noise(self.measurement, fallback.noise, 0)
        constraint_sets = ConstraintSets(self.measurement)
        constraint_sets.all_sets()
        for table in other_tables:
            if table.constraint not in constraint_sets.all_sets():
                raise PolicyError(f"table {table.number} is for a set of states that is never the possible one")
            try:
                check_noise(self.measurement, table.noise, table.constraint)
            except GuaranteeError as error:
                raise GuaranteeError(f"table {table.number}: {error}") from None
        if ceiling is not None and self.epsilon > ceiling:
            raise GuaranteeError(
                f"epsilon {self.epsilon:g} of each point of stream {self.stream} is above this device's ceiling "
                f"for measurements {ceiling:g}"
            )


def sparse_rows(transition: Iterable[Iterable[float]]) -> tuple[tuple[tuple[int, float], ...], ...]:
    """Convert a transition matrix to a policy's form: for each state the next states with their probabilities."""
    return tuple(tuple((y, float(p)) for y, p in enumerate(row) if p > 0.0) for row in transition)
