"""Pins of a device's owner: the signers of policies cannot redefine what a guarantee is about.

docs/fleet.md says what each pin prevents. Pins are compared exactly; a comparison that cannot be decided is a
violation. A stream has all pins or none, because some pins alone could be circumvented.

- A policy's class must contain the pinned class: its guarantee then holds for every chain that the owner has named.
- Ticks at a multiple of the pinned period are some of the pinned ticks, and fewer symbols tell no more. A discretiser
with hysteresis or a baseline has other states if it sees fewer readings: it must have the pinned period.
- A measured stream must have the pinned clock, first states and steps. They decide which states are possible, which
pairs are protected, and by which partner.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Literal

from pydantic import Field

from fugu.contract._document import Document
from fugu.contract.chains import ChainClass, JointChains
from fugu.contract.discretisers import Discretiser
from fugu.contract.guarantee import Guarantee
from fugu.contract.losses import Adversary, claimed_ratio
from fugu.contract.measure_policy import CategoryGraph, CompleteGraph, EdgeGraph, MeasurePolicy
from fugu.contract.measure_table import states_in
from fugu.contract.measurement import neighbours_of
from fugu.contract.policies import AnyPolicy
from fugu.contract.policy import Clock, Policy
from fugu.core.pins import departures
from fugu.core.policy import ADVERSARIES
from fugu.core.policy import Policy as CorePolicy

__all__ = ["MeasuredPins", "Pins", "SymbolPins", "pins_of", "violations"]

State = Annotated[int, Field(ge=0)]


class SymbolPins(Document):
    """Pins of a stream of symbols.

    Attributes:
        discretiser: the policy must have the same.
        period_us: the policy's period must be a multiple of it, or equal to it with hysteresis or a baseline.
        chains: the policy's class must contain this class.
        adversary: the policy's adversary must know at least as much.
        windows: the guarantee to readers of the windows alone; none pins nothing about them.
    """

    kind: Literal["symbols"] = "symbols"
    discretiser: Discretiser
    period_us: int = Field(ge=100)
    chains: ChainClass
    adversary: Adversary
    windows: Guarantee | None = None

    def _check_consistency(self) -> None:
        state_count = len(self.discretiser.states)
        if state_count not in self.chains.state_counts:
            if self.chains.named_streams:
                raise ValueError(f"no stream of the chains has the {state_count} states of the discretiser")
            raise ValueError(f"discretiser and chains have {state_count} and {self.chains.states} states")

    def compiled(self, policy: Policy, core_policy: CorePolicy) -> CorePolicy:
        """Compile the pins for `fugu.core.pins`, to compare them with a policy and its compiled form.

        Ticks at a multiple of the pinned period are some of the pinned ticks. States with other names, or that joint
        chains show otherwise, are other states, although their bytes may be the same.
        """
        pinned = self.chains.compiled()
        pinned.stream, pinned.epoch_us = core_policy.stream, core_policy.epoch_us
        pinned.discretiser = core_policy.discretiser if policy.discretiser == self.discretiser else b""
        if isinstance(self.chains, JointChains) and not policy.chains.covers(self.chains):
            pinned.shared = ()
        multiple = 1 if self.discretiser.remembers else max(core_policy.period_us // self.period_us, 1)
        pinned.period_us = self.period_us * multiple
        pinned.guarantee, pinned.windows, pinned.windows_guarantee = (ADVERSARIES.index(self.adversary), 0, 1), [], None
        if claim := self.windows:
            ratio = claimed_ratio(claim.epsilon)
            pinned.windows_guarantee = ADVERSARIES.index(claim.adversary), ratio, -(-claim.stretch_ticks // multiple)
        return pinned


class MeasuredPins(Document):
    """Pins of a measured stream; its policy must have the same discretiser, clock, start and steps all the time.

    Attributes:
        start: the states possible at tick 0.
        steps, shows: for each state of the chain the states that can follow it, and the state that it shows.
        cycle: ticks after which the steps repeat.
        changes: ticks of the cycle, each with the steps from there on.
        graph: the policy's graph must join every pair that this graph joins.
        factor: the policy's factor may not be larger.
        degree: the policy's degree may not be smaller.
    """

    kind: Literal["measured"] = "measured"
    discretiser: Discretiser
    clock: Clock
    start: tuple[State, ...]
    steps: tuple[tuple[State, ...], ...]
    shows: tuple[State, ...] = ()
    cycle: int = Field(default=1, ge=1)
    changes: tuple[tuple[int, tuple[tuple[State, ...], ...]], ...] = ()
    graph: CompleteGraph | CategoryGraph | EdgeGraph
    factor: int = Field(ge=1)
    degree: int = Field(default=2, ge=2)

    def _check_consistency(self) -> None:
        state_count = len(self.discretiser.states)
        chain_states = len(self.shows) or state_count
        if len(self.steps) != chain_states:
            raise ValueError(f"discretiser and steps have {state_count} and {len(self.steps)} states")
        if not all(state < chain_states for states in (self.start, *self.steps) for state in states):
            raise ValueError("start or steps name a state that does not exist")
        self.neighbours()

    @property
    def schedule(self) -> tuple[object, ...]:
        """All that decides which states can follow one another: shown states, cycle, and steps as sets."""
        step_sets = [(tick, list(map(set, steps))) for tick, steps in ((0, self.steps), *self.changes)]
        return self.shows, self.cycle, step_sets

    def neighbours(self) -> tuple[int, ...]:
        """Return for each state the set of states that it must be joined to."""
        return neighbours_of(self.graph.model_dump(mode="json"), ((),) * len(self.discretiser.states), ())


Pins = Annotated[SymbolPins | MeasuredPins, Field(discriminator="kind")]
"""Pins of a stream; the field `kind` says of which kind the stream has to be."""


def pins_of(policy: AnyPolicy) -> SymbolPins | MeasuredPins:
    """Make the pins that pin everything in a policy."""
    if not isinstance(policy, Policy):
        return _measured_pins(policy)
    return SymbolPins(
        discretiser=policy.discretiser,
        period_us=policy.clock.period_us,
        chains=policy.chains,
        adversary=policy.guarantee.adversary,
        windows=policy.windows_alone,
    )


def _measured_pins(policy: MeasurePolicy) -> MeasuredPins:
    return MeasuredPins(
        discretiser=policy.discretiser,
        clock=policy.clock,
        start=tuple(states_in(policy.measurement.initial)),
        steps=_step_lists(policy.measurement.successors),
        shows=policy.shows,
        cycle=policy.cycle,
        changes=tuple((tick, _step_lists(steps)) for tick, steps in policy.measurement.changes),
        graph=_pair_graph(policy),
        factor=policy.factor,
        degree=policy.degree,
    )


def _step_lists(successors: Iterable[int]) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(states_in(states)) for states in successors)


def _pair_graph(policy: MeasurePolicy) -> CompleteGraph | CategoryGraph | EdgeGraph:
    """Return a policy's graph in a form that does not depend on the steps of its chain."""
    if isinstance(policy.graph, CompleteGraph | CategoryGraph | EdgeGraph):
        return policy.graph
    neighbours = policy.measurement.neighbours
    return EdgeGraph(edges=tuple((a, b) for a, peers in enumerate(neighbours) for b in states_in(peers) if a < b))


def violations(policy: AnyPolicy, pins: SymbolPins | MeasuredPins) -> tuple[str, ...]:
    """Return a line for each way in which a policy gives less than its owner has pinned.

    Whether its guarantee holds is not checked here. PolicyError: its graph does not fit its states.
    """
    if isinstance(policy, Policy) and isinstance(pins, SymbolPins):
        core_policy = policy.compiled()
        problems = departures(core_policy, pins.compiled(policy, core_policy))
        return tuple(f"{problem} than is pinned" for problem in problems)
    if isinstance(policy, MeasurePolicy) and isinstance(pins, MeasuredPins):
        return tuple(_measured_violations(policy, pins))
    kind = "symbols" if isinstance(policy, Policy) else "measured"
    return (f"its kind is {kind}, and {pins.kind} is pinned",)


def _measured_violations(policy: MeasurePolicy, pins: MeasuredPins) -> list[str]:
    problems = []
    if policy.discretiser != pins.discretiser:
        return ["its discretiser is not the pinned one"]
    if policy.clock != pins.clock:
        problems.append("its clock is not the pinned one")
    own_pins = _measured_pins(policy)
    if set(own_pins.start) != set(pins.start):
        problems.append("the states possible at tick 0 are not the pinned ones")
    if own_pins.schedule != pins.schedule:
        problems.append("the states that can follow one another are not the pinned ones")
    for state, (neighbours, pinned) in enumerate(zip(policy.measurement.neighbours, pins.neighbours(), strict=True)):
        if missing_neighbours := states_in(pinned & ~neighbours):
            problems.append(f"its graph does not join the pinned pair of states {state} and {missing_neighbours[0]}")
            break
    if policy.factor > pins.factor:
        problems.append(f"its factor {policy.factor} is above the pinned {pins.factor}")
    if policy.degree < pins.degree:
        problems.append(f"its degree of protection {policy.degree} is below the pinned {pins.degree}")
    return problems
