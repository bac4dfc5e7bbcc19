"""What a measured stream as a whole tells about one tick, from its policy alone; the planner and `fugu check policy`.

It counts every table that a device with this policy accepts, because whoever sends tables may choose among them.

Source: docs/proofs/private-points.md, "Private measurements".
"""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, Context, Decimal

import numpy as np
from numpy.typing import ArrayLike

from fugu.contract.errors import FuguError, GuaranteeError
from fugu.contract.guarantee import Adversary
from fugu.contract.measure_policy import MeasurePolicy, StreamStart
from fugu.contract.measurement import Measurement
from fugu.contract.stretches import Stretch, stretches
from fugu.places.composition import accepted_loss, stream_loss
from fugu.places.graphs import GraphError
from fugu.privacy.accountant import ChainLoss
from fugu.privacy.chain_class import MarkovChain

__all__ = ["START_WORDS", "measured_loss", "measured_stretches", "rounded_up", "verify_stream"]

START_WORDS: dict[StreamStart, str] = {
    "any": "any start",
    "given": "the given start",
    "stationary": "if the chain has run for ever",
}
_MOST_ACCOUNTED = 256
_DIGITS = Context(prec=8, rounding=ROUND_CEILING)


def measured_loss(
    measurement: Measurement,
    transition: ArrayLike,
    initial: ArrayLike | None,
    start: StreamStart,
    adversary: Adversary,
) -> ChainLoss:
    """What all points together tell about one tick, whatever tables a device accepts.

    Args:
        transition: N x N, row-stochastic.
        initial: N probabilities of the first state; counts for the start "given" only.

    Returns:
        Epsilon, never below the truth; infinite if no bound was found.

    Raises:
        FuguError: there are too many states, no bound exists for such a chain, or it starts in states that the policy
            takes for impossible.
        GraphError: the losses are no losses.
    """
    if measurement.changes:
        raise GuaranteeError("not computed for steps that change with time")
    if measurement.shows and adversary != "ignorant":
        raise GuaranteeError("of what a chain of other states shows it is known for the ignorant adversary only")
    if len(measurement.successors) > _MOST_ACCOUNTED:
        raise GuaranteeError(f"not computed for more than {_MOST_ACCOUNTED} states")
    distribution = initial if start == "given" else None
    _refuse_others(measurement, transition, start)
    told = accepted_loss(measurement)
    if shows := list(measurement.shows):  # between any two that show different states: a bound for what they show
        told = told[np.ix_(shows, shows)]
    return stream_loss([told], "stationary" if start == "stationary" else distribution, transition, adversary)


def _refuse_others(measurement: Measurement, transition: ArrayLike, start: StreamStart) -> None:
    """Refuse a start in states that the policy takes for impossible: tables tell those from others as they like."""
    first = np.full(len(measurement.successors), float(start == "any"))
    if start == "stationary":
        first = MarkovChain.stationary(transition).stationary_distribution
    if others := [state for state, p in enumerate(first) if p > 0.0 and not measurement.initial >> state & 1]:
        raise GuaranteeError(f"{START_WORDS[start]} may be state {others[0]}, which is not possible at tick 0")


def measured_stretches(measurement: Measurement, epsilon: float, period_us: int | None) -> tuple[Stretch, ...]:
    """What all points together tell about whole stretches.

    Args:
        epsilon: from `measured_loss`, of a single tick.
        period_us: microseconds from tick to tick, or none.
    """
    return stretches(epsilon, float(accepted_loss(measurement).max()), period_us, equal_leakages=False)


def rounded_up(epsilon: float) -> float:
    """An epsilon in eight digits, not below: what is printed is then what is claimed."""
    short = float(_DIGITS.create_decimal(Decimal(epsilon)))
    return short if short >= epsilon else math.nextafter(short, math.inf)


def verify_stream(policy: MeasurePolicy) -> ChainLoss:
    """Derive what a policy claims of its stream as a whole.

    Args:
        policy: with an epsilon in `stream_loss`.

    Returns:
        What the stream loses, not above the claim.

    Raises:
        GuaranteeError: it loses more, or what it loses cannot be found.
    """
    claim = policy.stream_loss
    try:
        found = measured_loss(policy.measurement, policy.matrix, policy.initial, claim.start, claim.adversary)
    except (FuguError, GraphError) as error:
        raise GuaranteeError(f"the epsilon {claim.epsilon} of the whole stream is not verified: {error}") from None
    if claim.epsilon is None or not found.epsilon <= claim.epsilon:
        actual = f"it is {found.epsilon:.6g}" if math.isfinite(found.epsilon) else "there is no bound"
        raise GuaranteeError(
            f"the epsilon {claim.epsilon} of the whole stream, for the {claim.adversary} adversary and "
            f"{START_WORDS[claim.start]}, is not verified: {actual}"
        )
    return found
