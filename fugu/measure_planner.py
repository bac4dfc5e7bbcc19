"""Plan a private measurement: which states are possible when, what noise hides them, and what that costs and leaves."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import shortest_path

from contract.errors import FuguError
from contract.guarantee import Adversary
from contract.measure_table import Noise
from fugu.errors import CommandError
from fugu.measure_errors import QUICK, Errors, assess
from fugu.measure_sets import SetPlan, optimum, prior_within, set_plan, set_plans
from fugu.measure_spec import MeasureSpec
from gateway.chain import stationary_law
from gateway.dphmm.compiled import compile_noise, fallback_noise, noise_loss, weight_noise
from gateway.dphmm.composition import between_any, stream_loss
from gateway.dphmm.constraints import Schedule, delta_set, schedule
from gateway.dphmm.graphs import GraphError, restrict
from gateway.dphmm.moments import noise_error
from gateway.dphmm.tables import TableError
from gateway.privacy.inner_maximum import EXACT_STATES

__all__ = ["MeasurePlan", "StreamEpsilon", "make_measure_plan"]

FloatArray = NDArray[np.float64]

_MOST_ACCOUNTED = 256


class StreamEpsilon(NamedTuple):
    """What all released points together tell about one tick: epsilon, or the reason why there is none.

    Attributes:
        other_start: whether it is for the stationary start instead of the one that was given.
    """

    epsilon: float | None
    adversary: Adversary
    bound: str
    reason: str | None
    other_start: bool = False


@dataclass(frozen=True)
class MeasurePlan:
    """A planned measurement.

    Attributes:
        spec: what was asked for.
        schedule: the sets of possible states, tick by tick.
        sets: the different ones, the first of them; those that come back are among them.
        settled: the set that the numbers below are for: the worst of those that come back.
        delta: an example of a delta-location set: that of the law before anything was released.
        prior: N probabilities that estimates start from.
        prior_name: where it comes from.
        errors: by mechanism.
        reasons: why a mechanism has no errors.
        stream: epsilon of the stream.
        initial: the law at tick 0 of a policy.
        fallback: what a device draws from without a table; none if there is no such noise.
        noises: what it draws from in each of the sets; empty if there is no such noise.
        refused: why there is none.
        promised: the factor that all noise keeps, as a policy states it.
    """

    spec: MeasureSpec
    schedule: Schedule
    sets: tuple[SetPlan, ...]
    settled: SetPlan
    delta: SetPlan | None
    prior: FloatArray
    prior_name: str
    errors: dict[str, Errors]
    reasons: dict[str, str]
    stream: StreamEpsilon
    initial: FloatArray
    fallback: Noise | None
    noises: tuple[Noise, ...]
    refused: str | None
    promised: int

    @property
    def factor(self) -> Fraction | float:
        """Theorem 6.3's factor of the settled set; 1 for the fallback."""
        return Fraction(1) if self.settled.fallback else self.settled.protection.factor

    @property
    def epsilon_any(self) -> float:
        """The most that one point tells apart any two possible states by; staircases compare whole steps."""
        return between_any(self.spec.epsilon, math.ceil(self.factor))


def make_measure_plan(spec: MeasureSpec, adversary: Adversary, *, quick: bool = False) -> MeasurePlan:
    """Plan a measurement.

    Args:
        spec: from `read_spec`.
        adversary: to whom the stream's epsilon is.
        quick: leave out what takes long for many states: the optimal table, and the stream's epsilon.

    Raises:
        CommandError: a state that can be reached has no successor, or the sets of possible states have no end.
    """
    start = np.ones(spec.states, dtype=np.bool_) if spec.initial is None else spec.initial > 0.0
    law, law_name = _long_run(spec)
    initial = spec.initial
    if initial is None:
        initial = law if np.all(law > 0.0) else np.full(spec.states, 1.0 / spec.states)
    try:
        found = schedule(start, spec.transition, longest=4096)
        sets = set_plans(spec, found)
        example = (
            None if spec.delta is None else set_plan(spec, 0, False, start, delta_set(initial, spec.delta) & start)
        )
    except GraphError as error:
        raise CommandError(str(error)) from None
    place = max(
        (index for index, each in enumerate(sets) if each.repeats), key=lambda index: noise_error(sets[index].hull)
    )
    settled = sets[place]
    prior, prior_name = prior_within(law, law_name, settled)
    fallback: Noise | None = None
    noises: tuple[Noise, ...] = ()
    refused: str | None = None
    try:
        fallback, noises = _noises(spec, sets, law)
    except (TableError, GraphError) as error:
        refused = str(error)
    noise = noises[place] if noises else None
    promised = _factor(spec, sets, noises) if noises else 1
    errors, reasons = assess(spec, settled, noise, prior, endless=found.period == 1, quick=quick)
    if fallback is None or refused is not None:
        reasons["staircase"] = refused or ""
        stream = StreamEpsilon(None, adversary, "", "no device can draw such noise")
    elif quick:
        stream = StreamEpsilon(None, adversary, "", QUICK)
    else:
        stream = _stream(spec, law, sets, (fallback, *noises), promised, adversary)
    return MeasurePlan(
        spec=spec,
        schedule=found,
        sets=sets,
        settled=settled,
        delta=example,
        prior=prior,
        prior_name=prior_name,
        errors=errors,
        reasons=reasons,
        stream=stream,
        initial=initial,
        fallback=fallback,
        noises=noises,
        refused=refused,
        promised=promised,
    )


def _long_run(spec: MeasureSpec) -> tuple[FloatArray, str]:
    try:
        return stationary_law(spec.transition), "the stationary law"
    except ValueError:
        return np.full(spec.states, 1.0 / spec.states), "the uniform law (there is more than one stationary law)"


def _noises(spec: MeasureSpec, sets: tuple[SetPlan, ...], law: FloatArray) -> tuple[Noise, tuple[Noise, ...]]:
    """What a device draws from: without a table, and in each set."""
    fallback = fallback_noise(spec.values, spec.epsilon)
    found = []
    for each in sets:
        if each.fallback:
            found.append(fallback)
        elif spec.mechanism == "optimal":
            best = optimum(spec, each, prior_within(law, "", each)[0])
            if len(best.outputs) < 2:
                raise TableError("the optimal table always releases the same point: raise epsilon, or use staircases")
            found.append(weight_noise(best))
        else:
            found.append(compile_noise(each.hull, spec.values, each.possible, spec.epsilon, each.kept))
    return fallback, tuple(found)


def _factor(spec: MeasureSpec, sets: Sequence[SetPlan], noises: Sequence[Noise]) -> int:
    """The factor that the noise of all sets keeps: in whole steps, because staircases have them."""
    factor = 1
    for each, noise in zip(sets, noises, strict=True):
        if not each.fallback:
            within = np.ix_(each.possible, each.possible)
            # rounding can separate states that nothing protects by a little more than whole steps
            most = float(noise_loss(noise, spec.values)[within].max()) / spec.epsilon
            factor = max(factor, math.ceil(each.protection.factor), math.ceil(most - 1e-9))
    return factor


def _accepted(spec: MeasureSpec, each: SetPlan, factor: int) -> FloatArray:
    """The most that any table may lose which a device accepts: epsilon for each edge on the way, factor at most."""
    hops = shortest_path(csr_array(restrict(spec.graph, each.possible)), unweighted=True)
    return np.asarray(spec.epsilon * np.minimum(hops, factor), dtype=np.float64)


def _stream(
    spec: MeasureSpec,
    law: FloatArray,
    sets: Sequence[SetPlan],
    noises: Sequence[Noise],
    factor: int,
    adversary: Adversary,
) -> StreamEpsilon:
    """Epsilon of the stream, with all noise that a device can come to use; with delta, that is not known in advance."""
    nothing = StreamEpsilon(None, adversary, "", None)
    if spec.states > _MOST_ACCOUNTED:
        return nothing._replace(reason=f"not computed for more than {_MOST_ACCOUNTED} states")
    if spec.delta is None:
        losses = [noise_loss(noise, spec.values) for noise in noises]
    else:
        losses = [_accepted(spec, each, factor) for each in sets]
    elsewhere = spec.initial is not None and not np.allclose(spec.initial, law, atol=1e-9)
    # from any other start than the stationary one, an endless stream of many states takes far too long
    starts: list[FloatArray | Literal["stationary"]] = ["stationary"]
    if elsewhere and spec.initial is not None and spec.states <= EXACT_STATES:
        starts.insert(0, spec.initial)
    for start in starts:
        try:
            found = stream_loss(losses, start, spec.transition, adversary)
        except (FuguError, GraphError) as error:
            nothing = nothing._replace(reason=str(error))
            continue
        assumed = ", as if started stationary" if elsewhere and isinstance(start, str) else ""
        assumed += ", any tables that a device accepts" if spec.delta is not None else ""
        if math.isfinite(found.epsilon):
            other_start = elsewhere and isinstance(start, str)
            return StreamEpsilon(found.epsilon, adversary, found.bound + assumed, None, other_start)
        reason = "no finite bound was found: neighbouring ticks tell too much of one another"
        nothing = nothing._replace(bound=found.bound + assumed, reason=reason)
    return nothing
