"""Plan a private measurement: which states are possible when, what noise hides them, and what that costs and leaves."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from fugu.chains import stationary_distribution
from fugu.chains.arrays import Floats
from fugu.contract.errors import FuguError, GuaranteeError, PolicyError
from fugu.contract.guarantee import Adversary
from fugu.contract.measure_policy import MeasurePolicy, sparse_rows
from fugu.contract.measure_table import Noise, set_of
from fugu.contract.measurement import ConstraintSets, Measurement, check_noise
from fugu.contract.stretches import Stretch
from fugu.places.composition import START_WORDS, between_any, measured_loss, measured_stretches, rounded_up
from fugu.places.graphs import GraphError, delta_set
from fugu.places.noise import noise_error
from fugu.places.protection import unbounded_factors
from fugu.places.tables import TableError, compile_noise, emission, fallback_noise, noise_loss, noise_table
from fugu.planning.errors import PlanningError
from fugu.planning.measure_errors import (
    QUICK,
    Errors,
    Schedule,
    SetPlan,
    assess,
    optimum,
    prior_within,
    set_plan,
    set_plans,
)
from fugu.planning.measure_spec import MeasureSpec

__all__ = ["MeasurePlan", "StreamEpsilon", "make_measure_plan"]


class StreamEpsilon(NamedTuple):
    """Loss of all released points about one tick, and about whole stretches; or why there is no epsilon."""

    epsilon: float | None
    adversary: Adversary
    bound: str
    reason: str | None
    stretches: tuple[Stretch, ...] = ()


@dataclass(frozen=True)
class MeasurePlan:
    """A planned measurement.

    `schedule` has the sets of possible states tick by tick, `sets` the first of the different ones, with all that come
    back, `worst` the worst of these, which the numbers are for. `delta` is the delta-location set of the distribution
    before anything was released. Estimates start from `prior` (N probabilities); `initial` is the distribution at tick
    0 of a policy. A device draws from `fallback` without a table, else from `noises`, one for each set; they are None
    and empty if there is no such noise, and `refused` says why. `reasons` say why a mechanism has no errors; all noise
    keeps the factor `promised`, as a policy states it. `named` is the share of points after which an attacker who
    knows the prior names the state rightly; None if there is no such noise.
    """

    spec: MeasureSpec
    schedule: Schedule
    sets: tuple[SetPlan, ...]
    worst: SetPlan
    delta: SetPlan | None
    prior: Floats
    prior_name: str
    errors: dict[str, Errors]
    reasons: dict[str, str]
    named: float | None
    stream: StreamEpsilon
    initial: Floats
    fallback: Noise | None
    noises: tuple[Noise, ...]
    refused: str | None
    promised: int

    @property
    def factor(self) -> Fraction | float:
        """Theorem 6.3's factor of the worst set; 1 for the fallback."""
        return Fraction(1) if self.worst.fallback else self.worst.protection.factor

    @property
    def unbounded_factors(self) -> tuple[Fraction | float, ...]:
        """For each state, epsilon times what a point tells between it and absence, with a measurement of 0."""
        return unbounded_factors(self.worst.hull, self.spec.values)

    @property
    def epsilon_any(self) -> float:
        """The most that one point tells apart any two possible states by; staircases compare whole steps."""
        return between_any(self.spec.epsilon, max(math.ceil(self.factor), self.promised))


def make_measure_plan(
    spec: MeasureSpec, adversary: Adversary, *, quick: bool = False, period: float | None = None
) -> MeasurePlan:
    """Plan a measurement.

    `quick` leaves out what takes long for many states: the optimal table, and the stream's epsilon. `period` is seconds
    from tick to tick, None if unknown.

    Raises:
        PlanningError: a state that can be reached has no successor, or the sets of possible states have no end.
    """
    distribution, distribution_name = _long_run(spec)
    if (initial := spec.initial) is None:
        initial = distribution if np.all(distribution > 0.0) else np.full(len(distribution), 1.0 / len(distribution))
    if not spec.is_plain:
        distribution_name += " of what is shown" if spec.shows else ""
    distribution, first = spec.measured(distribution), spec.measured(initial)
    try:
        found = _schedule(spec, initial)
        sets = set_plans(spec, found)
        start = first > 0.0
        example = None if spec.delta is None else set_plan(spec, 0, 1, start, delta_set(first, spec.delta) & start)
    except (GraphError, PolicyError) as error:
        raise PlanningError(str(error)) from None
    place = max(
        (index for index, each in enumerate(sets) if each.repeats), key=lambda index: noise_error(sets[index].hull)
    )
    worst = sets[place]
    prior, prior_name = prior_within(distribution, distribution_name, worst)
    fallback: Noise | None = None
    noises: tuple[Noise, ...] = ()
    refused: str | None = None
    try:
        fallback, noises = _noises(spec, sets, distribution)
    except (TableError, GraphError) as error:
        refused = str(error)
    noise = noises[place] if noises else None
    promised = _promised(spec, initial, sets, noises) if noises else 1
    endless = found.period == 1 and spec.is_plain
    errors, reasons = assess(spec, worst, noise, prior, endless=endless, quick=quick)
    named = None
    if noise is not None:
        named = float((prior[:, None] * emission(noise, spec.values).probabilities).max(axis=0).sum())
    if fallback is None or refused is not None:
        reasons["staircase"] = refused or ""
        stream = StreamEpsilon(None, adversary, "", "no device can draw such noise")
    elif quick:
        stream = StreamEpsilon(None, adversary, "", QUICK)
    else:
        stream = _stream(spec, _measurement(spec, initial, promised), adversary, period)
    return MeasurePlan(
        spec=spec,
        schedule=found,
        sets=sets,
        worst=worst,
        delta=example,
        prior=prior,
        prior_name=prior_name,
        errors=errors,
        reasons=reasons,
        named=named,
        stream=stream,
        initial=initial,
        fallback=fallback,
        noises=noises,
        refused=refused,
        promised=promised,
    )


def _long_run(spec: MeasureSpec) -> tuple[Floats, str]:
    """The distribution of the chain's state in the long run; where steps change, at the beginning of a cycle."""
    ticks = (0, *(tick for tick, _ in spec.changes), spec.cycle)
    cycle, name = np.eye(len(spec.transition)), "the stationary distribution"
    if spec.changes:
        name = "the distribution that every cycle begins with in the long run"
    else:
        ticks = (0, 1)
    for steps, begin, end in zip((spec.transition, *(one for _, one in spec.changes)), ticks, ticks[1:], strict=False):
        cycle = cycle @ np.linalg.matrix_power(steps, end - begin)
    try:
        return stationary_distribution(cycle / cycle.sum(axis=1, keepdims=True)), name
    except ValueError:
        return np.full(
            len(cycle), 1.0 / len(cycle)
        ), "the uniform distribution (there is more than one stationary distribution)"


def _schedule(spec: MeasureSpec, initial: Floats) -> Schedule:
    reach = ConstraintSets(_measurement(spec, initial, 1))
    sets = [np.array([bool(states >> x & 1) for x in range(spec.states)]) for states in reach.all()]
    return Schedule(tuple(sets), reach.start, reach.first_ticks)


def _noises(spec: MeasureSpec, sets: tuple[SetPlan, ...], distribution: Floats) -> tuple[Noise, tuple[Noise, ...]]:
    fallback = fallback_noise(spec.values, spec.epsilon)
    found = []
    for each in sets:
        if each.fallback:
            found.append(fallback)
        elif spec.mechanism == "optimal":
            best = optimum(spec, each, prior_within(distribution, "", each)[0])
            if len(best.outputs) < 2:
                raise TableError("the optimal table always releases the same point: raise epsilon, or use staircases")
            found.append(noise_table(best))
        else:
            found.append(compile_noise(each.hull, spec.values, each.possible, spec.epsilon, each.likely))
    return fallback, tuple(found)


def _measurement(spec: MeasureSpec, initial: Floats, factor: int) -> Measurement:
    return Measurement.of(
        {
            "coordinates": spec.values.tolist(),
            "transition": sparse_rows(spec.transition.tolist()),
            "initial": initial.tolist(),
            "shows": spec.shows,
            "cycle": spec.cycle,
            "changes": [{"tick": tick, "transition": sparse_rows(steps.tolist())} for tick, steps in spec.changes],
            "graph": spec.rule,
            "epsilon": spec.epsilon,
            "factor": factor,
            "degree": MeasurePolicy.model_fields["degree"].default,
        }
    )


def _promised(spec: MeasureSpec, initial: Floats, sets: Sequence[SetPlan], noises: Sequence[Noise]) -> int:
    """The least factor with which a device accepts the noise of all sets: in whole steps, because staircases have them.

    Rounding of tables and of the device's bounds can take a little more than whole steps, so its check decides.
    """
    drawn = [(each, noise) for each, noise in zip(sets, noises, strict=True) if not each.fallback]
    least = max((math.ceil(each.protection.factor) for each, _ in drawn), default=1)
    most = least
    for each, noise in drawn:
        within = np.ix_(each.possible, each.possible)
        most = max(most, math.ceil(float(noise_loss(noise, spec.values)[within].max()) / spec.epsilon))
    for factor in range(least, most + 1):
        measurement = _measurement(spec, initial, factor)
        try:
            for each, noise in drawn:
                check_noise(measurement, noise, set_of(np.flatnonzero(each.possible).tolist()))
        except GuaranteeError:
            continue
        return factor
    return most + 1


def _stream(spec: MeasureSpec, measurement: Measurement, adversary: Adversary, period: float | None) -> StreamEpsilon:
    """Epsilon of the stream, with all tables that a device accepts: that is what `fugu check policy` derives, too."""
    try:
        found = measured_loss(measurement, spec.transition, spec.initial, spec.start, adversary)
    except (FuguError, GraphError) as error:
        return StreamEpsilon(None, adversary, "", str(error))
    if not math.isfinite(found.epsilon):
        reason = "no finite bound was found: neighbouring ticks tell too much of one another"
        return StreamEpsilon(None, adversary, found.bound, reason)
    epsilon = rounded_up(found.epsilon)
    told = measured_stretches(measurement, epsilon, None if period is None else max(1, round(period * 1_000_000)))
    return StreamEpsilon(epsilon, adversary, f"{found.bound}; {START_WORDS[spec.start]}", None, told)
