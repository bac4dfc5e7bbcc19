"""The loss by several releases together: about any two states, one tick, a sequence, or a correlated stream.

For each pair of states, releases of independent noise reveal the sum of their losses. An epsilon for protected pairs
alone does not add up, unless every release protects the same pairs. An epsilon per tick is no epsilon of the stream:
neighbouring ticks tell of one another. Source: DPHMM, theorems 6.3, 7.1 and 7.2; docs/proofs/chain-accountant.md, "The
chain accountant".
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import ROUND_CEILING, Context, Decimal
from fractions import Fraction
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import csr_array
from scipy.sparse.csgraph import shortest_path

from fugu.chains.arrays import Floats
from fugu.contract.errors import FuguError, GuaranteeError
from fugu.contract.losses import OUTWARD, Adversary
from fugu.contract.measure_policy import MeasurePolicy, StreamStart
from fugu.contract.measure_table import states_in
from fugu.contract.measurement import ConstraintSets, Measurement
from fugu.contract.stretches import Stretch, StretchBound
from fugu.places.graphs import GraphError
from fugu.privacy.accountant import ChainLoss, chain_loss
from fugu.privacy.chain_class import MarkovChain

__all__ = ["START_WORDS", "any_pair_loss", "measured_loss", "measured_stretches", "round_up", "verify_stream"]

_UP = 1.0 + OUTWARD


def any_pair_loss(epsilon: float, factor: Fraction | int | float) -> float:
    """Bound the loss in nats by one release between any two states, protected or not, rounded up (theorem 6.3).

    It holds for continuous K-norm noise with the factor itself, infinite for a flat hull. Staircases and certified
    tables compare whole steps of K, so pass `math.ceil(factor)` for them.
    """
    return float(epsilon * factor) * _UP


def accepted_loss(measurement: Measurement) -> Floats:
    """Bound the loss (N, N) between two states by any table that a device accepts, in nats, rounded up.

    It is epsilon for each edge of the policy graph on the shortest way between them inside a set of possible states. It
    is at most epsilon times the factor. The fallback loses at most epsilon between any two states.

    Raises:
        PolicyError: the sets of possible states have no end.
    """
    states = measurement.states
    multiples = np.full((states, states), 1.0)
    for possible_states in ConstraintSets(measurement).all_sets():
        edges = np.zeros((states, states), dtype=np.int8)
        for state in states_in(possible_states):
            edges[state, states_in(measurement.neighbours[state] & possible_states)] = 1
        hops = shortest_path(csr_array(edges), unweighted=True)
        state_pairs = np.ix_(states_in(possible_states), states_in(possible_states))
        multiples[state_pairs] = np.maximum(multiples[state_pairs], np.minimum(hops[state_pairs], measurement.factor))
    return np.asarray(measurement.epsilon * multiples * _UP * (1.0 - np.eye(states)), dtype=np.float64)


def stream_loss(
    losses: Sequence[Floats],
    initial: ArrayLike | Literal["stationary"] | None,
    transition: ArrayLike,
    adversary: Adversary = "ignorant",
    length: int | None = None,
) -> ChainLoss:
    """Bound the event-level epsilon of a stream: what all outputs together reveal about the state of any one tick.

    Every tick counts with the largest loss of each pair over all tables that may be used, the fallback included. So it
    does not matter which table a tick uses, nor whether that depends on earlier outputs (delta-location sets). Given
    these, a state changes the likelihood of its own tick alone. `initial` is `None` for any distribution, `length` is
    `None` for an endless stream; zeros in `transition` are allowed. Epsilon is never below the truth; it is infinite if
    no bound was found.

    Raises:
        GraphError: There is no table, or one separates two states for certain.
        ChainClassError: `transition` is no transition matrix, `initial` no distribution, or no bound exists for them.
    """
    if not len(losses):
        raise GraphError("name the losses of all tables that may be used, that of the fallback included")
    largest_losses = np.max(np.asarray(losses, dtype=np.float64), axis=0)
    if not np.all(np.isfinite(largest_losses)):
        raise GraphError("a table reveals for certain which of two states it was: cap its hull first")
    matrix = np.asarray(transition, dtype=np.float64)
    if isinstance(initial, str):
        chain = MarkovChain.stationary(matrix)
    else:
        chain = MarkovChain(matrix, None if initial is None else np.asarray(initial, dtype=np.float64))
    return chain_loss(chain, largest_losses, adversary, length)


START_WORDS: dict[StreamStart, str] = {
    "any": "any start",
    "given": "the given start",
    "stationary": "if the chain has run for ever",
}
_MOST_ACCOUNTED = 256
_DIGITS = Context(prec=8, rounding=ROUND_CEILING)


def measured_loss(
    measurement: Measurement, transition: ArrayLike, initial: ArrayLike | None, start: StreamStart, adversary: Adversary
) -> ChainLoss:
    """Bound the loss of one tick by all released points, whichever tables the device accepts.

    `initial` is used for the start "given" only. The loss is never below the truth, and infinite if no bound was found.

    Raises:
        FuguError: there are too many states, no bound exists for such a chain, or the chain may start in a state that
            the policy excludes.
    """
    if measurement.changes:
        raise GuaranteeError("not computed for steps that change with time")
    if measurement.shows and adversary != "ignorant":
        raise GuaranteeError("of what a chain of other states shows it is known for the ignorant adversary only")
    if len(measurement.successors) > _MOST_ACCOUNTED:
        raise GuaranteeError(f"not computed for more than {_MOST_ACCOUNTED} states")
    start_distribution = initial if start == "given" else None
    _refuse_impossible_start(measurement, transition, start)
    loss = accepted_loss(measurement)
    if shows := list(measurement.shows):  # a loss between chain states bounds that between the states they show
        loss = loss[np.ix_(shows, shows)]
    return stream_loss([loss], "stationary" if start == "stationary" else start_distribution, transition, adversary)


def _refuse_impossible_start(measurement: Measurement, transition: ArrayLike, start: StreamStart) -> None:
    """Refuse a start in states that the policy excludes: a table may separate these from others for certain."""
    prior = np.full(len(measurement.successors), float(start == "any"))
    if start == "stationary":
        prior = MarkovChain.stationary(transition).stationary_distribution
    if bad_states := [state for state, p in enumerate(prior) if p > 0.0 and not measurement.initial >> state & 1]:
        raise GuaranteeError(f"{START_WORDS[start]} may be state {bad_states[0]}, which is not possible at tick 0")


def measured_stretches(measurement: Measurement, epsilon: float, period_us: int | None) -> tuple[Stretch, ...]:
    """Bound the loss of whole stretches by all released points; `epsilon` bounds the loss of a single tick."""
    rate = float(accepted_loss(measurement).max())
    return StretchBound(epsilon, 1, rate, equal_leakages=False, known_elsewhere=False).rows(period_us)


def round_up(epsilon: float) -> float:
    """Round an epsilon up to eight digits, so that the printed number is the claimed one."""
    eight_digits = float(_DIGITS.create_decimal(Decimal(epsilon)))
    return eight_digits if eight_digits >= epsilon else math.nextafter(eight_digits, math.inf)


def verify_stream(policy: MeasurePolicy) -> ChainLoss:
    """Recompute the loss of a whole stream that a policy claims in `stream_loss`, and return it.

    Raises:
        GuaranteeError: the loss is above the claim, or no bound on it is known.
    """
    claim = policy.stream_loss
    try:
        loss = measured_loss(policy.measurement, policy.matrix, policy.initial, claim.start, claim.adversary)
    except (FuguError, GraphError) as error:
        raise GuaranteeError(f"the epsilon {claim.epsilon} of the whole stream is not verified: {error}") from None
    if claim.epsilon is None or not loss.epsilon <= claim.epsilon:
        reason = f"it is {loss.epsilon:.6g}" if math.isfinite(loss.epsilon) else "there is no bound"
        raise GuaranteeError(
            f"the epsilon {claim.epsilon} of the whole stream, for the {claim.adversary} adversary and "
            f"{START_WORDS[claim.start]}, is not verified: {reason}"
        )
    return loss
