"""The guarantee check: from a class of chains and a table of integers to the epsilon that really holds.

Rules:
- every rounding goes outward, so a reported loss is never below the true one;
- a bound that is only known to hold for a wider adversary is reported as that, never the other way round;
- arithmetic is on integers, fractions and decimals, so that the smallest device can run it.

Source of every formula: Chakrabarti et al., "Optimal Local Bayesian Differential Privacy over Markov Chains"
(2020), called BDP here, as corrected in docs/proofs/randomised-response.md, "Binary chains in closed form".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import partial
from typing import Annotated, Literal, NamedTuple

from pydantic import Field

from fugu.contract._document import Document
from fugu.contract.chains import BinaryChains, BoundedChains, ChainClass, FiniteChains, JointChains, odds_ratio
from fugu.contract.errors import GuaranteeError
from fugu.contract.exponential import exp_up
from fugu.contract.finite_leakage import finite_loss
from fugu.contract.leakage import (
    CONTEXT,
    Way,
    as_decimal,
    ignorant_leakage,
    informed_leakage,
    universal_leakage,
    worst_odds_ratio,
)
from fugu.contract.noise_table import NoiseTable
from fugu.contract.soft_leakage import informed_loss, soft_loss

__all__ = [
    "Adversary",
    "Guarantee",
    "Loss",
    "check_guarantee",
    "check_ratios",
    "check_shown",
    "lasting_ratios",
    "loss",
    "ratio_loss",
    "shown_loss",
    "tick_ratios",
]

Adversary = Literal["ignorant", "informed", "universal"]
"""What the adversary knows: one chain of the class; also any set of true states; any side information about states.

No adversary is one who has yet to learn which chain of the class it is.
"""

_ROUNDING = Decimal("1e-30")
"""Far above the error of all that is computed (fugu.contract.leakage says why), and far below what a float can tell."""


class Guarantee(Document):
    """What a stream promises: no adversary of this kind gains a log-likelihood ratio above epsilon.

    Attributes:
        epsilon: Bound > 0 on the log-likelihood ratio between two values of one state, in nats.
        adversary: What the adversary may know.
    """

    epsilon: Annotated[float, Field(gt=0.0)]
    adversary: Adversary


class Loss(NamedTuple):
    """The epsilon that a mechanism really has, rounded up.

    Attributes:
        epsilon: The larger of the two directions, in nats.
        epsilon_01: The direction "state 0 rather than 1"; with more than two states, equal to epsilon.
        epsilon_10: The direction "state 1 rather than 0"; with more than two states, equal to epsilon.
        adversary: The adversary that was asked for.
        bound: The theorem or bound behind the numbers.
    """

    epsilon: float
    epsilon_01: float
    epsilon_10: float
    adversary: Adversary
    bound: str


def check_guarantee(chains: ChainClass, table: NoiseTable, guarantee: Guarantee) -> Loss:
    """Refuse a table that loses more than its guarantee allows, alone or in turns with others that pass as well.

    Args:
        chains: The class of chains that the readings belong to.
        table: The noise table.
        guarantee: The promised epsilon, in nats, and its adversary.

    Returns:
        The loss of the table and of all that may take turns with it (`lasting_ratios`), not above the guarantee.

    Raises:
        GuaranteeError: The loss is above the guarantee, is not finite, or the numbers of states differ.

    Source: docs/proofs/randomised-response.md, "Binary chains in closed form" and "Tables that change".
    """
    _check_states(chains, table)
    return check_ratios(chains, tick_ratios(table), guarantee, "the table")


def check_ratios(chains: ChainClass, ratios: tuple[Fraction, Fraction], guarantee: Guarantee, what: str) -> Loss:
    """Refuse a mechanism with these likelihood ratios per tick if it loses more than its guarantee allows.

    A stream whose mechanism changes from tick to tick keeps the guarantee if each of them passes this check by itself.

    Args:
        chains: The class of chains that the readings belong to.
        ratios: As for `ratio_loss`.
        guarantee: The promised epsilon, in nats, and its adversary.
        what: The mechanism's name in an error, in the singular.

    Returns:
        The loss of the mechanism and of all that may take turns with it (`lasting_ratios`), not above the guarantee.

    Raises:
        GuaranteeError: The loss is above the guarantee, or is not finite.

    Source: docs/proofs/randomised-response.md, "Tables that change".
    """
    return _held(ratio_loss(chains, *lasting_ratios(chains, *ratios), guarantee.adversary), guarantee, what)


def check_shown(
    chains: JointChains, column: int, rate: Fraction, guarantee: Guarantee, what: str, *, alone: bool = False
) -> Loss:
    """Refuse a mechanism of one of several streams if it tells more than its class allows, or all of them too much.

    Every device checks its own streams, and that together with what the others may tell nothing is above the guarantee:
    so it holds for all of them, wherever they are.

    Args:
        chains: The class, which names the streams.
        column: Which of them the mechanism is of.
        rate: Bound on what a tick's outputs tell of any two states of the stream, in nats.
        guarantee: The promised epsilon, and its adversary.
        what: The mechanism's name in an error, in the singular.
        alone: Whether the guarantee is for those who see of this stream no more than this mechanism.

    Returns:
        The loss of all streams together, not above the guarantee.

    Raises:
        GuaranteeError: The mechanism or the loss is too much, or the loss is not finite.

    Source: docs/proofs/joint-streams.md, "Streams that move together".
    """
    shown = chains.streams[column]
    if rate > Fraction(shown.rate):
        raise GuaranteeError(
            f"{what} tells {float(rate):.9g} nats in a tick, above the {shown.rate:.9g} that the class of chains "
            f"allows stream {shown.name}"
        )
    rates = [stream.rate for stream in chains.streams]
    if alone:
        rates[column] = math.nextafter(float(rate), math.inf)
    return _held(shown_loss(chains, guarantee.adversary, rates), guarantee, what)


def _held(actual: Loss, guarantee: Guarantee, what: str) -> Loss:
    if not actual.epsilon <= guarantee.epsilon:
        raise GuaranteeError(
            f"{what} loses epsilon {actual.epsilon!r} to the {guarantee.adversary} adversary, "
            f"above the {guarantee.epsilon!r} of its guarantee"
        )
    return actual


def lasting_ratios(chains: ChainClass, ratio_01: Fraction, ratio_10: Fraction) -> tuple[Fraction, Fraction]:
    """Return the ratios that a mechanism is held to, so that mechanisms may take turns in one stream.

    With q+r <= 1 a direction's loss depends on its own ratio only, and the mechanism that has the largest one answers
    for all. With q+r > 1 neighbouring ticks work in opposite directions: two mechanisms, each strong in one of them,
    lose more in turns than either alone. One that is held to its larger ratio in both directions answers for all again.

    Args:
        chains: The class of chains that the readings belong to.
        ratio_01: As for `ratio_loss`.
        ratio_10: The same between state 1 and state 0.

    Returns:
        The same ratios; the larger one twice if some chain of the class has q+r > 1.

    Source: docs/proofs/randomised-response.md, "Tables that change".
    """
    if isinstance(chains, BinaryChains) and Fraction(chains.q[1]) + Fraction(chains.r[1]) > 1:
        return (max(ratio_01, ratio_10),) * 2
    return ratio_01, ratio_10


def loss(chains: ChainClass, table: NoiseTable, adversary: Adversary) -> Loss:
    """Return the epsilon of a randomised symbol stream, one symbol per tick, from this table alone, for ever.

    Args:
        chains: The class of chains that the readings belong to.
        table: The noise table.
        adversary: What the adversary knows.

    Returns:
        The loss in nats, rounded up; never below the loss of a single tick.

    Raises:
        GuaranteeError: The numbers of states differ, or the loss is not finite.

    Source: BDP theorem 1 as corrected in docs/proofs/randomised-response.md, "Binary chains in closed form".
    """
    _check_states(chains, table)
    return ratio_loss(chains, *tick_ratios(table), adversary)


def _check_states(chains: ChainClass, table: NoiseTable) -> None:
    if table.states != chains.states:
        raise GuaranteeError(f"the table has {table.states} states and its class of chains {chains.states}")


def tick_ratios(table: NoiseTable) -> tuple[Fraction, Fraction]:
    """Return the exact likelihood ratios of one symbol.

    Args:
        table: The noise table.

    Returns:
        max_z B[0,z]/B[1,z] and max_z B[1,z]/B[0,z]; with more than two states, the largest ratio of any
        two states, twice.
    """
    weights = table.weights()
    if table.states == 2:
        return _largest(weights[0], weights[1]), _largest(weights[1], weights[0])
    columns = list(zip(*weights, strict=True))
    largest = max(Fraction(max(column), min(column)) for column in columns)
    return largest, largest


def _largest(above: tuple[int, ...], below: tuple[int, ...]) -> Fraction:
    return max(Fraction(a, b) for a, b in zip(above, below, strict=True))


def ratio_loss(chains: ChainClass, ratio_01: Fraction, ratio_10: Fraction, adversary: Adversary) -> Loss:
    """Return the epsilon of any mechanism whose per-tick likelihood ratios never exceed these.

    Args:
        chains: The class of chains that the readings belong to.
        ratio_01: Bound >= 1 on the likelihood ratio of a tick's output between state 0 and state 1.
        ratio_10: The same between state 1 and state 0; with more than two states only the larger counts. In joint
            chains it is for the outputs of all streams together.
        adversary: What the adversary knows.

    Returns:
        The loss in nats, rounded up.

    Raises:
        GuaranteeError: A ratio is below 1, or the loss is not finite.

    Source: BDP theorem 1 as corrected in docs/proofs/randomised-response.md, "Binary chains in closed form".
    """
    if min(ratio_01, ratio_10) < 1:
        raise GuaranteeError(f"a likelihood ratio must be at least 1, got {float(ratio_01)!r} and {float(ratio_10)!r}")
    if ratio_01 == ratio_10 == 1:
        return Loss(0.0, 0.0, 0.0, adversary, "constant output")
    with localcontext(CONTEXT):
        if isinstance(chains, BoundedChains):
            return _universal(chains, ratio_01, ratio_10, adversary)
        if isinstance(chains, FiniteChains):
            return _finite(chains, ratio_01, ratio_10, adversary)
        if isinstance(chains, JointChains):
            rate = _float_above(as_decimal(max(ratio_01, ratio_10)).ln() + _ROUNDING)
            return _shown(chains, [[rate if a != b else 0.0 for b in chains.shows] for a in chains.shows], adversary)
        if adversary == "universal":
            return _universal_binary(chains, ratio_01, ratio_10)
        return _stationary(chains, ratio_01, ratio_10, adversary)


def _stationary(chains: BinaryChains, ratio_01: Fraction, ratio_10: Fraction, adversary: Adversary) -> Loss:
    """Take the worst member of the class, in each direction.

    The map of one tick f(u) = ((1-q)u + q)/(ru + 1-r) = (u - q(u-1))/(1 + r(u-1)) decreases in q and r for u >= 1
    and increases for u <= 1. With q+r < 1 it is applied to u >= 1 only, so its fixed point is largest at the
    lowest corner; with q+r > 1, M = f(gN) (gN <= 1) and N = f(GM) (GM >= 1) drive each other apart as q and r
    grow, so it is largest at the highest corner. A straddling class needs both; at q+r = 1 f is 1. That
    proves the ignorant case. The informed one, with q+r < 1, is proved at the source, for endless streams (for those
    that end it is false). With q+r > 1 it is false: a direction can be worst inside an interval. There a class that is
    more than a point gets the universal bound of its highest corner.

    Source: docs/proofs/randomised-response.md, "Worst corner".
    """
    low, high = ((Fraction(q), Fraction(r)) for q, r in zip(chains.q, chains.r, strict=True))
    members = [low] if sum(low) < 1 else []
    if sum(high) > 1 and (low == high or adversary == "ignorant"):
        members.append(high)
    epsilons = [as_decimal(ratio_01).ln(), as_decimal(ratio_10).ln()]
    for q, r in members:
        for direction, way in enumerate((Way(q, r, ratio_01, 1 / ratio_10), Way(r, q, ratio_10, 1 / ratio_01))):
            leakage = ignorant_leakage(way) if adversary == "ignorant" else informed_leakage(*way).ratio
            epsilons[direction] = max(epsilons[direction], (as_decimal(way.largest) * leakage * leakage).ln())
    bound = "BDP theorem 1" if adversary == "ignorant" else "bridge recursion"
    if sum(high) > 1 and low != high and adversary == "informed":
        worst = _universal_epsilons(worst_odds_ratio(*high), (ratio_01, ratio_10), (max(ratio_01, ratio_10),) * 2)
        epsilons = [max(pair) for pair in zip(epsilons, worst, strict=True)]
        bound = "odds-ratio bound"
    return _rounded_up(epsilons, adversary, bound)


def _corners(chains: BinaryChains) -> list[tuple[Fraction, Fraction]]:
    return sorted({(Fraction(q), Fraction(r)) for q in chains.q for r in chains.r})


def _universal_binary(chains: BinaryChains, ratio_01: Fraction, ratio_10: Fraction) -> Loss:
    """Bound a binary class by the odds ratio of its steps; it is monotone in q and r, so a corner is worst.

    Steps of a class with q+r < 1 keep its sign, so each direction needs its own ratio only; the larger of
    the two directions, `epsilon`, covers steps of the other sign as well.
    """
    corners = _corners(chains)
    alpha = max(worst_odds_ratio(q, r) for q, r in corners)
    positive = all(q + r <= 1 for q, r in corners)
    neighbours = (ratio_01, ratio_10) if positive else (max(ratio_01, ratio_10),) * 2
    epsilons = _universal_epsilons(alpha, (ratio_01, ratio_10), neighbours)
    return _rounded_up(epsilons, "universal", "odds-ratio bound")


def _universal(chains: BoundedChains, ratio_01: Fraction, ratio_10: Fraction, adversary: Adversary) -> Loss:
    """Bound a class of k-state chains, for every adversary, by the odds ratio of its steps."""
    worst = (max(ratio_01, ratio_10),) * 2
    ticks = (ratio_01, ratio_10) if chains.states == 2 else worst
    epsilons = _universal_epsilons(Fraction(chains.odds_ratio), ticks, worst)
    return _rounded_up(epsilons, adversary, "odds-ratio bound")


def _finite(chains: FiniteChains, ratio_01: Fraction, ratio_10: Fraction, adversary: Adversary) -> Loss:
    """Take the least bound of known chains; whatever the direction, the larger ratio counts.

    They are followed by the accountant. The odds ratios of their steps alone bound the loss to every adversary, and for
    more than two states can be less than what quilts say of the informed one.
    """
    largest = max(ratio_01, ratio_10)
    found = []
    try:
        odds = Fraction(max(odds_ratio(transition) for transition in chains.transitions))
        epsilons = _universal_epsilons(odds, (largest,) * 2, (largest,) * 2)
        found.append(_rounded_up(epsilons, adversary, "odds-ratio bound"))
    except ValueError as error:
        if adversary == "universal":
            raise GuaranteeError(f"no finite guarantee against the universal adversary: {error}") from None
    if adversary != "universal":
        rate = _float_above(as_decimal(largest).ln() + _ROUNDING)
        bound = "known states" if adversary == "informed" else "chain accountant"
        try:
            epsilon = finite_loss(chains.transitions, rate, informed=adversary == "informed")
            found.append(Loss(epsilon, epsilon, epsilon, adversary, bound))
        except GuaranteeError:
            if not found:
                raise
    return min(found, key=lambda each: each.epsilon)


def shown_loss(chains: JointChains, adversary: Adversary, rates: Sequence[float] | None = None) -> Loss:
    """Return the epsilon of all streams of joint chains together, about what they show at one tick.

    Args:
        chains: The class.
        adversary: What the adversary knows; the informed one as of `fugu.contract.soft_leakage.informed_loss`.
        rates: What a tick of each stream may tell at most, in nats; none for what the class allows.

    Returns:
        The loss in nats, rounded up: for any two states of one stream, and any two joint states of all.

    Raises:
        GuaranteeError: The loss is not finite.

    Source: docs/proofs/joint-streams.md, "Streams that move together".
    """
    rates = [stream.rate for stream in chains.streams] if rates is None else rates
    with localcontext(CONTEXT):
        return _shown(chains, chains.joint_rates(rates), adversary)


def _shown(chains: JointChains, joint_rates: list[list[float]], adversary: Adversary) -> Loss:
    """Take the first bound that there is: the later ones are larger."""
    odds = chains.odds_ratio
    if odds is None:
        kernels = [[list(row) for row in matrix] for matrix in chains.transitions]
        ways: list[tuple[str, Callable[[], float]]] = [("soft evidence", lambda: soft_loss(kernels, joint_rates))]
        if adversary == "ignorant":
            ways.insert(0, ("chain accountant", lambda: finite_loss(kernels, joint_rates, informed=False)))
        elif adversary == "informed":
            whole = partial(finite_loss, kernels, joint_rates, informed=True)
            ways.insert(0, ("known states", lambda: informed_loss(kernels, joint_rates, chains.shows, whole)))
        for bound, way in ways:
            with suppress(GuaranteeError):
                epsilon = way()
                return Loss(epsilon, epsilon, epsilon, adversary, bound)
        try:
            odds = max(odds_ratio(matrix) for matrix in chains.transitions)
        except ValueError as error:
            raise GuaranteeError(f"no finite guarantee against the {adversary} adversary: {error}") from None
    ratio = exp_up(Fraction(max(map(max, joint_rates))))
    return _rounded_up(_universal_epsilons(Fraction(odds), (ratio,) * 2, (ratio,) * 2), adversary, "odds-ratio bound")


def _universal_epsilons(
    alpha: Fraction, ticks: tuple[Fraction, Fraction], neighbours: tuple[Fraction, Fraction]
) -> list[Decimal]:
    """Return log(G m^2) in both directions: G from `ticks`, m the leakage of `neighbours`."""
    epsilons = []
    for tick, worst in zip(ticks, neighbours, strict=True):
        leakage = universal_leakage(alpha, worst)
        epsilons.append((as_decimal(tick) * leakage * leakage).ln())
    return epsilons


def _rounded_up(epsilons: list[Decimal], adversary: Adversary, bound: str) -> Loss:
    """Return the loss as floats that are not below the decimals plus their rounding error."""
    upward = [_float_above(epsilon + _ROUNDING) for epsilon in epsilons]
    return Loss(max(upward), upward[0], upward[1], adversary, bound)


def _float_above(value: Decimal) -> float:
    nearest = float(value)
    return nearest if Decimal(nearest) >= value else math.nextafter(nearest, math.inf)
